"""Rows to columns: one collector for each feature takes the rows' values one by one.

`add` checks a value at once and keeps a copy of it, so a wrong one is found in its own row
and the caller may reuse its arrays. What values usually look like is tested first and in few
steps; all else goes through `encode`, which knows every form and finds the words for errors.

A collector also forgets again (`cut`): a row of which one value is wrong is not half kept.
"""

from __future__ import annotations

import itertools
import math
import struct
from array import array
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorbytes import _wire, dtypes, frameworks
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.formats.tfrecord.write import encode
from tensorbytes.formats.tfrecord.write.assemble import KernelColumn, every
from tensorbytes.formats.tfrecord.write.encode import STRINGS, Misfit
from tensorbytes.tensor import Array, Ragged, Strings, Tensor

_pack_float = struct.Struct("<f").pack
_pack_double = struct.Struct("<d").pack


class Usual(NamedTuple):
    """The form that a collector's values usually have: those the kernel adds to its list by itself."""

    form: int
    detail: Any
    values: list[Any]


# Of collectors that look at every value themselves.
UNUSUAL = Usual(_wire.FORM_OTHER, None, [])


class Collector(Protocol):
    @property
    def usual(self) -> Usual:
        """What `_wire.collect_row` may do in place of `add`."""

    def add(self, x: Any) -> int:
        """Keep a copy of the value; gives about how many bytes that takes."""

    def cut(self, rows: int) -> None:
        """Forget all but the first `rows` values."""

    def take(self) -> KernelColumn:
        """The column of all values since the last time."""


def collector(key: str, feature: Feature, is_list: bool = False) -> Collector:
    """The collector for a feature, or for a feature list of such steps."""
    made = Steps(key, feature) if is_list else _plain(key, feature)
    return Optional(made) if feature.optional else made


def _plain(key: str, feature: Feature) -> Collector:
    if feature.encoding in ("tensorproto", "raw"):
        return CellCollector(key, feature)
    if feature.dtype in STRINGS:
        if feature.shape:
            return StringLists(key, feature)
        return {"text": Texts, "bytes": Blobs}[feature.dtype](key, feature)
    if feature.shape:
        return Arrays(key, feature) if None not in feature.shape else VaryingArrays(key, feature)
    if feature.dtype == "bool" or encode.limits(feature.dtype):
        return Int64s(key, feature) if feature.dtype == "int64" else Integers(key, feature)
    return Floats(key, feature) if feature.dtype == "float32" else Arrays(key, feature)


def _emptied(values: list[Any]) -> list[Any]:
    """What a list held that goes on being filled: the kernel knows it."""
    held = values.copy()
    values.clear()
    return held


def _numpy_dtypes(dtype: str) -> tuple[np.dtype[Any], ...]:
    """The dtype that arrays must have to be taken as they are; none where their values need a look too.

    A tuple, since `in` compares by identity first, and most arrays share the one object.
    """
    row = dtypes.get(dtype)
    if row.numpy is None or row.bits < 8 or dtype == "bool":
        return ()
    return (np.dtype(row.numpy if hasattr(np, row.numpy) else dtypes.to_numpy(dtype)),)


# ---- numbers in int64 and float lists ---------------------------------------


class Integers:
    """Scalars of an integer dtype, or bool."""

    usual = UNUSUAL

    def __init__(self, key: str, feature: Feature) -> None:
        self._key, self._feature = key.encode(), feature
        self._type = bool if feature.dtype == "bool" else int
        self._low, self._high = encode.limits(feature.dtype) or (False, True)
        self._values: list[int] = []

    def add(self, x: Any) -> int:
        if type(x) is self._type and self._low <= x <= self._high:
            self._values.append(x)
        else:
            self._values.append(int(encode.stored(encode.tensor(x, self._feature), "int64")[0]))
        return 8

    def cut(self, rows: int) -> None:
        del self._values[rows:]

    def take(self) -> KernelColumn:
        values = np.frombuffer(array("q", self._values), np.int64)
        self._values.clear()
        return KernelColumn(3, self._key, None, every(1, len(values)), None, values, None)


class Int64s(Integers):
    """int64 scalars."""

    def __init__(self, key: str, feature: Feature) -> None:
        super().__init__(key, feature)
        self.usual = Usual(_wire.FORM_INT64, None, self._values)

    def add(self, x: Any) -> int:
        return super().add(int(x) if type(x) is np.int64 else x)


