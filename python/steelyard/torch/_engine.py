"""The network behind a Module, and which of its parameters is which of torch's."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Optional, Sequence

import numpy as np
import torch
from torch import nn

from .._error import Error
from .._recipe import uses
from .._tensor import array
from ..network import Network
from ._checks import (Gradients, OtherBatch, require_one_way, require_same, require_still_buffers, require_wrappable)
from ._export import Marks, onnx_of, with_values
from ._function import torch_tensor, torch_view
from ._nested import flatten
from ._random import random_modules, set_dropout

_COUNTER = "num_batches_tracked"
_ALIGNMENT = 64  # bytes, of memory that the library takes


@dataclasses.dataclass
class Source:
    """Where a parameter of the network has its elements: ``count`` of the torch parameter ``name`` from ``first`` on;
    or, where they are in another order or of several, ``names`` one after another at ``indices``."""

    name: str
    shape: tuple[int, ...]
    first: int = 0
    count: int = 0
    names: tuple[str, ...] = ()
    indices: Optional[torch.Tensor] = None


@dataclasses.dataclass
class Wrapped:
    """What a Module keeps of the model that it was made of, and what it is made of again when it is copied."""

    packed: bytes  # the ONNX file with marks in place of weights
    recipe: str
    device: str
    sources: dict[str, Source]  # by the network's names
    statistics: dict[str, str]  # torch's names of buffers by the network's
    constants: dict[str, torch.Tensor]  # other buffers, which the file has as they were
    outputs: Any  # spec of the outputs
    model_name: str
    shared: dict[str, str]  # other names of a parameter, and its first one
    constant_parameters: set[str]  # of the network in float: numbers of the file that are nobody's weights
    constant_buffers: set[str]
    folded: dict[str, str]  # torch's names for the network's of what the import computed from several parameters
    lost: list[str]  # torch's names of the parameters that went into those
    dropouts: list[str]  # torch's names of the modules that drop values in training
    padding: dict[str, int]  # rows of embeddings that do not train, by torch's names of their weights

    def network(self, onnx: Optional[bytes] = None) -> Network:
        return Network(zlib.decompress(self.packed) if onnx is None else onnx, self.recipe, device=self.device)


def _norms(model: nn.Module) -> dict[str, nn.Module]:
    return {n: m for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)}


def _source_of(marks: Marks, marked: np.ndarray, real: np.ndarray, values: np.ndarray) -> Optional[Source]:
    """What the marks in a parameter of the network say; None where it is no selection of the model's ``values``, which
    its ``real`` ones tell."""
    try:
        indices = marks.read(marked)
    except ValueError:
        return None
    if indices is None or not np.array_equal(values[indices], real.reshape(-1), equal_nan=True):
        return None
    shape = tuple(marked.shape)
    k = marks.tensor_at(indices[0])
    first = int(indices[0] - marks.offsets[k])
    if indices[-1] < marks.offsets[k + 1] and (np.diff(indices) == 1).all():
        return Source(marks.names[k], shape, first, len(indices))
    used = sorted({marks.tensor_at(i) for i in np.unique(indices)} if indices.size < 4096 else
                  set(np.searchsorted(marks.offsets, indices, side="right") - 1))
    places = np.zeros_like(indices)
    begin = 0
    for k in used:
        inside = (indices >= marks.offsets[k]) & (indices < marks.offsets[k + 1])
        places[inside] = indices[inside] - marks.offsets[k] + begin
        begin += int(marks.offsets[k + 1] - marks.offsets[k])
    return Source("", shape, names=tuple(marks.names[int(k)] for k in used), indices=torch.from_numpy(places))


def _taken(sources: dict[str, Source], parameters: dict[str, nn.Parameter]) -> dict[str, torch.Tensor]:
    """Which elements of torch's parameters the network has as they are: bool, in one dimension."""
    taken = {n: torch.zeros(p.numel(), dtype=torch.bool, device="cpu") for n, p in parameters.items()}
    for source in sources.values():
        if source.indices is None:
            if source.name in taken:
                taken[source.name][source.first:source.first + source.count] = True
            continue
        parts = [taken[n] for n in source.names]
        flat = torch.zeros(sum(t.numel() for t in parts), dtype=torch.bool, device="cpu")
        flat[source.indices.reshape(-1)] = True
        for part, piece in zip(parts, flat.split([t.numel() for t in parts])):
            part |= piece
    return taken


