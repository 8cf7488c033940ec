"""convert: rows and documents, choosing and naming, losses, verification, damage."""

import io
import json

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import dtypes, formats
from tensorbytes.errors import CorruptError, LossError
from tensorbytes.formats import _zip


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.tb"
    tb.save(
        {
            "layer.0.weight": np.arange(12, dtype=np.float32).reshape(4, 3),
            "layer.0.bias": np.arange(4, dtype=np.float64),
            "layer.1.weight": np.ones((4, 2), np.int64),
            "names": np.array(["a", "ä", "", "d"], object),
        },
        path,
    )
    return path


def test_the_readme_case(model, tmp_path):
    report = tb.convert(model, tmp_path / "out.npz", verify=True)
    assert report.lossless
    assert report.verified
    assert (report.tensors, report.source_format, report.target_format) == (4, "tb", "npz")
    assert tb.equal(tb.load(tmp_path / "out.npz"), tb.load(model))
    assert "nothing lost" in str(report)
    json.dumps(report.to_dict())


def test_choosing_and_naming(model, tmp_path):
    out = tmp_path / "out.tb"
    tb.convert(model, out, names=["layer.*.weight"], rename=lambda name: name.replace("layer.", "block"))
    assert list(tb.load(out)) == ["block0.weight", "block1.weight"]
    tb.convert(model, out, names="names", rename={"names": "words"})
    assert list(tb.load(out)) == ["words"]
    for bad in ({"names": ["nothing"]}, {"rename": {"nothing": "x"}}):
        with pytest.raises(tb.errors.UsageError, match="no tensor 'nothing'"):
            tb.convert(model, out, **bad)
    with pytest.raises(tb.errors.UsageError, match="no tensor of"):
        tb.convert(model, out, names=[])


def test_parts_of_lists_stand_under_their_names(tmp_path):
    tb.save([np.zeros(2), np.ones(3)], tmp_path / "list.tb")
    tb.convert(tmp_path / "list.tb", tmp_path / "out.tb", names="1")
    assert list(tb.load(tmp_path / "out.tb")) == ["1"]


def test_one_tensor_for_formats_of_one(model, tmp_path):
    report = tb.convert(model, tmp_path / "w.tensorproto", names="layer.0.weight", verify=True)
    assert report.lossless
    assert report.changes == ["the name 'layer.0.weight' has no place in the file"]
    assert tb.load(tmp_path / "w.tensorproto").shape == (4, 3)
    tb.convert(model, tmp_path / "w.binpb", names="layer.0.weight", verify=True)
    assert tb.load(tmp_path / "w.binpb", to="tensor").name == "layer.0.weight"
    with pytest.raises(tb.errors.LossError, match="holds one tensor, and there are 4"):
        tb.convert(model, tmp_path / "all.tensorproto", allow="all")


def test_a_file_for_each_tensor(model, tmp_path):
    report = tb.convert(model, tmp_path / "{name}.npy")
    assert len(report.files) == 4
    assert np.load(tmp_path / "layer.0.weight.npy").shape == (4, 3)
    with pytest.raises(tb.errors.LossError, match="names: left out"):
        tb.convert(model, tmp_path / "{name}.raw")
    report = tb.convert(model, tmp_path / "{name}.raw", allow="all")
    assert [(loss.name, loss.dropped) for loss in report.losses] == [("names", True)]


def test_names_are_never_paths(tmp_path):
    tb.save({"../../evil": np.ones(2), "..": np.ones(3)}, tmp_path / "x.tb")
    (tmp_path / "out").mkdir()
    report = tb.convert(tmp_path / "x.tb", tmp_path / "out" / "{name}.npy")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".._.._evil.npy", "_...npy"]
    assert len(report.files) == 2


