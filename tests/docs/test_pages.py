"""Every example in the documentation runs, and prints what the page says; every link leads somewhere."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache

import pytest

import tensorbytes as tb
from tests.support import documentation, format_tables
from tests.support.documentation import PAGES, ROOT, examples, prose

LINKED = [
    *PAGES,
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "spec").rglob("*.md")),
]
OPTIONAL = {
    "fsspec", "gguf", "grpc_tools", "jax", "msgpack", "msgpack_numpy", "onnx", "pandas", "polars", "pyarrow",
    "safetensors", "scipy", "tensorflow", "tfrecord", "torch",
}  # fmt: skip
API_PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))


def named(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [page for page in PAGES if list(examples(page))], ids=named)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page.name in documentation.ALONE:
        if not importlib.util.find_spec(documentation.ALONE[page.name]):
            pytest.skip(f"{named(page)} needs {documentation.ALONE[page.name]}")
        command = [sys.executable, "-m", documentation.__name__, str(page)]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
        assert done.returncode == 0, done.stderr
        return
    try:
        documentation.run(page)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{named(page)} needs {error.name}")
    except tb.errors.MissingDependencyError as error:
        pytest.skip(str(error))


@cache
def anchors(page):
    """What can be linked to in a page, as GitHub and as MkDocs call it: only what both agree on is safe."""
    titles = [re.sub(r"[`*]", "", title).strip() for title in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)]
    github = {re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in titles}
    mkdocs = {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}
    return github & mkdocs


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_links_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(page)):
        if target.startswith("http"):
            continue
        path = page.parent / target if target else page
        assert path.exists(), target
        assert ROOT in path.resolve().parents, f"{target} is not in the repository"
        assert not anchor or anchor in anchors(path.resolve()), f"{target}#{anchor}"


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_nothing_is_taken_for_html(page):
    """Words such as map<string> vanish from a page unless they are code."""
    plain = re.sub(r"`[^`\n]+`|<!--.*?-->", "", prose(page), flags=re.DOTALL)
    assert re.findall(r"<[a-zA-Z/][^>\n]*>", plain) == []


@pytest.mark.parametrize(("page", "tables"), [("README.md", 1), ("docs/formats.md", 2)])
def test_the_tables_of_formats_are_what_formats_say_and_do(page, tables):
    text = (ROOT / page).read_text()
    assert text.count(": written by `make fidelity` -->") == tables
    assert format_tables.updated(text) == text, "make fidelity writes the tables again"


def test_the_page_about_the_command_line_has_every_command():
    from tensorbytes.cli.verbs import VERBS

    listed = re.findall(r"^\| `tb (\w+)", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(VERBS)


def test_the_reference_has_every_public_name():
    text = "\n".join(page.read_text() for page in API_PAGES)
    listed = set(re.findall(r"^::: tensorbytes\.(\w+)$|`tensorbytes\.(\w+)`", text, re.MULTILINE))
    assert set(tb.__all__) - {name for pair in listed for name in pair} == set()


@pytest.mark.parametrize("page", API_PAGES, ids=named)
def test_the_reference_names_what_exists(page):
    for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE):
        module, _, attribute = name.rpartition(".")
        assert getattr(importlib.import_module(module), attribute).__doc__, name


def test_the_site_has_every_page_once():
    """Without MkDocs, which checks the rest: the names in mkdocs.yml are the pages that there are."""
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    listed = re.findall(r"[\w./-]+\.md", navigation)
    assert len(listed) == len(set(listed))
    for name in listed:
        assert (ROOT / "docs" / name).exists() or (ROOT / name).exists(), name
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]} <= set(listed)


@pytest.mark.deep  # `make docs` builds it, too
def test_the_site_builds(tmp_path):
    """With MkDocs, where it is installed: no warnings, and nothing fetched from elsewhere."""
    pytest.importorskip("mkdocs", reason="the dependency group docs is not installed")
    pytest.importorskip("mkdocstrings", reason="the dependency group docs is not installed")
    if not tb.ACCELERATED:
        pytest.skip("once is enough")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        assets = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="((?:https?:)?//[^"]*)"', page.read_text())
        assert not assets, f"{page.name} fetches {assets}"
    assert (tmp_path / "spec" / "frame.html").exists()


def test_the_fifteen_snippets_are_all_there():
    page = ROOT / "docs" / "cookbook" / "snippets.md"
    sections = re.split(r"^## (\d+)\. ", page.read_text(), flags=re.MULTILINE)[1:]
    assert sections[::2] == [str(number) for number in range(1, 16)]
    for section in sections[1::2]:
        assert re.search(r"^```(py|proto)\n", section, re.MULTILINE), section  # what people write
        assert re.search(r"^\*\*(Works|Works only|Runs|Fails|Does not compile)\*\*", section, re.MULTILINE), section
        assert "```python\n" in section  # what works


def test_every_decision_is_listed():
    listed = re.findall(r"\]\(\.\./spec/decisions/([\w.-]+)\)", (ROOT / "docs" / "decisions.md").read_text())
    assert listed == sorted(path.name for path in (ROOT / "spec" / "decisions").glob("*.md"))


def test_the_benchmark_page_is_that_of_the_results(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks import report

    results = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    assert (ROOT / "docs" / "benchmarks.md").read_text() == report.markdown(results, "../benchmarks/chart.png")


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
    from tensorbytes.cli import main

    assert main(["demo"]) == 0
    out = capfd.readouterr().out
    assert out.count(" equal ") == 4
    assert "CorruptError: predictions.tb: the checksum of a record's data differs" in out
