"""Training on a GPU through the command line; the program is linked with the emulated one."""
import os
import re
import shutil
import struct
import unittest

from cli_test import ADAMW, Case, LAYERS, QUANTIZE, SGD, write_safetensors

PLAIN = LAYERS.replace("    - {type: Dropout, p: 0.1}\n", "")


class Training(Case):
    def losses(self, run):
        return [line["train_loss"] for line in self.metrics(run) if line["type"] == "epoch"]

    def close(self, a, b, tolerance):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertAlmostEqual(x, y, delta=tolerance * abs(y))

    def both(self, body, *more):
        recipe = self.recipe(body)
        self.train(recipe, "gpu", "--device", "cuda", *more)
        self.train(recipe, "cpu", "--device", "cpu", *more)
        self.assertEqual(self.summary("gpu")["device"], "cuda:0")
        self.assertEqual(self.summary("cpu")["device"], "cpu")
        self.close(self.losses("gpu"), self.losses("cpu"), 1e-4)
        return recipe

    def test_gives_the_cpus_losses(self):
        self.both(PLAIN + SGD)
        # Two steps of each epoch come before recording, the last batch may be smaller.
        self.assertGreater(self.summary("gpu")["recorded_steps"], 30)
        self.assertNotIn("not_recorded", self.summary("gpu"))

    def test_draws_the_same_random_numbers(self):
        self.both(LAYERS + ADAMW)
        self.assertEqual(self.summary("gpu")["recorded_steps"], 0)
        self.assertEqual(self.summary("gpu")["not_recorded"], "a step draws random numbers")

    def test_recorded_steps_change_nothing(self):
        recipe = self.recipe(PLAIN + SGD)
        self.train(recipe, "recorded")
        self.train(recipe, "eager", "--set", "train.cuda_graph=off")
        self.assertEqual(self.summary("eager")["recorded_steps"], 0)
        self.assertEqual(self.losses("recorded"), self.losses("eager"))
        self.assertEqual(self.metrics("recorded"), self.metrics("eager"))

    def test_steps_that_observe_are_recorded(self):
        for weights, activations in (("mse", "histogram"), ("entropy", "percentile"), ("histogram", "mse"), ("percentile", "entropy")):
            recipe = self.recipe(PLAIN + SGD + QUANTIZE.replace("min_max", weights).replace("moving_average", activations))
            for run, more in (("recorded", []), ("eager", ["--set", "train.cuda_graph=off"])):
                self.train(recipe, f"{weights}-{run}", "--set", "train.epochs=1", *more)
            self.assertEqual(self.summary(f"{weights}-recorded")["recorded_steps"], 7)
            self.assertNotIn("not_recorded", self.summary(f"{weights}-recorded"))
            self.assertEqual(self.summary(f"{weights}-eager")["recorded_steps"], 0)
            self.assertEqual(self.metrics(f"{weights}-recorded"), self.metrics(f"{weights}-eager"))
            self.assertEqual(self.sha(f"{weights}-recorded", "last.safetensors"), self.sha(f"{weights}-eager", "last.safetensors"))

    def test_observers_move_between_devices(self):
        keep = ["--set", "train.epochs=1", "--set", "train.checkpoint_every_steps=5", "--set", "train.keep_step_checkpoints=true"]
        for weights, activations in (("mse", "histogram"), ("entropy", "percentile")):
            recipe = self.recipe(PLAIN + SGD + QUANTIZE.replace("min_max", weights).replace("moving_average", activations))
            for device in ("cpu", "cuda"):
                self.train(recipe, f"{weights}-{device}", "--device", device, *keep)
            for first, then in (("cuda", "cpu"), ("cpu", "cuda")):
                rest = f"{weights}-{first}-{then}"
                os.makedirs(self.path(rest))
                shutil.copy(self.path(f"{weights}-{first}", "recipe.yaml"), self.path(rest, "recipe.yaml"))
                shutil.copy(self.path(f"{weights}-{first}", "step-5.safetensors"), self.path(rest, "last.safetensors"))
                self.succeed("train", recipe, "--run-dir", self.path(rest), "--resume", "--device", then, *keep)
                self.close([self.summary(rest)["final"]["loss"]], [self.summary(f"{weights}-cpu")["final"]["loss"]], 2e-2)

    def test_runs_of_one_seed_are_equal(self):
        recipe = self.recipe(PLAIN + SGD)
        for run in "ab":
            self.train(recipe, run)
        self.assertEqual(self.summary("a")["checkpoint_sha256"], self.summary("b")["checkpoint_sha256"])

    def test_checkpoints_move_between_devices(self):
        recipe = self.recipe(PLAIN + SGD)
        self.train(recipe, "cpu", "--device", "cpu")
        for first, then in (("cuda", "cpu"), ("cpu", "cuda")):
            run = f"{first}-{then}"
            self.train(recipe, run, "--device", first, "--set", "train.checkpoint_every_steps=20", "--set", "train.keep_step_checkpoints=true")
            # Goes on from the middle on the other device.
            os.makedirs(self.path(run + "-rest"))
            shutil.copy(self.path(run, "recipe.yaml"), self.path(run + "-rest", "recipe.yaml"))
            shutil.copy(self.path(run, "step-20.safetensors"), self.path(run + "-rest", "last.safetensors"))
            self.succeed("train", recipe, "--run-dir", self.path(run + "-rest"), "--resume", "--device", then,
                         "--set", "train.checkpoint_every_steps=20", "--set", "train.keep_step_checkpoints=true")
            rest = self.summary(run + "-rest")
            self.assertEqual(rest["device"], {"cpu": "cpu", "cuda": "cuda:0"}[then])
            self.close([rest["final"]["loss"]], [self.summary("cpu")["final"]["loss"]], 1e-3)

    def test_what_only_a_gpu_does(self):
        recipe = self.recipe(PLAIN + SGD)
        for more in ([], ["--dry-run"]):
            refused = self.fail_with(2, "--set train.matmul_precision: ", "matmul_precision: tf32 needs a CUDA device",
                                     arguments=["train", recipe, "--run-dir", self.path("x"), "--device", "cpu",
                                                "--set", "train.matmul_precision=tf32", *more])
            self.assertEqual(refused.stdout, "")
            self.assertFalse(os.path.exists(self.path("x")))
        self.fail_with(2, "matmul_precision: tf32 needs a CUDA device",
                       arguments=["validate", recipe, "--set", "device=cpu", "--set", "train.matmul_precision=tf32"])
        self.succeed("validate", recipe, "--set", "device=cuda", "--set", "train.matmul_precision=tf32")
        self.train(recipe, "bf16", "--set", "train.matmul_precision=bf16")

    def test_bf16_products_train_everywhere_and_are_not_evaluated(self):
        recipe = self.both(PLAIN + SGD, "--set", "train.matmul_precision=float32")
        for device in ("cpu", "cuda"):
            self.train(recipe, device + "-bf16", "--device", device, "--set", "train.matmul_precision=bf16")
            self.close(self.losses(device + "-bf16"), self.losses("cpu"), 0.05)
            self.assertNotEqual(self.losses(device + "-bf16"), self.losses("cpu"))
            loss = float(re.search(r"loss ([\d.]+)", self.succeed("eval", self.path(device + "-bf16"))).group(1))
            self.assertAlmostEqual(loss, self.summary(device + "-bf16")["final"]["loss"], delta=1e-4)

    def test_the_dry_run_tells_host_and_gpu_apart(self):
        recipe = self.recipe(PLAIN + SGD)
        here = self.succeed("train", recipe, "--dry-run", "--device", "cpu")
        there = self.succeed("train", recipe, "--dry-run", "--device", "cuda")
        self.assertNotIn("and on", here)
        host, gpu = (dict(re.findall(r"(?m)^  (\S.*?) +([\d.]+)$", part)) for part in there.split("and on cuda:0:\n"))
        cpu = dict(re.findall(r"(?m)^  (\S.*?) +([\d.]+)$", here))
        self.assertEqual(set(host), {"program", "dataset", "batches made ahead", "total"})
        self.assertEqual(set(host) | set(gpu), set(cpu) | {"batches"})
        for kind in ("parameters", "gradients", "optimizer state", "saved activations"):
            self.assertEqual(gpu[kind], cpu[kind], kind)
        for part in (host, gpu):
            parts = [float(size) for kind, size in part.items() if kind != "total"]
            self.assertAlmostEqual(float(part["total"]), sum(parts), delta=0.01 * len(parts))

    def test_divergence_names_the_step_that_was_read(self):
        recipe = self.recipe(PLAIN + SGD)
        # 18 steps an epoch: the first loss is read after step 10.
        self.fail_with(1, "failed: step 10: loss is ", arguments=[
            "train", recipe, "--run-dir", self.path("x"), "--set", "train.optimizer.lr=1e6", "--set", "data.batch_size=5"])

    def test_a_step_checkpoint_never_follows_an_infinite_loss(self):
        recipe = self.recipe("model: {classes: 1, layers: [{type: Flatten}, {type: Linear, out_features: 1}]}\n" + SGD)
        for split, count in (("train", 100), ("test", 40)):
            write_safetensors(self.path("data", split + ".safetensors"),
                              {"inputs": ("U8", [count, 8, 8, 1], bytes(64 * count)),
                               "targets": ("F32", [count, 1], struct.pack("<f", 1e30) * count)})
        self.fail_with(1, "first non-finite tensor: the epoch's loss", arguments=[
            "train", recipe, "--run-dir", self.path("x"), "--set", "train.loss=mse", "--set", "train.optimizer.lr=1e-30",
            "--set", "train.checkpoint_every_steps=1"])
        self.assertFalse(os.path.exists(self.path("x", "last.safetensors")))


if __name__ == "__main__":
    unittest.main()
