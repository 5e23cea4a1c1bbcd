#!/usr/bin/env python3
"""What searched scales of ggml's blocks give and cost on the matrices of a GGUF file, beside ggml's reference rule.

    ggml_scales.py MODEL.gguf [--every 1] [--rounds 3]

The squared error is relative to the squares of the weights; the time is that of the processor. `--every 9` takes every
ninth matrix.
"""
import argparse
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
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    matrices = [x for i, x in enumerate(matrices_of(args.model)) if args.every == 1 or i % args.every == 1]
    squares = sum(float(np.square(x, dtype=np.float64).sum()) for x in matrices)
    weights = sum(x.size for x in matrices)
    print(f"{len(matrices)} matrices, {weights:,} weights")
    kinds = [base + rule for base in ("q4_0", "iq4_nl", "mxfp4") for rule in ("", "_searched")]
    times, blocks = {kind: [] for kind in kinds}, {}
    for kind in kinds:
        elements, size = _gguf.block_layout(kind)
        blocks[kind] = [np.empty((len(x), x.shape[1] // elements * size), np.uint8) for x in matrices]
    for _ in range(args.rounds):  # in turn
        for kind in kinds:
            begin = time.process_time()
            for x, made in zip(matrices, blocks[kind]):
                _gguf.encode(kind, view(x), view(made))
            times[kind].append(1e3 * (time.process_time() - begin))
    for kind in kinds:
        error = 0.0
        for x, made in zip(matrices, blocks[kind]):
            values = np.empty_like(x)
            _gguf.decode(kind, view(made), view(values))
            error += float(np.square(x - values, dtype=np.float64).sum())
        print(f"{kind}: squared error {error / squares:.3e}, "
              f"{1e6 * min(times[kind]) / weights:.2f} ms a million weights", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
