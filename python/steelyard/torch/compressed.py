"""Files of models that quantize_() has changed: safetensors as compressed-tensors lays them out, and ONNX."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import struct
from typing import Any, Optional, Sequence, Union

import numpy as np
import torch
from torch import nn

from .. import _library as c
from .._error import Error
from . import _mxfp4, _ops
from ._scheme import Scheme
from .module import Module
from .quantize import QuantizedEmbedding, QuantizedLinear, _layers, evaluating, uncompiled

Path = Union[str, "os.PathLike[str]"]
_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
           torch.int32: "I32", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}
_CHUNK = 1 << 24  # elements of a tensor that are written at once


def export(model: nn.Module, path: Path, example_inputs: Any = None) -> None:
    """Writes a model that quantize_() has changed; it stays as it is.

    ``path`` without an ending: a folder, into which ``model.safetensors`` goes with codes and scales as
    compressed-tensors 0.20 lays them out, and ``config.json`` with the section ``quantization_config``, beside what
    ``model.config`` of a transformers model has. Ranges of activations go with it as ``input_scale`` and
    ``input_zero_point``.

    ``path`` ending in .onnx: an ONNX file, by steelyard.torch.Module(model, ``example_inputs``), whose outputs on those
    inputs are compared with the model's first. Of weights of integers alone, whose scales are not learned: with
    quantized activations a Module trains what such a file computes. Raises Error for what a format has no form for,
    naming the layer.
    """
    model = uncompiled(model)
    if not list(_layers(model)):
        raise Error("expected a model that quantize_() has changed, got none of its layers")
    for name, layer in _layers(model):
        if layer.weight_quantizer is not None and layer.weight_quantizer.scheme.is_blocks:
            raise Error(f"{name}: its weights are those of a GGUF file, expected export_gguf(model, source, path)")
    suffix = os.path.splitext(os.fspath(path))[1]
    if suffix == ".onnx":
        _export_onnx(model, path, example_inputs)
    elif not suffix or os.path.isdir(path):
        _export_compressed(model, pathlib.Path(path))
    else:
        raise Error(f"expected a folder, or a name that ends in .onnx, got {os.fspath(path)!r}")


# --- compressed-tensors


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Numbers [R, C] from 0 to 2^bits - 1 as i32 [R, ceil(C bits / 32)], the first one in the lowest bits."""
    spread = (codes[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    stream = spread.astype(np.uint8).reshape(codes.shape[0], -1)
    stream = np.pad(stream, ((0, 0), (0, -stream.shape[1] % 32)))
    return np.packbits(stream, axis=1, bitorder="little").view("<i4")


def _arguments(scheme: Scheme) -> dict[str, Any]:
    """A QuantizationArgs of compressed-tensors."""
    arguments: dict[str, Any] = {"num_bits": scheme.num_bits, "type": scheme.type, "symmetric": scheme.symmetric,
                                 "strategy": scheme.strategy, "dynamic": scheme.observer == "dynamic"}
    if scheme.sizes:
        arguments["group_size"] = scheme.sizes[0]
    if scheme.type == "float":
        arguments["scale_dtype"] = "torch.uint8"
    return arguments


def _format(weights: Scheme, activations: Optional[Scheme]) -> str:
    if weights.type == "float":
        return "mxfp4-pack-quantized"
    return "int-quantized" if weights.num_bits == 8 and activations is not None else "pack-quantized"


def _require_form(path: str, layer: Any) -> None:
    """Refuses what compressed-tensors has no form for."""
    if layer.weight_quantizer is None:
        raise Error(f"{path}: its weights are float: compressed-tensors has no layers whose input alone is quantized")
    width, weights = layer.weight.shape[1], layer.weight_quantizer.scheme
    if weights.sizes and width % weights.sizes[0]:
        raise Error(f"{path}: compressed-tensors needs groups that divide {width}, got groups of {weights.sizes[0]}")
    activations = layer.input_quantizer.scheme if layer.input_quantizer is not None else None
    if activations is not None and activations.strategy == "block":
        raise Error(f"{path}: compressed-tensors has no activations in blocks of rows, expected tensor, token or group")


def _weight_tensors(layer: Any, form: str) -> dict[str, torch.Tensor]:
    quantizer, weight = layer.weight_quantizer, layer.weight.detach().cpu()
    scheme = quantizer.scheme
    if form == "mxfp4-pack-quantized":
        codes, exponents = _mxfp4.codes_of(weight)
        return {"weight_packed": codes[:, 0::2] | (codes[:, 1::2] << 4), "weight_scale": exponents}
    scale, zero_point = (t.cpu() for t in quantizer.qparams(layer.weight))
    codes = _ops.codes_of(weight, scale.to(_ops.parameter_dtype(weight)), zero_point, scheme.codes, scheme.strategy,
                          scheme.sizes)
    rows = 1 if scheme.strategy == "tensor" else weight.shape[0]
    grid = (1,) if scheme.strategy == "tensor" else (rows, scale.numel() // rows)
    tensors = {"weight_scale": scale.float().reshape(grid)}
    zero_point = zero_point.to(torch.int8).reshape(grid)
    if form == "int-quantized":
        tensors["weight"] = codes
        if not scheme.symmetric:
            tensors["weight_zero_point"] = zero_point
        return tensors
    half = 1 << (scheme.num_bits - 1)

    def pack(numbers: torch.Tensor) -> torch.Tensor:
        unsigned = (numbers.to(torch.int16) + half).to(torch.uint8)
        return torch.from_numpy(_packed(unsigned.numpy(), scheme.num_bits).copy())

    tensors["weight_packed"] = pack(codes)
    tensors["weight_shape"] = torch.tensor(weight.shape)
    if not scheme.symmetric:  # packed along the first dimension
        tensors["weight_zero_point"] = zero_point if scheme.strategy == "tensor" else pack(zero_point.T).T.contiguous()
    return tensors


def _input_tensors(quantizer: Any) -> dict[str, torch.Tensor]:
    scheme = quantizer.scheme
    if scheme.observer == "dynamic":
        return {}
    scale, zero_point = (t.cpu() for t in quantizer.qparams())
    tensors = {"input_scale": scale.float()}
    if not scheme.symmetric:  # its codes are signed
        tensors["input_zero_point"] = (zero_point - (1 << (scheme.num_bits - 1))).to(torch.int8)
    return tensors


def _config(model: nn.Module, forms: dict[str, tuple[str, Scheme, Optional[Scheme]]]) -> dict[str, Any]:
    groups: dict[tuple, list[str]] = {}
    for path, how in forms.items():
        groups.setdefault(how, []).append(path)
    used = {form for form, _, _ in groups}
    section: dict[str, Any] = {
        "quant_method": "compressed-tensors",
        "format": used.pop() if len(used) == 1 else "mixed-precision",
        "quantization_status": "compressed",
        "config_groups": {
            f"group_{i}": {"targets": paths, "format": form, "weights": _arguments(weights),
                           "input_activations": None if inputs is None else _arguments(inputs)}
            for i, ((form, weights, inputs), paths) in enumerate(groups.items())},
        "ignore": [p for p, m in model.named_modules() if isinstance(m, (nn.Linear, nn.Embedding)) and p not in forms],
    }
    theirs = getattr(model, "config", None)
    whole = dict(theirs.to_dict()) if hasattr(theirs, "to_dict") else {}
    if whole.get("tie_word_embeddings"):
        whole["tie_word_embeddings"] = False  # the file has the codes under both names
    whole["quantization_config"] = section
    return whole


def _export_compressed(model: nn.Module, folder: pathlib.Path) -> None:
    forms: dict[str, tuple[str, Scheme, Optional[Scheme]]] = {}
    tensors: dict[str, torch.Tensor] = {}
    skipped: set[str] = set()
    layers = {p: m for p, m in model.named_modules(remove_duplicate=False)
              if isinstance(m, (QuantizedLinear, QuantizedEmbedding))}
    for path, layer in layers.items():
        _require_form(path, layer)
        if not bool(torch.isfinite(layer.weight).all()):
            raise Error(f"{path}: expected finite weights, got NaN or infinity")
        weights = layer.weight_quantizer.scheme
        inputs = layer.input_quantizer.scheme if layer.input_quantizer is not None else None
        forms[path] = (_format(weights, inputs), weights, inputs)
        made = _weight_tensors(layer, forms[path][0])
        if layer.input_quantizer is not None:
            made.update(_input_tensors(layer.input_quantizer))
        tensors.update({f"{path}.{key}": value for key, value in made.items()})
        skipped.update(f"{path}.{key}" for key in layer.state_dict() if key != "bias")
    for name, value in model.state_dict().items():
        if name in skipped:
            continue
        if not isinstance(value, torch.Tensor) or value.dtype not in _DTYPES:
            raise Error(f"{name}: safetensors has no form for {getattr(value, 'dtype', type(value).__name__)}")
        tensors[name] = value.detach()
    folder.mkdir(parents=True, exist_ok=True)
    _write_safetensors(folder / "model.safetensors", tensors)
    text = json.dumps(_config(model, forms), indent=2, default=str)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def _write_safetensors(path: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "steelyard": c.version}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            for part in tensor.cpu().contiguous().reshape(-1).split(_CHUNK):
                file.write(part.view(torch.uint8).numpy().tobytes())


# --- ONNX


def _export_onnx(model: nn.Module, path: Path, example_inputs: Any) -> None:
    if example_inputs is None:
        raise Error("an ONNX file needs example_inputs: a tensor [N, ...], or a tuple of them")
    groups: dict[Scheme, list[str]] = {}
    for name, layer in _layers(model):
        if isinstance(layer, nn.Embedding):
            raise Error(f"{name} (Embedding): the ONNX file has tables in float, expected linear layers alone")
        if layer.input_quantizer is not None:
            raise Error(f"{name}: its input is quantized, which the ONNX file would do at other places: train a "
                        "steelyard.torch.Module for that")
        scheme = layer.weight_quantizer.scheme
        if scheme.learned or scheme.type == "float":
            raise Error(f"{name}: weights of {scheme} have no form in the ONNX file, expected integers whose scales are "
                        "those of their range")
        groups.setdefault(scheme, []).append(name)
    twin = copy.deepcopy(model).eval()
    for _, layer in list(_layers(twin)):
        layer.__class__ = nn.Linear if isinstance(layer, nn.Linear) else nn.Embedding
        del layer.weight_quantizer, layer.input_quantizer
    inputs: Sequence[torch.Tensor] = [example_inputs] if isinstance(example_inputs, torch.Tensor) else example_inputs
    names = {theirs: imported for imported, theirs in Module(twin, inputs).names().items()}
    lost = [p for paths in groups.values() for p in paths if p not in names]
    if lost:
        raise Error(f"{lost[0]}: the imported network has no such layer, or has joined it with another")
    recipe = {"version": 1, "name": type(model).__name__, "quantize": {"bn_fold": "none", "groups": [
        {"targets": [names[p] for p in paths],
         "weights": {"num_bits": s.num_bits, "symmetric": s.symmetric, "strategy": s.strategy,
                     "narrow_range": s.narrow_range, **({"group_size": s.sizes[0]} if s.sizes else {})}}
        for s, paths in groups.items()]}}
    module = Module(twin, inputs, recipe).calibrate([tuple(inputs)]).eval()  # which looks at the weights
    with evaluating(model):
        ours, theirs = module(*inputs), model(*inputs)
    if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
        off, most = float((ours - theirs).abs().max()), float(theirs.abs().max())
        if not off <= 1e-4 * max(most, 1e-30):
            raise Error(f"the network of the file gives other outputs than the model on the example inputs, by up to "
                        f"{off:.3g} of {most:.3g}")
    module.export(path)