def test_arrays_to_records_and_back(model, tmp_path):
    report = tb.convert(model, tmp_path / "rows.tfrecord", unstack=0, verify=True)
    assert report.lossless
    assert (report.rows, report.tensors) == (4, 4)
    row = tb.open_records(tmp_path / "rows.tfrecord")[1]
    assert row["layer.0.weight"].tolist() == [3, 4, 5]
    assert row["names"] == "ä"
    report = tb.convert(tmp_path / "rows.tfrecord", tmp_path / "back.tb", stack=True, verify=True)
    assert report.changes == ["4 rows stacked"]
    assert tb.diff(model, tmp_path / "back.tb").identical
    # A format without rows stacks unasked; one with rows keeps them.
    assert tb.convert(tmp_path / "rows.tfrecord", tmp_path / "back.npz", verify=True).changes == ["4 rows stacked"]
    assert tb.convert(tmp_path / "rows.tfrecord", tmp_path / "table.tb", verify=True).changes == []
    assert tb.load(tmp_path / "table.tb")["layer.0.weight"].tolist()[1] == [3, 4, 5]
    assert tb.convert(tmp_path / "table.tb", tmp_path / "again.tfrecord", verify=True).rows == 4
    assert tb.diff(tmp_path / "rows.tfrecord", tmp_path / "again.tfrecord").identical


def test_along_another_axis(tmp_path):
    x = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    tb.save({"x": x, "y": x.astype(np.complex64)}, tmp_path / "x.tb")
    tb.convert(tmp_path / "x.tb", tmp_path / "x.tfrecord", unstack=1, verify=True)
    got = [row["x"] for row in tb.open_records(tmp_path / "x.tfrecord")]
    assert np.array_equal(np.stack(got, axis=1), x)


def test_a_document_is_one_record(model, tmp_path):
    report = tb.convert(model, tmp_path / "one.tfrecord", verify=True)
    assert report.rows == 1
    assert tb.open_records(tmp_path / "one.tfrecord")[0]["layer.0.weight"].shape == (4, 3)


def test_shards_and_compression(model, tmp_path):
    tb.convert(model, tmp_path / "rows.tfrecord.gz", unstack=0, verify=True)
    assert (tmp_path / "rows.tfrecord.gz").read_bytes()[:2] == b"\x1f\x8b"
    report = tb.convert(tmp_path / "rows.tfrecord.gz", tmp_path / "s.tfrecord", shards=2, verify=True)
    assert len(report.files) == 2
    assert len(tb.open_records(f"{tmp_path}/s.tfrecord@2")) == 4
    with pytest.raises(tb.errors.UsageError, match="2 shards: only TFRecord files are written in shards"):
        tb.convert(model, tmp_path / "x.npz", shards=2)


def test_optional_features(tmp_path):
    with tb.RecordWriter(tmp_path / "x.tfrecord") as writer:
        writer.write({"a": 1, "b": 2})
        writer.write({"a": 3})
    assert not tb.convert(tmp_path / "x.tfrecord", tmp_path / "x.npz", verify=True).losses
    found = {name: column.tolist() for name, column in tb.load(tmp_path / "x.npz").items()}
    assert found == {"a": [1, 3], "b": [2, 0], "b/mask0": [True, False]}
    tb.convert(tmp_path / "x.npz", tmp_path / "x.parquet", verify=True)
    tb.convert(tmp_path / "x.parquet", tmp_path / "w.tfrecord", verify=True)
    assert "b" not in tb.open_records(tmp_path / "w.tfrecord")[1]
    tb.convert(tmp_path / "x.tfrecord", tmp_path / "y.tfrecord", verify=True)
    assert "b" not in tb.open_records(tmp_path / "y.tfrecord")[1]
    tb.convert(tmp_path / "x.tfrecord", tmp_path / "y.tb", verify=True)
    found = {name: column.tolist() for name, column in tb.load(tmp_path / "y.tb").items()}
    assert found == {"a": [1, 3], "b": [2, 0], "b/mask0": [True, False]}
    tb.convert(tmp_path / "y.tb", tmp_path / "z.tfrecord", verify=True)
    assert tb.diff(tmp_path / "x.tfrecord", tmp_path / "z.tfrecord").identical


def test_every_loss_is_listed_before_anything_is_written(tmp_path):
    tb.save({"z": np.ones(2, np.complex128), "s": np.array(["a"]), "ok": np.ones(1)}, tmp_path / "x.tb")
    out = tmp_path / "x.safetensors"
    with pytest.raises(tb.errors.LossError) as caught:
        tb.convert(tmp_path / "x.tb", out)
    assert "z: left out" in str(caught.value)
    assert "s: left out" in str(caught.value)
    assert not out.exists()
    report = tb.convert(tmp_path / "x.tb", out, allow={"dtype", "strings"}, verify=True)
    assert {(loss.name, loss.feature, loss.dropped) for loss in report.losses} == {
        ("z", "dtype", True),
        ("s", "strings", True),
    }
    assert list(tb.load(out)) == ["ok"]
    assert "2 losses" in str(report)


