"""scripts/quickstart with stand-ins for everything that takes long."""
import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "quickstart")
STEELYARD = """#!/bin/sh
echo "$@" >>calls
case $1 in
  train) mkdir -p $4 && echo '{"final": {"loss": 0.2, "top1": 92.5}}' >$4/summary.json ;;
  export) mkdir -p $2/export && echo 12345 >$2/export/model.safetensors ;;
  verify) echo "top-1: trained 92.50 %, integer 92.41 %"
          echo "ONNX Runtime 1.30.0: top-1 92.40 %, the same class for 99.00 %; 7 of 100 outputs differ, by at most 1"
          echo "its default session on this machine: top-1 91.00 %, the same class for 90.00 %; 70 of 100 outputs differ, by at most 1"
          exit $(cat status) ;;
esac
"""


class Quickstart(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="steelyard-quickstart-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for path, text in (("scripts/install_dependencies", "#!/bin/sh\n"), ("scripts/python_env", "#!/bin/sh\n"),
                           ("bin/cmake", "#!/bin/sh\n"), ("build/cpu/cli/steelyard", STEELYARD)):
            full = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w") as file:
                file.write(text)
            os.chmod(full, 0o755)
        shutil.copy(SCRIPT, os.path.join(self.folder, "scripts"))

    def run_script(self, status, *arguments):
        with open(os.path.join(self.folder, "status"), "w") as file:
            file.write(str(status))
        path = os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]
        return subprocess.run([os.path.join(self.folder, "scripts", "quickstart"), *arguments], text=True, capture_output=True,
                              env={**os.environ, "PATH": path}, timeout=60)

    def calls(self):
        with open(os.path.join(self.folder, "calls")) as file:
            words = [line.split()[0] for line in file]
        os.remove(os.path.join(self.folder, "calls"))
        return words

    def test_help_runs_nothing(self):
        asked = self.run_script(0, "--help")
        self.assertEqual(asked.returncode, 0)
        self.assertIn("trains a float model on Fashion-MNIST", asked.stdout)
        self.assertEqual(self.run_script(0, "fast").returncode, 2)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "calls")))

    def test_table_and_status(self):
        for status in (3, 1, 0):
            result = self.run_script(status)
            self.assertEqual(result.returncode, status, result.stderr)
            self.assertEqual(result.stderr, "")
            self.assertIn("minutes", result.stdout.split("==")[1])
            self.assertIn("| W8A8 integer model              |   92.41 |         6 |\n", result.stdout)
            self.assertIn("| W8A8 in ONNX Runtime            |   92.40 |         - |\n", result.stdout)
            self.assertEqual("not verified: exit code" in result.stdout, status != 0)
            self.assertIn("verify", self.calls())  # again after a failure
        self.assertEqual(self.run_script(3).returncode, 0)
        self.assertEqual(self.calls(), ["eval", "eval"])


if __name__ == "__main__":
    unittest.main()
