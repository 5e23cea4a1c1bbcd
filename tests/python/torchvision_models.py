#!/usr/bin/env python3
"""torchvision's classifiers, unedited, through steelyard.torch: a row of a table for each.

    torchvision_models.py [NAME...] [--size 64] [--batch 4] [--json FILE]

In float, ten steps of SGD against torch's own model, both without dropout: the largest difference of the losses, as a part
of the loss. Batch norms keep the statistics of some passes, as in fine-tuning. Two more steps use the statistics of the
batch, which are those of a few numbers in the last layers of small images, and magnify rounding: beside that difference
stands torch's in float64 against torch's in float32. Then W8A8: calibrated, trained for a few steps with dropout and
stochastic depth, exported, and verified code by code; with ONNX Runtime installed, its outputs against those of the Module
in evaluation. A model that cannot be wrapped is a row with the message. Exits with 1 where a code differs, or a loss of the
ten steps is off by more than 1e-4.
"""
import argparse
import copy
import json
import pathlib
import sys
import tempfile
import time

import torch
import torchvision
from torch import nn

import steelyard
import steelyard.torch

NAMES = ["resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "shufflenet_v2_x1_0",
         "regnet_y_400mf", "densenet121", "squeezenet1_1", "convnext_tiny", "vit_b_16"]
RANDOM = {"Dropout", "StochasticDepth"}
BOUND = 1e-4


def recipe(targets):
    return {"version": 1, "name": "torchvision", "quantize": {"groups": [{
        "targets": targets, "weights": {"num_bits": 8}, "activations": {"num_bits": 8}}]}}


def losses_of(model, x, labels, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def largest_difference(losses, others):
    return max(abs(a - b) / abs(a) for a, b in zip(losses, others))


def drawing(model):
    return sorted({type(m).__name__ for m in model.modules() if type(m).__name__ in RANDOM and m.p > 0})


def without_dropout(model):
    model.train()
    for m in model.modules():
        if type(m).__name__ in RANDOM:
            m.eval()
    return model


def keeping_statistics(model):
    norms = {n for n, m in model.named_modules() if hasattr(m, "running_mean")}
    for name, m in model.named_modules():
        if name in norms:
            m.eval()
    return model


def onnx_difference(module, path, x):
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")  # as `steelyard verify`: products without saturation
    session = onnxruntime.InferenceSession(str(path), options)
    theirs = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: x.numpy()})[0])
    with torch.no_grad():
        ours = module.eval()(x)
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))


def try_model(name, size, batch):
    torch.manual_seed(0)
    options = {"image_size": size} if name.startswith("vit") else {}
    model = getattr(torchvision.models, name)(weights=None, num_classes=10, **options)
    x, labels = torch.randn(batch, 3, size, size), torch.arange(batch) % 10
    row = {"model": name}
    with torch.no_grad():
        for i in range(8):
            model(torch.randn(8, 3, size, size))
    reference = without_dropout(copy.deepcopy(model))
    begin = time.perf_counter()
    in_float = steelyard.torch.Module(copy.deepcopy(reference), x, leave_out=drawing(model)).train()
    row["wrap_s"] = round(time.perf_counter() - begin, 1)
    theirs = losses_of(keeping_statistics(reference), x, labels, 10)
    row["float_off"] = largest_difference(theirs, losses_of(keeping_statistics(in_float), x, labels, 10))
    without_dropout(reference), in_float.train()
    in_float.load_state_dict(reference.state_dict())
    in_double = losses_of(copy.deepcopy(reference).double(), x.double(), labels, 2)
    theirs = losses_of(reference, x, labels, 2)
    row["batch_statistics_off"] = largest_difference(theirs, losses_of(in_float, x, labels, 2))
    row["torch_double_off"] = largest_difference(theirs, in_double)
    row["notes"] = in_float.notes()[-1][:100] if in_float.notes() else ""
    del in_float
    types = {t for t in ("Conv2d", "Linear") if any(type(m).__name__ == t for m in model.modules())}
    module = steelyard.torch.Module(model, x, recipe(sorted(types)))
    module.calibrate([x, torch.randn(batch, 3, size, size)]).train()
    losses = losses_of(module, x, labels, 3)
    row["loss"] = [round(losses[0], 4), round(losses[-1], 4)]
    module.eval()
    seen = torch.randn(batch, 3, size, size)
    result = module.verify(seen)
    row.update(codes=result.codes, differing=result.differing, same=result.same)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "model.onnx")
        module.export(path)
        row["bytes"] = path.stat().st_size
        row["onnx_off"] = onnx_difference(module, path, seen)
    row["ok"] = row["float_off"] <= BOUND and row["differing"] == 0
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = []
    for name in options.names:
        try:
            row = try_model(name, options.size, options.batch)
        except steelyard.Error as error:
            row = {"model": name, "ok": False, "error": str(error)}
        print(json.dumps(row), flush=True)
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(
            {"torch": torch.__version__, "torchvision": torchvision.__version__, "steelyard": steelyard.__version__,
             "size": options.size, "batch": options.batch, "models": rows}, indent=1) + "\n")
    return 0 if all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
