"""Every Arrow type, with nulls at every level: read, written again, through other formats; pyarrow is the judge."""

import datetime
import decimal
import itertools
import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import rows
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS
from tensorbytes.formats._arrow import batches, composing, decimals, nested, shredding, thrift, words
from tests.support import REAL_FILES
from tests.support.arrow_types import ARRAYS, VARIANTS, WAYS, plain, read, travel, write
from tests.support.tiers import deep_but

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


@pytest.mark.parametrize(
    ("way", "path"),
    deep_but(
        [(way, path) for way in WAYS for path in TABLES if way != "TFRecord" or path.stat().st_size < 1 << 16],
        [*itertools.product(WAYS, TABLES)],
    ),
    ids=lambda given: getattr(given, "name", given),
)
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
    found = shredding.shred(array, Budget(LIMITS), "col")
    assert [flat.keys for flat in nested.flat_columns(kind)] == list(found.columns)
    for place, mask in found.masks.items():
        below = [value for keys, value in found.columns.items() if keys[: len(place[0])] == place[0]]
        assert {nested.elements_at(value, place[1]) for value in below} == {len(mask)}
        assert not mask.all()
    for flat in nested.flat_columns(kind):
        alone = shredding.shred(array, Budget(LIMITS), "col", flat.keys)
        assert list(alone.columns) == [flat.keys]
        assert tb.equal(alone.columns[flat.keys], found.columns[flat.keys])
    back = composing.compose(kind, composing.Columns(found.columns, found.masks, len(array)))
    back.validate(full=True)
    assert back.type == kind
    assert back.to_pylist() == array.to_pylist()


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.time32("ms"), pa.month_day_nano_interval(), pa.decimal128(5), pa.int8()]
)
def test_lists_of_nothing_have_no_elements(kind):
    """Of a list that is null, and of others of size 0, no element is left whose width could be told by its bytes."""
    whole = pa.large_list(pa.list_(kind, 0))
    for lists in ([[None]], [[None, []]], [None], []):
        array = pa.array(lists, whole)
        found = shredding.shred(array, Budget(LIMITS), "col")
        assert composing.compose(whole, composing.Columns(found.columns, found.masks, len(array))).equals(array)


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


# ---- decimals as text ----------------------------------------------------------


