"""The suite under AddressSanitizer and UndefinedBehaviorSanitizer, and its threads under ThreadSanitizer."""
import glob
import hashlib
import json
import os
import re
import subprocess
import xml.etree.ElementTree

from reliability.common import BUILD, Clock, Result, build, sha256

CHUNK = 200  # tests that one call of ctest runs
# What runs in threads of its own or in OpenMP's: the loader's, the kernels', and who uses both.
THREADED = ["framework_data_test", "framework_tests", "float_kernels_test", "integer_kernels_test", "quant_plan_test"]
# Reports about libraries that ThreadSanitizer does not see into would be wrong.
ARCHER = "/usr/lib/llvm-*/lib/libarcher.so"


def tests_in(folder, programs):
    """{ctest's number: (name, command)} of the tests that these programs run, or all."""
    listing = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1"], text=True, capture_output=True,
                             check=True).stdout
    tests = [(test["name"], test.get("command") or [""]) for test in json.loads(listing)["tests"]]
    run_by = [os.path.basename(command[0]) for _, command in tests]
    absent = set(programs) - set(run_by)
    if absent:
        raise SystemExit(f"campaign: no tests of {', '.join(sorted(absent))}")
    wanted = [(not programs or program in programs) and "_NOT_BUILT" not in name for program, (name, _) in zip(run_by, tests)]
    return {str(number): test for number, test in enumerate(tests, start=1) if wanted[number - 1]}


def digest(commands):
    """Of the programs that the tests' commands name."""
    files = sorted({word for command in commands for word in command if os.path.isfile(word) and os.access(word, os.X_OK)})
    return hashlib.sha256("".join(map(sha256, files)).encode()).hexdigest()


def run_chunk(folder, tests, numbers, environment):
    """{number: "passed", "skipped" or its output's end}."""
    report = os.path.join(folder, "campaign.xml")
    subprocess.run(["ctest", "--test-dir", folder, "-I", "0,0,0," + ",".join(numbers), "--output-junit", report,
                    "--timeout", "3000", "--parallel", str(len(os.sched_getaffinity(0))),
                    "--test-output-size-failed", "20000"],
                   env={**os.environ, "OMP_WAIT_POLICY": "passive", **environment}, stdout=subprocess.DEVNULL)
    outcomes = dict.fromkeys(numbers, "ctest did not report it")
    number_of = {tests[number][0]: number for number in numbers}
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        if case.get("name") not in number_of:
            continue  # run because others need it
        output = case.findtext("system-out") or ""
        outcomes[number_of[case.get("name")]] = {
            "run": "passed", "notrun": "skipped", "disabled": "skipped"}.get(case.get("status"), output[-1500:] or "no output")
    return outcomes


def run_suite(arguments, name, folder, programs, environment, fields):
    tests = tests_in(folder, programs)
    result = Result(arguments, name, {"programs_sha256": digest(command for _, command in tests.values())},
                    {**fields, "tests": len(tests), "passed": 0, "skipped": 0})
    done_path = os.path.join(folder, "campaign-done.json")
    outcomes = {}
    if result["executions"] > 0 and os.path.exists(done_path):
        with open(done_path) as file:
            outcomes = json.load(file)
    clock = Clock(arguments)
    pattern = "|".join(arguments.only)
    while not clock.over():
        waiting = [number for number, (test, _) in tests.items() if re.search(pattern, test) and number not in outcomes]
        if not waiting:
            break
        outcomes.update(run_chunk(folder, tests, waiting[:CHUNK], environment))
        with open(done_path, "w") as file:
            json.dump(outcomes, file)
        result["executions"] = len(outcomes)
        for kind in ("passed", "skipped"):
            result[kind] = sum(outcome == kind for outcome in outcomes.values())
        result["findings"] = [{"test": tests[number][0], "output": outcome} for number, outcome in outcomes.items()
                              if outcome not in ("passed", "skipped")]
        clock.add_to(result)
        result["done"] = all(number in outcomes for number in tests) and not result["findings"]
        result.save()
        print(result.line(), flush=True)
    print(result.line())
    return 1 if result["findings"] else 0


def sanitize(arguments):
    build("asan", options=["-DSTEELYARD_TESTS=ON"])
    return run_suite(arguments, "sanitize", os.path.join(BUILD, "asan"), [], {},
                     {"sanitizers": "address, undefined"})


def threads(arguments):
    archer = sorted(glob.glob(ARCHER))
    build("tsan", *THREADED)
    environment = {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1 halt_on_error=1", "OMP_NUM_THREADS": "4",
                   "STEELYARD_CPU_BACKEND": "eigen", **({"OMP_TOOL_LIBRARIES": archer[-1]} if archer else {})}
    return run_suite(arguments, "threads", os.path.join(BUILD, "tsan"), THREADED, environment,
                     {"sanitizers": "thread", "openmp": "libomp with Archer" if archer else "libomp"})
