"""quantize_(): the linear and embedding layers of a model, in place, by a recipe."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, TypeVar

import torch
from torch import nn
from torch.nn import functional

from .._error import Error
from .._recipe import Recipe
from . import _blocks
from ._groups import optimizer_groups
from ._scheme import Group, groups_of, matches
from .module import Module
from .quantizers import ActivationQuantizer, Quantizer, WeightQuantizer

Model = TypeVar("Model", bound=nn.Module)


class QuantizedLinear(nn.Linear):
    """nn.Linear whose input [..., in_features] and weight [out_features, in_features] are fake-quantized."""

    input_quantizer: Optional[ActivationQuantizer]
    weight_quantizer: Optional[WeightQuantizer]

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if self._multiplies_blocks():
            y = _blocks.block_linear(input, self.weight, self.weight_quantizer.scheme.block_type)
            return y if self.bias is None else y + self.bias
        x = input if self.input_quantizer is None else self.input_quantizer(input)
        w = self.weight if self.weight_quantizer is None else self.weight_quantizer(self.weight)
        return functional.linear(x, w, self.bias)

    def _multiplies_blocks(self) -> bool:
        """Whether the product is that of integers, as the target computes it."""
        x, w = self.input_quantizer, self.weight_quantizer
        return (w is not None and w.scheme.is_blocks and w.quantizing and x is not None and x.quantizing
                and not x.calibrating)


class QuantizedEmbedding(nn.Embedding):
    """nn.Embedding whose rows are fake-quantized; of the table [num_embeddings, embedding_dim] those that are read."""

    input_quantizer: None
    weight_quantizer: WeightQuantizer

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.weight_quantizer.rows(self.weight, super().forward(input), input)


_LAYERS: dict[type, type] = {nn.Linear: QuantizedLinear, nn.Embedding: QuantizedEmbedding}
_QUANTIZED = tuple(_LAYERS.values())


def _group_of(groups: list[Group], path: str, module: nn.Module) -> Optional[tuple[Group, str]]:
    for group in groups:
        for target in group.targets:
            if matches(target, path, type(module).__name__):
                return group, target
    return None


def _require_layer(path: str, module: nn.Module, target: str) -> None:
    """Refuses what a recipe asks for and this cannot do."""
    kind = type(module).__name__
    if isinstance(module, _QUANTIZED):
        raise Error(f"{path} ({kind}) is quantized already: expected each layer in one call of quantize_()")
    if isinstance(module, tuple(_LAYERS)):
        raise Error(f"{path} ({kind}): '{target}' names a subclass of {type(module).__mro__[1].__name__} that may compute "
                    "in its own way: expected nn.Linear or nn.Embedding itself, or the name in ignore")
    if target in (kind, path) and not list(module.children()):
        raise Error(f"{path} ({kind}): quantize_() has Linear and Embedding; steelyard.torch.Module quantizes others")


def _require_widths(path: str, module: nn.Module, group: Group) -> None:
    width = module.weight.shape[1]
    if group.weights is not None and group.weights.is_blocks and width % group.weights.sizes[0]:
        raise Error(f"{path}: expected rows of whole blocks of {group.weights.sizes[0]} for {group.weights}, got rows of "
                    f"{width}: put the name in ignore")
    for what, scheme in (("weights", group.weights), ("activations", group.activations)):
        size = scheme.sizes[-1] if scheme is not None and scheme.sizes else width
        if scheme is not None and scheme.type == "int" and size < width and width % size:
            raise Error(f"{path}: {what} have groups of {size}, expected a size that divides {width} or exceeds it")
    if not module.weight.is_floating_point() or type(module.weight.data) is not torch.Tensor:
        raise Error(f"{path}.weight: expected a plain tensor of floats (quantize_() comes before fully_shard()), got "
                    f"{type(module.weight.data).__name__} of {module.weight.dtype}")


def quantize_(model: nn.Module, recipe: Recipe) -> str:
    """Quantizes linear and embedding layers in place, and returns the plan as text.

    ``model``: any; its nn.Linear and nn.Embedding that the recipe names become QuantizedLinear and QuantizedEmbedding:
    the same objects with the same parameters, hooks and names. ``recipe``: YAML, its file or a dict with ``version`` and
    ``quantize`` (groups, ignore, algorithm) as docs/recipes.md has them; ``targets`` match types, torch's paths, those
    of containers, and `re:` expressions. Call it before an optimizer is made where scales are learned, and before
    torch.compile(), fully_shard() and DistributedDataParallel.

    Layers that share a weight share its quantizer; they need one scheme. Raises Error, naming the layer or key: targets
    that match nothing, subclasses of both layers, other layers that are asked for by type or path, unknown keys.
    """
    if isinstance(model, Module) or not isinstance(model, nn.Module):
        raise Error(f"expected a float nn.Module, got {type(model).__name__}")
    groups, ignore = groups_of(recipe)
    modules = dict(model.named_modules())
    met: set[str] = set()
    chosen: dict[str, Group] = {}
    for path, module in modules.items():
        kind = type(module).__name__
        ignored = [entry for entry in ignore if matches(entry, path, kind)]
        found = _group_of(groups, path, module)
        met.update(ignored)
        if found is None or ignored:
            continue
        group, target = found
        if type(module) not in _LAYERS:
            _require_layer(path, module, target)
            continue
        met.update(t for t in group.targets if matches(t, path, kind))
        if group.weights is None and isinstance(module, nn.Embedding):
            raise Error(f"{path} (Embedding): its input are whole numbers, expected weights in its group")
        _require_widths(path, module, group)
        chosen[path] = group
    for target in [t for group in groups for t in group.targets] + list(ignore):
        if target not in met:
            layers = ", ".join(p for p, m in modules.items() if type(m) in _LAYERS) or "none"
            raise Error(f"'{target}' matches no layer that is left for it; Linear and Embedding layers are {layers[:300]}")
    quantizers = _weight_quantizers(modules, chosen)
    for path, group in chosen.items():
        module = modules[path]
        if isinstance(module, nn.Linear) and group.activations is not None:
            module.input_quantizer = ActivationQuantizer(group.activations, f"{path}.input_quantizer",
                                                         module.weight.device)
        else:
            module.input_quantizer = None
        module.weight_quantizer = quantizers.get(path)
        module.__class__ = _LAYERS[type(module)]
        above = modules[path.rpartition(".")[0]]
        if isinstance(above, nn.TransformerEncoderLayer):
            above.activation_relu_or_gelu = 0  # its fast path in evaluation would read the float weights
        for part in (module.input_quantizer, module.weight_quantizer):
            if part is not None:
                part.train(module.training)
    return plan(model)


def _weight_quantizers(modules: Mapping[str, nn.Module], chosen: Mapping[str, Group]) -> dict[str, WeightQuantizer]:
    """One for each weight, by the paths of the layers that use it."""
    quantizers: dict[str, WeightQuantizer] = {}
    first: dict[int, str] = {}
    for path, group in chosen.items():
        weight = modules[path].weight
        owner = first.setdefault(id(weight), path)
        theirs = chosen[owner].weights
        if theirs != group.weights:
            raise Error(f"{path} and {owner} share a weight: expected one scheme for both, got [{group.weights}] and "
                        f"[{theirs}]")
        if group.weights is None:
            continue
        if owner == path:
            quantizers[path] = WeightQuantizer(group.weights, f"{path}.weight_quantizer", weight)
        else:
            quantizers[path] = quantizers[owner]
    return quantizers


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    return ((path, m) for path, m in model.named_modules() if isinstance(m, _QUANTIZED))


def uncompiled(model: nn.Module) -> nn.Module:
    """The model that torch.compile() was given, whose modules have their own names."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def quantizers(model: nn.Module) -> Iterator[tuple[str, Quantizer]]:
    """The quantizers of a model with their names. Each has the switches ``observing`` and ``quantizing``."""
    return ((name, m) for name, m in model.named_modules() if isinstance(m, Quantizer))


