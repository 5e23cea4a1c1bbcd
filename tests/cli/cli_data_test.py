"""What a run was trained on and by which recipe: kept in its checkpoints, told where it has changed."""
import json
import os
import shutil
import struct
import unittest

from cli_case import ADAMW, Case, LAYERS, QUANTIZE, SGD, as_earlier_version, read_checkpoint
from support.data_files import f32, i64, write_gradients, write_safetensors, write_split, write_uniform

SHORT = SGD.replace("epochs: 6", "epochs: 2")
CONSTANT = SHORT.replace("cosine", "constant")
STEPS = ["--set", "train.checkpoint_every_steps=1", "--set", "train.keep_step_checkpoints=true"]


def metadata_of(path):
    return read_checkpoint(path)[0]["__metadata__"]


class Recorded(Case):
    """Shared: a folder of data, changed on purpose."""

    def trained(self, name, *more, body=LAYERS + SHORT + QUANTIZE):
        self.train(self.recipe(body), name, *more)
        return self.path(name)

    def tensors(self, run):
        return read_checkpoint(self.path(run, "last.safetensors"))[1]

    def change_training_data(self):
        """Some rows of the training set; the test set stays."""
        path = self.path("data", "train.safetensors")
        with open(path, "rb") as file:
            raw = file.read()
        with open(path, "wb") as file:
            file.write(raw[:-2000] + bytes(255 - value for value in raw[-2000:-1000]) + raw[-1000:])
        return path

    def resume(self, recipe, run, *more):
        result = self.run_program("train", recipe, "--run-dir", run, "--resume", *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result


class Normalization(Recorded):
    def test_a_trained_model_needs_no_training_data(self):
        run = self.trained("run")
        self.succeed("export", run)
        exported = self.sha("run", "export", "model.safetensors")
        images = self.path("images.safetensors")
        shutil.copy(self.path("data", "test.safetensors"), images)
        verbs = [["eval", run], ["eval", run, "--checkpoint", "best"], ["verify", run], ["inspect", "--graph", run],
                 ["predict", run, images]]
        before = [self.succeed(*verb) for verb in verbs]
        for change in (self.change_training_data, lambda: os.remove(self.path("data", "train.safetensors"))):
            change()
            self.assertEqual([self.succeed(*verb) for verb in verbs], before)
        shutil.rmtree(self.data)
        self.assertEqual([self.succeed(*verb) for verb in verbs[3:]], before[3:])
        self.succeed("export", run)
        self.assertEqual(self.sha("run", "export", "model.safetensors"), exported)
        self.fail_with(2, "recipe.yaml", self.data, "expected a folder", arguments=["eval", run])

    def test_a_checkpoint_says_what_it_was_trained_on(self):
        run = self.trained("run")
        header, data = read_checkpoint(self.path("data", "train.safetensors"))
        begin, end = header["inputs"]["data_offsets"]
        pixels = [value / 255 for value in data[begin:end]]
        mean = sum(pixels) / len(pixels)
        deviation = (sum((x - mean) ** 2 for x in pixels) / len(pixels)) ** 0.5
        for name in ("last", "best"):
            metadata = metadata_of(os.path.join(run, name + ".safetensors"))
            record = json.loads(metadata["data"])
            self.assertEqual((record["dtype"], record["sample"], record["classes"]), ("u8", [8, 8, 1], 4))
            self.assertAlmostEqual(record["mean"][0], mean, places=6)
            self.assertAlmostEqual(record["std"][0], deviation, places=6)
            self.assertRegex(record["sha256"], "^[0-9a-f]{64}$")
            self.assertIn("num_bits: 8", metadata["recipe"])
            for other in (self.folder, "small", "device", "checkpoint_every_steps"):
                self.assertNotIn(other, metadata["recipe"])

    def test_the_recipe_chooses_it(self):
        body = LAYERS + SHORT
        self.trained("dataset", body=body)
        record = json.loads(metadata_of(self.path("dataset", "last.safetensors"))["data"])
        given = f"data.normalize={{mean: {record['mean']}, std: {record['std']}}}"
        self.trained("given", "--set", given, body=body)
        self.assertEqual(self.tensors("given"), self.tensors("dataset"))
        self.trained("none", "--set", "data.normalize=none", body=body)
        self.assertNotEqual(self.tensors("none"), self.tensors("dataset"))
        record = json.loads(metadata_of(self.path("none", "last.safetensors"))["data"])
        self.assertEqual((record["mean"], record["std"]), ([], []))
        data = self.path("data", "test.safetensors")
        for run in ("given", "none"):
            self.assertEqual(self.succeed("predict", run, data).count("\n"), 40)

        recipe = self.recipe(body)
        for value, message in (("{mean: [0.5, 0.5], std: [1, 1]}", "expected the mean and deviation of 1 channels, got 2"),
                               ("{mean: [0.5], std: [1, 1]}", "expected one for each of the 1 means, got 2"),
                               ("{mean: [0.5]}", "missing key 'data.normalize.std'"),
                               ("{mean: [0.5], std: [0]}", "expected a number from"),
                               ("{mean: [0.5], stddev: [1]}", "unknown key 'stddev'"),
                               ("imagenet", "expected dataset or none, or a table of mean and std")):
            self.fail_with(2, "--set data.normalize", message,
                           arguments=["validate", recipe, "--set", "data.normalize=" + value])

    def test_fine_tuning_says_when_the_first_model_had_another(self):
        self.trained("float", body=LAYERS + SHORT)
        tuned = self.recipe(LAYERS + SHORT + QUANTIZE + "init: {checkpoint: float/last.safetensors}\n", "tuned.yaml")
        quiet = self.run_program("train", tuned, "--run-dir", "same")
        self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))
        self.change_training_data()
        mean = json.loads(metadata_of(self.path("float", "last.safetensors"))["data"])["mean"][0]
        result = self.run_program("validate", tuned)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(f"note: init.checkpoint was trained with data.normalize: {{mean: [{mean}], std: [", result.stderr)
        self.assertIn("]}, this run has {mean: [", result.stderr)

    def test_checkpoints_of_earlier_versions(self):
        body = LAYERS + CONSTANT + QUANTIZE
        run = self.trained("run", *STEPS, body=body)
        before = self.succeed("eval", run)
        os.makedirs(self.path("old"))
        for source, target in (("recipe.yaml", "recipe.yaml"), ("step-5.safetensors", "last.safetensors")):
            shutil.copy(os.path.join(run, source), self.path("old", target))
        as_earlier_version(self.path("old", "last.safetensors"))
        with open(self.path("old", "recipe.yaml")) as file:
            lines = [line for line in file if "normalize" not in line and "divergence_limit" not in line]
        with open(self.path("old", "recipe.yaml"), "w") as file:
            file.writelines(lines)
        result = self.run_program("eval", "old")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("note: old/last.safetensors: an earlier version wrote it, without its normalization", result.stderr)
        self.assertNotEqual(result.stdout, before)
        self.train(self.recipe(body), "old", *STEPS, "--resume")
        self.assertEqual(self.succeed("eval", "old").replace("old", run), before)
        self.assertEqual(self.tensors("old"), self.tensors("run"))


