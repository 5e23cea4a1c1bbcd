"""Text to tokens, by the vocabularies of GGUF files, beside a plain program of the definition of byte-level BPE."""
import array
import json
import os
import random
import re
import shutil
import subprocess
import unittest

from cli_case import PROGRAM, Case
from support.gguf_files import write_llama
from support.huggingface_files import write_folder

PYTHON = os.environ["STEELYARD_PYTHON"]
LETTER, OTHER = r"[^\W\d_]", r"(?:[^\s\w]|_)"  # without numbers that are no decimal digits
WORDS_OF_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?{LETTER}+| ?\d+| ?{OTHER}+|\s+(?!\S)|\s+"
WORDS_OF_LLAMA3 = (rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|(?:{OTHER}|[^\S\r\n])?{LETTER}+|\d{{1,3}}| ?{OTHER}+[\r\n]*|\s*[\r\n]+"
                   r"|\s+(?!\S)|\s+")
WORDS = {"gpt-2": WORDS_OF_GPT2, "smollm": WORDS_OF_GPT2, "llama-bpe": WORDS_OF_LLAMA3,
         "qwen2": WORDS_OF_LLAMA3.replace("{1,3}", "")}
CONTROL = ["<|begin|>", "<|end|>"]
TEXT = ("It's the first line, isn't it?\nThe 2nd has 12345 numbers;  two spaces\n\n\n  indented\tand tabbed \n"
        "Zażółć gęślą jaźń. Привет, мир! 你好,世界 🙂🙂\r\nWindows' line\r\n \r\nthe the the\n<|end|> is only text\n")


def letters_of_bytes():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


LETTERS = letters_of_bytes()
ORIGINAL = {letter: byte for byte, letter in LETTERS.items()}


def words_of(pre, text):
    parts = re.split(r"(\d)", text) if pre == "smollm" else [text]
    return [w for part in parts for w in re.findall(WORDS[pre], part)]


class Vocabulary:
    """All bytes, and what joins most often in a text."""

    def __init__(self, pre, text, merges):
        self.pre, self.ranks = pre, {}
        self.tokens = [LETTERS[b] for b in range(256)]
        words = [[LETTERS[b] for b in w.encode()] for w in words_of(pre, text)]
        while len(self.ranks) < merges:
            counts = {}
            for word in words:
                for pair in zip(word, word[1:]):
                    counts[pair] = counts.get(pair, 0) + 1
            best = max(counts, key=lambda pair: (counts[pair], pair))
            self.ranks[best] = len(self.ranks)
            self.tokens.append("".join(best))
            words = [self.joined(word, best) for word in words]
        self.numbers = {token: i for i, token in enumerate(self.tokens + CONTROL)}

    @staticmethod
    def joined(word, pair):
        result = []
        for part in word:
            if result and (result[-1], part) == pair:
                result[-1] += part
            else:
                result.append(part)
        return result

    def encode(self, text):
        numbers = []
        for word in words_of(self.pre, text):
            parts = [LETTERS[b] for b in word.encode()]
            while True:
                known = [pair for pair in zip(parts, parts[1:]) if pair in self.ranks]
                if not known:
                    break
                parts = self.joined(parts, min(known, key=self.ranks.get))
            numbers += [self.numbers[part] for part in parts]
        return numbers

    def entries(self, **changes):
        entries = {"model": "gpt2", "pre": self.pre, "tokens": self.tokens + CONTROL,
                   "token_type": [1] * len(self.tokens) + [3] * len(CONTROL),
                   "merges": [" ".join(pair) for pair in self.ranks], "bos_token_id": len(self.tokens),
                   "eos_token_id": len(self.tokens) + 1, **changes}
        return {f"tokenizer.ggml.{key}": value for key, value in entries.items() if value is not None}


