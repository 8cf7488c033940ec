"""Names that hidden and kept files of ours have are nobody else's: what is written there would be removed."""

import os

import numpy as np
import pytest

import tensorbytes as tb
from tests.support.cli_cases import inside

X = np.arange(3)
NAMES = [
    "x.tb.tensorbytes-0.tmp",
    "x.tb.tensorbytes-lock.tmp",
    "x.tb.tensorbytes-1a2b3c4d.tmp",
    "x.tb.tensorbytes-0-1.tmp",
    "x.tb.tensorbytes-cut-1",
    "x.tb.tensorbytes-unclosed-2",
]


def records(path, **options):
    with tb.RecordWriter(path, **options) as writer:
        writer.write({"a": 1})


def stream(path, mode):
    with tb.open(path, mode) as writer:
        writer.write(X)


WRITERS = {
    "save": lambda path: tb.save(X, path, "tb"),
    "npz": lambda path: tb.save({"x": X}, path, "npz"),
    "checkpoint": lambda path: tb.save({"x": X}, path, "checkpoint"),
    "stream": lambda path: stream(path, "w"),
    "append": lambda path: stream(path, "a"),
    "records": records,
    "append records": lambda path: records(path, mode="a"),
    "convert": lambda path: tb.convert("src.npz", path, "tb"),
    "merge": lambda path: tb.merge(["src.npz"], path, format="npz"),
    "merge records": lambda path: tb.merge(["src.tfrecord"], path),
    "split": lambda path: tb.split("src.tfrecord", path, shards=2),
    "repair": lambda path: tb.repair("src.tfrecord", path),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tb.save({"x": X}, "src.npz")
    records("src.tfrecord")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("writer", WRITERS)
def test_219_names_of_hidden_files_are_refused(writer, name, folder):
    before = sorted(os.listdir())
    for path in (name, folder / name):
        with pytest.raises(tb.errors.UsageError, match="take another"):
            WRITERS[writer](path)
    os.symlink(name, "link")
    with pytest.raises(tb.errors.UsageError, match="take another"):
        WRITERS["save"]("link")
    assert sorted(os.listdir()) == sorted([*before, "link"])


def test_219_names_that_only_look_alike_are_taken(folder):
    for name in ("x.tmp", "x.tensorbytes", "tensorbytes-0.tmp", "x.tensorbytes-0.tmp.tb", "my.tensorbytes-run.tb"):
        tb.save(X, name, "tb")
        tb.save(X, "x.tb")
        assert tb.equal(tb.load(name), X)


def test_219_what_was_kept_is_read_and_repaired_to_another_name(folder, capsys):
    kept = "src.tfrecord.tensorbytes-unclosed-1"
    os.rename("src.tfrecord", kept)
    os.rename("src.tfrecord.schema.json", f"{kept}.schema.json")
    tb.records.build_index(kept)
    assert [int(row["a"]) for row in tb.open_records(kept)] == [1]
    assert tb.repair(kept, "src.tfrecord").records == 1
    assert inside(capsys, "convert", kept, "y.npz").code == 0
