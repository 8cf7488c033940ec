"""NumPy's structured arrays: dicts of their fields, and the note that makes them whole again.

A structured array in a structure is a dict of its fields, each an array of its own; a struct in a struct is a dict in
a dict. That is what every format stores and what other frameworks get. The origin of the document has one entry more,
"numpy.structs": a JSON list with an object for each of them,

    path     where it stands: [["key", "a"], ["list", 0]]
    fields   as in the header of an npy file: [name, dtype] or [name, dtype, shape of each element]; a name may be
             [title, name], a dtype a list of fields; padding has the name "" and a void dtype
    fortran  true if its first axis is the fastest in memory
    scalar   true for an element of a structured array, an np.void

From it NumPy's readers, and those who write npy, put the array together again: the same dtype, byte order, offsets and
titles. What padding holds is not data: it comes back as zeros. Fields that no longer are what the note says (one was
left out, renamed or cast) stay a dict.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes.deferred import Deferred
from tensorbytes.errors import LIMITS, MORE_BYTES, Hint, LimitError, UnsupportedError
from tensorbytes.tensor import Array
from tensorbytes.tree import Document, Leaf, Path, path_name

KEY = "numpy.structs"
_STEPS: dict[str, type] = {"key": str, "number": int, "list": int, "tuple": int}
_TYPE = re.compile(r"[<>|=]?[bBiufcmMSUV?][0-9]{0,9}(\[[0-9]{0,9}[A-Za-z]{1,2}\])?")
_PADDING = re.compile(r"[|]?V[0-9]{1,9}")
# What NumPy's own dtypes are limited to.
_MOST_BYTES = 0x7FFFFFFF
_MOST_DEPTH = 32
_PLAIN = ("tensor", "strings")


class Field(NamedTuple):
    """One field of a struct: its dtype in NumPy's words, or the fields that it is made of."""

    name: str  # "" for padding
    type: str | tuple[Field, ...]
    shape: tuple[int, ...] = ()  # of each element
    title: str = ""


Fields: TypeAlias = tuple[Field, ...]


class Struct(NamedTuple):
    """A structured array: where it stands and what it was."""

    path: Path
    fields: Fields
    fortran: bool = False
    scalar: bool = False


class StructError(ValueError):
    """Fields that don't make a struct. The message says why."""


# ---- the words of fields ----------------------------------------------------


def parse_fields(descr: Any, depth: int = 0) -> Fields:
    """The fields of a descr: lists and tuples, from a header or from JSON. StructError says what is wrong."""
    if type(descr) not in (list, tuple) or depth > _MOST_DEPTH:
        raise StructError(f"fields nested deeper than {_MOST_DEPTH} levels" if depth > _MOST_DEPTH else "no fields")
    made = tuple(_parse_field(item, depth) for item in descr)
    names = [one.name for one in made if one.name] + [one.title for one in made if one.title]
    if len(set(names)) != len(names):
        raise StructError("a field appears twice")
    if not any(one.name for one in made):
        raise StructError("a struct without fields")
    return made


def _parse_field(item: Any, depth: int) -> Field:
    if type(item) not in (list, tuple) or len(item) not in (2, 3):
        raise StructError(f"{str(item)[:40]!r} is not a field")
    name, kind, shape = item[0], item[1], item[2] if len(item) == 3 else ()
    title = ""
    if type(name) in (list, tuple) and len(name) == 2:
        title, name = name
    if type(name) is not str or type(title) is not str or (title and not name):
        raise StructError("a field without a name")
    shape = (shape,) if type(shape) is int else shape
    if type(shape) not in (list, tuple) or not all(type(n) is int and 0 <= n <= _MOST_BYTES for n in shape):
        raise StructError(f"the shape of the field {name[:40]!r} is not one of sizes")
    if type(kind) is not str:
        kind = parse_fields(kind, depth + 1)
    elif kind[:2] in ("|O", "O"):
        raise StructError(f"the field {name[:40]!r} holds Python objects, which are pickled: nothing is unpickled here")
    elif not _TYPE.fullmatch(kind):
        raise StructError(f"the field {name[:40]!r} is of the unknown dtype {kind[:40]!r}")
    if not name and not (isinstance(kind, str) and _PADDING.fullmatch(kind)):
        raise StructError("a field without a name")
    return Field(name, kind, tuple(shape), title)


def descr_of(fields: Fields) -> list[tuple[Any, ...]]:
    """The fields in NumPy's words, as np.dtype.descr has them."""

    def one(item: Field) -> tuple[Any, ...]:
        name = (item.title, item.name) if item.title else item.name
        kind = item.type if isinstance(item.type, str) else descr_of(item.type)
        return (name, kind, item.shape) if item.shape else (name, kind)

    return [one(item) for item in fields]


def fields_of(dtype: np.dtype[Any]) -> Fields:
    """The fields of a structured dtype."""
    names = ", ".join(dtype.names or ())
    try:
        return parse_fields(dtype.descr)
    except StructError as error:
        raise UnsupportedError(f"structured dtype with fields {names}: {error}", hints=[_AS_DICT]) from None
    except ValueError:
        raise UnsupportedError(
            f"structured dtype with fields {names} that overlap, or that stand in another order than they are named",
            hints=[Hint(purpose="pass numpy.lib.recfunctions.repack_fields(x)"), _AS_DICT],
        ) from None


