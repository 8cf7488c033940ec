r"""The npy format: one array, as np.save writes it and np.load reads it.

    6 bytes   \x93NUMPY
    2 bytes   major, minor version: 1.0 when written; 1.0, 2.0 and 3.0 when read
    2 bytes   length of the header, little-endian (4 bytes from version 2.0 on)
    header    {'descr': '<f4', 'fortran_order': False, 'shape': (3,), }, spaces, \n
    array     its elements; it starts on a multiple of 64

A plain array gives exactly the bytes of np.save. What NumPy's header can't say stands in
a comment after its dict, which NumPy skips; the note is a JSON object of _parts.py:

    {'descr': '<V2', 'fortran_order': False, 'shape': (3,), } # tensorbytes {"dtype":"bfloat16"}

- A dtype that NumPy lacks is stored as void of the same width, quantized ones as integers;
  `dtype` in the note is the true one.
- Text is an array of fixed width (<U5, |S5) where that is exact: no string ends with a
  zero, and it takes not much more room. Otherwise it is bytes and offsets.
- Arrays of text and times (<M8[ns]) have their descr as their origin's "numpy.dtype", unless
  the note has `origin`, which then is all of it.
- A note without `path` is one of a value outside any structure.
- What needs several arrays (ragged, sparse) is written as one npy after another: values
  first, which is what np.load reads, then those that `parts` lists.

A file of several arrays by others, np.save'd one after another, is read as a list of
them. NumPy reads no header over 10,000 bytes, so longer notes are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import MORE_TENSORS, CorruptError, Hint, LimitError, Limits
from tensorbytes.formats import Format, Options, known_options, only_leaf
from tensorbytes.formats._npy import arrays as npy_arrays
from tensorbytes.formats._npy import header as npy_header
from tensorbytes.formats._parts import Part, unpack
from tensorbytes.tensor import Strings, Tensor
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import Buffer

_UNNAMED = "array"


class Npy(Format):
    name = "npy"
    label = "NumPy array"
    words = "NumPy's own, byte for byte"
    aliases = ("numpy", "np")
    suffixes = (".npy",)
    read_by = "NumPy"
    holds = "one value of any kind"
    holds_one = True
    nameless = True
    complete = True
    read_options = known_options(dtype=npy_arrays.TRUE_DTYPE)
    unmistakable = True
    lists_quickly = True

    def sniff(self, head: bytes, size: int) -> bool:
        return head.startswith(npy_header.MAGIC)

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Buffer]:
        only_leaf(self, document, [Hint("format", "npz", of="save")])
        value, kind = document.leaves[0].value, document.leaves[0].kind
        if (
            isinstance(value, Tensor)
            and not (kind or value.meta or value.origin or document.meta or document.origin)
            and value.name is None
        ):
            descr = npy_arrays.NATIVE.get(value.dtype)
            if descr is not None:
                return [npy_header.plain(descr, value.shape), value.data]
        return [buffer for piece in _pieces(document) for buffer in piece.buffers(allow)]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        only_leaf(self, document, [Hint("format", "npz", of="save")])
        for piece in _pieces(document):
            piece.header(allow)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        arrays = _arrays(data, budget, lazy, options)
        item = 0
        for at, found, value in arrays:
            if not item and found.end == len(data) and _is_plain(found, value):  # most files
                yield Document([Leaf(value)])
                return
            note: dict[str, Any] = {"path": [], **found.header.note}
            parts = [Part(note.get("name", _UNNAMED), value, note, at)]
            for name in note.get("parts", ()):
                following = next(arrays, None)
                if following is None:
                    raise CorruptError(f"the file ends before the part {name!r} of its last value", at=len(data))
                at, found, value = following
                parts.append(Part(name, value, found.header.note, at))
            if item or found.end < len(data):  # a single value is itself, not a list of one
                item += 1
            yield unpack(parts, budget, lazy)._replace(item=item)


def _pieces(document: Document) -> list[npy_arrays.NpyArray]:
    """The arrays of a document; a note without a path is one of a value outside any structure."""
    pieces = npy_arrays.pieces(document, _UNNAMED)
    for piece in pieces:
        if piece.note.get("path") == []:
            del piece.note["path"]
    return pieces


def _is_plain(found: npy_arrays.StoredArray, value: Tensor | Strings | Deferred) -> bool:
    """Whether there is nothing to be looked up or looked at."""
    return isinstance(value, Tensor) and not found.header.note and found.dtype != "bool" and found.true == found.dtype


def _arrays(
    data: memoryview, budget: Budget, lazy: bool, options: Options
) -> Iterator[tuple[int, npy_arrays.StoredArray, Tensor | Strings | Deferred]]:
    """Where each array of a file stands, what its header says, and the array."""
    dtype = npy_arrays.true_dtype(options, _UNNAMED)
    at = count = 0
    while at < len(data) or not count:
        if count >= budget.max_tensors:
            raise LimitError(f"over {budget.max_tensors} arrays", hints=[MORE_TENSORS])
        budget.tensors(1, at)
        found = npy_arrays.find(data, at, _UNNAMED, budget, dtype)
        yield at, found, npy_arrays.value(data, found, lazy)
        at = found.end
        count += 1


FORMAT = Npy()
