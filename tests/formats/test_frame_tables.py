"""Groups of rows of a table: columns of one length, masks that fit them."""

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.api import to_document
from tensorbytes.tree import Document
from tests.formats.test_golden_files import same
from tests.support.golden import TABLES, columns, joined, write
from tests.support.streams import Onwards
from tests.support.wire_bytes import damage_record

TB = formats.get("tb")
STRUCTS = Document(
    [
        to_document(value).leaves[0]._replace(path=path)
        for path, value in (
            ((("key", "at"), ("key", "x")), tb.Ragged(tb.Tensor("int64", (3,), np.arange(3)), (np.array([0, 2, 3]),))),
            ((("key", "at"), ("key", "y")), tb.Ragged(tb.Tensor("int64", (3,), np.arange(3)), (np.array([0, 2, 3]),))),
            ((("key", "at"), ("mask", 0)), np.array([True, False])),
            ((("key", "at"), ("mask", 1)), np.array([True, False, True])),
            ((("key", "at"), ("key", "y"), ("mask", 1)), np.array([True, True, True])),
            ((("number", 7),), np.ones((2, 2, 2))),
            ((("number", 7), ("mask", 1)), np.ones(4, bool)),
            ((("number", 7), ("mask", 2)), np.ones(8, bool)),
        )
    ],
    rows=2,
)


def decoded(raw, lazy=False, format="tb"):
    return list(formats.get(format).decode(memoryview(raw), tb.errors.Limits(), lazy, {}))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("format", ["tb", "delimited"])
def test_there_and_back(format, lazy):
    chosen = formats.get(format)
    raw = chosen.dumps(STRUCTS, frozenset(), {})
    (document,) = decoded(raw, lazy, format)
    assert document.rows == 2
    assert [leaf.path for leaf in document.leaves] == [leaf.path for leaf in STRUCTS.leaves]
    for one, two in zip(document.leaves, STRUCTS.leaves, strict=True):
        assert tb.equal(one.read(), two.read())
    assert [leaf.name for leaf in document.leaves] == [
        "at/x", "at/y", "at/mask0", "at/mask1", "at/y/mask1", "7", "7/mask1", "7/mask2"
    ]  # fmt: skip
    found = tb.loads(raw, format)
    assert list(found) == ["at", "at/mask0", "at/mask1", 7, "7/mask1", "7/mask2"]
    assert list(found["at"]) == ["x", "y", "y/mask1"]


