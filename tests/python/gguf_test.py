"""Language models for llama.cpp: the arithmetic of its blocks in torch, and GGUF files with the codes of training."""
import pathlib
import tempfile

import numpy as np

import gguf_reference as reference
from torch_case import TorchCase, nn, steelyard, torch
from steelyard.torch import _blocks

TARGETS = ("q4_0", "q8_0", "iq4_nl", "mxfp4")


def recipe(kind="q4_0", **quantize):
    return {"version": 1, "name": kind, "export": {"target": f"gguf-{kind}"}, **({"quantize": quantize} if quantize else {})}


def blocks_of(x, kind):
    return _blocks.encode(x, kind).numpy().tobytes()


class Blocks(TorchCase):
    def test_values_are_those_of_the_blocks(self):
        x = torch.randn(5, 3, 64)
        for kind in TARGETS:
            with self.subTest(kind):
                values = _blocks.block_values(x, kind)
                expected = reference.values_of(kind, x.shape, blocks_of(x, kind))
                self.assertEqual(values.numpy().tobytes(), expected.astype(np.float32).tobytes())
                self.assertLess(float((values - x).abs().mean()), 0.2)

    def test_products_are_integers_times_scales(self):
        x, weight = torch.randn(3, 7, 96), torch.randn(40, 96)
        codes, scales = (a.reshape(21, 3, *a.shape[1:]) for a in reference.input_blocks(x.numpy()))
        for kind in TARGETS:
            with self.subTest(kind):
                w_codes, w_scales = (a.reshape(40, 3, *a.shape[1:])
                                     for a in reference.codes_and_scales(kind, blocks_of(weight, kind)))
                expected = np.zeros((21, 40), np.float32)
                for b in range(3):
                    whole = (codes[:, b] @ w_codes[:, b].T).astype(np.float32)  # below 2^24: exact
                    expected += scales[:, b, None] * w_scales[None, :, b] * whole
                y = _blocks.block_linear(x, weight, kind)
                self.assertEqual(y.shape, (3, 7, 40))
                self.assertEqual(y.reshape(21, 40).numpy().tobytes(), expected.tobytes())

    def test_gradients_are_those_of_the_values(self):
        for dtype, bound in ((torch.float32, 1e-6), (torch.bfloat16, 2e-2)):
            x = torch.randn(4, 64).to(dtype).requires_grad_()
            weight = torch.randn(8, 64).to(dtype).requires_grad_()
            y = _blocks.block_linear(x, weight, "q4_0")
            self.assertEqual(y.dtype, dtype)
            grad = torch.randn(4, 8).to(dtype)
            y.backward(grad)
            with torch.no_grad():
                self.assert_near(x.grad, grad @ _blocks.block_values(weight, "q4_0"), bound)
                self.assert_near(weight.grad, grad.t() @ _blocks.block_values(x, "inputs"), bound)
        x = torch.randn(2, 32, requires_grad=True)
        grad = torch.randn(2, 32)
        _blocks.block_values(x, "mxfp4").backward(grad)
        self.assertTrue(torch.equal(x.grad, grad))

    def test_torchs_own_checks(self):
        if not hasattr(torch.library, "opcheck"):
            self.skipTest("torch has no opcheck")
        x, weight = torch.randn(4, 64, requires_grad=True), torch.randn(8, 64, requires_grad=True)
        torch.library.opcheck(torch.ops.steelyard.block_values, (x, "q4_0"))
        torch.library.opcheck(torch.ops.steelyard.block_linear, (x, weight, "q4_0"))

    def test_nan_is_seen(self):
        x, weight = torch.randn(3, 64), torch.randn(8, 64)
        x[1, 40] = float("inf")
        weight[2, 3] = float("nan")
        y = _blocks.block_linear(x, weight, "mxfp4")
        expected = torch.zeros(3, 8, dtype=torch.bool)
        expected[1], expected[:, 2] = True, True
        self.assertTrue(torch.equal(y.isnan(), expected))

    def test_other_shapes_and_types_are_refused(self):
        self.assert_refused("whole blocks of 32 for q4_0, got rows of 33", _blocks.encode, torch.zeros(2, 33), "q4_0")
        self.assert_refused("or q2_0, got 'q9'", _blocks.encode, torch.zeros(2, 32), "q9")
        self.assert_refused("a float type", _blocks.encode, torch.zeros(2, 32, dtype=torch.int32), "q4_0")


