"""Networks of sequences, imported and of a recipe: quantized, exported and verified."""
import math
import random
import re

from cli_case import QUANTIZE, Case, read_checkpoint
from support.data_files import f32, i64, write_named_split, write_split
from support.onnx_files import model, node, port, tensor


def weights_by(generator):
    return lambda name, *shape: tensor(name, shape, [generator.uniform(-1, 1) for _ in range(math.prod(shape))])


class Sequences(Case):
    def write_data(self, generator, shape, value):
        """60 samples for training and 12 for the test, of 3 classes; `value` of a label and a position."""
        for split, count in (("train", 60), ("test", 12)):
            labels = [generator.randrange(3) for _ in range(count)]
            values = [value(label, at) for label in labels for at in range(math.prod(shape))]
            write_split(self.data, split, f32([count, *shape], values), i64([count], labels))

    def exports_the_same(self, run):
        judged = self.succeed("verify", run)
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        if "ONNX: skipped" not in judged:
            self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*; 0 of 36 outputs differ")

    def test_from_sequences_of_any_length_to_a_verified_export(self):
        generator = random.Random(7)
        weights = weights_by(generator)
        nodes = [node("Conv", ["sound", "a.weight"], "a", kernel_shape=[3], pads=[1, 1]),
                 node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], "norm"), node("Relu", ["norm"], "relu"),
                 node("MaxPool", ["relu"], "largest", kernel_shape=[2], strides=[2]),
                 node("Conv", ["largest", "b.weight"], "b", kernel_shape=[3], dilations=[2], group=2), node("Relu", ["b"], "bent"),
                 node("GlobalAveragePool", ["bent"], "average"), node("Flatten", ["average"], "flat"),
                 node("MatMul", ["flat", "fc.weight"], "scores")]
        tensors = [weights("a.weight", 4, 2, 3), weights("scale", 4), weights("shift", 4), weights("mean", 4),
                   tensor("variance", [4], [0.5, 1.0, 1.5, 2.0]), weights("b.weight", 6, 2, 3), weights("fc.weight", 6, 3)]
        with open(self.path("model.onnx"), "wb") as file:
            file.write(model(nodes, tensors, [port("sound", ["n", 2, "length"])], [port("scores", ["n", 3])]))
        self.write_data(generator, [2, 12], lambda label, at: label - 1 + generator.uniform(-1, 1))
        recipe = self.recipe("model: {onnx: model.onnx}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n" +
                             QUANTIZE.replace("Conv2d", "Conv1d") + "export: {formats: [safetensors, onnx]}\n")
        plain = ["--set", "data.augment=[]", "--set", "data.normalize=none"]
        trained = self.succeed("train", recipe, "--run-dir", "run", *plain)
        self.assertRegex(trained, r"\na +weight +int8")
        self.assertRegex(trained, r"\nnode_of_relu +- .* fused into a\n")
        judged = self.succeed("verify", "run")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertRegex(judged, r"\nat \[2, 24\]: 0 of \d+ codes differ")
        if "ONNX: skipped" not in judged:
            self.assertRegex(judged, r"ONNX Runtime [\d.]+: .*the same class for 100.00 %; 0 of 36 outputs differ")
        # Means of the data for each position fix the length.
        self.succeed("train", recipe, "--run-dir", "normalized", "--set", "data.augment=[]")
        judged = self.succeed("verify", "normalized")
        self.assertRegex(judged, r"\n0 of \d+ codes differ")
        self.assertNotIn("\nat [", judged)

    def test_from_layers_of_a_recipe_to_a_verified_export(self):
        generator = random.Random(3)
        self.write_data(generator, [12, 2], lambda label, at: (label - 1) * math.sin(at // 2) + generator.uniform(-.2, .2))
        recipe = self.recipe("""model:
  layers:
    - {type: Conv1d, name: a, out_channels: 8, kernel_size: 3, padding: 1}
    - {type: ReLU}
    - {type: Residual, main: [{type: Conv1d, out_channels: 8, kernel_size: 3, padding: 1, groups: 2}]}
    - {type: Flatten}
    - {type: Linear, out_features: 3}
train: {epochs: 6, optimizer: {type: adamw, lr: 0.01}}
""" + QUANTIZE.replace("Conv2d", "Conv1d") + "export: {formats: [safetensors, onnx]}\n")
        trained = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.assertRegex(trained, r"\n2\.0 +weight +int8")
        self.assertRegex(trained, r"\ntest loss .* top-1 100.00 %\n")
        self.exports_the_same("run")

    def test_an_lstm_of_a_recipe_to_a_verified_export(self):
        generator = random.Random(4)
        self.write_data(generator, [12, 2], lambda label, at: (label - 1) * math.sin(at // 2) + generator.uniform(-.2, .2))
        recipe = self.recipe("""model:
  layers:
    - {type: Conv1d, name: a, out_channels: 8, kernel_size: 3, padding: 1, bias: false}
    - {type: BatchNorm1d, name: norm}
    - {type: ReLU}
    - {type: MaxPool1d, kernel_size: 2}
    - {type: LSTM, name: first, units: 6}
    - {type: AvgPool1d, kernel_size: 2}
    - {type: LSTM, name: second, units: 5, reverse: true, return_sequences: false}
    - {type: Linear, out_features: 3}
train: {epochs: 8, optimizer: {type: adamw, lr: 0.02}}
""" + QUANTIZE.replace("Conv2d", "Conv1d, LSTM") + "export: {formats: [safetensors, onnx]}\n")
        trained = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.assertRegex(trained, r"\na +weight +int8 .* norm folded in")
        self.assertRegex(trained, r"\nfirst +recurrent_weight +int8")
        self.assertRegex(trained, r"\ntest loss .* top-1 100.00 %\n")
        self.exports_the_same("run")
        effects = self.succeed("sensitivity", "run", "--bits", "8,4", "--samples", "12")
        self.assertRegex(effects, r"\nfirst +336 +[\d.]+ +\S+ +[\d.]+ +\S+\n", "both matrices, 24 x 8 and 24 x 6")
        self.assertRegex(effects, r"\nfirst\.recurrent +\d+ ")
        macs = 12 * 8 * 6 + 6 * 24 * 8 + 5 * 24 * 6 + 3 * 20 * 6 + 2 * 20 * 5 + 15  # the first step has no state
        self.succeed("train", recipe, "--run-dir", "floats", "--set", "data.augment=[]", "--set", "quantize=null", "--set", "train.epochs=1")
        effects = self.succeed("sensitivity", "floats", "--bits", "8", "--samples", "12", "--budget-bits", "8", "--out", "mixed.yaml")
        self.assertIn(f" {macs * 64} bit operations a sample", effects)
        self.succeed("report", "run")
        self.assertIn("first.recurrent", self.read("run", "report.html"))

    def test_a_table_of_codes_to_a_verified_export(self):
        generator = random.Random(6)
        for split, count in (("train", 60), ("test", 12)):
            labels = [generator.randrange(3) for _ in range(count)]
            numbers = [float(20 * label + generator.randrange(20)) for label in labels for _ in range(6)]
            write_split(self.data, split, f32([count, 6], numbers), i64([count], labels))
        body = """model:
  layers:
    - {type: Embedding, name: table, count: 60, width: 32}
    - {type: LSTM, name: lstm, units: 6, return_sequences: false}
    - {type: Linear, out_features: 3}
train: {epochs: 8, optimizer: {type: adamw, lr: 0.02}}
""" + QUANTIZE.replace("Conv2d", "Embedding, LSTM") + "export: {formats: [safetensors, onnx]}\n"
        plain = ["--set", "data.augment=[]", "--set", "data.normalize=none"]
        recipe = self.recipe(body)
        for run, more, bits in (("run", (), 8), ("whole", ("quantize.groups.0.weights={num_bits: 8, strategy: tensor}",), 8),
                                ("affine", ("quantize.groups.0.weights={num_bits: 4, symmetric: false}",), 4)):
            with self.subTest(run):
                trained = self.succeed("train", recipe, "--run-dir", run, *plain, *(part for one in more for part in ("--set", one)))
                self.assertRegex(trained, rf"\ntable +weight +u?int{bits} ")
                self.assertRegex(trained, r"\ntable +output +float +- +codes of its rows\n")
                self.assertRegex(trained, r"\ntest loss .* top-1 100.00 %\n")
                self.exports_the_same(run)
                header, _ = read_checkpoint(self.path(run, "export", "model.safetensors"))
                self.assertEqual(header["table.weight"]["dtype"], "I8" if bits == 8 else "U8", "packed")
        self.assertRegex(self.succeed("sensitivity", "run", "--bits", "8,4", "--samples", "12"), r"\ntable +1920 +[\d.]+ ")
        self.succeed("report", "run")
        self.assertRegex(self.succeed("inspect", "--graph", "run"), r"\ntable .*embedding")

    def test_an_lstm_in_fixed_point_to_a_verified_export(self):
        generator = random.Random(4)
        self.write_data(generator, [12, 2], lambda label, at: (label - 1) * math.sin(at // 2) + generator.uniform(-.2, .2))
        recipe = self.recipe("""model:
  layers:
    - {type: LSTM, name: first, units: 6}
    - {type: LSTM, name: second, units: 5, return_sequences: false}
    - {type: Linear, out_features: 3}
train: {epochs: 8, optimizer: {type: adamw, lr: 0.02}}
""" + QUANTIZE.replace("Conv2d", "LSTM") + "export: {profile: tflm, formats: [safetensors, tflite, c]}\n")
        plain = ["--set", "data.augment=[]"]
        self.succeed("train", recipe, "--run-dir", "floats", *plain, "--set", "quantize=null", "--set", "export={formats: [safetensors]}")
        trained = self.succeed("train", recipe, "--run-dir", "run", *plain, "--set", "init.checkpoint=floats/best.safetensors",
                               "--set", "train.epochs=1")
        self.assertRegex(trained, r"\nfirst +weight +int8 symmetric, per tensor")
        self.assertRegex(trained, r"\nfirst +recurrent_weight +int8 symmetric, per tensor")
        macs = 12 * 24 * (2 + 6) + 12 * 20 * (6 + 5) + 15
        self.assertIn(f" {macs} multiplications a sample", trained)
        self.assertRegex(trained, r"\ntest loss .* top-1 100.00 %\n")
        self.assertRegex(self.succeed("verify", "run"), r"\n0 of \d+ codes differ")
        self.assertIn("lstm_8(&call_0", self.read("run", "export", "model.c"))
        budget = int(re.search(r"at most (\d+) bytes of constants", trained)[1]) - 100
        self.succeed("sensitivity", "run", "--budget-flash", str(budget), "--bits", "8,4", "--samples", "12", "--out", "mixed.yaml")
        mixed = self.succeed("train", "mixed.yaml", "--dry-run")
        self.assertRegex(mixed, r"\n(first|second) +weight +int4 symmetric, per tensor")
        self.assertLessEqual(int(re.search(r"at most (\d+) bytes of constants", mixed)[1]), budget)
        stream = ["--set", "export={profile: tflm, stream: {frames: 1}}", *plain, "--run-dir", "no"]
        self.fail_with(2, "export.stream: layer 'first': its state depends on where a window begins", arguments=["train", recipe, *stream])
        reverse = [*plain, "--set", "model.layers.1.reverse=true", "--run-dir", "no"]
        self.fail_with(2, "second: the profile tflm has no such LSTM: it begins with the last step", arguments=["train", recipe, *reverse])

    def test_an_lstm_over_one_step_to_a_verified_export(self):
        """Its recurrence has no values, so that the quantizers of these never observe any."""
        generator = random.Random(4)
        self.write_data(generator, [1, 4], lambda label, at: label - 1 + generator.uniform(-.2, .2))
        recipe = self.recipe("""model:
  layers:
    - {type: LSTM, name: first, units: 6}
    - {type: LSTM, name: second, units: 5, return_sequences: false}
    - {type: Linear, out_features: 3}
train: {epochs: 20, optimizer: {type: adamw, lr: 0.02}}
""" + QUANTIZE.replace("Conv2d", "LSTM") + "export: {formats: [safetensors, onnx]}\n")
        self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.exports_the_same("run")
        said = self.notes_of("report", "run")
        self.assertNotIn("missing: layers", said)
        self.assertNotIn("missing: accuracy in training's arithmetic", said)

    def test_samples_of_two_dimensions_are_what_the_model_reads(self):
        generator = random.Random(5)
        self.write_data(generator, [3, 2], lambda label, at: label - 1 + generator.uniform(-.5, .5))
        linear, flat = "    - {type: Linear, name: %s, out_features: %d}\n", "    - {type: Flatten}\n"

        def notes_of(run, layers):
            recipe = self.recipe("model:\n  layers:\n" + layers + flat + linear % ("fc", 3) +
                                 "train: {epochs: 1, optimizer: {type: adamw, lr: 0.01}}\n")
            return self.notes_of("train", recipe, "--run-dir", run, "--set", "data.augment=[]")

        self.assertNotIn("are read as images", notes_of("steps", linear % ("embed", 8)))
        self.assertEqual(read_checkpoint(self.path("steps", "last.safetensors"))[0]["embed.weight"]["shape"], [8, 2])
        self.assertIn("note: samples of floats [3, 2] are read as images of one channel", notes_of("flat", ""))
        self.assertNotIn("are read as images", notes_of("images", "    - {type: Conv2d, out_channels: 4, kernel_size: 2}\n"))

    def test_a_token_beyond_the_table_is_told_with_its_sample(self):
        generator = random.Random(5)
        self.write_data(generator, [4], lambda label, at: float(3 * label + generator.randrange(3)))
        recipe = self.recipe("""model:
  layers:
    - {type: Embedding, name: words, count: 9, width: 4}
    - {type: LSTM, units: 4, return_sequences: false}
    - {type: Linear, out_features: 3}
train: {epochs: 1, optimizer: {type: adamw, lr: 0.01}}
export: {formats: [onnx]}
""")
        plain = ["--set", "data.augment=[]", "--set", "data.normalize=none"]
        self.succeed("train", recipe, "--run-dir", "run", *plain)
        self.fail_with(2, f"error: {self.data}/train.safetensors: inputs: sample ", ": words: [embedding] expected indices in [0, 9), got -",
                       "; data.normalize changed the numbers: none leaves them as they are\n",
                       arguments=["train", recipe, "--run-dir", "normalized", *plain[:2]])
        write_split(self.data, "test", f32([3, 4], [1, 2, 3, 4, 5, 6, -1, 7, 9, 8, 7, 6]), i64([3], [0, 1, 2]))
        test, refused = self.data + "/test.safetensors", "words: [embedding] expected indices in [0, 9), got "
        self.fail_with(2, f"error: {test}: inputs: sample 1: {refused}-1 at index 2\n", arguments=["eval", "run"])
        predicted = self.run_program("predict", "run", test)
        self.assertEqual(predicted.stdout.splitlines()[1:], [f"1  error: {refused}-1 at index 2", f"2  error: {refused}9 at index 0"])
        onnx = self.run_program("predict", "run", test, "--with", "onnx")  # whose Gather takes -1 for the last row
        if "no Python with onnxruntime" not in onnx.stderr:
            self.assertEqual((onnx.returncode, onnx.stdout, onnx.stderr), (1, predicted.stdout, predicted.stderr))

    def test_attention_and_a_graph_of_a_recipe_to_a_verified_export(self):
        generator = random.Random(5)
        self.write_data(generator, [12, 2], lambda label, at: label - 1 + generator.uniform(-.5, .5))  # steps have no order here
        recipe = self.recipe("""model:
  layers:
    - {type: Linear, name: embed, out_features: 8}
    - type: Graph
      name: block
      nodes:
        - {name: norm1, type: LayerNorm}
        - {name: attention, type: Attention, heads: 2}
        - {name: sum1, type: Add, inputs: [attention, input]}
        - {name: norm2, type: LayerNorm}
        - {name: up, type: Linear, out_features: 16}
        - {name: gate, type: Sigmoid, inputs: [up]}
        - {name: gated, type: Mul, inputs: [up, gate]}
        - {name: down, type: Linear, out_features: 8}
        - {name: sum2, type: Add, inputs: [down, sum1]}
    - {type: ReduceMean, axes: [1]}
    - {type: Linear, out_features: 3}
train: {epochs: 20, optimizer: {type: adamw, lr: 0.01}}
""" + QUANTIZE.replace(", Conv2d", "") + "export: {formats: [safetensors, onnx]}\n")
        trained = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]")
        self.assertRegex(trained, r"\nblock\.attention\.q_proj +weight +int8")
        self.assertRegex(trained, r"\nblock\.sum2 +output +")
        self.assertRegex(trained, r"\ntest loss .* top-1 100.00 %\n")
        self.exports_the_same("run")

    def test_an_imported_lstm_is_quantized_where_it_begins_at_zero(self):
        """Commands that load the run prepare its model before they load weights, and must decide the same."""
        generator = random.Random(8)
        weights = weights_by(generator)
        self.write_data(generator, [6, 2], lambda label, at: label - 1 + generator.uniform(-1, 1))
        for state, said in (("", r"\nnode_of_rnn +recurrent_weight +int8"), ("h0", r"its state before the first step is not 0")):
            inputs = ["steps", "w", "r"] + (["", "", state] if state else [])
            nodes = [node("Transpose", ["x"], "steps", perm=[1, 0, 2]), node("LSTM", inputs, "rnn", hidden_size=4),
                     node("Squeeze", ["rnn", "one"], "all"), node("Transpose", ["all"], "samples", perm=[1, 0, 2]),
                     node("Flatten", ["samples"], "flat"), node("MatMul", ["flat", "fc.weight"], "scores")]
            tensors = [weights("w", 1, 16, 2), weights("r", 1, 16, 4), weights("h0", 1, 1, 4), tensor("one", [1], [1]),
                       weights("fc.weight", 24, 3)]
            with open(self.path("model.onnx"), "wb") as file:
                file.write(model(nodes, tensors, [port("x", ["n", 6, 2])], [port("scores", ["n", 3])]))
            recipe = self.recipe("model: {onnx: model.onnx}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n" +
                                 QUANTIZE.replace("Conv2d", "LSTM") + "export: {formats: [safetensors, onnx]}\n")
            run = "run" + state
            trained = self.succeed("train", recipe, "--run-dir", run, "--set", "data.augment=[]", "--set", "data.normalize=none")
            self.assertRegex(trained, said)
            self.succeed("eval", run)
            self.assertRegex(self.succeed("verify", run), r"\n0 of \d+ codes differ")

    def test_a_recipe_that_reads_two_inputs(self):
        generator = random.Random(6)
        for split, count in (("train", 60), ("test", 12)):
            labels = [generator.randrange(3) for _ in range(count)]
            sound = [(label == 1) * math.sin(at) + generator.uniform(-.2, .2) for label in labels for at in range(8)]
            ages = [float(label == 2) + generator.uniform(-.2, .2) for label in labels for _ in range(2)]
            write_named_split(self.data, split, {"sound": f32([count, 8, 1], sound), "age": f32([count, 2], ages), "targets": i64([count], labels)})
        recipe = self.recipe("""model:
  layers:
    - type: Concat
      branches:
        - [{type: InputPart, input: sound}, {type: Conv1d, out_channels: 4, kernel_size: 3}, {type: ReLU}, {type: GlobalAvgPool}]
        - [{type: InputPart, input: age}, {type: Linear, out_features: 4}, {type: ReLU}]
    - {type: Linear, out_features: 3}
train: {epochs: 30, optimizer: {type: adamw, lr: 0.03}}
""" + QUANTIZE.replace("Conv2d", "Conv1d") + "export: {formats: [safetensors, onnx]}\n")
        options = ["--set", "data.augment=[]", "--set", "data.inputs=[sound, age]"]
        trained = self.succeed("train", recipe, "--run-dir", "run", *options)
        self.assertRegex(trained, r"\ntest loss .* top-1 100.00 %\n")
        self.exports_the_same("run")
        predicted = self.succeed("predict", "run", self.data + "/test.safetensors")
        self.assertEqual(len(predicted.splitlines()), 12)

    def test_attention_that_joins_the_batch_with_its_heads(self):
        """As PyTorch's nn.MultiheadAttention is exported: steps before samples, [steps, n * heads, of a head]."""
        generator = random.Random(5)
        weights = weights_by(generator)
        nodes, tensors = [node("Transpose", ["x"], "steps", perm=[1, 0, 2])], []
        for part, order in (("q", [1, 0, 2]), ("k", [1, 2, 0]), ("v", [1, 0, 2])):
            nodes += [node("MatMul", ["steps", f"{part}.weight"], f"{part}_of_steps"),
                      node("Reshape", [f"{part}_of_steps", "heads"], f"{part}_of_heads"),
                      node("Transpose", [f"{part}_of_heads"], part, perm=order)]
            tensors.append(weights(f"{part}.weight", 6, 6))
        nodes += [node("MatMul", ["q", "k"], "scores"), node("Softmax", ["scores"], "shares", axis=-1),
                  node("MatMul", ["shares", "v"], "chosen"), node("Transpose", ["chosen"], "back", perm=[1, 0, 2]),
                  node("Reshape", ["back", "rows"], "joined"), node("Gemm", ["joined", "out.weight", "out.bias"], "mixed"),
                  node("Reshape", ["mixed", "apart"], "of_steps"), node("Transpose", ["of_steps"], "samples", perm=[1, 0, 2]),
                  node("Add", ["samples", "x"], "sum"), node("Flatten", ["sum"], "flat"), node("MatMul", ["flat", "fc.weight"], "scores_")]
        tensors += [weights("out.weight", 6, 6), weights("out.bias", 6), weights("fc.weight", 24, 3),
                    tensor("heads", [3], [4, -1, 3]), tensor("rows", [2], [-1, 6]), tensor("apart", [3], [4, -1, 6])]
        with open(self.path("attention.onnx"), "wb") as file:
            file.write(model(nodes, tensors, [port("x", ["n", 4, 6])], [port("scores_", ["n", 3])]))
        self.write_data(generator, [4, 6], lambda label, at: label - 1 + generator.uniform(-1, 1))
        recipe = self.recipe("model: {onnx: attention.onnx}\ntrain: {epochs: 1, optimizer: {type: sgd, lr: 0.01}}\n" +
                             QUANTIZE.replace(", Conv2d", "") + "export: {formats: [safetensors, onnx]}\n")
        trained = self.succeed("train", recipe, "--run-dir", "run", "--set", "data.augment=[]", "--set", "data.normalize=none")
        self.assertRegex(trained, r"\nnode_of_shares +output +uint8 .* probabilities\n")
        self.exports_the_same("run")

    def test_a_network_that_cannot_be_exported_is_told_at_import(self):
        """Means of the rows of all samples at once."""
        nodes = [node("Reshape", ["x", "rows"], "flat"), node("ReduceMean", ["flat"], "mean", axes=[1], keepdims=1),
                 node("Sub", ["flat", "mean"], "centred"), node("MatMul", ["centred", "weight"], "product"),
                 node("Reshape", ["product", "samples"], "y")]
        tensors = [tensor("rows", [2], [-1, 3]), tensor("weight", [3, 2], [0.5, -1.0, 2.0, 1.5, 0.25, 1.0]),
                   tensor("samples", [3], [-1, 4, 2])]
        with open(self.path("dense.onnx"), "wb") as file:
            file.write(model(nodes, tensors, [port("x", ["n", 4, 3])], [port("y", ["n", 4, 2])]))
        for split, count in (("train", 6), ("test", 3)):
            write_split(self.data, split, f32([count, 4, 3], [0.25 * i for i in range(12 * count)]),
                        f32([count, 4, 2], [0.5] * (8 * count)))
        said = self.run_program("import", "dense.onnx", "--run-dir", "float", "--set", "data.dataset=safetensors", "--set",
                                "data.path=" + self.data, "--set", "data.normalize=none", "--set", "data.validation=0",
                                "--set", "train.loss=mse")
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertIn("note: the model cannot be exported: ", said.stderr)
