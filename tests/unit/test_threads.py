"""Threads, forks, subinterpreters, signals: one reader for all, one writer for all, and nobody waits for ever."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import _wire
from tests.support.tiers import deep_but

THREADS = 16
LARGE = 400_000 if _wire.ACCELERATED else 8_000
TREE = {
    "w": np.arange(3000, dtype=np.float32).reshape(60, 50),
    "b": np.arange(-40, 40, dtype=np.int64),
    "s": np.array(["one", "two", "three", "zero"]),
}
ARRAYS = {name: TREE[name] for name in "wb"}
# Every format that is read lazily: what is written, and how.
FILES = {
    "plain.tb": (TREE, {}),
    "zstd.tb": (TREE, {"compression": "zstd"}),
    "huffman.tb": (TREE, {"compression": "split+huffman"}),
    "a.safetensors": (ARRAYS, {}),
    "a.npz": (TREE, {}),
    "deflate.npz": (TREE, {"compression": "deflate"}),
    "a.pt": (ARRAYS, {}),
    "a.ckpt": (TREE, {"format": "checkpoint"}),
    "a.arrow": (ARRAYS, {}),
    "a.parquet": (ARRAYS, {}),
}


@pytest.fixture(autouse=True)
def often():
    """Threads take turns a hundred times as often as usual."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def together(act):
    """act(number) in all threads, which start at the same moment; what they returned."""
    start = threading.Barrier(THREADS)

    def run(number):
        start.wait(30)
        return act(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def child(code, *arguments, timeout=60):
    """The exit code, output and errors of a Python of its own."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    return done.returncode, done.stdout.strip(), done.stderr


@pytest.mark.parametrize("name", FILES)
def test_one_reader_serves_many_threads(tmp_path, name):
    tree, options = FILES[name]
    path = tmp_path / name
    tb.save(tree, path, **options)
    for _ in range(3):  # what is found out at the first access is found out anew
        with tb.open(path) as reader:

            def read(number, reader=reader):
                names = list(tree)[number % len(tree) :] + list(tree)[: number % len(tree)]
                assert sorted(reader.keys()) == sorted(tree)
                for key in names:
                    assert key in reader
                    assert tb.equal(reader[key].load(), tree[key])
                    assert np.array_equal(np.asarray(reader[key][1:3]), tree[key][1:3])
                if number % 4 == 0:
                    assert reader.verify() == 1
                return sum(1 for _ in reader)

            assert together(read) == [1] * THREADS


def test_one_reader_of_a_stream_serves_many_threads(tmp_path):
    with tb.open(tmp_path / "s.tb", "w") as writer:
        for number in range(200):
            writer.write(np.full(5, number))
    with tb.open(tmp_path / "s.tb") as reader:

        def read(number):
            assert [int(item[0]) for item in reader] == list(range(200))
            assert len(reader) == 200
            return int(reader[number * 7][0])

        assert together(read) == [number * 7 for number in range(THREADS)]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy"])
def test_records_serve_many_threads(tmp_path, compression):
    path = tmp_path / "r.tfrecord"
    with tb.RecordWriter(path, compression=compression) as writer:
        writer.write_batch({"n": np.arange(3000), "s": [f"record {n}" for n in range(3000)]})
    records = tb.open_records(path)

    def read(number):
        for index in range(number, 3000, 331):
            row = records[index]
            assert row["n"] == index
            assert row["s"] == f"record {index}"
        assert records[[number, 2999 - number]]["n"].tolist() == [number, 2999 - number]
        if number % 4 == 0:
            assert [int(row["n"]) for row in records] == list(range(3000))
        else:
            assert sum(len(batch["n"]) for batch in records.batches(700)) == 3000
        return len(records)

    assert together(read) == [3000] * THREADS


def test_many_threads_share_a_writer(tmp_path):
    """Each object whole, none lost, in the order of each thread."""
    path = tmp_path / "w.tb"
    with tb.open(path, "w") as writer:

        def write(number):
            for turn in range(30):
                value = np.full(1 + number * 40, number * 1000 + turn)
                writer.write({"x": value, "y": value[:1]} if turn % 2 else value)
                if turn % 10 == 9:
                    writer.flush()

        together(write)
    seen = []
    for item in tb.open(path):
        value = item["x"] if isinstance(item, dict) else item
        number, turn = divmod(int(value[0]), 1000)
        assert len(value) == 1 + number * 40
        assert (value == value[0]).all()
        seen.append((number, turn))
    assert sorted(seen) == [(number, turn) for number in range(THREADS) for turn in range(30)]
    assert [turn for number, turn in seen if number == 3] == list(range(30))


@pytest.mark.parametrize("shards", [1, 3])
def test_many_threads_share_a_record_writer(tmp_path, shards):
    """No record mixes the features of two."""
    with tb.RecordWriter(tmp_path / "w.tfrecord", shards=shards) as writer:

        def write(number):
            for turn in range(100):
                mark = number * 1000 + turn
                writer.write({"a": mark, "b": [mark, -mark], "c": f"{mark}", "d": np.float32(mark)})
            writer.write_batch({"a": [mark], "b": [[mark, -mark]], "c": [f"{mark}"], "d": np.float32([mark])})
            if number == 5:
                writer.flush()

        together(write)
        assert writer.count == THREADS * 101
    rows = list(tb.open_records(tmp_path / ("w.tfrecord" if shards == 1 else "w.tfrecord@3")))
    assert len(rows) == THREADS * 101
    for row in rows:
        assert row["b"].tolist() == [row["a"], -row["a"]]
        assert row["c"] == str(row["a"])
        assert row["d"] == row["a"]
    assert len({int(row["a"]) for row in rows}) == THREADS * 100


def test_many_threads_dump_and_load():
    def both(number):
        for turn in range(20):
            tree = {"a": np.arange(100 * turn + number), "b": np.array([f"{number}", f"{turn}"])}
            for options in ({}, {"compression": "split+huffman"}, {"compression": "auto"}):
                assert tb.equal(tb.loads(tb.dumps(tree, **options)), tree)
        return True

    assert all(together(both))


def test_memory_is_collected_while_the_kernel_runs():
    """The collector, with finalizers that call the library, beside calls that hold no lock."""
    data = np.arange(LARGE, dtype=np.uint32)
    expected, stop = _wire.crc32c(data), threading.Event()

    class Late:
        def __init__(self):
            self.me = self  # so that only the collector finds it

        def __del__(self):
            tb.loads(tb.dumps(np.arange(3)))

    def collect():
        while not stop.is_set():
            Late()
            gc.collect(0)

    collector = threading.Thread(target=collect)
    collector.start()
    try:
        for _ in range(30):
            assert _wire.crc32c(data.copy()) == expected  # an array that nobody else holds
            assert tb.equal(tb.loads(tb.dumps(data, compression="split+huffman")), data)
    finally:
        stop.set()
        collector.join(30)
    assert not collector.is_alive()


def test_memory_that_is_being_read_can_not_be_resized():
    data = bytearray(LARGE * 40)
    expected = _wire.crc32c(data)
    resized, sums, stop = [], [], threading.Event()

    def resize():
        while not stop.is_set():
            try:
                data.append(0)
                data.pop()
                resized.append(True)
            except BufferError:
                resized.append(False)

    thread = threading.Thread(target=resize)
    thread.start()
    for _ in range(10):
        sums.append((_wire.crc32c(memoryview(data)[: LARGE * 40]), len(data)))
    stop.set()
    thread.join(30)
    assert {total for total, _ in sums} == {expected}
    assert not all(resized)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork of POSIX")
def test_a_fork_reads_what_was_open_before(tmp_path):
    tb.save(TREE, tmp_path / "f.tb")
    with tb.RecordWriter(tmp_path / "f.tfrecord", compression="gzip") as writer:
        writer.write_batch({"n": np.arange(5000)})
    code = """
        import os, sys, warnings
        import numpy as np, tensorbytes as tb
        warnings.simplefilter("ignore")
        path, records_path = sys.argv[1:]
        reader, records = tb.open(path), tb.open_records(records_path)
        def right():
            return (tb.equal(reader["w"].load(), np.arange(3000, dtype=np.float32).reshape(60, 50))
                    and sum(len(b["n"]) for b in records.batches(999)) == 5000 and records[4999]["n"] == 4999)
        assert right()
        rows = iter(records); next(rows)  # threads are at work
        pid = os.fork()
        if not pid:
            os._exit(0 if right() else 1)
        fine = right() and sum(1 for _ in rows) == 4999
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), fine)
    """
    status, printed, errors = child(code, tmp_path / "f.tb", tmp_path / "f.tfrecord")
    assert (status, printed) == (0, "0 True"), errors


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork of POSIX")
@pytest.mark.parametrize("compression", deep_but(["none"], ["none", "gzip"]))
def test_a_fork_and_its_parent_read_at_once_without_moving_each_other(tmp_path, compression):
    """The place of an open file is one for a process and all it forks off."""
    with tb.RecordWriter(tmp_path / "f.tfrecord", compression=compression) as writer:
        writer.write_batch({"n": np.arange(50_000)})
    code = """
        import os, random, sys, warnings
        import tensorbytes as tb
        warnings.simplefilter("ignore")
        records = tb.open_records(sys.argv[1], threads=1)
        assert records[7]["n"] == 7
        rows = iter(records)
        begun = [int(next(rows)["n"]) for _ in range(3)]
        pid = os.fork()
        places = random.Random(pid).sample(range(50_000), 150)
        fine = [int(records[at]["n"]) for at in places] == places
        if sys.argv[2] == "none":  # what a thread inflates ahead can't go on in the child
            fine = fine and begun + [int(row["n"]) for row in rows] == list(range(50_000))
        if not pid:
            os._exit(0 if fine else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), fine)
    """
    status, printed, errors = child(code, tmp_path / "f.tfrecord", compression)
    assert (status, printed) == (0, "0 True"), errors


def test_a_subinterpreter_imports_or_says_why_not():
    """Whether NumPy loads in one is NumPy's to say; our kernel does, or refuses, and nothing crashes."""
    code = """
        import sys
        try:
            import _interpreters as interpreters
        except ImportError:
            try:
                import _xxsubinterpreters as interpreters
            except ImportError:
                print("none"); sys.exit()
        import tensorbytes as tb
        from tensorbytes import _wire
        text = '''if True:
            import importlib.util, sys, warnings
            warnings.simplefilter("ignore")
            path = %r
            try:
                spec = importlib.util.spec_from_file_location("tensorbytes._wire._kernel", path)
                kernel = importlib.util.module_from_spec(spec)
            except ImportError:
                if sys.version_info < (3, 12):  # since when interpreters have a lock of their own
                    raise
            else:
                spec.loader.exec_module(kernel)
                assert kernel.crc32c(b"123456789") == 0xE3069283
                assert kernel.frames([[b"ab"]]) == kernel.frame(b"a", b"b")
            try:
                import tensorbytes as tb
            except ImportError:
                pass
        ''' % getattr(_wire.kernel, "__file__", "") if _wire.ACCELERATED else "import json"
        for _ in range(3):
            number = interpreters.create()
            failure = interpreters.run_string(number, text)
            assert not failure, failure
            interpreters.destroy(number)
        assert tb.loads(tb.dumps([1, 2])) == [1, 2]
        print("fine")
    """
    code, said, errors = child(code)
    assert code == 0, errors
    assert said in ("fine", "none")


