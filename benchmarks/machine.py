"""What a benchmark's results say about where they were measured."""
import glob
import os
import platform
import subprocess


def cpu_name():
    """The processor, and whether programs take it for an older one (tests/support/older_processor.cpp)."""
    masked = ""
    if "older_processor" in os.environ.get("LD_PRELOAD", ""):
        masked = " as one with AVX2" + (" and AVX-VNNI" if os.environ.get("OLDER_PROCESSOR") == "avx-vnni" else " alone")
    with open("/proc/cpuinfo") as file:
        return next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine()) + masked


def gpu_name():
    return subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], check=True, text=True,
                          capture_output=True).stdout.splitlines()[0]


def blas_in_use():
    """The library behind libblas.so.3, which Debian's torch calls for its matrix products."""
    return sorted({os.path.realpath(path) for path in glob.glob("/usr/lib/*/libblas.so.3")})
