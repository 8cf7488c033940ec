"""Objects of plain tensors in one call of the kernel: compiled against reference, and both against the general way."""

import io
import json
import struct
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import _wire, api
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import objects_reference as reference
from tensorbytes._wire.common import varint
from tensorbytes._wire.reference import frames
from tensorbytes.formats import _shortcut as shortcut
from tensorbytes.formats import frame
from tensorbytes.formats._safetensors import header as header_module
from tensorbytes.formats._tensorproto import head
from tests.unit.test_kernel import outcome

SIZES = shortcut._table(None).sizes
CODES = shortcut._ARRAY_CODES


def agree(name, *args):
    found = outcome(getattr(compiled, name), *args)
    assert outcome(getattr(reference, name), *args) == found
    return found


def general(obj, item=0):
    """The bytes that the general writer makes."""
    document = api.to_document(obj)._replace(item=item)
    payloads = frame.records(document) if item else frame.whole(document)
    return frames(list(payloads))


def rows_of(obj):
    items = obj.items() if isinstance(obj, dict) else enumerate(obj) if isinstance(obj, list | tuple) else [(None, obj)]
    return [(head(CODES[x.dtype], x.shape), key if isinstance(obj, dict) else None, b"", x) for key, x in items]


def container_of(obj):
    return {dict: 1, list: 2, tuple: 3}.get(type(obj), 0)


arrays = st.builds(
    lambda shape, dtype: (np.arange(int(np.prod(shape)), dtype=np.int64) % 2).astype(dtype).reshape(shape),
    st.lists(st.sampled_from([0, 1, 2, 3, 130]), max_size=2).map(tuple),
    st.sampled_from([np.float32, np.int8, np.bool_, np.complex128, np.uint64, np.float16]),
)
names = st.text(st.characters(codec="utf-8"), max_size=6)
objects = st.one_of(
    arrays,
    st.dictionaries(names, arrays, min_size=1, max_size=6),
    st.lists(arrays, min_size=1, max_size=12),
    st.lists(arrays, min_size=1, max_size=3).map(tuple),
)


@given(objects, st.sampled_from([0, 1, 127, 128, 1 << 40]), st.integers(0, 200))
def test_writing_gives_the_bytes_of_the_general_writer(obj, item, at):
    made = agree("objects_write", rows_of(obj), container_of(obj), item, at, 1 << 22)
    if at == 0:
        assert made == general(obj, item)


@given(objects, st.sampled_from([0, 1]))
def test_reading_gives_back_what_was_written(obj, item):
    raw = general(obj, item)
    for copy in (0, 1):
        found, end, last = agree("objects_read", raw, 0, max(item - 1, 0), 100, SIZES, copy)
        assert (len(found), end, last) == (1, len(raw), item)
    whole = shortcut.load_objects(memoryview(raw), 0, max(item - 1, 0), None)
    assert tb.equal(whole.made[0], obj)
    (other,) = tb.load(io.BytesIO(raw)) if item else [tb.load(io.BytesIO(raw))]  # by the general parser
    assert tb.equal(whole.made[0], other)


@given(st.lists(objects, min_size=1, max_size=4), st.data())
def test_damaged_and_other_bytes_end_the_reading_alike(many, data):
    raw = bytearray(b"".join(general(obj, number + 1) for number, obj in enumerate(many)))
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.sampled_from([1, 2, 0x10, 0x80, 0xFF]))
    agree("objects_read", bytes(raw[: data.draw(st.integers(0, len(raw)))]), 0, 0, 100, SIZES, 0)


fields = st.sampled_from(
    [
        b"", b"\xc2\x3e\x01a", b"\xc2\x3e\x010", b"\xc2\x3e\x02\xc3\xa9", b"\xc2\x3e\x01\xff", b"\xd2\x3e\x02\x28\x01",
        b"\xd2\x3e\x02\x18\x00", b"\xd2\x3e\x02\x20\x00", b"\xd2\x3e\x02\x28\x02", b"\xd2\x3e\x00",
        b"\xd8\x3e\x00\xe0\x3e\x01",
        b"\xd8\x3e\x00\xe0\x3e\x02", b"\xd8\x3e\x01\xe0\x3e\x02", b"\xd8\x3e\x00", b"\xe8\x3e\x01", b"\xe8\x3e\x05",
        b"\xb2\x3f\x12\x0a\x09framework\x12\x05torch", b"\xb2\x3f\x08\x0a\x01x\x12\x03abc", b"\xe2\x5d\x00",
        b"\xe2\x5d\x02\x0a\x00", b"\x92\x3f\x03\0\0\0", b"\x9d\x3f\0\0\0\0", b"\x18\x00", b"\x42\x01a",
    ]
)  # fmt: skip


@given(st.lists(st.lists(fields, max_size=6), min_size=1, max_size=3), st.booleans(), st.integers(0, 2))
def test_records_that_say_more_are_read_alike_or_not_at_all(records, in_order, item):
    payloads = []
    for drawn in records:
        drawn = sorted(drawn, key=lambda raw: (raw[1:2], raw[:1])) if in_order else drawn
        payloads.append([head(1, (1,)) + b"".join(drawn) + b"\x22\x04abcd"])
    agree("objects_read", frames(payloads), 0, item, 100, SIZES, 0)


