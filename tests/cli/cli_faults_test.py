"""What goes wrong around a run: numbers that are not finite, closed outputs, shared folders, odd paths."""
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import unittest

from cli_data_test import as_earlier_version
from cli_case import ADAMW, Case, LAYERS, PROGRAM, QUANTIZE, SGD
from support.data_files import f32, i64, write_safetensors, write_split


def write_float_dataset(folder, inputs, targets, test_inputs=None):
    """Flat f32 inputs of samples that have the targets (dtype, shape, bytes)."""
    count = targets[1][0]
    for split, values in (("train", inputs), ("test", test_inputs or inputs)):
        write_split(folder, split, f32([count, len(values) // count], values), targets)


class NotFinite(Case):
    body = "model: {type: mlp, hidden: [4]}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n"

    def test_a_test_loss_that_is_not_finite_is_a_failure(self):
        data = self.path("floats")
        write_float_dataset(data, [0.1 * (i % 7) for i in range(80)], i64([40], [i % 2 for i in range(40)]),
                            test_inputs=[3e38] * 80)
        recipe = self.recipe(self.body)
        more = ["--set", "data.path=" + data, "--set", "data.augment=[]"]
        self.fail_with(1, "test loss is", arguments=["train", recipe, "--run-dir", self.path("run"), *more])
        self.assertFalse(os.path.exists(self.path("run", "summary.json")))
        self.fail_with(1, "the test loss is not finite", arguments=["eval", self.path("run")])

    def test_the_first_module_and_sample_that_are_not_finite_are_named(self):
        data = self.path("floats")
        write_float_dataset(data, [1 + 0.1 * (i % 7) for i in range(80)], i64([40], [i % 2 for i in range(40)]),
                            test_inputs=[1.0] * 43 + [-1.0] * 37)
        recipe = self.recipe("""model:
  layers:
    - {type: Sequential, name: body, layers: [{type: Log, name: log}, {type: Linear, name: fc, out_features: 4}]}
    - {type: Linear, out_features: 2}
train: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}
""")
        more = ["--set", "data.path=" + data, "--set", "data.augment=[]"]
        named = "first non-finite tensor: the output of body.log"
        self.fail_with(1, "step 1: loss is ", named, arguments=["train", recipe, "--run-dir", "normalized", *more])
        more += ["--set", "data.normalize=none"]
        sample = f"{named}, for {data}/test.safetensors: inputs: sample 21\n"
        self.fail_with(1, "test loss is ", sample, arguments=["train", recipe, "--run-dir", "run", *more])
        self.fail_with(1, "the test loss is not finite; ", sample, arguments=["eval", "run"])

    def test_regression_needs_targets_of_the_models_outputs(self):
        data = self.path("floats")
        write_float_dataset(data, [0.1 * (i % 7) for i in range(80)], f32([40], [float(i % 2) for i in range(40)]))
        recipe = self.recipe(self.body.replace("hidden: [4]", "hidden: [4], classes: 1").replace("epochs: 1,", "epochs: 1, loss: mse,"))
        more = ["--set", "data.path=" + data, "--set", "data.augment=[]"]
        self.fail_with(2, "--set model.classes: the loss mse needs targets", "[30, 3]", "[30, 1]",
                       arguments=["validate", recipe, *more, "--set", "model.classes=3"])
        self.assertIn("test loss", self.train(recipe, "run", *more))
        huber = [*more, "--set", "train.loss=huber", "--set", "train.huber_delta=0.25"]
        self.assertIn("test loss", self.train(recipe, "huber", *huber))
        self.assertLess(self.summary("huber")["final"]["loss"], self.summary("run")["final"]["loss"])
        write_float_dataset(data, [0.1 * (i % 7) for i in range(80)], f32([40], [6e5 + i for i in range(40)]))
        self.train(recipe, "prices", *more, "--set", "train.optimizer.lr=1e-30", "--set", "data.normalize_targets=false")
        warning = self.summary("prices")["warning"]
        self.assertIn("; the targets are large and not normalized: data.normalize_targets does that", warning)
        self.assertNotIn("reestimate_bn", warning)


class Messages(Case):
    def test_places(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE)
        def rejected(setting, *fragments):
            self.fail_with(2, *fragments, arguments=["validate", recipe, "--set", setting])
        rejected("data.dataset=safetensor", "--set data.dataset: unknown dataset 'safetensor' (did you mean 'safetensors'?)")
        rejected("data.path=elsewhere", "--set data.path: " + os.path.realpath(self.path("elsewhere")) + ": expected a folder")
        rejected("data.validation=100", "error: --set data.validation: expected fewer")
        rejected("train.loss=mse", "--set train.loss: the loss mse needs float targets")
        rejected("quantize.groups.0.targets=[Conv2D]", "error: --set quantize.groups.0.targets: 'Conv2D' matches no module (did you mean 'Conv2d'?)")
        rejected("quantize.ignore=['re:(']", "--set quantize.ignore: ", "bad regular expression")
        rejected("data.crop_padding=8", "recipe.yaml:4:", "expected crop_padding from 0 to below the image's size")

    def test_numbers_of_the_command_line_are_decimal(self):
        recipe = self.recipe(LAYERS + SGD)
        for seed in ("010", "0x10", "", "-1", "99999999999999999999", "null"):
            self.fail_with(2, "--seed: expected a whole number", arguments=["train", recipe, "--dry-run", "--seed=" + seed if seed else "--seed", *([] if seed else [""])])
        for threads in ("010", "0x2", "1e1", "0", "4097"):
            result = self.run_program("train", recipe, "--dry-run", "--threads", threads)
            self.assertEqual(result.returncode, 2)
            self.assertIn("expected a whole number from 1 to 4096", result.stderr)

    def test_threads_of_the_environment(self):
        recipe = self.recipe(LAYERS + SGD)
        def dry_run(*more, **environment):
            return self.run_program("train", recipe, "--dry-run", *more, **environment)
        for threads in ("99999", "2147483648", "-3", "0", "1e1", "two", "4097,2"):
            result = dry_run(OMP_NUM_THREADS=threads)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("error: OMP_NUM_THREADS: expected a whole number from 1 to 4096, got '" + threads + "'", result.stderr)
        for threads, printed in ((" 3 ", " 3 threads"), ("4,2", " 4 threads"), ("64", " 64 threads")):
            self.assertIn(printed, dry_run(OMP_NUM_THREADS=threads).stdout)
        self.assertIn(" 2 threads", dry_run("--threads", "2", OMP_NUM_THREADS="3").stdout)
        self.assertRegex(dry_run(OMP_NUM_THREADS="").stdout, r" [1-9]\d* threads?, ")
        # oneDNN waits forever for threads that OpenMP does not start.
        limited = {"OMP_NUM_THREADS": "8", "OMP_THREAD_LIMIT": "2", "OMP_DYNAMIC": "true"}
        result = self.run_program("train", recipe, "--run-dir", "limited", "--set", "train.epochs=1", **limited)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("note: OMP_THREAD_LIMIT: 2 of 8 threads are used\n", result.stderr)
        self.assertIn(" 2 threads", result.stdout)
        result = dry_run("--threads", "3", OMP_THREAD_LIMIT="2")
        self.assertEqual(result.returncode, 2)
        self.assertIn("OMP_THREAD_LIMIT allows 2, got 3", result.stderr)

    def test_idle_threads_sleep_soon_unless_the_environment_says_otherwise(self):
        def spin_count(**changes):
            environment = {name: value for name, value in os.environ.items()
                           if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")}
            result = subprocess.run([PROGRAM, "recipes"], text=True, capture_output=True,
                                    env={**environment, "OMP_DISPLAY_ENV": "verbose", **changes})
            self.assertEqual(result.returncode, 0, result.stderr)
            return re.findall(r"GOMP_SPINCOUNT = '(\d+)'", result.stderr)[-1:]
        default = spin_count()
        if not default:
            self.skipTest("this OpenMP is not libgomp")
        self.assertEqual(default, ["10000"])
        self.assertEqual(spin_count(GOMP_SPINCOUNT="70"), ["70"])
        self.assertEqual(spin_count(OMP_WAIT_POLICY="passive"), ["0"])
        self.assertGreater(int(spin_count(OMP_WAIT_POLICY="active")[0]), 50000)

    def test_words_that_come_near_a_verb_or_an_option(self):
        recipe = self.recipe(LAYERS + SGD)
        for arguments, message in (
                (["trian", recipe], "error: unknown command 'trian' (did you mean 'train'?); commands: train, quantize, import"),
                (["--hlep"], "unknown option '--hlep' (did you mean '--help'?) (see steelyard --help)"),
                ([], "a command is missing, one of: train, quantize, import, calibrate, "),
                (["train", recipe, "--stt", "a=1"], "unknown option '--stt' (did you mean '--set'?) (see steelyard train --help)"),
                (["train", recipe, "--run-dri=x"], "unknown option '--run-dri' (did you mean '--run-dir'?)"),
                (["train", recipe, "more"], "unexpected argument 'more'"),
                (["train", "--", recipe, "--seed", "3"], "unexpected argument '--seed' behind --"),
                (["export", "run", "--format", "onxx\x1b[31m"], "--format: onxx\\x1b[31m not in {safetensors,onnx,c,tflite}"),
                (["eval"], "the argument run is missing: The run's folder (see steelyard eval --help)"),
                (["eval", ""], "run: expected a path, got ''"),
                (["train", recipe, "--run-dir", ""], "--run-dir: expected a path, got ''"),
                (["tr\x1b[31m\n"], "unknown command 'tr\\x1b[31m\\x0a'")):
            self.fail_with(2, message, arguments=arguments)

    def test_files_of_another_format(self):
        recipe = self.recipe(LAYERS + SGD)
        shutil.copytree(self.data, self.path("images"))
        with open(self.path("cat.safetensors"), "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + bytes(40))
        png = "cat.safetensors: not a safetensors file: it looks like a PNG image"
        self.fail_with(2, png, arguments=["inspect", "cat.safetensors"])
        self.fail_with(2, png, arguments=["predict", "cat.safetensors", "images/test.safetensors"])
        self.fail_with(2, png, arguments=["train", recipe, "--set", "init.checkpoint=cat.safetensors"])
        self.fail_with(2, "cat.safetensors: not a recipe: it looks like a PNG image", arguments=["validate", "cat.safetensors"])
        self.fail_with(2, "not a recipe: it looks like a safetensors file", arguments=["validate", "images/test.safetensors"])
        shutil.copy(self.path("cat.safetensors"), self.path("images", "train.safetensors"))
        self.fail_with(2, "train.safetensors: not a safetensors file: it looks like a PNG image",
                       arguments=["validate", recipe, "--set", "data.path=images"])

    def test_file_contents_do_not_reach_the_terminal(self):
        escape, names = "\x1b]0;owned\x07", ["w\x1b[2J", "b\x9b31m", "r\u202eevil"]
        write_safetensors(self.path("odd\x1b[31m"), {name: ("U8", [1], b"x") for name in names})
        with open(self.path("metadata"), "wb") as file:
            text = json.dumps({"__metadata__": {"k" + escape: "v" + escape + "\n"}}).encode()
            file.write(struct.pack("<Q", len(text)) + text)
        listing = self.succeed("inspect", "odd\x1b[31m") + self.succeed("inspect", "metadata")
        for shown in ("odd\\x1b[31m: safetensors file", "w\\x1b[2J", "b\\xc2\\x9b31m", "r\\xe2\\x80\\xaeevil",
                      "k\\x1b]0;owned\\x07 = v\\x1b]0;owned\\x07\\x0a"):
            self.assertIn(shown, listing)
        for hidden in ("\x1b", "\x9b", "\u202e", "\x07"):
            self.assertNotIn(hidden, listing)
        self.fail_with(2, "expected the tensors inputs and targets, got 'w\\x1b[2J'",
                       arguments=["validate", self.recipe(LAYERS + SGD), "--set", "data.path=" + self.odd_dataset(names)])

    def odd_dataset(self, names):
        os.makedirs(self.path("odd"))
        write_safetensors(self.path("odd", "train.safetensors"), {name: ("U8", [1], b"x") for name in names})
        return self.path("odd")

    def test_paths_that_cannot_be(self):
        recipe, long = self.recipe(LAYERS + SGD), "x" * 300
        self.fail_with(2, "File name too long", arguments=["validate", long])
        self.fail_with(2, "File name too long", arguments=["train", recipe, "--run-dir", long])
        self.fail_with(2, "File name too long", arguments=["train", recipe, "--run-dir", long, "--resume"])

    def test_a_last_batch_that_batch_norm_cannot_train_on(self):
        body = """
model:
  classes: 4
  layers: [{type: Conv2d, out_channels: 8, kernel_size: 8}, {type: BatchNorm2d}, {type: Flatten}, {type: Linear, out_features: 4}]
""" + SGD
        more = ["--set", "data.validation=9"]
        self.fail_with(2, "recipe.yaml:4:", "data.batch_size: 10 leaves 1 of 91 training samples",
                       arguments=["validate", self.recipe(body), *more])
        self.succeed("validate", self.recipe(body), "--set", "data.validation=8")
        self.succeed("validate", self.recipe(body + QUANTIZE), *more)  # the batch norm is folded
        folding = QUANTIZE + "  bn_fold: one_convolution\n"
        self.fail_with(2, "data.batch_size: 10 leaves 1 of 91", arguments=["validate", self.recipe(body + folding), *more])
        self.succeed("validate", self.recipe(LAYERS + SGD), *more)  # several pixels

    def test_no_norm_to_freeze(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE + "schedule: {freeze_bn: {epoch: 4}}\n")
        for verb in ("train", "validate"):
            self.fail_with(2, "recipe.yaml:24:23: schedule.freeze_bn: the model has no batch norm left", arguments=[verb, recipe])
        self.succeed("validate", recipe, "--set", "quantize.bn_fold=none")
        # A run made before this was refused goes on.
        self.train(recipe, "run", "--set", "schedule=null", "--set", "train.epochs=1")
        as_earlier_version(self.path("run", "last.safetensors"))
        saved = self.path("run", "recipe.yaml")
        with open(saved) as file:
            old = file.read()
        with open(saved, "w") as file:
            file.write(old.replace("schedule: {}", "schedule: {freeze_bn: {epoch: 0}}"))
        self.assertIn("top-1", self.succeed("eval", "run"))

    def test_nothing_to_reestimate(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE + "schedule: {reestimate_bn: {batches: 4}}\n")
        self.fail_with(2, "schedule.reestimate_bn: the model has no batch norm left", arguments=["validate", recipe])
        kept = ["--set", "quantize.bn_fold=none"]
        self.succeed("validate", recipe, *kept)
        self.fail_with(2, "expected at most the 9 batches of an epoch, got 10",
                       arguments=["validate", recipe, *kept, "--set", "schedule.reestimate_bn.batches=10"])


class Folders(Case):
    def endless(self, recipe, *more):
        process = subprocess.Popen([PROGRAM, "train", recipe, "--run-dir", self.path("run"), "--set", "train.epochs=100000", *more],
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.folder)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        for line in process.stdout:
            if line.startswith("epoch "):
                return process
        self.fail("no epoch ended")

    def test_one_run_at_a_time(self):
        recipe = self.recipe(LAYERS + SGD)
        first = self.endless(recipe)
        again = ["train", recipe, "--run-dir", self.path("run"), "--set", "train.epochs=100000", "--resume"]
        self.fail_with(2, "is in use by another process", arguments=again)
        self.assertIsNone(first.poll())
        first.kill()
        first.wait()
        second = self.endless(recipe, "--resume")
        second.send_signal(signal.SIGTERM)
        self.assertEqual(second.wait(), 130)

    def test_leftovers_are_not_taken_for_results(self):
        recipe = self.recipe(LAYERS + SGD)
        os.makedirs(self.path("run"))
        for name in ("best.safetensors", "plan.txt", "metrics.jsonl"):
            with open(self.path("run", name), "w") as file:
                file.write("of a run that was killed\n")
        self.train(recipe, "run", "--set", "data.validation=0")
        self.assertEqual(sorted(os.listdir(self.path("run"))),
                         ["last.safetensors", "metrics.jsonl", "recipe.yaml", "summary.json"])
        os.remove(self.path("run", "last.safetensors"))
        self.fail_with(2, "holds the results of a run but no last.safetensors",
                       arguments=["train", recipe, "--run-dir", self.path("run"), "--set", "data.validation=0"])
        self.assertTrue(os.path.exists(self.path("run", "summary.json")))


    def test_a_recipe_written_by_an_earlier_version_is_the_same(self):
        recipe = self.recipe(LAYERS + ADAMW)
        more = ["--set", "name=2024-run", "--set", "train.epochs=1"]
        self.train(recipe, "run", *more)
        with open(self.path("run", "recipe.yaml")) as file:
            written = file.read()
        earlier = written.replace('name: "2024-run"', "name: 2024-run").replace("eps: 1.0e-08", "eps: 1e-08")
        self.assertEqual(len(written) - len(earlier), 4)
        with open(self.path("run", "recipe.yaml"), "w") as file:
            file.write(earlier)
        self.train(recipe, "run", *more, "--resume")
        self.fail_with(2, "differs from the recipe given", arguments=[
            "train", recipe, "--run-dir", "run", "--resume", *more, "--set", "train.optimizer.eps=1e-7"])

    def test_lines_that_no_run_writes_are_dropped_on_resume(self):
        for name, more in (("plain", []), ("events", ["--set", "train.tensorboard=true"])):
            more = [*more, "--set", "train.checkpoint_every_steps=1", "--set", "train.keep_step_checkpoints=true"]
            recipe = self.recipe(LAYERS + SGD)
            self.train(recipe, name, *more)
            whole = self.metrics(name)
            shutil.copy(self.path(name, "step-30.safetensors"), self.path(name, "last.safetensors"))
            with open(self.path(name, "metrics.jsonl")) as file:
                lines = file.read().splitlines()
            lines[1:1] = ['{"type": 5}', '{"type": "step", "step": "x"}', '{"type": "step"}', "[1]", "3", "nonsense",
                          '{"type": "epoch", "step": 1, "epoch": null}', '{"type": "step", "step": 1, "loss": "x"}',
                          '{"type": "step", "step": 1.5, "loss": 1, "lr": 1}', '{"type": "step", "step": -1e300, "loss": 1, "lr": 1}',
                          '{"type": "epoch", "step": 9, "epoch": 18446744073709551615, "train_loss": 1}',
                          '{"type": "epoch", "step": 9, "epoch": 1, "validation": 3}',
                          '{"type": "epoch", "step": 9, "epoch": 1, "seconds": "x"}']
            with open(self.path(name, "metrics.jsonl"), "w") as file:
                file.write("\n".join(lines) + "\n")
            self.train(recipe, name, *more, "--resume")
            self.assertEqual(self.metrics(name), whole)


class NotFiles(Case):
    """Something else in place of a file: a named pipe, which opens only once somebody writes, a folder, a device."""

    def test_are_refused_wherever_a_file_is_read_or_written(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE)
        self.train(recipe, "run", "--set", "train.epochs=1", "--set", "train.tensorboard=true")
        self.succeed("export", "run")
        os.mkfifo(self.path("pipe"))
        inputs, resume = "data/test.safetensors", ["--resume", "--set", "train.epochs=1", "--set", "train.tensorboard=true"]
        def rejected(*arguments, what="a named pipe"):
            self.fail_with(2, "expected a regular file, got " + what, arguments=arguments)
        for arguments in (["validate", "pipe"], ["inspect", "pipe"], ["predict", "run", "pipe"], ["predict", "pipe", inputs],
                          ["eval", "run", "--checkpoint", "pipe"], ["verify", "run", "--model", "pipe"],
                          ["train", recipe, "--dry-run", "--set", "init.checkpoint=pipe"], ["report", "run", "--out", "pipe"]):
            rejected(*arguments)
        rejected("validate", "/dev/null", what="a device")
        rejected("inspect", "data", what="a folder (of a run, --graph prints the network; its checkpoint is last.safetensors)")
        rejected("report", "run", "--out", "data", what="a folder")
        for folder, name, arguments in (
                ("data", "test.safetensors", ["validate", recipe]),
                ("run", "recipe.yaml", ["eval", "run"]),
                ("run", "last.safetensors", ["export", "run"]),
                ("run", "metrics.jsonl", ["train", recipe, "--run-dir", "run", *resume]),
                ("run", "events.out.tfevents.steelyard", ["train", recipe, "--run-dir", "run", *resume]),
                ("run/export", "model.safetensors", ["verify", "run"]),
                ("run/export", "model.safetensors", ["predict", "run", inputs, "--with", "integer"])):
            path = self.path(folder, name)
            os.rename(path, path + ".kept")
            os.mkfifo(path)
            rejected(*arguments)
            os.rename(path + ".kept", path)
        self.fail_with(2, "pipe: cannot create: Not a directory", arguments=["train", recipe, "--run-dir", "pipe"])


class Outputs(Case):
    def shell(self, command):
        return subprocess.run(["sh", "-c", command], cwd=self.folder, text=True, capture_output=True, timeout=300,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive"})

    def test_closed_output_does_not_end_up_in_files(self):
        recipe = self.recipe(LAYERS + SGD)
        self.assertEqual(self.shell(f"{PROGRAM} train {recipe} --run-dir run >&- 2>&- <&-").returncode, 0)
        with open(self.path("run", "metrics.jsonl")) as file:
            self.assertEqual([json.loads(line)["type"] for line in file][-1], "test")

    def test_output_that_cannot_be_written_is_a_failure_of_what_prints(self):
        recipe = self.recipe(LAYERS + SGD + QUANTIZE)
        self.train(recipe, "run", "--set", "train.epochs=1")
        self.succeed("export", "run", "--format", "safetensors")
        closed = ["predict run data/test.safetensors", "predict run/export/model.safetensors data/test.safetensors",
                  f"validate {recipe}", "--version", f"train {recipe} --dry-run", "eval run", "export run", "inspect --graph run"]
        full = ["recipes", "recipes fashion-mnist-cnn-float", "schema", "--help", f"validate {recipe} --resolved", "verify run",
                "predict run data/test.safetensors", "report run", "inspect run/last.safetensors",
                f"train {recipe} --dry-run", "sensitivity run --bits 4 --samples 10 --batches 1"]
        for command in [f"{arguments} >&-" for arguments in closed] + [f"{arguments} > /dev/full" for arguments in full]:
            result = self.shell(f"{PROGRAM} {command}")
            self.assertEqual(result.returncode, 1, command)
            self.assertRegex(result.stderr, "^failed: .*(cannot write|No space left on device)", command)

    # scripts/campaign full-disk does so at every operation of every kind of run.
    def test_a_full_disk_of_a_run_is_a_failure_that_it_goes_on_from(self):
        recipe = self.recipe(LAYERS + SGD)
        more = ["--set", "train.epochs=2", "--resume"]
        self.train(recipe, "whole", *more)
        for first, operation in enumerate(("mkdir", "create", "write", "fsync", "rename")):
            full = {"LD_PRELOAD": os.environ["FAILING_WRITES"], "FAILING_FOLDER": self.path("run"),
                    "FAILING_FROM": str(first), "FAILING_LOG": self.path("failed"),
                    "ASAN_OPTIONS": "verify_asan_link_order=0"}
            shutil.rmtree(self.path("run"), ignore_errors=True)
            result = self.run_program("train", recipe, "--run-dir", self.path("run"), *more, **full)
            with open(self.path("failed")) as file:
                self.assertEqual(file.read().split(" ")[0], operation)
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertRegex(result.stderr, r"^failed: .*run.*: No space left on device\n$")
        self.train(recipe, "run", *more)
        self.assertEqual(self.sha("run", "last.safetensors"), self.sha("whole", "last.safetensors"))

    def test_training_goes_on_without_readers(self):
        recipe = self.recipe(LAYERS + SGD)
        self.shell(f"{PROGRAM} train {recipe} --run-dir piped --set train.epochs=40 | head -1")
        self.assertIn("final", self.summary("piped"))
        self.assertEqual(self.shell(f"{PROGRAM} train {recipe} --run-dir full > /dev/full").returncode, 0)
        self.assertIn("final", self.summary("full"))

    def test_nohup(self):
        recipe = self.recipe(LAYERS + SGD)
        process = subprocess.Popen(["nohup", PROGRAM, "train", recipe, "--run-dir", "run", "--set", "train.epochs=40"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=self.folder)
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.communicate()
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
