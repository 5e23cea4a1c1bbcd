#!/usr/bin/env python3
"""Blocks of the types that are decoded alone, beside the package gguf: how many values have other bits.

    ggml_stored_blocks.py [--values 1e7] [--seed 0]

Random bytes, whose float16 scales are finite, of every size, zeros and the outermost ones. Exit code 1 where a value
differs.
"""
import argparse
import sys

import gguf
import numpy as np
from gguf import quants

from steelyard import _gguf
from steelyard._tensor import view

# Where the float16 numbers of a block are.
SCALES = {"q5_0": (0,), "q5_1": (0, 2), "q2_k": (80, 82), "q3_k": (108,), "q4_k": (0, 2), "q5_k": (0, 2), "q6_k": (208,)}
OUTERMOST = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF], np.uint16)


def blocks_of(random, kind, count):
    size = _gguf.block_layout(kind).bytes
    blocks = random.integers(0, 256, (count, size), np.uint8)
    for at in SCALES[kind]:
        halves = random.integers(0, 0x7C00, count).astype(np.uint16) | (random.integers(0, 2, count) << 15).astype(np.uint16)
        outermost = random.random(count) < 0.1
        halves[outermost] = random.choice(OUTERMOST, int(outermost.sum()))
        blocks[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=float, default=1e7)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    faults = 0
    for kind in SCALES:
        random = np.random.default_rng(args.seed)
        elements = _gguf.block_layout(kind).elements
        count = max(1, int(args.values) // elements)
        blocks = blocks_of(random, kind, count)
        ours = np.empty((count, elements), np.float32)
        _gguf.decode(kind, view(blocks), view(ours))
        theirs = quants.dequantize(blocks, getattr(gguf.GGMLQuantizationType, kind.upper()))
        off = int((ours.view(np.uint32) != theirs.astype(np.float32).reshape(ours.shape).view(np.uint32)).sum())
        print(f"{kind}: {ours.size:,} values, {off} differ", flush=True)
        faults += off
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
