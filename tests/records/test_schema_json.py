"""Schemas as JSON: what is written is read back, everything else is refused with its place."""

import contextlib
import io
import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes import dtypes
from tensorbytes.errors import SchemaError, UsageError
from tensorbytes.formats.tfrecord.schema import Feature, Schema, sidecar_path
from tensorbytes.formats.tfrecord.schema import json as schema_json
from tests.support.tiers import deep_but

ALL = ["text", "bytes", *(name for name in dtypes.DTYPES if name not in ("datetime64", "timedelta64"))]


def sample():
    missing = {"caption": Feature("text", optional=True), "w": Feature("float32", default=1)}
    return Schema({"label": "int64", "image": ("uint8", [28, 28]), **missing})


def json_of(features):
    return json.dumps({"tensorbytes.schema": 1, "features": features})


NAMES = st.text(st.characters(codec="utf-8"), max_size=8)


@st.composite
def features(draw, with_default=True):
    dtype = draw(st.sampled_from(ALL))
    standard = Feature(dtype).encoding
    choices = [standard, "base64"] if dtype in ("text", "bytes") else [standard, "raw"]
    if dtype in ("text", "bytes") or dtypes.get(dtype).in_tensorflow:
        choices.append("tensorproto")
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    if with_default and not dtype.startswith("q") and draw(st.booleans()):
        return Feature(dtype, shape, draw(st.sampled_from(choices)), default=draw(default_values(dtype, shape)))
    if shape and 0 not in shape and draw(st.booleans()):
        shape[draw(st.integers(0, len(shape) - 1))] = None
    return Feature(dtype, shape, draw(st.sampled_from(choices)), draw(st.booleans()))


def default_values(dtype, shape):
    if dtype in ("text", "bytes"):
        scalar = NAMES if dtype == "text" else st.binary(max_size=5)
    elif dtype == "bool":
        scalar = st.booleans()
    else:
        # any pattern of bits that the dtype has, if it is a value of it
        row = dtypes.get(dtype)
        low = st.integers(0, (1 << row.bits) - 1)
        scalar = low.map(lambda bits: np.frombuffer(bits.to_bytes(row.itemsize, "little"), dtypes.to_numpy(dtype))[0])
        scalar = scalar.map(lambda item: item.item())
    array = st.lists(scalar, min_size=math.prod(shape), max_size=math.prod(shape))
    return st.one_of(scalar, array.map(lambda items: np.array(items, object).reshape(shape)))


SCHEMAS = st.builds(
    Schema,
    st.dictionaries(NAMES, features(), max_size=4),
    st.none() | st.dictionaries(NAMES, features(with_default=False), max_size=3),
)


@given(SCHEMAS)
def test_json_there_and_back(schema):
    text = schema.to_json()
    again = Schema.from_json(text)
    assert again == schema
    assert list(again) == list(schema)
    assert again.to_json() == text
    assert Schema.from_json(text.encode()) == schema
    assert json.loads(text)["tensorbytes.schema"] == 1
    if "j" not in repr(schema):  # Python itself can't read back its infinite complex numbers
        assert eval(repr(schema), {"Schema": Schema, "Feature": Feature, "nan": math.nan, "inf": math.inf}) == schema
    assert schema.merge(again) == schema
    assert schema.select(list(schema)) == schema
    assert len(str(schema).splitlines()) == len(schema) + (3 if schema.sequence else 1)


def test_the_json_is_written_for_readers():
    schema = Schema({"b": ("float32", [None, 3]), "a": Feature("bytes", default=b"\xff")}, {"é": str})
    assert schema.to_json() == (
        "{\n"
        ' "features": {\n'
        '  "a": {"default": "/w==", "dtype": "bytes", "encoding": "flat", "optional": true, "shape": []},\n'
        '  "b": {"dtype": "float32", "encoding": "flat", "shape": [null, 3]}\n'
        " },\n"
        ' "lists": {\n'
        '  "é": {"dtype": "text", "encoding": "flat", "shape": []}\n'
        " },\n"
        ' "tensorbytes.schema": 1\n'
        "}\n"
    )
    assert Schema({}, {}).to_json() == '{\n "features": {},\n "lists": {},\n "tensorbytes.schema": 1\n}\n'


def test_files(tmp_path):
    path = sidecar_path(str(tmp_path / "train.tfrecord"))
    assert path.endswith("train.tfrecord.schema.json")
    sample().save(path)
    assert Schema.load(path) == sample()
    Schema({}).save(path)
    assert Schema.load(path) == Schema({})
    assert [file.name for file in tmp_path.iterdir()] == ["train.tfrecord.schema.json"]
    file = io.BytesIO()
    sample().save(file)
    file.seek(0)
    assert Schema.load(file) == sample()
    sample().save("memory://schemas/a.json")
    assert Schema.load("memory://schemas/a.json") == sample()
    (tmp_path / "bad.json").write_bytes(b"{\n")
    with pytest.raises(SchemaError, match=r"bad\.json: not JSON: .* at line 2, column 1"):
        Schema.load(tmp_path / "bad.json")
    with pytest.raises(FileNotFoundError):
        Schema.load(tmp_path / "none.json")
    with pytest.raises(UsageError, match="path"):
        Schema.load(3)


