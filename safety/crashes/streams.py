"""Scenarios of writers that acknowledge what is safe: streams of objects and records."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.crashes.judging import Content, Outcome, Reports, Scenario, content, demand, hidden
from tensorbytes import cli

_OLD, _THERE = 7, 4  # objects of an older file; objects that are there before appending
_ITEMS = 9
_FLUSH_AFTER, _SYNC_AFTER = (2, 3, 7), (5,)
_LARGE = (4, 8)  # objects that are too large to be collected
_FIRST_OLD = 1000
_TORN_BYTES = 11


def item(number: int) -> dict[str, Any]:
    """Object or record `number`: what it holds tells which it is."""
    size = 40_000 if number in _LARGE else 3 + number % 5
    return {"number": np.int64(number), "x": np.full(size, number, np.int64), "text": f"row {number}"}


def number_of(found: Any) -> int:
    """The number of an object that was read, all of which must be right."""
    number = int(found["number"])
    wanted = item(number)
    demand(found["text"] == wanted["text"], f"object {number} came back otherwise")
    demand(np.array_equal(found["x"], wanted["x"]), f"object {number} came back otherwise")
    return number


class Streaming(Scenario):
    """A writer of objects that flushes, syncs and closes.

    `start`: "new" where no file is, "over" an older one, "append" to one, "torn" to one with a torn end.
    """

    suffix = ".tb"

    def __init__(self, name: str, start: str, **options: Any) -> None:
        self.name, self._start, self._options = name, start, options
        self._there = _THERE if start in ("append", "torn") else 0

    def path(self, folder: str) -> str:
        return os.path.join(folder, f"x{self.suffix}")

    def opened(self, folder: str, append: bool) -> Any:
        return tb.open(self.path(folder), "a" if append else "w", **({} if append else self._options))

    # ---- before and the job ----

    def before(self, folder: str) -> None:
        if self._start == "new":
            return
        first, count = (_FIRST_OLD, _OLD) if self._start == "over" else (0, self._there)
        with self.opened(folder, append=False) as writer:
            for number in range(first, first + count):
                writer.write(item(number))
            if self._start == "torn":
                writer.flush()
                whole = os.path.getsize(self.path(folder))
                writer.write(item(count))
        if self._start == "torn":
            os.truncate(self.path(folder), whole + _TORN_BYTES)

    def job(self, folder: str, reports: Reports) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tb.errors.TornTailWarning)
            writer = self.opened(folder, append=bool(self._there))
        try:
            with writer:
                for number in range(self._there, _ITEMS):
                    writer.write(item(number))
                    if number in _FLUSH_AFTER:
                        writer.flush()
                        reports.flushed(number + 1)
                    if number in _SYNC_AFTER:
                        writer.sync()
                        reports.synced(number + 1)
        except OSError:
            self._check_poisoned(writer, reports)
            raise
        reports.synced(_ITEMS)

    def _check_poisoned(self, writer: Any, reports: Reports) -> None:
        """The system tells of lost data once: a writer that was told must not say later that all is well."""
        try:
            writer.write(item(_ITEMS))
            writer.sync()
        except tb.errors.TensorbytesError:
            return
        except OSError:
            pass
        reports.wrong("the writer went on after an error")

    # ---- the judge ----

    def files(self, folder: str) -> list[str]:
        return [self.path(folder)] if os.path.exists(self.path(folder)) else []

    def read(self, path: str) -> tuple[list[int], bool]:
        """(the numbers of the objects up to where the file is not whole, whether it is)"""
        found: list[int] = []
        try:
            with tb.open(path) as stream:
                for one in stream:
                    found.append(number_of(one))
        except tb.errors.CorruptError:
            return found, False
        return found, True

    def judge(self, outcome: Outcome) -> str:
        self.check_error(outcome)
        files = content(outcome.folder)
        self.check_hidden(outcome, files)
        safe = outcome.synced if outcome.status == "cut" else outcome.flushed
        safe = max(safe, self._there)
        if not self.files(outcome.folder):
            demand(self._start == "new" and not safe, "the file is gone")
            self._check_next(outcome)
            return "nothing"
        found, whole = self.read(self.path(outcome.folder))
        if self._start == "over" and not safe and (found[:1] == [_FIRST_OLD]):
            demand(whole and found == list(range(_FIRST_OLD, _FIRST_OLD + _OLD)), f"of the old file there is {found}")
            self._check_next(outcome)
            return "old"
        demand(found == list(range(len(found))), f"the file holds {found}")
        demand(len(found) >= safe, f"{safe} objects were acknowledged, {len(found)} are there")
        demand(len(found) <= _ITEMS, f"there are {len(found)} objects")
        if self._start == "over" and outcome.status == "cut" and not outcome.flushed:
            demand(found, "the old file is gone, and nothing of the new one is there")
        if outcome.status == "done":
            demand(whole and len(found) == _ITEMS, f"ended well, but {len(found)} objects are there")
        if outcome.status == "raised" and self._rolls_back(outcome):
            demand(whole, "the end of the file is torn after an error that could be rolled back")
        if self._options.get("compression") != "zlib":  # which can't be appended to
            self._check_append(outcome, len(found), whole, safe)
        self._check_next(outcome)
        return f"{len(found)} objects{'' if whole else ', torn'}"

    def _rolls_back(self, outcome: Outcome) -> bool:
        if self._start == "torn":
            return False  # it may not even have been opened
        if self._options.get("compression") == "zlib":
            return False  # its one stream has no end then, wherever it is cut
        return outcome.fault is not None and outcome.at != "truncate" and outcome.fault.kind != "error for good"

    def _check_append(self, outcome: Outcome, count: int, whole: bool, safe: int) -> None:
        """The file can be written onwards; what is cut off is told of, or asked about."""
        path = self.path(outcome.folder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                writer = self.opened(outcome.folder, append=True)
            except tb.errors.CorruptError as error:
                # Not a torn end alone: blocks were lost in the middle, or whole records would go with it.
                offered = any(hint.operation == "repair" for hint in error.hints)
                demand(not whole and offered, f"can't be appended to: {error}")
                return self._check_repair(path, count)
            with writer:
                writer.write(item(count))
        warned = any(issubclass(warning.category, tb.errors.TornTailWarning) for warning in caught)
        demand(whole or warned, "the torn end was cut off without a word")
        found, sound = self.read(path)
        kept = len(found) - 1
        demand(sound and found == [*range(kept), count], f"after appending object {count} there are {found}")
        # What was read of a torn block goes with it, unless it was acknowledged.
        demand(kept == count or (not whole and kept >= safe), f"after appending object {count} there are {found}")

    def _check_repair(self, path: str, count: int) -> None:
        """Repairing keeps at least what could be read, or says that it would not and leaves all as it is."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.repair(path)
        found, whole = self.read(path)
        demand(found[:count] == list(range(count)), f"after the repair there are {found}")
        demand(whole or not count or self.suffix == ".tb", "after the repair it is still damaged")

    def repair(self, path: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            cli.main(["repair", "--in-place", path])

    def _check_next(self, outcome: Outcome) -> None:
        """The next writer replaces the file, and removes what a killed one left."""
        with self.opened(outcome.folder, append=False) as writer:
            writer.write(item(0))
        files = content(outcome.folder)
        excused = outcome.fault is not None and outcome.status == "raised"
        demand(excused or not hidden(files), f"still there after the next run: {hidden(files)}")
        found: list[int] = []
        for path in self.files(outcome.folder):
            found += self.read(path)[0]
        demand(found == [0], f"the next run gave {found}")


class Recording(Streaming):
    """A RecordWriter of one file."""

    suffix = ".tfrecord"

    def opened(self, folder: str, append: bool) -> Any:
        return tb.RecordWriter(self.path(folder), mode="a" if append else "w", **self._options)

    def read(self, path: str) -> tuple[list[int], bool]:
        found: list[int] = []
        try:
            for row in tb.open_records(path, threads=1):
                found.append(number_of(row))
        except tb.errors.CorruptError:
            return found, False
        return found, True


class Sharded(Recording):
    """A RecordWriter of several files, which become visible one after the other."""

    def __init__(self, name: str, start: str, shards: int = 3, **options: Any) -> None:
        super().__init__(name, start, shards=shards, **options)

    def files(self, folder: str) -> list[str]:
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name[-9:-5] == "-of-"]

    def judge(self, outcome: Outcome) -> str:
        self.check_error(outcome)
        files: Content = content(outcome.folder)
        self.check_hidden(outcome, files)
        safe = outcome.synced if outcome.status == "cut" else outcome.flushed
        found, torn = [], 0
        for path in self.files(outcome.folder):
            numbers, whole = self.read(path)
            demand(numbers == sorted(set(numbers)), f"a shard holds {numbers}")
            olds = [number for number in numbers if number >= _FIRST_OLD]
            demand(not olds or len(olds) == len(numbers), f"a shard holds old and new: {numbers}")
            found += numbers
            torn += not whole
        new = sorted(number for number in found if number < _FIRST_OLD)
        demand(len(set(found)) == len(found), "a record is there twice")
        demand(set(range(safe)) <= set(new), f"{safe} records were acknowledged; there are {new}")
        demand(set(new) <= set(range(_ITEMS)), f"there are {new}")
        if outcome.status == "done":
            demand(new == list(range(_ITEMS)) and not torn and len(found) == len(new), f"ended well with {found}")
        self._check_next(outcome)
        return f"{len(new)} records"
