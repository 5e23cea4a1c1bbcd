"""report and sensitivity as a user runs them."""
import html.parser
import json
import os
import random
import re
import shutil
import subprocess
import unittest

from cli_test import LAYERS, PROGRAM, QUANTIZE, SGD, Case
from support.data_files import f32, write_split

SHORT = LAYERS + SGD.replace("epochs: 6", "epochs: 2")
INIT = "init: {checkpoint: float/last.safetensors}\n"
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(html.parser.HTMLParser):
    """Checks that tags nest, and collects text, attributes and tables."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.attributes, self.text, self.rows, self.problems = [], [], [], [], []
        self.feed(text)
        self.close()
        if self.stack:
            self.problems.append("open at the end: {}".format(self.stack))

    def handle_starttag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]
        if tag not in VOID:
            self.stack.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attributes):
        self.attributes += [(tag, *pair) for pair in attributes]

    def handle_endtag(self, tag):
        if not self.stack or self.stack.pop() != tag:
            self.problems.append("unexpected </{}> at {}".format(tag, self.getpos()))

    def handle_data(self, data):
        if self.stack and self.stack[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        if "style" not in self.stack:
            self.text.append(data)

    def words(self):
        return " ".join(" ".join(self.text).split())


class WithRuns(Case):
    def setUp(self):
        super().setUp()
        self.succeed("train", self.recipe(SHORT, "float.yaml"), "--run-dir", "float")

    def quantized(self, name="quantized", *overrides):
        sets = [word for override in overrides for word in ("--set", override)]
        recipe = self.recipe(SHORT + INIT + QUANTIZE, name + ".yaml")
        self.succeed("train", recipe, "--run-dir", name, "--set", "quantize.groups.0.weights.num_bits=4", *sets)
        return name

    def regression(self, name, body=""):
        """A run on two values of three features, its targets a linear map of them."""
        generator = random.Random(1)
        for split, count in (("train", 100), ("test", 9)):
            inputs = [[generator.uniform(-1, 1) for _ in range(3)] for _ in range(count)]
            targets = [value for x in inputs for value in (x[0] - x[1], 0.5 * x[2])]
            write_split(self.data, split, f32([count, 3], sum(inputs, [])), f32([count, 2], targets))
        recipe = self.recipe("model: {type: mlp, hidden: [8], classes: 2}\n" + SGD + body, name + ".yaml")
        self.trained = self.succeed("train", recipe, "--run-dir", name, "--set", "train.loss=mse", "--set", "data.augment=[]")
        return name


class Report(WithRuns):
    def page(self, run, *arguments):
        printed = self.succeed("report", run, "--out", "page.html", *arguments)
        self.assertIn("report: page.html\n", printed)
        with open(self.path("page.html"), encoding="utf-8") as file:
            self.html = file.read()
        page = Page(self.html)
        self.assertEqual(page.problems, [])
        # Self-contained: no scripts, nothing that a browser would load.
        for tag, name, value in page.attributes:
            if (tag, name) == ("img", "src"):  # pictures are in the page
                self.assertRegex(value, r"^data:image/png;base64,[A-Za-z0-9+/]+=*$")
                continue
            self.assertNotIn(name, ("src", "href", "srcset", "action", "onload", "onclick"), (tag, value))
        self.assertNotRegex(re.sub("base64,[A-Za-z0-9+/=]+", "", self.html), r"<script|@import|url\(|http")
        return page, printed

    def row(self, page, first):
        found = [row for row in page.rows if row and row[0] == first]
        self.assertEqual(len(found), 1, (first, page.rows))
        return found[0]

    def test_quantized_run(self):
        run = self.quantized()
        self.succeed("export", run, "--format", "safetensors")
        page, printed = self.page(run)
        self.assertNotIn("missing", printed)
        self.assertNotIn("warning", printed)
        words = page.words()
        for expected in ("finished, 2 of 2 epochs", "Loss", "Top-1 accuracy", "Learning rate", "int4 symmetric, per channel"):
            self.assertIn(expected, words)
        # Accuracies as the other verbs measure them.
        evaluated = re.search(r"loss ([\d.]+), top-1 ([\d.]+) %", self.succeed("eval", "float"))
        row = self.row(page, "float, init.checkpoint")
        self.assertEqual(row[1], evaluated[2])
        self.assertEqual(row[3], evaluated[1])
        quantized = "{:.2f}".format(self.summary(run)["final"]["top1"])
        self.assertEqual(self.row(page, "quantized in training, last.safetensors")[1], quantized)
        self.assertEqual(self.row(page, "integer, export/model.safetensors")[1], quantized)
        size = os.path.getsize(self.path(run, "export", "model.safetensors"))
        self.assertEqual(self.row(page, "export/model.safetensors")[1].replace("\u202f", ""), str(size))
        # conv 72, a 576, fc 512 weights at 4 bits; 8 + 8 + 4 scales and biases.
        self.assertEqual(self.row(page, "weights as float32")[1].replace("\u202f", ""), "4640")
        self.assertEqual(self.row(page, "weights at the widths of their codes")[1], "580")
        packed = "integer model: packed codes, scales and biases"
        self.assertEqual(self.row(page, packed)[1], "740")
        for name, kind, weights in (("conv", "Conv2d", "72"), ("fc", "Linear", "512")):
            row = self.row(page, name)
            self.assertEqual(row[1:4], [kind, weights, "4"])
            self.assertEqual(row[6], "8")
            self.assertTrue(10 < float(row[4]) < 30 < float(row[7]) < 60 or name == "fc", row)
        self.assertEqual(self.row(page, "block")[1:4], ["–", "–", "–"])
        self.assertEqual(self.row(page, "(input)")[6], "8")
        figures = self.html.count("<svg")
        self.assertEqual(figures, 3 + 3 + 5)  # curves; weights; input, conv, a, block, fc
        # Narrow codes of 4 bits: 15 values in each of three histograms.
        self.assertEqual(self.html.count('class="level"'), 45)
        before = self.html
        self.page(run)
        self.assertEqual(self.html, before)
        self.succeed("train", self.recipe(SHORT, "other.yaml"), "--run-dir", "other", "--set", "seed=9")
        shutil.copy(self.path("other", "last.safetensors"), self.path("float"))
        self.assertIn("float/last.safetensors: is not the checkpoint that the run began with", self.page(run)[1])

    def test_float_run(self):
        page, printed = self.page("float", "--batches", "2", "--samples", "20")
        self.assertNotIn("missing", printed)
        self.assertIn("On the first 20 samples", page.words())
        self.assertEqual(self.row(page, "conv")[1:3], ["Conv2d", "72"])
        self.assertNotIn("SQNR", page.words())
        self.assertNotIn('class="range"', self.html)
        # The confusion matrix of those samples, and a picture of each wrong one.
        header = next(i for i, row in enumerate(page.rows) if row[:1] == [""])
        classes = len(page.rows[header]) - 1
        counts = [[int(cell or 0) for cell in row[1:]] for row in page.rows[header + 1:header + 1 + classes]]
        right = sum(counts[i][i] for i in range(classes))
        self.assertEqual(sum(sum(row) for row in counts), 20)
        self.assertEqual(self.row(page, "float, last.safetensors")[1], f"{5 * right:.2f}")
        self.assertEqual(self.html.count("<img "), 20 - right)
        self.assertEqual(self.html.count("<svg"), 3 + 3 + 5)

    def test_regression(self):
        # Ranges that clip two values in five are named in the log and on the page.
        clipping = QUANTIZE.replace(", Conv2d", "").replace("moving_average", "percentile, percentile: 60")
        page, printed = self.page(self.regression("plain", clipping))
        self.assertRegex(self.trained, r"\nwarning: ranges that look wrong: .*: too narrow, \d+\.\d\d % clipped, SQNR .*\n")
        self.assertRegex(printed, r"\nwarning: range of \S+: too narrow, .* dB at 8 bits\n")
        self.assertIn("Ranges that look wrong", page.words())
        self.assertEqual(printed.count("missing"), 1)
        self.assertIn("missing: accuracy of the float model: the recipe has no init.checkpoint\n", printed)
        row = self.row(page, "integer, as export would write it")
        self.assertEqual(row[1:3], ["–", "–"])
        self.assertEqual(row[3], self.row(page, "quantized in training, last.safetensors")[3])
        self.assertNotIn("Top-1 accuracy", page.words())

    def test_time_of_a_step(self):
        recipe = self.recipe(SHORT + QUANTIZE, "profiled.yaml")
        printed = self.succeed("profile", recipe, "--steps", "2")
        self.assertRegex(printed, r"steps 6 to 9 on cpu, \d+ threads?, batches of \d+\n")
        for layer in ("conv  +QatConv2d", r"\(outside of layers\)", "outside of kernels", "all"):
            self.assertRegex(printed, r"(?m)^ *{} .*\d+\.\d\d".format(layer))
        kept = json.loads(self.succeed("profile", recipe, "--steps", "1", "--json"))
        kinds = [set(layer.get("work", ())) for layer in kept["layers"]]
        self.assertTrue({"product", "quantize", "backward weight"} <= set.union(*kinds))
        self.assertFalse(os.path.exists(self.path("runs")))
        # Of a run, its next steps, on its report.
        before = sorted(os.listdir(self.path("float")))
        steps = self.summary("float")["steps"]
        printed = self.succeed("profile", "float", "--steps", "1")
        self.assertIn("steps {} to {} on".format(steps + 6, steps + 7), printed)
        self.assertEqual(sorted(os.listdir(self.path("float"))), sorted(before + ["profile.json"]))
        page, printed = self.page("float")
        self.assertIn("Time of a step", page.words())
        self.assertNotIn("missing", printed)
        with open(self.path("float", "profile.json"), "w") as file:
            file.write('{"run": 1}')
        self.assertIn("missing: time of a step: float/profile.json: ", self.page("float")[1])
        self.assertNotIn("Time of a step", self.page("float")[0].words())

    def test_default_place(self):
        self.succeed("report", "float")
        self.assertTrue(os.path.isfile(self.path("float", "report.html")))

    def test_an_interrupt_while_measuring_leaves_no_file(self):
        report = subprocess.Popen([PROGRAM, "report", "float", "--out", "page.html"], cwd=self.folder, stdout=subprocess.DEVNULL)
        polls = empty = 0
        while report.poll() is None:
            polls += 1
            try:
                empty += os.stat(self.path("page.html.tmp")).st_size == 0
            except FileNotFoundError:
                pass
        self.assertEqual(report.returncode, 0)
        self.assertLess(empty, polls / 4, "the page is opened when it is written")

    def test_everything_is_escaped(self):
        shutil.copytree(self.data, self.path('<b>&"'))
        self.succeed("train", self.recipe(SHORT), "--run-dir", "odd", "--set", "data.path='<b>&\"'")
        page, _ = self.page("odd")
        self.assertNotIn("<b>", self.html)
        self.assertIn('path: "<b>&', page.words())

    def test_missing_pieces(self):
        run = self.quantized()
        with open(self.path(run, "metrics.jsonl"), "a") as file:
            file.write('{"type": "step", "st')
        os.remove(self.path(run, "summary.json"))
        os.remove(self.path("float", "last.safetensors"))
        page, printed = self.page(run)
        self.assertIn("interrupted or running, 2 of 2 epochs logged", page.words())
        for reason in ("metrics.jsonl: 1 unreadable line", "summary.json", "float/last.safetensors"):
            self.assertIn(reason, printed)
            self.assertIn(reason, page.words())
        self.assertIn("integer, as export would write it", page.words())
        # Nothing but the recipe.
        for name in os.listdir(self.path(run)):
            if name != "recipe.yaml":
                os.remove(self.path(run, name))
        page, printed = self.page(run)
        self.assertIn("missing: curves: ", printed)
        self.assertIn("last.safetensors", printed)
        self.assertIn("Missing from this page", page.words())
        # The dataset went away.
        self.quantized("other", "init=null")
        shutil.rmtree(self.data)
        page, printed = self.page("other")
        self.assertIn("missing: weights, activations and accuracy: ", printed)
        self.assertIn("Loss", page.words())

    def test_a_damaged_summary_is_no_finished_run(self):
        good = {"epochs": 2, "seconds": 1, "best": None}
        for damaged in ("{}", "[1]", "nonsense", json.dumps({**good, "best": {"epoch": "x"}}),
                        json.dumps({**good, "epochs": None}), json.dumps({**good, "seconds": "1"})):
            with open(self.path("float", "summary.json"), "w") as file:
                file.write(damaged)
            page, printed = self.page("float")
            self.assertIn("missing: summary of a finished run: float/summary.json: is not valid: ", printed)
            self.assertIn("interrupted or running, 2 of 2 epochs logged", page.words())
            self.assertNotIn("training time", page.words())
        with open(self.path("float", "summary.json"), "w") as file:
            file.write(json.dumps({**good, "epochs": 7}))
        _, printed = self.page("float")
        self.assertIn("float/summary.json: is of a run of 7 epochs, the recipe has 2", printed)

    def test_the_export_of_another_checkpoint(self):
        run = self.quantized("run", "train.checkpoint_every_steps=3", "train.keep_step_checkpoints=true",
                             "export.formats=[safetensors]", "train.ema={decay: 0.9}")
        page, printed = self.page(run)
        self.assertNotIn("missing", printed)
        self.row(page, "integer, export/model.safetensors")
        shown = ["--checkpoint", os.path.join(run, "step-3.safetensors")]
        page, printed = self.page(run, *shown)
        self.assertIn("missing: the exported model: run/export/model.safetensors: is not the export of step-3.safetensors", printed)
        self.assertIn("is not the export of step-3.safetensors", page.words())
        integer = self.row(page, "integer, as export would write it")
        self.succeed("export", run, "--format", "safetensors", *shown)
        page, printed = self.page(run, *shown)
        self.assertNotIn("missing", printed)
        self.assertEqual(self.row(page, "integer, export/model.safetensors")[1:], integer[1:])
        with open(self.path(run, "export", "model.safetensors"), "r+b") as file:
            file.truncate(1000)
        page, printed = self.page(run, *shown)
        self.assertIn("missing: the exported model: run/export/model.safetensors: ", printed)
        self.assertEqual(self.row(page, "integer, as export would write it")[1:], integer[1:])

    def test_quantizers_that_are_off(self):
        run = self.quantized("late", "schedule.observe.from=1", "schedule.fake_quant.from=1", "train.epochs=2",
                             "train.checkpoint_every_steps=3", "train.keep_step_checkpoints=true")
        page, printed = self.page(run, "--checkpoint", os.path.join(run, "step-3.safetensors"))
        self.assertIn("missing: accuracy of the integer model: export: the quantizer", printed)
        self.assertEqual(self.row(page, "conv")[3], "float")
        self.row(page, "not quantized yet, step-3.safetensors")
        run = self.quantized("partly", "schedule.fake_quant.activations_from=1", "train.checkpoint_every_steps=3",
                             "train.keep_step_checkpoints=true")
        page, printed = self.page(run, "--checkpoint", os.path.join(run, "step-3.safetensors"))
        self.row(page, "partly quantized, step-3.safetensors")

    def test_faults(self):
        self.fail_with(2, "nowhere: expected a run's folder, there is none", arguments=["report", "nowhere"])
        self.fail_with(2, "nowhere/page.html", arguments=["report", "float", "--out", "nowhere/page.html"])
        self.assertEqual(self.run_program("report", "float", "--batches", "0").returncode, 2)
        self.assertEqual(self.run_program("report").returncode, 2)


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
            chosen = self.measured("float", "--budget-bytes", str(budget), "--out", "m.yaml",
                                   "--set", "train.epochs=1", "--set", "name=m{}".format(budget))["chosen"]
            self.assertLessEqual(chosen["bytes"], budget)
            self.succeed("train", "m.yaml", "--run-dir", "m{}".format(budget))
            graph = self.succeed("inspect", "--graph", "m{}".format(budget))
            self.assertIn("\n{} bytes of parameters\n".format(chosen["bytes"]), graph)
        self.assertEqual(set(chosen["bits"].values()) - {8, 4, 3, 2}, set())

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

    def test_faults(self):
        budget = ["sensitivity", "float", "--out", "m.yaml"]
        self.fail_with(2, "the budget of 1.9 bits a weight is too small: the smallest measured widths need "
                          "2 bits a weight", arguments=[*budget, "--budget-bits", "1.9"])
        self.fail_with(2, "the budget of 100 bytes is too small: the smallest measured widths need 450 bytes",
                       arguments=[*budget, "--budget-bytes", "100"])
        self.fail_with(2, "a budget needs --out", arguments=["sensitivity", "float", "--budget-bits", "4"])
        for needless in (["--out", "m.yaml"], ["--activation-bits", "4"]):
            self.fail_with(2, "--out, --set and --activation-bits need a budget", arguments=["sensitivity", "float", *needless])
        # Said before anything is measured.
        for arguments, words in (("--budget-bits 4 --out no/m.yaml", "--out: there is no folder no"),
                                 ("--budget-bits nan --out m.yaml", "--budget-bits: expected a number")):
            self.assertEqual(self.fail_with(2, words, arguments=["sensitivity", "float", *arguments.split()]).stdout, "")
        # What was measured is printed.
        failed = self.run_program("sensitivity", "float", "--json", "--budget-bits", "1.9", "--out", "m.yaml")
        self.assertEqual(failed.returncode, 2)
        self.assertEqual(len(json.loads(failed.stdout)["layers"]), 5)
        self.fail_with(2, "--bits: expected widths from 2 to 8, got 9",
                       arguments=["sensitivity", "float", "--bits", "8,9"])
        self.fail_with(2, "--bits: 4 is given twice", arguments=["sensitivity", "float", "--bits", "4,4"])
        self.fail_with(2, "nowhere: expected a run's folder, there is none", arguments=["sensitivity", "nowhere"])
        self.assertFalse(os.path.exists(self.path("m.yaml")))
        self.fail_with(2, "m.yaml: written without --set: --set train.epoch: unknown key",
                       arguments=[*budget, "--budget-bits", "4", "--set", "train.epoch=1"])
        self.succeed("validate", "m.yaml")
        for bad in (["--budget-bits", "4", "--budget-bytes", "9"], ["--weight-observer", "x"], ["--budget-bits", "-1"]):
            self.assertEqual(self.run_program(*budget, *bad).returncode, 2, bad)


if __name__ == "__main__":
    unittest.main()
