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
from typing import Any, NamedTuple, TypeAlias

from tensorbytes import structs
from tensorbytes.errors import USE_TB, CorruptError, Hint, LimitError, LossError, UnsupportedError
from tensorbytes.formats import _json
from tensorbytes.structs import Fields

Version: TypeAlias = tuple[int, int]
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
_AS_DICT = Hint(purpose="load it with NumPy, and save its fields as a dict, {name: x[name] for name in x.dtype.names}")
# What may be dropped of a note.
_METADATA = {"meta", "origin", "document", "document_origin"}


class NpyHeader(NamedTuple):
    """What an array's header says; `size` counts its bytes, the magic included."""

    descr: str | Fields
    fortran: bool
    shape: tuple[int, ...]
    note: Mapping[str, Any]
    size: int


# ---- writing ----------------------------------------------------------------


def plain(descr: str, shape: tuple[int, ...]) -> bytes:
    """The header of an array in C order without a note: the bytes of np.save."""
    return _plain(descr, shape, False, None)


@lru_cache(4096)
def _plain(descr: str | Fields, shape: tuple[int, ...], fortran: bool, version: Version | None) -> bytes:
    room = " " * (_GROWTH_DIGITS - len(str(shape[-1 if fortran else 0]))) if shape else ""
    return _wrapped(_literal(descr, shape, fortran) + room, version)


def noted(
    descr: str | Fields,
    shape: tuple[int, ...],
    note: Mapping[str, Any],
    allow: frozenset[str],
    fortran: bool = False,
    version: Version | None = None,
) -> bytes:
    """The header with a note, if it stays within what NumPy reads."""
    if not note:
        return _plain(descr, shape, fortran, version)
    text = _literal(descr, shape, fortran) + _COMMENT + _json.dump(note)
    if len(text) <= _NUMPY_READS:
        made = _wrapped(text, version)
        if len(made) - 10 <= _NUMPY_READS:
            return made
    if not note.keys().isdisjoint(_METADATA):
        if "meta" not in allow:
            raise LossError(
                f"metadata and names of {len(text)} bytes: NumPy reads headers of up to {_NUMPY_READS}",
                feature="meta",
                hints=[Hint("allow", {"meta"}, "to drop the metadata"), USE_TB],
            )
        # Empty rather than gone: what the dtype itself says stays unsaid.
        less = {key: {} if key == "origin" else item for key, item in note.items() if key not in _METADATA - {"origin"}}
        return noted(descr, shape, less, frozenset(), fortran, version)
    raise LossError(
        f"names that take {len(text)} bytes: NumPy reads headers of up to {_NUMPY_READS}",
        feature="name",
        hints=[Hint(purpose="use shorter ones"), USE_TB],
    )


def _literal(descr: str | Fields, shape: tuple[int, ...], fortran: bool) -> str:
    words = descr if isinstance(descr, str) else structs.descr_of(descr)
    return f"{{'descr': {words!r}, 'fortran_order': {fortran}, 'shape': {shape!r}, }}"


def _wrapped(text: str, version: Version | None) -> bytes:
    """Padded with spaces, at least one, so that the array starts on a multiple of 64.

    The version is the first that can say it, as NumPy picks it, unless one is asked for.
    """
    for number in _VERSIONS if version is None else (version,):
        length, encoding = _VERSIONS[number]
        try:
            raw = text.encode(encoding)
        except UnicodeEncodeError:
            continue
        start = 8 + length.size
        padding = ALIGNMENT - (start + len(raw) + 1) % ALIGNMENT
        size = len(raw) + padding + 1
        if size < 1 << 8 * length.size and size <= _MOST_BYTES:
            return MAGIC + bytes(number) + length.pack(size) + raw + b" " * padding + b"\n"
    if version is None or len(text) > _MOST_BYTES:
        raise LossError(f"names and fields that take {len(text)} bytes", feature="name", hints=[USE_TB])
    raise LossError(
        f"a header that npy version {version[0]}.{version[1]} can't say",
        feature="version",
        hints=[Hint("version", (3, 0), "or none at all", of="save")],
    )


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
    except _RefusedError as error:
        raise UnsupportedError(f"the npy header: {error.what}", at=start + error.at, hints=[_AS_DICT]) from None
    except _FaultError as error:
        raise CorruptError(f"the npy header: {error.what}", at=start + error.at) from None
    note: dict[str, Any] = {}
    if comment.startswith(_COMMENT[1:]):
        # Its offset: not worth counting in which encoding.
        note = _json.parse(comment[len(_COMMENT) - 1 :].encode(), start, "the note in an npy header")
        if not isinstance(note, dict):
            raise CorruptError("the note in an npy header is not a JSON object", at=start)
    return NpyHeader(descr, fortran, shape, note, size)


