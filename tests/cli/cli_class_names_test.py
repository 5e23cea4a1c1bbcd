"""The classes of built-in datasets have names; runs and exports of before they had stay as they were."""
import json
import os
import random
import re
import shutil
import struct
import unittest

from cli_case import QUANTIZE, read_checkpoint, rewrite_metadata
from cli_own_data_test import HEAD, OwnData

NAMES = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
RECIPE = """data: {dataset: fashion_mnist, path: clothes, batch_size: 10, validation: 10}
model: {type: mlp, hidden: [8]}
train: {epochs: 2, optimizer: {type: sgd, lr: 0.02, momentum: 0.9}, checkpoint_every_steps: 1, keep_step_checkpoints: true}
export: {formats: [safetensors]}
"""


class ClassNames(OwnData):
    def write_clothes(self):
        generator = random.Random(5)
        for split, count in (("train", 60), ("t10k", 20)):
            labels = bytes(i % 10 for i in range(count))
            pixels = bytes(min(255, 20 * label + generator.randrange(50)) for label in labels for _ in range(36))
            self.write(struct.pack(">IIII", 2051, count, 6, 6) + pixels, "clothes", f"{split}-images-idx3-ubyte")
            self.write(struct.pack(">II", 2049, count) + labels, "clothes", f"{split}-labels-idx1-ubyte")

    def trained(self, run):
        recipe = self.write(HEAD + RECIPE + QUANTIZE.replace(", Conv2d", ""), "own.yaml")
        self.train(recipe, run)
        return recipe

    def as_earlier(self, run):
        """The run as it was before its dataset had names."""
        def without_names(metadata):
            return {**metadata, "data": re.sub(r',"class_names":\[.*?\]', "", metadata["data"])}

        for name in os.listdir(self.path(run)):
            if name.endswith(".safetensors"):
                rewrite_metadata(self.path(run, name), without_names)

        def graph_without_names(metadata):
            graph = json.loads(metadata["graph"])
            self.assertEqual(graph.pop("class_names"), NAMES)
            return {**metadata, "graph": json.dumps(graph)}

        rewrite_metadata(self.path(run, "export", "model.safetensors"), graph_without_names)

    def test_everything_says_them(self):
        self.write_clothes()
        recipe = self.trained("run")
        self.assertRegex(self.succeed("data", recipe), r"(?m)^Ankle boot +6 +2$")
        data = os.path.join("clothes", "t10k-images-idx3-ubyte")
        for model in ("run", os.path.join("run", "export", "model.safetensors")):
            for line in self.succeed("predict", model, data).splitlines():
                self.assertIn(line.split("  ")[1], NAMES)
        self.assertEqual([row["name"] for row in json.loads(self.succeed("eval", "run", "--format", "json"))["classes"]], NAMES)
        self.succeed("report", "run")
        self.assertIn("Ankle boot", self.read("run", "report.html"))
        # A recipe's own list wins.
        self.write("".join(f"kind {i}\n" for i in range(10)), "names.txt")
        self.assertRegex(self.succeed("data", recipe, "--set", "data.class_names=names.txt"), r"(?m)^kind 9 +6 +2$")

    def test_runs_and_exports_of_earlier_versions_have_none(self):
        self.write_clothes()
        recipe = self.trained("run")
        shutil.copytree(self.path("run"), self.path("old"))
        self.as_earlier("old")
        self.assertEqual(self.succeed("eval", "old").split(": ")[1], self.succeed("eval", "run").split(": ")[1])
        self.assertEqual([row["name"] for row in json.loads(self.succeed("eval", "old", "--format", "json"))["classes"]], [str(i) for i in range(10)])
        self.assertRegex(self.succeed("verify", "old"), r"0 of \d+ codes differ")
        data = os.path.join("clothes", "t10k-images-idx3-ubyte")
        for model in ("old", os.path.join("old", "export", "model.safetensors")):
            self.assertRegex(self.succeed("predict", model, data), r"^0  class \d  ")
        # It goes on to the same bits, and stays without.
        shutil.copytree(self.path("old"), self.path("stopped"))
        shutil.copy(self.path("stopped", "step-3.safetensors"), self.path("stopped", "last.safetensors"))
        os.remove(self.path("stopped", "best.safetensors"))
        self.train(recipe, "stopped", "--resume")
        resumed, whole = (read_checkpoint(self.path(run, "last.safetensors")) for run in ("stopped", "old"))
        self.assertEqual(resumed[1], whole[1])
        metadata = [{key: value for key, value in header["__metadata__"].items() if key != "sha256"} for header, _ in (resumed, whole)]
        self.assertEqual(metadata[0], metadata[1])
        self.assertNotIn("class_names", metadata[0]["data"])
        # New runs begin with its weights as before.
        tuned = self.run_program("validate", recipe, "--set", "init.checkpoint=old/last.safetensors", "--set", "quantize=null", "--set", "export.formats=[]")
        self.assertNotIn("other classes", tuned.stderr)


if __name__ == "__main__":
    unittest.main()
