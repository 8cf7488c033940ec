"""Records read by their numbers, out of several files: compiled against reference."""

import contextlib
import itertools
import os
import sys

import numpy as np
import pytest

from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import reference

pytestmark = pytest.mark.skipif(not hasattr(os, "pread"), reason="files are read at a place")
KERNELS = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])
# A file is read from a map, or by its number. The reference kernel has no maps.
WAYS = pytest.mark.parametrize(
    ("kernel", "mapped"),
    [(compiled, True), (compiled, False), (reference, False)],
    ids=["maps", "compiled", "reference"],
)
PAYLOADS = [bytes([n]) * (n * 37 % 200) for n in range(30)]
FILES = (7, 0, 20, 3)  # the records of each
STARTS = np.cumsum([0, *FILES])
MOST = 1 << 20


@pytest.fixture
def paths(tmp_path):
    made = [tmp_path / str(number) for number in range(len(FILES))]
    for path, start, end in zip(made, STARTS[:-1], STARTS[1:], strict=True):
        path.write_bytes(_wire.frames([[payload] for payload in PAYLOADS[start:end]]))
    return made


def places():
    found = []
    for start, end in itertools.pairwise(STARTS):
        lengths = np.array([*map(len, PAYLOADS[start:end])], np.int64)
        found.append(np.stack([np.cumsum(lengths + 16) - lengths - 4, lengths], axis=1))
    return np.concatenate(found)


def gathered(kernel, mapped, paths, which, table=None, most=MOST, order=None):
    """The payloads; None if the kernel gives none."""
    numbers, touched = np.array(which, np.int64), bytearray(len(paths))
    moved = np.full((len(which), 2), -1)
    order = np.argsort(numbers, kind="stable") if order is None else np.array(order, np.int64)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(path, "rb")) for path in paths]
        sources = tuple(file.fileno() for file in files)
        if mapped and sys.platform == "linux":
            maps = [kernel.map_file(file.fileno(), os.path.getsize(file.name)) for file in files]
            assert [made is None for made in maps] == [not os.path.getsize(path) for path in paths]
            sources = tuple(fd if made is None else made for made, fd in zip(maps, sources, strict=True))
        table = places() if table is None else table
        data = kernel.gather(sources, STARTS, table, numbers, order, moved, touched, most)
    if data is None:
        return None
    owners = np.searchsorted(STARTS, numbers, side="right") - 1
    assert set(np.flatnonzero(touched)) == set(owners.tolist())
    return [data[start : start + length] for start, length in moved.tolist()]


@WAYS
@pytest.mark.parametrize(
    "which", [[], [0], [29], [*range(30)], [3, 4, 5, 9], [9, 3, 28, 4, 3, 3], [*range(29, -1, -1)], [7, 26, 27, 6]]
)
def test_records_come_in_the_order_that_is_asked_for(kernel, mapped, which, paths):
    wanted = [PAYLOADS[n] for n in which]
    assert gathered(kernel, mapped, paths, which) == wanted
    assert gathered(kernel, mapped, paths, which, order=range(len(which))) == wanted


@WAYS
def test_every_flipped_bit_is_seen(kernel, mapped, paths):
    raw = paths[0].read_bytes()
    for at in range(len(raw)):
        paths[0].write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
        number = int(np.searchsorted(places()[:7, 0] - 12, at, side="right")) - 1
        assert gathered(kernel, mapped, paths, [20, number]) is None
        others = [n for n in range(9) if n != number]
        assert gathered(kernel, mapped, paths, others) == [PAYLOADS[n] for n in others]


@WAYS
def test_files_that_end_sooner_and_other_places_are_not_sound(kernel, mapped, paths):
    raw = paths[2].read_bytes()
    for size in (0, 5, len(raw) - 1):
        paths[2].write_bytes(raw[:size])
        assert gathered(kernel, mapped, paths, [0, 26]) is None
        assert gathered(kernel, mapped, paths, [0, 28]) == [PAYLOADS[0], PAYLOADS[28]]
    paths[2].write_bytes(raw)
    for change in ((1, 0), (0, 1), (0, -1), (16, -16), (1 << 40, 0)):
        assert gathered(kernel, mapped, paths, [20], places() + change) is None


