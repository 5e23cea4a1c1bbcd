"""What a recipe says of weights and activations of Linear and Embedding layers, for quantize_()."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Mapping, Optional, Sequence

from .._error import INVALID_INPUT, Error
from .._recipe import Recipe, recipe_text

MXFP4_GROUP = 32
SEARCHED = "_searched"  # of a type's name: its blocks with searched scales
# Targets of llama.cpp's: the type of weights that export.target names. Their inputs are blocks of q8_0.
GGUF_TARGETS = {f"gguf-{type}": type for type in ("q4_0", "q8_0", "iq4_nl", "mxfp4")}


@dataclasses.dataclass(frozen=True)
class Scheme:
    """How one tensor is quantized, in the words of docs/recipes.md; ``type``: "int", "float" for MXFP4, or one of ggml's
    with ``is_blocks``, whose arithmetic is llama.cpp's."""

    num_bits: int
    symmetric: bool
    strategy: str
    sizes: tuple[int, ...] = ()  # of a group; rows and columns of a block
    narrow_range: bool = False
    signed: bool = True
    observer: str = "min_max"  # of weights in each pass anew; "dynamic": of activations, likewise
    averaging_constant: float = 0.01
    limit: float = 1.0
    method: str = "ste"
    type: str = "int"
    is_blocks: bool = False
    searched: bool = False  # the scales of blocks

    @property
    def block_type(self) -> str:
        """What _blocks calls them."""
        return self.type + (SEARCHED if self.searched else "")

    @property
    def codes(self) -> tuple[int, int, int]:
        """qmin, qmax, whether symmetric."""
        if not self.signed:
            return 0, 2 ** self.num_bits - 1, int(self.symmetric)  # torch 2.6 traces no shifts
        half = 2 ** (self.num_bits - 1)
        return -half + int(self.narrow_range), half - 1, int(self.symmetric)

    @property
    def learned(self) -> bool:
        return self.method != "ste" and self.observer != "dynamic"

    def __str__(self) -> str:
        if self.is_blocks:
            searched = ", searched scales" if self.searched else ""
            return "gguf q8_0 inputs" if self.type == "inputs" else f"gguf {self.type}{searched}"
        sizes = " x ".join(map(str, self.sizes))
        if self.type == "float":
            return f"mxfp4, group of {sizes}"
        kind = f"{'int' if self.signed else 'uint'}{self.num_bits}"
        parts = [kind, "symmetric" if self.symmetric else "affine",
                 f"{self.strategy} of {sizes}" if sizes else self.strategy]
        parts.append("learned scale" + (" and offset" if self.learns_offset else "") if self.learned else self.observer)
        return ", ".join(parts)

    @property
    def learns_offset(self) -> bool:
        return self.method == "lsq_plus" and self.learned and not self.symmetric


@dataclasses.dataclass(frozen=True)
class Group:
    """One entry of quantize.groups."""

    targets: tuple[str, ...]
    weights: Optional[Scheme]
    activations: Optional[Scheme]


class _Section:
    """A table of the recipe, whose keys are asked for; done() refuses the others by name."""

    def __init__(self, values: Any, path: str) -> None:
        if not isinstance(values, Mapping):
            raise Error(f"{path or 'the recipe'}: expected a table, got {values!r}", INVALID_INPUT)
        self.values, self.path, self.asked = values, path, []

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def get(self, key: str, default: Any, *kinds: type) -> Any:
        self.asked.append(key)
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise Error(f"{self.at(key)}: expected {' or '.join(k.__name__ for k in kinds)}, got {value!r}", INVALID_INPUT)
        return value

    def one_of(self, key: str, default: str, words: Sequence[str]) -> str:
        value = self.get(key, default, str)
        if value not in words:
            raise Error(f"{self.at(key)}: expected one of {', '.join(words)}, got {value!r}", INVALID_INPUT)
        return value

    def number(self, key: str, default: Any, least: float, most: float, *kinds: type) -> Any:
        value = self.get(key, default, *(kinds or (int,)))
        if value is not None and not least <= value <= most:
            raise Error(f"{self.at(key)}: expected a number from {least:g} to {most:g}, got {value!r}", INVALID_INPUT)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.get(key, [], list, tuple)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise Error(f"{self.at(key)}[{i}]: expected a text, got {value!r}", INVALID_INPUT)
        return tuple(values)

    def done(self) -> None:
        for key in self.values:
            if key not in self.asked:
                raise Error(f"{self.at(str(key))}: quantize_() has no such key; expected {', '.join(self.asked)}",
                            INVALID_INPUT)


