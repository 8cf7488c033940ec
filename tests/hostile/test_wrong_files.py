"""Files that are none of tensors are called by their names, and errors name the file they are about."""

import bz2
import errno
import gzip
import io
import json
import lzma
import os
import pickle
import tarfile
import tempfile
import threading
import tomllib
import zipfile

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.cli.hints import in_commands
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.view import report
from tests.support import ROOT


def zipped(name):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"text")
    return file.getvalue()


def tarred(name):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return file.getvalue()


HTML = b"\n  <!DocType HTML>\n<html><body>404 Not Found</body></html>"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
WRONG = {
    "html": (HTML, "an HTML page, not tensors: a failed download?"),
    "html without doctype": (b"\xef\xbb\xbf<html lang='en'>" + bytes(100), "an HTML page"),
    "xml": (b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>", "XML, not tensors"),
    "json": (b'{"error": "Repository not found"}', "JSON, not tensors: an error message"),
    "indented json": (json.dumps({"weight_map": {}}, indent=2).encode(), "JSON"),
    "lfs": (POINTER, "run `git lfs pull`"),
    "gzip": (gzip.compress(tb.dumps(np.arange(9))), "gzip-compressed; decompress it first"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00" + bytes(50), "zstd-compressed; decompress it first"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(100), "HDF5, which is not read here"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(50), "a PNG image"),
    "pdf": (b"%PDF-1.7\n" + bytes(50), "a PDF document"),
    "elf": (b"\x7fELF\x02\x01\x01" + bytes(50), "ELF"),
    "zip": (zipped("readme.txt"), "a zip archive, and neither npz nor"),
    "keras": (zipped("metadata.json"), "a Keras model .* load it with keras"),
    "tar": (tarred("readme.txt"), "a tar archive; unpack it first"),
    "bzip2": (bz2.compress(b"text" * 50), "bzip2-compressed; decompress it first"),
    "xz": (lzma.compress(b"text" * 50), "xz-compressed; decompress it first"),
    "jpeg": (b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(50), "a JPEG image, which is not read here; decode it"),
    "wav": (b"RIFF\x24\0\0\0WAVEfmt " + bytes(50), "sound, which is not read here"),
    "sqlite": (b"SQLite format 3\0" + bytes(100), "an SQLite database"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(100), "a TensorFlow Lite model"),
    "onnx runtime": (b"\x20\0\0\0ORTM" + bytes(50), r"ONNX Runtime \(.ort\)"),
    "onnx text": (b'<\n  ir_version: 10,\n  opset_import: ["" : 21]\n>\ng () => () {}\n', "an ONNX model as text"),
    "protobuf text": (b'ir_version: 10\ngraph {\n  name: "g"\n}\n', "an ONNX model as text"),
    "graph text": (b'node {\n  name: "x"\n  op: "Placeholder"\n}\n', "a TensorFlow graph as text"),
    "matlab": (b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(128) + bytes(50), "scipy.io.loadmat"),
}
WRONG |= {
    f"pickle {n}": (pickle.dumps({"w": np.arange(3)}, n), "a pickle, which is never read here")
    for n in (0, *range(2, 6))
}


def readers(path, **options):
    yield lambda: tb.load(path, **options)
    yield lambda: tb.load(path, mmap=True, **options)
    yield lambda: tb.open(path, **options)


@pytest.mark.parametrize("suffix", ["", ".safetensors", ".npy", ".tb", ".pb", ".gguf"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_named(tmp_path, kind, suffix):
    data, words = WRONG[kind]
    path = tmp_path / f"model{suffix}"
    path.write_bytes(data)
    for read in readers(path):
        with pytest.raises(tb.errors.UsageError, match=words) as caught:
            read()
        assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("format", ["tb", "safetensors", "npy", "tensorproto", "arrow"])
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_file_is_named_whatever_it_was_taken_for(tmp_path, kind, format):
    data, words = WRONG[kind]
    with pytest.raises(tb.errors.UsageError, match=words):
        tb.loads(data, format)
    path = tmp_path / "x"
    path.write_bytes(data + bytes(1 << 21))  # large files are read in another way
    with pytest.raises(tb.errors.UsageError, match=words):
        tb.load(path, format)


def _saved_model(folder):
    tf = pytest.importorskip("tensorflow")
    module = tf.Module()
    module.v = tf.Variable([1.0, 2.0])
    module.f = tf.function(lambda x: x + module.v, input_signature=[tf.TensorSpec([2])])
    tf.saved_model.save(module, str(folder))
    return module.f.get_concrete_function().graph.as_graph_def().SerializeToString()


def test_messages_of_tensorflow_are_named(tmp_path):
    """Protobuf has no magic, and most of these end in .pb."""
    graph = _saved_model(tmp_path / "model")
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "graph.pb").write_bytes(graph)
    for name in ("saved_model.pb", "fingerprint.pb"):
        (alone / name).write_bytes((tmp_path / "model" / name).read_bytes())
    for name, words in {
        "graph.pb": r"GraphDef.*tf\.make_ndarray",
        "saved_model.pb": "graph of a SavedModel.*pass its folder",
        "fingerprint.pb": "fingerprint of a SavedModel.*folder",
    }.items():
        for path in (alone / name, alone / f"{name}.renamed"):
            path.write_bytes((alone / name).read_bytes())
            with pytest.raises(tb.errors.UsageError, match=words):
                tb.load(path)
    assert tb.load(tmp_path / "model" / "saved_model.pb", keys="clean")["v"].tolist() == [1, 2]
    assert tb.verify(tmp_path / "model" / "variables" / "variables.index").ok


def test_what_keras_keeps_of_a_saved_model_is_named(tmp_path):
    messages = pytest.importorskip("tensorflow.python.keras.protobuf.saved_metadata_pb2")
    found = messages.SavedMetadata()
    found.nodes.add(node_id=0, node_path="root", identifier="_tf_keras_sequential", metadata="{}")
    (tmp_path / "keras_metadata.pb").write_bytes(found.SerializeToString())
    with pytest.raises(tb.errors.UsageError, match="Keras keeps of a SavedModel"):
        tb.load(tmp_path / "keras_metadata.pb")


def test_the_graph_beside_a_checkpoint_is_named(tmp_path):
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default():
        tf.compat.v1.get_variable("v", initializer=tf.ones([3]))
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    with pytest.raises(tb.errors.UsageError, match=r"graph that belongs to a TensorFlow checkpoint.*prefix"):
        tb.load(tmp_path / "model.ckpt.meta")
    assert tb.load(tmp_path / "model.ckpt")["v"].tolist() == [1, 1, 1]


def test_what_jax_s_libraries_write_is_named(tmp_path):
    flax = pytest.importorskip("flax.serialization")
    path = tmp_path / "state"
    for state in ({"params": {"dense": {"kernel": np.zeros((2, 2), "f4")}}}, {"a": np.arange(3), "b": np.ones(300)}):
        path.write_bytes(flax.to_bytes(state))
        with pytest.raises(tb.errors.UsageError, match=r"Flax.*msgpack_restore"):
            tb.load(path)
    records = pytest.importorskip("array_record.python.array_record_module")
    writer = records.ArrayRecordWriter(str(tmp_path / "x.array_record"), "group_size:1")
    writer.write(b"one")
    writer.close()
    with pytest.raises(tb.errors.UsageError, match=r"Riegeli, or an ArrayRecord.*RecordWriter"):
        tb.load(tmp_path / "x.array_record")


def test_a_folder_of_orbax_is_named(tmp_path):
    orbax = pytest.importorskip("orbax.checkpoint")
    with orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", {"w": np.zeros(2)})
    with pytest.raises(tb.errors.UsageError, match=r"Orbax.*orbax\.checkpoint"):
        tb.load(tmp_path / "state")


def test_what_a_saved_model_keeps_for_itself_is_left_out_by_an_option(tmp_path):
    _saved_model(tmp_path / "model")
    with pytest.raises(tb.errors.LossError, match=r"_CHECKPOINTABLE_OBJECT_GRAPH") as caught:
        tb.convert(tmp_path / "model", tmp_path / "m.safetensors")
    assert "read_options={'keys': 'clean'}" in str(caught.value)
    assert in_commands(caught.value.hints[0]).startswith("pass --read-option keys=clean")
    tb.convert(tmp_path / "model", tmp_path / "m.safetensors", read_options={"keys": "clean"}, verify=True)
    assert tb.load(tmp_path / "m.safetensors")["v"].tolist() == [1, 2]


def test_events_point_to_their_reader(tmp_path):
    tf = pytest.importorskip("tensorflow")
    writer = tf.summary.create_file_writer(str(tmp_path))
    with writer.as_default():
        tf.summary.scalar("loss", 1.0, step=1)
    writer.close()
    (path,) = tmp_path.iterdir()
    with pytest.raises(tb.errors.UsageError, match=r"records\.read_events"):
        tb.load(path)


def test_a_safetensors_header_after_white_space_is_recognised(tmp_path):
    raw = tb.dumps({"w": np.arange(3.0)}, "safetensors")
    size = int.from_bytes(raw[:8], "little")
    for space in (b" ", b"\n\t  \r "):
        header = space + raw[8 : 8 + size]
        path = tmp_path / "weights"
        path.write_bytes(len(header).to_bytes(8, "little") + header + raw[8 + size :])
        assert tb.load(path)["w"].tolist() == [0, 1, 2]


def test_any_bytes_are_raw_when_asked_for(tmp_path):
    path = tmp_path / "x.bin"
    for data, _ in WRONG.values():
        assert tb.loads(data, "raw", dtype="uint8").tobytes() == data
        path.write_bytes(data)
        assert tb.load(path, "raw", dtype="uint8").tobytes() == data
    path.write_bytes(WRONG["gzip"][0])
    assert tb.load(path, dtype="uint8").tobytes() == WRONG["gzip"][0]
    for data in (HTML, POINTER):
        path.write_bytes(data)
        with pytest.raises(tb.errors.UsageError, match=r"HTML|LFS"):
            tb.load(path, dtype="uint8")


@pytest.mark.parametrize("kind", WRONG)
def test_inspect_names_them_even_where_the_name_says_raw_bytes(tmp_path, kind):
    data, words = WRONG[kind]
    for name in ("x.bin", "x.raw", "x"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(tb.errors.UsageError, match=words):
            tb.inspect(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,c\n1,2,3\n4,5,6\n", r"a table \(CSV\)"),
        ("x\ty\n1\t2\n", r"a table \(CSV\)"),
        ("Ein Satz, und noch\nein Wort über Köln.\n", "text, not tensors"),
        ("[[1, 2], [3, 4]]", "looks like JSON"),
    ],
)
def test_text_is_named_where_nothing_else_is_said(tmp_path, text, words):
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(tb.errors.UsageError, match=words):
        tb.load(path)
    assert tb.load(path, "raw", dtype="uint8").tobytes() == text.encode()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("zarr.json", "a Zarr store"),
        ("_CHECKPOINT_METADATA", "a checkpoint of Orbax"),
        ("__0_0.distcp", "a distributed checkpoint of torch"),
        ("a.npy", r"pass a file in it \(a\.npy\)"),
        ("readme.txt", "not a recognised checkpoint folder"),
        (None, "an empty folder"),
    ],
)
def test_a_wrong_folder_is_named(tmp_path, name, words):
    if name:
        (tmp_path / name).write_text("{}")
    for read in (tb.load, tb.open, tb.inspect):
        with pytest.raises(tb.errors.UsageError, match=words):
            read(tmp_path)


def test_the_data_of_a_checkpoint_alone(tmp_path):
    path = tmp_path / "model.data-00000-of-00001"
    path.write_bytes(np.ones(100, np.float32).tobytes())
    with pytest.raises(tb.errors.UsageError, match=r"pass model or model\.index"):
        tb.load(path)


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x0480, 0x0580])
def test_lengths_that_look_like_a_pickle(length):
    """A safetensors header of 640 bytes starts with 80 02, also when the file was cut."""
    whole = tb.dumps({"w": np.arange(1000)}, "safetensors")
    size = int.from_bytes(whole[:8], "little")
    data = length.to_bytes(8, "little") + whole[8 : 8 + size].ljust(length) + whole[8 + size :]
    assert tb.loads(data)["w"][7] == 7
    with pytest.raises(tb.errors.CorruptError):
        tb.loads(data[:100], "safetensors")


