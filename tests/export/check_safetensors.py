"""The `safetensors` library reads our files, and we read its.

usage: check_safetensors.py STEELYARD MODEL.safetensors IMAGES.idx.gz

MODEL is an exported multilayer perceptron. It is run here from nothing but the file and
docs/exports.md, in numpy, and must give the classes that `steelyard predict` gives.
"""
import gzip
import subprocess
import sys
import tempfile

import numpy as np
from integer_model import load, run
from safetensors.numpy import save_file


def classes(graph, tensors, images):
    pre = graph["preprocessing"]
    assert pre["dtype"] == "u8", pre
    pixels = images.astype(np.float64) / 255.0
    mean, stddev = (np.array(pre[key], np.float32).astype(np.float64) for key in ("mean", "stddev"))
    values = run(graph, tensors, ((pixels - mean) / stddev).astype(np.float32))
    return values[graph["values"][graph["output"]]["name"]].argmax(axis=1)


def check_ours(steelyard, model, images_file):
    graph, tensors = load(model)
    with gzip.open(images_file) as file:
        raw = file.read()
    images = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    ours = subprocess.run([steelyard, "predict", model, images_file], check=True, capture_output=True, text=True).stdout
    said = [line.split("  ")[1] for line in ours.splitlines()]
    names = graph.get("class_names")
    expected = np.array([names.index(name) if names else int(name.split()[1]) for name in said])
    got = classes(graph, tensors, images)
    assert (got == expected).all(), f"{(got != expected).sum()} of {len(got)} classes differ"
    print(f"{len(got)} equal classes")


def check_theirs(steelyard):
    dtypes = ["bool", "uint8", "int8", "float16", "int32", "float32", "int64", "float64"]
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/theirs.safetensors"
        save_file({f"t.{d}": np.arange(6).reshape(2, 3).astype(d) for d in dtypes}, path, {"who": "the library"})
        listed = subprocess.run([steelyard, "inspect", path], check=True, capture_output=True, text=True).stdout
    for dtype in dtypes:
        assert f"t.{dtype}" in listed, listed
    assert f"{len(dtypes)} tensors" in listed and "who = the library" in listed, listed
    print("their file is listed")


if __name__ == "__main__":
    check_ours(*sys.argv[1:4])
    check_theirs(sys.argv[1])
