"""NumPy's cases: every dtype in every memory layout, text in every form, times of every unit."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.testing.bits import (
    Array,
    array,
    content,
    every_pattern,
    keep_value_bits,
    numpy_dtype,
    patterns,
    swap,
)
from tensorbytes.testing.case import Case, Fingerprint

NAMES = tuple(row.name for row in dtypes.DTYPES.values() if row.numpy and not row.numpy.endswith(("time64", "delta64")))
EMPTY = ((0,), (0, 3), (3, 0), (2, 0, 3))


# ---- what a NumPy array is --------------------------------------------------


def dense(x: Array) -> tuple[str, tuple[int, ...], Any]:
    """dtype, shape and bits in C order, little-endian."""
    if x.dtype.kind == "O":
        return "object", x.shape, [(type(item).__name__, item) for item in x.reshape(-1).tolist()]
    if x.dtype.kind == "T":
        return repr(x.dtype), x.shape, x.reshape(-1).tolist()
    raw = x.tobytes()
    width = {"c": x.dtype.itemsize // 2, "U": 4}.get(x.dtype.kind, x.dtype.itemsize)
    if x.dtype.byteorder == ">" and raw:
        raw = swap(raw, width)
    return x.dtype.name, x.shape, keep_value_bits(x.dtype.name, raw)


def fingerprint(x: Any) -> Fingerprint:
    if not isinstance(x, np.ndarray | np.generic):
        raise TypeError(f"{type(x)} is not of NumPy")
    whole = np.asarray(x)
    made: Fingerprint = {"dense": dense(whole), "held.scalar": isinstance(x, np.generic)}
    if type(x) not in (np.ndarray, np.memmap) and not isinstance(x, np.generic):
        made["own.type"] = type(x).__name__  # a mask or another meaning goes with it
    if whole.dtype.name in dtypes.DTYPES and dtypes.get(whole.dtype.name).bits < 8:
        made["own.values"] = whole.astype(np.float32).tobytes()  # the bits mean the same numbers
    made["memory.layout"] = (whole.strides, whole.dtype.byteorder, whole.flags.writeable, whole.flags.aligned)
    return made


# ---- layouts of numbers -----------------------------------------------------


def _misaligned(name: str) -> Array:
    raw = content(name, (5, 3))
    return np.ndarray((5, 3), numpy_dtype(name), bytearray(b"\xff" + raw), 1)


def _big_endian(name: str) -> Array:
    dtype = numpy_dtype(name).newbyteorder(">")
    width = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return np.ndarray((6, 10), dtype, bytearray(swap(content(name, (6, 10)), width)))


def _read_only(name: str) -> Array:
    return np.ndarray((6, 10), numpy_dtype(name), content(name, (6, 10)))


def _mapped(name: str) -> Array:
    with tempfile.TemporaryFile() as file:
        file.write(content(name, (6, 10)))
        file.flush()
        return np.memmap(file, numpy_dtype(name), "r", shape=(6, 10))


def _overlapping(name: str) -> Array:
    step = numpy_dtype(name).itemsize
    return np.ndarray((6, 4), numpy_dtype(name), bytearray(content(name, (9,))), strides=(step, step))


def _high_bits(name: str) -> Array:
    """Values under 8 bits with rubbish above them, as arithmetic may leave it."""
    raw = array("uint8", (256,))
    return raw.view(numpy_dtype(name))


LAYOUTS: dict[str, Callable[[str], Any]] = {
    "0-d": lambda name: array(name, ()),
    "scalar": lambda name: array(name, (1,))[0],
    **{f"empty {'x'.join(map(str, shape))}": partial(array, shape=shape) for shape in EMPTY},
    "1-d": lambda name: array(name, (len(patterns(name)) + 3,)),
    "4-d": lambda name: array(name, (2, 3, 4, 5)),
    "rank 32": lambda name: array(name, (1,) * 30 + (2, 3)),
    "page and more": lambda name: array(name, (70, 70)),
    "transposed": lambda name: array(name, (4, 5, 6)).transpose(2, 0, 1),
    "strided": lambda name: array(name, (6, 8))[::2, 1::3],
    "reversed": lambda name: array(name, (6, 5))[::-1, ::-1],
    "reversed 1-d": lambda name: array(name, (17,))[::-1],
    "broadcast": lambda name: np.broadcast_to(array(name, (1, 5)), (4, 5)),
    "F-order": lambda name: np.asfortranarray(array(name, (4, 5))),
    "overlapping": _overlapping,
    "misaligned": _misaligned,
    "read-only": _read_only,
    "mapped": _mapped,
}


def _number_cases(name: str) -> list[Case]:
    layouts = dict(LAYOUTS)
    row = dtypes.get(name)
    if row.bits == 16:
        layouts["every bit pattern"] = lambda name: np.frombuffer(every_pattern(name), numpy_dtype(name))
    if row.bits < 8:
        layouts["high bits set"] = _high_bits
    if numpy_dtype(name).newbyteorder(">").byteorder == ">":
        layouts["big-endian"] = _big_endian
        layouts["big-endian reversed"] = lambda name: _big_endian(name)[::-1, ::2]
        layouts["big-endian 0-d"] = lambda name: _big_endian(name)[1, 1:2].reshape(())
    if name == "bool":
        layouts["byte that is not a valid bool"] = lambda name: np.array([0, 1, 2], np.uint8).view(bool)
    return [Case("numpy", name, layout, partial(build, name)) for layout, build in layouts.items()]


# ---- times, text, and what is refused ---------------------------------------


def _times(unit: str, kind: str, order: str = "<") -> Array:
    raw = content("int64", (4, 5))
    return np.ndarray((4, 5), f"{order}{kind}8{unit}", bytearray(raw if order == "<" else swap(raw, 8)))


def _seen(view: Callable[[Array], Any], kind: str) -> Any:
    return view(_times("[ns]", kind))


_UNITS = ("", "[Y]", "[M]", "[W]", "[D]", "[h]", "[m]", "[s]", "[ms]", "[us]", "[ns]", "[ps]", "[fs]", "[as]", "[25s]")
_TIME_VIEWS: dict[str, Callable[[Array], Any]] = {
    "0-d": lambda x: x[1, 1:2].reshape(()),
    "scalar": lambda x: x[0, 1],
    "empty": lambda x: x[:0],
    "reversed": lambda x: x[::-1, ::-1],
    "transposed": lambda x: x.T,
}
_TEXT = ["", "a", "naïve", "\U0001f600", "nul\0inside", "line\nbreak", "日本語", "e\u0301", "x" * 300]
_BYTES = [b"", b"a", b"\0", b"trailing\0\0", bytes(range(256)), b"\xff\xfe", b"x" * 300]


def objects(items: list[Any], shape: tuple[int, ...] | None = None) -> Array:
    made = np.empty(len(items), object)
    made[:] = items
    return made if shape is None else made.reshape(shape)


_STRINGS: dict[tuple[str, str], Callable[[], Any]] = {
    ("str", "objects"): lambda: objects(_TEXT, (3, 3)),
    ("str", "objects 0-d"): lambda: objects(["é"], ()),
    ("str", "objects reversed"): lambda: objects(_TEXT, (3, 3))[::-1, ::2],
    ("str", "objects transposed"): lambda: objects(_TEXT, (3, 3)).T,
    ("str", "objects broadcast"): lambda: np.broadcast_to(objects(_TEXT[:3]), (2, 3)),
    ("str", "objects empty"): lambda: objects([], (0, 3)),
    ("str", "fixed"): lambda: np.array(_TEXT[:8], "U12"),
    ("str", "fixed big-endian"): lambda: np.array(_TEXT[:8], ">U12"),
    ("str", "fixed reversed"): lambda: np.array(_TEXT[:8], "U12").reshape(2, 4)[::-1, ::-1],
    ("str", "fixed 0-d"): lambda: np.array("日本", "U7"),
    ("str", "fixed empty"): lambda: np.empty((2, 0), "U5"),
    ("str", "fixed scalar"): lambda: np.str_("日本"),
    ("str", "fixed of no width"): lambda: np.empty((3,), "U0"),
    ("str", "StringDType"): lambda: np.array(_TEXT, np.dtypes.StringDType()).reshape(3, 3),
    ("str", "StringDType strict"): lambda: np.array(_TEXT, np.dtypes.StringDType(coerce=False)),
    ("str", "StringDType reversed"): lambda: np.array(_TEXT, np.dtypes.StringDType()).reshape(3, 3)[::-1, ::2],
    ("str", "StringDType empty"): lambda: np.empty((0, 2), np.dtypes.StringDType()),
    ("str", "StringDType with a missing value"): lambda: np.array(
        ["a", None], np.dtypes.StringDType(na_object=None)
    ),
    ("str", "lone surrogate"): lambda: np.array(["a\ud800"], "U4"),
    ("str", "lone surrogate object"): lambda: objects(["\udfff"]),
    ("bytes", "objects"): lambda: objects(_BYTES),
    ("bytes", "objects 0-d"): lambda: objects([b"\0"], ()),
    ("bytes", "objects reversed"): lambda: objects(_BYTES[:6], (2, 3))[:, ::-1],
    ("bytes", "objects empty"): lambda: objects([], (2, 0, 1)),
    ("bytes", "fixed"): lambda: np.array(_BYTES[:6], "S300"),
    ("bytes", "fixed strided"): lambda: np.array(_BYTES[:6], "S300")[::2],
    ("bytes", "fixed 0-d"): lambda: np.array(b"\xff\0\xfe", "S5"),
    ("bytes", "fixed scalar"): lambda: np.bytes_(b"\xff\0\xfe"),
    ("bytes", "fixed empty"): lambda: np.empty((0,), "S3"),
}  # fmt: skip

_REFUSED: dict[tuple[str, str], Callable[[], Any]] = {
    ("object", "numbers"): lambda: objects([1, 2.5]),
    ("object", "text and bytes"): lambda: objects(["a", b"a"]),
    ("object", "text and None"): lambda: objects(["a", None]),
    ("object", "arrays"): lambda: objects([np.ones(2), np.ones(3)]),
    ("object", "NumPy text"): lambda: objects([np.str_("a")]),
    ("void", "structured"): lambda: np.zeros(3, [("a", "<f4"), ("b", "<i8")]),
    ("void", "record"): lambda: np.rec.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f4")]),
    ("void", "plain"): lambda: np.zeros(3, "V5"),
    ("longdouble", "1-d"): lambda: np.ones(3, np.longdouble),
    ("longdouble", "complex"): lambda: np.ones(3, np.clongdouble),
    ("float64", "subclass masked"): lambda: np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    ("float64", "subclass matrix"): lambda: np.ones((2, 2)).view(_Subclass),
}


class _Subclass(np.ndarray[Any, Any]):
    pass


CASES: list[Case] = [
    *(case for name in NAMES for case in _number_cases(name)),
    *(
        Case("numpy", f"{word}64", f"unit {unit or 'none'}{mark}", partial(_times, unit, kind, order))
        for word, kind in (("datetime", "M"), ("timedelta", "m"))
        for order, mark in (("<", ""), (">", ", big-endian"))
        for unit in _UNITS
    ),
    *(
        Case("numpy", f"{word}64", layout, partial(_seen, view, kind))
        for word, kind in (("datetime", "M"), ("timedelta", "m"))
        for layout, view in _TIME_VIEWS.items()
    ),
    *(Case("numpy", dtype, layout, build) for (dtype, layout), build in (_STRINGS | _REFUSED).items()),
]
