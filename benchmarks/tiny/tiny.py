#!/usr/bin/env python3
"""Trains the presets of MLPerf Tiny's four networks, in float and fine-tuned for TFLite Micro, and compares.

usage: tiny.py STEELYARD WRITE_CASES FOLDER RESULTS.json [NETWORK...] [--seeds SEED...]

FOLDER/data/tiny has what data.py made; FOLDER/runs gets the runs, of which finished ones are kept. WRITE_CASES is the program
tests/export/write_tflite_cases. Of each network and variant, for every seed: accuracy, and 0 codes that differ between
training and its integer model (`steelyard verify`). The variant `float-further` is the float network with the same
further training that the quantized ones have: what these are compared with. Of the first seed: 0 codes that differ
between the integer model and TFLite Micro (every tensor) and the C program compiled
here (outputs; the only judge of tflm_single_rounding), the bytes that a Cortex-M4 needs where its compiler is installed,
and the processor time of an inference on this machine: the C program with -O3 and TFLite Micro's interpreter in turn. Needs numpy,
safetensors and tflite-micro.
"""
import argparse
import datetime
import gzip
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tflite_micro import runtime

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from machine import cpu_name  # noqa: E402

NETWORKS = ("keyword", "wake", "image", "anomaly")
NO_QUANTIZATION = ["quantize=null", "schedule=null", "export=null"]
VARIANTS = {  # the preset, and what is changed in it
    "float": ("float", []),
    "float-further": ("w8a8", NO_QUANTIZATION),
    "w8a8": ("w8a8", []),
    "w4a8": ("w4a8", []),
    "w8a8-once": ("w8a8", ["export.profile=tflm_single_rounding"]),
}
SAMPLES = 200  # compared tensor by tensor
TIMES = r"""
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "model.h"
static int8_t arena[STEELYARD_ARENA_BYTES], input[STEELYARD_INPUT_SIZE];
int main(void) {
  struct timespec a, b;
  int count;
  while (scanf("%d", &count) == 1) {
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (int i = 0; i < count; ++i) {
      memcpy(arena + STEELYARD_INPUT_OFFSET, input, STEELYARD_INPUT_SIZE);
      steelyard_run(arena);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    printf("%.9f\n", ((double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec)) / count);
    fflush(stdout);
  }
  return 0;
}
"""


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def train(steelyard, folder, network, variant, seed):
    """The run's folder, relative to FOLDER."""
    run_name = f"runs/tiny-{network}-{variant}-seed{seed}"
    if os.path.isfile(os.path.join(folder, run_name, "summary.json")):
        return run_name
    print(f"training {run_name}", flush=True)
    preset, changed = VARIANTS[variant]
    overrides = [f"seed={seed}", f"name={os.path.basename(run_name)}"] + changed
    if preset != "float":
        overrides.append(f"init.checkpoint=runs/tiny-{network}-float-seed{seed}/last.safetensors")
    options = [word for override in overrides for word in ("--set", override)]
    run([steelyard, "train", f"tiny-{network}-{preset}", "--run-dir", run_name, "--resume", "--threads", "1", *options], cwd=folder)
    return run_name


def area(normal, strange):
    """Under the ROC curve."""
    return float((np.searchsorted(np.sort(normal), strange) / len(normal)).mean())


def accuracy(steelyard, folder, network, run_name):
    if network != "anomaly":
        with open(os.path.join(folder, run_name, "summary.json")) as file:
            return round(json.load(file)["final"]["top1"], 2)
    errors = []
    for name in ("test", "test_anomalies"):
        inputs = np.load(os.path.join(folder, f"data/tiny/anomaly/{name}.npz"))["inputs"]
        np.save(os.path.join(folder, f"{name}.npy"), inputs)
        lines = run([steelyard, "predict", run_name, f"{name}.npy", "--format", "json"], cwd=folder)
        outputs = np.array([row["outputs"] for row in json.loads(lines)])
        errors.append(((outputs - inputs) ** 2).mean(axis=1))
    return round(100 * area(*errors), 2)


def least_arena(model):
    """The smallest arena that TFLite Micro takes on this machine, to 64 bytes."""
    low, high = 0, 1 << 20
    while high - low > 64:
        middle = (low + high) // 2
        probe = "import sys; from tflite_micro import runtime; runtime.Interpreter.from_file(sys.argv[1], arena_size=int(sys.argv[2]))"
        done = subprocess.run([sys.executable, "-c", probe, model, str(middle)], capture_output=True, check=False)
        low, high = (middle, high) if done.returncode else (low, middle)
    return high


def compare(write_cases, folder, run_name, inputs, in_tflm):
    cases = os.path.join(folder, run_name, "cases")
    shutil.rmtree(cases, ignore_errors=True)
    save_file({"inputs": inputs}, os.path.join(folder, "inputs.safetensors"))
    run([write_cases, cases, os.path.join(folder, run_name, "export/model.safetensors"), os.path.join(folder, "inputs.safetensors")])
    found = {}
    if in_tflm:
        done = subprocess.run([sys.executable, os.path.join(HERE, "../../tests/export/check_tflite.py"), cases],
                              capture_output=True, text=True, check=False)
        off, of = re.search(r"TFLite Micro: \d+ files, (\d+) of (\d+)", done.stdout).groups()
        found = {"tflite_micro_differing": int(off), "tflite_micro_codes": int(of)}
    with safe_open(os.path.join(cases, "model.safetensors"), "numpy") as file:
        codes, want = file.get_tensor("input"), file.get_tensor("output")
    program = os.path.join(cases, "run")
    exported = os.path.join(folder, run_name, "export")
    run(["cc", "-std=c99", "-O3", "-I", exported, os.path.join(HERE, "../../tests/export/run_c_program.c"),
         os.path.join(exported, "model.c"), "-o", program])
    outputs = subprocess.run([program], input=codes.tobytes(), capture_output=True, check=True).stdout
    found.update(c_differing=int(np.count_nonzero(np.frombuffer(outputs, np.int8) != want.reshape(-1))), c_codes=int(want.size))
    return found


