"""Formats, shapes and numbers in the words that several commands show."""

from __future__ import annotations

from collections.abc import Sequence

from tensorbytes.cli.output import Cell
from tensorbytes.formats.tfrecord.kinds import EVENTS, OTHERS

DIM = "dim"
# Records that are not a format of their own.
_LABELS = {EVENTS: "TensorBoard events", OTHERS: OTHERS}


def format_text(name: str) -> str:
    """What a format is called in sentences."""
    from tensorbytes import formats

    return _LABELS.get(name) or formats.get(name).label


def many(number: int, noun: str) -> str:
    """1 tensor, 1,234 tensors"""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def held_text(tensors: int, values: int, objects: int = 0, noun: str = "tensor", join: str = ", ") -> str:
    """2 tensors, 9 values: what is a tensor, what is a plain number or text, and what is not read."""
    counts = {noun: tensors, "value": values, "unread object": objects}
    return join.join(many(count, what) for what, count in counts.items() if count) or many(0, noun)


def shape_text(shape: Sequence[int | None]) -> str:
    """[2, 3]; a size that varies is a question mark."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def range_text(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return f"{low:,}" if low == high else f"{low:,}..{high:,}"


def count_text(number: int) -> str:
    """A large number of values: 22.7 million."""
    for size, word in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if number >= size:
            return f"{number / size:.3g} {word}"
    return f"{number:,}"


def name_cell(name: str | None) -> Cell:
    return Cell("(no name)", DIM) if not name else Cell(name)


def shortened(text: str, most: int) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= most else text[: max(most - 3, 0)] + "..."
