"""Schemas as JSON: one line for each feature, sorted by name, the same on every run.

    {
     "features": {
      "image": {"dtype": "uint8", "encoding": "tensorproto", "shape": [28, 28]},
      "label": {"default": 0, "dtype": "int64", "encoding": "flat", "optional": true, "shape": []}
     },
     "tensorbytes.schema": 1
    }

A quantized feature has "quantize": {"dtype": "int16", "scale": 0.01}, with the options of
`Quantize`. SequenceExamples add "lists" beside "features". Records of a table that
was held in another way, such as by Arrow, add "origin", an object of texts. Reading wants only "dtype"; the rest is as
in `Feature`. It is strict: whatever is not described here is refused with its place, and
nothing but features is ever made of what a file says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, Hint, LimitError, Limits, SchemaError, UsageError
from tensorbytes.formats.tfrecord.schema import defaults as defaults
from tensorbytes.formats.tfrecord.schema.defaults import brief
from tensorbytes.formats.tfrecord.schema.feature import Feature, check_name
from tensorbytes.typing import Buffer, bytes_view

# About what a feature takes in memory.
_FEATURE_BYTES = 512
VERSION_KEY, VERSION = "tensorbytes.schema", 1
MAX_BYTES = 64 << 20
_MAX_DIGITS = 40
_FIELDS: dict[str, type] = {
    "dtype": str,
    "encoding": str,
    "shape": list,
    "optional": bool,
    "default": object,
    "quantize": dict,
}
_WORDS: dict[type, str] = {str: "text", list: "a list", bool: "true or false", dict: "an object"}


class Parts(NamedTuple):
    """What a schema is made of; `lists` is None for Examples."""

    features: dict[str, Feature]
    lists: dict[str, Feature] | None
    origin: dict[str, str]


class _Object:
    """A JSON object with its keys as written, so that those which appear twice can be seen."""

    __slots__ = ("pairs",)

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs

    def __repr__(self) -> str:
        return "an object"


class _Refused:
    """A number that was read but can't be used. Where it stands, its type will be found wrong."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __repr__(self) -> str:
        return self.what


# ---- writing ----------------------------------------------------------------


def write(features: Mapping[str, Feature], lists: Mapping[str, Feature] | None, origin: Mapping[str, str]) -> str:
    groups = [("features", features)] + ([("lists", lists)] if lists is not None else [])
    lines = [f' "{key}": {_group(group)},\n' for key, group in groups]
    if origin:
        lines.append(f' "origin": {_dump(dict(origin))},\n')
    return "".join(["{\n", *lines, f' "{VERSION_KEY}": {VERSION}\n}}\n'])


def _group(features: Mapping[str, Feature]) -> str:
    lines = [f"  {_dump(name)}: {_dump(_fields(features[name]))}" for name in sorted(features)]
    return "{\n" + ",\n".join(lines) + "\n }" if lines else "{}"


def _fields(feature: Feature) -> dict[str, Any]:
    fields: dict[str, Any] = {"dtype": feature.dtype, "encoding": feature.encoding, "shape": list(feature.shape)}
    if feature.optional:
        fields["optional"] = True
    if feature.default is not None:
        fields["default"] = defaults.to_json(feature.dtype, feature.default)
    if feature.quantize is not None:
        fields["quantize"] = feature.quantize.options()
    return fields


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)


# ---- reading ----------------------------------------------------------------


