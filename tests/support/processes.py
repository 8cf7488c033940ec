"""Fails the last test of a file that leaves processes running. Looks at the processes where Linux lists them."""

import os
import time
from pathlib import Path

import pytest

_PATIENCE = 10.0  # seconds for a process that was told to end
# Python starts one for each process that shares memory or semaphores, and ends it with that process.
_PYTHONS_OWN = "multiprocessing.resource_tracker"


def running():
    """(number, command line) of the children of this process that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.append((folder.name, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()))
        except OSError:  # it has ended meanwhile
            continue
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    result = yield
    if nextitem is None or nextitem.path != item.path:
        end = time.monotonic() + _PATIENCE
        while (left := [child for child in running() if _PYTHONS_OWN not in child[1]]) and time.monotonic() < end:
            time.sleep(0.05)
        assert not left, f"{item.path.name} leaves processes running: {left}"
    return result
