"""Event files against TensorFlow's writers, TensorBoard where it is installed, and protobuf's own parser."""

import gzip
import io
import math
import os
import struct
import tempfile
import warnings

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import event, given
from hypothesis import strategies as st
from tensorflow.core.framework import summary_pb2
from tensorflow.core.util import event_pb2

from tensorbytes.errors import CorruptError, LimitError, Limits, TensorbytesError, UnsupportedError, UsageError
from tensorbytes.formats.tfrecord.read.reader import DamageWarning
from tensorbytes.io.paths import Split
from tensorbytes.records.events import Event, read_events, read_scalars
from tensorbytes.records.summaries import Audio, Histogram, Image, Metadata
from tests.support.wire_bytes import (
    DELIMITED,
    END_GROUP,
    FIXED32,
    FIXED64,
    START_GROUP,
    VARINT,
    field,
    framed,
    number,
    overlong,
    varint,
)
from tests.support.wire_bytes import records as split_records
from tests.support.wire_bytes import tag as key
from tests.support.wire_bytes import tensor as tensor_proto

V1 = tf.compat.v1.summary
NAMES = {"graph_def": "graph", "meta_graph_def": "meta_graph", "log_message": "log", "session_log": "session"}


# ---- what protobuf says that a file holds -----------------------------------


def bits(x):
    array = np.asarray(x)
    return array.tolist() if array.dtype == object else (str(array.dtype), array.shape, array.tobytes())


def single(x):
    """A float32 that went through Python may be another NaN than before."""
    return "nan" if x != x else bits(np.float32(x))


def plain(value):
    """A value in a form that compares bit for bit."""
    if isinstance(value, Histogram):
        names = ("counts", "right", "left", "min", "max", "num", "sum", "sum_squares")
        return tuple(None if (x := getattr(value, name)) is None else bits(x) for name in names)
    if isinstance(value, np.float32):
        return single(value)
    if isinstance(value, np.ndarray | np.generic):
        return bits(value)
    return repr(value) if isinstance(value, Audio) else value  # a sample rate may be NaN


def expected_value(value, about):
    """(kind, value) of a Summary.Value, by protobuf and TensorFlow alone."""
    member = value.WhichOneof("value")
    match member:
        case None:
            return "empty", None
        case "simple_value":
            return "scalar", single(value.simple_value)
        case "obsolete_old_style_histogram":
            return "old_histogram", value.obsolete_old_style_histogram
        case "image":
            x = value.image
            return "image", Image(x.height, x.width, (x.encoded_image_string,), x.colorspace)
        case "audio":
            x = value.audio
            rate = (x.sample_rate, x.num_channels, x.length_frames, x.content_type)
            return "audio", repr(Audio((x.encoded_audio_string,), (), *rate))
        case "histo":
            x = value.histo
            sums = (x.min, x.max, x.num, x.sum, x.sum_squares)
            return "histogram", plain(Histogram(np.array(x.bucket), np.array(x.bucket_limit), None, *sums))
    array = tf.make_ndarray(value.tensor)
    plugin = about.plugin
    if (plugin == "scalars" or about.data_class == 1) and array.size == 1:
        return "scalar", plain(array.reshape(-1)[0])
    if plugin == "text" and array.dtype == object:
        text = np.array([item.decode() for item in array.reshape(-1)], object).reshape(array.shape)
        return "text", text.tolist()
    if plugin == "images":
        width, height, *encoded = array.tolist()
        return "image", Image(int(height), int(width), tuple(encoded))
    if plugin == "audio":
        return "audio", repr(Audio(tuple(array[:, 0]), tuple(array[:, 1])))
    if plugin == "histograms":
        return "histogram", plain(Histogram(array[:, 2], array[:, 1], array[:, 0]))
    return "tensor", bits(array)


def expected(messages):
    known = {}
    for message in messages:
        member = message.WhichOneof("what")
        found = []
        if member == "summary":
            for value in message.summary.value:
                if value.HasField("metadata"):
                    told, plugin = value.metadata, value.metadata.plugin_data
                    texts = (told.display_name, told.summary_description)
                    known[value.tag] = Metadata(plugin.plugin_name, plugin.content, *texts, told.data_class)
                about = known.get(value.tag, Metadata())
                found.append((value.tag, about, *expected_value(value, about)))
        elif member == "tagged_run_metadata":
            run = message.tagged_run_metadata
            found.append((run.tag, Metadata(), "run_metadata", run.run_metadata))
        elif member:
            raw = getattr(message, member)
            if not isinstance(raw, bytes):
                raw = raw.encode() if isinstance(raw, str) else raw.SerializeToString()
            found.append(("", Metadata(), NAMES.get(member, member), raw))
        if message.HasField("source_metadata"):
            found.append(("", Metadata(), "source", message.source_metadata.SerializeToString()))
        for part in found or [("", Metadata(), "empty", None)]:
            yield bits(message.wall_time), message.step, *part


