"""The suite itself: slices miss nothing, the users of the kernel are found, and a process that is left is noticed."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from tests.support import ROOT, selection

PLUGINS = ("-p", "tests.support.selection", "-p", "tests.support.processes")


def run(folder, module, *words, kernel="compiled"):
    """(exit code, the tests that were run, what was printed) of a run of its own."""
    (folder / "test_it.py").write_text(module)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-v", *PLUGINS, "--rootdir", str(folder), *words, str(folder)]
    environment = {**os.environ, "TENSORBYTES_KERNEL": kernel, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    return done.returncode, re.findall(r"::(\S+) PASSED", done.stdout), done.stdout + done.stderr


NUMBERED = "import pytest\n@pytest.mark.parametrize('n', range(40))\ndef test_one(n): pass\n"


@pytest.mark.deep
def test_slices_together_are_everything(tmp_path):
    found = [run(tmp_path, NUMBERED, "--slice", f"{part}/3")[1] for part in (1, 2, 3)]
    assert Counter(name for part in found for name in part) == {f"test_one[{n}]": 1 for n in range(40)}
    assert all(found)


@pytest.mark.parametrize("words", ["0/3", "4/3", "2", "a/b"])
def test_what_is_not_a_slice(words):
    with pytest.raises(pytest.UsageError, match=f"--slice {words}: expected K/N with K from 1 to N"):
        selection.parse_slice(words)


USERS = """
import pytest
import numpy as np
import tensorbytes as tb

def test_that_calls_the_kernel():
    tb.dumps(np.zeros(3))

@pytest.mark.parametrize("n", range(40))
def test_that_does_not(n):
    assert tb.Tensor("uint8", (1,), b"x").shape == (1,)
"""


@pytest.mark.deep
def test_users_of_the_kernel_are_found_and_some_of_the_others(tmp_path):
    pytest.importorskip("tensorbytes._wire._kernel")
    assert len(run(tmp_path, USERS, "--kernel-users", "5", kernel="reference")[1]) == 41  # nothing was noted yet
    assert len(run(tmp_path, USERS)[1]) == 41
    code, again, _ = run(tmp_path, USERS, "--kernel-users", "5", kernel="reference")
    assert code == 0
    assert "test_that_calls_the_kernel" in again
    assert len(again) < 10


@pytest.mark.deep
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="processes are listed by Linux")
def test_a_process_that_is_left_is_noticed(tmp_path):
    module = "import subprocess\ndef test_it(): globals()['left'] = subprocess.Popen(['sleep', '30'])\n"
    code, _, told = run(tmp_path, module)
    assert code == 1, told
    assert "test_it.py leaves processes running" in told
    assert "sleep 30" in told
