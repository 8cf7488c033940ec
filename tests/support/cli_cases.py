"""Running the command line: in a pipe, in a real terminal, or in this process for what needs no process of its own."""

import contextlib
import errno
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from typing import NamedTuple

import numpy as np

import tensorbytes as tb
from tensorbytes.cli import main

COMMAND = [sys.executable, "-m", "tensorbytes"]
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SECONDS = 120  # until a command that hangs is given up
# Colours, and the cursor movements of progress bars.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Ran(NamedTuple):
    """What a command did. In a terminal stdout and stderr are one, and lines end with a single newline here too."""

    code: int
    out: str
    err: str = ""

    @property
    def plain(self):
        """What it wrote, without colours."""
        return _CONTROL.sub("", self.out)

    @property
    def lines(self):
        return self.plain.splitlines()

    @property
    def items(self):
        """Its JSON lines, read by a strict parser."""
        return [json.loads(line, parse_constant=_refuse) for line in self.out.splitlines()]

    @property
    def item(self):
        (only,) = self.items
        return only


def _refuse(word):
    raise ValueError(f"{word} is not JSON")


def inside(capsys, *arguments):
    """Run a command in this process, for the many combinations: stdout is not a terminal."""
    capsys.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:  # argparse's way out
        code = stop.code
    return Ran(code, *capsys.readouterr())


def piped(*arguments, stdin=b"", cwd=None, env=None, text=True):
    """Run the real command in a pipe. With `text=False` what it wrote are bytes."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        env=_environment(env),
        timeout=_SECONDS,
    )
    if not text:
        return Ran(done.returncode, done.stdout, done.stderr)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def in_terminal(*arguments, columns=80, cwd=None, env=None, when=None, program=COMMAND):
    """Run the real command in a terminal of so many columns.

    `when=(text, act)` calls act(pid, fd of the terminal) once that text was shown.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with default_signals():
        process = subprocess.Popen(
            [*program, *map(str, arguments)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=cwd,
            env=_environment({"TERM": "xterm-256color", **(env or {})}),
            start_new_session=True,
        )
    os.close(theirs)
    shown = bytearray()
    end = time.monotonic() + _SECONDS
    try:
        while got := _read(ours, end):
            shown += got
            if when is not None and when[0].encode() in shown:
                act, when = when[1], None
                act(process.pid, ours)
    finally:
        os.close(ours)
        if time.monotonic() >= end:
            process.kill()
        code = process.wait(_SECONDS)
    return Ran(code, shown.decode().replace("\r\n", "\n"))


def _read(fd, end):
    """What was shown since; nothing once the command has closed the terminal."""
    while not select.select([fd], [], [], 1)[0]:
        assert time.monotonic() < end, "the command does not end"
    try:
        return os.read(fd, 1 << 16)
    except OSError as error:  # how Linux says that the other side is closed
        if error.errno != errno.EIO:
            raise
        return b""


def interrupted(*arguments, after, cwd=None, by=signal.SIGINT):
    """Run the real command in a pipe and press Ctrl-C, so to speak, once `after(process)` is true."""
    with default_signals():
        process = subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=_environment(None),
        )
    end = time.monotonic() + _SECONDS
    while not after(process):
        assert process.poll() is None, f"ended by itself: {process.communicate()}"
        assert time.monotonic() < end, "what it should do first does not happen"
        time.sleep(0.01)
    process.send_signal(by)
    out, err = process.communicate(timeout=_SECONDS)
    return Ran(process.returncode, out.decode(errors="replace"), err.decode())


@contextlib.contextmanager
def default_signals():
    """Commands that are started here heed signals, also where the tests ignore them: in the background, under nohup."""
    ignored = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


def _environment(more):
    """This process's, without what would change how the command writes."""
    known = {
        key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")
    }
    return known | (more or {})


# ---- files to look at -----------------------------------------------------------


def checkpoint(layers=12, width=16):
    """The tensors of a small model: layers that are all alike, and what stands around them."""
    rng = np.random.default_rng(0)

    def weights(*shape):
        return rng.normal(0, 0.02, shape).astype(np.float32)

    made = {"embed.weight": weights(100, width)}
    for layer in range(layers):
        made[f"layers.{layer}.attention.query.weight"] = weights(width, width)
        made[f"layers.{layer}.attention.query.bias"] = weights(width)
        made[f"layers.{layer}.norm.weight"] = np.ones(width, np.float32)
    made["head.weight"] = weights(width, 100)
    return made


def record_file(path, count=50):
    """Records of every kind: numbers, text, lists that vary, a feature that some lack, small images."""
    schema = {
        "image": ("uint8", [4, 4]),
        "label": "int64",
        "text": "text",
        "ids": ("int64", [None]),
        "score": tb.records.Feature("float32", optional=True),
    }
    with tb.RecordWriter(path, schema=schema) as writer:
        for i in range(count):
            row = {
                "image": np.full((4, 4), i % 256, np.uint8),
                "label": i,
                "text": f"Köln {i}",
                "ids": list(range(i % 5)),
            }
            writer.write(row | ({"score": i / 4} if i % 2 else {}))
    return str(path)
