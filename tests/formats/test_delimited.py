"""Size-delimited protobuf messages: any structure, or a stream, in the framing of protobuf's libraries."""

import io
import struct

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes, errors, formats
from tensorbytes.testing import bits
from tests.formats.test_golden_files import VALID, same
from tests.support.generated_code import message, parse, parse_stream, serialize_stream
from tests.support.golden import OBJECTS, write
from tests.support.holding import holder
from tests.support.hostile_cases import CASES, Refused, Shaped
from tests.support.wire_bytes import INT64, framed, number, overlong, records, tensor, varint
from tests.support.wire_bytes import field as put

FORMAT = formats.get("delimited")


def delimit(*messages):
    return b"".join(varint(len(raw)) + raw for raw in messages)


def golden(name):
    """The object, or the whole stream, in this format."""
    objects, stream = OBJECTS[name]
    return delimit(*records(write(name))) if stream else tb.dumps(objects[0], "delimited")


def expected(name):
    objects, stream = OBJECTS[name]
    return objects if stream else objects[0]


NESTED = {
    "w": np.arange(2048, dtype=np.float32),
    "texts": np.array(["a", "ü"]),
    "deep": [{"x": np.ones(2)}, (None, {-3: 1.5, 4: b"\xff"}), [], {}],
    "ragged": tb.Ragged(tb.Tensor("int32", (3,), np.arange(3, dtype="<i4")), (np.array([0, 1, 3]),)),
    "csr": OBJECTS["csr"][0][0],
    "n": 1 << 70,
}


# ---- protobuf's library -----------------------------------------------------


def test_the_library_reads_a_structure():
    raw = tb.dumps(NESTED, "delimited", meta={"run": "7"})
    messages = parse_stream(raw)
    names = [
        "w",
        "texts",
        "deep/0/x",
        "deep/1/0",
        "deep/1/1/-3",
        "deep/1/1/4",
        "deep/2",
        "deep/3",
        "ragged",
        "csr",
        "n",
    ]
    assert [made.name for made in messages] == names
    assert [(made.part, made.parts) for made in messages] == [(i, len(names)) for i in range(len(names))]
    assert [dict(made.document) for made in messages] == [{"run": "7"}] + [{}] * (len(names) - 1)
    by_name = {made.name: made for made in messages}
    assert by_name["w"].tensor_content == NESTED["w"].tobytes()
    assert by_name["w"].path[0].named
    assert not by_name["w"].header_crc
    assert not by_name["w"].padding
    assert [step.WhichOneof("step") for step in by_name["deep/1/1/-3"].path] == ["key", "list", "tuple", "number"]
    assert by_name["deep/1/1/-3"].path[3].number == -3
    assert [by_name[name].kind for name in ("deep/1/0", "deep/1/1/4", "deep/2", "n")] == [
        "none",
        "bytes",
        "list",
        "int",
    ]
    splits, values = (parse(part) for part in by_name["ragged"].string_val)
    assert np.frombuffer(splits.tensor_content, "<i8").tolist() == [0, 1, 3]
    assert np.frombuffer(values.tensor_content, "<i4").tolist() == [0, 1, 2]


def test_we_read_a_structure_that_the_library_wrote():
    """It writes fields by their numbers, so names and paths come after the values."""
    raw = tb.dumps(NESTED, "delimited", meta={"run": "7"})
    again = serialize_stream(parse_stream(raw))
    assert again != raw
    for data in (raw, again):
        for format in (None, "delimited"):
            assert tb.equal(tb.loads(data, format, to="tensor"), NESTED)
            file = tb.open(io.BytesIO(data), format=format)
            assert file.format == "delimited"
            assert file.meta == {"run": "7"}


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_every_dtype_both_ways(name):
    dims = [(), (1,), (0,), (0, 3), (3, 0, 2), (2, 3, 4), (1500,)]
    values = {
        f"x{i}": tb.Tensor(name, shape, bits.content(name, shape), meta={"i": str(i)}) for i, shape in enumerate(dims)
    }
    messages = parse_stream(tb.dumps(values, "delimited"))
    for made, value in zip(messages, values.values(), strict=True):
        assert made.dtype == dtypes.get(name).code
        assert [dim.size for dim in made.tensor_shape.dim] == list(value.shape)
        assert made.tensor_content == bytes(value.data)
        assert dict(made.meta) == value.meta
    back = tb.loads(serialize_stream(messages), to="tensor")
    assert tb.equal(back, values)
    assert [value.meta for value in back.values()] == [value.meta for value in values.values()]


