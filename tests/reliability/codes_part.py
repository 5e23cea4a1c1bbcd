"""Of one checkpoint of each quantized preset, two versions of the program make the same exports, and ONNX Runtime the
same outputs of their files."""
import glob
import os
import re
import shutil
import subprocess
import tempfile

from reliability.common import BUILD, Clock, ROOT, Result, build, program_of, sha256

TRAINED = 5000  # of Fashion-MNIST's 60,000 training samples; the others are for validation
EXPORTS = ("model.safetensors", "model.onnx")
PYTHON = os.path.join(BUILD, "python-env", "bin", "python")


def version_of(commit):
    """The folder of that version, built."""
    folder = os.path.join(BUILD, "before-" + commit)
    if not os.path.isdir(folder):
        partial = folder + ".partial"
        shutil.rmtree(partial, ignore_errors=True)
        os.makedirs(partial)
        archive = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", partial], input=archive, check=True)
        os.rename(partial, folder)
    build("cpu", "steelyard", root=folder)
    return folder


def quantized_presets(folder):
    for path in sorted(glob.glob(os.path.join(folder, "recipes", "presets", "*.yaml"))):
        with open(path) as file:
            lines = file.readlines()
        if any(line.startswith("quantize:") for line in lines):
            # From its own first weights: the checkpoints that presets start from take longer to train.
            yield os.path.basename(path), "".join(line for line in lines if not line.startswith("init:"))


def run_in(folder, *command):
    """What the command printed, or how it failed."""
    done = subprocess.run(command, cwd=folder, text=True, errors="replace", capture_output=True)
    return done.stdout if done.returncode == 0 else f"exit {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"


def results_of(program, folder, run):
    """What the program makes of a run: its exports' bytes, all numbers of its scores, and what verify compares."""
    shutil.rmtree(os.path.join(folder, run, "export"), ignore_errors=True)
    formats = (f"--format={os.path.splitext(file)[1][1:]}" for file in EXPORTS)
    # Weights of INT8: ONNX Runtime computes with INT4 ones in float, which may round otherwise.
    found = {"export": re.findall(r"exit.*", run_in(folder, program, "export", run, "--no-int4", *formats))}
    for file in EXPORTS:
        path = os.path.join(folder, run, "export", file)
        found[file] = sha256(path) if os.path.exists(path) else "absent"
    found["eval"] = re.findall(r"exit.*|\d[\d.]*", run_in(folder, program, "eval", run))
    verified = run_in(folder, program, "verify", run, "--python", PYTHON)
    found["verify"] = re.findall(r"exit.*|\d+ of \d+ (?:codes|outputs) differ", verified)
    return found


def compared(verify, what):
    """How many codes or outputs verify compared, None unless it found all of them equal."""
    counts = [re.fullmatch(rf"0 of (\d+) {what} differ", line) for line in verify]
    return next((int(count.group(1)) for count in counts if count), None)


def codes(arguments):
    if not arguments.before:
        raise SystemExit("campaign: codes needs --before COMMIT")
    if not os.path.exists(PYTHON):
        raise SystemExit("campaign: codes needs ONNX Runtime: call scripts/python_env first")
    before = run_in(ROOT, "git", "rev-parse", "--verify", "--quiet", "--short=12", arguments.before + "^{commit}").strip()
    if before.startswith("exit"):
        raise SystemExit(f"campaign: no such commit: {arguments.before}")
    earlier = version_of(before)
    programs = {"before": os.path.join(earlier, "build", "cpu", "cli", "steelyard"), "now": program_of(arguments)}
    result = Result(arguments, "codes", {"before": before, "program_sha256": sha256(programs["now"])}, {"presets": {}})
    clock = Clock(arguments)
    presets = dict(quantized_presets(earlier))
    with tempfile.TemporaryDirectory(prefix="steelyard-codes-") as folder:
        for preset, recipe in presets.items():
            if preset in result["presets"] or clock.over():
                continue
            with open(os.path.join(folder, preset), "w") as file:
                file.write(recipe)
            run = preset + "-run"
            trained = run_in(folder, programs["before"], "train", preset, "--run-dir", run, "--set",
                             f"data.validation={60000 - TRAINED}")
            found = {name: results_of(path, folder, run) for name, path in programs.items()}
            unequal = {key: (found["before"][key], value) for key, value in found["now"].items() if found["before"][key] != value}
            counts = {what: compared(found["now"]["verify"], what) for what in ("codes", "outputs")}
            if trained.startswith("exit") or unequal or None in counts.values():
                result["findings"].append({"preset": preset, "train": trained[-300:], "differs": unequal, "verify": found["now"]["verify"]})
            result["presets"][preset] = counts
            result["executions"] += 1
            clock.add_to(result)
            result.save()
    result["done"] = set(result["presets"]) == set(presets) and not result["findings"]
    result.save()
    print(result.line())
    return 1 if result["findings"] else 0
