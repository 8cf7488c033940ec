"""Rows of a table as cells of HTML: numbers, text, pictures, small drawings of arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

import numpy as np

from tensorbytes import rows
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.view import pictures, png, svg, values, words
from tensorbytes.view.sample import Size, elements, real, sampled

_MOST_STRINGS = 4  # of one cell
_FEW = 6  # numbers are written out up to this many, drawn from there on


def rows_of(columns: Mapping[str, Value], present: Mapping[str, Array], most: int) -> Iterator[dict[str, Value]]:
    """The first rows of some columns; a row lacks what it does not have."""
    size = min(min((rows.count(value) or 0 for value in columns.values()), default=0), most)
    split = {name: list(rows.rows_of(rows.cut(value, 0, size))) for name, value in columns.items()}
    for number in range(size):
        yield {
            name: column[number] for name, column in split.items() if present.get(name) is None or present[name][number]
        }


def largest_that_fit(made: list[dict[str, Value]], room: int, largest: int) -> int:
    """The size up to which all pictures of some rows fit into this many bytes of a page: the smaller ones first."""
    sizes: list[int] = []
    for value in (value for row in made for value in row.values() if isinstance(value, Strings)):
        for start, end in itertools.pairwise(value.offsets[: _MOST_STRINGS + 1].tolist()):
            if png.picture_kind(bytes(value.data[start : min(end, start + 32)]), end - start):
                sizes.append(end - start)
    fitting = 0
    for size in sorted(size for size in sizes if size <= largest):
        room -= size * 4 // 3
        if room < 0:
            break
        fitting = size
    return fitting


@dataclass
class CellMaker:
    """Makes cells, with an allowance of bytes for pictures."""

    pictures: int  # bytes of pictures of the data that may still be embedded
    largest: int = 64_000  # of one picture
    drawings: int | None = None  # bytes of drawings of arrays; None where they share with the pictures
    letters: int = 200
    side: int = 32  # pixels of a heatmap
    left_out: int = 0  # pictures for which there was no room
    embedded: int = 0

    def cell(self, value: Value | None) -> str:
        if value is None:
            return '<span class="tbv-dim">absent</span>'
        if isinstance(value, Strings):
            return self._strings(value)
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, Ragged):
            return f'<span class="tbv-dim">{words.many(len(value), "row")}</span> {values.row_html(value, 40)}'
        return f'<span class="tbv-dim">{values.kind_line(value)}</span>' if isinstance(value, Sparse) else ""

    def _strings(self, value: Strings) -> str:
        total = len(value.offsets) - 1
        shown = []
        for place in range(min(total, _MOST_STRINGS)):
            data = value.data[int(value.offsets[place]) : int(value.offsets[place + 1])]
            shown.append(self._picture(data) or self._text(data, value))
        more = (
            [f'<span class="tbv-dim">and {words.count(total - _MOST_STRINGS)} more</span>']
            if total > _MOST_STRINGS
            else []
        )
        return "<br/>".join([*shown, *more]) if total else '<span class="tbv-dim">none</span>'

    def _text(self, data: memoryview, value: Strings) -> str:
        start = bytes(data[: 4 * self.letters + 4])
        if value.encoding == "bytes" and _is_binary(start):
            return f'<span class="tbv-dim">{words.amount(len(data))}:</span> <code>{start[:8].hex(" ")}</code>'
        shown = words.passage(words.decoded(start, self.letters), self.letters, len(data))
        return f'<span class="tbv-text">{shown}</span>'

    def picture(self, data: bytes) -> str:
        """Bytes that are said to be a picture."""
        return self._picture(memoryview(data)) or f'<span class="tbv-dim">{words.amount(len(data))}</span>'

    def _picture(self, data: memoryview) -> str:
        """A picture, or the words for one that is too large; empty for other bytes."""
        kind = png.picture_kind(bytes(data[:32]), len(data))
        if kind is None:
            return ""
        size = len(data) * 4 // 3
        if len(data) > self.largest or size > self.pictures:
            self.left_out += 1
            name = kind.removeprefix("image/").upper()
            return f'<span class="tbv-dim">{name}, {words.amount(len(data))}: too large to be shown here</span>'
        self.pictures -= size
        self.embedded += 1
        return f'<img class="tbv-photo" alt="{kind}" src="{png.data_uri(bytes(data), kind)}"/>'

    def _tensor(self, tensor: Tensor) -> str:
        total = elements(tensor).size
        if total <= _FEW:
            text = escape(values.numbers(tensor, _FEW))
            return f"[{text}]" if tensor.shape else text
        said = f'<span class="tbv-dim">{escape(tensor.dtype)} {words.shape(tensor.shape)}</span>'
        drawing = self._drawing(tensor)
        return f"{drawing}{said}" if drawing else f"{said} {escape(values.numbers(tensor, _FEW))}"

    def _take(self, size: int) -> bool:
        """Whether there is room for a drawing, which is taken then."""
        left = self.pictures if self.drawings is None else self.drawings
        if size > left:
            return False
        if self.drawings is None:
            self.pictures -= size
        else:
            self.drawings -= size
        return True

    def _drawing(self, tensor: Tensor) -> str:
        found = pictures.images(tensor, 3 * self.side, 1)
        if not found and len(tensor.shape) > 1 and tensor.shape[-1] > 1 and tensor.shape[-2] > 1:
            heat = pictures.heatmap(tensor, self.side)
            found = [] if heat is None else [heat]
        if found:
            picture = found[0]
            if not self._take(len(picture.data) * 4 // 3):
                return ""
            scale = max(1, 72 // max(picture.width, picture.height))
            larger = picture._replace(width=picture.width * scale, height=picture.height * scale)
            return larger.html("picture of an array")
        numbers = real(elements(sampled_flat(tensor)))
        return svg.sparkline(numbers, "line through the values") if np.isfinite(numbers).any() else ""


def sampled_flat(tensor: Tensor) -> Tensor:
    part = sampled(tensor, Size(numbers=4096)).value
    assert isinstance(part, Tensor)
    return Tensor(part.dtype, (elements(part).size,), part.data, None, part.meta, part.origin)


def _is_binary(start: bytes) -> bool:
    """Whether bytes are not text."""
    try:
        text = start.decode()
    except UnicodeDecodeError as error:
        if error.start < len(start) - 3:
            return True
        text = start[: error.start].decode()
    odd = sum(not letter.isprintable() and letter not in "\t\r\n" for letter in text)
    return odd * 10 > len(text)
