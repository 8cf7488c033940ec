"""What makes a document a group of rows of a table: columns of one length, and masks that fit them.

A column is a leaf whose path is made of keys. A mask is a leaf whose path ends in ("mask", level): a list of bools, one
for each element that the column before that step has at that level, True where there is a value. Level 0 counts rows,
level 1 the elements of rows, and so on. What stands before that step may also be a dict of columns: then these are the
fields of one struct, and the mask is that of the struct.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tensorbytes.deferred import Deferred
from tensorbytes.tensor import InvalidValueError, Ragged, Value
from tensorbytes.tree import Leaf, Path


def is_mask(leaf: Leaf) -> bool:
    return bool(leaf.path) and leaf.path[-1][0] == "mask"


def check(leaves: list[Leaf], rows: int | None) -> None:
    """Raise InvalidValueError unless these leaves are `rows` rows of a table, or hold no mask if they are not a table.

    Of what is not read yet, only what its header tells is looked at.
    """
    masks = [leaf for leaf in leaves if leaf.path and leaf.path[-1][0] == "mask"]
    if rows is None:
        if masks:
            raise InvalidValueError(f"{masks[0].name!r} is a mask outside a table")
        return
    if len({leaf.path for leaf in leaves}) < len(leaves):
        paths = [leaf.path for leaf in leaves]
        twice = next(leaf for number, leaf in enumerate(leaves) if leaf.path in paths[:number])
        raise InvalidValueError(f"{twice.name!r} is stored twice")
    columns = [leaf for leaf in leaves if not is_mask(leaf)]
    for leaf in columns:
        shape = leaf.header.shape
        if leaf.kind or not leaf.path or any(kind not in ("key", "number") for kind, _ in leaf.path):
            raise InvalidValueError(f"{leaf.name!r} is not a column under a key")
        if not shape or shape[0] != rows:
            raise InvalidValueError(f"the column {leaf.name!r} of shape {list(shape)} in a table of {rows} rows")
    if masks:
        columns_below = _below(columns)
        known: dict[Path, set[int | None]] = {}
        for mask in masks:
            if mask.path not in known:
                known[mask.path] = {_elements(leaf.value, mask.path[-1][1]) for leaf in columns_below(mask.path[:-1])}
            _check_mask(mask, known[mask.path])


def _check_mask(mask: Leaf, counts: set[int | None]) -> None:
    """`counts` are the elements of what it masks, at its level."""
    head = mask.header
    if mask.kind or (head.kind, head.dtype, len(head.shape)) != ("tensor", "bool", 1):
        raise InvalidValueError(f"{mask.name!r} is not a list of bools, as masks are")
    if not counts:
        raise InvalidValueError(f"{mask.name!r} is the mask of nothing")
    for count in counts:
        if count not in (None, head.shape[0]):
            raise InvalidValueError(f"the mask {mask.name!r} has {head.shape[0]} elements, its column has {count}")


def _below(columns: list[Leaf]) -> Callable[[Path], list[Leaf]]:
    """The columns at a path, or below it."""
    found: dict[Path, list[Leaf]] = {}
    for leaf in columns:
        for depth in range(1, len(leaf.path) + 1):
            found.setdefault(leaf.path[:depth], []).append(leaf)
    return lambda path: found.get(path, [])


def _elements(value: Value | Deferred, level: int | str) -> int | None:
    """How many elements a column has at a level; None if that is not known before it is read."""
    assert isinstance(level, int)
    shape = value.header.shape
    if level >= len(shape):
        raise InvalidValueError(f"a mask of level {level} on a column of {len(shape)} dimensions")
    sizes = shape[: level + 1]
    if None not in sizes:
        return math.prod(size for size in sizes if size is not None)
    if not isinstance(value, Ragged):
        return None
    if value.shapes is not None:
        return int(math.fsum(math.prod(row[:level]) for row in value.shapes.tolist()))
    count = int(value.splits[min(level, len(value.splits)) - 1][-1])
    return count * math.prod(value.values.shape[1 : level + 1 - len(value.splits)])
