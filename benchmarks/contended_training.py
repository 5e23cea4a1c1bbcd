#!/usr/bin/python3
"""Times training alone and with a busy process on every core, for several ways to wait.

usage: benchmarks/contended_training.py STEELYARD [--other STEELYARD] [--settings NAME...] [--rounds 5] [--epochs 4]
                                        [--images 6400] [--quota 1.5] [--out FILE]
STEELYARD is the built program, --other an earlier one, measured as `before`. The settings take turns within each round:
first alone, then with neighbours, each pinned to its core. Figures are medians of the seconds of one training run, start
included; only the ratios mean something on another day: `alone ratio` is against the first setting alone, `fair share` is
the speed with the neighbours over half of that one's alone. With --quota, the runs with neighbours are instead runs
in a control group of that many processors (as root). Needs an otherwise idle machine.
"""
import argparse
import contextlib
import datetime
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from machine import cpu_name
from recipe_parts import W8A8

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests"))
from support.data_files import i64, write_split  # noqa: E402

# 10,000 turns are what the program chooses by itself; 300,000 are libgomp's own default.
SETTINGS = {
    "program": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "spin 1000": {"GOMP_SPINCOUNT": "1000"},
    "spin 10000": {"GOMP_SPINCOUNT": "10000"},
    "spin 20000": {"GOMP_SPINCOUNT": "20000"},
    "spin 30000": {"GOMP_SPINCOUNT": "30000"},
    "spin 50000": {"GOMP_SPINCOUNT": "50000"},
    "spin 300000": {"GOMP_SPINCOUNT": "300000"},
    "1 thread": {"OMP_NUM_THREADS": "1"},
    "2 threads": {"OMP_NUM_THREADS": "2"},
}
RECIPE = """version: 1
name: contended
seed: 1
data: {{dataset: safetensors, path: {folder}, batch_size: 64, validation: 0}}
model: {{type: cnn, channels: [16, 32], hidden: 64, classes: 10}}
train: {{epochs: {epochs}, optimizer: {{type: sgd, lr: 0.01, momentum: 0.9}}}}
""" + W8A8


def write_images(folder, split, count):
    """Noise of 28 x 28 pixels with random labels: only the time counts."""
    generator = random.Random(split)
    pixels = generator.randbytes(count * 28 * 28)
    write_split(folder, split, ("U8", [count, 28, 28, 1], pixels),
                i64([count], [generator.randrange(10) for _ in range(count)]))


@contextlib.contextmanager
def busy_neighbours(wanted):
    """A process that never sleeps on every core that this one may use."""
    loop = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    processes = [subprocess.Popen([sys.executable, "-c", loop, str(core)])
                 for core in (sorted(os.sched_getaffinity(0)) if wanted else [])]
    try:
        time.sleep(0.3 if wanted else 0)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextlib.contextmanager
def control_group(quota):
    """The file that takes a process into a control group of `quota` processors."""
    version_2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
    folder = ("/sys/fs/cgroup" if version_2 else "/sys/fs/cgroup/cpu") + "/steelyard-benchmark"
    os.makedirs(folder, exist_ok=True)
    try:
        with open(os.path.join(folder, "cpu.max" if version_2 else "cpu.cfs_quota_us"), "w") as file:
            file.write(f"{int(quota * 100000)}" + (" 100000" if version_2 else ""))
        yield os.path.join(folder, "cgroup.procs")
    finally:
        os.rmdir(folder)


def seconds_of_training(program, recipe, folder, settings, group=None):
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    command = [program, "train", recipe, "--run-dir", tempfile.mkdtemp(dir=folder)]
    if group:
        command = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', group, *command]
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**environment, **settings})
    return time.monotonic() - start


@contextlib.contextmanager
def conditions(kind, quota):
    """Yields the control group of a run, None for that of this process."""
    if kind == "contended" and quota:
        with control_group(quota) as group:
            yield group
    else:
        with busy_neighbours(kind == "contended"):
            yield None


def measure(programs, recipe, folder, rounds, quota):
    """{name: {"alone": [seconds], "contended": [seconds]}}"""
    times = {name: {"alone": [], "contended": []} for name in programs}
    for number in range(rounds):
        for kind in ("alone", "contended"):
            with conditions(kind, quota) as group:
                order = list(programs.items())
                for name, (program, settings) in order[::-1] if number % 2 else order:
                    seconds = seconds_of_training(program, recipe, folder, settings, group)
                    times[name][kind].append(seconds)
                    print(f"{kind}, {name}: {seconds:.2f} s", file=sys.stderr)
    return times


def summarise(times, base, share):
    medians = {name: {kind: statistics.median(values) for kind, values in kinds.items()} for name, kinds in times.items()}
    fastest = medians[base]["alone"]
    return [{"name": name, "alone_s": round(median["alone"], 3), "contended_s": round(median["contended"], 3),
             "alone_ratio": round(median["alone"] / fastest, 3),
             "fair_share": round(fastest / share / median["contended"], 3), "seconds": times[name]}
            for name, median in medians.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--other", metavar="STEELYARD")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=["spin 300000", "program"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=6400)
    parser.add_argument("--quota", type=float)
    parser.add_argument("--out")
    args = parser.parse_args()
    programs = {"before": (args.other, {})} if args.other else {}
    programs.update({name: (args.program, SETTINGS[name]) for name in args.settings})
    with tempfile.TemporaryDirectory(prefix="steelyard-contended-") as folder:
        recipe = os.path.join(folder, "recipe.yaml")
        with open(recipe, "w") as file:
            file.write(RECIPE.format(folder=folder, epochs=args.epochs))
        write_images(folder, "train", args.images)
        write_images(folder, "test", 64)
        results = summarise(measure(programs, recipe, folder, args.rounds, args.quota), next(iter(programs)),
                            args.quota / len(os.sched_getaffinity(0)) if args.quota else 0.5)
    print(f"{'':12} {'alone s':>9} {'contended s':>12} {'alone ratio':>12} {'fair share':>11}")
    for row in results:
        print(f"{row['name']:12} {row['alone_s']:9.2f} {row['contended_s']:12.2f} {row['alone_ratio']:12.3f} "
              f"{row['fair_share']:11.2f}")
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"machine": cpu_name(), "cores": len(os.sched_getaffinity(0)), "rounds": args.rounds,
                       "epochs": args.epochs, "images": args.images, "quota": args.quota,
                       "date": datetime.date.today().isoformat(), "results": results},
                      file, indent=1)
            file.write("\n")


main()
