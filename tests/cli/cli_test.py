"""The command line as a user runs it: exit codes, messages, resuming, interruption, divergence."""
import fcntl
import gzip
import json
import math
import os
import pty
import random
import re
import signal
import struct
import subprocess
import termios
import time
import unittest

from cli_case import ADAMW, Case, LAYERS, PROGRAM, QUANTIZE, SGD, read_checkpoint
from support import torch_files
from support.data_files import i64, write_safetensors, write_split


class Usage(Case):
    def test_no_or_unknown_verb(self):
        self.assertEqual(self.run_program().returncode, 2)
        self.assertEqual(self.run_program("trian").returncode, 2)
        self.assertEqual(self.run_program("train").returncode, 2)
        self.assertEqual(self.run_program("train", "x", "--threads", "0").returncode, 2)

    def test_help_and_version(self):
        self.assertIn("train", self.succeed("--help"))
        self.assertIn("--resume", self.succeed("train", "--help"))
        for verb in ("train", "sensitivity"):
            self.assertRegex(self.succeed(verb, "--help"), "Several processes.*mpirun")
        self.assertRegex(self.succeed("--version"), r"^\d+\.\d+\.\d+")

    def test_recipes_and_schema(self):
        listing = self.succeed("recipes")
        for model in ("mlp", "cnn", "resnet"):
            for kind in ("float", "w8a8"):
                self.assertIn(f"fashion-mnist-{model}-{kind}", listing)
        self.assertIn("version: 1", self.succeed("recipes", "fashion-mnist-cnn-w8a8"))
        self.fail_with(2, "no preset 'x'", arguments=["recipes", "x"])
        self.fail_with(2, "no preset 'fashion-mnist-cnn' (did you mean 'fashion-mnist-cnn-", arguments=["recipes", "fashion-mnist-cnn"])
        for budget in ("inf", "0", "nan", "-1", "1x"):
            self.fail_with(2, f"--budget-bits: expected a number above 0, got '{budget}'",
                           arguments=["sensitivity", "run", "--budget-bits=" + budget])
        for verb, words in (("eval", "{text,json}"), ("predict", "{text,csv,json}")):
            files = ["run"] if verb == "eval" else ["run", "file"]
            self.fail_with(2, f"--format: xml not in {words}", arguments=[verb, *files, "--format", "xml"])
            self.assertIn(f"TEXT:{words}", self.succeed(verb, "--help"))
        self.assertIn("quantize", json.loads(self.succeed("schema"))["properties"])

    def test_device(self):
        recipe = self.recipe(LAYERS + SGD)
        self.fail_with(4, "cuda:99", "is not available: ", arguments=["train", recipe, "--device", "cuda:99"])
        for name in ("abacus", "cuda:", "gpu"):
            self.fail_with(2, f"--device: expected auto, cpu, cuda or cuda:N, got '{name}'",
                           arguments=["train", recipe, "--device", name])
        self.fail_with(2, "--device: ", "got nothing", arguments=["train", recipe, "--device", ""])


