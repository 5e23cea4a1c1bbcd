"""Which modules of a model draw random numbers while they train, and which of them the network has too."""

from __future__ import annotations

from typing import Optional, Sequence

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


def _dropped(module: nn.Module) -> Optional[tuple[str, float]]:
    """What a dropout module drops together, in the engine's words, and how probably; None for another module.

    Stochastic depth is torchvision's, or a DropPath as timm and transformers write it, known by its name.
    """
    name = type(module).__name__
    unit, p = "", 1.0
    if type(module) is nn.Dropout:
        unit, p = "element", module.p
    elif type(module) in (nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
        unit, p = "channel", module.p
    elif name == "StochasticDepth" and getattr(module, "mode", "") == "row":
        unit, p = "sample", module.p
    elif name.endswith("DropPath") and getattr(module, "scale_by_keep", True):
        unit, p = "sample", getattr(module, "drop_prob", None)
    return (unit, float(p)) if unit and p is not None and p < 1 else None


class _DropFunction(torch.autograd.Function):
    """The identity; in an ONNX file, the engine's own Dropout, for units that ONNX's does not have."""

    @staticmethod
    def forward(_context, x, _unit, _p):
        return x.clone()

    @staticmethod
    def symbolic(graph, x, unit, p):
        return graph.op("steelyard.training::Dropout", x, unit_s=unit, ratio_f=p).setType(x.type())


class _Drop(nn.Module):
    def __init__(self, unit: str, p: float) -> None:
        super().__init__()
        self.unit, self.p = unit, p

    def forward(self, x):
        return _DropFunction.apply(x, self.unit, self.p)


def set_dropout(model: nn.Module, drew: dict[str, nn.Module], leave_out: Sequence[str]) -> None:
    """Lets those dropout modules train that the network is to have, and the rest of the model evaluate.

    Those of channels and samples are replaced by what the exporter can write.

    Raises Error naming another module that draws random numbers, and a name of ``leave_out`` that selects nothing.
    """
    for wanted in leave_out:
        if not any(_selected(n, m, [wanted]) for n, m in drew.items()):
            raise Error(f"leave_out: no module {wanted!r} draws random numbers in training; those that do: "
                        + (", ".join(f"{n or 'the model'} ({type(m).__name__})" for n, m in drew.items()) or "none"))
    others = [(n, m) for n, m in drew.items()
              if not _selected(n, m, leave_out) and _dropped(m) is None]
    if others:
        name, module = others[0]
        more = f", and {len(others) - 1} modules more" if len(others) > 1 else ""
        raise Error(
            f"{name or 'the model'} ({type(module).__name__}) draws random numbers in training{more}: expected dropout "
            f"modules with p below 1 or stochastic depth of rows; leave_out=[{type(module).__name__!r}] trains without them"
        )
    model.eval()
    for name, module in drew.items():
        dropped = _dropped(module)
        if dropped is None or _selected(name, module, leave_out):
            continue
        if dropped[0] == "element":
            module.train()
            continue
        above, _, last = name.rpartition(".")
        if not name:
            raise Error(f"expected a model with layers, got {type(module).__name__} alone")
        setattr(model.get_submodule(above), last, _Drop(*dropped).train())
