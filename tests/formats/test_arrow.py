"""Arrow files and streams, against pyarrow."""

import contextlib
import io
import json
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import api, dtypes, errors, formats, frameworks, testing
from tensorbytes.formats._arrow import flat as arrow_flat
from tensorbytes.formats.arrow import FORMAT, from_table, to_table
from tensorbytes.tensor import Ragged, Strings, Tensor, identical

pa = pytest.importorskip("pyarrow")

from tests.support.arrow_cases import (  # noqa: E402
    DOCUMENTS,
    FOREIGN_LISTS,
    foreign,
    ragged,
    ragged_rows,
    rows,
    rows_of,
    whole,
)
from tests.support.tiers import deep_but  # noqa: E402

WAYS = {
    "file": {},
    "stream": {"stream": True},
    "lz4": {"compression": "lz4"},
    "zstd stream": {"compression": "zstd", "stream": True},
}


def assert_same(format, raw, want, lazy=False):
    """Structure, bits, names and metadata."""
    (found,) = formats.get(format).decode(memoryview(raw), errors.LIMITS, lazy, {})
    one, two = found.leaves, api.to_document(want).leaves
    described = [(leaf.path, leaf.kind, leaf.value.meta, leaf.value.name) for leaf in one]
    assert described == [(leaf.path, leaf.kind, leaf.value.meta, leaf.value.name) for leaf in two]
    for a, b in zip(one, two, strict=True):
        assert identical(a.read(), b.read()), a.path


def saved(table, stream=False, **options):
    file = io.BytesIO()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, table.schema) as writer:
        writer.write_table(table, **options)
    return file.getvalue()


def opened(raw):
    found = (pa.ipc.open_file if raw[:6] == b"ARROW1" else pa.ipc.open_stream)(raw).read_all()
    found.validate(full=True)
    return found


# ---- there and back -------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_everything_comes_back(name, way):
    raw = tb.dumps(DOCUMENTS[name], "arrow", **WAYS[way])
    assert tb.dumps(DOCUMENTS[name], "arrow", **WAYS[way]) == raw
    assert_same("arrow", raw, DOCUMENTS[name])
    opened(raw)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_lazily_too(name, way, tmp_path):
    tb.save(DOCUMENTS[name], tmp_path / "x.arrow", sync=False, **WAYS[way])
    assert_same("arrow", (tmp_path / "x.arrow").read_bytes(), DOCUMENTS[name], lazy=True)
    with tb.open(tmp_path / "x.arrow", to="tensor") as file:
        eager = api.to_document(DOCUMENTS[name]).leaves
        for entry, leaf in zip(file.entries(), eager, strict=True):
            value = leaf.read()
            shape = value.shape if not isinstance(value, Ragged) else entry.shape
            held = value.values if hasattr(value, "values") else value
            dtype = "string" if isinstance(held, Strings) else held.dtype
            assert (entry.kind, entry.dtype, entry.shape) == (type(value).__name__.lower(), dtype, shape)


def test_metadata_of_the_whole():
    raw = tb.dumps({"a": np.arange(2)}, "arrow", meta={"made": "today"})
    with tb.open(io.BytesIO(raw)) as file:
        assert file.meta == {"made": "today"}


@pytest.mark.parametrize("forced", [True, False])
def test_either_layout_comes_back(forced):
    for given in (rows(), ragged_rows(), {"a": np.arange(1)}, np.arange(3)):
        raw = tb.dumps(given, "arrow", rows=forced)
        assert opened(raw).num_rows == (1 if not forced else 3 if "a" not in given else 1)
        assert_same("arrow", raw, given)


def test_the_layout_follows_the_lengths():
    for given, count in [
        ({"a": np.zeros(3), "b": np.zeros((3, 2))}, 3),
        ({"a": np.zeros(3), "b": np.zeros((2, 3))}, 1),
        ({"a": np.zeros(3), "b": np.float32(1)}, 1),
        ({"a": {"b": np.zeros(3)}, "c": np.zeros(3)}, 1),
        ([np.zeros(3), np.zeros(3)], 1),
        (np.zeros((4, 2)), 4),
        (np.zeros(()), 1),
        ({"a": np.zeros(0)}, 0),
    ]:
        assert opened(tb.dumps(given, "arrow")).num_rows == count


