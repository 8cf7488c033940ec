"""One tensor in several places is stored once, and is one again when it is read."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import formats, opening
from tests.formats.test_golden_files import same
from tests.support import CORPUS
from tests.support.golden import SHARED
from tests.support.streams import Onwards
from tests.support.wire_bytes import damage_record, records

X = np.arange(5000, dtype=np.float32)
TIED = {"embed": X, "head": X, "other": X.copy(), "deep": {"list": [X, 1]}}


def decoded(raw, format="tb", lazy=False):
    (document,) = formats.get(format).decode(memoryview(raw), tb.errors.Limits(), lazy, {})
    return document


@pytest.mark.parametrize("format", ["tb", "delimited"])
def test_it_is_stored_once(format):
    raw = tb.dumps(TIED, format)
    assert len(raw) < 2 * X.nbytes + 1000
    found = tb.loads(raw, format)
    same(found, TIED)
    assert found["embed"] is found["head"] is found["deep"]["list"][0]
    assert found["other"] is not found["embed"]
    for lazy in (False, True):
        document = decoded(raw, format, lazy)
        values = {leaf.name: leaf.value for leaf in document.leaves}
        assert values["embed"] is values["head"] is values["deep/list/0"]
        assert values["other"] is not values["embed"]


def test_lazily_too(tmp_path):
    tb.save(TIED, tmp_path / "x.tb")
    with tb.open(tmp_path / "x.tb") as file:
        assert file.keys() == ["embed", "head", "other", "deep/list/0", "deep/list/1"]
        head = file["head"]
        assert (head.name, head.dtype, head.shape, head.nbytes) == ("head", "float32", (5000,), 20000)
        assert head[3:5].tolist() == [3, 4]
        assert np.array_equal(head.load(), X)
        same(file[0], TIED)
    with tb.open(tmp_path / "x.tb") as file:
        assert file["deep/list/0"].load()[7] == 7
    assert list(tb.load(tmp_path / "x.tb", names=["head"])) == ["head"]
    assert np.array_equal(tb.load(tmp_path / "x.tb", names=["head"])["head"], X)
    mapped = tb.load(tmp_path / "x.tb", mmap=True)
    assert mapped["embed"] is mapped["head"]


def test_what_is_not_the_same_view_of_the_same_memory_is_stored_apart():
    x = np.ones((4, 4), np.float32)
    others = {"rows": x[:2], "flat": x.reshape(-1), "bits": x.view(np.uint32), "turned": x.T, "copy": x.copy()}
    assert b"alias" not in tb.dumps({"x": x, **others})
    found = tb.loads(tb.dumps({"x": x, **others, "same": x[:], "turned too": x.T}))
    assert [name for name in found if found[name] is found["x"]] == ["x", "same"]
    assert found["turned"] is found["turned too"]
    assert b"alias" not in tb.dumps({"c": 7, "d": 7, "e": None, "f": None, "g": "s", "h": "s"})
    empty = np.ones((0, 3))
    assert b"alias" not in tb.dumps({"a": empty, "b": empty[:]})  # nothing that could be shared
    assert b"alias" not in tb.dumps({"a": np.float32(1), "b": np.float32(1)})
    one = np.float32(1)
    assert b"alias" not in tb.dumps({"a": one, "b": one})  # a number has no identity


def test_of_other_frameworks():
    torch = pytest.importorskip("torch")
    weight = torch.nn.Parameter(torch.ones(3))
    found = tb.loads(tb.dumps({"a": weight, "b": weight}), to="original")
    assert found["a"] is found["b"]
    assert isinstance(found["a"], torch.nn.Parameter)


def test_a_variable_with_a_name_of_its_own():
    tf = pytest.importorskip("tensorflow")
    x = tf.Variable([1.0], name="w")
    raw = tb.dumps({"w": x, "v": x, "u": tf.Variable([1.0], name="u")})
    assert raw.count(b"alias") == 1
    found = tb.loads(raw, to="original")
    assert found["w"] is found["v"]
    assert found["w"].name == "w:0"
    assert tb.loads(raw, to="tensor")["v"].origin["name"] == "w"


def test_objects_that_are_made_on_the_way_are_not_mistaken_for_others():
    class Rows(dict):
        def items(self):
            for n in range(50):
                yield str(n), np.full(3, n)  # the next one may have the place in memory of the last

    found = tb.loads(tb.dumps(Rows(a=1)))
    assert [int(row[0]) for row in found.values()] == list(range(50))


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"quantize": "int8"}], ids=str)
def test_with_compression(options, tmp_path):
    tb.save(TIED, tmp_path / "x.tb", **options)
    raw = (tmp_path / "x.tb").read_bytes()
    assert raw == tb.dumps(TIED, **options)
    assert raw.count(b"\xfa\x3e\x05alias") == 2
    found = tb.loads(raw)
    assert found["embed"] is found["head"]
    with tb.open(tmp_path / "x.tb") as file:
        assert file["head"].stored == file["embed"].stored
        assert np.array_equal(file["head"].load(), found["head"])


def test_what_is_asked_for_one_name_is_not_done_to_another():
    raw = tb.dumps({"a": X, "b": X}, quantize={"a": "int8"})
    found = tb.loads(raw)
    assert np.array_equal(found["b"], X)
    assert not np.array_equal(found["a"], X)
    assert b"alias" not in raw


def test_in_streams_each_object_is_on_its_own(tmp_path):
    x = np.arange(3)
    with tb.open(tmp_path / "x.tb", "w") as file:
        for _ in range(2):
            file.write({"a": x, "b": x})
    one, two = tb.load(tmp_path / "x.tb")
    assert one["a"] is one["b"]
    assert one["a"] is not two["a"]
    raw = (tmp_path / "x.tb").read_bytes()
    assert [item["a"] is item["b"] for item in tb.open(Onwards(raw))] == [True, True]


def test_tensorflow_sees_a_string_never_zeros(tmp_path):
    tf = pytest.importorskip("tensorflow")
    tb.save({"a": X, "b": X}, tmp_path / "x.tb")
    first, second = tf.data.TFRecordDataset(str(tmp_path / "x.tb"))
    assert np.array_equal(tf.io.parse_tensor(first, tf.float32).numpy(), X)
    assert tf.io.parse_tensor(second, tf.string).numpy() == b"a"
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_tensor(second, tf.float32)


def test_formats_without_aliases_write_the_content_out(tmp_path):
    for suffix in ("npz", "arrow", "parquet"):
        tb.save({"a": X, "b": X}, tmp_path / f"x.{suffix}")
        same(tb.load(tmp_path / f"x.{suffix}"), {"a": X, "b": X})
    tb.save({"a": X, "b": X}, tmp_path / "x.tb")
    report = tb.convert(tmp_path / "x.tb", tmp_path / "y.npz")
    same(tb.load(tmp_path / "y.npz"), {"a": X, "b": X})
    assert [(loss.name, loss.feature) for loss in report.losses] == [("b", "aliases")]


def test_parts_of_a_file_have_their_content(tmp_path):
    tb.save({"a": X, "b": X, "c": X}, tmp_path / "x.tb")
    tb.convert(tmp_path / "x.tb", tmp_path / "y.tb", names=["b", "c"])
    same(tb.load(tmp_path / "y.tb"), {"b": X, "c": X})
    made = tb.split(tmp_path / "x.tb", str(tmp_path / "part.tb"), shards=3)
    found = {}
    for path in made.files:
        assert b"alias" not in Path(path).read_bytes()
        found |= tb.load(path)
    same(found, {"a": X, "b": X, "c": X})
    tb.merge(made.files, tmp_path / "z.tb")
    same(tb.load(tmp_path / "z.tb"), {"a": X, "b": X, "c": X})


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_repair_writes_the_content_out(lost, tmp_path):
    tb.save({"a": X, "b": np.ones(3), "c": X}, tmp_path / "x.tb")
    (tmp_path / "x.tb").write_bytes(damage_record((tmp_path / "x.tb").read_bytes(), lost))
    tb.repair(tmp_path / "x.tb", tmp_path / "y.tb")
    want = {"a": X, "b": np.ones(3), "c": X}
    gone = {0: "ac", 1: "b", 2: "c"}[lost]  # of what is lost, an alias is lost too
    same(tb.load(tmp_path / "y.tb"), {name: want[name] for name in "abc" if name not in gone})
    assert b"\xfa\x3e\x05alias" not in (tmp_path / "y.tb").read_bytes()
    with tb.open(tmp_path / "y.tb") as file:
        assert file.verify() == 1


@pytest.mark.parametrize("format", ["protobuf", "tensorproto"])
def test_a_record_by_itself_gives_no_value(format):
    alias = records(tb.dumps({"a": np.ones(2), "b": np.ones(1), "c": SHARED, "d": SHARED}))[-1]
    with pytest.raises(tb.errors.CorruptError, match=r"alias|parts"):
        tb.loads(alias, format)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.sampled_from(["tb", "delimited"]),
    st.sampled_from([{}, {"compression": "zstd"}]),
)
def test_any_sharing_comes_back(which, format, options):
    arrays = [np.arange(size, dtype=np.int32) for size in (0, 3, 40, 2000)]
    obj = {f"k{n}": arrays[number] for n, number in enumerate(which)}
    raw = tb.dumps(obj, format, **options)
    found = tb.loads(raw, format)
    assert tb.equal(found, obj)
    document = decoded(raw, format, lazy=True)
    for one, a in enumerate(which):
        for two, b in enumerate(which):
            assert (found[f"k{one}"] is found[f"k{two}"]) == (a == b)
            assert (document.leaves[one].value is document.leaves[two].value) == (a == b)
    for leaf in reversed(document.leaves):
        assert tb.equal(leaf.read(), obj[leaf.name])


def test_the_golden_file():
    found = tb.load(CORPUS / "valid" / "alias.tb")
    assert found["embed"] is found["head"] is found["more"][0] is found["ü"]
    assert found["embed"] is not found["more"][1]
    (document,) = opening.open_file(CORPUS / "valid" / "alias.tb").documents()
    assert len({id(leaf.value) for leaf in document.leaves}) == 2