def _used_elsewhere(model: nn.Module, inputs: Sequence[torch.Tensor], taken: dict[str, torch.Tensor]) -> list[str]:
    """Parameters with elements that the outputs depend on, and that are none of the network's as they are."""
    parameters = {n: p for n, p in model.named_parameters() if not bool(taken[n].all())}
    if not parameters:
        return []
    for p in parameters.values():
        p.requires_grad_(True)
    with torch.enable_grad():
        outputs, _ = flatten(model(*inputs), "the output")
        total = sum(o.sum() for o in outputs if o.requires_grad)
    if not isinstance(total, torch.Tensor):
        return []
    gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
    return [n for n, g in zip(parameters, gradients)
            if g is not None and (not bool(taken[n].any()) or bool(g.reshape(-1)[~taken[n]].any()))]


def _require_joined(model: nn.Module, names: Sequence[str]) -> None:
    """Raises Error for parameters that the import computes with, other than the biases of recurrent layers, of which it
    adds two: training would move the result, whatever it was computed from."""
    for name in names:
        path, _, key = name.rpartition(".")
        module = model.get_submodule(path)
        if not isinstance(module, (nn.RNNBase, nn.RNNCellBase)) or not key.startswith("bias_"):
            raise Error(f"the parameter {name} is computed with before a layer uses it (a mask, a norm, a product or a sum "
                        "of weights), or is a single number: a trace has the result alone, which training would move in its "
                        "place, or none: expected parameters that layers use as they are. Merge it first "
                        "(remove_parametrizations, a merged adapter), or wrap the part of the model without it")
        other = getattr(module, key.replace("_ih", "_hh") if "_ih" in key else key.replace("_hh", "_ih"))
        if other.requires_grad != getattr(module, key).requires_grad:
            raise Error(f"the parameter {name}: expected both biases of {type(module).__name__} to train, or none: their "
                        "sum is one parameter of the network")


def _folded(tracer: Network, real: Network, without: set[str], model: nn.Module) -> dict[str, str]:
    """The parameters that the import has computed from the model's, with torch's names for them: those that other
    weights change."""
    marked, values = tracer.parameters(), real.parameters()
    paths = {path.replace(".", "_"): path for path, _ in model.named_modules()}
    folded = {}
    for name in sorted(without):
        if name in values and np.array_equal(marked[name], values[name], equal_nan=True):
            continue
        path, _, key = name.rpartition(".")
        folded[name] = f"{paths.get(path, path)}.{key}"
    return folded


