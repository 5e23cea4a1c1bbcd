"""Data for the examples, and how they are skipped where a package is missing."""
import sys

try:
    import torch
except ImportError:
    print("torch is not installed: skipped")
    sys.exit(77)


def needs(*packages):
    """Ends the program with exit code 77 where one of the packages cannot be imported."""
    for package in packages:
        try:
            __import__(package)
        except ImportError as error:
            print(f"{package} is not there ({error}): skipped")
            sys.exit(77)


def squares(count, size=64, seed=0):
    """Images f32 [N, 3, size, size] of one square in noise, red, green or blue; its box [N, 4] as x0, y0, x1, y1; and
    its colour, 0 to 2."""
    numbers = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.randn(count, 3, size, size, generator=numbers)
    colours = torch.randint(0, 3, (count,), generator=numbers)
    sides = torch.randint(size // 4, size // 2, (count,), generator=numbers)
    boxes = torch.zeros(count, 4)
    for i, (colour, side) in enumerate(zip(colours.tolist(), sides.tolist())):
        x, y = torch.randint(0, size - side, (2,), generator=numbers).tolist()
        images[i, colour, y:y + side, x:x + side] += 1.5
        boxes[i] = torch.tensor([x, y, x + side, y + side])
    return images, boxes, colours


def sentences(count, length=12, seed=0):
    """Tokens [N, length] from 3 to 19, and whether the token 7 comes before the token 11: both are in every one."""
    numbers = torch.Generator().manual_seed(seed)
    tokens = torch.randint(12, 20, (count, length), generator=numbers)
    labels = torch.randint(0, 2, (count,), generator=numbers)
    for i, label in enumerate(labels.tolist()):
        first, second = sorted(torch.randperm(length, generator=numbers)[:2].tolist())
        tokens[i, first], tokens[i, second] = (7, 11) if label else (11, 7)
    return tokens, labels


def w8a8(*targets):
    """A recipe of 8-bit weights and activations for these types of layers."""
    return {"version": 1, "name": "example",
            "quantize": {"bn_fold": "none",
                         "groups": [{"targets": list(targets),
                                     "weights": {"num_bits": 8, "strategy": "channel"},
                                     "activations": {"num_bits": 8}}]}}
