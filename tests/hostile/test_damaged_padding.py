"""Every truncation and every flipped bit of a file with padding, by every way of reading it.

test_sweeps.py has other files.

A `.tb` file is covered by checksums to the last bit, so no flip may load as anything.
The other formats have none: there a flip is an error of ours, or another sound tensor.
"""

import contextlib
import functools
import io

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors
from tests.support.golden import OBJECTS, write
from tests.support.tiers import deep_but
from tests.support.wire_bytes import framed, records

golden = functools.cache(write)


class Pipe:
    """A stream that can only be read onwards, a few bytes at a time."""

    def __init__(self, data):
        self._file = io.BytesIO(data)

    def read(self, size):
        return self._file.read(min(size, 1000))


def whole(raw):
    return tb.loads(raw, "tb")


def lazy(raw):
    with tb.open(io.BytesIO(raw), format="tb") as file:
        file.keys()
        return [entry.load() for entry in file.entries()]


def piped(raw):
    return list(tb.open(Pipe(raw)))


READERS = [whole, lazy, piped]


def refusal(read, raw):
    """The error that reading raises; None if it reads. Other exceptions pass, and fail the test."""
    try:
        read(raw)
    except errors.CorruptError as error:
        return error
    return None


def object_ends(raw):
    """Where a stream may be cut and still be one: after each whole object."""
    ends, at = {0}, 0
    for payload in records(raw):
        at += len(payload) + 16
        message = tb.formats.get("tb").decode(memoryview(raw[:at]), tb.errors.Limits(), False, {})
        try:
            list(message)
        except errors.CorruptError:
            continue
        ends.add(at)
    return ends


# Whose header has a checksum of its own, too large for each way of the sweeps; and where a stream may be cut.
LARGE = ["aligned", "stream"]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", LARGE)
def test_each_truncation_is_noticed(name, read):
    raw = golden(name)
    sound = object_ends(raw) if OBJECTS[name][1] else {0}
    assert len(sound) == (4 if OBJECTS[name][1] else 1)
    if read is whole:
        sound = sound - {0}  # there is no object in no bytes
    for size in range(len(raw)):
        error = refusal(read, raw[:size])
        assert (error is None) == (size in sound), f"cut to {size} bytes"
        assert error is None or 0 <= error.at <= size


def bits(raw):
    """Every bit; a part of those of a large file for the slow kernel."""
    return range(0, len(raw) * 8, 1 if tb.ACCELERATED or len(raw) < 1024 else 41)


@pytest.mark.parametrize("read", deep_but([whole], READERS))
@pytest.mark.parametrize("name", LARGE)
def test_no_flipped_bit_loads_as_anything(name, read):
    raw = bytearray(golden(name))
    for bit in bits(raw):
        raw[bit // 8] ^= 1 << bit % 8
        error = refusal(read, bytes(raw))
        assert error is not None, f"bit {bit}"
        assert 0 <= error.at <= len(raw)
        raw[bit // 8] ^= 1 << bit % 8
    assert refusal(read, bytes(raw)) is None


@pytest.mark.parametrize("name", LARGE)
def test_damage_without_a_word_on_the_format(name):
    raw = bytearray(golden(name))
    for bit in range(0, len(raw) * 8, 3 if len(raw) < 1024 else 101):
        raw[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.TensorbytesError):
            tb.loads(bytes(raw))
        raw[bit // 8] ^= 1 << bit % 8


def test_a_flip_after_the_header_checksum_is_noticed_before_a_slice_is_read():
    # The content's own tag and length stand between the checksum and the content.
    raw = golden("aligned")
    content = raw.index(np.arange(1030, dtype=np.float32).tobytes())
    for bit in range((content - 3) * 8, content * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.CorruptError), tb.open(io.BytesIO(bytes(damaged)), format="tb") as file:
            file["x"][:3]


# ---- formats without checksums ----------------------------------------------


def proto(name):
    (obj,) = OBJECTS[name][0]
    return tb.dumps(obj, "tensorproto", allow={"encoding"})


RAW_FIELDS = {"a": ("bool", (3,)), "b": ("float32", (2, 2)), "c": ("int4", (3,))}
PLAIN = {
    "tensorproto dense": (proto("dense"), "tensorproto", {}),
    "tensorproto scalar": (proto("scalar"), "tensorproto", {}),
    "tensorproto empty": (proto("empty"), "tensorproto", {}),
    "tensorproto bool": (proto("bool"), "tensorproto", {}),
    "tensorproto strings": (proto("strings"), "tensorproto", {}),
    "tensorproto with extension fields": (records(golden("nested"))[1], "tensorproto", {}),
    "tensorproto ragged": (records(golden("ragged"))[0], "tensorproto", {}),
    "sparseproto": (tb.dumps(OBJECTS["coo"][0][0], "sparseproto"), "sparseproto", {}),
    "sparseproto rows": (tb.dumps(OBJECTS["coo"][0][0], "sparseproto", many=True), "sparseproto", {}),
    "raw": (bytes(range(24)), "raw", {"dtype": "float32", "shape": (2, 3)}),
    "raw big-endian": (bytes(range(24)), "raw", {"dtype": "int16", "shape": (3, 4), "byteorder": ">", "order": "F"}),
    "raw fields": (b"\x01\x00\x01" + bytes(16) + b"\x0f\x00\x07", "raw", {"fields": RAW_FIELDS}),
}


def verdict(raw, format, options):
    """Whether it reads; every refusal must tell where."""
    try:
        tb.loads(raw, format, to="tensor", **options)
    except errors.CorruptError as error:
        assert 0 <= error.at <= len(raw), error  # noqa: PT017
        return False
    except (errors.LimitError, errors.UnsupportedError) as error:
        assert "(byte " in str(error), error  # noqa: PT017
        return False
    with contextlib.suppress(errors.UnsupportedError):  # NumPy may have no such dtype
        tb.loads(raw, format, **options)
    return True


@pytest.mark.parametrize("case", PLAIN)
def test_each_truncation_of_formats_without_checksums(case):
    raw, format, options = PLAIN[case]
    assert verdict(raw, format, options)
    read = [size for size in range(len(raw)) if verdict(raw[:size], format, options)]
    if format == "raw":
        assert read == []
    else:
        # What is left may be a TensorProto in its own right, but only one cut between fields.
        assert len(read) <= 8, read


@pytest.mark.parametrize("case", PLAIN)
def test_each_flipped_bit_of_formats_without_checksums(case):
    raw, format, options = PLAIN[case]
    read = 0
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << bit % 8
        read += verdict(bytes(damaged), format, options)
    assert read < len(raw) * 8 or case in ("raw", "raw big-endian")


def test_checksums_alone_make_the_difference():
    # The same flips inside a frame, with checksums to match, are those of a TensorProto.
    (payload,) = records(golden("dense"))
    damaged = payload[:-1] + bytes([payload[-1] ^ 1])
    assert not np.array_equal(tb.loads(framed(damaged)), OBJECTS["dense"][0][0])
