"""Counting records, and reading any of them."""

import io
import os
import pickle
import stat
import threading
from pathlib import Path

import cramjam
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import _wire, errors, open_records
from tensorbytes.formats.tfrecord.files.index import INDEX_SUFFIX
from tensorbytes.records import Feature, build_index, plan
from tests.support.record_cases import by_hand, expected, numbered, plain_row, rows_of, stream, write
from tests.support.record_cases import example as made
from tests.support.wire_bytes import framed


def snappy(path, payloads):
    plain, out = by_hand(payloads), b""
    for start in range(0, len(plain), 1000):
        block = bytes(cramjam.snappy.compress_raw(plain[start : start + 1000]))
        out += len(block).to_bytes(4, "big") + block
    path.write_bytes(out)
    return str(path)


@pytest.fixture(params=["none", "gzip", "zlib", "snappy"])
def files(request, tmp_path):
    """(paths, what they hold): three files in one compression, one of them empty."""
    writer = snappy if request.param == "snappy" else lambda path, payloads: write(path, payloads, request.param)
    payloads = numbered(60)
    paths = [writer(tmp_path / "a", payloads[:25]), writer(tmp_path / "b", []), writer(tmp_path / "c", payloads[25:])]
    return paths, expected(payloads)


def picked(records, which):
    got = records[which]
    return [
        plain_row(row, records.schema)
        for row in ([got] if isinstance(got, dict) and not hasattr(got, "present") else rows_of(got))
    ]


def test_any_record(files):
    paths, want = files
    records = open_records(paths)
    assert len(records) == 60
    for number in (0, 24, 25, 59, -1, -60, np.int64(7), np.uint8(30)):
        assert picked(records, number) == [want[int(number)]]
    assert type(records[3]) is dict


