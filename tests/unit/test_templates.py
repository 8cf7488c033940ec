"""like=: values in the template's own containers, as tensors of its frameworks; test_flax.py has Flax and optax."""

import collections
import copy
import dataclasses
import pickle
import types
import typing

import ml_dtypes
import numpy as np
import pytest
import torch

import tensorbytes as tb
from tensorbytes.errors import TemplateError, TemplateWarning


class Moments(typing.NamedTuple):
    count: typing.Any
    mean: typing.Any


class Nothing(typing.NamedTuple):
    pass


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    step: int
    name: str
    weights: typing.Any
    moments: typing.Any = None
    seen: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass
class Module:
    weights: typing.Any
    act: typing.Any = dataclasses.field(default=abs, metadata={"static": True})


def run(seed):
    rng = np.random.default_rng(seed)
    moments = Moments(np.int32(seed), [rng.normal(size=3), rng.normal(size=2)])
    made = Run(seed, f"run-{seed}", {"w": rng.normal(size=(2, 3)).astype(np.float32)}, (moments, Nothing()))
    object.__setattr__(made, "seen", seed)
    return made


FILES = ("x.tb", "x.npz", "x.safetensors", "x.pt", "x.ckpt", "x.arrow")


# ---- saving ------------------------------------------------------------------------


def test_fields_are_saved_by_name():
    found = tb.loads(tb.dumps(run(3)))
    assert list(found) == ["step", "name", "weights", "moments", "seen"]
    assert type(found["moments"]) is tuple
    assert list(found["moments"][0]) == ["count", "mean"]
    assert found["moments"][1] == {}
    assert tb.equal(run(3), found)
    assert not tb.equal(run(3), run(4))


def test_fields_that_are_not_data_are_left_out():
    assert list(tb.loads(tb.dumps(Module(np.ones(2))))) == ["weights"]
    with pytest.raises(tb.errors.UnsupportedError, match="at 'weights'"):
        tb.dumps(Module(abs))


def test_a_field_that_was_never_set():
    made = object.__new__(Run)
    with pytest.raises(tb.errors.UnsupportedError, match="the field 'step' of a Run was never set"):
        tb.dumps(made)


# ---- containers ------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_containers_come_back(name, tmp_path):
    tb.save(run(1), tmp_path / name, **({"extended": True} if "safetensors" in name else {}))
    template = run(2)
    found = tb.load(tmp_path / name, like=template)
    assert type(found) is Run
    assert type(found.moments[0]) is Moments
    assert found.moments[1] == Nothing()
    assert type(found.moments[0].count) is np.int32
    assert (found.step, found.name, found.seen) == (1, "run-1", 1)
    assert tb.equal(found, run(1))
    assert tb.equal(template, run(2))  # the template is left alone


def test_dicts_of_any_class():
    values = {"b": np.ones(2), "a": {"x": np.zeros(1)}}
    data = tb.dumps(values)
    ordered = collections.OrderedDict(a={"x": np.ones(1)}, b=np.zeros(2))
    found = tb.loads(data, like=ordered)
    assert type(found) is collections.OrderedDict
    assert list(found) == ["a", "b"]  # in the template's order
    counted = collections.defaultdict(list, a={"x": np.ones(1)}, b=np.zeros(2))
    assert tb.loads(data, like=counted).default_factory is list
    for kind in (types.MappingProxyType, collections.UserDict):
        found = tb.loads(data, like=kind({"a": {"x": np.ones(1)}, "b": np.zeros(2)}))
        assert type(found) is kind
        assert tb.equal(dict(found), values)

    class Odd(collections.UserDict):
        def __init__(self):
            super().__init__(a={"x": np.ones(1)}, b=np.zeros(2))

    with pytest.raises(tb.errors.UsageError, match=r"a .*Odd, which can't be made of a dict"):
        tb.loads(data, like=Odd())


def test_names_decide_not_containers():
    data = tb.dumps({"layers": ({"w": np.ones(1)}, {"w": np.ones(2)})})
    for layers in ([{"w": np.zeros(1)}, {"w": np.zeros(2)}], {0: {"w": np.zeros(1)}, 1: {"w": np.zeros(2)}}):
        found = tb.loads(data, like={"layers": layers})["layers"]
        assert type(found) is type(layers)
        assert found[1]["w"].tolist() == [1, 1]
    flat = tb.dumps({"layers/0/w": np.ones(1), "layers/1/w": np.ones(2)}, "npz")  # as other tools name them
    assert tb.loads(flat, like={"layers": [{"w": np.zeros(1)}, {"w": np.zeros(2)}]})["layers"][0]["w"] == 1


