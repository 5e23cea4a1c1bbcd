#!/usr/bin/env python3
"""Which observer should activations have by default? Four small tasks, every candidate, three seeds.

usage: observer_defaults.py STEELYARD FOLDER RESULTS.json [PATTERN [BITS]]
       observer_defaults.py --table RESULTS.json...

Each task trains quantized from random weights ("scratch"), where ranges grow fast and steps are few,
and fine-tunes its own float run ("tuned"). Finished runs are kept: a second call goes on. PATTERN, a
regular expression, selects observers; BITS, 8 or 4, the width of activations (default: both).
--table prints Markdown tables of results.
"""
import datetime
import gzip
import json
import math
import os
import random
import re
import subprocess
import sys

from machine import cpu_name

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests"))
from support.data_files import f32, i64, write_split  # noqa: E402

FASHION = "/usr/share/datasets/fashion-mnist"
SEEDS = (1, 2, 3)
BITS = (8, 4)  # of activations; weights keep 8
OBSERVERS = {
    "min_max": "min_max",
    "moving_average .01": "moving_average, averaging_constant: 0.01",
    "moving_average .03": "moving_average, averaging_constant: 0.03",
    "moving_average .1": "moving_average, averaging_constant: 0.1",
    "moving_average .3": "moving_average, averaging_constant: 0.3",
    "histogram": "histogram",
    "percentile 99.99": "percentile",
    "mse .01": "mse, averaging_constant: 0.01",
    "mse .1": "mse, averaging_constant: 0.1",
}
SGD = "{type: sgd, lr: LR, momentum: 0.9}"
ADAM = "{type: adamw, lr: LR}"
# Data, model and training; what is better: a smaller test loss or a larger test accuracy.
TASKS = {
    "regression": {"model": "{type: mlp, hidden: [32, 32], classes: 1}", "loss": "mse", "epochs": 20, "batch": 32,
                   "optimizer": ADAM, "lr": 0.01, "tuned": (5, 0.002)},
    "table": {"model": "{type: mlp, hidden: [32, 16], classes: 4}", "loss": "cross_entropy", "epochs": 20, "batch": 32,
              "optimizer": SGD, "lr": 0.05, "tuned": (5, 0.005)},
    "cnn": {"model": "{type: cnn, channels: [8, 16], hidden: 32, classes: 10}", "loss": "cross_entropy", "epochs": 5,
            "batch": 64, "optimizer": SGD, "lr": 0.02, "tuned": (2, 0.005)},
    "resnet": {"model": "{type: resnet, depth: 8, width: 8, classes: 10}", "loss": "cross_entropy", "epochs": 5,
               "batch": 64, "optimizer": SGD, "lr": 0.05, "tuned": (2, 0.005)},
}


def regression_rows(draw, count):
    """Targets of about -7 to 7 from eight features, by the function that Friedman's benchmark uses, centred."""
    for _ in range(count):
        x = [draw.random() for _ in range(8)]
        y = 10 * math.sin(math.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4]
        yield x, (y - 14.4) / 2


def table_rows(draw, count):
    """Four classes of two clusters each; the features' scales differ a hundredfold, their tails are heavy."""
    place = random.Random(7)
    centers = [[place.gauss(0, 1.5) for _ in range(6)] for _ in range(8)]
    for _ in range(count):
        cluster = draw.randrange(8)
        yield [10 ** (i % 3 - 1) * (c + draw.gauss(0, 1) * (4 if draw.random() < 0.02 else 1))
               for i, c in enumerate(centers[cluster])], cluster % 4


def write_features(folder, rows, kind):
    draw = random.Random(11)
    for split, count in (("train", 600), ("test", 1000)):
        pairs = list(rows(draw, count))
        targets = [y for _, y in pairs]
        write_split(folder, split, f32([count, len(pairs[0][0])], [v for x, _ in pairs for v in x]),
                    i64([count], targets) if kind == "I64" else f32([count], targets))


def write_images(folder):
    for split, name, count in (("train", "train", 2000), ("test", "t10k", 1000)):
        with gzip.open(os.path.join(FASHION, name + "-images-idx3-ubyte.gz")) as file:
            pixels = file.read(16 + 784 * count)[16:]
        with gzip.open(os.path.join(FASHION, name + "-labels-idx1-ubyte.gz")) as file:
            labels = file.read(8 + count)[8:]
        write_split(folder, split, ("U8", [count, 28, 28, 1], pixels), i64([count], labels))


