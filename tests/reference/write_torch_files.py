"""Writes, for twins of the preset models, PyTorch's weights, inputs, logits and one training step.

usage: write_torch_files.py FOLDER; exit code 77 when torch is not installed.
Of torchvision's architectures NAME.pt holds the weights, as torch.save() writes them, and NAME.case.safetensors inputs
(NHWC), logits in evaluation mode, and logits and running statistics of a pass in training.
Each NAME.model.safetensors holds the weights by PyTorch's names; NAME.case.safetensors the inputs (NHWC), labels,
logits in evaluation mode, and the loss and weights after one training step (batch statistics, momentum, decay).
"""
import json
import os
import struct
import sys

try:
    import torch
    from torch import nn
except ImportError:
    print("torch is not installed: skipped")
    sys.exit(77)


def write_safetensors(path, tensors):
    header, chunks, offset = {}, [], 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        raw = tensor.numpy().tobytes()
        header[name] = {"dtype": {torch.float32: "F32", torch.float64: "F64", torch.int64: "I64"}[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        chunks.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(10 * 12 * 2, 30), nn.Linear(30, 20), nn.Linear(20, 5)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x.flatten(1))))))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = nn.Conv2d(6, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc1, self.fc2 = nn.Linear(8 * 2 * 3, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = torch.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2)
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(2, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(Block(4, 4, 1), Block(4, 4, 1))
        self.layer2 = nn.Sequential(Block(4, 8, 2), Block(8, 8, 1))
        self.layer3 = nn.Sequential(Block(8, 16, 2), Block(16, 16, 1))
        self.fc = nn.Linear(16, 5)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


class Separable(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv_dw, self.bn1 = nn.Conv2d(i, i, 3, stride, 1, groups=i, bias=False), nn.BatchNorm2d(i)
        self.conv_pw, self.bn2 = nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o)

    def forward(self, x):
        return nn.functional.relu6(self.bn2(self.conv_pw(nn.functional.relu6(self.bn1(self.conv_dw(x))))))


class Mobilenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv_stem, self.bn1 = nn.Conv2d(2, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.blocks = nn.Sequential(Separable(4, 6, 1), Separable(6, 8, 2), Separable(8, 8, 1))
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        return self.fc(self.blocks(nn.functional.relu6(self.bn1(self.conv_stem(x)))).mean((2, 3)))


class Layers(nn.Module):
    """A `layers:` list with dilation, groups, ReLU6, average pooling and an uneven stride."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(2, 6, 3, padding=2, dilation=2)
        self.b = nn.Conv2d(6, 9, (3, 2), stride=(1, 2), padding=(1, 0), groups=3)
        self.fc = nn.Linear(9 * 5 * 3, 5)

    def forward(self, x):
        x = nn.functional.relu6(3 * self.a(x) / 3)
        return self.fc(torch.nn.functional.avg_pool2d(self.b(x), 2).flatten(1))


def randomize_norms(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2.0)


def write_architectures(folder):
    from torchvision_twins import TWINS
    # The same numbers in each of the forms in which they are found.
    forms = {"resnet50": lambda m: {"epoch": 1, "model": m.state_dict()}, "mobilenet_v3_small": lambda m: m.double().state_dict(),
             "mobilenet_v2": lambda m: m.to(memory_format=torch.channels_last).state_dict(),
             "mobilenet_v3_large": lambda m: {k: nn.Parameter(v) if v.is_floating_point() else v for k, v in m.state_dict().items()}}
    for number, (name, twin) in enumerate(TWINS.items()):
        torch.manual_seed(number)
        model = twin(10)
        randomize_norms(model)
        x = torch.randn(4, 3, 64, 64)
        with torch.no_grad():
            case = {"inputs": x.permute(0, 2, 3, 1), "logits": model.eval()(x)}
            torch.save(forms.get(name, lambda m: m.state_dict())(model), os.path.join(folder, name + ".pt"))
            case["training"] = model.float().train()(x)
        for key, value in model.state_dict().items():
            if "running" in key or "num_batches" in key:
                case["after." + key] = value
        write_safetensors(os.path.join(folder, name + ".case.safetensors"), case)

def losses():
    """Losses in float64: inputs, targets, the loss as NAME.loss and its gradient as NAME.grad."""
    generator = torch.Generator().manual_seed(7)
    functional, case = nn.functional, {}

    def random(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def add(name, x, compute):
        x = x.clone().requires_grad_()
        loss = compute(x)
        loss.backward()
        case.update({name + ".loss": loss.reshape(1), name + ".grad": x.grad})

    rows, classes = 9, 5
    logits, labels = 2 * random(rows, classes), torch.randint(classes, (rows,), generator=generator)
    weights, chances = torch.rand(classes, generator=generator, dtype=torch.float64) + 0.2, functional.softmax(random(rows, classes), 1)
    case.update(logits=logits, labels=labels, weights=weights, chances=chances)
    for smoothing in (0.0, 0.3):
        for name, target, weight in (("plain", labels, None), ("weighted", labels, weights), ("soft", chances, None), ("soft_weighted", chances, weights)):
            add(f"{name}.{smoothing}", logits,
                lambda x, t=target, w=weight, s=smoothing: functional.cross_entropy(x, t, weight=w, label_smoothing=s))
    add("binary", logits, lambda x: functional.binary_cross_entropy_with_logits(x, chances))
    add("binary_weighted", logits, lambda x: functional.binary_cross_entropy_with_logits(x, chances, pos_weight=weights))
    add("mse", logits, lambda x: functional.mse_loss(x, chances))
    for delta in (0.5, 1.0):
        add(f"huber.{delta}", logits, lambda x, d=delta: functional.huber_loss(x, chances, delta=d))
    add("cosine", logits, lambda x: functional.cosine_embedding_loss(x, chances, torch.ones(rows, dtype=torch.float64)))
    # Texts of differing lengths, with repeats; the last one does not fit its frames.
    frames, texts = 8, torch.tensor([[1, 2, 3, 4], [2, 2, 2, -1], [4, -1, -1, -1], [3, 3, 3, 3]])
    scores, lengths = 2 * random(len(texts), frames, classes), torch.tensor([8, 7, 5, 6])
    case.update(scores=scores, texts=texts, frames=lengths)
    sizes = (texts >= 0).sum(1)
    for name, chosen in (("ctc", slice(0, 3)), ("ctc_zero_infinity", slice(0, 4))):
        add(name, scores[chosen], lambda x, c=chosen, zero="zero" in name: functional.ctc_loss(
            functional.log_softmax(x, 2).transpose(0, 1), texts[c].clamp(min=0), lengths[c], sizes[c], zero_infinity=zero))
    return case


def adaround(bits=4, beta=6.0, regularization=0.3):
    """The objective of learned rounding (Nagel et al., arXiv:2004.10568, equations 21 to 25) of a convolution with a
    ReLU, and its gradient, at a random V, in double."""
    torch.manual_seed(5)
    x, wanted = torch.randn(4, 4, 5, 6), torch.relu(torch.randn(4, 6, 5, 6))
    weight, bias = torch.randn(6, 2, 3, 3), torch.randn(6)
    largest = 2 ** (bits - 1) - 1
    scale = (weight.abs().amax((1, 2, 3)) / largest).float().double().reshape(-1, 1, 1, 1)
    v = (2 * torch.randn(weight.shape)).float().double().requires_grad_()
    h = (1.2 * torch.sigmoid(v) - 0.1).clip(0, 1)
    below = torch.floor(weight / scale.float())  # in float, as codes are: the largest weight of a channel is a tie
    soft = scale * (below.double() + h).clip(-largest, largest)
    y = torch.relu(nn.functional.conv2d(x.double(), soft, bias.double(), padding=1, groups=2))
    objective = ((y - wanted) ** 2).sum(1).mean() + regularization * (1 - (2 * h - 1).abs() ** beta).sum()
    objective.backward()
    return {"x": x.permute(0, 2, 3, 1), "wanted": wanted.permute(0, 2, 3, 1), "weight": weight, "bias": bias,
            "v": v.float(), "objective": objective.reshape(1), "gradient": v.grad.float(), "soft": soft.float()}


def main(folder):
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    write_architectures(folder)
    write_safetensors(os.path.join(folder, "losses.case.safetensors"), losses())
    write_safetensors(os.path.join(folder, "adaround.case.safetensors"), adaround())
    twins = {"mlp": Mlp, "cnn": Cnn, "resnet": Resnet, "layers": Layers, "mobilenet": Mobilenet}
    for number, (name, twin) in enumerate(twins.items()):
        torch.manual_seed(number)
        model = twin()
        randomize_norms(model)
        write_safetensors(os.path.join(folder, name + ".model.safetensors"), model.state_dict())
        x, labels = torch.randn(7, 2, 10, 12), torch.randint(5, (7,))
        case = {"inputs": x.permute(0, 2, 3, 1), "labels": labels, "logits": model.eval()(x)}
        optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=0.01)
        model.train()
        for step in range(2):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), labels, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            case[f"loss{step}"] = loss.reshape(1)
        for key, value in model.state_dict().items():
            case["after." + key] = value
        write_safetensors(os.path.join(folder, name + ".case.safetensors"), case)


main(sys.argv[1])
