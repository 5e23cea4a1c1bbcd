"""Training helpers as a user runs them: what they do, their messages, and resuming to the same bits."""
import json
import os
import shutil
import struct

from cli_case import Case, LAYERS, QUANTIZE, SGD


def tensors_of(path):
    """{name: (dtype, shape, bytes)} of a safetensors file, by the format's description alone."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def floats(tensor):
    return struct.unpack(f"<{len(tensor[2]) // 4}f", tensor[2])


class Helpers(Case):
    def rejected(self, body, *fragments, more=()):
        self.fail_with(2, *fragments, arguments=["train", self.recipe(body), *more])


class Distill(Helpers):
    def setUp(self):
        super().setUp()
        self.train(self.recipe(LAYERS + SGD), "teacher")
        self.teacher = self.path("teacher", "last.safetensors")
        self.body = (LAYERS + SGD.replace("epochs: 6", f"epochs: 6, distill: {{checkpoint: {self.teacher}}}")
                     + QUANTIZE.replace("num_bits: 8", "num_bits: 4"))

    def test_resumes_and_leaves_no_trace_in_checkpoints(self):
        self.resumes("distilled", self.body)
        self.train(self.recipe(self.body.replace(f"distill: {{checkpoint: {self.teacher}}}", "loss: cross_entropy")), "plain")
        distilled, plain = (tensors_of(self.path(run, "last.safetensors")) for run in ("distilled", "plain"))
        self.assertEqual(distilled.keys(), plain.keys())
        self.assertNotEqual(distilled, plain)

    def test_another_teacher_is_refused(self):
        recipe = self.recipe(self.body)
        self.train(recipe, "run", "--set", "train.epochs=1")
        self.train(self.recipe(LAYERS + SGD, "other.yaml"), "other", "--set", "seed=9")
        shutil.copy(self.path("other", "last.safetensors"), self.teacher)
        self.fail_with(2, "run/last.safetensors: train.distill.checkpoint is not the checkpoint that the run was trained with",
                       arguments=["train", recipe, "--run-dir", "run", "--resume"])

    def test_the_teacher_is_needed_for_training_only(self):
        self.train(self.recipe(self.body), "run")
        os.remove(self.teacher)
        self.assertIn("top-1", self.succeed("eval", "run"))
        self.assertIn("0 of", self.succeed("verify", "run"))
        self.rejected(self.body, "recipe.yaml:17:42: ", "teacher/last.safetensors: cannot open")

    def test_the_memory_estimate_has_a_line_for_it(self):
        self.assertRegex(self.succeed("train", self.recipe(self.body), "--dry-run"), r"teacher +0\.\d\d")
        self.assertNotIn("teacher ", self.succeed("train", self.recipe(LAYERS + SGD), "--dry-run"))

    def test_wrong_recipes(self):
        self.rejected(self.body.replace("{checkpoint:", "{temperature: 0, checkpoint:"), "recipe.yaml:17:43: expected a number above 0 and at most 1000, got '0'")
        self.rejected(self.body.replace("{checkpoint:", "{weight: 0, checkpoint:"), "recipe.yaml:17:38: expected a number above 0 and at most 1, got '0'")
        self.rejected(self.body, "distill needs the loss cross_entropy or token_cross_entropy, got mse", more=["--set", "train.loss=mse"])
        self.rejected(self.body.replace("out_channels: 8", "out_channels: 4"), "recipe.yaml:", self.teacher,
                      "wrong shape: ", "block.a.weight expected [4, 4, 3, 3] got [8, 8, 3, 3]")
        self.train(self.recipe(self.body), "quantized")
        self.rejected(self.body.replace(self.teacher, self.path("quantized", "last.safetensors")), "recipe.yaml:", "unexpected: ")


class Ema(Helpers):
    SCHEDULE = "schedule: {fake_quant: {from: 1}, freeze_observers: {epoch: 4}}\n"

    def body(self, rest="", decay=0.9):
        return LAYERS + SGD.replace("epochs: 6", f"epochs: 6, ema: {{decay: {decay}}}") + rest

    def test_resumes(self):
        quantized = QUANTIZE.replace("num_bits: 8", "num_bits: 4")
        self.resumes("float", self.body())
        self.resumes("ste", self.body(quantized + self.SCHEDULE))
        self.resumes("lsq", self.body(quantized + "  algorithm: {method: lsq_plus}\n" + self.SCHEDULE))
        self.resumes("folded", self.body(quantized + "  bn_fold: one_convolution\nschedule: {reestimate_bn: {batches: 4}}\n"))

    def test_named_tensors_are_the_averages(self):
        body = self.body(QUANTIZE.replace("num_bits: 8", "num_bits: 4") + "  bn_fold: none\n")
        self.train(self.recipe(body), "run", "--set", "train.epochs=2", "--set", "train.checkpoint_every_steps=1",
                   "--set", "train.keep_step_checkpoints=true")
        names = ("conv.weight", "block.a.bias", "fc.weight", "bn.running_mean", "bn.running_var")
        average = {}
        for step in range(1, 18):
            tensors = tensors_of(self.path("run", f"step-{step}.safetensors"))
            decay = 0 if step == 1 else min(0.9, step / (9 + step))
            for name in names:
                trained = floats(tensors[name + "/trained"])
                old = average.get(name, trained)
                average[name] = [decay * a + (1 - decay) * t for a, t in zip(old, trained)]
                for a, b in zip(average[name], floats(tensors[name])):
                    self.assertAlmostEqual(a, b, delta=1e-6 + 1e-5 * abs(a), msg=f"{name} step {step}")
            # Ranges are those of the averaged weights: int4 symmetric narrow, so amax / 7.
            weight, scales = floats(tensors["fc.weight"]), floats(tensors["fc.weight_quantizer.scale"])
            for row, scale in enumerate(scales):
                size = len(weight) // 4
                self.assertAlmostEqual(max(map(abs, weight[row * size:(row + 1) * size])) / 7, scale, delta=1e-6)

    def test_what_is_reported_and_deployed_is_the_average(self):
        self.train(self.recipe(self.body(QUANTIZE, decay=0.99)), "run")
        top1 = self.summary("run")["final"]["top1"]
        self.assertIn(f"{top1:.2f}", self.succeed("eval", "run"))
        self.assertRegex(self.succeed("verify", "run"), r"0 of \d+ codes differ")
        # A run that starts from the checkpoint starts from the averages: nothing with a slash is loaded.
        self.train(self.recipe(self.body(decay=0.99)), "float")
        start = LAYERS + SGD.replace("lr: 0.02", "lr: 1.0e-30") + f"init: {{checkpoint: {self.path('float', 'last.safetensors')}}}\n"
        self.train(self.recipe(start, "start.yaml"), "start", "--set", "train.epochs=1")
        first, second = (tensors_of(self.path(run, "last.safetensors")) for run in ("float", "start"))
        self.assertEqual(first["fc.weight"], second["fc.weight"])
        self.assertNotEqual(first["fc.weight"], first["fc.weight/trained"])

    def test_the_memory_estimate_has_a_line_for_it(self):
        out = self.succeed("train", self.recipe(self.body()), "--dry-run", "--set", "model.layers.0.out_channels=64",
                           "--set", "model.layers.4.main.0.out_channels=64")
        rows = {line.split("  ")[1]: float(line.split()[-1]) for line in out.splitlines() if line.startswith("  ")}
        self.assertAlmostEqual(rows["weight averages"], rows["parameters"], delta=0.01)
        self.assertGreater(rows["parameters"], 0.1)

    def test_wrong_recipes(self):
        self.rejected(self.body(decay=1), "recipe.yaml:17:33: expected a number from 0 to 0.999999, got '1'")


class Stages(Helpers):
    """The helpers together, over widths that change and activations that start later."""

    def test_resume(self):
        self.train(self.recipe(LAYERS + SGD), "float")
        teacher = self.path("float", "last.safetensors")
        schedule = ("schedule: {bits: [{until: 2, weights: 8}, {until: 4, weights: 4}], "
                    "fake_quant: {from: 0, activations_from: 1}}\n")
        # Scales of 8 bits are small: with the weights' own learning rate they diverge on this model.
        for method in ("ste", "lsq, scale_lr: 0.02", "pact"):
            body = (LAYERS + SGD.replace("epochs: 6", f"epochs: 6, ema: {{decay: 0.99}}, distill: {{checkpoint: {teacher}}}")
                    + QUANTIZE.replace("num_bits: 8", "num_bits: 3") + f"  algorithm: {{method: {method}}}\n"
                    + "  oscillations: {momentum: 0.1, damping: {}, freeze_threshold: {start: 0.3, end: 0.15}}\n" + schedule)
            run = method.split(",")[0]
            self.resumes(run, body, steps=(5, 18, 19, 36, 54))
            self.assertRegex(self.succeed("verify", run), r"0 of \d+ codes differ")
            # The averaged latent began anew with the last width: it is near the trained one.
            tensors = tensors_of(self.path(run, "last.safetensors"))
            name = "fc.weight_quantizer.learned_scale"
            if name in tensors:
                for averaged, trained in zip(floats(tensors[name]), floats(tensors[name + "/trained"])):
                    self.assertLess(abs(averaged / trained - 1), 0.3)


    def test_the_best_epoch_is_one_with_the_final_widths(self):
        for name, schedule in (("bits", "bits: [{until: 4, weights: 8}]"), ("late", "fake_quant: {from: 4}"),
                               ("activations", "fake_quant: {from: 0, activations_from: 4}")):
            body = (LAYERS + SGD.replace("lr: 0.02", "lr: 0.1") + QUANTIZE.replace("num_bits: 8", "num_bits: 2")
                    + f"schedule: {{{schedule}}}\n")
            self.resumes(name, body, steps=(18, 40))
            self.assertGreater(self.summary(name)["best"]["epoch"], 4)
            self.succeed("export", name, "--format", "safetensors", "--checkpoint", "best")
            graph = self.succeed("inspect", "--graph", os.path.join(name, "export", "model.safetensors"))
            self.assertIn("int2", graph)
            self.assertNotIn("int8", graph)
            self.check_early_checkpoint(name, "has 8 bits" if name == "bits" else "is off")

    def check_early_checkpoint(self, run, how):
        """What is not in its final form yet is no model to deploy, and eval says so."""
        early = ["--checkpoint", os.path.join(run, "step-18.safetensors")]
        self.fail_with(2, "export: the quantizer ", how + " in this checkpoint", arguments=["export", run, *early])
        note = f"note: not quantized as planned yet: the quantizer .* {how} in this checkpoint"
        self.assertRegex(self.run_program("eval", run, *early).stderr, note)
        self.assertEqual(self.run_program("eval", run).stderr, "")


class Oscillations(Helpers):
    FREEZE = "  oscillations: {momentum: 0.1, damping: {end: 0.01}, freeze_threshold: {start: 0.2, end: 0.05}}\n"

    def body(self, rest, train="epochs: 6"):
        return LAYERS + SGD.replace("epochs: 6", train).replace("lr: 0.02", "lr: 0.1") + QUANTIZE.replace("num_bits: 8", "num_bits: 3") + rest

    def test_resumes_with_frozen_weights(self):
        for method in ("ste", "lsq"):
            rest = self.FREEZE + f"  algorithm: {{method: {method}}}\nschedule: {{fake_quant: {{from: 1}}}}\n"
            self.resumes(method, self.body(rest, train="epochs: 6, ema: {decay: 0.9}"))
            epochs = [line for line in self.metrics(method) if line["type"] == "epoch"]
            frozen = [line["frozen_weights_percent"] for line in epochs]
            self.assertEqual(frozen, sorted(frozen), "what is frozen stays so")
            self.assertEqual(frozen[0], 0, "not quantized yet")
            self.assertGreater(frozen[-1], 1)
            self.assertRegex(self.succeed("verify", method), r"0 of \d+ codes differ")
            tensors = tensors_of(self.path(method, "last.safetensors"))
            marks = b"".join(raw for name, (_, _, raw) in tensors.items() if name.endswith("/frozen"))
            self.assertAlmostEqual(100 * sum(marks) / len(marks), frozen[-1], places=9)

    def test_reports_without_stopping_any(self):
        self.train(self.recipe(self.body("  oscillations: {momentum: 0.1}\n")), "watched")
        self.train(self.recipe(self.body("")), "plain")
        watched, plain = (tensors_of(self.path(run, "last.safetensors")) for run in ("watched", "plain"))
        self.assertEqual({name: tensor for name, tensor in watched.items() if name in plain}, plain)
        last = [line for line in self.metrics("watched") if line["type"] == "epoch"][-1]
        self.assertEqual(last["frozen_weights_percent"], 0)
        self.assertGreater(last["oscillating_weights_percent"], 1)

    def test_a_calibrated_run_trains_on(self):
        self.train(self.recipe(LAYERS + SGD), "float")
        recipe = self.recipe(self.body(self.FREEZE, train="epochs: 2, ema: {}") + "init: {checkpoint: float/last.safetensors}\n")
        self.succeed("calibrate", recipe, "--run-dir", "run")
        self.train(recipe, "run", "--resume")
        self.assertEqual(self.summary("run")["steps"], 18)

    def test_messages_and_memory(self):
        self.rejected(self.body("  bn_fold: one_convolution\n" + self.FREEZE), "recipe.yaml:",
                      "oscillations needs bn_fold frozen or none, got one_convolution")
        only_activations = [f"--set=quantize.groups.0.weights=null"]
        self.rejected(self.body(self.FREEZE), "recipe.yaml:", "oscillations: no layer that is trained has quantized weights", more=only_activations)
        out = self.succeed("train", self.recipe(self.body(self.FREEZE)), "--dry-run")
        self.assertRegex(out, r"oscillations +0\.0[12]\n")  # 1,168 weights, 11 bytes each


class Only(Helpers):
    def body(self, only, rest=""):
        return LAYERS + SGD.replace("epochs: 6", f"epochs: 6, only: [{only}]") + rest

    def changed(self, run, first):
        """Names whose tensors differ between two checkpoints of a run, training state left out."""
        before, after = (tensors_of(self.path(run, file)) for file in (first, "last.safetensors"))
        self.assertEqual(before.keys(), after.keys())
        return {name for name in before if before[name] != after[name] and "/" not in name}, after

    def test_float(self):
        self.resumes("run", self.body("fc"))
        changed, tensors = self.changed("run", "step-1.safetensors")
        self.assertEqual(changed, {"fc.weight", "fc.bias"})
        self.assertEqual({name for name in tensors if "/" in name}, {"fc.weight/momentum", "fc.bias/momentum"})

    def test_quantized(self):
        self.train(self.recipe(LAYERS + SGD), "float")
        start = f"init: {{checkpoint: {self.path('float', 'last.safetensors')}}}\ncalibrate: {{batches: 4}}\n"
        for method in ("ste", "lsq"):
            rest = QUANTIZE.replace("num_bits: 8", "num_bits: 4") + f"  algorithm: {{method: {method}}}\n"
            recipe = self.resumes(method, self.body("fc", rest + start))
            changed, _ = self.changed(method, "step-1.safetensors")
            self.assertTrue({"fc.weight", "fc.bias", "fc.weight_quantizer.scale", "fc.output_quantizer.scale"} <= changed)
            self.assertEqual([name for name in changed if not name.startswith("fc.")], [])
            self.assertRegex(self.succeed("verify", method), r"0 of \d+ codes differ")
            # What stays is what calibration found.
            self.succeed("calibrate", recipe, "--run-dir", method + "-calibrated")
            calibrated = tensors_of(self.path(method + "-calibrated", "last.safetensors"))
            trained = tensors_of(self.path(method, "last.safetensors"))
            for name in calibrated:
                if name.endswith((".scale", ".zero_point", ".weight", ".bias")) and not name.startswith("fc."):
                    self.assertEqual(trained[name], calibrated[name], name)

    def test_output(self):
        out = self.succeed("train", self.recipe(self.body("fc")), "--dry-run")
        self.assertIn("516 of the parameters are trained (train.only)", out)  # 4 x 128 weights, 4 biases
        self.assertNotIn("train.only", self.succeed("train", self.recipe(LAYERS + SGD), "--dry-run"))

    def test_wrong_recipes(self):
        self.rejected(self.body("fd"), "recipe.yaml:17:27: train.only: 'fd' matches no module (did you mean 'fc'?)")
        self.rejected(self.body("ReLU"), "train.only: 'ReLU' names only modules without parameters")
        self.rejected(self.body("fc", QUANTIZE), "recipe.yaml:17:26: train.only with 'quantize' needs 'calibrate'")
        self.rejected(self.body("fc", "schedule: {reestimate_bn: {batches: 2}}\n"), "recipe.yaml:17:26: ", "schedule.reestimate_bn")
        oscillations = QUANTIZE.replace("Linear, ", "") + "  oscillations: {}\ncalibrate: {batches: 2}\n"
        unfitting = "recipe.yaml:24:17: oscillations: no layer that is trained has quantized weights"
        self.rejected(self.body("fc", oscillations), unfitting)
        self.fail_with(2, unfitting, arguments=["validate", self.path("recipe.yaml")])
        self.rejected(self.body("bn", QUANTIZE + "calibrate: {batches: 2}\n"), "recipe.yaml:17:26: train.only: no module is left to train")
