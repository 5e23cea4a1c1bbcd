#!/usr/bin/env python3
"""The exported integer model beside ONNX Runtime, over several networks, batches and threads.

usage: benchmarks/inference.py STEELYARD [--models resnet18 ...] [--files NAME=FILE ...] [--batches 1 8] [--threads 1 2]
                               [--rounds 30] [--weight-bits 8] [--json FILE]

STEELYARD is the built command line. Networks of torchvision (fresh weights, 224 x 224), an encoder of MiniLM-L6's sizes (64
tokens), a small CNN (28 x 28) and an MLP (64 numbers) are wrapped by the Python package for W8A8, take two steps so that
ranges are observed, and are exported; with weights of 7 bits ONNX Runtime's default session is exact without VNNI, too. FILE
is another model.safetensors with its model.onnx beside it, such as the folder of a `steelyard quantize` has. Then `steelyard
benchmark` runs each file and ONNX Runtime in turn, and new processes load them in turn. Set PYTHONPATH to the folder of the
package and STEELYARD_LIBRARY to its library, unless they are installed. With LD_PRELOAD=older_processor.so
(tests/support/older_processor.cpp) all programs run as on a processor with AVX2 alone.

The table has medians of milliseconds, and what the file takes of ONNX Runtime's time with exact products and in its default
session, whose products may saturate without VNNI. Where this Python has OpenVINO, it runs the ONNX file between two runs of
ours, whose mean is compared. Of loading it has what the file takes of making a session and of reading its bytes into new
memory; of memory, what a process takes for loading and a first run beyond what it had, with one thread.
"""
import argparse
import datetime
import importlib.metadata
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import warnings

import torch
import torchvision
from torch import nn

import steelyard.torch
from machine import cpu_name

MODELS = ["resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "encoder", "cnn", "mlp"]
LOADS = 9  # of each, in turn
SESSIONS = ("exact products", "default session")
try:
    OPENVINO_VERSION = importlib.metadata.version("openvino")
except importlib.metadata.PackageNotFoundError:
    OPENVINO_VERSION = None


class EncoderLayer(nn.Module):
    """A layer of BERT's encoder (arXiv:1810.04805) with the sizes of MiniLM-L6, for 64 tokens."""
    tokens, width, heads, inner = 64, 384, 12, 1536

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(self.width, self.width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(self.width), nn.LayerNorm(self.width)
        self.grow, self.shrink = nn.Linear(self.width, self.inner), nn.Linear(self.inner, self.width)

    def forward(self, x):
        size = self.width // self.heads
        query, key, value = (part(x).reshape(-1, self.tokens, self.heads, size).permute(0, 2, 1, 3)
                             for part in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(2, 3) * size**-0.5, -1)
        x = self.norm1(x + self.out((weights @ value).permute(0, 2, 1, 3).reshape(-1, self.tokens, self.width)))
        return self.norm2(x + self.shrink(nn.functional.gelu(self.grow(x))))


def network(name):
    """The module and the shape of a sample."""
    if name == "cnn":
        layers = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                  nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 10)]
        return nn.Sequential(*layers), (1, 28, 28)
    if name == "encoder":
        return nn.Sequential(*(EncoderLayer() for _ in range(6))), (EncoderLayer.tokens, EncoderLayer.width)
    if name == "mlp":
        return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)), (64,)
    return torchvision.models.get_model(name, weights=None), (3, 224, 224)


