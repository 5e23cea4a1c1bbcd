"""A torch model as an ONNX file in which each weight can be told from all others.

Exporters rename, transpose and join weights, and importers do so again. Here every element of a parameter is replaced,
in a copy of the model, by a number of its own; whatever has only moved on the way is then known by it.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import traceback
import warnings
from typing import Any, Iterator, Sequence

import numpy as np
import torch
from torch import nn

from .._error import Error
from ._arguments import input_names
from ._nested import flatten

# Bit patterns of float32 from 1.2e-38 to 3.3e-24, where no model has constants of its own.
_FIRST = 0x00800000
_MOST = 0x18000000


class Marks:
    """Numbers that stand for the elements of named tensors, one after another."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.names = list(tensors)
        self.shapes = [tuple(t.shape) for t in tensors.values()]
        sizes = [t.numel() for t in tensors.values()]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.total = int(self.offsets[-1])
        if self.total > _MOST:
            raise Error(f"expected a model of at most {_MOST} weights, got {self.total}")

    def write(self, tensors: dict[str, torch.Tensor]) -> None:
        """Replaces the tensors' elements by their numbers."""
        with torch.no_grad():
            for i, tensor in enumerate(tensors.values()):
                marks = np.arange(self.offsets[i], self.offsets[i + 1], dtype=np.int64) + _FIRST
                tensor.copy_(torch.from_numpy(marks.astype(np.int32).view(np.float32).reshape(self.shapes[i])))

    def read(self, values: np.ndarray) -> np.ndarray | None:
        """Which elements the numbers stand for, in one row; None where none of them is such a number.

        Raises ValueError where only some are."""
        indices = np.ascontiguousarray(values).view(np.uint32).astype(np.int64).reshape(-1) - _FIRST
        inside = (indices >= 0) & (indices < self.total)
        if inside.all() and indices.size:
            return indices
        if inside.any():
            raise ValueError
        return None

    def tensor_at(self, index: int) -> int:
        """Which tensor an element belongs to."""
        return int(np.searchsorted(self.offsets, index, side="right")) - 1


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any, int]]:
    """The fields of a protobuf message: number, wire type, value or bytes, and where those begin."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        number, wire = key >> 3, key & 7
        if wire == 0:
            yield number, wire, varint(), at
        elif wire == 2:
            size = varint()
            yield number, wire, data[at:at + size], at
            at += size
        else:
            at += 8 if wire == 1 else 4


# The ways to tensors: fields of ModelProto, GraphProto, NodeProto and AttributeProto by their numbers.
_WAYS = {"model": {7: "graph"}, "graph": {1: "node", 5: "tensor"}, "node": {5: "attribute"},
         "attribute": {5: "tensor", 6: "graph"}}


def _raw_floats(data: memoryview, message: str = "model", start: int = 0) -> Iterator[tuple[int, int]]:
    """Where the float32 tensors of an ONNX file have their elements: position and bytes."""
    if message == "tensor":
        fields = {number: (value, at) for number, _, value, at in _fields(data)}
        if fields.get(2, (0, 0))[0] == 1 and 9 in fields:
            yield start + fields[9][1], len(fields[9][0])
        return
    for number, wire, value, at in _fields(data):
        below = _WAYS[message].get(number)
        if below is not None and wire == 2:
            yield from _raw_floats(value, below, start + at)


def with_values(onnx: bytes, marks: Marks, values: np.ndarray) -> bytes:
    """The file with the values in place of the marks that stand for them."""
    written = bytearray(onnx)
    for at, size in _raw_floats(memoryview(onnx)):
        place = np.frombuffer(written, dtype="<f4", count=size // 4, offset=at)
        try:
            indices = marks.read(place)
        except ValueError:
            continue
        if indices is not None:
            place[:] = values[indices]
    return bytes(written)


def onnx_of(model: nn.Module, inputs: Sequence[torch.Tensor], opset: int) -> bytes:
    """The model, in the modes that its modules have, by torch's exporter; several outputs one after another."""
    names = input_names(model, len(inputs))
    forward = model.forward
    count = 0

    def flat_forward(*arguments):
        nonlocal count
        tensors, _ = flatten(forward(*arguments), "the output")
        count = len(tensors)
        return tuple(tensors)

    model.forward = flat_forward
    try:
        with torch.no_grad():
            model(*inputs)
        outputs = ["output"] if count == 1 else [f"output{i}" for i in range(count)]
        options: dict[str, Any] = {}
        if "dynamo" in inspect.signature(torch.onnx.export).parameters:
            options["dynamo"] = False
        file = io.BytesIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # which would have graphs
            warnings.simplefilter("ignore")
            torch.onnx.export(model, tuple(inputs), file, opset_version=opset, input_names=names, output_names=outputs,
                              dynamic_axes={n: {0: "N"} for n in [*names, *outputs]}, do_constant_folding=False,
                              training=torch.onnx.TrainingMode.PRESERVE, **options)
    except Error:
        raise
    except Exception as error:  # the exporter's own classes differ from version to version
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = f"torch {torch.__version__} cannot export {type(model).__name__} to ONNX: {lines[0]}"
        traceback.clear_frames(error.__traceback__)  # which hold parts of graphs that torch has ended
        raise Error(message) from None
    finally:
        del model.forward
    return file.getvalue()
