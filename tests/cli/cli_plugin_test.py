"""Plugins on the command line: what they add, what is wrong with them, and runs that need them."""
import json
import os
import re
import shutil

from cli_case import Case, LAYERS, SGD

OWN = os.environ["PLUGIN_own_parts"]
TAKEN = os.environ["PLUGIN_taken"]
THROWING = os.environ["PLUGIN_throwing"]
NAMELESS = os.environ["PLUGIN_nameless"]
RECIPE = os.path.join(os.environ["EXAMPLES"], "own_parts.yaml")
SHORT = ("--set", "train.epochs=2", "--set", "data.samples=192", "--set", "data.validation=64")
NEEDS_DATASET = "the recipe needs the dataset 'bars' of the plugin own_parts: pass --plugin"


class Plugins(Case):
    def train_own(self, run="run", *more):
        return self.succeed("train", RECIPE, "--plugin", OWN, "--run-dir", self.path(run), *SHORT, *more)

    def test_a_run_is_resumed_evaluated_reported_exported_and_predicted_with_its_plugin(self):
        self.train_own("whole")
        self.train_own("run", "--set", "train.epochs=1")
        self.train_own("run", "--resume")
        run, plugin = self.path("run"), ("--plugin", OWN)
        for file in ("last.safetensors", "recipe.yaml"):
            self.assertEqual(self.sha("run", file), self.sha("whole", file), file)
        self.assertIn("shrunk", self.read("run", "plan.txt"))
        self.assertIn("worst_recall", self.summary("run")["final"])
        self.assertIn("worst_recall", self.summary("run")["best"])
        self.assertIn("worst recall", self.succeed("eval", run, *plugin))
        classes = json.loads(self.succeed("eval", run, "--format", "json", *plugin))["classes"]
        self.assertEqual([c["name"] for c in classes], ["upright", "level", "rising", "falling"])
        self.succeed("report", run, *plugin)
        page = self.read("run", "report.html")
        for text in ("worst recall, %", "filter weights", "loss: restrained"):
            self.assertTrue(text in page, text)
        self.succeed("export", run, "--format", "safetensors", *plugin)
        self.assertIn("0 of ", self.succeed("verify", run, "--samples", "64", *plugin))
        self.assertIn("conv2d", self.succeed("inspect", run, "--graph", *plugin))
        self.succeed("profile", run, "--steps", "1", *plugin)
        self.succeed("sensitivity", run, "--samples", "64", *plugin)
        # An exported model needs nothing but the library.
        self.assertIn("conv2d", self.succeed("inspect", "--graph", self.path("run", "export", "model.safetensors")))

    def test_a_resumed_run_says_that_a_plugin_was_built_again(self):
        self.train_own("run", "--set", "train.epochs=1")
        self.assertNotIn("another build", self.train_own("run", "--resume"))
        again = self.path("libagain.so")
        with open(OWN, "rb") as first, open(again, "wb") as second:
            second.write(first.read() + b"\0")
        more = ("train", RECIPE, "--plugin", again, "--run-dir", self.path("run"), *SHORT, "--set", "train.epochs=3",
                "--resume")
        self.assertIn("the plugin own_parts is another build than the run was trained with so far (sha256 ",
                      self.run_program(*more).stderr)

    def test_the_environment_names_plugins_too(self):
        self.assertIn("valid", self.succeed("validate", RECIPE, STEELYARD_PLUGINS=OWN))
        self.assertIn("valid", self.succeed("validate", RECIPE, "--plugin", OWN, STEELYARD_PLUGINS=f"{OWN}:{THROWING}"))
        result = self.run_program("validate", RECIPE, STEELYARD_PLUGINS="libown_parts.so")
        self.assertEqual((result.returncode, result.stderr),
                         (2, "error: STEELYARD_PLUGINS: expected absolute paths with ':' between them, got "
                             "'libown_parts.so'\n"))

    def test_a_path_without_a_slash_is_in_the_current_folder_alone(self):
        shutil.copy(OWN, self.path("libmine.so"))
        self.succeed("validate", RECIPE, "--plugin", "libmine.so")
        os.makedirs(self.path("elsewhere"))
        shutil.move(self.path("libmine.so"), self.path("elsewhere"))
        result = self.run_program("validate", RECIPE, "--plugin", "libmine.so", LD_LIBRARY_PATH=self.path("elsewhere"))
        self.assertEqual((result.returncode, result.stderr), (2, "error: libmine.so: there is no such plugin\n"))

    def test_recipes_and_run_folders_load_nothing_and_say_what_they_need(self):
        self.train_own()
        for verb in ("eval", "report", "export", "verify", "profile", "validate"):
            target = self.path("run", "recipe.yaml") if verb == "validate" else self.path("run")
            self.fail_with(2, NEEDS_DATASET, "recipe.yaml:", arguments=(verb, target))
        self.fail_with(2, NEEDS_DATASET, arguments=("predict", self.path("run"), self.path("data")))
        self.fail_with(2, NEEDS_DATASET,
                       arguments=("train", self.path("run", "recipe.yaml"), "--run-dir", self.path("run"), "--resume"))

    def test_what_a_run_needs_are_the_parts_that_its_recipe_uses(self):
        recipe = self.recipe(LAYERS + SGD)
        self.train(recipe, "plain", "--plugin", THROWING, "--set", "train.epochs=1")
        self.assertNotIn("needs", self.read("plain", "recipe.yaml"))
        self.succeed("eval", self.path("plain"))
        self.train_own()
        parts = re.findall(r"kind: (\w+)\n +name: \"?(\w+)", self.read("run", "recipe.yaml"))
        self.assertEqual(parts, [("dataset", "bars"), ("layer", "Filter"), ("loss", "restrained"),
                                 ("metric", "worst_recall"), ("observer", "shrunk")])

    def test_options_of_a_plugin_are_checked_like_all_others(self):
        for override, message in (
                ("data.samples=3", "expected a whole number from 64 to 1000000, got '3'"),
                ("train.restraint=-1", "expected a number from 0 to 10, got '-1'"),
                ("train.loss=huber", "key 'restraint' applies only to loss restrained"),
                ("data.dataset=idx", "key 'samples' applies only to dataset bars"),
                ("quantize.groups.0.activations.factor=2", "expected a number above 0 and at most 1, got '2'"),
                ("model.layers.2.kernel_size=4", "expected an odd number, got 4"),
                ("model.layers.2.kernel_siz=3", "unknown key 'kernel_siz' (did you mean 'kernel_size'?)"),
                ("train.best=worst_recal", "did you mean 'worst_recall'?")):
            self.fail_with(2, message, arguments=("validate", RECIPE, "--plugin", OWN, "--set", override))
        schema = json.loads(self.succeed("schema", "--plugin", OWN))
        self.assertIn("restraint", json.dumps(schema))
        self.assertNotIn("restraint", self.succeed("schema"))

    def test_a_clash_of_names_is_an_error(self):
        self.fail_with(2, f"{TAKEN}: the plugin taken: [registries] the loss 'mse' is taken: by the library",
                       arguments=("schema", "--plugin", TAKEN))
        copy = self.path("libcopy.so")
        shutil.copy(OWN, copy)
        self.fail_with(2, f"{copy}: a plugin named own_parts is loaded already: ",
                       arguments=("schema", "--plugin", OWN, "--plugin", copy))
        self.succeed("schema", "--plugin", OWN, "--plugin", OWN)

    def test_what_a_plugin_throws_is_one_line_with_its_name(self):
        for throws, message in (("exception", r"the plugin throwing: out of\x0ahorses"),
                                ("number", "the plugin throwing: threw something that is no std::exception")):
            result = self.run_program("schema", "--plugin", THROWING, THROWS=throws)
            self.assertEqual((result.returncode, result.stderr), (2, f"error: {THROWING}: {message}\n"))
        recipe = self.recipe(LAYERS + SGD)
        self.fail_with(1, r"failed: the dataset 'horses' of the plugin throwing: no\x0ahorses",
                       arguments=("validate", recipe, "--plugin", THROWING, "--set", "data={dataset: horses}"))
        result = self.run_program("train", recipe, "--run-dir", self.path("run"), "--plugin", THROWING, "--set",
                                  "train.epochs=1", THROWS="later")
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stderr.endswith("failed: the metric 'ruler' of the plugin throwing: no ruler\n"))
        self.fail_with(1, "failed: the layer 'Stumbles' of the plugin throwing: threw something that is no std::exception",
                       arguments=("train", recipe, "--run-dir", self.path("layer"), "--plugin", THROWING, "--set",
                                  "model={layers: [{type: Stumbles}, {type: Flatten}, {type: Linear, out_features: 4}]}"))

    def test_what_is_no_plugin_is_not_loaded(self):
        no_plugin = os.environ["NO_PLUGIN"]
        self.fail_with(2, f"{no_plugin}: not a plugin of Steelyard", arguments=("schema", "--plugin", no_plugin))
        text = self.path("text")
        with open(text, "w") as file:
            file.write("no library")
        self.fail_with(2, f"{text}: not a plugin of Steelyard", arguments=("schema", "--plugin", text))
        self.fail_with(2, f"{self.folder}: ", arguments=("schema", "--plugin", self.folder))
        self.fail_with(2, "expected a path, got ''", arguments=("schema", "--plugin", ""))
        self.fail_with(2, f"{NAMELESS}: steelyard_plugin_v1 has no name or adds nothing",
                       arguments=("schema", "--plugin", NAMELESS))

    def test_a_plugin_for_another_build_is_not_loaded(self):
        with open(OWN, "rb") as file:
            library = file.read()
        before = re.search(rb"steelyard-plugin: (Steelyard [^\0]+)\0", library).group(1)
        after = before.replace(b"Steelyard 0", b"Steelyard 9")
        other = self.path("libother.so")
        with open(other, "wb") as file:
            file.write(library.replace(before, after))
        self.fail_with(2, f"{other}: the plugin was built for {after.decode()}, this is {before.decode()}: build it again",
                       arguments=("schema", "--plugin", other))
        # A library that says it was built for this program and cannot be loaded.
        broken = self.path("libbroken.so")
        with open(broken, "wb") as file:
            file.write(b"steelyard-plugin: " + before + b"\0")
        self.fail_with(2, f"{broken}: cannot be loaded: ", arguments=("schema", "--plugin", broken))
