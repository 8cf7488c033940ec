"""The directory of an object: one small read lists a file, and nothing that it says is believed."""

import io
import os
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes._wire import proto
from tensorbytes.formats import _directory, frame
from tensorbytes.formats._directory import Listed
from tests.formats.test_golden_files import same
from tests.support import CORPUS
from tests.support.golden import OBJECTS, STORED, TABLES, write
from tests.support.make_reject_corpus import REJECT
from tests.support.streams import Onwards
from tests.support.wire_bytes import INT64, STRING, field, framed, key_step, number, place, records, tensor

SEVERAL = {
    "numbers": {f"layer{n}/w": np.arange(n, dtype=np.float32) for n in range(40)},
    "nested": OBJECTS["nested"][0][0],
    "kinds": OBJECTS["directory"][0][0],
    "list": [np.arange(3), "text", np.array([b"a", b""], object), 1 << 80],
    "names": {"": np.ones(1), "ü" * 70: np.ones(2), "a/b": {"c": np.zeros((2, 0, 3))}, 7: {"x": np.ones(1)}},
    "large first": {"w": np.arange(5000), "b": np.ones(3, ml_dtypes.bfloat16)},
    "large second": {"b": np.ones(3, np.int8), "w": np.arange(5000)},
    "wide numbers": {"x": np.zeros((1, 200, 3), np.int16), "y" * 300: np.ones(300, np.uint8)},
}


def found_in(raw):
    """The directory of the object that some bytes start with."""
    (payload, *_) = records(raw)
    item = next((item for item in proto.fields(memoryview(payload), 0, len(payload)) if item.number == 1500), None)
    return None if item is None else payload[item.start : item.end]


def decoded(raw, lazy=True):
    return list(formats.get("tb").decode(memoryview(raw), tb.errors.Limits(), lazy, {}))


@pytest.fixture
def reads(monkeypatch):
    """The offsets of all records that are decoded."""
    seen = []
    original = frame.read_record

    def counted(data, start, *more, **options):
        seen.append(start)
        return original(data, start, *more, **options)

    monkeypatch.setattr(frame, "read_record", counted)
    return seen


# ---- what it is for ---------------------------------------------------------


def test_a_name_is_read_without_the_others(tmp_path, reads):
    tb.save({f"t{n}": np.full(4, n) for n in range(2000)}, tmp_path / "x.tb")
    with tb.open(tmp_path / "x.tb") as file:
        assert len(file.keys()) == 2000
        assert "t1999" in file
        assert len(file) == 1
        assert len(reads) == 1
        assert (file["t7"].dtype, file["t7"].shape, file["t7"].nbytes, file["t7"].kind) == ("int64", (4,), 32, "tensor")
        assert len(reads) == 1
        assert file["t1234"].load().tolist() == [1234] * 4
        assert file["t1234"][1] == 1234
        assert len(reads) == 2
    reads.clear()
    assert tb.load(tmp_path / "x.tb", names=["t3", "t1"])["t3"].tolist() == [3] * 4
    assert len(reads) == 3


def test_inspecting_reads_no_other_record(tmp_path, reads):
    tb.save({"a": np.ones(3), "b": np.array(["x", "yz"], object), "c": OBJECTS["ragged"][0][0]}, tmp_path / "x.tb")
    listed = tb.inspect(tmp_path / "x.tb").tensors
    assert len(reads) == 1
    assert [(one.name, one.kind, one.dtype, one.shape, one.nbytes) for one in listed] == [
        ("a", "tensor", "float64", (3,), 24),
        ("b", "strings", "string", (2,), 3),
        ("c", "ragged", "int32", (3, None), 52),
    ]


@pytest.mark.parametrize("name", SEVERAL)
def test_what_it_lists_is_what_is_read(name, tmp_path):
    obj = SEVERAL[name]
    tb.save(obj, tmp_path / "x.tb")
    raw = (tmp_path / "x.tb").read_bytes()
    assert raw == tb.dumps(obj) == b"".join(tb.buffers(obj))
    assert found_in(raw) is not None
    (lazy,), (whole,) = decoded(raw), decoded(raw, lazy=False)
    assert [type(leaf) for leaf in lazy.leaves[1:]] == [Listed] * (len(lazy.leaves) - 1)
    for one, two in zip(lazy.leaves, whole.leaves, strict=True):
        assert (one.name, one.header, one.meta) == (two.name, two.header, two.meta)
        assert (one.path, one.kind, one.stored) == (two.path, two.kind, two.stored)
    same(tb.load(tmp_path / "x.tb"), obj)
    same(tb.load(tmp_path / "x.tb", mmap=True), obj)
    with tb.open(tmp_path / "x.tb") as file:
        same(file[0], obj)
        assert file.verify() == 1
    without = framed(*(cleared(payload) for payload in records(raw)))
    assert found_in(without) is None
    same(tb.loads(without), obj)
    assert tb.inspect(io.BytesIO(without)).tensors == tb.inspect(tmp_path / "x.tb").tensors


