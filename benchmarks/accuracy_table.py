#!/usr/bin/env python3
"""What do fewer bits cost? Trains what is missing and writes docs/results.md from the runs' summaries.

usage: accuracy_table.py STEELYARD FOLDER SUMMARIES [PATTERN]
       accuracy_table.py --page SUMMARIES PAGE.md

Every cell is a fine-tuning of FOLDER/<model>-float, which its preset trains where it is missing. A
cell's run lies in FOLDER, its summary with what `steelyard verify` says of it in SUMMARIES; finished
cells are skipped and interrupted ones resumed, so a second call goes on. PATTERN, a regular
expression on the cells' names, runs a part of them. --page only writes the page.
"""
import json
import os
import re
import statistics
import sys

from verify_presets import run, train, verify

# First and last layers; layers whose output only enters a residual sum; epochs of every fine-tuning, the float one's
# too.
MODELS = {
    "resnet": {"ends": ("conv1", "fc"), "branches": "re:layer.*(conv2|downsample.0)", "epochs": 3, "seeds": (1, 2, 3)},
    "cnn": {"ends": ("conv1", "fc2"), "epochs": 4, "seeds": (1,)},
    "mobilenet": {"ends": ("conv_stem", "fc"), "epochs": 4, "seeds": (1,)},
}
WIDTHS = ((8, 8), (4, 8), (4, 4), (3, 3), (2, 2))
METHODS = {  # observers of weights and activations, in the order of the page
    "ste": ("mse", "moving_average"),
    "lsq": ("mse", "mse"),
    "lsq, branches 8": ("mse", "mse"),  # 8 bits where no product reads the output; at 2 bits only
    "lsq, mixed": ("mse", "mse"),  # weights of 4 bits in the mean, as `steelyard sensitivity` chooses them; at 4 bits only
}
ONLY_AT = {"lsq, branches 8": (2, 2), "lsq, mixed": (4, 4)}
FLOAT_RATES = (0.001, 0.01)


def learning_rate(bits, method):
    """Chosen on the validation split of seed 1."""
    return 0.001 if bits[0] == 8 else 0.05 if bits[0] == 2 and method != "ste" else 0.01


def scale_rate(bits, method):
    """Of learned scales, as a multiple of the learning rate."""
    return 0.2 if bits[0] == 2 and method != "ste" else 1


def warmup_epochs(bits, method):
    """Without it one seed of three lost what it knew in its first ten steps: the learned scales moved too far."""
    return 1 if method == "lsq, mixed" or (bits and bits[0] == 2 and method != "ste") else 0


class Cell:
    def __init__(self, model, bits, method, seed):
        self.model, self.bits, self.method, self.seed = model, bits, method, seed
        width = f"w{bits[0]}a{bits[1]}" if bits else "float"
        self.name = f"{model}-{width}-{method.replace(', ', '-').replace(' ', '')}-seed{seed}"

    def rate(self):
        return learning_rate(self.bits, self.method) if self.bits else float(self.method.removeprefix("lr"))

    def recipe(self, preset, base):
        """The preset's data and model, this cell's quantizers."""
        spec = MODELS[self.model]
        kept = [line for line in preset.splitlines() if line.startswith(("version:", "data:", "model:"))]
        text = kept + [
            f"name: {self.name}",
            f"seed: {self.seed}",
            f"init: {{checkpoint: {base}/last.safetensors}}",
            "train:",
            f"  epochs: {spec['epochs']}",
            f"  optimizer: {{type: sgd, lr: {self.rate()}, momentum: 0.9, nesterov: true, weight_decay: 1.0e-4}}",
            f"  lr_schedule: {{type: cosine, warmup_epochs: {warmup_epochs(self.bits, self.method)}}}"]
        if self.bits:
            text += ["quantize:", "  groups:"]
            weights, activations = METHODS[self.method]
            groups = [(spec["ends"], (8, 8))]
            if self.method == "lsq, branches 8":
                groups.append(([f'"{spec["branches"]}"'], (self.bits[0], 8)))
            groups.append((("Linear", "Conv2d"), self.bits))
            for targets, (w, a) in groups:
                text += [f"    - targets: [{', '.join(targets)}]",
                         f"      weights: {{num_bits: {w}, observer: {weights}}}",
                         f"      activations: {{num_bits: {a}, observer: {activations}}}"]
            more = f", scale_lr: {scale_rate(self.bits, self.method)}" if self.method != "ste" else ""
            text += [f"  algorithm: {{method: {self.method.split(',')[0]}{more}}}"]
        return "\n".join(text) + "\n"


def rows_of(model):
    """Bits and methods of a model's quantized rows."""
    return [(bits, method) for bits in WIDTHS for method in METHODS
            if ONLY_AT.get(method, bits) == bits and (method not in ONLY_AT or "branches" in MODELS[model])]


def cells():
    for model, spec in MODELS.items():
        for seed in spec["seeds"]:
            for rate in FLOAT_RATES:
                yield Cell(model, None, f"lr{rate}", seed)
            for bits, method in rows_of(model):
                yield Cell(model, bits, method, seed)


