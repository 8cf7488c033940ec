"""Metadata of users: text by keys, as files hold it; numbers, bools and None are typed again on return.

What was not text is noted in the origin, under "meta.types": a JSON object of the type of each such key. Other software
sees text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensorbytes.errors import Hint, UnsupportedError, UsageError
from tensorbytes.tensor import V, amended

TYPES = "meta.types"

_INTEGER = re.compile("-?[0-9]{1,4300}")  # as many digits as Python itself converts without protest
_WORDS: dict[str, dict[str, Any]] = {"bool": {"True": True, "False": False}, "none": {"None": None}}
_TEXTS: dict[type, tuple[str, Callable[[Any], str]]] = {
    bool: ("bool", str),
    int: ("int", str),
    float: ("float", repr),
    type(None): ("none", str),
}


def to_text(meta: Any) -> tuple[dict[str, str], dict[str, str]]:
    """(metadata as text, what the origin has to say of it)"""
    if not isinstance(meta, Mapping):
        raise UsageError(f"meta={meta!r}", expected="a dict of texts and numbers")
    texts, types = {}, {}
    for key, given in meta.items():
        if not isinstance(key, str):
            raise UnsupportedError(
                "metadata keys must be str", got=repr(key), hints=[Hint(purpose=f"pass str({key!r})")]
            )
        value = given.item() if isinstance(given, np.number | np.bool_) else given
        if isinstance(value, str):
            texts[key] = str.__str__(value)  # str() of an Enum is its name
        elif type(value) in _TEXTS and not (type(value) is int and abs(value) >= 10**4300):
            types[key], text = _TEXTS[type(value)]
            texts[key] = text(value)
        else:
            advice = "json.dumps(x), which json.loads turns back" if isinstance(value, dict | list) else "str(x)"
            raise UnsupportedError(
                "metadata must be text, a number, a bool or None",
                got=f"meta[{key!r}] of type {type(value).__qualname__}",
                hints=[Hint(purpose=f"pass {advice}")],
            )
    return texts, {TYPES: json.dumps(types)} if types else {}


def typed(meta: Mapping[str, str], origin: Mapping[str, str]) -> Mapping[str, Any]:
    """The metadata as it was given. A note that does not fit is passed over: a file may say anything."""
    if TYPES not in origin or not meta:
        return meta
    try:
        types = json.loads(origin[TYPES])
    except (ValueError, RecursionError):
        return meta
    if not isinstance(types, dict):
        return meta
    return {key: _typed(text, types.get(key)) for key, text in meta.items()}


def _typed(text: str, kind: Any) -> Any:
    if kind == "int" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            return text
    return _WORDS[kind].get(text, text) if isinstance(kind, str) and kind in _WORDS else text


def with_types(value: V) -> V:
    """A value whose metadata is typed, for users."""
    found = typed(value.meta, value.origin)
    return value if found is value.meta else amended(value, value.name, found, without_types(value.origin))


def with_texts(value: V) -> V:
    """A value whose metadata is text, for files."""
    if all(type(text) is str for text in value.meta.values()):
        return value
    texts, types = to_text(value.meta)
    return amended(value, value.name, texts, {**value.origin, **types})


def checked_origin(origin: Any) -> dict[str, str]:
    """An origin that a caller gives: text alone, without our note of the types, which is made anew."""
    texts, types = to_text(origin)
    if types:
        key = next(key for key in texts if type(origin[key]) is not str)
        raise UnsupportedError("an origin must be text", got=f"origin[{key!r}]={origin[key]!r}")
    return without_types(texts)


def without_types(origin: Mapping[str, str]) -> dict[str, str]:
    """An origin without the note."""
    return {key: text for key, text in origin.items() if key != TYPES}
