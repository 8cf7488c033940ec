"""The header of an npy array: a Python dict literal, read by a small parser of its own.

NumPy evaluates the literal; here it is only ever text. The three keys may come in any
order, each once. Numbers may have the L of Python 2. A comment may follow the dict: ours
starts with "# tensorbytes " and holds a note in JSON (_parts.py); others are left alone,
as NumPy does with all of them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from tensorbytes.errors import USE_TB, CorruptError, Hint, LimitError, LossError, UnsupportedError
from tensorbytes.formats import _json

MAGIC = b"\x93NUMPY"
ALIGNMENT = 64
# What np.load reads without being told to trust a file.
_NUMPY_READS = 10_000
_MOST_BYTES = 1 << 16
_MOST_DIGITS = 20
# np.save leaves room for the first dimension to grow into.
_GROWTH_DIGITS = 21
_COMMENT = " # tensorbytes "
_SHORT, _LONG = struct.Struct("<H"), struct.Struct("<I")
_VERSIONS = {(1, 0): (_SHORT, "latin-1"), (2, 0): (_LONG, "latin-1"), (3, 0): (_LONG, "utf-8")}
_KEPT_BYTES = 1 << 9
# What may be dropped of a note.
_METADATA = {"meta", "origin", "document", "document_origin"}


class NpyHeader(NamedTuple):
    """What an array's header says; `size` counts its bytes, the magic included."""

    descr: str
    fortran: bool
    shape: tuple[int, ...]
    note: Mapping[str, Any]
    size: int


# ---- writing ----------------------------------------------------------------


@lru_cache(4096)
def plain(descr: str, shape: tuple[int, ...]) -> bytes:
    """The header without a note: the bytes of np.save."""
    room = " " * (_GROWTH_DIGITS - len(str(shape[0]))) if shape else ""
    return _wrapped(_literal(descr, shape) + room)


def noted(descr: str, shape: tuple[int, ...], note: Mapping[str, Any], allow: frozenset[str]) -> bytes:
    """The header with a note, if it stays within what NumPy reads."""
    if not note:
        return plain(descr, shape)
    made = _wrapped(_literal(descr, shape) + _COMMENT + _json.dump(note))
    if _fits(made):
        return made
    if not note.keys().isdisjoint(_METADATA):
        if "meta" not in allow:
            raise LossError(
                f"metadata and names of {len(made)} bytes: NumPy reads headers of up to {_NUMPY_READS}",
                feature="meta",
                hints=[Hint("allow", {"meta"}, "to drop the metadata"), USE_TB],
            )
        # Empty rather than gone: what the dtype itself says stays unsaid.
        less = {key: {} if key == "origin" else item for key, item in note.items() if key not in _METADATA - {"origin"}}
        return noted(descr, shape, less, frozenset())
    raise LossError(
        f"names that take {len(made)} bytes: NumPy reads headers of up to {_NUMPY_READS}",
        feature="name",
        hints=[Hint(purpose="use shorter ones"), USE_TB],
    )


def _fits(made: bytes) -> bool:
    return len(made) - 10 <= _NUMPY_READS


def _literal(descr: str, shape: tuple[int, ...]) -> str:
    return f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"


def _wrapped(text: str) -> bytes:
    """Padded with spaces, at least one, so that the array starts on a multiple of 64."""
    padding = ALIGNMENT - (10 + len(text) + 1) % ALIGNMENT
    size = len(text) + padding + 1
    if size > 0xFFFF:  # refused by the caller; never written
        return bytes(10 + size)
    return MAGIC + b"\1\0" + _SHORT.pack(size) + text.encode("ascii") + b" " * padding + b"\n"


# ---- reading ----------------------------------------------------------------


def needed(head: memoryview | bytes, at: int) -> int:
    """How many bytes the header at `at` takes; looks at the first twelve alone."""
    if bytes(head[at : at + len(MAGIC)]) != MAGIC:
        raise CorruptError("no npy array: its first bytes are not \\x93NUMPY", at=at)
    if len(head) - at < 8:
        raise CorruptError("the header of an npy array is cut short", at=len(head))
    version = head[at + 6], head[at + 7]
    if version not in _VERSIONS:
        raise UnsupportedError(f"npy version {version[0]}.{version[1]} is unknown; known: 1.0, 2.0, 3.0", at=at)
    length, _ = _VERSIONS[version]
    start = at + 8 + length.size
    if start > len(head):
        raise CorruptError("the header of an npy array is cut short", at=len(head))
    (size,) = length.unpack_from(head, at + 8)
    if size > _MOST_BYTES:
        raise LimitError(f"an npy header of {size} bytes, over the limit of {_MOST_BYTES}", at=at)
    return int(start - at + size)


