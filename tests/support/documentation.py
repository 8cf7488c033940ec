"""Runs the examples of a page, in an empty folder.

run() in a test, or `python -m tests.support.documentation [--update] PAGE`:

    ```python    one after another, in one namespace; a plain block that follows is what they print
    ```py        what other people or libraries do: each by itself, in a folder of its own; what it prints, or the
                 error that it ends with, is in the block that follows, where ... stands for anything
    ```console   commands after "$ ", and what they show on a terminal of 100 columns; again with ...
    ```proto     a message definition that protoc refuses, in the words of the block that follows

With --update, what `python` and `console` blocks really print is written into the page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages that need a process of their own, and a package: one forks workers, tfrecord brings messages of TensorFlow's.
ALONE = {"records.md": "torch", "tfrecord.md": "tfrecord"}
KINDS = ("console", "proto", "py", "python")
COLUMNS, ROWS = 100, 40
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$(?:\n+^```\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def examples(page: Path) -> Iterator[re.Match[str]]:
    """Each block of a kind that is run: kind, code, what is shown below it."""
    return (match for match in _BLOCK.finditer(page.read_text()) if match[1] in KINDS)


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _FENCE.sub("", page.read_text())


def run(page: Path) -> None:
    """Run all examples of a page in the current folder; AssertionError if one of them does not do as it is shown."""
    for match, got, span in _outcomes(page):
        shown = match.string[slice(*span)]
        alike = got == shown if match[1] == "python" else _alike(shown, got)
        assert alike, f"{page.name}, line {_line(match)}, gives\n{got}"


def update(page: Path) -> None:
    """Run all examples of a page, and show in it what they print."""
    text = page.read_text()
    for match, got, (start, end) in reversed(list(_outcomes(page))):
        if match[1] == "python" or (match[1] == "console" and not _alike(text[start:end], got)):
            text = text[:start] + got + "\n" * (not got.endswith("\n")) + text[end:]
    page.write_text(text)


def _outcomes(page: Path) -> Iterator[tuple[re.Match[str], str, tuple[int, int]]]:
    """Each block, what it gives, and where in the page that is shown."""
    scope: dict[str, object] = {"__name__": "__main__"}
    for match in examples(page):
        kind, code, where = match[1], match[2], f"{page.name}, line {_line(match)}"
        if kind == "python":
            got = _printed(code, scope, where)
            if match[3] is not None:
                yield match, got, match.span(3)
        elif kind == "console":
            for command in _COMMAND.finditer(code):
                start, end = command.span(2)
                yield match, on_a_terminal(command[1]), (match.start(2) + start, match.start(2) + end)
        else:
            yield match, _elsewhere(code, where) if kind == "py" else _refused_by_protoc(code), match.span(3)


def _line(match: re.Match[str]) -> int:
    return match.string.count("\n", 0, match.start()) + 1


def _printed(code: str, scope: dict[str, object], where: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, where, "exec"), scope)
    return out.getvalue()


def _elsewhere(code: str, where: str) -> str:
    """What code prints that knows nothing of ours, with the error that it ends with."""
    os.makedirs("there", exist_ok=True)
    here, out = os.getcwd(), io.StringIO()
    os.chdir("there")
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, where, "exec"), {"__name__": "__main__"})
    except ModuleNotFoundError:
        raise
    except Exception as error:
        out.write(f"{type(error).__name__}: {error}\n")
    finally:
        os.chdir(here)
    return out.getvalue()


def _alike(shown: str, got: str) -> bool:
    pattern = ".*".join(re.escape(part.strip()) for part in shown.split("..."))
    return re.fullmatch(pattern, got.strip(), re.DOTALL) is not None


def on_a_terminal(command: str) -> str:
    """What a shell command shows to somebody who sits in front of it."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", ROWS, COLUMNS, 0, 0))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(command, shell=True, stdin=theirs, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        seen = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    return re.sub(r"[ \r]+$", "", seen.decode(), flags=re.MULTILINE)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that nobody is left at the other end
        return b""


def _refused_by_protoc(code: str) -> str:
    Path("tensor_data.proto").write_text(code)
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "tensor_data.proto"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


if __name__ == "__main__":
    work = update if "--update" in sys.argv else run
    for name in [word for word in sys.argv[1:] if word != "--update"]:
        found = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            work(found)
