"""scripts/python_env installs what its file pins, by hash, and runs no code of the current folder."""
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import zipfile

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")


class PythonEnv(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="steelyard-python-env-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for folder in ("scripts", "wheels"):
            os.mkdir(os.path.join(self.folder, folder))
        shutil.copy(os.path.join(SCRIPTS, "python_env"), os.path.join(self.folder, "scripts"))

    def write_wheel(self, text):
        """A package `tiny` of one module. Returns the hash of its file."""
        path = os.path.join(self.folder, "wheels", "tiny-1-py3-none-any.whl")
        about = "tiny-1.dist-info/"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("tiny.py", text)
            wheel.writestr(about + "METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
            wheel.writestr(about + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(about + "RECORD", "tiny.py,,\n" + "".join(f"{about}{name},,\n" for name in ("METADATA", "WHEEL", "RECORD")))
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()

    def make(self, pins):
        """Calls the script; pip has only the wheels of this test."""
        with open(os.path.join(self.folder, "scripts", "python_env.txt"), "w") as file:
            file.write(pins)
        return subprocess.run([os.path.join(self.folder, "scripts", "python_env")], text=True, capture_output=True, timeout=300,
                              env={**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": os.path.join(self.folder, "wheels")})

    def imported(self):
        python = os.path.join(self.folder, "build", "python-env", "bin", "python3")
        return subprocess.run([python, "-I", "-c", "import tiny; print(tiny.TEXT)"], text=True, capture_output=True).stdout

    def test_only_files_with_the_pinned_hashes(self):
        digest = self.write_wheel("TEXT = 'first'\n")
        made = self.make(f"tiny==1 --hash=sha256:{digest}\n")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(self.imported(), "first\n")
        other = self.write_wheel("TEXT = 'second'\n")
        self.assertEqual(self.make(f"tiny==1 --hash=sha256:{digest}\n").returncode, 0)  # made already
        for pins in (f"# another comment\ntiny==1 --hash=sha256:{digest}\n", "tiny==1\n"):
            refused = self.make(pins)
            self.assertEqual(refused.returncode, 77, refused.stdout)
            self.assertIn("skipped: no environment with the packages in scripts/python_env.txt", refused.stderr)
            self.assertEqual(os.listdir(os.path.join(self.folder, "build")), [])
        self.assertEqual(self.make(f"tiny==1 --hash=sha256:{other}\n").returncode, 0)
        self.assertEqual(self.imported(), "second\n")

    def test_modules_in_the_folder_are_not_run(self):
        digest = self.write_wheel("TEXT = 'first'\n")
        for name in ("venv.py", "pip.py", "logging.py"):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write("open('ran', 'w')\n")
        made = self.make(f"tiny==1 --hash=sha256:{digest}\n")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "ran")))

    def test_every_package_has_a_version_and_a_hash(self):
        with open(os.path.join(SCRIPTS, "python_env.txt")) as file:
            lines = file.read().replace("\\\n", "").splitlines()
        lines = [re.sub(r' ; platform_machine == "\w+"', "", line) for line in lines]  # a package of one kind of machine
        packages = [line.split() for line in lines if line and not line.startswith("#")]
        self.assertLessEqual({"onnxruntime", "onnx", "safetensors", "numpy", "protobuf"}, {package[0].split("==")[0] for package in packages})
        for name, *hashes in packages:
            self.assertRegex(name, r"^[a-z-]+==[0-9.]+(dev[0-9]+)?$")
            self.assertTrue(hashes)
            for text in hashes:
                self.assertRegex(text, r"^--hash=sha256:[0-9a-f]{64}$")


if __name__ == "__main__":
    unittest.main()
