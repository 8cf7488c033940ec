"""The kernel's entropy coder and filters: compiled against reference, and both against what they must compute."""

import heapq
import struct
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import filters_reference, huffman_reference
from tests.unit.test_kernel import outcome

MOST_BITS, SLACK = 11, 16
WIDTHS = (1, 2, 4, 8)
HUFFMAN = pytest.mark.parametrize("kernel", [compiled, huffman_reference], ids=["compiled", "reference"])
FILTERS = pytest.mark.parametrize("kernel", [compiled, filters_reference], ids=["compiled", "reference"])


# ---- Huffman codes ----------------------------------------------------------


def encoded(kernel, plane, portable=False):
    out = bytearray(len(plane) + SLACK)
    size = kernel.huffman_encode(plane, out, portable)
    return bytes(out[:size])


def decoded(kernel, code, n, portable=False):
    """The plane; None if the code is not sound."""
    out = bytearray(n)
    return bytes(out) if kernel.huffman_decode(code, out, portable) else None


def both_encode(plane):
    code = encoded(compiled, plane)
    assert encoded(compiled, plane, portable=True) == code
    assert encoded(huffman_reference, plane) == code
    return code


def both_decode(code, n):
    plane = decoded(compiled, code, n)
    assert decoded(compiled, code, n, portable=True) == plane
    assert decoded(huffman_reference, code, n) == plane
    return plane


def drawn(probabilities, n, seed=0):
    weights = np.asarray(probabilities, np.float64)
    return np.random.default_rng(seed).choice(len(weights), n, p=weights / weights.sum()).astype(np.uint8).tobytes()


def fibonacci(n):
    """Counts that a code without a limit would give lengths of up to n - 1."""
    counts = [1, 1]
    while len(counts) < n:
        counts.append(counts[-1] + counts[-2])
    return counts


def plane_of(counts):
    made = np.repeat(np.arange(len(counts), dtype=np.uint8), counts)
    return np.random.default_rng(1).permutation(made).tobytes()


PLANES = {
    "skewed": drawn(0.6 ** np.arange(30), 5000),
    "flat": drawn(np.ones(256), 5000),
    "flat over few": drawn(np.ones(5), 5000),
    "two": drawn([1, 1], 999),
    "two, far apart": drawn([0.9, *[0] * 254, 0.1], 999),
    "nearly constant": bytes(4999) + b"\xff",
    "one other in front": b"\x07" + b"\x09" * 300,
    "ends of the range": drawn([0.5, *[0] * 253, 0.3, 0.2], 700),
    "fibonacci, 12": plane_of(fibonacci(12)),
    "fibonacci, 13": plane_of(fibonacci(13)),
    "fibonacci, 22": plane_of(fibonacci(22)),
    "every symbol, steep": drawn(0.9 ** np.arange(256), 40000),
    "every symbol once, one often": bytes(range(256)) + bytes(9000),
    "an exponent": (np.random.default_rng(2).normal(0, 0.02, 50000).astype("<f4").view("<u4") >> 23 & 255)
    .astype(np.uint8)
    .tobytes(),
    "large and skewed": drawn(0.7 ** np.arange(40), 70001),
    "large and two": drawn([0.97, 0.03], 65536),
}


@pytest.mark.parametrize("name", PLANES)
def test_planes_come_back_from_either_kernel(name):
    plane = PLANES[name]
    code = both_encode(plane)
    assert (len(code) == 0) == (name == "flat")
    if code:
        assert len(code) < len(plane)
        assert both_decode(code, len(plane)) == plane
        for more in (-1, 1, -len(plane) // 2, 2 * len(plane)):  # bits that fill the last byte may pass for a symbol
            made = both_decode(code, len(plane) + more)
            assert made is None or abs(more) == 1


@pytest.mark.parametrize("n", [0, 1, 2, 3, 20, 21, 100, 65535, 65536, 100000])
def test_a_plane_of_one_value_is_that_value(n):
    assert both_encode(b"\xab" * n) == (b"\xab" if n > 1 else b"")


@pytest.mark.parametrize("n", [65535, 65536, 65537, 200000])
@pytest.mark.parametrize(
    "kind", ["random", "random but for a bit", "skewed", "random, then zeros", "zeros, then random"]
)
def test_the_glance_is_the_same(kind, n):
    random = np.random.default_rng(n).integers(0, 256, n, np.uint8)
    if kind == "random but for a bit":
        random &= 0x7F
    elif kind == "skewed":
        random = np.minimum(random, np.roll(random, 7))
    elif kind == "random, then zeros":
        random[n // 2 :] = 0
    elif kind == "zeros, then random":
        random[: n // 2] = 0
    code = both_encode(random.tobytes())
    assert (code == b"") == (kind == "random")


@given(st.lists(st.integers(0, 12), min_size=1, max_size=60), st.integers(0, 200), st.integers(0, 2**32))
def test_any_counts(exponents, offset, seed):
    counts = [0] * offset + [(1 << e) - 1 if e < 12 else 3 * 5**5 for e in exponents]
    plane = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts[:256])), counts[:256]))
    plane = plane.astype(np.uint8).tobytes()
    code = both_encode(plane)
    if len(code) > 1:
        assert both_decode(code, len(plane)) == plane


