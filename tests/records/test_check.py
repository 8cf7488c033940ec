"""Whether records can hold a column is told without writing it. Here it is written and read to see if that is true."""

import io
import math
import os

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes, formats, opening, rows
from tensorbytes.errors import LossError, SchemaError, TensorbytesError, UsageError
from tensorbytes.formats.tfrecord.read.reader import open_records
from tensorbytes.formats.tfrecord.schema import Feature, Schema
from tensorbytes.formats.tfrecord.write import check
from tensorbytes.formats.tfrecord.write.writer import RecordWriter
from tensorbytes.ops.targets import RowTarget
from tensorbytes.rows import Table
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, amended, identical
from tests.support.tiers import deep_but

RECORDS = formats.get("tfrecord")


def tensor(dtype, *shape):
    size = math.prod(shape) * dtypes.get(dtype).itemsize
    return Tensor(dtype, shape, (np.arange(size) % 2).astype(np.uint8))


def strings(encoding, *shape):
    items = ["é" * (i % 3) for i in range(math.prod(shape))]
    return Strings.from_items(items if encoding == "utf-8" else [x.encode() for x in items], shape, encoding)


def ragged(values, *splits, dtype=np.int64):
    return Ragged(values, tuple(np.array(level, dtype) for level in splits))


def shaped(values, *shapes):
    sizes = [math.prod(shape) for shape in shapes]
    return Ragged(values, (np.cumsum([0, *sizes]),), np.array(shapes, np.int64).reshape(len(shapes), -1))


def forms(make):
    """Columns of each form; `make` gives elements of a shape."""
    yield from ((f"{list(shape)}", make(*shape)) for shape in [(3,), (3, 2), (3, 2, 2), (2, 2, 1, 2), (1,), (1, 1)])
    yield from ((f"{list(shape)}", make(*shape)) for shape in [(0,), (0, 2), (3, 0), (3, 0, 2), (3, 2, 0)])
    yield "ragged", ragged(make(4), [0, 1, 1, 4])
    yield "ragged, no rows", ragged(make(0), [0])
    yield "ragged, empty rows", ragged(make(0), [0, 0, 0])
    yield "ragged, rows of two", ragged(make(4), [0, 2, 4])
    yield "ragged, pairs", ragged(make(4, 2), [0, 1, 1, 4])
    yield "ragged, two pairs each", ragged(make(4, 2), [0, 2, 4])
    yield "ragged, nothing", ragged(make(4, 0), [0, 1, 1, 4])
    yield "ragged, int32", ragged(make(4), [0, 1, 1, 4], dtype=np.int32)
    yield "two levels", ragged(make(4), [0, 2, 3], [0, 1, 1, 4])
    yield "two levels, int32", ragged(make(4), [0, 2, 3], [0, 1, 1, 4], dtype=np.int32)
    yield "two levels, rows of two", ragged(make(4), [0, 1, 2], [0, 2, 4])
    yield "two levels, pairs", ragged(make(4, 2), [0, 2, 3], [0, 1, 1, 4])
    yield "three levels", ragged(make(4), [0, 1, 2], [0, 2, 3], [0, 1, 1, 4])
    yield "shapes of rank 0", shaped(make(2), (), ())
    yield "shapes of rank 1", shaped(make(4), (1,), (0,), (3,))
    yield "shapes of rank 2", shaped(make(6), (2, 1), (0, 3), (1, 4))
    yield "shapes of rank 2, all the same", shaped(make(8), (2, 2), (2, 2))
    yield "shapes of rank 3", shaped(make(6), (2, 1, 1), (0, 3, 2), (1, 2, 2))


