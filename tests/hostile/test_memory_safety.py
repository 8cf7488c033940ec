"""Memory that others hold: views that outlive readers, files and buffers that change under them."""

import contextlib
import gc
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import _wire, formats

ARRAYS = {"w": np.arange(6000, dtype=np.float32).reshape(60, 100), "b": np.arange(-400, 400, dtype=np.int64)}
READ_OPTIONS = {"raw": {"dtype": "float32", "shape": (60, 100)}}
SINGLE, SUFFIXES = ("raw",), {"onnx": "pb"}
WRITE_OPTIONS = {"zstd": {"compression": "zstd"}, "huffman": {"compression": "huffman"}}


def saved(folder, format, arrays=ARRAYS):
    """A file of a format with two named arrays in it, or one where it holds no more; its path and what is in it."""
    name, _, variant = format.partition("+")
    path = folder / f"file.{SUFFIXES.get(name, name)}"
    for content in (arrays, arrays["w"])[name in SINGLE :]:
        try:
            tb.save(content, path, name, **WRITE_OPTIONS.get(variant, {}))
            return path, content
        except tb.errors.LossError:
            continue
    raise AssertionError(f"nothing could be saved as {format}")


FORMATS = [
    *(name for name in formats.writable() if name != "sparseproto" and formats.get(name).documents),
    "tb+zstd",
    "tb+huffman",
]


@pytest.fixture(params=FORMATS)
def written(request, tmp_path):
    """(path, format, content, options to read it) of a file of each format."""
    name = request.param.partition("+")[0]
    path, content = saved(tmp_path, request.param)
    return path, name, content, READ_OPTIONS.get(name, {})


def child(code, *arguments, timeout=60):
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout.strip(), done.stderr


def churn():
    """Whatever was freed is used again, for something else."""
    gc.collect()
    for size in (64, 4096, 24_000, 100_000):
        [bytearray(b"\xa5" * size) for _ in range(20)]


def arrays_of(value):
    return list(value.values()) if isinstance(value, dict) else [value]


# ---- views and those they are of ------------------------------------------------


def test_views_outlive_their_reader(written):
    path, name, content, options = written
    reader = tb.open(path, format=name, **options)
    entries = reader.entries()
    views = [entry.load() for entry in entries] + [entry[1:3] for entry in entries]
    expected = [np.array(view) for view in views]
    assert any(tb.equal(view, array) for view in views for array in arrays_of(content))
    iterator = iter(reader)
    late = entries[-1]
    reader.close()
    del reader, entries
    path.unlink(missing_ok=True)
    churn()
    for view, was in zip(views, expected, strict=True):
        assert np.array_equal(view, was)
    assert np.asarray(late.load()).size  # an entry is a holder, too
    with pytest.raises(tb.errors.TensorbytesError, match="is closed"):
        next(iterator)


def test_what_was_loaded_lives_alone(written):
    path, name, content, options = written
    value = tb.load(path, name, **options)
    again = tb.load(path, name, mmap=True, **options) if path.is_file() else None
    for file in path.parent.iterdir():  # a folder's files, a checkpoint's shards
        if file.is_file():
            file.unlink()
    churn()
    assert tb.equal(value, content)
    assert again is None or tb.equal(again, content)


def test_views_outlive_their_buffer(written):
    path, name, content, options = written
    if not path.is_file() or name in ("checkpoint",):
        pytest.skip("a format of several files")
    data = bytearray(path.read_bytes())
    value = tb.loads(data, name, **options)
    views = any(np.shares_memory(array, np.frombuffer(data, np.uint8)) for array in arrays_of(value))
    if views:
        with pytest.raises(BufferError):
            data.clear()
    del data
    churn()
    assert tb.equal(value, content)


@pytest.mark.parametrize("structure", [False, True])
def test_arrays_hold_the_map_that_they_were_loaded_from(structure):
    """The owner of the memory can't close it under them."""
    data = tb.dumps(ARRAYS if structure else ARRAYS["w"])
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    value = tb.loads(mapped)
    with pytest.raises(BufferError):
        mapped.close()
    assert tb.equal(value, ARRAYS if structure else ARRAYS["w"])
    del value
    gc.collect()
    mapped.close()


