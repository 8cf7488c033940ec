"""One choice being measured: a file is written, read whole, opened for a slice, and compared with what it should hold.

Each round writes a new file and removes it, so that there is one file at a time and every read is
of a file that was just written: it comes from the system's page cache.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

from tensorbytes.errors import CorruptError, TensorbytesError
from tensorbytes.ops.benching.choices import Choice
from tensorbytes.ops.benching.files import TensorFile, files_of, opened
from tensorbytes.ops.benching.result import BenchRow
from tensorbytes.tree import Document

# Shorter calls are repeated until a sample takes this long.
_SAMPLE_SECONDS = 1e-3
_MOST_CALLS = 200


class Trial:
    """A choice with its samples. `try_out` comes first: it checks, and finds what is found once."""

    def __init__(self, choice: Choice, document: Document, folder: str) -> None:
        self.choice = choice
        self._folder = folder
        self._file: TensorFile = opened(choice, document)
        self._nbytes = sum(leaf.value.nbytes for leaf in document.leaves)
        self._first: dict[str, float] = {}  # seconds of the calls of try_out
        self._samples: dict[str, list[float]] = {}
        self._size, self._mapped = 0, 0.0
        self._notices: bool | None = None
        self.spent = 0.0  # seconds that all calls took
        self.refused = self._fault = ""

    def try_out(self) -> None:
        """Write and read once, which warms up and checks; what the format refuses is kept as its reason."""
        try:
            with _new_folder(self._folder) as folder:
                self._check(os.path.join(folder, self.choice.file))
        except TensorbytesError as error:
            self.refused = _words(error)

    def _check(self, path: str) -> None:
        file, first = self._file, self._first
        first["write"], _ = _timed(lambda: file.write(path))
        self._size = sum(map(os.path.getsize, files_of(path)))
        try:
            first["read"], back = _timed(lambda: file.read(path))
            self._fault = file.difference(back, path)
            del back
        except CorruptError as error:
            self._fault = f"it can't be read again: {error}"
        if "read" in first:
            try:
                seconds, part = _timed(lambda: file.slice(path))
                if part is not None:
                    first["slice"] = seconds
            except TensorbytesError:
                pass  # it has no slices
            self._mapped = file.mapped_share(path)
            self._notices = file.notices_damage(path)  # last: it spoils the file
        self.spent = sum(first.values())

    @property
    def rounds(self) -> int:
        return len(self._samples.get("write", ()))

    def round(self) -> None:
        """One more sample of everything."""
        started = perf_counter()
        file = self._file
        with _new_folder(self._folder) as folder:
            path = os.path.join(folder, self.choice.file)
            calls: dict[str, Callable[[], Any]] = {
                "write": lambda: file.write(path),
                "read": lambda: file.read(path),
                "slice": lambda: file.slice(path),
            }
            for what, once in self._first.items():
                times = int(min(_MOST_CALLS, max(1.0, _SAMPLE_SECONDS / max(once, 1e-9))))
                self._samples.setdefault(what, []).append(_timed(calls[what], times)[0])
        self.spent += perf_counter() - started

    def row(self) -> BenchRow:
        """What was found. What disturbs a call only adds time, so the fastest round is nearest to the truth.

        Where no round was made, the trial itself is the sample.
        """
        choice = self.choice
        bare = BenchRow(choice.format, choice.compression, choice.read_by, refused=self.refused)
        if self.refused:
            return bare
        seconds = {what: min(self._samples.get(what, [once])) for what, once in self._first.items()}
        return replace(
            bare,
            size=self._size,
            ratio=self._size / self._nbytes,
            write_seconds=seconds["write"],
            read_seconds=seconds.get("read"),
            write_speed=self._nbytes / seconds["write"] / 1e9,
            read_speed=self._nbytes / seconds["read"] / 1e9 if "read" in seconds else None,
            slice_seconds=seconds.get("slice"),
            lossless=not self._fault,
            fault=self._fault,
            mapped=self._mapped,
            notices_damage=self._notices,
            rounds=max(1, self.rounds),
        )


def _words(error: TensorbytesError) -> str:
    """A refusal as one line, without the advice, which is meant for those who save."""
    return " ".join(error.fault.split())


def _timed(call: Callable[[], Any], calls: int = 1) -> tuple[float, Any]:
    """(seconds per call, the last result); results live until the clock has stopped."""
    kept: list[Any] = [None] * calls
    enabled = gc.isenabled()
    gc.disable()
    try:
        started = perf_counter()
        for number in range(calls):
            kept[number] = call()
        return (perf_counter() - started) / calls, kept[-1]
    finally:
        if enabled:
            gc.enable()


class _new_folder:
    """A folder that is gone afterwards."""

    def __init__(self, parent: str) -> None:
        self._path = tempfile.mkdtemp(dir=parent)

    def __enter__(self) -> str:
        return self._path

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._path)


def in_turn(trials: list[Trial], rounds: int, seconds: float) -> Iterator[tuple[int, Trial]]:
    """Rounds over all choices, each time in another order, so that what disturbs the machine hits all alike.

    A choice that has used up its seconds takes no further part. Yields before each round of a choice.
    """
    for number in range(rounds):
        running = [trial for trial in trials if trial.spent < seconds]
        for trial in random.Random(number).sample(running, len(running)):
            yield number, trial
            trial.round()
