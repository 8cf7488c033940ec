"""io/workers.py: order, bounds, errors in their turn, and no thread left at work."""

import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from contextlib import closing

import pytest

from tensorbytes._wire.portions import Stopped, portions
from tensorbytes.errors import UsageError
from tensorbytes.io import workers
from tensorbytes.io.workers import Ahead, Crew, ResultGate, map_in_order, run_pipeline, share

WAYS = {
    "map_in_order": lambda work, items: map_in_order(work, items, 3),
    "run_pipeline": lambda work, items: run_pipeline(work, items, 3),
}
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork of POSIX")


def left():
    return [thread for thread in threading.enumerate() if thread.name.startswith(workers.NAME)]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert left() == []


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


def run(code, timeout=60):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout.strip(), done.stderr


# ---- order and bounds -----------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
def test_results_come_in_the_order_of_the_items(way, count):
    slow = random.Random(count)

    def work(number):
        time.sleep(slow.random() / 1000)
        return number * number

    assert list(way(work, iter(range(count)))) == [number * number for number in range(count)]


@pytest.mark.parametrize(("threads", "items"), [(1, range(9)), (0, range(9)), (8, range(1)), (8, [])])
def test_one_thread_or_one_item_takes_no_thread(threads, items):
    for made in (map_in_order(lambda _: threading.get_ident(), items, threads),
                 run_pipeline(lambda _: threading.get_ident(), items, threads if len(items) else 1)):  # fmt: skip
        if threads < 2 or len(items) < 2:
            assert set(made) <= {threading.get_ident()}


def test_several_items_are_worked_on_at_once():
    together = threading.Barrier(3, timeout=30)
    assert len(list(map_in_order(lambda _: together.wait(), range(6), 3))) == 6


@pytest.mark.parametrize(("ahead", "most"), [(None, 3), (0, 0), (7, 7)])
def test_no_more_is_begun_than_may_wait(ahead, most):
    begun = []
    with closing(map_in_order(begun.append, range(100), 3, ahead)) as results:
        for number, _ in enumerate(results):
            assert len(begun) <= number + 1 + most
            if number == 50:
                break
    assert len(begun) <= 51 + most


def test_no_more_items_are_asked_for_than_may_wait():
    asked = []
    with closing(map_in_order(str, (asked.append(n) or n for n in range(100)), 2)) as results:
        next(results)
        assert asked == [0, 1, 2]


@pytest.mark.parametrize("depth", [1, 3])
def test_reading_ahead_keeps_within_its_depth(depth):
    made = []
    with Crew(1) as crew:
        items = Ahead((made.append(n) or n for n in range(100)), crew, depth)
        for number in range(40):
            assert next(items) == number
            assert len(made) <= number + 1 + depth


def test_reading_ahead_begins_before_anybody_asks():
    begun = threading.Event()

    def items():
        begun.set()
        yield 1

    with Crew(1) as crew:
        made = Ahead(items(), crew, 2)
        assert begun.wait(30)
        assert list(made) == [1]
        assert list(made) == []


def test_results_and_items_that_were_given_are_not_kept(way):
    class Thing:
        pass

    seen = []
    for made in way(lambda _: Thing(), range(30)):
        seen.append(weakref.ref(made))
        del made
        assert sum(thing() is not None for thing in seen) <= 2  # those that showed that there are several
    assert not any(thing() for thing in seen)


# ---- errors ---------------------------------------------------------------------


class Odd(Exception):
    pass


@pytest.mark.parametrize(("kind", "bad"), [(Odd, 0), (Odd, 1), (Odd, 2), (MemoryError, 7), (KeyboardInterrupt, 7)])
def test_an_error_of_the_work_comes_in_its_turn(way, bad, kind):
    def work(number):
        if number == bad:
            raise kind(number)
        return number

    got = []
    with pytest.raises(kind, match=str(bad)):
        got.extend(way(work, range(20)))  # which keeps what came before the error
    assert got == list(range(bad))
    assert left() == []


@pytest.mark.parametrize("bad", [0, 1, 2, 7])
def test_an_error_of_the_items_comes_in_its_turn(way, bad):
    def items():
        yield from range(bad)
        raise Odd(bad)

    got = []
    with pytest.raises(Odd):
        got.extend(way(lambda number: number, items()))  # which keeps what came before the error
    assert got == list(range(bad))
    assert left() == []