def cleared(payload):
    """A record without its directory, and without the checksum that covers it."""
    view = memoryview(payload)
    items = list(proto.fields(view, 0, len(view)))
    ends = [item.at for item in items[1:]] + [len(payload)]
    kept = [payload[item.at : end] for item, end in zip(items, ends, strict=True) if item.number not in (1500, 1011)]
    return b"".join(kept)


def test_who_has_none(tmp_path):
    assert found_in(tb.dumps(np.ones(3))) is None
    assert found_in(tb.dumps({"a": np.ones(3)})) is None
    with tb.open(tmp_path / "x.tb", "w") as file:
        file.write({"a": np.ones(3), "b": np.ones(4)})
    assert found_in((tmp_path / "x.tb").read_bytes()) is None
    for suffix in ("pbs",):
        tb.save({"a": np.ones(3), "b": np.ones(4)}, tmp_path / f"x.{suffix}")
        assert b"\xe2\x5d" not in (tmp_path / f"x.{suffix}").read_bytes()  # the tag of field 1500


@pytest.mark.parametrize("options", [{"compression": "zstd"}, {"compression": "auto"}, {"quantize": "int8"}], ids=str)
def test_compressed_files_have_one_too(tmp_path, options, reads):
    obj = {f"t{n}": np.linspace(0, n, 3000, dtype=np.float32).reshape(3, 1000) for n in range(6)}
    obj["text"] = np.array(["same"] * 2000, object)
    tb.save(obj, tmp_path / "x.tb", **options)
    raw = (tmp_path / "x.tb").read_bytes()
    assert found_in(raw) is not None
    assert raw == tb.dumps(obj, **options)
    with tb.open(tmp_path / "x.tb") as file:
        assert file["t3"].load().shape == (3, 1000)
        assert len(reads) == 2
        assert file["t3"].stored is not None
        assert file.verify() == 1


@pytest.mark.parametrize("first", [10, 200_000])
def test_of_a_large_compressed_file_it_is_filled_in_before_the_file_is_visible(tmp_path, monkeypatch, first):
    monkeypatch.setattr(frame, "_THREAD_BYTES", 1000)  # as if it were too large to be made in memory
    obj = {"a": np.arange(first), "b": np.arange(40_000), "c": np.zeros(50)}
    tb.save(obj, tmp_path / "x.tb", compression="zstd")
    raw = (tmp_path / "x.tb").read_bytes()
    assert raw == tb.dumps(obj, compression="zstd")
    assert found_in(raw) is not None
    same(tb.loads(raw), obj)
    # What can be written once alone has none.
    file = io.BytesIO()
    tb.save(obj, file, compression="zstd")
    assert found_in(file.getvalue()) is None
    same(tb.loads(file.getvalue()), obj)
    read, write_end = os.pipe()
    with os.fdopen(read, "rb") as source:
        with os.fdopen(write_end, "wb") as sink:
            tb.save({"a": np.arange(100), "b": np.zeros(50)}, sink, compression="zstd")
        piped = source.read()
    assert found_in(piped) is None
    same(tb.loads(piped), {"a": np.arange(100), "b": np.zeros(50)})


def test_files_one_after_another(tmp_path, reads):
    one, two = ({f"{name}{n}": np.full(2, n) for n in range(20)} for name in "ab")
    raw = tb.dumps(one) + tb.dumps(np.ones(2)) + tb.dumps(two)
    (tmp_path / "x.tb").write_bytes(raw)
    with tb.open(tmp_path / "x.tb") as file:
        assert len(file) == 3
        assert len(reads) <= 4
        assert file["b7"].load().tolist() == [7, 7]
        assert file.verify() == 3
        same(file[2], two)
    with tb.open(tmp_path / "x.tb", "a") as file:
        file.write(np.zeros(1))
    with tb.open(tmp_path / "x.tb") as file:
        assert len(file) == 4
        assert file["a3"].load().tolist() == [3, 3]


