"""What is compressed, and how: the options by name, and the choice of "auto" beside the best there is."""

import io
import itertools

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes
from tensorbytes.codecs import choice, chunked
from tensorbytes.codecs.pipelines import BYTES, Pipeline, elements_of
from tests.support.compressed_bytes import CODECS, stored
from tests.support.wire_bytes import records

MODEL = {
    "embed": np.arange(4000) % 90,
    "layer": {"weight": np.round(np.random.default_rng(0).normal(size=999), 1), "bias": np.zeros(999)},
    "note": np.array(["word"] * 300),
    "few": np.arange(3),
}


def ways(obj, **options):
    """name: how it is compressed, of what is."""
    with tb.open(io.BytesIO(tb.dumps(obj, **options))) as file:
        return {name: entry.stored.compression for name, entry in file.items() if entry.stored}


# ---- options ----------------------------------------------------------------


def test_one_pipeline_for_all():
    assert ways(MODEL) == {}
    assert ways(MODEL, compression=None) == {}
    assert ways(MODEL, compression={}) == {}
    assert ways(MODEL, compression={"*": None}) == {}
    every = dict.fromkeys(["embed", "layer/weight", "layer/bias", "note"], "zstd")
    assert ways(MODEL, compression="zstd") == ways(MODEL, compression="zstd:19") == every
    assert ways(MODEL, compression="delta+pack") == {"embed": "delta+pack"}
    assert ways(MODEL, compression="split+zstd") == {**every, "embed": "shuffle+zstd", "layer/weight": "split+zstd",
                                                     "layer/bias": "split+zstd"}  # fmt: skip


def test_the_first_pattern_that_matches_counts():
    rules = {"layer/bias": None, "layer/*": "split+huffman", "embed": "pack", "*": "gzip"}
    assert ways(MODEL, compression=rules) == {"layer/weight": "split+huffman", "embed": "pack", "note": "gzip"}
    assert ways(MODEL, compression={"*": "gzip", "embed": "pack"})["embed"] == "gzip"
    assert ways(MODEL, compression={"e*d": "pack"}) == {"embed": "pack"}
    assert ways(MODEL, compression={"[en]*": "zstd"}) == {"embed": "zstd", "note": "zstd"}
    assert ways({"Embed": MODEL["embed"]}, compression={"?mbed": "zstd"}) == {"Embed": "zstd"}
    # Names that options of quantize= have as well.
    assert ways({"dtype": MODEL["embed"]}, compression={"dtype": "pack"}) == {"dtype": "pack"}
    assert ways({"max_error": MODEL["embed"]}, compression={"max_error": "pack"}) == {"max_error": "pack"}


def test_one_tensor_by_its_name():
    for format in ("tb", "protobuf", "delimited"):
        raw = tb.dumps(MODEL["embed"], format, name="embed", compression={"embed": "pack"})
        assert len(raw) < MODEL["embed"].nbytes / 4
        with pytest.raises(tb.errors.UsageError, match="no tensor has a name like 'embd'; there are 'embed'"):
            tb.dumps(MODEL["embed"], format, name="embed", compression={"embd": "pack"})


@pytest.mark.parametrize("format", ["tb", "delimited"])
def test_a_pattern_that_matches_nothing_is_refused(tmp_path, format):
    for rules in ({"layers/*": "zstd"}, {"embed": "pack", "Note": "zstd"}):
        for write in (
            lambda options: tb.dumps(MODEL, format, **options),
            lambda options: tb.save(MODEL, tmp_path / "x", format, **options),
            lambda options: b"".join(tb.buffers(MODEL, format, **options)),
        ):
            with pytest.raises(tb.errors.UsageError, match="no tensor has a name like"):
                write({"compression": rules})
    assert not (tmp_path / "x").exists()


def test_patterns_in_a_conversion(tmp_path):
    tb.save(MODEL["layer"], tmp_path / "x.safetensors")
    tb.convert(tmp_path / "x.safetensors", tmp_path / "x.tb", compression={"weight": "split+zstd"})
    with tb.open(tmp_path / "x.tb") as file:
        assert file["weight"].stored.compression == "split+zstd"
        assert file["bias"].stored is None
    with pytest.raises(tb.errors.UsageError, match="no tensor has a name like 'wait'"):
        tb.convert(tmp_path / "x.safetensors", tmp_path / "y.tb", compression={"wait": "zstd"})
    assert not (tmp_path / "y.tb").exists()


