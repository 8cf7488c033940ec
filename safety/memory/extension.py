"""The kernel as a Python extension with sanitizers, in a copy of the checkout: the installed one stays as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIRE = Path("src/tensorbytes/_wire")
# What a sanitizer needs to be loaded before Python is.
RUNTIMES = {"address,undefined": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
FLAGS = ("-shared", "-fPIC", "-O1", "-g", "-std=c11", "-fno-omit-frame-pointer", "-fvisibility=hidden", "-pthread")
_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "dist", "site", "*.so", "__pycache__", ".*_cache", ".hypothesis"
)


class CantBuild(Exception):
    """There is no compiler here that has these sanitizers."""


def build(out: Path, sanitizers: str, *flags: str) -> None:
    """The extension, at `out`."""
    sources = sorted((ROOT / WIRE).glob("*.c"))
    compile_with(sources, out, sanitizers, f"-I{sysconfig.get_path('include')}", *flags)


def compile_with(sources: list[Path], out: Path, sanitizers: str, *flags: str) -> None:
    """A shared library; gcc's own runtimes can be loaded ahead of a Python that was built without."""
    compiler = shutil.which("gcc")
    if compiler is None:
        raise CantBuild("there is no gcc")
    for runtime in RUNTIMES[sanitizers]:
        if not os.path.isabs(_place(compiler, runtime)):
            raise CantBuild(f"gcc has no {runtime}")
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, *FLAGS, f"-fsanitize={sanitizers}", *flags, *map(str, sources), "-o", str(out)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CantBuild(done.stderr)


def _place(compiler: str, runtime: str) -> str:
    return subprocess.run([compiler, f"-print-file-name={runtime}"], capture_output=True, text=True).stdout.strip()


def copy_tree(folder: Path) -> None:
    """The whole checkout in a folder, without what was built of it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT, folder, ignore=_LEFT_OUT)


def copy(folder: Path, sanitizers: str) -> Path:
    """The same, with the extension built with sanitizers in it."""
    copy_tree(folder)
    build(folder / WIRE / "_kernel.abi3.so", sanitizers)
    return folder


def environment(folder: Path, sanitizers: str, reports: Path) -> dict[str, str]:
    """What makes Python run the copy in a folder, and the sanitizers write what they find to `reports`."""
    compiler = shutil.which("gcc")
    assert compiler is not None
    options = f"log_path={reports}:exitcode=66:halt_on_error=1"
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(_place(compiler, runtime) for runtime in RUNTIMES[sanitizers]),
        "PYTHONMALLOC": "malloc",  # or Python's own allocator would hide what is written beyond an object
        "PYTHONPATH": str(folder / "src"),
        "TENSORBYTES_KERNEL": "compiled",
        # Python and the frameworks never free some of what they take: leaks are looked for in leaks.py. A test that
        # cuts a mapped file has children that the system ends.
        "ASAN_OPTIONS": f"{options}:detect_leaks=0:handle_sigbus=0:malloc_context_size=8:allocator_may_return_null=1"
        ":detect_odr_violation=0",
        "UBSAN_OPTIONS": f"{options}:print_stacktrace=1",
        "TSAN_OPTIONS": f"{options}:report_signal_unsafe=0",
    }


def versions() -> dict[str, str]:
    compiler = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    return {"gcc": compiler, "python": sys.version.split()[0]}
