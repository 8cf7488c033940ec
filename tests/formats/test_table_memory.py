"""Whose memory the columns of tables are in: what is missing is made zero in ours, and in nobody else's."""

import pickle
import struct

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.formats._arrow import flat, parquet
from tensorbytes.formats.arrow import from_table
from tensorbytes.tensor import Strings

pa = pytest.importorskip("pyarrow")

KINDS = [
    "int8",
    "uint16",
    "float32",
    "int64",
    "date32[day]",
    "timestamp[us]",
    "decimal128(9, 2)",
    "fixed_size_binary[3]",
]
RUBBISH = b"\xa5"


def dirty(kind, count=4000):
    """An array with nulls, where something stands in the place of what is missing."""
    kind = pa.decimal128(9, 2) if kind.startswith("dec") else pa.binary(3) if kind.startswith("fix") else kind
    kind = pa.type_for_alias(kind) if isinstance(kind, str) else kind
    there = np.arange(count) % 7 > 1
    width = kind.bit_width // 8
    data = np.full((count, width), RUBBISH[0], np.uint8)
    data[there] = 0
    data[there, 0] = np.arange(count)[there] % 100
    bits = pa.py_buffer(np.packbits(there, bitorder="little").tobytes())
    return pa.Array.from_buffers(kind, count, [bits, pa.py_buffer(data.tobytes())]), there


def ipc(table, make=pa.ipc.new_file, **options):
    sink = pa.BufferOutputStream()
    with make(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table)
    return sink.getvalue().to_pybytes()


def is_zero(value, there):
    if isinstance(value, Strings):
        raw = [bytes(value.data[a:b]) for a, b in zip(value.offsets[:-1], value.offsets[1:], strict=True)]
        return not any(text.strip(b"\0") for text, flag in zip(raw, there, strict=True) if not flag)
    return not np.frombuffer(value.data, np.uint8).reshape(len(there), -1)[~there].any()


