"""Functions and modules saved as SavedModels, and called again."""

import os
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import tensorbytes as tb
from tensorbytes.errors import CorruptError, MissingDependencyError, UnsupportedError, UsageError
from tensorbytes.savedmodel import export, load_model, save_model
from tests.support import REAL_FILES
from tests.support.tiers import deep_but


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model"


def affine(x, y):
    return 2.0 * x + y


class Dense(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones((3, 2)))
        self.b = tf.Variable([1.0, 2.0])

    def __call__(self, x):
        return x @ self.w + self.b

    @tf.function
    def encode(self, x):
        return x - 1


ONES = np.ones((4, 3), np.float32)


# ---- what can be saved ----------------------------------------------------------


def test_a_plain_function(path):
    """What the documents' snippet wants: save a prediction function, load it, call it."""
    save_model(affine, path, np.zeros(2, np.float32), np.float32(0))
    model = load_model(path)
    assert model(np.array([1, 2], np.float32), np.float32(3)).tolist() == [5, 7]
    assert model.signatures["serving_default"].inputs == {"x": "float32[2]", "y": "float32[]"}
    assert model.signatures["serving_default"].outputs == {"output_0": "float32[2]"}
    assert model.variables == {}
    # TensorFlow itself finds the same.
    loaded = tf.saved_model.load(str(path))
    assert loaded(tf.constant([1.0, 2.0]), tf.constant(3.0)).numpy().tolist() == [5, 7]
    assert loaded.signatures["serving_default"](x=tf.ones(2), y=tf.constant(0.0))["output_0"].numpy().tolist() == [2, 2]


@pytest.mark.deep
def test_in_another_process(path):
    save_model(affine, path, tf.TensorSpec([None], tf.float32), tf.TensorSpec([], tf.float32))
    code = (
        "from tensorbytes.savedmodel import load_model\n"
        "import numpy as np\n"
        f"print(load_model({str(path)!r})(np.ones(3, np.float32), 1.0))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[3. 3. 3.]"


def test_variables_outside_the_function_come_along(path):
    scale, twin = tf.Variable([2.0, 3.0], name="scale"), tf.Variable(1.0, name="scale")
    module = Dense()
    save_model(lambda x: module(x) * scale + twin, path, ONES, batch=True)
    model = load_model(path)
    assert model(ONES[:1]).tolist() == [[9, 16]]
    assert {name: x.shape for name, x in model.variables.items()} == {
        "scale": (2,), "scale_2": (), "Variable": (3, 2), "Variable_2": (2,),
    }  # fmt: skip
    assert tb.load(path, keys="clean")["scale"].tolist() == [2, 3]


def test_a_module_with_several_signatures(path):
    module = Dense()
    save_model(
        module, path, ONES, batch=True, name="predict",
        signatures={"encode": (module.encode, tf.TensorSpec([None], tf.int64)), "affine": (affine, ONES, ONES)},
    )  # fmt: skip
    model = load_model(path)
    assert sorted(model.signatures) == ["affine", "encode", "predict"]
    assert model(np.ones((5, 3), np.float32)).shape == (5, 2)
    assert model.signatures["predict"](x=ONES)["output_0"].tolist() == [[4, 5]] * 4
    assert model.signatures["encode"](np.arange(3))["output_0"].tolist() == [-1, 0, 1]
    assert list(model.variables) == ["model/b", "model/w"]
    assert "predict" in repr(model)


def test_tf_functions(path):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")])
    def lengths(texts):
        return tf.strings.length(texts)

    save_model(lengths, path)
    model = load_model(path)
    assert model(np.array(["a", "bcd"])).tolist() == [1, 3]
    assert model.signatures["serving_default"].inputs == {"texts": "string[None]"}
    save_model(tf.function(affine), path, 1.0, 2.0)
    assert load_model(path)(3.0, 4.0) == 10
    save_model(tf.function(affine).get_concrete_function(tf.TensorSpec([]), tf.TensorSpec([])), path)
    assert load_model(path)(tf.constant(3.0), tf.constant(4.0)) == 10


def test_a_keras_model(path):
    keras = pytest.importorskip("keras")
    built = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2), keras.layers.Dropout(0.5)])
    save_model(built, path)
    model = load_model(path)
    np.testing.assert_array_equal(model(ONES), built(ONES).numpy())
    assert {x.shape for x in model.variables.values()} == {(3, 2), (2,)}
    two = keras.Input((2,), name="left"), keras.Input((2,), name="right")
    save_model(keras.Model(two, keras.layers.Add()(list(two))), path)
    model = load_model(path)
    assert sorted(model.signatures["serving_default"].inputs) == ["left", "right"]
    assert model([np.ones((1, 2), np.float32), np.ones((1, 2), np.float32)]).tolist() == [[2, 2]]
    unbuilt = keras.layers.Dense(4)
    save_model(unbuilt, path, ONES, batch=True)
    assert load_model(path)(ONES[:2]).shape == (2, 4)


