"""The readers and the writer in examples/, which need neither tensorbytes nor a protobuf library."""

import base64
import json
import shutil
import subprocess

import ml_dtypes
import numpy as np
import pytest

import tensorbytes as tb
from tests.support import ROOT
from tests.support.golden import write
from tests.support.wire_bytes import (
    BOOL,
    FLOAT32,
    INT64,
    STRING,
    field,
    framed,
    int64s,
    layout,
    number,
    place,
    tag,
    tensor,
    varint,
)

EXAMPLES = ROOT / "examples"
NODE, JAVA, JAVAC = (shutil.which(name) for name in ("node", "java", "javac"))
LANGUAGES = [
    pytest.param("node", marks=pytest.mark.skipif(not NODE, reason="no node here")),
    pytest.param("java", marks=pytest.mark.skipif(not (JAVA and JAVAC), reason="no java here")),
]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """How each reader is started; Java's is compiled once."""
    found = {"node": [NODE, str(EXAMPLES / "node" / "read_tensors.mjs")]}
    if JAVA and JAVAC:
        folder = tmp_path_factory.mktemp("java")
        subprocess.run(
            [JAVAC, "-Xlint:all", "-Werror", "-d", folder, EXAMPLES / "java" / "ReadTensors.java"], check=True
        )
        found["java"] = [JAVA, "-XX:TieredStopAtLevel=1", "-cp", str(folder), "ReadTensors"]
    return found