def _values_of(recipe: Recipe) -> Mapping[str, Any]:
    if isinstance(recipe, Mapping):
        return recipe
    text = recipe_text(recipe)
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise Error(f"the recipe: {error}", INVALID_INPUT) from error
    try:
        import yaml
    except ImportError as error:
        raise Error("a recipe of YAML for quantize_() needs PyYAML: expected `pip install pyyaml`, or a dict",
                    INVALID_INPUT) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Error(f"the recipe: {' '.join(str(error).split())}", INVALID_INPUT) from error


_OBSERVERS = ("min_max", "moving_average", "fixed")


def _observed(section: _Section, default: str) -> dict[str, Any]:
    observer = section.one_of("observer", default, _OBSERVERS)
    options: dict[str, Any] = {"observer": observer}
    if observer == "moving_average":
        options["averaging_constant"] = float(section.number("averaging_constant", 0.01, 1e-12, 1, int, float))
    if observer == "fixed":
        options["limit"] = float(section.number("limit", 1.0, 1e-30, 1e30, int, float))
    return options


def _group_size(section: _Section, strategy: str) -> tuple[int, ...]:
    size = section.number("group_size", None, 1, 10**9)
    if strategy != "group":
        if size is not None:
            raise Error(f"{section.at('group_size')}: needs the strategy group, got {strategy}", INVALID_INPUT)
        return ()
    return (size or 32,)


def _weights(section: _Section, method: str) -> Scheme:
    kind = section.one_of("type", "int", ("int", "float"))
    bits = section.number("num_bits", 8 if kind == "int" else 4, 2, 8)
    if kind == "float":
        strategy = section.one_of("strategy", "group", ("group",))
        sizes = _group_size(section, strategy)
        if bits != 4 or sizes != (MXFP4_GROUP,) or not section.get("symmetric", True, bool):
            raise Error(f"{section.path}: type float is MXFP4, expected num_bits 4, group_size {MXFP4_GROUP} and symmetric",
                        INVALID_INPUT)
        if method != "ste":
            raise Error(f"{section.path}: MXFP4's scales are powers of two, which quantize.algorithm {method} cannot learn",
                        INVALID_INPUT)
        section.done()
        return Scheme(4, True, strategy, sizes, type="float")
    symmetric = section.get("symmetric", True, bool)
    strategy = section.one_of("strategy", "channel", ("channel", "tensor", "group"))
    narrow = section.get("narrow_range", symmetric and method == "ste", bool)
    if narrow and not symmetric:
        raise Error(f"{section.at('narrow_range')}: needs symmetric weights", INVALID_INPUT)
    section.one_of("observer", "min_max", ("min_max",))
    scheme = Scheme(bits, symmetric, strategy, _group_size(section, strategy), narrow, method=method)
    section.done()
    return scheme


def _activations(section: _Section, method: str) -> Scheme:
    bits = section.number("num_bits", 8, 2, 8)
    symmetric = section.get("symmetric", False, bool)
    dynamic = section.get("dynamic", False, bool)
    strategy = section.one_of("strategy", "tensor", ("tensor", "token", "group", "block"))
    if dynamic == (strategy == "tensor"):
        raise Error(f"{section.at('strategy')}: {strategy} needs dynamic: {str(not dynamic).lower()}", INVALID_INPUT)
    sizes = _group_size(section, strategy)
    block = section.get("block_structure", None, int, list, tuple)
    if (block is None) == (strategy == "block"):
        raise Error(f"{section.at('block_structure')}: belongs to the strategy block, which needs it", INVALID_INPUT)
    if block is not None:
        sizes = (block, block) if isinstance(block, int) else tuple(block)
        if len(sizes) != 2 or not all(isinstance(n, int) and n > 0 for n in sizes):
            raise Error(f"{section.at('block_structure')}: expected one or two numbers above 0, got {block!r}",
                        INVALID_INPUT)
    common = dict(num_bits=bits, symmetric=symmetric, strategy=strategy, sizes=sizes, signed=symmetric, method=method)
    if dynamic:
        scheme = Scheme(**common, observer="dynamic")
    else:
        observed = _observed(section, "min_max" if bits >= 8 else "moving_average")
        scheme = Scheme(**common, **observed)
    section.done()
    return scheme