def test_a_zip_of_ours_that_starts_with_another_member():
    file = io.BytesIO(zipped("readme.txt"))
    with zipfile.ZipFile(file, "a") as archive:
        one = io.BytesIO()
        np.save(one, np.arange(3))
        archive.writestr("a.npy", one.getvalue())
    with pytest.raises(tb.errors.UnsupportedError, match=r"member 'readme\.txt' is not an npy array") as caught:
        tb.loads(file.getvalue(), "npz")
    assert "zip archive" not in str(caught.value)


def test_an_empty_file(tmp_path):
    for name, words in [("x", "an empty stream"), ("x.tb", "an empty stream"), ("x.npz", "an empty file")]:
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(tb.errors.CorruptError, match=words) as caught:
            tb.load(tmp_path / name)
        assert ("stream" in str(caught.value)) == ("stream" in words)
    assert list(tb.open(tmp_path / "x")) == []
    with pytest.raises(tb.errors.CorruptError, match="an empty file"):
        tb.open(tmp_path / "x.npz")


# ---- streams ----------------------------------------------------------------


def piped(data):
    r, w = os.pipe()
    with os.fdopen(w, "wb") as writer:
        writer.write(data)
    return os.fdopen(r, "rb")


@pytest.mark.parametrize("format", ["npz", "npy", "safetensors", "torchfile"])
def test_a_pipe_of_another_format(format):
    data = tb.dumps({"w": np.arange(3)} if format != "npy" else np.arange(3), format)
    with (
        piped(data) as file,
        pytest.raises(
            tb.errors.CorruptError,
            match=rf"not a tb stream \(it looks like {format}\) \(byte 0\); load\(file\) reads it",
        ),
    ):
        list(tb.open(file))
    with piped(data) as file:
        assert tb.load(file) is not None


