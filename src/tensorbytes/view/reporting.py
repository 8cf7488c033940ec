"""report: a file of any format as one page of HTML, complete in itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from tensorbytes import opening
from tensorbytes.errors import LIMITS, Limits, TensorbytesError, UsageError
from tensorbytes.formats._opened import Opened
from tensorbytes.formats.tfrecord.kinds import EVENTS, OTHERS
from tensorbytes.io import storage
from tensorbytes.ops.inspection import inspect
from tensorbytes.tree import Document, Leaf
from tensorbytes.view import events, overview, tables, tensors, words
from tensorbytes.view.page import Page

# Called with the bytes looked at so far, and those that are to be looked at.
Progress: TypeAlias = Callable[[int, int], None]

# Tensors of a stream that are looked for; a stream may hold millions.
_MOST_LEAVES = 20_000
_MOST_OBJECTS = 256  # of a stream that are looked at as rows


@dataclass(frozen=True)
class ReportSummary:
    """The result of `report`: what the page shows of the file."""

    format: str
    source: str = ""
    target: str = ""
    size: int = 0  # bytes of the page
    looked: int = 0  # bytes of the file's content that were looked at
    shown: int = 0  # tensors, features or tags that are shown with figures
    listed: int = 0  # tensors that are only named
    rows: int = 0  # rows, or objects of a stream, that are shown
    notes: list[str] = field(default_factory=list)  # what was sampled, what was left out
    troubles: list[str] = field(default_factory=list)  # damage

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        parts = [f"{words.visible(self.target)}: {words.amount(self.size)}"]
        parts += [f"{words.count(self.shown)} shown"] if self.shown else []
        parts += [f"{words.count(self.listed)} listed"] if self.listed else []
        parts += [words.many(self.rows, "row")] if self.rows else []
        return ", ".join([*parts, f"{words.amount(self.looked)} looked at"])


def report(
    path: Any,
    target: Any,
    *,
    format: str | None = None,
    limits: Limits = LIMITS,
    read_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> ReportSummary:
    """Write what a file holds as one page of HTML: figures, histograms, pictures, the first rows.

    `path` is what `inspect` takes: a file of tensors or of records, a list of files of records, a URL, a file
    object; TensorBoard's event files and their folders too. The page runs no script, loads nothing and has at
    most 2 MB: of large files a sample is looked at, and the page says which. `target` is replaced when the page is
    whole. `read_options` are those of the format; `progress` is called with the bytes looked at so far, and in all.
    """
    storage.check_target(target, "write")
    place = storage.describe(path[0] if isinstance(path, list | tuple) and path else path)
    if storage.is_local(target) and any(_same_file(one, target) for one in _several(path)):
        raise UsageError("the report would take the place of the file that it is about", path=str(place))
    page = Page(os.path.basename(place.rstrip("/")) or place, place)
    made = _filled(page, path, format, limits, read_options or {}, progress)
    page.facts[:0] = [("format", words.escaped(made.format)), *_size(path)]
    written = page.html()
    storage.write(target, [written])
    return replace(
        made,
        source=place,
        target=storage.describe(target),
        size=len(written),
        looked=page.looked,
        notes=[words.plain(note) for note in [*page.alerts, *page.notes]],
        troubles=page.troubles,
    )


def _filled(
    page: Page, path: Any, format: str | None, limits: Limits, options: Mapping[str, Any], progress: Progress | None
) -> ReportSummary:
    """What the page shows, once it shows it."""
    source = opening.open_file(path, format, limits=limits, options=options)
    known = None
    if source.holds_records:
        if source.kind == EVENTS:
            return ReportSummary(EVENTS, shown=events.fill(page, path, limits, progress))
        known = inspect(path, format, limits=limits, read_options=options)
        if source.kind == OTHERS:
            shown_rows = tables.fill_payloads(page, source.payloads(), known)
            return ReportSummary(known.format, rows=shown_rows)
    if source.rows:
        shown, shown_rows = tables.fill(page, source, known, progress)
        return ReportSummary(source.format, shown=shown, rows=shown_rows)
    return _fill_documents(page, source, progress)


def _same_file(one: Any, other: Any) -> bool:
    return storage.is_local(one) and os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _several(path: Any) -> Iterable[Any]:
    return path if isinstance(path, list | tuple) else [path]


def _size(path: Any) -> list[tuple[str, str]]:
    total = 0
    for one in _several(path):
        if not storage.is_local(one) or not os.path.exists(one):
            return []
        if os.path.isdir(one):
            files = (os.path.join(at, name) for at, _, names in os.walk(one) for name in names)
            total += sum(os.path.getsize(file) for file in files)
        else:
            total += os.path.getsize(one)
    return [("size on disk", words.amount(total))]


def _fill_documents(page: Page, source: Opened, progress: Progress | None) -> ReportSummary:
    leaves: list[Leaf] = []
    first: list[Document] = []
    meta: dict[str, str] = {}
    objects, whole = 0, True
    try:
        for document in source.documents():
            if not objects:
                meta = dict(document.meta)
            objects += 1
            if len(first) < _MOST_OBJECTS:
                first.append(document)
            if len(leaves) < _MOST_LEAVES:
                leaves += document.leaves
            else:
                whole = False
    except TensorbytesError as error:
        if not objects:
            raise
        page.troubles.append(f"Reading stopped after {words.many(objects, 'object')}: {error}")
    items = overview.items_of(leaves, source.path)
    page.facts += tensors.facts(items, objects)
    if not whole:
        page.notes.append(f"The first {words.many(len(leaves), 'tensor')} were looked for; the file has more.")
    page.add_metadata(meta)
    if objects == 1:
        shown, listed = tensors.fill(page, items, progress)
        return ReportSummary(source.format, shown=shown, listed=listed)
    rows = tables.fill_objects(page, first, objects)
    shown, listed = tensors.fill(page, items, progress, stream=True)
    return ReportSummary(source.format, shown=shown, listed=listed, rows=rows)
