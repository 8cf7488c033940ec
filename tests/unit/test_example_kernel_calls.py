"""Wrong calls of the kernel's functions over Examples: refused alike by both kernels, whatever the numbers say."""

import numpy as np
import pytest

from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import example_reference as reference
from tests.support.example_bytes import BYTES, FLOAT, INT64
from tests.support.wire_bytes import field

BOTH = [compiled, reference]
KERNELS = pytest.mark.parametrize("kernel", BOTH, ids=["compiled", "reference"])


def ints(*values):
    return np.array(values, np.int64)


PAIR = ints(0, 3).reshape(1, 2)
OUTSIDE = [ints(0, 4), ints(-1, 2), ints(2, 1), ints(0, (1 << 63) - 1), ints(-(1 << 63), 0), ints(5, 5)]
BIG = (1 << 63) - 1
THREE, VALUES, NOUGHT, FOUR = ints(0, 1, 2), ints(5, 6), ints(0), ints(4)


def bytes8(size):
    return np.zeros(size, np.uint8)


def locate_call(records=PAIR, keys=b"ab", offsets=THREE, lists=0, kinds=2, spans=4, notes=1):
    return "example_locate", b"abc", records, keys, offsets, lists, bytes8(kinds), ints(*[0] * spans), bytes8(notes)


def column_call(
    name, kind=INT64, steps=None, offsets=THREE, present=None, values=VALUES, bounds=None, first=0,
    rows=(0, 50), room=100,
):  # fmt: skip
    out = () if name == "example_sizes" else (bytes8(room),)
    return name, kind, b"k", steps, offsets, present, values, bounds, first, ints(*rows), *out


def column_calls(name):
    text = {"kind": BYTES, "values": b"abc"}
    return [
        column_call(name, kind=0),
        column_call(name, kind=4),
        column_call(name, kind=-1),
        column_call(name, offsets=ints(0, 1)),
        column_call(name, offsets=ints()),
        column_call(name, offsets=ints(0, 2, 1)),
        column_call(name, offsets=ints(-1, 1, 2)),
        column_call(name, offsets=ints(0, 1, 3)),
        column_call(name, offsets=ints(0, 1, BIG)),
        column_call(name, kind=FLOAT, offsets=ints(0, 1, 5)),
        column_call(name, first=-1),
        column_call(name, first=1),
        column_call(name, first=BIG),
        column_call(name, present=bytes8(1)),
        column_call(name, steps=ints(0, 1)),
        column_call(name, steps=ints(0, 1, 3)),
        column_call(name, steps=ints(0, 2, 1)),
        column_call(name, steps=ints(-1, 0, 1)),
        column_call(name, steps=ints(0, 1, 2), offsets=ints()),
        column_call(name, **text),
        column_call(name, **text, bounds=ints(0, 1)),
        column_call(name, **text, bounds=ints(0, 1, 4)),
        column_call(name, **text, bounds=ints(0, 2, 1)),
        column_call(name, **text, bounds=ints(-1, 1, 2)),
        column_call(name, offsets=np.zeros(6, np.int64)[::2]),
    ]


def frame_call(starts=NOUGHT, sizes=FOUR, lists=None, at=1, list_at=None, room=22, finish=False):
    places = None if list_at is None else ints(*[0] * list_at)
    return "example_frame", bytes8(room), starts, sizes, lists, ints(*[0] * at), places, finish


