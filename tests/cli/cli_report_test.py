"""report as a user runs it."""
import base64
import glob
import hashlib
import html.parser
import json
import os
import random
import re
import shutil
import subprocess
import unittest

from cli_case import LAYERS, PROGRAM, QUANTIZE, SGD, Case
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
            self.assertNotIn(name, ("src", "href", "srcset", "action", "onload", "onclick", "style"), (tag, value))
        self.assertNotRegex(re.sub("base64,[A-Za-z0-9+/=]+", "", self.html), r"<script|@import|url\(|https?:")
        self.check_policy(page)
        return page, printed

    def check_policy(self, page):
        """A browser takes the page's style sheet and no other, pictures in the page and nothing else, whatever is in the page."""
        [style] = re.findall("<style>(.*?)</style>", self.html, re.DOTALL)
        self.assertLess(self.html.index("Content-Security-Policy"), self.html.index("<style>"))
        digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
        [policy] = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content") and "-src" in value]
        self.assertEqual(policy, f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'")
        for tag, name, value in page.attributes:
            if name == "class" and (share := re.search(r"\bs\d+$", value)):
                self.assertIn(f".{share[0]} {{ --share: {share[0][1:]}%; }}", style)

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
        for expected in ("finished, 2 of 2 epochs", "Loss", "Top-1 accuracy", "Learning rate", "int4 symmetric, per channel",
                         "In training the steps waited"):
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
        self.assertIn("On 20 of the 40 samples of the test set, evenly spaced", page.words())
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

    def test_a_transposed_convolution_in_float_is_a_layer(self):
        up = "    - {type: ConvTranspose2d, name: up, out_channels: 4, kernel_size: 2, stride: 2}\n"
        layers = SHORT.replace("    - {type: Flatten}\n", up + "    - {type: Flatten}\n")
        self.succeed("train", self.recipe(layers + QUANTIZE, "up.yaml"), "--run-dir", "up")
        self.assertEqual(self.row(self.page("up")[0], "up")[1:4], ["ConvTranspose2d", "128", "float"])

    def test_regression(self):
        # Ranges that clip two values in five are named in the log and on the page.
        clipping = QUANTIZE.replace(", Conv2d", "").replace("moving_average", "percentile, percentile: 60")
        page, printed = self.page(self.regression("plain", clipping))
        self.assertRegex(self.trained, r"\nwarning: ranges that look wrong: .*: too narrow, \d+\.\d\d % clipped, SQNR .* "
                         r"\(another observer may help: docs/reports.md\)\n")
        self.assertRegex(printed, r"\nwarning: range of \S+: too narrow, .* dB at 8 bits\n")
        self.assertIn("Ranges that look wrong", page.words())
        self.assertEqual(printed.count("missing"), 1)
        self.assertIn("missing: accuracy of the float model: the recipe has no init.checkpoint and no model.onnx, model.gguf or "
                      "model.huggingface\n", printed)
        row = self.row(page, "integer, as export would write it")
        self.assertEqual(row[1:3], ["–", "–"])
        self.assertEqual(row[3], self.row(page, "quantized in training, last.safetensors")[3])
        self.assertNotIn("Top-1 accuracy", page.words())
        # Learned scales that stay as they were: what helps depends on the recipe.
        for more, advice in (([], "a smaller train.optimizer.lr or more epochs may help"),
                             (["--set", "quantize.algorithm.scale_lr=1"], "leaving out quantize.algorithm.scale_lr may help")):
            learned = self.succeed("train", "plain.yaml", "--run-dir", f"learned{len(more)}", "--set", "train.loss=mse", "--set", "data.augment=[]",
                                   "--set", "train.optimizer.lr=1e-30", "--set", "quantize.algorithm.method=lsq", *more)
            self.assertRegex(learned, rf"\nwarning: ranges that look wrong: .*\({advice}: docs/reports.md\)\n")

    def test_a_label_without_test_samples(self):
        for split, count in (("train", 100), ("test", 9)):
            marks = [float(split == "train" or label < 2) for _ in range(count) for label in range(3)]
            write_split(self.data, split, f32([count, 4], [0.5] * 4 * count), f32([count, 3], marks))
        recipe = self.recipe("model: {type: mlp, hidden: [8], classes: 3}\n" + SGD, "marks.yaml")
        self.succeed("train", recipe, "--run-dir", "marks", "--set", "train.loss=binary_cross_entropy", "--set", "data.augment=[]")
        page, _ = self.page("marks")
        self.assertEqual([self.row(page, label)[-1] for label in "012"], ["", "", "–"])  # bars have no text

    def test_time_of_a_step(self):
        recipe = self.recipe(SHORT + QUANTIZE, "profiled.yaml")
        printed = self.succeed("profile", recipe, "--steps", "2")
        self.assertRegex(printed, r"steps 6 to 9 on cpu, \d+ threads?, batches of \d+\n")
        self.assertRegex(printed, r"\n  the steps waited \d+\.\d % of their time for batches")
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
        self.assertIn("ms outside of kernels; the steps waited", page.words())
        self.assertNotIn("missing", printed)
        with open(self.path("float", "profile.json"), "w") as file:
            file.write('{"run": 1}')
        self.assertIn("missing: time of a step: float/profile.json: ", self.page("float")[1])
        os.remove(self.path("float", "profile.json"))
        os.symlink("profile.json", self.path("float", "profile.json"))
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
                empty += any(os.stat(path).st_size == 0 for path in glob.glob(self.path("page.html.*.tmp")))
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
        os.remove(self.path("page.html"))
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

    def test_a_page_is_not_replaced_by_less(self):
        self.succeed("report", "float")
        full = self.read(os.path.join("float", "report.html"))
        os.rename(self.data, self.data + "-elsewhere")
        self.fail_with(2, "float/report.html: has layers and accuracies, which a page written now would not have, and is kept "
                       "(give another --out, or remove it): ", arguments=["report", "float"])
        self.assertEqual(self.read(os.path.join("float", "report.html")), full)
        for _ in range(2):  # a page without them may be replaced
            self.page("float")
        os.rename(self.data + "-elsewhere", self.data)
        self.page("float")
        self.assertIn("Histograms", self.html)

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
        with open(self.path("mine.html"), "w") as file:
            file.write("<!DOCTYPE html>\n<title>mine</title>\n")
        for name in ("mine.html", "float.yaml"):
            before = self.read(name)
            self.fail_with(2, name + ": is no page that `steelyard report` wrote, and is not replaced: give another --out, or remove it",
                           arguments=["report", "float", "--out", name])
            self.assertEqual(self.read(name), before)
        with open(self.path("empty.html"), "w"):
            pass
        for _ in range(2):
            self.succeed("report", "float", "--out", "empty.html")
        self.assertEqual(self.run_program("report", "float", "--batches", "0").returncode, 2)
        self.assertEqual(self.run_program("report").returncode, 2)


if __name__ == "__main__":
    unittest.main()
