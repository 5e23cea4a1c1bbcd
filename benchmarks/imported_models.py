#!/usr/bin/env python3
"""What do other people's models lose in 8 and 4 bits? Calibrates and fine-tunes imported ONNX models, and writes the page.

usage: imported_models.py prepare FOLDER [SHOW...] [--samples TRAIN,TEST] [--models FOLDER]
       imported_models.py run STEELYARD FOLDER RESULTS [PATTERN...] [--seeds 1,2] [--threads N] [--set KEY=VALUE]...
       imported_models.py page RESULTS PAGE.md

`prepare` fetches the models (tests/import/fetch_models.py) and makes the data of every show, or of those named, in FOLDER.
`run` measures the cells that RESULTS lacks, one JSON file each: import, calibration or training by the show's recipe
(imported/recipes/) with the cell's keys set, `steelyard verify`, and what ONNX Runtime and OpenVINO make of the exported
file. Interrupted trainings are resumed; a cell that fails is reported and the next one begins. PATTERN, a regular
expression on the names of cells (show-cell-seed1), runs a part of them; of several, those of the first pattern come first.

Needs Debian's packages fonts-dejavu-extra, fonts-liberation and fonts-freefont-ttf, and a Python with numpy and pillow, for
`run` also onnxruntime and openvino:
    python3 -m venv env && env/bin/pip install numpy pillow onnxruntime openvino
Without the latter two their part of the results is missing.
"""
import argparse
import datetime
import fcntl
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import numpy as np

from imported import data_sets, page, readers
from imported.shows import SHOWS
from machine import cpu_name
from verify_presets import run

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
RECIPES = os.path.join("benchmarks", "imported", "recipes")  # in the repository
DATA_SEED = 1
UNSEEDED = ("import", "calibrate")  # nothing in them is drawn


def prepare(folder, names, samples, models):
    if not models:
        models = os.path.join(folder, "models")
        print(run([sys.executable, os.path.join(ROOT, "tests", "import", "fetch_models.py"), models]), end="")
    for name in names or SHOWS:
        show = SHOWS[name]
        here = os.path.join(folder, name)
        os.makedirs(here, exist_ok=True)
        for file in (show.model, show.model.replace(".onnx", ".json")):
            if os.path.isfile(os.path.join(models, file)):
                shutil.copy(os.path.join(models, file), os.path.join(here, "model" + os.path.splitext(file)[1]))
        about = data_sets.prepare(show.maker, os.path.join(here, "data"), os.path.join(here, "model.onnx"), DATA_SEED,
                                  samples or show.samples)
        print(f"{name}: {about['samples']['train']} samples for training, {about['samples']['test']} for the test", flush=True)


def cells(seeds):
    """(name, show, cell, seed) of every cell."""
    for show in SHOWS.values():
        for cell in show.cells:
            for seed in seeds[:1] if cell.verb in UNSEEDED else seeds:
                yield f"{show.name}-{cell.name}-seed{seed}", show, cell, seed


def in_order(patterns, seeds):
    """The cells that match a pattern, those of the first one first."""
    every = list(cells(seeds))
    first = {entry[0]: next((i for i, p in enumerate(patterns) if re.search(p, entry[0])), None) for entry in every}
    return sorted((entry for entry in every if first[entry[0]] is not None), key=lambda entry: first[entry[0]])


class Program:
    """Runs steelyard's commands in a show's folder and keeps them as they can be typed there."""

    def __init__(self, path, folder, threads):
        self.path, self.folder, self.threads, self.typed = os.path.abspath(path), folder, threads, []

    def __call__(self, *words, accept=(0,)):
        if self.threads and words[0] != "export":
            words = (*words, "--threads", str(self.threads))
        self.typed.append(shlex.join(["steelyard", *words]))
        real = [os.path.join(ROOT, word) if word.startswith(RECIPES) else word for word in words]
        runtime = {"STEELYARD_PYTHON": sys.executable} if importlib.util.find_spec("onnxruntime") else {}
        return run([self.path, *real], accept, self.folder, **runtime)


def verified(program, folder, samples):
    """What `steelyard verify` says; with exit code 3 codes or classes differ."""
    report = program("verify", folder, "--samples", str(samples), accept=(0, 3))
    counted = re.search(r"^(\d+) of (\d+) codes differ, in (\d+) quantized tensors over (\d+) samples", report, re.M)
    onnx = re.search(r"^ONNX Runtime ([\d.]+): (.*(?:same|close)\D* ([\d.]+) %.*)$", report, re.M)
    return {"differing_codes": int(counted[1]), "codes": int(counted[2]), "tensors": int(counted[3]), "samples": int(counted[4]),
            "onnxruntime": onnx and {"version": onnx[1], "says": onnx[2], "agreement": float(onnx[3])}}


