"""The counter of tests/support/work.py: it sees loops, calls and threads, and leaves the process as it was."""

import gc
import sys
import threading

import pytest

from tests.support.work import check_linear, count


def each(n):
    for _ in range(n):
        pass


def pairs(n):
    for _ in range(n):
        for _ in range(n):
            pass


WAYS = {
    "a loop": (each, pairs),
    "a comprehension": (lambda n: [i for i in range(n)], lambda n: [j for i in range(n) for j in range(n)]),  # noqa: C416
    "a generator": (lambda n: sum(i for i in range(n)), lambda n: sum(j for i in range(n) for j in range(n))),
    "calls": (lambda n: list(map(each, [0] * n)), lambda n: list(map(each, [n] * n))),
}


@pytest.mark.parametrize("way", WAYS)
def test_linear_and_quadratic_work_are_told_apart(way):
    linear, quadratic = WAYS[way]
    check_linear(int, linear, 100)
    few, many = (count(quadratic, n)[0] for n in (100, 400))
    assert 14 < many / few < 17
    with pytest.raises(AssertionError, match=f"{few} steps for 100, {many} for 400"):
        check_linear(int, quadratic, 100)


def test_the_same_call_takes_the_same_steps():
    def call():
        return sorted({f"{i}": i for i in range(100)}, key=lambda name: name[::-1])

    assert count(call) == count(call)


def test_the_first_call_is_not_counted():
    calls = []

    def call():
        each(0 if calls else 1000)
        calls.append("made")
        return len(calls)

    steps, result = count(call)
    assert steps < 100
    assert result == 2


def test_threads_count():
    def call():
        thread = threading.Thread(target=each, args=(1000,))
        thread.start()
        thread.join()

    assert count(call)[0] > count(each, 1000)[0]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_left_as_it_was(fails):
    made = []

    def call():
        made.append(sys.gettrace())
        if fails and len(made) == 2:
            raise KeyError

    def debugger(frame, event, arg):
        return None

    def state():
        return sys.gettrace(), threading.gettrace(), gc.isenabled()

    was = state()
    sys.settrace(debugger)
    threading.settrace(debugger)
    try:
        if fails:
            with pytest.raises(KeyError):
                count(call)
        else:
            count(call)
        left = state()
    finally:
        sys.settrace(was[0])
        threading.settrace(was[1])
    assert left == (debugger, debugger, was[2])
    assert made[0] is debugger
    assert made[1] not in (debugger, None)
