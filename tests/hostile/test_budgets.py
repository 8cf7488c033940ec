"""Limits count what is built, not only the bytes that are read: claims, copies, cells and Python objects."""

import gc
import gzip
import json
import tracemalloc
import weakref

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import _wire
from tensorbytes.budget import FREE_GROWTH, FREE_OBJECT_BYTES, Budget
from tensorbytes.cli import main
from tensorbytes.errors import LimitError, Limits, LossError, SchemaError
from tensorbytes.formats.tfrecord.read import reader
from tests.support.tiers import deep_but
from tests.support.wire_bytes import field, framed, number, tensor

SMALL = Limits(max_bytes=1 << 20)


# ---- the budget itself --------------------------------------------------------


def test_claims_add_up_to_the_limit_and_no_further():
    budget = Budget(Limits(max_bytes=100), 1000)
    budget.charge(60, "a", 0)
    budget.charge(-5, "less than nothing", 0)
    budget.charge(40, "b", 0)
    with pytest.raises(
        LimitError, match=r"c would take 1 bytes .* limit of 100, of which 100 are taken \(byte 7\); pass limits"
    ):
        budget.charge(1, "c", 7)


def test_objects_have_a_share_of_the_input_first():
    budget = Budget(Limits(max_bytes=100), 10)
    budget.objects(1, "a few in any case", 0, FREE_OBJECT_BYTES)
    budget.objects(1, "a", 0, FREE_GROWTH * 10)
    budget.objects(1, "b", 0, 100)
    with pytest.raises(LimitError, match=r"c: 1 Python objects would take about 64 bytes, .*max_bytes"):
        budget.objects(1, "c", 0)


def test_objects_are_counted_too():
    budget = Budget(Limits(max_objects=10), 1 << 20)
    budget.objects(10, "a", 0)
    with pytest.raises(LimitError, match=r"over 10 Python objects \(byte 0\); pass limits=Limits\(max_objects=...\)"):
        budget.objects(1, "b", 0)


def test_copies_take_the_share_of_the_input_then_the_limit():
    budget = Budget(Limits(max_bytes=10), 1)
    budget.copy(FREE_GROWTH + 10, "a", 0)
    with pytest.raises(LimitError, match="b would take 1 bytes"):
        budget.copy(1, "b", 0)
    budget.add_input(1)
    budget.copy(FREE_GROWTH, "c", 0)


def test_what_is_read_later_has_the_limits_to_itself():
    budget = Budget(Limits(max_bytes=10))
    budget.charge(10, "a", 0)
    budget.renewed(0).charge(10, "b", 0)


@pytest.mark.parametrize(
    ("text", "fits"), [(b"[1,2,3]", True), (b"[" * 20_000, False), (b'{"a":1},' * 4000, False), (b"x" * 9000, True)]
)
def test_json_is_counted_by_its_marks(text, fits):
    budget = Budget(Limits(max_bytes=4000), len(text))
    if fits:
        budget.json(text, "a header", 0)
    else:
        with pytest.raises(LimitError, match="a header"):
            budget.json(text, "a header", 0)


def test_the_limit_of_objects_is_a_limit_of_readers():
    raw = framed(*[tensor(1, ())] * 100)
    assert len(tb.loads(raw)) == 100
    with pytest.raises(LimitError, match="over 50 Python objects"):
        tb.loads(raw, limits=Limits(max_objects=50))


def test_a_stream_that_is_iterated_over_holds_one_object_at_a_time(tmp_path):
    path = tmp_path / "x.tb"
    path.write_bytes(framed(*[tensor(1, ())] * 100))
    assert sum(1 for _ in tb.open(path, limits=Limits(max_objects=50))) == 100


def test_a_value_that_is_loaded_again_and_again_is_counted_once(tmp_path):
    path = tmp_path / "x.tb"
    tb.save({"a": np.zeros(1 << 20, np.uint8)}, path, compression="zstd")
    with tb.open(path, limits=SMALL) as file:
        for _ in range(20):
            assert file["a"].load().nbytes == 1 << 20


# ---- the schema beside a file -------------------------------------------------


