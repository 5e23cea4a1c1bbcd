"""What ONNX Runtime computes for quantized operations, against the formulas of docs/numerics.md.

usage: ort_arithmetic.py
Each operation runs as a model of QuantizeLinear and DequantizeLinear that ONNX Runtime fuses; the fused operator must
be there and every code must be equal. Prints a line per operation: values, differences, the operator that ran.
"""
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

F = np.float32
VALUES = 20000  # about, per case
CODES = {"u8": (np.uint8, 0, 255), "s8": (np.int8, -128, 127)}
TIES = [(0.05, 0.05), (0.02, 0.01), (0.1, 0.2)]  # s_x, s_y
RANDOM_SCALES = 30


class Model:
    """A graph of floats with QuantizeLinear and DequantizeLinear at every edge, its inputs and output included, as an
    exported model has them: ONNX Runtime for x86 turns s8 between two of them into u8. run() gives codes."""

    def __init__(self, kind):
        self.dtype, self.qmin, self.qmax = CODES[kind]
        self.nodes, self.inputs, self.initializers, self.feeds = [], [], [], {}

    def constant(self, array):
        name = f"c{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def quantized(self, real, scale, zero_point):
        codes = f"q{len(self.nodes)}"
        self.nodes.append(helper.make_node("QuantizeLinear", [real, scale, zero_point], [codes]))
        return codes

    def dequantized(self, codes, scale, zero_point, constant=False, **attributes):
        scale = np.asarray(scale, F)
        parameters = [self.constant(scale), self.constant(np.full(scale.shape, zero_point, codes.dtype))]
        if constant:
            name = self.constant(codes)
        else:
            name = f"x{len(self.inputs)}"
            self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, codes.shape))
            self.feeds[name] = scale * (codes.astype(F) - F(zero_point))
            name = self.quantized(name, *parameters)
        return self.add("DequantizeLinear", [name, *parameters], **attributes)

    def add(self, operation, inputs, **attributes):
        real = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(operation, inputs, [real], **attributes))
        return real

    def run(self, real, scale, zero_point):
        """(codes, operators of the optimised graph)"""
        parameters = [self.constant(F(scale)), self.constant(self.dtype(zero_point))]
        real = self.add("DequantizeLinear", [self.quantized(real, *parameters), *parameters])
        output = helper.make_tensor_value_info(real, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", self.inputs, [output], self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.add_session_config_entry("session.x64quantprecision", "1")  # no saturated sums without VNNI
        with tempfile.TemporaryDirectory() as folder:
            options.optimized_model_filepath = os.path.join(folder, "optimised.onnx")
            session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
            operators = {node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node}
        return self.clamp(np.rint(session.run(None, self.feeds)[0] / F(scale)) + F(zero_point)), operators

    def random(self, rng, *shape):
        return rng.integers(self.qmin, self.qmax + 1, shape).astype(self.dtype)

    def clamp(self, code):
        return np.clip(code, F(self.qmin), F(self.qmax)).astype(self.dtype)


def requantized(model, sums, multiplier, zero_point):
    return model.clamp(np.rint(sums.astype(F) * multiplier.astype(F)) + F(zero_point))


def fused_multiply_add(a, b, c):
    """a * b + c of floats, rounded once: in double, the products of codes and these sums are exact."""
    return (np.asarray(a, np.float64) * b + c).astype(F)


def windows(x, kernel, stride, pad):
    """[taps][N, C, OH, OW], in the order of rows; zero outside the image."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    size = [(x.shape[2 + i] - kernel) // stride + 1 for i in range(2)]
    return [x[:, :, h:h + stride * (size[0] - 1) + 1:stride, w:w + stride * (size[1] - 1) + 1:stride]
            for h in range(kernel) for w in range(kernel)]


POOLS = [(2, 2, 0), (3, 2, 1), (3, 1, 0), (5, 3, 2)]  # kernel, stride, padding


def pooled(rng, kind, scales, pool):
    model = Model(kind)
    kernel, stride, pad = pool
    size = 20 * stride + kernel
    x = model.random(rng, 4, max(1, VALUES // (4 * 400)), size, size)
    zero_x, zero_y = (int(z) for z in model.random(rng, 2))
    attributes = dict(kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
    return model, x, zero_x, zero_y, attributes, windows(x.astype(np.int32) - zero_x, kernel, stride, pad)


def average_pool(rng, kind, scales, pool):
    """Floats: the dequantized values summed in order, divided by the count; z is added before rounding."""
    model, x, zero_x, zero_y, attributes, taps = pooled(rng, kind, scales, pool)
    s_x, s_y = F(scales[0]), F(scales[1])
    codes, operators = model.run(model.add("AveragePool", [model.dequantized(x, s_x, zero_x)], count_include_pad=1,
                                           **attributes), s_y, zero_y)
    total = np.zeros(codes.shape, F)
    for tap in taps:
        total = total + s_x * tap.astype(F)
    formula = np.rint(total / F(len(taps)) / s_y + F(zero_y - model.qmin)) + F(model.qmin)  # s8 codes as u8
    exact = requantized(model, np.sum(taps, 0), s_x / (F(len(taps)) * s_y), zero_y)
    return codes, model.clamp(formula), operators, "QLinearAveragePool", np.count_nonzero(codes != exact)


def average_as_conv(rng, kind, scales, pool):
    """Our average pool: a depthwise convolution with weights of code 1 and scale float(1 / count)."""
    model, x, zero_x, zero_y, attributes, taps = pooled(rng, kind, scales, pool)
    s_x, s_y, s_w = F(scales[0]), F(scales[1]), F(1) / F(len(taps))
    channels = x.shape[1]
    ones = np.ones((channels, 1, pool[0], pool[0]), np.int8)
    weight = model.dequantized(ones, s_w, 0, constant=True)
    codes, operators = model.run(model.add("Conv", [model.dequantized(x, s_x, zero_x), weight], group=channels,
                                           **attributes), s_y, zero_y)
    return codes, requantized(model, np.sum(taps, 0), s_x * s_w / s_y, zero_y), operators, "QLinearConv", None


def global_average(rng, kind, scales, pool):
    model = Model(kind)
    size = pool[0] + pool[1] + pool[2]
    x = model.random(rng, 64, VALUES // 64, size, size)
    zero_x, zero_y = (int(z) for z in model.random(rng, 2))
    s_x, s_y = F(scales[0]), F(scales[1]) / F(size)
    codes, operators = model.run(model.add("GlobalAveragePool", [model.dequantized(x, s_x, zero_x)]), s_y, zero_y)
    sums = np.sum(x.astype(np.int32) - zero_x, (2, 3), keepdims=True)
    return (codes, requantized(model, sums, s_x / (F(size * size) * s_y), zero_y), operators,
            "QLinearGlobalAveragePool", None)


def concat(rng, kind, scales, pool):
    """Each input through DequantizeLinear and QuantizeLinear: z is added after rounding."""
    model = Model(kind)
    parts = [model.random(rng, 8, VALUES // 16) for _ in range(2)]
    zeros = [int(z) for z in model.random(rng, 3)]
    of = [F(scales[0]), F(scales[0]) * F(pool[0]) / F(7)]
    s_y = F(scales[1])
    real = model.add("Concat", [model.dequantized(x, s, z) for x, s, z in zip(parts, of, zeros)], axis=1)
    codes, operators = model.run(real, s_y, zeros[2])
    formula = [np.rint(s * (x.astype(np.int32) - z).astype(F) / s_y) + F(zeros[2]) for x, s, z in zip(parts, of, zeros)]
    return codes, model.clamp(np.concatenate(formula, 1)), operators, "QLinearConcat", None


def add(rng, kind, scales, pool):
    """Fused multiply-adds, and s8 codes as u8: what ONNX Runtime does on x86 with AVX2."""
    model = Model(kind)
    parts = [model.random(rng, 8, VALUES // 8) for _ in range(2)]
    zeros = [int(z) for z in model.random(rng, 3)]
    of = [F(scales[0]), F(scales[0]) if pool[2] == 0 else F(rng.uniform(0.005, 0.1))]
    s_y = F(scales[1])
    codes, operators = model.run(model.add("Add", [model.dequantized(x, s, z) for x, s, z in zip(parts, of, zeros)]),
                                 s_y, zeros[2])
    r = [s / s_y for s in of]
    a, b = (x.astype(F) - F(model.qmin) for x in parts)
    z_a, z_b, z_y = (F(z - model.qmin) for z in zeros)
    base = z_y - fused_multiply_add(r[0], z_a, r[1] * z_b)
    formula = np.rint(fused_multiply_add(a, r[0], fused_multiply_add(b, r[1], base)))
    plain = np.rint((z_y - (r[0] * z_a + r[1] * z_b)) + a * r[0] + b * r[1])
    off = np.count_nonzero(model.clamp(plain + F(model.qmin)) != codes)
    return codes, model.clamp(formula + F(model.qmin)), operators, "QLinearAdd", off


def weights(rng, shape):
    # Without VNNI, pairs of products of u8 and s8 saturate at 16 bits: 7-bit weights cannot.
    with open("/proc/cpuinfo") as file:
        top = 127 if "vnni" in file.read() else 63
    codes = rng.integers(-top, top + 1, shape).astype(np.int8)
    return codes, rng.uniform(0.001, 0.02, shape[0]).astype(F)


def linear_map(rng, model, scales, x, w, s_w, zero_x):
    s_x = F(scales[0])
    bias = rng.integers(-5000, 5000, len(s_w)).astype(np.int32)
    reals = [model.dequantized(x, s_x, zero_x), model.dequantized(w, s_w, 0, constant=True, axis=0),
             model.dequantized(bias, s_x * s_w, 0, constant=True, axis=0)]
    return reals, bias, s_x * s_w


def conv(rng, kind, scales, pool):
    model = Model(kind)
    kernel, stride, pad = pool
    size = 8 * stride + kernel
    x = model.random(rng, max(1, VALUES // 1500), 6, size, size)
    w, s_w = weights(rng, (24, 6, kernel, kernel))
    zero_x, zero_y = (int(z) for z in model.random(rng, 2))
    reals, bias, product_scale = linear_map(rng, model, scales, x, w, s_w, zero_x)
    s_y = F(scales[1]) * F(40)
    codes, operators = model.run(model.add("Conv", reals, strides=[stride] * 2, pads=[pad] * 4), s_y, zero_y)
    taps = windows(x.astype(np.int32) - zero_x, kernel, stride, pad)
    flat = w.reshape(24, 6, -1).astype(np.int32)
    sums = sum(np.einsum("nchw,oc->nohw", tap, flat[:, :, t]) for t, tap in enumerate(taps))
    channel = (1, -1, 1, 1)
    return (codes, requantized(model, sums + bias.reshape(channel), (product_scale / s_y).reshape(channel), zero_y),
            operators, "QLinearConv", None)


def gemm(rng, kind, scales, pool):
    model = Model(kind)
    x = model.random(rng, VALUES // 40, 50 * pool[0])
    w, s_w = weights(rng, (40, x.shape[1]))
    zero_x, zero_y = (int(z) for z in model.random(rng, 2))
    reals, bias, product_scale = linear_map(rng, model, scales, x, w, s_w, zero_x)
    s_y = F(scales[1]) * F(40)
    codes, operators = model.run(model.add("Gemm", reals, transB=1), s_y, zero_y)
    sums = (x.astype(np.int32) - zero_x) @ w.astype(np.int32).T + bias
    return codes, requantized(model, sums, product_scale / s_y, zero_y), operators, "QGemm", None


def main():
    rng = np.random.default_rng(1)
    scales = TIES + [tuple(pair) for pair in rng.uniform(0.005, 0.1, (RANDOM_SCALES, 2))]
    failed = False
    for operation in (conv, gemm, add, concat, global_average, average_pool, average_as_conv):
        values = differences = off = 0
        fused = True
        for kind in CODES:
            for pair in scales:
                for pool in POOLS:
                    codes, formula, operators, operator, exact = operation(rng, kind, pair, pool)
                    values += codes.size
                    differences += np.count_nonzero(codes != formula)
                    off += exact or 0
                    fused = fused and operator in operators
        failed = failed or differences > 0 or not fused
        note = f"; {off} differ from the plain formula" if off else ""
        print(f"{operation.__name__}: {values} values, {differences} differences, "
              f"{'always' if fused else 'NOT always'} {operator}{note}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
