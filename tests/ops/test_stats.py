"""stats: figures against NumPy, long double and exact fractions, over values and files of several kinds."""

import json
import math
import subprocess
import sys
import tracemalloc
from collections import Counter
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import dtypes
from tensorbytes.ops import pieces, tallies
from tensorbytes.ops.statistics import stats
from tensorbytes.rows import Table
from tests.support import CORPUS


def only(x, **options):
    (found,) = stats(x, **options).values()
    json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert str(found)
    if found.histogram is not None:
        finite = found.count - found.nan - found.positive_inf - found.negative_inf
        assert sum(found.histogram.counts) == finite
        assert len(found.histogram.edges) == len(found.histogram.counts) + 1
    return found


def exact(x):
    """(mean, std) of finite numbers, in rational arithmetic."""
    values = [Fraction(v) for v in x]
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    # The root of a fraction that may be far outside the range of floats.
    shift = (variance.numerator.bit_length() - variance.denominator.bit_length()) // 2 * 2 if variance else 0
    root = math.sqrt(variance / Fraction(2) ** shift)
    return float(mean), math.ldexp(root, shift // 2)


def check_counts(found, x):
    """Bins as NumPy fills them, given the edges."""
    want, _ = np.histogram(x, bins=np.array(found.histogram.edges, x.dtype if x.dtype.kind == "f" else None))
    assert found.histogram.counts == tuple(want.tolist())


# ---- numbers ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shift", [0, 3, 1000])
def test_floats(dtype, shift):
    rng = np.random.default_rng(shift)
    x = (rng.standard_normal((300, 701)) + shift).astype(dtype)  # more than one block
    found = only(x)
    wide = x.astype(np.longdouble)
    # fsum is rounded once, and the quotient again.
    assert found.mean == pytest.approx(math.fsum(x.ravel().tolist()) / x.size, rel=2.3e-16)
    assert found.std == pytest.approx(float(wide.std()), rel=1e-15)
    assert (found.count, found.min, found.max) == (x.size, x.min(), x.max())
    assert (found.zeros, found.negative) == ((x == 0).sum(), (x < 0).sum())
    check_counts(found, x.ravel().astype(np.float64))


def test_what_is_not_finite():
    x = np.array([np.nan, np.inf, -np.inf, np.inf, 0.0, -0.0, -2.0, 5.0, np.nan, np.nan], np.float32)
    found = only(x)
    assert (found.count, found.nan, found.positive_inf, found.negative_inf) == (10, 3, 2, 1)
    assert (found.zeros, found.negative, found.min, found.max, found.mean) == (2, 2, -2.0, 5.0, 0.75)
    nothing = only(np.array([np.nan, np.inf]))
    assert (nothing.min, nothing.mean, nothing.std, nothing.histogram) == (None,) * 4
    pairs = only(np.array([complex(np.inf, np.nan), complex(0, -np.inf), 3 + 4j, 0]))
    assert (pairs.nan, pairs.positive_inf, pairs.max, pairs.zeros) == (1, 1, 5.0, 1)
    signalling = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    assert (only(signalling).nan, only(signalling).mean) == (1, 1.0)


M = sys.float_info.max


@pytest.mark.parametrize(
    "values",
    [
        [M, M, M],
        [M, -M],
        [M, M, -M, 1.0],
        [1e308, 1e308, 5e-324],
        [5e-324, 1e-323, 0.0],
        [1e-310, 2e-310, 3e-310],
        [1e30, 1.0, -1e30],
        [1e-160, 1e-160 * (1 + 2**-50)],
        [1e16, 1.0, 1.0, -1e16],
        [1.0, math.nextafter(1.0, 2)],
        [0.1] * 10,
    ],
)
def test_huge_tiny_and_cancelling(values):
    x = np.array(values)
    found = only(x)
    mean, std = exact(values)
    assert found.mean == mean
    assert found.std == pytest.approx(std, rel=1e-15, abs=5e-324)
    assert (found.min, found.max) == (min(values), max(values))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=30), st.integers(1, 9))