# Dtypes of which every form is tried: one of each encoding and list.
EVERY_FORM = ["float32", "int64", "uint8", "bfloat16", "float8_e3m4"]
NARROW = [name for name, row in dtypes.DTYPES.items() if name.startswith(("float", "bfloat")) and row.bits <= 16]
# Quiet ones, as hardware makes them and others, and signalling ones.
NANS = {
    "float16": ["007e", "00fe", "017e", "017c", "ff7f"],
    "bfloat16": ["c07f", "c0ff", "c17f", "817f", "ff7f"],
    "float32": ["0000c07f", "0100c0ff", "0100807f"],
}
COLUMNS = {
    **{f"{name} {form}": made for name in EVERY_FORM for form, made in forms(lambda *s, name=name: tensor(name, *s))},
    **{f"utf-8 {form}": made for form, made in forms(lambda *shape: strings("utf-8", *shape))},
    **{f"bytes {form}": made for form, made in forms(lambda *shape: strings("bytes", *shape))},
    **{f"{name} scalars": tensor(name, 3) for name in dtypes.DTYPES},
    **{f"{name} rows": tensor(name, 3, 2) for name in dtypes.DTYPES},
    **{f"{name} of any length": ragged(tensor(name, 4), [0, 1, 1, 4]) for name in dtypes.DTYPES},
    **{f"{name} of all bits": Tensor(name, (1, 1 << row.bits), np.arange(1 << row.bits, dtype=f"<u{row.itemsize}"))
       for name, row in dtypes.DTYPES.items() if name in NARROW},
    **{f"{name} without NaN": Tensor(name, (3,), np.array([0, 1, 2]).astype(dtypes.to_numpy(name)).view(np.uint8))
       for name in NARROW},
    **{f"{name} with a byte too large": Tensor(name, (2,), b"\1\xff") for name, row in dtypes.DTYPES.items()
       if row.bits < 8 or name == "bool"},
    "bytes that are not UTF-8": Strings.from_items([b"\xff", b"a"], (2,), "bytes"),
    **{f"the NaN {bits} of {name}": Tensor(name, (1,), bytes.fromhex(bits))
       for name, every in NANS.items() for bits in every},
    "coordinates": Sparse("coo", (2, 2), (np.array([[1, 0], [0, 1]]),), Tensor("int8", (2,), b"ab")),
    "compressed rows": Sparse("csr", (2, 2), (np.array([0, 1, 1]), np.array([1])), Tensor("float32", (1,), bytes(4))),
    "a number": tensor("int64"),
    "a text": strings("utf-8"),
    "numbers between integers": Tensor("float32", (4, 8), np.linspace(-1, 1, 32).astype("<f4")),
    "whole numbers": Tensor("float32", (2, 2), np.array([[0, 127], [-127, 127]], "<f4")),
}  # fmt: skip
# Other dtypes that a schema may say: some take the values, some don't.
OTHERS = {
    "utf-8": "bytes",
    "bytes": "text",
    "uint8": "int16",
    "int64": "int8",
    "float32": "text",
    "bfloat16": "float32",
}
QUANTIZED = ["int8", "bfloat16", "float8_e3m4", {"dtype": "int8", "scale": 1.0}, {"dtype": "int8", "scale": 0.01}]


def row_shapes(value):
    """Shapes that a schema may say of the rows of a column, or of steps of them: right, wider and wrong ones."""
    if isinstance(value, Ragged):
        inner = value.values.shape[1:]
        rank = value.shapes.shape[1] if value.shapes is not None else len(value.splits) + len(inner)
        known = {(None, *inner), (2,) * rank, (2,) * (rank - 1), (None,) + (2,) * (rank - 1)}
    else:
        rank = len(value.shape) - 1
        known = {value.shape[1:], value.shape[2:], (None, *value.shape[2:])}
    return sorted(known | {(None,) * rank, (None,) * max(rank - 1, 0)}, key=str)


def schemas(value):
    """A schema for each way to store the column "x", and some that don't fit."""
    inside = value.values if isinstance(value, Ragged | Sparse) else value
    own = inside.dtype if isinstance(inside, Tensor) else inside.encoding
    names = ["text" if own == "utf-8" else own, *([OTHERS[own]] if own in OTHERS else [])]
    specs = [{"dtype": name, "encoding": way} for name in names for way in ("flat", "tensorproto", "raw", "base64")]
    if own == "float32":
        specs += [{"dtype": own, "quantize": kind} for kind in QUANTIZED]
    for spec in specs:
        for shape in row_shapes(value):
            for optional in (False, True):
                try:
                    feature = Feature(**spec, shape=shape, optional=optional)
                except UsageError:
                    continue
                yield Schema({"x": feature})
                yield Schema({}, {"x": feature})


def choices(value):
    yield from ({}, {"lists": ["x"]}, {"lists": ["y"]}, {"schema": {"y": "int64"}})
    yield from ({"schema": schema} for schema in schemas(value))


def plain(row):
    """A row without what is said of it; of a ragged one, its splits as numbers."""
    if isinstance(row, Ragged):
        return row.values, [splits.tolist() for splits in row.splits]
    return amended(row, None, {}, {}), []


def survives(value, options):
    """Whether a column comes back from a file, each row as it was."""
    file = io.BytesIO()
    try:
        with RecordWriter(file, **options) as writer:
            writer.write_batch({"x": value})
        if not rows.count(value):
            return True
        file.seek(0)
        (batch,) = open_records(file, schema=writer.schema, to="tensor").batches(1 << 20)
    except TensorbytesError:
        return False
    back, given = list(rows.rows_of(batch["x"])), list(rows.rows_of(value))
    if writer.schema["x"].optional and not writer.schema["x"].shape and not writer.schema.sequence:
        back = list(map(rows.scalar, back))  # one value or none
    pairs = [(plain(one), plain(other)) for one, other in zip(back, given, strict=True)]
    return all(identical(one[0], other[0]) and one[1] == other[1] for one, other in pairs)


