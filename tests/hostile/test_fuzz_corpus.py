"""The fuzzers' corpora, and all that ever failed, once more without a fuzzer; and that a fault would be found."""

import json
import subprocess
import sys
import time

import pytest

from tensorbytes.errors import CorruptError
from tests.support import ROOT

pytest.importorskip("pyarrow")  # two of the parsers stand on it

from safety.fuzz import corpora
from safety.fuzz.kernel.build import TARGETS as KERNEL_TARGETS
from safety.fuzz.parsers import mutation, run
from safety.fuzz.parsers.harness import Target, Unsound, runner
from safety.fuzz.parsers.instrumented import others
from safety.fuzz.parsers.targets import TARGETS

CORPORA = [*TARGETS, *(f"kernel-{name}" for name in KERNEL_TARGETS)]


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_kept_is_read_or_refused(name):
    target = TARGETS[name]
    once = runner(target)
    for place, data in corpora.kept(name):
        try:
            once(data)
        except Exception as error:
            raise AssertionError(f"{place}: {type(error).__name__}: {error}; the input is {data.hex()}") from error


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_sound_and_sealed(name):
    target = TARGETS[name]
    seeds = list(target.seeds())
    accepted = [runner(target)(data) for data in seeds]
    assert sum(accepted) > len(seeds) // 8
    if target.seal is not None:
        assert all(target.seal(data) == data for data in seeds)


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_are_read_or_refused(name):
    target = TARGETS[name]
    once, make = runner(target), mutation.mutations(target, list(target.seeds()), seed=1)
    verdicts = [once(make()) for _ in range(60)]
    assert len(verdicts) == 60


def test_corpora_are_small_and_of_known_targets():
    sizes = {name: [len(data) for _, data in corpora.kept(name)] for name in TARGETS}
    assert all(sum(found) < 20_000 for found in sizes.values())
    assert sum(map(sum, sizes.values())) < 400_000
    assert all(found for found in sizes.values())
    assert {path.name for path in corpora.CORPUS.iterdir()} == {f"{name}.tfrecord" for name in CORPORA}


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_is_packed_as_it_would_be_written(name, tmp_path, monkeypatch):
    inputs, there = corpora.read(name), (corpora.CORPUS / f"{name}.tfrecord").read_bytes()
    assert inputs
    assert inputs == corpora.ordered(inputs)
    monkeypatch.setattr(corpora, "CORPUS", tmp_path)
    corpora.write(name, inputs[::-1] + inputs)
    assert (tmp_path / f"{name}.tfrecord").read_bytes() == there


def test_packing_depends_on_the_inputs_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora, "CORPUS", tmp_path)
    assert corpora.read("new") == []
    written = []
    for inputs in ([b"b", b"aa", b"", b"a"], [b"", b"aa", b"a", b"b", b"aa", b""]):
        corpora.write("new", inputs)
        written.append((tmp_path / "new.tfrecord").read_bytes())
    assert written[0] == written[1]
    assert corpora.read("new") == [b"", b"a", b"b", b"aa"]
    paths = corpora.unpack(corpora.read("new"), tmp_path / "files")
    assert [path.read_bytes() for path in paths] == [b"", b"a", b"b", b"aa"]
    assert sorted(paths) == sorted((tmp_path / "files").iterdir())


def test_an_input_that_fails_is_named(monkeypatch):
    def fail(data):
        raise KeyError("x")

    monkeypatch.setitem(TARGETS, "json", planted(fail))
    data = corpora.read("json")[0].hex()
    with pytest.raises(AssertionError, match=rf"corpus/json\.tfrecord, record 0: KeyError: 'x'; the input is {data}$"):
        test_what_is_kept_is_read_or_refused("json")


def test_every_target_has_modules_that_are_instrumented():
    everything = others("json") | {"tensorbytes.formats._json"}
    assert all(others(name) < everything for name in TARGETS)


def planted(run, **more):
    return Target("planted", "planted", run, lambda: [b"seed"], **more)


@pytest.mark.parametrize("error", [KeyError("x"), MemoryError(), RecursionError(), OverflowError(), Unsound("x")])
def test_a_planted_fault_is_found(error, tmp_path):
    def run(data):
        if len(data) > 4:
            raise error

    with pytest.raises(type(error)):
        runner(planted(run))(b"longer")
    with pytest.raises(type(error)):
        mutation.volume(planted(run), [b"seed"], 20, 1, tmp_path)
    (found,) = tmp_path.iterdir()
    assert len(found.read_bytes()) > 4


def test_an_offset_beyond_the_bytes_is_found():
    def run(data):
        raise CorruptError("x", at=len(data) + 1)

    with pytest.raises(Unsound, match="an offset of 2 in 1 bytes"):
        runner(planted(run))(b"x")
    assert runner(planted(run, offsets=False))(b"x") is False


def test_a_refusal_is_no_finding():
    def run(data):
        raise CorruptError("x", at=0)

    assert runner(planted(run))(b"x") is False
    assert runner(planted(lambda data: None))(b"x") is True


def test_a_run_counts_what_it_did_and_says_what_it_found(tmp_path, capsys):
    work, results = tmp_path / "work", tmp_path / "results.json"
    campaign = run.Campaign(["json", "raw"], work, results, slice_seconds=1, share=0.5)
    for name, text, status in (("json", "", 0), ("raw", "KeyError: 'x'\n", 77)):
        folder = work / name
        (folder / "artifacts").mkdir(parents=True)
        (folder / "log").write_text(f"#8\tNEW cov: 12 ft: 34 corp: 1\n{text}stat::number_of_executed_units: 1000\n")
        process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"])
        process.wait()
        if status:
            (folder / "artifacts/crash-1").write_bytes(b"x")
        campaign.end(run.Child(TARGETS[name], "coverage_guided", process, folder / "log", time.monotonic(), 1))
    row = json.loads(results.read_text())["targets"]["json"]
    assert (row["coverage_guided"]["executions"], row["edges"], row["features"]) == (1000, 12, 34)
    (found,) = campaign.found
    assert found.startswith("raw: KeyError: 'x' (")
    assert campaign.next_name(set()) == "json"  # raw waits until somebody looks at it
    assert "FOUND: KeyError" in capsys.readouterr().out


def test_a_short_run_under_libfuzzer(tmp_path):
    pytest.importorskip("atheris")
    command = ["-m", "safety.fuzz.parsers", "--seconds", "2", "--only", "json", "--jobs", "1"]
    folders = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "results.json")]
    done = subprocess.run([sys.executable, *command, *folders], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads((tmp_path / "results.json").read_text())["targets"]["json"]
    assert row["coverage_guided"]["executions"] > 0
    assert row["edges"] > 5
