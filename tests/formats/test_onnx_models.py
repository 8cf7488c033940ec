"""ONNX models: their weights as a dict, and weights in files beside them."""

import hashlib
import os
import socket
from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper, numpy_helper

import tensorbytes as tb
from tensorbytes import dtypes, formats
from tensorbytes.tensor import Sparse
from tensorbytes.testing import bits
from tests.support import REAL_FILES
from tests.support.holding import holder
from tests.support.wire_bytes import field, number, tag, varint

ONNX = formats.get("onnx")
NAMES = [row.name for row in dtypes.DTYPES.values() if row.onnx is not None]


def model(*tensors, sparse=(), **more):
    graph = helper.make_graph([], "g", [], [], list(tensors), sparse_initializer=list(sparse))
    return helper.make_model(graph, **more)


def sparse(values, indices, shape):
    value = numpy_helper.from_array(np.asarray(values, np.float32), "s")
    index = numpy_helper.from_array(np.asarray(indices, np.int64))
    return helper.make_sparse_tensor(value, index, shape)


def tensor(name, code, shape, *fields):
    return b"".join(number(1, n) for n in shape) + number(2, code) + field(8, name) + b"".join(fields)


def handmade(*parts):
    """A model of bytes: ir_version and a graph."""
    return number(1, 8) + field(7, b"".join(parts))


# ---- models -----------------------------------------------------------------


def test_the_weights_of_a_model(tmp_path):
    made = model(
        *(numpy_helper.from_array(bits.array(name, (2, 3)), name) for name in NAMES),
        numpy_helper.from_array(np.array(["a", "é"], object), "strings"),
        producer_name="me", producer_version="2", doc_string="what it does", domain="org", model_version=-3,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9,
    )  # fmt: skip
    helper.set_model_props(made, {"author": "someone"})
    onnx.save(made, tmp_path / "m.onnx")
    for found in (
        tb.load(tmp_path / "m.onnx"),
        tb.load(tmp_path / "m.onnx", mmap=True),
        tb.loads(made.SerializeToString()),
    ):
        assert list(found) == [*NAMES, "strings"]
        for name in NAMES:
            assert found[name].dtype == dtypes.to_numpy(name)
            assert found[name].tobytes() == bits.array(name, (2, 3)).tobytes()
        assert found["strings"].tolist() == ["a", "é"]
    with tb.open(tmp_path / "m.onnx") as f:
        assert f.meta == {
            "onnx.ir_version": "9", "onnx.producer_name": "me", "onnx.producer_version": "2", "onnx.domain": "org",
            "onnx.model_version": "-3", "onnx.doc_string": "what it does", "onnx.graph": "g", "onnx.opset": "18",
            "onnx.opset.ai.onnx.ml": "3", "author": "someone",
        }  # fmt: skip


def test_the_numbers_of_the_fields():
    def numbers(message, *names):
        found = {item.name: item.number for item in message.DESCRIPTOR.fields}
        return [found[name] for name in names]

    header = ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string", "graph")
    assert numbers(onnx.ModelProto, *header, "opset_import", "metadata_props") == [1, 2, 3, 4, 5, 6, 7, 8, 14]
    assert numbers(onnx.GraphProto, "name", "initializer", "sparse_initializer") == [2, 5, 15]
    assert numbers(onnx.GraphProto, "node") + numbers(onnx.NodeProto, "op_type") == [1, 4]
    assert numbers(onnx.SparseTensorProto, "values", "indices", "dims") == [1, 2, 3]


def test_a_model_without_weights_is_an_empty_dict(tmp_path):
    onnx.save(model(), tmp_path / "m.onnx")
    assert tb.load(tmp_path / "m.onnx") == {}
    with tb.open(tmp_path / "m.onnx") as f:
        assert f.meta["onnx.graph"] == "g"
        assert "onnx.remark" not in f.meta


