"""Training on a GPU through the command line; the program is linked with the emulated one."""
import os
import re
import unittest

from cli_case import ADAMW, Case, LAYERS, QUANTIZE, SGD
from support.data_files import f32, write_split

PLAIN = LAYERS.replace("    - {type: Dropout, p: 0.1}\n", "")

FOUR_BITS = QUANTIZE.replace("num_bits: 8, symmetric: true", "num_bits: 4, symmetric: true").replace("num_bits: 8, sym", "num_bits: 6, sym")
OSCILLATIONS = FOUR_BITS + """  oscillations:
    momentum: 0.2
    damping: {start: 0, end: 0.05}
    freeze_threshold: {start: 0.5, end: 0.15}
"""
PROGRESSIVE = """schedule:
  bits:
    - {until: 1, weights: 6, activations: 8}
    - {until: 2, weights: 5, activations: 7}
"""


class DeviceCase(Case):
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


class Training(DeviceCase):
    def test_gives_the_cpus_losses(self):
        self.both(PLAIN + SGD)
        # Two steps of each epoch come before recording, the last batch may be smaller.
        self.assertGreater(self.summary("gpu")["captured_steps"], 30)
        self.assertNotIn("not_captured", self.summary("gpu"))

    def test_draws_the_same_random_numbers(self):
        self.both(LAYERS + ADAMW)
        self.assertEqual(self.summary("gpu")["captured_steps"], 6 * 7)
        self.assertNotIn("not_captured", self.summary("gpu"))

    def test_observers_move_between_devices(self):
        keep = ["--set", "train.epochs=1", "--set", "train.checkpoint_every_steps=5", "--set", "train.keep_step_checkpoints=true"]
        for weights, activations in (("mse", "histogram"), ("entropy", "percentile")):
            recipe = self.recipe(PLAIN + SGD + QUANTIZE.replace("min_max", weights).replace("moving_average", activations))
            for device in ("cpu", "cuda"):
                self.train(recipe, f"{weights}-{device}", "--device", device, *keep)
            for first, then in (("cuda", "cpu"), ("cpu", "cuda")):
                rest = f"{weights}-{first}-{then}"
                self.copy_as_stopped(f"{weights}-{first}", 5, rest)
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
            self.copy_as_stopped(run, 20, run + "-rest")
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
            write_split(self.data, split, ("U8", [count, 8, 8, 1], bytes(64 * count - 1) + b"\1"),
                        f32([count, 1], [1e30] * count))
        self.fail_with(1, "first non-finite tensor: the epoch's loss", arguments=[
            "train", recipe, "--run-dir", self.path("x"), "--set", "train.loss=mse", "--set", "train.optimizer.lr=1e-30",
            "--set", "train.checkpoint_every_steps=1", "--set", "data.normalize_targets=false"])
        self.assertFalse(os.path.exists(self.path("x", "last.safetensors")))

    def test_says_where_it_trains(self):
        recipe = self.recipe(PLAIN + SGD)
        self.assertIn(" on cuda:0\n", self.succeed("train", recipe, "--dry-run"))
        self.assertIn(" on cpu\n", self.succeed("train", recipe, "--dry-run", "--device", "cpu"))


