"""tb convert: any format to any other, what is refused, and what Ctrl-C leaves."""

import os
import re
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.io import hidden
from tests.support.cli_cases import COMMAND, checkpoint, in_terminal, inside, interrupted, piped, record_file
from tests.support.tiers import deep_but

SUFFIXES = ["tb", "npz", "safetensors", "arrow", "parquet", "ckpt", "pt", "pbs"]
SINGLE = ["npy", "arrowtensor", "binpb", "pb", "tensorproto"]


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.npz"
    tb.save({"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3)}, path)
    return path


def names(folder):
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("source", SUFFIXES)
def test_every_format_of_named_tensors_to_every_other(source, tmp_path, capsys):
    tensors = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3)}
    tb.save(tensors, tmp_path / f"m.{source}")
    for target in SUFFIXES:
        made = tmp_path / f"out.{target}"
        ran = inside(capsys, "convert", tmp_path / f"m.{source}", made, "--verify", "--no-sync", "-f", "--json")
        assert ran.code == 0, ran.err
        assert ran.item["lossless"]
        assert ran.item["verified"]
        assert ran.item["tensors"] == 2
        assert tb.equal(tb.load(made), tensors)
    assert inside(capsys, "diff", tmp_path / f"m.{source}", tmp_path / "out.tb", "--json").item["identical"]


@pytest.mark.parametrize("target", SINGLE)
def test_formats_of_one_tensor(target, model, tmp_path, capsys):
    ran = inside(capsys, "convert", model, tmp_path / f"x.{target}", "--names", "w")
    assert ran.code == 0, ran.err
    ran = inside(capsys, "convert", model, tmp_path / f"y.{target}")
    assert ran.code == 2
    assert "--names" in ran.err
    assert "names=" not in ran.err
    assert not (tmp_path / f"y.{target}").exists()


def test_a_report_in_words(model, tmp_path, capsys):
    ran = inside(capsys, "convert", model, tmp_path / "m.tb", "--verify")
    assert ran.lines == [
        f"{model} (NumPy archive) -> {tmp_path}/m.tb (tensorbytes): 2 tensors, 48 B of data, verified",
        "  nothing lost",
    ]


def test_an_existing_file_is_replaced_only_when_asked(model, tmp_path, capsys):
    target = tmp_path / "m.tb"
    target.write_bytes(b"precious")
    ran = inside(capsys, "convert", model, target)
    assert ran.code == 2
    assert ran.err == f"tb convert: {target} exists already: pass --force to replace it, or another name\n"
    assert target.read_bytes() == b"precious"
    assert inside(capsys, "convert", model, target, "-f").code == 0
    assert tb.load(target)["w"].shape == (2, 3)


@pytest.mark.parametrize(
    ("target", "options", "there"),
    [
        ("{name}.npy", [], "w.npy"),
        ("{name}.npy", ["--rename", "w=v"], "v.npy"),
        ("t.tfrecord", ["--shards", "2"], "t.tfrecord-00001-of-00002"),
        ("c.ckpt", [], "c.ckpt.index"),
        ("s.safetensors", ["--option", "max_shard_bytes=24"], "s.safetensors.index.json"),
    ],
)
def test_files_whose_names_are_made_count_too(target, options, there, model, tmp_path, capsys):
    (tmp_path / there).write_bytes(b"precious")
    before = names(tmp_path)
    ran = inside(capsys, "convert", model, tmp_path / target, *options)
    assert ran.code == 2
    assert f"{there} exists already" in ran.err
    assert names(tmp_path) == before


def test_picking_and_renaming(model, tmp_path, capsys):
    assert inside(capsys, "convert", model, tmp_path / "{name}.npy").code == 0
    assert np.load(tmp_path / "w.npy").shape == (2, 3)
    assert inside(capsys, "convert", model, tmp_path / "m.pt", "--names", "w", "--rename", "w=layer.weight").code == 0
    assert list(tb.load(tmp_path / "m.pt")) == ["layer.weight"]
    ran = inside(capsys, "convert", model, tmp_path / "n.pt", "--names", "q*")
    assert ran.code == 2
    assert "no tensor 'q*'" in ran.err
    assert f"tb info {model} lists them" in ran.err
    ran = inside(capsys, "convert", model, tmp_path / "n.pt", "--rename", "w")
    assert ran.code == 2
    assert "expected OLD=NEW" in ran.err


