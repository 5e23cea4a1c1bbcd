"""Files of models that quantize_() has changed: read again by compressed-tensors, and by an independent reader."""
import json
import os
import struct
import tempfile
import unittest

import numpy as np

from torch_case import TorchCase, nn, steelyard, torch
from torch_quantize_model_test import RECIPES, Words, quantized, recipe, tokens
from steelyard.torch import calibrate, export, quantize_

_TYPES = {"F32": np.float32, "I8": np.int8, "U8": np.uint8, "I32": np.int32, "I64": np.int64}


def read(folder):
    """The tensors of model.safetensors, and quantization_config."""
    with open(f"{folder}/model.safetensors", "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    header.pop("__metadata__")
    tensors = {n: torch.from_numpy(np.frombuffer(data[slice(*h["data_offsets"])], _TYPES[h["dtype"]]).reshape(h["shape"])
                                   .copy()) for n, h in header.items()}
    with open(f"{folder}/config.json", encoding="utf-8") as file:
        return tensors, json.load(file)["quantization_config"]


def unpacked(words, bits, columns):
    """Codes [R, columns] of packed words i32 [R, W], one by one."""
    rows = []
    for row in words.tolist():
        stream = sum((word & 0xffffffff) << 32 * i for i, word in enumerate(row))
        rows.append([(stream >> bits * k & (1 << bits) - 1) - (1 << bits - 1) for k in range(columns)])
    return torch.tensor(rows, dtype=torch.float64)


class Compressed(TorchCase):
    def exported(self, model):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        export(model, f"{folder.name}/out")
        return f"{folder.name}/out"

    def test_a_compiled_models_names(self):
        model = Words(tied=False)
        quantize_(model, RECIPES["lsq"])
        calibrate(model, tokens())  # one batch

        class Compiled(nn.Module):  # as torch.compile() holds a model
            def __init__(self, inner):
                super().__init__()
                self._orig_mod = inner

        self.assertEqual(list(read(self.exported(Compiled(model)))[0]), list(read(self.exported(model))[0]))

    def test_weights_that_are_not_finite(self):
        model = Words(tied=False)
        quantize_(model, recipe({"num_bits": 4}))
        path, layer = next((n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear))
        with torch.no_grad():
            layer.weight[0, 0] = float("nan")
        self.assert_refused(f"{path}: expected finite weights", self.exported, model)

    def test_codes_times_scales_are_the_trained_weights(self):
        cases = {f"w{bits}": recipe({"num_bits": bits, "symmetric": bits % 2 == 0}) for bits in range(2, 9)}
        for name, how in {**cases, **RECIPES}.items():
            if "block" in name:
                continue
            with self.subTest(name):
                model = Words(tied=False)
                quantize_(model, how)
                calibrate(model, [tokens()])
                tensors, config = read(self.exported(model))
                for path, layer in model.named_modules():
                    if not isinstance(layer, (nn.Linear, nn.Embedding)):
                        continue
                    mine = {n[len(path) + 1:]: t for n, t in tensors.items() if n.startswith(path + ".")}
                    weights, scheme = layer.weight.detach(), layer.weight_quantizer.scheme
                    trained = layer.weight_quantizer(layer.weight).detach().double()
                    rows, columns = weights.shape
                    if scheme.type == "float":
                        bytes_ = mine["weight_packed"]
                        codes = torch.stack((bytes_ & 15, bytes_ >> 4), -1).flatten(1).long()
                        grid = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6]).double()
                        scale = 2.0 ** (mine["weight_scale"].double() - 127)
                        values = grid[codes] * scale.repeat_interleave(32, 1)
                    else:
                        codes = (unpacked(mine["weight_packed"], scheme.num_bits, columns) if "weight_packed" in mine
                                 else mine["weight"].double())
                        self.assertGreaterEqual(float(codes.max()), 1)
                        scale = mine["weight_scale"].double()
                        repeat = columns // scale.shape[-1] if scale.dim() == 2 else 1
                        zero = torch.zeros(1).double()
                        if not scheme.symmetric:
                            zero = mine["weight_zero_point"]
                            zero = (unpacked(zero.T, scheme.num_bits, rows).T if "weight_packed" in mine and zero.dim() == 2
                                    else zero.double())
                            zero = zero.repeat_interleave(repeat, 1) if zero.dim() == 2 else zero
                        values = (codes - zero) * (scale.repeat_interleave(repeat, 1) if scale.dim() == 2 else scale)
                    self.assert_near(values, trained, 1e-6, path)
                    targets = [g for g in config["config_groups"].values() if path in g["targets"]]
                    self.assertEqual(len(targets), 1)
                    self.assertEqual(targets[0]["weights"]["num_bits"], scheme.num_bits)
                learned = [n for n in tensors if "quantizer" in n]
                self.assertEqual(learned, [])

    def test_compressed_tensors_reads_the_same_weights(self):
        try:
            from compressed_tensors.compressors import BaseCompressor
            from compressed_tensors.quantization import QuantizationConfig
        except ImportError as error:
            self.skipTest(f"no compressed-tensors: {error}")
        for name in RECIPES:
            if "block" in name:
                continue
            with self.subTest(name):
                model = quantized(name)
                tensors, section = read(self.exported(model))
                config = QuantizationConfig(**section)
                for group in config.config_groups.values():
                    compressor = BaseCompressor.get_value_from_registry(group.format)
                    for path in group.targets:
                        layer = model.get_submodule(path)
                        state = {n[len(path) + 1:]: t for n, t in tensors.items() if n.startswith(path + ".")}
                        read_again = compressor.decompress(state, group)["weight"]
                        self.assert_near(read_again.double(), layer.weight_quantizer(layer.weight).double(), 1e-6, path)

    def test_ranges_of_inputs(self):
        model = quantized("w2 tensor, a8")
        tensors, config = read(self.exported(model))
        quantizer = model.block["up"].input_quantizer
        lo, hi = quantizer.range.tolist()
        scale = tensors["block.up.input_scale"]
        self.assert_near(scale, torch.tensor([(hi - lo) / 255]), 1e-6)
        self.assertEqual(int(tensors["block.up.input_zero_point"]), round(-lo / float(scale)) - 128)
        group, = (g for g in config["config_groups"].values() if "block.up" in g["targets"])
        self.assertEqual(group["input_activations"]["dynamic"], False)
        self.assertEqual(config["format"], "pack-quantized")

    def test_refusals(self):
        self.assert_refused("expected a model that quantize_() has changed", export, Words(), "folder")
        model = quantized("w8")
        self.assert_refused("expected a folder, or a name that ends in .onnx", export, model, "model.bin")
        self.assert_refused("needs example_inputs", export, model, "model.onnx")
        self.assert_refused("no activations in blocks", export, quantized("w3 affine, a4 block"), "folder")
        self.assert_refused("embedding (Embedding): the ONNX file has tables in float", export, model, "model.onnx", tokens())
        for words, weights, activations in (("its input is quantized", {}, {"num_bits": 8}),
                                            ("have no form in the ONNX file", {"type": "float"}, None)):
            linear = nn.Sequential(nn.Linear(32, 4))
            quantize_(linear, recipe(weights, activations, ["Linear"]))
            self.assert_refused(words, export, linear, "model.onnx", torch.randn(2, 32))
        inputs = Words()
        quantize_(inputs, recipe(None, {"num_bits": 8}, ["Linear"]))
        self.assert_refused("its weights are float", export, inputs, "folder")
        self.assertFalse(os.path.exists("folder") or os.path.exists("model.onnx"))


