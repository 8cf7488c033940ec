"""inspect: what is in a file of any format, without reading its data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tensorbytes import formats, metadata, opening
from tensorbytes.errors import LIMITS, CorruptError, Limits, TensorbytesError
from tensorbytes.formats import ADVISORY_OF_THE_WHOLE
from tensorbytes.formats._opened import Opened
from tensorbytes.formats.tfrecord.kinds import EVENTS, OF_BYTES, OTHERS
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.io import storage
from tensorbytes.notebook import Displayed
from tensorbytes.ops.plain import spell_non_finite
from tensorbytes.ops.plural import many
from tensorbytes.reader import Entry
from tensorbytes.rows import LEVELS, MASKS, SCHEMA, Missing
from tensorbytes.tree import Leaf, restore

# A stream may hold millions of tensors: the first ones show what it is like.
_MOST_LISTED = 10_000
_MOST_SHOWN = 60
_MOST_VALUE_BYTES = 128
_SPELLED = ("complex", "bytes", "bytearray", "numpy")  # Python values that JSON lacks are given as text
# Of the origin of a whole, what is told in another way or only to machines.
_UNTOLD = frozenset({SCHEMA, MASKS, LEVELS, metadata.TYPES})
# What is in event files, and what that consists of.
_EVENT_UNITS = ("event", "tag")


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a file, or one feature of its records. None in the shape is a size that varies."""

    name: str | None
    kind: str  # tensor, strings, ragged, sparse, feature, feature list; object: not read, its class is the dtype
    dtype: str
    shape: tuple[int | None, ...]
    nbytes: int | None = None  # in memory
    meta: Mapping[str, str] = field(default_factory=dict)
    optional: bool = False
    nulls: int | None = None  # elements that are missing: of rows, of their lists, of the structs around them
    nulls_exact: bool = False  # or there are at least so many
    stored: str = ""  # how it is compressed and quantized
    stored_nbytes: int | None = None  # what that takes, where it is not nbytes
    # Of features of records, and of tags of event files, as far as they were looked at:
    present: int | None = None  # in how many records, or events
    lengths: tuple[int, int] | None = None  # the fewest and the most values; of a feature list, of one of its steps
    sizes: tuple[int, int] | None = None  # bytes of a value, of bytes features
    steps: tuple[int, int] | None = None  # of a feature list, how many; of a tag, the first and the last
    content: str = ""  # what bytes look like: text, JSON, JPEG, PNG, tensorproto float32[2, 3] ...
    # Of a plain Python value, which is stored as a tensor and is not one:
    python: str = (
        ""  # int, float, complex, bool, str, bytes, bytearray, none, list[float] ...; of empty ones dict, list, tuple
    )
    value: Any = None  # what it is, where it is short

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON: the name, and the fields that say something of this tensor."""
        plain = {key: value for key, value in asdict(self).items() if key == "name" or not _is_unset(value)}
        if self.value is not None:  # False and "" are values here
            plain["value"] = spell_non_finite(self.value)
        return plain


def _is_unset(value: Any) -> bool:
    return value is None or value is False or value in ("", {})


@dataclass
class Inspection(Displayed):
    """The result of `inspect`."""

    path: str
    format: str
    size: int | None  # bytes on disk
    tensors: list[TensorInfo]
    objects: int | None = 1  # documents of a stream, or records; None where counting would read everything
    meta: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict)  # how the whole was held, as we noted it ourselves
    details: dict[str, str] = field(default_factory=dict)
    schema: Any = None  # of TFRecord files
    files: list[str] = field(default_factory=list)
    listed_all: bool = True
    sampled: int | None = None  # this many records, the first ones, were looked at; None: all, or there are none

    @property
    def told_meta(self) -> dict[str, str]:
        """The metadata that is worth a line: not the versions of a state_dict's modules, nor a schema in base64."""
        own = {key: text for key, text in self.origin.items() if key not in ADVISORY_OF_THE_WHOLE | _UNTOLD}
        return {**own, **self.meta}

    @property
    def units(self) -> tuple[str, str]:
        """What one of its objects is called, and one of its tensors."""
        return _EVENT_UNITS if self.format == EVENTS else formats.get(self.format).units

    @property
    def lists_records(self) -> bool:
        """Whether its tensors are the features of records, or the tags of events."""
        if self.format == EVENTS:
            return True
        chosen = formats.get(self.format)
        return chosen.framed and not chosen.documents

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        schema = None if self.schema is None else json.loads(self.schema.to_json())
        plain = {key: value for key, value in vars(self).items() if key not in ("tensors", "schema")}
        return plain | {"tensors": [tensor.to_dict() for tensor in self.tensors], "schema": schema}

    def __str__(self) -> str:
        size = "" if self.size is None else f", {self.size} bytes"
        item, part = self.units
        rows = "" if self.objects == 1 and not self.lists_records else f", {_count(self.objects, item)}"
        parts = "" if self.schema is not None and not _has_features(self) else f", {_parts(self.tensors, part)}"
        lines = [f"{self.path}: {self.format}{size}{rows}{parts}"]
        lines += [f"  {printable(key)}: {printable(text)}" for key, text in {**self.details, **self.told_meta}.items()]
        if self.sampled is not None:
            lines.append(f"  looked at the first {many(self.sampled, item)}")
        shown = self.tensors[:_MOST_SHOWN]
        lines += table(_drop_empty_columns([_cells(tensor, self) for tensor in shown]))
        if len(self.tensors) > len(shown) or not self.listed_all:
            lines.append(f"  and {len(self.tensors) - len(shown)} more" if self.listed_all else "  and more")
        return "\n".join(lines)


