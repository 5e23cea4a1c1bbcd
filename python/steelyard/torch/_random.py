"""Which modules of a model draw random numbers while they train."""

from __future__ import annotations

from typing import Sequence

import torch
from torch import nn

from .._error import Error


class _Draws:
    """Hooks that follow the state of the random numbers from module to module.

    What is drawn between two events belongs to the module that is innermost then, so that a functional dropout in a
    module's own forward() is told from those of its children.
    """

    def __init__(self, model: nn.Module) -> None:
        self.drew: dict[str, nn.Module] = {}
        self._state = torch.get_rng_state()
        self._stack: list[tuple[str, nn.Module]] = []
        self._hooks = []
        for name, module in model.named_modules():
            self._hooks.append(module.register_forward_pre_hook(self._entering(name)))
            self._hooks.append(module.register_forward_hook(self._leaving))

    def _account(self) -> None:
        state = torch.get_rng_state()
        if self._stack and not torch.equal(state, self._state):
            name, module = self._stack[-1]
            self.drew[name] = module
        self._state = state

    def _entering(self, name: str):
        def hook(module, _inputs):
            self._account()
            self._stack.append((name, module))

        return hook

    def _leaving(self, _module, _inputs, _output) -> None:
        self._account()
        self._stack.pop()

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


def random_modules(model: nn.Module, inputs: Sequence[torch.Tensor]) -> dict[str, nn.Module]:
    """The modules by name whose own forward() draws random numbers in training; the model trains for one pass."""
    kept = torch.get_rng_state()
    model.train()
    draws = _Draws(model)
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        draws.remove()
        torch.set_rng_state(kept)
    return draws.drew


def _selected(name: str, module: nn.Module, leave_out: Sequence[str]) -> bool:
    return name in leave_out or type(module).__name__ in leave_out


def set_dropout(model: nn.Module, drew: dict[str, nn.Module], leave_out: Sequence[str]) -> dict[str, float]:
    """Lets those nn.Dropout train that the network is to have, and the rest of the model evaluate; their p by name.

    Raises Error naming another module that draws random numbers, and a name of ``leave_out`` that selects nothing.
    """
    for wanted in leave_out:
        if not any(_selected(n, m, [wanted]) for n, m in drew.items()):
            raise Error(f"leave_out: no module {wanted!r} draws random numbers in training; those that do: "
                        + (", ".join(f"{n or 'the model'} ({type(m).__name__})" for n, m in drew.items()) or "none"))
    others = [(n, m) for n, m in drew.items()
              if not _selected(n, m, leave_out) and (type(m) is not nn.Dropout or m.p >= 1)]
    if others:
        name, module = others[0]
        more = f", and {len(others) - 1} modules more" if len(others) > 1 else ""
        raise Error(
            f"{name or 'the model'} ({type(module).__name__}) draws random numbers in training{more}: expected nn.Dropout "
            f"with p below 1 alone, which the network can have; leave_out=[{type(module).__name__!r}] trains without them"
        )
    model.eval()
    kept = {}
    for name, module in model.named_modules():
        if type(module) is nn.Dropout and module.p > 0 and not _selected(name, module, leave_out):
            module.train()
            kept[name] = module.p
    return kept
