"""The catalogue of hostile_cases.py, case by case, and those that a table can't hold."""

import io

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors
from tests.support import ROOT
from tests.support.hostile_cases import CASES, ELSEWHERE, NOT_HERE, Refused, Shaped
from tests.support.tiers import deep_but
from tests.support.wire_bytes import (
    END_GROUP,
    META,
    PADDING,
    START_GROUP,
    STRING,
    entry,
    field,
    framed,
    int64s,
    key_step,
    layout,
    number,
    place,
    tag,
    tensor,
)
from tests.support.work import check_linear, count

ROWS = [
    pytest.param(case, id=f"{number}-{title}-{variant}".replace(" ", "_"))
    for number, (title, variants) in sorted(CASES.items())
    for variant, case in variants.items()
]


def test_every_number_has_a_place():
    listed = [*CASES, *ELSEWHERE, *NOT_HERE]
    assert sorted(listed) == [*range(1, 40), *range(60, 81)]
    for test in ELSEWHERE.values():
        file, name = test.split(": ")
        assert f"def {name}" in (ROOT / "tests" / file).read_text(), test


def load(case):
    """What a case gives, or the error where one is due."""
    if not isinstance(case.expected, Refused):
        return tb.loads(case.raw, case.format, **case.options)
    with pytest.raises(case.expected.kind, match=case.expected.words) as caught:
        tb.loads(case.raw, case.format, **case.options)
    return caught.value


@pytest.mark.parametrize("case", ROWS)
def test_case(case):
    long = len(case.raw) > 1 << 20  # then test_work_grows_no_faster_than_the_input counts
    steps, found = (0, load(case)) if long else count(load, case)
    if isinstance(case.expected, Refused):
        assert type(found) is case.expected.kind
        if isinstance(found, errors.CorruptError):
            assert 0 <= found.at <= len(case.raw)
    elif isinstance(case.expected, Shaped):
        assert found.shape == case.expected.dims
    else:
        assert (list(map(np.ndarray.tolist, found)) if isinstance(found, list) else found.tolist()) == case.expected
    assert steps <= 10_000 + 100 * len(case.raw)  # most take a thousand, those of many parts up to 50 for each byte


def test_an_empty_file_is_an_empty_stream(tmp_path):
    (tmp_path / "x.tb").write_bytes(b"")
    assert list(tb.open(tmp_path / "x.tb")) == []
    with pytest.raises(errors.CorruptError, match="no bytes at all"):
        tb.load(tmp_path / "x.tb")


# ---- 35 to 38: nothing to refuse, everything to keep ------------------------


@pytest.mark.parametrize("format", ["tb", "tensorproto", "raw"])
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16", "float32"])
def test_case_35_every_bit_pattern_survives(name, format):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    bits = {1: np.arange(256, dtype=np.uint8), 2: np.arange(65536, dtype=np.uint16)}.get(
        dtype.itemsize, np.array([0x7F800001, 0xFFFFFFFF, 0x80000000, 0x7FC12345], np.uint32)
    )
    back = tb.loads(tb.dumps(bits.view(dtype), format), format, **({"dtype": name} if format == "raw" else {}))
    assert back.dtype == dtype
    assert back.tobytes() == bits.tobytes()


@pytest.mark.parametrize("format", ["tb", "tensorproto"])
def test_case_36_big_endian_arrays_are_converted(format):
    x = np.array([[1, 2], [3, 1 << 20]], ">i4")
    assert tb.dumps(x, format) == tb.dumps(x.astype("<i4"), format)