class OtherData(Recorded):
    def test_a_run_goes_on_with_its_own_data(self):
        recipe = self.recipe(LAYERS + SHORT)
        run = self.trained("run", *STEPS, body=LAYERS + SHORT)
        shutil.copy(os.path.join(run, "step-5.safetensors"), os.path.join(run, "last.safetensors"))
        record = json.loads(metadata_of(os.path.join(run, "last.safetensors"))["data"])
        self.change_training_data()
        self.fail_with(2, "run/last.safetensors: the training data is not what the run was trained on so far (sha256 " +
                       record["sha256"], "--other-data", arguments=["train", recipe, "--run-dir", "run", "--resume", *STEPS])
        self.assertEqual(self.run_program("train", recipe, "--run-dir", "new", "--other-data").returncode, 2)
        note = self.resume(recipe, "run", *STEPS, "--other-data").stderr
        self.assertRegex(note, r"^note: the training data is not what .*; inputs are normalized as before\n$")
        after = json.loads(metadata_of(os.path.join(run, "last.safetensors"))["data"])
        self.assertNotEqual(after.pop("sha256"), record.pop("sha256"))
        self.assertEqual(after, record)
        self.assertEqual(self.resume(recipe, "run", *STEPS).stderr, "note: the run is finished already (train.epochs: 2)\n")

    def test_what_does_not_go_on_with_other_data(self):
        recipe = self.recipe(LAYERS + SHORT)
        run = self.trained("run", body=LAYERS + SHORT)
        more = ["--set", "train.epochs=3", "--other-data"]
        self.change_training_data()
        self.assertIn("note: the best epoch so far was chosen on other data: forgotten\n",
                      self.resume(recipe, run, *more).stderr)
        write_gradients(self.path("larger"), seed=1, side=8, step=20, counts=(130, 40))
        result = self.run_program("train", recipe, "--run-dir", run, "--resume", "--set", "data.path=larger", *more)
        self.assertEqual(result.returncode, 2)
        self.assertIn("do not fit a run of 12 steps an epoch: resume with as many samples", result.stderr)

    def test_inputs_of_any_float_dtype(self):
        write_uniform(self.data, seed=3, outputs=2, counts=(100, 9))
        body = "model: {type: mlp, hidden: [4], classes: 2}\n" + SHORT
        self.trained("run", "--set", "train.loss=mse", "--set", "data.augment=[]", body=body)
        values = [0.25 * i for i in range(6)]
        write_safetensors(self.path("f64"), {"inputs": ("F64", [2, 3], struct.pack("<6d", *values))})
        write_safetensors(self.path("f32"), {"inputs": f32([2, 3], values)})
        self.assertEqual(self.succeed("predict", "run", "f64"), self.succeed("predict", "run", "f32"))

    def test_another_place_is_no_other_data(self):
        self.trained("run", body=LAYERS + SHORT)
        shutil.move(self.data, self.path("moved"))
        self.resume(self.recipe(LAYERS + SHORT), "run", "--set", "data.path=moved")
        self.assertIn("top-1", self.succeed("eval", "run"))

    def test_data_of_another_form(self):
        run = self.trained("run")
        for split, count in (("train", 100), ("test", 40)):
            write_split(self.data, split, ("U8", [count, 4, 16, 1], bytes(64 * count)),
                        i64([count], [i % 4 for i in range(count)]))
        self.fail_with(2, "trained on u8 [8, 8, 1], 4 classes, the dataset has u8 [4, 16, 1], 4 classes",
                       arguments=["eval", run])

    def test_what_is_not_finite_is_not_predicted(self):
        write_uniform(self.data, seed=3, outputs=2, counts=(100, 9))
        body = "model: {type: mlp, hidden: [4], classes: 2}\n" + SHORT + QUANTIZE.replace(", Conv2d", "")
        run = self.trained("run", "--set", "train.loss=mse", "--set", "data.augment=[]",
                           "--set", "export.formats=[safetensors]", body=body)
        values = [0.25] * 27
        for bad, text in ((float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf")):
            values[16] = bad
            write_safetensors(self.path("bad.safetensors"), {"inputs": f32([9, 3], values)})
            for model in (run, os.path.join(run, "export", "model.safetensors")):
                self.fail_with(2, f"bad.safetensors: inputs: sample 5: expected finite values, got {text} at [1]",
                               arguments=["predict", model, "bad.safetensors", "--strict"])
        values[16] = 3e38  # beyond what float computes on after it is normalized
        write_safetensors(self.path("bad.safetensors"), {"inputs": f32([9, 3], values)})
        self.trained("float", "--set", "train.loss=mse", "--set", "data.augment=[]", "--set", "quantize=null", body=body)
        self.fail_with(1, "bad.safetensors: sample 5: an output of the model is ", arguments=["predict", "float", "bad.safetensors", "--strict"])


class OtherRecipe(Recorded):
    def edit(self, run, old, new):
        path = self.path(run, "recipe.yaml")
        with open(path) as file:
            text = file.read()
        self.assertIn(old, text)
        with open(path, "w") as file:
            file.write(text.replace(old, new))

    def test_an_edited_recipe_is_noticed(self):
        run = self.trained("run")
        saved = self.path("recipe-as-saved.yaml")
        shutil.copy(os.path.join(run, "recipe.yaml"), saved)
        for old, new, key in (("bn_fold: frozen", "bn_fold: none", "quantize.bn_fold ('none', trained with 'frozen')"),
                              ("num_bits: 8", "num_bits: 4", "quantize.groups.0.weights.num_bits ('4', trained with '8'), "
                               "quantize.groups.0.activations.num_bits ('4', trained with '8')"),
                              ("batch_size: 10", "batch_size: 20", "data.batch_size ('20', trained with '10')"),
                              ("label_smoothing: 0", "label_smoothing: 0.5", "train.label_smoothing")):
            self.edit("run", old, new)
            for verb in (["eval", run], ["export", run], ["predict", run, self.path("data", "test.safetensors")]):
                self.fail_with(2, "recipe.yaml: is not the recipe that last.safetensors was trained with: " + key, arguments=verb)
            shutil.copy(saved, os.path.join(run, "recipe.yaml"))
        # What changes no result.
        self.edit("run", "tensorboard: false", "tensorboard: true")
        self.edit("run", "name: small", "name: large")
        self.succeed("eval", run)

    def test_a_checkpoint_from_elsewhere_is_of_the_same_model(self):
        run = self.trained("run")
        other = self.trained("other", "--seed", "8", "--set", "data.batch_size=20")
        self.succeed("eval", run, "--checkpoint", os.path.join(other, "last.safetensors"))
        four = self.trained("four", "--set", "quantize.groups.0.weights.num_bits=4")
        last = os.path.join(four, "last.safetensors")
        self.fail_with(2, f"error: {last}: is of another model than {run}: quantize.groups.0.weights.num_bits ('8', trained with '4')",
                       arguments=["eval", run, "--checkpoint", last])

    def test_resuming_names_the_keys_that_differ(self):
        recipe = self.recipe(LAYERS + SHORT)
        self.trained("run", body=LAYERS + SHORT)
        def refused(*keys, more):
            self.fail_with(2, "recipe.yaml: differs from the recipe given: ", *keys,
                           arguments=["train", recipe, "--run-dir", "run", "--resume", *more])
        refused("seed ('3', given '9'), data.augment ('[random_crop, flip]', given '[flip]'): resume with",
                more=["--seed", "9", "--set", "data.augment=[flip]"])
        refused("train.epochs ('2', given '1')", "train.epochs may only grow", more=["--set", "train.epochs=1"])
        refused("train.clip_grad_norm (nothing, given '1')", more=["--set", "train.clip_grad_norm=1"])
        self.resume(recipe, "run", "--set", "train.tensorboard=true", "--set", "train.divergence_limit=7")
        with open(self.path("run", "recipe.yaml")) as file:
            self.assertIn("divergence_limit: 7", file.read())
        # The same edit on both sides is none of the run's.
        self.edit("run", "seed: 3", "seed: 4")
        self.fail_with(2, "last.safetensors: differs from the recipe given: seed ('3', given '4')",
                       arguments=["train", recipe, "--run-dir", "run", "--resume", "--seed", "4",
                                  "--set", "train.tensorboard=true", "--set", "train.divergence_limit=7"])


class Longer(Recorded):
    def test_more_epochs_extend_a_finished_run(self):
        body = LAYERS + CONSTANT + QUANTIZE + "schedule: {freeze_observers: {epoch: 1}}\n"
        recipe = self.recipe(body)
        self.trained("whole", "--set", "train.epochs=4", body=body)
        self.trained("run", body=body)
        self.assertEqual(self.summary("run")["epochs"], 2)
        self.resume(recipe, "run", "--set", "train.epochs=4")
        self.assertEqual(self.sha("run", "last.safetensors"), self.sha("whole", "last.safetensors"))
        self.assertEqual(self.metrics("run"), self.metrics("whole"))
        self.assertEqual((self.summary("run")["epochs"], self.summary("run")["steps"]), (4, 36))
        self.succeed("eval", "run")
        self.fail_with(2, "train.epochs ('4', given '2')", arguments=["train", recipe, "--run-dir", "run", "--resume"])
        again = self.resume(recipe, "run", "--set", "train.epochs=4")
        self.assertEqual(again.stderr, "note: the run is finished already (train.epochs: 4)\n")

    def test_a_cosine_goes_on_on_the_longer_curve(self):
        recipe = self.recipe(LAYERS + SHORT)
        self.trained("run", body=LAYERS + SHORT)
        self.trained("whole", "--set", "train.epochs=4", body=LAYERS + SHORT)
        self.resume(recipe, "run", "--set", "train.epochs=4")
        rates = [[line["lr"] for line in self.metrics(run) if line["type"] == "step" and line["step"] > 18]
                 for run in ("run", "whole")]
        self.assertEqual(rates[0], rates[1])
        self.assertNotEqual(self.sha("run", "last.safetensors"), self.sha("whole", "last.safetensors"))


class LostBest(Recorded):
    def test_the_best_epoch_is_not_lost_without_a_word(self):
        # The loss of the first epoch is never reached again.
        body = LAYERS + ADAMW.replace("epochs: 6", "epochs: 4").replace("lr: 0.002", "lr: 0.05")
        recipe = self.recipe(body)
        whole = self.trained("whole", *STEPS, body=body)
        best = self.summary("whole")["best"]["epoch"]
        self.assertLess(best, 4, "the test needs a best epoch before the last")
        def begun(name, step, with_best=False):
            os.makedirs(self.path(name))
            shutil.copy(os.path.join(whole, "recipe.yaml"), self.path(name))
            shutil.copy(os.path.join(whole, f"step-{step}.safetensors"), self.path(name, "last.safetensors"))
            if with_best:
                shutil.copy(os.path.join(whole, "best.safetensors"), self.path(name))
        later = 9 * best + 3
        begun("kept", later, with_best=True)
        self.resume(recipe, "kept", *STEPS)
        self.assertEqual(self.sha("kept", "best.safetensors"), self.sha("whole", "best.safetensors"))
        begun("lost", later)
        self.fail_with(2, f"lost/best.safetensors: is missing, the best epoch so far was {best}", "--forget-best",
                       arguments=["train", recipe, "--run-dir", "lost", "--resume", *STEPS])
        note = self.resume(recipe, "lost", *STEPS, "--forget-best").stderr
        self.assertIn("forgotten, the best is chosen among the epochs that are left", note)
        self.assertGreater(self.summary("lost")["best"]["epoch"], best)
        self.assertTrue(os.path.exists(self.path("lost", "best.safetensors")))
        # Right after that epoch the last checkpoint is the best one.
        os.makedirs(self.path("again"))
        self.train(recipe, "again", "--set", f"train.epochs={best}")
        expected = self.sha("again", "best.safetensors")
        os.remove(self.path("again", "best.safetensors"))
        note = self.resume(recipe, "again", "--set", f"train.epochs={best}").stderr
        self.assertIn("written again, last.safetensors is of that epoch", note)
        self.assertEqual(self.sha("again", "best.safetensors"), expected)

    def test_a_later_best_epoch_of_another_curve(self):
        """A run that is set back comes to that epoch again, unless its learning rates are others now."""
        recipe = self.recipe(LAYERS + SHORT)
        self.trained("run", *STEPS, body=LAYERS + SHORT)
        self.assertEqual(self.summary("run")["best"]["epoch"], 2)
        best = self.sha("run", "best.safetensors")
        shutil.copy(self.path("run", "step-12.safetensors"), self.path("run", "last.safetensors"))
        with open(self.path("run", "recipe.yaml")) as file:
            before = file.read()
        longer = ["--set", "train.epochs=3", *STEPS]
        self.fail_with(2, "run/best.safetensors: is of epoch 2 with another train.epochs ('2', given '3'), the best epoch so far was 1",
                       arguments=["train", recipe, "--run-dir", "run", "--resume", *longer])
        with open(self.path("run", "recipe.yaml")) as file:
            self.assertEqual(file.read(), before)  # nothing is overwritten by what is refused
        self.resume(recipe, "run", *STEPS)
        self.assertEqual(self.sha("run", "best.safetensors"), best)

    def test_results_without_a_last_checkpoint_are_kept(self):
        recipe = self.recipe(LAYERS + SHORT)
        run = self.trained("run", body=LAYERS + SHORT)
        for name in ("last.safetensors", "summary.json"):
            os.remove(os.path.join(run, name))
        self.fail_with(2, "run: holds the results of a run but no last.safetensors",
                       arguments=["train", recipe, "--run-dir", run])

    def test_the_users_recipe_is_not_replaced(self):
        recipe = self.recipe(LAYERS + SHORT)
        self.fail_with(2, "recipe.yaml: is the recipe itself", "pass another --run-dir",
                       arguments=["train", recipe, "--run-dir", "."])
        with open(recipe) as file:
            self.assertIn(LAYERS + SHORT, file.read())


class Exploded(Recorded):
    def test_a_loss_beyond_the_limit_is_a_failure(self):
        write_uniform(self.data, seed=5, outputs=1, counts=(100, 40), largest_target=1e4)
        body = ("model: {classes: 1, layers: [{type: Linear, name: fc, out_features: 1}]}\n"
                "train: {epochs: 3, loss: mse, optimizer: {type: sgd, lr: 0.01, momentum: 0}}\n")
        recipe = self.recipe(body)
        more = ["--set", "data.augment=[]", "--set", "data.normalize_targets=false"]
        self.train(recipe, "large-targets", *more)  # a loss of 1e7 is where this task begins
        wild = [*more, "--set", "train.optimizer.lr=1.6"]
        result = self.fail_with(1, "failed: step ", "'s loss is ", "more than 100 times ", "divergence_limit",
                                arguments=["train", recipe, "--run-dir", "wild", *wild])
        last = self.metrics("wild")[-1]
        self.assertEqual((last["type"], "failed: " + last["what"] + "\n"), ("diverged", result.stderr))
        self.assertFalse(os.path.exists(self.path("wild", "summary.json")))
        # As it ended before there was a limit.
        self.train(recipe, "free", *wild, "--set", "train.divergence_limit=0")
        self.assertGreater(self.summary("free")["final"]["loss"], 1e10)
        self.fail_with(2, "error: --set train.divergence_limit: expected 0 or a number of at least 1", arguments=[
            "validate", recipe, "--set", "train.divergence_limit=0.5"])


class Validates(Recorded):
    def test_what_training_checks(self):
        recipe = self.recipe(LAYERS + SHORT)
        def refused(code, *fragments, more):
            self.fail_with(code, *fragments, arguments=["validate", recipe, *more])
        refused(2, "gone.safetensors", more=["--set", "init.checkpoint=gone.safetensors"])
        write_safetensors(self.path("init.safetensors"), {"stranger": ("F32", [1], bytes(4))})
        refused(2, "init.safetensors: tensors do not fit the model: missing: ", "unexpected: stranger",
                more=["--set", "init.checkpoint=init.safetensors"])
        self.trained("quantized", body=LAYERS + SHORT + QUANTIZE)
        refused(2, "; these are the weights of a quantized model, those of a float one are needed",
                more=["--set", "init.checkpoint=quantized/last.safetensors"])
        refused(2, "gone.safetensors", more=["--set", "train.distill={checkpoint: gone.safetensors}"])
        refused(4, "cuda:99", "is not available: ", more=["--device", "cuda:99"])
        refused(4, "cuda:99", "is not available: ", more=["--set", "device=cuda:99"])
        for split, count in (("train", 30), ("test", 10)):
            write_split(self.path("one"), split, ("U8", [count, 8, 8, 1], bytes(64 * count)), i64([count], [3] * count))
        result = self.run_program("validate", recipe, "--set", "data.path=one")
        self.assertEqual((result.returncode, result.stderr),
                         (0, "note: all 30 training samples have the label 3: there is nothing to tell apart\n"
                             "note: all values of all training samples are the same: inputs say nothing\n"))
        for split, count in (("train", 30), ("test", 10)):
            write_split(self.path("one"), split, ("U8", [count, 8, 8, 1], bytes(64 * count - 1) + b"1"),
                        i64([count], [1 + i % 3 for i in range(count)]))
        for command in ("validate", "data"):
            result = self.run_program(command, recipe, "--set", "data.path=one", "--set", "model.classes=4")
            self.assertEqual((result.returncode, result.stderr),
                             (0, "note: no training sample has the label 0, the smallest is 1: labels count from 0, "
                                 "so the model has outputs for classes that never come\n"))
        for split, count in (("train", 11), ("test", 1)):
            write_split(self.path("long"), split, ("U8", [count, 66312], bytes(66312 * count)), i64([count], list(range(count))))
        long = self.recipe("model: {layers: [{type: Linear, name: fc, out_features: 11}]}\n" + SHORT
                           + QUANTIZE.replace("num_bits: 8", "num_bits: 4").replace(", Conv2d", ""), "long.yaml")
        flat = ["--set", "data.path=long", "--set", "data.augment=[]"]
        self.succeed("validate", long, *flat)
        for wide in ("quantize={groups: [{targets: [Linear], weights: {}, activations: {}}]}", "schedule={bits: [{until: 1, weights: 8, activations: 8}]}"):
            self.fail_with(2, "quantize.groups.0.targets: fc: expected at most 66311 products per output, ", "got 66312",
                           arguments=["validate", long, *flat, "--set", wide])
        refused(2, "train.matmul_precision: tf32 needs a CUDA device",
                more=["--device", "cpu", "--set", "train.matmul_precision=tf32"])


if __name__ == "__main__":
    unittest.main()
