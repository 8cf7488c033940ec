"""SciPy: every sparse class, arrays and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from tensorbytes.errors import UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.tensor import Array, Sparse, Strings, Tensor, Value

_FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")


def to_value(x: Any) -> Value:
    if not sparse.issparse(x):
        raise UnsupportedError(f"{type(x).__module__}.{type(x).__qualname__} is not a sparse array or matrix")
    kind = "matrix" if isinstance(x, sparse.spmatrix) else "array"
    meta = {"framework": "scipy", "type": f"{x.format}_{kind}"}
    stored = _stored(x)
    data = numpy_adapter.to_value(np.asarray(stored.data))
    assert isinstance(data, Tensor)
    parts: tuple[Array, ...]
    if stored.format == "coo":
        parts = (np.stack(stored.coords, axis=1),)
    elif stored.format == "dia":
        parts = (stored.offsets,)
    else:
        parts = (stored.indptr, stored.indices)
    return Sparse(stored.format, x.shape, parts, data, meta=meta)


def _stored(x: Any) -> Any:
    """The form that is written: dok and lil are made for editing, 1-d csr is a list of coordinates."""
    if x.format == "lil":
        return x.tocsr()
    if x.format == "dok" or (x.ndim == 1 and x.format != "coo"):
        return x.tocoo()
    if x.format in ("csr", "csc", "bsr"):
        nnz = int(x.indptr[-1])  # arrays may be longer than what they hold
        return x if nnz == len(x.indices) == len(x.data) else x.copy().tocsr().asformat(x.format)
    return x


def from_value(value: Value, device: str | None = None) -> Any:
    if not isinstance(value, Sparse):
        return numpy_adapter.from_value(value, device)
    if isinstance(value.values, Strings):
        raise UnsupportedError("SciPy has no sparse strings: use to='numpy' or 'tensorflow'")
    wanted, _, kind = value.meta.get("type", "").partition("_")
    if wanted not in _FORMATS or kind not in ("array", "matrix"):
        wanted, kind = (value.layout if value.layout in _FORMATS else "coo"), "array"
    if value.layout == "bsc" or value.batch_rank:
        value = value.to_coo()
    values = numpy_adapter.from_value(value.values)
    if values.ndim != {"bsr": 3, "dia": 2}.get(value.layout, 1):
        raise UnsupportedError("SciPy holds single values, not rows of them: use to='torch'")
    make = getattr(sparse, f"{value.layout}_{kind}")
    try:
        if value.layout == "coo":
            coords = tuple(np.ascontiguousarray(value.parts[0].T))
            made = make((values, coords), shape=value.shape)
        elif value.layout == "dia":
            made = make((values, value.parts[0]), shape=value.shape)
        else:
            pointers, indices = value.parts
            made = make((values, indices, pointers), shape=value.shape)
    except (ValueError, TypeError) as error:
        raise UnsupportedError(f"SciPy can't hold {values.dtype} of shape {value.shape}: {error}") from None
    if made.dtype != values.dtype:
        raise UnsupportedError(f"SciPy has no sparse {values.dtype} (it would make it {made.dtype})")
    return made if made.format == wanted else made.asformat(wanted)
