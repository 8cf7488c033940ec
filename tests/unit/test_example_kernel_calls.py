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


def records_call(
    kind=INT64, steps=None, offsets=THREE, present=None, values=VALUES, bounds=None, order=None, first=0, count=2,
    room=100, as_list=False,
):  # fmt: skip
    column = (kind, b"k", steps, offsets, present, values, bounds)
    parts = ([], [column]) if as_list else ([column], None)
    return "example_records", *parts, order, first, bytes8(room), ints(*[0] * count)


def wrong_records():
    text = {"kind": BYTES, "values": b"abc"}
    return [
        records_call(kind=0),
        records_call(kind=4),
        records_call(kind=-1),
        records_call(offsets=ints(0, 1)),
        records_call(offsets=ints()),
        records_call(offsets=ints(0, 2, 1)),
        records_call(offsets=ints(-1, 1, 2)),
        records_call(offsets=ints(0, 1, 3)),
        records_call(offsets=ints(0, 1, BIG)),
        records_call(kind=FLOAT, offsets=ints(0, 1, 5)),
        records_call(first=-1),
        records_call(first=1),
        records_call(first=BIG),
        records_call(present=bytes8(1)),
        records_call(steps=ints(0, 1)),
        records_call(steps=ints(0, 1, 3)),
        records_call(steps=ints(0, 2, 1)),
        records_call(steps=ints(-1, 0, 1)),
        records_call(steps=ints(0, 1, 2), offsets=ints()),
        records_call(**text),
        records_call(**text, bounds=ints(0, 1)),
        records_call(**text, bounds=ints(0, 1, 4)),
        records_call(**text, bounds=ints(0, 2, 1)),
        records_call(**text, bounds=ints(-1, 1, 2)),
        records_call(offsets=np.zeros(6, np.int64)[::2]),
        records_call(order=ints(0)),
        records_call(order=ints(0, 2)),
        records_call(order=ints(0, -1)),
        records_call(order=ints(0, BIG)),
        records_call(order=ints(0, 1), first=1),
        records_call(order=ints(0, 1), first=BIG),
        records_call(order=ints(1, 0), present=bytes8(1)),
        records_call(count=3),
        records_call(as_list=True, offsets=ints(0, 1)),
        records_call(as_list=True, steps=ints(0, 1, 3)),
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
    *wrong_records(),
    ("bytes_offsets", [b"a", b"b"], ints(0, 0)),
    ("bytes_offsets", [], ints()),
]


def test_right_calls_are_right():
    """What WRONG changes one thing of."""
    for call, right in (
        (locate_call(), None),
        (records_call(), 2),
        (records_call(order=ints(1, 0)), 2),
        (records_call(as_list=True, steps=THREE), 2),
        (records_call(room=0), 0),
    ):
        name, *args = call
        for kernel in BOTH:
            assert outcome(getattr(kernel, name), args) == right


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
        for as_list in (False, True):
            calls.append(
                records_call(
                    kind=int(rng.integers(1, 4)),
                    steps=np.sort(some(5)) if rng.random() < 0.5 else None,
                    offsets=rising,
                    present=None if rng.random() < 0.5 else bytes8(3),
                    values=some(4),
                    bounds=np.sort(some(6, high=40)),
                    order=some(4) if rng.random() < 0.3 else None,
                    first=int(rng.integers(0, 2)),
                    count=int(rng.integers(0, 4)),
                    room=60,
                    as_list=as_list,
                )
            )
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
