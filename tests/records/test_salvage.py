"""Damage: found, located, read around. Whatever happens to a file, only records that were
written come out of it, and all that were not touched."""

import dataclasses
import gzip
import io
import os
import tracemalloc
import zlib

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import reference, salvage_reference
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, LimitError, Limits, UsageError
from tensorbytes.formats.tfrecord.files.bytestreams import open_stream
from tensorbytes.formats.tfrecord.files.salvage import check_records, intact, keep_records
from tensorbytes.io.streams.encoders import open_encoder
from tests.support.salvage_bytes import (
    INNER,
    NESTED,
    PLAIN,
    MemorySource,
    example,
    framed,
    golden,
    in_order,
    marked,
    salvaged,
)
from tests.support.tiers import deep_but
from tests.support.work import check_linear

FILES = {"plain": golden(PLAIN), "nested": golden(NESTED)}
BOTH = pytest.mark.parametrize("file", FILES.values(), ids=FILES)
# Every place is tried with the compiled kernel, some with the slow one.
STEP = 1 if _wire.ACCELERATED else 7
EVERY = pytest.mark.parametrize("every", deep_but([4], [1, 4]))


def repaired(data):
    """The bytes that repair makes of damaged ones, and its report."""
    out = io.BytesIO()
    report = keep_records(io.BytesIO(data), out, compression="none")
    return out.getvalue(), report


# ---- the kernel ---------------------------------------------------------------


@st.composite
def searched(draw):
    """Bytes in which sound headers, whole records, footers and noise follow each other."""
    headers = st.one_of(st.integers(0, 40), st.integers(0, 2**64 - 1)).map(reference.frame_header)
    parts = st.one_of(st.binary(max_size=30), headers, st.binary(max_size=30).map(lambda data: framed([data])))
    return b"".join(draw(st.lists(parts, max_size=6)))


@given(searched(), st.integers(0, 60), st.integers(0, 60))
def test_the_kernels_find_the_same_headers(data, start, less):
    start = min(start, len(data))
    end = max(start, len(data) - less)
    found = compiled.resync(data, start, end)
    assert found == salvage_reference.resync(data, start, end)
    sound = [at for at in range(start, end - 11) if data[at + 8 : at + 12] == reference.frame_header(u64(data, at))[8:]]
    assert found == (sound[0] if sound else max(start, end - 11))


def u64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


@given(searched(), st.binary(max_size=40), searched(), st.integers(0, 30))
def test_the_kernels_find_the_same_ends(before, payload, after, less):
    data = before + framed([payload])[12:] + after
    for start in {0, len(before)}:
        end = max(start, len(data) - less)
        found = compiled.closing(data, start, end, 0)
        assert found == salvage_reference.closing(data, start, end, 0)
        at, crc = found
        assert crc == reference.crc32c(data[start:at])
        ends = [at for at in range(start, end - 15) if ends_at(data, start, at)]
        assert at == (ends[0] if ends else max(start, end - 15))


def ends_at(data, start, at):
    checksum = reference.mask(reference.crc32c(data[start:at])).to_bytes(4, "little")
    return data[at : at + 4] == checksum and data[at + 12 : at + 16] == reference.frame_header(u64(data, at + 4))[8:]


@pytest.mark.parametrize("kernel", [compiled, salvage_reference], ids=["compiled", "reference"])
def test_searching_large_buffers(kernel):
    noise = np.random.default_rng(0).bytes(200_000)
    data = noise + framed([b"abc"])
    assert kernel.resync(data, 0, len(data)) == len(noise)
    assert kernel.resync(data, 0, len(data) - 8) == len(data) - 19
    footer = reference.mask(reference.crc32c(noise)).to_bytes(4, "little")
    data = noise + footer + framed([b"abc"])
    assert kernel.closing(data, 0, len(data), 0) == (len(noise), reference.crc32c(noise))
    assert kernel.closing(data, 1000, len(data), reference.crc32c(noise[:1000]))[0] == len(noise)


