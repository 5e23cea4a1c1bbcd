"""What the tests of language models share: tokens that can be learned, and recipes."""
import os
import random
import re
import shutil
import struct

from cli_case import Case


class LanguageCase(Case):
    recipe = ""

    def setUp(self):
        super().setUp()
        generator = random.Random(2)
        os.makedirs(self.path("tokens"))
        for split, count in (("train", 60 * 16 + 1), ("test", 10 * 16 + 5)):
            tokens = [3]
            while len(tokens) < count:  # what follows is certain nine times in ten
                tokens.append((3 * tokens[-1] + 1) % 40 if generator.random() < 0.9 else generator.randrange(40))
            with open(self.path(f"tokens/{split}.bin"), "wb") as file:
                file.write(struct.pack(f"<{count}H", *tokens))

    def recipe_of(self, more="", **changes):
        text = self.recipe + more
        for old, new in changes.items():
            text = text.replace(old, new)
        with open(self.path("recipe.yaml"), "w") as file:
            file.write(text)
        return "recipe.yaml"

    def perplexity(self, run):
        return float(re.search(r"perplexity ([\d.]+)", self.succeed("eval", run)).group(1))

    def require_end_of_documents(self, end, other):
        """The model's own file says that the token `end` ends documents, which it does not of `other`."""
        said = []
        for tokens in ("documents: separate", f"documents: separate, end: {end}", f"documents: separate, end: {other}"):
            recipe = self.recipe_of(**{"tokens: {length: 16}": f"tokens: {{length: 16, {tokens}}}"})
            self.succeed("train", recipe, "--run-dir", "run", "--set", "train.epochs=1")
            said.append(self.perplexity("run"))
            shutil.rmtree(self.path("run"))
        self.assertEqual(said[0], said[1])
        self.assertNotEqual(said[0], said[2])