def test_constants_in_nodes_are_counted_where_nothing_else_is_there(tmp_path):
    made = model()
    for n in range(2):
        made.graph.node.add().CopyFrom(helper.make_node("Constant", [], [f"c{n}"], value_float=1.0))
    made.graph.node.add().CopyFrom(helper.make_node("Add", ["c0", "c1"], ["y"]))
    onnx.save(made, tmp_path / "m.onnx")
    assert tb.load(tmp_path / "m.onnx") == {}
    with tb.open(tmp_path / "m.onnx") as f:
        assert f.meta["onnx.remark"] == "constants inside nodes are not read: 2"
    made.graph.initializer.append(numpy_helper.from_array(np.ones(1), "w"))
    onnx.save(made, tmp_path / "m.onnx")
    with tb.open(tmp_path / "m.onnx") as f:
        assert "onnx.remark" not in f.meta


def test_tensors_of_a_model_are_views_of_the_map(tmp_path):
    made = model(
        numpy_helper.from_array(np.arange(6.0), "a"),
        helper.make_tensor("typed", 1, (3,), [1, 2, 3]),
        numpy_helper.from_array(bits.array("int4", (5,)), "packed"),
    )
    onnx.save(made, tmp_path / "m.onnx")
    with tb.open(tmp_path / "m.onnx", to="tensor") as f:
        assert f.keys() == ["a", "typed", "packed"]
        assert type(holder(f["a"].load().data)).__name__ == "mmap"
        assert f["typed"][1:].numpy().tolist() == [2, 3]
        assert f["packed"][1:3].numpy().tolist() == bits.array("int4", (5,))[1:3].tolist()


def test_damage_to_one_tensor_does_not_matter_to_another(tmp_path):
    made = model(numpy_helper.from_array(np.array([True, False]), "bad"), numpy_helper.from_array(np.arange(4), "good"))
    data = bytearray(made.SerializeToString())
    data[data.index(b"\x01\x00", data.index(b"bad"))] = 7
    (tmp_path / "m.onnx").write_bytes(data)
    with tb.open(tmp_path / "m.onnx") as f:
        assert f["good"].load().tolist() == [0, 1, 2, 3]
        with pytest.raises(tb.errors.CorruptError, match="not a valid bool"):
            f["bad"].load()
    assert tb.load(tmp_path / "m.onnx", names=["good"])["good"].tolist() == [0, 1, 2, 3]
    with pytest.raises(tb.errors.CorruptError, match=r"m\.onnx: the byte 7"):
        tb.load(tmp_path / "m.onnx")


def test_tensors_of_ours_in_a_model():
    made = TensorProto.FromString(tb.dumps(np.array([b"x"], object), "onnx", name="w", meta={"unit": "m"}))
    found = tb.loads(model(made).SerializeToString(), to="tensor")
    assert (found["w"].encoding, found["w"].meta["unit"], found["w"].name) == ("bytes", "m", None)


DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason="onnx came without its test data")
def test_the_models_of_onnx():
    files = sorted(DATA.rglob("*.onnx"))
    assert len(files) > 50
    weights = 0
    for path in files:
        found, want = tb.load(path), onnx.load(path).graph.initializer
        assert list(found) == [item.name for item in want]
        for item in want:
            assert found[item.name].tobytes() == numpy_helper.to_array(item).tobytes()
        weights += len(want)
        head = path.read_bytes()[:4096]
        assert formats.sniff(head, path.stat().st_size) == "onnx"
    assert weights > 10


def test_a_model_is_recognised_without_its_suffix(tmp_path):
    for made in (
        model(numpy_helper.from_array(np.arange(3.0), "w"), producer_name="pytorch"),
        model(numpy_helper.from_array(np.arange(3.0), "w")),
        model(numpy_helper.from_array(np.arange(3.0), "w"), producer_name="x", doc_string="é" * 5000),
    ):
        data = made.SerializeToString()
        for name in ("unnamed", "m.pb"):
            (tmp_path / name).write_bytes(data)
            assert tb.load(tmp_path / name)["w"].tolist() == [0, 1, 2]


def test_the_files_of_tensorflow_are_left_alone(tmp_path):
    saved = number(1, 1) + field(2, field(1, field(4, "serve")))  # a SavedModel: a version, a graph with its tags
    for name in ("saved_model.pb", "other.pb"):
        (tmp_path / name).write_bytes(saved)
        assert not ONNX.claims(str(tmp_path / name))
    weights = model(numpy_helper.from_array(np.arange(3.0), "w")).SerializeToString()
    (tmp_path / "saved_model.pb").write_bytes(weights)
    assert not ONNX.claims(str(tmp_path / "saved_model.pb"))
    assert not ONNX.claims(str(tmp_path))
    assert not ONNX.claims(str(tmp_path / "absent.onnx"))


@pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")
def test_a_real_saved_model_is_left_alone():
    found = sorted(REAL_FILES.rglob("*.pb"))
    assert found
    for path in found:
        assert not ONNX.claims(str(path))
        assert not ONNX.sniff(path.read_bytes()[:4096], path.stat().st_size)


# ---- sparse initializers ----------------------------------------------------


@pytest.mark.parametrize(
    ("values", "indices", "shape"),
    [
        ([1, 2, 3], [[0, 1], [2, 0], [2, 3]], [3, 4]),
        ([1, 2, 3], [1, 8, 11], [3, 4]),
        ([1, 2], [0, 59], [3, 4, 5]),
        ([], [], [3, 4]),
        ([5], [2], [3]),
    ],
)
def test_sparse_initializers(values, indices, shape, tmp_path):
    made = model(sparse=[sparse(values, indices, shape)])
    onnx.save(made, tmp_path / "m.onnx")
    dense = np.zeros(shape, np.float32)
    for value, index in zip(values, indices, strict=True):
        dense[np.unravel_index(index, shape) if isinstance(index, int) else tuple(index)] = value
    with tb.open(tmp_path / "m.onnx", to="tensor") as f:
        assert (f["s"].kind, f["s"].dtype, f["s"].shape) == ("sparse", "float32", tuple(shape))
        for value in (f["s"].load(), tb.load(tmp_path / "m.onnx", to="tensor")["s"]):
            assert isinstance(value, Sparse)
            back = np.zeros(shape, np.float32)
            back[tuple(value.parts[0].T)] = value.values.numpy()
            assert back.tolist() == dense.tolist()


# ---- external data ----------------------------------------------------------


def external(folder, location, content=b"\1\2\3\4", name="w", **entries):
    """A model of one uint8 tensor whose bytes are elsewhere."""
    made = TensorProto(name=name, data_type=2, dims=[len(content)], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        made.external_data.add(key=key, value=str(value))
    path = folder / "m.onnx"
    path.write_bytes(model(made).SerializeToString())
    return path


def test_external_data_as_onnx_writes_it(tmp_path):
    x = {name: bits.array(name, (40, 30)) for name in NAMES}
    made = model(*(numpy_helper.from_array(value, name) for name, value in x.items()))
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").stat().st_size > 10_000
    for found in (tb.load(tmp_path / "m.onnx"), tb.load(str(tmp_path / "m.onnx"), mmap=True)):
        assert {name: value.tobytes() for name, value in found.items()} == {
            name: value.tobytes() for name, value in x.items()
        }
    with tb.open(tmp_path / "m.onnx", to="tensor") as f:
        assert type(holder(f["float32"].load().data)).__name__ == "mmap"
        assert f["int4"][3:5].numpy().tolist() == x["int4"][3:5].tolist()


def test_external_data_of_a_single_tensor(tmp_path):
    made = numpy_helper.from_array(np.arange(5.0), "w")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.bin").write_bytes(b"skip" + made.raw_data)
    onnx.external_data_helper.set_external_data(made, "below/d.bin", offset=4, length=40)
    made.ClearField("raw_data")
    for name in ("t.pb", "t.anything"):
        (tmp_path / name).write_bytes(made.SerializeToString())
        assert tb.load(tmp_path / name, "onnx").tolist() == [0, 1, 2, 3, 4]
    assert tb.load(tmp_path / "t.pb").tolist() == [0, 1, 2, 3, 4]


def test_the_length_may_be_missing(tmp_path):
    (tmp_path / "d").write_bytes(b"\1\2\3\4\5")
    assert tb.load(external(tmp_path, "d"))["w"].tolist() == [1, 2, 3, 4]
    assert tb.load(external(tmp_path, "d", offset=1))["w"].tolist() == [2, 3, 4, 5]


def test_links_inside_the_folder_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "d").write_bytes(b"\1\2\3\4")
    (tmp_path / "link").symlink_to("real/d")
    (tmp_path / "folder").symlink_to("real")
    for location in ("link", "folder/d", "./real/d"):
        assert tb.load(external(tmp_path, location))["w"].tolist() == [1, 2, 3, 4]