@pytest.mark.parametrize("digits", [1, 9, 18, 19, 38])
@pytest.mark.parametrize("scale", [0, 1, 2, 6, 7])
def test_decimals_are_written_as_pyarrow_writes_them(digits, scale):
    """Whether all of them are written at once, or pyarrow is asked: ours must be the same text, nulls included."""
    numbers = [sign * 10**n // (n + 1) for n in range(digits + 1) for sign in (1, -1)]
    numbers = [n for n in (*numbers, 0, 10**digits - 1, 1 - 10**digits) if abs(n) < 10**digits]
    texts = [decimal.Decimal(n).scaleb(-scale, decimal.Context(prec=60)) for n in numbers]
    kinds = [pa.decimal128(digits, scale), pa.decimal256(digits, scale)] if scale <= digits else []
    kinds += [pa.decimal32(digits, scale)] if scale <= digits <= 9 else []
    kinds += [pa.decimal64(digits, scale)] if scale <= digits <= 18 else []
    for kind in kinds:
        for values in (texts, [None, *texts, None], [None], []):
            whole = pa.array(values, kind)
            for array in (whole, whole.slice(1), whole.slice(2, 5)):
                there = np.asarray(array.is_valid()) if array.null_count else None
                made = decimals.to_text(array, there)
                assert made.tolist() == [text or "" for text in array.cast(pa.large_string()).to_pylist()]
                digits_of = decimals.from_text(made, there, kind)
                if digits_of is not None:  # pyarrow is asked otherwise
                    valid = None if there is None else nested.bits_of(there)
                    assert pa.Array.from_buffers(kind, len(array), [valid, digits_of]).equals(array)
                else:
                    assert scale > 6 or max(map(abs, numbers)) >= 10**18


# ---- through records ---------------------------------------------------------------

# More than are read at once.
MANY = 4200


@pytest.fixture
def small_batches(monkeypatch):
    """Tables are read some thousand rows at a time, however little each row takes."""
    monkeypatch.setattr(batches, "_MOST_BATCH_ROWS", 4096)


def through_records(table, folder, target="x.tfrecord", **options):
    """A table that went through TFRecord files."""
    pq.write_table(table, folder / "in.parquet")
    tb.convert(folder / "in.parquet", folder / target, **options)
    tb.convert(folder / target, folder / "out.parquet")
    return pq.read_table(folder / "out.parquet")


@pytest.mark.parametrize(
    ("target", "options"),
    deep_but(
        [("x.tfrecord@2", {})],
        [("x.tfrecord", {}), ("x.tfrecord@2", {}), ("x.tfrecord.gz", {}), ("x.tfrecord", {"compression": "snappy"})],
    ),
)
@pytest.mark.parametrize("where", deep_but([[MANY - 2]], [[1], [MANY - 2], [1, MANY - 2]]))
@pytest.mark.usefixtures("small_batches")
def test_records_keep_what_is_missing_in_some_batches_alone(where, target, options, tmp_path):
    gone = [number in where for number in range(MANY)]
    table = pa.table(
        {
            "s": [None if no else {"x": 1, "y": "a"} for no in gone],
            "e": [[number, None] if no else [number] for number, no in enumerate(gone)],
            "d": [[[1, None], None] if no else [[2]] for no in gone],
        }
    )
    assert through_records(table, tmp_path, target, **options).equals(table)


@pytest.mark.parametrize("target", ["y.tfrecord", "y.tb", "y.npz"])
@pytest.mark.usefixtures("small_batches")
def test_records_with_masks_in_some_batches_go_on_to_other_formats(target, tmp_path):
    table = pa.table({"s": [None if number == MANY - 1 else {"x": {"y": number}} for number in range(MANY)]})
    pq.write_table(table, tmp_path / "in.parquet")
    at = tmp_path / "in.parquet"
    for step in ("x.tfrecord", target, "out.parquet"):
        tb.convert(at, tmp_path / step)
        at = tmp_path / step
    assert pq.read_table(at).equals(table)


def records_of(folder, name, table):
    pq.write_table(table, folder / f"{name}.parquet")
    tb.convert(folder / f"{name}.parquet", folder / f"{name}.tfrecord")
    return str(folder / f"{name}.tfrecord")


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("way", ["merge", "glob"])
def test_files_of_records_with_and_without_nulls_become_one_table(way, order, tmp_path):
    tables = {
        "a": pa.table({"t": pa.array([1, None], pa.timestamp("ms")), "l": [[1, None], []], "s": [{"x": 1}, None]}),
        "b": pa.table({"t": pa.array([2], pa.timestamp("ms")), "l": [[3]], "s": [{"x": 2}]}),
    }
    paths = [records_of(tmp_path, name, tables[name]) for name in order]
    if way == "merge":
        tb.merge(paths, tmp_path / "m.tfrecord")
        paths = tmp_path / "m.tfrecord"
    tb.convert(paths, tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").equals(pa.concat_tables([tables[name] for name in order]))


def test_tables_are_merged_and_split_into_records_with_their_nulls(tmp_path):
    table = pa.table({"t": pa.array([1, None], pa.timestamp("ms")), "l": [[1], [None]], "s": [{"x": 1}, None]})
    for number in range(2):
        pq.write_table(table.slice(number, 1), tmp_path / f"{number}.parquet")
    tb.merge([tmp_path / "0.parquet", tmp_path / "1.parquet"], tmp_path / "x.tfrecord")
    tb.convert(tmp_path / "x.tfrecord", tmp_path / "x.parquet")
    assert pq.read_table(tmp_path / "x.parquet").equals(table)
    tb.split(tmp_path / "x.parquet", tmp_path / "y.tfrecord", rows=1)
    tb.convert(f"{tmp_path}/y.tfrecord@2", tmp_path / "y.parquet")
    assert pq.read_table(tmp_path / "y.parquet").equals(table)


@pytest.mark.parametrize("other", [pa.array([1], pa.timestamp("us")), pa.array([1])])
def test_records_of_different_arrow_types_never_become_one(other, tmp_path):
    paths = [
        records_of(tmp_path, "a", pa.table({"t": pa.array([1], pa.timestamp("ms")), "l": [[1, None]]})),
        records_of(tmp_path, "b", pa.table({"t": other, "l": [[1]]})),
    ]
    for act in (lambda: tb.merge(paths, tmp_path / "m.tfrecord"), lambda: tb.convert(paths, tmp_path / "m.parquet")):
        with pytest.raises(tb.errors.SchemaError, match=r"'t' is timestamp\[ms\] in .*a\.tfrecord.*b\.tfrecord.*apart"):
            act()
    assert not (tmp_path / "m.tfrecord").exists()
    pq.write_table(pa.table({"t": other, "l": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(tb.errors.SchemaError, match="'t' is timestamp"):
        tb.merge([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "m.tfrecord")


def test_records_without_a_note_of_times_are_not_mixed_with_times(tmp_path):
    first = records_of(tmp_path, "a", pa.table({"t": pa.array([1], pa.timestamp("ms"))}))
    with tb.RecordWriter(tmp_path / "b.tfrecord") as writer:
        writer.write({"t": 1})
    with pytest.raises(tb.errors.SchemaError, match=r"'t' is timestamp\[ms\].*not noted"):
        tb.convert([first, str(tmp_path / "b.tfrecord")], tmp_path / "m.parquet")
    second = records_of(tmp_path, "c", pa.table({"t": pa.array([1])}))
    tb.convert([second, str(tmp_path / "b.tfrecord")], tmp_path / "m.parquet")
    assert pq.read_table(tmp_path / "m.parquet")["t"].to_pylist() == [1, 1]


INTERVAL = pa.month_day_nano_interval()


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (pa.list_(pa.struct([])), [[{}], None, [{}, None]]),
        (pa.list_(pa.null()), [[None], [], None]),
        (pa.list_(pa.list_(pa.null())), [[[None], []], [], None]),
        (pa.list_(pa.list_(pa.int64(), 0)), [[[], []], [None], []]),
        (pa.list_(pa.list_(pa.int64(), 2)), [[[1, 2], None], [], None, [[3, None]]]),
        (pa.list_(pa.list_(pa.bool_(), 2)), [[[True, False]], [[True, None]]]),
        (pa.list_(pa.list_(pa.list_(pa.int8(), 2), 3)), [[[[1, 2], None, [3, 4]]], []]),
        (pa.list_(pa.list_(pa.list_(pa.int64(), 2))), [[[[1, 2]], [[3, 4], [5, 6]]], [], [None, [None, [7, None]]]]),
        (pa.list_(INTERVAL), [[pa.MonthDayNano([1, 2, 3]), None], []]),
    ],
    ids=str,
)
@pytest.mark.parametrize("nulls", [True, False])
def test_lists_of_lists_of_one_size_go_through_records(kind, rows, nulls, tmp_path):
    rows = rows if nulls else [row for row in rows if "None" not in str(row)] or rows
    table = pa.table({"x": pa.array(rows, kind)})
    path = tmp_path / "x.arrow"
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    tb.convert(path, tmp_path / "x.tfrecord")
    tb.convert(tmp_path / "x.tfrecord", tmp_path / "y.arrow")
    assert read(tmp_path / "y.arrow").equals(table)


@pytest.mark.parametrize("target", ["x.tb", "x.npz"])
def test_structs_of_records_have_the_places_that_those_of_arrow_have(target, tmp_path):
    table = pa.table({"s": [{"a": 1, "t": {"b": 2}}, None, {"a": None, "t": None}]})
    pq.write_table(table, tmp_path / "x.parquet")
    tb.convert(tmp_path / "x.parquet", tmp_path / f"direct-{target}")
    tb.convert(tmp_path / "x.parquet", tmp_path / "x.tfrecord")
    tb.convert(tmp_path / "x.tfrecord", tmp_path / target)
    assert tb.diff(tmp_path / f"direct-{target}", tmp_path / target).identical
    tb.convert(tmp_path / target, tmp_path / "y.parquet")
    assert pq.read_table(tmp_path / "y.parquet").equals(table)


def test_structs_of_records_have_places_without_pyarrow_as_well(tmp_path, monkeypatch):
    records_of(tmp_path, "x", pa.table({"s": [{"a": 1, "t": {"b": 2}}, None, {"a": None, "t": None}]}))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    tb.convert(tmp_path / "x.tfrecord", tmp_path / "x.tb")
    found = tb.load(tmp_path / "x.tb")
    assert found["s/mask0"].tolist() == [True, False, True]
    assert found["s"]["t/mask0"].tolist() == [True, True, False]
    assert found["s"]["t"]["b"].tolist() == [2, 0, 0]


def test_repaired_records_keep_their_schema(tmp_path):
    table = pa.table({"l": [[1, None]], "t": pa.array([5], pa.timestamp("ms"))})
    records_of(tmp_path, "x", table)
    tb.repair(tmp_path / "x.tfrecord", tmp_path / "y.tfrecord")
    tb.convert(tmp_path / "y.tfrecord", tmp_path / "y.parquet")
    assert pq.read_table(tmp_path / "y.parquet").equals(table)
    (tmp_path / "bad.tfrecord").write_bytes(b"\0" * 100)
    (tmp_path / "bad.tfrecord.schema.json").write_bytes((tmp_path / "x.tfrecord.schema.json").read_bytes())
    with pytest.raises(tb.errors.TensorbytesError):
        tb.repair(tmp_path / "bad.tfrecord", tmp_path / "z.tfrecord")
    assert not list(tmp_path.glob("*z.tfrecord*"))


@pytest.mark.parametrize(
    ("key", "note"),
    [
        ("masks", "x"),
        ("masks", "[]"),
        ("masks", '{"l/mask1": ["l", 1e999]}'),
        ("masks", '{"l/mask1": ["l", 1.5]}'),
        ("masks", '{"l/mask1": ["l", "1"]}'),
        ("masks", '{"l/mask1": ["l", 99]}'),
        ("masks", '{"l/mask1": ["l", 0]}'),
        ("masks", '{"l/mask1": ["ll", 1]}'),
        ("masks", '{"a": ["l", 0]}'),
        ("masks", '{"l": ["l", 1]}'),
        ("levels", '{"ll/lengths1": ["l", 1]}'),
        ("levels", '{"ll/lengths1": ["ll", 0]}'),
        ("levels", '{"ll/lengths1": ["ll", 2]}'),
        ("levels", '{"l": ["ll", 1]}'),
        ("levels", '{"ll/lengths1": ["ll", 1], "ll/lengths2": ["ll", 2]}'),
    ],
)
def test_notes_of_masks_and_levels_that_do_not_fit_are_refused(key, note, tmp_path):
    records_of(tmp_path, "x", pa.table({"a": [1, None], "l": [[1, None], [2]], "ll": [[[1], [2]], [[3]]]}))
    path = tmp_path / "x.tfrecord.schema.json"
    schema = json.loads(path.read_text())
    schema["origin"][key] = note
    path.write_text(json.dumps(schema))
    with pytest.raises(tb.errors.SchemaError, match="not sound"):
        tb.convert(tmp_path / "x.tfrecord", tmp_path / "y.parquet")


@pytest.mark.parametrize("level", [2, 3, 64])
def test_a_mask_of_a_level_that_a_column_lacks_is_refused(level):
    columns = {"x": tb.Tensor("int64", (2, 1), bytes(16)), f"x/mask{level}": tb.Tensor("bool", (2,), b"\1\0")}
    table = rows.Table(columns, 2, origin={"masks": json.dumps({f"x/mask{level}": ["x", level]})})
    with pytest.raises(ValueError, match="no such level"):
        table.with_masks()


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
        composing.compose(pa.decimal128(3, 1), composing.Columns({(): strings}, {}, 2))


# ---- dictionaries ---------------------------------------------------------------------


def dictionary_of(words, indices, ordered=False):
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), pa.array(words), ordered=ordered)


def nestings(array):
    """A dictionary by itself, and inside of others."""
    return {
        "by itself": array,
        "in a struct": pa.StructArray.from_arrays([array], names=["c"]),
        "in lists": pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array),
        "in lists of one size": pa.FixedSizeListArray.from_arrays(array, 1),
        "in maps": pa.MapArray.from_arrays(
            pa.array(range(len(array) + 1), pa.int32()), pa.array(["k"] * len(array)), array
        ),
    }


GROWING = nestings(pa.array(["x"] * 5000 + ["y", None] + ["z", "x"] * 2500).dictionary_encode())
SIZES = dictionary_of(["low", "mid", "high"], [2, 0, None, 0], ordered=True)
ORDERED = nestings(SIZES)


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.usefixtures("small_batches")
def test_words_of_many_batches_are_one_dictionary_of_a_file(name, tmp_path):
    assert same_after(GROWING[name], tmp_path, "x.arrow")
    assert same_after(GROWING[name], tmp_path, "x.parquet")
    assert tb.equal(tb.load(tmp_path / "x.arrow"), tb.load(tmp_path / "start.arrow"))


@pytest.mark.parametrize("array", [pa.array([[1]] * 5000 + [[2, None]]), pa.array([{"x": 1}] * 5000 + [{"x": 2}])])
def test_words_may_be_lists_and_structs(array, tmp_path):
    indices = pa.array([0, 1, 5000] * 1500, pa.int32())
    assert same_after(pa.DictionaryArray.from_arrays(indices, array), tmp_path, "x.arrow")


@pytest.mark.parametrize("steps", [["x.arrow"], ["x.parquet"], ["x.npz", "y.parquet"], ["x.tb", "y.arrow"]])
@pytest.mark.parametrize("name", ORDERED)
def test_ordered_dictionaries_keep_their_words_and_their_order(name, steps, tmp_path):
    assert same_after(ORDERED[name], tmp_path, *steps)
    found = read(tmp_path / steps[-1])["col"].chunk(0)
    (order,) = dict(shredding.ordered_words(found)).values()
    assert order.to_pylist() == ["low", "mid", "high"]


def test_the_words_of_a_struct_that_is_missing_are_none_of_its_own(tmp_path):
    struct = pa.StructArray.from_arrays([SIZES], names=["c"], mask=pa.array([False, True, False, False]))
    assert same_after(struct, tmp_path, "x.parquet")
    struct = pa.StructArray.from_arrays(
        [dictionary_of([f"{n}" for n in range(128)], range(128))], names=["c"], mask=pa.array([True] + [False] * 127)
    )
    assert same_after(struct, tmp_path, "x.arrow")


def write_stream(path, *arrays):
    schema = pa.schema([("c", arrays[0].type)])
    with pa.ipc.new_stream(path, schema) as writer:
        for array in arrays:
            writer.write_batch(pa.record_batch([array], schema=schema))


@pytest.mark.usefixtures("small_batches")
def test_a_dictionary_with_more_words_than_indices_is_refused(tmp_path):
    write_stream(
        tmp_path / "x.arrows", *(dictionary_of([f"{k}-{i}" for i in range(100)], range(100)) for k in range(3))
    )
    with pytest.raises(tb.errors.LossError, match=r"300 words, and indices of int8.*'c'"):
        tb.convert(tmp_path / "x.arrows", tmp_path / "y.arrows")
    many = [dictionary_of([f"{k}-{i}" for i in range(100)], [i % 100 for i in range(4096)]) for k in range(2)]
    write_stream(tmp_path / "x.arrows", *many)
    tb.convert(tmp_path / "x.arrows", tmp_path / "y.arrows")
    with pytest.raises(tb.errors.LossError, match="200 words, and indices of int8"):
        tb.convert(tmp_path / "x.arrows", tmp_path / "y.arrow")


def test_an_order_that_changes_or_is_too_long_is_refused(tmp_path):
    write_stream(
        tmp_path / "x.arrows",
        dictionary_of(["low", "high"], [0, 1], ordered=True),
        dictionary_of(["low", "mid", "high"], [0, 1, 2], ordered=True),
    )
    assert tb.load(tmp_path / "x.arrows")["c"].tolist() == ["low", "high", "low", "mid", "high"]
    with pytest.raises(tb.errors.LossError, match="words that the first batch does not have"):
        tb.convert(tmp_path / "x.arrows", tmp_path / "y.arrow")
    write_stream(tmp_path / "x.arrows", dictionary_of(["a" * (2 << 20)], [0], ordered=True))
    with pytest.raises(tb.errors.LossError, match="words were not kept"):
        tb.convert(tmp_path / "x.arrows", tmp_path / "y.arrow")


def test_a_categorical_of_pandas_keeps_its_order(tmp_path):
    pd = pytest.importorskip("pandas")
    sizes = pd.Categorical(["high", "low"], categories=["low", "mid", "high"], ordered=True)
    pd.DataFrame({"c": sizes}).to_parquet(tmp_path / "x.parquet")
    tb.convert(tmp_path / "x.parquet", tmp_path / "y.parquet")
    found = pd.read_parquet(tmp_path / "y.parquet")["c"]
    assert found.max() == "high"
    assert found.cat.categories.tolist() == ["low", "mid", "high"]


@pytest.mark.parametrize(
    "note", [b"", b"[]", b"[1]", b'[[[],0,"AAAA"]]', b'[[[],0,"////////"]]', b"\xff", b'[["",0,1]]']
)
def test_words_that_a_file_makes_up_are_none(note):
    assert not words.words_of(pa.field("c", SIZES.type, metadata={"tensorbytes": note}))


# ---- what stands for more than it takes -------------------------------------------------

LONG = "x" * 100_000
BOMBS = {
    "runs of text": pa.RunEndEncodedArray.from_arrays(pa.array([600], pa.int32()), pa.array([LONG])),
    "runs of numbers": pa.RunEndEncodedArray.from_arrays(pa.array([60_000_000], pa.int32()), pa.array([1], pa.int8())),
    "runs of lists": pa.RunEndEncodedArray.from_arrays(pa.array([600], pa.int32()), pa.array([[1] * 100_000])),
    "words that are text": dictionary_of([LONG], [0] * 600),
    "words that are lists": dictionary_of([[1] * 100_000], [0] * 600),
    "words that are lists of one size": pa.DictionaryArray.from_arrays(
        pa.array([0] * 600), pa.array([[1] * 100_000], pa.list_(pa.int8(), 100_000))
    ),
    "words that are structs": pa.DictionaryArray.from_arrays(pa.array([0] * 600), pa.array([{"x": {"y": LONG}}])),
    "views of one text": pa.ListViewArray.from_arrays(pa.array([0] * 600), pa.array([1] * 600), pa.array([LONG])),
    "views of one word": pa.ListViewArray.from_arrays(
        pa.array([0] * 600), pa.array([1] * 600), dictionary_of([LONG], [0])
    ),
    "nulls": pa.nulls(20_000_000),
    "nulls in a struct": pa.StructArray.from_arrays([pa.nulls(20_000_000)], names=["x"]),
    "nulls in lists": pa.ListArray.from_arrays(pa.array([0, 20_000_000], pa.int32()), pa.nulls(20_000_000)),
    "nulls in lists of one size": pa.FixedSizeListArray.from_arrays(pa.nulls(20_000_000), 10_000_000),
    "structs without fields, of one that is missing": pa.Array.from_buffers(
        pa.list_(pa.struct([]), 30_000_000),
        2,
        [pa.py_buffer(b"\1")],
        children=[pa.Array.from_buffers(pa.struct([]), 60_000_000, [None])],
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_memory_is_charged_before_it_is_taken(name):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("col", BOMBS[name].type)])) as writer:
        writer.write_batch(pa.record_batch([BOMBS[name]], names=["col"]))
    data = sink.getvalue().to_pybytes()
    with pytest.raises(tb.errors.LimitError, match=r"max_bytes=\.\.\."):
        tb.loads(data, limits=tb.errors.Limits(max_bytes=40 << 20))


