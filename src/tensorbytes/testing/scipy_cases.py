"""SciPy's cases: every sparse class, array and matrix, with both widths of indices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from tensorbytes.testing.bits import array
from tensorbytes.testing.case import Case, Fingerprint
from tensorbytes.testing.numpy_cases import dense

# All that SciPy's sparse classes hold, but long double.
NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float32", "float64", "complex64", "complex128")  # fmt: skip


# ---- what a SciPy array is --------------------------------------------------


def _coordinates(coords: Any) -> list[list[int]]:
    return [list(point) for point in zip(*(axis.tolist() for axis in coords), strict=True)]


def _scalars(items: list[Any], dtype: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Values kept one by one, in Python containers; no cast may touch their bits."""
    assert all(item.dtype == dtype for item in items)
    return np.dtype(dtype).name, (len(items),), b"".join(item.tobytes() for item in items)


def fingerprint(x: Any) -> Fingerprint:
    if not sparse.issparse(x):
        raise TypeError(f"{type(x)} is not of SciPy")
    parts: list[Any]
    made: Fingerprint = {"layout": x.format, "shape": x.shape, "held.type": type(x).__name__}
    if x.format == "dok":
        keys = [list(key) if isinstance(key, tuple) else [key] for key in x.keys()]  # noqa: SIM118 - dok iterates rows
        return made | {
            "layout": "coo",
            "parts": [[[int(n) for n in key] for key in keys]],
            "values": _scalars(list(x.values()), x.dtype),
        }
    if x.format == "lil":
        lengths = [len(row) for row in x.rows]
        parts = [[sum(lengths[:n]) for n in range(len(lengths) + 1)], [int(n) for row in x.rows for n in row]]
        return made | {"layout": "csr", "parts": parts, "values": _scalars(_lil_values(x), x.dtype)}
    if x.format == "coo":
        parts, index = [_coordinates(x.coords)], [axis.dtype.name for axis in x.coords]
    elif x.format == "dia":
        parts, index = [x.offsets.tolist()], [x.offsets.dtype.name]
    else:
        nnz = int(x.indptr[-1])
        parts, index = [x.indptr.tolist(), x.indices[:nnz].tolist()], [x.indptr.dtype.name, x.indices.dtype.name]
        if x.ndim == 1:  # a list of coordinates, however it is held
            parts, made["layout"] = [[[n] for n in parts[1]]], "coo"
        return made | {"parts": parts, "values": dense(x.data[:nnz]), "held.index": index}
    return made | {"parts": parts, "values": dense(x.data), "held.index": index}


def _lil_values(x: Any) -> list[Any]:
    """lil holds numbers one by one, NumPy's or Python's."""
    return [item if isinstance(item, np.generic) else x.dtype.type(item) for row in x.data for item in row]


# ---- the classes ------------------------------------------------------------


def _data(name: str, *shape: int) -> Any:
    return array(name, shape)


def _with_index(made: Any, index: str) -> Any:
    """Indices of the wanted width, which SciPy's constructors choose by themselves."""
    if made.format == "coo":
        made.coords = tuple(axis.astype(index) for axis in made.coords)
    elif made.format == "dia":
        made.offsets = made.offsets.astype(index)
    else:
        made.indices, made.indptr = made.indices.astype(index), made.indptr.astype(index)
    return made


def _coo(name: str, kind: str, index: str = "int32", points: Any = ((2, 0, 2), (1, 3, 0)), shape: Any = (3, 4)) -> Any:
    make = getattr(sparse, f"coo_{kind}")
    coords = tuple(np.array(axis, index) for axis in points)
    return _with_index(make((_data(name, len(points[0])), coords), shape=shape), index)


def _compressed(name: str, kind: str, layout: str, index: str = "int32", block: tuple[int, ...] = ()) -> Any:
    """Three rows (or columns) of the lengths 2, 0 and 1; the indices of the first are not sorted."""
    pointers, indices = np.array([0, 2, 2, 3], index), np.array([3, 0, 1], index)
    shape = {"csr": (3, 4), "csc": (4, 3), "bsr": (6, 12)}[layout]
    made = getattr(sparse, f"{layout}_{kind}")((_data(name, 3, *block), indices, pointers), shape=shape)
    return _with_index(made, index)


def _dia(name: str, kind: str, index: str = "int32") -> Any:
    made = getattr(sparse, f"dia_{kind}")((_data(name, 3, 5), np.array([-1, 0, 3], index)), shape=(4, 5))
    return _with_index(made, index)


def _nonzero(name: str) -> list[Any]:
    """Values that assignment to one element keeps: it drops zeros."""
    return [value for value in _data(name, 6) if any(value.tobytes()) and value.tobytes()[-1] != 0x80]


def _dok(name: str, kind: str, shape: tuple[int, ...] = (3, 4)) -> Any:
    made = getattr(sparse, f"dok_{kind}")(shape, dtype=name)
    for at, value in zip(((2, 1), (0, 3), (1, 0), (0, 0)), _nonzero(name), strict=False):
        made[at[-len(shape) :]] = value
    return made