@pytest.mark.parametrize(
    "given",
    [
        {"a": np.zeros(3), "b": np.zeros(2)},
        {"a": np.zeros(3), "b": np.float32(1)},
        {"a": {"b": np.zeros(3)}},
        [np.zeros(3), np.zeros(3)],
        np.float32(1),
    ],
)
def test_rows_that_are_none_are_refused(given):
    with pytest.raises(errors.LossError, match="these are not rows"):
        tb.dumps(given, "arrow", rows=True)


@pytest.mark.parametrize("wrong", [{"rows": 3}, {"stream": 1}, {"compression": "gzip"}, {"shapes": "yes"}, {"typo": 1}])
def test_options_are_checked(wrong):
    with pytest.raises(errors.UsageError):
        tb.dumps(np.zeros(3), "arrow", **wrong)


def test_too_many_levels_are_refused():
    deep = Ragged(Tensor("int8", (1,), b"a"), (np.array([0, 1]),) * 60)
    with pytest.raises(errors.LossError, match="60 ragged levels"):
        tb.dumps(deep, "arrow")


def test_large_tensors_are_not_copied():
    x = np.arange(1 << 18)
    pieces = [np.frombuffer(piece, np.uint8) for piece in tb.buffers({"x": x}, "arrow") if len(piece) > 1 << 16]
    assert [np.shares_memory(piece, x) for piece in pieces] == [True]
    raw = np.frombuffer(tb.dumps({"x": x}, "arrow"), np.uint8)
    assert np.shares_memory(tb.loads(raw)["x"], raw)


# ---- what pyarrow sees -----------------------------------------------------------


def test_types_of_rows():
    table = opened(tb.dumps({**rows(), **ragged_rows()}, "arrow"))
    tensor = pa.fixed_shape_tensor
    assert {field.name: str(field.type) for field in table.schema} == {
        "i": "int16", "b": "bool", "m": str(tensor(pa.float32(), [2, 3])), "c": str(tensor(pa.float32(), [2])),
        "day": "timestamp[ms]", "old": "timestamp[s]", "span": "duration[ns]", "months": "uint64", "s": "large_string",
        "ss": "fixed_size_list<item: large_binary>[2]", "none": "large_list<item: int32>", "t": "bool",
        "r": "large_list<item: float>", "r32": "list<item: float>", "r16": "list<item: float>",
        "deep": "large_list<item: list<item: float>>",
        "rows of 2": "large_list<item: fixed_size_list<item: uint8>[2]>",
        "rows of 2 x 2": "large_list<item: fixed_size_list<item: uint8>[4]>",
        "rows of nothing": "large_list<item: large_list<item: uint8>>",
        "complex": "large_list<item: fixed_size_list<item: float>[2]>",
        "bfloat16": "large_list<item: uint16>", "flags": "large_list<item: bool>",
        "text": "large_list<item: large_string>",
        "shaped": "extension<arrow.variable_shape_tensor[value_type=float, ndim=2]>",
        "shaped 32": "extension<arrow.variable_shape_tensor[value_type=float, ndim=1]>",
        "shaped text": "struct<data: list<item: large_binary>, shape: fixed_size_list<item: int32>[1]>",
        "shaped complex":
            "struct<data: list<item: fixed_size_list<item: double>[2]>, shape: fixed_size_list<item: int32>[2]>",
        "shaped, no axes": "large_list<item: int8>", "named": "large_list<item: float>",
    }  # fmt: skip
    assert table["m"].combine_chunks().to_numpy_ndarray().tolist() == rows()["m"].tolist()
    assert table["c"].combine_chunks().to_numpy_ndarray().tolist() == [[0, 1], [1, 1], [2, 1]]
    assert table["s"].to_pylist() == ["0", "1", "2"]
    assert table["b"].to_pylist() == [True, False, True]
    assert table["r"].to_pylist() == [[0, 1], [], [2, 3, 4]]
    assert table["deep"].to_pylist() == [[[0, 1]], [], [[], [2, 3, 4]]]
    assert table["text"].to_pylist() == [["a", ""], [], ["é", "d", "e"]]
    assert table["shaped"].combine_chunks().storage.to_pylist() == [
        {"data": [0, 1], "shape": [1, 2]}, {"data": [], "shape": [0, 7]}, {"data": [2, 3, 4], "shape": [3, 1]}
    ]  # fmt: skip
    assert json.loads(table.schema.metadata[b"tensorbytes"]) == {"rows": True}
    assert json.loads(table.schema.field("bfloat16").metadata[b"tensorbytes"]) == {"dtype": "bfloat16"}
    assert table.schema.field("i").metadata is None
    assert not any(field.nullable for field in table.schema)


