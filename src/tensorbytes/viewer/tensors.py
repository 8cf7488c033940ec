"""The report of a file of tensors: an overview by group and dtype, then each tensor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

from tensorbytes.reader import Entry
from tensorbytes.tree import Leaf
from tensorbytes.viewer import values, words
from tensorbytes.viewer.fragments import bar
from tensorbytes.viewer.page import Page
from tensorbytes.viewer.sample import Size, resolved
from tensorbytes.viewer.values import Detail

# Tensors that are shown with figures and pictures; the others are listed.
_MOST_CARDS = 160
_STREAM_CARDS = 16
# The list of all others leaves this much to them.
_CARDS_ROOM = 700_000
_DECODED = 1 << 26
_SIZE = Size(numbers=1 << 18, decoded=_DECODED)
_DETAILS = (
    Detail(_SIZE, side=80, image_side=160, images=6, pictures=120_000, texts=10, letters=240),
    Detail(_SIZE, side=64, image_side=96, images=4, pictures=40_000, texts=6, letters=160),
    Detail(_SIZE, side=40, image_side=64, images=2, texts=4, letters=100),
    Detail(_SIZE, side=20, image_side=32, images=1, texts=2, letters=60),
)
# Leaves that stand for something else than a tensor.
_NOTHING = {"none": "None", "dict": "an empty dict", "list": "an empty list", "tuple": "an empty tuple"}
# Parts of a name, each with the separator that ends it.
_PARTS = re.compile(r"[^/.]*[/.]|[^/.]+")
# What may be a number: "7.", "layer7/".
_NUMBERED = re.compile(r"(\D*)([0-9]{1,9})[/.]?")
_NAME_LETTERS, _DEEPEST = 400, 24
_TREE_ROOM = 220_000
_MOST_BELOW = 200
_LINE_BYTES = 360
_MOST_OPEN = 40
_COLOURS = ("#2f6fde", "#d95319", "#2f9e6e", "#a855c7", "#c49a00", "#5b6472", "#d6336c", "#1098ad")


class Item(NamedTuple):
    """One tensor of the file."""

    number: int
    leaf: Leaf
    entry: Entry

    @property
    def nbytes(self) -> int:
        return self.entry.nbytes


def items_of(leaves: list[Leaf], path: str) -> list[Item]:
    return [Item(number, leaf, Entry(leaf, lambda value: value, path)) for number, leaf in enumerate(leaves)]


def fill(
    page: Page, items: list[Item], progress: Callable[[int, int], None] | None, stream: bool = False
) -> tuple[int, int]:
    """Add the sections; (tensors shown in detail, tensors listed). Of a stream the objects were shown already."""
    largest = sorted(items, key=lambda item: -item.nbytes)[: _STREAM_CARDS if stream else _MOST_CARDS]
    chosen = {item.number for item in largest}
    tree = _tree(items)
    items = list(tree.walk())
    others = [item for item in items if item.number not in chosen]
    page.content = sum(item.nbytes for item in items)
    _overview(page, tree, items, chosen)
    lines = _listed([] if stream else others, max(page.room - _CARDS_ROOM, 0))
    taken = sum(len(line.encode()) for line in lines)
    cards = _cards(page, [item for item in items if item.number in chosen], page.room - taken - 4_000, progress)
    if cards:
        page.add("tensors", "Tensors" if not others else f"The {len(cards)} largest tensors", "".join(cards))
    if others:
        _note_others(page, len(items), len(cards), len(others), len(lines))
    if lines:
        head = "<thead><tr><th>name</th><th>dtype</th><th>shape</th><th>size</th></tr></thead>"
        body = f'<div class="tbv-list"><table>{head}<tbody>{"".join(lines)}</tbody></table></div>'
        page.add("others", "The other tensors", body)
    return len(cards), len(lines)


def _note_others(page: Page, total: int, cards: int, others: int, listed: int) -> None:
    said = f"Of {words.many(total, 'tensor')}, the {words.count(cards)} largest are shown with figures"
    said += f"; {words.count(listed)} others are listed" if listed else ""
    missing = others - listed
    left = f", {words.count(missing)} left out for want of room" if missing and listed else ""
    page.notes.append(f"{said}{left}.")


def _listed(items: list[Item], room: int) -> list[str]:
    """Lines of the list, as many as there is room for."""
    lines: list[str] = []
    for item in items:
        entry = item.entry
        cells = f"<td>{escape(entry.dtype)}</td><td>{words.shape(entry.shape)}</td><td>{_size(item)}</td>"
        line = f"<tr><th>{words.name(entry.name)}</th>{cells}</tr>"
        room -= len(line.encode())
        if room < 0:
            break
        lines.append(line)
    return lines


def _size(item: Item) -> str:
    return words.amount(item.nbytes) if item.nbytes or 0 in item.entry.shape else ""


# ---- cards ----------------------------------------------------------------------


def _cards(page: Page, items: list[Item], room: int, progress: Callable[[int, int], None] | None) -> list[str]:
    made: list[str] = []
    smaller = partial = done = level = 0
    total = sum(min(item.nbytes, _DECODED) for item in items)
    for place, item in enumerate(items):
        allowance = room // (len(items) - place)
        card, shown = "", values.Shown("")
        # What fits one tensor mostly fits the next: from there on, and back when there is plenty of room.
        for level in range(level, len(_DETAILS)):  # noqa: B020
            card, shown = _card(item, _DETAILS[level])
            if len(card.encode()) <= allowance:
                break
        size = len(card.encode())
        smaller = max(smaller, level)
        level = max(level - (2 * size < allowance), 0)
        if size > min(room, 2 * allowance):
            page.notes.append(f"{words.name(item.entry.name)}: left out, its description is too long")
            continue
        room -= size
        page.looked += shown.looked
        partial += bool(shown.sampled)
        made.append(card)
        done += min(item.nbytes, _DECODED)
        if progress is not None:
            progress(done, total)
    if partial:
        page.notes.append(
            f"Figures, histograms and pictures of {words.many(partial, 'tensor')} are of a sample, and say which; "
            "their checksums were not verified."
        )
    if smaller:
        page.notes.append("Pictures and texts are smaller than they could be, for want of room.")
    return made


def _card(item: Item, detail: Detail) -> tuple[str, values.Shown]:
    try:
        if item.leaf.kind in _NOTHING:
            return _article(item, ""), values.Shown("")
        value, note = resolved(item.leaf, detail.size)
        shown = values.show(value, detail)
        body = shown.body
        if note:
            body += f'<p class="tbv-note">Looked at: {note}.</p>'
            shown = values.Shown(shown.body, shown.looked, note)
    except Exception as error:  # what is wrong with one tensor must not hide the others
        shown = values.Shown("", 0, "")
        body = f'<p class="tbv-error">{words.escaped(f"It can not be shown: {error}", 600)}</p>'
    return _article(item, body), shown


def _article(item: Item, body: str) -> str:
    entry, anchor = item.entry, f"t{item.number}"
    title = f'<h3><a class="tbv-self" href="#{anchor}">{words.name(entry.name)}</a></h3>'
    line = f'<span class="tbv-kind">{_kind(item)}</span>'
    meta = _meta(dict(entry.meta))
    return f'<article id="{anchor}"><div class="tbv-head">{title}{line}</div>{body}{meta}</article>'


def _kind(item: Item) -> str:
    entry = item.entry
    if item.leaf.kind in _NOTHING:
        return _NOTHING[item.leaf.kind]
    kind = f"Python {escape(item.leaf.kind)}, " if item.leaf.kind and item.leaf.kind != "numpy" else ""
    kind += "" if entry.kind in ("tensor", "strings") else f"{entry.kind} "
    parts = [escape(f"{kind}{entry.dtype}"), words.shape(entry.shape), _size(item)]
    stored = entry.stored
    if stored is not None:
        told = [stored.compression, "" if stored.quantization is None else stored.quantization.describe()]
        how = "; ".join(filter(None, told))
        parts.append(f"{words.escaped(how, 120)}, {words.amount(stored.nbytes)} stored")
    return " · ".join(filter(None, parts))


def _meta(meta: dict[str, str]) -> str:
    if not meta:
        return ""
    shown = [f"{words.escaped(key, 60)}: {words.escaped(text, 160)}" for key, text in list(meta.items())[:6]]
    return f'<p class="tbv-note">{" · ".join(shown)}{" · " + words.ELLIPSIS if len(meta) > 6 else ""}</p>'


# ---- the overview ---------------------------------------------------------------


def _overview(page: Page, tree: _Node, items: list[Item], chosen: set[int]) -> None:
    if len(items) > 1:
        drawn = _Drawing(tree.size, chosen).draw(tree, _TREE_ROOM)
        page.add("overview", "Overview", f'{_dtypes(items, tree.size)}<div class="tbv-tree">{drawn}</div>')


def _dtypes(items: list[Item], total: int) -> str:
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


@dataclass
class _Node:
    """A part of names, and what goes on from there."""

    label: str  # with the separator that ends it
    size: int = 0
    count: int = 0
    items: list[Item] = field(default_factory=list)
    below: dict[str, _Node] = field(default_factory=dict)

    def insert(self, parts: list[str], item: Item) -> None:
        self.size += item.nbytes
        self.count += 1
        if not parts:
            self.items.append(item)
            return
        if parts[0] not in self.below:
            self.below[parts[0]] = _Node(parts[0])
        self.below[parts[0]].insert(parts[1:], item)

    def chain(self) -> tuple[str, _Node]:
        """The label down to where names part, so that a lone branch takes one line."""
        node, label = self, self.label
        while len(node.below) == 1 and not node.items:
            (node,) = node.below.values()
            label += node.label
        return label, node

    def branches(self) -> list[_Node]:
        """In the order of the file, but numbers as numbers: safetensors has layer 10 before layer 2."""
        found = list(self.below.values())
        matches = [_NUMBERED.fullmatch(node.label) for node in found]
        keys = [(match[1], int(match[2])) for match in matches if match]
        if len(keys) == len(found) and len({prefix for prefix, _ in keys}) == 1:
            return [node for _, node in sorted(zip(keys, found, strict=True), key=lambda pair: pair[0])]
        return found

    def walk(self) -> Iterator[Item]:
        """Every tensor, in the order of the tree."""
        yield from self.items
        for node in self.branches():
            yield from node.walk()


def _tree(items: list[Item]) -> _Node:
    top = _Node("")
    for item in items:
        # Names of a million parts would be too deep to walk.
        name = (item.entry.name or "")[:_NAME_LETTERS]
        parts = _PARTS.findall(name)
        top.insert([*parts[:_DEEPEST], *(["".join(parts[_DEEPEST:])] if len(parts) > _DEEPEST else [])], item)
    return top


class _Drawing:
    """The tree of names. What room there is is shared among the branches: deep ones end first."""

    def __init__(self, total: int, chosen: set[int]) -> None:
        self._total, self._chosen = total, chosen
        self._open = _MOST_OPEN  # lines that are seen without a click

    def draw(self, top: _Node, room: int) -> str:
        label, node = top.chain()
        if not node.below:
            label, node = "", top
        self._open -= len(node.below)
        above = f'<p class="tbv-dim">{words.name(label, counted=False)}</p>' if label else ""
        return above + self._below(node, 0, room)

    def _below(self, node: _Node, depth: int, room: int) -> str:
        most = min(_MOST_BELOW, room // _LINE_BYTES)
        lines = [self._line(item, node.label) for item in node.items[:most]]
        branches = node.branches()[: max(most - len(lines), 0)]
        drawn = len(lines) + sum(child.count for child in branches)
        left = room - sum(map(len, lines)) - _LINE_BYTES * len(branches)
        for place, child in enumerate(branches):
            line = self._branch(child, depth, left // (len(branches) - place))
            left -= max(len(line) - _LINE_BYTES, 0)
            lines.append(line)
        if drawn < node.count:
            lines.append(f'<p class="tbv-dim">and {words.many(node.count - drawn, "tensor")} more</p>')
        return "".join(lines)

    def _branch(self, node: _Node, depth: int, room: int) -> str:
        label, end = node.chain()
        if not end.below and len(end.items) == 1:
            return self._line(end.items[0], label)
        many = f' <span class="tbv-dim">{words.many(end.count, "tensor")}</span>'
        summary = self._row(f"{words.name(label.rstrip('/.') or label, 60, counted=False)}{many}", end.size)
        opened = depth < 2 and len(end.below) + len(end.items) <= self._open
        self._open -= len(end.below) + len(end.items) if opened else 0
        shown = " open='open'" if opened else ""
        return f"<details{shown}><summary>{summary}</summary>{self._below(end, depth + 1, room)}</details>"

    def _line(self, item: Item, label: str) -> str:
        shown = words.name(label, 60, counted=False)
        if item.number in self._chosen:
            shown = f'<a href="#t{item.number}">{shown}</a>'
        told = f' <span class="tbv-dim">{escape(item.entry.dtype)} {words.shape(item.entry.shape)}</span>'
        return f"<p>{self._row(shown + told, item.nbytes)}</p>"

    def _row(self, label: str, size: int) -> str:
        said = f'<span class="tbv-label">{label}</span>'
        return f'{said}{bar(size, self._total)}<span class="tbv-n">{words.amount(size)}</span>'


def facts(items: list[Item], objects: int) -> list[tuple[str, str]]:
    """For the head of the page."""
    found: list[tuple[str, Any]] = [("tensors", words.count(len(items)))]
    if objects > 1:
        found.append(("objects", words.count(objects)))
    return [*found, ("in memory", words.amount(sum(item.nbytes for item in items)))]
