"""tb doctor, demo, completion, and the reference that is made of all parsers."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.cli import completion, doctor, reference
from tensorbytes.cli.verbs import VERBS
from tests.support.cli_cases import in_terminal, inside, interrupted, piped

# ---- doctor ---------------------------------------------------------------------------


def test_what_is_installed(capsys):
    found = inside(capsys, "doctor", "--json").item
    assert found["tensorbytes"] == tb.__version__
    assert found["kernel"] == ("compiled" if tb.ACCELERATED else "reference")
    assert found["self_test"] == "passed"
    assert found["packages"]["numpy"] == {"version": np.__version__, "for": "arrays", "install": None}


def test_what_is_missing(monkeypatch, capsys):
    absent = doctor.Package("no_such_module", ("no-such-distribution",), "torch", "tensors of nobody")
    monkeypatch.setattr(doctor, "PACKAGES", (*doctor.PACKAGES, absent))
    ran = inside(capsys, "doctor", "--json")
    assert ran.code == 0, "nothing that is optional is an error"
    assert ran.item["packages"]["no_such_module"]["install"] == "pip install 'tensorbytes[torch]'"
    assert "not installed" in inside(capsys, "doctor").out


@pytest.mark.skipif(not tb.ACCELERATED, reason="the reference kernel has nothing to be compared with")
def test_a_failing_self_test(monkeypatch, capsys):
    from tensorbytes._wire import reference as twin

    monkeypatch.setattr(twin, "crc32c", lambda data: 0)
    ran = inside(capsys, "doctor", "--json")
    assert ran.code == 1
    assert ran.item["self_test"] == "failed: the compiled kernel and the reference disagree on a checksum"


def test_it_says_why_the_kernel_is_not_compiled():
    found = piped("doctor", "--json", env={"TENSORBYTES_KERNEL": "reference"}).item
    assert (found["kernel"], found["kernel_reason"]) == ("reference", "TENSORBYTES_KERNEL=reference asks for it")


def test_nothing_is_loaded_to_find_out():
    code = "import sys\nfrom tensorbytes.cli import main\nmain(['doctor'])\nprint(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "tensorflow", "jax", "scipy", "pyarrow", "fsspec", "matplotlib"} & set(done.stderr.split())


def test_the_doctor_on_a_terminal():
    shown = in_terminal("doctor").plain
    assert "self-test     passed" in shown
    assert "package" in shown


# ---- demo -----------------------------------------------------------------------------


def test_the_demo(tmp_path, capsys):
    ran = inside(capsys, "demo", "--to", "numpy", "--count", "20", "--keep", tmp_path / "predictions.tb")
    assert ran.code == 0
    assert ran.out.count(" equal ") == 1
    assert "CorruptError: predictions.tb: the checksum of a record's data differs" in ran.out
    assert len(tb.open(tmp_path / "predictions.tb")) == 20
    steps = [item["step"] for item in inside(capsys, "demo", "--to", "numpy", "--count", "3", "--json").items]
    assert steps == ["made", "stored", "reloaded", "looked", "damaged"]


def test_an_interrupted_demo_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    ran = interrupted("demo", "--to", "numpy", "--count", "200000", after=lambda _: any(tmp_path.iterdir()))
    assert (ran.code, ran.err) == (130, "tb: interrupted\n")
    assert not list(tmp_path.iterdir())


# ---- completion -----------------------------------------------------------------------

TRIES = {
    "tb in": {"info", "index"},
    "tb stats --bi": {"--bins"},
    "tb --sca": {"--scan"},
    "tb model.tb --fla": {"--flat"},
    "tb --ver": {"--version"},
    "tb cat --as te": {"text", "tensorproto"},
    "tb convert --to saf": {"safetensors"},
    "tb completion ": {"bash", "zsh", "fish"},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "infant two.tb").touch()
    return tmp_path


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash(folder):
    (folder / "tb.bash").write_text(piped("completion", "bash").out)
    lines = ["source ./tb.bash"]
    for typed in TRIES:
        words = " ".join(f"'{word}'" for word in typed.split(" "))
        lines.append(f"COMP_WORDS=({words}); COMP_CWORD={len(typed.split(' ')) - 1}; COMPREPLY=(); _tensorbytes")
        lines.append('printf "%s\\t" "${COMPREPLY[@]}"; echo')
    lines.append("complete -p tensorbytes")
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    *offered, registered = done.stdout.splitlines()
    found = [set(line.rstrip("\t").split("\t")) for line in offered]
    assert found == [{"info", "index", "infant two.tb"}, *list(TRIES.values())[1:]]
    assert registered.endswith("-F _tensorbytes tensorbytes")
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("fish") is None, reason="needs fish")
def test_fish(folder):
    (folder / "tb.fish").write_text(completion.fish())
    tries = "; ".join(f"complete -C '{typed}'; echo ==" for typed in TRIES if not typed.startswith("tb --"))
    done = subprocess.run(["fish", "-c", f"source tb.fish; {tries}"], capture_output=True, text=True, check=True)
    found = [{line.split("\t")[0] for line in part.strip().splitlines()} for part in done.stdout.split("==\n")[:-1]]
    expected = [offered for typed, offered in TRIES.items() if not typed.startswith("tb --")]
    assert all(offered <= shown for offered, shown in zip(expected, found, strict=True))
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh(folder):
    (folder / "tb.zsh").write_text(completion.zsh())
    lines = [
        "autoload -U compinit; compinit -u -d ./dump; source ./tb.zsh",
        "print -r -- $_comps[tb] $_comps[tensorbytes]",
    ]
    done = subprocess.run(["zsh", "-f", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("_tensorbytes _tensorbytes\n", "")


def test_every_option_is_offered(capsys):
    scripts = {shell: inside(capsys, "completion", shell).out for shell in completion.SHELLS}
    for verb in VERBS:
        for option in completion.options(verb):
            assert all(flag in scripts["bash"] and flag in scripts["zsh"] for flag in option.flags)
            assert all(flag.lstrip("-") in scripts["fish"] for flag in option.flags)


def test_the_shell_is_guessed(monkeypatch, capsys):
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert inside(capsys, "completion", "--json").item["shell"] == "fish"
    monkeypatch.setenv("SHELL", "/bin/other")
    assert "say which shell" in inside(capsys, "completion").err


# ---- the reference --------------------------------------------------------------------


def test_the_reference_has_every_command_and_option():
    page = reference.markdown()
    for verb in VERBS:
        section = page.partition(f"\n## tb {verb}\n")[2].partition("\n## ")[0]
        flags = [flag for option in completion.options(verb) for flag in option.flags]
        missing = [flag for flag in flags if flag not in section and flag not in page.partition("## In every")[2]]
        assert not missing, verb
        assert "```" in section


def test_the_reference_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "tensorbytes.cli.reference"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("# The command line\n")


def test_the_commands_are_installed():
    folder = os.path.dirname(sys.executable)
    for name in ("tb", "tensorbytes"):
        path = os.path.join(folder, name)
        if not os.path.exists(path):
            pytest.skip("not installed as a package")
        done = subprocess.run([path, "doctor", "--json"], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["self_test"] == "passed"
