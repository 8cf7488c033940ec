"""Streams of records in every compression, and what reading them gives."""

import io
import random
import threading

import pytest

from tensorbytes.errors import CorruptError
from tensorbytes.formats.tfrecord.files.bytestreams import open_stream
from tensorbytes.io.streams.encoders import open_encoder

PACKED = ("gzip", "zlib", "snappy")


def threads_left():
    """The threads of sources that nobody closed."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("tensorbytes")]


def some_records(count=20, size=40, seed=0):
    rng = random.Random(seed)
    return [bytes(rng.choices(b"abcdefghij", k=rng.randint(0, size))) for _ in range(count)]


def pack(name, *pieces, level=None):
    """Each piece is flushed."""
    packer = open_encoder(name, level)
    out = b"".join(bytes(packer.compress(piece)) + bytes(packer.flush()) for piece in pieces)
    return out + bytes(packer.finish())


def drain(source, room=1 << 16):
    """Everything that a source gives, and the error it ends with, which must come again."""
    out, view = bytearray(), memoryview(bytearray(room))
    failure = None
    try:
        while count := source.readinto(view):
            out += view[:count]
        assert source.readinto(view) == 0
    except CorruptError as error:
        failure = error
    if failure is not None:
        with pytest.raises(CorruptError) as again:
            source.readinto(view)
        assert str(again.value) == str(failure)
    return bytes(out), failure


def unpack(data, name="auto", **options):
    with open_stream(io.BytesIO(data), name, **options) as source:
        return drain(source)


def unpack_whole(data, name="auto", **options):
    out, error = unpack(data, name, **options)
    assert error is None
    return out


class Pipe(io.RawIOBase):
    """Neither seeks nor gives more than so many bytes at a time."""

    def __init__(self, data, most=1):
        self._data, self._most = io.BytesIO(data), most

    def readable(self):
        return True

    def read(self, size=-1):
        return self._data.read(min(size, self._most))