def test_any_floats(values, bins):
    found = only(np.array(values), bins=bins)
    mean, std = exact(values)
    assert found.mean == mean
    assert found.std == pytest.approx(std, rel=1e-14, abs=1e-323)
    edges = found.histogram.edges
    for k, count in enumerate(found.histogram.counts):
        last = k == len(edges) - 2
        assert count == sum(edges[k] <= v < edges[k + 1] or (last and v == edges[-1]) for v in values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60))
def test_sums_are_exact(values):
    assert Fraction(tallies.exact_sum(np.array(values, float)), 1 << 1074) == sum(map(Fraction, values))


def test_sums_of_whole_blocks_are_exact():
    x = np.random.default_rng(3).uniform(0.5, 1, 1 << 16)
    assert tallies.exact_sum(x) == sum(int(v * 2**53) for v in x.tolist()) << (1074 - 53)


def test_numbers_on_the_edges():
    for low, high, bins in ((0.0, 0.7, 7), (-0.1, 1.1, 12), (1 / 3, 2 / 3, 11), (-M, M, 10)):
        edges = np.array(only(np.array([low, high]), bins=bins).histogram.edges)
        x = np.concatenate([edges, np.nextafter(edges[1:], -np.inf), np.nextafter(edges[:-1], np.inf)])
        found = only(x, bins=bins)
        assert found.histogram.edges == tuple(edges.tolist())
        assert found.histogram.counts == (3,) * (bins - 1) + (4,)


