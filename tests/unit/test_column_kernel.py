"""The kernel's loops over columns: compiled against reference, and both against what they must compute."""

import decimal
import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import columns_reference as reference
from tests.unit.test_kernel import outcome

KERNELS = pytest.mark.parametrize("kernel", [compiled, reference], ids=["compiled", "reference"])
WIDTHS = (4, 8, 16, 32)
MOST = _wire.MOST_DECIMAL


def agree(name, *args):
    found = outcome(getattr(compiled, name), *args)
    assert outcome(getattr(reference, name), *args) == found
    return found


# ---- what is missing --------------------------------------------------------


@st.composite
def elements(draw):
    """(bytes, flags, the width of an element), some elements zero."""
    width = draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 24]))
    count = draw(st.one_of(st.integers(0, 20), st.sampled_from([1023, 1024, 1025, 2100])))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    data = rng.integers(0, 256, (count, width), np.uint8)
    data[rng.random(count) < draw(st.sampled_from([0, 0.5, 1]))] = 0
    present = rng.random(count) >= draw(st.sampled_from([0, 0.1, 0.9, 1]))
    return data, present, width


@given(elements())
def test_missing_elements_are_found_and_cleared(case):
    data, present, width = case
    assert agree("missing_zero", data, present, width) == (not data[~present].any())
    want = data.copy()
    want[~present] = 0
    for kernel, portable in ((compiled, False), (compiled, True), (reference, False)):
        copy = data.copy()
        assert kernel.missing_zero(copy, present, width, portable) == (not data[~present].any())
        kernel.missing_clear(copy, present, width, portable)
        assert (copy == want).all()
        assert kernel.missing_zero(copy, present, width, portable)


@KERNELS
def test_any_byte_but_zero_says_that_an_element_is_there(kernel):
    data = np.arange(1, 6, dtype=np.uint8)
    kernel.missing_clear(data, bytes([1, 0, 255, 0, 2]), 1)
    assert data.tolist() == [1, 0, 3, 0, 5]


@KERNELS
def test_what_is_zero_already_is_not_written_to(kernel):
    """So that memory that is shared between processes stays so; one block of it is enough to see that."""
    if kernel is reference:
        pytest.skip("NumPy writes them again, to the same effect")
    data = np.zeros(5000, np.uint64)
    data[4500] = 7
    present = np.ones(5000, bool)
    present[::3] = False
    present[4500] = False
    kernel.missing_clear(data, present, 8)
    assert not data.any()


# ---- offsets and lengths ----------------------------------------------------


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=70), st.booleans(), st.sampled_from([4, 8]))
def test_rising_offsets_are_told_apart(numbers, in_order, width):
    offsets = np.array(sorted(numbers) if in_order else numbers, f"<i{width}")
    want = all(a <= b for a, b in itertools.pairwise(offsets.tolist()))
    assert agree("offsets_rise", offsets, width) == want
    assert agree("offsets_rise", bytes(1) + offsets.tobytes(), width) in (want, ValueError)


@KERNELS
@pytest.mark.parametrize("width", [4, 8])
def test_offsets_at_the_ends_of_their_range(kernel, width):
    low, high = np.iinfo(f"i{width}").min, np.iinfo(f"i{width}").max
    assert kernel.offsets_rise(np.array([low, -1, 0, high], f"<i{width}"), width)
    assert not kernel.offsets_rise(np.array([0, high, low], f"<i{width}"), width)


@given(st.lists(st.binary(max_size=300), max_size=9), st.integers(0, 12), st.integers(0, 5))
def test_the_longest_word_is_found(words, count, cut):
    data = b"".join(struct.pack("<I", len(word)) + word for word in words)
    data = data[: len(data) - cut]
    found = agree("longest_word", data, count)
    if count <= len(words) and not cut:
        assert found == max((len(word) for word in words[:count]), default=0)
    elif count > len(words):
        assert found == -1


@KERNELS
def test_a_word_of_four_gigabytes_is_not_there(kernel):
    assert kernel.longest_word(b"\xff\xff\xff\xff" + bytes(10), 1) == -1


# ---- decimals ---------------------------------------------------------------