def test_a_pipe_of_something_else():
    with piped(HTML) as file, pytest.raises(tb.errors.UsageError, match="an HTML page"):
        list(tb.open(file))
    with piped(bytes(range(40))) as file, pytest.raises(tb.errors.CorruptError, match="checksum of a record's length"):
        list(tb.open(file))


def test_a_named_pipe_is_opened_once(tmp_path, monkeypatch):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    looked_at, opened = [], io.FileIO

    def look(path, *arguments, **options):
        if options:  # a lock file
            return opened(path, *arguments, **options)
        looked_at.append(path)
        return open(path, "rb", buffering=0)

    monkeypatch.setattr(io, "FileIO", look)  # the way in which regular files are looked at first
    writer = threading.Thread(target=lambda: fifo.write_bytes(tb.dumps(np.arange(5))), daemon=True)
    writer.start()
    assert tb.load(fifo).tolist() == [0, 1, 2, 3, 4]
    writer.join()
    assert looked_at == []
    tb.save(np.arange(5), tmp_path / "x.tb")
    tb.load(tmp_path / "x.tb")
    assert looked_at == [tmp_path / "x.tb"]


def test_file_objects_without_a_path():
    with tempfile.TemporaryFile() as file:
        assert storage.describe(file) == "<BufferedRandom>"
        tb.save(np.arange(3), file)
        file.seek(0)
        assert tb.load(file).tolist() == [0, 1, 2]
        file.seek(0)
        with tb.open(file) as reader:
            assert reader.path == "<BufferedRandom>"
        file.seek(0)
        file.truncate()
        file.write(b"\xd3hat is this?")
        file.seek(0)
        with pytest.raises(tb.errors.UsageError, match="<BufferedRandom>: can't tell the format"):
            tb.load(file)
    with io.FileIO(os.devnull.encode()) as file:
        assert storage.describe(file) == os.devnull


