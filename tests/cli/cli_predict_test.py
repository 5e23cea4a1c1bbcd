"""Predictions of inputs of which some are damaged, and data folders with other files in them."""
import csv
import io
import json
import os
import re
import shutil
import unittest

from cli_case import QUANTIZE
from cli_own_data_test import CNN, IMAGES, SGD, TABLE, OwnData, npy
from support.data_files import f32, png, write_safetensors


class Predictions(OwnData):
    def failed(self, *arguments):
        """Standard output of a prediction of which some samples failed, and the number of them that standard error says."""
        result = self.run_program("predict", *arguments)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        said = re.search(r"(?m)^failed: .*: (\d+) of (\d+) samples have no prediction, their lines say why$", result.stderr)
        self.assertTrue(said, result.stderr)
        return result.stdout, (int(said[1]), int(said[2]))

    def ways(self, run):
        """The arguments of each way to predict, where this build and this machine have it."""
        ways = [[run], [run, "--with", "integer"], [os.path.join(run, "export", "model.safetensors")]]
        if os.path.exists(self.path(run, "export", "model.onnx")) and os.path.exists(os.environ.get("STEELYARD_PYTHON", "")):
            ways.append([run, "--with", "onnx"])
        return ways

    def check_formats(self, run, file, bad, good):
        """bad: {sample: what its error ends in}; good: the samples between them. All formats and all ways say the same, in order."""
        samples = sorted([*bad, *good], key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])
        texts = set()
        for way in self.ways(run):
            model, *options = way
            text, counts = self.failed(model, file, *options)
            self.assertEqual(counts, (len(bad), len(samples)))
            lines = text.splitlines()
            self.assertEqual([line.split("  ")[0] for line in lines], samples)
            for line in lines:
                name, rest = line.split("  ", 1)
                if name in bad:
                    self.assertTrue(rest.startswith("error: ") and bad[name] in rest, line)
                    self.assertNotIn(name + ": ", line)
                else:
                    self.assertNotIn("error", rest)
            texts.add(text)
            table = list(csv.DictReader(io.StringIO(self.failed(model, file, "--format", "csv", *options)[0])))
            entries = json.loads(self.failed(model, file, "--format", "json", *options)[0])
            self.assertEqual([row["sample"] for row in table], samples)
            self.assertEqual([entry["sample"] for entry in entries], samples)
            for row, entry in zip(table, entries, strict=True):
                self.assertNotIn(None, row.values())
                self.assertEqual(row["error"], entry.get("error", ""))
                if row["sample"] in bad:
                    self.assertIn(bad[row["sample"]], row["error"])
                    self.assertEqual({value for key, value in row.items() if key not in ("sample", "error")}, {""})
                    self.assertEqual(list(entry), ["sample", "error"])
                else:
                    self.assertNotIn("error", entry)
                    self.assertNotIn("", [value for key, value in row.items() if key != "error"])
        self.assertEqual(len(texts), 1, texts)