def test_what_becomes_of_nested_values_in_rows(tmp_path):
    tb.save({"a": {"b": np.ones((2, 3))}, "c": np.ones(2)}, tmp_path / "x.tb")
    with pytest.raises(tb.errors.LossError, match="a/b: columns have a flat list of names"):
        tb.convert(tmp_path / "x.tb", tmp_path / "x.tfrecord", unstack=0)
    tb.convert(tmp_path / "x.tb", tmp_path / "x.tfrecord", unstack=0, allow="structure", verify=True)
    tb.save({"a": np.ones((2, 3)), "c": np.ones(3)}, tmp_path / "x.tb")
    with pytest.raises(tb.errors.LossError, match=r"one length along axis 0, got a: 2, c: 3"):
        tb.convert(tmp_path / "x.tb", tmp_path / "x.tfrecord", unstack=0)


def test_damage_is_not_copied(model, tmp_path):
    tb.save({"w": np.arange(10_000, dtype=np.float32)}, model)
    data = bytearray(model.read_bytes())
    data[-100] ^= 1
    model.write_bytes(data)
    with pytest.raises(tb.errors.CorruptError):
        tb.convert(model, tmp_path / "out.npz")
    assert not (tmp_path / "out.npz").exists()


def test_a_failed_conversion_leaves_the_old_file(model, tmp_path):
    with tb.open(tmp_path / "s.tb", "w") as stream:
        stream.write({"a": np.ones(2)})
        stream.write({"b": np.ones(2)})
    for name, options in (("out.tfrecord", {"schema": {"a": ("float64", [2])}}), ("out.npz", {})):
        out = tmp_path / name
        out.write_bytes(b"old")
        with pytest.raises(tb.errors.TensorbytesError):
            tb.convert(tmp_path / "s.tb", out, **options)
        assert out.read_bytes() == b"old"
    assert not list(tmp_path.glob("*.tmp"))


def test_onto_itself(model):
    before = tb.load(model)
    tb.convert(model, model, verify=True)
    assert tb.equal(tb.load(model), before)


def test_verification_notices(model, tmp_path, monkeypatch):
    kept = formats.Format.write

    def harm(self, document, target, *rest, **more):
        kept(self, document, target, *rest, **more)
        x = tb.load(target)
        x["layer.0.bias"] = x["layer.0.bias"] + 1
        monkeypatch.setattr(formats.Format, "write", kept)
        tb.save(x, target)

    monkeypatch.setattr(formats.Format, "write", harm)
    with pytest.raises(tb.errors.CorruptError, match="bias' differs"):
        tb.convert(model, tmp_path / "out.npz", verify=True)


def test_unclear_calls(model, tmp_path):
    with pytest.raises(tb.errors.UsageError, match="no format has this suffix"):
        tb.convert(model, tmp_path / "x.what")
    with pytest.raises(tb.errors.UsageError, match="unknown format"):
        tb.convert(model, tmp_path / "x.npz", src_format="what")
    with pytest.raises(tb.errors.UsageError, match="'gguf' is read-only"):
        tb.convert(model, tmp_path / "x.gguf")
    with pytest.raises(tb.errors.UsageError, match="has no option"):
        tb.convert(model, tmp_path / "x.npz", colour="red")
    with pytest.raises(tb.errors.UsageError, match="rows can't be stacked in format 'tfrecord'"):
        tb.convert(model, tmp_path / "x.tfrecord", stack=True, unstack=0)
    with pytest.raises(FileNotFoundError):
        tb.convert(tmp_path / "nothing.npz", tmp_path / "x.tb")


def test_progress(model, tmp_path):
    seen = []
    tb.convert(model, tmp_path / "rows.tfrecord", unstack=0, progress=seen.append)
    assert seen == [4]


def test_large_rows_stay_out_of_memory(tmp_path):
    """Stacked columns live in temporary files: what is loaded is a map of them."""
    with tb.RecordWriter(tmp_path / "x.tfrecord", sync=False) as writer:
        for start in range(0, 20_000, 5_000):
            writer.write_batch({"x": np.arange(start, start + 5_000, dtype=np.float32)[:, None].repeat(64, axis=1)})
    report = tb.convert(tmp_path / "x.tfrecord", tmp_path / "x.npy", names="x", verify=True)
    assert report.rows == 20_000
    assert np.load(tmp_path / "x.npy")[19_999, 3] == 19_999


