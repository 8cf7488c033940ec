"""Files, streams and pipes: atomic replacement, lazy reading, appending after a crash."""

import io
import os
import socket
import threading
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.formats import _opened, frame
from tensorbytes.io import storage


@pytest.fixture
def path(tmp_path):
    return tmp_path / "x.tb"


def left_over(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


# ---- whole files ------------------------------------------------------------


def test_a_failed_save_leaves_the_old_file_and_nothing_else(path):
    tb.save(np.ones(3), path)
    old = path.read_bytes()
    with pytest.raises(tb.errors.UnsupportedError):
        tb.save({"a": np.ones(1 << 20), "b": object()}, path)
    assert path.read_bytes() == old
    assert left_over(path.parent) == ["x.tb"]


def test_a_file_that_can_not_grow_leaves_the_old_one(path, small_files_only):
    tb.save(np.ones(3), path)
    old = path.read_bytes()
    with pytest.raises(OSError, match="too large"):
        tb.save({"a": np.zeros(50_000), "b": np.zeros(2_000_000)}, path)
    assert path.read_bytes() == old
    assert left_over(path.parent) == ["x.tb"]


def test_a_stream_that_can_not_grow_keeps_its_whole_items(path, small_files_only):
    def write_too_much():
        with tb.open(path, "a") as f:
            f.write(np.ones(10_000))
            f.flush()
            f.write(np.ones(40_000))

    with pytest.raises(OSError, match="too large"):
        write_too_much()
    assert tb.equal(tb.load(path), [np.ones(10_000)])
    assert left_over(path.parent) == ["x.tb"]


def test_short_writes_are_continued():
    class Short(io.RawIOBase):
        """Takes at most 1000 bytes at a time, as a full pipe or a signal may have it."""

        def __init__(self):
            self.data = b""

        def write(self, view):
            self.data += bytes(view[:1000])
            return min(len(view), 1000)

    x = np.arange(50_000.0)
    file = Short()
    tb.save({"a": x, "b": x}, file)
    assert tb.equal(tb.loads(file.data), {"a": x, "b": x})


def test_mode_and_links_are_kept(path):
    tb.save(np.ones(3), path)
    path.chmod(0o640)
    link = path.with_name("link.tb")
    link.symlink_to(path)
    tb.save(np.zeros(4), link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert tb.load(path).shape == (4,)


def test_saving_over_the_file_that_is_mapped(path):
    x = np.arange(10_000.0)
    tb.save({"x": x}, path)
    with tb.open(path) as f:
        mapped = f["x"][:]
        tb.save({"x": mapped * 2}, path)
        assert np.array_equal(mapped, x)
    assert np.array_equal(tb.load(path)["x"], x * 2)


def test_devices_and_pipes_are_written_not_replaced(tmp_path):
    tb.save(np.ones(3), "/dev/null", "tb")
    assert not os.path.isfile("/dev/null")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=tb.save, args=(np.arange(5), fifo, "tb"))
    writer.start()
    with open(fifo, "rb") as f:
        assert tb.load(f).tolist() == [0, 1, 2, 3, 4]
    writer.join()


def test_file_objects_and_urls(path):
    x = {"a": np.arange(3), "b": "text"}
    memory = io.BytesIO()
    tb.save(x, memory)
    memory.seek(0)
    assert tb.equal(tb.load(memory), x)
    tb.save(x, "memory://folder/x.tb")
    assert tb.equal(tb.load("memory://folder/x.tb"), x)
    with tb.open("memory://folder/s.tb", "w") as f:
        f.write(x)
    assert tb.equal(tb.load("memory://folder/s.tb"), [x])
    with tb.open("memory://folder/x.tb") as f:
        assert f["a"][1] == 1


def test_the_suffix_or_the_content_tells_the_format(tmp_path):
    x = np.arange(3)
    for suffix in (".tensorproto", ".pb", ".tb"):
        tb.save(x, tmp_path / f"x{suffix}")
        (tmp_path / f"x{suffix}").rename(tmp_path / "unnamed")
        assert tb.load(tmp_path / "unnamed").tolist() == [0, 1, 2]
    with pytest.raises(tb.errors.UsageError, match=r"no format has this suffix.*tensorproto"):
        tb.save(x, tmp_path / "x.xyz")


# ---- lazy reading -----------------------------------------------------------


def test_names_slices_and_metadata(path):
    obj = {
        "w": np.arange(200_000.0).reshape(1000, 200),
        "deep": {"b": ["x", np.ones(3, np.int8)]},
        "s": np.array(["a", "b"]),
    }
    tb.save(obj, path, meta={"epoch": "3"})
    with tb.open(path) as f:
        assert f.keys() == ["w", "deep/b/0", "deep/b/1", "s"]
        assert f.meta == {"epoch": "3"}
        assert "w" in f
        assert len(f) == 1
        entry = f["w"]
        assert (entry.name, entry.dtype, entry.shape, entry.kind, len(entry)) == (
            "w",
            "float64",
            (1000, 200),
            "tensor",
            1000,
        )
        assert np.array_equal(entry[10:20, ::3], obj["w"][10:20, ::3])
        assert entry[5, 7] == 1007
        assert np.array_equal(np.asarray(entry), obj["w"])
        assert f["s"][1] == "b"
        assert f["deep/b/0"].load() == "x"
        assert tb.equal(f[0], obj)
        with pytest.raises(KeyError, match=r"no tensor 'v'; it has 'w'"):
            f["v"]
        kept = f["w"][3]
    assert kept[0] == 600  # a view outlives the reader
    with pytest.raises(tb.errors.TensorbytesError, match="is closed"):
        f.keys()
    assert list(tb.load(path, names=["s"])) == ["s"]


def test_items_values_and_other_keys(path):
    tb.save({"w": np.arange(6.0), "b": np.ones(2)}, path)
    with tb.open(path) as f:
        assert [(name, entry.name, entry[1]) for name, entry in f.items()] == [("w", "w", 1), ("b", "b", 1)]
        assert [entry.shape for entry in f.values()] == [(6,), (2,)]
        assert tb.equal(f[np.int64(0)], f[0])
        for key in (slice(0, 2), 1.5, None, (0, 1)):
            with pytest.raises(tb.errors.UsageError, match=r"f\.entries\(\)\[0\]\[:2\] slices a tensor"):
                f[key]
        assert f.entries()[0][:2].tolist() == [0, 1]


def test_slices_go_to_any_framework(path):
    import torch

    tb.save({"w": torch.arange(12.0).reshape(3, 4).bfloat16()}, path)
    with tb.open(path, to="torch") as f:
        assert torch.equal(f["w"][1:, 2], torch.tensor([6.0, 10.0]).bfloat16())


def test_opening_reads_no_content(path):
    """Damage inside a large tensor is found when it is loaded, not when another one is sliced."""
    tb.save({"a": np.arange(4096.0), "b": np.arange(4096.0)}, path)
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    path.write_bytes(data)
    with tb.open(path) as f:
        assert f["b"].load()[1] == 1
        assert f["a"][0] == 0
        with pytest.raises(tb.errors.CorruptError, match=r"x\.tb: the checksum of a record's data differs") as caught:
            f["a"].load()
        assert 0 < caught.value.at < len(data)
        with pytest.raises(tb.errors.CorruptError):
            f.verify()
    with pytest.raises(tb.errors.CorruptError, match=r"x\.tb"):
        tb.load(path)


def test_a_damaged_header_is_found_on_opening(path):
    tb.save({"a": np.arange(4096.0)}, path)
    data = bytearray(path.read_bytes())
    data[13] ^= 3  # the dtype
    path.write_bytes(data)
    with tb.open(path) as f, pytest.raises(tb.errors.CorruptError, match="header differs"):
        f.keys()


def test_duplicate_names_are_not_guessed_at(path):
    with tb.open(path, "w") as f:
        f.write(np.ones(1), name="w")
        f.write(np.ones(2), name="w")
    with tb.open(path) as f:
        with pytest.raises(KeyError, match="2 tensors are named 'w'"):
            f["w"]
        assert f[1].shape == (2,)


# ---- streams ----------------------------------------------------------------

ITEMS = [np.arange(3), {"ids": np.arange(7), "text": "ja"}, [1.5, "x"], np.ones((50, 50)), None]


def test_a_stream_comes_back_item_by_item(path):
    with tb.open(path, "w") as f:
        for item in ITEMS:
            f.write(item)
    assert tb.equal(list(tb.open(path)), ITEMS)
    assert tb.equal(tb.load(path), ITEMS)


def test_a_stream_of_one_is_still_a_list(path):
    with tb.open(path, "w") as f:
        f.write(np.ones(2))
    assert tb.equal(tb.load(path), [np.ones(2)])


def test_an_empty_stream_iterates_but_does_not_load(path):
    with tb.open(path, "w"):
        pass
    assert list(tb.open(path)) == []
    with pytest.raises(tb.errors.CorruptError, match="no bytes at all"):
        tb.load(path)


def test_the_caller_may_reuse_its_buffer(path):
    buffer = np.zeros(10)
    with tb.open(path, "w") as f:
        for i in range(5):
            buffer[:] = i
            f.write(buffer)
    assert [x[0] for x in tb.open(path)] == [0, 1, 2, 3, 4]


def test_an_old_file_stays_until_the_new_one_is_flushed(path):
    tb.save("old", path)

    def interrupted(flush):
        with tb.open(path, "w") as f:
            f.write("new")
            if flush:
                f.flush()
                assert tb.load(path) == ["new"]
                f.write("newer")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        interrupted(flush=False)
    assert tb.load(path) == "old"
    assert left_over(path.parent) == ["x.tb"]
    with pytest.raises(RuntimeError):
        interrupted(flush=True)
    assert tb.load(path) == ["new", "newer"]
    assert left_over(path.parent) == ["x.tb"]


def test_appending_continues_the_numbering(path):
    for n in range(3):
        with tb.open(path, "a") as f:
            f.write(np.full(3, n))
    assert [x[0] for x in tb.load(path)] == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 5, 30, 60])
