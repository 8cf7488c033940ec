"""Where the features lie in the records of a block, and records of unusual form brought into the usual one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from tensorbytes import _wire
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, LimitError
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import FOOTER_BYTES
from tensorbytes.typing import bytes_view

T = TypeVar("T")
_ODD, _UNKNOWN = 1, 2
# The kernel takes lengths of up to five bytes.
_MOST_BYTES = 1 << 35


class Located(NamedTuple):
    """Where the lists of some features lie in the records of a block."""

    block: RecordBlock
    kinds: Array  # uint8 [keys, records]
    spans: Array  # int64 [keys, records, 2]
    unknown: Array  # uint8 [records], not 0 where a record has other keys too


def locate(block: RecordBlock, keys: Sequence[bytes], in_lists: bool, sequence: bool | None, budget: Budget) -> Located:
    """Find features by their keys, which must rise; records of unusual form are rewritten for it."""
    kinds, spans, notes = _located(block, keys, in_lists)
    odd = np.flatnonzero(notes & _ODD)
    if odd.size:
        block = in_usual_form(block, odd, sequence, budget)
        kinds, spans, notes = _located(block, keys, in_lists)
        odd = np.flatnonzero(notes & _ODD)
        if odd.size:  # it can only be too large
            raise LimitError(
                f"record {block.first + int(odd[0])} has a part of {_MOST_BYTES} bytes or more, which is not read",
                path=block.path,
                record=block.first + int(odd[0]),
            )
    return Located(block, kinds, spans, notes & _UNKNOWN)


def _located(block: RecordBlock, keys: Sequence[bytes], in_lists: bool) -> tuple[Array, Array, Array]:
    shape = (len(keys), len(block.records))
    array = block.memory.array
    found = array(shape, np.uint8), array((*shape, 2), np.int64), array(shape[1], np.uint8)
    _wire.example_locate(block.data, block.records, b"".join(keys), offsets_of([*map(len, keys)]), in_lists, *found)
    return found


def in_usual_form(block: RecordBlock, which: Array, sequence: bool | None, budget: Budget) -> RecordBlock:
    """The same records, some rewritten by the general parser in the form that the kernel reads."""
    records, added, end = block.records.copy(), [block.data], len(block.data)
    for index in which.tolist():
        written = usual_record(block, index, sequence, budget)
        records[index] = end, len(written)
        added.append(memoryview(written))
        end += len(written)
    return block._replace(data=memoryview(b"".join(added)), records=records)


def usual_record(block: RecordBlock, index: int, sequence: bool | None, budget: Budget) -> bytes:
    """One record, rewritten by the general parser. sequence=None: as a SequenceExample if it can be one, so that
    feature lists which nobody expects are not left out."""
    return _rewritten(example.canonical, block, index, sequence, budget)


def record_in_one_piece(block: RecordBlock, index: int, sequence: bool | None, budget: Budget) -> bytes | None:
    """The same record with its maps in one piece, where that can be had without a look at the values."""
    return _rewritten(example.in_one_piece, block, index, sequence, budget)


def _rewritten(
    rewrite: Callable[[memoryview, bool, Budget], T],
    block: RecordBlock,
    index: int,
    sequence: bool | None,
    budget: Budget,
) -> T:
    if sequence is None:
        with contextlib.suppress(CorruptError):
            return rewrite(_payload(block, index), True, budget)
        sequence = False
    try:
        return rewrite(_payload(block, index), sequence, budget)
    except CorruptError as error:
        raise _malformed(block, index, sequence, error) from None


def _payload(block: RecordBlock, index: int) -> memoryview:
    start, size = block.records[index].tolist()
    return block.data[start : start + size]


def _malformed(block: RecordBlock, index: int, sequence: bool, error: CorruptError) -> CorruptError:
    kind = "SequenceExample" if sequence else "Example"
    number = block.first + index
    what = f"record {number} is not a sound {kind}: {error.what}"
    return error.shifted(block.base + int(block.records[index, 0]), block.path).replaced(what=what, record=number)


def names_in(block: RecordBlock, index: int, sequence: bool, in_lists: bool, budget: Budget) -> list[str]:
    """The features, or the feature lists, that a record has."""
    try:
        return sorted(example.names(_payload(block, index), in_lists, budget))
    except CorruptError as error:
        raise _malformed(block, index, sequence, error) from None


def has_lists(block: RecordBlock, budget: Budget) -> bool:
    """Whether records have feature lists, which only a SequenceExample has."""
    notes = _located(block, [], True)[2]
    if (notes & _UNKNOWN).any():
        return True
    for index in np.flatnonzero(notes & _ODD).tolist():
        try:
            if example.parse_sequence(_payload(block, index), budget)[1]:
                return True
        except CorruptError:  # as an Example it may well be sound
            continue
    return False


def payloads(block: RecordBlock) -> list[memoryview]:
    """The records' bytes, as views."""
    data = bytes_view(block.data)
    return [data[start : start + size] for start, size in block.records.tolist()]


def record_ends(block: RecordBlock) -> Array:
    """Where each record of a block ends in it, its checksum included."""
    ends: Array = block.records[:, 0] + block.records[:, 1] + FOOTER_BYTES
    return ends
