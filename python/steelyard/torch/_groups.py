"""Groups of parameters for an optimizer."""

from __future__ import annotations

from typing import Any, Iterable

from torch import nn

_PART = 10.0  # of a scale that a step of an adaptive optimizer moves it by, in units of the rate (docs/numerics.md)


def optimizer_groups(parameters: Iterable[nn.Parameter], scales: Iterable[nn.Parameter], lr: float,
                     weight_decay: float, scale_lr: float, adaptive: bool) -> list[dict[str, Any]]:
    """The parameters without the scales, and the scales, which have no decay, because it would shrink ranges: with the
    rate ``lr * scale_lr``; or, if ``adaptive``, each with one that fits its size."""
    learned = {id(p): p for p in scales}
    groups: list[dict[str, Any]] = [{"params": [p for p in parameters if id(p) not in learned], "lr": lr,
                                     "weight_decay": weight_decay}]
    if adaptive:
        groups += [{"params": [p], "lr": lr * _PART * float(p.detach().abs().mean()), "weight_decay": 0.0}
                   for p in learned.values()]
    elif learned:
        groups.append({"params": list(learned.values()), "lr": lr * scale_lr, "weight_decay": 0.0})
    return groups
