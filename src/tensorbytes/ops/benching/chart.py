"""The picture: for each choice a bar for its size, and beside it two dots for the speeds of writing and reading.

It is made of four kinds of shapes, which are written as SVG here, and drawn by matplotlib for PNG,
so that both look alike.
"""

from __future__ import annotations

import importlib
import math
import os
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from tensorbytes.errors import MissingDependencyError

if TYPE_CHECKING:
    from tensorbytes.ops.benching.result import Bench, BenchRow

_INK, _FAINT, _GRID, _BAND = "#222222", "#666666", "#dddddd", "#eef5ec"
_BAR, _BEST, _LOSSY = "#a9bfd6", "#1b7837", "#cccccc"
_WRITE, _READ = "#c2570c", "#2166ac"
_FONT = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"

# Where things stand, in pixels.
_WIDTH, _MARGIN, _ROW = 1000, 24, 23
_BARS = (226, 520)  # from 0 to the largest size
_SHARES = 582  # where the numbers beside them end
_MOST = 1.25  # longer bars are cut off there: small data in a large format
_DOTS = (620, 970)  # from the slowest to the fastest
_TITLE, _LINE = 19, 17
_LETTERS = 140  # of small text in a line

_FOOTNOTE = "Speeds are of raw bytes, files in the page cache: the fastest of some rounds, in which all took turns."


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float
    fill: str


@dataclass(frozen=True)
class Line:
    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    radius: float
    colour: str
    hollow: bool = False


@dataclass(frozen=True)
class Text:
    x: float
    y: float  # of its middle
    words: str
    size: float = 12
    colour: str = _INK
    anchor: str = "start"  # start, middle or end
    bold: bool = False


Shape: TypeAlias = Rectangle | Line | Dot | Text


@dataclass
class Drawing:
    height: float
    title: str
    shapes: list[Shape] = field(default_factory=list)
    width: float = _WIDTH


# ---- what is drawn --------------------------------------------------------------


def draw(bench: Bench) -> Drawing:
    """The choices that hold the data, best first."""
    rows = [row for row in bench.ranked() if row.held]
    advised = bench.recommend()
    title = f"{bench.goal}: {advised.row.label if advised.row else 'nothing to recommend'}"
    told = [*textwrap.wrap(advised.reason.partition(": ")[2], _LETTERS), *textwrap.wrap(bench.headline, _LETTERS)]
    top = 34 + _LINE * len(told) + 44
    bottom = top + _ROW * len(rows)
    made = Drawing(bottom + 62, title)
    add = made.shapes.append
    add(Rectangle(0, 0, made.width, made.height, "#ffffff"))
    add(Text(_MARGIN, 26, title, _TITLE, bold=True))
    for number, line in enumerate(told):
        add(Text(_MARGIN, 50 + _LINE * number, line, 12, _FAINT))
    if rows:
        _draw_rows(made, rows, advised.row, top, bottom)
    add(Text(_MARGIN, bottom + 48, _FOOTNOTE, 11, _FAINT))
    return made


def _draw_rows(made: Drawing, rows: list[BenchRow], best: BenchRow | None, top: float, bottom: float) -> None:
    add = made.shapes.append
    sizes = _Scale(0, min(_MOST, max(1.0, *((row.ratio or 0) for row in rows))), *_BARS)
    speeds = _speed_scale(rows)
    for number, row in enumerate(rows):
        if row is best:
            add(Rectangle(_MARGIN - 8, top + _ROW * number, made.width - 2 * _MARGIN + 16, _ROW, _BAND))
    _draw_axes(made, sizes, speeds, top, bottom)
    for number, row in enumerate(rows):
        y = top + _ROW * (number + 0.5)
        colour = _BEST if row is best else _BAR if row.lossless else _LOSSY
        words = row.label.replace(" with ", " ") + ("" if row.lossless else " (not exact)")
        ink = _INK if row.lossless else _FAINT
        add(Text(_BARS[0] - 10, y, words, 12, ink, "end", row is best))
        end = sizes(min(_MOST, row.ratio or 0))
        add(Rectangle(_BARS[0], y - 7, max(1.0, end - _BARS[0]), 14, colour))
        add(Text(_SHARES, y, f"{row.ratio:.1%}", 11, ink, "end"))
        write, read = speeds(row.write_speed or 0), speeds(row.read_speed or 0)
        add(Line(write, y, read, y, "#bbbbbb", 1.5))
        add(Dot(write, y, 4.5, _WRITE, hollow=True))
        add(Dot(read, y, 4.5, _READ))


def _draw_axes(made: Drawing, sizes: _Scale, speeds: _Scale, top: float, bottom: float) -> None:
    add = made.shapes.append
    add(Text(_BARS[0], top - 18, "size, of the raw bytes", 12, bold=True))
    add(Text(_DOTS[0], top - 18, "GB/s", 12, bold=True))
    add(Dot(_DOTS[0] + 72, top - 18, 4.5, _WRITE, hollow=True))
    add(Text(_DOTS[0] + 82, top - 18, "write"))
    add(Dot(_DOTS[0] + 142, top - 18, 4.5, _READ))
    add(Text(_DOTS[0] + 152, top - 18, "read"))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        add(Line(sizes(share), top, sizes(share), bottom, "#999999" if share in (0, 1) else _GRID))
        add(Text(sizes(share), bottom + 14, f"{share:.0%}", 11, _FAINT, "middle"))
    for tick in _ticks(speeds):
        add(Line(speeds(tick), top, speeds(tick), bottom, _GRID))
        add(Text(speeds(tick), bottom + 14, f"{tick:g}", 11, _FAINT, "middle"))