def inspect(
    path: Any,
    format: str | None = None,
    *,
    limits: Limits = LIMITS,
    read_options: Mapping[str, Any] | None = None,
    scan: int | str | None = None,
) -> Inspection:
    """The format, tensors, dtypes, shapes, sizes, schema and metadata of a file, without loading its data.

    `path` is a path, a URL or a file object; for records a glob, "name@10" or a list of these, too, and
    for TensorBoard's event files a folder. Files are recognised by what is in them.

    Of records the first ones are looked at, 1,000 of them or 16 MB: in how many each feature is, how
    many values it has, what its bytes look like. `scan` is another number of records, or "all".

    What is null in tables is told as their statistics count it; where there are none, as the first rows show it:
    at least so many. With `scan="all"` it is counted.
    """
    source = opening.open_file(path, format, limits=limits, options=read_options)
    if source.holds_records:
        if source.kind == EVENTS:
            return _events(path, scan, limits)
        return _payloads(source, scan, limits) if source.kind == OTHERS else _records(source, scan, limits)
    found: list[TensorInfo] = []
    size = len(source.data) if source.data is not None else _size(files_of(source))
    objects, listed_all = 0, True
    meta: dict[str, str] = {}
    origin: dict[str, str] = {}
    for document, missing in source.listed(everything=scan == "all"):
        if not objects:
            meta, origin = dict(document.meta), dict(document.origin)
        objects += 1
        if len(found) < _MOST_LISTED:
            found += [_info(leaf, source.path, missing.get(str(leaf.name))) for leaf in document.leaves]
        else:
            listed_all = False
    return Inspection(source.path, source.format, size, found, objects, meta, origin, listed_all=listed_all)


def _info(leaf: Leaf, path: str, missing: Missing | None) -> TensorInfo:
    entry = Entry(leaf, lambda value: value, path)
    kind, dtype, shape, size = leaf.header  # of some values the size is known when they are read
    info = TensorInfo(entry.name, kind, dtype, shape, size, dict(leaf.meta))
    if missing is not None:
        info = replace(info, nulls=missing.elements, nulls_exact=missing.exact)
    if leaf.kind and leaf.kind != "object":
        info = replace(info, python=leaf.kind, value=_value(leaf, path))
    stored = entry.stored
    if stored is None:
        return info
    words = filter(None, [stored.compression, "" if stored.quantization is None else stored.quantization.describe()])
    return replace(info, stored="; ".join(words), stored_nbytes=stored.nbytes)


def _value(leaf: Leaf, path: str) -> Any:
    """What a plain value is, if it is short, undamaged and not a request away."""
    if not leaf.value.at_hand and not storage.is_local(path):
        return None
    if leaf.value.nbytes > _MOST_VALUE_BYTES:
        return None
    try:
        if leaf.check is not None:
            leaf.check()
        return _as_json(restore(leaf, numpy_adapter.from_value))
    except (TensorbytesError, OSError):
        return None  # what is wrong is told to whoever reads it


