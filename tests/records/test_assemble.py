"""Columns to framed records: whatever room was expected to do, each shard gets its rows, whole and in order."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tensorbytes.errors import LossError
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.formats.tfrecord.write import assemble
from tensorbytes.formats.tfrecord.write.collect import collector


def column(values):
    made = collector("a", Feature("bytes"))
    for value in values:
        made.add(value)
    return made.take()


def join(pieces, shards):
    return [b"".join(bytes(piece) for shard, piece in pieces if shard == each) for each in range(shards)]


@given(
    sizes=st.lists(st.integers(0, 300), max_size=12),
    room=st.integers(0, 1500),
    most=st.integers(0, 1500),
    shards=st.integers(1, 5),
    first=st.integers(0, 9),
)
@example(sizes=[0, 0], room=52, most=58, shards=3, first=2)  # a shard without rows between two
def test_every_shard_gets_its_rows(sizes, room, most, shards, first):
    values = [bytes([index]) * size for index, size in enumerate(sizes)]
    single = [assemble.framed([column([value])], None, 1, 1000) for value in values]
    expected = [b""] * shards
    for index, pieces in enumerate(single):
        expected[(first + index) % shards] += b"".join(bytes(piece) for _, piece in pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "_SLACK_BYTES", 0)
        patch.setattr(assemble, "_MOST_ROOM", most)
        pieces = assemble.framed([column(values)], None, len(values), room, shards, first)
    assert join(pieces, shards) == expected
    assert all(len(piece) for _, piece in pieces)


def test_no_more_room_is_taken_than_records_need(monkeypatch):
    """What was expected to take a lot may take little, and one record may take more than all were expected to."""
    taken = []
    array = assemble.Memory.array

    def noted(self, size, *rest):
        taken.append(size)
        return array(self, size, *rest)

    monkeypatch.setattr(assemble.Memory, "array", noted)
    assemble.framed([column([b"a"])], None, 1, 1 << 50)
    assert taken == [assemble._MOST_ROOM]
    taken.clear()
    [(_, record)] = assemble.framed([column([bytes(9 << 20)])], None, 1, 100)
    assert taken == [100 + 12 + assemble._SLACK_BYTES, len(record)]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("room", [0, 1000, 1 << 20])
def test_a_record_that_no_reader_reads_is_refused(monkeypatch, shards, room):
    monkeypatch.setattr(assemble, "MAX_BYTES", 2000)
    monkeypatch.setattr(assemble, "_MOST_ROOM", 2016)
    frame = sum(len(piece) for _, piece in assemble.framed([column([bytes(1900)])], None, 1, room)) - 1900
    exact = bytes(2000 + 16 - frame)
    assert (
        join(assemble.framed([column([b"a", exact])], None, 2, room, shards), shards)[-1][-len(exact) - 4 : -4] == exact
    )
    with pytest.raises(LossError, match="2001 bytes"):
        assemble.framed([column([b"a", exact + b"\0"])], None, 2, room, shards)


def test_rows_of_nothing():
    assert assemble.framed([], None, 0, 0) == []
    [(shard, records)] = assemble.framed([], None, 2, 0)
    assert (shard, len(records)) == (0, 36)
    assert np.array_equal(np.frombuffer(records[:18], np.uint8), np.frombuffer(records[18:], np.uint8))
