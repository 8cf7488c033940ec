"""Documents that Arrow and Parquet files must hold, and tables of other origin that they must be read from."""

import numpy as np
import pyarrow as pa

from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor

SPLITS = np.array([0, 2, 2, 5])
FLAT = np.arange(5, dtype="<f4")


def ragged(dtype="float32", data=FLAT, splits=SPLITS, shapes=None, **more):
    return Ragged(Tensor(dtype, (5,), data), (splits,), shapes, **more)


def words(*items, shape=None):
    return Strings.from_items(items, shape or (len(items),), "utf-8" if isinstance(items[0], str) else "bytes")


def rows(n=3):
    """Values that share a leading axis: a table of rows."""
    return {
        "i": np.arange(n, dtype=np.int16),
        "b": np.arange(n) % 2 == 0,
        "m": np.arange(n * 6, dtype=np.float32).reshape(n, 2, 3),
        "c": (np.arange(n) + 1j).astype(np.complex64),
        "day": np.arange(n).astype("M8[ms]"),
        "old": np.arange(n).astype("M8[s]"),
        "span": np.arange(n).astype("m8[ns]"),
        "months": np.arange(n).astype("M8[M]"),
        "s": np.array([str(k) for k in range(n)]),
        "ss": np.array([[b"a", b"bc"]] * n),
        "none": np.zeros((n, 0, 2), np.int32),
        "t": np.arange(n) % 3 == 1,
    }


def ragged_rows():
    return {
        "r": ragged(),
        "r32": ragged(splits=SPLITS.astype(np.int32)),
        "r16": ragged(splits=SPLITS.astype(np.int16)),
        "deep": Ragged(Tensor("float32", (5,), FLAT), (np.array([0, 1, 1, 3]), np.array([0, 2, 2, 5], np.int32))),
        "rows of 2": Ragged(Tensor("uint8", (5, 2), bytes(range(10))), (SPLITS,)),
        "rows of 2 x 2": Ragged(Tensor("uint8", (5, 2, 2), bytes(range(20))), (SPLITS,)),
        "rows of nothing": Ragged(Tensor("uint8", (5, 0), b""), (SPLITS,)),
        "complex": ragged("complex64", bytes(range(40))),
        "bfloat16": ragged("bfloat16", bytes(range(10))),
        "flags": ragged("bool", b"\0\1\1\0\1"),
        "text": Ragged(words("a", "", "é", "d", "e"), (SPLITS,)),
        "shaped": ragged(shapes=np.array([[1, 2], [0, 7], [3, 1]])),
        "shaped 32": ragged(splits=SPLITS.astype(np.int32), shapes=np.array([[2], [0], [3]], np.int32)),
        "shaped text": Ragged(words(b"a", b"", b"c", b"d", b"e"), (SPLITS,), np.array([[2], [0], [3]])),
        "shaped complex": ragged("complex128", bytes(range(80)), shapes=np.array([[2, 1], [5, 0], [1, 3]])),
        "shaped, no axes": Ragged(Tensor("int8", (3,), b"abc"), (np.arange(4),), np.zeros((3, 0), np.int64)),
        "named": ragged(meta={"unit": "m"}),
    }


def whole():
    """Values that share nothing: a table of one row."""
    return {
        "w": np.arange(6.0).reshape(2, 3),
        "scalar": np.float16(2),
        "nested": {"list": [1, 2.5, "x", None, b"y", [], {}], 3: (np.arange(2), True)},
        "sparse": Sparse(
            "csr", (3, 4), (np.array([0, 1, 1, 3]), np.array([3, 0, 1])), Tensor("bfloat16", (3,), b"abcdef")
        ),
        "empty": np.zeros((0, 3)),
        "hollow": np.zeros((3, 0, 2), "M8[us]"),
        "words": np.array([["a", "b"], ["c", ""]]),
        "no words": np.zeros((2, 0), "U1"),
        **{f"ragged {name}": value for name, value in ragged_rows().items()},
    }


DOCUMENTS = {
    "rows": rows(),
    "ragged rows": ragged_rows(),
    "whole": whole(),
    "a bare tensor": Tensor("float32", (2, 2), bytes(16), "w", {"unit": "m"}),
    "a bare ragged value": ragged(name="r", meta={"a": "b"}),
    "a number": 3,
    "no rows": {"a": np.zeros((0, 2)), "s": np.zeros(0, "U3"), "r": Ragged(Tensor("int8", (0,), b""), (SPLITS[:1],))},
    "a very long axis": np.zeros((1 << 40, 0), np.int8),
    "odd names": {name: np.arange(2) for name in ("", "a.b", "a", "é/\0\n", "list")},
    "many axes": np.zeros((1,) * 30, "U1"),
}  # fmt: skip