@pytest.mark.parametrize("steps", [["x.arrow"], ["x.npz", "y.arrow"]], ids=lambda steps: steps[0])
@pytest.mark.parametrize("name", ["views", "a view of views", "maps", "runs", "runs of lists", "words", "hidden items"])
def test_what_pyarrow_does_not_take_is_taken(name, steps, tmp_path):
    view, text = pa.string_view(), ["a", "longer than twelve bytes", None, "b"]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2, 5, 6], pa.int32()), pa.array(text, view))
    arrays = {
        "views": pa.array([text, None, []], pa.list_view(view)),
        "a view of views": pa.array([[text, None], None, [[]]], pa.list_view(pa.list_view(view))),
        "maps": pa.array([[("k", "a"), ("l", None)], None, []], pa.map_(pa.string(), view)),
        "runs": runs.slice(1, 4),
        "runs of lists": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([["a"], None])),
        "words": pa.DictionaryArray.from_arrays(
            pa.array([1, None, 0, 1]), pa.array([[{"x": "a"}, None], [{"x": None}]], pa.list_(pa.struct([("x", view)])))
        ),
        "hidden items": pa.Array.from_buffers(
            pa.list_(view), 2, [pa.py_buffer(b"\2"), pa.py_buffer(np.array([0, 2, 4], "<i4"))],
            children=[pa.array(text, view)],
        ),
    }  # fmt: skip
    write(arrays[name].slice(0, 0), tmp_path / "empty.arrow")
    tb.load(tmp_path / "empty.arrow")
    assert same_after(arrays[name], tmp_path, *steps)


