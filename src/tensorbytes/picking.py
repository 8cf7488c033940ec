"""A part of a document: the tensors that are wanted, where they stood.

What is chosen keeps its place: dicts stay dicts. A list, or a tuple, of which some items are left out would give the
others wrong positions, so it becomes a dict of the positions: part["layers"][3] is what whole["layers"][3] is.
Columns of tables bring along what tells which of their rows there are.
"""

from __future__ import annotations

from collections.abc import Callable

from tensorbytes.rows import columns_below, owners
from tensorbytes.tree import Document, Leaf, Path, Step


def pick(document: Document, takes: Callable[[str | None], bool]) -> Document:
    """The document of the leaves whose name is taken, and of the masks of these."""
    taken = {id(leaf) for leaf in document.leaves if takes(leaf.name)}
    taken |= _masks(document, [leaf for leaf in document.leaves if id(leaf) in taken])
    kept = [leaf for leaf in document.leaves if id(leaf) in taken]
    return document._replace(leaves=keep_positions(kept, document.leaves))


def _masks(document: Document, kept: list[Leaf]) -> set[int]:
    """The leaves that tell what of these is missing: by their paths in a table, by its note in any other document."""
    paths = {leaf.path[:depth] for leaf in kept for depth in range(1, len(leaf.path) + 1)}
    found = {id(leaf) for leaf in document.leaves if is_mask(leaf) and leaf.path[:-1] in paths}
    told = owners(document.origin)
    names = {str(leaf.name) for leaf in kept}
    for _ in range(2 if told else 0):  # masks have lengths, too
        names |= {column for column, owner in told.items() if columns_below(owner, names)}
    return found | {id(leaf) for leaf in document.leaves if leaf.name in told and leaf.name in names}


def is_mask(leaf: Leaf) -> bool:
    """Whether a leaf of a table tells which elements of a column there are."""
    return bool(leaf.path) and leaf.path[-1][0] == "mask"


def keep_positions(kept: list[Leaf], every: list[Leaf]) -> list[Leaf]:
    """The leaves with paths in which lists that lost items are dicts of positions."""
    before, since = _items(every), _items(kept)
    if all(before[place] == since[place] for place in since):
        return kept

    def step(path: Path, depth: int) -> Step:
        kind, key = path[depth]
        torn = kind in ("list", "tuple") and before[path[:depth]] != since[path[:depth]]
        return ("number", key) if torn else (kind, key)

    return [leaf._replace(path=tuple(step(leaf.path, depth) for depth in range(len(leaf.path)))) for leaf in kept]


def _items(leaves: list[Leaf]) -> dict[Path, set[str | int]]:
    """The positions that there are of each list and tuple."""
    found: dict[Path, set[str | int]] = {}
    for leaf in leaves:
        for depth, (kind, key) in enumerate(leaf.path):
            if kind in ("list", "tuple"):
                found.setdefault(leaf.path[:depth], set()).add(key)
    return found
