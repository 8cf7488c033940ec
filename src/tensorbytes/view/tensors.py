"""The report of a file of tensors: an overview by group and dtype, then each tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from tensorbytes.view import values, words
from tensorbytes.view.overview import TREE_ROOM, Item, in_order, marks_html, overview, tree_of
from tensorbytes.view.page import Page
from tensorbytes.view.sample import Size, resolved
from tensorbytes.view.scan import Finding, may_hold, search
from tensorbytes.view.values import Detail

# Tensors that are shown with figures and pictures, the largest and some of those with NaN; the others are listed.
_MOST_CARDS = 160
_MARKED_CARDS = 40
_STREAM_CARDS = 16
_MOST_NAMED = 12
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


def fill(
    page: Page, items: list[Item], progress: Callable[[int, int], None] | None, stream: bool = False
) -> tuple[int, int]:
    """Add the sections; (tensors shown in detail, tensors listed). Of a stream the objects were shown already."""
    largest = sorted(items, key=lambda item: -item.nbytes)[: _STREAM_CARDS if stream else _MOST_CARDS]
    chosen = {item.number for item in largest}
    found = search([item.leaf for item in items], chosen, _SIZE)
    odd = [] if stream else [number for number, finding in sorted(found.items()) if finding.marks or finding.trouble]
    marked = [number for number in odd if number not in chosen]
    chosen |= set(marked[:_MARKED_CARDS])
    tree = tree_of(items)
    ordered = [items[number] for number in in_order(tree)]
    others = [item for item in ordered if item.number not in chosen]
    page.content = sum(item.nbytes for item in items)
    lines = _listed([] if stream else others, found, max(page.room - _CARDS_ROOM - TREE_ROOM, 0))
    if len(items) > 1:
        page.add("overview", "Overview", overview(tree, items, chosen | lines.keys(), found))
    taken = sum(len(line.encode()) for line in lines.values())
    drawn = [item for item in ordered if item.number in chosen]
    cards = _cards(page, drawn, found, page.room - taken - 4_000, progress)
    page.looked += sum(item.nbytes for item in others if item.number in found and found[item.number].whole)
    _say_findings(page, ordered, found, cards.keys() | lines.keys())
    if cards:
        heading = f"{len(cards)} of the tensors" if marked else f"The {len(cards)} largest tensors"
        page.add("tensors", heading if others else "Tensors", "".join(cards.values()))
    if others:
        _note_others(page, len(items), len(cards), len(others), len(lines), bool(marked))
    if lines:
        head = "<thead><tr><th>name</th><th>dtype</th><th>shape</th><th>size</th></tr></thead>"
        body = f'<div class="tbv-list"><table>{head}<tbody>{"".join(lines.values())}</tbody></table></div>'
        page.add("others", "The other tensors", body)
    return len(cards), len(lines)


def _note_others(page: Page, total: int, cards: int, others: int, listed: int, marked: bool) -> None:
    which = "the largest and those with NaN, Inf or damage" if marked else "the largest"
    said = f"Of {words.many(total, 'tensor')}, {words.count(cards)} are shown with figures, {which}"
    said += f"; {words.count(listed)} others are listed" if listed else ""
    missing = others - listed
    left = f", {words.count(missing)} left out for want of room" if missing and listed else ""
    page.notes.append(f"{said}{left}.")


def _say_findings(page: Page, items: list[Item], found: Mapping[int, Finding], linked: Iterable[int]) -> None:
    """What the search found, for the head of the page, and where it did not look."""
    anchors = set(linked)
    for mark in ("NaN", "Inf"):
        having = [item for item in items if item.number in found and mark in found[item.number].marks]
        if having:
            names: dict[str, str] = {}
            for item in having:  # objects of a stream have the same names
                shown = words.name(item.entry.name, 60, counted=False)
                link = f'<a href="#t{item.number}">{shown}</a>' if item.number in anchors else shown
                names.setdefault(shown, link)
            more = f" and {words.count(len(names) - _MOST_NAMED)} more" if len(names) > _MOST_NAMED else ""
            told = f"{words.many(len(having), 'tensor')} {'has' if len(having) == 1 else 'have'} {mark}"
            page.alerts.append(f"{told}: {', '.join(list(names.values())[:_MOST_NAMED])}{more}")
    floats = [item for item in items if may_hold(item.leaf)]
    missed = [item for item in floats if item.number not in found or not found[item.number].whole]
    if missed:
        size = words.amount(sum(item.nbytes for item in missed))
        partly = sum(item.number in found and not found[item.number].trouble for item in missed)
        sample = f"; of {words.count(partly)} of them a sample was" if partly else ""
        page.notes.append(
            f"{words.many(len(missed), 'tensor')} ({size}) {'was' if len(missed) == 1 else 'were'} not searched "
            f"for NaN and Inf as a whole{sample}."
        )
    elif floats and not page.alerts:
        page.notes.append("There is no NaN and no Inf in it.")


def _listed(items: list[Item], found: Mapping[int, Finding], room: int) -> dict[int, str]:
    """Lines of the list by the numbers of tensors, as many as there is room for."""
    lines: dict[int, str] = {}
    for item in items:
        entry, finding = item.entry, found.get(item.number)
        told = marks_html(finding)
        if finding is not None and finding.trouble:
            told += f' <span class="tbv-warn">{words.escaped(finding.trouble, 200)}</span>'
        cells = f"<td>{escape(entry.dtype)}</td><td>{words.shape(entry.shape)}</td><td>{_size(item)}</td>"
        line = f'<tr id="t{item.number}"><th>{words.name(entry.name)}{told}</th>{cells}</tr>'
        room -= len(line.encode())
        if room < 0:
            break
        lines[item.number] = line
    return lines


def _size(item: Item) -> str:
    return words.amount(item.nbytes) if item.nbytes or 0 in item.entry.shape else ""


_UNSEARCHED = Finding(whole=False)


# ---- cards ----------------------------------------------------------------------


def _cards(
    page: Page,
    items: list[Item],
    found: Mapping[int, Finding],
    room: int,
    progress: Callable[[int, int], None] | None,
) -> dict[int, str]:
    """The cards by the numbers of tensors."""
    made: dict[int, str] = {}
    smaller = partial = unchecked = done = level = 0
    total = sum(min(item.nbytes, _DECODED) for item in items)
    for place, item in enumerate(items):
        allowance = room // (len(items) - place)
        card, shown, finding = "", values.Shown(""), found.get(item.number, _UNSEARCHED)
        # What fits one tensor mostly fits the next: from there on, and back when there is plenty of room.
        for detail in range(level, len(_DETAILS)):
            level = detail
            card, shown = _card(item, _DETAILS[level], finding)
            if len(card.encode()) <= allowance:
                break
        size = len(card.encode())
        smaller = max(smaller, level)
        level = max(level - (2 * size < allowance), 0)
        if size > min(room, 2 * allowance):
            page.notes.append(f"{words.name(item.entry.name)}: left out, its description is too long")
            continue
        room -= size
        page.looked += item.nbytes if finding.whole else shown.looked
        partial += bool(shown.sampled)
        unchecked += bool(shown.sampled) and item.nbytes > _DECODED
        made[item.number] = card
        done += min(item.nbytes, _DECODED)
        if progress is not None:
            progress(done, total)
    if partial:
        told = f"; the checksums of {words.count(unchecked)} of them were not verified" if unchecked else ""
        page.notes.append(
            f"Figures, histograms and pictures of {words.many(partial, 'tensor')} are of a sample, and say which{told}."
        )
    if smaller:
        page.notes.append("Pictures and texts are smaller than they could be, for want of room.")
    return made


def _card(item: Item, detail: Detail, finding: Finding) -> tuple[str, values.Shown]:
    try:
        if item.leaf.kind in _NOTHING:
            return _article(item, ""), values.Shown("")
        value, note = resolved(item.leaf, detail.size)
        shown = values.show(value, detail)
        body = shown.body
        if note:
            body += f'<p class="tbv-note">Looked at: {note}.</p>'
            shown = values.Shown(shown.body, shown.looked, note)
        if shown.sampled and finding.whole and finding.marks:  # a sample may well lack them
            counts = [f"{words.count(n)} {mark}" for n, mark in ((finding.nan, "NaN"), (finding.infinite, "Inf")) if n]
            body += f'<p class="tbv-warn">{", ".join(counts)} among all elements</p>'
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
    shown = [f"{words.escaped(key, 60)}: {words.escaped(str(text), 160)}" for key, text in list(meta.items())[:6]]
    return f'<p class="tbv-note">{" · ".join(shown)}{" · " + words.ELLIPSIS if len(meta) > 6 else ""}</p>'


def facts(items: list[Item], objects: int) -> list[tuple[str, str]]:
    """For the head of the page."""
    found: list[tuple[str, Any]] = [("tensors", words.count(len(items)))]
    if objects > 1:
        found.append(("objects", words.count(objects)))
    return [*found, ("in memory", words.amount(sum(item.nbytes for item in items)))]
