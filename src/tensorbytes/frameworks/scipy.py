"""SciPy: every sparse class, arrays and matrices.

SciPy's own conversions choose the width of the indices, sort entries, add up duplicates
and send values through Python's floats, which changes NaNs. So the parts of an array
are taken, and put back, as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from tensorbytes.errors import Hint, UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.tensor import Array, Sparse, Strings, Tensor, Value

_FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def to_value(x: Any) -> Value:
    if not sparse.issparse(x):
        raise UnsupportedError(f"{type(x).__module__}.{type(x).__qualname__} is not a sparse array or matrix")
    kind = "matrix" if isinstance(x, sparse.spmatrix) else "array"
    layout, parts, stored = _take_apart(x)
    data = numpy_adapter.to_value(np.asarray(stored))
    if not isinstance(data, Tensor):
        raise UnsupportedError("a sparse array of Python objects has no portable form")
    return Sparse(layout, x.shape, parts, data, origin={"framework": "scipy", "type": f"{x.format}_{kind}"})


def _take_apart(x: Any) -> tuple[str, tuple[Array, ...], Array]:
    """The layout that is written, its index parts and the values."""
    if x.format == "coo":
        return "coo", (np.stack(x.coords, axis=1),), x.data
    if x.format == "dia":
        return "dia", (x.offsets,), x.data
    index = np.int32 if max(x.nnz, *x.shape) < 1 << 31 else np.int64
    if x.format == "dok":  # a dict of coordinates
        coords = np.array(list(x.keys()), index).reshape(x.nnz, x.ndim)
        return "coo", (coords,), np.array(list(x.values()), x.dtype)
    if x.format == "lil":  # a list of columns and a list of values for each row
        pointers = np.cumsum([0, *map(len, x.rows)]).astype(index)
        columns = np.array([column for row in x.rows for column in row], index)
        return "csr", (pointers, columns), np.array([value for row in x.data for value in row], x.dtype)
    nnz = int(x.indptr[-1])  # arrays may be longer than what they hold
    if x.ndim == 1:
        return "coo", (x.indices[:nnz, None],), x.data[:nnz]
    return x.format, (x.indptr, x.indices[:nnz]), x.data[:nnz]


def from_value(value: Value, device: str | None = None) -> Any:
    if not isinstance(value, Sparse):
        return numpy_adapter.from_value(value, device)
    if isinstance(value.values, Strings):
        raise UnsupportedError(
            "SciPy has no sparse strings", hints=[Hint("to", choices=("numpy", "tensorflow"), of="load")]
        )
    wanted, _, kind = value.origin.get("type", "").partition("_")
    if wanted not in _FORMATS or kind not in ("array", "matrix"):
        wanted, kind = (value.layout if value.layout in _FORMATS else "coo"), "array"
    if value.layout == "bsc" or value.batch_rank:
        value = value.to_coo()
    values = numpy_adapter.from_value(value.values)
    if values.ndim != {"bsr": 3, "dia": 2}.get(value.layout, 1):
        raise UnsupportedError("SciPy holds single values, not rows of them", hints=[Hint("to", "torch", of="load")])
    try:
        made = _make(value, values, wanted, kind)
    except (ValueError, TypeError) as error:
        raise UnsupportedError(f"SciPy can't hold {values.dtype} of shape {value.shape}: {error}") from None
    if made.dtype != values.dtype:
        raise UnsupportedError(f"SciPy has no sparse {values.dtype} (it would make it {made.dtype})")
    return made


def _make(value: Sparse, values: Array, wanted: str, kind: str) -> Any:
    make = getattr(sparse, f"{wanted}_{kind}")
    shape = value.shape
    if value.layout == "coo" and wanted == "dok":
        return _dok(make(shape, dtype=values.dtype), value.parts[0], values)
    if value.layout == "csr" and wanted == "lil":
        return _lil(make(shape, dtype=values.dtype), value.parts, values)
    if value.layout == "coo" and wanted == "csr" and len(shape) == 1:
        indices = np.ascontiguousarray(value.parts[0][:, 0])
        return _compressed(make, values, np.array([0, len(indices)], indices.dtype), indices, shape)
    make = getattr(sparse, f"{value.layout}_{kind}")
    if value.layout == "coo":
        coords = tuple(np.ascontiguousarray(value.parts[0].T))
        made = make((values, coords), shape=shape)
        made.coords = coords
    elif value.layout == "dia":
        made = make((values, value.parts[0]), shape=shape)
        made.offsets = value.parts[0]
    else:
        pointers, indices = value.parts
        made = _compressed(make, values, pointers, indices, shape)
    return made if made.format == wanted else made.asformat(wanted)


def _compressed(make: Any, values: Array, pointers: Array, indices: Array, shape: tuple[int, ...]) -> Any:
    made = make((values, indices, pointers), shape=shape)
    made.indices, made.indptr = indices, pointers
    return made


def _dok(made: Any, coords: Array, values: Array) -> Any:
    for point, item in zip(coords.tolist(), values, strict=True):
        key = point[0] if len(point) == 1 else tuple(point)
        if made.setdefault(key, item) is not item:
            raise UnsupportedError(
                "a dok array holds one value for each place, but some have several", hints=[Hint(purpose="use coo")]
            )
    return made


def _lil(made: Any, parts: tuple[Array, ...], values: Array) -> Any:
    bounds, columns = parts[0].tolist(), parts[1].tolist()
    for row in range(len(made.rows)):
        start, stop = bounds[row], bounds[row + 1]
        made.rows[row], made.data[row] = columns[start:stop], list(values[start:stop])
    return made
