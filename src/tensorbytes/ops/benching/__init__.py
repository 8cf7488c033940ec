"""bench: every format and compression, measured on the user's own data.

choices   which formats and compressions there are
data      any object or file as one document, cut to a size
files     how a file of a choice is written, read, sliced and compared
trial     one choice and its samples; rounds over all of them
result    rows, tables, JSON
advice    the recommendation
chart     the picture
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorbytes._wire import ACCELERATED
from tensorbytes.errors import Hint, UsageError
from tensorbytes.ops.benching import advice
from tensorbytes.ops.benching.advice import Advice
from tensorbytes.ops.benching.choices import Choices, distinct, plan
from tensorbytes.ops.benching.data import Data, gather
from tensorbytes.ops.benching.result import Bench, BenchRow
from tensorbytes.ops.benching.trial import Trial, in_turn
from tensorbytes.ops.benching.words import amount

__all__ = ["Advice", "Bench", "BenchRow", "bench"]

# A file, the one that replaces it, and what a format may add to the raw bytes.
_ROOM = 3
_SPARE = 64 << 20


def bench(
    obj_or_path: Any,
    goal: str = "balanced",
    *,
    formats: Iterable[str] | str | None = None,
    compressions: Iterable[str | None] | str | None = None,
    max_bytes: int | None = 32 << 20,
    rounds: int = 5,
    seconds: float = 1.0,
    storage: float = 500e6,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | Callable[[str], None] | None = None,
) -> Bench:
    """Measure every format and compression on your own data, and say which one suits.

    `obj_or_path` is anything that `dumps` takes, or the path of a file of any format. For
    `goal`, "size" wants the smallest file, "speed" the fastest to write and read, "balanced"
    the least time through storage that moves `storage` bytes in a second. Only choices that
    give everything back bit for bit are recommended.

    Of data above `max_bytes` a part is measured (None: all of it). A choice is measured up
    to `rounds` times, until it has taken `seconds`. Files are written to a new folder inside
    `folder`, by default the system's for temporary files, and removed. `progress` is told
    what is being done; by default a terminal is.
    """
    advice.check(goal, storage)
    _check_numbers(max_bytes, rounds, seconds)
    chosen = plan(formats, compressions)
    data = gather(obj_or_path, max_bytes)
    parent = _roomy_folder(folder, data.nbytes)
    with _Teller(progress) as tell, _own_folder(parent) as place:
        rows = _measured(chosen, data, place, rounds, seconds, tell)
    return Bench(
        goal, data.source, data.description, data.nbytes, data.total, rows, float(storage), data.notes, _machine()
    )


def _measured(
    chosen: Choices, data: Data, folder: str, rounds: int, seconds: float, tell: Callable[[str], None]
) -> list[BenchRow]:
    trials: list[Trial] = []
    tried = distinct(chosen.usable, data.document)
    for number, choice in enumerate(tried, 1):
        tell(f"trying {number} of {len(tried)}: {choice}")
        trials.append(Trial(choice, data.document, folder))
        trials[-1].try_out()
    for number, trial in in_turn([trial for trial in trials if not trial.refused], rounds, seconds):
        tell(f"round {number + 1} of {rounds}: {trial.choice}")
        # in_turn makes the round when it is asked for the next one.
    missing = [BenchRow(choice.format, choice.compression, refused=why) for choice, why in chosen.missing]
    return [*(trial.row() for trial in trials), *missing]


def _check_numbers(max_bytes: Any, rounds: Any, seconds: Any) -> None:
    if max_bytes is not None and (not isinstance(max_bytes, int) or max_bytes < 1):
        raise UsageError(f"max_bytes={max_bytes!r}", expected="a number of bytes, or None for all")
    if not isinstance(rounds, int) or rounds < 0:
        raise UsageError(f"rounds={rounds!r}", expected="how often each choice is measured at most, such as 5")
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise UsageError(f"seconds={seconds!r}", expected="the time for each choice, such as 1.0")


def _roomy_folder(folder: str | os.PathLike[str] | None, nbytes: int) -> str:
    """Where files go, once it is sure that they don't fill the disk."""
    parent = tempfile.gettempdir() if folder is None else os.fspath(folder)
    if not os.path.isdir(parent):
        raise UsageError("no such folder", path=str(parent))
    need, free = _ROOM * nbytes + _SPARE, shutil.disk_usage(parent).free
    if need > free:
        raise UsageError(
            f"{amount(free)} are free, and measuring takes {amount(need)}",
            path=str(parent),
            hints=[
                Hint("folder", purpose="on another disk", of="bench"),
                Hint("max_bytes", purpose="to take less", of="bench"),
            ],
        )
    return parent


@contextlib.contextmanager
def _own_folder(parent: str) -> Iterator[str]:
    """A new folder, gone afterwards: Ctrl-C may come when it is there and tempfile would not know of it yet."""
    place = os.path.join(parent, f"tensorbytes-bench-{os.urandom(8).hex()}")
    try:
        os.mkdir(place, 0o700)
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "compiled_kernel": ACCELERATED,
    }


class _Teller:
    """Says what is being done, on one line of a terminal, or to whoever wants to know."""

    def __init__(self, progress: bool | Callable[[str], None] | None) -> None:
        self._given = progress if callable(progress) else None
        self._line = sys.stderr.isatty() if progress is None else bool(progress) and self._given is None
        self._width = 0

    def __call__(self, what: str) -> None:
        if self._given is not None:
            self._given(what)
        elif self._line:
            text = f"bench: {what}"
            print(f"\r{text.ljust(self._width)}", end="", file=sys.stderr, flush=True)
            self._width = len(text)

    def __enter__(self) -> _Teller:
        return self

    def __exit__(self, *error: object) -> None:
        if self._line and self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
