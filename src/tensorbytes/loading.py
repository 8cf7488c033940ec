"""From an open file to objects: the tensors that are wanted, as the types, the framework and the containers wanted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorbytes import frameworks
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import CorruptError, Hint, Limits, MissingNameError, UsageError
from tensorbytes.formats import Format, frame
from tensorbytes.formats._opened import Opened
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.patterns import Patterns, check_patterns, missing_name
from tensorbytes.picking import is_mask, told_masks
from tensorbytes.structs import gathered
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf, check_unread, read_all, to_plain, unflatten

if TYPE_CHECKING:
    from tensorbytes.casting import Casting

# dtype=LIKE: floats as the template has them.
LIKE = "like"


@dataclass(frozen=True)
class Wanted:
    """What of a file is wanted, and as what."""

    to: str = "numpy"
    device: str | None = None
    names: Collection[str] | str | None = None
    dtype: Any = None
    like: Any = None
    strict: bool = True

    def check(self) -> None:
        """Refuse what makes no sense, before a file is opened."""
        if self.like is None and (self.casts_like or not self.strict):
            given = "strict=False" if not self.strict else "dtype='like'"
            raise UsageError(f"{given} goes with a template", hints=[Hint("like", purpose="to give one", of="load")])
        if self.like is not None and self.to != "numpy":
            raise UsageError(f"like= tells the framework of each tensor, so to={self.to!r} has no say: leave it out")

    def convert(self, value: Value | Deferred) -> Any:
        """A tensor of the framework that is wanted."""
        return frameworks.from_value(value, self.to, self.device)

    @property
    def told(self) -> Any:
        """What formats are told that have an option dtype."""
        return None if self.casts_like else self.dtype

    @property
    def casts_like(self) -> bool:
        return isinstance(self.dtype, str) and self.dtype == LIKE


def casting_of(dtype: Any, chosen: Format) -> Casting | None:
    """What casts floats to the types asked for; None where nothing is cast.

    A format that does not describe itself is told by dtype= what its elements are. One that may hold arrays of an
    unknown type has it for these as well, so there it may name any type.
    """
    if dtype is None or not chosen.self_describing:
        return None
    from tensorbytes.casting import FLOATS, Casting, dtype_name

    given = dtype if isinstance(dtype, Mapping) else {"*": dtype}
    check_patterns(given, "dtype")
    if "dtype" in chosen.read_options:
        given = {pattern: one for pattern, one in given.items() if one is None or dtype_name(one) in FLOATS}
    return Casting(given, "dtype", required=isinstance(dtype, Mapping) and "dtype" not in chosen.read_options)


def result(opened: Opened, wanted: Wanted, *, lazy: bool = False, own: bool = False) -> Any:
    """The object of a file, or the list of a stream's. `own`: none of it may be a view of the file."""
    with naming(opened.path):
        budget = Budget(opened.limits, opened.size)
        casting = casting_of(wanted.told, opened.chosen)
        patterns = None if wanted.names is None else Patterns(wanted.names)
        if patterns is None:
            found, flat = keep(opened.decode(lazy), budget), False
        else:
            found, flat = _find(opened, patterns, budget)
            found = [_verified(document, own) for document in found]
        if not found:
            raise CorruptError("it holds no tensors", at=0)
        if casting is not None:
            found = [casting.apply(document, budget) for document in found]
            casting.check_used(opened.path)
        if wanted.like is None and flat and patterns is not None:
            return _by_name(found, patterns.asked, wanted)
        objects: list[Any] = []
        for document in found:
            objects.append(_object(document, wanted, opened))
    # One object comes back as itself; a stream is a list, also when it has one item.
    return objects[0] if len(objects) == 1 and not found[0].item else objects


def _object(document: Document, wanted: Wanted, opened: Opened) -> Any:
    if wanted.like is not None:
        from tensorbytes import templates

        return templates.fill(
            wanted.like,
            to_plain(document._replace(leaves=_checked(document))).leaves,
            strict=wanted.strict,
            cast=wanted.casts_like,
            device=wanted.device,
            path=opened.path or None,
        )
    return build(document, wanted.convert, opened.limits)


# ---- a part of a file ------------------------------------------------------------