def test_names_that_are_nearly_the_same():
    both = {"a/b": np.full(1, 1.0), "a": {"b": np.full(1, 2.0)}, 1: np.full(1, 3.0), "1": np.full(1, 4.0)}
    assert tb.equal(tb.loads(tb.dumps(both), like=copy.deepcopy(both)), both)
    with pytest.raises(TemplateError) as caught:
        tb.loads(tb.dumps({"a/b": np.ones(1)}), like={"a/b": np.ones(1), "a": {"b": np.ones(1)}})
    assert caught.value.missing == ("a/b",)  # one value does not stand for two


def test_lists_of_numbers():
    data = tb.dumps({"n": [1, 2, 3], "t": ("a", "b"), "mixed": [1, 2.5], "none": None, "e": [], "d": {}})
    template = {"n": (0, 0, 0), "t": ["", ""], "mixed": [0, 0.0], "none": None, "e": [], "d": {}}
    found = tb.loads(data, like=template)
    assert found == {"n": (1, 2, 3), "t": ["a", "b"], "mixed": [1, 2.5], "none": None, "e": [], "d": {}}
    with pytest.raises(TemplateError, match="n: expected 2 items, got 3 items"):
        tb.loads(data, like={**template, "n": [0, 0]})
    arrays = tb.loads(data, like={**template, "n": [np.zeros((), np.int16)] * 3})
    assert [one.dtype.name for one in arrays["n"]] == ["int16"] * 3


# ---- values ----------------------------------------------------------------------


def test_numbers_are_the_same_in_both_types():
    for saved, template, found in (
        (3, np.zeros((), np.int16), np.int16(3)),
        (np.int32(3), 0, 3),
        (np.array(2.5, np.float32), 0.0, 2.5),
        (0.5, torch.zeros(()), 0.5),
        (True, np.array(False), True),
        (-1, np.zeros((), ml_dtypes.int4), -1),
        ("x", np.array("", object), "x"),
        (np.array("x", object), "", "x"),
        (1 << 70, 0, 1 << 70),
        (float("nan"), np.zeros((), np.float16), float("nan")),
    ):
        made = tb.loads(tb.dumps(saved), like=template)
        assert type(made) is type(template)
        assert made == found or found != found


@pytest.mark.parametrize(
    ("saved", "template", "words"),
    [
        (300, np.zeros((), np.int8), r"expected int8\[\], got int"),
        (0.1, np.zeros((), np.float32), r"expected float32\[\], got float"),
        (1e300, np.zeros((), np.float16), r"expected float16\[\], got float"),
        (3, 0.0, "expected float, got int"),
        (1, True, "expected bool, got int"),
        (b"x", "", "expected str, got bytes"),
        (np.array("x", object), b"", r"expected bytes, got string\[\]"),
        (None, 3, "expected int, got None"),
        ([1.0, 2.0], np.zeros(2), r"expected float64\[2\], got list\[float\]"),
        (np.ones(3), np.ones(4), r"expected float64\[4\], got float64\[3\]"),
        (np.ones(3), np.ones(3, np.int64), r"expected int64\[3\], got float64\[3\]"),
        (np.ones(()), np.ones(1), r"expected float64\[1\], got float64\[\]"),
        (np.array(["a"], object), np.ones(1), r"expected float64\[1\], got string\[1\]"),
    ],
    ids=repr,
)
def test_what_differs(saved, template, words):
    with pytest.raises(TemplateError, match=words):
        tb.loads(tb.dumps({"x": saved}), like={"x": template})


def test_times():
    days = np.array(["2026-01-01"], "M8[D]")
    assert tb.loads(tb.dumps({"t": days}), like={"t": np.zeros(1, ">M8[D]")})["t"] == days
    with pytest.raises(tb.errors.UnsupportedError, match=r"another unit.*ns\], got datetime64\[D\]"):
        tb.loads(tb.dumps({"t": days}), like={"t": np.zeros(1, "M8[ns]")})


STRUCT = np.dtype([("x", "<f4"), ("in", [("i", ">i2"), ("t", "<U3")]), ("v", "<f8", (2,))])


