#!/usr/bin/env python3
"""Where a training step's time goes on a GPU: how long each kernel of a replayed step takes.

usage: benchmarks/gpu_kernel_times.py PROGRAM TRACE [--models cnn,mlp] [--modes float,qat] [--precisions float32] [--out FILE]
PROGRAM is the built training_step_benchmark, TRACE the built libgpu_kernel_trace.so, which records kernels as CUDA
runs them. A step is replayed from its CUDA graph, first as it is (the step's time), then recorded. The rest of the
step's time passes between kernels, unless some of them run at once. A model's batch follows a colon: resnet18:64.
"""
import argparse
import collections
import datetime
import itertools
import json
import os
import re
import subprocess
import tempfile

from machine import gpu_name
from steppers import Stepper


def step_milliseconds(command):
    """The median, and the number of the graph's nodes."""
    stepper = Stepper([*command, "--steps", "50"])
    if not stepper.wait_until_ready():
        raise RuntimeError(f"{' '.join(command)} failed")
    for _ in range(9):
        stepper.round()
    stepper.close()
    return stepper.median, stepper.info["graph_nodes"]


def short_name(kernel):
    """The function's name and, of its template's arguments, the first type that says what it computes."""
    name = re.sub(r"[<(].*", "", re.sub(r"\(anonymous namespace\)::|<unnamed>::|^void ", "", kernel)).split("::")[-1]
    types = [word for word in re.findall(r"\b[A-Z]\w*", kernel.partition(name)[2].rpartition("(")[0])
             if word not in ("ChannelTerm", "RowChunks") and "steelyard" in kernel]
    return f"{name}<{types[0]}>" if types else name


def recorded_kernels(trace, command):
    """(name, nanoseconds) of every kernel that the program ran, the last ones those of replayed steps."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "kernels")
        subprocess.run([*command, "--steps", "4"], input="go\n", text=True, check=True, stdout=subprocess.DEVNULL,
                       env=os.environ | {"CUDA_INJECTION64_PATH": os.path.abspath(trace), "GPU_KERNEL_TRACE": log})
        with open(log) as file:
            lines = [line.rstrip("\n").split(" ", 2) for line in file]
    return [(name, int(nanoseconds)) for _, nanoseconds, name in sorted(lines, key=lambda line: int(line[0]))]


def last_step(kernels, nodes):
    """Those of the last replay: what the one before ran, too. Some of a graph's nodes may be copies."""
    names = [name for name, _ in kernels]
    for count in range(nodes, 0, -1):
        if names[-count:] == names[-2 * count:-count]:
            return kernels[-count:]
    raise RuntimeError("no two steps ran the same kernels")


def measure(trace, program, model_and_batch, mode, precision):
    model, _, batch = model_and_batch.partition(":")
    command = [program, model, mode, "--threads", "1", "--device", "cuda", "--precision", precision]
    command += ["--batch", batch] if batch else []
    step, nodes = step_milliseconds(command)
    kernels = last_step(recorded_kernels(trace, command), nodes)
    of_name = collections.defaultdict(list)
    for name, nanoseconds in kernels:
        of_name[short_name(name)].append(nanoseconds)
    total = sum(nanoseconds for _, nanoseconds in kernels)
    return {"model": model_and_batch, "mode": mode, "precision": precision, "step_ms": round(step, 4),
            "kernels": len(kernels), "kernels_ms": round(total / 1e6, 4),
            "by_kernel": {name: {"count": len(times), "us": round(sum(times) / 1e3, 2)}
                          for name, times in sorted(of_name.items(), key=lambda item: -sum(item[1]))}}


def print_result(result):
    print(f"{result['model']}, {result['mode']}, {result['precision']}: step {result['step_ms']:.3f} ms, "
          f"{result['kernels']} kernels {result['kernels_ms']:.3f} ms")
    for name, of_name in result["by_kernel"].items():
        print(f"{of_name['us']:9.1f} us {of_name['count']:5} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("trace")
    parser.add_argument("--models", default="cnn,mlp,resnet20")
    parser.add_argument("--modes", default="float_frozen_bn,qat")
    parser.add_argument("--precisions", default="tf32")
    parser.add_argument("--out")
    args = parser.parse_args()
    results = []
    for case in itertools.product(*(names.split(",") for names in (args.models, args.modes, args.precisions))):
        results.append(measure(args.trace, args.program, *case))
        print_result(results[-1])
        if args.out:  # after each: the next may be stopped
            with open(args.out, "w") as file:
                json.dump({"machine": gpu_name(), "date": datetime.date.today().isoformat(), "results": results}, file,
                          indent=1)
                file.write("\n")


main()
