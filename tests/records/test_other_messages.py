"""Records that are not Examples: records of bytes, and messages for whoever says which."""

import io
import pickle

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.records import Feature, Schema, infer_schema
from tests.support import REAL_FILES
from tests.support.example_bytes import by_entries
from tests.support.record_cases import example as made
from tests.support.record_cases import expected, plain_rows, sequence, stream, write
from tests.support.wire_bytes import field, number

REAL = [REAL_FILES / "records" / name for name in ("test.sam.golden.tfrecord", "test_regions.bed.tfrecord")]


def elwc(*examples):
    """An ExampleListWithContext, as ranking libraries write them: a list of Examples in field 1."""
    return b"".join(field(1, one) for one in examples)


OTHERS = {
    "unknown fields": [number(3, 5), number(3, 6) + field(4, "x")],
    "a varint first": [number(1, 7) + field(3, "hello"), number(1, 1)],
    "a float first": [b"\x0d\0\0\x80\x3f", b"\x0d\0\0\x80\x3f"],
    "a string first": [field(1, "chr1") + number(2, 10), field(1, "chr22") + number(2, 10)],
    "lists of Examples": [elwc(made(age=[1.0]), made(age=[2.0])), elwc(made(age=[3.0], s=[b"x"]))],
    "unknown fields inside": [field(1, number(3, 1) + number(4, 2))] * 2,
    "text": [b"hello world", b"more", b""],
    "JSON": [b'{"a": 1}', b'{"a": 2}'],
    "random bytes": [np.random.default_rng(n).bytes(50 + n) for n in range(20)],
    "an empty record, then others": [b"", number(3, 5)],
    "pictures": [b"\xff\xd8\xff\xe0" + bytes(20)] * 3,
}


def check_bytes(path, payloads):
    records = open_records(path)
    assert not records.holds_examples
    assert list(records) == [{"payload": payload} for payload in payloads]
    assert list(records.payloads()) == payloads
    assert [*records.schema] == ["payload"]
    (batch,) = records.batches(1000)
    assert batch["payload"].items() == payloads
    assert records.to_arrow().read_all()["payload"].to_pylist() == payloads
    assert records[len(payloads) - 1] == {"payload": payloads[-1]}
    assert records[[0, 0]]["payload"].items() == payloads[:1] * 2


@pytest.mark.parametrize("case", OTHERS)
def test_records_of_bytes(tmp_path, case):
    payloads = OTHERS[case]
    path = write(tmp_path / "x.tfrecord", payloads)
    assert list(tf.data.TFRecordDataset(path).as_numpy_iterator()) == payloads
    check_bytes(path, payloads)
    found = tb.inspect(path)
    assert "records of bytes, not Examples" in str(found)
    assert (found.objects, found.tensors[0].sizes) == (
        len(payloads),
        (min(map(len, payloads)), max(map(len, payloads))),
    )
    assert tb.verify(path).ok
    assert tb.load(path)["payload"].tolist() == payloads


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_records_of_bytes(tmp_path, compression):
    for case, payloads in OTHERS.items():
        check_bytes(write(tmp_path / f"{case}.tfrecord", payloads, compression), payloads)


@pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files_of_other_messages(path, tmp_path):
    payloads = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    check_bytes(path, payloads)
    found = tb.inspect(path)
    assert found.details.get("damage") is None
    assert "records of bytes, not Examples" in str(found)
    assert tb.verify(path).ok
    tb.convert(path, tmp_path / "x.parquet")
    assert tb.load(tmp_path / "x.parquet")["payload"].tolist() == payloads
    assert tb.stats(path).to_dict()


NOTHING = {
    "no bytes": (b"", {}),
    "no features": (field(1, b""), {}),
    "a feature of no kind": (made(a=None), {}),
    "no feature lists": (sequence({}, {}), {}),
    "a feature list without steps": (sequence({}, {"a": []}), {"a": []}),
}


@pytest.mark.parametrize("case", NOTHING)
def test_examples_that_hold_nothing_are_examples(case):
    payload, row = NOTHING[case]
    records = open_records(stream([payload] * 3))
    assert records.holds_examples
    assert list(records) == [row] * 3
    assert open_records(stream([payload, made(a=[1])])).holds_examples


