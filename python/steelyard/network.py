"""A network in the caller's own training loop, on NumPy's arrays and DLPack's."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
from ctypes import POINTER, byref, c_char_p, c_int64, c_size_t, c_void_p, cast
from typing import Any, Iterable, Mapping, Optional, Sequence, Union

from . import _library as c
from ._error import INVALID_INPUT, NOT_FINITE, Error
from ._recipe import Recipe, recipe_text, with_its_line
from ._tensor import Tensor, View, array, pointers, view

_FORMATS = {".onnx": "onnx", ".safetensors": "safetensors", ".tflite": "tflite", ".h": "c"}


def device_of(text: str) -> c.DLDevice:
    """"cpu", "cuda" or "cuda:1" as DLPack has it."""
    kind, _, index = str(text).partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise Error(f"expected a device cpu, cuda or cuda:N, got {text!r}")
    return c.DLDevice(c.CPU if kind == "cpu" else c.CUDA, int(index or 0))


def _path(path: Union[str, "os.PathLike[str]"]) -> bytes:
    encoded = os.fsencode(os.fspath(path))
    if b"\0" in encoded:
        raise Error(f"expected a path without NUL, got {path!r}", INVALID_INPUT)
    return encoded


@dataclasses.dataclass(frozen=True)
class Verification:
    """Whether the deployed model computes what was trained.

    ``codes`` of quantized tensors were compared over ``samples``; ``differing`` of them differ. ``same``: no tensor
    differs by more than the rounding of sums of floats. ``text``: a line for each tensor that differs, and the verdict.
    """

    samples: int
    codes: int
    differing: int
    same: bool
    text: str

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        return self.text


class Pass:
    """What one recorded forward pass keeps: ``outputs``, and a backward pass that may be run once or more."""

    def __init__(self, network: "Network", handle: c_void_p, outputs: tuple[Any, ...], inputs: int) -> None:
        self._network = network
        self._handle = handle
        self._inputs = inputs
        self.outputs = outputs

    def __del__(self) -> None:
        self.close()

    def __copy__(self) -> "Pass":
        raise Error("a Pass cannot be copied: run forward() again")

    def close(self) -> None:
        """Ends the pass; what it kept is free."""
        handle = getattr(self, "_handle", None)
        if handle:
            self._handle = None
            c.library.steelyard_pass_destroy(handle)

    def backward(self, *gradients: Any, stream: int = 0) -> None:
        """Adds the gradients of parameters and inputs, from those by the outputs: float32 of their shapes, None for
        zeros."""
        views = [None if g is None else view(g, f"gradient {i}") for i, g in enumerate(gradients)]
        self.backward_views(views, stream)

    def backward_views(self, views: list[Optional[View]], stream: int = 0) -> None:
        """backward() of views."""
        self._network.context.call("steelyard_pass_backward_outputs", self._handle, stream or None, len(views),
                                   pointers(views))

    def zero_gradients(self) -> None:
        """Forgets the gradients of the inputs."""
        self._network.context.call("steelyard_pass_zero_gradients", self._handle)

    def input_gradient(self, index: int) -> Any:
        """The gradient of an input, of its shape; None before the backward pass."""
        managed = self.input_gradient_pointer(index)
        return array(managed) if managed else None

    def input_gradient_pointer(self, index: int):
        managed = c.ManagedPointer()
        self._network.context.call("steelyard_pass_input_gradient", self._handle, index, byref(managed))
        return managed


class Network:
    """A quantized network from a float ONNX file and a recipe; the loss, the optimizer and the loop are the caller's.

    ``model``: a path, or the bytes of a file. ``recipe``: YAML, the path of a YAML file, or a dict, with ``version``,
    ``name``, ``seed``, ``quantize``, ``schedule`` and ``export``; None: the network stays in float. ``samples``: for
    inputs whose sizes the file leaves free, the shape of one sample in the file's layout by the input's name.
    ``batch_axes``: likewise which dimension is the batch. ``output``: a value of the file in place of its outputs.
    ``threads``: of the CPU; 0 for OpenMP's number.

    It begins in evaluation. One thread at a time computes with it; others wait. Every method raises Error.
    """

    def __init__(
        self,
        model: Union[str, "os.PathLike[str]", bytes],
        recipe: Recipe = None,
        *,
        samples: Optional[Mapping[str, Sequence[int]]] = None,
        batch_axes: Optional[Mapping[str, int]] = None,
        output: Optional[str] = None,
        device: str = "cpu",
        threads: int = 0,
    ) -> None:
        self._handle = c_void_p()
        self.context = c.Context()
        self._memory: dict[str, View] = {}  # what parameters were set to
        self._last: Optional[Pass] = None
        self.training = False
        self._switched: dict[str, tuple[bool, ...]] = {}  # since the last begin_epoch(), by the method
        if threads:
            self.context.set_threads(threads)
        d = c.NetworkDescriptor()
        c.library.steelyard_network_descriptor_init(byref(d), ctypes.sizeof(d))
        if isinstance(model, (bytes, bytearray, memoryview)):
            held = bytes(model)
            d.onnx = cast(c_char_p(held), c_void_p)
            d.onnx_bytes = len(held)
        else:
            d.onnx_path = _path(model)
        self.recipe = recipe_text(recipe)
        d.recipe = self.recipe.encode()
        if output is not None:
            d.output = output.encode()
        d.device = device_of(device)
        shapes = {name.encode(): (c_int64 * len(shape))(*shape) for name, shape in (samples or {}).items()}
        d.samples = (c.SampleShape * max(len(shapes), 1))(
            *(c.SampleShape(name, len(shape), cast(shape, POINTER(c_int64))) for name, shape in shapes.items()))
        d.sample_count = len(shapes)
        axes = {name.encode(): axis for name, axis in (batch_axes or {}).items()}
        d.batch_axes = (c.BatchAxis * max(len(axes), 1))(*(c.BatchAxis(*item) for item in axes.items()))
        d.batch_axis_count = len(axes)
        try:
            self.context.call("steelyard_network_create", byref(d), byref(self._handle))
        except Error as error:
            raise Error(with_its_line(str(error), self.recipe), error.status) from None
        self._names = [self._listed(kind) for kind in (c.PARAMETERS, c.BUFFERS, c.INPUTS, c.OUTPUTS)]

    def __del__(self) -> None:
        self.close()

    def __enter__(self) -> "Network":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __copy__(self) -> "Network":
        raise Error("a Network cannot be copied: save() and load() take its state into another one")

    def close(self) -> None:
        """Ends the network. Views of its parameters and passes that wait keep their memory."""
        self._last = None
        if getattr(self, "_handle", None) is None:
            return
        with self.context.lock:  # after the call that another thread is in
            handle, self._handle = self._handle, None
            if handle:
                c.library.steelyard_network_destroy(handle)

    def _call(self, function: str, *arguments: Any) -> None:
        with self.context.lock:  # another thread may close the network before
            if not self._handle:
                raise Error("expected an open network, got one that was closed")
            self.context.call(function, self._handle, *arguments)

    def _text(self, function: str, *arguments: Any) -> str:
        text = c_char_p()
        with self.context.lock:  # the text lives until the next call
            self._call(function, *arguments, byref(text))
            return (text.value or b"").decode()

    def _listed(self, kind: int) -> list[str]:
        count = c_size_t()
        self._call("steelyard_network_count", kind, byref(count))
        return [self._text("steelyard_network_name", kind, i) for i in range(count.value)]

    def pointer(self, function: str, name: str):
        """A view that the library gives by a name, for the one who ends it; NULL where there is none."""
        managed = c.ManagedPointer()
        self._call(function, name.encode(), byref(managed))
        return managed

    # --- what it is

    def plan(self) -> str:
        """What is quantized and how, a row for each tensor; "" of a network in float."""
        return self._text("steelyard_network_plan", c.TEXT)

    def plan_json(self) -> dict[str, Any]:
        """The plan as {"rows": [...], "notes": [...]}; {} of a network in float."""
        text = self._text("steelyard_network_plan", c.JSON)
        return json.loads(text) if text else {}

    def notes(self) -> list[str]:
        """What the import has to say."""
        return self._text("steelyard_network_notes").splitlines()

    def inputs(self) -> list[str]:
        """The names of the inputs, in the file's order."""
        return list(self._names[c.INPUTS])

    def outputs(self) -> list[str]:
        """The names of the outputs, in the file's order."""
        return list(self._names[c.OUTPUTS])

    def parameters(self) -> dict[str, Any]:
        """Views of the parameters by name, learned scales among them: what is written there is used by the next call."""
        return {n: array(self.pointer("steelyard_network_parameter", n)) for n in self._names[c.PARAMETERS]}

    def buffers(self) -> dict[str, Any]:
        """Views of statistics of batch norms and of states of quantizers, by name."""
        return {n: array(self.pointer("steelyard_network_buffer", n)) for n in self._names[c.BUFFERS]}

    def gradients(self) -> dict[str, Any]:
        """Views of the parameters' gradients, of those that have one: sums since the last zero_gradients()."""
        return {n: array(v) for n, v in self.gradient_pointers().items()}

    def gradient_pointers(self) -> dict[str, Any]:
        """The same views as the library gives them, for the one who ends them."""
        names = self._names[c.PARAMETERS]
        managed = (c.ManagedPointer * len(names))()
        self._call("steelyard_network_gradients", len(names), managed)
        return {n: v for n, v in zip(names, managed) if v}

    def zero_gradients(self) -> None:
        """Forgets the parameters' gradients."""
        self._call("steelyard_network_zero_gradients")

    def set_parameter(self, name: str, memory: Any) -> None:
        """From now on the parameter is that array's memory: dense, of its shape and dtype, aligned to 64 bytes."""
        self.set_parameter_view(name, view(memory, name))

    def set_parameter_view(self, name: str, memory: View) -> None:
        self._call("steelyard_network_set_parameter", name.encode(), byref(memory.tensor))
        self._memory[name] = memory

    def set_trainable(self, name: str, trainable: bool = True) -> None:
        """Whether backward passes compute that parameter's gradient."""
        self._call("steelyard_network_set_trainable", name.encode(), int(trainable))

    # --- computing

    def train(self, mode: bool = True) -> "Network":
        """Batch statistics, dropout and observers are active, or not."""
        self._call("steelyard_network_set_training", int(mode))
        self.training = bool(mode)
        return self

    def eval(self) -> "Network":
        """train(False)."""
        return self.train(False)

    def __call__(self, *inputs: Any) -> Any:
        return self.forward(*inputs)

    def forward(self, *inputs: Any) -> Any:
        """The output [N, ...] of the inputs [N, ...], in the file's order and layouts; several as a tuple.

        Inputs are float32, those of whole numbers int64 or int32 as well; of any strides. While training it keeps what
        backward() needs.
        """
        views = [view(x, f"input {i}") for i, x in enumerate(inputs)]
        if self.training:
            self._last = self.record(*inputs)
            outputs = self._last.outputs
        else:
            outputs = tuple(array(m) for m in self.run(views, False, None)[0])
        return outputs[0] if len(outputs) == 1 else outputs

    def backward(self, *gradients: Any) -> None:
        """Adds the gradients of the last forward() while training, from those by its outputs."""
        if self._last is None:
            raise Error("expected a forward pass while training before backward()")
        self._last.backward(*gradients)

    def record(self, *inputs: Any, input_gradients: bool = False) -> Pass:
        """A forward pass that can be run back, also beside others; with the inputs' gradients, if asked for."""
        views = [view(x, f"input {i}") for i, x in enumerate(inputs)]
        managed, handle = self.run(views, True, input_gradients)
        return Pass(self, handle, tuple(array(m) for m in managed), len(inputs))

    def run(self, views: list[View], records: bool, input_gradients: Optional[bool], stream: int = 0):
        """forward() of views: DLPack's pointers of the outputs, and the handle of a pass or None."""
        managed = (c.ManagedPointer * len(self._names[c.OUTPUTS]))()
        handle = c_void_p()
        self._call("steelyard_network_forward_outputs", stream or None, len(views), pointers(views),
                   int(bool(input_gradients)), len(managed), managed, byref(handle) if records else None)
        return list(managed), (handle if records else None)

    def require_finite(self) -> None:
        """Raises Error with status 5 where quantizers met NaN or infinite values since somebody asked."""
        self._call("steelyard_network_require_finite")

    def calibrate(self, batches: Iterable[Any], stream: int = 0) -> None:
        """Ranges from data: ``batches`` of an array each, or of a tuple of arrays for several inputs."""
        given = [b if isinstance(b, (tuple, list)) else (b,) for b in batches]
        views = [[view(x, f"batch {b}, input {i}") for i, x in enumerate(batch)] for b, batch in enumerate(given)]
        self.calibrate_views(views, stream)

    def calibrate_views(self, batches: list[list[View]], stream: int = 0) -> None:
        width = len(self._names[c.INPUTS])
        for i, batch in enumerate(batches):
            if len(batch) != width:
                raise Error(f"batch {i}: expected {width} inputs, got {len(batch)}")
        flat = [x for batch in batches for x in batch]
        self._call("steelyard_network_calibrate", stream or None, len(batches), width, pointers(flat))

    def begin_epoch(self, epoch: int) -> None:
        """The recipe's schedule for an epoch, from 0; a network begins in the first."""
        self._call("steelyard_network_begin_epoch", epoch)
        self._switched.clear()

    def set_observing(self, observing: bool) -> None:
        """Whether observers follow values, until the next begin_epoch()."""
        self._call("steelyard_network_set_observing", int(observing))
        self._switched["set_observing"] = (observing,)

    def set_quantizing(self, weights: bool, activations: bool) -> None:
        """Whether weights and activations are quantized, until the next begin_epoch()."""
        self._call("steelyard_network_set_quantizing", int(weights), int(activations))
        self._switched["set_quantizing"] = (weights, activations)

    def switch_as(self, switched: dict[str, tuple[bool, ...]]) -> None:
        """Sets the switches as another network's were that gave ``switched()``."""
        for method, arguments in switched.items():
            getattr(self, method)(*arguments)

    def switched(self) -> dict[str, tuple[bool, ...]]:
        """What set_observing() and set_quantizing() have set since the last begin_epoch()."""
        return dict(self._switched)

    def freeze_batch_norms(self, frozen: bool = True) -> None:
        """Whether batch norms keep their statistics, until the next begin_epoch()."""
        self._call("steelyard_network_freeze_batch_norms", int(frozen))

    def set_seed(self, seed: int) -> None:
        """Where the random numbers of dropout begin anew, from 0 to 2**64 - 1; before, that is the recipe's seed."""
        if not 0 <= seed < 2**64:
            raise Error(f"expected a seed from 0 to 2**64 - 1, got {seed!r}", INVALID_INPUT)
        self._call("steelyard_network_set_seed", seed)

    # --- files

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a checkpoint (safetensors) of parameters, buffers and random numbers."""
        self._call("steelyard_network_save", _path(path))

    def load(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Reads one of this network into the memory that the parameters have."""
        self._call("steelyard_network_load", _path(path))

    def export(self, path: Union[str, "os.PathLike[str]"], format: Optional[str] = None) -> None:
        """Writes the integer model: "onnx", "safetensors", "tflite" or "c", which the name's end says where ``format``
        does not; which of them the recipe's ``export.profile`` has, docs/exports.md says."""
        if format is None:
            suffix = os.path.splitext(os.fspath(path))[1]
            format = _FORMATS.get(suffix)
            if format is None:
                raise Error(f"expected a name that ends in {', '.join(_FORMATS)}, or a format, got {os.fspath(path)!r}")
        self._call("steelyard_network_export", format.encode(), _path(path))

    def verify(self, *inputs: Any, model: Union[str, "os.PathLike[str]", None] = None) -> Verification:
        """Compares the trained network with the deployed one on the inputs [N, ...], tensor by tensor.

        ``model``: a file that export() wrote as "safetensors"; None: what it would write. A network in float has no codes:
        its outputs are compared.
        """
        return self.verify_views([view(x, f"input {i}") for i, x in enumerate(inputs)], model)

    def verify_views(self, views: list[View], model: Union[str, "os.PathLike[str]", None] = None,
                     stream: int = 0) -> Verification:
        result = c.RawVerification()
        c.library.steelyard_verification_init(byref(result), ctypes.sizeof(result))
        text = self._text("steelyard_network_verify", stream or None, len(views), pointers(views),
                          None if model is None else _path(model), byref(result))
        return Verification(result.samples, result.codes, result.differing, bool(result.same), text.rstrip("\n"))


__all__ = ["INVALID_INPUT", "NOT_FINITE", "Network", "Pass", "Tensor", "Verification"]
