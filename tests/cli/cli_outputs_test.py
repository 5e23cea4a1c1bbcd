"""Imported networks with several outputs: one network, one run and one exported file."""
import math
import os
import random

from cli_case import QUANTIZE, Case
from support.data_files import f32, write_split
from support.onnx_files import INT64, field, model, node, port, tensor

TRAIN = "train: {epochs: 1, loss: mse, optimizer: {type: sgd, lr: 0.01, momentum: 0.9}}\n"
EXPORT = "export: {formats: [safetensors, onnx]}\n"
PLAIN = ("--set", "data.augment=[]", "--set", "data.normalize=none")


class SeveralOutputs(Case):
    def write(self, data, name="model.onnx"):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def exported(self, run):
        with open(self.path(run, "export", "model.onnx"), "rb") as file:
            return file.read()

    def network(self, high="high", wide="wide", more=(), more_outputs=()):
        """Scores, a map, the features of both, which are read inside, and the scores under a second name."""
        generator = random.Random(3)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Conv", ["x", "stem.weight"], "stem", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                 node("Relu", ["stem"], "features"), node("Conv", ["features", "map.weight"], "map", kernel_shape=[1, 1]),
                 node("GlobalAveragePool", ["features"], "pool"), node("Flatten", ["pool"], "flat"),
                 node("MatMul", ["flat", "fc.weight"], "scores"), node("Identity", ["scores"], "again"), *more]
        tensors = [weights("stem.weight", 4, 1, 3, 3), weights("map.weight", 2, 4, 1, 1), weights("fc.weight", 4, 3)]
        self.outputs = [port("scores", ["n", 3]), port("map", ["n", 2, high, wide]), port("features", ["n", 4, high, wide]),
                        port("again", ["n", 3])]
        return model(nodes, tensors, [port("x", ["n", 1, high, wide])], [*self.outputs, *more_outputs])

    def write_data(self, values):
        generator = random.Random(5)
        for split, count in (("train", 60), ("test", 12)):
            write_split(self.data, split, f32([count, 6, 5, 1], [generator.uniform(-1, 1) for _ in range(count * 30)]),
                        f32([count, values], [generator.uniform(-1, 1) for _ in range(count * values)]))

    def test_from_a_file_to_a_verified_export(self):
        self.write(self.network())
        listed = self.succeed("import", "model.onnx", "--dry-run", "--sample", "6,5,1")
        self.assertIn("samples [6, 5, 1] -> scores [3], map [6, 5, 2], features [6, 5, 4], again [3], ", listed)
        self.assertRegex(listed, r"\noutputs +OutputParts <- \S+ \S+ \S+ \S+\n")
        self.assertIn("output scores [3] from value 0 on\noutput map [6, 5, 2] from value 3 on\n"
                      "output features [6, 5, 4] from value 63 on\noutput again [3] from value 183 on\n", listed)
        self.write_data(186)
        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN + QUANTIZE + EXPORT)
        self.succeed("calibrate", recipe, "--run-dir", "calibrated", *PLAIN)
        self.assertRegex(self.succeed("train", recipe, "--run-dir", "trained", *PLAIN),
                         r"outputs +- +float +- +OutputParts has no quantized form\n")
        self.succeed("import", "model.onnx", "--run-dir", "float", "--recipe", recipe, *PLAIN)
        self.assertEqual(self.notes_of("export", "float").count("fixed sizes"), 0)
        test = os.path.join(self.data, "test.safetensors")
        for run in ("calibrated", "trained", "float"):
            judged = self.succeed("verify", run)
            self.assertRegex(judged, r"\n?0 of \d+ codes differ")
            self.assertRegex(judged, r"(?s)\nat \[12, 10, 1\]: .*?\b0 of \d+ codes differ")
            # The names, order, layouts and free sizes of the file that was imported.
            self.assertIn(b"".join(field(12, output) for output in self.outputs), self.exported(run))
            expected = self.succeed("predict", run, test, "--format", "csv")
            header = expected.split("\n")[0].split(",")
            self.assertEqual(header[:4] + header[-2:], ["sample", "scores_0", "scores_1", "scores_2", "again_2", "error"])
            self.assertEqual(self.succeed("predict", run, test, "--format", "csv", "--with", "integer") == expected, run != "float")
            file = os.path.join(run, "export", "model.safetensors")
            self.assertEqual(self.succeed("predict", file, test, "--format", "csv").split("\n")[0].split(","), header)
            if "ONNX: skipped" not in judged and run != "float":
                self.assertIn(" 0 of 2232 outputs differ", judged)
                self.assertRegex(judged, r"\nONNX Runtime [\d.]+ at that size: .* 0 of \d+ outputs differ")
                self.assertEqual(self.succeed("predict", run, test, "--format", "csv", "--with", "onnx"), expected)
            self.succeed("eval", run)

        # A run goes on from the checkpoint's network, whose outputs are all there.
        self.fail_with(2, "model.output: expected scores, map, features, again, as the checkpoint's network has, got map",
                       arguments=["validate", recipe, "--set", "model.onnx=float/last.safetensors", "--set", "model.output=map", *PLAIN])
        self.succeed("train", recipe, "--run-dir", "again", "--set", "model.onnx=float/last.safetensors", *PLAIN)
        self.assertIn(b"".join(field(12, output) for output in self.outputs), self.exported("again"))
        # One of them alone.
        self.write_data(3)
        self.succeed("train", recipe, "--run-dir", "one", "--set", "model.output=scores", *PLAIN)
        self.assertNotIn(b"features/", self.exported("one").replace(b"node_of_features/", b""))
        self.fail_with(2, "the loss mse needs targets of the network's outputs [50, 186] (scores [3], map [6, 5, 2], "
                       "features [6, 5, 4], again [3]), the dataset has [50, 3]", arguments=["train", recipe, *PLAIN])
        self.write_data(186)
        self.fail_with(2, "data.normalize_targets: expected false, the network has several outputs (scores [3], ", arguments=["train", recipe, "--set", "data.normalize_targets=true", *PLAIN])

    def test_outputs_that_cannot_be(self):
        whole = [node("ArgMax", ["scores"], "best", axis=1)]
        for name, extra, text in (("x", (), "the output 'x' is the input"),
                                  ("fc.weight", (), "the output 'fc.weight' is a constant"),
                                  ("flags", (node("Cast", ["above"], "flags", to=INT64), node("Greater", ["scores", "again"], "above")),
                                   "the output 'flags' holds whole numbers")):
            self.write(self.network(more=extra[::-1], more_outputs=[port(name, ["n", 3])]))
            self.fail_with(2, f"{text} (model.output names another one)",
                           arguments=["import", "model.onnx", "--dry-run", "--sample", "6,5,1"])
        self.write(self.network(more=whole, more_outputs=[port("best", ["n", 1], INT64)]))
        result = self.run_program("import", "model.onnx", "--dry-run", "--sample", "6,5,1")
        self.assertIn("node: node of best (ArgMax): ", result.stderr)
