"""Weights and inputs as the blocks of ggml's types, and their products, as llama.cpp computes them.

The arithmetic is the library's (kernels/ggml_blocks); gradients are straight-through: those of the values that the
blocks stand for. Nothing counts as clipped.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import _gguf
from .._error import Error
from .._gguf import INPUTS, block_layout
from ._function import torch_view
from ._ops import _operator, ready
from ._scheme import SEARCHED

Tensor = torch.Tensor


def _matrix(x: Tensor, type: str) -> Tensor:
    """x [..., F] as f32 [rows, F], whose rows are whole blocks."""
    width = x.shape[-1] if x.dim() else 0
    if width == 0 or width % block_layout(type).elements:
        raise Error(f"expected rows of whole blocks of {block_layout(type).elements} for {type}, got rows of {width}")
    if not x.is_floating_point():
        raise Error(f"expected values of a float type, got {x.dtype}")
    return x.detach().to(torch.float32).reshape(-1, width).contiguous()


def encode(x: Tensor, type: str) -> Tensor:
    """The blocks u8 [rows, bytes] of values [..., F], of any float type."""
    x = _matrix(x, type)
    elements, size = block_layout(type)
    blocks = x.new_empty((x.shape[0], x.shape[1] // elements * size), dtype=torch.uint8)
    _gguf.encode(type, torch_view(x, "values"), torch_view(blocks, "blocks"), ready(x.device))
    return blocks


def decode(blocks: Tensor, type: str) -> Tensor:
    """The values f32 [rows, F] of blocks u8 [rows, bytes]."""
    elements, size = block_layout(type)
    values = blocks.new_empty((blocks.shape[0], blocks.shape[1] // size * elements), dtype=torch.float32)
    _gguf.decode(type, torch_view(blocks, "blocks"), torch_view(values, "values"), ready(blocks.device))
    return values


# --- values of the blocks in place of x


def _block_values(x: Tensor, type: str) -> Tensor:
    return decode(encode(x, type), type).reshape(x.shape).to(x.dtype)


def _fake_of_values(x, type):
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save_nothing(ctx: Any, inputs: tuple, output: Tensor) -> None:
    pass


def _pass_all(ctx: Any, grad_y: Tensor) -> tuple:
    return grad_y, None


# --- a linear layer's product of x [..., K] and weight [N, K]


def _block_linear(x: Tensor, weight: Tensor, type: str) -> Tensor:
    inputs, weights = encode(x, INPUTS), encode(weight, type)
    y = inputs.new_empty((inputs.shape[0], weights.shape[0]), dtype=torch.float32)
    _gguf.product(type.removesuffix(SEARCHED), torch_view(inputs, "inputs"), torch_view(weights, "weights"),
                  torch_view(y, "y"), ready(y.device))
    return y.reshape(*x.shape[:-1], weight.shape[0]).to(x.dtype)


def _fake_of_linear(x, weight, type):
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _save_operands(ctx: Any, inputs: tuple, output: Tensor) -> None:
    x, weight, ctx.type = inputs
    ctx.save_for_backward(x, weight)


def _linear_backward(ctx: Any, grad_y: Tensor) -> tuple:
    x, weight = ctx.saved_tensors
    grad_x = grad_y @ block_values(weight, ctx.type).to(grad_y.dtype) if ctx.needs_input_grad[0] else None
    grad_weight = None
    if ctx.needs_input_grad[1]:
        rows = grad_y.reshape(-1, grad_y.shape[-1])
        grad_weight = (rows.t() @ block_values(x, INPUTS).reshape(-1, x.shape[-1]).to(rows.dtype)).to(weight.dtype)
    return grad_x, grad_weight, None


block_values = _operator("block_values", "(Tensor x, str type) -> Tensor", _block_values, _fake_of_values, _save_nothing,
                         _pass_all)
block_linear = _operator("block_linear", "(Tensor x, Tensor weight, str type) -> Tensor", _block_linear, _fake_of_linear,
                         _save_operands, _linear_backward)