def _as_json(value: Any) -> Any:
    if isinstance(value, np.generic):
        number = value.item()
        value = number if isinstance(number, bool | int | float | str) else str(value)
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str | dict) else repr(value)


def _records(source: Any, scan: int | str | None, limits: Limits) -> Inspection:
    from tensorbytes.ops import profile

    records = source.records
    found = profile.profile(source.records.targets, source.compression, profile.Bound.of(scan), limits)
    schema = records.known_schema or found.schema
    features = _features(schema.features, found.schema.features, found.features, found, "feature")
    features += _features(schema.lists or {}, found.schema.lists or {}, found.lists, found, "feature list")
    made = Inspection(source.path, source.format, found.size, features, None, schema=schema, files=records.paths)
    _note_extent(made, found.compression, found.damage, found.records, found.complete, source)
    if found.contradiction:
        made.details["mixed"] = found.contradiction
    return made


def _note_extent(made: Inspection, compression: str, problem: str, looked: int, complete: bool, source: Any) -> None:
    """Say how much was looked at, and of how much."""
    if compression != "none":
        made.details["compression"] = compression
    if complete:
        made.objects = looked
    elif compression == "none" and all(map(storage.is_local, made.files)):
        # Counting the records of a compressed file, or of a distant one, would read all of it.
        try:
            made.objects = len(source.records)
        except CorruptError as error:
            problem = problem or error.fault
    made.sampled = looked if looked != made.objects else None
    if problem:
        made.details["damage"] = problem


def _features(
    said: Mapping[str, Any], met: Mapping[str, Any], seen: Mapping[str, Any], found: Any, kind: str
) -> list[TensorInfo]:
    """The features that the schema names, and those that records have all the same."""
    made = []
    for name, feature in {**met, **said}.items():
        about = seen.get(name)
        info = TensorInfo(name, kind, feature.dtype, feature.shape, optional=feature.optional, present=0)
        if about is not None:
            info = replace(
                info,
                present=about.present,
                optional=feature.optional or about.present < found.records,
                nulls=found.records - about.present or None,
                nulls_exact=found.complete and about.present < found.records,
                lengths=about.lengths,
                sizes=about.sizes,
                steps=about.steps,
                content=about.content,
            )
        made.append(info)
    return made


def _payloads(source: Any, scan: int | str | None, limits: Limits) -> Inspection:
    from tensorbytes.ops import profile

    found, looked, met, problem = profile.payloads(
        source.records.targets, source.compression, profile.Bound.of(scan), limits
    )
    record = TensorInfo(None, "record", "bytes", (), present=looked, sizes=found.sizes, content=found.content)
    made = Inspection(source.path, source.format, met.size, [record], None, files=source.records.paths)
    made.details["holds"] = f"{OF_BYTES}; open_records(path).payloads() gives them, message= parses them"
    _note_extent(made, met.compression, problem, looked, met.all, source)
    return made


def _events(path: Any, scan: int | str | None, limits: Limits) -> Inspection:
    from datetime import UTC, datetime

    from tensorbytes.ops import profile

    found = profile.events(path, scan, limits)
    tags = [
        TensorInfo(name, tag.kind, tag.dtype, tag.shape, present=tag.count, steps=tag.steps)
        for name, tag in found.tags.items()
    ]
    details = {}
    if found.times is not None:
        spelled = [datetime.fromtimestamp(time, UTC).isoformat(" ", "seconds")[:19] for time in found.times]
        details["time"] = " to ".join(dict.fromkeys(spelled)) + " UTC"
    others = {kind: number for kind, number in found.others.items() if kind != "file_version"}
    if others:
        details["also"] = ", ".join(f"{number} {kind}" for kind, number in others.items())
    if found.problem:
        details["damage"] = found.problem
    count = found.count if found.complete else None
    sampled = None if found.complete else found.count
    shown = storage.describe(path)
    return Inspection(shown, EVENTS, _size(found.files), tags, count, {}, details, files=found.files, sampled=sampled)


def files_of(source: Opened) -> list[str]:
    """The files that are read for a source."""
    return formats.get(source.format).files(source.path) if storage.is_local(source.path) else [source.path]