@pytest.mark.parametrize("case", OTHERS)
def test_one_example_among_others_makes_it_a_file_of_examples(case):
    """What can't be read then is an error, and not bytes."""
    payloads = [made(a=[1]), *OTHERS[case]]
    records = open_records(stream(payloads))
    assert records.holds_examples
    if any(by_entries(raw, False) is None for raw in payloads):
        with pytest.raises(errors.CorruptError, match="is not a sound Example"):
            list(records)
    else:
        assert list(records) == [{"a": 1}, *({} for _ in OTHERS[case])]


def test_unknown_fields_beside_features_are_passed_over():
    payloads = [number(9, 1) + made(a=[number_]) + number(8, 1) for number_ in range(3)]
    assert plain_rows(open_records(stream(payloads))) == expected(payloads)


@pytest.mark.parametrize("case", OTHERS)
def test_a_schema_of_examples_is_refused(tmp_path, case):
    path = write(tmp_path / "x", OTHERS[case])
    schema = {"a": Feature("int64", optional=True)}
    for read in (list, lambda records: next(records.batches(10)), lambda records: records[1]):
        with pytest.raises(errors.UsageError, match=r"records of bytes, not Examples.*payloads\(\)"):
            read(open_records(path, schema=schema))
    with pytest.raises(errors.UsageError, match=r"records of bytes, not Examples.*payloads\(\)"):
        infer_schema(path)
    with pytest.raises(errors.UsageError, match="no feature 'a', and one column, 'payload'"):
        list(open_records(path, columns=["a"]))
    assert list(open_records(path, columns=["payload"])) == [{"payload": one} for one in OTHERS[case]]


def test_records_are_copied_as_they_are(tmp_path):
    payloads = OTHERS["a string first"] * 3
    path = write(tmp_path / "x.tfrecord", payloads)
    with pytest.raises(errors.UsageError, match=r"records of bytes, not Examples: written as Examples .* merge"):
        tb.convert(path, tmp_path / "y.tfrecord")
    tb.merge([path, path], tmp_path / "m.tfrecord")
    assert list(open_records(tmp_path / "m.tfrecord").payloads()) == payloads * 2
    made = tb.split(path, tmp_path / "s.tfrecord", rows=2)
    assert [one for file in made.files for one in open_records(file).payloads()] == payloads


def test_records_of_bytes_from_a_pipe():
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    payloads = OTHERS["a string first"]
    assert list(open_records(Pipe(stream(payloads).read()))) == [{"payload": one} for one in payloads]


# ---- payloads ------------------------------------------------------------------------------


def test_payloads_by_number(tmp_path):
    parts = [[made(a=[n]) for n in range(5)], [b"x" * n for n in range(4)]]
    paths = [write(tmp_path / "0", parts[0], "gzip"), write(tmp_path / "1", parts[1])]
    payloads = parts[0] + parts[1]
    found = open_records(paths, schema={}).payloads()
    assert len(found) == 9
    assert [found[n] for n in range(-9, 9)] == payloads * 2
    assert found[2:8:3] == payloads[2:8:3]
    assert found[[8, 0, 8]] == [payloads[8], payloads[0], payloads[8]]
    assert found[[]] == found[:0] == []
    assert pickle.loads(pickle.dumps(found))[3] == payloads[3]
    assert list(found) == list(found) == payloads
    assert [next(found), *found] == payloads  # a `for` goes on where next() stopped
    for wrong in (9, -10):
        with pytest.raises(IndexError, match=f"record {wrong}: there are 9"):
            found[wrong]
    with pytest.raises(IndexError):
        found[[[1]]]


# ---- messages ------------------------------------------------------------------------------


def described():
    """Two files of definitions, the one that imports first; and one message in each."""
    base = descriptor_pb2.FileDescriptorProto(name="base.proto", package="demo", syntax="proto3")
    point = base.message_type.add(name="Point")
    point.field.add(name="x", number=1, type=1, label=1)
    point.field.add(name="y", number=2, type=1, label=1)
    top = descriptor_pb2.FileDescriptorProto(
        name="top.proto", package="demo", syntax="proto3", dependency=["base.proto"]
    )
    frame = top.message_type.add(name="Frame")
    frame.field.add(name="name", number=1, type=9, label=1)
    frame.field.add(name="points", number=2, type=11, label=3, type_name=".demo.Point")
    return descriptor_pb2.FileDescriptorSet(file=[top, base])


@pytest.fixture(scope="module")
def frame_class():
    pool = DescriptorPool()
    for file in reversed(described().file):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("demo.Frame"))


