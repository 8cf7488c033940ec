"""Arrays as npy files and npz archives hold them: what a document becomes, and what an array is read as."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import dtypes, structs
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, Dense, elsewhere, in_fortran_order, swapped
from tensorbytes.errors import CorruptError, Hint, LimitError, UnsupportedError, UsageError
from tensorbytes.formats import Option, Options
from tensorbytes.formats._npy import header as npy_header
from tensorbytes.formats._npy import text as npy_text
from tensorbytes.formats._npy.header import NpyHeader, Version
from tensorbytes.formats._parts import Part, check_note, known_shape, pack
from tensorbytes.formats._tensorproto import check_bits, check_shape
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.patterns import first_match
from tensorbytes.structs import FieldPlace, Fields, Struct, StructError, Structured
from tensorbytes.tensor import Array, Strings, Tensor, Value, with_origin
from tensorbytes.tree import Document
from tensorbytes.typing import Buffer, bytes_view

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
BOOLS = Option(str, "`any` takes every byte but 0 for True, as NumPy does", "refuse", ("refuse", "any"))
ANY_BOOL = Hint("bools", "any", "to take every byte but 0 for True", of="load")
# What may be noted of a struct: the rest is said by its fields.
_STRUCT_NOTES = {"path", "kind", "document", "document_origin"}
_TIME_UNIT = re.compile(r"\[([1-9][0-9]{0,8})?(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\]")


# ---- writing ----------------------------------------------------------------


class NpyArray(NamedTuple):
    """One array to be written. One that stands in Fortran order is written so."""

    name: str
    descr: str | Fields
    value: Tensor | Strings | Deferred
    note: dict[str, Any]

    @property
    def nbytes(self) -> int:
        return self.value.nbytes

    def header(self, allow: frozenset[str], version: Version | None = None) -> bytes:
        value = self.value
        fortran = value.struct.fortran if isinstance(value, Structured) else getattr(value, "reverse", None) is not None
        return npy_header.noted(self.descr, known_shape(value), self.note, allow, fortran, version)

    def buffers(self, allow: frozenset[str], version: Version | None = None) -> Iterator[Buffer]:
        """The header, once nothing is lost in silence; then the content, which is not read before."""
        return chain([self.header(allow, version)], self._content())

    def _content(self) -> Iterator[Buffer]:
        value = self.value
        if isinstance(value, Structured):
            yield _struct_bytes(value)
            return
        got = (value.reversed_axes() if isinstance(value, Deferred) else None) or value.load()
        assert isinstance(got, Tensor | Strings)
        yield got.data if isinstance(got, Tensor) else npy_text.fixed_width(got, str(self.descr))


def _struct_bytes(value: Structured) -> Buffer:
    array = value.array(numpy_adapter.from_value)
    assert array is not None
    raw = array.T if value.struct.fortran else array
    return raw.reshape(-1).view(np.uint8) if raw.nbytes else b""


def with_structs(document: Document) -> Document:
    """The document with the structs whole that npy has a word for."""
    return structs.gathered(document, _holds_struct)


def pieces(document: Document, unnamed: str) -> list[NpyArray]:
    """The arrays of a document. Notes say what NumPy's dtype does not."""
    texts: dict[int, str] = {}

    def holds(value: Dense) -> bool:
        if isinstance(value, Structured):
            return True
        if not isinstance(value, Strings):
            return value.dtype in NATIVE or _time_descr(value) is not None
        descr = npy_text.descr_of(value)
        if descr is not None:
            texts[id(value)] = descr
        return descr is not None

    out = []
    descr: str | Fields
    for part in pack(document, holds, unnamed=unnamed):
        value, note = part.value, dict(part.note)
        if isinstance(value, Strings):
            descr = texts[id(value)]
            note.pop("encoding", None)
            _imply(note, descr)
        elif isinstance(value, Structured):
            descr = value.struct.fields
            note |= {"kind": "numpy"} if value.struct.scalar else {}
        else:
            descr = _tensor_descr(value, note)
        out.append(NpyArray(part.name, descr, value, note))
    return out


