"""tb bench."""

import os
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tests.support.cli_cases import in_terminal, inside, interrupted, piped

QUICK = ["--rounds", "0", "--seconds", "0", "--formats", "tb,npz,npy"]


@pytest.fixture
def model(tmp_path):
    tb.save({"w": np.zeros((50, 50), np.float32), "ids": np.arange(1000)}, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def test_a_file(model, capsys):
    ran = inside(capsys, "bench", model, *QUICK, "--compressions", "none,zstd", "--goal", "size", "--json")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    assert ran.item["source"] == str(model)
    assert ran.item["recommendations"]["size"]["compression"] == "zstd"
    assert {row["format"] for row in ran.item["rows"]} == {"tb", "npz", "npy"}


def test_in_words(model, capsys):
    ran = inside(capsys, "bench", model, *QUICK, "--compressions", "none,zstd", "--goal", "size")
    assert ran.lines[0].startswith(f"{model}: 2 tensors")
    assert "size: tb with zstd" in ran.out
    assert f"  tb convert {model} OUT --to tb --compression zstd" in ran.lines
    head = next(line for line in ran.lines if line.startswith("choice"))
    assert head.split() == [
        "choice",
        "size",
        "of",
        "raw",
        "write",
        "read",
        "slice",
        "mmap",
        "exact",
        "checks",
        "read",
        "by",
    ]
    assert "can't hold this:" in ran.lines


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "complex64", "float8_e4m3fn", "uint64"])
def test_made_up_data(dtype, capsys):
    ran = inside(capsys, "bench", *QUICK, "--shape", "16x8", "--dtype", dtype, "--json")
    assert ran.code == 0, ran.err
    assert ran.item["source"] == "made-up data"
    assert ran.item["description"] == f"{dtype}[16, 8]"


def test_charts(model, tmp_path, capsys):
    ran = inside(capsys, "bench", model, *QUICK, "--chart", tmp_path / "b.svg")
    assert ran.code == 0, ran.err
    assert (tmp_path / "b.svg").read_text().startswith("<svg")
    for chart, words in [("b.svg", "exists already"), ("b.gif", ".svg or a .png"), ("no/b.svg", "no such folder")]:
        ran = inside(capsys, "bench", model, *QUICK, "--chart", tmp_path / chart)
        assert ran.code == 2
        assert words in ran.err


def test_what_can_not_be(model, capsys):
    for arguments, words in [
        ([model, "--shape", "2x2"], "leave out the file"),
        (["--dtype", "float33"], "unknown dtype 'float33'"),
        (["--shape", "big"], "such as 1024x1024"),
        ([model, "--formats", "hdf5"], "unknown format 'hdf5'"),
        ([model, "--goal", "cheap"], "invalid choice"),
        (["none.tb"], "no such file"),
    ]:
        ran = inside(capsys, "bench", *arguments)
        assert ran.code == 2, arguments
        assert words in ran.err, ran.err


def test_in_a_terminal_columns_fit_and_in_a_pipe_is_json(model):
    for columns, titles in ((80, 7), (120, 10)):
        ran = in_terminal("bench", model.name, *QUICK, "-q", columns=columns, cwd=model.parent)
        assert ran.code == 0
        head = next(line for line in ran.lines if line.startswith("choice"))
        assert len(head.replace("of raw", "ratio").replace("read by", "readers").split()) >= titles
        assert max(map(len, ran.lines)) <= columns
    ran = in_terminal("bench", model.name, *QUICK, cwd=model.parent)
    assert "bench: trying 1 of" in ran.plain
    assert piped("bench", model, *QUICK, "--json").item["goal"] == "balanced"


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_an_interrupt_leaves_no_folder(tmp_path):
    ran = interrupted("bench", "--folder", tmp_path, after=lambda process: os.listdir(tmp_path))
    assert ran.code == 130
    assert os.listdir(tmp_path) == []