def test_damage_elsewhere_is_noticed_where_it_is(tmp_path):
    tb.save({f"t{n}": np.full(2, n) for n in range(9)}, tmp_path / "x.tb")
    raw = bytearray((tmp_path / "x.tb").read_bytes())
    raw[-6] ^= 1  # in the last record
    (tmp_path / "x.tb").write_bytes(raw)
    with tb.open(tmp_path / "x.tb") as file:
        assert file["t3"].load().tolist() == [3, 3]
        with pytest.raises(tb.errors.CorruptError, match="checksum of a record's data"):
            file["t8"].load()
        with pytest.raises(tb.errors.CorruptError, match=str(tmp_path)):
            file.verify()


def test_no_cut_goes_unnoticed():
    raw = tb.dumps({"a": np.ones(2), "b": np.ones(3), "c": "x"})
    for size in range(1, len(raw)):
        with pytest.raises(tb.errors.CorruptError):
            tb.loads(raw[:size], "tb")
        with pytest.raises(tb.errors.CorruptError):
            decoded(raw[:size])


def test_no_flipped_bit_gives_another_value():
    obj = {"a": np.arange(2), "b": np.arange(3, dtype=np.float32), "c": "x"}
    raw = tb.dumps(obj)
    for at in range(len(raw)):
        damaged = raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]
        with pytest.raises(tb.errors.CorruptError):
            tb.loads(damaged, "tb")
        try:
            with tb.open(io.BytesIO(damaged), format="tb") as file:
                for name, want in obj.items():
                    same(file[name].load(), want)
        except (tb.errors.CorruptError, KeyError):
            continue
        raise AssertionError(f"bit {at % 8} of byte {at} went unnoticed")


# ---- lies -------------------------------------------------------------------

LIES = [name for name in REJECT["tb"] if name.startswith(("directory", "alias", "table", "rows", "mask"))]


@pytest.mark.parametrize("name", LIES)
def test_no_lie_is_believed_when_little_is_read(name, tmp_path):
    raw = REJECT["tb"][name][0]
    (tmp_path / "x.tb").write_bytes(raw)
    with tb.open(tmp_path / "x.tb") as file, pytest.raises(tb.errors.CorruptError):
        _ = [entry.load() for entry in file.entries()], file[0]
    with pytest.raises(tb.errors.CorruptError), tb.open(tmp_path / "x.tb") as file:
        file.verify()
    with pytest.raises(tb.errors.CorruptError):
        tb.load(tmp_path / "x.tb", mmap=True)
    with pytest.raises(tb.errors.CorruptError):
        list(tb.open(Onwards(raw)))


def test_a_record_in_the_place_of_another(tmp_path):
    raw = tb.dumps({name: np.full(2, n) for n, name in enumerate("abc")})
    first, second, third = records(raw)
    swapped = framed(first, third, second)
    with pytest.raises(tb.errors.CorruptError, match="part 2"):
        tb.loads(swapped)
    (document,) = decoded(swapped)
    for leaf in document.leaves[1:]:
        with pytest.raises(tb.errors.CorruptError, match="another record where part"):
            leaf.value  # noqa: B018


def test_its_columns_are_limited(tmp_path):
    tb.save({f"t{n}": np.zeros(1) for n in range(50)}, tmp_path / "x.tb")
    with (
        pytest.raises(tb.errors.LimitError, match="over 20 tensors"),
        tb.open(tmp_path / "x.tb", limits=tb.errors.Limits(max_tensors=20)) as file,
    ):
        file.keys()
    tb.save({"a": np.zeros(1), "b": np.zeros((1,) * 9)}, tmp_path / "y.tb")
    with (
        pytest.raises(tb.errors.LimitError, match="rank"),
        tb.open(tmp_path / "y.tb", limits=tb.errors.Limits(max_rank=8)) as file,
    ):
        file.keys()


def test_sizes_of_64_bits(monkeypatch):
    monkeypatch.setattr(_directory, "_NARROW", 1 << 10)
    obj = {"a": np.ones(2), "b": np.ones(300)}
    raw = b"".join(tb.buffers(obj))  # which the short way of dumps does not make
    monkeypatch.undo()
    assert found_in(raw).endswith(b"\x4a\x08" + struct.pack("<Q", len(records(raw)[1])))
    same(tb.loads(raw), obj)
    (document,) = decoded(raw)
    assert document.leaves[1].read().shape == (300,)


# ---- anything ---------------------------------------------------------------

NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
ARRAYS = st.builds(
    lambda shape, dtype: np.arange(int(np.prod(shape)), dtype=np.int64).astype(dtype).reshape(shape),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from([np.float32, np.int8, np.bool_, np.complex64, ml_dtypes.bfloat16, np.uint64]),
)
LEAVES = st.one_of(
    ARRAYS, st.integers(), st.none(), NAMES, st.lists(NAMES, min_size=1, max_size=3).map(lambda x: np.array(x, object))
)
OBJECTS_DRAWN = st.dictionaries(
    NAMES, st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)),
    max_size=6,
)  # fmt: skip


@given(OBJECTS_DRAWN)
def test_any_object_is_listed_as_it_is_read(obj):
    raw = tb.dumps(obj)
    assert tb.dumps(obj) == raw
    (lazy,), (whole,) = decoded(raw), decoded(raw, lazy=False)
    assert (found_in(raw) is not None) == (len(whole.leaves) > 1)
    assert [(leaf.name, leaf.header) for leaf in lazy.leaves] == [(leaf.name, leaf.header) for leaf in whole.leaves]
    assert tb.equal(tb.loads(raw), obj)
    for one, two in zip(reversed(lazy.leaves), reversed(whole.leaves), strict=True):
        assert one.path == two.path
        assert tb.equal(one.read(), two.read())


@given(OBJECTS_DRAWN, st.data())
def test_any_directory_that_differs_is_refused(obj, data):
    raw = tb.dumps(obj)
    told = found_in(raw)
    if told is None:
        return
    at = data.draw(st.integers(0, len(told) - 1))
    lie = told[:at] + bytes([told[at] ^ data.draw(st.integers(1, 255))]) + told[at + 1 :]
    first, *rest = records(raw)
    damaged = framed(cleared_seal(first.replace(told, lie)), *rest)
    try:
        found = tb.loads(damaged, "tb")
    except (tb.errors.CorruptError, tb.errors.LimitError, tb.errors.UnsupportedError):
        return
    assert tb.equal(found, obj)  # another way to say the same
    (document,) = decoded(damaged)
    assert tb.equal([leaf.read() for leaf in document.leaves], [leaf.read() for leaf in decoded(raw)[0].leaves])


def cleared_seal(payload):
    view = memoryview(payload)
    seal = next((item for item in proto.fields(view, 0, len(view)) if item.number == 1011), None)
    return payload if seal is None else payload[: seal.at] + payload[seal.end :]


# ---- the golden files ---------------------------------------------------------


@pytest.mark.parametrize("name", [*OBJECTS, *STORED, *TABLES, "origin"])
def test_the_golden_files_have_one_where_they_should(name):
    raw = (CORPUS / "valid" / f"{name}.tb").read_bytes()
    assert raw == write(name)
    documents = decoded(raw, lazy=False)
    assert (found_in(raw) is not None) == (len(documents[0].leaves) > 1 and not documents[0].item)


def test_a_long_chain_of_aliases_is_refused_at_its_first_link():
    count = 5000
    first = tensor(INT64, (), key_step("k0"), place(0, count), field(4, bytes(8)))
    links = [
        tensor(
            STRING, (), key_step(f"k{n}"), place(n, count), field(1007, "alias"), number(1017, n - 1),
            field(8, f"k{n - 1}"),
        )
        for n in range(1, count)
    ]  # fmt: skip
    names = [f"k{n}" for n in range(count)]
    for kinds in (bytes(count), b"\0" + b"\4" * (count - 1)):
        columns = [
            field(1, "".join(names)),
            field(2, bytes(map(len, names))),
            field(3, bytes([INT64]) * count),
            field(4, kinds),
            field(5, bytes(count)),
            field(8, struct.pack(f"<{count - 1}I", *map(len, links))),
        ]
        raw = framed(first + field(1500, b"".join(columns)), *links)
        (document,) = decoded(raw)
        with pytest.raises(tb.errors.CorruptError, match="alias"):
            document.leaves[-1].read()
        with pytest.raises(tb.errors.CorruptError, match="itself an alias"):
            tb.loads(raw)


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}], ids=str)
def test_of_values_that_were_not_read_yet(options, tmp_path):
    obj = {
        "text": np.array(["a", "bc"] * 900, object),
        "n": 1 << 90,
        "x": np.arange(3000),
        "r": OBJECTS["ragged"][0][0],
    }
    tb.save(obj, tmp_path / "x.npz", compression="deflate")
    tb.convert(tmp_path / "x.npz", tmp_path / "x.tb", **options)
    raw = (tmp_path / "x.tb").read_bytes()
    assert found_in(raw) is not None
    same(tb.loads(raw), obj)
    with tb.open(tmp_path / "x.tb") as file:
        same(file[0], obj)
        assert file.verify() == 1
