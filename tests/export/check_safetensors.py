"""The `safetensors` library reads our files, and we read its.

usage: check_safetensors.py STEELYARD MODEL.safetensors IMAGES.idx.gz

MODEL is an exported multilayer perceptron. It is run here from nothing but the file and
docs/exports.md, in numpy, and must give the classes that `steelyard predict` gives.
"""
import gzip
import json
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

F32 = np.float32


def clamp(code, q):
    return np.clip(code, q["qmin"], q["qmax"]).astype(np.int64)


def linear(node, tensors, x, x_q, y_q):
    name = node["name"]
    scale = F32(x_q["scale"]) * tensors[name + ".weight_scale"]
    sums = (x - x_q["zero_point"]) @ tensors[name + ".weight"].astype(np.int64).T + tensors[name + ".bias"]
    code = np.rint(sums.astype(F32) * (scale / F32(y_q["scale"]))) + F32(y_q["zero_point"])
    code = clamp(code, y_q)
    return np.maximum(code, y_q["zero_point"]) if node["activation"] == "relu" else code


def run(graph, tensors, images):
    pre = graph["preprocessing"]
    assert pre["dtype"] == "u8", pre
    pixels = images.astype(np.float64) / 255.0
    mean, stddev = (np.array(pre[key], F32).astype(np.float64) for key in ("mean", "stddev"))
    values = {graph["input"]: ((pixels - mean) / stddev).astype(F32)}
    for node in graph["nodes"]:
        x = values[node["inputs"][0]]
        x_q = graph["values"][node["inputs"][0]].get("quantization")
        y_q = graph["values"][node["output"]].get("quantization")
        if node["op"] == "quantize":
            y = clamp(np.rint(x / F32(y_q["scale"])) + F32(y_q["zero_point"]), y_q)
        elif node["op"] == "flatten":
            y = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        elif node["op"] == "linear":
            y = linear(node, tensors, x, x_q, y_q)
        else:
            raise ValueError(node["op"])
        values[node["output"]] = y
    return values[graph["output"]].argmax(axis=1)


def check_ours(steelyard, model, images_file):
    with safe_open(model, framework="numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    assert metadata["kind"] == "integer-model", metadata
    with gzip.open(images_file) as file:
        raw = file.read()
    images = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    ours = subprocess.run([steelyard, "predict", model, images_file], check=True, capture_output=True, text=True).stdout
    expected = np.array([int(line.split()[2]) for line in ours.splitlines()])
    got = run(json.loads(metadata["graph"]), tensors, images)
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
