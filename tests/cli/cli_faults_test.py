"""What goes wrong around a run: numbers that are not finite, closed outputs, shared folders, odd paths."""
import json
import os
import signal
import struct
import subprocess
import unittest

from cli_test import Case, LAYERS, PROGRAM, QUANTIZE, SGD, write_safetensors


def write_float_dataset(folder, inputs, targets, test_inputs=None):
    """Flat f32 inputs and one f32 or i64 target tensor (format, shape of a sample, values)."""
    os.makedirs(folder)
    kind, shape, values = targets
    count = len(values) // (shape[0] if shape else 1)
    for split, rows in (("train", inputs), ("test", test_inputs or inputs)):
        features = len(rows) // count
        write_safetensors(os.path.join(folder, split + ".safetensors"), {
            "inputs": ("F32", [count, features], struct.pack(f"<{len(rows)}f", *rows)),
            "targets": ({"f": "F32", "q": "I64"}[kind], [count, *shape], struct.pack(f"<{len(values)}{kind}", *values))})


class NotFinite(Case):
    body = "model: {type: mlp, hidden: [4]}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n"

    def test_a_test_loss_that_is_not_finite_is_a_failure(self):
        data = self.path("floats")
        write_float_dataset(data, [0.1 * (i % 7) for i in range(80)], ("q", [], [i % 2 for i in range(40)]),
                            test_inputs=[3e38] * 80)
        recipe = self.recipe(self.body)
        more = ["--set", "data.path=" + data, "--set", "data.augment=[]"]
        self.fail_with(1, "test loss is", arguments=["train", recipe, "--run-dir", self.path("run"), *more])
        self.assertFalse(os.path.exists(self.path("run", "summary.json")))
        self.fail_with(1, "the test loss is not finite", arguments=["eval", self.path("run")])


if __name__ == "__main__":
    unittest.main()
