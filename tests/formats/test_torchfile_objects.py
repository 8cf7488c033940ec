"""Torch files with objects that are not read: listed, refused by name, left out on demand, and never made."""

import argparse
import collections
import datetime
import enum
import os
import pathlib
import pickle
import struct

import numpy as np
import pytest
import torch

import tensorbytes as tb
from tests.support.tiers import deep_but
from tests.support.torch_bytes import archive, name, number, numbers, saved, tensor, text, whole


class Colour(enum.Enum):
    RED = 1


class Config(dict):
    """As configurations are: a dict with more to it."""


OBJECTS = {
    "args": (argparse.Namespace(lr=0.1, w=torch.ones(2)), "argparse.Namespace"),
    "path": (pathlib.PurePosixPath("x"), "pathlib.PurePosixPath"),
    "set": ({1, 2}, "set"),
    "frozenset": (frozenset([1]), "frozenset"),
    "member": (Colour.RED, f"{__name__}.Colour"),
    "config": (Config(a=torch.ones(2)), f"{__name__}.Config"),
    "when": (datetime.datetime(2020, 1, 2), "datetime.datetime"),
    "queue": (collections.deque([1]), "collections.deque"),
    "class": (torch.nn.ReLU, "torch.nn.modules.activation.ReLU"),
    "module": (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
    "keys": ({(1, 2): 3, "a": 4}, "dict"),
    "objects": (np.array([{}], object), "numpy.ndarray"),
    "fields": (np.zeros(2, "i4,f4"), "numpy.ndarray"),
    "records": (np.recarray((2,), "i4,f4"), "numpy.rec.recarray"),
    "dtype": (np.dtype("f4"), "numpy.dtype"),
}
WAYS = {
    "zip": {},
    "protocol 4": {"pickle_protocol": 4},
    "protocol 5": {"pickle_protocol": 5},
    "before 1.6": {"_use_new_zipfile_serialization": False},
}


@pytest.fixture(params=WAYS)
def way(request):
    return WAYS[request.param]


@pytest.mark.parametrize("case", OBJECTS)
def test_an_object_hides_nothing_else(case, way, tmp_path):
    odd, what = OBJECTS[case]
    torch.save(
        {"w": torch.arange(3), case: odd, "list": [1.5, odd, "x"], "inner": {"odd": odd}}, tmp_path / "x.pt", **way
    )
    found = {tensor.name: tensor for tensor in tb.inspect(tmp_path / "x.pt").tensors}
    assert list(found) == ["w", case, "list/0", "list/1", "list/2", "inner/odd"]
    assert [found[case].kind, found[case].dtype] == ["object", what]
    rows = [line.split() for line in str(tb.inspect(tmp_path / "x.pt")).splitlines()]
    assert [case, what, "not", "read"] in rows
    with tb.open(tmp_path / "x.pt") as file:
        assert file["w"].load().tolist() == [0, 1, 2]
        assert file[case].kind == "object"
        for read in (file[case].load, lambda: file[case][:1], lambda: np.asarray(file[case])):
            with pytest.raises(tb.errors.UnsupportedError, match=f"at '{case}'"):
                read()
    for mmap in (False, True):
        with pytest.raises(tb.errors.UnsupportedError, match=rf"at '{case}'.*objects='skip'"):
            tb.load(tmp_path / "x.pt", mmap=mmap)
        got = tb.load(tmp_path / "x.pt", mmap=mmap, objects="skip")
        assert got.pop("w").tolist() == [0, 1, 2]
        assert got == {"list": [1.5, None, "x"], "inner": {}}
    assert tb.load(tmp_path / "x.pt", names=["w"])["w"].tolist() == [0, 1, 2]


def test_the_refusal_counts_and_names_the_first():
    with pytest.raises(tb.errors.UnsupportedError) as caught:
        tb.loads(saved({"w": torch.ones(1), "a": argparse.Namespace(), "b": [{1}, {2}]}))
    words = str(caught.value)
    assert "'argparse.Namespace' at 'a', and 2 more objects: " in words
    assert "(byte " in words
    assert "and 2 more objects" in words
    assert "objects='skip'" in words


def test_nothing_but_an_object_is_refused_in_any_case():
    data = saved(torch.nn.Linear(1, 1))
    for options in ({}, {"objects": "skip"}):
        with pytest.raises(tb.errors.UnsupportedError, match=r"torch\.nn\.modules\.linear\.Linear.*state_dict"):
            tb.loads(data, **options)


def test_the_option_is_checked():
    with pytest.raises(tb.errors.UsageError, match="'skip'"):
        tb.loads(saved([1]), objects="drop")
    assert tb.loads(saved([1]), objects="refuse") == [1]


def test_tensors_that_are_not_read_are_objects_too(tmp_path):
    odd = torch.ones(2)
    odd.scale = 3
    torch.save({"w": torch.ones(1), "odd": odd, "meta": torch.ones(2, device="meta")}, tmp_path / "x.pt")
    assert [entry.kind for entry in tb.open(tmp_path / "x.pt").entries()] == ["tensor", "object", "object"]
    assert list(tb.load(tmp_path / "x.pt", objects="skip")) == ["w"]


def test_dicts_of_other_kinds_are_dicts(way):
    counted = collections.Counter("aab")
    grouped = collections.defaultdict(list, {"a": [1, 2], "b": []})
    got = tb.loads(saved({"c": counted, "d": grouped, "e": collections.defaultdict(None)}, **way))
    assert got == {"c": {"a": 2, "b": 1}, "d": {"a": [1, 2], "b": []}, "e": {}}


CODES = ["b1", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16"]
ARRAYS = {
    **{code: np.arange(6).astype(code).reshape(2, 3) for code in CODES},
    "big-endian": np.arange(3, dtype=">i4"),
    "Fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "transposed": np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0),
    "strided": np.arange(10)[::3],
    "NaN": np.array([0x7FF8000000000123], np.uint64).view(float),
    "0-d": np.array(5),
    "empty": np.zeros((0, 3)),
    "text": np.array([["a", "bcd"], ["", "é"]]),
    "bytes": np.array([b"a", b"bc"]),
    "times": np.array([1, 2], "M8[10s]"),
    "spans": np.array([3], "m8[ns]"),
    "float64": np.float64(1.5),
    "float32": np.float32(1.5),
    "int64": np.int64(-3),
    "bool": np.bool_(True),
    "complex": np.complex64(1 - 2j),
    "str": np.str_("word"),
    "time": np.datetime64(7, "D"),
}  # fmt: skip


@pytest.mark.parametrize("case", ARRAYS)
def test_numpy_is_read_as_it_was(case, way, tmp_path):
    x = ARRAYS[case]
    torch.save({"x": x, "again": [x, torch.ones(1)]}, tmp_path / "x.pt", **way)
    for got in (tb.load(tmp_path / "x.pt"), tb.load(tmp_path / "x.pt", mmap=True)):
        for y in (got["x"], got["again"][0]):
            assert type(y) is type(x)
            assert (y.shape, y.dtype) == (x.shape, x.dtype.newbyteorder("="))
            assert y.tobytes() == np.ascontiguousarray(x.astype(y.dtype)).tobytes()
    assert tb.open(tmp_path / "x.pt")["x"].load().tolist() == x.tolist() or case == "NaN"


def test_the_state_of_numpys_generator(way):
    state = np.random.RandomState(3).get_state()
    got = tb.loads(saved({"rng": state, "w": torch.ones(1)}, **way))["rng"]
    other = np.random.RandomState()
    other.set_state(got)
    assert other.randint(1 << 30) == np.random.RandomState(3).randint(1 << 30)


# ---- other verbs ------------------------------------------------------------


def checkpoint(path):
    model = torch.nn.Linear(2, 1)
    odd = {"args": argparse.Namespace(lr=0.1), "steps": [1.0, {2}, torch.ones(1)], "of": {"only": {3}}}
    torch.save({"model": model.state_dict(), **odd}, path)
    return model.state_dict()


@pytest.mark.parametrize("suffix", ["tb", "npz", "pt", "safetensors"])
def test_converting_leaves_them_out_when_told(suffix, tmp_path):
    state = checkpoint(tmp_path / "x.pt")
    target = tmp_path / f"y.{suffix}"
    with pytest.raises(tb.errors.LossError, match=r"args.*argparse\.Namespace") as caught:
        tb.convert(tmp_path / "x.pt", target)
    assert (caught.value.feature, len(caught.value.losses)) == ("objects", 3)
    assert not target.exists()
    report = tb.convert(tmp_path / "x.pt", target, allow="objects", verify=True)
    assert [(loss.name, loss.feature) for loss in report.losses] == [
        ("args", "objects"), ("steps/1", "objects"), ("of/only", "objects"),
    ]  # fmt: skip
    got = tb.load(target, to="torch")
    assert torch.equal(got["model"]["weight"], state["weight"])
    assert got["steps"][:2] == [1.0, None]
    assert got["of"] == {}


def test_converting_what_was_chosen_loses_nothing(tmp_path):
    checkpoint(tmp_path / "x.pt")
    assert tb.convert(tmp_path / "x.pt", tmp_path / "y.npz", names="model/*").lossless


def test_versions_of_modules_are_no_loss(tmp_path):
    state = torch.nn.Linear(2, 1).state_dict()
    torch.save(state, tmp_path / "x.pt")
    report = tb.convert(tmp_path / "x.pt", tmp_path / "{name}.npy", verify=True)
    assert report.lossless
    assert np.load(tmp_path / "weight.npy").tolist() == state["weight"].tolist()
    assert tb.convert(tmp_path / "x.pt", tmp_path / "w.bin", "raw", names=["weight"]).lossless
    assert "_metadata" not in str(tb.inspect(tmp_path / "x.pt"))
    assert "torch._metadata" in tb.inspect(tmp_path / "x.pt").to_dict()["origin"]
    tb.convert(tmp_path / "x.pt", tmp_path / "y.pt")
    assert torch.load(tmp_path / "y.pt", weights_only=True)._metadata == state._metadata


def test_statistics_of_the_rest(tmp_path):
    checkpoint(tmp_path / "x.pt")
    assert {"model/weight", "model/bias"} < tb.stats(tmp_path / "x.pt").keys()


# ---- hostile ----------------------------------------------------------------


class Reduce:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_runs_whoever_reads(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    evil = {
        "w": 1.5,
        "system": Reduce(os.system, ("touch executed",)),
        "eval": [Reduce(eval, ("open('executed', 'w')",))],
        "state": Reduce(Reduce, (), {"a": Reduce(os.mkdir, ("executed",))}),
        "deep": Reduce(getattr, (Reduce(__import__, ("os",)), "system")),
    }
    sentinel = pickle.dumps(Reduce(os.mkdir, ("executed",)))
    pickle.loads(sentinel)
    assert os.listdir() == ["executed"]  # so it would show
    os.rmdir("executed")
    (tmp_path / "x.pt").write_bytes(archive(pickle.dumps(evil, protocol)))
    kinds = {entry.name: entry.dtype for entry in tb.open("x.pt").entries()}
    assert kinds["system"] in ("posix.system", "nt.system")
    assert tb.load("x.pt", objects="skip") == {"w": 1.5, "eval": [None]}
    str(tb.inspect("x.pt"))
    tb.convert("x.pt", "y.tb", allow="objects")
    with pytest.raises(tb.errors.UnsupportedError):
        tb.load("x.pt")
    assert sorted(os.listdir()) == ["x.pt", "y.tb"]


def test_names_that_would_steer_a_terminal(tmp_path):
    body = b"}(" + text("a") + name("m\x1b[31m", "C\r\x07") + b")R" + text("w") + tensor() + b"u"
    (tmp_path / "x.pt").write_bytes(archive(whole(body)))
    told = str(tb.inspect(tmp_path / "x.pt")) + tb.open(tmp_path / "x.pt")["a"].dtype
    with pytest.raises(tb.errors.UnsupportedError) as caught:
        tb.load(tmp_path / "x.pt")
    assert (told + str(caught.value)).replace("\n", "").isprintable()
    assert r"m\x1b[31m.C" in told


@pytest.mark.parametrize("size", [255, 256, 300, 1 << 20])
def test_huge_names(size):
    for spelled in (name("m" * size, "C"), text("m") + text("C" * size) + b"\x93"):
        with pytest.raises((tb.errors.CorruptError, tb.errors.UnsupportedError)) as caught:
            tb.loads(archive(whole(b"]" + spelled + b"a")))
        assert len(str(caught.value)) < 1000


def recall(place):
    return b"j" + struct.pack("<I", place)


MUCH = {
    "names": b"](" + b"".join(text(f"{n:0120}") + b"r" + struct.pack("<I", n) for n in range(200))
    + b"".join(recall(a) + recall(b) + b"\x93" for a in range(200) for b in range(200)) + b"e",
    "texts of arrays": b"](" + text("x" * 100_000) + b"q\x00" + name("numpy", "dtype") + text("S1") + b"\x89\x88\x87R("
    + number(3) + text("|") + b"NNN" + number(1) + number(1) + number(0) + b"tbq\x01"
    + name("_codecs", "encode") + b"h\x00" + text("latin1") + b"\x86Rq\x02"
    + b"".join(name("numpy._core.numeric", "_frombuffer") + b"(h\x02h\x01" + numbers(100_000) + text("C") + b"tR"
               for _ in range(20_000)) + b"e",
}  # fmt: skip


@pytest.mark.parametrize("case", deep_but([case for case in MUCH if case != "texts of arrays"], [*MUCH]))
def test_little_does_not_become_much(case):
    for options in ({}, {"objects": "skip"}):
        with pytest.raises(tb.errors.LimitError):
            tb.loads(archive(whole(MUCH[case])), "torchfile", **options)


def test_text_that_is_recalled_is_encoded_once():
    """A megabyte, twenty thousand times."""
    call = name("_codecs", "encode") + b"q\x00" + text("x" * (1 << 20)) + b"q\x01" + text("latin1") + b"\x86q\x02"
    body = b"](" + call + b"R" + b"h\x00h\x02R" * 20_000 + b"e"
    with pytest.raises(tb.errors.LimitError):
        tb.loads(archive(whole(body)), "torchfile")


def test_pairs_that_are_recalled_are_counted():
    pairs = b"](" + b"".join(text(f"{n}") + b"N\x86" for n in range(20_000)) + b"e\x85q\x00"
    call = name("collections", "OrderedDict") + b"q\x01h\x00R"
    body = b"](" + pairs + call + b"h\x01h\x00R" * 20_000 + b"e"
    with pytest.raises(tb.errors.LimitError):
        tb.loads(archive(whole(body)), "torchfile", limits=tb.errors.Limits(max_bytes=1 << 26))


DTYPE = name("numpy", "dtype") + text("i8") + b"\x89\x88\x87R"
STATE = b"(" + number(3) + text("<") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
EMPTY = name("numpy._core.multiarray", "_reconstruct") + name("numpy", "ndarray") + numbers(0) + b"C\x01b\x87R"
BUFFER = name("numpy._core.numeric", "_frombuffer") + b"(C\x08abcdefgh" + DTYPE + STATE


def array(shape=(1,), kind=DTYPE + STATE, fortran=b"\x89", raw=b"C\x08abcdefgh"):
    return EMPTY + b"(" + number(1) + numbers(*shape) + kind + fortran + raw + b"tb"


def test_the_array_that_the_cases_change():
    assert tb.loads(archive(whole(array()))).tobytes() == b"abcdefgh"
    assert tb.loads(archive(whole(BUFFER + numbers(1) + text("C") + b"tR"))).tobytes() == b"abcdefgh"


CORRUPT = {
    "no state": EMPTY,
    "two states": array() + b"(" + number(1) + numbers(1) + DTYPE + STATE + b"\x89C\x08abcdefghtb",
    "a dtype without a state": array(kind=DTYPE),
    "a dtype with two": array(kind=DTYPE + STATE + STATE),
    "too few bytes": array(raw=b"C\x07abcdefg"),
    "too many bytes": array(shape=(0,)),
    "a shape below zero": array(shape=(-1,)),
    "a shape of 2^62": array(shape=(1 << 62,)),
    "no bytes": array(raw=b"N"),
    "no dtype": array(kind=b"N"),
    "an order that is none": array(fortran=b"N"),
    "a byte order that is none": array(kind=DTYPE + STATE.replace(text("<"), text("x"))),
    "text of another size": array(kind=DTYPE.replace(b"i8", b"U2") + STATE),
    "bytes that are not valid bools": array(shape=(8,), kind=DTYPE.replace(b"i8", b"b1") + STATE),
    "another array's class": EMPTY.replace(name("numpy", "ndarray"), b"N"),
    "axes that are none": BUFFER + numbers(1) + text("K") + numbers(1) + b"tR",
    "axes twice": BUFFER + numbers(1, 1) + text("K") + numbers(0, 0) + b"tR",
    "an order of letters": BUFFER + numbers(1) + text("Z") + b"tR",
    "an array as a storage": name("torch._utils", "_rebuild_parameter") + b"(" + array() + b"\x89}tR",
    "a Counter of a list": name("collections", "Counter") + b"]\x85R",
}  # fmt: skip


@pytest.mark.parametrize("case", CORRUPT)
def test_corrupt_arrays(case):
    data = archive(whole(b"}" + text("a") + CORRUPT[case] + b"s"))
    with pytest.raises(tb.errors.CorruptError):
        tb.loads(data, "torchfile")
    with pytest.raises(tb.errors.CorruptError):
        tb.loads(data, "torchfile", objects="skip")


def test_every_flip_of_a_bit():
    """Ours, or a sound reading: what is tested is that nothing else is raised."""
    good = bytearray(pickle.dumps({"a": np.arange(3), "b": np.float32(1), "c": argparse.Namespace(x=[1]), "d": {1}}, 4))
    outcomes = set()
    for at in range(len(good)):
        for bit in range(8):
            good[at] ^= 1 << bit
            try:
                outcomes.add(type(tb.loads(archive(bytes(good)), "torchfile", objects="skip")))
            except (tb.errors.CorruptError, tb.errors.UnsupportedError, tb.errors.LimitError) as error:
                outcomes.add(type(error))
            good[at] ^= 1 << bit
    assert {tb.errors.CorruptError, dict} < outcomes


def test_sequences_of_dtypes_stay_what_they_are_when_written_again(tmp_path):
    found = {"a": (torch.float32, torch.int8), "b": [torch.float32, 3], "c": ((torch.bool,),)}
    torch.save(found, tmp_path / "x.pt")
    names = {"a": ("torch.float32", "torch.int8"), "b": ["torch.float32", 3], "c": (("torch.bool",),)}
    assert tb.load(tmp_path / "x.pt") == names
    tb.convert(tmp_path / "x.pt", tmp_path / "y.pt")
    first, second = (
        [(e.name, e.kind, e.shape) for e in tb.open(tmp_path / name).entries()] for name in ("x.pt", "y.pt")
    )
    assert first == second
    assert tb.load(tmp_path / "y.pt") == names
