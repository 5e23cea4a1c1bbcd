"""steelyard quantize on graphs of which a part cannot be imported: it stays as it is, behind the integers."""
import json
import os
import random
import re
import subprocess
import unittest

from cli_case import Case
from support.data_files import write_npy
from support.onnx_files import FLOAT, INT64, model, node, port, tensor

# The boxes that two files find in the same images, a list of [class, index] for each file and image.
FOUND = """
import json, sys
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.x64quantprecision", "1")  # sums that saturate would move decisions
inputs = numpy.load(sys.argv[1]).transpose(0, 3, 1, 2)
found = []
for path in sys.argv[2:]:
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ports = [[p.name, p.type, p.shape] for p in [*session.get_inputs(), *session.get_outputs()]]
    runs = [session.run(None, {"image": x[None]}) for x in inputs]
    found.append({"ports": ports, "boxes": [sorted(map(tuple, r[0][:, 1:].tolist())) for r in runs],
                  "shares": [float(r[1].sum()) for r in runs]})
print(json.dumps(found))
"""

# The operation set of the second file, and in which part of the images its outputs are those of the first.
CLOSE = """
import json, sys
import numpy, onnx, onnxruntime
options = onnxruntime.SessionOptions()
options.add_session_config_entry("session.x64quantprecision", "1")
sessions = [onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]) for path in sys.argv[2:]]
near = []
for x in numpy.load(sys.argv[1]).transpose(0, 3, 1, 2):
    first, second = [session.run(None, {"image": x[None]}) for session in sessions]
    near.append(all(numpy.allclose(a, b, atol=0.2) for a, b in zip(first, second)))
print(json.dumps([onnx.load(sys.argv[3]).opset_import[0].version, float(numpy.mean(near))]))
"""


