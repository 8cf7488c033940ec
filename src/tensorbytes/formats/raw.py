"""Raw bytes: the elements and nothing else, for legacy systems and raw streams.

The bytes tell neither dtype nor shape, so reading needs them:

    loads(dumps(x, "raw", byteorder=">"), "raw", byteorder=">", dtype="float32", shape=(2, 3))

`describe(x)` gives those arguments. `struct_format(x)` is the format string with which
Python's struct module, or a C struct of the same fields, reads the bytes. A dict of
tensors is written field after field, in the order of its keys, without padding: a
packed C struct. Reading one takes `fields={"name": (dtype, shape), ...}`.
"""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import swapped
from tensorbytes.errors import CorruptError, Hint, Limits, LossError, UnsupportedError, UsageError
from tensorbytes.formats import Format, Option, Options, bare_value, check_document, dense, known_options
from tensorbytes.formats._tensorproto import check_bits, check_shape
from tensorbytes.tensor import Tensor
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import bytes_view

_ORDERS = known_options(
    byteorder=Option(str, "`<` is little-endian, `>` big-endian", "<", ("<", ">")),
    order=Option(str, "`C` for rows first, `F` for columns first", "C", ("C", "F")),
)


class Raw(Format):
    name = "raw"
    label = "raw bytes"
    words = "the elements alone: any byte order, or a C struct"
    suffixes = (".raw", ".bin")
    read_by = "anyone told"
    holds = "dense tensors, without dtype and shape"
    nameless = True
    write_options = _ORDERS
    read_options = known_options(
        **_ORDERS,
        dtype=Option(
            object,
            "what the elements are: our name of a dtype, or a framework's",
        ),
        shape=Option(object, "one row unless it is said"),
        fields=Option(Mapping, "of a dict of tensors: `{name: (dtype, shape)}`"),
    )
    self_describing = False

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        byteorder, order = _memory_order(options)
        return [_to_raw(tensor, byteorder, order) for tensor in self._tensors(document, allow)]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        self._tensors(document, allow)

    def description(self, document: Document) -> Options:
        told = {leaf.name: (leaf.header.dtype, leaf.header.shape) for leaf in document.leaves}
        if any(leaf.path for leaf in document.leaves):
            return {"fields": told}
        dtype, shape = next(iter(told.values()))
        return {"dtype": dtype, "shape": shape}

    def _tensors(self, document: Document, allow: frozenset[str]) -> list[Tensor]:
        for leaf in document.leaves:
            if leaf.path and not (len(leaf.path) == 1 and leaf.path[0][0] == "key"):
                raise LossError(
                    "format 'raw' holds one tensor, or a flat dict of them as a C struct", feature="structure"
                )
        check_document(self, document, allow)
        return [dense(self, bare_value(self, leaf, allow)) for leaf in document.leaves]

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        byteorder, order = _memory_order(options)
        if "fields" in options:
            yield self._decode_fields(data, budget, lazy, options)
            return
        if "dtype" not in options:
            raise UsageError(
                "raw bytes don't tell their dtype",
                hints=[Hint("dtype", purpose="and the shape, if it is not one row", of="load")],
            )
        row = dtypes.get(_name(options["dtype"]))
        if "shape" in options:
            shape = _shape(options["shape"], row, budget)
        else:
            if len(data) % row.itemsize:
                raise CorruptError(f"{len(data)} bytes are not a whole number of {row.name}", at=len(data))
            shape = (len(data) // row.itemsize,)
        yield Document([_leaf(data, row.name, shape, byteorder, order, 0, lazy)])

    def _decode_fields(self, data: memoryview, budget: Budget, lazy: bool, options: Options) -> Document:
        leaves, at = [], 0
        for name, dtype, given in _fields(options["fields"]):
            row = dtypes.get(_name(dtype))
            shape = _shape(given, row, budget)
            size = dtypes.nbytes(row, shape)
            leaf = _leaf(data[at : at + size], row.name, shape, *_memory_order(options), at, lazy)
            leaves.append(leaf._replace(path=(("key", name),)))
            at += size
        if at != len(data):
            raise CorruptError(f"the fields take {at} bytes, got {len(data)}", at=at)
        return Document(leaves)


def _fields(fields: Any) -> list[tuple[str, Any, Any]]:
    try:
        return [(name, dtype, shape) for name, (dtype, shape) in fields.items()]
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f"fields={fields!r}", expected="a dict of name: (dtype, shape)") from None