def _holds_struct(value: Structured) -> bool:
    """Whether the fields are what the struct says, so that npy has a word for each of them."""
    for place, leaf in zip(structs.leaf_fields(value.struct.fields), value.leaves, strict=True):
        try:
            kind = element(place.type)
        except UnsupportedError:
            return False
        if kind.dtype != leaf.header.dtype or kind.spelled != leaf.value.origin.get("numpy.dtype", ""):
            return False
    return True


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


class Reading(NamedTuple):
    """How arrays are read: the options of a call."""

    options: Options

    @property
    def any_bool(self) -> bool:
        return bool(self.options.get("bools") == "any")

    def dtype_of(self, name: str) -> str | None:
        """What a void array of this name holds; a dict tells it for each array."""
        given = self.options.get("dtype")
        if isinstance(given, Mapping):
            pattern = first_match(name, given)
            given = None if pattern is None else given[pattern]
        return None if given is None else dtypes.named(given).name

    def dtype_of_field(self, name: str, place: FieldPlace) -> tuple[str, str | None]:
        """The name of a field, as a dict of dtypes has it, and what it holds."""
        field = "/".join((name, *place.names))
        return field, self.dtype_of(field) if isinstance(self.options.get("dtype"), Mapping) else None


# For arrays in files of other formats, which have no such options.
_PLAIN = Reading({})


class StoredArray(NamedTuple):
    """An array's header, checked: its content takes `nbytes` bytes from `start` on."""

    header: NpyHeader
    element: Element
    dtype: str  # as it is stored; "string" for text, "struct" for fields
    true: str  # as it is meant
    start: int
    nbytes: int
    reading: Reading = _PLAIN

    @property
    def end(self) -> int:
        return self.start + self.nbytes

    @property
    def across(self) -> bool:
        """Whether its first axis is the fastest in memory, where that makes a difference."""
        shape = self.header.shape
        return self.header.fortran and self.dtype != "string" and len(shape) > 1 and self.nbytes > 0

    @property
    def grown(self) -> int:
        """Memory that no bytes of the file stand for: a string of little or no width still has a place."""
        return max(8 * math.prod(self.header.shape) - self.nbytes, 0) if self.dtype == "string" else 0

    @property
    def origin(self) -> dict[str, str]:
        spelled = self.element.spelled
        return {"numpy.dtype": spelled} if spelled and "origin" not in self.header.note else {}


def find(data: memoryview | bytes, at: int, name: str, budget: Budget, reading: Reading) -> StoredArray:
    """The array whose header stands at `at`."""
    header = npy_header.read(data, at)
    if header.note:
        check_note(Part(name, _NOTHING, header.note, at))
    kind = element(header.descr) if isinstance(header.descr, str) else _struct(header, budget, reading, name, at)
    shape = check_shape(header.shape, max(kind.itemsize, 1), budget, at)
    stored = kind.dtype or _void(str(header.descr), header.note, kind, name, reading.dtype_of(name))
    true = header.note.get("dtype", stored)
    found = StoredArray(header, kind, stored, true, at + header.size, math.prod(shape) * kind.itemsize, reading)
    if stored == "string":
        budget.charge(found.grown, f"string{list(shape)}", at)
        budget.strings(math.prod(shape), at)
    return found


