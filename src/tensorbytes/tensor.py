"""The four neutral values. Every framework turns into them, every format stores them.

| value   | holds                                                                     |
| ------- | ------------------------------------------------------------------------- |
| Tensor  | dtype, shape, C-order little-endian bytes                                 |
| Strings | shape, byte offsets, bytes, an encoding                                   |
| Ragged  | values, one or more row splits (outermost first), or a shape for each row |
| Sparse  | a layout, its index parts and values, the dense shape                     |

Each tells what it is by its `header`, and gives itself by `load()` and slices by `part(index)`:
what a file holds and was not read yet does the same (`deferred.py`), so that nobody asks which
of the two it is.

They compare by content: `a == b` where dtype, shape, encoding, layout and every bit agree, whatever their names,
`meta` and `origin` say. So they have no hash. Pickle's protocol 5 hands their memory out of band, uncopied; a deep copy
has memory of its own.

Each carries a name and two maps of strings to strings: `meta`, the metadata that users
give it, and `origin`, what we note ourselves of how it was held: its framework, device,
class, NumPy's word for its dtype. It is validated once, when it is built, and is never
changed afterwards.
"""

from __future__ import annotations

import importlib
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from tensorbytes import dtypes, padding
from tensorbytes.errors import Hint, TensorbytesError, UnsupportedError, UsageError
from tensorbytes.notebook import Displayed
from tensorbytes.typing import Buffer, bytes_view, pinned, same_bytes

Array: TypeAlias = np.ndarray[Any, Any]
ENCODINGS = ("bytes", "utf-8")
LAYOUTS = ("coo", "csr", "csc", "bsr", "bsc", "dia")
_PORTION = 1 << 16  # strings that become Python objects at a time
_TEXT_PIECE = 1 << 20  # bytes of text that are checked at a time
_MOST_SHOWN, _MOST_LETTERS, _MOST_META = 6, 24, 80  # of a repr: values, letters of each string and of metadata


class InvalidValueError(TensorbytesError, ValueError):
    """Parts that don't fit together: a byte count, an offset, an index."""


class UnevenRowsError(UnsupportedError, ValueError):
    """Rows of different shapes, where one dense array was asked for."""


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise InvalidValueError(what)


def _check_shape(shape: tuple[int, ...]) -> None:
    for n in shape:
        if type(n) is not int or n < 0:
            raise InvalidValueError(f"shape {shape} must hold integers >= 0")


class Header(NamedTuple):
    """What a value is, without its bytes."""

    kind: str  # tensor, strings, ragged or sparse
    dtype: str  # "string" for strings
    shape: tuple[int | None, ...]  # None for ragged axes
    nbytes: int | None  # in memory; None where that is known once it is read


class InMemory(Displayed):
    """What the four values have in common: their bytes are there, in memory or mapped."""

    __slots__ = ()
    at_hand = True  # reading it takes no work
    in_parts = False  # whether `part` takes no more work than what it gives

    def __copy__(self) -> Self:
        return self  # it never changes

    def __eq__(self, other: object) -> bool:
        """Whether all of it is the same, bit for bit; names and metadata don't count."""
        if type(self) is not type(other):
            return NotImplemented
        return identical(self, other)  # type: ignore[arg-type]

    __hash__ = None  # type: ignore[assignment]

    def load(self) -> Self:
        """The value itself. (Not `read`, which is what tells a file object.)"""
        return self

    def part(self, index: Any) -> Tensor | Strings:
        """What an index picks, as NumPy would."""
        what = type(self).__name__.lower()
        raise UnsupportedError(f"a {what} value has no slices here", hints=[Hint(purpose="load() reads all of it")])


class Columnar(InMemory):
    """A value whose first axis is rows: others take it as a column, by Arrow's own interface."""

    __slots__ = ()

    def __len__(self) -> int:
        raise NotImplementedError

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """An Arrow array with an item for each row: pyarrow.chunked_array, polars.Series."""
        len(self)  # which a single value has not
        return importlib.import_module("tensorbytes.formats._arrow.write").stream(self, requested_schema)


