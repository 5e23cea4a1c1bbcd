"""One set of ranges for several processes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .schedule import _module_of


def agree_on_ranges(module: nn.Module, group: Any = None) -> None:
    """Gives all processes the buffers of the first one: ranges of quantizers, statistics of batch norms.

    DistributedDataParallel does so before each pass, so that all train with one set of ranges, which follows the first
    one's data; call this after the last step, before evaluation, export or saving. ``group``: of processes; None: all.
    """
    import torch.distributed as dist

    with torch.no_grad():
        for buffer in _module_of(module).buffers():
            dist.broadcast(buffer, 0, group)