SELECTIONS = {
    "a slice": slice(20, 30),
    "backwards": slice(None, None, -1),
    "with a step": slice(3, 57, 7),
    "a list": [59, 0, 25, 24],
    "one twice": [5, 5, 30, 5],
    "from the end": [-1, -60, 3],
    "an array": np.array([40, 2, 39], np.int32),
    "unsigned": np.array([1, 59], np.uint64),
    "a mask": np.arange(60) % 11 == 0,
    "a list of flags": [i in (3, 50) for i in range(60)],
    "beyond the end": slice(50, 1000),
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_any_choice_of_records(files, case):
    paths, want = files
    numbers = np.arange(60)[SELECTIONS[case]]
    assert picked(open_records(paths), SELECTIONS[case]) == [want[number] for number in numbers]


def test_no_records_chosen(files):
    for which in ([], slice(5, 5), np.zeros(60, bool), np.array([], np.int64)):
        batch = open_records(files[0])[which]
        assert len(batch["i"]) == len(batch["s"].numpy()) == len(batch["v"]) == 0


def test_what_is_out_of_range(files):
    records = open_records(files[0])
    for which in (60, -61, [0, 60], [-61], np.zeros(59, bool), [[1, 2]], 1.5, "a", [0.5]):
        with pytest.raises(IndexError):
            records[which]


def test_access_honours_columns_schema_and_framework(tmp_path):
    path = write(tmp_path / "x", numbered(9))
    records = open_records(path, columns=["i"], schema={"i": "int8", "s": "text"}, to="tensor")
    assert [*records[2:4]] == ["i"]
    assert records[2:4]["i"].dtype == "int8"
    optional = open_records(path, schema={"i": "int64", "nothing": Feature("text", optional=True)})
    assert [*optional[3]] == ["i"]
    assert optional[[3, 4]].present["nothing"].tolist() == [False, False]


def check_row(row, i):
    """Row i of the test below: every value, its type, the order of the columns."""
    assert list(row) == (["a", "i", "r", "s", "t", "y"] if i % 3 else ["a", "i", "r", "t", "y"])
    assert (type(row["i"]), row["i"]) == (np.int64, i)
    assert (type(row["a"]), row["a"].dtype, row["a"].tolist()) == (np.ndarray, np.float32, [i, i + 0.5])
    assert (type(row["r"]), row["r"].tolist()) == (np.ndarray, list(range(1 + i % 4)))
    assert (type(row["y"]), row["y"]) == (bytes, b"%d" % i)
    assert (type(row["t"]), row["t"]) == (str, f"\u00fc{i}")
    assert i % 3 == 0 or (type(row["s"]), row["s"]) == (np.int64, -i)


@pytest.mark.parametrize("count", [1, 127, 128, 129, 256, 300])
def test_rows_are_the_same_whatever_is_made_at_once(tmp_path, count):
    """Some at a time, and the last ones are fewer: one after the other, a choice of them, each alone."""
    schema = {
        "a": ("float32", [2]),
        "i": "int64",
        "r": ("int64", [None]),
        "s": Feature("int64", optional=True),
        "t": "text",
        "y": "bytes",
    }
    wire = [
        made(
            a=[i + 0.0, i + 0.5],
            i=[i],
            r=list(range(1 + i % 4)),
            t=[f"\u00fc{i}".encode()],
            y=[b"%d" % i],
            **lacked,
        )
        for i in range(count)
        for lacked in [{"s": [-i]} if i % 3 else {}]
    ]
    records = open_records(write(tmp_path / "x", wire), schema=schema)
    size = os.path.getsize(tmp_path / "x")
    seen = 0
    for seen, row in enumerate(records, 1):
        check_row(row, seen - 1)
        assert (records.tell() == size) == (seen == count)
    assert seen == count
    order = np.random.default_rng(count).permutation(count).tolist()
    for i, row in zip(order, records.__getitems__(order), strict=True):
        check_row(row, i)
        check_row(records[i], i)
    assert [list(row) for row in open_records(tmp_path / "x", schema=schema, columns=[])] == [[]] * count
    assert records.__getitems__([]) == []


def test_large_records_are_found_without_reading_them(tmp_path):
    payloads = [made(i=[i], data=[bytes(i * 700_000)]) for i in range(6)]
    payloads.insert(3, made(i=[99], data=[b""]))
    records = open_records(write(tmp_path / "x", payloads))
    assert [int(records[n]["i"]) for n in range(7)] == [0, 1, 2, 99, 3, 4, 5]
    assert [len(item) for item in records[[6, 1]]["data"].items()] == [3_500_000, 700_000]


def test_file_objects_are_left_where_they_stood(tmp_path):
    payloads = numbered(20)
    for data in (by_hand(payloads), gzipped(payloads, tmp_path)):
        file = io.BytesIO(b"before" + data)
        file.seek(6)
        records = open_records(file, schema={"i": "int64"})
        assert len(records) == 20
        assert file.tell() == 6
        assert int(records[7]["i"]) == 7
        assert records[[19, 2]]["i"].tolist() == [19, 2]
        assert file.tell() == 6
        rows = iter(records)
        assert [int(next(rows)["i"]) for _ in range(3)] == [0, 1, 2]


def gzipped(payloads, folder):
    with open(write(folder / "x.gz", payloads, "gzip"), "rb") as file:
        return file.read()


def test_a_file_object_is_counted_after_it_was_read():
    records = open_records(stream(numbered(20)))
    assert sum(1 for _ in records) == 20
    assert len(records) == 20


def test_a_stream_has_no_length():
    read, write_end = os.pipe()
    os.write(write_end, by_hand(numbered(2)))
    os.close(write_end)
    with os.fdopen(read, "rb") as file, pytest.raises(errors.UsageError, match="can't seek has no length"):
        len(open_records(file))


def test_one_record_that_does_not_fit_is_named(tmp_path):
    path = write(tmp_path / "x", [made(i=[n]) for n in (1, 2, 3, 300, 5)])
    records = open_records(path, schema={"i": "int8"})
    with pytest.raises(errors.SchemaError, match="record 3: feature 'i' holds 300"):
        records[3]
    with pytest.raises(errors.SchemaError, match="record 3: feature 'i' holds 300"):
        records[2:5]


def test_one_record_of_some_that_does_not_fit_is_named(tmp_path):
    path = write(tmp_path / "x", [made(i=[n]) for n in (1, 2, 3, 300, 5)])
    with pytest.raises(errors.SchemaError, match="record 3: feature 'i' holds 300"):
        open_records(path, schema={"i": "int8"})[[4, 3, 0]]


# ---- the index beside the file -----------------------------------------------------


def test_a_saved_index_is_used(tmp_path):
    """It is made wrong on purpose, which only shows if it is used: two lengths change places."""
    path = write(tmp_path / "x", numbered(30))
    (saved,) = build_index(path)
    assert saved == path + INDEX_SUFFIX
    assert len(open_records(path)) == 30
    lengths = tb.load(saved, to="tensor")
    wrong = lengths.numpy().copy()
    wrong[[0, 13]] = wrong[[13, 0]]
    assert wrong[0] != wrong[13]
    tb.save(tb.Tensor("int64", wrong.shape, wrong, meta=lengths.meta), saved)
    for number in (0, 5, 13, 20):  # also after both, where the places are right again
        records = open_records(path)
        with pytest.warns(errors.SidecarWarning, match="does not fit the records"):
            assert int(records[number]["i"]) == number
        assert [int(row["i"]) for row in (records[n] for n in range(30))] == list(range(30))


def test_a_stale_index_is_not_used_and_renewed_when_asked(tmp_path):
    path = write(tmp_path / "x", numbered(30))
    (saved,) = build_index(path)
    before = Path(saved).read_bytes()
    write(path, numbered(12, 100))
    records = open_records(path)
    with pytest.warns(errors.SidecarWarning, match=r"is of the file as it was before; build_index .* renews it"):
        assert len(records) == 12
    assert int(records[11]["i"]) == 111
    assert Path(saved).read_bytes() == before  # reading writes nothing
    build_index(path)
    assert Path(saved).read_bytes() != before
    assert len(open_records(path)) == 12


def test_no_index_appears_unasked(tmp_path):
    path = write(tmp_path / "x", numbered(3))
    assert len(open_records(path)) == 3
    assert os.listdir(tmp_path) == ["x"]


def broken_indexes(path, saved):
    good = tb.load(saved, to="tensor")
    lengths = good.numpy()
    yield b""
    yield b"garbage" * 100
    yield Path(saved).read_bytes()[:-3]
    yield tb.dumps(np.arange(3))
    yield tb.dumps({"a": np.arange(3), "b": np.arange(3)})
    yield tb.dumps(["text"])
    for wrong, meta in (
        (lengths[:-1], {}),
        (lengths[:, None], {}),
        (-lengths, {}),
        (np.full(4, (1 << 62) - 16), {}),
        (lengths.astype(np.int32), {}),
        (lengths, {"tensorbytes.index": "2"}),
        (lengths, {"compression": "lzma"}),
        (lengths, {"size": "many"}),
        (lengths, {"size": "1" * 5000}),
    ):
        data = np.ascontiguousarray(wrong)
        yield tb.dumps(tb.Tensor(data.dtype.name, data.shape, data, meta={**good.meta, **meta}))


def test_a_broken_index_is_not_used(tmp_path):
    path = write(tmp_path / "x", numbered(30))
    (saved,) = build_index(path)
    for data in list(broken_indexes(path, saved)):
        with open(saved, "wb") as file:
            file.write(data)
        records = open_records(path)
        with pytest.warns(errors.SidecarWarning, match="it is not used"):
            assert len(records) == 30
        assert int(records[29]["i"]) == 29
        assert Path(saved).read_bytes() == data
        with pytest.warns(errors.SidecarWarning, match="it is not used"):
            assert [split.path for split in plan(path, 3)] == [path] * 3


def test_an_index_for_every_compression(files):
    paths, want = files
    saved = build_index(paths)
    assert saved == [path + INDEX_SUFFIX for path in paths]
    assert picked(open_records(paths), [50, 3]) == [want[50], want[3]]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_can_not_be_written_to(tmp_path):
    path = write(tmp_path / "x", numbered(5))
    build_index(path)
    os.utime(path, (1, 1))
    os.chmod(tmp_path, stat.S_IRUSR | stat.S_IXUSR)
    try:
        with pytest.warns(errors.SidecarWarning):
            assert len(open_records(path)) == 5
    finally:
        os.chmod(tmp_path, stat.S_IRWXU)


def test_a_folder_in_the_place_of_the_index(tmp_path):
    path = write(tmp_path / "x", numbered(5))
    os.mkdir(path + INDEX_SUFFIX)
    records = open_records(path)
    with pytest.warns(errors.SidecarWarning, match="is not a regular file"):
        assert len(records) == 5
    assert int(records[4]["i"]) == 4


def test_only_local_files_have_an_index():
    with pytest.raises(errors.UsageError, match="beside a local file only"):
        build_index(stream([]))


def test_a_file_that_changes_under_an_open_reader(tmp_path):
    path = write(tmp_path / "x", numbered(30))
    records = open_records(path)
    assert int(records[3]["i"]) == 3
    write(path, numbered(30, 50))
    with pytest.raises(errors.CorruptError, match=r"has changed since it was indexed .*; open it again"):
        records[3]
    assert [int(row["i"]) for row in records] == list(range(50, 80))
    assert int(open_records(path)[3]["i"]) == 53


@pytest.mark.parametrize("change", ["shorter record", "cut", "flipped bit", "moved"])
def test_a_change_that_leaves_size_and_time(tmp_path, change):
    """Never wrong data: each record is confirmed by its length and its checksum."""
    payloads = [made(i=[i], s=[b"x" * 40]) for i in range(10)]
    path = write(tmp_path / "x", payloads)
    records = open_records(path, schema={"i": "int64"})
    assert len(records) == 10
    before = os.stat(path)
    data = Path(path).read_bytes()
    step = len(data) // 10
    small = framed(made(i=[9], s=[b"x"]))
    changed = {
        "shorter record": data[: 4 * step] + small + bytes(step - len(small)) + data[5 * step :],
        "cut": data[: 4 * step + 5] + bytes(len(data) - 4 * step - 5),
        "flipped bit": data[: 4 * step + 30] + bytes([data[4 * step + 30] ^ 1]) + data[4 * step + 31 :],
        "moved": data[: 4 * step] + b"\0" + data[4 * step : -1],
    }[change]
    assert len(changed) == len(data)
    with open(path, "r+b") as file:
        file.write(changed)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert int(records[3]["i"]) == 3
    for which in (4, [1, 4], slice(None)):
        with pytest.raises(errors.CorruptError, match="record 4 is damaged") as caught:
            records[which]
        assert caught.value.at == 4 * step


def test_damage_is_found_when_counting(tmp_path):
    path = tmp_path / "x"
    data = by_hand(numbered(5))
    path.write_bytes(data[:-5])
    with pytest.raises(errors.CorruptError, match="ends inside record 4"):
        len(open_records(path))
    path.write_bytes(data + data[:5])
    with pytest.raises(errors.CorruptError, match="ends inside the header of record 5"):
        len(open_records(path))
    path.write_bytes(data + b"\1" * 20)
    with pytest.raises(errors.CorruptError, match="header of record 5 is damaged") as caught:
        len(open_records(path))
    assert caught.value.at == len(data)


def test_slips_name_what_there_is(tmp_path):
    with tb.RecordWriter(tmp_path / "r.tfrecord", shards=2) as writer:
        for number in range(30):
            writer.write({"label": number, "image": number})
    one, both = tb.open_records(tmp_path / "r.tfrecord-00000-of-00002"), tb.open_records(f"{tmp_path}/r.tfrecord@2")
    for number in (999, -16, 15):
        with pytest.raises(IndexError, match=rf"record {number}: .*r\.tfrecord-00000-of-00002 has 15$"):
            one[number]
    with pytest.raises(IndexError, match=r"record 30: .*00000-of-00002 and 1 more has 30$"):
        both[30]
    batch = one[:3]
    with pytest.raises(KeyError, match=r"no column 'lable'; it has 'image', 'label'; did you mean 'label'"):
        batch["lable"]
    with pytest.raises(KeyError, match="no column 7"):
        batch[7]
    assert batch.get("lable") is None
    assert "lable" not in batch


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64, np.int64])
def test_numbers_of_any_width(tmp_path, dtype):
    with tb.RecordWriter(tmp_path / "x") as writer:
        writer.write_batch({"i": np.arange(300)})
    records = open_records(tmp_path / "x")
    assert records[np.array([5, 127, 5], dtype)]["i"].tolist() == [5, 127, 5]
    if np.dtype(dtype).kind == "i":
        assert records[np.array([-1, 2], dtype)]["i"].tolist() == [299, 2]
    with pytest.raises(IndexError, match="record 300: there are 300"):
        records[[0, 300]]
    if dtype is np.uint64:
        with pytest.raises(IndexError, match="there are 300"):
            records[np.array([1 << 63], dtype)]