class Failures(Case):
    """Of the emulated GPU, which fails on demand."""
    KEEP = ["--set", "train.checkpoint_every_steps=5"]

    def fail_in(self, recipe, run, fragment, *more, **environment):
        result = self.run_program("train", recipe, "--run-dir", self.path(run), *self.KEEP, *more, **environment)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(fragment, result.stderr)
        return result.stderr

    def goes_on(self, recipe, run):
        self.succeed("train", recipe, "--run-dir", self.path(run), "--resume", *self.KEEP)
        self.assertEqual(self.summary(run)["checkpoint_sha256"], self.summary("whole")["checkpoint_sha256"])

    def test_memory_that_is_used_up_loses_nothing(self):
        recipe = self.recipe(PLAIN + SGD)
        self.train(recipe, "whole", *self.KEEP)
        self.fail_in(recipe, "x", "unspecified launch failure", STEELYARD_EMULATED_LOSS="1500")
        before = self.sha("x", "last.safetensors")
        said = self.fail_in(recipe, "x", "failed: out of memory on cuda:0: ", "--resume", STEELYARD_EMULATED_MEMORY="200000")
        self.assertRegex(said, r"asked for \d+ bytes with \d+ in use\n")
        self.assertEqual(self.sha("x", "last.safetensors"), before)
        self.goes_on(recipe, "x")

    def test_a_lost_device_leaves_the_last_checkpoint(self):
        recipe = self.recipe(PLAIN + ADAMW + QUANTIZE)
        self.train(recipe, "whole", *self.KEEP)
        for work in (0, 200, 3000):
            run = f"lost-{work}"
            last = self.path(run, "last.safetensors")
            self.fail_in(recipe, run, "unspecified launch failure", STEELYARD_EMULATED_LOSS=str(work))
            self.assertEqual(os.path.exists(last), work > 1000, run)
            before = os.path.exists(last) and self.sha(last)
            self.fail_in(recipe, run, "unspecified launch failure", "--resume", STEELYARD_EMULATED_LOSS="10")
            self.assertEqual(os.path.exists(last) and self.sha(last), before)
            self.goes_on(recipe, run)

    def test_a_device_that_cannot_be_used(self):
        recipe = self.recipe(PLAIN + SGD)
        problem = {"STEELYARD_EMULATED_PROBLEM": "no kernel image is available"}
        for verb in (["train", recipe, "--dry-run"], ["train", recipe]):
            result = self.run_program(*verb, "--device", "cuda:0", **problem)
            self.assertEqual((result.returncode, result.stdout), (4, ""))
            self.assertEqual(result.stderr, "error: device 'cuda:0' is not available: no kernel image is available\n")
        said = self.succeed("train", recipe, "--dry-run", **problem)
        self.assertIn(" on cpu (no kernel image is available)\n", said)