def _block_scheme(type: str, searched: bool = False) -> Scheme:
    return Scheme(8 if type in ("q8_0", "inputs") else 4, True, "group", (32,), observer="dynamic", type=type,
                  is_blocks=True, searched=searched)


def _block_weights(section: _Section, default: str) -> Scheme:
    """The weights of a group whose target is llama.cpp: their type and the rule of scales alone may be others."""
    type = section.one_of("type", default, tuple(GGUF_TARGETS.values()))
    searched = section.one_of("scale", "reference", ("reference", "search")) == "search"
    if searched and type == "q8_0":
        raise Error(f"{section.at('scale')}: search: expected weights of q4_0, iq4_nl or mxfp4, got q8_0", INVALID_INPUT)
    section.done()
    return _block_scheme(type, searched)


def _target(top: _Section) -> Optional[str]:
    """The type of weights that export.target names."""
    export = _Section(top.get("export", None, Mapping) or {}, "export")
    target = export.get("target", None, str)
    export.done()
    if target is not None and target not in GGUF_TARGETS:
        raise Error(f"export.target: expected one of {', '.join(GGUF_TARGETS)}, got {target!r}", INVALID_INPUT)
    return None if target is None else GGUF_TARGETS[target]


def groups_of(recipe: Recipe) -> tuple[list[Group], tuple[str, ...]]:
    """The groups of a recipe, and what it ignores. Raises Error, naming the key."""
    top = _Section(_values_of(recipe), "")
    if top.get("version", None, int) != 1:
        raise Error(f"version: expected 1, got {top.values.get('version')!r}", INVALID_INPUT)
    top.get("name", "", str)
    top.get("seed", 1, int)  # nothing here is drawn at random
    target = _target(top)
    quantize = _Section(top.get("quantize", None, Mapping) or {}, "quantize")
    top.done()
    algorithm = _Section(quantize.get("algorithm", {}, Mapping), "quantize.algorithm")
    method = algorithm.one_of("method", "ste", ("ste", "lsq", "lsq_plus"))
    algorithm.done()
    ignore = quantize.texts("ignore")
    listed = quantize.get("groups", [] if target is None else [{"targets": ["Linear", "Embedding"]}], list, tuple)
    if target is not None and method != "ste":
        raise Error(f"quantize.algorithm: export.target fixes the scales, which {method} would learn", INVALID_INPUT)
    quantize.done()
    if not listed:
        raise Error("quantize.groups: expected at least one group", INVALID_INPUT)
    groups = []
    for i, values in enumerate(listed):
        section = _Section(values, f"quantize.groups[{i}]")
        targets = section.texts("targets")
        parts: dict[str, Optional[Scheme]] = {}
        if target is not None:
            weights = section.get("weights", {}, Mapping)
            parts = {"weights": _block_weights(_Section(weights, section.at("weights")), target),
                     "activations": _block_scheme("inputs")}
        for key, read in (("weights", _weights), ("activations", _activations)):
            if target is not None:
                break
            given = section.get(key, None, Mapping)
            parts[key] = None if given is None else read(_Section(given, section.at(key)), method)
        section.done()
        if not targets:
            raise Error(f"{section.at('targets')}: expected names or types of modules", INVALID_INPUT)
        if parts["weights"] is None and parts["activations"] is None:
            raise Error(f"{section.path}: expected weights or activations", INVALID_INPUT)
        groups.append(Group(targets, **parts))
    return groups, ignore


def matches(target: str, path: str, kind: str) -> bool:
    """Whether an entry of ``targets`` or ``ignore`` names a module: by its type, its path or one that contains it, or
    `re:` and an expression for the whole path."""
    if target.startswith("re:"):
        try:
            return re.fullmatch(target[3:], path) is not None
        except re.error as error:
            raise Error(f"targets: {target!r} is no regular expression: {error}", INVALID_INPUT) from error
    return target in (kind, path) or path.startswith(target + ".")
