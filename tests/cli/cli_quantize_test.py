"""steelyard quantize: from a float ONNX file and unlabelled inputs to a verified integer one."""
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import unittest

from cli_case import LAYERS, PROGRAM, SGD, Case
from support.data_files import f32, png, write_npy, write_safetensors
from support.onnx_files import model, node, port, squeeze_excite, tensor


class Quantize(Case):
    def setUp(self):
        super().setUp()
        with open(self.path("net.onnx"), "wb") as file:
            file.write(squeeze_excite())
        generator = random.Random(5)
        self.values = [generator.gauss(0, 1) for _ in range(60 * 64)]
        write_npy(self.path("inputs.npy"), (60, 8, 8, 1), self.values)

    def quantize(self, *more):
        return ("quantize", "net.onnx", "--data", "inputs.npy", "--threads", "1", *more)

    def test_from_a_file_and_inputs_to_a_verified_file(self):
        printed = self.succeed(*self.quantize())
        self.assertIn("60 samples f32 [8, 8, 1] of inputs.npy (arrays): 36 to calibrate and train on, 12 to choose by, "
                      "12 to report on\n", printed)
        self.assertRegex(printed, r"\n0 of \d+ codes differ")
        self.assertRegex(printed, r"output shares on samples that chose nothing: SQNR [\d.]+ dB, [\d.]+ % of the decisions "
                                  r"the same; worst: ")
        self.assertIn("<- chosen\n", printed)
        self.assertIn("written: net-w8a8.onnx\n", printed)
        with open(self.path("runs", "net-w8a8", "search.json")) as file:
            steps = {step["name"]: step for step in json.load(file)["steps"]}
        self.assertIn("min_max", steps)
        self.assertIn("histogram", steps)
        best = max(steps.values(), key=lambda step: step["outputs"][0]["sqnr_db"])
        self.assertRegex(printed, rf"\n{best['name']} .*<- chosen\n")
        self.assertGreater(best["outputs"][0]["sqnr_db"], 20)

        # The chosen step is a run like any other, and what it gave is there already.
        run = os.path.join("runs", "net-w8a8", "steps", best["name"])
        with open(self.path("net-w8a8.onnx"), "rb") as file:
            exported = file.read()
        with open(self.path(run, "export", "model.onnx"), "rb") as file:
            self.assertEqual(file.read(), exported)
        self.succeed("eval", run)
        self.succeed("report", run)
        accuracies = re.findall(r">(float|quantized in training|integer), [^<]*<(.*?)</tr>", self.read(run, "report.html"))
        figures = {name: re.findall(r">([\d.]+)<", cells) for name, cells in accuracies}
        self.assertEqual(len(figures), 3)
        self.assertEqual(figures["integer"], figures["quantized in training"])  # both of logits

        # The same command ends with the same file, wherever it was stopped; it replaces no other.
        again = self.succeed(*self.quantize())
        self.assertIn("written: net-w8a8.onnx\n", again)
        with open(self.path("net-w8a8.onnx"), "rb") as file:
            self.assertEqual(file.read(), exported)
        with open(self.path("net-w8a8.onnx"), "ab") as file:
            file.write(b"mine")
        refused = self.run_program(*self.quantize())
        self.assertEqual(refused.returncode, 2)
        self.assertIn("\nerror: net-w8a8.onnx: is there already, and is not what this search gives: --overwrite ", refused.stderr)
        with open(self.path("net-w8a8.onnx"), "rb") as file:
            self.assertEqual(file.read(), exported + b"mine")
        os.remove(self.path("net-w8a8.onnx"))
        self.succeed(*self.quantize())
        with open(self.path("net-w8a8.onnx"), "rb") as file:
            self.assertEqual(file.read(), exported)
        self.fail_with(2, "search.json: the folder holds a search with other options", "--overwrite",
                       arguments=self.quantize("--portable", "--out", "other.onnx"))
        self.succeed(*self.quantize("--portable", "--overwrite"))

    def state(self, folder):
        with open(self.path(folder, "search.json")) as file:
            return json.load(file)

    def write_state(self, folder, state):
        with open(self.path(folder, "search.json"), "w") as file:
            json.dump(state, file)

    def table_of(self, printed):
        """Without the seconds."""
        return re.sub(r" +[\d.]+( *<- chosen)?$", r"\1", printed[printed.index("\nstep"):printed.index("\nSQNR:")], flags=re.M)

    def begin(self, run, options):
        """Starts a search, kills it in its first steps, and says how long it trains, which time would decide."""
        process = subprocess.Popen([PROGRAM, *self.quantize(*options)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.wait_for(lambda: os.path.exists(self.path(run, "search.json")))
        process.send_signal(signal.SIGKILL)
        process.wait()
        begun = self.state(run)
        self.assertNotIn("corrected", [step["name"] for step in begun["steps"]])
        trained = ["trained", "trained_2", "trained_3"]
        trained += [f"{kind}_{count}_{name}" for kind in ("float", "wide") for count in (1, 2, 4, 8, 16) for name in trained]
        self.write_state(run, {**begun, "numbers": {name + ".epochs": 2 for name in trained}})

    def test_trains_where_ranges_are_not_enough(self):
        """Outputs must be nearer than ranges bring them: fine-tuning is tried, then layers in float. Killed at any moment
        and started again, the search ends with the same file."""
        options = ("--bits", "w4a8", "--output", "sum", "--sqnr", "100")
        run = os.path.join("runs", "net-w4a8")
        self.begin(run, options)
        printed = self.succeed(*self.quantize(*options))
        self.assertRegex(printed, r"\ntrained +[\d.]+")
        found = self.state(run)
        names = [step["name"] for step in found["steps"]]
        self.assertLess(names.index("corrected"), names.index("trained"))
        self.assertLess(names.index("trained_2"), names.index("float_1"))
        self.assertEqual(len(set(names)), len(names))
        file = self.sha("net-w4a8.onnx")
        table = self.table_of(printed)
        for last in ("corrected", "trained_2"):
            kept = names.index(last) + 1
            self.write_state(run, {**found, "steps": found["steps"][:kept]})
            for name in names[kept:]:
                shutil.rmtree(self.path(run, "steps", name))
            os.remove(self.path("net-w4a8.onnx"))
            self.assertEqual(self.table_of(self.succeed(*self.quantize(*options))), table)
            self.assertEqual(self.sha("net-w4a8.onnx"), file)

    def test_nothing_is_lost_by_a_mistake(self):
        float_file = self.read_bytes("net.onnx")
        self.fail_with(2, "--out: net.onnx is the float model", arguments=self.quantize("--out", "net.onnx", "--overwrite"))
        self.assertEqual(self.read_bytes("net.onnx"), float_file)
        self.fail_with(2, "--score: false: ended with 1", arguments=self.quantize("--score", "false"))
        self.succeed(*self.quantize())  # what ended before its first step is no other search
        before = self.state(os.path.join("runs", "net-w8a8"))
        self.fail_with(2, "there is no tpyo.npy", arguments=("quantize", "net.onnx", "--data", "tpyo.npy", "--overwrite"))
        self.assertEqual(self.state(os.path.join("runs", "net-w8a8")), before)

    def test_a_classifier_that_was_exported_here(self):
        self.train(self.recipe(LAYERS + SGD.replace("epochs: 6", "epochs: 1")), "floats")
        self.succeed("export", "floats", "--format", "onnx", "--out", "exported")
        generator = random.Random(4)
        write_npy(self.path("images.npy"), (40, 8, 8, 1), [generator.random() for _ in range(40 * 64)])
        printed = self.succeed("quantize", os.path.join("exported", "model.onnx"), "--data", "images.npy", "--minutes", "0.2")
        self.assertRegex(printed, r"\n0 of \d+ codes differ")

    def test_says_that_it_is_not_good_enough(self):
        self.assertIn("\nnot good enough yet, by --sqnr, --agreement and --boxes: ",
                      self.succeed(*self.quantize("--sqnr", "150", "--most-float", "0", "--minutes", "0.1")))

    def test_one_layer_stays_in_integers(self):
        printed = self.succeed(*self.quantize("--sqnr", "150", "--most-float", "100", "--minutes", "0.3"))
        self.assertIn(" stays in integers: it is the last one", printed)

    def read_bytes(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def test_a_recipe_that_only_calibrates_says_nothing_of_training(self):
        with open(self.path("r.yaml"), "w") as file:
            file.write("version: 1\nname: r\nmodel: {onnx: net.onnx}\nquantize: {groups: [{targets: [Linear, Conv2d], "
                       "weights: {num_bits: 8}, activations: {num_bits: 8}}]}\n"
                       "data: {dataset: arrays, path: inputs.npy, labels: false, normalize: none, test: 12, validation: 0}\n")
        self.assertRegex(self.succeed("calibrate", "r.yaml"), r"SQNR in dB [2-9]\d\.")
        self.succeed("export", "runs/r-calibrated")
        self.succeed("verify", "runs/r-calibrated")
        self.fail_with(2, "r.yaml:1:1: missing key 'train'", arguments=["train", "r.yaml"])

    def test_a_file_for_tensorrt_has_no_zero_points(self):
        printed = self.succeed(*self.quantize("--profile", "tensorrt", "--minutes", "0.1"))
        self.assertRegex(printed, r"\n0 of \d+ codes differ")
        self.assertIn("symmetric: true", self.read("runs", "net-w8a8", "steps", "min_max", "recipe.yaml"))
        self.assertNotIn("symmetric: false", self.read("runs", "net-w8a8", "steps", "min_max", "recipe.yaml"))

    def test_sensitive_modules_get_wider_activations(self):
        options = ("--bits", "mixed", "--sqnr", "200", "--output", "sum")
        self.begin(os.path.join("runs", "net-mixed"), options)
        printed = self.succeed(*self.quantize(*options))
        self.assertRegex(printed, r"\nwide_1 +[\d.]+ .* 100.0 %")
        self.assertRegex(printed, r"\n0 of \d+ codes differ")
        steps = self.state(os.path.join("runs", "net-mixed"))["steps"]
        wide = [step for step in steps if step["name"].startswith("wide_") and not step["name"].endswith("trained")]
        self.assertGreater(len(wide), 1)
        decibels = {step["name"]: step["outputs"][0]["sqnr_db"] for step in steps}
        self.assertGreater(max(decibels[step["name"]] for step in wide), decibels["corrected"] + 3)
        recipe = self.read("runs", "net-mixed", "steps", wide[-1]["name"], "recipe.yaml")
        self.assertIn("num_bits: 16", recipe)

    def score_by(self, script):
        with open(self.path("score.sh"), "w") as file:
            file.write(script)
        return "--score", "sh score.sh {onnx}"

    def test_the_users_own_number_decides(self):
        """The float file and what histograms give are good; the rest is not, whatever its SQNR."""
        score = self.score_by('echo reading "$1"\ncase "$1" in net.onnx) echo 1;; */histogram/*) echo "is: .995";;'
                              ' *) echo .5;; esac\necho\n')
        printed = self.succeed(*self.quantize(*score, "--sqnr", "200"))
        self.assertRegex(printed, r"\nhistogram +0\.995 .*<- chosen\n")
        self.assertRegex(printed, r"\nmin_max +0\.5 ")
        self.assertIn("\nscore 0.995, of the float model 1\n", printed)
        self.assertNotIn("fine-tuned", printed)  # it was enough
        self.fail_with(2, "a search with other options", arguments=self.quantize(*score, "--score-loss", "0.1", "--out", "b.onnx"))
        strict = (*score, "--score-loss", "0.1", "--minutes", "0.1", "--overwrite")
        self.assertRegex(self.succeed(*self.quantize(*strict)), r"\nhistogram +0\.995 .*<- chosen\n")
        for script, complaint in (("exit 3", "ended with 3"), ("echo 0.9 good", "as its last word, got 'good'"),
                                  ("echo nan", "got 'nan'"), ("true", "got ''")):
            self.fail_with(2, "--score: sh score.sh 'net.onnx': ", complaint,
                           arguments=self.quantize(*self.score_by(script), "--run-dir", "other", "--out", "other.onnx"))

    def test_an_interrupt_while_the_number_is_computed_is_one(self):
        score = self.score_by("if [ $1 = net.onnx ]; then echo 1; else touch begun; sleep 60; echo 1; fi\n")
        program = subprocess.Popen([PROGRAM, *self.quantize(*score)], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        self.wait_for(lambda: os.path.exists(self.path("begun")))
        os.killpg(program.pid, signal.SIGINT)  # as a terminal sends it
        printed, errors = program.communicate()
        self.assertEqual(program.returncode, 130)
        self.assertNotIn("error: ", errors)
        self.assertTrue(printed.endswith("interrupted: the same command goes on\n"), printed)

    def test_a_step_that_fails_is_left_out(self):
        """The outermost value of the samples is so large that whole ranges round others to 0, whose logarithm is infinite."""
        nodes = [node("Conv", ["x", "weight"], "y", kernel_shape=[1, 1]), node("Log", ["y"], "z")]
        with open(self.path("log.onnx"), "wb") as file:
            file.write(model(nodes, [tensor("weight", [1, 1, 1, 1], [1.0])], [port("x", ["batch", 1, 16, 16])],
                             [port("z", ["batch", 1, 16, 16])]))
        generator = random.Random(3)
        values = [generator.uniform(1, 2) for _ in range(100 * 256)]
        values[40] = 3e4
        write_npy(self.path("log.npy"), (100, 16, 16, 1), values)
        command = ("quantize", "log.onnx", "--data", "log.npy", "--threads", "1", "--minutes", "0.2", "--sqnr", "15")
        result = self.run_program(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("note: min_max did not work: step 0: test loss is inf", result.stderr)
        self.assertRegex(result.stdout, r"\n(wide_)?percentile .*<- chosen\n")
        self.assertIn("\nno min_max: step 0: test loss is inf", result.stdout)
        again = self.run_program(*command)  # which fails no second time
        self.assertIn("note: min_max did not work: step 0: test loss is inf", again.stderr)
        self.assertNotIn("ranges from the smallest to the largest value ...", again.stdout)
        self.assertEqual(self.table_of(again.stdout), self.table_of(result.stdout))
        write_npy(self.path("log.npy"), (100, 16, 16, 1), [3e4 if i % 64 == 0 else v for i, v in enumerate(values)])
        failed = self.run_program(*command, "--overwrite")
        self.assertEqual(failed.returncode, 1, failed.stderr)
        self.assertIn("failed: step 0: test loss is inf", failed.stderr)

    def runtime_that_is_off(self, factor):
        """A Python whose ONNX Runtime multiplies outputs by this."""
        real = os.environ["STEELYARD_PYTHON"]
        if not os.access(real, os.X_OK):
            self.skipTest(f"no {real}")
        os.makedirs(self.path("modules"))
        with open(self.path("modules", "onnxruntime.py"), "w") as file:
            file.write(f"import sys\nsys.path.remove({self.path('modules')!r})\nthis = sys.modules.pop('onnxruntime')\n"
                       "import onnxruntime\nclass Off(onnxruntime.InferenceSession):\n    def run(self, *given, **named):\n"
                       f"        return [y * y.dtype.type({factor}) for y in super().run(*given, **named)]\n"
                       "onnxruntime.InferenceSession = Off\n")
        with open(self.path("python"), "w") as file:  # -I ignores PYTHONPATH: this one does not pass it on
            file.write(f"#!/bin/sh\nshift\nPYTHONPATH={self.path('modules')} exec {real} \"$@\"\n")
        os.chmod(self.path("python"), 0o755)
        return self.path("python")

    def test_a_coarse_model_need_not_be_closer_to_onnx_runtime_than_to_the_float_model(self):
        """One input that nothing reads spoils the range of the others, so that a relative error of .02 is little."""
        python = self.runtime_that_is_off(1.02)
        weight = [0.0 if i < 4 else 10 / (i + 1) for i in range(16)]
        with open(self.path("coarse.onnx"), "wb") as file:
            file.write(model([node("MatMul", ["x", "weight"], "y"), node("Softmax", ["y"], "z", axis=-1)], [tensor("weight", [4, 4], weight)],
                             [port("x", ["batch", 4])], [port("z", ["batch", 4])]))
        generator = random.Random(3)
        write_npy(self.path("coarse.npy"), (100, 4), [generator.gauss(0, 1) * (250 if i % 4 == 0 else 1) for i in range(400)])
        printed = self.run_program("quantize", "coarse.onnx", "--data", "coarse.npy", "--threads", "1", "--minutes", "0.1", "--sqnr", "5",
                                   "--python", python)
        self.assertEqual(printed.returncode, 0, printed.stdout + printed.stderr)
        run = re.search(r"\nrun: (\S+)", printed.stdout)[1]
        again = self.run_program("verify", run, "--python", python)
        self.assertEqual(again.returncode, 3, again.stdout)
        self.assertIn("or a relative error of at most 0.01 (root mean square), got 0.02", again.stdout)

    def test_names_of_any_language_stay_apart(self):
        for name in ("\u043c\u043e\u0434\u0435\u043b\u044c", "\u6a21\u578b"):
            shutil.copy(self.path("net.onnx"), self.path(name + ".onnx"))
            self.succeed("quantize", name + ".onnx", "--data", "inputs.npy", "--threads", "1", "--minutes", "0.1")
            self.assertTrue(os.path.exists(self.path(name + "-w8a8.onnx")))
            self.assertTrue(os.path.exists(self.path("runs", name + "-w8a8", "search.json")))

    def test_samples_that_say_nothing_are_told(self):
        for values, said in (([0.5] * (60 * 64), "all samples are equal"),
                             ([float(i) for i in range(60) for _ in range(64)], "each sample has one value only")):
            write_npy(self.path("same.npy"), (60, 8, 8, 1), values)
            result = self.run_program("quantize", "net.onnx", "--data", "same.npy", "--minutes", "0.1", "--overwrite")
            self.assertIn("note: " + said, result.stderr)

    def test_no_time_is_spent_that_is_not_there(self):
        printed = self.succeed(*self.quantize("--sqnr", "100", "--minutes", "0.1"))
        begun = self.state("runs/net-w8a8")
        self.assertGreater(begun["numbers"].get("other.seconds", 0), 0)  # what is no step counts, too
        begun["numbers"]["other.seconds"] = 1000
        kept = [step for step in begun["steps"] if step["name"] == "min_max"]
        self.write_state("runs/net-w8a8", {**begun, "steps": kept, "numbers": {"other.seconds": 1000}})
        printed = self.succeed(*self.quantize("--sqnr", "100", "--minutes", "0.1", "--out", "late.onnx"))
        self.assertIn("\nno trained: 0 s are left (--minutes)\n", printed)
        if "ranking" not in begun:
            self.assertIn("\nno float modules: 0 s are left (--minutes)\n", printed)

    def test_wrong_input_is_one_line(self):
        for arguments, fragments in [
                (("--data", "nothing"), ("--data: there is no nothing",)),
                (("--data", "inputs.npy", "--mean", "0.5"), ("--mean: is for images",)),
                (("--data", "inputs.npy", "--out", "no/where.onnx"), ("--out: there is no folder no",)),
                (("--data", "inputs.npy", "--bits", "mixed", "--profile", "tensorrt"), ("--bits mixed: the profile tensorrt",)),
                (("--data", "inputs.npy", "--minutes", "0"), ("--minutes",))]:
            self.fail_with(2, *fragments, arguments=["quantize", "net.onnx", *arguments])
        self.fail_with(2, "inputs.npy", arguments=["quantize", "inputs.npy", "--data", "inputs.npy"])
        os.mkdir(self.path("empty"))
        self.fail_with(2, "empty: expected images", arguments=["quantize", "net.onnx", "--data", "empty"])
        write_npy(self.path("few.npy"), (5, 8, 8, 1), self.values[:5 * 64])
        self.fail_with(2, "few.npy: expected at least 8 samples, got 5", arguments=["quantize", "net.onnx", "--data", "few.npy"])
        write_npy(self.path("nan.npy"), (60, 8, 8, 1), [float("nan"), *self.values[1:]])
        self.fail_with(2, "nan.npy", "sample 0", arguments=["quantize", "net.onnx", "--data", "nan.npy"])
        write_npy(self.path("other.npy"), (60, 8, 8, 3), self.values * 3)
        self.fail_with(2, "[8, 8, 3]", arguments=["quantize", "net.onnx", "--data", "other.npy"])
        self.assertFalse(os.path.exists(self.path("runs")))
        os.makedirs(self.path("mine", "steps", "min_max"))
        with open(self.path("mine", "steps", "min_max", "thesis.txt"), "w") as file:
            file.write("years of work")
        for more in ((), ("--overwrite",)):
            self.fail_with(2, "steps: is there, and no search made it", arguments=self.quantize("--run-dir", "mine", *more))
        self.assertEqual(self.read("mine", "steps", "min_max", "thesis.txt"), "years of work")


class QuantizeImages(Case):
    def test_photographs_of_any_size(self):
        with open(self.path("net.onnx"), "wb") as file:
            file.write(squeeze_excite())
        generator = random.Random(2)
        os.makedirs(self.path("photos", "old"))
        for i in range(20):
            with open(self.path("photos", "old", f"{i}.png"), "wb") as file:
                file.write(png(10, 9, bytes(generator.randrange(256) for _ in range(3 * 90))))
        photos = ("quantize", "net.onnx", "--data", "photos", "--resize", "8,8", "--threads", "1")
        result = self.run_program(*photos, "--mean", "0.5", "--std", "0.25")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("images: grey, resized to 8 x 8, bytes / 255, then (x - mean) / std\n", result.stdout)
        self.assertNotIn("the samples look otherwise", result.stderr)
        run = os.path.join("runs", "net-w8a8", "steps", "min_max", "recipe.yaml")
        self.assertIn("mean: [0.5]\n    std: [0.25]\n", self.read(run))
        # The norm of the network says that bytes as they are are not what it was trained on.
        result = self.run_program(*photos, "--range", "255", "--run-dir", "bytes", "--out", "bytes.onnx")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the samples look otherwise than those that the model was trained on: the first batch norm (stem_bn) gets "
                      "means ", result.stderr)
        self.fail_with(2, "--mean: expected a number for each of the 1 channels, got 3",
                       arguments=[*photos, "--mean", "0.1,0.2,0.3", "--overwrite"])
        self.fail_with(2, "--mean 123: is beyond 1, the largest value of --range 1: add --range 255",
                       arguments=[*photos, "--mean", "123", "--std", "58", "--overwrite"])
        self.fail_with(2, "--std 0.229: is for values from 0 to 1", "leave --range out",
                       arguments=[*photos, "--range", "255", "--mean", "0.485", "--std", "0.229", "--overwrite"])
        self.fail_with(2, "--std: expected numbers above 0, got 0", arguments=[*photos, "--std", "0", "--overwrite"])


class SelfDistillation(Case):
    """The same in recipes: the float model's outputs in place of labels, or beside them."""

    def test_without_labels(self):
        with open(self.path("net.onnx"), "wb") as file:
            file.write(squeeze_excite())
        generator = random.Random(5)
        write_safetensors(self.path("inputs.safetensors"),
                          {"inputs": f32((60, 8, 8, 1), [generator.gauss(0, 1) for _ in range(60 * 64)])})
        recipe = self.path("recipe.yaml")
        with open(recipe, "w") as file:
            file.write("version: 1\nname: small\n"
                       "data: {dataset: safetensors, path: inputs.safetensors, labels: false, test: 10, validation: 10, "
                       "batch_size: 8, normalize: none}\n"
                       "model: {onnx: net.onnx}\n"
                       "train: {epochs: 30, loss: fidelity, optimizer: {type: adamw, lr: 1.0e-3}}\n"
                       "quantize: {groups: [{targets: [Conv2d, Linear], weights: {num_bits: 2}, activations: {num_bits: 8}}], "
                       "algorithm: {method: lsq}}\n"
                       "calibrate: {}\nexport: {formats: [safetensors, onnx]}\n")
        self.succeed("calibrate", recipe, "--run-dir", "calibrated")
        self.succeed("train", recipe, "--run-dir", "run")
        loss = {run: self.summary(run)["final"]["loss"] for run in ("calibrated", "run")}
        self.assertLess(loss["run"], .8 * loss["calibrated"])
        self.assertGreater(self.summary("run")["final"]["sqnr"], self.summary("calibrated")["final"]["sqnr"])
        self.assertRegex(self.succeed("verify", "run"), r"\n0 of \d+ codes differ")
        self.assertIn(f"{loss['run']:.4f}", self.succeed("eval", "run"))

        # Resumed, to the same bits; with another file in the teacher's place, not at all.
        self.succeed("train", recipe, "--run-dir", "half", "--set", "train.epochs=2")
        self.succeed("train", recipe, "--run-dir", "half", "--resume")
        self.assertEqual(self.sha("half", "last.safetensors"), self.sha("run", "last.safetensors"))
        with open(self.path("net.onnx"), "wb") as file:
            file.write(squeeze_excite(shifted="norm") + b"\x72\x00")
        self.fail_with(2, "model.onnx: the file is not the one that the run learns from",
                       arguments=["train", recipe, "--run-dir", "half", "--resume", "--set", "train.epochs=34"])

        for change, fragment in (("train.loss=cross_entropy", "expected fidelity, mse, huber or cosine"),
                                 ("data.labels=true", "fidelity compares with what the float model gives"),
                                 ("data.augment=[flip]", "data.augment: expected none"),
                                 ("train.distill={teacher: self}", "distill needs the loss cross_entropy or token_cross_entropy, got fidelity")):
            self.fail_with(2, fragment, arguments=["train", recipe, "--set", change])

    def test_beside_labels(self):
        with open(self.path("net.onnx"), "wb") as file:
            file.write(squeeze_excite())
        body = ("model: {onnx: net.onnx}\n"
                "quantize: {groups: [{targets: [Conv2d, Linear], weights: {num_bits: 4}, activations: {num_bits: 8}}]}\n"
                "train: {epochs: 2, optimizer: {type: sgd, lr: 0.01}, distill: {teacher: self}}\n")
        recipe = self.recipe(body)
        self.train(recipe, "run")
        # The teacher is the float model that the run begins with.
        self.succeed("import", "net.onnx", "--run-dir", "float", "--set", "data.dataset=safetensors", "--set",
                     "data.path=" + self.data)
        with open(self.path("checkpoint.yaml"), "w") as file:
            file.write(self.read("recipe.yaml").replace("teacher: self", "checkpoint: float/last.safetensors"))
        self.train("checkpoint.yaml", "other")
        self.assertEqual(self.metrics("run"), self.metrics("other"))
        self.fail_with(2, "train.distill: expected checkpoint or teacher: self, got both",
                       arguments=["train", recipe, "--set", "train.distill.checkpoint=float/last.safetensors"])


if __name__ == "__main__":
    unittest.main()