def test_a_refused_loss_names_the_option_that_accepts_it(tmp_path, capsys):
    tb.save({"w": np.ones(2), "z": np.ones(2, complex), "label": "cat"}, tmp_path / "m.tb")
    ran = inside(capsys, "convert", tmp_path / "m.tb", tmp_path / "m.safetensors")
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert lines[0].endswith("format 'safetensors' can't hold everything, so nothing was written")
    assert any(line.startswith("  z: left out: ") and line.endswith("(--allow dtype)") for line in lines)
    assert any(line.startswith("  label: ") for line in lines)
    assert lines[-1].startswith("pass --allow dtype --allow ")
    assert not (tmp_path / "m.safetensors").exists()
    allowed = lines[-1].removeprefix("pass ").partition(" to accept")[0].split()
    ran = inside(capsys, "convert", tmp_path / "m.tb", tmp_path / "m.safetensors", *allowed)
    assert ran.code == 0
    assert "losses:" in ran.lines[1]
    assert any(line.split()[:2] == ["z", "dtype"] for line in ran.lines)
    assert list(tb.load(tmp_path / "m.safetensors")) == ["w"]
    ran = inside(capsys, "convert", tmp_path / "m.tb", tmp_path / "all.safetensors", "--allow", "all", "--json")
    assert {loss["name"] for loss in ran.item["losses"]} == {"z", "label"}


def test_rows_and_shards(tmp_path, capsys):
    tb.save({"x": np.arange(200).reshape(100, 2), "label": np.arange(100)}, tmp_path / "train.npz")
    ran = inside(
        capsys, "convert", tmp_path / "train.npz", tmp_path / "t.tfrecord", "--unstack", "0", "--shards", "4", "--json"
    )
    assert ran.item["rows"] == 100
    assert len(ran.item["files"]) == 4
    ran = inside(capsys, "convert", f"{tmp_path}/t.tfrecord@4", tmp_path / "t.parquet", "--verify")
    assert ran.code == 0, ran.err
    ran = inside(capsys, "convert", tmp_path / "t.parquet", tmp_path / "again.npz")
    assert "  100 rows stacked" in ran.lines
    assert np.load(tmp_path / "again.npz")["x"].shape == (100, 2)
    assert inside(capsys, "convert", tmp_path / "t.parquet", tmp_path / "whole.tb", "--stack").code == 0
    assert tb.load(tmp_path / "whole.tb")["label"].shape == (100,)
    ran = inside(capsys, "convert", tmp_path / "t.parquet", tmp_path / "no.tfrecord", "--stack")
    assert ran.code == 2
    assert "rows can't be stacked in format 'tfrecord'" in ran.err


def test_options_are_typed(model, tmp_path, capsys):
    ran = inside(
        capsys, "convert", model, tmp_path / "m.npz2", "--to", "npz", "--compression", "deflate", "--option", "level=9"
    )
    assert ran.code == 0, ran.err
    ran = inside(
        capsys, "convert", model, tmp_path / "m.tb", "--compression", "zstd", "--quantize", "float16", "--json"
    )
    assert [loss["feature"] for loss in ran.item["losses"]] == ["quantize"] * 2
    for number, specs in enumerate([["max_error=0.01"], ["int8,axis=0"], ["w:int4,group=2"], ["b:float32", "w:int8"]]):
        wanted = [word for spec in specs for word in ("--quantize", spec)]
        ran = inside(capsys, "convert", model, tmp_path / f"q{number}.tb", *wanted, "--json")
        assert ran.code == 0, ran.err
        assert all(loss["feature"] == "quantize" for loss in ran.item["losses"])
    for wrong in ("int7", "int8,colour=red", "int8,int4", ""):
        assert inside(capsys, "convert", model, tmp_path / "wrong.tb", "--quantize", wrong).code == 2
    ran = inside(capsys, "convert", model, tmp_path / "n.npz", "--compression", "none")
    assert ran.code == 0, ran.err
    ran = inside(capsys, "convert", model, tmp_path / "o.npz", "--option", "colour=red")
    assert ran.code == 2
    assert "no option 'colour'" in ran.err
    assert inside(capsys, "convert", model, tmp_path / "o.npz", "--option", "level").code == 2
    raw = tmp_path / "x.raw"
    raw.write_bytes(np.arange(6, dtype=np.float32).tobytes())
    ran = inside(
        capsys, "convert", raw, tmp_path / "x.npy", "--read-option", "dtype=float32", "--read-option", "shape=[2, 3]"
    )
    assert ran.code == 0, ran.err
    assert np.load(tmp_path / "x.npy").tolist() == [[0, 1, 2], [3, 4, 5]]


