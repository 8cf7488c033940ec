"""The tensors of a checkpoint grouped by their names, so that they can be taken in.

encoder.layers.0.weight is in the group encoder.layers.0, and groups that hold nothing but one other are one with it.
Numbered neighbours with the same tensors in them, as the layers of a model are, can be made one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tensorbytes.ops.inspection import TensorInfo

_SEPARATOR = re.compile(r"([./])")
_NUMBERED = re.compile(r"(\D*)(\d{1,9})(\D*)")
_FEWEST_ALIKE = 3
# Names are whatever a file says: deeper ones are not taken apart further.
_MOST_LEVELS = 32


class Node:
    """A group of tensors, a tensor, or both where one is called as a group is."""

    __slots__ = (
        *("alike", "children", "ending", "members", "name"),
        *("nbytes", "stored", "tensor", "tensors", "values"),
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.tensor: TensorInfo | None = None
        self.children: list[Node] = []
        # Below it and its likes: how many tensors and plain values there are, and their bytes in memory and stored.
        self.tensors = self.values = self.nbytes = self.stored = 0
        self.alike = 1  # so many neighbours that this one stands for
        self.ending = ""  # the separator after the name, where the name of several lacks it
        self.members: list[int] = []  # of a tensor: its place among those given, and the places of its likes

    def signature(self) -> Any:
        own = self.tensor and (self.tensor.kind, self.tensor.dtype, self.tensor.shape, self.tensor.python)
        return own, [(child.name, child.signature()) for child in self.children]


def build(tensors: Iterable[TensorInfo]) -> Node:
    """The tree of all names."""
    root = Node("")
    places: dict[tuple[str, ...], Node] = {(): root}
    for place, tensor in enumerate(tensors):
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
        leaf.tensor, leaf.members = tensor, [place]
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
    _sort_numbers(node.children)
    own = node.tensor
    plain = own is not None and bool(own.python)
    node.tensors = (own is not None and not plain) + sum(child.tensors for child in node.children)
    node.values = plain + sum(child.values for child in node.children)
    node.nbytes = ((own.nbytes or 0) if own else 0) + sum(child.nbytes for child in node.children)
    node.stored = ((own.stored_nbytes or 0) if own else 0) + sum(child.stored for child in node.children)


def _sort_numbers(nodes: list[Node]) -> None:
    """Put those that differ by a number alone into its order: safetensors has layer 10 before layer 2."""
    alike: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for place, node in enumerate(nodes):
        found = _NUMBERED.fullmatch(node.name.rstrip("./"))
        if found:
            alike.setdefault((found[1], found[3]), []).append((int(found[2]), place))
    before = list(nodes)
    for numbered in alike.values():
        places = [place for _, place in numbered]
        for place, (_, old) in zip(places, sorted(numbered), strict=True):
            nodes[place] = before[old]


def leaves(node: Node, above: str = "") -> Iterator[tuple[str, Node]]:
    """Every tensor of a tree with its whole name, in the order of the tree."""
    for child in node.children:
        name = f"{above}{child.name}"
        if child.tensor is not None:
            yield name, child
        yield from leaves(child, name + child.ending)


def fold_alike(node: Node) -> None:
    """Make one line of numbered neighbours that hold the same tensors."""
    kept: list[Node] = []
    at = 0
    while at < len(node.children):
        run = _run(node.children, at)
        first = node.children[at]
        if run >= _FEWEST_ALIKE:
            last = node.children[at + run - 1]
            stripped = last.name.rstrip("./")
            first.name, first.ending = f"{first.name.rstrip('./')}..{stripped}", last.name[len(stripped) :]
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
    node.tensors += other.tensors
    node.values += other.values
    node.nbytes += other.nbytes
    node.stored += other.stored
    if node.tensor is not None and other.tensor is not None and node.tensor.value != other.tensor.value:
        node.tensor = replace(node.tensor, value=None)
    if node.tensor is not None and other.tensor is not None and node.tensor.stored != other.tensor.stored:
        # What differs comes after a comma: the error of a quantization.
        ways = {tensor.stored.partition(",")[0] for tensor in (node.tensor, other.tensor)}
        node.tensor = replace(node.tensor, stored=ways.pop() if len(ways) == 1 else "varies")
    if node.tensor is not None and other.tensor is not None and other.tensor.nulls is not None:
        exact = other.tensor.nulls_exact and (node.tensor.nulls_exact or node.tensor.nulls is None)
        node.tensor = replace(node.tensor, nulls=(node.tensor.nulls or 0) + other.tensor.nulls, nulls_exact=exact)
    node.members += other.members
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
