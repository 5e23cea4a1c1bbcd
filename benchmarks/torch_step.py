#!/usr/bin/python3
"""PyTorch's twin of training_step_benchmark: the same models, batches and protocol."""
import argparse
import json
import resource
import sys
import time

import torch
from torch import nn


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                         nn.Linear(1024, 10)), (1, 28, 28), 2048


def cnn():
    def block(i, o):
        return [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(),
                         nn.Linear(128, 10)), (1, 28, 28), 128


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + shortcut)


def resnet20():
    layers, channels = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for stage, width in enumerate((16, 32, 64)):
        for i in range(3):
            layers.append(Block(channels, width, 2 if stage > 0 and i == 0 else 1))
            channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), (3, 32, 32), 64


def of_torchvision(name):
    import torchvision
    return torchvision.models.get_model(name, num_classes=10), (3, 224, 224), 16


MODELS = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet20": resnet20,
    "resnet18": lambda: of_torchvision("resnet18"),
    "mobilenet_v3_small": lambda: of_torchvision("mobilenet_v3_small"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("layout", choices=("contiguous", "channels_last"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.manual_seed(1)
    model, shape, batch = MODELS[args.model]()
    model = model.to(args.device)
    inputs = torch.randn(batch, *shape, device=args.device)
    if args.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    targets = torch.randint(10, (batch,), device=args.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, weight_decay=5e-4)
    criterion = nn.CrossEntropyLoss()
    on_gpu = args.device.startswith("cuda")
    # CUDA graphs on a GPU; "max-autotune" also times every convolution's kernels, for minutes.
    forward = torch.compile(model, mode="reduce-overhead" if on_gpu else "default") if args.compile else model

    def step():
        optimizer.zero_grad(set_to_none=True)
        criterion(forward(inputs), targets).backward()
        optimizer.step()

    def timed(steps):
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        if on_gpu:
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / steps

    def times():
        """Of each step; on a GPU their mean, since steps are queued and not waited for."""
        return [timed(args.steps)] if on_gpu else [timed(1) for _ in range(args.steps)]

    for _ in range(3):
        step()
    settings = [line.strip() for line in torch.__config__.show().split("\n")]
    blas = [line for line in settings if ("BLAS" in line or "LAPACK" in line) and "Build settings" not in line]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), "blas": blas[:2],
                      "peak_bytes": peak}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(times()), flush=True)


main()