@pytest.fixture
def frames(tmp_path, frame_class):
    messages = [frame_class(name=f"frame {n}", points=[{"x": n, "y": i} for i in range(n)]) for n in range(5)]
    return write(tmp_path / "frames.tfrecord", [one.SerializeToString() for one in messages]), messages


def test_messages_of_a_class(frames, frame_class):
    path, messages = frames
    records = open_records(path, message=frame_class)
    assert list(records) == list(records) == messages
    assert records[3] == messages[3]
    assert records[-1] == messages[-1]
    assert records[1:4] == messages[1:4]
    assert records.__getitems__([4, 0]) == [messages[4], messages[0]]
    assert list(records.payloads()) == [one.SerializeToString() for one in messages]
    (batch,) = records.batches(10)
    assert batch["payload"].items() == list(records.payloads())
    assert next(iter(open_records(stream([made(a=[1])]), message=tf.train.Example))) == tf.train.Example.FromString(
        made(a=[1])
    )


@pytest.mark.parametrize("form", ["bytes", "path"])
def test_messages_by_their_descriptor(frames, tmp_path, form):
    path, messages = frames
    given = described().SerializeToString()
    if form == "path":
        (tmp_path / "frames.desc").write_bytes(given)
        given = tmp_path / "frames.desc"
    records = open_records(path, message=(given, "demo.Frame"))
    found = list(records)
    assert [one.SerializeToString() for one in found] == [one.SerializeToString() for one in messages]
    assert [one.name for one in found] == [one.name for one in messages]
    assert found[3].points[1].y == 1
    assert [one.name for one in pickle.loads(pickle.dumps(records))] == [one.name for one in messages]


def test_a_record_that_is_not_the_message_is_named(tmp_path, frame_class):
    path = write(tmp_path / "x", [frame_class(name="a").SerializeToString(), b"\xff\xff"])
    records = open_records(path, message=frame_class)
    rows = iter(records)
    assert next(rows).name == "a"
    with pytest.raises(errors.CorruptError, match=r"record 1 is not a sound demo\.Frame") as caught:
        next(rows)
    assert (caught.value.record, caught.value.path, caught.value.at) == (1, path, 16 + 3 + 12)
    with pytest.raises(errors.CorruptError, match=r"record 1 is not a sound demo\.Frame"):
        records[1]


WRONG = {
    "no message": (3, "message=: expected a class of protobuf messages"),
    "no class": (tf.train.Example(), "message=: expected a class of protobuf messages"),
    "another class": (dict, "message=: expected a class of protobuf messages"),
    "no set": ((b"\xff\xff", "demo.Frame"), "expected a FileDescriptorSet"),
    "another name": (
        (described().SerializeToString(), "demo.Fram"),
        "no message 'demo.Fram'; did you mean 'demo.Frame'",
    ),
    "no name": ((described().SerializeToString(), ""), "no message ''"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_message_may_be(case):
    given, match = WRONG[case]
    with pytest.raises(errors.UsageError, match=match):
        open_records(stream([b""]), message=given)


def test_a_descriptor_set_without_its_imports():
    alone = descriptor_pb2.FileDescriptorSet(file=described().file[:1]).SerializeToString()
    with pytest.raises(errors.UsageError, match=r"can't be used.*include_imports"):
        open_records(stream([b""]), message=(alone, "demo.Frame"))
    circle = described()
    circle.file[1].dependency.append("top.proto")
    with pytest.raises(errors.UsageError, match="can't be used"):
        open_records(stream([b""]), message=(circle.SerializeToString(), "demo.Frame"))


def test_messages_have_no_schema_of_features(frame_class):
    for given in ({"schema": {"a": "int64"}}, {"columns": ["a"]}):
        with pytest.raises(errors.UsageError, match="message= says what the records are"):
            open_records(stream([b""]), message=frame_class, **given)


def test_a_schema_beside_the_file_has_no_say_in_what_its_records_are(tmp_path):
    path = write(tmp_path / "x.tfrecord", OTHERS["a string first"])
    Schema({"a": Feature("int64", optional=True)}).save(path + ".schema.json")
    assert tb.verify(path).format == tb.verify(io.BytesIO((tmp_path / "x.tfrecord").read_bytes())).format
    assert "records of bytes, not Examples" in str(tb.inspect(path))
    with pytest.raises(errors.UsageError, match="records of bytes, not Examples"):
        list(open_records(path))
    assert list(open_records(path).payloads()) == OTHERS["a string first"]
    (tmp_path / "x.tfrecord.schema.json").write_text("nonsense")
    assert tb.verify(path).ok
