"""Pages of docs/ do what they say: their files, commands and outputs, in order, in an empty folder."""
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support.data_files import png

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
# A fenced block with its language, and the name of the file that it is, where a line before gives one.
BLOCK = re.compile(r"^(?:`([\w.-]+)`:\n\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


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


class InAFolder(unittest.TestCase):
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

    def run_page(self, name, without=None):
        """Runs all of the page but the section `without`. Returns how many outputs were compared, and the commands."""
        with open(os.path.join(DOCS, name), encoding="utf-8") as file:
            page = file.read()
        if without is not None:
            page, left_out = re.subn(rf"^## {re.escape(without)}\n.*?(?=^## )", "", page, flags=re.MULTILINE | re.DOTALL)
            self.assertEqual(left_out, 1, without)
        blocks = BLOCK.findall(page)
        printed, compared, commands = "", 0, []
        for name, language, text in blocks:
            if name:
                self.write(name, text)
            elif language == "sh":
                commands.append(text)
                printed = self.output_of("sh", "-ec", text)
            elif language == "text":
                if "ONNX: skipped" in printed:
                    text = re.sub(r"^ONNX Runtime.*\n", "", text, flags=re.MULTILINE)
                same = re.fullmatch(pattern_of(text), without_figures(printed))
                self.assertTrue(same, f"shown:\n{text}\nprinted:\n{printed}")
                compared += 1
                if "codes differ" in text:
                    self.assertRegex(printed, r"(?m)^0 of \d+ codes differ")
        return compared, commands


class Tutorial(InAFolder):
    def test_page(self):
        onnx = "STEELYARD_HAVE_ONNX" in os.environ  # which builds without protobuf cannot read
        compared, _ = self.run_page("tutorial.md", without=None if onnx else "A float model of your own")
        self.assertGreater(compared, 10 if onnx else 8)
        for name in ("mine-w8a8-calibrated/export/model.onnx", "mine-w8a8/export/model.onnx", "mine-w8a8/report.html"):
            self.assertEqual(os.path.exists(os.path.join(self.folder, "runs", name)), onnx, name)
        shutil.rmtree(os.path.join(self.folder, "runs"))
        printed = self.output_of(os.environ["TUTORIAL_EXAMPLE"])
        self.assertRegex(printed, r"conv1 +weight +int8 symmetric, per channel")
        self.assertRegex(printed, r"top-1 [89]\d")
        self.assertRegex(printed, r"(?m)^0 of \d+ codes differ")


class Tables(InAFolder):
    """docs/tables.md, with made-up measurements, and its C++ program."""

    def test_page(self):
        generator = random.Random(11)
        rows = ["pressure,vibration,site,state"]
        for _ in range(300):
            state = generator.randrange(3)  # worn pumps shake, blocked ones have pressure
            pressure = (3 + 4 * (state == 2) + generator.random()) if generator.randrange(9) else None
            vibration = 0.2 + 0.7 * (state == 1) + 0.1 * generator.random()
            rows.append(f"{'NA' if pressure is None else round(pressure, 2)},{vibration:.2f},"
                        f"{generator.choice(('north', 'south', 'west'))},{('good', 'worn', 'blocked')[state]}")
        self.write("pumps.csv", "\n".join(rows) + "\n")
        compared, commands = self.run_page("tables.md")
        self.assertEqual((compared, len(commands)), (4, 5))
        model = os.path.join("runs", "pumps-w8a8", "export", "model.safetensors")
        printed = self.output_of(os.environ["TABLES_EXAMPLE"], model, "new.csv")
        self.assertEqual(printed, "new.csv:2  good\nnew.csv:3  worn\n")
        self.write("new.csv", "site,vibration,pressure\neast,1,1\n")
        failed = subprocess.run([os.environ["TABLES_EXAMPLE"], model, "new.csv"], cwd=self.folder, text=True, capture_output=True)
        self.assertIn("error: new.csv:2: column 'site': the training set has no category 'east'", failed.stderr)
        self.assertEqual(failed.returncode, 1)


class Photographs(InAFolder):
    """docs/photographs.md, with small pictures of three classes in place of photographs."""

    def setUp(self):
        super().setUp()
        generator = random.Random(7)
        for channel, name in enumerate(("rose", "lily", "tulip")):
            os.makedirs(os.path.join(self.folder, "photos", name))
            for i in range(30):
                width, height = generator.randrange(60, 90), generator.randrange(60, 90)
                pixels = bytearray(generator.randbytes(3 * width * height))
                pixels[channel::3] = bytes(192 | value >> 2 for value in pixels[channel::3])
                with open(os.path.join(self.folder, "photos", name, f"{i}.png"), "wb") as file:
                    file.write(png(width, height, bytes(pixels)))

    def test_page(self):
        compared, commands = self.run_page("photographs.md")
        self.assertEqual((compared, len(commands)), (4, 6))
        for name in ("sheet.png", "runs/photos-w8a8/export/model.onnx", "runs/photos-w8a8/report.html"):
            self.assertTrue(os.path.exists(os.path.join(self.folder, name)), name)
