"""Addresses of what is in a file, as they are typed on a command line.

    model.tb::w                the tensor w
    model.tb::w[0:4, ..., -1]  a part of it: integers, slices, one ellipsis
    x.npy::[0:4]               of a file's only tensor, which has no name
    train.tfrecord::#3         row, or object of a stream, number 3; #-1 is the last one
    model.tb::"a[0]"[1]        a name with brackets, quotes or two colons; \\" and \\\\ in it stand for " and \\
    a::b.tb::                  all of a file whose own name has two colons

The last :: outside of brackets and quotes counts. One before a URL is part of the path, since such
chains (zip://x.tb::s3://bucket/y.zip) are, and a file that exists under the whole text is that file.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from types import EllipsisType
from typing import NoReturn, TypeAlias

from tensorbytes.errors import UsageError

Index: TypeAlias = tuple[int | slice | EllipsisType, ...]

_MARK = "::"
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])')


@dataclass(frozen=True)
class Address:
    """A file, and what of it is meant: all of it, one tensor, one row, or a part of these."""

    path: str
    name: str | None = None
    index: Index | None = None
    number: int | None = None  # of a row, or of an object in a stream

    def __str__(self) -> str:
        what = f"#{self.number}" if self.number is not None else "" if self.name is None else _spell(self.name)
        if self.index is not None:
            what += "[" + ", ".join(map(_step, self.index or (...,))) + "]"  # x[()] is x[...]
        if what:
            return f"{self.path}{_MARK}{what}"
        try:
            plain = _parse(self.path) == self
        except UsageError:
            plain = False
        return self.path if plain else self.path + _MARK


def parse_address(text: str | os.PathLike[str]) -> Address:
    """What a text such as "model.tb::w[0:4, :]" means. Only looks whether there is a file of that name."""
    if isinstance(text, os.PathLike):
        return Address(os.fspath(text))
    if _MARK in text and not _URL.match(text) and os.path.exists(text):
        return Address(text)
    return _parse(text)


def _parse(text: str) -> Address:
    opening = text.rfind("[") if text.endswith("]") else -1
    front = text if opening < 0 else text[:opening].rstrip(" ")
    mark, quoted = _find_quoted(front), True
    if mark < 0:
        mark, quoted = _find_mark(front), False
    if mark < 0:
        return Address(text)
    path, start = text[:mark], mark + len(_MARK)
    if not path:
        _refuse(text, 0, f"a file before {_MARK}")
    index = None if opening < 0 else _Steps(text, opening + 1).index()
    what = front[start:].strip(" ")
    if quoted or what.startswith('"'):
        return Address(path, _unquote(text, text.index('"', start), front), index)
    if what.startswith("#"):
        return Address(path, None, index, _row(text, text.index("#", start), what))
    bad = re.search(r'[\[\]"]', front[start:])
    if bad is not None and bad[0] == "[" and "]" not in text[start:]:
        _refuse(text, len(text), "a ] that ends the index")
    if bad is not None:
        _refuse(text, start + bad.start(), 'a name without brackets and quotes, or one in quotes: "a[0]"')
    return Address(path, what or None, index)


def _find_quoted(front: str) -> int:
    """Where the :: before a name in quotes is that ends the text; -1 if it ends otherwise."""
    at = len(front) if front.endswith('"') else -1
    while at >= 0:
        at = front.rfind(f'{_MARK}"', 0, at)
        if at >= 0 and _QUOTED.fullmatch(front, at + len(_MARK)):
            return at
        at = at + len(_MARK) if at >= 0 else at  # the next one may share colons with this one
    return -1


def _find_mark(front: str) -> int:
    at = front.rfind(_MARK)
    while at >= 0:
        inside = front.rfind("[", 0, at) > front.rfind("]", 0, at) and "]" in front[at:]
        if not inside and not _URL.match(front, at + len(_MARK)):
            return at
        at = front.rfind(_MARK, 0, at + 1)
    return -1


def _unquote(text: str, at: int, front: str) -> str:
    found = _QUOTED.match(front, at)
    if found is None:
        _refuse(text, len(front), 'a " that ends the name, in which \\" stands for a quote and \\\\ for a backslash')
    rest = front[found.end() :]
    if rest.strip(" "):
        _refuse(text, found.end() + len(rest) - len(rest.lstrip(" ")), "an index such as [0:4], or the end")
    return _ESCAPED.sub(r"\1", found[1])


def _row(text: str, at: int, what: str) -> int:
    if not _NUMBER.fullmatch(what, 1):
        _refuse(text, at + 1, 'the number of a row after #, or a name in quotes: "#a"')
    return int(what[1:])


class _Steps:
    """Reads what stands between brackets."""

    def __init__(self, text: str, start: int) -> None:
        self._text, self._at = text, start

    def index(self) -> Index:
        steps: list[int | slice | EllipsisType] = []
        while True:
            start = self._at
            step = self._parse_one()
            if step is ... and ... in steps:
                _refuse(self._text, start, "at most one ellipsis")
            steps.append(step)
            comma = self._accept(",")
            if self._accept("]"):  # [0,] is [0]
                break
            if not comma:
                _refuse(self._text, self._at, "a comma or ]")
        if self._at < len(self._text):
            _refuse(self._text, self._at, "the end")
        return tuple(steps)

    def _skip_spaces(self) -> None:
        while self._text[self._at] == " ":  # the ] at the end stops it
            self._at += 1

    def _accept(self, token: str) -> bool:
        self._skip_spaces()
        found = self._text.startswith(token, self._at)
        self._at += len(token) if found else 0
        return found

    def _parse_number(self) -> int | None:
        self._skip_spaces()
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return int(found[0])

    def _parse_one(self) -> int | slice | EllipsisType:
        if self._accept("..."):
            return ...
        first = self._parse_number()
        if not self._accept(":"):
            if first is None:
                _refuse(self._text, self._at, "an integer, a slice or ...")
            return first
        stop, step = self._parse_number(), None
        if self._accept(":"):
            self._skip_spaces()
            start = self._at
            step = self._parse_number()
            if step == 0:
                _refuse(self._text, start, "a step other than 0")
        return slice(first, stop, step)


def _spell(name: str) -> str:
    plain = name and _MARK not in name and not re.search(r'[\[\]"]', name) and name == name.strip(" ")
    if plain and not name.startswith(("#", ":")) and not _URL.match(name):
        return name
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def _step(step: int | slice | EllipsisType) -> str:
    if isinstance(step, slice):
        ends = [step.start, step.stop] + ([] if step.step is None else [step.step])
        return ":".join("" if end is None else str(end) for end in ends)
    return "..." if step is ... else str(step)


def _refuse(text: str, at: int, expected: str) -> NoReturn:
    found = repr(text[at]) if at < len(text) else "the end"
    raise UsageError(f"{text!r}, character {at + 1}: expected {expected}, found {found}")
