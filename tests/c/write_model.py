"""Writes the network of examples/12_train_in_c.c with random weights: write_model.py FILE"""
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from support.onnx_files import model, node, port, tensor  # noqa: E402


def main():
    generator = random.Random(1)

    def weights(name, *shape):
        count = 1
        for size in shape:
            count *= size
        return tensor(name, shape, [generator.uniform(-1, 1) for _ in range(count)])

    nodes = [node("Gemm", ["x", "0.weight", "0.bias"], "hidden", transB=1), node("Relu", ["hidden"], "relu"),
             node("Gemm", ["relu", "2.weight", "2.bias"], "y", transB=1)]
    tensors = [weights("0.weight", 16, 2), weights("0.bias", 16), weights("2.weight", 2, 16), weights("2.bias", 2)]
    with open(sys.argv[1], "wb") as file:
        file.write(model(nodes, tensors, [port("x", ["N", 2])], [port("y", ["N", 2])]))


if __name__ == "__main__":
    main()
