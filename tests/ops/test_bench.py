"""bench: what it measures, what it says of it, and that nothing stays behind. Times are never asserted."""

import json
import subprocess
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.api import to_document
from tensorbytes.ops.benching import bench
from tensorbytes.ops.benching.choices import distinct, plan
from tensorbytes.records import RecordWriter

QUICK = {"rounds": 1, "seconds": 0.02}
SOME = {**QUICK, "formats": ["tb", "npz", "npy", "raw"]}


def weights(rows=256):
    return np.random.default_rng(0).normal(0, 0.02, (rows, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def found():
    """All formats over a small table."""
    return bench({"w": weights(), "id": np.arange(256)}, **QUICK)


def row_of(result, format, compression=None):
    return next(row for row in result.rows if (row.format, row.compression) == (format, compression))


# ---- rows ---------------------------------------------------------------------


def test_every_format_is_there(found):
    written = {name: formats.get(name) for name in formats.writable()}
    assert {row.format for row in found.rows} == {*written, "tfrecord"}
    for name, chosen in written.items():
        tried = {row.compression: row for row in found.rows if row.format == name}
        assert tried[None].read_by == chosen.read_by
        if chosen.pipelines:  # those that come to the same for this data are left out
            assert tried.keys() <= set(chosen.compressions)
        else:
            assert tried.keys() == set(chosen.compressions)
    assert {row.compression for row in found.rows if row.format == "tfrecord"} == {None, "gzip", "snappy"}


def test_rows_that_hold_the_data_have_all_numbers(found):
    held = [row for row in found.rows if row.held]
    assert {"tb", "safetensors", "npz", "torchfile", "arrow", "parquet", "checkpoint", "delimited", "tfrecord"} <= {
        row.format for row in held if row.lossless
    }
    assert found.nbytes == found.total == 256 * 64 * 4 + 256 * 8
    for row in held:
        assert row.ratio == row.size / found.nbytes
        assert row.write_speed == pytest.approx(found.nbytes / row.write_seconds / 1e9)
        assert row.read_speed == pytest.approx(found.nbytes / row.read_seconds / 1e9)
        assert row.slice_seconds > 0
        assert row.rounds == 1


def test_sizes_are_those_of_save(found, tmp_path):
    x = {"w": weights(), "id": np.arange(256)}
    for name, compression in (("tb", None), ("tb", "zstd"), ("npz", "deflate"), ("parquet", None), ("arrow", "zstd")):
        row = row_of(found, name, compression)
        path = tmp_path / f"x.{name}"
        tb.save(x, path, compression=compression)
        assert row.size == path.stat().st_size


def test_refusals_are_listed_with_their_reason(found):
    refused = {row.format: row.refused for row in found.rows if row.refused}
    assert refused.keys() == {"npy", "arrowtensor", "onnx", "sparseproto", "protobuf", "tensorproto"}
    assert "holds one tensor, not a structure of 2" in refused["npy"]
    assert row_of(found, "npy").size is None
    assert "npy, arrowtensor, onnx, sparseproto, protobuf, tensorproto: holds one tensor" in str(found)


@pytest.mark.parametrize(
    ("obj", "left_out"),
    [
        (weights(), {"delta", "pack"}),
        ({"w": weights(), "step": 7}, {"delta", "pack"}),
        (np.arange(1000), {"split"}),
        (np.arange(200, dtype=np.uint8), {"split"}),
        (np.array(["a", "b"]), {"split", "delta", "pack", "shuffle"}),
    ],
    ids=["floats", "weights", "integers", "bytes", "strings"],
)
def test_pipelines_that_come_to_the_same_are_measured_once(obj, left_out):
    tried = distinct(plan("tb", None).usable, to_document(obj))
    filters = {step for choice in tried for step in (choice.compression or "").split("+")}
    assert not filters & left_out
    assert {"delta", "pack", "split", "shuffle"} - left_out <= filters
    assert [choice.compression for choice in tried][:3] == [None, "auto", "zstd"]
    asked = distinct(plan("tb", ["pack", "split+zstd"]).usable, to_document(obj))
    assert [choice.compression for choice in asked] == ["pack", "split+zstd"]


def test_slow_ones_are_measured_if_asked_for():
    result = bench(weights(), formats=["parquet", "tb"], compressions=["gzip", "zstd:9", "nonsense"], **QUICK)
    assert row_of(result, "parquet", "gzip").lossless
    assert row_of(result, "tb", "gzip").lossless
    assert row_of(result, "tb", "zstd:9").lossless
    assert "nonsense" in row_of(result, "tb", "nonsense").refused
    assert len(result.rows) == 4


def test_a_missing_package_is_a_reason(monkeypatch):
    monkeypatch.setitem(formats.BUILTIN, "arrow", formats.FormatEntry("tensorbytes.formats.absent", "arrow"))
    formats.get.cache_clear()
    try:
        result = bench(weights(), formats=["arrow", "npy"], **QUICK)
    finally:
        formats.get.cache_clear()
    assert "pip install 'tensorbytes[arrow]'" in row_of(result, "arrow").refused
    assert result.best.format == "npy"


def test_what_is_mapped_is_found_out(found):
    assert row_of(found, "tb").zero_copy
    assert row_of(found, "npz").zero_copy
    assert row_of(found, "checkpoint").zero_copy
    assert row_of(found, "npz", "deflate").mapped == 0
    assert row_of(found, "parquet").mapped == 0
    assert row_of(found, "tfrecord").mapped == 0


def test_damage_is_noticed_where_there_are_checksums(found):
    noticing = {row.format for row in found.rows if row.held and row.compression is None and row.notices_damage}
    assert {"tb", "npz", "checkpoint", "torchfile", "tfrecord"} <= noticing
    assert not {"safetensors", "delimited", "raw"} & noticing
    small = bench(np.arange(10), formats="tb", **QUICK)
    assert small.rows[0].notices_damage is None


def test_raw_bytes_are_measured_but_never_recommended():
    result = bench(weights(), "size", formats=["raw", "npz"], compressions=[None], **QUICK)
    raw = row_of(result, "raw")
    assert raw.size == result.nbytes
    assert not raw.lossless
    assert "neither dtype nor shape" in raw.fault
    assert result.best.format == "npz"


def test_a_format_that_gives_back_something_else_is_not_lossless(monkeypatch):
    chosen = formats.get("npy")
    honest = chosen.write

    def write(document, *rest):
        leaf = document.leaves[0]
        wrong = tb.Tensor(leaf.value.dtype, leaf.value.shape, bytes(leaf.value.nbytes))
        honest(document._replace(leaves=[leaf._replace(value=wrong)]), *rest)

    monkeypatch.setattr(chosen, "write", write, raising=False)
    result = bench(weights(), "size", formats="npy", **QUICK)
    assert not result.rows[0].lossless
    assert result.best is None
    assert "came back as something else" in str(result)
    assert result.reason == "no choice holds this data without loss"


@pytest.mark.parametrize(
    "obj",
    [
        3.5,
        np.array(["a", "bc", ""], object),
        {"n": 7, "layers": [{"w": weights(2)}, {"w": weights(3)}], "none": None, "text": "x"},
        tb.Ragged(tb.Tensor("float32", (3,), np.arange(3, dtype="<f4")), (np.array([0, 1, 1, 3]),)),
        tb.Sparse("coo", (4, 4), (np.array([[0, 1], [2, 3]]),), tb.Tensor("int8", (2,), b"ab")),
        tb.Tensor("bfloat16", (2, 3), bytes(12), name="w", meta={"unit": "m"}),
        np.zeros((5, 3), np.complex64),
        np.array([True, False] * 40),
    ],
    ids=["scalar", "strings", "nested", "ragged", "sparse", "named", "complex", "bool"],
)
def test_any_value(obj):
    result = bench(obj, formats=["tb", "npz", "torchfile", "safetensors", "sparseproto", "tfrecord"], **QUICK)
    assert row_of(result, "tb").lossless
    assert row_of(result, "npz").lossless
    assert all(row.refused or not row.fault for row in result.rows)
    assert result.best is not None
    assert result.description in str(result)


def test_frameworks_tensors():
    torch = pytest.importorskip("torch")
    result = bench({"w": torch.ones(20, 3, dtype=torch.bfloat16)}, **SOME)
    assert result.nbytes == 120
    assert "bfloat16" in str(result)


# ---- files --------------------------------------------------------------------


def test_a_file(tmp_path):
    tb.save({"w": weights(), "n": 7}, tmp_path / "m.npz", meta={"epoch": "3"})
    result = bench(tmp_path / "m.npz", **SOME)
    assert result.source == str(tmp_path / "m.npz")
    assert row_of(result, "tb").lossless
    assert not result.sampled


def test_records_become_columns(tmp_path):
    with RecordWriter(tmp_path / "x.tfrecord") as writer:
        for number in range(5000):
            writer.write({"x": np.full(8, number, np.float32), "label": number})
    result = bench(tmp_path / "x.tfrecord", formats=["tb", "parquet", "tfrecord"], **QUICK)
    assert result.nbytes == result.total == 5000 * (32 + 8)
    assert result.notes == ["5000 rows, as columns"]
    assert {row.format for row in result.rows if row.lossless} == {"tb", "parquet", "tfrecord"}
    part = bench(tmp_path / "x.tfrecord", formats="tb", max_bytes=10_000, **QUICK)
    assert part.sampled
    assert part.total is None
    assert part.nbytes <= 10_000
    assert part.notes[0] == "the first 4096 rows, as columns"


def test_a_stream_becomes_columns_or_a_list(tmp_path):
    with tb.open(tmp_path / "even.tb", "w") as file:
        for number in range(10):
            file.write({"x": np.full(3, number)})
    result = bench(tmp_path / "even.tb", **SOME)
    assert result.notes == ["10 objects of a stream, as columns"]
    assert row_of(result, "npz").lossless
    with tb.open(tmp_path / "uneven.tb", "w") as file:
        file.write({"x": np.zeros(3)})
        file.write({"y": np.zeros((2, 2), np.int8), "n": 1})
    result = bench(tmp_path / "uneven.tb", **SOME)
    assert result.notes == ["2 objects of a stream, as a list"]
    assert row_of(result, "npz").lossless


# ---- samples ------------------------------------------------------------------


def test_large_data_is_cut_and_that_is_said():
    result = bench({"w": weights(4096), "small": np.arange(5)}, max_bytes=100_000, **SOME)
    assert result.sampled
    assert result.total == 4096 * 256 + 40
    assert 90_000 < result.nbytes <= 100_040
    assert "a sample of 99.9 kB of 1.05 MB (the middle of each tensor along its first axis)" in result.headline
    assert "a sample of 99.9 kB of 1.05 MB" in str(result)
    assert json.loads(result.json())["sampled"] is True
    whole = bench({"w": weights(4096)}, max_bytes=None, formats="tb", compressions=[None], **QUICK)
    assert not whole.sampled
    assert whole.nbytes == 4096 * 256


def test_columns_stay_of_one_length():
    x = {"x": weights(4096), "label": np.zeros(4096, np.int8)}
    result = bench(x, max_bytes=100_000, formats=["tfrecord", "arrow"], compressions=[None], **QUICK)
    assert all(row.lossless for row in result.rows)


def test_axes_of_one_in_front_are_kept():
    result = bench(weights(4096).reshape(1, 1, -1), max_bytes=100_000, **SOME)
    assert result.nbytes == 100_000
    assert result.description == "float32[1, 1, 25000]"


def test_what_can_not_be_cut_is_picked_from():
    result = bench([np.zeros((1, 1), np.int64) for _ in range(5000)], max_bytes=1000, **SOME)
    assert result.nbytes <= 1000
    assert result.notes[-1].endswith("of 5000 tensors")
    assert row_of(result, "tb").lossless


def test_a_mapped_file_is_cut_without_reading_it(tmp_path):
    for name in ("x.tb", "x.npz", "x.parquet"):
        tb.save({"w": weights(4096)}, tmp_path / name)
        result = bench(tmp_path / name, max_bytes=50_000, **SOME)
        assert result.nbytes <= 50_000
        assert row_of(result, "tb").lossless


# ---- manners ------------------------------------------------------------------


def test_nothing_is_left_behind(tmp_path):
    bench(weights(), folder=tmp_path, **SOME)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at", ["trying 2", "round 1"])
def test_an_interruption_leaves_nothing(tmp_path, at):
    seen = []

    def progress(what):
        seen.append(what)
        if what.startswith(at):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench(weights(), folder=tmp_path, progress=progress, **SOME)
    assert seen[0].startswith("trying 1 of ")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    chosen = formats.get("npy")

    def pieces(*arguments):
        yield b"half of it"
        raise KeyboardInterrupt

    monkeypatch.setattr(chosen, "encode", pieces, raising=False)
    with pytest.raises(KeyboardInterrupt):
        bench(weights(), formats="npy", folder=tmp_path, **QUICK)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_not_filled_further(tmp_path, monkeypatch):
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 30, 1 << 30, 1000))
    with pytest.raises(tb.errors.UsageError, match="1 kB are free, and measuring takes"):
        bench(weights(), folder=tmp_path, **SOME)


