"""ONNX files for tests, written by the format's description (onnx.proto) alone."""
import random
import struct

FLOAT, INT32, INT64 = 1, 6, 7


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        out.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(out)


def field(number, value):
    """An integer, a float, a string or a message's bytes."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, shape, values):
    """Of floats, or of int64 where all values are whole."""
    whole = all(isinstance(v, int) for v in values)
    raw = struct.pack(f"<{len(values)}{'q' if whole else 'f'}", *values)
    dims = b"".join(field(1, dim) for dim in shape)
    return dims + field(2, INT64 if whole else FLOAT) + field(8, name) + field(9, raw)


def attribute(name, value):
    if isinstance(value, list):
        return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)
    number, kind = {float: (2, 1), int: (3, 2), str: (4, 3), bytes: (6, 5)}[type(value)]  # bytes: of branch()
    return field(1, name) + field(number, value) + field(20, kind)


def node(op, inputs, output, domain="", **attributes):
    return ((field(7, domain) if domain else b"") + b"".join(field(1, i) for i in inputs) + field(2, output) + field(3, "node of " + output) + field(4, op) +
            b"".join(field(5, attribute(name, value)) for name, value in attributes.items()))


def port(name, dims, kind=FLOAT):
    """dims: numbers, or names of free ones."""
    shape = b"".join(field(1, field(2 if isinstance(dim, str) else 1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def branch(nodes, outputs):
    """The graph of an attribute, such as an If's then_branch."""
    return b"".join(field(1, n) for n in nodes) + field(2, "branch") + b"".join(field(12, field(1, o)) for o in outputs)


def model(nodes, tensors, inputs, outputs, opset=13, producer="test", metadata=()):
    """metadata: pairs of a key and a text."""
    graph = (b"".join(field(1, n) for n in nodes) + field(2, "test") + b"".join(field(5, t) for t in tensors) +
             b"".join(field(11, i) for i in inputs) + b"".join(field(12, o) for o in outputs))
    properties = b"".join(field(14, field(1, key) + field(2, value)) for key, value in metadata)
    return field(1, 7) + field(2, producer) + field(7, graph) + field(8, field(2, opset)) + properties


def squeeze_excite(classes=4, extra=(), shifted="norm"):
    """A small network for images of one channel, as exporters write it: hardswish in four nodes, a gate, a sum, a Softmax.
    extra: nodes behind its norm; shifted: what the hardswish begins with."""
    generator = random.Random(1)

    def weights(name, *shape):
        count = 1
        for dim in shape:
            count *= dim
        return tensor(name, shape, [generator.uniform(-1, 1) / shape[-1] for _ in range(count)])

    three = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [node("Conv", ["pixels", "stem.weight"], "stem", **three),
             node("BatchNormalization", ["stem", "stem_bn.weight", "stem_bn.bias", "stem_bn.mean", "stem_bn.var"], "norm"),
             *extra,
             node("Add", [shifted, "three"], "shifted"), node("Clip", ["shifted", "zero", "six"], "clipped"),
             node("Mul", ["norm", "clipped"], "product"), node("Div", ["product", "six"], "swish"),
             node("GlobalAveragePool", ["swish"], "mean"),
             node("Conv", ["mean", "squeeze.weight", "squeeze.bias"], "squeeze"), node("Relu", ["squeeze"], "relu"),
             node("Conv", ["relu", "excite.weight"], "excite"), node("HardSigmoid", ["excite"], "gate", alpha=0.2, beta=0.5),
             node("Mul", ["swish", "gate"], "gated"), node("Conv", ["gated", "body.weight"], "body", **three),
             node("Add", ["gated", "body"], "sum"), node("MaxPool", ["sum"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
             node("Flatten", ["pool"], "flat"), node("Gemm", ["flat", "fc.weight", "fc.bias"], "logits", transB=1),
             node("Softmax", ["logits"], "shares", axis=1)]
    tensors = [weights("stem.weight", 6, 1, 3, 3), tensor("stem_bn.weight", [6], [1.0] * 6), tensor("stem_bn.bias", [6], [0.5] * 6),
               tensor("stem_bn.mean", [6], [0.1] * 6), tensor("stem_bn.var", [6], [0.5] * 6), tensor("three", [], [3.0]),
               tensor("zero", [], [0.0]), tensor("six", [], [6.0]), weights("squeeze.weight", 2, 6, 1, 1),
               weights("squeeze.bias", 2), weights("excite.weight", 6, 2, 1, 1), weights("body.weight", 6, 6, 3, 3),
               weights("fc.weight", classes, 96), weights("fc.bias", classes)]
    return model(nodes, tensors, [port("pixels", ["batch", 1, "height", "width"])], [port("shares", ["batch", classes])])