def ours(events):
    return [(bits(e.wall_time), e.step, e.tag, e.metadata, e.kind, plain(e.value)) for e in events]


def by_tensorflow(path):
    return [event_pb2.Event.FromString(raw.numpy()) for raw in tf.data.TFRecordDataset(str(path))]


def check_file(path):
    """Every event that TensorFlow sees in a file, and nothing else."""
    found = list(read_events(path))
    assert ours(found) == list(expected(by_tensorflow(path)))
    assert {e.path for e in found} == {str(path)}
    return found


def files(folder):
    return sorted(str(path) for path in folder.rglob("*tfevents*"))


# ---- TensorFlow's writers ---------------------------------------------------


@pytest.fixture(scope="module")
def tf1_file(tmp_path_factory):
    """Everything that TensorFlow 1 could write, several steps of it."""
    folder = tmp_path_factory.mktemp("tf1")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (3,))
        V1.scalar("loss", x[0])
        V1.histogram("weights", x)
        V1.image("picture", tf.reshape(tf.concat([x, x, x, x], 0), (1, 2, 2, 3)))
        V1.audio("sound", tf.reshape(x, (1, 3, 1)), 8000.0)
        V1.text("words", tf.strings.as_string(x))
        V1.tensor_summary("tensor", x)
        merged = V1.merge_all()
        writer = V1.FileWriter(str(folder), graph)
        with tf.compat.v1.Session() as session:
            for step in range(3):
                writer.add_summary(session.run(merged, {x: [step, 2, 3]}), step)
        writer.add_session_log(tf.compat.v1.SessionLog(status=1, msg="go"), 7)
        writer.add_run_metadata(tf.compat.v1.RunMetadata(), "run", 8)
        writer.add_event(event_pb2.Event(step=-1, log_message=event_pb2.LogMessage(level=20, message="hello")))
        writer.add_summary(V1.Summary(), 9)
        writer.close()
    (path,) = files(folder)
    return path


def test_tensorflow_1(tf1_file):
    found = check_file(tf1_file)
    assert {e.kind for e in found} == {
        "file_version", "source", "graph", "meta_graph", "scalar", "histogram", "image", "audio", "text", "tensor",
        "session", "run_metadata", "log", "empty",
    }  # fmt: skip


def test_the_plugin_is_remembered_where_the_writer_names_it_once(tf1_file):
    told = [value.HasField("metadata") for m in by_tensorflow(tf1_file) for value in m.summary.value
            if value.tag == "words"]  # fmt: skip
    assert told == [True, False, False]
    assert [(e.kind, e.plugin) for e in read_events(tf1_file, tags="words")] == [("text", "text")] * 3


def test_the_kernels_that_write_old_summaries(tmp_path):
    writer = tf.summary.create_file_writer(str(tmp_path))
    to = {"writer": writer._resource, "step": 5}
    pixels = tf.zeros((2, 2, 3, 3), tf.uint8)
    tf.raw_ops.WriteScalarSummary(tag="scalar", value=2.5, **to)
    tf.raw_ops.WriteHistogramSummary(tag="histogram", values=tf.constant([1.0, 2.0, -3.0]), **to)
    colour = tf.constant([255, 0, 0, 255], tf.uint8)
    tf.raw_ops.WriteImageSummary(tag="image", tensor=pixels, bad_color=colour, max_images=3, **to)
    tf.raw_ops.WriteAudioSummary(tag="audio", tensor=tf.zeros((1, 9, 2)), sample_rate=8000.0, max_outputs=3, **to)
    writer.close()
    (path,) = files(tmp_path)
    found = check_file(path)
    assert [e.kind for e in found] == ["file_version", "source", "scalar", "histogram", "image", "image", "audio"]
    assert [(e.value.height, e.value.width) for e in found if e.kind == "image"] == [(2, 3)] * 2