class Arrays:
    """Arrays of one shape, in an int64 or float list."""

    def __init__(self, key: str, feature: Feature) -> None:
        self._key, self._feature = key.encode(), feature
        self._shape, self._dtypes = feature.shape, _numpy_dtypes(feature.dtype)
        self._quick = _QUICK_LISTS.get(feature.dtype) if len(feature.shape) == 1 else None
        self._parts: list[bytes] = []
        self.usual = self._usual()

    def _usual(self) -> Usual:
        form = _array_form(self._shape, self._dtypes)
        return UNUSUAL if form is None else Usual(_wire.FORM_ARRAY, form, self._parts)

    def add(self, x: Any) -> int:
        if type(x) is np.ndarray and x.dtype in self._dtypes and x.shape == self._shape:
            data = x.tobytes()
        else:
            data = self._convert(x)
        self._parts.append(data)
        return len(data)

    def _convert(self, x: Any) -> bytes:
        """Any other form."""
        if self._quick is not None and type(x) is list and encode.fits((len(x),), self._shape):
            data = self._quick(x)
            if data is not None:
                return data
        return bytes(encode.tensor(x, self._feature).data)

    def cut(self, rows: int) -> None:
        del self._parts[rows:]

    def take(self) -> KernelColumn:
        parts = _emptied(self._parts)
        return self._column(parts, every(math.prod(n or 0 for n in self._shape), len(parts)))

    def _column(self, parts: list[bytes], offsets: Array) -> KernelColumn:
        feature = self._feature
        values = encode.stored(Tensor(feature.dtype, (int(offsets[-1]),), b"".join(parts)), feature.kind)
        return KernelColumn(feature.kind_number, self._key, None, offsets, None, values, None)


def _array_form(
    shape: tuple[int | None, ...], kinds: tuple[np.dtype[Any], ...]
) -> tuple[type, str, np.dtype[Any], tuple[int, ...]] | None:
    """(class, "dtype", dtype, sizes) of arrays that are taken as they are; None where a dtype is not the only one."""
    if not kinds or kinds[0].isbuiltin != 1:
        return None
    return np.ndarray, "dtype", kinds[0], tuple(-1 if n is None else n for n in shape)


def _quick_integers(x: list[Any]) -> bytes | None:
    """A list of integers alone as int64; None if it is not that."""
    try:
        return array("q", x).tobytes() if set(map(type, x)) == {int} else None
    except OverflowError:
        return None


def _quick_floats(x: list[Any]) -> bytes | None:
    """The same of floats as float32."""
    try:
        return struct.pack(f"<{len(x)}f", *x) if set(map(type, x)) == {float} else None
    except OverflowError:
        return None


_QUICK_LISTS = {"int64": _quick_integers, "float32": _quick_floats}