def test_several_sources_go_into_a_folder(model, tmp_path, capsys):
    tb.save({"x": np.ones(3)}, tmp_path / "other.npz")
    record_file(tmp_path / "train.tfrecord.gz", 5)
    sources = [f"{tmp_path}/*.npz", tmp_path / "train.tfrecord.gz"]
    ran = inside(capsys, "convert", *sources, f"{tmp_path}/out/", "--to", "pt", "--allow", "all")
    assert ran.code == 0, ran.err
    assert names(tmp_path / "out") == ["model.pt", "other.pt", "train.pt"]
    ran = inside(capsys, "convert", model, tmp_path / "other.npz", tmp_path / "m.tb")
    assert ran.code == 2
    assert "tb merge" in ran.err
    ran = inside(capsys, "convert", model, tmp_path / "out")
    assert ran.code == 2
    assert "--to" in ran.err
    tb.save({"x": np.ones(3)}, tmp_path / "model.tb")
    ran = inside(capsys, "convert", model, tmp_path / "model.tb", f"{tmp_path}/new/", "--to", "npz")
    assert ran.code == 2
    assert "would both become" in ran.err


def test_a_bad_file_among_several_does_not_keep_the_others(model, tmp_path, capsys):
    (tmp_path / "bad.npz").write_bytes(b"PK\3\4 nonsense")
    ran = inside(capsys, "convert", f"{tmp_path}/*.npz", f"{tmp_path}/out/", "--to", "tb")
    assert ran.code in (1, 2)
    assert "bad.npz" in ran.err
    assert names(tmp_path / "out") == ["model.tb"]


def test_what_can_not_be(model, tmp_path, capsys):
    for arguments, words in [
        ([model, tmp_path / "m.xyz"], "pass --to FORMAT"),
        ([model, tmp_path / "m", "--to", "nonsense"], "unknown format 'nonsense'"),
        ([model, tmp_path / "m.gguf"], "format 'gguf' is read-only"),
        ([model, "-"], "pass --to FORMAT"),
        ([tmp_path / "none.npz", tmp_path / "m.tb"], "no such file"),
        ([model, tmp_path / "no" / "m.tb"], f"m.tb: the folder {tmp_path / 'no'} does not exist"),
        ([model, tmp_path / "m.tb", "--shards", "3"], "3 shards: only TFRecord files are written in shards"),
    ]:
        ran = inside(capsys, "convert", *arguments)
        assert ran.code == 2, arguments
        assert words in ran.err, ran.err
    assert names(tmp_path) == ["model.npz"]


TARGETS = ("tb", "npz", "safetensors", "npy", "arrow", "parquet", "delimited")


@pytest.mark.parametrize("target", deep_but(("tb", "arrow"), TARGETS))
def test_stdin_to_stdout(target, model, tmp_path):
    ran = piped("convert", "-", "-", "--to", target, "--names", "w", stdin=model.read_bytes(), text=False)
    assert ran.code == 0, ran.err
    assert ran.err.startswith(b"stdin (NumPy archive) -> stdout ")
    back = tmp_path / f"back.{target}"
    back.write_bytes(ran.out)
    again = piped("convert", back, tmp_path / "again.npz", "--allow", "all")
    assert again.code == 0, again.err
    got = tb.load(tmp_path / "again.npz")
    assert np.asarray(got["w"] if isinstance(got, dict) else got).reshape(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_records_on_stdout(model, tmp_path):
    with open(tmp_path / "x.tfrecord", "wb") as file:
        command = [*COMMAND, "convert", str(model), "-", "--to", "tfrecord"]
        done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE)
    assert done.returncode == 0
    assert b"the schema" in done.stderr
    assert tb.verify(tmp_path / "x.tfrecord").records == 1


def test_a_terminal_gets_no_binary_data(model):
    ran = in_terminal("convert", model, "-", "--to", "tb")
    assert ran.code == 2
    assert "binary data does not go to a terminal" in ran.plain


def test_in_a_terminal_a_report_and_in_a_pipe_json(model, tmp_path):
    ran = in_terminal("convert", model, tmp_path / "m.tb")
    assert ran.code == 0
    assert ran.lines[-1] == "  nothing lost"
    assert "\x1b[" in ran.out
    assert piped("convert", model, tmp_path / "m.pt", "--json").item["lossless"]


