#!/usr/bin/env python3
"""What does one command make of float ONNX files, beside ONNX Runtime's own quantization of them?

usage: quantize_files.py STEELYARD FOLDER RESULT.json [--minutes N] [--only NAME]...

FOLDER has a folder for each model: model.onnx, inputs.npy (or inputs.npz, of several inputs) to calibrate and choose on, and
held.npy (held.npz) that nothing sees before the end. Images lie in them as `steelyard` reads them, channels last. options.txt may have
options for this model, such as --freeze; judge.json may say what its outputs are read as (quantize_judge.py): boxes, classes, masks.
fetch_quantize_files.py makes such a FOLDER.

For each model `steelyard quantize` runs once with its defaults, `onnxruntime.quantization.quantize_static` with MinMax, Entropy and
Percentile (QDQ, weights of each channel in s8, activations in u8), and `nncf.quantize` where it is installed, on the same inputs. All
files then run in ONNX Runtime on the held inputs, with exact products (session.x64quantprecision = 1) and as the default session of this
machine has them. Reported are the SQNR of each output against the float file in dB, the decisions that are the same where a Softmax or a
matrix product gives the output, or what judge.json asks for (of a detector 2 * matched / (boxes of float + boxes of the file), matched: of
one class, with an IoU of .5), the bytes of the file, and milliseconds of a sample: medians of files that ran in turn.
"""
import argparse
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from machine import cpu_name
from quantize_judge import judged

RUNS = 7
PART = 16  # samples of quantize_static at a time