def test_appending_cuts_off_a_torn_tail_and_says_so(path, cut):
    with tb.open(path, "w") as f:
        for item in ITEMS[:3]:
            f.write(item)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    with pytest.warns(tb.errors.TornTailWarning, match=r"cut off \d+ bytes"), tb.open(path, "a") as f:
        f.write("after")
    back = tb.load(path)
    assert back[-1] == "after"
    assert tb.equal(back[:-1], ITEMS[: len(back) - 1])
    assert 2 <= len(back) <= 3


def test_appending_after_a_tail_of_zeros(path):
    with tb.open(path, "w") as f:
        f.write("whole")
    with open(path, "ab") as raw:
        raw.write(bytes(100))
    with pytest.warns(tb.errors.TornTailWarning), tb.open(path, "a") as f:
        f.write("after")
    assert tb.load(path) == ["whole", "after"]


def test_appending_to_a_damaged_file_is_refused(path):
    with tb.open(path, "w") as f:
        for item in ITEMS[:3]:
            f.write(item)
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.write_bytes(data)
    with pytest.raises(tb.errors.CorruptError, match="damaged, not just cut"):
        tb.open(path, "a")
    assert path.read_bytes() == data


def test_two_writers_at_once_are_refused(path):
    with tb.open(path, "a") as f:
        f.write(1)
        f.flush()
        with pytest.raises(tb.errors.TensorbytesError, match="being written"):
            tb.open(path, "a")