class Predict(Predictions):
    def test_rows_of_a_table(self):
        self.write_table()
        self.train(self.own_recipe(TABLE, SGD, QUANTIZE.replace(", Conv2d", "")), "run")
        self.succeed("export", "run")
        self.write('length,colour,kind\n1.5,white,lily\n0.5,green,rose\nmuch,white,lily\n2.5,white\n"0.1,white,lily\n\nNA,pale red,iris\n', "new.csv")
        bad = {"new.csv:3": "column 'colour': the training set has no category 'green'", "new.csv:4": "expected a finite number, got 'much'",
               "new.csv:5": "expected 3 fields as in the first line, got 2", "new.csv:6": "a quote that is never closed"}
        self.check_formats("run", "new.csv", bad, ["new.csv:2", "new.csv:8"])
        strict = self.fail_with(2, "new.csv:3: column 'colour'", arguments=["predict", "run", "new.csv", "--strict"])
        self.assertEqual(strict.stdout, "")
        self.write("length,colour\n1.5,white\n", "good.csv")
        self.assertEqual(self.succeed("predict", "run", "good.csv", "--strict"), self.succeed("predict", "run", "good.csv"))
        self.assertEqual(self.succeed("predict", "run", "good.csv", "--format", "csv", "--strict").splitlines()[0], "sample,class,probability,iris,lily,rose")
        # Nothing is known of the outputs where no row has any: the header is the same.
        self.write("length,colour\n1.5,green\n", "bad.csv")
        for way in self.ways("run"):
            text, _ = self.failed(way[0], "bad.csv", "--format", "csv", *way[1:])
            self.assertEqual(text.splitlines()[0], "sample,class,probability,iris,lily,rose,error")
            self.assertRegex(text.splitlines()[1], r"^bad\.csv:2,,,,,,column 'colour': the training set")
        # What no line can be given for is an error as before.
        self.write("length,color\n1.5,white\n", "other.csv")
        self.fail_with(2, "no column 'colour'", arguments=["predict", "run", "other.csv"])

    def test_more_rows_than_a_batch(self):
        self.write_table()
        self.train(self.own_recipe(TABLE, SGD), "run")
        rows = [f"{i / 100},{'green' if i % 100 == 7 else 'white'}" for i in range(900)]
        self.write("length,colour\n" + "\n".join(rows) + "\n", "many.csv")
        text, counts = self.failed("run", "many.csv")
        self.assertEqual(counts, (9, 900))
        lines = text.splitlines()
        self.assertEqual([line.split("  ")[0] for line in lines], [f"many.csv:{i + 2}" for i in range(900)])
        self.assertEqual([i for i, line in enumerate(lines) if "  error: " in line], [i for i in range(900) if i % 100 == 7])
        self.write("length,colour\n" + "\n".join(row for row in rows if "green" not in row) + "\n", "good.csv")
        self.assertEqual([line.split("  ", 1)[1] for line in lines if "error" not in line],
                         [line.split("  ", 1)[1] for line in self.succeed("predict", "run", "good.csv").splitlines()])

    def test_samples_of_arrays(self):
        values = [i / 40 for i in range(4 * 40)]
        inputs = npy("<f4", (40, 4), f32([160], values)[2])
        labels = npy("|i1", (40,), bytes(i % 3 for i in range(40)))
        for split in ("train", "test"):
            self.write(inputs, "data2", f"{split}_inputs.npy")
            self.write(labels, "data2", f"{split}_targets.npy")
        data = "data: {dataset: arrays, path: data2, batch_size: 8, validation: 8}\n"
        model = "model: {classes: 3, layers: [{type: Linear, name: fc, out_features: 3}]}\n"
        self.train(self.own_recipe(data, model, SGD, QUANTIZE.replace(", Conv2d", "")), "run")
        self.succeed("export", "run")
        some = values[:20]
        some[6], some[13] = float("nan"), float("-inf")
        self.write(npy("<f4", (5, 4), f32([20], some)[2]), "new.npy")
        write_safetensors(self.path("new.safetensors"), {"inputs": f32([5, 4], some)})
        for file in ("new.npy", "new.safetensors"):
            self.check_formats("run", file, {"1": "nan", "3": "-inf"}, ["0", "2", "4"])
        self.write(npy("<f4", (5, 3), f32([15], some[:15])[2]), "other.npy")
        self.fail_with(2, "expected inputs f32 [5, 4], got f32 [5, 3]", arguments=["predict", "run", "other.npy"])

    def test_outputs_that_are_not_finite(self):
        self.write("x,y\n" + "".join(f"{i / 50},{i / 25}\n" for i in range(100)), "line.csv")
        recipe = self.own_recipe(
            "data: {dataset: table, path: line.csv, batch_size: 10, validation: 0, test: 20, table: {target: [y], regression: true}}\n"
            "model: {classes: 1, layers: [{type: Linear, name: fc, out_features: 1}]}\n", SGD.replace("{epochs: 2", "{loss: mse, epochs: 2"))
        self.train(recipe, "line")
        self.write("x\n1\n3e38\n2\n", "new.csv")
        text, counts = self.failed("line", "new.csv", "--format", "csv")
        self.assertEqual(counts, (1, 3))
        self.assertEqual(text.splitlines()[0], "sample,y,error")
        self.assertRegex(text.splitlines()[2], r"^new\.csv:3,,an output of the model is -?inf$")
        self.fail_with(1, "new.csv: sample 1: an output of the model is ", arguments=["predict", "line", "new.csv", "--strict"])


