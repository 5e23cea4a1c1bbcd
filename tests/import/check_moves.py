"""Imports random networks that move the batch and join it with other dimensions, and compares them with ONNX Runtime.

usage: check_moves.py RUN_MODEL [FIRST COUNT]

Values are lists of dimensions, each a list of the factors that are joined in it, among them the batch. Every other one of
the networks also computes: sums, products with constants and with each other, Softmax, means.
"""
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file, save_file

BATCH, SAMPLES = "N", 3
SHAPES = [[[4], [2, 3]], [[3], [2], [4]], [[2, 3]], [[5], [2, 4]], [[2], [3], [2], [2]]]  # of a sample
UNARY = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Identity"]


def size(dimension):
    return int(np.prod([factor for factor in dimension if factor != BATCH]))


class Network:
    def __init__(self, seed):
        self.random, self.numbers = random.Random(seed), np.random.default_rng(seed)
        self.nodes, self.constants = [], []
        self.opset = self.random.choice([11, 13, 16])
        self.sample = self.random.choice(SHAPES)
        self.values = [("x", [[BATCH], *self.sample])]

    def constant(self, array):
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def add(self, operation, inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [name], **attributes))
        return name

    def reshape(self, value, to):
        shape = [-1 if BATCH in dimension else size(dimension) for dimension in to]
        if self.random.random() < 0.3:  # 0: as in the input
            for i, (old, new) in enumerate(zip(value[1], to)):
                if old != new:
                    break
                shape[i] = 0
        return self.add("Reshape", [value[0], self.constant(np.array(shape, np.int64))]), to

    def transpose(self, value, order):
        return self.add("Transpose", [value[0]], perm=order), [value[1][i] for i in order]

    def regrouped(self, value):
        factors = [factor for dimension in value[1] for factor in dimension]
        to = [factors[:1]]
        for factor in factors[1:]:
            if self.random.random() < 0.45:
                to[-1].append(factor)
            else:
                to.append([factor])
        return self.reshape(value, to)

    def moved(self, value):
        order = list(range(len(value[1])))
        self.random.shuffle(order)
        return self.transpose(value, order)

    def with_constant(self, value):
        name, dimensions = value
        own = dimensions[self.random.randrange(len(dimensions) + 1):]
        shape = [1 if BATCH in d or self.random.random() < 0.4 else size(d) for d in own]
        operands = [name, self.constant(self.numbers.uniform(0.5, 1.5, shape).astype(np.float32))]
        operation = self.random.choice(["Add", "Mul", "Sub", "Div"])
        if operation != "Div" and self.random.random() < 0.4:
            operands.reverse()
        return self.add(operation, operands), dimensions

    def computed(self, value):
        name, dimensions = value
        free = [i for i, dimension in enumerate(dimensions) if BATCH not in dimension]
        last = len(dimensions) - 1
        kind = self.random.choice(["unary", "constant", "constant", "both", "softmax", "product", "linear", "mean", "twice"])
        if kind == "unary":
            return self.add(self.random.choice(UNARY), [name]), dimensions
        if kind == "constant":
            return self.with_constant(value)
        if kind == "both":
            other = self.random.choice([v for v in self.values if v[1] == dimensions])
            return self.add(self.random.choice(["Add", "Mul", "Sub"]), [name, other[0]]), dimensions
        if not free:
            return value
        axis = last if last in free and self.random.random() < 0.6 else self.random.choice(free)
        if kind == "softmax":
            return self.add("Softmax", [name], axis=axis - self.random.choice([0, last + 1])), dimensions
        if kind == "mean":
            to = [[1] if i == axis else dimension for i, dimension in enumerate(dimensions)]
            return self.add("ReduceMean", [name], axes=[axis], keepdims=1), to
        if kind == "linear" and last in free and last > 0:
            weight = self.numbers.standard_normal((size(dimensions[-1]), 4)).astype(np.float32) / 2
            return self.add("MatMul", [name, self.constant(weight)]), [*dimensions[:-1], [4]]
        if kind == "product" and last > 1 and {last, last - 1} <= set(free):
            turned, _ = self.transpose(value, [*range(last - 1), last, last - 1])
            factors = dimensions[-2]
            return self.add("MatMul", [name, turned]), [*dimensions[:-1], list(factors)]
        if kind == "twice" and size(dimensions[axis]) <= 16:
            to = [[2 * dimension[0], *dimension[1:]] if i == axis else dimension for i, dimension in enumerate(dimensions)]
            return self.add("Concat", [name, name], axis=axis), to
        return value

    def model(self, computes):
        steps = [self.regrouped, self.moved, *([self.computed] * 2 if computes else [])]
        for _ in range(self.random.randrange(4, 14)):
            self.values.append(self.random.choice(steps)(self.random.choice(self.values[-3:])))
        last = self.values[-1]
        apart = self.reshape(last, [[factor] for dimension in last[1] for factor in dimension])
        batch = apart[1].index([BATCH])
        first = self.transpose(apart, [batch, *(i for i in range(len(apart[1])) if i != batch)])
        width = int(np.prod([size(dimension) for dimension in first[1][1:]]))
        rows = self.add("Reshape", [first[0], self.constant(np.array([-1, width], np.int64))])
        weight = self.numbers.standard_normal((width, 3)).astype(np.float32)
        y = self.add("MatMul", [rows, self.constant(weight)])
        shape = [size(dimension) for dimension in self.sample]
        graph = helper.make_graph(
            self.nodes, "moves", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, *shape])],
            [helper.make_tensor_value_info(y, TensorProto.FLOAT, [BATCH, 3])], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


def check(run_model, seed, folder):
    """Whether the network was imported; it is refused where a Softmax of an old operation set reaches over the batch."""
    network = Network(seed)
    path, inputs, outputs = (os.path.join(folder, name) for name in ("model.onnx", "inputs", "outputs"))
    content = network.model(computes=seed % 2 == 0).SerializeToString()
    with open(path, "wb") as file:
        file.write(content)
    x = network.numbers.standard_normal([SAMPLES, *map(size, network.sample)]).astype(np.float32)
    expected = onnxruntime.InferenceSession(content).run(None, {"x": x})[0]
    # Images have their channels last.
    save_file({"inputs": np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x}, inputs)
    done = subprocess.run([run_model, path, inputs, outputs], capture_output=True, text=True)
    if done.returncode != 0:
        if "Softmax): over the batch" not in done.stdout:
            sys.exit(f"network {seed}: {done.returncode} {done.stdout}{done.stderr}")
        return False
    found = load_file(outputs)["outputs"].reshape(expected.shape)
    error = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-6)
    if not error <= 1e-4:
        sys.exit(f"network {seed}: relative error {error}")
    return True


def main():
    first, count = map(int, sys.argv[2:4]) if len(sys.argv) == 4 else (1, 120)
    with tempfile.TemporaryDirectory() as folder:
        imported = sum(check(sys.argv[1], seed, folder) for seed in range(first, first + count))
    print(f"{imported} of {count} networks were imported, and compute what ONNX Runtime computes")
    if imported < 0.9 * count:
        sys.exit("expected nearly all to be imported")


if __name__ == "__main__":
    main()
