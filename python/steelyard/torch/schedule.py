"""The recipe's schedule in a foreign loop."""

from __future__ import annotations

from typing import Any

from torch import nn

from .._error import Error
from .module import Module


def _module_of(module: nn.Module) -> Module:
    inner = getattr(module, "module", module)  # of DistributedDataParallel
    if not isinstance(inner, Module):
        raise Error(f"expected a steelyard.torch.Module, got {type(module).__name__}")
    return inner


class Schedule:
    """Follows the recipe's ``schedule`` (observers, quantization, batch norms, bits) by epochs.

    Made before the first epoch; step() at the end of each, as torch's schedulers of learning rates.
    """

    def __init__(self, module: nn.Module, epoch: int = 0) -> None:
        self._module = _module_of(module)
        self.begin_epoch(epoch)

    @property
    def epoch(self) -> int:
        """The epoch that has begun, from 0."""
        return self._module.epoch

    def begin_epoch(self, epoch: int) -> None:
        """Begins an epoch by its number, from 0."""
        self._module.begin_epoch(epoch)

    def step(self) -> None:
        """Begins the next epoch."""
        self.begin_epoch(self._module.epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self._module.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.begin_epoch(state["epoch"])
