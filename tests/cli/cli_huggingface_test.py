"""Language models of transformers' folders: trained, resumed, evaluated, and written as folders again."""
import json
import os
import shutil
import struct

from cli_case import read_checkpoint
from language_case import LanguageCase
from support.huggingface_files import bf16, write_folder

RECIPE = """version: 1
name: tiny
data: {dataset: tokens, path: tokens, tokens: {length: 16}, batch_size: 4, normalize: none, validation: 8}
model: {huggingface: tiny}
train: {epochs: 2, loss: token_cross_entropy, optimizer: {type: adamw, lr: 0.01}}
"""
LINEARS = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32  # weights
INPUTS = ", activations: {num_bits: 8, symmetric: true, dynamic: true, strategy: token}"


def quantize(weights, more=""):
    return f"quantize: {{groups: [{{targets: [Linear], weights: {{{weights}}}{more}}}]}}\n"


class Huggingface(LanguageCase):
    recipe = RECIPE

    def setUp(self):
        super().setUp()
        write_folder(self.path("tiny"), seed=1)

    def test_a_folder_is_trained_and_written_again(self):
        with open(self.path("tiny/tokenizer.json"), "w") as file:
            file.write("{}")
        recipe = self.recipe_of()
        self.succeed("train", recipe, "--run-dir", "run")
        perplexity = self.perplexity("run")
        self.assertLess(perplexity, 25, "chance is 40")
        self.succeed("train", recipe, "--run-dir", "halves", "--set", "train.epochs=1")
        self.succeed("train", recipe, "--run-dir", "halves", "--resume")
        files = [read_checkpoint(self.path(f"{run}/last.safetensors"))[1] for run in ("run", "halves")]
        self.assertEqual(*files)
        written = self.succeed("export", "run")
        self.assertIn("run/export/tokenizer.json: 2 bytes", written)
        verified = self.succeed("verify", "run")
        self.assertIn(f"0 of 0 weights differ from those that training computes with, 0 of {LINEARS + 40 * 32 + 3 * 32} others",
                      verified)
        self.assertIn("0 of 160 tokens have other logits", verified)
        # The folder is a model again, of the same loss.
        again = self.recipe_of(**{"huggingface: tiny": "huggingface: run/export", "lr: 0.01": "lr: 1.0e-30"})
        self.succeed("train", again, "--run-dir", "again", "--set", "train.epochs=1")
        self.assertEqual(self.perplexity("again"), perplexity)
        self.fail_with(2, "is the float model (model.huggingface)", arguments=["export", "again", "--out", "run/export"])
        shutil.rmtree(self.path("tiny"))
        self.assertEqual(self.perplexity("run"), perplexity, "a checkpoint holds the network")
        self.fail_with(2, "expected the folder that the run began with", arguments=["export", "run"])

    def test_integer_weights_are_those_of_training(self):
        # Codes, scales and shapes of these formats: 4 bits in groups of 16, a byte each, 4 bits with inputs of codes.
        for weights, inputs, size in (("num_bits: 4, strategy: group, group_size: 16", "", LINEARS // 2 + LINEARS // 16 * 4),
                                      ("num_bits: 4, strategy: group, group_size: 64", "", LINEARS // 2),  # longer than rows of 32
                                      ("num_bits: 8, strategy: channel", INPUTS, LINEARS),
                                      ("num_bits: 4, strategy: group, group_size: 16", INPUTS, LINEARS // 2)):
            recipe = self.recipe_of(quantize(weights, inputs))
            self.succeed("train", recipe, "--run-dir", "run")
            self.succeed("export", "run")
            verified = self.succeed("verify", "run")
            self.assertIn(f"0 of {LINEARS} weights differ from those that training computes with", verified)
            self.assertIn("logits: not compared" if inputs else "0 of 160 tokens have other logits", verified)
            header, data = read_checkpoint(self.path("run/export/model.safetensors"))
            self.assertGreater(len(data), size)
            self.fail_with(2, "'quantization_config': expected none", arguments=["generate", "run/export", "a"])
            with open(self.path("run/export/config.json")) as file:
                section = json.load(file)["quantization_config"]
            self.assertEqual(section["ignore"], ["lm_head"])
            self.assertEqual(sum(len(group["targets"]) for group in section["config_groups"].values()), 7)
            name = "model.layers.0.mlp.up_proj.weight" + ("" if "8" in weights.split(",")[0] else "_packed")
            begin, _ = header[name]["data_offsets"]
            self.flip(begin)
            self.fail_with(3, "not verified", arguments=["verify", "run"])
            if name.endswith("_packed"):
                self.succeed("export", "run")
                self.flip(header[name.replace("_packed", "_shape")]["data_offsets"][0])
                self.fail_with(2, "weight_shape': expected [64, 32], got [80, 32]", arguments=["verify", "run"])
            shutil.rmtree(self.path("run"))

    def test_floats_keep_the_type_of_the_source(self):
        write_folder(self.path("tiny"), seed=1, dtype="BF16")
        note = " values that are no codes were trained in float32 and are rounded to the type that the source has for them\n"
        for more, floats in (("", LINEARS + 40 * 32 + 3 * 32), (quantize("num_bits: 4, strategy: group"), 40 * 32 + 3 * 32)):
            recipe = self.recipe_of(more)
            self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=1")
            result = self.run_program("export", "run")
            self.assertRegex(result.stderr, rf"^note: [1-9]\d* of the {floats}{note}$")
            trained_header, trained = read_checkpoint(self.path("run/last.safetensors"))
            header, data = read_checkpoint(self.path("run/export/model.safetensors"))
            for name, theirs in (("model.embed_tokens", "model_embed_tokens"), ("model.norm", "model_norm")):
                self.assertEqual(header[name + ".weight"]["dtype"], "BF16")
                begin, end = header[name + ".weight"]["data_offsets"]
                first, last = trained_header[theirs + ".weight"]["data_offsets"]
                self.assertEqual(data[begin:end], bf16(struct.unpack(f"<{(last - first) // 4}f", trained[first:last])))
            with open(self.path("run/export/config.json")) as file:
                self.assertEqual(json.load(file)["torch_dtype"], "bfloat16")
            verified = self.succeed("verify", "run")
            self.assertIn(f"differ from those that training computes with, 0 of {floats} others", verified)
            self.assertIn("0 of 160 tokens have other logits", verified)
            self.flip(header["model.norm.weight"]["data_offsets"][0])
            self.fail_with(3, "not verified", arguments=["verify", "run"])
            shutil.rmtree(self.path("run"))
        # What is as it was needs no note.
        self.succeed("train", self.recipe_of(**{"lr: 0.01": "lr: 1.0e-30"}), "--run-dir", "run", "--set", "train.epochs=1")
        self.assertEqual(self.run_program("export", "run").stderr, "")

    def test_the_plan(self):
        write_folder(self.path("tiny"), seed=1, blocks=5)
        recipe = self.recipe_of(quantize("num_bits: 4, strategy: group"))
        planned = self.succeed("train", recipe, "--dry-run", "--set", "quantize.ignore=[lm_head]")
        self.assertRegex(planned, r"\nmodel_layers_0\.\.4_mlp_down_proj +weight +int4 symmetric")
        self.assertNotIn("model_layers_1", planned)
        self.assertNotIn("vLLM", planned)
        planned = self.succeed("train", recipe, "--dry-run", "--set", "quantize.ignore=['re:.*3.*up_proj']")
        self.assertRegex(planned, r"\nmodel_layers_3_mlp_up_proj +- +float")
        self.assertIn("note: model_layers_3_mlp_gate_proj, model_layers_3_mlp_up_proj are not all quantized alike: vLLM", planned)
        self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=1")
        self.assertIn("\nmodel_layers_1_mlp_up_proj ", self.read(os.path.join("run", "plan.txt")))

    def test_verify_reads_what_readers_read(self):
        self.succeed("train", self.recipe_of(quantize("num_bits: 4, strategy: group")), "--run-dir", "run")
        self.succeed("export", "run")
        with open(self.path("run/export/config.json")) as file:
            config = json.load(file)
        group = config["quantization_config"]["config_groups"]["group_0"]

        def damaged(fragment, **changes):
            with open(self.path("run/export/config.json"), "w") as file:
                json.dump({**config, **changes}, file)
            self.assertIn(fragment, self.fail_with(3, "not verified", arguments=["verify", "run"]).stdout)

        for key, value in (("rope_theta", 500.0), ("rms_norm_eps", 1e-4)):
            damaged("config.json: describes another network than the run's", **{key: value})
        for key, value in (("input_activations", {"num_bits": 8}), ("weights", {**group["weights"], "group_size": 16})):
            section = {**config["quantization_config"], "config_groups": {"group_0": {**group, key: value}}}
            damaged("'quantization_config' is not that of the run's layers", quantization_config=section)
        with open(self.path("run/export/config.json"), "w") as file:
            json.dump(config, file)
        header, data = read_checkpoint(self.path("run/export/model.safetensors"))
        more = {**header, "model.norm.bias": {"dtype": "I8", "shape": [1], "data_offsets": [len(data), len(data) + 1]}}
        text = json.dumps(more).encode()
        with open(self.path("run/export/model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data + b"\0")
        self.assertIn("tensor 'model.norm.bias' is none of the run's",
                      self.fail_with(3, "not verified", arguments=["verify", "run"]).stdout)

    def test_a_model_in_several_files_is_not_mixed_with_another(self):
        self.succeed("train", self.recipe_of(), "--run-dir", "run", "--set", "train.epochs=1")
        write_folder(self.path("other"), seed=2)
        self.fail_with(2, "model.safetensors.index.json: belongs to another model in this folder",
                       arguments=["export", "run", "--out", "other"])

    def test_a_head_that_is_not_the_table_is_kept(self):
        write_folder(self.path("tiny"), seed=1, tied=False, tie_word_embeddings=True)
        self.succeed("train", self.recipe_of(), "--run-dir", "run", "--set", "train.epochs=1")
        self.assertIn("lm_head.weight", read_checkpoint(self.path("run/last.safetensors"))[0])

    def test_tokens_of_four_bytes_are_not_read_as_two(self):
        with open(self.path("tokens/train.bin"), "wb") as file:
            file.write(struct.pack("<961I", *(i % 40 for i in range(961))))
        self.fail_with(2, "tokens/train.bin: every second token is 0: expected tokens of u16, these look like u32 "
                       "(data.tokens.type)", arguments=["train", self.recipe_of(), "--run-dir", "run"])

    def flip(self, offset):
        with open(self.path("run/export/model.safetensors"), "r+b") as file:
            size, = struct.unpack("<Q", file.read(8))
            file.seek(8 + size + offset)
            byte = file.read(1)
            file.seek(8 + size + offset)
            file.write(bytes([byte[0] ^ 0x10]))

    def test_learned_scales_and_calibration(self):
        learned = ("quantize: {groups: [{targets: [Linear], weights: {num_bits: 4, strategy: channel}}], "
                   "algorithm: {method: lsq}}\n")
        self.succeed("train", self.recipe_of(learned), "--run-dir", "run")
        self.succeed("export", "run")
        self.assertIn("0 of 160 tokens have other logits", self.succeed("verify", "run"))
        self.succeed("calibrate", self.recipe_of(quantize("num_bits: 4, strategy: group"), **{RECIPE.splitlines()[-1] + "\n": ""}),
                     "--run-dir", "plain")
        self.succeed("export", "plain")
        self.assertIn("0 of 160 tokens have other logits", self.succeed("verify", "plain"))

    def test_documents_end_where_the_folder_says(self):
        self.require_end_of_documents(3, other=5)

    def test_learns_from_itself(self):
        recipe = self.recipe_of(quantize("num_bits: 4, strategy: group"),
                                **{"epochs: 2,": "epochs: 1, distill: {teacher: self, weight: 1},"})
        self.succeed("train", recipe, "--run-dir", "run")
        self.succeed("train", recipe, "--run-dir", "run", "--resume")

    def test_says_what_does_not_fit(self):
        def refused(fragment, more="", **changes):
            self.fail_with(2, fragment, arguments=["train", self.recipe_of(more, **changes), "--run-dir", "run"])

        refused("model.huggingface: none: ", **{"huggingface: tiny": "huggingface: none"})
        refused("expected a folder with config.json", **{"huggingface: tiny": "huggingface: recipe.yaml"})
        refused("tokens/config.json: ", **{"huggingface: tiny": "huggingface: tokens"})
        os.makedirs(self.path("broken"))
        with open(self.path("broken/config.json"), "w") as file:
            file.write('{\n "model_type": llama}')
        refused("broken/config.json:2:16: is no JSON: invalid literal", **{"huggingface: tiny": "huggingface: broken"})
        refused("'max_position_embeddings': expected at least the 100 tokens", **{"length: 16": "length: 100"})
        refused("exactly one of 'type', 'layers', 'onnx', 'gguf' and 'huggingface'",
                **{"huggingface: tiny": "huggingface: tiny, gguf: a.gguf"})
        refused("export.target: gguf-q8_0 needs model.gguf", "export: {target: gguf-q8_0}\n")
        refused("export.formats: a language model of model.huggingface becomes such a folder", "export: {formats: [onnx]}\n")
        refused("expected symmetric weights", quantize("num_bits: 4, symmetric: false"))
        refused("expected activations with dynamic: true", quantize("num_bits: 8", ", activations: {num_bits: 8}"))
        self.succeed("train", self.recipe_of(), "--run-dir", "run", "--set", "train.epochs=1")
        self.fail_with(2, "expected none of --format, --profile, --no-int4 and --stream", arguments=["export", "run", "--format", "onnx"])
        self.fail_with(2, "run/export: is not there: `steelyard export run` writes it", arguments=["verify", "run"])
        with open(self.path("tiny/config.json"), "a") as file:
            file.write(" ")
        self.fail_with(2, "expected the folder that the run began with (sha256", arguments=["export", "run"])