# ---- files of small records, which are mapped -----------------------------------------


def shards(folder, count=4, each=500):
    """Paths of files of records, numbered from 0 on."""
    paths = [folder / f"part-{number}" for number in range(count)]
    for number, path in enumerate(paths):
        with tb.RecordWriter(path, schema={"i": "int64", "name": "bytes"}) as writer:
            rows = range(number * each, (number + 1) * each)
            writer.write_batch({"i": np.array(rows), "name": [b"%d" % row for row in rows]})
    return [str(path) for path in paths]


def maps_of(paths):
    """How many maps of these files this process has."""
    return sum(line.rstrip().endswith(tuple(paths)) for line in Path("/proc/self/maps").read_text().splitlines())


def open_files(paths):
    found = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return [name for fd in found if os.path.exists(fd) and (name := os.readlink(fd)) in paths]


def check_rows(records, numbers):
    batch = records[numbers]
    assert batch["i"].tolist() == list(numbers)
    assert list(batch["name"]) == [b"%d" % number for number in numbers]


def some_numbers(seed, total=2000):
    return np.random.default_rng(seed).integers(0, total, 256).tolist()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="Linux")
def test_files_are_mapped_while_their_records_are_read_by_number(tmp_path):
    paths = shards(tmp_path)
    records = open_records(paths)
    assert len(records) == 2000
    assert maps_of(paths) == 0
    check_rows(records, [5, 3, 1999])
    assert maps_of(paths) == 2 * _wire.ACCELERATED, "only those that are asked"
    for seed in range(20):
        check_rows(records, some_numbers(seed))
    assert maps_of(paths) == 4 * _wire.ACCELERATED
    assert open_files(paths) == []
    with records:
        pass
    assert maps_of(paths) == 0
    check_rows(records, some_numbers(0))
    copy = pickle.loads(pickle.dumps(records))
    del records
    assert maps_of(paths) == 0
    check_rows(copy, some_numbers(1))


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="Linux")
def test_files_of_large_records_are_not_mapped(tmp_path):
    path = tmp_path / "x"
    with tb.RecordWriter(path) as writer:
        writer.write_batch({"x": np.arange(60000.0, dtype=np.float32).reshape(20, 3000)})
    records = open_records(path)
    assert records[[7, 3]]["x"][:, 0].tolist() == [21000, 9000]
    assert maps_of([str(path)]) == 0
    assert open_files([str(path)]) == []


