"""Calibration as a user runs it: before training, and instead of it."""
import json
import os
import re
import struct
import unittest

from cli_helpers_test import floats, tensors_of
from cli_case import LAYERS, QUANTIZE, SGD, Case, as_earlier_version
from support.data_files import f32, i64, write_safetensors, write_split

FLOAT = LAYERS + SGD.replace("epochs: 6", "epochs: 2")
INIT = "init: {checkpoint: float/last.safetensors}\n"
HISTOGRAM = QUANTIZE.replace("moving_average", "histogram")
CALIBRATED = FLOAT + QUANTIZE + INIT


class Calibrate(Case):
    def setUp(self):
        super().setUp()
        self.succeed("train", self.recipe(FLOAT, "float.yaml"), "--run-dir", "float")

    def top1(self, run):
        return self.summary(run)["final"]["top1"]

    def test_device(self):
        recipe = self.recipe(FLOAT + HISTOGRAM + INIT)
        self.fail_with(4, "cuda:99", arguments=["calibrate", recipe, "--run-dir", "run", "--device", "cuda:99"])
        self.succeed("calibrate", recipe, "--run-dir", "run", "--device", "cpu")
        self.assertEqual(self.summary("run")["device"], "cpu")

    def test_bytes_and_floats_are_told_apart(self):
        for split, count in (("train", 100), ("test", 40)):
            write_split(self.path("floats"), split, f32([count, 8, 8, 1], [128.0] * (64 * count)), i64([count], [i % 4 for i in range(count)]))
        noted = self.run_program("validate", self.recipe(CALIBRATED), "--set", "data.path=floats", "--set", "data.normalize=none")
        self.assertIn("note: init.checkpoint was trained on samples of u8, the data has f32; only u8 is divided by 255\n", noted.stderr)

    def test_a_mode_of_its_own(self):
        recipe = self.recipe(FLOAT + HISTOGRAM + INIT)
        printed = self.succeed("calibrate", recipe, "--run-dir", "run", "--threads", "1")
        self.assertIn("calibrated on 9 batches of 10 samples", printed)
        summary = self.summary("run")
        self.assertEqual((summary["epochs"], summary["steps"], summary["best"]), (0, 0, None))
        self.assertEqual(summary["calibration_batches"], 9)
        self.assertEqual(summary["checkpoint_sha256"], self.sha("run", "last.safetensors"))
        self.assertGreaterEqual(self.top1("run"), self.top1("float") - 10)
        for name in ("recipe.yaml", "plan.txt", "metrics.jsonl"):
            self.assertTrue(os.path.isfile(self.path("run", name)), name)
        self.assertIn("top-1 {:.2f} %".format(self.top1("run")), self.succeed("eval", "run"))
        unchanged = self.run_program("calibrate", recipe, "--run-dir", "norms", "--set", "schedule.reestimate_bn.batches=2", "--set", "quantize.bn_fold=none")
        self.assertIn("note: schedule.reestimate_bn is for training", unchanged.stderr)
        self.fail_with(2, "best.safetensors: the run has no such checkpoint, but one named last", arguments=["eval", "run", "--checkpoint", "best"])
        self.succeed("export", "run", "--format", "safetensors")
        self.assertRegex(self.succeed("verify", "run"), r"0 of \d+ codes differ")
        data = os.path.join(self.data, "test.safetensors")
        self.assertEqual(self.succeed("predict", "run", data),
                         self.succeed("predict", "run", data, "--with", "integer"))
        # Every number of threads gives the same ranges; the default folder.
        self.succeed("calibrate", recipe, "--threads", "2")
        again = os.path.join("runs", "small-calibrated")
        self.assertEqual(self.sha("run", "last.safetensors"), self.sha(again, "last.safetensors"))

    def test_small_data_gives_all_its_batches(self):
        note = "note: calibrate.batches: 9, all of an epoch (the default is 32)\n"
        recipe = self.recipe(CALIBRATED + "calibrate: {equalize: true}\n")
        done = self.run_program("calibrate", recipe, "--run-dir", "run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("calibrated on 9 batches of 10 samples", done.stdout)
        self.assertIn(note, done.stderr)
        self.assertRegex(self.read("run", "recipe.yaml"), r"\n  batches: 9\n")
        plain = self.recipe(CALIBRATED, "plain.yaml")
        self.assertIn(note, self.run_program("calibrate", plain, "--run-dir", "set", "--set", "calibrate={}").stderr)
        self.assertNotIn(note, self.notes_of("calibrate", plain, "--run-dir", "silent"))
        silent, explicit = (tensors_of(self.path(folder, "last.safetensors")) for folder in ("silent", "set"))
        self.assertEqual(silent, explicit)
        # Training takes as many, and a run goes on with the number that it began with.
        self.assertIn(note, self.run_program("train", recipe, "--run-dir", "trained").stderr)
        self.succeed("train", recipe, "--run-dir", "run", "--resume")
        self.assertEqual(self.sha("run", "last.safetensors"), self.sha("trained", "last.safetensors"))
        self.fail_with(2, "calibrate.batches: expected at most the 9 batches of an epoch, got 10",
                       arguments=["calibrate", recipe, "--set", "calibrate.batches=10"])
        # More samples in a batch than there are.
        printed = self.run_program("calibrate", recipe, "--run-dir", "one", "--set", "data.batch_size=1000").stderr
        self.assertIn("note: data.batch_size: 1000 is more than the 90 training samples: they are one batch, an epoch is one step\n",
                      printed)
        self.assertEqual(self.summary("one")["calibration_batches"], 1)

    def test_every_observer(self):
        for observer in ("min_max", "percentile", "mse", "entropy"):
            body = FLOAT + INIT + QUANTIZE.replace("min_max", observer).replace("moving_average", observer)
            self.succeed("calibrate", self.recipe(body), "--run-dir", observer, "--set", "calibrate.batches=2")
            self.assertEqual(self.summary(observer)["calibration_batches"], 2)
            self.assertRegex(self.succeed("verify", observer), r"0 of \d+ codes differ")

    def test_bias_correction(self):
        recipe = self.recipe(FLOAT + INIT + QUANTIZE.replace("num_bits: 8, symmetric: true", "num_bits: 2, symmetric: true"))
        self.succeed("calibrate", recipe, "--run-dir", "plain")
        corrected = ["--set", "calibrate={batches: 9, bias_correction: 90}"]
        self.succeed("calibrate", recipe, "--run-dir", "run", *corrected)
        plain, run = (tensors_of(self.path(folder, "last.safetensors")) for folder in ("plain", "run"))
        for name in ("conv", "block.a", "fc"):
            self.assertEqual(plain[name + ".weight"], run[name + ".weight"])
            self.assertNotEqual(plain[name + ".bias"], run[name + ".bias"])
            scale = name + ".output_quantizer.scale"  # measured again, behind other biases
            self.assertNotEqual(plain[scale], run[scale])
        printed = self.succeed("calibrate", recipe, "--run-dir", "equalized", *corrected, "--set", "calibrate.equalize=true")
        self.assertIn("note: calibrate.equalize: 0 pairs of layers", printed)  # a sum reads conv, too
        for folder in ("run", "equalized"):
            self.assertRegex(self.succeed("verify", folder), r"0 of \d+ codes differ")
        self.fail_with(2, "calibrate.bias_correction: expected at most the 90 training samples, got 91",
                       arguments=["calibrate", recipe, *corrected, "--set", "calibrate.bias_correction=91"])

    def test_adaround(self):
        recipe = self.recipe(FLOAT + INIT + QUANTIZE.replace("num_bits: 8, symmetric: true", "num_bits: 3, symmetric: true"))
        self.succeed("calibrate", recipe, "--run-dir", "nearest", "--set", "calibrate.batches=9")
        learned = ["--threads", "2", "--set", "calibrate={batches: 9, adaround: {samples: 90, iterations: 200}}"]
        printed = self.succeed("calibrate", recipe, "--run-dir", "run", *learned)
        self.assertRegex(printed, r"learned rounding of 3 layers: [1-9]\d* of \d+ weights changed, error .* 0\.\d\d of")
        layers = self.summary("run")["adaround"]
        self.assertEqual([layer["layer"] for layer in layers], ["conv", "block.a", "fc"])
        for layer in layers:
            self.assertLessEqual(layer["error"], layer["nearest_error"])
        nearest, run = (tensors_of(self.path(folder, "last.safetensors")) for folder in ("nearest", "run"))
        for layer in layers:
            before, after = (floats(of[layer["layer"] + ".weight"]) for of in (nearest, run))
            self.assertEqual(sum(a != b for a, b in zip(before, after)), layer["changed"])
            self.assertEqual(nearest[layer["layer"] + ".bias"], run[layer["layer"] + ".bias"])
            scale = layer["layer"] + ".weight_quantizer.scale"
            self.assertEqual(nearest[scale], run[scale])
        self.assertRegex(self.succeed("verify", "run"), r"0 of \d+ codes differ")
        self.succeed("calibrate", recipe, "--run-dir", "again", *learned)
        self.assertEqual(self.sha("run", "last.safetensors"), self.sha("again", "last.safetensors"))
        # Nothing is averaged yet.
        self.succeed("calibrate", recipe, "--run-dir", "averaged", *learned, "--set", "train.ema={decay: 0.9}")
        averaged = tensors_of(self.path("averaged", "last.safetensors"))
        self.assertEqual({name: averaged[name] for name in run}, run)
        # Biases on top: codes and scales of weights stay those that were learned.
        self.succeed("calibrate", recipe, "--run-dir", "both", *learned, "--set", "calibrate.bias_correction=90")
        both = tensors_of(self.path("both", "last.safetensors"))
        self.assertEqual(run["fc.weight"], both["fc.weight"])
        self.assertNotEqual(run["fc.bias"], both["fc.bias"])
        self.assertRegex(self.succeed("verify", "both"), r"0 of \d+ codes differ")
        self.fail_with(2, "calibrate.adaround.samples: expected at most the 90 training samples, got 91",
                       arguments=["calibrate", recipe, *learned, "--set", "calibrate.adaround.samples=91"])

    def test_training_goes_on_from_a_calibrated_folder(self):
        recipe = self.recipe(CALIBRATED + "calibrate: {batches: 3}\n")
        self.succeed("calibrate", recipe, "--run-dir", "calibrated")
        self.succeed("train", recipe, "--run-dir", "calibrated", "--resume")
        self.succeed("train", recipe, "--run-dir", "whole")
        self.assertEqual(self.sha("calibrated", "last.safetensors"), self.sha("whole", "last.safetensors"))
        self.assertEqual(self.summary("calibrated")["epochs"], 2)

    def test_a_run_that_goes_on_is_not_finished(self):
        recipe = self.recipe(CALIBRATED + "calibrate: {batches: 3}\n")
        more = ["--set", "train.optimizer.lr=1000000", "--set", "train.epochs=3", "--set", "train.divergence_limit=0"]
        self.succeed("calibrate", recipe, "--run-dir", "run", *more)
        with open(self.path("run", "summary.json")) as file:
            of_calibration = file.read()
        self.succeed("report", "run", "--out", "page.html")
        self.assertIn("finished without training", self.read("page.html"))
        self.fail_with(1, "non-finite", arguments=["train", recipe, "--run-dir", "run", "--resume", *more])
        self.assertFalse(os.path.exists(self.path("run", "summary.json")))
        last = json.loads(self.read("run", "metrics.jsonl").splitlines()[-1])
        self.assertEqual(last["type"], "diverged")
        self.assertRegex(last["what"], r"^step \d+: .*non-finite")
        self.succeed("report", "run", "--out", "page.html")
        self.assertRegex(self.read("page.html"), r"diverged, \d of 3 epochs logged: step \d+: ")
        # A calibration's summary that an older version left is no sign of a finished training.
        with open(self.path("run", "summary.json"), "w") as file:
            file.write(of_calibration)
        with open(self.path("run", "metrics.jsonl"), "w") as file:
            file.write('{"type": "step", "step": 10, "epoch": 2, "loss": 1, "lr": 1}\n')
        printed = self.succeed("report", "run", "--out", "page.html")
        self.assertIn("run/summary.json: is of a run of 0 epochs, the recipe has 3", printed)
        self.assertIn("interrupted or running", self.read("page.html"))

    def test_a_divergence_while_calibrating_is_logged(self):
        recipe = self.recipe(CALIBRATED + "calibrate: {batches: 3}\n")
        name = self.path("float", "last.safetensors")
        tensors = {key: (kind, shape, struct.pack("<f", 3e38) * (len(raw) // 4) if key == "fc.weight" else raw)
                   for key, (kind, shape, raw) in tensors_of(name).items() if "/" not in key}
        write_safetensors(name, tensors)
        for verb in ("calibrate", "train"):
            self.fail_with(1, "non-finite", arguments=[verb, recipe, "--run-dir", verb])
            self.assertEqual([line["type"] for line in self.metrics(verb)], ["diverged"])

    def test_resumes_to_the_same_bits(self):
        recipe = self.recipe(CALIBRATED + "calibrate: {batches: 3, freeze: true}\n")
        steps = ("--set", "train.checkpoint_every_steps=4", "--set", "train.keep_step_checkpoints=true")
        affine = ("--set", "quantize.groups.0.weights.symmetric=false", "--set", "quantize.algorithm.method=lsq_plus",
                  "--set", "calibrate.freeze=false")
        for name, more in (("", steps), ("affine-", steps + affine)):
            whole, half = name + "whole", name + "half"
            self.succeed("train", recipe, "--run-dir", whole, *more)
            self.copy_as_stopped(whole, 8, half)
            self.succeed("train", recipe, "--run-dir", half, "--resume", *more)
            self.assertEqual(self.sha(half, "last.safetensors"), self.sha(whole, "last.safetensors"))
            self.assertRegex(self.succeed("verify", whole), r"0 of \d+ codes differ")

    def test_frozen_ranges_are_those_of_the_calibration(self):
        recipe = self.recipe(CALIBRATED + "calibrate: {batches: 3, freeze: true}\n")
        self.succeed("calibrate", recipe, "--run-dir", "calibrated")
        self.succeed("train", recipe, "--run-dir", "trained")
        self.assertEqual(self.scales("calibrated"), self.scales("trained"))
        self.succeed("train", recipe, "--run-dir", "moved", "--set", "calibrate.freeze=false")
        self.assertNotEqual(self.scales("calibrated"), self.scales("moved"))

    def test_learned_ranges_are_not_frozen(self):
        recipe = self.recipe(CALIBRATED + "calibrate: {batches: 3, freeze: false}\n")
        learned = ("--set", "quantize.algorithm.method=lsq")
        self.fail_with(2, "quantize.algorithm: lsq learns ranges, which calibrate.freeze keeps: expected one of the two",
                       arguments=["validate", recipe, *learned, "--set", "calibrate.freeze=true"])
        self.fail_with(2, "lsq learns ranges", arguments=["train", recipe, "--run-dir", "new", *learned, "--set", "calibrate.freeze=true"])
        # A run of a version that took both goes on being loaded.
        self.succeed("train", recipe, "--run-dir", "old", *learned)
        text = self.read("old", "recipe.yaml")
        with open(self.path("old", "recipe.yaml"), "w", encoding="utf-8") as file:
            file.write(text.replace("freeze: false", "freeze: true"))
        as_earlier_version(self.path("old", "last.safetensors"))
        self.assertIn("freeze: true", self.read("old", "recipe.yaml"))
        self.assertRegex(self.succeed("verify", "old"), r"0 of \d+ codes differ")

    def test_one_sample_left_for_the_last_batch(self):
        recipe = self.recipe(CALIBRATED + "calibrate: {batches: 1, freeze: true}\n")
        self.succeed("train", recipe, "--run-dir", "run", "--set", "data.batch_size=89")
        self.succeed("train", recipe, "--run-dir", "dry", "--dry-run")

    def scales(self, run):
        with open(self.path(run, "last.safetensors"), "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            data = file.read()
        return {name: data[slice(*entry["data_offsets"])] for name, entry in header.items()
                if re.search(r"_quantizer\.scale$", name)}

    def test_batch_norm_folded_in_every_step(self):
        for mode in ("none", "batch_corrected", "one_convolution"):
            self.succeed("calibrate", self.recipe(CALIBRATED), "--run-dir", mode, "--set", "quantize.bn_fold=" + mode)
            if mode != "none":
                self.assertRegex(self.succeed("verify", mode), r"0 of \d+ codes differ")

    def test_refusals(self):
        self.fail_with(2, "calibrate needs 'quantize'", arguments=["calibrate", self.recipe(FLOAT + INIT)])
        self.fail_with(2, "recipe.yaml:1:1: calibrate needs the trained weights of 'init.checkpoint'",
                       arguments=["calibrate", self.recipe(FLOAT + QUANTIZE)])
        recipe = self.recipe(CALIBRATED)
        self.fail_with(2, "calibrate.batches: expected at most the 9 batches of an epoch, got 10",
                       arguments=["calibrate", recipe, "--set", "calibrate.batches=10"])
        self.fail_with(2, "calibrate needs 'quantize'", arguments=[
            "validate", self.recipe(FLOAT + "calibrate: {batches: 1}\n", "f.yaml")])
        self.fail_with(2, "schedule.freeze_observers has no effect: calibrate.freeze keeps all ranges",
                       arguments=["validate", recipe, "--set", "calibrate.freeze=true",
                                  "--set", "schedule.freeze_observers.epoch=1"])
        for verb in ("calibrate", "train"):
            result = self.fail_with(2, "float: already holds a run: pass another --run-dir or remove the folder; `steelyard train --resume` trains on in it", arguments=[verb, recipe, "--run-dir", "float"])
            self.assertEqual(result.stdout, "")  # no plan of what is refused
        self.assertEqual(self.run_program("calibrate").returncode, 2)


if __name__ == "__main__":
    unittest.main()
