"""What a benchmark's results say about where they were measured."""
import glob
import os
import platform
import subprocess


def cpu_name():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())


def gpu_name():
    return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], check=True, text=True,
                          capture_output=True).stdout.splitlines()[0]


def blas_in_use():
    """The library behind libblas.so.3, which Debian's torch calls for its matrix products."""
    return sorted({os.path.realpath(path) for path in glob.glob("/usr/lib/*/libblas.so.3")})