# ---- tensors, and names that occur twice ---------------------------------------------------


def tensors_of(storage, shape, **more):
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(storage.type.value_type, shape, **more), storage)


CELLS = tensors_of(pa.array([[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]], pa.list_(pa.int64(), 6)), [2, 3])
TENSORS = {
    "with a null inside": tensors_of(pa.array([[1, 2, 3, 4, 5, None], None], pa.list_(pa.int64(), 6)), [2, 3]),
    "strings with a null inside": tensors_of(pa.array([["a", None, "", "b"]], pa.list_(pa.string(), 4)), [2, 2]),
    "in lists": pa.ListArray.from_arrays([0, 1, 2], CELLS),
    "in lists, some of which are missing": pa.ListArray.from_arrays([0, None, 2], CELLS),
    "in lists, with nulls inside": pa.ListArray.from_arrays(
        [0, 1, 2], tensors_of(pa.array([[1, None, 3, 4], None], pa.list_(pa.int32(), 4)), [2, 2])
    ),
    "in lists of one size": pa.FixedSizeListArray.from_arrays(CELLS, 2),
    "permuted, in lists": pa.ListArray.from_arrays(
        [0, 2], tensors_of(CELLS.storage, [2, 3], permutation=[1, 0], dim_names=["a", "b"])
    ),
}


