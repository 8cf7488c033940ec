"""The compiled kernel against its reference twin, on inputs that speak the wire grammar."""

import struct

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import reference

KERNELS = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])


def outcome(function, *args):
    """A call's value, or the kind of exception it raised."""
    try:
        return function(*args)
    except (IndexError, ValueError) as error:
        return type(error)


def agree(name, *args):
    assert outcome(getattr(compiled, name), *args) == outcome(getattr(reference, name), *args)


# ---- the grammar ------------------------------------------------------------

# Varints of every length, the 64-bit border, cut and overlong ones.
varints = st.one_of(
    st.integers(0, 2**64 - 1).map(reference.varint),
    st.tuples(st.integers(0, 12), st.sampled_from([b"", b"\x00", b"\x01", b"\x02", b"\x7f"])).map(
        lambda run: b"\xff" * run[0] + run[1]
    ),
    st.integers(0, 9).map(lambda n: b"\x80" * n + b"\x00"),
)


def delimited(tag, content):
    """A length-delimited field whose length is mostly true."""
    true = content.map(lambda data: tag + reference.varint(len(data)) + data)
    lying = st.tuples(varints, content).map(lambda pair: tag + pair[0] + pair[1])
    return st.one_of(true, true, true, lying)


dims = st.one_of(st.just(b"\x12\x00"), delimited(b"\x12", st.one_of(st.just(b""), varints.map(lambda v: b"\x08" + v))))
shapes = delimited(b"\x12", st.lists(dims, max_size=4).map(b"".join))
contents = delimited(b"\x22", st.binary(max_size=20))
others = st.sampled_from([b"", b"", b"\x18\x00", b"\x42\x01a", b"\x0b\x0c", b"\xc2\x3e\x01w", b"\xe8", b"\x9d\x3f"])
names = st.one_of(
    st.just(b""), st.just(b""), delimited(b"\xc2\x3e", st.sampled_from([b"", b"w", b"\0", b"\x80", b"a\xff"]))
)
items = st.one_of(st.just(b""), varints.map(lambda v: b"\xe8\x3e" + v))
paddings = st.one_of(st.just(b""), delimited(b"\x92\x3f", st.integers(0, 20).map(bytes)))


@st.composite
def tensors(draw):
    """The plain form of a TensorProto, with the frame's fields, or nearly so."""
    head = draw(varints.map(lambda v: b"\x08" + v)) + draw(shapes) + draw(others) + draw(names)
    head += draw(items) + draw(paddings)
    crc = struct.pack("<I", reference.mask(reference.crc32c(head)))
    ending = draw(st.sampled_from([b"", b"", b"\x9d\x3f" + crc, b"\x9d\x3f" + crc[::-1], b"\x9d\x3f" + crc[:3]]))
    return head + ending + draw(contents) + draw(others)


tensors = tensors()


def framed(payload):
    return reference.frames([[payload]])


records = st.lists(st.one_of(tensors, st.binary(max_size=40)).map(framed), max_size=5).map(b"".join)


@st.composite
def damaged(draw):
    """Records, whole, cut, or with a byte changed."""
    data = bytearray(draw(records))
    if data and draw(st.booleans()):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data)


# ---- parity -----------------------------------------------------------------


@given(tensors)
def test_plain_tensors_agree(data):
    agree("plain_tensor", data, 0, len(data))


@given(tensors, st.integers(0, 12), st.integers(0, 12))
def test_plain_tensors_agree_inside_a_buffer(data, before, less):
    agree("plain_tensor", b"\x08" * before + data, before, max(before, before + len(data) - less))


@given(
    st.lists(st.one_of(tensors, others, varints, contents), max_size=4).map(b"".join), st.sampled_from([0, 0x42, 0x22])
)
def test_fields_agree(data, stop):
    agree("fields", data, 0, len(data), stop)


@given(damaged(), st.booleans(), st.integers(0, 7))
def test_scans_agree(data, verify, room):
    results = []
    for kernel in (compiled, reference):
        out = np.full((room, 2), -1, np.int64)
        found, *where = kernel.scan(data, 0, verify, out)
        results.append((found, where, out[:found].tolist()))  # after those found, anything
    assert results[0] == results[1]


@given(damaged())
def test_plain_records_agree(data):
    agree("plain_record", data)


@KERNELS
def test_a_plain_record_is_one_and_whole(kernel):
    record = framed(b"\x08\x01\x12\x04\x12\x02\x08\x02\x22\x08" + bytes(8))  # two floats
    assert kernel.plain_record(record) == kernel.plain_tensor(record, 12, len(record) - 4) is not None
    for other in (b"", record[:-1], record + b"\0", record + record, record[:-1] + b"\0"):
        assert kernel.plain_record(other) is None


@KERNELS
@pytest.mark.parametrize("name", [b"", b"w", b"a\0b" * 50, "ä".encode(), b"\xff"])
def test_a_name_is_passed_over_in_a_record_alone(kernel, name):
    field = b"\xc2\x3e" + reference.varint(len(name)) + name
    record = framed(b"\x08\x01\x12\x04\x12\x02\x08\x02" + field + b"\x22\x08" + bytes(8))
    found = (1, (2,), 12 + 8 + len(field) + 2, 8, 0) if name.isascii() else None
    assert kernel.plain_record(record) == found
    assert kernel.plain_tensor(record, 12, len(record) - 4) is None


