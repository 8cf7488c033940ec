"""Tables of polars and DuckDB read here, ours read there; rows of Python values as columns."""

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorbytes as tb
from tensorbytes.formats.arrow import from_table, to_table

pl = pytest.importorskip("polars")
duckdb = pytest.importorskip("duckdb")

DUCK = """
    select 1.25::decimal(9, 2) d, date '2024-01-02' dt, {'a': 1, 'b': null} s, [1, null] l, map {'k': 1} m,
    time '01:02:03' t, null::int z, uuid() u, 'x'::enum('x', 'y') e, interval 1 day i, 'text' w, true f,
    timestamptz '2024-01-02 03:04:05+00' zoned
    union all
    select null, null, null, null, null, null, 3, null, null, null, null, null, null
"""
FRAME = {
    "a": [1, None],
    "s": [{"x": 1, "y": ["p", None]}, None],
    "l": [[1.5], None],
    "t": ["u", "v"],
    "day": pl.Series([None, None], dtype=pl.Date),
    "c": pl.Series(["r", "g"], dtype=pl.Categorical),
}


@pytest.mark.parametrize(
    "way", [["y.parquet"], ["y.tb", "z.parquet"], ["y.npz", "z.parquet"], ["y.tfrecord", "z.parquet"]]
)
def test_tables_of_duckdb_come_back(way, tmp_path):
    at = tmp_path / "x.parquet"
    duckdb.sql(f"copy ({DUCK}) to '{at}'")
    want = pq.read_table(at)
    for step in way:
        tb.convert(at, tmp_path / step)
        at = tmp_path / step
    assert pq.read_table(at).equals(want)
    assert duckdb.sql(f"select d, s, l, m, w from '{at}'").fetchall()[1] == (None,) * 5


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_tables_of_polars_come_back(form, tmp_path):
    frame = pl.DataFrame(FRAME)
    path, back = tmp_path / f"x.{form}", tmp_path / f"y.{form}"
    frame.write_parquet(path) if form == "parquet" else frame.write_ipc(path, compression="lz4")
    tb.convert(path, back)
    found = pl.read_parquet(back) if form == "parquet" else pl.read_ipc(back)
    assert found.to_dicts() == frame.to_dicts()


def test_streams_of_arrow_are_taken_and_given():
    frame = pl.DataFrame({"a": [1, None], "s": [{"x": 1}, None]})
    document = from_table(frame)
    assert {leaf.name for leaf in document.leaves} == {"a", "s/x", "a/mask0", "s/mask0"}
    again = to_table(document)
    assert pl.DataFrame(again).to_dicts() == frame.to_dicts()


def predictions(path, count=2500):
    with tb.open(path, "w") as file:
        for n in range(count):
            row = {"id": f"s{n}", "score": n / 2, "n": n, "tokens": np.arange(n % 4), "label": None if n % 3 else "x"}
            file.write(row)


def test_rows_of_python_values_are_columns(tmp_path):
    predictions(tmp_path / "p.tb")
    report = tb.convert(tmp_path / "p.tb", tmp_path / "p.parquet")
    assert not report.losses
    rows = duckdb.sql(f"select * from '{tmp_path / 'p.parquet'}' order by n").fetchall()
    assert len(rows) == 2500
    assert rows[:2] == [("s0", 0.0, 0, [], "x"), ("s1", 0.5, 1, [0], None)]
    assert pl.read_parquet(tmp_path / "p.parquet")["label"].null_count() == 1666


def test_a_column_that_no_row_of_a_stretch_has_is_null_there(tmp_path):
    with tb.open(tmp_path / "p.tb", "w") as file:
        for n in range(3000):
            file.write({"n": n, "late": n} if n < 10 or n > 2900 else {"n": n})
    tb.convert(tmp_path / "p.tb", tmp_path / "p.arrow")
    with pa.memory_map(str(tmp_path / "p.arrow")) as file:
        late = pa.ipc.open_file(file).read_all()["late"]
    assert late.null_count == 2891
    assert [value for value in late.to_pylist() if value is not None] == [*range(10), *range(2901, 3000)]


def test_rows_are_cast_for_engines_that_lack_a_type(tmp_path):
    columns = {"w": np.array([[1, 2], [3, 4]], ml_dtypes.bfloat16), "k": np.arange(2)}
    tb.save(columns, tmp_path / "b.parquet")
    tb.convert(tmp_path / "b.parquet", tmp_path / "c.parquet", cast="float32")
    assert duckdb.sql(f"select w from '{tmp_path / 'c.parquet'}'").fetchall() == [([1.0, 2.0],), ([3.0, 4.0],)]
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        writer.write_batch({"x": np.array([0.1, 1e30], np.float32)})
    with pytest.raises(tb.errors.LossError, match="can't hold numbers as large"):
        tb.convert(tmp_path / "x.tfrecord", tmp_path / "y.parquet", cast="float16")
    assert not (tmp_path / "y.parquet").exists()
    report = tb.convert(tmp_path / "x.tfrecord", tmp_path / "y.parquet", cast="bfloat16", allow={"cast"})
    assert [loss.feature for loss in report.losses] == ["cast"]