def test_objects_that_are_added_to_a_table(tmp_path):
    """A file of both is a stream of both: nothing is joined that is not of one kind."""
    tb.save({"x": np.arange(6).reshape(2, 3)}, tmp_path / "x.arrow")
    tb.convert(tmp_path / "x.arrow", tmp_path / "x.tb")
    assert tb.load(tmp_path / "x.tb")["x"].shape == (2, 3)
    with tb.open(tmp_path / "x.tb", "a") as file:
        file.write({"x": np.array([7, 8, 9])})
    first, second = tb.load(tmp_path / "x.tb")
    assert first["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second["x"].tolist() == [7, 8, 9]
    assert tb.inspect(tmp_path / "x.tb").objects == 2
    assert tb.verify(tmp_path / "x.tb").ok


def test_with_compression():
    (document,) = decoded(TB.dumps(STRUCTS, frozenset(), {"compression": "zstd"}), lazy=True)
    assert document.rows == 2


def test_appending_adds_a_group(tmp_path):
    documents, _ = TABLES["table-groups"]
    for mode, document in zip("waa", documents, strict=True):
        with tb.open(tmp_path / "x.tb", mode) as file:
            file.write_document(document)
    assert (tmp_path / "x.tb").read_bytes() == write("table-groups")
    want = [columns(document) for document in documents]
    whole = joined(want)
    same(tb.load(tmp_path / "x.tb"), whole)  # a table is one dict of columns, however many groups it was written in
    with tb.open(tmp_path / "x.tb") as file:
        assert len(file) == 1
        same(file[0], whole)
        assert file.verify() == 1
        assert file["x"][1:3].tolist() == whole["x"][1:3].tolist()
    same(list(tb.open(Onwards(write("table-groups")))), want)  # what comes through a pipe comes group by group


def test_a_torn_group_is_cut_off(tmp_path):
    documents, _ = TABLES["table-groups"]
    raw = write("table-groups")
    last = TB.dumps(documents[2], frozenset(), {})
    (tmp_path / "x.tb").write_bytes(raw[:-5])
    with pytest.warns(tb.errors.TornTailWarning), tb.open(tmp_path / "x.tb", "a") as file:
        file.write_document(documents[2])
    assert (tmp_path / "x.tb").read_bytes() == raw
    assert raw.endswith(last)


@pytest.mark.parametrize("name", TABLES)
def test_tensorflow_reads_the_chunks(name, tmp_path):
    tf = pytest.importorskip("tensorflow")
    (tmp_path / "x.tb").write_bytes(write(name))
    leaves = [leaf for document in TABLES[name][0] for leaf in document.leaves]
    for record, leaf in zip(tf.data.TFRecordDataset(str(tmp_path / "x.tb")), leaves, strict=True):
        if isinstance(leaf.value, tb.Tensor):
            assert np.array_equal(tf.io.parse_tensor(record, leaf.value.dtype).numpy(), leaf.value.numpy())
        elif isinstance(leaf.value, tb.Strings):
            found = tf.io.parse_tensor(record, tf.string).numpy().tolist()
            assert found == [item.encode() for item in leaf.value.items()]


def test_what_is_not_a_table_is_not_written():
    first, *rest = STRUCTS.leaves
    for wrong, words in (
        (STRUCTS._replace(rows=3), "in a table of 3 rows"),
        (STRUCTS._replace(rows=None), "a mask outside a table"),
        (STRUCTS._replace(leaves=[first, first, *rest]), "stored twice"),
        (STRUCTS._replace(leaves=[*STRUCTS.leaves, first._replace(path=(("key", "z"), ("mask", 0)))]), "list of bools"),
    ):
        for format in ("tb", "delimited"):
            with pytest.raises(tb.errors.UsageError, match=words):
                formats.get(format).dumps(wrong, frozenset(), {})


@pytest.mark.parametrize("kept", [1, 12, 20, 61])
def test_groups_before_a_torn_end_are_given_before_the_error(kept, tmp_path):
    """As the objects of any stream are; whoever wants all of it is told, and gets nothing."""
    path = tmp_path / "x.tb"
    raw = write("table-groups")
    path.write_bytes(raw)
    with tb.open(path, "a") as writer:
        writer.write({"x": np.zeros(3, np.int64)})
    path.write_bytes(path.read_bytes()[: len(raw) + kept])
    found = []
    with pytest.raises(tb.errors.CorruptError), tb.open(path) as objects:
        found.extend(iter(objects))
    assert [len(group["x"]) for group in found] == [group.rows for group in TABLES["table-groups"][0]]
    for whole in (tb.load, tb.inspect, tb.stats):
        with pytest.raises(tb.errors.CorruptError):
            whole(path)


@pytest.mark.parametrize("format", ["npz", "torchfile", "checkpoint"])
def test_other_formats_refuse_rather_than_forget(format):
    with pytest.raises((tb.errors.LossError, tb.errors.UsageError)):
        list(formats.get(format).encode(STRUCTS, frozenset(), {}))


def test_tools_take_the_columns(tmp_path):
    (tmp_path / "x.tb").write_bytes(write("table"))
    tb.convert(tmp_path / "x.tb", tmp_path / "y.npz")
    same(tb.load(tmp_path / "y.npz"), columns(TABLES["table"][0][0]))
    listed = [(one.name, one.nulls) for one in tb.inspect(tmp_path / "x.tb").tensors]
    assert listed == [("id", None), ("text", 1), ("list", 1)]


@pytest.mark.parametrize("lost", range(5))
def test_repair_keeps_the_other_columns(lost, tmp_path):
    (tmp_path / "x.tb").write_bytes(damage_record(write("table"), lost))
    tb.repair(tmp_path / "x.tb", tmp_path / "y.tb")
    gone = {0: {0}, 1: {1, 2}, 2: {2}, 3: {3, 4}, 4: {4}}[lost]  # a mask goes with its column
    kept = [leaf for number, leaf in enumerate(TABLES["table"][0][0].leaves) if number not in gone]
    (document,) = decoded((tmp_path / "y.tb").read_bytes())
    assert document.rows == 3
    assert [leaf.path for leaf in document.leaves] == [leaf.path for leaf in kept]
    assert all(tb.equal(one.read(), two.read()) for one, two in zip(document.leaves, kept, strict=True))
    assert document.meta == ({} if lost == 0 else {"table": "demo"})


def test_repair_of_a_stream_drops_a_group_that_is_not_whole(tmp_path):
    raw = bytearray(write("table-groups"))
    raw[40] ^= 1
    (tmp_path / "x.tb").write_bytes(raw)
    tb.repair(tmp_path / "x.tb", tmp_path / "y.tb")
    groups = decoded((tmp_path / "y.tb").read_bytes())
    assert [(group.item, group.rows) for group in groups] == [(1, 0), (2, 3)]