def _size(paths: Iterable[str]) -> int | None:
    """The bytes of some files, or of all files in a folder; None for what is not on this machine."""
    total = 0
    for path in paths:
        if not storage.is_local(path) or not os.path.exists(path):
            return None
        if os.path.isdir(path):
            below = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
            total += sum(os.path.getsize(file) for file in below if os.path.isfile(file))  # a link may lead nowhere
        else:
            total += os.path.getsize(path)
    return total


# ---- words --------------------------------------------------------------------


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Lines with aligned columns."""
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _parts(tensors: list[TensorInfo], part: str) -> str:
    """2 tensors, 9 values"""
    values = sum(bool(tensor.python) for tensor in tensors)
    objects = sum(tensor.kind == "object" for tensor in tensors)
    counts = {part: len(tensors) - values - objects, "value": values, "unread object": objects}
    return ", ".join(many(count, what) for what, count in counts.items() if count) or many(0, part)


def _name(name: str | None) -> str:
    return "(no name)" if name is None else printable(name)


def printable(text: str) -> str:
    """Names come from files: nothing in them may steer a terminal."""
    return text if text.isprintable() else repr(text)[1:-1]


def _cells(tensor: TensorInfo, whole: Inspection) -> tuple[str, ...]:
    """The row of one tensor, feature or tag."""
    shape = _shape(tensor.shape)
    if whole.format == EVENTS:
        kind = " ".join(dict.fromkeys(filter(None, (tensor.kind, tensor.dtype))))
        return (_name(tensor.name), kind, shape, _range((tensor.present or 0,) * 2, "event"), _steps(tensor.steps))
    name = "each record" if tensor.kind == "record" else _name(tensor.name)
    first = (name, tensor.dtype + _mark(tensor), shape, _bytes(tensor.nbytes))
    if tensor.kind == "object":
        return (name, tensor.dtype, "not read", "", "", "")
    if tensor.python:
        known = tensor.value is not None or tensor.python == "none"
        kind = tensor.dtype if tensor.python == "numpy" else tensor.python
        spelled = tensor.value if tensor.python in _SPELLED else repr(tensor.value)
        first = (name, kind, f"= {printable(str(spelled))}", "") if known else (name, kind, *first[2:])
    if not whole.lists_records:
        stored = f"in {tensor.stored_nbytes}: {tensor.stored}" if tensor.stored else ""
        return (*first, stored, "" if tensor.nulls is None else str(Missing(tensor.nulls, tensor.nulls_exact)))
    looked = whole.sampled if whole.sampled is not None else whole.objects
    present = "in all" if tensor.present == looked else f"in {tensor.present}"
    if tensor.nulls and not tensor.nulls_exact:
        present += f", {Missing(tensor.nulls, exact=False)}"
    steps = "" if tensor.steps is None else _range(tensor.steps, "step") + " of "
    values = "" if tensor.lengths is None else steps + _range(tensor.lengths, "value")
    return (*first, present, values, "" if tensor.sizes is None else _range(tensor.sizes, "byte"), tensor.content)


def _drop_empty_columns(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The rows without the columns that are empty in all of them."""
    kept = [index for index in range(len(rows[0]) if rows else 0) if any(row[index] for row in rows)]
    return [tuple(row[index] for index in kept) for row in rows]


def _has_features(found: Inspection) -> bool:
    return not any(tensor.kind == "record" for tensor in found.tensors)


def _mark(tensor: TensorInfo) -> str:
    kind = "" if tensor.kind in ("tensor", "strings", "feature", "record") else f" {tensor.kind}"
    return f"{kind}{' optional' if tensor.optional else ''}"


def _shape(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("?" if n is None else str(n) for n in shape) + "]"


def _range(bounds: tuple[int, int], what: str) -> str:
    low, high = bounds
    return many(low, what) if low == high else f"{low}..{high} {what}s"


def _steps(bounds: tuple[int, int] | None) -> str:
    if bounds is None:
        return ""
    return f"step {bounds[0]}" if bounds[0] == bounds[1] else f"steps {bounds[0]}..{bounds[1]}"


def _count(number: int | None, what: str) -> str:
    return f"? {what}s" if number is None else many(number, what)


def _bytes(size: int | None) -> str:
    return "" if size is None else str(size)
