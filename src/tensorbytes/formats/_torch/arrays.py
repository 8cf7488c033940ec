"""NumPy's arrays and scalars in a pickle: what NumPy's own functions would make, of plain dtypes, made here.

numpy.dtype("f8", False, True), then its state     (3, "<", None, None, None, -1, -1, 0)
_reconstruct(ndarray, (0,), b"b"), then its state  (1, shape, dtype, in Fortran's order, bytes)
_frombuffer(bytes, dtype, shape, "C" or "F")       protocol 5; "K" with an order of axes as well
scalar(dtype, bytes)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, elsewhere
from tensorbytes.errors import LimitError, UnsupportedError
from tensorbytes.formats._npy import arrays as npy_arrays
from tensorbytes.formats._npy.header import NpyHeader
from tensorbytes.formats._tensorproto import check_shape
from tensorbytes.formats._torch.pickle_values import FaultError, RefusedError
from tensorbytes.formats._torch.unread import Opaque
from tensorbytes.tensor import Strings, Tensor

_LONGEST_CODE = 16
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
Made = Tensor | Strings | Deferred


class DType:
    """A dtype under construction: `descr` is NumPy's word for it once its state is set, or `why` it is not read."""

    __slots__ = ("code", "descr", "why")

    def __init__(self, code: str) -> None:
        self.code, self.descr, self.why = code, "", ""

    def set_state(self, state: Any) -> None:
        if type(state) is not tuple or len(state) not in (8, 9) or self.descr or self.why:
            raise FaultError("a NumPy dtype with a state of another form, or with two")
        version, order, sub, names, fields, size = state[:6]
        if version not in (3, 4) or len(state) != 5 + version or order not in ("<", ">", "|"):
            raise FaultError("a NumPy dtype with a state of another form")
        unit = _unit(state[8]) if len(state) == 9 else ""
        if sub is not None or names is not None or fields is not None or unit is None:
            self.why = "a NumPy array of a dtype with fields, shapes or metadata of its own"
            return
        self.descr = f"{order}{self.code}{unit}"
        width = {"U": 4, "S": 1}.get(self.code[:1])
        if width is not None and size != width * int(self.code[1:]):
            raise FaultError(f"a NumPy dtype {self.code} of another size")


def dtype(code: Any, *_: Any) -> DType:
    sound = type(code) is str and len(code) <= _LONGEST_CODE and code.isascii() and code.isalnum()
    if not sound or (code[0] in "US" and not code[1:].isdigit()):
        raise RefusedError(f"a NumPy array of another dtype, {str(code)[:20]!r}: save it as a tensor")
    return DType(code)


def _unit(metadata: Any) -> str | None:
    """The unit of a time, as in M8[10s]; None for other metadata."""
    if type(metadata) is not tuple or len(metadata) != 2 or metadata[0]:
        return None
    match metadata[1]:
        case (bytes(raw), int(count), 1, 1) if 0 < count < 1 << 31:
            unit = raw.decode("latin-1")
            if unit == "generic":
                return ""
            return f"[{count if count != 1 else ''}{unit}]" if unit in _UNITS else None
    return None


class Held:
    """An array or a scalar on the machine's stack: `made` is its value, or what stands for one that is not read."""

    __slots__ = ("kind", "made")

    def __init__(self, made: Made | Opaque | None = None, kind: str = "") -> None:
        self.made, self.kind = made, kind

    def set_state(self, state: Any, budget: Budget) -> None:
        """RefusedError for what is not read: then the caller puts something in its place."""
        if self.made is not None:
            raise FaultError("a NumPy array with two states")
        if type(state) is not tuple or len(state) != 5 or state[0] != 1 or type(state[3]) is not bool:
            raise FaultError("a NumPy array with a state of another form")
        _, shape, kind, fortran, raw = state
        self.made = value(raw, kind, shape, "F" if fortran else "C", budget)


def value(raw: Any, kind: Any, shape: Any, order: str, budget: Budget, axes: Any = None) -> Made:
    """The array of these bytes, as npy files have them."""
    if type(kind) is Opaque:
        raise RefusedError(kind.why)
    if type(kind) is not DType or not (kind.descr or kind.why):
        raise FaultError("a NumPy array without a dtype")
    if kind.code.startswith("O"):
        raise RefusedError("a NumPy array of Python objects")
    if kind.why:
        raise RefusedError(kind.why)
    if type(raw) is not bytes or type(shape) is not tuple or not all(type(n) is int and n >= 0 for n in shape):
        raise FaultError("a NumPy array without bytes or a shape")
    if len(shape) > budget.max_rank:
        raise LimitError(f"a NumPy array of rank {len(shape)}, over the limit of {budget.max_rank}")
    try:
        element = npy_arrays.element(kind.descr)
    except UnsupportedError as error:
        raise RefusedError(error.fault) from None
    if not element.dtype or not element.itemsize:
        raise RefusedError(f"a NumPy array of the dtype {kind.descr!r}, which does not say what it holds")
    check_shape(shape, element.itemsize, budget, 0)
    size = math.prod(shape) * element.itemsize
    if size != len(raw):
        raise FaultError(f"a NumPy array of {size} bytes has {len(raw)}")
    data = memoryview(raw)
    header = NpyHeader(kind.descr, order == "F", shape, {}, 0)
    found = npy_arrays.StoredArray(header, element, element.dtype, element.dtype, 0, size)
    if order != "K" or not size:
        if order == "K":
            header = header._replace(shape=tuple(shape[axis] for axis in _checked(axes, shape)))
        return npy_arrays.value(data, found._replace(header=header), lazy=True)
    if element.dtype == "string" or found.origin or element.dtype == "bool":
        raise RefusedError(f"a transposed NumPy array of {kind.descr!r}: save x.copy()")
    elements = np.ndarray(shape, f"V{element.itemsize}", data).transpose(_checked(axes, shape))
    return elsewhere(element.dtype, elements, element.swap)


def _checked(axes: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if (
        type(axes) is not tuple
        or not all(type(axis) is int for axis in axes)
        or sorted(axes) != list(range(len(shape)))
    ):
        raise FaultError("a NumPy array with an order of other axes than its own")
    return axes