def read(data: memoryview | bytes, at: int) -> NpyHeader:
    """The header of the array that starts at `at`."""
    size = needed(data, at)
    if at + size > len(data):
        raise CorruptError(f"an npy header of {size} bytes runs past the end", at=at)
    length, encoding = _VERSIONS[data[at + 6], data[at + 7]]
    start = at + 8 + length.size
    raw = bytes(data[start : at + size])
    try:
        parse = _parse_and_keep if size <= _KEPT_BYTES else _parse
        descr, fortran, shape, comment = parse(raw, encoding)
    except _FaultError as error:
        raise CorruptError(f"the npy header: {error.what}", at=start + error.at) from None
    if descr is None:
        raise UnsupportedError(
            "a structured npy array",
            at=at,
            hints=[
                Hint(
                    purpose="load it with NumPy, and save its fields as a dict, "
                    "{name: x[name] for name in x.dtype.names}"
                )
            ],
        )
    note: dict[str, Any] = {}
    if comment.startswith(_COMMENT[1:]):
        # Its offset: not worth counting in which encoding.
        note = _json.parse(comment[len(_COMMENT) - 1 :].encode(), start, "the note in an npy header")
        if not isinstance(note, dict):
            raise CorruptError("the note in an npy header is not a JSON object", at=start)
    return NpyHeader(descr, fortran, shape, note, size)


def sketch(data: memoryview | bytes) -> tuple[str, tuple[int, ...]]:
    """The descr and the shape of an array that is not read; nothing, of a structured one."""
    try:
        found = read(data, 0)
    except UnsupportedError:
        return "", ()
    return found.descr, found.shape


class _FaultError(ValueError):
    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what, self.at = what, at


_TOKEN = re.compile(
    r"""[ \t\r\n\f]*(?:(?P<text>'[^'\\\n]*'|"[^"\\\n]*")|(?P<number>0|[1-9][0-9]*)L?"""
    r"|(?P<word>True|False)|(?P<mark>[{}(),:\[]))"
)
_REST = re.compile(r"[ \t\r\n\f]*(#[^\n]*)?[ \t\r\n\f]*")
_Parsed = tuple[str | None, bool, tuple[int, ...], str]


def _parse(raw: bytes, encoding: str) -> _Parsed:
    """(descr, fortran_order, shape, comment); descr is None for a structured dtype."""
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise _FaultError(f"not {encoding}", error.start) from None
    tokens = _Tokens(text)
    found: dict[str, Any] = {}
    tokens.mark("{")
    while tokens.peek("}") is None:
        key = tokens.text()
        tokens.mark(":")
        if key in found or key not in ("descr", "fortran_order", "shape"):
            raise tokens.fault(f"the key {key[:40]!r} {'twice' if key in found else 'is unknown'}")
        if key == "descr" and (tokens.peek("[") or tokens.peek("(") or tokens.peek("{")):
            return None, False, (), ""
        found[key] = {"descr": tokens.text, "fortran_order": tokens.truth, "shape": tokens.shape}[key]()
        if tokens.peek("}") is None:
            tokens.mark(",")
    tokens.mark("}")
    if len(found) != 3:
        raise tokens.fault(f"has the keys {', '.join(found) or 'none'}; expected descr, fortran_order, shape")
    rest = _REST.fullmatch(text, tokens.at)
    if rest is None:
        raise tokens.fault("something follows the dict")
    return found["descr"], found["fortran_order"], found["shape"], (rest[1] or "").rstrip()


_parse_and_keep = lru_cache(1024)(_parse)


class _Tokens:
    """Reads one token after the other, each of the kind that must come."""

    def __init__(self, text: str) -> None:
        self.source, self.at = text, 0

    def fault(self, what: str) -> _FaultError:
        return _FaultError(what, min(self.at, len(self.source)))

    def _next(self, kind: str) -> str | None:
        found = _TOKEN.match(self.source, self.at)
        return found[kind] if found else None

    def _take(self, kind: str, expected: str) -> str:
        found = _TOKEN.match(self.source, self.at)
        if found is None or found[kind] is None:
            raise self.fault(f"expected {expected}, got {self.source[self.at : self.at + 20]!r}")
        self.at = found.end()
        taken: str = found[kind]
        return taken

    def peek(self, mark: str) -> str | None:
        return mark if self._next("mark") == mark else None

    def mark(self, mark: str) -> None:
        if self.peek(mark) is None:
            raise self.fault(f"expected {mark!r}, got {self.source[self.at : self.at + 20]!r}")
        self._take("mark", mark)

    def text(self) -> str:
        return self._take("text", "a string")[1:-1]

    def truth(self) -> bool:
        return self._take("word", "True or False") == "True"

    def shape(self) -> tuple[int, ...]:
        """Whole numbers in parentheses; one alone has a comma after it."""
        self.mark("(")
        sizes: list[int] = []
        comma = True
        while self.peek(")") is None:
            if not comma:
                raise self.fault("expected ',' between dimensions")
            digits = self._take("number", "a dimension, a whole number of at least 0")
            if len(digits) > _MOST_DIGITS:
                raise self.fault(f"a dimension of {len(digits)} digits")
            sizes.append(int(digits))
            comma = self.peek(",") is not None
            if comma:
                self.mark(",")
        if len(sizes) == 1 and not comma:
            raise self.fault("the shape is a number, not a tuple")
        self.mark(")")
        return tuple(sizes)
