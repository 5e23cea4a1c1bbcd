"""Regressions of large numbers: targets are normalized for the loss, and values keep their units everywhere else."""
import csv
import io
import json
import os
import random
import shutil
import unittest

from cli_case import QUANTIZE, read_checkpoint, rewrite_metadata
from cli_own_data_test import HEAD, OwnData

DATA = """
data:
  dataset: table
  path: houses.csv
  batch_size: 16
  validation: 60
  test: 100
  table: {target: [price], regression: true, categories: [district]}
model:
  classes: 1
  layers:
    - {type: Linear, name: fc1, out_features: 16}
    - {type: ReLU}
    - {type: Linear, name: fc2, out_features: 1}
"""
TRAIN = "train: {loss: mse, epochs: 12, optimizer: {type: adamw, lr: 0.01}, checkpoint_every_steps: 10, keep_step_checkpoints: true}\n"
W8A8 = QUANTIZE.replace(", Conv2d", "")
RAW = ("--set", "data.normalize_targets=false")


class Targets(OwnData):
    def write_houses(self, price=lambda price: price, name="houses.csv"):
        generator = random.Random(4)
        rows = ["area,rooms,district,price"]
        for _ in range(500):
            area, rooms, district = generator.uniform(40, 200), generator.randrange(1, 7), generator.choice(["north", "south"])
            paid = round(60000 + 1500 * area + 9000 * rooms + (40000 if district == "south" else 0) + generator.gauss(0, 9000))
            rows.append(f"{area:.1f},{rooms},{district},{price(paid)}")
        self.write("\n".join(rows) + "\n", name)

    def metrics_of(self, run, *arguments):
        return json.loads(self.succeed("eval", run, "--format", "json", *arguments))

    def record(self, run, checkpoint="last"):
        return json.loads(read_checkpoint(self.path(run, checkpoint + ".safetensors"))[0]["__metadata__"]["data"])

    def test_prices(self):
        """R2 is that of targets that were normalized by hand, bit for bit, where raw ones give less than the mean does."""
        self.write_houses()
        recipe = self.own_recipe(DATA, TRAIN)
        self.train(recipe, "raw", *RAW)
        self.assertLess(self.metrics_of("raw")["r2"], 0)
        self.assertNotIn("target_mean", self.record("raw"))
        noted = self.run_program("train", recipe, "--run-dir", "run")
        self.assertEqual(noted.returncode, 0, noted.stderr)
        self.assertIn("note: data.normalize_targets: true, the loss is that of (target - mean) / std, {mean: [2", noted.stderr)
        self.assertIn("normalize_targets: true", self.read("run", "recipe.yaml"))
        found = self.metrics_of("run")
        self.assertGreater(found["r2"], 0.9)
        mean, std = (self.record("run")[key][0] for key in ("target_mean", "target_std"))
        self.assertTrue(150000 < mean < 350000 and 30000 < std < 120000, (mean, std))

        self.write_houses(lambda price: repr((price - mean) / std), "houses.csv")
        self.train(recipe, "hand", *RAW)
        by_hand = self.metrics_of("hand")
        self.assertEqual((found["loss"], found["r2"]), (by_hand["loss"], by_hand["r2"]))
        tensors = [read_checkpoint(self.path(run, "last.safetensors")) for run in ("run", "hand")]
        self.assertEqual(tensors[0][1], tensors[1][1])
        self.assertAlmostEqual(found["rmse"], std * by_hand["rmse"], delta=1e-6 * found["rmse"])

    def test_resumes_and_shares_its_bits(self):
        self.write_houses()
        recipe = self.own_recipe(DATA, TRAIN.replace("epochs: 12", "epochs: 2").replace("steps: 10", "steps: 1"), W8A8)
        for threads in ("1", "2"):
            self.resumed_as(recipe, threads)

    def test_values_keep_their_units(self):
        """From the float run to its quantized one, with exports in all formats."""
        self.write_houses()
        self.train(self.own_recipe(DATA, TRAIN), "float")
        tuned = self.write(HEAD + DATA + TRAIN.replace("epochs: 12", "epochs: 3").replace("lr: 0.01", "lr: 0.002") + W8A8 +
                           "init: {checkpoint: float/best.safetensors}\n", "w8a8.yaml")
        # Other data than the float run's, for which its numbers count all the same.
        self.train(tuned, "w8a8", "--set", "data.test=120")
        for key in ("target_mean", "target_std"):
            self.assertEqual(self.record("w8a8")[key], self.record("float", "best")[key])
        self.assertGreater(self.metrics_of("w8a8")["r2"], 0.9)
        self.assertRegex(self.succeed("eval", "w8a8"), r"loss 0\.\d{4}, R2 0\.9\d{3}, RMSE \d{4,5}(\.\d)?\n")
        self.write("rooms,area,district\n3,100,north\n6,180,south\n", "new.csv")
        for run in ("float", "w8a8"):
            self.succeed("export", run)
            self.assertRegex(self.succeed("verify", run), r"(?m)^0 of \d+ codes differ")
            expected = [60000 + 150000 + 27000, 60000 + 270000 + 54000 + 40000]
            ways = [[run], [run, "--with", "integer"], [os.path.join(run, "export", "model.safetensors")]]
            if os.path.exists(self.path(run, "export", "model.onnx")) and os.path.exists(os.environ.get("STEELYARD_PYTHON", "")):
                self.assertRegex(self.succeed("verify", run), r"ONNX Runtime \S+: close values for 100.00 % of the outputs; " +
                                 (r"0 of 1[02]0 outputs differ" if run == "w8a8" else ""))
                ways.append([run, "--with", "onnx"])
            found = []
            for model, *options in ways:
                rows = list(csv.DictReader(io.StringIO(self.succeed("predict", model, "new.csv", "--format", "csv", *options))))
                found.append([float(row["price"]) for row in rows])
            for price, about in zip(found[0], expected, strict=True):
                self.assertAlmostEqual(price, about, delta=25000)
            for other in found[1:]:
                if run == "w8a8":
                    self.assertEqual(other, found[0])
                for a, b in zip(other, found[0], strict=True):
                    self.assertAlmostEqual(a, b, delta=1e-4 * abs(b))
        self.succeed("export", "w8a8", "--format", "c")
        header = self.read("w8a8", "export", "model.h")
        self.assertIn("#define STEELYARD_MAPPED_COLUMNS 1\n", header)
        self.assertNotIn("missing", self.succeed("report", "w8a8"))

    def test_a_file_with_its_units_is_imported_as_it_is(self):
        self.write_houses()
        self.train(self.own_recipe(DATA, TRAIN), "float")
        self.succeed("export", "float", "--format", "onnx", "--out", "out")
        data = [word for key in ("dataset=table", "path=houses.csv", "validation=60", "test=100",
                                 "table={target: [price], regression: true, categories: [district]}") for word in ("--set", "data." + key)]
        imported = self.run_program("import", "out/model.onnx", "--run-dir", "again", *data)
        self.assertEqual(imported.returncode, 0, imported.stderr)
        self.assertIn("note: data.normalize_targets: false, the targets are as the data has them: model.onnx gives values in their units\n",
                      imported.stderr)
        self.assertNotIn("target_mean", self.record("again"))
        for key in ("r2", "rmse"):
            self.assertAlmostEqual(self.metrics_of("again")[key] / self.metrics_of("float")[key], 1, places=3)

    def as_earlier(self, run):
        """A run of before targets could be normalized."""
        text = self.read(run, "recipe.yaml")
        self.assertEqual(text.count("  normalize_targets: false\n"), 1)
        self.write(text.replace("  normalize_targets: false\n", ""), run, "recipe.yaml")
        for name in ("last.safetensors", "best.safetensors"):
            rewrite_metadata(self.path(run, name),
                             lambda metadata: {**metadata, "recipe": metadata["recipe"].replace("  normalize_targets: false\n", "")})

    def test_a_run_of_an_earlier_version_keeps_raw_targets(self):
        self.write_houses()
        recipe = self.own_recipe(DATA, TRAIN.replace("epochs: 12", "epochs: 2"))
        self.train(recipe, "run", *RAW)
        shutil.copytree(self.path("run"), self.path("old"))
        self.as_earlier("old")
        for verb in (["eval"], ["predict"]):
            more = ["houses.csv"] if verb == ["predict"] else []
            self.assertEqual(self.succeed(*verb, "old", *more).split(": ")[-1], self.succeed(*verb, "run", *more).split(": ")[-1])
        more = ["--set", "train.epochs=3", "--resume"]
        self.train(recipe, "run", *RAW, *more)
        self.train(recipe, "old", *more)
        self.assertEqual(self.metrics("old"), self.metrics("run"))
        self.assertNotIn("target_mean", self.record("old"))
        # Its weights stay what they are for a run that begins with them.
        tuned = self.run_program("validate", recipe, "--set", "init.checkpoint=old/last.safetensors")
        self.assertIn("the targets are as the data has them: init.checkpoint was trained on such\n", tuned.stderr)


if __name__ == "__main__":
    unittest.main()
