"""Damaged checkpoints and full disks: what is refused, with which words, and what is left."""
import glob
import os
import shutil
import subprocess
import tempfile

from reliability.common import (Clock, EXPORT, GROUPS, HEAD, LINEAR, Program, RECIPES, Result, ROOT, SGD, program_of,
                                sha256)
from reliability.kill_part import results_of


MASKS = (0x01, 0x20, 0xFF)  # a digit, the case of a letter, everything


def one_line(errors):
    return errors.count("\n") == 1 and all(c.isprintable() for c in errors.rstrip("\n"))


# Flips -------------------------------------------------------------------------------------------


def checks_of_flips(program):
    """(name, file, command that must refuse it, changes of a byte): a run's checkpoint, its export."""
    recipe = program.write("tiny.yaml", HEAD + LINEAR + SGD.replace("epochs: 4", "epochs: 2") + GROUPS + EXPORT)
    program.succeed("train", recipe, "--run-dir", "run", "--set", "train.tensorboard=false")
    model = os.path.join("run", "export", "model.safetensors")
    last = os.path.join("run", "last.safetensors")
    return [("checkpoint", last, ["inspect", last], MASKS),
            ("checkpoint, resume", last, ["train", recipe, "--run-dir", "run", "--set", "train.tensorboard=false",
                                          "--resume"], MASKS[-1:]),
            ("integer model", model, ["inspect", "--graph", model], MASKS)]


def flip(program, result, clock, check):
    name, path, command, masks = check
    full = program.in_folder(path)
    with open(full, "rb") as file:
        whole = bytearray(file.read())
    counts = result["files"].setdefault(name, {"bytes": len(whole), "flips": 0, "refused": 0})
    while counts["flips"] < len(whole) * len(masks) and not clock.over():
        at, mask = counts["flips"] // len(masks), masks[counts["flips"] % len(masks)]
        damaged = bytearray(whole)
        damaged[at] ^= mask
        with open(full, "wb") as file:
            file.write(damaged)
        done = program.run(*command)
        counts["flips"] += 1
        result["executions"] += 1
        if done.returncode == 2 and one_line(done.stderr):
            counts["refused"] += 1
        else:
            result["findings"].append({"file": name, "byte": at, "mask": mask, "exit": done.returncode,
                                       "errors": done.stderr[:300]})
        if result["executions"] % 500 == 0:
            clock.add_to(result)
            result.save()
    with open(full, "wb") as file:
        file.write(whole)
    undamaged = program.run(*command)
    if undamaged.returncode != 0:
        result["findings"].append({"file": name, "why": "undamaged, it is refused: " + undamaged.stderr})


def flips(arguments):
    path = program_of(arguments)
    result = Result(arguments, "flips", {"program_sha256": sha256(path)}, {"files": {}})
    clock = Clock(arguments)
    with tempfile.TemporaryDirectory(prefix="steelyard-flips-") as folder:
        program = Program(path, folder)
        for check in checks_of_flips(program):
            flip(program, result, clock, check)
    clock.add_to(result)
    result["done"] = not clock.over() and not result["findings"]
    result.save()
    print(result.line())
    return 1 if result["findings"] else 0


# Full disks --------------------------------------------------------------------------------------


class FullDisk:
    """The program with a disk that is full from an operation on."""

    def __init__(self, program):
        self.program = program
        self.library = program.in_folder("failing_writes.so")
        source = os.path.join(ROOT, "tests", "support", "failing_writes.cpp")
        subprocess.run(["c++", "-std=c++20", "-O1", "-shared", "-fPIC", "-o", self.library, source], check=True)
        self.log = program.in_folder("failed")

    def run(self, first, folder, *command):
        if os.path.exists(self.log):
            os.remove(self.log)
        done = self.program.run(*command, LD_PRELOAD=self.library, FAILING_FROM=str(first), FAILING_LOG=self.log,
                                FAILING_FOLDER=self.program.in_folder(folder))
        failed = None
        if os.path.exists(self.log):
            with open(self.log) as file:
                failed = file.read().strip().replace(self.program.folder + "/", "")
        return done, failed


