"""GGUF: the model files of llama.cpp, versions 2 and 3, for reading.

    4 bytes   GGUF
    u32       version; u64 number of tensors; u64 number of metadata entries
    entries   each a string (the key), u32 the type of the value, the value (`_gguf_values.py`)
    tensors   each a string (the name), u32 rank, u64 dims (the fastest first), u32 type, u64 offset
    padding   to a multiple of general.alignment (32 if the metadata does not tell)
    data      of each tensor, at its offset from here, itself a multiple of the alignment

A string is a u64 length and UTF-8. Numbers are little-endian, or all of them big-endian,
which the version tells: 3 reads as 0x03000000 then.

The file becomes a dict of tensors under their names, with shapes in C order (reversed from
the file's). F32, F16, BF16, F64, I8, I16, I32 and I64 are tensors of that dtype. The other
types store blocks of quantized weights, which are not unpacked here: such a tensor is uint8
of the shape [rows..., bytes of a row], exactly the bytes of the file, and its metadata has
`gguf.type` ("Q4_K") and `gguf.shape`, the shape in weights, as JSON. The shape and the bytes
are those of the array that gguf.GGUFReader gives, and what gguf.quants.dequantize takes.

The metadata of the whole has every entry as text: numbers in decimal, bools as true and
false, arrays as JSON (with NaN and infinities as strings). Arrays of over 256 items, such as
a tokenizer's words, stand there only as a remark; the option `arrays=True` adds each array
of numbers or strings to the dict, under its key. `GGUF.version` is added to the metadata,
and `GGUF.byteorder` if it is big; the blocks of quantized tensors are left in that order.

Bytes between tensors and after the last one are not read. A model that was split has its
tensors in several files, each of which is read by itself.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, Hint, LimitError, Limits, UnsupportedError
from tensorbytes.formats import Format, Option, Options, known_options
from tensorbytes.formats._gguf_values import UINT32, Cursor, numbers_of, read
from tensorbytes.formats._tensorproto import check_shape
from tensorbytes.tensor import Tensor, amended
from tensorbytes.tree import Document, Leaf

MAGIC = b"GGUF"
_ALIGNMENT = 32
_VERSION = "GGUF.version"
# The least that a metadata entry (key, type, value) and a tensor's description take.
_ENTRY_BYTES, _TENSOR_BYTES = 13, 24
# About what an entry of the metadata takes in memory.
_ENTRY_MEMORY = 320

# Types whose elements are numbers of ours.
PLAIN = {
    0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16",
}  # fmt: skip
# Types of blocks: number -> (name, weights in a block, bytes of a block).
BLOCKS = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
# Types that llama.cpp has dropped again.
_GONE = {
    4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}  # fmt: skip


class Described(NamedTuple):
    """A tensor as the file describes it: dtype and shape of its bytes, and its meta."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    meta: dict[str, str]
    offset: int
    at: int

    @property
    def nbytes(self) -> int:
        return dtypes.nbytes(dtypes.get(self.dtype), self.shape)


