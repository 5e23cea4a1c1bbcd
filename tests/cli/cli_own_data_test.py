"""A user's own data: image folders, tables and arrays, from training to predictions by name."""
import csv
import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import tarfile
import unittest
import zipfile

from cli_case import PROGRAM, QUANTIZE, Case, as_earlier_version, read_checkpoint
from support.data_files import png

HEAD = "version: 1\nname: own\nseed: 3\n"
CNN = """
model:
  classes: 3
  layers:
    - {type: Conv2d, name: conv, out_channels: 4, kernel_size: 3, stride: 2}
    - {type: ReLU}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 3}
"""
SGD = """
train: {epochs: 2, optimizer: {type: sgd, lr: 0.02, momentum: 0.9}, checkpoint_every_steps: 1, keep_step_checkpoints: true}
"""
IMAGES = """
data:
  dataset: images
  path: pictures
  batch_size: 8
  validation: 6
  transforms: {resize_shorter: 10, centre_crop: [8, 9]}
  augment: [random_resized_crop, rotation, trivial_augment, colour_jitter, flip, erasing, mixup, cutmix]
  augment_options: {rotation_degrees: 30, mixup_alpha: 1}
"""
TABLE = """
data:
  dataset: table
  path: flowers.csv
  batch_size: 8
  validation: 10
  test: 20
  table: {target: [kind], categories: [colour], missing: [NA, ""]}
model: {classes: 3, layers: [{type: Linear, name: fc, out_features: 3}]}
"""


