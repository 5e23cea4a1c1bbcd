"""Imported networks whose inputs and outputs do not have the batch first: imported, quantized, exported in the file's order and verified."""
import json
import math
import os
import random
import subprocess

from cli_case import Case
from support.data_files import f32, write_named_split
from support.onnx_files import field, model, node, port, tensor

RECIPE = """version: 1
name: steps
seed: 3
data: {dataset: safetensors, path: data, inputs: [state, x], labels: false, batch_size: 10, validation: 10, normalize: none}
model: {onnx: model.onnx}
train: {epochs: 1, loss: fidelity, optimizer: {type: sgd, lr: 0.001}}
export: {formats: [safetensors, onnx]}
"""
QUANTIZE = "quantize: {groups: [{targets: [Linear], weights: {num_bits: 8}, activations: {num_bits: 8}}]}\n"
# Runs two files on the same inputs, with one and with three samples: names, shapes, the largest difference.
BOTH = """
import json, sys
import numpy, onnxruntime
sessions = [onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]) for path in sys.argv[1:]]
found = []
for count in (1, 3):
    generator = numpy.random.default_rng(count)
    fed = {"x": generator.normal(size=(count, 5, 4)), "state": generator.normal(size=(2, count, 3))}
    fed = {name: values / 2 for name, values in fed.items()}
    fed = {name: values.astype(numpy.float32) for name, values in fed.items()}
    first, second = [dict(zip([y.name for y in s.get_outputs()], s.run(None, fed))) for s in sessions]
    found.append([[name, list(y.shape), list(first) == list(second),
                   float(numpy.abs(y - second[name]).max() / numpy.abs(y).max())] for name, y in first.items()])
print(json.dumps(found))
"""