def about(plugin, **fields):
    plugin_data = summary_pb2.SummaryMetadata.PluginData(plugin_name=plugin, content=fields.pop("content", b""))
    return summary_pb2.SummaryMetadata(plugin_data=plugin_data, **fields)


def write_tf2(folder, *summaries, step=3):
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default(step=step):
        for tag, value, metadata in summaries:
            tf.summary.write(tag, value, metadata=metadata)
    writer.close()
    return files(folder)[-1]


def test_tensorflow_2(tmp_path):
    strings = tf.constant([b"4", b"3", b"png one", b"png two"])
    found = check_file(
        write_tf2(
            tmp_path,
            ("loss", tf.constant(1.5), about("scalars")),
            ("words", tf.constant("# Title ü"), about("text")),
            ("table", tf.constant([["a", "b"], ["c", ""]]), about("text")),
            ("pictures", strings, about("images")),
            ("weights", tf.constant([[0.0, 1.0, 5.0], [1.0, 2.0, 7.0]], tf.float64), about("histograms")),
            ("no weights", tf.zeros((0, 3), tf.float64), about("histograms")),
            ("sound", tf.constant([[b"RIFF", b"label"], [b"riff", b""]]), about("audio")),
            ("hparams", tf.zeros((0,)), about("hparams", content=b"\x12\x00")),
            ("mine", tf.constant([1, 2]), about("", display_name="Mine", summary_description="two", data_class=2)),
            ("bare", tf.constant([b"a", b"b"]), None),
        )
    )
    by_tag = {e.tag: e for e in found}
    assert by_tag["words"].value == "# Title ü"
    assert by_tag["pictures"].value == Image(3, 4, (b"png one", b"png two"))
    assert by_tag["hparams"].metadata.content == b"\x12\x00"
    assert by_tag["mine"].metadata[2:] == ("Mine", "two", 2)
    assert by_tag["no weights"].value.counts.shape == (0,)


SCALAR_DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "uint64", "bool",
                 "complex64"]  # fmt: skip


@pytest.mark.parametrize("dtype", SCALAR_DTYPES)
def test_scalars_keep_their_dtype(tmp_path, dtype):
    value = tf.cast(tf.constant(1), dtype)
    path = write_tf2(tmp_path, ("x", value, about("scalars")), ("y", value, about("own", data_class=1)))
    for found in list(read_events(path))[2:]:
        assert (found.kind, bits(found.value)) == ("scalar", bits(value.numpy()))
    assert bits(read_scalars(path)["y"].values) == bits(value.numpy().reshape(1))


def test_tensors_of_every_dtype(tmp_path):
    names = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
             "float64", "bfloat16", "complex64", "complex128"]  # fmt: skip
    path = write_tf2(tmp_path, *((name, tf.cast([[1, 0], [1, 1]], name), None) for name in names))
    assert [e.tag for e in check_file(path)][2:] == names


def test_tensors_that_are_not_what_their_plugin_expects_stay_tensors(tmp_path):
    odd = [
        ("scalars", tf.ones((2,))), ("scalars", tf.constant(["x"])), ("text", tf.constant([b"\xff"])),
        ("text", tf.constant(1.0)), ("images", tf.constant([b"3"])), ("images", tf.constant([b"3", b"x", b""])),
        ("images", tf.constant([[b"3", b"4"]])), ("images", tf.ones((3,))), ("audio", tf.constant([b"a", b"b"])),
        ("histograms", tf.ones((2, 2))), ("histograms", tf.ones((2, 3), tf.int32)), ("pr_curves", tf.ones((6, 2))),
    ]  # fmt: skip
    path = write_tf2(tmp_path, *((f"{i}", value, about(plugin)) for i, (plugin, value) in enumerate(odd)))
    found = list(read_events(path))[2:]
    assert [(e.kind, e.plugin, bits(e.value)) for e in found] == [
        ("tensor", plugin, bits(value.numpy())) for plugin, value in odd
    ]
    assert read_scalars(path) == {}


def test_frameworks(tmp_path):
    torch = pytest.importorskip("torch")
    path = write_tf2(tmp_path, ("x", tf.constant([1.0, 2.0]), None))
    (as_torch,) = read_events(path, tags="x", to="torch")
    assert torch.equal(as_torch.value, torch.tensor([1.0, 2.0]))
    (as_tf,) = read_events(path, tags="x", to="tensorflow")
    assert as_tf.value.numpy().tolist() == [1, 2]
    (neutral,) = read_events(path, tags="x", to="tensor")
    assert (neutral.value.dtype, neutral.value.shape) == ("float32", (2,))
    (array,) = read_events(path, tags="x")
    array.value[:] = 0  # memory of its own


