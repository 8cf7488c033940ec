"""python -m safety.memory.freethreaded PYTHON: tests on a free-threaded CPython, without its lock.

PYTHON needs numpy, ml_dtypes, pytest and whatever else of the tests' packages it has builds of; a file of tests that
lacks one is counted as such, and so is a test that lacks one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as tree
from typing import Any

from safety import totals
from safety.memory import extension

FOLDER = extension.ROOT / "build/freethreaded"
FILES = (
    "unit/test_threads.py",
    "unit/test_workers.py",
    "hostile/test_memory_safety.py",
    "unit/test_kernel.py",
    "unit/test_codec_kernel.py",
    "unit/test_coded_planes.py",
    "unit/test_example_kernel_calls.py",
    "formats/test_frame.py",
    "formats/test_frame_files.py",
    "records/test_writer.py",
    "records/test_access.py",
)
ASK = "import sys, sysconfig as s; print(s.get_path('include'), s.get_config_var('SOABI'), sys.version.split()[0])"


def _build(python: str) -> str:
    """The extension for this interpreter, in a copy of the checkout; its version."""
    include, tag, version = subprocess.run(
        [python, "-c", ASK], capture_output=True, text=True, check=True
    ).stdout.split()
    if "t-" not in tag:
        raise SystemExit(f"{python} is not free-threaded")
    extension.copy_tree(FOLDER)
    sources = sorted(str(path) for path in (FOLDER / extension.WIRE).glob("*.c"))
    flags = ("-shared", "-fPIC", "-O3", "-std=c11", "-fvisibility=hidden", "-pthread", f"-I{include}")
    subprocess.run(["gcc", *flags, *sources, "-o", str(FOLDER / extension.WIRE / f"_kernel.{tag}.so")], check=True)
    return version


def _sorted_out(result: str) -> dict[str, Any]:
    passed = skipped = lacking = 0
    failed = []
    for case in tree.parse(result).iter("testcase"):
        said = "".join(f"{child.get('message')} {child.text}" for child in case if child.tag in ("failure", "error"))
        if "ModuleNotFoundError" in said or "MissingDependencyError" in said:
            lacking += 1
        elif said:
            failed.append(str(case.get("name")))
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return {"passed": passed, "skipped": skipped, "lacking a package": lacking, "failed": failed}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.memory.freethreaded", description=__doc__)
    parser.add_argument("python", metavar="PYTHON")
    parser.add_argument("--only", action="append", metavar="FILE", help="these files of tests; no figures are kept")
    args = parser.parse_args()
    version = _build(args.python)
    result = str(FOLDER / "result.xml")
    started = time.monotonic()
    command = [
        args.python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        "--tb=short",
    ]
    environment = {**os.environ, "PYTHON_GIL": "0", "PYTHONPATH": "src", "TENSORBYTES_KERNEL": "compiled"}
    files = [f"tests/{file}" for file in args.only or FILES]
    subprocess.run([*command, f"--junitxml={result}", *files], cwd=FOLDER, env=environment)
    figures = {
        **_sorted_out(result),
        "files": len(files),
        "python": version,
        "seconds": round(time.monotonic() - started),
    }
    if not args.only:
        totals.write("memory", {**totals.read("memory"), "free-threaded": figures})
    print(figures)
    return 1 if figures["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
