"""The quickstart's network and data in a torch loop: float, then 8 bits through steelyard.torch.Module, as the presets
fashion-mnist-cnn-float and fashion-mnist-cnn-w8a8 train them.

usage: quickstart.py FOLDER [FLOAT_EPOCHS [EPOCHS [IMAGES [SEED]]]]: Fashion-MNIST's four .gz files, such as
/usr/share/datasets/fashion-mnist; by default 4 and 2 epochs of all images, as scripts/quickstart has.
"""
import gzip
import math
import sys
import tempfile

import made_up_data  # noqa: F401  (skips without torch)
import numpy as np
import torch
from torch import nn

import steelyard
import steelyard.torch

folder, float_epochs, epochs, count, seed = (sys.argv[1:] + ["", "4", "2", "55000", "1"][len(sys.argv) - 1:])[:5]


def read(kind):
    """Images f32 [N, 1, 28, 28] with 255 as 1, and classes."""
    images = gzip.open(f"{folder}/{kind}-images-idx3-ubyte.gz").read()
    labels = gzip.open(f"{folder}/{kind}-labels-idx1-ubyte.gz").read()
    x = torch.from_numpy(np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28) / np.float32(255))
    return x, torch.from_numpy(np.frombuffer(labels, np.uint8, offset=8).astype(np.int64))


def augmented(x):
    """A random crop of the image with 2 pixels of border, and half of them mirrored."""
    padded = nn.functional.pad(x, (2, 2, 2, 2), value=float(x.min()))
    top, left = torch.randint(0, 5, (2, len(x), 1, 1))
    left = torch.where(torch.rand(len(x), 1, 1) < 0.5, left, left + 100)  # marks the mirrored ones
    rows, columns = top + torch.arange(28)[:, None], left % 100 + torch.arange(28)
    columns = torch.where(left >= 100, columns.flip(-1), columns)
    return padded[torch.arange(len(x))[:, None, None], 0, rows, columns].unsqueeze(1)


train_x, train_y = read("train")
test_x, test_y = read("t10k")
mean, deviation = train_x.mean(), train_x.std()
train_x, train_y = (train_x[:int(count)] - mean) / deviation, train_y[:int(count)]
test_x = (test_x - mean) / deviation
torch.manual_seed(int(seed))
model = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))
recipe = {"version": 1, "name": "quickstart", "schedule": {"freeze_observers": {"epoch": 1}}, "quantize": {"groups": [
    {"targets": ["Linear", "Conv2d"], "weights": {"num_bits": 8}, "activations": {"num_bits": 8}}]}}


def accuracy(network):
    network.eval()
    with torch.no_grad():
        right = [network(x).argmax(1) == y for x, y in zip(test_x.split(500), test_y.split(500))]
    return 100 * float(torch.cat(right).float().mean())


def train(network, epochs, lr, schedule=None, warmup_epochs=0.0):
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
    batches = len(train_x) // 128
    rising, falling = int(warmup_epochs * batches), (epochs - warmup_epochs) * batches

    def rate_at(step):
        return (step + 1) / rising if step < rising else (1 + math.cos(math.pi * (step - rising) / max(falling, 1))) / 2

    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_at)
    for _ in range(epochs):
        network.train()
        for batch in torch.randperm(len(train_x))[:batches * 128].split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(augmented(train_x[batch])), train_y[batch]).backward()
            optimizer.step()
            rate.step()
        if schedule:
            schedule.step()
    return accuracy(network)


in_float = train(model, int(float_epochs), 0.05, warmup_epochs=0.5)
module = steelyard.torch.Module(model.eval(), train_x[:2], recipe)
module.calibrate(train_x[:2048].split(128))
in_integers = train(module, int(epochs), 0.001, steelyard.torch.Schedule(module))
with tempfile.TemporaryDirectory() as place:
    module.export(f"{place}/model.onnx")
result = steelyard.verify(module, test_x[:2000].split(500))
print(f"float {in_float:.2f} %, 8 bits {in_integers:.2f} %; {result.differing} of {result.codes} codes differ\n"
      "the command line's recipes, four epochs in float and two in 8 bits: 91.05 % and 91.15 % (README.md)")
sys.exit(not (in_integers > in_float - 1 and result.differing == 0 and result.same))
