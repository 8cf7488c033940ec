"""Serialized Examples in memory, decoded to columns as those of files are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from tensorbytes import frameworks
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, Hint, Limits, UnsupportedError, UsageError
from tensorbytes.formats.tfrecord.files.framing import BLOCK_BYTES, RecordBlock
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.read.batch import Batch
from tensorbytes.formats.tfrecord.read.columns import Columns, joined
from tensorbytes.formats.tfrecord.read.decode import decode, portions
from tensorbytes.formats.tfrecord.read.handout import make_batch
from tensorbytes.formats.tfrecord.read.infer import Inference
from tensorbytes.formats.tfrecord.read.plan import Plan
from tensorbytes.formats.tfrecord.schema import Outline
from tensorbytes.io.workers import count_threads, run_pipeline
from tensorbytes.tensor import Array, Strings
from tensorbytes.typing import bytes_view

_EXPECTED = "a list of bytes, Strings, an array of objects, an Arrow column of binary, or a string tensor of one axis"
# Records that are decoded together, however small they are.
_MOST_RECORDS = 1 << 16
# Of a list, those that are looked at together: it may be an iterator that makes them.
_MOST_LISTED = 1 << 13


def parse_examples(
    data: Any,
    *,
    schema: Any = None,
    columns: Sequence[str] | None = None,
    to: str = "numpy",
    device: str | None = None,
    threads: int | None = None,
    limits: Limits = LIMITS,
) -> Batch:
    """Serialized Examples or SequenceExamples that are in memory, as columns: a Batch, as `open_records` gives them.

    Args:
        data: the records: a list of bytes, a `Strings`, a NumPy array of objects, a binary column of Arrow, pandas or
            polars, or a string tensor of TensorFlow. Errors call the first of them record 0.
        schema: what `open_records` takes, TensorFlow's feature specs included; inferred from all records if not given.
        columns: the features to decode; all of them if not given.
        to: the framework whose tensors the columns are.
        device: where these are put.
        threads: how many decode; as many as there are processors if not given.
        limits: what may be taken of memory.
    """
    if isinstance(columns, str):
        raise UsageError(f"columns={columns!r}", expected=f"a list of names, such as [{columns!r}]")
    to = frameworks.resolve(to)
    blocks = list(_blocks(data))
    size = sum(len(block.data) for block in blocks)
    outline, origin = _outline(blocks, schema, limits)
    if columns is not None:
        outline = outline.select(columns)
    plan = Plan(outline.schema, origin, False, limits, views=outline.views)
    budget, parts = Budget(limits, max(size, BLOCK_BYTES)), [decode(_NOTHING, plan)]
    pieces = chain.from_iterable(portions(block, plan) for block in blocks)
    many = count_threads() if threads is None else threads
    for part in run_pipeline(lambda piece: decode(piece, plan), pieces, many if len(blocks) > 1 else 1):
        budget.copy(2 * part.nbytes, "the columns of all records", 0)  # joining copies them
        parts.append(part)
    return make_batch(_joined(parts), plan.outputs, plan.features, to, device, budget)


_NOTHING = RecordBlock(memoryview(b""), np.empty((0, 2), np.int64), "", 0, 0)


def _joined(parts: list[Columns]) -> Columns:
    """All parts after the first, which is that of no records."""
    return joined(parts[1:] or parts)


def _outline(blocks: list[RecordBlock], schema: Any, limits: Limits) -> tuple[Outline, str]:
    if schema is not None:
        return Outline.of(schema), "the schema"
    inference = Inference(limits)
    for block in blocks:
        inference.add(block)
    found = inference.schema()
    if not found and any(len(block.data) for block in blocks):
        raise UsageError(
            "no record has a feature: they are not Examples",
            hints=[Hint("schema", purpose="to read them as such all the same", of="records.parse_examples")],
        )
    return Outline(found), "the schema inferred from all records"


# ---- the records -----------------------------------------------------------------


def _blocks(data: Any) -> Iterator[RecordBlock]:
    first = 0
    for view, bounds in _lots(data):
        start = 0
        while start < len(bounds) - 1:
            room = int(np.searchsorted(bounds, bounds[start] + BLOCK_BYTES, side="right")) - 1
            stop = min(max(room, start + 1), start + _MOST_RECORDS, len(bounds) - 1)
            low, high = int(bounds[start]), int(bounds[stop])
            records = np.stack([bounds[start:stop] - low, np.diff(bounds[start : stop + 1])], axis=1)
            yield RecordBlock(view[low:high], np.ascontiguousarray(records), "", 0, first)
            first, start = first + stop - start, stop


def _lots(data: Any) -> Iterator[tuple[memoryview, Array]]:
    """(bytes, where each record starts in them and the last one ends) of one lot of records after the other."""
    if isinstance(data, bytes | bytearray | memoryview | str | Mapping):
        raise UsageError(
            "serialized Examples", expected=_EXPECTED, got=type(data).__name__, hints=[Hint(purpose="for one: [data]")]
        )
    if isinstance(data, np.ndarray) and data.dtype.kind == "S":
        raise UsageError(
            "an array of fixed-width bytes lost the zeros at the end of its records",
            hints=[Hint(purpose="make it with dtype=object")],
        )
    if isinstance(data, list | tuple):
        yield from _listed(data)
    elif (column := _arrow_column(data)) is not None:
        yield from _arrow_lots(column)
    elif isinstance(data, np.ndarray) or hasattr(data, "to_numpy"):
        array = data if isinstance(data, np.ndarray) else data.to_numpy()
        _check_axes(array.shape)
        yield from _listed(array.tolist())
    elif hasattr(data, "shape"):
        value = _strings(data)
        _check_axes(value.shape)
        yield bytes_view(value.data), value.offsets
    else:
        yield from _listed(data)


def _strings(data: Any) -> Strings:
    try:
        value = frameworks.to_value(data)
    except UnsupportedError:
        value = None
    if not isinstance(value, Strings):
        raise UsageError("serialized Examples", expected=_EXPECTED, got=type(data).__name__)
    return value


def _check_axes(shape: tuple[int, ...]) -> None:
    if len(shape) != 1:
        raise UsageError(f"records in an array of {len(shape)} axes", expected="one axis")


def _listed(items: Any) -> Iterator[tuple[memoryview, Array]]:
    if not isinstance(items, Iterable):
        raise UsageError("serialized Examples", expected=_EXPECTED, got=type(items).__name__)
    source, first = iter(items), 0
    while some := list(islice(source, _MOST_LISTED)):
        if any(kind is not bytes for kind in set(map(type, some))):
            some = [_as_bytes(first + number, item) for number, item in enumerate(some)]
        lengths = offsets_of([*map(len, some)])
        start = 0
        while start < len(some):  # as many as make a block
            stop = max(int(np.searchsorted(lengths, lengths[start] + BLOCK_BYTES, side="right")) - 1, start + 1)
            yield memoryview(b"".join(some[start:stop])), lengths[start : stop + 1] - lengths[start]
            start = stop
        first += len(some)


def _as_bytes(number: int, item: Any) -> Any:
    try:
        return item if isinstance(item, bytes) else bytes_view(item)
    except (TypeError, ValueError, BufferError):
        return _no_bytes(number, item)


def _no_bytes(number: int, item: Any) -> memoryview:
    got = "None" if item is None else type(item).__name__
    raise UsageError(f"record {number} is not bytes", expected="a serialized Example", got=got, record=number)


def _arrow_column(data: Any) -> Any:
    """An Arrow column, of whatever library, where pyarrow is there; None for all else."""
    if isinstance(data, Strings) or not (hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")):
        return None
    try:
        import pyarrow as pa
    except ModuleNotFoundError:
        return None
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return data
    try:
        return pa.chunked_array(data) if hasattr(data, "__arrow_c_stream__") else pa.array(data)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _arrow_lots(column: Any) -> Iterator[tuple[memoryview, Array]]:
    """The records of an Arrow column, without a copy."""
    import pyarrow as pa

    kind, number = column.type, 0
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    if not any(test(kind) for test in tests):
        raise UsageError("serialized Examples", expected="a column of binary", got=f"one of {kind}")
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if chunk.null_count:
            _no_bytes(number + int(np.argmax(chunk.is_null().to_numpy(zero_copy_only=False))), None)
        plain = chunk.cast(pa.large_binary())
        _, offsets, content = plain.buffers()
        bounds = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
        yield memoryview(b"") if content is None else bytes_view(content), bounds
        number += len(chunk)
