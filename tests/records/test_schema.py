"""Feature and Schema: what is accepted, what is refused, merging."""

import copy
import math
import pickle

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import torch

from tensorbytes import dtypes
from tensorbytes.errors import SchemaError, UsageError
from tensorbytes.formats.tfrecord.schema import KINDS, Feature, Schema

FLOATS = [name for name in dtypes.DTYPES if "float" in name]


# ---- Feature ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "encoding", "kind"),
    [
        ("int64", "flat", "int64"), ("uint8", "flat", "int64"), ("int4", "flat", "int64"), ("bool", "flat", "int64"),
        ("uint64", "tensorproto", "bytes"), ("float32", "flat", "float"), ("float16", "flat", "float"),
        ("bfloat16", "flat", "float"), ("float8_e4m3fn", "flat", "float"), ("float4_e2m1fn", "flat", "float"),
        ("float64", "tensorproto", "bytes"), ("complex64", "tensorproto", "bytes"), ("qint8", "tensorproto", "bytes"),
        ("complex32", "raw", "bytes"), ("text", "flat", "bytes"), ("bytes", "flat", "bytes"),
    ],
)  # fmt: skip
def test_the_default_encoding_loses_nothing(dtype, encoding, kind):
    feature = Feature(dtype)
    assert (feature.encoding, feature.kind, feature.kind_number) == (encoding, kind, KINDS[kind])


@pytest.mark.parametrize("dtype", [name for name in FLOATS if name not in ("float32", "float64")])
def test_narrow_floats_fit_a_float_list(dtype):
    assert Feature(dtype).kind == "float"
    row = dtypes.get(dtype)
    every = np.arange(1 << row.bits).astype(f"u{row.itemsize}").view(dtypes.to_numpy(dtype))
    with np.errstate(invalid="ignore"):  # signalling nan
        np.testing.assert_array_equal(every.astype(np.float32).astype(np.float64), every.astype(np.float64))


@pytest.mark.parametrize(
    ("feature", "size", "width", "words"),
    [
        (Feature("float32", [32]), 32, 32, "float32[32]"),
        (Feature("int64", [None]), None, None, "int64[?]"),
        (Feature("text"), 1, 1, "text"),
        (Feature("uint8", [28, 28], "tensorproto"), 784, 1, "uint8[28, 28] as tensorproto"),
        (Feature("float64", [None, None]), None, 1, "float64[?, ?]"),
        (Feature("int16", [None, 2], "raw"), None, 1, "int16[?, 2] as raw"),
        (Feature("bytes", [3], "base64"), 3, 3, "bytes[3] as base64"),
        (Feature("bytes", [0]), 0, 0, "bytes[0]"),
    ],
)
def test_a_feature_says_what_it_holds(feature, size, width, words):
    assert (feature.size, feature.width, feature.describe()) == (size, width, words)
    assert eval(repr(feature), {"Feature": Feature}) == feature
    assert hash(eval(repr(feature), {"Feature": Feature})) == hash(feature)


