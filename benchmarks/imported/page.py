"""docs/imported_models.md, from the results."""
import json
import os
import statistics
import textwrap

from imported.shows import CORRECTIONS, OBSERVERS, SHOWS, calibrated

INTRODUCTION = (
    "For users who bring a float model that somebody else trained: what published ONNX models lose in 8 and 4 bits, calibrated "
    "and fine-tuned. `benchmarks/imported_models.py page` writes this page from the files in "
    "`benchmarks/results/imported_models/`, each the result of one run with its commands, machine, commit and seed; "
    "[glossary.md](glossary.md) explains the terms, [import.md](import.md) the recipes.",
    "The models are those of the packages rapidocr-onnxruntime 1.4.4 and magika 1.0.3. Lines of text are rendered from Debian's "
    "fonts, so that their labels are exact, and degraded (resolution, blur, contrast, rotation, noise) until the float model "
    "errs on 3 to 10 %; files are those of the machine that measured. `imported_models.py prepare` makes all data from a seed.",
    "`float` is the imported model as it is. `float, tuned` is trained in float on the same data, for as many epochs and with the "
    "same learning rate as the quantized rows. `calibrated` is post-training quantization: of several observers and corrections, "
    "tabled below, the one that is best on the test set, so it looks better rather than worse than it is. `trained` is "
    "quantization-aware training. Calibrated models are compared with the imported float model, trained ones with the better of "
    "the tuned ones. All values are those of the last epoch on the test set; a row with several seeds has their mean, "
    "and each seed's value in the next column.",
    "Differing codes and the agreement of ONNX Runtime are those of `steelyard verify`, over a part of the test set. The last "
    "two columns are about the exported ONNX file and the whole test set: ONNX Runtime's own score, and the percentage of "
    "decisions (classes, characters of frames, marks of pixels) in which OpenVINO agrees with ONNX Runtime. OpenVINO computes "
    "in float between the codes: a code may come out one higher or lower, and others after it.")
ABOUT = {
    "direction": "Is a line of text upright or upside down? 48 x 192 pixels, 134 thousand parameters. Top-1 in percent.",
    "recognition": "Lines of 4 to 12 characters, 48 x 160 pixels, 2.7 million parameters, 6,625 characters in each of 20 frames. "
                   "Character error rate in percent: lower is better. Half of the float model's errors are spaces that it reads "
                   "at the ends of lines.",
    "file-types": "The type of a file by its first and last 1024 bytes: 214 classes, {labels} of which the machine has files of. "
                  "The label is that of the file's extension; types with fewer than 20 files are left out. 784 thousand "
                  "parameters. Top-1 in percent. Only the two convolutions and products with weights are quantized.",
    "detection": "Which pixels of a page belong to text? 160 x 192 pixels, 1.2 million parameters. The binary cross-entropy of "
                 "the test set: lower is better; ONNX Runtime's own score is the F1 of all pixels, in percent. The masks of "
                 "the data are a little thinner than those that the float model was trained on.",
}
TITLES = {"float": ("float", "imported"), "float-tuned": ("float", "tuned"),
          "float-tuned-norms": ("float", "tuned, batch norms too"), "qat-w8a8": ("W8A8", "trained"),
          "qat-w8a8-lsq": ("W8A8", "trained, learned scales"), "qat-w4a8": ("W4A8", "trained"),
          "qat-w4a8-lsq": ("W4A8", "trained, learned scales, 8 bits at both ends")}
NAMES = {"top1": "top-1 %", "cer": "character error rate %", "loss": "loss", "pixel_f1": "F1 of pixels %"}
LOWER_IS_BETTER = {"cer", "loss"}
CORRECTION_NAMES = {"": "none", "equalized": "`equalize`", "corrected": "`bias_correction`", "both": "both"}


def paragraph(text):
    return [*textwrap.wrap(text, 125, break_long_words=False, break_on_hyphens=False), ""]


def load(results):
    """{show: {cell: {seed: result}}}."""
    found = {}
    for name in sorted(os.listdir(results)):
        if name.endswith(".json"):
            with open(os.path.join(results, name), encoding="utf-8") as file:
                result = json.load(file)
            found.setdefault(result["show"], {}).setdefault(result["cell"], {})[result["seed"]] = result
    return found