class Recipes(Case):
    def rejected(self, body, *fragments, more=()):
        recipe = self.recipe(body)
        self.fail_with(2, *fragments, arguments=["train", recipe, *more])

    def test_wrong_recipes(self):
        self.fail_with(2, "nowhere.yaml", arguments=["train", "nowhere.yaml"])
        self.rejected(LAYERS + SGD.replace("epochs: 6", "epochs: many"), "recipe.yaml:", "many")
        self.rejected(LAYERS + SGD + QUANTIZE.replace("num_bits: 8, symmetric: true", "num_bit: 8, symmetric: true"),
                      "unknown key 'num_bit' (did you mean 'num_bits'?)")
        self.rejected(LAYERS + SGD + SGD, "duplicate")
        self.rejected(LAYERS + SGD + QUANTIZE.replace("Conv2d]", "Conv3d]"), "'Conv3d' matches no module")
        self.rejected(LAYERS + SGD + QUANTIZE.replace("Conv2d]", "BatchNorm2d]"), "not quantized by itself")
        self.rejected(LAYERS + SGD, "--set", more=["--set", "train.epoch=3"])
        self.rejected(LAYERS + SGD, "mse needs float targets", more=["--set", "train.loss=mse"])
        self.rejected(LAYERS + SGD, "data.validation", "100", more=["--set", "data.validation=100"])
        affine = ["--set", "quantize.groups.0.weights.symmetric=false"]
        self.rejected(LAYERS + SGD + QUANTIZE, "recipe.yaml:", ": the profile tensorrt needs symmetric weights",
                      more=[*affine, "--set", "export.profile=tensorrt", "--set", "quantize.groups.0.activations.symmetric=true"])
        self.rejected(LAYERS + SGD + QUANTIZE, "narrow_range needs symmetric weights",
                      more=[*affine, "--set", "quantize.groups.0.weights.narrow_range=true"])

    def test_bombs(self):
        with open(self.path("brackets.yaml"), "w") as file:
            file.write("[" * (2 << 20))
        self.fail_with(2, "brackets.yaml", arguments=["train", self.path("brackets.yaml")])
        with open(self.path("alias.yaml"), "w") as file:
            file.write("a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
                f"{chr(c + 1)}: &{chr(c + 1)} [{', '.join(['*' + chr(c)] * 9)}]\n" for c in range(ord("a"), ord("j"))))
        self.fail_with(2, "alias.yaml", arguments=["train", self.path("alias.yaml")])

    def test_validate(self):
        self.assertIn("valid", self.succeed("validate", self.recipe(LAYERS + SGD + QUANTIZE)))
        resolved = self.succeed("validate", self.recipe(LAYERS + SGD), "--resolved", "--set", "train.epochs=2")
        self.assertIn("epochs: 2", resolved)


class Datasets(Case):
    def idx(self, name, magic, shape, payload):
        with gzip.open(self.path("idx", name), "wb") as file:
            file.write(struct.pack(">" + "i" * (1 + len(shape)), magic, *shape) + payload)

    def test_idx_with_wrong_counts(self):
        os.makedirs(self.path("idx"))
        for split, images, labels in (("train", 4, 4), ("t10k", 3, 2)):
            self.idx(split + "-images-idx3-ubyte.gz", 0x803, (images, 2, 2), bytes(4 * images))
            self.idx(split + "-labels-idx1-ubyte.gz", 0x801, (labels,), bytes(labels))
        recipe = self.recipe(LAYERS + SGD)
        more = ["--set", "data.dataset=fashion_mnist", "--set", "data.path=" + self.path("idx"), "--set", "data.validation=0"]
        self.fail_with(2, "3", "2", arguments=["train", recipe, *more])
        self.idx("train-images-idx3-ubyte.gz", 0x803, (5, 2, 2), bytes(4 * 4))
        self.fail_with(2, "train-images", arguments=["train", recipe, *more])

    def test_missing_dataset(self):
        self.fail_with(2, "nothing-here", arguments=["train", self.recipe(LAYERS + SGD), "--set", "data.path=nothing-here"])


class Checkpoints(Case):
    def test_damage_is_found(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE)
        self.train(recipe, "run", "--set", "train.epochs=1")
        last = self.path("run", "last.safetensors")
        self.assertIn("checksums verified", self.succeed("inspect", last))
        self.assertIn("top-1", self.succeed("eval", self.path("run")))
        self.assertIn("top-1", self.succeed("eval", self.path("run"), "--checkpoint", "best"))
        self.fail_with(2, "--resume", arguments=["train", recipe, "--run-dir", self.path("run")])
        self.fail_with(2, "differs", arguments=["train", recipe, "--run-dir", self.path("run"), "--resume", "--seed", "9"])
        with open(last, "rb") as file:
            good = file.read()
        generator = random.Random(5)
        for k in range(12):
            bad = bytearray(good)
            if k % 2 == 0:
                bad[generator.randrange(len(bad))] ^= 1 << generator.randrange(8)
            else:
                del bad[generator.randrange(len(bad)):]
            with open(last, "wb") as file:
                file.write(bad)
            self.fail_with(2, "last.safetensors", arguments=["inspect", last])
            self.fail_with(2, "last.safetensors", arguments=["eval", self.path("run")])
            self.fail_with(2, "last.safetensors", arguments=[
                "train", recipe, "--run-dir", self.path("run"), "--resume", "--set", "train.epochs=1"])
        self.fail_with(2, "no-such", arguments=["inspect", "no-such"])