@pytest.fixture
def records(tmp_path):
    """Puts a schema beside three records that lack its feature."""
    path = tmp_path / "x.tfrecord"
    path.write_bytes(framed(*[field(1, b"")] * 3))

    def put(**feature):
        text = json.dumps({"features": {"x": {"optional": True, **feature}}, "tensorbytes.schema": 1})
        path.with_name("x.tfrecord.schema.json").write_text(text)
        return path

    return put


@pytest.mark.parametrize("encoding", ["flat", "tensorproto", "raw"])
def test_a_default_does_not_take_what_the_limits_forbid(records, encoding):
    path = records(dtype="float32", encoding=encoding, shape=[1 << 40], default=0.0)
    for read in (list, lambda found: list(found.batches(2)), lambda found: found[0]):
        with pytest.raises(LimitError, match="the default of float32"):
            read(tb.open_records(path))
    path = records(dtype="float32", encoding=encoding, shape=[1 << 18], default=0.0)
    assert [row["x"].nbytes for row in tb.open_records(path)] == [1 << 20] * 3
    assert len(list(tb.open_records(path, limits=SMALL))) == 3
    path = records(dtype="float32", encoding=encoding, shape=[1 << 19], default=0.0)
    with pytest.raises(LimitError, match=r"in 1 record would take 2097152 bytes .*limits=Limits"):
        list(tb.open_records(path, limits=SMALL))


def test_a_default_of_text_is_counted_too(records):
    path = records(dtype="text", shape=[1 << 20], default="ab")
    with pytest.raises(LimitError, match="the default of text"):
        list(tb.open_records(path, limits=SMALL))


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1])
def test_a_shape_of_more_bytes_than_can_be_counted_is_no_schema(records, size):
    path = records(dtype="float32", shape=[size], default=0.0)
    with pytest.raises(SchemaError, match=r"features\['x'\]: shape .* takes 2\*\*63 bytes or more"):
        tb.open_records(path)


def test_a_list_that_arrow_can_t_count_is_named(records):
    pytest.importorskip("pyarrow")
    for shape in ([1 << 31], [1 << 16, 1 << 16], [1 << 40]):
        with pytest.raises(LossError, match="'x' is float32"):
            tb.open_records(records(dtype="float32", shape=shape, default=0.0)).to_arrow()


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 62]])
@pytest.mark.parametrize("command", ["head", "info", "stats", "verify"])
def test_commands_take_a_hostile_schema_for_what_it_is(records, command, shape, capsys):
    path = records(dtype="float32", shape=shape, default=0.0)
    assert main([command, str(path)]) in (0, 1, 2)
    assert "Traceback" not in capsys.readouterr().err


def test_a_shape_that_no_record_fills_takes_no_memory(tmp_path):
    """Each record has one value; the schema says as many as the block has bytes."""
    path = tmp_path / "x.tfrecord"
    one = field(1, field(1, field(1, "x") + field(2, field(3, field(1, b"\1")))))
    path.write_bytes(framed(*[one] * 50_000))
    with pytest.raises(SchemaError, match="record 0: feature 'x' has 1 values"):
        list(tb.open_records(path, schema={"x": ("int64", [1 << 20])}))


