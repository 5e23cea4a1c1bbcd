#!/usr/bin/env python3
"""What a language model loses in a target of llama.cpp's, and what training on that target's arithmetic gives back: the
perplexity and the divergence from float of each exported file, in llama.cpp with keys and values in float32. Needs gguf and
llama-cpp-python. Rows: `float` (the source's weights in float32), `plain` (a target's own rule), `searched` (scales of the
least error) and `trained` (the recipe's distillation from the float model, which begins with the plain rule).

    language_quality.py STEELYARD MODEL.gguf FOLDER --train TOKENS.bin --test A.bin [B.bin ...] [--out RESULT.json]

Token files are those of `steelyard tokenize MODEL.gguf ... --out NAME.bin`, u16. A run that is there is gone on with, an
export that is there is measured.
"""
import argparse
import datetime
import json
import pathlib
import subprocess
import time

import gguf
import numpy as np
import yaml

from machine import cpu_name

LENGTH = 512


def recipe_of(row, arguments, folder):
    """The recipe of a row: that of examples/language_model.yaml, or one that is not trained."""
    recipe = {"version": 1, "name": row, "seed": 1,
              "data": {"dataset": "tokens", "path": str(folder / "tokens"), "tokens": {"length": LENGTH, "type": "u16"},
                       "batch_size": arguments.batch, "normalize": "none", "validation": 8},
              "model": {"gguf": str(arguments.model)}, "export": {"target": arguments.target}}
    if row == "searched":
        recipe["quantize"] = {"groups": [{"targets": ["Linear", "Embedding"], "weights": {"scale": "search"}}]}
    if row == "trained":
        recipe["train"] = {"epochs": 1, "loss": "token_cross_entropy", "distill": {"teacher": "self", "weight": 1},
                           "optimizer": {"type": "adamw", "lr": arguments.lr}, "lr_schedule": {"type": "cosine"},
                           "checkpoint_every_steps": 25}
    return recipe


def write_float(source, path):
    """The source file with all weights in float32."""
    reader = gguf.GGUFReader(source)
    out = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        out.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
    out.add_file_type(0)
    for tensor in reader.tensors:
        out.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def log_probabilities(path, windows, threads):
    """Of every token that follows one in its window: [windows, LENGTH, vocabulary], float32, a window at a time."""
    import llama_cpp
    model = llama_cpp.Llama(str(path), n_ctx=LENGTH, n_batch=LENGTH, n_ubatch=LENGTH, logits_all=True, verbose=False,
                            n_threads=threads, n_threads_batch=threads, type_k=llama_cpp.GGML_TYPE_F32,
                            type_v=llama_cpp.GGML_TYPE_F32)
    for window in windows:
        model.reset()
        model.eval([int(token) for token in window[:LENGTH]])
        logits = np.array(model.scores[:LENGTH], dtype=np.float32)
        logits -= logits.max(axis=1, keepdims=True)
        yield logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def windows_of(path, count):
    tokens = np.fromfile(path, dtype="<u2")
    count = min(count, (len(tokens) - 1) // LENGTH)
    return [tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(count)]


def judge(files, test, count, threads):
    """For each file {perplexity, divergence from the first file's distribution, share of the same top token}."""
    windows = windows_of(test, count)
    sums = {name: np.zeros(3) for name in files}
    readers = {name: log_probabilities(path, windows, threads) for name, path in files.items()}
    for window in windows:
        reference = None
        for name, reader in readers.items():
            values = next(reader)
            reference = values if reference is None else reference
            loss = -values[np.arange(LENGTH), window[1:]].sum(dtype=np.float64)
            divergence = (np.exp(reference) * (reference - values)).sum(dtype=np.float64)
            same = (values.argmax(axis=1) == reference.argmax(axis=1)).sum()
            sums[name] += (loss, divergence, same)
    tokens = len(windows) * LENGTH
    return tokens, {name: {"perplexity": float(np.exp(loss / tokens)), "divergence": divergence / tokens,
                           "same_top_token": same / tokens} for name, (loss, divergence, same) in sums.items()}


def given_back(rows, name):
    """The share, in percent, of the loss that `plain` adds to that of `float`."""
    loss = {row: np.log(rows[row]["perplexity"]) for row in ("float", "plain", name)}
    return 100 * (loss["plain"] - loss[name]) / (loss["plain"] - loss["float"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steelyard")
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--train", type=pathlib.Path, required=True)
    parser.add_argument("--test", type=pathlib.Path, nargs="+", required=True, help="the first one is the runs' own, too")
    parser.add_argument("--target", default="gguf-q4_0")
    parser.add_argument("--rows", nargs="+", default=["plain", "searched", "trained"],
                        choices=["plain", "searched", "trained"])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--windows", type=int, default=16, help=f"of {LENGTH} tokens of each test file")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()

    tokens = arguments.folder / "tokens"
    tokens.mkdir(parents=True, exist_ok=True)
    for name, path in (("train.bin", arguments.train), ("test.bin", arguments.test[0])):
        if not (tokens / name).exists():
            (tokens / name).write_bytes(path.read_bytes())
    files = {"float": arguments.folder / "float.gguf"}
    if not files["float"].exists():
        write_float(arguments.model, files["float"])
    seconds = {}
    for row in arguments.rows:
        run = arguments.folder / row
        files[row] = run / "export" / "model.gguf"
        if files[row].exists():
            continue
        recipe = arguments.folder / f"{row}.yaml"
        recipe.write_text(yaml.safe_dump(recipe_of(row, arguments, arguments.folder)))
        start = time.monotonic()
        verb = ["train", "--resume"] if (run / "last.safetensors").exists() else ["train" if row == "trained" else "calibrate"]
        subprocess.run([arguments.steelyard, *verb, str(recipe), "--run-dir", str(run)], check=True)
        subprocess.run([arguments.steelyard, "export", str(run)], check=True)
        seconds[row] = time.monotonic() - start
    result = {"date": datetime.date.today().isoformat(), "cpu": cpu_name(), "model": arguments.model.name,
              "target": arguments.target, "training_tokens": tokens.joinpath("train.bin").stat().st_size // 2,
              "lr": arguments.lr, "batch": arguments.batch, "seconds": seconds, "texts": {}}
    for test in arguments.test:
        count, rows = judge(files, test, arguments.windows, arguments.threads)
        result["texts"][test.stem] = {"tokens": count, "rows": rows}
        print(f"{test.stem}, {count} tokens")
        for name, row in rows.items():
            kept = "" if "plain" not in rows or name in ("float", "plain") else \
                f"  gives back {given_back(rows, name):.1f} % of the loss that plain adds"
            print(f"  {name:10} perplexity {row['perplexity']:8.3f}  divergence {row['divergence']:.5f}  "
                  f"same top token {100 * row['same_top_token']:.2f} %{kept}")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
