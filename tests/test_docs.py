"""Every example in the documentation runs, and prints what the page says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import tensorbytes as tb
from tensorbytes import formats

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```(?:\n+```\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for code, shown in BLOCK.findall(page.read_text()):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, page.name, "exec"), scope)
        assert not shown or out.getvalue() == shown


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_readme_lists_every_format():
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(formats.BUILTIN)


def test_docstring_examples():
    import doctest

    from tensorbytes import api

    found = doctest.testmod(api)
    assert found.attempted
    assert not found.failed


def test_the_version_is_one():
    import tomllib

    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == tb.__version__


def test_the_demo_runs_and_verifies(capfd):
    import runpy

    runpy.run_path(str(ROOT / "examples" / "translation_predictions.py"), run_name="__main__")
    out = capfd.readouterr().out
    assert out.count(" equal ") == 4
    assert "CorruptError: predictions.tb: the checksum of a record's data differs" in out
