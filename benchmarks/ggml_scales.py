#!/usr/bin/env python3
"""What searched scales of ggml's blocks give and cost on the matrices of a GGUF file, beside ggml's reference rule.

    ggml_scales.py MODEL.gguf [--rounds 5]

The squared error is relative to the squares of the weights; a pass makes the blocks of all matrices.
"""
import argparse
import statistics
import sys
import time

import numpy as np

from steelyard import _gguf
from steelyard._error import Error
from steelyard._tensor import view


def matrices_of(path):
    """f32 [rows, columns] of each tensor that has rows of whole blocks."""
    file = _gguf.GgufFile(path)
    for info in file.tensors.values():
        if len(info.shape) != 2 or info.shape[1] % 32:
            continue
        values = np.empty(info.shape, np.float32)
        try:
            _gguf.decode(info.type, view(file.read(info.name).reshape(info.shape[0], -1)), view(values))
        except Error as error:
            raise SystemExit(f"{path}: tensor '{info.name}' of type {info.type}: {error}") from error
        yield values


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    matrices = list(matrices_of(args.model))
    squares = sum(float(np.square(x, dtype=np.float64).sum()) for x in matrices)
    print(f"{len(matrices)} matrices, {sum(x.size for x in matrices):,} weights")
    kinds = [base + rule for base in ("q4_0", "iq4_nl", "mxfp4") for rule in ("", "_searched")]
    times, blocks = {kind: [] for kind in kinds}, {}
    for kind in kinds:
        elements, size = _gguf.block_layout(kind)
        blocks[kind] = [np.empty((len(x), x.shape[1] // elements * size), np.uint8) for x in matrices]
    for _ in range(args.rounds):  # in turn
        for kind in kinds:
            begin = time.perf_counter()
            for x, made in zip(matrices, blocks[kind]):
                _gguf.encode(kind, view(x), view(made))
            times[kind].append(1e3 * (time.perf_counter() - begin))
    for kind in kinds:
        error = 0.0
        for x, made in zip(matrices, blocks[kind]):
            values = np.empty_like(x)
            _gguf.decode(kind, view(made), view(values))
            error += float(np.square(x - values, dtype=np.float64).sum())
        print(f"{kind}: squared error {error / squares:.3e}, a pass {statistics.median(times[kind]):.0f} ms", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
