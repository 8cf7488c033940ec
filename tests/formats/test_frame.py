"""The native frame as others read it: TensorFlow, and code that protoc generates."""

import importlib
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import dtypes
from tensorbytes._wire import reference
from tensorbytes.formats import _extension
from tests.support import ROOT
from tests.support.golden import write

SPEC = ROOT / "spec"


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The module that protoc makes of spec/tensorbytes.proto."""
    folder = tmp_path_factory.mktemp("protoc")
    # In a process of its own: the compiler and TensorFlow each bring their protobuf.
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SPEC}", f"--python_out={folder}", "tensorbytes.proto"]
    subprocess.run(command, check=True)
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("tensorbytes_pb2")
    finally:
        sys.path.remove(str(folder))


def payloads(path):
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


# ---- TensorFlow -------------------------------------------------------------

TF_DENSE = [row for row in dtypes.DTYPES.values() if row.in_tensorflow and row.numpy and row.bits >= 8]


@pytest.mark.parametrize("row", TF_DENSE, ids=lambda row: row.name)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (40, 70)], ids=str)
def test_tensorflow_reads_a_file(tmp_path, row, shape):
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtypes.to_numpy(row.name))
    tb.save({"x": x, "again": x.copy()}, tmp_path / "x.tb")
    for record in tf.data.TFRecordDataset(str(tmp_path / "x.tb")):
        back = tf.io.parse_tensor(record, x.dtype)  # not in .map(): TensorFlow compiles no graph with float8
        assert back.dtype == x.dtype
        assert back.numpy().tobytes() == x.tobytes()
        assert back.shape == shape


def test_tensorflow_reads_a_stream_in_a_pipeline(tmp_path):
    arrays = [np.random.default_rng(n).random((n, 3), np.float32) for n in range(5)]
    with tb.open(tmp_path / "x.tb", "w") as f:
        for x in arrays:
            f.write(x)
    dataset = tf.data.TFRecordDataset(str(tmp_path / "x.tb")).map(lambda r: tf.io.parse_tensor(r, tf.float32))
    assert [back.tolist() for back in dataset.as_numpy_iterator()] == [x.tolist() for x in arrays]


def test_tensorflow_reads_strings(tmp_path):
    tb.save(np.array([["a", "ü"], ["", "long" * 100]]), tmp_path / "s.tb", name="texts", meta={"lang": "de"})
    (record,) = payloads(tmp_path / "s.tb")
    back = tf.io.parse_tensor(record, tf.string).numpy()
    assert back.tolist() == [[b"a", "ü".encode()], [b"", b"long" * 100]]


def test_tensorflow_reads_coordinates_and_never_takes_them_for_zeros(tmp_path):
    sparse = tf.sparse.from_dense([[0.0, 1.5, 0.0], [2.5, 0.0, 0.0]])
    tb.save(sparse, tmp_path / "s.tb")
    (record,) = payloads(tmp_path / "s.tb")
    strings = tf.io.parse_tensor(record, tf.string)
    assert strings.numpy().tolist() == tf.io.serialize_sparse(sparse).numpy().tolist()
    back = tf.io.deserialize_many_sparse(strings[None], tf.float32)
    assert tf.sparse.to_dense(back).numpy().tolist() == [[[0.0, 1.5, 0.0], [2.5, 0.0, 0.0]]]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.parse_tensor(record, tf.float32)


def test_we_read_what_tensorflow_writes(tmp_path):
    arrays = [np.arange(n, dtype=np.float32).reshape(-1, 1) for n in (1, 5, 2000)]
    with tf.io.TFRecordWriter(str(tmp_path / "tf.tb")) as writer:
        for x in arrays:
            writer.write(tf.io.serialize_tensor(x).numpy())
    back = tb.load(tmp_path / "tf.tb")
    assert [b.tolist() for b in back] == [a.tolist() for a in arrays]
    with tb.open(tmp_path / "tf.tb") as f:  # no header checksum: each record is verified whole
        assert f[2].tolist() == arrays[2].tolist()


def test_a_small_tensor_is_serialize_tensor_in_a_record():
    x = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert tb.dumps(x) == reference.frames([[tf.io.serialize_tensor(x).numpy()]])


# ---- protoc -----------------------------------------------------------------


def test_generated_code_reads_everything(tmp_path, generated):
    obj = {
        "w": np.arange(2048, dtype=np.float32),
        "texts": np.array(["a", "ü"]),
        "deep": [{"x": np.ones(2)}, (None, {-3: 1.5})],
        "ragged": tb.Ragged(tb.Tensor("int32", (3,), np.arange(3, dtype="<i4")), (np.array([0, 1, 3]),)),
        "bf16": np.ones(3, ml_dtypes.bfloat16),
    }
    tb.save(obj, tmp_path / "x.tb", meta={"run": "7"})
    messages = [generated.Tensor.FromString(record) for record in payloads(tmp_path / "x.tb")]
    by_name = {message.name: message for message in messages}

    assert by_name["w"].dtype == 1
    assert [dim.size for dim in by_name["w"].tensor_shape.dim] == [2048]
    assert np.frombuffer(by_name["w"].tensor_content, "<f4").tolist() == list(range(2048))
    assert by_name["w"].header_crc
    assert by_name["w"].path[0].named
    assert dict(by_name["w"].document) == {"run": "7"}
    assert (by_name["texts"].encoding, list(by_name["texts"].string_val)) == ("utf-8", [b"a", "ü".encode()])
    assert [step.WhichOneof("step") for step in by_name["deep/1/1/-3"].path] == ["key", "list", "tuple", "number"]
    assert by_name["deep/1/1/-3"].path[3].number == -3
    assert by_name["deep/1/0"].kind == "none"
    assert by_name["ragged"].layout == "ragged"
    splits, values = (generated.Tensor.FromString(part) for part in by_name["ragged"].string_val)
    assert np.frombuffer(splits.tensor_content, "<i8").tolist() == [0, 1, 3]
    assert np.frombuffer(values.tensor_content, "<i4").tolist() == [0, 1, 2]
    assert [(message.part, message.parts) for message in messages] == [(i, 7) for i in range(7)]


def test_generated_code_reads_directories_aliases_and_tables(tmp_path, generated):
    x = tb.Tensor("float32", (3,), bytes(12), None, {"k": "mine"}, {"k": "ours"})
    tb.save({"a": x, "ü": x, "text": np.array(["a", "bc"], object)}, tmp_path / "x.tb", origin={"o": "p"})
    records = payloads(tmp_path / "x.tb")
    first, alias, _ = (generated.Tensor.FromString(record) for record in records)
    assert (dict(first.meta), dict(first.origin), dict(first.document_origin)) == (
        {"k": "mine"}, {"k": "ours"}, {"o": "p"}
    )  # fmt: skip
    assert (alias.layout, alias.HasField("alias"), alias.alias, list(alias.string_val)) == ("alias", True, 0, [b"a"])
    told = first.directory
    assert (told.names, list(told.lengths)) == ("aütext".encode(), [1, 2, 4])
    assert (list(told.dtypes), list(told.kinds)) == ([1, 1, 7], [16, 16 + 4, 1])
    assert (list(told.ranks), list(told.dims), list(told.nbytes)) == ([1, 1, 1], [3, 3, 2], [3])
    assert list(told.sizes32) == [len(record) for record in records[1:]]
    # Whoever writes it in another way tells the same.
    first.directory.CopyFrom(generated.Directory.FromString(told.SerializeToString()))
    again = reference.frames([[first.SerializeToString()], *([record] for record in records[1:])])
    assert tb.equal(tb.loads(again), tb.load(tmp_path / "x.tb"))
    (tmp_path / "t.tb").write_bytes(write("table"))
    group = [generated.Tensor.FromString(record) for record in payloads(tmp_path / "t.tb")]
    assert [message.rows for message in group if message.HasField("rows")] == [3]
    assert [step.WhichOneof("step") for step in group[2].path] == ["key", "mask"]


def test_we_read_what_generated_code_writes_in_its_own_order(tmp_path, generated):
    """Serializers write fields by number, so the layout comes after the parts and padding is kept."""
    sparse = tb.Sparse(
        "csr", (2, 600), (np.array([0, 600, 600]), np.arange(600)), tb.Tensor("float64", (600,), np.ones(600))
    )
    for value in (sparse, np.arange(4096.0), "text"):
        tb.save(value, tmp_path / "a.tb", name="n")
        messages = [generated.Tensor.FromString(record) for record in payloads(tmp_path / "a.tb")]
        for message in messages:
            message.ClearField("header_crc")  # it vouches for an order of fields
        again = reference.frames([[message.SerializeToString()] for message in messages])
        assert tb.equal(tb.loads(again, to="tensor"), tb.load(tmp_path / "a.tb", to="tensor"))


def test_the_specification_names_every_field_and_code():
    text = (SPEC / "frame.md").read_text()
    proto = (SPEC / "tensorbytes.proto").read_text()
    for row in dtypes.DTYPES.values():
        if row.code >= 1000:
            assert re.search(rf"\| {row.code} \| {row.name} \|", text), row.name
    numbers = {int(n) for n in re.findall(r"= (10\d\d);", proto)}
    assert numbers == set(range(1000, 1018)) == set(range(_extension.NAME, _extension.ALIAS + 1))
    assert f"directory = {_extension.DIRECTORY};" in proto


# ---- alignment --------------------------------------------------------------


@pytest.mark.parametrize("key", ["x" * n for n in (1, 2, 3, 60, 61, 62, 63, 64, 130)])
def test_large_content_is_aligned_in_the_file(tmp_path, key):
    sparse = tb.Sparse(
        "csr", (600, 600), (np.arange(601), np.zeros(600, np.int64)), tb.Tensor("float64", (600,), np.ones(600))
    )
    tb.save({key: np.ones(1024, np.float32), "s": sparse, "b": np.ones((5, 1025))}, tmp_path / "x.tb")
    with tb.open(tmp_path / "x.tb", to="tensor") as f:
        arrays = [f[key].load().numpy(), f["b"].load().numpy(), f["s"].load().values.numpy(), f["s"].load().parts[0]]
        assert [array.ctypes.data % 64 for array in arrays] == [0, 0, 0, 0]
    whole = tb.load(tmp_path / "x.tb")
    assert whole["b"].ctypes.data % 64 == 0
    assert whole["b"].flags.writeable


def test_the_same_input_gives_the_same_bytes():
    def make():
        return {"b": np.ones(5000), "a": [1, "x", None], "m": tb.Tensor("int8", (1,), b"\1", meta={"z": "1", "a": "2"})}

    assert tb.dumps(make(), meta={"k": "v", "a": "b"}) == tb.dumps(make(), meta={"a": "b", "k": "v"})
