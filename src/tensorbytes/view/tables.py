"""The report of a table: what each feature is, then the first rows with their pictures and texts."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from tensorbytes import rows
from tensorbytes.errors import TensorbytesError
from tensorbytes.formats._opened import Opened
from tensorbytes.ops.inspection import Inspection, TensorInfo
from tensorbytes.rows import Table
from tensorbytes.tensor import Ragged, Strings, Tensor, Value
from tensorbytes.tree import Document
from tensorbytes.view import cells, png, values, words
from tensorbytes.view.page import Page
from tensorbytes.view.sample import Size, resolved, sampled, statistics

# Rows that features are judged by, unless those are large.
_MOST_ROWS = 1000
_FIRST_ROWS = 16
_SAMPLE_BYTES = 1 << 25
_MOST_FEATURES = 400
# Rows that are shown, and the columns up to which they are shown as a table.
_SHOWN_ROWS = 24
_WIDEST = 8
_MOST_COLUMNS = 40
_PICTURES = 1_300_000
_MOST_KINDS = 64  # strings that are asked whether they are pictures
_SIZE = Size(numbers=1 << 20, text=1 << 24)


class ColumnView(NamedTuple):
    """A column, or as much of it as was read; all but the value as HTML."""

    name: str
    kind: str  # dtype and shape
    presence: str
    lengths: str
    content: str = ""  # what bytes look like
    value: Value | None = None


def fill(
    page: Page, source: Opened, found: Inspection | None, progress: Callable[[int, int], None] | None
) -> tuple[int, int]:
    """Add the sections for a file of rows, of which `found` is known; (features, rows) that are shown."""
    table = _first(page, source)
    if found is not None:
        features = [_of_records(info, found, table.columns.get(info.name or "")) for info in found.tensors]
        total, looked = found.objects, found.sampled
        _details(page, found)
    else:
        features = [_of_table(name, value, table) for name, value in table.columns.items()]
        total, looked = source.count(), table.rows
    page.facts += [("rows", "not counted" if total is None else words.count(total))]
    page.facts += [("features", words.count(len(features)))]
    page.looked += table.nbytes
    if looked is not None and looked != total:
        of = "" if total is None else f" of {words.count(total)}"
        page.notes.append(f"What features hold, and how often, is that of the first {words.count(looked)}{of} rows.")
    if table.columns and table.rows != (looked or total):
        page.notes.append(f"Ranges and histograms are those of the first {words.count(table.rows)} rows.")
    shown = _features(page, features)
    if progress is not None:
        progress(page.looked, page.looked)
    made = list(cells.rows_of(table.columns, table.present, _SHOWN_ROWS))
    return shown, _rows(page, made, list(table.columns), total, "row")


def fill_objects(page: Page, documents: list[Document], total: int) -> int:
    """Add the section for a stream: its objects as rows."""
    made: list[dict[str, Value]] = []
    looked = 0
    for number, document in enumerate(documents):
        try:
            made.append({leaf.name or "": resolved(leaf, _SIZE)[0] for leaf in document.leaves})
        except TensorbytesError as error:
            page.troubles.append(f"object {number}: {error}")
            continue
        looked += sum(value.nbytes for value in made[-1].values())
        if looked > _SAMPLE_BYTES:
            break
    page.looked += looked
    names = list(dict.fromkeys(name for row in made for name in row))
    if len(made) < total:
        page.notes.append(
            f"Features are described by the first {words.count(len(made))} of {words.count(total)} objects."
        )
    _features(page, [_of_objects(name, [row[name] for row in made if name in row], len(made)) for name in names])
    return _rows(page, made[:_SHOWN_ROWS], names, total, "object")


def _of_objects(name: str, found: list[Value], total: int) -> ColumnView:
    """What one name stands for in the objects of a stream."""
    kinds = sorted({values.dtype_of(value) for value in found})
    ranks = {len(values.shape_of(value)) for value in found}
    sizes = [math.prod(n or 0 for n in values.shape_of(value)) for value in found]
    shape: list[int | None] = [None] * ranks.pop() if len(ranks) == 1 else []
    column: Value | None = None
    try:
        stacked = rows.Column()
        for value in found:
            stacked.add_row(value)
        column = stacked.finish()
        shape = list(values.shape_of(column)[1:])
    except TensorbytesError:  # values of several kinds
        pass
    kind = f"{escape(', '.join(kinds))}{' ' + words.shape(shape) if shape else ''}"
    presence = "all" if len(found) == total else words.share(len(found), total)
    return ColumnView(name, kind, presence, values.span(min(sizes), max(sizes)), "", column)


def fill_payloads(page: Page, payloads: Iterator[bytes], found: Inspection) -> int:
    """Add the section for records of neither Examples nor tensors: their bytes."""
    page.facts.append(("records", "not counted" if found.objects is None else words.count(found.objects)))
    _details(page, found)
    made: list[dict[str, Value]] = []
    try:
        for payload in itertools.islice(payloads, _SHOWN_ROWS):
            made.append({"bytes": Strings.from_items([payload], (), "bytes")})
            page.looked += len(payload)
    except TensorbytesError as error:
        page.troubles.append(str(error))
    return _rows(page, made, ["bytes"], found.objects, "record")


def _details(page: Page, found: Inspection) -> None:
    page.troubles += [text for key, text in found.details.items() if key == "damage"]
    page.add_metadata({key: text for key, text in found.details.items() if key != "damage"})


def _first(page: Page, source: Opened) -> Table:
    """The first rows: few of large ones, many of small ones."""
    begin = Table({}, 0)
    try:
        begin = next(source.tables(_FIRST_ROWS), begin)
        size = begin.nbytes // max(begin.rows, 1)
        most = min(max(_SAMPLE_BYTES // max(size, 1), _FIRST_ROWS), _MOST_ROWS)
        return begin if begin.rows < _FIRST_ROWS or most <= _FIRST_ROWS else next(source.tables(most), begin)
    except TensorbytesError as error:
        page.troubles.append(f"{'Some rows' if begin.rows else 'Rows'} can not be read: {error}")
        return begin


def _of_records(info: TensorInfo, found: Inspection, value: Value | None) -> ColumnView:
    looked = found.objects if found.sampled is None else found.sampled
    presence = "all" if info.present == looked else words.share(info.present or 0, looked or 0)
    shape = f" {words.shape(info.shape)}" if info.shape else ""
    steps = "" if info.steps is None else f"{values.span(*info.steps)} steps of "
    lengths = "" if info.lengths is None else steps + values.span(*info.lengths)
    kind = f"{escape(info.dtype)}{shape}{' list' if info.kind == 'feature list' else ''}"
    # What the type says already is not said again.
    content = "" if info.content == info.dtype else re.sub(r"^(tensorproto) \S.*", r"\1", info.content)
    return ColumnView(info.name or "", kind, presence, lengths, words.escaped(content, 80), value)


def _of_table(name: str, value: Value, table: Table) -> ColumnView:
    shape = values.shape_of(value)[1:]
    kind = f"{escape(values.dtype_of(value))}{' ' + words.shape(shape) if shape else ''}"
    present = table.present.get(name)
    here = table.rows if present is None else int(np.count_nonzero(present))
    if isinstance(value, Ragged):
        sizes = np.diff(value.splits[0])
        lengths = values.span(int(sizes.min()), int(sizes.max())) if len(sizes) else ""
    else:
        lengths = words.count(math.prod(value.shape[1:]))
    content = ", ".join(_pictured(value)) if isinstance(value, Strings) else ""
    return ColumnView(
        name, kind, "all" if here == table.rows else words.share(here, table.rows), lengths, content, value
    )


# ---- features -------------------------------------------------------------------


def _features(page: Page, features: list[ColumnView]) -> int:
    made = map(_feature, features[:_MOST_FEATURES])
    lines = page.fitting(made, min(page.room, 500_000), len(features), "feature")
    labels = ("feature", "type", "in rows", "values", "range", "")
    head = "".join(f"<th>{label}</th>" for label in labels)
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    if lines:
        page.add("features", "Features", f'<div class="tbv-rows tbv-features">{body}</div>')
    return len(lines)


def _feature(feature: ColumnView) -> str:
    span = drawing = ""
    if feature.value is not None:
        try:
            span, drawing = _range(feature.value)
        except Exception as error:  # one odd feature must not hide the others
            span = f'<span class="tbv-warn">{words.escaped(str(error))}</span>'
    content = f'<span class="tbv-dim">{feature.content}</span>' if feature.content else ""
    kind = f"{feature.kind}<br/>{content}" if content else feature.kind
    labelled = (
        ("type", kind),
        ("in rows", feature.presence),
        ("values", feature.lengths),
        ("range", span),
        ("histogram", drawing),
    )
    made = "".join(f'<td data-label="{label}">{text}</td>' if text else "<td></td>" for label, text in labelled)
    return f"<tr><th>{words.name(feature.name)}</th>{made}</tr>"


def _range(value: Value) -> tuple[str, str]:
    """The range of the values, and a histogram."""
    part = sampled(value if isinstance(value, Tensor | Strings) else value.values, _SIZE).value
    if isinstance(part, Strings):
        return _text_range(part)
    figures = statistics(part, 30)
    nan = f'<span class="tbv-warn">{words.count(figures.nan)} NaN</span>' if figures.nan else ""
    if figures.min is None:
        return nan, ""
    low, high = values.ends(figures)
    told = low if low == high else f"{low} to {high}"
    mean = f'<br/><span class="tbv-dim">mean {words.figure(figures.mean)}</span>' if not figures.earliest else ""
    return f"{escape(told)} {nan}{mean}", values.histogram_html(figures)


def _text_range(part: Strings) -> tuple[str, str]:
    sizes = np.diff(part.offsets)
    if not len(sizes):
        return "", ""
    low, high = int(sizes.min()), int(sizes.max())
    told = words.amount(low) if low == high else f"{words.amount(low)} to {words.amount(high)}"
    if len(sizes) > 1 and not _pictured(part):
        figures = statistics(part)
        if figures.distinct is not None and figures.distinct < len(sizes):
            told += f'<br/><span class="tbv-dim">{words.count(figures.distinct)} distinct</span>'
    return told, values.lengths_histogram(sizes, "bytes")


def _pictured(part: Strings) -> list[str]:
    """The kinds of pictures that strings are."""
    sizes = np.diff(part.offsets[: _MOST_KINDS + 1]).tolist()
    starts = zip(part.offsets.tolist(), sizes, strict=False)
    found = {png.picture_kind(bytes(part.data[at : at + min(size, 32)]), size) for at, size in starts}
    return sorted(kind.removeprefix("image/").upper() for kind in found if kind)


# ---- rows -----------------------------------------------------------------------


def _rows(page: Page, made: Sequence[Mapping[str, Value]], names: list[str], total: int | None, what: str) -> int:
    if not made:
        return 0
    shown_names = names[:_MOST_COLUMNS]
    if len(names) > len(shown_names):
        left = words.many(len(names) - len(shown_names), "feature")
        page.notes.append(f"Of each {what}, the first {len(shown_names)} features are shown; {left} left out.")
    allowance = min(_PICTURES, page.room - 300_000)
    maker = cells.CellMaker(max(allowance, 0), letters=240 if len(shown_names) <= _WIDEST else 120)
    room = page.room - 20_000
    lines: list[str] = []
    for number, row in enumerate(made):
        line = _row(number, {name: maker.cell(row.get(name)) for name in shown_names})
        room -= len(line.encode())
        if room < 0:
            break
        lines.append(line)
    head = "".join(f"<th>{words.name(name, 40)}</th>" for name in shown_names)
    kind = "tbv-rows" if len(shown_names) <= _WIDEST else "tbv-rows tbv-stacked"
    body = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    of = "" if total is None else f" of {words.count(total)}"
    if maker.left_out:
        page.notes.append(f"{words.many(maker.left_out, 'picture')} left out of the rows for want of room.")
    if total is None or len(lines) < total:
        page.notes.append(f"The first {len(lines)}{of} {what}s are shown.")
    page.add("rows", f"The first {what}s", f'<div class="{kind} tbv-wide">{body}</div>')
    return len(lines)


def _row(number: int, cells_: Mapping[str, str]) -> str:
    shown = "".join(f'<td data-label="{words.escaped(name, 60)}">{cell}</td>' for name, cell in cells_.items())
    return f'<tr><th class="tbv-dim">{number}</th>{shown}</tr>'
