"""Trains, exports and verifies a small network with an installed steelyard, in the current folder; scripts/wheel runs it.

Nothing of the source tree is used but model.onnx, which tests/c/write_model.py wrote, and no compiler is found.
"""
import shutil

import numpy as np
import steelyard

for compiler in ("cc", "gcc", "g++", "clang", "nvcc", "cmake", "ninja"):
    assert shutil.which(compiler) is None, f"{compiler} is in PATH"
recipe = {"version": 1, "name": "try", "quantize": {"groups": [
    {"targets": ["Linear"], "weights": {"num_bits": 8}, "activations": {"num_bits": 8}}]}}
network = steelyard.Network("model.onnx", recipe).train()
x = np.random.default_rng(0).uniform(-1, 1, (256, 2)).astype(np.float32)
target = np.stack([x[:, 0] * x[:, 1], -x[:, 0] * x[:, 1]], 1)
losses = []
for _ in range(200):
    difference = network(x) - target
    losses.append(float((difference ** 2).mean()))
    network.backward((2 * difference / difference.size).astype(np.float32))
    for name, gradient in network.gradients().items():
        network.parameters()[name][...] -= 0.5 * gradient
    network.zero_gradients()
assert losses[-1] < 0.5 * losses[0], losses
network.eval()
network.export("trained.onnx")
network.export("trained.safetensors")
result = network.verify(x, model="trained.safetensors")
assert result and result.differing == 0, result.text
assert "fashion-mnist" in steelyard.run("recipes").stdout
print(f"steelyard {steelyard.__version__}: the loss went from {losses[0]:.4f} to {losses[-1]:.4f}; "
      f"{result.differing} of {result.codes} codes differ")
