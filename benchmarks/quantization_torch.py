#!/usr/bin/python3
"""Compares fake-quantization and histograms with PyTorch's, in turn, in one run.

usage: benchmarks/quantization_torch.py PROGRAM [--mib 64] [--rounds 9] [--threads 2] [--out FILE]
PROGRAM is the built quantization_benchmark. Each round runs ours, then torch's; every figure is a median over the
rounds, and only the ratios mean something on another day.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import torch

from machine import blas_in_use, cpu_name

OURS = {
    "forward": ["fake_quantize forward, tensor"],
    "forward + backward": ["fake_quantize forward, tensor", "fake_quantize backward, tensor"],
    # torch quantizes with the range that has the batch in it; ours delays it, or reads the batch twice.
    "observe + forward, delayed": ["observe + fake_quantize, delayed, tensor"],
    "observe + forward, current": ["observe + fake_quantize, current, tensor"],
    "histogram, 2048 bins": ["histogram, 2048 bins"],
}


def our_milliseconds(program, mib, threads):
    """One round of ours: name -> milliseconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        pattern = "^(fake_quantize (forward|backward), tensor|observe . fake_quantize, (delayed|current), tensor|histogram)"
        subprocess.run([program, "--mib", str(mib), "--rounds", "3", "--threads", str(threads), "--types", "f32",
                        "--filter", pattern, "--out", file.name], check=True, stdout=subprocess.DEVNULL)
        rows = {row["name"]: row["milliseconds"] for row in json.load(file)["rows"]}
    return {name: sum(rows[part] for part in parts) for name, parts in OURS.items()}


class Torch:
    """The same work in torch, on values like ours."""

    def __init__(self, mib):
        n = mib * 2**20 // 4
        self.x = (torch.rand(n) * 16 - 8).requires_grad_()
        self.grad = torch.rand(n)
        self.observer = torch.quantization.FusedMovingAvgObsFakeQuantize(
            observer=torch.quantization.MovingAverageMinMaxObserver, quant_min=0, quant_max=255)

    def forward(self):
        with torch.no_grad():
            torch.fake_quantize_per_tensor_affine(self.x, 0.05, 117, 0, 255)

    def forward_and_backward(self):
        self.x.grad = None
        torch.fake_quantize_per_tensor_affine(self.x, 0.05, 117, 0, 255).backward(self.grad)

    def observe_and_forward(self):
        with torch.no_grad():
            self.observer(self.x)

    def histogram(self):
        with torch.no_grad():
            torch.histc(self.x, 2048, -8, 8)

    def milliseconds(self):
        result = {}
        for name, work in zip(OURS, (self.forward, self.forward_and_backward, self.observe_and_forward,
                                     self.observe_and_forward, self.histogram)):
            times = []
            for _ in range(3):
                start = time.perf_counter()
                work()
                times.append((time.perf_counter() - start) * 1e3)
            result[name] = statistics.median(times)
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    theirs = Torch(options.mib)
    rounds = []
    theirs.milliseconds()
    for _ in range(options.rounds):
        rounds.append((our_milliseconds(options.program, options.mib, options.threads), theirs.milliseconds()))
    rows = []
    for name in OURS:
        ours = statistics.median(mine[name] for mine, _ in rounds)
        other = statistics.median(torchs[name] for _, torchs in rounds)
        rows.append({"name": name, "milliseconds": ours, "torch_milliseconds": other, "times_faster": other / ours})
        print(f"{name:26} ours {ours:8.2f} ms   torch {other:8.2f} ms   {other / ours:6.1f} times faster")
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"benchmark": "quantization_torch", "cpu": cpu_name(), "threads": options.threads,
                       "torch": torch.__version__, "blas": blas_in_use(), "unix_time": int(time.time()),
                       "mib": options.mib, "rounds": options.rounds, "rows": rows}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
