"""Paths, globs, shards and URLs: which files are meant, and what is said when they are not there."""

import io
import os
import sys
from pathlib import Path

import fsspec
import pytest

from tensorbytes.errors import MissingDependencyError, UsageError
from tensorbytes.io.paths import Split, base_path, expand, shard_path


class Place:
    """A folder, here or in memory, that files are made in."""

    def __init__(self, root):
        self.root = root

    def make(self, *names):
        for name in names:
            if "://" in self.root:
                with fsspec.open(f"{self.root}/{name}", "wb") as file:
                    file.write(b"x")
            else:
                path = Path(self.root, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")

    def expand(self, *patterns):
        found = expand([f"{self.root}/{pattern}" for pattern in patterns])
        for path in found:
            with fsspec.open(path, "rb") as file:
                assert file.read() == b"x"
        return [path.rpartition(self.root.strip("/").rpartition("/")[2] + "/")[2] for path in found]


@pytest.fixture(params=["local", "memory", "file url", "chain"])
def place(request, tmp_path):
    if request.param == "memory":
        root = f"memory://{tmp_path.name}"
    elif request.param == "file url":
        root = tmp_path.as_uri()
    else:
        root = f"simplecache::file://{tmp_path}" if request.param == "chain" else str(tmp_path)
    place = Place(root)
    if request.param == "chain":
        place.make = Place(str(tmp_path)).make
    return place


def shards(name, count):
    return [shard_path(name, index, count) for index in range(count)]


def test_shards_are_named_as_tensorflow_tools_name_them():
    assert shard_path("x.tfrecord", 3, 10) == "x.tfrecord-00003-of-00010"
    assert shard_path("x", 123456, 200000) == "x-123456-of-200000"
    assert base_path("a/x.tfrecord-00003-of-00010") == "a/x.tfrecord"
    assert base_path("a/x-00003-of-00010.tfrecord") == "a/x.tfrecord"
    for alone in ("x", "a-00000-of-00001/x", "x-1-of-2", "x-00000-of-", "s3://b/x"):
        assert base_path(alone) == alone


def test_a_glob_is_sorted(place):
    place.make("b.rec", "a.rec", "c.txt", "sub/d.rec", "a.rec.d/e")
    assert place.expand("*.rec") == ["a.rec", "b.rec"]
    assert place.expand("?.rec") == ["a.rec", "b.rec"]
    assert place.expand("[bc].*") == ["b.rec", "c.txt"]
    assert place.expand("c.txt", "*.rec") == ["c.txt", "a.rec", "b.rec"]
    assert place.expand("**/*.rec") == ["a.rec", "b.rec", "sub/d.rec"]


def test_a_pattern_must_match(place):
    place.make("a.rec", "b.rec.tmp")
    for pattern in ("*.txt", "b.*", "no/*"):
        with pytest.raises(UsageError) as error:
            place.expand("a.rec", pattern)
        assert f"no file matches '{place.root}/{pattern}'" in str(error.value)


def test_what_lies_beside_data_files_is_no_data(place):
    place.make("x.rec", "x.rec.1a2b3c4d.tmp", "x.rec.schema.json", "x.rec.index.tb", "x.tb")
    assert place.expand("*") == ["x.rec", "x.tb"]
    assert place.expand("x.rec.schema.json") == ["x.rec.schema.json"]  # as it is written
    place.make(*shards("y", 2), "y.schema.json", "y-00000-of-00002.index.tb", "y-00001-of-00002.0.tmp")
    assert place.expand("y*") == place.expand("y@2") == place.expand("y@*") == shards("y", 2)


def test_214_what_was_kept_of_a_file_is_no_data(place):
    kept = [f"{name}.tensorbytes-{why}-1" for name in ("x.rec", *shards("y", 2)) for why in ("cut", "unclosed")]
    place.make("x.rec", *shards("y", 2), *kept, "x.rec.tensorbytes-unclosed-1.schema.json", "z.tensorbytes-lock.tmp")
    assert place.expand("*") == ["x.rec", *shards("y", 2)]
    assert place.expand("y*") == place.expand("y@2") == shards("y", 2)
    assert place.expand(kept[0]) == kept[:1]  # as it is written


def test_what_exists_as_it_is_written_is_no_pattern(place):
    place.make("a[1].rec", "a1.rec", "x@2", "x@*", *shards("x", 2))
    assert place.expand("a[1].rec") == ["a[1].rec"]
    assert place.expand("x@2", "x@*") == ["x@2", "x@*"]
    assert place.expand("x@?") == ["x@*", "x@2"]


def test_shards_by_their_number(place):
    place.make(*shards("x.rec", 12), *shards("x.rec-y", 2), *shards("y[1]", 2), *shards("x.rec", 3)[:1])
    assert place.expand("x.rec@12") == shards("x.rec", 12)
    assert place.expand("x.rec-y@*") == place.expand("x.rec-y@2") == shards("x.rec-y", 2)
    assert place.expand("y[1]@2") == place.expand("y[1]@*") == shards("y[1]", 2)
    with pytest.raises(UsageError, match=r"x\.rec@\* is ambiguous: there are sets of 3, 12 shards"):
        place.expand("x.rec@*")
    with pytest.raises(UsageError, match=r"2 shards of .* are missing: x.rec-00001-of-00003, x.rec-00002-of-00003$"):
        place.expand("x.rec@3")
    with pytest.raises(UsageError, match="no shards of"):
        place.expand("z@*")
    with pytest.raises(UsageError, match="95 more"):
        place.expand("z@100")
    for count in (0, 10**6, 10**30):
        with pytest.raises(UsageError, match="expected 1 to 999999 shards"):
            place.expand(f"z@{count}")


@pytest.mark.parametrize("suffix", ["", ".tfrecord", ".tar.gz"])
def test_a_glob_must_find_all_shards_of_a_set(place, suffix):
    names = [name + suffix for name in shards("x", 10)]
    place.make(*names[:4], *names[6:], *(name + suffix for name in shards("y", 2)))
    with pytest.raises(UsageError) as error:
        place.expand("*")
    assert f"2 shards that '{place.root}/*' should match are missing: {names[4]}, {names[5]}" in str(error.value)
    with pytest.raises(UsageError, match="are missing"):
        place.expand("x-*")
    assert len(place.expand("y-*")) == 2
    # Patterns that leave the missing ones out are taken at their word.
    assert place.expand(f"x-0000[0-3]-of-*{suffix}") == names[:4]
    assert place.expand(f"?-00001-of-*{suffix}") == [names[1], f"y-00001-of-00002{suffix}"]
    place.make(*names)
    assert place.expand("x-*") == names


def test_sets_of_shards_are_told_apart_by_folder(tmp_path):
    place = Place(str(tmp_path))
    place.make(*(f"a/{name}" for name in shards("x", 2)), "b/x-00000-of-00002")
    with pytest.raises(UsageError, match=r"1 shards .* are missing: x-00001-of-00002"):
        place.expand("*/x-*")


def test_files_are_given_as_they_came(tmp_path):
    file = io.BytesIO()
    path = tmp_path / "x"
    path.write_bytes(b"")
    split = Split(str(path), 0, 0)
    assert expand(path) == expand(str(path)) == [str(path)]
    assert expand(file) == [file]
    assert expand(split) == [split]
    assert expand(iter([file, split, path, path])) == [file, split, str(path), str(path)]
    assert expand(tmp_path / "*") == [str(path)]
    assert expand("s3://bucket/key") == ["s3://bucket/key"]
    assert expand("https://host/file?token=1") == ["https://host/file?token=1"]  # without asking the host
    with open(path, "rb") as opened:
        assert expand(opened) == [opened]


def test_what_is_no_file(tmp_path):
    with pytest.raises(UsageError, match=r"is a folder; .*\*' means the files in it"):
        expand(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such file"):
        expand("no such file")
    for wrong in (b"x", bytearray(3), 3, None, {"a": "b"}):
        with pytest.raises(UsageError, match="expected a path, a URL"):
            expand(wrong)
    for wrong in (["x", 3], [["x"]], [b"x"]):
        with pytest.raises(UsageError, match="in the list"):
            expand([str(tmp_path / "*") if item == "x" else item for item in wrong[::-1]])
    with pytest.raises(UsageError, match="the list of paths is empty"):
        expand([])

    class Odd:
        def __fspath__(self):
            return b"x"

    with pytest.raises(UsageError, match="expected text"):
        expand(Odd())


def test_a_broken_link_is_a_path(tmp_path):
    os.symlink(tmp_path / "nowhere", tmp_path / "x[1]")
    assert expand(tmp_path / "x[1]") == [str(tmp_path / "x[1]")]


def test_globs_of_urls_need_fsspec(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingDependencyError, match=r"tensorbytes\[cloud\]"):
        expand("memory://x/*")