def problems(program, done, folder):
    """What is wrong with how a command ended on a full disk."""
    found = []
    if done.returncode != 1:
        found.append(f"exit {done.returncode}, expected 1")
    if not one_line(done.stderr):
        found.append(f"expected one line of errors, got {done.stderr[:300]!r}")
    if "No space left on device" not in done.stderr or folder not in done.stderr:
        found.append(f"the message names no file or no reason: {done.stderr[:300]!r}")
    for path in glob.glob(program.in_folder(folder, "**", "*.safetensors"), recursive=True):
        if program.run("inspect", path).returncode != 0:
            found.append(f"{os.path.relpath(path, program.folder)} is damaged")
    return found


def full_disk_runs(program, disk, name, clock, result):
    """Training: a failure at each operation in turn, then room again and --resume."""
    recipe = program.write(name + ".yaml", RECIPES[name])
    command = ["train", recipe, "--threads", "1", "--set", "train.checkpoint_every_steps=13", "--resume", "--run-dir"]
    program.succeed(*command, "whole")
    expected = results_of(program.in_folder("whole"))

    def resumed():
        program.succeed(*command, "run")
        found = results_of(program.in_folder("run"))
        return sorted(key for key in {*found, *expected} if found.get(key) != expected.get(key))

    sweep(program, disk, "train, " + name, [*command, "run"], "run", resumed, clock, result)
    shutil.rmtree(program.in_folder("whole"))


def sweep(program, disk, name, command, folder, after, clock, result):
    """The command with its disk full from operation 0, 1, 2, ... on until it needs no more."""
    counts = result["commands"].setdefault(name, {"operations": 0, "complete": False})
    while not counts["complete"] and not clock.over():
        shutil.rmtree(program.in_folder(folder), ignore_errors=True)
        if os.path.isdir(program.in_folder("before")):
            shutil.copytree(program.in_folder("before"), program.in_folder(folder))
        done, failed = disk.run(counts["operations"], folder, *command)
        if failed is None:
            counts["complete"] = True
            found = [] if done.returncode == 0 else [f"exit {done.returncode}: {done.stderr}"]
            if counts["operations"] == 0:
                found.append("no operation failed: was the library loaded that lets them fail?")
        else:
            found = problems(program, done, folder)
            try:
                found += [f"{key} differs afterwards" for key in after()]
            except (OSError, RuntimeError, ValueError) as error:
                found.append(f"afterwards: {error}")
            counts["operations"] += 1
            result["executions"] += 1
        if found:
            result["findings"].append({"command": name, "failed": failed, "problems": found})
        clock.add_to(result)
        result.save()


def full_disk_verbs(program, disk, clock, result):
    """Verbs that write beside a finished run, which stays as it was."""
    recipe = program.write("verbs.yaml", RECIPES["qat"])
    program.succeed("train", recipe, "--run-dir", "before")
    before = results_of(program.in_folder("before"))
    for name, command in (("export", ["export", "run"]), ("report", ["report", "run"])):
        def unharmed(command=command):
            program.succeed(*command)
            found = results_of(program.in_folder("run"))
            return sorted(key for key in before if found.get(key) != before[key])
        sweep(program, disk, name, command, "run", unharmed, clock, result)
    shutil.rmtree(program.in_folder("before"))


def full_disk(arguments):
    path = program_of(arguments)
    result = Result(arguments, "full-disk", {"program_sha256": sha256(path)}, {"commands": {}})
    clock = Clock(arguments)
    with tempfile.TemporaryDirectory(prefix="steelyard-disk-") as folder:
        program = Program(path, folder)
        disk = FullDisk(program)
        for name in RECIPES:
            full_disk_runs(program, disk, name, clock, result)
        full_disk_verbs(program, disk, clock, result)
    clock.add_to(result)
    result["done"] = all(c["complete"] for c in result["commands"].values()) and not result["findings"]
    result.save()
    print(result.line())
    return 1 if result["findings"] else 0