_AS_DICT = Hint(purpose="pass its fields as a dict, {name: x[name] for name in x.dtype.names}")


def numpy_dtype(fields: Fields, true: Mapping[tuple[str, ...], np.dtype[Any]] | None = None) -> np.dtype[Any]:
    """NumPy's dtype. `true` says what void fields hold. StructError if it can't be."""
    names, kinds, offsets, titles = [], [], [], []
    at = 0
    for item in fields:
        below = {path[1:]: kind for path, kind in (true or {}).items() if path[0] == item.name}
        kind = _field_dtype(item, below)
        if item.name:
            names.append(item.name)
            kinds.append(kind)
            offsets.append(at)
            titles.append(item.title or None)
        at += kind.itemsize
        if at > _MOST_BYTES:
            raise StructError(f"an element of over {_MOST_BYTES} bytes")
    return np.dtype({"names": names, "formats": kinds, "offsets": offsets, "titles": titles, "itemsize": at})


def _field_dtype(item: Field, true: Mapping[tuple[str, ...], np.dtype[Any]]) -> np.dtype[Any]:
    try:
        kind: np.dtype[Any] = np.dtype(item.type) if isinstance(item.type, str) else numpy_dtype(item.type, true)
        known = true.get(())
        if known is not None and kind.kind == "V" and kind.itemsize == known.itemsize:
            kind = known
        if math.prod(item.shape) * kind.itemsize > _MOST_BYTES:
            raise StructError(f"an element of over {_MOST_BYTES} bytes")
        return np.dtype((kind, item.shape)) if item.shape else kind
    except (TypeError, ValueError, OverflowError) as error:
        raise StructError(str(error)) from None


def leaf_fields(fields: Fields, above: tuple[str, ...] = (), shape: tuple[int, ...] = ()) -> Iterator[FieldPlace]:
    """The fields that hold values, those of the structs in it as well."""
    for item in fields:
        place = (*above, item.name)
        if item.name and isinstance(item.type, str):
            yield FieldPlace(place, item.type, shape + item.shape)
        elif item.name:
            yield from leaf_fields(item.type, place, shape + item.shape)  # type: ignore[arg-type]


class FieldPlace(NamedTuple):
    """A field that holds values: its names from the outermost on, its dtype, the shape of each element."""

    names: tuple[str, ...]
    type: str
    shape: tuple[int, ...]


# ---- notes ------------------------------------------------------------------


def struct_of(path: Path, array: Any) -> Struct:
    """What is noted of a structured array that stands at a path."""
    fortran = isinstance(array, np.ndarray) and array.flags.f_contiguous and not array.flags.c_contiguous
    return Struct(path, fields_of(array.dtype), bool(fortran), isinstance(array, np.void))


def noted(origin: Mapping[str, str], structs: Iterable[Struct]) -> dict[str, str]:
    """The origin of a document with a note of its structs."""
    made = [
        {
            "path": [list(step) for step in struct.path],
            "fields": descr_of(struct.fields),
            **({"fortran": True} if struct.fortran else {}),
            **({"scalar": True} if struct.scalar else {}),
        }
        for struct in structs
    ]
    rest = {key: text for key, text in origin.items() if key != KEY}
    return {**rest, KEY: json.dumps(made, separators=(",", ":"), ensure_ascii=False)} if made else rest


def structs_of(origin: Mapping[str, str]) -> list[Struct]:
    """The structs that an origin notes."""
    try:
        return [_parse_struct(one) for one in json.loads(origin.get(KEY, "[]"))]
    except (ValueError, TypeError, RecursionError) as error:
        raise UnsupportedError(f"metadata {KEY!r} does not describe structs: {str(error)[:80]}") from None


def _parse_struct(one: Any) -> Struct:
    if type(one) is not dict or not {"path", "fields"} <= one.keys() <= {"path", "fields", "fortran", "scalar"}:
        raise StructError("a struct without a path or fields")
    path = [tuple(step) for step in one["path"]]
    if not all(len(step) == 2 and type(step[1]) is _STEPS.get(str(step[0])) for step in path):
        raise StructError("a path of other things than steps")
    return Struct(tuple(path), parse_fields(one["fields"]), one.get("fortran") is True, one.get("scalar") is True)