def value(result, show):
    return result["run"]["final"][show.key]


def mean(cell, show):
    return statistics.mean(value(result, show) for result in cell.values())


def shown(number, show):
    return f"{number:.4f}" if show.key == "loss" else f"{number:.2f}"


def best(names, cells, show):
    """The best measured one of these cells, or None."""
    measured = [name for name in names if name in cells]
    choose = min if show.key in LOWER_IS_BETTER else max
    return choose(measured, key=lambda name: mean(cells[name], show), default=None)


def readers_score(cell, show):
    """ONNX Runtime's score, the mean over the seeds; None where it was not measured."""
    scores = [result["readers"]["onnxruntime"][show.metric.name] for result in cell.values() if result["readers"]]
    return statistics.mean(scores) if scores else None


def readers_text(cell, show):
    """ONNX Runtime's score and OpenVINO's agreement, of all seeds."""
    results = [result["readers"] for result in cell.values() if result["readers"]]
    if not results:
        return "-", "-"
    score = readers_score(cell, show)
    agreement = [result["openvino"]["same_decisions"] for result in results if "openvino" in result]
    return f"{score:.2f}", f"{min(agreement):.2f} %" if agreement else "-"


def row(width, how, cell, show, baseline):
    checks = [result["verify"] for result in cell.values() if result["verify"]]
    codes = f"{sum(c['differing_codes'] for c in checks)} of {sum(c['codes'] for c in checks):,}" if checks else "-"
    agreement = [c["onnxruntime"]["agreement"] for c in checks if c["onnxruntime"]]
    centre = mean(cell, show)
    loss = "-" if baseline is None else shown((centre - baseline) * (1 if show.key in LOWER_IS_BETTER else -1), show)
    each = ", ".join(shown(value(cell[seed], show), show) for seed in sorted(cell)) if len(cell) > 1 else "-"
    return (f"| {width} | {how} | {shown(centre, show)} | {each} | {loss} | {codes} | "
            f"{f'{min(agreement):.2f} %' if agreement else '-'} | {' | '.join(readers_text(cell, show))} |")


def calibrations(show, width):
    return [cell.name for cell in show.cells if cell.verb == "calibrate" and cell.name.startswith(f"ptq-{width}")]


def trained(width, cells):
    return [name for name in TITLES if name.startswith(f"qat-{width}") and name in cells]


def variant(name, width):
    """The observer and the correction of a calibrated cell."""
    observer, _, correction = name.removeprefix(f"ptq-{width}-").partition("-")
    return observer, correction


def main_table(show, cells):
    """The rows, and what trained ones are compared with."""
    tuned = best(("float-tuned", "float-tuned-norms"), cells, show)
    imported, baseline = (mean(cells[name], show) if name in cells else None for name in ("float", tuned))
    head = ("", "", NAMES[show.key], "each seed", "lost against float", "differing codes", "ONNX Runtime agrees",
            f"its {NAMES[show.metric.name]}", "OpenVINO agrees")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in ("float", "float-tuned", "float-tuned-norms"):
        if name in cells:
            lines.append(row(*TITLES[name], cells[name], show, None))
    for width in ("w8a8", "w4a8"):
        found = best(calibrations(show, width), cells, show)
        if found:
            observer, correction = variant(found, width)
            how = f"calibrated, `{observer}`" + (f", {CORRECTION_NAMES[correction]}" if correction else "")
            lines.append(row(width.upper(), how, cells[found], show, imported))
        lines += [row(*TITLES[name], cells[name], show, baseline) for name in trained(width, cells)]
    return lines, baseline


def goals(show, cells, baseline):
    if show.goal is None or baseline is None:
        return []
    sign = 1 if show.key in LOWER_IS_BETTER else -1
    said = []
    for width in ("w8a8", "w4a8"):
        found = best(trained(width, cells), cells, show)
        if found:
            lost = sign * (mean(cells[found], show) - baseline)
            said.append(f"{width.upper()} {'meets' if lost <= show.goal else 'misses'} it ({lost:+.2f})")
    return paragraph(f"Goal: at most {show.goal} points worse than float, tuned. {'; '.join(said)}.") if said else []