def test_reading_wants_only_the_dtype():
    assert Schema.from_json(json_of({"x": {"dtype": "float64"}})) == Schema({"x": "float64"})
    text = ' \n{"tensorbytes.schema":1,"features":{"__class__":{"dtype":"int64"},"../x\\u0000":{"dtype":"text"}}}'
    assert list(Schema.from_json(text)) == ["../x\0", "__class__"]
    twins = Schema.from_json(json_of({"\u00e9": {"dtype": "text"}, "e\u0301": {"dtype": "text"}}))
    assert len(twins) == 2


X = '{"tensorbytes.schema":1,"features":{"x":%s}}'
Y = '{"tensorbytes.schema":1,"features":{},"lists":{"y":%s}}'
REFUSED = {
    "empty": (b"", "not JSON"),
    "bom": (b"\xef\xbb\xbf" + Schema({}).to_json().encode(), "not JSON: .*BOM"),
    "utf-16": (Schema({}).to_json().encode("utf-16-le"), "not JSON"),
    "invalid UTF-8": (b'{"\xff', "not UTF-8: invalid start byte at byte 2"),
    "overlong UTF-8": (b'{"\xc0\x80":1}', "not UTF-8"),
    "surrogate in UTF-8": (b'{"\xed\xa0\x80":1}', "not UTF-8"),
    "deep list": ("[" * 50_000, "nested too deeply|not JSON"),
    "deep object": ('{"a":' * 50_000, "nested too deeply|not JSON"),
    "deep default": (X % ('{"dtype":"int64","default":' + "[" * 900 + "]" * 900 + "}"), "default"),
    "list": ("[]", "expected an object, got \\[\\]"),
    "null": ("null", "expected an object"),
    "extra": (Schema({}).to_json() + "{}", "Extra data"),
    "no version": ('{"features":{}}', 'the key "tensorbytes.schema" is missing'),
    "version 2": ('{"tensorbytes.schema":2,"features":{},"more":1}', "version 2 of the schema format"),
    "version 1.0": ('{"tensorbytes.schema":1.0,"features":{}}', "version 1.0"),
    "version true": ('{"tensorbytes.schema":true,"features":{}}', "version True"),
    "version huge": ('{"tensorbytes.schema":' + "9" * 5000 + "}", "version an integer of 5000 digits"),
    "no features": ('{"tensorbytes.schema":1}', '"features" is missing'),
    "unknown top key": ('{"tensorbytes.schema":1,"features":{},"context":{}}', "unknown key 'context'"),
    "top key twice": ('{"tensorbytes.schema":1,"features":{},"features":{}}', "the key 'features' appears twice"),
    "feature twice": (X % '{"dtype":"text"},"x":{"dtype":"text"}', "features: the key 'x' appears twice"),
    "field twice": (X % '{"dtype":"int64","dtype":"int64"}', r"features\['x'\]: the key 'dtype' appears twice"),
    "features list": ('{"tensorbytes.schema":1,"features":[]}', "features: expected an object"),
    "lists null": ('{"tensorbytes.schema":1,"features":{},"lists":null}', "lists: expected an object, got None"),
    "feature text": (X % '"int64"', r"features\['x'\]: expected an object, got 'int64'"),
    "unknown field": (X % '{"dtype":"int64","units":"m"}', r"features\['x'\]: unknown key 'units'"),
    "no dtype": (X % "{}", "dtype is missing"),
    "dtype number": (X % '{"dtype":3}', "dtype: expected text, got 3"),
    "dtype unknown": (X % '{"dtype":"float"}', "unknown dtype 'float'"),
    "dtype long": (X % ('{"dtype":"' + "f" * 10**6 + '"}'), "unknown dtype 'f+'"),
    "dtype surrogate": (X % '{"dtype":"\\ud800"}', "unknown dtype"),
    "encoding empty object": (X % '{"dtype":"int64","encoding":{}}', "encoding: expected text, got an object"),
    "encoding": (X % '{"dtype":"uint64","encoding":"flat"}', "can't be stored as flat"),
    "shape text": (X % '{"dtype":"int64","shape":"3"}', "shape: expected a list"),
    "shape float": (X % '{"dtype":"int64","shape":[2.0]}', "size in a shape must be .* got 2.0"),
    "shape bool": (X % '{"dtype":"int64","shape":[true]}', "size in a shape"),
    "shape negative": (X % '{"dtype":"int64","shape":[-1]}', "size in a shape"),
    "shape NaN": (X % '{"dtype":"int64","shape":[NaN]}', "got NaN, which is not JSON"),
    "shape huge": (X % ('{"dtype":"int64","shape":[' + "9" * 5000 + "]}"), "an integer of 5000 digits"),
    "shape 2**63": (X % '{"dtype":"int64","shape":[9223372036854775808]}', "size in a shape"),
    "shape overflow": (X % '{"dtype":"int64","shape":[4294967296,4294967296]}', "2\\*\\*63 bytes"),
    "shape deep": (X % '{"dtype":"int64","shape":[[[3]]]}', "size in a shape"),
    "shape of many": (X % ('{"dtype":"int64","shape":[' + "1," * 10**5 + "1]}"), "100001 dimensions"),
    "optional text": (X % '{"dtype":"int64","optional":"no"}', "optional: expected true or false"),
    "optional number": (X % '{"dtype":"int64","optional":1}', "optional: expected true or false"),
    "default null": (X % '{"dtype":"int64","default":null}', "default: null"),
    "default NaN": (X % '{"dtype":"float32","default":NaN}', "got NaN, which is not JSON"),
    "default Infinity": (X % '{"dtype":"float32","default":-Infinity}', "got -Infinity, which is not JSON"),
    "default 1e999": (X % '{"dtype":"float32","default":1e999}', "too large for a float"),
    "default text": (X % '{"dtype":"float32","default":"1"}', "must be a number, got '1'"),
    "default huge": (X % ('{"dtype":"int64","default":' + "9" * 5000 + "}"), "an integer of 5000 digits"),
    "default object": (X % '{"dtype":"int64","default":{}}', "got an object"),
    "default shape": (X % '{"dtype":"int64","shape":[2],"default":[1,2,3]}', "must be a scalar or have"),
    "default for none": (X % '{"dtype":"int64","shape":[null],"default":1}', "without None"),
    "default base64": (X % '{"dtype":"bytes","default":"@@@"}', "must be base64"),
    "default base64 unicode": (X % '{"dtype":"bytes","default":"é"}', "must be base64"),
    "default bytes number": (X % '{"dtype":"bytes","default":3}', "must be base64"),
    "default surrogate": (X % '{"dtype":"text","default":"\\ud800"}', "lone surrogate"),
    "default complex": (X % '{"dtype":"complex64","default":1}', r"must be \[real, imaginary\]"),
    "default complex text": (X % '{"dtype":"complex64","default":["1","2"]}', "must be a number"),
    "default complex triple": (X % '{"dtype":"complex64","default":[1,2,3]}', "default"),
    "default list": (Y % '{"dtype":"int64","default":0}', r"lists\['y'\]: a default is for"),
    "name surrogate": ('{"tensorbytes.schema":1,"features":{"\\ud800":{"dtype":"int64"}}}', "lone surrogate"),
    "control character": (X % '{"dtype":"int\n64"}', "not JSON: Invalid control character"),
    "many values": ("[" + "[]," * (1 << 17) + "[]]", "expected an object"),
    "millions of values": ("[" + "[]," * (2 << 20) + "[]]", "expected an object"),
    "long": (b" " * (schema_json.MAX_BYTES + 1), "over 67108864 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("case", deep_but([case for case in REFUSED if case != "millions of values"], REFUSED))
def test_json_that_is_refused(case):
    data, words = REFUSED[case]
    with pytest.raises(SchemaError, match=f"a.json: .*{words}|a.json: {words}") as caught:
        Schema.from_json(data, source="a.json")
    assert len(str(caught.value)) < 1000


def test_a_million_byte_name_and_ten_thousand_names_are_fine():
    schema = Schema({"n" * 10**6: "int64", **{str(n): "int64" for n in range(10_000)}})
    assert Schema.from_json(schema.to_json()) == schema
    with pytest.raises(UsageError, match="no feature"):
        schema.select(["x"])


DAMAGE = [b"", b"{", b"}", b"[", b"]", b",", b'"', b":", b"null", b"-1", b"1e999", b"NaN", b"\\ud800", b"\xff"]


@given(SCHEMAS, st.data())
def test_damaged_json_is_read_or_refused(schema, data):
    text = bytearray(schema.to_json().encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.sampled_from(DAMAGE))
    with contextlib.suppress(SchemaError):
        assert isinstance(Schema.from_json(bytes(text)), Schema)


def test_whatever_the_stack_holds_no_recursion_error_escapes():
    text = X % ('{"dtype":"int64","default":' + "[" * 400 + "]" * 400 + "}")

    def deeper(levels):
        if levels:
            return deeper(levels - 1)
        with pytest.raises(SchemaError):
            Schema.from_json(text)
        return None

    deeper(sys.getrecursionlimit() // 2)