def test_arrays_of_neutral_values_hold_their_memory():
    data = bytearray(range(16))
    array = tb.Tensor("int32", (4,), data).numpy()
    with pytest.raises(BufferError):
        data.clear()
    assert array.tobytes() == bytes(range(16))


def test_closing_a_reader_twice_and_using_it_after(tmp_path):
    path, _ = saved(tmp_path, "tb")
    reader = tb.open(path)
    reader.close()
    reader.close()
    for act in (reader.keys, lambda: reader["w"], lambda: len(reader), lambda: list(reader), reader.verify):
        with pytest.raises(tb.errors.TensorbytesError, match="is closed"):
            act()
    assert "closed" in repr(reader)


def overwrite(array):
    if array.flags.writeable:
        array[...] = 0
    else:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_what_is_read_can_be_written_to_or_says_that_it_can_not(written):
    """Never a crash, and never a change of the file or of the caller's bytes behind their back."""
    path, name, content, options = written
    before = path.read_bytes() if path.is_file() else b""
    with tb.open(path, format=name, **options) as reader:
        for entry in reader.entries():
            overwrite(np.asarray(entry.load()))
    if path.is_file():
        assert path.read_bytes() == before
        value = tb.loads(before, name, **options)  # of bytes, which nobody may change
        for array in arrays_of(value):
            overwrite(array)
        assert path.read_bytes() == before
    assert tb.equal(tb.load(path, name, **options), content)


def test_torch_tensors_of_read_only_bytes_change_nothing(tmp_path):
    pytest.importorskip("torch")
    data = tb.dumps(ARRAYS)
    copy = bytes(bytearray(data))
    tb.loads(data, to="torch")["w"].zero_()
    assert data == copy
    path, _ = saved(tmp_path, "tb")
    for mapped in (False, True):
        tb.load(path, to="torch", mmap=mapped)["w"].zero_()
    assert tb.equal(tb.load(path), ARRAYS)


# ---- files that change --------------------------------------------------------------


@pytest.mark.skipif(not hasattr(signal, "SIGBUS") or not hasattr(os, "fork"), reason="needs signals and forks of POSIX")
def test_a_file_cut_after_reading_kills_only_those_who_mapped_it(tmp_path):
    """load() reads; open() and mmap=True map, as their documentation says, and the system may then kill the process."""
    for format in FORMATS:
        for how in ("load", "names", "mmap"):
            folder = tmp_path / f"{format} {how}"
            folder.mkdir()
            saved(folder, format)
    code = f"""
        import os, resource, sys, warnings
        import numpy as np, tensorbytes as tb
        warnings.simplefilter("ignore")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        def total(path, format, how, options):
            if how == "names":
                options["names"] = ["w"]
            value = tb.load(path, format, mmap=how == "mmap", **options)
            for file in os.scandir(os.path.dirname(path)):
                os.truncate(file.path, 0)
            arrays = list(value.values()) if isinstance(value, dict) else [value]
            return max(float(np.asarray(array, np.float64).sum()) for array in arrays)
        for folder in sorted(os.listdir(sys.argv[1])):
            format, how = folder.split()
            format = format.partition("+")[0]
            names = [name for name in os.listdir(os.path.join(sys.argv[1], folder)) if name.startswith("file.")]
            path = os.path.join(sys.argv[1], folder, "file.checkpoint" if format == "checkpoint" else min(names))
            options = {READ_OPTIONS!r}.get(format, {{}})
            if how == "load":  # here, so that what it imports is there for the others
                print(folder, int(total(path, format, how, options) != 17997000.0), flush=True)
                continue
            pid = os.fork()
            if not pid:
                try:
                    os._exit(int(total(path, format, how, options) != 17997000.0))
                except KeyError:
                    os._exit(2)  # there are no names
                except Exception:
                    import traceback
                    traceback.print_exc()
                    os._exit(3)
            print(folder, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    """
    status, said, errors = child(code, tmp_path)
    assert status == 0, errors
    ends = {tuple(line.split()[:2]): int(line.split()[2]) for line in said.splitlines()}
    assert len(ends) == 3 * len(FORMATS), errors
    for (format, how), end in ends.items():
        allowed = {"load": (0,), "names": (0, 2), "mmap": (0, -signal.SIGBUS)}[how]
        assert end in allowed, (format, how, errors)
    assert -signal.SIGBUS in ends.values()  # or the test would prove nothing