def test_concatenated_streams_are_one_stream(path):
    with tb.open(path, "w") as f:
        f.write("a")
        f.write("b")
    path.write_bytes(path.read_bytes() * 2)
    assert tb.load(path) == ["a", "b", "a", "b"]


def test_a_doubled_or_missing_item_is_noticed(path):
    with tb.open(path, "w") as f:
        for n in range(4):
            f.write(n)
    data = path.read_bytes()
    size = len(data) // 4
    records = [data[i * size : (i + 1) * size] for i in range(4)]
    for order in ([0, 1, 1, 2, 3], [0, 2, 3], [0, 2, 1, 3]):
        with pytest.raises(tb.errors.CorruptError, match="of a stream follows item"):
            tb.loads(b"".join(records[i] for i in order))


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_pipes_and_sockets(kind):
    if kind == "pipe":
        r, w = os.pipe()
        reader, writer = os.fdopen(r, "rb"), os.fdopen(w, "wb")
    else:
        a, b = socket.socketpair()
        reader, writer = a.makefile("rb"), b.makefile("wb")
        a.close()
        b.close()
    received = []
    with reader, writer:
        stream = iter(tb.open(reader))
        with tb.open(writer, "w") as out:
            for item in ITEMS:  # each arrives before the next is sent: nothing waits for more
                out.write(item)
                out.flush()
                received.append(next(stream))
        writer.close()
        assert list(stream) == []
    assert tb.equal(received, ITEMS)