def test_tensorboard_writers(tmp_path):
    pytest.importorskip("tensorboard")
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        for step in range(2):
            tf.summary.scalar("loss", 0.5 * step, step=step)
            tf.summary.histogram("weights", tf.random.normal((100,)), step=step)
            tf.summary.image("pictures", tf.zeros((2, 3, 4, 3)), step=step)
            tf.summary.text("words", ["a", "ü"], step=step)
            tf.summary.audio("sound", tf.zeros((2, 9, 1)), 8000, step=step)
    writer.close()
    (path,) = files(tmp_path)
    kinds = [e.kind for e in check_file(path)]
    assert kinds == ["file_version", "source"] + ["scalar", "histogram", "image", "text", "audio"] * 2
    assert read_scalars(path)["loss"].values.tolist() == [0, 0.5]


def test_torch_writer(tmp_path):
    pytest.importorskip("tensorboard")
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        for step in range(3):
            writer.add_scalar("old", 0.5 * step, step)
            writer.add_scalar("new", 0.5 * step, step, new_style=True)
            writer.add_scalar("double", 0.1 * step, step, new_style=True, double_precision=True)
        writer.add_histogram("weights", np.arange(20.0), 1)
        writer.add_text("words", "text", 1)
        writer.add_tensor("tensor", __import__("torch").arange(3), 1)
    (path,) = files(tmp_path)
    check_file(path)
    scalars = read_scalars(path)
    assert {tag: found.values.dtype.name for tag, found in scalars.items()} == {
        "old": "float32", "new": "float32", "double": "float64",
    }  # fmt: skip
    assert scalars["double"].values.tolist() == [0, 0.1, 0.2]


# ---- scalars by tag ---------------------------------------------------------


def scalar(tag, value, step=0, wall_time=0.0, raw=None):
    content = struct.pack("<f", value) if raw is None else raw
    return event_bytes(field(1, tag) + key(2, FIXED32) + content, step=step, wall_time=wall_time)


def event_bytes(*values, step=0, wall_time=0.0):
    head = key(1, FIXED64) + struct.pack("<d", wall_time) + number(2, step)
    return head + field(5, b"".join(field(1, value) for value in values))


def value_of(tag, tensor, plugin=None):
    metadata = b"" if plugin is None else field(9, field(1, field(1, plugin)))
    return field(1, tag) + field(8, tensor) + metadata


def write(folder, *payloads, name="events.out.tfevents.1"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(framed(*payloads))
    return str(path)


def test_scalars_are_those_of_tensorflow(tf1_file):
    (found,) = read_scalars(tf1_file).values()
    messages = [m for m in by_tensorflow(tf1_file) if any(value.tag == "loss" for value in m.summary.value)]
    assert found.steps.tolist() == [m.step for m in messages] == [0, 1, 2]
    assert found.wall_times.tolist() == [m.wall_time for m in messages]
    assert found.values.tolist() == [0, 1, 2]
    assert [column.dtype.name for column in found] == ["int64", "float64", "float32"]


@pytest.mark.parametrize("pattern", ["010080ff", "0100807f", "efbeadff", "00000080", "ffffffff", "01000000"])
def test_every_bit_of_a_float_is_kept(tmp_path, pattern):
    raw = bytes.fromhex(pattern)
    as_tensor = tensor_proto(1, (), field(4, raw))
    path = write(tmp_path, scalar("a", 0, raw=raw), event_bytes(value_of("b", as_tensor, "scalars")),
                 event_bytes(value_of("c", as_tensor)))  # fmt: skip
    assert [np.asarray(e.value).tobytes() for e in read_events(path)] == [raw] * 3
    assert [found.values.tobytes() for found in read_scalars(path).values()] == [raw] * 2


def test_all_files_of_a_folder_in_order(tmp_path):
    for i in (2, 1, 3):
        write(tmp_path, scalar("loss", i, step=i), name=f"events.out.tfevents.{i}.host")
    (tmp_path / "other.txt").write_text("not an event file")
    found = read_scalars(tmp_path)["loss"]
    assert (found.steps.tolist(), found.values.tolist()) == ([1, 2, 3], [1, 2, 3])
    assert [e.step for e in read_events([str(tmp_path), *files(tmp_path)[:1]])] == [1, 2, 3, 1]
    assert [e.step for e in read_events(str(tmp_path / "*.host"))] == [1, 2, 3]


def test_the_plugin_is_remembered_over_the_files_of_a_run_only(tmp_path):
    plain_scalar = tensor_proto(1, (), field(4, struct.pack("<f", 1)))
    write(tmp_path / "a", event_bytes(value_of("x", plain_scalar, "scalars")), name="tfevents.1")
    write(tmp_path / "a", event_bytes(value_of("x", plain_scalar)), name="tfevents.2")
    write(tmp_path / "b", event_bytes(value_of("x", plain_scalar)))
    assert [e.kind for e in read_events(tmp_path)] == ["scalar", "scalar", "tensor"]


def test_two_runs_are_not_mixed(tmp_path):
    train = write(tmp_path / "train", scalar("loss", 1), scalar("rate", 3))
    write(tmp_path / "validation", scalar("loss", 2))
    with pytest.raises(UsageError, match=r"'loss' is in two runs, .*train.* and .*validation"):
        read_scalars(tmp_path)
    assert read_scalars(tmp_path, "rate")["rate"].values.tolist() == [3]
    assert read_scalars(train)["loss"].values.tolist() == [1]
    assert [(os.path.basename(os.path.dirname(e.path)), e.tag) for e in read_events(tmp_path)] == [
        ("train", "loss"), ("train", "rate"), ("validation", "loss"),
    ]  # fmt: skip


def test_links_to_folders_are_followed_once(tmp_path):
    write(tmp_path / "elsewhere", scalar("loss", 1))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "run").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "logs" / "up").symlink_to(tmp_path / "logs")
    assert [e.value for e in read_events(tmp_path / "logs")] == [1]


