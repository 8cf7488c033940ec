"""One point: a child runs the job with a fault armed, another one judges what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from safety.crashes import model
from safety.crashes.faults import Call, Fault, Shim, possible
from safety.crashes.judging import Outcome, Reports, Scenario, Violation, content, fresh

_REPORT = struct.Struct("<cq")
# A job that takes longer hangs.
_SECONDS = 300


class Point(NamedTuple):
    """A call of a scenario's job, and what goes wrong there."""

    number: int
    call: Call
    fault: Fault


class _Pipe(Reports):
    """Reports that outlive the process which makes them."""

    def __init__(self, fd: int, shim: Shim) -> None:
        self._fd, self._shim = fd, shim
        self.told = b""

    def _tell(self, kind: bytes, number: int, text: bytes = b"") -> None:
        os.write(self._fd, _REPORT.pack(kind, number) + text)
        self.told += _REPORT.pack(kind, number) + text

    def flushed(self, number: int) -> None:
        self._tell(b"f", number)

    def synced(self, number: int) -> None:
        self._tell(b"s", number)
        self._shim.mark(number)

    def wrong(self, text: str) -> None:
        self._tell(b"w", len(text.encode()), text.encode())

    def judged(self, fine: bool, words: str) -> None:
        text = json.dumps([fine, words[-20_000:]]).encode()
        self._tell(b"j", len(text), text)

    def raised(self, error: BaseException) -> None:
        from tensorbytes.errors import TensorbytesError

        told = {
            "error": f"{type(error).__name__}: {error}",
            "expected": isinstance(error, OSError | TensorbytesError),
        }
        if not told["expected"]:
            told["error"] = "".join(traceback.format_exception(error))
        text = json.dumps(told).encode()
        self._tell(b"e", len(text), text)


