"""The command line itself: which command is meant, what goes where, and how it ends."""

import functools
import http.server
import os
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import cli
from tensorbytes.cli import output, progress
from tensorbytes.cli.output import Cell, Heading, Output, folded
from tensorbytes.cli.verbs import VERBS
from tests.support.cli_cases import (
    COMMAND,
    checkpoint,
    default_signals,
    in_terminal,
    inside,
    interrupted,
    piped,
    record_file,
)
from tests.support.tiers import deep_but

HEAVY = {"torch", "tensorflow", "jax", "scipy", "pyarrow", "fsspec"}


@pytest.fixture
def model(tmp_path):
    tb.save(checkpoint(), tmp_path / "model.tb")
    return tmp_path / "model.tb"


# ---- which command ----------------------------------------------------------------


def test_a_file_alone_is_looked_into(model, capsys):
    assert inside(capsys, model) == inside(capsys, "info", model)


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_explains_itself(verb, capsys):
    ran = inside(capsys, verb, "--help")
    assert ran.code == 0
    assert "examples:" in ran.out, "each has examples"
    assert inside(capsys, "help", verb).out == ran.out


def test_the_overview_lists_them_all(capsys):
    ran = inside(capsys, "--help")
    assert ran.code == 0
    assert all(f"  {verb} " in ran.out for verb in VERBS)
    assert inside(capsys) == (2, ran.out, "")


def test_the_version(capsys):
    assert inside(capsys, "--version").out == f"tensorbytes {tb.__version__}\n"


def test_what_is_neither_a_command_nor_a_file(capsys):
    ran = inside(capsys, "stast", "x.tb")
    assert ran == (2, "", "tb: stast: neither a command nor a file; did you mean `tb stats`?\n")
    assert "tb --help" in inside(capsys, "zzzzzz").err


