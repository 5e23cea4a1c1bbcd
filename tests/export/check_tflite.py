"""Runs the files of write_tflite_cases with TFLite Micro and compares every tensor, code by code.

usage: check_tflite.py FOLDER [JUDGE]

JUDGE is a program that build_tflm_judge made, which then runs them instead of the package tflite-micro: the only one
of tflm_single_rounding. Prints how many codes differ of each operation (files op-OPERATION-SEED) and of networks. Where the package
ai-edge-litert is installed, LiteRT loads every file but streams too; how many codes of its outputs differ is printed, with
its reference kernels and with those that it chooses by itself. Where ethos-u-vela is, it compiles the first file of
each operation and every network but the random ones and those with weights of 4 bits, which it has none of.
"""
import glob
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open

try:
    from tflite_micro import runtime
except ImportError:
    if len(sys.argv) < 3:
        print("skipped: no tflite-micro in this Python")
        sys.exit(77)
try:
    from ai_edge_litert import interpreter as litert
except ImportError:
    litert = None

ARENA = 4 << 20  # bytes; more than any case needs
VELA = "from ethosu.vela.vela import main; main()"


def expected_of(path):
    with safe_open(path.replace(".tflite", ".safetensors"), "numpy") as file:
        data = file.metadata()
        expected = {name: file.get_tensor(name) for name in file.keys()}
        return data["tensors"].split("\n"), expected, int(data.get("calls_before", 0))


def run_micro(model, names, expected, first):
    """{name: (codes, codes that differ)} from the sample `first` on"""
    micro = runtime.Interpreter.from_bytes(model, arena_size=ARENA,
                                           intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors)
    found = {}
    for sample in range(len(expected["input"])):
        if not first:  # samples are no calls of one sequence
            micro.reset()
        micro.set_input(expected["input"][sample:sample + 1], 0)
        micro.invoke()
        if sample < first:
            continue
        for index, name in enumerate(names):
            if name not in expected or name == "input":
                continue
            codes = micro.GetTensor(index, 0)["tensor_data"] if name != "output" else micro.get_output(0)
            want = expected[name][sample]
            assert codes.dtype == np.int8 and codes.size == want.size, (name, codes.dtype, codes.shape, want.shape)
            count, off = found.get(name, (0, 0))
            found[name] = count + want.size, off + np.count_nonzero(codes.reshape(want.shape) != want)
    return found


def run_judge(judge, path, names, expected):
    """As run_micro."""
    chosen = [(index, name) for index, name in enumerate(names) if name in expected and name != "input"]
    made = subprocess.run([judge, path] + [str(index) for index, _ in chosen], input=expected["input"].tobytes(),
                          capture_output=True, check=True).stdout
    rows = np.frombuffer(made, np.int8).reshape(len(expected["input"]), -1)
    found = {}
    first = 0
    for _, name in chosen:
        want = expected[name].reshape(len(rows), -1)
        codes = rows[:, first:first + want.shape[1]]
        first += want.shape[1]
        found[name] = want.size, np.count_nonzero(codes != want)
    assert first == rows.shape[1], (path, first, rows.shape)
    return found


def run_litert(model, expected, resolver):
    lite = litert.Interpreter(model_content=model, experimental_op_resolver_type=resolver)
    lite.allocate_tensors()
    to, of = lite.get_input_details()[0], lite.get_output_details()[0]
    assert (to["name"], of["name"]) == ("input", "output"), (to["name"], of["name"])
    off = 0
    for sample, want in zip(expected["input"], expected["output"]):
        lite.reset_all_variables()
        lite.set_tensor(to["index"], sample[None])
        lite.invoke()
        off += np.count_nonzero(lite.get_tensor(of["index"]).reshape(want.shape) != want)
    return off


def kind_of(path):
    """The operation of a file, streams, or the networks'."""
    if os.path.basename(path).startswith("stream-"):
        return "streams"
    found = re.fullmatch(r"op-(\w+)-\d+\.tflite", os.path.basename(path))
    return found[1] if found else "networks"


def compile_with_vela(paths):
    """The files that vela does not compile."""
    refused = []
    with tempfile.TemporaryDirectory() as out:
        for path in paths:
            done = subprocess.run([sys.executable, "-c", VELA, path, "--output-dir", out,
                                   "--accelerator-config", "ethos-u55-128"], capture_output=True, text=True, check=False)
            if done.returncode or not glob.glob(os.path.join(out, "*_vela.tflite")):
                refused.append(f"{os.path.basename(path)}: {(done.stdout + done.stderr).strip().splitlines()[-1:]}")
            for made in glob.glob(os.path.join(out, "*")):
                os.remove(made)
    return refused


def main():
    judge = sys.argv[2] if len(sys.argv) > 2 else None
    paths = sorted(glob.glob(os.path.join(sys.argv[1], "*.tflite")))
    if judge:  # which runs each sample by itself
        paths = [path for path in paths if kind_of(path) != "streams"]
    assert paths, f"no .tflite files in {sys.argv[1]}"
    counts = {}
    outputs = 0
    other = {"reference kernels": 0, "kernels of its choice": 0}
    failed = []
    for path in paths:
        names, expected, first = expected_of(path)
        with open(path, "rb") as file:
            model = file.read()
        found = run_judge(judge, path, names, expected) if judge else run_micro(model, names, expected, first)
        off = {name: f"{count} of {size}" for name, (size, count) in found.items() if count}
        kind = counts.setdefault(kind_of(path), [0, 0, 0])
        kind[0] += 1
        kind[1] += sum(count for _, count in found.values())
        kind[2] += sum(size for size, _ in found.values())
        outputs += 0 if kind_of(path) == "streams" else expected["output"].size
        if off:
            failed.append(path)
            print(f"FAILED {os.path.basename(path)}: {off}")
        if litert and not judge and kind_of(path) != "streams":  # it reads no variable that nothing was assigned to
            kinds = litert.OpResolverType
            other["reference kernels"] += run_litert(model, expected, kinds.BUILTIN_REF)
            other["kernels of its choice"] += run_litert(model, expected, kinds.AUTO)
    for kind, (files, differing, codes) in sorted(counts.items()):
        print(f"TFLite Micro, {kind}: {files} files, {differing} of {codes} codes differ")
    files, differing, codes = (sum(kind[i] for kind in counts.values()) for i in range(3))
    print(f"TFLite Micro: {files} files, {differing} of {codes} codes differ")
    if judge:
        return 1 if failed else 0
    if litert:
        for kernels, count in other.items():
            print(f"LiteRT, {kernels}: {count} of {outputs} codes of outputs differ")
    if importlib.util.find_spec("ethosu"):
        others = r"random\d+\.tflite$|layers_w4\.tflite$|_of_few_bits-|-[1-9]\d*\.tflite$"
        chosen = [path for path in paths if not re.search(others, path)]
        refused = compile_with_vela(chosen)
        print("\n".join([f"vela: compiles {len(chosen) - len(refused)} of {len(chosen)} files"] + refused))
    return 1 if failed else 0


sys.exit(main())