@given(st.binary(max_size=60))
def test_any_payload_is_read_alike(payload):
    agree("objects_read", frames([[payload]]), 0, 0, 10, SIZES, 0)


def test_header_checksums_are_looked_at():
    obj = {"a": np.ones(2000), "b": np.ones(1500)}
    raw = general(obj)
    assert agree("objects_read", raw, 0, 0, 10, SIZES, 0)[1] == len(raw)
    (length,) = struct.unpack_from("<Q", raw)
    payload = bytearray(raw[12 : 12 + length])
    at = payload.index(b"\x9d\x3f")
    payload[at + 3] ^= 1
    other = frames([[bytes(payload)]]) + raw[16 + length :]
    assert agree("objects_read", other, 0, 0, 10, SIZES, 0) == ([], 0, 0)
    with pytest.raises(tb.errors.CorruptError, match="checksum of the record's header"):
        tb.loads(other)


@pytest.mark.parametrize("change", ["name", "size", "dims", "dtype", "lengths", "kind", "more"])
def test_a_directory_that_lies_is_left_to_the_general_parser(change):
    obj = {"a": np.ones(2), "b": np.ones((3, 2))}
    raw = general(obj)
    (length,) = struct.unpack_from("<Q", raw)
    payload = raw[12 : 12 + length]
    tag = payload.index(b"\xe2\x5d")
    end = tag + 3 + payload[tag + 2]
    told = payload[tag + 3 : end]
    (size,) = struct.unpack_from("<I", told, len(told) - 4)
    lie = {
        "name": (b"ab", b"ac"), "size": (struct.pack("<I", size), struct.pack("<I", size + 1)),
        "dims": (b"\x32\x03\x04\x06\x04", b"\x32\x03\x04\x04\x06"), "dtype": (b"\x1a\x02\x02\x02", b"\x1a\x02\x02\x09"),
        "lengths": (b"\x12\x02\x01\x01", b"\x12\x02\x00\x02"), "kind": (b"\x22\x02\x00\x00", b"\x22\x02\x00\x10"),
        "more": (b"\x0a\x02ab", b"\x0a\x02ab\x0a\x02ab"),
    }[change]  # fmt: skip
    assert told.count(lie[0]) == 1
    told = told.replace(*lie)
    made = payload[:tag] + b"\xe2\x5d" + varint(len(told)) + told + payload[end:]
    other = frames([[made]]) + raw[16 + length :]
    assert agree("objects_read", other, 0, 0, 10, SIZES, 0) == ([], 0, 0)
    with pytest.raises(tb.errors.CorruptError, match="directory"):
        tb.loads(other)


def test_what_the_general_writer_must_write():
    x = np.ones(3, np.float32)
    row = (head(1, (3,)), "a", b"", x)
    assert agree("objects_write", [row, (*row[:1], "b", b"", x)], 1, 0, 0, 100) is None, "the same memory twice"
    assert agree("objects_write", [row, (*row[:1], "b", b"", x[:])], 1, 0, 0, 100) is None
    assert agree("objects_write", [row], 1, 0, 0, 11) is None, "too much"
    assert agree("objects_write", [], 1, 0, 0, 11) is None
    assert agree("objects_write", [row, row], 0, 0, 0, 100) is None
    assert agree("objects_write", [(b"\x08", "a", b"", x)], 1, 0, 0, 100) is None
    bools = np.array([0, 2], np.uint8).view(bool)
    for code in (b"\x0a", b"\x8a\x00"):  # however the number of the dtype is written
        row = (b"\x08" + code + head(10, (2,))[2:], "a", b"", bools)
        assert agree("objects_write", [row], 1, 0, 0, 100) is None
    assert agree("objects_write", [(head(1, (3,)), "\ud800", b"", x)], 1, 0, 0, 100) is UnicodeEncodeError
    assert agree("objects_write", [(head(1, (2,)), "a", b"", np.ones(4, np.float32)[::2])], 1, 0, 0, 100) is ValueError


class _Text(str):
    __slots__ = ()

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)


@pytest.mark.parametrize("keys", [[_Text("a")], ["a", _Text("a")], [np.str_("a")]], ids=["own", "twice", "numpy"])
def test_keys_that_are_more_than_text_are_refused(tmp_path, keys):
    obj = {key: np.full(3, number) for number, key in enumerate(keys)}
    for kernel in (compiled, reference):
        with pytest.raises(TypeError, match="a key must be text"):
            kernel.objects_write(rows_of(obj), 1, 0, 0, 100)
    with pytest.raises(tb.errors.UnsupportedError, match="a dict key must be"):
        tb.dumps(obj)
    with pytest.raises(tb.errors.UnsupportedError, match="a dict key must be"):
        tb.save(obj, tmp_path / "x.tb")
    with tb.open(tmp_path / "y.tb", "w") as writer, pytest.raises(tb.errors.UnsupportedError, match="dict key"):
        writer.write(obj)


