"""Large things in portions, so that Ctrl-C acts between two of them.

Ctrl-C reaches the main thread alone, which then waits for the others. So a thread of a pool sets `here.stop`, an
event, and ends at its next portion once that is set.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

# Even a slow disk gives this much in less than a second.
PORTION_BYTES = 16 << 20
here = threading.local()


class Stopped(Exception):
    """Nobody waits for the result any more."""


def portions(size: int, portion: int = PORTION_BYTES) -> Iterator[slice]:
    """A range of bytes in portions. In a thread whose pool is being closed, the next one raises Stopped."""
    stop: threading.Event | None = getattr(here, "stop", None)
    for start in range(0, size, portion):
        if stop is not None and stop.is_set():
            raise Stopped
        yield slice(start, min(start + portion, size))