def test_a_schema_is_counted_by_the_limits_of_the_reader(records):
    path = records(dtype="text")
    path.with_name("x.tfrecord.schema.json").write_text('{"features":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(LimitError, match=r"schema\.json: \d+ Python objects"):
        tb.open_records(path, limits=SMALL)


# ---- small compressed files ------------------------------------------------------


EMPTY = field(1, b"")


def put(folder, raw, name="x.tfrecord.gz"):
    path = folder / name
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return path


def test_190_places_are_paid_for_by_the_file(tmp_path):
    """Of a file whose records are all there, whatever the limit; of one that is inflated up to it."""
    nothing = Limits(max_bytes=0)
    records = framed(EMPTY) * 100_000
    plain, packed = put(tmp_path, records, "x.tfrecord"), put(tmp_path, records)
    opened = tb.open_records(plain, limits=nothing)
    assert (len(opened), opened[99_999]) == (100_000, {})
    assert sum(1 for _ in tb.open_records(packed, limits=SMALL)) == 100_000
    for read in (len, lambda found: found[0], lambda found: found[:2]):
        with pytest.raises(LimitError, match=r"x\.tfrecord\.gz: an index of its records would take .*max_bytes"):
            read(tb.open_records(packed, limits=SMALL))
        read(tb.open_records(packed))


def test_190_several_files_share_one_limit(tmp_path):
    paths = [put(tmp_path, framed(EMPTY) * 20_000, f"{n}.tfrecord.gz") for n in range(4)]
    assert [len(tb.open_records(path, limits=SMALL)) for path in paths] == [20_000] * 4
    with pytest.raises(LimitError, match=r"1\.tfrecord\.gz: an index of its records"):
        len(tb.open_records(paths, limits=SMALL))


def test_190_records_of_a_compressed_file_that_are_read_at_once_have_a_limit(tmp_path):
    one = field(1, field(1, field(1, "x") + field(2, field(1, field(1, bytes(100_000))))))
    opened = tb.open_records(put(tmp_path, framed(*[one] * 30)), limits=SMALL)
    assert len(opened) == 30
    assert len(opened[29]["x"]) == 100_000
    with pytest.raises(LimitError, match=r"x\.tfrecord\.gz: 30 records would take 3\d+ bytes"):
        opened[:]


@pytest.mark.parametrize(("compression", "count"), [("zstd", 1000), (None, 10_000)], ids=["inflates", "too many"])
def test_191_an_index_is_stored_as_it_is(tmp_path, compression, count):
    path = put(tmp_path, framed(EMPTY))
    status = path.stat()
    meta = {"tensorbytes.index": "1", "compression": "gzip"}
    meta |= {"size": str(status.st_size), "mtime_ns": str(status.st_mtime_ns)}
    tb.save(np.zeros(count, np.int64), f"{path}.index.tb", meta=meta, compression=compression)
    with pytest.warns(tb.errors.SidecarWarning, match="is damaged, or not an index|is of another file"):
        assert len(tb.open_records(path, limits=SMALL)) == 1


@pytest.mark.filterwarnings("ignore::tensorbytes.errors.DamageWarning")
def test_192_every_damage_counts(tmp_path):
    bad = bytearray(framed(b"a"))
    bad[-1] ^= 1
    few, many = (put(tmp_path, framed(EMPTY) + bytes(bad) * count, f"{count}.tfrecord.gz") for count in (1000, 20_000))
    assert len(tb.verify(few, limits=SMALL).damages) == 1000
    for read in (tb.verify, lambda path, limits: list(tb.open_records(path, on_corrupt="skip", limits=limits))):
        with pytest.raises(LimitError, match=r"20000\.tfrecord\.gz: all that is damaged: .*max_bytes"):
            read(many, limits=SMALL)
    assert len(tb.verify(many).damages) == 20_000


def test_each_step_of_a_feature_list_counts(tmp_path):
    """Two bytes of a file are an array of Python's, which takes fifty times as many."""
    lists = field(1, field(1, "a") + field(2, field(1, b"") * 600_000))
    path = put(tmp_path, framed(field(2, lists)), "x.tfrecord")
    (row,) = tb.open_records(path)
    assert len(row["a"]) == 600_000
    with pytest.raises(LimitError, match="the steps of 'a': 600000 Python objects"):
        list(tb.open_records(path, limits=SMALL))


# ---- values that repeat ---------------------------------------------------------


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 10_000])
def test_single_values_are_the_same_however_many(count):
    values = np.arange(count) % 100
    raw = tensor(9, (count,), *(number(10, int(n)) for n in values))
    assert (tb.loads(raw, "tensorproto") == values).all()