@given(st.lists(delimited(b"\x42", st.binary(max_size=200)), max_size=6).map(b"".join), st.integers(0, 4))
def test_unpacked_strings_agree(data, cut):
    agree("strings_unpack", data, 0, len(data), 0x42)
    agree("strings_unpack", data, 0, max(0, len(data) - cut), 0x42)


@given(st.lists(st.binary(max_size=300), max_size=8))
def test_strings_survive_packing(items):
    offsets = np.cumsum([0] + [len(item) for item in items])
    data = b"".join(items)
    packed = compiled.strings_pack(0x42, offsets, data)
    assert packed == reference.strings_pack(0x42, offsets, data)
    for kernel in (compiled, reference):
        bounds, raw, stop = kernel.strings_unpack(packed, 0, len(packed), 0x42)
        assert (list(np.frombuffer(bounds, np.int64)), raw, stop) == (offsets.tolist(), data, len(packed))


@pytest.mark.parametrize("offsets", [[], [0, 3, 2], [-1, 2], [0, 5]], ids=str)
@KERNELS
def test_bad_string_offsets_are_refused(kernel, offsets):
    with pytest.raises(ValueError, match="offsets must rise"):
        kernel.strings_pack(0x42, np.array(offsets, np.int64), b"abc")


@given(st.lists(st.lists(st.binary(max_size=40), max_size=3), max_size=4))
def test_frames_agree(parts):
    agree("frames", parts)


@given(st.integers(0, 2**64 - 1))
def test_frame_headers_agree(length):
    agree("frame_header", length)


@KERNELS
def test_positions_outside_the_buffer_are_refused(kernel):
    with pytest.raises(IndexError, match="outside"):
        kernel.plain_tensor(b"abc", 0, 4)
    with pytest.raises(IndexError, match="outside"):
        kernel.scan(b"abc", 4, True, np.empty((1, 2), np.int64))


# ---- checksums --------------------------------------------------------------

# Around every size at which an implementation changes its way.
SIZES = [*range(70), 255, 256, 257, 767, 768, 769, 4095, 4096, 12287, 12288, 12289, 65535, 65536, 65537, 300_001]


@KERNELS
@pytest.mark.parametrize("size", SIZES)
def test_crc32c_is_googles(kernel, size):
    data = np.random.default_rng(size).bytes(size)
    assert kernel.crc32c(data) == google_crc32c.value(data)
    third = size // 3
    assert kernel.crc32c(data[third:], kernel.crc32c(data[:third])) == google_crc32c.value(data)


@pytest.mark.parametrize("size", SIZES)
def test_the_portable_crc_agrees(size):
    data = np.random.default_rng(size).bytes(size)
    assert compiled.crc32c_portable(data) == google_crc32c.value(data)


def test_a_long_reference_checksum_uses_blocks():
    data = np.random.default_rng(0).bytes((1 << 24) + 12345)
    assert reference.crc32c(data) == google_crc32c.value(data)


@pytest.mark.parametrize("size", [4 << 20, (4 << 20) + 1, (10 << 20) + 4097])
def test_large_records_are_copied_and_summed_in_halves(size):
    data = np.random.default_rng(size).bytes(size)
    record = compiled.frames([[b"abc", data, b"d"]])
    assert record == compiled.frame(b"abc", data + b"d")
    assert record[12:-4] == b"abc" + data + b"d"
    assert struct.unpack("<I", record[-4:]) == (reference.mask(google_crc32c.value(b"abc" + data + b"d")),)


@KERNELS
def test_known_records(kernel):
    assert kernel.frames([[b""]]).hex() == "000000000000000029039807d8ea82a2"
    assert kernel.frame(b"a", b"bc").hex() == "0300000000000000b099490e6162636e57f121"


@KERNELS
def test_misaligned_buffers(kernel):
    data = np.random.default_rng(1).bytes(5000)
    for start in range(9):
        assert kernel.crc32c(memoryview(data)[start:]) == google_crc32c.value(data[start:])


@KERNELS
def test_lengths_that_wrap_around(kernel):
    for length in (2**64 - 1, 2**64 - 4, 2**64 - 16, 2**63):
        size = struct.pack("<Q", length)
        header = size + struct.pack("<I", reference.mask(reference.crc32c(size)))
        out = np.empty((1, 2), np.int64)
        assert kernel.scan(header + bytes(64), 0, True, out) == (0, 0, reference.CUT_PAYLOAD)


def test_a_shrinking_buffer_is_noticed():
    class Shrinking(list):
        """A sequence whose second look is longer than its first."""

        looks = 0

        def __getitem__(self, index):
            Shrinking.looks += 1
            return bytes(10 * Shrinking.looks)

    with pytest.raises(BufferError, match="changed its size"):
        compiled.frames([Shrinking([0])])


def test_the_choice_of_kernel_is_honoured():
    import os

    wanted = os.environ.get("TENSORBYTES_KERNEL", "auto")
    assert (wanted != "reference") == _wire.ACCELERATED
