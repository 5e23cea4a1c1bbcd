#!/usr/bin/env python3
"""Fetches the quantization cases of a pinned ONNX release, once.

usage: fetch_onnx_testdata.py FOLDER
Exits with 77 (skipped) where there is no network.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

VERSION = "1.17.0"
INSIDE = "onnx/backend/test/data/node/"
CASES = ("test_quantizelinear", "test_dequantizelinear")


def main():
    folder = sys.argv[1]
    if os.path.isdir(folder):
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        fetched = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                                  "--dest", scratch, f"onnx=={VERSION}"], capture_output=True, text=True)
        wheels = glob.glob(os.path.join(scratch, "*.whl"))
        if not wheels:
            print(f"skipped: onnx {VERSION} could not be fetched: {fetched.stderr.strip()[-300:]}")
            return 77
        with zipfile.ZipFile(wheels[0]) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(tuple(INSIDE + case for case in CASES))]
            wheel.extractall(scratch, names)
        shutil.move(os.path.join(scratch, INSIDE), folder)
    print(f"{len(names)} files of onnx {VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