class CapturedSteps(DeviceCase):
    def recorded_as_eager(self, name, recipe, steps, *more):
        """Both runs, of which one records that many steps, end with the same bits."""
        self.train(recipe, name, *more)
        self.train(recipe, name + "-eager", "--set", "train.cuda_graph=off", *more)
        self.assertEqual(self.summary(name)["captured_steps"], steps, name)
        self.assertNotIn("not_captured", self.summary(name), name)
        self.assertEqual(self.summary(name + "-eager")["captured_steps"], 0, name)
        self.assertEqual(self.metrics(name), self.metrics(name + "-eager"), name)
        self.assertEqual(self.sha(name, "last.safetensors"), self.sha(name + "-eager", "last.safetensors"), name)

    def test_plain_steps_are_recorded(self):
        self.recorded_as_eager("run", self.recipe(PLAIN + SGD), 6 * 7)

    def test_steps_that_observe_are_recorded(self):
        for weights, activations in (("mse", "histogram"), ("entropy", "percentile"), ("histogram", "mse"), ("percentile", "entropy")):
            recipe = self.recipe(PLAIN + SGD + QUANTIZE.replace("min_max", weights).replace("moving_average", activations))
            self.recorded_as_eager(weights, recipe, 7, "--set", "train.epochs=1")

    def test_steps_that_draw_random_numbers_are_recorded(self):
        # 11 whole batches an epoch, and one of 2 samples that is not recorded.
        more = ["--set", "data.batch_size=8", "--set", "train.epochs=2"]
        self.recorded_as_eager("float", self.recipe(LAYERS + ADAMW), 2 * 9, *more)
        self.recorded_as_eager("quantized", self.recipe(LAYERS + SGD + QUANTIZE), 2 * 9, *more)

    def test_steps_that_hold_oscillating_weights_are_recorded(self):
        # The widths change after the first and the second epoch.
        recipe = self.recipe(LAYERS + SGD.replace("0.02", "0.1") + OSCILLATIONS + PROGRESSIVE)
        self.recorded_as_eager("run", recipe, 4 * 7, "--set", "train.epochs=4")
        last = [line for line in self.metrics("run") if line["type"] == "epoch"][-1]
        self.assertGreater(last["frozen_weights_percent"], 0)
        self.assertLess(last["frozen_weights_percent"], 100)

    def test_captured_steps_go_on_from_any_checkpoint(self):
        recipe = self.recipe(LAYERS + SGD.replace("0.02", "0.1") + OSCILLATIONS + PROGRESSIVE)
        keep = ["--set", "train.epochs=4", "--set", "train.checkpoint_every_steps=5", "--set", "train.keep_step_checkpoints=true"]
        self.train(recipe, "whole", *keep)
        self.train(recipe, "eager", *keep, "--set", "train.cuda_graph=off")
        self.train(recipe, "cpu", *keep, "--device", "cpu")
        self.assertEqual(self.summary("whole")["captured_steps"], 4 * 7)
        for step in (10, 25):
            self.assertEqual(self.sha("whole", f"step-{step}.safetensors"), self.sha("eager", f"step-{step}.safetensors"))
            for first, then in (("whole", "cuda"), ("cpu", "cuda"), ("whole", "cpu")):
                rest = f"{first}-{then}-{step}"
                self.copy_as_stopped(first, step, rest)
                self.succeed("train", recipe, "--run-dir", self.path(rest), "--resume", "--device", then, *keep)
                if first == "whole" and then == "cuda":
                    self.assertEqual(self.sha(rest, "last.safetensors"), self.sha("whole", "last.safetensors"))
                if then == "cuda":
                    self.assertGreaterEqual(self.summary(rest)["captured_steps"], 7)
                self.close([self.summary(rest)["final"]["loss"]], [self.summary("cpu")["final"]["loss"]], 0.05)

    def test_every_feature_is_recorded(self):
        self.train(self.recipe(LAYERS + SGD, "teacher.yaml"), "teacher", "--set", "train.epochs=1")
        teacher = self.path("teacher", "last.safetensors")
        sgd = SGD.replace("epochs: 6", "epochs: 3")
        float_parts = {
            "distilled": sgd.replace("lr_sch", f"distill: {{checkpoint: {teacher}, temperature: 2}}, lr_sch"),
            "averaged": sgd.replace("lr_sch", "ema: {decay: 0.9}, checkpoint_every_steps: 4, lr_sch"),
            "clipped": sgd.replace("lr_sch", "clip_grad_norm: 0.5, lr_sch"),
            "partly": sgd.replace("lr_sch", "only: [fc, block], lr_sch"),
            "warmed": sgd.replace("{type: cosine}", "{type: step, every_epochs: 1, warmup_epochs: 1.5}"),
            "bn_frozen": sgd + "schedule: {freeze_bn: {epoch: 1}}\n",
            "smoothed": sgd.replace("lr_sch", "label_smoothing: 0.2, lr_sch").replace("type: sgd", "type: sgd, nesterov: true"),
        }
        quantized = {
            "lsq": ("algorithm: {method: lsq}", PROGRESSIVE),
            "lsq_plus": ("algorithm: {method: lsq_plus}", "schedule: {fake_quant: {from: 1, activations_from: 2}}\n"),
            "pact": ("algorithm: {method: pact}", "schedule: {freeze_observers: {epoch: 1}}\n"),
            "bn_none": ("bn_fold: none", "schedule: {freeze_bn: {epoch: 1}, reestimate_bn: {batches: 2}}\n"),
            "bn_corrected": ("bn_fold: batch_corrected", "schedule: {freeze_bn: {epoch: 1}}\n"),
            "bn_one": ("bn_fold: one_convolution", "calibrate: {batches: 2, freeze: true}\n"),
            "all": ("bn_fold: none\n  algorithm: {method: lsq}\n  oscillations: {momentum: 0.2, damping: {}, freeze_threshold: {start: 0.3, end: 0.1}}", PROGRESSIVE),
        }
        for name, body in float_parts.items():
            self.recorded_as_eager(name, self.recipe(LAYERS + body, name + ".yaml"), 3 * 7)
        for name, (key, more) in quantized.items():
            train = float_parts["distilled"].replace("lr_sch", "ema: {decay: 0.9}, clip_grad_norm: 1, lr_sch") if name == "all" else sgd
            self.recorded_as_eager(name, self.recipe(LAYERS + train + FOUR_BITS + f"  {key}\n" + more, name + ".yaml"), 3 * 7)

    def test_what_is_not_captured_is_said(self):
        recipe = self.recipe(LAYERS + SGD)
        self.train(recipe, "short", "--set", "train.epochs=1", "--set", "data.batch_size=45")
        self.assertEqual(self.summary("short")["captured_steps"], 0)
        self.assertEqual(self.summary("short")["not_captured"], "the epoch has too few steps")


if __name__ == "__main__":
    unittest.main()