@dataclass
class Runner:
    """Runs points of one scenario below a folder. The process must be small and free of threads: it forks."""

    scenario: Scenario
    folder: str
    shim: Shim = field(default_factory=Shim)
    calls: list[Call] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.old, self._new, self._at = (os.path.join(self.folder, name) for name in ("old", "new", "at"))
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.old)
        in_child(lambda: self.scenario.before(self.old))
        self.calls = self.trace()
        self.scenario.prepare(self.old, self._new)

    def trace(self) -> list[Call]:
        """The calls of the job when nothing goes wrong; its result is kept as the new state."""
        fresh(self._new, self.old)
        log, names = (os.path.join(self.folder, name) for name in ("events", "calls"))
        with open(log, "wb", buffering=0) as file, open(names, "wb", buffering=0) as counted:
            watch = partial(self.shim.watch, self._new, file.fileno(), counted.fileno())
            outcome = self.outcome(self._new, watch, None)
        if outcome.status != "done":
            raise Violation(f"{self.scenario.name}: without a fault it {outcome.status}: {outcome.error}")
        with open(names, encoding="ascii") as lines:
            return [Call(name, int(size)) for name, size in map(str.split, lines)]

    def events(self) -> list[model.Event]:
        """The log of the job when nothing goes wrong, with data."""
        found = []
        with open(os.path.join(self.folder, "events"), "rb") as file:
            while line := file.readline():
                name, path, other, offset, size, has_data = line.decode().rstrip("\n").split("\t")
                data = file.read(int(size)) if int(has_data) else b""
                one, two = (os.path.relpath(some, self._new) if some else "" for some in (path, other))
                found.append(model.Event(name, one, two, int(offset), int(size), data))
        return found

    def points(self, few: bool = False) -> list[Point]:
        return [Point(at, call, fault) for at, call in enumerate(self.calls) for fault in possible(call, few)]

    def run(self, point: Point) -> str:
        """Run a point; a word for what was found. Raises Violation."""
        fresh(self._at, self.old)

        def armed() -> None:
            self.shim.watch(self._at)
            self.shim.arm(point.number, point.fault)

        outcome = self.outcome(self._at, armed, point)
        if outcome.status == "killed":
            return f"killed: {self.judged(outcome)}"
        if outcome.verdict is None:
            raise Violation("the process ended without a word")
        fine, words = outcome.verdict
        if not fine:
            raise Violation(words)
        return f"{outcome.status}: {words}"

    def outcome(self, folder: str, armed: Callable[[], None], point: Point | None) -> Outcome:
        """Run the job in a child that is armed first; a child that lives on judges, too."""
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.close(read)
            self.run_job(folder, armed, write, point)
        os.close(write)
        with os.fdopen(read, "rb") as file:
            told = file.read()
        status = os.waitpid(child, 0)[1]
        made = Outcome(folder, "done", None if point is None else point.fault, "" if point is None else point.call.name)
        hear(made, told)
        if os.WIFSIGNALED(status):
            if os.WTERMSIG(status) != signal.SIGKILL:
                raise Violation(f"the process died of signal {os.WTERMSIG(status)}")
            made.status = "killed"
        elif os.WEXITSTATUS(status):
            made.status = "raised"
        return made

    def run_job(self, folder: str, armed: Callable[[], None], write: int, point: Point | None = None) -> None:
        """Run the job in this process, which is a child, and end it."""
        code = 3
        signal.alarm(_SECONDS)
        reports = _Pipe(write, self.shim)
        try:
            armed()
            self.scenario.job(folder, reports)
            code = 0
        except BaseException as error:
            self.shim.stop()
            reports.raised(error)
        try:
            self.shim.stop()
            if point is not None:
                reports.judged(*self._verdict(folder, point, reports.told))
        finally:
            os._exit(code)

    def _verdict(self, folder: str, point: Point, told: bytes) -> tuple[bool, str]:
        made = Outcome(folder, "done", point.fault, point.call.name)
        hear(made, told)
        made.status = "raised" if made.error else "done"
        try:
            return True, self.scenario.judge(made)
        except Violation as error:
            return False, str(error)
        except BaseException as error:
            return False, "".join(traceback.format_exception(error))

    def cut(self, cut: model.Cut) -> str:
        """Judge a disk as the model thinks it possible."""
        cut.lay_out(self._at, self._links())
        return self.judged(Outcome(self._at, "cut", synced=cut.synced))

    def cuts(self) -> Iterator[model.Cut]:
        """Disks that a power cut may leave."""
        before = {name: data for name, data in content(self.old).items() if name not in self._links()}
        return model.cuts(before, self.events())

    def _links(self) -> dict[str, str]:
        paths = {name: os.path.join(self.old, name) for name in os.listdir(self.old)}
        return {name: os.readlink(path) for name, path in paths.items() if os.path.islink(path)}

    def judged(self, outcome: Outcome) -> str:
        """The scenario's judgement, made in a child: whatever a judge leaves open or running is gone with it."""
        return in_child(lambda: self.scenario.judge(outcome))


def hear(outcome: Outcome, told: bytes) -> None:
    """Take in what a job told."""
    at = 0
    while at + _REPORT.size <= len(told):
        kind, number = _REPORT.unpack_from(told, at)
        at += _REPORT.size
        if kind == b"f":
            outcome.flushed = number
        elif kind == b"s":
            outcome.flushed = outcome.synced = number
        else:
            text = told[at : at + number].decode()
            at += number
            if kind == b"w":
                outcome.wrong = text
            elif kind == b"j":
                fine, words = json.loads(text)
                outcome.verdict = (fine, words)
            else:
                row = json.loads(text)
                outcome.error, outcome.expected_error = row["error"], row["expected"]


def in_child(work: Callable[[], Any]) -> str:
    """Run something in a child; what it returned as text. Raises Violation where that did."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        code, text = 1, ""
        signal.alarm(_SECONDS)
        try:
            text = str(work())
            code = 0
        except Violation as error:
            text = str(error)
        except BaseException as error:
            text = "".join(traceback.format_exception(error))
        finally:
            sys.stderr.flush()
            os.write(write, text.encode()[:60000])
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode()
    status = os.waitpid(child, 0)[1]
    if status:
        raise Violation(text or f"a process ended with {status}")
    return text
