"""The tensors of a checkpoint as a tree of their names, folded so that it can be taken in.

encoder.layers.0.weight is in the group encoder.layers.0, and groups that hold nothing but one other are one with it.
Numbered neighbours with the same tensors in them, as the layers of a model are, become one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from tensorbytes.tools.inspection import TensorInfo

_SEPARATOR = re.compile(r"([./])")
_NUMBERED = re.compile(r"(\D*)(\d{1,9})(\D*)")
_FEWEST_ALIKE = 3
# Names are whatever a file says: deeper ones are not taken apart further.
_MOST_LEVELS = 32


class Node:
    """A group of tensors, a tensor, or both where one is called as a group is."""

    __slots__ = ("alike", "children", "name", "nbytes", "stored", "tensor", "tensors")

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensor: TensorInfo | None = None
        self.children: list[Node] = []
        self.tensors = self.nbytes = self.stored = 0  # below it and its likes: how many, and bytes in memory and stored
        self.alike = 1  # so many neighbours that this one stands for

    def signature(self) -> Any:
        own = self.tensor and (self.tensor.kind, self.tensor.dtype, self.tensor.shape)
        return own, [(child.name, child.signature()) for child in self.children]


class Line(NamedTuple):
    """A node as it is drawn."""

    guides: str  # the lines that lead to it
    node: Node
    folded: bool  # what is below it is not shown


def build(tensors: Iterable[TensorInfo]) -> Node:
    """The tree of all names."""
    root = Node("")
    places: dict[tuple[str, ...], Node] = {(): root}
    for tensor in tensors:
        *above, last = _SEPARATOR.split(tensor.name or "", _MOST_LEVELS)
        node = root
        path: tuple[str, ...] = ()
        for step, separator in zip(above[::2], above[1::2], strict=True):
            path = (*path, step + separator)
            if path not in places:
                places[path] = Node(step + separator)
                node.children.append(places[path])
            node = places[path]
        leaf = Node(last)
        leaf.tensor = tensor
        node.children.append(leaf)
    _settle(root)
    return root


def _settle(node: Node) -> None:
    """Join groups of one, put numbers in their order, add up."""
    for child in node.children:
        _settle(child)
    for at, child in enumerate(node.children):
        if len(child.children) == 1 and child.tensor is None:
            (only,) = child.children
            only.name = child.name + only.name
            node.children[at] = only
    numbers = [_NUMBERED.fullmatch(child.name.rstrip("./")) for child in node.children]
    around = {found and (found[1], found[3]) for found in numbers}
    if len(around) == 1 and None not in around:
        node.children.sort(key=lambda child: int(_NUMBERED.fullmatch(child.name.rstrip("./"))[2]))  # type: ignore[index]
    own = node.tensor
    node.tensors = (own is not None) + sum(child.tensors for child in node.children)
    node.nbytes = ((own.nbytes or 0) if own else 0) + sum(child.nbytes for child in node.children)
    node.stored = ((own.stored_nbytes or 0) if own else 0) + sum(child.stored for child in node.children)


def fold_alike(node: Node) -> None:
    """Make one line of numbered neighbours that hold the same tensors."""
    kept: list[Node] = []
    at = 0
    while at < len(node.children):
        run = _run(node.children, at)
        first = node.children[at]
        if run >= _FEWEST_ALIKE:
            last = node.children[at + run - 1]
            first.name = f"{first.name.rstrip('./')}..{last.name.rstrip('./')}"
            first.alike = run
            for other in node.children[at + 1 : at + run]:
                _absorb(first, other)
        else:
            run = 1
        kept.append(first)
        at += run
    node.children = kept
    for at, child in enumerate(node.children):
        fold_alike(child)
        if len(child.children) == 1 and child.tensor is None and child.children[0].alike > 1 and child.alike == 1:
            (only,) = child.children
            only.name = child.name + only.name
            node.children[at] = only


def _absorb(node: Node, other: Node) -> None:
    """Let a node stand for another one, which has the same below it."""
    node.tensors, node.nbytes, node.stored = (
        node.tensors + other.tensors,
        node.nbytes + other.nbytes,
        node.stored + other.stored,
    )
    if node.tensor is not None and other.tensor is not None and node.tensor.stored != other.tensor.stored:
        # What differs comes after a comma: the error of a quantization.
        ways = {tensor.stored.partition(",")[0] for tensor in (node.tensor, other.tensor)}
        node.tensor = replace(node.tensor, stored=ways.pop() if len(ways) == 1 else "varies")
    for child, twin in zip(node.children, other.children, strict=True):
        _absorb(child, twin)


def _run(children: list[Node], at: int) -> int:
    """How many neighbours from here on are numbered one after another and alike."""
    first = _NUMBERED.fullmatch(children[at].name.rstrip("./"))
    if first is None:
        return 1
    signature, count = children[at].signature(), 1
    for child in children[at + 1 :]:
        found = _NUMBERED.fullmatch(child.name.rstrip("./"))
        follows = found and (found[1], int(found[2]), found[3]) == (first[1], int(first[2]) + count, first[3])
        if not follows or child.signature() != signature:
            break
        count += 1
    return count


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
