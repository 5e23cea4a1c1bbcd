"""Runs the integer models of write_onnx_cases in numpy and compares every code.

usage: check_integer_models.py FOLDER
"""
import glob
import os
import sys

import numpy as np
from integer_model import load, run
from safetensors import safe_open


def check(path):
    graph, tensors = load(path)
    with safe_open(path.replace(".model.", "."), "numpy") as file:
        expected = {name: file.get_tensor(name) for name in file.keys()}
    inputs = expected["input"].transpose(0, 2, 3, 1)
    values = codes = differing = 0
    for name, got in run(graph, tensors, inputs).items():
        if name == "input":
            continue
        want = expected[name].transpose(0, 2, 3, 1) if got.ndim == 4 else expected[name]
        values, codes, differing = values + 1, codes + got.size, differing + np.count_nonzero(got != want)
    print(f"{'ok    ' if differing == 0 else 'FAILED'} {os.path.basename(path).split('.')[0]}: "
          f"{values} tensors, {differing} of {codes} codes differ")
    return differing == 0


def main():
    good = [check(path) for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.model.safetensors")))]
    print(f"{sum(good)} of {len(good)} models")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
