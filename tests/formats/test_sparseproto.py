"""Sparse tensors: byte for byte what tf.io.serialize_sparse and serialize_many_sparse write."""

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import errors
from tensorbytes.formats import sparseproto
from tests.support.wire_bytes import INT32, INT64, STRING, field, int64s, number, shape, tensor

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "bfloat16", "complex64", "complex128", "string"]  # fmt: skip
# (dense shape, indices in order): every rank, empty rows at the start, middle and end, nothing at all
PATTERNS = {
    "rank 1": ((5,), [[0], [3]]),
    "rank 1, empty": ((5,), []),
    "rank 1, no room": ((0,), []),
    "rank 2": ((4, 3), [[1, 0], [1, 2], [3, 1]]),
    "rank 2, full row": ((2, 2), [[0, 0], [0, 1], [1, 0], [1, 1]]),
    "rank 2, empty": ((3, 2), []),
    "rank 2, one row": ((1, 300), [[0, 0], [0, 299]]),
    "rank 3": ((3, 2, 2), [[0, 0, 0], [0, 1, 1], [2, 0, 1]]),
    "rank 4": ((2, 1, 3, 2), [[0, 0, 2, 1], [1, 0, 0, 0], [1, 0, 0, 1]]),
}
MANY = [name for name in PATTERNS if not name.startswith("rank 1")]


def values_of(dtype, count):
    if dtype == "string":
        return tf.constant([b"", "Grüße".encode(), b"", b"x" * 200][:count], tf.string, (count,))
    return tf.cast(tf.constant([3, 0, 1, 2][:count], tf.int32, (count,)), dtype)


def sparse(pattern, dtype):
    dims, indices = PATTERNS[pattern]
    return tf.SparseTensor(np.array(indices, np.int64).reshape(-1, len(dims)), values_of(dtype, len(indices)), dims)


def same(a, b):
    assert a.dense_shape.numpy().tolist() == b.dense_shape.numpy().tolist()
    assert a.indices.numpy().tolist() == b.indices.numpy().tolist()
    assert a.values.dtype == b.values.dtype
    assert a.values.numpy().tolist() == b.values.numpy().tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_serialize_sparse(pattern, dtype):
    x = sparse(pattern, dtype)
    strings = tf.io.serialize_sparse(x)
    raw = tb.dumps(x, "sparseproto")
    assert raw == tf.io.serialize_tensor(strings).numpy()
    same(tb.loads(raw, to="tensorflow"), x)
    same(tb.frameworks.from_value(sparseproto.from_triple(strings.numpy().tolist()), "tensorflow"), x)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pattern", MANY)
def test_serialize_many_sparse(pattern, dtype):
    x = sparse(pattern, dtype)
    strings = tf.io.serialize_many_sparse(x)
    raw = tb.dumps(x, "sparseproto", many=True)
    assert raw == tf.io.serialize_tensor(strings).numpy()
    same(tb.loads(raw, to="tensorflow"), x)
    same(tb.frameworks.from_value(sparseproto.from_many(strings.numpy().tolist()), "tensorflow"), x)
    parsed = tf.io.parse_tensor(raw, tf.string)
    same(tf.io.deserialize_many_sparse(parsed, x.dtype), x)


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint16", "quint16", "qint32"])
def test_quantized(name):
    integers = {"qint8": "int8", "quint8": "uint8", "qint16": "int16", "quint16": "uint16", "qint32": "int32"}[name]
    x = tf.SparseTensor([[0], [2]], tf.bitcast(tf.constant([1, 100], integers), name), [3])
    raw = tb.dumps(x, "sparseproto")
    assert raw == tf.io.serialize_tensor(tf.io.serialize_sparse(x)).numpy()
    assert tb.loads(raw).values.dtype == name


def test_unordered_indices_keep_their_order():
    x = tf.SparseTensor([[1, 0], [0, 1], [0, 1]], [1, 2, 3], [2, 2])
    raw = tb.dumps(x, "sparseproto")
    assert raw == tf.io.serialize_tensor(tf.io.serialize_sparse(x)).numpy()
    same(tb.loads(raw, to="tensorflow"), x)