class Indexed(Columnar):
    """A value that is an array: its first axis is what len() counts and what is iterated over."""

    __slots__ = ()
    shape: tuple[int, ...]

    def __len__(self) -> int:
        if not self.shape:
            raise UsageError(f"a {type(self).__name__} of shape () has no length")
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return self.part(index)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(Indexed):
    """dtype, shape and C-order little-endian bytes."""

    in_parts = True

    dtype: str
    shape: tuple[int, ...]
    data: Buffer = field(repr=False)
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        row = dtypes.get(self.dtype)
        _check_shape(self.shape)
        view = pinned(bytes_view(self.data))
        want = dtypes.nbytes(row, self.shape)
        if len(view) != want:
            raise InvalidValueError(f"{self.dtype}{list(self.shape)} takes {want} bytes, got {len(view)}")
        object.__setattr__(self, "data", view)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        data = _picklable(self.data, protocol)
        return Tensor, (self.dtype, self.shape, data, self.name, dict(self.meta), dict(self.origin))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.numpy(), dtype, copy=copy)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}{list(self.shape)}{_shown(self)}{_about(self)})"

    @property
    def nbytes(self) -> int:
        return len(self.data)

    @property
    def header(self) -> Header:
        return Header("tensor", self.dtype, self.shape, len(self.data))

    def part(self, index: Any) -> Tensor:
        """What an index picks, as NumPy would: a view of the data where that is in one piece."""
        elements: Array = np.ndarray(self.shape, f"V{dtypes.get(self.dtype).itemsize}", self.data)
        picked = np.asarray(elements[index])
        flat = np.ascontiguousarray(picked).reshape(-1).view(np.uint8)
        return Tensor(self.dtype, picked.shape, flat, self.name, self.meta, part_origin(self.origin))

    def numpy(self) -> Array:
        """A view of the data as a NumPy array; read-only where the memory is."""
        return np.ndarray(self.shape, dtypes.to_numpy(self.dtype), self.data)

    def bits(self) -> Array:
        """The same as unsigned integers of the same width: no float is ever touched."""
        size = dtypes.get(self.dtype).itemsize
        if size == 16:  # complex128: NumPy has no 128-bit integer
            return np.ndarray((*self.shape, 2), "<u8", self.data)
        return np.ndarray(self.shape, f"<u{size}", self.data)


def fitting_tensor(dtype: str, shape: tuple[int, ...], data: memoryview, origin: Mapping[str, str]) -> Tensor:
    """A tensor of parts that are known to fit, by a header that was checked, say: nothing is looked at again."""
    made = object.__new__(Tensor)
    put = object.__setattr__
    put(made, "dtype", dtype)
    put(made, "shape", shape)
    put(made, "data", data)
    put(made, "name", None)
    put(made, "meta", {})
    put(made, "origin", origin)
    return made


class Memory(NamedTuple):
    """The short way from a framework's tensor: `memory_of` gives the dtype's name, the shape and an array of the memory
    of one that is nothing but its memory, and None for any other."""

    framework: str
    memory_of: Callable[[Any], tuple[str, tuple[int, ...], Any] | None]


