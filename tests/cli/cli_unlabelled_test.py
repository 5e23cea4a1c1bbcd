"""Data without labels: what the command data says about inputs alone."""
import os
import random
import struct
import unittest

from cli_case import Case
from support.data_files import f32, i64, png, write_npy, write_safetensors

HEAD = "version: 1\nname: own\nseed: 3\n"
MODEL = ("model: {classes: 3, layers: [{type: Flatten}, {type: Linear, out_features: 3}]}\n"
         "train: {epochs: 1, loss: fidelity, optimizer: {type: sgd, lr: 0.1}}\n")


class OfNoLabels(Case):
    """Shared: recipes of inputs alone."""

    def own_recipe(self, data):
        with open(self.path("own.yaml"), "w") as file:
            file.write(f"{HEAD}data: {{labels: false, validation: 1, batch_size: 2, {data}}}\n{MODEL}")
        return self.path("own.yaml")

    def describe(self, data, *more):
        result = self.run_program("data", self.own_recipe(data), *more)
        self.assertEqual(result.returncode, 0, result.stderr)
        for word in ("class", "target", "label"):
            self.assertNotIn(word, result.stdout)
        return result

    def write(self, raw, *parts):
        os.makedirs(os.path.dirname(self.path(*parts)), exist_ok=True)
        with open(self.path(*parts), "wb") as file:
            file.write(raw)

    def write_npy(self, shape, values, *parts):
        os.makedirs(os.path.dirname(self.path(*parts)), exist_ok=True)
        write_npy(self.path(*parts), shape, values)


class Unlabelled(OfNoLabels):
    def test_arrays_tables_and_tensors(self):
        for i in range(4):
            self.write_npy([2], [i, i + 1], "samples", f"{i}.npy")
        said = self.describe("dataset: arrays, path: samples, test: 1")
        self.assertIn("train: 3 samples f32 [2], 1 of them for validation\ntest:  1 samples f32 [2]\n", said.stdout)
        self.write_npy([2], [1, float("nan")], "samples", "2.npy")
        result = self.run_program("data", self.own_recipe("dataset: arrays, path: samples, test: 1"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("samples/2.npy: expected finite values, got nan at [1]", result.stdout)
        self.write_npy([4, 2], range(8), "a.npy")
        self.assertIn("train: 3 samples", self.describe("dataset: arrays, path: a.npy, test: 1").stdout)
        write_safetensors(self.path("a.safetensors"), {"inputs": f32([4, 2], range(8)), "targets": i64([1], [0])})
        self.assertIn("train: 3 samples", self.describe("dataset: safetensors, path: a.safetensors, test: 1").stdout)
        self.write(b"a,b\n1,2\n3,4\n5,6\n", "t.csv")
        self.assertIn("column b: a number\n", self.describe("dataset: table, path: t.csv, test: 1").stdout)
        self.assertIn("test:  40 samples u8", self.describe(f"dataset: safetensors, path: {self.data}").stdout)

    def test_keys_that_need_labels(self):
        self.write(b"a\nb\nc\n", "names.txt")
        for key, value in (("class_names", "names.txt"), ("stratified", "true")):
            self.fail_with(2, "own.yaml:", f"data.{key}: expected data.labels: true",
                           arguments=["data", self.own_recipe(f"dataset: arrays, path: a.npy, {key}: {value}")])
        self.fail_with(2, "own.yaml:", "missing key 'data.table.target'",
                       arguments=["data", self.own_recipe("dataset: table, path: t.csv, table: {}"), "--set", "data.labels=true"])


class UnlabelledImages(OfNoLabels):
    def test_photographs(self):
        generator = random.Random(1)
        for i in range(12):
            pixels = bytes(generator.randrange(256) for _ in range(3 * 7 * 5))
            self.write(png(7, 5, pixels), "photographs", "2024", f"{i}.png")
        self.write(b"", "photographs", "diary.txt")
        data = "dataset: images, path: photographs, transforms: {resize: [6, 6]}"
        said = self.describe(data + ", test: 2", "--sheet", "sheet.png")
        self.assertIn("train: 10 samples u8 [6, 6, 3]", said.stdout)
        self.assertIn("note: " + self.path("photographs") + ": left out a file that is no image by its name: diary.txt\n", said.stderr)
        with open(self.path("sheet.png"), "rb") as file:
            width, height = struct.unpack(">2I", file.read(24)[16:])
        self.assertEqual((width, height), (8 * (60 + 4) + 4, 3 * (60 + 4) + 4))  # eight of one row, in three views
        self.fail_with(2, "own.yaml", "there is no test set; data.test sets samples of it aside", arguments=["data", self.own_recipe(data)])
        one = self.describe("dataset: images, path: photographs/2024/3.png")
        self.assertIn("note: " + self.path("photographs", "2024", "3.png") + ": the only sample is the test set too\n", one.stderr)
        os.makedirs(self.path("empty"))
        self.fail_with(2, "own.yaml", "empty: expected images in the folder",
                       arguments=["data", self.own_recipe("dataset: images, path: empty, test: 1")])


if __name__ == "__main__":
    unittest.main()
