"""All pairs of formats: every tensor of one file arrives bit for bit, or the report names it."""

import pytest

from tensorbytes import formats
from tests.support import ROOT
from tests.support.conversions import FORMATS, SINGLE, losses, matrix, row
from tests.support.tiers import deep_but

PAGE = ROOT / "docs" / "conversions.md"
STALE = "docs/conversions.md is out of date: run `make fidelity`"
COMPLETE = [name for name in FORMATS if formats.get(name).complete]


# One format of documents and the one of rows before each commit, all pairs before each release.
QUICK = ("safetensors", "tfrecord")


@pytest.mark.parametrize("source", deep_but(QUICK, FORMATS))
def test_nothing_changes_in_silence(source):
    cells = matrix([source])
    for target in FORMATS:
        cell = cells[source, target]
        assert not cell.silent, f"{source} to {target}"
        assert cell.exact or cell.lost or cell.refused
        if source in COMPLETE and target in COMPLETE:
            # Metadata of several tensors has no place in files of one.
            assert set(cell.lost) <= ({"meta"} if target in SINGLE else set())
            assert cell.exact == cell.tensors > (0 if source in SINGLE else 50)
    page = PAGE.read_text().splitlines()
    assert row(source, cells) in page, STALE
    if source == "tb":
        assert all(losses(target, cells) in page for target in FORMATS), STALE
