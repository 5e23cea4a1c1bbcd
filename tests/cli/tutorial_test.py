"""docs/tutorial.md does what it says: its files, commands and outputs, in order, in an empty folder."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "tutorial.md")
# A fenced block with its language, and the name of the file that it is, where a line before gives one.
BLOCK = re.compile(r"^(?:`([\w.]+)`:\n\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def without_figures(text):
    """Figures differ between machines, and columns move with them."""
    text = re.sub(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?", "#", text)
    return re.sub(" +", " ", text)


def pattern_of(shown):
    """A line `...` stands for any lines, `...` inside a line for any text."""
    pattern = ""
    for line in without_figures(shown).splitlines():
        rest = ".*".join(re.escape(part) for part in line.split("..."))
        pattern += r"(?:.*\n)*?" if line == "..." else rest + r"\n"
    return pattern


class Tutorial(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="steelyard-tutorial-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name, program in (("steelyard", os.environ["STEELYARD"]), ("python3", sys.executable)):
            self.write(os.path.join("bin", name), f'#!/bin/sh\nexec "{program}" "$@"\n')
            os.chmod(os.path.join(self.folder, "bin", name), 0o755)
        self.environment = {**os.environ, "OMP_WAIT_POLICY": "passive",
                            "PATH": os.path.join(self.folder, "bin") + ":" + os.environ["PATH"]}

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def output_of(self, *command):
        result = subprocess.run(command, cwd=self.folder, text=True, capture_output=True, env=self.environment, timeout=300)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_page(self):
        with open(PAGE, encoding="utf-8") as file:
            blocks = BLOCK.findall(file.read())
        printed, compared = "", 0
        for name, language, text in blocks:
            if name:
                self.write(name, text)
            elif language == "sh":
                printed = self.output_of("sh", "-ec", text)
            elif language == "text":
                if "ONNX: skipped" in printed:
                    text = re.sub(r"^ONNX Runtime.*\n", "", text, flags=re.MULTILINE)
                same = re.fullmatch(pattern_of(text), without_figures(printed))
                self.assertTrue(same, f"shown:\n{text}\nprinted:\n{printed}")
                compared += 1
                if "codes differ" in text:
                    self.assertRegex(printed, r"(?m)^0 of \d+ codes differ")
        self.assertGreater(compared, 8)

        shutil.rmtree(os.path.join(self.folder, "runs"))
        printed = self.output_of(os.environ["TUTORIAL_EXAMPLE"])
        self.assertRegex(printed, r"conv1 +weight +int8 symmetric, per channel")
        self.assertRegex(printed, r"top-1 [89]\d")
        self.assertRegex(printed, r"(?m)^0 of \d+ codes differ")
