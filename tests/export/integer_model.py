"""Runs an exported integer model in numpy, written from docs/exports.md and docs/numerics.md alone."""
import json

import numpy as np
from safetensors import safe_open

F32 = np.float32


def load(path):
    """(the graph, its tensors by name)"""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    assert metadata["kind"] == "integer-model", metadata
    return json.loads(metadata["graph"]), tensors


def is_wide(q):
    return q is not None and q["dtype"] == "i32"


def clamp(code, q):
    return np.clip(code, q["qmin"], q["qmax"]).astype(np.int64)


def quantize(x, q):
    return clamp(np.rint(x.astype(F32) / F32(q["scale"])) + F32(q["zero_point"]), q)


def dequantize(code, q):
    return (code - q["zero_point"]).astype(F32) * F32(q["scale"])


def activated(code, q, activation):
    if activation == "none":
        return code
    code = np.maximum(code, quantize(np.zeros(1), q))
    return np.minimum(code, quantize(np.full(1, 6.0), q)) if activation == "relu6" else code


def windows(x, kernel, stride, padding, dilation, fill):
    """[N, OH, OW, C, taps] of images [N, H, W, C]"""
    x = np.pad(x, ((0, 0), (padding[0],) * 2, (padding[1],) * 2, (0, 0)), constant_values=fill)
    rows, columns = ((size - d * (k - 1) - 1) // s + 1
                     for size, k, s, d in zip(x.shape[1:3], kernel, stride, dilation))
    taps = []
    for i in range(kernel[0]):
        for j in range(kernel[1]):
            top, left = i * dilation[0], j * dilation[1]
            taps.append(x[:, top:top + stride[0] * (rows - 1) + 1:stride[0],
                          left:left + stride[1] * (columns - 1) + 1:stride[1]])
    return np.stack(taps, -1)


def spread(node, kernel, v):
    """Images with zeros between and around pixels, whose convolution with the turned kernel is the transposed one."""
    steps = node["stride"]
    spread_out = np.zeros((len(v), *((size - 1) * s + 1 for size, s in zip(v.shape[1:3], steps)), v.shape[3]), v.dtype)
    spread_out[:, ::steps[0], ::steps[1]] = v
    for axis, (k, d, p, more) in enumerate(zip(kernel, node["dilation"], node["padding"], node["output_padding"]), 1):
        ends = [d * (k - 1) - p, d * (k - 1) - p + more]
        border = [(0, 0)] * 4
        border[axis] = [max(end, 0) for end in ends]
        spread_out = np.pad(spread_out, border)
        cut = [slice(None)] * 4
        cut[axis] = slice(max(-ends[0], 0), spread_out.shape[axis] - max(-ends[1], 0))
        spread_out = spread_out[tuple(cut)]
    return spread_out


def products(node, w, v):
    """Exact sums, in 64 bits, of weights w and operands v, both less their zero points."""
    if node["op"] == "linear":
        return v @ w.T
    groups, (outputs, inputs) = node["groups"], w.shape[:2]
    stride, padding = node["stride"], node["padding"]
    if node["op"] == "conv_transpose2d":
        v, w, stride, padding = spread(node, w.shape[2:], v), w[..., ::-1, ::-1], (1, 1), (0, 0)
    patches = windows(v, w.shape[2:], stride, padding, node["dilation"], 0)
    each = outputs // groups
    return np.concatenate([np.einsum("nhwct,oct->nhwo", patches[..., g * inputs:(g + 1) * inputs, :],
                                     w[g * each:(g + 1) * each].reshape(each, inputs, -1))
                           for g in range(groups)], -1)


