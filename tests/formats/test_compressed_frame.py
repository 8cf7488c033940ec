"""Compressed tensors in files: lossless for all that there is, in chunks that are read alone, never mistaken."""

import io
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import api, dtypes, testing
from tensorbytes.codecs import choice, chunked
from tensorbytes.codecs.pipelines import Pipeline, elements_of
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
from tensorbytes.testing import bits
from tests.hostile.test_damaged_padding import Pipe
from tests.support.compressed_bytes import CODECS, PIPELINES, stored
from tests.support.tiers import deep_but
from tests.support.wire_bytes import records

WORDS = [f"{n % 7} and {n % 5}" for n in range(300)]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 64)
    monkeypatch.setattr(chunked, "count_threads", lambda: 3)  # threads, whatever the machine has
    monkeypatch.setattr(choice, "_LEAST_BYTES", 1)


@pytest.fixture
def chunks_of_a_kib(monkeypatch, small_chunks):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 1024)


def skewed(name, shape, seed=0):
    """A tensor of any dtype, few of whose values occur often; whole numbers are small."""
    rng, count = np.random.default_rng(seed), int(np.prod(shape))
    picked = np.minimum(rng.geometric(0.25, count), 12)
    rows = bits.patterns(name)
    if elements_of(dtypes.get(name)).family != "float" and dtypes.get(name).bits >= 8 and name != "bool":
        rows = np.arange(100, 113, dtype=f"<u{dtypes.get(name).itemsize}").view(np.uint8).reshape(13, -1)
    return Tensor(name, shape, rows[picked % len(rows)].tobytes())


# ---- lossless ---------------------------------------------------------------

LAYOUTS = ("1-d", "page and more", "transposed", "big-endian", "StringDType", "objects", "fixed", "csr_matrix", "coo")


def compressing(monkeypatch, compression):
    plain = api.dumps
    monkeypatch.setattr(api, "dumps", lambda x, format: plain(x, format, compression=compression))


@pytest.mark.parametrize("framework", deep_but(["numpy"], ["numpy", "scipy", "torch"]))
def test_the_contract_with_auto(monkeypatch, small_chunks, framework):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 1 << 14)
    compressing(monkeypatch, "auto")
    cases = testing.cases(framework)
    testing.check_cases(cases if framework != "torch" else cases[::4], "tb")


@pytest.mark.parametrize("text", PIPELINES)
def test_the_contract_with_each_pipeline(monkeypatch, text):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 1 << 14)
    compressing(monkeypatch, text)
    cases = [case for name in ("numpy", "scipy") for case in testing.cases(name) if case.layout in LAYOUTS]
    assert len(cases) > 100
    testing.check_cases(cases, "tb")


@pytest.mark.parametrize("text", deep_but(["split+huffman"], ["shuffle+zstd", "split+huffman", "delta+pack"]))
def test_the_contract_with_other_frameworks(monkeypatch, small_chunks, text):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 1 << 14)
    compressing(monkeypatch, text)
    layouts = (*LAYOUTS, "Parameter", "conjugate", "csr", "RaggedTensor", "SparseTensor", "every bit pattern")
    for framework in ("torch", "tensorflow", "jax"):
        testing.check_cases([case for case in testing.cases(framework) if case.layout in layouts], "tb")


@pytest.mark.parametrize("text", [*PIPELINES, "auto"])
def test_every_dtype_is_compressed_and_comes_back(monkeypatch, text):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 1024)
    compressed = 0
    for name, row in dtypes.DTYPES.items():
        value = skewed(name, (40, 61))
        data = tb.dumps(value, compression=text)
        (payload,) = records(data)
        made = tb.loads(data, to="tensor")
        assert (made.dtype, made.shape, bytes(made.data)) == (value.dtype, value.shape, bytes(value.data))
        found = stored(payload)
        if text == "auto":
            assert found is not None
            continue
        fitted = Pipeline.parse(text).fitted(elements_of(row))
        if found is None:  # codecs that look for repetitions alone, tables larger than what they save, noise in floats
            unfit = ("lz4", "snappy", "delta", "huffman")
            assert fitted is None or any(word in text for word in unfit) or row.itemsize == 1
        else:
            assert found.pipeline == fitted.text
            compressed += 1
    assert compressed >= (12 if "delta" in text else 20) or text in ("auto", "pack")


