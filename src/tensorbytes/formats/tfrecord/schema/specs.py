"""TensorFlow's feature specs as schemas: what records hold, and how TensorFlow would hand it out.

They are recognised by the names of their classes, so that TensorFlow is not imported for it. Each stands for one or
more features of a record, all stored flat, and for a view of them:

| spec                    | features                       | a batch, one row                              |
| ----------------------- | ------------------------------ | --------------------------------------------- |
| FixedLenFeature         | of its shape, with its default | dense                                         |
| VarLenFeature           | [None]                         | Varying: sparse [rows, longest], [length]     |
| FixedLenSequenceFeature | [None, *shape]                 | Padded: dense [rows, longest, ..], [length, ..] |
| RaggedFeature           | values, partitions: [None]     | Partitioned: ragged, of a row dense without partitions |
| SparseFeature           | values, indices: [None]        | Indexed: sparse [rows, *size], [*size]        |

In a feature list of a SequenceExample the features are those of one step, and there is one more dimension.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes.errors import Hint, UsageError
from tensorbytes.formats.tfrecord.schema.defaults import brief
from tensorbytes.formats.tfrecord.schema.feature import Feature, check_name, dtype_name

_KINDS = ("FixedLenFeature", "VarLenFeature", "FixedLenSequenceFeature", "RaggedFeature", "SparseFeature")
_PARTITIONS = ("RowSplits", "RowLengths", "RowStarts", "RowLimits", "ValueRowIds")
_UNIFORM = "UniformRowLength"
# What TensorFlow's parsers take: of Examples, of the context and of the feature lists of SequenceExamples.
_ALLOWED = {
    "features": _KINDS,
    "context": ("FixedLenFeature", "VarLenFeature", "RaggedFeature"),
    "lists": ("FixedLenSequenceFeature", "VarLenFeature", "RaggedFeature"),
}
_DTYPES = {"string": "bytes", "text": "bytes"}


@dataclass(frozen=True, slots=True)
class Varying:
    """A list of values as a sparse tensor, in which no place before the last is empty."""

    key: str


@dataclass(frozen=True, slots=True)
class Padded:
    """Lists of values, or steps, filled up to the longest."""

    key: str
    fill: Any


@dataclass(frozen=True, slots=True)
class Partition:
    """How the rows of one level are told: by a feature of the record, or all of one length."""

    kind: str
    key: str = ""
    length: int = 0


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A ragged tensor. Partitions stand from the outermost to the innermost."""

    key: str
    partitions: tuple[Partition, ...]
    splits_dtype: str

    @property
    def inner(self) -> tuple[int, ...]:
        """The sizes of the innermost dimensions, as far as all rows have the same."""
        sizes: list[int] = []
        for partition in reversed(self.partitions):
            if partition.kind != _UNIFORM:
                break
            sizes.insert(0, partition.length)
        return tuple(sizes)

    @property
    def levels(self) -> tuple[Partition, ...]:
        """The partitions that are not inner dimensions."""
        return self.partitions[: len(self.partitions) - len(self.inner)]


@dataclass(frozen=True, slots=True)
class Indexed:
    """A sparse tensor."""

    key: str
    index_keys: tuple[str, ...]
    size: tuple[int, ...]
    sorted: bool


View: TypeAlias = "Varying | Padded | Partitioned | Indexed"


class Viewed(NamedTuple):
    """A column to be handed out: the feature `key` of its values, and how; without a view, as it is."""

    key: str
    feature: Feature
    view: View | None
    in_lists: bool

    @property
    def keys(self) -> set[str]:
        """The features of a record that it is made of."""
        if isinstance(self.view, Partitioned):
            return {self.key, *(part.key for part in self.view.partitions if part.kind != _UNIFORM)}
        return {self.key, *self.view.index_keys} if isinstance(self.view, Indexed) else {self.key}

    @property
    def depth(self) -> int:
        """How many lists there are around a feature of a row."""
        return self.in_lists + (len(self.view.levels) if isinstance(self.view, Partitioned) else 0)


class Group(NamedTuple):
    """What the specs of a dict stand for."""

    features: dict[str, Feature]
    columns: dict[str, Viewed]


def is_spec(spec: Any) -> bool:
    """Whether this is one of TensorFlow's descriptions of a feature."""
    kind = type(spec)
    return kind.__name__ in _KINDS and kind.__module__.partition(".")[0] == "tensorflow"


def has_specs(groups: Any) -> bool:
    """Whether a dict, or a pair of them, describes features in TensorFlow's terms."""
    pair = groups if isinstance(groups, tuple) and len(groups) == 2 else (groups,)
    return any(is_spec(item) for group in pair if isinstance(group, Mapping) for item in group.values())


def read_group(specs: Any, place: str) -> Group:
    """The features and columns of a dict of specs: of Examples ("features"), a "context" or feature "lists".

    What stands among them in our own terms is a feature like any other.
    """
    if not isinstance(specs, Mapping):
        raise UsageError(expected="a dict of names to feature specs", got=brief(specs))
    made = Group({}, {})
    for name, spec in specs.items():
        check_name(name)
        try:
            found = _read(name, spec, place)
        except UsageError as error:
            raise error.within(f"feature {brief(name)}", tensor=name) from None
        made.columns[name] = found.column
        for key, feature in found.features.items():
            if made.features.setdefault(key, feature) != feature:
                raise UsageError(
                    f"feature {brief(name)} takes {brief(key)} for {feature.describe()}, and another for "
                    f"{made.features[key].describe()}",
                    tensor=name,
                )
    return made


class _Read(NamedTuple):
    column: Viewed
    features: dict[str, Feature]


