r"""The npy format: one array, as np.save writes it and np.load reads it.

    6 bytes   \x93NUMPY
    2 bytes   major, minor version: 1.0, 2.0 or 3.0; the first that can say it, unless `version=` says which
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
- A structured array is one array, as NumPy writes it; its fields are read as a dict of arrays (structs.py).
- An array in Fortran order is written so, and read as it stands.
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

from tensorbytes.budget import Budget
from tensorbytes.errors import MORE_TENSORS, CorruptError, Hint, LimitError, Limits
from tensorbytes.formats import Format, Option, Options, known_options, only_leaf
from tensorbytes.formats._npy import arrays as npy_arrays
from tensorbytes.formats._npy import header as npy_header
from tensorbytes.formats._parts import unpack
from tensorbytes.tensor import Tensor
from tensorbytes.tree import Document, Leaf
from tensorbytes.typing import Buffer

_UNNAMED = "array"
_VERSIONS = (None, (1, 0), (2, 0), (3, 0), "1.0", "2.0", "3.0")


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
    structs = True
    write_options = known_options(
        version=Option(str | tuple | None, "of the format; by default the first that can say it", None, _VERSIONS)
    )
    read_options = known_options(dtype=npy_arrays.TRUE_DTYPE, bools=npy_arrays.BOOLS)
    unmistakable = True
    lists_quickly = True

    def sniff(self, head: bytes, size: int) -> bool:
        return head.startswith(npy_header.MAGIC)

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Buffer]:
        version = _version(options)
        value, kind = document.leaves[0].value, document.leaves[0].kind
        if (
            len(document.leaves) == 1
            and isinstance(value, Tensor)
            and version is None
            and not (kind or value.meta or value.origin or document.meta or document.origin)
            and value.name is None
            and not document.leaves[0].path
        ):
            descr = npy_arrays.NATIVE.get(value.dtype)
            if descr is not None:
                return [npy_header.plain(descr, value.shape), value.data]
        return [buffer for piece in self._pieces(document) for buffer in piece.buffers(allow, version)]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        version = _version(options)
        for piece in self._pieces(document):
            piece.header(allow, version)

    def _pieces(self, document: Document) -> list[npy_arrays.NpyArray]:
        """The arrays of a document; a note without a path is one of a value outside any structure."""
        document = npy_arrays.with_structs(document)
        only_leaf(self, document, [Hint("format", "npz", of="save")])
        pieces = npy_arrays.pieces(document, _UNNAMED)
        for piece in pieces:
            if piece.note.get("path") == []:
                del piece.note["path"]
        return pieces

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        reading = npy_arrays.Reading(options)
        arrays = _arrays(data, budget, reading)
        item = 0
        for at, found in arrays:
            if not item and found.end == len(data) and _is_plain(found):  # most files
                yield Document([Leaf(npy_arrays.value(data, found, lazy))])
                return
            found = _unstructured(found)
            note = found.header.note
            first = note.get("name", _UNNAMED)
            parts = npy_arrays.parts(data, found, first, at, lazy)
            last = found
            for name in note.get("parts", ()):
                following = next(arrays, None)
                if following is None:
                    raise CorruptError(f"the file ends before the part {name!r} of its last value", at=len(data))
                at, last = following
                parts += npy_arrays.parts(data, last, name, at, lazy)
            if item or last.end < len(data):  # a single value is itself, not a list of one
                item += 1
            document = npy_arrays.noted_structs(unpack(parts, budget, lazy), [(found, first)])
            yield document._replace(item=item)


def _unstructured(found: npy_arrays.StoredArray) -> npy_arrays.StoredArray:
    """The same with a note that says, if it does not say otherwise, that it is a value outside any structure."""
    header = found.header
    return found._replace(header=header._replace(note={"path": [], **header.note}))


def _version(options: Options) -> npy_header.Version | None:
    given = options.get("version")
    if given is None:
        return None
    major, minor = map(int, given.split(".") if isinstance(given, str) else given)
    return major, minor


def _is_plain(found: npy_arrays.StoredArray) -> bool:
    """Whether there is nothing to be looked up."""
    return not found.header.note and found.dtype not in ("string", "struct")


def _arrays(
    data: memoryview, budget: Budget, reading: npy_arrays.Reading
) -> Iterator[tuple[int, npy_arrays.StoredArray]]:
    """Where each array of a file stands, and what its header says."""
    at = count = 0
    while at < len(data) or not count:
        if count >= budget.max_tensors:
            raise LimitError(f"over {budget.max_tensors} arrays", hints=[MORE_TENSORS])
        budget.tensors(1, at)
        found = npy_arrays.find(data, at, _UNNAMED, budget, reading)
        yield at, found
        at = found.end
        count += 1


FORMAT = Npy()
"""NumPy's arrays: headers, elements, text of fixed width."""
