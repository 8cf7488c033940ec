"""The values of a row, given to their columns by the kernel: it keeps and refuses the same as its twin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import example_reference as reference
from tensorbytes.errors import TensorbytesError
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.formats.tfrecord.write.collect import collector

BOTH = [compiled, reference]
KERNELS = pytest.mark.parametrize("kernel", BOTH, ids=["compiled", "reference"])


class Odd(np.ndarray):
    pass


FEATURES = [
    Feature("bytes"),
    Feature("text"),
    Feature("int64"),
    Feature("int32"),
    Feature("bool"),
    Feature("float32"),
    Feature("float32", (3,)),
    Feature("float32", (None,)),
    Feature("float32", (2, 3)),
    Feature("int64", (3,)),
    Feature("int64", (None,)),
    Feature("int16", (3,)),
    Feature("bfloat16", (3,)),
    Feature("text", (None,)),
    Feature("float64", (3,)),
    Feature("float32", (3,), encoding="raw"),
]
THREE = np.arange(3, dtype=np.float32)
VALUES = [
    b"",
    b"abc",
    bytearray(b"abc"),
    np.bytes_(b"abc"),
    "",
    "h\u00e9llo",
    "\ud800",
    np.str_("abc"),
    0,
    -1,
    (1 << 63) - 1,
    -(1 << 63),
    1 << 63,
    -(1 << 63) - 1,
    True,
    1.5,
    1e300,
    np.int64(-7),
    np.int32(7),
    np.float32(7),
    None,
    THREE,
    THREE.astype(">f4"),
    THREE.astype(np.float64),
    THREE.astype(np.int64),
    THREE.astype(np.longlong),
    THREE.astype(np.int16),
    THREE.astype(np.int32),
    THREE[::-1],
    np.arange(6, dtype=np.float32)[::2],
    THREE.view(Odd),
    THREE[:2],
    THREE[:0],
    THREE.reshape(1, 3),
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    np.float32(1).reshape(()),
    [1.0, 2.0, 3.0],
    [1, 2, 3],
    ["a", "b"],
    np.array(["a", "b", "c"], object),
]


def collect(kernel, features, rows):
    """What happens to each row, and the columns of those that were kept."""
    names = [f"f{i}" for i in range(len(features))]
    made = [collector(name, feature) for name, feature in zip(names, features, strict=True)]
    columns = tuple((name, *each.usual, each.add) for name, each in zip(names, made, strict=True))
    kept, outcomes = 0, []
    for row in rows:
        try:
            outcomes.append(kernel.collect_row(dict(zip(names, row, strict=True)), columns))
            kept += 1
        except TensorbytesError as error:
            outcomes.append((type(error), str(error)))
            for each in made:
                each.cut(kept)
    taken = [
        [each if isinstance(each, int) else None if each is None else bytes(each) for each in column.take()]
        for column in made
    ]
    again = [column.take() for column in made]
    assert all(len(column.values) == 0 for column in again)
    return outcomes, taken


@pytest.mark.parametrize("feature", FEATURES, ids=Feature.describe)
def test_every_value_is_kept_or_refused_alike(feature):
    rows = [(value,) for value in VALUES]
    ours, theirs = (collect(kernel, [feature], rows) for kernel in BOTH)
    assert ours == theirs
    assert any(isinstance(outcome, int) for outcome in ours[0])
    assert any(isinstance(outcome, tuple) for outcome in ours[0])


@given(st.lists(st.sampled_from(FEATURES), max_size=5), st.data())
def test_rows_are_kept_or_refused_alike(features, data):
    row = st.tuples(*(st.sampled_from(VALUES) for _ in features))
    rows = data.draw(st.lists(row, max_size=6))
    ours, theirs = (collect(kernel, features, rows) for kernel in BOTH)
    assert ours == theirs


@KERNELS
def test_copies_are_kept(kernel):
    array, made = np.arange(3, dtype=np.float32), collector("a", Feature("float32", (3,)))
    columns = (("a", *made.usual, made.add),)
    assert kernel.collect_row({"a": array, "b": 1}, columns) == 12
    array[:] = 9
    assert made.take().values.tolist() == [0, 1, 2]


@KERNELS
def test_what_is_not_there_is_missed(kernel):
    made = collector("a", Feature("int64"))
    with pytest.raises(KeyError):
        kernel.collect_row({"b": 1}, (("a", *made.usual, made.add),))
    assert kernel.collect_row({"b": 1}, ()) == 0


def test_usual_forms_need_no_call():
    """Or the compiled kernel would be of no use."""

    def never(value):
        raise AssertionError(value)

    for feature, value in [
        (Feature("bytes"), b"a"),
        (Feature("text"), "a"),
        (Feature("int64"), 5),
        (Feature("float32", (3,)), THREE),
        (Feature("int64", (None,)), np.arange(4)),
        (Feature("float32", (2, None)), THREE.reshape(1, 3).repeat(2, axis=0)),
    ]:
        made = collector("a", feature)
        compiled.collect_row({"a": value}, (("a", *made.usual, never),))
        assert len(made.take().offsets) == 2


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ([], TypeError),
        (([],), TypeError),
        ((("a", 0, None, []),), TypeError),
        ((("a", 5, None, [], len),), IndexError),
        ((("a", -1, None, [], len),), IndexError),
        ((("a", 1, None, (), len),), SystemError),
        ((("a", 4, None, [], len),), TypeError),
        ((("a", 4, (bytes, "dtype", bytes), [], len),), TypeError),
        ((("a", 4, (bytes, "dtype", bytes, 3), [], len),), SystemError),
        ((("a", 4, (bytes, "dtype", bytes, ()), [], len),), AttributeError),
        ((("a", 4, (bytes, "__class__", bytes, ("x",)), [], len),), TypeError),
        ((("a", 0, None, [], str),), TypeError),
    ],
)
def test_wrong_calls_of_the_compiled_kernel_raise(columns, error):
    with pytest.raises(error):
        compiled.collect_row({"a": b"abc"}, columns)