def _shape(given: Any, row: dtypes.DType, budget: Budget) -> tuple[int, ...]:
    """The caller's shape as integers; a single number is a shape of one dimension."""
    try:
        shape = tuple(operator.index(n) for n in (given if isinstance(given, Iterable) else (given,)))
    except TypeError:
        raise UsageError(f"shape {given!r} must hold whole numbers") from None
    if any(n < 0 for n in shape):
        raise UsageError(
            f"shape {shape} has a negative dimension",
            hints=[Hint(purpose="without a shape the elements come in one row")],
        )
    return check_shape(shape, row.itemsize, budget, 0)


def _name(dtype: Any) -> str:
    """A dtype by our name, by a framework's own, or by anything NumPy takes for one."""
    with contextlib.suppress(UsageError):
        found = None if str(dtype).startswith(">") else dtypes.find(dtype)
        if found is not None:
            return found.name
    try:
        if dtype is None:  # float64 to NumPy, a slip to us
            raise TypeError
        given = np.dtype(dtype)
    except (TypeError, ValueError, OverflowError):
        raise UnsupportedError(f"unknown dtype {dtype!r}; known: {', '.join(dtypes.DTYPES)}") from None
    if given.byteorder == ">":
        raise UsageError(f"dtype {dtype!r} names a byte order", hints=[Hint("byteorder", ">", "instead", of="load")])
    return dtypes.from_numpy(given).name


def _memory_order(options: Options) -> tuple[str, str]:
    return options.get("byteorder", "<"), options.get("order", "C")


def _to_raw(tensor: Tensor, byteorder: str, order: str) -> Any:
    if byteorder == "<" and (order == "C" or len(tensor.shape) < 2):
        return tensor.data
    bits = np.ndarray(tensor.shape, f"V{dtypes.get(tensor.dtype).itemsize}", tensor.data)
    flat = bits.reshape(-1) if order == "C" else bits.T.reshape(-1)
    raw = np.ascontiguousarray(flat).view(np.uint8)
    return swapped(raw, tensor.dtype) if byteorder == ">" else raw


def _leaf(data: memoryview, name: str, shape: tuple[int, ...], byteorder: str, order: str, at: int, lazy: bool) -> Leaf:
    want = dtypes.nbytes(dtypes.get(name), shape)
    if len(data) != want:
        raise CorruptError(f"{name}{list(shape)} takes {want} bytes, got {len(data)}", at=at + min(want, len(data)))
    check = partial(check_bits, Tensor(name, shape, data), at)
    if not lazy:
        check()
    return Leaf(_from_raw(data, name, shape, byteorder, order), check=check if lazy else None, at=at)


def _from_raw(data: memoryview, name: str, shape: tuple[int, ...], byteorder: str, order: str) -> Tensor:
    row = dtypes.get(name)
    want = dtypes.nbytes(row, shape)
    if byteorder == ">":
        data = bytes_view(swapped(np.frombuffer(data, np.uint8), name))
    if order == "F" and len(shape) > 1 and want:
        bits = np.ndarray(shape[::-1], f"V{row.itemsize}", data).T
        data = bytes_view(np.ascontiguousarray(bits).reshape(-1).view(np.uint8))
    return Tensor(name, shape, data)


def describe(tensor: Tensor, byteorder: str = "<", order: str = "C") -> dict[str, Any]:
    """What `loads` needs to read a tensor's raw bytes."""
    return {"dtype": tensor.dtype, "shape": tensor.shape, "byteorder": byteorder, "order": order}


def struct_format(*tensors: Tensor, byteorder: str = "<") -> str:
    """The format string of Python's struct module for the raw bytes of these tensors, one after another."""
    letters = []
    for tensor in tensors:
        letter = dtypes.get(tensor.dtype).struct
        count = math.prod(tensor.shape)
        if letter is None and "complex" in tensor.dtype and tensor.dtype != "bcomplex32":
            letter, count = {"complex32": "e", "complex64": "f", "complex128": "d"}[tensor.dtype], count * 2
        if letter is None:
            raise UnsupportedError(f"Python's struct module has no letter for {tensor.dtype}")
        letters.append(letter if count == 1 else f"{count}{letter}")
    return byteorder + "".join(letters)


FORMAT = Raw()
