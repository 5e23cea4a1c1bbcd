#!/usr/bin/python3
"""PyTorch's twin of training_step_benchmark: the same models, batches and protocol."""
import argparse
import inspect
import json
import resource
import sys
import time

import torch
from torch import nn


def mlp(side, hidden, batch):
    widths = [side * side, *hidden]
    layers = [layer for pair in zip(widths, hidden) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], 10)), (1, side, side), batch


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


def of_torchvision(name, batch):
    import torchvision
    return torchvision.models.get_model(name, num_classes=10), (3, 224, 224), batch


MODELS = {
    "mlp": lambda: mlp(28, [1024, 1024], 2048),
    "mlp4096": lambda: mlp(64, [4096, 4096, 4096], 4096),
    "cnn": cnn,
    "resnet20": resnet20,
    "resnet18": lambda: of_torchvision("resnet18", 16),
    "resnet50": lambda: of_torchvision("resnet50", 32),
    "mobilenet_v3_small": lambda: of_torchvision("mobilenet_v3_small", 16),
}


def fake_quantized(model, example):
    """The model that torch.ao trains for 8 bits: ranges of activations and of each channel of weights, observed."""
    from torch.ao.quantization import get_default_qat_qconfig_mapping
    from torch.ao.quantization.quantize_fx import prepare_qat_fx
    return prepare_qat_fx(model.train(), get_default_qat_qconfig_mapping("x86"), (example,))


def in_steelyard(model, inputs, quantized):
    """The model through the Python package, with 8 bits as `quantize` of the presets has them."""
    import steelyard.torch
    recipe = {"version": 1, "name": "step", "quantize": {"groups": [{
        "targets": ["re:.*"], "weights": {"num_bits": 8}, "activations": {"num_bits": 8}}]}}
    module = steelyard.torch.Module(model, inputs[:2], recipe if quantized else None)
    return (module.calibrate([inputs]) if quantized else module).train()


def saved_bytes(loss_of, parameters):
    """What a forward pass keeps for its backward pass, without parameters; each memory once."""
    known = {p.untyped_storage().data_ptr() for p in parameters}
    sizes = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor  # which keeps the memory until all are counted

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = loss_of()
    del loss
    return sum(sizes.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("layout", choices=("contiguous", "channels_last"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", choices=("float32", "tf32"), default="float32")
    parser.add_argument("--batch", type=int, help="default: the model's own")
    parser.add_argument("--amp", action="store_true", help="torch.autocast in bf16; --precision is for the rest")
    parser.add_argument("--qat", action="store_true", help="as torch.ao's quantization-aware training")
    parser.add_argument("--steelyard", choices=("float", "w8a8"), help="the model through the Python package steelyard")
    parser.add_argument("--onnx", help="writes the float model to this file instead, as --steelyard exports it")
    parser.add_argument("--compile", choices=("default", "reduce-overhead"),
                        help="torch.compile's mode; reduce-overhead: CUDA graphs, on a GPU")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.manual_seed(1)
    model, shape, batch = MODELS[args.model]()
    batch = args.batch or batch
    if args.onnx:
        from steelyard.torch._export import onnx_of
        with open(args.onnx, "wb") as file:
            file.write(onnx_of(model.eval(), [torch.randn(2, *shape)], 17))
        return
    if args.qat:
        model = fake_quantized(model, torch.randn(1, *shape))
    model = model.to(args.device)
    inputs = torch.randn(batch, *shape, device=args.device)
    if args.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
        inputs = inputs.to(memory_format=torch.channels_last)
    if args.steelyard:
        model = in_steelyard(model, inputs, args.steelyard == "w8a8")
    targets = torch.randint(10, (batch,), device=args.device)
    fused = {"fused": True} if "fused" in inspect.signature(torch.optim.SGD).parameters else {}  # the fastest, since 2.4
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, weight_decay=5e-4, **fused)
    criterion = nn.CrossEntropyLoss()
    on_gpu = args.device.startswith("cuda")
    # "max-autotune" would also time every convolution's kernels, for minutes.
    forward = torch.compile(model, mode=args.compile) if args.compile else model
    mixed = torch.autocast(args.device.partition(":")[0], torch.bfloat16, enabled=args.amp)

    def loss_of():
        with mixed:
            return criterion(forward(inputs), targets)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
        optimizer.step()

    def device_peak_bytes():
        """The most that tensors took on the GPU within one step; None where that is a graph, whose memory is not counted."""
        if not on_gpu or args.compile == "reduce-overhead":
            return None
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated()

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
    info = {"torch": torch.__version__, "threads": torch.get_num_threads(), "blas": blas[:2], "peak_bytes": peak,
            "device_peak_bytes": device_peak_bytes()}
    if not args.steelyard and not args.compile:
        info["saved_activation_bytes"] = saved_bytes(loss_of, model.parameters())
    print(json.dumps(info), flush=True)
    for number, _ in enumerate(sys.stdin):
        if number == 0 and on_gpu:  # this process has the GPU alone now: cuDNN may time its algorithms
            torch.backends.cudnn.benchmark = True
            timed(2)
        print(json.dumps(times()), flush=True)


main()