@pytest.mark.parametrize("how", ["cut", "emptied", "rewritten", "replaced", "removed", "damaged"])
def test_a_mapped_file_that_changes_between_calls(tmp_path, how):
    paths = shards(tmp_path)
    records = open_records(paths)
    check_rows(records, some_numbers(2))
    path = Path(paths[1])
    raw, before = path.read_bytes(), os.stat(path)
    with open(path, "r+b") as file:
        if how in ("cut", "emptied"):
            file.truncate(len(raw) // 2 * (how == "cut"))
        elif how == "rewritten":
            file.write(raw[:100][::-1])
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    if how == "replaced":
        (tmp_path / "new").write_bytes(by_hand(numbered(500)))
        os.replace(tmp_path / "new", path)
    elif how == "removed":
        os.remove(path)
    elif how == "damaged":  # by a disk, which leaves size and time
        with open(path, "r+b") as file:
            file.write(raw[: len(raw) // 2] + bytes([raw[len(raw) // 2] ^ 4]))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    check_rows(records, [0, 499, 1000, 1999])  # of the others
    raised = FileNotFoundError if how == "removed" else errors.CorruptError
    words = {"removed": "part-1", "damaged": "record 2[0-9]{2} is damaged"}.get(how, "the file has changed since")
    with pytest.raises(raised, match=words) as caught:
        records[list(range(400, 1100))]
    if how == "damaged":
        assert 200 < caught.value.record < 300
        assert caught.value.path == paths[1]


def test_another_file_of_the_same_content_takes_the_place_of_a_mapped_one(tmp_path):
    """Its size and time are the same, so it is what was indexed; what it holds is read, and not the one before."""
    paths = shards(tmp_path)
    records = open_records(paths)
    check_rows(records, some_numbers(3))
    path = Path(paths[2])
    before, raw = os.stat(path), path.read_bytes()
    (tmp_path / "new").write_bytes(raw)
    os.utime(tmp_path / "new", ns=(before.st_atime_ns, before.st_mtime_ns))
    path.write_bytes(b"") if os.name == "nt" else os.truncate(path, 0)  # the map of it would tell
    os.replace(tmp_path / "new", path)
    for seed in range(5):
        check_rows(records, some_numbers(seed))


def test_a_file_that_is_cut_and_rewritten_while_threads_read_it(tmp_path):
    """They get what was there, or an error of ours: never other values, and the process lives."""
    paths = shards(tmp_path)
    records = open_records(paths)
    check_rows(records, some_numbers(4))
    raw, status = Path(paths[1]).read_bytes(), os.stat(paths[1])
    stop, wrong = threading.Event(), []

    def read(seed):
        rng = np.random.default_rng(seed)
        while not stop.is_set():
            numbers = rng.integers(0, 2000, 64)
            try:
                batch = records[numbers]
            except errors.CorruptError:
                continue
            except Exception as error:
                wrong.append(error)
                return
            if batch["i"].tolist() != numbers.tolist():
                wrong.append((numbers, batch))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for size in (0, 100, len(raw) // 2, len(raw) - 1) * 10:
        with open(paths[1], "r+b") as file:
            file.truncate(size)
            file.seek(size)
            file.write(raw[size:])
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    os.utime(paths[1], ns=(status.st_atime_ns, status.st_mtime_ns))
    check_rows(records, some_numbers(5))


@pytest.mark.filterwarnings("ignore:os.fork")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_a_forked_process_reads_what_its_parent_has_mapped(tmp_path):
    paths = shards(tmp_path)
    records = open_records(paths)
    check_rows(records, some_numbers(6))
    child = os.fork()
    if child == 0:
        try:
            for seed in range(10):
                check_rows(records, some_numbers(seed))
            os._exit(0)
        finally:
            os._exit(1)
    for seed in range(10):
        check_rows(records, some_numbers(seed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="Linux")
def test_where_nothing_can_be_mapped_files_are_read(tmp_path, monkeypatch):
    paths = shards(tmp_path)
    monkeypatch.setattr(_wire, "map_file", lambda *_: None)
    records = open_records(paths)
    for seed in range(3):
        check_rows(records, some_numbers(seed))
    assert open_files(paths) == []


def test_records_of_several_files_that_do_not_fit_are_named(tmp_path):
    paths = [write(tmp_path / name, [made(x=[n]) for n in range(20)]) for name in "ab"]
    odd = write(tmp_path / "c", [made(x=[n] if n != 7 else [1, 2]) for n in range(20)])
    records = open_records([*paths, odd], schema={"x": "int64"})
    assert records[[50, 3, 25]]["x"].tolist() == [10, 3, 5]
    with pytest.raises(errors.SchemaError, match="record 7: feature 'x' has 2 values") as caught:
        records[[50, 3, 47, 25]]
    assert (caught.value.path, caught.value.record) == (odd, 7)
