#!/usr/bin/env python3
"""Fetches the quantization cases of a pinned ONNX release, once.

usage: fetch_onnx_testdata.py FOLDER
Exits with 77 (skipped) where it cannot be fetched.
"""
import os
import shutil
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from fetched_wheel import fetched_wheel  # noqa: E402

VERSION = "1.17.0"
INSIDE = "onnx/backend/test/data/node/"
CASES = ("test_quantizelinear", "test_dequantizelinear")


def main():
    folder = sys.argv[1]
    if os.path.isdir(folder):
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        path = fetched_wheel(f"onnx=={VERSION}", os.path.join(scratch, "wheel"))
        if path is None:
            return 77
        with zipfile.ZipFile(path) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(tuple(INSIDE + case for case in CASES))]
            wheel.extractall(scratch, names)
        shutil.move(os.path.join(scratch, INSIDE), folder)
    print(f"{len(names)} files of onnx {VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
