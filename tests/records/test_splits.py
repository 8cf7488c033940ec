"""Files divided among readers: each record in exactly one split, whatever the payloads look like."""

import os
import shutil
from itertools import pairwise

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.records import Split, build_index, plan
from tests.support.record_cases import by_hand, numbered, stream, write
from tests.support.record_cases import example as made
from tests.support.wire_bytes import framed


def numbers_in(split):
    return [int(row["i"]) for row in open_records(split, columns=["i"], schema={"i": "int64"})]


def check_splits(path, count, n):
    splits = plan(path, n)
    assert [number for split in splits for number in numbers_in(split)] == list(range(count))
    assert all(split.start < split.end for split in splits)
    assert splits[0].start == 0
    assert all(a.end == b.start for a, b in pairwise(splits) if a.path == b.path)
    assert splits[-1].end == os.path.getsize(splits[-1].path)
    return splits


@pytest.mark.parametrize("indexed", [False, True])
def test_each_record_is_in_one_split(tmp_path, indexed):
    path = write(tmp_path / "x", numbered(40))
    if indexed:
        build_index(path)
    sizes = [len(check_splits(path, 40, n)) for n in [*range(1, 45), 400, 100_000]]
    assert sizes[:4] == [1, 2, 3, 4]
    assert max(sizes) <= 40
    assert sizes[-1] >= 30


def test_splits_of_several_files(tmp_path):
    payloads = numbered(90)
    paths = [write(tmp_path / f"{i}", part) for i, part in enumerate([payloads[:5], [], payloads[5:80], payloads[80:]])]
    for n in (1, 2, 5, 30):
        splits = check_splits(paths, 90, n)
        assert {split.path for split in splits} == {paths[0], paths[2], paths[3]}
    together = open_records(plan(paths, 5), schema={"i": "int64"})
    assert [int(row["i"]) for row in together] == list(range(90))
    assert len(together) == 90
    assert [int(together[n]["i"]) for n in (0, 44, 89)] == [0, 44, 89]


def test_a_split_is_counted_and_indexed_by_itself(tmp_path):
    path = write(tmp_path / "x", numbered(50))
    for split in plan(path, 4):
        records = open_records(split)
        numbers = numbers_in(split)
        assert len(records) == len(numbers)
        assert records[:]["i"].tolist() == numbers
        assert int(records[-1]["i"]) == numbers[-1]


@pytest.mark.parametrize("inner", [1, 3, 200, 6000])
def test_payloads_that_hold_whole_record_files(tmp_path, inner):
    """Their headers are sound, and go on for a while: none may be taken for one of the file's."""
    nested = tb.dumps([np.arange(16, dtype=np.float32)] * 3) + framed(*numbered(min(inner, 200), 1000)) * (
        inner // 200 + 1
    )
    payloads = [made(i=[i], file=[nested]) if i % 2 else made(i=[i], file=[nested], z=[b"after"]) for i in range(6)]
    path = write(tmp_path / "x", payloads)
    for n in (2, 3, 5, 17):
        check_splits(path, 6, n)
    cut = [made(i=[i], file=[nested[:-9]]) for i in range(6)]  # the last header points past the payload
    check_splits(write(tmp_path / "y", cut), 6, 5)


def test_one_huge_record_and_tiny_ones(tmp_path):
    payloads = [made(i=[0]), made(i=[1], data=[np.random.default_rng(0).bytes(5 << 20)]), made(i=[2])]
    splits = check_splits(write(tmp_path / "x", payloads), 3, 10)
    assert len(splits) >= 2
    check_splits(write(tmp_path / "y", payloads[1:2]) and write(tmp_path / "z", payloads[:1]), 1, 9)


def test_a_damaged_file_can_still_be_split(tmp_path):
    data = bytearray(by_hand(numbered(200)))
    data[len(data) // 2] ^= 0xFF
    path = tmp_path / "x"
    for raw in (data, data[:-3]):
        path.write_bytes(raw)
        splits = plan(path, 8)
        assert (splits[0].start, splits[-1].end) == (0, len(raw))
        assert all(a.end == b.start for a, b in pairwise(splits))
        with pytest.raises(errors.CorruptError):
            [numbers_in(split) for split in splits]


def test_damage_in_a_split_is_located_in_the_file(tmp_path):
    data = bytearray(by_hand(numbered(100)))
    path = tmp_path / "x"
    path.write_bytes(data)
    _, second = plan(path, 2)
    data[second.start + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(errors.CorruptError, match="record 0 is damaged") as caught:
        numbers_in(second)
    assert caught.value.at == second.start
    records = open_records(second, schema={"i": "int64"}, on_corrupt="skip", columns=["i"])
    with pytest.warns(errors.DamageWarning):
        rows = list(records)
    assert records.damages[0].start == second.start
    assert len(rows) == len(numbers_in(Split(str(path), records.damages[0].end, second.end)))


def test_what_can_not_be_split(tmp_path):
    for compression in ("gzip", "zlib"):
        path = write(tmp_path / compression, numbered(9), compression)
        with pytest.raises(
            errors.UsageError, match=f"a compressed file \\({compression}\\) can't be read from the middle"
        ):
            plan(path, 2)
    with pytest.raises(errors.UsageError, match="only local files are split"):
        plan(stream([]), 2)
    with pytest.raises(errors.UsageError, match="0 splits: expected 1 or more"):
        plan(path, 0)
    assert plan(write(tmp_path / "empty", []), 3) == []


def test_a_schema_beside_the_file_serves_its_splits(tmp_path):
    path = write(tmp_path / "x", numbered(20))
    tb.records.Schema({"i": "int8", "s": "text", "v": ("int64", [None])}).save(path + ".schema.json")
    rows = [row for split in plan(path, 3) for row in open_records(split)]
    assert [type(row["i"]) for row in rows] == [np.int8] * 20
    shutil.rmtree(tmp_path)
