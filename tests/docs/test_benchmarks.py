"""The benchmark harness runs and reports; nothing here depends on how fast anything is."""

import json
import subprocess
import sys

import pytest

from benchmarks.lines import count_folders
from benchmarks.states import run_in
from tests.support import ROOT
from tests.support.tiers import deep_but


def quick_run(folder, *rows):
    """(results.json, what was printed)"""
    only = [word for row in rows for word in ("--only", row)]
    command = [sys.executable, "-m", "benchmarks", "--quick", *only, "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text()), done.stdout


def check_contender(contender):
    assert "failed" not in contender, contender
    assert 0 < contender["low"] <= contender["median"] <= contender["high"]
    assert contender["rounds"] >= 2
    assert contender["calls"] >= 1


def test_a_quick_run_reports_what_it_measured(tmp_path):
    document, printed = quick_run(tmp_path, "crc")
    assert document["version"] == 1
    assert document["quick"] is True
    assert {"cpu", "cores", "python", "compiled_kernel"} <= document["machine"].keys()
    (line,) = document["lines"]
    assert (line["row"], line["name"], line["target"]) == ("crc", "crc", None)
    assert [c["role"] for c in line["contenders"]] == ["ours", "peer"]
    for contender in line["contenders"]:
        check_contender(contender)
    assert line["best_peer"].keys() == {"name", "ratio"}
    assert line["title"] in printed
    assert line["title"] in (tmp_path / "benchmarks.md").read_text()
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


RECORD_LINES = {
    "records": ["tensorbytes", "TensorFlow", "tfrecord", "protobuf", "plain C, one pass", "read and CRC-check"],
    "records.inferred": ["tensorbytes", "TensorFlow", "plain C, one pass", "read and CRC-check"],
    "records.rows": ["tensorbytes", "tfrecord", "protobuf"],
    "records.gzip": ["tensorbytes", "TensorFlow", "inflate and CRC-check"],
    "wide": ["tensorbytes", "TensorFlow", "plain C, one pass", "read and CRC-check"],
    "tokens": ["tensorbytes", "TensorFlow", "plain C, one pass", "read and CRC-check"],
    "images": ["tensorbytes", "TensorFlow", "plain C, one pass", "read and CRC-check"],
    "sequences": ["tensorbytes", "TensorFlow", "plain C, one pass", "read and CRC-check"],
    "harder.odd": ["tensorbytes", "the usual"],
    "harder.skip": ["tensorbytes", "the usual"],
    "harder.order": ["tensorbytes", "the usual"],
    "harder.two": ["tensorbytes", "the usual"],
    "random": ["tensorbytes", "os.pread and CRC-check"],
    "random.large": ["tensorbytes", "os.pread and CRC-check"],
    "random.shards": ["tensorbytes", "os.pread and CRC-check"],
    "write.columns": ["tensorbytes", "TensorFlow", "TensorFlow, in place", "tfrecord"],
    "write.rows": ["tensorbytes", "TensorFlow", "TensorFlow, in place", "tfrecord"],
    "memory": ["tensorbytes", "before reading", "the limit"],
}


@pytest.mark.deep
def test_everybody_reads_and_writes_the_same_records(tmp_path):
    """A contender that gives back other values than went in has failed."""
    rows = dict.fromkeys(name.partition(".")[0] for name in RECORD_LINES)
    document, printed = quick_run(tmp_path, *rows)
    found = {line["name"]: line for line in document["lines"]}
    assert {name: [c["name"] for c in line["contenders"]] for name, line in found.items()} == RECORD_LINES
    for line in found.values():
        for contender in line["contenders"]:
            check_contender(contender)
        assert line["records"] > 0
        assert line["title"] in printed
    peak = next(c["median"] for c in found["memory"]["contenders"] if c["role"] == "ours")
    assert 10e6 < peak < 10e9
    page = (tmp_path / "benchmarks.md").read_text()
    assert f"| tensorbytes | {peak / 1e6:.3g} MB |" in page
    assert "M records/s" in page


def lines_of(document, row):
    return {line["name"]: line for line in document["lines"] if line["row"] == row}


WEIGHT_PACKERS = [
    "tensorbytes", "chunks alone", "zipnn", "blosc2 shuffle+zstd", "blosc2 bitshuffle+lz4", "zstandard 1",
    "zstandard 3",
]  # fmt: skip
TOKEN_PACKERS = ["tensorbytes", "compression='zstd'", "compression='zstd:1'", "zstandard 1", "zstandard 3"]


@pytest.mark.deep
def test_compression_rows_compare_sizes_and_speeds(tmp_path):
    """A contender that does not give back what it was given has failed, zipnn's spoilt input included."""
    document, printed = quick_run(tmp_path, "weights", "tokenids", "chunkslice", "quantize")
    for line in document["lines"]:
        for contender in line["contenders"]:
            check_contender(contender)
        assert line["title"] in printed
    weights, tokens = lines_of(document, "weights"), lines_of(document, "tokenids")
    for kind in ("bfloat16", "float32"):
        for what in ("size", "compress", "decompress"):
            assert [c["name"] for c in weights[f"weights.{kind}.{what}"]["contenders"]] == WEIGHT_PACKERS
    for line in tokens.values():
        assert [c["name"] for c in line["contenders"]] == TOKEN_PACKERS
    assert len(tokens) == 16
    size = weights["weights.bfloat16.size"]
    assert size["unit"] == "size"
    ours = next(c["median"] for c in size["contenders"] if c["role"] == "ours")
    assert 0.6 < ours / size["bytes"] < 0.7
    assert f"| tensorbytes | {100 * ours / size['bytes']:.2f} % |" in (tmp_path / "benchmarks.md").read_text()


@pytest.mark.deep
def test_auto_is_compared_with_every_pipeline(tmp_path):
    from benchmarks.compression_data import KINDS

    document, _ = quick_run(tmp_path, "auto")
    lines = lines_of(document, "auto")
    sizes = [line for line in lines.values() if line["unit"] == "size"]
    assert len(sizes) == len(KINDS)
    assert len(lines) == len(KINDS) + 6
    for line in lines.values():
        for contender in line["contenders"]:
            check_contender(contender)
    smallest = {name: min(c["median"] for c in line["contenders"]) / line["bytes"] for name, line in lines.items()}
    assert smallest["auto.zeros_float32"] < 0.01
    assert smallest["auto.random_bytes_uint8"] > 0.99


@pytest.mark.deep
def test_tables_are_compared_with_pyarrow(tmp_path):
    document, printed = quick_run(tmp_path, "tables")
    assert len(document["lines"]) == 54
    for line in document["lines"]:
        assert [c["name"] for c in line["contenders"]] == ["tensorbytes", "pyarrow"]
        for contender in line["contenders"]:
            check_contender(contender)
        assert line["title"] in printed


def walk(name, state=ROOT):
    return run_in(state, "walks", "--measure", name)


@pytest.mark.parametrize("name", ["dumps", "loads"])
def test_a_plain_array_takes_the_short_way(name):
    found = walk(name)
    assert 2 <= found["functions"] < 12, found["called"]  # most of them are the kernel's, where it is the reference
    assert [found[verb] for verb in ("sniff", "decode", "encode", "check")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "name", deep_but(["load", "convert"], ["load", "load-large", "convert", "convert-deflated", "records"])
)
def test_a_file_is_opened_once(name):
    found = walk(name)
    assert found["reads"] == 1, found["opened"]
    assert all(count == 1 for count in found["opened"].values())


STATE = """
import threading

from tensorbytes.formats import Format


class RecordWriter:
    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def write_batch(self, rows):
        open(self.path, "wb").close()


class open_records:
    def __init__(self, path):
        self.path = path

    def batches(self, size):
        thread = threading.Thread(target=self.read)
        thread.start()
        thread.join()
        yield from self.numbers()

    def read(self):
        for _ in range(2):
            with open(self.path, "rb"):
                Format().sniff()
        open(self.path + ".beside", "wb").close()

    def numbers(self):
        yield sum(self.one(n) for n in [self.one(n) for n in range(3)])

    def one(self, n):
        return n
"""
FORMATS = """
class Format:
    def sniff(self):
        '''Say nothing.'''
        # comments, blank lines and docstrings are not code

        return sniff()

def sniff():
    '''Not a method of a format.'''
    return (1 +
        2)
"""


@pytest.fixture
def small_state(tmp_path):
    """A checkout of a package about which everything is known."""
    package = tmp_path / "src" / "tensorbytes"
    (package / "formats").mkdir(parents=True)
    (package / "__init__.py").write_text(STATE)
    (package / "formats" / "__init__.py").write_text(FORMATS)
    return tmp_path


def test_walks_count_what_is_called_and_opened(small_state):
    found = walk("records", small_state)
    assert found["called"] == {
        "__init__.py:open_records.__init__": 1,
        "__init__.py:open_records.batches": 1,
        "__init__.py:open_records.read": 1,
        "formats/__init__.py:Format.sniff": 2,
        "formats/__init__.py:sniff": 2,
        "__init__.py:open_records.numbers": 1,
        "__init__.py:open_records.one": 6,
    }
    assert (found["functions"], found["files"], found["calls"], found["depth"]) == (7, 2, 14, 3)
    assert found["opened"] == {"source.tfrecord": 2, "source.tfrecord.beside": 1}
    assert (found["reads"], found["others"], found["sniff"], found["decode"]) == (2, 1, 2, 0)


def test_lines_of_code_are_counted_by_folder(small_state):
    assert count_folders(small_state / "src" / "tensorbytes") == {"(no folder)": 28, "formats": 6}
