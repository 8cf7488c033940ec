"""Arrays as npy files and npz archives hold them: what a document becomes, and what an array is read as."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, Dense, elsewhere
from tensorbytes.errors import CorruptError, Hint, LimitError, UnsupportedError, UsageError
from tensorbytes.formats import Option, Options
from tensorbytes.formats._npy import header as npy_header
from tensorbytes.formats._npy import text as npy_text
from tensorbytes.formats._npy.header import NpyHeader
from tensorbytes.formats._parts import Part, check_note, known_shape, pack
from tensorbytes.formats._tensorproto import check_bits, check_shape
from tensorbytes.patterns import first_match
from tensorbytes.tensor import Array, Strings, Tensor, Value, with_origin
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer

# The dtypes that NumPy has without help, by its own word for them.
NATIVE: dict[str, str] = {
    row.name: np.dtype(row.name).newbyteorder("<").str
    for row in dtypes.DTYPES.values()
    if row.struct is not None or row.name in ("complex64", "complex128")
}
_NAMES = {descr[1:]: name for name, descr in NATIVE.items()}
# Types that are numbers under another name; all others are void to NumPy, to be viewed as what they are.
_CARRIERS = {
    "qint8": "|i1", "quint8": "|u1", "qint16": "<i2", "quint16": "<u2", "qint32": "<i4",
    "datetime64": "<i8", "timedelta64": "<i8",
}  # fmt: skip
_VOIDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64", 16: "complex128"}
_DESCR = re.compile(r"([<>=|]?)([A-Za-z?])([0-9]{0,9})(\[.*\])?")
TRUE_DTYPE = Option(object, "what void arrays hold, such as `bfloat16`; a dict gives it by name")
_TIME_UNIT = re.compile(r"\[([1-9][0-9]{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]")


# ---- writing ----------------------------------------------------------------


class NpyArray(NamedTuple):
    """One array to be written."""

    name: str
    descr: str
    value: Tensor | Strings | Deferred
    note: dict[str, Any]

    @property
    def nbytes(self) -> int:
        return self.value.nbytes

    def header(self, allow: frozenset[str]) -> bytes:
        return npy_header.noted(self.descr, known_shape(self.value), self.note, allow)

    def buffers(self, allow: frozenset[str]) -> Iterator[Buffer]:
        """The header, once nothing is lost in silence; then the content, which is not read before."""
        return chain([self.header(allow)], self._content())

    def _content(self) -> Iterator[Buffer]:
        value = self.value.load()
        assert isinstance(value, Tensor | Strings)
        yield value.data if isinstance(value, Tensor) else npy_text.fixed_width(value, self.descr)


def pieces(document: Document, unnamed: str) -> list[NpyArray]:
    """The arrays of a document. Notes say what NumPy's dtype does not."""
    texts: dict[int, str] = {}

    def holds(value: Dense) -> bool:
        if not isinstance(value, Strings):
            return value.dtype in NATIVE or _time_descr(value) is not None
        descr = npy_text.descr_of(value)
        if descr is not None:
            texts[id(value)] = descr
        return descr is not None

    out = []
    for part in pack(document, holds, unnamed=unnamed):
        value, note = part.value, dict(part.note)
        if isinstance(value, Strings):
            descr = texts[id(value)]
            note.pop("encoding", None)
            _imply(note, descr)
        else:
            descr = _tensor_descr(value, note)
        out.append(NpyArray(part.name, descr, value, note))
    return out


def _tensor_descr(value: Tensor | Deferred, note: dict[str, Any]) -> str:
    if "dtype" in note:
        return _CARRIERS.get(value.dtype, f"<V{dtypes.get(value.dtype).itemsize}")
    if value.dtype in NATIVE:
        return NATIVE[value.dtype]
    descr = _time_descr(value)
    assert descr is not None
    _imply(note, descr)
    return descr


def _imply(note: dict[str, Any], descr: str) -> None:
    """An array of text or times has its dtype as its origin, unless its note has an origin: then that is all."""
    if note.get("origin") == {"numpy.dtype": descr}:
        del note["origin"]
    elif "layout" not in note and "of" not in note:
        note.setdefault("origin", {})


