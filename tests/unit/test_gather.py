"""Records read by their places: compiled against reference."""

import os

import numpy as np
import pytest

from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import reference

pytestmark = pytest.mark.skipif(not hasattr(os, "preadv"), reason="files are read at a place")
BOTH = [compiled, reference]
KERNELS = pytest.mark.parametrize("kernel", BOTH, ids=["compiled", "reference"])
PAYLOADS = [bytes([n]) * (n * 37 % 200) for n in range(30)]
BEFORE = 100  # bytes before the first record


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(bytes(BEFORE) + _wire.frames([[payload] for payload in PAYLOADS]))
    return path


def places():
    lengths = np.array([*map(len, PAYLOADS)])
    starts = np.cumsum(lengths + 16) - lengths - 4
    return np.stack([starts, lengths], axis=1)


def gathered(kernel, path, wanted, room=None):
    size = int(wanted[:, 1].sum()) + 16 * len(wanted) if room is None else room
    out, moved = np.zeros(size, np.uint8), np.zeros_like(wanted)
    with open(path, "rb") as file:
        count = kernel.gather(file.fileno(), BEFORE, wanted, moved, out)
    return count, [out[start : start + length].tobytes() for start, length in moved[:count].tolist()]


@KERNELS
@pytest.mark.parametrize("which", [[], [0], [29], [*range(30)], [3, 4, 5, 9], [9, 3, 4, 3, 3], [*range(29, -1, -1)]])
def test_records_come_in_the_order_that_is_asked_for(kernel, which, path):
    assert gathered(kernel, path, places()[which]) == (len(which), [PAYLOADS[n] for n in which])


@KERNELS
def test_every_flipped_bit_stops_at_its_record(kernel, path):
    raw, wanted = path.read_bytes(), places()[:8]
    for at in range(BEFORE, BEFORE + int(wanted[-1].sum()) + 4):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :])
        number = int(np.searchsorted(wanted[:, 0] - 12, at - BEFORE, side="right")) - 1
        assert gathered(kernel, path, wanted)[0] == number


@KERNELS
def test_files_that_end_sooner_and_other_places_are_not_sound(kernel, path):
    raw, wanted = path.read_bytes(), places()
    for size in (0, BEFORE, BEFORE + 5, len(raw) - 1):
        path.write_bytes(raw[:size])
        assert gathered(kernel, path, wanted)[0] == (29 if size == len(raw) - 1 else 0)
    path.write_bytes(raw)
    for change in ((1, 0), (0, 1), (0, -1), (16, -16), (1 << 40, 0)):
        assert gathered(kernel, path, wanted[20:21] + change)[0] == 0


@KERNELS
def test_where_there_is_no_room_reading_stops(kernel, path):
    whole = np.cumsum(places()[:, 1] + 16)
    for room in (0, 15, int(whole[4]) - 1, int(whole[4]), int(whole[4]) + 1):
        assert gathered(kernel, path, places(), room)[0] == np.count_nonzero(whole <= room)


@KERNELS
@pytest.mark.parametrize("place", [(11, 0), (-1, 0), (12, -1), (1 << 61, 0), (12, 1 << 61), (-(1 << 63), 5)])
def test_places_that_are_none_are_refused(kernel, place, path):
    with pytest.raises(ValueError, match="a place is no record's"):
        gathered(kernel, path, np.array([place]), 100)


@KERNELS
def test_wrong_calls_are_refused(kernel, path):
    wanted, out = places()[:2], np.zeros(500, np.uint8)
    with open(path, "rb") as file:
        for fd, origin in ((-1, 0), (file.fileno(), -1), (file.fileno(), 1 << 62)):
            with pytest.raises(IndexError):
                kernel.gather(fd, origin, wanted, wanted.copy(), out)
        with pytest.raises(ValueError, match="the arrays don't fit"):
            kernel.gather(file.fileno(), 0, wanted, np.zeros((1, 2), np.int64), out)
        with pytest.raises((BufferError, ValueError, TypeError)):
            kernel.gather(file.fileno(), 0, wanted, wanted.copy(), bytes(500))
