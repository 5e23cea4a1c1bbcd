#!/usr/bin/env python3
"""Tiny random models of transformers, as their folders or as GGUF files: what `steelyard` computes of them beside torch.
Logits of the model, the loss of a batch, its gradients (a step of SGD with the learning rate 1 subtracts them) and the loss after that step.
Needs transformers and, for --from gguf, gguf. Exit code 1 where a difference is larger than --tolerance, relative to the largest value. With a
target of llama.cpp's, torch's model is that of quantize_(): an input next to a tie of its grid may get another code there, so
nothing is trained, and of the logits the median of a token's largest difference is compared.

    decoder_agreement.py STEELYARD [--from gguf] [--kinds llama qwen2 qwen3] [--target gguf-q4_0] [--tolerance 1e-5]
    decoder_agreement.py STEELYARD --from huggingface [--kinds llama llama3 mistral qwen2 qwen3] [--tolerance 1e-5]
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch

import steelyard.torch
from llama_cpp_agreement import HEADS, LAYERS, OF_KEYS, VOCABULARY, model_of, write_source

LENGTH, SEQUENCES, TESTED = 48, 6, 2
RECIPE = """
version: 1
name: agreement
data: {{dataset: tokens, path: {folder}, tokens: {{length: {length}}}, batch_size: {sequences}, normalize: none, validation: 0}}
model: {{{source}: {model}}}
train: {{epochs: 1, loss: token_cross_entropy, optimizer: {{type: sgd, lr: {rate}, momentum: 0, weight_decay: 0}}}}
"""


def run(*arguments):
    return subprocess.run([str(a) for a in arguments], check=True, capture_output=True, text=True).stdout


def stored(path):
    """The tensors of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], np.float32).reshape(t["shape"])
            for name, t in header.items() if t["dtype"] == "F32"}


def parameter_of(tensor):
    """The name that a checkpoint gives a tensor of the file."""
    return re.sub(r"^blk\.(\d+)\.", r"blk_\1_", tensor)


def to_file(kind, name, values):
    """A parameter as llama.cpp's converter orders its rows."""
    heads = {"q_proj": HEADS, "k_proj": OF_KEYS}.get(name.split(".")[-2], 0) if kind == "llama" else 0
    if not heads:
        return values
    return values.reshape(heads, 2, values.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(values.shape)


def mean_loss(model, tokens):
    rows = torch.from_numpy(tokens.astype(np.int64))
    logits = model(input_ids=rows[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()), logits


def saved_as_gguf(model, kind, path):
    """What a checkpoint calls each parameter, and its values as the file orders them."""
    import gguf
    write_source(model, kind, path)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, kind.upper()), LAYERS)
    tensors = {name: parameter_of(names.get_name(name, try_suffixes=(".weight", ".bias")))
               for name, _ in model.named_parameters()}
    return tensors, lambda name, values: to_file(kind, name, values)


def saved_as_folder(model, _, path):
    """The same of a folder of transformers, with its weights in several files."""
    model.save_pretrained(path, max_shard_size="200KB")
    tensors = {}
    for name, _ in model.named_parameters():
        module, _, parameter = name.rpartition(".")
        tensors[name] = module.replace(".", "_") + "." + parameter
    return tensors, lambda name, values: values


FORMS = {"gguf": saved_as_gguf, "huggingface": saved_as_folder}


def compare(kind, target, source, program, folder):
    """The differences by name, relative to the largest magnitude."""
    model = model_of(kind)
    tensors, stored_order = FORMS[source](model, kind, folder / "model")
    names = {id(p): name for name, p in model.named_parameters()}
    if target:
        steelyard.torch.quantize_(model, {"version": 1, "name": "agreement", "export": {"target": target}})
    random = np.random.default_rng(1)
    rows = {}
    for split, count in (("train", SEQUENCES), ("test", TESTED)):
        tokens = random.integers(0, VOCABULARY, count * LENGTH + 1).astype(np.uint16)
        tokens.tofile(folder / f"{split}.bin")
        rows[split] = np.stack([tokens[i * LENGTH:(i + 1) * LENGTH + 1] for i in range(count)])
    recipe = folder / "recipe.yaml"
    text = RECIPE.format(folder=folder, rate="1.0e-30" if target else 1, length=LENGTH, sequences=SEQUENCES,
                         source=source, model=folder / "model")
    recipe.write_text(text + (f"export: {{target: {target}}}\n" if target else ""))
    run(program, "train", recipe, "--run-dir", folder / "run")
    steps = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "run" / "summary.json").read_text())
    trained = stored(folder / "run" / "last.safetensors")

    differences = {}

    def note(what, ours, theirs):
        of_tokens = np.abs(ours - theirs).reshape(-1, VOCABULARY if ours.ndim else 1).max(1)
        differences[what] = float((np.median(of_tokens) if target else of_tokens.max()) / max(1.0, np.abs(theirs).max()))

    loss, _ = mean_loss(model, rows["train"])
    loss.backward()
    note("loss", np.array(next(s["train_loss"] for s in steps if "train_loss" in s)), loss.detach().numpy())
    if not target:
        gradients = []
        for parameter in model.parameters():
            name = names[id(parameter)]
            theirs = stored_order(name, parameter.grad.numpy())
            before = stored_order(name, parameter.detach().numpy().copy())
            # The subtraction rounds to the weight's own last bit.
            difference = np.abs(before - trained[tensors[name]] - theirs).max()
            gradients.append(float(difference / max(np.abs(before).max(), np.abs(theirs).max())))
        differences["gradients"] = max(gradients)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= parameter.grad
    with torch.no_grad():
        loss, logits = mean_loss(model, rows["test"])
    note("loss on other tokens", np.array(summary["final"]["loss"]), loss.numpy())
    np.save(folder / "inputs.npy", rows["test"][:, :-1].astype(np.float32))
    lines = run(program, "predict", folder / "run", folder / "inputs.npy", "--format", "csv").splitlines()[1:]
    ours = np.array([[float(x) for x in line.split(",")[1:] if x] for line in lines])
    note("logits of them", ours[:, -logits[0].numel():].reshape(logits.shape), logits.numpy())
    return differences


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steelyard")
    parser.add_argument("--from", dest="source", choices=FORMS, default="gguf")
    parser.add_argument("--kinds", nargs="+")
    parser.add_argument("--target", default="")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    args = parser.parse_args()
    worst = 0.0
    others = ["llama3", "mistral"] if args.source == "huggingface" else []  # of transformers' names alone
    for kind in args.kinds or ["llama", *others, "qwen2", "qwen3"]:
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as folder:
            differences = compare(kind, args.target, args.source, args.steelyard, pathlib.Path(folder))
        print(kind + ": " + ", ".join(f"{what} {value:.1e}" for what, value in differences.items()))
        worst = max(worst, *differences.values())
    return 0 if worst <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