def detector(opset):
    """Boxes and scores of 64 anchors, and behind them NonMaxSuppression and arithmetic on what it selects, in the words of
    operation set 11: axes as attributes, a Softmax of all dimensions from its own on. One image at a time, as exporters
    with post-processing write it."""
    generator = random.Random(2)

    def weights(name, *shape):
        count = 1
        for dim in shape:
            count *= dim
        return tensor(name, shape, [generator.gauss(0, 1) / (count / shape[0]) ** 0.5 for _ in range(count)])

    three = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    two = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    nodes = [node("Conv", ["image", "stem.weight", "stem.bias"], "stem", **two), node("Relu", ["stem"], "features"),
             node("Conv", ["features", "body.weight"], "body", **three), node("Relu", ["body"], "deep"),
             node("Conv", ["deep", "head.weight", "head.bias"], "head", **three),
             node("Reshape", ["head", "rows"], "values"), node("Transpose", ["values"], "anchors", perm=[0, 2, 1]),
             node("Slice", ["anchors", "0", "4", "2"], "moved"), node("Add", ["moved", "grid"], "boxes"),
             node("Slice", ["anchors", "4", "6", "2"], "scores_last"), node("Sigmoid", ["scores_last"], "chances"),
             node("Transpose", ["chances"], "scores", perm=[0, 2, 1]),
             node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], "selected"),
             node("Cast", ["selected"], "numbers", to=FLOAT), node("ReduceSum", ["numbers"], "sums", axes=[1], keepdims=1),
             node("Squeeze", ["sums"], "flat", axes=[1]), node("Unsqueeze", ["flat"], "row", axes=[0]),
             node("Softmax", ["row"], "shares", axis=0)]
    grid = [float(v) for i in range(64) for v in (2 * (i // 8), 2 * (i % 8), 2 * (i // 8) + 4, 2 * (i % 8) + 4)]
    tensors = [weights("stem.weight", 12, 3, 3, 3), weights("stem.bias", 12), weights("body.weight", 12, 12, 3, 3),
               weights("head.weight", 6, 12, 3, 3), tensor("head.bias", [6], [0.0, 0.0, 0.0, 0.0, -1.0, -1.5]),
               tensor("rows", [3], [1, 6, 64]), tensor("grid", [1, 64, 4], grid), *(tensor(str(n), [1], [n]) for n in (0, 2, 4, 6)),
               tensor("most", [1], [10]), tensor("overlap", [1], [0.45]), tensor("least", [1], [0.3])]
    return model(nodes, tensors, [port("image", [1, 3, 16, 16])],
                 [port("selected", ["found", 3], INT64), port("shares", [1, "found"])], opset=opset)


def old_words(opset, extreme):
    """A classifier behind whose scores stand ArgMax, which is not imported, and operations in the words of sets before 10.
    extreme: with a ReduceMax before the scores, which the integer part writes in the words of set 18."""
    generator = random.Random(4)
    weights = [generator.gauss(0, 0.5) for _ in range(8 * 12)]
    nodes = [node("Conv", ["image", "stem"], "features", kernel_shape=[3, 3], strides=[2, 2]), node("Relu", ["features"], "relu"),
             node("ReduceMax", ["relu"], "most", axes=[2, 3], keepdims=0) if extreme else node("GlobalAveragePool", ["relu"], "pool"),
             *([] if extreme else [node("Flatten", ["pool"], "most")]),
             node("Gemm", ["most", "fc", "bias"], "scores", transB=1), node("ArgMax", ["scores"], "class", axis=1, keepdims=1),
             node("Cast", ["class"], "number", to=FLOAT), node("Add", ["scores", "number"], "sums"),
             node("Clip", ["sums"], "clipped", min=-1.0, max=9.0),
             node("Slice", ["clipped"], "sliced", axes=[1], starts=[1], ends=[7]),
             node("Pad", ["sliced"], "padded", pads=[0, 1, 0, 1], value=2.5), node("Dropout", ["padded"], "kept", ratio=0.5),
             node("Unsqueeze", ["kept"], "image_of_it", axes=[0, 1]),
             node("Upsample", ["image_of_it", "scales"], "large", mode="nearest"),
             node("Squeeze", ["large"], "small", axes=[0, 1]),
             node("ReduceMean", ["small"], "means", axes=[1], keepdims=1), node("Sub", ["small", "means"], "centred"),
             node("LogSoftmax", ["centred"], "shares", axis=1), node("Hardmax", ["centred"], "hard", axis=1)]
    tensors = [tensor("stem", [12, 3, 3, 3], [generator.gauss(0, 0.3) for _ in range(324)]), tensor("fc", [8, 12], weights),
               tensor("bias", [8], [0.1] * 8), tensor("scales", [4], [1.0, 1.0, 2.0, 2.0])]
    return model(nodes, tensors, [port("image", [1, 3, 16, 16])], [port("shares", [2, 16]), port("hard", [2, 16])], opset=opset)


class Cut(Case):
    def setUp(self):
        super().setUp()
        generator = random.Random(5)
        self.count = 60
        write_npy(self.path("inputs.npy"), (self.count, 16, 16, 3),
                  [generator.gauss(0, 1) for _ in range(self.count * 768)])

    def write(self, opset):
        with open(self.path("net.onnx"), "wb") as file:
            file.write(detector(opset))

    def compared(self, script):
        """What the script says of the float file and the integer one."""
        python = os.environ.get("STEELYARD_PYTHON", "")
        if not os.path.exists(python):
            self.skipTest("no Python with onnxruntime")
        printed = subprocess.run([python, "-c", script, *map(self.path, ("inputs.npy", "net.onnx", "net-w8a8.onnx"))],
                                 capture_output=True, text=True)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        return json.loads(printed.stdout)

    def test_the_rest_stays_behind_the_integers(self):
        for opset in (11, 12):
            with self.subTest(opset=opset):
                self.write(opset)
                result = self.run_program("quantize", "net.onnx", "--data", "inputs.npy", "--threads", "1", "--overwrite")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertIn("note: the sizes of selected, shares follow from the samples: the values at the cut are compared",
                              result.stderr)
                printed = result.stdout
                self.assertIn("cut behind boxes, scores: ", printed)
                self.assertRegex(printed, r"output (boxes|scores) on samples that chose nothing")
                self.assertIn("(node of selected (NonMaxSuppression): the operation is not supported)", printed)
                self.assertRegex(printed, r"\n0 of \d+ codes differ")
                self.assertRegex(printed, r"net-w8a8.onnx: 0 of \d+ outputs of 12 samples differ from what the rest gives")
                in_float, quantized = self.compared(FOUND)
                self.assertEqual(in_float["ports"], quantized["ports"])
                same = all_of = 0
                for x, y in zip(in_float["boxes"], quantized["boxes"]):
                    same += len(set(map(tuple, x)) & set(map(tuple, y)))
                    all_of += (len(x) + len(y)) / 2
                self.assertGreater(all_of, 100)
                self.assertGreater(same / all_of, 0.9)
                for x, y in zip(in_float["shares"], quantized["shares"]):
                    self.assertAlmostEqual(x, y, places=5)

    def test_old_operations_stay_in_newer_words(self):
        for extreme in (False, True):
            with self.subTest(extreme=extreme):
                with open(self.path("net.onnx"), "wb") as file:
                    file.write(old_words(9, extreme))
                printed = self.succeed("quantize", "net.onnx", "--data", "inputs.npy", "--threads", "1", "--overwrite")
                self.assertIn("cut behind scores: ", printed)
                # The file's own outputs are compared, behind the class that moves all of them.
                self.assertRegex(printed, r"output shares on samples that chose nothing: SQNR")
                self.assertRegex(printed, r"output hard on samples that chose nothing: SQNR")
                self.assertNotIn("output scores on samples", printed)
                self.assertRegex(printed, r"net-w8a8.onnx: 0 of \d+ outputs of 12 samples differ from what the rest gives")
                opset, near = self.compared(CLOSE)
                self.assertEqual(opset, 18 if extreme else 13)
                self.assertGreater(near, 0.9)  # a class that flips moves all

    def test_the_users_number_is_of_the_whole_file(self):
        self.write(11)
        with open(self.path("score.sh"), "w") as file:
            file.write('echo "$1" >> scored; grep -c NonMaxSuppression "$1"\n')
        self.succeed("quantize", "net.onnx", "--data", "inputs.npy", "--threads", "1", "--score", "sh score.sh {onnx}")
        with open(self.path("scored")) as file:
            scored = [os.path.basename(line.strip()) for line in file]
        self.assertEqual(scored[0], "net.onnx")
        self.assertEqual(set(scored[1:]), {"whole.onnx"})

    def test_what_was_asked_for_is_not_cut(self):
        self.write(11)
        printed = self.succeed("quantize", "net.onnx", "--data", "inputs.npy", "--threads", "1", "--output", "boxes",
                               "--output", "chances")
        self.assertNotIn("cut behind", printed)
        # Boxes and their scores are compared together.
        agreements = re.findall(r"output (boxes|chances) on samples that chose nothing: .* dB, (\d+\.\d+) % of the boxes the same",
                                printed)
        self.assertEqual([name for name, _ in agreements], ["boxes", "chances"], printed)
        self.assertEqual(agreements[0][1], agreements[1][1])
        self.assertGreater(float(agreements[0][1]), 90)
        refused = self.run_program("quantize", "net.onnx", "--data", "inputs.npy", "--output", "selected", "--overwrite")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("NonMaxSuppression", refused.stderr)

    def test_parts_that_would_not_fit_are_refused_at_once(self):
        raw = detector(11)
        with open(self.path("net.onnx"), "wb") as file:
            file.write(raw.replace(port("shares", [1, "found"]), port("shares", [1, "found"], 10)))  # float16
        self.fail_with(2, "net.onnx: cut behind boxes, scores", "they read float32 then, and 'shares' is float16",
                       arguments=("quantize", "net.onnx", "--data", "inputs.npy"))

    def test_nothing_before_the_first_strange_node_is_told(self):
        with open(self.path("net.onnx"), "wb") as file:
            file.write(model([node("Strange", ["image"], "y", domain="com.example"), node("Relu", ["y"], "z")], [],
                             [port("image", [1, 3, 16, 16])], [port("z", [1, 3, 16, 16])]))
        refused = self.run_program("quantize", "net.onnx", "--data", "inputs.npy")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("node of y (Strange): operations of the domain 'com.example' are not supported\n", refused.stderr)


if __name__ == "__main__":
    unittest.main()