WRONG = {
    "an unknown codec": ("zsdt", "did you mean 'zstd'"),
    "capitals": ("ZSTD", "did you mean 'zstd'"),
    "nothing": ("", "a step without a name"),
    "a filter alone that saves nothing": ("delta", "expected"),
    "filters in another order": ("shuffle+delta", "out of place: delta comes first"),
    "two layouts": ("split+pack", "out of place"),
    "a codec before a filter": ("zstd+shuffle", "expected"),
    "two codecs": ("zstd+lz4", "expected"),
    "auto with more": ("auto+zstd", "unknown codec"),
    "no level": ("zstd:", "the level must be a number"),
    "a level in words": ("zstd:high", "the level must be a number"),
    "a negative level": ("zstd:-1", "the level must be a number"),
    "a level of many digits": ("zstd:" + "1" * 5000, "the level must be a number"),
    "a level below": ("zstd:0", "from 1 to 22"),
    "a level above": ("zstd:23", "from 1 to 22"),
    "a level of gzip": ("gzip:10", "from 1 to 9"),
    "a level of what has none": ("lz4:1", "none"),
    "a level of our own": ("huffman:3", "none"),
    "a number": (3, "expected text"),
    "bytes": (b"zstd", "expected text"),
    "a list": (["zstd"], "expected text"),
    "True": (True, "expected text"),
    "a pattern that is a number": ({1: "zstd"}, "expected patterns"),
    "a wrong one among the right ones": ({"embed": "pack", "*": "zsdt"}, "did you mean"),
    "a wrong one for a pattern": ({"*": 5}, "expected text"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_refused_by_every_writer(tmp_path, case):
    asked, words = WRONG[case]
    for write in (
        lambda: tb.dumps(MODEL, compression=asked),
        lambda: tb.dumps(np.arange(3), "protobuf", compression=asked),
        lambda: tb.dumps(MODEL, "delimited", compression=asked),
        lambda: tb.save(MODEL, tmp_path / "x.tb", compression=asked),
        lambda: tb.open(tmp_path / "x.tb", "w", compression=asked),
    ):
        with pytest.raises(tb.errors.UsageError, match=words):
            write()
    assert list(tmp_path.iterdir()) == []


def test_formats_without_compression_say_so(tmp_path):
    for format in ("raw", "safetensors", "tensorproto", "npy"):
        with pytest.raises(tb.errors.UsageError, match="compression"):
            tb.dumps(np.arange(3), format, compression="zstd")
    with pytest.raises(tb.errors.UsageError, match="compression"):
        tb.loads(tb.dumps(MODEL, compression="zstd"), compression="zstd")


@pytest.mark.parametrize("level", [1, 2, 9, 22])
def test_levels_are_no_part_of_the_file(level):
    words = np.array([f"word {n * n % 97}" for n in range(3000)])
    (payload,) = records(tb.dumps(words, compression=f"zstd:{level}"))
    assert stored(payload).pipeline == "zstd"
    assert tb.loads(tb.dumps(words, compression=f"zstd:{level}")).tolist() == words.tolist()


def test_what_gains_nothing_stays_raw():
    noise = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
    for text in (*CODECS, "auto", "pack", "delta+pack"):
        assert tb.dumps(noise, compression=text) == tb.dumps(noise)
    for x in (np.arange(2), np.float64(3), np.empty((0, 9)), np.array(["a"])):
        assert tb.dumps(x, compression="zstd") == tb.dumps(x)


# ---- auto -------------------------------------------------------------------

MEBI = 1 << 20
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(0, 0.02, MEBI // 2)
TOKENS = RNG.permutation(50257)[np.minimum(RNG.zipf(1.2, MEBI // 2), 50256)]
WAVES = np.add.outer(np.sin(np.arange(1024) / 50), np.cos(np.arange(1024) / 30))
IMAGE = (WAVES * 60 + 128 + RNG.normal(0, 3, WAVES.shape)).clip(0, 255).astype(np.uint8)
WORDS = [bytes(RNG.integers(97, 123, RNG.integers(2, 9), np.uint8)) for _ in range(3000)]
DATA = {
    "weights in bfloat16": WEIGHTS.astype(ml_dtypes.bfloat16),
    "weights in float16": WEIGHTS.astype(np.float16),
    "weights in float32": WEIGHTS.astype(np.float32),
    "weights in float64": WEIGHTS[: MEBI // 4],
    "weights in float8": np.tile(WEIGHTS, 2).astype(ml_dtypes.float8_e4m3fn),
    "weights of bfloat16 in float32": WEIGHTS.astype(ml_dtypes.bfloat16).astype(np.float32),
    "pruned weights": (WEIGHTS * (RNG.random(len(WEIGHTS)) < 0.1)).astype(np.float32),
    "moments": (WEIGHTS**2).astype(np.float32),
    "activations": np.maximum(RNG.normal(size=MEBI // 2), 0).astype(np.float32),
    "half zeros": np.concatenate([np.zeros(MEBI // 4), WEIGHTS[: MEBI // 4]]).astype(np.float32),
    "complex": (WEIGHTS + 1j * WEIGHTS[::-1]).astype(np.complex64),
    "tokens in int64": TOKENS.astype(np.int64),
    "tokens in int32": TOKENS.astype(np.int32),
    "tokens in uint16": (TOKENS % 50000).astype(np.uint16),
    "sorted ids": np.cumsum(RNG.integers(1, 30, MEBI // 4)),
    "counters": np.arange(MEBI // 4) + RNG.integers(0, 2, MEBI // 4),
    "positions": np.tile(np.arange(2048), 128),
    "times": (1_600_000_000_000_000_000 + np.cumsum(RNG.integers(9_000_000, 11_000_000, MEBI // 4))).view("M8[ns]"),
    "a mask": RNG.random(MEBI) < 0.1,
    "an even mask": RNG.random(MEBI) < 0.5,
    "a causal mask": np.tril(np.ones((1100, 1100), bool)),
    "rare ones": (RNG.random(MEBI // 4) < 0.0001).astype(np.int64),
    "labels": RNG.integers(0, 10, MEBI // 2).astype(np.int32),
    "labels in bytes": RNG.integers(0, 100, MEBI).astype(np.uint8),
    "small integers": RNG.integers(0, 1000, MEBI // 4),
    "large integers": RNG.integers(0, 1 << 40, MEBI // 4),
    "quantized weights": (WEIGHTS * 1500).round().clip(-127, 127).astype(np.int8).repeat(2),
    "four bits": (WEIGHTS * 120).round().clip(-8, 7).astype(ml_dtypes.int4).repeat(2),
    "sound": (np.sin(np.arange(MEBI // 2) / 20) * 8000 + RNG.normal(0, 50, MEBI // 2)).astype(np.int16),
    "a smooth field": WAVES.astype(np.float32),
    "a noisy field": (WAVES + RNG.normal(0, 0.01, WAVES.shape)).astype(np.float32),
    "rounded numbers": np.round(RNG.normal(size=MEBI // 4), 2),
    "an image": IMAGE,
    "colours": np.stack([IMAGE, IMAGE, 255 - IMAGE], -1)[:700],
    "an image in floats": (IMAGE / 255).astype(np.float32)[:512],
    "one-hot": np.eye(256, dtype=np.float32)[RNG.integers(0, 256, 1100)],
    "zeros": np.zeros(MEBI // 4, np.float32),
    "zeros in int64": np.zeros(MEBI // 8, np.int64),
    "text": b" ".join(WORDS[n] for n in np.minimum(RNG.zipf(1.3, 250_000), 2999)),
    "random bytes": RNG.integers(0, 256, MEBI, np.uint8),
    "random bits in float32": RNG.integers(0, 1 << 32, MEBI // 4, np.uint32).view(np.float32),
    "random bits in int64": RNG.integers(0, 1 << 63, MEBI // 8, np.int64) * 2 + RNG.integers(0, 2, MEBI // 8),
}  # fmt: skip
EVERY = [
    "+".join(filter(None, steps))
    for steps in itertools.product(("", "delta"), ("", "shuffle", "split", "pack"), ("", *CODECS, "zstd:1"))
    if steps[1] or steps[2]
]


def size_by(pipeline, data, elements):
    made = pipeline and chunked.compress(data, pipeline, elements)
    return len(data) if made is None else int(made[0].sizes.sum()) + 8 * len(made[0].sizes)


@pytest.mark.skipif(not tb.ACCELERATED, reason="both kernels write the same, as formats/test_compressed_frame.py shows")
@pytest.mark.parametrize("name", DATA)
@pytest.mark.deep
def test_auto_is_within_three_percent_of_the_best(name):
    x = DATA[name]
    if isinstance(x, bytes):
        data, elements = memoryview(x), BYTES
    else:
        kind = "datetime64" if x.dtype.kind == "M" else x.dtype.name
        data, elements = memoryview(x.reshape(-1).view(np.uint8)), elements_of(dtypes.get(kind))
    assert len(data) >= MEBI
    chosen = choice.choose(data, elements)
    fitted = {Pipeline.parse(text).fitted(elements) for text in EVERY} - {None}
    sizes = {pipeline: size_by(pipeline, data, elements) for pipeline in fitted}
    best = min(sizes, key=sizes.get)
    if "random" in name:
        assert chosen is None
        assert sizes[best] > 0.98 * len(data)
    else:
        # Where next to nothing is left, a thousandth of the tensor is not worth a look.
        assert size_by(chosen, data, elements) <= 1.03 * sizes[best] + len(data) / 1000, (chosen.text, best.text)


def test_auto_of_small_and_odd_tensors():
    for x in (
        np.zeros(10),
        np.arange(300),
        np.array(["text"] * 900),
        np.zeros((5, 0)),
        MODEL["embed"][::-1],
        np.array(5),
    ):
        assert tb.loads(tb.dumps(x, compression="auto")).tolist() == x.tolist()
    assert ways({"x": np.arange(30)}, compression="auto") == {}
    assert ways({"x": np.zeros(4000)}, compression="auto") == {"x": "huffman"}
    assert ways({"x": np.array(["word"] * 900)}, compression="auto") == {"x": "zstd"}


def test_a_sample_of_zeros_is_no_tensor_of_zeros():
    x = np.zeros(MEBI // 2, np.int64)
    x[::5001] = np.arange(len(x[::5001])) % 7
    found = tb.dumps({"x": x}, compression="auto")
    assert len(found) < x.nbytes / 500
    assert np.array_equal(tb.loads(found)["x"], x)


# ---- what was chosen before ---------------------------------------------------


def counting(monkeypatch):
    """How often a tensor was looked at in full."""
    calls, before = [], choice._choose
    monkeypatch.setattr(choice, "_choose", lambda *args: calls.append(1) or before(*args))
    return calls


def layers(count, seed=0, scale=0.02, dtype=np.float32):
    random = np.random.default_rng(seed)
    return {f"{k}.{seed}": random.normal(0, scale, 40_000).astype(dtype) for k in range(count)}


def test_like_tensors_of_a_file_are_chosen_for_once(monkeypatch):
    calls = counting(monkeypatch)
    model = layers(9) | layers(9, 1, dtype=ml_dtypes.bfloat16)
    made = ways(model, compression="auto")
    assert set(made.values()) == {"split+huffman"}
    assert len(made) == 18
    assert len(calls) == 2  # one for each dtype


def test_a_tensor_unlike_the_others_is_chosen_for_by_itself(monkeypatch):
    calls = counting(monkeypatch)
    smooth = np.sin(np.arange(40_000) / 1e4).astype(np.float32)
    model = {"a": layers(1)["0.0"], "b": smooth, "c": np.repeat(np.arange(40.0, dtype=np.float32), 1000), "d": smooth}
    alone = {name: ways({name: x, "few": np.arange(3)}, compression="auto").get(name) for name, x in model.items()}
    del calls[:]
    assert ways(model, compression="auto") == alone
    assert len(calls) == 3


def test_nothing_is_remembered_from_one_file_to_the_next(monkeypatch):
    calls = counting(monkeypatch)
    one, two = layers(2), layers(2, 1)
    before = tb.dumps(two, compression="auto")
    tb.dumps(one, compression="auto")
    assert tb.dumps(two, compression="auto") == before
    assert len(calls) == 3


def test_what_is_kept_of_choices_is_bounded():
    known, elements = choice.Choices(), elements_of(dtypes.get("float32"))
    for seed in range(60):
        x = np.random.default_rng(seed).normal(0, 1, 4000).astype(np.float32)
        x[: 60 * seed] = 0
        choice.choose(memoryview(x).cast("B"), elements, known)
    assert len(known._made[elements]) <= choice._MOST_CHOICES
