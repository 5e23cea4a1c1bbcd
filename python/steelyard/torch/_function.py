"""Torch's tape over the network's: one autograd.Function whose backward is the network's own."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .. import _library as c
from .._error import Error
from .._tensor import View, capsule_of
from ..network import Pass

_DTYPES = {
    torch.float32: (2, 32), torch.float64: (2, 64), torch.float16: (2, 16), torch.bfloat16: (4, 16),
    torch.int64: (0, 64), torch.int32: (0, 32), torch.int8: (0, 8), torch.uint8: (1, 8), torch.bool: (6, 8),
}


def torch_view(x: torch.Tensor, name: str) -> View:
    """A tensor's memory with its strides; raises Error for what has none."""
    if x.layout != torch.strided or x.is_quantized or x.device.type not in ("cpu", "cuda"):
        raise Error(f"{name}: expected a dense tensor on cpu or cuda, got {x.layout} on {x.device}")
    if x.dtype not in _DTYPES:
        raise Error(f"{name}: expected float32, or whole numbers where the input takes them, got {x.dtype}")
    if x.is_neg():  # a view whose memory has the other sign
        x = x.resolve_neg()
    code, bits = _DTYPES[x.dtype]
    device = c.DLDevice(c.CPU if x.device.type == "cpu" else c.CUDA, x.device.index or 0)
    return View.of(x.data_ptr(), x.shape, x.stride(), code, bits, device, x)


def torch_tensor(managed) -> torch.Tensor:
    """The library's memory as a tensor that keeps it."""
    return torch.utils.dlpack.from_dlpack(capsule_of(managed))


def current_stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0


# Passes that wait for their backward, by the number that stands for each among the saved tensors. Torch then ends a
# pass when it ends what it has saved: after backward() without retain_graph, when the loss is dropped, or, under
# torch.utils.checkpoint, at once. A tensor's memory keeps the pass, since torch may save another tensor of that memory.
_passes: "weakref.WeakValueDictionary[int, Pass]" = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class _Ticket(ctypes.c_int64):
    """A number in memory that keeps a pass."""

    kept: Pass


def _ticket_of(kept: Pass) -> torch.Tensor:
    ticket = _Ticket(next(_numbers))
    ticket.kept = kept
    _passes[ticket.value] = kept
    return torch.frombuffer(ticket, dtype=torch.int64)


class Call(torch.autograd.Function):
    """Inputs and parameters to outputs. Parameters are read where the network has them; they are arguments so that
    torch sees the way to them."""

    @staticmethod
    def forward(ctx: Any, engine: Any, records: bool, count: int, *tensors: torch.Tensor):
        ctx.set_materialize_grads(False)
        ctx.engine = engine
        ctx.count = count
        inputs = tensors[:count]
        ctx.input_gradients = [bool(needed) for needed in ctx.needs_input_grad[3:3 + count]]
        views = [torch_view(x, f"input {i}") for i, x in enumerate(inputs)]
        stream = current_stream(engine.device)
        managed, handle = engine.network.run(views, records, any(ctx.input_gradients), stream)
        outputs = tuple(torch_tensor(m) for m in managed)
        if records:
            ctx.plan = engine.plan_of()
            ctx.save_for_backward(_ticket_of(Pass(engine.network, handle, (), count)), *tensors[count:])
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor):
        ticket = ctx.saved_tensors[0]  # raises where a parameter was changed since
        waiting = _passes.get(int(ticket.item()))
        if waiting is None:
            raise Error("the forward pass that belongs to this backward pass has ended: expected saved tensors that are "
                        "kept or computed again, got copies (torch.autograd.graph.save_on_cpu)")
        engine = ctx.engine
        needed = ctx.needs_input_grad[3 + ctx.count:]
        with engine.network.context.lock:
            engine.network.zero_gradients()
            views = [None if g is None else torch_view(g, f"the gradient of output {i}")
                     for i, g in enumerate(gradients)]
            if all(v is None for v in views):
                return (None,) * len(ctx.needs_input_grad)
            engine.begin_backward(ctx.plan)
            waiting.backward_views(views, current_stream(engine.device))
            of_inputs = [torch_tensor(waiting.input_gradient_pointer(i)) if wanted else None
                         for i, wanted in enumerate(ctx.input_gradients)]
            if any(ctx.input_gradients):
                waiting.zero_gradients()
            of_parameters = engine.gradients(ctx.plan, needed)
            engine.network.zero_gradients()
        return (None, None, None, *of_inputs, *of_parameters)
