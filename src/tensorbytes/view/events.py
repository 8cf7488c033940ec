"""The report of TensorBoard's event files: scalars as curves by tag, the last image, text and histogram of each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from tensorbytes import frameworks
from tensorbytes.errors import Limits, TensorbytesError
from tensorbytes.records.events import Event, read_events
from tensorbytes.view import cells, svg, values, words
from tensorbytes.view.page import Page

_MOST_EVENTS = 500_000
_MOST_OTHERS = 60


@dataclass
class _Series:
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def fill(page: Page, path: Any, limits: Limits, progress: Callable[[int, int], None] | None) -> int:
    """Add the sections; the number of tags that are shown."""
    curves: dict[tuple[str, str], _Series] = {}
    others: dict[tuple[str, str, str], tuple[int, Event]] = {}
    files: set[str] = set()
    total = 0
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            for event in read_events(path, on_corrupt="skip", live=True, limits=limits):
                total += 1
                files.add(event.path)
                run = os.path.dirname(event.path)
                if event.kind == "scalar":
                    series = curves.setdefault((run, event.tag), _Series())
                    series.steps.append(event.step)
                    series.values.append(float(event.value))
                elif event.tag or event.kind not in ("file_version", "empty", "source"):
                    known = others.get((run, event.kind, event.tag))
                    others[run, event.kind, event.tag] = (1 if known is None else known[0] + 1, event)
                if total >= _MOST_EVENTS:
                    page.notes.append(f"The first {words.count(total)} events were read; there may be more.")
                    break
        except TensorbytesError as error:
            page.troubles.append(str(error))
    page.troubles += [str(note.message) for note in noted]
    runs = {run for run, *_ in [*curves, *others]}
    page.facts += [("events", words.count(total)), ("scalars", words.count(len(curves)))]
    page.facts += [("runs", words.count(len(runs)))] if len(runs) > 1 else []
    page.looked += sum(os.path.getsize(file) for file in files if os.path.isfile(file))
    base = os.path.commonpath([run for run in runs if run]) if any(runs) and all(runs) else ""
    shown = _curves(page, curves, base if len(runs) > 1 else None)
    shown += _others(page, others, base if len(runs) > 1 else None)
    if progress is not None:
        progress(page.looked, page.looked)
    return shown


def _run(run: str, base: str | None) -> str:
    return "" if base is None else f'<span class="tbv-dim">{words.name(os.path.relpath(run, base))}</span> '


def _curves(page: Page, curves: dict[tuple[str, str], _Series], base: str | None) -> int:
    ordered = sorted(curves.items(), key=lambda pair: (pair[0][1], pair[0][0]))
    figures = (_curve(f"{_run(run, base)}{words.name(tag)}", series) for (run, tag), series in ordered)
    made = page.fitting(figures, page.room - 300_000, len(curves), "curve")
    if made:
        page.add("scalars", "Scalars", f'<div class="tbv-curves">{"".join(made)}</div>')
    return len(made)


def _curve(title: str, series: _Series) -> str:
    steps, ys = np.array(series.steps, np.float64), np.array(series.values, np.float64)
    finite = ys[np.isfinite(ys)]
    low, high = (words.figure(float(finite.min())), words.figure(float(finite.max()))) if len(finite) else ("", "")
    odd = len(ys) - len(finite)
    warn = f' <span class="tbv-warn">{words.count(odd)} not finite</span>' if odd else ""
    last = f"last {words.figure(float(ys[-1]))}" if len(ys) else ""
    ends = f"<span>step {words.count(series.steps[0])}</span><span>{words.count(series.steps[-1])}</span>"
    return (
        f"<figure><h3>{title}</h3><figcaption class='tbv-ends'><span>{low} to {high}{warn}</span><span>{last}</span>"
        f"</figcaption>{svg.curve(steps, ys, 'curve of the values by step')}"
        f"<figcaption class='tbv-ends'>{ends}</figcaption></figure>"
    )


def _others(page: Page, others: dict[tuple[str, str, str], tuple[int, Event]], base: str | None) -> int:
    maker = cells.CellMaker(max(page.room - 100_000, 0), largest=200_000)
    cards = (_card(key, *found, base, maker) for key, found in sorted(others.items())[:_MOST_OTHERS])
    made = page.fitting(cards, page.room - 40_000, len(others), "other tag")
    if made:
        page.add("others", "Other summaries", "".join(made))
    return len(made)


def _card(key: tuple[str, str, str], number: int, event: Event, base: str | None, maker: cells.CellMaker) -> str:
    run, kind, tag = key
    title = f"{_run(run, base)}{words.name(tag) if tag else escape(kind.replace('_', ' '))}"
    line = f"{escape(kind.replace('_', ' '))} · {words.many(number, 'event')} · last at step {words.count(event.step)}"
    try:
        body = _content(event, maker)
    except Exception as error:
        body = f'<p class="tbv-error">{words.escaped(str(error), 400)}</p>'
    return f'<article><div class="tbv-head"><h3>{title}</h3><span class="tbv-kind">{line}</span></div>{body}</article>'


def _content(event: Event, maker: cells.CellMaker) -> str:
    value = event.value
    match event.kind:
        case "image":
            return f'<div class="tbv-strip">{"".join(map(maker.picture, value.encoded[:6]))}</div>'
        case "text":
            texts = np.atleast_1d(np.asarray(value, object)).reshape(-1)[:6].tolist()
            lines = [words.passage(str(text), 1200) for text in texts]
            return f'<code class="tbv-values">{"<br/>".join(lines)}</code>'
        case "histogram":
            return _histogram(value)
        case "tensor":
            return values.show(frameworks.to_value(value)).body
    size = len(value) if isinstance(value, bytes) else None
    return "" if size is None else f'<p class="tbv-note">{words.amount(size)}</p>'


def _histogram(value: Any) -> str:
    counts, right = np.asarray(value.counts, np.float64), np.asarray(value.right, np.float64)
    if not len(counts):
        return '<p class="tbv-note">no values</p>'
    # Buckets of any width, laid out one beside the other.
    whole = np.rint(counts / max(counts.max(), 1) * 10_000).astype(int).tolist()
    low = float(value.left[0]) if value.left is not None else value.min
    said = (words.figure(low), words.many(len(counts), "bucket"), words.figure(float(right[-1])))
    ends = "".join(f"<span>{text}</span>" for text in said)
    drawn = svg.histogram([0.0], whole, "histogram of the last step")
    return f'<figure>{drawn}<figcaption class="tbv-ends">{ends}</figcaption></figure>'
