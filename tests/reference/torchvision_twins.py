"""torchvision's classification networks in plain PyTorch, by the papers' tables and torchvision's names, without dropout.

torchvision_test.cpp holds that the names are torchvision's.
"""
from torch import nn

NORM = {"eps": 1e-5, "momentum": 0.1}


def conv_norm(i, o, kernel=1, stride=1, groups=1, act=None, norm=None):
    layers = [nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o, **(norm or NORM))]
    return nn.Sequential(*layers, *([act()] if act else []))


class ResidualBlock(nn.Module):
    def __init__(self, i, width, stride, bottleneck):
        super().__init__()
        o = 4 * width if bottleneck else width
        shapes = [(i, width, 1, 1), (width, width, 3, stride), (width, o, 1, 1)] if bottleneck else [
            (i, width, 3, stride), (width, o, 3, 1)]
        self.count = len(shapes)
        for n, (a, b, kernel, s) in enumerate(shapes, 1):
            setattr(self, f"conv{n}", nn.Conv2d(a, b, kernel, s, kernel // 2, bias=False))
            setattr(self, f"bn{n}", nn.BatchNorm2d(b))
        self.downsample = conv_norm(i, o, 1, stride) if stride != 1 or i != o else None

    def forward(self, x):
        y = x
        for n in range(1, self.count + 1):
            y = getattr(self, f"bn{n}")(getattr(self, f"conv{n}")(y))
            y = y.relu() if n < self.count else y
        return (y + (self.downsample(x) if self.downsample else x)).relu()


class Resnet(nn.Module):
    def __init__(self, counts, bottleneck, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        i = 64
        for stage, count in enumerate(counts):
            blocks = []
            for n in range(count):
                blocks.append(ResidualBlock(i, 64 << stage, 2 if stage and not n else 1, bottleneck))
                i = (64 << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(i, classes)

    def forward(self, x):
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


class Inverted(nn.Module):
    def __init__(self, name, parts, shortcut):
        super().__init__()
        self.name, self.shortcut = name, shortcut
        setattr(self, name, nn.Sequential(*parts))

    def forward(self, x):
        y = getattr(self, self.name)(x)
        return x + y if self.shortcut else y


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed, act, gate):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.act, self.gate = act(), gate()

    def forward(self, x):
        return self.gate(self.fc2(self.act(self.fc1(x.mean((2, 3), keepdim=True))))) * x


class Classifier(nn.Module):
    def __init__(self, features, classifier):
        super().__init__()
        self.features, self.classifier = nn.Sequential(*features), nn.Sequential(*classifier)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet_v2(classes):
    features, i = [conv_norm(3, 32, 3, 2, act=nn.ReLU6)], 32
    for t, c, n, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(n):
            stride, wide = s if block == 0 else 1, i * t
            expand = [conv_norm(i, wide, act=nn.ReLU6)] if t != 1 else []
            features.append(Inverted("conv", [*expand, conv_norm(wide, wide, 3, stride, wide, nn.ReLU6),
                                              nn.Conv2d(wide, c, 1, bias=False), nn.BatchNorm2d(c)], stride == 1 and i == c))
            i = c
    return Classifier([*features, conv_norm(i, 1280, act=nn.ReLU6)], [nn.Identity(), nn.Linear(1280, classes)])


# kernel, expanded, out, squeeze-and-excite, hardswish, stride
SMALL = ((3, 16, 16, 1, 0, 2), (3, 72, 24, 0, 0, 2), (3, 88, 24, 0, 0, 1), (5, 96, 40, 1, 1, 2), (5, 240, 40, 1, 1, 1),
         (5, 240, 40, 1, 1, 1), (5, 120, 48, 1, 1, 1), (5, 144, 48, 1, 1, 1), (5, 288, 96, 1, 1, 2), (5, 576, 96, 1, 1, 1),
         (5, 576, 96, 1, 1, 1))
LARGE = ((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
         (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
         (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1))


def mobilenet_v3(table, last, classes):
    norm = {"eps": 1e-3, "momentum": 0.01}
    features, i = [conv_norm(3, 16, 3, 2, act=nn.Hardswish, norm=norm)], 16
    for kernel, wide, o, squeezes, swish, stride in table:
        act = nn.Hardswish if swish else nn.ReLU
        parts = [conv_norm(i, wide, act=act, norm=norm)] if wide != i else []
        parts.append(conv_norm(wide, wide, kernel, stride, wide, act, norm))
        if squeezes:
            squeezed = max(8, (wide // 4 + 4) // 8 * 8)
            parts.append(SqueezeExcite(wide, squeezed + 8 if squeezed < 0.9 * (wide // 4) else squeezed, nn.ReLU, nn.Hardsigmoid))
        parts.append(conv_norm(wide, o, norm=norm))
        features.append(Inverted("block", parts, stride == 1 and i == o))
        i = o
    return Classifier([*features, conv_norm(i, 6 * i, act=nn.Hardswish, norm=norm)],
                      [nn.Linear(6 * i, last), nn.Hardswish(), nn.Identity(), nn.Linear(last, classes)])


def efficientnet_b0(classes):
    features, i = [conv_norm(3, 32, 3, 2, act=nn.SiLU)], 32
    for t, kernel, s, c, n in ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
                               (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)):
        stage = []
        for block in range(n):
            stride, wide = s if block == 0 else 1, i * t
            expand = [conv_norm(i, wide, act=nn.SiLU)] if t != 1 else []
            stage.append(Inverted("block", [*expand, conv_norm(wide, wide, kernel, stride, wide, nn.SiLU),
                                            SqueezeExcite(wide, i // 4, nn.SiLU, nn.Sigmoid), conv_norm(wide, c)],
                                  stride == 1 and i == c))
            i = c
        features.append(nn.Sequential(*stage))
    return Classifier([*features, conv_norm(i, 4 * i, act=nn.SiLU)], [nn.Identity(), nn.Linear(4 * i, classes)])


TWINS = {"resnet18": lambda c: Resnet((2, 2, 2, 2), False, c), "resnet50": lambda c: Resnet((3, 4, 6, 3), True, c),
         "mobilenet_v2": mobilenet_v2, "mobilenet_v3_small": lambda c: mobilenet_v3(SMALL, 1024, c),
         "mobilenet_v3_large": lambda c: mobilenet_v3(LARGE, 1280, c), "efficientnet_b0": efficientnet_b0}
