"""Where results go: tables for people and, if that is asked for, one JSON object a line for programs.

| stdout is              | what is written                          |
| ---------------------- | ---------------------------------------- |
| a terminal             | tables, by rich                          |
| a pipe or a file       | the same in plain columns, never cut     |
| anything, with --json  | JSON lines                               |

Names and values come from files: whatever could steer a terminal is escaped here, and nowhere else has to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from tensorbytes.cli.progress import Progress, Silent
from tensorbytes.ops.plain import spell_non_finite

_GAP = "  "
_NARROWEST = 8
# What bars, histograms and trees are drawn with.
BLOCKS = "▏▎▍▌▋▊▉█▁▂▃▄▅▆▇├└│─"


class Cell(NamedTuple):
    """Some text with a rich style, such as "bold" or "red"."""

    text: str
    style: str = ""


class Heading(NamedTuple):
    """A column of a printed table. One that may fold is narrowed when the terminal is, down to `least` characters.

    If that is not enough, columns are left out, those with the largest `drop` first; 0 is never left out.
    """

    title: str
    right: bool = False
    style: str = ""
    fold: bool = False
    drop: int = 0
    least: int = 12


class Output:
    """What a command writes to."""

    def __init__(self, *, json: bool = False, quiet: bool = False, color: bool = True, verb: str = "") -> None:
        self.terminal = sys.stdout.isatty()
        self.json, self.quiet, self.verb = json, quiet, verb
        self.broken = False  # whether nobody reads any more, or the disk is full
        self.color = color and self.terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._console: Any = None

    # ---- results ----------------------------------------------------------------

    def item(self, plain: Mapping[str, Any]) -> None:
        """One JSON object on a line of its own."""
        self._print(json_text(plain))

    def line(self, *parts: str | Cell) -> None:
        """A line of text."""
        if self.color:
            with self._writing():
                self._rich().print(self._text(parts), soft_wrap=True)
        else:
            self._print("".join(escaped(_cell(part).text) for part in parts))

    def table(self, columns: Sequence[Heading], rows: Iterable[Sequence[str | Cell]], *, header: bool = True) -> None:
        """Rows below one another, the columns aligned."""
        cells = [[_cell(part) for part in row] for row in rows]
        if self.terminal:
            kept = _fitting(columns, cells, header, self.width)
            columns = [columns[at] for at in kept]
            with self._writing():
                self._rich().print(self._table(columns, [[row[at] for at in kept] for row in cells], header))
            return
        lines = [[escaped(cell.text) for cell in row] for row in cells]
        if header:
            lines.insert(0, [column.title for column in columns])
        widths = [max((width(line[at]) for line in lines), default=0) for at in range(len(columns))]
        for line in lines:
            self._print(_GAP.join(map(_padded, line, widths, columns)).rstrip())

    def raw(self, data: bytes | memoryview) -> None:
        """Bytes as they are, for what reads the pipe."""
        with self._writing():
            sys.stdout.flush()
            sys.stdout.buffer.write(data)

    def _print(self, text: str) -> None:
        with self._writing():
            print(text)

    def _writing(self) -> _Writing:
        return _Writing(self)

    @property
    def drawable(self) -> bool:
        """Whether the terminal's encoding has blocks and lines to draw with."""
        try:
            BLOCKS.encode(sys.stdout.encoding or "ascii")
        except UnicodeEncodeError:
            return False
        return True

    @property
    def width(self) -> int:
        """Characters on a line of the terminal; in a pipe as many as one likes."""
        return terminal_width() if self.terminal else 1_000_000

    # ---- words about the work ---------------------------------------------------

    def note(self, text: str) -> None:
        """A remark on stderr, which -q silences."""
        if not self.quiet:
            print(escaped(text), file=sys.stderr)

    def complain(self, text: str) -> None:
        """An error, on stderr in any case."""
        with self._writing():
            sys.stdout.flush()
        shown = "\n".join(map(escaped, text.split("\n")))  # losses have a line each
        print(f"tb{' ' if self.verb else ''}{self.verb}: {shown}", file=sys.stderr)

    def failed(self, shown: str, error: Exception) -> None:
        """An error of one file among several: on stderr, or one of the JSON lines, which programs read."""
        from tensorbytes.cli import error_text

        text = error_text(error)
        if self.json:
            self.item({"path": shown, "error": {"kind": type(error).__name__, "message": text}})
        else:
            self.complain(text if shown in text else f"{shown}: {text}")

    def progress(self, label: str, unit: str = "bytes") -> Progress | Silent:
        """How far long work is, for `with`; called with what is done and, if known, with the whole.

        Shown on a terminal alone, and only once the work takes longer than a moment.
        """
        return Silent() if self.quiet or not sys.stderr.isatty() else Progress(escaped(label), unit)

    # ---- rich, loaded when a terminal is there ----------------------------------

    def _rich(self) -> Any:
        if self._console is None:
            from rich.console import Console

            self._console = Console(
                color_system="auto" if self.color else None,
                highlight=False,
                markup=False,
                emoji=False,
                width=self.width,
                file=sys.stdout,
            )
        return self._console

    def _text(self, parts: Iterable[str | Cell]) -> Any:
        from rich.text import Text

        text = Text()
        for part in map(_cell, parts):
            text.append(escaped(part.text), part.style or None)
        return text

    def _folded(self, cell: Cell, size: int, column: Heading) -> Any:
        from rich.text import Text

        return Text("\n".join(folded(escaped(cell.text), size)) if column.fold else escaped(cell.text), cell.style)

    def _table(self, columns: Sequence[Heading], cells: Sequence[Sequence[Cell]], header: bool) -> Any:
        from rich.table import Table

        sizes = _allotted(columns, cells, header, self.width)
        table = Table(box=None, show_header=header, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
        for at, column in enumerate(columns):
            table.add_column(
                column.title,
                style=column.style,
                justify="right" if column.right else "left",
                no_wrap=not column.fold,
                overflow="fold" if column.fold else "ellipsis",
                width=sizes[at] if column.fold else None,
            )
        for row in cells:
            table.add_row(*(self._folded(cell, sizes[at], columns[at]) for at, cell in enumerate(row)))
        return table


class _Writing:
    """Notes when writing fails, so that it is not taken for a fault of the file that is read."""

    def __init__(self, out: Output) -> None:
        self._out = out

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._out.broken = self._out.broken or isinstance(error, OSError)


def json_text(plain: Any) -> str:
    """Strict JSON on one line: what is not finite becomes "NaN", "Infinity" or "-Infinity"."""
    import json

    # ASCII only: what is not is escaped, lone surrogates and terminal controls too.
    try:
        return json.dumps(plain, default=_plain, allow_nan=False)
    except ValueError:
        return json.dumps(
            spell_non_finite(plain), default=lambda value: spell_non_finite(_plain(value)), allow_nan=False
        )


def escaped(text: str) -> str:
    """The text with what is not printable as an escape: newlines, terminal controls, marks that turn the direction."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii() or all(c.isascii() or c in BLOCKS for c in text):
        return len(text)
    import unicodedata

    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)


def terminal_width() -> int:
    """Characters on a line of the terminal; 80 where there is none, or where it does not say."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def size_text(count: int | None) -> str:
    """A number of bytes for people: 1.5 MB."""
    if count is None:
        return ""
    amount, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if amount < 999.5 or unit == "PB":
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:.3g} {unit}"