def wrap(model: nn.Module, inputs: Sequence[torch.Tensor], recipe: str, opset: int, leave_out: Sequence[str],
         tolerance: Optional[float]) -> tuple[Wrapped, Network]:
    """Exports and imports a model, and finds its weights in the network. The model stays as it is."""
    import copy

    require_wrappable(model)
    devices = {p.device for p in [*model.parameters(), *model.buffers()]}
    if len(devices) > 1:
        raise Error(f"expected the model on one device, got {', '.join(sorted(map(str, devices)))}")
    device = next(iter(devices), torch.device("cpu"))
    twin = copy.deepcopy(model).cpu()
    inputs = [x.detach().cpu() for x in inputs]
    buffers = {n: b.detach().clone() for n, b in twin.named_buffers()}
    off = [n for n, m in twin.named_modules() if twin.training and not m.training]
    drew = random_modules(twin, inputs)
    dropouts = set_dropout(twin, drew, [*leave_out, *(n for n in off if n in drew)])
    require_still_buffers(twin, buffers)
    with torch.no_grad():
        for n, b in twin.named_buffers():  # the pass of random_modules() was a training one
            b.copy_(buffers[n])
    trained = [m for m in twin.modules() if m.training]
    for m in trained:
        m.eval()
    with torch.no_grad():
        expected, outputs = flatten(twin(*inputs), "the output")
    require_one_way(twin, inputs, drew, expected, outputs)
    gradients = None if tolerance is None else Gradients(twin, inputs)
    other = OtherBatch(twin, inputs)
    for m in trained:
        m.train()

    norms = _norms(twin)
    parameters = dict(twin.named_parameters())
    marked: dict[str, torch.Tensor] = dict(parameters)
    for path, norm in norms.items():
        for key in ("running_mean", "running_var"):
            if getattr(norm, key) is not None:
                marked[f"{path}.{key}" if path else key] = getattr(norm, key)
    marks = Marks(marked)
    values = np.concatenate([np.zeros(0, np.float32),
                             *(t.detach().contiguous().numpy().reshape(-1) for t in marked.values())])
    marks.write(marked)
    with_marks = onnx_of(twin, inputs, opset)

    real = with_values(with_marks, marks, values)
    tracer, in_float = Network(with_marks), Network(real, threads=torch.get_num_threads())
    if tracer._names != in_float._names:
        raise Error("the imported network depends on values of the weights, such as zeros and ones that are left out: "
                    "expected a trained model")
    sources: dict[str, Source] = {}
    in_real = in_float.parameters()
    for name, held in tracer.parameters().items():
        source = _source_of(marks, held, in_real[name], values)
        if source is not None:
            sources[name] = source
    statistics: dict[str, str] = {}
    in_real = in_float.buffers()
    for name, held in tracer.buffers().items():
        source = _source_of(marks, held, in_real[name], values) if held.dtype == np.float32 else None
        if source is None:
            continue
        if source.name in parameters or source.indices is not None:
            raise Error(f"the parameter {source.name or source.names[0]} is a constant of the imported network "
                        f"({name}), which cannot be trained")
        statistics[name] = source.name
    for name, place in list(statistics.items()):  # the count of batches beside each mean
        path, _, key = name.rpartition(".")
        counter = place[:-len("running_mean")] + _COUNTER
        if key == "running_mean" and counter in buffers:
            statistics[f"{path}.{_COUNTER}"] = counter
    without = {n for n in tracer._names[0] if n not in sources}
    folded = _folded(tracer, in_float, without, twin)
    for m in trained:
        m.eval()
    taken = _taken(sources, parameters)
    used = _used_elsewhere(twin, inputs, taken)
    _require_joined(model, used)
    lost = [n for n in used if not bool(taken[n].any())]
    constant_buffers = {n for n in tracer._names[1] if n not in statistics}
    tracer.close()
    wrapped = Wrapped(
        packed=zlib.compress(with_marks, 1), recipe=recipe, device=str(device), sources=sources, statistics=statistics,
        constants={n: b for n, b in buffers.items() if n not in marked and not _is_counter(n, norms)},
        outputs=outputs, model_name=type(model).__name__, shared=_shared(model),
        constant_parameters=without - set(folded), constant_buffers=constant_buffers, folded=folded, lost=lost,
        dropouts=dropouts, padding=_padding(model))
    if tolerance is not None:
        require_same(in_float, inputs, expected, tolerance)
        other.require_same(in_float, tolerance)
        gradients.require_same(in_float, sources, taken, wrapped.padding)
    return wrapped, wrapped.network(real)


def _is_counter(name: str, norms: dict[str, nn.Module]) -> bool:
    path, _, last = name.rpartition(".")
    return last == _COUNTER and path in norms


