"""Training helpers as a user runs them: what they do, their messages, and resuming to the same bits."""
import json
import os
import shutil

from cli_test import Case, LAYERS, QUANTIZE, SGD, write_dataset


def tensors_of(path):
    """{name: (dtype, shape, bytes)} of a safetensors file, by the format's description alone."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


class Helpers(Case):
    def resumes(self, name, body, steps=(5, 18, 40, 54)):
        """Trains whole, then from some steps' checkpoints to the same bits and the same metrics."""
        recipe = self.recipe(body)
        more = ["--set", "train.checkpoint_every_steps=1", "--set", "train.keep_step_checkpoints=true"]
        self.train(recipe, name, *more)
        expected = self.sha(name, "last.safetensors")
        for step in steps:
            run = f"{name}-from-{step}"
            os.makedirs(self.path(run))
            for file in ("recipe.yaml", "metrics.jsonl"):
                shutil.copy(self.path(name, file), self.path(run))
            shutil.copy(self.path(name, f"step-{step}.safetensors"), self.path(run, "last.safetensors"))
            self.train(recipe, run, *more, "--resume")
            self.assertEqual(self.sha(run, "last.safetensors"), expected, f"{name} resumed from step {step}")
            self.assertEqual(self.metrics(run), self.metrics(name), f"{name} resumed from step {step}")
            self.assertEqual(self.summary(run)["final"], self.summary(name)["final"])
        return recipe

    def metrics(self, run):
        with open(self.path(run, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file]
        for line in lines:
            line.pop("seconds", None)
        return lines

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
        self.rejected(self.body, "distill needs the loss cross_entropy, got mse", more=["--set", "train.loss=mse"])
        self.rejected(self.body.replace("out_channels: 8", "out_channels: 4"), "recipe.yaml:", self.teacher,
                      "wrong shape: ", "conv.weight expected [4, 1, 3, 3] got [8, 1, 3, 3]")
        self.train(self.recipe(self.body), "quantized")
        self.rejected(self.body.replace(self.teacher, self.path("quantized", "last.safetensors")), "recipe.yaml:", "unexpected: ")