def npy(dtype, shape, data):
    header = str({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + data


class OwnData(Case):
    def write(self, text, *parts):
        os.makedirs(os.path.dirname(self.path(*parts)), exist_ok=True)
        with open(self.path(*parts), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return self.path(*parts)

    def own_recipe(self, *parts):
        return self.write(HEAD + "".join(parts), "own.yaml")

    def write_images(self):
        """Red, green and blue pictures of differing sizes."""
        generator = random.Random(1)
        for split, count in (("train", 11), ("test", 4)):
            for channel, name in enumerate(("red, dark", "green", "blue")):
                for i in range(count):
                    width, height = generator.randrange(9, 30), generator.randrange(9, 30)
                    pixels = bytearray(generator.randrange(80) for _ in range(3 * width * height))
                    pixels[channel::3] = bytes(min(255, value + 90) for value in pixels[channel::3])
                    self.write(png(width, height, bytes(pixels)), "pictures", split, name, f"{i}.png")

    def write_table(self):
        generator = random.Random(2)
        rows = ["length,colour,kind"]
        for _ in range(90):
            kind = generator.randrange(3)
            length = generator.choice(["NA", ""]) if generator.randrange(9) == 0 else str(kind + generator.random())
            rows.append(f"{length},{('pale red', 'white', 'white')[kind]},{('rose', 'lily', 'iris')[kind]}")
        self.write("\n".join(rows) + "\n", "flowers.csv")

    def resumed_as(self, recipe, threads):
        """A run that was never stopped, and one that goes on from the middle of its first epoch."""
        self.train(recipe, f"whole{threads}", "--threads", threads)
        shutil.copytree(self.path(f"whole{threads}"), self.path("stopped"))
        shutil.copy(self.path("stopped", "step-2.safetensors"), self.path("stopped", "last.safetensors"))
        os.remove(self.path("stopped", "best.safetensors"))
        self.train(recipe, "stopped", "--resume", "--threads", threads)
        whole, resumed = (self.sha(run, "last.safetensors") for run in (f"whole{threads}", "stopped"))
        shutil.rmtree(self.path("stopped"))
        self.assertEqual(resumed, whole)


class OwnImages(OwnData):
    def test_from_a_folder_to_named_predictions(self):
        self.write_images()
        recipe = self.own_recipe(IMAGES, CNN, SGD, QUANTIZE)
        for threads in ("1", "2"):
            self.resumed_as(recipe, threads)
        record = json.loads(read_checkpoint(self.path("whole1", "last.safetensors"))[0]["__metadata__"]["data"])
        self.assertEqual((record["sample"], record["class_names"]), ([8, 9, 3], ["blue", "green", "red, dark"]))

        # The same folder elsewhere is the same data; another picture or class is not.
        shutil.move(self.path("pictures"), self.path("moved"))
        moved = ["--set", f"data.path={self.path('moved')}"]
        self.train(recipe, "whole1", "--resume", *moved)
        picture = self.path("moved", "train", "green", "0.png")
        with open(picture, "rb") as file:
            before = file.read()
        shutil.copy(self.path("moved", "train", "blue", "0.png"), picture)
        again = ["train", recipe, "--run-dir", "whole1", "--resume", *moved]
        self.fail_with(2, "last.safetensors", "data", arguments=[*again, "--set", "train.epochs=3"])
        with open(picture, "wb") as file:
            file.write(before)

        shutil.move(self.path("moved", "train"), self.path("pictures-train"))
        evaluated = self.succeed("eval", "whole1")
        self.assertIn("top-1", evaluated)
        self.succeed("export", "whole1")
        self.succeed("verify", "whole1")
        onnx = self.path("whole1", "export", "model.onnx")
        for old, new, key in ((b'"bilinear"', b'"bicubic" ', "transforms"), (b'"blue"', b'"blau"', "class_names")):
            if not os.path.exists(onnx):  # a build without ONNX
                break
            with open(onnx, "rb") as file:
                content = file.read()
            self.write(content.replace(old, new), onnx)
            verified = self.run_program("verify", "whole1")
            self.assertEqual(verified.returncode, 3)
            self.assertIn(f"model.onnx was exported with other data than the run's: {key} differs", verified.stdout)
            self.write(content, onnx)
        shutil.copytree(self.path("pictures-train"), self.path("moved", "train"))
        self.assertRegex(self.succeed("sensitivity", "whole1", "--bits", "4", "--samples", "6", "--batches", "1"), r"(?m)^conv ")
        shutil.rmtree(self.path("moved", "train"))

        shutil.rmtree(self.path("moved", "test", "green"))
        self.assertIn("top-1", self.succeed("eval", "whole1"))  # a class without test images keeps its number
        folder = os.path.join("moved", "test")
        text = self.succeed("predict", "whole1", folder)
        self.assertEqual(text.count("\n"), 8)
        self.assertRegex(text, r"^moved/test/blue/0\.png  (blue|green|red, dark)  [01]\.\d{3}\n")
        self.assertEqual(self.succeed("predict", "whole1", folder, "--with", "integer"), text)
        exported = os.path.join("whole1", "export", "model.safetensors")
        self.assertEqual(self.succeed("predict", exported, folder), text)  # it knows transforms and names
        one = self.succeed("predict", "whole1", os.path.join(folder, "blue", "0.png"))
        self.assertEqual(one, text.split("\n")[0] + "\n")
        table = list(csv.DictReader(io.StringIO(self.succeed("predict", "whole1", folder, "--format", "csv"))))
        objects = json.loads(self.succeed("predict", "whole1", folder, "--format", "json"))
        for line, row, entry in zip(text.splitlines(), table, objects, strict=True):
            self.assertEqual(line, f"{row['sample']}  {row['class']}  {float(row['probability']):.3f}")
            chances = {name: float(row[name]) for name in record["class_names"]}
            self.assertAlmostEqual(sum(chances.values()), 1, places=5)
            self.assertEqual((entry["sample"], entry["class"], entry["probabilities"]), (row["sample"], row["class"], chances))
        self.write("GIF89a", "x.gif")
        self.write(b"\x89PNG\r\n\x1a\n", "cut.png")
        for name, fragment in (("x.gif", "GIF image"), ("cut.png", "cut.png: damaged PNG image"), ("own.yaml", "own.yaml")):
            self.fail_with(2, fragment, arguments=["predict", "whole1", name, "--strict"])

    def test_tar_archives_resume_in_the_middle_of_an_epoch(self):
        self.write_images()
        os.makedirs(self.path("shards"))
        for split, archives in (("train", 3), ("test", 1)):
            folder = self.path("pictures", split)
            files = sorted(os.path.join(name, file) for name in os.listdir(folder) for file in os.listdir(os.path.join(folder, name)))
            for i in range(archives):
                with tarfile.open(self.path("shards", f"{split}-{i}.tar"), "w") as archive:
                    for number, file in enumerate(files[i::archives]):
                        archive.add(os.path.join(folder, file), f"{number}.png")
                        label = tarfile.TarInfo(f"{number}.cls")
                        name = os.path.dirname(file).encode()
                        label.size = len(name)
                        archive.addfile(label, io.BytesIO(name))
        recipe = self.own_recipe(IMAGES.replace("dataset: images", "dataset: shards").replace("path: pictures", "path: shards"), CNN, SGD)
        for threads in ("1", "2"):
            self.resumed_as(recipe, threads)
        record = json.loads(read_checkpoint(self.path("whole2", "last.safetensors"))[0]["__metadata__"]["data"])
        self.assertEqual(record["class_names"], ["blue", "green", "red, dark"])

    def test_names_in_the_order_of_a_file(self):
        self.write_images()
        self.write("green\nunseen\nred, dark\nblue\n", "names.txt")
        data = IMAGES.replace("path: pictures", "path: pictures\n  class_names: names.txt")
        recipe = self.own_recipe(data, CNN.replace("classes: 3", "classes: 4").replace("out_features: 3", "out_features: 4"), SGD)
        self.train(recipe, "named")
        record = json.loads(read_checkpoint(self.path("named", "last.safetensors"))[0]["__metadata__"]["data"])
        self.assertEqual(record["class_names"], ["green", "unseen", "red, dark", "blue"])
        os.remove(self.path("names.txt"))
        row = next(csv.DictReader(io.StringIO(self.succeed("predict", "named", "pictures/test/blue", "--format", "csv"))))
        self.assertEqual(list(row)[-5:], [*record["class_names"], "error"])
        self.assertIn("top-1", self.succeed("eval", "named"))
        self.assertNotIn("missing", self.succeed("report", "named"))
        self.succeed("train", recipe, "--run-dir", "named", "--resume", "--set", "train.epochs=3")
        self.fail_with(2, "own.yaml:8:16: names.txt: cannot open", arguments=["validate", recipe])
        self.write("green\nblue\n", "names.txt")
        self.fail_with(2, "names.txt has no class 'red, dark'", arguments=["validate", recipe])
        self.write("green\nblue\nunseen\nred, dark\n", "names.txt")
        self.fail_with(2, "its class 1 is 'unseen', the dataset's is 'blue'",
                       arguments=["train", recipe, "--run-dir", "named", "--resume", "--set", "train.epochs=4"])

    def test_what_a_recipe_may_say(self):
        self.write_images()
        for old, new, message in (
                ("resize_shorter: 10, centre_crop: [8, 9]", "grey: true", "expected samples as in the training set"),
                ("resize_shorter: 10", "resize_shorter: 8", "own.yaml:10:48: expected a crop of at most the 8 pixels"),
                ("resize_shorter: 10", "resize_shorter: 10, resize: 9", "expected resize or resize_shorter, got both"),
                ("centre_crop: [8, 9]", "centre_crop: 8, random_area: [1, 0.5]", "random_area: expected the least first"),
                ("path: pictures", "path: pictures/train", "data.test says how many samples are the test set"),
                ("rotation_degrees: 30", "erasing_area: [0.5, 0.1]", "erasing_area: expected the least first"),
                ("dataset: images", "dataset: arrays", "expected train.npz")):
            self.fail_with(2, message, arguments=["validate", self.own_recipe(IMAGES.replace(old, new), CNN, SGD)])
        copy = self.path("pictures", "test", "blue", "copy.png")
        shutil.copy(self.path("pictures", "train", "green", "1.png"), copy)
        recipe = self.own_recipe(IMAGES, CNN, SGD)
        noted = self.run_program("validate", recipe, "--set", "data.table={target: [x]}")
        self.assertIn("note: data.table has no effect: the dataset is no table\n", noted.stderr)
        noted = self.run_program("validate", recipe, "--set", "data.augment=[]", "--set", "data.transforms.random_area=[0.5, 1]",
                                 "--set", "data.transforms.random_ratio=[0.5, 2]")
        for key in ("area", "ratio"):
            self.assertIn(f"note: data.transforms.random_{key} has no effect: data.augment has no random_resized_crop\n", noted.stderr)
        self.fail_with(2, "error: --set data.test: the dataset has a test set of its own",
                       arguments=["validate", recipe, "--set", "data.test=3"])
        self.fail_with(2, "error: --sheet: expected a name that ends in .png, got 'sheet.jpg'",
                       arguments=["data", recipe, "--sheet", "sheet.jpg"])
        refused = self.fail_with(2, "error: --sheet: there is no folder no", arguments=["data", recipe, "--sheet", "no/sheet.png"])
        self.assertEqual(refused.stdout, "")
        text = self.succeed("data", recipe, "--sheet", "sheet.png")
        self.assertIn("train: 33 samples u8 [8, 9, 3], 6 of them for validation\ntest:  13 samples", text)
        self.assertRegex(text, r"\nimages before transforms: \d+ to \d\d pixels high, \d+ to \d\d wide\nmean: 0\.\d+, ")
        self.assertRegex(text, r"\nblue +11 +5\ngreen +11 +4\nred, dark +11 +4\ntest samples that are training samples too: 1\n"
                               rf"  \S+test/blue/copy\.png is \S+train/green/1\.png\n")
        with open(self.path("sheet.png"), "rb") as file:
            raw = file.read()
        self.assertEqual(struct.unpack(">8s8x2I", raw[:24]), (b"\x89PNG\r\n\x1a\n", 8 * 67 + 4, 9 * 60 + 4))
        with open(copy, "r+b") as file:  # a test image is read, too
            file.truncate(60)
        result = self.fail_with(1, "failed: 1 sample cannot be read, as listed above\n", arguments=["data", recipe])
        self.assertIn("test/blue/copy.png: damaged PNG image", result.stdout)
        other = shutil.copy(copy, self.path("pictures", "train", "green", "copy.png"))
        result = self.fail_with(1, "failed: 2 samples cannot be read, as listed above\n", arguments=["data", recipe])
        self.assertRegex(result.stdout, r"/train/green/copy\.png: damaged PNG image: .*\n  \S+/test/blue/copy\.png: damaged PNG image: ")
        os.remove(other)
        os.remove(copy)
        self.write("", "pictures", "train", "green", "notes.txt")
        self.assertIn("left out a file that is no image by its name: green/notes.txt",
                      self.notes_of("validate", self.own_recipe(IMAGES, CNN, SGD)))


class Tasks(OwnData):
    """Losses beside plain cross-entropy, from training to metrics and predictions."""

    def evaluated(self, run):
        return json.loads(self.succeed("eval", run, "--format", "json"))

    def test_classes_with_weights(self):
        self.write_images()
        for i in range(6):  # one class is rarer
            os.remove(self.path("pictures", "train", "green", f"{i}.png"))
        body = SGD.replace("{epochs: 2", "{class_weights: balanced, best: f1, label_smoothing: 0.1, epochs: 2")
        recipe = self.own_recipe(IMAGES.replace("validation: 6", "validation: 3"), CNN, body)
        self.resumed_as(recipe, "2")
        # The same weights by their numbers: 24 samples; what the validation samples leave counts.
        self.train(recipe, "given", "--set", "data.validation=0", "--set", "train.class_weights=[0.8181818181818182, 1.8, 0.8181818181818182]")
        self.train(recipe, "counted", "--set", "data.validation=0")
        same = [read_checkpoint(self.path(run, "last.safetensors"))[1] for run in ("given", "counted")]
        self.assertEqual(same[0], same[1])
        # Shards add up to the batch: the mean is over the weights of all its labels.
        losses = []
        for shards in ("1", "2"):
            self.train(recipe, f"shards{shards}", "--set", f"train.shards={shards}", "--set", "train.epochs=1", "--set", "data.augment=[]")
            losses.append(next(line for line in self.metrics(f"shards{shards}") if line["type"] == "epoch")["train_loss"])
        self.assertAlmostEqual(losses[0], losses[1], places=5)
        found = self.evaluated("whole2")
        self.assertEqual([entry["name"] for entry in found["classes"]], ["blue", "green", "red, dark"])
        self.assertEqual([sum(row) for row in found["confusion"]], [4, 4, 4])
        self.assertAlmostEqual(found["top1"], 100 * sum(found["confusion"][i][i] for i in range(3)) / 12)
        self.assertAlmostEqual(found["f1"], sum(entry["f1"] for entry in found["classes"]) / 3)
        self.assertIn(f"top-1 {found['top1']:.2f} %, precision ", self.succeed("eval", "whole2"))
        final = self.summary("whole2")["final"]
        self.assertEqual(final["f1"], found["f1"])
        for change, message in ((["train.class_weights=[1, 2]"], "train.class_weights: expected one for each of the 3 classes, got 2"),
                                (["train.class_weights=[1, 0, 1]"], "expected a number above 0"),
                                (["train.loss=mse", "train.best=loss"], "label_smoothing needs the loss cross_entropy"),
                                (["train.best=cer"], "error: --set train.best: expected a metric of the loss cross_entropy, got cer")):
            more = [part for value in change for part in ("--set", value)]
            self.fail_with(2, message, arguments=["validate", recipe, *more])

    def test_several_labels(self):
        """Pictures with any of three colours, listed in tables."""
        generator = random.Random(3)
        names = ("red", "green", "blue")
        for split, count in (("train", 40), ("test", 9)):
            rows = ["path,label"]
            for i in range(count):
                chosen = [c for c in range(3) if generator.randrange(2)]
                pixels = bytearray(generator.randrange(40) for _ in range(3 * 90))
                for c in chosen:
                    pixels[c::3] = bytes(value + 200 for value in pixels[c::3])
                self.write(png(9, 10, bytes(pixels)), "colours", f"{split}{i}.png")
                rows.append(f"{split}{i}.png,{' '.join(names[c] for c in chosen)}")
            self.write("\n".join(rows) + "\n", "colours", f"{split}.csv")
        recipe = self.own_recipe("data: {dataset: images, path: colours, batch_size: 8, validation: 8, label_separator: ' '}\n", CNN,
                                 SGD.replace("{epochs: 2", "{loss: binary_cross_entropy, positive_weights: balanced, best: map, epochs: 12"), QUANTIZE)
        output = self.train(recipe, "several", "--threads", "1")
        self.assertRegex(output, r"validation loss \d\.\d{4}  mean average precision \d+\.\d\d %")
        found = self.evaluated("several")
        self.assertEqual([entry["name"] for entry in found["classes"]], ["blue", "green", "red"])
        self.assertGreater(found["map"], 90)
        self.assertAlmostEqual(found["map"], sum(entry["average_precision"] for entry in found["classes"]) / 3)
        self.assertNotIn("confusion", found)
        self.succeed("export", "several")
        self.assertNotIn("top-1", self.succeed("verify", "several"))
        test = os.path.join("colours", "test0.png")
        text = self.succeed("predict", "several", test)
        self.assertRegex(text, r"^colours/test0\.png  (-|(blue|green|red) [01]\.\d{3}.*)\n$")
        self.assertEqual(self.succeed("predict", "several", test, "--with", "integer"), text)
        self.assertEqual(self.succeed("predict", os.path.join("several", "export", "model.safetensors"), test), text)
        entry = json.loads(self.succeed("predict", "several", test, "--format", "json"))[0]
        self.assertEqual(entry["labels"], [name for name, chance in entry["probabilities"].items() if chance > 0.5])
        row = next(csv.DictReader(io.StringIO(self.succeed("predict", "several", test, "--format", "csv"))))
        self.assertEqual(row["labels"], "|".join(entry["labels"]))
        self.assertEqual(float(row["red"]), entry["probabilities"]["red"])
        self.fail_with(2, "positive_weights needs the loss binary_cross_entropy",
                       arguments=["validate", recipe, "--set", "train.loss=cross_entropy", "--set", "train.best=loss"])

    def test_texts(self):
        """Digits drawn as bars, read from left to right."""
        generator = random.Random(5)
        for split, count in (("train", 64), ("test", 12)):
            rows = ["path,label"]
            for i in range(count):
                text = "".join(generator.choice("abc") for _ in range(generator.randrange(1, 4)))
                pixels = bytearray(3 * 8 * 24)
                for place, letter in enumerate(text):
                    for y in range(8):
                        for x in range(8 * place + 2, 8 * place + 7):
                            pixels[3 * (24 * y + x) + "abc".index(letter)] = 250
                self.write(png(24, 8, bytes(pixels)), "bars", f"{split}{i}.png")
                rows.append(f"{split}{i}.png,{text}")
            self.write("\n".join(rows) + "\n", "bars", f"{split}.csv")
        model = ("model: {classes: 48, layers: [{type: Conv2d, name: a, out_channels: 8, kernel_size: [8, 4], stride: [1, 2], padding: [0, 1]},"
                 " {type: ReLU}, {type: Conv2d, name: b, out_channels: 4, kernel_size: [1, 3], padding: [0, 1]}, {type: Flatten}]}\n")
        data = "data: {dataset: images, path: bars, batch_size: 8, validation: 0}\n"
        train = "train: {loss: ctc, epochs: 40, optimizer: {type: adamw, lr: 0.02}, zero_infinity: true}\n"
        recipe = self.own_recipe(data, model, train)
        self.train(recipe, "read")
        self.succeed("sensitivity", "read", "--bits", "4")
        found = self.evaluated("read")
        self.assertLess(found["cer"], 10)
        rows = list(csv.DictReader(io.StringIO(self.succeed("predict", "read", "bars/test0.png", "--format", "csv"))))
        entry = json.loads(self.succeed("predict", "read", "bars/test0.png", "--format", "json"))[0]
        self.assertEqual(rows[0]["text"], entry["text"])
        self.assertEqual(self.succeed("predict", "read", "bars/test0.png"), f"bars/test0.png  {entry['text']}\n")
        self.succeed("export", "read")
        exported = os.path.join("read", "export", "model.safetensors")
        self.assertEqual(self.succeed("predict", exported, "bars/test0.png"), f"bars/test0.png  {entry['text']}\n")
        self.fail_with(2, "the loss ctc needs model.classes, a multiple of the 4 characters",
                       arguments=["validate", recipe, "--set", "model.classes=47"])


class OwnTables(OwnData):
    def test_from_a_table_to_named_predictions(self):
        self.write_table()
        recipe = self.own_recipe(TABLE, SGD, QUANTIZE.replace(", Conv2d", ""))
        for threads in ("1", "2"):
            self.resumed_as(recipe, threads)
        wrong = self.write(HEAD + TABLE.replace("[kind]", "[kid]") + SGD, "wrong.yaml")
        self.fail_with(2, "wrong.yaml:11:19: ", "flowers.csv:1: no column 'kid', which data.table.target names", arguments=["validate", wrong])
        record = json.loads(read_checkpoint(self.path("whole1", "last.safetensors"))[0]["__metadata__"]["data"])
        self.assertEqual(record["class_names"], ["iris", "lily", "rose"])
        self.assertEqual([column["name"] for column in record["columns"]], ["length", "colour"])
        self.assertEqual(record["columns"][1]["categories"], ["pale red", "white"])
        self.assertIn("top-1", self.succeed("eval", "whole1"))
        # Without the training data: columns by name, a target or none.
        os.remove(self.path("flowers.csv"))
        self.write("colour,length\nwhite,1.5\npale red,NA\n", "new.csv")
        text = self.succeed("predict", "whole1", "new.csv")
        self.assertRegex(text, r"^new\.csv:2  (iris|lily|rose)  [01]\.\d{3}\nnew\.csv:3  ")
        self.succeed("export", "whole1")
        exported = os.path.join("whole1", "export", "model.safetensors")
        self.assertEqual(self.succeed("predict", exported, "new.csv"), self.succeed("predict", "whole1", "new.csv", "--with", "integer"))
        shutil.copy(self.path("new.csv"), self.path("new.txt"))
        self.assertEqual(self.succeed("predict", "whole1", "new.txt"), text.replace("new.csv", "new.txt"))
        self.write_table()
        as_earlier_version(self.path(exported), keys=(), preprocessing=("table",))
        self.assertRegex(self.succeed("verify", "whole1"), r"0 of \d+ codes differ")
        self.write("rose\niris\nlily\n", "names.txt")
        two = ["--set", "data.class_names=names.txt", "--set", "data.table.categories=[kind]", "--set", "model.classes=1",
               "--set", "model.layers=[{type: Linear, name: fc, out_features: 1}]", "--set", "train.loss=mse",
               "--set", "data.table.target=[length]", "--set", "data.table.regression=true", "--set", "data.table.ignore=[colour]"]
        self.write("length,kind,colour\n" + "".join(f"{i},{'abc'[i % 3]},x\n" for i in range(60)), "flowers.csv")
        self.fail_with(2, "--set data.class_names: names.txt: the targets are numbers, expected no data.class_names", arguments=["validate", recipe, *two])
        several = ["--set", "train.loss=binary_cross_entropy", "--set", "data.table.target=[length, kind]", "--set", "data.table.categories=[]",
                   "--set", "data.table.ignore=[colour]", "--set", "data.class_names=names.txt", "--set", "model.classes=2"]
        self.write("x,length,kind,colour\n" + "".join(f"{i},{i % 2},{i // 2 % 2},x\n" for i in range(60)), "flowers.csv")
        self.fail_with(2, "--set data.class_names: names.txt: expected no data.class_names", arguments=["validate", recipe, *several])
        for old, new, fragment in (("pale red", "green", "bad.csv:3: column 'colour': the training set has no category 'green'"),
                                   ("colour", "color", "no column 'colour', which the training set names"),
                                   ("1.5", "much", "bad.csv:2: column 'length': expected a finite number, got 'much'")):
            self.write("colour,length\nwhite,1.5\npale red,NA\n".replace(old, new), "bad.csv")
            self.fail_with(2, fragment, arguments=["predict", "whole1", "bad.csv", "--strict"])

    def test_a_model_that_gives_every_sample_one_class_is_told(self):
        generator = random.Random(7)
        rows = [f"{generator.gauss(0, 1):.3f},{'b' if i % 10 == 0 else 'a'}" for i in range(300)]
        self.write("\n".join(["x,kind", *rows]) + "\n", "noise.csv")
        self.write("version: 1\nname: r\ndata: {dataset: table, path: noise.csv, table: {target: [kind]}, test: 100, stratified: true, "
                   "validation: 20, batch_size: 20}\nmodel: {type: mlp, hidden: [4]}\n"
                   "train: {epochs: 3, optimizer: {type: sgd, lr: 0.05}}\n", "noise.yaml")
        said = self.run_program("train", "noise.yaml", "--run-dir", "noise").stderr
        self.assertIn("note: the test accuracy, 90.00 %, is that of a model that gives every sample the most frequent class, and so is "
                      "the recall: more epochs or train.class_weights may help\n", said)

    def test_weights_that_may_have_seen_the_test_set_are_told(self):
        self.write_table()
        recipe = self.own_recipe(TABLE, SGD)
        self.train(recipe, "float")
        more = ["--set", "init.checkpoint=float/last.safetensors", "--set", "train.epochs=1"]
        said = "init.checkpoint was trained on other samples, or with others set aside"
        self.assertNotIn(said, self.notes_of("train", recipe, "--run-dir", "same", *more))
        self.write(self.read("flowers.csv") + "NA,white,lily\n", "flowers.csv")
        self.assertIn(said, self.notes_of("train", recipe, "--run-dir", "other", *more))

    def test_a_test_set_of_other_rows_is_refused(self):
        """Which rows are set aside depends on how many there are."""
        self.write_table()
        recipe = self.own_recipe(TABLE, SGD)
        self.train(recipe, "own")
        self.train(recipe, "again", "--set", "seed=4")
        rows = self.read("flowers.csv")
        self.write(rows + "NA,white,lily\n", "flowers.csv")
        self.succeed("export", "own")
        by_path = ["--checkpoint", self.path("own", "last.safetensors")]
        for arguments in (["eval", "own"], ["verify", "own"], ["sensitivity", "own"], ["eval", "own", *by_path]):
            self.fail_with(2, "last.safetensors: the training data is not what the run was trained on: data.test sets other samples aside",
                           arguments=arguments)
        self.fail_with(2, "data.test sets other samples aside", "restore the data",
                       arguments=["train", recipe, "--run-dir", "own", "--resume", "--other-data", "--set", "train.epochs=3"])
        elsewhere = self.run_program("eval", "own", "--checkpoint", self.path("again", "last.safetensors"))
        self.assertEqual(elsewhere.returncode, 0, elsewhere.stderr)
        self.assertIn("data.test sets other samples aside", elsewhere.stderr)
        self.write(rows, "flowers.csv")
        self.assertNotIn("data.test", self.notes_of("eval", "own"))

    def test_weights_of_other_columns(self):
        """The weights of a feature belong to its column, also where the numbers of features are equal."""
        def table(*columns):
            rows = [{"a": i, "b": i * i, "c": "xyz"[i % 3], "z": -i, "kind": "pq"[i % 2]} for i in range(40)]
            lines = [",".join(columns)] + [",".join(str(row[column]) for column in columns) for row in rows]
            self.write("\n".join(lines) + "\n", "own.csv")

        table("a", "b", "c", "kind")
        recipe = self.own_recipe(
            "data: {dataset: table, path: own.csv, batch_size: 10, validation: 0, test: 9, table: {target: [kind], categories: [c]}}\n"
            "model: {classes: 2, layers: [{type: Linear, name: fc, out_features: 4}, {type: Linear, name: last, out_features: 2}]}\n", SGD)
        self.train(recipe, "first")
        given = {"init.checkpoint": ["--set", "init.checkpoint=first/last.safetensors"],
                 "train.distill.checkpoint": ["--set", "train.distill={checkpoint: first/last.safetensors}"]}
        same = self.run_program("validate", recipe, *given["init.checkpoint"])
        self.assertEqual((same.returncode, same.stderr), (0, ""))
        table("b", "a", "c", "kind")
        for key, sets in given.items():
            self.fail_with(2, key + ": first/last.safetensors has the columns in another order or with other categories; "
                           "its column 0 is 'a', the dataset's is 'b'", arguments=["validate", recipe, *sets])
        skipped = self.run_program("validate", recipe, *given["init.checkpoint"], "--set", "init.skip=[fc]")
        self.assertEqual(skipped.returncode, 0, skipped.stderr)
        self.assertIn("note: init.checkpoint was trained on other columns; its column 0 is 'a', the dataset's is 'b'", skipped.stderr)
        table("a", "z", "c", "kind")
        renamed = self.run_program("validate", recipe, *given["init.checkpoint"])
        self.assertEqual(renamed.returncode, 0, renamed.stderr)
        self.assertIn("note: init.checkpoint was trained on other columns; its column 1 is 'b', the dataset's is 'z'", renamed.stderr)
        table("a", "b", "c", "kind")
        self.write(self.read("own.csv").replace("z", "w"), "own.csv")
        self.fail_with(2, "categories or missing values of its columns differ", arguments=["validate", recipe, *given["init.checkpoint"]])

    def test_the_default_validation_set_is_a_tenth(self):
        self.write("x,y\n" + "".join(f"{i % 50},{i % 25}\n" for i in range(307)), "line.csv")
        recipe = self.own_recipe(
            "data: {dataset: table, path: line.csv, test: 100, table: {target: [y], regression: true}}\n"
            "model: {classes: 1, layers: [{type: Linear, out_features: 1}]}\n", SGD.replace("{epochs: 2", "{loss: mse, epochs: 2"))
        self.assertIn("train: 207 samples f32 [1], 20 of them for validation\n", self.run_program("data", recipe).stdout)
        trained = self.run_program("train", recipe)
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertIn("207 samples, too few", self.run_program("data", recipe, "--set", "data.validation=207").stdout.replace(" f32 [1]", ""))

    def test_regression(self):
        self.write("x,y\n" + "".join(f"{i / 50},{i / 25}\n" for i in range(100)), "line.csv")
        recipe = self.own_recipe(
            "data: {dataset: table, path: line.csv, batch_size: 10, validation: 0, test: 20, table: {target: [y], regression: true}}\n"
            "model: {classes: 1, layers: [{type: Linear, name: fc, out_features: 1}]}\n",
            SGD.replace("{epochs: 2", "{loss: mse, epochs: 20"))
        unused = ("data.transforms={resize: 5}", "data.label_separator=;", "data.crop_padding=3", "data.augment_options.hue=0.2",
                  "data.augment_options.erasing_area=[0.1, 0.2]", "data.augment_options.mixup_alpha=0.5",
                  "train.optimizer.decay_bias_and_norm=true", "train.lr_schedule.warmup_epochs=0.1", "train.lr_schedule.every_epochs=20", "train.best=r2", "quantize.ranges=delayed",
                  "weights.averaging_constant=0.5")
        needed = ("train.lr_schedule.type=step", "quantize.groups=[{targets: [Linear], weights: {observer: mse, averaging_constant: 0.5}}]")
        noted = self.run_program("validate", recipe, *(word for key in (*needed, *unused[:-1]) for word in ("--set", key)))
        self.assertEqual(noted.returncode, 0, noted.stderr)
        self.assertEqual(re.findall(r"note: (\S+) has no effect: ", noted.stderr), [key.split("=")[0] for key in unused])
        self.train(recipe, "line")
        self.write("x\n0.5\n1.5\n", "new.csv")
        rows = list(csv.DictReader(io.StringIO(self.succeed("predict", "line", "new.csv", "--format", "csv"))))
        for row, expected in zip(rows, (1, 3), strict=True):
            self.assertAlmostEqual(float(row["y"]), expected, delta=0.2)
        self.assertEqual(self.succeed("predict", "line", "new.csv"), "".join(f"{row['sample']}  y {row['y']}\n" for row in rows))
        outputs = [{"sample": row["sample"], "outputs": {"y": float(row["y"])}} for row in rows]
        self.assertEqual(json.loads(self.succeed("predict", "line", "new.csv", "--format", "json")), outputs)
        self.succeed("export", "line", "--format", "safetensors", "--out", "out")
        exported = self.succeed("predict", "out/model.safetensors", "new.csv", "--format", "csv")
        self.assertTrue(exported.startswith("sample,y,error\nnew.csv:2,"), exported)
        self.assertGreater(json.loads(self.succeed("eval", "line", "--format", "json"))["r2"], 0.95)
        self.assertRegex(self.succeed("eval", "line"), r"loss \d+\.\d{4}, R2 \d\.\d{4}, RMSE \d+\.\d+\n")

        # The exported file says that its outputs are values, and which columns it was trained on.
        self.succeed("export", "line", "--format", "onnx", "--out", "out")
        data = [word for key in ("dataset=table", "path=line.csv", "validation=0", "test=20", "table={target: [y], regression: true}")
                for word in ("--set", "data." + key)]
        imported = self.run_program("import", "out/model.onnx", "--run-dir", "again", *data)
        self.assertEqual(imported.returncode, 0, imported.stderr)
        self.assertIn("train.loss is that of out/model.onnx: mse\n", imported.stderr)
        self.assertNotIn("other data", imported.stderr)
        # What undoes the normalization of targets is part of a layer there, which rounds once more; the losses have other units.
        said, read_again = (json.loads(self.succeed("predict", run, "new.csv", "--format", "json")) for run in ("line", "again"))
        for a, b in zip(said, read_again, strict=True):
            self.assertAlmostEqual(a["outputs"]["y"], b["outputs"]["y"], places=5)
        said, read_again = (json.loads(self.succeed("eval", run, "--format", "json")) for run in ("line", "again"))
        for key in ("r2", "rmse"):
            self.assertAlmostEqual(said[key], read_again[key], places=4)
        self.fail_with(2, "'target': the outputs are values, the loss binary_cross_entropy is of ",
                       arguments=["import", "out/model.onnx", "--run-dir", "none", *data, "--set", "train.loss=binary_cross_entropy",
                                  "--set", "data.table={target: [y]}"])
        self.write("z,y\n" + "".join(f"{i / 50},{i / 25}\n" for i in range(100)), "line.csv")
        imported = self.run_program("import", "out/model.onnx", "--run-dir", "other", *data)
        self.assertIn("note: model.onnx was trained on other columns; its column 0 is 'x', the dataset's is 'z'", imported.stderr)

    def test_an_export_takes_no_columns_in_another_order(self):
        recipe = self.own_recipe(
            "data: {dataset: table, path: ab.csv, validation: 0, test: 20, table: {target: [y], regression: true}}\n"
            "model: {classes: 1, layers: [{type: Linear, name: fc, out_features: 1}]}\n", SGD.replace("{epochs: 2", "{loss: mse, epochs: 1"))
        self.write("a,b,y\n" + "".join(f"{i / 50},{i % 7},{i / 25}\n" for i in range(100)), "ab.csv")
        self.train(recipe, "ab")
        self.succeed("export", "ab", "--format", "onnx", "--out", "out")
        self.write("b,a,y\n" + "".join(f"{i % 7},{i / 50},{i / 25}\n" for i in range(100)), "ba.csv")
        data = [word for key in ("dataset=table", "path=ba.csv", "validation=0", "test=20", "table={target: [y], regression: true}")
                for word in ("--set", "data." + key)]
        self.fail_with(2, "model.onnx: out/model.onnx has the columns in another order or with other categories; its column 0 is 'a', the "
                       "dataset's is 'b'", arguments=["import", "out/model.onnx", "--run-dir", "swapped", *data])


class OwnArrays(OwnData):
    def test_from_arrays(self):
        generator = random.Random(4)
        with zipfile.ZipFile(self.path("digits.npz"), "w") as archive:
            for part, count in (("train", 60), ("test", 20)):
                labels = bytes(generator.randrange(3) for _ in range(count))
                pixels = bytes(min(255, 80 * label + generator.randrange(60)) for label in labels for _ in range(90))
                archive.writestr(f"x_{part}.npy", npy("|u1", (count, 9, 10), pixels))
                archive.writestr(f"y_{part}.npy", npy("|u1", (count,), labels))
        recipe = self.own_recipe("data: {dataset: arrays, path: digits.npz, batch_size: 8, validation: 10,"
                                 " transforms: {resize: [8, 8], interpolation: bicubic}}\n", CNN, SGD)
        for threads in ("1", "2"):
            self.resumed_as(recipe, threads)
        text = self.succeed("predict", "whole2", "digits.npz")
        self.assertEqual(text.count("\n"), 20)
        self.assertRegex(text, r"^0  class [0-2]  [01]\.\d{3}\n")

    def test_labels_that_the_test_set_lacks(self):
        """Whole numbers as labels: neither the test set nor the training set need have all of them."""
        generator = random.Random(4)
        for part, count, classes in (("train", 40, 4), ("test", 9, 3)):
            labels = bytes(i % classes for i in range(count))
            pixels = bytes(min(255, 60 * label + generator.randrange(60)) for label in labels for _ in range(90))
            self.write(npy("|u1", (count, 9, 10), pixels), "numbers", f"{part}_inputs.npy")
            self.write(npy("|u1", (count,), labels), "numbers", f"{part}_targets.npy")

        def recipe(classes):
            return self.own_recipe("data: {dataset: arrays, path: numbers, batch_size: 8, validation: 10}\n",
                                   CNN.replace("classes: 3", f"classes: {classes}").replace("out_features: 3", f"out_features: {classes}"),
                                   SGD.replace("{epochs: 2", "{loss: binary_cross_entropy, epochs: 1"))

        self.train(recipe(4), "four")
        def classes(run):
            return [entry["name"] for entry in json.loads(self.succeed("eval", run, "--format", "json"))["classes"]]

        self.assertEqual(len(classes("four")), 4)
        self.write("".join(f"name{i}\n" for i in range(5)), "names.txt")
        self.train(recipe(5), "five", "--set", "data.class_names=names.txt")
        self.assertEqual(classes("five"), [f"name{i}" for i in range(5)])

    def test_channels_first_are_noted(self):
        for shape, first in (((3, 9, 9), True), ((1, 9, 9), True), ((1, 64, 9), False), ((9, 9, 3), False)):
            with zipfile.ZipFile(self.path("images.npz"), "w") as archive:
                for part in ("train", "test"):
                    size = shape[0] * shape[1] * shape[2]
                    archive.writestr(f"x_{part}.npy", npy("|u1", (4, *shape), bytes(i % 251 for i in range(4 * size))))
                    archive.writestr(f"y_{part}.npy", npy("|u1", (4,), bytes((0, 1, 0, 1))))
            recipe = self.own_recipe("data: {dataset: arrays, path: images.npz, batch_size: 4, validation: 0}\n",
                                     "model: {layers: [{type: Flatten}, {type: Linear, out_features: 2}]}\n", SGD)
            for command in ("validate", "data"):
                result = self.run_program(command, recipe)
                self.assertEqual(result.returncode, 0, result.stderr)
                note = f"note: samples [{', '.join(map(str, shape))}] are read as [height, width, channels], with {shape[2]} channels;"
                self.assertEqual(note in result.stderr, first, result.stderr)

    def test_sequences_with_channels_first_are_noted(self):
        for shape, first in (((3, 100), True), ((3, 40), False), ((100, 3), False), ((20, 400), False)):
            with zipfile.ZipFile(self.path("sequences.npz"), "w") as archive:
                for part in ("train", "test"):
                    values = [float(i % 251) for i in range(4 * shape[0] * shape[1])]
                    archive.writestr(f"x_{part}.npy", npy("<f4", (4, *shape), struct.pack(f"<{len(values)}f", *values)))
                    archive.writestr(f"y_{part}.npy", npy("|u1", (4,), bytes((0, 1, 0, 1))))
            recipe = self.own_recipe("data: {dataset: arrays, path: sequences.npz, batch_size: 4, validation: 0}\n",
                                     "model: {layers: [{type: Conv1d, out_channels: 2, kernel_size: 1}, {type: Flatten},"
                                     " {type: Linear, out_features: 2}]}\n", SGD)
            for command in ("validate", "data"):
                result = self.run_program(command, recipe)
                self.assertEqual(result.returncode, 0, result.stderr)
                note = (f"note: samples [{shape[0]}, {shape[1]}] are read as [length, channels], with {shape[1]} channels; if the "
                        "channels come first, store them last: sequences.transpose(0, 2, 1) in NumPy\n")
                self.assertEqual(result.stderr, note if first else "")

    def test_what_is_not_finite_stops_before_the_first_step(self):
        recipe = self.own_recipe("data: {dataset: arrays, path: values.npz, batch_size: 4, validation: 0, normalize: none}\n",
                                 "model: {layers: [{type: Linear, out_features: 2}]}\n", SGD)
        for bad_part in ("train", "test"):
            with zipfile.ZipFile(self.path("values.npz"), "w") as archive:
                for part in ("train", "test"):
                    values = [float(i % 7) for i in range(24)]
                    if part == bad_part:
                        values[13] = float("inf")
                    archive.writestr(f"x_{part}.npy", npy("<f4", (8, 3), struct.pack("<24f", *values)))
                    archive.writestr(f"y_{part}.npy", npy("|u1", (8,), bytes((0, 1) * 4)))
            self.fail_with(2, f"values.npz: x_{bad_part}.npy: sample 4: expected finite values, got inf at [1]",
                           arguments=["train", recipe, "--run-dir", "run"])
            self.assertFalse(os.path.exists(self.path("run", "metrics.jsonl")))

    def test_texts_of_numbers(self):
        generator = random.Random(5)
        with zipfile.ZipFile(self.path("texts.npz"), "w") as archive:
            for part, count in (("train", 40), ("test", 6)):
                texts = [(generator.randrange(1, 4), generator.randrange(1, 4)) for _ in range(count)]
                # Five frames of four scores: the first number in two of them, a blank, the second one.
                frames = [(a, a, 0, b, b) for a, b in texts]
                scores = [3.0 if number == frame else 0.0 for text in frames for frame in text for number in range(4)]
                archive.writestr(f"x_{part}.npy", npy("<f4", (count, 20), struct.pack(f"<{len(scores)}f", *scores)))
                archive.writestr(f"y_{part}.npy", npy("|u1", (count, 2), bytes(number for text in texts for number in text)))
        recipe = self.own_recipe("data: {dataset: arrays, path: texts.npz, batch_size: 8, validation: 0, normalize: none}\n",
                                 "model: {classes: 20, layers: [{type: Linear, name: fc, out_features: 20}]}\n",
                                 "train: {loss: ctc, epochs: 60, optimizer: {type: adamw, lr: 0.05}}\n")
        self.train(recipe, "numbers")
        self.assertLess(json.loads(self.succeed("eval", "numbers", "--format", "json"))["cer"], 5)
        # Two numbers in one frame.
        short = ["--set", "data.batch_size=40", "--set", "model.classes=4", "--set", "model.layers=[{type: Linear, name: fc, out_features: 4}]"]
        self.fail_with(1, "step 1: loss is inf, as of a text that needs more frames than the outputs have: one for each",
                       arguments=["train", recipe, "--run-dir", "short", *short])
        expected = "".join(f"{i}  {a} {b}\n" for i, (a, b) in enumerate(texts))
        self.assertEqual(self.succeed("predict", "numbers", "texts.npz"), expected)
        self.write("x\ny\nz\n", "letters.txt")
        self.train(recipe, "letters", "--set", "data.class_names=letters.txt")
        expected = "".join(f"{i}  {'xyz'[a - 1]}{'xyz'[b - 1]}\n" for i, (a, b) in enumerate(texts))
        self.assertEqual(self.succeed("predict", "letters", "texts.npz"), expected)
        self.write("x\ny\n", "letters.txt")
        self.fail_with(2, "letters.txt: expected 4 names or more, the data has labels up to 3; got 3",
                       arguments=["validate", recipe, "--set", "data.class_names=letters.txt"])


if __name__ == "__main__":
    unittest.main()


class LargerThanMemory(OwnData):
    LIMIT = 192 << 20
    SIDE = 64

    def arrays_recipe(self, samples):
        for split, count in (("train", samples), ("test", 100)):
            self.write(npy("|u1", (count,), bytes(range(2)) * (count // 2)), "data", f"{split}_targets.npy")
            path = self.write(npy("|u1", (count, self.SIDE, self.SIDE), b""), "data", f"{split}_inputs.npy")
            os.truncate(path, os.path.getsize(path) + count * self.SIDE ** 2)  # zeros that take no room
        return self.own_recipe("data: {dataset: arrays, path: data, batch_size: 512, validation: 100}\n",
                               "model: {classes: 2, layers: [{type: AvgPool2d, kernel_size: 16}, {type: Flatten},"
                               " {type: Linear, name: fc, out_features: 2}]}\n",
                               "train: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n")

    def train_limited(self, recipe, stack, threads):
        # The limit is on addresses: glibc would reserve 64 MiB of them for each thread.
        limits = 'ulimit -v "$0" && ulimit -s "$1" && shift && exec "$@"'
        command = ["sh", "-c", limits, str(self.LIMIT >> 10), str(stack >> 10),
                   PROGRAM, "train", recipe, "--run-dir", "limited", "--threads", threads]
        return subprocess.run(command, cwd=self.folder, text=True, capture_output=True, timeout=300,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive", "MALLOC_ARENA_MAX": "1"})

    def test_trains_on_four_times_as_much(self):
        samples = 4 * self.LIMIT // self.SIDE ** 2
        done = self.train_limited(self.arrays_recipe(samples), stack=8 << 20, threads="2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.summary("limited")["steps"], -(-(samples - 100) // 512))

    def test_a_thread_that_cannot_be_started(self):
        failed = self.train_limited(self.arrays_recipe(1000), stack=self.LIMIT, threads="1")
        self.assertEqual(failed.returncode, 1)
        self.assertIn("failed: cannot start a thread (ulimit -v limits addresses, ulimit -u processes): ", failed.stderr)
