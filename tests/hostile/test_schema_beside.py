"""The schema beside records is that of those records, whoever writes them, and wherever a writer ends."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import tensorbytes as tb
from tensorbytes.formats.tfrecord.schema import Schema
from tensorbytes.io import publish
from tests.support.cli_cases import inside


def write(path, *rows, **options):
    with tb.RecordWriter(path, sync=False, **options) as writer:
        for row in rows:
            writer.write(row)


def values(path):
    """Every record as plain values; the schema beside them must fit."""
    return [{name: getattr(x, "tolist", lambda x=x: x)() for name, x in row.items()} for row in tb.open_records(path)]


class Killed(BaseException):
    """Stands for the end of the process: nothing that follows is done."""


# ---- shards that are written side by side ---------------------------------------


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("old", [False, True], ids=["new", "replacing"])
def test_215_shards_written_side_by_side_share_a_schema(order, old, tmp_path):
    paths = [tmp_path / f"x.tfrecord-0000{i}-of-00002" for i in range(2)]
    for path in paths if old else ():
        write(path, {"v": [1, 2, 3]}, sidecar=False)
    rows = [{"v": [1, 2, 3], "extra": 7}, {"v": [1, 2, 3, 4], "other": "text"}]
    writers = [tb.RecordWriter(path) for path in paths]
    for writer, row in zip(writers, rows, strict=True):
        writer.write(row)
    for number in order:
        writers[number].close()
    assert values(f"{tmp_path}/x.tfrecord@2") == rows
    assert [values(path) for path in paths] == [[row] for row in rows]


def test_215_many_shards_at_once(tmp_path):
    count = 12

    def run(number):
        for _ in range(3):
            write(f"{tmp_path}/x.tfrecord-{number:05d}-of-{count:05d}", {"all": number, f"own {number}": [number]})

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))
    assert values(f"{tmp_path}/x.tfrecord@{count}") == [{"all": i, f"own {i}": [i]} for i in range(count)]
    assert sorted(os.listdir(tmp_path))[-1] == "x.tfrecord.schema.json"
    assert len(os.listdir(tmp_path)) == count + 1


def test_215_raw_records_in_a_shard_leave_the_schema_of_the_others(tmp_path):
    raw = tb.RecordWriter(tmp_path / "x.tfrecord-00000-of-00002")
    raw.write_raw(b"\x0a\x00")
    write(tmp_path / "x.tfrecord-00001-of-00002", {"a": 1})
    raw.close()
    assert Schema.load(tmp_path / "x.tfrecord.schema.json") == Schema({"a": "int64"})


@pytest.mark.parametrize("shards", [1, 2])
def test_215_a_new_dataset_keeps_no_features_of_the_old(shards, tmp_path):
    path = tmp_path / "x.tfrecord"
    write(path, {"a": 1}, {"a": 2}, shards=shards)
    write(path, {"b": 1}, {"b": 2}, shards=shards)
    assert Schema.load(f"{path}.schema.json") == Schema({"b": "int64"})


# ---- split and merge ------------------------------------------------------------------


def test_216_two_splits_into_the_same_parts_leave_those_of_one(tmp_path, monkeypatch):
    for k in range(2):
        write(tmp_path / f"src{k}.tfrecord", *({f"a{k}": 100 * k + i} for i in range(4)))
    first, second, put = threading.Event(), threading.Event(), publish.put

    def slow(name, path, hold=None):
        put(name, path, hold)
        if path.endswith("00001-of-00004") and not first.is_set():
            first.set()
            second.wait(0.5)  # the other one is about to give names, and must wait

    monkeypatch.setattr(publish, "put", slow)

    def run(k):
        if k:
            first.wait(10)
        tb.split(tmp_path / f"src{k}.tfrecord", tmp_path / "out.tfrecord", shards=4, sync=False)
        second.set()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))
    assert values(f"{tmp_path}/out.tfrecord@4") == [{"a1": 100 + i} for i in range(4)]
    assert not [name for name in os.listdir(tmp_path) if "tensorbytes-" in name]


JOBS = {
    "merge": lambda folder: tb.merge([folder / "src.tfrecord"], folder / "out.tfrecord"),
    "split": lambda folder: tb.split(folder / "src.tfrecord", folder / "out.tfrecord", shards=1),
    "write": lambda folder: write(folder / "out.tfrecord", {"b": 2}),
}
OUT = {"merge": "out.tfrecord", "split": "out.tfrecord-00000-of-00001", "write": "out.tfrecord"}


@pytest.mark.parametrize("schema", [False, True], ids=["none", "one"])
@pytest.mark.parametrize("last", ["out.tfrecord.schema.json", "the records"])
@pytest.mark.parametrize("job", JOBS)
def test_217_no_old_schema_stands_beside_new_records(job, last, schema, tmp_path, monkeypatch):
    """The process ends after the last rename that concerns this name."""
    write(tmp_path / "src.tfrecord", {"b": 2}, sidecar=schema)
    write(tmp_path / OUT[job], {"a": 1})
    ended, replace, unlink = [], os.replace, os.unlink

    def replacing(old, new):
        if not ended:
            replace(old, new)
        if (OUT[job] if last == "the records" else last) in (os.path.basename(old), os.path.basename(new)):
            ended.append(new)
            raise Killed

    monkeypatch.setattr(os, "replace", replacing)
    monkeypatch.setattr(os, "unlink", lambda *args, **options: None if ended else unlink(*args, **options))
    with pytest.raises(Killed):
        JOBS[job](tmp_path)
    assert values(tmp_path / OUT[job]) == ([{"b": 2}] if last == "the records" else [{"a": 1}])


@pytest.mark.parametrize("job", JOBS)
def test_217_a_failure_brings_the_old_schema_back(job, tmp_path, monkeypatch):
    write(tmp_path / "src.tfrecord", {"b": 2})
    write(tmp_path / OUT[job], {"a": 1})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    real = os.replace

    def fail(old, new):
        if str(new).endswith(OUT[job]):
            raise OSError(5, "no")
        real(old, new)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no"):
        JOBS[job](tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_217_the_result_has_the_schema_of_its_sources(tmp_path, capsys):
    write(tmp_path / "src.tfrecord", {"b": 2})
    write(tmp_path / "out.tfrecord", {"a": 1})
    for job in ("merge", "split"):
        JOBS[job](tmp_path)
        assert Schema.load(tmp_path / "out.tfrecord.schema.json") == Schema({"b": "int64"})
    write(tmp_path / "other.tfrecord", {"b": "text"})
    made = tb.merge([tmp_path / "src.tfrecord", tmp_path / "other.tfrecord"], tmp_path / "out.tfrecord")
    assert "no schema beside the result" in made.changes[0]
    assert not (tmp_path / "out.tfrecord.schema.json").exists()
    assert inside(capsys, "merge", tmp_path / "src.tfrecord", "-o", tmp_path / "out.tfrecord").code == 2


# ---- links --------------------------------------------------------------------------


@pytest.fixture
def linked(tmp_path):
    """(a link, the file that it leads to)"""
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "x.tfrecord"
    write(real, {"a": 1})
    (tmp_path / "link.tfrecord").symlink_to("real/x.tfrecord")
    return tmp_path / "link.tfrecord", real


WAYS = {
    "write": lambda path: write(path, {"b": 2}),
    "merge": lambda path: [
        write(path.parent / "src.tfrecord", {"b": 2}, sidecar=False),
        tb.merge([path.parent / "src.tfrecord"], path),
    ],
}


@pytest.mark.parametrize("way", WAYS)
def test_218_records_written_through_a_link_fit_the_schema_of_the_file(way, linked):
    link, real = linked
    WAYS[way](link)
    assert link.is_symlink()
    assert values(link) == values(real) == [{"b": 2}]


def test_218_records_appended_through_a_link_go_by_the_schema_of_the_file(linked):
    link, real = linked
    write(link, {"a": 2, "b": "t"}, mode="a", schema={"a": "int64", "b": tb.records.Feature("text", optional=True)})
    assert values(link) == values(real) == [{"a": 1}, {"a": 2, "b": "t"}]
    with pytest.raises(tb.errors.SchemaError):
        write(link, {"a": "text"}, mode="a")


def test_218_raw_records_through_a_link_leave_no_schema_of_older_ones(linked):
    link, real = linked
    with tb.RecordWriter(link) as writer:
        writer.write_raw(b"no Example")
    assert sorted(os.listdir(real.parent)) == ["x.tfrecord"]
