"""rows_binding.c in Python: the definition of correct, and the fallback."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tensorbytes.typing import Buffer, bytes_view

_Items: TypeAlias = "Sequence[Any] | np.ndarray[Any, Any]"


def strings_list(offsets: Buffer, data: Buffer, is_text: bool) -> list[Any]:
    """String i is data[offsets[i]:offsets[i + 1]]: all of them, as bytes, or as str. Offsets are int64."""
    raw = bytes_view(offsets)
    if len(raw) % 8 or not len(raw):
        raise ValueError("strings_list: the offsets are not one int64 more than there are strings")
    content, ends = bytes(bytes_view(data)), np.frombuffer(raw, np.int64)
    wrong = (ends[:-1] < 0) | (ends[1:] < ends[:-1]) | (ends[1:] > len(content))
    found: list[Any] = []
    for start, end in itertools.pairwise(ends[: int(np.argmax(wrong)) + 1 if wrong.any() else None].tolist()):
        found.append(content[start:end].decode() if is_text else content[start:end])
    if wrong.any():
        raise ValueError(f"strings_list: string {len(found)} does not lie in the data")
    return found


def row_dicts(keys: tuple[str, ...], columns: tuple[_Items, ...], start: int, stop: int) -> list[dict[str, Any]]:
    """The rows [start, stop) of columns, each a list or an array with an item for every row."""
    if stop < 0 or not 0 <= start <= stop:
        raise IndexError(f"row_dicts: the rows {start} to {stop} are outside")
    if not isinstance(keys, tuple) or not isinstance(columns, tuple):
        raise TypeError("row_dicts: keys and columns are tuples")
    if len(keys) != len(columns):
        raise ValueError("row_dicts: there is not one key for each column")
    for number, column in enumerate(columns):
        if len(column) < stop:
            raise IndexError(f"row_dicts: column {number} ends before row {stop}")
    if not columns:
        return [{} for _ in range(start, stop)]
    items = zip(*(column[start:stop] for column in columns), strict=True)
    return list(map(dict, map(zip, itertools.repeat(keys), items)))