def test_what_is_given_is_normalised():
    feature = Feature("float32", np.array([2, 3]), "", default=np.zeros((2, 3)))
    assert feature.shape == (2, 3)
    assert all(type(n) is int for n in feature.shape)
    assert feature.encoding == "flat"
    assert feature.optional
    assert feature.default.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        feature.default[0, 0] = 1
    with pytest.raises(AttributeError):
        feature.dtype = "int64"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("int64", Feature("int64")),
        (Feature("text"), Feature("text")),
        (("float32", [28, 28]), Feature("float32", (28, 28))),
        ((np.uint8, (None,)), Feature("uint8", (None,))),
        ({"dtype": "text", "optional": True}, Feature("text", optional=True)),
        ({"dtype": int, "default": 3}, Feature("int64", default=3)),
        (int, Feature("int64")),
        (str, Feature("text")),
        (bytes, Feature("bytes")),
        (bool, Feature("bool")),
        (np.float64, Feature("float64")),
        (np.dtype(">i4"), Feature("int32")),
        (np.dtype("U7"), Feature("text")),
        (np.dtypes.StringDType(), Feature("text")),
        (np.dtype("S7"), Feature("bytes")),
        (ml_dtypes.bfloat16, Feature("bfloat16")),
        (tf.float16, Feature("float16")),
        (tf.string, Feature("bytes")),
        (torch.bfloat16, Feature("bfloat16")),
        (torch.float8_e5m2, Feature("float8_e5m2")),
        (jnp.float32, Feature("float32")),
    ],
)
def test_short_forms(spec, expected):
    assert Feature.of(spec) == expected
    assert isinstance(spec, Feature | dict | tuple) or Feature(spec) == expected


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (float, "choose 'float32' or 'float64'"),
        (complex, "choose 'complex64' or 'complex128'"),
        ("float", "unknown dtype 'float'; known: "),
        ("string", "known: .*bytes.*text"),
        ("x" * 10**6, "unknown dtype 'x+'"),
        (np.zeros(3), "expected a feature"),
        (object(), "expected a feature"),
        (None, "expected a feature"),
        (list, "expected a feature"),
        (["int64", [3]], "expected a feature"),
        (np.dtype(object), "no portable form"),
        (np.dtype([("a", "i4")]), "structured"),
        (np.dtype("M8[s]"), "store int64"),
        (tf.resource, "unknown dtype"),
        (("int64",), r"expected a pair \(dtype, shape\)"),
        (("int64", 3), r"shape must be a list, such as \[28, 28\]"),
        (("int64", "3"), "shape must be a list"),
        ({"shape": [3]}, "needs a dtype"),
        ({"dtype": "int64", "shpae": [3]}, "unknown field of a feature 'shpae'"),
    ],
)
def test_short_forms_that_make_no_sense(spec, words):
    with pytest.raises(UsageError, match=words):
        Feature.of(spec)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((np.zeros(3),), "expected a feature"),
        (("datetime64",), "store int64"),
        (("int64", [-1]), "from 0 to"),
        (("int64", [True]), "from 0 to"),
        (("int64", [2.0]), "from 0 to"),
        (("int64", ["2"]), "from 0 to"),
        (("int64", [1 << 63]), "from 0 to"),
        (("int64", [10**5000]), "from 0 to"),
        (("int64", [1 << 32, 1 << 31]), r"2\*\*63 bytes"),
        (("int64", [1] * 65), "at most 64"),
        (("int64", [], "packed"), "unknown encoding 'packed'; known: base64, flat, raw, tensorproto"),
        (("int64", [], None), "unknown encoding None"),
        (("int64", [], "base64"), "base64 is for text and bytes"),
        (("float64", [], "flat"), "a float list holds float32; use 'tensorproto'"),
        (("uint64", [], "flat"), r"ends at 2\*\*63 - 1; use 'tensorproto'"),
        (("complex64", [], "flat"), "no list holds it; use 'tensorproto'"),
        (("qint8", [], "flat"), "no list holds it"),
        (("complex32", [], "flat"), "use 'raw'"),
        (("complex32", [], "tensorproto"), "TensorFlow has no such dtype; use 'raw'"),
        (("float8_e3m4", [], "tensorproto"), "TensorFlow has no such dtype; use 'flat'"),
        (("text", [], "raw"), "no raw form"),
        (("bytes", [], "raw"), "no raw form"),
        (("int64", [None, None]), "can tell only one; pass encoding='tensorproto'"),
        (("int64", [None, None], "raw"), "can tell only one"),
        (("text", [None, None], "base64"), "can tell only one"),
        (("int64", [None, 0]), "no values that could tell"),
        (("int64", [None, 0], "raw"), "no values that could tell"),
        (("int64", [], "", 1), "optional must be True or False"),
        (("int64", [None], "", True, 0), r"shape without None, got int64\[\?\]"),
    ],
)
def test_combinations_that_are_refused(arguments, words):
    with pytest.raises(UsageError, match=words):
        Feature(*arguments)


def test_a_tensorproto_may_vary_in_every_dimension():
    assert Feature("int64", [None, None, 0], "tensorproto").shape == (None, None, 0)
    assert Feature("text", [None, None], "tensorproto").width == 1