@pytest.mark.skipif(sys.platform != "linux", reason="maps are used on Linux")
@pytest.mark.parametrize("size", [0, 1, 4096, 40960 + 7])
def test_a_file_that_is_cut_under_its_map_is_no_more_than_missing(size, tmp_path):
    """A process that reads such memory itself is ended by SIGBUS."""
    path = tmp_path / "x"
    payloads = [bytes([n]) * 3000 for n in range(100)]
    path.write_bytes(_wire.frames([[payload] for payload in payloads]))
    table = np.array([(12 + 3016 * n, 3000) for n in range(100)])
    with open(path, "r+b") as file:
        made = compiled.map_file(file.fileno(), os.path.getsize(path))
        file.truncate(size)

        def read(which):
            numbers, moved = np.array(which), np.empty((len(which), 2), np.int64)
            return compiled.gather(
                (made,), np.array([0, 100]), table, numbers, np.arange(len(which)), moved, bytearray(1), MOST
            )

        assert [read([0, 99]), read(range(100)), read([50])] == [None, None, None]
        kept = size // 3016
        assert (read(range(kept)) or b"")[12:3012] == (payloads[0] if kept else b"")


@WAYS
def test_no_more_is_read_than_is_allowed(kernel, mapped, paths):
    whole = np.cumsum(places()[:, 1] + 16)
    for most in (0, 15, int(whole[4]) - 1, int(whole[4]), int(whole[4]) + 1):
        for count in range(1, 8):
            found = gathered(kernel, mapped, paths, range(count), most=most)
            assert found == (PAYLOADS[:count] if whole[count - 1] <= most else None)


@KERNELS
def test_files_that_are_not_open_are_told(kernel, paths):
    numbers, moved, touched = np.array([28, 3]), np.empty((2, 2), np.int64), bytearray(4)
    with open(paths[0], "rb") as file:
        sources = (file.fileno(), None, None, None)
        arguments = places(), numbers, np.array([1, 0]), moved, touched, MOST
        assert kernel.gather(sources, STARTS, *arguments) is None
    assert list(touched) == [1, 0, 0, 1]


@KERNELS
@pytest.mark.parametrize("place", [(11, 0), (-1, 0), (12, -1), (1 << 61, 0), (12, 1 << 61), (-(1 << 63), 5)])
def test_places_that_are_none_are_refused(kernel, place, paths):
    table = places()
    table[20] = place
    with pytest.raises(ValueError, match="no record's"):
        gathered(kernel, False, paths, [20], table)


@KERNELS
def test_wrong_calls_are_refused(kernel, paths):
    for which, order in (([30], [0]), ([-1], [0]), ([3], [1]), ([3], [-1])):
        with pytest.raises(ValueError, match="no record's"):
            gathered(kernel, False, paths, which, order=order)
    fds, table, one, moved = (-1, None, None, None), places(), np.zeros(1, np.int64), np.zeros((1, 2), np.int64)
    with pytest.raises(IndexError):
        kernel.gather(fds, STARTS, table, one, one, moved, bytearray(4), MOST)
    sources = (None,) * 4
    for starts, table, order, room, touched in (
        (STARTS[1:], places(), one, moved, 4),
        (STARTS + 1, places(), one, moved, 4),
        (STARTS[::-1].copy(), places(), one, moved, 4),
        (STARTS, places()[:29], one, moved, 4),
        (STARTS, places(), one[:0], moved, 4),
        (STARTS, places(), one, moved[:0], 4),
        (STARTS, places(), one, moved, 3),
    ):
        with pytest.raises(ValueError, match="the arrays don't fit"):
            kernel.gather(sources, starts, table, one, order, room, bytearray(touched), MOST)
    with pytest.raises((BufferError, ValueError, TypeError)):
        kernel.gather(sources, STARTS, places(), one, one, bytes(16), bytearray(4), MOST)
    for fd, size in ((-1, 5), (0, -1)):
        with pytest.raises(IndexError):
            kernel.map_file(fd, size)
    assert kernel.map_file(1 << 20, 5) is None  # no such file