def test_types_of_one_row():
    table = opened(tb.dumps(whole(), "arrow"))
    kinds = {field.name: str(field.type) for field in table.schema}
    assert table.num_rows == 1
    assert kinds["w"] == str(pa.fixed_shape_tensor(pa.float64(), [2, 3]))
    assert kinds["scalar"] == "halffloat"
    assert kinds["nested/list/2"] == "large_string"
    assert kinds["sparse"] == str(pa.fixed_shape_tensor(pa.uint16(), [3]))
    assert kinds["sparse.indices"] == str(pa.fixed_shape_tensor(pa.int64(), [3]))
    assert kinds["ragged r"] == "list<item: large_list<item: float>>"
    assert table["ragged r"].to_pylist() == [[[0, 1], [], [2, 3, 4]]]
    assert json.loads(table.schema.metadata[b"tensorbytes"]) == {"rows": False}


@pytest.mark.parametrize("name", [row.name for row in dtypes.DTYPES.values() if row.arrow])
def test_each_dtype_that_arrow_has(name):
    x = testing.bits.array(name, (6, 2))
    table = opened(tb.dumps({"x": x, "y": x[:, 0].copy()}, "arrow"))
    for got, want in (
        (table["x"].combine_chunks().storage.values, x.reshape(-1)),
        (table["y"].combine_chunks(), x[:, 0]),
    ):
        made = got.to_numpy(zero_copy_only=False)
        assert made.dtype == want.dtype
        assert made.tobytes() == want.tobytes()


def test_shapes_for_sql():
    given = {"m": np.zeros((2, 3, 4)), "i": np.arange(2), "s": np.zeros((2, 5), "U1"), "m.shape": np.arange(2)}
    raw = tb.dumps(given, "arrow", shapes=True)
    table = opened(raw)
    assert table.schema.names == ["m", "i", "s", "s.shape", "m.shape"]  # the name was taken
    assert table["s.shape"].to_pylist() == [[5], [5]]
    assert_same("arrow", raw, given)
    one = tb.dumps({"w": np.zeros((2, 3)), "b": np.zeros(())}, "arrow", shapes=True)
    assert opened(one)["w.shape"].to_pylist() == [[2, 3]]
    assert list(tb.loads(one)) == ["w", "b"]


def test_tables_in_memory():
    given = api.to_document(rows())
    table = to_table(given)
    assert table.num_rows == 3
    assert [leaf.path for leaf in from_table(table).leaves] == [leaf.path for leaf in given.leaves]
    values = {"x": Tensor("int8", (2,), b"ab"), "r": ragged()}
    with pytest.raises(errors.LossError):
        to_table(values, rows=True)
    assert to_table(values).num_rows == 1
    sliced = to_table({"r": ragged(), "s": Strings.from_items(["a", "b", "c"], (3,), "utf-8")}).slice(1)
    found = {leaf.name: leaf.read() for leaf in from_table(sliced).leaves}
    assert rows_of(found["r"]) == [[], [2, 3, 4]]
    assert found["s"].items() == ["b", "c"]


