"""GGUF files and the blocks of ggml's types, on views of any package's arrays."""

from __future__ import annotations

import ctypes
import functools
import math
import os
from ctypes import byref, c_char_p, c_double, c_int64, c_size_t, c_void_p
from typing import Mapping, NamedTuple, Optional, Union

import numpy as np

from . import _library as c
from ._error import Error
from ._plans import context
from ._tensor import View, pointers, view

Path = Union[str, "os.PathLike[str]"]
INPUTS = "inputs"  # the type of a product's inputs


class BlockLayout(NamedTuple):
    """How many elements and bytes a block has."""

    elements: int
    bytes: int


@functools.lru_cache(maxsize=None)
def block_layout(type: str) -> BlockLayout:
    """Raises Error for a type that blocks cannot be made of."""
    elements, size = c_int64(), c_int64()
    context().call("steelyard_blocks_layout", type.encode(), byref(elements), byref(size))
    return BlockLayout(elements.value, size.value)


def encode(type: str, values: View, blocks: View, stream: int = 0) -> None:
    """Blocks u8 [rows, bytes] of values f32 [rows, columns]."""
    context().call("steelyard_blocks_encode", stream or None, type.encode(), byref(values.tensor), None,
                   byref(blocks.tensor))


def decode(type: str, blocks: View, values: View, stream: int = 0) -> None:
    """The other way round."""
    context().call("steelyard_blocks_decode", stream or None, type.encode(), byref(blocks.tensor), byref(values.tensor))


def product(type: str, inputs: View, weights: View, y: View, stream: int = 0) -> None:
    """y f32 [rows, columns] of inputs and weights as blocks."""
    context().call("steelyard_blocks_product", stream or None, type.encode(), byref(inputs.tensor),
                   byref(weights.tensor), byref(y.tensor))


class TensorInfo(NamedTuple):
    """A tensor of a file; ``shape`` as arrays have it, the innermost size last."""

    name: str
    type: str
    shape: tuple[int, ...]
    bytes: int
    index: int


class GgufFile:
    """An open file. Raises Error, with the file and the offset, for one that is not valid."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self._handle = c_void_p()
        context().call("steelyard_gguf_open", os.fsencode(path), byref(self._handle))
        count = c_size_t()
        context().call("steelyard_gguf_count", self._handle, byref(count))
        self.tensors: dict[str, TensorInfo] = {}
        for i in range(count.value):
            info = c.GgufTensorInfo()
            c.library.steelyard_gguf_tensor_info_init(byref(info), ctypes.sizeof(info))
            context().call("steelyard_gguf_tensor", self._handle, i, byref(info))
            name = info.name.decode(errors="surrogateescape")
            self.tensors[name] = TensorInfo(name, info.type.decode(), tuple(info.shape[:info.rank]), int(info.bytes), i)

    def __del__(self, destroy=c.library.steelyard_gguf_destroy) -> None:  # as Python ends, modules are gone
        if self._handle:
            destroy(self._handle)

    def text(self, key: str) -> Optional[str]:
        """None where the metadata has no text of that key."""
        found = c_char_p()
        context().call("steelyard_gguf_text", self._handle, key.encode(), byref(found))
        return None if found.value is None else found.value.decode(errors="replace")

    def number(self, key: str) -> Optional[float]:
        """None where the metadata has no number of that key."""
        found = c_double()
        context().call("steelyard_gguf_number", self._handle, key.encode(), byref(found))
        return None if math.isnan(found.value) else found.value

    def read(self, name: str) -> np.ndarray:
        """A tensor's bytes u8 [bytes]."""
        if name not in self.tensors:
            raise Error(f"{self.path}: expected a tensor '{name}', got none")
        bytes_ = np.empty(self.tensors[name].bytes, np.uint8)
        context().call("steelyard_gguf_read", self._handle, self.tensors[name].index, byref(view(bytes_).tensor))
        return bytes_

    def write(self, path: Path, replaced: Mapping[str, tuple[str, np.ndarray]], file_type: int = -1) -> None:
        """Writes the file again, in which some tensors have another type and bytes u8 [bytes]."""
        count = len(replaced)
        indices = (c_size_t * max(count, 1))(*(self.tensors[name].index for name in replaced))
        types = (c_char_p * max(count, 1))(*(type.encode() for type, _ in replaced.values()))
        views = pointers([view(np.ascontiguousarray(bytes_).reshape(-1)) for _, bytes_ in replaced.values()])
        context().call("steelyard_gguf_write", self._handle, os.fsencode(path), file_type, count, indices, types, views)