# ---- defaults ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "shape", "given", "kept"),
    [
        ("int64", [], 5, 5),
        ("int64", [], np.int8(5), 5),
        ("uint64", [], 2**64 - 1, 2**64 - 1),
        ("int4", [2], [-8, 7], [-8, 7]),
        ("bool", [], np.True_, True),
        ("float32", [], 0.1, 0.1),
        ("float32", [], np.float32(0.1), 0.1),
        ("float32", [], 1, 1.0),
        ("float32", [2, 2], 0, 0.0),
        ("float64", [], -math.inf, -math.inf),
        ("bfloat16", [], 0.5, 0.5),
        ("bfloat16", [], 0.1, 0.10009765625),
        ("float8_e4m3fn", [1], [448], [448.0]),
        ("float8_e8m0fnu", [], 2, 2.0),
        ("complex64", [2], [1j, 2], [1j, 2 + 0j]),
        ("complex32", [], 1.5, 1.5 + 0j),
        ("text", [], "é", "é"),
        ("text", [2], np.array(["a", "b"]), ["a", "b"]),
        ("text", [3], "pad", "pad"),
        ("bytes", [1, 2], ((b"\xff", b""),), [[b"\xff", b""]]),
        ("int32", [0, 3], [], []),
        ("int32", [2, 0], [[], []], [[], []]),
        ("uint8", [2], torch.tensor([1, 2]), [1, 2]),
    ],
)
def test_defaults_that_fit(dtype, shape, given, kept):
    feature = Feature(dtype, shape, default=given)
    assert feature.optional
    array = feature.default_array()
    assert array.shape == tuple(shape)
    assert array.dtype == (object if dtype in ("text", "bytes") else dtypes.to_numpy(dtype))
    assert not array.flags.writeable
    plain = feature.default.tolist() if isinstance(feature.default, np.ndarray) else feature.default
    assert plain == kept
    assert type(plain) is type(kept)
    assert eval(repr(feature), {"Feature": Feature, "inf": math.inf}) == feature
    assert Schema.from_json(Schema({"x": feature}).to_json())["x"] == feature


@pytest.mark.parametrize(
    ("dtype", "shape", "given"),
    [
        ("int64", [], 1.0), ("int64", [], True), ("int64", [], "1"), ("int64", [], 2**63),
        pytest.param("int64", [], 10**5000, id="10**5000"),
        ("int4", [], 8), ("uint8", [], -1), ("bool", [], 1), ("bool", [], "x"),
        ("float32", [], 1e39), ("float32", [], "1"), ("float32", [], True), ("float32", [], 1j),
        pytest.param("float32", [], 10**400, id="10**400"),
        ("float16", [], 70000), ("float8_e4m3fn", [], 1000), ("float8_e4m3fn", [], math.inf),
        ("float6_e2m3fn", [], 100), ("float4_e2m1fn", [], math.nan), ("float4_e2m1fn", [], math.inf),
        ("float8_e8m0fnu", [], -1), ("float8_e8m0fnu", [], 0),
        ("complex64", [], 1e39j), ("complex64", [], "1j"), ("complex64", [], None.__class__),
        ("text", [], b"a"), ("text", [], 1), ("text", [], "\ud800"), ("bytes", [], "a"),
        ("int64", [2], [1]), ("int64", [2], [1, 2, 3]), ("int64", [2], [[1], [2]]), ("int64", [], [1]),
        ("int64", [], []),
        ("int64", [2, 2], [1, 2]), ("int64", [2], np.zeros((2, 1), int)), ("text", [2], ["a", b"b"]),
        ("qint8", [], 1), ("int64", [], {}), ("float32", [], torch.zeros(1, requires_grad=True)),
    ],
)  # fmt: skip
def test_defaults_that_do_not_fit(dtype, shape, given):
    with pytest.raises(UsageError, match="default"):
        Feature(dtype, shape, default=given)


def test_defaults_are_compared_by_their_bits():
    assert Feature("float32", default=math.nan) == Feature("float32", default=math.nan)
    assert Feature("float32", default=0.0) != Feature("float32", default=-0.0)
    assert Feature("float32", [2], default=[1, 2]) == Feature("float32", [2], default=np.array([1.0, 2.0]))
    assert Feature("float32", default=1) != Feature("float32", optional=True)
    assert Feature("float32") != "float32"
    with pytest.raises(UsageError, match="no default"):
        Feature("float32").default_array()


# ---- Schema -----------------------------------------------------------------


def sample():
    missing = {"caption": Feature("text", optional=True), "w": Feature("float32", default=1)}
    return Schema({"label": "int64", "image": ("uint8", [28, 28]), **missing})