@pytest.mark.parametrize("suffix", ["npz", "tb", "safetensors", "pt", "parquet"])
@pytest.mark.parametrize("rename", [{"a": "b"}, lambda name: "x", {"d/x": "a"}, {"a": "d"}])
def test_names_that_clash(tmp_path, suffix, rename):
    tb.save({"a": np.ones(2), "b": np.zeros(3), "d": {"x": np.ones(1)}}, tmp_path / "in.tb")
    out = tmp_path / f"out.{suffix}"
    out.write_bytes(b"old")
    with pytest.raises(tb.errors.UsageError, match="one place"):
        tb.convert(tmp_path / "in.tb", out, rename=rename)
    assert out.read_bytes() == b"old"


def test_renaming_one_item_of_a_list(tmp_path):
    tb.save({"l": [np.ones(1), np.zeros(2)], "d": {"x": np.ones(3)}}, tmp_path / "in.npz")
    report = tb.convert(tmp_path / "in.npz", tmp_path / "out.npz", rename={"l/0": "w", "d/x": "e"}, verify=True)
    assert sorted(tb.load(tmp_path / "out.npz")) == ["e", "l/1", "w"]
    assert report.changes == ["nested values that were renamed stand under their new names alone"]


def test_columns_that_were_not_chosen_are_not_read(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet

    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    table = pa.table({"id": [1, 2], "odd": union})
    with pa.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(tb.errors.LossError, match="odd"):
        tb.convert(tmp_path / "in.arrow", tmp_path / "out.npz")
    tb.convert(tmp_path / "in.arrow", tmp_path / "out.npz", names=["id"])
    assert list(tb.load(tmp_path / "out.npz")) == ["id"]
    pa.parquet.write_table(pa.table({"id": [1, 2], "text": ["a", None]}), tmp_path / "in.parquet")
    tb.convert(tmp_path / "in.parquet", tmp_path / "out.npz", names=["id"], verify=True)
    assert tb.load(tmp_path / "out.npz")["id"].tolist() == [1, 2]
    with tb.RecordWriter(tmp_path / "in.tfrecord") as writer:
        writer.write({"a": 1, "b": b"x"})
    tb.convert(tmp_path / "in.tfrecord", tmp_path / "out.tfrecord", names="a", verify=True)
    assert list(tb.open_records(tmp_path / "out.tfrecord")[0]) == ["a"]


def test_advice_for_savers_is_not_repeated(tmp_path):
    tb.save({"z": np.ones(2, np.complex128), "w": np.ones(1)}, tmp_path / "x.tb")
    report = tb.convert(tmp_path / "x.tb", tmp_path / "x.safetensors", allow="all")
    assert "pass" not in report.losses[0].what


def test_tables_keep_what_they_say_of_themselves(tmp_path):
    tb.save({"w": np.ones((2, 3)), "l": [1, 2]}, tmp_path / "in.arrow", meta={"k": "v"})
    for name in ("out.npz", "out.parquet", "out.safetensors"):
        report = tb.convert(tmp_path / "in.arrow", tmp_path / name, verify=True)
        assert report.lossless
        with tb.open(tmp_path / name) as file:
            assert file.meta["k"] == "v"
        assert tb.load(tmp_path / name)["l"] == [1, 2]
    with pytest.raises(tb.errors.LossError, match="metadata of the whole"):
        tb.convert(tmp_path / "in.arrow", tmp_path / "out.tfrecord")


def test_tables_in_memory(tmp_path):
    class Named(io.BytesIO):
        name = str(tmp_path / "other.arrow")

    tb.save({"w": np.zeros(3)}, tmp_path / "other.arrow")
    tb.convert(Named(tb.dumps({"w": np.ones(3)}, "arrow")), tmp_path / "out.npz")
    assert tb.load(tmp_path / "out.npz")["w"].tolist() == [1, 1, 1]


def test_two_tensors_of_one_name(tmp_path):
    tb.save({"a": {"b": np.ones(2)}, "a/b": np.zeros(2)}, tmp_path / "x.tb")
    tb.save({"a": {"b": np.full(2, 5.0)}, "a/b": np.zeros(2)}, tmp_path / "y.tb")
    with pytest.raises(tb.errors.LossError, match="two columns would be named 'a/b'"):
        tb.convert(tmp_path / "x.tb", tmp_path / "x.tfrecord", unstack=0, allow="all")
    tb.convert(tmp_path / "x.tb", tmp_path / "x.npz", verify=True)
    assert tb.load(tmp_path / "x.npz")["a"]["b"].tolist() == [1, 1]
    assert not tb.diff(tmp_path / "x.tb", tmp_path / "y.tb").identical


def test_losses_of_later_rows(tmp_path):
    with tb.open(tmp_path / "s.tb", "w") as stream:
        stream.write({"a": np.ones(2)})
        stream.write({"a": np.ones(2), "n": 3})
    with pytest.raises(tb.errors.LossError, match="Python int"):
        tb.convert(tmp_path / "s.tb", tmp_path / "s.tfrecord")
    report = tb.convert(tmp_path / "s.tb", tmp_path / "s.tfrecord", allow="kind", verify=True)
    assert [(loss.name, loss.feature) for loss in report.losses] == [("n", "kind")]


def test_nothing_is_written_before_names_and_losses_are_checked(model, tmp_path):
    (tmp_path / "old.npz").write_bytes(b"old")
    with pytest.raises(tb.errors.UsageError, match="no tensor 'typo'"):
        tb.convert(model, tmp_path / "old.npz", names=["names", "typo"])
    assert (tmp_path / "old.npz").read_bytes() == b"old"
    with pytest.raises(tb.errors.LossError):
        tb.convert(model, tmp_path / "each_{name}.raw")
    assert not list(tmp_path.glob("each_*"))


def test_verifying_several_files_and_what_can_t_be_read_again(model, tmp_path):
    assert tb.convert(model, tmp_path / "{name}.npy", verify=True).verified
    with pytest.raises(tb.errors.UsageError, match="takes a path"):
        tb.convert(model, io.BytesIO(), "npz", verify=True)


def test_feature_lists_stay_feature_lists(tmp_path):
    with tb.RecordWriter(tmp_path / "in.tfrecord", lists=["steps"]) as writer:
        writer.write({"id": 1, "steps": [[1, 2], [3]]})
    tb.convert(tmp_path / "in.tfrecord", tmp_path / "out.tfrecord", verify=True)
    assert tb.diff(tmp_path / "in.tfrecord", tmp_path / "out.tfrecord").identical


def test_rows_that_become_even_by_chance(tmp_path):
    with tb.open(tmp_path / "s.tb", "w") as stream:
        for index in range(2500):
            stream.write({"x": np.ones(index % 3 if index < 1024 else 2)})
    assert tb.convert(tmp_path / "s.tb", tmp_path / "s.arrow", verify=True).rows == 2500


def test_calls_that_make_no_sense(model, tmp_path):
    tb.convert(model, tmp_path / "rows.tfrecord", unstack=0)
    with tb.open(tmp_path / "s.tb", "w") as stream:
        stream.write({"a": np.ones(2)})
    for source, target, options in (
        ("rows.tfrecord", "x.npz", {"unstack": 0}),
        ("s.tb", "x.npz", {"unstack": 0}),
        ("s.tb", "x.npz", {"stack": False}),
        ("rows.tfrecord", "{name}.parquet", {}),
        ("rows.tfrecord", "x.parquet", {"colour": 1}),
        ("s.tb", "x.tfrecord", {"colour": 1}),
        ("model.tb", "x.tfrecord", {"stack": True}),
    ):
        with pytest.raises(tb.errors.UsageError):
            tb.convert(tmp_path / source, tmp_path / target, **options)


def test_records_behind_a_url_keep_their_schema(tmp_path):
    pytest.importorskip("fsspec")
    tb.save({"h": np.arange(6, dtype=np.float16).reshape(2, 3)}, tmp_path / "h.npz")
    assert tb.convert(tmp_path / "h.npz", "memory://convert/h.tfrecord", unstack=0, verify=True).lossless
    tb.convert("memory://convert/h.tfrecord", tmp_path / "back.npz", verify=True)
    assert tb.equal(tb.load(tmp_path / "back.npz"), tb.load(tmp_path / "h.npz"))


# ---- floats of another type ----------------------------------------------------


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "tb", "pt"])
@pytest.mark.parametrize("wanted", ["bfloat16", "float16", "float64"])
def test_cast(suffix, wanted, tmp_path):
    rng = np.random.default_rng(1)
    model = {"w": rng.normal(0, 1, (7, 5)).astype(np.float32), "h": rng.normal(0, 1, 4).astype(np.float16)}
    tb.save({**model, "ids": np.arange(3)}, tmp_path / "a.npz")
    report = tb.convert(tmp_path / "a.npz", tmp_path / f"b.{suffix}", cast=wanted, verify=True)
    back = tb.load(tmp_path / f"b.{suffix}")
    assert np.array_equal(back["ids"], np.arange(3))
    expected = {name: x.astype(np.float32).astype(dtypes.to_numpy(wanted)) for name, x in model.items()}
    for name, x in expected.items():
        assert back[name].dtype == x.dtype
        assert back[name].tobytes() == x.tobytes()
    lossy = {name for name, x in model.items() if not np.array_equal(expected[name].astype(np.float64), x)}
    assert {loss.name for loss in report.losses} == lossy
    for loss in report.losses:
        error = np.abs(expected[loss.name].astype(np.float64) - model[loss.name]).max()
        assert loss.what == f"{model[loss.name].dtype} cast to {wanted}, max error {error:.2g}"