@pytest.mark.parametrize("compression", [None, "lz4"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_is_zero_wherever_it_is_read_from(kind, compression, tmp_path):
    array, there = dirty(kind)
    table = pa.table({"s": pa.StructArray.from_arrays([array], ["x"], mask=pa.array(~there)), "x": array})
    data = ipc(table, compression=compression)
    path = tmp_path / "x.arrow"
    path.write_bytes(data)
    for found in (
        tb.load(path, to="tensor"),
        tb.load(path, to="tensor", mmap=True),
        tb.loads(data, to="tensor"),
        tb.loads(bytearray(data), to="tensor"),
    ):
        assert is_zero(found["x"], there)
        assert is_zero(found["s"]["x"], there)
    assert path.read_bytes() == data
    # The same table always has the same bytes, whatever stood there.
    tb.convert(path, tmp_path / "once.arrow")
    tb.convert(tmp_path / "once.arrow", tmp_path / "twice.arrow")
    assert pa.ipc.open_file(tmp_path / "once.arrow").read_all().equals(table)
    assert (tmp_path / "once.arrow").read_bytes() == (tmp_path / "twice.arrow").read_bytes()
    assert RUBBISH * 2 not in (tmp_path / "once.arrow").read_bytes()


@pytest.mark.parametrize("make", [pa.ipc.new_file, pa.ipc.new_stream], ids=["file", "stream"])
@pytest.mark.parametrize("compression", [None, "lz4"])
def test_the_memory_of_others_is_not_written_to(compression, make):
    table = pa.table({kind: dirty(kind)[0] for kind in KINDS})
    data = bytearray(ipc(table, make, compression=compression))
    before = bytes(data)
    tb.loads(data, to="tensor")
    tb.loads(np.frombuffer(data, np.uint8), to="tensor")
    assert data == before


def test_the_tables_of_others_are_not_written_to():
    there = np.arange(100) % 3 > 0
    memory = np.arange(100, 200)
    bits = pa.py_buffer(np.packbits(there, bitorder="little"))
    array = pa.Array.from_buffers(pa.int64(), 100, [bits, pa.py_buffer(memory)])
    found = from_table(pa.table({"x": array}))
    assert found.leaves[0].read().numpy().tolist() == np.where(there, memory, 0).tolist()
    assert memory.tolist() == list(range(100, 200))


def patched(data, change):
    """A file whose only record batch has other nodes and buffers: `change` gets both as lists of pairs."""
    data = bytearray(data)
    (message,) = flat._file(memoryview(bytes(data)))
    places = [message.header.vector(field, 16) for field in (1, 2)]
    starts = [message.header.base + start for start, _ in places]
    lists = [
        [struct.unpack_from("<qq", data, start + 16 * n) for n in range(count)]
        for start, (_, count) in zip(starts, places, strict=True)
    ]
    for start, pairs in zip(starts, change(*lists), strict=True):
        for number, pair in enumerate(pairs):
            struct.pack_into("<qq", data, start + 16 * number, *pair)
    return bytes(data)


def test_columns_that_share_bytes_are_left_alone(tmp_path):
    """Arrow does not forbid it: what is missing in one of them may be there in the other."""
    array, there = dirty("int64", 50)
    table = pa.table({"a": array, "b": pa.array(np.arange(50))})
    path = tmp_path / "x.arrow"
    path.write_bytes(patched(ipc(table), lambda nodes, buffers: (nodes, [*buffers[:3], buffers[1]])))
    raw = np.frombuffer(array.buffers()[1], np.int64)
    found = tb.load(path, to="tensor")
    assert found["b"].numpy().tolist() == raw.tolist()
    assert found["a"].numpy().tolist() == np.where(there, raw, 0).tolist()


@pytest.mark.parametrize("array", [pa.array(["a", None, "b", None]), pa.array([1, None, 2, None])], ids=["text", "int"])
def test_a_number_of_nulls_that_is_not_that_of_the_bits_is_refused(array, tmp_path):
    path = tmp_path / "x.arrow"
    for lie in (1, 3, 4):
        path.write_bytes(patched(ipc(pa.table({"x": array})), lambda nodes, buffers, lie=lie: ([(4, lie)], buffers)))
        with pytest.raises(tb.errors.CorruptError):
            tb.load(path, to="tensor")


# ---- strings, whose offsets keep their width ------------------------------------

TEXTS = ["", "a", "äöü", "word", "x" * 300] * 20


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_strings_are_the_same_whatever_their_offsets(kind, suffix, tmp_path):
    table = pa.table({"s": pa.array(TEXTS, kind), "l": pa.array([TEXTS[:3], []] * 50, pa.list_(kind))})
    path = tmp_path / f"x{suffix}"
    if suffix == ".arrow":
        path.write_bytes(ipc(table))
    else:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, path, row_group_size=30)
    found = tb.load(path, to="tensor")
    assert found["s"].tolist() == TEXTS
    assert found["s"][5:9].tolist() == TEXTS[5:9]
    assert found["s"][[7, 2, 7]].tolist() == [TEXTS[7], TEXTS[2], TEXTS[7]]
    assert pickle.loads(pickle.dumps(found["s"])) == found["s"] == Strings(
        (100,), np.cumsum([0] + [len(text.encode()) for text in TEXTS]), "".join(TEXTS).encode(), "utf-8"
    )  # fmt: skip
    for target in ("y.tb", "y.npz", "y.tfrecord", "y.arrow", "y.parquet"):
        tb.convert(path, tmp_path / target)
        again = tmp_path / f"again_{target}.arrow"
        tb.convert(tmp_path / target, again)
        back = pa.ipc.open_file(again).read_all()
        assert back["s"].to_pylist() == TEXTS
        assert back["l"].to_pylist() == table["l"].to_pylist()


@pytest.mark.parametrize("offsets", [[0, 3, 2, 4], [0, 2, 3, 9], [-1, 2, 3, 4], [1, 0, 3, 4]], ids=str)
@pytest.mark.parametrize("nulls", [False, True])
def test_offsets_that_lie_are_refused(offsets, nulls, tmp_path):
    path = tmp_path / "x.arrow"
    path.write_bytes(ipc(pa.table({"s": pa.array(["a", None, "b"] if nulls else ["a", "b", "c"])})))
    good = np.array([0, 1, 1, 2] if nulls else [0, 1, 2, 3], "<i4").tobytes()
    data = path.read_bytes()
    assert data.count(good) == 1
    path.write_bytes(data.replace(good, np.array(offsets, "<i4").tobytes()))
    with pytest.raises(tb.errors.CorruptError):
        tb.load(path, to="tensor")


# ---- conversion reads once -------------------------------------------------------


def test_a_conversion_reads_each_row_group_once(tmp_path, monkeypatch):
    """Whether there are nulls in a struct is only known once it is read, and nobody has to know it before."""
    import pyarrow.parquet

    table = pa.table({"s": [{"x": 1, "y": None}, None, {"x": 3, "y": 4.5}] * 10, "d": list(range(30))})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=10)
    reads = []
    monkeypatch.setattr(
        parquet.Parquet, "_read", lambda *args, own=parquet.Parquet._read: (reads.append(args), own(*args))[1]
    )
    together = parquet.Parquet._read_together
    monkeypatch.setattr(parquet.Parquet, "_read_together", lambda *args: (reads.append(args), together(*args))[1])
    tb.convert(tmp_path / "x.parquet", tmp_path / "x.arrow")
    assert len(reads) == 3
    assert pa.ipc.open_file(tmp_path / "x.arrow").read_all().equals(table)