def test_a_file_that_is_called_like_nothing_known(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tb.save(np.ones(2), "weights", "tb")
    assert inside(capsys, "weights", "--json").item["format"] == "tb"


def test_flags_may_come_first(model, capsys):
    assert inside(capsys, "-q", "info", model) == inside(capsys, "info", "-q", model)


def test_wrong_options(model, capsys):
    ran = inside(capsys, "info", model, "--colour")
    assert (ran.code, ran.out) == (2, "")
    assert "--colour" in ran.err


# ---- errors -----------------------------------------------------------------------


def test_one_file_does_not_keep_the_others(model, tmp_path, capsys):
    damaged = tmp_path / "damaged.tb"
    damaged.write_bytes(model.read_bytes()[:-7])
    ran = inside(capsys, "info", tmp_path / "missing.tb", damaged, model, "--json")
    missing, broken, fine = ran.items
    assert missing["error"] == {"kind": "FileNotFoundError", "message": f"{tmp_path / 'missing.tb'}: no such file"}
    assert broken["error"]["kind"] == "CorruptError"
    assert fine["format"] == "tb"
    assert (ran.code, ran.err) == (2, "")
    shown = inside(capsys, "info", tmp_path / "missing.tb", damaged, model)
    assert shown.code == 2
    assert [line.partition(":")[0] for line in shown.err.splitlines()] == ["tb info"] * 2
    assert "no such file" not in shown.out
    assert inside(capsys, "info", damaged, model).code == 1


@pytest.mark.parametrize("verb", ["info", "head", "cat", "stats", "schema"])
def test_a_missing_file(verb, tmp_path, capsys):
    ran = inside(capsys, verb, tmp_path / "no.tb")
    assert ran == (2, "", f"tb {verb}: {tmp_path / 'no.tb'}: no such file\n")


def test_errors_of_the_system_in_words(tmp_path):
    assert cli.error_text(PermissionError(13, "Permission denied", "x.tb")) == "x.tb: permission denied"
    assert cli.error_text(FileNotFoundError("https://host/x")) == "https://host/x: no such file"
    assert cli.error_text(OSError("Cannot connect")) == "Cannot connect"
    assert cli.failure(MemoryError()) == 2
    assert cli.failure(RuntimeError()) is None, "a bug, which wants its traceback"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(tmp_path, capsys):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    assert "permission denied" in inside(capsys, "info", folder).err


def test_messages_speak_of_options(tmp_path, capsys):
    path = tmp_path / "unknown"
    path.write_bytes(b"\xfe\xed" * 30)
    assert "pass --from FORMAT" in inside(capsys, "info", path).err


def test_a_bug_has_a_code_of_its_own(tmp_path):
    broken = "from tensorbytes import cli\nfrom tensorbytes.cli import info\ninfo.run = lambda *a: 1 / 0\ncli.main()"
    done = subprocess.run([sys.executable, "-c", broken, "x.tb"], capture_output=True, text=True)
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr
    assert done.stderr.endswith("tb: this is a bug of tensorbytes; the lines above tell where\n")


# ---- files ------------------------------------------------------------------------


def test_folders_globs_and_stdin(model, tmp_path, monkeypatch, capsys):
    below = tmp_path / "below"
    below.mkdir()
    np.save(below / "x.npy", np.arange(3))
    record_file(below / "train.tfrecord", 3)
    tb.records.build_index(below / "train.tfrecord")
    (below / "notes.txt").write_text("not a tensor")
    (below / ".hidden.npy").write_bytes((below / "x.npy").read_bytes())
    found = [item["path"] for item in inside(capsys, "info", tmp_path, "--json").items]
    assert found == [str(model), str(below / "train.tfrecord"), str(below / "x.npy")]
    assert [item["path"] for item in inside(capsys, "info", tmp_path / "**/*.npy", "--json").items] == [
        str(below / "x.npy")
    ]
    assert piped("info", "-", "--json", stdin=model.read_bytes()).item["path"] == "stdin"
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "without any file of tensors" in inside(capsys, "info", empty).err
    assert "no file matches" in inside(capsys, "info", tmp_path / "*.nope").err


def test_the_shards_of_a_model_are_one(tmp_path, capsys):
    tb.save(checkpoint(2), tmp_path / "model.tb")
    tb.convert(tmp_path / "model.tb", tmp_path / "model.safetensors", max_shard_bytes=5000)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    found = inside(capsys, "info", tmp_path, "--json").items
    assert [item["format"] for item in found] == ["safetensors", "tb"]
    assert [len(item["tensors"]) for item in found] == [8, 8]


def test_a_name_with_the_letters_of_patterns(tmp_path, capsys):
    tb.save(np.ones(2), tmp_path / "a[0].tb")
    assert inside(capsys, "info", tmp_path / "a[0].tb", "--json").item["format"] == "tb"


def test_urls(model, tmp_path, capsys):
    pytest.importorskip("fsspec")
    assert inside(capsys, "info", f"file://{model}", "--json").item["format"] == "tb"
    assert inside(capsys, "info", "nope://x").err == "tb info: nope://x: fsspec knows no nope:// URLs\n"
    pytest.importorskip("aiohttp")

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Silent, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert len(inside(capsys, "info", f"{url}/model.tb", "--json").item["tensors"]) == 38
        assert inside(capsys, "info", f"{url}/no.tb").err == f"tb info: {url}/no.tb: no such file\n"
        server.shutdown()
    gone = inside(capsys, "info", f"{url}/model.tb")
    assert gone.code == 2
    assert "the server can't be reached" in gone.err


# ---- where output goes --------------------------------------------------------------


@pytest.mark.parametrize("verb", deep_but(["info", "doctor"], ["info", "head", "cat", "stats", "verify", "doctor"]))
def test_in_a_pipe_the_same_text_without_colours(verb, tmp_path):
    tb.save({"w": np.arange(6.0)}, tmp_path / "model.tb")
    arguments = [] if verb == "doctor" else ["model.tb"]
    ran, shown = piped(verb, *arguments, cwd=tmp_path), in_terminal(verb, *arguments, columns=200, cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert [line.split() for line in ran.lines] == [line.split() for line in shown.lines]


def test_in_a_pipe_nothing_is_cut(tmp_path):
    name = "a_very_long_name/" * 20
    tb.save({name: np.ones(3)}, tmp_path / "x.tb")
    assert name in piped("info", tmp_path / "x.tb", "--flat").out


@pytest.mark.parametrize(
    ("verb", "json"),
    deep_but(
        [("info", True), ("cat", False), ("convert", False), ("verify", True)],
        [
            (verb, json)
            for verb in ("info", "head", "cat", "stats", "schema", "verify", "convert", "repair", "diff")
            for json in (False, True)
        ],
    ),
)
def test_an_error_is_told_once(verb, json, tmp_path):
    more = ["other.tb"] if verb in ("convert", "repair", "diff") else []
    ran = piped(verb, "no.tb", *more, *(["--json"] if json else []), cwd=tmp_path)
    assert ran.code == 2
    assert (ran.out + ran.err).count("no such file") == 1


def test_json_and_nothing_else(model):
    ran = piped("info", model, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert [tensor["name"] for tensor in ran.item["tensors"]] == list(checkpoint())


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_tables_fit_the_terminal(columns, model):
    ran = in_terminal("info", model, columns=columns)
    assert ran.code == 0
    assert "\x1b[" in ran.out
    start = next(at for at, line in enumerate(ran.lines) if line.startswith("name"))
    table = ran.lines[start:]
    assert max(map(len, table)) <= columns
    assert any("layers.0..11" in line for line in table)
    assert ("█" in ran.plain) == (columns >= 80), "a narrow terminal has no room for bars"


@pytest.mark.parametrize(("arguments", "env"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})])
def test_no_colours(arguments, env, model):
    assert "\x1b" not in in_terminal("info", model, *arguments, env=env).out


def test_where_there_are_no_blocks_to_draw_with(model):
    ran = in_terminal("info", model, env={"PYTHONIOENCODING": "ascii"})
    assert "#" in ran.out
    assert ran.out.isascii()
    assert "\\u" not in ran.out


def test_json_on_a_terminal(model):
    assert in_terminal("info", model, "--json").item["format"] == "tb"


def test_names_can_not_steer_a_terminal(tmp_path, capsys):
    evil = "a\x1b]0;title\x07\nb\u202e"
    tb.save({evil: np.ones(3), "text": ["\x1b[31mred"]}, tmp_path / "evil.tb", meta={"k\x1b": "\x9b1m"})
    for arguments in (["info"], ["head"], ["stats"], ["cat"]):
        address = f"{tmp_path / 'evil.tb'}" + ("::text" if arguments == ["cat"] else "")
        shown = inside(capsys, *arguments, address)
        assert shown.code == 0
        assert all(line.isprintable() for line in shown.out.splitlines())
        assert "\\x1b" in shown.out
        assert inside(capsys, *arguments, address, "--json").out.isascii()
    assert "\\x1b" in inside(capsys, "cat", f"{tmp_path / 'evil.tb'}::no").err


def test_whoever_reads_may_stop(tmp_path):
    np.save(tmp_path / "large.npy", np.arange(2_000_000))
    command = [*COMMAND, "cat", str(tmp_path / "large.npy"), "--as", "text"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert [process.stdout.readline() for _ in range(3)] == [b"0\n", b"1\n", b"2\n"]
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("verb", ["info", "stats", "verify", "head"])
def test_whoever_reads_may_stop_before_the_first_line(verb, tmp_path):
    tb.save({f"tensor {i}": np.ones(3) for i in range(3000)}, tmp_path / "x.tb")
    command = " ".join([*COMMAND, verb, "x.tb", *(["--all"] if verb == "info" else []), "| true"])
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_full_disk(model):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "info", str(model)], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (2, "tb: can't write the output: No space left on device\n")


def test_no_output_at_all(model):
    done = subprocess.run(f'"{sys.executable}" -m tensorbytes info "{model}" >&-', shell=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_errors_at_all(model):
    for path, code in ((model, 0), ("gone.tb", 2)):
        command = f'"{sys.executable}" -m tensorbytes verify "{path}" 2>&-'
        done = subprocess.run(command, shell=True, capture_output=True)
        assert done.returncode == code
        assert b"tb verify:" not in done.stdout


def test_what_was_typed_wrongly_is_escaped(model):
    ran = piped("info", model, "--bad\x1b[31m")
    assert ran.code == 2
    assert "--bad\\x1b[31m" in ran.err


@pytest.mark.parametrize("verb", ["cat", "stats"])
def test_interrupted(verb, tmp_path):
    """Ctrl-C while a file is written: no traceback, and nothing of the file."""
    # Long enough to be met at work: seconds of it, of which the test waits for the first moments.
    tb.save(np.tile(np.arange(1 << 16, dtype=np.float32), 1 << 10), tmp_path / "large.tb", sync=False)
    before = set(os.listdir(tmp_path))
    if verb == "cat":
        ran = interrupted(
            "cat",
            "large.tb",
            "--as",
            "text",
            "-o",
            "out.txt",
            cwd=tmp_path,
            after=lambda _: _new_bytes(tmp_path, before),
        )
    else:
        ran = interrupted("stats", "large.tb", cwd=tmp_path, after=_busy)
    assert (ran.code, ran.out, ran.err) == (130, "", "tb: interrupted\n")
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGHUP])
def test_ended_by_others(by, tmp_path):
    """kill, or a terminal that goes away, while a file is written."""
    tb.save(np.zeros(1 << 24, np.float32), tmp_path / "large.npy")
    before = set(os.listdir(tmp_path))
    ran = interrupted(
        *("cat", "large.npy", "--as", "text", "-o", "out.txt"),
        cwd=tmp_path,
        after=lambda _: _new_bytes(tmp_path, before),
        by=by,
    )
    assert (ran.code, ran.out, ran.err) == (128 + by, "", "tb: interrupted\n")
    assert set(os.listdir(tmp_path)) == before


