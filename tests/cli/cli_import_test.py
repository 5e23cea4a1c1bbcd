"""A model of somebody else: imported, evaluated, calibrated, trained quantized, exported under its own names."""
import math
import os
import random

from cli_test import QUANTIZE, Case
from support.data_files import f32, write_split
from support.onnx_files import model, node, port, squeeze_excite, tensor

TRAIN = "train: {epochs: 2, optimizer: {type: sgd, lr: 0.01, momentum: 0.9}}\n"


class Import(Case):
    def write(self, data, name="model.onnx"):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return name

    def test_from_a_file_to_a_verified_export(self):
        path = self.write(squeeze_excite())
        listed = self.succeed("import", path, "--dry-run", "--sample", "8,8,1")
        self.assertIn("stem               Conv2d(1, 6, kernel 3x3, stride 1x1, padding 1x1, no bias) <- input\n", listed)
        self.assertIn("Hardswish <- stem_bn\n", listed)
        self.assertIn("output_activation  Softmax <- fc\n", listed)

        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data)
        self.succeed("import", path, "--run-dir", "float", *data)
        evaluated = self.succeed("eval", "float")
        predicted = self.succeed("predict", "float", os.path.join(self.data, "test.safetensors"))
        self.assertRegex(predicted, r"^0  class [0-3]  [01]\.\d{3}\n")

        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN + QUANTIZE + "export: {formats: [safetensors, onnx]}\n")
        self.succeed("calibrate", recipe, "--run-dir", "calibrated")
        self.succeed("train", recipe, "--run-dir", "run")
        self.succeed("train", recipe, "--run-dir", "half", "--set", "train.epochs=1")
        with open(self.path("run", "export", "model.onnx"), "rb") as file:
            exported = file.read()
        for name in (b"pixels", b"shares", b"batch"):
            self.assertIn(name, exported)

        # From here on nothing needs the file.
        os.remove(self.path(path))
        self.assertEqual(self.succeed("eval", "float"), evaluated)
        self.succeed("train", recipe, "--run-dir", "half", "--resume")
        self.assertEqual(self.sha("half", "last.safetensors"), self.sha("run", "last.safetensors"))
        for run in ("calibrated", "run"):
            judged = self.succeed("verify", run)
            self.assertRegex(judged, r"\n0 of \d+ codes differ, in 13 quantized tensors over 40 samples\n")
            if "ONNX: skipped" not in judged:
                self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*the same class for 100.00 %; .* by at most (0|\d\.\d+e-0[78])\n")
        test = os.path.join(self.data, "test.safetensors")
        self.assertEqual(self.succeed("predict", "run", test, "--with", "integer").count("\n"), 40)
        again = self.recipe("model: {onnx: float/last.safetensors}\n" + TRAIN + QUANTIZE, "again.yaml")
        self.succeed("calibrate", again, "--run-dir", "again")
        self.assertEqual(self.metrics("again"), self.metrics("calibrated"))
        self.fail_with(2, "recipe.yaml", "model.onnx: ", "cannot open", arguments=["calibrate", recipe, "--run-dir", "none"])

    def test_from_images_to_images(self):
        generator = random.Random(3)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Conv", ["x", "a.weight"], "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
                 node("Relu", ["a"], "relu"), node("Pad", ["relu", "pads"], "padded"),
                 node("AveragePool", ["padded"], "mean", kernel_shape=[3, 3], strides=[1, 1]),
                 node("Conv", ["mean", "b.weight"], "map", kernel_shape=[1, 1])]
        tensors = [tensor("deviation", [1, 1, 1, 1], [0.25]), weights("a.weight", 3, 1, 3, 3),
                   tensor("pads", [8], [0, 0, 1, 1, 0, 0, 1, 1]), weights("b.weight", 2, 3, 1, 1)]
        ports = [port("x", ["n", 1, 6, 5])], [port("map", ["n", 2, 6, 5])]
        self.write(model(nodes, tensors, *ports))
        for split, count in (("train", 60), ("test", 12)):
            pixels = [generator.uniform(-1, 1) for _ in range(count * 30)]
            write_split(self.data, split, f32([count, 6, 5, 1], pixels),
                        f32([count, 6, 5, 2], [value for pixel in pixels for value in (pixel, -pixel)]))
        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN.replace("epochs: 2", "epochs: 1, loss: mse") +
                             QUANTIZE.replace("Linear, ", "") +
                             "export: {formats: [safetensors, onnx]}\n")
        trained = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.assertNotIn("Pad", trained)
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        test = os.path.join(self.data, "test.safetensors")
        expected = self.succeed("predict", "run", test)
        if "ONNX: skipped" not in judged:
            self.assertIn("0 of 720 outputs differ", judged)
            self.assertEqual(self.succeed("predict", "run", test, "--with", "onnx"), expected)
        # A division has no integer form, but is trained: nothing divides by 0 before weights are loaded.
        divided = [node("Div", ["x", "deviation"], "normalized")] + [n.replace(b"\n\x01x", b"\n\nnormalized") for n in nodes]
        self.write(model(divided, tensors, *ports))
        self.assertIn("cannot be exported: ", self.succeed("train", recipe, "--run-dir", "divided", "--set", "data.augment=[]",
                                                           "--set", "export=null"))
        # A failed import leaves nothing in the way of the next one.
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data, "--set", "train.loss=mse",
                "--set", "data.normalize=none")
        self.write(model(nodes[:1], tensors, ports[0], [port("a", ["n", 3, 6, 5])]))
        self.fail_with(1, "mse_loss", arguments=["import", "model.onnx", *data])
        self.write(model(nodes, tensors, *ports))
        self.succeed("import", "model.onnx", *data)

    def test_what_stands_in_the_way(self):
        data = squeeze_excite()
        path = self.write(data)
        self.fail_with(2, "model.onnx: the input 'pixels' is [batch, 1, height, width], the data has samples of [8, 8, 3]",
                       arguments=["import", path, "--dry-run", "--sample", "8,8,3"])
        self.fail_with(2, "has free sizes: say the shape of a sample", arguments=["import", path, "--dry-run"])
        self.fail_with(2, "data.dataset", arguments=["import", path])
        recipe = self.recipe("model: {onnx: data/train.safetensors}\n" + TRAIN)
        self.fail_with(2, "recipe.yaml:5:15: model.onnx: ", arguments=["train", recipe])
        recipe = self.recipe("model: {onnx: none.onnx, type: mlp}\n" + TRAIN)
        self.fail_with(2, "expected exactly one of 'type', 'layers' and 'onnx'", arguments=["train", recipe])
        self.fail_with(2, "model.onnx: not an ONNX model, or truncated",
                       arguments=["import", self.write(data[:500]), "--dry-run", "--sample", "8,8,1"])

        # Two operations that are not supported, and one behind them, of which nothing is known.
        extra = [node("LRN", ["norm"], "a", size=3), node("Einsum", ["stem"], "b"), node("Sum", ["a", "b", "norm"], "gate0")]
        data = squeeze_excite(extra=extra, shifted="gate0")
        result = self.run_program("import", self.write(data), "--dry-run", "--sample", "8,8,1")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stderr.splitlines(),
                         ["node: node of a (LRN): the operation is not supported",
                          "node: node of b (Einsum): the operation is not supported",
                          "error: model.onnx: 2 of its nodes cannot be imported (docs/import.md)"])
