"""Names out of files (catalogue 47 to 53), in every format that has names: opaque keys, whatever they look like."""

import os
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tests.support import torch_bytes
from tests.support.hostile_formats import NAMED, put, readings
from tests.support.tiers import deep_but
from tests.support.wire_bytes import field, framed, number, place, tensor
from tests.support.work import check_linear

PATHS = ["../../x", "/etc/passwd", "C:\\windows\\x", "\\\\host\\share\\x", "..", ".", "~/x", "a/../../b", "con"]
TWINS = ["\u00e9", "e\u0301", "a", "A", "\u0130", "i\u0307", "\ufb01", "fi", "\u212b", "\u00c5"]
ATTRIBUTES = ["__class__", "__proto__", "__dict__", "__init__", "constructor", "__import__('os')", "{0.__x__}", "%s%n"]
ODD = ["\x1b]0;x\x07", "\u202egpj.exe", "<script>alert(1)</script>", "a b", " ", "$(id)", "'; DROP x; --", "\U0001f600"]
# Formats in which a name ends at a zero byte, or may not hold one.
NO_ZERO = {"npz": "zero byte"}
LONG = 1_000_000
# A name in a ZIP archive has 16 bits for its length, and pyarrow's Parquet header has its own limit.
SHORT_NAMES = {"npz": 65_000, "parquet": 100_000}


def names_of(found):
    return list(found) if isinstance(found, dict) else [None]


def check(made, names, tmp_path):
    """Every way of reading gives these names, and makes nothing of them."""
    folder = tmp_path / "deep" / "inside"
    folder.mkdir(parents=True)
    found = readings(made, folder)
    for way, outcome in found.items():
        assert not isinstance(outcome, Exception), f"{way}: {outcome}"
        if way == "inspect":
            continue
        assert sorted(names_of(outcome)) == sorted(names), way
    beside = {path.name for path in folder.iterdir()}
    assert beside == {os.path.basename(put(made, folder)), *(f"x{suffix}" for suffix in made.beside)}
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["inside"]


@pytest.mark.parametrize("group", ["48 paths", "49 twins", "52 attributes", "odd"])
@pytest.mark.parametrize("format", NAMED)
def test_names_are_opaque_keys(format, group, tmp_path):
    names = {"48 paths": PATHS, "49 twins": TWINS, "52 attributes": ATTRIBUTES, "odd": ODD}[group]
    check(NAMED[format](names), names, tmp_path)


@pytest.mark.parametrize("format", NAMED)
def test_47_a_zero_byte_in_a_name(format, tmp_path):
    names = ["a\0b", "a\0c", "a"]
    if format in NO_ZERO:
        for outcome in readings(NAMED[format](names), tmp_path).values():
            assert isinstance(outcome, tb.errors.CorruptError)
        return
    check(NAMED[format](names), names, tmp_path)


@pytest.mark.parametrize("format", NAMED)
def test_52_names_set_no_attributes(format):
    """Nothing of what was loaded, nor of the library, is reached through a name."""
    before = dict(vars(tb.Tensor))
    made = NAMED[format](["__class__", "__dict__", "__module__"])
    if made.beside:
        pytest.skip("read by its path: test_names_are_opaque_keys")
    found = tb.loads(made.raw, made.format)
    assert type(found) is dict
    assert dict(vars(tb.Tensor)) == before


@pytest.mark.parametrize("format", NAMED)
def test_50_a_name_of_a_megabyte(format, tmp_path):
    names = ["n" * SHORT_NAMES.get(format, LONG), "m"]
    check(NAMED[format](names), names, tmp_path)


MANY = 1_200