def read(data: str | Buffer, source: str, limits: Limits = LIMITS) -> Parts:
    """The features in a JSON text. `source` is its name in errors."""
    text = _text(data, source)
    raw = text.encode(errors="surrogatepass")
    budget = Budget(limits, len(raw))
    budget.json(raw, source, 0)
    budget.objects(raw.count(b"{"), source, 0, _FEATURE_BYTES)
    top = dict(_pairs(_parse(text, source), source, ""))
    if VERSION_KEY not in top:
        raise SchemaError(f'not a schema of tensorbytes: the key "{VERSION_KEY}" is missing', path=source)
    version = top.pop(VERSION_KEY)
    if type(version) is not int or version != VERSION:
        raise SchemaError(
            f"version {brief(version)} of the schema format, but this tensorbytes reads version {VERSION}",
            path=source,
            hints=[Hint(purpose="update tensorbytes")],
        )
    for key in top:
        if key not in ("features", "lists", "origin"):
            raise SchemaError(f"unknown key {brief(key)}; known: features, lists, origin, {VERSION_KEY}", path=source)
    if "features" not in top:
        raise SchemaError('the key "features" is missing', path=source)
    lists = _read_group(top["lists"], source, "lists") if "lists" in top else None
    origin = dict(_pairs(top["origin"], source, "origin")) if "origin" in top else {}
    if not all(type(text) is str for text in origin.values()):
        raise SchemaError("the origin must hold text alone", path=source)
    return Parts(_read_group(top["features"], source, "features"), lists, origin)


def _text(data: str | Buffer, source: str) -> str:
    size = len(data) if isinstance(data, str) else len(bytes_view(data))
    if size > MAX_BYTES:
        raise SchemaError(f"over {MAX_BYTES} bytes; a schema has at most that many", path=source)
    try:
        return data if isinstance(data, str) else str(bytes_view(data), "utf-8")
    except UnicodeDecodeError as error:
        raise SchemaError(f"not UTF-8: {error.reason} at byte {error.start}", path=source) from None


def _parse(text: str, source: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=_Object, parse_constant=_constant, parse_float=_float, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise SchemaError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", path=source) from None
    except RecursionError:
        raise SchemaError("nested too deeply to be a schema", path=source) from None
    except MemoryError:
        raise LimitError(f"no memory for a schema of {len(text)} characters", path=source) from None


def _constant(text: str) -> _Refused:
    return _Refused(f"{text}, which is not JSON")


def _float(text: str) -> float | _Refused:
    value = float(text)
    return value if abs(value) < float("inf") else _Refused("a number too large for a float")


def _integer(text: str) -> int | _Refused:
    return int(text) if len(text) <= _MAX_DIGITS else _Refused(f"an integer of {len(text)} digits")


def _pairs(value: Any, source: str, place: str) -> Iterator[tuple[str, Any]]:
    """The keys and values of an object in which no key appears twice."""
    where = f"{place}: " if place else ""
    if not isinstance(value, _Object):
        raise SchemaError(f"{where}expected an object, got {brief(value)}", path=source)
    seen = set()
    for key, item in value.pairs:
        if key in seen:
            raise SchemaError(f"{where}the key {brief(key)} appears twice", path=source)
        seen.add(key)
        yield key, item


def _read_group(value: Any, source: str, group: str) -> dict[str, Feature]:
    found = {}
    for name, item in _pairs(value, source, group):
        place = f"{group}[{brief(name)}]"
        fields = dict(_pairs(item, source, place))
        if isinstance(fields.get("quantize"), _Object):
            fields["quantize"] = dict(_pairs(fields["quantize"], source, f"{place}.quantize"))
        try:
            check_name(name)
            found[name] = _read_feature(fields, is_list=group == "lists")
        except UsageError as error:
            raise SchemaError(f"{place}: {error.fault}", path=source, hints=error.hints) from None
    return found


def _read_feature(fields: dict[str, Any], is_list: bool) -> Feature:
    for key, value in fields.items():
        if key not in _FIELDS:
            raise UsageError(f"unknown key {brief(key)}; known: {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[key]):
            raise UsageError(f"{key}: expected {_WORDS[_FIELDS[key]]}, got {brief(value)}")
    if "dtype" not in fields:
        raise UsageError("dtype is missing")
    if "default" not in fields:
        return Feature(**fields)
    if is_list or fields["default"] is None:
        raise UsageError(
            "a default is for features; a missing list has no steps" if is_list else "default: null is none"
        )
    default = fields.pop("default")
    feature = Feature(**fields)
    fields["default"] = defaults.from_json(feature.dtype, len(feature.shape), default)
    return Feature(**fields)