@given(
    st.sampled_from(["int8", "int32", "int64", "uint8", "uint32", "uint64"]).flatmap(
        lambda dtype: st.tuples(
            st.just(dtype),
            st.lists(st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)), min_size=1, max_size=20),
        )
    ),
    st.integers(1, 50),
)
def test_integers_are_exact(given_values, bins):
    dtype, values = given_values
    found = only(np.array(values, dtype), bins=bins)
    mean, std = exact(values)
    assert (found.min, found.max, found.mean) == (min(values), max(values), mean)
    assert found.std == pytest.approx(std, rel=1e-15)
    edges = found.histogram.edges
    assert all(type(edge) is int for edge in edges)
    assert len(edges) - 1 <= bins
    places = Counter((v - edges[0]) // (edges[1] - edges[0]) for v in values)
    assert found.histogram.counts == tuple(places[k] for k in range(len(edges) - 1))


def test_extremes_of_64_bits():
    found = only(np.array([-(1 << 63), (1 << 63) - 1, (1 << 63) - 1, 0]))
    assert (found.min, found.max, found.zeros, found.negative) == (-(1 << 63), (1 << 63) - 1, 1, 1)
    assert found.mean == ((1 << 63) - 2) / 4
    whole = np.full(70_000, (1 << 64) - 1, np.uint64)
    found = only(whole)
    assert (found.min, found.mean, found.std) == ((1 << 64) - 1, float((1 << 64) - 1), 0.0)
    x = (1 << 62) + np.arange(200_000)  # a double holds none of their distances
    assert only(x).std == pytest.approx(math.sqrt((200_000**2 - 1) / 12), rel=1e-15)


@pytest.mark.parametrize("name", [name for name in dtypes.DTYPES if dtypes.DTYPES[name].numpy and "time" not in name])
def test_every_dtype(name):
    row = dtypes.get(name)
    rng = np.random.default_rng(1)
    raw = rng.integers(0, 256, 400 * row.itemsize, np.uint8)
    raw = raw & 1 if name == "bool" else raw & row.value_mask if row.bits < 8 else raw
    x = raw.view(dtypes.to_numpy(name))
    with np.errstate(all="ignore"):
        wide = np.abs(x.astype(np.complex128)) if "complex" in name else x.astype(np.float64)
        nans = int(np.isnan(x.astype(np.complex128)).sum())
    finite = wide[np.isfinite(wide)]
    found = only(tb.Tensor(name, (400,), raw))
    assert (found.dtype, found.count, found.of) == (name, 400, "magnitude" if "complex" in name else "")
    assert found.nan == nans
    assert found.positive_inf + found.negative_inf + found.nan == 400 - len(finite)
    assert (float(found.min), float(found.max)) == (finite.min(), finite.max())
    assert found.zeros == (finite == 0).sum()
    assert found.negative == (wide < 0).sum()
    mean, std = exact(finite.tolist() if row.bits < 64 or name[0] in "fc" else x.tolist())
    assert found.mean == mean
    assert found.std == pytest.approx(std, rel=1e-14)


@pytest.mark.parametrize("name", ["qint8", "quint8", "qint16", "quint16", "qint32"])
def test_quantized_types_by_their_integers(name):
    width = dtypes.get(name).itemsize
    x = np.frombuffer(bytes(range(256)), f"<{'u' if 'qu' in name else 'i'}{width}")
    found = only(tb.Tensor(name, x.shape, x.view(np.uint8)))
    assert (found.min, found.max, found.mean) == (x.min(), x.max(), exact(x.tolist())[0])


def test_times():
    x = np.array(["2020-01-01", "NaT", "2020-01-03", "1969-12-31"], "M8[D]")
    found = only(x)
    assert (found.of, found.nan, found.negative, found.count) == ("datetime64[D]", 1, 1, 4)
    shown = found.to_dict()
    assert (shown["earliest"], shown["latest"]) == ("1969-12-31", "2020-01-03")
    assert "1969-12-31 to 2020-01-03" in str(found)
    spans = only(np.array([5, -3], "m8[25s]"))
    assert (spans.of, spans.min, spans.max, spans.mean) == ("timedelta64[25s]", -3, 5, 1.0)
    lying = only(tb.Tensor("datetime64", (1,), bytes(8), origin={"numpy.dtype": "O"}))
    assert (lying.of, lying.min) == ("datetime64", 0)


def test_empty_and_scalars():
    for x in (np.zeros((0, 3)), np.zeros(0, np.int64), np.zeros(0, ml_dtypes.bfloat16), np.zeros(0, "M8[s]")):
        found = only(x)
        assert (found.count, found.min, found.max, found.mean, found.std, found.histogram) == (0, *[None] * 5)
    assert only(3).mean == 3.0
    assert only(np.float32(2)).histogram.counts == (1,)
    assert stats({"a": None, "b": {}, "c": 1}).keys() == {"c"}
    words = only(np.array([], object).astype("U3"))
    assert (words.count, words.lengths.min, words.frequent) == (0, None, ())


# ---- other kinds --------------------------------------------------------------------


def test_strings():
    words = ["a", "bb", "", "a", "", "a", "\x1b[31m", "x" * 500, "x" * 499 + "y"]
    found = only(np.array(words, object))
    sizes = [len(word) for word in words]
    assert (found.kind, found.count, found.distinct, found.approximate) == ("strings", 9, 6, False)
    assert (found.lengths.min, found.lengths.max, found.lengths.empty) == (0, 500, 2)
    assert found.lengths.mean == np.mean(sizes)
    assert found.frequent[:2] == (("a", 3), ("", 2))
    assert "\x1b" not in str(found)
    odd = only(np.array([b"\xff\x00", "\u00e9".encode() * 100], object))
    assert [text for text, _ in odd.frequent] == ["\\xff\x00", "\u00e9" * 32 + "..."]


def test_too_many_strings_to_count(monkeypatch):
    monkeypatch.setattr(tallies, "_MOST_DISTINCT", 100)
    words = [word for k in range(1000) for word in (f"w{k}", "often")]
    found = only(np.array(words, object))
    assert (found.count, found.distinct, found.approximate) == (2000, None, True)
    assert found.frequent[0] == ("often", 1000)
    assert "at least" in str(found)


def test_ragged_and_sparse():
    values = np.arange(7, dtype="<f4")
    found = only(tb.Ragged(tb.Tensor("float32", (7,), values), (np.array([0, 3, 3, 7]),)))
    assert (found.kind, found.count, found.mean, found.rows) == ("ragged", 7, 3.0, 3)
    lengths = found.row_lengths
    assert (lengths.min, lengths.mean, lengths.max, lengths.empty) == (0, 7 / 3, 4, 1)
    dense = np.array([[0, 2, 0], [0, 0, 0], [-5, 0, 0.5]])
    for layout in ("coo", "csr", "csc", "dia"):
        sparse = only(getattr(scipy.sparse, f"{layout}_array")(dense))
        assert (sparse.min, sparse.max, sparse.kind) == (-5.0, 2.0, "sparse")
        assert sparse.density == sparse.count / 9
        assert sparse.negative == 1
    assert sparse.count == 6  # three diagonals, without what lies outside the matrix and with its zeros inside
    assert only(scipy.sparse.coo_array((0, 4))).density is None


# ---- files --------------------------------------------------------------------------


@pytest.fixture
def weights():
    rng = np.random.default_rng(0)
    return {
        "w": rng.standard_normal((1100, 1000)).astype(np.float32),  # more than a slice
        "b": np.arange(-5, 5, dtype=np.int16),
        "h": rng.standard_normal(50).astype(ml_dtypes.bfloat16),
    }


@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("x.tb", {}),
        ("x.tb", {"compression": "zstd"}),
        ("x.npz", {}),
        ("x.npz", {"compression": "deflate"}),
        ("x.safetensors", {}),
        ("x.pt", {}),
    ],
)
def test_files(tmp_path, weights, file, options):
    tb.save(weights, tmp_path / file, **options)
    found = stats(tmp_path / file)
    assert found == stats(weights)
    assert found["w"].mean == math.fsum(weights["w"].ravel().tolist()) / weights["w"].size
    assert stats(tmp_path / file, "w", bins=7).keys() == {"w"}
    assert stats(tmp_path / file, ["[bh]"]).keys() == {"b", "h"}
    with pytest.raises(tb.errors.UsageError, match="there is no tensor 'nope'"):
        stats(tmp_path / file, "nope")