def test_signal_handlers_run_between_calls_of_the_kernel():
    """A handler that uses the library, and one that raises, while the kernel works without the lock."""
    code = """
        import os, signal, threading, time
        import numpy as np, tensorbytes as tb
        seen = []
        tb.loads(tb.dumps(np.arange(4)))  # which loads what is loaded when it is first asked for
        class Stop(Exception): pass
        def handle(number, frame):
            seen.append(tb.loads(tb.dumps(np.arange(4))).sum())
            if len(seen) == 20: raise Stop
        signal.signal(signal.SIGUSR1, handle)
        def send():
            while len(seen) < 20:
                os.kill(os.getpid(), signal.SIGUSR1); time.sleep(0.002)
        thread = threading.Thread(target=send); thread.start()
        x = np.arange(20_000, dtype=np.float32)
        try:
            while True:
                assert tb.equal(tb.loads(tb.dumps(x, compression="split+huffman")), x)
        except Stop:
            pass
        thread.join()
        assert tb.equal(tb.loads(tb.dumps(x, compression="split+huffman")), x)
        print(len(seen) >= 20, set(seen) == {6})
    """
    code, said, errors = child(code)
    assert (code, said) == (0, "True True"), errors


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers of POSIX")
@pytest.mark.parametrize("what", deep_but(["records"], ["load", "records"]))
def test_ctrl_c_ends_a_long_load(tmp_path, what):
    """KeyboardInterrupt comes through, no thread is left at work, and the next load is right."""
    if what == "load":
        tb.save(
            {f"{n}": np.arange(400_000, dtype=np.float32) + n for n in range(10)}, tmp_path / "l", compression="zstd:1"
        )
    else:
        with tb.RecordWriter(tmp_path / "l", compression="gzip") as writer:
            writer.write_batch({"x": np.arange(LARGE, dtype=np.float32).reshape(-1, 20)})
    code = """
        import faulthandler, signal, sys, time
        import numpy as np, tensorbytes as tb
        path, what = sys.argv[1:]
        def read():
            if what == "load":
                return sum(value.size for value in tb.load(path).values())
            return sum(batch["x"].size for batch in tb.open_records(path).batches(1000))
        whole = read()
        stops = 0
        for wait in np.linspace(0.001, 0.05, 12):
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            try:
                signal.setitimer(signal.ITIMER_REAL, wait, 0.3)  # again: Python drops what a __del__ raises
                while True:
                    read()
            except (KeyboardInterrupt, RuntimeError) as error:
                signal.setitimer(signal.ITIMER_REAL, 0)
                # An interrupt between two lines of threading.Condition becomes "release unlocked lock" in CPython.
                assert KeyboardInterrupt in (type(error), type(error.__context__)), repr(error)
                stops += 1
            assert read() == whole
        # Those that run: an interrupt in Thread.start() may leave one in the list of `threading` that never began.
        threads = lambda: len(sys._current_frames())
        end = time.monotonic() + 20
        while threads() > 1 and time.monotonic() < end:
            time.sleep(0.01)
        if threads() > 1:
            faulthandler.dump_traceback(all_threads=True)  # what they wait for
        print(stops, threads())
    """
    code, said, errors = child(code, tmp_path / "l", what, timeout=120)
    assert (code, said) == (0, "12 1"), errors
