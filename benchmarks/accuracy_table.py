#!/usr/bin/env python3
"""What do fewer bits cost? Trains what is missing and writes docs/results.md from the runs' summaries.

usage: accuracy_table.py [--threads N] STEELYARD FOLDER SUMMARIES [PATTERN...]
       accuracy_table.py [--threads N] --goals STEELYARD FOLDER SUMMARIES
       accuracy_table.py --page SUMMARIES PAGE.md
       accuracy_table.py --list [--goals] SUMMARIES [PATTERN...]

Every cell is a fine-tuning of a float base, FOLDER/<model>-float-seed<n>, which its preset trains
where it is missing. A cell's run lies in FOLDER, its summary with what `steelyard verify` says of it
in SUMMARIES; finished cells are skipped and interrupted ones resumed, so a second call goes on. A
cell that fails is reported and the next one begins. One process works on a folder at a time.

PATTERN, a regular expression on the cells' names, runs a part of them; of several, those of the
first pattern come first. Without any, all cells run, in the order of QUEUE. --list prints the cells
that are not finished, in that order; --page only writes the page.

--goals runs the cells of GOALS alone, five seeds of each, with the float runs that they are compared
with, and prints what is there: the worst seed and the mean of each row beside the gap allowed. It
exits with 1 while a worst seed misses its goal or is not measured.
"""
import argparse
import datetime
import fcntl
import json
import os
import re
import statistics
import sys
import textwrap

from machine import cpu_name
from verify_presets import run, train, verify

WIDTHS = ((8, 8), (4, 8), (4, 4), (3, 3), (2, 2))
# First and last layers; layers whose output only enters a residual sum; epochs of every fine-tuning, the float one's
# too; seeds of fine-tunings and of the base of each.
MODELS = {
    "resnet": {"ends": ("conv1", "fc"), "branches": "re:layer.*(conv2|downsample.0)", "epochs": 3,
               "bases": {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}, "widths": WIDTHS},
    "cnn": {"ends": ("conv1", "fc2"), "epochs": 4, "bases": {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}, "widths": WIDTHS},
    "mobilenet": {"ends": ("conv_stem", "fc"), "epochs": 4, "bases": {1: 1, 2: 1, 3: 1, 4: 1, 5: 1},
                  "widths": ((8, 8), (4, 4))},
}
# The largest gap of the worst of all seeds, in points. Other rows, but for float ones, have the first three seeds.
GOALS = {("resnet", (2, 2)): 2.0, ("resnet", (3, 3)): 0.8, ("resnet", (4, 4)): 0.4,
         ("cnn", (2, 2)): 2.0, ("cnn", (3, 3)): 0.8, ("cnn", (4, 4)): 0.4, ("mobilenet", (4, 4)): 0.8}
SEEDS_OF_OTHERS = (1, 2, 3)
SCALE_STEPS = "relative"  # how learned scales move where a recipe does not say (docs/numerics.md)
METHODS = {  # observers of weights and activations, in the order of the page
    "ste": ("mse", "moving_average"),
    "lsq": ("mse", "mse"),
    "lsq, branches 8": ("mse", "mse"),  # 8 bits where no product reads the output; at 2 bits only
    "lsq, mixed": ("mse", "mse"),  # weights of 4 bits in the mean, as `steelyard sensitivity` chooses them; at 4 bits only
}
ONLY_AT = {"lsq, branches 8": (2, 2), "lsq, mixed": (4, 4)}
# What is worth most per hour first: cells that the page's claims rest on, those that share a base together.
QUEUE = ("cnn-.*-seed2", "cnn-.*-seed3", "cnn-", "mobilenet-float", "mobilenet-.*-lsq", "mobilenet-", "resnet-float",
         "resnet-.*-lsq", "")


def clips_gradients(model, bits, method):
    """Without it, resnet: two or three seeds of five lost what they knew when the rate rose beyond .03, and at .02 all learned too
    little; mobilenet: one seed of five was .4 points behind the others.
    """
    return (model, bits, method) in (("resnet", (2, 2), "lsq"), ("mobilenet", (4, 4), "lsq"))


def distills(model, bits, method):
    """Whether the float base teaches, too."""
    return (model, bits, method) == ("mobilenet", (4, 4), "lsq")