# ---- tables of other origin -------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", foreign())
def test_columns_of_others(name, stream, tmp_path):
    array, want = foreign()[name]
    for size in (None, 3, 1):
        raw = saved(pa.table({"x": array}), stream, max_chunksize=size)
        got = tb.loads(raw)["x"]
        assert got.dtype == want.dtype
        assert np.array_equal(got, want)
        (tmp_path / "x.arrow").write_bytes(raw)
        with tb.open(tmp_path / "x.arrow") as file:
            entry = file["x"]
            assert entry.shape == want.shape
            for index in (slice(None), slice(1, 3), slice(3, None, -2), 2, -1, slice(2, 2), ..., np.array([0, 3])):
                assert np.array_equal(entry[index], want[index]), index


@pytest.mark.parametrize("name", FOREIGN_LISTS)
def test_lists_of_others(name):
    array, want = FOREIGN_LISTS[name]
    for size in (None, 3, 1):
        assert rows_of(tb.loads(saved(pa.table({"x": array}), max_chunksize=size))["x"]) == want
    assert rows_of({leaf.name: leaf.read() for leaf in from_table(pa.table({"x": array[1:]})).leaves}["x"]) == want[1:]


def test_a_zone_is_kept_beside_the_values():
    raw = saved(pa.table({"x": pa.array([1], pa.timestamp("ms", "Europe/Berlin"))}))
    value = tb.loads(raw, to="tensor")["x"]
    assert (value.meta, value.origin) == ({}, {"numpy.dtype": "<M8[ms]", "timezone": "Europe/Berlin"})


def test_views_of_strings():
    raw = saved(pa.table({"x": pa.array(["a", "long enough not to be inline", ""], pa.string_view())}))
    assert tb.loads(raw)["x"].tolist() == ["a", "long enough not to be inline", ""]


def test_unknown_extension_types_are_read_as_their_storage_and_come_back(tmp_path):
    """Nothing of what their metadata says is run, and it is kept."""
    for kind in (pa.int64(), pa.list_(pa.field("item", pa.int64(), metadata={"ARROW:extension:name": "os.system"}))):
        metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": b"cos\nsystem\n."}
        field = pa.field("x", kind, metadata=metadata if kind == pa.int64() else None)
        array = pa.array([1, 2]) if kind == pa.int64() else pa.array([[1], [2]])
        table = pa.Table.from_arrays([array.cast(kind)], schema=pa.schema([field]))
        (tmp_path / "a.arrow").write_bytes(saved(table))
        tb.convert(tmp_path / "a.arrow", tmp_path / "b.tb")
        tb.convert(tmp_path / "b.tb", tmp_path / "c.arrow")
        back = opened((tmp_path / "c.arrow").read_bytes())
        assert back.schema.field("x").metadata == field.metadata
        assert (
            back["x"].to_pylist() == table["x"].to_pylist() == np.asarray(tb.load(tmp_path / "a.arrow")["x"]).tolist()
        )


def test_tensors_of_varying_shape_with_permuted_axes_are_read_as_their_storage():
    kind = opened(tb.dumps({"v": ragged(shapes=np.array([[1, 2], [0, 7], [3, 1]]))}, "arrow"))["v"].type.storage_type
    metadata = {
        "ARROW:extension:name": "arrow.variable_shape_tensor",
        "ARROW:extension:metadata": '{"permutation":[1,0]}',
    }
    schema = pa.schema([pa.field("v", kind, metadata=metadata)])
    array = pa.array([{"data": [1, 2], "shape": [1, 2]}], kind)
    found = tb.loads(saved(pa.Table.from_arrays([array], schema=schema)))["v"]
    assert (found["data"].rows()[0].tolist(), found["shape"].tolist()) == ([1, 2], [[1, 2]])


