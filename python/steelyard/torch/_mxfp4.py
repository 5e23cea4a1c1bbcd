"""MXFP4 (OCP Microscaling Formats 1.0): groups of 32 numbers of E2M1 with a power of two for each.

Every product and quotient here is one with a power of two, and so exact: torch computes it as the library would, which
has no plan for it yet. The scale is that of compressed-tensors: 2^(e - 2) for the largest magnitude m * 2^e, 1 <= m < 2,
and twice that from m = 1.75 on, so that no value is clipped by more than rounding does.
"""

from __future__ import annotations

import torch

from ._scheme import MXFP4_GROUP

Tensor = torch.Tensor
_LARGEST = 6.0
_BIAS = 127  # of E8M0


def scales_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [..., F] as groups f32 [..., G, 32], zeros behind the last values; and exponents i32 [..., G] of the scales."""
    groups = torch.nn.functional.pad(x.float(), (0, -x.shape[-1] % MXFP4_GROUP)).unflatten(-1, (-1, MXFP4_GROUP))
    mantissa, exponent = torch.frexp(groups.abs().amax(-1))  # mantissa in [.5, 1)
    exponent = (exponent - 3 + (mantissa >= 0.875)).clamp(-126, 127)
    return groups, torch.where(mantissa == 0, torch.zeros_like(exponent), exponent).to(torch.int32)


def _power(exponent: Tensor) -> Tensor:
    return ((exponent + _BIAS) << 23).view(torch.float32)


def _rounded(groups: Tensor, exponent: Tensor) -> Tensor:
    """Of each value the nearest multiple of its scale that E2M1 has, half to even, as that multiple."""
    multiple = groups / _power(exponent).unsqueeze(-1)
    size = multiple.abs()
    step = torch.where(size < 2, 0.5, 1.0)
    step = torch.where(size < 4, step, torch.full_like(step, 2.0))
    return torch.copysign((torch.round(size / step) * step).clamp(max=_LARGEST), multiple)


def fake_quantize(x: Tensor) -> Tensor:
    """x [..., F] at the values of MXFP4, of its dtype; NaN stays NaN. The gradient passes: nothing is clipped."""
    return _Through.apply(x) if x.requires_grad else _values(x)


def _values(x: Tensor) -> Tensor:
    groups, exponent = scales_of(x)
    values = _rounded(groups, exponent) * _power(exponent).unsqueeze(-1)
    return values.flatten(-2)[..., :x.shape[-1]].to(x.dtype)


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return _values(x)

    @staticmethod
    def backward(ctx, grad_y):
        return grad_y


def codes_of(x: Tensor) -> tuple[Tensor, Tensor]:
    """E2M1's codes u8 [..., F] (bit 3 the sign) and E8M0's u8 [..., G] of the scales."""
    groups, exponent = scales_of(x.detach())
    multiple = _rounded(groups, exponent)
    table = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    codes = torch.bucketize(multiple.abs(), table) + 8 * torch.signbit(multiple)
    return codes.to(torch.uint8).flatten(-2)[..., :x.shape[-1]], (exponent + _BIAS).to(torch.uint8)
