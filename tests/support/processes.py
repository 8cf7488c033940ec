"""Fails the last test of a file that leaves processes running. Looks at the processes where Linux lists them."""

import time
from pathlib import Path

import pytest

_TASKS = Path("/proc/self/task")
_PATIENCE = 10.0  # seconds for a process that was told to end
# Python starts one for each process that shares memory or semaphores, and ends it with that process.
_PYTHONS_OWN = "multiprocessing.resource_tracker"


def running():
    """(number, command line) of the children of this process that have not ended."""
    numbers = {number for path in _TASKS.glob("*/children") for number in path.read_text().split()}
    return sorted((number, command) for number in numbers if (command := _command(number)))


def _command(number):
    """The command line of a process; empty if it has ended, waited for or not."""
    try:
        return Path("/proc", number, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    result = yield
    if nextitem is None or nextitem.path != item.path:
        end = time.monotonic() + _PATIENCE
        while (left := [child for child in running() if _PYTHONS_OWN not in child[1]]) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left, f"{item.path.name} leaves processes running: {left}"
    return result
