"""The four values, and what stands for them until they are read: headers, slices, copies, pickles, padding."""

import copy
import pickle
import tracemalloc

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies

import tensorbytes as tb
from tensorbytes import Ragged, Sparse, Strings, Tensor, tensor
from tensorbytes.deferred import Deferred
from tensorbytes.tensor import InvalidValueError, identical

NUMBERS = Tensor("int64", (3, 4), np.arange(12), "n", {"a": "b"}, {"framework": "numpy", "torch.scale": "1"})
TEXT = Strings.from_items(["x", "", "äö", "long"], (4,), "utf-8")
GRID = Strings.from_items([b"a", b"bc", b"", b"\0"], (2, 2), "bytes")
RAGGED = Ragged(Tensor("int64", (3,), np.arange(3)), (np.array([0, 1, 3]),))
SPARSE = Sparse("coo", (5,), (np.array([[1], [4]]),), Tensor("float32", (2,), np.float32([1, 2])))
INDEXES = [0, -1, slice(1, 3), slice(None, None, -1), slice(3, 1), slice(0, 4, 2), [2, 0], ..., [], None]


def later(value):
    """The same value, not read yet."""
    kind, dtype, shape, size = value.header
    return Deferred(kind, dtype, shape, lambda: value, size, None, value.name, value.meta, value.origin)


@pytest.mark.parametrize("value", [NUMBERS, TEXT, GRID, RAGGED, SPARSE], ids=lambda value: type(value).__name__)
def test_what_is_not_read_tells_and_gives_the_same(value):
    other = later(value)
    assert other.header == value.header
    assert identical(other.load(), value)
    assert value.load() is value
    assert (value.at_hand, other.at_hand) == (True, False)


@pytest.mark.parametrize("index", [*INDEXES, (slice(1), 2), (1, -1), np.array([True, False, True])], ids=repr)
def test_parts_of_a_tensor_are_those_of_numpy(index):
    wanted = np.arange(12).reshape(3, 4)[index]
    for value in (NUMBERS, later(NUMBERS)):
        part = value.part(index)
        assert part.numpy().tolist() == wanted.tolist()
        assert part.shape == wanted.shape
        assert (part.name, part.meta) == ("n", {"a": "b"})
        assert part.origin == {"framework": "numpy"}, "a scale is that of the whole"


@pytest.mark.parametrize("value", [TEXT, GRID], ids=["text", "grid"])
@pytest.mark.parametrize("index", INDEXES, ids=repr)
def test_parts_of_strings_are_those_of_numpy(value, index):
    if value is GRID and index in ([2, 0],):
        index = [1, 0]
    wanted = np.asarray(value.numpy()[index], object)
    for part in (value.part(index), later(value).part(index)):
        assert part.shape == wanted.shape
        assert part.items() == wanted.reshape(-1).tolist()
        assert part.encoding == value.encoding


@pytest.mark.parametrize("value", [TEXT, GRID, NUMBERS], ids=["text", "grid", "numbers"])
def test_an_index_outside_is_refused(value):
    for number in (4, -5):
        with pytest.raises(IndexError, match="out of bounds for axis 0"):
            value.part(number)


@pytest.mark.parametrize("value", [RAGGED, SPARSE], ids=["ragged", "sparse"])
def test_ragged_and_sparse_values_have_no_slices(value):
    for one in (value, later(value)):
        assert not one.in_parts
        with pytest.raises(tb.errors.UnsupportedError, match=f"a {value.header.kind} value has no slices here"):
            one.part(0)


@pytest.mark.parametrize("value", [NUMBERS, TEXT, GRID, RAGGED, SPARSE], ids=lambda value: type(value).__name__)
def test_copies(value):
    assert copy.copy(value) is value
    for protocol in range(6):
        assert identical(pickle.loads(pickle.dumps(value, protocol)), value)
    other = copy.deepcopy(value)
    assert identical(other, value)
    assert (other.name, other.meta, other.origin) == (value.name, value.meta, value.origin)


@pytest.mark.parametrize(("value", "part"), [(RAGGED, [0, 1, 3]), (SPARSE, [1, 4])], ids=["ragged", "sparse"])
def test_a_pickle_that_was_changed_is_validated(value, part):
    raw = pickle.dumps(value, 4)
    before = np.array(part).tobytes()
    assert raw.count(before) == 1
    with pytest.raises(InvalidValueError):
        pickle.loads(raw.replace(before, np.array([part[0], 1 << 30, *part[2:]]).tobytes()))


