"""What a schema stores in lists of bytes, float and int64, turned back into what it was.

| encoding    | a record holds                                                |
| ----------- | ------------------------------------------------------------- |
| flat        | the values themselves, in C order                             |
| tensorproto | one bytes value: a TensorProto, with dtype and shape in it    |
| raw         | one bytes value: the elements, little-endian, in C order      |
| base64      | bytes or text in the standard alphabet                        |
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes.budget import STRING_BYTES, Budget
from tensorbytes.errors import LimitError, SchemaError, TensorbytesError
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.read.columns import ColumnPart, join
from tensorbytes.formats.tfrecord.schema import Feature, quantized
from tensorbytes.formats.tfrecord.schema.defaults import STRINGS
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor
from tensorbytes.typing import bytes_view

# Makes the error for a record (or step) of this index, out of what was found there.
Complaint: TypeAlias = Callable[[int, str], SchemaError]


def restored(values: Array, wanted: np.dtype[Any]) -> tuple[Array, Array | None]:
    """(the values in another dtype, which of them it can't hold); None if it holds all."""
    with np.errstate(invalid="ignore", over="ignore"):
        out = values.astype(wanted)
        back = out.astype(values.dtype)
    wrong = back != values
    if values.dtype.kind == "f":
        wrong |= np.signbit(back) != np.signbit(values)  # some narrow floats have no -0.0
        wrong &= ~(np.isnan(values) & np.isnan(back))
    return out, wrong if wrong.any() else None


def shaped(values: Array, splits: Array, feature: Feature, complain: Complaint, present: Array | None) -> ColumnPart:
    """Flat values of varying number in the shape that the schema gives them."""
    shape = feature.shape
    _check_counts(splits, feature, present, complain)
    if None in shape and shape[0] is None:
        inner = math.prod(n or 0 for n in shape[1:])
        if len(shape) == 1:
            return ColumnPart(values, None, (splits,))
        return ColumnPart(values.reshape(-1, *shape[1:]), None, (splits // inner,))
    return ColumnPart(values, None, (splits,), _row_shapes(shape, splits, present))


def _row_shapes(shape: tuple[int | None, ...], splits: Array, present: Array | None) -> Array | None:
    """The shape of each row, where rows are n-D; that of a missing one is all zeros."""
    if len(shape) < 2:
        return None
    lengths = np.diff(splits)
    inner = math.prod(n for n in shape if n is not None)
    out = np.empty((len(lengths), len(shape)), np.int64)
    for axis, n in enumerate(shape):
        out[:, axis] = lengths // inner if n is None else n
    if present is not None:
        out[~present] = 0
    return out


def _check_counts(splits: Array, feature: Feature, present: Array | None, complain: Complaint) -> None:
    """Each record must have as many values as fill the shape, if it has the feature."""
    if feature.size is not None:
        _check_lengths(splits, feature.size, present, complain)
        return
    inner = math.prod(n for n in feature.shape if n is not None)
    if inner == 1:
        return
    lengths = np.diff(splits)
    wrong = lengths % inner != 0
    if wrong.any():
        index = int(np.argmax(wrong))
        raise complain(index, f"has {lengths[index]} values, not a multiple of {inner}")


def _check_lengths(splits: Array, size: int, present: Array | None, complain: Complaint) -> None:
    wrong = np.diff(splits) != size
    if present is not None:
        wrong &= present
    if wrong.any():
        index = int(np.argmax(wrong))
        raise complain(index, f"has {int(splits[index + 1] - splits[index])} values")


# ---- strings ---------------------------------------------------------------------


def from_strings(
    strings: Array,
    data: Array,
    splits: Array,
    feature: Feature,
    present: Array | None,
    complain: Complaint,
    budget: Budget,
) -> ColumnPart:
    """A column out of lists of bytes; `splits` says how many strings each record has."""
    if feature.encoding in ("tensorproto", "raw"):
        _check_lengths(splits, 1, present, complain)
        rows = np.arange(len(splits) - 1) if present is None else np.flatnonzero(present)
        tensors = _Tensors(strings, data, feature, lambda index, got: complain(int(rows[index]), got), budget)
        if feature.dtype not in STRINGS:
            return _spread(tensors.numbers(), rows, present, feature, budget)
        strings, data, counts = tensors.strings()
        splits = offsets_of(_placed(counts, rows, len(splits) - 1))
    else:
        _check_counts(splits, feature, present, complain)
    if feature.encoding == "base64":
        strings, data = _from_base64(strings, data, splits, complain)
    if feature.dtype == "text":
        _check_text(strings, data, splits, complain)
    if present is not None and feature.default is None:
        shapes = None if feature.size is None else _row_shapes(feature.shape, splits, present)
        return ColumnPart(data, strings, (splits,), shapes)
    if present is not None and not present.all():
        return _with_default(strings, data, splits, feature, present, budget)
    return ColumnPart(data, strings, (splits,) if feature.shape else ())


def _from_base64(strings: Array, data: Array, splits: Array, complain: Complaint) -> tuple[Array, Array]:
    raw, out = data.tobytes(), []
    for index, (start, stop) in enumerate(pairwise(strings.tolist())):
        try:
            out.append(base64.b64decode(raw[start:stop], validate=True))
        except binascii.Error as error:
            row = int(np.searchsorted(splits, index, side="right")) - 1
            raise complain(row, f"is not base64 ({error})") from None
    return offsets_of([len(item) for item in out]), np.frombuffer(b"".join(out), np.uint8)


def _check_text(strings: Array, data: Array, splits: Array, complain: Complaint) -> None:
    """Each string must be UTF-8 by itself."""
    raw = data.tobytes()
    try:
        str(raw, "utf-8")
        starts = strings[:-1][strings[:-1] < len(raw)]
        if not ((data[starts] & 0xC0) == 0x80).any():
            return
    except UnicodeDecodeError:
        pass
    for index, (start, stop) in enumerate(pairwise(strings.tolist())):
        try:
            str(raw[start:stop], "utf-8")
        except UnicodeDecodeError as error:
            row = int(np.searchsorted(splits, index, side="right")) - 1
            raise complain(row, f"is not UTF-8: {error.reason} at its byte {error.start}") from None


def _with_default(
    strings: Array, data: Array, splits: Array, feature: Feature, present: Array, budget: Budget
) -> ColumnPart:
    charge_default(feature, int(np.count_nonzero(~present)), budget)
    default: list[Any] = feature.default_array().reshape(-1).tolist()
    missing = [item.encode() if isinstance(item, str) else item for item in default]
    raw, bounds, rows = data.tobytes(), strings.tolist(), splits.tolist()
    items: list[bytes] = []
    for row, there in enumerate(present.tolist()):
        items += [raw[bounds[i] : bounds[i + 1]] for i in range(rows[row], rows[row + 1])] if there else missing
    part = ColumnPart(np.frombuffer(b"".join(items), np.uint8), offsets_of([len(item) for item in items]))
    return replace(part, splits=(np.arange(len(present) + 1) * len(missing),)) if feature.shape else part


# ---- tensors in bytes ------------------------------------------------------------


class _Tensors:
    """One TensorProto or raw tensor in each string."""

    def __init__(self, strings: Array, data: Array, feature: Feature, complain: Complaint, budget: Budget) -> None:
        self.bounds, self.data, self.feature, self.complain = strings, data, feature, complain
        self.count = len(strings) - 1
        self.budget = budget

    def numbers(self) -> ColumnPart:
        if self.feature.quantize is not None and self.feature.encoding == "raw":
            inner = quantized.stored_feature(self.feature)
            part = _Tensors(self.bounds, self.data, inner, self.complain, self.budget)._raw()
            return replace(part, values=quantized.restored(part.values, self.feature))
        if self.feature.encoding == "raw":
            return self._raw()
        return self._alike() or self._one_by_one()

    def strings(self) -> tuple[Array, Array, list[int]]:
        """(offsets, bytes, how many each tensor has) of tensors of strings."""
        values = [value for value in self._parsed() if isinstance(value, Strings)]
        self._charge_join(sum(value.nbytes + value.offsets.nbytes for value in values))
        empty = ColumnPart(np.empty(0, np.uint8), np.zeros(1, np.int64))
        part = join([empty, *(ColumnPart(np.frombuffer(v.data, np.uint8), v.offsets) for v in values)])
        assert part.strings is not None
        return part.strings, part.values, [math.prod(value.shape) for value in values]

    def _raw(self) -> ColumnPart:
        feature, dtype = self.feature, dtypes.to_numpy(self.feature.dtype)
        lengths = np.diff(self.bounds)
        wrong = lengths % dtype.itemsize != 0
        if wrong.any():
            index = int(np.argmax(wrong))
            raise self.complain(index, f"has {lengths[index]} bytes, not a multiple of {dtype.itemsize}")
        wrong = self.data > _highest(feature)
        if wrong.any():
            index = int(np.searchsorted(self.bounds, int(np.argmax(wrong)), side="right")) - 1
            raise self.complain(
                index, f"holds the byte {self.data[np.argmax(wrong)]}, which is not a valid {feature.dtype}"
            )
        values, splits = self.data.view(dtype), self.bounds // dtype.itemsize
        if feature.size is None:
            return shaped(values, splits, feature, self.complain, None)
        _check_lengths(splits, feature.size, None, self.complain)
        return ColumnPart(values.reshape(self.count, *_known(feature)))

    def _alike(self) -> ColumnPart | None:
        """All TensorProtos at once, where each has the same header; None if they differ."""
        size = int(self.bounds[1]) if self.count else 0
        if not size or (np.diff(self.bounds) != size).any():
            return None
        plain = _wire.plain_tensor(self.data, 0, size)
        rows = self.data.reshape(self.count, size)
        if plain is None:
            values = quantized.alike(rows, self.budget, self.feature.dtype)
            return None if values is None else self._of_one_shape(values, values.shape[1:])
        _, shape, at, nbytes, _ = plain
        if at + nbytes != size or not (rows[:, :at] == rows[0, :at]).all():
            return None
        content = rows[:, at:].copy().reshape(-1)
        if int(content.max(initial=0)) > _highest(self.feature):
            return None  # which record has it is found one by one
        return self._of_one_shape(content, shape)

    def _of_one_shape(self, content: Array, shape: tuple[int, ...]) -> ColumnPart:
        self._parse(0)  # checks dtype and shape for all of them
        values = content.reshape(-1).view(dtypes.to_numpy(self.feature.dtype))
        if self.feature.size is not None:
            return ColumnPart(values.reshape(self.count, *shape))
        shapes = np.tile(np.array(shape, np.int64), (self.count, 1)) if len(shape) > 1 else None
        return ColumnPart(values, None, (np.arange(self.count + 1) * math.prod(shape),), shapes)

    def _one_by_one(self) -> ColumnPart:
        feature, dtype = self.feature, dtypes.to_numpy(self.feature.dtype)
        arrays = [value.numpy() for value in self._parsed() if isinstance(value, Tensor)]
        self._charge_join(sum(array.nbytes for array in arrays))
        if feature.size is not None:
            return ColumnPart(np.stack(arrays) if arrays else np.empty((0, *_known(feature)), dtype))
        flat = np.concatenate([np.empty(0, dtype), *(array.reshape(-1) for array in arrays)])
        splits = offsets_of([array.size for array in arrays])
        if len(feature.shape) == 1:
            return ColumnPart(flat, None, (splits,))
        shapes = np.array([array.shape for array in arrays], np.int64).reshape(-1, len(feature.shape))
        return ColumnPart(flat, None, (splits,), shapes)

    def _charge_join(self, size: int) -> None:
        """Count the copy that joining makes: until it is made, the parts are there as well."""
        try:
            self.budget.copy(size, f"joining {self.count} tensors", 0)
        except LimitError as error:
            raise self._at(self.count - 1, error) from None

    def _at(self, index: int, error: LimitError) -> LimitError:
        """The error with the place of a tensor."""
        found = self.complain(index, error.fault)
        return error.replaced(what=found.what, path=found.path, at=None, record=found.record, tensor=found.tensor)

    def _parsed(self) -> list[Tensor | Strings]:
        return [self._parse(index) for index in range(self.count)]

    def _parse(self, index: int) -> Tensor | Strings:
        """One TensorProto, of the schema's dtype and shape."""
        feature, data = self.feature, self.data[self.bounds[index] : self.bounds[index + 1]]
        try:
            value = quantized.parsed(bytes_view(data), self.budget, feature.dtype)
        except LimitError as error:
            raise self._at(index, error) from None
        except TensorbytesError as error:
            raise self.complain(index, f"is not a sound TensorProto: {error.fault}") from None
        if isinstance(value, Ragged | Sparse):
            raise self.complain(index, "is a TensorProto with ragged or sparse parts")
        name = "bytes" if isinstance(value, Strings) else value.dtype
        if name != ("bytes" if feature.dtype in STRINGS else feature.dtype):
            raise self.complain(index, f"is a TensorProto of {name}")
        fits = len(value.shape) == len(feature.shape) and all(
            want in (None, got) for want, got in zip(feature.shape, value.shape, strict=True)
        )
        if not fits:
            raise self.complain(index, f"is a TensorProto of the shape {list(value.shape)}")
        return value


def charge_default(feature: Feature, missing: int, budget: Budget) -> None:
    """Count what a default takes in the records that lack the feature: the schema says how much that is."""
    if missing:
        what = f"the default of {feature.describe()} in {missing} record{'s' * (missing > 1)}"
        budget.charge(missing * default_bytes(feature), what, 0)


def default_bytes(feature: Feature) -> int:
    """About what the default of a feature takes in each record that lacks it."""
    if feature.default is None:
        return 0
    if feature.dtype not in STRINGS:
        return dtypes.nbytes(dtypes.get(feature.dtype), _known(feature))
    items = feature.default.reshape(-1).tolist() if isinstance(feature.default, np.ndarray) else [feature.default]
    return (STRING_BYTES + max(map(len, items), default=0)) * (feature.size or 0)


def with_default(feature: Feature, values: Array, rows: Array, count: int, budget: Budget) -> Array:
    """The values of `rows` among `count` records; the others have the default."""
    charge_default(feature, count - len(rows), budget)
    out = np.empty((count, *_known(feature)), values.dtype)
    out[...] = feature.default_array()
    out[rows] = values
    return out


def _highest(feature: Feature) -> int:
    """The largest byte that values of a dtype may have."""
    return 1 if feature.dtype == "bool" else dtypes.get(feature.dtype).value_mask


def _known(feature: Feature) -> tuple[int, ...]:
    return tuple(n or 0 for n in feature.shape)


def _placed(items: Any, rows: Array, count: int) -> Array:
    """Items of some rows among `count`, with zeros for the others."""
    array = np.asarray(items, np.int64)
    out = np.zeros((count, *array.shape[1:]), np.int64)
    out[rows] = array
    return out


def _spread(part: ColumnPart, rows: Array, present: Array | None, feature: Feature, budget: Budget) -> ColumnPart:
    """The numbers of `rows` among all records; the others have the default, or nothing."""
    if present is None:
        return part
    count = len(present)
    if feature.default is not None:
        return ColumnPart(with_default(feature, part.values, rows, count, budget))
    lengths = np.diff(part.splits[0]) if part.splits else np.full(len(rows), feature.size or 0)
    shapes = part.shapes
    if shapes is None and not part.splits and len(feature.shape) > 1:
        shapes = np.tile(np.array(_known(feature), np.int64), (len(rows), 1))
    return ColumnPart(
        part.values if part.splits else part.values.reshape(-1),
        None,
        (offsets_of(_placed(lengths, rows, count)),),
        None if shapes is None else _placed(shapes, rows, count),
    )