def disagreements(show, cells):
    """Where training in integers is better by the table's metric but worse by ONNX Runtime's score, which is another one."""
    tuned = best(("float-tuned", "float-tuned-norms"), cells, show)
    if show.key == show.metric.name or tuned is None:
        return []
    before, sign = readers_score(cells[tuned], show), -1 if show.metric.name in LOWER_IS_BETTER else 1
    key, score = NAMES[show.key].removesuffix(" %"), NAMES[show.metric.name].removesuffix(" %")
    lines = []
    for name in (*trained("w8a8", cells), *trained("w4a8", cells)):
        after, is_better = readers_score(cells[name], show), best((name, tuned), cells, show) == name
        if before is not None and after is not None and is_better and sign * (before - after) > 0:
            order = "lower" if show.key in LOWER_IS_BETTER else "higher"
            lines += paragraph(f"By {score}, {TITLES[name][0]} {TITLES[name][1]} loses {sign * (before - after):.1f} points against "
                               f"float, tuned ({after:.2f} % against {before:.2f} %), although its {key} is {order} "
                               f"({shown(mean(cells[name], show), show)} against {shown(mean(cells[tuned], show), show)}).")
    return lines


def calibration_table(show, cells):
    lines = []
    for width in ("w8a8", "w4a8"):
        names = [name for name in calibrations(show, width) if name in cells]
        if not names:
            continue
        lines += [f"| calibrated to {width.upper()} | " + " | ".join(CORRECTION_NAMES[c] for c in CORRECTIONS) + " |",
                  "|---|" + "---|" * len(CORRECTIONS)]
        for observer in OBSERVERS:
            row_names = [calibrated(width, observer, correction).name for correction in CORRECTIONS]
            if any(name in names for name in row_names):
                values = [shown(mean(cells[name], show), show) if name in names else "-" for name in row_names]
                lines.append(f"| `{observer}` | {' | '.join(values)} |")
        lines.append("")
    return lines


def section(show, cells):
    lines = [f"## {show.title}", ""]
    if not cells:
        return lines + ["Not measured yet.", ""]
    results = [result for cell in cells.values() for result in cell.values()]
    data = results[0]["data"]
    lines += paragraph(ABOUT[show.name].format(labels=len(data.get("labels", ()))))
    trained = [r for r in results if r["run"]["epochs"] > 0]
    sizes = f"{data['samples']['train']:,} samples for training (validation included), {data['samples']['test']:,} for the test"
    if trained:
        sizes += f"; {trained[0]['run']['epochs']} epochs"
    lines += paragraph(f"{sizes}. Recipe: `benchmarks/imported/recipes/{show.name}.yaml`.")
    table, baseline = main_table(show, cells)
    lines += [*table, "", *goals(show, cells, baseline), *disagreements(show, cells), *calibration_table(show, cells)]
    missing = [cell.name for cell in show.cells if cell.name not in cells]
    if missing:
        lines += paragraph("Not measured yet: " + ", ".join(f"`{name}`" for name in missing) + ".")
    return lines


def text(results):
    found = load(results)
    lines = ["# Imported models", ""]
    for words in INTRODUCTION:
        lines += paragraph(words)
    for show in SHOWS.values():
        lines += section(show, found.get(show.name, {}))
    measured = [r for cells in found.values() for cell in cells.values() for r in cell.values()]
    if measured:
        dates = sorted({r["date"] for r in measured})
        versions = sorted({f"ONNX Runtime {r['readers']['onnxruntime']['version']}" for r in measured if r["readers"]} |
                          {f"OpenVINO {r['readers']['openvino']['version']}" for r in measured if "openvino" in r["readers"]})
        lines += paragraph(f"Measured {' to '.join(sorted({dates[0], dates[-1]}))} on {', '.join(sorted({r['cpu'] for r in measured}))}"
                           + (f" with {', '.join(versions)}" if versions else "") + ".")
    return "\n".join(lines)
