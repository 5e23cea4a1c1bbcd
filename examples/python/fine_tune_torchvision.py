"""One of torchvision's classifiers, fine-tuned to 8 bits in a loop of one's own, exported and verified.

usage: fine_tune_torchvision.py [MODEL [STEPS]], by default mobilenet_v2 and 12 steps; exit code 77: no torchvision.
"""
import sys
import tempfile

from made_up_data import needs, squares, w8a8

needs("torchvision")
import torch
import torchvision

import steelyard
import steelyard.torch

name, steps = (sys.argv[1:] + ["mobilenet_v2", "12"][len(sys.argv) - 1:])[:2]
torch.manual_seed(0)
images, _, colours = squares(64, seed=1)
options = {"dropout": 0.0} if "mobilenet" in name else {}
model = getattr(torchvision.models, name)(num_classes=3, **options)


def train(network, count, lr):
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9)
    losses = []
    for step in range(count):
        batch = torch.arange(16) + 16 * (step % 4)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network.train()(images[batch]), colours[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


in_float = train(model, int(steps), 0.02)
module = steelyard.torch.Module(model.eval(), images[:2], w8a8("Conv2d", "Linear"))  # the model as it is
module.calibrate(images.split(16))
in_integers = train(module, int(steps), 0.01)
module.eval()
with tempfile.TemporaryDirectory() as folder:
    module.export(f"{folder}/model.onnx")
result = steelyard.verify(module, images[:8])
print(f"{name}: loss {in_float[0]:.3f} to {in_float[-1]:.3f} in float, {in_integers[0]:.3f} to {in_integers[-1]:.3f} in "
      f"8 bits; {result.differing} of {result.codes} codes differ")
sys.exit(not (min(in_integers[-4:]) < 0.5 * in_float[0] and result.differing == 0 and result.same))
