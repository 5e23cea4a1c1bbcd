"""Runs the files of write_onnx_cases with ONNX Runtime and compares every tensor.

usage: check_onnx.py FOLDER [SATURATING... -- SAFE...]

With names: those alone, on a processor without VNNI. There the default session must give other
codes for the models before the dashes and the same for those after, and the session that everything
is compared with the same for all.
"""
import glob
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from safetensors import safe_open


def run(model, inputs, exact=True):
    """(outputs by name, operators of the optimised graph)"""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Else pairs of products of u8 and s8 saturate on x86 without VNNI (docs/exports.md).
    options.add_session_config_entry("session.x64quantprecision", "1" if exact else "0")
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        operators = {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {"input": inputs}))), operators


def with_codes_as_outputs(model):
    model = onnx.ModelProto.FromString(model.SerializeToString())
    types = {t.name: t.data_type for t in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear" and node.output[0].count("/") == 1:
            model.graph.output.append(onnx.helper.make_tensor_value_info(node.output[0], types[node.input[2]], None))
    return model


def check(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    with safe_open(path.replace(".onnx", ".safetensors"), "numpy") as file:
        expected = {name: file.get_tensor(name) for name in file.keys()}
        said = file.metadata()
    real, operators = run(model, expected["input"])
    missing = [o for o in said["operators"].split() if o not in operators]
    left = [o for o in said["no_operators"].split() if o in operators]
    values = codes = differing = 0
    first = ""
    for name, tensor in run(with_codes_as_outputs(model), expected["input"])[0].items():
        if not name.endswith("/codes"):
            continue
        values += 1
        codes += tensor.size
        want = expected[name.removesuffix("/codes")]
        shift = 128 if tensor.dtype == np.uint8 and want.dtype == np.int8 else 0
        off = np.count_nonzero(tensor != want.astype(np.int32) + shift)
        differing += off
        first = first or (name if off else "")
    logit = np.abs(real["output"] - expected["output"]).max()
    agree = np.mean(real["output"].reshape(len(real["output"]), -1).argmax(1)
                    == expected["output"].reshape(len(real["output"]), -1).argmax(1))
    exact = said["exact"] == "yes"
    close = not logit > float(said["distance"]) * np.abs(expected["output"]).max()
    good = not missing and not left and (not exact or (differing == 0 and logit == 0)) and agree >= 0.9 and close
    print(f"{'ok    ' if good else 'FAILED'} {os.path.basename(path)[:-5]}: opset {model.opset_import[0].version}, "
          f"{values} tensors, {differing} of {codes} codes differ, logits by {logit:.3g}, same class {100 * agree:.1f} %"
          + (f", without {missing}" if missing else "") + (f", with {left}" if left else "")
          + (f", first {first}" if first else ""))
    return good


def saturates(path, expected):
    model = with_codes_as_outputs(onnx.load(path))
    with safe_open(path.replace(".onnx", ".safetensors"), "numpy") as file:
        inputs = file.get_tensor("input")
    exact, default = (run(model, inputs, exact)[0] for exact in (True, False))
    differing = sum(np.count_nonzero(exact[name] != default[name]) for name in exact)
    good = (differing > 0) == expected
    print(f"{'ok    ' if good else 'FAILED'} {os.path.basename(path)[:-5]}: "
          f"{differing} values differ in the default session")
    return good


def main():
    folder, names = sys.argv[1], sys.argv[2:]
    if names:
        path_of = {name: os.path.join(folder, name + ".onnx") for name in names if name != "--"}
        good = [check(path) and saturates(path, names.index(name) < names.index("--")) for name, path in path_of.items()]
    else:
        good = [check(path) for path in sorted(glob.glob(os.path.join(folder, "*.onnx")))]
    print(f"{sum(good)} of {len(good)} models")
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
