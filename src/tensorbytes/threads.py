"""Work in threads: the kernel holds no GIL, so several blocks of records are worked on at once.

Waking a thread costs more than many a call to the kernel. So the work is divided into few, large
parts: one thread reads and verifies ahead, others decode, and small inputs get no thread at all.
Threads end with the generators here: none is left behind in a process that forks.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from tensorbytes import _wire
from tensorbytes._wire.portions import PORTION_BYTES, here, portions
from tensorbytes.typing import Buffer, bytes_view

__all__ = ["ahead", "available", "crc32c", "in_order", "pipeline", "pool", "portions"]

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")
R = TypeVar("R")
_MOST_THREADS = 8
_AHEAD = 3
_END: Any = object()


def available() -> int:
    """How many threads are of use on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


def ahead(items: Iterable[T]) -> Generator[T, None, None]:
    """The same items, made by a thread, some ahead of their use; one item alone is made without."""
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2:
        yield from first
        return
    with pool(1) as workers:
        pending = deque(workers.submit(next, rest, _END) for _ in range(_AHEAD))
        yield from first
        while (item := pending.popleft().result()) is not _END:
            pending.append(workers.submit(next, rest, _END))
            yield item


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """map(work, items) in threads, in order; one item alone is worked on without."""
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2 or threads < 2:
        yield from map(work, chain(first, rest))
        return
    pending: deque[Future[R]] = deque()
    with pool(threads) as workers:
        for item in chain(first, rest):
            pending.append(workers.submit(work, item))
            if len(pending) > threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def pipeline(work: Callable[[T], R], items: Iterator[T], threads: int) -> Generator[R, None, None]:
    """map(work, items), where making the items is work as well: with two threads, one of them does that."""
    if threads < 2:
        yield from map(work, items)
        return
    made = ahead(items)
    try:
        yield from in_order(work, made, threads - 1)
    finally:
        made.close()


# ---- ending early ----------------------------------------------------------------


@contextmanager
def pool(threads: int) -> Generator[ThreadPoolExecutor, None, None]:
    """Threads for a block. When it is left, what waits is dropped, and what is at work ends at its next portion."""
    from concurrent.futures import ThreadPoolExecutor  # which takes longer to load than a small file to read

    stop = threading.Event()
    made = ThreadPoolExecutor(threads, "tensorbytes", setattr, (here, "stop", stop))
    try:
        yield made
    finally:
        stop.set()
        made.shutdown(cancel_futures=True)


def crc32c(data: Buffer, crc: int = 0) -> int:
    """The checksum of records; of much, in portions."""
    if memoryview(data).nbytes <= PORTION_BYTES:
        return _wire.crc32c(data, crc)
    view = bytes_view(data)
    for part in portions(len(view)):
        crc = _wire.crc32c(view[part], crc)
    return crc
