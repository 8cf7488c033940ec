"""Names and patterns of tensors: one rule for every option that takes them.

A pattern is one of the shell's: `*` stands for any text, slashes and dots included, `?` for one character, `[abc]` for
one of some. A name that is the very text of a pattern goes by it as well, so that names with brackets can be given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Any

from tensorbytes.errors import MissingNameError, UsageError, nearest

_SHOWN = 5
_MARKS = re.compile(r"[*?[]")


def goes_by(name: str | None, pattern: str) -> bool:
    """Whether a tensor of this name is meant by a pattern. None is the name of one that has none."""
    matches = _matcher(pattern)
    return pattern == name or (matches is not None and matches(name or "") is not None)


@lru_cache(1024)
def _matcher(pattern: str) -> Callable[[str], object] | None:
    """What tells whether a name goes by a pattern; None for a text that is nobody's but its own."""
    return re.compile(translate(pattern)).match if _MARKS.search(pattern) else None


def first_match(name: str | None, patterns: Iterable[str]) -> str | None:
    """The first of some patterns that a name goes by."""
    return next((pattern for pattern in patterns if goes_by(name, pattern)), None)


def check_patterns(given: Iterable[Any], option: str) -> list[str]:
    """The names and patterns that an option was given; `option` is its name."""
    found = list(given)
    for one in found:
        if not isinstance(one, str):
            raise UsageError(f"{option}=", expected="names or patterns, such as 'model/*'", got=repr(one))
    return found


class Patterns:
    """Names and patterns that were asked for, and those of them that no tensor went by so far."""

    def __init__(self, asked: Collection[str] | str) -> None:
        several = isinstance(asked, Iterable) and not isinstance(asked, str)
        self.asked = check_patterns(asked if several else [asked], "names")
        self.unused = set(self.asked)
        self._names = set(self.asked)
        self._patterns = [one for one in self.asked if _MARKS.search(one)]

    def takes(self, name: str | None) -> bool:
        found = [pattern for pattern in self._patterns if goes_by(name, pattern)]
        if name in self._names:
            found.append(name)
        self.unused.difference_update(found)
        return bool(found)


def missing_name(asked: str, known: Collection[str], path: str | None) -> MissingNameError:
    """The error for a name, or a pattern, that no tensor goes by; it lists some that there are, and what is near."""
    below = next((f"{asked}{mark}*" for mark in "/." if any(name.startswith(f"{asked}{mark}") for name in known)), None)
    near = f"; did you mean {below!r}?" if below else nearest(asked, known)
    return MissingNameError(
        f"there is no tensor {asked!r}; it has {some_of(known)}{near}",
        path=path,
        tensor=asked,
    )


def some_of(names: Collection[str]) -> str:
    """The first names of a list, and how many more there are."""
    if not names:
        return "no names"
    first = ", ".join(map(repr, list(names)[:_SHOWN]))
    return first + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