@dataclass(frozen=True, eq=False)
class Making:
    """The short way to a framework's tensor: `make(dtypes[name], shape, memory)`, of memory that is its alone."""

    dtypes: Mapping[str, Any]
    make: Callable[[Any, tuple[int, ...], bytearray], Any]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Strings(Indexed):
    """Byte strings, or text in UTF-8: string i is data[offsets[i]:offsets[i + 1]].

    A sequence of str or bytes; with more than one axis, of Strings.
    """

    in_parts = True

    shape: tuple[int, ...]
    offsets: Array = field(repr=False)
    data: Buffer = field(repr=False)
    encoding: str = "bytes"
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _check_shape(self.shape)
        _require(self.encoding in ENCODINGS, f"encoding {self.encoding!r} must be one of {ENCODINGS}")
        view = bytes_view(self.data)
        count = math.prod(self.shape)
        _check_splits(self.offsets, count + 1, len(view), "string offsets")
        if self.encoding == "utf-8":
            check_utf8(view, self.offsets)
        object.__setattr__(self, "data", view)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        parts = self.shape, np.ascontiguousarray(self.offsets), _picklable(self.data, protocol), self.encoding
        return Strings, (*parts, self.name, dict(self.meta), dict(self.origin))

    def __getitem__(self, index: Any) -> Any:
        """What an index picks, as NumPy would: str or bytes for one string, Strings for several."""
        if len(self.shape) == 1 and isinstance(index, slice):
            return self.part(index)
        numbers = self._numbers(index)
        if numbers.ndim or index is ...:
            return self.part(index)
        return self._items(int(numbers), int(numbers) + 1)[0]

    def __iter__(self) -> Iterator[Any]:
        if len(self.shape) != 1:
            return Indexed.__iter__(self)
        starts = range(0, len(self), _PORTION)
        return itertools.chain.from_iterable(self._items(at, min(at + _PORTION, len(self))) for at in starts)

    def __reversed__(self) -> Iterator[Any]:
        return map(self.__getitem__, reversed(range(len(self))))

    def __contains__(self, item: object) -> bool:
        """Whether it is one of the strings, on whatever axis; or, for Strings, a part along the first."""
        if not isinstance(item, str | bytes):
            return any(found == item for found in self)
        raw = item.encode(errors="surrogatepass") if isinstance(item, str) else item
        flat = Strings((len(self.offsets) - 1,), self.offsets, self.data)
        return isinstance(item, str) == (self.encoding == "utf-8") and any(found == raw for found in flat)

    index = Sequence.index
    count = Sequence.count

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """An object array of str or bytes."""
        if copy is False:
            raise UnsupportedError("strings become Python objects, so an array of them is always a copy")
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self) -> str:
        return f"Strings({self.encoding}{list(self.shape)}{_shown(self)}{_about(self)})"

    @property
    def nbytes(self) -> int:
        return len(self.data)

    @property
    def header(self) -> Header:
        return Header("strings", "string", self.shape, len(self.data))

    def part(self, index: Any) -> Strings:
        """What an index picks, as NumPy would."""
        picked = self._numbers(index)
        numbers = picked.reshape(-1)
        if len(numbers) and (np.diff(numbers) == 1).all():  # a run of them is a view
            bounds = self.offsets[numbers[0] : numbers[-1] + 2]
            made = bounds - bounds[0], self.data[bounds[0] : bounds[-1]]
        else:
            lengths = self.offsets[numbers + 1] - self.offsets[numbers]
            starts = self.offsets[numbers].tolist()
            pieces = [self.data[start : start + size] for start, size in zip(starts, lengths.tolist(), strict=True)]
            made = np.concatenate(([0], np.cumsum(lengths))), memoryview(b"".join(pieces))
        return Strings(picked.shape, *made, self.encoding, self.name, self.meta, part_origin(self.origin))

    def _numbers(self, index: Any) -> Array:
        """The numbers of the strings that an index picks. One of a long list takes no longer than one of a short."""
        if len(self.shape) == 1 and isinstance(index, slice):
            return np.arange(*index.indices(self.shape[0]))
        if len(self.shape) == 1 and isinstance(index, int | np.integer) and not isinstance(index, bool):
            if not -self.shape[0] <= index < self.shape[0]:
                raise IndexError(f"index {index} is out of bounds for axis 0 with size {self.shape[0]}")
            return np.asarray(index % self.shape[0])
        return np.asarray(np.arange(len(self.offsets) - 1).reshape(self.shape)[index])

    @classmethod
    def from_items(cls, items: Iterable[str | bytes], shape: tuple[int, ...], encoding: str) -> Strings:
        """Build from Python strings (text for "utf-8") in C order."""
        if encoding == "utf-8":
            try:
                raw = [item.encode() for item in items if isinstance(item, str)]
            except UnicodeEncodeError as error:
                raise UnsupportedError(f"text with a lone surrogate has no UTF-8 form: {error.object!r}") from None
        else:
            raw = [item for item in items if isinstance(item, bytes)]
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum([len(item) for item in raw], out=offsets[1:])
        return cls(shape, offsets, b"".join(raw), encoding)

    def items(self) -> list[Any]:
        """All strings in C order: str for "utf-8", bytes otherwise."""
        return self._items(0, len(self.offsets) - 1)

    def _items(self, start: int, stop: int) -> list[Any]:
        bounds = self.offsets[start : stop + 1].tolist()
        pieces = (self.data[a:b] for a, b in itertools.pairwise(bounds))
        if self.encoding == "utf-8":
            return [str(piece, "utf-8") for piece in pieces]
        return [bytes(piece) for piece in pieces]

    def tolist(self) -> Any:
        """The strings in lists, nested as the axes are; the string itself where there is no axis."""
        return self.numpy().tolist()

    def numpy(self) -> Array:
        """An object array of str or bytes."""
        count = math.prod(self.shape)
        out = np.empty(count, object)
        for start in range(0, count, _PORTION):  # Ctrl-C acts between two of them
            stop = min(start + _PORTION, count)
            out[start:stop] = self._items(start, stop)
        return out.reshape(self.shape)


