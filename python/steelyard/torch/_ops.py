"""Fake quantization of torch's tensors by the library's plans, as operators with gradients.

With torch 2.4 and newer they are ``torch.ops.steelyard.*`` (torch.library.custom_op): torch.compile, FakeTensor and
autograd know them. Older versions have an autograd.Function of the same kernels and formulas.

Values are f32, f64, f16 or bf16 of any shape; scales f32 (f64 of f64 values) [sets], zero points i32 [sets]. `codes` is
[qmin, qmax, symmetric], `granularity` and `sizes` say which values share a scale (steelyard/_plans.py: Layout); sets are
in row-major order. Scales that are given are checked on the CPU: finite and above 0.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch

from .. import _library as c
from .._error import Error
from .._plans import BACKWARD, DYNAMIC, FAKE_QUANTIZE, FORWARD, GIVEN, QUANTIZE, VALUE_TYPES, Codes, Layout, context
from .._plans import lsq_factor, plan
from ._function import _DTYPES, current_stream, torch_view

Tensor = torch.Tensor


def layout_of(shape: Sequence[int], granularity: str, sizes: Sequence[int]) -> Layout:
    """The values' layout in as few dimensions as say the same."""
    count = 1
    for size in shape:
        count = count * size
    if granularity == "tensor" or not shape:
        return Layout((count,))
    if granularity == "channel":
        return Layout((shape[0], count // max(shape[0], 1) if shape[0] else 0), granularity)
    rows = 1
    for size in shape[:-1]:
        rows = rows * size
    return Layout((rows, shape[-1]), granularity, tuple(sizes))


def _codes(codes: Sequence[int]) -> Codes:
    return Codes(codes[0], codes[1], bool(codes[2]))


def parameter_dtype(x: Tensor) -> torch.dtype:
    """Of scales of these values."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def ready(device: torch.device) -> int:
    """The stream that torch has selected; the library's calls have torch's threads from here on."""
    own, threads = context(), torch.get_num_threads()
    if device.type == "cpu" and getattr(own, "threads", 0) != threads:
        own.set_threads(threads)
        own.threads = threads
    return current_stream(device)


def _run(values: Tensor, description: tuple, arrays: dict[str, Tensor], checks_scales: bool = False) -> None:
    """Runs the plan of a description (codes, layout, operation, ...) on arrays, in order of torch's stream."""
    if _DTYPES.get(values.dtype) not in VALUE_TYPES:
        raise Error(f"expected values of float32, float64, float16 or bfloat16, got {values.dtype}")
    if values.numel() == 0:
        return
    views = {}
    for name, tensor in arrays.items():
        views[name] = torch_view(tensor if name not in _VALUES else tensor.view(description[1].shape), name)
    device = values.device
    stream = ready(device)
    codes, layout, *rest = description
    p = plan(codes, layout, _DTYPES[values.dtype], (c.CPU if device.type == "cpu" else c.CUDA, device.index or 0), *rest)
    workspace = torch.empty(p.workspace_bytes, dtype=torch.uint8, device=device) if p.workspace_bytes else None
    p.run(views, 0 if workspace is None else workspace.data_ptr(), stream, checks_scales)


_VALUES = ("x", "grad_y", "y", "grad_x", "codes")


def _mask_of(x: Tensor) -> Tensor:
    return x.new_empty((x.numel() + 7) // 8, dtype=torch.uint8)


# --- given scales; the gradient passes where a value was not clipped


def _fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, codes: Sequence[int], granularity: str,
                   sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    x = x.contiguous()
    y, mask = torch.empty_like(x), _mask_of(x)
    _run(x, (_codes(codes), layout_of(x.shape, granularity, sizes)),
         {"x": x, "y": y, "mask": mask, "scale": scale, "zero_point": zero_point}, checks_scales=True)
    return y, mask


def _fake_of_fake_quantize(x, scale, zero_point, codes, granularity, sizes):
    return torch.empty_like(x, memory_format=torch.contiguous_format), _mask_of(x)


def _save_mask(ctx: Any, inputs: tuple, output: tuple) -> None:
    ctx.save_for_backward(output[1])


def _pass_to_x(ctx: Any, grad_y: Tensor, *_: Any) -> tuple:
    return (pass_inside(grad_y, ctx.saved_tensors[0]), *(None,) * 5)


# --- scales of the values themselves


def _fake_quantize_dynamic(x: Tensor, codes: Sequence[int], granularity: str,
                           sizes: Sequence[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = x.contiguous()
    y, mask = torch.empty_like(x), _mask_of(x)
    layout = layout_of(x.shape, granularity, sizes)
    scale = x.new_ones(layout.sets, dtype=parameter_dtype(x))  # of no values at all, 1
    zero_point = x.new_zeros(layout.sets, dtype=torch.int32)
    _run(x, (_codes(codes), layout, FAKE_QUANTIZE, FORWARD, DYNAMIC),
         {"x": x, "y": y, "mask": mask, "scale": scale, "zero_point": zero_point})
    return y, mask, scale, zero_point


def _fake_of_dynamic(x, codes, granularity, sizes):
    sets = layout_of(x.shape, granularity, sizes).sets
    return (torch.empty_like(x, memory_format=torch.contiguous_format), _mask_of(x),
            x.new_empty(sets, dtype=parameter_dtype(x)), x.new_empty(sets, dtype=torch.int32))


def _pass_to_dynamic(ctx: Any, grad_y: Tensor, *_: Any) -> tuple:
    return (pass_inside(grad_y, ctx.saved_tensors[0]), *(None,) * 3)


# --- the gradient of both: that of y where the mask has a 1. It is linear, so that it has itself as a gradient.


def _pass_inside(grad_y: Tensor, mask: Tensor) -> Tensor:
    grad_y = grad_y.contiguous()
    grad_x = torch.empty_like(grad_y)
    _run(grad_y, (Codes(0, 1, False), layout_of(grad_y.shape, "tensor", ()), FAKE_QUANTIZE, BACKWARD),
         {"grad_y": grad_y, "grad_x": grad_x, "mask": mask})
    return grad_x


def _fake_of_pass_inside(grad_y, mask):
    return torch.empty_like(grad_y, memory_format=torch.contiguous_format)


def _save_given_mask(ctx: Any, inputs: tuple, output: Tensor) -> None:
    ctx.save_for_backward(inputs[1])


def _pass_again(ctx: Any, grad: Tensor) -> tuple:
    return pass_inside(grad, ctx.saved_tensors[0]), None


# --- learned scales, and zero points that are real numbers, rounded (LSQ, arXiv:1902.08153; LSQ+, arXiv:2004.09576)


def _fake_quantize_learned(x: Tensor, scale: Tensor, zero_point: Tensor, codes: Sequence[int], granularity: str,
                           sizes: Sequence[int], samples: bool) -> Tensor:
    """``samples``: the first of several dimensions is the batch, which the gradients' factor does not count."""
    x = x.contiguous()
    y = torch.empty_like(x)
    _run(x, (_codes(codes), layout_of(x.shape, granularity, sizes)),
         {"x": x, "y": y, "scale": scale.contiguous(), "zero_point": _rounded(zero_point)}, checks_scales=True)
    return y


def _rounded(zero_point: Tensor) -> Tensor:
    return zero_point.detach().round().to(torch.int32).contiguous()


def _fake_of_learned(x, scale, zero_point, codes, granularity, sizes, samples):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save_learned(ctx: Any, inputs: tuple, output: Tensor) -> None:
    x, scale, zero_point, *ctx.how = inputs
    ctx.save_for_backward(x, scale, zero_point)


def _learned_backward(ctx: Any, grad_y: Tensor) -> tuple:
    return (*learned_gradients(grad_y, *ctx.saved_tensors, *ctx.how), *(None,) * 4)


def _learned_gradients(grad_y: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, codes: Sequence[int],
                       granularity: str, sizes: Sequence[int], samples: bool) -> tuple[Tensor, Tensor, Tensor]:
    x, grad_y = x.contiguous(), grad_y.contiguous()
    grad_x, grad_scale, grad_zero_point = torch.empty_like(x), torch.empty_like(scale), torch.empty_like(zero_point)
    layout = layout_of(x.shape, granularity, sizes)
    if x.numel() == 0:
        return grad_x, grad_scale.zero_(), grad_zero_point.zero_()
    count = x.numel() // (x.shape[0] if samples and x.dim() > 1 else 1)
    factor = lsq_factor(max(count // layout.sets, 1), _codes(codes))
    _run(x, (_codes(codes), layout, FAKE_QUANTIZE, BACKWARD, GIVEN, factor),
         {"x": x, "grad_y": grad_y, "grad_x": grad_x, "scale": scale.contiguous(), "zero_point": _rounded(zero_point),
          "grad_scale": grad_scale, "grad_zero_point": grad_zero_point})
    return grad_x, grad_scale, grad_zero_point


def _fake_of_learned_gradients(grad_y, x, scale, zero_point, codes, granularity, sizes, samples):
    return (torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty_like(scale),
            torch.empty_like(zero_point))


# --- codes, for files


def codes_of(x: Tensor, scale: Tensor, zero_point: Tensor, codes: Sequence[int], granularity: str,
             sizes: Sequence[int]) -> Tensor:
    """The codes of values, i8 where qmin is negative, else u8, of their shape; without a gradient."""
    x = x.detach().contiguous()
    given = _codes(codes)
    numbers = torch.empty_like(x, dtype=torch.int8 if given.qmin < 0 else torch.uint8)
    _run(x, (given, layout_of(x.shape, granularity, sizes), QUANTIZE),
         {"x": x, "codes": numbers, "scale": scale.contiguous(), "zero_point": _rounded(zero_point)}, checks_scales=True)
    return numbers


# --- what torch gets


def _operator(name: str, schema: str, kernel: Callable, fake: Callable, setup: Optional[Callable] = None,
              backward: Optional[Callable] = None) -> Callable:
    library = getattr(torch, "library", None)
    if hasattr(library, "custom_op"):
        op = library.custom_op(f"steelyard::{name}", kernel, mutates_args=(), schema=schema)
        op.register_fake(fake)
        if backward is not None:
            op.register_autograd(backward, setup_context=setup)
        return getattr(torch.ops.steelyard, name)
    if backward is None:
        return kernel

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any):
            output = kernel(*inputs)
            setup(ctx, inputs, output)
            if isinstance(output, tuple):
                ctx.mark_non_differentiable(*output[1:])
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Any):
            return backward(ctx, *gradients)

    Function.__name__ = f"Steelyard_{name}"
    return Function.apply


pass_inside = _operator("pass_inside", "(Tensor grad_y, Tensor mask) -> Tensor", _pass_inside, _fake_of_pass_inside,
                        _save_given_mask, _pass_again)
fake_quantize = _operator(
    "fake_quantize",
    "(Tensor x, Tensor scale, Tensor zero_point, int[] codes, str granularity, int[] sizes) -> (Tensor, Tensor)",
    _fake_quantize, _fake_of_fake_quantize, _save_mask, _pass_to_x)
fake_quantize_dynamic = _operator(
    "fake_quantize_dynamic",
    "(Tensor x, int[] codes, str granularity, int[] sizes) -> (Tensor, Tensor, Tensor, Tensor)",
    _fake_quantize_dynamic, _fake_of_dynamic, _save_mask, _pass_to_dynamic)
learned_gradients = _operator(
    "learned_gradients",
    "(Tensor grad_y, Tensor x, Tensor scale, Tensor zero_point, int[] codes, str granularity, int[] sizes, "
    "bool samples) -> (Tensor, Tensor, Tensor)",
    _learned_gradients, _fake_of_learned_gradients)
fake_quantize_learned = _operator(
    "fake_quantize_learned",
    "(Tensor x, Tensor scale, Tensor zero_point, int[] codes, str granularity, int[] sizes, bool samples) -> Tensor",
    _fake_quantize_learned, _fake_of_learned, _save_learned, _learned_backward)