class InitialWeights(Case):
    def test_every_disagreement_is_one_message(self):
        zero = bytes(4 * 10)
        write_safetensors(self.path("init.safetensors"), {
            "conv.weight": ("F32", [8, 1, 3, 3], bytes(4 * 72)), "fc.bias": ("F32", [10], zero), "stranger": ("F32", [10], zero)})
        recipe = self.recipe(LAYERS + SGD + "init: {checkpoint: init.safetensors}\n")
        self.fail_with(2, "missing: block.a.bias, block.a.weight, bn.bias,", " and 2 more, 7 in all; unexpected: stranger",
                       "wrong shape: fc.bias expected [4] got [10]", arguments=["train", recipe])
        self.fail_with(2, "gone.safetensors", arguments=["train", recipe, "--set", "init.checkpoint=gone.safetensors"])

    def test_files_of_pytorch(self):
        """Nested, under other names and with a head of other classes."""
        sizes = {"conv.weight": [8, 1, 3, 3], "bn.weight": [8], "bn.bias": [8], "bn.running_mean": [8], "bn.running_var": [8],
                 "block.a.weight": [8, 8, 3, 3], "block.a.bias": [8], "fc.weight": [10, 128], "fc.bias": [10]}
        generator = random.Random(1)
        tensors = {"module." + name: ("F32", shape, struct.pack(f"<{math.prod(shape)}f", *(
            generator.uniform(0.1, 0.2) for _ in range(math.prod(shape))))) for name, shape in sizes.items()}
        state, storages = torch_files.state_dict(tensors)
        whole = torch_files.archive(torch_files.entries({"epoch": b"K\x03", "state_dict": state}), storages)
        with open(self.path("weights.pt"), "wb") as file:
            file.write(whole)
        self.assertRegex(self.succeed("inspect", "weights.pt"), "weights.pt: PyTorch file, entry 'state_dict', 9 tensors\n"
                         r"module.conv.weight +f32 +\[8, 1, 3, 3\] +288 bytes\n")
        recipe = self.recipe(LAYERS + SGD + "init: {checkpoint: weights.pt}\n")
        refused = self.fail_with(2, "recipe.yaml", "weights.pt: tensors do not fit the model: missing: "
                                 "block.a.bias (the file has 'module.block.a.bias')", arguments=["train", recipe])
        self.assertNotIn("init.skip", refused.stderr)
        rename = ["--set", "init.rename=[{from: '^module[.]'}]", "--dry-run"]
        self.fail_with(2, "wrong shape: fc.bias expected [4] got [10], fc.weight expected [4, 128] got [10, 128]; "
                       "init.skip: [fc] trains it from random values", arguments=["train", recipe, *rename])
        done = self.run_program("train", recipe, *rename, "--set", "init.skip=[fc]")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: init.checkpoint: the tensors are those of the file's entry 'state_dict'", done.stdout + done.stderr)
        # What only the file has is skipped too.
        self.succeed("train", recipe, "--set", "init.rename=[{from: '^module[.]'}, {from: '^fc', to: head}]",
                     "--set", "init.skip=[fc, head]", "--dry-run")
        for value, message in (("init.skip=[fx]", "init.skip: 'fx' names nothing of the model or of weights.pt (did you mean 'fc'?)"),
                               ("init.skip=['re:.*']", "init.skip: leaves nothing of weights.pt to load"),
                               ("init.rename=[{from: net}]", "init.rename: 'net' matches no tensor of weights.pt"),
                               ("init.rename=[{from: '('}]", "bad regular expression: missing ): ("),
                               ("init.rename=[{from: 'weight|bias', to: x}]",
                                "'module.bn.weight' and 'module.bn.bias' both become 'module.bn.x'")):
            self.fail_with(2, message, arguments=["train", recipe, "--set", value])
        self.fail_with(2, "weights.pt: holds weights only: name their network with --architecture", arguments=["import", "weights.pt"])
        with open(self.path("weights.pt"), "wb") as file:
            file.write(torch_files.archive(torch_files.entries(
                {"state_dict": state.replace(b"torch\nFloatStorage", b"posix\nsystem      "[:18])}), storages))
        self.fail_with(2, "weights.pt: data.pkl, byte ", "names posix.system", arguments=["train", recipe])

    def test_weights_alone_become_a_run(self):
        recipe = self.recipe("model: {type: mlp, hidden: [16]}\n" + SGD.replace("epochs: 6", "epochs: 1"))
        self.train(recipe, "float")
        header, data = read_checkpoint(self.path("float", "last.safetensors"))
        state, storages = torch_files.state_dict({
            name: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items() if name.startswith("fc") and "/" not in name})
        with open(self.path("weights.pt"), "wb") as file:
            file.write(torch_files.archive(state, storages))
        values = ["data.dataset=safetensors", "data.path=" + self.data, "model.hidden=[16]"]
        self.succeed("import", "weights.pt", "--architecture", "mlp", "--run-dir", "imported",
                     *(part for value in values for part in ("--set", value)))
        # All samples are training samples there: their mean and deviation are others.
        losses = [self.summary(run)["final"]["loss"] for run in ("float", "imported")]
        self.assertLess(abs(losses[0] - losses[1]), 0.05, losses)
        self.assertIn("top-1", self.succeed("eval", "imported"))
        for name in ("fc1.weight", "fc2.bias"):
            of_import = read_checkpoint(self.path("imported", "last.safetensors"))
            entry = of_import[0][name]
            self.assertEqual(of_import[1][slice(*entry["data_offsets"])], data[slice(*header[name]["data_offsets"])])
        self.fail_with(2, "expected one of mlp,", arguments=[
            "import", "weights.pt", "--architecture", "resnet19", "--set", values[0], "--set", values[1]])

    def test_a_float_run_starts_a_quantized_one(self):
        self.train(self.recipe(LAYERS + SGD), "float")
        recipe = self.recipe(LAYERS + SGD + QUANTIZE + "init: {checkpoint: float/last.safetensors}\n", "w8a8.yaml")
        out = self.train(recipe, "w8a8", "--set", "train.epochs=2")
        self.assertIn("bn folded in", out)
        self.assertGreater(self.summary("w8a8")["final"]["top1"], self.summary("float")["final"]["top1"] - 15)
        with open(self.path("w8a8", "plan.txt")) as file:
            self.assertIn("int8 symmetric, per channel", file.read())

    def test_the_plan_says_which_scales_are_learned_and_with_which_rate(self):
        learned = LAYERS + QUANTIZE + "  algorithm: {method: %s}\n"
        for method, optimizer, note in (
                ("lsq", SGD, "no step moves a scale by more than 10 times the learning rate times its first value"),
                ("lsq_plus", ADAMW, "steps: 10 first scales times AdamW's direction and rate"),
                ("pact, scale_lr: 0.5", SGD, "learning rate: 0.5 times the optimizer's (scale_lr)")):
            out = self.succeed("train", self.recipe(learned % method + optimizer), "--dry-run")
            rows = [line for line in out.splitlines() if re.search(" (weight|output) +u?int8", line)]
            self.assertGreater(len(rows), 3)
            for row in rows:
                word = {"lsq": "learned", "lsq_plus": "learned with zero point"}.get(method, "learned")
                of_weights = " weight " in row
                if of_weights and method.startswith("pact"):
                    self.assertNotIn("learned", row)
                elif of_weights:
                    self.assertRegex(row, r"min_max, learned(  |$)")
                else:
                    self.assertRegex(row, rf"moving_average, {word}(  |$)")
            self.assertRegex(out, rf"note: quantize.algorithm: {method.split(',')[0]} learns \d+ quantizers ")
            self.assertIn(note, out)


