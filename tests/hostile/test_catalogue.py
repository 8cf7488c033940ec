"""Every case of the catalogue has its row, every test that a row names exists, and the page says what the rows say."""

import ast
from functools import cache

import pytest

from tests.support import ROOT, catalogue
from tests.support.make_reject_corpus import FOLDER, REJECT

TESTS = ROOT / "tests"
ROWS = catalogue.rows()
PAGE = ROOT / "docs" / "safety.md"


def test_every_number_has_one_row():
    assert [row.number for row in ROWS] == list(range(1, 160))
    assert all(row.title and row.answer and row.section for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_a_row_names_tests_or_says_why_there_are_none(row):
    if not row.applies:
        assert row.tests == ()
        assert len(row.answer) > len(catalogue.NOT_HERE) + 10  # the reason
        return
    assert row.tests
    for test in row.tests:
        if not test.name:
            assert (ROOT / test.file).exists(), test
            continue
        assert test.name in names_in(test.file), test
        if test.case:
            assert any(word.startswith(test.case) for word in words_of(test.file)), test


@cache
def tree_of(file):
    return ast.parse((TESTS / file).read_text())


@cache
def names_in(file):
    return {
        node.name for node in tree_of(file).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@cache
def words_of(file):
    """What the names of cases are made of: text and numbers in a file, and in those of ours that it imports."""
    found = set()
    for node in ast.walk(tree_of(file)):
        if isinstance(node, ast.Constant):
            found.add(f"{node.value}-" if type(node.value) is int else str(node.value))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            path = node.module.removeprefix("tests.").replace(".", "/") + ".py"
            found |= words_of(path) if (TESTS / path).exists() else set()
    return frozenset(found)


def test_the_check_notices_what_is_not_there():
    assert "test_no_such_thing" not in names_in("hostile/test_catalogue.py")
    assert not any(word.startswith("83 no such case") for word in words_of("unit/test_zip.py"))
    assert any(word.startswith("83 ") for word in words_of("unit/test_zip.py"))
    with pytest.raises(ValueError, match="names no test"):
        catalogue._test("test_zip::x")


def test_the_page_is_up_to_date():
    text = PAGE.read_text()
    assert catalogue.updated(text) == text, "python -m tests.support.catalogue docs/safety.md writes the tables again"


def test_the_figures_are_those_that_were_measured():
    from safety import figures

    page = "docs/safety-figures.md"
    assert (ROOT / page).read_text() == figures.page(), f"python -m safety.figures {page} writes it again"


def test_every_reject_file_says_what_is_wrong_and_is_run():
    """Files of tests/corpus/reject are read by test_golden_files.py::test_refused, under names that are words."""
    files = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*.bin"))
    assert {(str(path.parent), path.stem) for path in files} == {
        (kind, name) for kind in REJECT for name in REJECT[kind]
    }
    for path in files:
        words = path.stem.split("-")
        assert len(words) > 1 or path.stem == "resource", path
        assert all(word.isalnum() for word in words), path
    assert "test_refused" in names_in("formats/test_golden_files.py")