def sketch(data: memoryview | bytes) -> tuple[str, tuple[int, ...]]:
    """The descr and the shape of an array that is not read; "" for the descr of a structured one."""
    try:
        found = read(data, 0)
    except (UnsupportedError, CorruptError):
        return "", ()
    return found.descr if isinstance(found.descr, str) else "", found.shape


def _unescaped(found: re.Match[str]) -> str:
    *digits, letter = found.groups()
    return _PLAIN_ESCAPES.get(letter, letter) if letter else chr(int(next(filter(None, digits)), 16))


class _FaultError(ValueError):
    def __init__(self, what: str, at: int) -> None:
        super().__init__(what)
        self.what, self.at = what, at


class _RefusedError(_FaultError):
    """Something sound that is not read here."""


_TOKEN = re.compile(
    r"""[ \t\r\n\f]*(?:(?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")|(?P<number>0|[1-9][0-9]*)L?"""
    r"|(?P<word>True|False)|(?P<mark>[{}(),:\[\]]))"
)
_REST = re.compile(r"[ \t\r\n\f]*(#[^\n]*)?[ \t\r\n\f]*")
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(000[0-9a-f]{5}|0010[0-9a-f]{4})|([\\'\"nrt]))")
_PLAIN_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_MOST_NESTED = 100
_Parsed = tuple[str | Fields, bool, tuple[int, ...], str]


def _parse(raw: bytes, encoding: str) -> _Parsed:
    """(descr, fortran_order, shape, comment)"""
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
        found[key] = {"descr": tokens.descr, "fortran_order": tokens.truth, "shape": tokens.shape}[key]()
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
        raw = self._take("text", "a string")[1:-1]
        if "\\" in raw:
            raise self.fault(f"an escape in {raw[:40]!r}")
        return raw

    def _field_text(self) -> str:
        """The name of a field, which may be any text, as repr() spells it."""
        raw = self._take("text", "a string")[1:-1]
        if "\\" in _ESCAPE.sub("", raw):
            raise self.fault(f"an escape that NumPy does not write in {raw[:40]!r}")
        return _ESCAPE.sub(_unescaped, raw)

    def descr(self) -> str | Fields:
        """NumPy's word for a dtype, or the fields of a structured one."""
        if self._next("text") is not None:
            return self.text()
        start = self.at
        try:
            return structs.parse_fields(self._nested(0))
        except structs.StructError as error:
            self.at = start
            raise _RefusedError(f"a structured dtype: {error}", start) from None

    def _nested(self, depth: int) -> Any:
        """Text, whole numbers, and lists and tuples of them."""
        if self._next("text") is not None:
            return self._field_text()
        if self._next("number") is not None:
            digits = self._take("number", "a number")
            if len(digits) > _MOST_DIGITS:
                raise self.fault(f"a number of {len(digits)} digits")
            return int(digits)
        if depth > _MOST_NESTED:
            raise self.fault(f"a structured dtype nested deeper than {_MOST_NESTED} levels")
        end = "]" if self.peek("[") else ")"
        self.mark("[" if end == "]" else "(")
        items = []
        while self.peek(end) is None:
            items.append(self._nested(depth + 1))
            if self.peek(end) is None:
                self.mark(",")
        self.mark(end)
        return items

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