def test_case_36_big_endian_raw():
    x = np.array([1 + 2j, -3j], np.complex64)
    assert tb.dumps(x, "raw", byteorder=">") == x.astype(">c8").tobytes()
    assert tb.loads(x.astype(">c8").tobytes(), "raw", dtype="complex64", byteorder=">").tolist() == x.tolist()
    assert tb.loads(b"", "raw", dtype="float64", byteorder=">", shape=(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("format", ["tb", "tensorproto", "raw"])
def test_case_37_any_strides(format):
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    for view in (x.T, x[::-1, :, ::-2], np.broadcast_to(x[0], (2, 3, 4)), np.asfortranarray(x), x[:, :0]):
        assert tb.dumps(view, format) == tb.dumps(view.copy(order="C"), format)


def test_case_37_columns_first_in_raw():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert tb.dumps(x, "raw", order="F") == x.tobytes(order="F")
    assert tb.loads(x.tobytes(order="F"), "raw", dtype="f4", shape=(2, 3), order="F").tolist() == x.tolist()


def test_case_38_over_four_gibibytes(tmp_path):
    count = (1 << 32) + 8
    with open(tmp_path / "x.raw", "wb") as file:  # a file with a hole: it takes no room
        file.seek(count - 1)
        file.write(b"\x07")
    with tb.open(tmp_path / "x.raw", format="raw", dtype="uint8", shape=(count,)) as file:
        (entry_,) = file.entries()
        assert entry_.shape == (count,)
        assert entry_[-3:].tolist() == [0, 0, 7]


# ---- offsets ----------------------------------------------------------------

SOUND = framed(tensor(9, (2,), field(4, bytes(16))))
FAULTS = {
    "a shape": (number(1, 9) + field(2, field(2, number(1, -1))), 4),
    "content": (tensor(9, (2,), field(4, bytes(15))), 10),
    "a bool": (tensor(10, (2,), field(4, b"\1\7")), 11),
    "a part": (layout("ragged", int64s(0, 1), tensor(9, (1,), field(4, bytes(7)))), 57),
    "a kind": (tensor(9, (), field(4, bytes(8)), field(1006, "str")), 0),
    "a path": (tensor(9, (), field(4, bytes(8)), field(1002, number(3, 7))), 0),
    "a key": (tensor(9, (), field(4, bytes(8)), field(1000, b"\xff")), 14),
}


@pytest.mark.parametrize("case", FAULTS)
def test_offsets_are_those_of_the_file(case, tmp_path):
    payload, at = FAULTS[case]
    raw = SOUND + framed(payload)
    (tmp_path / "x.tb").write_bytes(raw)
    ways = [
        lambda: tb.loads(raw),
        lambda: list(tb.open(tmp_path / "x.tb")),
        lambda: tb.open(tmp_path / "x.tb")[1],
        lambda: list(tb.open(NotSeekable(raw))),
    ]
    for way in ways:
        with pytest.raises(errors.CorruptError) as caught:
            way()
        assert caught.value.at == len(SOUND) + 12 + at
        assert caught.value.path
    if case != "a path":  # of no concern to a tensor that is read by itself
        with pytest.raises(errors.CorruptError) as caught:
            tb.open(io.BytesIO(raw), format="tb").entries()[1].load()
        assert caught.value.at == len(SOUND) + 12 + at


class NotSeekable(io.BytesIO):
    name = "a pipe"

    def seekable(self):
        return False


def test_limits_in_a_stream_tell_the_record():
    raw = SOUND + framed(tensor(1, (1 << 40,)))
    with pytest.raises(errors.LimitError, match=rf"\(byte {len(SOUND) + 12}\)"):
        list(tb.open(NotSeekable(raw)))


def test_limits_count_for_each_object_of_a_stream():
    claim = tensor(4, (1 << 11,), number(7, 1))
    limits = tb.errors.Limits(max_bytes=1 << 13)  # a tensor takes more than two kilobytes by itself
    assert len(list(tb.open(NotSeekable(framed(*[claim] * 5)), limits=limits))) == 5
    parts = [claim + key_step(str(i)) + place(i, 5) for i in range(5)]
    with pytest.raises(errors.LimitError):
        list(tb.open(NotSeekable(framed(*parts)), limits=limits))


# ---- work -------------------------------------------------------------------

MANY = 100_000

# What is repeated -> (format, a file that repeats it n times, or nearly)
LONG = {
    "empty fields": ("tensorproto", lambda n: tensor(9, (), field(4, bytes(8))) + field(99, b"") * n),
    "strings, padding": ("tensorproto", lambda n: tensor(STRING, (n,), (field(8, b"") + field(PADDING, b"")) * n)),
    "chunks of one float": ("tensorproto", lambda n: tensor(1, (n,), field(5, bytes(4)) * n)),
    "single values": ("tensorproto", lambda n: tensor(9, (n,), number(10, 1) * n)),
    "chunks of one value": ("tensorproto", lambda n: tensor(9, (n,), field(10, b"\1") * n)),
    "groups": (
        "tensorproto",
        lambda n: tensor(9, (), field(4, bytes(8)), (tag(99, START_GROUP) + tag(99, END_GROUP)) * n),
    ),
    "dimensions": ("tensorproto", lambda n: tensor(4, (1,) * n)),
    "shapes": ("tensorproto", lambda n: number(1, 9) + field(2, b"") * n + field(4, bytes(8))),
    "path steps": ("tb", lambda n: framed(tensor(9, (), field(4, bytes(8)), key_step("a") * n))),
    "metadata": (
        "tb",
        lambda n: framed(
            tensor(9, (), field(4, bytes(8)), b"".join(field(META, entry(str(i), "x")) for i in range(n)))
        ),
    ),
    "parts": ("tb", lambda n: framed(layout("ragged", *[int64s()] * (n // 10)))),
    "row shapes of many digits": (
        "tb",
        lambda n: framed(layout("ragged-shapes", int64s(0, 0), int64s(), int64s(*[1 << 62] * n, dims=(1, n)))),
    ),
    "records": ("tb", lambda n: framed(tensor(9, (), field(4, bytes(8)))) * (n // 10)),
    "strings in content": ("tensorproto", lambda n: tensor(STRING, (n,), field(4, bytes(n)))),
}
SLOW = ("strings, padding", "metadata", "path steps")


@pytest.mark.timeout(60)  # of quadratic work in C, the largest input takes minutes
@pytest.mark.parametrize("case", deep_but([case for case in LONG if case not in SLOW], [*LONG]))
def test_work_grows_no_faster_than_the_input(case):
    format, make = LONG[case]

    def read(raw):
        try:
            tb.loads(raw, format)
        except (errors.CorruptError, errors.LimitError) as error:
            assert any(words in str(error) for words in ("over the limit", "at most", "rank over 254"))  # noqa: PT017

    check_linear(make, read, MANY // 40)
    read(make(MANY))


def test_a_path_of_65_steps_is_refused():
    with pytest.raises(errors.LimitError, match="a path of 65 steps, over the limit of 64"):
        tb.loads(framed(tensor(9, (), field(4, bytes(8)), key_step("a") * 65)))


def test_metadata_is_written_in_linear_time():
    def many(n):
        return {str(i): "x" * 20 for i in range(n)}

    def write(meta):
        assert tb.loads(tb.dumps(np.zeros(2), meta=meta), to="tensor").meta == meta

    check_linear(many, write, MANY // 40)
    write(many(MANY // 4))
