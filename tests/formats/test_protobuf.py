"""One tensor as one protobuf message: protobuf's own library reads ours, and we read its."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import dtypes, formats
from tensorbytes.testing import bits
from tests.formats.test_golden_files import VALID
from tests.hostile.test_memory_limits import CHILD, MESSAGES
from tests.support.generated_code import message, parse
from tests.support.golden import OBJECTS
from tests.support.holding import holder
from tests.support.hostile_cases import CASES, Refused, Shaped
from tests.support.wire_bytes import INT64, STRING, field, int64s, layout, number, place, records, tensor, varint

SHAPES = [(), (1,), (0,), (0, 3), (3, 0, 2), (2, 3, 4), (1500,)]
SINGLE = {name: objects[0] for name, (objects, stream) in OBJECTS.items() if not stream}
SINGLE = {name: obj for name, obj in SINGLE.items() if not isinstance(obj, dict)}


def value(dtype, dims, **rest):
    return tb.Tensor(dtype, dims, bits.content(dtype, dims), **rest)


def flat(name="float32", count=3):
    return value(name, (count,))


def indices(*numbers):
    return np.array(numbers, np.int64)


PARTED = {
    "ragged": tb.Ragged(flat(), (indices(0, 1, 3),)),
    "two levels": tb.Ragged(flat(), (indices(0, 2), indices(0, 1, 3))),
    "row shapes": tb.Ragged(flat(count=4), (indices(0, 4),), np.array([[2, 2]])),
    "ragged text": tb.Ragged(tb.Strings.from_items(["a", "ü", ""], (3,), "utf-8"), (indices(0, 0, 3),)),
    "coo": tb.Sparse("coo", (3, 4), (np.array([[2, 1], [0, 0], [1, 1]]),), flat("bfloat16")),
    "csr": tb.Sparse("csr", (3, 4), (indices(0, 1, 1, 3), indices(3, 0, 1)), flat("int8")),
    "bsr": tb.Sparse("bsr", (2, 2), (indices(0, 1), indices(0)), value("float64", (1, 2, 2))),
    "dia": tb.Sparse("dia", (4, 4), (indices(-1),), value("float32", (1, 3))),
    "coo of bytes": OBJECTS["coo"][0][0],
}


# ---- protobuf's library -----------------------------------------------------


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_the_library_reads_every_dtype(name, dims):
    x = value(name, dims, name="w", meta={"unit": "m", "a": ""})
    made = parse(tb.dumps(x, "protobuf"))
    assert made.dtype == dtypes.get(name).code
    assert [dim.size for dim in made.tensor_shape.dim] == list(dims)
    assert made.tensor_content == bytes(x.data)
    assert (made.name, dict(made.meta)) == ("w", {"unit": "m", "a": ""})
    assert not made.padding
    assert not made.header_crc


@pytest.mark.parametrize("dims", SHAPES, ids=str)
@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_we_read_every_dtype_of_the_library(name, dims):
    x = value(name, dims)
    raw = message(dtypes.get(name).code, dims, tensor_content=bytes(x.data), name="w", meta={"k": "v"})
    for format in (None, "protobuf"):
        back = tb.loads(raw.SerializeToString(), format, to="tensor")
        assert (back.dtype, back.shape, bytes(back.data)) == (name, dims, bytes(x.data))
        assert (back.name, back.meta) == ("w", {"k": "v"})


TYPED = {
    "float_val": (1, [1.5, -2.0], np.float32),
    "double_val": (2, [1.5, -2.0], np.float64),
    "int_val": (3, [7, -8], np.int32),
    "int64_val": (9, [1 << 62, -1], np.int64),
    "bool_val": (10, [True, False], np.bool_),
    "uint32_val": (22, [1, (1 << 32) - 1], np.uint32),
    "uint64_val": (23, [1, (1 << 64) - 1], np.uint64),
}


@pytest.mark.parametrize("name", TYPED)
def test_we_read_values_in_typed_fields(name):
    code, values, dtype = TYPED[name]
    raw = message(code, (2,), **{name: values}).SerializeToString()
    back = tb.loads(raw, "protobuf")
    assert back.dtype == dtype
    assert back.tolist() == values
    repeated = tb.loads(message(code, (3,), **{name: values[:1]}).SerializeToString(), "protobuf")
    assert repeated.tolist() == values[:1] * 3


def test_strings():
    texts = np.array([["a", "Grüße"], ["", "漢字" * 50]])
    made = parse(tb.dumps(texts, "protobuf"))
    assert (made.dtype, made.encoding) == (7, "utf-8")
    assert list(made.string_val) == [text.encode() for text in texts.reshape(-1)]
    raw = message(7, (3,), string_val=[b"", b"\xff\x00", b"x"]).SerializeToString()
    assert tb.loads(raw, "protobuf").tolist() == [b"", b"\xff\x00", b"x"]
    raw = message(7, (1,), string_val=["ü".encode()], encoding="utf-8", name="t").SerializeToString()
    assert tb.loads(raw).tolist() == ["ü"]


@pytest.mark.parametrize("case", PARTED)
def test_ragged_and_sparse(case):
    x = PARTED[case]
    raw = tb.dumps(x, "protobuf", name="n", meta={"k": "v"})
    made = parse(raw)
    assert made.layout == (x.layout if isinstance(x, tb.Sparse) else "ragged" if x.shapes is None else "ragged-shapes")
    pieces = [parse(piece) for piece in made.string_val]
    index = x.parts if isinstance(x, tb.Sparse) else x.splits
    for piece, part in zip(pieces, index, strict=False):
        assert (piece.dtype, piece.tensor_content) == (INT64, part.astype("<i8").tobytes())
    # The library writes fields by number: the layout then comes after the parts.
    again = made.SerializeToString()
    assert again != raw
    for data in (raw, again):
        for format in (None, "protobuf"):
            back = tb.loads(data, format, to="tensor")
            assert tb.equal(back, x)
            assert (back.name, back.meta) == ("n", {"k": "v"})


# ---- whatever goes in comes out ---------------------------------------------

VALUES = [1, -(1 << 70), 1.5, 2 - 1j, True, None, "text", b"\xff", "", [], {}, (), [1, 2], ("a",), np.float32(2.5)]


@pytest.mark.parametrize("x", VALUES, ids=repr)
def test_python_values(x):
    for format in (None, "protobuf"):
        back = tb.loads(tb.dumps(x, "protobuf"), format)
        assert type(back) is type(x)
        assert back == x


@pytest.mark.parametrize("name", SINGLE)
def test_objects_by_sniffing_and_by_suffix(name, tmp_path):
    x = SINGLE[name]
    tb.save(x, tmp_path / "x.binpb", name="n", meta={"k": "v", "a": "b"})
    (tmp_path / "plain").write_bytes((tmp_path / "x.binpb").read_bytes())
    for path in ("x.binpb", "plain"):
        back = tb.load(tmp_path / path, to="tensor")
        assert tb.equal(back, tb.loads(tb.dumps(x), to="tensor"))
        assert back.name == "n"
        assert {"k": "v", "a": "b"}.items() <= back.meta.items()
        with tb.open(tmp_path / path) as file:
            assert file.format == "protobuf"
            assert file.keys() == ["n"]
            assert {"k": "v", "a": "b"}.items() <= file.meta.items()


@pytest.mark.parametrize("name", SINGLE)
def test_the_bytes_never_change(name):
    """Written once; other bytes are another version of the format."""
    raw = (VALID / f"{name}.binpb").read_bytes()
    assert tb.dumps(SINGLE[name], "protobuf", name="n", meta={"b": "2", "a": "1"}) == raw


def test_an_unnamed_tensor_of_any_size_is_serialize_tensor():
    for x in (np.arange(6, dtype=np.int16).reshape(2, 3), np.arange(1 << 16, dtype=np.float64), np.empty((0, 2))):
        raw = tb.dumps(x, "protobuf")
        assert raw == tf.io.serialize_tensor(x).numpy() == tb.dumps(x, "tensorproto")
        assert tf.io.parse_tensor(tb.dumps(x, "protobuf", name="n"), x.dtype).numpy().tobytes() == x.tobytes()


def test_the_tensor_is_not_copied():
    x = np.arange(1 << 16, dtype=np.float32)
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), x) for piece in tb.buffers(x, "protobuf") if len(piece))


def test_the_same_input_gives_the_same_bytes():
    made = [tb.dumps(np.ones(3), "protobuf", meta=meta) for meta in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"})]
    assert made[0] == made[1]


# ---- refusals ---------------------------------------------------------------


@pytest.mark.parametrize("x", [{"a": np.ones(2)}, {"a": 1, "b": 2}, [np.ones(2), "x"]], ids=str)
def test_structures_are_refused(x, tmp_path):
    with pytest.raises(tb.errors.LossError, match="pass format='delimited' for a message for each") as caught:
        tb.save(x, tmp_path / "x.binpb")
    assert caught.value.feature == "structure"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["binpb", "pbs"])
def test_two_gibibytes_are_refused_before_a_byte_is_written(suffix, tmp_path):
    x = np.zeros(1 << 31, np.uint8)  # no page of it is ever touched
    with pytest.raises(tb.errors.LossError, match="2 GiB; pass format='tb'") as caught:
        tb.save(x if suffix == "binpb" else {"small": 1, "large": x}, tmp_path / f"x.{suffix}")
    assert caught.value.feature == "size"
    assert suffix == "binpb" or "'large'" in str(caught.value)
    assert not list(tmp_path.iterdir())
    chosen = formats.get("protobuf")
    fits = x[: (1 << 31) - 1 - 18]  # dtype, shape, tag and length take eighteen bytes
    pieces = list(chosen.encode(tb.api.to_document(fits), frozenset(), {}))
    assert sum(map(len, pieces)) == (1 << 31) - 1


def test_a_part_of_an_object_is_no_object():
    raw = tensor(INT64, (), field(4, bytes(8)), field(1000, "a"), place(1, 3))
    for format in ("protobuf", None):
        with pytest.raises(tb.errors.CorruptError, match="part 1 of the 3 parts"):
            tb.loads(raw.replace(field(4, bytes(8)), b"") + field(4, bytes(8)), format)


def test_an_item_number_and_metadata_of_the_whole_do_no_harm(tmp_path):
    raw = tensor(INT64, (), field(4, bytes(8)), number(1005, 7), field(1009, field(1, "k") + field(2, "v")))
    (tmp_path / "x.binpb").write_bytes(raw)
    assert tb.load(tmp_path / "x.binpb") == 0
    for format in ("protobuf", "tensorproto"):
        assert tb.open(tmp_path / "x.binpb", format=format).meta == {"k": "v"}


# ---- sniffing ---------------------------------------------------------------


def test_messages_of_others_are_not_taken_for_tensors():
    onnx = bytes.fromhex("080a12077079746f726368") + b"\x1a\x052.1.0\x3a\x10" + bytes(16)  # ir_version, producer_name
    saved_model = bytes.fromhex("0801128a010a87010a00") + bytes(200)
    for raw in (onnx, saved_model, b"\x08\x01\x12", b"\x08\x01\x12\x7f", b"\x08\x63\x12\x00"):
        assert formats.sniff(raw, len(raw)) not in ("protobuf", "tensorproto", "delimited")


@pytest.mark.parametrize("name", dtypes.DTYPES)
def test_every_dtype_is_recognised(name):
    for dims in SHAPES:
        raw = tb.dumps(value(name, dims), "protobuf")
        assert formats.sniff(raw[:4096], len(raw)) == ("protobuf" if dtypes.get(name).code >= 1000 else "tensorproto")
        named = tb.dumps(value(name, dims, name="n"), "protobuf")
        assert formats.sniff(named[:4096], len(named)) == "protobuf"


# ---- lazy -------------------------------------------------------------------


def test_a_file_is_mapped(tmp_path):
    x = np.arange(1 << 16, dtype=np.float32).reshape(256, 256)
    tb.save(x, tmp_path / "x.binpb", name="x")
    with tb.open(tmp_path / "x.binpb") as file:
        entry = file["x"]
        assert (entry.dtype, entry.shape, entry.nbytes) == ("float32", (256, 256), x.nbytes)
        assert entry[3:5, ::7].tolist() == x[3:5, ::7].tolist()
        assert type(holder(entry._leaf.value.data)).__name__ == "mmap"
        assert entry.load().tobytes() == x.tobytes()
    mapped = tb.load(tmp_path / "x.binpb", mmap=True)
    assert not mapped.flags.writeable
    assert mapped.tobytes() == x.tobytes()


@pytest.mark.parametrize("name", ["bool", "int4"])
def test_content_is_looked_at_when_it_is_loaded(name, tmp_path):
    raw = tb.dumps(value(name, (4,), name="x"), "protobuf")[:-1] + b"\x7f"
    (tmp_path / "x.binpb").write_bytes(raw)
    file = tb.open(tmp_path / "x.binpb")
    assert file["x"].shape == (4,)
    with pytest.raises(tb.errors.CorruptError, match=f"is not a valid {name}") as caught:
        file["x"].load()
    assert caught.value.at == len(raw) - 1
    with pytest.raises(tb.errors.CorruptError):
        tb.load(tmp_path / "x.binpb")


@pytest.mark.parametrize("case", PARTED)
def test_ragged_and_sparse_values_are_described_before_they_are_read(case, tmp_path):
    x = PARTED[case]
    for format in ("tb", "protobuf"):
        tb.save(x, tmp_path / format, format, name="n", meta={"k": "v"})
    now, later = (tb.open(tmp_path / format, to="tensor")["n"] for format in ("tb", "protobuf"))
    for what in ("name", "kind", "dtype", "shape"):
        assert getattr(now, what) == getattr(later, what)
    assert later.meta["k"] == "v"
    assert repr(now) == repr(later)
    assert tb.equal(later.load(), x)
    assert (later.load().name, later.load().meta["k"]) == ("n", "v")
    if isinstance(x, tb.Ragged):
        assert repr(later[0]) == repr(now[0])


def test_opening_reads_neither_splits_nor_indices(tmp_path):
    ragged = layout("ragged", int64s(9, -9), int64s(1))
    sparse = layout("csr", int64s(7), int64s(7), int64s(7), int64s(2, 2))
    for raw, kind, shape in ((ragged, "ragged", (1, None)), (sparse, "sparse", (2, 2))):
        (tmp_path / "x.binpb").write_bytes(raw)
        entry = tb.open(tmp_path / "x.binpb").entries()[0]
        assert (entry.kind, entry.shape) == (kind, shape)
        with pytest.raises(tb.errors.CorruptError, match="parts that don't fit"):
            entry.load()


MISFITS = {
    "no parts": layout("ragged"),
    "one part": layout("ragged", int64s(0, 1)),
    "no row shapes": layout("ragged-shapes", int64s(0, 1), int64s(1)),
    "splits of rank 2": layout("ragged", int64s(0, 1, dims=(1, 2)), int64s(1)),
    "splits without an end": layout("ragged", int64s(), int64s()),
    "scalar values": layout("ragged", int64s(0, 1), int64s(1, dims=())),
    "many levels": layout("ragged", *[int64s(0, 1)] * 66, int64s(1)),
    "row shapes of rank 65": layout("ragged-shapes", int64s(0, 1), int64s(1), int64s(*[1] * 65, dims=(1, 65))),
    "unknown": layout("xyz", int64s(0, 1), int64s(1)),
    "a negative shape": layout("coo", int64s(dims=(0, 1)), int64s(), int64s(-3)),
    "a shape of floats": layout("coo", int64s(dims=(0, 1)), int64s(), tensor(2, (1,), field(4, bytes(8)))),
    "a shape of strings": layout("coo", int64s(dims=(0, 1)), int64s(), tensor(STRING, (1,), field(8, b"a"))),
}


@pytest.mark.parametrize("case", MISFITS)
def test_parts_that_fit_nothing_are_refused_when_the_file_is_opened(case, tmp_path):
    (tmp_path / "x.binpb").write_bytes(MISFITS[case])
    with pytest.raises(tb.errors.CorruptError, match="don't fit"):
        tb.open(tmp_path / "x.binpb").entries()
    with pytest.raises(tb.errors.CorruptError, match="don't fit"):
        tb.load(tmp_path / "x.binpb")


# ---- hostile ----------------------------------------------------------------

HOSTILE = [
    pytest.param(case, id=f"{number}-{title}-{variant}".replace(" ", "_"))
    for number, (title, variants) in sorted(CASES.items())
    for variant, case in variants.items()
    if case.format == "tensorproto"
]


@pytest.mark.parametrize("case", HOSTILE)
def test_the_catalogue(case):
    if isinstance(case.expected, Refused):
        with pytest.raises(case.expected.kind, match=case.expected.words):
            tb.loads(case.raw, "protobuf", **case.options)
        return
    found = tb.loads(case.raw, "protobuf", **case.options)
    assert found.shape == case.expected.dims if isinstance(case.expected, Shaped) else found.tolist() == case.expected


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc")
def test_claims_without_the_memory_for_them():
    lengths = (1 << 31, 1 << 62, (1 << 64) - 1)
    cases = {f"length {n}": ("delimited", varint(n).hex() + "0801", "whole") for n in lengths}
    for name, raw in MESSAGES.items():
        for way in ("whole", "lazy"):
            cases[f"{name}, {way}"] = ("protobuf", raw.hex(), way)
            cases[f"{name}, delimited, {way}"] = ("delimited", (varint(len(raw)) + raw).hex(), way)
    run = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(cases), capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    outcomes, grown = json.loads(run.stdout)
    assert outcomes.keys() == cases.keys()
    assert {name: what for name, what in outcomes.items() if what not in ("CorruptError", "LimitError")} == {}
    assert grown < 64 << 20


def test_a_record_of_a_file_is_a_message():
    """Padding and the header's checksum, which a frame adds, are read and checked."""
    x = np.arange(3000, dtype=np.float32)
    (raw,) = records(tb.dumps(x, name="n"))
    assert parse(raw).header_crc
    assert tb.loads(raw, "protobuf").tobytes() == x.tobytes()
    at = raw.index(b"n")
    with pytest.raises(tb.errors.CorruptError, match="checksum of the record's header"):
        tb.loads(raw[:at] + b"m" + raw[at + 1 :], "protobuf")
