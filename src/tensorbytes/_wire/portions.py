"""Large things in portions, so that Ctrl-C acts between two of them.

Ctrl-C reaches the main thread alone, which then waits for the others. So a thread of ours sets `here.is_stopped`
(io/workers.py), and ends at its next portion once that is so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

# Even a slow disk gives this much in less than a second.
PORTION_BYTES = 16 << 20
here = threading.local()


class Stopped(Exception):
    """Nobody waits for the result any more."""


def check_stopped() -> None:
    """Raise Stopped in a thread whose crew is being closed."""
    is_stopped: Callable[[], bool] | None = getattr(here, "is_stopped", None)
    if is_stopped is not None and is_stopped():
        raise Stopped


def portions(size: int, portion: int = PORTION_BYTES) -> Iterator[slice]:
    """A range of bytes in portions. In a thread whose crew is being closed, the next one raises Stopped."""
    for start in range(0, size, portion):
        check_stopped()
        yield slice(start, min(start + portion, size))
