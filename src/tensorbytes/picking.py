"""A part of a document: the tensors that are wanted, where they stood.

What is chosen keeps its place: dicts stay dicts. A list, or a tuple, of which some items are left out would give the
others wrong positions, so it becomes a dict of the positions: part["layers"][3] is what whole["layers"][3] is.
Columns of tables bring along what tells which of their rows there are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tensorbytes.errors import CorruptError
from tensorbytes.rows import columns_below, owners
from tensorbytes.structs import noted, structs_of, without_torn
from tensorbytes.tensor import InvalidValueError
from tensorbytes.tree import Document, Leaf, Path


def pick(document: Document, takes: Callable[[str | None], bool]) -> Document:
    """The document of the leaves whose name is taken, and of their masks. Of others, only the names are asked."""
    taken = [takes(leaf.name) for leaf in document.leaves]
    if all(taken):
        return document
    kept = [leaf for leaf, one in zip(document.leaves, taken, strict=True) if one]
    masks = _masks(document, kept)
    kept = [leaf for leaf, one in zip(document.leaves, taken, strict=True) if one or leaf.name in masks]
    part = without_torn(document._replace(leaves=kept))
    torn = _torn(kept, [leaf.name for leaf in document.leaves])
    if not torn:
        return part
    leaves = [leaf._replace(path=_by_position(leaf.path, torn)) for leaf in kept]
    structs = [struct._replace(path=_by_position(struct.path, torn)) for struct in structs_of(part.origin)]
    return part._replace(leaves=leaves, origin=noted(part.origin, structs))


def _masks(document: Document, kept: list[Leaf]) -> set[str | None]:
    """The names of what tells what of some leaves is missing: by paths in a table, by a note in other documents."""
    if document.rows is not None:
        paths = {leaf.path[:depth] for leaf in kept for depth in range(1, len(leaf.path) + 1)}
        return {leaf.name for leaf in document.leaves if is_mask(leaf) and leaf.path[:-1] in paths}
    told = told_masks(document)
    names = {str(leaf.name) for leaf in kept}
    for _ in range(2 if told else 0):  # masks have lengths, too
        names |= {column for column, owner in told.items() if columns_below(owner, names)}
    return {name for name in told if name in names}


def told_masks(document: Document) -> dict[str, str]:
    """The leaves that are noted to be masks or lengths of others, and of which."""
    try:
        return owners(document.origin)
    except InvalidValueError as error:
        raise CorruptError(error.fault, at=0) from None


def is_mask(leaf: Leaf) -> bool:
    """Whether a leaf of a table tells which elements of a column there are."""
    return bool(leaf.path) and leaf.path[-1][0] == "mask"


def _torn(kept: list[Leaf], names: list[str | None]) -> set[Path]:
    """The lists and tuples that lost items."""
    since: dict[Path, set[str]] = {}  # the positions that are left of each list and tuple
    for leaf in kept:
        for depth, (kind, key) in enumerate(leaf.path):
            if kind in ("list", "tuple"):
                since.setdefault(leaf.path[:depth], set()).add(str(key))
    before = _positions({_start(place) for place in since}, names)
    return {place for place, left in since.items() if left < before[_start(place)]}


def _by_position(path: Path, torn: Collection[Path]) -> Path:
    """A path in which lists that lost items are dicts of positions."""
    return tuple(("number", key) if path[:depth] in torn else (kind, key) for depth, (kind, key) in enumerate(path))


def _start(place: Path) -> str:
    """How the names start of what is in a container."""
    return "".join(f"{key}/" for _, key in place)


def _positions(starts: Collection[str], names: list[str | None]) -> dict[str, set[str]]:
    """The positions of each of some lists, by the names of what is in them."""
    found: dict[str, set[str]] = {start: set() for start in starts}
    longest = max(map(len, starts), default=0)
    for name in names:
        start = ""
        for key in (name or "").split("/"):
            if start in found:
                found[start].add(key)
            start += f"{key}/"
            if len(start) > longest:
                break
    return found
