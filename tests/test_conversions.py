"""All pairs of formats: every tensor of one file arrives bit for bit, or the report names it."""

from pathlib import Path

import pytest

from conversions import FORMATS, SINGLE, matrix, page
from tensorbytes import formats
from tensorbytes.tools.sources import TFRECORD

PAGE = Path(__file__).parents[1] / "docs" / "conversions.md"
COMPLETE = [name for name in FORMATS if name != TFRECORD and formats.get(name).complete]


@pytest.fixture(scope="session")
def cells():
    return matrix()


@pytest.mark.parametrize("source", FORMATS)
def test_nothing_changes_in_silence(cells, source):
    for format in FORMATS:
        cell = cells[source, format]
        assert not cell.silent, f"{source} to {format}"
        assert cell.exact or cell.lost or cell.refused


@pytest.mark.parametrize("target", COMPLETE)
def test_complete_formats_lose_nothing(cells, target):
    for source in COMPLETE:
        cell = cells[source, target]
        assert not cell.refused
        assert set(cell.lost) <= ({"meta"} if target in SINGLE else set())  # of the whole, in a file of one tensor
        if source not in SINGLE:
            assert cell.exact == cells["tb", "tb"].exact


def test_the_page_is_current(cells):
    assert PAGE.read_text() == page(cells)