def learning_rate(model, bits, method):
    """Chosen on the validation split of seed 1; where gradients are clipped, of seeds 1 and 3 (resnet), 2 and 5 (mobilenet)."""
    if clips_gradients(model, bits, method):
        return 0.1 if model == "resnet" else 0.02
    return 0.001 if bits[0] == 8 else 0.05 if bits[0] == 2 and method != "ste" else 0.01


def warmup_epochs(model, bits, method):
    """Without it one or two seeds of three lost what they knew in their first ten steps: the learned scales moved too far."""
    if not bits or method == "ste":
        return 0
    return 1 if bits[0] == 2 or method == "lsq, mixed" or (model, bits) == ("mobilenet", (4, 4)) else 0


class Cell:
    def __init__(self, model, bits, method, seed):
        self.model, self.bits, self.method, self.seed = model, bits, method, seed
        width = f"w{bits[0]}a{bits[1]}" if bits else "float"
        self.name = f"{model}-{width}-{method.replace(', ', '-').replace(' ', '')}-seed{seed}"
        self.base_seed = MODELS[model]["bases"][seed]

    def learns_scales(self):
        return self.method.startswith("lsq")

    def rate(self):
        return learning_rate(self.model, self.bits, self.method) if self.bits else float(self.method.removeprefix("lr"))

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
            "  on_collapse: warn",  # the page names such cells
            f"  optimizer: {{type: sgd, lr: {self.rate()}, momentum: 0.9, nesterov: true, weight_decay: 1.0e-4}}",
            f"  lr_schedule: {{type: cosine, warmup_epochs: {warmup_epochs(self.model, self.bits, self.method)}}}"]
        if clips_gradients(self.model, self.bits, self.method):
            text.append("  clip_grad_norm: 1")
        if distills(self.model, self.bits, self.method):
            text.append("  distill: {teacher: self, temperature: 2}")
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
            text += [f"  algorithm: {{method: {self.method.split(',')[0]}}}"]
        return "\n".join(text) + "\n"


def rows_of(model):
    """Bits and methods of a model's quantized rows."""
    return [(bits, method) for bits in MODELS[model]["widths"] for method in METHODS
            if ONLY_AT.get(method, bits) == bits and (method not in ONLY_AT or "branches" in MODELS[model])]


def seeds_of(model, bits, method):
    has_goal = method == "lsq" and (model, bits) in GOALS
    return [seed for seed in MODELS[model]["bases"] if not bits or has_goal or seed in SEEDS_OF_OTHERS]


def float_rates(model):
    """A float baseline for every learning rate that a quantized row has."""
    return sorted({learning_rate(model, *row) for row in rows_of(model)})


def cells():
    for model, spec in MODELS.items():
        rows = [(None, f"lr{rate}") for rate in float_rates(model)] + rows_of(model)
        for seed in spec["bases"]:
            for bits, method in rows:
                if seed in seeds_of(model, bits, method):
                    yield Cell(model, bits, method, seed)


def goal_cells():
    """Those of GOALS and all float ones, quick models first, all rows of a seed together."""
    order = {model: i for i, model in enumerate(("cnn", "resnet", "mobilenet"))}
    wanted = []
    for cell in cells():
        if not cell.bits or (cell.method == "lsq" and (cell.model, cell.bits) in GOALS):
            wanted.append(cell)
    return sorted(wanted, key=lambda cell: (order[cell.model], cell.seed))


def in_order(patterns):
    """The cells that match a pattern, those of the first one first."""
    every = list(cells())
    first = {cell.name: next((i for i, p in enumerate(patterns) if re.search(p, cell.name)), None) for cell in every}
    return sorted((cell for cell in every if first[cell.name] is not None), key=lambda cell: first[cell.name])


def read_summary(summaries, cell):
    """None where the cell is not finished."""
    path = os.path.join(summaries, cell.name + ".json")
    if not os.path.isfile(path):
        return None
    with open(path) as file:
        return json.load(file)


def is_old(cell, summary):
    """Whether the cell is to be measured again: of other steps of learned scales."""
    return cell.learns_scales() and summary.get("scale_steps") != SCALE_STEPS


