"""A model's inputs by the names that its forward() gives them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

import torch
from torch import nn

from .._error import Error


def input_names(model: nn.Module, count: int) -> list[str]:
    """The names of forward()'s first parameters."""
    try:
        listed = [p for p in inspect.signature(model.forward).parameters.values()
                  if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        listed = []
    return [listed[i].name if i < len(listed) else f"input{i}" for i in range(count)]


def in_order(names: Sequence[str], given: Mapping[str, Any], what: str) -> list[Any]:
    """The values of those names; raises Error where one is absent."""
    for name in names:
        if name not in given:
            raise Error(f"{what}: expected the inputs {', '.join(names)}, got {', '.join(map(str, given)) or 'none'}")
    return [given[name] for name in names]


def examples_of(model: nn.Module, given: Union[torch.Tensor, Sequence[torch.Tensor], Mapping[str, torch.Tensor]]
                ) -> list[torch.Tensor]:
    """The example inputs in the order of forward()'s parameters."""
    if isinstance(given, Mapping):
        names = input_names(model, len(given))
        given = in_order(names, given, "example_inputs, which are forward()'s first parameters")
        if not given:
            raise Error("example_inputs: expected tensors by the names of forward()'s parameters, got none")
    inputs = [given] if isinstance(given, torch.Tensor) else list(given)
    for i, x in enumerate(inputs):
        if not isinstance(x, torch.Tensor):
            raise Error(f"example_inputs: expected tensors, got {type(x).__name__} as number {i}")
    return inputs


def call_inputs(names: Sequence[str], inputs: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    """The inputs of a call, the last of which were given by name."""
    left = names[len(inputs):]
    for name in named:
        if name not in left:
            raise Error(f"{name!r} is no input that is left: the module takes {', '.join(names)}, as its example inputs "
                        f"were, and {len(inputs)} of them came without a name; targets and the loss are the loop's")
    return [*inputs, *in_order(left, named, "the call")]


def batches_of(names: Sequence[str], inputs: Any) -> Iterable[Any]:
    """The batches of a loader, or the one that the inputs are."""
    alone = isinstance(inputs, (tuple, list)) and len(inputs) == len(names) and \
        all(isinstance(x, torch.Tensor) for x in inputs)
    if alone or isinstance(inputs, (torch.Tensor, Mapping)):
        return [inputs]
    if not isinstance(inputs, Iterable):
        raise Error(f"expected tensors or batches of them, got {type(inputs).__name__}")
    return inputs


def batch_inputs(names: Sequence[str], batch: Any) -> list[torch.Tensor]:
    """The inputs of a batch: it, its first elements, or those of their names; targets may follow."""
    if isinstance(batch, Mapping):
        tensors = in_order(names, batch, "a batch")
    else:
        tensors = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if len(tensors) < len(names):
        raise Error(f"a batch: expected {len(names)} inputs first, got {len(tensors)} tensors")
    for x, name in zip(tensors, names):
        if not isinstance(x, torch.Tensor):
            raise Error(f"a batch: expected a tensor as input '{name}', got {type(x).__name__}")
    return tensors[:len(names)]
