"""tb head, cat, stats and schema: the values themselves."""

import io
import json
import struct

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes
from tensorbytes.cli import values
from tensorbytes.cli.contents import looks_like
from tests.support.cli_cases import checkpoint, in_terminal, inside, piped, record_file

RAGGED = tb.Ragged(tb.Tensor("float32", (4,), np.arange(4, dtype="<f4")), (np.array([0, 1, 1, 4]),))
SPARSE = tb.Sparse(
    "coo", (2, 3), (np.array([[0, 1], [1, 2]]),), tb.Tensor("float32", (2,), np.array([0.5, 1.5], "<f4"))
)
VALUES = {
    "float32": (
        np.array([[0.1, 1e-7], [np.nan, 3e38]], np.float32),
        [[0.1, 1e-7], ["NaN", 3e38]],
        "0.1 1e-07\nnan 3e+38\n",
    ),
    "float64": (np.array([0.1, -np.inf]), [0.1, "-Infinity"], "0.1\n-inf\n"),
    "int64": (np.array([2**63 - 1, -(2**63)]), [2**63 - 1, -(2**63)], f"{2**63 - 1}\n{-(2**63)}\n"),
    "uint64": (np.array([2**64 - 1], np.uint64), [2**64 - 1], f"{2**64 - 1}\n"),
    "complex64": (np.array([1 - 2j], np.complex64), [[1.0, -2.0]], "1.0-2.0j\n"),
    "bool": (np.array([True, False]), [True, False], "true\nfalse\n"),
    "date": (np.array(["2026-03-01T12:00", "NaT"], "M8[m]"), ["2026-03-01T12:00", "NaT"], "2026-03-01T12:00\nNaT\n"),
    "duration": (np.array([5, "NaT"], "m8[s]"), [5, "NaT"], "5 s\nNaT\n"),
    "text": (np.array(["Köln", "a\x1b\n"], object), ["Köln", "a\x1b\n"], "Köln\na\\x1b\\n\n"),
    "bytes": (np.array([b"ab", b"\xff\0"], object), ["ab", {"base64": "/wA="}], "ab\n\\xff\\x00\n"),
    "scalar": (np.float32(0.1), 0.1, "0.1\n"),
    "empty": (np.zeros((2, 0, 3)), [[], []], ""),
    "cube": (np.arange(8).reshape(2, 2, 2), [[[0, 1], [2, 3]], [[4, 5], [6, 7]]], "0 1\n2 3\n\n4 5\n6 7\n"),
    "ragged": (RAGGED, [[0.0], [], [1.0, 2.0, 3.0]], "0.0\n\n1.0 2.0 3.0\n"),
    "sparse": (
        SPARSE,
        {"layout": "coo", "shape": [2, 3], "indices": [[0, 1], [1, 2]], "values": [0.5, 1.5]},
        "0 1 0.5\n1 2 1.5\n",
    ),
    "quantized": (tb.Tensor("qint8", (2,), np.array([1, -1], np.int8)), [1, -1], "1\n-1\n"),
}


@pytest.fixture
def types(tmp_path):
    path = tmp_path / "types.tb"
    tb.save({name: value for name, (value, _, _) in VALUES.items()}, path)
    return path


@pytest.fixture
def records(tmp_path):
    return record_file(tmp_path / "train.tfrecord", 50)


# ---- cat ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VALUES)
def test_every_kind_of_value(name, types, capsys):
    _, plain, text = VALUES[name]
    assert inside(capsys, "cat", f"{types}::{name}", "--json").item["values"] == plain
    assert inside(capsys, "cat", f"{types}::{name}").out == text


@pytest.mark.parametrize("name", [row.name for row in dtypes.DTYPES.values() if "float" in row.name])
def test_floats_come_back_from_their_digits(name):
    dtype = dtypes.to_numpy(name)
    width = dtype.itemsize
    bits = np.random.default_rng(0).integers(0, 2 ** min(dtypes.get(name).bits, 63), 3000).astype(f"u{width}")
    array = bits.view(dtype)
    with np.errstate(all="ignore"):
        back = np.array([float(text) for text in values.texts(array)]).astype(dtype)
        there = np.isnan(array.astype(np.float64))
    assert (there | (back.view(bits.dtype) == bits)).all()