def _time_descr(value: Tensor | Deferred) -> str | None:
    """NumPy's word for a time whose unit is known."""
    if value.dtype not in ("datetime64", "timedelta64"):
        return None
    wanted = value.origin.get("numpy.dtype", "")
    stem = "<M8" if value.dtype == "datetime64" else "<m8"
    unit = wanted[3:]
    return wanted if wanted.startswith(stem) and (not unit or _TIME_UNIT.fullmatch(unit)) else None


# ---- reading ----------------------------------------------------------------


class Element(NamedTuple):
    """What a descr says of one element. `spelled` is NumPy's word for text and times, kept as its origin."""

    dtype: str  # "string" for text; "" for void
    itemsize: int
    swap: bool = False
    spelled: str = ""


@lru_cache(1024)
def element(descr: str) -> Element:
    found = _DESCR.fullmatch(descr)
    if found is None:
        raise _unknown(descr)
    order, letter, digits, unit = found.groups()
    size = int(digits) if digits else 0
    if letter == "O":
        raise UnsupportedError(
            "an npy array of Python objects is a pickle, which can run any code: nothing is unpickled here",
            hints=[Hint(purpose="if you trust it, load it with NumPy and save it anew")],
        )
    if letter in "mM" and digits == "8":
        multiple = _TIME_UNIT.fullmatch(unit) if unit else None
        if unit and multiple is None:
            raise _unknown(descr)
        return Element("datetime64" if letter == "M" else "timedelta64", 8, order == ">", f"<{letter}8{unit or ''}")
    if unit or not digits:
        raise _unknown(descr)
    if letter == "U":
        return Element("string", 4 * size, order == ">", f"<U{size}")
    if letter == "S":
        return Element("string", size, False, f"|S{size}")
    name = _NAMES.get(letter + digits)
    if name is not None:
        return Element(name, size, order == ">" and size > 1)
    if letter in "VW" or letter + digits == "f1":  # what ml_dtypes call themselves
        return Element("", size)
    if letter in "fc" and size in (12, 16, 24, 32):
        raise UnsupportedError(
            f"npy dtype {descr!r}: long double differs between machines", hints=[Hint(purpose="cast it to float64")]
        )
    raise _unknown(descr)


def _unknown(descr: str) -> UnsupportedError:
    return UnsupportedError(f"npy dtype {descr[:60]!r} is unknown here; NumPy may read it")


def true_dtype(options: Options, name: str) -> str | None:
    """The read option dtype=: what void arrays hold; a dict tells it for each array."""
    given = options.get("dtype")
    if isinstance(given, Mapping):
        pattern = first_match(name, given)
        given = None if pattern is None else given[pattern]
    if given is None or (isinstance(given, str) and given in dtypes.DTYPES):
        return given
    try:
        return dtypes.from_numpy(np.dtype(given)).name
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"dtype={given!r} is unknown; known: {', '.join(dtypes.DTYPES)}") from None


class StoredArray(NamedTuple):
    """An array's header, checked: its content takes `nbytes` bytes from `start` on."""

    header: NpyHeader
    element: Element
    dtype: str  # as it is stored; "string" for text
    true: str  # as it is meant
    start: int
    nbytes: int

    @property
    def end(self) -> int:
        return self.start + self.nbytes

    @property
    def grown(self) -> int:
        """Memory that no bytes of the file stand for: a string of little or no width still has a place."""
        return max(8 * math.prod(self.header.shape) - self.nbytes, 0) if self.dtype == "string" else 0

    @property
    def origin(self) -> dict[str, str]:
        spelled = self.element.spelled
        return {"numpy.dtype": spelled} if spelled and "origin" not in self.header.note else {}


def find(data: memoryview | bytes, at: int, name: str, budget: Budget, dtype: str | None) -> StoredArray:
    """The array whose header stands at `at`; `dtype` is for those of a void type without a note."""
    header = npy_header.read(data, at)
    if header.note:
        check_note(Part(name, _NOTHING, header.note, at))
    kind = element(header.descr)
    shape = check_shape(header.shape, max(kind.itemsize, 1), budget, at)
    stored = kind.dtype or _void(header, kind, name, dtype)
    true = header.note.get("dtype", stored)
    found = StoredArray(header, kind, stored, true, at + header.size, math.prod(shape) * kind.itemsize)
    budget.charge(found.grown, f"string{list(shape)}", at)
    if stored == "string":
        budget.strings(math.prod(shape), at)
    return found


