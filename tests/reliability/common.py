"""What the parts of scripts/campaign share: results, time, the program and its small runs."""
import datetime
import hashlib
import json
import os
import subprocess
import time

from machine import cpu_name
from support.data_files import write_gradients

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")


def commit():
    """The commit under test; "+changes" where files that git tracks differ from it."""
    def git(*arguments):
        return subprocess.run(["git", "-C", ROOT, *arguments], text=True, capture_output=True, check=True).stdout
    changed = git("status", "--porcelain", "--untracked-files=no").strip()
    return git("rev-parse", "HEAD").strip()[:12] + ("+changes" if changed else "")


class Result:
    """One result file. `identity` says what it is about: with another one it starts anew."""

    def __init__(self, arguments, name, identity, fields):
        self.path = os.path.join(arguments.results, name + ".json")
        self.data = {"part": name, "machine": cpu_name(), "commit": commit(), "date": "", "executions": 0,
                     "seconds": 0.0, "done": False, "findings": [], **fields, **identity}
        if os.path.exists(self.path):
            with open(self.path) as file:
                earlier = json.load(file)
            if all(earlier.get(key) == value for key, value in identity.items()):
                self.data = earlier

    def __getitem__(self, key):
        return self.data[key]

    def __setitem__(self, key, value):
        self.data[key] = value

    def save(self):
        self.data["date"] = datetime.date.today().isoformat()
        self.data["seconds"] = round(self.data["seconds"], 1)
        temporary = self.path + ".tmp"
        with open(temporary, "w") as file:
            json.dump(self.data, file, indent=1)
            file.write("\n")
        os.replace(temporary, self.path)

    def line(self):
        """The closing line of a part."""
        data = self.data
        state = "done" if data["done"] else "to be continued"
        return (f"{data['part']}: {data['executions']} executions, {data['seconds']:.0f} s, "
                f"{len(data['findings'])} findings, {state}")


class Clock:
    """Counts a part's seconds, those of earlier calls included."""

    def __init__(self, arguments):
        self.end = time.monotonic() + arguments.seconds
        self.last = time.monotonic()

    def over(self):
        return time.monotonic() >= self.end

    def left(self):
        return self.end - time.monotonic()

    def restart(self):
        """What passed since the last add_to() counts for nothing."""
        self.last = time.monotonic()

    def add_to(self, result):
        now = time.monotonic()
        result["seconds"] += now - self.last
        self.last = now


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def build(preset, *targets, options=(), root=ROOT):
    subprocess.run(["cmake", "--preset", preset, *options], cwd=root, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", "--preset", preset, *(["--target", *targets] if targets else [])], cwd=root,
                   check=True)


def program_of(arguments):
    if arguments.steelyard:
        return os.path.abspath(arguments.steelyard)
    build("cpu", "steelyard")
    return os.path.join(BUILD, "cpu", "cli", "steelyard")


HEAD = """version: 1
name: small
seed: 3
data: {dataset: safetensors, path: data, batch_size: 10, validation: 10, augment: [flip]}
"""
LINEAR = "model: {classes: 4, layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 4}]}\n"
CONV = """model:
  classes: 4
  layers:
    - {type: Conv2d, name: conv, out_channels: 4, kernel_size: 3, padding: 1, bias: false}
    - {type: BatchNorm2d, name: bn}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Flatten}
    - {type: Dropout, p: 0.1}
    - {type: Linear, name: fc, out_features: 4}
"""
GROUPS = """quantize:
  groups:
    - targets: [Linear]
      weights: {num_bits: 8, symmetric: true, strategy: channel}
      activations: {num_bits: 8, symmetric: false, strategy: tensor}
"""
SGD = """train:
  epochs: 4
  optimizer: {type: sgd, lr: 0.02, momentum: 0.9}
  lr_schedule: {type: cosine}
  checkpoint_every_steps: 2
  tensorboard: true
"""
ADAMW = """train:
  epochs: 4
  optimizer: {type: adamw, lr: 0.002}
  clip_grad_norm: 1.0
  checkpoint_every_steps: 3
  ema: {decay: 0.9}
"""
EXPORT = "export: {formats: [safetensors]}\n"
# A run of each kind that matters for what a checkpoint must hold.
RECIPES = {
    "float": HEAD + CONV + ADAMW,
    "qat": HEAD + CONV + SGD + GROUPS.replace("[Linear]", "[Linear, Conv2d]") +
    "schedule: {fake_quant: {from: 1}, freeze_observers: {epoch: 3}}\n" + EXPORT,
    "lsq": HEAD + CONV + SGD + GROUPS.replace("num_bits: 8", "num_bits: 4") + "  algorithm: {method: lsq}\n" + EXPORT,
}


class Program:
    """The command line in a folder that holds the dataset."""

    def __init__(self, path, folder):
        self.path = path
        self.folder = folder
        write_gradients(os.path.join(folder, "data"), seed=1, side=6, step=25, counts=(100, 20))

    def in_folder(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.in_folder(name), "w") as file:
            file.write(text)
        return name

    def command(self, *arguments):
        return [self.path, *arguments]

    def environment(self, **more):
        return {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1", **more}

    def run(self, *arguments, **environment):
        return subprocess.run(self.command(*arguments), cwd=self.folder, env=self.environment(**environment), text=True,
                              errors="replace", capture_output=True, timeout=300)

    def succeed(self, *arguments):
        result = self.run(*arguments)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(arguments)}: exit {result.returncode}: {result.stderr}")
        return result.stdout
