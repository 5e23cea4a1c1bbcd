"""Runs of the real program, killed at random moments and resumed, end with the bytes of one that was not."""
import glob
import json
import os
import random
import shutil
import subprocess
import tempfile
import time

from reliability.common import Clock, Program, RECIPES, Result, program_of, sha256

KILLS = 1000


def scalar_steps(path):
    """The step of every event in a TensorBoard file, which must hold whole records only."""
    with open(path, "rb") as file:
        data = file.read()
    steps, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at:at + 8], "little")
        record = data[at + 12:at + 12 + length]
        at += 16 + length
        if record[9:10] == b"\x10":  # field 2, a varint
            step, shift, i = 0, 0, 10
            while True:
                step |= (record[i] & 0x7F) << shift
                shift, i = shift + 7, i + 1
                if record[i - 1] < 0x80:
                    break
            steps.append(step)
    if at != len(data):
        raise ValueError(f"{path}: its last record is cut off")
    return steps


MEASURED = ("seconds", "memory_bytes")  # of a process, not of what it computed


def results_of(run):
    """Everything that equal runs have in common, by name."""
    found = {os.path.relpath(path, run): sha256(path)
             for path in glob.glob(os.path.join(run, "**", "*.safetensors"), recursive=True)}
    with open(os.path.join(run, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    for line in lines:
        line.pop("seconds", None)
        line.pop("rank_seconds", None)
    found["metrics.jsonl"] = lines
    for events in glob.glob(os.path.join(run, "events.*")):
        found["events"] = scalar_steps(events)
    with open(os.path.join(run, "summary.json")) as file:
        found["summary.json"] = {key: value for key, value in json.load(file).items() if key not in MEASURED}
    return found


class Victim:
    """A recipe's run, whose uninterrupted results and duration are known."""

    def __init__(self, program, name):
        self.program = program
        self.recipe = program.write(name + ".yaml", RECIPES[name])
        begin = time.monotonic()
        program.succeed(*self.arguments("whole-" + name))
        self.duration = time.monotonic() - begin
        self.expected = results_of(program.in_folder("whole-" + name))
        self.run = "run-" + name

    def arguments(self, run):
        return ["train", self.recipe, "--run-dir", run, "--resume", "--threads", "1"]

    def start_and_kill(self, seconds):
        """Whether the program was still alive; its exit code and errors where it was not."""
        process = subprocess.Popen(self.program.command(*self.arguments(self.run)), cwd=self.program.folder,
                                   env=self.program.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        errors = process.communicate()[1].decode(errors="replace")
        return process.returncode, errors


def moment(run):
    """Where a kill hit, for the counts in the result."""
    if glob.glob(os.path.join(run, "**", "*.tmp"), recursive=True):
        return "while a file was written"
    if os.path.exists(os.path.join(run, "summary.json")):
        return "after the summary"
    return "in training" if os.path.exists(os.path.join(run, "last.safetensors")) else "before the first checkpoint"


def kills(arguments):
    path = program_of(arguments)
    result = Result(arguments, "kills", {"program_sha256": sha256(path)},
                    {"moments": {}, "finished_runs": 0, "recipes": list(RECIPES), "seed": random.randrange(1 << 32)})
    generator = random.Random(result["seed"] + result["executions"])
    clock = Clock(arguments)
    with tempfile.TemporaryDirectory(prefix="steelyard-kills-") as folder:
        program = Program(path, folder)
        victims = [Victim(program, name) for name in RECIPES]
        while result["executions"] < KILLS and not clock.over() and not result["findings"]:
            victim = victims[result["finished_runs"] % len(victims)]
            run = program.in_folder(victim.run)
            code, errors = victim.start_and_kill(generator.uniform(0, 1.1 * victim.duration))
            if code == -9:
                result["executions"] += 1
                result["moments"][moment(run)] = result["moments"].get(moment(run), 0) + 1
            elif code != 0:
                result["findings"].append({"recipe": victim.recipe, "why": f"exit {code}: {errors.strip()}"})
            else:
                found = results_of(run)
                differing = sorted(key for key in {*found, *victim.expected} if found.get(key) != victim.expected.get(key))
                if differing:
                    result["findings"].append({"recipe": victim.recipe, "why": "differs: " + ", ".join(differing)})
                result["finished_runs"] += 1
                shutil.rmtree(run)
            if result["executions"] % 20 == 0:
                clock.add_to(result)
                result.save()
        if result["findings"]:
            kept = os.path.join(arguments.results, "kills-finding")
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            print("kept:", kept)
    clock.add_to(result)
    result["done"] = result["executions"] >= KILLS and not result["findings"]
    result.save()
    print(result.line())
    return 1 if result["findings"] else 0