def held(value, options):
    """Whether it is said that records hold a column."""
    created = RECORDS.create(io.BytesIO(), options)
    try:
        created.check({"x": value})
        return True
    except LossError:
        return False
    finally:
        created.abort()


@pytest.mark.parametrize("name", COLUMNS)
def test_what_is_said_of_a_column_is_true(name):
    value = COLUMNS[name]
    with np.errstate(invalid="ignore"):  # quantizing signalling NaNs
        wrong = [options for options in choices(value) if held(value, options) != survives(value, options)]
    assert wrong == []


def test_the_columns_are_of_both_kinds():
    found = [held(value, {}) for value in COLUMNS.values()]
    assert found.count(True) > 100
    assert found.count(False) > 50


def test_columns_are_checked_together():
    created = RECORDS.create(io.BytesIO(), {"lists": ["steps"]})
    columns = {"steps": COLUMNS["int64 two levels"], "text": strings("utf-8", 2)}
    created.check(columns)
    with pytest.raises(LossError, match="must be of one length") as caught:
        created.check({**columns, "text": strings("utf-8", 3)})
    assert caught.value.feature == "column"
    with pytest.raises(LossError, match="records would give 'steps' back"):
        created.check({**columns, "steps": COLUMNS["int64 shapes of rank 2, all the same"]})
    created.abort()


@pytest.mark.parametrize(
    ("value", "feature", "least"),
    [
        (tensor("float32", 2, 10), Feature("float32", [10]), 40),
        (tensor("bfloat16", 2, 10), Feature("bfloat16", [10], "flat"), 40),
        (tensor("uint8", 2, 10), Feature("uint8", [10], "raw"), 10),
        (tensor("int64", 2, 10), Feature("int64", [10]), 10),
        (tensor("int64", 2, 10), Feature("int64", [10], "tensorproto"), 80),
        (Tensor("float32", (2, 10), bytes(80)), Feature("float32", [10], quantize="bfloat16"), 10),
        (ragged(tensor("float32", 10), [0, 1, 10]), Feature("float32", [None]), 36),
        (Strings.from_items(["a" * 7, "b"], (2,), "utf-8"), Feature("text"), 7),
    ],
)
def test_rows_that_no_record_holds(monkeypatch, value, feature, least):
    created = RECORDS.create(io.BytesIO(), {"schema": {"x": feature}})
    monkeypatch.setattr(check, "MAX_BYTES", least)
    created.check({"x": value})
    monkeypatch.setattr(check, "MAX_BYTES", least - 1)
    with pytest.raises(LossError, match=f"a record of {least} bytes") as caught:
        created.check({"x": value})
    assert caught.value.feature == "size"
    created.abort()


@pytest.mark.parametrize("form", ["[3]", "[3, 2]", "ragged", "shapes of rank 1"])
@pytest.mark.parametrize("kind", ["float32", "uint8", "float8_e3m4", "utf-8"])
def test_columns_with_masks(kind, form, tmp_path):
    value, mask = COLUMNS[f"{kind} {form}"], np.array([True, False, True])
    target = RowTarget("tfrecord", frozenset(), lambda: RECORDS.create(str(tmp_path / "x.tfrecord"), {}))
    target.add(Table({"x": value, "y": tensor("int64", 3)}, 3, {("x", 0): mask}))
    target.close()
    (table,) = opening.open_file(str(tmp_path / "x.tfrecord")).tables(10)
    assert table.masks["x", 0].tolist() == mask.tolist()
    back, given = list(rows.rows_of(table.columns["x"])), list(rows.rows_of(value))
    assert all(identical(plain(back[i])[0], plain(given[i])[0]) for i in (0, 2))


def test_columns_with_masks_that_records_dont_hold(tmp_path):
    target = RowTarget("tfrecord", frozenset(), lambda: RECORDS.create(str(tmp_path / "x.tfrecord"), {}))
    masks = {("x", 0): np.array([True, False, True])}
    with pytest.raises(LossError, match="no place for the unit of datetime64"):
        target.add(Table({"x": tensor("datetime64", 3), "y": tensor("int64", 3)}, 3, masks))
    target.abort()
    assert list(tmp_path.iterdir()) == []


