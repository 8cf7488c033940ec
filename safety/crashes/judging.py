"""What must hold after a fault: the scenarios' common part."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from safety.crashes.faults import Fault

# How writers call what is not whole yet.
HIDDEN = re.compile(r".+\.tmp")


class Violation(Exception):
    """A promise was not kept."""


class Reports:
    """What a job tells while it runs: how many of its records are safe by now."""

    def flushed(self, number: int) -> None:
        """So many survive the death of the process."""

    def synced(self, number: int) -> None:
        """So many survive a power cut."""

    def wrong(self, text: str) -> None:
        """The writer did what it must not."""


@dataclass
class Outcome:
    """What is left of a job."""

    folder: str
    status: str  # "done", "raised", "killed" or "cut" (the power)
    fault: Fault | None = None
    at: str = ""  # the name of the call at which it happened
    error: str = ""
    expected_error: bool = True  # an OSError, or one of ours
    flushed: int = 0
    synced: int = 0
    wrong: str = ""
    verdict: tuple[bool, str] | None = None  # of the process itself, if it lived on


Job = Callable[[str, Reports], Any]
Content = dict[str, bytes]


def demand(condition: object, words: str) -> None:
    if not condition:
        raise Violation(words)


def content(folder: str) -> Content:
    """All files below a folder."""
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def hidden(files: Content) -> list[str]:
    return [name for name in files if any(HIDDEN.fullmatch(part) for part in name.split(os.sep))]


class Scenario:
    """A job of a writer, and what may be found when it did not come to its end."""

    name = ""
    lasts = True  # whether its results must outlive a power cut
    modules: tuple[str, ...] = ()  # what it imports beside our own

    def before(self, folder: str) -> None:
        """Make what is there before the job."""

    def job(self, folder: str, reports: Reports) -> None:
        raise NotImplementedError

    def prepare(self, old: str, new: str) -> None:
        """Look at a folder before the job, and at one after it."""

    def judge(self, outcome: Outcome) -> str:
        """Raise Violation, or give a word for what was found."""
        raise NotImplementedError

    def check_error(self, outcome: Outcome) -> None:
        """Faults of the system are told as such, once; nothing is poisoned or passed over."""
        demand(not outcome.wrong, outcome.wrong)
        demand(outcome.expected_error, f"raised {outcome.error}")
        if outcome.status == "raised" and outcome.fault is not None:
            demand(outcome.fault.error, f"{outcome.fault} raised {outcome.error}")

    def check_hidden(self, outcome: Outcome, files: Content) -> None:
        """No temporary file stays, but where the process had no chance to remove it."""
        left = hidden(files)
        excused = outcome.status in ("killed", "cut") or (
            outcome.fault is not None and (outcome.fault.error == "EROFS" or outcome.at in ("unlink", "rmdir"))
        )
        if outcome.fault is not None and outcome.fault.kind == "error for good":
            left = [name for name in left if ".schema.json." not in name]  # which could not be renamed back
        demand(excused or not left, f"left {left} behind")


class Replacing(Scenario):
    """A job that puts one thing, of one file or several, in the place of another.

    `read` gives what a reader sees, or None if there is nothing; `gap`: for a moment there may be
    nothing, or something that is refused, while several files change; `each`: files change one by one.
    """

    def __init__(
        self,
        name: str,
        before: Callable[[str], Any] | None,
        job: Callable[[str], Any],
        read: Callable[[str], Any] | None = None,
        *,
        gap: bool = False,
        each: bool = False,
        lasts: bool = True,
        modules: tuple[str, ...] = (),
    ) -> None:
        self.name, self.lasts, self.modules = name, lasts, modules
        self._before, self._job, self._read = before, job, read
        self._gap, self._each = gap, each
        self._old: Content = {}
        self._new: Content = {}
        self._states: list[Any] = []

    def before(self, folder: str) -> None:
        if self._before is not None:
            self._before(folder)

    def job(self, folder: str, reports: Reports) -> None:
        self._job(folder)

    def prepare(self, old: str, new: str) -> None:
        self._old, self._new = content(old), content(new)
        demand(self._old != self._new, f"{self.name}: the job changes nothing")
        demand(not hidden(self._new), f"{self.name}: a job that ended well left {hidden(self._new)}")
        self._states = [self._state(old), self._state(new)]
        demand(self._states[1] is not None, f"{self.name}: the new one is not readable")

    def _state(self, folder: str) -> Any:
        if self._read is None:
            files = content(folder)
            return {name: data for name, data in files.items() if name not in hidden(files)} or None
        try:
            return self._read(folder)
        except FileNotFoundError:
            return None

    def judge(self, outcome: Outcome) -> str:
        self.check_error(outcome)
        files = content(outcome.folder)
        self.check_hidden(outcome, files)
        self._check_files(outcome, files)
        state = self._found(outcome)
        if outcome.status == "done":
            demand(state == "new", f"ended well, but there is {state}")
        if outcome.status in ("killed", "raised"):
            self._again(outcome)
        return state

    def _check_files(self, outcome: Outcome, files: Content) -> None:
        """Each file is old or new, byte by byte."""
        for name, data in files.items():
            if name in hidden(files):
                continue
            demand(name in self._old or name in self._new, f"there is a file {name}, neither old nor new")
            whole = data in (self._old.get(name), self._new.get(name))
            demand(whole, f"{name} is neither old nor new: {len(data)} bytes")

    def _found(self, outcome: Outcome) -> str:
        try:
            state = self._state(outcome.folder)
        except Exception as error:
            demand(self._gap, f"can't be read: {type(error).__name__}: {error}")
            return "refused"
        if state == self._states[1]:
            return "new"
        if state == self._states[0]:
            return "old"
        if state is None and self._gap:
            return "nothing"
        demand(self._each, "is neither old nor new")
        return "some"

    def _again(self, outcome: Outcome) -> None:
        """The same job, without a fault, ends well and leaves nothing behind."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._job(outcome.folder)
        files = content(outcome.folder)
        demand(not hidden(files), f"still there after the next run: {hidden(files)}")
        visible = {name: data for name, data in files.items() if name not in hidden(files)}
        demand(self._state(outcome.folder) == self._states[1], "the next run did not give the new one")
        # The data of checkpoints have two names, in turn; what counts is that none is left over.
        strange = visible.keys() - self._new.keys() - self._old.keys() if len(visible) > len(self._new) else ()
        demand(not strange, f"still there after the next run: {sorted(strange)}")


def fresh(folder: str, template: str) -> None:
    """Make the folder like the template, times and modes included."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder, symlinks=True)