def test_files_opened_as_text(tmp_path):
    path = tmp_path / "x.tb"
    tb.save(np.arange(3), path)
    with open(path, encoding="latin-1") as file:
        for verb in (tb.load, tb.open):
            with pytest.raises(tb.errors.UsageError, match=r"x\.tb: it was opened as text; open it in binary mode"):
                verb(file)
    with pytest.raises(tb.errors.UsageError, match="opened as text"):
        tb.save(np.arange(3), io.StringIO())
    with (
        tempfile.NamedTemporaryFile("w+", encoding="utf-8") as file,
        pytest.raises(tb.errors.UsageError, match="opened as text"),
    ):
        tb.load(file)

    class Text:
        def read(self):
            return "text"

    with pytest.raises(tb.errors.UsageError, match="opened as text"):
        tb.load(Text())


# ---- names of files in errors -----------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        tb.errors.UnsupportedError("odd"),
        tb.errors.LimitError("odd"),
        tb.errors.UsageError("odd"),
        tb.errors.LossError("odd", feature="kind"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_get_the_files_name_once(error):
    with pytest.raises(type(error), match=r"^x\.tb: odd$") as caught, naming("x.tb"), naming("x.tb"):
        raise error
    assert caught.value is error
    assert getattr(error, "feature", "kind") == "kind"


def test_an_error_of_decoding_names_its_file(tmp_path):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(range(9)))
    with pytest.raises(tb.errors.UsageError, match="raw bytes don't tell their dtype") as caught:
        tb.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    tb.save(np.zeros((1,) * 8), tmp_path / "x.npy")
    with pytest.raises(tb.errors.LimitError) as limited:
        tb.load(tmp_path / "x.npy", limits=tb.errors.Limits(max_rank=2))
    assert str(limited.value).startswith(f"{tmp_path / 'x.npy'}: ")