@pytest.mark.skipif(not _wire.ACCELERATED, reason="the twin reads arrays twice, and promises nothing about such a race")
@pytest.mark.parametrize(("count", "size"), [(50, 3000), (1, 1 << 18), (1, 1 << 21)], ids=["many", "one", "large"])
def test_what_changes_while_it_is_written_still_fits_its_checksum(count, size):
    obj = {str(number): np.zeros(size, np.float32) for number in range(count)}
    stop = threading.Event()

    def change():
        while not stop.is_set():
            for x in obj.values():
                x += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(40):
            assert len(tb.loads(tb.dumps(obj))) == count
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])
def test_wrong_calls(kernel):
    for args in [(b"", 1, 0, 1, SIZES, 0), (b"", 0, 0, -1, SIZES, 0), (b"", 0, 0, 1, SIZES, 2)]:
        with pytest.raises(IndexError):
            kernel.objects_read(*args)
    with pytest.raises(ValueError, match="256"):
        kernel.objects_read(b"", 0, 0, 1, b"", 0)
    with pytest.raises(IndexError):
        kernel.objects_write([], 4, 0, 0, 0)
    with pytest.raises(TypeError):
        kernel.header_read(bytearray(b"{}"), 0, (b"F32",), b"\x20")
    with pytest.raises(ValueError, match="dtypes"):
        kernel.header_read(b"{}", 0, (b"F32",), b"")
    with pytest.raises(ValueError, match="dtypes"):
        kernel.header_read(b"{}", 0, (b"F" * 16,), b"\x20")


# ---- headers of safetensors files ------------------------------------------------------


def read_header(raw, size):
    return agree("header_read", raw, size, header_module._KERNEL_NAMES, header_module._KERNEL_BITS)


def dumped(entries):
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()


shapes = st.lists(st.sampled_from([0, 1, 2, 10, 10**17, 10**18]), max_size=3)
places = st.integers(0, 40)
entries = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "U8", "BF16", "F4", "X", ""]),
        "shape": shapes,
        "data_offsets": st.tuples(places, places),
    }
)


@given(
    st.dictionaries(names, st.one_of(entries, st.dictionaries(names, names, max_size=2)), max_size=3),
    st.integers(0, 80),
)
def test_headers_are_read_alike(drawn, size):
    read_header(dumped(drawn), size)


@given(st.data())
def test_headers_with_other_bytes_are_read_alike(data):
    a = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    b = {"dtype": "I8", "shape": [], "data_offsets": [8, 9]}
    raw = bytearray(dumped({"__metadata__": {"format": "pt"}, "a": a, "b": b}))
    assert read_header(bytes(raw) + b"  ", 9) is not None
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(raw) - 1))
        piece = data.draw(st.sampled_from([b"", b'"', b"0", b",", b"9", b"\\", b" ", b"\xff", b"01", b'""', b'"":""']))
        raw[at : at + data.draw(st.integers(0, 1))] = piece
    read_header(bytes(raw), 9)


@pytest.mark.parametrize(
    ("entry", "size"),
    [
        ('"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}', 1),
        ('"a":{"dtype":"U8","shape":[00],"data_offsets":[0,0]}', 0),
        ('"a":{"dtype":"U8","shape":[1,01],"data_offsets":[0,1]}', 1),
        ('"a":{"dtype":"U8","shape":[1,],"data_offsets":[0,1]}', 1),
        ('"a":{"dtype":"U8","shape":[,1],"data_offsets":[0,1]}', 1),
        ('"a":{"dtype":"U8","shape":[1],"data_offsets":[00,1]}', 1),
        ('"__metadata__":{"a":"b""c":"d"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}', 1),
        ('"__metadata__":{"a":"b",},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}', 1),
        ('"__metadata__":{,},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}', 1),
    ],
)
def test_headers_that_are_not_json_are_not_read(entry, size):
    raw = f"{{{entry}}}".encode()
    with pytest.raises(json.JSONDecodeError):
        json.loads(raw)
    assert read_header(raw, size) is None
    with pytest.raises(tb.errors.CorruptError):
        tb.loads(len(raw).to_bytes(8, "little") + raw + bytes(size), "safetensors")


@given(
    st.dictionaries(
        names.filter(lambda name: name != "__metadata__"), arrays.filter(lambda x: x.dtype.kind != "c"), min_size=1
    )
)
def test_files_of_the_library_are_read_by_the_kernel(drawn):
    from safetensors.numpy import save

    raw = save(drawn, {"format": "np"})
    got = tb.loads(raw, "safetensors")
    assert tb.equal(got, {name: drawn[name] for name in got})
    assert got.keys() == drawn.keys()
    size = int.from_bytes(raw[:8], "little")
    text = raw[8 : 8 + size]
    found = read_header(text, len(raw) - 8 - size)
    assert (found is None) == (b"\\" in text)


def test_names_that_appear_twice_are_refused():
    entry = '"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    raw = f"{{{entry},{entry}}}".encode()
    with pytest.raises(tb.errors.CorruptError, match="twice"):
        tb.loads(len(raw).to_bytes(8, "little") + raw, "safetensors")