def test_scalars_of_several_dtypes(tmp_path):
    def typed(code, form, value):
        return event_bytes(value_of("x", tensor_proto(code, (), field(4, struct.pack(form, value))), "scalars"))

    found = read_scalars(write(tmp_path, scalar("x", 0.5), typed(2, "<d", 0.1), typed(9, "<q", 7)))["x"].values
    assert (found.dtype.name, found.tolist()) == ("float64", [0.5, 0.1, 7])
    path = write(tmp_path, scalar("x", 0.5), typed(9, "<q", (1 << 53) + 1))
    with pytest.raises(UnsupportedError, match="'x' has scalars of float32, int64"):
        read_scalars(path)


def test_tags_choose(tmp_path):
    broken = event_bytes(value_of("broken", b"\x08\x01\x12"))
    path = write(tmp_path, field(3, "brain.Event:2"), scalar("a", 1), broken, scalar("b", 2), scalar("c", 3))
    assert [e.tag for e in read_events(path, tags="a")] == ["a"]
    assert [e.tag for e in read_events(path, tags=["c", "a", "none"])] == ["a", "c"]
    assert list(read_scalars(path, ["b", "none"])) == ["b"]
    with pytest.raises(CorruptError):
        list(read_events(path))


def test_what_is_no_event_file_is_said_to_be_none():
    with pytest.raises(CorruptError, match="is this an event file") as caught:
        list(read_events(io.BytesIO(b"version https://git-lfs.github.com/spec/v1")))
    assert "repair" not in caught.value.what


def test_other_sources(tmp_path):
    raw = framed(scalar("a", 1), scalar("a", 2))
    assert [e.value for e in read_events(io.BytesIO(raw))] == [1, 2]
    with tempfile.TemporaryFile() as file:  # whose name is a number
        file.write(raw)
        file.seek(0)
        assert read_scalars(file)["a"].values.tolist() == [1, 2]
    path = tmp_path / "tfevents.gz"
    path.write_bytes(gzip.compress(raw))
    assert [e.value for e in read_events(path)] == [1, 2]
    (tmp_path / "tfevents.empty").write_bytes(b"")
    assert list(read_events(tmp_path / "tfevents.empty")) == []


def test_wrong_calls_fail_at_once(tmp_path):
    path = write(tmp_path, scalar("a", 1))
    with pytest.raises(UsageError, match="on_corrupt='ignore'"):
        read_events(path, on_corrupt="ignore")
    with pytest.raises(UsageError, match="unknown framework 'mxnet'"):
        read_events(path, to="mxnet")
    with pytest.raises(UsageError, match="tfevents"):
        read_events((tmp_path / "empty").mkdir() or tmp_path / "empty")
    with pytest.raises(UsageError, match="no files to read"):
        read_scalars([])
    with pytest.raises(UsageError, match="expected path"):
        read_events(b"tfevents")
    with pytest.raises(UsageError, match="expected path"):
        read_events(Split(path, 0, 10))
    with pytest.raises(FileNotFoundError):
        read_events(tmp_path / "absent")


