"""Work in threads: the kernel holds no GIL, so several blocks of records are worked on at once."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_MOST_THREADS = 8


def available() -> int:
    """How many threads are of use on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """map(work, items), some of them at once; a single item is not worth a thread.

    Threads end with the generator: none is left behind in a process that forks.
    """
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2 or threads < 2:
        yield from map(work, chain(first, items))
        return
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="tensorbytes") as pool:
        try:
            for item in chain(first, items):
                pending.append(pool.submit(work, item))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