def linear_map(node, tensors, x, x_q, y_q):
    name = node["name"]
    w = tensors[name + ".weight"].astype(np.int64)
    if name + ".weight_zero_point" in tensors:
        w = w - tensors[name + ".weight_zero_point"].astype(np.int64).reshape((-1,) + (1,) * (w.ndim - 1))
    sums = products(node, w, x - x_q["zero_point"])
    if name + ".bias" in tensors:
        sums = sums + tensors[name + ".bias"]
    scale = F32(x_q["scale"]) * tensors[name + ".weight_scale"]
    if y_q is None:
        return sums.astype(F32) * scale
    if is_wide(x_q) or is_wide(y_q):
        code = quantize(sums.astype(F32) * scale, y_q)
    else:
        code = clamp(np.rint(sums.astype(F32) * (scale / F32(y_q["scale"]))) + F32(y_q["zero_point"]), y_q)
    return activated(code, y_q, node["activation"])


def fma(a, b, c):
    return (a * np.float64(b) + c).astype(F32)  # the product of two floats is a double


def add(node, parts, qs, y_q):
    if any(map(is_wide, [*qs, y_q])):
        code = quantize(dequantize(parts[0], qs[0]) + dequantize(parts[1], qs[1]), y_q)
    else:
        low = [-128 if q["dtype"] == "i8" else 0 for q in (*qs, y_q)]
        ratio = [F32(q["scale"]) / F32(y_q["scale"]) for q in qs]
        zero = [F32(q["zero_point"] - least) for q, least in zip((*qs, y_q), low)]
        sum_of = zero[2] - fma(ratio[0], zero[0], np.float64(ratio[1] * zero[1]))
        for i in (1, 0):
            sum_of = fma((parts[i] - low[i]).astype(F32), ratio[i], np.float64(sum_of))
        code = clamp(np.rint(sum_of) + low[2], y_q)
    return activated(code, y_q, node["activation"])


def average(node, x, x_q, y_q):
    v = x - x_q["zero_point"]
    if node["op"] == "global_avg_pool":
        sums, count = v.sum((1, 2)), v.shape[1] * v.shape[2]
        multiplier = F32(x_q["scale"]) / (F32(count) * F32(y_q["scale"]))
    else:
        sums = windows(v, node["kernel"], node["stride"], node["padding"], (1, 1), 0).sum(-1)
        count = node["kernel"][0] * node["kernel"][1]
        multiplier = F32(x_q["scale"]) * (F32(1) / F32(count)) / F32(y_q["scale"])
    if is_wide(x_q) or is_wide(y_q):
        return quantize(sums.astype(F32) * (F32(x_q["scale"]) / F32(count)), y_q)
    return clamp(np.rint(sums.astype(F32) * multiplier) + F32(y_q["zero_point"]), y_q)


def run(graph, tensors, inputs):
    """Codes (or floats) by the names of the values; inputs are preprocessed."""
    values = {graph["input"]: inputs}
    for node in graph["nodes"]:
        parts = [values[i] for i in node["inputs"]]
        qs = [graph["values"][i].get("quantization") for i in node["inputs"]]
        y_q, op, x = graph["values"][node["output"]].get("quantization"), node["op"], parts[0]
        if op == "quantize":
            y = quantize(x, y_q)
        elif op in ("linear", "conv2d", "conv_transpose2d"):
            y = linear_map(node, tensors, x, qs[0], y_q)
        elif op == "add":
            y = add(node, parts, qs, y_q)
        elif op == "concat":
            y = np.concatenate([quantize(dequantize(part, q), y_q) for part, q in zip(parts, qs)], -1)
        elif op in ("relu", "relu6"):
            y = activated(x, y_q, op)
        elif op == "max_pool2d":
            y = windows(x, node["kernel"], node["stride"], node["padding"], (1, 1), np.iinfo(np.int64).min).max(-1)
        elif op in ("avg_pool2d", "global_avg_pool"):
            y = average(node, x, qs[0], y_q)
        elif op == "reshape":
            y = x.reshape(len(x), *node["shape"])
        elif op == "flatten":
            y = x.transpose(0, 3, 1, 2).reshape(len(x), -1) if x.ndim == 4 else x
        else:
            raise ValueError(op)
        values[node["output"]] = y
    return {value["name"]: values[i] for i, value in enumerate(graph["values"])}