def _struct(header: NpyHeader, budget: Budget, reading: Reading, name: str, at: int) -> Element:
    """The element of a structured array, once its fields are known and counted."""
    assert not isinstance(header.descr, str)
    wrong = header.note.keys() - _STRUCT_NOTES or header.note.get("kind", "numpy") != "numpy"
    if wrong:
        raise CorruptError(f"the note of {name!r}: it says what no struct has", at=at)
    try:
        size = structs.numpy_dtype(header.descr).itemsize
    except StructError as error:
        raise UnsupportedError(f"a structured npy array: {error}", at=at) from None
    places = list(structs.leaf_fields(header.descr))
    budget.tensors(len(places), at)
    elements = math.prod(header.shape)
    for place in places:
        kind = element(place.type)
        if len(header.shape) + len(place.shape) > budget.max_rank:
            raise LimitError(f"the field {'/'.join(place.names)!r} has too many axes", at=at)
        if kind.dtype == "string":
            many = elements * math.prod(place.shape)
            budget.charge(max(8 - kind.itemsize, 0) * many, f"string{list(header.shape + place.shape)}", at)
            budget.strings(many, at)
        elif not kind.dtype:
            _check_field(kind, place, name, reading)
    return Element("struct", size)


def _check_field(kind: Element, place: FieldPlace, name: str, reading: Reading) -> None:
    """A void field must be told by its name: a dtype for all would have to fit all void fields."""
    field, dtype = reading.dtype_of_field(name, place)
    try:
        _void(place.type, {}, kind, field, dtype)
    except UnsupportedError as error:
        told = [Hint(purpose=f"pass dtype={ ({field: hint.value})!r} {hint.purpose}") for hint in error.hints]
        raise error.replaced(hints=told) from None


_NOTHING = Tensor("uint8", (0,), b"")