@pytest.mark.parametrize("lazy", [False, True])
def test_columns_of_the_same_name_get_numbers(lazy, tmp_path):
    columns = [pa.array([1, 2]), pa.array([3, 4]), pa.array([5, 6])]
    (tmp_path / "x.arrow").write_bytes(saved(pa.Table.from_arrays(columns, names=["a", "b", "a"])))
    if lazy:
        with tb.open(tmp_path / "x.arrow") as file:
            found = {name: file[name].load() for name in file.keys()}  # noqa: SIM118 - a file is not a dict
    else:
        found = tb.load(tmp_path / "x.arrow")
    assert {name: values.tolist() for name, values in found.items()} == {"a": [1, 2], "b": [3, 4], "a~2": [5, 6]}


def test_lists_of_equal_length_make_a_dense_array():
    found = tb.loads(saved(pa.table({"x": [[1, 2], [3, 4], [5, 6]]})))["x"]
    assert repr(found) == "Ragged(3 rows of int64, lengths 2 to 2)"
    assert frameworks.of(found) == "neutral"
    dense = np.asarray(found)
    assert dense.dtype == np.int64
    assert dense.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert np.array(found, np.float32).dtype == np.float32


def test_a_table_without_columns():
    with pytest.raises(errors.UnsupportedError, match="without columns"):
        tb.loads(saved(pa.table({})))


# ---- lazily -----------------------------------------------------------------------


def test_a_slice_reads_nothing_else(tmp_path):
    x = np.arange(1 << 16, dtype=np.float32).reshape(-1, 64)
    raw = bytearray(tb.dumps({"x": x, "s": np.array(["é"] * len(x))}, "arrow"))
    raw[raw.index("é".encode()) + 1] = 0xFF  # no UTF-8 any more
    (tmp_path / "x.arrow").write_bytes(raw)
    with tb.open(tmp_path / "x.arrow") as file:
        entry = file["x"]
        assert isinstance(entry._leaf.value, Tensor)
        assert np.array_equal(entry[100:116], x[100:116])
        with pytest.raises(errors.CorruptError, match="'s'"):
            file["s"].load()
    with pytest.raises(errors.CorruptError, match="'s'"):
        tb.load(tmp_path / "x.arrow")


def test_a_slice_of_a_compressed_file_reads_one_column_of_one_batch():
    table = pa.table({"x": pa.array(range(1000)), "y": pa.array(range(1000))})
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table, max_chunksize=100)
    raw = bytearray(file.getvalue())
    marks = [at for at in range(len(raw)) if raw[at : at + 4] == b"\x28\xb5\x2f\xfd"]
    assert len(marks) == 20
    raw[marks[0]] ^= 0xFF  # x of the first batch
    with tb.open(io.BytesIO(raw)) as opened_file:
        assert opened_file["x"][150:250].tolist() == list(range(150, 250))
        assert opened_file["y"][:10].tolist() == list(range(10))
        with pytest.raises(errors.CorruptError):
            opened_file["x"][:10]


# ---- recognised -------------------------------------------------------------------


def test_recognised_by_content_and_by_suffix(tmp_path):
    for suffix, start in (
        (".arrow", b"ARROW1"),
        (".feather", b"ARROW1"),
        (".ipc", b"ARROW1"),
        (".arrows", b"\xff" * 4),
    ):
        path = tmp_path / f"x{suffix}"
        tb.save({"a": np.arange(3)}, path, sync=False)
        assert path.read_bytes().startswith(start)
        assert tb.load(path)["a"].tolist() == [0, 1, 2]
        assert tb.open(path).format == "arrow"
    assert not FORMAT.sniff(b"\xff" * 100, 100)
    assert not FORMAT.sniff(b"\xff\xff\xff\xff\x08\0\0\0abcdefgh", 16)


@pytest.mark.parametrize("format", ["arrow", "parquet"])
def test_without_pyarrow(format, monkeypatch):
    raw = tb.dumps(np.arange(3), format)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for call in (lambda: tb.dumps(np.arange(3), format), lambda: tb.loads(raw)):
        with pytest.raises(errors.MissingDependencyError, match=rf"^format '{format}' needs .*tensorbytes\[arrow\]"):
            call()
    assert tb.loads(tb.dumps(np.arange(3), "arrowtensor")).tolist() == [0, 1, 2]


# ---- hostile ----------------------------------------------------------------------


