"""Ctrl-C: noted, since what it interrupts may make another error of it, and held back where it would leave traces."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_noted = False


def heed() -> None:
    """Note from now on when Ctrl-C is pressed, unless whoever started us has it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)


def _note(number: int, frame: FrameType | None) -> None:
    global _noted
    _noted = True
    raise KeyboardInterrupt


def check() -> None:
    """Raise KeyboardInterrupt again if something made another error of it: a module that was being loaded does so."""
    if _noted:
        raise KeyboardInterrupt


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Ctrl-C waits until the block is done."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A folder that is gone afterwards, whatever happens in between."""
    import shutil
    import tempfile

    path = ""
    try:
        with held_back():
            path = tempfile.mkdtemp(prefix=prefix)
        yield path
    finally:
        with held_back():
            if path:
                shutil.rmtree(path, ignore_errors=True)
