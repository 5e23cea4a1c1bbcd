"""Language models of GGUF files: trained, resumed, evaluated, and exported for llama.cpp."""
import json
import math
import os
import random
import re
import shutil
import struct

from cli_case import read_checkpoint
from language_case import LanguageCase
from support.gguf_files import write_llama

RECIPE = """version: 1
name: tiny
data: {dataset: tokens, path: tokens, tokens: {length: 16}, batch_size: 4, normalize: none, validation: 8}
model: {gguf: tiny.gguf}
train: {epochs: 4, loss: token_cross_entropy, optimizer: {type: adamw, lr: 0.01}}
"""
TARGET = "export: {target: gguf-q4_0}\n"


class Language(LanguageCase):
    recipe = RECIPE

    def setUp(self):
        super().setUp()
        write_llama(self.path("tiny.gguf"), seed=1)

    def test_trains_in_float(self):
        trained = self.succeed("train", self.recipe_of(), "--run-dir", "run")
        self.assertRegex(trained, r"test loss [\d.]+  perplexity [\d.]+")
        perplexity = self.perplexity("run")
        self.assertLess(perplexity, 20, "chance is 40")
        with open(self.path("run/summary.json")) as file:
            self.assertAlmostEqual(math.exp(json.load(file)["final"]["loss"]), perplexity, delta=0.02)
        header, _ = read_checkpoint(self.path("run/last.safetensors"))
        self.assertIn("blk_0_attn_q.weight", header)
        self.assertNotIn("output.weight", header)
        os.remove(self.path("tiny.gguf"))
        self.assertEqual(self.perplexity("run"), perplexity, "a checkpoint holds the network")

    def test_resumes_to_the_same_bits(self):
        for more in ("", TARGET):
            recipe = self.recipe_of(more)
            self.succeed("train", recipe, "--run-dir", "whole")
            self.succeed("train", recipe, "--run-dir", "halves", "--set", "train.epochs=2")
            self.succeed("train", recipe, "--run-dir", "halves", "--resume")
            whole, halves = (read_checkpoint(self.path(f"{run}/last.safetensors"))[1] for run in ("whole", "halves"))
            self.assertEqual(whole, halves)
            for run in ("whole", "halves"):
                shutil.rmtree(self.path(run))

    def test_a_file_without_training(self):
        recipe = self.recipe_of(TARGET, **{RECIPE.splitlines()[-1] + "\n": ""})
        written = self.succeed("calibrate", recipe, "--run-dir", "run")
        self.assertIn("nothing was measured: the scales of blocks follow from the weights", written)
        self.succeed("export", "run")
        self.assertRegex(self.succeed("verify", "run"), r": 0 of \d+ weights differ")
        self.succeed("train", self.recipe_of(TARGET), "--run-dir", "trained", "--set", "train.epochs=1",
                     "--set", "train.optimizer={type: sgd, lr: 1.0e-30}")
        self.succeed("export", "trained")
        written = self.succeed("calibrate", self.recipe_of(), "--run-dir", "float")
        self.assertIn("nothing was measured: the model is in float", written)
        self.assertIn(re.search(r"test loss [\d.]+", self.succeed(
            "train", self.recipe_of(), "--run-dir", "kept", "--set", "train.epochs=1",
            "--set", "train.optimizer={type: sgd, lr: 1.0e-30}")).group(), written)
        with open(self.path("run/export/model.gguf"), "rb") as one, open(self.path("trained/export/model.gguf"), "rb") as two:
            self.assertEqual(one.read(), two.read())

    def test_a_run_for_llama_cpp_is_what_its_file_holds(self):
        for target, block in (("gguf-q4_0", 18), ("gguf-q8_0", 34), ("gguf-iq4_nl", 18), ("gguf-mxfp4", 17)):
            recipe = self.recipe_of(TARGET.replace("gguf-q4_0", target))
            notes = self.notes_of("train", recipe, "--run-dir", "run", "--set", "train.epochs=2")
            self.assertIn(f"export.target: {target}: the weights of 8 layers are its blocks in every pass", notes)
            exported = self.succeed("export", "run")
            size = os.path.getsize(self.path("run/export/model.gguf"))
            self.assertIn(f"model.gguf: {target}, {size} bytes", exported)
            weights = 40 * 32 + 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32
            self.assertLess(size - weights // 32 * block, 3000)
            verified = self.succeed("verify", "run")
            self.assertIn(f": 0 of {weights} weights differ from those that training computes with, 0 of 96 others", verified)
            self.assertIn("the file's model: 0 of 160 tokens have other logits", verified)
            # A bit of the last tensor of blocks.
            with open(self.path("run/export/model.gguf"), "r+b") as file:
                file.seek(size - 32 * 4 - 8)
                byte = file.read(1)
                file.seek(size - 32 * 4 - 8)
                file.write(bytes([byte[0] ^ 0x10]))
            self.fail_with(3, "not verified", arguments=["verify", "run"])
            shutil.rmtree(self.path("run"))

    def test_layers_have_their_own_types(self):
        write_llama(self.path("tiny.gguf"), seed=1, tied=False)
        quantize = """quantize:
  ignore: ["re:blk_0_attn_(q|k)", blk_0_ffn_gate]
  groups:
    - {targets: [Embedding, output], weights: {type: q8_0}}
    - {targets: ["re:.*_down"], weights: {type: mxfp4, scale: search}}
    - {targets: ["re:.*_up"], weights: {type: iq4_nl, scale: search}}
    - {targets: [Linear], weights: {scale: search}}
"""
        recipe = self.recipe_of(TARGET + quantize)
        plan = self.succeed("train", recipe, "--run-dir", "run", "--dry-run")
        for row in (r"token_embd +weight +blocks of q8_0 +reference\n",
                    r"output +weight +blocks of q8_0 +reference +inputs are blocks of q8_0\n",
                    r"blk_0_ffn_down +weight +blocks of mxfp4 +search +inputs", r"blk_0_ffn_up +weight +blocks of iq4_nl +search",
                    r"blk_0_attn_output +weight +blocks of q4_0 +search",
                    r"blk_0_attn_q +weight +float +- +ignored by 're:blk_0_attn_\(q\|k\)'"):
            self.assertRegex(plan, row)
        self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=1")
        self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=2", "--resume")
        self.succeed("train", recipe, "--run-dir", "whole", "--set", "train.epochs=2")
        runs = [read_checkpoint(self.path(f"{run}/last.safetensors"))[1] for run in ("run", "whole")]
        self.assertEqual(*runs)
        self.succeed("export", "run")
        verified = self.succeed("verify", "run")
        self.assertIn(f": 0 of {2 * 40 * 32 + 32 * 32 + 16 * 32 + 2 * 64 * 32} weights differ", verified)
        self.assertIn(f", 0 of {32 * 32 + 16 * 32 + 64 * 32 + 3 * 32} others", verified)
        self.assertIn(" 0 of 160 tokens", verified)
        listed = self.succeed("inspect", "run/export/model.gguf")
        for tensor, kind in (("token_embd", "q8_0"), ("output", "q8_0"), ("blk.0.ffn_down", "mxfp4"), ("blk.0.ffn_up", "iq4_nl"),
                             ("blk.0.attn_v", "q4_0"), ("blk.0.attn_q", "f32")):
            self.assertRegex(listed, rf"(?m)^{tensor}\.weight +{kind} ")
        self.assertIn("perplexity", self.succeed("eval", "run"))
        self.fail_with(2, "run: expected layers that integers can have", arguments=["sensitivity", "run"])

    def test_begins_with_a_file_of_k_quants(self):
        """As files of Q4_K_M are: q4_k, and q6_k for the embedding."""
        generator = random.Random(7)

        def stored_as(name, shape):
            blocks = shape[0] * shape[1] // 256
            if name != "token_embd":  # scales, 6 bits of each, nibbles
                return b"".join(struct.pack("<ee", 0.001, 0.01) + generator.randbytes(140) for _ in range(blocks)), 12
            return b"".join(generator.randbytes(208) + struct.pack("<e", 0.0005) for _ in range(blocks)), 14

        write_llama(self.path("tiny.gguf"), seed=1, width=256, hidden=256, stored_as=stored_as)
        with open(self.path("tiny.gguf"), "rb") as file:
            source = file.read()
        recipe = self.recipe_of(**{"epochs: 4,": "epochs: 1, only: [output_norm],"})
        self.succeed("train", recipe, "--run-dir", "float")
        header, data = read_checkpoint(self.path("float/last.safetensors"))
        begin, _ = header["token_embd.weight"]["data_offsets"]
        values = struct.unpack_from("<256f", data, begin)
        at = len(source) - sum(
            size + -size % 32 for size in (40 * 210, *(n * 144 for n in (256, 128, 128, 256, 256, 256, 256)), 3 * 4 * 256))
        block = source[at:at + 210]
        for j, value in enumerate(values):
            half, quarter, l = j // 128, j % 128 // 32, j % 32
            nibbles = block[64 * half + l + 32 * (quarter % 2)]
            code = (nibbles >> 4 if quarter > 1 else nibbles & 15) | ((block[128 + 32 * half + l] >> (2 * quarter)) & 3) << 4
            scale, = struct.unpack_from("<e", block, 208)
            by, = struct.unpack_from("<b", block, 192 + j // 16)
            self.assertEqual(value, scale * by * (code - 32), j)
        self.succeed("train", self.recipe_of(TARGET, **{"epochs: 4,": "epochs: 1,"}), "--run-dir", "run")
        self.succeed("export", "run")
        self.assertIn(" 0 of 160 tokens", self.succeed("verify", "run"))
        write_llama(self.path("tiny.gguf"), seed=1, stored_as=lambda name, shape: (bytes(shape[0] * 144), 12))
        refused = "tensor 'token_embd.weight': expected rows of whole blocks of 256 for q4_k, got rows of 32"
        self.fail_with(2, refused, arguments=["train", recipe, "--run-dir", "short"])

    def test_a_table_that_is_ignored_as_head_or_embedding_stays_in_float(self):
        for ignored, other in (("output", "token_embd"), ("token_embd", "output")):
            recipe = self.recipe_of(TARGET + f"quantize: {{ignore: [{ignored}]}}\n", **{"epochs: 4,": "epochs: 1,"})
            trained = self.succeed("train", recipe, "--run-dir", "run")
            self.assertRegex(trained, rf"\n{other} +weight +float +- +its weight is that of {ignored}\n")
            self.succeed("export", "run")
            self.assertIn(" 0 of 160 tokens", self.succeed("verify", "run"))
            listed = self.succeed("inspect", "run/export/model.gguf")
            for tensor, kind in (("token_embd", "f32"), ("blk.0.attn_v", "q4_0")):
                self.assertRegex(listed, rf"(?m)^{tensor}\.weight +{kind} ")
            shutil.rmtree(self.path("run"))

    def test_says_which_layers_and_types_do_not_fit(self):
        def refused(fragment, quantize, target=TARGET):
            recipe = self.recipe_of(f"{target}quantize: {quantize}\n")
            self.fail_with(2, fragment, arguments=["train", recipe, "--run-dir", "run"])

        refused("quantize.ignore: 'blk_0_atn_q' matches no module (did you mean 'blk_0_attn_q'?)", "{ignore: [blk_0_atn_q]}")
        refused("'blk_0_attn' names blk_0_attn (CausalAttention), which is not quantized by itself", "{ignore: [blk_0_attn]}")
        refused("recipe.yaml:7:32: quantize.groups.0.targets: 'Conv2d' matches no module", "{groups: [{targets: [Conv2d]}]}")
        refused("expected one of q4_0, q8_0, iq4_nl, mxfp4, got 'q4_k'",
                "{groups: [{targets: [Linear], weights: {type: q4_k}}]}")
        refused("unknown key 'num_bits'", "{groups: [{targets: [Linear], weights: {num_bits: 4}}]}")
        refused("scale: search: expected weights of q4_0, iq4_nl or mxfp4, got q8_0",
                "{groups: [{targets: [Linear], weights: {type: q8_0, scale: search}}]}")
        refused("output and token_embd share a weight, which is one tensor of the file: expected both in one type, or "
                "neither, got q4_0 and q8_0", "{groups: [{targets: [Embedding], weights: {type: q8_0}}, {targets: [Linear]}]}")
        refused("got float and q4_0, searched scales", "{groups: [{targets: [Embedding], weights: {scale: search}}]}")
        refused("calibrate needs 'quantize' without 'export.target'", "{ignore: [blk_0_attn_q]}\ncalibrate: {batches: 1}")
        refused("quantize: a language model (model.gguf) needs export.target beside it",
                "{groups: [{targets: [Linear], weights: {num_bits: 8}}]}", target="")
        refused("type: needs export.target", "{groups: [{targets: [Linear], weights: {type: q4_0}}]}", target="")

    def test_data_and_reports_speak_of_tokens(self):
        recipe = self.recipe_of(TARGET)
        self.assertRegex(self.succeed("data", recipe), r"\ntoken +train +test\n0 +\d+ +\d+\n")
        self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=1")
        self.assertNotIn("missing", self.notes_of("report", "run"))

    def test_what_was_trained_in_float_is_exported_by_a_run_with_a_target(self):
        notes = self.notes_of("train", self.recipe_of(), "--run-dir", "float", "--set", "train.epochs=1")
        self.assertIn("can be exported by a run with export.target that begins with its weights", notes)
        self.fail_with(2, "float: a language model was trained in float", arguments=["export", "float"])
        recipe = self.recipe_of(TARGET + "init: {checkpoint: float/last.safetensors}\n")
        self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=1")
        self.succeed("export", "run")

    def test_an_export_does_not_replace_the_float_model(self):
        os.rename(self.path("tiny.gguf"), self.path("model.gguf"))
        before = open(self.path("model.gguf"), "rb").read()
        recipe = self.recipe_of(TARGET, **{"tiny.gguf": "model.gguf"})
        self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=1")
        self.fail_with(2, "model.gguf: is the float model", arguments=["export", "run", "--out", "."])
        self.assertEqual(open(self.path("model.gguf"), "rb").read(), before)

    def test_another_text_need_not_have_the_same_tokens(self):
        self.succeed("train", self.recipe_of(), "--run-dir", "run", "--set", "train.epochs=1")
        for largest, accepted in ((10, True), (39, True), (40, False)):
            with open(self.path("tokens/test.bin"), "wb") as file:
                file.write(struct.pack("<161H", *(i % (largest + 1) for i in range(161))))
            if accepted:
                self.assertIn("perplexity", self.succeed("eval", "run"))
            else:
                self.assertNotEqual(self.run_program("eval", "run").returncode, 0)

    def test_learns_from_itself(self):
        recipe = self.recipe_of(TARGET, **{"epochs: 4,": "epochs: 2, distill: {teacher: self, weight: 1},"})
        self.succeed("train", recipe, "--run-dir", "run")
        self.succeed("export", "run")
        self.assertIn(" 0 of 160 tokens", self.succeed("verify", "run"))

    def test_documents_are_separate(self):
        separate = {"tokens: {length: 16}": "tokens: {length: 16, documents: separate, end: 3}"}
        for more in ("", TARGET):
            self.succeed("train", self.recipe_of(more, **separate), "--run-dir", "run", "--set", "train.epochs=2")
            own = self.perplexity("run")
            joined = self.recipe_of(more + "init: {checkpoint: run/last.safetensors}\n", **{"lr: 0.01": "lr: 1.0e-30"})
            self.succeed("train", joined, "--run-dir", "joined", "--set", "train.epochs=1")
            self.assertNotEqual(self.perplexity("joined"), own, "the same weights over borders")
            for run in ("run", "joined"):
                if more:
                    self.succeed("export", run)
                    self.assertIn(" 0 of 160 tokens", self.succeed("verify", run))
                shutil.rmtree(self.path(run))

    def test_the_file_says_which_token_ends_documents(self):
        write_llama(self.path("tiny.gguf"), seed=1, tokenizer={"tokenizer.ggml.eos_token_id": 3})
        self.require_end_of_documents(3, other=5)

    def test_says_what_documents_need(self):
        def refused(fragment, tokens, **changes):
            recipe = self.recipe_of(**{"tokens: {length: 16}": f"tokens: {{length: 16, {tokens}}}", **changes})
            self.fail_with(2, fragment, arguments=["train", recipe, "--run-dir", "run"])

        refused("data.tokens.end says it", "documents: separate")
        refused("expected the number of a token that ends documents below 40, got 40", "documents: separate, end: 40")
        refused("data.tokens.end: needs data.tokens.documents: separate", "end: 3")
        refused("data.tokens.documents: separate needs model.gguf", "documents: separate", **{"gguf: tiny.gguf": "type: mlp"})

    def test_the_example_trains_and_is_verified(self):
        example = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "language_model.yaml")
        os.rename(self.path("tiny.gguf"), self.path("model.gguf"))
        self.succeed("train", os.path.abspath(example), "--run-dir", "run", "--set", "data.tokens.length=16")
        self.succeed("export", "run")
        self.assertIn(" 0 of 160 tokens", self.succeed("verify", "run"))

    def test_says_what_does_not_fit(self):
        def refused(fragment, more="", **changes):
            self.fail_with(2, fragment, arguments=["train", self.recipe_of(more, **changes), "--run-dir", "run"])

        refused("needs class labels, the dataset has a token at each position (train.loss: token_cross_entropy)",
                **{"loss: token_cross_entropy, ": ""})
        refused("data.normalize: expected none", **{"normalize: none, ": ""})
        refused("'llama.context_length': expected at least the 100 tokens", **{"length: 16": "length: 100"})
        refused("export.target: gguf-q8_0 needs model.gguf", "export: {target: gguf-q8_0}\n",
                **{"gguf: tiny.gguf": "type: mlp"})
        write_llama(self.path("tiny.gguf"), seed=1, vocabulary=30)
        refused("the data has tokens up to 39, the network has outputs [16, 30]")
        write_llama(self.path("tiny.gguf"), seed=1, width=24)
        refused("export.target: token_embd: expected rows of whole blocks of 32 for q4_0, got rows of 24", TARGET)