def test_an_error_holds_on_to_nothing():
    """Once it is dropped, what the work had at hand goes without the collector."""

    class Thing:
        pass

    seen = []

    def work(_):
        thing = Thing()
        seen.append(weakref.ref(thing))
        raise Odd

    gc.disable()
    try:
        for _ in range(3):
            try:
                with Crew(1) as crew:
                    crew.start(work, 1).take()
            except Odd:
                pass
        assert [thing() for thing in seen] == [None] * 3
    finally:
        gc.enable()


# ---- ending early ---------------------------------------------------------------


def test_closing_early_begins_nothing_more(way):
    begun = []

    def work(number):
        begun.append(number)
        return number

    results = way(work, range(1000))
    assert [next(results), next(results)] == [0, 1]
    results.close()
    assert left() == []
    count = len(begun)
    assert count < 12
    time.sleep(0.02)
    assert len(begun) == count


def test_closing_ends_long_work_at_its_next_portion(way):
    portions_done = []

    def work(number):
        if number >= 2:
            for _ in portions(1 << 40, 1):
                portions_done.append(number)
                time.sleep(0.001)
        return number

    results = way(work, range(20))
    assert next(results) == 0
    results.close()
    assert len(portions_done) < 10_000


def test_work_waits_until_the_results_before_it_were_used():
    order, used, seen = ResultGate(), [], []

    def work(number):
        order.wait_for(number)
        seen.append(list(used))
        return number

    for number in map_in_order(work, range(12), 3):
        used.append(number)
        order.advance()
    assert seen == [list(range(number)) for number in range(12)]


def test_closing_early_ends_work_that_waits_for_its_turn():
    order = ResultGate()
    with closing(map_in_order(order.wait_for, [0, 1, 2, 3], 3)) as results:
        next(results)  # and nobody says that it was used


def test_an_error_of_the_caller_ends_the_threads():
    with pytest.raises(Odd), closing(map_in_order(str, range(1000), 4)) as results:  # noqa: PT012
        next(results)
        raise Odd
    assert left() == []


def test_what_waits_is_dropped_and_says_so():
    begun, go_on = threading.Event(), threading.Event()
    with Crew(1) as crew:
        first = crew.start(lambda: begun.set() or go_on.wait(30))
        rest = [crew.start(go_on.wait) for _ in range(3)]
        begun.wait(30)
        threading.Timer(0.02, go_on.set).start()
    assert first.take() is True
    for task in rest:
        with pytest.raises(Stopped):
            task.take()
    assert crew.closed
    crew.close()
    with pytest.raises(Stopped):
        crew.start(go_on.wait).take()


def test_what_can_not_be_waited_for_is_left_alone_and_nobody_hangs():
    """A thread that waits for bytes which never come: closing goes on, and so does who waits for the result."""
    go_on, ended = threading.Event(), threading.Event()
    crew = Crew(1, patience=0.01, at_end=ended.set)
    task = crew.start(go_on.wait)
    waited = []

    def wait():
        try:
            task.take()
        except Stopped:
            waited.append(True)

    other = threading.Thread(target=wait)
    other.start()
    crew.close()
    other.join(30)
    assert waited == [True]
    assert not ended.is_set()
    go_on.set()
    for thread in crew.threads:
        thread.join(30)
    assert ended.is_set()


def test_a_crew_that_is_forgotten_ends():
    ended = threading.Event()
    crew = Crew(2, at_end=ended.set)
    assert crew.start(int, "7").take() == 7
    threads = list(crew.threads)
    del crew
    gc.collect()
    for thread in threads:
        thread.join(30)
    assert ended.is_set()


def test_a_crew_that_the_collector_finds_in_its_own_thread():
    """It ends without waiting for itself."""

    class Holder:
        pass

    holder = Holder()
    holder.me, holder.crew = holder, Crew(1)
    threads = holder.crew.threads
    ready, go_on = threading.Event(), threading.Event()

    def collect():
        ready.set()
        go_on.wait(30)
        gc.collect()

    holder.crew.start(collect)
    ready.wait(30)
    gc.disable()
    try:
        del holder
        go_on.set()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    finally:
        gc.enable()


