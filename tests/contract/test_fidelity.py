"""docs/fidelity.md is what its generator measures, as far as this library goes; peers are not run again."""

import pytest

from tensorbytes import formats, frameworks, testing
from tensorbytes.testing import Outcome
from tests.support import ROOT, fidelity, keeping, presence

PAGE = ROOT / "docs" / "fidelity.md"
STALE = "docs/fidelity.md is out of date: run `make fidelity`"


@pytest.fixture(scope="module")
def committed():
    return fidelity.parse(PAGE.read_text())


def test_nothing_is_lost_by_this_library(committed):
    rows = committed["Summary"]
    for name in fidelity.WRITTEN:
        assert name in rows, STALE
        assert (rows[name]["LOST"], rows[name]["unreadable"], rows[name]["crash"]) == ("0", "0", "0")
        for title, table in committed.items():
            if title != "Summary":
                assert not any("LOST" in cells[name] for cells in table.values())


def test_what_is_missing_stays_missing(committed):
    table = committed[presence.TITLE]
    for label, outcomes in presence.measure(formats.writable()).items():
        assert {name: fidelity.cell([made]) for name, made in outcomes.items()} == table[label], STALE
        assert {made.verdict for made in outcomes.values()} <= {"exact", "refused"}
        assert {name for name, made in outcomes.items() if made.verdict == "exact"} >= {"arrow", "parquet", "tb", "npz"}


def test_ties_and_metadata_are_kept_or_told(committed):
    for title, rows in keeping.measure(tuple(formats.writable())).items():
        for label, outcomes in rows.items():
            cells = {name: fidelity.cell([made]) for name, made in outcomes.items()}
            assert cells == committed[title][label], STALE
            assert {made.verdict for made in outcomes.values()} <= {"exact", "told", "refused"}
            keeps = {name for name in outcomes if formats.get(name).ties}
            if title == keeping.METADATA:
                assert {name for name, made in outcomes.items() if made.verdict == "exact"} >= {"tb", "npz", "arrow"}
            elif "overlap" in label:
                assert {outcomes[name].verdict for name in keeps} == {"told"}
            else:
                assert {outcomes[name].verdict for name in keeps - {"safetensors"}} == {"exact"}


ONE_IN = 25  # of all cases, before each commit


@pytest.mark.parametrize("format", fidelity.WRITTEN)
def test_the_contract_holds_for_some_cases(format):
    """Other cases for each format, so that all formats together see most of them."""
    testing.check_cases(fidelity.all_cases()[fidelity.WRITTEN.index(format) :: ONE_IN], format)


@pytest.mark.deep
@pytest.mark.parametrize("format", fidelity.WRITTEN)
def test_the_contract_holds_and_the_page_says_so(committed, format):
    cases = fidelity.all_cases()
    outcomes = testing.check_cases(cases, format)  # raises where the contract does not hold
    results = {case.id: outcome for case, outcome in zip(cases, outcomes, strict=True)}
    measured = fidelity.parse(fidelity.render({format: results}, cases))
    assert committed.keys() == measured.keys(), STALE
    for title, table in measured.items():
        if title != "Summary":
            assert committed[title].keys() == table.keys(), STALE
        for label, cells in table.items():
            was = {column: committed[title][label][column] for column in cells}
            assert was == cells, f"{title}: {label}: {STALE}"


def test_every_case_is_in_some_row():
    for name in frameworks.BUILTIN:
        for case in testing.cases(name):
            rows = fidelity.places(case).keys()
            assert rows
            assert rows <= fidelity.TITLES.keys()


def test_cells_put_the_worst_first():
    exact, refused, lost = Outcome("exact"), Outcome("refused", "TypeError"), Outcome("LOST", "bits, shape")
    assert fidelity.cell([exact, exact]) == "exact"
    assert fidelity.cell([exact, refused, exact]) == "refused 1, exact 2"
    assert fidelity.cell([exact, lost]) == "**LOST 1** (bits, shape), exact 1"
    assert fidelity.cell([]) == "-"


def test_a_peer_that_changes_a_tensor_is_found_out():
    case = next(case for case in testing.cases("numpy", "float32") if case.layout == "4-d")

    def verdict(dumps, loads=lambda data, _: data):
        return fidelity.peer_outcome(fidelity.Peer("some", ("numpy",), dumps, loads), case)

    assert verdict(lambda x: x) == Outcome("exact")
    assert verdict(lambda x: x[..., ::-1]) == Outcome("LOST", "bits")
    assert verdict(lambda x: x.view("i4")) == Outcome("LOST", "dtype")
    assert verdict(lambda x: x[0]).detail.startswith("shape")
    assert verdict(lambda x: x.tolist()) == Outcome("LOST", "becomes list")
    assert verdict(lambda x: 1 / 0) == Outcome("refused", "ZeroDivisionError")
    assert verdict(lambda x: x, lambda data, _: 1 / 0) == Outcome("unreadable", "ZeroDivisionError")


def test_a_process_that_dies_costs_one_case(monkeypatch):
    """The parent goes on with the case after the one at hand."""
    cases = testing.cases("numpy", "float32")[:3]
    calls = []

    class Dying:
        returncode = -11

        def __init__(self, command, **_):
            start = int(command[-1])
            calls.append(start)
            line = f'["{cases[start].id}", "exact", ""]\n'
            self.stdout = [line] if start != 1 else []

        def wait(self):
            return self.returncode

    monkeypatch.setattr(fidelity.subprocess, "Popen", Dying)
    monkeypatch.setitem(fidelity.PEERS, "some", lambda: fidelity.Peer("some", ("numpy",), None, None))
    found = fidelity.measure_peer("some", cases)
    assert [made.verdict for made in found.values()] == ["exact", "crash", "exact"]
    assert calls == [0, 2]
