"""Some columns of a table, under other names: types, nulls and rows stay theirs, whatever is beside them."""

from decimal import Decimal

import pytest

import tensorbytes as tb

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

WAYS = ["arrow", "parquet", "tb", "npz", "tfrecord"]
MS, NS = pa.timestamp("ms"), pa.timestamp("ns")


def through(table, way, folder, **options):
    """The table that pyarrow reads, once it was in a file of this kind and some of it was taken from there."""
    pq.write_table(table, folder / "start.parquet")
    path = folder / f"there.{way}"
    tb.convert(folder / "start.parquet", path)
    tb.convert(path, folder / "end.parquet", verify=True, **options)
    return pq.read_table(folder / "end.parquet")


CASES = {
    "names of two units are swapped": (
        pa.table({"a": pa.array([1000], MS), "b": pa.array([5], NS)}),
        {"rename": {"a": "b", "b": "a"}},
        pa.table({"b": pa.array([1000], MS), "a": pa.array([5], NS)}),
    ),
    "a number takes the name of a time": (
        pa.table({"a": pa.array([1000], MS), "b": [5]}),
        {"names": ["b"], "rename": {"b": "a"}},
        pa.table({"a": [5]}),
    ),
    "text takes the name of a decimal": (
        pa.table({"a": [Decimal("1.5")], "b": ["07"]}),
        {"names": ["b"], "rename": {"b": "a"}},
        pa.table({"a": ["07"]}),
    ),
    "a decimal keeps its type": (
        pa.table({"a": [Decimal("1.50"), None]}),
        {"rename": {"a": "price"}},
        pa.table({"price": [Decimal("1.50"), None]}),
    ),
    "nulls go along with a name": (
        pa.table({"a": [1, None], "b": [3, 4]}),
        {"rename": {"a": "b", "b": "a"}},
        pa.table({"b": [1, None], "a": [3, 4]}),
    ),
    "one column of two": (pa.table({"a": [1, None], "b": [3, 4]}), {"names": ["a"]}, pa.table({"a": [1, None]})),
    "a field of a struct that is missing": (
        pa.table({"s": [{"x": 1, "y": 2}, None]}),
        {"names": ["s/x"]},
        pa.table({"s": [{"x": 1}, None]}),
    ),
    "a field by a name of its own": (
        pa.table({"s": [{"x": 1, "y": 2}, None], "n": [1, 2]}),
        {"names": ["s/x", "n"], "rename": {"s/x": "x"}},
        pa.table({"x": [1, None], "n": [1, 2]}),
    ),
    "a struct by another name": (
        pa.table({"s": [{"x": 1, "y": "a"}, None]}),
        {"rename": {"s/x": "t/x", "s/y": "t/y"}},
        pa.table({"t": [{"x": 1, "y": "a"}, None]}),
    ),
    "elements of lists": (
        pa.table({"l": [[1, None], None, []], "m": [1, 2, 3]}),
        {"names": ["l"], "rename": {"l": "q"}},
        pa.table({"q": [[1, None], None, []]}),
    ),
    "fields of lists of structs": (
        pa.table({"s": [[{"x": 1, "y": 10}, None], [{"x": 3, "y": None}]], "p": [[{"x": 7}], [{"x": 8}, {"x": 9}]]}),
        {"rename": {"s/y": "p/x", "p/x": "s/y"}},
        pa.table({"s": [[{"x": 1}, None], [{"x": 3}]], "p/x": [[10, None], [None]], "s/y": [[7], [8, 9]]}),
    ),
    "a value of maps": (
        pa.table({"m": pa.array([[("k", 1), ("l", None)], None], pa.map_(pa.string(), pa.int64()))}),
        {"names": ["m/value"], "rename": {"m/value": "v"}},
        pa.table({"v": [[1, None], None]}),
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES)
def test_what_is_taken_is_what_it_was(case, way, tmp_path):
    table, options, want = CASES[case]
    got = through(table, way, tmp_path, **options)
    assert sorted(got.column_names) == sorted(want.column_names)
    for name in want.column_names:
        assert got.column(name).to_pylist() == want.column(name).to_pylist()
        assert _named(got.schema.field(name).type) == _named(want.schema.field(name).type)


def _named(kind):
    return str(kind).replace("<element: ", "<item: ")


def test_a_column_named_like_a_field_stays_apart(tmp_path):
    """ "a/b" beside a struct a{b}: through tb, one of them was lost and the other had its values."""
    for table in (pa.table({"a/b": [5], "a": [{"b": 1}]}), pa.table({"a": [{"b": 1}, None], "a/b": [5, 6]})):
        for way in ("arrow", "parquet", "tb", "npz"):
            folder = tmp_path / f"{way}{table.num_rows}"
            folder.mkdir()
            assert through(table, way, folder).to_pylist() == table.to_pylist()


def test_casting_keeps_structs_and_what_is_missing(tmp_path):
    pq.write_table(pa.table({"s": [{"f": 1.5, "i": 1}, None], "l": [[1.5, None], []]}), tmp_path / "x.parquet")
    tb.convert(tmp_path / "x.parquet", tmp_path / "y.parquet", cast="float32")
    got = pq.read_table(tmp_path / "y.parquet")
    assert got.to_pylist() == [{"s": {"f": 1.5, "i": 1}, "l": [1.5, None]}, {"s": None, "l": []}]
    assert got.schema.field("s").type.field("f").type == pa.float32()
    tb.convert(tmp_path / "x.parquet", tmp_path / "z.parquet", cast={"s/f": "bfloat16"})
    back = tb.load(tmp_path / "z.parquet")
    assert (str(back["s/f"].dtype), back["s/f/mask0"].tolist()) == ("bfloat16", [True, False])
    pairs = pa.array([[1.5, None], None, [2.5, 3.5]], pa.list_(pa.float64(), 2))
    pq.write_table(pa.table({"p": pairs}), tmp_path / "x.parquet")
    with pytest.raises(tb.errors.LossError, match=r"which elements of 'p' are missing.*cast"):
        tb.convert(tmp_path / "x.parquet", tmp_path / "w.parquet", cast="bfloat16")


def test_statistics_leave_out_what_is_missing(tmp_path):
    table = pa.table({"l": [[10, None], [20]], "s": [{"x": 10, "w": "b"}, None], "f": [None, [1.0, 2.0]]})
    pq.write_table(table.cast(table.schema.set(2, pa.field("f", pa.list_(pa.float64(), 2)))), tmp_path / "x.parquet")
    for path in ("x.parquet", "x.npz", "x.tb"):
        if path != "x.parquet":
            tb.convert(tmp_path / "x.parquet", tmp_path / path)
        found = tb.stats(tmp_path / path)
        assert found.keys() == {"l", "s/x", "s/w", "f"}
        assert [(found[name].count, found[name].min, found[name].missing) for name in ("l", "s/x", "f")] == [
            (2, 10, 1),
            (1, 10, 1),
            (2, 1.0, 1),
        ]
        assert (dict(found["s/w"].frequent), found["s/w"].missing) == ({"b": 1}, 1)
