"""Where bytes come from: a path, a URL, a file object, bytes; each opened once."""

import io

import fsspec
import pytest

from tensorbytes.io import storage
from tensorbytes.io.source import HEAD_BYTES, Source

CONTENT = bytes(range(256)) * 1000
SPANS = [
    (5, 9),
    (100_000, 100_300),
    (0, 1),
    (7, 7),
    (len(CONTENT) - 2, len(CONTENT) + 5),
    (len(CONTENT) + 1, len(CONTENT) + 9),
]


@pytest.fixture(params=["path", "url", "file", "bytes", "read"])
def source(request, tmp_path):
    (tmp_path / "x").write_bytes(CONTENT)
    if request.param == "url":
        with fsspec.open(f"memory://{tmp_path.name}/x", "wb") as file:
            file.write(CONTENT)
        return Source(f"memory://{tmp_path.name}/x")
    if request.param == "file":
        return Source(io.BytesIO(CONTENT))
    if request.param == "bytes":
        return Source.of_bytes(memoryview(CONTENT))
    made = Source(tmp_path / "x")
    if request.param == "read":
        assert made.data == CONTENT
    return made


def test_ranges_are_the_bytes_of_their_spans(source):
    assert [bytes(found) for found in source.ranges(SPANS)] == [CONTENT[start:end] for start, end in SPANS]
    assert source.ranges([]) == []


def test_what_was_asked_before_does_not_matter(source):
    assert source.head == CONTENT[:HEAD_BYTES]
    assert source.size == len(CONTENT)
    assert [bytes(found) for found in source.ranges(SPANS[:2])] == [CONTENT[start:end] for start, end in SPANS[:2]]
    assert source.data == CONTENT


def test_a_file_object_stands_where_it_stood():
    file = io.BytesIO(CONTENT)
    file.seek(33)
    Source(file).ranges(SPANS)
    assert file.tell() == 33


def test_ranges_open_a_file_once(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(CONTENT)
    opened, real = [], io.FileIO
    monkeypatch.setattr(io, "FileIO", lambda *args: opened.append(args) or real(*args))
    Source(tmp_path / "x").ranges(SPANS)
    assert len(opened) == 1


@pytest.mark.parametrize("size", [100, 1 << 17])
def test_a_file_that_is_read_is_opened_once_and_closed(tmp_path, size):
    (tmp_path / "x").write_bytes(CONTENT[:size])
    source = Source(tmp_path / "x", own=True)
    assert source.head == CONTENT[: min(size, HEAD_BYTES)]
    file = source.file
    assert source.data == CONTENT[:size]
    assert source.size == size
    assert source.file is None, "it is not opened again"
    assert file is None or file.closed
    source.close()


def test_only_files_are_opened_to_be_read(tmp_path):
    assert Source(tmp_path, own=True).file is None
    assert Source(tmp_path / "x").file is None
    assert not Source("memory://x").is_local
    assert storage.describe(tmp_path) == Source(tmp_path).path
