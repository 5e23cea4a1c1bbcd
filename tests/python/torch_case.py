"""What the tests of steelyard.torch share. Without torch they are skipped, with a word."""
import gc
import unittest

try:
    import torch
    from torch import nn
except ImportError as error:
    raise unittest.SkipTest(f"no torch: {error}") from error

import steelyard
import steelyard.torch

W8A8 = {
    "version": 1, "name": "w8a8",
    "quantize": {
        "groups": [{
            "targets": ["re:.*"],
            "weights": {"num_bits": 8, "symmetric": True, "strategy": "channel"},
            "activations": {"num_bits": 8, "symmetric": False},
        }],
    },
}


def quantized(targets=("Conv2d", "Linear"), **keys):
    """A recipe of 8 bits; ``keys`` go into its section quantize."""
    groups = [{**W8A8["quantize"]["groups"][0], "targets": list(targets)}]
    return {**W8A8, "quantize": {"groups": groups, **keys}}


class Convolutions(nn.Module):
    """A residual block, batch norms, a pool and a linear layer: images [N, 3, 12, 12] to [N, 5]."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.stem(x)
        x = torch.relu(x + self.block(x))
        return self.fc(self.drop(torch.flatten(self.pool(x), 1)))


class Layers(nn.Module):
    """[N, 6] to [N, 4]."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.second = nn.Linear(16, 4)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


class Attention(nn.Module):
    """[N, 5, 16] to [N, 5, 16], by torch's encoder layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, activation="gelu")

    def forward(self, x):
        return self.layer(x)


class Branches(nn.Module):
    """Two inputs, a dict of two outputs, an image among them."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1)
        self.fc = nn.Linear(4, 3)

    def forward(self, image, row):
        features = torch.relu(self.conv(image))
        return {"image": features, "row": self.fc(row) + features.mean((2, 3))}


def images(count=4, size=12, seed=0):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def far_off(ours, theirs):
    """The largest difference as a part of the largest value."""
    return float((ours.detach() - theirs.detach()).abs().max() / theirs.detach().abs().max().clamp_min(1e-30))


def end_processes(kept):
    """Ends the process group, after DistributedDataParallel and while its tensors live, which ``kept`` has: older torch
    waits for ever where the group's own thread is the last to let go of one."""
    gc.collect()
    torch.distributed.destroy_process_group()
    del kept


class TorchCase(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)

    def assert_near(self, ours, theirs, bound=1e-5, what=""):
        self.assertEqual(tuple(ours.shape), tuple(theirs.shape), what)
        off = far_off(ours, theirs)
        self.assertLessEqual(off, bound, what)

    def assert_refused(self, words, call, *arguments, **options):
        with self.assertRaises(steelyard.Error) as caught:
            call(*arguments, **options)
        message = str(caught.exception)
        self.assertIn(words, message)
        self.assertNotIn("\n", message)