class Gguf(Format):
    name = "gguf"
    label = "GGUF model"
    words = "llama.cpp's models"
    suffixes = (".gguf",)
    read_by = "llama.cpp"
    holds = "dense tensors, quantized blocks as bytes"
    writes = False
    read_options = known_options(arrays=Option(bool, "True adds the arrays of the metadata as tensors", False))
    unmistakable = True

    def sniff(self, head: bytes, size: int) -> bool:
        return head.startswith(MAGIC)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        arrays = options.get("arrays", False)
        cursor, version = _start(data, budget)
        tensors = cursor.count(_TENSOR_BYTES, "tensors")
        if tensors > budget.max_tensors:
            raise LimitError(f"{tensors} tensors, over the limit of {budget.max_tensors} (byte 8)")
        budget.tensors(tensors, 8)
        meta = {_VERSION: str(version)} | ({"GGUF.byteorder": "big"} if cursor.big else {})
        leaves: dict[str, Leaf] = {}
        alignment = _entries(cursor, meta, leaves if arrays else None)
        found = [_describe(cursor) for _ in range(tensors)]
        start = -(-cursor.at // alignment) * alignment
        _check_places(found, alignment, start, len(data))
        for one in found:
            if one.name in leaves:
                raise CorruptError(f"{one.name!r} is stored twice", at=one.at)
            leaves[one.name] = _leaf(one, data, start, cursor.big)
        if not lazy:
            leaves = {name: leaf._replace(value=leaf.read()) for name, leaf in leaves.items()}
        yield Document(list(leaves.values()) or [Leaf(Tensor("bool", (0,), b""), kind="dict")], meta)


def _start(data: memoryview, budget: Budget) -> tuple[Cursor, int]:
    """The cursor after the version."""
    if bytes(data[:4]) != MAGIC:
        raise CorruptError(f"not a GGUF file: it starts with {bytes(data[:4])!r}", at=0)
    if len(data) < 24:
        raise CorruptError(f"a GGUF file of {len(data)} bytes ends inside its header", at=len(data))
    big = struct.unpack_from("<I", data, 4)[0] & 0xFFFF == 0
    cursor = Cursor(data, 4, big, budget)
    version = cursor.number("I", "the version")
    if version == 1:
        raise UnsupportedError(
            "GGUF version 1, of 2023, is not read",
            hints=[Hint(purpose="convert the file with a llama.cpp of that time")],
        )
    if version not in (2, 3):
        raise UnsupportedError(f"GGUF version {version} is unknown; known: 2, 3 (byte 4)")
    return cursor, version


def _entries(cursor: Cursor, meta: dict[str, str], arrays: dict[str, Leaf] | None) -> int:
    """Read the metadata; returns the alignment."""
    # Each entry fits into what is left: 24 bytes for each tensor are spoken for already.
    alignment = _ALIGNMENT
    for _ in range(cursor.count(_ENTRY_BYTES, "metadata entries")):
        at = cursor.at
        cursor.budget.objects(1, "the metadata", at, _ENTRY_MEMORY)
        key = cursor.text("a metadata key")
        if key in meta:
            raise CorruptError(f"the metadata key {key!r} appears twice", at=at)
        kind = cursor.number("I", f"the type of {key!r}")
        value = read(cursor, kind, key, arrays is not None)
        meta[key] = value.text
        if key == "general.alignment":
            alignment = value.number or 0
            if kind != UINT32 or alignment & (alignment - 1) or not alignment:
                raise CorruptError(f"an alignment of {value.text}: expected a power of two, as uint32", at=at)
        if arrays is not None and value.array is not None:
            arrays[key] = Leaf(value.array, (("key", key),), at=at)
    return alignment


def _describe(cursor: Cursor) -> Described:
    at = cursor.at
    name = cursor.text("a tensor's name")
    rank = cursor.number("I", f"the rank of {name!r}")
    if rank > cursor.budget.max_rank:
        raise LimitError(f"{name!r} has the rank {rank}, over the limit of {cursor.budget.max_rank}", at=at)
    dims = [cursor.number("Q", f"the shape of {name!r}") for _ in range(rank)]
    kind, offset = cursor.number("I", f"the type of {name!r}"), cursor.number("Q", f"the offset of {name!r}")
    shape = check_shape(dims[::-1], 1, cursor.budget, at)
    if kind in PLAIN:
        check_shape(shape, dtypes.get(PLAIN[kind]).itemsize, cursor.budget, at)
        return Described(name, PLAIN[kind], shape, {}, offset, at)
    if kind not in BLOCKS:
        what = f"{_GONE[kind]}, which llama.cpp no longer has" if kind in _GONE else f"{kind}, which is unknown here"
        raise UnsupportedError(f"{name!r} is of the GGML type {what}", at=at)
    label, weights, size = BLOCKS[kind]
    row = shape[-1] if shape else 1
    if row % weights:
        raise CorruptError(f"{name!r}: rows of {row} weights, but {label} has blocks of {weights}", at=at)
    meta = {"gguf.type": label, "gguf.shape": json.dumps(list(shape))}
    stored = check_shape((*shape[:-1], row // weights * size), 1, cursor.budget, at)
    return Described(name, "uint8", stored, meta, offset, at)


def _check_places(found: list[Described], alignment: int, start: int, end: int) -> None:
    """Aligned, inside the file, no two in the same place."""
    for one in found:
        if one.offset % alignment:
            raise CorruptError(f"{one.name!r}: the offset {one.offset} is not a multiple of {alignment}", at=one.at)
        if one.nbytes > end - start - one.offset and one.nbytes:
            raise CorruptError(
                f"{one.name!r} takes {one.nbytes} bytes from {start + one.offset} on, the file has {end}", at=one.at
            )
    last = None
    for one in sorted((one for one in found if math.prod(one.shape)), key=lambda one: one.offset):
        if last is not None and one.offset < last.offset + last.nbytes:
            raise CorruptError(f"{one.name!r} overlaps {last.name!r}", at=one.at)
        last = one


def _leaf(one: Described, data: memoryview, start: int, big: bool) -> Leaf:
    content = data[start + one.offset : start + one.offset + one.nbytes] if one.nbytes else data[:0]
    value = numbers_of(one.dtype, one.shape, content, big)
    if isinstance(value, Tensor):
        value = amended(value, None, one.meta)
    return Leaf(value, (("key", one.name),), at=one.at)


FORMAT = Gguf()
