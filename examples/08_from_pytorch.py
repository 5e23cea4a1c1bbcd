"""From PyTorch to integers: trains an MLP in PyTorch, then fine-tunes its weights to 8 bits in Steelyard, exports and verifies.

usage: 08_from_pytorch.py STEELYARD FOLDER IMAGES.idx.gz LABELS.idx.gz; exit code 77 when torch is not installed.
"""
import gzip
import json
import os
import shutil
import struct
import subprocess
import sys

import numpy as np

try:
    import torch
    from torch import nn
except ImportError:
    print("torch is not installed: skipped")
    sys.exit(77)

RECIPE = """
version: 1
name: from-pytorch
data: {{dataset: fashion_mnist}}
model: {{type: mlp, hidden: [256, 128], classes: 10}}
init: {{checkpoint: {weights}}}
train: {{epochs: 1, optimizer: {{type: sgd, lr: 0.01, momentum: 0.9}}}}
quantize:
  groups:
    - targets: [Linear]
      weights: {{num_bits: 8}}
      activations: {{num_bits: 8}}
"""


class Mlp(nn.Module):  # names and layouts are PyTorch's: fc1.weight [256, 784], ...
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))


def save_safetensors(path, tensors):
    """What safetensors.torch.save_file does, for float32."""
    header, end = {}, 0
    for name, tensor in tensors.items():
        begin, end = end, end + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(t.numpy().tobytes() for t in tensors.values()))


steelyard, folder, images, labels = sys.argv[1:]
x = np.frombuffer(gzip.open(images).read(), np.uint8, offset=16).reshape(-1, 784) / 255
x = torch.tensor((x - x.mean()) / x.std(), dtype=torch.float32)  # as Steelyard normalizes
y = torch.tensor(np.frombuffer(gzip.open(labels).read(), np.uint8, offset=8).astype(np.int64))
torch.manual_seed(1)
model = Mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for batch in torch.randperm(len(x)).split(128):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
    optimizer.step()

os.makedirs(folder, exist_ok=True)
weights, recipe, run = (os.path.join(os.path.abspath(folder), name) for name in ("mlp.safetensors", "w8a8.yaml", "run"))
save_safetensors(weights, model.state_dict())
with open(recipe, "w") as file:
    file.write(RECIPE.format(weights=json.dumps(weights)))
shutil.rmtree(run, ignore_errors=True)
subprocess.run([steelyard, "train", recipe, "--run-dir", run], check=True)
subprocess.run([steelyard, "export", run], check=True)
sys.exit(subprocess.run([steelyard, "verify", run]).returncode)