def test_a_fault_of_stdin_is_called_so():
    ran = piped("convert", "-", "-", "--to", "tb", stdin=b"PK\3\4 nonsense", text=False)
    assert ran.code in (1, 2)
    assert ran.err.startswith(b"tb convert: stdin: ")
    assert ran.out == b""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk(model):
    with open("/dev/full", "wb") as full:
        command = [*COMMAND, "convert", str(model), "-", "--to", "npz"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert b"no space left on device" in done.stderr.lower()
    assert b"Traceback" not in done.stderr


# ---- long work ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Compressing it as hard as SLOWLY does takes some seconds."""
    path = tmp_path_factory.mktemp("large") / "large.tb"
    weights = np.random.default_rng(0).normal(0, 0.02, 3 << 18).astype(np.float32)
    tb.save({f"w{i}": weights.copy() for i in range(16)}, path, sync=False)
    return path


SLOWLY = ["--compression", "shuffle+zstd:17", "--no-sync"]


def temporary(folder):
    return [name for name in names(folder) if name.endswith(".tmp")]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupt_leaves_nothing_but_what_was_there(existing, large, tmp_path):
    target = tmp_path / "out.tb"
    if existing:
        target.write_bytes(b"precious")
    ran = interrupted("convert", large, target, "-f", *SLOWLY, after=lambda process: temporary(tmp_path))
    assert ran.code == 130
    assert ran.err == "tb: interrupted\n"
    assert names(tmp_path) == (["out.tb"] if existing else [])
    assert not existing or target.read_bytes() == b"precious"


@pytest.mark.parametrize(
    "target", ["m.tb", "m.npz", "rows.tb", "rows.tfrecord", "rows.parquet", "m.ckpt", "{name}.npy"]
)
def test_an_interrupt_at_the_worst_moment(target, model, tmp_path, capsys, monkeypatch):
    """When the temporary file is there, and whoever opened it does not know yet."""

    source = model
    if target.startswith("rows"):
        source = tmp_path / "x.parquet"
        tb.save({"x": np.arange(5)}, source, sync=False)

    def press(temporary, private):
        open(temporary, "xb").close()
        raise KeyboardInterrupt

    monkeypatch.setattr(hidden, "create", press)
    before = names(tmp_path)
    ran = inside(capsys, "convert", source, tmp_path / target)
    assert ran.code == 130
    assert names(tmp_path) == before


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_a_bar_shows_and_ctrl_c_ends_it(large, tmp_path):
    def press(pid, terminal):
        os.kill(pid, signal.SIGINT)

    ran = in_terminal("convert", large, tmp_path / "out.tb", *SLOWLY, when=("MB/s", press))
    assert ran.code == 130
    assert "interrupted" in ran.plain
    assert names(tmp_path) == []


def test_no_bar_off_a_terminal_nor_with_q(large, tmp_path):
    ran = piped("convert", large, tmp_path / "a.tb", *SLOWLY, "--names", "w[0-4]")
    assert ran.code == 0
    assert ran.err == ""
    ran = in_terminal("convert", large, tmp_path / "b.tb", *SLOWLY, "--names", "w[0-4]", "-q")
    assert ran.code == 0
    assert "MB/s" not in ran.plain


def test_the_target_keeps_its_mode(model, tmp_path, capsys):
    target = tmp_path / "m.tb"
    target.write_bytes(b"")
    target.chmod(0o600)
    assert inside(capsys, "convert", model, target, "--force").code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_names_that_steer_a_terminal_are_escaped(tmp_path):
    tb.save({"\x1b[31mred": np.ones(2, complex), "w": np.ones(1)}, tmp_path / "m.tb")
    ran = in_terminal("convert", tmp_path / "m.tb", tmp_path / "m.safetensors")
    assert ran.code == 2
    assert "\x1b[31m" not in ran.out
    ran = in_terminal("convert", tmp_path / "m.tb", tmp_path / "m.safetensors", "--allow", "dtype")
    assert "\\x1b[31mred" in ran.plain
    assert "\x1b[31m" not in ran.out


def test_no_framework_is_loaded(model, tmp_path):
    code = (
        "import sys; from tensorbytes.cli import main\n"
        f"main(['convert', {str(model)!r}, {str(tmp_path / 'm.pt')!r}, '-q'])\n"
        f"main(['diff', {str(model)!r}, {str(tmp_path / 'm.pt')!r}, '-q'])\n"
        f"main(['verify', {str(tmp_path / 'm.pt')!r}])\n"
        "loaded = {'torch', 'tensorflow', 'jax', 'scipy', 'pyarrow', 'rich'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_help_lists_the_options_of_formats(capsys):
    writing, reading = (
        inside(capsys, "convert", "--help").out.split("\nfor --option:\n")[1].split("\nfor --read-option:\n")
    )
    for chosen in map(formats.get, formats.BUILTIN):
        for text, known in ((writing, chosen.write_options), (reading, chosen.read_options)):
            for key in known:
                assert re.search(rf"^  {key}, of .*\b{chosen.name}\b", text, re.MULTILINE)
    assert "level, of npz: of deflate: 0 to 9, 6 unless it is said (a whole number or None)" in " ".join(
        writing.split()
    )
    assert "for --option" not in inside(capsys, "info", "--help").out


@pytest.mark.parametrize("said", ["true", "True"])
def test_options_are_said_in_words_of_python_or_json(said, tmp_path, capsys):
    tb.save({"z": np.array([1j])}, tmp_path / "z.tb")
    ran = inside(capsys, "convert", tmp_path / "z.tb", tmp_path / "z.safetensors", "--option", f"extended={said}")
    assert ran.code == 0, ran.err
    ran = inside(capsys, "convert", tmp_path / "z.tb", tmp_path / "y.safetensors", "--option", "extended=1")
    assert "option 'extended' of format 'safetensors': expected True or False, got 1" in ran.err


def test_help_has_examples(capsys):
    ran = inside(capsys, "convert", "--help")
    assert ran.code == 0
    assert ran.out.count("\n  tb convert ") >= 4


def test_a_checkpoint_of_many_tensors(tmp_path, capsys):
    tb.save(checkpoint(), tmp_path / "c.safetensors")
    assert inside(capsys, "convert", tmp_path / "c.safetensors", tmp_path / "c.pt", "--names", "layers.3.*").code == 0
    assert len(tb.load(tmp_path / "c.pt")) == 3


def test_a_url_of_a_local_file_is_as_safe_as_its_path(model, tmp_path, capsys):
    before = model.read_bytes()
    for verb in ("convert", "merge", "repair"):
        ran = inside(capsys, verb, model, f"file://{model}")
        assert ran.code == 2
        assert model.read_bytes() == before
    assert inside(capsys, "cat", f"{model}::w", "-o", f"file://{model}").code == 2
    assert inside(capsys, "convert", f"file://{model}", f"file://{model}", "--force").code == 0
    assert tb.equal(tb.load(model), {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3)})


def test_files_of_several_are_not_replaced_unasked(model, tmp_path, capsys):
    for name, arguments in (
        ("m-00001-of-00002.safetensors", ["m.safetensors", "--option", "max_shard_bytes=10"]),
        ("m.data-00000-of-00001", ["m.ckpt", "--to", "checkpoint"]),
    ):
        (tmp_path / name.replace("m.data", "m.ckpt.data")).write_text("precious")
        ran = inside(capsys, "convert", model, tmp_path / arguments[0], *arguments[1:])
        assert ran.code == 2
        assert "exists already" in ran.err
        assert (tmp_path / name.replace("m.data", "m.ckpt.data")).read_text() == "precious"


@pytest.mark.parametrize("option", ["names=1", "src=1", "progress=1"])
def test_options_that_are_those_of_the_command(option, model, tmp_path, capsys):
    ran = inside(capsys, "convert", model, tmp_path / "m.tb", "--option", option)
    assert ran.code == 2
    assert f"--option {option[:-2]}" in ran.err


def test_a_file_called_like_an_argument_keeps_its_name(model, tmp_path, capsys):
    folder = tmp_path / "rows=5"
    folder.mkdir()
    model.rename(folder / "shards=4.npz")
    ran = inside(capsys, "cat", f"{folder}/shards=4.npz::nothing")
    assert f"{folder}/shards=4.npz has no tensor" in ran.err
    for arguments in (["x.npz", "--shards", "2"], ["x.tfrecord", "--unstack", "0", "--shards", "0"]):
        ran = inside(capsys, "convert", folder / "shards=4.npz", tmp_path / arguments[0], *arguments[1:])
        assert ran.code == 2
        assert "shards=2" not in ran.err