def test_digits_are_as_few_as_do():
    assert values.texts(np.array([0.1, 1 / 3, 100], dtypes.to_numpy("bfloat16"))) == ["0.1", "0.334", "100.0"]
    assert values.texts(np.array([0.125], dtypes.to_numpy("float8_e8m0fnu"))) == ["0.125"], (
        "not 0.1, though that would do"
    )


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_slices(compression, tmp_path, capsys):
    x = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
    options = {"compression": compression} if compression else {}
    tb.save({"x": x}, tmp_path / "x.tb", **options)
    for index in ("0", "1:3, :, -1", "..., 0", "-1, ::2", ":, 1:1"):
        expected = eval(f"x[{index}]")
        found = inside(capsys, "cat", f"{tmp_path / 'x.tb'}::x[{index}]", "--json").item
        assert (found["shape"], found["values"]) == (list(expected.shape), expected.tolist())
        inside(capsys, "cat", f"{tmp_path / 'x.tb'}::x[{index}]", "--as", "npy", "-f", "-o", tmp_path / "out.npy")
        assert np.array_equal(np.load(tmp_path / "out.npy"), expected)
    ran = inside(capsys, "cat", f"{tmp_path / 'x.tb'}::x[7]")
    assert ran.code == 2
    assert "out of bounds" in ran.err
    assert "the shape is [3, 4, 5]" in ran.err


def test_a_slice_reads_its_own_part_alone(tmp_path, capsys):
    """Damage elsewhere in the tensor does not matter to a slice, and does to the whole."""
    tb.save({"x": np.arange(10_000)}, tmp_path / "x.tb")
    data = bytearray((tmp_path / "x.tb").read_bytes())
    data[-100] ^= 1
    (tmp_path / "x.tb").write_bytes(data)
    assert inside(capsys, "cat", f"{tmp_path / 'x.tb'}::x[:3]", "--json").item["values"] == [0, 1, 2]
    ran = inside(capsys, "cat", f"{tmp_path / 'x.tb'}::x")
    assert (ran.code, ran.out) == (1, "")
    assert "checksum" in ran.err


def test_large_ones_in_blocks(tmp_path, capsys, monkeypatch):
    """Blocks of any size give the same text."""
    x = np.arange(5 * 7 * 3).reshape(5, 7, 3)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    expected = [inside(capsys, "cat", tmp_path / "x.npy", *form) for form in (["--json"], [])]
    assert json.loads(expected[0].out)["values"] == x.tolist()
    for size in (1, 2, 10, 20, 100):
        monkeypatch.setattr(values.flat_blocks, "__defaults__", (size,))
        for path in ("x.npy", "f.npy"):
            assert json.loads(inside(capsys, "cat", tmp_path / path, "--json").out)["values"] == x.tolist()
            shown = "".join(values.write_lines(x.shape, values.flat_blocks(np.load(tmp_path / path)), ","))
            assert np.array_equal(np.loadtxt(io.StringIO(shown), delimiter=",").reshape(x.shape), x)


def test_names_that_are_not_there(tmp_path, capsys):
    tb.save(checkpoint(2), tmp_path / "model.tb")
    path = tmp_path / "model.tb"
    assert "did you mean 'embed.weight'" in inside(capsys, "cat", f"{path}::embed.wieght").err
    assert "'layers.0.norm.weight'" in inside(capsys, "cat", f"{path}::norm").err
    assert "it has 'embed.weight'" in inside(capsys, "cat", f"{path}::zzz").err
    assert "holds 8 tensors: say which one" in inside(capsys, "cat", path).err


def test_forms_of_bytes(tmp_path, capsys):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    tb.save({"x": x}, tmp_path / "x.tb")
    address = f"{tmp_path / 'x.tb'}::x"
    raw = piped("cat", address, "--as", "raw", "--byteorder", ">", "--order", "F", text=False)
    assert raw.out == x.T.astype(">f4").tobytes()
    assert np.array_equal(np.load(io.BytesIO(piped("cat", address, "--as", "npy", text=False).out)), x)
    inside(capsys, "cat", address, "--as", "tensorproto", "-o", tmp_path / "x.pb")
    assert tb.equal(tb.load(tmp_path / "x.pb", format="tensorproto"), x)
    inside(capsys, "cat", address, "--as", "tb", "-o", tmp_path / "y.tb")
    assert tb.equal(tb.load(tmp_path / "y.tb"), x)
    assert inside(capsys, "cat", address, "--as", "csv").out == "0.0,1.0,2.0\n3.0,4.0,5.0\n"
    assert "unknown form 'nyp'" in inside(capsys, "cat", address, "--as", "nyp").err
    assert "--order is for --as raw" in inside(capsys, "cat", address, "--order", "F").err


