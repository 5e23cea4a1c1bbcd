#!/usr/bin/env python3
"""Registers and machine instructions of our CUDA kernels; needs the compiler, no GPU.

usage: benchmarks/sass_slots.py [--nvcc NVCC] [--nvdisasm NVDISASM] [--architecture 90] [--out FILE]
Prints one line for each kernel: its registers, its spilled bytes, all of its SASS instructions, and these over the
eight elements of a thread. The last is an upper bound of what an element costs: it counts every branch, the narrow
path of the last thread and the division's rare slow path too.
"""
import argparse
import json
import os
import re
import subprocess
import tempfile
import time

SOURCES = ("quant_forward", "quant_backward", "quant_parameter_gradients", "quant_statistics")
TYPES = {"f": "f32", "d": "f64", "NS0_4HalfE": "f16", "NS0_8BFloat16E": "bf16"}


def readable(symbol):
    """forward_kernel<f32> for a mangled name of ours."""
    match = re.search(r"\d+([a-z_]+_kernel)I(NS0_4HalfE|NS0_8BFloat16E|[fd])E", symbol)
    return f"{match[1]}<{TYPES[match[2]]}>" if match else symbol


def compile_source(nvcc, root, source, architecture, cubin):
    """The resources of each kernel, as ptxas tells them."""
    include = os.path.dirname(cubin)
    path = f"{root}/kernels/quant_plan/{source.replace('quant_', 'cuda_')}.cu"
    done = subprocess.run([nvcc, "-ccbin", "g++", "-std=c++20", "--fmad=false", "-O3", f"-arch=sm_{architecture}",
                           f"-I{include}", "-Xptxas", "-v", "-cubin", path, "-o", cubin],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    log = done.stderr
    kernels = {}
    for block in log.split("Compiling entry function '")[1:]:
        kernels[block[:block.index("'")]] = {
            "registers": int(re.search(r"Used (\d+) registers", block)[1]),
            "spill_bytes": int(re.search(r"(\d+) bytes spill stores", block)[1])}
    return kernels


def count_instructions(nvdisasm, cubin):
    counts = {}
    symbol = None
    for line in subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout.splitlines():
        section = re.match(r"\.text\.(\S+):", line)
        if section:
            symbol = section[1]
        elif symbol and re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+", line) and " NOP" not in line:
            counts[symbol] = counts.get(symbol, 0) + 1
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--architecture", default="90")
    parser.add_argument("--out")
    options = parser.parse_args()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(root, os.path.join(folder, "steelyard"))  # headers are included as steelyard/kernels/...
        for source in SOURCES:
            cubin = os.path.join(folder, source + ".cubin")
            kernels = compile_source(options.nvcc, root, source, options.architecture, cubin)
            instructions = count_instructions(options.nvdisasm, cubin)
            for symbol, row in kernels.items():
                row = {"source": source, "kernel": readable(symbol), **row, "instructions": instructions[symbol]}
                rows.append(row)
    rows.sort(key=lambda row: (row["source"], row["kernel"]))
    for row in rows:
        print(f"| {row['source']} | `{row['kernel']}` | {row['registers']} | {row['spill_bytes']} "
              f"| {row['instructions']} | {row['instructions'] / 8:.0f} |")
    if options.out:
        version = subprocess.run([options.nvcc, "--version"], capture_output=True, text=True).stdout
        with open(options.out, "w") as file:
            json.dump({"benchmark": "sass_slots", "architecture": f"sm_{options.architecture}",
                       "nvcc": re.search(r"release ([\d.]+)", version)[1], "unix_time": int(time.time()),
                       "rows": rows}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
