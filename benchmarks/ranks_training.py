#!/usr/bin/python3
"""Times a W8A8 training of resnet20 cut into two shards: by one process in turn, by two threads, and by two processes.

usage: benchmarks/ranks_training.py STEELYARD [--rounds 5] [--epochs 3] [--width 16] [--out FILE]
       benchmarks/ranks_training.py STEELYARD --against OTHER [--rate 1gbit] [--width 64] ...
The second form times two processes with each of two programs; with --rate they are hosts, network namespaces with links of
that rate (for root, with iproute2 and Open MPI 4). The cases take turns within each round, in an order that alternates.
Figures are medians of the seconds that summary.json gives, without the start; only the ratios mean something on another day.
Needs mpirun and an otherwise idle machine.
"""
import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile

from machine import cpu_name
from recipe_parts import W8A8

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests"))
from support import mpirun, namespaces  # noqa: E402
from support.data_files import write_gradients  # noqa: E402

RECIPE = """version: 1
name: ranks
seed: 1
data: {{dataset: safetensors, path: {folder}, batch_size: 128, augment: [flip], validation: 0}}
model: {{type: resnet, depth: 20, width: {width}, classes: 4}}
train: {{epochs: {epochs}, optimizer: {{type: sgd, lr: 0.01, momentum: 0.9}}}}
""" + W8A8
# name: (processes, threads, shards, ranges)
CASES = {
    "1 shard": (1, 1, 1, "current"),
    "1 shard, delayed ranges": (1, 1, 1, "delayed"),
    "2 shards in turn": (1, 1, 2, "delayed"),
    "2 shards, 2 threads": (1, 2, 2, "delayed"),
    "2 shards, 2 processes": (2, 1, 2, "delayed"),
}
RATIOS = {"shards in turn / one shard": ("2 shards in turn", "1 shard"),
          "delayed / current ranges": ("1 shard, delayed ranges", "1 shard"),
          "2 processes / 2 threads": ("2 shards, 2 processes", "2 shards, 2 threads")}


def seconds_of(program, case, recipe, folder, hosts=None):
    processes, threads, shards, ranges = CASES[case]
    run = tempfile.mkdtemp(dir=folder)
    environment = {name: value for name, value in mpirun.environment().items() if not name.startswith(("OMP_", "GOMP_"))}
    command = [program, "train", recipe, "--run-dir", run, "--threads", str(threads), "--set", f"train.shards={shards}",
               "--set", f"quantize.ranges={ranges}"]
    if processes > 1:
        command = hosts.mpirun(1, *command) if hosts else mpirun.command(processes, *command)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    with open(os.path.join(run, "summary.json")) as file:
        return json.load(file)["seconds"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--against", metavar="OTHER")
    parser.add_argument("--rate")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    if arguments.against:
        pair = "2 shards, 2 processes"
        runs = {"program": (program, pair), "other": (os.path.abspath(arguments.against), pair)}
        ratios = {"program / other": ("program", "other")}
    else:
        runs, ratios = {case: (program, case) for case in CASES}, RATIOS
    hosts = namespaces.Hosts(2, arguments.rate) if arguments.rate else None
    try:
        times = measure(arguments, runs, hosts)
    finally:
        if hosts:
            hosts.close()
    medians = {case: statistics.median(values) for case, values in times.items()}
    result = {"machine": cpu_name(), "cores": len(os.sched_getaffinity(0)), "date": datetime.date.today().isoformat(),
              "width": arguments.width, "rate": arguments.rate, "medians_s": {case: round(value, 3) for case, value in medians.items()},
              "ratios": {name: round(medians[a] / medians[b], 3) for name, (a, b) in ratios.items()}, "seconds": times}
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out:
        with open(arguments.out, "w") as file:
            file.write(text + "\n")


def measure(arguments, runs, hosts):
    """The seconds of each of the runs, in rounds."""
    times = {name: [] for name in runs}
    with tempfile.TemporaryDirectory() as folder:
        write_gradients(os.path.join(folder, "data"), seed=1, side=28, step=6, counts=(640, 64))
        recipe = os.path.join(folder, "recipe.yaml")
        with open(recipe, "w") as file:
            file.write(RECIPE.format(folder=os.path.join(folder, "data"), epochs=arguments.epochs, width=arguments.width))
        for number in range(arguments.rounds):
            for name in list(runs)[::-1] if number % 2 else runs:
                program, case = runs[name]
                times[name].append(seconds_of(program, case, recipe, folder, hosts))
                print(f"{name}: {times[name][-1]:.2f} s", file=sys.stderr)
    return times


if __name__ == "__main__":
    main()
