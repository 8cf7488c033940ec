"""What is missing in a table, through each format and back: a part of docs/fidelity.md.

pyarrow writes a table, we convert it to a format and that to Arrow, pyarrow reads it: the same rows, the same types.
"""

import tempfile
from pathlib import Path

import pyarrow as pa

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.testing import Outcome
from tests.support import arrow_types

TITLE = "Presence: what is null in tables, or absent from records"
INTRO = """A table of Arrow's is converted to each format, and that to Arrow again: the same rows, the same types, the
same metadata of the schema, or a refusal.
"""
COLUMNS = {
    "rows of numbers": pa.array([1.5, None, 2.5]),
    "rows of bools": pa.array([True, None, False]),
    "rows of text": pa.array(["a", None, ""]),
    "rows of times": pa.array([1, None, -1], pa.timestamp("us", "UTC")),
    "rows of lists": pa.array([[1, 2], None, []]),
    "elements of lists": pa.array([[1, None], [], [None]]),
    "rows of tensors": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.float32(), 2)),
    "structs": pa.array([{"a": 1, "b": "x"}, None, {"a": 2, "b": ""}]),
    "fields of structs": pa.array([{"a": None, "b": "x"}, {"a": 1, "b": None}, {"a": 2, "b": ""}]),
    "values of maps": pa.array([[("k", 1), ("l", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "every row": pa.nulls(3, pa.int64()),
    "no row": pa.array([1, 2, 3]),
}


def outcome(array: pa.Array, format: str) -> Outcome:
    """What becomes of a column on its way to a format and back."""
    with tempfile.TemporaryDirectory() as folder:
        start, there, back = (Path(folder) / name for name in ("start.arrow", "there", "back.arrow"))
        there = there.with_suffix(formats.get(format).suffixes[0])
        want = arrow_types.write(array, start)
        try:
            tb.convert(start, there, format=format)
        except tb.errors.TensorbytesError as error:
            left = [path.name for path in Path(folder).iterdir() if path != start]
            return Outcome("unreadable" if left else "refused", str(error))
        try:
            tb.convert(there, back)
        except tb.errors.TensorbytesError as error:
            return Outcome("unreadable", str(error))
        lost = arrow_types.differences(arrow_types.read(back), want)
        return Outcome("LOST", lost) if lost else Outcome("exact")


def measure(names: list[str]) -> dict[str, dict[str, Outcome]]:
    """column -> format -> outcome."""
    return {label: {name: outcome(array, name) for name in names} for label, array in COLUMNS.items()}