def test_tensors_may_share_their_bytes(tmp_path):
    (tmp_path / "d").write_bytes(b"\1\2\3\4")
    two = [TensorProto(name=name, data_type=2, dims=[4], data_location=1) for name in "ab"]
    for one in two:
        one.external_data.add(key="location", value="d")
    (tmp_path / "m.onnx").write_bytes(model(*two).SerializeToString())
    found = tb.load(tmp_path / "m.onnx", to="tensor")
    assert found["a"].data.obj is found["b"].data.obj


def test_the_checksum_is_verified(tmp_path):
    (tmp_path / "d").write_bytes(b"\1\2\3\4")
    right = hashlib.sha1(b"\1\2\3\4").hexdigest()
    assert tb.load(external(tmp_path, "d", checksum=right.upper()))["w"].tolist() == [1, 2, 3, 4]
    for wrong in (right[:-1], right.replace(right[0], "f" if right[0] != "f" else "0")):
        path = external(tmp_path, "d", checksum=wrong)
        with pytest.raises(tb.errors.CorruptError, match="checksum"):
            tb.load(path)
        with tb.open(path) as f, pytest.raises(tb.errors.CorruptError, match="checksum"):
            f["w"].load()


OUTSIDE = {
    "no location": ("", "not a plain relative path"),
    "a parent": ("../d", "not a plain relative path"),
    "a parent on the way": ("in/../../d", "not a plain relative path"),
    "a parent that stays inside": ("in/../d", "not a plain relative path"),
    "an absolute path": ("/etc/hostname", "not a plain relative path"),
    "a drive": ("C:/d", "not a plain relative path"),
    "a backslash": ("..\\d", "not a plain relative path"),
    "an empty step": ("in//d", "not a plain relative path"),
    "a slash at the end": ("d/", "not a plain relative path"),
    "a NUL": ("d\0", "not a plain relative path"),
    "nothing there": ("absent", "No such file"),
    "a folder": ("in", "not a regular file|Is a directory"),
    "the folder itself": (".", "leads out|not a regular file"),
    "a link out": ("out", "leads out of the model's folder"),
    "a folder that leads out": ("away/d", "leads out of the model's folder"),
    "a chain of links": ("chain", "leads out of the model's folder"),
    "a loop of links": ("loop", "loop|Too many|symbolic"),
    "a pipe": ("pipe", "not a regular file"),
    "a socket": ("socket", "not a regular file|No such device"),
    "a link to a device": ("zero", "leads out of the model's folder"),
    "a hard link": ("hard", "with 2 names"),
    "a name of a million letters": ("d" * 10**6, "external data in"),
}


@pytest.fixture
def place(tmp_path):
    """A folder for a model among things that it must not reach."""
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (tmp_path / "d").write_bytes(b"\1\2\3\4")
    (root / "d").write_bytes(b"\1\2\3\4")
    (root / "out").symlink_to("../d")
    (root / "away").symlink_to("..")
    (root / "chain").symlink_to("out")
    (root / "loop").symlink_to("loop")
    (root / "zero").symlink_to("/dev/zero")
    os.mkfifo(root / "pipe")
    os.link(tmp_path / "d", root / "hard")
    return root


@pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX")
@pytest.mark.parametrize("case", OUTSIDE)
def test_external_data_out_of_bounds(place, case, monkeypatch):
    """92: whatever a model names, nothing outside its folder is read, and nothing waits."""
    location, words = OUTSIDE[case]
    if case == "a socket":
        monkeypatch.chdir(place)  # a socket's path must be short
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("socket")
    path = external(place, location)
    with pytest.raises(tb.errors.CorruptError, match=words):
        tb.load(path)
    with tb.open(path) as f, pytest.raises(tb.errors.CorruptError, match=words):
        f.keys()


