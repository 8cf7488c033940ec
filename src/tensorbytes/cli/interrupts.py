"""Ctrl-C, kill and a terminal that goes away: each ends a command in order, so that no partial file stays.

They are noted, since what they interrupt may make another error of it, and held back where they would leave traces.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_noted = 0


def heed() -> None:
    """Note from now on when we are to end, unless whoever started us has that ignored (nohup, say)."""
    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.default_int_handler, signal.SIG_DFL):
            signal.signal(number, _note)


def exit_code() -> int:
    """What a shell reports of a program that the signal ends: 130 after Ctrl-C."""
    return 128 + (_noted or signal.SIGINT)


def _note(number: int, frame: FrameType | None) -> None:
    global _noted
    _noted = number
    raise KeyboardInterrupt


def check() -> None:
    """Raise KeyboardInterrupt again if something made another error of it: a module that was being loaded does so."""
    if _noted:
        raise KeyboardInterrupt


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Signals to end wait until the block is done."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
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