@dataclass(frozen=True)
class _Scale:
    """Numbers as places from left to right."""

    low: float
    high: float
    left: float
    right: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, low))
        return self.left + (self.right - self.left) * (value - low) / (high - low)


def _speed_scale(rows: list[BenchRow]) -> _Scale:
    found = [speed for row in rows for speed in (row.write_speed, row.read_speed) if speed]
    low, high = min(found) / 1.3, max(found) * 1.3
    if high < 4 * low:  # speeds that are alike shall look alike
        low, high = low / 2, high * 2
    return _Scale(low, high, *_DOTS, logarithmic=True)


def _ticks(scale: _Scale) -> list[float]:
    """Round numbers: powers of ten, and those between them where there is room."""
    first, last = math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    # From its text, so that 0.1 is 0.1.
    every = [float(f"{step}e{power}") for power in range(first, last + 1) for step in steps]
    return [tick for tick in every if scale.low <= tick <= scale.high]


# ---- as SVG ---------------------------------------------------------------------


def svg(drawing: Drawing) -> str:
    size = f'width="{drawing.width:g}" height="{drawing.height:g}" viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family={quoteattr(_FONT)} role="img">'
    return "\n".join([head, f"<title>{escape(drawing.title)}</title>", *map(_element, drawing.shapes), "</svg>\n"])


def _element(shape: Shape) -> str:
    match shape:
        case Rectangle():
            place = f'x="{shape.x:g}" y="{shape.y:g}" width="{shape.width:.1f}" height="{shape.height:g}"'
            return f'<rect {place} fill="{shape.fill}"/>'
        case Line():
            place = f'x1="{shape.x1:.1f}" y1="{shape.y1:g}" x2="{shape.x2:.1f}" y2="{shape.y2:g}"'
            return f'<line {place} stroke="{shape.colour}" stroke-width="{shape.width:g}"/>'
        case Dot():
            fill = "#ffffff" if shape.hollow else shape.colour
            place = f'cx="{shape.x:.1f}" cy="{shape.y:g}" r="{shape.radius:g}"'
            return f'<circle {place} fill="{fill}" stroke="{shape.colour}" stroke-width="1.8"/>'
        case Text():
            # The base line is about a third of the size below the middle.
            place = f'x="{shape.x:.1f}" y="{shape.y + 0.35 * shape.size:.1f}" font-size="{shape.size:g}"'
            weight = ' font-weight="bold"' if shape.bold else ""
            style = f'fill="{shape.colour}" text-anchor="{shape.anchor}"{weight}'
            return f"<text {place} {style}>{escape(shape.words)}</text>"


# ---- as PNG ---------------------------------------------------------------------

_DOTS_PER_INCH = 100  # a pixel of the drawing is a hundredth of an inch
_SHARPER = 1.6
_ALIGN = {"start": "left", "middle": "center", "end": "right"}


def png(drawing: Drawing, path: str | os.PathLike[str]) -> None:
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ModuleNotFoundError as error:
        raise MissingDependencyError("a chart as .png (one as .svg does not)", "chart") from error
    # A figure of its own, not pyplot's: nobody's settings are changed.
    figure = figures.Figure(figsize=(drawing.width / _DOTS_PER_INCH, drawing.height / _DOTS_PER_INCH))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    for order, shape in enumerate(drawing.shapes):
        _paint(axes, shape, order)
    figure.savefig(path, format="png", dpi=_DOTS_PER_INCH * _SHARPER, metadata={"Software": None})


def _paint(axes: Any, shape: Shape, order: int) -> None:
    patches: Any = importlib.import_module("matplotlib.patches")
    points = 72 / _DOTS_PER_INCH
    match shape:
        case Rectangle():
            place = ((shape.x, shape.y), shape.width, shape.height)
            axes.add_patch(patches.Rectangle(*place, facecolor=shape.fill, linewidth=0, zorder=order))
        case Line():
            axes.plot(
                (shape.x1, shape.x2), (shape.y1, shape.y2), color=shape.colour, linewidth=shape.width * points,
                zorder=order,
            )  # fmt: skip
        case Dot():
            fill = "#ffffff" if shape.hollow else shape.colour
            axes.add_patch(
                patches.Circle(
                    (shape.x, shape.y), shape.radius, facecolor=fill, edgecolor=shape.colour, linewidth=1.8 * points,
                    zorder=order,
                )
            )  # fmt: skip
        case Text():
            axes.text(
                shape.x, shape.y, shape.words, fontsize=shape.size * points, color=shape.colour,
                ha=_ALIGN[shape.anchor], va="center_baseline", fontweight="bold" if shape.bold else "normal",
                zorder=order, parse_math=False,
            )  # fmt: skip