class DryRun(Case):
    def test_writes_nothing(self):
        before = sorted(os.listdir(self.folder)) + ["recipe.yaml"]
        out = self.succeed("train", self.recipe(LAYERS + SGD + QUANTIZE), "--dry-run")
        self.assertIn("saved activations", out)
        self.assertIn("conv", out)
        self.assertEqual(sorted(os.listdir(self.folder)), sorted(before))

    def test_the_total_is_near_the_peak(self):
        recipe = self.recipe("model: {type: cnn, channels: [256, 256]}\n" + SGD)
        more = ["--set", "data.batch_size=80", "--set", "train.epochs=2", "--threads", "2"]
        out = self.succeed("train", recipe, "--dry-run", *more)
        total = float(next(line for line in out.splitlines() if line.strip().startswith("total")).split()[1])
        process = subprocess.Popen([PROGRAM, "train", recipe, *more], cwd=self.folder, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        self.assertEqual(status, 0)
        peak = usage.ru_maxrss / 1024
        self.assertLess(abs(total - peak), 0.35 * peak, (total, peak))


    def test_few_samples_are_measured(self):
        images = self.path("images")
        for split, count in (("train", 20), ("test", 2)):
            write_split(images, split, ("U8", [count, 96, 96, 1], bytes(96 * 96 * count)), i64([count], [i % 2 for i in range(count)]))
        recipe = self.recipe("model: {type: cnn, hidden: 4}\n" + SGD)
        more = ["--set", "data.path=" + images, "--set", "data.batch_size=2", "--set", "data.validation=0", "--set", "train.epochs=1"]

        def peak_of(*arguments):
            process = subprocess.Popen([PROGRAM, "train", recipe, *more, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = status
            self.assertEqual(status, 0)
            return usage.ru_maxrss

        self.assertLess(peak_of("--dry-run"), 1.3 * peak_of())


class Terminal(Case):
    def test_plain_lines_without_a_terminal(self):
        out = self.train(self.recipe(LAYERS + SGD), "run", "--threads", "1")
        self.assertNotIn("\x1b", out)
        self.assertNotIn("\r", out)
        self.assertIn("epoch 6/6", out)

    def test_a_bar_on_a_terminal(self):
        recipe = self.recipe(LAYERS + SGD)
        try:
            pid, descriptor = pty.fork()
        except OSError as error:  # a container without pseudo-terminals
            self.skipTest(str(error))
        if pid == 0:
            os.chdir(self.folder)
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))  # 80 columns cut the line
            os.execv(PROGRAM, [PROGRAM, "train", recipe, "--set", "train.epochs=300", "--threads", "2"])
        seen = b""
        end = time.time() + 60
        while time.time() < end and b"left" not in seen:
            try:
                seen += os.read(descriptor, 4096)
            except OSError:
                break
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.assertIn(b"\r\x1b[K", seen)
        self.assertIn(b"left", seen)


class Resume:
    """From checkpoints on both sides of each change (epoch, schedule, end of the run) to the same bits; 9 steps are
    an epoch. `scripts/campaign kills` stops runs at every other moment."""
    body = None

    def test_steps_around_every_change(self):
        recipe = self.resumes("whole", self.body, steps=(1, 8, 9, 10, 35, 36, 37, 53, 54))
        expected = self.sha("whole", "last.safetensors")
        self.assertEqual(self.summary("whole")["checkpoint_sha256"], expected)
        self.assertEqual(self.summary("whole")["steps"], 54)
        self.train(recipe, "again")
        self.assertEqual(self.sha("again", "last.safetensors"), expected)
        self.train(recipe, "other", "--seed", "4")
        self.assertNotEqual(self.sha("other", "last.safetensors"), expected)


class ResumeFloat(Resume, Case):
    body = LAYERS + ADAMW


class ResumeSome(Case):
    """From some steps' checkpoints to the same bits, in variants of one recipe."""

    def test_norms_folded_in_every_step_and_measured_anew(self):
        of_percentiles = QUANTIZE.replace("moving_average", "moving_percentile, percentile: 99, averaging_constant: 0.1")
        for mode in ("none", "batch_corrected", "one_convolution"):
            quantize = of_percentiles if mode == "none" else QUANTIZE
            self.resumes(mode, LAYERS + SGD + quantize + f"  bn_fold: {mode}\n"
                         "schedule: {freeze_bn: {epoch: 4}, reestimate_bn: {batches: 4}}\n")

    def test_learned_scales(self):
        for method in ("lsq", "lsq_plus"):
            self.resumes(method, LAYERS + SGD + QUANTIZE.replace("num_bits: 8", "num_bits: 3") +
                         f"  algorithm: {{method: {method}, scale_lr: 0.5}}\n"
                         "schedule: {fake_quant: {from: 1}, freeze_observers: {epoch: 4}}\n")
            self.assertRegex(self.succeed("verify", method), r"0 of \d+ codes differ")

    def test_learned_scales_with_steps_relative_to_them(self):
        for optimizer in (SGD, ADAMW):
            name = "adamw" if optimizer == ADAMW else "sgd"
            self.resumes(name, LAYERS + optimizer + QUANTIZE.replace("num_bits: 8", "num_bits: 3") +
                         "  algorithm: {method: lsq_plus}\n"
                         "schedule: {bits: [{until: 2, weights: 8}]}\n")
            self.assertRegex(self.succeed("verify", name), r"0 of \d+ codes differ")
            # An explicit rate is another run: that of earlier versions, whose recipes have one.
            silent = (LAYERS + optimizer + QUANTIZE.replace("num_bits: 8", "num_bits: 3") +
                      "  algorithm: {method: lsq_plus}\nschedule: {bits: [{until: 2, weights: 8}]}\n")
            plain = self.recipe(silent.replace("lsq_plus", "lsq_plus, scale_lr: 1"), "plain.yaml")
            self.train(plain, name + "-plain")
            self.assertNotEqual(self.sha(name + "-plain", "last.safetensors"), self.sha(name, "last.safetensors"))
            self.assertIn("scale_lr: 1", self.read(name + "-plain", "recipe.yaml"))
            self.assertNotIn("scale_lr", self.read(name, "recipe.yaml"))
        # Such a run goes on as it began, also from a file that does not give the rate.
        self.train(plain, "earlier", "--set", "train.epochs=3")
        self.train(self.recipe(silent), "earlier", "--resume")
        self.assertEqual(self.sha("earlier", "last.safetensors"), self.sha("adamw-plain", "last.safetensors"))

    def test_learned_clipping(self):
        self.resumes("pact", LAYERS + SGD + QUANTIZE.replace("num_bits: 8", "num_bits: 4") +
                     "  algorithm: {method: pact}\n")
        self.assertRegex(self.succeed("verify", "pact"), r"0 of \d+ codes differ")

    def test_stages(self):
        for method in ("ste", "lsq"):
            self.resumes(method, LAYERS + SGD + QUANTIZE.replace("num_bits: 8", "num_bits: 3") +
                         f"  algorithm: {{method: {method}}}\n"
                         "schedule: {fake_quant: {from: 0, activations_from: 1}, freeze_observers: {epoch: 4},\n"
                         "           bits: [{until: 2, weights: 8, activations: 6}, {until: 3, weights: 4}]}\n")
            self.assertRegex(self.succeed("verify", method), r"0 of \d+ codes differ")

    def test_weights_in_groups(self):
        self.resumes("groups", LAYERS + SGD +
                     "quantize:\n  groups:\n    - targets: [Linear]\n"
                     "      weights: {num_bits: 4, strategy: group, group_size: 4}\n"
                     "  algorithm: {method: lsq}\n")
        self.assertIn("top-1", self.succeed("verify", "groups"))


class ResumeQat(Resume, Case):
    body = LAYERS + SGD + QUANTIZE + "schedule: {fake_quant: {from: 1}, freeze_observers: {epoch: 4}}\n"


class Signals(Case):
    def test_interrupted_runs_end_with_the_same_bits(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE)
        more = ["--set", "train.epochs=60"]
        self.train(recipe, "whole", *more)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            run = f"stopped-{number}"
            process = subprocess.Popen([PROGRAM, "train", recipe, "--run-dir", self.path(run), *more], text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder)
            for line in process.stdout:
                if line.startswith("epoch 2/"):
                    break
            process.send_signal(number)
            out = process.stdout.read()
            process.stdout.close()
            self.assertEqual(process.wait(), 130, out)
            self.assertIn("--resume", out)
            self.assertFalse(os.path.exists(self.path(run, "summary.json")))
            self.train(recipe, run, *more, "--resume")
            self.assertEqual(self.sha(run, "last.safetensors"), self.sha("whole", "last.safetensors"))


# Later in its warmup the learning rate is far too high; with divergence_limit: 0 only losses that are not finite diverge.
COLLAPSING = """
train:
  epochs: 24
  divergence_limit: 0
  optimizer: {type: adamw, lr: 2}
  lr_schedule: {warmup_epochs: 24}
"""


class Divergence(Case):
    def test_stops_with_step_and_tensor(self):
        for name, body in (("float", LAYERS + SGD), ("qat", LAYERS + SGD + QUANTIZE)):
            recipe = self.recipe(body, name + ".yaml")
            run = self.path(name)
            self.succeed("train", recipe, "--run-dir", run, "--set", "train.epochs=1")
            before = self.sha(name, "last.safetensors")
            os.remove(os.path.join(run, "summary.json"))
            result = self.fail_with(1, "step ", "non-finite", arguments=[
                "train", recipe, "--run-dir", self.path(name + "-bad"), "--set", "train.optimizer.lr=1000000",
                "--set", "train.checkpoint_every_steps=1"])
            for saved in ("last", "best"):
                path = self.path(name + "-bad", saved + ".safetensors")
                if os.path.exists(path):
                    self.succeed("inspect", path)
            self.assertFalse(os.path.exists(self.path(name + "-bad", "summary.json")), result.stderr)
            last = self.metrics(name + "-bad")[-1]
            self.assertEqual((last["type"], "failed: " + last["what"] + "\n"), ("diverged", result.stderr))
            self.assertEqual(self.sha(name, "last.safetensors"), before)

    def test_a_run_that_collapses_is_saved_and_fails(self):
        # The learning rate grows until the weights are lost, with losses that stay finite.
        recipe = self.recipe(LAYERS + COLLAPSING)
        result = self.fail_with(1, "failed: epoch ", "; the epoch is saved (on_collapse: stop)", arguments=[
            "train", recipe, "--run-dir", "run"])
        self.assertFalse(os.path.exists(self.path("run", "summary.json")))
        last = self.metrics("run")[-1]
        self.assertEqual((last["type"], "failed: " + last["what"] + "\n"), ("diverged", result.stderr))
        self.assertEqual(self.metrics("run")[-2]["type"], "epoch")
        epoch = int(re.match("failed: epoch (\\d+)", result.stderr)[1])
        self.assertEqual(self.metrics("run")[-2]["epoch"], epoch)
        self.assertGreater(epoch, 1)
        self.succeed("report", "run", "--out", "page.html")
        self.assertRegex(self.read("page.html"), rf"<dd>collapsed, {epoch} of 24 epochs logged: epoch {epoch}: ")
        # It goes on from there, as a run that was warned.
        warn = ["--set", "train.on_collapse=warn"]
        out = self.train(recipe, "run", "--resume", *warn)
        whole = self.train(recipe, "whole", *warn)
        self.assertIn(f"warning: epoch {epoch}: ", whole)
        self.assertIn("collapse", [line for line in self.metrics("whole") if line["type"] == "epoch"][epoch - 1])
        self.assertIn(f"\nwarning: epoch {epoch}: ", "\n" + self.succeed("report", "whole"))
        self.assertIn(f"Epochs that lost what the run knew</strong><ul>\n<li>epoch {epoch}: ", self.read("whole", "report.html"))
        for file in ("last", "best"):
            self.assertEqual(self.sha("run", file + ".safetensors"), self.sha("whole", file + ".safetensors"), out)

    def test_a_run_that_learned_nothing_says_so(self):
        recipe = self.recipe(LAYERS + SGD)
        self.train(recipe, "learned")
        self.assertNotIn("warning", self.summary("learned"))
        nothing = self.run_program("train", recipe, "--run-dir", "nothing", "--set", "train.optimizer.lr=1e-30")
        warning = self.summary("nothing")["warning"]
        self.assertIn("no better than that of outputs that are all zero", warning)
        self.assertIn("; if the training loss is far lower, schedule.reestimate_bn may help", warning)
        self.assertNotIn("targets", warning)
        self.assertIn(f"note: {warning}\n", nothing.stderr)
        calibrated = self.run_program("calibrate", self.recipe(LAYERS + SGD + QUANTIZE + "init: {checkpoint: nothing/last.safetensors}\n"),
                                      "--run-dir", "calibrated")
        self.assertIn("no better than that of outputs that are all zero", self.summary("calibrated")["warning"])
        self.assertIn("; more bits, another observer or training may help\n", calibrated.stderr)
        recipe = self.recipe(LAYERS + SGD)
        self.succeed("report", "nothing", "--out", "page.html")
        self.assertIn("learned nothing", self.read("page.html"))
        os.remove(self.path("nothing", "summary.json"))  # as if killed before it was written
        self.train(recipe, "nothing", "--set", "train.optimizer.lr=1e-30", "--resume")
        self.assertEqual(self.summary("nothing")["warning"], warning)


class KillDuringSaves(Case):
    def test_kills_leave_no_damaged_checkpoint(self):
        recipe = self.recipe(LAYERS + SGD)
        more = ["--set", "train.epochs=100000", "--set", "train.checkpoint_every_steps=1", "--threads", "1"]
        generator = random.Random(7)
        run, last = self.path("run"), self.path("run", "last.safetensors")

        def saved():
            return os.stat(last).st_mtime_ns if os.path.exists(last) else None

        for _ in range(20):
            before = saved()
            process = subprocess.Popen([PROGRAM, "train", recipe, "--run-dir", run, "--resume", *more],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.folder)
            self.wait_for(lambda: saved() != before)
            time.sleep(generator.uniform(0, 0.1))
            process.kill()
            _, errors = process.communicate()
            self.assertEqual(process.returncode, -signal.SIGKILL, errors)
            self.succeed("inspect", last)


class Backends(Case):
    def test_each_backend_trains(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE)
        self.succeed("train", recipe, "--run-dir", self.path("eigen"), STEELYARD_CPU_BACKEND="eigen")
        self.succeed("train", recipe, "--run-dir", self.path("avx2"), DNNL_MAX_CPU_ISA="AVX2")
        result = self.run_program("train", recipe, "--dry-run", STEELYARD_CPU_BACKEND="abacus")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("abacus", result.stderr)

    def test_unknown_instructions_are_refused_before_training(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE)
        result = self.run_program("train", recipe, "--run-dir", self.path("run"), STEELYARD_INSTRUCTIONS="abacus")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^error: \[instructions\] expected (STEELYARD_INSTRUCTIONS to be .*|"
                         r"no STEELYARD_INSTRUCTIONS in a build whose kernels were compiled once), got 'abacus'\n$")
        self.assertFalse(os.path.exists(self.path("run")))


if __name__ == "__main__":
    unittest.main()