def _lil(name: str, kind: str) -> Any:
    made = getattr(sparse, f"lil_{kind}")((3, 4), dtype=name)
    for at, value in zip(((2, 1), (0, 3), (2, 0), (0, 0)), _nonzero(name), strict=False):
        made[at] = value
    return made


def _longer_than_needed(name: str, layout: str) -> Any:
    """Arrays with room to spare after the entries, as in-place editing leaves them."""
    made = _compressed(name, "array", layout, block=(2, 3) if layout == "bsr" else ())
    made.indices = np.concatenate((made.indices, np.array([7, 7], made.indices.dtype)))
    made.data = np.concatenate((made.data, made.data[:2]))
    return made


_BOTH: dict[str, Callable[[str, str], Any]] = {
    "coo_{}": lambda name, kind: _coo(name, kind),
    "coo_{}, duplicates": lambda name, kind: _coo(name, kind, points=((2, 0, 2), (1, 3, 1))),
    "coo_{}, int64 indices": lambda name, kind: _coo(name, kind, "int64"),
    "coo_{}, empty": lambda name, kind: _coo(name, kind, points=((), ())),
    "csr_{}": lambda name, kind: _compressed(name, kind, "csr"),
    "csr_{}, int64 indices": lambda name, kind: _compressed(name, kind, "csr", "int64"),
    "csc_{}": lambda name, kind: _compressed(name, kind, "csc"),
    "csc_{}, int64 indices": lambda name, kind: _compressed(name, kind, "csc", "int64"),
    "bsr_{}": lambda name, kind: _compressed(name, kind, "bsr", block=(2, 3)),
    "bsr_{}, int64 indices": lambda name, kind: _compressed(name, kind, "bsr", "int64", (2, 3)),
    "dia_{}": lambda name, kind: _dia(name, kind),
    "dia_{}, int64 offsets": lambda name, kind: _dia(name, kind, "int64"),
    "dok_{}": lambda name, kind: _dok(name, kind),
    "lil_{}": lambda name, kind: _lil(name, kind),
}
_ARRAYS: dict[str, Callable[[str], Any]] = {
    "coo_array, 1-d": lambda name: _coo(name, "array", points=((5, 1, 5),), shape=(9,)),
    "coo_array, 1-d, int64 indices": lambda name: _coo(name, "array", "int64", ((5, 1, 5),), (9,)),
    "coo_array, 4-d": lambda name: _coo(name, "array", points=((0, 1), (2, 0), (1, 1), (3, 0)), shape=(2, 3, 2, 4)),
    "coo_array, no rows": lambda name: _coo(name, "array", points=((), ()), shape=(0, 4)),
    "csr_array, 1-d": lambda name: _coo(name, "array", points=((1, 5),), shape=(9,)).tocsr(),
    "csr_array, 1-d, duplicates": lambda name: _csr_1d(name),
    "csc_array, duplicates": lambda name: _duplicates(name),
    "lil_array, of a csr_array": lambda name: _compressed(name, "array", "csr").tolil(),
    "dok_array, of a csr_array": lambda name: _compressed(name, "array", "csr").todok(),
    "dok_array, zero kept": lambda name: _zero_kept(name),
    "dok_array, 1-d": lambda name: _dok(name, "array", (9,)),
    "csr_array, room to spare": lambda name: _longer_than_needed(name, "csr"),
    "csc_array, room to spare": lambda name: _longer_than_needed(name, "csc"),
    "bsr_array, room to spare": lambda name: _longer_than_needed(name, "bsr"),
    "csr_array, big-endian": lambda name: _big_endian(name),
}


def _csr_1d(name: str) -> Any:
    return sparse.csr_array((_data(name, 3), np.array([5, 1, 5], np.int32), np.array([0, 3], np.int32)), shape=(9,))


def _duplicates(name: str) -> Any:
    made = _compressed(name, "array", "csc")
    made.indices[:] = 2
    return made


def _zero_kept(name: str) -> Any:
    made = _dok(name, "array")
    made.setdefault((1, 1), made.dtype.type(0))
    return made


def _big_endian(name: str) -> Any:
    made = _compressed(name, "array", "csr")
    made.data = made.data.astype(made.data.dtype.newbyteorder(">"))
    return made


def _cases(name: str) -> Iterable[Case]:
    for layout, build in _BOTH.items():
        for kind in ("array", "matrix"):
            yield Case("scipy", name, layout.format(kind), partial(build, name, kind))
    for layout, make in _ARRAYS.items():
        yield Case("scipy", name, layout, partial(make, name))


def _long_double() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sparse.coo_array(np.eye(2, dtype=np.longdouble))


def _objects() -> Any:
    made = _compressed("float64", "array", "csr")
    made.data = np.array(["a", "b", "c"], object)
    return made


CASES: list[Case] = [
    *(case for name in NAMES for case in _cases(name)),
    Case("scipy", "longdouble", "coo_array", _long_double),
    Case("scipy", "object", "csr_array", _objects),
]
