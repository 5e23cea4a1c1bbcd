"""GGUF files of language models that quantize_() has changed for a target of llama.cpp's."""

from __future__ import annotations

import collections
import re
from typing import Optional

import numpy as np
import torch
from torch import nn

from .._error import Error
from .._gguf import GgufFile, Path, TensorInfo
from . import _blocks
from ._scheme import SEARCHED
from .quantize import _layers, uncompiled

# llama.cpp's names of tensors, and those of transformers: of a model, and of its layers.
_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
_ARCHITECTURES = ("llama", "qwen2", "qwen3")
_NOT_TRAINED = ("rope_freqs.weight",)  # factors of angles, which transformers computes from its configuration
_FLOATS = ("f32", "f16", "bf16")
_FILE_TYPES = {"q4_0": 2, "q8_0": 7, "iq4_nl": 25, "mxfp4": 38}  # of llama.cpp's llama_ftype


def _parameter_of(tensor: str) -> Optional[str]:
    """The name that transformers gives to a tensor's parameter; None for one that it has not."""
    base, _, kind = tensor.rpartition(".")
    if base in _MODEL:
        return f"{_MODEL[base]}.{kind}"
    layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", base)
    return f"model.layers.{layer[1]}.{_LAYER[layer[2]]}.{kind}" if layer and layer[2] in _LAYER else None


class _Source:
    """A file beside the model whose weights it has: which tensor is which parameter, and in which order of rows."""

    def __init__(self, model: nn.Module, path: Path) -> None:
        self.file = GgufFile(path)
        self.architecture = self.file.text("general.architecture")
        if self.architecture not in _ARCHITECTURES:
            raise Error(f"{self.file.path}: expected general.architecture to be one of {', '.join(_ARCHITECTURES)}, got "
                        f"{self.architecture!r}")
        parameters = {f"{path}.{name}" if path else name: p  # tied ones under each of their names
                      for path, module in model.named_modules(remove_duplicate=False)
                      for name, p in module.named_parameters(recurse=False)}
        self.parameters: dict[str, nn.Parameter] = {}
        self.names: dict[str, str] = {}
        for name, info in self.file.tensors.items():
            if name in _NOT_TRAINED:
                continue
            theirs = _parameter_of(name)
            if theirs not in parameters:
                raise Error(f"{self.file.path}: tensor '{name}': the model has no parameter for it"
                            + (f", expected {theirs}" if theirs else ""))
            if tuple(parameters[theirs].shape) != info.shape:
                raise Error(f"{self.file.path}: tensor '{name}': expected the shape {list(parameters[theirs].shape)} of "
                            f"{theirs}, got {list(info.shape)}")
            self.parameters[name] = parameters[theirs]
            self.names[name] = theirs
        met = {id(p) for p in self.parameters.values()}
        for name, parameter in model.named_parameters():
            if id(parameter) not in met and "quantizer" not in name:
                raise Error(f"{self.file.path}: has no tensor for the model's parameter {name}")

    def _heads(self, tensor: str) -> int:
        """Of tensors whose rows llama.cpp has in another order: by which heads; else 0."""
        part = re.fullmatch(r"blk\.\d+\.attn_([qk])\.\w+", tensor)
        if self.architecture != "llama" or part is None:
            return 0
        heads = self.file.number("llama.attention.head_count")
        of_keys = self.file.number("llama.attention.head_count_kv")
        heads = heads if part[1] == "q" or of_keys is None else of_keys
        if not heads or heads != int(heads) or self.file.tensors[tensor].shape[0] % (2 * int(heads)):
            raise Error(f"{self.file.path}: tensor '{tensor}': expected a number of heads that divides its rows, got {heads}")
        return int(heads)

    def to_file(self, tensor: str, values: torch.Tensor) -> torch.Tensor:
        """Rows in llama.cpp's order: the two halves of a head's rows, which rotate together, in turn."""
        heads = self._heads(tensor)
        return values.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(values.shape) if heads else values

    def to_model(self, tensor: str, values: torch.Tensor) -> torch.Tensor:
        heads = self._heads(tensor)
        return values.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(values.shape) if heads else values

    def blocks(self, tensor: TensorInfo) -> torch.Tensor:
        """u8 [rows, bytes]"""
        rows = int(np.prod(tensor.shape[:-1], dtype=np.int64))
        return torch.from_numpy(self.file.read(tensor.name)).reshape(rows, -1)

    def values(self, tensor: TensorInfo) -> torch.Tensor:
        """f32, of the tensor's shape; raises Error for a type that cannot be decoded."""
        try:
            return _blocks.decode(self.blocks(tensor), tensor.type).reshape(tensor.shape)
        except Error as error:
            raise Error(f"{self.file.path}: tensor '{tensor.name}' of type {tensor.type}: {error}") from error