def test_a_mapped_file_that_was_cut_is_refused_before_it_is_touched(tmp_path):
    """In another process: where this fails, the system ends it."""
    guarded = sorted({*FORMATS} - {"checkpoint", "onnx"})  # those may be several files, each with a map of its own
    for format in guarded:
        (tmp_path / format).mkdir()
        saved(tmp_path / format, format)
    code = f"""
        import os, sys, warnings
        import numpy as np, tensorbytes as tb
        warnings.simplefilter("ignore")
        for folder in sorted(os.scandir(sys.argv[1]), key=lambda found: found.name):
            name = folder.name.partition("+")[0]
            path = min(found.path for found in os.scandir(folder))
            size = os.path.getsize(path)
            with tb.open(path, format=name, **{READ_OPTIONS!r}.get(name, {{}})) as reader:
                entry = reader.entries()[0]
                for left in (size - 1, 0):
                    os.truncate(path, left)
                    for use in (entry.load, lambda: entry[:1], lambda: np.asarray(entry), lambda: list(reader),
                                reader.verify):
                        try:
                            print(folder.name, "read", use())
                        except tb.errors.CorruptError as error:
                            assert error.at == left and path in str(error) and "was cut" in str(error), error
            print(folder.name)
    """
    status, said, errors = child(code, tmp_path)
    assert (status, said.splitlines()) == (0, guarded), errors