def test_a_plain_stream_of_the_library_is_a_list():
    messages = [message(9, (2,), tensor_content=struct.pack("<2q", n, -n)) for n in range(1, 4)]
    raw = serialize_stream(messages)
    assert [x.tolist() for x in tb.loads(raw)] == [[1, -1], [2, -2], [3, -3]]
    assert tb.loads(serialize_stream(messages[:1])).tolist() == [1, -1]
    for n, made in enumerate(messages):
        made.item = n + 1
    assert [x.tolist() for x in tb.loads(serialize_stream(messages[:1]))] == [[1, -1]]


# ---- whatever goes in comes out ---------------------------------------------


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_and_streams(name, tmp_path):
    raw = golden(name)
    (tmp_path / "x.pbs").write_bytes(raw)
    (tmp_path / "x").write_bytes(raw)
    for path in ("x.pbs", "x"):
        same(tb.load(tmp_path / path), expected(name))
        same(tb.load(tmp_path / path, "delimited", mmap=True), expected(name))
        with tb.open(tmp_path / path) as file:
            assert file.format == "delimited"
            objects, _ = OBJECTS[name]
            same(list(file), objects)
            same([file[i] for i in range(len(file))], objects)
            assert file.verify() == len(objects)


@pytest.mark.parametrize("name", OBJECTS)
def test_the_bytes_never_change(name):
    """Written once; other bytes are another version of the format."""
    assert golden(name) == (VALID / f"{name}.pbs").read_bytes()


def test_the_suffix_chooses(tmp_path):
    tb.save(NESTED, tmp_path / "x.pbs", meta={"run": "7"})
    assert (tmp_path / "x.pbs").read_bytes() == tb.dumps(NESTED, "delimited", meta={"run": "7"})


def test_a_name_and_metadata_of_one_tensor():
    back = tb.loads(tb.dumps(np.ones(2), "delimited", name="n", meta={"k": "v"}), to="tensor")
    assert (back.name, back.meta) == ("n", {"k": "v"})


def test_bytes_one_after_another_are_their_objects_one_after_another():
    raw = tb.dumps({"a": 1, "b": [np.ones(2), "x"]}, "delimited") + tb.dumps("text", "delimited")
    first, second = tb.loads(raw)
    assert (first["a"], first["b"][0].tolist(), first["b"][1], second) == (1, [1.0, 1.0], "x", "text")
    stream = golden("stream")
    same(tb.loads(stream + stream), expected("stream") * 2)


def test_the_same_input_gives_the_same_bytes():
    def make(meta):
        return tb.dumps({"b": np.ones(5000), "a": [1, "x", None]}, "delimited", meta=meta)

    assert make({"k": "v", "a": "b"}) == make({"a": "b", "k": "v"})


def test_tensors_are_not_copied():
    x = np.arange(1 << 16, dtype=np.float32)
    pieces = tb.buffers({"x": x, "y": 1}, "delimited")
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), x) for piece in pieces if len(piece))


# ---- sniffing ---------------------------------------------------------------


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_every_first_message_is_recognised(name):
    for dims in [(), (0,), (0, 0), (0, 0, 0), (2,), (3, 1), (300, 2), (1,) * 40]:
        value = tb.Tensor(name, dims, bits.content(name, dims))
        for raw in (tb.dumps(value, "delimited"), tb.dumps({"a": value, "b": 1}, "delimited")):
            for data in (raw, raw * 2):
                assert formats.sniff(data[:4096], len(data)) == "delimited"


@pytest.mark.parametrize("name", OBJECTS)
def test_bytes_of_other_formats_are_left_to_them(name):
    for obj in OBJECTS[name][0]:
        for format in formats.BUILTIN:
            chosen = formats.get(format)
            if format == "delimited" or not chosen.writes or chosen.several_files:
                continue
            try:
                raw = tb.dumps(obj, format)
            except (tb.errors.LossError, tb.errors.UnsupportedError, tb.errors.MissingDependencyError):
                continue
            assert not FORMAT.sniff(raw[:4096], len(raw)), format