def test_cast_by_name_is_refused_where_it_makes_no_sense(tmp_path):
    source = tmp_path / "a.npz"
    tb.save({"w": np.array([1.0, 1e300]), "b": np.ones(2, np.float32)}, source)
    report = tb.convert(source, tmp_path / "b.npz", cast={"b": "float64"})
    assert [str(loss) for loss in report.losses] == []
    assert tb.load(tmp_path / "b.npz")["b"].dtype == np.float64
    for cast, message in (
        ({"nope": "float16"}, "goes by 'nope'"),
        ("float9", "dtype to cast to"),
        ("int8", "dtype to"),
    ):
        with pytest.raises(tb.errors.UsageError, match=message):
            tb.convert(source, tmp_path / "c.npz", cast=cast)
    with pytest.raises(tb.errors.LossError, match="'w': float32 can't hold numbers as large as 1e"):
        tb.convert(source, tmp_path / "c.npz", cast="float32")
    assert not list(tmp_path.glob("c.*"))


# ---- tables stay tables -----------------------------------------------------------


def test_a_table_becomes_a_table_in_groups_not_an_object_for_each_row(tmp_path):
    rows = 4200  # more than a group has
    columns = {"id": np.arange(rows), "x": np.ones((rows, 3), np.float32), "word": np.array(["ab", "c"] * (rows // 2))}
    tb.save(columns, tmp_path / "t.parquet")
    report = tb.convert(tmp_path / "t.parquet", tmp_path / "t.tb", verify=True)
    assert (report.rows, report.losses, report.changes) == (rows, [], [])
    assert (tmp_path / "t.tb").stat().st_size < 1.1 * sum(x.nbytes for x in (columns["id"], columns["x"])) + 12 * rows
    with tb.open(tmp_path / "t.tb") as file:
        assert file.keys() == ["id", "x", "word"]
        assert file["x"].shape == (rows, 3)
        assert file["id"][4095:4098].tolist() == [4095, 4096, 4097]  # across two groups
    assert tb.load(tmp_path / "t.tb")["word"].tolist() == columns["word"].tolist()
    tb.convert(tmp_path / "t.tb", tmp_path / "u.arrow", verify=True)
    tb.convert(tmp_path / "u.arrow", tmp_path / "u.tfrecord", verify=True)
    assert tb.diff(tmp_path / "u.tfrecord", tmp_path / "t.parquet").identical


def test_parts_of_a_table_of_the_frame(tmp_path):
    tb.save({"id": np.arange(9000), "x": np.ones((9000, 2))}, tmp_path / "t.arrow")
    tb.convert(tmp_path / "t.arrow", tmp_path / "t.tb")
    parts = tb.split(tmp_path / "t.tb", tmp_path / "p.tb", rows=4000)
    assert (parts.unit, parts.items) == ("row", [4000, 4000, 1000])
    assert tb.load(parts.files[2])["id"].tolist() == list(range(8000, 9000))
    tb.merge(parts.files, tmp_path / "m.tb")
    assert tb.diff(tmp_path / "m.tb", tmp_path / "t.arrow").identical
    assert tb.stats(tmp_path / "m.tb")["id"].max == 8999
    assert tb.verify(tmp_path / "m.tb").ok


def test_several_files_of_records_are_one_table(tmp_path):
    with tb.RecordWriter(tmp_path / "x.tfrecord", shards=3) as writer:
        for n in range(10):
            writer.write({"n": n})
    for target in (f"{tmp_path}/x.tfrecord@3", f"{tmp_path}/x.tfrecord-*"):
        assert sorted(tb.load(target)["n"].tolist()) == list(range(10))
    for target in (f"{tmp_path}/x.tfrecord@3", sorted(tmp_path.glob("x.tfrecord-*-of-*3"))):
        assert tb.convert(target, tmp_path / "all.npz").rows == 10


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "parquet", "arrow", "pt", "tb"])
def test_a_tensor_that_overflows_when_it_is_cast_is_a_loss_like_any_other(tmp_path, suffix):
    np.savez_compressed(tmp_path / "s.npz", a=np.float32([1.1]), big=np.float32([1e30]), c=np.float32([2]))
    target = tmp_path / f"o.{suffix}"
    with pytest.raises(LossError, match="big: left out: tensor 'big': float16 can't hold numbers as large as"):
        tb.convert(tmp_path / "s.npz", target, cast="float16")
    assert not target.exists()
    report = tb.convert(tmp_path / "s.npz", target, cast="float16", allow="cast")
    assert [(loss.name, loss.dropped) for loss in report.losses] == [("big", True), ("a", False)]
    assert sorted(tb.load(target)) == ["a", "c"]


@pytest.mark.parametrize("suffix", ["npz", "safetensors", "parquet", "arrow", "pt", "tb"])
def test_damage_that_shows_in_reading_leaves_what_is_at_a_url(tmp_path, suffix):
    import fsspec

    rng = np.random.default_rng(0)
    np.savez_compressed(tmp_path / "s.npz", a=rng.random(9000), b=rng.random(9000))
    raw = bytearray((tmp_path / "s.npz").read_bytes())
    raw[-2000] ^= 255  # in the second member
    (tmp_path / "s.npz").write_bytes(raw)
    store, url = fsspec.filesystem("memory"), f"memory://kept/x.{suffix}"
    store.pipe(f"/kept/x.{suffix}", b"what was there before")
    file = io.BytesIO()
    for target, format in ((url, None), (file, "torchfile" if suffix == "pt" else suffix)):
        with pytest.raises(CorruptError):
            tb.convert(tmp_path / "s.npz", target, format)
    assert store.cat(f"/kept/x.{suffix}") == b"what was there before"
    assert file.getvalue() == b""


def test_a_deflated_archive_is_inflated_once(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "s.npz", a=np.arange(900.0), b=np.arange(900))
    inflated, real = [], _zip.content
    monkeypatch.setattr(_zip, "content", lambda data, member: inflated.append(member.name) or real(data, member))
    for suffix in ("npz", "safetensors", "parquet", "arrow", "tb"):
        inflated.clear()
        tb.convert(tmp_path / "s.npz", tmp_path / f"o.{suffix}")
        assert sorted(inflated) == ["a.npy", "b.npy"], suffix


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "tfrecord"])
def test_a_column_that_is_none_in_every_row_is_told(tmp_path, suffix):
    tb.save({"a": np.int64(1), "b": None, "c": None}, tmp_path / "x.tb")
    with open(tmp_path / "x.tb", "ab") as file:
        file.write(tb.dumps({"a": np.int64(2), "b": None, "c": np.int64(3)}))
    with pytest.raises(tb.errors.LossError, match="b: left out: it is None in every row"):
        tb.convert(tmp_path / "x.tb", tmp_path / f"x.{suffix}")
    assert not (tmp_path / f"x.{suffix}").exists()
    report = tb.convert(tmp_path / "x.tb", tmp_path / f"x.{suffix}", allow="missing")
    assert any(loss.name == "b" and loss.dropped for loss in report.losses)
    assert {tensor.name: tensor.nulls for tensor in tb.inspect(tmp_path / f"x.{suffix}").tensors} == {"a": None, "c": 1}