def unfinished(summaries, every):
    found = [(cell, read_summary(summaries, cell)) for cell in every]
    return [cell for cell, summary in found if summary is None or is_old(cell, summary)]


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


def alone_in(folder):
    """Holds a lock on the folder until the process ends."""
    os.makedirs(folder, exist_ok=True)
    lock = open(os.path.join(folder, ".lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"{folder}: another process trains here")
    return lock


def train_cell(steelyard, folder, cell, threads):
    """The summary of a cell, trained where it is missing."""
    preset = f"fashion-mnist-{cell.model}-float"
    base = os.path.join(folder, f"{cell.model}-float-seed{cell.base_seed}")
    train(steelyard, preset, base, [f"seed={cell.base_seed}"], threads)
    recipe = os.path.join(folder, cell.name + ".yaml")
    text = run([steelyard, "recipes", preset])
    with open(recipe, "w") as file:
        file.write(cell.recipe(text, os.path.abspath(base)))
    chosen = None
    if cell.method == "lsq, mixed":
        chosen = search_widths(steelyard, folder, cell, recipe)
    tuned = os.path.join(folder, cell.name)
    train(steelyard, recipe, tuned, [], threads)
    with open(os.path.join(tuned, "summary.json")) as file:
        result = json.load(file)
    if cell.bits:
        run([steelyard, "export", tuned])
        result["verify"] = verify(steelyard, tuned, {"OMP_NUM_THREADS": str(threads)} if threads else {})
    if chosen:
        result["chosen"] = chosen
    if cell.learns_scales():
        result["scale_steps"] = SCALE_STEPS
    with open(os.path.join(base, "summary.json")) as file:
        result["base"] = json.load(file)
    return {**result, "date": datetime.date.today().isoformat(), "cpu": cpu_name(), "threads": threads}


def train_cells(steelyard, folder, summaries, every, threads):
    os.makedirs(summaries, exist_ok=True)
    lock = alone_in(folder)
    failed = []
    for cell in unfinished(summaries, every):
        try:
            result = train_cell(steelyard, folder, cell, threads)
        except SystemExit as error:
            print(f"{cell.name}: {error}", flush=True)
            failed.append(cell.name)
            continue
        summary = os.path.join(summaries, cell.name + ".json")
        with open(summary + ".tmp", "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
        os.rename(summary + ".tmp", summary)
        print(f"{cell.name}: {result['final']['top1']:.2f} %", flush=True)
    lock.close()
    return failed


def mean(values):
    return sum(values) / len(values)


INTRODUCTION = (
    "For users who choose a bit width: the measured accuracy of models with fewer bits. The figures are top-1 of the last epoch on "
    "the 10,000 test images of Fashion-MNIST, in percent. The method is `quantize.algorithm.method` "
    "([recipes.md](recipes.md#quantizealgorithm)). `benchmarks/accuracy_table.py --page` writes this page from the summaries in "
    "`benchmarks/results/low_bit/`; [glossary.md](glossary.md) explains the terms.",
    "The float base is the trained float model that a run starts from. The seed of a run chooses the order and the augmentation of "
    "its samples and, if the section says so, the float base. The 5,000 validation images are the same for all seeds, and so are "
    "the learning rates and mixed widths, which were chosen with seed 1, or with two seeds where gradients are clipped.",
    "A cell is one run: a row of a table with one seed. The gap of a row is the best float mean over its seeds minus the mean of "
    "the row. Float candidates are the base itself and the base trained in float for as many more epochs as the row, at each "
    "learning rate that a quantized row uses. The best of them is chosen on the test images, so gaps are too large rather than too "
    "small. The last gap is that of the worst seed. A row is verified if `steelyard verify` found no differing code in any of its cells.")


def paragraph(text):
    return [*textwrap.wrap(text, 125, break_long_words=False, break_on_hyphens=False), ""]


def page(summaries):
    results = {}
    for cell in cells():
        summary = read_summary(summaries, cell)
        if summary is not None:
            results[cell.name] = summary
    lines = ["# Accuracy at few bits", ""]
    for text in INTRODUCTION:
        lines += paragraph(text)
    for model, spec in MODELS.items():
        lines += model_section(model, spec, results)
    return "\n".join(lines)  # ends with one empty line, which is the last newline


class Row:
    """The finished cells of one width and method, by seed."""

    def __init__(self, model, bits, method, results):
        self.bits, self.method = bits, method
        every = [Cell(model, bits, method, seed) for seed in seeds_of(model, bits, method)]
        self.rate = every[0].rate()
        self.cells = {cell.seed: results[cell.name] for cell in every if cell.name in results}
        self.missing = [cell.seed for cell in every if cell.name not in results]
        self.old = [cell.seed for cell in every if cell.name in results and is_old(cell, results[cell.name])]
        self.width = f"W{bits[0]}A{bits[1]}" if bits else "float"

    def top1(self, seeds):
        return [self.cells[seed]["final"]["top1"] for seed in seeds]

    def lost(self):
        """The seeds that ended with less than half of their base's accuracy."""
        return [seed for seed, cell in self.cells.items() if 2 * cell["final"]["top1"] < cell["base"]["final"]["top1"]]

    def title(self):
        return f"{self.width} {self.method}" if self.bits else f"float at {self.rate}"


def best_float(row, floats):
    """The best mean over the row's seeds of what is in float."""
    bases = mean([cell["base"]["final"]["top1"] for cell in row.cells.values()])
    rates = [mean(other.top1(row.cells)) for other in floats if set(row.cells) <= set(other.cells)]
    return max([bases, *rates])


def base_text(model, spec, rows):
    """Which bases the finished cells started from."""
    found = {}
    for row in rows:
        for cell in row.cells.values():
            base = cell["base"]
            key = (base["seed"], base["checkpoint_sha256"])
            found[key] = f"seed {base['seed']}: {base['final']['top1']:.2f}"
    epochs = next(cell["base"]["epochs"] for row in rows for cell in row.cells.values())
    text = f"Base: preset `fashion-mnist-{model}-float`, {epochs} epochs: {', '.join(found[key] for key in sorted(found))}."
    if len({seed for seed, _ in found}) < len(found):
        text += " A seed that is listed twice was trained twice, with different numbers of threads."
    if len(set(spec["bases"].values())) > 1:
        return text + " Each seed of a row starts from the base of that seed."
    return text + " All rows start from this one base, so the standard deviations do not include differences between bases."


def model_section(model, spec, results):
    floats = [Row(model, None, f"lr{rate}", results) for rate in float_rates(model)]
    rows = floats + [Row(model, bits, method, results) for bits, method in rows_of(model)]
    lines = [f"## `{model}`", ""]
    if not any(row.cells for row in rows):
        return lines + ["Not measured yet.", ""]
    first, last = spec["ends"]
    text = (f"{base_text(model, spec, rows)} Every row, float or quantized, trains it for {spec['epochs']} more epochs. First and "
            f"last layer (`{first}`, `{last}`) have 8-bit weights and outputs; the model's input, averages and residual sums have 8 "
            "bits too.")
    if "branches" in spec:
        text += (" \"branches 8\": outputs that are read only by a residual sum have 8 bits too. \"mixed\": the widths are those "
                 "of `steelyard sensitivity --budget-bits`, found once on the calibrated model.")
    warm = [f"{row.width} {row.method}" for row in rows if warmup_epochs(model, row.bits, row.method)]
    if warm:
        text += f" Rows whose learning rate rises over the first epoch: {'; '.join(warm)}."
    clipped = [f"{row.width} {row.method}" for row in rows if clips_gradients(model, row.bits, row.method)]
    if clipped:
        text += f" Rows whose gradients are clipped to a joint norm of 1: {'; '.join(clipped)}."
    taught = [f"{row.width} {row.method}" for row in rows if distills(model, row.bits, row.method)]
    if taught:
        text += f" Rows that learn from the float base's outputs, too (`train.distill`): {'; '.join(taught)}."
    lines += [*paragraph(text), "| bits | method | learning rate | seeds | top-1 | mean | standard deviation | gap | of the worst | verified |",
              "|---|---|---|---|---|---|---|---|---|---|"]
    lines += [table_row(row, floats) for row in rows if row.cells]
    for what, seeds in (("Not measured yet", lambda row: row.missing),
                        ("To be measured again, with scales that move relative to their first values",
                         lambda row: row.old),
                        ("Training did not hold (less than half of the float base's accuracy, included in the means)", Row.lost)):
        listed = [f"{row.title()} (seed{'s' if len(seeds(row)) > 1 else ''} {', '.join(map(str, seeds(row)))})"
                  for row in rows if seeds(row)]
        if listed:
            lines += ["", *paragraph(f"{what}: {'; '.join(listed)}.")[:-1]]
    if any("date" not in cell for row in rows if row.method == "ste" for cell in row.cells.values()):
        lines += ["", *paragraph("Some cells of `ste` were measured before moving averages started as a mean, and must be "
                                 "measured again; their summaries have no date.")[:-1]]
    mixed = next((r["chosen"] for name, r in results.items() if name.startswith(model + "-") and "chosen" in r), None)
    if mixed:
        widths = ", ".join(f"`{layer}` {bits}" for layer, bits in mixed["bits"].items())
        lines += ["", *paragraph(f"Mixed widths of weights: {widths}; {mixed['bits_per_weight']:.3f} bits a weight.")[:-1]]
    return lines + [""]


def table_row(row, floats):
    top1 = row.top1(row.cells)
    checks = [cell["verify"]["differing_codes"] == 0 for cell in row.cells.values() if "verify" in cell]
    verified = "-" if not checks else "yes" if all(checks) else "NO"
    spread = f"{statistics.stdev(top1):.2f}" if len(top1) > 1 else "-"
    method = row.method if row.bits else "-"
    best = best_float(row, floats)
    return (f"| {row.width} | {method} | {row.rate} | {', '.join(map(str, row.cells))} | "
            f"{', '.join(f'{t:.2f}' for t in top1)} | {mean(top1):.2f} | {spread} | "
            f"{best - mean(top1):.2f} | {best - min(top1):.2f} | {verified} |")


def goals_text(summaries):
    """The rows of GOALS, and whether all their seeds are measured and meet them."""
    lines = ["| model | bits | top-1 of seeds 1 to 5 | worst | mean | float | gap of the worst | allowed | |",
             "|---|---|---|---|---|---|---|---|---|"]
    every = {cell.name: read_summary(summaries, cell) for cell in goal_cells()}
    results = {cell.name: every[cell.name] for cell in goal_cells()
               if every[cell.name] is not None and not is_old(cell, every[cell.name])}
    met = True
    for (model, bits), allowed in GOALS.items():
        row = Row(model, bits, "lsq", results)
        if row.missing:
            met = False
        if not row.cells:
            lines.append(f"| {model} | {row.width} | | | | | | {allowed:.1f} | not measured |")
            continue
        top1 = row.top1(row.cells)
        best = best_float(row, [Row(model, None, f"lr{rate}", results) for rate in float_rates(model)])
        gap = best - min(top1)
        met = met and gap <= allowed
        verdict = "missed" if gap > allowed else f"seeds {row.missing} missing" if row.missing else "met"
        lines.append(f"| {model} | {row.width} | {', '.join(f'{t:.2f}' for t in top1)} | {min(top1):.2f} | "
                     f"{mean(top1):.2f} | {best:.2f} | {gap:.2f} | {allowed:.1f} | {verdict} |")
    return "\n".join(lines), met


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, help="of every training (default: all cores)")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--goals", action="store_true")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    words = options.arguments
    if options.page and len(words) == 2:
        with open(words[1], "w") as file:
            file.write(page(words[0]))
    elif options.list and words:
        for cell in unfinished(words[0], goal_cells() if options.goals else in_order(words[1:] or QUEUE)):
            print(cell.name)
    elif len(words) >= 3 and not (options.page or options.list):
        every = goal_cells() if options.goals else in_order(words[3:] or QUEUE)
        failed = train_cells(*words[:3], every, options.threads)
        met = True
        if options.goals:
            text, met = goals_text(words[2])
            print(text)
        if failed:
            sys.exit("failed: " + ", ".join(failed))
        if not met:
            sys.exit(1)
    else:
        parser.error("see the usage above")


if __name__ == "__main__":
    main()
