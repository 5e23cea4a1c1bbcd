#!/usr/bin/python3
"""Counts what one training step queues on a GPU, for float and quantized models. Needs no GPU.

usage: benchmarks/training_launches.py PROGRAM [--kernels MODEL] [--goals] [--out FILE]
PROGRAM is the built training_launches. A step is one CUDA graph; its nodes are kernels of ours, products (a call of
cuBLAS, which may launch more than one kernel) and copies. --kernels names every kernel of one model's steps. --goals
exits with 1 where a step of GOALS has more bytes or nodes than it may have.

Bytes are those of the arrays that nodes read or write, each array of a node once: what memory must move at least if
nothing stays in caches from one node to the next, and no more than that if a node reads from them what it needs again.
Of resnet18 there are two batches of 256 x 256 pixels, whose sizes the allocator does not round up. From them follow the
bytes of 64 images of 224 x 224 pixels: what does not depend on the batch, and 49 times what an image adds, since all
sides of its activations are 7/8 as long.
"""
import argparse
import collections
import datetime
import json
import re
import subprocess
import sys

from machine import cpu_name

# GB of a step of 64 images of 224 x 224 pixels, at most, and nodes of its graph.
GOALS = {("resnet18", "W8A8, frozen observers", "bf16"): (5.2, 200)}


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
    """Without its namespace, template arguments and parameters."""
    return re.split(r"[<(]", symbol.replace("(anonymous namespace)::", ""))[0].split("::")[-1]


def count(program):
    raw = json.loads(subprocess.run([program], check=True, text=True, capture_output=True).stdout)
    names = function_names(program, raw["anchor"])
    for case in raw["cases"]:
        kernels = collections.defaultdict(lambda: {"count": 0, "bytes": 0})
        for address, of_kernel in case["kernels"].items():
            total = kernels[kernel_name(names[int(address)])]
            for key, number in of_kernel.items():
                total[key] += number
        case["kernels"] = dict(sorted(kernels.items(), key=lambda item: (-item[1]["bytes"], -item[1]["count"], item[0])))
        parts = [case["products"], case["copies"], *kernels.values()]
        case["nodes"] = sum(part["count"] for part in parts)
        case["bytes"] = sum(part["bytes"] for part in parts)
    return raw["cases"]


def print_table(cases):
    print(f"{'model':24} {'mode':26} {'products in':11} {'nodes':>6} {'kernels':>8} {'products':>9} {'copies':>7} {'/ float':>8}")
    for case in cases:
        alike = [c for c in cases if c["model"] == case["model"] and c["precision"] == case["precision"]]
        base = next(c["nodes"] for c in alike if c["mode"] == "float")
        kernels = sum(kernel["count"] for kernel in case["kernels"].values())
        print(f"{case['model']:24} {case['mode']:26} {case['precision']:11} {case['nodes']:6} {kernels:8} "
              f"{case['products']['count']:9} {case['copies']['count']:7} {case['nodes'] / base:8.2f}")


def bytes_at_224(cases):
    """Bytes of a step of 64 images of 224 x 224 pixels, by network, mode and precision."""
    batches = collections.defaultdict(dict)
    for case in cases:
        if found := re.fullmatch(r"(\w+), 256 x 256, (\d+)", case["model"]):
            batches[found[1], case["mode"], case["precision"]][int(found[2])] = case["bytes"]
    result = {}
    for key, of_batch in batches.items():
        of_image = (of_batch[64] - of_batch[32]) / 32
        result[key] = of_batch[64] - 64 * of_image + 49 * of_image
    return result


def misses_goals(cases):
    """Prints what every step of GOALS has; whether one has too much."""
    missed = False
    for (network, mode, precision), (most_gb, most_nodes) in GOALS.items():
        gb = bytes_at_224(cases)[network, mode, precision] / 1e9
        nodes = next(case["nodes"] for case in cases
                     if (case["model"], case["mode"], case["precision"]) == (f"{network}, 256 x 256, 64", mode, precision))
        print(f"\n{network}, {mode}, {precision}: {gb:.2f} GB, at most {most_gb}; {nodes} nodes, at most {most_nodes}")
        missed |= gb > most_gb or nodes > most_nodes
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kernels", metavar="MODEL")
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("--out")
    args = parser.parse_args()
    cases = count(args.program)
    print_table(cases)
    print("\nGB of a step of 64 images of 224 x 224 pixels")
    for (network, mode, precision), size in bytes_at_224(cases).items():
        print(f"{network:24} {mode:26} {precision:11} {size / 1e9:6.2f}")
    for case in cases:
        if case["model"] != args.kernels:
            continue
        print(f"\n{case['model']}, {case['mode']}, {case['precision']}")
        for name, kernel in case["kernels"].items():
            print(f"{kernel['count']:6} {kernel['bytes'] / 1e6:10.1f} MB {name}")
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"machine": cpu_name(), "date": datetime.date.today().isoformat(), "device": "emulated GPU",
                       "results": cases}, file, indent=1)
            file.write("\n")
    if args.goals and misses_goals(cases):
        sys.exit(1)


main()
