"""Columns taken apart into rows and put together again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import dtypes, rows
from tensorbytes.rows import Column
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, identical
from tensorbytes.testing import bits


def dense(dtype, shape):
    return Tensor(dtype, shape, bits.content(dtype, shape))


def strings(shape, encoding="utf-8"):
    items = [["", "ä", "long text" * 9, "z"][i % 4] for i in range(int(np.prod(shape)))]
    return Strings.from_items([i if encoding == "utf-8" else i.encode() for i in items], shape, encoding)


SPLITS = np.array([0, 2, 2, 5])
COLUMNS = {
    "scalars": dense("float32", (3,)),
    "vectors": dense("bfloat16", (3, 4)),
    "matrices": dense("int64", (3, 2, 5)),
    "nothing in each": dense("float64", (3, 0)),
    "complex": dense("complex128", (3, 2)),
    "text": strings((3,)),
    "bytes in rows": strings((3, 2), "bytes"),
    "ragged": Ragged(dense("float32", (5,)), (SPLITS,)),
    "ragged of vectors": Ragged(dense("float32", (5, 2)), (SPLITS,)),
    "ragged text": Ragged(strings((5,)), (SPLITS,)),
    "shapes": Ragged(dense("uint8", (8,)), (np.array([0, 2, 2, 8]),), np.array([[1, 2], [0, 7], [3, 2]])),
    "two levels": Ragged(dense("float32", (5,)), (np.array([0, 1, 1, 3]), SPLITS)),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_batches_make_the_column_again(name):
    column = COLUMNS[name]
    for at in (0, 1, 2, 3):
        whole = Column()
        for start, stop in ((0, at), (at, 3)):
            if stop > start:
                whole.add(rows.cut(column, start, stop))
        assert identical(whole.finish(), column)
        assert whole.rows == 3


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_make_the_column_again(name):
    column = COLUMNS[name]
    parts = list(rows.rows_of(column))
    assert len(parts) == rows.count(column) == 3
    whole = Column()
    for row in parts:
        whole.add_row(row)
    made = whole.finish()
    assert identical(made, column)
    assert all(identical(a, b) for a, b in zip(rows.rows_of(made), parts, strict=True))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=6),
    st.sampled_from(["float32", "int8", "complex64", "bool"]),
)
def test_rows_of_any_shapes_come_back(shapes, dtype):
    given_rows = [dense(dtype, shape) for shape in shapes]
    whole = Column()
    for row in given_rows:
        whole.add_row(row)
    assert all(identical(a, b) for a, b in zip(rows.rows_of(whole.finish()), given_rows, strict=True))


@pytest.mark.parametrize(
    "pair",
    [
        (dense("float32", (2,)), dense("float64", (2,))),
        (dense("float32", (2,)), dense("float32", (2, 2))),
        (dense("float32", (2,)), strings((2,))),
        (strings(()), strings((), "bytes")),
        (dense("float32", (2,)), COLUMNS["two levels"]),
        (Sparse("coo", (3,), (np.array([[1]]),), dense("int8", (1,))), dense("int8", (3,))),
    ],
)
def test_rows_that_don_t_stack(pair):
    def stack():
        whole = Column()
        for row in pair:
            whole.add_row(row)

    with pytest.raises(tb.errors.LossError):
        stack()


def test_what_is_large_goes_to_a_file(monkeypatch):
    monkeypatch.setattr(rows, "_IN_MEMORY", 10)
    for column in COLUMNS.values():
        test_batches_make_the_column_again(next(name for name in COLUMNS if COLUMNS[name] is column))


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int4"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_another_axis_first(dtype, axis):
    x = dense(dtype, (2, 3, 4))
    size = dtypes.get(dtype).itemsize
    expected = np.moveaxis(np.ndarray(x.shape, f"V{size}", x.data), axis, 0)
    made = rows.move_axis(x, axis)
    assert made.shape == expected.shape
    assert bytes(made.data) == expected.tobytes()


def test_no_rows():
    for value in (dense("float32", ()), Sparse("coo", (3,), (np.array([[1]]),), dense("int8", (1,)))):
        assert rows.count(value) is None
        with pytest.raises(tb.errors.LossError):
            list(rows.rows_of(value))
    with pytest.raises(tb.errors.LossError):
        Column().finish()
    with pytest.raises(tb.errors.LossError):
        rows.move_axis(dense("float32", (2,)), 1)