@pytest.mark.parametrize("entries", [
    {"offset": "1"}, {"offset": "5"}, {"offset": "-1"}, {"offset": "1e3"}, {"offset": "9" * 19}, {"offset": "9" * 5000},
    {"length": "3"}, {"length": "5"}, {"length": "-4"}, {"length": ""}, {"length": "4 "}, {"offset": "٣"},
    {"offset": str(2**64 - 4), "length": "4"}, {"offset": "0x0"},
])  # fmt: skip
def test_places_outside_the_file(tmp_path, entries):
    (tmp_path / "d").write_bytes(b"\1\2\3\4")
    with pytest.raises(tb.errors.CorruptError):
        tb.load(external(tmp_path, "d", **entries))


def test_an_empty_file_and_an_empty_tensor(tmp_path):
    (tmp_path / "d").write_bytes(b"")
    assert tb.load(external(tmp_path, "d", content=b""))["w"].shape == (0,)
    with pytest.raises(tb.errors.CorruptError, match="which has 0"):
        tb.load(external(tmp_path, "d"))


def test_bytes_lead_to_no_file(tmp_path):
    (tmp_path / "d").write_bytes(b"\1\2\3\4")
    path = external(tmp_path, "d")
    with pytest.raises(tb.errors.UnsupportedError, match="'w' keeps its data in another file, 'd'"):
        tb.loads(path.read_bytes())
    with path.open("rb") as file, pytest.raises(tb.errors.UnsupportedError, match=r"load\(path\) reads the model"):
        tb.load(file)


def test_values_here_and_elsewhere(tmp_path):
    (tmp_path / "d").write_bytes(b"\1\2\3\4")
    for more in (field(9, b"\1\2\3\4"), number(5, 1)):
        outside = number(14, 1) + field(13, field(1, "location") + field(2, "d"))
        data = handmade(field(5, tensor("w", 2, (4,), outside, more)))
        (tmp_path / "m.onnx").write_bytes(data)
        with pytest.raises(tb.errors.CorruptError, match="several places"):
            tb.load(tmp_path / "m.onnx")


def test_strings_are_never_elsewhere(tmp_path):
    (tmp_path / "d").write_bytes(b"\1\2\3\4")
    outside = number(14, 1) + field(13, field(1, "location") + field(2, "d"))
    (tmp_path / "m.onnx").write_bytes(handmade(field(5, tensor("w", 8, (4,), outside))))
    with pytest.raises(tb.errors.CorruptError, match="string_data alone"):
        tb.load(tmp_path / "m.onnx")


# ---- hostile models ---------------------------------------------------------

ONE = field(5, tensor("w", 2, (1,), field(9, b"x")))
BAD = {
    "no graph": (number(1, 8) + field(2, "me"), "neither a TensorProto"),
    "a graph of four bytes": (number(1, 8) + tag(7, 5) + bytes(4), "wire type 5"),
    "a name twice": (handmade(ONE, ONE), "'w' is stored twice"),
    "a name twice, sparse": (handmade(ONE, field(15, field(1, tensor("w", 2, (0,))))), "'w' is stored twice"),
    "no name": (handmade(field(5, number(1, 0) + number(2, 2))), "without a name"),
    "an empty name": (handmade(field(5, tensor("", 2, (0,)))), "without a name"),
    "a producer of bytes": (number(1, 8) + field(2, b"\xff") + field(7, ONE), "field 2 is not UTF-8"),
    "metadata twice": (number(1, 8) + field(7, ONE) + field(14, field(1, "a")) * 2, "'a' appears twice"),
    "metadata that is ours": (number(1, 8) + field(7, ONE) + field(14, field(1, "onnx.ir_version")), "appears twice"),
    "an initializer cut short": (handmade(field(5, b"\x08")), "a varint runs past"),
    "an initializer past its graph": (handmade(tag(5, 2) + varint(99) + b"x"), "claims 99 bytes"),
    "a graph past the end": (number(1, 8) + tag(7, 2) + varint(1 << 40), "claims"),
    "bytes that don't fit": (handmade(field(5, tensor("w", 1, (3,), field(9, b"x")))), "takes 12 bytes"),
    "sparse without values": (handmade(field(15, number(3, 3))), "without numbers for values"),
    "sparse strings": (handmade(field(15, field(1, tensor("s", 8, (1,), field(6, "x"))))), "without numbers"),
    "78 an index outside": (model(sparse=[sparse([1], [12], [3, 4])]), "outside the shape"),
    "78 an index below": (model(sparse=[sparse([1], [-1], [3, 4])]), "outside the shape"),
    "78 coordinates outside": (model(sparse=[sparse([1], [[1, 4]], [3, 4])]), "outside the shape"),
    "78 columns of another rank": (model(sparse=[sparse([1], [[1, 1, 1]], [3, 4])]), "3 columns in"),
    "78 more values than indices": (model(sparse=[sparse([1, 2], [[1, 1]], [3, 4])]), "values must have the shape"),
    "78 values in two dimensions": (model(sparse=[sparse([[1]], [1], [3, 4])]), "sparse values of shape"),
    "sparse dims beyond 64 bits": (model(sparse=[sparse([1], [1], [1 << 40, 1 << 40])]), "64 bits"),
}


