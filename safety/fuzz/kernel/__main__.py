"""python -m safety.fuzz.kernel: every target for its share of the time, under the sanitizers."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time

from safety import totals
from safety.fuzz import corpora
from safety.fuzz.kernel.build import ROOT, TARGETS, NoSanitizers, Program, build

SCRATCH = ROOT / "build/fuzz/kernel"


def _command(program: Program, target: str, seconds: int) -> list[str]:
    working = SCRATCH / "corpus" / target
    seeds = corpora.unpack(corpora.read(f"kernel-{target}"), working)
    if not program.guided:
        return [str(program.path), str(seconds), *map(str, seeds)]
    options = [f"-max_total_time={seconds}", "-max_len=512", "-timeout=5", "-print_final_stats=1"]
    found = f"-artifact_prefix={SCRATCH}/{target}-"
    return [str(program.path), *options, found, str(working)]


def _last(pattern: str, text: str) -> int | None:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else None


def run(target: str, seconds: int, dry: bool) -> bool:
    """Whether all went well."""
    program = build(target, SCRATCH / "programs")
    log = SCRATCH / f"{target}.log"
    started = time.monotonic()
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=8"}  # more of it is memory and time, no finding
    with open(log, "wb") as out:  # libFuzzer tells a lot
        failed = subprocess.run(_command(program, target, seconds), stdout=out, stderr=out, env=environment).returncode
    took = time.monotonic() - started
    text = log.read_text(errors="replace")
    executions, edges = _last(r"number_of_executed_units: (\d+)", text) or 0, _last(r"cov: (\d+)", text)
    seen = f"{edges} edges" if edges else "no coverage: clang is not here"
    print(f"{target:10} {executions:>13,} executions {executions / took:>10,.0f}/s  {seen}", flush=True)
    if not dry:
        totals.add("fuzz_kernel", target, executions=executions, seconds=took, edges=edges)
    if failed:
        print(f"{target}: FOUND SOMETHING (exit {failed}); the end of {log.relative_to(ROOT)}:\n{text[-3000:]}")
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.fuzz.kernel", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together (60)")
    parser.add_argument("--only", choices=TARGETS, action="append", help="this target; may be given several times")
    parser.add_argument("--dry", action="store_true", help="leave the figures alone")
    args = parser.parse_args()
    chosen = args.only or list(TARGETS)
    try:
        went_well = [run(target, max(1, args.seconds // len(chosen)), args.dry) for target in chosen]
        return 0 if all(went_well) else 1
    except NoSanitizers:
        print("the kernel is not fuzzed: no compiler here has the sanitizers (clang, or gcc with libasan and libubsan)")
        return 0


if __name__ == "__main__":
    sys.exit(main())