@pytest.mark.parametrize("format", deep_but(["tb", "npz", "safetensors"], list(NAMED)))
def test_50_many_names_take_linear_time(format, tmp_path):
    """Steps are counted: see support/work.py."""

    def write(size):
        made = NAMED[format]([f"layer.{n}.weight" for n in range(size)])
        return put(made, tmp_path), made.format, size

    def read(written):
        path, own, size = written
        assert len(tb.load(path, own)) == size
        with tb.open(path, format=own) as file:
            assert len(file.keys()) == size

    check_linear(write, read, MANY // 4 if format not in ("arrow", "parquet") else MANY // 16)


@pytest.mark.parametrize("format", NAMED)
def test_50_the_number_of_names_has_a_limit(format, tmp_path):
    made = NAMED[format]([f"n{n}" for n in range(101)])
    for way, outcome in readings(made, tmp_path, tb.errors.Limits(max_tensors=100)).items():
        if format == "tb" and way in ("lazily", "inspect"):
            continue  # a frame is walked from record to record; its records are counted once they are joined
        assert isinstance(outcome, tb.errors.LimitError), f"{way}: {outcome!r}"
    for way, outcome in readings(made, tmp_path, tb.errors.Limits(max_tensors=101)).items():
        assert not isinstance(outcome, Exception), f"{way}: {outcome}"


@pytest.mark.parametrize("format", ["tb", "delimited"])
def test_40_a_name_of_two_records_is_not_guessed_at(format, tmp_path):
    path = put(NAMED[format](["a", "b", "a"]), tmp_path)
    with tb.open(path, format=format) as file:
        assert [entry.name for entry in file.entries()] == ["a", "b", "a"]
        with pytest.raises(KeyError, match="2 tensors are named 'a'"):
            file["a"]


@pytest.mark.deep
@pytest.mark.timeout(1800)  # minutes, most of them to make the file
@pytest.mark.parametrize("format", ["tb", "safetensors", "gguf", "onnx", "checkpoint"])
def test_50_a_million_names(format, tmp_path):
    count = 1_000_000 if tb.ACCELERATED else 50_000  # the reference kernel takes a tenth of a millisecond for each
    made = NAMED[format]([f"{n}" for n in range(count)])
    path = put(made, tmp_path)
    limits = tb.errors.Limits(max_bytes=1 << 33)  # a tensor takes some kilobytes, however small it is
    assert len(tb.load(path, made.format, limits=limits)) == count


@pytest.mark.parametrize("format", NAMED)
def test_40_a_name_twice_is_refused(format, tmp_path):
    if format == "checkpoint":
        pytest.skip("a sorted table: formats/test_checkpoint.py::test_hostile_tables[40 twice]")
    if format == "safetensors":
        pytest.skip("keys of JSON: hostile/test_json.py")
    if format in ("arrow", "parquet"):
        pytest.skip("tables may have such columns, which get numbers: formats/test_arrow.py, formats/test_parquet.py")
    made = NAMED[format](["a", "b", "a"])
    for way, outcome in readings(made, tmp_path).items():
        if format in ("tb", "delimited") and way in ("lazily", "inspect", "stats"):
            continue  # these list the records, which they tell apart; see below
        assert isinstance(outcome, tb.errors.CorruptError | tb.errors.UnsupportedError), f"{way}: {outcome!r}"


# ---- 53: names that collide -----------------------------------------------------


def test_53_text_is_hashed_with_a_secret():
    """Python's own: nobody who writes a file knows which names collide in the process that reads it."""
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        assert sys.flags.hash_randomization
    assert sys.hash_info.algorithm.startswith("siphash")


def keyed(keys):
    """A dict under integers."""
    one = tensor(9, (), field(4, bytes(8)))
    steps = [field(1002, number(2, key * 2 if key >= 0 else -key * 2 - 1)) for key in keys]
    return framed(*(one + step + place(n, len(keys)) for n, step in enumerate(steps)))


def pickled(keys):
    """The same in a PyTorch file."""
    items = b"".join(torch_bytes.number(key) + b"K\1" for key in keys)
    return torch_bytes.archive(torch_bytes.whole(b"}(" + items + b"u"), ())


PRIME = (1 << 61) - 1  # integers that differ by it have the same hash in Python


@pytest.mark.timeout(60)  # a dict of 100 000 such integers takes minutes
def test_53_integers_of_one_hash():
    """Few of them have 64 bits; larger ones, of which there are any number, are refused."""
    same = [n * PRIME + 1 for n in range(-4, 4)]
    assert {hash(n) for n in same} == {hash(1), hash(1 - PRIME)}
    assert list(tb.loads(keyed(same))) == same
    assert list(tb.loads(pickled(same))) == same

    def make(count):
        return pickled(n * PRIME + 1 for n in range(count))

    def refuse(raw):
        with pytest.raises(tb.errors.UnsupportedError, match="64-bit integers"):
            tb.loads(raw)

    check_linear(make, refuse, 5_000)
    refuse(make(100_000))


@pytest.mark.parametrize("shift", [0, 20, 45])
def test_53_integers_that_share_their_low_bits(shift):
    def read(made):
        keys, raw = made
        assert list(tb.loads(raw)) == keys

    keys = [n << shift for n in range(4_000)]
    check_linear(lambda n: (keys[:n], pickled(keys[:n])), read, 1_000)
    check_linear(lambda n: (keys[:n], keyed(keys[:n])), read, 125)


def test_names_of_numpy_arrays_in_an_archive_are_names(tmp_path):
    """A round trip of every odd name through each format that we write."""
    names = [*PATHS, *TWINS, *ATTRIBUTES, *ODD]
    for format in ("tb", "npz", "safetensors", "arrow", "parquet", "torchfile"):
        path = tmp_path / f"x{tb.formats.get(format).suffixes[0]}"
        tb.save({name: np.arange(3.0) for name in names}, path, format)
        assert sorted(tb.load(path, format)) == sorted(names)
    assert len(list(tmp_path.iterdir())) == 6