class BatchAxis(Case):
    def setUp(self):
        super().setUp()
        generator = random.Random(5)
        for split, count in (("train", 60), ("test", 12)):
            write_named_split(self.data, split, {
                "x": f32([count, 5, 4], [generator.gauss(0, 1) for _ in range(count * 20)]),
                "state": f32([count, 2, 3], [generator.gauss(0, 1) for _ in range(count * 6)])})

    def write(self, batch="n"):
        """Logits of five steps, steps first; their mean, samples first; a state of two layers, which are first in it."""
        generator = random.Random(3)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("MatMul", ["x", "fc.weight"], "rows"), node("Transpose", ["rows"], "logits", perm=[1, 0, 2]),
                 node("ReduceMean", ["rows"], "mean", axes=[1], keepdims=0),
                 node("MatMul", ["mean", "update.weight"], "update"), node("Unsqueeze", ["update", "zero"], "layer"),
                 node("Add", ["state", "layer"], "sum"), node("Tanh", ["sum"], "next")]
        tensors = [weights("fc.weight", 4, 6), weights("update.weight", 6, 3), tensor("zero", [1], [0])]
        self.inputs = [port("x", [batch, 5, 4]), port("state", [2, batch, 3])]
        self.outputs = [port("logits", [5, batch, 6]), port("mean", [batch, 6]), port("next", [2, batch, 3])]
        with open(self.path("model.onnx"), "wb") as file:
            file.write(model(nodes, tensors, self.inputs, self.outputs))

    def write_recipe(self, more=""):
        with open(self.path("recipe.yaml"), "w") as file:
            file.write(RECIPE + more)
        return "recipe.yaml"

    def table(self, *arguments):
        """The names and values of a table of predictions."""
        header, *rows = [line.split(",")[1:-1] for line in self.succeed(*arguments).splitlines()]
        return [header] + [[float(value) for value in row] for row in rows]

    def compare(self, run):
        """What ONNX Runtime gives for the source and for the run's export."""
        python = os.environ.get("STEELYARD_PYTHON", "")
        if not os.path.exists(python):
            self.skipTest("no Python with onnxruntime")
        printed = subprocess.run([python, "-c", BOTH, self.path("model.onnx"), self.path(run, "export", "model.onnx")],
                                 capture_output=True, text=True)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        return json.loads(printed.stdout)

    def test_from_a_file_to_a_verified_export(self):
        self.write()
        listed = self.succeed("import", "model.onnx", "--dry-run")
        self.assertIn("samples x [5, 4], state [2, 3] -> logits [5, 6], mean [6], next [2, 3], ", listed)
        self.assertNotIn("Permute", listed)
        recipe = self.write_recipe(QUANTIZE)
        self.succeed("calibrate", recipe, "--run-dir", "calibrated")
        self.succeed("train", recipe, "--run-dir", "trained")
        self.succeed("import", "model.onnx", "--run-dir", "float", "--recipe", self.write_recipe())
        self.succeed("export", "float")
        test = os.path.join(self.data, "test.safetensors")
        for run in ("calibrated", "trained", "float"):
            judged = self.succeed("verify", run)
            self.assertRegex(judged, r"(?m)^0 of \d+ codes differ" if run != "float" else "of 0 codes|codes differ")
            with open(self.path(run, "export", "model.onnx"), "rb") as file:
                exported = file.read()
            # The names, order and places of the batch of the file that was imported.
            self.assertIn(b"".join(field(11, given) for given in self.inputs) + b"".join(field(12, given) for given in self.outputs),
                          exported)
            # In rows: all of a sample's values, whoever computes them.
            files = [(run,), (run, "--with", "integer"), (os.path.join(run, "export", "model.safetensors"),)]
            files += [(run, "--with", "onnx")] if "ONNX: skipped" not in judged else []
            tables = [self.table("predict", name, test, "--format", "csv", *more) for name, *more in files]
            for table in tables[1:]:
                self.assertEqual(table[0], tables[0][0])
                for row, expected in zip(table[1:], tables[0][1:], strict=True):
                    for value, exact in zip(row, expected, strict=True):
                        self.assertAlmostEqual(value, exact, delta=1e-5)
        for run in ("float", "calibrated"):
            for count, outputs in zip((1, 3), self.compare(run)):
                self.assertEqual([[name, shape, True] for name, shape, same, _ in outputs if same],
                                 [["logits", [5, count, 6], True], ["mean", [count, 6], True], ["next", [2, count, 3], True]])
                for *_, error in outputs:
                    self.assertLess(error, 1e-5 if run == "float" else 0.1)

    def test_a_place_that_the_file_does_not_say(self):
        self.write(batch=1)
        why = "model.onnx: expected one batch for all inputs, got the input 'x' [1, 5, 4] and the input 'state' [2, 1, 3]: say " \
              "which dimension of an input is the batch (--batch-axis state=1, or model.batch_axis; the first is 0)"
        self.fail_with(2, why, arguments=["import", "model.onnx", "--dry-run"])
        self.fail_with(2, why, arguments=["calibrate", self.write_recipe(QUANTIZE)])
        self.assertIn("-> logits [5, 6], mean [6], next [2, 3], ",
                      self.succeed("import", "model.onnx", "--dry-run", "--batch-axis", "state=1"))
        for text, why in (("state", "--batch-axis: expected a dimension such as 1 or state=1, got 'state'"),
                          ("h=1", "no input is called 'h'; there are x, state"),
                          ("state=3", "the input 'state' [2, 1, 3] has no dimension 3 (the first is 0) for the batch")):
            self.fail_with(2, why, arguments=["import", "model.onnx", "--dry-run", "--batch-axis", text])
        self.fail_with(2, "model.batch_axis: is for ONNX files: 'model.onnx' is absent",
                       arguments=["validate", self.write_recipe(), "--set", "model={type: resnet18, batch_axis: ['1']}"])
        recipe = self.write_recipe(QUANTIZE)
        self.succeed("calibrate", recipe, "--run-dir", "run", "--set", "model.batch_axis=['state=1']")
        self.assertRegex(self.succeed("verify", "run"), r"(?m)^0 of \d+ codes differ")
        self.succeed("import", "model.onnx", "--run-dir", "float", "--recipe", self.write_recipe(), "--batch-axis", "state=1")
        self.fail_with(2, "model.batch_axis: is for ONNX files, the network of a checkpoint has its batches in their places",
                       arguments=["validate", recipe, "--set", "model={onnx: float/last.safetensors, batch_axis: ['state=1']}"])
        printed = self.succeed("quantize", "model.onnx", "--data", os.path.join(self.data, "train.safetensors"),
                               "--batch-axis", "state=1", "--minutes", "0.1")
        self.assertIn("written: model-w8a8.onnx", printed)