def test_one_byte_at_a_time_gives_the_same(path):
    class Dribble(io.RawIOBase):
        def __init__(self, data):
            self.data = io.BytesIO(data)

        def read(self, size=-1):
            return self.data.read(1 if size else 0)

        def readable(self):
            return True

    with tb.open(path, "w") as f:
        for item in ITEMS:
            f.write(item)
    assert tb.equal(list(tb.open(Dribble(path.read_bytes()))), ITEMS)


def test_a_cut_stream_is_an_error_not_an_end(path):
    with tb.open(path, "w") as f:
        f.write(np.ones(10))
    whole = path.read_bytes()

    class Onward(io.BytesIO):
        def seekable(self):
            return False

    for cut in range(1, len(whole)):
        with pytest.raises(tb.errors.CorruptError, match="the stream ends"):
            list(tb.open(Onward(whole[:cut])))


def test_buffers_are_the_tensors_own_memory():
    x = np.arange(1_000_000.0)
    pieces = tb.buffers({"x": x})
    assert b"".join(pieces) == tb.dumps({"x": x})
    assert any(np.shares_memory(np.frombuffer(piece, np.uint8), x) for piece in pieces if len(piece) > 1000)


def test_gathering_joins_only_small_pieces():
    pieces = [b"a", b"b", bytes(1 << 20), b"c"]
    assert [len(piece) for piece in storage.gather(pieces)] == [2, 1 << 20, 1]


# ---- large files ------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Large records, small ones, a run of very small ones: every kind of stretch that loading makes."""
    rng = np.random.default_rng(0)
    obj = {f"large{n}": rng.random(60_000 + n) for n in range(9)}
    obj |= {f"small{n}": rng.random(n + 1) for n in range(300)}
    obj["middle"] = [rng.random(9_000) for _ in range(30)]
    obj["last"] = rng.random(70_000)
    path = tmp_path_factory.mktemp("large") / "x.tb"
    tb.save(obj, path)
    assert path.stat().st_size > _opened._LARGE_BYTES
    return path, obj


def test_a_large_file_comes_back_aligned_and_writable(large):
    path, obj = large
    back = tb.load(path)
    assert tb.equal(back, obj)
    for array in (back["large3"], back["middle"][7], back["last"]):
        assert array.ctypes.data % 64 == 0
        assert array.flags.writeable


def test_large_tensors_have_memory_of_their_own(large):
    back = tb.load(large[0])
    assert back["large0"].base.nbytes < 2 * back["large0"].nbytes


def test_stretches_cover_the_file_once(large):
    path, _ = large
    with open(path, "rb") as f:
        found = list(frame.segments(f.fileno(), path.stat().st_size))
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert found[-1][1] == path.stat().st_size


