#!/usr/bin/env python3
"""Trains MLPerf Tiny's four networks on the data of data.py, in float and fine-tuned for TFLite Micro, and compares.

usage: tiny.py STEELYARD WRITE_CASES FOLDER RESULTS.json [NETWORK...]

FOLDER has what data.py made and gets the runs; finished ones are kept. WRITE_CASES is the program
tests/export/write_tflite_cases. Of each network and width: accuracy, 0 codes that differ between training and its
integer model (`steelyard verify`), between the integer model and TFLite Micro (every tensor) and the C program compiled
here (outputs; the only judge of tflm_single_rounding), the bytes that a Cortex-M4 needs where its compiler is installed,
and the processor time of an inference on this machine: the C program with -O3 and TFLite Micro's interpreter in turn. Needs numpy,
safetensors and tflite-micro.
"""
import datetime
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

FLOAT = {"keyword": (8, 1e-3), "wake": (5, 2e-3), "image": (4, 2e-3), "anomaly": (15, 1e-3)}  # epochs, learning rate
VARIANTS = {"w8a8": (8, "tflm"), "w4a8": (4, "tflm"), "w8a8-once": (8, "tflm_single_rounding")}
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


def train(steelyard, folder, network, run_name, overrides):
    if os.path.isfile(os.path.join(folder, run_name, "summary.json")):
        return
    print(f"training {run_name}", flush=True)
    options = [word for override in [f"name={run_name}"] + overrides for word in ("--set", override)]
    run([steelyard, "train", os.path.join(HERE, f"{network}.yaml"), "--run-dir", run_name, "--resume", *options], cwd=folder)


def area(normal, strange):
    """Under the ROC curve."""
    return float((np.searchsorted(np.sort(normal), strange) / len(normal)).mean())


def accuracy(steelyard, folder, network, run_name):
    if network != "anomaly":
        with open(os.path.join(folder, run_name, "summary.json")) as file:
            return round(json.load(file)["final"]["top1"], 2)
    errors = []
    for name in ("test", "test_anomalies"):
        inputs = np.load(os.path.join(folder, f"anomaly/{name}.npz"))["inputs"]
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


def main():
    steelyard, write_cases, folder, results = (os.path.abspath(path) for path in sys.argv[1:5])
    found = {"machine": cpu_name(), "date": datetime.date.today().isoformat(), "networks": {}}
    if os.path.isfile(results):
        with open(results) as file:
            found["networks"] = json.load(file)["networks"]
    for network in sys.argv[5:] or FLOAT:
        epochs, rate = FLOAT[network]
        train(steelyard, folder, network, f"{network}-float",
              ["init=null", "quantize=null", "schedule=null", "export=null", f"train.epochs={epochs}", f"train.optimizer.lr={rate}"])
        rows = found["networks"][network] = {"float": {"accuracy": accuracy(steelyard, folder, network, f"{network}-float")}}
        inputs = np.load(os.path.join(folder, network, "test.npz"))["inputs"][:SAMPLES]
        for variant, (bits, profile) in VARIANTS.items():
            name = f"{network}-{variant}"
            train(steelyard, folder, network, name, [f"quantize.groups.0.weights.num_bits={bits}", f"export.profile={profile}"])
            verified = run([steelyard, "verify", name, "--samples", "500"], cwd=folder)
            off, of = re.search(r"([\d,]+) of ([\d,]+) codes differ", verified).groups()
            row = {"accuracy": accuracy(steelyard, folder, network, name), "differing": int(off.replace(",", "")),
                   "codes": int(of.replace(",", ""))}
            row.update(compare(write_cases, folder, name, inputs, profile == "tflm"))
            if profile == "tflm":
                row.update(sizes(folder, name))
                row.update(times(folder, name))
            rows[variant] = row
            print(name, row, flush=True)
        with open(results, "w") as file:
            json.dump(found, file, indent=2)
            file.write("\n")


main()
