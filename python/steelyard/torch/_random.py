"""Which modules of a model draw random numbers while they train, and which of them the network has too."""

from __future__ import annotations

import random
from typing import Any, Optional, Sequence

import numpy as np
import torch
from torch import nn

from .._error import Error


def _states() -> tuple[torch.Tensor, Any, Any]:
    """Of the random numbers of torch, Python and NumPy."""
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _restore(states: tuple[torch.Tensor, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


def _same(a: tuple, b: tuple) -> bool:
    numpy = all(np.array_equal(x, y) for x, y in zip(a[2], b[2]))
    return torch.equal(a[0], b[0]) and a[1] == b[1] and numpy


class _Draws:
    """Hooks that follow the states of the random numbers from module to module.

    What is drawn between two events belongs to the module that is innermost then, so that a functional dropout in a
    module's own forward() is told from those of its children.
    """

    def __init__(self, model: nn.Module) -> None:
        self.drew: dict[str, nn.Module] = {}
        self._state = _states()
        self._stack: list[tuple[str, nn.Module]] = []
        self._hooks = []
        for name, module in model.named_modules():
            self._hooks.append(module.register_forward_pre_hook(self._entering(name)))
            self._hooks.append(module.register_forward_hook(self._leaving))

    def _account(self) -> None:
        state = _states()
        if self._stack and not _same(state, self._state):
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
    kept = _states()
    model.train()
    draws = _Draws(model)
    try:
        with torch.no_grad():
            model(*inputs)
    finally:
        draws.remove()
        _restore(kept)
    return draws.drew


def _selected(name: str, module: nn.Module, leave_out: Sequence[str]) -> bool:
    return name in leave_out or type(module).__name__ in leave_out


_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)


def _drops_samples(module: nn.Module, p: Any) -> bool:
    """Whether a module does what its name says: each sample is 0 with the chance p, else itself / (1 - p)."""
    if not isinstance(p, (int, float)) or not 0 < p < 1:
        return False
    kept, training = _states(), module.training
    count = 4096
    x = torch.rand(count, 3, 2, 2) + 0.5
    try:
        with torch.no_grad():
            factor = module.train()(x) / x * (1 - p)
    except Exception:  # whatever it takes, it is no tensor of images
        return False
    finally:
        module.train(training)
        _restore(kept)
    if factor.shape != x.shape:
        return False
    first = factor[:, :1, :1, :1]
    fell = float((first.abs() < 1e-4).float().mean())
    whole = bool(((factor - first).abs() < 1e-4).all() and ((first.abs() < 1e-4) | ((first - 1).abs() < 1e-4)).all())
    return whole and abs(fell - p) < 5 * (p * (1 - p) / count) ** 0.5


def _dropped(module: nn.Module) -> Optional[tuple[str, float]]:
    """What a dropout module drops together, in the engine's words, and how probably; None for another module.

    Stochastic depth is torchvision's, or a DropPath as timm and transformers write it: known by its name, and tried.
    """
    name = type(module).__name__
    unit, p = "", 1.0
    if type(module) is nn.Dropout:
        unit, p = "element", module.p
    elif type(module) in _DROPOUTS:
        unit, p = "channel", module.p
    elif name == "StochasticDepth" or name.endswith("DropPath"):
        p = getattr(module, "p", None) if name == "StochasticDepth" else getattr(module, "drop_prob", None)
        unit = "sample" if _drops_samples(module, p) else ""
    return (unit, float(p)) if unit and p < 1 else None


class _DropFunction(torch.autograd.Function):
    """The identity; in an ONNX file, the engine's own Dropout, for units that ONNX's does not have."""

    @staticmethod
    def forward(_context, x, unit, _p):
        if x.dim() < (3 if unit == "channel" else 2):
            raise Error(f"dropout of whole {unit}s: expected {3 if unit == 'channel' else 2} dimensions or more, got "
                        f"{list(x.shape)}")
        return x.clone()

    @staticmethod
    def backward(_context, gradient):
        return gradient, None, None

    @staticmethod
    def symbolic(graph, x, unit, p):
        return graph.op("steelyard.training::Dropout", x, unit_s=unit, ratio_f=p).setType(x.type())


class _Drop(nn.Module):
    def __init__(self, unit: str, p: float) -> None:
        super().__init__()
        self.unit, self.p = unit, p

    def forward(self, x):
        return _DropFunction.apply(x, self.unit, self.p)


def set_dropout(model: nn.Module, drew: dict[str, nn.Module], leave_out: Sequence[str]) -> list[str]:
    """Lets those dropout modules train that the network is to have, and the rest of the model evaluate; their names.

    Those of channels and samples are replaced by what the exporter can write.

    Raises Error naming another module that draws random numbers, and a name of ``leave_out`` that selects nothing.
    """
    for wanted in leave_out:
        if not any(_selected(n, m, [wanted]) for n, m in drew.items()):
            raise Error(f"leave_out: no module {wanted!r} draws random numbers in training; those that do: "
                        + (", ".join(f"{n or 'the model'} ({type(m).__name__})" for n, m in drew.items()) or "none"))
    kinds = {n: _dropped(m) for n, m in drew.items()}
    others = [(n, m) for n, m in drew.items() if not _selected(n, m, leave_out) and kinds[n] is None]
    others += [(n, m) for n, m in model.named_modules()
               if type(m) in _DROPOUTS and m.p >= 1 and n not in drew and not _selected(n, m, leave_out)]
    if others:
        name, module = others[0]
        more = f", and {len(others) - 1} modules more" if len(others) > 1 else ""
        raise Error(
            f"{name or 'the model'} ({type(module).__name__}) draws random numbers in training{more}: expected dropout "
            f"modules with p below 1, or stochastic depth that drops samples with p and scales the others; leave_out=[{type(module).__name__!r}] trains without them"
        )
    model.eval()
    places: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        places.setdefault(id(module), []).append(name)
    kept = []
    for name, module in drew.items():
        dropped = kinds[name]
        if dropped is None or _selected(name, module, leave_out):
            continue
        kept += places[id(module)]
        if dropped[0] == "element":
            module.train()
            continue
        if not name:
            raise Error(f"expected a model with layers, got {type(module).__name__} alone")
        instead = _Drop(*dropped).train()
        for place in places[id(module)]:
            above, _, last = place.rpartition(".")
            setattr(model.get_submodule(above), last, instead)
    return kept
