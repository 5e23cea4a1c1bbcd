"""The parts of a model that a Module stands for: places for their names, and what tells that one was changed."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn

from .._error import Error


class Part(nn.Module):
    """A place in the tree of names: parameters and buffers, no computation."""

    settings: frozenset[str] = frozenset()  # attributes of the wrapped module, which the network has read

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def describe(self, module: nn.Module) -> None:
        """This is the place of that module."""
        self.kind = type(module).__name__
        self.settings = frozenset(k for k in vars(module) if not k.startswith("_") and k != "training")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.settings:
            raise Error(f"{name} of this {self.kind} is a setting that the network was made with: change the model and make "
                        "a new Module of it")
        super().__setattr__(name, value)

    def _get_name(self) -> str:
        return self.kind

    def _refuse_hook(self, *_: Any, **__: Any) -> Any:
        raise Error(f"this {self.kind} is a part of a steelyard.torch.Module, which computes as a whole: a hook on it would "
                    "not run; the Module itself may have some")

    register_forward_hook = register_forward_pre_hook = _refuse_hook
    register_backward_hook = register_full_backward_hook = register_full_backward_pre_hook = _refuse_hook

    def forward(self, *_: Any) -> Any:
        raise Error(f"this {self.kind} is a part of a steelyard.torch.Module, which computes as a whole: call that")


class Quantizers(Part):
    """The place of what quantizers have. Its state says what they quantize and how, so that no other recipe's fits."""

    def __init__(self, plan: str) -> None:
        super().__init__("Quantizers")
        self.plan = plan

    def get_extra_state(self) -> torch.Tensor:
        return torch.tensor(list(self.plan.encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: torch.Tensor) -> None:
        given = bytes(state.tolist()).decode().splitlines()
        own = self.plan.splitlines()
        if given != own:
            row = next((i for i, pair in enumerate(zip(given, own)) if pair[0] != pair[1]), min(len(given), len(own)))
            raise Error("the state is that of another recipe: expected a plan with "
                        f"{' '.join(own[row].split()) if row < len(own) else 'no more rows'}, got "
                        f"{' '.join(given[row].split()) if row < len(given) else 'no more rows'}")


_PLAIN = (bool, int, float, str, type(None))


def plain_settings(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that are numbers, words, or tuples of them."""
    return {k: v for k, v in vars(module).items() if k != "training" and not k.startswith("_")
            and (isinstance(v, _PLAIN) or (isinstance(v, tuple) and all(isinstance(x, _PLAIN) for x in v)))}


def _state_of(modules: list) -> list:
    """What a pass compares: parts, parameters, class and own forward() by identity, probabilities of dropout, and how many
    hooks there are."""
    state: list = []
    for module in modules:
        held = module.__dict__
        hooks = len(held["_forward_hooks"]) + len(held["_forward_pre_hooks"]) + len(held["_backward_hooks"])
        state += (id(type(module)), id(held.get("forward")), hooks)
        state += map(id, held["_modules"].values())
        state += map(id, held["_parameters"].values())
        state += (held.get("p"), held.get("drop_prob"))
    return state


class Watched:
    """The model that was wrapped, as far as it still lives, to tell that somebody changed it."""

    def __init__(self, model: nn.Module) -> None:
        self._modules = [(name, weakref.ref(m), _state_of([m])) for name, m in model.named_modules()]
        self._references = [reference for _, reference, _ in self._modules]
        self._state = [x for _, _, state in self._modules for x in state]
        self._settings = [plain_settings(m) for m in model.modules()]

    def require_unchanged(self) -> None:
        living = [reference() for reference in self._references]
        if None not in living and _state_of(living) == self._state:
            return
        for module, (name, _, state) in zip(living, self._modules):
            if module is None or _state_of([module]) == state:
                continue
            raise Error(f"{name or 'the model'} ({type(module).__name__}) was changed after it was wrapped: expected its "
                        "modules and parameters as they were; make a new Module of it")

    def require_same_settings(self) -> None:
        """Numbers and words of the model's modules, which take longer to compare than a pass should wait for."""
        for (name, reference, _), settings in zip(self._modules, self._settings):
            module = reference()
            now = settings if module is None else plain_settings(module)
            if now != settings:
                key = next(k for k in {**settings, **now} if settings.get(k, now) != now.get(k, settings))
                raise Error(f"{name or 'the model'} ({type(module).__name__}): {key} was changed after it was wrapped, from "
                            f"{settings.get(key)!r} to {now.get(key)!r}: make a new Module of it")