def _padding(model: nn.Module) -> dict[str, int]:
    return {f"{n}.weight" if n else "weight": m.padding_idx for n, m in model.named_modules()
            if isinstance(m, nn.Embedding) and m.padding_idx is not None}


def _shared(model: nn.Module) -> dict[str, str]:
    first: dict[int, str] = {}
    shared = {}
    for path, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if parameter is None:
                continue
            name = f"{path}.{key}" if path else key
            known = first.setdefault(id(parameter), name)
            if known != name:
                shared[name] = known
    return shared


class Engine:
    """A network whose parameters are torch's tensors.

    ``leaves``: the tensors of the parameters by torch's names, in the order in which Call takes them; ``made``: those
    that are computed from them before each pass, because the network has their elements in another order.
    """

    def __init__(self, network: Network, wrapped: Wrapped, device: torch.device) -> None:
        self.network = network
        self.wrapped = wrapped
        self.device = device
        self._bound: dict[str, tuple] = {}  # memory by the network's names
        self._leaf_shapes: dict[str, torch.Size] = {}  # of torch's parameters, as they were first
        self._trainable: dict[str, bool] = {}
        self._threads = -1
        self._arguments: list[torch.Tensor] = []
        self._seen: Any = None  # of what the last arguments were made; None where they are made in each pass
        self.names: list[str] = []  # of parameters in the network
        self._slots: list[list[tuple[str, Source]]] = []
        for name in network._names[0]:
            self.names.append(name)

    def values(self, name: str) -> torch.Tensor:
        """A view of a parameter of the network."""
        return torch_tensor(self.network.pointer("steelyard_network_parameter", name))

    def buffer(self, name: str) -> torch.Tensor:
        """A view of a buffer of the network."""
        return torch_tensor(self.network.pointer("steelyard_network_buffer", name))

    def set_threads(self) -> None:
        threads = torch.get_num_threads()
        if threads != self._threads:
            self.network.context.set_threads(threads)
            self._threads = threads

    def bind(self, name: str, tensor: torch.Tensor) -> None:
        """The parameter is that memory from now on."""
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        if self._bound.get(name) != place:
            self.network.set_parameter_view(name, torch_view(tensor, name))
            self._bound[name] = place

    def set_trainable(self, name: str, trainable: bool) -> None:
        if self._trainable.get(name, True) != trainable:
            self.network.set_trainable(name, trainable)
            self._trainable = {**self._trainable, name: trainable}  # passes keep the one before

    def arguments(self, owned: dict[str, torch.Tensor], named: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Binds all parameters, and returns the tensors that Call takes.

        ``owned``: parameters by the network's names; ``named``: those by torch's, of which sources tell.
        """
        seen = self._look_at([*owned.values(), *named.values()])
        if seen is not None and seen == self._seen:
            return self._arguments
        arguments: list[torch.Tensor] = []
        slots: list[list[tuple[str, Source]]] = []
        own_memory = False
        of_leaf: dict[str, int] = {}
        for name, tensor in [*owned.items(), *named.items()]:
            if tensor is None:
                raise Error(f"the parameter {name} was taken away: make a new Module of the model")
            expected = self._leaf_shapes.setdefault(name, tensor.shape)
            if tensor.shape != expected:
                raise Error(f"the parameter {name}: expected {list(expected)}, as it was, got {list(tensor.shape)}")
        for name in self.names:
            source = None if name in owned else self.wrapped.sources.get(name)
            if name in owned:
                own = owned[name].contiguous()
                own_memory |= own is not owned[name]
                self.bind(name, own)
                arguments.append(own)
                slots.append([(name, Source(name, tuple(own.shape), 0, own.numel()))])
                self.set_trainable(name, owned[name].requires_grad)
            elif source is None:
                self.set_trainable(name, False)  # a constant of the model
            else:
                leaf = named[source.name] if source.indices is None else None
                usable = leaf is not None and leaf.is_contiguous() and \
                    (leaf.data_ptr() + 4 * source.first) % _ALIGNMENT == 0
                if usable:
                    if self._bound.get(name, (0,))[0] != leaf.data_ptr() + 4 * source.first:
                        flat = leaf.detach().reshape(-1)
                        self.bind(name, flat[source.first:source.first + source.count].reshape(source.shape))
                    if source.name not in of_leaf:
                        of_leaf[source.name] = len(arguments)
                        arguments.append(leaf)
                        slots.append([])
                    slots[of_leaf[source.name]].append((name, source))
                    self.set_trainable(name, leaf.requires_grad)
                else:
                    made = _made(source, named)
                    own_memory = True
                    self.bind(name, made)
                    arguments.append(made)
                    slots.append([(name, Source(name, source.shape, 0, made.numel()))])
                    self.set_trainable(name, made.requires_grad)
        self._slots = slots
        self._shapes = [a.shape for a in arguments]
        self._arguments = arguments
        self._seen = None if own_memory else self._look_at([*owned.values(), *named.values()])
        return arguments

    def _look_at(self, tensors: list[Optional[torch.Tensor]]) -> Any:
        """What tells that the parameters are those of the last pass: arguments() keeps them, so that ids are theirs."""
        if any(t is None for t in tensors):
            return None
        return (self._trainable, [*map(id, tensors)], addresses_of(tensors), [t.requires_grad for t in tensors],
                [*map(torch.Tensor.size, tensors)], [*map(torch.Tensor.stride, tensors)])

    def plan_of(self) -> Any:
        """What gradients() needs to know of the last arguments()."""
        return self._slots, self._shapes, self._trainable

    def begin_backward(self, plan: Any) -> None:
        """What trains is what trained at that time: a pass has what its own gradients need."""
        trainable = plan[2]
        if trainable is not self._trainable:
            for name in {**self._trainable, **trainable}:
                self.set_trainable(name, trainable.get(name, True))

    def gradients(self, plan: Any, needed: Sequence[bool]) -> list[Optional[torch.Tensor]]:
        """The gradients of the tensors that arguments() gave at that time, where they are needed."""
        slots, shapes, _ = plan
        given = {n: torch_tensor(v) for n, v in self.network.gradient_pointers().items()}
        return [_joined(parts, shape, given, self.wrapped.padding) if wanted else None
                for parts, shape, wanted in zip(slots, shapes, needed)]


def _joined(parts: list[tuple[str, Source]], shape: torch.Size, given: dict[str, torch.Tensor],
            padding: dict[str, int]) -> Optional[torch.Tensor]:
    """The gradient of one of torch's tensors from those of the network's parameters that have elements of it."""
    whole = None
    for name, source in parts:
        part = given.get(name)
        if part is None:
            continue
        if len(parts) == 1 and source.count == shape.numel():
            whole = part if part.shape == shape else part.reshape(shape)
            break
        if whole is None:
            whole = torch.zeros(shape, dtype=part.dtype, device=part.device)
        whole.reshape(-1)[source.first:source.first + source.count] += part.reshape(-1)
    row = padding.get(parts[0][1].name)
    if whole is not None and row is not None:
        whole[row].zero_()
    return whole


def addresses_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Where their elements begin, looked up as fast as each pass needs it."""
    return [*map(torch.Tensor.data_ptr, tensors)]


def _made(source: Source, named: dict[str, torch.Tensor]) -> torch.Tensor:
    """A parameter of the network as torch computes it, in memory of its own."""
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        if source.indices is None:
            flat = named[source.name].reshape(-1)[source.first:source.first + source.count]
            return flat.clone().reshape(source.shape)
        flat = torch.cat([named[n].reshape(-1) for n in source.names])
        return flat[source.indices.to(flat.device)].reshape(source.shape)


__all__ = ["Engine", "Source", "Wrapped", "addresses_of", "array", "uses", "wrap"]