def test_the_end_of_the_process_waits_for_nobody_who_is_idle():
    code = """
        from tensorbytes.io.workers import Ahead, Crew, ResultGate, map_in_order, run_pipeline
        import itertools
        results = map_in_order(str, itertools.count(), 3)
        items = run_pipeline(int, itertools.count(), 2)
        crew = Crew(1)
        ahead = Ahead(itertools.count(), crew, 4)
        print(next(results), next(items), next(ahead))
    """
    assert run(code)[:2] == (0, "0 0 0")


def test_a_crew_whose_finalizer_was_interrupted_ends(monkeypatch):
    monkeypatch.setattr(workers, "_IDLE_SECONDS", 0.01)
    crew = Crew(1)
    assert crew.start(lambda: 5).take() == 5
    (thread,) = crew.threads
    crew._forgotten.detach()  # as an interrupt between its call and its work leaves it
    del crew
    thread.join(20)
    assert not thread.is_alive()


def test_an_interrupt_while_a_crew_is_ended_again_leaves_no_thread():
    class Interrupting:
        """A queue whose reader is interrupted right after it took something."""

        def __init__(self, queue):
            self.queue, self.put, self.get = queue, queue.put, queue.get

        def get_nowait(self):
            self.queue.get_nowait()
            raise KeyboardInterrupt

    crew, busy, done = Crew(1, patience=0.01), threading.Event(), threading.Event()
    crew.start(lambda: (busy.set(), done.wait(20)))
    assert busy.wait(20)
    crew.close()  # the thread is at work, and is not waited for
    crew._shared.tasks = Interrupting(crew._shared.tasks)
    with pytest.raises(KeyboardInterrupt):
        crew._shared.end()
    done.set()
    crew.threads[0].join(20)
    assert not crew.threads[0].is_alive()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers of POSIX")
@pytest.mark.parametrize("name", WAYS)
def test_an_interrupt_comes_through_and_leaves_no_thread(name):
    code = f"""
        import faulthandler, random, signal, sys, time, traceback
        from tensorbytes.io.workers import map_in_order, run_pipeline
        way = {{
            "map_in_order": lambda work, items: map_in_order(work, items, 3),
            "run_pipeline": lambda work, items: run_pipeline(work, items, 3),
        }}[{name!r}]
        def work(n):
            time.sleep(0.0002)
            return n
        random.seed(1)
        stops = 0
        for _ in range(40):
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + random.random() / 100, 0.3)
                while True:
                    assert list(way(work, range(20))) == list(range(20))
            except (KeyboardInterrupt, RuntimeError) as error:  # as of threading.Condition, which starting one uses
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert KeyboardInterrupt in (type(error), type(error.__context__)), repr(error)
                stops += 1
        # Those that run: an interrupt in Thread.start() may leave one that never began, or that waits for its lock.
        def runs(frame):
            names = [at.f_code.co_name for at, _ in traceback.walk_stack(frame)]
            return "_bootstrap_inner" not in names or "run" in names
        threads = lambda: sum(map(runs, sys._current_frames().values()))
        end = time.monotonic() + 20
        while threads() > 1 and time.monotonic() < end:
            time.sleep(0.01)
        if threads() > 1:
            faulthandler.dump_traceback(all_threads=True)  # what they wait for
        print(stops, threads())
    """
    code, said, errors = run(code)
    assert (code, said) == (0, "40 1"), errors


