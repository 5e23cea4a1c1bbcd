"""A small part of benchmarks/imported_models.py: one published model, few lines of text; and the committed page."""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(ROOT, "benchmarks", "imported_models.py")
CELLS = ("direction-float-seed1", "direction-ptq-w8a8-histogram-seed1", "direction-qat-w8a8-seed1")
SMALL = ("data.validation=64", "data.batch_size=8", "train.epochs=1", "train.optimizer.lr=1.0e-4")


def imported_models(*arguments):
    return subprocess.run([sys.executable, PROGRAM, *arguments], capture_output=True, text=True)


class Case(unittest.TestCase):
    def setUp(self):
        missing = [name for name in ("numpy", "PIL") if not importlib.util.find_spec(name)]
        if missing:
            self.skipTest(f"{sys.executable} has no {' and no '.join(missing)}")
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = scratch.name


class Direction(Case):
    def test_from_lines_to_verified_exports(self):
        models = os.environ["MODELS"]
        if not os.path.isfile(os.path.join(models, "packages")):
            self.skipTest(f"no models in {models}: they could not be fetched")
        made = imported_models("prepare", self.folder, "direction", "--samples", "224,100", "--models", models)
        if "no fonts" in made.stderr:
            self.skipTest(made.stderr.strip())
        self.assertEqual(made.stdout, "direction: 224 samples for training, 100 for the test\n", made.stderr)

        results = os.path.join(self.folder, "results")
        run = ["run", os.environ["STEELYARD"], self.folder, results, *CELLS, "--seeds", "1", "--threads", "2"]
        run += [word for value in SMALL for word in ("--set", value)]
        ran = imported_models(*run)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        self.assertEqual(sorted(os.listdir(results)), sorted(cell + ".json" for cell in CELLS))
        for cell in CELLS:
            with open(os.path.join(results, cell + ".json"), encoding="utf-8") as file:
                result = json.load(file)
            self.assertGreater(result["run"]["final"]["top1"], 75, cell)  # of two classes
            if cell != CELLS[0]:
                self.assertEqual(result["verify"]["differing_codes"], 0, cell)
                self.assertGreater(result["verify"]["codes"], 10**8, cell)  # 1.3 million a sample
                if result["verify"]["onnxruntime"]:
                    self.assertIn("the same class for 100.00 %", result["verify"]["onnxruntime"]["says"])
        again = imported_models(*run)
        self.assertEqual((again.returncode, again.stdout), (0, ""), again.stderr)

        page = os.path.join(self.folder, "page.md")
        self.assertEqual(imported_models("page", results, page).returncode, 0)
        with open(page, encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, r"\n\| W8A8 \| calibrated, `histogram` \| \d+\.\d\d \| - \| -?\d+\.\d\d \| 0 of [\d,]+ \|")
        self.assertIn("\n## Types of files: magika\n\nNot measured yet.\n", text)


class Page(Case):
    def test_is_that_of_the_committed_results(self):
        page = os.path.join(self.folder, "page.md")
        written = imported_models("page", os.path.join(ROOT, "benchmarks", "results", "imported_models"), page)
        self.assertEqual(written.returncode, 0, written.stderr)
        with open(page, encoding="utf-8") as new, open(os.path.join(ROOT, "docs", "imported_models.md"), encoding="utf-8") as old:
            self.assertEqual(new.read(), old.read(), "benchmarks/imported_models.py page writes docs/imported_models.md")


if __name__ == "__main__":
    unittest.main()