def test_limits_are_the_environments(tmp_path):
    data = tb.dumps(np.zeros(1 << 20, np.float32), compression="zstd")
    (tmp_path / "zeros.tb").write_bytes(data)
    ran = piped("stats", "zeros.tb", cwd=tmp_path, env={"TENSORBYTES_MAX_BYTES": "1000"})
    assert ran.code == 2
    assert "over the limit of 1000 (byte 171); set TENSORBYTES_MAX_BYTES=N to allow it" in ran.err
    assert piped("stats", "zeros.tb", cwd=tmp_path, env={"TENSORBYTES_MAX_BYTES": "10000000"}).code == 0
    ran = piped("stats", "zeros.tb", cwd=tmp_path, env={"TENSORBYTES_MAX_BYTES": "1GB"})
    assert (ran.code, ran.err) == (
        0,
        "tb: warning: TENSORBYTES_MAX_BYTES='1GB' is not a number of bytes, and is ignored\n",
    )


def _new_bytes(folder, before):
    return any(os.path.getsize(folder / name) for name in set(os.listdir(folder)) - before)


def _busy(process):
    """Whether the command is past its start: it has used the processor for a while."""
    try:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        pytest.skip("needs /proc")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") > 0.35


def test_an_interrupt_that_became_another_error(tmp_path):
    """As one does that comes while a module is loaded."""
    told = (
        "import os, signal\nfrom tensorbytes import cli\nfrom tensorbytes.cli import info\n"
        "def run(*args):\n    try:\n        os.kill(os.getpid(), signal.SIGINT)\n        signal.pause()\n"
        "    except KeyboardInterrupt:\n        raise ImportError('half loaded') from None\n"
        "info.run = run\ncli.main()"
    )
    with default_signals():
        done = subprocess.run([sys.executable, "-c", told, "x.tb"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "tb: interrupted\n")


def test_an_interrupt_waits_for_what_it_would_leave_behind(tmp_path):
    told = (
        "import os, signal, sys, tempfile\nfrom tensorbytes.cli import interrupts\n"
        "made = tempfile.mkdtemp\n"
        "def mkdtemp(**given):\n    path = made(**given, dir=sys.argv[1])\n    os.kill(os.getpid(), signal.SIGINT)\n"
        "    return path\n"
        "tempfile.mkdtemp = mkdtemp\n"
        "try:\n    with interrupts.temporary_folder('x'): print('entered')\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    with default_signals():
        done = subprocess.run([sys.executable, "-c", told, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "interrupted\n"
    assert not list(tmp_path.iterdir())


def test_warnings_are_lines(monkeypatch, capsys):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    cli._show_warnings_in_a_line()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        cli._show_warnings_in_a_line()
        warnings.warn("the tail is cut\x1b", stacklevel=1)
    assert capsys.readouterr().err == "tb: warning: the tail is cut\\x1b\n"


# ---- what it costs ------------------------------------------------------------------


def test_looking_loads_no_framework(model, tmp_path):
    record_file(tmp_path / "train.tfrecord", 3)
    tb.save(checkpoint(), tmp_path / "model.safetensors")
    tb.save(checkpoint(), tmp_path / "model.pt")
    code = (
        "import sys\nfrom tensorbytes.cli import main\n"
        "for path in sys.argv[1:]: main([path]); main(['head', path])\n"
        "print(sorted(set(sys.modules)), file=sys.stderr)"
    )
    paths = sorted(str(path) for path in tmp_path.glob("*") if not path.name.endswith(".json"))
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    loaded = set(eval(done.stderr.splitlines()[-1]))
    assert not loaded & HEAVY
    assert "rich" not in loaded, "for terminals alone"


def test_a_look_loads_little(model):
    code = "import sys\nfrom tensorbytes.cli import main\nmain(sys.argv[1:])\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, "info", str(model)], capture_output=True, text=True, check=True)
    assert not {"difflib", "tempfile", "shutil", "glob", "unicodedata"} & set(done.stderr.split())


# ---- tables and progress --------------------------------------------------------------


def test_plain_tables_line_up(capsys):
    out = Output()
    out.table([Heading("name"), Heading("n", right=True)], [["a", "1"], [Cell("ほ\n", "bold"), "20"]])
    assert capsys.readouterr().out == "name   n\na      1\nほ\\n  20\n"


def test_columns_are_left_out_in_their_order():
    columns = [Heading("name", fold=True, least=4), Heading("b", drop=1), Heading("c", drop=2)]
    cells = [[Cell("a long name"), Cell("12345"), Cell("123456")]]
    kept = [output._fitting(columns, cells, True, room) for room in (40, 18, 11, 3)]
    assert kept == [[0, 1, 2], [0, 1], [0, 1], [0]]


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, ""), (0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_499_999, "1.5 MB"), (999_600, "1 MB")],
)
def test_sizes(count, text):
    assert output.size_text(count) == text


def test_json_is_strict(capsys):
    Output(json=True).item({"a": [float("nan"), float("-inf")], "b": np.float32(0.5), "c": b"\xff", "d": {"x", "y"}})
    assert capsys.readouterr().out == '{"a": ["NaN", "-Infinity"], "b": 0.5, "c": "\\\\xff", "d": ["x", "y"]}\n'


def test_progress_is_shown_on_a_terminal(model):
    patient = "import sys\nfrom tensorbytes.cli import main, progress\nprogress._PATIENCE_SECONDS = 0\n"
    program = [sys.executable, "-c", f"{patient}sys.exit(main(sys.argv[1:]))"]
    shown = in_terminal("stats", model, program=program, columns=100)
    assert shown.code == 0
    assert "model.tb ━" in shown.plain.replace("/", " ").replace(str(model.parent).replace("/", " ") + " ", "")
    assert "━" not in in_terminal("stats", model, "-q", program=program).plain


def test_nothing_is_shown_of_short_work(monkeypatch):
    bar = progress.Progress("x")
    with bar:
        bar(1, 2)
    assert bar._bar is None


def test_cells_fold_where_words_end():
    assert folded("optimizer/weight_decay", 14) == ["optimizer/", "weight_decay"]
    assert folded("pip install 'x[y]'", 12) == ["pip install", "'x[y]'"]
    assert folded("abcdefgh", 3) == ["abc", "def", "gh"]


def test_the_version_is_a_command_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert inside(capsys, "version").out == inside(capsys, "--version").out
    assert "--version" in inside(capsys, "--help").out
    assert max(map(len, in_terminal("--help", columns=50).lines)) <= 52
