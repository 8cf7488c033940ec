"""Planes that the kernel splits, codes and joins in one call; and checksums of large records, which are read apart."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import huffman_reference, reference
from tests.support.tiers import deep_but
from tests.unit.test_kernel import outcome

SLACK = huffman_reference.PLANES_SLACK
KERNELS = [compiled, huffman_reference]


def encoded(kernel, data, width, rotate):
    out, scratch = bytearray(len(data) + SLACK), bytearray(len(data))
    return bytes(out[: kernel.planes_encode(data, out, scratch, width, rotate)])


def decoded(kernel, code, n, width, rotate):
    out = bytearray(n)
    return bytes(out) if kernel.planes_decode(code, out, bytearray(n), width, rotate) else None


NUMBERS = {
    "one": bytes(8),
    "constant": bytes(800),
    "weights": np.random.default_rng(0).normal(0, 0.02, 3000).astype(np.float32).tobytes(),
    "doubles": np.random.default_rng(0).normal(0, 0.02, 500).tobytes(),
    "counts": np.arange(2000, dtype=np.int64).tobytes(),
    "noise": np.random.default_rng(0).bytes(4096),
}


@pytest.mark.parametrize("rotate", [False, True])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NUMBERS)
def test_planes_agree_and_come_back(name, width, rotate):
    data = NUMBERS[name]
    code = encoded(compiled, data, width, rotate)
    assert code == encoded(huffman_reference, data, width, rotate)
    assert len(code) <= len(data) + 4 * width
    for kernel in KERNELS:
        assert decoded(kernel, code, len(data), width, rotate) == data


def test_damaged_planes_get_the_same_verdict():
    data = NUMBERS["counts"][:512]
    code = encoded(compiled, data, 8, False)
    damaged = [code[:cut] for cut in range(len(code))]
    damaged += [
        code[:at] + bytes([code[at] ^ 1 << bit]) + code[at + 1 :] for at in range(len(code)) for bit in range(8)
    ]
    damaged += [code + b"\0", struct.pack("<8I", *[1 << 31] * 8), struct.pack("<8I", *[0] * 8), b""]
    verdicts = [[decoded(kernel, bad, 512, 8, False) for kernel in KERNELS] for bad in damaged]
    assert all(one == two for one, two in verdicts)
    assert sum(one is None for one, _ in verdicts) > len(code)


# ---- many chunks in one call ----------------------------------------------------


def chunked(kernel, data, width, rotate, chunk, threads, part):
    """The chunks one after another, as files have them; their sizes and checksums."""
    count, parts = -(-len(data) // chunk), -(-len(data) // part)
    out, sizes, sums = bytearray(len(data) + parts * SLACK), np.empty(count, "<u4"), np.empty(count, "<u4")
    kernel.chunks_encode(data, out, bytearray(threads * chunk), width, rotate, chunk, sizes, sums, threads, part)
    each = part // chunk
    ends = [sum(sizes[k : k + each].tolist()) for k in range(0, count, each)]
    return b"".join(out[k * (part + SLACK) :][:end] for k, end in enumerate(ends)), sizes, sums


def unchunked(kernel, code, n, width, rotate, chunk, sizes, sums, threads):
    out = bytearray(n)
    return kernel.chunks_decode(code, out, bytearray(threads * chunk), width, rotate, chunk, sizes, sums, threads), out


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(("chunk", "part"), [(256, 256), (256, 1024), (1024, 1024), (1 << 16, 1 << 17)])
@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("name", NUMBERS)
def test_chunks_agree_and_come_back_whatever_the_threads(name, width, chunk, part, threads):
    data = NUMBERS[name]
    code, sizes, sums = chunked(compiled, data, width, width > 1, chunk, threads, part)
    plain, *told = chunked(huffman_reference, data, width, width > 1, chunk, 1, chunk)
    assert code == plain
    assert [sizes.tolist(), sums.tolist()] == [numbers.tolist() for numbers in told]
    for kernel in KERNELS:
        found = unchunked(kernel, code, len(data), width, width > 1, chunk, sizes, sums, threads)
        assert found == (len(sizes), data)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_chunks_are_sound_up_to_the_first_that_is_not(threads):
    data = NUMBERS["weights"]
    code, sizes, sums = chunked(compiled, data, 4, True, 1024, 1, 1024)
    ends = np.cumsum(sizes)
    for number in range(len(sizes)):
        bent = bytearray(code)
        bent[ends[number] - 1] ^= 1
        bent[-1] ^= 2  # and the last one, which others may come to first
        told = [(sizes, sums), (sizes + np.eye(len(sizes), dtype="<u4")[number], sums)]
        for some, bytes_ in [(told[0], bent), (told[1], code)]:
            for kernel in KERNELS:
                done, out = unchunked(kernel, bytes_, len(data), 4, True, 1024, *some, threads)
                assert done == number
                assert out[: number * 1024] == data[: number * 1024]


def test_sizes_of_chunks_that_lie_are_no_way_out_of_the_code():
    data = NUMBERS["weights"]
    code, sizes, sums = chunked(compiled, data, 4, True, 1024, 1, 1024)
    for lie in (0, 1025, 1 << 31, 0xFFFFFFFF):
        for kernel in KERNELS:
            for threads in (1, 3):
                lying = np.full_like(sizes, lie)
                assert unchunked(kernel, code, len(data), 4, True, 1024, lying, sums, threads)[0] == 0
                lying[:2] = sizes[:2]
                assert unchunked(kernel, code, len(data), 4, True, 1024, lying, sums, threads)[0] == 2


@pytest.mark.parametrize(
    "change",
    [{1: bytearray(1023)}, {2: bytearray(255)}, {3: 3}, {5: 0}, {5: 255}, {6: bytearray(15)}, {7: bytearray(15)},
     {8: 0}, {9: 128}, {9: 0}],
)  # fmt: skip
def test_calls_for_chunks_with_sizes_that_do_not_fit_are_refused(change):
    args = [bytes(1024), bytearray(2000), bytearray(256), 4, True, 256, bytearray(16), bytearray(16), 1, 512]
    for number, value in change.items():
        args[number] = value
    for kernel in KERNELS:
        with pytest.raises((ValueError, IndexError)):
            kernel.chunks_encode(*args)
        if 1 not in change and 9 not in change:
            with pytest.raises((ValueError, IndexError)):
                kernel.chunks_decode(args[0], bytearray(1024), *args[2:9])


def test_bytes_that_change_while_they_are_coded_do_no_harm():
    """Counts are of other bytes than codes then: what comes out is refused or another value, never a crash."""
    import threading

    data = bytearray(NUMBERS["weights"] * 40)
    stop = threading.Event()

    def change():
        random = np.random.default_rng(1)
        while not stop.is_set():
            at = int(random.integers(0, len(data) - 64))
            data[at : at + 64] = random.bytes(64)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(60):
            code, sizes, sums = chunked(compiled, data, 4, True, 1 << 16, 2, 1 << 16)
            assert unchunked(compiled, code, len(data), 4, True, 1 << 16, sizes, sums, 2)[0] == len(sizes)
    finally:
        stop.set()
        thread.join()


@given(st.binary(max_size=80), st.sampled_from([1, 2, 4, 8]), st.integers(0, 20), st.booleans())
def test_any_bytes_get_the_same_verdict(code, width, n, rotate):
    one, two = (decoded(kernel, code, n * width, width, rotate) for kernel in KERNELS)
    assert one == two


@pytest.mark.parametrize(
    "args",
    [
        (bytes(6), bytearray(6 + SLACK), bytearray(6), 4, False),
        (bytes(8), bytearray(7 + SLACK), bytearray(8), 4, False),
        (bytes(8), bytearray(8 + SLACK), bytearray(7), 4, False),
        (bytes(9), bytearray(9 + SLACK), bytearray(9), 3, False),
    ],
)
def test_wrong_sizes_are_mistakes(args):
    assert {outcome(kernel.planes_encode, *args) for kernel in KERNELS} == {ValueError}
    code, _, scratch, width, rotate = args
    plain = bytearray(len(code))
    if width == 3 or len(code) % width or len(scratch) < len(plain):
        for kernel in KERNELS:
            assert outcome(kernel.planes_decode, code, plain, scratch, width, rotate) is ValueError


# ---- large records ----------------------------------------------------------


def test_a_scan_may_leave_large_payloads_unverified():
    small, large = _wire.frame(b"a", b"b"), bytearray(_wire.frame(b"", bytes(1 << 20)))
    large[-1] ^= 1
    for kernel in (compiled, reference):
        room = np.empty((9, 2), np.int64)
        assert kernel.scan(small + large + small, 0, 2, room)[0] == 3
        assert kernel.scan(small + large + small, 0, 1, room) == (1, len(small), reference.BAD_DATA)
        bad = bytearray(small)
        bad[-1] ^= 1
        assert kernel.scan(large + bad, 0, 2, room) == (1, len(large), reference.BAD_DATA)
        for wrong in (-1, 3):
            assert outcome(kernel.scan, small, 0, wrong, room) is IndexError


WEIGHTS = np.random.default_rng(0).normal(0, 0.02, 1 << 19).astype(np.float32)
LARGE = {
    "plain": tb.dumps({"w": WEIGHTS}),
    "compressed": tb.dumps({"w": WEIGHTS}, compression="split+huffman"),
    "quantized": tb.dumps({"w": np.tile(WEIGHTS, 4)}, quantize="int8"),
    "both": tb.dumps({"w": np.tile(WEIGHTS, 4)}, quantize="int8", compression="huffman"),
}


@pytest.mark.parametrize("every", deep_but([30], [30, 1]))
@pytest.mark.parametrize("name", LARGE)
def test_every_byte_of_a_large_record_is_checked(name, every, tmp_path):
    raw = LARGE[name]
    assert len(raw) > _wire.LARGE_PAYLOAD
    tb.loads(raw)
    places = [*range(140), *np.linspace(140, len(raw) - 5, 40).astype(int).tolist(), len(raw) - 5][::every]
    for at in places:
        damaged = bytearray(raw)
        damaged[at] ^= 4
        with pytest.raises(tb.errors.CorruptError):
            tb.loads(damaged, "tb")
    for at in places[::20]:
        damaged = bytearray(raw)
        damaged[at] ^= 4
        (tmp_path / "x.tb").write_bytes(damaged)
        with pytest.raises(tb.errors.CorruptError):
            tb.load(tmp_path / "x.tb", "tb")