FRAME_CALLS = [
    {"starts": ints(1)},
    {"starts": ints(-1)},
    {"starts": ints(BIG)},
    {"sizes": ints(5)},
    {"sizes": ints(-1)},
    {"sizes": ints(BIG)},
    {"sizes": ints()},
    {"at": 0},
    {"lists": ints(0), "list_at": 1},
    {"lists": ints(-5), "list_at": 1, "room": 100},
    {"lists": ints(BIG), "list_at": 1, "room": 100},
    {"lists": ints(), "list_at": 1, "room": 100},
    {"lists": ints(0), "list_at": None, "room": 100},
    {"room": 21},
    {"room": 0},
]
WRONG = [
    *(locate_call(records=records) for records in (ints(0, 4), ints(-1, 1), ints(0, -1), ints(1, BIG), ints(BIG, 1))),
    *(locate_call(offsets=offsets) for offsets in (ints(), ints(0, 1, 3), ints(0, 2, 1), ints(-1, 1, 2), ints(0, BIG))),
    locate_call(lists=2),
    locate_call(lists=-1),
    locate_call(kinds=1),
    locate_call(spans=3),
    locate_call(notes=0),
    locate_call(keys=b"ba"),
    locate_call(keys=b"aa"),
    locate_call(keys=b"aba", offsets=ints(0, 2, 3)),
    locate_call(offsets=ints(0, 0, 0)),
    locate_call(records=np.zeros((2, 4), np.int64)[:, ::2]),
    *(("example_steps", b"abc", spans, ints(0, 0, 0), None, None) for spans in OUTSIDE),
    ("example_steps", b"abc", PAIR, ints(0), None, None),
    ("example_steps", b"abc", PAIR, ints(0, 0), bytes8(1), None),
    ("example_steps", b"abc", PAIR, ints(0, 0), None, ints(0, 0)),
    *(("example_count", b"abc", spans, BYTES, ints(0, 0, 0)) for spans in OUTSIDE),
    *(("example_count", b"abc", PAIR, kind, ints(0, 0)) for kind in (-1, 0, 4)),
    ("example_count", b"abc", PAIR, BYTES, ints(0)),
    *(("example_fill", b"abc", spans, INT64, -1, ints(0)) for spans in OUTSIDE),
    *(("example_fill", b"abc", PAIR, kind, -1, ints(0)) for kind in (-1, 0, BYTES, 4)),
    *(("example_fill_bytes", b"abc", spans, ints(0), bytes8(1)) for spans in OUTSIDE),
    ("example_fill_bytes", b"abc", PAIR, ints(), bytes8(1)),
    *column_calls("example_sizes"),
    *column_calls("example_write"),
    *(column_call("example_write", rows=rows) for rows in ((-1, 50), (0, 100), (0, 101), (BIG, 0), (0, 92))),
    column_call("example_write", room=0),
    *(frame_call(**changes, finish=finish) for changes in FRAME_CALLS for finish in (False, True)),
    ("example_record_sizes", ints(1, 2), None, ints(0)),
    ("example_record_sizes", ints(1, 2), ints(1), ints(0, 0)),
]


def test_right_calls_are_right():
    """What WRONG changes one thing of."""
    for name, *args in (locate_call(), column_call("example_sizes"), column_call("example_write"), frame_call()):
        for kernel in BOTH:
            assert outcome(getattr(kernel, name), args) is None


@KERNELS
@pytest.mark.parametrize("call", WRONG, ids=lambda call: call[0].removeprefix("example_"))
def test_wrong_calls_are_refused(kernel, call):
    name, *args = call
    args = [arg.copy() if isinstance(arg, np.ndarray) and arg.flags.c_contiguous else arg for arg in args]
    with pytest.raises((ValueError, IndexError)):
        getattr(kernel, name)(*args)


@KERNELS
def test_read_only_arrays_are_not_written_to(kernel):
    out = ints(0)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel.example_fill(field(1, b"\x05"), PAIR, INT64, -1, out)
    assert out.tolist() == [0]


def test_calls_made_at_random_agree():
    """Positions of any kind: the same refusal or the same result, and never a crash."""
    rng = np.random.default_rng(2)

    def some(most, low=-1, high=6):
        return rng.integers(low, high, rng.integers(0, most + 1)).astype(np.int64)

    refused = 0
    for _ in range(1000):
        spans, rising = some(6), np.sort(some(6))
        calls = [
            ("example_locate", b"\x0a\x02\x0a\x00", spans, b"ab", rising, 0, bytes8(9), some(30), bytes8(9)),
            ("example_steps", b"\x0a\x00\x0a\x00", spans, some(5), bytes8(2), some(4)),
            ("example_count", b"\x0a\x01\x05\x08", spans, int(rng.integers(0, 5)), some(5)),
            ("example_fill", b"\x0a\x01\x05\x08", spans, INT64, int(rng.integers(-1, 3)), some(3)),
            ("example_fill_bytes", b"\x0a\x01\x05\x08", spans, some(4), bytes8(2)),
        ]
        for name in ("example_sizes", "example_write"):
            kind = int(rng.integers(1, 4))
            steps = np.sort(some(5)) if rng.random() < 0.5 else None
            present = None if rng.random() < 0.5 else bytes8(3)
            calls.append(
                column_call(
                    name, kind, steps, rising, present, some(4), np.sort(some(6, high=40)), int(rng.integers(0, 2)),
                    some(3, high=30), 40,
                )
            )  # fmt: skip
        for name, *args in calls:
            results = [outcome(getattr(kernel, name), args) for kernel in BOTH]
            assert results[0] == results[1], (name, args)
            refused += results[0] == "refused"
    assert 1500 < refused < 6500


def outcome(function, args):
    try:
        result = function(*[arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args])
    except (ValueError, IndexError):
        return "refused"
    return result[0] if isinstance(result, tuple) else result