# ---- put together again -----------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Structured(Deferred):
    """A struct and the leaves of its fields, in their order. It is made to be converted, or written, at once."""

    struct: Struct = field(default_factory=lambda: Struct((), ()))
    leaves: tuple[Leaf, ...] = ()

    @property
    def padding(self) -> int:
        """The bytes that it takes beside those of its fields."""
        try:
            size = numpy_dtype(self.struct.fields).itemsize
        except StructError as error:
            raise UnsupportedError(f"metadata {KEY!r}: {error}") from None
        own = sum(math.prod(place.shape) * np.dtype(place.type).itemsize for place in leaf_fields(self.struct.fields))
        return (size - own) * math.prod(one or 0 for one in self.shape)

    def as_dict(self, convert: Callable[[Any], Any]) -> dict[str, Any]:
        """The fields by their names, nested as the struct is."""
        made: dict[str, Any] = {}
        for place, leaf in zip(leaf_fields(self.struct.fields), self.leaves, strict=True):
            into = made
            for name in place.names[:-1]:
                into = into.setdefault(name, {})
            into[place.names[-1]] = convert(leaf.value)
        return made

    def array(self, convert: Callable[[Any], Array]) -> Array | None:
        """The structured array of what `convert` makes of the fields; None if they are no longer what they were."""
        places = list(leaf_fields(self.struct.fields))
        arrays = [convert(leaf.value) for leaf in self.leaves]
        true = {place.names: one.dtype for place, one in zip(places, arrays, strict=True)}
        try:
            dtype = numpy_dtype(self.struct.fields, true)
        except StructError as error:
            raise UnsupportedError(f"metadata {KEY!r}: {error}") from None
        shape = tuple(size or 0 for size in self.shape)
        made: Array = np.zeros(shape, dtype, order="F" if self.struct.fortran else "C")
        for place, one in zip(places, arrays, strict=True):
            into: Array = made
            for name in place.names:
                into = into[name]
            if not _fits(into, one):
                return None
            into[...] = one
        return made


def _fits(field: Array, values: Array) -> bool:
    """Whether values are of the dtype and shape of a field; text of no width is made wider by NumPy."""
    if not field.dtype.itemsize and field.dtype.kind in "SU":
        return field.dtype.kind == values.dtype.kind and not bool(np.strings.str_len(values).any())
    return bool(field.dtype.newbyteorder("=") == values.dtype.newbyteorder("=")) and field.shape == values.shape


def gathered(
    document: Document, accept: Callable[[Structured], bool] = lambda _: True, most: int = LIMITS.max_bytes
) -> Document:
    """The document with a leaf for each struct whose fields are all there, in place of those of the fields.

    `most` is how much padding they may have together, beside as much as their fields take: a note may ask for any.
    """
    if KEY not in document.origin:
        return document
    leaves = {leaf.path: leaf for leaf in document.leaves}
    below: dict[Path, int] = {}  # how many leaves stand at a path and below it
    for path in leaves:
        for size in range(len(path) + 1):
            below[path[:size]] = below.get(path[:size], 0) + 1
    left, padding, room = [], 0, most
    for struct in structs_of(document.origin):
        made = _gather(struct, leaves, below)
        if made is None or not accept(made):
            left.append(struct)
            continue
        padding, room = padding + made.padding, room + made.nbytes
        if padding > room:
            raise LimitError(f"metadata {KEY!r} asks for {padding} bytes of padding, over {room}", hints=[MORE_BYTES])
        first, *rest = (leaf.path for leaf in made.leaves)
        leaves[first] = Leaf(made, struct.path, at=leaves[first].at)
        for path in rest:
            del leaves[path]
    return document._replace(leaves=list(leaves.values()), origin=noted(document.origin, left))


def without_torn(document: Document) -> Document:
    """The document, of which some leaves were left out or renamed, with notes of the structs that are whole."""
    if KEY not in document.origin:
        return document
    paths = {leaf.path for leaf in document.leaves}
    whole = [one for one in structs_of(document.origin) if all(path in paths for path in _field_paths(one))]
    return document._replace(origin=noted(document.origin, whole))


def _field_paths(struct: Struct) -> list[Path]:
    return [(*struct.path, *(("key", name) for name in place.names)) for place in leaf_fields(struct.fields)]


def is_struct(document: Document) -> bool:
    """Whether all of a document is one structured array."""
    leaves = gathered(document).leaves
    return len(leaves) == 1 and not leaves[0].path and isinstance(leaves[0].value, Structured)


def _gather(struct: Struct, leaves: Mapping[Path, Leaf], below: Mapping[Path, int]) -> Structured | None:
    places = list(leaf_fields(struct.fields))
    found = [leaves.get(path) for path in _field_paths(struct)]
    whole = tuple(
        leaf
        for leaf in found
        if leaf is not None and leaf.header.kind in _PLAIN and not leaf.kind and not leaf.value.meta
    )
    if len(whole) != len(places) or below.get(struct.path) != len(places):
        return None
    shapes = set()
    for place, leaf in zip(places, whole, strict=True):
        shape, inner = leaf.header.shape, place.shape
        if len(inner) > len(shape) or shape[len(shape) - len(inner) :] != inner:
            return None
        shapes.add(shape[: len(shape) - len(inner)])
    if len(shapes) != 1:
        return None

    def refuse() -> Any:
        raise UnsupportedError(f"{path_name(struct.path) or 'it'} is a struct, not one tensor")

    size = sum(leaf.header.nbytes or 0 for leaf in whole)
    return Structured("tensor", "struct", shapes.pop(), refuse, size, struct=struct, leaves=whole)
