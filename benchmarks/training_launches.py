#!/usr/bin/python3
"""Counts what one training step queues on a GPU, for float and quantized models. Needs no GPU.

usage: benchmarks/training_launches.py PROGRAM [--kernels MODEL] [--out FILE]
PROGRAM is the built training_launches. A step is one CUDA graph; its nodes are kernels of ours, products (a call of
cuBLAS, which may launch more than one kernel) and copies. --kernels names every kernel of one model's steps.
"""
import argparse
import collections
import datetime
import json
import re
import subprocess

from machine import cpu_name


def function_names(program, anchor):
    """The symbol at each address of the running program whose main() is at `anchor`."""
    at = {}
    for line in subprocess.run(["nm", "-C", program], check=True, text=True, capture_output=True).stdout.splitlines():
        found = re.match(r"([0-9a-f]+) [tTwW] (.*)", line)
        if found:
            at.setdefault(int(found[1], 16), found[2])
    shift = anchor - next(address for address, name in at.items() if name == "main")
    return {address + shift: name for address, name in at.items()}


def kernel_name(symbol):
    return re.search(r"(\w+_kernel)\b", symbol)[1]


def count(program):
    raw = json.loads(subprocess.run([program], check=True, text=True, capture_output=True).stdout)
    names = function_names(program, raw["anchor"])
    for case in raw["cases"]:
        kernels = collections.Counter()
        for address, number in case["kernels"].items():
            kernels[kernel_name(names[int(address)])] += number
        case["kernels"] = dict(sorted(kernels.items(), key=lambda item: (-item[1], item[0])))
        case["nodes"] = sum(kernels.values()) + case["products"] + case["copies"]
    return raw["cases"]


def print_table(cases):
    print(f"{'model':10} {'mode':26} {'nodes':>6} {'kernels':>8} {'products':>9} {'copies':>7} {'/ float':>8}")
    for case in cases:
        base = next(c["nodes"] for c in cases if c["model"] == case["model"] and c["mode"] == "float")
        kernels = sum(case["kernels"].values())
        print(f"{case['model']:10} {case['mode']:26} {case['nodes']:6} {kernels:8} {case['products']:9} "
              f"{case['copies']:7} {case['nodes'] / base:8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kernels", metavar="MODEL")
    parser.add_argument("--out")
    args = parser.parse_args()
    cases = count(args.program)
    print_table(cases)
    for case in cases:
        if case["model"] != args.kernels:
            continue
        print(f"\n{case['model']}, {case['mode']}")
        for name, number in case["kernels"].items():
            print(f"{number:6} {name}")
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"machine": cpu_name(), "date": datetime.date.today().isoformat(), "device": "emulated GPU",
                       "results": cases}, file, indent=1)
            file.write("\n")


main()