def export(name, folder, weight_bits):
    torch.manual_seed(0)
    model, shape = network(name)
    kinds = sorted({type(m).__name__ for m in model.modules()} & {"Conv2d", "Linear"})
    recipe = {"version": 1, "name": name, "quantize": {"groups": [
        {"targets": kinds, "weights": {"num_bits": weight_bits}, "activations": {"num_bits": 8}}]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = steelyard.torch.Module(model, torch.randn(2, *shape), recipe)
    for _ in range(2):
        module(torch.randn(4, *shape)).square().mean().backward()
    module.eval()
    for kind in ("onnx", "safetensors"):
        module.export(str(folder / f"model.{kind}"))
    return folder / "model.safetensors"


def measure(program, file, batch, threads, rounds):
    command = [program, "benchmark", str(file), "--batch", str(batch), "--threads", str(threads), "--rounds", str(rounds), "--json",
               "--python", sys.executable]
    done = json.loads(subprocess.run(command, check=True, text=True, capture_output=True).stdout)
    for peer in done.get("onnxruntime", []):
        del peer["file"]
    return {key: value for key, value in done.items() if key not in ("model", "nodes")}


# What a new process takes for a session of a file, and for reading one, in milliseconds.
SESSION = """
import sys, time, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2])
begin = time.perf_counter()
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
print((time.perf_counter() - begin) * 1e3)
"""
# The most memory that a process takes for a session and its first run, in bytes.
MEMORY = """
import sys, numpy, onnxruntime
def size(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(key + ":"))
batch, shape = int(sys.argv[2]), [int(side) for side in sys.argv[3:]]
inputs = numpy.zeros([batch, *shape], numpy.float32)
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the peak begins anew
before = size("VmRSS")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
session.run(None, {session.get_inputs()[0].name: inputs})
print(size("VmHWM") - before)
"""
# Milliseconds of a run in OpenVINO, the median.
OPENVINO = """
import statistics, sys, time, numpy, openvino
threads, batch, rounds = (int(word) for word in sys.argv[2:5])
core = openvino.Core()
model = core.read_model(sys.argv[1])
port = model.inputs[0]
shape = [batch, *(int(side) for side in sys.argv[5:])]
model.reshape({port: shape})
compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY"})
request = compiled.create_infer_request()
request.set_input_tensor(openvino.Tensor(numpy.random.default_rng(1).standard_normal(shape).astype(numpy.float32)))
times = []
for _ in range(rounds + 1):
    begin = time.perf_counter()
    request.infer()
    times.append((time.perf_counter() - begin) * 1e3)
print(statistics.median(times[1:]))
"""
READ = """
import mmap, sys, time
begin = time.perf_counter()
with open(sys.argv[1], "rb", buffering=0) as file:
    memory = mmap.mmap(-1, int(sys.argv[2]))
    file.readinto(memory)
print((time.perf_counter() - begin) * 1e3)
"""


def number_of(script, *arguments):
    """What a new Python prints."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return float(subprocess.run(command, check=True, text=True, capture_output=True).stdout)


def sample_of(row):
    """The shape of a sample in the ONNX file: images have their channels first there."""
    sample = row["sample"]
    return sample[2:] + sample[:2] if len(sample) == 3 else sample


def memory(program, file, batch, shape):
    """Medians of what both take for loading and a first run, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        alone = shutil.copy(file, folder)
        ours = [measure(program, alone, batch, 1, 1)["peak_bytes"] for _ in range(3)]
    theirs = [number_of(MEMORY, file.with_suffix(".onnx"), batch, *shape) for _ in range(3)]
    return {"batch": batch, "peak_bytes": statistics.median(ours), "session_peak_bytes": statistics.median(theirs)}


def loading(program, file, threads, rounds):
    """Medians of loading the file, making a session of the ONNX file beside it, and reading the file; milliseconds."""
    times = {"load_ms": [], "session_ms": [], "read_ms": []}
    with tempfile.TemporaryDirectory() as folder:
        alone = shutil.copy(file, folder)  # so that nothing else is timed
        for _ in range(rounds):
            times["load_ms"].append(measure(program, alone, 1, threads, 1)["load_ms"])
            times["session_ms"].append(number_of(SESSION, file.with_suffix(".onnx"), threads))
            times["read_ms"].append(number_of(READ, alone, file.stat().st_size))
    return {key: statistics.median(values) for key, values in times.items()}


def measure_file(name, file, options, result):
    """Adds the rows of a model and prints them."""
    sample = sample_of(measure(options.program, file, 1, 1, 1))
    for batch in options.batches:
        taken = {"model": name, **memory(options.program, file, batch, sample)}
        print(f"{name:20} batch {batch} memory: {taken['peak_bytes'] / 2**20:8.1f} MiB   "
              f"{taken['peak_bytes'] / taken['session_peak_bytes']:.2f} of a session's", flush=True)
        result["memories"].append(taken)
    for threads in options.threads:
        load = loading(options.program, file, threads, LOADS)
        print(f"{name:20} threads {threads} loaded: {load['load_ms']:8.2f} ms   "
              f"{load['load_ms'] / load['session_ms']:.2f} of a session's time, "
              f"{load['load_ms'] / load['read_ms']:.1f} of reading", flush=True)
        result["loads"].append({"model": name, "threads": threads, "bytes": file.stat().st_size, **load})
        for batch in options.batches:
            row = {**measure(options.program, file, batch, threads, options.rounds), "model": name}
            text = f"{name:20} threads {threads} batch {batch}: {row['median_ms']:9.3f} ms"
            for peer in row.get("onnxruntime", []):
                text += f"   {row['median_ms'] / peer['median_ms']:.2f} of {peer['name']}"
            if OPENVINO_VERSION:
                after = measure(options.program, file, batch, threads, options.rounds)["median_ms"]
                row["openvino_ms"] = number_of(OPENVINO, file.with_suffix(".onnx"), threads, batch, options.rounds, *sample)
                row["around_openvino_ms"] = statistics.mean([row["median_ms"], after])
                text += f"   {row['around_openvino_ms'] / row['openvino_ms']:.2f} of OpenVINO"
            print(text, flush=True)
            result["rows"].append(row)


def geometric_mean(ratios):
    return math.exp(statistics.mean(map(math.log, ratios)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--files", nargs="*", default=[])
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 8])
    parser.add_argument("--threads", nargs="*", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--weight-bits", type=int, default=8)
    parser.add_argument("--json")
    options = parser.parse_args()
    result = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "openvino": OPENVINO_VERSION,
              "weight_bits": options.weight_bits, "rows": [], "loads": [], "memories": []}
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            measure_file(name, export(name, pathlib.Path(folder), options.weight_bits), options, result)
    for given in options.files:
        name, file = given.split("=", 1)
        measure_file(name, pathlib.Path(file), options, result)
    ratios = {session: [row["median_ms"] / peer["median_ms"] for row in result["rows"] for peer in row.get("onnxruntime", [])
                        if peer["name"] == session] for session in SESSIONS}
    means = {session: geometric_mean(of) for session, of in ratios.items() if of}
    if OPENVINO_VERSION:
        means["OpenVINO"] = geometric_mean([row["around_openvino_ms"] / row["openvino_ms"] for row in result["rows"]])
    for session, mean in means.items():
        print(f"geometric mean: {mean:.2f} of {session}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({**result, "geometric_means": means}, indent=1) + "\n")


if __name__ == "__main__":
    main()
