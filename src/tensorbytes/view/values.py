"""One value as HTML: what it is, its figures, a histogram, a picture, its first elements."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from html import escape

import numpy as np

from tensorbytes import rows
from tensorbytes.errors import UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.ops.statistics import LengthStatistics, Statistics
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.view import pictures, svg, words
from tensorbytes.view.sample import Size, elements, sampled, statistics

_FIRST = 8
_FIRST_STRINGS = 6
_BINS = 40
_SMALLEST_SIDE = 16


@dataclass(frozen=True)
class Detail:
    """How much of a value is shown."""

    size: Size = field(default_factory=Size)
    side: int = 64  # pixels of a heatmap
    image_side: int = 128
    images: int = 4
    pictures: int = 14_000  # bytes of all of them
    texts: int = _FIRST_STRINGS
    letters: int = 160  # of each


NOTEBOOK = Detail()


@dataclass(frozen=True)
class Shown:
    """A value as HTML, without a frame."""

    body: str
    looked: int = 0  # bytes
    sampled: str = ""  # which part was looked at; empty for all of it


def dtype_of(value: Value) -> str:
    held = value.values if isinstance(value, Ragged | Sparse) else value
    if isinstance(held, Strings):
        return "text" if held.encoding == "utf-8" else "bytes"
    return held.dtype


def shape_of(value: Value) -> tuple[int | None, ...]:
    if isinstance(value, Ragged):
        varying = len(value.splits) if value.shapes is None else value.shapes.shape[1]
        return (len(value), *[None] * varying, *(value.values.shape[1:] if value.shapes is None else ()))
    return value.shape


def kind_line(value: Value) -> str:
    """Ragged int64, [100, ?], 4 kB."""
    kind = {Ragged: "ragged ", Sparse: "sparse "}.get(type(value), "")
    layout = f" ({value.layout})" if isinstance(value, Sparse) else ""
    unit = value.origin.get("numpy.dtype", "") if isinstance(value, Tensor) and value.dtype.endswith("64") else ""
    stated = unit[3:] if "[" in unit and len(unit) < 12 else ""
    line = f"{kind}{dtype_of(value)}{stated}{layout}"
    return f"{escape(line)} · {words.shape(shape_of(value))} · {words.amount(value.nbytes)}"


def show(value: Value, detail: Detail = NOTEBOOK) -> Shown:
    """Everything about a value but its name."""
    part = sampled(value, detail.size)
    figures = _judged(part.value, detail.size)
    facts = _sparse_facts(value) if isinstance(value, Sparse) else []
    said = f'<p class="tbv-note">Sampled: {part.words}.</p>' if part.words else ""
    single = isinstance(value, Tensor | Strings) and figures.count == 1  # whose figures are itself
    told = f"{'' if single else facts_html(figures, facts)}{_elements(value, detail)}{said}"
    drawn = f'<div class="tbv-told">{told}</div>{"".join(_figures(value, figures, detail))}'
    return Shown(f'<div class="tbv-body">{drawn}</div>', part.nbytes, part.words)


def _judged(part: Value, size: Size) -> Statistics:
    """The figures of a sample; a single row or string may still be huge."""
    most = 4 * (size.text + 8 * size.numbers)
    if isinstance(part, Sparse) or (isinstance(part, Ragged) and part.values.nbytes > most):
        return _judged(sampled(part.values, size).value, size)
    if isinstance(part, Strings) and part.nbytes > most:
        lengths = np.diff(part.offsets)
        known = LengthStatistics(
            int(lengths.min()), float(lengths.mean()), int(lengths.max()), int((lengths == 0).sum())
        )
        return Statistics("", "strings", "string", len(lengths), lengths=known)
    return statistics(part, _BINS)


# ---- figures --------------------------------------------------------------------


def facts_html(figures: Statistics, more: list[tuple[str, str]] | None = None) -> str:
    """The figures that say something."""
    found = [*(more or []), *_number_facts(figures), *_text_facts(figures)]
    return definition(found) if found else ""


def ends(figures: Statistics) -> tuple[str, str]:
    """The smallest and the largest number, or the first and the last date."""
    return figures.earliest or words.figure(figures.min), figures.latest or words.figure(figures.max)


def definition(pairs: list[tuple[str, str]], kind: str = "tbv-facts") -> str:
    cells = "".join(f"<div><dt>{label}</dt><dd>{text}</dd></div>" for label, text in pairs)
    return f'<dl class="{kind}">{cells}</dl>' if pairs else ""


def _number_facts(figures: Statistics) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if figures.min is not None:
        low, high = ends(figures)
        what = " |x|" if figures.of == "magnitude" else ""
        found = [(f"min{what}", escape(low)), (f"max{what}", escape(high))]
        if figures.dtype != "datetime64":
            found += [("mean", words.figure(figures.mean)), ("std", words.figure(figures.std))]
    elif figures.dtype != "string" and not figures.count:
        found = [("elements", "none")]
    label = "NaT" if figures.dtype.endswith(("time64", "delta64")) else "NaN"
    named = ((label, figures.nan), ("+Inf", figures.positive_inf), ("-Inf", figures.negative_inf))
    found += [(label, f'<span class="tbv-warn">{words.count(n)}</span>') for label, n in named if n]
    if figures.zeros:
        found.append(("zeros", words.share(figures.zeros, figures.count)))
    return found


def _text_facts(figures: Statistics) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if figures.row_lengths is not None:
        found += _length_facts(figures.row_lengths, "row length")
    if figures.lengths is not None:
        found += [("strings", words.count(figures.count)), *_length_facts(figures.lengths, "bytes")]
        if figures.distinct is not None:
            found.append(("distinct", words.count(figures.distinct)))
    return found


def _length_facts(lengths: LengthStatistics, what: str) -> list[tuple[str, str]]:
    if lengths.min is None or lengths.max is None:
        return []
    found = [(what, span(lengths.min, lengths.max)), (f"mean {what.removeprefix('row ')}", words.figure(lengths.mean))]
    return found + ([("empty", words.count(lengths.empty))] if lengths.empty else [])


def span(low: int, high: int) -> str:
    return words.count(low) if low == high else f"{words.count(low)} to {words.count(high)}"


def _sparse_facts(value: Sparse) -> list[tuple[str, str]]:
    cells = math.prod(value.shape)
    stored = math.prod(value.values.shape)
    found = [("stored", words.count(stored))]
    return [*found, ("density", words.share(stored, cells))] if cells else found


# ---- drawings -------------------------------------------------------------------


def histogram_html(figures: Statistics, label: str = "values") -> str:
    """The histogram of the finite numbers, with its ends below."""
    bars = figures.histogram
    if bars is None or len(bars.counts) < 2:
        return ""
    drawn = svg.histogram(bars.edges, bars.counts, f"histogram of {label}")
    caption = "".join(f"<span>{escape(end)}</span>" for end in ends(figures))
    return f'<figure>{drawn}<figcaption class="tbv-ends">{caption}</figcaption></figure>'


def lengths_histogram(lengths: Array, what: str) -> str:
    """How long rows or strings are."""
    if not len(lengths) or lengths.min() == lengths.max():
        return ""
    low, high = int(lengths.min()), int(lengths.max())
    width = -(-(high - low + 1) // _BINS)
    counts = np.bincount((lengths - low) // width)
    edges = [low + width * place for place in range(len(counts) + 1)]
    drawn = svg.histogram(edges, counts.tolist(), f"histogram of {what}")
    ends = f"<span>{words.count(low)}</span><span>{what}</span><span>{words.count(high)}</span>"
    return f'<figure>{drawn}<figcaption class="tbv-ends">{ends}</figcaption></figure>'


def _figures(value: Value, figures: Statistics, detail: Detail) -> list[str]:
    if isinstance(value, Ragged):
        lengths = lengths_histogram(pictures.row_lengths(value), "row length")
        return [lengths, histogram_html(figures)]
    if isinstance(value, Strings):
        return [lengths_histogram(np.diff(value.offsets[:100_001]), "bytes")]
    if isinstance(value, Sparse):
        spy = pictures.spy(value, detail.side)
        return [histogram_html(figures), "" if spy is None else picture_html(spy, "places of the entries")]
    drawn = [histogram_html(figures)]
    found = _images(value, detail)
    if found:
        drawn.append(_strip(found, value))
    elif figures.min != figures.max or figures.nan:  # one number everywhere is not a picture
        heat = pictures.heatmap(value, detail.side)
        drawn += [picture_html(heat, "heatmap")] if heat is not None else []
    return drawn


def _images(value: Tensor, detail: Detail) -> list[pictures.Picture]:
    """The images that a tensor looks like, as many and as large as may be."""
    side, most = detail.image_side, detail.images
    while True:
        found = pictures.images(value, side, most)
        size = sum(len(picture.data) for picture in found) * 4 // 3
        if size <= detail.pictures or side <= _SMALLEST_SIDE:
            return found
        # Fewer first: one that is seen says more than four that are not.
        side, most = (side, max(most // 2, 1)) if most > 2 else (side * 3 // 4, most)


def picture_html(picture: pictures.Picture, label: str) -> str:
    # Small ones larger, so that a pixel is seen; wide ones as wide as a histogram.
    scale = max(1, min(160 // max(picture.width, 1), 160 // max(picture.height, 1), 16))
    shown = picture._replace(width=picture.width * scale, height=picture.height * scale)
    return f"<figure>{shown.html(label)}<figcaption>{picture.words}</figcaption></figure>"


def _strip(found: list[pictures.Picture], value: Tensor) -> str:
    stack = "".join(_enlarged(picture).html("image") for picture in found)
    total = value.shape[0] if len(value.shape) == 4 or (len(value.shape) == 3 and len(found) > 1) else 1
    more = f", the first {len(found)} of {words.count(total)}" if total > len(found) else ""
    return f'<figure><div class="tbv-strip">{stack}</div><figcaption>{found[0].words}{more}</figcaption></figure>'


def _enlarged(picture: pictures.Picture) -> pictures.Picture:
    scale = max(1, 56 // max(picture.width, picture.height))
    return picture._replace(width=picture.width * scale, height=picture.height * scale)


# ---- elements -------------------------------------------------------------------


def numbers(tensor: Tensor, most: int = _FIRST) -> str:
    """The first elements, separated by commas; how they are nested is left out."""
    total = math.prod(tensor.shape)
    item = tensor.nbytes // total if total else 0
    start = Tensor(
        tensor.dtype, (min(total, most),), tensor.data[: min(total, most) * item], None, tensor.meta, tensor.origin
    )
    try:
        first = numpy_adapter.from_value(start)
    except UnsupportedError:
        first = elements(start)
    more = f", {words.ELLIPSIS}" if total > most else ""
    return ", ".join(map(_element, first)) + more


def _element(item: object) -> str:
    if isinstance(item, np.datetime64 | np.timedelta64):
        return str(item)
    if isinstance(item, np.bool_ | np.integer | int):
        return str(item)
    if "complex" in type(item).__name__:  # ml_dtypes has some, too
        return f"{complex(np.asarray(item).astype(np.complex128)):.4g}"
    try:
        return f"{float(item):.4g}"  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(item)


def strings(value: Strings, most: int, letters: int) -> list[str]:
    """The first strings as HTML."""
    bounds = value.offsets[: most + 1].tolist()
    return [string(value.data[a : min(b, a + 4 * letters + 4)], b - a, letters) for a, b in itertools.pairwise(bounds)]


def string(start: memoryview, size: int, letters: int) -> str:
    """One string, of which the start is given, as HTML."""
    text = words.decoded(bytes(start), letters)
    if len(text) <= letters and len(start) == size:
        return words.escaped(text, letters * 6)
    shown = words.escaped(text[:letters], letters * 6)
    return f'{shown}{words.ELLIPSIS} <span class="tbv-dim">({words.amount(size)})</span>'


def _elements(value: Value, detail: Detail) -> str:
    if isinstance(value, Tensor):
        return _code([escape(numbers(value))] if value.nbytes else [])
    if isinstance(value, Strings):
        total = len(value.offsets) - 1
        return _code(_quoted(value, detail), total - detail.texts)
    if isinstance(value, Ragged):
        first = rows.cut(value, 0, min(len(value), detail.texts))
        lines = [row_html(row, detail.letters // 2) for row in rows.rows_of(first)]
        return _code(lines, len(value) - len(lines))
    return ""


def _quoted(value: Strings, detail: Detail) -> list[str]:
    return [f"&quot;{text}&quot;" for text in strings(value, detail.texts, detail.letters)]


def row_html(row: Value, letters: int, most: int = 12) -> str:
    """One row of a ragged value on a line."""
    if isinstance(row, Tensor):
        total = math.prod(row.shape)
        of = f' <span class="tbv-dim">({words.shape(row.shape)[1:-1]})</span>' if total > most else ""
        return f"[{escape(numbers(row, most))}]{of}"
    if isinstance(row, Strings):
        shown = [f"&quot;{text}&quot;" for text in strings(row, 4, letters)]
        more = [words.ELLIPSIS] if len(row.offsets) - 1 > 4 else []
        return f"[{', '.join([*shown, *more])}]"
    if isinstance(row, Ragged):
        inner = [row_html(one, letters, 4) for one in rows.rows_of(rows.cut(row, 0, min(len(row), 3)))]
        return f"[{', '.join(inner + ([words.ELLIPSIS] if len(row) > 3 else []))}]"
    return ""


def _code(lines: list[str], more: int = 0) -> str:
    if not lines:
        return ""
    rest = [f'<span class="tbv-dim">and {words.count(more)} more</span>'] if more > 0 else []
    return f'<code class="tbv-values">{"<br/>".join([*lines, *rest])}</code>'