def small(**options):
    given = {
        "i": np.arange(2, dtype=np.int8),
        "s": np.array(["a", "b"]),
        "r": Ragged(Tensor("int8", (1,), b"a"), (np.array([0, 0, 1]),)),
    }
    return tb.dumps(given, "arrow", **options)


@pytest.mark.parametrize("way", WAYS)
def test_every_truncation(way):
    raw = small(**WAYS[way])
    for size in range(len(raw)):
        with pytest.raises(errors.TensorbytesError):
            tb.loads(raw[:size], "arrow")
        attempt(raw[:size])


def attempt(raw, format="arrow"):
    """Lazily: our exceptions, or values."""
    try:
        with tb.open(io.BytesIO(raw), format=format) as file:
            for entry in file.entries():
                entry.load()
    except errors.TensorbytesError:
        pass


@pytest.mark.parametrize("every", deep_but([9], [2, 9]))
@pytest.mark.parametrize("way", ["file", "stream", "lz4"])
def test_bits_that_flip(way, every):
    raw = bytearray(small(**WAYS[way]))
    for at in range(0, len(raw), every):
        raw[at] ^= 1 << at % 8
        attempt(bytes(raw))
        with contextlib.suppress(errors.TensorbytesError):
            tb.loads(raw, "arrow")
        raw[at] ^= 1 << at % 8