@pytest.mark.parametrize("kernel", [compiled, salvage_reference], ids=["compiled", "reference"])
def test_positions_outside_the_buffer_are_refused(kernel):
    for start, end in ((0, 4), (3, 2), (-1, 2)):
        with pytest.raises(IndexError, match="outside"):
            kernel.resync(b"abc", start, end)
        with pytest.raises(IndexError, match="outside"):
            kernel.closing(b"abc", start, end, 0)


# ---- every truncation, every flipped bit ----------------------------------------


@BOTH
def test_a_whole_file(file):
    assert salvaged(file.data) == (file.payloads, [], list(range(len(file.payloads))))
    assert repaired(file.data)[0] == file.data


@BOTH
def test_every_truncation(file):
    for size in range(len(file.data)):
        number = file.record_at(size)
        start, cut = file.borders[number], file.data[:size]
        payloads, damages, _ = salvaged(cut)
        assert payloads == file.payloads[:number], size
        found = [(damage.kind, damage.start, damage.end, damage.record) for damage in damages]
        kind = "cut header" if size - start < 12 else "cut payload"
        assert found == ([(kind, start, size, number)] if size > start else []), size
        if size and not number:
            with pytest.raises(CorruptError, match="no record in it is whole"):
                repaired(cut)
            continue
        data, report = repaired(cut)
        assert data == file.data[:start]
        assert (report.damages, report.size, report.intact) == (tuple(renamed(damages)), size, start)


def renamed(damages):
    return [dataclasses.replace(damage, path="<BytesIO>") for damage in damages]


@EVERY
@BOTH
def test_every_flipped_bit(file, every):
    for bit in range(0, 8 * len(file.data), every):
        at = bit // 8
        data = bytearray(file.data)
        data[at] ^= 1 << bit % 8
        number = file.record_at(at)
        start, end = file.borders[number : number + 2]
        header = at < start + 12
        fixed, report = repaired(bytes(data))
        (damage,) = report.damages
        assert (damage.recovered, damage.record, damage.start) == (header, number, start), bit
        assert damage.end == (start + 12 if header else end), bit
        assert damage.kind == ("header" if header else "payload")
        # A record of which only the header was damaged is whole again.
        assert fixed == (file.data if header else file.data[:start] + file.data[end:]), bit
        assert report.size == len(data)
        assert report.intact == len(fixed)


@BOTH
def test_some_flipped_bits_read_on_the_fly(file):
    for bit in range(0, 8 * len(file.data), 3 + STEP):
        at = bit // 8
        data = bytearray(file.data)
        data[at] ^= 1 << bit % 8
        number = file.record_at(at)
        lost = [] if at < file.borders[number] + 12 else [number]
        payloads, damages, numbers = salvaged(data)
        assert numbers == [i for i in range(len(file.payloads)) if i not in lost]
        assert payloads == [file.payloads[i] for i in numbers]
        assert len(damages) == 1


# ---- larger damage at every place -----------------------------------------------


def check_only(file, data, touched):
    """All but the touched records come out, nothing else, and no damage is seen elsewhere."""
    payloads, damages, _ = salvaged(data)
    assert in_order([payload for i, payload in enumerate(file.payloads) if i not in touched], payloads)
    assert in_order(payloads, file.payloads)
    return damages


@EVERY
@BOTH
@pytest.mark.parametrize("fill", ["zeros", "ones", "noise"])
def test_overwritten_ranges(file, fill, every):
    noise = np.random.default_rng(5)
    for width in (2, 12, 40, 100, 700):
        for start in range(0, len(file.data) - width, STEP * every):
            new = {"zeros": bytes(width), "ones": b"\xff" * width, "noise": noise.bytes(width)}[fill]
            data = file.data[:start] + new + file.data[start + width :]
            if data == file.data:
                continue
            touched = file.touched(start, start + width)
            damages = check_only(file, data, touched)
            assert damages
            assert damages[0].start >= file.borders[touched[0]]
            assert damages[-1].end <= file.borders[touched[-1] + 1]


