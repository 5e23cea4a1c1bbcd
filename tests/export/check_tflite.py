"""Runs the files of write_tflite_cases with TFLite Micro and compares every tensor, code by code.

usage: check_tflite.py FOLDER

Where the package ai-edge-litert is installed, LiteRT loads every file too; how many codes of its
outputs differ is printed, with its reference kernels and with those that it chooses by itself.
"""
import glob
import os
import sys

import numpy as np
from safetensors import safe_open

try:
    from tflite_micro import runtime
except ImportError:
    print("skipped: no tflite-micro in this Python")
    sys.exit(77)
try:
    from ai_edge_litert import interpreter as litert
except ImportError:
    litert = None

ARENA = 4 << 20  # bytes; more than any case needs


def expected_of(path):
    with safe_open(path.replace(".tflite", ".safetensors"), "numpy") as file:
        return file.metadata()["tensors"].split("\n"), {name: file.get_tensor(name) for name in file.keys()}


def run_micro(model, names, expected):
    """{name: (codes, codes that differ)}"""
    micro = runtime.Interpreter.from_bytes(model, arena_size=ARENA,
                                           intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors)
    found = {}
    for sample in range(len(expected["input"])):
        micro.set_input(expected["input"][sample:sample + 1], 0)
        micro.invoke()
        for index, name in enumerate(names):
            if name not in expected:
                continue
            codes = micro.GetTensor(index, 0)["tensor_data"] if name != "output" else micro.get_output(0)
            want = expected[name][sample]
            assert codes.dtype == np.int8 and codes.size == want.size, (name, codes.dtype, codes.shape, want.shape)
            count, off = found.get(name, (0, 0))
            found[name] = count + want.size, off + np.count_nonzero(codes.reshape(want.shape) != want)
    return found


def run_litert(model, expected, resolver):
    lite = litert.Interpreter(model_content=model, experimental_op_resolver_type=resolver)
    lite.allocate_tensors()
    to, of = lite.get_input_details()[0], lite.get_output_details()[0]
    assert (to["name"], of["name"]) == ("input", "output"), (to["name"], of["name"])
    off = 0
    for sample, want in zip(expected["input"], expected["output"]):
        lite.set_tensor(to["index"], sample[None])
        lite.invoke()
        off += np.count_nonzero(lite.get_tensor(of["index"]).reshape(want.shape) != want)
    return off


def main():
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.tflite")))
    assert paths, f"no .tflite files in {sys.argv[1]}"
    codes = differing = outputs = 0
    other = {"reference kernels": 0, "kernels of its choice": 0}
    failed = []
    for path in paths:
        names, expected = expected_of(path)
        with open(path, "rb") as file:
            model = file.read()
        found = run_micro(model, names, expected)
        off = {name: f"{count} of {size}" for name, (size, count) in found.items() if count}
        codes += sum(size for size, _ in found.values())
        differing += sum(count for _, count in found.values())
        outputs += expected["output"].size
        if off:
            failed.append(path)
            print(f"FAILED {os.path.basename(path)}: {off}")
        if litert:
            kinds = litert.OpResolverType
            other["reference kernels"] += run_litert(model, expected, kinds.BUILTIN_REF)
            other["kernels of its choice"] += run_litert(model, expected, kinds.AUTO)
    print(f"TFLite Micro: {len(paths)} files, {differing} of {codes} codes differ")
    if litert:
        for kernels, count in other.items():
            print(f"LiteRT, {kernels}: {count} of {outputs} codes of outputs differ")
    return 1 if failed else 0


sys.exit(main())
