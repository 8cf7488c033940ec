"""Our verdicts beside those of the real libraries: a short run of `python -m safety.fuzz.differential`, every listed
divergence tried on its library, and every input that once was a finding."""

import importlib
import sys

import pytest

from tests.support import ROOT

for package in ("google.protobuf", "safetensors", "hypothesis"):
    pytest.importorskip(package)
if sys.platform == "win32":
    pytest.skip("readers run in forked processes", allow_module_level=True)

divergences = importlib.import_module("safety.fuzz.differential.divergences")
listing = importlib.import_module("safety.fuzz.differential.listing")
pair = importlib.import_module("safety.fuzz.differential.pair")
run = importlib.import_module("safety.fuzz.differential.run")
protobytes = importlib.import_module("safety.fuzz.differential.protobytes")

PAGE = ROOT / "docs" / "safety.md"
# How many cases a second or so takes; TensorFlow and torch take longer to start than all of these.
CASES = {
    "safetensors": 800, "npy": 800, "npz": 400, "upb-tensorproto": 800, "upb-example": 500, "upb-sequence": 300,
    "upb-sparse": 400, "arrow": 300, "arrowtensor": 300, "parquet": 200, "onnx-tensor": 300, "onnx-model": 150,
    "gguf": 100,
}  # fmt: skip
FAST = [name for name in pair.PAIRS if name in CASES]
MODULES = {"tensorflow-cpu": "tensorflow", "protobuf": "google.protobuf"}


def needs(name):
    package = pair.get(name).package
    pytest.importorskip(MODULES.get(package, package))


def told(case):
    return f"{case.verdict.kind}: {case.raw.hex()}\nours: {str(case.ours)[:300]}\ntheirs: {str(case.theirs)[:300]}"


@pytest.mark.parametrize("name", FAST)
@pytest.mark.deep
def test_a_short_run_finds_nothing_that_is_not_listed(name):
    needs(name)
    tally = run.run(name, seed=1, first=0, seconds=60, most=CASES[name])
    assert not tally.findings, told(tally.findings[0])
    assert tally.kinds["both_read"] > 0
    assert tally.kinds["both_refused"] > 0


def listed(name):
    return [row for row in divergences.DIVERGENCES if name in row.pairs[:1]]


@pytest.mark.parametrize("name", [name for name in pair.PAIRS if listed(name)])
def test_each_listed_divergence_is_one(name):
    """Pairs that share a row are tried on the first of them; the long runs have the others."""
    needs(name)
    rows = listed(name)
    for row, case in zip(rows, run.judged(name, [row.example for row in rows], here=True), strict=True):
        assert case.verdict.listed is row, f"{row.input}\n{told(case)}"


REGRESSIONS = sorted(path for name in pair.PAIRS for path in (run.REGRESSIONS / name).glob("*"))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_was_a_finding(path):
    needs(path.parent.name)
    raw = path.read_bytes()
    if path.name.startswith("crashes-theirs"):
        chosen = pair.get(path.parent.name)
        _, Refused, _ = outcomes()
        try:
            found = importlib.import_module("safety.fuzz.differential.outcome").of_ours(chosen.ours, raw)
        finally:
            chosen.close()
        assert isinstance(found, Refused), found
        return
    (case,) = run.judged(path.parent.name, [raw], here=True)
    assert not case.verdict.is_finding, told(case)


def test_the_table_in_the_documentation_is_that_of_the_code():
    text = PAGE.read_text() if PAGE.exists() else ""
    if "<!-- divergences -->" not in text:
        pytest.skip("docs/safety.md has no place for the table")
    there = text.split("<!-- divergences -->")[1].split("<!-- /divergences -->")[0].strip()
    assert there == listing.table(), "python -m safety.fuzz.differential --table makes it"


# ---- the search itself ------------------------------------------------------


@pytest.mark.parametrize("name", ["safetensors", "npy", "npz", "upb-tensorproto", "upb-example", "upb-sparse"])
def test_inputs_follow_from_the_seed_alone(name):
    one, other = pair.get(name), pair.get(name)
    assert run.inputs(one, 5, 10, 20) == run.inputs(other, 5, 10, 20) == run.inputs(one, 5, 0, 30)[10:]
    assert run.inputs(one, 5, 0, 20) != run.inputs(one, 6, 0, 20)


def test_messages_are_written_as_they_were_read():
    cases = pair.get("upb-sequence"), pair.get("upb-tensorproto")
    for chosen, schema in zip(cases, (protobytes.SEQUENCE, protobytes.TENSOR), strict=True):
        same = 0
        for raw in run.inputs(chosen, 0, 0, 300):
            try:
                again = protobytes.write(protobytes.parse(raw, schema))
            except ValueError:
                continue
            same += again == raw
            assert len(again) <= len(raw)
            assert protobytes.write(protobytes.parse(again, schema)) == again
        assert same > 100


def outcomes():
    module = importlib.import_module("safety.fuzz.differential.outcome")
    return module.Read, module.Refused, module.Failed


def test_verdicts():
    Read, Refused, Failed = outcomes()
    a, b, no, died = Read(1), Read(2), Refused("no such words"), Failed("SIGSEGV")
    verdicts = {
        (a, a): ("both_read", False), (no, no): ("both_refused", False), (a, b): ("other_values", True),
        (a, no): ("ours_only", True), (no, a): ("theirs_only", True), (a, died): ("peer_faults", False),
        (died, a): ("our_faults", True), (died, died): ("our_faults", True),
    }  # fmt: skip
    for (ours, theirs), (kind, finding) in verdicts.items():
        found = listing.compare("safetensors", b"", ours, theirs)
        assert (found.kind, found.is_finding) == (kind, finding)


class Dying(pair.Pair):
    """Reads a byte, and dies of some of them."""

    name = "dying"
    package = "numpy"
    remote = True

    def ours(self, raw):
        return raw[0]

    def theirs(self, raw):
        import os
        import signal

        if raw[0] in (3, 4):
            os.kill(os.getpid(), signal.SIGSEGV)
        if raw[0] == 6:
            os._exit(7)
        return raw[0]


def test_a_reader_that_dies_costs_one_case(monkeypatch):
    Read, _, Failed = outcomes()
    peer = importlib.import_module("safety.fuzz.differential.peer")
    code = (
        "import tests.hostile.test_differential as t\n"
        "from safety.fuzz.differential import peer; peer.get = lambda name: t.Dying(); peer.main('dying', 'theirs')"
    )
    started = peer.Peer("dying")
    started._command = [sys.executable, "-c", code]
    try:
        started.send([bytes([n]) for n in range(8)])
        answers = started.receive()
        started.send([b"\1"])
        assert started.receive() == [Read(1)]
    finally:
        started.close()
    died = [n for n, answer in enumerate(answers) if isinstance(answer, Failed)]
    assert died == [3, 4, 6]
    assert started.restarts == 3
    assert answers[3].words.startswith("SIGSEGV")
    assert answers[6].words.startswith("exit status 7")
    assert [answer.value for n, answer in enumerate(answers) if n not in died] == [0, 1, 2, 5, 7]
