#!/usr/bin/env python3
"""Blocks of the library beside those of ggml's own quantizers, in the package libgguf: how many blocks differ.

    ggml_blocks.py [--values 1e8] [--seed 0] [--types q4_0 ...]

Values are normal, of every magnitude that float16 scales hold and beyond, on grids (so that there are ties), sparse,
zeros and just below powers of two. Blocks count as equal where both scales are NaN. Blocks of MXFP4 below 2^-125 are
left out: ggml converts a negative exponent to an unsigned integer there. Exit code 1 where a block differs.
"""
import argparse
import sys

import libgguf
import numpy as np

from steelyard import _gguf
from steelyard._tensor import view

NUMBERS = {"f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q8_0": 8, "iq4_nl_searched": 20, "mxfp4": 39}


def values(random, rows):
    x = random.standard_normal((rows, 32), np.float32) * np.exp2(random.integers(-20, 10, (rows, 1))).astype(np.float32)
    kind = random.integers(0, 8, rows)

    def change(which, made):
        x[kind == which] = made(x[kind == which]).astype(np.float32)

    change(1, lambda v: np.round(v * 4) / 4)
    change(2, lambda v: random.integers(-8, 9, v.shape) * 0.125)
    change(3, lambda v: v * np.exp2(random.integers(-90, 80, (len(v), 1))))
    change(4, lambda v: v * (random.random(v.shape) < 0.1))
    change(5, lambda v: np.nextafter(np.exp2(random.integers(-100, 100, (len(v), 1))).astype(np.float32), np.float32(0))
           * (np.arange(32) == 7))
    change(6, lambda v: v * (random.random((len(v), 1)) < 0.8))
    return x


def differing(kind, x):
    """(blocks that differ, values of libgguf's blocks that are decoded to other ones)."""
    elements, size = _gguf.block_layout(kind)
    ours = np.empty((len(x), 32 // elements * size), np.uint8)
    _gguf.encode(kind, view(x), view(ours))
    ours = ours.reshape(-1, size)
    pairs = x.reshape(-1, 64)
    number = NUMBERS[kind]
    if elements == 1:
        theirs = np.asarray(libgguf.store_rows(pairs, number)).view(np.uint8).reshape(-1, size)
        return int((ours != theirs).any(axis=1).sum()), 0
    rows = np.asarray(libgguf.quantize_rows(pairs, number)).view(np.uint8)
    theirs = np.ascontiguousarray(rows.reshape(-1, size))
    differs = (ours != theirs).any(axis=1)
    if kind == "mxfp4":
        differs &= np.abs(x).max(axis=1) >= 2.0 ** -125
    else:
        scales = [b[:, :2].copy().view(np.float16)[:, 0] for b in (ours, theirs)]
        differs &= ~(np.isnan(scales[0]) & np.isnan(scales[1]))
    decoded = np.empty((len(x), 32), np.float32)
    _gguf.decode(kind, view(theirs.reshape(len(x), -1)), view(decoded))
    expected = np.asarray(libgguf.dequantize_rows(rows.reshape(len(pairs), -1), number)).reshape(-1, 32).astype(np.float32)
    other = decoded.view(np.uint32) != expected.view(np.uint32)
    if kind == "mxfp4":
        other &= (theirs[:, :1] != 255)
    return int(differs.sum()), int((other & ~(np.isnan(decoded) & np.isnan(expected))).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=float, default=1e8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--types", nargs="+", default=list(NUMBERS), choices=list(NUMBERS))
    args = parser.parse_args()
    faults = 0
    for kind in args.types:
        random = np.random.default_rng(args.seed)
        left, blocks, values_off = int(args.values) // 64 * 64, 0, 0
        while left > 0:
            now = min(left, 1 << 21)
            left -= now
            with np.errstate(all="ignore"):
                off = differing(kind, values(random, now // 32))
            blocks, values_off = blocks + off[0], values_off + off[1]
        print(f"{kind}: {int(args.values):,} values, blocks that differ {blocks}, decoded values that differ {values_off}",
              flush=True)
        faults += blocks + values_off
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
