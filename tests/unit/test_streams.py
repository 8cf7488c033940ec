"""io/streams/engines.py and io/checksums.py: isal and zlib say the same, and no more is made than was asked for."""

import subprocess
import sys
import zlib

import pytest

from tensorbytes.io import checksums
from tensorbytes.io.streams import engines
from tensorbytes.io.streams.engines import DamagedError

CONTAINERS = {"gzip": 31, "zlib": 15, "deflate": -15}
TEXT = b"".join(b"%d is a number; " % (n * n % 1000) for n in range(900))


@pytest.fixture(params=["isal", "zlib"])
def engine(request, monkeypatch):
    """Both libraries of deflate; the second is that of machines without isal."""
    if request.param == "zlib":
        monkeypatch.setattr(engines, "find_isal", lambda: None)
    else:
        pytest.importorskip("isal")
    return request.param


def pack(container, data=TEXT, level=6):
    made = zlib.compressobj(level, zlib.DEFLATED, CONTAINERS[container])
    return made.compress(data) + made.flush()


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("data", [b"", b"a", TEXT, bytes(100_000)])
def test_both_libraries_read_what_both_write(container, data):
    for level in (None, 1, 9):
        for pieces in ([memoryview(data)], [memoryview(data[:7]), memoryview(data[7:])]):
            packed = engines.deflate_whole(container, pieces, level)
            assert zlib.decompress(packed, CONTAINERS[container]) == data
            assert engines.inflate_whole(container, memoryview(packed), len(data)) == (data, True)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("extra", [1, 2, 3, 4, 5, 8, 20])
def test_bytes_after_the_end_are_noticed(container, extra):
    plain, alone = engines.inflate_whole(container, memoryview(pack(container) + b"~" * extra), len(TEXT))
    assert (plain, alone) == (TEXT, False)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_stream_that_is_cut_does_not_count_as_whole(container):
    packed = pack(container)
    for size in (0, 5, len(packed) // 2, len(packed) - 1):
        plain, alone = engines.inflate_whole(container, memoryview(packed[:size]), len(TEXT))
        assert TEXT.startswith(plain)
        assert not alone


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("container", CONTAINERS)
def test_a_bomb_is_cut_off_after_one_byte_too_many(container):
    packed = memoryview(pack(container, bytes(10 << 20)))
    plain, alone = engines.inflate_whole(container, packed, 1000)
    assert (len(plain), alone) == (1001, False)
    assert len(engines.inflate_start(container, packed, 77)) == 77


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("container", CONTAINERS)
def test_damage_has_one_exception(container):
    packed = bytearray(pack(container))
    packed[: len(packed) // 2] = b"\xff" * (len(packed) // 2)
    with pytest.raises(DamagedError):
        engines.inflate_whole(container, memoryview(packed), len(TEXT))
    with pytest.raises(DamagedError):
        engines.inflate_start(container, packed, len(TEXT))
    assert DamagedError("no").at(7).at == 7


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", ["gzip", "zlib", "zstd", "lz4", "snappy"])
def test_whole_streams_fill_memory_exactly(name):
    packed = memoryview(bytes(engines.compress(name, memoryview(TEXT), None)))
    out = bytearray(len(TEXT))
    engines.decompress_into(name, packed, memoryview(out))
    assert bytes(out) == TEXT
    for more in (-1, 1):
        with pytest.raises(DamagedError, match=name):
            engines.decompress_into(name, packed, memoryview(bytearray(len(TEXT) + more)))


def test_blocks_of_snappy():
    packed = bytes(engines.compress("snappy", memoryview(TEXT), None))
    assert bytes(engines.decompress_block(packed)) == TEXT
    with pytest.raises(DamagedError):
        engines.decompress_block(packed[:-1])


def test_checksums(engine):
    data = memoryview(TEXT)
    assert checksums.crc32(data) == zlib.crc32(TEXT)
    assert checksums.crc32(data[100:], checksums.crc32(data[:100])) == zlib.crc32(TEXT)
    assert checksums.crc32(memoryview(b""), 9) == 9
    assert checksums.can_join_crc32() == (engine == "isal")
    if engine == "isal":
        parts = checksums.crc32(data[:100]), checksums.crc32(data[100:])
        assert checksums.join_crc32(*parts, len(TEXT) - 100) == zlib.crc32(TEXT)


def test_libraries_are_loaded_when_they_are_asked_for():
    code = (
        "import sys\nfrom tensorbytes.io import checksums\n"
        "from tensorbytes.io.streams import decoders, detection, encoders, engines, snappy\n"
        "detection.detect(bytes(64), lambda head: False)\n"
        "print(sorted({'isal', 'cramjam'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
