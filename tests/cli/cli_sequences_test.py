"""Networks of sequences, imported and of a recipe: quantized, exported and verified."""
import math
import random

from cli_case import QUANTIZE, Case
from support.data_files import f32, i64, write_split
from support.onnx_files import model, node, port, tensor


class Sequences(Case):
    def test_from_sequences_of_any_length_to_a_verified_export(self):
        generator = random.Random(7)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Conv", ["sound", "a.weight"], "a", kernel_shape=[3], pads=[1, 1]),
                 node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], "norm"), node("Relu", ["norm"], "relu"),
                 node("MaxPool", ["relu"], "largest", kernel_shape=[2], strides=[2]),
                 node("Conv", ["largest", "b.weight"], "b", kernel_shape=[3], dilations=[2], group=2), node("Relu", ["b"], "bent"),
                 node("GlobalAveragePool", ["bent"], "average"), node("Flatten", ["average"], "flat"),
                 node("MatMul", ["flat", "fc.weight"], "scores")]
        tensors = [weights("a.weight", 4, 2, 3), weights("scale", 4), weights("shift", 4), weights("mean", 4),
                   tensor("variance", [4], [0.5, 1.0, 1.5, 2.0]), weights("b.weight", 6, 2, 3), weights("fc.weight", 6, 3)]
        with open(self.path("model.onnx"), "wb") as file:
            file.write(model(nodes, tensors, [port("sound", ["n", 2, "length"])], [port("scores", ["n", 3])]))
        for split, count in (("train", 60), ("test", 12)):
            labels = [generator.randrange(3) for _ in range(count)]
            values = [label - 1 + generator.uniform(-1, 1) for label in labels for _ in range(24)]
            write_split(self.data, split, f32([count, 2, 12], values), i64([count], labels))
        recipe = self.recipe("model: {onnx: model.onnx}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n" +
                             QUANTIZE.replace("Conv2d", "Conv1d") + "export: {formats: [safetensors, onnx]}\n")
        plain = ["--set", "data.augment=[]", "--set", "data.normalize=none"]
        trained = self.succeed("train", recipe, "--run-dir", "run", *plain)
        self.assertRegex(trained, r"\na +weight +int8")
        self.assertRegex(trained, r"\nnode_of_relu +- .* fused into a\n")
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertRegex(judged, r"\nat \[2, 24\]: 0 of \d+ codes differ")
        if "ONNX: skipped" not in judged:
            self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*the same class for 100.00 %; 0 of 36 outputs differ")
        # Means of the data for each position fix the length.
        self.succeed("train", recipe, "--run-dir", "normalized", "--set", "data.augment=[]")
        judged = self.succeed("verify", "normalized")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertNotIn("\nat [", judged)

    def test_from_layers_of_a_recipe_to_a_verified_export(self):
        generator = random.Random(3)
        for split, count in (("train", 60), ("test", 12)):
            labels = [generator.randrange(3) for _ in range(count)]
            values = [(label - 1) * math.sin(step) + generator.uniform(-.2, .2)
                      for label in labels for step in range(12) for _ in range(2)]
            write_split(self.data, split, f32([count, 12, 2], values), i64([count], labels))
        recipe = self.recipe("""model:
  layers:
    - {type: Conv1d, name: a, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: Residual, main: [{type: Conv1d, out_channels: 8, kernel_size: 3, padding: 1, groups: 2}]}
    - {type: Flatten}
    - {type: Linear, out_features: 3}
train: {epochs: 6, optimizer: {type: adamw, lr: 0.01}}
""" + QUANTIZE.replace("Conv2d", "Conv1d") + "export: {formats: [safetensors, onnx]}\n")
        trained = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.assertRegex(trained, r"\n2\.0 +weight +int8")
        self.assertRegex(trained, r"\ntest loss .* top-1 100.00 %\n")
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        if "ONNX: skipped" not in judged:
            self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*; 0 of 36 outputs differ")

    def test_a_network_that_cannot_be_exported_is_told_at_import(self):
        """A layer over the rows of all samples at once, as Keras writes it."""
        nodes = [node("Reshape", ["x", "rows"], "flat"), node("MatMul", ["flat", "weight"], "product"),
                 node("Reshape", ["product", "samples"], "y")]
        tensors = [tensor("rows", [2], [-1, 3]), tensor("weight", [3, 2], [0.5, -1.0, 2.0, 1.5, 0.25, 1.0]),
                   tensor("samples", [3], [-1, 4, 2])]
        with open(self.path("dense.onnx"), "wb") as file:
            file.write(model(nodes, tensors, [port("x", ["n", 4, 3])], [port("y", ["n", 4, 2])]))
        for split, count in (("train", 6), ("test", 3)):
            write_split(self.data, split, f32([count, 4, 3], [0.25 * i for i in range(12 * count)]),
                        f32([count, 4, 2], [0.5] * (8 * count)))
        said = self.run_program("import", "dense.onnx", "--run-dir", "float", "--set", "data.dataset=safetensors", "--set",
                                "data.path=" + self.data, "--set", "data.normalize=none", "--set", "data.validation=0",
                                "--set", "train.loss=mse")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("note: the model cannot be exported: ", said.stderr)