@pytest.mark.parametrize("steps", [["x.arrow"], ["x.tb", "y.arrow"], ["x.npz", "y.arrow"]], ids=lambda steps: steps[0])
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_come_back_wherever_they_stand(name, steps, tmp_path):
    array = TENSORS[name]
    want = write(array, tmp_path / "start.arrow")
    at = tmp_path / "start.arrow"
    for step in steps:
        tb.convert(at, tmp_path / step)
        at = tmp_path / step
    got = read(at)
    assert got.schema.types == want.schema.types
    assert got["col"].combine_chunks().equals(want["col"].combine_chunks())
    loaded = tb.load(tmp_path / "start.arrow", to="tensor")
    with tb.open(tmp_path / "start.arrow", to="tensor") as file:
        for key in sorted(file.keys()):
            assert tb.equal(file[key].load(), loaded[key])
            assert file[key].shape == loaded[key].header.shape


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_arrays_of_varying_shapes_may_be_missing(suffix, tmp_path):
    rows = [{"a": np.ones((2, 2), np.uint8)}, {}, {"a": np.zeros((1, 2), np.uint8)}]
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        for row in rows:
            writer.write(row)
    path = tmp_path / f"x.{suffix}"
    tb.convert(tmp_path / "x.tfrecord", path)
    found = tb.load(path, to="tensor")
    assert found["a/mask0"].numpy().tolist() == [True, False, True]
    assert [row.shape for row in found["a"].rows()] == [(2, 2), (0, 0), (1, 2)]
    with tb.open(path, to="tensor") as file:
        assert tb.equal(file["a"].load(), found["a"])
    tb.convert(path, tmp_path / f"y.{suffix}")
    assert tb.equal(tb.load(tmp_path / f"y.{suffix}", to="tensor")["a"], found["a"])


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_two_columns_may_have_one_name(suffix, tmp_path):
    table = pa.table([pa.array([1]), pa.array([2.5]), pa.array(["x"])], names=["a", "b", "a"])
    with pa.ipc.new_file(tmp_path / "x.arrow", table.schema) as writer:
        writer.write_table(table)
    tb.convert(tmp_path / "x.arrow", tmp_path / f"y.{suffix}")
    got = read(tmp_path / f"y.{suffix}") if suffix == "arrow" else pq.ParquetFile(tmp_path / "y.parquet").read()
    assert got.schema.names == ["a", "b", "a"]
    assert [column.to_pylist() for column in got.columns] == [[1], [2.5], ["x"]]


