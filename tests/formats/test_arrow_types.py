"""Every Arrow type, with nulls at every level: read, written again, through other formats; pyarrow is the judge."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS
from tensorbytes.formats._arrow import nested
from tests.support import REAL_FILES
from tests.support.arrow_types import ARRAYS, VARIANTS, WAYS, plain, read, travel, write

TABLES = sorted((REAL_FILES / "tables").glob("*"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", ARRAYS)
def test_a_type_comes_back_as_it_was(name, variant, way, tmp_path):
    array = VARIANTS[variant](ARRAYS[name])
    if way == "Parquet":
        try:
            write(array, tmp_path / "x.parquet")
        except pa.ArrowNotImplementedError:
            assert "Parquet can't hold this" in travel(array, way, tmp_path)
            return
    found = travel(array, way, tmp_path)
    if way == "TFRecord" and variant == "empty":
        assert found.endswith("it holds no rows")
    else:
        assert found == "same"


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_read_lazily_is_what_is_loaded(name, suffix, tmp_path):
    path = tmp_path / f"x.{suffix}"
    try:
        write(ARRAYS[name], path)
    except pa.ArrowNotImplementedError:
        pytest.skip("pyarrow can't write it")
    loaded = tb.load(path, to="tensor")
    flat = {leaf.name: leaf.read() for leaf in tb.api.to_document(loaded).leaves}
    with tb.open(path, to="tensor") as file:
        assert sorted(file.keys()) == sorted(flat)
        for key, value in flat.items():
            entry = file[key]
            assert tb.equal(entry.load(), value), key
            assert entry.shape == value.header.shape
            if entry.kind == "tensor":
                for index in (slice(1, 3), slice(None, None, -1), 0):
                    assert tb.equal(entry[index], value.part(index)), (key, index)
    assert tb.verify(path).ok


def table_of(path):
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
@pytest.mark.parametrize("way", WAYS)
def test_files_of_others_come_back_column_by_column(path, way, tmp_path):
    want, at = table_of(path), path
    for step in WAYS[way]:
        tb.convert(at, tmp_path / step)
        at = tmp_path / step
    got = read(at)
    assert got.schema.names == want.schema.names
    assert got.schema.types == want.schema.types
    assert got.schema.metadata == want.schema.metadata
    for name, one, two in zip(want.schema.names, plain(got), plain(want), strict=True):
        assert one.equals(two), name


# ---- nested types ----------------------------------------------------------------

TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
SCALARS = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.large_binary(): st.binary(max_size=4),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(9, 3): st.decimals(-(10**5), 10**5, places=3),
    pa.date32(): st.dates(),
    pa.time64("us"): st.times(),
    pa.timestamp("ms", "UTC"): st.integers(-(2**40), 2**40),
    pa.duration("s"): st.integers(-(2**40), 2**40),
    pa.dictionary(pa.int8(), pa.string()): TEXT,
    pa.null(): st.none(),
}


def types(children):
    return st.one_of(
        children.map(pa.list_),
        children.map(pa.large_list),
        st.tuples(children, st.integers(0, 3)).map(lambda pair: pa.list_(*pair)),
        st.lists(children, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{number}", kind) for number, kind in enumerate(kinds)])
        ),
        st.tuples(st.sampled_from([pa.string(), pa.int8()]), children).map(lambda pair: pa.map_(*pair)),
    )


def values(kind):
    """Values of a type, None among them."""
    if kind in SCALARS:
        found = SCALARS[kind]
    elif pa.types.is_struct(kind):
        found = st.fixed_dictionaries({field.name: values(field.type) for field in kind})
    elif pa.types.is_map(kind):
        key = SCALARS[kind.key_type]
        found = st.lists(st.tuples(key, values(kind.item_type)), max_size=3)
    elif pa.types.is_fixed_size_list(kind):
        found = st.lists(values(kind.value_type), min_size=kind.list_size, max_size=kind.list_size)
    else:
        found = st.lists(values(kind.value_type), max_size=3)
    return st.one_of(st.none(), found)


KINDS = st.recursive(st.sampled_from(list(SCALARS)), types, max_leaves=4)


@given(st.data())
def test_nested_types_come_apart_and_together(data):
    kind = data.draw(KINDS)
    array = pa.array(data.draw(st.lists(values(kind), max_size=5)), kind)
    start = data.draw(st.integers(0, len(array)))
    array = array.slice(start, data.draw(st.integers(0, len(array) - start)))
    found = nested.shred(array, Budget(LIMITS), "col")
    assert [flat.keys for flat in nested.flat_columns(kind)] == list(found.columns)
    for place, mask in found.masks.items():
        below = [value for keys, value in found.columns.items() if keys[: len(place[0])] == place[0]]
        assert {nested.elements_at(value, place[1]) for value in below} == {len(mask)}
        assert not mask.all()
    for flat in nested.flat_columns(kind):
        alone = nested.shred(array, Budget(LIMITS), "col", flat.keys)
        assert list(alone.columns) == [flat.keys]
        assert tb.equal(alone.columns[flat.keys], found.columns[flat.keys])
    back = nested.compose(kind, nested.Columns(found.columns, found.masks, len(array)))
    back.validate(full=True)
    assert back.type == kind
    assert back.to_pylist() == array.to_pylist()


def test_what_has_no_neutral_form_is_listed_and_left_out_on_request(tmp_path):
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    path = tmp_path / "x.arrow"
    table = pa.table({"u": union, "x": [1, 2]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with tb.open(path) as file:
        assert sorted(file.keys()) == ["u", "x"]
        assert file["x"].load().tolist() == [1, 2]
        with pytest.raises(tb.errors.UnsupportedError, match=r"sparse_union.*no neutral form"):
            file["u"].load()
    assert [tensor.name for tensor in tb.inspect(path).tensors] == ["x", "u"]
    assert tb.load(path, names=["x"])["x"].tolist() == [1, 2]
    with pytest.raises(tb.errors.UnsupportedError, match=r"no neutral form.*objects='skip'"):
        tb.load(path)
    assert list(tb.load(path, objects="skip")) == ["x"]
    with pytest.raises(tb.errors.LossError, match=r"allow=\{'objects'\}"):
        tb.convert(path, tmp_path / "y.tb")
    tb.convert(path, tmp_path / "y.tb", allow={"objects"})
    assert list(tb.load(tmp_path / "y.tb")) == ["x"]


def test_nulls_are_masks_beside_their_columns(tmp_path):
    table = pa.table({"n": pa.array([1, None, 3]), "s": pa.array([{"a": 1}, None, {"a": None}])})
    pq.write_table(table, tmp_path / "x.parquet")
    found = tb.load(tmp_path / "x.parquet")
    assert found["n"].tolist() == [1, 0, 3]
    assert found["n/mask0"].tolist() == [True, False, True]
    assert found["s"]["a"].tolist() == [1, 0, 0]
    assert found["s/mask0"].tolist() == [True, False, True]
    assert found["s"]["a/mask0"].tolist() == [True, True, False]


def test_python_values_of_pyarrow_are_what_columns_hold(tmp_path):
    table = pa.table(
        {
            "d": pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)),
            "t": pa.array([datetime.time(1, 2, 3)], pa.time32("s")),
            "day": pa.array([datetime.date(2024, 2, 29)]),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    found = tb.load(tmp_path / "x.parquet")
    assert found["d"].tolist() == ["1.50"]
    assert found["t"].tolist() == [datetime.timedelta(hours=1, minutes=2, seconds=3)]
    assert found["day"].tolist() == [datetime.date(2024, 2, 29)]


def test_renaming_and_picking_fields_of_a_struct_keeps_what_is_missing(tmp_path):
    table = pa.table({"s": pa.array([{"a": 1, "b": 2}, None, {"a": None, "b": 3}])})
    pq.write_table(table, tmp_path / "x.parquet")
    tb.convert(tmp_path / "x.parquet", tmp_path / "y.parquet", names=["s/a"], rename={"s/a": "a"})
    assert pq.read_table(tmp_path / "y.parquet")["a"].to_pylist() == [1, None, None]


def test_rows_that_lack_a_column_are_null(tmp_path):
    tf = pytest.importorskip("tensorflow")
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        for row in ({"a": 1, "b": [1.5]}, {"a": 2}, {"b": [2.5, 3.5]}):
            writer.write({key: np.asarray(value, np.float32 if key == "b" else np.int64) for key, value in row.items()})
    for target in ("x.parquet", "x.arrow"):
        tb.convert(tmp_path / "x.tfrecord", tmp_path / target)
        assert read(tmp_path / target)["a"].to_pylist() == [1, 2, None]
        assert read(tmp_path / target)["b"].to_pylist() == [[1.5], None, [2.5, 3.5]]
        tb.convert(tmp_path / target, tmp_path / "y.tfrecord")
        payloads = [tf.train.Example.FromString(raw) for raw in tb.open_records(tmp_path / "y.tfrecord").payloads()]
        assert [sorted(example.features.feature) for example in payloads] == [["a", "b"], ["a"], ["b"]]


# ---- what lies below something that is missing --------------------------------------


D = decimal.Decimal
BELOW = {
    "decimals of a struct": pa.array([{"x": D("1.5")}, None]),
    "decimals of a list of one size": pa.array([[D("1.5")], None], pa.list_(pa.decimal128(3, 1), 1)),
    "decimals of a field that is never null": pa.StructArray.from_arrays(
        [pa.array([D("1.5"), D("2.5")])],
        fields=[pa.field("x", pa.decimal128(2, 1), nullable=False)],
        mask=pa.array([False, True]),
    ),
    "decimals of an inner struct": pa.array([{"s": {"x": D("1.5")}}, {"s": None}, None, {"s": {"x": None}}]),
    "bytes of one length": pa.array([{"x": b"abc"}, None], pa.struct([("x", pa.binary(3))])),
}


def same_after(array, folder, *steps):
    """Whether an array comes back after some files, of which the last one is read by pyarrow."""
    start = "start.parquet" if steps[-1].endswith("parquet") else "start.arrow"
    write(array, folder / start)
    want, at = read(folder / start), folder / start
    for step in steps:
        tb.convert(at, folder / step)
        at = folder / step
    got = read(at)
    got.validate(full=True)
    return got.schema.types == want.schema.types and got["col"].to_pylist() == want["col"].to_pylist()


@pytest.mark.parametrize("steps", [["x.arrow"], ["x.parquet"], ["x.npz", "y.arrow"]], ids=lambda steps: steps[0])
@pytest.mark.parametrize("name", BELOW)
def test_values_below_a_missing_parent_keep_their_type(name, steps, tmp_path):
    assert same_after(BELOW[name], tmp_path, *steps)


def test_text_that_is_no_number_is_not_made_one():
    strings = tb.Strings((2,), np.array([0, 1, 1]), b"1", "utf-8")
    with pytest.raises(tb.errors.LossError, match="text that is not decimal"):
        nested.compose(pa.decimal128(3, 1), nested.Columns({(): strings}, {}, 2))
