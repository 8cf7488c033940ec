"""Values as text and as JSON, every number with as many digits as bring it back exactly, and no more.

| elements            | text                  | JSON                                               |
| ------------------- | --------------------- | -------------------------------------------------- |
| integers            | 12                    | 12, all digits of 64 bits                          |
| floats of any width | 0.1  1e-05  nan  inf  | 0.1, 1e-05, "NaN", "Infinity", "-Infinity"         |
| complex numbers     | 1.5-2.0j              | [1.5, -2.0]                                        |
| bool                | true                  | true                                               |
| dates, durations    | 2026-03-01T12:00  5 s | "2026-03-01T12:00", 5; "NaT" for what is none      |
| text                | as it is, escaped     | "text"                                             |
| bytes               | text, or \\xff        | "text" if they are UTF-8, else {"base64": "/w=="}  |
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.cli.output import escaped, json_text, width
from tensorbytes.errors import UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor

# So many elements are made text at a time.
BLOCK = 1 << 16
_MOST_DIGITS = 17


def elements(value: Tensor | Strings) -> Array:
    """The elements as an array; those of dtypes that NumPy lacks as the integers that are stored."""
    if isinstance(value, Strings):
        return value.numpy()
    try:
        array: Array = numpy_adapter.from_value(value)
    except UnsupportedError:  # no such dtype, or dates without their unit
        unsigned = value.dtype.startswith("qu")
        array = np.ndarray(value.shape, f"<{'u' if unsigned else 'i'}{dtypes.get(value.dtype).itemsize}", value.data)
    return array


def flat_blocks(array: Array, size: int = BLOCK) -> Iterator[Array]:
    """The elements in C order, some at a time; nothing is copied but what comes next."""
    if array.ndim < 2 or array.flags.c_contiguous:
        line = array.reshape(-1)
        for start in range(0, len(line), size):
            yield line[start : start + size]
    elif array.size:
        rows = max(size // (array.size // len(array)), 1)
        if array.size // len(array) <= size:
            for start in range(0, len(array), rows):
                yield np.ascontiguousarray(array[start : start + rows]).reshape(-1)
        else:
            for row in array:
                yield from flat_blocks(row, size)


# ---- elements ---------------------------------------------------------------------


def texts(flat: Array) -> list[str]:
    """Each element as text."""
    kind, name = flat.dtype.kind, flat.dtype.name
    if kind in "iu":
        return list(map(str, flat.tolist()))
    if kind == "b":
        return ["true" if item else "false" for item in flat.tolist()]
    if kind == "f":
        return list(map(repr, flat.tolist())) if flat.dtype.itemsize == 8 else list(map(str, flat))
    if "complex" in name:
        return [_complex_text(*pair) for pair in zip(*_parts(flat), strict=True)]
    if kind == "M":
        return list(map(str, flat.astype(str).tolist()))
    if kind == "m":
        unit = np.datetime_data(flat.dtype)[0]
        return ["NaT" if item is None else f"{item} {unit}" for item in _durations(flat)]
    if kind in "OTUS":
        return [escaped(_string(item)) for item in flat.tolist()]
    return _narrow(flat)


def json_texts(flat: Array) -> list[str]:
    """Each element as JSON."""
    kind, name = flat.dtype.kind, flat.dtype.name
    if kind in "iub":
        return texts(flat)
    if "complex" in name:
        return [f"[{real}, {imaginary}]" for real, imaginary in zip(*map(_json_floats, _parts(flat)), strict=True)]
    if kind == "m":
        return ['"NaT"' if item is None else str(item) for item in _durations(flat)]
    if kind == "M":
        return [f'"{text}"' for text in texts(flat)]
    if kind in "OTUS":
        return [json_text(plain_string(item)) for item in flat.tolist()]
    return _json_floats(texts(flat))


_WORDS = {"nan": '"NaN"', "-nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def _json_floats(items: Iterable[str]) -> list[str]:
    return [_WORDS.get(item, item) for item in items]


def _parts(flat: Array) -> tuple[list[str], list[str]]:
    """The real and the imaginary parts of complex numbers."""
    if flat.dtype.kind == "c":
        return texts(flat.real), texts(flat.imag)
    half = dtypes.to_numpy("float16" if flat.dtype.name == "complex32" else "bfloat16")
    pairs = np.ascontiguousarray(flat).view(np.uint16).view(half)
    return texts(pairs[::2]), texts(pairs[1::2])


def _complex_text(real: str, imaginary: str) -> str:
    return f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"


def _durations(flat: Array) -> list[int | None]:
    missing = np.isnat(flat).tolist()
    return [
        None if gone else item for gone, item in zip(missing, flat.astype("m8").view(np.int64).tolist(), strict=True)
    ]


def _narrow(flat: Array) -> list[str]:
    """Numbers of ml_dtypes: each that occurs is spelled once, with as few digits as tell it from its neighbours.

    Those of 8 bits and less are spelled out: 0.125 would be 0.1 to a type that knows the powers of two alone.
    """
    if "int" in flat.dtype.name:
        return list(map(str, flat.astype(np.int64).tolist()))
    patterns, places = np.unique(np.ascontiguousarray(flat).view(f"u{flat.dtype.itemsize}"), return_inverse=True)
    numbers = patterns.view(flat.dtype).astype(np.float64).tolist()
    found = list(map(repr, numbers))
    left = [at for at, number in enumerate(numbers) if number - number == 0 and flat.dtype.itemsize > 1]
    for digits in range(1, _MOST_DIGITS):
        if not left:
            break
        tries = [float(f"{numbers[at]:.{digits}g}") for at in left]
        with np.errstate(all="ignore"):
            same = np.array(tries).astype(flat.dtype).view(patterns.dtype) == patterns[left]
        for at, number, good in zip(left, tries, same.tolist(), strict=True):
            if good:
                found[at] = repr(number)
        left = [at for at, good in zip(left, same.tolist(), strict=True) if not good]
    return [found[place] for place in places.reshape(-1).tolist()]


def _string(item: str | bytes) -> str:
    return item if isinstance(item, str) else item.decode("utf-8", "backslashreplace")


def plain_string(item: str | bytes) -> Any:
    """A string for JSON: bytes that are not text are marked, so that they can be had back."""
    if isinstance(item, str):
        return item
    try:
        return item.decode("utf-8")
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(item).decode()}


# ---- arrays, piece by piece ---------------------------------------------------------


def write_json(shape: Sequence[int], blocks: Iterable[Array]) -> Iterator[str]:
    """Nested lists. A block of elements is text at a time, however large the whole."""
    if not shape:
        for block in blocks:
            yield from json_texts(block.reshape(-1))
        return
    if 0 in shape:
        yield json_text(np.empty(shape[: shape.index(0) + 1]).tolist())
        return
    sizes = np.cumprod(list(reversed(shape))).tolist()  # of a row, of a matrix of rows, ...
    row, at = sizes[0], 0
    for block in blocks:
        items = json_texts(block)
        start = 0
        while start < len(items):
            inside = at % row
            stop = min(start + row - inside, len(items))
            opened = "" if inside else "[" * sum(at % size == 0 for size in sizes)
            comma = ", " if at else ""
            at += stop - start
            closed = "]" * sum(at % size == 0 for size in sizes)
            yield comma + opened + ", ".join(items[start:stop]) + closed
            start = stop


def write_lines(shape: Sequence[int], blocks: Iterable[Array], separator: str, quote: bool = False) -> Iterator[str]:
    """A line for each row of the last axis, an empty one between matrices; a list has one element on each."""
    if 0 in shape:
        return
    sizes = np.cumprod(list(reversed(shape))).tolist() if len(shape) > 1 else [1]
    row, at = sizes[0], 0
    aligned = separator == " " and 1 < row <= sizes[-1] <= BLOCK
    for block in [np.concatenate(list(blocks))] if aligned else blocks:
        items = texts(block.reshape(-1))
        if quote:
            items = [quoted(item) for item in items]
        if aligned:
            items = _in_columns(items, row, block.dtype.kind in "OTUS")
        start = 0
        while start < len(items):
            inside = at % row
            stop = min(start + row - inside, len(items))
            above = "\n" if at and len(sizes) > 1 and not at % sizes[1] else ""
            at += stop - start
            end = "\n" if not at % row else ""
            yield above + (separator if inside else "") + separator.join(items[start:stop]) + end
            start = stop


def _in_columns(items: list[str], row: int, left: bool) -> list[str]:
    """The items of all rows, as wide as the widest one below or above them."""
    widths = [max(map(width, items[at::row])) for at in range(row)]
    filled = [" " * (widths[at % row] - width(item)) for at, item in enumerate(items)]
    if not left:
        return [fill + item for fill, item in zip(filled, items, strict=True)]
    last = row - 1
    return [
        item + (fill if at % row != last else "") for at, (fill, item) in enumerate(zip(filled, items, strict=True))
    ]


def quoted(item: str) -> str:
    """A field of a CSV file."""
    if any(letter in item for letter in ',"'):
        doubled = item.replace('"', '""')
        return f'"{doubled}"'
    return item


# ---- whole values -------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Any value as what JSON holds. Floats of 32 bits and less come out with the digits that tell them."""
    if isinstance(value, Tensor | Strings):
        return plain(elements(value))
    if isinstance(value, np.ndarray):
        return _nested(value)
    if isinstance(value, np.generic):
        return _nested(np.asarray(value))
    if isinstance(value, Ragged):
        return plain(value.rows())
    if isinstance(value, Sparse):
        return plain_sparse(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return plain_string(value)
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value


def plain_sparse(value: Sparse) -> dict[str, Any]:
    """A sparse value by its coordinates, or by its parts where it has none."""
    with contextlib.suppress(UnsupportedError):
        value = value.to_coo()
    parts: dict[str, Any] = {"layout": value.layout, "shape": list(value.shape)}
    names = (
        ("indices",) if value.layout == "coo" else ("pointers", "indices") if len(value.parts) == 2 else ("diagonals",)
    )
    parts |= {name: part.tolist() for name, part in zip(names, value.parts, strict=True)}
    return parts | {"values": plain(value.values)}


def _nested(array: Array) -> Any:
    import json

    return json.loads("".join(write_json(array.shape, flat_blocks(array))))


# ---- at a glance --------------------------------------------------------------------


def brief(value: Any, most: int) -> str:
    """The beginning of a value, in about so many letters."""
    if isinstance(value, Tensor | Strings):
        value = elements(value)
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        return _brief_array(value, most)
    if isinstance(value, Ragged | Sparse):
        return _brief_other(value, most)
    if isinstance(value, bytes):
        return brief_bytes(value, most)
    if isinstance(value, str):
        return _cut(json_like(value), most)
    if hasattr(value, "encoded"):  # a picture or a sound of an event
        return " ".join(brief_bytes(data, most) for data in value.encoded[:3])
    if hasattr(value, "counts"):
        return f"<histogram of {value.counts.sum():,.0f} values>"
    if isinstance(value, list | tuple):
        return _joined((brief(item, most) for item in value), most, len(value))
    if isinstance(value, dict):
        inside = (f"{escaped(str(key))}: {brief(item, most)}" for key, item in value.items())
        return "{" + _joined(inside, most - 2, len(value))[1:-1] + "}"
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def json_like(text: str) -> str:
    """Text in quotes, what is not printable escaped."""
    return '"' + escaped(text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")) + '"'


def brief_bytes(data: bytes, most: int) -> str:
    """Text where it is text; else what it looks like, and how large."""
    from tensorbytes.cli.contents import looks_like
    from tensorbytes.cli.output import size_text

    what = looks_like(data)
    if what in ("text", "JSON"):
        return _cut(json_like(data[: 4 * most].decode("utf-8", "ignore")), most)
    return '""' if not data else f"<{size_text(len(data))}{'' if what == 'bytes' else ' ' + what}>"


def _brief_array(array: Array, most: int) -> str:
    if not array.ndim:
        item = array[()]
        return brief(item, most) if isinstance(item, str | bytes) else texts(array.reshape(1))[0]
    few = array.reshape(-1)[: max(most // 2, 1)] if array.flags.c_contiguous else array.ravel()[: max(most // 2, 1)]
    items = (brief(item, most) for item in few.tolist()) if array.dtype.kind in "OTUS" else iter(texts(few))
    return _joined(items, most, array.size)


def _brief_other(value: Ragged | Sparse, most: int) -> str:
    if isinstance(value, Sparse):
        return brief(value.values, most)
    return _joined((brief(row, most) for row in value.rows()[: most // 2]), most, len(value))


def _joined(items: Iterable[str], most: int, total: int) -> str:
    """As many as there is room for, in brackets."""
    shown: list[str] = []
    room = most - 2
    for item in items:
        room -= len(item) + 1
        if shown and room < (4 if len(shown) + 1 < total else 0):
            break
        shown.append(item)
    rest = " ..." if len(shown) < total else ""
    return f"[{' '.join(shown)}{rest}]"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(most - 4, 1)] + '..."'
