"""Every reader under clang's libFuzzer with AddressSanitizer and UndefinedBehaviorSanitizer."""
import glob
import os
import re
import resource
import shutil
import subprocess
import tempfile

from reliability.common import BUILD, Clock, Result, ROOT, build, commit, sha256

EXECUTIONS = 10_000_000
SECONDS = 3600  # of processor time
SLICE = 120  # seconds of one target's turn
SLOW = 20  # seconds of one input that are a finding
MOST_BYTES = 512 * 1024 * 1024
SOURCES = os.path.join(ROOT, "tests", "fuzz")
# Whose words a reader knows beside its own.
DICTIONARIES = {"safetensors": "safetensors_header", "checkpoint": "safetensors_header",
                "safetensors_dataset": "safetensors_header", "yaml": "recipe", "overrides": "recipe",
                "run_record": "recipe", "report": "metrics_log", "deployed": "graph"}


def targets(arguments):
    known = sorted(os.path.basename(path)[:-len("_fuzz.cpp")] for path in glob.glob(os.path.join(SOURCES, "*_fuzz.cpp")))
    unknown = set(arguments.only) - set(known)
    if unknown:
        raise SystemExit(f"campaign: no such reader: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return [name for name in known if not arguments.only or name in arguments.only]


class Target:
    def __init__(self, arguments, name):
        self.name = name
        self.program = os.path.join(BUILD, "fuzz", "tests", "fuzz", name + "_fuzz")
        self.corpus = os.path.join(BUILD, "fuzz-corpus", name)
        self.findings = os.path.join(BUILD, "fuzz-findings", name)
        for folder in (self.corpus, self.findings):
            os.makedirs(folder, exist_ok=True)
        # Counts go on over versions of the reader; findings are those of the last.
        self.result = Result(arguments, "fuzz-" + name, {},
                             {"sanitizers": "address, undefined, float-cast-overflow", "cpu_seconds": 0.0, "program_sha256": ""})
        earlier = {self.result["commit"]: self.result["executions"]} if self.result["executions"] else {}
        self.versions = self.result.data.setdefault("executions_of_commits", earlier)
        program = sha256(self.program)
        if self.result["program_sha256"] != program:
            self.result["findings"] = []
        self.result["program_sha256"], self.result["commit"] = program, commit()

    def finished(self):
        result = self.result
        return bool(result["findings"]) or result["executions"] >= EXECUTIONS or result["cpu_seconds"] >= SECONDS

    def command(self, seconds):
        seeds = [os.path.join(SOURCES, "corpus", self.name)]
        if self.name in ("recipe", "yaml"):
            seeds.append(os.path.join(ROOT, "recipes", "presets"))
        dictionary = os.path.join(SOURCES, DICTIONARIES.get(self.name, self.name) + ".dict")
        # Leaks are looked for at the end, not after every input that left memory allocated (a buffer kept for the
        # next one): that took .1 s each, and most of a turn.
        return [self.program, f"-max_total_time={max(1, int(seconds))}", "-detect_leaks=0", "-print_final_stats=1", f"-timeout={SLOW}",
                f"-runs={max(1, EXECUTIONS - self.result['executions'])}", "-rss_limit_mb=2048",
                f"-malloc_limit_mb={MOST_BYTES >> 20}", "-verbosity=1", f"-artifact_prefix={self.findings}/",
                *([f"-dict={dictionary}"] if os.path.exists(dictionary) else []), self.corpus, *seeds]

    def turn(self, seconds, clock):
        scratch = tempfile.mkdtemp(prefix="steelyard-fuzz-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            # One thread: libFuzzer follows what the program does, and machines are shared.
            environment = {**os.environ, "TMPDIR": scratch, "OMP_NUM_THREADS": "1", "UBSAN_OPTIONS": "print_stacktrace=1"}
            done = subprocess.run(self.command(seconds), env=environment, text=True, errors="replace", capture_output=True)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.result["cpu_seconds"] = round(self.result["cpu_seconds"] + after.ru_utime + after.ru_stime -
                                           before.ru_utime - before.ru_stime, 1)
        self.note(done)
        clock.add_to(self.result)
        self.result["done"] = self.finished() and not self.result["findings"]
        self.result.save()

    def is_slow(self, path):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([self.program, "-timeout=100000", path], capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime >= SLOW

    def note(self, done):
        count = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
        executions = int(count.group(1)) if count else 0
        self.versions[self.result["commit"]] = self.versions.get(self.result["commit"], 0) + executions
        self.result["executions"] += executions
        covered = re.findall(r"cov: (\d+)", done.stderr)
        if covered:
            self.result["covered_edges"] = int(covered[-1])
        if done.returncode != 0:
            why = re.findall(r"^(?:fuzz: .*|==\d+==\s*ERROR: .*|.*runtime error: .*|SUMMARY: .*)$", done.stderr, re.M)
            inputs = re.findall(r"Test unit written to (\S+)", done.stderr)
            # libFuzzer's limit is on the clock, which goes on while others have the processor.
            if "libFuzzer: timeout" in done.stderr and not any(map(self.is_slow, inputs)):
                return
            self.result["findings"].append({"why": why[:3] or [done.stderr[-500:]],
                                            "inputs": [os.path.relpath(path, ROOT) for path in inputs]})


def fuzz(arguments):
    names = targets(arguments)
    if not arguments.no_build:
        build("fuzz", *(name + "_fuzz" for name in names))
    every = [Target(arguments, name) for name in names]
    clock = Clock(arguments)
    # First what nobody has run, then one after the other to its end.
    for target in [t for t in every if t.result["executions"] == 0] + every:
        first = target.result["executions"] == 0
        while not clock.over() and not target.finished():
            clock.restart()
            target.turn(min(SLICE, clock.left()), clock)
            print(target.result.line(), flush=True)
            if first:
                break
    findings = sum(len(target.result["findings"]) for target in every)
    done = sum(target.result["done"] for target in every)
    print(f"fuzz: {done} of {len(every)} readers done, {sum(t.result['executions'] for t in every)} executions, "
          f"{findings} findings")
    return 1 if findings else 0
