"""libsteelyard_c through ctypes: its structures, its functions, and calls that raise the library's message."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib
import threading
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint64, c_void_p

from ._error import FAILED, Error

VARIABLE = "STEELYARD_LIBRARY"
_FILE = "libsteelyard_c.so"

PARAMETERS, BUFFERS, INPUTS, OUTPUTS = range(4)
TEXT, JSON = range(2)
CPU, CUDA = 1, 2


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", c_int32), ("device_id", c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", DLDevice),
        ("ndim", c_int32),
        ("dtype", DLDataType),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class DLManagedTensor(ctypes.Structure):
    pass


DLManagedTensor._fields_ = [
    ("dl_tensor", DLTensor),
    ("manager_ctx", c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, POINTER(DLManagedTensor))),
]
TensorPointer = POINTER(DLTensor)
ManagedPointer = POINTER(DLManagedTensor)


class SampleShape(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("rank", c_int32), ("shape", POINTER(c_int64))]


class BatchAxis(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("axis", c_int32)]


class NetworkDescriptor(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("onnx", c_void_p),
        ("onnx_bytes", c_size_t),
        ("onnx_path", c_char_p),
        ("recipe", c_char_p),
        ("output", c_char_p),
        ("sample_count", c_size_t),
        ("samples", POINTER(SampleShape)),
        ("device", DLDevice),
        ("batch_axis_count", c_size_t),
        ("batch_axes", POINTER(BatchAxis)),
    ]


class RawVerification(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("samples", c_int64),
        ("codes", c_int64),
        ("differing", c_int64),
        ("same", c_int32),
    ]


MAX_RANK = 8
GRANULARITIES = ("tensor", "channel", "token", "group", "block")
PLAN_ARRAYS = (
    "x", "grad_y", "y", "grad_x", "codes", "mask", "scale", "zero_point", "grad_scale", "grad_zero_point",
    "non_finite_count", "range_lo", "range_hi", "initialized", "observing", "quantizing",
)


class PlanDescriptor(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("operation", c_int32),
        ("direction", c_int32),
        ("value_type", c_int32),
        ("code_type", c_int32),
        ("qmin", c_int32),
        ("qmax", c_int32),
        ("statistics", c_int32),
        ("symmetric", c_int32),
        ("averaging_constant", c_double),
        ("parameter_gradients", c_int32),
        ("granularity", c_int32),
        ("gradient_factor", c_double),
        ("axis", c_int32),
        ("rank", c_int32),
        ("group_size", c_int64),
        ("block_rows", c_int64),
        ("block_columns", c_int64),
        ("shape", c_int64 * MAX_RANK),
        ("strided", c_int32),
        ("device", DLDevice),
        ("strides", c_int64 * MAX_RANK),
        ("workspace_limit_bytes", c_size_t),
    ]


class PlanInfo(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("elements", c_int64),
        ("sets", c_int64),
        ("code_bytes", c_int64),
        ("mask_bytes", c_int64),
        ("workspace_bytes", c_size_t),
        ("identity", c_char_p),
    ]


class PlanArrays(ctypes.Structure):
    _fields_ = [("struct_bytes", c_size_t), *((name, TensorPointer) for name in PLAN_ARRAYS)]


class GgufTensorInfo(ctypes.Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("type", c_char_p),
        ("rank", c_int32),
        ("shape", c_int64 * 4),
        ("bytes", c_uint64),
    ]


_C = c_void_p  # a context
_N = c_void_p  # a network
_P = c_void_p  # a pass
# Functions that return a status, and what they take behind the context.
_CALLS = {
    "steelyard_context_set_threads": [c_int32],
    "steelyard_network_create": [POINTER(NetworkDescriptor), POINTER(c_void_p)],
    "steelyard_network_plan": [_N, c_int32, POINTER(c_char_p)],
    "steelyard_network_notes": [_N, POINTER(c_char_p)],
    "steelyard_network_count": [_N, c_int32, POINTER(c_size_t)],
    "steelyard_network_name": [_N, c_int32, c_size_t, POINTER(c_char_p)],
    "steelyard_network_parameter": [_N, c_char_p, POINTER(ManagedPointer)],
    "steelyard_network_buffer": [_N, c_char_p, POINTER(ManagedPointer)],
    "steelyard_network_set_parameter": [_N, c_char_p, TensorPointer],
    "steelyard_network_set_trainable": [_N, c_char_p, c_int32],
    "steelyard_network_gradients": [_N, c_size_t, POINTER(ManagedPointer)],
    "steelyard_network_zero_gradients": [_N],
    "steelyard_network_set_training": [_N, c_int32],
    "steelyard_network_forward_outputs": [
        _N, c_void_p, c_size_t, POINTER(TensorPointer), c_int32, c_size_t, POINTER(ManagedPointer), POINTER(c_void_p),
    ],
    "steelyard_pass_backward_outputs": [_P, c_void_p, c_size_t, POINTER(TensorPointer)],
    "steelyard_pass_zero_gradients": [_P],
    "steelyard_pass_input_gradient": [_P, c_size_t, POINTER(ManagedPointer)],
    "steelyard_network_require_finite": [_N],
    "steelyard_network_calibrate": [_N, c_void_p, c_size_t, c_size_t, POINTER(TensorPointer)],
    "steelyard_network_begin_epoch": [_N, c_int64],
    "steelyard_network_set_observing": [_N, c_int32],
    "steelyard_network_set_quantizing": [_N, c_int32, c_int32],
    "steelyard_network_freeze_batch_norms": [_N, c_int32],
    "steelyard_network_set_seed": [_N, c_uint64],
    "steelyard_network_save": [_N, c_char_p],
    "steelyard_network_load": [_N, c_char_p],
    "steelyard_network_export": [_N, c_char_p, c_char_p],
    "steelyard_network_verify": [
        _N, c_void_p, c_size_t, POINTER(TensorPointer), c_char_p, POINTER(RawVerification), POINTER(c_char_p),
    ],
    "steelyard_plan_create": [POINTER(PlanDescriptor), POINTER(c_void_p)],
    "steelyard_plan_get_info": [c_void_p, POINTER(PlanInfo)],
    "steelyard_plan_check": [c_void_p, POINTER(PlanArrays), c_int32],
    "steelyard_plan_run": [c_void_p, c_void_p, c_void_p, c_size_t, POINTER(PlanArrays)],
    "steelyard_blocks_layout": [c_char_p, POINTER(c_int64), POINTER(c_int64)],
    "steelyard_blocks_encode": [c_void_p, c_char_p, TensorPointer, TensorPointer, TensorPointer],
    "steelyard_blocks_decode": [c_void_p, c_char_p, TensorPointer, TensorPointer],
    "steelyard_blocks_product": [c_void_p, c_char_p, TensorPointer, TensorPointer, TensorPointer],
    "steelyard_gguf_open": [c_char_p, POINTER(c_void_p)],
    "steelyard_gguf_count": [c_void_p, POINTER(c_size_t)],
    "steelyard_gguf_tensor": [c_void_p, c_size_t, POINTER(GgufTensorInfo)],
    "steelyard_gguf_text": [c_void_p, c_char_p, POINTER(c_char_p)],
    "steelyard_gguf_number": [c_void_p, c_char_p, POINTER(c_double)],
    "steelyard_gguf_read": [c_void_p, c_size_t, TensorPointer],
    "steelyard_gguf_write": [
        c_void_p, c_char_p, c_int32, c_size_t, POINTER(c_size_t), POINTER(c_char_p), POINTER(TensorPointer),
    ],
    "steelyard_lsq_gradient_factor": [c_int64, c_int32, c_int32, c_int32, POINTER(c_double)],
}
# Others: what they return and take.
_OTHERS = {
    "steelyard_version": (c_char_p, []),
    "steelyard_context_create": (c_int32, [POINTER(c_void_p)]),
    "steelyard_context_destroy": (None, [_C]),
    "steelyard_context_message": (c_char_p, [_C]),
    "steelyard_network_descriptor_init": (None, [POINTER(NetworkDescriptor), c_size_t]),
    "steelyard_network_destroy": (None, [_N]),
    "steelyard_pass_destroy": (None, [_P]),
    "steelyard_plan_descriptor_init": (None, [POINTER(PlanDescriptor), c_size_t]),
    "steelyard_plan_destroy": (None, [c_void_p]),
    "steelyard_gguf_destroy": (None, [c_void_p]),
    "steelyard_gguf_tensor_info_init": (None, [POINTER(GgufTensorInfo), c_size_t]),
    "steelyard_plan_info_init": (None, [POINTER(PlanInfo), c_size_t]),
    "steelyard_plan_arrays_init": (None, [POINTER(PlanArrays), c_size_t]),
    "steelyard_verification_init": (None, [POINTER(RawVerification), c_size_t]),
}


def _found() -> str:
    given = os.environ.get(VARIABLE)
    if given:
        return given
    packaged = pathlib.Path(__file__).parent / "lib" / _FILE
    if packaged.exists():
        return str(packaged)
    return ctypes.util.find_library("steelyard_c") or _FILE


def _loaded() -> ctypes.CDLL:
    path = _found()
    try:
        library = ctypes.CDLL(path)
        for name, arguments in _CALLS.items():
            function = getattr(library, name)
            function.restype = c_int32
            function.argtypes = [_C, *arguments]
        for name, (result, arguments) in _OTHERS.items():
            function = getattr(library, name)
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"no library of Steelyard that fits this package: {error}; {VARIABLE} may name the file {_FILE}"
        ) from error
    return library


library = _loaded()
version = library.steelyard_version().decode()


class Context:
    """How calls of one object compute, and what the last one that failed said.

    A context serves one thread at a time: ``lock`` is held for the time of a call and of reading what it gave.
    """

    def __init__(self) -> None:
        self._handle = c_void_p()
        self._process = os.getpid()
        self.lock = threading.RLock()
        if library.steelyard_context_create(byref(self._handle)):
            raise Error("no memory for a context", 3)

    def __del__(self, destroy=library.steelyard_context_destroy) -> None:  # as Python ends, modules are gone
        if self._handle:
            destroy(self._handle)

    def call(self, function: str, *arguments) -> None:
        """Raises Error with the library's message."""
        if os.getpid() != self._process:
            raise Error(
                f"expected calls in the process {self._process} that loaded the library, got one in its fork "
                f"{os.getpid()}: threads of the library do not survive a fork; start processes by 'spawn'", FAILED
            )
        with self.lock:
            status = getattr(library, function)(self._handle, *arguments)
            if status:
                message = library.steelyard_context_message(self._handle).decode(errors="replace")
                raise Error(message.removeprefix(f"{function}: "), status)

    def set_threads(self, threads: int) -> None:
        self.call("steelyard_context_set_threads", threads)