def test_a_quantized_tensor_as_what_it_stands_for(tmp_path, weights):
    tb.save(weights, tmp_path / "q.tb", quantize="int8")
    found = stats(tmp_path / "q.tb", "w")["w"]
    back = tb.load(tmp_path / "q.tb")["w"]
    assert (found.dtype, found.min, found.max) == ("float32", back.min(), back.max())
    assert found.mean == math.fsum(back.ravel().tolist()) / back.size


def test_an_unnamed_tensor_and_a_stream(tmp_path):
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(6.0).reshape(2, 3)))
    found = stats(tmp_path / "x.npy")
    assert (list(found), found[""].mean) == ([""], 2.5)
    with open(tmp_path / "x.npy", "rb") as file:
        assert stats(file) == found
    with tb.open(tmp_path / "s.tb", "w") as stream:
        for k in range(5):
            stream.write({"x": np.full(3, k, np.int32), "y": np.float32(k) if k else np.int8(9)})
    found = stats(tmp_path / "s.tb")
    assert (found["x"].count, found["x"].mean, found["x"].max) == (15, 2.0, 4)
    assert {(s.dtype, s.count) for name, s in found.items() if name != "x"} == {("int8", 1), ("float32", 4)}


def test_records(tmp_path):
    rows = [
        {"id": k, "x": np.arange(3, dtype=np.float32) * k, "n": np.arange(k % 4), "word": "ab" * (k % 3)}
        | ({"maybe": np.float32(k), "pair": np.array([k, -k]), "tag": b"t"} if k % 5 == 0 else {})
        for k in range(1000)
    ]
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        for row in rows:
            writer.write(row)
    found = stats(tmp_path / "x.tfrecord")
    assert found.keys() == {"id", "x", "n", "word", "maybe", "pair", "tag"}
    assert (found["id"].count, found["id"].mean, found["id"].max) == (1000, 499.5, 999)
    x = np.array([row["x"] for row in rows])
    assert (found["x"].count, found["x"].mean) == (3000, math.fsum(x.ravel().tolist()) / 3000)
    assert (found["n"].rows, found["n"].row_lengths.mean, found["n"].row_lengths.max) == (1000, 1.5, 3)
    words = Counter(row["word"] for row in rows)
    assert dict(found["word"].frequent) == dict(words)
    maybe = found["maybe"]
    assert (maybe.kind, maybe.count, maybe.rows, maybe.missing, maybe.mean) == ("tensor", 200, 1000, 800, 497.5)
    assert (found["pair"].count, found["pair"].missing, found["pair"].min) == (400, 800, -995)
    assert (found["pair"].kind, found["pair"].row_lengths) == ("tensor", None)  # where it is, it has two values
    assert (found["tag"].count, found["tag"].missing, found["tag"].frequent) == (200, 800, (("t", 200),))
    assert stats(tmp_path / "x.tfrecord", "id").keys() == {"id"}
    assert stats([str(tmp_path / "x.tfrecord")] * 2, "id")["id"].count == 2000
    with pytest.raises(tb.errors.UsageError, match="there is no tensor 'nope'"):
        stats(tmp_path / "x.tfrecord", "nope")
    tb.convert(tmp_path / "x.tfrecord", tmp_path / "x.tfrecord.gz")
    assert stats(tmp_path / "x.tfrecord.gz") == found


