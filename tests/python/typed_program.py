"""A user's program with the public names, which mypy --strict checks (scripts/test --torch); it is not run."""
from typing import Any

import torch
from torch import nn

import steelyard
import steelyard.torch

recipe: dict[str, Any] = {"version": 1}
model = nn.Sequential(nn.Linear(4, 4))
text: str = steelyard.torch.quantize_(model, recipe)
model = steelyard.torch.calibrate(model, [torch.randn(2, 4)])
optimizer = torch.optim.SGD(steelyard.torch.parameter_groups(model, 0.1), lr=0.1)
for name, quantizer in steelyard.torch.quantizers(model):
    quantizer.observing = False
    print(name, quantizer.scheme.num_bits)
print(steelyard.torch.plan(model))
steelyard.torch.export(model, "folder")
steelyard.torch.export(model, "model.onnx", torch.randn(2, 4))
module = steelyard.torch.Module(model, torch.randn(2, 4), recipe)
module.calibrate([torch.randn(2, 4)]).train()
y: Any = module(torch.randn(2, 4))
schedule = steelyard.torch.Schedule(module)
schedule.step()
result = steelyard.verify(module, torch.randn(2, 4))
module.export("model.onnx")
steelyard.torch.agree_on_ranges(module)
network = steelyard.Network("model.onnx", recipe)
out: Any = network(y)
differing: int = network.verify(y).differing
steelyard.run("verify", "runs/x")
print(steelyard.__version__.upper(), steelyard.report("runs/x").name)
