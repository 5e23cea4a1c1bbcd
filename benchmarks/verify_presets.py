#!/usr/bin/env python3
"""Does every preset deploy what it trained? Over all test images, on every CPU backend.

usage: verify_presets.py STEELYARD FOLDER RESULTS.json [EPOCHS]

Fine-tunes each model in each variant for EPOCHS (default 1) from FOLDER/<model>-float, which is
trained by its preset where it is missing, then exports it and runs `steelyard verify` with oneDNN,
on the Eigen kernels and with kernels held to AVX2, and in ONNX Runtime where scripts/python_env made
one. Finished runs are kept: a second call goes on.
"""
import datetime
import json
import os
import re
import subprocess
import sys

from machine import cpu_name

MODELS = ("mlp", "cnn", "resnet")
VARIANTS = {
    "w8a8-ort": [],
    "w8a8-tensorrt": ["export.profile=tensorrt", "quantize.groups.0.activations.symmetric=true"],
    "w4a8-ort": ["quantize.groups.0.weights.num_bits=4"],
}
BACKENDS = {
    "oneDNN": {},
    "Eigen": {"STEELYARD_CPU_BACKEND": "eigen"},
    "AVX2": {"STEELYARD_INSTRUCTIONS": "x86-64-v3"},
}


def run(command, accept=(0,), cwd=None, **environment):
    done = subprocess.run(command, env={**os.environ, **environment}, cwd=cwd, capture_output=True, text=True)
    if done.returncode not in accept:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def train(steelyard, preset, folder, overrides, threads=None):
    if os.path.isfile(os.path.join(folder, "summary.json")):
        return
    print(f"training {folder}", flush=True)
    options = [word for override in overrides for word in ("--set", override)]
    if threads:
        options += ["--threads", str(threads)]
    run([steelyard, "train", preset, "--run-dir", folder, "--resume", *options])


def verify(steelyard, folder, environment):
    report = run([steelyard, "verify", folder], (0, 3), **environment)
    differing = re.search(r"^0 of (\d+) codes differ, in (\d+) quantized tensors over (\d+) samples", report, re.M)
    onnx = re.search(r"ONNX Runtime ([\d.]+): top-1 ([\d.]+) %, the same class for ([\d.]+) %; "
                     r"(\d+) of (\d+) outputs differ, by at most (\S+)", report)
    top1 = re.search(r"trained ([\d.]+) %, integer ([\d.]+) %", report)
    return {
        "differing_codes": 0 if differing else report.strip().splitlines(),
        "codes": int(differing[1]) if differing else None,
        "tensors": int(differing[2]) if differing else None,
        "samples": int(differing[3]) if differing else None,
        "trained_top1": float(top1[1]),
        "integer_top1": float(top1[2]),
        "onnx": onnx and {"onnxruntime": onnx[1], "top1": float(onnx[2]), "same_class": float(onnx[3]),
                          "differing_outputs": int(onnx[4]), "outputs": int(onnx[5]),
                          "largest_difference": float(onnx[6])},
    }


def main():
    steelyard, folder, results = sys.argv[1:4]
    epochs = sys.argv[4] if len(sys.argv) > 4 else "1"
    rows = []
    for model in MODELS:
        base = os.path.join(folder, f"{model}-float")
        train(steelyard, f"fashion-mnist-{model}-float", base, [])
        for variant, overrides in VARIANTS.items():
            tuned = os.path.join(folder, f"{model}-{variant}")
            train(steelyard, f"fashion-mnist-{model}-w8a8", tuned,
                  [f"init.checkpoint={base}/last.safetensors", f"train.epochs={epochs}",
                   "schedule.freeze_observers=null", *overrides])
            run([steelyard, "export", tuned])
            for backend, environment in BACKENDS.items():
                rows.append({"model": model, "variant": variant, "backend": backend,
                             **verify(steelyard, tuned, environment)})
                print(rows[-1], flush=True)
    with open(results, "w") as file:
        json.dump({"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "epochs": int(epochs), "rows": rows},
                  file, indent=1)
        file.write("\n")
    return 0 if all(row["differing_codes"] == 0 for row in rows) else 3


if __name__ == "__main__":
    sys.exit(main())