def test_progress_is_for_terminals(capsys, monkeypatch):
    bench(np.arange(5), formats="npy", **QUICK)
    assert capsys.readouterr() == ("", "")
    bench(np.arange(5), formats="npy", progress=True, **QUICK)
    out, err = capsys.readouterr()
    assert out == ""
    assert "bench: trying 1 of 1: npy" in err
    assert err.endswith("\r")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"goal": "fast"}, "goal='fast'"),
        ({"storage": 0}, "storage=0"),
        ({"max_bytes": 0}, "max_bytes=0"),
        ({"rounds": -1}, "rounds=-1"),
        ({"seconds": "1"}, "seconds='1'"),
        ({"formats": "npzz"}, "did you mean 'npz'"),
        ({"formats": "gguf"}, "'gguf' is read-only"),
        ({"formats": "npy", "compressions": "zstd"}, "no format among"),
        ({"compressions": [5]}, "expected texts"),
        ({"folder": "/nowhere/at/all"}, "no such folder"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(tb.errors.UsageError, match=message):
        bench(np.arange(5), **arguments)


def test_nothing_to_measure():
    with pytest.raises(tb.errors.UsageError, match="nothing to measure"):
        bench(np.zeros((0, 3)))


def test_no_framework_is_loaded():
    code = (
        "import sys, numpy as np\n"
        "from tensorbytes.ops.benching import bench\n"
        "bench({'x': np.arange(9)}, formats=['tb', 'npz', 'torchfile', 'checkpoint'], rounds=1, seconds=0)\n"
        "print(sorted({'torch', 'tensorflow', 'jax', 'scipy', 'matplotlib', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
