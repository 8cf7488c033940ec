"""tb info: any file at a glance."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.cli import drawing, tree
from tensorbytes.ops.inspection import TensorInfo
from tests.support.cli_cases import checkpoint, in_terminal, inside, piped, record_file


def info(name, *shape, dtype="float32", **more):
    return TensorInfo(name, "tensor", dtype, shape, 4 * int(np.prod(shape)), **more)


def drawn(tensors, fold=True, depth=100):
    root = tree.build(tensors)
    if fold:
        tree.fold_alike(root)
    return [f"{line.guides}{line.node.name}" for line in tree.lines(root, depth)]


# ---- the tree -----------------------------------------------------------------------


def test_names_make_a_tree():
    tensors = [info("a.b.w", 2), info("a.b.v", 2), info("a.c", 2), info("x/y/z", 3)]
    assert drawn(tensors) == ["a.", "├ b.", "│ ├ w", "│ └ v", "└ c", "x/y/z"]
    assert drawn(tensors, depth=1) == ["a.", "x/y/z"]


def test_layers_that_are_alike_are_one_line():
    tensors = [info(f"h.{layer}.{part}", 2) for layer in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9) for part in ("w", "b")]
    root = tree.build(tensors)
    tree.fold_alike(root)
    (layers,) = root.children
    assert (layers.name, layers.alike, layers.tensors, layers.nbytes) == ("h.0..10", 11, 22, 22 * 8)
    assert [(child.name, child.nbytes) for child in layers.children] == [("w", 11 * 8), ("b", 11 * 8)]


def test_layers_that_differ_are_not():
    tensors = [info(f"h.{layer}.w", 2 if layer != 3 else 5) for layer in range(7)]
    assert drawn(tensors) == ["h.", "├ 0.w..2.w", "├ 3.w", "└ 4.w..6.w"]
    assert drawn([info("h.0.w", 2), info("h.1.w", 2)]) == ["h.", "├ 0.w", "└ 1.w"], "two are not a repetition"


def test_what_alike_layers_are_stored_as():
    tensors = [info(f"h.{i}.w", 2, stored=f"int8, max error {i}", stored_nbytes=5) for i in range(3)]
    root = tree.build([*tensors, info("h.0.b", 1), info("h.1.b", 1), info("h.2.b", 1)])
    tree.fold_alike(root)
    weight = root.children[0].children[0]
    assert (weight.tensor.stored, weight.stored) == ("int8", 15)


def test_deep_and_odd_names():
    assert drawn([info("." * 5000, 1), info("", 1), info(None, 1)])
    assert drawn([info("a", 1), info("a.b", 1)]) == ["a", "a.b"], "a tensor and a group of one name"


def test_the_tree_is_cut_to_what_fits():
    root = tree.build([info(f"g{group}.t{part}.{end}", 1) for group in range(9) for part in range(9) for end in "xy"])
    assert [tree.depth_that_fits(root, most) for most in (5, 9, 90, 300)] == [1, 1, 2, 3]
    wide = tree.build([info(f"a.x{name}y{name % 3}", 1) for name in range(100)])
    assert tree.depth_that_fits(wide, 60) == 2, "rather a part of it than a single line"


def test_bars():
    assert [drawing.bar(share, 4) for share in (0, 0.001, 0.5, 1)] == ["", "▏", "██", "████"]
    assert drawing.bar(0.5, 4, blocks=False) == "##"
    assert [drawing.percent(part, 200) for part in (0, 1, 3, 200)] == ["0 %", "< 1 %", "2 %", "100 %"]
    assert [drawing.percent(part, 10_000) for part in (9_940, 9_960, 9_999)] == ["99 %", "99.6 %", "> 99.9 %"]
    assert drawing.histogram([0, 1, 8, 4], 1) == [" ▁█▄"]
    assert drawing.histogram([1, 2], 2, blocks=False) == [" #", "##"]
    assert drawing.gathered([1, 2, 3], 3) == [1, 2, 3]
    assert drawing.gathered([2, 2, 2], 2) == [3, 3]


# ---- on files -----------------------------------------------------------------------


def test_a_checkpoint_on_a_terminal(tmp_path):
    tb.save(checkpoint(), tmp_path / "model.safetensors", meta={"step": "7"})
    shown = in_terminal("info", "model.safetensors", cwd=tmp_path).lines
    assert shown[0].startswith("model.safetensors: safetensors, ")
    assert shown[0].endswith("38 tensors, 6,656 numbers of float32")
    assert "  step: 7" in shown
    layers = next(line for line in shown if "layers.0..11" in line)
    assert layers.split()[1:6] == ["12", "alike", "36", "tensors", "13.8"]
    assert layers.split()[7:9] == ["52", "%"]
    assert any(line.startswith("│ └ weight") for line in shown)


def test_all_flat_and_depth(tmp_path, capsys):
    tb.save(checkpoint(), tmp_path / "model.npz")
    model = tmp_path / "model.npz"
    flat = inside(capsys, "info", "--flat", model).out
    assert all(name in flat for name in checkpoint())
    whole = inside(capsys, "info", "--all", model).out
    assert whole.count("norm.weight") == 12
    top = inside(capsys, "info", "--depth", "1", model).lines
    assert [line.split()[0] for line in top[3:]] == ["embed.weight", "layers.0..11", "head.weight"]


def test_more_than_fits(tmp_path, capsys):
    tb.save({f"tensor-{chr(97 + i // 26)}{chr(97 + i % 26)}": np.ones(2) for i in range(300)}, tmp_path / "many.tb")
    shown = inside(capsys, "info", tmp_path / "many.tb").lines
    assert shown[-1] == "and 240 more (tb info --all)"
    assert len(inside(capsys, "info", tmp_path / "many.tb", "--all").lines) == 303


def test_one_tensor_in_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((2, 3), np.float32))
    assert inside(capsys, "info", "x.npy").out == "x.npy: NumPy array, 152 B, float32 [2, 3]\n"


def test_a_stream(tmp_path, capsys):
    with tb.open(tmp_path / "stream.tb", "w") as file:
        for n in range(1, 6):
            file.write({"ids": np.arange(n), "map": np.zeros((2, n), np.float16)})
    shown = inside(capsys, "info", tmp_path / "stream.tb").lines
    assert "5 objects of 2 tensors" in shown[0]
    assert [line.split("  ")[0] for line in shown[3:]] == ["ids", "map"]
    assert "[1..5]" in shown[3]
    assert "[2, 1..5]" in shown[4]


def test_records_with_presence_and_lengths(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record_file("train.tfrecord", 50)
    shown = inside(capsys, "info", "train.tfrecord").lines
    assert "TFRecord, " in shown[0]
    assert "50 records of 5 features" in shown[0]
    table = {line.split()[0]: line.split() for line in shown[2:]}
    assert table["ids"] == ["ids", "int64[?]", "100", "%", "0..4"]
    assert table["score"][:4] == ["score", "float32", "50", "%"]
    assert table["text"] == ["text", "text", "100", "%", "1", "7..8", "B", "text"]
    assert inside(capsys, "info", "train.tfrecord", "--json").item["schema"]["features"]["label"]["dtype"] == "int64"


def test_scan_looks_further(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    record_file("train.tfrecord", 50)
    few = inside(capsys, "info", "train.tfrecord", "--scan", "10").out
    assert "looked at: the first 10 records" in few
    assert inside(capsys, "info", "train.tfrecord", "--scan", "10", "--json").item["sampled"] == 10
    assert inside(capsys, "info", "train.tfrecord", "--scan", "all", "--json").item["sampled"] is None
    assert "expected a number of records, or all" in inside(capsys, "info", "train.tfrecord", "--scan", "0").err


def test_damage_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    data = bytearray(Path(record_file("train.tfrecord", 50)).read_bytes())
    data[3000] ^= 1
    Path("broken.tfrecord").write_bytes(data)
    ran = inside(capsys, "info", "broken.tfrecord", "--json")
    assert ran.code == 1
    assert "is damaged" in ran.item["details"]["damage"]
    assert "tb repair" in inside(capsys, "info", "broken.tfrecord").out
    assert inside(capsys, "info", "train.tfrecord", "broken.tfrecord").code == 1


def test_compressed_records(tmp_path, capsys):
    path = record_file(tmp_path / "train.tfrecord", 5)
    (tmp_path / "other.tfrecord.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
    shown = inside(capsys, "info", tmp_path / "other.tfrecord.gz").out
    assert "compression: gzip" in shown
    assert "5 records" in shown


def test_events(tmp_path, capsys):
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for step in range(4):
        value = summary_pb2.Summary.Value(tag="loss", simple_value=1 / (step + 1))
        writer.add_event(event_pb2.Event(step=step, wall_time=step, summary=summary_pb2.Summary(value=[value])))
    writer.close()
    shown = inside(capsys, "info", tmp_path).lines
    assert "TensorBoard events" in shown[0]
    assert shown[-1].split() == ["loss", "scalar", "float32", "4", "0..3"]
    first = inside(capsys, "head", tmp_path, "--names", "loss", "-n", "1", "--json").item
    assert (first["step"], first["tag"], first["value"]) == (0, "loss", 1.0)
    (path,) = tmp_path.glob("*tfevents*")
    assert [row["values"]["value"] for row in inside(capsys, "cat", f"{path}::loss", "--json").items][1] == 0.5
    assert "did you mean 'loss'" in inside(capsys, "cat", f"{path}::los").err
    assert "step 3" in inside(capsys, "head", path, "--names", "loss").out


def test_several_files_a_line_each(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.ones(2))
    record_file("b.tfrecord", 5)
    tb.save(checkpoint(), "c.tb")
    ran = inside(capsys, "info", "a.npy", "b.tfrecord", "no.tb", "c.tb")
    assert [line.split()[0] for line in ran.lines] == ["file", "a.npy", "b.tfrecord", "c.tb", "3"]
    assert "5 records of 5 features" in ran.out
    assert (ran.code, ran.err) == (2, "tb info: no.tb: no such file\n")
    each = inside(capsys, "info", "a.npy", "c.tb", "--each").lines
    assert each[0].startswith("a.npy: NumPy array")
    assert each[1:3] == ["", next(line for line in each if line.startswith("c.tb: "))]


FORMATS = [name for name in formats.BUILTIN if name not in ("gguf", "checkpoint", "raw", "tfrecord")]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_is_recognised_by_its_content(name, tmp_path, capsys):
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    if name == "sparseproto":
        value = tb.Sparse("coo", (2, 3), (np.array([[0, 1]]),), tb.Tensor("float32", (1,), np.ones(1, "<f4")))
    path = tmp_path / "unnamed"
    tb.save(value, path, name)
    if not formats.sniff(path.read_bytes()[:4096], path.stat().st_size):
        path = path.rename(path.with_suffix(formats.get(name).suffixes[0]))  # nothing in the bytes tells
    found = inside(capsys, "info", path, "--json").item
    assert found["format"] == ("tensorproto" if name == "protobuf" else name), "a plain message is a TensorProto"
    assert found["tensors"][0]["shape"] == [2, 3]
    for verb in ("info", "head", "stats"):
        assert inside(capsys, verb, path).code == 0


def test_raw_bytes_with_options(tmp_path, capsys):
    (tmp_path / "x.bin").write_bytes(np.arange(6, dtype=">f4").tobytes())
    how = [
        "--from",
        "raw",
        "--read-option",
        "dtype=float32",
        "--read-option",
        "shape=[2, 3]",
        "--read-option",
        "byteorder=>",
    ]
    assert inside(capsys, "info", tmp_path / "x.bin", *how, "--json").item["tensors"][0]["shape"] == [2, 3]
    assert inside(capsys, "cat", tmp_path / "x.bin", *how, "--json").item["values"] == [
        [0.0, 1.0, 2.0],
        [3.0, 4.0, 5.0],
    ]
    assert inside(capsys, "stats", tmp_path / "x.bin", *how, "--json").item["max"] == 5.0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"<!DOCTYPE html><html>Not found</html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"\x89HDF\r\n\x1a\n" + bytes(99), "h5py"),
        (b"\x80\x04\x95" + bytes(99), "never read here"),
    ],
)
def test_helpful_words_for_what_is_not_ours(data, words, tmp_path, capsys):
    (tmp_path / "model.bin").write_bytes(data)
    ran = inside(capsys, "info", tmp_path / "model.bin")
    assert ran.code == 2
    assert words in ran.err
    assert words in inside(capsys, "info", tmp_path / "model.bin", "--json").item["error"]["message"]


def test_a_report(tmp_path, capsys):
    tb.save(checkpoint(2), tmp_path / "model.tb")
    ran = inside(capsys, "info", tmp_path / "model.tb", "--html", tmp_path / "report.html")
    assert ran.code == 0
    assert "embed" in (tmp_path / "report.html").read_text()
    assert inside(capsys, "info", tmp_path / "model.tb", tmp_path / "model.tb", "--html", "x.html").code == 2


def test_a_report_to_stdout(tmp_path):
    tb.save(checkpoint(2), tmp_path / "model.tb")
    ran = piped("info", "model.tb", "--html", "-", cwd=tmp_path)
    assert ran.code == 0
    assert ran.out.startswith("<!DOCTYPE html>")
    assert ran.err.startswith("model.tb -> stdout: ")
    assert [path.name for path in tmp_path.iterdir()] == ["model.tb"]
    assert "does not go to a terminal" in in_terminal("info", "model.tb", "--html", "-", cwd=tmp_path).plain


# ---- plain values ---------------------------------------------------------------------

CHECKPOINT = {
    "w": np.ones((3, 4), np.float32),
    "epoch": 12,
    "zero": 0,
    "big": 2**70,
    "lr": 1e-3,
    "nan": float("nan"),
    "flag": False,
    "version": "2.1",
    "empty": [],
    "none": None,
    "betas": [0.9, 0.99],
    "long": "x" * 1000,
    "scalar": np.float16(2),
    "bytes": b"\xff",
}


def test_plain_values_are_no_tensors(tmp_path, capsys):
    tb.save(CHECKPOINT, tmp_path / "model.tb")
    shown = inside(capsys, "info", tmp_path / "model.tb").lines
    assert shown[0].endswith("1 tensor, 13 values")
    rows = {line.split()[0]: line.split()[1:] for line in shown[3:]}
    assert rows["w"][:5] == ["float32", "[3,", "4]", "48", "B"]
    assert rows["epoch"] == ["int", "=", "12"]
    assert rows["big"] == ["int", "=", str(2**70)]
    assert rows["nan"] == ["float", "=", "nan"]
    assert rows["flag"] == ["bool", "=", "false"]
    assert rows["version"] == ["str", "=", '"2.1"']
    assert rows["empty"] == ["list", "=", "[]"]
    assert rows["none"] == ["none", "=", "none"]
    assert rows["betas"] == ["list[float]", "=", "[0.9,", "0.99]"]
    assert rows["long"] == ["str", "1", "kB"]
    assert rows["scalar"] == ["float16", "=", "2.0"]
    assert rows["bytes"] == ["bytes", "=", r"b'\xff'"]
    first = {line.split()[0]: line.split()[1:] for line in inside(capsys, "head", tmp_path / "model.tb").lines}
    assert first["big"] == ["int", str(2**70)]


def test_json_tells_what_there_is_to_tell(tmp_path, capsys):
    tb.save(CHECKPOINT, tmp_path / "model.tb")
    found = {
        tensor["name"]: tensor for tensor in inside(capsys, "info", tmp_path / "model.tb", "--json").item["tensors"]
    }
    assert found["w"] == {"name": "w", "kind": "tensor", "dtype": "float32", "shape": [3, 4], "nbytes": 48}
    values = {name: tensor.get("value") for name, tensor in found.items() if name not in ("w", "long", "bytes")}
    assert values == {name: CHECKPOINT[name] for name in values} | {"nan": "NaN", "scalar": 2.0}
    assert "value" not in found["long"]
    assert (found["none"]["python"], found["long"]["python"]) == ("none", "str")


def test_a_damaged_value_is_not_shown(tmp_path, capsys):
    tb.save({"x": np.zeros(2), "note": "a text to damage"}, tmp_path / "x.tb")
    data = (tmp_path / "x.tb").read_bytes()
    (tmp_path / "x.tb").write_bytes(data.replace(b"text to", b"tent to"))
    assert "tent" not in inside(capsys, "info", tmp_path / "x.tb").out


def test_values_of_layers_that_are_alike(tmp_path, capsys):
    state = {f"state/{n}": {"step": 7, "seed": n, "m": np.ones(3)} for n in range(5)}
    tb.save(state, tmp_path / "x.tb")
    shown = [line.split() for line in inside(capsys, "info", tmp_path / "x.tb").lines]
    assert shown[3][:7] == ["state/0..4", "5", "alike", "5", "tensors,", "10", "values"]
    assert ["├", "step", "int", "=", "7"] in shown
    assert [line for line in shown if "seed" in line] == [["├", "seed", "int", "40", "B"]]


def test_a_part_of_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tb.save(checkpoint(3), "model.safetensors", meta={"step": "7"})
    shown = inside(capsys, "model.safetensors::layers.1").lines
    assert shown[0] == "model.safetensors::layers.1: safetensors, 3 tensors, 288 numbers of float32"
    only = inside(capsys, "model.safetensors::embed.weight", "--json").item
    assert (only["path"], [tensor["name"] for tensor in only["tensors"]]) == (
        "model.safetensors::embed.weight",
        ["embed.weight"],
    )
    ran = inside(capsys, "info", "model.safetensors::embed.wieght")
    assert (ran.code, "did you mean 'embed.weight'" in ran.err) == (2, True)
    assert "tb cat" in inside(capsys, "info", "model.safetensors::embed.weight[0]").err


def test_through_the_real_command(tmp_path):
    record_file(tmp_path / "train.tfrecord", 5)
    assert piped("info", "train.tfrecord", "--json", cwd=tmp_path).item["objects"] == 5
    assert "5 records" in in_terminal("train.tfrecord", cwd=tmp_path).plain


def test_nulls_have_a_column_of_their_own(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"a": [1, None, None], "b": [1, 2, 3]}), tmp_path / "x.parquet")
    text = in_terminal("info", tmp_path / "x.parquet").plain
    assert [line.split()[:4] for line in text.splitlines()[-3:]] == [
        ["name", "dtype", "shape", "null"],
        ["a", "int64", "[3]", "2"],
        ["b", "int64", "[3]", "24"],
    ]
    assert "a  none   none" in in_terminal("head", tmp_path / "x.parquet").plain


def test_layers_that_are_alike_add_up_their_nulls():
    tensors = [info("h.0", 4, nulls=1, nulls_exact=True), info("h.1", 4), info("h.2", 4, nulls=2)]
    root = tree.build(tensors)
    tree.fold_alike(root)
    (folded,) = root.children
    assert (folded.tensor.nulls, folded.tensor.nulls_exact) == (3, False)
