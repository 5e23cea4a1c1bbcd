#!/usr/bin/python3
"""Do two versions of the program train the same model, and as fast?

usage: benchmarks/same_runs.py BEFORE AFTER [--rounds 3] [--images 6000] [--epochs 2] [--threads N] [--only NAME...] [--out FILE]

BEFORE and AFTER are two built programs. Each trains four recipes on the first images of Fashion-MNIST (Debian's package
dataset-fashion-mnist), from the same seed: for one step, whose checkpoints show differences before training multiplies
them, and for some epochs, in turn, whose seconds are compared (start included; medians). Of every tensor that both
checkpoints hold, the largest difference is taken relative to the tensor's largest element. Exits with 1 if a recipe
fails.
"""
import argparse
import collections
import datetime
import gzip
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

from machine import cpu_name

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests"))
from support.data_files import write_split  # noqa: E402

IMAGES = "/usr/share/datasets/fashion-mnist/"
BATCH = 100


def quantized(bits, targets="[Linear, Conv2d]", strategy="channel", activations=True, more=""):
    text = f"""quantize:
  groups:
    - targets: {targets}
      weights: {{num_bits: {bits}, symmetric: true, strategy: {strategy}, observer: min_max}}
"""
    if activations:
        text += f"      activations: {{num_bits: {bits}, symmetric: false, strategy: tensor, observer: moving_average}}\n"
    return text + more


RECIPES = {
    "cnn float": "model: {type: cnn, channels: [32, 64], hidden: 128, classes: 10}\n",
    "resnet W8A8": "model: {type: resnet, depth: 8, width: 16, classes: 10}\n" + quantized(8),
    "mobilenet W4A4 LSQ": "model: {type: mobilenet, classes: 10}\n" + quantized(4, more="  algorithm: {method: lsq}\n"),
    "mlp int4 groups": "model: {type: mlp, hidden: [256, 128], classes: 10}\n" + quantized(4, "[Linear]", "group, group_size: 16", False),
}
HEAD = """version: 1
name: same
seed: 1
data: {{dataset: safetensors, path: {data}, batch_size: {batch}, validation: 0}}
train: {{epochs: {epochs}, optimizer: {{type: sgd, lr: 0.01, momentum: 0.9}}}}
"""


def array_of(name, header):
    with gzip.open(IMAGES + name) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)


def write_data(folder, images):
    for split, prefix, count in (("train", "train", images), ("test", "t10k", 500)):
        pixels = array_of(f"{prefix}-images-idx3-ubyte.gz", 16)[:count * 28 * 28]
        labels = array_of(f"{prefix}-labels-idx1-ubyte.gz", 8)[:count].astype("<i8")
        write_split(folder, split, ("U8", [count, 28, 28, 1], pixels.tobytes()), ("I64", [count], labels.tobytes()))


def read_checkpoint(path):
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    types = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "I8": "i1", "U8": "u1", "BOOL": "?"}
    header = json.loads(data[8:8 + size])
    return {name: np.frombuffer(data, types[row["dtype"]], offset=8 + size + row["data_offsets"][0],
                                count=int(np.prod(row["shape"], dtype=np.int64))).astype(np.float64)
            for name, row in header.items() if name != "__metadata__"}


def differences(before, after):
    """How far two checkpoints are from each other, of the tensors that both have in one size."""
    one, other = read_checkpoint(before), read_checkpoint(after)
    shared = [name for name in one if name in other and one[name].size == other[name].size]
    far = {name: float(np.abs(one[name] - other[name]).max(initial=0) / max(np.abs(one[name]).max(initial=0), 1e-30))
           for name in shared}
    unequal = sorted((name for name in far if not far[name] == 0), key=far.get, reverse=True)  # NaN, too
    kinds = collections.Counter(name.rpartition(".")[2] for name in unequal)
    return {"tensors": len(shared), "equal": len(shared) - len(unequal),
            "only_in_one": len(one) + len(other) - 2 * len(shared), "unequal_kinds": dict(kinds),
            "largest": {name: float(f"{far[name]:.2g}") for name in unequal[:3]}}


class Trainings:
    def __init__(self, folder, programs, threads):
        self.folder, self.programs, self.threads = folder, programs, threads

    def train(self, version, recipe):
        """The seconds and the checkpoint of one training."""
        run = tempfile.mkdtemp(dir=self.folder)
        command = [self.programs[version], "train", recipe, "--run-dir", run, "--threads", str(self.threads)]
        start = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        return time.monotonic() - start, os.path.join(run, "last.safetensors")

    def recipe(self, body, images, epochs):
        data = os.path.join(self.folder, f"data-{images}")
        if not os.path.isdir(data):
            write_data(data, images)
        path = os.path.join(self.folder, "recipe.yaml")
        with open(path, "w") as file:
            file.write(HEAD.format(data=data, batch=BATCH, epochs=epochs) + body)
        return path

    def compare(self, body, images, epochs, rounds):
        step = self.recipe(body, BATCH, 1)
        result = {"after_one_step": differences(*(self.train(version, step)[1] for version in self.programs))}
        recipe = self.recipe(body, images, epochs)
        seconds, last = {version: [] for version in self.programs}, {}
        for number in range(rounds):
            for version in list(self.programs)[::-1 if number % 2 else 1]:
                time_taken, last[version] = self.train(version, recipe)
                seconds[version].append(time_taken)
        medians = {version: statistics.median(times) for version, times in seconds.items()}
        hashes = {version: hashlib.sha256(open(path, "rb").read()).hexdigest() for version, path in last.items()}
        return {**result, "at_the_end": differences(last["before"], last["after"]), "sha256": hashes, "seconds": medians,
                "time_ratio": round(medians["after"] / medians["before"], 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--names", nargs=2, default=["", ""], metavar="COMMIT", help="what BEFORE and AFTER are, for the file")
    parser.add_argument("--out")
    args = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(prefix="steelyard-same-") as folder:
        trainings = Trainings(folder, {"before": args.before, "after": args.after}, args.threads)
        for name in args.only:
            results[name] = trainings.compare(RECIPES[name], args.images, args.epochs, args.rounds)
            print(name, json.dumps(results[name], indent=1), flush=True)
    if args.out:
        about = {"machine": cpu_name(), "threads": args.threads, "rounds": args.rounds, "images": args.images,
                 "epochs": args.epochs, "date": datetime.date.today().isoformat(), "before": args.names[0],
                 "after": args.names[1], "results": results}
        with open(args.out, "w") as file:
            json.dump(about, file, indent=1)
            file.write("\n")


main()