def data_of(folder, task):
    path = os.path.join(folder, "data", task if task in ("regression", "table") else "images")
    if not os.path.isdir(path):
        os.makedirs(path)
        if task == "regression":
            write_features(path, regression_rows, "F32")
        elif task == "table":
            write_features(path, table_rows, "I64")
        else:
            write_images(path)
    return path


def recipe(folder, name, task, seed, start, observer=None, bits=8):
    spec = TASKS[task]
    epochs, rate = spec["tuned"] if start == "tuned" else (spec["epochs"], spec["lr"])
    lines = ["version: 1", f"name: {name}", f"seed: {seed}",
             f"data: {{dataset: safetensors, path: {data_of(folder, task)}, batch_size: {spec['batch']}, validation: 0}}",
             f"model: {spec['model']}",
             f"train: {{epochs: {epochs}, loss: {spec['loss']}, optimizer: {spec['optimizer'].replace('LR', str(rate))}, "
             "lr_schedule: {type: cosine}}"]
    if start == "tuned":
        lines.append(f"init: {{checkpoint: {folder}/{task}-float-seed{seed}/last.safetensors}}")
    if observer:
        types = "Linear" if "mlp" in spec["model"] else "Linear, Conv2d"
        lines += ["quantize:", "  groups:", f"    - targets: [{types}]", "      weights: {num_bits: 8}",
                  f"      activations: {{num_bits: {bits}, observer: {observer}}}"]
        if start == "scratch" and types != "Linear":
            lines.append("  bn_fold: batch_corrected")
    return "\n".join(lines) + "\n"


def result_of(steelyard, folder, name, text):
    run = os.path.join(folder, name)
    if not os.path.isfile(os.path.join(run, "summary.json")):
        path = run + ".yaml"
        with open(path, "w") as file:
            file.write(text)
        done = subprocess.run([steelyard, "train", path, "--run-dir", run, "--resume", "--threads", "1"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    with open(os.path.join(run, "summary.json")) as file:
        return json.load(file)["final"]


def measure(steelyard, folder, pattern, widths):
    rows = []
    chosen = {name: text for name, text in OBSERVERS.items() if re.search(pattern, name)}
    for task in TASKS:
        for seed in SEEDS:
            def add(start, label, bits, name, *quantizer):
                name += f"-seed{seed}"
                rows.append({"task": task, "start": start, "observer": label, "bits": bits, "seed": seed,
                             **result_of(steelyard, folder, name, recipe(folder, name, task, seed, start, *quantizer))})

            add("scratch", "float", None, f"{task}-float")
            add("tuned", "float", None, f"{task}-float-tuned")
            for bits in widths:
                for label, observer in chosen.items():
                    for start in ("scratch", "tuned"):
                        name = f"{task}-{start}-{re.sub('[^a-z0-9]+', '-', label)}" + (f"-a{bits}" if bits != 8 else "")
                        add(start, label, bits, name, observer, bits)
        print(task, flush=True)
    return rows


def table(rows, bits):
    """Means over the seeds: the loss of the regression, top-1 of the others."""
    columns = [(task, start) for task in TASKS for start in ("scratch", "tuned")]
    lines = ["| observer | " + " | ".join(f"{task}, {start}" for task, start in columns) + " |",
             "|---|" + "---|" * len(columns)]
    rows = [row for row in rows if row["bits"] in (None, bits)]
    for label in dict.fromkeys(row["observer"] for row in rows):
        cells = []
        for task, start in columns:
            found = [row for row in rows if (row["task"], row["start"], row["observer"]) == (task, start, label)]
            values = [row["loss"] if row.get("top1") is None else row["top1"] for row in found]
            mean = sum(values) / len(values) if values else None
            cells.append("-" if mean is None else f"{mean:.4f}" if found[0].get("top1") is None else f"{mean:.2f}")
        lines.append(f"| `{label}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def print_tables(rows):
    for bits in BITS:
        if any(row["bits"] == bits for row in rows):
            print(f"Activations of {bits} bits:\n\n{table(rows, bits)}\n")


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "--table":
        rows = []
        for path in sys.argv[2:]:
            with open(path) as file:
                rows += json.load(file)["rows"]
        print_tables(rows)
        return
    if len(sys.argv) not in (4, 5, 6):
        sys.exit(__doc__)
    folder = os.path.abspath(sys.argv[2])
    rows = measure(sys.argv[1], folder, sys.argv[4] if len(sys.argv) > 4 else "",
                   (int(sys.argv[5]),) if len(sys.argv) > 5 else BITS)
    with open(sys.argv[3], "w") as file:
        json.dump({"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": 1, "rows": rows}, file, indent=1)
        file.write("\n")
    print_tables(rows)


if __name__ == "__main__":
    main()