class Files(TorchCase):
    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def source(self, model, **options):
        path = self.folder / "source.gguf"
        path.write_bytes(reference.float_file(model, **options))
        return path

    def train(self, model, steps=3):
        ids = torch.randint(0, 64, (2, 9))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        return losses

    def export(self, model, source):
        out = self.folder / "out.gguf"
        steelyard.torch.export_gguf(model, source, out)
        return reference.tensors_of(out.read_bytes())

    def test_the_files_codes_are_those_of_training(self):
        for kind, tied in zip(TARGETS, (True, False, True, False)):
            with self.subTest(kind):
                model = reference.Llama(tied)
                source = self.source(model, kind="f16")
                steelyard.torch.quantize_(model, recipe(kind))
                losses = self.train(model, 6)
                self.assertLess(losses[-1], 0.9 * losses[0])
                tensors, metadata = self.export(model, source)
                before = reference.tensors_of(source.read_bytes())
                self.assertEqual(list(tensors), list(before[0]))
                number = {"q4_0": 2, "q8_0": 7, "iq4_nl": 25, "mxfp4": 38}[kind]
                self.assertEqual(metadata, {**before[1], "general.file_type": number})
                for path, layer in model.named_modules():
                    if isinstance(layer, (nn.Linear, nn.Embedding)):
                        trained = layer.weight_quantizer(layer.weight).detach().numpy()
                        stored = tensors[reference.tensor_name(path + ".weight")] if not (tied and path == "lm_head") else \
                            tensors["token_embd.weight"]
                        self.assertEqual(stored[0], kind)
                        theirs = reference.values_of(*stored)
                        self.assertEqual(int((theirs != reference.reordered(path + ".weight", trained)).sum()), 0, path)
                    elif isinstance(layer, reference.Norm):
                        stored = tensors[reference.tensor_name(path + ".weight")]
                        self.assertEqual(stored[2], layer.weight.detach().numpy().tobytes())

    def test_a_file_that_is_not_trained_stays_the_same_bytes(self):
        for kind in ("q4_0", "q8_0", "mxfp4"):
            with self.subTest(kind):
                model = reference.Llama()
                source = self.source(model)
                steelyard.torch.quantize_(model, recipe(kind))
                steelyard.torch.export_gguf(model, source, self.folder / "first.gguf")
                again = steelyard.torch.load_gguf(reference.Llama(), self.folder / "first.gguf")
                steelyard.torch.quantize_(again, recipe(kind))
                again.eval()
                again(torch.zeros(1, 3, dtype=torch.long))
                steelyard.torch.export_gguf(again, self.folder / "first.gguf", self.folder / "second.gguf")
                self.assertEqual((self.folder / "second.gguf").read_bytes(), (self.folder / "first.gguf").read_bytes())
                for ours, theirs in zip(again.parameters(), model.parameters()):
                    if ours.dim() > 1:
                        theirs = _blocks.block_values(theirs, kind)
                    self.assertTrue(torch.equal(ours, theirs))

    def test_layers_may_stay_in_float_or_have_another_type(self):
        model = reference.Llama(False)
        source = self.source(model, kind="f16")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.half().float())
        steelyard.torch.quantize_(model, recipe(
            "q4_0", ignore=["lm_head", "re:.*o_proj"],
            groups=[{"targets": ["Embedding"], "weights": {"type": "q8_0"}}, {"targets": ["Linear"]}]))
        with torch.no_grad():
            model.model.layers[0].self_attn.o_proj.weight[0, 0] = 1 + 2.0 ** -20  # which float16 has not
        tensors, metadata = self.export(model, source)
        types = {name: kind for name, (kind, _, _) in tensors.items()}
        self.assertEqual(types["token_embd.weight"], "q8_0")
        self.assertEqual(types["blk.0.attn_q.weight"], "q4_0")
        self.assertEqual(types["blk.0.attn_output.weight"], "f32")
        self.assertEqual(types["blk.1.attn_output.weight"], "f16")
        self.assertEqual(types["output.weight"], "f16")
        self.assertEqual(metadata["general.file_type"], 2)
        stored = reference.values_of(*tensors["blk.0.attn_output.weight"])
        self.assertEqual(stored.tobytes(), model.model.layers[0].self_attn.o_proj.weight.detach().numpy().tobytes())

    def test_scales_may_be_searched(self):
        for rule in ("reference", "search"):
            torch.manual_seed(3)
            model = reference.Llama()
            source = self.source(model)
            plan = steelyard.torch.quantize_(model, recipe("q4_0", groups=[
                {"targets": ["Linear", "Embedding"], "weights": {"scale": rule}}]))
            self.assertEqual("gguf q4_0, searched scales" in plan, rule == "search")
            losses = self.train(model, 6)
            self.assertLess(losses[-1], losses[0])
            tensors, _ = self.export(model, source)
            weight = model.model.layers[0].mlp.up_proj.weight.detach()
            stored = reference.values_of(*tensors["blk.0.ffn_up.weight"])
            trained = model.model.layers[0].mlp.up_proj.weight_quantizer(weight).detach().numpy()
            self.assertEqual(stored.tobytes(), trained.tobytes())
            y = _blocks.block_linear(torch.eye(weight.shape[1]), weight, "q4_0_searched" if rule == "search" else "q4_0")
            self.assert_near(y.t(), torch.from_numpy(trained), 1e-2)
            plain = float((weight - _blocks.block_values(weight, "q4_0")).pow(2).sum())
            error = float((weight - torch.from_numpy(trained)).pow(2).sum()) / plain
            self.assertLess(error, 0.9) if rule == "search" else self.assertEqual(error, 1)
        self.assert_refused("groups[0].weights.scale: search: expected weights of q4_0, iq4_nl or mxfp4, got q8_0",
                            steelyard.torch.quantize_, reference.Llama(), recipe("q8_0", groups=[
                                {"targets": ["Linear", "Embedding"], "weights": {"scale": "search"}}]))

    def test_the_plan_says_the_types(self):
        plan = steelyard.torch.quantize_(reference.Llama(), recipe("iq4_nl"))
        self.assertIn("gguf iq4_nl", plan)
        self.assertIn("gguf q8_0 inputs", plan)
        self.assertIn("shares its weight with model.embed_tokens", plan)

    def test_recipes_of_other_arithmetic_are_refused(self):
        def refused(words, **keys):
            self.assert_refused(words, steelyard.torch.quantize_, reference.Llama(), {**recipe(), **keys})

        refused("expected one of gguf-q4_0, gguf-q8_0, gguf-iq4_nl, gguf-mxfp4, got 'gguf-q3'", export={"target": "gguf-q3"})
        refused("export.formats: quantize_() has no such key", export={"formats": ["onnx"]})
        refused("groups[0].weights.num_bits: quantize_() has no such key",
                quantize={"groups": [{"targets": ["Linear"], "weights": {"num_bits": 4}}]})
        refused("groups[0].activations: quantize_() has no such key",
                quantize={"groups": [{"targets": ["Linear"], "activations": {"num_bits": 8}}]})
        refused("export.target fixes the scales, which lsq would learn", quantize={"algorithm": {"method": "lsq"}})
        self.assert_refused("type: expected one of int, float, got 'q4_0'", steelyard.torch.quantize_, reference.Llama(),
                            {"version": 1, "quantize": {"groups": [{"targets": ["Linear"], "weights": {"type": "q4_0"}}]}})
        self.assert_refused("got rows of 33: put the name in ignore", steelyard.torch.quantize_, nn.Sequential(nn.Linear(33, 4)),
                            recipe())

    def test_files_of_other_models_are_refused(self):
        def refused(words, model, source):
            self.assert_refused(words, steelyard.torch.export_gguf, model, source, self.folder / "out.gguf")
            self.assertFalse((self.folder / "out.gguf").exists())

        model = reference.Llama()
        source = self.source(model)
        refused("expected a model that quantize_() has changed", model, source)
        tied = reference.Llama()
        steelyard.torch.quantize_(tied, recipe(groups=[{"targets": ["Linear"]}]))
        refused("lm_head and model.embed_tokens share a weight", tied, source)
        integers = reference.Llama()
        steelyard.torch.quantize_(integers, {"version": 1, "quantize": {"groups": [
            {"targets": ["Linear", "Embedding"], "weights": {"num_bits": 4}}]}})
        refused("has no weights of int4", integers, source)
        steelyard.torch.quantize_(model, recipe())
        self.assert_refused("expected export_gguf", steelyard.torch.export, model, self.folder / "folder")
        refused("cannot open", model, self.folder / "none.gguf")
        refused("one of llama, qwen2, qwen3, got 'mamba'", model, self.source(
            model, metadata={**reference.METADATA, "general.architecture": "mamba"}))
        refused("tensor 'output.weight': the model has no parameter for it", self.without_head(), self.source(
            reference.Llama(False)))
        untied = reference.Llama(False)
        steelyard.torch.quantize_(untied, recipe())
        refused("has no tensor for the model's parameter lm_head.weight", untied, self.source(reference.Llama()))
        with torch.no_grad():
            model.model.layers[1].mlp.up_proj.weight[3, 4] = float("nan")
        refused("model.layers.1.mlp.up_proj.weight: expected finite weights", model, self.source(reference.Llama()))
        path = self.folder / "cut.gguf"
        path.write_bytes(source.read_bytes()[:300])
        refused(f"{path}: offset ", model, path)

    def without_head(self):
        model = reference.Llama()
        del model.lm_head
        steelyard.torch.quantize_(model, recipe())
        return model