@pytest.mark.parametrize(
    "indices",
    [[[1, 0], [0, 1]], [[0, 1], [0, 0]], [[0, 1], [0, 1]], [[0, 0], [1, 1], [1, 0]]],
    ids=["rows", "columns", "the same twice", "the last"],
)
def test_rows_are_cut_only_out_of_sorted_indices(indices):
    x = tf.SparseTensor(indices, list(range(len(indices))), [2, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"out of order|repeated"):
        tf.io.serialize_many_sparse(x)
    with pytest.raises(errors.UnsupportedError, match="sorted indices"):
        tb.dumps(x, "sparseproto", many=True)


def test_rows_need_a_rank_over_one():
    with pytest.raises(errors.UnsupportedError, match="rank over 1"):
        tb.dumps(sparse("rank 1", "int8"), "sparseproto", many=True)


def test_no_rows_can_not_be_told_apart():
    x = tf.SparseTensor(np.empty((0, 2), np.int64), np.empty(0, np.float32), [0, 2])
    assert tf.io.serialize_many_sparse(x).shape == (0, 3)
    with pytest.raises(errors.LossError, match="no rows"):
        tb.dumps(x, "sparseproto", many=True)


def test_rows_of_different_sizes_take_the_largest():
    rows = [sparseproto.triple(tb.loads(tb.dumps(sparse(p, "int32")))) for p in ("rank 1", "rank 1, no room")]
    back = sparseproto.from_many(rows)
    theirs = tf.io.deserialize_many_sparse(tf.constant(rows), tf.int32)
    same(tb.frameworks.from_value(back, "tensorflow"), theirs)


# ---- refusals ---------------------------------------------------------------

INDICES, VALUES, DENSE = int64s(1, 2, dims=(2, 1)), int64s(7, 8), int64s(3)
BAD = {
    "two strings": (tensor(STRING, (2,), field(8, INDICES), field(8, VALUES)), "expected strings of shape"),
    "four columns": (tensor(STRING, (1, 4), *[field(8, INDICES)] * 4), "expected strings of shape"),
    "three dimensions": (tensor(STRING, (1, 1, 3), *[field(8, INDICES)] * 3), "expected strings of shape"),
    "a missing string": (tensor(STRING, (3,), field(8, INDICES), field(8, VALUES)), "expected strings of shape"),
    "no rows": (tensor(STRING, (0, 3)), "no rows"),
    "not strings": (int64s(1, 2, 3), "expected strings of shape"),
    "strings that are not tensors": (tensor(STRING, (3,), *[field(8, b"\xff")] * 3), "sparse indices: a varint"),
    "an index outside": ((int64s(1, 3, dims=(2, 1)), VALUES, DENSE), "outside the shape"),
    "an index below 0": ((int64s(1, -1, dims=(2, 1)), VALUES, DENSE), "outside the shape"),
    "too few values": ((INDICES, int64s(7), DENSE), "values must have the shape"),
    "too many dimensions": ((INDICES, VALUES, int64s(3, 4)), "with a dense shape of"),
    "flat indices": ((int64s(1, 2), VALUES, DENSE), "with a dense shape of"),
    "a negative dimension": ((int64s(dims=(0, 1)), int64s(), int64s(-3)), "must hold integers >= 0"),
    "a scalar for a shape": ((INDICES, VALUES, int64s(3, dims=())), "with a dense shape of"),
    "int32 indices": ((tensor(INT32, (2, 1), field(4, bytes(8))), VALUES, DENSE), "must be int64"),
    "a dense shape of strings": ((INDICES, VALUES, tensor(STRING, (1,), field(8, b"3"))), "dense int64 tensors"),
    "a sparse tensor inside": ((INDICES, VALUES, tensor(STRING, (1,), field(1007, "coo"), field(8, b""))), "no place"),
    "strings past their content": (
        (INDICES, tensor(STRING, (2,), field(4, b"\x01\x05ab")), DENSE),
        "sparse values: string 1 runs past the end",
    ),
    "strings that leave bytes over": (
        (INDICES, tensor(STRING, (2,), field(4, b"\x01\x01abc")), DENSE),
        "sparse values: 1 bytes are left over",
    ),
    "more strings than bytes": (
        (INDICES, number(1, STRING) + shape(1 << 40) + field(4, b"\x01"), DENSE),
        "can't fit into 1 bytes",
    ),
    "rows of different rank": (
        tensor(STRING, (2, 3), *(field(8, s) for s in (INDICES, VALUES, DENSE, int64s(0, 0, dims=(1, 2)),
                                                           int64s(1), int64s(1, 1)))),
        "rows of different rank or dtype",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_refused(case):
    raw, words = BAD[case]
    if isinstance(raw, tuple):
        raw = tensor(STRING, (3,), *(field(8, part) for part in raw))
    with pytest.raises(errors.CorruptError, match=words) as caught:
        tb.loads(raw, "sparseproto")
    assert 0 <= caught.value.at <= len(raw)


def test_the_offset_is_that_of_the_whole_buffer():
    dense = tensor(INT64, (1,), field(4, bytes(7)))  # one byte short, 6 bytes before the end of it
    raw = tensor(STRING, (3,), field(8, INDICES), field(8, VALUES), field(8, dense))
    with pytest.raises(errors.CorruptError, match="sparse shape") as caught:
        tb.loads(raw, "sparseproto")
    assert caught.value.at == len(raw) - 7


def test_other_values_are_refused():
    with pytest.raises(errors.LossError, match="not tensor"):
        tb.dumps(np.arange(3), "sparseproto")
    csr = tb.Sparse("csr", (1, 2), (np.array([0, 1]), np.array([1])), tb.Tensor("int8", (1,), b"\x05"))
    with pytest.raises(errors.LossError, match="not csr"):
        tb.dumps(csr, "sparseproto")
    assert tb.loads(tb.dumps(csr, "sparseproto", allow={"layout"})).parts[0].tolist() == [[0, 1]]


def test_the_strings_of_something_else_are_refused_in_words():
    with pytest.raises(tb.errors.UsageError, match=r"expected a tensorbytes\.Sparse, got ndarray"):
        sparseproto.triple(np.zeros(3))
