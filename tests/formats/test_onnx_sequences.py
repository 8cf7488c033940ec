"""ONNX's sequences and optional values, repeated opsets, and files that are taken for ONNX models."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tensorbytes as tb
from tensorbytes import errors
from tests.support import REAL_FILES
from tests.support.wire_bytes import field, number


def same(got, want):
    if isinstance(want, list):
        return isinstance(got, list) and len(got) == len(want) and all(map(same, got, want))
    return isinstance(got, np.ndarray) and got.dtype == want.dtype and np.array_equal(got, want)


LISTS = {
    "tensors": [np.arange(3.0), np.arange(4, dtype=np.int32).reshape(2, 2)],
    "one": [np.float32([1, 2])],
    "text": [np.array(["a", "é"], object)],
    "nested": [[np.arange(3)], [np.arange(2), np.zeros((0, 2))]],
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("named", ["", "values"])
def test_sequences_are_those_of_onnx(name, named, tmp_path):
    message = numpy_helper.from_list(LISTS[name], named)
    path = tmp_path / "input_0.pb"
    path.write_bytes(message.SerializeToString())
    want = numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    for got in (tb.load(path), tb.load(path, mmap=True), tb.loads(path.read_bytes(), "onnx")):
        assert same(got, want)
    assert tb.open(path).meta == ({"onnx.name": named} if named else {})
    assert tb.verify(path).ok


def test_an_empty_sequence():
    raw = numpy_helper.from_list([], "empty", 1).SerializeToString()
    assert tb.loads(raw, "onnx") == []
    assert tb.loads(raw, "onnx", optional=True) is None


@pytest.mark.parametrize("x", [np.arange(3.0), [np.arange(2)]], ids=["tensor", "list"])
def test_optional_values_are_those_of_onnx(x):
    """Those of a tensor have the bytes of a list of one."""
    raw = numpy_helper.from_optional(x, "o").SerializeToString()
    want = numpy_helper.to_optional(onnx.OptionalProto.FromString(raw))
    assert same(tb.loads(raw, "onnx", optional=True), want)
    assert same(tb.loads(raw, "onnx"), [want])


def test_sparse_values_of_a_sequence():
    values = helper.make_tensor("v", TensorProto.FLOAT, [2], [1, 2])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [1, 5])
    message = onnx.SequenceProto(name="s", elem_type=2)
    message.sparse_tensor_values.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    (got,) = tb.loads(message.SerializeToString(), "onnx")
    assert got.to_coo().parts[0].tolist() == [[0, 1], [1, 2]]


TENSOR = number(1, 1) + number(2, 1) + field(9, bytes(4))
HOSTILE = {
    "another kind than its values": (
        field(1, "s") + number(2, 1) + field(3, TENSOR) + field(5, b""),
        "values of others",
    ),
    "maps": (field(1, "s") + number(2, 4) + field(6, field(1, "m")), "maps"),
    "an unknown kind": (number(2, 1) + field(3, TENSOR) + number(2, 9), "kind 9"),
    "a tensor that is none": (number(2, 1) + field(3, TENSOR) + field(3, b"\x08"), "varint"),
}


@pytest.mark.parametrize(("raw", "words"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_sequences(raw, words):
    with pytest.raises((errors.CorruptError, errors.UnsupportedError), match=words):
        tb.loads(raw, "onnx")


def test_a_sequence_nested_without_end():
    raw = number(2, 1) + field(3, TENSOR)
    for _ in range(200):
        raw = number(2, 3) + field(5, raw)
    with pytest.raises(errors.LimitError, match="nested"):
        tb.loads(raw, "onnx")


def test_two_values_are_not_optional():
    raw = numpy_helper.from_list([np.zeros(1), np.zeros(1)], "s").SerializeToString()
    with pytest.raises(errors.CorruptError, match="2 values"):
        tb.loads(raw, "onnx", optional=True)


# ---- models -----------------------------------------------------------------


def _model(*opsets):
    weights = numpy_helper.from_array(np.arange(3.0), "w")
    graph = helper.make_graph([], "g", [], [], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets])


def test_a_domain_that_is_imported_twice(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(_model(("", 21), ("ai.onnx.ml", 1), ("", 21)), path)
    assert tb.load(path)["w"].tolist() == [0, 1, 2]
    assert tb.open(path).meta["onnx.opset"] == "21"
    onnx.save(_model(("", 21), ("", 9)), path)
    assert tb.open(path).meta["onnx.opset"] == "21, 9"


@pytest.mark.skipif(not REAL_FILES.exists(), reason="real files are not here")
def test_a_real_model_with_an_opset_twice():
    path = REAL_FILES / "linear_classifier.onnx"
    model = onnx.load(path)
    assert [one.name for one in model.graph.initializer] == []
    assert tb.load(path) == {}
    assert tb.open(path).meta["onnx.opset"] == "21"
    assert tb.open(path).meta["onnx.graph"] == model.graph.name


# ---- other files that end in .onnx ------------------------------------------


def _printed(model):
    return onnx.printer.to_text(model)


def _as_protobuf_text(model):
    from google.protobuf import text_format

    return text_format.MessageToString(model)


@pytest.mark.parametrize("text", [_printed, _as_protobuf_text])
def test_models_as_text_are_named(text, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_text(text(_model(("", 21))))
    for read in (tb.load, tb.open, tb.inspect):
        with pytest.raises(errors.UsageError, match=r"ONNX model as text.*parse"):
            read(path)


@pytest.mark.parametrize("name", ["m.onnx", "t.pb", "variables.index", "saved_model.pb", "m.safetensors", "x.npy"])
def test_pointers_of_git_lfs_are_named(name, tmp_path):
    (tmp_path / "variables").mkdir()
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n")
    with pytest.raises(errors.UsageError, match=r"git-LFS pointer.*git lfs pull"):
        tb.load(path)
