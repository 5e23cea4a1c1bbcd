"""Tensors in tuples, lists and dicts, as models take and give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .._error import Error


def flatten(value: Any, what: str) -> tuple[list[torch.Tensor], Any]:
    """The tensors of a value in order, and what unflatten() makes it of again."""
    tensors: list[torch.Tensor] = []
    return tensors, _spec(value, what, tensors)


def _spec(value: Any, what: str, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return ("tensor",)
    if value is None:
        return ("none",)
    if isinstance(value, Mapping):
        return ("dict", type(value), [(k, _spec(v, f"{what}[{k!r}]", tensors)) for k, v in value.items()])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ("named", type(value), [_spec(v, f"{what}.{f}", tensors) for f, v in zip(value._fields, value)])
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, None, [_spec(v, f"{what}[{i}]", tensors) for i, v in enumerate(value)])
    raise Error(f"{what}: expected a tensor, or tuples, lists and dicts of tensors, got {type(value).__name__}")


def unflatten(tensors: list[torch.Tensor], spec: Any) -> Any:
    """The value that flatten() took apart, of other tensors."""
    return _value(iter(tensors), spec)


def _value(tensors, spec: Any) -> Any:
    kind = spec[0]
    if kind == "tensor":
        return next(tensors)
    if kind == "none":
        return None
    if kind == "dict":
        made = {k: _value(tensors, s) for k, s in spec[2]}
        return made if spec[1] is dict else spec[1](**made)
    values = [_value(tensors, s) for s in spec[2]]
    if kind == "named":
        return spec[1](*values)
    return tuple(values) if kind == "tuple" else values