def stored(numbers, width):
    return b"".join(number.to_bytes(width, "little", signed=True) for number in numbers)


def written(kernel, numbers, present, width, scale, most=MOST):
    """The texts of numbers; None if some are too large."""
    data, offsets = stored(numbers, width), np.zeros(len(numbers) + 1, np.int64)
    flags = None if present is None else np.array(present, bool)
    if not kernel.decimal_sizes(data, flags, offsets, width, scale, most):
        return None
    out = bytearray(int(offsets[-1]))
    kernel.decimal_text(data, offsets, out, width, scale)
    return [bytes(out[a:b]).decode() for a, b in itertools.pairwise(offsets)]


def parsed(kernel, texts, present, width, scale, most=MOST):
    """The bytes of texts; None if some are not plain."""
    data = "".join(texts).encode("latin-1")
    offsets = np.cumsum([0] + [len(text) for text in texts])
    flags = None if present is None else np.array(present, bool)
    out = bytearray(b"\xa5" * (width * len(texts)))
    return bytes(out) if kernel.decimal_parse(data, offsets, flags, out, width, scale, most) else None


def plain(number, scale):
    return f"{decimal.Decimal(number).scaleb(-scale, decimal.Context(prec=40)):f}"


# Around every number of digits.
NUMBERS = sorted({sign * (10**n + step) for n in range(19) for step in (-1, 0, 1) for sign in (1, -1)})


@KERNELS
@pytest.mark.parametrize("scale", range(7))
@pytest.mark.parametrize("width", WIDTHS)
def test_decimals_become_text_and_back(kernel, width, scale):
    numbers = [n for n in NUMBERS if abs(n) < min(MOST, 1 << 8 * width - 1)]
    texts = written(kernel, numbers, None, width, scale)
    assert texts == [plain(number, scale) for number in numbers]
    assert parsed(kernel, texts, None, width, scale) == stored(numbers, width)
    present = [number % 3 > 0 for number in numbers]
    some = [text if there else "" for text, there in zip(texts, present, strict=True)]
    assert written(kernel, numbers, present, width, scale) == some
    there = [number if flag else 0 for number, flag in zip(numbers, present, strict=True)]
    assert parsed(kernel, some, present, width, scale) == stored(there, width)


@KERNELS
@pytest.mark.parametrize("width", WIDTHS)
def test_no_decimals_are_no_text(kernel, width):
    assert written(kernel, [], None, width, 2) == []
    assert parsed(kernel, [], None, width, 2) == b""
    assert written(kernel, [1, 2], [False, False], width, 2) == ["", ""]
    assert parsed(kernel, ["", ""], [False, False], width, 2) == bytes(2 * width)


@KERNELS
@pytest.mark.parametrize("width", WIDTHS)
def test_a_number_of_too_many_digits_is_left_to_others(kernel, width):
    top = (1 << 8 * width - 1) - 1
    for number in (top, -top - 1, MOST, -MOST, 1 << 64, (1 << 64) - 1, 1 << 63, -(1 << 64), -(1 << 63)):
        if abs(number) >= MOST and -top - 1 <= number <= top:
            assert written(kernel, [5, number], None, width, 2) is None
            assert written(kernel, [5, number], [True, False], width, 2) == ["0.05", ""]
    assert written(kernel, [999], None, width, 0, 1000) == ["999"]
    assert written(kernel, [-1000], None, width, 0, 1000) is None
    assert parsed(kernel, ["9.99"], None, width, 2, 1000) == stored([999], width)
    assert parsed(kernel, ["-10"], None, width, 2, 1000) is None