class VaryingArrays(Arrays):
    """Arrays of which one dimension varies."""

    def add(self, x: Any) -> int:
        data = x.tobytes() if type(x) is np.ndarray and self._fits(x) else self._convert(x)
        self._parts.append(data)
        return len(data)

    def _fits(self, x: Array) -> bool:
        return x.dtype in self._dtypes and (x.ndim == 1 == len(self._shape) or encode.fits(x.shape, self._shape))

    def take(self) -> KernelColumn:
        parts = _emptied(self._parts)
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        return self._column(parts, offsets_of(sizes // dtypes.get(self._feature.dtype).itemsize))


class Floats(Arrays):
    """float32 scalars."""

    def _usual(self) -> Usual:
        return UNUSUAL

    def add(self, x: Any) -> int:
        if type(x) is np.float32 or type(x) is float:
            try:
                data = _pack_float(x)
            except OverflowError:
                data = self._convert(x)  # says what is wrong
        else:
            data = self._convert(x)
        self._parts.append(data)
        return 4


# ---- strings in bytes lists -------------------------------------------------


class Texts:
    """One text for each row."""

    _form = _wire.FORM_TEXT

    def __init__(self, key: str, feature: Feature) -> None:
        self._key, self._feature = key.encode(), feature
        self._parts: list[bytes] = []
        self.usual = Usual(self._form, None, self._parts)

    def add(self, x: Any) -> int:
        if type(x) is str:
            try:
                data = x.encode()
            except UnicodeEncodeError:
                data = self._one(x)
        else:
            data = self._one(x)
        self._parts.append(data)
        return len(data) + 8

    def _one(self, x: Any) -> bytes:
        return encode.string_items(x, self._feature)[0][0]

    def cut(self, rows: int) -> None:
        del self._parts[rows:]

    def take(self) -> KernelColumn:
        parts = _emptied(self._parts)
        return string_column(self._key, self._feature, every(1, len(parts)), parts)


class Blobs(Texts):
    """One byte string for each row."""

    _form = _wire.FORM_BYTES

    def add(self, x: Any) -> int:
        data = x if type(x) is bytes else self._one(x)
        self._parts.append(data)
        return len(data) + 8


class StringLists:
    """A list or an array of strings for each row."""

    usual = UNUSUAL

    def __init__(self, key: str, feature: Feature) -> None:
        self._key, self._feature = key.encode(), feature
        self._quick = {str} if feature.dtype == "text" else {bytes}
        self._rows: list[list[bytes]] = []

    def _encoded(self, x: list[Any]) -> list[bytes]:
        try:
            return [item.encode() for item in x] if self._feature.dtype == "text" else list(x)
        except UnicodeEncodeError:
            return encode.string_items(x, self._feature)[0]  # says what is wrong

    def add(self, x: Any) -> int:
        if type(x) is list and set(map(type, x)) == self._quick and encode.fits((len(x),), self._feature.shape):
            items = self._encoded(x)
        else:
            items, _ = encode.string_items(x, self._feature)
        self._rows.append(items)
        return sum(map(len, items)) + 8 * len(items)

    def cut(self, rows: int) -> None:
        del self._rows[rows:]

    def take(self) -> KernelColumn:
        rows, self._rows = self._rows, []
        offsets = offsets_of([len(row) for row in rows])
        return string_column(self._key, self._feature, offsets, list(itertools.chain.from_iterable(rows)))


def string_column(key: bytes, feature: Feature, offsets: Array, items: list[bytes]) -> KernelColumn:
    if feature.encoding == "base64":
        items = [encode.to_base64(item) for item in items]
    bounds = np.empty(len(items) + 1, np.int64)
    if _wire.bytes_offsets(items, bounds) < len(items):  # some are of a class of their own
        bounds = offsets_of(np.fromiter(map(len, items), np.int64, len(items)))
    return KernelColumn(1, key, None, offsets, None, b"".join(items), bounds)


# ---- whole arrays in one string ---------------------------------------------


class CellCollector:
    """Arrays as TensorProtos or raw bytes."""

    usual = UNUSUAL

    def __init__(self, key: str, feature: Feature) -> None:
        self._key, self._feature = key.encode(), feature
        self._shape, self._raw = feature.shape, feature.encoding == "raw"
        plain = feature.dtype not in STRINGS and feature.quantize is None
        self._dtypes = _numpy_dtypes(feature.dtype) if plain else ()
        self._floats = plain and feature.dtype == "float64"
        self._parts: list[bytes] = []  # head and content of each row
        self._last: tuple[tuple[int, ...], bytes] = ((-1,), b"")  # the last shape, and its head

    def add(self, x: Any) -> int:
        if type(x) is np.ndarray and x.dtype in self._dtypes:
            if x.shape != self._last[0]:
                self._last = (x.shape, self._head(x))
            head, content = self._last[1], x.tobytes()
        elif self._floats and type(x) is float and self._last[0] == ():
            head, content = self._last[1], _pack_double(x)
        else:
            head, content = encode.cell(x, self._feature)
            if self._floats and type(x) is float:
                self._last = ((), head)
        self._parts.append(head)
        self._parts.append(content)
        return len(content) + 8

    def _head(self, x: Array) -> bytes:
        encode.check_shape(self._feature.dtype, x.shape, self._feature)
        return b"" if self._raw else encode.proto_head(self._feature.dtype, x.shape, x.nbytes)

    def cut(self, rows: int) -> None:
        del self._parts[2 * rows :]

    def take(self) -> KernelColumn:
        parts, self._parts = self._parts, []
        sizes = np.fromiter(map(len, parts), np.int64, len(parts))
        rows = len(parts) // 2
        bounds = offsets_of(sizes.reshape(rows, 2).sum(axis=1))
        return KernelColumn(1, self._key, None, every(1, rows), None, b"".join(parts), bounds)


# ---- around others ----------------------------------------------------------


class Optional:
    """A feature that rows may lack: None stands for that."""

    usual = UNUSUAL

    def __init__(self, inner: Collector) -> None:
        self._inner = inner
        self._present = bytearray()

    def add(self, x: Any) -> int:
        size = 1 if x is None else self._inner.add(x)
        self._present.append(x is not None)
        return size

    def cut(self, rows: int) -> None:
        del self._present[rows:]
        self._inner.cut(sum(self._present))

    def take(self) -> KernelColumn:
        present, self._present = np.frombuffer(bytes(self._present), np.uint8), bytearray()
        column = self._inner.take()
        rows = offsets_of(present)
        if column.steps is not None:
            return column._replace(steps=column.steps[rows], present=present)
        return column._replace(offsets=column.offsets[rows], present=present)


class Steps:
    """A feature list: each row is a list of steps, or an array with one step for each item of its first axis."""

    usual = UNUSUAL

    def __init__(self, key: str, feature: Feature) -> None:
        self._feature, self._inner = feature, _plain(key, feature)
        self._ends = array("q")  # of each row, in steps

    def add(self, x: Any) -> int:
        size = 8
        steps = x if type(x) is list else self._steps(x)
        for step in steps:
            size += self._inner.add(step)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(steps))
        return size

    def _steps(self, x: Any) -> list[Any]:
        if isinstance(x, tuple):
            return list(x)
        value = frameworks.value_of(x)
        if isinstance(value, Ragged):
            return value.rows()
        if not isinstance(value, Tensor | Strings) or not value.shape:
            raise Misfit(f"a list of steps, each {self._feature.describe()}", encode.describe(x))
        if isinstance(value, Strings) and self._feature.dtype in STRINGS:
            value = encode.as_encoding(value, self._feature)
        if isinstance(value, Tensor) and value.dtype == self._feature.dtype and len(value.shape) == 1:
            items: list[Any] = value.numpy().tolist()  # the same values, quicker to take
            return items
        return list(value.numpy())

    def cut(self, rows: int) -> None:
        del self._ends[rows:]
        self._inner.cut(self._ends[-1] if self._ends else 0)

    def take(self) -> KernelColumn:
        ends, self._ends = self._ends, array("q")
        return self._inner.take()._replace(steps=np.concatenate(([0], ends)).astype(np.int64))