def test_an_interrupt_loses_no_item():
    """Whoever goes on after it gets the next one."""
    if not hasattr(signal, "setitimer"):
        pytest.skip("needs timers of POSIX")
    go_on = threading.Event()

    def items():
        yield 1
        go_on.wait(30)
        yield 2

    def stop(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with Crew(1) as crew:
            made = Ahead(items(), crew, 3)
            assert next(made) == 1
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(KeyboardInterrupt):
                next(made)
            go_on.set()
            assert list(made) == [2]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- forks ----------------------------------------------------------------------


@needs_fork
def test_a_child_works_anew_and_neither_goes_on_nor_hangs():
    code = """
        import itertools, os, time
        from tensorbytes.errors import UsageError
        from tensorbytes.io.workers import Ahead, Crew, ResultGate, map_in_order, run_pipeline
        def slow(n):
            time.sleep(0.2)
            return n
        crew, results = Crew(2), map_in_order(slow, itertools.count(), 3)
        assert next(results) == 0
        other = Crew(1)
        begun = [results, Ahead(map(slow, itertools.count()), other, 2)]
        task = crew.start(slow, 5)
        child = os.fork()
        if not child:
            refused = 0
            for one in (task.take, lambda: next(begun[1]), lambda: crew.start(int)):
                try:
                    one()
                except UsageError as error:
                    refused += "fork" in str(error)
            assert crew.forked
            crew.close()
            begun[0].close()
            other.close()
            del begun, crew, other
            fine = list(map_in_order(str, range(9), 3)) == list("012345678")
            fine = fine and list(run_pipeline(str, "abc", 2)) == list("abc")
            os._exit(0 if fine and refused == 3 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print(task.take(), next(begun[0]), next(begun[1]), crew.forked)
        for one in (crew, other, results):
            one.close()
    """
    code, said, errors = run(code)
    assert (code, said) == (0, "5 1 0 False"), errors


@needs_fork
def test_an_iteration_that_was_begun_before_a_fork_is_refused_in_the_child(tmp_path):
    code = f"""
        import os, sys
        import numpy as np, tensorbytes as tb
        path = {str(tmp_path / "x.tfrecord")!r}
        with tb.RecordWriter(path) as writer:
            writer.write_batch({{"x": np.zeros((4000, 1000), np.float32)}})
        rows = iter(tb.open_records(path, threads=3).batches(10)); next(rows)
        if not (child := os.fork()):
            try:
                for _ in rows: pass
                os._exit(1)
            except tb.errors.UsageError as error:
                os._exit(0 if "fork" in str(error) else 2)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sum(len(batch["x"]) for batch in rows))
    """
    code, said, errors = run(code)
    assert (code, said) == (0, "0 3990"), errors


def test_a_task_refuses_to_wait_in_a_child(monkeypatch):
    with Crew(1) as crew:
        go_on = threading.Event()
        task = crew.start(go_on.wait)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            with pytest.raises(UsageError, match="fork"):
                task.take()
        go_on.set()
        assert task.take() is True


# ---- work without results, shared -----------------------------------------------


@pytest.mark.parametrize("threads", [0, 1, 2, 5])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_all_items_are_done_once(count, threads):
    done = []
    share(done.append, range(count), threads)
    assert sorted(done) == list(range(count))


def test_the_caller_and_others_share_the_work():
    together = threading.Barrier(3, timeout=30)
    seen = set()

    def work(number):
        seen.add(threading.get_ident())
        together.wait()

    share(work, range(9), 3)
    assert len(seen) >= 3
    assert threading.get_ident() in seen


def test_the_caller_is_called_after_items_of_its_own():
    calls, mine = [], []

    def work(number):
        if threading.get_ident() == here:
            mine.append(number)

    here = threading.get_ident()
    share(work, range(40), 3, lambda: calls.append(threading.get_ident()))
    assert calls == [here] * len(mine)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_of_several_errors_that_of_the_first_item_is_raised(threads):
    slow = random.Random(threads)
    for _ in range(30):
        done = []

        def work(number, done=done):
            time.sleep(slow.random() / 2000)
            if number in (5, 6, 7):
                raise Odd(number)
            done.append(number)

        with pytest.raises(Odd) as caught:
            share(work, range(40), threads)
        assert caught.value.args == (5,)
        assert set(range(5)) <= set(done)
        assert len(done) < 40


def test_an_interrupt_stops_the_others_at_their_next_portion():
    begun = threading.Event()

    def work(number):
        if number:
            begun.set()
            for _ in portions(1 << 40, 1):
                time.sleep(0.001)
        begun.wait()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        share(work, range(3), 2)


def test_without_more_threads_the_caller_does_it_all(monkeypatch):
    def refuse(*args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers._thread, "start_new_thread", refuse)
    done = []
    share(done.append, range(9), 4)
    assert done == list(range(9))


def test_in_a_crew_that_is_closed_shared_work_stops():
    begun = threading.Event()

    def work(number):
        begun.set()
        for _ in portions(1 << 40, 1):
            time.sleep(0.001)

    with Crew(1) as crew:
        task = crew.start(share, work, range(4), 2)
        begun.wait()
    with pytest.raises(Stopped):
        task.take()