# ---- the code is the best there is ------------------------------------------


def lengths_in(code):
    """The lengths that stand in a code, by symbol."""
    first, last = code[0], code[1]
    nibbles = [n for byte in code[14 : 14 + (last - first + 2) // 2] for n in (byte & 15, byte >> 4)]
    return {first + i: n for i, n in enumerate(nibbles[: last - first + 1]) if n}


def unlimited(counts):
    """(cost, longest code) of a Huffman code without a limit."""
    heap = [(count, 0) for count in counts if count]
    heapq.heapify(heap)
    cost = 0
    while len(heap) > 1:
        (a, i), (b, j) = heapq.heappop(heap), heapq.heappop(heap)
        cost += a + b
        heapq.heappush(heap, (a + b, max(i, j) + 1))
    return cost, heap[0][1]


def least_cost(counts):
    """The least cost of a code of up to MOST_BITS, by trying every number of leaves on every level."""
    weights = sorted((count for count in counts if count), reverse=True)
    left = [sum(weights[n:]) for n in range(len(weights) + 1)]

    @cache
    def best(level, done, nodes):
        if done == len(weights):
            return 0 if nodes == 0 else float("inf")
        if level > MOST_BITS or nodes > len(weights) - done or not nodes:
            return float("inf")
        return min(
            left[done + leaves] + best(level + 1, done + leaves, 2 * (nodes - leaves)) for leaves in range(nodes + 1)
        )

    return left[0] + best(1, 0, 2)


def test_the_oracle_agrees_with_huffman_where_no_limit_applies():
    for counts in ([1, 1], [5, 3, 1, 1], fibonacci(12), list(range(1, 30))):
        assert least_cost(tuple(counts)) == unlimited(counts)[0]


many = st.lists(st.one_of(st.integers(0, 50), st.integers(0, 100_000)), min_size=2, max_size=24)


@given(st.one_of(many, st.integers(2, 30).map(fibonacci)))
def test_the_lengths_are_the_best(counts):
    counts = [*counts, 1, 1][:256] if sum(map(bool, counts)) < 2 else counts
    lengths = huffman_reference.code_lengths([*counts, *[0] * (256 - len(counts))])
    assert [bool(n) for n in lengths] == [bool(n) for n in counts] + [False] * (256 - len(counts))
    assert sum(2.0**-n for n in lengths if n) == 1
    assert max(lengths) <= MOST_BITS
    cost, longest = unlimited(counts)
    found = sum(count * n for count, n in zip(counts, lengths, strict=False))
    assert found == least_cost(tuple(counts))
    assert found == cost or longest > MOST_BITS


@pytest.mark.parametrize("name", [name for name, plane in PLANES.items() if name != "flat"])
def test_the_lengths_in_a_code_are_the_reference_s(name):
    plane = PLANES[name]
    counts = np.bincount(np.frombuffer(plane, np.uint8), minlength=256).tolist()
    lengths = lengths_in(encoded(compiled, plane))
    assert lengths == {s: n for s, n in enumerate(huffman_reference.code_lengths(counts)) if n}
    if name in ("fibonacci, 13", "fibonacci, 22"):
        assert unlimited(counts)[1] > MOST_BITS == max(lengths.values())


# ---- damage -----------------------------------------------------------------

SMALL = {"few": drawn(0.5 ** np.arange(6), 90), "long runs": bytes(150) + b"\1\2\3", "many": drawn(np.ones(9), 260)}


@pytest.mark.parametrize("name", SMALL)
def test_truncations_and_flips_of_a_small_code(name):
    plane = SMALL[name]
    code = both_encode(plane)
    assert both_decode(code, len(plane)) == plane
    for size in range(len(code)):
        assert both_decode(code[:size], len(plane)) is None
    for more in (b"\0", b"\xff", code):
        assert both_decode(code + more, len(plane)) is None
    for bit in range(8 * len(code)):
        flipped = bytearray(code)
        flipped[bit // 8] ^= 1 << bit % 8
        both_decode(bytes(flipped), len(plane))
    for n in (0, 1, 2, 3, 4, 5, 1000):
        both_decode(code, n)


@st.composite
def codes(draw):
    """A table that mostly fills the space of codes, sizes that are mostly true, and any streams."""
    counts = draw(st.lists(st.integers(0, 9), min_size=2, max_size=40))
    lengths = huffman_reference.code_lengths([*counts[:-2], 1, 1, *[0] * (256 - len(counts))])
    used = [s for s in range(256) if lengths[s]]
    table = lengths[used[0] : used[-1] + 1]
    if draw(st.integers(0, 9)) == 0:
        table[draw(st.integers(0, len(table) - 1))] = draw(st.integers(0, 15))
    nibbles = [*table, draw(st.sampled_from([0, 0, 0, 1]))]
    packed = bytes(a | b << 4 for a, b in zip(nibbles[0::2], nibbles[1::2], strict=False))
    streams = draw(st.lists(st.binary(max_size=40), min_size=4, max_size=4))
    sizes = [draw(st.sampled_from([len(s), len(s), len(s), len(s), 0, 2**32 - 1])) for s in streams[:3]]
    return struct.pack("<BB3I", used[0], used[-1], *sizes) + packed + b"".join(streams)


@given(st.one_of(codes(), st.binary(max_size=60)), st.integers(0, 400))
def test_verdicts_on_any_bytes(code, n):
    both_decode(code, n)


@HUFFMAN
def test_tables_that_are_no_code(kernel):
    def verdict(first, last, *lengths, sizes=(1, 1, 1), streams=bytes(4), n=4):
        nibbles = [*lengths, 0]
        table = bytes(a | b << 4 for a, b in zip(nibbles[0::2], nibbles[1::2], strict=False))
        return decoded(kernel, struct.pack("<BB3I", first, last, *sizes) + table + streams, n)

    assert verdict(5, 6, 1, 1) == b"\5" * 4
    assert verdict(5, 6, 1, 1, n=32, sizes=(1, 1, 1)) == b"\5" * 32
    assert verdict(5, 6, 1, 2) is None, "incomplete"
    assert verdict(5, 7, 1, 1, 1) is None, "over-complete"
    assert verdict(5, 7, 1, 1, 11) is None, "over-complete by little"
    assert verdict(5, 5, 1) is None, "half a code"
    assert verdict(5, 6, 0, 0) is None, "nothing"
    assert verdict(5, 6, 12, 1) is None, "longer than the limit"
    assert verdict(6, 5, 1, 1) is None, "backwards"
    assert verdict(5, 7, 1, 0, 1 | 1 << 4) is None, "half a byte that stands for nothing"
    assert verdict(5, 6, 1, 1, streams=bytes([0, 0, 2, 0])) is None, "a bit after the end"
    assert verdict(5, 6, 1, 1, sizes=(1, 1, 2), streams=bytes(5)) is None, "a byte after the end"
    assert verdict(5, 6, 1, 1, sizes=(1, 1, 2**32 - 1)) is None
    assert verdict(5, 6, 1, 1, n=1) is None


# ---- filters ----------------------------------------------------------------


def result(kernel, name, src, size, *args):
    out = bytearray(b"\xa5" * size)
    made = outcome(getattr(kernel, name), src, out, *args)
    return made if made is not None else bytes(out)


@given(
    st.sampled_from(["planes_split", "difference", "accumulate"]),
    st.sampled_from([0, 1, 1, 2, 2, 3, 4, 4, 5, 8, 8]),
    st.binary(max_size=150),
    st.sampled_from([0, 0, 0, 0, 1, -1, 8]),
    st.one_of(st.sampled_from([0, 1]), st.integers(0, 2**64 - 1)),
)
def test_planes_and_differences_are_the_same(name, width, data, more, number):
    data = data[: len(data) // max(width, 1) * max(width, 1)] if more != 1 else data
    args = (name, data, max(len(data) + more, 0), width, bool(number) if name == "planes_split" else number)
    assert result(compiled, *args) == result(filters_reference, *args)


@given(
    st.sampled_from([0, 1, 2, 3, 4, 8, 9]), st.integers(0, 33), st.booleans(), st.sampled_from([0, 0, 0, 1]), st.data()
)
def test_joined_planes_are_the_same(width, n, rotate, more, data):
    planes = [data.draw(st.binary(min_size=n, max_size=n)) for _ in range(width)]
    if planes and more:
        planes[-1] += b"x"
    outs = bytearray(n * width), bytearray(n * width)
    found = [
        outcome(k.planes_join, planes, o, rotate) for k, o in zip((compiled, filters_reference), outs, strict=True)
    ]
    assert found[0] == found[1]
    if found[0] is None:
        assert outs[0] == outs[1]
        back = bytearray(n * width)
        compiled.planes_split(outs[0], back, width, rotate)
        assert back == b"".join(planes)


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_planes_are_the_same_on_any_machine(width, rotate):
    """Around the sizes of vectors, at any address: with what this machine has, and with what every machine has."""
    data = np.random.default_rng(width).bytes(8 * 1100)
    for n in [*range(70), 127, 128, 129, 255, 256, 257, 1000]:
        for start in (0, 1, 3):
            elements = data[start : start + n * width]
            split = result(filters_reference, "planes_split", elements, n * width, width, rotate)
            planes = [bytes(split[k * n : (k + 1) * n]) for k in range(width)]
            for portable in (False, True):
                assert result(compiled, "planes_split", elements, n * width, width, rotate, portable) == split
                assert result(compiled, "planes_join", planes, n * width, rotate, portable) == elements


def test_a_path_is_chosen_by_a_truth_value():
    class Neither:
        def __bool__(self):
            raise KeyError("no truth value")

    out = bytearray(32)
    for call in (
        lambda: compiled.planes_split(bytes(8), bytearray(8), 4, False, Neither()),
        lambda: compiled.planes_join([bytes(4), bytes(4)], bytearray(8), False, Neither()),
        lambda: compiled.huffman_encode(bytes(8), out, Neither()),
        lambda: compiled.huffman_decode(bytes(20), out, Neither()),
        lambda: compiled.missing_zero(bytes(8), bytes(2), 4, Neither()),
        lambda: compiled.missing_clear(bytearray(8), bytes(2), 4, Neither()),
        lambda: compiled.varints_decode(b"\x01", 0, 1, np.zeros(1, np.int64), Neither()),
    ):
        with pytest.raises(KeyError):
            call()


@FILTERS
@pytest.mark.parametrize("width", WIDTHS)
def test_filters_compute_what_they_must(kernel, width):
    rng = np.random.default_rng(width)
    kind, count = np.dtype(f"<u{width}"), 37
    x = rng.integers(0, 2**63, count, np.uint64).astype(kind)
    x[:4] = [0, np.iinfo(kind).max, 1, np.iinfo(kind).max // 2]
    for rotate in (False, True):
        planes = np.frombuffer(result(kernel, "planes_split", x, x.nbytes, width, rotate), np.uint8)
        whole = [int(v) for v in x]
        if rotate:
            whole = [(v << 1 | v >> 8 * width - 1) % (1 << 8 * width) for v in whole]
        assert planes.tolist() == [v >> 8 * k & 255 for k in reversed(range(width)) for v in whole]
    first = int(x[0]) ^ 1
    steps = np.frombuffer(result(kernel, "difference", x, x.nbytes, width, first), kind)
    half = 1 << 8 * width - 1
    signed = [(int(b) - int(a) + half) % (2 * half) - half for a, b in zip([first, *x[:-1]], x, strict=True)]
    assert steps.tolist() == [2 * d if d >= 0 else -2 * d - 1 for d in signed]
    assert result(kernel, "accumulate", steps, x.nbytes, width, first) == x.tobytes()


@FILTERS
@pytest.mark.parametrize("width", WIDTHS)
def test_bits_of_every_width(kernel, width):
    rng = np.random.default_rng(width)
    kind = np.dtype(f"<u{width}")
    for bits in range(min(8 * width, 56) + 1):
        for count in (0, 1, 2, 7, 8, 9, 64, 131):
            values = (
                rng.integers(0, 1 << bits, count, np.uint64, endpoint=False) if bits else np.zeros(count, np.uint64)
            )
            base = int(rng.integers(0, 2**63)) * 2 + 1
            x = (values + np.uint64(base)).astype(kind)
            number = sum(int(v) << bits * i for i, v in enumerate(values))
            size = -(-count * bits // 8)
            packed = result(kernel, "bits_pack", x, size, width, base, bits)
            assert packed == number.to_bytes(size, "little")
            assert result(kernel, "bits_unpack", packed, x.nbytes, width, base, bits) == x.tobytes()


@given(
    st.sampled_from([1, 2, 4, 8, 3]),
    st.integers(0, 40),
    st.integers(-1, 70),
    st.integers(-2, 2),
    st.integers(0, 2**64 - 1),
)
def test_packing_that_does_not_fit_is_refused_alike(width, n, bits, more, base):
    size = max(-(-n * max(bits, 0) // 8) + more, 0)
    x = (np.zeros(n, np.uint64) + np.uint64(base)).astype(f"<u{width}" if width != 3 else "<u4").tobytes()
    for args in (("bits_pack", x, size, width, base, bits), ("bits_unpack", bytes(size), n * width, width, base, bits)):
        assert result(compiled, *args) == result(filters_reference, *args)
    odd = ("bits_unpack", bytes(size), n * width + 1, width, base, min(max(bits, 0), 56))
    assert result(compiled, *odd) == result(filters_reference, *odd)


@HUFFMAN
def test_a_target_without_room_is_refused(kernel):
    with pytest.raises(ValueError, match="huffman_encode"):
        kernel.huffman_encode(bytes(10), bytearray(25))
    assert kernel.huffman_encode(b"", bytearray(16)) == 0
