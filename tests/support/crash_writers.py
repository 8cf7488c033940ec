"""Both kinds of writers of streams, and what is there afterwards."""

from pathlib import Path

import pytest

import tensorbytes as tb


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def stream(path, mode="w"):
    return tb.open(path, mode)


def records(path, mode="w"):
    return tb.RecordWriter(path, mode=mode, sidecar=False)


def read(path, opened=stream):
    if opened is stream:
        with tb.open(path) as found:
            return [int(one["x"]) for one in found]
    return [int(row["x"]) for row in tb.open_records(path)]


writers = pytest.mark.parametrize("opened", [stream, records])
