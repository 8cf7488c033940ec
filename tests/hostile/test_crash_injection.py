"""Writers killed, starved and cut off from power at their system calls; safety/crashes has all of it.

A library that is compiled here and preloaded makes the calls fail, or ends the process, where it is told to.
`python -m safety.crashes` runs every scenario with every fault; here is one of each sort.
"""

import re
import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.support.tiers import deep_but

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="system calls of Linux")
if not (ROOT / "safety" / "crashes").is_dir():
    pytest.skip("the folder safety is not here", allow_module_level=True)

from safety.crashes import faults, model  # noqa: E402


def sweep(*words):
    """Run a sweep: (its exit code, what it printed, the points it ran)."""
    if faults.compiler() is None:
        pytest.skip("no C compiler")
    command = [sys.executable, "-m", "safety.crashes", "--jobs", "1", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    points = sum(map(int, re.findall(r"\| (\d+) points", ran.stdout)))
    return ran.returncode, ran.stdout, points


@pytest.mark.timeout(1200)  # seconds, where nothing else runs
@pytest.mark.parametrize("every", deep_but([60], [60, 5]))
def test_faults_at_calls_of_each_writer(every):
    """Old or new, never a mix; what was acknowledged is there; nothing is left behind; no other exception."""
    code, told, points = sweep("--core", "--what", "faults", "--few", "--every", str(every))
    assert code == 0, told
    assert points > 1250 // every


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("every", deep_but([100], [100, 10]))
def test_power_cuts_of_a_modelled_disk(every):
    code, told, points = sweep("--core", "--what", "model", "--every", str(every))
    assert code == 0, told
    assert points > 1000 // every


@pytest.mark.timeout(1200)
@pytest.mark.deep
@pytest.mark.parametrize("every", [3])
def test_159_two_processes_of_which_one_is_killed(every):
    """Appender beside appender, saver and reader: nothing lost, nothing mixed, and the dead hold nobody up."""
    if faults.compiler() is None:
        pytest.skip("no C compiler")
    command = [sys.executable, "-m", "safety.crashes.pairs", "--dry", "--every", str(every)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert int(ran.stdout.split()[0]) > 300 // every


@pytest.mark.parametrize(
    ("name", "what", "words"),
    [
        pytest.param("written in place", "faults", "neither old nor new", marks=pytest.mark.deep),
        ("renamed unsynced", "model", "neither old nor new"),
        pytest.param("acknowledged too early", "faults", "acknowledged", marks=pytest.mark.deep),
    ],
)
def test_writers_that_are_wrong_are_found_out(name, what, words):
    code, told, points = sweep("--controls", "--scenario", name, "--what", what, "--few")
    assert code == 1
    assert "VIOLATION" in told
    assert words in told
    assert points > 3


@pytest.mark.deep
def test_a_reproducing_command_is_printed():
    told = sweep("--controls", "--scenario", "written in place", "--what", "faults", "--few")[1]
    point = re.search(r"--scenario 'written in place' --point '([^']+)'", told)
    assert point is not None
    code, told, points = sweep("--controls", "--scenario", "written in place", "--what", "faults", "--point", point[1])
    assert code == 1
    assert points == 1


def test_the_modelled_disk():
    """Data are safe once synced, names once their folder is; all else may be there or not."""
    disk = model.Disk({"x": b"old"})
    disk.replay(model.Event("create", "x.tmp", "", 0, 0, b""))
    disk.replay(model.Event("write", "x.tmp", "", 0, 3, b"new"))
    disk.replay(model.Event("rename", "x.tmp", "x", 0, 0, b""))
    assert {cut.files.get("x") for cut in disk.cuts(3)} == {b"old", b"", b"new", b"\0\0\0"}
    disk = model.Disk({"x": b"old"})
    for name, path in (("create", "x.tmp"), ("write", "x.tmp"), ("fsync", "x.tmp"), ("rename", "x.tmp")):
        disk.replay(model.Event(name, path, "x", 0, 3, b"new"))
    assert {cut.files.get("x") for cut in disk.cuts(4)} == {b"old", b"new"}
    disk.replay(model.Event("fsync", ".", "", 0, 0, b""))
    disk.replay(model.Event("mark", "", "", 7, 0, b""))
    assert [(cut.files, cut.synced) for cut in disk.cuts(6)] == [({"x": b"new"}, 7)]


def test_faults_fit_their_calls():
    for name in ("write", "open", "opendir", "fsync", "close", "rename", "unlink", "truncate", "chmod", "flock"):
        found = faults.possible(faults.Call(name, 10_000))
        assert len(found) == len(set(found))
        assert set(faults.possible(faults.Call(name, 10_000), few=True)) <= set(found)
        assert sum(fault.kills for fault in found) >= 2
    torn = [fault.bytes for fault in faults.possible(faults.Call("write", 600)) if fault.kind == "torn"]
    assert torn == [1, 512, -1]  # no more than there is