@given(
    st.lists(st.tuples(st.integers(-MOST + 1, MOST - 1), st.integers(0, 18), st.booleans()), max_size=40),
    st.sampled_from(WIDTHS),
    st.integers(0, 6),
    st.booleans(),
)
def test_decimals_agree(drawn, width, scale, masked):
    numbers = [number // 10**less for number, less, _ in drawn]
    numbers = [number for number in numbers if abs(number) < 1 << 8 * width - 1]
    present = [there for *_, there in drawn][: len(numbers)] if masked else None
    texts = written(compiled, numbers, present, width, scale)
    assert written(reference, numbers, present, width, scale) == texts
    assert parsed(compiled, texts, present, width, scale) == parsed(reference, texts, present, width, scale) is not None


letters = st.text("0123456789.-+ e\xff", max_size=22)


@given(st.lists(st.one_of(letters, st.integers(-(10**19), 10**19).map(str)), max_size=6), st.integers(0, 6))
def test_any_text_is_parsed_or_refused_alike(texts, scale):
    """Also at the start of the memory, where eight letters can't be looked at together."""
    for before in ([], ["1" * 18]):
        found = parsed(compiled, [*before, *texts], None, 16, scale)
        assert parsed(reference, [*before, *texts], None, 16, scale) == found
        if found is not None:
            back = [decimal.Decimal(text).scaleb(scale, decimal.Context(prec=40)) for text in [*before, *texts]]
            assert stored([int(number) for number in back], 16) == found


@KERNELS
@pytest.mark.parametrize(
    "text", ["", "-", "+", ".", "1.", ".5", "1.2.3", "1e3", " 1", "1 ", "--1", "1-", "1" * 19, "\xb2"]
)
def test_odd_text_is_refused(kernel, text):
    assert parsed(kernel, [text], None, 16, 2) is None
    assert parsed(kernel, ["123456789.00", "5.00", text], None, 16, 2) is None
    assert parsed(kernel, ["7.25", text], [True, False], 16, 2) == stored([725, 0], 16)


@KERNELS
@pytest.mark.parametrize("text", ["+1.5", "1", "1.5", "001.50", "-0.00", "-0"])
def test_text_that_others_write_is_parsed(kernel, text):
    number = int(decimal.Decimal(text) * 100)
    assert parsed(kernel, [text, "123456789012.34", text], None, 8, 2) == stored([number, 12345678901234, number], 8)


@KERNELS
def test_sizes_that_do_not_fit_are_refused(kernel):
    offsets, numbers = np.zeros(3, np.int64), bytes(32)
    calls = [
        ("missing_zero", bytes(7), bytes(2), 4),
        ("missing_zero", bytes(8), bytes(2), 0),
        ("missing_clear", bytearray(8), bytes(3), 4),
        ("offsets_rise", bytes(9), 4),
        ("offsets_rise", bytes(9), 3),
        ("decimal_sizes", numbers, None, offsets[:2].copy(), 16, 2, MOST),
        ("decimal_sizes", numbers, bytes(3), offsets, 16, 2, MOST),
        ("decimal_sizes", numbers, None, offsets, 5, 2, MOST),
        ("decimal_sizes", numbers, None, offsets, 16, 2, MOST + 1),
        ("decimal_text", numbers, np.array([0, 4, 2]), bytearray(2), 16, 2),
        ("decimal_text", numbers, np.array([0, 4, 8]), bytearray(7), 16, 2),
        ("decimal_text", numbers, np.array([0, 1, 2]), bytearray(9), 16, 2),
        ("decimal_text", numbers, np.array([-4, 0, 4]), bytearray(9), 16, 2),
        ("decimal_text", numbers, np.array([0, 30, 34]), bytearray(40), 16, 2),
        ("decimal_parse", b"12", np.array([0, 1, 2]), bytes(1), bytearray(32), 16, 2, MOST),
        ("decimal_parse", b"12", np.array([0, 1]), None, bytearray(32), 16, 2, MOST),
    ]
    for name, *args in calls:
        with pytest.raises(ValueError, match="don't fit"):
            getattr(kernel, name)(*args)
    for name, *args in [
        ("longest_word", b"", -1),
        ("offsets_rise", b"", 9),
        ("decimal_sizes", b"", None, offsets[:1].copy(), 16, 7, 1),
    ]:
        with pytest.raises(IndexError, match="outside"):
            getattr(kernel, name)(*args)


@KERNELS
def test_texts_that_reach_beyond_their_memory_are_refused(kernel):
    for offsets in ([0, 3, 9], [-2, 0, 2], [0, 2, 1]):
        out = bytearray(32)
        assert not kernel.decimal_parse(b"1234", np.array(offsets), None, out, 16, 0, MOST)