def everything():
    x = skewed("int32", (300,))
    index = np.arange(300) * 2
    return {
        "deep": [{"f": np.round(np.random.default_rng(0).normal(size=(20, 30)), 1)}, (None, 1.5, "text", [2] * 300)],
        "ragged": Ragged(x, (np.arange(0, 301, 3),)),
        "ragged text": Ragged(Strings.from_items(WORDS, (300,), "utf-8"), (np.arange(0, 301, 3),)),
        "csr": Sparse("csr", (2, 600), (np.array([0, 150, 300]), np.concatenate([index[:150], index[:150]])), x),
        "coo": Sparse("coo", (600,), (index[:, None],), x),
        "words": np.array(WORDS).reshape(30, 10),
        "raw bytes": np.array([w.encode() for w in WORDS], object),
        "long text": "word " * 500,
        "times": np.arange(500).astype("M8[s]"),
        "zeros": np.zeros((30, 0, 4)),
        "flags": np.arange(1000) % 3 == 0,
    }


@pytest.mark.parametrize("text", [*CODECS, "split+huffman", "shuffle+zstd", "delta+pack", "pack+zstd", "auto"])
@pytest.mark.parametrize("format", ["tb", "delimited"])
def test_structures_come_back(chunks_of_a_kib, tmp_path, format, text):
    obj = everything()
    data = tb.dumps(obj, format, compression=text)
    assert len(data) < len(tb.dumps(obj, format))
    assert tb.dumps(obj, format, compression=text) == data
    assert tb.equal(tb.loads(data), obj)
    (tmp_path / "x").write_bytes(data)
    assert tb.equal(tb.load(tmp_path / "x", mmap=True), obj)
    with tb.open(tmp_path / "x") as file:
        assert file.format == format
        assert tb.equal(file[0], obj)
        assert file.verify() == 1
        for entry in file.entries():
            assert entry.nbytes >= (entry.stored.nbytes if entry.stored else 0)
        assert (file["words"].stored is None) == (text == "delta+pack")
        assert file["ragged"].stored is None  # its parts are
        assert tb.equal(file["csr"].load(), obj["csr"])
        assert file["words"][3:5, ::4].tolist() == obj["words"][3:5, ::4].tolist()
    # As bytes they are no more than they were.
    assert tb.dumps(tb.loads(data, to="original"), format) == tb.dumps(
        tb.loads(tb.dumps(obj, format), to="original"), format
    )


def test_python_values_stay_as_they_are():
    obj = {"list": [1] * 5000, "text": "x" * 5000, "number": 2**70}
    assert tb.dumps(obj, compression="zstd") == tb.dumps(obj)


# ---- chunks -----------------------------------------------------------------


