"""Ordered work in threads: no other module starts any.

    map_in_order   map(work, items), several items at once, results in the order of the items
    run_pipeline   the same, where making the items is work too: threads take turns at that
    share          work without results, by the caller and threads beside it: for what takes less than a millisecond
    Ahead          items that a crew of one makes, a few ahead of their use
    Order          makes work wait until the results before its own were used
    Crew           some threads for a block: work beside the caller, such as a checksum while it writes

The kernel, the codecs and the system's calls hold no GIL, so several of them run at once. Waking a thread costs more
than many a call, so work is divided into few, large parts, and small inputs get no thread.

What holds for all of them: an error arrives in its turn, after the results before it. When a block or a generator is
left early, by an error, by Ctrl-C or by close(), what waits is not begun, what is at work ends at its next portion
(`_wire/portions.py`), and the threads are gone before the caller goes on. A crew that is forgotten ends as well, and so
do all of them at the end of the process. After a fork the child has no threads: closing does nothing there, and going
on with work that was begun before is refused, since waiting for it would never end.

The caller waits on plain locks and simple queues: an interrupt between two lines of `threading.Condition` would turn
into an error about the lock.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain, islice
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from tensorbytes._wire.portions import Stopped, check_stopped, here
from tensorbytes.errors import UsageError

T = TypeVar("T")
R = TypeVar("R")
# What every thread of ours is named, or starts with.
NAME = "tensorbytes"
# How many results may wait where all of them are kept anyway.
MANY = 1 << 10
_MOST_THREADS = 8
# How long a thread that has nothing to do waits before it looks whether its crew is still there.
_IDLE_SECONDS = 1.0
# How often work that waits for its turn looks whether that has come.
_WAIT_SECONDS = 0.001
_END: Any = object()


def count_threads() -> int:
    """How many threads are of use on this machine."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_THREADS)


# ---- in order -----------------------------------------------------------------


def map_in_order(
    work: Callable[[T], R], items: Iterable[T], threads: int, ahead: int | None = None
) -> Generator[R, None, None]:
    """map(work, items) in threads, in order; with one thread, or for one item alone, without any.

    ahead: how many results may wait for the caller, as many as there are threads unless it is given. More help where
    items take unequal time, and cost their memory.
    """
    several, source = _look_at(items)
    if not several or threads < 2:
        yield from map(work, source)
        return
    most = threads if ahead is None else ahead
    waiting: deque[Task[R]] = deque()
    failure: Exception | None = None
    with Crew(threads) as crew:
        while True:
            try:
                waiting.append(crew.start(work, next(source)))
            except StopIteration:
                break
            except Exception as error:  # raised when the results before it were given
                failure = error
                break
            if len(waiting) > most:
                yield waiting.popleft().take()
        while waiting:
            yield waiting.popleft().take()
    if failure is not None:
        raise failure


