"""The kernel's making of rows: compiled against reference, and both against what they must give."""

import gc
import itertools
import sys

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import rows_reference as reference
from tests.unit.test_kernel import outcome

KERNELS = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])
LOW, HIGH = -(1 << 63), (1 << 63) - 1


def agree(name, *args):
    found = outcome(getattr(compiled, name), *args)
    assert outcome(getattr(reference, name), *args) == found
    return found


def offsets_of(lengths):
    return np.cumsum([0, *lengths], dtype=np.int64)


# ---- strings ----------------------------------------------------------------


@given(st.lists(st.binary(max_size=40), max_size=30))
def test_bytes_are_cut_at_their_offsets(strings):
    assert agree("strings_list", offsets_of(map(len, strings)), b"".join(strings), False) == strings


@given(st.lists(st.text(max_size=20), max_size=30))
def test_texts_are_decoded(texts):
    strings = [text.encode() for text in texts]
    assert agree("strings_list", offsets_of(map(len, strings)), b"".join(strings), True) == texts


@given(st.lists(st.one_of(st.integers(-2, 12), st.sampled_from([LOW, HIGH])), max_size=8), st.booleans())
def test_any_offsets_are_taken_or_refused_alike(numbers, is_text):
    """Falling ones, and ones that reach beyond the data: never a byte from elsewhere."""
    data, offsets = b"abcdefghij", np.array(numbers, np.int64)
    found = agree("strings_list", offsets, data, is_text)
    steps = list(itertools.pairwise(numbers))
    if numbers and all(0 <= start <= end <= len(data) for start, end in steps):
        want = [data[start:end] for start, end in steps]
        assert found == ([item.decode() for item in want] if is_text else want)
    else:
        assert found is ValueError


@KERNELS
@pytest.mark.parametrize("offsets", [[0, 3, 9], [-2, 0, 2], [0, 2, 1], [0, HIGH], [LOW, 0], [LOW, HIGH], [5, 6]])
def test_strings_outside_the_data_are_refused(kernel, offsets):
    with pytest.raises(ValueError, match="does not lie in the data"):
        kernel.strings_list(np.array(offsets), b"1234", False)


@KERNELS
@pytest.mark.parametrize("offsets", [b"", bytes(7), bytes(12)])
def test_offsets_of_odd_sizes_are_refused(kernel, offsets):
    with pytest.raises(ValueError, match="one int64 more"):
        kernel.strings_list(offsets, b"", False)


@KERNELS
def test_offsets_may_stand_anywhere_in_memory(kernel):
    raw = b"x" + np.array([1, 3, 4], np.int64).tobytes()
    assert kernel.strings_list(memoryview(raw)[1:], memoryview(b"abcde"), False) == [b"bc", b"d"]


@KERNELS
@pytest.mark.parametrize("data", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_text_that_is_not_utf8_is_refused(kernel, data):
    with pytest.raises(UnicodeDecodeError):
        kernel.strings_list(offsets_of([2, len(data)]), b"ok" + data, True)
    assert kernel.strings_list(offsets_of([2, len(data)]), b"ok" + data, False) == [b"ok", data]


@given(st.lists(st.binary(max_size=4), max_size=6))
def test_any_text_is_decoded_or_refused_alike(strings):
    agree("strings_list", offsets_of(map(len, strings)), b"".join(strings), True)


# ---- rows -------------------------------------------------------------------


def same(a, b):
    """Of the same type, and equal; arrays of the same dtype too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a is b or a == b


@KERNELS
@pytest.mark.parametrize("width", [1, 5, 6, 40, 300])
def test_rows_hold_what_the_columns_hold(kernel, width):
    """Of every kind that a column has: what an array or a list gives for its item, in the order of the keys."""
    kinds = [
        np.arange(9, dtype=np.int64),
        np.arange(36, dtype=np.float32).reshape(9, 2, 2),
        np.arange(9).astype(ml_dtypes.bfloat16),
        [b"%d" % i for i in range(9)],
        [[i] * i for i in range(9)],
        [None, "a", *[np.zeros(i) for i in range(7)]],
        np.zeros((9, 0), np.int8),
        np.arange(18, dtype=np.int16)[::2],
    ]
    columns = tuple(kinds[i % len(kinds)] for i in range(width))
    keys = tuple(f"key {i}" for i in range(width))
    rows = kernel.row_dicts(keys, columns, 2, 8)
    assert len(rows) == 6
    for i, row in enumerate(rows, 2):
        assert type(row) is dict
        assert tuple(row) == keys
        assert all(same(row[key], column[i]) for key, column in zip(keys, columns, strict=True))


@KERNELS
def test_rows_are_apart_from_each_other(kernel):
    array = np.arange(6).reshape(3, 2)
    a, b, _ = kernel.row_dicts(("x", "y"), (array, [1, 2, 3]), 0, 3)
    del a["x"]
    b["z"] = 5
    assert (a, sorted(b)) == ({"y": 1}, ["x", "y", "z"])
    b["x"][0] = 77  # a view, as of list(array)
    assert array[1, 0] == 77
    assert kernel.row_dicts(("x",), ([4],), 0, 1) == [{"x": 4}]


@KERNELS
def test_no_rows_and_no_columns(kernel):
    assert kernel.row_dicts(("x",), ([1, 2],), 1, 1) == []
    rows = kernel.row_dicts((), (), 3, 5)
    assert rows == [{}, {}]
    assert rows[0] is not rows[1]


@KERNELS
@pytest.mark.parametrize("bounds", [(0, 4), (2, 1), (-1, 2), (0, -1), (3, 4)])
def test_rows_that_are_not_there_are_refused(kernel, bounds):
    with pytest.raises(IndexError):
        kernel.row_dicts(("x", "y"), (np.zeros((5, 2)), [1, 2, 3]), *bounds)


@KERNELS
def test_calls_of_other_kinds_are_refused(kernel):
    with pytest.raises(ValueError, match="one key for each column"):
        kernel.row_dicts(("x",), ([1], [2]), 0, 1)
    for keys, columns in ((["x"], ([1],)), (("x",), [[1]]), (("x",), (5,)), (([],), ([1],))):
        with pytest.raises(TypeError):
            kernel.row_dicts(keys, columns, 0, 1)


class Shrinking(list):
    """Ends earlier than it says, and fails in between."""

    def __getitem__(self, index):
        if index == 2:
            raise IndexError("gone")
        return super().__getitem__(index)


def test_an_item_that_fails_leaves_nothing_behind():
    """References are counted right: on every way out, every object is let go of."""
    item, keys, count = object(), ("some key of a row", "other"), 50
    calls = [
        lambda: compiled.row_dicts(keys, ([item] * 5, [item] * 5), 0, 5),
        lambda: outcome(compiled.row_dicts, keys, ([item] * 5, Shrinking([item] * 5)), 0, 5),
        lambda: outcome(compiled.row_dicts, keys, ([item] * 5, [item] * 2), 0, 5),
        lambda: outcome(compiled.strings_list, np.array([0, 2, 4, 1]), b"abcdefgh", False),
    ]
    for call in calls:
        call()
        gc.collect()
        before, blocks = [sys.getrefcount(x) for x in (item, *keys, None)], sys.getallocatedblocks()
        for _ in range(count):
            call()
        gc.collect()
        after = [sys.getrefcount(x) for x in (item, *keys, None)]
        assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < count
        assert sys.getallocatedblocks() - blocks < count
