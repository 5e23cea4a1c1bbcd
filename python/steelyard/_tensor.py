"""Arrays of this package and of others, as DLPack has them."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int64, c_void_p, cast, py_object, pythonapi
from typing import Any

import numpy as np

from ._error import Error
from ._library import CPU, DLDataType, DLDevice, DLManagedTensor, DLTensor, ManagedPointer, TensorPointer

_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6
_NUMPY_KINDS = {"i": _INT, "u": _UINT, "f": _FLOAT, "b": _BOOL}
_TYPESTRINGS = {_INT: "i", _UINT: "u", _FLOAT: "f", _BOOL: "b"}

_new_capsule = pythonapi.PyCapsule_New
_new_capsule.restype = py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]
_capsule_pointer = pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = c_void_p
_capsule_pointer.argtypes = [py_object, c_char_p]
_capsule_is_valid = pythonapi.PyCapsule_IsValid
_capsule_is_valid.restype = ctypes.c_int
_capsule_is_valid.argtypes = [py_object, c_char_p]
_DLTENSOR = b"dltensor"  # capsules keep the pointer to their name


class View:
    """A DLTensor of somebody else's memory, which lives as long as this."""

    def __init__(self, tensor: DLTensor, *kept: Any) -> None:
        self.tensor = tensor
        self._kept = kept

    @classmethod
    def of(cls, data: int, shape, strides, code: int, bits: int, device: DLDevice, *kept: Any) -> "View":
        rank = len(shape)
        sizes = (c_int64 * max(rank, 1))(*shape)
        steps = (c_int64 * max(rank, 1))(*strides)
        tensor = DLTensor(data, device, rank, DLDataType(code, bits, 1), sizes, steps, 0)
        return cls(tensor, sizes, steps, *kept)


def view(x: Any, name: str = "an input") -> View:
    """Any array as a view: NumPy's, or one with ``__dlpack__``. Raises Error for others, naming it."""
    if isinstance(x, np.ndarray):
        return _view_of_numpy(x, name)
    if hasattr(x, "__dlpack__"):
        try:
            capsule = x.__dlpack__()
        except (BufferError, RuntimeError, TypeError) as error:
            raise Error(f"{name}: expected an array that DLPack can give, got one that says: {error}") from error
        if not _capsule_is_valid(capsule, _DLTENSOR):
            raise Error(f"{name}: expected DLPack's capsule 'dltensor', got another one")
        pointer = cast(_capsule_pointer(capsule, _DLTENSOR), ManagedPointer)
        return View(pointer.contents.dl_tensor, capsule, x)
    raise Error(f"{name}: expected a NumPy array or one with __dlpack__, got {type(x).__name__}")


def _view_of_numpy(x: np.ndarray, name: str) -> View:
    kind = _NUMPY_KINDS.get(x.dtype.kind)
    if kind is None or not x.dtype.isnative:
        raise Error(f"{name}: expected numbers in the machine's byte order, got the dtype {x.dtype}")
    size = x.dtype.itemsize
    if any(step % size for step in x.strides):
        raise Error(f"{name}: expected strides of whole elements of {size} bytes, got {x.strides}")
    return View.of(x.ctypes.data, x.shape, [step // size for step in x.strides], kind, 8 * size, DLDevice(CPU, 0), x)


def pointers(views: list[View | None]):
    """An array of pointers to the views, NULL for None, which live as long as it does."""
    array = (TensorPointer * max(len(views), 1))()
    for i, x in enumerate(views):
        if x is not None:
            array[i] = ctypes.pointer(x.tensor)
    array.kept = views
    return array


def capsule_of(managed: "ctypes._Pointer[DLManagedTensor]") -> Any:
    """The library's memory as DLPack's capsule, whose receiver ends it."""
    return _new_capsule(managed, _DLTENSOR, None)


class Tensor:
    """An array of the library's memory, which it keeps: ``numpy.asarray()`` and DLPack give it without a copy.

    ``shape``: a tuple of ints. ``dtype``: its name, such as "float32". ``device``: "cpu" or "cuda:0".
    """

    def __init__(self, managed: "ctypes._Pointer[DLManagedTensor]") -> None:
        self._managed = managed
        tensor = managed.contents.dl_tensor
        self.shape: tuple[int, ...] = tuple(tensor.shape[i] for i in range(tensor.ndim))
        kind, bits = tensor.dtype.code, tensor.dtype.bits
        words = {_INT: "int", _UINT: "uint", _FLOAT: "float", _BFLOAT: "bfloat"}
        self.dtype: str = "bool" if kind == _BOOL else f"{words[kind]}{bits}"
        device = tensor.device
        self.device: str = "cpu" if device.device_type == CPU else f"cuda:{device.device_id}"
        if self.device == "cpu" and kind in _TYPESTRINGS:
            self.__array_interface__ = {
                "shape": self.shape,
                "typestr": f"{'|' if bits == 8 else '<'}{_TYPESTRINGS[kind]}{bits // 8}",
                "data": (tensor.data or self._spare(), False),
                "version": 3,
            }

    def _spare(self) -> int:
        self._nothing = ctypes.create_string_buffer(1)  # NumPy wants an address for no elements, too
        return ctypes.addressof(self._nothing)

    def __del__(self) -> None:
        managed = getattr(self, "_managed", None)
        if managed:
            self._managed = None
            managed.contents.deleter(managed)

    def __dlpack__(self, **_: Any):
        if not self._managed:
            raise BufferError("the tensor was given away")
        given, self._managed = self._managed, None  # the receiver ends it
        return capsule_of(given)

    def __dlpack_device__(self) -> tuple[int, int]:
        if not self._managed:
            raise BufferError("the tensor was given away")
        device = self._managed.contents.dl_tensor.device
        return (device.device_type, device.device_id)

    def __repr__(self) -> str:
        return f"steelyard.Tensor({list(self.shape)}, {self.dtype}, {self.device})"


def array(managed) -> Any:
    """A NumPy array on the CPU, else a Tensor."""
    tensor = Tensor(managed)
    return np.asarray(tensor) if tensor.device == "cpu" else tensor
