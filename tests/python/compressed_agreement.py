#!/usr/bin/env python3
"""Tiny random models of transformers that `steelyard` trains in float and with integer weights and writes as folders again:
what transformers, with compressed-tensors, reads of them beside training. Scales of inputs are largest / 127, as vLLM's
kernels and training have them; compressed-tensors' own 127.5 is replaced. Exit code 1 where a weight differs, or a token's
logits by more than --tolerance, relative to the largest; with inputs of codes, one next to a tie of its grid may get another
code, so of these the median over the tokens counts.

    compressed_agreement.py STEELYARD [--kinds llama qwen2] [--tolerance 1e-5] [--their-scales]
"""
import argparse
import pathlib
import re
import sys
import tempfile

import numpy as np
import torch
import transformers
from compressed_tensors.quantization.utils import helpers

from decoder_agreement import LENGTH, RECIPE, SEQUENCES, TESTED, run
from llama_cpp_agreement import VOCABULARY, model_of

SCHEMES = {
    "float": "",
    "w4a16": "{num_bits: 4, strategy: group, group_size: 32}",
    "w4a16, learned": "{num_bits: 4, strategy: channel}}], algorithm: {method: lsq",
    "w3a16": "{num_bits: 3, strategy: group, group_size: 32}",
    "w8a16": "{num_bits: 8, strategy: channel}",
    "w8a8": "{num_bits: 8, strategy: channel}, activations: {num_bits: 8, symmetric: true, dynamic: true, strategy: token}",
    "w4a8": "{num_bits: 4, strategy: group, group_size: 32}, "
            "activations: {num_bits: 8, symmetric: true, dynamic: true, strategy: token}"}


def divide_by_127():
    """Symmetric scales of inputs of 8 bits, which compressed-tensors computes in each pass, as vLLM's kernels do."""
    theirs = helpers.calculate_qparams

    def ours(min_vals, max_vals, args, **more):
        scales, zero_points = theirs(min_vals, max_vals, args, **more)
        if args.symmetric and args.num_bits == 8:
            scales = torch.maximum(min_vals.abs(), max_vals.abs()) / 127
        return scales, zero_points

    helpers.calculate_qparams = ours


def quantize_section(weights):
    if "algorithm" in weights:
        return f"quantize: {{ignore: [lm_head], groups: [{{targets: [Linear], weights: {weights}}}}}\n"
    return f"quantize: {{ignore: [lm_head], groups: [{{targets: [Linear], weights: {weights}}}]}}\n"


def compare(kind, scheme, program, folder):
    """(the largest and the median difference of a token's logits, what `verify` says)"""
    model = model_of(kind)
    model.save_pretrained(folder / "model", max_shard_size="200KB")
    (folder / "model" / "generation_config.json").write_text("{}\n")
    random = np.random.default_rng(1)
    for split, count in (("train", SEQUENCES), ("test", TESTED)):
        tokens = random.integers(0, VOCABULARY, count * LENGTH + 1).astype(np.uint16)
        tokens.tofile(folder / f"{split}.bin")
    recipe = folder / "recipe.yaml"
    text = RECIPE.format(folder=folder, rate=0.1, length=LENGTH, sequences=SEQUENCES, source="huggingface",
                         model=folder / "model")
    weights = SCHEMES[scheme]
    names = [name for name in ("lm_head",) if not model.config.tie_word_embeddings]
    section = quantize_section(weights) if weights else ""
    recipe.write_text(text + (section if names else section.replace("ignore: [lm_head], ", "")))
    run(program, "train", recipe, "--run-dir", folder / "run", "--set", "train.epochs=3")
    run(program, "export", folder / "run")
    told = run(program, "verify", folder / "run")
    rows = np.stack([tokens[i * LENGTH:(i + 1) * LENGTH] for i in range(TESTED)])
    np.save(folder / "inputs.npy", rows.astype(np.float32))
    lines = run(program, "predict", folder / "run", folder / "inputs.npy", "--format", "csv").splitlines()[1:]
    ours = np.array([[float(x) for x in line.split(",")[1:] if x] for line in lines])[:, -LENGTH * VOCABULARY:]
    again = transformers.AutoModelForCausalLM.from_pretrained(folder / "run" / "export", dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = again(input_ids=torch.from_numpy(rows.astype(np.int64))).logits.numpy()
    ours = ours.reshape(theirs.shape)
    of_tokens = np.abs(ours - theirs).max(-1) / np.abs(theirs).max()
    return float(of_tokens.max()), float(np.median(of_tokens)), told


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steelyard")
    parser.add_argument("--kinds", nargs="+", default=["llama", "qwen2"])
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--their-scales", action="store_true", help="divide by 127.5, and only tell the differences")
    args = parser.parse_args()
    if not args.their_scales:
        divide_by_127()
    wrong = 0
    for kind in args.kinds:
        for scheme in SCHEMES:
            torch.manual_seed(1)
            with tempfile.TemporaryDirectory() as folder:
                largest, median, told = compare(kind, scheme, args.steelyard, pathlib.Path(folder))
            print(f"{kind}, {scheme}: logits differ by {largest:.1e}, median of tokens {median:.1e}")
            print("  " + "\n  ".join(told.splitlines()[1:]))
            difference = median if scheme.endswith("a8") else largest
            wrong += difference > args.tolerance and not args.their_scales
            wrong += any(int(n) > 0 for n in re.findall(r"(\d+) of \d+ (?:weights|others|tokens)", told))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
