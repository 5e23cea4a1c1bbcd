#!/usr/bin/env python3
"""Where a training step's time goes on a GPU: how long each of its kernels takes alone, by Nsight Compute.

usage: benchmarks/gpu_kernel_times.py PROGRAM [--models cnn,mlp] [--modes float,qat] [--precisions float32] [--out FILE]
PROGRAM is the built training_step_benchmark. A step is replayed from its CUDA graph, first as it is (the step's time),
then with every kernel timed alone, one after the other, its clocks as they are. The rest of the step's time passes
between kernels, unless some of them run at once.
"""
import argparse
import collections
import csv
import datetime
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile

from machine import gpu_name
from steppers import Stepper

TIME, CLOCK = "gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second"


def step_milliseconds(command):
    stepper = Stepper([*command, "--steps", "50"])
    if not stepper.wait_until_ready():
        raise RuntimeError(f"{' '.join(command)} failed")
    for _ in range(9):
        stepper.round()
    stepper.close()
    return stepper.median


def short_name(kernel):
    """The function's name and, of its template's arguments, the first type that says what it computes."""
    name = re.sub(r"[<(].*", "", re.sub(r"\(anonymous namespace\)::|<unnamed>::|^void ", "", kernel)).split("::")[-1]
    types = [word for word in re.findall(r"\b[A-Z]\w*", kernel.partition(name)[2].rpartition("(")[0])
             if word not in ("ChannelTerm", "RowChunks") and "steelyard" in kernel]
    return f"{name}<{types[0]}>" if types else name


def profiled_kernels(ncu, command, steps):
    """(name, nanoseconds, hertz) of every kernel that the program runs with so many replays of its step."""
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "log.csv")
        subprocess.run([ncu, "--csv", "--page", "raw", "--print-units", "base", "--log-file", log, "--metrics",
                        f"{TIME},{CLOCK}", "--clock-control", "none", "--cache-control", "none", *command, "--steps",
                        str(steps)],
                       input="go\n" if steps else "", text=True, check=True, stdout=subprocess.DEVNULL)
        with open(log) as file:
            rows = list(csv.reader(line for line in file if line.startswith('"')))
    columns = [rows[0].index(column) for column in ("Kernel Name", TIME, CLOCK)]
    number = lambda text: float(text.replace(",", ""))
    # The second row has the units.
    return [(name, number(time), number(clock)) for name, time, clock in ([row[c] for c in columns] for row in rows[2:])]


def measure(ncu, program, model, mode, precision):
    command = [program, model, mode, "--threads", "1", "--device", "cuda", "--precision", precision]
    step = step_milliseconds(command)
    # What comes before the first replay is the same in both runs.
    before = len(profiled_kernels(ncu, command, 0))
    kernels = profiled_kernels(ncu, command, 1)[before:]
    of_name = collections.defaultdict(list)
    for name, nanoseconds, _ in kernels:
        of_name[short_name(name)].append(nanoseconds)
    total = sum(nanoseconds for _, nanoseconds, _ in kernels)
    return {"model": model, "mode": mode, "precision": precision, "step_ms": round(step, 4),
            "kernels": len(kernels), "kernels_ms": round(total / 1e6, 4),
            "median_clock_ghz": round(statistics.median(clock for _, _, clock in kernels) / 1e9, 3),
            "by_kernel": {name: {"count": len(times), "us": round(sum(times) / 1e3, 2)}
                          for name, times in sorted(of_name.items(), key=lambda item: -sum(item[1]))}}


def print_result(result):
    print(f"{result['model']}, {result['mode']}, {result['precision']}: step {result['step_ms']:.3f} ms, "
          f"{result['kernels']} kernels {result['kernels_ms']:.3f} ms alone at {result['median_clock_ghz']} GHz")
    for name, of_name in result["by_kernel"].items():
        print(f"{of_name['us']:9.1f} us {of_name['count']:5} {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--models", default="cnn,mlp,resnet20")
    parser.add_argument("--modes", default="float_frozen_bn,qat")
    parser.add_argument("--precisions", default="tf32")
    parser.add_argument("--out")
    args = parser.parse_args()
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    results = []
    for case in itertools.product(*(names.split(",") for names in (args.models, args.modes, args.precisions))):
        results.append(measure(ncu, args.program, *case))
        print_result(results[-1])
        if args.out:  # after each: the next may be stopped
            with open(args.out, "w") as file:
                json.dump({"machine": gpu_name(), "date": datetime.date.today().isoformat(), "results": results}, file,
                          indent=1)
                file.write("\n")


main()
