"""Parquet files, against pyarrow."""

import contextlib
import io
import struct

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors
from tensorbytes.formats._arrow import parquet as arrow_parquet
from tensorbytes.formats._arrow import thrift as arrow_thrift
from tensorbytes.tensor import Ragged, Tensor
from tests.support import ROOT

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from tests.formats.test_arrow import assert_same, attempt  # noqa: E402
from tests.support.arrow_cases import DOCUMENTS, FOREIGN_LISTS, foreign, ragged_rows, rows, rows_of, whole  # noqa: E402
from tests.support.tiers import deep_but  # noqa: E402

WAYS = {
    "default": {},
    "none": {"compression": None},
    "snappy": {"compression": "snappy"},
    "groups": {"row_group_rows": 2},
}


def saved(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def opened(raw):
    found = pq.read_table(pa.BufferReader(raw))
    found.validate(full=True)
    return found


# ---- there and back -------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_everything_comes_back(name, way):
    raw = tb.dumps(DOCUMENTS[name], "parquet", **WAYS[way])
    assert tb.dumps(DOCUMENTS[name], "parquet", **WAYS[way]) == raw
    assert_same("parquet", raw, DOCUMENTS[name])
    assert_same("parquet", raw, DOCUMENTS[name], lazy=True)
    opened(raw)


@pytest.mark.parametrize("dictionaries", [False, True])
def test_every_bit_of_a_float(dictionaries):
    bits = np.array([0x7FC00001, 0x7FC00002, 0xFFC00001, 0x7F800001, 0x80000000, 0, 1], "<u4")
    x = np.tile(bits, 1000).view("<f4")
    raw = tb.dumps({"x": x, "m": x.reshape(-1, 1)}, "parquet")
    back = tb.loads(raw)
    assert back["x"].tobytes() == back["m"].tobytes() == x.tobytes()
    table = pa.table({"x": pa.Array.from_buffers(pa.float32(), len(x), [None, pa.py_buffer(x)])})
    assert tb.loads(saved(table, use_dictionary=dictionaries))["x"].tobytes() == x.tobytes()


def test_floats_have_no_dictionaries_and_pages_have_checksums():
    raw = tb.dumps({"f": np.zeros(9), "i": np.zeros(9, np.int8), "s": np.array(["a"] * 9)}, "parquet")
    about = pq.ParquetFile(pa.BufferReader(raw)).metadata.row_group(0)
    assert [about.column(n).has_dictionary_page for n in range(3)] == [False, True, True]
    assert {about.column(n).compression for n in range(3)} == {"ZSTD"}
    header = arrow_thrift._Reader(memoryview(raw)[about.column(0).data_page_offset :], 0).struct({4: int})
    assert 4 in header


def test_row_groups(tmp_path):
    x = np.arange(25)
    tb.save({"x": x}, tmp_path / "x.parquet", row_group_rows=10, sync=False)
    about = pq.ParquetFile(tmp_path / "x.parquet").metadata
    assert [about.row_group(n).num_rows for n in range(about.num_row_groups)] == [10, 10, 5]
    assert np.array_equal(tb.load(tmp_path / "x.parquet")["x"], x)


@pytest.mark.parametrize(
    "wrong", [{"rows": 3}, {"compression": "lzma"}, {"row_group_rows": 0}, {"shapes": 1}, {"stream": True}]
)
def test_options_are_checked(wrong):
    with pytest.raises(errors.UsageError):
        tb.dumps(np.zeros(3), "parquet", **wrong)


def test_recognised(tmp_path):
    tb.save(np.arange(3), tmp_path / "x.parquet", sync=False)
    assert tb.open(tmp_path / "x.parquet").format == "parquet"
    (tmp_path / "x").write_bytes((tmp_path / "x.parquet").read_bytes())
    assert tb.load(tmp_path / "x").tolist() == [0, 1, 2]


# ---- what pyarrow sees -----------------------------------------------------------


def test_types():
    table = opened(tb.dumps({**rows(), **ragged_rows()}, "parquet"))
    kinds = {field.name: str(field.type).replace("element", "item") for field in table.schema}
    assert kinds["m"] == str(pa.fixed_shape_tensor(pa.float32(), [2, 3]))
    assert kinds["shaped"] == "extension<arrow.variable_shape_tensor[value_type=float, ndim=2]>"
    assert kinds["deep"] == "large_list<item: list<item: float>>"
    assert kinds["ss"] == "fixed_size_list<item: large_binary>[2]"
    assert (kinds["day"], kinds["old"], kinds["span"]) == ("timestamp[ms]", "uint64", "duration[ns]")
    assert table["m"].combine_chunks().to_numpy_ndarray().tolist() == rows()["m"].tolist()
    assert table["deep"].to_pylist() == [[[0, 1]], [], [[], [2, 3, 4]]]
    assert table["day"].cast(pa.int64()).to_pylist() == [0, 1, 2]
    assert table["shaped"].combine_chunks().storage.field("shape").to_pylist() == [[1, 2], [0, 7], [3, 1]]
    assert opened(tb.dumps(whole(), "parquet")).num_rows == 1


def test_a_column_alone_as_sql_would_read_it():
    raw = tb.dumps({"x": np.zeros((3, 2, 2)), "id": np.arange(3)}, "parquet", shapes=True)
    table = pq.read_table(pa.BufferReader(raw), columns=["id", "x.shape"])
    assert table["x.shape"].to_pylist() == [[2, 2]] * 3


# ---- tables of other origin -------------------------------------------------------


# Types that Parquet has by itself, without the Arrow schema in the file.
OWN = ("int", "uint", "halffloat", "float", "double", "bool", "string", "binary", "date32")


@pytest.mark.parametrize(
    ("name", "stored"),
    [(name, True) for name in foreign()]
    + [(name, False) for name in foreign() if str(foreign()[name][0].type).startswith(OWN)],
)
def test_columns_of_others(name, stored):
    array, want = foreign()[name]
    for size in (100, 3, 1):
        raw = saved(pa.table({"x": array}), row_group_size=size, store_schema=stored)
        got = tb.loads(raw)["x"]
        assert got.dtype == want.dtype
        assert np.array_equal(got, want)
        with tb.open(io.BytesIO(raw)) as file:
            assert file["x"].shape == want.shape
            for index in (slice(None), slice(1, 3), slice(3, None, -2), 2, -1, slice(2, 2), ...):
                assert np.array_equal(file["x"][index], want[index]), index


@pytest.mark.parametrize("name", FOREIGN_LISTS)
def test_lists_of_others(name):
    array, want = FOREIGN_LISTS[name]
    for size in (100, 3, 1):
        assert rows_of(tb.loads(saved(pa.table({"x": array}), row_group_size=size))["x"]) == want


@pytest.mark.parametrize("dictionaries", [True, False])
def test_row_groups_without_rows(dictionaries):
    table = pa.table({"x": pa.array([1, 2], pa.int32()), "y": ["a", "b"], "l": [[1], []]})
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema, use_dictionary=dictionaries) as writer:
        for piece in (table.slice(0, 0), table, table.slice(0, 0)):
            writer.write_table(piece)
    got = tb.loads(file.getvalue())
    assert (got["x"].tolist(), got["y"].tolist(), rows_of(got["l"])) == ([1, 2], ["a", "b"], [[1], []])


