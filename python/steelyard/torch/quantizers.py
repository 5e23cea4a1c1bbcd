"""The quantizers of weights and activations in layers that quantize_() has changed."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import nn

from .._error import Error
from . import _blocks, _mxfp4, _ops
from ._scheme import Scheme

Tensor = torch.Tensor

SCHEME = "scheme"  # in a state, beside what the scheme gives a meaning: its text in UTF-8


def _compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    return bool(compiler is not None and compiler.is_compiling())


class Quantizer(nn.Module):
    """Fake-quantizes one tensor by a scheme: values at the real numbers that its codes stand for.

    ``quantizing``: whether it does; ``observing``: whether ranges follow values in training. With learned scales the
    parameter ``learned_scale`` [sets] begins at ``first_scale``; the scale is that itself from there on, and
    ``first * exp((learned - first) / first)`` below, so that it stays positive (docs/numerics.md). Learned offsets are
    ``learned_offset`` [sets], the real value of the lowest code.
    """

    def __init__(self, scheme: Scheme, name: str) -> None:
        super().__init__()
        self.scheme = scheme
        self.name = name
        self.observing = True
        self.quantizing = True

    def _start_learning(self, scale: Tensor, zero_point: Tensor) -> None:
        """Scales f32 [sets] to begin with; zero points i32 [sets]."""
        self.learned_scale = nn.Parameter(scale.clone())
        self.register_buffer("first_scale", scale.clone())
        offset = (self.scheme.codes[0] - zero_point) * scale
        if self.scheme.learns_offset:
            self.learned_offset = nn.Parameter(offset)
        else:
            self.register_buffer("zero_point", zero_point.clone())

    def _learned(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Scales and zero points [sets], real numbers that are whole where they do not learn."""
        learned, first = self.learned_scale.to(dtype), self.first_scale.to(dtype)
        below = first * torch.exp(torch.minimum(learned / first - 1, torch.zeros_like(first)))
        scale = torch.where(learned < first, below, learned)
        if not self.scheme.learns_offset:
            return scale, self.zero_point.to(dtype)
        qmin, qmax, _ = self.scheme.codes
        # While the scale moves, the offset stays: the zero point's own rounding is not the scale's to undo.
        held = scale.detach()
        zero_point = qmin - self.learned_offset.to(dtype) / held
        by_scale = (qmin - zero_point.detach().round()) / held
        return scale, (zero_point + by_scale * (scale - held)).clamp(qmin, qmax)

    def qparams(self, x: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
        """Scales [sets] and zero points i32 [sets], those of x where they follow values."""
        raise NotImplementedError

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._parameters or self._buffers:  # which mean something else to another scheme
            destination[prefix + SCHEME] = torch.tensor(list(str(self.scheme).encode()), dtype=torch.uint8, device="cpu")

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, strict: bool, missing: list[str],
                              unexpected: list[str], errors: list[str]) -> None:
        super()._load_from_state_dict(state, prefix, metadata, strict, missing, unexpected, errors)
        given = state.get(prefix + SCHEME)  # states of earlier versions have none
        if given is None:
            return
        if prefix + SCHEME in unexpected:
            unexpected.remove(prefix + SCHEME)
        text = bytes(given.tolist()).decode()
        if text != str(self.scheme):
            errors.append(f"the state is that of another recipe: expected {self.name} with {self.scheme}, got {text}")

    def extra_repr(self) -> str:
        return str(self.scheme)