@unittest.skipUnless(os.path.exists(PYTHON), "no Python with tokenizers")
class Tokenize(Case):
    def vocabulary(self, words="gpt-2", **changes):
        made = Vocabulary(words, TEXT, 60)
        write_llama(self.path("model.gguf"), seed=1, vocabulary=len(made.numbers), tokenizer=made.entries(**changes))
        return made

    def write(self, name, text):
        with open(self.path(name), "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
        return name

    def numbers(self, path, kind="H"):
        found = array.array(kind)
        with open(self.path(path), "rb") as file:
            found.frombytes(file.read())
        return found.tolist()

    def test_words_and_merges(self):
        self.write("text.txt", TEXT)
        for pre in WORDS:
            with self.subTest(pre):
                made = self.vocabulary(pre)
                begin, end = (made.numbers[token] for token in CONTROL)
                said = self.succeed("tokenize", "model.gguf", "text.txt", "--out", "all.bin", "--overwrite")
                front = [begin] if pre == "llama-bpe" else []
                self.assertEqual(self.numbers("all.bin"), front + made.encode(TEXT) + [end])
                self.assertIn(f"{len(made.encode(TEXT)) + len(front) + 1} tokens of 1 document", said)

    def test_large_texts_are_cut_where_no_word_is(self):
        generator = random.Random(3)
        lines = [*TEXT.split("\n"), "", "  ", "word", "end. ", "7"]
        text = "\n".join(generator.choice(lines) for _ in range(90000))
        self.write("text.txt", text)
        for pre in ("gpt-2", "llama-bpe"):
            made = self.vocabulary(pre, add_bos_token=0)
            known = {}
            expected = []
            for word in words_of(pre, text):
                if word not in known:
                    known[word] = made.encode(word)
                expected += known[word]
            self.succeed("tokenize", "model.gguf", "text.txt", "--out", "all.bin", "--end", "none", "--overwrite")
            self.assertGreater(len(text), 1 << 20)
            self.assertEqual(self.numbers("all.bin"), expected)

    def test_documents(self):
        made = self.vocabulary()
        begin, end = (made.numbers[token] for token in CONTROL)
        documents = ["first one", "", "line\nline", "<|end|>x"]
        self.write("d.jsonl", "".join(json.dumps({"body": d}) + "\n" for d in documents) + "\n")
        self.write("e.txt", "last")
        expected = [t for d in documents + ["last"] if d for t in made.encode(d) + [end]]
        said = self.succeed("tokenize", "model.gguf", "d.jsonl", "e.txt", "--field", "body", "--out", "folder", "--test",
                            "0.25")
        train, test = self.numbers("folder/train.bin"), self.numbers("folder/test.bin")
        self.assertEqual(train + test, expected)
        self.assertEqual(len(test), round(len(expected) / 4))
        self.assertIn("tokens of 4 documents", said)
        self.succeed("tokenize", "model.gguf", "d.jsonl", "--field", "body", "--out", "s.bin", "--special", "--begin",
                     "<|begin|>", "--end", "none")
        self.assertEqual(self.numbers("s.bin"), [begin, *made.encode("first one"), begin, *made.encode("line\nline"), begin,
                                                 end, *made.encode("x")])

    def test_a_models_own_file(self):
        made = self.vocabulary()
        tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": {"type": "Lowercase"}, "pre_tokenizer": None,
                     "post_processor": None, "decoder": None,
                     "model": {"type": "BPE", "vocab": made.numbers, "merges": []}}
        self.write("tokenizer.json", json.dumps(tokenizer))
        self.write("text.txt", "ABC")
        self.succeed("tokenize", "tokenizer.json", "text.txt", "--out", "all.bin", "--end", "<|end|>")
        self.assertEqual(self.numbers("all.bin"), [made.numbers[t] for t in ("a", "b", "c", "<|end|>")])

    def test_trains_what_it_makes(self):
        self.vocabulary()
        self.write("text.txt", TEXT * 20)
        self.succeed("tokenize", "model.gguf", "text.txt", "--out", "tokens")
        self.write("recipe.yaml", "version: 1\nname: tiny\ndata: {dataset: tokens, path: tokens, tokens: {length: 16}, "
                   "normalize: none, validation: 4}\nmodel: {gguf: model.gguf}\ntrain: {epochs: 2, loss: "
                   "token_cross_entropy, optimizer: {type: adamw, lr: 0.01}}\n")
        self.assertIn("perplexity", self.succeed("train", "recipe.yaml", "--run-dir", "run"))

    def test_generates_what_it_has_learned(self):
        made = self.vocabulary()
        text = "The owl sat — quietly — in the tree.\n"
        self.write("text.txt", text * 200)
        self.succeed("tokenize", "model.gguf", "text.txt", "--out", "tokens")
        recipe = ("version: 1\nname: tiny\ndata: {dataset: tokens, path: tokens, tokens: {length: 32}, "
                  "normalize: none, validation: 4, batch_size: 4}\nmodel: {gguf: model.gguf}\ntrain: {epochs: 6, loss: "
                  "token_cross_entropy, optimizer: {type: adamw, lr: 0.01}}\n")
        for target in ("", "export: {target: gguf-q8_0}\n"):
            self.write("recipe.yaml", recipe + target)
            shutil.rmtree(self.path("run"), ignore_errors=True)
            self.succeed("train", "recipe.yaml", "--run-dir", "run")
            tokens = made.encode(text)
            said = self.run_program("generate", "run", "The owl", "--tokens", str(len(tokens)))
            self.assertEqual(said.returncode, 0, said.stderr)
            known = len(made.encode("The owl"))
            expected = b"".join(bytes(ORIGINAL[c] for c in made.tokens[t]) for t in (tokens * 2)[known:known + len(tokens)])
            self.assertEqual(said.stdout, expected.decode() + "\n")
            self.assertRegex(said.stderr, rf"note: {len(tokens)} tokens after {known}, [\d.]+ a second\n")

        def run(model, *arguments):  # what is drawn, or cut off, need not be UTF-8
            return subprocess.run([PROGRAM, "generate", model, *arguments], cwd=self.folder, input=b"The owl", capture_output=True,
                                  timeout=300, check=True)

        drawn = {run("run", "The", "--temperature", "2", "--seed", seed, "--top-k", "40").stdout for seed in "1123"}
        self.assertEqual(len(drawn), 3, "a seed gives one text")
        self.assertIn(b", the context of 64 is full", run("run", "-", "--tokens", "200").stderr)
        self.succeed("export", "run")
        self.assertTrue(run(os.path.join("run", "export", "model.gguf"), "The owl").stdout.startswith(b" sat"))
        with open(self.path("model.gguf"), "ab") as file:
            file.write(b"more")
        self.fail_with(2, "model.gguf: model.gguf: expected the file that the run began with", arguments=("generate", "run", "The"))

    def test_generates_to_the_end_of_a_text(self):
        self.vocabulary(add_bos_token=1)
        self.write("texts.jsonl", '{"text": "one two"}\n' * 400)
        self.succeed("tokenize", "model.gguf", "texts.jsonl", "--out", "tokens")
        self.write("recipe.yaml", "version: 1\nname: tiny\ndata: {dataset: tokens, path: tokens, tokens: {length: 16}, "
                   "normalize: none, validation: 4, batch_size: 4}\nmodel: {gguf: model.gguf}\ntrain: {epochs: 4, loss: "
                   "token_cross_entropy, optimizer: {type: adamw, lr: 0.01}}\n")
        self.succeed("train", "recipe.yaml", "--run-dir", "run")
        for prompt, text in (("", "one two"), ("one", " two")):
            said = self.run_program("generate", "run", prompt)
            self.assertEqual((said.returncode, said.stdout), (0, text + "\n"), said.stderr)
            self.assertIn(", the last one ends the text", said.stderr)
        self.fail_with(2, "expected a prompt of fewer than the 64 tokens of the model's context, got", arguments=(
            "generate", "run", "one two " * 30))
        self.fail_with(2, "expected a text in UTF-8, got 'caf\\xe9'", arguments=("generate", "run", b"caf\xe9"))
        self.fail_with(2, "--top-p", arguments=("generate", "run", "one", "--temperature", "1", "--top-p", "2"))
        self.fail_with(2, "--top-k requires --temperature", arguments=("generate", "run", "one", "--top-k", "2"))
        self.fail_with(2, "--seed", arguments=("generate", "run", "one", "--temperature", "1", "--seed", str(2 ** 64 + 1)))

    def test_generates_by_a_folders_tokenizer(self):
        """Tokens of bytes, and SentencePiece's, with a beginning of text that the tokenizer's template puts there."""
        template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                             {"Sequence": {"id": "A", "type_id": 0}}],
                    "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
        control = [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                    "special": True} for i, text in enumerate(("<s>", "</s>"))]
        made = Vocabulary("gpt-2", TEXT, 10)
        of_bytes = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                    "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                    "normalizer": None}
        vocabulary = {"<s>": 0, "</s>": 1, **{token: i + 2 for i, token in enumerate(made.tokens)}}
        pieces = {"<s>": 0, "</s>": 1, **{f"<0x{b:02X}>": b + 2 for b in range(256)}}
        pieces.update({piece: len(pieces) + i for i, piece in enumerate(("\u2581", *"abcdefghijklmnopqrstuvwxyz."))})
        space = {"String": " "}
        of_pieces = {"pre_tokenizer": None, "normalizer": {"type": "Replace", "pattern": space, "content": "\u2581"},
                     "decoder": {"type": "Sequence", "decoders": [
                         {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"},
                         {"type": "Fuse"}]}}
        for parts, vocab, merges in ((of_bytes, vocabulary, [list(pair) for pair in made.ranks]), (of_pieces, pieces, [])):
            tokenizer = {"version": "1.0", "added_tokens": control, "post_processor": template, **parts,
                         "model": {"type": "BPE", "vocab": vocab, "merges": merges, "byte_fallback": parts is of_pieces,
                                   "fuse_unk": False, "ignore_merges": False}}
            write_folder(self.path("model"), seed=1, vocabulary=len(vocab), tokenizer=tokenizer, eos_token_id=1)
            self.write("texts.jsonl", '{"text": "an owl — quiet"}\n' * 300)
            said = self.succeed("tokenize", "model", "texts.jsonl", "--out", "tokens", "--overwrite")
            self.assertIn("with '<s>' before each and '</s>' behind", said)
            self.write("recipe.yaml", "version: 1\nname: tiny\ndata: {dataset: tokens, path: tokens, tokens: {length: 32}, "
                       "normalize: none, validation: 4, batch_size: 4}\nmodel: {huggingface: model}\ntrain: {epochs: 6, loss: "
                       "token_cross_entropy, optimizer: {type: adamw, lr: 0.01}}\n")
            self.succeed("train", "recipe.yaml", "--run-dir", "run")
            said = self.run_program("generate", "run", "an")
            self.assertEqual((said.returncode, said.stdout), (0, " owl — quiet\n"), said.stderr)
            self.assertIn(", the last one ends the text", said.stderr)
            self.succeed("export", "run")
            self.assertEqual(self.run_program("generate", os.path.join("run", "export"), "an").stdout, " owl — quiet\n")
            inputs = ", activations: {num_bits: 8, symmetric: true, dynamic: true, strategy: token}"
            for activations in ("", inputs):
                self.succeed("train", "recipe.yaml", "--run-dir", "eight", "--set", "quantize={groups: [{targets: [Linear], "
                             f"weights: {{num_bits: 8}}{activations}}}]}}")
                self.assertEqual(self.run_program("generate", "eight", "an").stdout, " owl — quiet\n")
                shutil.rmtree(self.path("eight"))
            for folder in ("run", "tokens", "model"):
                shutil.rmtree(self.path(folder))
        write_folder(self.path("model"), seed=1, tokenizer={"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}})
        self.fail_with(2, "model/tokenizer.json: expected a decoder of type ByteLevel or with ByteFallback",
                       arguments=("generate", "model", "an"))

    def test_several_tokens_end_a_text(self):
        made = Vocabulary("gpt-2", TEXT, 10)
        vocabulary = {**made.numbers, "more": len(made.numbers)}
        tokenizer = {"version": "1.0", "added_tokens": [], "post_processor": None, "normalizer": None,
                     "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                     "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                     "model": {"type": "BPE", "vocab": vocabulary, "merges": [list(pair) for pair in made.ranks]}}
        end = made.numbers["<|end|>"]
        self.write("texts.jsonl", '{"text": "one two"}\n' * 300)
        for ends, refused in (([end, 3], ""), ([len(vocabulary)], "expected a token of the number"), (-1, "got -1"),
                              ("x", "'eos_token_id': expected an integer")):
            write_folder(self.path("model"), seed=1, vocabulary=len(vocabulary), tokenizer=tokenizer, eos_token_id=ends)
            if refused:
                self.fail_with(2, refused, arguments=("tokenize", "model", "texts.jsonl", "--out", "b.bin", "--overwrite"))
                continue
            self.succeed("tokenize", "model", "texts.jsonl", "--out", "tokens", "--overwrite")
            self.assertEqual(self.numbers("tokens/test.bin")[-1], end)
        write_folder(self.path("model"), seed=1, vocabulary=len(vocabulary), tokenizer=tokenizer, eos_token_id=[0, end])
        self.write("recipe.yaml", "version: 1\nname: tiny\ndata: {dataset: tokens, path: tokens, tokens: {length: 32}, normalize: "
                   "none, validation: 4, batch_size: 4}\nmodel: {huggingface: model}\ntrain: {epochs: 4, loss: "
                   "token_cross_entropy, optimizer: {type: adamw, lr: 0.01}}\n")
        self.succeed("train", "recipe.yaml", "--run-dir", "run")
        said = self.run_program("generate", "run", "one")
        self.assertIn(", the last one ends the text", said.stderr)
        write_folder(self.path("model"), seed=1, vocabulary=len(vocabulary), tokenizer=tokenizer, model_type="mistral",
                     sliding_window=16)
        said = subprocess.run([PROGRAM, "generate", "model", "one"], cwd=self.folder, capture_output=True, timeout=300, check=True)
        self.assertIn(b"the context of 16 is full", said.stderr)
        tokenizer["model"] = {"type": "Unigram", "vocab": [["a", 0.5]]}
        write_folder(self.path("model"), seed=1, tokenizer=tokenizer)
        self.fail_with(2, "model/tokenizer.json: expected a model of type BPE", arguments=("generate", "model", "one"))
        self.write("half.jsonl", '{"text": "\\ud800"}\n')
        self.fail_with(2, "half.jsonl:1: expected an object with a text", arguments=(
            "tokenize", self.own_tokenizer(made), "half.jsonl", "--out", "h.bin"))

    def own_tokenizer(self, made):
        self.write("tokenizer.json", json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
                                                 "post_processor": None, "decoder": None,
                                                 "model": {"type": "BPE", "vocab": made.numbers, "merges": []}}))
        return "tokenizer.json"

    def test_inspect_lists_the_vocabulary(self):
        self.vocabulary()
        listed = self.succeed("inspect", "model.gguf")
        self.assertTrue(listed.startswith("model.gguf: GGUF model, 11 tensors\n"), listed)
        self.assertIn("  llama.attention.layer_norm_rms_epsilon = 1e-05\n", listed)
        self.assertIn("  tokenizer.ggml.tokens = 318 texts\n", listed)
        self.assertRegex(listed, r"\nblk\.0\.ffn_down\.weight +f32 +\[32, 64\] +8192 bytes\n")

    def test_what_is_wrong_is_named(self):
        self.vocabulary()
        self.write("text.txt", "text")
        self.write("latin.txt", b"good\n" * 70000 + b"caf\xe9 au lait")
        self.write("d.jsonl", '{"text": "good"}\n{"text": 7}\n')
        self.write("empty.txt", "")

        def refused(text, *arguments, **environment):
            result = self.run_program("tokenize", *arguments, **environment)
            self.assertEqual((result.returncode, result.stdout), (2, ""), result.stderr)
            self.assertIn(text, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1)

        out = ("--out", "all.bin")
        refused("latin.txt: byte 350003: expected UTF-8, got 0xe9", "model.gguf", "latin.txt", *out)
        refused("d.jsonl:2: expected an object with a text 'text'", "model.gguf", "d.jsonl", *out)
        refused("the texts have no tokens", "model.gguf", "empty.txt", *out)
        refused("model.gguf: no token '<eos>'", "model.gguf", "text.txt", *out, "--end", "<eos>")
        refused("nowhere.txt", "model.gguf", "nowhere.txt", *out)
        refused("--test is for a folder", "model.gguf", "text.txt", *out, "--test", "0.5")
        refused("no Python with tokenizers", "model.gguf", "text.txt", *out, "--python", "/bin/false")
        refused("text.txt: ", "text.txt", "text.txt", *out)
        self.write("all.bin", "here")
        refused("all.bin: is there already: --overwrite replaces it", "model.gguf", "text.txt", *out)
        for key, value, said in (("model", "llama", "tokenizer.ggml.model: expected gpt2 (byte-level BPE), got llama"),
                                 ("pre", "other", "tokenizer.ggml.pre: expected one of gpt-2, llama-bpe, qwen2, smollm, got"),
                                 ("merges", None, "expected an entry 'tokenizer.ggml.merges'"),
                                 ("merges", 3, "tokenizer.ggml.merges: expected an array of strings"),
                                 ("merges", ["a"], "model.gguf: "),
                                 ("token_type", [1], "tokenizer.ggml.token_type: expected 318 numbers, got 1"),
                                 ("tokens", ["a", "a"], "tokenizer.ggml.tokens: a is there twice, at 0 and 1"),
                                 ("eos_token_id", 900, "tokenizer.ggml.eos_token_id: expected a number below 318")):
            changes = {key: value, **({"token_type": None} if key == "tokens" else {})}
            self.vocabulary(**changes)
            refused(said, "model.gguf", "text.txt", *out, "--overwrite")


if __name__ == "__main__":
    unittest.main()