def search_widths(steelyard, folder, cell, recipe):
    """Turns the uniform recipe into one with the widths found on its calibrated model, once for all seeds."""
    found = os.path.join(folder, f"{cell.model}-mixed")
    if not os.path.isfile(found + ".json"):
        run([steelyard, "calibrate", recipe, "--run-dir", found])
        text = run([steelyard, "sensitivity", found, "--bits", "8,6,5,4,3,2", "--samples", "2000", "--json",
                    "--budget-bits", str(cell.bits[0]), "--out", found + ".yaml"])
        with open(found + ".json", "w") as file:
            file.write(text)
    with open(found + ".json") as file:
        chosen = json.load(file)["chosen"]
    del chosen["recipe"]  # a path of this machine
    with open(recipe) as file:
        uniform = file.read()
    with open(found + ".yaml") as file:
        mixed = file.read()
    with open(recipe, "w") as file:
        file.write(re.sub(r"(?m)^(name|seed): .*", lambda key: re.search(rf"(?m)^{key[1]}: .*", uniform)[0], mixed))
    return chosen


def train_cells(steelyard, folder, summaries, pattern):
    os.makedirs(summaries, exist_ok=True)
    for cell in cells():
        summary = os.path.join(summaries, cell.name + ".json")
        if not re.search(pattern, cell.name) or os.path.isfile(summary):
            continue
        base = os.path.join(folder, f"{cell.model}-float")
        train(steelyard, f"fashion-mnist-{cell.model}-float", base, [])
        recipe = os.path.join(folder, cell.name + ".yaml")
        preset = run([steelyard, "recipes", f"fashion-mnist-{cell.model}-float"])
        with open(recipe, "w") as file:
            file.write(cell.recipe(preset, os.path.abspath(base)))
        chosen = None
        if cell.method == "lsq, mixed":
            chosen = search_widths(steelyard, folder, cell, recipe)
        tuned = os.path.join(folder, cell.name)
        train(steelyard, recipe, tuned, [])
        with open(os.path.join(tuned, "summary.json")) as file:
            result = json.load(file)
        if cell.bits:
            run([steelyard, "export", tuned])
            result["verify"] = verify(steelyard, tuned, {})
        if chosen:
            result["chosen"] = chosen
        with open(os.path.join(base, "summary.json")) as file:
            result["base"] = json.load(file)
        with open(summary, "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
        print(f"{cell.name}: {result['final']['top1']:.2f} %", flush=True)


def mean(values):
    return sum(values) / len(values)


def page(summaries):
    results = {}
    for cell in cells():
        path = os.path.join(summaries, cell.name + ".json")
        if os.path.isfile(path):
            with open(path) as file:
                results[cell.name] = json.load(file)
    lines = ["# Accuracy at few bits", "",
             "Written by `benchmarks/accuracy_table.py --page` from the summaries in `benchmarks/results/low_bit/`. Top-1 of the",
             "last epoch on the 10,000 test images of Fashion-MNIST, in percent.", ""]
    for model, spec in MODELS.items():
        lines += model_section(model, spec, results)
    return "\n".join(lines)


def model_section(model, spec, results):
    def row(bits, method):
        found = [results[c.name] for c in cells()
                 if c.model == model and c.bits == bits and c.method == method and c.name in results]
        return [r["final"]["top1"] for r in found], found

    floats = {rate: row(None, f"lr{rate}") for rate in FLOAT_RATES}
    measured = {rate: found for rate, found in floats.items() if found[0]}
    lines = [f"## `{model}`", ""]
    if not measured:
        return lines + ["Not measured yet.", ""]
    best = max(measured, key=lambda rate: mean(measured[rate][0]))
    base = measured[best][1][0]["base"]
    lines += [f"Base: preset `fashion-mnist-{model}-float`, {base['epochs']} epochs, seed {base['seed']}: "
              f"{base['final']['top1']:.2f}. Every row trains it for {spec['epochs']} more epochs, the",
              f"float ones too; gaps are to the better of those. First and last layer (`{spec['ends'][0]}`, `{spec['ends'][1]}`): 8-bit weights and",
              "outputs, as the model's input, averages and residual sums; \"branches 8\": the outputs that only enter such a",
              "sum, too; \"mixed\": the widths of `steelyard sensitivity --budget-bits`, found once on the calibrated model. In its",
              "rows and in those of learned scales of 2 bits the learning rate rises over the first epoch.",
              "A cell is verified when none of its codes differs in the integer model.", "",
              "| bits | method | learning rate | seeds | top-1 | mean | standard deviation | gap | verified |",
              "|---|---|---|---|---|---|---|---|---|"]
    rows = [("float", "-", rate, *found) for rate, found in floats.items()]
    rows += [(f"W{b[0]}A{b[1]}", method, learning_rate(b, method), *row(b, method)) for b, method in rows_of(model)]
    for bits, method, rate, top1, found in rows:
        if not top1:
            continue
        checks = [r["verify"]["differing_codes"] == 0 for r in found if "verify" in r]
        verified = "-" if not checks else "yes" if all(checks) else "NO"
        spread = f"{statistics.stdev(top1):.2f}" if len(top1) > 1 else "-"
        gap = mean(measured[best][0]) - mean(top1)
        lines.append(f"| {bits} | {method} | {rate} | {len(top1)} | {', '.join(f'{t:.2f}' for t in top1)} | {mean(top1):.2f} | "
                     f"{spread} | {gap:.2f} | {verified} |")
    mixed = next((r["chosen"] for name, r in results.items() if name.startswith(model + "-") and "chosen" in r), None)
    if mixed:
        widths = ", ".join(f"`{layer}` {bits}" for layer, bits in mixed["bits"].items())
        lines += ["", f"Mixed widths of weights: {widths}; {mixed['bits_per_weight']:.3f} bits a weight."]
    return lines + [""]


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--page":
        with open(sys.argv[3], "w") as file:
            file.write(page(sys.argv[2]))
        return
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    train_cells(*sys.argv[1:4], sys.argv[4] if len(sys.argv) == 5 else "")


if __name__ == "__main__":
    main()
