"""Of one checkpoint of each quantized preset, two versions of the program make the same exports and the same codes."""
import glob
import os
import re
import subprocess
import tempfile

from reliability.common import BUILD, Clock, ROOT, Result, build, program_of, sha256

TRAINED = 5000  # of Fashion-MNIST's 60,000 training samples; the others are for validation
EXPORTS = ("model.safetensors", "model.onnx")


def program_of_commit(commit):
    folder = os.path.join(BUILD, "before-" + commit)
    if not os.path.isdir(folder):
        os.makedirs(folder)
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    build("cpu", "steelyard", root=folder)
    return os.path.join(folder, "build", "cpu", "cli", "steelyard")


def quantized_presets():
    for path in sorted(glob.glob(os.path.join(ROOT, "recipes", "presets", "*.yaml"))):
        with open(path) as file:
            lines = file.readlines()
        if any(line.startswith("quantize:") for line in lines):
            # From its own first weights: the checkpoints that presets start from take longer to train.
            yield os.path.basename(path), "".join(line for line in lines if not line.startswith("init:"))


def output_of(folder, *command):
    done = subprocess.run(command, cwd=folder, text=True, errors="replace", capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
    return done.stdout


def results_of(program, folder, run, name):
    """What the program makes of a run: its exports' bytes, its scores, and (codes that differ from them, codes)."""
    formats = (f"--format={os.path.splitext(file)[1][1:]}" for file in EXPORTS)
    output_of(folder, program, "export", run, "--out", name, *formats)
    found = {file: sha256(os.path.join(folder, name, file)) for file in EXPORTS}
    found["eval"] = output_of(folder, program, "eval", run)
    compared = re.search(r"(\d+) of (\d+) codes differ", output_of(folder, program, "verify", run))
    found["codes"] = tuple(map(int, compared.groups()))
    return found


def codes(arguments):
    if not arguments.before:
        raise SystemExit("campaign: codes needs --before COMMIT")
    before = output_of(ROOT, "git", "rev-parse", "--short=12", arguments.before).strip()
    programs = {"before": program_of_commit(before), "now": program_of(arguments)}
    result = Result(arguments, "codes", {"before": before, "program_sha256": sha256(programs["now"])}, {"presets": {}})
    clock = Clock(arguments)
    with tempfile.TemporaryDirectory(prefix="steelyard-codes-") as folder:
        for preset, recipe in quantized_presets():
            if preset in result["presets"] or clock.over():
                continue
            with open(os.path.join(folder, preset), "w") as file:
                file.write(recipe)
            run = preset + "-run"
            output_of(folder, programs["before"], "train", preset, "--run-dir", run, "--set", f"data.validation={60000 - TRAINED}")
            found = {name: results_of(path, folder, run, f"{run}-{name}") for name, path in programs.items()}
            differing, compared = found["now"]["codes"]
            result["presets"][preset] = compared
            result["executions"] += 1
            unequal = sorted(key for key in found["now"] if found["now"][key] != found["before"][key])
            if unequal or differing:
                result["findings"].append({"preset": preset, "differs": unequal, "codes": differing})
            clock.add_to(result)
            result.save()
    result["done"] = not result["findings"] and not clock.over()
    result.save()
    print(result.line())
    return 1 if result["findings"] else 0
