"""The side that tells workers what to do."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from typing import Any, NamedTuple

import tensorbytes as tb
from safety.crashes import faults
from safety.machine import helper

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORKERS = 2
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(tb.__file__)))  # the same as here


class Reply(NamedTuple):
    error: str  # "" if there was none; "killed"; words that say whose error it is, and its class
    value: Any  # what was returned, or what the error said
    warned: list[tuple[str, str]]

    @property
    def killed(self) -> bool:
        return self.error == "killed"

    @property
    def ours(self) -> bool:
        return self.error.startswith("ours")

    @property
    def in_use(self) -> bool:
        return self.error.endswith("InUseError")


class Crew:
    """Workers that live as long as they are not killed; a new one takes the place of a dead one."""

    def __init__(self) -> None:
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where syncing takes no time
        self.folder = tempfile.mkdtemp(prefix="machine-", dir=memory)
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self.can_fault = sys.platform.startswith("linux") and faults.compiler() is not None
        if self.can_fault:
            environment["LD_PRELOAD"] = faults.build(self.folder)
        environment["PYTHONPATH"] = os.pathsep.join([ROOT, _PACKAGE])
        warm = os.path.join(self.folder, "warm")
        os.mkdir(warm)
        self._control, theirs = socket.socketpair()
        words = [sys.executable, "-m", "safety.machine.helper", str(theirs.fileno()), self.folder]
        self._forker = subprocess.Popen(words, env=environment, pass_fds=[theirs.fileno()], cwd=warm)
        theirs.close()
        self._workers: list[tuple[int, socket.socket] | None] = [None] * WORKERS
        self._left: list[int] = []
        self._number = 0

    def _start(self, worker: int) -> None:
        self._control.sendall(b"f")
        message, (fd,), _, _ = socket.recv_fds(self._control, 8, 1)
        child = struct.unpack("<q", message)[0]
        self._workers[worker] = os.pidfd_open(child), socket.socket(fileno=fd)

    def tell(self, actor: int, name: str, *arguments: Any, fault: Any = None) -> int:
        """Give a command to an actor, which is a thread of a worker."""
        worker, slot = divmod(actor, helper.THREADS)
        if self._workers[worker] is None:
            self._start(worker)
        self._number += 1
        found = self._workers[worker]
        assert found is not None
        helper.send(found[1], (self._number, slot, name, arguments, fault))
        return self._number

    def hear(self, actor: int) -> tuple[int, Reply]:
        """The next reply of the actor's worker, and the number of its command."""
        worker = actor // helper.THREADS
        found = self._workers[worker]
        assert found is not None
        try:
            number, error, value, warned = helper.receive(found[1])
        except EOFError:
            self.kill(worker)
            return 0, Reply("killed", None, [])
        return number, Reply(error, value, warned)

    def call(self, actor: int, name: str, *arguments: Any, fault: Any = None) -> Reply:
        self.tell(actor, name, *arguments, fault=fault)
        return self.hear(actor)[1]

    def race(self, first: tuple[Any, ...], second: tuple[Any, ...]) -> list[Reply]:
        """Two commands of different actors, at the same time."""
        numbers = [self.tell(*first), self.tell(*second)]
        heard = dict([self.hear(first[0]), self.hear(second[0])])
        return [heard[number] for number in numbers]

    def kill(self, worker: int) -> None:
        found, self._workers[worker] = self._workers[worker], None
        if found is None:
            return
        process, connection = found
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [])  # until it is dead, and all that it held is free
        os.close(process)
        connection.close()

    def leave_child(self, actor: int) -> None:
        """Have a worker fork a child that inherits what is open, and lives on."""
        reply = self.call(actor, "fork")
        if not reply.error:
            self._left.append(reply.value)

    def end_children(self) -> None:
        for child in self._left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._left = []

    def reset(self) -> None:
        self.end_children()
        for worker, found in enumerate(self._workers):
            if found is not None:
                for slot in range(helper.THREADS):
                    self.call(worker * helper.THREADS + slot, "reset")

    def close(self) -> None:
        import shutil

        self.end_children()
        for worker in range(WORKERS):
            self.kill(worker)
        self._control.close()
        self._forker.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
