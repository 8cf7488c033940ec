"""What a parser is to the fuzzers: a function of bytes, and what must hold for whatever bytes it gets.

A target returns, or raises one of our own exceptions; an offset in one lies within the bytes.
Everything else is a finding: another exception, MemoryError, RecursionError and OverflowError
among them, or an `Unsound`, which is what the targets raise when a value that was read differs
from the same value read, or written and read, in another way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

from tensorbytes.errors import CorruptError, Limits, LossError, TensorbytesError, UnsupportedError
from tensorbytes.formats import Format
from tensorbytes.frameworks import from_value
from tensorbytes.tensor import Tensor, Value, identical
from tensorbytes.tree import Document, Leaf, unflatten

# Small, so that what a few bytes may make of themselves is made quickly.
LIMITS = Limits(max_bytes=1 << 20, max_tensors=1 << 10, max_rank=8, max_depth=8)
_LONGEST_MESSAGE = 4096
_INDEXES: tuple[Any, ...] = (
    0, -1, slice(1, None), slice(None, None, -2), slice(0, 0), slice(5, 1, -1), ..., (), (slice(0, 1), ...), (..., 0),
    (slice(None), 0), (0, slice(None, None, -1)), (-1, 0), [0], (slice(None), [0]), None,
)  # fmt: skip
_NO_OPTIONS: Mapping[str, Any] = MappingProxyType({})
_UNORDERED = ("safetensors",)  # which sorts what it writes


class Unsound(AssertionError):
    """Something was read that can't be what the bytes hold."""


@dataclass(frozen=True)
class Target:
    """One parser.

    `seal` makes the checksums and lengths of mutated bytes right again, so that mutations reach
    the code behind them. `mutate` changes what is well-formed into something else that is.
    `tokens` are byte strings that the format gives a meaning.
    """

    name: str
    parser: str  # which it is a way into; several may be
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    seal: Callable[[bytes], bytes] | None = None
    mutate: Callable[[bytes, Random], bytes] | None = None
    tokens: tuple[bytes, ...] = ()
    max_len: int = 512
    offsets: bool = True  # whether offsets in errors are offsets in the input
    kernel: str = ""  # TENSORBYTES_KERNEL that it wants


def runner(target: Target) -> Callable[[bytes], bool]:
    """A function that parses its argument: whether it was accepted. It raises findings only."""
    run, offsets = target.run, target.offsets

    def once(data: bytes) -> bool:
        try:
            run(data)
        except TensorbytesError as error:
            if offsets and type(error) is CorruptError and not 0 <= error.at <= len(data):
                raise Unsound(f"an offset of {error.at} in {len(data)} bytes") from error
            if not len(data) & 7 and len(str(error)) > _LONGEST_MESSAGE:
                raise Unsound(f"a message of {len(str(error))} characters") from error
            return False
        return True

    return once


def chance(data: bytes) -> int:
    """A number that decides which of the costlier properties are looked at: the same for the same bytes."""
    return data[-1] + len(data) if data else 0


# ---- what holds for documents of every format --------------------------------------


def as_numpy(value: Value) -> Any:
    return from_value(value, "numpy", None)


def documents(
    chosen: Format, *variants: Mapping[str, Any], rewrite: int = 16, lazily: bool = True
) -> Callable[[bytes], None]:
    """Reads documents, whole and lazily, which must give the same; writes some of them and reads them again.

    `variants` are options to read with, of which the bytes choose; one in `rewrite` is written.
    """
    decode, every = chosen.decode, variants or (_NO_OPTIONS,)
    salvages = type(chosen).salvage is not Format.salvage

    def run(data: bytes) -> None:
        view, number = memoryview(data), chance(data)
        options = every[number % len(every)]
        try:
            found = list(decode(view, LIMITS, False, options))
        except TensorbytesError as error:
            if lazily and not number & 7:
                _read_lazily(view, options)
                if type(error) is CorruptError:
                    raise Unsound(f"read lazily, and all of it checked, it is sound; else {error}") from None
            if salvages and number & 7 == 1:
                with contextlib.suppress(TensorbytesError):  # offsets in a file that was cut may lie after its end
                    _salvage(view)
            raise
        if lazily and not number & 3:
            other = list(decode(view, LIMITS, True, options))
            if not same(found, other):
                raise Unsound("read lazily, it is something else")
            for document in other:
                for leaf in document.leaves:
                    sliced(leaf)
        if number & 3 == 1:
            for document in found:
                unflatten(document.leaves, as_numpy)
        if rewrite and number % rewrite == 2:
            rewritten(chosen, found, options)

    def _read_lazily(view: memoryview, options: Mapping[str, Any]) -> None:
        """Listing what can't be loaded must fail as well as loading does."""
        for document in decode(view, LIMITS, True, options):
            for leaf in document.leaves:
                if leaf.check is not None:
                    leaf.check()
                leaf.read()

    def _salvage(view: memoryview) -> None:
        kept = chosen.salvage(view, LIMITS)
        if kept is not None:
            for leaf in kept.document.leaves:
                if leaf.check is not None:
                    leaf.check()
                leaf.read()

    return run


def sliced(leaf: Leaf) -> None:
    """A part that is read alone is the same part of the whole."""
    whole = leaf.read()
    if not leaf.value.in_parts or not whole.header.shape or not isinstance(whole, Tensor):
        return
    bits = whole.bits()
    for index in _INDEXES:
        try:
            wanted = bits[index]
        except (IndexError, MemoryError):  # no such axis, or nothing along it: NumPy may ask for memory first
            continue
        part = leaf.part(index)
        if not isinstance(part, Tensor) or part.shape != wanted.shape or bytes(part.data) != wanted.tobytes():
            raise Unsound(f"the part {index} of {whole.dtype}{list(whole.shape)} is something else")


def same(a: list[Document], b: list[Document]) -> bool:
    """Whether two lists of documents hold the same values at the same places."""
    if len(a) != len(b):
        return False
    for one, two in zip(a, b, strict=True):
        if len(one.leaves) != len(two.leaves) or one.meta != two.meta or one.item != two.item:
            return False
        for left, right in zip(one.leaves, two.leaves, strict=True):
            if left.path != right.path or left.kind != right.kind or not identical(left.read(), right.read()):
                return False
            if left.value.meta != right.value.meta or left.value.name != right.value.name:
                return False
    return True


def rewritten(chosen: Format, found: list[Document], options: Mapping[str, Any] = _NO_OPTIONS) -> None:
    """What was read can be written, is then read as the same, and written as the same bytes."""
    if not chosen.writes or chosen.several_files or len(found) != 1:
        return
    try:
        data = chosen.dumps(found[0], frozenset(), {})
    except (LossError, UnsupportedError):  # read, and not written: files of others hold more
        return
    again = list(chosen.decode(memoryview(data), Limits(), False, options))
    before, after = ([_in_order(document, chosen)] for document in (found[0], again[0]))
    if not same(before, after) or len(again) != 1:
        raise Unsound("written and read again, it is something else")
    if chosen.dumps(again[0], frozenset(), {}) != data:
        raise Unsound("written twice, it gives two different files")


def _in_order(document: Document, chosen: Format) -> Document:
    unordered = chosen.name in _UNORDERED
    leaves = sorted(document.leaves, key=lambda leaf: leaf.path) if unordered else document.leaves
    return document._replace(item=0, leaves=leaves)