@pytest.mark.parametrize("case", BAD)
def test_hostile_models(case, tmp_path):
    made, words = BAD[case]
    data = made if isinstance(made, bytes) else made.SerializeToString()
    with pytest.raises(tb.errors.CorruptError, match=words):
        tb.loads(data, "onnx")
    (tmp_path / "m.onnx").write_bytes(data)
    with tb.open(tmp_path / "m.onnx") as f, pytest.raises(tb.errors.CorruptError, match=words):
        [f[name].load() for name in f.keys()]  # noqa: SIM118 - a file is not a dict


def test_limits_on_models():
    data = model(*(numpy_helper.from_array(np.arange(2), f"t{i}") for i in range(5))).SerializeToString()
    with pytest.raises(tb.errors.LimitError, match="over 4 initializers"):
        tb.loads(data, limits=tb.errors.Limits(max_tensors=4))
    many = sparse(np.ones(100), np.arange(100), [1] * 30 + [100])
    with pytest.raises(tb.errors.LimitError, match="the indices of 's'"):
        tb.loads(model(sparse=[many]).SerializeToString(), limits=tb.errors.Limits(max_bytes=10_000))


def test_depth_costs_nothing():
    """65: graphs inside nodes are passed over, however deep."""
    deep = field(1, b"")
    for _ in range(2000):
        deep = field(1, field(5, field(6, deep)))
    assert tb.loads(handmade(deep, ONE), "onnx")["w"].tolist() == [ord("x")]


def test_a_graph_in_pieces_is_one():
    two = field(5, tensor("v", 2, (1,), field(9, b"y")))
    data = number(1, 8) + field(7, ONE) + field(7, two)
    assert (
        list(tb.loads(data, "onnx"))
        == ["w", "v"]
        == [t.name for t in onnx.ModelProto.FromString(data).graph.initializer]
    )


GOLDEN = model(
    numpy_helper.from_array(np.arange(3, dtype=np.int16), "a"),
    helper.make_tensor("b", 22, (3,), [1, -2, 3]),
    sparse=[sparse([1, 2], [1, 5], [2, 3])],
    producer_name="me",
).SerializeToString()


def outcome(data):
    try:
        return tb.loads(data, "onnx", to="tensor")
    except (tb.errors.CorruptError, tb.errors.LimitError, tb.errors.UnsupportedError) as error:
        return error


def test_every_truncation():
    assert isinstance(outcome(GOLDEN), dict)
    graph_end = len(GOLDEN) - 4  # before the opset
    for end in range(len(GOLDEN)):
        made = outcome(GOLDEN[:end])
        assert isinstance(made, tb.errors.CorruptError) or end == graph_end


def test_every_flipped_bit():
    read = 0
    for position in range(len(GOLDEN) * 8):
        data = bytearray(GOLDEN)
        data[position // 8] ^= 1 << position % 8
        made = outcome(bytes(data))
        formats.sniff(bytes(data), len(data))
        if isinstance(made, dict) and "a" in made and hasattr(made["a"], "numpy"):
            try:
                graph = onnx.ModelProto.FromString(bytes(data)).graph
            except DecodeError:  # in fields that we pass over
                continue
            want = {item.name: item for item in graph.initializer}
            assert made["a"].numpy().tolist() == numpy_helper.to_array(want["a"]).tolist()
            read += 1
    assert read
