#!/usr/bin/env python3
"""Instructions that one inference executes on an emulated 64-bit Arm processor, beside ONNX Runtime's.

usage: benchmarks/arm_instructions.py RUN_DEPLOYED SYSROOT [--models resnet18 ...] [--json FILE]

RUN_DEPLOYED is that program of a build of the runtime alone (preset aarch64-runtime, target run_deployed), SYSROOT has Debian's arm64
libraries (build/aarch64-sysroot). The networks of inference.py are exported here; what they are run by has one thread. Python and
ONNX Runtime for arm64 are fetched into a temporary folder. A plugin of QEMU (count_instructions.c) counts from the second inference
on, so that neither loading nor packing counts; Python's share of a call does. Set PYTHONPATH to the folder of the package and
STEELYARD_LIBRARY to its library, unless they are installed.
"""
import argparse
import datetime
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy

from inference import export, network
from machine import cpu_name

# What QEMU emulates, with the lines of /proc/cpuinfo that such a processor has: ONNX Runtime reads them.
NEON = "fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid"
DOT = NEON + " atomics fphp asimdhp asimdrdm lrcpc dcpop asimddp"
PROCESSORS = {
    "NEON": ("cortex-a53", NEON, "0xd03"),
    "dotprod": ("cortex-a76", DOT, "0xd0b"),
    "i8mm": ("max,sve=off,sme=off", DOT + " jscvt fcma dcpodp flagm2 frint i8mm bf16", "0xd4b"),
}
RUNS = 2
SESSION = """
import os, sys
sys.path.insert(0, sys.argv[1])
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
x = session.get_inputs()[0]
shape = [1 if isinstance(d, str) or d is None else d for d in x.shape]
data = numpy.fromfile(sys.argv[3], dtype=numpy.uint8 if x.type == "tensor(uint8)" else numpy.float32).reshape(shape)
y = session.run(None, {x.name: data})[0]
os.getpriority(os.PRIO_PROCESS, 0)
for _ in range(int(sys.argv[5])):
    y = session.run(None, {x.name: data})[0]
os.getpriority(os.PRIO_PROCESS, 0)
y.astype(numpy.float32).tofile(sys.argv[4])
"""


def python_of_arm(folder):
    """An arm64 Python with ONNX Runtime: the folder of its system and that of its packages."""
    root, site = folder / "root", folder / "site"
    subprocess.run(["mmdebstrap", "--quiet", "--mode=chrootless", "--variant=extract", "--architectures=arm64",
                    "--include=python3,python3-minimal,libpython3-stdlib,libstdc++6,libgomp1", "bookworm", str(root)], check=True)
    for link in root.rglob("*"):  # to the same system
        if link.is_symlink() and os.readlink(link).startswith("/"):
            target = os.readlink(link)
            link.unlink()
            link.symlink_to(str(root) + target)
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)] + ["--platform=manylinux2014_aarch64"]
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version=3.11",
                    *platforms, "--dest", str(folder), "onnxruntime", "numpy"], check=True)
    for wheel in folder.glob("*.whl"):
        shutil.unpack_archive(wheel, site, "zip")
    (root / "proc").mkdir(exist_ok=True)
    return root, site


def cpuinfo(features, part):
    lines = ["BogoMIPS\t: 50.00", f"Features\t: {features}", "CPU implementer\t: 0x41", "CPU architecture: 8", "CPU variant\t: 0x1",
             f"CPU part\t: {part}", "CPU revision\t: 1", ""]
    return "\n".join(f"processor\t: {i}\n" + "\n".join(lines) for i in range(2)) + "\n"


def executed(processor, root, command, plugin):
    """Instructions of an inference by `command`, whose last argument is how many it counts."""
    done = subprocess.run(["qemu-aarch64", "-cpu", processor, "-L", str(root), "-plugin", str(plugin), *map(str, command), str(RUNS)],
                          check=True, text=True, stderr=subprocess.PIPE,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})
    before, after = map(int, re.findall(r"executed (\d+) instructions", done.stderr))
    return (after - before) // RUNS


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("sysroot")
    parser.add_argument("--models", nargs="*", default=["resnet18", "mobilenet_v2", "cnn", "mlp"])
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        plugin = folder / "count.so"
        source = pathlib.Path(__file__).with_name("count_instructions.c")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", source, "-o", plugin], check=True)
        root, site = python_of_arm(folder)
        (folder / "session.py").write_text(SESSION)
        version = next(site.glob("onnxruntime-*.dist-info")).name.split("-")[1].removesuffix(".dist")
        for model in options.models:
            (folder / model).mkdir()
            file = export(model, folder / model)
            shape = network(model)[1]
            x = numpy.random.default_rng(1).standard_normal((1, *shape), dtype=numpy.float32)
            x.tofile(folder / "channels_first")
            (numpy.moveaxis(x, 1, -1) if len(shape) == 3 else x).copy().tofile(folder / "channels_last")
            for level, (processor, features, part) in PROCESSORS.items():
                (root / "proc" / "cpuinfo").write_text(cpuinfo(features, part))
                ours = executed(processor, options.sysroot, [options.program, file, folder / "channels_last", folder / "ours"], plugin)
                theirs = executed(processor, root, [root / "usr/bin/python3.11", folder / "session.py", site, file.with_suffix(".onnx"),
                                                    folder / "channels_first", folder / "theirs"], plugin)
                same = numpy.array_equal(numpy.fromfile(folder / "ours", numpy.float32), numpy.fromfile(folder / "theirs", numpy.float32))
                rows.append({"model": model, "level": level, "processor": processor, "instructions": ours,
                             "onnxruntime_instructions": theirs, "ratio": ours / theirs, "same_outputs": bool(same)})
                print(f"{model:14} {level:8} {ours / 1e6:9.1f} million instructions, ONNX Runtime {theirs / 1e6:9.1f}: "
                      f"{ours / theirs:.2f}{'' if same else '   (other outputs)'}", flush=True)
    means = {level: math.exp(sum(math.log(row["ratio"]) for row in rows if row["level"] == level) / len(options.models))
             for level in PROCESSORS}
    for level, mean in means.items():
        print(f"geometric mean, {level}: {mean:.2f}")
    if options.json:
        qemu = subprocess.run(["qemu-aarch64", "--version"], check=True, text=True, capture_output=True).stdout.split()[2]
        result = {"date": datetime.date.today().isoformat(), "cpu": f"emulated by QEMU {qemu} on {cpu_name()}",
                  "onnxruntime": version, "rows": rows, "geometric_means": means}
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
