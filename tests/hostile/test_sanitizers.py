"""The kernel as it is built for looking at: AddressSanitizer and UBSan watch some thousand calls of it.

`python -m safety.memory.sanitize` runs the whole suite so.
"""

import os
import subprocess
import sys

import pytest

from safety.memory import extension
from tensorbytes import _wire


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a sanitizer that can be loaded ahead of Python")
@pytest.mark.skipif(not _wire.ACCELERATED, reason="the same with either kernel")
@pytest.mark.deep
def test_the_kernel_under_sanitizers(tmp_path):
    sanitizers = "address,undefined"
    try:
        extension.build(tmp_path / "_kernel.abi3.so", sanitizers, "-O1", "-g1")
    except extension.CantBuild as error:
        pytest.skip(f"the sanitizers can't be had here: {str(error)[-200:]}")
    environment = extension.environment(extension.ROOT, sanitizers, tmp_path / "found")
    command = [sys.executable, "-m", "safety.memory.exercise", str(tmp_path / "_kernel.abi3.so"), "100"]
    done = subprocess.run(command, cwd=extension.ROOT, env=environment, capture_output=True, text=True, timeout=200)
    found = "".join(path.read_text() for path in sorted(tmp_path.glob("found*")))
    assert (done.returncode, found) == (0, ""), done.stderr
    assert "runtime error" not in done.stderr
    assert int(done.stdout.split()[0]) > 1000


def test_what_the_sanitizers_are_to_find_they_find(tmp_path):
    """Or a clean run would prove nothing."""
    source = tmp_path / "overrun.c"
    source.write_text(
        "#include <stdlib.h>\n"
        '__attribute__((visibility("default"))) int overrun(int n) { char *p = malloc(8); p[n] = 1; return *p; }'
    )
    try:
        extension.compile_with([source], tmp_path / "overrun.so", "address,undefined")
    except extension.CantBuild as error:
        pytest.skip(f"the sanitizers can't be had here: {str(error)[-200:]}")
    environment = extension.environment(extension.ROOT, "address,undefined", tmp_path / "found")
    code = f"import ctypes; ctypes.CDLL({os.fspath(tmp_path / 'overrun.so')!r}).overrun(8)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    found = done.stderr + "".join(path.read_text() for path in tmp_path.glob("found*"))
    assert done.returncode == 66
    assert "heap-buffer-overflow" in found or "runtime error: store to address" in found