def test_noise_is_not_taken_for_it():
    rng = np.random.default_rng(0)
    for _ in range(5000):
        raw = rng.integers(0, 256, 64, np.uint8).tobytes()
        assert not FORMAT.sniff(raw, len(raw))
    for raw in (
        b"",
        b"\x00",
        b"\xff" * 20,
        b"\x05",
        b"\x05\x08\x01\x12",
        bytes(64),
        golden("dense")[:-1],
        b"\x02\x08\x01",
    ):
        assert not FORMAT.sniff(raw, len(raw))


# ---- lazy -------------------------------------------------------------------


def test_a_file_is_mapped_and_not_read(tmp_path):
    x = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    raw = bytearray(tb.dumps({"x": x, "flags": np.ones(9, np.bool_), "r": NESTED["ragged"]}, "delimited"))
    at = raw.index(b"\x01" * 9)
    raw[at] = 7
    (tmp_path / "x.pbs").write_bytes(raw)
    with tb.open(tmp_path / "x.pbs") as file:
        assert file.keys() == ["x", "flags", "r"]
        assert type(holder(file["x"]._leaf.value.data)).__name__ == "mmap"
        assert file["x"][10:12, ::50].tolist() == x[10:12, ::50].tolist()
        assert file["x"].load().tobytes() == x.tobytes()
        assert (file["flags"].shape, file["r"].shape) == ((9,), (2, None))
        assert [row.tolist() for row in file["r"][:]] == [[0], [1, 2]]
        with pytest.raises(tb.errors.CorruptError, match="is not a valid bool") as caught:
            file["flags"].load()
        assert (caught.value.at, caught.value.path) == (at, str(tmp_path / "x.pbs"))
    assert tb.load(tmp_path / "x.pbs", names=["x"])["x"].tobytes() == x.tobytes()
    with pytest.raises(tb.errors.CorruptError, match="is not a valid bool"):
        tb.load(tmp_path / "x.pbs")


# ---- hostile ----------------------------------------------------------------

ONE = tensor(INT64, (), put(4, struct.pack("<q", 1)))
LENGTHS = {
    "1 and 8: a message of no bytes": (b"\x00", "of no bytes"),
    "9: a tail of zeros": (delimit(ONE) + bytes(64), "of no bytes"),
    "3: past the end": (varint(len(ONE) + 1) + ONE, f"claims {len(ONE) + 1} bytes where {len(ONE)} are left"),
    "4: 2^63": (varint(1 << 63) + ONE, "claims 9223372036854775808 bytes"),
    "4: 2^64 - 1": (varint((1 << 64) - 1) + ONE, "claims 18446744073709551615 bytes"),
    "5: wraps around": (varint((1 << 64) - 10) + ONE, "claims 18446744073709551606 bytes"),
    "60: eleven bytes": (b"\x8e" + b"\x80" * 9 + b"\x00" + ONE, "longer than ten bytes"),
    "61: ten bytes, over 64 bits": (b"\x8e" + b"\x80" * 8 + b"\x02" + ONE, "more than 64 bits"),
    "7: cut in the length": (delimit(ONE) + b"\x80", "the length of a message: a varint runs past the end"),
    "7: cut in the message": (delimit(ONE, ONE)[:-1], "claims"),
    "6: too short a length": (varint(len(ONE) - 1) + ONE, "claims"),
    "13: a ZIP directory at the end": (delimit(ONE) + b"PK\x05\x06" + bytes(18), "claims 80 bytes"),
}


@pytest.mark.parametrize("case", LENGTHS)
def test_lengths(case):
    raw, words = LENGTHS[case]
    for read in (lambda: tb.loads(raw, "delimited"), lambda: tb.open(io.BytesIO(raw), format="delimited").entries()):
        with pytest.raises(tb.errors.CorruptError, match=words) as caught:
            read()
        assert 0 <= caught.value.at <= len(raw)


