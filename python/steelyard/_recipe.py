"""Recipes as users give them."""

from __future__ import annotations

import json
import os
import re
from typing import Any, Mapping, Union

from ._error import INVALID_INPUT, Error

Recipe = Union[str, "os.PathLike[str]", Mapping[str, Any], None]

FLOAT = "version: 1\nname: float\n"


def recipe_text(recipe: Recipe) -> str:
    """YAML of a recipe: that text itself, the text of a file, or that of a dict; of None, a network in float."""
    if recipe is None:
        return FLOAT
    if isinstance(recipe, Mapping):
        try:
            return json.dumps(recipe, indent=1)  # which is YAML, a key in each line
        except (TypeError, ValueError) as error:
            raise Error(f"the recipe: expected texts, numbers, lists and dicts, got another value: {error}") from error
    if isinstance(recipe, str) and ("\n" in recipe or ": " in recipe or recipe.startswith("{")):
        return recipe
    if not isinstance(recipe, (str, os.PathLike)):
        raise Error(f"the recipe: expected YAML, a dict or a file of YAML, got {recipe!r}", INVALID_INPUT)
    try:
        with open(recipe, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError, TypeError) as error:
        raise Error(f"the recipe: expected YAML, a dict or a file of YAML, got {recipe!r}: {error}",
                    INVALID_INPUT) from error


def with_its_line(message: str, text: str) -> str:
    """A message about a place in the recipe of a dict, whose text nobody has seen: with the line in place of its number."""
    place = re.match(r"recipe:(\d+):\d+: ", message)
    lines = text.splitlines()
    if place is None or not text.startswith("{") or int(place[1]) > len(lines):
        return message
    return f"recipe, {lines[int(place[1]) - 1].strip().rstrip(',')}: {message[place.end():]}"


def uses(text: str, key: str) -> bool:
    """Whether the recipe has that section."""
    stripped = text.lstrip()
    if stripped.startswith("{"):
        try:
            return key in json.loads(stripped)
        except ValueError:
            return f'"{key}"' in stripped or f"{key}:" in stripped
    return any(line.split(":")[0].strip().strip("\"'") == key for line in text.splitlines() if line[:1].strip())