def test_columns_of_the_same_name_get_numbers():
    raw = saved(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    assert {name: column.tolist() for name, column in tb.loads(raw).items()} == {"a": [1], "a~2": [2]}


def test_names_with_dots_are_told_apart():
    table = pa.table({"a.b": [1, 2], "a": pa.array([[3], [4]]), "a.list.element": [5, 6]})
    with tb.open(io.BytesIO(saved(table))) as file:
        assert file["a.list.element"].load().tolist() == [5, 6]
        assert file["a.b"].load().tolist() == [1, 2]
        assert rows_of(file["a"].load()) == [[3], [4]]


@pytest.mark.parametrize(
    "options", [{"data_page_version": "2.0"}, {"use_dictionary": False}, {"compression": "gzip"}, {"version": "1.0"}]
)
def test_files_of_other_settings(options):
    table = pa.table(
        {"i": range(1000), "s": [f"word {n % 7}" for n in range(1000)], "l": [[n] * (n % 3) for n in range(1000)]}
    )
    got = tb.loads(saved(table, row_group_size=300, **options))
    assert got["i"].tolist() == list(range(1000))
    assert got["s"].tolist() == table["s"].to_pylist()
    assert rows_of(got["l"]) == table["l"].to_pylist()


def test_strings_out_of_large_dictionaries():
    """Read as indices, since they might come to more than they should."""
    words = [f"{n:0100}" for n in range(2000)] * 3
    short = saved(pa.table({"x": words}), compression="zstd")
    assert arrow_parquet.Parquet(memoryview(short))._bulky(0, 0, 1) == []
    assert tb.loads(short)["x"].tolist() == words
    words.append("long" * 5000)
    raw = saved(pa.table({"x": words, "l": pa.array([[word] for word in words])}), compression="zstd")
    source = arrow_parquet.Parquet(memoryview(raw))
    assert source._bulky(0, 0, 1) == [0]
    got = tb.loads(raw)
    assert got["x"].tolist() == words
    assert rows_of(got["l"])[-3:] == [[word] for word in words[-3:]]


# ---- lazily -----------------------------------------------------------------------


def test_a_slice_reads_one_column_of_the_row_groups_it_lies_in():
    raw = bytearray(tb.dumps({"x": np.arange(100), "y": np.arange(100.0)}, "parquet", row_group_rows=10))
    about = pq.ParquetFile(pa.BufferReader(bytes(raw))).metadata
    chunk = about.row_group(3).column(1)
    raw[chunk.data_page_offset + chunk.total_compressed_size - 3] ^= 0xFF  # in y of the fourth row group
    with tb.open(io.BytesIO(raw)) as file:
        assert file["x"].load().tolist() == list(range(100))
        assert file["y"][5:30].tolist() == list(range(5, 30))
        assert file["y"][95:38:-20].tolist() == [95, 75, 55]
        for index in (slice(30, 31), slice(None), ..., slice(45, 20, -1)):
            with pytest.raises(errors.CorruptError, match="'y'"):
                file["y"][index]
    with pytest.raises(errors.CorruptError, match="'y'"):
        tb.loads(raw)


# ---- hostile ----------------------------------------------------------------------


def small(**options):
    given = {
        "i": np.arange(2),
        "s": np.array(["a", "b"]),
        "r": Ragged(Tensor("int8", (1,), b"a"), (np.array([0, 0, 1]),)),
    }
    return tb.dumps(given, "parquet", **options)


def test_every_truncation():
    raw = small()
    for size in range(len(raw)):
        with pytest.raises(errors.TensorbytesError):
            tb.loads(raw[:size], "parquet")


@pytest.mark.parametrize("way", deep_but(["default"], ["default", "none"]))
def test_bits_that_flip(way):
    raw = bytearray(small(**WAYS[way]))
    for at in range(0, len(raw), 2):
        raw[at] ^= 1 << at % 8
        attempt(bytes(raw), "parquet")
        with contextlib.suppress(errors.TensorbytesError):
            tb.loads(raw, "parquet")
        raw[at] ^= 1 << at % 8


def test_a_changed_value_is_noticed():
    raw = bytearray(tb.dumps({"x": np.arange(100.0)}, "parquet", compression=None))
    raw[raw.index(struct.pack("<d", 55.0))] ^= 1
    with pytest.raises(errors.CorruptError, match="'x'"):
        tb.loads(raw)


def with_footer(raw, change):
    (length,) = struct.unpack_from("<I", raw, len(raw) - 8)
    footer = change(bytes(raw[-8 - length : -8]))
    return raw[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


FOOTERS = {
    "nothing": lambda footer: b"",
    "zeros": lambda footer: bytes(len(footer)),
    "half": lambda footer: footer[: len(footer) // 2],
    "nested structs": lambda footer: b"\x1c" * 10_000,
    "nested lists": lambda footer: b"\x19" * 10_000,
    "a list of 2^60 items": lambda footer: b"\x19\xf5" + b"\xff" * 8 + b"\x0f",
    "a number of 80 bits": lambda footer: b"\x15" + b"\xff" * 12,
    "a string of 2^60 bytes": lambda footer: b"\x18" + b"\xff" * 8 + b"\x0f",
    "an unknown kind": lambda footer: b"\x1f",
}


@pytest.mark.parametrize("name", FOOTERS)
def test_footers(name):
    with pytest.raises(errors.CorruptError):
        tb.loads(with_footer(small(), FOOTERS[name]))


def test_a_footer_longer_than_the_file():
    raw = small()
    with pytest.raises(errors.CorruptError, match="footer"):
        tb.loads(raw[:-8] + struct.pack("<I", 1 << 31) + b"PAR1")
    with pytest.raises(errors.UnsupportedError, match="encrypted"):
        tb.loads(raw[:-4] + b"PARE", "parquet")


def test_row_groups_that_share_their_bytes():
    """The same row group listed twice would double what it holds."""
    raw = tb.dumps({"x": np.arange(10)}, "parquet", row_group_rows=5)
    about = pq.ParquetFile(pa.BufferReader(raw)).metadata
    first, second = (about.row_group(n).column(0).dictionary_page_offset for n in range(2))

    def zigzag(n):
        out = bytearray()
        n *= 2
        while n > 127:
            out.append(n & 127 | 128)
            n >>= 7
        return bytes([*out, n])

    changed = with_footer(raw, lambda footer: footer.replace(zigzag(second), zigzag(first).ljust(1)))
    with pytest.raises(errors.CorruptError):
        tb.loads(changed)


def test_columns_in_other_files_are_refused(tmp_path):
    """What a dataset's _metadata file says: its row groups lie elsewhere."""
    table = pa.table({"x": [1, 2]})
    found = []
    pq.write_to_dataset(table, tmp_path, metadata_collector=found)
    found[0].write_metadata_file(tmp_path / "_metadata")
    with pytest.raises(errors.UnsupportedError, match="other files"):
        tb.load(tmp_path / "_metadata", "parquet")


@pytest.mark.parametrize("kind", [1, 2, 3], ids=["true", "false", "byte"])
def test_numbers_of_the_footer_are_numbers(kind):
    """pyarrow passes over a field of another kind; its value must not be taken."""
    with pytest.raises(tb.errors.CorruptError, match="field 3 of another kind"):
        arrow_thrift._Reader(memoryview(bytes([3 << 4 | kind, 5, 0])), 0).struct({3: int})


def test_damaged_statistics_end_no_process():
    """pyarrow aborts over statistics of another type than their column's; what is null is read without it."""
    raw = bytearray((ROOT / "tests/corpus/sweep/parquet/ints-snappy.parquet").read_bytes())
    raw[108] ^= 2  # in the schema: booleans
    with pytest.raises(tb.errors.CorruptError), tb.open(io.BytesIO(bytes(raw))) as file:
        file["i"].load()