def test_rows_that_lack_a_value_do_not_count():
    column = tb.Tensor("int64", (5, 2), np.arange(10))
    present = np.array([True, False, True, True, False])
    seen = list(pieces._column("x", Table({"x": column}, 5, {("x", 0): present})))
    assert (sum(piece.rows for piece in seen), sum(piece.missing for piece in seen)) == (5, 2)
    parts = [piece.values.numpy() for piece in seen if piece.values is not None]
    np.testing.assert_array_equal(np.concatenate(parts), column.numpy()[present])


def test_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    tb.save({"a": np.arange(5000), "b": np.linspace(0, 1, 5000)}, tmp_path / "x.parquet")
    found = stats(tmp_path / "x.parquet")
    assert (found["a"].mean, found["a"].count, found["b"].max) == (2499.5, 5000, 1.0)


def test_damage_is_found(tmp_path):
    tb.save({"w": np.ones(100_000, np.float32)}, tmp_path / "x.tb")
    data = bytearray((tmp_path / "x.tb").read_bytes())
    data[200_000] ^= 1
    (tmp_path / "x.tb").write_bytes(data)
    with pytest.raises(tb.errors.CorruptError, match=r"x\.tb"):
        stats(tmp_path / "x.tb")


def test_memory_stays_small(tmp_path):
    size = 32 << 20
    steps = (np.arange(size // 4) // 64).astype(np.float32)
    tb.save({"w": steps.reshape(-1, 1024)}, tmp_path / "x.tb", compression="lz4")
    assert (tmp_path / "x.tb").stat().st_size < size // 4
    tracemalloc.start()
    try:
        found = stats(tmp_path / "x.tb")["w"]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.mean == (size // 4 // 64 - 1) / 2
    assert most < size // 2


def test_arguments():
    for bins in (0, -1, 2.5, True, 10**9):
        with pytest.raises(tb.errors.UsageError, match="bins"):
            stats([1.0], bins=bins)
    with pytest.raises(tb.errors.UsageError, match="goes with a file"):
        stats(np.zeros(3), format="npy")
    with pytest.raises(tb.errors.UnsupportedError):
        stats(object())
    with pytest.raises(tb.errors.UsageError, match="there is no tensor 'b'"):
        stats({"a": 1}, "b")


def test_no_framework_is_loaded(tmp_path):
    tb.save({"w": np.ones(9), "t": np.array(["a"], object)}, tmp_path / "x.tb")
    code = (
        "import sys; from tensorbytes.ops.statistics import stats; stats(sys.argv[1])\n"
        "print(sorted({'torch', 'tensorflow', 'jax', 'scipy', 'pyarrow'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "x.tb"], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_a_bomb_is_refused_as_it_is_when_loaded():
    path = CORPUS / "reject" / "tb" / "compressed-claims-16-gibibytes.bin"
    with pytest.raises(tb.errors.LimitError):
        tb.stats(path)
