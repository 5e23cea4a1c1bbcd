"""Deployed models of the suite: both engines on them, and threads that run one at once."""
import os
import re
import shutil
import subprocess
import tempfile

from reliability.common import BUILD, Clock, Result, build, sha256

RANDOM_GRAPHS = 40  # of each kind, beside the suite's networks
CODES = 100_000_000  # of each model that has codes, by all levels together
SLICE = 1_000_000  # codes of each model in one call
LEVELS = ["x86-64-v4", "x86-64-v3", "x86-64-v2"]
SECONDS = 3600  # of threads that run models
TURN = 60
THREADS = 4


class Models:
    """A folder of deployed models, for as long as the `with` lasts."""

    def __enter__(self):
        build("cpu", "write_onnx_cases", "compare_deployed", options=["-DSTEELYARD_TESTS=ON"])
        self.folder = tempfile.mkdtemp(prefix="steelyard-models-")
        program = os.path.join(BUILD, "cpu", "tests", "export", "write_onnx_cases")
        subprocess.run([program, self.folder, str(RANDOM_GRAPHS), "deployed"], check=True)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)


def own_levels(program):
    """Of the levels, those that this processor has."""
    def runs(level):
        with tempfile.TemporaryDirectory() as empty:
            done = subprocess.run([program, empty], env={**os.environ, "STEELYARD_INSTRUCTIONS": level}, text=True, capture_output=True)
        return done.stdout.startswith(level)
    return [level for level in LEVELS if runs(level)] or [""]


def engines(arguments):
    with Models() as models:
        program = os.path.join(BUILD, "cpu", "tests", "runtime", "deployed", "compare_deployed")
        levels = own_levels(program)
        result = Result(arguments, "engines", {"program_sha256": sha256(program)},
                        {"models": 0, "codes_of_each": 0, "codes": 0, "floats": 0, "levels": levels})
        clock = Clock(arguments)
        while not clock.over() and result["codes_of_each"] < CODES and not result["findings"]:
            slices = result["codes_of_each"] // SLICE
            level = levels[slices % len(levels)]
            environment = {**os.environ, "OMP_WAIT_POLICY": "passive", **({"STEELYARD_INSTRUCTIONS": level} if level else {})}
            done = subprocess.run([program, models.folder, str(SLICE), str(slices)], env=environment, text=True, capture_output=True)
            last = re.search(r"(\d+) models, \d+ of (\d+) codes differ, \d+ of (\d+) floats", done.stdout)
            if done.returncode != 0 or not last:
                result["findings"].append({"level": level, "seed": slices, "output": (done.stdout + done.stderr)[-1500:]})
            else:
                result["models"] = int(last[1])
                result["codes"] += int(last[2])
                result["floats"] += int(last[3])
                result["codes_of_each"] += SLICE
            result["executions"] = slices + 1
            clock.add_to(result)
            result["done"] = result["codes_of_each"] >= CODES and not result["findings"]
            result.save()
            print(result.line(), flush=True)
    return 1 if result["findings"] else 0


def hammer(arguments):
    build("tsan-runtime", "hammer_deployed")
    with Models() as models:
        program = os.path.join(BUILD, "tsan-runtime", "tests", "runtime", "deployed", "hammer_deployed")
        result = Result(arguments, "hammer", {"program_sha256": sha256(program)}, {"sanitizers": "thread", "threads": THREADS})
        clock = Clock(arguments)
        environment = {**os.environ, "TSAN_OPTIONS": "ignore_noninstrumented_modules=1 halt_on_error=1"}
        while not clock.over() and result["seconds"] < SECONDS and not result["findings"]:
            done = subprocess.run([program, models.folder, str(min(TURN, clock.left())), str(THREADS)], env=environment, text=True,
                                  capture_output=True)
            turns = re.search(r"(\d+) turns of models, 0 runs differ", done.stdout)
            if done.returncode != 0 or not turns:
                result["findings"].append({"output": (done.stdout + done.stderr)[-3000:]})
            else:
                result["executions"] += int(turns[1])
            clock.add_to(result)
            result["done"] = result["seconds"] >= SECONDS and not result["findings"]
            result.save()
            print(result.line(), flush=True)
    return 1 if result["findings"] else 0
