"""python -m safety.memory.sanitize: the suite with the extension under AddressSanitizer and UBSan.

A finding ends the process that made it; pytest-xdist goes on with another one. A test that fails for another reason
than a finding (it limits its own memory, say, of which the sanitizer takes terabytes) is counted and named, and does
not make the run fail.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as tree
from pathlib import Path
from typing import Any

from safety import totals
from safety.memory import extension

SCRATCH = extension.ROOT / "build/sanitize"
TEST_SECONDS = 1800
UNDEFINED = "undefined"
# Tests that can't run so, each with the reason.
LEFT_OUT = {
    "contract/test_layers.py": "reads the source alone",
    "docs/test_pages.py": "runs commands and pages of documentation, no more of the kernel than the other tests do",
    "hostile/test_memory_limits.py": "limits its address space, of which the sanitizer takes terabytes",
    "hostile/test_differential.py": "limits the address space of the other libraries",
    "hostile/test_sanitizers.py": "builds with the sanitizers itself",
    "docs/test_benchmarks.py": "measures speed",
}


def _counts(result: Path) -> tuple[int, int, list[str]]:
    passed, skipped = 0, 0
    failed: list[str] = []
    for case in tree.parse(result).iter("testcase") if result.exists() else ():
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.append(str(case.get("name")))
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return passed, skipped, failed


def run(sanitizers: str, files: list[str], jobs: int) -> tuple[dict[str, Any], bool]:
    """The figures of a run, and whether nothing was found."""
    folder = extension.copy(SCRATCH / sanitizers.replace(",", "-"), sanitizers)
    reports, result = folder / "reports", folder / "result.xml"
    reports.mkdir()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"timeout={TEST_SECONDS}"]
    command += ["-n", str(jobs), "--dist", "loadfile"]
    started = time.monotonic()
    # UBSan beside ASan writes to the standard error alone, which pytest must leave to it.
    with open(reports / UNDEFINED, "wb") as errors:
        done = subprocess.run(
            [*command, "--capture=sys", f"--junitxml={result}", *(f"tests/{file}" for file in files)],
            cwd=folder,
            env=extension.environment(folder, sanitizers, reports / "found"),
            stderr=errors,
        )
    if b"runtime error:" not in (reports / UNDEFINED).read_bytes():
        (reports / UNDEFINED).unlink()
    passed, skipped, failed = _counts(result)
    findings = [path.read_text(errors="replace") for path in sorted(reports.iterdir())]
    for finding in findings:
        print(finding[:6000])
    figures = {
        "files": len(files),
        "tests": passed,
        "skipped": skipped,
        "failed for other reasons": failed,
        "findings": len(findings),
        "seconds": round(time.monotonic() - started),
        "versions": extension.versions(),
    }
    return figures, not findings and done.returncode in (0, 1)


def run_threads(rounds: int) -> tuple[dict[str, Any], bool]:
    """Sixteen threads in the kernel under ThreadSanitizer, which sees nothing of Python: that was built without."""
    folder = SCRATCH / "thread"
    shutil.rmtree(folder, ignore_errors=True)
    kernel = folder / "_kernel.abi3.so"
    extension.build(kernel, "thread")
    environment = extension.environment(extension.ROOT, "thread", folder / "found")
    # The sanitizer wants to know where memory lies.
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    command = [*fixed, sys.executable, "-m", "safety.memory.threads", str(kernel), str(rounds)]
    started = time.monotonic()
    done = subprocess.run(command, cwd=extension.ROOT, env=environment, capture_output=True, text=True)
    findings = [path.read_text(errors="replace") for path in sorted(folder.glob("found*"))]
    for finding in findings:
        print(finding[:6000])
    if done.returncode:
        print(done.stderr[-3000:])
    figures = {
        "calls": int(done.stdout.split()[0]) if done.stdout else 0,
        "findings": len(findings),
        "seconds": round(time.monotonic() - started),
        "versions": extension.versions(),
    }
    return figures, not done.returncode and not findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.memory.sanitize", description=__doc__)
    parser.add_argument(
        "--threads", type=int, metavar="N", help="instead: N rounds of 16 threads under ThreadSanitizer"
    )
    parser.add_argument("--only", action="append", metavar="FILE", help="these files alone; no figures are kept")
    parser.add_argument("--jobs", type=int, default=2, help="processes (2)")
    args = parser.parse_args()
    sanitizers = "thread" if args.threads else "address,undefined"
    tests = extension.ROOT / "tests"
    ordered = sorted(tests.rglob("test_*.py"), key=lambda path: ("_wire" not in path.read_text(), path))
    every = [str(path.relative_to(tests)) for path in ordered]  # those that call the kernel themselves come first
    files = args.only or [file for file in every if file not in LEFT_OUT]
    try:
        figures, clean = run_threads(args.threads) if args.threads else run(sanitizers, files, args.jobs)
    except extension.CantBuild as error:
        print(f"the sanitizers can't be had here: {error}")
        return 0
    if not args.threads:
        figures["left out"] = LEFT_OUT
    if not args.only:
        totals.write("memory", {**totals.read("memory"), f"sanitizers: {sanitizers}": figures})
    print(f"{sanitizers}: {figures}")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