def test_bytes_are_kept_from_the_terminal(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3, dtype=np.uint8))
    refused = in_terminal("cat", "x.npy", "--as", "raw", cwd=tmp_path)
    assert refused.code == 2
    assert "this is a terminal" in refused.out
    assert in_terminal("cat", "x.npy", "--as", "raw", "--force", cwd=tmp_path).out == "\x00\x01\x02"
    assert in_terminal("cat", "x.npy", cwd=tmp_path).out == "0\n1\n2\n"


def test_files_are_not_replaced_unasked(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.ones(2))
    (tmp_path / "out").write_text("mine")
    assert "pass --force" in inside(capsys, "cat", tmp_path / "x.npy", "-o", tmp_path / "out").err
    assert (tmp_path / "out").read_text() == "mine"
    assert inside(capsys, "cat", tmp_path / "x.npy", "--as", "csv", "-o", tmp_path / "out", "-f").code == 0
    assert (tmp_path / "out").read_text() == "1.0\n1.0\n"
    assert "pass --force" in inside(capsys, "info", tmp_path / "x.npy", "--html", tmp_path / "out").err
    assert inside(capsys, "info", tmp_path / "x.npy", "--html", tmp_path / "out", "-f").code == 0


def test_csv_quotes(tmp_path, capsys):
    tb.save({"t": np.array([["a,b", 'c"d'], ["e", "f"]], object)}, tmp_path / "t.tb")
    assert inside(capsys, "cat", f"{tmp_path / 't.tb'}::t", "--as", "csv").out == '"a,b","c""d"\ne,f\n'
    np.save(tmp_path / "cube.npy", np.ones((2, 2, 2)))
    assert "CSV has two dimensions" in inside(capsys, "cat", tmp_path / "cube.npy", "--as", "csv").err


def test_records_and_their_features(records, capsys):
    third = inside(capsys, "cat", f"{records}::#3", "--json").item
    assert (third["record"], third["values"]["text"], third["values"]["ids"]) == (3, "Köln 3", [0, 1, 2])
    assert inside(capsys, "cat", f"{records}::#-1", "--json").item["record"] == 49
    assert inside(capsys, "cat", f"{records}::#50").code == 2
    assert len(inside(capsys, "cat", records, "--json").items) == 50
    assert inside(capsys, "cat", f"{records}::ids[2:5]").out == "0 1\n0 1 2\n0 1 2 3\n"
    assert [row["value"] for row in inside(capsys, "cat", f"{records}::score[0:2]", "--json").items] == [None, 0.25]
    assert inside(capsys, "cat", f"{records}::image[7, 0, :2]", "--json").item["value"] == [7, 7]
    assert "out of bounds" in inside(capsys, "cat", f"{records}::label[99]").err
    assert "did you mean 'label'" in inside(capsys, "cat", f"{records}::lable").err
    assert "record 3\n  ids    [0, 1, 2]\n" in inside(capsys, "cat", f"{records}::#3").out


def test_a_feature_as_an_array(records, tmp_path, capsys):
    assert inside(capsys, "cat", f"{records}::label", "--as", "npy", "-o", tmp_path / "label.npy").code == 0
    assert np.load(tmp_path / "label.npy").tolist() == list(range(50))
    assert "name a feature" in inside(capsys, "cat", f"{records}::#3", "--as", "npy").err


def test_objects_of_a_stream(tmp_path, capsys):
    with tb.open(tmp_path / "s.tb", "w") as file:
        for n in range(3):
            file.write({"n": n, "x": np.arange(n), "none": None})
    path = tmp_path / "s.tb"
    assert [item["values"]["n"] for item in inside(capsys, "cat", path, "--json").items] == [0, 1, 2]
    assert inside(capsys, "cat", f"{path}::#-1", "--json").item["values"] == {"n": 2, "x": [0, 1], "none": None}
    assert "there are 3 objects" in inside(capsys, "cat", f"{path}::#3").err
    assert "take one object by its number" in inside(capsys, "cat", f"{path}::x").err


def test_rows_of_a_table(tmp_path, capsys):
    pytest.importorskip("pyarrow")
    tb.save({"a": np.arange(5), "b": np.ones((5, 2))}, tmp_path / "t.parquet")
    path = tmp_path / "t.parquet"
    assert inside(capsys, "cat", f"{path}::#3", "--json").item["values"] == {"a": 3, "b": [1.0, 1.0]}
    assert inside(capsys, "cat", f"{path}::a[1:3]", "--json").item["values"] == [1, 2]
    assert [row["values"]["a"] for row in inside(capsys, "head", path, "-n", "2", "--json").items] == [0, 1]


