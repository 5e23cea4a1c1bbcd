"""One set of ranges for several processes."""

from __future__ import annotations

from typing import Any, Iterator

import torch
from torch import nn

from .._error import Error
from .module import Module
from .quantizers import Quantizer


def _learned_scales(module: nn.Module) -> Iterator[nn.Parameter]:
    for part in module.modules():
        if isinstance(part, Module):
            yield from part.scales()
        elif isinstance(part, Quantizer):
            yield from part.parameters(recurse=False)


def agree_on_ranges(module: nn.Module, group: Any = None) -> None:
    """Gives all processes the buffers and the learned scales of the first one: ranges of quantizers, statistics of batch
    norms.

    DistributedDataParallel does so before each pass, so that all train with one set of ranges, which follows the first
    one's data; call this after the last step, before evaluation, export or saving. ``module``: a Module or a model that
    quantize_() has changed, also inside of DistributedDataParallel. ``group``: of processes; None: all.
    """
    import torch.distributed as dist

    if not any(isinstance(m, (Module, Quantizer)) for m in module.modules()):
        raise Error(f"expected a steelyard.torch.Module or a model that quantize_() has changed, got "
                    f"{type(module).__name__}")
    with torch.no_grad():
        for buffer in module.buffers():
            dist.broadcast(buffer, 0, group)
        for scale in _learned_scales(module):
            dist.broadcast(scale, 0, group)