def read(command, path):
    done = subprocess.run([*command, path], capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


DTYPES = {
    "float32": np.array([[1.5, -0.0, np.nan], [np.inf, 1e-45, 0.1]], np.float32),
    "float64": np.array([np.pi, -np.inf, 5e-324, 1.7976931348623157e308]),
    "float16": np.array([1.5, 65504, 6e-8, -0.0, np.nan, -np.inf, 0.1], np.float16),
    "bfloat16": np.array([1.5, 3.3895e38, 1e-40, -0.0, np.nan, np.inf], ml_dtypes.bfloat16),
    "int64": np.array([[-1, (1 << 63) - 1], [-(1 << 63), 0]]),
    "uint64": np.array([(1 << 64) - 1, 0], np.uint64),
    "int32": np.array([-(1 << 31), (1 << 31) - 1], np.int32),
    "uint32": np.array([(1 << 32) - 1], np.uint32),
    "int16": np.array([-(1 << 15)], np.int16),
    "uint16": np.array([(1 << 16) - 1], np.uint16),
    "int8": np.array([-128, 127], np.int8),
    "uint8": np.array([255, 0], np.uint8),
    "bool": np.array([[True], [False]]),
    "complex64": np.array([1 - 2j, complex(np.nan, -0.0)], np.complex64),
    "complex128": np.array([1e300 + 0.1j]),
}
OTHERS = {
    "empty": np.empty((0, 3), np.float32),
    "scalar": np.array(2.5),
    "large": np.arange(3000, dtype=np.float32),  # padded in a .tb file
    "fp8": np.array([1, 2], ml_dtypes.float8_e5m2),
    "texts": np.array([['Grüße "\\', ""], ["漢字 😀", "\n\x01"]], object),
    "deep": [{"x": 1, -3: None}, (b"\xff\x00", {"y": "z"})],
    "ragged": tb.Ragged(
        tb.Tensor("int32", (3,), np.arange(3, dtype="<i4"), meta={}), (np.array([0, 1, 3]),), meta={"__proto__": "k"}
    ),
    "csr": tb.Sparse("csr", (2, 2), (np.array([0, 1, 1]), np.array([1])), tb.Tensor("bfloat16", (1,), b"\xc0\x3f")),
}


def numbers(values, dtype):
    """JSON's numbers, and the strings that stand for some, as an array of the dtype."""
    if dtype.startswith("complex"):
        return np.array([complex(float(re), float(im)) for re, im in values], dtype)
    if "int" in dtype:
        return np.array([int(value) for value in values], dtype)
    if dtype == "bool":
        assert all(type(value) is bool for value in values)
        return np.array(values, bool)
    return np.array([float(value) for value in values]).astype(getattr(ml_dtypes, dtype, dtype))


def same_numbers(found, x):
    assert found["shape"] == list(x.shape)
    assert found["dtype"] == x.dtype.name
    made = numbers(found["values"], found["dtype"]).reshape(x.shape)
    assert repr(made) == repr(x)  # NaN equals NaN here, and -0.0 differs from 0.0
    if x.dtype.name != "bfloat16" and x.dtype.kind != "c" and x.dtype.kind != "f":
        assert made.tobytes() == x.tobytes()


@pytest.mark.parametrize("suffix", ["pbs", "tb"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_structure(language, suffix, commands, tmp_path):
    tb.save({**DTYPES, **OTHERS}, tmp_path / f"x.{suffix}", meta={"run": "7", "ü": ""})
    found = read(commands[language], tmp_path / f"x.{suffix}")
    by_name = {one["name"]: one for one in found}
    assert list(by_name)[: len(DTYPES)] == list(DTYPES)
    assert [(one["part"], one["parts"]) for one in found] == [(i, len(found)) for i in range(len(found))]
    assert found[0]["document"] == {"run": "7", "ü": ""}
    assert found[1]["document"] == {}
    for name, x in {**DTYPES, **{key: OTHERS[key] for key in ("empty", "scalar", "large")}}.items():
        same_numbers(by_name[name], x)
        assert by_name[name]["path"] == ["named"]
    assert by_name["texts"]["values"] == OTHERS["texts"].reshape(-1).tolist()
    assert (by_name["texts"]["shape"], by_name["texts"]["encoding"]) == ([2, 2], "utf-8")
    assert by_name["fp8"]["dtype"] == "code 24"
    assert base64.b64decode(by_name["fp8"]["content"]) == OTHERS["fp8"].tobytes()
    step = by_name["deep/0/-3"]
    assert (step["kind"], step["path"]) == ("none", [{"key": "deep"}, {"list": 0}, {"number": "-3"}])
    assert (by_name["deep/0/x"]["kind"], by_name["deep/0/x"]["values"]) == ("int", ["1"])
    assert base64.b64decode(by_name["deep/1/0"]["values"][0]) == b"\xff\x00"
    splits, values = by_name["ragged"]["pieces"]
    assert (splits["values"], values["values"], values["dtype"]) == (["0", "1", "3"], [0, 1, 2], "int32")
    assert (by_name["ragged"]["layout"], by_name["ragged"]["meta"]) == ("ragged", {"__proto__": "k"})
    pointers, indices, entries, dims = by_name["csr"]["pieces"]
    assert [part["values"] for part in (pointers, indices, entries, dims)] == [
        ["0", "1", "1"],
        ["1"],
        [1.5],
        ["2", "2"],
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_one_message_and_a_stream(language, commands, tmp_path):
    tb.save(DTYPES["float32"], tmp_path / "x.binpb", name="w", meta={"unit": "m"})
    (found,) = read(commands[language], tmp_path / "x.binpb")
    same_numbers(found, DTYPES["float32"])
    assert (found["name"], found["meta"], found["path"]) == ("w", {"unit": "m"}, [])
    with tb.open(tmp_path / "x.tb", "w") as file:
        file.write(np.ones(2))
        file.write({"a": 1, "b": "x"})
    found = read(commands[language], tmp_path / "x.tb")
    assert [(one["item"], one["part"], one["parts"]) for one in found] == [(1, 0, 1), (2, 0, 2), (2, 1, 2)]
    for suffix in ("pbs", "tb"):
        (tmp_path / f"empty.{suffix}").write_bytes(b"")
        assert read(commands[language], tmp_path / f"empty.{suffix}") == []


@pytest.mark.parametrize("suffix", ["pbs", "tb"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_origins_and_aliases(language, suffix, commands, tmp_path):
    x = tb.Tensor("int8", (2,), b"\1\2", None, {"framework": "mine"}, {"framework": "torch"})
    path = tmp_path / f"x.{suffix}"
    tb.save({"a": x, "ü": x, "b": np.ones(1)}, path, meta={"k": "v"}, origin={"k": "w"})
    first, second, third = read(commands[language], path)
    assert (first["meta"], first["origin"]) == ({"framework": "mine"}, {"framework": "torch"})
    assert (first["document"], first["document_origin"]) == ({"k": "v"}, {"k": "w"})
    assert (second["name"], second["layout"], second["alias"], second["values"]) == ("ü", "alias", 0, ["a"])
    assert (third["meta"], third["origin"], third.get("alias")) == ({}, {}, None)


@pytest.mark.parametrize("language", LANGUAGES)
def test_tables(language, commands, tmp_path):
    (tmp_path / "x.tb").write_bytes(write("table"))
    found = read(commands[language], tmp_path / "x.tb")
    assert [one.get("rows") for one in found] == [3, None, None, None, None]
    assert found[2]["path"] == [{"key": "text"}, {"mask": 0}]
    assert (found[2]["name"], found[2]["values"]) == ("text/mask0", [True, False, True])
    (tmp_path / "y.tb").write_bytes(write("table-groups"))
    groups = read(commands[language], tmp_path / "y.tb")
    assert [(one["item"], one.get("rows")) for one in groups if not one["part"]] == [(1, 2), (2, 0), (3, 3)]


@pytest.mark.skipif(not JAVA, reason="no java here")
def test_java_needs_no_build(tmp_path):
    tb.save({"a": np.ones(2)}, tmp_path / "x.pbs")
    found = read([JAVA, str(EXAMPLES / "java" / "ReadTensors.java")], tmp_path / "x.pbs")
    assert found[0]["values"] == [1.0, 1.0]


@pytest.mark.skipif(not NODE, reason="no node here")
def test_python_reads_what_node_writes(tmp_path):
    script = EXAMPLES / "node" / "write_tensors.mjs"
    subprocess.run([NODE, script, tmp_path / "x.pbs"], check=True, timeout=60)
    found = tb.load(tmp_path / "x.pbs")
    assert list(found) == ["weights", "counts", "flags", "texts", "empty", "scalar"]
    assert repr(found["weights"]) == repr(np.array([[1.5, -2, 0.1], [4, 5, -0.0]], np.float32))
    assert (found["counts"].dtype, found["counts"].tolist()) == (np.int64, [-1, 1 << 62])
    assert (found["flags"].dtype, found["flags"].tolist()) == (np.bool_, [True, False, True])
    assert found["texts"].tolist() == [["Grüße"], [""], ["漢字"]]
    assert (found["empty"].dtype, found["empty"].shape) == (np.uint16, (0, 4))
    assert (found["scalar"].shape, float(found["scalar"])) == ((), np.pi)
    with tb.open(tmp_path / "x.pbs") as file:
        assert file.format == "delimited"
        assert file["weights"].meta == {"unit": "volt"}
    # Not only the same values: the same bytes as ours.
    found["weights"] = tb.Tensor("float32", (2, 3), found["weights"].reshape(-1), meta={"unit": "volt"})
    assert (tmp_path / "x.pbs").read_bytes() == tb.dumps(found, "delimited")
    done = subprocess.run([NODE, script, tmp_path / "no" / "x.pbs"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no such file" in done.stderr


ONE = tensor(INT64, (1,), field(4, bytes(8)))
ALIAS = tensor(STRING, (), field(1007, "alias"), field(8, "a"))
SOUND = tb.dumps({"a": np.ones(3), "b": "x"}, "delimited")
RECORDS = tb.dumps({"a": np.ones(3), "b": "x"})
ANOTHER = RECORDS.replace(np.ones(3).tobytes(), np.full(3, 2.0).tobytes())
DAMAGED = {
    "no message": ("binpb", b"", ""),
    "no dtype": ("binpb", field(4, bytes(8)), "no dtype"),
    "cut": ("binpb", ONE[:-1], "claims 8 bytes where 7 are left"),
    "content too short": ("binpb", tensor(FLOAT32, (2,), field(4, bytes(4))), "float32"),
    "too many strings": ("binpb", tensor(STRING, (1,), field(8, b"a") * 2), "1 strings expected, got 2"),
    "no bool": ("binpb", tensor(BOOL, (1,), field(4, b"\2")), "the byte 2 is not a valid bool"),
    "text that is not UTF-8": ("binpb", ONE + field(1000, b"\xff"), ""),
    "a later version": ("binpb", ONE + number(1012, 1), "field 1012 is of a later version"),
    "typed values": ("binpb", tensor(INT64, (1,), number(10, 1)), "which this example does not read"),
    "metadata twice": ("binpb", ONE + field(1001, field(1, "k")) * 2, "stored twice"),
    "a dimension that is not a number": ("binpb", number(1, 9) + field(2, field(2, field(1, b"3"))), "field 1"),
    "a shape that is not a message": ("binpb", number(1, 9) + number(2, 1), "field 2"),
    "a negative dimension": ("binpb", tensor(INT64, (-1,)), ""),
    "a shape beyond counting": ("binpb", tensor(INT64, (1 << 62, 1 << 62)), ""),
    "an unknown wire type": ("binpb", ONE + tag(99, 6), ""),
    "eleven bytes": ("binpb", ONE + b"\x80" * 10 + b"\1", ""),
    "a layout in a layout": ("binpb", layout("ragged", layout("ragged", int64s(0)), int64s(1)), "field 1007 in a part"),
    "many layouts in layouts": ("binpb", None, "field 1007 in a part"),
    "an alias of itself": ("binpb", ALIAS + place(1, 2) + number(1017, 1), "a part that comes before it"),
    "an alias of nothing": ("binpb", ALIAS + place(1, 2), "a part that comes before it"),
    "an alias without its layout": ("binpb", ONE + place(1, 2) + number(1017, 0), "a part that comes before it"),
    "origins twice": ("binpb", ONE + field(1014, field(1, "k")) * 2, "stored twice"),
    "a part alone": ("binpb", ONE + place(0, 2), "the file ends after 1 of 2"),
    "no parts": ("binpb", ONE + place(0, 0), "part 0 of 0"),
    "cut in a message": ("pbs", SOUND[:-1], ""),
    "cut between messages": ("pbs", SOUND[: 1 + SOUND[0]], "the file ends after 1 of 2"),
    "parts in another order": ("pbs", SOUND[1 + SOUND[0] :], "part 1 of 2 where part 0 was due"),
    "zeros at the end": ("pbs", SOUND + bytes(8), "a message of no bytes"),
    "a length of 2^63": ("pbs", varint(1 << 63) + ONE, ""),
    "a length over 64 bits": ("pbs", b"\x80" * 9 + b"\x02" + ONE, "more than 64 bits"),
    "cut in a record": ("tb", RECORDS[:-1], ""),
    "cut in a header": ("tb", RECORDS + RECORDS[:7], ""),
    "a bit of the content": ("tb", ANOTHER, "record's data differs"),
    "a bit of the length": ("tb", bytes([RECORDS[0] ^ 1]) + RECORDS[1:], "record's length differs"),
    "a record of 2^64 - 16 bytes": ("tb", None, ""),
}  # fmt: skip


def nested_layouts(depth):
    raw = ONE
    for _ in range(depth):
        raw = layout("ragged", raw)
    return raw


def endless_record():
    raw = bytearray(framed(b""))
    raw[:8] = ((1 << 64) - 16).to_bytes(8, "little")
    return bytes(raw[:8]) + framed(bytes(raw[:8]))[20:24] + bytes(64)


MADE = {"many layouts in layouts": lambda: nested_layouts(2000), "a record of 2^64 - 16 bytes": endless_record}


@pytest.mark.parametrize("language", LANGUAGES)
def test_damage_is_told(language, commands, tmp_path):
    paths = {}
    for n, (case, (suffix, raw, _)) in enumerate(DAMAGED.items()):
        paths[case] = tmp_path / f"{n}.{suffix}"
        paths[case].write_bytes(MADE[case]() if raw is None else raw)
    done = subprocess.run([*commands[language], *paths.values()], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    told = done.stderr.splitlines()
    assert len(told) == len(DAMAGED), "one message for each, no stack trace"
    for line, (case, (_, _, words)) in zip(told, DAMAGED.items(), strict=True):
        path, _, message = line.partition(": ")
        assert path == str(paths[case])
        assert words in message, case
        assert len(message) > 10


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_damaged_file_does_not_hide_the_others(language, commands, tmp_path):
    sound, damaged = tmp_path / "sound.pbs", tmp_path / "damaged.pbs"
    sound.write_bytes(SOUND)
    damaged.write_bytes(SOUND[:-1])
    done = subprocess.run([*commands[language], damaged, sound, tmp_path / "none.pbs"], capture_output=True, text=True)
    assert done.returncode == 1
    assert [one["name"] for one in json.loads(done.stdout)] == ["a", "b"]
    assert [line.partition(": ")[0] for line in done.stderr.splitlines()] == [str(damaged), str(tmp_path / "none.pbs")]


@pytest.mark.parametrize("language", LANGUAGES)
def test_without_arguments(language, commands):
    done = subprocess.run(commands[language], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ")