def fitting_strings(shape: tuple[int, ...], offsets: Array, data: memoryview, encoding: str) -> Strings:
    """Strings of parts that are known to fit: offsets that rise from 0 to the end of the data, text that is UTF-8."""
    made = object.__new__(Strings)
    put = object.__setattr__
    put(made, "shape", shape)
    put(made, "offsets", offsets)
    put(made, "data", data)
    put(made, "encoding", encoding)
    put(made, "name", None)
    put(made, "meta", {})
    put(made, "origin", {})
    return made


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ragged(Columnar):
    """Rows of different lengths.

    With `splits` alone, row i of a level is the values (or rows of the next level)
    from splits[i] to splits[i + 1]. With `shapes` too, there is one level of splits
    over flat values, and row i has the shape shapes[i].
    """

    values: Tensor | Strings
    splits: tuple[Array, ...] = field(repr=False)
    shapes: Array | None = field(default=None, repr=False)
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _require(len(self.splits) > 0, "a ragged value needs at least one level of row splits")
        _require(len(self.values.shape) > 0, "the values of a ragged value can't be a scalar")
        _require(all(splits.ndim == 1 for splits in self.splits), "row splits must be lists of integers")
        below = [len(splits) - 1 for splits in self.splits[1:]] + [self.values.shape[0]]
        for level, (splits, total) in enumerate(zip(self.splits, below, strict=True)):
            _check_splits(splits, None, total, f"row splits of level {level}")
        if self.shapes is not None:
            shapes = self.shapes
            _require(
                len(self.splits) == 1 and len(self.values.shape) == 1 and shapes.ndim == 2,
                "row shapes go with one level of splits over flat values",
            )
            _require(len(shapes) == len(self) and shapes.dtype.kind in "iu", "there must be one row shape for each row")
            sizes = [math.prod(shape) for shape in shapes.tolist()]
            _require(
                bool((shapes >= 0).all()) and sizes == np.diff(self.splits[0]).tolist(),
                "row shapes disagree with the row splits",
            )

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        shapes = None if self.shapes is None else np.ascontiguousarray(self.shapes)
        parts = self.values, tuple(map(np.ascontiguousarray, self.splits)), shapes
        return Ragged, (*parts, self.name, dict(self.meta), dict(self.origin))

    def __len__(self) -> int:
        return len(self.splits[0]) - 1

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows())

    def __getitem__(self, index: Any) -> Any:
        """One row, as `rows` gives it; of a slice or a list of numbers, the Ragged of these rows."""
        if isinstance(index, slice) or np.ndim(index):
            return self._picked(index)
        number = range(len(self))[operator.index(index)]
        return self._picked(slice(number, number + 1)).rows()[0]

    def _picked(self, index: Any) -> Ragged:
        if isinstance(index, slice) and index.step in (None, 1):
            start, stop, _ = index.indices(len(self))
            rows: Any = slice(start, max(start, stop))
        else:
            rows = np.arange(len(self))[index]
            if rows.ndim != 1:
                raise IndexError(f"expected a number, a slice or a list of numbers, got {index!r}")
        shapes, splits = None if self.shapes is None else self.shapes[rows], []
        for level in self.splits:
            if isinstance(rows, slice):  # a run of rows is a view
                cut = level[rows.start : rows.stop + 1]
                rows = slice(int(cut[0]), int(cut[-1]))
                splits.append(cut - cut[0])
            else:
                starts, lengths = level[rows], level[rows + 1] - level[rows]
                splits.append(np.concatenate(([0], np.cumsum(lengths))).astype(level.dtype))
                rows = np.arange(splits[-1][-1]) + np.repeat(starts - splits[-1][:-1], lengths)
        return Ragged(self.values.part(rows), tuple(splits), shapes, self.name, self.meta, part_origin(self.origin))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """A dense array, where all rows have the same shape."""
        sizes = [np.diff(splits)[:, None] for splits in self.splits] if self.shapes is None else [self.shapes]
        if any((level != level[:1]).any() for level in sizes):
            raise UnevenRowsError(
                f"{self!r} has rows of different shapes, so it is not a dense array", hints=[Hint(purpose="use rows()")]
            )
        inner = [n for level in sizes for n in (level[0].tolist() if len(level) else [0] * level.shape[1])]
        return np.array(self.values.numpy().reshape(len(self), *inner, *self.values.shape[1:]), dtype, copy=copy)

    def __repr__(self) -> str:
        kind, sizes = getattr(self.values, "dtype", "strings"), np.diff(self.splits[0])
        span = f", {'lengths' if self.shapes is None else 'sizes'} {sizes.min()} to {sizes.max()}" if len(sizes) else ""
        return f"Ragged({len(self)} rows of {kind}{span}{_about(self)})"

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(splits.nbytes for splits in self.splits)

    @property
    def header(self) -> Header:
        if self.shapes is None:
            shape = (len(self), *[None] * len(self.splits), *self.values.shape[1:])
        else:
            shape = (len(self), *[None] * self.shapes.shape[1])
        return Header("ragged", self.values.header.dtype, shape, self.nbytes)

    def rows(self) -> list[Any]:
        """The rows as NumPy arrays (of str or bytes for strings), nested by level."""
        parts: list[Any] = []
        bounds = self.splits[-1].tolist()
        values = self.values.numpy()
        parts = [values[a:b] for a, b in itertools.pairwise(bounds)]
        if self.shapes is not None:
            return [row.reshape(shape) for row, shape in zip(parts, self.shapes.tolist(), strict=True)]
        for splits in reversed(self.splits[:-1]):
            bounds = splits.tolist()
            parts = [parts[a:b] for a, b in itertools.pairwise(bounds)]
        return parts

    def to_list(self) -> list[Any]:
        """The rows as lists of Python's numbers, str or bytes, nested by level and axis."""
        if self.shapes is not None:
            return [row.tolist() for row in self.rows()]
        parts: list[Any] = self.values.numpy().tolist()
        for splits in reversed(self.splits):
            parts = [parts[a:b] for a, b in itertools.pairwise(splits.tolist())]
        return parts

    @property
    def max_seqlen(self) -> int:
        """The length of the longest row, as torch.nested.nested_tensor_from_jagged takes it; 0 without rows."""
        return next(iter(padding.longest(self.splits, self.shapes)), 0)

    def pad(
        self, value: Any = None, length: int | tuple[int | None, ...] | None = None, *, truncate: bool = False
    ) -> Any:
        """All rows in one array [rows, longest, ...], filled up at their ends: a NumPy array, or Strings for strings.

        value: what fills them up; 0, or an empty string, unless it is given.
        length: the size of the first axis that varies, instead of that of the longest row. A tuple has one for each
            axis that varies, or None for the longest.
        truncate: cut rows that are longer than `length`, which is an error otherwise.
        """
        mask, kept = self._places(length, truncate)
        values = self.values if kept is None else self.values.part(kept)
        if isinstance(values, Strings):
            return _padded_strings(values, mask, value)
        numbers = values.numpy()
        out = np.full((*mask.shape, *numbers.shape[1:]), _filler(value, numbers.dtype), numbers.dtype)
        out[mask] = numbers
        return out

    def mask(self, length: int | tuple[int | None, ...] | None = None, *, truncate: bool = False) -> Array:
        """bool [rows, longest, ...]: which elements of what `pad` gives, called alike, are those of the rows."""
        return self._places(length, truncate)[0]

    def _places(self, length: Any, truncate: bool) -> tuple[Array, Array | None]:
        """(where the values go in a dense array, which of them if not all)"""
        needed = padding.longest(self.splits, self.shapes)
        given = length if isinstance(length, tuple) else (length,)
        for size in given:
            whole = isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 0
            if not (size is None or whole) or len(given) > max(len(needed), 1):
                raise UsageError(f"length={length!r}", expected=f"a whole number, or a tuple of {len(needed)} of them")
        given = (*given, *[None] * (len(needed) - len(given)))
        sizes = [size if asked is None else int(asked) for size, asked in zip(needed, given, strict=False)]
        excess = padding.first_excess(self.splits, self.shapes, sizes)
        if excess is not None and not truncate:
            axis = f" on axis {excess.axis + 1}" if len(sizes) > 1 else ""
            raise UsageError(
                f"row {excess.row} has the length {excess.size}{axis}, over {sizes[excess.axis]}",
                hints=[Hint(purpose="pass truncate=True to cut longer rows"), Hint(purpose="pass a larger length")],
            )
        mask = padding.mask_of(self.splits, self.shapes, sizes)
        return mask, None if excess is None else padding.kept_of(self.splits, self.shapes, sizes)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sparse(InMemory):
    """A sparse array in one of the layouts below; index parts may be int32 or int64.

    coo       parts = (indices [nnz, k],), values [nnz, *shape[k:]]
    csr, csc  parts = (pointers [*batch, n + 1], indices [*batch, nnz]), values [*batch, nnz, ...]
    bsr, bsc  the same over blocks, values [*batch, nnz, height, width, ...]
    dia       parts = (diagonals [d],), values [d, length]
    """

    layout: str
    shape: tuple[int, ...]
    parts: tuple[Array, ...] = field(repr=False)
    values: Tensor | Strings
    name: str | None = None
    meta: Mapping[str, str] = field(default_factory=dict)
    origin: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _require(self.layout in LAYOUTS, f"layout {self.layout!r} must be one of {', '.join(LAYOUTS)}")
        _check_shape(self.shape)
        expected = 2 if self.layout in ("csr", "csc", "bsr", "bsc") else 1
        _require(len(self.parts) == expected, f"{self.layout} has {expected} index parts, got {len(self.parts)}")
        for part in self.parts:
            _require(part.dtype.kind == "i", f"sparse indices must be signed integers, got {part.dtype}")
        {"coo": _check_coo, "dia": _check_dia}.get(self.layout, _check_compressed)(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        parts = self.layout, self.shape, tuple(map(np.ascontiguousarray, self.parts)), self.values
        return Sparse, (*parts, self.name, dict(self.meta), dict(self.origin))

    def __repr__(self) -> str:
        kind, entries = getattr(self.values, "dtype", "strings"), self.values.shape
        return f"Sparse({self.layout} {kind}{list(self.shape)}, values {list(entries)}{_about(self)})"

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + sum(part.nbytes for part in self.parts)

    @property
    def header(self) -> Header:
        return Header("sparse", self.values.header.dtype, self.shape, self.nbytes)

    @property
    def batch_rank(self) -> int:
        return self.parts[0].ndim - 1 if self.layout in ("csr", "csc", "bsr", "bsc") else 0

    def to_coo(self) -> Sparse:
        """The same entries, in the same order, as coordinates."""
        if self.layout == "coo":
            return self
        if self.batch_rank or isinstance(self.values, Strings):
            raise UnsupportedError(
                f"a batched {self.layout} value has no coordinate form here", hints=[Hint(purpose="save its parts")]
            )
        indices, values = _COORDINATES[self.layout](self)
        row = dtypes.get(self.values.dtype)
        data = np.ascontiguousarray(values)
        shape = (len(indices), *self.shape[2:])
        return replace(self, layout="coo", parts=(indices,), values=Tensor(row.name, shape, data.reshape(-1)))


Value: TypeAlias = Tensor | Strings | Ragged | Sparse


class Described(Protocol):
    """A value, or what stands for one until it is read."""

    @property
    def name(self) -> str | None: ...
    @property
    def meta(self) -> Mapping[str, str]: ...
    @property
    def origin(self) -> Mapping[str, str]: ...


V = TypeVar("V", bound=Described)


def part_origin(origin: Mapping[str, str]) -> dict[str, str]:
    """What of an origin is true of a part as well: not scales, for example, nor that it was a variable."""
    return {key: text for key, text in origin.items() if key in ("framework", "numpy.dtype", "python")}


def with_meta(value: V, name: str | None = None, meta: Mapping[str, str] | None = None) -> V:
    """The same value under another name, with metadata added."""
    if name is None and not meta:
        return value
    return amended(value, value.name if name is None else name, {**value.meta, **(meta or {})})


def with_origin(value: V, origin: Mapping[str, str]) -> V:
    """The same value, with more said of how it was held."""
    return amended(value, value.name, value.meta, {**value.origin, **origin}) if origin else value


def amended(value: V, name: str | None, meta: Mapping[str, str], origin: Mapping[str, str] | None = None) -> V:
    """The same value with exactly this name and metadata, and this origin if one is given.

    What was validated once is not again.
    """
    copy = object.__new__(type(value))
    slots: tuple[str, ...] = type(value).__slots__  # type: ignore[attr-defined]
    for slot in slots:
        object.__setattr__(copy, slot, getattr(value, slot))
    object.__setattr__(copy, "name", name)
    object.__setattr__(copy, "meta", meta)
    if origin is not None:
        object.__setattr__(copy, "origin", origin)
    return copy


def identical(a: Value, b: Value) -> bool:
    """Whether two values agree bit for bit: NaN payloads and the sign of zero count."""
    if type(a) is not type(b):
        return False
    match a, b:
        case Tensor(), Tensor():
            return a.dtype == b.dtype and a.shape == b.shape and same_bytes(a.data, b.data)
        case Strings(), Strings():
            alike = a.shape == b.shape and a.encoding == b.encoding and np.array_equal(a.offsets, b.offsets)
            return alike and same_bytes(a.data, b.data)
        case Ragged(), Ragged():
            shapes = (a.shapes is None) == (b.shapes is None) and (a.shapes is None or _same((a.shapes,), (b.shapes,)))
            return shapes and _same(a.splits, b.splits) and identical(a.values, b.values)
        case Sparse(), Sparse():
            layouts = a.layout == b.layout and a.shape == b.shape
            return layouts and _same(a.parts, b.parts) and identical(a.values, b.values)
    return False


# ---- what the four share ---------------------------------------------------------


def _picklable(data: memoryview, protocol: int) -> Any:
    """Bytes as pickle takes them: from protocol 5 on NumPy hands them over as they are, before that as a copy."""
    return np.frombuffer(data, np.uint8) if protocol >= 5 else bytes(data)


def _shown(value: Tensor | Strings) -> str:
    """The first values, for a repr."""
    count = math.prod(value.shape)
    if isinstance(value, Strings):
        # A character takes up to four bytes.
        ends = zip(value.offsets[:_MOST_SHOWN].tolist(), value.offsets[1 : _MOST_SHOWN + 1].tolist(), strict=False)
        pieces = [bytes(value.data[a : min(b, a + 4 * _MOST_LETTERS)]) for a, b in ends]
        items: list[Any] = [p.decode(errors="ignore") for p in pieces] if value.encoding == "utf-8" else pieces
        first = [repr(item[:_MOST_LETTERS]) + "..." * (len(item) > _MOST_LETTERS) for item in items]
    else:
        try:
            array = value.numpy()
        except UnsupportedError:  # NumPy has no such dtype
            return ""
        first = [str(item) for item in array.reshape(-1)[:_MOST_SHOWN]]
    if not value.shape:
        return f", {first[0]}"
    return f", [{', '.join(first)}{', ...' if count > len(first) else ''}]"


def _about(value: Tensor | Strings | Ragged | Sparse) -> str:
    """Name and metadata, for a repr."""
    meta = repr(dict(value.meta))
    meta = meta if len(meta) <= _MOST_META else f"{meta[:_MOST_META]}..."
    return f", name={value.name!r}" * (value.name is not None) + f", meta={meta}" * bool(value.meta)


def _filler(value: Any, dtype: np.dtype[Any]) -> Any:
    """What fills rows up, as a value of the dtype. Rounding is not refused, anything else that changes it is."""
    given = np.asarray(0 if value is None else value)
    try:
        made = given.astype(dtype)
        exact = dtype.kind not in "biu" or bool(made == given)
    except (TypeError, ValueError, OverflowError):
        exact = False
    if given.ndim or not exact:
        raise UsageError(f"{value!r} can't fill up rows of {dtype}", expected="a number that the dtype has")
    return made


def _padded_strings(values: Strings, mask: Array, value: Any) -> Strings:
    text = values.encoding == "utf-8"
    filler = ("" if text else b"") if value is None else value
    if not isinstance(filler, str if text else bytes):
        raise UsageError(f"{value!r} can't fill up rows of {'text' if text else 'bytes'}")
    raw = np.frombuffer(filler.encode() if isinstance(filler, str) else filler, np.uint8)
    shape = (*mask.shape, *values.shape[1:])
    places = np.repeat(mask.reshape(-1), math.prod(values.shape[1:]))
    lengths = np.full(len(places), len(raw), np.int64)
    lengths[places] = np.diff(values.offsets)
    data: Any = values.data
    if len(raw):
        theirs = np.repeat(places, lengths)
        data = np.empty(len(theirs), np.uint8)
        data[theirs] = np.frombuffer(values.data, np.uint8)
        data[~theirs] = np.tile(raw, int(np.count_nonzero(~places)))
    return Strings(shape, np.concatenate(([0], np.cumsum(lengths))), data, values.encoding)


def _same(a: tuple[Array | None, ...], b: tuple[Array | None, ...]) -> bool:
    return len(a) == len(b) and all(
        x is not None and y is not None and x.dtype == y.dtype and np.array_equal(x, y)
        for x, y in zip(a, b, strict=True)
    )


def _check_splits(splits: Array, count: int | None, total: int, what: str) -> None:
    _require(splits.ndim == 1 and len(splits) > 0 and splits.dtype.kind == "i", f"{what} must be a list of integers")
    _require(count is None or len(splits) == count, f"{what}: expected {count} of them, got {len(splits)}")
    rising = splits[0] == 0 and splits[-1] == total and bool((splits[1:] >= splits[:-1]).all())
    _require(rising, f"{what} must rise from 0 to {total}, got {splits[0]} to {splits[-1]}")


def check_utf8(data: memoryview, offsets: Array) -> None:
    """Refuse text that is not UTF-8, as a whole or by itself."""
    at, plain, raw = 0, True, np.frombuffer(data, np.uint8)
    while at < len(data):  # in pieces, so that checking takes no second copy of it all
        end = min(at + _TEXT_PIECE, len(data))
        if raw[at:end].max() < 0x80:  # ASCII, which takes no decoding to see
            at = end
            continue
        plain = False
        for _ in range(3):
            if end < len(data) and data[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
        try:
            try:
                str(data[at:end], "utf-8")
            except UnicodeDecodeError:
                str(data[at:], "utf-8")  # which tells the fault where a piece may end in it
        except UnicodeDecodeError as error:
            raise InvalidValueError(f"text is not UTF-8: {error.reason} at byte {at + error.start}") from None
        at = end
    if plain:
        return
    # Sound as a whole; each string is too if none starts inside a character.
    starts = offsets[:-1][offsets[:-1] < len(data)]
    firsts = raw[starts]
    _require(not ((firsts & 0xC0) == 0x80).any(), "a string starts inside a UTF-8 character")


def _in_range(indices: Array, limit: Array | int) -> bool:
    return bool(((indices >= 0) & (indices < limit)).all())


def _check_coo(x: Sparse) -> None:
    (indices,) = x.parts
    _require(indices.ndim == 2, f"coo indices must be [nnz, k], got {indices.ndim} dimensions")
    k = indices.shape[1]
    _require(k <= len(x.shape), f"coo indices have {k} columns for a shape of rank {len(x.shape)}")
    want = (len(indices), *x.shape[k:])
    _require(x.values.shape == want, f"coo values must have the shape {want}, got {x.values.shape}")
    _require(_in_range(indices, np.array(x.shape[:k], np.int64)), f"a coo index lies outside the shape {x.shape}")


def _check_dia(x: Sparse) -> None:
    (diagonals,) = x.parts
    sound = diagonals.ndim == 1 and len(x.shape) == 2 and len(x.values.shape) == 2
    _require(sound and len(diagonals) == x.values.shape[0], "dia wants one row of values for each diagonal, and rank 2")
    _require(len(np.unique(diagonals)) == len(diagonals), "dia names a diagonal twice")


def _check_compressed(x: Sparse) -> None:
    pointers, indices = x.parts
    batch = pointers.ndim - 1
    blocks = x.layout in ("bsr", "bsc")
    _require(
        pointers.ndim >= 1 and indices.ndim == batch + 1 and len(x.shape) >= batch + 2
        and pointers.shape[:-1] == indices.shape[:-1] == x.shape[:batch],
        f"{x.layout} parts disagree with the shape {x.shape}",
    )  # fmt: skip
    nnz = indices.shape[-1]
    block = x.values.shape[batch + 1 : batch + 3] if blocks else (1, 1)
    want = (*x.shape[:batch], nnz, *(block if blocks else ()), *x.shape[batch + 2 :])
    _require(len(block) == 2 and x.values.shape == want, f"{x.layout} values must be {want}, got {x.values.shape}")
    rows, columns = x.shape[batch : batch + 2]
    fits = all(n == 0 if b == 0 else n % b == 0 for n, b in zip((rows, columns), block, strict=True))
    _require(fits, f"blocks of {block} don't divide {(rows, columns)}")
    outer, inner = rows // max(block[0], 1), columns // max(block[1], 1)
    if x.layout in ("csc", "bsc"):
        outer, inner = inner, outer
    sound = pointers.shape[-1] == outer + 1 and bool(
        (pointers[..., 0] == 0).all()
        and (pointers[..., -1] == nnz).all()
        and (pointers[..., 1:] >= pointers[..., :-1]).all()
    )
    _require(sound, f"{x.layout} pointers must be {outer + 1} rising numbers from 0 to {nnz}")
    _require(_in_range(indices, inner), f"a {x.layout} index lies outside 0..{inner - 1}")


def _compressed_coordinates(x: Sparse) -> tuple[Array, Array]:
    pointers, indices = x.parts
    assert isinstance(x.values, Tensor)
    outer = np.repeat(np.arange(len(pointers) - 1, dtype=indices.dtype), np.diff(pointers))
    pair = (outer, indices) if x.layout in ("csr", "bsr") else (indices, outer)
    return np.stack(pair, axis=1), x.values.bits()


def _block_coordinates(x: Sparse) -> tuple[Array, Array]:
    blocks, values = _compressed_coordinates(x)
    height, width = x.values.shape[1:3]
    inside = np.moveaxis(np.indices((height, width)), 0, -1).astype(blocks.dtype)
    corners = blocks * np.array([height, width], blocks.dtype)
    indices = (corners[:, None, None, :] + inside).reshape(-1, 2)
    return indices, values.reshape(len(indices), *values.shape[3:])


def _diagonal_coordinates(x: Sparse) -> tuple[Array, Array]:
    (diagonals,) = x.parts
    assert isinstance(x.values, Tensor)
    columns = np.arange(x.values.shape[1], dtype=np.int64)
    rows = columns - diagonals[:, None].astype(np.int64)
    inside = (rows >= 0) & (rows < x.shape[0]) & (columns < x.shape[1])
    which, column = np.nonzero(inside)
    indices = np.stack((rows[which, column], column), axis=1).astype(diagonals.dtype)
    return indices, x.values.bits()[which, column]


_COORDINATES = {
    "csr": _compressed_coordinates,
    "csc": _compressed_coordinates,
    "bsr": _block_coordinates,
    "bsc": _block_coordinates,
    "dia": _diagonal_coordinates,
}
