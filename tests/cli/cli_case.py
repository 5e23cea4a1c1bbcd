"""What the tests of the command line share: a folder with data, recipes, and the program."""
import hashlib
import json
import os
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

from support.data_files import write_gradients

PROGRAM = os.environ["STEELYARD"]
EMULATES_A_GPU = os.path.basename(PROGRAM) == "steelyard_emulated"


def write_images(folder, seed):
    write_gradients(folder, seed, side=8, step=20, counts=(100, 40))


LAYERS = """
model:
  classes: 4
  layers:
    - {type: Conv2d, name: conv, out_channels: 8, kernel_size: 3, padding: 1, bias: false}
    - {type: BatchNorm2d, name: bn}
    - {type: ReLU}
    - {type: MaxPool2d, kernel_size: 2}
    - {type: Residual, name: block, main: [{type: Conv2d, name: a, out_channels: 8, kernel_size: 3, padding: 1}], activation: relu}
    - {type: Flatten}
    - {type: Dropout, p: 0.1}
    - {type: Linear, name: fc, out_features: 4}
"""
# 90 training samples, 9 steps an epoch.
HEAD = """version: 1
name: small
seed: 3
data: {{dataset: safetensors, path: {data}, batch_size: 10, validation: 10, augment: [random_crop, flip]}}
"""
QUANTIZE = """
quantize:
  groups:
    - targets: [Linear, Conv2d]
      weights: {num_bits: 8, symmetric: true, strategy: channel, observer: min_max}
      activations: {num_bits: 8, symmetric: false, strategy: tensor, observer: moving_average}
"""
SGD = "train: {epochs: 6, optimizer: {type: sgd, lr: 0.02, momentum: 0.9, weight_decay: 1.0e-4}, lr_schedule: {type: cosine}}\n"
ADAMW = "train: {epochs: 6, optimizer: {type: adamw, lr: 0.002}, clip_grad_norm: 1.0, label_smoothing: 0.1}\n"


def read_checkpoint(path):
    """(header, data): the header as a dictionary in the file's order."""
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + size]), raw[8 + size:]


LATER_KEYS = ("data", "recipe", "first_loss", "least_epoch_loss", "most_top1", "model_sha256")


def as_earlier_version(path, keys=LATER_KEYS, preprocessing=()):
    """Rewrites a checkpoint or an integer model as it was before its metadata, or its preprocessing, held these keys."""
    def without_keys(metadata):
        metadata = {key: value for key, value in metadata.items() if key not in keys}
        if preprocessing:
            graph = json.loads(metadata["graph"])
            for key in preprocessing:
                del graph["preprocessing"][key]
            metadata["graph"] = json.dumps(graph)
        return metadata

    rewrite_metadata(path, without_keys)


def rewrite_metadata(path, change):
    """Writes a checkpoint again with the metadata that change(metadata) gives, and the checksum of that."""
    header, data = read_checkpoint(path)
    metadata = change(header["__metadata__"])

    def encoded(digest):
        text = json.dumps({**header, "__metadata__": {**metadata, "sha256": digest}}, separators=(",", ":"),
                          ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text

    with open(path, "wb") as file:
        file.write(encoded(hashlib.sha256(encoded("0" * 64)).hexdigest()) + data)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="steelyard-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.data = self.path("data")
        write_images(self.data, seed=1)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def wait_for(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def recipe(self, body, name="recipe.yaml"):
        with open(self.path(name), "w") as file:
            file.write(HEAD.format(data=self.data) + body)
        return self.path(name)

    def run_program(self, *arguments, **environment):
        return subprocess.run([PROGRAM, *arguments], cwd=self.folder, text=True, capture_output=True,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment}, timeout=300)

    def succeed(self, *arguments, **environment):
        result = self.run_program(*arguments, **environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def notes_of(self, *arguments):
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def fail_with(self, code, *fragments_after_arguments, arguments):
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for fragment in fragments_after_arguments:
            self.assertIn(fragment, result.stderr)
        return result

    def read(self, *parts):
        with open(self.path(*parts), encoding="utf-8") as file:
            return file.read()

    def train(self, recipe, run, *more):
        return self.succeed("train", recipe, "--run-dir", self.path(run), *more)

    def sha(self, *parts):
        with open(self.path(*parts), "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def summary(self, run):
        with open(self.path(run, "summary.json")) as file:
            return json.load(file)

    def metrics(self, run):
        """The lines without what differs between equal runs."""
        with open(self.path(run, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        for line in lines:
            line.pop("seconds", None)
            line.pop("rank_seconds", None)
        return lines

    def copy_as_stopped(self, run, step, copy):
        """The folder that a run would have left if it had been stopped after a step whose checkpoint it kept."""
        os.makedirs(self.path(copy))
        for file in ("recipe.yaml", "metrics.jsonl", "best.safetensors"):
            shutil.copy(self.path(run, file), self.path(copy))
        shutil.copy(self.path(run, f"step-{step}.safetensors"), self.path(copy, "last.safetensors"))

    def resumes(self, name, body, steps=(5, 18, 40, 54)):
        """Trains a whole run, and from the checkpoints of some steps to the same bits, metrics and summary; gives the
        recipe. On the emulated GPU, where a step takes long, from the middle one of them: that is enough to miss what
        was not moved to the device again, and on which side of a change a run stops is the same for every device."""
        recipe = self.recipe(body)
        more = ["--set", "train.checkpoint_every_steps=1", "--set", "train.keep_step_checkpoints=true"]
        self.train(recipe, name, *more)
        expected = self.sha(name, "last.safetensors")
        for step in steps[len(steps) // 2:][:1] if EMULATES_A_GPU else steps:
            run = f"{name}-from-{step}"
            self.copy_as_stopped(name, step, run)
            self.train(recipe, run, *more, "--resume")
            self.assertEqual(self.sha(run, "last.safetensors"), expected, f"{name} resumed from step {step}")
            self.assertEqual(self.metrics(run), self.metrics(name), f"{name} resumed from step {step}")
            for figures in ("final", "best"):
                self.assertEqual(self.summary(run)[figures], self.summary(name)[figures])
        return recipe