def test_damage_in_a_large_file_is_located(large, tmp_path):
    data = large[0].read_bytes()
    path = tmp_path / "damaged.tb"
    for at in (3, 700_000, len(data) // 2, len(data) - 2):
        damaged = bytearray(data)
        damaged[at] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(tb.errors.CorruptError, match=r"damaged\.tb") as caught:
            tb.load(path)
        assert caught.value.at <= at < caught.value.at + 600_000
    for size in (len(data) - 1, len(data) - 9, len(data) - 600_000):
        path.write_bytes(data[:size])
        with pytest.raises(tb.errors.CorruptError):
            tb.load(path)


# ---- streams of plain tensors, read in portions ---------------------------------------------


def plain_and_other_items():
    for number in range(3000):
        if number % 700 == 699:
            yield {"text": "a", "x": np.arange(3), "deep": {"y": [np.ones(2), None]}}
        elif number % 5 == 4:
            yield {"a": np.full(number % 7, number), "é": np.array(number % 2 == 0)}
        else:
            yield np.full((number % 4, 2), number, np.float32)


@pytest.mark.parametrize("to", ["numpy", "torch"])
def test_plain_items_and_others_come_in_their_order(path, to):
    items = list(plain_and_other_items())
    with tb.open(path, "w") as file:
        for item in items:
            file.write(item)
    with tb.open(path, to=to) as file:
        got = list(iter(file))
    assert len(got) == len(items)
    for one, two, three in zip(got, items, tb.load(path, to=to), strict=True):
        assert tb.equal(one, three)
        assert to != "numpy" or tb.equal(one, two)
    with tb.open(path) as file:
        assert tb.equal(file[699], items[699])


def test_an_item_out_of_order_is_noticed_after_plain_ones(path):
    with tb.open(path, "w") as file:
        for number in range(5):
            file.write(np.full(3, number))
    whole = path.read_bytes()
    size = len(whole) // 5
    path.write_bytes(whole[: 2 * size] + whole[3 * size :])  # without the third
    with tb.open(path) as file:
        stream = iter(file)
        assert [next(stream)[0], next(stream)[0]] == [0, 1]
        with pytest.raises(tb.errors.CorruptError, match="item 4 of a stream follows item 2"):
            next(stream)


def test_damage_is_told_once_the_items_before_it_were_given(path):
    with tb.open(path, "w") as file:
        for number in range(2000):
            file.write(np.full(5, number))
    raw = bytearray(path.read_bytes())
    raw[-30] ^= 1
    path.write_bytes(raw)
    with tb.open(path) as file:
        stream = iter(file)
        assert [next(stream)[0] for _ in range(1999)] == list(range(1999))
        with pytest.raises(tb.errors.CorruptError, match="checksum of a record's data"):
            next(stream)


def test_a_key_twice_in_an_item_is_told_after_the_items_before_it(path):
    with tb.open(path, "w") as file:
        for number in range(3):
            file.write({"a": np.full(2, number), "b": np.ones(1)})
    raw = path.read_bytes()
    payloads = [raw[start:end] for start, end in frame.spans(memoryview(raw), 1, tb.errors.Limits())]
    payloads[5] = payloads[5].replace(b"\xc2\x3e\x01b", b"\xc2\x3e\x01a")
    records = frame.frames([[payload] for payload in payloads])
    path.write_bytes(records)
    with tb.open(path) as file:
        stream = iter(file)
        assert [next(stream)["a"][0], next(stream)["a"][0]] == [0, 1]
        with pytest.raises(tb.errors.CorruptError, match="'a' is stored twice"):
            next(stream)


def test_views_of_a_stream_outlive_its_file(path):
    with tb.open(path, "w") as file:
        for number in range(10):
            file.write(np.full(3, number))
    with tb.open(path) as file:
        stream = iter(file)
        first = next(stream)
    assert [first[0], *(x[0] for x in stream)] == list(range(10))


def test_pieces_are_written_in_calls_that_end_where_pages_do(path, monkeypatch):
    pieces = [os.urandom(size) for size in (10, 3 << 20, 5, 70_000, 1 << 20, 0, 100, 1 << 20)]
    ends, at = [], 0
    for parts in storage._portions(pieces):
        at += sum(map(len, parts))
        ends.append(at)
    assert all(end % (1 << 20) == 0 for end in ends[:-1])
    storage.write(path, pieces, size=at, sync=False)
    assert path.read_bytes() == b"".join(pieces)
    calls = []
    monkeypatch.setattr(os, "writev", lambda fd, parts: calls.append(len(parts)) or os.write(fd, parts[0][:7]))
    storage.write(path, iter(pieces), size=at, sync=False)  # a disk that takes little at a time
    assert path.read_bytes() == b"".join(pieces)
    assert calls


def test_blocks_that_were_set_aside_do_not_make_a_file_longer(path, monkeypatch):
    monkeypatch.setattr(storage, "_RESERVED_BYTES", 1)
    obj, meta = {"a": np.ones(5), "b": np.arange(3)}, {"general": "yes"}
    tb.save(obj, path, meta=meta, sync=False)
    assert path.read_bytes() == tb.dumps(obj, meta=meta)