def test_columns_that_the_schema_does_not_have():
    columns = {"x": tensor("int64", 3), "y": tensor("int64", 3), "extra": tensor("float32", 3)}
    target = RowTarget("tfrecord", frozenset(), lambda: RECORDS.create(io.BytesIO(), {"schema": {"x": "int64"}}))
    with pytest.raises(LossError, match=r"no feature 'y'; it has \['x'\](.|\n)*no feature 'extra'"):
        target.add(Table(columns, 3))
    target.abort()


# ---- the writer goes by the same rules -------------------------------------------


def test_a_step_that_does_not_fit_is_told_with_its_record():
    three = ragged(tensor("float32", 7), [0, 1, 3], [0, 2, 4, 7])
    for value in (three, shaped(tensor("float32", 7), (2, 2), (1, 3))):
        with pytest.raises(SchemaError, match=r"record 1: feature 'x': expected float32\[2\], got float32\[3\]"):
            RecordWriter(io.BytesIO(), schema=({}, {"x": ("float32", [2])})).write_batch({"x": value})


@pytest.mark.parametrize("encoding", ["flat", "tensorproto"])
@pytest.mark.parametrize("kind", ["float32", "utf-8"])
def test_steps_of_shaped_rows_are_written_like_those_of_single_rows(kind, encoding):
    made = []
    value = COLUMNS[f"{kind} shapes of rank 2"]
    schema = Schema({}, {"x": Feature("text" if kind == "utf-8" else kind, [None], encoding)})
    for whole in (True, False):
        file = io.BytesIO()
        with RecordWriter(file, schema=schema) as writer:
            if whole:
                writer.write_batch({"x": value})
            for row in [] if whole else value.rows():
                writer.write({"x": row})
        made.append(file.getvalue())
    assert made[0] == made[1]


@pytest.mark.parametrize("every", deep_but([5], [1, 5]))
@pytest.mark.parametrize("sidecar", [True, False])
@pytest.mark.parametrize("lists", [None, ["a"]])
def test_columns_that_are_saved_come_back_or_leave_nothing(tmp_path, sidecar, lists, every):
    saved = 0
    for what, column in list(COLUMNS.items())[::every]:
        home = tmp_path / str(len(os.listdir(tmp_path)))
        home.mkdir()
        try:
            tb.save({"a": column}, home / "x.tfrecord", sidecar=sidecar, lists=lists, sync=False)
        except LossError:
            assert not list(home.iterdir()), what
        else:
            assert tb.equal(tb.load(home / "x.tfrecord", to="tensor"), {"a": column}), what
            saved += 1
    assert bool(saved) == (sidecar or lists is None)  # of feature lists, nothing tells what a step is


@pytest.mark.parametrize(
    ("column", "schema"),
    [
        (np.ones((2, 3), np.int64), {"a": ("int64", [None])}),
        (ragged(tensor("int64", 4), [0, 2, 4]), {"a": ("int64", [2])}),
        (np.ones(2, np.int64), {"a": "int64", "b": {"dtype": "int64", "default": 7}}),
        (np.ones(2, np.int64), {"a": "int64", "b": "int64"}),
    ],
)
def test_a_schema_that_would_give_other_columns_is_refused_for_saving(tmp_path, column, schema):
    with pytest.raises(LossError):
        tb.save({"a": column}, tmp_path / "x.tfrecord", schema=schema)
    assert not list(tmp_path.iterdir())


def test_what_needs_its_schema_is_not_saved_where_none_is_kept(tmp_path):
    file = io.BytesIO()
    with pytest.raises(LossError, match="needs its schema to be read, which nothing will tell"):
        tb.save({"a": np.ones(2, np.int32)}, file, "tfrecord")
    assert not file.getvalue()
    tb.save({"a": np.arange(2), "b": np.ones((2, 3), np.float32)}, file, "tfrecord")
    file.seek(0)
    assert tb.equal(tb.load(file), {"a": np.arange(2), "b": np.ones((2, 3), np.float32)})
    path = tmp_path / "x.tfrecord"
    tb.save({"a": np.array(["old"])}, path)
    with pytest.raises(LossError, match="tells another one"):  # it would be read as text
        tb.save({"a": np.array([b"new"])}, path, sidecar=False)
    assert tb.load(path)["a"].tolist() == ["old"]


def test_columns_that_are_refused_leave_what_a_url_holds():
    pytest.importorskip("fsspec")
    url = "memory://columns/x.tfrecord"
    tb.save({"a": np.arange(2)}, url)
    with pytest.raises(LossError):
        tb.save({"a": np.array(["2020-01-01"], "M8[D]")}, url)
    assert tb.load(url)["a"].tolist() == [0, 1]