@EVERY
@BOTH
def test_deleted_ranges(file, every):
    for width in (1, 4, 12, 16, 100, 512):
        for start in range(0, len(file.data) - width, STEP * every):
            if width == 12 and file.payloads[file.record_at(start)] == framed(INNER) and start in file.borders:
                continue  # the header is gone without a trace: what it held is the file's now
            data = file.data[:start] + file.data[start + width :]
            check_only(file, data, file.touched(start, start + width))


@BOTH
def test_inserted_garbage(file):
    noise = np.random.default_rng(6)
    for width in (1, 4, 12, 64, 512):
        for start in range(0, len(file.data) + 1, STEP):
            data = file.data[:start] + noise.bytes(width) + file.data[start:]
            damages = check_only(file, data, [] if start in file.borders else file.touched(start, start + 1))
            assert damages


@BOTH
def test_a_tail_of_zeros(file):
    for width in (1, 11, 12, 16, 17, 4096):
        payloads, damages, _ = salvaged(file.data + bytes(width))
        assert payloads == file.payloads
        assert [(damage.start, damage.end) for damage in damages] == [(len(file.data), len(file.data) + width)]


def test_swapped_sectors():
    file = golden([*PLAIN, *PLAIN[::-1]])
    for size in (48, 64, 512):
        count = len(file.data) // size
        for first in range(count):
            for second in range(first + 1, count, 3):
                data = bytearray(file.data)
                one, two = slice(first * size, (first + 1) * size), slice(second * size, (second + 1) * size)
                data[one], data[two] = data[two], data[one]
                touched = {*file.touched(one.start, one.stop), *file.touched(two.start, two.stop)}
                payloads, _, _ = salvaged(data)
                assert set(payloads) <= set(file.payloads)  # a sector may hold whole records, now elsewhere
                assert in_order([p for i, p in enumerate(file.payloads) if i not in touched], payloads)


def test_damage_in_neighbouring_records():
    file = FILES["nested"]
    for number in range(len(file.payloads) - 1):
        start, middle, end = file.borders[number : number + 3]
        for one in range(start, middle, 5 + STEP):
            for two in range(middle, end, 7 + STEP):
                data = bytearray(file.data)
                data[one] ^= 4
                data[two] ^= 64
                payloads, damages, _ = salvaged(data)
                kept = [one < start + 12, two < middle + 12]
                want = [p for p, keep in zip(file.payloads[number : number + 2], kept, strict=True) if keep]
                assert payloads == file.payloads[:number] + want + file.payloads[number + 2 :]
                assert [damage.recovered for damage in damages] == kept
                assert [damage.record for damage in damages] == [number, number + 1]


# ---- torn writes ----------------------------------------------------------------

APPENDED = {
    "a small record": [b"appended"],
    "small and large ones": [b"", b"appended" * 300, b"", b"x" * 100],
    "the same again": PLAIN,
}


@BOTH
@pytest.mark.parametrize("more", APPENDED.values(), ids=APPENDED)
def test_appending_after_a_torn_write(file, more):
    # Right after a header, or where a field starts, more records may as well be what a payload was to hold:
    # then they count only if they don't fit into it.
    headers = [at + 12 for at in range(len(file.data) - 11) if _wire.resync(file.data, at, at + 12) == at]
    for size in range(len(file.data) + 1):
        number = file.record_at(size)
        whole = file.payloads[:number]
        payloads, damages, _ = salvaged(file.data[:size] + framed(more))
        assert payloads[: len(whole)] == whole
        assert in_order(payloads[len(whole) :], more)
        if file.payloads is PLAIN and size not in headers:
            assert payloads == whole + more
            start = file.borders[number]
            assert [(d.start, d.end) for d in damages] == ([(start, size)] if size > start else [])
        elif len(payloads) < len(whole) + len(more):
            room = len(file.payloads[number])
            assert sum(16 + len(payload) for payload in more[: len(whole) + len(more) - len(payloads)]) <= room


def test_records_in_a_cut_payload_stay_there():
    inner = framed([b"a" * 20, b"b" * 20, b"c" * 20])
    for payload in (inner, example(data=inner, label=b"7"), example(a=b"x", data=example(deep=inner)), framed([inner])):
        data = framed([b"first", payload])
        for size in range(21, len(data)):
            assert salvaged(data[:size]).payloads == [b"first"], size