def measure(steelyard, folder, show, cell, seed, threads, overrides):
    """The result of a cell, whose run lies in FOLDER/show/runs."""
    program = Program(steelyard, folder, threads)
    recipe, run_folder = os.path.join(RECIPES, show.name + ".yaml"), os.path.join("runs", f"{cell.name}-seed{seed}")
    sets = [word for value in (*cell.sets, f"seed={seed}", *overrides) for word in ("--set", value)]
    here = os.path.join(folder, run_folder)
    if cell.verb == "train":
        program("train", recipe, "--run-dir", run_folder, "--resume", *sets)
    else:
        shutil.rmtree(here, ignore_errors=True)
        before = ("model.onnx", "--recipe") if cell.verb == "import" else ()
        program(cell.verb, *before, recipe, "--run-dir", run_folder, *sets)
    if cell.verb == "import":
        program("export", run_folder, "--format", "onnx")
    with open(os.path.join(here, "summary.json"), encoding="utf-8") as file:
        summary = json.load(file)
    with open(os.path.join(folder, "data", "data.json"), encoding="utf-8") as file:
        about = json.load(file)
    test = [np.load(os.path.join(folder, "data", f"test_{part}.npy"), mmap_mode="r") for part in ("inputs", "targets")]
    return {"show": show.name, "cell": cell.name, "seed": seed, "run": summary,
            "verify": verified(program, run_folder, show.verified) if cell.quantized else None,
            "readers": readers.judge(os.path.join(here, "export", "model.onnx"), *test, show.metric, threads or os.cpu_count()),
            "data": about, "commands": program.typed}


def commit():
    """Of the sources; with a `+` if they were changed since."""
    def git(*words):
        return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def alone_in(folder):
    """Holds a lock on the folder until the process ends."""
    lock = open(os.path.join(folder, ".lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"{folder}: another process measures here")
    return lock


def measure_cells(steelyard, folder, results, patterns, options):
    os.makedirs(results, exist_ok=True)
    lock = alone_in(folder)
    failed = []
    for name, show, cell, seed in in_order(patterns, options.seeds):
        path = os.path.join(results, name + ".json")
        if os.path.isfile(path):
            continue
        try:
            started = time.monotonic()
            result = measure(steelyard, os.path.join(folder, show.name), show, cell, seed, options.threads, options.set)
        except SystemExit as error:
            print(f"{name}: {error}", flush=True)
            failed.append(name)
            continue
        result.update(date=datetime.date.today().isoformat(), cpu=cpu_name(), threads=options.threads or os.cpu_count(),
                      commit=commit(), seconds=round(time.monotonic() - started, 1))
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
        os.rename(path + ".tmp", path)
        print(f"{name}: {show.key} {result['run']['final'][show.key]:.4g}", flush=True)
    lock.close()
    return failed


def numbers(text):
    return tuple(int(word) for word in text.split(","))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("prepare")
    verb.add_argument("folder")
    verb.add_argument("shows", nargs="*", metavar="show")
    verb.add_argument("--samples", type=numbers, help="for training (validation included) and for the test")
    verb.add_argument("--models", help="a folder of fetch_models.py that is there already")
    verb = verbs.add_parser("run")
    for name in ("steelyard", "folder", "results"):
        verb.add_argument(name)
    verb.add_argument("patterns", nargs="*", metavar="pattern")
    verb.add_argument("--seeds", type=numbers, default=(1, 2))
    verb.add_argument("--threads", type=int, help="default: all cores")
    verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a recipe's key, in every cell")
    verb = verbs.add_parser("page")
    for name in ("results", "page"):
        verb.add_argument(name)
    options = parser.parse_args()
    if options.verb == "prepare":
        prepare(options.folder, options.shows, options.samples, options.models)
    elif options.verb == "page":
        with open(options.page, "w", encoding="utf-8") as file:
            file.write(page.text(options.results))
    else:
        failed = measure_cells(options.steelyard, os.path.abspath(options.folder), options.results, options.patterns or [""],
                               options)
        if failed:
            sys.exit("failed: " + ", ".join(failed))


if __name__ == "__main__":
    main()
