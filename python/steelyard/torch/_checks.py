"""What a Module asks of a model before it stands in its place: parts that it knows, one way through forward(), and the
exported network's outputs and gradients."""

from __future__ import annotations

import collections
from typing import Any, Mapping, Sequence

import numpy as np
import torch
from torch import nn

from .._error import Error
from ..network import Network
from ._nested import flatten


def require_wrappable(model: nn.Module) -> None:
    """Raises Error naming a part of which the network would compute or learn something else."""
    uses = collections.Counter(id(p) for m in model.modules() for p in m._parameters.values())
    for name, module in model.named_modules():
        what = f"{name or 'the model'} ({type(module).__name__})"
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            if getattr(module, kind, None):
                raise Error(f"{what} has hooks ({kind[1:]}), which would not run: expected a model without hooks; "
                            "the Module itself may have some")
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.momentum is None:
            raise Error(f"{what}: expected a momentum, got None, the mean over all steps")
        if isinstance(module, nn.Embedding):
            for option in ("max_norm", "scale_grad_by_freq", "sparse"):
                if getattr(module, option):
                    raise Error(f"{what}: {option} is not supported, expected an embedding without")
            if module.padding_idx is not None and uses[id(module.weight)] > 1:
                raise Error(f"{what}: expected no padding_idx where other modules have the weight, too: its row gets "
                            "gradients from them alone")
        if isinstance(module, nn.SyncBatchNorm):
            raise Error(f"{what}: statistics over several processes are not supported, expected BatchNorm2d")
        if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            raise Error(f"{what}: expected the model itself; wrap it first, then give the Module to "
                        "DistributedDataParallel")
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            raise Error(f"the parameter {name}: expected float32, got {parameter.dtype}")


def require_one_way(model: nn.Module, inputs: Sequence[torch.Tensor], drew: dict[str, nn.Module],
                     evaluated: list[torch.Tensor], outputs: Any) -> None:
    """Raises Error for a forward() that asks whether it trains, apart from batch norms and random numbers; the model
    evaluates before and after."""
    trains = [m for n, m in model.named_modules() if n not in drew and not hasattr(m, "running_mean")]
    for m in trains:
        m.training = True
    with torch.no_grad():
        trained, outputs_of_trained = flatten(model(*inputs), "the output")
    for m in trains:
        m.training = False
    same = outputs_of_trained == outputs and all(
        a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True) for a, b in zip(trained, evaluated))
    if not same:
        raise Error(f"{type(model).__name__} gives other outputs in training than in evaluation, or in each call (batch "
                    "norms and dropout apart): expected one way through forward(), which is what is exported")


def _largest(values: Sequence[torch.Tensor]) -> float:
    return max((float(v.abs().max()) for v in values if v.numel()), default=0.0)


def require_same(network: Network, inputs: Sequence[torch.Tensor], expected: list[torch.Tensor],
                  tolerance: float) -> None:
    outputs = network.eval().forward(*(x.detach().cpu() for x in inputs))
    given = [torch.from_numpy(np.asarray(o)) for o in (outputs if isinstance(outputs, tuple) else (outputs,))]
    for i, (ours, theirs) in enumerate(zip(given, expected)):
        if ours.shape != theirs.shape:
            raise Error(f"output {i}: torch gives {list(theirs.shape)}, the exported network {list(ours.shape)}")
        if not torch.isfinite(theirs).all():
            raise Error(f"output {i} of the model is not finite on the example inputs")
        off, most = _largest([ours - theirs]), _largest([theirs])
        if off > tolerance * max(most, 1e-30):
            raise Error(f"output {i}: the exported network gives other numbers than the model, by up to "
                        f"{off:.3g} of {most:.3g}: does its forward() depend on values or on sizes? A trace has those of the "
                        "examples")


