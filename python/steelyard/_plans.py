"""The library's plans (kernels/quant_plan/quant_plan.h) on views of any package's arrays."""

from __future__ import annotations

import ctypes
import functools
import threading
from ctypes import byref, c_double, c_void_p
from typing import NamedTuple, Optional

from . import _library as c
from ._error import INVALID_ARGUMENT, Error
from ._tensor import View

QUANTIZE, FAKE_QUANTIZE = 0, 2
FORWARD, BACKWARD = 0, 1
GIVEN, DYNAMIC = 0, 1
VALUE_TYPES = {(2, 32): 0, (2, 64): 1, (2, 16): 2, (4, 16): 3}  # by DLPack's code and bits


class Codes(NamedTuple):
    """Whole numbers from qmin to qmax, at most 256 of them; symmetric ones have the zero point 0."""

    qmin: int
    qmax: int
    symmetric: bool


class Layout(NamedTuple):
    """The shape of values, and which share a scale: granularity is one of tensor, channel (the first axis), token,
    group (of the last axis) and block (of the last two axes); sizes are those of a group or a block."""

    shape: tuple[int, ...]
    granularity: str = "tensor"
    sizes: tuple[int, ...] = ()

    @property
    def sets(self) -> int:
        """How many scales there are."""
        shape, kind = self.shape, self.granularity
        if kind == "tensor":
            return 1
        if kind == "channel":
            return shape[0]
        rows = 1
        for size in shape[:-2]:
            rows *= size
        if kind == "block":
            return rows * -(-shape[-2] // self.sizes[0]) * -(-shape[-1] // self.sizes[1])
        rows *= shape[-2] if len(shape) > 1 else 1
        return rows if kind == "token" else rows * -(-shape[-1] // self.sizes[0])


_local = threading.local()


def context() -> c.Context:
    """This thread's."""
    held = getattr(_local, "context", None)
    if held is None:
        held = _local.context = c.Context()
    return held


class Plan:
    """One quantization of values of one layout; any number of threads may run it."""

    def __init__(self, codes: Codes, layout: Layout, values: tuple[int, int], device: tuple[int, int],
                 operation: int = FAKE_QUANTIZE, direction: int = FORWARD, statistics: int = GIVEN,
                 gradient_factor: Optional[float] = None) -> None:
        self._handle = c_void_p()
        d = c.PlanDescriptor()
        c.library.steelyard_plan_descriptor_init(byref(d), ctypes.sizeof(d))
        d.operation, d.direction, d.statistics = operation, direction, statistics
        d.value_type = VALUE_TYPES[values]
        d.code_type = 0 if codes.qmin < 0 else 1
        d.qmin, d.qmax, d.symmetric = codes.qmin, codes.qmax, int(codes.symmetric)
        if gradient_factor is not None:
            d.parameter_gradients, d.gradient_factor = 1, gradient_factor
        d.granularity = c.GRANULARITIES.index(layout.granularity)
        d.axis = 0 if layout.granularity == "channel" else -1
        if layout.granularity == "group":
            d.group_size = layout.sizes[0]
        elif layout.granularity == "block":
            d.block_rows, d.block_columns = layout.sizes
        d.rank = len(layout.shape)
        if d.rank > c.MAX_RANK:
            raise Error(f"expected values of at most {c.MAX_RANK} dimensions, got {d.rank}")
        for i, size in enumerate(layout.shape):
            d.shape[i] = size
        d.device = c.DLDevice(*device)
        context().call("steelyard_plan_create", byref(d), byref(self._handle))
        info = c.PlanInfo()
        c.library.steelyard_plan_info_init(byref(info), ctypes.sizeof(info))
        context().call("steelyard_plan_get_info", self._handle, byref(info))
        self.workspace_bytes = int(info.workspace_bytes)
        self.on_cpu = device[0] == c.CPU

    def __del__(self, destroy=c.library.steelyard_plan_destroy) -> None:  # as Python ends, modules are gone
        if self._handle:
            destroy(self._handle)

    def run(self, arrays: dict[str, View], workspace: int = 0, stream: int = 0, checks_scales: bool = False) -> None:
        """Computes on the arrays by the names of the C face. ``workspace``: the address of as many bytes as it says.
        ``checks_scales``: raises Error where a given scale is not finite and above 0; not on a GPU, which would wait."""
        given = c.PlanArrays()
        c.library.steelyard_plan_arrays_init(byref(given), ctypes.sizeof(given))
        for name, view in arrays.items():
            setattr(given, name, ctypes.pointer(view.tensor))
        if checks_scales and self.on_cpu:
            context().call("steelyard_plan_check", self._handle, byref(given), 1)
        context().call("steelyard_plan_run", self._handle, stream or None, workspace or None, self.workspace_bytes,
                       byref(given))


@functools.lru_cache(maxsize=512)
def plan(*description) -> Plan:
    """A Plan of these arguments, made once."""
    return Plan(*description)


@functools.lru_cache(maxsize=512)
def lsq_factor(elements: int, codes: Codes) -> float:
    """1 / sqrt(elements * Q), as LSQ scales gradients of scales (arXiv:1902.08153)."""
    if elements < 1:
        raise Error(f"expected values that share a scale, got {elements}", INVALID_ARGUMENT)
    factor = c_double()
    context().call("steelyard_lsq_gradient_factor", elements, codes.qmin, codes.qmax, int(codes.symmetric),
                   byref(factor))
    return factor.value
