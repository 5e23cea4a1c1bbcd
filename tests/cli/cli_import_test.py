"""A model of somebody else: imported, evaluated, calibrated, trained quantized, exported under its own names."""
import json
import math
import os
import random
import re

from cli_case import LAYERS, QUANTIZE, Case
from support.data_files import f32, i64, write_named_split, write_split
from support.onnx_files import INT32, INT64, model, node, port, squeeze_excite, tensor

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
        told = self.notes_of("import", path, "--run-dir", "float", *data)
        self.assertIn("the height of 'pixels' is free in model.onnx, but fixed in exports: on it depends ", told)
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

        # A report's baseline is the file.
        top1 = evaluated.split("top-1 ")[1].split(" ")[0]
        for run in ("calibrated", "run"):
            self.assertNotIn("missing: accuracy of the float model", self.succeed("report", run, "--out", "page.html"))
            with open(self.path("page.html"), encoding="utf-8") as file:
                self.assertRegex(file.read(), r"float, model\.onnx</td><td[^>]*>" + top1)

        # From here on nothing else needs the file.
        os.remove(self.path(path))
        self.assertIn("missing: accuracy of the float model: recipe of the float model:", self.succeed("report", "run"))
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

    def test_of_an_export(self):
        """The file's own metadata says how samples are prepared and what classes are called, where the recipe does not."""
        with open(self.path("names.txt"), "w") as file:
            file.write("west\nnorth\neast\nsouth\n")
        recipe = self.recipe(LAYERS + TRAIN.replace("epochs: 2", "epochs: 1"))
        chosen = ("--set", "data.normalize={mean: [0.25], std: [0.5]}", "--set", "data.class_names=names.txt",
                  "--set", "data.transforms={centre_crop: 6, grey: true}")
        self.succeed("train", recipe, "--run-dir", "run", *chosen)
        self.succeed("export", "run", "--format", "onnx", "--out", "out")
        exported = os.path.join("out", "model.onnx")
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data)
        printed = self.notes_of("import", exported, "--run-dir", "again", *data)
        self.assertIn(f"data.normalize is that of {exported}: {{mean: [0.25], std: [0.5]}}", printed)
        self.assertIn(f"data.transforms is that of {exported}: ", printed)
        self.assertNotIn("does not say how its inputs were normalized", printed)
        test = os.path.join(self.data, "test.safetensors")
        expected = self.succeed("predict", "run", test)
        self.assertRegex(expected, r"^0  (west|north|east|south)  ")
        self.assertEqual(self.succeed("predict", "again", test), expected)
        self.assertEqual(self.succeed("eval", "again").split(": ")[1], self.succeed("eval", "run").split(": ")[1])

        # The recipe wins, and a note says so.
        other = self.notes_of("import", exported, "--run-dir", "other", *data, "--set", "data.normalize=none")
        self.assertIn(f"note: {exported} was trained with data.normalize: {{mean: [0.25], std: [0.5]}}, this run has none", other)

        # Training goes on with the same settings without the file; labels keep their order.
        tuned = self.recipe("model: {onnx: %s}\n" % exported + TRAIN, "tuned.yaml")
        plain = ("--set", "data.augment=[]")
        self.succeed("train", tuned, "--run-dir", "half", "--set", "train.epochs=1", *plain)
        self.succeed("train", tuned, "--run-dir", "whole", *plain)
        with open(self.path(exported), "rb") as file:
            content = file.read()
        os.remove(self.path(exported))
        self.succeed("train", tuned, "--run-dir", "half", "--resume", *plain)
        self.assertEqual(self.sha("half", "last.safetensors"), self.sha("whole", "last.safetensors"))
        self.succeed("sensitivity", "whole", "--bits", "8")

        # Damaged metadata names the file and the key.
        for old, new, why in ((b'"north"', b'"east" ', ": metadata 'class_names' is not valid: 'east' is there twice"),
                              (b'["west",', b'[ west ,', ": metadata 'class_names' is not valid: "),
                              (b'[0.5]', b'[0.0]', ": metadata 'preprocessing' is not valid: expected finite means"),
                              (b'"u8"', b'"i8"', ": metadata 'preprocessing' is not valid: unexpected dtype 'i8'"),
                              (b'["west","north","east","south"]', b'["we","n","north","east","sou"]',
                               ": metadata 'class_names': expected 4 names, got 5"),
                              (b'["west","north"', b'["westnorth"   ', ": class_names: expected 4 names or more")):
            self.assertEqual(content.count(old), 1, old)
            self.write(content.replace(old, new), exported)
            self.fail_with(2, exported + why, arguments=["train", tuned, "--run-dir", "none", *plain])

        # Weights of the same classes in another order are refused.
        with open(self.path("names.txt"), "w") as file:
            file.write("north\nwest\neast\nsouth\n")
        self.fail_with(2, "init.checkpoint: run/last.safetensors has the classes in another order; its class 0 is 'west'",
                       arguments=["train", recipe, "--run-dir", "none", *chosen, "--set", "init.checkpoint=run/last.safetensors"])

    def test_norms_that_saw_no_data_are_told(self):
        recipe = self.recipe(LAYERS + TRAIN.replace("epochs: 2", "epochs: 1") + QUANTIZE)
        what = "quantize.bn_fold: frozen drops 1 batch norm, which has seen no data"
        self.assertIn(what, self.succeed("train", recipe, "--run-dir", "frozen"))
        self.assertNotIn(what, self.succeed("train", recipe, "--run-dir", "none", "--set", "quantize.bn_fold=none"))

    def test_a_recipe_keeps_its_number_of_outputs(self):
        self.write(squeeze_excite())
        recipe = self.recipe("model: {type: mlp, hidden: [4], classes: 5}\n" + TRAIN)
        self.fail_with(2, "model.onnx: model.classes is 5, the network has 4 outputs",
                       arguments=["import", "model.onnx", "--recipe", recipe])
        for split, count in (("train", 60), ("test", 12)):
            write_split(self.data, split, f32([count, 8, 8, 1], [0.5] * 64 * count), i64([count], [i % 3 for i in range(count)]))
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data)
        self.fail_with(2, "model.onnx: the data has 3 classes, the network 4 outputs: data.class_names can list all classes",
                       arguments=["import", "model.onnx", *data])
        self.fail_with(2, "model.onnx: model.classes is 4, the data has 3 classes: data.class_names can list all classes",
                       arguments=["train", self.recipe("model: {onnx: model.onnx, classes: 4}\n" + TRAIN)])

    def test_shares_of_one_pixel_are_those_of_a_row(self):
        generator = random.Random(4)
        kernel = tensor("kernel", [4, 1, 3, 3], [generator.gauss(0, 3) for _ in range(36)])
        pooled = [node("Conv", ["pixels", "kernel"], "maps"), node("GlobalAveragePool", ["maps"], "pooled")]
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data)
        printed = []
        for name, nodes, shape in (("pixel", [node("Softmax", ["pooled"], "shares", axis=1)], ["n", 4, 1, 1]),
                                   ("moved", [node("Softmax", ["pooled"], "one", axis=1), node("Flatten", ["one"], "shares")], ["n", 4]),
                                   ("row", [node("Flatten", ["pooled"], "one"), node("Softmax", ["one"], "shares", axis=1)], ["n", 4])):
            self.write(model(pooled + nodes, [kernel], [port("pixels", ["n", 1, 8, 8])], [port("shares", shape)]))
            self.assertNotIn("twice", self.notes_of("import", "model.onnx", "--run-dir", name, *data))
            self.succeed("export", name)
            evaluated = self.succeed("eval", name).replace(name, "run")
            verified = self.succeed("verify", name)
            top1 = re.search(r"top-1 ([\d.]+) %", evaluated)[1]
            self.assertIn(f"top-1: trained {top1} %, integer {top1} %\n", verified)
            test = os.path.join(self.data, "test.safetensors")
            exported = self.succeed("predict", os.path.join(name, "export", "model.safetensors"), test)
            self.assertRegex(exported, r"(?m)^0  class [0-3]  [01]\.\d{3}$")
            printed.append((evaluated, self.succeed("predict", name, test), self.succeed("predict", name, test, "--with", "integer"), exported,
                            self.succeed("sensitivity", name, "--bits", "4").partition("\n")[2]))
        self.assertEqual(printed[0], printed[2])
        self.assertEqual(printed[1], printed[2])
        # A Softmax that cannot be left to the loss is told; in a recipe it is an error.
        frames = [node("Reshape", ["pooled", "two"], "rows"), node("Softmax", ["rows"], "one", axis=2), node("Flatten", ["one"], "shares")]
        self.write(model(pooled + frames, [kernel, tensor("two", [3], [0, 2, 2])], [port("pixels", ["n", 1, 8, 8])], [port("shares", ["n", 4])]))
        twice = "the model ends in Softmax, which the loss cross_entropy contains too: it is computed twice\n"
        self.assertIn("note: model.onnx: " + twice, self.notes_of("import", "model.onnx", "--run-dir", "frames", *data))
        layers = "[{type: Flatten}, {type: Linear, name: fc, out_features: 4}, {type: Softmax}]"
        recipe = self.recipe("model: {classes: 4, layers: " + layers + "}\n" + TRAIN)
        twice = "model.layers: the model ends in Softmax, which the loss cross_entropy contains: leave it out"
        behind = ["--set", "model.layers=" + layers.replace("Softmax}", "Softmax}, {type: Dropout, p: 0.1}, {type: Flatten}")]
        for arguments in (["validate", recipe], ["train", recipe, "--run-dir", "twice"]):
            self.fail_with(2, "recipe.yaml:", twice, arguments=arguments)
        self.fail_with(2, "--set " + twice, arguments=["validate", recipe, *behind])
        sigmoid = layers.replace("Softmax", "Sigmoid")
        others = "the model ends in Sigmoid, whose outputs the loss cross_entropy takes for logits: it computes their Softmax\n"
        for of_layers, noted in ((sigmoid, "note: model.layers: " + others), (layers.replace(", {type: Softmax}", ""), "")):
            self.assertEqual(self.notes_of("validate", recipe, "--set", "model.layers=" + of_layers), noted)
        self.write(model(pooled + [node("Flatten", ["pooled"], "one"), node("Sigmoid", ["one"], "chances")], [kernel],
                         [port("pixels", ["n", 1, 8, 8])], [port("chances", ["n", 4])]))
        self.assertIn("note: model.onnx: " + others, self.notes_of("import", "model.onnx", "--run-dir", "chances", *data))

    def test_scores_that_are_nearly_equal(self):
        """Chances of 1/2 that differ by less than a float: every form of output tells the same class or label."""
        self.write(model([node("Flatten", ["pixels"], "flat"), node("Gemm", ["flat", "weight", "bias"], "scores")],
                         [tensor("weight", [64, 4], [0.0] * 256), tensor("bias", [4], [-90.0, 0.0, 1e-9, -90.0])],
                         [port("pixels", ["n", 1, 8, 8])], [port("scores", ["n", 4])]))
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data)
        test = os.path.join(self.data, "test.safetensors")
        self.notes_of("import", "model.onnx", "--run-dir", "near", *data)
        self.assertIn("0  class 2  0.500\n", self.succeed("predict", "near", test))
        self.assertIn("\n0,2,0.5,", self.succeed("predict", "near", test, "--format", "csv"))
        self.assertEqual(json.loads(self.succeed("predict", "near", test, "--format", "json"))[0]["class"], "2")
        for split, count in (("train", 60), ("test", 12)):
            write_split(self.data, split, f32([count, 8, 8, 1], [0.5] * 64 * count), f32([count, 4], [1.0] * 4 * count))
        self.notes_of("import", "model.onnx", "--run-dir", "marks", *data, "--set", "train.loss=binary_cross_entropy")
        self.assertIn("0  2 0.500\n", self.succeed("predict", "marks", test))

    def test_without_data(self):
        self.write(squeeze_excite())
        for more in (["--recipe", "x.yaml"], ["--set", "seed=3"], ["--run-dir", "x"]):
            self.fail_with(2, "--dry-run makes no run: expected no --recipe, --set or --run-dir",
                           arguments=["import", "model.onnx", "--dry-run", *more])
        self.fail_with(2, "--output, --batch-axis and --freeze are for ONNX files", arguments=["import", "model.onnx", "--architecture", "mlp", "--output", "x"])
        for more in ([], ["--set", "data.path=x"], ["--set", "seed=3"]):
            self.fail_with(2, "error: import needs data: --set data.dataset=... or --recipe FILE (--dry-run needs none)\n",
                           arguments=["import", "model.onnx", *more])
        self.fail_with(2, "error: --set data: ", "x: ", "safetensors",
                       arguments=["import", "model.onnx", "--set", "data={dataset: safetensors, path: x}"])
        with open(self.path("r.yaml"), "w", encoding="utf-8") as file:
            file.write("# why\n\nversion: 1\nname: r\ndata: {dataset: safetensors, path: x}\nmodel: {type: mlp}\n" + TRAIN)
        self.fail_with(2, "error: r.yaml:5:36: ", arguments=["import", "model.onnx", "--recipe", "r.yaml"])

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
        # A division is computed in float: nothing divides by 0 before weights are loaded.
        divided = [node("Div", ["x", "deviation"], "normalized")] + [n.replace(b"\n\x01x", b"\n\nnormalized") for n in nodes]
        self.write(model(divided, tensors, *ports))
        self.succeed("train", recipe, "--run-dir", "divided", "--set", "data.augment=[]")
        self.assertRegex(self.succeed("verify", "divided"), r"\n0 of \d+ codes differ")
        # A failed import leaves nothing in the way of the next one.
        data = ("--set", "data.dataset=safetensors", "--set", "data.path=" + self.data, "--set", "train.loss=mse",
                "--set", "data.normalize=none")
        self.write(model(nodes[:1], tensors, ports[0], [port("a", ["n", 3, 6, 5])]))
        self.fail_with(2, "--set data.path: the loss mse needs targets of the network's outputs [60, 6, 5, 3], in the order height, "
                       "width, channels (the file's is channels, height, width), the dataset has [60, 6, 5, 2]",
                       arguments=["import", "model.onnx", *data])
        self.write(model(nodes, tensors, *ports))
        self.succeed("import", "model.onnx", *data)

    def test_sizes_that_stay_free(self):
        generator = random.Random(4)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        three = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        nodes = [node("Conv", ["x", "a.weight"], "a", **three),
                 node("MaxPool", ["a"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
                 node("Mul", ["pool", "scale"], "scaled"), node("Sub", ["scaled", "offset"], "shifted"),
                 node("GlobalAveragePool", ["shifted"], "mean"), node("Conv", ["mean", "gate.weight"], "gate"),
                 node("Sigmoid", ["gate"], "share"), node("Mul", ["shifted", "share"], "gated"),
                 node("Add", ["gated", "gate"], "raised")]

        def network(strides):
            up = node("ConvTranspose", ["raised", "up.weight"], "map", kernel_shape=[2, 2], strides=strides)
            return model([*nodes, up], tensors, [port("x", ["n", 1, "high", "wide"])], [port("map", ["n", 2, "tall", "broad"])])

        tensors = [weights("a.weight", 4, 1, 3, 3), weights("scale", 4, 1, 1), weights("offset", 1, 4, 1, 1),
                   weights("gate.weight", 4, 4, 1, 1), weights("up.weight", 4, 2, 2, 2)]
        self.write(network([2, 2]))
        listed = self.succeed("import", "model.onnx", "--dry-run", "--sample", "6,4,1")
        self.assertIn("exports leave dimension 1 of samples free: high\nexports leave dimension 2 of samples free: wide\n", listed)
        for split, count in (("train", 60), ("test", 12)):
            write_split(self.data, split, f32([count, 6, 4, 1], [generator.uniform(-1, 1) for _ in range(count * 24)]),
                        f32([count, 6, 4, 2], [generator.uniform(-1, 1) for _ in range(count * 48)]))
        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN.replace("epochs: 2", "epochs: 1, loss: mse") +
                             QUANTIZE.replace("Linear, ", "ConvTranspose2d, ") + "export: {formats: [safetensors, onnx]}\n")
        trained = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.assertRegex(trained, r"node_of_scaled +output +float +- +quantized after node_of_shifted\n")
        self.assertRegex(trained, r"node_of_shifted +output .* in float between quantizers\n")
        self.assertRegex(trained, r"node_of_raised +output .* of the sum\n")
        with open(self.path("run", "export", "model.onnx"), "rb") as file:
            exported = file.read()
        for name in (b"high", b"wide", b"tall", b"broad"):
            self.assertIn(name, exported)
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertRegex(judged, r"\nat \[12, 8, 1\]: 0 of \d+ codes differ")
        self.assertRegex(judged, r"\nat \[7, 5, 1\]: 0 of \d+ codes differ")
        if "ONNX: skipped" not in judged:
            self.assertIn(" 0 of 576 outputs differ", judged)
            self.assertRegex(judged, r"\nONNX Runtime [\d.]+ at that size: .* 0 of 2304 outputs differ")
            self.assertRegex(judged, r"\nONNX Runtime [\d.]+ at that size: .* 0 of 576 outputs differ")
        # What is trained in float is exported for all sizes, too.
        self.succeed("import", "model.onnx", "--run-dir", "float", "--recipe", recipe, "--set", "data.augment=[]")
        self.assertNotIn("fixed sizes", self.notes_of("export", "float"))
        self.assertRegex(self.succeed("verify", "float"), r"\nat \[12, 8, 1\]: ")

        # What is quantized may depend on a size where the float network does not.
        self.write(network([2, 1]))
        for split, count in (("train", 60), ("test", 12)):
            write_split(self.data, split, f32([count, 6, 4, 1], [generator.uniform(-1, 1) for _ in range(count * 24)]),
                        f32([count, 6, 3, 2], [generator.uniform(-1, 1) for _ in range(count * 36)]))
        told = self.notes_of("train", recipe, "--run-dir", "strided", "--set", "data.augment=[]")
        self.assertIn("the ONNX file has fixed sizes of its input: on them depends up/phases/", told)
        judged = self.succeed("verify", "strided")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertNotIn("\nat [", judged)

    def test_from_images_to_texts(self):
        """Attention over the columns of an image, whose queries, keys and values come from one tensor; a Softmax over the
        characters of each frame, which is the loss's."""
        generator = random.Random(4)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Conv", ["x", "stem.weight"], "stem", kernel_shape=[4, 1]),  # [N, 6, 1, 8]
                 node("Squeeze", ["stem", "two"], "flat"), node("Transpose", ["flat"], "rows", perm=[0, 2, 1]),
                 node("MatMul", ["rows", "qkv.weight"], "qkv"), node("Reshape", ["qkv", "heads"], "split"),
                 node("Transpose", ["split"], "three", perm=[2, 0, 3, 1, 4])]
        for i, name in enumerate(("query", "key", "value")):
            nodes += [node("Slice", ["three", f"at{i}", f"at{i + 1}", "at0"], name + "_slice"),
                      node("Squeeze", [name + "_slice", "at0"], name)]
        nodes += [node("Transpose", ["key"], "keys", perm=[0, 1, 3, 2]), node("MatMul", ["query", "keys"], "scores"),
                  node("Mul", ["scores", "factor"], "scaled"), node("Softmax", ["scaled"], "shares", axis=3),
                  node("MatMul", ["shares", "value"], "mixed"), node("Transpose", ["mixed"], "back", perm=[0, 2, 1, 3]),
                  node("Reshape", ["back", "joined"], "merged"), node("MatMul", ["merged", "out.weight"], "logits"),
                  node("Softmax", ["logits"], "chances", axis=2)]
        tensors = [weights("stem.weight", 6, 1, 4, 1), weights("qkv.weight", 6, 18), weights("out.weight", 6, 5),
                   tensor("two", [1], [2]), tensor("heads", [5], [0, 8, 3, 2, 3]), tensor("joined", [3], [0, 8, 6]),
                   tensor("factor", [], [0.5]), *(tensor(f"at{i}", [1], [i]) for i in range(4))]
        self.write(model(nodes, tensors, [port("x", ["n", 1, 4, 8])], [port("chances", ["n", 8, 5])]))
        for split, count in (("train", 64), ("test", 16)):
            pixels, texts = [], []
            for _ in range(count):
                columns = [generator.randrange(5) for _ in range(8)]
                pixels += [(c - 2) * 0.5 + generator.uniform(-0.1, 0.1) for _ in range(4) for c in columns]
                texts += [c for c in columns[:3] if c] + [-1] * (3 - len([c for c in columns[:3] if c]))
            write_split(self.data, split, f32([count, 4, 8, 1], pixels), i64([count, 3], texts))
        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN.replace("epochs: 2", "epochs: 1, loss: ctc") + QUANTIZE +
                             "export: {formats: [safetensors, onnx]}\n")
        plan = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        for line in plan.splitlines():
            self.assertTrue("  float " not in line or line.startswith("node_of_scaled "), line)
        self.write(b"a\nb\nc\nd\ne\nf\n", "more.txt")
        self.fail_with(2, "model.onnx: the loss ctc needs outputs of the 7 characters of the data (the blank included) in every frame, "
                       "the network has outputs [8, 5]: data.class_names can list all characters",
                       arguments=["train", recipe, "--set", "data.augment=[]", "--set", "data.class_names=more.txt", "--run-dir", "more"])
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        test = os.path.join(self.data, "test.safetensors")
        expected = self.succeed("predict", "run", test)
        self.assertEqual(self.succeed("predict", "run", test, "--with", "integer"), expected)
        if "ONNX: skipped" not in judged:
            self.assertIn("the same character in 100.00 % of the frames", judged)
            self.assertEqual(self.succeed("predict", "run", test, "--with", "onnx"), expected)
        with open(self.path("run", "export", "model.onnx"), "rb") as file:
            self.assertIn(b"chances", file.read())

    def test_from_images_to_masks(self):
        """A label for each pixel, and a Sigmoid at the end that is the loss's; the float model is exported too."""
        generator = random.Random(5)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Conv", ["x", "a.weight"], "a", kernel_shape=[2, 2], strides=[2, 2]), node("Relu", ["a"], "relu"),
                 node("ConvTranspose", ["relu", "b.weight"], "b", kernel_shape=[2, 2], strides=[2, 2]),
                 node("Resize", ["a", "", "scales"], "up", mode="nearest", coordinate_transformation_mode="asymmetric",
                      nearest_mode="floor"),
                 node("Concat", ["b", "up"], "both", axis=1), node("Conv", ["both", "c.weight"], "c", kernel_shape=[1, 1]),
                 node("Sigmoid", ["c"], "mask")]
        tensors = [weights("a.weight", 3, 1, 2, 2), weights("b.weight", 3, 2, 2, 2), weights("c.weight", 1, 5, 1, 1),
                   tensor("scales", [4], [1.0, 1.0, 2.0, 2.0])]
        self.write(model(nodes, tensors, [port("x", ["n", 1, 6, 4])], [port("mask", ["n", 1, 6, 4])]))
        for split, count in (("train", 60), ("test", 12)):
            pixels = [generator.uniform(-1, 1) for _ in range(count * 24)]
            write_split(self.data, split, f32([count, 6, 4, 1], pixels),
                        i64([count, 24], [int(pixel > 0.2) for pixel in pixels]))
        recipe = self.recipe("model: {onnx: model.onnx}\n" +
                             TRAIN.replace("epochs: 2", "epochs: 1, loss: binary_cross_entropy") +
                             QUANTIZE.replace("Linear, ", "") + "export: {formats: [safetensors, onnx]}\n")
        test = os.path.join(self.data, "test.safetensors")
        self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.succeed("import", "model.onnx", "--run-dir", "float", "--set", "data.dataset=safetensors",
                     "--set", "data.path=" + self.data, "--set", "train.loss=binary_cross_entropy",
                     "--set", "data.normalize=none")
        self.succeed("export", "float")
        for run in ("run", "float"):
            judged = self.succeed("verify", run)
            self.assertRegex(judged, r"\n0 of \d+ codes differ")
            expected = self.succeed("predict", run, test, "--format", "csv")
            chances = [[float(v) for v in line.split(",")[2:-1]] for line in expected.splitlines()[1:]]
            ways = ["integer"] + (["onnx"] if "ONNX: skipped" not in judged else [])
            for way in ways:
                said = self.succeed("predict", run, test, "--format", "csv", "--with", way)
                for row, line in zip(chances, said.splitlines()[1:]):
                    for chance, other in zip(row, line.split(",")[2:-1], strict=True):
                        self.assertAlmostEqual(chance, float(other), delta=1e-5)

    def test_from_whole_numbers_to_classes(self):
        generator = random.Random(3)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Reshape", ["tokens", "column"], "rows"), node("Equal", ["rows", "classes"], "equal"),
                 node("Cast", ["equal"], "one_hot", to=1), node("MatMul", ["one_hot", "table"], "embedded"),
                 node("ReduceMax", ["embedded"], "largest", axes=[1], keepdims=0),
                 node("MatMul", ["largest", "fc.weight"], "logits"), node("LogSoftmax", ["logits"], "scores", axis=1)]
        tensors = [tensor("column", [3], [-1, 6, 1]), tensor("classes", [9], list(range(9))), weights("table", 9, 5),
                   weights("fc.weight", 5, 3)]
        self.write(model(nodes, tensors, [port("tokens", ["n", 6], INT32)],
                         [port("largest", ["n", 5]), port("scores", ["n", 3])]))
        for split, count in (("train", 60), ("test", 12)):
            labels = [generator.randrange(3) for _ in range(count)]
            tokens = [float(3 * label + generator.randrange(3)) for label in labels for _ in range(6)]
            write_split(self.data, split, f32([count, 6], tokens), i64([count], labels))
        recipe = self.recipe("model: {onnx: model.onnx, output: scores}\n" + TRAIN + QUANTIZE.replace(", Conv2d", "") +
                             "export: {formats: [safetensors, onnx]}\n")
        none = ("--set", "data.augment=[]", "--set", "data.normalize=none")
        self.assertIn("ReduceMax <- node_of_embedded\n", self.succeed("import", "model.onnx", "--dry-run", "--output", "largest"))
        self.assertIn("output largest [5] from value 0 on\noutput scores [3] from value 5 on\n",
                      self.succeed("import", "model.onnx", "--dry-run"))
        self.fail_with(2, "no output and no value inside is called 'none'; the outputs are largest, scores",
                       arguments=["train", recipe, "--set", "model.output=none", *none])
        trained = self.succeed("train", recipe, "--run-dir", "run", *none)
        self.fail_with(2, "last.safetensors: model.output: expected scores, as the checkpoint's network has, got largest",
                       arguments=["validate", recipe, "--set", "model.onnx=run/last.safetensors", "--set", "model.output=largest", *none])
        self.fail_with(2, "these are the weights of a quantized model",  # past the output's name
                       arguments=["validate", recipe, "--set", "model.onnx=run/last.safetensors", *none])
        self.assertRegex(trained, r"node_of_embedded +- +float +- +no target matches it\n")
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        test = os.path.join(self.data, "test.safetensors")
        expected = self.succeed("predict", "run", test)
        if "ONNX: skipped" not in judged:
            self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*the same class for 100.00 %")
            self.assertEqual(self.succeed("predict", "run", test, "--with", "onnx"), expected)

        self.fail_with(2, "data.normalize: expected none: the input 'tokens' of the network is int32",
                       arguments=["train", recipe, "--run-dir", "none", "--set", "data.augment=[]"])
        write_split(self.data, "test", f32([1, 6], [0.0, 1.0, 2.0, 3.0, 4.0, 9.0]), i64([1], [0]))
        self.fail_with(2, "sample 0: node_of_embedded: [embedding] expected indices in [0, 9), got 9 at index 5\n", arguments=["eval", "run"])
        for form in ("checkpoint", "integer"):
            self.fail_with(2, "test.safetensors: sample 0: ", "expected indices in [0, 9), got 9",
                           arguments=["predict", "run", test, "--with", form, "--strict"])
        # The others have predictions, with ONNX Runtime too, which would stop at the whole batch.
        some = [[0.0, 1.0, 2.0, 3.0, 4.0, float(last)] for last in (5, 9, 6, 7, -1)]
        write_split(self.data, "test", f32([5, 6], sum(some, [])), i64([5], [0] * 5))
        for form in ("checkpoint", "integer", *(["onnx"] if "ONNX: skipped" not in judged else [])):
            predicted = self.run_program("predict", "run", test, "--with", form)
            self.assertEqual((predicted.returncode, predicted.stderr.count("2 of 5 samples have no prediction")), (1, 1), predicted.stderr)
            for i, line in enumerate(predicted.stdout.splitlines()):
                self.assertRegex(line, rf"^{i}  error: .*expected indices" if i in (1, 4) else rf"^{i}  class \d  ")
        for split, count in (("train", 60), ("test", 12)):
            write_split(self.data, split, ("U8", [count, 6], bytes(6 * count)), i64([count], [i % 3 for i in range(count)]))
        self.fail_with(2, "model.onnx: expected samples of f32, which hold them, got u8, which is divided by 255",
                       arguments=["train", recipe, "--run-dir", "none", *none])

    def test_from_one_index_to_values(self):
        """An input [N] of indices: one value of each sample chooses a row."""
        tensors = [tensor("table", [4, 3], [0.5 * i for i in range(12)]), tensor("fc.weight", [3, 2], [0.25, -1.0, 0.5, 2.0, -0.75, 1.0])]
        nodes = [node("Gather", ["table", "word"], "row"), node("MatMul", ["row", "fc.weight"], "scores")]
        self.write(model(nodes, tensors, [port("word", ["n"], INT64)], [port("scores", ["n", 2])]))
        for split, count in (("train", 40), ("test", 12)):
            write_split(self.data, split, i64([count], [i % 4 for i in range(count)]), i64([count], [i % 2 for i in range(count)]))
        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN + QUANTIZE.replace(", Conv2d", "") +
                             "export: {formats: [safetensors, onnx]}\n")
        self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]", "--set", "data.normalize=none")
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        if "ONNX: skipped" not in judged:
            self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*the same class for 100.00 %")

    def test_from_sequences_to_classes(self):
        """[N, channels, length] as the file has it; and an image without a dimension of channels."""
        generator = random.Random(7)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Conv", ["sound", "a.weight"], "a", kernel_shape=[3], pads=[1, 1]), node("Relu", ["a"], "relu"),
                 node("MaxPool", ["relu"], "largest", kernel_shape=[3], strides=[1], pads=[1, 1]),
                 node("AveragePool", ["largest"], "average", kernel_shape=[2], strides=[1], pads=[0, 1]),
                 node("Resize", ["average", "", "scales"], "longer", mode="linear"),
                 node("Conv", ["longer", "b.weight"], "b", kernel_shape=[2], strides=[2]),
                 node("ReduceMean", ["b"], "mean", axes=[2], keepdims=0), node("MatMul", ["mean", "fc.weight"], "scores")]
        tensors = [weights("a.weight", 4, 2, 3), weights("b.weight", 5, 4, 2), weights("fc.weight", 5, 3),
                   tensor("scales", [3], [1.0, 1.0, 2.0])]
        rows = [node("MatMul", ["image", "row.weight"], "row"), node("Relu", ["row"], "relu"),
                node("Flatten", ["relu"], "flat"), node("MatMul", ["flat", "fc.weight"], "scores")]
        of_rows = [weights("row.weight", 4, 4), weights("fc.weight", 24, 3)]
        cases = [("sequence", model(nodes, tensors, [port("sound", ["n", 2, 12])], [port("scores", ["n", 3])]), [2, 12]),
                 ("rows", model(rows, of_rows, [port("image", ["n", 6, 4])], [port("scores", ["n", 3])]), [6, 4, 1])]
        for name, content, shape in cases:
            self.write(content)
            for split, count in (("train", 60), ("test", 12)):
                labels = [generator.randrange(3) for _ in range(count)]
                values = [label - 1 + generator.uniform(-1, 1) for label in labels for _ in range(24)]
                write_split(self.data, split, f32([count, *shape], values), i64([count], labels))
            recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN + QUANTIZE.replace("Linear, Conv2d", "Linear") +
                                 "export: {formats: [safetensors, onnx]}\n")
            notes = self.notes_of("train", recipe, "--run-dir", name, "--set", "data.augment=[]")
            (self.assertIn if name == "sequence" else self.assertNotIn)("each of the 12 positions of sequences [2, 12]", notes)
            judged = self.succeed("verify", name)
            self.assertRegex(judged, r"\n0 of \d+ codes differ")
            with open(self.path(name, "export", "model.onnx"), "rb") as file:
                self.assertIn(port("sound", ["n", 2, 12]) if name == "sequence" else port("image", ["n", 6, 4]), file.read())
            test = os.path.join(self.data, "test.safetensors")
            expected = self.succeed("predict", name, test)
            self.assertEqual(self.succeed("predict", name, test, "--with", "integer"), expected)
            if "ONNX: skipped" not in judged:
                self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*the same class for 100.00 %")
                self.assertEqual(self.succeed("predict", name, test, "--with", "onnx"), expected)

    def test_from_several_inputs_to_classes(self):
        """Words with a mask, and an image, whose order in the file is not that of the data."""
        generator = random.Random(6)

        def weights(name, *shape):
            return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])

        nodes = [node("Conv", ["pixels", "stem.weight"], "stem", kernel_shape=[2, 2], strides=[2, 2]),
                 node("Relu", ["stem"], "relu"), node("Flatten", ["relu"], "flat"),
                 node("MatMul", ["flat", "image.weight"], "of_image"),
                 node("Gather", ["table", "ids"], "rows"), node("Cast", ["mask"], "real", to=1),
                 node("Unsqueeze", ["real", "two"], "column"), node("Mul", ["rows", "column"], "kept"),
                 node("ReduceSum", ["kept", "one"], "words", keepdims=0),
                 node("ReduceSum", ["real", "one"], "count", keepdims=1), node("Div", ["words", "count"], "mean"),
                 node("MatMul", ["mean", "words.weight"], "of_words"),
                 node("Add", ["of_words", "of_image"], "sum"), node("Relu", ["sum"], "both"),
                 node("MatMul", ["both", "fc.weight"], "scores")]
        tensors = [weights("stem.weight", 3, 2, 2, 2), weights("image.weight", 12, 8), weights("table", 9, 5),
                   tensor("two", [1], [2]), tensor("one", [1], [1]), weights("words.weight", 5, 8), weights("fc.weight", 8, 3)]
        self.write(model(nodes, tensors, [port("pixels", ["n", 2, 4, 4]), port("ids", ["n", "length"], INT32),
                                          port("mask", ["n", "length"], INT64)], [port("scores", ["n", 3])]))
        for split, count in (("train", 90), ("test", 21)):
            labels = [generator.randrange(3) for _ in range(count)]
            ids = [3 * label + generator.randrange(3) for label in labels for _ in range(6)]
            mask = [int(i < 5) for _ in labels for i in range(6)]
            pixels = [label / 2 + generator.uniform(-0.5, 0.5) for label in labels for _ in range(32)]
            write_named_split(self.data, split, {"ids": i64([count, 6], ids), "mask": i64([count, 6], mask),
                                                 "pixels": f32([count, 4, 4, 2], pixels), "targets": i64([count], labels)})
        listed = self.succeed("import", "model.onnx", "--dry-run", "--sample", "ids=6", "--sample", "mask=6")
        self.assertIn("samples pixels [4, 4, 2], ids [6], mask [6] -> [3]", listed)
        self.assertIn("mask            InputPart([6] from value 38 on) <- input\n", listed)
        recipe = self.recipe("model: {onnx: model.onnx}\n" + TRAIN + QUANTIZE + "export: {formats: [safetensors, onnx]}\n")
        settings = ("--set", "data.augment=[]", "--set", "data.normalize=none", "--set", "data.inputs=[ids, mask, pixels]")
        trained = self.succeed("train", recipe, "--run-dir", "run", *settings)
        self.assertRegex(trained, r"ids +- +float +- +InputPart has no quantized form\n")
        self.succeed("calibrate", recipe, "--run-dir", "calibrated", *settings)
        test = os.path.join(self.data, "test.safetensors")
        expected = self.succeed("predict", "run", test)
        for run in ("run", "calibrated"):
            judged = self.succeed("verify", run)
            self.assertRegex(judged, r"\n0 of \d+ codes differ")
            if "ONNX: skipped" not in judged:
                self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*the same class for 100.00 %")
        with open(self.path("run", "export", "model.onnx"), "rb") as file:
            content = file.read()
        for expected_port in (port("pixels", ["n", 2, 4, 4]), port("ids", ["n", 6], INT32), port("mask", ["n", 6], INT64)):
            self.assertIn(expected_port, content)
        exported = os.path.join("run", "export", "model.safetensors")
        for arguments in (["run", test, "--with", "integer"], [exported, test]):
            self.assertEqual(self.succeed("predict", *arguments), expected)
        if "ONNX: skipped" not in judged:
            self.assertEqual(self.succeed("predict", "run", test, "--with", "onnx"), expected)
        self.succeed("eval", "run")
        self.succeed("data", recipe, *settings)

        other = self.path("other")
        small = (*settings[:4], "--set", "data.path=" + other, "--set", "data.validation=1")
        ones = f32([2, 6], [1.0] * 12)
        for split in ("train", "test"):
            write_named_split(other, split, {"inputs": ones, "targets": i64([2], [0, 1])})
        self.fail_with(2, "the inputs are pixels, ids, mask, the data has one: data.inputs names those of the data",
                       arguments=["train", recipe, *small])
        for split in ("train", "test"):
            write_named_split(other, split, {"ids": ones, "mask": ones, "targets": i64([2], [0, 1])})
        self.fail_with(2, "the data has no input 'pixels'",
                       arguments=["train", recipe, *small, "--set", "data.inputs=[ids, mask]"])
        write_named_split(other, "flat", {"ids": ones, "mask": ones, "pixels": f32([2, 32], [0.0] * 64)})
        self.fail_with(2, "expected inputs ids [6], mask [6], pixels [4, 4, 2], got ids [6], mask [6], pixels [32]",
                       arguments=["predict", "run", os.path.join(other, "flat.safetensors")])
        self.fail_with(2, "data.augment: expected no mixup: the input 'ids' of the network is int32",
                       arguments=["train", recipe, *settings, "--set", "data.augment=[mixup]"])
        self.fail_with(2, "data.inputs: expected different names other than targets",
                       arguments=["train", recipe, *settings[:4], "--set", "data.inputs=[ids, ids]"])

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
        self.fail_with(2, "expected exactly one of 'type', 'layers', 'onnx', 'gguf' and 'huggingface'", arguments=["train", recipe])
        self.fail_with(2, "model.onnx: not an ONNX model, or truncated",
                       arguments=["import", self.write(data[:500]), "--dry-run", "--sample", "8,8,1"])

        # Two operations that are not supported, and one behind them, of which nothing is known.
        extra = [node("GridSample", ["norm"], "a"), node("Det", ["stem"], "b"), node("Sum", ["a", "b", "norm"], "gate0")]
        data = squeeze_excite(extra=extra, shifted="gate0")
        result = self.run_program("import", self.write(data), "--dry-run", "--sample", "8,8,1")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stderr.splitlines(),
                         ["node: node of a (GridSample): the operation is not supported",
                          "node: node of b (Det): the operation is not supported",
                          "error: model.onnx: 2 of its nodes cannot be imported (docs/import.md)"])

    def test_a_network_without_weights_is_refused_before_a_run(self):
        path = self.write(model([node("Relu", ["x"], "y")], [], [port("x", ["N", 6])], [port("y", ["N", 6])]))
        for split in ("train", "test"):
            write_split(self.data, split, f32([20, 6], [0.5] * 120), f32([20, 6], [0.5] * 120))
        self.assertIn("0 weights", self.succeed("import", path, "--dry-run"))
        recipe = self.recipe(f"model: {{onnx: {path}}}\n" + TRAIN.replace("epochs: 2", "epochs: 2, loss: mse"))
        self.fail_with(2, "recipe.yaml:", "model: it has no weights to train", arguments=[
            "train", recipe, "--run-dir", "run", "--set", "data.augment=[]"])
        self.assertFalse(os.path.exists(self.path("run")))