class OtherBatch:
    """What a model that evaluates gives of one sample more than the examples, with other values."""

    def __init__(self, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        self._inputs = [self._other(x) for x in inputs]
        self._expected: list[torch.Tensor] = []
        with torch.no_grad():
            try:
                self._expected, _ = flatten(model(*(x.clone() for x in self._inputs)), "the output")
            except Exception:  # whatever the model asks of its inputs, the examples have it
                pass

    @staticmethod
    def _other(x: torch.Tensor) -> torch.Tensor:
        more = torch.cat([x[-1:], x]) if x.dim() else x
        return -0.7 * more if more.is_floating_point() else more

    def require_same(self, network: Network, tolerance: float) -> None:
        """Raises Error where a trace has numbers of the example. A batch that the model did not take tells nothing, nor do
        outputs that are not finite."""
        if not self._expected or not all(bool(torch.isfinite(y).all()) for y in self._expected):
            return
        try:
            require_same(network, self._inputs, self._expected, tolerance)
        except Error as error:
            raise Error(f"another batch than the examples, of one sample more: {error}") from None


def require_still_buffers(model: nn.Module, buffers: Mapping[str, torch.Tensor]) -> None:
    """Raises Error for a buffer that a pass in training has changed, other than statistics of batch norms."""
    for name, buffer in model.named_buffers():
        module = model.get_submodule(name.rpartition(".")[0])
        if not isinstance(module, nn.modules.batchnorm._BatchNorm) and not torch.equal(buffer, buffers[name]):
            raise Error(f"forward() changes the buffer {name} in training, which the network would have as a constant: "
                        "expected buffers that stay, apart from statistics of batch norms")


class Gradients:
    """Torch's gradients of a model that evaluates, at inputs near the examples: of a sum of its outputs with weights
    drawn once, which is no symmetric one."""

    _PART = 0.05  # of a gradient that the network's may be off; a ReLU at 0 may go either way

    def __init__(self, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
        self._draws = torch.Generator("cpu").manual_seed(1)
        plain = [x.detach() for x in inputs]
        # Examples may be of zeros, where maxima are ties.
        moved = [x + 0.1 * self._noise(x) * x.std(unbiased=False).clamp(min=0.1)
                 if x.is_floating_point() and x.numel() else x for x in plain]
        parameters = dict(model.named_parameters())
        trainable = {n: p.requires_grad for n, p in parameters.items()}
        try:
            for p in parameters.values():
                p.requires_grad_(True)
            try:
                self._find(model, moved, parameters)
            except Exception:  # whatever the model asks of its inputs, the examples have it
                self._find(model, plain, parameters)
        finally:
            for n, p in parameters.items():
                p.requires_grad_(trainable[n])

    def _noise(self, like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=self._draws, dtype=torch.float32, device="cpu")

    def _find(self, model: nn.Module, inputs: list[torch.Tensor], parameters: Mapping[str, nn.Parameter]) -> None:
        self._inputs = inputs
        leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
        with torch.enable_grad():
            outputs, _ = flatten(model(*(x.clone() for x in leaves)), "the output")  # which it may change in place
            self._weights = [self._noise(o) if o.is_floating_point() else None for o in outputs]
            total = sum((o * w).sum() for o, w in zip(outputs, self._weights) if w is not None and o.requires_grad)
        asked = {**parameters, **{f"input {i}": x for i, x in enumerate(leaves) if x.requires_grad}}
        found = torch.autograd.grad(total, list(asked.values()), allow_unused=True) if isinstance(total, torch.Tensor) \
            else [None] * len(asked)
        self._theirs = {n: torch.zeros_like(x) if g is None else g for (n, x), g in zip(asked.items(), found)}

    def require_same(self, network: Network, sources: Mapping[str, Any], taken: Mapping[str, torch.Tensor],
                     padding: Mapping[str, int]) -> None:
        """Raises Error naming the parameter or input of which the exported network has another gradient. ``sources``:
        which parameter of torch's is which of the network's; ``taken``: which of their elements are, others are not
        compared; ``padding``: rows of which the gradient is not used."""
        if not all(bool(torch.isfinite(g).all()) for g in self._theirs.values()):
            return  # the model itself has none here
        by_inputs = any(n.startswith("input ") for n in self._theirs)
        run = network.eval().record(*self._inputs, input_gradients=by_inputs)
        run.backward(*self._weights)
        ours = {n: torch.zeros(g.shape, dtype=g.dtype, device="cpu") for n, g in self._theirs.items()}
        for name, gradient in network.gradients().items():
            source = sources.get(name)
            if source is None:
                continue
            part = torch.from_numpy(np.ascontiguousarray(gradient)).reshape(-1)
            if source.indices is None:
                ours[source.name].reshape(-1)[source.first:source.first + source.count] += part
                continue
            flat = torch.zeros(sum(ours[n].numel() for n in source.names), dtype=part.dtype, device="cpu")
            flat.index_add_(0, source.indices.reshape(-1), part)
            for n, piece in zip(source.names, flat.split([ours[n].numel() for n in source.names])):
                ours[n] += piece.reshape(ours[n].shape)
        for i in range(len(self._inputs)):
            if f"input {i}" in ours:
                found = run.input_gradient(i)
                if found is not None:
                    ours[f"input {i}"] = torch.from_numpy(np.ascontiguousarray(found))
        network.zero_gradients()
        for name, row in padding.items():
            ours[name][row] = 0
        least = 1e-3 * max((float(g.norm()) for g in self._theirs.values()), default=0.0)
        for name, theirs in self._theirs.items():
            if name in taken:
                theirs = theirs * taken[name].reshape(theirs.shape)
            off, size = float((ours[name] - theirs).norm()), float(theirs.norm())
            if off > self._PART * (size + least):
                raise Error(f"{name}: the exported network has another gradient than the model, by {off:.3g} of {size:.3g}: "
                            "does forward() use detach(), no_grad() or a gradient of its own? A trace has none of them")