OFFSETS = struct.Struct("<4i").pack
TEXT = pa.array(["a", "b", "cd"])
LISTS = pa.array([[1], [2], [3, 4]], pa.list_(pa.int8()))
BROKEN = {
    "86 offsets backwards": (TEXT, OFFSETS(0, 3, 1, 4)),
    "86 offsets out of range": (TEXT, OFFSETS(0, 1, 2, 400)),
    "86 offsets out of range, then back": (TEXT, OFFSETS(0, 400, 2, 4)),
    "86 a negative offset": (TEXT, OFFSETS(-5, 1, 2, 4)),
    "86 list offsets backwards": (LISTS, OFFSETS(0, 3, 1, 4)),
    "86 list offsets out of range": (LISTS, OFFSETS(0, 1, 2, 400)),
    "86 a negative list offset": (LISTS, OFFSETS(-1, 1, 2, 4)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_offsets_are_validated_before_they_are_used(name):
    array, offsets = BROKEN[name]
    raw = saved(pa.table({"x": array}))
    assert raw.count(OFFSETS(0, 1, 2, 4)) == 1
    assert_refused(raw.replace(OFFSETS(0, 1, 2, 4), offsets))


def assert_refused(raw):
    with pytest.raises(errors.CorruptError, match="'x'"):
        tb.loads(raw)
    with tb.open(io.BytesIO(raw)) as file, pytest.raises(errors.CorruptError, match="'x'"):
        file["x"].load()


def test_86_text_is_validated():
    assert_refused(saved(pa.table({"x": ["a", "some text", "b"]})).replace(b"some text", b"some\xfftext"))


@pytest.mark.parametrize("index", [7, -7])
def test_89_indices_of_dictionaries(index):
    indices = pa.array([0, index, 1], pa.int8())
    assert_refused(saved(pa.table({"x": pa.DictionaryArray.from_arrays(indices, pa.array(["a", "b"]), safe=False)})))


def test_89_dictionaries_that_are_replaced():
    schema = pa.schema([("x", pa.dictionary(pa.int8(), pa.string()))])
    file = io.BytesIO()
    with pa.ipc.new_stream(file, schema) as writer:
        for items in (["a", "b", "a"], ["c", "d", "d"]):
            writer.write_batch(pa.record_batch([pa.array(items, schema.field("x").type)], schema))
    assert tb.loads(file.getvalue())["x"].tolist() == ["a", "b", "a", "c", "d", "d"]


@pytest.mark.parametrize("claim", [-5, 4, 1 << 40, (1 << 63) - 1])
def test_87_decompressed_lengths(claim):
    raw = bytearray(tb.dumps({"x": np.zeros(1000)}, "arrow", compression="zstd"))
    at = raw.index(struct.pack("<q", 8000) + b"\x28\xb5\x2f\xfd")
    struct.pack_into("<q", raw, at, claim)
    with pytest.raises((errors.CorruptError, errors.LimitError)):
        tb.loads(raw)
    attempt(raw)


def test_90_flatbuffer_offsets():
    raw = small(stream=True)
    for at in range(8, 200, 4):
        for value in (0, 0xFFFFFFFF, 4, 0x80000000, at):
            attempt(raw[:at] + struct.pack("<I", value) + raw[at + 4 :])


def test_91_no_memory_of_others_is_written():
    table = to_table({"r": ragged(), "b": Tensor("bool", (3,), b"\1\0\1")})
    assert all(buffer is None for column in table.columns for buffer in column.chunk(0).buffers()[:1])
    assert bytes(table["b"].chunk(0).buffers()[1]) == b"\x05"


def test_blocks_that_overlap():
    raw = bytearray(saved(pa.table({"x": range(100)}), max_chunksize=50))
    footer = len(raw) - 10 - struct.unpack_from("<i", raw, len(raw) - 10)[0]
    first, second = (raw.index(struct.pack("<q", at), footer) for at in sorted(block_offsets(raw)))
    raw[second : second + 24] = raw[first : first + 24]
    with pytest.raises(errors.CorruptError, match="overlap"):
        tb.loads(raw)


def block_offsets(raw):
    return [item.at for item in arrow_flat._file(memoryview(raw))]


NOTES = {
    "no JSON": ({}, b"{"),
    "no object": ({}, b"[1]"),
    "rows of text": ({}, b'{"rows":"yes"}'),
    "another key": ({}, b'{"rows":true,"x":1}'),
    "one row of two": ({}, b'{"rows":false}'),
    "a column's note is not JSON": (b"\xff", None),
    "an unknown dtype": (b'{"dtype":"float7"}', None),
    "a dtype of another width": (b'{"dtype":"bfloat16"}', None),
    "a dtype that is a number": (b'{"dtype":7}', None),
    "pairs without the axis": (b'{"dtype":"complex128"}', None),
    "an unknown key": (b'{"import":"os"}', None),
    "a cell without lists": (b'{"column":{"cell":[2]}}', None),
    "a cell of text": (b'{"column":{"cell":["a"]}}', None),
    "a huge cell": (b'{"column":{"cell":[4611686018427387904]}}', None),
    "a negative cell": (b'{"column":{"cell":[-1]}}', None),
    "shapes over numbers": (b'{"column":{"shapes":"int64"}}', None),
    "shapes of an unknown dtype": (b'{"column":{"shapes":"object"}}', None),
    "splits of an unknown dtype": (b'{"column":{"splits":["O"]}}', None),
    "a column that is text": (b'{"column":"x"}', None),
    "an unknown key of a column": (b'{"column":{"x":1}}', None),
    "ragged, of numbers": (b'{"column":{"ragged":true}}', None),
    "an encoding of numbers": (b'{"encoding":"utf-8"}', None),
    "a part of nothing": (b'{"of":"y"}', None),
    "a layout without parts": (b'{"layout":"coo","parts":[]}', None),
    "text of numbers": (b'{"kind":"str"}', None),
}


@pytest.mark.parametrize("name", NOTES)
def test_notes_are_checked(name):
    column, overall = NOTES[name]
    metadata = {"tensorbytes": column} if column else None
    schema = pa.schema([pa.field("x", pa.uint64(), metadata=metadata)], metadata=overall and {"tensorbytes": overall})
    raw = saved(pa.Table.from_arrays([pa.array([1, 2], pa.uint64())], schema=schema))
    with pytest.raises((errors.CorruptError, errors.UnsupportedError)):
        tb.loads(raw)
    attempt(raw)


LIST_NOTES = {
    "layout on lists": b'{"layout":"coo","parts":[]}',
    "lists that vary as cells": b'{"column":{"cell":[1]}}',
    "shapes that disagree": b'{"column":{"shapes":"int64"}}',
    "ragged in rows": b'{"column":{"ragged":true}}',
}


@pytest.mark.parametrize("name", LIST_NOTES)
def test_notes_on_lists_are_checked(name):
    field = pa.field("x", pa.list_(pa.uint8()), metadata={"tensorbytes": LIST_NOTES[name]})
    raw = saved(pa.Table.from_arrays([pa.array([[1], [2, 3]], pa.list_(pa.uint8()))], schema=pa.schema([field])))
    with pytest.raises(errors.CorruptError):
        tb.loads(raw)
    attempt(raw)


def test_values_that_are_none_of_their_dtype():
    field = pa.field("x", pa.uint8(), metadata={"tensorbytes": b'{"dtype":"int4"}'})
    raw = saved(pa.Table.from_arrays([pa.array([1, 99], pa.uint8())], schema=pa.schema([field])))
    with pytest.raises(errors.CorruptError, match="is not a valid int4"):
        tb.loads(raw)
    with tb.open(io.BytesIO(raw)) as file, pytest.raises(errors.CorruptError, match="is not a valid int4"):
        file["x"].load()


def test_dates_are_whole_days():
    raw = saved(pa.table({"x": pa.array([86_400_000, 1]).view(pa.date64())}))
    with pytest.raises(errors.CorruptError, match="whole number of days"):
        tb.loads(raw)
    with tb.open(io.BytesIO(raw)) as file, pytest.raises(errors.CorruptError, match="whole number of days"):
        file["x"].load()


CHILD = """
import io, json, resource, sys
import pyarrow as pa, pyarrow.parquet, tensorbytes as tb
tb.loads(tb.dumps([1.5], "arrow"))
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (1 << 29)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
out = {}
for name, text in json.load(sys.stdin).items():
    try:
        tb.loads(bytes.fromhex(text), limits=tb.errors.Limits(max_bytes=1 << 24))
        out[name] = "loaded"
    except BaseException as error:
        out[name] = type(error).__name__
print(json.dumps(out))
"""


def to_many_rows():
    """A trillion strings of no bytes."""
    array = pa.Array.from_buffers(pa.binary(0), 1 << 40, [None, pa.py_buffer(b"")])
    file = io.BytesIO()
    with pa.ipc.new_stream(file, pa.schema([("x", array.type)]), options=pa.ipc.IpcWriteOptions(allow_64bit=True)) as w:
        w.write_batch(pa.record_batch([array], ["x"]))
    return file.getvalue()


def claims():
    """Small files that unfold into much: name -> bytes."""
    import pyarrow.parquet as parquet

    word, many = pa.array(["x" * 100_000]), pa.array(np.zeros(10_000, np.int32))
    dictionary = pa.DictionaryArray.from_arrays(many, word)
    nested = pa.ListArray.from_arrays(pa.array([0, 10_000], pa.int32()), dictionary)
    zeros = np.zeros(1 << 25, np.uint8)
    found = {
        "dictionary": saved(pa.table({"x": dictionary}), stream=True),
        "dictionary in lists": saved(pa.table({"x": nested})),
        "zeros, compressed": tb.dumps({"x": zeros, "y": zeros}, "arrow", compression="zstd"),
        "rows without bytes": to_many_rows(),
    }
    for name, array in (("dictionary", dictionary), ("dictionary in lists", nested)):
        file = io.BytesIO()
        parquet.write_table(pa.table({"x": array}), file, store_schema=False)
        found[f"{name}, parquet"] = file.getvalue()
    file = io.BytesIO()
    parquet.write_table(pa.table({"x": zeros, "y": zeros}), file)
    return {**found, "zeros, parquet": file.getvalue()}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc")
def test_claims_without_the_memory_for_them():
    given = claims()
    assert max(map(len, given.values())) < 1 << 20
    text = json.dumps({name: raw.hex() for name, raw in given.items()})
    run = subprocess.run([sys.executable, "-c", CHILD], input=text, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert set(json.loads(run.stdout).items()) == {(name, "LimitError") for name in given}