def sizes(folder, run_name):
    exported = os.path.join(folder, run_name, "export")
    with open(os.path.join(exported, "model.h")) as file:
        found = {"c_arena": int(re.search(r"ARENA_BYTES (\d+)", file.read())[1])}
    with open(os.path.join(folder, run_name, "plan.txt")) as file:
        found["multiplications"] = int(re.search(r"(\d+) multiplications a sample", file.read())[1])
    if shutil.which("arm-none-eabi-gcc"):
        target = os.path.join(folder, "model.o")
        run(["arm-none-eabi-gcc", "-mthumb", "-mcpu=cortex-m4", "-std=c99", "-Os", "-ffunction-sections", "-fdata-sections",
             "-c", os.path.join(exported, "model.c"), "-o", target])
        text, data = run(["arm-none-eabi-size", target]).splitlines()[-1].split()[:2]
        found["c_flash_cortex_m4"] = int(text) + int(data)
    model = os.path.join(exported, "model.tflite")
    return {**found, "tflite_bytes": os.path.getsize(model), "tflite_micro_arena": least_arena(model)}


def times(folder, run_name, rounds=15):
    exported = os.path.join(folder, run_name, "export")
    source, program = os.path.join(folder, "times.c"), os.path.join(folder, "times")
    with open(source, "w") as file:
        file.write(TIMES)
    run(["cc", "-std=gnu99", "-O3", "-I", exported, source, os.path.join(exported, "model.c"), "-o", program])
    micro = runtime.Interpreter.from_file(os.path.join(exported, "model.tflite"), arena_size=4 << 20)
    micro.set_input(np.zeros(micro.get_input_details(0)["shape"], np.int8), 0)
    seconds = {"c": [], "tflite_micro": []}
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as own:
        count = 1
        for i in range(rounds + 2):
            own.stdin.write(f"{count}\n")
            own.stdin.flush()
            of_c = float(own.stdout.readline())
            start = time.process_time()
            for _ in range(count):
                micro.invoke()
            of_micro = (time.process_time() - start) / count
            if i < 2:
                count = max(1, int(0.05 / of_c))
                continue
            seconds["c"].append(of_c)
            seconds["tflite_micro"].append(of_micro)
        own.stdin.close()
    return {f"{name}_milliseconds": round(1e3 * statistics.median(all), 4) for name, all in seconds.items()}


def test_inputs(folder, network):
    if network != "image":
        return np.load(os.path.join(folder, "data/tiny", network, "test.npz"))["inputs"][:SAMPLES]
    with gzip.open("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + SAMPLES * 784), np.uint8)[16:].reshape(-1, 28, 28, 1)
    rows = np.arange(32) * 28 // 32  # any images of this size do
    return np.ascontiguousarray(images[:, rows][:, :, rows])


def measured(steelyard, write_cases, folder, network, variant, seeds):
    """A network's row: accuracies by seed, their mean and worst, and what is compared."""
    row = {"accuracy": {}, "differing": 0, "codes": 0}
    for seed in seeds:
        run_name = train(steelyard, folder, network, variant, seed)
        row["accuracy"][str(seed)] = accuracy(steelyard, folder, network, run_name)
        if not variant.startswith("float"):
            verified = run([steelyard, "verify", run_name, "--samples", "500"], cwd=folder)
            off, of = (int(n.replace(",", "")) for n in re.search(r"([\d,]+) of ([\d,]+) codes differ", verified).groups())
            row["differing"] += off
            row["codes"] += of
    found = list(row["accuracy"].values())
    row.update(mean=round(statistics.mean(found), 2), worst=min(found))
    if variant.startswith("float"):
        return {key: row[key] for key in ("accuracy", "mean", "worst")}
    run_name = train(steelyard, folder, network, variant, seeds[0])
    in_tflm = variant != "w8a8-once"
    row.update(compare(write_cases, folder, run_name, test_inputs(folder, network), in_tflm))
    if in_tflm:
        row.update(sizes(folder, run_name))
        row.update(times(folder, run_name))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("steelyard", "write_cases", "folder", "results"):
        parser.add_argument(name, type=os.path.abspath)
    parser.add_argument("networks", nargs="*", default=NETWORKS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    found = {"networks": {}}
    if os.path.isfile(options.results):
        with open(options.results) as file:
            found = json.load(file)
    found.update(machine=cpu_name(), date=datetime.date.today().isoformat())
    for network in options.networks:
        rows = found["networks"].setdefault(network, {})
        for variant in VARIANTS:
            seeds = options.seeds[:1] if variant == "w8a8-once" else options.seeds
            rows[variant] = measured(options.steelyard, options.write_cases, options.folder, network, variant, seeds)
            print(network, variant, rows[variant], flush=True)
            with open(options.results, "w") as file:
                json.dump(found, file, indent=2)
                file.write("\n")


main()
