"""Work in threads: the kernel holds no GIL, so several blocks of records are worked on at once.

Waking a thread costs more than many a call to the kernel. So the work is divided into few, large
parts: one thread reads and verifies ahead, others decode, and small inputs get no thread at all.
Threads end with the generators here: none is left behind in a process that forks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

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
    with _pool(1) as pool:
        pending = deque(pool.submit(next, rest, _END) for _ in range(_AHEAD))
        try:
            yield from first
            while (item := pending.popleft().result()) is not _END:
                pending.append(pool.submit(next, rest, _END))
                yield item
        finally:
            _cancel(pending)


def in_order(work: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """map(work, items) in threads, in order; one item alone is worked on without."""
    rest = iter(items)
    first = list(islice(rest, 2))
    if len(first) < 2 or threads < 2:
        yield from map(work, chain(first, rest))
        return
    pending: deque[Future[R]] = deque()
    with _pool(threads) as pool:
        try:
            for item in chain(first, rest):
                pending.append(pool.submit(work, item))
                if len(pending) > threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            _cancel(pending)


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


def _pool(threads: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # which takes longer to load than a small file to read

    return ThreadPoolExecutor(threads, thread_name_prefix="tensorbytes")


def _cancel(pending: Iterable[Future[Any]]) -> None:
    for future in pending:
        future.cancel()