def test_items_of_strings_are_text(tmp_path):
    tb.save(
        {"u": np.array(["a", "bc"]), "s": np.array([b"a", b"bc"]), "o": np.array(["a", "bc"], object)},
        tmp_path / "x.tb",
    )
    with tb.open(tmp_path / "x.tb") as file:
        assert {file["u"][0]: 1}["a"] == 1
        assert {file["s"][1]: 1}[b"bc"] == 1
        assert {file["o"][1]: 1}["bc"] == 1


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_slices_of_quantized_and_trained_tensors_are_no_lies(tmp_path):
    import torch

    scales = torch.tensor([0.1, 1.0, 10.0], dtype=torch.float64)
    numbers = torch.tensor([[1.0, 2, 3], [10, 20, 30], [100, 120, 90]])
    made = torch.quantize_per_channel(numbers, scales, torch.zeros(3, dtype=torch.int64), 0, torch.qint8)
    tb.save({"q": made, "p": torch.nn.Parameter(numbers)}, tmp_path / "x.tb")
    with tb.open(tmp_path / "x.tb", to="torch") as file:
        with pytest.raises(tb.errors.UnsupportedError):
            file["q"][0]
        part = file["p"][0]
        assert type(part) is torch.Tensor
        assert part.numpy().tolist() == [1, 2, 3]


# ---- pickles -----------------------------------------------------------------------


def pickled(value):
    """(the pickle of protocol 5, the buffers that it hands out)"""
    buffers = []
    return pickle.dumps(value, 5, buffer_callback=buffers.append), buffers


def text_of(count):
    return Strings((count,), np.arange(count + 1), np.full(count, 97, np.uint8), "utf-8")