@pytest.mark.parametrize("text", ["zstd", "huffman", "pack", "shuffle+zstd", "delta+pack", "delta+shuffle+huffman"])
@pytest.mark.parametrize("kind", ["u1", "<i2", "<i8"])
def test_chunk_borders(small_chunks, text, kind):
    each = 64 // np.dtype(kind).itemsize
    for count in {0, 1, 2, 63, 64, 65, each - 1, each, each + 1, 8 * each, 8 * each + 1, 17 * each - 1, 33 * each}:
        x = (np.arange(count) // 40).astype(kind)
        data = tb.dumps(x, compression=text)
        assert tb.loads(data).tolist() == x.tolist()
        assert tb.dumps(x, compression=text) == data
        with tb.open(io.BytesIO(data)) as file:
            (entry,) = file.entries()
            for cut in (slice(None), slice(each - 1, each + 1), slice(each, 2 * each), slice(-1, None), slice(0, 0)):
                assert entry[cut].tolist() == x[cut].tolist()


def test_strings_over_chunk_borders(small_chunks):
    for count in (1, 2, 9, 10, 11, 100, 300):
        x = np.array(WORDS[:count] * 2)
        assert tb.loads(tb.dumps(x, compression="zstd")).tolist() == x.tolist()
        assert tb.loads(tb.dumps(x, compression="auto")).tolist() == x.tolist()


CUBE = (np.arange(7 * 30 * 11) // 3).astype(np.int32).reshape(7, 30, 11)
LINE = np.arange(2000, dtype=np.int16) // 7


def one_step(size):
    bound = st.one_of(st.none(), st.integers(-size - 3, size + 3))
    step = st.one_of(st.none(), st.integers(-4, 4).filter(bool))
    near = st.integers(-size, size - 1)
    return st.one_of(
        near,
        near.map(np.int32),
        st.builds(slice, bound, bound, step),
        st.builds(slice, bound, bound, step),
        st.just(None),
        st.just(...),
        st.lists(near, max_size=3),
        near.map(np.array),
        st.lists(near, min_size=2, max_size=2).map(lambda pair: np.array([pair, pair])),
        st.lists(st.booleans(), min_size=size, max_size=size).map(np.array),
        st.booleans(),
    )


indices = st.one_of(one_step(7), st.lists(st.sampled_from([7, 30, 11, 7, 11]).flatmap(one_step), max_size=5).map(tuple))


@pytest.fixture(scope="module")
def opened():
    """A file of small chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "CHUNK_BYTES", 64)
        data = tb.dumps({"cube": CUBE, "line": LINE, "dot": CUBE[0, 0, :1].reshape(())}, compression="delta+pack")
    with tb.open(io.BytesIO(data)) as file:
        assert file["cube"].stored.compression == file["line"].stored.compression == "delta+pack"
        assert len(stored(records(data)[0]).sizes) == -(-CUBE.nbytes // 64)
        yield file


def both(entry, array, index):
    try:
        expected = array[index]
    except IndexError:
        with pytest.raises(IndexError):
            entry[index]
        return
    found = entry[index]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tolist() == expected.tolist()


@given(index=indices)
def test_any_index_gives_what_numpy_gives(opened, index):
    both(opened["cube"], CUBE, index)


@given(index=st.builds(slice, st.integers(-2010, 2010), st.integers(-2010, 2010), st.sampled_from([1, 7, -1, -40])))
def test_any_slice_of_a_line(opened, index):
    both(opened["line"], LINE, index)
    both(opened["dot"], CUBE[0, 0, :1].reshape(()), (...,))


@pytest.mark.parametrize(
    "index", [(0, slice(None), [0, 1]), (1, None, [0, 1]), (0, ..., [1, 2]), (1, slice(None), True)]
)
def test_integers_beside_arrays_put_their_axis_first(opened, index):
    both(opened["cube"], CUBE, index)


@pytest.mark.parametrize("text", ["zstd", "split+huffman", "shuffle+lz4"])
def test_a_slice_needs_its_own_chunks_alone(monkeypatch, tmp_path, text):
    monkeypatch.setattr(chunked, "CHUNK_BYTES", 4096)
    x = np.round(np.random.default_rng(0).normal(size=(64, 1024)), 1).astype(np.float32)  # a chunk for each row
    whole = tb.dumps({"x": x}, compression=text)
    found = stored(records(whole)[0])
    begin = whole.index(found.content)
    starts = begin + np.cumsum([0, *found.sizes])
    for kept in (0, 1, 8, 31, 63):
        raw = bytearray(whole)
        for chunk in range(64):
            if chunk != kept:
                raw[(starts[chunk] + starts[chunk + 1]) // 2] ^= 4
        (tmp_path / "x.tb").write_bytes(raw)
        with tb.open(tmp_path / "x.tb") as file:
            assert file["x"][kept, 5:9].tolist() == x[kept, 5:9].tolist()
            assert file["x"][kept].tolist() == x[kept].tolist()
            other = 7 if kept != 7 else 9
            with pytest.raises(tb.errors.CorruptError, match=f"chunk {other} differs") as caught:
                file["x"][other, 0]
            assert caught.value.at == starts[other]
            with pytest.raises(tb.errors.CorruptError, match="chunk"):
                file["x"].load()
        for load in (lambda: tb.load(tmp_path / "x.tb"), lambda: tb.load(tmp_path / "x.tb", mmap=True)):
            with pytest.raises(tb.errors.CorruptError):
                load()


# ---- who does not know of compression refuses it ----------------------------


@pytest.mark.parametrize("row", [row for row in dtypes.DTYPES.values() if row.in_tensorflow], ids=lambda row: row.name)
def test_tensorflow_refuses(row):
    for shape in ((3, 700), (300,)):
        for text in ("zstd", "auto", "pack+huffman"):
            (payload,) = records(tb.dumps(skewed(row.name, shape), compression=text))
            if stored(payload) is not None:
                with pytest.raises(tf.errors.InvalidArgumentError):
                    tf.io.parse_tensor(payload, tf.dtypes.as_dtype(row.code))
                if text == "zstd":
                    break
        else:
            pytest.fail("nothing was compressed")


@pytest.mark.parametrize("text", CODECS)
def test_tensorflow_refuses_strings_of_every_size(text):
    """Content of strings is lengths and bytes: compressed bytes must not pass for that either."""
    rng, refused = np.random.default_rng(0), 0
    for count in range(5, 45):
        x = np.array([rng.integers(0, 256, count, np.uint8).tobytes() + b"a" * 500], object)
        (payload,) = records(tb.dumps(x, compression=text))
        if stored(payload) is None:
            assert tf.io.parse_tensor(payload, tf.string).numpy().tolist() == x.tolist()
            continue
        refused += 1
        with pytest.raises(tf.errors.InvalidArgumentError):
            tf.io.parse_tensor(payload, tf.string)
    assert refused > 30


# ---- streams, formats -------------------------------------------------------


def test_streams(tmp_path, chunks_of_a_kib):
    objects = [np.arange(n * 300) for n in range(4)] + [{"a": np.zeros(500), "b": "text"}, np.array(WORDS)]
    with tb.open(tmp_path / "x.tb", "w", compression="delta+pack") as file:
        for x in objects[:3]:
            file.write(x)
    with tb.open(tmp_path / "x.tb", "a", compression="zstd") as file:
        for x in objects[3:]:
            file.write(x)
    assert tb.equal(tb.load(tmp_path / "x.tb"), objects)
    with tb.open(tmp_path / "x.tb") as file:
        ways = [entry.stored.compression if entry.stored else "" for entry in file.entries()]
    assert ways == ["", "delta+pack", "delta+pack", "zstd", "zstd", "", "zstd"]
    assert tb.equal(list(tb.open(Pipe((tmp_path / "x.tb").read_bytes()))), objects)
    read, write = os.pipe()

    def produce():
        with os.fdopen(write, "wb") as end, tb.open(end, "w", compression="auto") as file:
            for x in objects:
                file.write(x)

    thread = threading.Thread(target=produce)
    thread.start()
    with os.fdopen(read, "rb") as end:
        assert tb.equal(list(tb.open(end)), objects)
    thread.join()


def test_conversions(tmp_path, chunks_of_a_kib):
    obj = {"w": np.round(np.random.default_rng(0).normal(size=(50, 40)), 1).astype(np.float32), "ids": np.arange(900)}
    tb.save(obj, tmp_path / "plain.safetensors")
    tb.convert(tmp_path / "plain.safetensors", tmp_path / "x.tb", compression="auto", verify=True)
    tb.convert(tmp_path / "x.tb", tmp_path / "x.pbs", compression={"ids": "delta+pack"})
    tb.convert(tmp_path / "x.pbs", tmp_path / "back.safetensors")
    assert (tmp_path / "x.tb").stat().st_size < (tmp_path / "x.pbs").stat().st_size
    assert (tmp_path / "x.pbs").stat().st_size < (tmp_path / "plain.safetensors").stat().st_size
    assert tb.equal(tb.load(tmp_path / "back.safetensors"), obj)
    tb.save(obj["ids"], tmp_path / "x.binpb", name="ids", compression="pack")
    assert tb.load(tmp_path / "x.binpb").tolist() == obj["ids"].tolist()
    assert (tmp_path / "x.binpb").stat().st_size < obj["ids"].nbytes / 4


DUMP = """
import sys, hashlib
import numpy as np, tensorbytes as tb
rng = np.random.default_rng(0)
x = {"w": rng.normal(0, 0.02, 400_000).astype("f4"), "ids": np.cumsum(rng.integers(0, 9, 90_000))}
x["mask"] = rng.random(9999) < 0.1
for text in ("split+huffman", "delta+shuffle+huffman", "delta+pack", "pack+huffman", "auto", "shuffle+zstd"):
    print(tb.ACCELERATED, text, hashlib.sha256(tb.dumps(x, compression=text)).hexdigest())
"""


def test_both_kernels_write_the_same_bytes():
    found = []
    for kernel in ("compiled", "reference"):
        env = os.environ | {"TENSORBYTES_KERNEL": kernel}
        run = subprocess.run([sys.executable, "-c", DUMP], env=env, capture_output=True, text=True, check=True)
        found.append([line.split() for line in run.stdout.splitlines()])
    assert [line[0] for line in found[0] + found[1]] == ["True"] * 6 + ["False"] * 6
    assert [line[1:] for line in found[0]] == [line[1:] for line in found[1]]


# ---- small content, quantities beyond packing, reports ------------------------


def test_what_compresses_to_next_to_nothing_is_deferred_too(tmp_path):
    tb.save({"a": np.zeros(50_000_000, np.uint8), "b": np.arange(3)}, tmp_path / "x.tb", compression="auto")
    few = tb.errors.Limits(max_bytes=1 << 20)
    assert [t.nbytes for t in tb.inspect(tmp_path / "x.tb", limits=few).tensors] == [50_000_000, 24]
    with tb.open(tmp_path / "x.tb", limits=few) as file:
        assert file["a"][5:10].tolist() == [0] * 5
        with pytest.raises(tb.errors.LimitError):
            file["a"].load()
    assert tb.load(tmp_path / "x.tb")["a"].nbytes == 50_000_000


@pytest.mark.parametrize("pipeline", ["pack+zstd", "pack+huffman", "delta+pack+zstd", "pack", "delta+pack"])
def test_integers_too_wide_to_pack_still_get_their_codec(pipeline):
    times = np.arange(100_000).astype("M8[ns]")
    times[::20_000] = np.datetime64("NaT")
    raw = tb.dumps(times, compression=pipeline)
    assert tb.loads(raw).tobytes() == times.tobytes()
    assert len(raw) < (0.8 if "+zstd" in pipeline else 1.001) * times.nbytes


def test_converting_with_quantization_says_what_it_costs(tmp_path):
    w = np.random.default_rng(0).normal(size=(100, 30)).astype(np.float32)
    tb.save({"w": w, "i": np.arange(3)}, tmp_path / "x.tb")
    report = tb.convert(tmp_path / "x.tb", tmp_path / "q.tb", quantize="int8", compression="auto", verify=True)
    assert report.verified
    assert not report.lossless
    assert [(loss.name, loss.feature) for loss in report.losses] == [("w", "quantize")]
    assert "float32 stored as int8, max error" in str(report)
    raw = bytearray((tmp_path / "q.tb").read_bytes())
    back = tb.loads(raw)["w"]
    assert 0 < np.abs(back - w).max() < 0.02


@pytest.mark.parametrize("value", [np.float32(3.5), 3.5, "text", np.arange(3), np.array(["a"])])
def test_a_tensor_called_by_its_name_must_be_one_that_can_be_quantized(value):
    with pytest.raises(tb.errors.UsageError, match="quantize: 'z' holds"):
        tb.dumps({"z": value, "w": np.ones(3)}, quantize={"z": "int8"})
    tb.dumps({"z": value, "w": np.ones(3)}, quantize={"*": "int8"})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("shuffle+split+zstd", "'split' is out of place"),
        ("", "a step without a name"),
        ("split+", "a step without a name"),
        ({"w": "zstd"}, "the tensor has no name"),
    ],
)
def test_mistakes_in_pipelines_are_named(wrong, words):
    with pytest.raises(tb.errors.UsageError, match=words):
        tb.dumps(np.ones(3), compression=wrong)