def test_errors_of_the_system_name_the_target(tmp_path, monkeypatch):
    path = tmp_path / "none" / "x.npz"
    with pytest.raises(FileNotFoundError) as caught:
        tb.save({"a": np.ones(3)}, path)
    assert (caught.value.filename, caught.value.errno) == (str(path), errno.ENOENT)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x.npz"
    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_all", full)
        with pytest.raises(OSError, match=r"x\.npz'$") as no_room:
            tb.save({"a": np.ones(3)}, path)
    assert (no_room.value.filename, no_room.value.errno) == (str(path), errno.ENOSPC)

    def refused(source, target):
        raise PermissionError(errno.EACCES, "Permission denied", source, None, target)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError) as denied:
        tb.save({"a": np.ones(3)}, path)
    assert (denied.value.filename, denied.value.filename2) == (str(path), None)
    assert list(tmp_path.iterdir()) == []


def test_other_errors_of_a_block_pass_as_they_are(tmp_path):
    for error in (OSError(errno.EIO, "odd"), OSError("plain"), FileNotFoundError(errno.ENOENT, "odd", "source")):
        with pytest.raises(OSError) as caught, storage.replacing(str(tmp_path / "x")):  # noqa: PT011
            raise error
        assert caught.value is error


@pytest.mark.parametrize("write", [lambda path: tb.open(path, "w"), tb.RecordWriter], ids=["stream", "records"])
def test_writers_name_the_file_they_were_given(tmp_path, write):
    with pytest.raises(FileNotFoundError) as caught:
        write(tmp_path / "nowhere" / "x.tb")
    assert caught.value.filename == str(tmp_path / "nowhere" / "x.tb")


