"""How much work a call does, counted instead of timed: the same number on a fast machine and on a busy one."""

import gc
import itertools
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def count(call: Callable[..., R], *arguments: object) -> tuple[int, R]:
    """The steps that a call takes in Python, in all the threads it starts, and its result.

    A step is a line that runs (each time around a loop), a function that is entered, resumed or left, or an
    exception on its way. What C does between two steps is not seen. The call is made twice and counted once: the
    first time it may import modules and fill caches, and a debugger or a coverage tool follows it.
    """
    call(*arguments)
    steps = itertools.count()

    def step(frame, event, arg):
        next(steps)
        return step

    before, before_in_threads, collects = sys.gettrace(), threading.gettrace(), gc.isenabled()
    gc.disable()  # it may call Python at any point
    threading.settrace(step)
    sys.settrace(step)
    try:
        result = call(*arguments)
    finally:
        sys.settrace(before)
        threading.settrace(before_in_threads)
        if collects:
            gc.enable()
    return next(steps), result


def check_linear(make: Callable[[int], T], use: Callable[[T], object], size: int) -> None:
    """Four times the input takes about four times the steps. If they grew with its square, it would be sixteen."""
    few, many = (count(use, make(n))[0] for n in (size, 4 * size))
    assert many <= 5 * few, f"{few} steps for {size}, {many} for {4 * size}"
