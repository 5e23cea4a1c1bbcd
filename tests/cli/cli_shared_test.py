"""Layers that an ONNX file uses at several places keep one set of weights: in training, in checkpoints and in exports."""
import math
import os
import random

from cli_case import QUANTIZE, Case, read_checkpoint
from support.onnx_files import INT64, branch, model, node, port, tensor

TRAIN = "train: {epochs: 1, optimizer: {type: sgd, lr: 0.01, momentum: 0.9}}\n"
WIDTH = 16


def network():
    """A convolution over two heads, and a matrix that is multiplied four times."""
    generator = random.Random(5)

    def weights(name, *shape):
        return tensor(name, shape, [generator.gauss(0, (2 / math.prod(shape[1:])) ** 0.5) for _ in range(math.prod(shape))])

    three = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [node("Conv", ["x", "stem.weight"], "stem", **three), node("Relu", ["stem"], "large"),
             node("MaxPool", ["large"], "small", kernel_shape=[2, 2], strides=[2, 2])]
    for size in ("large", "small"):
        nodes += [node("Conv", [size, "head.weight", "head.bias"], size + "_head", **three),
                  node("Relu", [size + "_head"], size + "_relu"), node("GlobalAveragePool", [size + "_relu"], size + "_mean"),
                  node("Flatten", [size + "_mean"], size + "_row")]
    nodes.append(node("Add", ["large_row", "small_row"], "y0"))
    for i in range(4):
        nodes += [node("MatMul", [f"y{i}", "block.weight"], f"product{i}"), node("Relu", [f"product{i}"], f"y{i + 1}")]
    nodes.append(node("Gemm", ["y4", "fc.weight"], "scores"))
    tensors = [weights("stem.weight", WIDTH, 1, 3, 3), weights("head.weight", WIDTH, WIDTH, 3, 3), weights("head.bias", WIDTH),
               weights("block.weight", WIDTH, WIDTH), weights("fc.weight", WIDTH, 4)]
    return model(nodes, tensors, [port("x", ["n", 1, 8, 8])], [port("scores", ["n", 4])])


class Shared(Case):
    def weights_of(self, *path):
        """The tensors of a checkpoint or integer model that are called weight."""
        header, _ = read_checkpoint(self.path(*path))
        return sorted(name for name in header if name.endswith(".weight"))

    def test_weights_stay_one(self):
        with open(self.path("model.onnx"), "wb") as file:
            file.write(network())
        listed = self.succeed("import", "model.onnx", "--dry-run")
        self.assertIn("2 modules are used at 6 places, each with one set of weights", listed)
        self.assertIn("with the weights of head <- ", listed)
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data)
        self.succeed("import", "model.onnx", "--run-dir", "float", *data)
        self.assertEqual(self.weights_of("float", "last.safetensors"), ["block.weight", "fc.weight", "head.weight", "stem.weight"])

        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN + QUANTIZE + "export: {formats: [safetensors, onnx, c]}\n")
        trained = self.train(recipe, "run")
        self.assertRegex(trained, r"head_2 +weight +as head ")
        self.assertEqual(self.weights_of("run", "last.safetensors"), ["block.weight", "fc.weight", "head.weight", "stem.weight"])
        exported = self.weights_of("run", "export", "model.safetensors")
        self.assertEqual(exported, ["block.weight", "fc.weight", "head.weight", "stem.weight"])
        with open(self.path("run", "export", "model.onnx"), "rb") as file:
            onnx = file.read()
        stored, data = read_checkpoint(self.path("run", "export", "model.safetensors"))
        for name in exported:
            begin, end = stored[name]["data_offsets"]
            self.assertEqual(onnx.count(data[begin:end]), 1, name)
        self.assertEqual(self.read("run", "export", "model.h").count("static const int8_t steelyard_weight_"), 4)
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")

        # Training goes on from a checkpoint to the same bits, and another run begins with its weights.
        self.succeed("train", recipe, "--run-dir", "half", "--set", "train.epochs=2", "--set", "train.checkpoint_every_steps=4",
                     "--set", "train.keep_step_checkpoints=true")
        self.copy_as_stopped("half", 8, "resumed")
        self.succeed("train", recipe, "--run-dir", "resumed", "--set", "train.epochs=2", "--set", "train.checkpoint_every_steps=4",
                     "--set", "train.keep_step_checkpoints=true", "--resume")
        self.assertEqual(self.sha("resumed", "last.safetensors"), self.sha("half", "last.safetensors"))
        again = self.recipe("model: {onnx: float/last.safetensors}\n" + TRAIN + QUANTIZE, "again.yaml")
        self.succeed("calibrate", again, "--run-dir", "again")
        self.assertEqual(self.weights_of("again", "last.safetensors"), exported)

    def test_other_ways_to_quantize(self):
        """Learned scales, weights that are averaged, PTQ methods: each leaves one set of weights."""
        with open(self.path("model.onnx"), "wb") as file:
            file.write(network())
        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN + QUANTIZE + "export: {formats: [safetensors, onnx]}\n")
        for name, more in (("learned", ["quantize.algorithm={method: lsq}"]), ("averaged", ["train.ema={decay: 0.9}"]),
                           ("sharded", ["train.shards=2"])):
            options = [part for option in more for part in ("--set", option)]
            self.train(recipe, name, *options)
            self.assertRegex(self.succeed("verify", name), r"\n0 of \d+ codes differ")
            self.assertEqual(len(self.weights_of(name, "last.safetensors")), 4, name)
        for name, more in (("plain", []), ("corrected", ["calibrate.bias_correction=40"]), ("rounded", ["calibrate.adaround={samples: 80, iterations: 20}"]),
                           ("equalized", ["calibrate.equalize=true"])):
            options = [part for option in more for part in ("--set", option)]
            self.succeed("calibrate", recipe, "--run-dir", name, *options)
            self.assertRegex(self.succeed("verify", name), r"\n0 of \d+ codes differ")