def prepare(stream: TextIO) -> None:
    """A name that the terminal's encoding lacks is escaped, rather than an error."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


def _cell(part: str | Cell) -> Cell:
    return part if isinstance(part, Cell) else Cell(part)


def _whole(columns: Sequence[Heading], cells: Sequence[Sequence[Cell]], header: bool) -> list[int]:
    """How wide the columns are if nothing is folded."""
    titles = [width(column.title) if header else 0 for column in columns]
    return [max([title, *(width(escaped(row[at].text)) for row in cells)]) for at, title in enumerate(titles)]


def _least(columns: Sequence[Heading], cells: Sequence[Sequence[Cell]], header: bool) -> list[int]:
    """How wide the columns have to be."""
    whole = _whole(columns, cells, header)
    return [min(size, column.least) if column.fold else size for size, column in zip(whole, columns, strict=True)]


def _allotted(columns: Sequence[Heading], cells: Sequence[Sequence[Cell]], header: bool, room: int) -> list[int]:
    """How wide the columns become: those that may fold give way, the one with the most to spare first."""
    sizes, least = _whole(columns, cells, header), _least(columns, cells, header)
    excess = sum(sizes) + len(_GAP) * (len(sizes) - 1) - room
    while excess > 0:
        spare = [size - low for size, low in zip(sizes, least, strict=True)]
        at = spare.index(max(spare))
        if spare[at] <= 0:
            break
        second = max([0, *spare[:at], *spare[at + 1 :]])
        step = min(excess, max(spare[at] - second, 1))
        sizes[at] -= step
        excess -= step
    for at, column in enumerate(columns):  # in a very narrow terminal even less than it takes
        if column.fold and excess > 0:
            step = min(excess, max(sizes[at] - _NARROWEST, 0))
            sizes[at] -= step
            excess -= step
    return sizes


def folded(text: str, room: int) -> list[str]:
    """The text in lines of this many columns, broken after blanks, or else after what separates the parts of names."""
    lines = []
    while width(text) > room:
        fits = next(at for at in range(len(text), -1, -1) if width(text[:at]) <= room)
        fits = max(fits, 1)
        blank = text.rfind(" ", 0, fits + 1)
        part = max(text.rfind(mark, 0, fits) for mark in "/._-=,") + 1
        end = blank if blank > 0 else part if part > fits // 3 else fits
        lines.append(text[:end])
        text = text[end:].lstrip(" ")
    return [*lines, text]


def _fitting(columns: Sequence[Heading], cells: Sequence[Sequence[Cell]], header: bool, room: int) -> list[int]:
    """The columns that a terminal of this width has room for."""
    wanted = _least(columns, cells, header)
    kept = list(range(len(columns)))
    while sum(wanted[at] for at in kept) + len(_GAP) * (len(kept) - 1) > room:
        droppable = [at for at in kept if columns[at].drop]
        if not droppable:
            break
        kept.remove(max(droppable, key=lambda at: columns[at].drop))
    return kept


def _padded(text: str, wanted: int, column: Heading) -> str:
    fill = " " * (wanted - width(text))
    return fill + text if column.right else text + fill


def _plain(value: Any) -> Any:
    """What json does not know: NumPy's numbers, bytes, paths."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, set | frozenset):
        return sorted(value)
    return os.fspath(value)
