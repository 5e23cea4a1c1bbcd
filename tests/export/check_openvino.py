"""Runs files of write_onnx_cases with OpenVINO: it reads them, and decides as the interpreter does.

usage: check_openvino.py FOLDER NAME...

OpenVINO rounds sums of products in an order of its own, so that codes differ: classes are compared,
and the outputs of networks in float. Networks of random weights have close calls: not all of them are
fit for it. Exits with 77 (skipped) where Python has no openvino, which scripts/python_env does not
install.
"""
import importlib.util
import os
import sys

import numpy as np

SAME_CLASS = 0.9  # of the samples of each model


def check(core, path):
    from safetensors import safe_open

    with safe_open(path.replace(".onnx", ".safetensors"), "numpy") as file:
        inputs, expected = file.get_tensor("input"), file.get_tensor("output")
    model = core.read_model(path)
    if "recurrent" in os.path.basename(path):  # OpenVINO 2026.4 fails with several LSTM nodes and a free batch
        model.reshape(inputs.shape)
    outputs = core.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([inputs])[0]
    rows, wanted = (x.reshape(len(x), -1) for x in (outputs, expected))
    agree = np.mean(rows.argmax(1) == wanted.argmax(1))
    largest = np.abs(rows - wanted).max() / np.abs(wanted).max()
    in_float = os.path.basename(path).startswith("float_")
    good = outputs.shape == expected.shape and agree >= SAME_CLASS and (not in_float or largest < 1e-4)
    print(f"{'ok    ' if good else 'FAILED'} {os.path.basename(path)[:-5]}: same class {100 * agree:.1f} %, "
          f"outputs within {largest:.3g} of the largest")
    return good


def main():
    if not importlib.util.find_spec("openvino"):
        print(f"skipped: {sys.executable} has no openvino")
        return 77
    import openvino

    core = openvino.Core()
    good = [check(core, os.path.join(sys.argv[1], name + ".onnx")) for name in sys.argv[2:]]
    print(f"{sum(good)} of {len(good)} models, OpenVINO {openvino.__version__}")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
