#!/usr/bin/env python3
"""Are the tokens of `steelyard tokenize` those of tiktoken?

usage: tests/python/tokenizer_agreement.py PROGRAM VOCABULARY [TEXT...] [--lines 1000000] [--python PYTHON]

VOCABULARY is a file of tiktoken's, such as Llama 3's tokenizer.model: a token in base 64 and its rank in each line. A GGUF
file is made of it, with each way to cut words that is known there. The lines are half those of TEXT (files, or folders with
some; others are made in their place) and half random characters; they are encoded as documents of their own, and those of
TEXT once more as one document. Needs tiktoken and regex, and in PYTHON (default: this one) tokenizers.
"""
import argparse
import base64
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import numpy as np
import regex
import tiktoken

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from support.gguf_files import write_gguf  # noqa: E402

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PATTERNS = {"gpt-2": GPT2, "llama-bpe": LLAMA3, "qwen2": LLAMA3.replace("{1,3}", ""), "smollm": GPT2}
SCRIPTS = [(0x20, 0x7f), (0xa0, 0x180), (0x370, 0x400), (0x400, 0x530), (0x590, 0x600), (0x600, 0x700), (0x900, 0x980),
           (0xe00, 0xe80), (0x1100, 0x1200), (0x3040, 0x3100), (0x4e00, 0x9fff), (0xac00, 0xd7a4), (0x1f300, 0x1f700),
           (0x2000, 0x2070), (0x300, 0x370), (9, 14)]
END = "<|end|>"


def printable_bytes():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


LETTERS = printable_bytes()


def read_vocabulary(path):
    with open(path, "rb") as file:
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file if line.strip())}


def merge_of(ranks, token):
    """The two tokens that this one is joined from, by the ranks below its own; None where there is none."""
    parts = [bytes([b]) for b in token]
    while len(parts) > 2:
        rank, i = min((ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
        if rank >= ranks[token]:
            return None
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return parts


def write_model(path, ranks, pre):
    text = lambda token: "".join(LETTERS[b] for b in token)  # noqa: E731
    tokens = sorted(ranks, key=ranks.get)
    merges = [merge_of(ranks, t) for t in tokens if len(t) > 1]
    write_gguf(path, {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
                      "tokenizer.ggml.tokens": [*map(text, tokens), END],
                      "tokenizer.ggml.token_type": [1] * len(tokens) + [3],
                      "tokenizer.ggml.merges": [f"{text(m[0])} {text(m[1])}" for m in merges if m],
                      "tokenizer.ggml.eos_token_id": len(tokens), "tokenizer.ggml.add_bos_token": 0},
               {"token_embd.weight": ((1, 32), [0.0] * 32)})


def random_line(generator):
    if generator.random() < 0.1:
        points = (generator.randrange(0x110000) for _ in range(20))
        return "".join(chr(c) for c in points if not 0xd800 <= c < 0xe000)
    begin, end = generator.choice(SCRIPTS)
    line = []
    for _ in range(generator.randint(1, 40)):
        if generator.random() < 0.15:
            begin, end = generator.choice(SCRIPTS)
        line.append(generator.choice(" \n\t'\r") if generator.random() < 0.2 else chr(generator.randrange(begin, end)))
    return "".join(line)


def lines_of(paths, count):
    lines = []
    for path in map(pathlib.Path, paths):
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if len(lines) >= count:
                break
            try:
                lines += [line for line in file.read_bytes().decode().split("\n") if line]
            except (OSError, UnicodeDecodeError):
                continue
    return lines[:count]


class Reference:
    def __init__(self, ranks, pre):
        # tiktoken takes a word that is a token as it is, which only Llama 3's way does, too.
        known = ranks if pre == "llama-bpe" else {t: r for t, r in ranks.items() if len(t) == 1 or merge_of(ranks, t)}
        self.encoding = tiktoken.Encoding(pre, pat_str=PATTERNS[pre], mergeable_ranks=known, special_tokens={END: len(ranks)})
        self.pre, self.end = pre, len(ranks)

    def encode(self, documents):
        if self.pre == "qwen2":
            documents = [unicodedata.normalize("NFC", d) for d in documents]
        pieces = [regex.split(r"(\p{N})", d) if self.pre == "smollm" else [d] for d in documents]
        encoded = iter(self.encoding.encode_ordinary_batch([p for parts in pieces for p in parts], num_threads=2))
        for parts in pieces:
            tokens = [token for _ in parts for token in next(encoded)]
            if tokens:
                yield from tokens
                yield self.end


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("vocabulary")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--python", default=sys.executable)
    options = parser.parse_args()
    ranks = read_vocabulary(options.vocabulary)
    generator = random.Random(7)
    real = lines_of(options.texts, options.lines // 2)
    lines = real + [random_line(generator) for _ in range(options.lines - len(real))]
    whole = "\n".join(real or lines)
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "lines.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
        (folder / "whole.txt").write_bytes(whole.encode())
        for pre in PATTERNS:
            write_model(folder / "model.gguf", ranks, pre)
            reference = Reference(ranks, pre)
            for file, documents in (("lines.jsonl", lines), ("whole.txt", [whole])):
                subprocess.run([options.program, "tokenize", folder / "model.gguf", folder / file, "--out", folder / "o.bin",
                                "--overwrite", "--python", options.python], check=True, stdout=subprocess.DEVNULL)
                found = np.fromfile(folder / "o.bin", np.uint32 if len(ranks) >= 1 << 16 else np.uint16)
                expected = np.fromiter(reference.encode(documents), np.uint32)
                same = np.array_equal(found, expected)
                wrong += not same
                print(f"{pre}, {file}: {len(expected)} tokens of {len(documents)} documents, "
                      f"{'the same' if same else 'DIFFERENT'}", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
