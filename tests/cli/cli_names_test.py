"""Names of classes, files and recipes that a terminal or a spreadsheet would act on."""
import csv
import io
import json
import os
import unicodedata
import unittest

from cli_case import QUANTIZE, Case

# What a name is in a cell of CSV: text that begins as a formula gets an apostrophe; numbers do not.
CELLS = {
    "=1+1": "'=1+1", "+2-3": "'+2-3", "-x": "'-x", "@a": "'@a", "-inf": "'-inf", "-1.5": "-1.5", "+7e2": "+7e2", "'quoted": "'quoted",
    'say "hi", you': 'say "hi", you', "café\U0001f600": "café\U0001f600",
    "\x1b[31mred": r"\x1b[31mred", "\x7f": r"\x7f", "\u009b31m": r"\xc2\x9b31m", "\u202ederever": r"\xe2\x80\xaederever",
    "\u061cb": r"\xd8\x9cb", "a\u200fb": r"a\xe2\x80\x8fb", "two\nlines": r"two\x0alines", "\t=1": r"\x09=1"}
FORMATTING = {"Cc", "Cf", "Zl", "Zp"}  # C0, DEL, C1; marks of bidirectional text; line separators


class Names(Case):
    def printed(self, *arguments):
        """What the program printed, which has acted on no terminal."""
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in (result.stdout, result.stderr):
            self.assert_shows_only(text, arguments)
        return result.stdout

    def assert_shows_only(self, text, where):
        acting = [c for c in text if unicodedata.category(c) in FORMATTING and c not in "\n"]
        self.assertEqual(acting, [], where)

    def write_table(self, name, rows):
        with open(self.path(name), "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        return name

    def test_printed_by_every_command(self):
        names = list(CELLS)
        rows = [[i % 7, i % len(names), names[i % len(names)]] for i in range(180)]
        table = self.write_table("=data\x1b[31m.csv", [["x", "y", "kind"], *rows])
        recipe = self.path("recipe\u202e.yaml")
        with open(recipe, "w", encoding="utf-8") as file:
            file.write("version: 1\nname: small\nseed: 3\n"
                       f'data: {{dataset: table, path: "{json.dumps(table)[1:-1]}", batch_size: 18, validation: 18, test: 36, '
                       f"table: {{target: [kind]}}}}\nmodel: {{type: mlp, hidden: [8], classes: {len(names)}}}\n"
                       "train: {epochs: 1, optimizer: {type: sgd, lr: 0.02}}\n" + QUANTIZE.replace(", Conv2d", ""))
        run = "run\x1b[31m"
        for arguments in (["validate", recipe], ["validate", recipe, "--resolved"], ["data", recipe], ["train", recipe, "--dry-run"],
                          ["train", recipe, "--run-dir", run], ["eval", run], ["export", run], ["verify", run], ["report", run],
                          ["inspect", os.path.join(run, "last.safetensors")], ["inspect", "--graph", run], ["profile", run, "--steps", "1"],
                          ["sensitivity", run, "--bits", "4", "--samples", "10", "--batches", "1"]):
            self.printed(*arguments)
        named = {entry["name"] for entry in json.loads(self.printed("eval", run, "--format", "json"))["classes"]}
        self.assertEqual(named, set(names))
        with open(self.path(run, "report.html"), encoding="utf-8") as file:
            self.assert_shows_only(file.read(), "report.html")
        for file in ("summary.json", "profile.json", "metrics.jsonl"):
            with open(self.path(run, file), encoding="utf-8") as opened:
                self.assert_shows_only(opened.read(), file)

        new = self.write_table("=new\x1b.csv", [["x", "y"], *([i % 7, i] for i in range(40))])
        self.printed("predict", run, new)
        said = json.loads(self.printed("predict", run, new, "--format", "json"))
        self.assertEqual(said[0]["sample"], "=new\x1b.csv:2")
        self.assertEqual(set(said[0]["probabilities"]), set(names))
        table = list(csv.reader(io.StringIO(self.printed("predict", run, new, "--format", "csv"))))
        self.assertEqual(set(table[0][3:-1]), set(CELLS.values()))
        self.assertEqual(table[0][-1], "error")
        self.assertEqual(table[1][0], r"'=new\x1b.csv:2")
        for row, entry in zip(table[1:], said, strict=True):
            self.assertEqual(row[1], CELLS[entry["class"]])
            self.assertEqual(row[-1], "")
            for number in row[2:-1]:
                float(number)

    def test_in_errors(self):
        for name in ("\x1b[31m.yaml", "\u202e.yaml", "\u061c.yaml", "\u200e.yaml"):
            result = self.run_program("validate", name)
            self.assertEqual(result.returncode, 2)
            self.assert_shows_only(result.stderr, name)


if __name__ == "__main__":
    unittest.main()