@torch.no_grad()
def load_gguf(model: nn.Module, path: Path) -> nn.Module:
    """Copies a GGUF file's weights into a model of transformers: Llama, Qwen2 or Qwen3, of the file's shapes.

    Types f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k to q6_k, iq4_nl, mxfp4 and q2_0. A q4_0, q8_0 or mxfp4 file
    that ggml wrote has the codes again that quantize_() gives its values. Raises Error, naming file and tensor: tensors
    without a parameter, parameters without a tensor, other shapes, other types.
    """
    source = _Source(model, path)
    for name, parameter in source.parameters.items():
        values = source.to_model(name, source.values(source.file.tensors[name]))
        parameter.copy_(values.reshape(parameter.shape))
    return model


def _schemes(model: nn.Module) -> dict[int, Optional[str]]:
    """By weight what makes its blocks; None where a layer computes it in float."""
    types: dict[int, Optional[str]] = {}
    owner: dict[int, str] = {}
    quantized = dict(_layers(model))
    for path, layer in model.named_modules(remove_duplicate=False):
        if not isinstance(layer, (nn.Linear, nn.Embedding)):
            continue
        quantizer = layer.weight_quantizer if path in quantized or hasattr(layer, "weight_quantizer") else None
        type = None
        if quantizer is not None:
            if not quantizer.scheme.is_blocks:
                raise Error(f"{path}: a GGUF file has no weights of {quantizer.scheme}: expected export.target in the recipe")
            type = quantizer.scheme.block_type
        key = id(layer.weight)
        if types.setdefault(key, type) != type:
            raise Error(f"{path} and {owner[key]} share a weight, which is one tensor of the file: expected both among the "
                        "targets, or neither")
        owner.setdefault(key, path)
    return types


@torch.no_grad()
def export_gguf(model: nn.Module, source: Path, path: Path) -> None:
    """Writes a model that quantize_() has changed for a target of llama.cpp's, with the codes of training.

    ``source``: the GGUF file of the same model (in any type: its weights are not read into the model), whose metadata,
    vocabulary and tensors' order the new file has. ``path``: the new file, replaced at once; it may be ``source``.
    Quantized weights have the target's type; other tensors keep the source's where that holds their values, and are f32
    otherwise. Raises Error: see load_gguf(); weights that are not finite.
    """
    model = uncompiled(model)
    if not list(_layers(model)):
        raise Error("expected a model that quantize_() has changed, got none of its layers")
    types = _schemes(model)
    origin = _Source(model, source)
    replaced: dict[str, tuple[str, np.ndarray]] = {}
    used: collections.Counter[str] = collections.Counter()
    for name, parameter in origin.parameters.items():
        info = origin.file.tensors[name]
        values = origin.to_file(name, parameter.detach().cpu().float()).reshape(info.shape)
        if not bool(torch.isfinite(values).all()):
            raise Error(f"{origin.names[name]}: expected finite weights, got NaN or infinity")
        maker = types.get(id(parameter))
        if maker is None:
            exact = info.type in _FLOATS and torch.equal(_blocks.block_values(values, info.type), values)
            maker = info.type if exact else "f32"
            type = maker
        else:
            type = maker.removesuffix(SEARCHED)
            used[type] += 1
        blocks = _blocks.encode(values, maker)
        if type == info.type and torch.equal(_blocks.decode(blocks, type), _blocks.decode(origin.blocks(info), type)):
            continue  # the file's bytes stand for these values already
        replaced[name] = (type, blocks.numpy().reshape(-1))
    most = used.most_common(1)
    origin.file.write(path, replaced, _FILE_TYPES.get(most[0][0], -1) if most else -1)