LARGE = {
    "tensor": lambda n: Tensor("uint8", (n,), np.zeros(n, np.uint8)),
    "strings": text_of,
    "ragged": lambda n: Ragged(Tensor("uint8", (n,), np.zeros(n, np.uint8)), (np.arange(n + 1),)),
    "ragged text": lambda n: Ragged(text_of(n), (np.arange(n + 1),)),
    "shapes": lambda n: Ragged(
        Tensor("uint8", (n,), np.zeros(n, np.uint8)), (np.arange(n + 1),), np.ones((n, 2), np.int64)
    ),
    "strided": lambda n: Ragged(Tensor("uint8", (n,), np.zeros(n, np.uint8)), (np.arange(2 * n + 1)[::2] // 2,)),
    "sparse": lambda n: Sparse(
        "coo", (n,), (np.arange(n).reshape(n, 1),), Tensor("uint8", (n,), np.zeros(n, np.uint8))
    ),
}


@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_pickles_hand_out_memory_without_a_copy(make):
    value = make(100_000)
    raw, buffers = pickled(value)
    assert len(raw) < 2000
    assert len(raw) - len(pickled(make(10))[0]) < 100, "what is in the pickle itself does not grow with the value"
    assert sum(buffer.raw().nbytes for buffer in buffers) >= 100_000
    again = pickle.loads(raw, buffers=buffers)
    assert again == value
    first = value if isinstance(value, Tensor | Strings) else value.values
    second = again if isinstance(again, Tensor | Strings) else again.values
    assert np.shares_memory(np.frombuffer(first.data, np.uint8), np.frombuffer(second.data, np.uint8))


@pytest.mark.parametrize("memory", [bytes(8), bytearray(8)], ids=["read-only", "writable"])
def test_memory_that_is_read_only_stays_so(memory):
    value = Tensor("int64", (1,), memory)
    raw, buffers = pickled(value)
    assert pickle.loads(raw, buffers=buffers).data.readonly == value.data.readonly
    assert pickle.loads(pickle.dumps(value, 5)).data.readonly == value.data.readonly
    assert pickle.loads(raw, buffers=[bytearray(8)]).data.readonly == value.data.readonly


def test_buffers_that_were_changed_are_validated():
    raw, buffers = pickled(NUMBERS)
    with pytest.raises(ValueError, match="95"):
        pickle.loads(raw, buffers=[buffers[0].raw()[:95]])
    raw, buffers = pickled(TEXT)
    with pytest.raises(InvalidValueError, match="not UTF-8"):
        pickle.loads(raw, buffers=[b if b.raw().nbytes > 9 else b"\xff" * b.raw().nbytes for b in buffers])


def test_text_is_checked_without_a_copy_of_it_all():
    raw, buffers = pickled(Strings((1,), np.array([0, 16 << 20]), np.full(16 << 20, 97, np.uint8), "utf-8"))
    tracemalloc.start()
    try:
        assert pickle.loads(raw, buffers=buffers).nbytes == 16 << 20
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@hypothesis.given(
    strategies.one_of(
        strategies.text("a\u00e4\u20ac\U0001f600", max_size=12).map(str.encode),
        strategies.lists(strategies.sampled_from([0x61, 0x80, 0xBF, 0xC3, 0xE2, 0xF0, 0x9F, 0xFF]), max_size=12).map(
            bytes
        ),
    )
)
def test_text_in_pieces_is_refused_where_all_of_it_would_be(raw):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor, "_TEXT_PIECE", 4)
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            with pytest.raises(InvalidValueError, match=f"{error.reason} at byte {error.start}$"):
                Strings((1,), np.array([0, len(raw)]), raw, "utf-8")
        else:
            assert Strings((1,), np.array([0, len(raw)]), raw, "utf-8")[0] == raw.decode()


def test_a_deep_copy_has_memory_of_its_own():
    memory = np.arange(4)
    value = Tensor("int64", (4,), memory)
    other = copy.deepcopy(value)
    memory[0] = 7
    assert other == Tensor("int64", (4,), np.arange(4))
    assert other != value


# ---- equality ----------------------------------------------------------------------


def test_values_compare_by_content():
    one = Tensor("float32", (2,), np.float32([np.nan, 0]))
    assert one == Tensor("float32", (2,), np.float32([np.nan, 0]), "another", {"a": "b"}, {"framework": "torch"})
    assert one != Tensor("float32", (2,), np.float32([np.nan, -0.0]))
    assert one != Tensor("float32", (2, 1), np.float32([np.nan, 0]))
    assert one != Tensor("int32", (2,), one.data)
    assert Strings.from_items(["a"], (1,), "utf-8") != Strings.from_items([b"a"], (1,), "bytes")
    assert Strings.from_items(["ab", ""], (2,), "utf-8") != Strings.from_items(["a", "b"], (2,), "utf-8")
    assert Ragged(RAGGED.values, (np.array([0, 2, 3]),)) != RAGGED
    assert Ragged(RAGGED.values, RAGGED.splits, name="x") == RAGGED
    rows = Sparse("csr", (1, 5), (np.array([0, 2]), np.array([1, 4])), SPARSE.values)
    assert rows == Sparse("csr", (1, 5), (np.array([0, 2]), np.array([1, 4])), SPARSE.values, "x")
    assert rows != SPARSE


@pytest.mark.parametrize("value", [NUMBERS, TEXT, RAGGED, SPARSE], ids=lambda value: type(value).__name__)
def test_nothing_else_is_equal_to_a_value(value):
    for other in (None, 1, "x", [1], object(), NUMBERS if value is not NUMBERS else TEXT):
        assert value != other
        assert value.__eq__(other) is NotImplemented
    assert value in [None, value]
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)


# ---- reprs -------------------------------------------------------------------------


def test_reprs_fit_a_line():
    assert repr(NUMBERS) == "Tensor(int64[3, 4], [0, 1, 2, 3, 4, 5, ...], name='n', meta={'a': 'b'})"
    assert repr(Tensor("bfloat16", (), b"\x80\x3f")) == "Tensor(bfloat16[], 1)"
    assert repr(Tensor("qint8", (2,), b"ab")) == "Tensor(qint8[2])"
    assert repr(TEXT) == "Strings(utf-8[4], ['x', '', 'äö', 'long'])"
    assert repr(Strings.from_items(["ä" * 99], (), "utf-8")) == f"Strings(utf-8[], '{'ä' * 24}'...)"
    assert repr(GRID) == "Strings(bytes[2, 2], [b'a', b'bc', b'', b'\\x00'])"
    assert repr(RAGGED) == "Ragged(2 rows of int64, lengths 1 to 2)"
    assert repr(SPARSE) == "Sparse(coo float32[5], values [2])"
    noted = Tensor("uint8", (1_000_000,), bytes(1_000_000), meta={"k": "v" * 1000})
    assert len(repr(noted)) < 200
    assert "\n" not in repr(Strings.from_items(["a\nb"], (1,), "utf-8"))