def _void(descr: str, note: Mapping[str, Any], kind: Element, name: str, dtype: str | None) -> str:
    """The dtype of the same width that stands for a void one."""
    if "dtype" not in note:
        if dtype is None:
            guess = {1: "float8_e4m3fn", 4: "complex32"}.get(kind.itemsize, "bfloat16")
            raise UnsupportedError(
                f"{name!r} is of NumPy's void dtype {descr!r}, which does not say what it holds",
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
        raise UnsupportedError(f"{name!r} is of NumPy's void dtype {descr!r}, which no dtype has the width of")
    return _VOIDS[kind.itemsize]


def value(data: memoryview, found: StoredArray, lazy: bool) -> Tensor | Strings | Deferred:
    """The array itself: a view where its bytes are those of a tensor, else read now or, lazily, later.

    One in Fortran order stays as it stands until somebody needs it in another.
    """
    shape = found.header.shape
    raw = _content_of(data, found)
    if found.dtype == "string":
        rows: Array = _text_rows(raw, found.element, shape, "F" if found.header.fortran else "C", found)
        text = _later_text(rows, found.element, found.start, found.origin)
        return text if lazy else text.load()  # type: ignore[return-value]

    def flat() -> Buffer:
        return _settled(raw, found)

    if not found.across:
        if not lazy or not (_is_limited(found.true) or found.element.swap):
            return Tensor(found.dtype, shape, flat() if not lazy else raw, origin=found.origin)
        return with_origin(_mapped(raw, found, lambda: Tensor(found.dtype, shape, flat())), found.origin)

    def reverse() -> Tensor:
        return Tensor(found.dtype, shape[::-1], flat())

    if lazy:
        turned = in_fortran_order(found.dtype, shape, reverse)
        return with_origin(replace(_mapped(raw, found, turned.fetch), reverse=reverse), found.origin)
    made = reverse()
    return with_origin(in_fortran_order(found.dtype, shape, lambda: made), found.origin)


def _mapped(raw: memoryview, found: StoredArray, fetch: Callable[[], Value]) -> Deferred:
    """An array of which slices are taken from its bytes as they are stored; `fetch` gives the whole."""
    order: Any = "F" if found.across else "C"
    elements: Array = np.ndarray(found.header.shape, f"V{found.element.itemsize}", raw, order=order)
    return replace(_checked(elsewhere(found.dtype, elements, found.element.swap), found), fetch=fetch)


def _content_of(data: memoryview, found: StoredArray) -> memoryview:
    """The bytes of an array, if they are all there."""
    if found.end > len(data):
        raise CorruptError(
            f"{found.true}{list(found.header.shape)} takes {found.nbytes} bytes, "
            f"only {max(len(data) - found.start, 0)} follow",
            at=len(data),
        )
    return data[found.start : found.end]


def _is_limited(dtype: str) -> bool:
    """Whether not every bit pattern is a value."""
    row = dtypes.DTYPES.get(dtype)
    return row is not None and (row.name == "bool" or row.bits < 8)


def _settled(raw: Buffer, found: StoredArray) -> Buffer:
    """Some bytes of elements as they are in memory: little-endian, and each of them a value."""
    if found.element.swap:
        raw = swapped(np.frombuffer(raw, np.uint8), found.dtype)
    return _settled_bits(raw, found.true, found.start, found.reading)


def _settled_bits(raw: Buffer, dtype: str, start: int | None, reading: Reading, at: int = 0) -> Buffer:
    """The same, where the byte order is right. `start` is where they stand, if all of them stand there."""
    if not _is_limited(dtype):
        return raw
    if dtype == "bool" and reading.any_bool:
        flat = np.frombuffer(raw, np.uint8)
        return (flat != 0).view(np.uint8) if flat.max(initial=0) > 1 else raw
    try:
        check_bits(Tensor(dtype, (len(bytes_view(raw)),), raw), start, at)
    except CorruptError as error:
        raise error.replaced(hints=[ANY_BOOL] if dtype == "bool" and reading is not _PLAIN else []) from None
    return raw


def _checked(later: Deferred, found: StoredArray) -> Deferred:
    """A value of which parts, too, are looked at, where not every bit pattern is one."""
    cut = later.cut
    if cut is None or not _is_limited(found.true):
        return later

    def part(index: Any) -> Tensor | Strings:
        got = cut(index)
        assert isinstance(got, Tensor)
        return replace(got, data=_settled_bits(got.data, found.true, None, found.reading, found.start))

    return replace(later, cut=part)


def parts(data: memoryview, found: StoredArray, name: str, at: int, lazy: bool) -> list[Part]:
    """An array as the parts of a document: itself, or its fields. Of those, the first has the note of the whole."""
    if found.dtype != "struct":
        return [Part(name, value(data, found, lazy), found.header.note, at)]
    raw = _content_of(data, found)
    return field_parts(found, name, at, lambda place: _field(raw, found, name, place, lazy))


def later_parts(
    found: StoredArray, name: str, at: int, get: Callable[[int], Tensor | Strings | Deferred]
) -> list[Part]:
    """The same parts of an array whose bytes are not there yet; `get` gives the value of one by its number."""
    if found.dtype != "struct":
        shape = found.header.shape
        return [Part(name, _later(found.element, found.dtype, shape, found, partial(get, 0)), found.header.note, at)]
    numbers = count()

    def make(place: FieldPlace) -> Deferred:
        kind = element(place.type)
        dtype = kind.dtype or _void(place.type, {}, kind, *found.reading.dtype_of_field(name, place))
        return _later(kind, dtype, found.header.shape + place.shape, None, partial(get, next(numbers)))

    return field_parts(found, name, at, make)


def _later(
    kind: Element,
    dtype: str,
    shape: tuple[int, ...],
    found: StoredArray | None,
    get: Callable[[], Tensor | Strings | Deferred],
) -> Deferred:
    """A value whose bytes are not there yet; the array of `found`, or a field."""
    text = dtype == "string"  # a slice of it is text of the same width
    origin = found.origin if found is not None else {"numpy.dtype": kind.spelled} if kind.spelled else {}

    def reverse() -> Tensor:
        made = get()
        assert isinstance(made, Deferred)
        assert made.reverse is not None
        return made.reverse()

    return Deferred(
        "strings" if text else "tensor",
        dtype,
        shape,
        lambda: get().load(),
        math.prod(shape) * kind.itemsize,
        (lambda index: get().part(index)) if text else None,
        origin=origin,
        reverse=reverse if found is not None and found.across else None,
    )


def field_parts(
    found: StoredArray, name: str, at: int, make: Callable[[FieldPlace], Tensor | Strings | Deferred]
) -> list[Part]:
    """The fields of a structured array, which `make` makes."""
    assert not isinstance(found.header.descr, str)
    note = found.header.note
    above = note.get("path", [["key", name]])
    made: list[Part] = []
    for place in structs.leaf_fields(found.header.descr):
        own = {"path": [*above, *(["key", step] for step in place.names)]}
        own |= {key: note[key] for key in ("document", "document_origin") if key in note and not made}
        made.append(Part(f"{name}{list(place.names)}", make(place), own, at))
    return made


def _field(
    raw: memoryview, found: StoredArray, name: str, place: FieldPlace, lazy: bool
) -> Tensor | Strings | Deferred:
    """A field of a structured array: nothing of it is one piece of memory, so it is read when it is asked for."""
    assert not isinstance(found.header.descr, str)
    order: Any = "F" if found.header.fortran else "C"
    try:
        rows: Array = np.ndarray(found.header.shape, structs.numpy_dtype(found.header.descr), raw, order=order)
    except (ValueError, TypeError) as error:
        raise UnsupportedError(f"a structured npy array: {error}", at=found.start) from None
    for step in place.names:
        rows = rows[step]
    kind = element(place.type)
    origin = {"numpy.dtype": kind.spelled} if kind.spelled else {}
    if kind.dtype == "string":
        later = _later_text(rows, kind, found.start, origin)
    else:
        dtype = kind.dtype or _void(place.type, {}, kind, *found.reading.dtype_of_field(name, place))
        own = found._replace(dtype=dtype, true=dtype, element=kind)
        plain = elsewhere(dtype, rows.view(f"V{kind.itemsize}"), kind.swap)
        looked = _checked(plain, own)
        cut = looked.cut
        assert cut is not None
        later = with_origin(replace(looked, fetch=lambda: cut(...)), origin)
    return later if lazy else later.load()  # type: ignore[return-value]


def noted_structs(document: Document, arrays: Iterable[tuple[StoredArray, str]]) -> Document:
    """The document of parts, with a note of the structs among the arrays that they come from."""
    made = [
        Struct(
            tuple((kind, step) for kind, step in found.header.note.get("path", [["key", name]])),
            found.header.descr,
            found.header.fortran and len(found.header.shape) > 1,
            "kind" in found.header.note,
        )
        for found, name in arrays
        if not isinstance(found.header.descr, str)
    ]
    if not made:
        return document
    return document._replace(origin=structs.noted(document.origin, [*structs.structs_of(document.origin), *made]))


def _text_rows(raw: memoryview, kind: Element, shape: tuple[int, ...], order: Any, found: StoredArray) -> Array:
    """Text as an array of NumPy's; places without bytes where it has no width, or there are no strings."""
    if not found.nbytes:
        return np.broadcast_to(np.zeros((), bool), shape)
    if kind.itemsize > npy_text.MOST_WIDE:
        raise UnsupportedError(f"npy dtype {found.header.descr!r}: an element is wider than NumPy's arrays go")
    dtype = np.dtype(kind.spelled).newbyteorder(">" if kind.swap else "<")
    return np.ndarray(shape, dtype, raw, order=order)


def _later_text(rows: Array, kind: Element, start: int, origin: Mapping[str, str]) -> Deferred:
    """Text of fixed width, read when it is asked for."""
    encoding = "utf-8" if kind.spelled[1] == "U" else "bytes"

    def part(index: Any) -> Strings:
        picked = np.asarray(rows[index])
        if kind.itemsize and picked.size:
            return npy_text.strings(picked, start)
        try:
            return Strings(picked.shape, np.zeros(picked.size + 1, np.int64), b"", encoding)
        except MemoryError:
            raise LimitError(f"no memory for string{list(picked.shape)}", at=start) from None

    return Deferred("strings", "string", rows.shape, lambda: part(...), rows.size * kind.itemsize, part, origin=origin)