def test_a_length_may_be_longer_than_it_needs():
    """Protobuf's libraries read such too."""
    raw = overlong(len(ONE), 5) + ONE
    assert len(parse_stream(raw)) == 1
    assert tb.loads(raw, "delimited") == 1


def test_no_bytes():
    with pytest.raises(tb.errors.CorruptError, match="it holds no tensors"):
        tb.loads(b"", "delimited")
    assert list(tb.open(io.BytesIO(b""), format="delimited")) == []


def as_delimited(case):
    """The same case in this format, if it has one."""
    if case.format == "tensorproto":
        return delimit(case.raw) if case.raw else None
    if case.format != "tb" or not case.raw:
        return None
    try:
        payloads = records(case.raw)
        return delimit(*payloads) if framed(*payloads) == case.raw else None
    except struct.error:
        return None


HOSTILE = [
    pytest.param(case, id=f"{number}-{title}-{variant}".replace(" ", "_"))
    for number, (title, variants) in sorted(CASES.items())
    for variant, case in variants.items()
    if as_delimited(case) is not None
]


def test_the_catalogue_has_cases_for_it():
    assert len(HOSTILE) > 80


@pytest.mark.parametrize("case", HOSTILE)
def test_the_catalogue(case):
    raw = as_delimited(case)
    if isinstance(case.expected, Refused):
        words = case.expected.words.replace("byte 0", "byte 1")
        with pytest.raises(case.expected.kind, match=words) as caught:
            tb.loads(raw, "delimited", **case.options)
        assert not isinstance(caught.value, errors.CorruptError) or 0 <= caught.value.at <= len(raw)
        return
    found = tb.loads(raw, "delimited", **case.options)
    if isinstance(case.expected, Shaped):
        assert found.shape == case.expected.dims
    else:
        assert ([x.tolist() for x in found] if isinstance(found, list) else found.tolist()) == case.expected


@pytest.mark.parametrize("name", ["nested", "stream", "aligned"])
def test_a_file_cut_between_messages_is_noticed(name):
    messages = [raw.SerializeToString() for raw in parse_stream(golden(name))]
    objects = 0
    for n in range(1, len(messages)):
        try:
            tb.loads(delimit(*messages[:n]), "delimited")
            objects += 1
        except tb.errors.CorruptError as error:
            assert "the file ends after" in str(error)  # noqa: PT017
    # Only between two objects of a stream may it end.
    assert objects == (len(OBJECTS[name][0]) - 1 if name == "stream" else 0)


def test_parts_and_items_in_another_order():
    nested, stream = ([varint(len(raw)) + raw for raw in records(write(name))] for name in ("nested", "stream"))
    for raw, words in (
        (nested[1:2] + nested[:1] + nested[2:], "part 1 of an object where part 0 was due"),
        (nested[:1] * 2 + nested[1:], "part 0 of an object where part 1 was due"),
        (stream[:1] + stream[3:], "item 3 of a stream follows item 1"),
        (nested[:1] + stream[2:3], "two objects are mixed"),
    ):
        with pytest.raises(tb.errors.CorruptError, match=words):
            tb.loads(b"".join(raw), "delimited")


def test_limits():
    many = delimit(*[ONE] * 10)
    with pytest.raises(tb.errors.LimitError, match="over 9 tensors"):
        tb.loads(many, "delimited", limits=tb.errors.Limits(max_tensors=9))
    assert len(tb.loads(many, "delimited", limits=tb.errors.Limits(max_tensors=10))) == 10
    claims = delimit(*[tensor(4, (1 << 16,), number(7, 1))] * 20)
    with pytest.raises(tb.errors.LimitError, match="over the limit"):
        tb.loads(claims, "delimited", limits=tb.errors.Limits(max_bytes=1 << 20))


@pytest.mark.parametrize("name", [name for name in OBJECTS if name != "aligned"])
def test_every_truncation(name):
    """Flipped bits: hostile/test_sweeps.py."""
    raw = golden(name)
    refused = 0
    for size in range(1, len(raw)):
        try:
            tb.loads(raw[:size], "delimited", to="tensor")
        except errors.CorruptError:
            refused += 1
    assert len(raw) - 1 - refused == len(OBJECTS[name][0]) - 1  # between the objects of a stream