def test_through_the_pipe(types):
    assert piped("cat", "-::cube[0]", "--json", stdin=types.read_bytes()).item["path"] == "stdin"
    refused = piped("cat", "-::cub", stdin=types.read_bytes())
    assert refused.err == "tb cat: stdin has no tensor 'cub'; did you mean 'cube'?\n"


# ---- head -----------------------------------------------------------------------------


def test_first_values(tmp_path, capsys):
    tb.save(checkpoint(1), tmp_path / "model.tb")
    found = inside(capsys, "head", tmp_path / "model.tb", "-n", "2", "--json").items
    assert [item["name"] for item in found] == list(checkpoint(1))
    assert np.array_equal(np.float32(found[0]["first"]), checkpoint(1)["embed.weight"].ravel()[:2])
    only = inside(capsys, "head", tmp_path / "model.tb", "--names", "*.bias", "--json").item
    assert only["name"] == "layers.0.attention.query.bias"
    assert inside(capsys, "head", f"{tmp_path / 'model.tb'}::head.weight", "--json").item["name"] == "head.weight"
    assert "there is no tensor 'no*'" in inside(capsys, "head", tmp_path / "model.tb", "--names", "no*").err


def test_first_values_of_every_kind(types, capsys):
    found = {item["name"]: item["first"] for item in inside(capsys, "head", types, "--json").items}
    assert found["cube"] == [0, 1, 2, 3, 4]
    assert found["ragged"] == [[0.0], [], [1.0, 2.0, 3.0]]
    assert found["empty"] == []
    assert found["scalar"] == [0.1]
    shown = inside(capsys, "head", types).out
    assert "2026-03-01T12:00 NaT" in shown


@pytest.mark.parametrize("shape", [(3, 4, 5), (100, 2), (1, 1, 50), (7,)])
def test_first_values_of_what_is_compressed(shape, tmp_path, capsys):
    x = np.arange(int(np.prod(shape))).reshape(shape)
    tb.save({"x": x}, tmp_path / "x.tb", compression="zstd")
    for count in (1, 3, 6, 1000):
        assert (
            inside(capsys, "head", tmp_path / "x.tb", "-n", count, "--json").item["first"] == x.ravel()[:count].tolist()
        )


def test_first_records(records, capsys):
    found = inside(capsys, "head", records, "-n", "3", "--json").items
    assert [item["record"] for item in found] == [0, 1, 2]
    assert found[1]["values"]["score"] == 0.25
    assert set(inside(capsys, "head", records, "--names", "label", "-n", "1", "--json").item["values"]) == {"label"}
    shown = in_terminal("head", records, "-n", "2").plain
    assert 'text   text         "Köln 1"' in shown


def test_what_is_large_is_described(tmp_path, capsys):
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + bytes(1000)
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        writer.write({"image": png, "x": np.arange(1000), "note": b"plain text"})
    row = inside(capsys, "head", tmp_path / "x.tfrecord", "--json").item["values"]
    assert row["image"] == {"bytes": len(png), "content": "PNG 640x480"}
    assert row["x"] == {"dtype": "int64", "shape": [1000], "first": list(range(10))}
    assert row["note"] == "plain text"
    shown = inside(capsys, "head", tmp_path / "x.tfrecord").out
    assert "<1.02 kB PNG 640x480>" in shown
    assert '"plain text"' in shown


def test_pictures_by_their_headers():
    jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(10) + b"\xff\xc0\0\x11\x08" + struct.pack(">HH", 480, 640) + bytes(20)
    assert looks_like(jpeg) == "JPEG 640x480"
    assert looks_like(b"GIF89a" + struct.pack("<HH", 3, 2) + bytes(20)) == "GIF 3x2"
    assert looks_like(jpeg[:25]) == "JPEG"
    assert looks_like(b"\xff\xd8\xff" + b"\xff" * 50) == "JPEG"


# ---- stats ----------------------------------------------------------------------------