def test_two_fields_of_a_struct_may_have_one_name(tmp_path):
    inner = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["x", "x"])
    array = pa.StructArray.from_arrays([inner, pa.array([5, 6])], names=["s", "y"])
    write(array, tmp_path / "x.parquet")
    found = tb.load(tmp_path / "x.parquet")["col"]
    assert found["s"]["x"].tolist() == [1, 2]
    assert found["s"]["x~2"].tolist() == [3, 4]
    assert found["y"].tolist() == [5, 6]


def test_lists_of_size_zero_are_not_written_to_parquet(tmp_path):
    write(pa.array([{"x": []}, None], pa.struct([("x", pa.list_(pa.int64(), 0))])), tmp_path / "x.arrow")
    with pytest.raises(tb.errors.LossError, match=r"lists of size 0.*'col'"):
        tb.convert(tmp_path / "x.arrow", tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()


def test_the_pages_of_a_wide_struct_are_looked_at_once(tmp_path, monkeypatch):
    wide = pa.array([{f"f{number}": number for number in range(50)}, None])
    pq.write_table(pa.table({"s": wide}), tmp_path / "x.parquet")
    seen, look = [], thrift.pages
    monkeypatch.setattr(thrift, "pages", lambda data, chunk: seen.append(chunk) or look(data, chunk))
    assert len(tb.load(tmp_path / "x.parquet")["s"]) == 50
    assert len(seen) == 50


def test_parquet_refuses_negative_scales_as_a_loss(tmp_path):
    """pyarrow says it as an OSError, as if it were the disk."""
    array = pa.array([D("1E+2"), None], pa.decimal128(5, -2))
    assert "Parquet can't hold this" in travel(array, "Parquet", tmp_path)
    assert travel(array, "TFRecord", tmp_path) == "same"
