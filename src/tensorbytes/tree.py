"""Python structures: nested dicts, lists and tuples of tensors, and plain scalars.

NamedTuples and dataclasses are dicts of their fields; with a template (templates.py) they come back as what they were.

A structure becomes a flat list of leaves. Each leaf knows its path from the root, so
structures need no header, can be salvaged in part, and come back as they were.
A path step is a pair:

    ("key", "w")    the value of a string key of a dict     ("list", 0)   item 0 of a list
    ("number", 3)   the value of an integer key of a dict   ("tuple", 0)  item 0 of a tuple
    ("mask", 0)     which rows of a table's column there are: see Document

A leaf's `kind` tells what its value was when it was not a tensor: "int", "float",
"complex", "bool", "str", "bytes", "bytearray", "none", "numpy" (a NumPy scalar), "list[float]" (a
list of nothing but floats, stored as one tensor), or "dict", "list", "tuple" (empty).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from tensorbytes import advice
from tensorbytes.deferred import Deferred
from tensorbytes.errors import LIMITS, CorruptError, Hint, TensorbytesError, UnsupportedError, UsageError
from tensorbytes.tensor import Array, Header, Strings, Tensor, Value

Step: TypeAlias = tuple[str, str | int]
Path: TypeAlias = tuple[Step, ...]
NO_META: Mapping[str, str] = MappingProxyType({})


class Stored(NamedTuple):
    """How a value is stored, where that is not as its own bytes."""

    compression: str = ""  # the pipeline of codecs
    nbytes: int = 0  # what its content takes
    quantization: Any = None  # quantization.Quantization


class Extent(NamedTuple):
    """The stretch of a storage that a tensor of a file is a view of, from its first byte to its last."""

    storage: int
    start: int
    end: int


class Leaf(NamedTuple):
    """One tensor of a structure, or of an open file, where it may not be read yet.

    `check` reads what lazy decoding left unread, and may raise. `at` is the offset that
    its errors name. `extent` is known of tensors in files that say which memory is shared.
    """

    value: Value | Deferred
    path: Path = ()
    kind: str = ""
    check: Callable[[], None] | None = None
    at: int = 0
    stored: Stored | None = None
    extent: Extent | None = None

    @property
    def name(self) -> str | None:
        """The name it is listed under: its place in a structure, else the tensor's own name."""
        return path_name(self.path) if self.path else self.value.name

    @property
    def header(self) -> Header:
        """What its value is."""
        return self.value.header

    @property
    def meta(self) -> Mapping[str, str]:
        """The metadata of its value."""
        return self.value.meta

    def read(self) -> Value:
        """The value."""
        return self.value.load()

    def part(self, index: Any) -> Tensor | Strings:
        """What an index picks of the value; where the format can, no more than that is read."""
        return self.value.part(index)