def test_figures(tmp_path, capsys):
    x = np.array([1, 2, 3, 0, np.nan, np.inf], np.float32)
    tb.save({"x": x, "text": ["a", "b", "a"]}, tmp_path / "x.tb")
    numbers, text = inside(capsys, "stats", tmp_path / "x.tb", "--json").items
    assert (numbers["min"], numbers["max"], numbers["mean"], numbers["nan"], numbers["positive_inf"]) == (
        0,
        3,
        1.5,
        1,
        1,
    )
    assert text["frequent"][0] == ["a", 2]
    shown = inside(capsys, "stats", tmp_path / "x.tb").out
    assert "1 NaN, 1 +Inf" in shown
    assert '"a" 2' in shown


def test_a_misspelt_feature_shows_nothing(records, capsys):
    ran = inside(capsys, "head", records, "--names", "lable")
    assert (ran.code, ran.out) == (2, "")
    assert "'lable'" in ran.err


def test_dash_is_stdout(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    ran = piped("cat", "x.npy", "--as", "csv", "-o", "-", cwd=tmp_path)
    assert (ran.code, ran.out) == (0, "0\n1\n2\n")
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


def test_a_histogram_is_drawn(tmp_path):
    np.save(tmp_path / "x.npy", np.repeat(np.arange(4), [1, 2, 4, 8]))
    shown = in_terminal("stats", "x.npy", "--bins", "4", cwd=tmp_path).lines
    assert shown[0].split() == ["name", "dtype", "count", "min", "max", "mean", "std", "zero"]
    bars = [line[10:] for line in shown if "█" in line]
    assert len(bars) == 8
    assert bars[0].count("█") < bars[-1].count("█")
    assert shown[-1].split() == ["0", "3"]


def test_many_tensors_a_line_each(tmp_path):
    tb.save(checkpoint(2), tmp_path / "model.tb")
    shown = in_terminal("stats", "model.tb", cwd=tmp_path, columns=120).lines
    assert len(shown) == 9
    assert "spread" in shown[0]
    assert "█" in shown[1]
    assert len(in_terminal("stats", "model.tb", "-H", cwd=tmp_path, columns=120).lines) > 60


def test_figures_of_records(records, capsys):
    found = {item["name"]: item for item in inside(capsys, "stats", records, "--json").items}
    assert found["score"]["missing"] == 25
    assert found["label"]["max"] == 49
    assert list(inside(capsys, "stats", f"{records}::label", "--json").item["histogram"]["counts"])
    assert "2,500" not in inside(capsys, "stats", records).out
    assert "only whole tensors" in inside(capsys, "stats", f"{records}::label[0]").err


def test_damage_is_found(tmp_path, capsys):
    tb.save({"x": np.arange(1000)}, tmp_path / "x.tb")
    data = bytearray((tmp_path / "x.tb").read_bytes())
    data[-100] ^= 1
    (tmp_path / "x.tb").write_bytes(data)
    assert inside(capsys, "stats", tmp_path / "x.tb").code == 1


# ---- schema ---------------------------------------------------------------------------


def test_a_schema(records, capsys):
    found = inside(capsys, "schema", records, "--json").item
    assert found["origin"] == "sidecar"
    assert found["schema"]["features"]["score"]["optional"] is True
    assert inside(capsys, "schema", records, "--scan", "--json").item["origin"] == "all records"
    shown = inside(capsys, "schema", records).lines
    assert shown[0] == "5 features, as the file beside it says"
    assert [line.split()[0] for line in shown[2:]] == ["feature", "ids", "image", "label", "score", "text"]


def test_a_schema_to_keep(records, tmp_path, capsys):
    schema = tb.open_records(records).schema
    assert inside(capsys, "schema", records, "--as", "json", "-o", tmp_path / "s.json").out == ""
    assert tb.records.Schema.load(tmp_path / "s.json") == schema
    scope = {}
    exec(inside(capsys, "schema", records, "--as", "python").out, scope)
    assert scope["schema"] == schema


def test_odd_defaults_as_python(tmp_path, capsys):
    schema = tb.records.Schema(
        {
            "a": tb.records.Feature("float32", [2], default=[np.nan, -np.inf]),
            "b\n": tb.records.Feature("bytes", default=b"\xff"),
        },
        {"steps": tb.records.Feature("int64", [None])},
    )
    with tb.RecordWriter(tmp_path / "x.tfrecord", schema=schema) as writer:
        writer.write({"steps": [[1]]})
    scope = {}
    exec(inside(capsys, "schema", tmp_path / "x.tfrecord", "--as", "python").out, scope)
    assert scope["schema"] == schema
    assert "context" in inside(capsys, "schema", tmp_path / "x.tfrecord").out


def test_the_spec_of_tensorflow(records, tmp_path, capsys):
    """What is printed without TensorFlow is what to_tf() builds with it."""
    scope = {}
    exec(inside(capsys, "schema", records, "--as", "tf").out, scope)
    assert scope["spec"] == tb.open_records(records).schema.to_tf()
    schema = tb.records.Schema(
        {"id": tb.records.Feature("int64", default=7)}, {"x": tb.records.Feature("float32", [None, 2], optional=True)}
    )
    with tb.RecordWriter(tmp_path / "x.tfrecord", schema=schema) as writer:
        writer.write({"x": [[[1, 2]]]})
    exec(inside(capsys, "schema", tmp_path / "x.tfrecord", "--as", "tf").out, scope)
    assert repr((scope["context"], scope["lists"])) == repr(schema.to_tf()).replace("array(7)", "7")


@pytest.mark.parametrize("verb", ["head", "cat", "stats", "schema"])
def test_each_through_the_real_command(verb, records):
    ran = piped(verb, records, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert all(item["path"] == records for item in ran.items)
    shown = in_terminal(verb, records, columns=100)
    assert shown.code == 0
    assert "label" in shown.plain
    assert all(line.isprintable() for line in shown.lines)


def test_what_has_no_schema(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.ones(2))
    assert "not a TFRecord file" in inside(capsys, "schema", tmp_path / "x.npy").err


def test_csv_of_records_is_csv(tmp_path, capsys):
    import csv

    path = tmp_path / "x.tfrecord"
    rows = [{"one": "a,b", "many": ["x", 'q"q,']}, {"one": 'say "hi"', "many": ["y", "z"]}]
    with tb.RecordWriter(path) as w:
        for row in rows:
            w.write(row)
    for name, wanted in (("one", [["a,b"], ['say "hi"']]), ("many", [["x", 'q"q,'], ["y", "z"]])):
        ran = inside(capsys, "cat", f"{path}::{name}", "--as", "csv")
        assert ran.code == 0, ran.err
        assert list(csv.reader(io.StringIO(ran.out))) == wanted


def test_csv_of_sparse_strings_is_csv(tmp_path, capsys):
    import csv

    held = tb.Strings.from_items([b"a,b", b"c"], (2,), "bytes")
    tb.save({"x": tb.Sparse("coo", (2, 3), (np.array([[0, 1], [1, 2]]),), held)}, tmp_path / "x.tb")
    ran = inside(capsys, "cat", f"{tmp_path}/x.tb::x", "--as", "csv")
    assert list(csv.reader(io.StringIO(ran.out))) == [["0", "1", "a,b"], ["1", "2", "c"]]


@pytest.mark.parametrize("verb", ["info", "head", "cat", "stats", "schema"])
@pytest.mark.parametrize("option", ["nothing=1", "path=1", "columns=3", "to=numpy"])
def test_options_that_records_do_not_have(verb, option, tmp_path, capsys):
    path = record_file(tmp_path / "x.tfrecord", 5) or tmp_path / "x.tfrecord"
    ran = inside(capsys, verb, path, "--read-option", option)
    assert ran.code == 2, ran.out
    assert option.partition("=")[0] in ran.err


def test_schema_of_a_set_of_shards(tmp_path, capsys):
    record_file(tmp_path / "x.tfrecord", 20)
    assert inside(capsys, "split", tmp_path / "x.tfrecord", tmp_path / "y.tfrecord", "--shards", "2").code == 0
    ran = inside(capsys, "schema", f"{tmp_path}/y.tfrecord@2", "--json")
    assert ran.code == 0, ran.err
    assert ran.item["schema"] == inside(capsys, "schema", tmp_path / "x.tfrecord", "--json").item["schema"]
    assert "missing" in inside(capsys, "schema", f"{tmp_path}/y.tfrecord@3").err


def test_names_stay_however_long_the_figures_are(tmp_path):
    times = np.array(["2020-01-01T00:00:00.000000001", "2021-01-01"], "M8[ns]")
    tb.save({"when": times, "w": np.arange(3.0)}, tmp_path / "x.tb")
    ran = in_terminal("stats", "x.tb", cwd=tmp_path, columns=40)
    assert ran.code == 0
    assert ran.lines[0].split()[0] == "name"
    assert [line.split()[0] for line in ran.lines[1:3]] == ["when", "w"]
    assert "…" not in ran.plain