@pytest.mark.parametrize("order", ["C", "F"])
def test_structured_arrays(order):
    saved = np.zeros((2, 3), STRUCT, order)
    saved["x"], saved["in"]["i"], saved["in"]["t"] = 1.5, np.arange(6).reshape(2, 3), "abc"
    for data in (tb.dumps({"s": saved}), tb.dumps({"s": saved}, "npz")):
        found = tb.loads(data, like={"s": np.zeros_like(saved)})["s"]
        assert found.dtype == STRUCT
        assert found.flags == saved.flags
        assert found.tobytes("C") == saved.tobytes("C")
    element = tb.loads(tb.dumps(saved[1, 2]), like=saved[0, 0])
    assert type(element) is np.void
    assert element["in"].tolist() == (5, "abc")
    fields = {"x": np.ones(2, np.float32), "in": {"i": np.ones(2, np.int16), "t": np.array(["a", "b"])}}
    found = tb.loads(tb.dumps({**fields, "v": np.ones((2, 2))}), like=np.zeros(2, STRUCT))
    assert found["in"].tolist() == [(1, "a"), (1, "b")]


def test_structured_arrays_that_differ():
    saved = np.array([(1.5, "abcd")], [("x", "f8"), ("t", "U4")])
    with pytest.raises(TemplateError, match=r"s/x: expected float64\[2\], got float64\[1\]"):
        tb.loads(tb.dumps({"s": saved}), like={"s": np.zeros(2, saved.dtype)})
    with pytest.raises(tb.errors.UnsupportedError, match="field 't' of the template, of dtype <U3, would cut short"):
        tb.loads(tb.dumps({"s": saved}), like={"s": np.zeros(1, [("x", "f8"), ("t", "U3")])})
    found = tb.loads(tb.dumps({"s": saved}), like={"s": np.zeros(1, [("x", "f4"), ("t", "U5")])}, dtype="like")
    assert found["s"].tolist() == saved.tolist()


def test_bytes_of_any_class():
    data = tb.dumps({"x": memoryview(b"abc")})
    assert tb.loads(data, like={"x": memoryview(b"xyz")})["x"].tolist() == list(b"abc")
    with pytest.raises(TemplateError, match=r"expected bytearray, got float64\[\]"):
        tb.loads(tb.dumps({"x": np.array(3.0)}), like={"x": bytearray()})


@dataclasses.dataclass
class Scaled:
    """Its fields are changed when it is made."""

    w: np.ndarray

    def __post_init__(self):
        self.w = self.w * 2


@dataclasses.dataclass
class NeedsMore:
    w: np.ndarray
    more: dataclasses.InitVar[int]


def test_dataclasses_that_do_things_when_they_are_made():
    saved = Scaled(np.ones(2))
    assert tb.loads(tb.dumps(saved), like=Scaled(np.zeros(2))).w.tolist() == [2, 2]
    with pytest.raises(tb.errors.UsageError, match="holds a NeedsMore, which can't be made of its fields"):
        tb.loads(tb.dumps(NeedsMore(np.ones(2), 3)), like=NeedsMore(np.ones(2), 3))


def test_sparse_and_ragged_values():
    import scipy.sparse

    matrix = scipy.sparse.random_array((4, 5), density=0.5, format="csr", rng=np.random.default_rng(0))
    found = tb.loads(tb.dumps({"m": matrix}), like={"m": scipy.sparse.csr_array((4, 5))})["m"]
    assert tb.equal(found, matrix)
    with pytest.raises(TemplateError, match=r"expected sparse float64\[5, 5\], got sparse float64\[4, 5\]"):
        tb.loads(tb.dumps({"m": matrix}), like={"m": scipy.sparse.csr_array((5, 5))})
    ragged = tb.Ragged(tb.Tensor("float64", (3,), np.arange(3.0)), (np.array([0, 1, 3]),))
    assert tb.equal(tb.loads(tb.dumps(ragged), like=ragged), ragged)


# ---- what is missing and left over -------------------------------------------------


def test_one_error_lists_everything(tmp_path):
    tb.save({"a": np.ones(2), "b": {"c": np.ones(3), "d": 1}, "n": None, "e": {}}, tmp_path / "x.tb")
    template = {"a": np.ones(3), "b": {"c": np.ones(3, np.float32)}, "new": {"w": np.ones(1)}, "none": None}
    with pytest.raises(TemplateError) as caught:
        tb.load(tmp_path / "x.tb", like=template)
    error = caught.value
    assert error.missing == ("new/w",)
    assert error.left_over == ("b/d",)
    assert error.different == (("a", "float64[3]", "float64[2]"), ("b/c", "float32[3]", "float64[3]"))
    assert error.path == str(tmp_path / "x.tb")
    assert str(error).splitlines() == [
        f"{tmp_path / 'x.tb'}: it does not fit the template",
        "  missing (1):",
        "    new/w (float64[1])",
        "  left over (1):",
        "    b/d",
        "  different (2):",
        "    a: expected float64[3], got float64[2]",
        "    b/c: expected float32[3], got float64[3]",
    ]
    assert isinstance(error, ValueError)
    assert pickle.loads(pickle.dumps(error)).different == error.different