# ---- arrays and sequences ------------------------------------------------------------


def test_tensors_are_arrays():
    assert np.asarray(NUMBERS).tolist() == np.arange(12).reshape(3, 4).tolist()
    assert np.shares_memory(np.asarray(NUMBERS), NUMBERS.numpy())
    assert not np.shares_memory(np.array(NUMBERS), NUMBERS.numpy())
    assert np.asarray(NUMBERS, np.float32).dtype == np.float32
    assert len(NUMBERS) == 3
    assert [part.numpy().tolist() for part in NUMBERS] == NUMBERS.numpy().tolist()
    assert NUMBERS[1:, 0] == NUMBERS.part((slice(1, None), 0))
    assert not Tensor("int64", (0, 3), b"")


@pytest.mark.parametrize("value", [Tensor("int8", (), b"a"), Strings.from_items(["a"], (), "utf-8")], ids=["n", "s"])
def test_a_value_without_axes_has_no_length(value):
    for use in (len, iter, list):
        with pytest.raises(TypeError, match="has no length"):
            use(value)
    with pytest.raises(IndexError):
        value[0]
    assert value[...] == value


def test_strings_are_a_sequence_as_numpy_has_it():
    wanted = TEXT.numpy()
    assert (len(TEXT), list(TEXT), list(reversed(TEXT))) == (4, wanted.tolist(), wanted.tolist()[::-1])
    assert [TEXT[i] for i in range(-4, 4)] == [wanted[i] for i in range(-4, 4)]
    assert type(TEXT[0]) is str
    assert type(GRID[0, 1]) is bytes
    for index in (slice(1, 3), slice(None, None, -1), [3, 0], slice(9, 9)):
        assert isinstance(TEXT[index], Strings)
        assert TEXT[index].tolist() == wanted[index].tolist()
    assert [row.tolist() for row in GRID] == GRID.tolist() == [[b"a", b"bc"], [b"", b"\0"]]
    assert GRID[:, 1].tolist() == [b"bc", b"\0"]
    assert Strings.from_items(["a"], (), "utf-8")[()] == Strings.from_items(["a"], (), "utf-8").tolist() == "a"
    with pytest.raises(IndexError):
        TEXT[4]
    assert "äö" in TEXT
    assert "ä" not in TEXT
    assert b"x" not in TEXT
    assert b"bc" in GRID
    assert GRID[1] in GRID
    assert "\ud800" not in TEXT
    assert 3 not in TEXT
    assert (TEXT.index("long"), TEXT.count("")) == (3, 1)
    assert not Strings((0,), np.zeros(1, np.int64), b"")


def test_strings_are_arrays():
    for value in (TEXT, GRID):
        made = np.asarray(value)
        assert (made.dtype, made.shape) == (np.dtype(object), value.shape)
        assert made.tolist() == value.tolist()
    assert np.asarray(TEXT, "U9").dtype == np.dtype("U9")
    with pytest.raises(ValueError, match="always a copy"):
        np.array(TEXT, copy=False)


def test_empty_values_are_stored_like_others(tmp_path):
    empty = {"s": Strings((0,), np.zeros(1, np.int64), b""), "t": Tensor("int64", (0,), b"")}
    tb.save(empty, tmp_path / "x.tb")
    assert tb.load(tmp_path / "x.tb", to="tensor") == empty


def test_arrow_libraries_take_values_as_columns():
    import polars as pl
    import pyarrow as pa

    deep = Ragged(Tensor("int64", (3,), np.arange(3)), (np.array([0, 1, 2]), np.array([0, 0, 3])))
    for value, rows in ((TEXT, TEXT.tolist()), (GRID, GRID.tolist()), (RAGGED, [[0], [1, 2]]), (deep, deep.to_list())):
        assert pa.chunked_array(value).to_pylist() == rows
        assert pl.Series(value).to_list() == rows
    assert pa.chunked_array(Tensor("int64", (3,), np.arange(3))).to_pylist() == [0, 1, 2]
    with pytest.raises(TypeError, match="has no length"):
        pa.chunked_array(Tensor("int64", (), bytes(8)))


