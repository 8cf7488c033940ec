"""Every exception that leaves tensorbytes, and the limits that guard its readers.

Each message says what is wrong, where, what was expected and what was found; most
end with what to do. The classes also derive from the built-in exception that code
unaware of tensorbytes would catch.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# What an extra installs, where that bears another name.
_PACKAGES = {"arrow": "pyarrow", "cloud": "fsspec", "chart": "matplotlib"}


class TensorbytesError(Exception):
    """The base of them all."""


class CorruptError(TensorbytesError, ValueError):
    """Bytes that are not what their format demands. `at` is the offset of the fault."""

    def __init__(self, what: str, *, at: int, path: str | None = None) -> None:
        super().__init__(what, at, path)
        self.what, self.at, self.path = what, at, path

    def __str__(self) -> str:
        return f"{self.path or '<bytes>'}: {self.what} (byte {self.at})"

    def shifted(self, by: int, path: str | None = None) -> CorruptError:
        """The same fault, seen from a file in which these bytes start at `by`."""
        return CorruptError(self.what, at=self.at + by, path=path or self.path)


class LossError(TensorbytesError, ValueError):
    """Something the target can't hold. `feature` names it, as `allow=` wants it named; `losses` are all of them,
    where `convert` looked for more than the first."""

    def __init__(self, what: str, *, feature: str, losses: Iterable[Any] = ()) -> None:
        super().__init__(what)
        self.feature, self.losses = feature, tuple(losses)


class UnsupportedError(TensorbytesError, TypeError):
    """A value, dtype or combination that tensorbytes, or the target, does not know."""


class LimitError(TensorbytesError, ValueError):
    """Reading would take more memory, or more parts, than the limits allow."""


class MissingDependencyError(TensorbytesError, ImportError):
    """An optional package is needed. The message names it, and holds the pip command."""

    def __init__(self, what: str, extra: str) -> None:
        package = _PACKAGES.get(extra, extra)
        super().__init__(f"{what} needs the optional package {package}: pip install 'tensorbytes[{extra}]'")


class SchemaError(TensorbytesError, ValueError):
    """A record and its schema disagree, or two schemas do. The message names the feature."""


class UsageError(TensorbytesError, TypeError):
    """A call that makes no sense as written: swapped arguments, an unknown option."""


class InUseError(TensorbytesError):
    """A path that another writer, or another process, is writing. The message says which."""


class TornTailWarning(UserWarning):
    """An unfinished write at the end of a file was cut off before appending. The message says where it is kept."""


class UnclosedWriterWarning(UserWarning):
    """A writer was never closed. The message says of which file, how many records it had, and where they are kept."""


class SidecarWarning(UserWarning):
    """A file beside another (an index, a schema, a list of checksums) is not used, and why."""


def unknown(kind: str, got: object, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a table."""
    names = sorted(known)
    return UsageError(f"unknown {kind} {got!r}; known: {', '.join(names)}{nearest(got, names)}")


def nearest(got: object, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the one that was meant, if one is near."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    near = get_close_matches(str(got).lower(), names, 1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader may use on the word of a file.

    Bytes that are really present are never limited. `max_bytes` bounds what a small
    file can make of itself: a TensorProto of 19 bytes may claim four tebibytes by its
    repeat-the-last-value rule.
    """

    max_bytes: int = 1 << 30
    max_tensors: int = 1 << 24
    max_rank: int = 64
    max_depth: int = 64


def _default_limits() -> Limits:
    """Whoever runs a program, or a command, may set its max_bytes without a change of the program."""
    text = os.environ.get("TENSORBYTES_MAX_BYTES", "")
    if text and not text.isdecimal():
        warnings.warn(f"TENSORBYTES_MAX_BYTES={text!r} is no number of bytes, and is ignored", stacklevel=2)
    return Limits(max_bytes=int(text)) if text.isdecimal() else Limits()


LIMITS = _default_limits()