@pytest.mark.parametrize("count", [65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("wide", [1, 300, 1 << 40])
def test_packed_values_are_the_same_however_many(count, wide):
    values = np.arange(count) % 7 * wide
    raw = tensor(9, (count,), field(10, b"".join(tb._wire.varint(int(n)) for n in values)))
    assert (tb.loads(raw, "tensorproto") == values).all()


def test_a_packed_value_that_is_too_long_is_found_where_it_stands():
    for before in (10, 65_530, 65_536, 100_000):
        packed = b"\1" * before + b"\xff" * 11 + b"\1"
        raw = tensor(9, (before + 1,), field(10, packed))
        with pytest.raises(tb.errors.CorruptError, match="longer than ten bytes") as caught:
            tb.loads(raw, "tensorproto")
        assert caught.value.at == len(raw) - 12


# ---- blocks of records that are decoded at once ---------------------------------


def _claiming_records(path, records, claimed):
    """A float tensor of one stored value in each record, which claims many; as much else as makes several blocks."""
    claim = number(1, 1) + field(2, field(2, number(1, claimed))) + field(5, np.float32(3).tobytes())
    feature = {"a": field(1, field(1, claim)), "b": field(1, field(1, bytes(200_000)))}
    one = field(1, b"".join(field(1, field(1, name) + field(2, value)) for name, value in feature.items()))
    path.write_bytes(framed(one) * records)
    return {"a": {"dtype": "float32", "shape": [claimed], "encoding": "tensorproto"}}


@pytest.mark.parametrize("threads", deep_but([2], [1, 2, 4]))
def test_blocks_that_take_much_memory_take_it_one_after_the_other(tmp_path, monkeypatch, threads):
    schema = _claiming_records(tmp_path / "x.tfrecord", 40, 1 << 20)
    given, alone = [], []

    def decode_alone(*args):
        gc.collect()
        alone.append([columns() for columns in given if columns() is not None])
        found = whole(*args)
        given.append(weakref.ref(found[0]))
        return found

    whole = reader.decode_sound
    monkeypatch.setattr(reader, "decode_sound", decode_alone)
    monkeypatch.setattr(reader, "_MOST_SHARED", threads << 23)  # for each thread less than a block takes
    limits = Limits(max_bytes=64 << 20)
    records = tb.open_records(tmp_path / "x.tfrecord", schema=schema, columns=["a"], threads=threads, limits=limits)
    assert [(row["a"][0], len(row["a"])) for row in records] == [(3.0, 1 << 20)] * 40
    assert len(alone) >= 3
    assert not any(alone)


def test_a_batch_and_the_block_that_comes_to_it_share_one_limit(tmp_path):
    schema = _claiming_records(tmp_path / "x.tfrecord", 60, 1 << 20)
    limits = Limits(max_bytes=160 << 20)
    records = tb.open_records(tmp_path / "x.tfrecord", schema=schema, columns=["a"], limits=limits)
    assert [batch["a"].shape for batch in records.batches(5)] == [(5, 1 << 20)] * 12
    with pytest.raises(LimitError, match=r"a batch of 60 records would take .* limit of 167772160, of which"):
        list(records.batches(60))


@pytest.mark.parametrize("feature", ["fixed", "ragged", "strings"])
def test_columns_of_a_compressed_file_are_charged_before_they_are_made(feature, tmp_path):
    """Inflated bytes are not input: eight times as much again is over the limit, and is not taken to find that out."""
    if feature == "strings" and not _wire.ACCELERATED:
        pytest.skip("to count strings, Python notes where each of them lies")
    size = 16 << 20
    raw, schema = {
        "fixed": (field(3, field(1, bytes(size))), ("int64", [size])),
        "ragged": (field(3, field(1, bytes(size))), ("int64", [None])),
        "strings": (field(1, field(1, b"") * (size // 2)), ("bytes", [None])),
    }[feature]
    path = tmp_path / "x.tfrecord.gz"
    path.write_bytes(gzip.compress(framed(field(1, field(1, field(1, "a") + field(2, raw)))), 1))
    tracemalloc.start()
    try:
        with pytest.raises(LimitError, match="over the limit"):
            list(tb.open_records(path, schema={"a": schema}, limits=Limits(max_bytes=32 << 20)))
        assert tracemalloc.get_traced_memory()[1] < 120 << 20
    finally:
        tracemalloc.stop()