# ---- ragged rows in one array --------------------------------------------------------

ROWS = [[5, 6], [], [7, 8, 9], [1]]


def ragged(rows, dtype="int64"):
    flat = np.array([x for row in rows for x in row], dtype)
    return Ragged(Tensor(dtype, flat.shape, flat), (np.cumsum([0, *map(len, rows)]),), name="r", meta={"k": "v"})


def test_padding_is_that_of_torch():
    import torch

    value = ragged(ROWS, "float32")
    nested = torch.nested.nested_tensor_from_jagged(
        torch.from_numpy(value.values.numpy()), torch.from_numpy(value.splits[0]), max_seqlen=value.max_seqlen
    )
    assert value.max_seqlen == 3
    assert np.array_equal(value.pad(-1), torch.nested.to_padded_tensor(nested, -1).numpy())
    assert np.array_equal(value.mask(), [[True, True, False], [False] * 3, [True] * 3, [True, False, False]])
    assert torch.from_numpy(value.pad())[torch.from_numpy(value.mask())].tolist() == value.values.numpy().tolist()


@pytest.mark.parametrize("rows", [[[[1], [2, 3]], [], [[4, 5, 6], [], [7]]], [[], []], [[[]]], []], ids=repr)
@pytest.mark.parametrize("length", [None, 4, (None, 3), (5, 4)], ids=repr)
def test_padding_of_several_levels_is_that_of_tensorflow(rows, length):
    import tensorflow as tf

    theirs = tf.ragged.constant(rows, ragged_rank=2, dtype=tf.int64)
    splits = tuple(level.numpy() for level in theirs.nested_row_splits)
    flat = theirs.flat_values.numpy()
    value = Ragged(Tensor("int64", flat.shape, flat), splits)
    sizes = (*(length if isinstance(length, tuple) else (length,)), None)[:2]
    got = value.pad(-1, length)
    assert got.tolist() == theirs.to_tensor(-1, shape=(None, *sizes)).numpy().tolist()
    assert value.to_list() == rows
    assert (got != -1).tolist() == value.mask(length).tolist()


def test_padding_of_rows_with_inner_axes():
    value = Ragged(Tensor("int16", (3, 2), np.arange(6, dtype=np.int16)), (np.array([0, 1, 3]),))
    assert value.pad(9).tolist() == [[[0, 1], [9, 9]], [[2, 3], [4, 5]]]
    assert value.mask().tolist() == [[True, False], [True, True]]


SHAPED = Ragged(
    Tensor("int64", (8,), np.arange(8)), (np.array([0, 4, 6, 8]),), np.array([[2, 2], [1, 2], [2, 1]], np.uint8)
)


def test_padding_of_rows_of_any_shape():
    assert SHAPED.max_seqlen == 2
    assert SHAPED.pad(9).tolist() == [[[0, 1], [2, 3]], [[4, 5], [9, 9]], [[6, 9], [7, 9]]]
    assert SHAPED.pad(9, (1, None), truncate=True).tolist() == [[[0, 1]], [[4, 5]], [[6, 9]]]
    assert SHAPED.pad(9, (None, 1), truncate=True).tolist() == [[[0], [2]], [[4], [9]], [[6], [7]]]
    assert SHAPED.to_list() == [[[0, 1], [2, 3]], [[4, 5]], [[6], [7]]]
    assert SHAPED[1:].to_list() == [[[4, 5]], [[6], [7]]]