def run_pipeline(work: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """map(work, items), where making the items is work as well: each thread makes the one that it works on.

    One item is made at a time, in order. What it is made of is still in the cache of the processor that works on it.
    """
    if threads < 2:  # nothing is looked for before it is asked for: it may be long in coming
        yield from map(work, items)
        return
    several, source = _look_at(items)
    if not several:
        yield from map(work, source)
        return

    def step(before: threading.Lock, made: threading.Lock) -> Any:
        while not before.acquire(timeout=_IDLE_SECONDS):  # of a task that was dropped it is never released
            check_stopped()
        try:
            item = next(source, _END)
        finally:
            made.release()
        return _END if item is _END else work(item)

    waiting: deque[Task[Any]] = deque()
    last = threading.Lock()
    with Crew(threads) as crew:
        while True:
            while len(waiting) <= threads:
                made = threading.Lock()
                made.acquire()
                waiting.append(crew.start(step, last, made))
                last = made
            result = waiting.popleft().take()
            if result is _END:
                return
            yield result
            del result


def share(
    work: Callable[[T], object], items: Iterable[T], threads: int, each: Callable[[], object] | None = None
) -> None:
    """work(item) for all items, each by whoever is free: the caller, or one of threads - 1 beside it.

    Of several errors, that of the first item is raised. `each` is called by the caller, after each item that it did.
    """
    left = deque(enumerate(items))
    team = _Team(work, left)
    try:
        for _ in range(min(threads, len(left)) - 1):
            team.add_helper()
        while team.take_item():
            if each is not None:
                each()
    except BaseException:
        team.stop()
        raise
    finally:
        team.end()
    team.raise_first()


class _Team:
    """Who shares work. A thread without Python's object for it starts in a sixth of the time, so it has none."""

    def __init__(self, work: Callable[[T], object], left: deque[tuple[int, T]]) -> None:
        self._work, self._left = work, left
        self._is_stopped: Callable[[], bool] = getattr(here, "is_stopped", bool)
        self._stopped = False
        self._failures: list[tuple[int, BaseException]] = []
        self._helpers: list[_thread.LockType] = []  # each is held until the helper has ended

    def add_helper(self) -> None:
        at_work = _thread.allocate_lock()
        at_work.acquire()
        try:
            _thread.start_new_thread(self._help, (at_work,))
        except RuntimeError:  # there can be no more threads: the others do it
            return
        self._helpers.append(at_work)

    def _help(self, at_work: _thread.LockType) -> None:
        here.is_stopped = lambda: self._stopped or self._is_stopped()
        try:
            while self.take_item():
                pass
        finally:
            at_work.release()

    def take_item(self) -> bool:
        """Do the next item; whether there was one, and it went well."""
        try:
            number, item = self._left.popleft()
        except IndexError:
            return False
        try:
            check_stopped()
            self._work(item)
        except BaseException as error:
            self._left.clear()
            self._failures.append((number, error))
            if not isinstance(error, Exception):
                self.stop()
            return False
        return True

    def stop(self) -> None:
        """Begin nothing more, and end what was begun at its next portion."""
        self._left.clear()
        self._stopped = True

    def end(self) -> None:
        """Wait for what was begun: there is nothing left to begin."""
        try:
            self._wait()
        except BaseException:  # an interrupt
            self.stop()
            self._wait()
            raise

    def _wait(self) -> None:
        for at_work in self._helpers:
            with at_work:
                pass

    def raise_first(self) -> None:
        """Raise the error of the first item that has one; but an interrupt before all."""
        if not self._failures:
            return
        interrupts = [(number, error) for number, error in self._failures if not isinstance(error, Exception)]
        first = min(interrupts or self._failures, key=lambda failure: failure[0])[1]
        self._failures.clear()
        try:
            raise first
        finally:
            del first, interrupts  # which hold this frame


class ResultGate:
    """Makes work in threads wait until the results before its own were used: then it may take their memory."""

    def __init__(self) -> None:
        self._used = 0

    def advance(self) -> None:
        """Say that one more result was used."""
        self._used += 1

    def wait_for(self, number: int) -> None:
        """Wait until `number` results were used. Raises Stopped in a thread whose crew is being closed."""
        while self._used < number:
            check_stopped()
            time.sleep(_WAIT_SECONDS)


def _look_at(items: Iterable[T]) -> tuple[bool, Iterator[T]]:
    """Whether there are several items, and all of them. An error in making the second waits for its turn."""
    source = iter(items)
    first: list[T] = []
    try:
        first.extend(islice(source, 2))
    except Exception as error:
        return False, chain(first, _fail(error))
    return len(first) == 2, chain(first, source)


def _fail(error: Exception) -> Iterator[Any]:
    raise error
    yield


class Ahead(Iterator[T]):
    """Items that a crew of one makes, from now on, up to `depth` ahead of their use."""

    def __init__(self, items: Iterable[T], crew: Crew, depth: int) -> None:
        self._items, self._crew = iter(items), crew
        self._waiting = deque(self._begin() for _ in range(depth))

    def _begin(self) -> Task[T]:
        return self._crew.start(next, self._items, _END)

    def __next__(self) -> T:
        if not self._waiting:
            raise StopIteration
        self._waiting[0].wait()  # an interrupt comes here, and loses nothing
        item = self._waiting.popleft().take()
        if item is _END:
            self._waiting.clear()
            raise StopIteration
        self._waiting.append(self._begin())
        return item


# ---- threads for a block ------------------------------------------------------


def _check_process(process: int) -> None:
    if os.getpid() != process:
        raise UsageError("work that was begun before a fork can't go on in the child: begin it anew")


class Task(Generic[R]):
    """Work that was given to a crew."""

    __slots__ = ("_args", "_error", "_lock", "_process", "_value", "_work", "finished")

    def __init__(self, work: Callable[..., R], args: tuple[Any, ...], process: int) -> None:
        self._work: Callable[..., R] | None = work
        self._args, self._process = args, process
        self._value: Any = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()  # held until the work is finished
        self._lock.acquire()
        self.finished = False

    def wait(self) -> None:
        """Wait until it is finished."""
        if not self.finished:
            _check_process(self._process)
            self._lock.acquire()
            self._lock.release()

    def take(self) -> R:
        """What the work gives, or raises, once it is finished; to be taken once."""
        self.wait()
        value, error, self._value, self._error = self._value, self._error, None, None
        if error is None:
            return value  # type: ignore[no-any-return]
        try:
            raise error
        finally:
            del error  # which holds this frame

    def run(self) -> None:
        try:
            assert self._work is not None
            self._value = self._work(*self._args)
        except BaseException as error:
            self._error = error
        self._finish()

    def drop(self) -> None:
        """Finish it without a result: it was not begun, or it never ends."""
        self._error = Stopped()
        self._finish()

    def _finish(self) -> None:
        self._work, self._args = None, ()
        self.finished = True
        with contextlib.suppress(RuntimeError):  # it was dropped while it was at work
            self._lock.release()


class Crew:
    """Up to `threads` threads, for a block. They start with the first work, and are gone when the block is left.

    patience: how many seconds close() waits for each of them, for ever unless it is given. at_end: what each of them
    does last, such as closing what it reads.
    """

    def __init__(
        self, threads: int, name: str = NAME, patience: float | None = None, at_end: Callable[[], None] | None = None
    ) -> None:
        self._most, self._name = threads, name
        self._shared = _Shared(weakref.ref(self), patience, at_end)
        self._forgotten: weakref.finalize[[], Crew] | None = None

    @property
    def threads(self) -> list[threading.Thread]:
        return self._shared.threads

    @property
    def closed(self) -> bool:
        return self._shared.stopped

    @property
    def forked(self) -> bool:
        """Whether this is a copy in a child process, in which there are no threads."""
        return os.getpid() != self._shared.process

    def start(self, work: Callable[..., R], *args: Any) -> Task[R]:
        """Have a thread do this, after what was started before."""
        shared = self._shared
        _check_process(shared.process)
        task = Task(work, args, shared.process)
        if shared.stopped:
            task.drop()
            return task
        shared.tasks.put(task)
        if self._forgotten is None:  # a crew without work costs next to nothing
            self._forgotten = weakref.finalize(self, shared.end)  # and at the end of the process
        if len(shared.threads) < self._most:
            # No thread may hold on to the crew, which would never be forgotten then.
            thread = threading.Thread(target=shared.serve, name=self._name, daemon=True)
            shared.threads.append(thread)
            thread.start()
        return task

    def close(self) -> None:
        """Drop what waits, end what is at work at its next portion, and wait for that."""
        self._shared.stopped = True
        if self._forgotten is not None:
            self._shared.end()
            self._forgotten.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class _Shared:
    """What a crew and its threads have in common."""

    def __init__(self, owner: weakref.ref[Crew], patience: float | None, at_end: Callable[[], None] | None) -> None:
        self.owner = owner
        self.process = os.getpid()
        self.tasks: SimpleQueue[Task[Any] | None] = SimpleQueue()  # None: the thread that takes it ends
        self.running: set[Task[Any]] = set()
        self.threads: list[threading.Thread] = []
        self.stopped = False
        self._patience, self._at_end = patience, at_end

    def serve(self) -> None:
        """The life of a thread."""
        here.is_stopped = lambda: self.stopped
        try:
            while (task := self._next_task()) is not None:
                if self.stopped:
                    task.drop()
                else:
                    self.running.add(task)
                    task.run()
                    self.running.discard(task)
                del task  # and its result, while the thread waits for more
        finally:
            if self._at_end is not None:
                self._at_end()

    def _next_task(self) -> Task[Any] | None:
        while True:
            try:
                return self.tasks.get(timeout=_IDLE_SECONDS)
            except Empty:
                # An interrupt in the finalizer of a crew leaves nobody who would say that it is over.
                if self.stopped or self.owner() is None:
                    return None

    def end(self) -> None:
        """Close the crew. Whoever is interrupted in it may call it again."""
        if os.getpid() != self.process:
            return
        self.stopped = True
        # The end of each thread comes first, and one to spare, which stops the loop below: were they taken out to be
        # put back, an interrupt in between, in a finalizer that nobody calls again, would leave a thread for ever.
        for _ in range(len(self.threads) + 1):
            self.tasks.put(None)
        with contextlib.suppress(Empty):
            while (task := self.tasks.get_nowait()) is not None:
                task.drop()
        for thread in self.threads:
            # The collector may end a forgotten crew in any thread; an interrupt may have come before one was started.
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(self._patience)
        for task in list(self.running):  # of threads that can't be waited for
            task.drop()
