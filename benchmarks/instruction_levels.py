#!/usr/bin/python3
"""Training steps with kernels chosen at run time compared with those compiled for this machine, in turn, in one run.

usage: benchmarks/instruction_levels.py PROGRAM NATIVE [--models cnn,resnet20,mlp] [--rounds 12] [--threads 2] [--out FILE]
PROGRAM is training_step_benchmark of a usual build, NATIVE the one of a build with -DSTEELYARD_NATIVE=ON. PROGRAM also
runs held to every lower level that STEELYARD_INSTRUCTIONS names. Every figure is a median over all rounds.
"""
import argparse
import datetime
import json
import os

from machine import cpu_name
from steppers import Stepper

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def measured(model, mode, options):
    """The median milliseconds of a step of each program, or level that this processor has."""
    command = [model, mode, "--threads", str(options.threads), "--steps", "5"]
    steppers = {"chosen": Stepper([options.program, *command]), "native": Stepper([options.native, *command])}
    for level in LEVELS:
        steppers[level] = Stepper([options.program, *command], STEELYARD_INSTRUCTIONS=level)
    running = {name: stepper for name, stepper in steppers.items() if stepper.wait_until_ready()}
    for _ in range(options.rounds):
        for stepper in running.values():
            stepper.round()
    for stepper in running.values():
        stepper.close()
    return {name: round(stepper.median, 3) for name, stepper in running.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("native")
    parser.add_argument("--models", default="cnn,resnet20,mlp")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out")
    options = parser.parse_args()
    results = []
    for model in options.models.split(","):
        for mode in ("float", "qat"):
            times = measured(model, mode, options)
            ratios = {name: round(time / times["native"], 3) for name, time in times.items() if name != "native"}
            results.append({"model": model, "mode": mode, "median_ms": times, "over_native": ratios})
            print(f"{model:10} {mode:6}", *(f"{name} {ratio:.3f}" for name, ratio in ratios.items()), flush=True)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump({"machine": cpu_name(), "threads": options.threads, "date": str(datetime.date.today()),
                       "rounds": options.rounds, "results": results}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
