"""What a reader makes of some bytes: the values, in a form that == compares by bits, or its words of refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tensorbytes.errors import Limits, MissingDependencyError, TensorbytesError

# Less than the default, so that claims are refused before they slow the search down.
LIMITS = Limits(max_bytes=1 << 24)


class Read(NamedTuple):
    """Values are made of tuples, lists, dicts, str, bytes, int and None alone."""

    value: Any


class Refused(NamedTuple):
    words: str


class Failed(NamedTuple):
    """An exception that is none of the reader's own, a crash or a hang."""

    words: str


Outcome = Read | Refused | Failed


def of_ours(read: Callable[[bytes], Any], raw: bytes) -> Outcome:
    """Our own exceptions refuse; all others are faults."""
    try:
        return Read(read(raw))
    except MissingDependencyError:
        raise
    except TensorbytesError as error:
        return Refused(f"{type(error).__name__}: {error}")
    except Exception as error:
        return Failed(f"{type(error).__name__}: {str(error)[:300]}")


def of_theirs(read: Callable[[bytes], Any], raw: bytes) -> Outcome:
    """Whatever a library raises is its refusal, except for what only its programmers should see."""
    try:
        return Read(read(raw))
    except Exception as error:
        return Refused(f"{type(error).__name__}: {str(error)[:300]}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return Failed(f"{type(error).__name__}: {str(error)[:300]}")  # a panic of Rust