@pytest.mark.parametrize("format", ["tb", "npz", "checkpoint", "tb+zstd", "tb+huffman"])
def test_a_mapped_file_rewritten_in_place_is_found_out(tmp_path, format):
    """Checksums are taken through the map: what is loaded whole after the change is refused."""
    path, _ = saved(tmp_path, format)
    target = next(iter(tmp_path.glob("*.data-*")), path)
    with tb.open(path, format=format.partition("+")[0]) as reader:
        entry = reader["w"]
        assert tb.equal(entry.load(), ARRAYS["w"])
        size = os.path.getsize(target)
        with open(target, "r+b") as file:
            file.seek(size // 3)
            byte = file.read(1)
            file.seek(size // 3)
            file.write(bytes([byte[0] ^ 1]))
        with pytest.raises(tb.errors.CorruptError):
            [entry.load(), reader.verify()]


def test_the_kernel_bears_bytes_that_change_while_it_reads():
    """As those of a mapped file may: any answer, no crash. (The sanitizers look on in safety.memory.sanitize.)"""
    strings = bytearray(_wire.strings_pack(0x42, np.arange(0, 90_001, 3, dtype=np.int64), bytes(90_000)))
    planes = np.zeros(1 << (16 if _wire.ACCELERATED else 10), np.uint8)
    planes[::5] = 3
    room = np.empty(len(planes) + _wire.HUFFMAN_SLACK, np.uint8)
    code = bytearray(room[: _wire.huffman_encode(planes, room)])
    records = bytearray(_wire.frames([[bytes(50)]] * 500))
    stop = threading.Event()

    def change():
        random = np.random.default_rng(5)
        views = [np.frombuffer(data, np.uint8) for data in (strings, code, records)]
        kept = [view.copy() for view in views]
        while not stop.is_set():
            for view, was in zip(views, kept, strict=True):
                places = random.integers(0, len(view), 20)
                view[places] ^= random.integers(1, 256, 20, np.uint8)
                view[:] = was

    changer = threading.Thread(target=change)
    changer.start()
    try:
        found = np.empty((600, 2), np.int64)
        for _ in range(40 if _wire.ACCELERATED else 3):
            offsets, data, _ = _wire.strings_unpack(strings, 0, len(strings), 0x42)
            bounds = np.frombuffer(offsets, np.int64)
            assert bounds[0] == 0
            assert bounds[-1] == len(data)
            assert (np.diff(bounds) >= 0).all()
            _wire.huffman_decode(code, np.empty(len(planes), np.uint8))
            assert _wire.scan(records, 0, True, found)[0] <= 500
    finally:
        stop.set()
        changer.join(30)


# ---- writing what changes ---------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 200_000])
@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"compression": "split+huffman"}])
def test_a_writer_keeps_no_view_of_what_it_was_given(tmp_path, size, options):
    """The caller may change its arrays as soon as write() returns."""
    value = np.zeros(size, np.float32)
    with tb.open(tmp_path / "w.tb", "w", **options) as writer:
        for number in range(4):
            value[:] = number
            writer.write(value)
            writer.write({"a": value, "b": [value[:10]]})
        value[:] = -1
    for number, item in enumerate(tb.open(tmp_path / "w.tb")):
        array = item["a"] if isinstance(item, dict) else item
        assert (array == number // 2).all()


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_record_writer_keeps_no_view_of_what_it_was_given(tmp_path, compression):
    value, raw = np.zeros(60_000, np.float32), bytearray(300_000)
    with tb.RecordWriter(tmp_path / "w", compression=compression) as writer:
        for number in range(3):
            value[:] = number
            writer.write({"x": value})
            writer.write_batch({"x": np.stack([value, value])})
            value[:] = -1
    assert [int(row["x"][0]) for row in tb.open_records(tmp_path / "w")] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    with tb.RecordWriter(tmp_path / "raw", compression=compression) as writer:
        writer.write_raw(raw)
        raw[:] = b"\1" * len(raw)
        raw.clear()
    assert list(tb.open_records(tmp_path / "raw").payloads()) == [bytes(300_000)]


@pytest.mark.parametrize("compression", ["huffman", "split+huffman", "pack+huffman", "delta+huffman"])
def test_values_that_change_while_they_are_compressed(compression):
    """A thread that writes to the array meanwhile gets any values it had, or an error when they are read: no crash."""
    few = np.zeros(1 << (18 if _wire.ACCELERATED else 12), np.uint32)
    few[: len(few) >> 6] = np.arange(len(few) >> 6)
    many = np.random.default_rng(0).integers(0, 1 << 31, len(few)).astype(np.uint32)
    value, stop = few.copy(), threading.Event()

    def change():
        while not stop.is_set():
            np.copyto(value, many)
            np.copyto(value, few)

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(15):
            data = tb.dumps(value, compression=compression)
            try:
                assert tb.loads(data).shape == value.shape
            except tb.errors.CorruptError:
                continue
    finally:
        stop.set()
        changer.join(30)
    assert tb.equal(tb.loads(tb.dumps(few, compression=compression)), few)


def test_what_a_buffer_export_pins_can_not_be_resized():
    data = bytearray(range(64))
    pieces = tb.buffers(np.frombuffer(data, np.uint8))
    with pytest.raises(BufferError):
        data.extend(b"more")
    del pieces
    gc.collect()
    data.extend(b"more")


def test_a_list_that_shrinks_while_the_kernel_goes_through_it():
    """Taking an item of an argument runs code of the caller's, which may change what it came in."""

    class Arrays(list):
        def __getitem__(self, index):
            item = super().__getitem__(index)
            if index == 5:
                self.clear()
            return item

    arrays = Arrays([np.empty(1, np.int64), None, None, None, None] * 2)
    fields = np.array([(3, 0, 1), (3, 0, 1)])
    with contextlib.suppress(IndexError, TypeError, ValueError):  # the reference takes what it has seen
        _wire.example_decode(b"", np.empty((0, 2), np.int64), 0, 0, b"ab", np.array([0, 1, 2]), fields, 2, 0, arrays)
    assert not arrays or not _wire.ACCELERATED
