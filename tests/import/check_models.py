"""Imports models that others trained and compares their outputs with ONNX Runtime's.

usage: check_models.py RUN_MODEL FOLDER
"""
import glob
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator
from safetensors.numpy import load_file, save_file

# Images that the free sizes of a model take: height, width.
SIZES = {"ch_PP-OCRv4_det_infer": (96, 160), "ch_PP-OCRv4_rec_infer": (48, 96),
         "ch_ppocr_mobile_v2.0_cls_infer": (48, 192)}
# Files of which magika says the type: text and programs, of less than 1024 bytes and of more.
FILES = [sys.executable, os.__file__, glob.__file__, tempfile.__file__, "/bin/sh", "/etc/passwd", "/etc/hostname"]
BLOCK, KEPT, PADDING = 4096, 1024, 256
# Sentences as a sentence encoder reads them, by the vocabulary of bert-base-uncased: "A steelyard is a balance whose beam
# carries a scale.", "How do I return the shoes that I bought last week?", "It rains."
SENTENCES = [[101, 1037, 3886, 14132, 2003, 1037, 5703, 3005, 7504, 7883, 1037, 4094, 1012, 102],
             [101, 2129, 2079, 1045, 2709, 1996, 6007, 2008, 1045, 4149, 2197, 2733, 1029, 102],
             [101, 2009, 15811, 1012, 102]]


def bytes_of(path):
    """What magika looks at: the first and last bytes other than white space, as numbers, 256 where there are none."""
    with open(path, "rb") as file:
        content = file.read()
    first, last = content[:BLOCK].lstrip()[:KEPT], content[-BLOCK:].rstrip()[-KEPT:]
    return [*first, *[PADDING] * (KEPT - len(first)), *[PADDING] * (KEPT - len(last)), *last]


def in_double(path, name, inputs):
    """The outputs by ONNX's reference in double: float32 loses the variances of padding, means of squares less squares of means."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE
        if node.op_type == "GlobalMaxPool":  # of rows, which the reference does not know
            node.op_type = "ReduceMax"
            node.attribute.append(onnx.helper.make_attribute("axes", [2]))
    return ReferenceEvaluator(model).run(None, {name: inputs})[0]


def strokes(batch, height, width):
    """Images with dark strokes on white, as letters have them, and a little noise."""
    images = np.full((batch, height, width, 3), 2.0) + np.random.default_rng(1).normal(size=(batch, height, width, 3)) * 0.05
    for n in range(batch):
        for left in range(8 + 5 * n, width - 12, 15):
            images[n, height // 3:height * 2 // 3, left:left + 3] = -2
            images[n, height // 2 - 1:height // 2 + 2, left:left + 10] = -2
    return images.astype(np.float32)


def sentences(length):
    """Their tokens and which of them there are, to that length."""
    tokens = np.zeros((len(SENTENCES), length), np.int64)
    for row, sentence in zip(tokens, SENTENCES):
        row[:len(sentence)] = sentence
    return {"input_ids": tokens, "attention_mask": (tokens != 0).astype(np.int64)}


def samples_of(path, port, session):
    """Inputs as our program takes them (by their names if there are several), and what each output is for them."""
    name = os.path.basename(path).removesuffix(".onnx")
    if len(session.get_inputs()) == 2:
        samples = sentences(16)
        return samples, session.run(None, samples)
    batch = port.shape[0] if isinstance(port.shape[0], int) and port.shape[0] > 0 else 2
    if port.type == "tensor(int32)":
        samples = np.array([bytes_of(file) for file in FILES if os.path.isfile(file)], np.float32)
        expected = session.run(None, {port.name: samples.astype(np.int32)})
        padded = (samples == PADDING).any(axis=1)
        expected[0][padded] = in_double(path, port.name, samples[padded].astype(np.int32))
        return samples, expected
    if len(port.shape) == 3:  # sound
        seconds = np.arange(port.shape[1]) / 22050
        notes = [np.sin(2 * np.pi * 220 * seconds * (n + 1)) * np.exp(-seconds) for n in range(batch)]
        samples = (np.array(notes) + np.random.default_rng(1).normal(size=(batch, port.shape[1])) * 0.01)[..., None].astype(np.float32)
        return samples, session.run(None, {port.name: samples})
    height, width = SIZES.get(name, port.shape[2:])
    samples = strokes(batch, height, width)
    return samples, session.run(None, {port.name: np.ascontiguousarray(samples.transpose(0, 3, 1, 2))})


def in_a_row(outputs):
    """The values of each sample, one output after another, images with channels last."""
    held = [values.transpose(0, 2, 3, 1) if values.ndim == 4 else values for values in outputs]
    return np.concatenate([values.reshape(len(values), -1) for values in held], axis=1)


def check(program, path, scratch):
    name = os.path.basename(path).removesuffix(".onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    samples, expected = samples_of(path, session.get_inputs()[0], session)
    inputs, outputs = os.path.join(scratch, "in"), os.path.join(scratch, "out")
    save_file(samples if isinstance(samples, dict) else {"inputs": samples}, inputs)
    chosen = [output.name for output in session.get_outputs()]
    # Those of floats, not an input that is handed on; where all are, all together as well.
    wanted = [([output], values) for output, values in zip(chosen, expected) if values.dtype == np.float32]
    if len(chosen) > 1 and len(wanted) == len(chosen):
        wanted.append(([], in_a_row(expected)))
    good = True
    for output, values in wanted:
        run = subprocess.run([program, path, inputs, outputs, *output], capture_output=True, text=True)
        if run.returncode != 0:
            print(f"{name}: {run.stdout}{run.stderr}")
            return False
        called = name if len(chosen) == 1 else f"{name}, {output[0] if output else 'all outputs'}"
        good = compare(called, run.stdout.strip(), load_file(outputs), values) and good
    return good


def compare(name, said, ours, expected):
    got = ours["outputs"]
    if got.ndim == 4:
        got = got.transpose(0, 3, 1, 2)
    if got.shape != expected.shape:
        print(f"{name}: expected {expected.shape}, got {got.shape}")
        return False
    error = float(np.abs(got - expected).max() / np.abs(expected).max())
    falls = bool(ours["loss_falls"][0])
    # ONNX's networks of constant weights end in a Softmax of scores that are far apart: it passes hardly any gradient.
    flat = name.startswith("light_") and ours["gradient"][0] < 1e-6
    step = "a step lowers the loss" if falls else "no gradient through its Softmax" if flat else "A STEP DOES NOT LOWER THE LOSS"
    print(f"{name}: {said}, relative error {error:.1e}, {step}")
    return error < 1e-4 and (falls or flat)


def main():
    program, folder = sys.argv[1:]
    with tempfile.TemporaryDirectory() as scratch:
        good = [check(program, path, scratch) for path in sorted(glob.glob(os.path.join(folder, "*.onnx")))]
    if not good:
        print(f"skipped: no models in {folder}")
        return 77
    print(f"{sum(good)} of {len(good)} models as expected")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