def test_an_event_is_immutable_and_short_in_print(tmp_path):
    (found,) = read_events(write(tmp_path, event_bytes(field(1, "x") + field(3, bytes(10_000)))))
    with pytest.raises(AttributeError):
        found.step = 3
    assert len(repr(found)) < 200
    assert repr(Event(0.0, 3, "loss", "scalar", 1.5)) == "Event(step=3, tag='loss', kind='scalar', value=1.5)"


# ---- damage -----------------------------------------------------------------

SMALL = [scalar("loss", 1, step=1), scalar("rate", 2, step=2), scalar("loss", 3, step=3)]


def until_error(events):
    """(what came before an error, the error or None)"""
    got = []
    try:
        for found in events:
            got.append(found)
    except CorruptError as error:
        return got, error
    return got, None


def borders(payloads):
    return np.cumsum([0] + [len(payload) + 16 for payload in payloads]).tolist()


def test_a_cut_file_is_reported_and_what_is_whole_can_be_read(tmp_path):
    whole = framed(*SMALL)
    ends = borders(SMALL)
    path = tmp_path / "tfevents"
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        intact = sum(end <= size for end in ends) - 1
        steps = [1, 2, 3][:intact]
        assert [e.step for e in read_events(path, live=True)] == steps
        got, error = until_error(read_events(path))
        assert [e.step for e in got] == steps
        if size in ends:
            assert error is None
        else:
            assert (error.at, error.path, "live=True" in str(error)) == (ends[intact], str(path), True)
            with pytest.warns(DamageWarning):
                assert [e.step for e in read_events(path, on_corrupt="skip")] == steps


def test_a_record_cut_in_the_middle_of_a_file_is_damage(tmp_path):
    """A writer died there, and another one went on."""
    path = tmp_path / "tfevents"
    torn = framed(scalar("a long tag" * 30, 2))[:40]
    path.write_bytes(framed(SMALL[0]) + torn + framed(SMALL[2]))
    for live in (False, True):
        got, error = until_error(read_events(path, live=live))
        assert ([e.step for e in got], error.at) == ([1], len(framed(SMALL[0])))
        with pytest.warns(DamageWarning, match="record 1"):
            assert [e.step for e in read_events(path, live=live, on_corrupt="skip")] == [1, 3]


@pytest.mark.parametrize("live", [False, True])
def test_damage_is_reported_and_read_around(tmp_path, live):
    whole, ends = framed(*SMALL), borders(SMALL)
    path = tmp_path / "tfevents"
    for at in range(ends[1], ends[2]):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        path.write_bytes(damaged)
        got, error = until_error(read_events(path, live=live))
        assert [e.step for e in got] == [1]
        assert (error.path, ends[1] <= error.at < ends[2]) == (str(path), True)
        with pytest.warns(DamageWarning):
            kept = [e.step for e in read_events(path, live=live, on_corrupt="skip")]
        assert kept in ([1, 3], [1, 2, 3])  # a damaged header need not cost the record


