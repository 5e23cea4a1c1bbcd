#!/usr/bin/env python3
"""The time of a training step in PyTorch: torch's float model, torch.ao's QAT of it, and steelyard.torch in float and W8A8.

    pytorch_step.py [--models cnn resnet18] [--steps 10] [--rounds 3] [--json FILE]

All of them take their steps in turn in one process, a round of each after another, so that a busy machine slows all; the
medians of the steps are compared. A step is forward, cross-entropy, backward and torch's SGD, in training, on images that
stay the same. torch.ao's is FX quantization with the default configuration of QAT, where this torch has it.
"""
import argparse
import copy
import datetime
import json
import pathlib
import statistics
import sys
import time

import torch
from torch import nn

import steelyard
import steelyard.torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import machine  # noqa: E402

RECIPE = {"version": 1, "name": "step", "quantize": {"groups": [{
    "targets": ["Conv2d", "Linear"], "weights": {"num_bits": 8}, "activations": {"num_bits": 8}}]}}


def cnn():
    """That of torch_step.py."""
    def block(i, o):
        return [nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*block(1, 32), *block(32, 64), nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(),
                         nn.Linear(128, 10)), (1, 28, 28), 128


def resnet18():
    import torchvision
    return torchvision.models.resnet18(num_classes=10), (3, 224, 224), 16


MODELS = {"cnn": cnn, "resnet18": resnet18}


def of_torch_ao(model, x):
    try:
        from torch.ao.quantization import get_default_qat_qconfig_mapping
        from torch.ao.quantization.quantize_fx import prepare_qat_fx
    except ImportError:
        return None
    return prepare_qat_fx(copy.deepcopy(model).train(), get_default_qat_qconfig_mapping("x86"), (x,))


def contenders(model, x):
    made = {
        "torch float": copy.deepcopy(model),
        "torch.ao QAT": of_torch_ao(model, x),
        "steelyard float": steelyard.torch.Module(copy.deepcopy(model), x[:2]),
        "steelyard W8A8": steelyard.torch.Module(copy.deepcopy(model), x[:2], RECIPE).calibrate([x]),
    }
    return {name: m.train() for name, m in made.items() if m is not None}


def seconds_of_steps(module, optimizer, x, labels, steps):
    times = []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(x), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    return times


def measure(name, batch, steps, rounds):
    torch.manual_seed(0)
    model, shape, usual = MODELS[name]()
    x, labels = torch.randn(batch or usual, *shape), torch.randint(0, 10, (batch or usual,))
    modules = contenders(model, x)
    optimizers = {n: torch.optim.SGD(m.parameters(), lr=1e-3, momentum=0.9) for n, m in modules.items()}
    times = {n: [] for n in modules}
    for n, m in modules.items():
        seconds_of_steps(m, optimizers[n], x, labels, 2)
    for _ in range(rounds):
        for n, m in modules.items():
            times[n] += seconds_of_steps(m, optimizers[n], x, labels, steps)
    medians = {n: statistics.median(t) for n, t in times.items()}
    return {"model": name, "batch": len(x), "shape": list(shape), "median_ms": {n: 1e3 * t for n, t in medians.items()},
            "of_torch_float": {n: t / medians["torch float"] for n, t in medians.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", choices=MODELS, default=["cnn", "resnet18"])
    parser.add_argument("--batch", type=int, default=0, help="in place of the model's usual one")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [measure(n, options.batch, options.steps, options.rounds) for n in options.models]
    result = {"date": datetime.date.today().isoformat(), "cpu": machine.cpu_name(), "threads": options.threads,
              "torch": torch.__version__, "steelyard": steelyard.__version__, "rows": rows}
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
