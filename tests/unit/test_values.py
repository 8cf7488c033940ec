"""The four values, and what stands for them until they are read: headers, slices, copies, pickles."""

import copy
import pickle

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import Ragged, Sparse, Strings, Tensor
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