def session_of(path, exact):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = os.cpu_count()
    options.add_session_config_entry("session.x64quantprecision", "1" if exact else "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds_of(session, stored, frozen):
    """What a file with the input's names feeds the session, sample by sample: images with their channels where the input
    has them, and the batch too ([2, batch, 128])."""
    arrays = numpy.load(stored)
    ports = session.get_inputs()
    named = arrays if stored.endswith(".npz") else {ports[0].name: arrays}
    kinds = {"tensor(int32)": numpy.int32, "tensor(int64)": numpy.int64}
    feeds = [{} for _ in range(len(next(iter(named.values()))))]
    for port in ports:
        kind, shape = kinds.get(port.type, numpy.float32), port.shape
        for i, feed in enumerate(feeds):
            if port.name in frozen:
                feed[port.name] = numpy.array(frozen[port.name]).astype(kind)
                continue
            x = named[port.name][i:i + 1]
            turned = len(shape) == 4 and shape[1] in (1, 3) and x.ndim == 4 and x.shape[1] != shape[1]
            second = len(shape) == 3 and isinstance(shape[0], int) and shape[0] > 1 and shape[1] in ("batch", 1)
            x = x.transpose(0, 3, 1, 2) if turned else x.swapaxes(0, 1) if second else x
            feed[port.name] = numpy.ascontiguousarray(x.astype(kind))
    return feeds


def outputs_of(session, feeds):
    """Those of numbers, by name: a file may have kept one of several."""
    names = [port.name for port in session.get_outputs() if port.type == "tensor(float)"]
    parts = [session.run(names, feed) for feed in feeds]
    return {name: numpy.stack(values).astype(numpy.float64) for name, values in zip(names, zip(*parts))}


def deciding(model):
    """The names of the outputs that are scores of classes."""
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    return [port.name for port in model.graph.output if makers.get(port.name) in ("Softmax", "Gemm", "MatMul")]


def decibels(x, y):
    noise = numpy.square(x - y).sum()
    if not numpy.isfinite(noise):
        return -300.
    return 300. if noise == 0 else float(10 * numpy.log10(max(numpy.square(x).sum(), 1e-300) / noise))


def fidelity(expected, found, decides):
    rows = []
    for name, y in found.items():
        x = expected[name]
        row = {"output": name, "sqnr_db": decibels(x, y)}
        if name in decides and x.ndim > 1 and x.shape[-1] > 1:
            row["agreement"] = float(100 * (x.argmax(-1) == y.argmax(-1)).mean())
        rows.append(row)
    return rows


def milliseconds(paths, feeds):
    """Of one sample, medians; the files take turns."""
    sessions = {name: session_of(path, exact=True) for name, path in paths.items()}
    feeds = {name: {port.name: feeds[0][port.name] for port in session.get_inputs()} for name, session in sessions.items()}
    times = {name: [] for name in paths}
    for run in range(RUNS + 1):
        for name, session in sessions.items():
            begin = time.perf_counter()
            for _ in range(3):
                session.run(None, feeds[name])
            if run > 0:  # the first warms up
                times[name].append((time.perf_counter() - begin) / 3 * 1e3)
    return {name: statistics.median(own) for name, own in times.items()}


class Reader(CalibrationDataReader):
    """Reads the samples in parts: the calibrators keep every value of a part in memory."""

    def __init__(self, feeds):
        self.feeds = feeds

    def __len__(self):
        return len(self.feeds)

    def set_range(self, start_index, end_index):
        self.samples = iter(self.feeds[start_index:end_index])

    def get_next(self):
        return next(self.samples, None)


def quantized_statically(model, feeds, folder):
    """The paths of what quantize_static makes, by method; an error's text where it makes nothing."""
    made = {}
    part = max(n for n in range(1, PART + 1) if len(feeds) % n == 0)
    prepared = os.path.join(folder, "prepared.onnx")
    try:
        quant_pre_process(model, prepared, skip_symbolic_shape=True)
    except Exception:
        shutil.copy(model, prepared)
    for method in ("MinMax", "Entropy", "Percentile"):
        path = os.path.join(folder, method + ".onnx")
        for source in (prepared, model):  # what the preparation spoils is quantized as it is
            try:
                quantize_static(source, path, Reader(feeds), quant_format=QuantFormat.QDQ, per_channel=True,
                                weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8,
                                calibrate_method=CalibrationMethod[method], extra_options={"CalibStridedMinMax": part})
                made[method] = path
                break
            except Exception as error:  # of any kind: the table says which
                made[method] = {"error": " ".join(str(error).split())[:200]}
    return made


def quantized_by_nncf(model, feeds, folder):
    path = os.path.join(folder, "nncf.onnx")
    try:
        import nncf
        onnx.save(nncf.quantize(onnx.load(model), nncf.Dataset(feeds), subset_size=len(feeds)), path)
        return path
    except ImportError:
        return {"error": "nncf is not installed"}
    except Exception as error:
        return {"error": " ".join(str(error).split())[:200]}


def stored(folder, name):
    for end in (".npy", ".npz"):
        path = os.path.join(folder, name + end)
        if os.path.exists(path):
            return path
    sys.exit(f"{folder}: expected {name}.npy or {name}.npz")


def of_model(steelyard, folder, minutes, scratch):
    model = os.path.abspath(os.path.join(folder, "model.onnx"))
    inputs, held = os.path.abspath(stored(folder, "inputs")), os.path.abspath(stored(folder, "held"))
    more = open(os.path.join(folder, "options.txt")).read().split() if os.path.exists(os.path.join(folder, "options.txt")) else []
    frozen = {name: float(value) for name, value in (word.split("=") for at, word in enumerate(more) if more[at - 1] == "--freeze")}
    in_float = session_of(model, exact=True)
    given, held = feeds_of(in_float, inputs, frozen), feeds_of(in_float, held, frozen)
    expected = outputs_of(in_float, held)
    decides = deciding(onnx.load(model, load_external_data=False))
    judge = os.path.join(folder, "judge.json")
    judge = json.load(open(judge)) if os.path.exists(judge) else None
    begin = time.perf_counter()
    done = subprocess.run([steelyard, "quantize", model, "--data", inputs, "--minutes", str(minutes), "--out", "steelyard.onnx", *more],
                          cwd=scratch, text=True, capture_output=True)
    seconds = time.perf_counter() - begin
    files = {**quantized_statically(model, given, scratch), "NNCF": quantized_by_nncf(model, given, scratch)}
    result = {"seconds": seconds, "exit": done.returncode}
    if done.returncode != 0:
        result["said"] = done.stderr.splitlines()[-3:]
    if os.path.exists(os.path.join(scratch, "steelyard.onnx")):
        files = {"steelyard": os.path.join(scratch, "steelyard.onnx"), **files}
    result["files"] = {}
    paths = {"float": model}
    for name, path in files.items():
        if isinstance(path, dict):
            result["files"][name] = path
            continue
        row = {"bytes": os.path.getsize(path)}
        try:
            for exact in (True, False):
                session = session_of(path, exact)
                feeds = [{port.name: feed[port.name] for port in session.get_inputs()} for feed in held]
                found = outputs_of(session, feeds)
                row["exact" if exact else "default"] = fidelity(expected, found, decides)
                if judge:
                    row["judged" if exact else "judged_default"] = judged(judge, expected, found)
            paths[name] = path
        except Exception as error:
            row["error"] = " ".join(str(error).replace(scratch + os.sep, "").split())[:200]
        result["files"][name] = row
    for name, time_of_one in milliseconds(paths, held).items():
        result["files"].setdefault(name, {"bytes": os.path.getsize(model)})["milliseconds"] = time_of_one
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steelyard")
    parser.add_argument("folder")
    parser.add_argument("result")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    result = {"machine": cpu_name(), "date": datetime.date.today().isoformat(), "onnxruntime": onnxruntime.__version__,
              "minutes": options.minutes, "models": {}}
    if os.path.exists(options.result):
        with open(options.result) as file:
            result["models"] = json.load(file)["models"]
    for name in sorted(os.listdir(options.folder)):
        if name in result["models"] or (options.only and name not in options.only):
            continue
        if not os.path.exists(os.path.join(options.folder, name, "model.onnx")):
            continue
        with tempfile.TemporaryDirectory() as scratch:
            found = of_model(os.path.abspath(options.steelyard), os.path.join(options.folder, name), options.minutes, scratch)
        result["models"][name] = found
        with open(options.result, "w") as file:
            json.dump(result, file, indent=1)
        for maker, row in found["files"].items():
            worst = min((output["sqnr_db"] for output in row.get("exact", [])), default=None)
            agreement = min((output["agreement"] for output in row.get("exact", []) if "agreement" in output), default=None)
            agreement = row["judged"]["agreement"] if row.get("judged") else agreement
            print(f"{name:24} {maker:12} {'-' if worst is None else f'{worst:6.1f} dB':>10} "
                  f"{'-' if agreement is None else f'{agreement:6.2f} %':>9} {row.get('bytes', 0):>10} "
                  f"{row.get('milliseconds', 0):8.2f} ms {row.get('error', '')}", flush=True)


if __name__ == "__main__":
    main()