_NOTHING = Tensor("uint8", (0,), b"")


def _void(header: NpyHeader, kind: Element, name: str, dtype: str | None) -> str:
    """The dtype of the same width that stands for a void one."""
    if "dtype" not in header.note:
        if dtype is None:
            guess = {1: "float8_e4m3fn", 4: "complex32"}.get(kind.itemsize, "bfloat16")
            raise UnsupportedError(
                f"{name!r} is of NumPy's void dtype {header.descr!r}, which does not say what it holds",
                tensor=name,
                hints=[Hint("dtype", guess, "if that is its true dtype", of="load")],
            )
        if dtypes.get(dtype).itemsize != kind.itemsize:
            raise UsageError(
                f"dtype={dtype!r} takes {dtypes.get(dtype).itemsize} bytes, an element of {name!r} has {kind.itemsize}",
                tensor=name,
                hints=[Hint(purpose="a dict tells the dtype of each array by name")],
            )
        return dtype
    if kind.itemsize not in _VOIDS:
        raise UnsupportedError(f"{name!r} is of NumPy's void dtype {header.descr!r}, which no dtype has the width of")
    return _VOIDS[kind.itemsize]


def value(data: memoryview, found: StoredArray, lazy: bool) -> Tensor | Strings | Deferred:
    """The array itself: a view where its bytes are those of a tensor, else read now or, lazily, later."""
    shape = found.header.shape
    if found.end > len(data):
        raise CorruptError(
            f"{found.true}{list(shape)} takes {found.nbytes} bytes, only {max(len(data) - found.start, 0)} follow",
            at=len(data),
        )
    raw = data[found.start : found.end]
    made: Tensor | Deferred
    across = found.header.fortran and len(shape) > 1
    if found.dtype == "string":
        made = _later_text(raw, found)
    elif not found.nbytes or not (found.element.swap or across):
        made = Tensor(found.dtype, shape, raw, origin=found.origin)
    else:
        elements: Array = np.ndarray(shape, f"V{found.element.itemsize}", raw, order="F" if across else "C")
        made = checked(with_origin(elsewhere(found.dtype, elements, found.element.swap), found.origin), found)
    if lazy:
        return made
    got = made.load()
    assert isinstance(got, Tensor | Strings)
    return got


def checked(later: Deferred, found: StoredArray) -> Deferred:
    """Whole values whose bits are looked at, where not every bit pattern is a value."""
    row = dtypes.DTYPES.get(found.true)
    if row is None or (row.name != "bool" and row.bits >= 8):
        return later

    def fetch() -> Value:
        got = later.fetch()
        if isinstance(got, Tensor) and got.nbytes == dtypes.nbytes(row, got.shape):
            check_bits(Tensor(row.name, got.shape, got.data), None, found.start)
        return got

    return replace(later, fetch=fetch)


def _later_text(raw: memoryview, found: StoredArray) -> Deferred:
    shape, kind = found.header.shape, found.element
    if not found.nbytes:
        return _later_nothing(found)
    if kind.itemsize > npy_text.MOST_WIDE:
        raise UnsupportedError(f"npy dtype {found.header.descr!r}: an element is wider than NumPy's arrays go")
    dtype = np.dtype(kind.spelled).newbyteorder(">" if kind.swap else "<")
    rows: Array = np.ndarray(shape, dtype, raw, order="F" if found.header.fortran else "C")

    def part(index: Any) -> Strings:
        return npy_text.strings(np.asarray(rows[index], dtype), found.start)

    return Deferred("strings", "string", shape, lambda: part(...), found.nbytes, part, origin=found.origin)


def _later_nothing(found: StoredArray) -> Deferred:
    """No strings, or strings of no width."""
    places = np.broadcast_to(np.zeros((), bool), found.header.shape)
    encoding = "utf-8" if found.element.spelled[1] == "U" else "bytes"

    def part(index: Any) -> Strings:
        shape = np.shape(places[index])
        try:
            return Strings(shape, np.zeros(math.prod(shape) + 1, np.int64), b"", encoding)
        except MemoryError:
            raise LimitError(f"no memory for string{list(shape)}", at=found.start) from None

    return Deferred("strings", "string", found.header.shape, lambda: part(...), 0, part, origin=found.origin)
