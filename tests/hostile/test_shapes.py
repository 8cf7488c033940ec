"""Shapes that lie (catalogue 19 to 26), in every format and by every way of reading: the same verdict everywhere."""

import itertools

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.errors import CorruptError, LimitError
from tests.support.hostile_formats import SHAPED, SPARSE, readings

ALL = {**SHAPED, **SPARSE}
# Formats of tables: a column of one row, which has the tensor in it.
TABLES = ("arrow", "parquet")
# Dimensions are stored in reverse, and without a sign.
REVERSED = ("gguf",)


def refused(made, tmp_path, *kinds):
    """Every way of reading refuses it."""
    found = readings(made, tmp_path)
    for way, outcome in found.items():
        assert isinstance(outcome, kinds), f"{way}: {outcome!r}"
        if isinstance(outcome, CorruptError):
            assert outcome.at >= 0


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dims", [(2, -5, 1), (-1, 1, 1), (2, 1, -1), (-(1 << 63), 0, 1)], ids=str)
def test_19_20_negative_dimensions(name, dims, tmp_path):
    refused(ALL[name](dims, b""), tmp_path, CorruptError)


@pytest.mark.parametrize("name", SHAPED)
@pytest.mark.parametrize("dims", [(1 << 32, 1 << 32, 1), (1 << 62, 4, 1), (3, 1 << 62, 1)], ids=str)
def test_21_products_that_overflow(name, dims, tmp_path):
    # A column's cells are compared with its bytes; the budget may come first.
    refused(SHAPED[name](dims, b""), tmp_path, CorruptError, *([LimitError] if name in TABLES else []))


@pytest.mark.parametrize("name", SHAPED)
def test_22_more_bytes_than_are_there(name, tmp_path):
    # TensorProto repeats its last value, so what it claims meets the limit.
    refused(SHAPED[name]((1 << 62, 1, 1), b""), tmp_path, CorruptError, LimitError)


@pytest.mark.parametrize("large", [1 << 62, 1 << 32, (1 << 63) - 1], ids=str)
@pytest.mark.parametrize("name", [*SHAPED, "onnx, sparse"])
def test_23_a_zero_excuses_no_overflow_in_any_order(name, large, tmp_path):
    kinds = set()
    for dims in sorted(set(itertools.permutations((0, large, large)))):
        for outcome in readings(ALL[name](dims, b""), tmp_path).values():
            assert isinstance(outcome, CorruptError), outcome
            kinds.add(type(outcome))
    assert kinds == {CorruptError}


@pytest.mark.parametrize("name", ["tb, coo", "sparseproto"])
def test_23_the_shape_of_a_sparse_tensor_claims_no_memory(name, tmp_path):
    """Coordinates are what takes memory; so any shape is read, whatever the order of its dimensions."""
    for dims in sorted(set(itertools.permutations((0, 1 << 62, 1 << 62)))):
        found = readings(SPARSE[name](dims, b""), tmp_path)
        assert found["load"].shape == found["loads"].shape == dims
        assert found["load"].values.shape == (0,)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dims", [(0, 1 << 40, 1), (0, 1, 1 << 40)], ids=str)
def test_24_nothing_of_a_large_shape_is_accepted(name, dims, tmp_path):
    want = dims[::-1] if name in REVERSED else (1, *dims) if name in TABLES else dims
    for way, outcome in readings(ALL[name](dims, b""), tmp_path).items():
        assert not isinstance(outcome, Exception), f"{way}: {outcome}"
        if way in ("load", "mapped", "loads") and name != "tb, ragged values":
            found = next(iter(outcome.values())) if isinstance(outcome, dict) else outcome
            assert found.shape == want


@pytest.mark.parametrize("name", [name for name in SHAPED if name != "tb, ragged values"])
def test_25_rank_0(name, tmp_path):
    for way, outcome in readings(SHAPED[name]((), b"\5"), tmp_path).items():
        assert not isinstance(outcome, Exception), f"{way}: {outcome}"
        if way in ("load", "mapped", "loads"):
            found = next(iter(outcome.values())) if isinstance(outcome, dict) else outcome
            assert found.tolist() == ([5] if name in TABLES else 5)


@pytest.mark.parametrize("name", [name for name in ALL if name != "arrowtensor"])  # pyarrow writes no more than 64
@pytest.mark.parametrize("rank", [65, 20_000], ids=str)
def test_26_ranks_beyond_reason(name, rank, tmp_path):
    refused(ALL[name]((1,) * rank, b"\5"), tmp_path, LimitError, CorruptError)


@pytest.mark.parametrize("name", [name for name in SHAPED if name != "tb, ragged values"])
def test_26_the_limit_is_the_caller_s(name, tmp_path):
    made = SHAPED[name]((1,) * 9, b"\5")
    extra = name in TABLES
    for way, outcome in readings(made, tmp_path, tb.errors.Limits(max_rank=8 + extra)).items():
        assert isinstance(outcome, LimitError), f"{way}: {outcome!r}"
    for way, outcome in readings(made, tmp_path, tb.errors.Limits(max_rank=9 + extra)).items():
        assert not isinstance(outcome, Exception), f"{way}: {outcome}"


@pytest.mark.parametrize("name", ALL)
def test_what_the_lies_are_made_of_is_sound(name, tmp_path):
    """Without the lie, each builder gives a file that every way of reading reads."""
    content = bytes(6)
    if name == "arrowtensor":
        made, want = SHAPED[name]((6,), content), (6,)
    else:
        made = ALL[name]((0, 3) if name == "tb, ragged values" else (3, 2), b"" if "ragged" in name else content)
        want = (2, 3) if name in REVERSED else (1, 3, 2) if name in TABLES else (3, 2)
    for way, outcome in readings(made, tmp_path).items():
        assert not isinstance(outcome, Exception), f"{way}: {outcome}"
        if way == "loads" and "ragged" not in name:
            found = next(iter(outcome.values())) if isinstance(outcome, dict) else outcome
            assert found.shape == want
            if isinstance(found, np.ndarray):
                assert found.dtype.itemsize == 1
