"""Runs of several ranks that lose one at random moments, continued by other numbers of ranks, end with the bytes of one process."""
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time

from reliability.common import CONV, Clock, GROUPS, Program, Result, program_of, sha256
from reliability.kill_part import results_of
from support import mpirun, namespaces
from support.data_files import write_gradients

FAULTS = 100
FAULTS_PER_RUN = 4  # after which one process ends the run
HANG = 120
# Kind: seconds in which all other ranks must be gone.
LIMITS = {"kill": 2, "stop": 7, "link": 7}
MOMENTS = ["first step", "training", "evaluation", "checkpoint"]

STEPS = 10  # an epoch: the number of steps after which metrics.jsonl gets a line
RECIPE = """version: 1
name: ranks
seed: 3
data: {dataset: safetensors, path: large, batch_size: 8, validation: 320, augment: [flip]}
""" + CONV + """train:
  epochs: 30
  shards: 4
  optimizer: {type: adamw, lr: 0.002}
  checkpoint_every_steps: 3
""" + GROUPS.replace("[Linear]", "[Linear, Conv2d]")


class Job:
    """`mpirun` of a run that is continued, on this machine or on hosts of one rank or two each."""

    def __init__(self, program, ranks, hosts=None):
        self.run = program.in_folder("run")
        self.metrics = os.path.join(self.run, "metrics.jsonl")
        self.ranks = ranks
        self.hosts = hosts
        self.errors = open(program.in_folder("errors"), "w+")
        self.begin = time.time()
        self.lines = self.last_line()
        arguments = [program.path, "train", program.in_folder("recipe.yaml"), "--run-dir", self.run, "--resume", "--threads", "1"]
        command = hosts.mpirun(ranks // len(hosts.names), *arguments) if hosts else mpirun.command(ranks, *arguments)
        self.process = subprocess.Popen(command, cwd=program.folder, stdout=subprocess.DEVNULL, stderr=self.errors,
                                        env=mpirun.environment(OMP_WAIT_POLICY="passive"))

    def last_line(self):
        """Of metrics.jsonl: its size and its last whole line."""
        try:
            with open(self.metrics, "rb") as file:
                data = file.read()
            return len(data), json.loads(data.splitlines()[-1]) if data.endswith(b"\n") else None
        except (OSError, IndexError):
            return 0, None

    def has_joined(self):
        """Whether all ranks have: each has opened its log."""
        logs = [os.path.join(self.run, f"rank-{rank}.log") for rank in range(1, self.ranks)]
        return all(os.path.exists(log) and os.path.getmtime(log) >= self.begin for log in logs)

    def has_trained(self):
        return self.last_line()[0] > self.lines[0]

    def evaluates(self):
        size, line = self.last_line()
        return size > self.lines[0] and line is not None and line["type"] == "step" and line["step"] % STEPS == 0

    def writes(self):
        return self.has_joined() and bool(glob.glob(os.path.join(self.run, "*.tmp")))

    def wait_for(self, moment, generator):
        """Whether it came before the run ended."""
        condition = {"first step": self.has_joined, "training": self.has_trained, "evaluation": self.evaluates,
                     "checkpoint": self.writes}[moment]
        longest = {"first step": 0.1, "training": 0.3, "evaluation": 0.01, "checkpoint": 0}[moment]
        end = time.monotonic() + HANG
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                return False
            time.sleep(0.0005)
        time.sleep(generator.uniform(0, longest))
        return self.process.poll() is None

    def strike(self, kind, moment, generator):
        """The fault, often of the rank that writes checkpoints while it does; (what went wrong or nothing, seconds until all other ranks had ended)."""
        processes = mpirun.rank_processes(self.run)
        if len(processes) < self.ranks:  # the run ends at this moment
            return None, None
        others = dict(processes)
        if kind == "link":
            self.hosts.set_link(1, "down")
        else:
            writer = moment == "checkpoint" and generator.random() < 0.5
            victim = others.pop(0 if writer else generator.randrange(self.ranks))
            os.kill(victim, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
        seconds = mpirun.seconds_until_gone(others.values(), HANG)
        if seconds is None:
            return f"a rank was left after {HANG} s", None
        return (f"the others were gone after {seconds:.1f} s" if seconds > LIMITS[kind] else ""), seconds

    def close(self):
        """What the ranks wrote to standard error. mpirun may not notice a link that is down."""
        try:
            self.process.wait(10 if self.hosts is None else 1)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in mpirun.rank_processes(self.run).values():
            os.kill(process, signal.SIGKILL)
        if self.hosts:
            self.hosts.set_link(1, "up")
        self.errors.seek(0)
        with self.errors:
            return self.errors.read()


class Faults:
    def __init__(self, program, result, hosts):
        self.program, self.result, self.hosts = program, result, hosts
        program.write("recipe.yaml", RECIPE)
        write_gradients(program.in_folder("large"), seed=1, side=6, step=25, counts=(400, 20))
        program.succeed("train", "recipe.yaml", "--run-dir", "whole", "--threads", "1")
        self.expected = results_of(program.in_folder("whole"))
        self.run = program.in_folder("run")

    def found(self, why, **where):
        self.result["findings"].append({"why": why, **where})

    def one(self, generator, number):
        """Loses a rank, and checks what it leaves; whether the run was still there to be hit."""
        kinds = [kind for kind in LIMITS if kind != "link" or self.hosts]
        kind, moment, ranks = kinds[number % len(kinds)], generator.choice(MOMENTS), generator.choice((2, 4))
        where = {"kind": kind, "moment": moment, "ranks": ranks}
        job = Job(self.program, ranks, self.hosts if kind == "link" else None)
        problem, seconds = job.strike(kind, moment, generator) if job.wait_for(moment, generator) else (None, None)
        errors = job.close()
        if problem is None:
            if job.process.returncode != 0:
                self.found(f"exit {job.process.returncode} without a fault: {errors.strip()}", **where)
            self.compare()
            return False
        said = errors + "".join(open(log).read() for log in glob.glob(os.path.join(self.run, "rank-*.log")))
        if problem:
            self.found(problem, **where)
        if "lost: rank " not in said:
            self.found("no rank said which one was lost: " + errors.strip(), **where)
        counts = self.result["faults"].setdefault(kind, {}).setdefault(moment, 0)
        self.result["faults"][kind][moment] = counts + 1
        if seconds is not None:
            self.result["seconds_until_gone"].setdefault(kind, []).append(round(seconds, 3))
        self.result["files_cut_off"] += len(glob.glob(os.path.join(self.run, "*.tmp")))
        for path in glob.glob(os.path.join(self.run, "*.safetensors")):
            inspected = self.program.run("inspect", path)
            if inspected.returncode != 0:
                self.found(f"{path}: {inspected.stderr.strip()}", **where)
        return True

    def finish(self):
        """By one process."""
        done = self.program.run("train", "recipe.yaml", "--run-dir", self.run, "--resume", "--threads", "1")
        if done.returncode != 0:
            self.found(f"resumed by one process: exit {done.returncode}: {done.stderr.strip()}")
            return
        self.compare()

    def compare(self):
        if not self.result["findings"]:
            found = results_of(self.run)
            differing = sorted(key for key in {*found, *self.expected} if found.get(key) != self.expected.get(key))
            if differing:
                self.found("differs: " + ", ".join(differing))
        self.result["finished_runs"] += 1
        if not self.result["findings"]:
            shutil.rmtree(self.run)


def ranks(arguments):
    if not mpirun.MPIRUN:
        raise SystemExit("ranks: needs mpirun (openmpi-bin)")
    path = program_of(arguments)
    result = Result(arguments, "ranks", {"program_sha256": sha256(path)},
                    {"faults": {}, "seconds_until_gone": {}, "files_cut_off": 0, "finished_runs": 0, "without_links": "",
                     "seed": random.randrange(1 << 32)})
    result["without_links"] = mpirun.why_not_open_mpi_4() or namespaces.why_not()
    hosts = None if result["without_links"] else namespaces.Hosts(2)
    generator = random.Random(result["seed"] + result["executions"])
    clock = Clock(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="steelyard-ranks-") as folder:
            faults = Faults(Program(path, folder), result, hosts)
            while result["executions"] < FAULTS and not clock.over() and not result["findings"]:
                if not faults.one(generator, result["executions"]):
                    continue
                result["executions"] += 1
                if result["executions"] % FAULTS_PER_RUN == 0 and not result["findings"]:
                    faults.finish()
                clock.add_to(result)
                result.save()
            if result["findings"]:
                kept = os.path.join(arguments.results, "ranks-finding")
                shutil.copytree(folder, kept, dirs_exist_ok=True)
                print("kept:", kept)
    finally:
        if hosts:
            hosts.close()
    clock.add_to(result)
    result["done"] = result["executions"] >= FAULTS and not result["findings"]
    result.save()
    print(result.line())
    return 1 if result["findings"] else 0