# ---- lost headers ----------------------------------------------------------------


def without_header(file, number, new=bytes(12)):
    start = file.borders[number]
    return file.data[:start] + new + file.data[start + 12 :]


@BOTH
@pytest.mark.parametrize("new", [bytes(12), b"\xff" * 12, b"no header :)"], ids=["zeros", "ones", "text"])
def test_a_payload_is_found_without_its_header(file, new):
    for number in range(len(file.payloads)):
        data, report = repaired(without_header(file, number, new))
        assert data == file.data
        (damage,) = report.damages
        assert damage.recovered
        assert (damage.start, damage.end) == (file.borders[number], file.borders[number] + 12)
        assert report.lost == 0


def test_a_payload_that_starts_like_the_rest_of_a_record():
    # Its first bytes are a payload, a checksum and whole records: an end that is not the end.
    payload = framed([b"tricky"])[12:] + framed(INNER) + b"and more"
    file = golden([b"first", payload, b"last"])
    assert repaired(without_header(file, 1))[0] == file.data


# ---- random damage -----------------------------------------------------------------

noise = st.one_of(st.integers(1, 300).map(bytes), st.binary(min_size=1, max_size=300))
overwriting = st.tuples(st.floats(0, 1, exclude_max=True), noise)


@given(st.lists(overwriting, min_size=1, max_size=6))
@hypothesis.example([(0.0, b"\xee"), (0.125, b"\0")])  # a wrong length that leads to a header inside a payload
def test_any_number_of_overwritten_ranges(changes):
    file = FILES["plain"]
    mutated = marked(file)
    for place, new in changes:
        mutated = mutated.with_bytes(int(place * len(mutated.data)), new)
    payloads, damages, _ = salvaged(mutated.data)
    assert in_order(mutated.survivors(file), payloads)
    assert in_order(payloads, file.payloads)
    assert bool(damages) == (mutated.data != file.data)
    if payloads:
        assert salvaged(repaired(mutated.data)[0]) == (payloads, [], list(range(len(payloads))))
    else:
        with pytest.raises(CorruptError, match="nothing is written"):
            repaired(mutated.data)


@given(
    st.sampled_from(list(FILES)),
    st.floats(0, 1, exclude_max=True),
    st.sampled_from(["delete", "insert", "overwrite"]),
    noise,
)
@hypothesis.example("nested", 0.390625, "delete", bytes(69))  # the header and the start of what holds records
def test_any_single_damage(name, place, kind, new):
    file = FILES[name]
    before = marked(file)
    at = int(place * len(file.data))
    if kind == "delete":
        mutated = before.without(at, at + len(new))
    elif kind == "insert":
        mutated = before.with_insertion(at, new)
    else:
        mutated = before.with_bytes(at, new)
    payloads, _, _ = salvaged(mutated.data)
    assert in_order(mutated.survivors(file), payloads)
    end = at if kind == "insert" else at + len(new)
    assert in_order(payloads, uncovered(file, at, end))


def uncovered(file, start, end):
    """The payloads, and after each whose header lies in a range the records that it holds: nothing tells whose they are
    once that header is gone."""
    found = []
    for border, payload in zip(file.borders, file.payloads, strict=False):
        found.append(payload)
        if border < end and start < border + 12 and framed(INNER) in payload:
            found += INNER
    return found


@given(
    st.lists(overwriting, max_size=3), st.sampled_from([1, 7, 100, None]), st.sampled_from([64, 4096]), st.booleans()
)
def test_streams_give_what_files_give(changes, step, block_bytes, sized):
    mutated = marked(FILES["nested"])
    for place, new in changes:
        mutated = mutated.with_bytes(int(place * len(mutated.data)), new)
    data = mutated.data
    source = MemorySource(data, step, sized)
    assert salvaged(data, source, block_bytes=block_bytes) == salvaged(data)


# ---- size and time -----------------------------------------------------------------