def foreign():
    """name -> (a pyarrow array, what it reads as)"""
    n = 4
    return {
        **{
            str(kind): (pa.array([1, 2, 3, 4], kind), np.array([1, 2, 3, 4], kind.to_pandas_dtype()))
            for kind in (
                pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
                pa.float32(), pa.float64(),
            )
        },
        "float16": (pa.array(np.arange(n, dtype=np.float16)), np.arange(n, dtype=np.float16)),
        "bool": (pa.array([True, False, True, True]), np.array([True, False, True, True])),
        "string": (pa.array(["a", "é", "", "d"]), np.array(["a", "é", "", "d"], object)),
        "large_string": (pa.array(["a", "é", "", "d"], pa.large_string()), np.array(["a", "é", "", "d"], object)),
        "binary": (pa.array([b"a", b"\xff", b"", b"d"]), np.array([b"a", b"\xff", b"", b"d"], object)),
        "fixed binary": (pa.array([b"ab", b"cd"] * 2, pa.binary(2)), np.array([b"ab", b"cd"] * 2, object)),
        "dictionary": (pa.array(["a", "b", "a", "a"]).dictionary_encode(), np.array(["a", "b", "a", "a"], object)),
        "dictionary of int": (pa.array([7, 8, 7, 7]).dictionary_encode(), np.array([7, 8, 7, 7])),
        "fixed list": (pa.array([[1, 2]] * n, pa.list_(pa.int16(), 2)), np.array([[1, 2]] * n, np.int16)),
        "nested fixed list": (
            pa.array([[[1, 2, 3], [4, 5, 6]]] * n, pa.list_(pa.list_(pa.int16(), 3), 2)),
            np.array([[[1, 2, 3], [4, 5, 6]]] * n, np.int16),
        ),
        "fixed list of bools": (pa.array([[True, False]] * n, pa.list_(pa.bool_(), 2)), np.array([[1, 0]] * n, bool)),
        "tensor": (
            pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(n * 6).reshape(n, 2, 3)),
            np.arange(n * 6).reshape(n, 2, 3),
        ),
        "tensor, two axes swapped": permuted(n, [0, 2, 1]),
        "tensor, axes turned": permuted(n, [2, 0, 1]),
        "timestamp[us]": (pa.array([1, 2, 3, 4], pa.timestamp("us")), np.array([1, 2, 3, 4], "M8[us]")),
        "timestamp with a zone": (pa.array([1, 2, 3, 4], pa.timestamp("ms", "UTC")), np.array([1, 2, 3, 4], "M8[ms]")),
        "date32": (pa.array([1, 2, 3, 4], pa.date32()), np.array([1, 2, 3, 4], "M8[D]")),
        "duration": (pa.array([1, 2, 3, 4], pa.duration("s")), np.array([1, 2, 3, 4], "m8[s]")),
        "fixed list of dates": (pa.array([[1, 2]] * n, pa.list_(pa.date32(), 2)), np.array([[1, 2]] * n, "M8[D]")),
    }  # fmt: skip


def permuted(n, order):
    """By the specification: axis k of the tensor is axis order[k] of the storage."""
    kind = pa.fixed_shape_tensor(pa.int32(), (2, 3, 4), permutation=order)
    flat = np.arange(n * 24, dtype=np.int32)
    array = pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(pa.array(flat), 24))
    return array, flat.reshape(n, 2, 3, 4).transpose(0, *(axis + 1 for axis in order))


FOREIGN_LISTS = {
    "list": (pa.array([[1], [2, 3], [], [4]]), [[1], [2, 3], [], [4]]),
    "large_list": (pa.array([[1], [2, 3], [], [4]], pa.large_list(pa.uint8())), [[1], [2, 3], [], [4]]),
    "list of lists": (pa.array([[[1], []], [[2, 3]], [], [[4]]]), [[[1], []], [[2, 3]], [], [[4]]]),
    "list of fixed lists": (
        pa.array([[[1, 2]], [], [[3, 4], [5, 6]], []], pa.list_(pa.list_(pa.int8(), 2))),
        [[[1, 2]], [], [[3, 4], [5, 6]], []],
    ),
    "fixed list of lists": (
        pa.array([[[1], [2, 3]], [[], []], [[4], []], [[], [5]]], pa.list_(pa.list_(pa.int8()), 2)),
        [[[1], [2, 3]], [[], []], [[4], []], [[], [5]]],
    ),
    "list of strings": (pa.array([["a"], ["b", ""], [], ["c"]]), [["a"], ["b", ""], [], ["c"]]),
    "list of a dictionary": (
        pa.ListArray.from_arrays(pa.array([0, 1, 3, 3, 4], pa.int32()), pa.array(["a", "b"] * 2).dictionary_encode()),
        [["a"], ["b", "a"], [], ["b"]],
    ),
}  # fmt: skip


def rows_of(value):
    return [to_list(row) for row in value.rows()]


def to_list(row):
    return [to_list(item) for item in row] if isinstance(row, list) else row.tolist()
