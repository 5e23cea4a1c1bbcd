"""export, verify, predict and inspect --graph as a user runs them."""
import os
import re
import shutil
import unittest

from cli_case import LAYERS, PROGRAM, QUANTIZE, SGD, Case, as_earlier_version, write_images
from support.data_files import write_safetensors, write_uniform

SHORT = SGD.replace("epochs: 6", "epochs: 2")


class Deploy(Case):
    def trained(self, name, *overrides, body=LAYERS + SHORT + QUANTIZE):
        sets = [word for override in overrides for word in ("--set", override)]
        self.succeed("train", self.recipe(body), "--run-dir", name, *sets)
        return name

    def test_export_verify_predict(self):
        run = self.trained("run")
        before = self.succeed("verify", run)
        self.assertRegex(before, r"0 of \d+ codes differ, in 7 quantized tensors over 40 samples")
        self.assertIn("as `steelyard export run` would write it", before)

        self.assertRegex(self.succeed("export", run, "--format", "safetensors"),
                         r"^run/export/model.safetensors: \d+ bytes\n$")
        self.assertRegex(self.succeed("export", run, "--format", "c"), r"^run/export/model.h: \d+ bytes\n$")
        model = os.path.join(run, "export", "model.safetensors")
        after = self.succeed("verify", run, "--samples", "25", STEELYARD_CPU_BACKEND="eigen")
        self.assertIn("integer model: " + model, after)
        self.assertIn("over 25 samples", after)
        accuracies = re.search(r"top-1: trained ([\d.]+) %, integer ([\d.]+) %", after)
        self.assertEqual(accuracies[1], accuracies[2])

        data = os.path.join(self.data, "test.safetensors")
        by_checkpoint = self.succeed("predict", run, data)
        self.assertEqual(by_checkpoint.count("\n"), 40)
        self.assertRegex(by_checkpoint, r"^0  class [0-3]  [01]\.\d{3}\n")
        self.assertEqual(by_checkpoint, self.succeed("predict", run, data, "--with", "integer"))
        self.assertEqual(by_checkpoint, self.succeed("predict", model, data))

        graph = self.succeed("inspect", "--graph", run)
        self.assertIn("block", graph)
        self.assertIn("add + relu of", graph)
        self.assertEqual(graph, self.succeed("inspect", "--graph", model))

    def test_onnx_file(self):
        run = self.trained("run")
        self.succeed("export", run)
        judged = self.succeed("verify", run)
        if "ONNX: skipped" in judged:
            self.skipTest("no Python with onnxruntime")
        self.assertRegex(judged, r"ONNX Runtime [\d.]+: top-1 [\d.]+ %, the same class for 100.00 %; "
                                 r"0 of 160 outputs differ, by at most 0\n")
        self.assertRegex(judged, r"its default session on this machine: top-1 .* outputs differ, .*\n"
                                 r"on x86 without VNNI, .* session.x64quantprecision = \"1\", .*\n$")
        self.check_without_vnni(run)
        data = os.path.join(self.data, "test.safetensors")
        self.assertEqual(self.succeed("predict", run, data), self.succeed("predict", run, data, "--with", "onnx"))
        with open(self.path(run, "export", "model.onnx"), "r+b") as file:
            file.truncate(1000)
        self.fail_with(2, "model.onnx", arguments=["verify", run])
        os.remove(self.path(run, "export", "model.onnx"))
        os.mkfifo(self.path(run, "export", "model.onnx"))
        self.fail_with(2, "model.onnx: expected a regular file, got a named pipe", arguments=["verify", run])

    def test_weights_with_zero_points(self):
        affine = ["quantize.groups.0.weights.symmetric=false", "export.formats=[safetensors,onnx,c]"]
        run = self.resumed("run", *affine, body=LAYERS + SHORT + QUANTIZE)
        self.assertEqual(self.plan(run).count("int8 affine, per channel"), 3)
        judged = self.succeed("verify", run)
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        if "ONNX: skipped" not in judged:
            self.assertIn("; 0 of 160 outputs differ, by at most 0\n", judged)
        self.assertRegex(self.succeed("inspect", "--graph", run), r"zero points -?\d+\.\.-?\d+")
        learned = self.trained("learned", *affine[:1], "quantize.algorithm.method=lsq_plus",
                               "quantize.groups.0.weights.num_bits=3")
        self.assertRegex(self.succeed("verify", learned), r"0 of \d+ codes differ")

    def test_groups_of_codes(self):
        body = "model: {type: mlp, hidden: [32, 16], classes: 4}\n" + SHORT + QUANTIZE.replace(", Conv2d", "").replace(
            "num_bits: 8, symmetric: true, strategy: channel", "num_bits: 4, strategy: group, group_size: 16")
        run = self.resumed("run", "export.formats=[safetensors,onnx,c]", body=body)
        plan = self.plan(run)
        self.assertEqual(plan.count("int4 symmetric, groups of 16"), 3)
        self.assertEqual(plan.count("added to the scaled sums"), 2)
        judged = self.succeed("verify", run)
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertIn("the same class for 100.00 %" if "ONNX Runtime" in judged else "ONNX: skipped", judged)
        self.assertIn("of 16 each, a scale for each sum", self.succeed("inspect", "--graph", run))
        data = os.path.join(self.data, "test.safetensors")
        self.assertEqual(self.succeed("predict", run, data), self.succeed("predict", run, data, "--with", "integer"))

    def resumed(self, name, *overrides, body):
        """A run, which one that stopped inside of its first epoch must equal in the end; its folder."""
        overrides += ("train.checkpoint_every_steps=4", "train.keep_step_checkpoints=true")
        whole, half = self.trained(name, *overrides, body=body), name + "-half"
        self.copy_as_stopped(whole, 8, half)
        sets = [word for override in overrides for word in ("--set", override)]
        self.succeed("train", self.recipe(body), "--run-dir", half, "--resume", *sets)
        self.assertEqual(self.sha(half, "last.safetensors"), self.sha(whole, "last.safetensors"))
        return whole

    def plan(self, run):
        with open(self.path(run, "plan.txt")) as file:
            return file.read()

    def test_dynamic_activations(self):
        tokens = QUANTIZE.replace("symmetric: false, strategy: tensor, observer: moving_average",
                                  "symmetric: false, strategy: token, dynamic: true")
        body = "model: {type: mlp, hidden: [32], classes: 4}\n" + SHORT + tokens.replace(", Conv2d", "")
        block = "quantize.groups.0.activations.block_structure="
        whole = self.resumed("whole", body=body)
        self.assertEqual(self.plan(whole).count("uint8 affine, per token, dynamic"), 2)
        self.assertIn("note: the model cannot be exported: fc1: the operation dynamic_quantize has no deployed form\n", self.plan(whole))
        blocks = self.resumed("blocks", "quantize.groups.0.activations.strategy=block", block + "[4, 16]", body=body)
        self.assertEqual(self.plan(blocks).count("uint8 affine, blocks of 4 rows and 16 columns, dynamic"), 2)
        images = self.resumed("images", body=LAYERS + SHORT + tokens)
        self.assertEqual(self.plan(images).count("uint8 affine, per token, dynamic"), 3)
        self.assertIn("conv: the operation dynamic_quantize has no deployed form", self.plan(images))
        said = "inputs of conv, block.a, fc are "
        self.assertIn("missing: ranges and errors of activations: " + said + "uint8 affine, per token, dynamic: each pass has "
                      "scales of its own values\n", self.succeed("report", images))
        measured = self.run_program("sensitivity", images, "--bits", "4", "--batches", "1")
        self.assertIn("note: " + said + "dynamic: they are not measured and stay in float here\n", measured.stderr)
        self.assertNotIn("activations alone", measured.stdout)
        for run, layer in ((whole, "fc1"), (blocks, "fc1"), (images, "conv")):
            self.fail_with(2, layer + ": the operation dynamic_quantize has no deployed form", arguments=["verify", run])
        recipe = self.recipe(body + "export: {formats: [onnx]}\n", "formats.yaml")
        for more, message in (((), "the operation dynamic_quantize has no deployed form"),
                              (("dynamic=false",), "the strategy token of activations needs dynamic: true"),
                              (("strategy=tensor",), "dynamic needs the strategy token, group or block"),
                              (("strategy=block",), "the strategy block needs block_structure"),
                              (("block_structure=8",), "block_structure needs the strategy block"),
                              (("strategy=block", "block_structure=[4, 24]"), "blocks of 24 do not divide the 64 features of its input"),
                              (("num_bits=16",), "dynamic activations have at most 8 bits"),
                              (("observer=min_max",), "dynamic activations have no observer")):
            sets = [word for key in more for word in ("--set", "quantize.groups.0.activations." + key)]
            self.fail_with(2, message, arguments=["train", recipe, *sets])
        self.fail_with(2, "activations_from has no effect with dynamic activations",
                       arguments=["train", recipe, "--set", "schedule.fake_quant.activations_from=1"])

    def test_activations_of_16_bits(self):
        wide = "quantize.groups.0.activations.num_bits=16"
        body = LAYERS + SHORT + QUANTIZE
        run = self.resumed("run", wide, "export.formats=[safetensors,onnx]", body=body)
        self.assertEqual(self.plan(run).count("uint16 affine, per tensor"), 5)
        judged = self.succeed("verify", run)
        self.assertRegex(judged, r"\n0 of \d+ codes differ, in 7 quantized tensors")
        if "ONNX: skipped" not in judged:
            self.assertIn("; 0 of 160 outputs differ, by at most 0\n", judged)
        self.assertIn("codes 0..65535", self.succeed("inspect", "--graph", run))
        data = os.path.join(self.data, "test.safetensors")
        self.assertEqual(self.succeed("predict", run, data), self.succeed("predict", run, data, "--with", "integer"))
        self.succeed("report", run)
        mixed = self.resumed("mixed", "quantize.algorithm.method=lsq_plus", body=body.replace(
            "    - targets: [Linear, Conv2d]", "    - targets: [fc]\n      weights: {num_bits: 8}\n"
            "      activations: {num_bits: 8}\n    - targets: [Conv2d]").replace(
                "activations: {num_bits: 8, symmetric: false, s", "activations: {num_bits: 12, symmetric: false, s"))
        self.assertEqual(self.plan(mixed).count("uint12 affine"), 3)
        self.assertRegex(self.succeed("verify", mixed), r"\n0 of \d+ codes differ")
        recipe = self.recipe(body + "export: {formats: [onnx]}\n", "formats.yaml")
        for more, message in ((("groups.0.weights.num_bits=16",), "groups.0.weights.num_bits"),
                              (("groups.0.activations.observer=entropy",), "the observer entropy is for at most 8 bits"),
                              (("groups.0.weights.symmetric=false",),
                               "ONNX: conv: a convolution with zero points of weights has no form with codes of more than 8 bits")):
            sets = [word for key in more for word in ("--set", "quantize." + key)]
            self.fail_with(2, message, arguments=["train", recipe, "--set", wide, *sets])
        self.fail_with(2, "C: input_quantizer: the C header has no codes of more than 8 bits",
                       arguments=["train", recipe, "--set", wide, "--set", "export.formats=[c]"])
        self.fail_with(2, "the C header has no codes of more than 8 bits", arguments=["export", run, "--format", "c"])
        self.fail_with(2, "the profile tensorrt has activations of 8 bits, got 16", arguments=[
            "train", recipe, "--set", wide, "--set", "export.profile=tensorrt", "--set", "quantize.groups.0.activations.symmetric=true"])

    def test_reduced_range(self):
        run = self.trained("run", "export.reduce_range=true")
        with open(self.path(run, "plan.txt")) as file:
            plan = file.read()
        self.assertEqual(plan.count("int7 symmetric, per channel"), 3)
        self.assertNotIn(" int8", plan)
        self.assertIn("note: weights have at most 7 bits (export.reduce_range)\n", plan)
        self.succeed("export", run)
        judged = self.succeed("verify", run)
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertNotIn("VNNI", judged)
        self.assertEqual(self.succeed("inspect", "--graph", run).count("int7"), 3)

    def check_without_vnni(self, run):
        """`verify` measures what the default session does on a processor without VNNI."""
        if not shutil.which("qemu-x86_64"):
            return
        with_python = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "with_python")
        with open(self.path("python"), "w") as file:  # only the models run on the emulator
            file.write("#!/bin/sh\n"
                       f"case $3 in *found*) exec {with_python} \"$@\"; esac\n"
                       f"exec {with_python} --without-vnni \"$@\"\n")
        os.chmod(self.path("python"), 0o755)
        judged = self.succeed("verify", run, "--python", self.path("python"))
        self.assertRegex(judged, r"100.00 %; 0 of 160 outputs differ, by at most 0\n")
        differing = re.search(r"its default session .*; (\d+) of 160 outputs differ", judged)
        self.assertGreater(int(differing[1]), 0)

    def test_ignored_layers_take_their_norm_along(self):
        run = self.trained("run", "quantize.ignore=[conv]")
        self.succeed("export", run)
        self.assertNotIn("batch_norm", self.succeed("inspect", "--graph", run))
        self.assertRegex(self.succeed("verify", run), r"0 of \d+ codes differ")

    def test_another_preprocessing_is_a_mismatch(self):
        run = self.trained("run")
        self.succeed("export", run, "--format", "safetensors")
        shutil.rmtree(self.data)
        write_images(self.data, seed=2)
        other = self.trained("other")
        as_earlier_version(self.path("run", "export", "model.safetensors"))  # of the checkpoint, which is another one too
        result = self.run_program("verify", other, "--model", os.path.join(run, "export", "model.safetensors"))
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("model.safetensors was exported with other data than the run's: mean differs", result.stdout)

    def test_regression_predicts_values_in_every_form(self):
        write_uniform(self.data, seed=1, outputs=2, counts=(100, 9))
        body = "model: {type: mlp, hidden: [4], classes: 2}\n" + SHORT + QUANTIZE.replace(", Conv2d", "")
        run = self.trained("run", "train.loss=mse", "data.augment=[]", body=body)
        self.succeed("export", run)
        data = os.path.join(self.data, "test.safetensors")
        by_checkpoint = self.succeed("predict", run, data)
        self.assertNotIn("class", by_checkpoint)
        self.assertEqual(by_checkpoint, self.succeed("predict", run, data, "--with", "integer"))

    def test_with_belongs_to_a_run(self):
        run = self.trained("run", "export.formats=[safetensors]")
        model = os.path.join(run, "export", "model.safetensors")
        data = os.path.join(self.data, "test.safetensors")
        for form in ("checkpoint", "onnx"):
            self.fail_with(2, f"{model}: is not a run's folder, which --with {form} needs",
                           arguments=["predict", model, data, "--with", form])
        self.succeed("predict", model, data, "--with", "integer")

    def test_equal_runs_export_equal_bytes(self):
        for name in ("a", "b"):
            self.trained(name)
            self.succeed("export", name, "--format", "safetensors", "--out", name + "-out")
        contents = []
        for name in ("a", "b"):
            with open(self.path(name + "-out", "model.safetensors"), "rb") as file:
                contents.append(file.read())
        self.assertEqual(*contents)

    def test_batch_norm_folded_in_every_step(self):
        for mode in ("batch_corrected", "one_convolution"):
            run = self.trained(mode, "quantize.bn_fold=" + mode, "schedule.reestimate_bn.batches=4")
            self.assertRegex(self.succeed("verify", run), r"0 of \d+ codes differ, in 7 quantized tensors")

    def test_another_model_is_a_mismatch(self):
        self.trained("a")
        self.trained("b", "seed=9")
        self.succeed("export", "b")
        model = "b/export/model.safetensors"

        def mismatch(*more):
            result = self.run_program("verify", "a", *more)
            self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
            self.assertEqual(result.stderr, "failed: a: not verified\n")
            return result.stdout

        other = "was exported from another checkpoint than a/last.safetensors: export again"
        self.assertTrue(mismatch("--model", model).endswith(f"\n{model} {other}\n"))
        shutil.copytree(self.path("b", "export"), self.path("c", "export"))
        shutil.copy(self.path("a", "last.safetensors"), self.path("c"))
        shutil.copy(self.path("a", "recipe.yaml"), self.path("c"))
        for engine, name in ("integer", "model.safetensors"), ("onnx", "model.onnx"):
            if os.path.exists(self.path("c", "export", name)):
                self.fail_with(2, f"c/export/{name}: was exported from another checkpoint than c has now: export again",
                               arguments=["predict", "c", "data/test.safetensors", "--with", engine])
        shutil.copy(self.path("b", "last.safetensors"), self.path("a", "best.safetensors"))
        as_earlier_version(self.path("a", "best.safetensors"))  # of the recipe, which has another seed
        self.assertTrue(mismatch("--model", model).endswith(f"{other}, or verify with --checkpoint best\n"))
        verified = self.succeed("verify", "a", "--model", model, "--checkpoint", "best")
        self.assertRegex(verified, r"\n0 of \d+ codes")
        self.assertEqual("no b/export/model.onnx" in verified, not os.path.exists(self.path("b", "export", "model.onnx")))
        if os.path.exists(self.path("b", "export", "model.onnx")):
            os.makedirs(self.path("a", "export"))
            shutil.copy(self.path("b", "export", "model.onnx"), self.path("a", "export"))
            self.assertIn(f"a/export/model.onnx {other}", mismatch())
        as_earlier_version(self.path("b", "export", "model.safetensors"))
        old = mismatch("--model", model)
        self.assertRegex(old, r"\ninput_quantizer: another quantization: scale [\d.e-]+, zero point \d+, codes 0 to 255 in")
        self.assertIn("the first tensor that differs is input_quantizer", old)

    def test_tflm_profile(self):
        run = self.trained("run", "export.profile=tflm")
        with open(self.path(run, "plan.txt")) as file:
            plan = file.read()
        self.assertIn("profile tflm: activations have the codes -128 to 127, weights of 8 bits -127 to 127", plan)
        self.assertIn("int8 affine, per tensor", plan)
        self.assertRegex(self.succeed("verify", run), r"0 of \d+ codes differ, in 7 quantized tensors over 40 samples")
        self.assertRegex(self.succeed("export", run), r"^run/export/model.safetensors: \d+ bytes\n"
                                                      r"run/export/model.tflite: \d+ bytes\n$")
        self.assertEqual(self.succeed("predict", run, os.path.join(self.data, "test.safetensors")),
                         self.succeed("predict", os.path.join(run, "export", "model.safetensors"),
                                      os.path.join(self.data, "test.safetensors")))
        self.fail_with(2, "export: ONNX: it has no codes in fixed point", arguments=["export", run, "--format", "onnx"])
        self.assertRegex(self.succeed("export", run, "--format", "c"), r"^run/export/model.h: \d+ bytes\n"
                                                                       r"run/export/model.c: \d+ bytes\n"
                                                                       r"run/export/model_test.c: \d+ bytes\n$")
        self.succeed("export", run, "--format", "c", "--prefix", "shoes", "--out", "shoes")
        with open(self.path("shoes", "model.h")) as file:
            self.assertIn("void shoes_run(int8_t *arena);", file.read())
        self.fail_with(2, "--prefix: expected small letters, digits and _ after a letter, got My-Net",
                       arguments=["export", run, "--format", "c", "--prefix", "My-Net"])
        with open(self.path("run", "export", "model.h")) as file:
            arena = int(re.search(r"STEELYARD_ARENA_BYTES (\d+)", file.read())[1])
        limited = ["train", self.recipe(LAYERS + SHORT + QUANTIZE, "limited.yaml"), "--set", "export.profile=tflm", "--run-dir",
                   "limited"]
        self.assertRegex(self.succeed(*limited, "--set", f"export.limits={{ram: {arena}}}", "--dry-run"),
                         rf"note: the program in C has at most \d+ bytes of constants, {arena} bytes of RAM for values, \d+ multi")
        self.fail_with(2, f"export.limits.ram: expected at most {arena - 1} bytes for values, got {arena}",
                       arguments=[*limited, "--set", f"export.limits={{ram: {arena - 1}}}"])
        self.fail_with(2, "export.limits: expected export.profile: tflm",
                       arguments=[*limited, "--set", "export.profile=ort", "--set", "export.limits={ram: 1}"])
        self.assertFalse(os.path.exists(self.path("limited")))
        self.fail_with(2, "--profile: tflm has no ONNX files: steelyard train makes models of it",
                       arguments=["quantize", "model.onnx", "--profile", "tflm"])
        silu = self.recipe(LAYERS.replace("{type: ReLU}", "{type: SiLU, name: gate}") + SHORT + QUANTIZE, "gate.yaml")
        self.fail_with(2, "gate: the profile tflm has no such SiLU",
                       arguments=["train", silu, "--set", "export.profile=tflm", "--run-dir", "gate"])

    def test_streams(self):
        """Images whose rows are frames: what a call brings is in the plan and in the files."""
        def frames(padding):
            return ("model:\n  classes: 4\n  layers:\n"
                    f"    - {{type: Conv2d, name: conv, out_channels: 4, kernel_size: 3, padding: {padding}}}\n"
                    "    - {type: ReLU}\n    - {type: GlobalAvgPool}\n    - {type: Linear, name: fc, out_features: 4}\n")
        run = self.trained("run", "export={profile: tflm, formats: [safetensors, c], stream: {frames: 2}}",
                           body=frames("[0, 1]") + SHORT + QUANTIZE)
        with open(self.path(run, "plan.txt")) as file:
            plan = file.read()
        self.assertRegex(plan, r"\d+ bytes of RAM for values, \d+ of them kept between calls, \d+ multiplications a call of 2 frames")
        header = self.path(run, "export", "model.h")

        def new_frames():
            with open(header) as file:
                found = re.search(r"STEELYARD_STREAM_FRAMES (\d+)", file.read())
            return found and int(found[1])
        self.assertEqual(new_frames(), 2)
        self.assertRegex(self.succeed("verify", run), r"0 of \d+ codes differ")  # of whole windows
        for arguments, expected in ((["--stream", "1"], 1), (["--stream", "0"], None), ([], 2)):
            self.succeed("export", run, "--format", "c", "--format", "tflite", *arguments)
            self.assertEqual(new_frames(), expected)
        macs = re.search(r"(\d+) multiplications a call", plan)[1]
        limited = self.trained("limited", f"export={{profile: tflm, formats: [c], stream: {{frames: 2}}, limits: {{macs: {macs}}}}}",
                               body=frames("[0, 1]") + SHORT + QUANTIZE)
        self.fail_with(2, f"limited: --stream: export.limits.macs: expected at most {macs} multiplications a sample, got ",
                       arguments=["export", limited, "--format", "c", "--stream", "0"])
        self.fail_with(2, "export.stream.frames: expected 1 or more, and less than the 8 frames of a window, got 8",
                       arguments=["export", run, "--format", "c", "--stream", "8"])
        stream = ["--set", "export={profile: tflm, stream: {frames: 1}}", "--run-dir", "no"]
        self.fail_with(2, "export.stream: layer 'pool': it reads what layer 'conv' computes from padding",
                       arguments=["train", self.recipe(frames("1").replace("{type: GlobalAvgPool}", "{type: GlobalAvgPool, name: pool}")
                                                       + SHORT + QUANTIZE, "padded.yaml"), *stream])
        self.fail_with(2, "export.stream: expected export.profile: tflm",
                       arguments=["train", self.recipe(frames("0") + SHORT + QUANTIZE, "ort.yaml"), *stream, "--set",
                                  "export.profile=ort"])
        self.assertFalse(os.path.exists(self.path("no")))

    def test_tensorrt_profile(self):
        run = self.trained("run", "export.profile=tensorrt", "quantize.groups.0.activations.symmetric=true")
        with open(self.path(run, "plan.txt")) as file:
            plan = file.read()
        self.assertIn("the model's output (profile tensorrt)", plan)
        self.assertIn("a sum reads it (profile tensorrt)", plan)
        self.assertRegex(self.succeed("verify", run), r"0 of \d+ codes differ")
        self.fail_with(2, "was trained for the profile tensorrt, not ort",
                       arguments=["export", run, "--profile", "ort"])

    def test_training_exports_what_the_recipe_asks_for(self):
        run = self.trained("run", "export.formats=[safetensors]")
        self.assertTrue(os.path.isfile(self.path(run, "export", "model.safetensors")))
        self.assertRegex(self.succeed("verify", run), r"0 of \d+ codes differ")
        # A float model too.
        run = self.trained("float", "export.formats=[safetensors, onnx]", body=LAYERS + SHORT)
        judged = self.succeed("verify", run)
        self.assertIn("\n0 of 0 codes differ, in 0 quantized tensors over 40 samples\n", judged)
        if "ONNX: skipped" not in judged:
            self.assertIn("the same class for 100.00 %", judged)

    def test_what_cannot_be_exported_is_refused_before_training(self):
        # Zero points of a convolution's weights beside codes of 16 bits.
        body = LAYERS + SHORT + QUANTIZE.replace("symmetric: true", "symmetric: false").replace(
            "activations: {num_bits: 8", "activations: {num_bits: 16")
        self.succeed("validate", self.recipe(body))
        why = "conv: a convolution with zero points of weights has no form with codes of more than 8 bits"
        # Without formats it trains, and the plan says it.
        self.assertIn("note: the model cannot be exported: ONNX: " + why + "\n",
                      self.succeed("train", self.recipe(body), "--dry-run"))
        for other in (LAYERS + SHORT + QUANTIZE, LAYERS + SHORT):
            self.assertNotIn("cannot be exported", self.succeed("train", self.recipe(other), "--dry-run"))
        recipe = self.recipe(body + "export: {formats: [safetensors, onnx]}\n")
        for verb in ("validate", "train"):
            result = self.fail_with(2, "recipe.yaml:24:19: ", "export: ONNX: " + why, arguments=[verb, recipe])
            self.assertEqual(result.stdout, "")
        self.assertFalse(os.path.exists(self.path("runs")))
        # Of a trained run, none of the files is written if one is refused.
        run = self.trained("wide", body=body)
        self.fail_with(2, "export: ONNX: " + why, arguments=["export", run, "--format", "safetensors", "--format", "onnx"])
        self.assertFalse(os.path.exists(os.path.join(self.path(run), "export")))

    def test_refusals(self):
        self.fail_with(2, "export.profile needs 'quantize'", arguments=[
            "validate", self.recipe(LAYERS + SHORT + "export: {profile: ort}\n", "e.yaml")])
        self.fail_with(2, "symmetric activations", arguments=[
            "validate", self.recipe(LAYERS + SHORT + QUANTIZE + "export: {profile: tensorrt}\n", "t.yaml")])
        late = self.trained("late", body=LAYERS + SGD.replace("epochs: 6", "epochs: 1") + QUANTIZE)
        self.fail_with(2, "expected an exported integer model", arguments=[
            "predict", os.path.join(late, "last.safetensors"), os.path.join(self.data, "test.safetensors")])
        self.fail_with(2, f"export/model.safetensors: is missing; steelyard export {late} writes it", arguments=[
            "predict", late, os.path.join(self.data, "test.safetensors"), "--with", "integer"])
        self.fail_with(2, f"export/model.onnx: is missing; steelyard export {late} --format onnx writes it", arguments=[
            "predict", late, os.path.join(self.data, "test.safetensors"), "--with", "onnx"])
        write_safetensors(self.path("small.safetensors"), {"inputs": ("U8", [1, 4, 4, 1], bytes(16))})
        self.fail_with(2, "expected inputs u8 [1, 8, 8, 1], got u8 [1, 4, 4, 1]",
                       arguments=["predict", late, "small.safetensors"])
        write_safetensors(self.path("flat.safetensors"), {"inputs": ("U8", [64], bytes(64))})
        self.fail_with(2, "expected inputs u8 [samples, 8, 8, 1], got u8 [64, 1]", arguments=["predict", late, "flat.safetensors"])
        write_safetensors(self.path("empty.safetensors"), {"inputs": ("U8", [0, 8, 8, 1], b"")})
        self.fail_with(2, "expected 1 sample or more, got inputs [0, 8, 8, 1]", arguments=["predict", late, "empty.safetensors"])
        write_safetensors(self.path("none.safetensors"), {"x": ("U8", [1], b"1")})
        self.fail_with(2, "expected the tensor inputs, 'inputs' is missing", arguments=["predict", late, "none.safetensors"])
        with open(self.path("notes.yaml"), "w", encoding="utf-8") as file:
            file.write("version: 1\n")
        self.fail_with(2, "notes.yaml: expected images, a table, a NumPy array, a safetensors file or IDX images",
                       arguments=["predict", late, "notes.yaml"])
        os.mkdir(self.path("empty"))
        for folder, found in (("nowhere", "there is none"), ("notes.yaml", "this is a file"), ("empty", "this folder has no recipe.yaml")):
            self.fail_with(2, folder + ": expected a run's folder, " + found, arguments=["verify", folder])


if __name__ == "__main__":
    unittest.main()
