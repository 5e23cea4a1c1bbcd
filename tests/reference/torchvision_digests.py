"""Prints what tests/recipes/models/torchvision_test.cpp expects: for each architecture of the installed torchvision
the number of states, of parameters and the SHA-256 of the sorted lines "name [shape]"."""
import hashlib

import torchvision

print("torchvision", torchvision.__version__)
for name in ("resnet18", "resnet34", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large", "efficientnet_b0"):
    model = getattr(torchvision.models, name)()
    lines = sorted(f"{key} {list(value.shape)}\n" for key, value in model.state_dict().items())
    print(name, len(lines), sum(p.numel() for p in model.parameters()), hashlib.sha256("".join(lines).encode()).hexdigest())
