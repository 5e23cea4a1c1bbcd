"""steelyard benchmark: times of an exported model beside ONNX Runtime."""
import json
import os
import shutil
import unittest

from cli_case import LAYERS, QUANTIZE, SGD, Case
from support.onnx_files import model, node, port


class Benchmark(Case):
    def exported(self, *formats):
        self.train(self.recipe(LAYERS + SGD.replace("epochs: 6", "epochs: 1") + QUANTIZE), "run")
        for name in formats:
            self.succeed("export", "run", "--format", name)

    def test_times_the_export_of_a_run(self):
        self.exported("safetensors")
        printed = self.succeed("benchmark", "run", "--threads", "1", "--rounds", "3", "--layers")
        self.assertRegex(printed, r": a batch of 1, 1 thread, 3 runs\nloaded in [\d.]+ ms, first run [\d.]+ ms, memory for both [\d.]+ MiB, "
                                  r"values [\d.]+ MiB\n")
        self.assertRegex(printed, r"\nsteelyard +[\d.]+ +[\d.]+\n")
        self.assertNotIn("ONNX Runtime", printed)
        graph = self.succeed("inspect", "--graph", os.path.join("run", "export", "model.safetensors"))
        nodes = printed[printed.index("\nnode "):].strip().split("\n")[1:]
        for line in nodes:
            self.assertIn(line.split()[0], graph)
        self.assertGreater(len(nodes), 2)
        json_text = self.succeed("benchmark", os.path.join("run", "export", "model.safetensors"), "--json", "--batch", "5",
                                 "--threads", "2")
        times = json.loads(json_text)
        self.assertEqual((times["batch"], times["threads"], times["sample"]), (5, 2, [8, 8, 1]))
        self.assertGreaterEqual(times["p95_ms"], times["median_ms"])
        self.assertGreater(times["median_ms"], 0)
        self.assertGreater(times["workspace_bytes"], 0)
        self.assertGreater(times["peak_bytes"], times["workspace_bytes"])
        self.assertLess(times["peak_bytes"], 2**24)  # of the small model, not of the program

    @unittest.skipUnless(os.environ.get("STEELYARD_HAVE_ONNX"), "no ONNX files in this build")
    def test_beside_onnx_runtime(self):
        self.exported("safetensors", "onnx")
        shutil.copy(self.path("run", "export", "model.onnx"), self.path("other.onnx"))
        times = json.loads(self.succeed("benchmark", "run", "--json", "--threads", "1", "--rounds", "3", "--beside", "other.onnx"))
        self.assertEqual([peer["name"] for peer in times["onnxruntime"]], ["exact products", "default session", "other.onnx"])
        for peer in times["onnxruntime"]:
            self.assertGreater(peer["median_ms"], 0)
        printed = self.succeed("benchmark", os.path.join("run", "export", "model.onnx"), "--rounds", "3")
        self.assertRegex(printed, r"\nONNX Runtime [\d.]+, exact products +[\d.]+  steelyard takes [\d.]+ of it\n")

    @unittest.skipUnless(os.environ.get("STEELYARD_HAVE_ONNX"), "no ONNX files in this build")
    def test_beside_a_file_of_half_precision(self):
        self.exported("safetensors")
        for name, kind in (("half.onnx", 10), ("double.onnx", 11)):
            ports = [port(end, ["n", 1, 8, 8], kind) for end in ("input", "output")]
            with open(self.path(name), "wb") as file:
                file.write(model([node("Relu", ["input"], "output")], [], ports[:1], ports[1:]))
            times = json.loads(self.succeed("benchmark", "run", "--json", "--threads", "1", "--rounds", "3", "--beside", name))
            self.assertEqual([peer["name"] for peer in times["onnxruntime"]], [name])
            self.assertGreater(times["onnxruntime"][0]["median_ms"], 0)

    def test_wrong_input_is_one_line(self):
        os.mkdir(self.path("run"))
        self.fail_with(2, os.path.join("run", "export", "model.safetensors") + ": is not there", "`steelyard export run` writes it",
                       arguments=("benchmark", "run"))
        self.fail_with(2, "nothing.safetensors", arguments=("benchmark", "nothing.safetensors"))
        open(self.path("alone.onnx"), "w").close()
        self.fail_with(2, "alone.onnx: expected the integer model alone.safetensors beside it", arguments=("benchmark", "alone.onnx"))
        self.fail_with(2, "nothing.onnx: cannot open", arguments=("benchmark", "nothing.onnx"))
        self.fail_with(2, "--batch", arguments=("benchmark", "run", "--batch", "0"))


if __name__ == "__main__":
    unittest.main()