def _find(opened: Opened, patterns: Patterns, budget: Budget) -> tuple[list[Document], bool]:
    """What is wanted of each object; True if every name that was asked for is that of one tensor."""
    found = keep(opened.part(patterns.takes), budget)
    if patterns.unused:
        known = [leaf.name for document in opened.decode(lazy=True) for leaf in document.leaves]
        asked = next(one for one in patterns.asked if one in patterns.unused)
        raise missing_name(asked, [name for name in known if name is not None], opened.path)
    count = dict.fromkeys(patterns.asked, 0)
    for document in found:
        for leaf in document.leaves:
            if leaf.name in count:
                count[leaf.name] += 1
    exact = all(count.values())
    if not exact or (max(count.values(), default=0) > 1 and _is_stream(found)):
        return found, False
    for name, number in count.items():
        if number > 1:
            raise MissingNameError(f"{number} tensors are named {name!r}", path=opened.path, tensor=name)
    return found, True


def _is_stream(found: list[Document]) -> bool:
    return len(found) > 1 or any(document.item for document in found)


def _verified(document: Document, own: bool) -> Document:
    """The document, once every byte of it that can be was checked; with `own`, in memory of its own."""
    document = check_unread(document)
    if not own:
        return document
    copies: dict[int, Any] = {}
    for leaf in document.leaves:
        if id(leaf.value) not in copies:
            copies[id(leaf.value)] = _copy_mapped(leaf.value)
    return document._replace(leaves=[leaf._replace(value=copies[id(leaf.value)]) for leaf in document.leaves])


def _by_name(found: list[Document], asked: list[str], wanted: Wanted) -> Any:
    """Tensors by the names that were asked for; after them, what tells which rows of a table's columns there are."""
    named: dict[str, Leaf] = {}
    masks: dict[str, Leaf] = {}
    for document in found:
        told = told_masks(document)
        for leaf in _checked(document):
            if leaf.name in asked:
                named[leaf.name] = leaf
            elif is_mask(leaf) or leaf.name in told:
                masks[str(leaf.name)] = leaf
    chosen = {name: named[name] for name in asked} | masks
    flat = [leaf._replace(path=(("key", name),)) for name, leaf in chosen.items()]
    return unflatten(flat, wanted.convert) if flat else {}


# ---- objects -------------------------------------------------------------------


def build(document: Document, convert: Callable[[Value | Deferred], Any], limits: Limits) -> Any:
    """The object of a document. Of a table, the masks of columns that were not read yet are checked now."""
    leaves = gathered(document._replace(leaves=_checked(document)), most=limits.max_bytes).leaves
    return unflatten(leaves, convert) if leaves else {}  # of this object of a stream, nothing is wanted


def _checked(document: Document) -> list[Leaf]:
    """The leaves of a document, the masks of a table checked."""
    if document.rows is None or not document.leaves:
        return document.leaves
    leaves = read_all(document.leaves)
    frame.check_table(leaves, document.rows, leaves[0].at)
    return leaves


def keep(documents: Iterable[Document], budget: Budget) -> list[Document]:
    """All documents of a file at once: a stream may have very many, of very little."""
    found: list[Document] = []
    for document in documents:
        if found:  # the parser has counted what one takes
            budget.tensors(len(document.leaves))
        found.append(document)
    return found


def _copy_mapped(value: Value | Deferred) -> Value | Deferred:
    """The same value; what it has of a mapped file is copied."""
    own: dict[str, Any] = {}
    if isinstance(value, Deferred):
        reverse = value.reversed_axes()
        if reverse is None:
            return _copy_mapped(value.load())
        copy = dataclasses.replace(reverse, data=storage.copy_mapped(reverse.data))
        return dataclasses.replace(value, reverse=lambda: copy)
    if isinstance(value, Tensor | Strings):
        own["data"] = storage.copy_mapped(value.data)
    else:
        own["values"] = _copy_mapped(value.values)
    if isinstance(value, Strings):
        own["offsets"] = storage.copy_mapped(value.offsets)
    if isinstance(value, Ragged):
        own["splits"] = tuple(map(storage.copy_mapped, value.splits))
        own["shapes"] = None if value.shapes is None else storage.copy_mapped(value.shapes)
    if isinstance(value, Sparse):
        own["parts"] = tuple(map(storage.copy_mapped, value.parts))
    return dataclasses.replace(value, **own)
