"""Formats and frameworks of other packages: the example is found by its entry points, and keeps the contract."""

import json
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

import tensorbytes as tb
from tensorbytes import codecs, formats, frameworks

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"
ROWS = [{"id": 1, "words": ["a", "b"], "score": 0.5}, {"id": 2, "words": [], "score": None}]


@pytest.fixture
def installed(tmp_path):
    """The environment of a Python in which the example is installed: its modules, and what pip notes of them."""
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    notes = tmp_path / "site" / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    notes.mkdir(parents=True)
    (notes / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (notes / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    paths = [str(notes.parent), str(PLUGIN), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run(code, environment, folder):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=environment, cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_functions_find_it(installed, tmp_path):
    code = """
        import array, json, sys
        import numpy as np, tensorbytes as tb
        assert tb.load("x.jsonl")["id"].tolist() == [1, 2]
        with tb.open("x.jsonl") as file:
            assert file.keys() == ["id", "words", "score", "score/mask0"]
        for name in ("x.tb", "x.tfrecord"):
            assert tb.convert("x.jsonl", name, verify=True).lossless
            assert tb.convert(name, "again.jsonl", verify=True).lossless
            rows = [json.loads(line) for line in open("again.jsonl")]
            assert [row["words"] for row in rows] == [["a", "b"], []] and "score" not in rows[1]
        numbers = array.array("h", [3, -4])
        assert tb.loads(tb.dumps(numbers), to="original") == numbers
        assert tb.loads(tb.dumps(np.array([1.5])), to="array") == array.array("d", [1.5])
        try:
            tb.convert("x.jsonl", "x.parquet")
        except tb.errors.LossError as error:
            assert error.feature == "missing"
        tb.save({"x": np.ones(2, np.float32)}, "f.npz")
        try:
            tb.convert("f.npz", "f.jsonl", unstack=0)
        except tb.errors.LossError as error:
            print(error.feature)
    """
    assert run(code, installed, tmp_path) == "column\n"


def test_every_table_of_it_has_the_same_columns(installed, tmp_path):
    """The first rows don't tell all: a column may come late, a number be a fraction further on."""
    code = """
        import json
        import tensorbytes as tb
        with open("long.jsonl", "w") as file:
            for n in range(10_000):
                print(json.dumps({"n": n if n < 9_000 else n + 0.5} | ({"late": [n]} if n > 9_990 else {})), file=file)
        found = tb.load("long.jsonl")
        assert found["n"][8_999:9_001].tolist() == [8999.0, 9000.5]
        assert [row.tolist() for row in found["late"].rows()[-2:]] == [[9998], [9999]]
        assert tb.convert("long.jsonl", "long.tb", verify=True).rows == 10_000
        print(tb.diff("long.tb", "long.jsonl").identical)
    """
    assert run(code, installed, tmp_path) == "True\n"


def test_a_package_that_fails_keeps_nobody_from_their_files(installed, tmp_path):
    (tmp_path / "site" / "tensorbytes_broken.py").write_text("raise OSError('no such library')")
    points = next((tmp_path / "site").glob("*.dist-info")) / "entry_points.txt"
    points.write_text(
        "[tensorbytes.formats]\nbroken = tensorbytes_broken\njsonl = tensorbytes_jsonl\n"
        "[tensorbytes.frameworks]\nbroken = tensorbytes_broken\nbare = json\n"
    )
    code = """
        import decimal, warnings
        import tensorbytes as tb
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert tb.load("x.jsonl")["id"].tolist() == [1, 2]
            try:
                tb.dumps(decimal.Decimal(1))
            except tb.errors.UnsupportedError:
                pass
        for one in caught:
            print(one.category.__name__, str(one.message).rpartition("since ")[2])
    """
    assert run(code, installed, tmp_path).splitlines() == [
        "PluginWarning tensorbytes_broken fails: OSError: no such library",
        "PluginWarning tensorbytes_broken fails: OSError: no such library",
        "PluginWarning json fails: AttributeError: module 'json' has no attribute 'PACKAGES'",
    ]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("", "has no object FORMAT that is a Format"),
        ("FORMAT = 5", "has no object FORMAT that is a Format"),
        ("from tensorbytes.formats.npy import FORMAT", "does not have the format 'broken'"),
    ],
)
def test_a_module_without_the_format_keeps_nobody_from_their_files(installed, tmp_path, module, words):
    (tmp_path / "site" / "tensorbytes_broken.py").write_text(module)
    points = next((tmp_path / "site").glob("*.dist-info")) / "entry_points.txt"
    points.write_text("[tensorbytes.formats]\nbroken = tensorbytes_broken\njsonl = tensorbytes_jsonl\n")
    code = """
        import warnings
        import tensorbytes as tb
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                assert tb.load("x.jsonl")["id"].tolist() == [1, 2]
        print([one.category.__name__ for one in caught], caught[0].message)
    """
    out = run(code, installed, tmp_path)
    assert out.startswith("['PluginWarning']")
    assert words in out


def test_commands_find_it(installed, tmp_path):
    def tb_(*words):
        command = [sys.executable, "-m", "tensorbytes", *words]
        return subprocess.run(command, env=installed, cwd=tmp_path, capture_output=True, text=True)

    assert "JSON Lines" in tb_("info", "x.jsonl").stdout
    assert tb_("convert", "x.jsonl", "x.tb").returncode == 0
    assert tb_("convert", "x.tb", "y.jsonl", "--to", "jsonl").returncode == 0
    assert tb_("verify", "y.jsonl").returncode == 0
    assert "row 0" in tb_("head", "y.jsonl").stdout


def test_it_keeps_the_contract(installed, tmp_path):
    """Every case of every framework comes back as it was or is refused; damage raises nothing but our errors."""
    code = """
        import random
        import tensorbytes as tb
        from tensorbytes import testing
        testing.check_format("jsonl", only=["numpy"])
        whole, draw = open("x.jsonl", "rb").read(), random.Random(1)
        tried = [whole[:end] for end in range(len(whole))]
        for at in range(len(whole)):
            tried += [whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :] for bit in range(8)]
        tried += [draw.randbytes(draw.randrange(200)) for _ in range(500)]
        for data in tried:
            try:
                tb.loads(data, "jsonl")
            except tb.errors.TensorbytesError:
                pass
        print(len(tried))
    """
    assert int(run(code, installed, tmp_path)) > 1000


def test_nothing_is_looked_for_unless_it_is_needed(installed, tmp_path):
    code = """
        import sys
        import numpy as np, tensorbytes as tb
        tb.save({"x": np.ones(2)}, "x.npz")
        tb.load("x.npz"), tb.inspect("x.npz"), tb.convert("x.npz", "x.tb")
        print([name for name in sys.modules if name.startswith("tensorbytes_")], "importlib.metadata" in sys.modules)
    """
    assert run(code, installed, tmp_path) == "[] False\n"


def test_a_name_is_taken_once():
    for table, arguments in (
        (formats, ("npz", "mine")),
        (frameworks, ("torch", "mine", ("mine",))),
        (codecs, ("zstd", "mine")),
    ):
        with pytest.raises(tb.errors.UsageError, match="already"):
            table.register(*arguments)


def test_another_version_of_the_contract_is_refused(monkeypatch, tmp_path):
    (tmp_path / "tensorbytes_old.py").write_text(
        "from tensorbytes.formats import Format\nclass Old(Format):\n    name = 'old'\n    api = 0\nFORMAT = Old()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(formats.BUILTIN, "old", formats.FormatEntry("tensorbytes_old"))
    with pytest.raises(tb.errors.UsageError, match=r"for version 1 of the contract, got 'old', for version 0"):
        formats.get("old")


@pytest.mark.parametrize("answer", ["1 / 0", "None", "'yes'", "float('nan')"])
def test_a_format_that_fails_to_look_at_a_file_keeps_nobody_from_theirs(monkeypatch, tmp_path, answer):
    name = f"odd{abs(hash(answer))}"
    (tmp_path / f"tensorbytes_{name}.py").write_text(
        "from tensorbytes.formats import Format\nclass Odd(Format):\n"
        f"    name = {name!r}\n    def sniff(self, head, size):\n        return {answer}\nFORMAT = Odd()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(formats.BUILTIN, name, formats.FormatEntry(f"tensorbytes_{name}"))
    data = tb.dumps(tb.Tensor("float32", (2,), bytes(8)), "tensorproto")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tb.loads(data).tolist() == [0, 0]
        with pytest.raises(tb.errors.TensorbytesError):
            tb.loads(b"\x01\xfe nothing that anybody knows")
    assert {one.category for one in caught} == (set() if "nan" in answer else {tb.errors.PluginWarning})