class PredictImages(Predictions):
    def test_a_folder(self):
        self.write_images()
        self.train(self.own_recipe(IMAGES, CNN, SGD, QUANTIZE), "run")
        self.succeed("export", "run")
        shutil.copytree(self.path("pictures", "test", "blue"), self.path("holiday"))
        for name in ("readme.txt", "Thumbs.db", ".DS_Store", "desktop.ini"):
            self.write("x", "holiday", name)
        with open(self.path("holiday", "2.png"), "rb") as file:
            image = file.read()
        self.write(image[:len(image) // 2], "holiday", "1.png")
        self.write("GIF89a", "holiday", "5.gif")
        os.symlink("nowhere", self.path("holiday", "4.png"))
        os.symlink(".", self.path("holiday", "6-loop"))
        bad = {"holiday/6-loop": "expected a regular file, got a folder", "holiday/1.png": "PNG", "holiday/4.png": "No such file", "holiday/5.gif": "GIF"}
        self.check_formats("run", "holiday", bad, [f"holiday/{i}.png" for i in (0, 2, 3)])
        noted = self.run_program("predict", "run", "holiday").stderr
        self.assertIn("note: holiday: left out 4 files that are no images by their names: .DS_Store, Thumbs.db, desktop.ini, readme.txt\n", noted)
        self.fail_with(2, "holiday/4.png: No such file", arguments=["predict", "run", "holiday", "--strict"])
        text, counts = self.failed("run", os.path.join("holiday", "1.png"))
        self.assertEqual((text.count("\n"), counts), (1, (1, 1)))
        self.fail_with(2, "holiday/1.png: ", "PNG", arguments=["predict", "run", os.path.join("holiday", "1.png"), "--strict"])

    def test_names_that_are_not_plain_text(self):
        """JSON has the bytes of each name: with those of a real escape sequence, of one that is written out, and not of UTF-8."""
        self.write_images()
        self.train(self.own_recipe(IMAGES, CNN, SGD), "run")
        with open(self.path("pictures", "test", "blue", "0.png"), "rb") as file:
            image = file.read()
        names = [b"\x1b[1m.png", rb"\x1b[1m.png", "caf\u00e9.png".encode(), b"caf\xe9.png", "\u009b.png".encode()]
        os.makedirs(self.path("odd"))
        for name in names:
            with open(os.path.join(os.fsencode(self.path("odd")), name), "wb") as file:
                file.write(image)
        printed = self.succeed("predict", "run", "odd", "--format", "json")
        self.assertNotRegex(printed, "[\x1b\u009b]")
        def as_bytes(text):
            return b"".join(bytes([ord(c) - 0xEF00]) if 0xEF80 <= ord(c) <= 0xEFFF else c.encode() for c in text)
        self.assertEqual(sorted(as_bytes(entry["sample"]) for entry in json.loads(printed)), sorted(b"odd/" + name for name in names))
        self.assertIn(r"odd/caf\xe9.png  ", self.succeed("predict", "run", "odd"))

    def test_the_first_image_of_a_model_without_transforms(self):
        """The model says how large images are, not the first one."""
        self.write_images()
        plain = IMAGES.replace("  transforms: {resize_shorter: 10, centre_crop: [8, 9]}\n", "")
        plain = re.sub(r"  augment.*\n", "", plain)
        for folder, _, files in os.walk(self.path("pictures")):
            for name in files:  # of one size
                self.write(png(10, 9, bytes(i % 251 for i in range(3 * 10 * 9))), os.path.join(folder, name))
        self.train(self.own_recipe(plain, CNN, SGD), "run")
        shutil.copytree(self.path("pictures", "test", "blue"), self.path("new"))
        self.write(b"\x89PNG\r\n\x1a\n", "new", "0.png")
        text, counts = self.failed("run", "new")
        self.assertEqual(counts, (1, 4))
        self.assertRegex(text, r"^new/0\.png  error: damaged PNG image")

    def test_other_files_and_damaged_ones_in_class_folders(self):
        self.write_images()
        recipe = self.own_recipe(IMAGES, CNN, SGD)
        self.train(recipe, "before")
        for parts in (("train", "readme.txt"), ("train", "green", "Thumbs.db"), ("train", "blue", ".DS_Store"), ("test", "green", "desktop.ini")):
            self.write("x", "pictures", *parts)
        result = self.run_program("train", recipe, "--run-dir", "after")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("train: left out 3 files that are no images by their names: blue/.DS_Store, green/Thumbs.db, readme.txt\n", result.stderr)
        self.assertIn("test: left out a file that is no image by its name: green/desktop.ini\n", result.stderr)
        self.assertEqual(self.sha("before", "last.safetensors"), self.sha("after", "last.safetensors"))

        good = self.run_program("data", recipe)
        self.assertEqual(good.returncode, 0, good.stderr)
        self.assertIn("left out 3 files", good.stderr)
        self.write(b"\x89PNG\r\n\x1a\n", "pictures", "train", "green", "0.png")
        self.write("no image", "pictures", "test", "blue", "1.png")
        described = self.run_program("data", recipe, "--sheet", "sheet.png")
        self.assertEqual(described.returncode, 1, described.stderr)
        self.assertIn("train: 32 samples u8 [8, 9, 3], 6 of them for validation\ntest:  11 samples", described.stdout)
        self.assertRegex(described.stdout, r"(?m)^green +10 +4$")
        self.assertRegex(described.stdout, r"samples that cannot be read, and count nowhere here: 2\n  \S*/train/green/0\.png: damaged PNG image.*\n"
                                           r"  \S*/test/blue/1\.png: expected an image.*\n")
        self.assertIn("failed: 2 samples cannot be read, as listed above\n", described.stderr)
        self.assertTrue(os.path.exists(self.path("sheet.png")))
        # Training does not lose data silently.
        self.fail_with(2, "train/green/0.png: damaged PNG image", arguments=["train", recipe, "--run-dir", "damaged"])


if __name__ == "__main__":
    unittest.main()
