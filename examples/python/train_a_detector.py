"""torchvision's SSDLite with its own loss and matching of boxes; its backbone trains in 8 bits.

usage: train_a_detector.py [STEPS], by default 8; exit code 77: no torchvision.
"""
import sys
import tempfile

from made_up_data import needs, squares, w8a8

needs("torchvision")
import torch
import torchvision

import steelyard
import steelyard.torch

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 8
torch.manual_seed(0)
images, boxes, colours = squares(4, size=320)
targets = [{"boxes": b[None], "labels": c[None] + 1} for b, c in zip(boxes, colours)]

detector = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
backbone = steelyard.torch.Module(detector.backbone.eval(), images[:2], w8a8("Conv2d"))
detector.backbone = backbone  # gives the same maps by the same names
backbone.calibrate([images])

optimizer = torch.optim.SGD(detector.parameters(), lr=0.02, momentum=0.9)
losses = []
for _ in range(steps):
    optimizer.zero_grad()
    loss = sum(detector.train()(list(images), targets).values())  # the detector's: of boxes and of classes
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
detector.eval()
with tempfile.TemporaryDirectory() as folder:
    backbone.export(f"{folder}/backbone.onnx")
result = steelyard.verify(backbone, images[:1])
with torch.no_grad():
    found = detector(list(images))
print(f"loss {losses[0]:.2f} to {losses[-1]:.2f}; {sum(len(f['boxes']) for f in found)} boxes found; "
      f"{result.differing} of {result.codes} codes differ")
sys.exit(not (losses[-1] < 0.8 * losses[0] and result.differing == 0 and result.same))