def test_structures_in_and_out(path):
    def run(batch, scale):
        total = tf.reduce_sum(batch["ids"]) + batch["more"][0]
        return {"sum": total * scale, "parts": [batch["ids"], {"deep": scale}]}

    save_model(run, path, {"ids": np.arange(3), "more": [np.int64(2)]}, np.int64(1))
    model = load_model(path)
    got = model({"ids": np.array([1, 2, 3]), "more": [4]}, 10)
    assert got["sum"] == 100
    assert got["parts"][0].tolist() == [1, 2, 3]
    assert got["parts"][1]["deep"] == 10
    signature = model.signatures["serving_default"]
    assert list(signature.inputs) == ["batch_ids", "batch_more_0", "scale"]
    flat = signature(batch_ids=np.arange(3), batch_more_0=1, scale=2)
    assert list(flat) == ["parts_0", "parts_1_deep", "sum"]
    assert flat["sum"] == 8
    for wrong in ({"ids": np.arange(3)}, [np.arange(3)], np.arange(3)):
        with pytest.raises(UsageError, match="input 0 must be a dict of ids, more"):
            model(wrong, 1)
    with pytest.raises(UsageError, match="input 0/more must be a list of 1"):
        model({"ids": np.arange(3), "more": [1, 2]}, 1)


def test_ragged_results(path):
    save_model(lambda s: tf.strings.split(s), path, np.array(["a b"]), batch=True)
    model = load_model(path, to="tensorflow")
    assert model(np.array(["a b", "c"])).to_list() == [[b"a", b"b"], [b"c"]]
    assert list(model.signatures["serving_default"].outputs) == ["output_0", "output_1"]


@pytest.mark.parametrize("to", ["numpy", "torch", "jax", "tensorflow"])
def test_inputs_and_results_of_any_framework(to, path):
    save_model(affine, path, ONES, ONES)
    model = load_model(path, to=to)
    kinds = {"numpy": np.ndarray, "torch": torch.Tensor, "jax": jnp.ndarray, "tensorflow": tf.Tensor}
    for x in (ONES, torch.ones(3, 4).T, jnp.ones((4, 3)), tf.ones((4, 3)), ONES.tolist()):
        got = model(x, ONES)
        assert isinstance(got, kinds[to])
        assert np.asarray(got).tolist() == [[3] * 3] * 4


# ---- what is refused --------------------------------------------------------------


def test_wrong_inputs(path):
    save_model(affine, path, np.zeros(2, np.float32), np.float32(0))
    model = load_model(path)
    one = model.signatures["serving_default"]
    x = np.ones(2, np.float32)
    for call, match in [
        (lambda: model(np.ones(2), 1.0), r"input 'x' must be float32\[2\], got float64\[2\]"),
        (lambda: model(np.ones(3, np.float32), 1.0), r"input 'x' must be float32\[2\], got float32\[3\]"),
        (lambda: model("text", 1.0), r"input 'x' must be float32\[2\]"),
        (lambda: model(x), r"takes 2 inputs, got 1; it takes x: float32\[2\], y: float32\[\]"),
        (lambda: model(x, z=1.0), "no function of the model takes these inputs"),
        (lambda: one(x), "takes its inputs by name: x: float32"),
        (lambda: one(x=x), "lacks the input 'y'"),
        (lambda: one(x=x, y=1.0, z=1.0), "has no input 'z'"),
        (lambda: one(x=x, y=[1.0]), r"input 'y' must be float32\[\], got float32\[1\]"),
    ]:
        with pytest.raises(UsageError, match=match):
            call()