MALFORMED = {
    "an Event that is not a message": (b"\xff", 0),
    "wall_time as a varint": (number(1, 3), 0),
    "step as a double": (key(2, FIXED64) + bytes(8), 0),
    "a summary of the wrong wire type": (number(5, 3), 0),
    "a summary that runs past its event": (key(5, DELIMITED) + b"\x7f", 0),
    "a value of the wrong wire type": (field(5, number(1, 1)), 2),
    "a tag that is not UTF-8": (event_bytes(field(1, b"\xff")), 13 + 2),
    "simple_value as a double": (event_bytes(key(2, FIXED64) + bytes(8)), 13 + 2),
    "a tensor as a varint": (event_bytes(number(8, 1)), 13 + 2),
    "a cut tensor": (event_bytes(field(8, b"\x08\x01\x12")), 13 + 2 + 2 + 3),
    "a tensor without a dtype": (event_bytes(field(8, b"")), 13 + 2 + 2),
    "packed doubles of 7 bytes": (event_bytes(field(5, field(6, bytes(7)))), 13 + 2 + 2),
    "an image's height as text": (event_bytes(field(4, field(1, "3"))), 13 + 2 + 2),
    "a sample rate as a double": (event_bytes(field(6, key(1, FIXED64) + bytes(8))), 13 + 2 + 2),
    "a plugin name that is not UTF-8": (event_bytes(field(9, field(1, field(1, b"\xff")))), 13 + 2 + 2 + 2),
    "the tag of run metadata that is not UTF-8": (field(8, field(1, b"\xff")), 2),
    "a group without an end": (key(20, START_GROUP), 2),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_is_located(tmp_path, name):
    payload, at = MALFORMED[name]
    first = scalar("a", 1)
    path = write(tmp_path, first, payload, scalar("a", 2))
    got, error = until_error(read_events(path))
    start = len(framed(first)) + 12
    assert (error.path, error.at - start, [e.value for e in got]) == (path, at, [1])
    with pytest.warns(DamageWarning, match="record 1"):
        assert [e.value for e in read_events(path, on_corrupt="skip")] == [1, 2]


def test_claims_of_memory_are_refused(tmp_path):
    claim = tensor_proto(1, (1 << 40,), key(5, FIXED32) + bytes(4))
    path = write(tmp_path, event_bytes(value_of("huge", claim, "scalars")))
    for read in (lambda **limits: list(read_events(path, **limits)), lambda **limits: read_scalars(path, **limits)):
        with pytest.raises(LimitError, match=r"tfevents.1: the tensor of tag 'huge': .* bytes .*\(byte \d+\)"):
            read()
    small = write(tmp_path, event_bytes(value_of("small", tensor_proto(1, (1000,), b""))))
    with pytest.raises(LimitError):
        list(read_events(small, limits=Limits(max_bytes=100)))
    variant = write(tmp_path, event_bytes(value_of("v", tensor_proto(21, (), field(15, b"")))))
    with pytest.raises(UnsupportedError, match="tag 'v'"):
        list(read_events(variant))


# ---- the grammar ------------------------------------------------------------


@st.composite
def unknown_field(draw):
    """A field that no message of ours has."""
    which = draw(st.integers(200, 300))
    match draw(st.integers(0, 4)):
        case 0:
            return number(which, draw(st.integers(0, 300)))
        case 1:
            return field(which, draw(st.binary(max_size=3)))
        case 2:
            return key(which, FIXED32) + bytes(4)
        case 3:
            return key(which, FIXED64) + bytes(8)
    return key(which, START_GROUP) + number(1, 1) + key(which, END_GROUP)


def message(*parts):
    """Any number of these fields, in any order, with unknown ones between them."""
    return st.lists(st.one_of(*parts, unknown_field()), max_size=5).map(b"".join)


def varint_field(which):
    values = st.sampled_from([0, 1, 127, 128, (1 << 31) - 1, 1 << 31, 1 << 32, -1, 1 << 63])
    encodings = st.sampled_from([varint, lambda value: overlong(value & (1 << 64) - 1, 10)])
    return st.builds(lambda value, encode: key(which, VARINT) + encode(value), values, encodings)


def delimited_field(which, content):
    lengths = st.sampled_from([varint, lambda value: overlong(value, 4)])
    return st.builds(lambda raw, length: key(which, DELIMITED) + length(len(raw)) + raw, content, lengths)


def text_field(which):
    return delimited_field(which, st.sampled_from([b"", b"a", "ü".encode(), b"scalars", b"text"]))


def double_field(which):
    return st.floats(width=64).map(lambda value: key(which, FIXED64) + struct.pack("<d", value))


def float_field(which):
    return st.floats(width=32).map(lambda value: key(which, FIXED32) + struct.pack("<f", value))


def packed(which):
    return delimited_field(which, st.lists(st.floats(), max_size=3).map(lambda xs: struct.pack(f"<{len(xs)}d", *xs)))


SCALAR_TENSOR = st.sampled_from([
    b"\x08\x01", b"\x08\x01\x12\x00\x22\x04\x00\x00\xc0\x3f", b"\x08\x01\x2d\x00\x00\x80\x3f", b"\x12\x00",
    b"\x22\x04\x00\x00\x00\x40", b"\x08\x01\x12\x04\x12\x02\x08\x02",
])  # fmt: skip
IMAGE = message(varint_field(1), varint_field(2), varint_field(3), delimited_field(4, st.binary(max_size=3)))
HISTOGRAM = message(*map(double_field, range(1, 8)), packed(6), packed(7))
AUDIO = message(
    float_field(1), varint_field(2), varint_field(3), delimited_field(4, st.binary(max_size=3)), text_field(5)
)
PLUGIN = message(text_field(1), delimited_field(2, st.binary(max_size=3)))
METADATA = message(delimited_field(1, PLUGIN), text_field(2), text_field(3), varint_field(4))
VALUE = message(
    text_field(1), float_field(2), delimited_field(3, st.binary(max_size=3)), delimited_field(4, IMAGE),
    delimited_field(5, HISTOGRAM), delimited_field(6, AUDIO), text_field(7), delimited_field(8, SCALAR_TENSOR),
    delimited_field(9, METADATA),
)  # fmt: skip
SUMMARY = message(delimited_field(1, VALUE))
EVENT = message(
    double_field(1), varint_field(2), text_field(3), delimited_field(4, st.binary(max_size=3)),
    delimited_field(5, SUMMARY), delimited_field(5, SUMMARY),
    delimited_field(6, message(varint_field(1), text_field(2))),
    delimited_field(7, message(varint_field(1), text_field(2))),
    delimited_field(8, message(text_field(1), delimited_field(2, st.binary(max_size=3)))),
    delimited_field(9, st.binary(max_size=3)), delimited_field(10, message(text_field(1))),
)  # fmt: skip


# Several values, with few tags among them.
FULL_EVENT = st.lists(delimited_field(1, st.builds(bytes.__add__, text_field(1), VALUE)), min_size=1, max_size=4).map(
    lambda values: field(5, b"".join(values))
)


def refused(x):
    """Whether a TensorProto of float32 has no dtype, or other values than its shape takes.

    TensorFlow refuses some of them too, and drops values of the rest in silence.
    """
    size = math.prod(dim.size for dim in x.tensor_shape.dim)
    content, values = len(x.tensor_content), len(x.float_val)
    return x.dtype == 0 or (content and (values or content != 4 * size)) or values > size


def same_message(parsed, mine):
    """The members that are handed on as they stand may spell the same message in another way."""
    kinds = {"log": event_pb2.LogMessage, "session": event_pb2.SessionLog, "source": event_pb2.SourceMetadata}
    parse = kinds.get(mine[4], lambda: None)()
    if parse is None or mine[:5] != parsed[:5]:
        return mine == parsed
    return parse.FromString(mine[5]) == parse.FromString(parsed[5])


@given(st.lists(EVENT | FULL_EVENT, min_size=1, max_size=2))
def test_every_form_that_protobuf_knows_reads_the_same(payloads):
    parsed = [event_pb2.Event.FromString(payload) for payload in payloads]
    try:
        found = ours(read_events(io.BytesIO(framed(*payloads))))
    except CorruptError:
        event("refused")
        values = [value for message in parsed for value in message.summary.value]
        assert any(refused(value.tensor) for value in values if value.HasField("tensor"))
        return
    wanted = list(expected(parsed))
    assert len(found) == len(wanted)
    assert all(map(same_message, wanted, found)), (found, wanted)
    for kind in {part[4] for part in found}:
        event(kind)


@given(st.data())
def test_only_our_exceptions_leave(tf1_file, data):
    """Bytes of real events changed at random, under checksums that are right."""
    payloads = list(golden_payloads(tf1_file))
    which = data.draw(st.integers(0, len(payloads) - 1))
    raw = bytearray(payloads[which])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        match data.draw(st.integers(0, 2)):
            case 0:
                raw[at : at + 1] = data.draw(st.binary(min_size=1, max_size=1))
            case 1:
                raw[at:at] = data.draw(st.binary(max_size=3))
            case 2:
                del raw[at : at + data.draw(st.integers(1, 4))]
    changed = framed(*payloads[:which], bytes(raw), *payloads[which + 1 :])
    limits = Limits(max_bytes=1 << 20)
    for to in ("numpy", "tensor"):
        try:
            list(map(repr, read_events(io.BytesIO(changed), to=to, limits=limits)))
            event("read")
        except TensorbytesError as error:
            event(type(error).__name__)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        try:
            read_scalars(io.BytesIO(changed), on_corrupt="skip", limits=limits)
        except (LimitError, UnsupportedError):
            event("skipped nothing")


def golden_payloads(path):
    """The records of a file without its graph, which no test here needs to be so large."""
    with open(path, "rb") as file:
        return [payload for payload in split_records(file.read()) if len(payload) < 2000]
