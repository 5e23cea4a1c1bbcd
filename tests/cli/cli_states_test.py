"""steelyard quantize on networks with states: inputs that are outputs of the step before."""
import json
import math
import os
import random
import re
import struct

from cli_case import Case
from support.data_files import f32, write_npy, write_safetensors
from support.onnx_files import model, node, port, tensor

SEQUENCES, STEPS, VALUES, STATE, OUTPUTS = 12, 10, 4, 3, 2


def read_f32(path):
    """Shapes and values of a safetensors file of floats."""
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            found[name] = entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return found


def product(row, matrix, columns):
    return [sum(x * matrix[i * columns + j] for i, x in enumerate(row)) for j in range(columns)]


class States(Case):
    def setUp(self):
        super().setUp()
        generator = random.Random(7)

        def weights(count):
            return [generator.uniform(-1, 1) for _ in range(count)]

        self.of_x, self.of_state, self.of_output = weights(VALUES * STATE), weights(STATE * STATE), weights(STATE * OUTPUTS)
        self.x = [generator.gauss(0, 1) for _ in range(SEQUENCES * STEPS * VALUES)]
        write_npy(self.path("x.npy"), (SEQUENCES, STEPS, VALUES), self.x)
        self.write()

    def write(self, state=STATE):
        """A step of a recurrent network, written out; its state has the batch second, as those of ONNX's LSTM."""
        nodes = [node("Squeeze", ["h", "zero"], "before"), node("MatMul", ["x", "W"], "new"), node("MatMul", ["before", "U"], "old"),
                 node("Add", ["new", "old"], "sum"), node("Tanh", ["sum"], "after"), node("MatMul", ["after", "V"], "y"),
                 node("Unsqueeze", ["after", "zero"], "hn")]
        tensors = [tensor("W", (VALUES, STATE), self.of_x), tensor("U", (STATE, STATE), self.of_state),
                   tensor("V", (STATE, OUTPUTS), self.of_output), tensor("zero", [1], [0])]
        with open(self.path("net.onnx"), "wb") as file:
            file.write(model(nodes, tensors, [port("x", ["n", VALUES]), port("h", [1, "n", state])],
                             [port("y", ["n", OUTPUTS]), port("hn", [1, "n", STATE])]))

    def states(self, sequence):
        """Those before each of the steps, as the equations say."""
        state, found = [0.0] * STATE, []
        for step in range(STEPS):
            found.append(state)
            first = (sequence * STEPS + step) * VALUES
            new = product(self.x[first:first + VALUES], self.of_x, STATE)
            state = [math.tanh(a + b) for a, b in zip(new, product(state, self.of_state, STATE))]
        return found

    def quantize(self, data, *more):
        return self.succeed("quantize", "net.onnx", "--data", data, "--state", "h=hn", "--minutes", "0.2", "--threads", "1", *more)

    def test_states_are_those_of_the_float_network(self):
        printed = self.quantize("x.npy")
        self.assertIn("12 sequences of 10 steps: --state h=hn begins with zeros, and is then what the float network gives", printed)
        self.assertIn("120 samples x [4], h [1, 3]", printed)
        for output in ("y", "hn"):
            found = re.findall(rf"output {output} in a row, fed with its own states: SQNR (\d+\.\d) dB.* \(8 sequences of 10 steps\)", printed)
            self.assertEqual(len(found), 1, printed)
            self.assertGreater(float(found[0]), 20)
        self.assertRegex(printed, r"\n0 of \d+ codes differ")
        steps = read_f32(self.path("runs", "net-w8a8", "steps.safetensors"))
        self.assertEqual(steps["x"][0], [SEQUENCES * STEPS, VALUES])
        self.assertEqual(steps["h"][0], [SEQUENCES * STEPS, 1, STATE])
        for expected, found in zip(self.x, steps["x"][1]):
            self.assertAlmostEqual(found, expected, places=6)
        expected = [value for sequence in range(SEQUENCES) for state in self.states(sequence) for value in state]
        for mine, found in zip(expected, steps["h"][1]):
            self.assertAlmostEqual(found, mine, places=5)
        # The same command goes on where it ended.
        self.assertIn("written: net-w8a8.onnx", self.quantize("x.npy"))

    def test_arrays_have_other_forms(self):
        self.quantize("x.npy")
        expected = read_f32(self.path("runs", "net-w8a8", "steps.safetensors"))
        write_safetensors(self.path("named.safetensors"), {"x": f32((SEQUENCES, STEPS, VALUES), self.x)})
        self.quantize("named.safetensors", "--run-dir", "named", "--out", "named.onnx")
        self.assertEqual(read_f32(self.path("named", "steps.safetensors")), expected)
        first = self.x[:STEPS * VALUES]  # one sequence
        write_npy(self.path("stream.npy"), (STEPS, VALUES), first)
        printed = self.quantize("stream.npy", "--run-dir", "stream", "--out", "stream.onnx")
        self.assertIn("1 sequence of 10 steps", printed)
        alone = read_f32(self.path("stream", "steps.safetensors"))
        for mine, found in zip(expected["h"][1], alone["h"][1]):
            self.assertAlmostEqual(found, mine, places=6)

    def test_what_does_not_fit_is_refused(self):
        def refuse(why, *states, data="x.npy"):
            arguments = [word for state in states for word in ("--state", state)]
            self.fail_with(2, why, arguments=["quantize", "net.onnx", "--data", data, *arguments])
            self.assertFalse(os.path.exists(self.path("runs")))

        refuse("--state h: expected an input and the output of the step before: h=hn", "h")
        refuse("--state g=hn: the model has no input 'g' (it has: x, h)", "g=hn")
        refuse("--state h=z: the model has no output 'z' (it has: y, hn)", "h=z")
        refuse("--state h=hn: the input is given twice", "h=hn", "h=hn")
        refuse("--state h=y: expected one shape of a sample, got [1, 3] and [2]", "h=y")
        refuse("expected an input that is no state", "h=hn", "x=y")
        write_npy(self.path("deep.npy"), (SEQUENCES, STEPS, VALUES, 1), self.x)
        refuse("--data: deep.npy: the model reads x [n, 4]: expected an array [steps, ...] of one sequence or [sequences, steps, ...], "
               "got samples [10, 4, 1]", "h=hn", data="deep.npy")
        with open(self.path("x.csv"), "w") as file:
            file.write("a,b\n1,2\n")
        refuse("--state: expected sequences in --data, .npy, .npz or .safetensors, got x.csv (table)", "h=hn", data="x.csv")