class Onnx(TorchCase):
    def test_weights_alone(self):
        for weights in ({"num_bits": 8}, {"num_bits": 4, "strategy": "group", "group_size": 8}):
            with self.subTest(weights), tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(0)
                model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
                quantize_(model, recipe(weights, targets=["Linear"]))
                x = torch.randn(5, 16)
                expected = model(x).detach()
                before = {n: p for n, p in model.named_parameters()}
                export(model, f"{folder}/model.onnx", x)
                self.assertTrue(torch.equal(model(x), expected))
                self.assertTrue(all(p is before[n] for n, p in model.named_parameters()))
                self.assertGreater(os.path.getsize(f"{folder}/model.onnx"), 500)
                try:
                    import onnxruntime
                except ImportError:
                    continue
                session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
                out, = session.run(None, {session.get_inputs()[0].name: x.numpy()})
                self.assert_near(torch.from_numpy(out), expected, 1e-5)

    def test_layers_of_sequences(self):
        model = Words(tied=False)
        quantize_(model, recipe({"num_bits": 8}, targets=["Linear"]))
        with tempfile.TemporaryDirectory() as folder:
            export(model, f"{folder}/model.onnx", tokens())
            self.assertGreater(os.path.getsize(f"{folder}/model.onnx"), 500)


if __name__ == "__main__":
    unittest.main()