def test_what_can_not_be_saved(path):
    for model, inputs, error, match in [
        (affine, (), UsageError, "an example, or a tf.TensorSpec, for each argument: x, y"),
        (np.ones(3), (), UsageError, r"got ndarray; save\(x, path\) takes tensors and structures of them"),
        (lambda x: np.sin(x.numpy()), (1.0,), UnsupportedError, "use tf, not NumPy or PyTorch"),
        (lambda x: None, (1.0,), UsageError, "returns no tensor"),
        (affine, (1.0,), UnsupportedError, "tracing the function failed: TypeError"),
        (affine, (1.0, object()), UsageError, "an example must be a tensor or a tf.TensorSpec, got object"),
    ]:
        with pytest.raises(error, match=match):
            save_model(model, path, *inputs)
    with pytest.raises(UsageError, match="an example is a scalar"):
        save_model(affine, path, 1.0, 2.0, batch=True)
    for wrong in ({"serving_default": (affine, 1.0, 1.0)}, {"b": ()}, {"b": affine}, {"b": (1.0,)}):
        with pytest.raises(UsageError, match="expected another name, and"):
            save_model(affine, path, 1.0, 2.0, signatures=wrong)
    assert not os.listdir(path.parent)


def test_what_can_not_be_loaded(path):
    for missing in (path, path.parent):
        with pytest.raises(FileNotFoundError, match=r"no SavedModel: there is no saved_model\.pb"):
            load_model(missing)
    save_model(affine, path, 1.0, 2.0)
    (path / "saved_model.pb").write_bytes(b"\xff" * 100)
    with pytest.raises(CorruptError, match="TensorFlow can't load it"):
        load_model(path)


def test_without_tensorflow(path, monkeypatch):
    save_model(affine, path, 1.0, 2.0)
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(MissingDependencyError, match=r"tensorbytes\[tensorflow\]"):
        load_model(path)
    with pytest.raises(MissingDependencyError, match=r"tensorbytes\[tensorflow\]"):
        save_model(affine, path, 1.0, 2.0)


def test_importing_it_loads_no_tensorflow():
    code = "import sys, tensorbytes.savedmodel; print('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


# ---- replacing --------------------------------------------------------------------


def value(path):
    return float(load_model(path)(1.0))


@pytest.mark.parametrize("exchange", [True, False])
def test_an_old_one_is_replaced(exchange, path, monkeypatch):
    if not exchange:
        monkeypatch.setattr(export, "_exchanged", lambda a, b: False)
    for number in (1.0, 2.0, 3.0):
        save_model(times(number), path, 1.0, sync=number < 3)
        assert value(path) == number
        assert os.listdir(path.parent) == ["model"]


def times(number):
    return lambda x: x * number


@pytest.mark.parametrize("exchange", deep_but([True], [True, False]))
def test_a_failure_leaves_the_old_one(exchange, path, monkeypatch):
    if not exchange:
        monkeypatch.setattr(export, "_exchanged", lambda a, b: False)
    save_model(times(1.0), path, 1.0)
    left = {}

    def failing(function):
        def call(*args):
            left["calls"] -= 1
            if left["calls"] == 0:
                raise OSError("injected")
            return function(*args)

        return call

    for step in range(1, 40):
        left["calls"] = step
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing(os.replace))
            patch.setattr(os, "fsync", failing(os.fsync))
            try:
                save_model(times(2.0), path, 1.0)
            except OSError:
                assert value(path) in (1.0, 2.0)
                continue
        break
    assert step > 3
    assert value(path) == 2


def test_nothing_else_is_replaced(path):
    path.mkdir()
    save_model(times(1.0), path, 1.0)  # an empty folder may be used
    (path / "saved_model.pb").unlink()
    with pytest.raises(UsageError, match="holds something else than a SavedModel"):
        save_model(times(2.0), path, 1.0)
    file = path.parent / "file"
    file.write_text("x")
    with pytest.raises(UsageError, match="is a file; a SavedModel is a folder"):
        save_model(times(2.0), file, 1.0)
    assert file.read_text() == "x"


@pytest.mark.skipif(not REAL_FILES.is_dir(), reason="no shared/corpus beside the repository")
def test_the_corpus():
    model = load_model(REAL_FILES / "half_plus_two")
    assert model(np.array([2], np.float32)) == {"y": 3}
    assert model.signatures["regress_x2_to_y3"](inputs=[2.0])["outputs"] == 4
    assert {name: float(x) for name, x in model.variables.items()} == {"a": 0.5, "b": 2, "c": 3}
    with pytest.raises(UsageError, match=r"must be float32\[1\], got float64\[1\]"):
        model(np.array([2.0]))
