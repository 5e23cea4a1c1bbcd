"""What ONNX Runtime and OpenVINO make of an exported file, over a whole test set; each may be absent."""
import importlib.util
import json

import numpy as np

CHUNK = 32  # samples


class OnnxRuntime:
    def __init__(self, path, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # On x86 without VNNI, sums of products of u8 and s8 saturate by default. On other processors this changes nothing.
        options.add_session_config_entry("session.x64quantprecision", "1")
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.version = onnxruntime.__version__
        self.preprocessing = json.loads(self.session.get_modelmeta().custom_metadata_map["preprocessing"])

    def __call__(self, inputs):
        port = self.session.get_inputs()[0]
        return self.session.run(None, {port.name: inputs.astype(np.int32) if "int32" in port.type else inputs})[0]


class OpenVino:
    def __init__(self, path, threads):
        import openvino

        # Without the hint its floats are bf16 where a processor multiplies those.
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
        self.model = openvino.Core().compile_model(path, "CPU", settings)
        self.version = openvino.__version__.split("-")[0]

    def __call__(self, inputs):
        whole = self.model.input(0).element_type.is_integral()
        return self.model([inputs.astype(np.int32) if whole else inputs])[self.model.output(0)]


def prepared(samples, preprocessing):
    """Samples of the data as the file's input takes them."""
    values = samples / 255 if samples.dtype == np.uint8 else samples.astype(np.float64)
    if preprocessing["mean"]:
        values = (values - preprocessing["mean"]) / preprocessing["stddev"]
    values = values.astype(np.float32)
    return np.ascontiguousarray(values.transpose(0, 3, 1, 2)) if values.ndim == 4 else values


def distance(read, text):
    """Levenshtein's, of two lists."""
    row = list(range(len(text) + 1))
    for i, character in enumerate(read, 1):
        before, row[0] = row[0], i
        for j, expected in enumerate(text, 1):
            before, row[j] = row[j], min(before + (character != expected), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def decoded(frames):
    """The best characters of all frames without repetitions and blanks."""
    return [c for i, c in enumerate(frames) if c and (i == 0 or frames[i - 1] != c)]


class Top1:
    """Percentage of samples with the right class."""

    name = "top1"

    def __init__(self):
        self.right = self.samples = 0

    def decide(self, outputs):
        return outputs.argmax(-1)

    def add(self, decisions, targets):
        self.right += int((decisions == targets).sum())
        self.samples += len(targets)

    def value(self):
        return 100 * self.right / self.samples


class CharacterErrors:
    """Percentage of characters that are wrong, missing or too many."""

    name = "cer"

    def __init__(self):
        self.errors = self.characters = 0

    def decide(self, outputs):
        return outputs.argmax(-1)

    def add(self, decisions, targets):
        for frames, target in zip(decisions.tolist(), targets.tolist()):
            text = [c for c in target if c != -1]
            self.errors += distance(decoded(frames), text)
            self.characters += len(text)

    def value(self):
        return 100 * self.errors / self.characters


class PixelF1:
    """F1 of the pixels of all samples together, in percent."""

    name = "pixel_f1"

    def __init__(self):
        self.both = self.either = 0

    def decide(self, outputs):
        return outputs > 0.5

    def add(self, decisions, targets):
        marked = targets.reshape(decisions.shape) == 1
        self.both += int((decisions & marked).sum())
        self.either += int(decisions.sum()) + int(marked.sum())

    def value(self):
        return 200 * self.both / self.either


def judge(path, inputs, targets, metric, threads):
    """Each reader's result on the exported file, and how often OpenVINO decides as ONNX Runtime does; metric: a class of
    this file. Empty without ONNX Runtime."""
    if not importlib.util.find_spec("onnxruntime"):
        return {}
    readers = {"onnxruntime": OnnxRuntime(path, threads)}
    if importlib.util.find_spec("openvino"):
        readers["openvino"] = OpenVino(path, threads)
    scores = {name: metric() for name in readers}
    same = total = 0
    largest = 0.0
    for first in range(0, len(inputs), CHUNK):
        chunk = prepared(inputs[first:first + CHUNK], readers["onnxruntime"].preprocessing)
        outputs = {name: reader(chunk) for name, reader in readers.items()}
        decisions = {name: scores[name].decide(values) for name, values in outputs.items()}
        for name in readers:
            scores[name].add(decisions[name], targets[first:first + CHUNK])
        if "openvino" in readers:
            same += int((decisions["openvino"] == decisions["onnxruntime"]).sum())
            total += decisions["openvino"].size
            largest = max(largest, float(np.abs(outputs["openvino"] - outputs["onnxruntime"]).max()))
    results = {name: {"version": reader.version, metric.name: scores[name].value()} for name, reader in readers.items()}
    if "openvino" in readers:
        results["openvino"].update(same_decisions=100 * same / total, decisions=total, largest_difference=largest)
    return results