class WeightQuantizer(Quantizer):
    """Of weights [O, I]: per tensor, output channel (row), or group of consecutive weights of one."""

    def __init__(self, scheme: Scheme, name: str, weight: Tensor) -> None:
        super().__init__(scheme, name)
        if scheme.learned:
            if weight.is_meta:
                raise Error(f"{name}: learned scales begin at the weights' range, expected weights, got the device meta")
            with torch.no_grad():
                self._start_learning(*self._ranged(weight.detach()))

    def _ranged(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        scheme = self.scheme
        return _ops.fake_quantize_dynamic(weight, scheme.codes, scheme.strategy, scheme.sizes)[2:]

    def qparams(self, x: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            if self.scheme.learned:
                scale, zero_point = self._learned(torch.float32)
                return scale, zero_point.round().to(torch.int32)
            return self._ranged(x.detach())

    def forward(self, weight: Tensor) -> Tensor:
        """[O, I] to the same shape and dtype."""
        scheme = self.scheme
        if not self.quantizing:
            return weight
        if scheme.is_blocks:
            return _blocks.block_values(weight, scheme.block_type)
        if scheme.type == "float":
            return _mxfp4.fake_quantize(weight)
        if scheme.learned:
            return _ops.fake_quantize_learned(weight, *self._learned(_ops.parameter_dtype(weight)), scheme.codes,
                                              scheme.strategy, scheme.sizes, False)
        return _ops.fake_quantize_dynamic(weight, scheme.codes, scheme.strategy, scheme.sizes)[0]

    def rows(self, weight: Tensor, rows: Tensor, indices: Tensor) -> Tensor:
        """``rows`` [..., I], those of ``weight`` [V, I] at ``indices``, as forward() would give them: the table itself
        is not computed where each row has scales of its own."""
        scheme = self.scheme
        if not self.quantizing:
            return rows
        if scheme.is_blocks:
            return _blocks.block_values(rows, scheme.block_type)
        if scheme.type == "float":
            return _mxfp4.fake_quantize(rows)
        # A channel is a row of the table.
        strategy = "token" if scheme.strategy == "channel" else scheme.strategy
        if scheme.learned:
            scale, zero_point = self._learned(_ops.parameter_dtype(rows))
            if strategy != "tensor":
                at = indices.reshape(-1)
                scale = scale.unflatten(0, (weight.shape[0], -1))[at].flatten()
                zero_point = zero_point.unflatten(0, (weight.shape[0], -1))[at].flatten()
            return _ops.fake_quantize_learned(rows, scale, zero_point, scheme.codes, strategy, scheme.sizes, False)
        if strategy != "tensor":
            return _ops.fake_quantize_dynamic(rows, scheme.codes, strategy, scheme.sizes)[0]
        with torch.no_grad():
            scale, zero_point = _of_range(torch.stack(torch.aminmax(weight.detach())), scheme, rows.dtype)
        return _ops.fake_quantize(rows, scale, zero_point, scheme.codes, "tensor", ())[0]


def _of_range(ends: Tensor, scheme: Scheme, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scale [1] and zero point [1] of a range [lo, hi]: those of the tensor that has its two ends."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    return _ops.fake_quantize_dynamic(ends.to(wide), scheme.codes, "tensor", ())[2:]


class ActivationQuantizer(Quantizer):
    """Of activations [..., F]: with scales of each pass's own values (``dynamic``), of the range that the passes in
    training have had (``range`` [lo, hi], ``steps``), or learned from where that range puts them."""

    range: Tensor
    steps: Tensor

    def __init__(self, scheme: Scheme, name: str, device: Any = None) -> None:
        super().__init__(scheme, name)
        self.calibrating = False
        if scheme.observer == "dynamic":
            return
        known = scheme.observer == "fixed"
        ends = [0.0, scheme.limit] if known else [float("inf"), float("-inf")]
        self.register_buffer("range", torch.tensor(ends, device=device))
        self.register_buffer("steps", torch.tensor(int(known), device=device))
        if scheme.learned:
            self._start_learning(torch.full((1,), float("nan"), device=device),
                                 torch.zeros(1, dtype=torch.int32, device=device))
            if known:
                self.learn_from_range()

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """The finite values of x enter the range; a call without any is not counted."""
        if self.scheme.observer not in ("min_max", "moving_average") or x.numel() == 0:
            return
        x = x.detach()
        finite = torch.isfinite(x)
        lo = torch.where(finite, x, torch.full_like(x, float("inf"))).amin().to(self.range.dtype)
        hi = torch.where(finite, x, torch.full_like(x, float("-inf"))).amax().to(self.range.dtype)
        met = lo <= hi
        if self.scheme.observer == "min_max":
            ends = torch.stack((torch.minimum(self.range[0], lo), torch.maximum(self.range[1], hi)))
        else:  # the mean of the first steps, then a moving average (observers/moving_average.h)
            weight = torch.clamp(1.0 / (self.steps + 1), min=self.scheme.averaging_constant).to(self.range.dtype)
            old = torch.where(self.steps > 0, self.range, torch.zeros_like(self.range))
            ends = old + weight * (torch.stack((lo, hi)) - old)
        self.range.copy_(torch.where(met, ends, self.range))
        self.steps.add_(met.to(self.steps.dtype))

    @torch.no_grad()
    def learn_from_range(self) -> None:
        """Learned scales begin anew, at the range."""
        self._require_range()
        scale, zero_point = _of_range(self.range, self.scheme, torch.float32)
        self.learned_scale.copy_(scale)
        self.first_scale.copy_(scale)
        if self.scheme.learns_offset:
            self.learned_offset.copy_((self.scheme.codes[0] - zero_point) * scale)
        else:
            self.zero_point.copy_(zero_point)

    def _load_from_state_dict(self, state: Any, prefix: str, metadata: Any, strict: bool, missing: list[str],
                              unexpected: list[str], errors: list[str]) -> None:
        super()._load_from_state_dict(state, prefix, metadata, strict, missing, unexpected, errors)
        if self.scheme.observer == "dynamic" or self.range.is_meta or not self.has_range():
            return
        lo, hi = self.range.tolist()
        if not float("-inf") < lo <= hi < float("inf"):
            errors.append(f"{prefix}range: expected a lowest and a highest value, got [{lo:g}, {hi:g}]")

    def has_range(self) -> bool:
        """Whether values are known to quantize by; always, where each pass has its own."""
        return self.scheme.observer == "dynamic" or int(self.steps) > 0

    def _require_range(self) -> None:
        if not self.has_range():
            raise Error(f"{self.name}: no range yet: call steelyard.torch.calibrate(model, batches) first, or train")

    def qparams(self, x: Optional[Tensor] = None) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            if self.scheme.learned:
                self._require_range()
                scale, zero_point = self._learned(torch.float32)
                return scale, zero_point.round().to(torch.int32)
            if self.scheme.observer == "dynamic":
                return _ops.fake_quantize_dynamic(x.detach(), self.scheme.codes, self.scheme.strategy,
                                                  self.scheme.sizes)[2:]
            self._require_range()
            return _of_range(self.range, self.scheme, torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        """[..., F] to the same shape and dtype."""
        scheme = self.scheme
        if scheme.observer == "dynamic":
            if self.calibrating or not self.quantizing:
                return x
            if scheme.is_blocks:
                return _blocks.block_values(x, scheme.block_type)
            return _ops.fake_quantize_dynamic(x, scheme.codes, scheme.strategy, scheme.sizes)[0]
        if self.calibrating or (self.training and self.observing and not scheme.learned):
            self.observe(x)
        if self.calibrating or not self.quantizing:
            return x
        if x.device.type == "cpu" and not _compiling():
            self._require_range()
        if scheme.learned:
            return _ops.fake_quantize_learned(x, *self._learned(_ops.parameter_dtype(x)), scheme.codes, "tensor", (),
                                              True)
        with torch.no_grad():
            scale, zero_point = _of_range(self.range, scheme, x.dtype)
            scale = torch.where(self.steps > 0, scale, torch.full_like(scale, float("nan")))
        return _ops.fake_quantize(x, scale, zero_point, scheme.codes, "tensor", ())[0]
