"""Which of the chosen tests are run: a slice of them, or those that stand for all that use the kernel.

`--slice 2/12` takes the second twelfth of them.

`--kernel-users 5` takes those that show whether the reference kernel does as the compiled one. A run with the compiled
kernel notes for each test which functions of `tensorbytes._wire` it calls, from which function of the package, and
keeps that in pytest's cache. Then there are taken: all tests of files that import the kernel themselves; of the others
enough for each of these calls to be made by five tests, the quick ones first; one in twenty of the rest; and tests
that were not noted yet. `make test` asks for 5, `make test-deep` for 50.
"""

import functools
import sys
import types
import zlib
from collections import Counter

import pytest

from tensorbytes import _wire

ONE_IN = 20  # of all others
_CACHE = "tensorbytes/kernel_calls"
_PROPERTY = "calls of the kernel"
_UNKNOWN = (0, None)  # the tenths of a second that a test took, and its calls
_calls = set()  # (function of the kernel, code that called it), of the test at hand


def _noted(name, function):
    @functools.wraps(function)
    def call(*arguments, **options):
        _calls.add((name, sys._getframe(1).f_code))
        return function(*arguments, **options)

    return call


# Before any module of the package takes a function from there under a name of its own.
if _wire.ACCELERATED:
    for _name in _wire.__all__:
        if isinstance(getattr(_wire, _name), types.BuiltinFunctionType):  # others are the same in both kernels
            setattr(_wire, _name, _noted(_name, getattr(_wire, _name)))


def pytest_addoption(parser):
    parser.addoption("--slice", metavar="K/N", help="run the K-th of N parts of the chosen tests, K from 1 to N")
    parser.addoption(
        "--kernel-users", type=int, metavar="N", help="run N tests for each call of the kernel, and some of the others"
    )


def pytest_configure(config):
    if _wire.ACCELERATED and hasattr(config, "cache") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Notes(config.cache))


def pytest_collection_modifyitems(config, items):
    part, parts = parse_slice(config.getoption("slice") or "1/1")
    chosen = [item for item in items if _number(item) % parts == part - 1]
    if enough := config.getoption("kernel_users"):
        chosen = kernel_users(chosen, config.cache.get(_CACHE, {}), enough)
    kept = set(chosen)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = chosen


def parse_slice(text):
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise pytest.UsageError(f"--slice {text}: expected K/N with K from 1 to N, such as 2/12")
    return int(part), int(parts)


def kernel_users(items, noted, enough):
    """The tests that are run again with the reference kernel, in their order."""
    seen, taken = Counter(), set()
    for item in sorted(items, key=lambda item: (noted.get(item.nodeid, _UNKNOWN)[0], _number(item))):
        calls = noted.get(item.nodeid, _UNKNOWN)[1]
        wanted = calls is None or _imports_kernel(item.module) or any(seen[call] < enough for call in calls)
        if wanted or _number(item) % ONE_IN == 0:
            taken.add(item)
            seen.update(calls or ())
    return [item for item in items if item in taken]


def _imports_kernel(module):
    """Whether a file of tests has the kernel, or a part of it, under some name."""
    names = (
        getattr(x, "__name__" if isinstance(x, types.ModuleType) else "__module__", "") for x in vars(module).values()
    )
    return any(isinstance(name, str) and name.startswith("tensorbytes._wire") for name in names)


def _number(item):
    return zlib.crc32(item.nodeid.encode())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    _calls.clear()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "teardown":
        places = {(name, code.co_filename.rpartition("tensorbytes/")[2], code.co_name) for name, code in _calls.copy()}
        report.user_properties.append((_PROPERTY, [" ".join(place) for place in sorted(places)]))
    return report


class _Notes:
    """Gathers what all workers note."""

    def __init__(self, cache):
        self._cache = cache
        self._calls = cache.get(_CACHE, {})
        self._took = {}

    def pytest_runtest_logreport(self, report):
        self._took[report.nodeid] = self._took.get(report.nodeid, 0) + report.duration
        if report.when == "teardown":
            tenths = int(10 * self._took.pop(report.nodeid))
            self._calls[report.nodeid] = [tenths, dict(report.user_properties)[_PROPERTY]]

    def pytest_sessionfinish(self):
        self._cache.set(_CACHE, self._calls)