def test_long_lists_are_shown_in_part():
    with pytest.raises(TemplateError, match="and 90 more") as caught:
        tb.loads(tb.dumps({"a": 1}), like={"a": 1, **{f"w{n}": np.ones(1) for n in range(100)}})
    assert len(caught.value.missing) == 100


def test_strict_false_keeps_what_the_template_has(tmp_path):
    tb.save({"a": np.ones(2), "old": 3}, tmp_path / "x.tb")
    template = {"a": np.zeros(2), "new": np.full(1, 7.0)}
    with pytest.raises(TemplateError, match="pass strict=False to keep the template's values"):
        tb.load(tmp_path / "x.tb", like=template)
    with pytest.warns(TemplateWarning, match=r"missing \(1\):\n    new .*\n  left over \(1\):\n    old") as caught:
        found = tb.load(tmp_path / "x.tb", like=template, strict=False)
    assert caught[0].filename == __file__
    assert (found["a"].tolist(), found["new"].tolist()) == ([1, 1], [7])
    with pytest.warns(TemplateWarning) as caught:
        tb.loads((tmp_path / "x.tb").read_bytes(), like=template, strict=False)
    assert caught[0].filename == __file__


def test_strict_false_does_not_pass_over_other_shapes_or_nothing_at_all():
    data = tb.dumps({"a": np.ones(2)})
    with pytest.raises(TemplateError, match=r"a: expected float64\[3\]"):
        tb.loads(data, like={"a": np.ones(3), "b": 1}, strict=False)
    with pytest.raises(TemplateError, match="missing") as caught:
        tb.loads(data, like={"model": {"a": np.ones(2)}}, strict=False)
    assert "strict" not in str(caught.value)


def test_a_part_goes_into_a_template_of_the_part(tmp_path):
    tb.save({"params": {"w": np.ones(2), "b": np.ones(1)}, "opt": [np.ones(5)]}, tmp_path / "x.tb")
    template = {"params": {"w": np.zeros(2), "b": np.zeros(1)}}
    found = tb.load(tmp_path / "x.tb", names=["params/*"], like=template)
    assert found["params"]["w"].tolist() == [1, 1]
    with pytest.raises(TemplateError, match="left over"):
        tb.load(tmp_path / "x.tb", like=template)


def test_each_object_of_a_stream(tmp_path):
    with tb.open(tmp_path / "x.tb", "w") as file:
        for n in range(3):
            file.write(Moments(n, np.full(2, n)))
    found = tb.load(tmp_path / "x.tb", like=Moments(0, np.zeros(2, np.int64)))
    assert [type(one) for one in found] == [Moments] * 3
    assert [one.count for one in found] == [0, 1, 2]


# ---- dtypes ------------------------------------------------------------------------


def test_casting_is_done_on_request():
    x = np.random.default_rng(0).normal(size=5)
    data = tb.dumps({"w": x, "n": np.arange(3), "lr": 0.1})
    template = {"w": np.zeros(5, np.float32), "n": np.zeros(3, np.int64), "lr": np.zeros((), np.float32)}
    with pytest.raises(TemplateError, match="pass dtype='like' to cast floats"):
        tb.loads(data, like=template)
    found = tb.loads(data, like=template, dtype="like")
    assert np.array_equal(found["w"], x.astype(np.float32))
    assert found["lr"] == np.float32(0.1)
    with pytest.raises(TemplateError, match=r"n: expected int32\[3\], got int64\[3\]"):  # floats alone
        tb.loads(data, like={**template, "n": np.zeros(3, np.int32)}, dtype="like")
    with pytest.raises(tb.errors.LossError, match="'w': float16 can't hold"):
        tb.loads(tb.dumps({"w": np.array([1e9])}), like={"w": np.zeros(1, np.float16)}, dtype="like")
    found = tb.loads(data, like={**template, "lr": 0.0}, dtype={"w": "float32"})  # cast first, then compared
    assert found["w"].dtype == np.float32


