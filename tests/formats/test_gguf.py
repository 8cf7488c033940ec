"""GGUF: files that the gguf package writes, read without it, and files that nobody should write."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFEndian, GGUFReader, GGUFValueType, GGUFWriter

import tensorbytes as tb
from tensorbytes import errors, formats
from tensorbytes.errors import CorruptError, LimitError, UnsupportedError, UsageError
from tensorbytes.formats import _gguf_values
from tensorbytes.formats import gguf as ours
from tensorbytes.tensor import Tensor
from tensorbytes.testing import bits
from tests.support.holding import holder
from tests.support.work import check_linear

PLAIN = ("float32", "float16", "float64", "int8", "int16", "int32", "int64")
QUANTIZED = [kind for kind in GGMLQuantizationType if kind.value not in ours.PLAIN]
ORDERS = [GGUFEndian.LITTLE, GGUFEndian.BIG]


def written(path, fill, endian=GGUFEndian.LITTLE):
    writer = GGUFWriter(path, "llama", endianess=endian)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def same(made, want):
    assert made.dtype == want.dtype
    assert made.shape == want.shape
    assert made.tobytes() == want.tobytes()


# ---- with the real library --------------------------------------------------


def test_the_table_of_types_is_that_of_gguf():
    sizes = {kind.value: (kind.name, *size) for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {number: sizes.pop(number) for number in ours.BLOCKS} == ours.BLOCKS
    assert sizes.keys() == ours.PLAIN.keys()
    short = {"float": "F", "bfloat": "BF", "int": "I"}
    for number, name in ours.PLAIN.items():
        kind = name.rstrip("0123456789")
        assert sizes[number][0] == name.replace(kind, short[kind])
        assert sizes[number][1:] == (1, np.dtype("u2" if kind == "bfloat" else name).itemsize)
    assert {kind.value: kind.name.lower() for kind in GGUFValueType if kind.name not in ("STRING", "ARRAY")} == (
        _gguf_values._SCALARS
    )


@pytest.mark.parametrize("endian", ORDERS, ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_plain_tensors(tmp_path, name, endian):
    arrays = {
        f"x{i}": bits.array(name, shape)
        for i, shape in enumerate([(5,), (2, 3), (2, 3, 4), (1, 2, 3, 7), (0,), (0, 3)])
    }

    def fill(writer):
        for key, value in arrays.items():
            writer.add_tensor(key, value)

    path = written(tmp_path / "m.gguf", fill, endian)
    reader = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
    for found in (tb.load(path), tb.load(path, mmap=True), tb.loads(path.read_bytes())):
        assert list(found) == list(arrays)
        for key, value in arrays.items():
            same(found[key], value)
            assert np.array_equal(reader[key], value, equal_nan=name.startswith("float"))
    with tb.open(path) as f:
        for key, value in arrays.items():
            same(f[key].load(), value)
            same(f[key][1:], value[1:])
        same(f["x2"][1, ::-1], arrays["x2"][1, ::-1])


@pytest.mark.parametrize("endian", ORDERS, ids=str)
def test_bfloat16(tmp_path, endian):
    x = bits.array("bfloat16", (3, 4))
    stored = x.view(np.uint16).astype(">u2" if endian is GGUFEndian.BIG else "<u2").view(np.uint8)
    path = written(
        tmp_path / "m.gguf", lambda w: w.add_tensor("b", stored, raw_dtype=GGMLQuantizationType.BF16), endian
    )
    same(tb.load(path)["b"], x)
    with tb.open(path) as f:
        assert f["b"].dtype == "bfloat16"
        same(f["b"][1], x[1])


def test_quantized_tensors_are_their_blocks(tmp_path):
    rng = np.random.default_rng(3)
    blocks = {
        kind.name: rng.integers(0, 256, (3, 2, 2 * gguf.GGML_QUANT_SIZES[kind][1]), np.uint8) for kind in QUANTIZED
    }

    def fill(writer):
        for kind in QUANTIZED:
            writer.add_tensor(kind.name, blocks[kind.name], raw_dtype=kind)

    path = written(tmp_path / "m.gguf", fill)
    found = tb.load(path, to="tensor")
    for tensor in GGUFReader(path).tensors:
        made = found[tensor.name]
        same(made.numpy(), tensor.data)
        same(made.numpy(), blocks[tensor.name])
        assert made.meta["gguf.type"] == tensor.tensor_type.name
        assert json.loads(made.meta["gguf.shape"]) == tensor.shape.tolist()[::-1]


def test_the_blocks_are_what_dequantize_takes(tmp_path):
    x = np.linspace(-1, 1, 512, dtype=np.float32).reshape(2, 256)
    stored = gguf.quants.quantize(x, GGMLQuantizationType.Q8_0)
    path = written(tmp_path / "m.gguf", lambda w: w.add_tensor("w", stored, raw_dtype=GGMLQuantizationType.Q8_0))
    with tb.open(path) as f:
        kind = GGMLQuantizationType[f["w"].meta["gguf.type"]]
        assert np.abs(gguf.quants.dequantize(f["w"].load(), kind) - x).max() < 0.01


def add_values(writer):
    writer.add_uint8("u8", 200)
    writer.add_int8("i8", -3)
    writer.add_uint16("u16", 60000)
    writer.add_int16("i16", -30000)
    writer.add_uint32("u32", 4_000_000_000)
    writer.add_int32("i32", -2_000_000_000)
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 1e-5)
    writer.add_float64("f64", 0.1)
    writer.add_float32("nan", float("nan"))
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_string("text", "naïve 日本\0\n")
    writer.add_array("words", ["a", "日本", 'quote "'])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.1, float("nan"), float("-inf"), 2.0])
    writer.add_array("bools", [True, False])
    writer.add_array("nested", [[1, 2], [3], [4, 5, 6]])
    writer.add_array("deep", [[["a"], ["b", "c"]], [["d"]]])


VALUES = {
    "general.architecture": "llama", "u8": "200", "i8": "-3", "u16": "60000", "i16": "-30000", "u32": "4000000000",
    "i32": "-2000000000", "u64": "18446744073709551615", "i64": "-9223372036854775808", "f32": "1e-05", "f64": "0.1",
    "nan": "nan", "yes": "true", "no": "false", "text": "naïve 日本\0\n", "words": '["a","日本","quote \\""]',
    "ints": "[1,-2,3]", "floats": '[0.1,"nan","-inf",2.0]', "bools": "[true,false]", "nested": "[[1,2],[3],[4,5,6]]",
    "deep": '[[["a"],["b","c"]],[["d"]]]',
}  # fmt: skip


@pytest.mark.parametrize("endian", ORDERS, ids=str)
def test_metadata_of_every_type(tmp_path, endian):
    path = written(tmp_path / "m.gguf", add_values, endian)
    order = {"GGUF.byteorder": "big"} if endian is GGUFEndian.BIG else {}
    with tb.open(path) as f:
        assert f.meta == {"GGUF.version": "3", **order, **VALUES}
    fields = GGUFReader(path).fields
    for key in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"):
        assert int(VALUES[key]) == fields[key].contents()
    assert np.float32(VALUES["f32"]) == np.float32(fields["f32"].contents())
    assert json.loads(VALUES["words"]) == fields["words"].contents()
    assert tb.load(path) == {}  # no tensors: a vocabulary alone, say


@pytest.mark.parametrize("endian", ORDERS, ids=str)
def test_long_arrays_are_there_when_asked_for(tmp_path, endian):
    words, scores = [f"word {i} é" for i in range(3000)], [i / 7 for i in range(3000)]

    def fill(writer):
        writer.add_array("tokenizer.tokens", words)
        writer.add_array("tokenizer.scores", scores)
        writer.add_array("short", [1, 2])
        writer.add_array("flags", [True, False])
        writer.add_tensor("w", np.arange(3, dtype=np.float32))

    path = written(tmp_path / "m.gguf", fill, endian)
    with tb.open(path) as f:
        assert f.keys() == ["w"]
        assert f.meta["tokenizer.tokens"] == "<3000 strings: read with arrays=True>"
        assert f.meta["tokenizer.scores"] == "<3000 float32 values: read with arrays=True>"
    found = tb.load(path, arrays=True)
    assert list(found) == ["tokenizer.tokens", "tokenizer.scores", "short", "flags", "w"]
    assert found["tokenizer.tokens"].tolist() == words
    same(found["tokenizer.scores"], np.array(scores, np.float32))
    same(found["short"], np.array([1, 2], np.int32))
    same(found["flags"], np.array([True, False]))
    with tb.open(path, arrays=True) as f:
        same(f["tokenizer.scores"][5:7], np.array(scores[5:7], np.float32))
        assert f["tokenizer.tokens"][2999] == words[2999]
    with pytest.raises(UsageError, match="expected True or False"):
        tb.load(path, arrays="yes")


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_any_alignment(tmp_path, alignment):
    x = {f"x{i}": np.arange(5, dtype=np.int8) + i for i in range(3)}

    def fill(writer):
        writer.add_custom_alignment(alignment)
        for key, value in x.items():
            writer.add_tensor(key, value)

    path = written(tmp_path / "m.gguf", fill)
    reader = GGUFReader(path)
    assert reader.alignment == alignment
    found = tb.load(path)
    for tensor in reader.tensors:
        same(found[tensor.name], tensor.data)
        same(found[tensor.name], x[tensor.name])


def test_tensors_are_views_of_the_map(tmp_path):
    x = np.arange(10_000, dtype=np.float32)
    path = written(tmp_path / "m.gguf", lambda w: w.add_tensor("w", x))
    with tb.open(path, to="tensor") as f:
        assert type(holder(f["w"].load().data)).__name__ == "mmap"
        assert f.format == "gguf"
    made = tb.loads(path.read_bytes())["w"]
    assert not made.flags.owndata


def test_gguf_is_not_written(tmp_path):
    with pytest.raises(UsageError, match="'gguf' is read-only"):
        tb.save({"a": np.arange(3)}, tmp_path / "x.gguf")
    assert not list(tmp_path.iterdir())


def test_a_gguf_file_becomes_another(tmp_path):
    path = written(tmp_path / "m.gguf", lambda w: w.add_tensor("w", np.arange(6.0).reshape(2, 3)))
    tb.save(tb.load(path), tmp_path / "m.tb")
    same(tb.load(tmp_path / "m.tb")["w"], np.arange(6.0).reshape(2, 3))


# ---- files by hand ----------------------------------------------------------


def text(value, order="<"):
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(raw)) + raw


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def array(kind, count, items=b""):
    return struct.pack("<IQ", kind, count) + items


def info(name, dims, kind=0, offset=0, rank=None):
    return text(name) + struct.pack(
        f"<I{len(dims)}QIQ", len(dims) if rank is None else rank, *(n % 2**64 for n in dims), kind, offset
    )


def file(*tensors, entries=(), data=b"", version=3, n_tensors=None, n_entries=None, alignment=32):
    head = b"GGUF" + struct.pack(
        "<IQQ", version, len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_entries is None else n_entries,
    ) + b"".join(entries) + b"".join(tensors)  # fmt: skip
    return head + bytes(-len(head) % alignment) + data


def aligned(value):
    return entry("general.alignment", 4, struct.pack("<I", value))


def test_a_file_by_hand():
    data = file(
        info("a", (2, 3)), info("s", (), offset=32), data=np.arange(6, dtype="<f4").tobytes() + bytes(8) + b"\0\0\x80?"
    )
    for version in (2, 3):
        found = tb.loads(data[:4] + struct.pack("<I", version) + data[8:])
        assert found["a"].tolist() == [[0, 1], [2, 3], [4, 5]]
        assert found["s"].shape == ()
        assert found["s"] == 1


def test_no_padding_is_needed_at_the_end():
    assert tb.loads(file(info("a", (1,)), data=bytes(4)))["a"].tolist() == [0]
    assert tb.loads(file(info("a", (1,)), data=bytes(4) + b"more"))["a"].tolist() == [0]
    assert tb.loads(file()[:24]) == {}
    # 24, 57: empty tensors take no place, so they may share one, at the end or beyond
    found = tb.loads(file(info("a", (0, 1 << 40)), info("b", (0,)), info("c", (0,), offset=1 << 20)))
    assert [value.shape for value in found.values()] == [(1 << 40, 0), (0,), (0,)]


def test_holes_are_passed_over():
    data = file(
        info("b", (1,), offset=96), info("a", (1,), offset=32), data=bytes(32) + b"\0\0\x80?" + bytes(60) + bytes(4)
    )
    assert {name: value.tolist() for name, value in tb.loads(data).items()} == {"b": [0], "a": [1]}


FOUR = bytes(4)
BAD = {
    "2 magic only": (b"GGUF", CorruptError, "ends inside its header"),
    "2 a header cut short": (file()[:23], CorruptError, "ends inside its header"),
    "not the magic": (b"GGML" + bytes(40), CorruptError, "not a GGUF file"),
    "16 version 1": (file(version=1), UnsupportedError, "version 1, of 2023"),
    "16 version 4": (file(version=4), UnsupportedError, "version 4 is unknown"),
    "16 version 0": (file(version=0), UnsupportedError, "version 0 is unknown"),
    "16 version 1, big": (b"GGUF" + struct.pack(">I", 1) + bytes(40), UnsupportedError, "version 1, of 2023"),
    "4 2^63 tensors": (file(n_tensors=1 << 63), CorruptError, "tensors can't fit"),
    "4 2^64-1 entries": (file(n_entries=2**64 - 1), CorruptError, "entries can't fit"),
    "50 more tensors than bytes": (file(n_tensors=2), CorruptError, "2 tensors can't fit"),
    "3 a key past the end": (file(entries=[struct.pack("<Q", 1 << 40) + bytes(30)]), CorruptError, "a metadata key"),
    "3 a key of 2^64-1": (file(entries=[b"\xff" * 8 + bytes(30)]), CorruptError, "a metadata key takes"),
    "3 a text past the end": (file(entries=[entry("k", 8, struct.pack("<Q", 99) + b"x")]), CorruptError,
                              "value of 'k'"),
    "45 a key of bytes": (file(entries=[entry(b"\xff", 0, b"\1")]), CorruptError, "a metadata key is not UTF-8"),
    "45 a text of bytes": (file(entries=[entry("k", 8, text(b"\xff"))]), CorruptError, "value of 'k' is not UTF-8"),
    "45 words of bytes": (file(entries=[entry("k", 9, array(8, 1, text(b"\xff")))]), CorruptError, "not UTF-8"),
    "45 half a character each": (file(entries=[entry("k", 9, array(8, 2, text(b"\xc3") + text(b"\xa9")))]),
                                 CorruptError, "inside a UTF-8 character"),
    "45 a name of bytes": (file(info(b"\xff", (1,)), data=FOUR), CorruptError, "tensor's name is not UTF-8"),
    "79 a key twice": (file(entries=[entry("k", 0, b"\1")] * 2), CorruptError, "'k' appears twice"),
    "79 our own key": (file(entries=[entry("GGUF.version", 0, b"\1")]), CorruptError, "appears twice"),
    "30 an unknown value type": (file(entries=[entry("k", 13, b"\1")]), UnsupportedError, "unknown value type 13"),
    "30 an array of an unknown type": (file(entries=[entry("k", 9, array(99, 0))]), UnsupportedError, "type 99"),
    "33 a bool of 2": (file(entries=[entry("k", 7, b"\2")]), CorruptError, "the byte 2 is not a valid bool"),
    "33 bools of 2": (file(entries=[entry("k", 9, array(7, 2, b"\1\2"))]), CorruptError, "2 is not a valid bool"),
    "4 an array of 2^63": (file(entries=[entry("k", 9, array(0, 1 << 63))]), CorruptError, "can't fit"),
    "4 an array of 2^61 doubles": (file(entries=[entry("k", 9, array(12, 1 << 61, bytes(16)))]), CorruptError,
                                   "can't fit"),
    "4 strings that claim": (file(entries=[entry("k", 9, array(8, 3, bytes(7)))]), CorruptError, "can't fit"),
    "4 one string that claims": (file(entries=[entry("k", 9, array(8, 1, b"\xff" * 8))]), CorruptError, "runs past"),
    "42 nested too deeply": (file(entries=[entry("k", 9, array(9, 1) * 5000 + array(0, 0))]), LimitError,
                             "nested deeper"),
    "42 nested past the end": (file(entries=[entry("k", 9, array(9, 1 << 20, array(0, 0)))]), CorruptError,
                               "can't fit"),
    "an alignment of 0": (file(entries=[aligned(0)]), CorruptError, "an alignment of 0"),
    "an alignment of 24": (file(entries=[aligned(24)]), CorruptError, "an alignment of 24"),
    "an alignment of text": (file(entries=[entry("general.alignment", 8, text("32"))]), CorruptError, "as uint32"),
    "an alignment of uint64": (file(entries=[entry("general.alignment", 10, struct.pack("<Q", 32))]), CorruptError,
                               "as uint32"),
    "an alignment of a list": (file(entries=[entry("general.alignment", 9, array(4, 0))]), CorruptError,
                               "as uint32"),
    "an alignment beyond the file": (file(info("a", (1,)), entries=[aligned(1 << 31)], data=FOUR), CorruptError,
                                     "takes 4 bytes from"),
    "19 a dim of 2^64-1": (file(info("a", (-1,)), data=FOUR), CorruptError, "64 bits"),
    "21 dims that overflow": (file(info("a", (1 << 32, 1 << 32)), data=FOUR), CorruptError, "64 bits"),
    "22 itemsize overflow": (file(info("a", (1 << 62,)), data=FOUR), CorruptError, "64 bits"),
    "23 a zero excuses nothing": (file(info("a", (0, 1 << 62, 1 << 62))), CorruptError, "64 bits"),
    "22 blocks beyond 64 bits": (file(info("a", (7 << 60,), 9), data=FOUR), CorruptError, "64 bits"),
    "26 rank 65": (file(info("a", (1,) * 65), data=FOUR), LimitError, "the rank 65"),
    "26 rank 2^32-1": (file(info("a", (1,), rank=2**32 - 1), data=FOUR), LimitError, "rank 4294967295"),
    "26 a rank past the end": (file(info("a", (1,), rank=60), data=FOUR)[:60], CorruptError, "the shape of 'a'"),
    "29 too few bytes": (file(info("a", (2,)), data=bytes(7)), CorruptError, "takes 8 bytes"),
    "30 an unknown type": (file(info("a", (1,), 99), data=FOUR), UnsupportedError, "GGML type 99, which is unknown"),
    "30 a type that is gone": (file(info("a", (1,), 4), data=FOUR), UnsupportedError, "Q4_2, which llama.cpp no"),
    "34 rows of half a block": (file(info("a", (48, 2), 2), data=bytes(99)), CorruptError, "blocks of 32"),
    "34 a quantized scalar": (file(info("a", (), 2), data=bytes(99)), CorruptError, "rows of 1 weights"),
    "54 overlap": (file(info("a", (16,)), info("b", (1,), offset=32), data=bytes(64)), CorruptError,
                   "'b' overlaps 'a'"),
    "54 the same place": (file(info("a", (1,)), info("b", (1,)), data=bytes(64)), CorruptError, "'b' overlaps 'a'"),
    "54 overlap, unsorted": (file(info("b", (1,), offset=32), info("a", (16,)), data=bytes(64)), CorruptError,
                             "overlaps"),
    "59 an offset of 4": (file(info("a", (1,), offset=4), data=bytes(64)), CorruptError, "not a multiple of 32"),
    "58 an offset past the end": (file(info("a", (1,), offset=64), data=bytes(64)), CorruptError, "the file has"),
    "4 an offset of 2^64-32": (file(info("a", (1,), offset=2**64 - 32), data=bytes(64)), CorruptError,
                               "the file has"),
    "a name twice": (file(info("a", (1,)), info("a", (1,), offset=32), data=bytes(64)), CorruptError,
                     "'a' is stored twice"),
    "71 a claim of four tebibytes": (file(info("a", (1 << 40,)), data=FOUR), CorruptError, "takes 4398046511104"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_hostile_bytes(case, tmp_path):
    data, error, words = BAD[case]
    with pytest.raises(error, match=words):
        tb.loads(data, "gguf")
    (tmp_path / "x.gguf").write_bytes(data)
    with tb.open(tmp_path / "x.gguf", format="gguf") as f, pytest.raises(error, match=words):
        f.keys()


def test_an_array_under_the_name_of_a_tensor():
    data = file(info("a", (1,)), entries=[entry("a", 9, array(0, 1, b"\1"))], data=FOUR)
    assert tb.loads(data)["a"].tolist() == [0]
    with pytest.raises(CorruptError, match="'a' is stored twice"):
        tb.loads(data, arrays=True)


def test_limits():
    data = file(*(info(f"t{i}", (0,)) for i in range(5)))
    assert len(tb.loads(data)) == 5
    with pytest.raises(LimitError, match="5 tensors, over the limit of 4"):
        tb.loads(data, limits=errors.Limits(max_tensors=4))


def test_names_are_never_paths():
    """47, 48, 52: opaque keys."""
    names = ["../a", "/etc/passwd", "C:\\x", "a\0b", "__class__", "", "é", "e\u0301"]
    found = tb.loads(file(*(info(name, (0,)) for name in names)))
    assert list(found) == names


def test_many_empty_arrays_take_linear_time():
    def make(n):
        return n, file(entries=[entry("k", 9, array(9, n, array(0, 0) * n))])

    def read(made):
        n, data = made
        found = list(formats.get("gguf").decode(memoryview(data), errors.Limits(), False, {}))
        assert found[0].meta["k"] == "[" + ",".join(["[]"] * n) + "]"

    check_linear(make, read, 5_000)


# ---- damage -----------------------------------------------------------------


def golden():
    entries = [
        entry("general.alignment", 4, struct.pack("<I", 8)),
        entry("s", 8, text("é")),
        entry("b", 7, b"\1"),
        entry("w", 9, array(8, 2, text("x") + text("yz"))),
        entry("n", 9, array(9, 1, array(5, 1, FOUR))),
    ]
    tensors = [info("a", (3,), 25), info("q", (32,), 8, 8)]
    return file(*tensors, entries=entries, data=b"\1\0\2\0\3\0\0\0" + bytes(range(34)), alignment=8)


def outcome(data, **options):
    try:
        return tb.loads(data, "gguf", to="tensor", **options)
    except (CorruptError, LimitError, UnsupportedError) as error:
        return error


@pytest.mark.parametrize("arrays", [False, True])
def test_every_truncation(arrays):
    data = golden()
    assert list(outcome(data)) == ["a", "q"]
    for end in range(len(data)):
        assert isinstance(outcome(data[:end], arrays=arrays), CorruptError)


@pytest.mark.parametrize("arrays", [False, True])
def test_every_flipped_bit(arrays, tmp_path):
    data = golden()
    read = compared = 0
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        made = outcome(bytes(damaged), arrays=arrays)
        if isinstance(made, Exception):
            continue
        read += 1
        if position % 5 or arrays:
            continue
        # What we read, the gguf package reads as the same.
        (tmp_path / "x").write_bytes(damaged)
        for tensor in GGUFReader(tmp_path / "x").tensors:
            value = made[tensor.name]
            assert isinstance(value, Tensor)
            assert value.shape == tensor.data.shape or value.dtype == "bfloat16"
            assert bytes(value.data) == tensor.data.tobytes()
            compared += 1
    assert read > 100
    assert compared > 20 or arrays


CHILD = """
import json, resource, sys
import numpy, tensorbytes as tb
from tensorbytes import formats
formats.sniff(b"x", 1)
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (128 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
out = {}
for name, text in json.load(sys.stdin).items():
    try:
        tb.loads(bytes.fromhex(text), arrays=True)
        out[name] = "loaded"
    except BaseException as error:
        out[name] = type(error).__name__
print(json.dumps(out))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc")
def test_claims_without_the_memory_for_them():
    pytest.importorskip("resource")  # POSIX only
    cases = {name: case for name, (case, error, _) in BAD.items() if error is CorruptError and case[:4] == b"GGUF"}
    given = json.dumps({name: data.hex() for name, data in cases.items()})
    run = subprocess.run([sys.executable, "-c", CHILD], input=given, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == dict.fromkeys(cases, "CorruptError")
