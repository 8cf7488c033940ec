"""Pipelines: a filter or two and a codec, written as text.

    [delta+] [split | shuffle | pack] [+codec[:level]]

    "zstd"   "zstd:9"   "shuffle+zstd"   "split+huffman"   "delta+shuffle+huffman"   "pack"

delta     each integer as its difference from the one before: for sorted and slowly moving ones
shuffle   the bytes of numbers sorted by significance, each plane compressed by itself
split     the same for floats, with the sign moved out of the way of the exponent
pack      as many bits for each integer as the largest one needs

All of them are lossless. A filter that makes no sense for a tensor's dtype is left out, so one
pipeline can be asked for all tensors of a structure. spec/frame.md gives the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import _wire, codecs
from tensorbytes.codecs import Codec
from tensorbytes.dtypes import DType
from tensorbytes.errors import UsageError, unknown
from tensorbytes.io.streams.engines import DamagedError
from tensorbytes.typing import Buffer

FILTERS = ("delta", "shuffle", "split", "pack")
_LAYOUTS = ("shuffle", "split", "pack")
_PACK_HEAD = struct.Struct("<BQ")  # bits for each element, what to add to each
# Scratch memory that nobody uses. Threads come and go, so it is not theirs.
_SPARE: list[np.ndarray[Any, Any]] = []
_MOST_SPARE = 8
_MOST_KEPT = 1 << 20
_MOST_DIGITS = 3  # of a level
# Of pipelines that were parsed and fitted, so many are remembered: a file has few, and many tensors.
_MOST_KNOWN = 256


class Elements(NamedTuple):
    """What the bytes of a tensor are made of, as far as filters care."""

    width: int  # in bytes; of a complex number, that of one part
    family: str  # float, signed, unsigned, or bytes: no numbers at all


BYTES = Elements(1, "bytes")


def elements_of(row: DType) -> Elements:
    """Types of up to 8 bits that are not integers count as unsigned: all that matters is which bytes occur."""
    if "complex" in row.name:
        return Elements(row.itemsize // 2, "float")
    if row.itemsize == 1:
        return Elements(1, "signed" if row.name in ("int8", "qint8") else "unsigned")
    if "float" in row.name:
        return Elements(row.itemsize, "float")
    return Elements(row.itemsize, "unsigned" if "uint" in row.name else "signed")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How the chunks of one tensor are compressed."""

    delta: bool = False
    layout: str = ""  # shuffle, split, pack or nothing
    codec: str = ""  # nothing: a filter alone
    level: int | None = None

    @staticmethod
    @lru_cache(_MOST_KNOWN)
    def parse(text: str) -> Pipeline:
        steps = text.split("+")
        delta = steps[0] == "delta"
        steps = steps[delta:]
        layout = steps.pop(0) if steps and steps[0] in _LAYOUTS else ""
        codec, level = _codec_and_level(steps.pop(0)) if steps else ("", None)
        if steps or not (layout or codec):
            raise UsageError(
                f"compression {text!r}: expected [delta+][split|shuffle|pack][+codec], "
                "such as 'zstd' or 'split+huffman'"
            )
        return Pipeline(delta, layout, codec, level)

    @property
    def text(self) -> str:
        """The name of the pipeline; the level is not part of it, since a reader needs none."""
        return "+".join(filter(None, ("delta" if self.delta else "", self.layout, self.codec)))

    @lru_cache(_MOST_KNOWN)  # noqa: B019 - of a few pipelines, which are small
    def fitted(self, elements: Elements) -> Pipeline | None:
        """What of it makes sense for such elements; None if nothing does."""
        whole = elements.family in ("signed", "unsigned")
        layout = self.layout
        if layout == "split" and (elements.family != "float" or elements.width == 1):
            layout = "shuffle"
        if (layout == "pack" and not whole) or (layout == "shuffle" and elements.width == 1):
            layout = ""
        made = replace(self, delta=self.delta and whole, layout=layout)
        return made if made.layout or made.codec else None

    @lru_cache(_MOST_KNOWN)  # noqa: B019
    def in_kernel(self, elements: Elements) -> bool:
        """Whether the kernel makes and undoes many chunks of such elements in one call: planes, and codes of them."""
        return self.codec == "huffman" and not self.delta and self.layout != "pack" and self.fitted(elements) == self

    def planes(self, elements: Elements) -> tuple[int, bool]:
        """How many planes there are of such elements, and whether those are rotated before."""
        return (elements.width if self.layout else 1), self.layout == "split"

    def encode(self, chunk: memoryview, elements: Elements) -> Buffer:
        """Fewer bytes than the chunk has; or the chunk itself, where there is nothing to save."""
        data, first = chunk, chunk[: elements.width if self.delta else 0]
        if self.delta:
            steps = np.empty(len(data), np.uint8)
            _wire.difference(data, steps, elements.width, int.from_bytes(first, "little"))
            data = steps.data
        if self.layout == "pack":
            family = "u" if self.delta or elements.family == "unsigned" else "i"
            pieces = self._packed(np.frombuffer(data, f"<{family}{elements.width}"))
        elif self.layout:
            pieces = self._planes(data, elements.width)
        else:
            pieces = [self._coded(data)]
        size = len(first) + sum(memoryview(piece).nbytes for piece in pieces)
        if size >= len(chunk):
            return chunk
        return pieces[0] if len(pieces) == 1 and not first else b"".join([first, *pieces])

    def _coded(self, data: memoryview) -> Buffer:
        if not self.codec:
            return data
        coded = codecs.get(self.codec).compress(data, self.level)
        return coded if memoryview(coded).nbytes < len(data) else data

    def _planes(self, data: memoryview, width: int) -> list[Buffer]:
        if self.codec == "huffman":  # all at once in the kernel
            out = np.empty(len(data) + _wire.PLANES_SLACK, np.uint8)
            with scratch(len(data)) as room:
                made = _wire.planes_encode(data, out, room, width, self.layout == "split")
            return [out[:made].data]
        planes = np.empty(len(data), np.uint8)
        _wire.planes_split(data, planes, width, self.layout == "split")
        size = len(data) // width
        coded = [self._coded(planes[size * k : size * (k + 1)].data) for k in range(width)]
        return [struct.pack(f"<{width}I", *(memoryview(plane).nbytes for plane in coded)), *coded]

    def _packed(self, values: np.ndarray[Any, Any]) -> list[Buffer]:
        low, high = int(values.min()), int(values.max())
        bits = (high - low).bit_length()
        if self.codec:  # codecs see bytes: what repeats must repeat in whole ones, or in even parts of one
            bits = -(-bits // 8) * 8 if bits > 4 else (0, 1, 2, 4, 4)[bits]
        if bits > _wire.MOST_BITS:  # as they are; a codec may still find something
            head = _PACK_HEAD.pack(8 * values.itemsize, 0) if self.codec else b""
            return [head, self._coded(values.data.cast("B"))]
        packed = np.empty(-(-len(values) * bits // 8), np.uint8)
        _wire.bits_pack(values, packed, values.itemsize, low % (1 << 64), bits)
        head = _PACK_HEAD.pack(bits, low % (1 << 64))
        return [head, self._coded(packed.data)] if bits else [head]

    def decode(self, data: memoryview, out: memoryview, elements: Elements) -> None:
        """Fill a chunk from what `encode` gave for it; DamagedError where that can't be."""
        if len(data) == len(out):
            out[:] = data
            return
        target = np.empty(len(out), np.uint8).data if self.delta else out
        first, data = data[: elements.width if self.delta else 0], data[elements.width if self.delta else 0 :]
        if self.layout == "pack":
            self._unpack(data, target, elements.width)
        elif self.layout:
            self._join(data, target, elements.width)
        else:
            self._decoded(data, target)
        if self.delta:
            if len(first) < elements.width:
                raise DamagedError("it ends inside its first element")
            _wire.accumulate(target, out, elements.width, int.from_bytes(first, "little"))

    def _decoded(self, data: memoryview, out: memoryview) -> None:
        """The rule of every plane: as many bytes as it has are the plane, one is its only value, others are code."""
        if len(data) == len(out):
            out[:] = data
        elif len(data) == 1:
            np.frombuffer(out, np.uint8)[:] = data[0]
        elif self.codec and len(data) < len(out):
            codecs.get(self.codec).decompress(data, out)
        else:
            raise DamagedError(f"{len(data)} bytes where {len(out)} or fewer were due")

    def _join(self, data: memoryview, out: memoryview, width: int) -> None:
        if self.codec == "huffman":
            with scratch(len(out)) as room:
                sound = _wire.planes_decode(data, out, room, width, self.layout == "split")
            if not sound:
                raise DamagedError("planes whose sizes or Huffman codes are not sound")
            return
        if len(data) < 4 * width:
            raise DamagedError("it ends inside the sizes of its planes")
        sizes = struct.unpack_from(f"<{width}I", data)
        if sum(sizes) != len(data) - 4 * width:
            raise DamagedError(f"planes of {sum(sizes)} bytes in {len(data) - 4 * width}")
        planes, each, at = [], len(out) // width, 4 * width
        for size in sizes:
            plane = data[at : at + size]
            if size != each:  # planes that no codec shrank are joined from where they stand
                plane = np.empty(each, np.uint8).data
                self._decoded(data[at : at + size], plane)
            planes.append(plane)
            at += size
        _wire.planes_join(planes, out, self.layout == "split")

    def _unpack(self, data: memoryview, out: memoryview, width: int) -> None:
        if len(data) < _PACK_HEAD.size:
            raise DamagedError("it ends inside the head of its packed bits")
        bits, low = _PACK_HEAD.unpack_from(data)
        count = len(out) // width
        if bits == 64 == 8 * width and not low:
            self._decoded(data[_PACK_HEAD.size :], out)
            return
        if bits > min(_wire.MOST_BITS, 8 * width):
            raise DamagedError(f"elements of {width} bytes in {bits} bits")
        packed = np.empty(-(-count * bits // 8), np.uint8)
        rest = data[_PACK_HEAD.size :]
        if bits:
            self._decoded(rest, packed.data)
        elif len(rest):
            raise DamagedError(f"{len(rest)} bytes too many")
        if count * bits % 8 and packed[-1] >> count * bits % 8:
            raise DamagedError("bits after the last element")
        _wire.bits_unpack(packed, out, width, low, bits)


@contextmanager
def scratch(size: int) -> Iterator[np.ndarray[Any, Any]]:
    """Memory for intermediate bytes, kept for the next: fresh pages cost more than most of the work."""
    try:
        memory = _SPARE.pop()
    except IndexError:
        memory = np.empty(size, np.uint8)
    if len(memory) < size:
        memory = np.empty(size, np.uint8)
    try:
        yield memory
    finally:
        if len(memory) <= _MOST_KEPT and len(_SPARE) < _MOST_SPARE:
            _SPARE.append(memory)


def _codec_and_level(text: str) -> tuple[str, int | None]:
    name, colon, number = text.partition(":")
    if name in FILTERS:
        raise UsageError(f"the filter {name!r} is out of place: delta comes first, then one of {', '.join(_LAYOUTS)}")
    if not name:
        raise UsageError("compression: a step without a name; None leaves tensors raw")
    if name not in codecs.BUILTIN:
        raise unknown("codec or filter", name, [*codecs.BUILTIN, *FILTERS, "auto"])
    if not colon:
        return name, None
    codec: Codec = codecs.get(name)
    if not number.isdecimal() or not number.isascii() or len(number) > _MOST_DIGITS:
        raise UsageError(f"compression {text!r}: the level must be a number")
    codecs.check_level(codec, int(number))
    return name, int(number)