class Frozen(Case):
    def write(self):
        """An If inside of a branch, on a rate that an input gives."""
        generator = random.Random(5)
        weights = [tensor(f"fc{i}", [64, 4], [generator.gauss(0, .1) for _ in range(256)]) for i in range(3)]
        inner = branch([node("If", ["is_second"], "chosen", then_branch=branch([node("MatMul", ["flat", "fc1"], "a")], ["a"]),
                             else_branch=branch([node("MatMul", ["flat", "fc2"], "a")], ["a"]))], ["chosen"])
        nodes = [node("Flatten", ["x"], "flat"), node("Equal", ["rate", "first"], "is_first"), node("Equal", ["rate", "second"], "is_second"),
                 node("If", ["is_first"], "scores", then_branch=branch([node("MatMul", ["flat", "fc0"], "y")], ["y"]), else_branch=inner)]
        with open(self.path("model.onnx"), "wb") as file:
            file.write(model(nodes, [*weights, tensor("first", [], [16000]), tensor("second", [], [8000])],
                             [port("x", ["n", 1, 8, 8]), port("rate", [], INT64)], [port("scores", ["n", 4])]))

    def test_an_input_becomes_a_constant(self):
        self.write()
        for rate, weight in (("16000", "fc0"), ("8000", "fc1"), ("1", "fc2")):
            listed = self.succeed("import", "model.onnx", "--dry-run", "--freeze", "rate=" + rate)
            self.assertEqual(listed.count("Linear(64, 4, no bias)"), 1)
        recipe = self.recipe("model: {onnx: model.onnx, freeze: [rate=8000]}\n" + TRAIN + QUANTIZE.replace(", Conv2d", "") + "export: {formats: [safetensors, onnx]}\n")
        self.train(recipe, "run")
        self.assertRegex(self.succeed("verify", "run"), r"\n0 of \d+ codes differ")
        with open(self.path("run", "export", "model.onnx"), "rb") as file:
            self.assertNotIn(b"rate", file.read())
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data)
        self.succeed("import", "model.onnx", "--run-dir", "float", "--freeze", "rate=8000", *data)
        self.succeed("eval", "float")

        for given, why in (("speed=1", "model.onnx: freeze: no input is called 'speed'; the inputs are x, rate\n"),
                           ("rate=0.5", "model.onnx: freeze: the input 'rate' expects whole numbers (int64)\n"),
                           ("rate=1,2", "model.onnx: freeze: the input 'rate' is [], got 2 values\n"),
                           ("rate", "freeze: expected an input and its value such as sr=16000, got 'rate'\n")):
            self.fail_with(2, why, arguments=["import", "model.onnx", "--dry-run", "--freeze", given])
            self.fail_with(2, why, arguments=["train", recipe, "--run-dir", "none", "--set", f"model.freeze=['{given}']"])
        self.fail_with(2, "model.freeze: is for ONNX files: 'model.onnx' is absent",
                       arguments=["validate", self.recipe("model: {type: mlp, freeze: [a=1]}\n" + TRAIN, "none.yaml")])
        again = self.recipe("model: {onnx: float/last.safetensors, freeze: [rate=8000]}\n" + TRAIN, "again.yaml")
        self.fail_with(2, "model.freeze: is for ONNX files, the network of a checkpoint has the inputs", arguments=["train", again, "--run-dir", "none"])