def test_a_schema_is_a_sorted_mapping():
    schema = sample()
    assert list(schema) == list(schema.keys()) == ["caption", "image", "label", "w"]
    assert len(schema) == 4
    assert schema["image"] == Feature("uint8", (28, 28))
    assert "image" in schema
    assert "imgae" not in schema
    assert 3 not in schema
    assert schema.get("imgae") is None
    assert not schema.sequence
    assert schema.lists is None
    assert schema == Schema(dict(reversed(schema.features.items())))
    assert schema != Schema(schema.features, {})
    assert schema != dict(schema)
    with pytest.raises(KeyError, match="did you mean 'image'"):
        schema["imgae"]
    with pytest.raises(TypeError, match="does not support item assignment"):
        schema.features["x"] = Feature("int64")
    assert pickle.loads(pickle.dumps(schema)) == copy.deepcopy(schema) == schema
    assert eval(repr(schema), {"Schema": Schema, "Feature": Feature}) == schema


def test_names_shared_by_context_and_lists_get_a_prefix():
    schema = Schema({"x": "int64", "id": "text"}, {"x": "float32", "tokens": ("int64", [None])})
    assert list(schema) == ["id", "context/x", "tokens", "lists/x"]
    assert schema.sequence
    assert schema.columns["lists/x"] == (True, "x", Feature("float32"))
    assert schema.columns["context/x"] == (False, "x", Feature("int64"))
    assert schema["tokens"].shape == (None,)
    with pytest.raises(KeyError, match="say 'context/x' or 'lists/x'"):
        schema["x"]
    part = schema.select(["lists/x", "id"])
    assert part == Schema({"id": "text"}, {"x": "float32"})
    assert list(part) == list(pickle.loads(pickle.dumps(part))) == ["id", "lists/x"]
    assert part.columns["lists/x"] == schema.columns["lists/x"]
    assert eval(repr(schema), {"Schema": Schema, "Feature": Feature}) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_a_prefix_that_is_itself_a_name_prefixes_all():
    schema = Schema({"x": "int64", "context/x": "text"}, {"x": "float32"})
    assert list(schema) == ["context/context/x", "context/x", "lists/x"]
    assert schema["context/x"] == Feature("int64")


def test_select():
    assert list(sample().select(["w", "label", "w"])) == ["label", "w"]
    with pytest.raises(UsageError, match="no feature 'lable'; did you mean 'label'"):
        sample().select(["lable"])
    with pytest.raises(UsageError, match="it has \\['caption'"):
        sample().select(["zzzzzz"])
    with pytest.raises(UsageError, match="no feature"):
        sample().select([["label"]])
    with pytest.raises(UsageError, match="for one name: \\['label'\\]"):
        sample().select("label")


def test_short_forms_of_schemas(tmp_path):
    schema = sample()
    assert Schema.of(schema) is schema
    assert Schema.of({"x": "int64"}) == Schema({"x": Feature("int64")})
    assert Schema.of(({"x": "int64"}, {"y": "text"})) == Schema({"x": "int64"}, {"y": "text"})
    schema.save(tmp_path / "a.json")
    assert Schema.of(tmp_path / "a.json") == Schema.of(str(tmp_path / "a.json")) == schema
    for bad in (3, None, [1], ({}, {}, {}), ({}, 3), b"{}"):
        with pytest.raises(UsageError, match="expected"):
            Schema.of(bad)


@pytest.mark.parametrize(
    ("features", "lists", "words"),
    [
        ({"x": float}, None, "feature 'x': float does not say"),
        ({"x": "int64"}, {"y": "in64"}, "feature list 'y': unknown dtype"),
        ({3: "int64"}, None, "must be text"),
        ({"\ud800": "int64"}, None, "lone surrogate"),
        ({}, {"y": Feature("int64", default=1)}, "feature list 'y': a default"),
        ([("x", "int64")], None, "expected a dict"),
    ],
)
def test_schemas_that_are_refused(features, lists, words):
    with pytest.raises(UsageError, match=words):
        Schema(features, lists)


CLEAR_SCREEN = "\x1b[2J"


def test_the_table_is_aligned_and_safe_to_print():
    assert str(sample()).splitlines() == [
        "name     type           encoding  if missing",
        "caption  text           flat      optional",
        "image    uint8[28, 28]  flat",
        "label    int64          flat",
        "w        float32        flat      default 1.0",
    ]
    text = str(Schema({CLEAR_SCREEN: "int64", "": "text"}, {"n" * 100000: ("float64", [None, 3])}))
    assert text.splitlines() == [
        f"{'name':60}  type           encoding     if missing",
        "context:",
        f"{chr(39) * 2:60}  text           flat",
        f"{CLEAR_SCREEN!r:60}  int64          flat",
        "lists, in each step:",
        f"{'n' * 57}...  float64[?, 3]  tensorproto",
    ]
    assert str(Schema({})) == "name  type  encoding  if missing"


