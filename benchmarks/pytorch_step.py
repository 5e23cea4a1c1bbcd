#!/usr/bin/env python3
"""A training step in a PyTorch loop: torch's float model, torch.ao's QAT of it, and both through the Python package.

usage: benchmarks/pytorch_step.py PROGRAM [--models cnn resnet18] [--starts 3] [--rounds 5] [--steps 5]
       [--threads 2] [--json FILE]

PROGRAM is the built training_step_benchmark, which takes the same step of the same network, as torch exports it, in
Steelyard's own loop. Every row is a process of its own; they take their steps in turn, a few each, so that a busy machine
slows all. Processes of one program differ by a tenth, so all are started several times, and medians over the starts are
compared. A step is forward, cross-entropy, backward and SGD with momentum, in training, ranges
observed, on images that stay the same. Torch's float is the faster of its two layouts and its compiled step. Set PYTHONPATH
to the folder of the package, unless it is installed, and STEELYARD_INSTRUCTIONS=x86-64-v3 with ONEDNN_MAX_CPU_ISA=AVX2 to
hold all of them to AVX2.
"""
import argparse
import datetime
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from machine import cpu_name
from steppers import run_rounds, start

TORCH = pathlib.Path(__file__).resolve().parent / "torch_step.py"


def commands(program, model, onnx, common):
    torch = [sys.executable, str(TORCH), model]
    subprocess.run([*torch, "contiguous", "--onnx", onnx], check=True)
    rows = {f"torch {layout}": [*torch, layout, *common] for layout in ("contiguous", "channels_last")}
    rows["torch compiled"] = [*torch, "channels_last", *common, "--compile", "default"]
    rows["torch.ao QAT"] = [*torch, "contiguous", *common, "--qat"]
    for kind, own in (("float", "float"), ("w8a8", "qat")):
        rows[f"package {kind}"] = [*torch, "contiguous", *common, "--steelyard", kind]
        rows[f"own loop {kind}"] = [program, model, own, "--onnx", onnx, *common]
    return rows


def measure(program, model, options):
    common = ["--threads", str(options.threads), "--steps", str(options.steps)]
    infos, medians, failed = {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        rows = commands(program, model, f"{folder}/{model}.onnx", common)
        for _ in range(options.starts):
            rows = {name: row for name, row in rows.items() if name not in failed}
            steppers, not_ready = start(rows)
            infos |= {name: s.info for name, s in steppers.items()}
            timed = dict(steppers)
            failed += not_ready + run_rounds(steppers, options.rounds)
            for name in timed.keys() - set(failed):
                medians.setdefault(name, []).append(timed[name].median)
    ms = {name: statistics.median(medians[name]) for name in rows if name not in failed}
    fastest = min(t for n, t in ms.items() if n.startswith("torch "))
    w8a8 = ms["package w8a8"]
    kept = {n: i["saved_activation_bytes"] for n, i in infos.items() if i.get("saved_activation_bytes")}
    ratios = {"w8a8 / torch float": w8a8 / fastest, "float / torch float": ms["package float"] / fastest,
              "w8a8 / own loop": w8a8 / ms["own loop w8a8"],
              "kept w8a8 / torch float": kept["own loop w8a8"] / kept["torch contiguous"]}
    if "torch.ao QAT" in ms:
        ratios["w8a8 / torch.ao QAT"] = w8a8 / ms["torch.ao QAT"]
    return {"model": model, "median_ms": ms, "failed": failed, "kept_bytes": kept, "ratios": ratios,
            "torch": infos["torch contiguous"]["torch"],
            "peak_bytes": {n: i["peak_bytes"] for n, i in infos.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--models", nargs="*", default=["cnn", "resnet18"])
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    rows = [measure(options.program, model, options) for model in options.models]
    result = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": options.threads, "rows": rows}
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