def test_slips():
    data = tb.dumps({"w": np.ones(2)})
    with pytest.raises(tb.errors.UsageError, match="dtype='like' goes with a template"):
        tb.loads(data, dtype="like")
    with pytest.raises(tb.errors.UsageError, match="strict=False goes with a template"):
        tb.loads(data, strict=False)
    with pytest.raises(tb.errors.UsageError, match="like= tells the framework"):
        tb.loads(data, like={"w": np.ones(2)}, to="torch")
    with pytest.raises(tb.errors.UnsupportedError, match=r"the template: builtins\.object at 'w' is neither"):
        tb.loads(data, like={"w": object()})
    loop = {}
    loop["w"] = loop
    with pytest.raises(tb.errors.UnsupportedError, match="containing itself"):
        tb.loads(data, like=loop)


# ---- torch -------------------------------------------------------------------------


def net():
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2, dtype=torch.bfloat16)
    )


@pytest.mark.parametrize("name", ["x.tb", "x.safetensors", "x.pt", "x.npz"])
def test_a_module_stands_for_its_state(name, tmp_path):
    one, two = net(), net()
    tb.save({"model": one.state_dict(), "epoch": 3}, tmp_path / name)
    found = tb.load(tmp_path / name, like={"model": two, "epoch": 0})
    assert type(found["model"]) is type(two.state_dict())
    assert found["model"]._metadata == two.state_dict()._metadata
    assert not tb.equal(two.state_dict(), one.state_dict())  # nothing was changed in place
    two.load_state_dict(found["model"])
    assert tb.equal(two.state_dict(), one.state_dict())
    with pytest.raises(TemplateError, match=r"2.weight \(bfloat16\[2, 4\]\)"):
        tb.load(tmp_path / name, names="model/[01].*", like={"model": two})


def test_tensors_on_the_meta_device(tmp_path):
    one = net()
    tb.save(one.state_dict(), tmp_path / "x.safetensors")
    with torch.device("meta"):
        empty = net()
    empty.load_state_dict(tb.load(tmp_path / "x.safetensors", like=empty), assign=True)
    assert tb.equal(empty.state_dict(), one.state_dict())
    assert tb.load(tmp_path / "x.safetensors", like=one, device="cpu")["0.bias"].device.type == "cpu"


def test_parameters_and_what_learns():
    data = tb.dumps({"p": np.ones(2, np.float32), "g": np.ones(2, np.float32), "n": torch.ones(2, requires_grad=True)})
    template = {"p": torch.nn.Parameter(torch.zeros(2)), "g": torch.zeros(2, requires_grad=True), "n": torch.zeros(2)}
    found = tb.loads(data, like=template)
    assert type(found["p"]) is torch.nn.Parameter
    assert [one.requires_grad for one in found.values()] == [True, True, False]


def test_an_optimizer_goes_on(tmp_path):
    def train(model, optimizer, steps):
        generator = torch.Generator().manual_seed(5)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.rand(4, 3, generator=generator)).square().mean().backward()
            optimizer.step()

    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer, 3)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    tb.save(state, tmp_path / "x.tb")
    found = tb.load(tmp_path / "x.tb", like=copy.deepcopy(state))
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(found["model"])
    again = torch.optim.AdamW(other.parameters(), lr=0.5)
    again.load_state_dict(found["optimizer"])
    train(model, optimizer, 3)
    train(other, again, 3)
    assert tb.equal(other.state_dict(), model.state_dict())


def test_tied_tensors_stay_tied():
    w = torch.ones(3)
    found = tb.loads(tb.dumps({"a": w, "b": w}), like={"a": torch.zeros(3), "b": torch.zeros(3)})
    assert found["a"].data_ptr() == found["b"].data_ptr()


# ---- TensorFlow ---------------------------------------------------------------------


def test_tensorflow():
    import tensorflow as tf

    data = tb.dumps({"w": np.ones((2, 3), np.float32), "s": np.array(["a"], object), "n": np.arange(3)})
    template = {"w": tf.TensorSpec((None, 3)), "s": tf.constant(["x"]), "n": tf.Variable(tf.zeros(3, tf.int64))}
    found = tb.loads(data, like=template)
    assert all(tf.is_tensor(one) for one in found.values())
    assert tb.equal(found, tb.loads(data, to="tensorflow"))
    with pytest.raises(TemplateError, match=r"expected float32\[\?, 4\], got float32\[2, 3\]"):
        tb.loads(data, like={**template, "w": tf.TensorSpec((None, 4))})