# ---- merging ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "together"),
    [
        (Feature("int64"), Feature("int64"), Feature("int64")),
        (Feature("int64"), Feature("int64", [4]), Feature("int64", [None])),
        (Feature("int64"), Feature("int64", [None]), Feature("int64", [None])),
        (Feature("int64", [3]), Feature("int64", [4]), Feature("int64", [None])),
        (Feature("text", [3], "base64"), Feature("text", [], "base64"), Feature("text", [None], "base64")),
        (Feature("int16", [3], "raw"), Feature("int16", [], "raw"), Feature("int16", [None], "raw")),
        (Feature("int64", [2, 3]), Feature("int64", [5, 3]), Feature("int64", [None, 3])),
        (Feature("int64", [2, 3]), Feature("int64", [2, None]), Feature("int64", [2, None])),
        (Feature("float64", [2, 3]), Feature("float64", [5, 4]), Feature("float64", [None, None])),
        (Feature("int64", optional=True), Feature("int64"), Feature("int64", optional=True)),
        (Feature("int64", default=3), Feature("int64"), Feature("int64", default=3)),
        (Feature("int64", default=3), Feature("int64", default=3), Feature("int64", default=3)),
        (Feature("int64"), None, Feature("int64", optional=True)),
        (Feature("int64", default=3), None, Feature("int64", default=3)),
    ],
)
def test_merging(a, b, together):
    first, second = Schema({"x": a, "y": "text"}), Schema({"x": b, "y": "text"} if b else {"y": "text"})
    expected = Schema({"x": together, "y": "text"})
    assert first.merge(second) == second.merge(first) == expected
    as_lists = Schema({}, first.features).merge(Schema({}, second.features)) if together.default is None else None
    assert as_lists is None or as_lists.lists == expected.features


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (Feature("int64"), Feature("float32"), "'x' is int64 in a, but float32 in b: they differ in dtype"),
        (Feature("int64"), Feature("int32"), "differ in dtype"),
        (Feature("text"), Feature("bytes"), "differ in dtype"),
        (
            Feature("text"),
            Feature("text", encoding="base64"),
            "text in a, but text as base64 in b: they differ in encoding",
        ),
        (Feature("int64", [2]), Feature("int64", [2, 2]), "number of dimensions"),
        (Feature("int64", []), Feature("int64", [2, 2]), "number of dimensions"),
        (Feature("float64"), Feature("float64", [3]), "number of dimensions"),
        (Feature("int64", [2, 3]), Feature("int64", [4, 5]), r"together, shape \[None, None\] varies in 2"),
        (Feature("int64", [2, 0]), Feature("int64", [4, 0]), "together, .* no values"),
        (Feature("int64", default=1), Feature("int64", default=2), "defaults are 1 and 2"),
        (Feature("int64", [1], default=0), Feature("int64", [2]), "together, a default needs"),
    ],
)
def test_what_can_not_be_merged(a, b, words):
    with pytest.raises(SchemaError, match=f"feature .*{words}"):
        Schema.merged([("a", Schema({"x": a})), ("b", Schema({"x": b}))])
    with pytest.raises(SchemaError, match=r"feature 'x' is .* in the first schema, but .* in the second: "):
        Schema({"x": a}).merge(Schema({"x": b}))


def test_merging_many_names_the_two_that_disagree():
    def ints(*shape):
        return Schema({"x": ("int64", shape)})

    assert Schema.merged((str(n), ints(n)) for n in range(5)) == ints(None)
    with pytest.raises(SchemaError, match=r"x' is int64\[2\] in a, but text in c"):
        Schema.merged([("a", ints(2)), ("b", ints(3)), ("c", Schema({"x": "text"})), ("d", ints(1))])
    with pytest.raises(SchemaError, match=r"is int64\[2, 3\] in b, but int64\[4, 4\] in c"):
        Schema.merged([("a", ints(2, 4)), ("b", ints(2, 3)), ("c", ints(4, 4))])
    with pytest.raises(SchemaError, match="a describes Examples, but b SequenceExamples"):
        Schema.merged([("a", ints(2)), ("b", Schema({}, {}))])
    with pytest.raises(UsageError, match="at least one"):
        Schema.merged([])
    assert Schema.merged([("a", ints(2))]) == ints(2)
