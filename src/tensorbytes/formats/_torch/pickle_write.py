"""Pickles of protocol 2, with the opcodes that torch.load(weights_only=True) takes and no others."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tensorbytes.formats._extension import utf8

MAX_INTEGER_BYTES = 255  # torch reads no longer ones


class Write:
    """A value that writes itself."""

    __slots__ = ("write",)

    def __init__(self, write: Callable[[Pickler], None]) -> None:
        self.write = write


class Pickler:
    """Collects the pieces of one pickle. Names, words and shared values that come again are recalled."""

    def __init__(self) -> None:
        self._pieces = [b"\x80\x02"]
        self._memo: dict[str, bytes] = {}

    def finish(self) -> bytes:
        return b"".join([*self._pieces, b"."])

    def put(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def value(self, obj: Any) -> None:
        """Any plain value, or container of them. Depth is bounded by whoever built it."""
        if isinstance(obj, Write):
            obj.write(self)
        else:
            _WRITERS[type(obj)](self, obj)

    def name(self, module: str, name: str) -> None:
        self._once(f"{module} {name}", f"c{module}\n{name}\n".encode())

    def word(self, text: str) -> None:
        """Text that comes again and again."""
        self._once(f"'{text}", _text(text))

    def _once(self, key: str, piece: bytes) -> None:
        recall = self._memo.get(key)
        if recall is None:
            number = len(self._memo)
            store, self._memo[key] = _memo_pieces(number)
            self._pieces.append(piece + store)
        else:
            self._pieces.append(recall)

    def shared(self, key: str, obj: Any) -> None:
        """A value that comes in several places, and is one object in all of them."""
        if key in self._memo:
            self.put(self._memo[key])
            return
        self.value(obj)
        store, self._memo[key] = _memo_pieces(len(self._memo))
        self.put(store)

    def integers(self, numbers: tuple[int, ...]) -> None:
        """A tuple of integers."""
        if not numbers:
            self.put(b")")
            return
        close = _SMALL_TUPLES.get(len(numbers))
        inner = b"".join(map(_integer, numbers))
        self.put(inner + close if close else b"(" + inner + b"t")

    def call(self, module: str, name: str, *args: Any) -> None:
        self.name(module, name)
        self._tuple(args)
        self.put(b"R")

    def _tuple(self, items: tuple[Any, ...]) -> None:
        close = _SMALL_TUPLES.get(len(items))
        if not items:
            self.put(b")")
            return
        if close is None:
            self.put(b"(")
        for item in items:
            self.value(item)
        self.put(close or b"t")

    def _list(self, items: list[Any]) -> None:
        self.put(b"](" if items else b"]")
        for item in items:
            self.value(item)
        if items:
            self.put(b"e")

    def _dict(self, items: dict[Any, Any]) -> None:
        self.put(b"}")
        self.items(items)

    def items(self, items: dict[Any, Any]) -> None:
        """The items of the dict that was just made."""
        if items:
            self.put(b"(")
            for key, item in items.items():
                self.value(key)
                self.value(item)
            self.put(b"u")

    def _bytes(self, data: bytes) -> None:
        self.call("_codecs", "encode", data.decode("latin-1"), "latin1")

    def _complex(self, number: complex) -> None:
        self.call("__builtin__", "complex", number.real, number.imag)


def _memo_pieces(number: int) -> tuple[bytes, bytes]:
    if number < 256:
        return bytes((ord("q"), number)), bytes((ord("h"), number))
    return struct.pack("<cI", b"r", number), struct.pack("<cI", b"j", number)


def _text(text: str) -> bytes:
    raw = utf8(text)
    return struct.pack("<cI", b"X", len(raw)) + raw


def _integer(number: int) -> bytes:
    if 0 <= number < 256:
        return bytes((ord("K"), number))
    if 0 <= number < 1 << 16:
        return struct.pack("<cH", b"M", number)
    if -(1 << 31) <= number < 1 << 31:
        return struct.pack("<ci", b"J", number)
    size = integer_bytes(number)
    return bytes((0x8A, size)) + number.to_bytes(size, "little", signed=True)


def integer_bytes(number: int) -> int:
    return number.bit_length() // 8 + 1


_SMALL_TUPLES = {1: b"\x85", 2: b"\x86", 3: b"\x87"}
_WRITERS: dict[type, Callable[[Pickler, Any], None]] = {
    type(None): lambda pickler, _: pickler.put(b"N"),
    bool: lambda pickler, flag: pickler.put(b"\x88" if flag else b"\x89"),
    int: lambda pickler, number: pickler.put(_integer(number)),
    float: lambda pickler, number: pickler.put(struct.pack(">cd", b"G", number)),
    complex: Pickler._complex,
    str: lambda pickler, text: pickler.put(_text(text)),
    bytes: Pickler._bytes,
    tuple: Pickler._tuple,
    list: Pickler._list,
    dict: Pickler._dict,
}
