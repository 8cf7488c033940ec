"""The overview of a file of tensors: how much there is of each dtype, and the tree of names, alike layers as one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from tensorbytes.ops.grouping import Node, build, fold_alike, leaves
from tensorbytes.ops.inspection import TensorInfo
from tensorbytes.reader import Entry
from tensorbytes.tree import Leaf
from tensorbytes.view import words
from tensorbytes.view.fragments import bar
from tensorbytes.view.scan import Finding

_NAME_LETTERS = 400
TREE_ROOM = 220_000
_MOST_BELOW = 200
_LINE_BYTES = 360
_MOST_OPEN = 40  # lines that are seen without a click
_MOST_LINKS = 24  # to the tensors that one line stands for
_COLOURS = ("#2f6fde", "#d95319", "#2f9e6e", "#a855c7", "#c49a00", "#5b6472", "#d6336c", "#1098ad")
_DIGITS = re.compile(r"\d+")


class Item(NamedTuple):
    """One tensor of the file."""

    number: int
    leaf: Leaf
    entry: Entry

    @property
    def nbytes(self) -> int:
        return self.entry.nbytes


def items_of(leaves_: list[Leaf], path: str) -> list[Item]:
    return [Item(number, leaf, Entry(leaf, lambda value: value, path)) for number, leaf in enumerate(leaves_)]


def tree_of(items: Sequence[Item]) -> Node:
    """The tree of their names; its members are the numbers of items."""
    return build(
        TensorInfo(
            # Names of a million parts would be too deep to walk.
            (item.entry.name or "")[:_NAME_LETTERS],
            item.entry.kind,
            item.entry.dtype,
            item.entry.shape,
            item.nbytes,
            python=item.leaf.kind or "",
        )
        for item in items
    )


def in_order(tree: Node) -> Iterator[int]:
    """The numbers of all tensors, in the order of a tree in which nothing is folded."""
    return (number for _, node in leaves(tree) for number in node.members)


def marks_html(finding: Finding | None) -> str:
    """NaN and Inf, where there are any."""
    told = [] if finding is None else finding.marks
    return f' <span class="tbv-warn">{", ".join(told)}</span>' if told else ""


def overview(tree: Node, items: Sequence[Item], linked: Collection[int], found: Mapping[int, Finding]) -> str:
    """The section. It folds the tree; links go to the tensors that are `linked`."""
    fold_alike(tree)
    drawn = _Drawing(tree.nbytes, items, linked, found).draw(tree, TREE_ROOM)
    return f'{_dtypes(items, tree.nbytes)}<div class="tbv-tree">{drawn}</div>'


def _dtypes(items: Sequence[Item], total: int) -> str:
    found: dict[str, list[int]] = {}
    for item in items:
        row = found.setdefault(item.entry.dtype, [0, 0])
        row[0] += 1
        row[1] += item.nbytes
    ordered = sorted(found.items(), key=lambda pair: -pair[1][1])
    colours = [_COLOURS[min(place, len(_COLOURS) - 1)] for place in range(len(ordered))]
    parts = "".join(
        f'<b style="width:{100 * size / total if total else 0:.2f}%;background:{colour}"></b>'
        for (_, (_, size)), colour in zip(ordered, colours, strict=True)
        if size
    )
    legend = "".join(
        f'<span><i class="tbv-dot" style="background:{colour}"></i>{escape(dtype)} '
        f'<span class="tbv-dim">{words.many(number, "tensor")}, {words.amount(size)}</span></span>'
        for (dtype, (number, size)), colour in zip(ordered, colours, strict=True)
    )
    return f'<div class="tbv-stack">{parts}</div><p class="tbv-legend">{legend}</p>'


def _count(node: Node) -> int:
    return node.tensors + node.values


class _Drawing:
    """The tree of names. What room there is is shared among the branches: deep ones end first."""

    def __init__(
        self, total: int, items: Sequence[Item], linked: Collection[int], found: Mapping[int, Finding]
    ) -> None:
        self._total, self._items, self._linked = total, items, linked
        self._marked = {number: finding for number, finding in found.items() if finding.marks}
        self._open = _MOST_OPEN

    def draw(self, top: Node, room: int) -> str:
        node, label = top, ""
        if len(top.children) == 1 and top.children[0].children and top.children[0].alike == 1:
            (node,) = top.children
            label = node.name
        self._open -= len(node.children)
        above = f'<p class="tbv-dim">{words.name(label, counted=False)}</p>' if label else ""
        return above + self._below(node, 0, room)

    def _below(self, node: Node, depth: int, room: int) -> str:
        most = min(_MOST_BELOW, room // _LINE_BYTES)
        shown = node.children[:most]
        lines: list[str] = []
        left = room - _LINE_BYTES * len(shown)
        for place, child in enumerate(shown):
            line = self._branch(child, depth, left // (len(shown) - place)) if child.children else self._line(child)
            left -= max(len(line) - _LINE_BYTES, 0)
            lines.append(line)
        missing = sum(map(_count, node.children[most:]))
        if missing:
            lines.append(f'<p class="tbv-dim">and {words.many(missing, "tensor")} more</p>')
        return "".join(lines)

    def _branch(self, node: Node, depth: int, room: int) -> str:
        alike = f"{words.count(node.alike)} alike, " if node.alike > 1 else ""
        many = f' <span class="tbv-dim">{alike}{words.many(_count(node), "tensor")}</span>'
        label = words.name(node.name.rstrip("/.") or node.name, 60, counted=False)
        summary = self._row(f"{label}{many}{self._marks(self._below_it(node))}", node.nbytes)
        opened = depth < 2 and len(node.children) <= self._open
        self._open -= len(node.children) if opened else 0
        shown = " open='open'" if opened else ""
        return f"<details{shown}><summary>{summary}</summary>{self._below(node, depth + 1, room)}</details>"

    def _line(self, node: Node) -> str:
        first = self._items[node.members[0]]
        shown = words.name(node.name, 60, counted=False)
        if len(node.members) == 1 and first.number in self._linked:
            shown = f'<a href="#t{first.number}">{shown}</a>'
        told = f"{escape(first.entry.dtype)} {words.shape(first.entry.shape)}"
        told += f", {words.count(node.alike)} alike" if node.alike > 1 else ""
        label = f'{shown} <span class="tbv-dim">{told}</span>{self._marks(node.members)}'
        return f"<p>{self._row(label + self._each(node.members), node.nbytes)}</p>"

    def _each(self, members: list[int]) -> str:
        """Links to each of the tensors that a line stands for, by the numbers that tell them apart."""
        known = [number for number in members if number in self._linked or number in self._marked]
        if len(members) == 1 or not known:
            return ""
        names = [(self._items[number].entry.name or "")[:_NAME_LETTERS] for number in members]
        labels = dict(zip(members, _told_apart(names), strict=True))
        foremost = sorted(known, key=lambda number: number not in self._marked)[:_MOST_LINKS]
        links = []
        for number in sorted(foremost, key=members.index):
            warn = ' class="tbv-warn"' if number in self._marked else ""
            link = f'<a{warn} href="#t{number}">{labels[number]}</a>'
            links.append(link if number in self._linked else f"<span{warn}>{labels[number]}</span>")
        more = [words.ELLIPSIS] if len(known) > len(links) else []
        return f'<span class="tbv-each">{" ".join([*links, *more])}</span>'

    def _below_it(self, node: Node) -> list[int]:
        return [number for _, leaf in leaves(node) for number in leaf.members] if self._marked else []

    def _marks(self, members: list[int]) -> str:
        found = [self._marked[number] for number in members if number in self._marked]
        return marks_html(Finding(sum(one.nan for one in found), sum(one.infinite for one in found)))

    def _row(self, label: str, size: int) -> str:
        said = f'<span class="tbv-label">{label}</span>'
        return f'{said}{bar(size, self._total)}<span class="tbv-n">{words.amount(size)}</span>'


def _told_apart(names: list[str]) -> list[str]:
    """Of names that differ in their numbers, these: 0, 1, 2 or 0.0, 0.1, 1.0."""
    numbers = [_DIGITS.findall(name) for name in names]
    if len({len(found) for found in numbers}) != 1:
        return [str(place) for place in range(len(names))]
    differ = [place for place in range(len(numbers[0])) if len({found[place] for found in numbers}) > 1]
    return [".".join(found[place] for place in differ) for found in numbers]
