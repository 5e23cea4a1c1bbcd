"""sensitivity as a user runs it."""
import json
import os
import re
import unittest

from cli_case import QUANTIZE, SGD
from cli_report_test import INIT, SHORT, WithRuns
from support.data_files import f32, i64, write_split
from support.onnx_files import model, node, port, tensor


class Sensitivity(WithRuns):
    def measured(self, run, *arguments):
        return json.loads(self.succeed("sensitivity", run, "--json", *arguments))

    def layer(self, measured, name):
        return next(layer for layer in measured["layers"] if layer["name"] == name)

    def test_float_run(self):
        measured = self.measured("float", "--bits", "8,2")
        self.assertEqual((measured["split"], measured["samples"], measured["batches"]), ("validation", 10, 8))
        self.assertEqual([layer["name"] for layer in measured["layers"]],
                         ["(input)", "conv", "block.a", "block", "fc"])
        conv, fc = self.layer(measured, "conv"), self.layer(measured, "fc")
        # 8x8 outputs of 8 channels, 9 weights each; 4 outputs of 128 inputs.
        self.assertEqual((conv["weights"], conv["macs"], conv["activations"]), (72, 64 * 72, 64 * 8))
        self.assertEqual((fc["weights"], fc["macs"], fc["activations"]), (512, 512, 4))
        for layer in (conv, fc):
            wide, narrow = layer["weight"]
            self.assertEqual((wide["bits"], narrow["bits"]), (8, 2))
            self.assertGreater(wide["sqnr_db"], narrow["sqnr_db"] + 20)
            self.assertLess(wide["divergence"], narrow["divergence"] / 10)
        self.assertEqual(self.layer(measured, "(input)")["weight"], [])
        table = self.succeed("sensitivity", "float", "--bits", "8,2")
        self.assertIn("10 validation samples", table)
        self.assertRegex(table, r"(?m)^conv +72 +[\d.]+ +[+-][\d.]+ +[\d.]+ +[+-][\d.]+$")

    def test_without_validation_the_test_set(self):
        self.succeed("train", self.recipe(SHORT), "--run-dir", "all", "--set", "data.validation=0")
        measured = self.measured("all", "--bits", "8", "--samples", "33")
        self.assertEqual((measured["split"], measured["samples"]), ("test", 33))
        self.assertIn(": 33 of 40 test samples; ", self.succeed("sensitivity", "all", "--bits", "8", "--samples", "33"))

    # At 8 bits of everything a quantized run's float weights are as good as the run.
    def test_quantized_runs(self):
        for fold in ("frozen", "none", "batch_corrected"):
            for method in ("ste", "lsq_plus"):
                name = fold + "-" + method
                run = self.quantized(name, "quantize.bn_fold=" + fold, "quantize.algorithm.method=" + method)
                measured = self.measured(run, "--bits", "8")
                self.assertEqual(self.layer(measured, "conv")["weights"], 72)
                self.assertLess(measured["float"]["loss"], 2)
                self.assertLess(self.layer(measured, "fc")["weight"][0]["divergence"], 0.01)

    def test_weights_in_groups(self):
        weights = QUANTIZE[:QUANTIZE.index("      activations")].replace("strategy: channel", "strategy: group, group_size: 8")
        self.succeed("train", self.recipe(SHORT + INIT + weights.replace("Linear, Conv2d", "Linear")), "--run-dir", "grouped")
        measured = self.measured("grouped", "--budget-bits", "4", "--out", "m.yaml", "--set", "name=m")
        self.assertEqual([layer["name"] for layer in measured["layers"]], ["fc"])
        self.assertEqual(measured["chosen"]["activation_bits"], 32)
        self.succeed("train", "m.yaml", "--run-dir", "m")
        # Codes of 4 bits, a scale for 8 of them, 4 biases; the convolutions of the graph are in float.
        self.assertEqual(measured["chosen"]["bytes"], 512 // 2 + 4 * 512 // 8 + 4 * 4)
        with open(self.path("m", "plan.txt")) as file:
            self.assertRegex(file.read(), r"(?m)^fc +weight +int4 ")
        self.succeed("report", "m")

    def test_dynamic_activations(self):
        dynamic = "activations: {dynamic: true, strategy: token, symmetric: true}"
        quantize = re.sub(r"activations: \{.*\}", dynamic, QUANTIZE)
        self.succeed("train", self.recipe(SHORT + INIT + quantize), "--run-dir", "dynamic")
        chosen = self.measured("dynamic", "--bits", "8,4", "--budget-bits", "6", "--out", "m.yaml", "--set", "name=m")["chosen"]
        self.assertEqual(chosen["activation_bits"], 8)
        self.assertEqual(chosen["bit_operations"], sum(
            layer["macs"] * chosen["bits"][layer["name"]] * 8 for layer in self.measured("dynamic", "--bits", "8")["layers"]
            if layer["name"] in chosen["bits"]))
        self.succeed("validate", "m.yaml")

    def test_weights_of_a_reduced_range(self):
        run = self.quantized("reduced", "export.reduce_range=true")
        result = self.run_program("sensitivity", run, "--json", "--bits", "8,4", "--budget-bits", "7", "--out", "m.yaml", "--set", "name=m")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("note: weights of conv, block.a, fc have at most 7 bits (export.reduce_range): their column of 8 bits is of 7\n",
                      result.stderr)
        measured = json.loads(result.stdout)
        self.assertEqual([effect["bits"] for effect in self.layer(measured, "fc")["weight"]], [7, 4])
        self.assertEqual([effect["bits"] for effect in self.layer(measured, "fc")["activation"]], [8, 4])
        self.assertEqual(set(measured["chosen"]["bits"].values()), {7})

    def test_what_the_run_keeps_in_float_stays(self):
        run = self.quantized("partly", "quantize.ignore=[block]")
        names = [layer["name"] for layer in self.measured(run, "--bits", "4")["layers"]]
        self.assertEqual(names, ["(input)", "conv", "fc"])

    def test_regression(self):
        run = self.regression("plain")
        measured = self.measured(run, "--budget-bits", "5", "--out", "m.yaml")
        self.assertNotIn("top1", measured["float"])
        fc1 = self.layer(measured, "fc1")
        self.assertEqual((fc1["weights"], fc1["macs"]), (24, 24))
        self.assertNotIn("top1_drop", fc1["weight"][0])
        errors = [effect["divergence"] for effect in fc1["weight"]]
        self.assertEqual(errors, sorted(errors))
        self.assertLess(errors[0] * 100, errors[-1])
        self.assertRegex(self.succeed("sensitivity", run), r"elements +SQNR dB +loss")
        self.succeed("validate", "m.yaml")

    def test_mixed_precision(self):
        chosen = self.measured("float", "--budget-bits", "4", "--activation-bits", "4", "--out", "mixed.yaml",
                               "--set", "train.epochs=1")["chosen"]
        self.assertLessEqual(chosen["bits_per_weight"], 4)
        bits = chosen["bits"]
        weights = {"conv": 72, "block.a": 576, "fc": 512}
        self.assertEqual(set(bits), set(weights))
        self.assertAlmostEqual(chosen["bits_per_weight"],
                               sum(weights[n] * bits[n] for n in bits) / sum(weights.values()))
        with open(self.path("mixed.yaml")) as file:
            text = file.read()
        self.assertTrue(text.startswith("# Widths chosen by steelyard sensitivity"))
        self.assertRegex(text, r"(?m)^# conv +72 +{} ".format(bits["conv"]))
        self.succeed("train", "mixed.yaml", "--run-dir", "mixed")
        with open(self.path("mixed", "plan.txt")) as file:
            plan = file.read()
        for name, width in bits.items():
            self.assertRegex(plan, r"(?m)^{} +weight +int{} ".format(re.escape(name), width))
            self.assertRegex(plan, r"(?m)^{} +output +uint4 ".format(re.escape(name)))
        self.assertEqual(self.summary("mixed")["epochs"], 1)
        self.assertRegex(self.succeed("verify", "mixed"), r"0 of \d+ codes differ")

    def test_bytes_are_those_of_the_export(self):
        smallest = 72 // 4 + 576 // 4 + 512 // 4 + 8 * 20
        for budget in (smallest, 700):
            recipe = "m{}.yaml".format(budget)
            chosen = self.measured("float", "--budget-bytes", str(budget), "--out", recipe,
                                   "--set", "train.epochs=1", "--set", "name=m{}".format(budget))["chosen"]
            self.assertLessEqual(chosen["bytes"], budget)
            self.succeed("train", recipe, "--run-dir", "m{}".format(budget))
            graph = self.succeed("inspect", "--graph", "m{}".format(budget))
            self.assertIn("\n{} bytes of parameters\n".format(chosen["bytes"]), graph)
        self.assertEqual(set(chosen["bits"].values()) - {8, 4, 3, 2}, set())

    def test_flash_is_that_of_the_program_in_c(self):
        run = self.quantized("tflm", "export.profile=tflm")
        most = self.measured(run, "--budget-flash", "1000000", "--out", "most.yaml")["chosen"]
        budget = most["flash_bytes"] - 400
        chosen = self.measured(run, "--budget-flash", str(budget), "--out", "m.yaml", "--set", "name=m")["chosen"]
        self.assertLessEqual(chosen["flash_bytes"], budget)
        self.assertGreater(chosen["flash_bytes"], budget - 300)
        self.succeed("train", "m.yaml", "--run-dir", "m", "--set", "export.limits.flash={}".format(budget))
        with open(self.path("m", "plan.txt")) as file:
            self.assertIn("at most {} bytes of constants".format(chosen["flash_bytes"]), file.read())
        self.fail_with(2, "a budget of flash needs a run with export.profile tflm",
                       arguments=["sensitivity", "float", "--budget-flash", "1000", "--out", "n.yaml"])

    def test_bit_operations(self):
        macs = {"conv": 64 * 72, "block.a": 16 * 576, "fc": 512}
        budget = 8 * 5 * sum(macs.values())
        chosen = self.measured("float", "--budget-bitops", str(budget), "--out", "m.yaml")["chosen"]
        used = sum(8 * chosen["bits"][name] * macs[name] for name in macs)
        self.assertEqual(chosen["bit_operations"], used)
        self.assertLessEqual(used, budget)

    # Every combination tried, on the divergences that the command itself reports.
    def test_the_choice_is_the_best_of_all(self):
        measured = self.measured("float", "--budget-bits", "3.4", "--out", "m.yaml")
        layers = [layer for layer in measured["layers"] if layer["weights"]]
        best = None
        total = sum(layer["weights"] for layer in layers)
        for a in layers[0]["weight"]:
            for b in layers[1]["weight"]:
                for c in layers[2]["weight"]:
                    cost = sum(e["bits"] * l["weights"] for e, l in zip((a, b, c), layers))
                    error = a["divergence"] + b["divergence"] + c["divergence"]
                    if cost <= 3.4 * total and (best is None or error < best):
                        best = error
        self.assertAlmostEqual(measured["chosen"]["divergence"], best, delta=1e-12)

    # The first layer wide, as deployments want it: so its activations, the input's and the sum's stay.
    def test_search_keeps_the_groups_of_a_calibrated_run(self):
        groups = """quantize:
  groups:
    - targets: [conv]
      weights: {num_bits: 8}
      activations: {num_bits: 8}
    - targets: [Linear, Conv2d]
      weights: {num_bits: 4, observer: mse}
      activations: {num_bits: 3}
  algorithm: {method: lsq}
"""
        self.succeed("calibrate", self.recipe(SHORT + INIT + groups, "w4.yaml"), "--run-dir", "calibrated")
        chosen = self.measured("calibrated", "--budget-bits", "4", "--out", "m.yaml")["chosen"]
        self.assertIsNone(chosen["activation_bits"])
        self.assertIsNone(chosen["bit_operations"])
        self.fail_with(2, "pass --activation-bits",
                       arguments=["sensitivity", "calibrated", "--budget-bitops", "9000000", "--out", "m.yaml"])
        self.succeed("train", "m.yaml", "--run-dir", "mixed")
        with open(self.path("mixed", "plan.txt")) as file:
            plan = file.read()
        for name, width in chosen["bits"].items():
            self.assertRegex(plan, r"(?m)^{} +weight +int{} ".format(re.escape(name), width))
        for name, width in {"(input)": 8, "conv": 8, "block.a": 3, "fc": 3, "block": 8}.items():
            self.assertRegex(plan, r"(?m)^{} +output +uint{} ".format(re.escape(name), width))
        self.assertRegex(self.succeed("verify", "mixed"), r"0 of \d+ codes differ")

    def test_search_from_a_quantized_run(self):
        run = self.quantized()
        self.succeed("sensitivity", run, "--budget-bits", "8", "--out", "m.yaml")
        with open(self.path("m.yaml")) as file:
            self.assertIn("checkpoint: float/last.safetensors", file.read())
        self.succeed("validate", "m.yaml")
        self.quantized("rootless", "init=null")
        refused = self.fail_with(2, "a quantized run without init.checkpoint",
                                 arguments=["sensitivity", "rootless", "--budget-bits", "8", "--out", "m.yaml"])
        self.assertEqual(refused.stdout, "")

    # The widest grid of a width is LSQ's; a range given in the recipe is kept.
    def test_measures_the_codes_that_are_trained(self):
        sqnr = {}
        for name, more in (("ste", []), ("lsq", ["quantize.algorithm.method=lsq"]),
                           ("full", ["quantize.groups.0.weights.narrow_range=false"])):
            sets = [word for change in more for word in ("--set", change)]
            self.succeed("calibrate", self.recipe(SHORT + INIT + QUANTIZE), "--run-dir", name, *sets)
            measured = self.measured(name, "--bits", "2")
            sqnr[name] = [self.layer(measured, layer)["weight"][0]["sqnr_db"] for layer in ("conv", "block.a", "fc")]
        self.assertEqual(sqnr["lsq"], sqnr["full"])
        self.assertGreater(sum(sqnr["lsq"]), sum(sqnr["ste"]) + 0.5)
        measured = self.measured("float", "--bits", "2")
        self.assertEqual([self.layer(measured, layer)["weight"][0]["sqnr_db"] for layer in ("conv", "block.a", "fc")], sqnr["lsq"])

    def test_a_layer_may_be_called_as_a_quantizer(self):
        errors = []
        for name in ("first", "input_quantizer"):
            body = """model:
  classes: 4
  layers: [{{type: Flatten}}, {{type: Linear, name: {}, out_features: 16}}, {{type: ReLU}}, {{type: Linear, name: fc, out_features: 4}}]
""".format(name) + SGD.replace("epochs: 6", "epochs: 1") + QUANTIZE.replace("Linear, Conv2d", "Linear")
            self.succeed("train", self.recipe(body), "--run-dir", name)
            measured = self.measured(name, "--bits", "4")
            errors.append(self.layer(measured, name)["weight"][0]["sqnr_db"])
        self.assertEqual(*errors)

    def test_a_width_that_breaks_the_network_is_no_choice(self):
        """A square root of differences that two bits cannot hold."""
        with open(self.path("root.onnx"), "wb") as file:
            file.write(model([node("Gemm", ["x", "first"], "sums"), node("Sqrt", ["sums"], "roots"),
                              node("Gemm", ["roots", "second"], "scores")],
                             [tensor("first", [2, 2], [1, 0.8, -0.6, -0.45]), tensor("second", [2, 2], [3, -1, -2, 2.5])],
                             [port("x", ["n", 2])], [port("scores", ["n", 2])]))
        rows = [[0.5 + i / 64, (0.5 + i / 64) * (1.2 + 0.2 * (i * 7 % 64) / 64)] for i in range(64)]
        for split in ("train", "test"):
            write_split(self.path("pairs"), split, f32([64, 2], sum(rows, [])), i64([64], [int(row[0] > 1) for row in rows]))
        self.succeed("import", "root.onnx", "--run-dir", "root", "--set", "data.dataset=safetensors", "--set",
                     "data.path=" + self.path("pairs"), "--set", "data.normalize=none")
        budget = ["--bits", "8,2", "--budget-bits", "5", "--out", "m.yaml"]
        measured = self.measured("root", *budget)
        first, second = [layer for layer in measured["layers"] if layer["weights"]]
        wide, narrow = first["weight"]
        self.assertEqual((narrow["divergence"], narrow["loss_increase"], narrow.get("top1_drop")), (None, None, None))
        self.assertLess(wide["divergence"], second["weight"][1]["divergence"])
        self.assertEqual(measured["chosen"]["bits"], {first["name"]: 8, second["name"]: 2})
        table = self.succeed("sensitivity", "root", *budget)
        self.assertRegex(table, r"(?m)^%s +4 +[\d.]+ +[+-][\d.]+ +[\d.]+ +NaN$" % first["name"])
        self.assertIn("NaN: outputs are not finite then\n", table)
        self.fail_with(2, "the budget of 2 bits a weight is too small: the smallest measured widths need 5 bits a weight",
                       arguments=["sensitivity", "root", "--bits", "8,2", "--budget-bits", "2", "--out", "m.yaml"])

    def test_only_its_own_recipe_is_replaced(self):
        search = ["sensitivity", "float", "--bits", "8,4", "--samples", "10", "--budget-bits", "6", "--set", "train.epochs=1", "--out", "m.yaml"]
        self.succeed(*search)
        before = self.read("m.yaml")
        self.succeed(*search)
        self.assertEqual(self.read("m.yaml"), before)
        words = "m.yaml: holds something else than this recipe, and is not replaced: give another --out, or remove it"
        for text, measures in ((before + "# mine\n", True), (before[:-1], True), ("x,y\n1,2\n", False)):
            with open(self.path("m.yaml"), "w") as file:
                file.write(text)
            refused = self.fail_with(2, words, arguments=search)
            self.assertEqual("weights alone" in refused.stdout, measures)
            self.assertEqual(self.read("m.yaml"), text)
        with open(self.path("m.yaml"), "w"):
            pass
        self.succeed(*search)
        self.assertEqual(self.read("m.yaml"), before)

    def test_faults(self):
        budget = ["sensitivity", "float", "--out", "m.yaml"]
        self.fail_with(2, "a budget needs --out", arguments=["sensitivity", "float", "--budget-bits", "4"])
        for needless in (["--out", "m.yaml"], ["--activation-bits", "4"]):
            self.fail_with(2, "--out, --set and --activation-bits need a budget", arguments=["sensitivity", "float", *needless])
        # Said before anything is measured.
        for arguments, words in (("--budget-bits 4 --out no/m.yaml", "--out: there is no folder no"),
                                 ("--budget-bits nan --out m.yaml", "--budget-bits: expected a number"),
                                 ("--budget-bits 1.9 --out m.yaml", "the budget of 1.9 bits a weight is too small: "
                                                                    "the smallest measured widths need 2 bits a weight"),
                                 ("--budget-bytes 100 --out m.yaml", "the budget of 100 bytes is too small: "
                                                                     "the smallest measured widths need 450 bytes")):
            self.assertEqual(self.fail_with(2, words, arguments=["sensitivity", "float", *arguments.split()]).stdout, "")
        self.succeed("train", self.recipe(SHORT), "--run-dir", "shards", "--set", "train.shards=2")
        refused = self.fail_with(2, "percentile", arguments=["sensitivity", "shards", *"--activation-observer percentile --budget-bits 4 --out m.yaml".split()])
        self.assertEqual(refused.stdout, "")
        self.fail_with(2, "--bits: expected widths from 2 to 8, got 9",
                       arguments=["sensitivity", "float", "--bits", "8,9"])
        self.fail_with(2, "--bits: 4 is given twice", arguments=["sensitivity", "float", "--bits", "4,4"])
        self.fail_with(2, "nowhere: expected a run's folder, there is none", arguments=["sensitivity", "nowhere"])
        self.assertFalse(os.path.exists(self.path("m.yaml")))
        # What was measured is printed.
        failed = self.fail_with(2, "m.yaml: written without --set: --set train.epoch: unknown key",
                                arguments=[*budget, "--json", "--budget-bits", "4", "--set", "train.epoch=1"])
        self.assertEqual(len(json.loads(failed.stdout)["layers"]), 5)
        self.succeed("validate", "m.yaml")
        for bad in (["--budget-bits", "4", "--budget-bytes", "9"], ["--weight-observer", "x"], ["--budget-bits", "-1"]):
            self.assertEqual(self.run_program(*budget, *bad).returncode, 2, bad)


if __name__ == "__main__":
    unittest.main()