def plan(model: nn.Module) -> str:
    """What quantize_() has made of a model: a line for each linear and embedding layer, and which share a weight."""
    rows = []
    first: dict[int, str] = {}
    for path, module in model.named_modules():
        if not isinstance(module, tuple(_LAYERS)):
            continue
        kind = next(k.__name__ for k in _LAYERS if isinstance(module, k))
        owner = first.setdefault(id(module.weight), path)
        shared = f"; shares its weight with {owner}" if owner != path else ""
        weights, inputs = "float", "float"
        if isinstance(module, _QUANTIZED):
            weights = str(module.weight_quantizer.scheme) if module.weight_quantizer is not None else "float"
            inputs = str(module.input_quantizer.scheme) if module.input_quantizer is not None else "float"
        if isinstance(module, nn.Embedding):
            inputs = "whole numbers"
        rows.append((path, kind, weights + shared, inputs))
    table = [("layer", "kind", "weights", "input"), *rows]
    widths = [max(len(row[i]) for row in table) for i in range(4)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in table)


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation without gradients; afterwards each module is in its mode again."""
    modes = [(m, m.training) for m in model.modules()]
    try:
        with torch.no_grad():
            model.eval()
            yield
    finally:
        for m, training in modes:
            m.training = training


def calibrate(model: Model, batches: Iterable[Any], count: int = 32,
              call: Optional[Callable[[Model, Any], Any]] = None) -> Model:
    """First ranges of activations, and where learned scales begin, from up to ``count`` batches, in evaluation and float.

    ``batches``: what a loader gives, or one tensor or dict of inputs; ``call(model, batch)`` runs the model on one;
    without it, dicts go in by name, and of tuples and lists the first element. Raises Error where no quantizer has a
    range afterwards.
    """
    if not list(_layers(model)):
        raise Error("expected a model that quantize_() has changed; a steelyard.torch.Module has calibrate() itself")
    observed = [q for _, q in quantizers(model) if isinstance(q, ActivationQuantizer)]
    weights = [q for _, q in quantizers(model) if isinstance(q, WeightQuantizer)]
    switches = [(q, q.quantizing) for q in weights]
    if isinstance(batches, (torch.Tensor, Mapping)):
        batches = [batches]
    seen = 0
    try:
        for q in observed:
            q.calibrating = True
        for q in weights:
            q.quantizing = False
        with evaluating(model):
            for batch in batches:
                if seen == count:
                    break
                seen += 1
                if call is not None:
                    call(model, batch)
                elif isinstance(batch, Mapping):
                    model(**batch)
                else:
                    model(batch[0] if isinstance(batch, (tuple, list)) else batch)
    finally:
        for q in observed:
            q.calibrating = False
        for q, quantizing in switches:
            q.quantizing = quantizing
    if seen == 0:
        raise Error("batches: expected at least one, got none")
    for name, q in quantizers(model):
        if isinstance(q, ActivationQuantizer) and not q.has_range():
            raise Error(f"{name} has seen nothing in {seen} batches: is its layer called in evaluation?")
    for q in observed:
        if q.scheme.learned:
            q.learn_from_range()
    return model


def parameter_groups(model: nn.Module, lr: float, weight_decay: float = 0.0, scale_lr: float = 0.01,
                     adaptive: bool = False) -> list[dict[str, Any]]:
    """Groups for an optimizer: the model's parameters, and learned scales and offsets without decay, as
    Module.parameter_groups() makes them."""
    learned = (p for _, q in quantizers(model) for p in q.parameters(recurse=False))
    return optimizer_groups(model.parameters(), learned, lr, weight_decay, scale_lr, adaptive)
