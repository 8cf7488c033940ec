"""A reader in a process of its own, fed with batches: a library that aborts takes only itself down.

    python -m safety.fuzz.differential.peer PAIR theirs|ours     (started by Peer)

The process imports the library once and forks a worker, which does the reading; when a worker dies, the next is
forked at once. A batch is a count and that many inputs, each after its length; there is one answer to each input, in
order. The one that is missing when a worker dies is the one that killed it.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from typing import IO

from safety.fuzz.differential import outcome
from safety.fuzz.differential.outcome import Failed, Outcome, Read, Refused
from safety.fuzz.differential.pair import FOLDER, ROOT, get

_SIZE = struct.Struct("<I")
_KINDS = (Read, Refused, Failed)
_DIED = len(_KINDS)
# Far beyond what any sound answer takes, on a machine that does other things as well; the first has imports before it.
PATIENCE, FIRST = 120.0, 900.0
# Enough for TensorFlow, too little for what small files claim.
MEMORY = 12 << 30


class Peer:
    """The parent's end: starts the process when it is needed, and again when all of it hangs."""

    def __init__(self, pair: str, side: str = "theirs") -> None:
        self._command = [sys.executable, "-m", "safety.fuzz.differential.peer", pair, side]
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="differential-")
        self._sent: list[bytes] = []
        self._got = bytearray()  # what came and was not looked at yet
        self._heard = 0  # so much of what it said
        self._patience = FIRST
        self.restarts = 0

    def send(self, inputs: Sequence[bytes]) -> None:
        """Give it work; `receive` has the answers."""
        self._sent = list(inputs)
        self._give(self._sent)

    def receive(self) -> list[Outcome]:
        answers: list[Outcome] = []
        while len(answers) < len(self._sent):
            kind, value = self._answer()
            if kind < _DIED:
                answers.append(_KINDS[kind](value))
                continue
            self.restarts += 1
            answers.append(Failed(value))
            if len(answers) < len(self._sent):
                self._give(self._sent[len(answers) :])
        return answers

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # a group of its own: the worker too
            self._process.wait()
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.stdout.close()
            self._process = None
            self._got = bytearray()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _give(self, inputs: Sequence[bytes]) -> None:
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        body = b"".join(_SIZE.pack(len(raw)) + raw for raw in inputs)
        with contextlib.suppress(BrokenPipeError):  # noticed when the answer does not come
            self._process.stdin.write(_SIZE.pack(len(inputs)) + _SIZE.pack(len(body)) + body)
            self._process.stdin.flush()

    def _start(self) -> None:
        self._errors, self._heard = tempfile.TemporaryFile(), 0  # noqa: SIM115 (closed by _stop)
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
        threads = {"OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            cwd=ROOT, env={**os.environ, **quiet, **threads, FOLDER: self._folder.name}, start_new_session=True,
        )  # fmt: skip
        self._patience = FIRST

    def _answer(self) -> tuple[int, object]:
        head = self._exactly(_SIZE.size)
        body = self._exactly(_SIZE.unpack(head)[0]) if head else None
        if body is None:
            return _DIED, self._gone()
        kind, value = marshal.loads(body)
        self._patience = PATIENCE
        return kind, f"{value} {self._told()}".strip()[:300] if kind == _DIED else value

    def _exactly(self, size: int) -> bytes | None:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while len(self._got) < size:
            if not select.select([pipe], [], [], self._patience)[0]:
                return None
            piece = os.read(pipe, 1 << 16)
            if not piece:
                return None
            self._got += piece
        out, self._got = bytes(self._got[:size]), self._got[size:]
        return out

    def _told(self) -> str:
        """The last words, which say more than a signal."""
        assert self._errors is not None
        # pread: the child writes through the same file position.
        said = os.pread(self._errors.fileno(), 1 << 16, self._heard)
        self._heard += len(said)
        lines = said.decode(errors="replace").splitlines()
        return next(
            (line.partition("] ")[2] or line for line in lines if "heck failed" in line or "terminate" in line), ""
        )

    def _gone(self) -> str:
        assert self._process is not None
        told, code = self._told(), self._process.poll()
        self._stop()
        return f"no answer in time {told}".strip() if code is None else f"exit status {code} {told}".strip()


# ---- the child's end --------------------------------------------------------


def _read(size: int) -> bytes:
    """So many bytes of the input, and none beyond them: those are for the next worker."""
    out = b""
    while len(out) < size:
        piece = os.read(0, size - len(out))
        if not piece:
            os._exit(0)
        out += piece
    return out


def _work(name: str, side: str, target: int) -> None:
    warnings.simplefilter("ignore")
    pair = get(name)
    judge, read = (outcome.of_theirs, pair.theirs) if side == "theirs" else (outcome.of_ours, pair.ours)
    while True:
        count, size = struct.unpack("<2I", _read(8))
        body, at = _read(size), 0
        for _ in range(count):
            (length,) = _SIZE.unpack_from(body, at)
            found = judge(read, body[at + 4 : at + 4 + length])
            at += 4 + length
            _write(target, _KINDS.index(type(found)), found[0])


def _write(target: int, kind: int, value: object) -> None:
    body = marshal.dumps((kind, value))
    out = memoryview(_SIZE.pack(len(body)) + body)
    while out:
        out = out[os.write(target, out) :]


def main(name: str, side: str) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    target = os.dup(1)
    os.dup2(2, 1)  # a library that prints must not disturb the answers
    get(name).warm(side)
    while True:
        worker = os.fork()
        if not worker:
            _work(name, side, target)
        _, status = os.waitpid(worker, 0)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return
        _write(target, _DIED, signal.Signals(-code).name if code < 0 else f"exit status {code}")


if __name__ == "__main__":
    main(*sys.argv[1:])