@hypothesis.given(
    strategies.lists(
        strategies.lists(strategies.lists(strategies.integers(1, 99), max_size=4), max_size=4), max_size=4
    ),
    strategies.tuples(strategies.integers(0, 5), strategies.integers(0, 5)),
)
def test_padding_and_cutting_do_what_loops_would(rows, sizes):
    inner = [step for row in rows for step in row]
    flat = np.array([x for step in inner for x in step], np.int64)
    splits = (np.cumsum([0, *map(len, rows)]), np.cumsum([0, *map(len, inner)]))
    value = Ragged(Tensor("int64", flat.shape, flat), splits)
    wanted = np.zeros((len(rows), *sizes), np.int64)
    for i, row in enumerate(rows):
        for j, step in enumerate(row[: sizes[0]]):
            wanted[i, j, : len(step[: sizes[1]])] = step[: sizes[1]]
    assert np.array_equal(value.pad(0, sizes, truncate=True), wanted)
    assert np.array_equal(value.mask(sizes, truncate=True), wanted != 0)
    words = Ragged(Strings.from_items(map(str, flat), flat.shape, "utf-8"), splits)
    assert words.pad("é", sizes, truncate=True).tolist() == np.where(wanted != 0, wanted.astype("U2"), "é").tolist()
    assert words.pad(None, sizes, truncate=True).tolist() == np.where(wanted != 0, wanted.astype("U2"), "").tolist()


def test_rows_that_are_too_long_are_named():
    with pytest.raises(tb.errors.UsageError, match=r"row 2 has the length 3, over 2; pass truncate=True"):
        ragged(ROWS).pad(0, 2)
    with pytest.raises(tb.errors.UsageError, match=r"row 2 has the length 3, over 2"):
        ragged(ROWS).mask(2)
    assert ragged(ROWS).pad(0, 2, truncate=True).tolist() == [[5, 6], [0, 0], [7, 8], [1, 0]]
    deep = Ragged(Tensor("int64", (3,), np.arange(3)), (np.array([0, 1, 1, 2]), np.array([0, 0, 3])))
    with pytest.raises(tb.errors.UsageError, match=r"row 2 has the length 3 on axis 2, over 1"):
        deep.pad(0, (None, 1))
    with pytest.raises(tb.errors.UsageError, match=r"row 0 has the length 2 on axis 2, over 1"):
        SHAPED.pad(0, (None, 1))
    for wrong in (-1, 1.5, True, (1, 2), "x"):
        with pytest.raises(tb.errors.UsageError, match="length="):
            ragged(ROWS).pad(0, wrong)


def test_what_fills_rows_up_must_fit():
    for dtype, wrong in (("int64", 1.5), ("uint8", -1), ("uint8", 300), ("bool", 2), ("int64", "x"), ("int64", [1])):
        with pytest.raises(tb.errors.UsageError, match="can't fill up rows"):
            ragged([[1], []], dtype).pad(wrong)
    assert ragged([[1], []], "float32").pad(0.1).tolist() == [[1.0], [np.float32(0.1)]]
    assert np.isnan(ragged([[1], []], "float32").pad(float("nan"))[1, 0])
    words = Ragged(Strings.from_items([b"a"], (1,), "bytes"), (np.array([0, 1, 1]),))
    assert words.pad().tolist() == [[b"a"], [b""]]
    with pytest.raises(tb.errors.UsageError, match="can't fill up rows of bytes"):
        words.pad("x")


PICKS = [slice(1, 3), slice(None), slice(3, 1), slice(None, None, -1), slice(0, 4, 3), [2, 0, 2], [], [True, False] * 2]


@pytest.mark.parametrize("index", PICKS, ids=repr)
def test_slices_of_ragged_values(index):
    rows = [[[1], [2, 3]], [], [[4, 5, 6], [], [7]], [[8]]]
    inner = [step for row in rows for step in row]
    flat = np.arange(1, 9, dtype=np.int32)
    splits = (np.cumsum([0, *map(len, rows)]).astype(np.int32), np.cumsum([0, *map(len, inner)]))
    deep = Ragged(Tensor("int32", flat.shape, flat), splits)
    for value in (deep, ragged(ROWS), Ragged(Strings.from_items(map(str, flat), (8,), "utf-8"), splits)):
        part = value[index]
        assert isinstance(part, Ragged)
        wanted = np.empty(4, object)
        wanted[:] = value.to_list()
        assert part.to_list() == wanted[index].tolist()
        assert [level.dtype for level in part.splits] == [level.dtype for level in value.splits]
        assert (part.name, part.meta) == (value.name, value.meta)
    assert deep[2][0].tolist() == [4, 5, 6]
    with pytest.raises(IndexError):
        deep[[[0]]]


def test_a_slice_of_a_ragged_value_is_a_view():
    value = ragged(ROWS)
    assert np.shares_memory(value[1:3].values.numpy(), value.values.numpy())