def test_a_header_that_claims_much_takes_no_memory():
    data = framed([b"first"]) + reference.frame_header(1 << 50) + bytes(100_000)
    for sized in (True, False):
        source = MemorySource(data, 1000, sized)
        tracemalloc.start()
        payloads, damages, _ = salvaged(data, source, block_bytes=1 << 16)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert payloads == [b"first"]
        assert [damage.kind for damage in damages] == ["cut payload"]
        assert peak < 4_000_000


def test_noise_is_read_in_pieces():
    data = np.random.default_rng(0).bytes(3_000_000) + framed([b"at last"])
    payloads, damages, _ = salvaged(data, MemorySource(data, 50_000, sized=False), block_bytes=1 << 16)
    assert payloads == [b"at last"]
    assert [(damage.start, damage.end) for damage in damages] == [(0, 3_000_000)]


@pytest.mark.skipif(not _wire.ACCELERATED, reason="the reference kernel takes minutes for this")
def test_a_hundred_megabytes_with_a_thousand_damages():
    random = np.random.default_rng(9)
    payload = random.bytes(2000)
    data = bytearray(framed([payload[i % 999 : 1000 + i % 999] for i in range(100_000)]))
    touched = set()
    for at in random.integers(0, len(data) - 64, 1000).tolist():
        data[at : at + 64] = random.bytes(64)
        touched |= {at // 1016, (at + 63) // 1016}
    report = check_records(io.BytesIO(data))
    assert 100_000 - len(touched) <= report.records < 100_000
    assert report.size == len(data)
    assert 900 < len(report.damages) <= 2000


@pytest.mark.parametrize("claim", [100, 30_000, 1 << 40])
def test_lying_headers_take_linear_time(claim):
    """Each must be refuted, but not by reading all of its claim every time."""

    def salvage(data):
        payloads, damages, _ = salvaged(data)
        assert not payloads
        assert damages

    check_linear(lambda n: b"?" + reference.frame_header(claim) * n, salvage, 5_000 // STEP**2)


# ---- compressed files --------------------------------------------------------------


def compressed(data, name):
    packer = open_encoder(name)
    return bytes(packer.compress(data)) + bytes(packer.finish())


def plain(data, name):
    with open_stream(io.BytesIO(data), name) as source:
        out, room = bytearray(), memoryview(bytearray(1000))
        while count := source.readinto(room):
            out += room[:count]
        return bytes(out)


@pytest.mark.parametrize("name", ["gzip", "zlib", "snappy"])
def test_damaged_records_in_sound_compression(tmp_path, name):
    file = FILES["nested"]
    for number in range(len(file.payloads)):
        data = bytearray(file.data)
        data[file.borders[number + 1] - 1] ^= 1
        path, fixed = tmp_path / "damaged", tmp_path / "fixed"
        path.write_bytes(compressed(data, name))
        report = keep_records(path, fixed)
        (damage,) = report.damages
        start, end = file.borders[number : number + 2]
        assert (damage.kind, damage.start, damage.end, damage.record) == ("payload", start, end, number)
        assert plain(fixed.read_bytes(), name) == file.data[:start] + file.data[end:]
        assert check_records(fixed).ok


def test_cut_compression():
    file = FILES["nested"]
    data = gzip.compress(file.data)
    for size in range(20, len(data), 3):
        report = check_records(io.BytesIO(data[:size]), compression="gzip")
        (damage,) = report.damages
        assert damage.kind == "compression"
        assert damage.cause
        assert damage.start == file.borders[report.records]
        assert damage.record == report.records
        out = io.BytesIO()
        if not report.records:
            with pytest.raises(CorruptError, match="no record in it is whole"):
                keep_records(io.BytesIO(data[:size]), out, compression="gzip")
            assert out.getvalue() == b""
            continue
        keep_records(io.BytesIO(data[:size]), out, compression="gzip")
        assert gzip.decompress(out.getvalue()) == file.data[: damage.start]


def test_flipped_bits_in_compressed_data():
    file = FILES["plain"]
    data = gzip.compress(file.data)
    for bit in range(8 * 10, 8 * len(data), 31):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        report = check_records(io.BytesIO(changed), compression="gzip")
        assert report.damages
        assert report.intact == report.size - report.lost
        if not report.records:
            continue
        out = io.BytesIO()
        keep_records(io.BytesIO(changed), out, compression="gzip")
        assert in_order(salvaged(gzip.decompress(out.getvalue())).payloads, file.payloads)


def test_compression_that_breaks_between_records():
    report = check_records(io.BytesIO(gzip.compress(FILES["plain"].data) + b"garbage"))
    (damage,) = report.damages
    assert (damage.kind, damage.start, damage.end) == ("compression", report.size, report.size)
    assert report.records == len(PLAIN)
    assert report.lost == 0


def test_a_compressed_record_over_the_limit():
    limits = Limits(max_bytes=1_000_000)
    data = framed([b"first", bytes(3_000_000)])

    def damages(data):
        found = []
        with open_stream(io.BytesIO(gzip.compress(data))) as source:
            for _ in intact(source, found.append, block_bytes=1 << 16, budget=Budget(limits)):
                pass
        return found

    with pytest.raises(LimitError, match=r"record of 3000000 bytes, over the limit of 1000000 \(byte 21\)"):
        damages(data)
    assert [damage.kind for damage in damages(data[:500_000])] == ["cut payload"]


# ---- verify and repair -------------------------------------------------------------


def test_an_empty_file(tmp_path):
    path = tmp_path / "empty.tfrecord"
    path.write_bytes(b"")
    report = check_records(path)
    assert (report.ok, report.records, report.size, report.damages) == (True, 0, 0, ())
    keep_records(path, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b""


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89" + zlib.compress(bytes(5)) * 9


@pytest.mark.parametrize(
    "data", [PNG, b"just some text\n" * 50, b"short", bytes(5000)], ids=["png", "text", "short", "0"]
)
def test_something_else(data):
    report = check_records(io.BytesIO(data))
    assert (report.records, report.intact, report.lost) == (0, 0, len(data))
    assert [(damage.start, damage.end) for damage in report.damages] == [(0, len(data))]
    assert "is this a TFRecord file" in str(tb.verify(io.BytesIO(data), "tfrecord"))


@pytest.mark.parametrize("format", ["npz", "npy", "safetensors", "torchfile", "arrowtensor", "tensorproto"])
def test_a_sound_file_of_another_format(tmp_path, format):
    path, out = tmp_path / "x", tmp_path / "out"
    x = np.arange(5000, dtype=np.float32)
    tb.save(x if format in ("npy", "tensorproto", "arrowtensor") else {"x": x}, path, format)
    out.write_bytes(b"old")
    message = rf"x: a file of format '{format}', without records; pass format='{format}' to have its tensors checked"
    with pytest.raises(UsageError, match=message):
        check_records(path)
    with open(path, "rb") as file, pytest.raises(UsageError, match=message):
        check_records(file)
    for same in (False, True):
        with pytest.raises(UsageError, match=message):
            keep_records(path, path if same else out, same=same)
    assert out.read_bytes() == b"old"
    with tb.open(path) as opened:
        assert opened.verify() == 1


def test_tensors_are_records_too(tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"a": np.arange(9), "b": np.ones(3)}, path)
    assert check_records(path).records == 2
    data = path.read_bytes()
    path.write_bytes(data[:40])
    assert [damage.kind for damage in check_records(path).damages] == ["cut payload"]


@pytest.mark.parametrize("data", [PNG, framed([b"only one"])[:-1], gzip.compress(b"text")], ids=["png", "cut", "gzip"])
def test_nothing_is_written_where_no_record_is_whole(tmp_path, data):
    path, out = tmp_path / "x", tmp_path / "out"
    path.write_bytes(data)
    for target in (out, out.as_uri()):
        with pytest.raises(CorruptError, match=r"x: no record in it is whole, so nothing is written.*\(byte 0\)"):
            keep_records(path, target)
        assert os.listdir(tmp_path) == ["x"]


def test_the_report_in_words(tmp_path):
    file = FILES["plain"]
    data = bytearray(file.data)
    data[file.borders[3] + 20] ^= 1
    data[file.borders[9]] ^= 1
    path = tmp_path / "x.tfrecord"
    path.write_bytes(data[:-3])
    report = tb.verify(path)
    assert not report.ok
    assert str(report).splitlines() == [
        f"{path}: 10 records in {len(data) - 3} bytes, 3 places are damaged, 137 bytes lost",
        "  the data of record 3 and its checksum disagree (bytes 54 to 170, 116 bytes lost)",
        f"  the length of record 9 and its checksum disagree (bytes {file.borders[9]} to {file.borders[9] + 12}, "
        "its payload was kept)",
        f"  record 11 is cut off (bytes {file.borders[11]} to {len(data) - 3}, 21 bytes lost)",
    ]


def test_progress(tmp_path):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(FILES["plain"].data)
    seen = []
    check_records(path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    seen.clear()
    path.write_bytes(gzip.compress(FILES["plain"].data))
    keep_records(path, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen[-1] == (size, size)


def test_repair_in_place_must_be_asked_for(tmp_path):
    file = FILES["plain"]
    path, link = tmp_path / "x.tfrecord", tmp_path / "link"
    path.write_bytes(file.data[:-1])
    link.symlink_to(path)
    for target in (path, str(path), link):
        with pytest.raises(UsageError, match="pass replace=True"):
            tb.repair(path, target)
    assert path.read_bytes() == file.data[:-1]
    report = tb.repair(link, path, replace=True)
    assert path.read_bytes() == file.data[: file.borders[-2]]
    assert report.damages[0].kind == "cut payload"
    assert sorted(os.listdir(tmp_path)) == ["link", "x.tfrecord"]


def test_a_file_is_not_replaced_by_nothing(tmp_path):
    path = tmp_path / "picture.png"
    path.write_bytes(PNG)
    with pytest.raises(UsageError, match="not replaced by nothing"):
        keep_records(path, path, same=True)
    assert path.read_bytes() == PNG
    assert os.listdir(tmp_path) == ["picture.png"]


def test_a_failing_repair_leaves_nothing_behind(tmp_path):
    old = tmp_path / "out"
    old.write_bytes(b"old")
    with pytest.raises(FileNotFoundError):
        keep_records(tmp_path / "missing", old)

    def stop(done, total):
        raise KeyboardInterrupt

    source = tmp_path / "in"
    source.write_bytes(FILES["plain"].data)
    with pytest.raises(KeyboardInterrupt):
        keep_records(source, old, progress=stop)
    assert old.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_a_range_of_a_file(tmp_path):
    file = FILES["plain"]
    path = tmp_path / "x.tfrecord"
    data = bytearray(file.data)
    data[file.borders[5] + 30] ^= 1
    path.write_bytes(data)
    damages = []
    with open_stream(path, start=file.borders[4], end=file.borders[7]) as source:
        blocks = list(intact(source, damages.append, base=file.borders[4]))
    assert [(d.start, d.end, d.record) for d in damages] == [(file.borders[5], file.borders[6], 1)]
    assert [(block.base, len(block.records)) for block in blocks] == [(file.borders[4], 1), (file.borders[6], 1)]


# ---- TensorFlow ---------------------------------------------------------------------


def test_tensorflow_reads_what_was_repaired(tmp_path):
    import tensorflow as tf

    file = FILES["nested"]
    random = np.random.default_rng(4)
    for case in range(12):
        data = bytearray(file.data)
        for at in random.integers(0, len(data), 1 + case % 3).tolist():
            width = int(random.integers(1, 50))
            data[at : at + width] = random.bytes(width)
        name = ["none", "gzip", "zlib", "snappy"][case % 4]
        path, fixed = tmp_path / f"{case}", tmp_path / f"{case}.fixed"
        path.write_bytes(compressed(data, name))
        report = keep_records(path, fixed, compression=name)
        kind = "" if name == "none" else name.upper()
        read = [item.numpy() for item in tf.data.TFRecordDataset(str(fixed), compression_type=kind)]
        assert read == salvaged(data).payloads
        assert len(read) == report.records
