"""The tree of a checkpoint's tensors as lines, no more of them than can be taken in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tensorbytes.ops.grouping import Node, build, fold_alike

__all__ = ["Line", "Node", "build", "depth_that_fits", "fold_alike", "lines"]


class Line(NamedTuple):
    """A node as it is drawn."""

    guides: str  # the lines that lead to it
    node: Node
    folded: bool  # what is below it is not shown


def depth_that_fits(root: Node, most: int) -> int:
    """The deepest level down to which the tree has no more than so many lines; at least the first.

    If that is next to nothing, the one below it: what does not fit is cut off.
    """
    counts: list[int] = []
    level = root.children
    while level:
        counts.append(len(level))
        level = [child for node in level for child in node.children]
    depth = 1
    while depth < len(counts) and sum(counts[: depth + 1]) <= most:
        depth += 1
    return depth + 1 if depth < len(counts) and sum(counts[:depth]) * 6 < most else depth


def lines(root: Node, depth: int, blocks: bool = True) -> Iterator[Line]:
    """The tree line by line, down to a level."""
    tee, corner, pipe = ("├ ", "└ ", "│ ") if blocks else ("|-", "`-", "| ")

    def below(node: Node, guides: str, level: int) -> Iterator[Line]:
        for child in node.children:
            last = child is node.children[-1]
            here = guides + (corner if last else tee) if level > 1 else ""
            yield Line(here, child, bool(child.children) and level == depth)
            if level < depth:
                inner = guides + ("  " if last else pipe) if level > 1 else ""
                yield from below(child, inner, level + 1)

    return below(root, "", 1)