@pytest.mark.parametrize(
    "write",
    [
        lambda path: tb.save({"a": np.ones(3)}, path / "x.npz"),
        lambda path: tb.save({"a": np.ones(3)}, path / "x.safetensors"),
        lambda path: tb.save({"a": np.ones(3), "b": np.ones(3)}, path / "x.safetensors", max_shard_bytes=24),
        lambda path: tb.save({"a": np.ones(3)}, path / "x.ckpt"),
        lambda path: tb.open(path / "x.tb", "w"),
        lambda path: tb.RecordWriter(path / "x.tfrecord"),
        lambda path: tb.RecordWriter(path / "x.tfrecord", mode="a"),
        lambda path: report(path.parent / "m.tb", path / "x.html"),
        lambda path: tb.split(path.parent / "m.tb", path / "x.tb", shards=2),
    ],
    ids=["npz", "safetensors", "shards", "checkpoint", "stream", "records", "append", "report", "split"],
)
def test_a_folder_that_is_not_there_is_named(tmp_path, write):
    tb.save({"a": np.ones(3), "b": np.ones(3)}, tmp_path / "m.tb")
    folder = tmp_path / "nowhere"
    with pytest.raises(FileNotFoundError) as caught:
        write(folder)
    assert caught.value.strerror == f"the folder {folder} does not exist"
    assert caught.value.filename.startswith(f"{folder}/x")
    assert not caught.value.filename.endswith(".tmp")
    assert [path.name for path in tmp_path.iterdir()] == ["m.tb"]


def test_an_empty_archive_is_an_npz_file_if_it_is_called_so(tmp_path):
    np.savez(tmp_path / "none.npz")
    assert tb.load(tmp_path / "none.npz") == {}
    with zipfile.ZipFile(tmp_path / "none.zip", "w"):
        pass
    assert (tmp_path / "none.zip").read_bytes() == (tmp_path / "none.npz").read_bytes()
    for verb in (tb.load, tb.open, tb.inspect):
        with pytest.raises(tb.errors.UsageError, match=r"none\.zip: an empty zip archive"):
            verb(tmp_path / "none.zip")
    assert tb.load(tmp_path / "none.zip", "npz") == {}


def test_files_of_other_formats_are_no_damaged_records(tmp_path):
    arrays = {"a": np.ones(300)}
    for name in ("x.npz", "x.npy", "x.safetensors", "x.pt", "x.arrow", "x.parquet"):
        tb.save(arrays if name != "x.npy" else arrays["a"], tmp_path / name)
        for read in (lambda records: records[0], lambda records: next(iter(records)), len, lambda r: r.schema):
            with pytest.raises(tb.errors.UsageError, match=r"a file of format '\w+', without records; tb\.open"):
                read(tb.open_records(tmp_path / name))
    for call in (lambda path: tb.verify(path, "tfrecord"), lambda path: tb.repair(path, tmp_path / "y", "tfrecord")):
        with pytest.raises(tb.errors.UsageError, match="without records; pass format='npz' to have"):
            call(tmp_path / "x.npz")
    assert not (tmp_path / "y").exists()


def test_a_slip_of_the_pen_is_understood(tmp_path):
    with pytest.raises(tb.errors.UsageError, match=r"no option 'compresion' here; .*did you mean 'compression'"):
        tb.save(np.ones(3), tmp_path / "x.tb", compresion="zstd")
    for name in ("x.unheardof", "x.gz"):
        with pytest.raises(tb.errors.UsageError, match="one of tb, tfrecord, safetensors, npy") as caught:
            tb.save(np.ones(3), tmp_path / name)
        assert "gguf" not in str(caught.value)
    tb.save({"a": np.ones(3)}, tmp_path / "x.tb")
    with pytest.raises(tb.errors.UsageError, match="one of tb, tfrecord, safetensors, npy") as caught:
        tb.convert(tmp_path / "x.tb", tmp_path / "x.unheardof")
    assert "gguf" not in str(caught.value)


@pytest.mark.parametrize(("extra", "package"), [("arrow", "pyarrow"), ("cloud", "fsspec"), ("torch", "torch")])
def test_a_missing_package_is_named(extra, package):
    said = str(tb.errors.MissingDependencyError("this", extra))
    assert said == f"this needs the optional package {package}: pip install 'tensorbytes[{extra}]'"
    with open(ROOT / "pyproject.toml", "rb") as file:
        assert tomllib.load(file)["project"]["optional-dependencies"][extra][0].startswith(package)
