"""A torch model whose forward and backward pass are the library's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Iterator, Optional, Sequence, Union

import torch
from torch import nn

from .._error import Error
from .._recipe import Recipe, recipe_text
from ..network import Network, Verification
from ._arguments import batch_inputs, batches_of, call_inputs, examples_of
from ._engine import Engine, Wrapped, addresses_of, wrap
from ._function import Call, current_stream, torch_view
from ._groups import optimizer_groups
from ._nested import unflatten
from ._parts import Part, Quantizers, Watched, plain_settings

QUANTIZERS = "quantizers"  # what the quantizers of the network have is below this name
_HALVES = (torch.float16, torch.bfloat16)


def _split(name: str) -> tuple[str, str]:
    path, _, key = name.rpartition(".")
    return path, key


def _autocasts(device: torch.device) -> bool:
    try:
        return torch.is_autocast_enabled(device.type)
    except TypeError:  # before torch 2.4
        return torch.is_autocast_enabled() if device.type == "cuda" else torch.is_autocast_cpu_enabled()


class Module(nn.Module):
    """A model with the quantizers of a recipe, for a PyTorch training loop.

    ``model``: any nn.Module that torch's exporter takes; it stays as it is, and its parameters become this module's:
    the same objects in the same memory. ``example_inputs``: a tensor [N, ...], a tuple of them, or a dict by the
    names of forward()'s first parameters, for the export.
    ``recipe``: as for steelyard.Network; None trains in float. ``opset``: of the exported file, 14 to 17.
    ``leave_out``: names or types of modules that draw random numbers in training and shall not. ``tolerance``: how far
    the imported network's outputs on the example inputs may be from the model's, as a part of the largest; None: not
    compared.

    Parameters and buffers have torch's names. What quantizers have is below ``quantizers``: learned scales as
    parameters, ranges as buffers. A batch norm that the recipe folds (``bn_fold: frozen``) is gone, and the convolution
    in front of it has weights of its own. train(), eval(), state_dict(), copy.deepcopy() and pickle are as ever;
    training_mode, dtype and device are the model's. Errors are steelyard.Error.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Union[torch.Tensor, Sequence[torch.Tensor], Mapping[str, torch.Tensor]],
        recipe: Recipe = None,
        *,
        opset: int = 17,
        leave_out: Sequence[str] = (),
        tolerance: Optional[float] = 1e-3,
    ) -> None:
        super().__init__()
        if not isinstance(model, nn.Module) or isinstance(model, Module):
            raise Error(f"expected a float nn.Module, got {type(model).__name__}")
        if torch.is_inference_mode_enabled():
            raise Error("expected a Module to be made outside of inference_mode(), which knows no gradients to compare")
        inputs = examples_of(model, example_inputs)
        if isinstance(leave_out, str):
            raise Error(f"leave_out: expected a list of names, got the text {leave_out!r}")
        self._owned: dict[str, str] = {}  # torch's names by the network's, of what is no parameter of the model
        self._states: dict[str, str] = {}  # likewise of the network's buffers
        self._epoch = 0
        self._watched: Optional[Watched] = None
        self._require_free_names(model)
        try:
            self._wrapped, network = wrap(model, inputs, recipe_text(recipe), opset, leave_out, tolerance)
        except RecursionError as error:
            raise Error("the modules lie in each other deeper than Python's limit lets the exporter go") from error
        self._start(network)
        self._build(model)
        self._watched = Watched(model)
        self._settings = frozenset(plain_settings(model)) - set(vars(self))
        self.train(model.training)
        for path, module in model.named_modules():
            if path and not module.training:
                self._part(path).training = False

    # --- the tree of names

    def _require_free_names(self, model: nn.Module) -> None:
        taken = {*self.__dict__, *self._ATTACHED, QUANTIZERS, "forward"}
        for name in [*model._modules, *model._parameters, *model._buffers]:
            if name in taken:
                raise Error(f"the model has a part {name!r}, a name that is needed here: rename it")

    _ATTACHED = ("_wrapped", "_engine", "_norms_frozen", "_cached")  # attributes that come with a network

    def _start(self, network: Network) -> None:
        self._engine = Engine(network, self._wrapped, torch.device(self._wrapped.device))
        self._norms_frozen = False
        self._cached: Optional[tuple] = None

    def _part(self, path: str) -> nn.Module:
        part: nn.Module = self
        for key in path.split(".") if path else []:
            part = part._modules.setdefault(key, Part("Part"))
            if part is None:
                raise Error(f"the module's part {path} was taken away: make a new Module of the model")
        return part

    def _place_parameter(self, name: str, parameter: nn.Parameter) -> None:
        path, key = _split(name)
        self._part(path).register_parameter(key, parameter)

    def _place_buffer(self, name: str, buffer: torch.Tensor) -> None:
        path, key = _split(name)
        self._part(path).register_buffer(key, buffer)

    def _build(self, model: nn.Module) -> None:
        wrapped, engine = self._wrapped, self._engine
        plan = engine.network.plan()
        if plan:
            self._modules[QUANTIZERS] = Quantizers(plan)
        parameters = dict(model.named_parameters())
        present = set(engine.names)
        dropped = self._dropped(model, present)
        for path, module in model.named_modules():
            held = {f"{path}.{k}" for k in [*module._parameters, *module._buffers]}
            if path and not (held and held <= dropped):
                self._part(path).describe(module)
        for name in engine.names:
            owned = self._owned_name(name, parameters)
            if owned is not None:
                self._owned[name] = owned
        taken = set(self._owned.values())
        for name, parameter in parameters.items():
            if name not in dropped and name not in taken:
                self._place_parameter(name, parameter)
        for name, first in wrapped.shared.items():
            if first not in dropped and first not in taken:
                self._place_parameter(name, parameters[first])
        for name, owned in self._owned.items():
            theirs = [p for n, p in parameters.items() if _split(n)[0] == _split(owned)[0]]
            frozen = bool(theirs) and not any(p.requires_grad for p in theirs)
            self._place_parameter(owned, nn.Parameter(engine.values(name).clone(), requires_grad=not frozen))
        for name in engine.network._names[1]:
            if name in wrapped.statistics:
                self._states[name] = wrapped.statistics[name]
            elif name not in wrapped.constant_buffers:
                self._states[name] = f"{QUANTIZERS}.{name}"
        for name, state in self._states.items():
            self._place_buffer(state, engine.buffer(name))
        for name, value in wrapped.constants.items():
            self._place_buffer(name, value.clone())
        buffers = dict(model.named_buffers())
        for state in self._states.values():
            if state.endswith(".num_batches_tracked") and state in buffers:
                path, key = _split(state)
                self._part(path)._buffers[key].copy_(buffers[state])

    def _dropped(self, model: nn.Module, present: set[str]) -> set[str]:
        """Torch's names of what the network has folded into other parameters."""
        gone = {s.name for n, s in self._wrapped.sources.items() if n not in present}
        gone -= {n for name, s in self._wrapped.sources.items() if name in present for n in (s.names or (s.name,))}
        for name in list(gone):
            module = model.get_submodule(_split(name)[0])
            if not isinstance(module, nn.modules.batchnorm._BatchNorm):
                raise Error(f"the parameter {name} ({type(module).__name__}) is not in the imported network with the "
                            "model's weights: values of 0 or 1 may have been left out")
            path = _split(name)[0]
            gone |= {f"{path}.{k}" for k in module._buffers}
        return gone | set(self._wrapped.lost)

    def _owned_name(self, name: str, parameters: dict[str, nn.Parameter]) -> Optional[str]:
        """Torch's name of a parameter that only the network has; None where it is the model's."""
        wrapped = self._wrapped
        source = wrapped.sources.get(name)
        if source is None:
            if name in wrapped.constant_parameters:
                return None
            if name in wrapped.folded:
                return wrapped.folded[name]
            path, key = _split(name)
            weight = wrapped.sources.get(f"{path}.weight")
            if key == "bias" and weight is not None and weight.indices is None:
                return f"{_split(weight.name)[0]}.bias".lstrip(".")
            return f"{QUANTIZERS}.{name}"
        if source.indices is not None:
            return None
        values = self._engine.values(name)
        theirs = parameters[source.name].detach().to(values.device).reshape(-1)
        if torch.equal(values.reshape(-1), theirs[source.first:source.first + source.count]):
            return None
        if source.count != theirs.numel() or source.name in self._owned.values():
            return f"{QUANTIZERS}.{name}"
        return source.name

    def _lookup(self) -> tuple:
        """Where the tensors are, by name, without a walk over the tree in each pass."""
        if self._cached is None:
            def place(name: str) -> tuple[nn.Module, str]:
                path, key = _split(name)
                return self._part(path), key

            owned = set(self._owned.values())
            used = {n for k, s in self._wrapped.sources.items() if k in self._engine.names and k not in self._owned
                    for n in (s.names or (s.name,))}
            leaves = {n: place(n) for n in used if n not in owned}
            own = {n: place(t) for n, t in self._owned.items()}
            states = [place(state) for state in self._states.values()]
            views = [self._engine.buffer(name) for name in self._states]
            norms = {_split(t)[0] for n, t in self._states.items() if n in self._wrapped.statistics}
            constants = [(*place(n), v, n) for n, v in self._wrapped.constants.items()]
            for part, key, value, name in constants:
                self._require_constant(part._buffers[key], value, name)
            self._cached = (leaves, own, (states, views, addresses_of(views)),
                            [(n, self._part(n)) for n in sorted(norms)], constants)
        return self._cached

    # --- before each call

    def _adopt(self) -> None:
        """Buffers that somebody put in place of the network's go back into its memory."""
        _, _, (states, views, addresses), _, constants = self._lookup()
        found = addresses_of([part._buffers[key] for part, key in states])
        if found != addresses:
            for (part, key), view, is_at, belongs in zip(states, views, found, addresses):
                if is_at != belongs:
                    with torch.no_grad():
                        view.copy_(part._buffers[key])
                    part._buffers[key] = view
        for part, key, value, name in constants:
            if part._buffers[key]._version:
                self._require_constant(part._buffers[key], value, name)

    @staticmethod
    def _require_constant(held: torch.Tensor, value: torch.Tensor, name: str) -> None:
        if not torch.equal(held.detach().cpu(), value):
            raise Error(f"the buffer {name} was changed, which the network has as a constant: make a new Module of the "
                        "model")

    def _follow_modes(self) -> None:
        """train() and eval() of the module and of its batch norms."""
        network = self._engine.network
        if network.training != self.training:
            network.train(self.training)
        if self.training:
            for name in self._wrapped.dropouts:
                if not self._part(name).training:
                    raise Error(f"{name} evaluates while the module trains: expected dropout in the mode of the module; "
                                "leave_out makes one without it")
        norms = self._lookup()[3]
        frozen = False
        if self.training and norms:
            evaluating = [n for n, part in norms if not part.training]
            frozen = len(evaluating) == len(norms)
            if evaluating and not frozen:
                raise Error(f"{evaluating[0]} evaluates while other batch norms train: expected all of them in one mode")
        if frozen != self._norms_frozen:
            self._norms_frozen = frozen
            network.freeze_batch_norms(frozen)
            if not frozen:
                network.begin_epoch(self._epoch)  # which may freeze them itself

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_settings", ()):
            raise Error(f"{name} is a setting of the model that this Module was made of: change the model and make a new "
                        "Module of it")
        super().__setattr__(name, value)

    def train(self, mode: bool = True) -> "Module":
        self._require_same_settings()
        return super().train(mode)

    def _require_same_settings(self) -> None:
        if self._watched is not None:
            self._watched.require_same_settings()

    def _ready(self) -> Engine:
        if self._watched is not None:
            self._watched.require_unchanged()
        self._engine.set_threads()
        self._adopt()
        self._follow_modes()
        return self._engine

    def _bound(self) -> tuple[Engine, list[torch.Tensor]]:
        engine = self._ready()
        leaves, own = self._lookup()[:2]
        named = {n: part._parameters.get(key) for n, (part, key) in leaves.items()}
        owned = {n: part._parameters.get(key) for n, (part, key) in own.items()}
        return engine, engine.arguments(owned, named)

    # --- computing

    def forward(self, *inputs: torch.Tensor, **named: torch.Tensor) -> Any:
        """What the model gives: outputs of its structure, float32. Inputs [N, ...], in order or by the names that the
        model's forward() has, are float32, or whole numbers where the model takes indices, of any strides; under autocast
        also of half precision."""
        if named:
            inputs = tuple(call_inputs(self._engine.network.inputs(), inputs, named))
        with self._engine.network.context.lock:
            engine, arguments = self._bound()
            given = []
            for i, x in enumerate(inputs):
                if not isinstance(x, torch.Tensor):
                    raise Error(f"input {i}: expected a tensor, got {type(x).__name__}")
                given.append(x.float() if x.dtype in _HALVES and _autocasts(engine.device) else x)
            if self.training and self._wrapped.dropouts:  # a pass that checkpointing repeats has torch's state again
                engine.network.set_seed(int(torch.randint(2**63 - 1, (), device="cpu")))
            records = torch.is_grad_enabled() and any(t.requires_grad for t in [*given, *arguments])
            outputs = Call.apply(engine, records, len(given), *given, *arguments)
        return unflatten(list(outputs), self._wrapped.outputs)

    def calibrate(self, batches: Any, count: int = 32) -> "Module":
        """Ranges from the inputs of up to ``count`` batches, as verify() takes them, before or instead of training."""
        self._require_same_settings()
        engine, _ = self._bound()
        views = []
        for batch in batches_of(engine.network.inputs(), batches):
            if len(views) == count:
                break
            views.append(self._batch_views(batch))
        engine.network.calibrate_views(views, current_stream(engine.device))
        return self

    def _batch_views(self, batch: Any) -> list:
        """The inputs of a loader's batch."""
        names = self._engine.network.inputs()
        return [torch_view(x.detach(), f"the input '{n}'") for x, n in zip(batch_inputs(names, batch), names)]

    def begin_epoch(self, epoch: int) -> None:
        """The recipe's schedule for an epoch, from 0; Schedule calls it."""
        self._engine.network.begin_epoch(epoch)
        self._epoch = epoch
        self._norms_frozen = False

    @property
    def epoch(self) -> int:
        """The schedule's epoch, from 0."""
        return self._epoch

    @property
    def network(self) -> Network:
        """The network behind the module."""
        return self._engine.network

    def plan(self) -> str:
        """What is quantized and how, a row for each tensor; "" in float."""
        return self._engine.network.plan()

    def notes(self) -> list[str]:
        """What the import has to say, and which parameters went into others."""
        notes = self._engine.network.notes()
        own = [t for t in self._owned.values() if not t.startswith(f"{QUANTIZERS}.")]
        if own:
            notes.append(f"{', '.join(own)}: parameters of this module alone, which an optimizer of the model does not move: "
                         "make it of module.parameters()")
        if self._wrapped.lost:
            notes.append(f"{', '.join(self._wrapped.lost)}: went into {', '.join(self._wrapped.folded.values())}, which "
                         "are trained in their place")
        return notes

    def names(self) -> dict[str, str]:
        """Torch's paths of modules by the plan's names, which recipes' ``targets`` and ``ignore`` match."""
        return {_split(n)[0]: _split(s.name)[0] for n, s in self._wrapped.sources.items() if s.indices is None}

    def scales(self) -> Iterator[nn.Parameter]:
        """The learned scales and offsets of quantizers."""
        prefix = f"{QUANTIZERS}."
        return (p for n, p in self.named_parameters() if n.startswith(prefix))

    def parameter_groups(self, lr: float, weight_decay: float = 0.0, scale_lr: float = 0.01,
                         adaptive: bool = False) -> list[dict[str, Any]]:
        """Groups for an optimizer: the model's parameters, and learned scales without decay and with ``scale_lr * lr``.

        ``adaptive``, for Adam and its kin, whose steps have the size of the rate whatever the gradient: each scale has a
        group with the rate ``10 * lr * scale`` instead, as the command line's adamw. After calibrate(), which tells
        where scales begin."""
        return optimizer_groups(self.parameters(), self.scales(), lr, weight_decay, scale_lr, adaptive)

    # --- files

    def export(self, path: Union[str, "os.PathLike[str]"], format: Optional[str] = None) -> None:
        """Writes the integer model: .onnx, .safetensors, .tflite or .h (C), or the ``format`` onnx, safetensors, tflite or c."""
        self._require_same_settings()
        engine, _ = self._bound()
        engine.network.export(path, format)

    def verify(self, inputs: Any, model: Union[str, "os.PathLike[str]", None] = None) -> Verification:
        """Compares this network with the deployed one, tensor by tensor.

        ``inputs``: a tensor, a tuple of as many tensors as the model has inputs, a dict of them by name, or batches that
        begin with them (a tuple of other tensors is a list of batches). ``model``: a file that export() wrote as safetensors; None: what it would write.
        """
        self._require_same_settings()
        engine, _ = self._bound()
        results = [engine.network.verify_views(self._batch_views(batch), model, current_stream(engine.device))
                   for batch in batches_of(engine.network.inputs(), inputs)]
        if not results:
            raise Error("inputs: expected at least one batch, got none")
        worst = next((r for r in results if not r.same), results[-1])
        samples, codes = sum(r.samples for r in results), sum(r.codes for r in results)
        differing = sum(r.differing for r in results)
        text = worst.text
        if len(results) > 1:
            text = (f"{differing} of {codes} codes differ over {samples} samples in {len(results)} batches; of "
                    f"{'the last' if worst.same else 'the first that differs'}:\n{text}")
        return Verification(samples, codes, differing, all(r.same for r in results), text)

    # --- torch's habits

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for key in ("_engine", "_cached", "_watched", "_compiled_call_impl"):
            state.pop(key, None)
        state["_switched"] = self._engine.network.switched()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        switched = state.pop("_switched", {})  # pickles of earlier versions have none
        super().__setstate__(state)
        self._watched = None
        self._start(self._wrapped.network())
        for name, place in self._states.items():
            path, key = _split(place)
            part = self._part(path)
            view = self._engine.buffer(name)
            with torch.no_grad():
                view.copy_(part._buffers[key])
            part._buffers[key] = view
        self._engine.network.begin_epoch(self._epoch)
        self._engine.network.switch_as(switched)

    def _apply(self, fn, *arguments: Any, **options: Any) -> "Module":
        device = self._engine.device
        moved = fn(torch.zeros(1, device=device))
        if moved.dtype != torch.float32 or moved.device.type != device.type:
            raise Error(f"the module is float32 on {device}, got {moved.dtype} on {moved.device}: make a new Module of "
                        "a model there, and leave half precision to autocast around it")
        result = super()._apply(fn, *arguments, **options)
        self._cached = None
        return result

    def _replicate_for_data_parallel(self):
        raise Error("DataParallel copies modules without what is behind them: expected DistributedDataParallel")

    def extra_repr(self) -> str:
        return f"{self._wrapped.model_name}, {len(self._states)} buffers and {len(self._engine.names)} parameters in " \
               "the network"