class LazyLeaves(list[Leaf]):
    """Leaves whose names are known, and of which each is made when it is asked for.

    A list of thousands takes time and memory that whoever wants one of them should not pay.
    """

    def __init__(self, names: Sequence[str], make: Callable[[int], Leaf]) -> None:
        super().__init__([None] * len(names))  # type: ignore[list-item]
        self.names, self._make = names, make

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        found = super().__getitem__(index)
        if found is None:
            found = self._make(range(len(self))[index])
            super().__setitem__(index, found)
        return found

    def __iter__(self) -> Iterator[Leaf]:
        return map(self.__getitem__, range(len(self)))

    def __reversed__(self) -> Iterator[Leaf]:
        return map(self.__getitem__, reversed(range(len(self))))

    def __contains__(self, leaf: object) -> bool:
        return any(one is leaf or one == leaf for one in self)

    def __eq__(self, other: object) -> bool:
        return self is other or list(self) == other

    __hash__ = None

    def __add__(self, other: Any) -> Any:
        return [*self, *other]

    def __radd__(self, other: Any) -> Any:
        return [*other, *self]

    def copy(self) -> list[Leaf]:
        return list(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return list, (list(self),)


def leaf_names(leaves: list[Leaf]) -> Sequence[str | None]:
    """The name of each leaf, none of which is made for it."""
    return leaves.names if isinstance(leaves, LazyLeaves) else [leaf.name for leaf in leaves]


class Document(NamedTuple):
    """One object: its leaves in order, metadata of the whole, its number in a stream (from 1).

    `origin` is what we note ourselves of how the whole was held, as that of a value. Leaves whose value is the
    identical object are aliases: formats that can store it once, and give it back as one.

    With `rows`, the document is rows of a table: each leaf is a column with this many rows, or, where its path ends
    in ("mask", level), tells which elements of the column before that step there are.
    """

    leaves: list[Leaf]
    meta: Mapping[str, str] = NO_META
    item: int = 0
    origin: Mapping[str, str] = NO_META
    rows: int | None = None


def read_all(leaves: list[Leaf]) -> list[Leaf]:
    """The leaves with their values read. Those that shared one share it still."""
    if all(leaf.value.at_hand for leaf in leaves):
        return leaves
    values: dict[int, Value] = {}
    for leaf in leaves:
        if id(leaf.value) not in values:
            values[id(leaf.value)] = leaf.read()
    return [leaf._replace(value=values[id(leaf.value)]) for leaf in leaves]


def find_aliases(leaves: Sequence[Leaf], also: Callable[[Leaf], Any] | None = None) -> dict[int, int]:
    """The numbers of leaves whose value is that of an earlier leaf, each with the number of the first one.

    `also` gives what else must be the same. Python's own values have no identity, nor has a value without a place.
    """
    if len({id(leaf.value) for leaf in leaves}) == len(leaves):  # most
        return {}
    found: dict[int, int] = {}
    firsts: dict[Any, int] = {}
    for part, leaf in enumerate(leaves):
        if leaf.kind or not leaf.path:
            continue
        mark = id(leaf.value) if also is None else (id(leaf.value), also(leaf))
        first = firsts.setdefault(mark, part)
        if first != part:
            found[part] = first
    return found


def find_overlaps(leaves: Sequence[Leaf]) -> dict[int, int]:
    """The numbers of leaves that are other views of the memory of another leaf, each with the number of that one."""
    found: dict[int, int] = {}
    known = [(leaf.extent, part) for part, leaf in enumerate(leaves) if leaf.extent is not None]
    known.sort(key=lambda pair: (pair[0].storage, pair[0].start, -pair[0].end, pair[1]))
    widest: tuple[Extent, int] | None = None  # the one that reaches furthest so far
    for extent, part in known:
        if widest is None or extent.storage != widest[0].storage or extent.start >= widest[0].end:
            widest = extent, part
            continue
        if leaves[part].value is not leaves[widest[1]].value:
            found[part] = widest[1]
        if extent.end > widest[0].end:
            widest = extent, part
    return found


def check_unread(document: Document) -> Document:
    """The document, once what lazy decoding left unread was looked at."""
    for leaf in document.leaves:
        if leaf.check is not None:
            leaf.check()
    return document


def to_plain(document: Document) -> Document:
    """A table as a dict of its columns, masks beside them; any other document as it is."""
    if document.rows is None:
        return document
    leaves = [
        leaf._replace(path=_mask_path(leaf.path)) if leaf.path[-1][0] == "mask" else leaf for leaf in document.leaves
    ]
    return document._replace(leaves=leaves, rows=None)


def path_name(path: Path) -> str | None:
    """The name under which a leaf is listed: its key, or its keys joined by slashes."""
    if len(path) == 1:
        return str(path[0][1])
    return "/".join(f"mask{step}" if kind == "mask" else str(step) for kind, step in path) if path else None


def _numbers(dtype: str) -> Callable[[list[Any]], Value]:
    def build(items: list[Any]) -> Value:
        return Tensor(dtype, (len(items),), np.array(items, dtype).view(np.uint8))

    return build


def _integers(items: list[int]) -> Value:
    try:
        return _numbers("int64")(items)
    except OverflowError:  # Python's integers have no limit: as text they keep every digit
        if any(abs(item) >= 10**4300 for item in items):
            raise UnsupportedError(
                "an integer of over 4300 digits", hints=[Hint(purpose="store it as bytes")]
            ) from None
        return Strings.from_items(map(str, items), (len(items),), "utf-8")


_SCALARS: dict[type, Callable[[list[Any]], Value]] = {
    bool: _numbers("bool"),
    int: _integers,
    float: _numbers("float64"),
    complex: _numbers("complex128"),
    str: lambda items: Strings.from_items(items, (len(items),), "utf-8"),
    bytes: lambda items: Strings.from_items(items, (len(items),), "bytes"),
    bytearray: lambda items: Strings.from_items(map(bytes, items), (len(items),), "bytes"),
}
_BY_NAME = {kind.__name__: kind for kind in _SCALARS}
_EMPTY = Tensor("bool", (0,), b"")
_CONTAINERS: dict[str, type] = {"dict": dict, "list": list, "tuple": tuple}


Children: TypeAlias = list[tuple[Step, Any]]


class Places(Protocol):
    """What tells which tensors are the same view of the same memory: `frameworks` is one."""

    def address_of(self, x: Any) -> int: ...
    def place_of(self, x: Any) -> Hashable | None: ...


class _Shared:
    """The values of tensors, of each view of memory one: where it was held in the same way."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._first: dict[int, tuple[Any, Value | Deferred]] = {}  # by address: most tensors are alone at theirs
        self._known: dict[Hashable, Value | Deferred] = {}

    def value(self, x: Any, value: Value | Deferred) -> Value | Deferred:
        """The value of this tensor, or of the one that was there before."""
        address = self._places.address_of(x)
        if not address:
            return value
        first = self._first.setdefault(address, (x, value))
        if first[0] is x:
            return value
        self._known.setdefault(self._mark(*first), first[1])
        return self._known.setdefault(self._mark(x, value), value)

    def _mark(self, x: Any, value: Value | Deferred) -> Hashable:
        return self._places.place_of(x), tuple(value.origin.items())


def no_children(obj: Any) -> Children | None:
    return None


class _Walk(NamedTuple):
    """What is asked about the objects of a structure, and the leaves that were found so far."""

    to_value: Callable[[Any], Value | Deferred | None]
    note: Callable[[Path, Any], None] | None
    more: Callable[[Any], Children | None]
    out: list[Leaf]


def flatten(
    obj: Any,
    to_value: Callable[[Any], Value | Deferred | None],
    places: Places | None = None,
    *,
    note: Callable[[Path, Any], None] | None = None,
    more: Callable[[Any], Children | None] = no_children,
) -> list[Leaf]:
    """The leaves of a structure; `to_value` gives None for what is not a tensor, `more` what further containers hold.

    A tensor that occurs several times is one value in all of these leaves: the very same object, or another that is
    the same view of the same memory, by what `places` says, and was held in the same way. With `note`, NumPy's
    structured arrays are dicts of their fields, and are noted by it: structs.py makes them whole again.
    """
    # By identity and by address, which are theirs as long as they are held here.
    known: dict[int, tuple[Any, Value | Deferred | None]] = {}
    shared = None if places is None else _Shared(places)

    def once(x: Any) -> Value | Deferred | None:
        if id(x) not in known:
            value = to_value(x)
            if shared is not None and value is not None:
                value = shared.value(x, value)
            known[id(x)] = x, value
        return known[id(x)][1]

    walk = _Walk(once, note, more, [])
    _flatten(obj, (), walk)
    return walk.out


def _flatten(obj: Any, path: Path, walk: _Walk) -> None:
    check_depth(path)
    out = walk.out
    if type(obj) in _SCALARS:
        out.append(Leaf(_scalar(obj), path, type(obj).__name__))
    elif obj is None:
        out.append(Leaf(_EMPTY, path, "none"))
    elif is_plain_sequence(obj):
        out.append(Leaf(_SCALARS[type(obj[0])](list(obj)), path, f"{type(obj).__name__}[{type(obj[0]).__name__}]"))
    elif walk.note is not None and is_structured(obj):
        walk.note(path, obj)
        _flatten_fields(np.asarray(obj), path, walk)
    elif type(obj) not in (list, tuple) and not is_named_tuple(obj) and (value := walk.to_value(obj)) is not None:
        out.append(Leaf(value, path, "numpy" if isinstance(obj, np.generic) else ""))
    else:
        found = children(obj)
        found = walk.more(obj) if found is None else found
        if found is None:
            raise refusal(obj, path)
        if not found:
            out.append(Leaf(_EMPTY, path, type(obj).__name__ if type(obj) in (list, tuple) else "dict"))
        for step, item in found:
            _flatten(item, (*path, step), walk)


def _flatten_fields(array: Array, path: Path, walk: _Walk) -> None:
    """The fields of a structured array, those of the structs in it as well."""
    for name in array.dtype.names or ():
        below = (*path, ("key", name))
        if array[name].dtype.names:
            _flatten_fields(array[name], below, walk)
        else:
            value = walk.to_value(array[name])
            assert value is not None
            walk.out.append(Leaf(value, below))


def check_depth(path: Path) -> None:
    """Refuse a structure that is too deep, or contains itself."""
    if len(path) > LIMITS.max_depth:
        raise UnsupportedError(f"nested deeper than {LIMITS.max_depth} levels, or containing itself")


def children(obj: Any) -> Children | None:
    """What a container holds, each with its step; None for what is not a container.

    A field of a dataclass whose metadata says pytree_node=False (Flax) or static=True (JAX, Equinox) is not data: a
    function, or what was configured.
    """
    if type(obj) in (list, tuple):
        kind = type(obj).__name__
        return [((kind, index), item) for index, item in enumerate(obj)]
    if is_named_tuple(obj):
        return [(("key", name), item) for name, item in zip(obj._fields, obj, strict=True)]
    if isinstance(obj, Mapping):
        items = list(obj.items())
        if type(obj) is not dict and len({key for key, _ in items}) < len(items):
            what = f"{type(obj).__module__}.{type(obj).__qualname__}"
            raise UnsupportedError(f"{what} has a key twice", hints=[Hint(purpose="convert it")])
        return [(("key", key) if type(key) is str else _key_step(key), item) for key, item in items]
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return [(("key", name), _field(obj, name)) for name in data_fields(obj)]
    return None


def is_scalar(obj: Any) -> bool:
    """Whether an object is a number, a text or bytes of Python's own."""
    return type(obj) in _SCALARS


def is_plain_sequence(obj: Any) -> bool:
    """Whether an object is a list or a tuple of nothing but scalars of one type, which is stored as one tensor."""
    if type(obj) not in (list, tuple) or not obj or not is_scalar(obj[0]):
        return False
    first = type(obj[0])
    return all(type(item) is first for item in obj)


def is_structured(obj: Any) -> bool:
    """Whether an object is a structured array of NumPy's, or an element of one."""
    return type(obj) in (np.ndarray, np.memmap, np.void) and bool(obj.dtype.names)


def is_named_tuple(obj: Any) -> bool:
    """Whether an object is a tuple whose items have names."""
    return isinstance(obj, tuple) and isinstance(getattr(type(obj), "_fields", None), tuple)


def data_fields(obj: Any) -> list[str]:
    """The names of the fields of a dataclass that hold data."""
    fields = dataclasses.fields(obj)
    return [one.name for one in fields if one.metadata.get("pytree_node", True) and not one.metadata.get("static")]


def _field(obj: Any, name: str) -> Any:
    try:
        return getattr(obj, name)
    except AttributeError:
        raise UnsupportedError(f"the field {name!r} of a {type(obj).__qualname__} was never set") from None


def _scalar(obj: Any) -> Value:
    value = _SCALARS[type(obj)]([obj])
    if isinstance(value, Strings):
        return Strings((), value.offsets, value.data, value.encoding)
    assert isinstance(value, Tensor)
    return Tensor(value.dtype, (), value.data)


def _key_step(key: Any) -> Step:
    if type(key) is int and -(1 << 63) <= key < 1 << 63:
        return ("number", key)
    raise UnsupportedError(
        f"a dict key must be a string or a 64-bit integer, got {key!r} ({type(key).__name__})",
        hints=[Hint(purpose="pass {str(key): value for key, value in x.items()}")],
    )


def refusal(obj: Any, path: Path) -> UnsupportedError:
    """The error for what is neither a value nor a container."""
    where, tensor = (f" at {path_name(path)!r}", path_name(path)) if path else ("", None)
    named = f"{type(obj).__module__}.{type(obj).__qualname__}{where}"
    found = advice.about(obj)
    if found is not None:
        what, hints = found
        if hasattr(obj, "__next__") and not hasattr(obj, "read"):
            hints = [*hints, Hint(purpose="write items one by one, with tb.open(path, 'w') as f: f.write(item)")]
        return UnsupportedError(f"{named} is {what}", tensor=tensor, hints=hints)
    return UnsupportedError(
        f"{named} is neither a tensor nor a plain Python value",
        tensor=tensor,
        expected="a tensor of numpy, torch, tensorflow, jax or scipy, a number, text, bytes or None, "
        "or a dict, list, tuple or dataclass of them",
    )


def restore(leaf: Leaf, convert: Callable[[Value | Deferred], Any]) -> Any:
    """What a leaf was: a Python value by its kind, or the tensor that `convert` makes."""
    kind = leaf.kind
    if not kind:
        return _converted(leaf, convert)
    value = leaf.read()
    if kind == "none" or kind in _CONTAINERS:
        if not isinstance(value, Tensor) or value.dtype != _EMPTY.dtype or value.shape != _EMPTY.shape:
            raise _mismatch(leaf, kind)
        return None if kind == "none" else _CONTAINERS[kind]()
    if kind == "numpy":
        if not isinstance(value, Tensor | Strings) or value.shape:
            raise _mismatch(leaf, kind)
        made = convert(value)
        return made[()] if isinstance(made, np.ndarray) else made
    container, _, rest = kind.partition("[")
    if rest.endswith("]") and container in ("list", "tuple"):
        return _CONTAINERS[container](_items(leaf, rest[:-1], 1))
    return _items(leaf, kind, 0)[0]


def _converted(leaf: Leaf, convert: Callable[[Value | Deferred], Any]) -> Any:
    """What a framework makes of a value; if it can't, the error names the tensor."""
    try:
        return convert(leaf.value)
    except TensorbytesError as error:
        if leaf.name is None or error.tensor is not None:
            raise
        raise error.replaced(tensor=leaf.name) from None


def _items(leaf: Leaf, name: str, rank: int) -> list[Any]:
    value, wanted = leaf.read(), _BY_NAME.get(name)
    items: list[Any] | None = None
    if isinstance(value, Strings) and len(value.shape) == rank:
        items = value.items()
        if wanted is int and value.encoding == "utf-8" and all(_INTEGER.fullmatch(item) for item in items):
            items = [int(item) for item in items]
        elif wanted is bytearray and value.encoding == "bytes":
            items = [bytearray(item) for item in items]
    elif isinstance(value, Tensor) and len(value.shape) == rank and value.dtype in _NUMBER_TYPES:
        items = value.numpy().reshape(-1).tolist()
    if wanted is None or items is None or not all(type(item) is wanted for item in items):
        raise _mismatch(leaf, name)
    return items


def _mismatch(leaf: Leaf, name: str) -> CorruptError:
    return CorruptError(f"a value marked as Python {name!r} holds something else", at=leaf.at)


_NUMBER_TYPES = ("bool", "int64", "float64", "complex128")
# As many digits as Python itself converts without protest.
_INTEGER = re.compile("-?[0-9]{1,4300}")


class _Node:
    """A container under construction."""

    __slots__ = ("children", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.children: dict[str | int, Any] = {}

    def finish(self) -> Any:
        """The container, once those inside it are finished."""
        return self.children if self.kind == "dict" else _CONTAINERS[self.kind](self.children.values())


def unflatten(leaves: list[Leaf], convert: Callable[[Value | Deferred], Any]) -> Any:
    """The structure that `flatten` took apart. What several leaves share is converted once.

    A mask of a table stands beside its column, under the column's last key with "/mask0" added, or "/mask1" ...
    """
    if len(leaves) == 1 and not leaves[0].path:
        return restore(leaves[0], convert)
    made: dict[int, Any] = {}  # by the identity of values, all of which are alive here

    def restore_once(leaf: Leaf) -> Any:
        if leaf.kind:
            return restore(leaf, convert)
        shared = id(leaf.value)
        if shared not in made:
            made[shared] = _converted(leaf, convert)
        return made[shared]

    return nest(leaves, restore_once)


def nest(leaves: list[Leaf], make: Callable[[Leaf], Any]) -> Any:
    """The structure whose leaves these are, with what `make` makes of each in its place."""
    if len(leaves) == 1 and not leaves[0].path:
        return make(leaves[0])
    if not leaves:
        raise UsageError("a structure without leaves")
    if all(len(leaf.path) == 1 and leaf.path[0][0] == "key" for leaf in leaves):
        flat = {leaf.path[0][1]: make(leaf) for leaf in leaves}
        if len(flat) == len(leaves):
            return flat
    top = _Node("list")
    places: list[tuple[_Node, str | int]] = []  # of every container, outer ones first
    for leaf in leaves:
        if not leaf.path:
            raise CorruptError("a value without a place stands among the parts of a structure", at=leaf.at)
        path = _mask_path(leaf.path) if leaf.path[-1][0] == "mask" else leaf.path
        _insert(top, path, leaf.at, make(leaf), places)
    for node, key in reversed(places):
        node.children[key] = node.children[key].finish()
    return top.children[0]


def _mask_path(path: Path) -> Path:
    *above, (_, key), (_, level) = path
    return (*above, ("key", f"{key}/mask{level}"))


def _container(step: Step) -> str:
    return step[0] if step[0] in ("list", "tuple") else "dict"


def _insert(top: _Node, path: Path, at: int, made: Any, places: list[tuple[_Node, str | int]]) -> None:
    """Put something where a path leads, making the containers on the way."""
    node, key = top, path[0][1]
    parent: tuple[_Node, str | int] = (top, 0)
    for step in path:
        kind = _container(step)
        above, place = parent
        if place not in above.children:
            above.children[place] = _Node(kind)
            places.append(parent)
        node, key = above.children[place], step[1]
        if not isinstance(node, _Node):
            raise CorruptError(f"{path_name(path)!r} is stored twice", at=at, tensor=path_name(path))
        if node.kind != kind:
            raise CorruptError(f"{path_name(path)!r} takes a {node.kind} for a {kind}", at=at, tensor=path_name(path))
        if kind != "dict" and key not in node.children and key != len(node.children):
            raise CorruptError(
                f"{path_name(path)!r} follows item {len(node.children) - 1}",
                at=at,
                tensor=path_name(path),
            )
        parent = (node, key)
    if key in node.children:
        raise CorruptError(f"{path_name(path)!r} is stored twice", at=at, tensor=path_name(path))
    node.children[key] = made