def _read(name: str, spec: Any, place: str) -> _Read:
    in_lists = place == "lists"
    if not is_spec(spec):
        feature = Feature.of(spec)
        return _Read(Viewed(name, feature, None, in_lists), {name: feature})
    kind = type(spec).__name__
    if kind not in _ALLOWED[place]:
        where = {"context": "the context of SequenceExamples", "lists": "feature lists"}.get(place, "Examples")
        raise UsageError(f"{kind} is not for {where}", expected=" or ".join(_ALLOWED[place]))
    dtype = _dtype(spec.dtype)
    if kind == "FixedLenFeature":
        feature = _fixed(dtype, spec)
        return _Read(Viewed(name, feature, None, in_lists), {name: feature})
    if kind == "FixedLenSequenceFeature":
        return _sequence(name, dtype, spec, in_lists)
    view: View
    if kind == "VarLenFeature":
        view = Varying(name)
    elif kind == "RaggedFeature":
        view = _ragged(name, spec)
    else:
        view = _sparse(spec)
    values = Feature(dtype, (None,), optional=True)
    column = Viewed(view.key, values, view, in_lists)
    features = dict.fromkeys(sorted(column.keys - {view.key}), Feature("int64", (None,), optional=True))
    if isinstance(view, Partitioned) and view.inner:
        column = column._replace(feature=Feature(dtype, (None, *view.inner), optional=True))
    return _Read(column, {view.key: values, **features})


def _dtype(spec: Any) -> str:
    if spec is None:
        raise UsageError("the spec has no dtype")
    name = dtype_name(spec)
    name = _DTYPES.get(name, name)
    if name not in ("float32", "int64", "bytes"):
        raise UsageError(f"records hold float32, int64 and string, not {name}")
    return name


def _shape(spec: Any) -> tuple[int, ...]:
    shape = spec.as_list() if hasattr(spec, "as_list") else [spec] if isinstance(spec, int) else spec
    if shape is None or isinstance(shape, str | bytes) or not isinstance(shape, Iterable):
        raise UsageError(f"shape={brief(spec)}", expected="a list of sizes")
    sizes = [getattr(size, "value", size) for size in shape]
    if None in sizes:
        raise UsageError(
            f"the shape {brief(sizes)} has an unknown size",
            hints=[Hint(purpose="use tf.io.FixedLenSequenceFeature for a first dimension that varies")],
        )
    return tuple(sizes)


def _fixed(dtype: str, spec: Any) -> Feature:
    shape = _shape(spec.shape)
    if spec.default_value is None:
        return Feature(dtype, shape)
    items = _items(dtype, spec.default_value)
    if len(items) != math.prod(shape):
        raise UsageError(f"a default of {len(items)} values for the shape {brief(shape)}")
    array = np.empty(len(items), object)
    array[:] = items
    return Feature(dtype, shape, default=array.reshape(shape) if shape else items[0])


def _items(dtype: str, value: Any) -> list[Any]:
    """The elements of a default: a scalar, nested lists, an array or a tensor."""
    plain = value.numpy() if hasattr(value, "numpy") else value
    items = np.array(plain, object).reshape(-1).tolist()
    return [item.encode() if isinstance(item, str) and dtype == "bytes" else item for item in items]


def _sequence(name: str, dtype: str, spec: Any, in_lists: bool) -> _Read:
    shape, fill = _shape(spec.shape), b"" if dtype == "bytes" else 0
    if in_lists:
        if spec.default_value is not None:
            raise UsageError("a FixedLenSequenceFeature of a feature list takes no default_value")
        step = Feature(dtype, shape, optional=bool(spec.allow_missing))
        return _Read(Viewed(name, step, Padded(name, fill), True), {name: step})
    if not spec.allow_missing:
        raise UsageError("of Examples, a FixedLenSequenceFeature must have allow_missing=True")
    if spec.default_value is not None:
        items = _items(dtype, spec.default_value)
        if len(items) != 1:
            raise UsageError(f"default_value={brief(spec.default_value)}", expected="one value, to fill up with")
        fill = Feature(dtype, default=items[0]).default
    feature = Feature(dtype, (None, *shape), optional=True)
    return _Read(Viewed(name, feature, Padded(name, fill), False), {name: feature})


def _ragged(name: str, spec: Any) -> Partitioned:
    partitions = []
    for item in spec.partitions:
        kind = type(item).__name__
        if kind == _UNIFORM:
            length = operator.index(item.length)
            if length < 1:
                raise UsageError(f"{kind}({length})", expected="a length of 1 or more")
            partitions.append(Partition(kind, length=length))
        elif kind in _PARTITIONS:
            check_name(item.key)
            partitions.append(Partition(kind, item.key))
        else:
            raise UsageError(f"a partition {brief(item)}", expected=f"one of {', '.join((*_PARTITIONS, _UNIFORM))}")
    key = name if spec.value_key is None else spec.value_key
    check_name(key)
    return Partitioned(key, tuple(partitions), dtype_name(spec.row_splits_dtype))


def _sparse(spec: Any) -> Indexed:
    keys = (spec.index_key,) if isinstance(spec.index_key, str) else tuple(spec.index_key or ())
    sizes = tuple(spec.size) if isinstance(spec.size, list | tuple) else (spec.size,)
    if not keys or len(keys) != len(sizes):
        raise UsageError(f"{len(keys)} index keys and {len(sizes)} sizes", expected="a size for each index_key")
    for key in (*keys, spec.value_key):
        check_name(key)
    try:
        size = tuple(map(operator.index, sizes))
    except TypeError:
        raise UsageError(f"size={brief(spec.size)}", expected="whole numbers") from None
    if min(size) < 0 or max(size) >= 1 << 62:
        raise UsageError(f"size={brief(spec.size)}", expected="numbers from 0 to 2**62")
    return Indexed(spec.value_key, keys, size, bool(spec.already_sorted))
