"""Fuzz every parser for its share of a time budget.

    python -m safety.fuzz.parsers [--seconds N] [--only NAME] [--jobs 2]

Each target runs in processes of its own, so that the death of one ends nothing else. The target
that had the least time so far is next: first under libFuzzer, guided by coverage, then as plain
mutations of the corpus that this left (mutation.py), which are many times as fast.

Figures add up over runs in safety/results/fuzz_parsers.json. Whatever is found is left in the
folder of artifacts, told at the end, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safety import totals
from safety.fuzz import corpora
from safety.fuzz.parsers.harness import Target
from safety.fuzz.parsers.targets import TARGETS

ROOT = corpora.ROOT
RESULTS = ROOT / "safety/results/fuzz_parsers.json"
TIERS = ("coverage_guided", "mutation")
_SECONDS_PER_INPUT = 5  # far more than any takes, for a machine that is busy
_MEMORY_MB = 700
_EXECUTED = re.compile(r"stat::number_of_executed_units: (\d+)")
_COVERED = re.compile(r"cov: (\d+) ft: (\d+)")
_START_SECONDS = 15
_GRACE_SECONDS = 120


@dataclass
class Child:
    """One process at work on one target."""

    target: Target
    tier: str
    process: subprocess.Popen[str]
    log: Path
    began: float
    allotted: float


class Campaign:
    """The targets, what is known of each, and the folder they work in."""

    def __init__(
        self, names: list[str], work: Path, results: Path, slice_seconds: float, share: float, enough: int = 10**7
    ) -> None:
        self.names, self.work, self.results = names, work, results
        self._slice, self._share, self._enough = slice_seconds, share, enough
        self.figures: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
        self.figures.setdefault("targets", {})
        self.found: list[str] = []

    def row(self, name: str) -> dict[str, Any]:
        empty = {tier: {"executions": 0, "seconds": 0.0} for tier in TIERS}
        row: dict[str, Any] = self.figures["targets"].setdefault(name, empty | {"edges": 0, "features": 0})
        return row

    def next_name(self, busy: set[str]) -> str | None:
        """The target that had the least time. Those of parsers with enough executions wait; a finding ends it."""
        free = [name for name in self.names if name not in busy and not self._artifacts(name)]
        executions: Counter[str] = Counter()
        for name in self.figures["targets"]:
            executions[TARGETS[name].parser] += self._sum(name, "executions")

        def so_far(name: str) -> tuple[bool, float]:
            return executions[TARGETS[name].parser] >= self._enough, self._sum(name, "seconds")

        return min(free, key=so_far, default=None)

    def _sum(self, name: str, what: str) -> Any:
        return sum(self.row(name)[tier][what] for tier in TIERS)

    def start(self, name: str, seconds: float) -> Child:
        target = TARGETS[name]
        corpus = self.work / name / "corpus"
        artifacts = self.work / name / "artifacts"
        artifacts.mkdir(parents=True, exist_ok=True)
        row = self.row(name)
        guided, plain = (row[tier]["seconds"] for tier in TIERS)
        tier = TIERS[not _has_atheris() or (guided > self._share * (guided + plain) and guided > 0)]
        seconds = min(seconds, self._slice)
        log = self.work / name / f"{tier}.log"
        plant(target, corpus)
        if tier == TIERS[0]:
            command = ["child", name, *self._options(target, seconds, artifacts), str(corpus)]
        else:
            seed = str(int(time.time()))
            command = ["mutation", name, str(seconds), str(corpus), str(artifacts), seed]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
        if target.kernel:
            environment["TENSORBYTES_KERNEL"] = target.kernel
        with log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", f"safety.fuzz.parsers.{command[0]}", *command[1:]],
                cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        return Child(target, tier, process, log, time.monotonic(), seconds)

    def _options(self, target: Target, seconds: float, artifacts: Path) -> list[str]:
        out = [
            f"-max_total_time={max(int(seconds), 1)}", f"-max_len={target.max_len}", f"-artifact_prefix={artifacts}/",
            f"-timeout={_SECONDS_PER_INPUT}", f"-rss_limit_mb={_MEMORY_MB}", "-print_final_stats=1", "-len_control=20",
            "-reload=0", "-verbosity=1",
        ]  # fmt: skip
        if target.tokens:
            path = artifacts.parent / "tokens"
            spelled = ["".join(rf"\x{byte:02x}" for byte in token) for token in target.tokens]
            path.write_text("".join(f'"{token}"\n' for token in spelled))
            out.append(f"-dict={path}")
        return out

    def end(self, child: Child) -> None:
        """Add up what a process that has ended did."""
        text, row = child.log.read_text(errors="replace"), self.row(child.target.name)
        # One that was stopped for a while did nothing then.
        seconds = min(time.monotonic() - child.began, child.allotted + _START_SECONDS)
        if child.tier == TIERS[0]:
            executions = int(found[-1]) if (found := _EXECUTED.findall(text)) else _last_number(text)
            covered = _COVERED.findall(text)
            if covered:
                row["edges"] = max(row["edges"], int(covered[-1][0]))
                row["features"] = max(row["features"], int(covered[-1][1]))
        else:
            last = text.strip().rpartition("\n")[2]
            executions = json.loads(last)["executions"] if last.startswith("{") else 0
        row["parser"] = child.target.parser
        row[child.tier]["executions"] += executions
        row[child.tier]["seconds"] = round(row[child.tier]["seconds"] + seconds, 1)
        name = child.target.name
        failed = child.process.returncode != 0
        rate = executions / max(seconds, 0.1)
        told = f"{name:18} {child.tier:16} {executions:10,} in {seconds:4.0f} s ({rate:7,.0f}/s), edges {row['edges']}"
        print(told + (f"  FOUND: {_last_words(text)}" if failed else ""), flush=True)
        if failed:
            paths = [str(path) for path in self._artifacts(name)] or [str(child.log)]
            self.found.append(f"{name}: {_last_words(text)} ({', '.join(paths)})")
            if not self._artifacts(name):  # it died without an input: don't start it again and again
                (self.work / name / "artifacts" / "died").write_text(text[-4000:])
        self.save()

    def _artifacts(self, name: str) -> list[Path]:
        folder = self.work / name / "artifacts"
        return (
            sorted(path for path in folder.iterdir() if not path.name.startswith("slow-unit"))
            if folder.is_dir()
            else []
        )

    def save(self) -> None:
        self.figures["versions"] = {
            "python": sys.version.split()[0],
            **{name: importlib.metadata.version(name) for name in ("numpy", "pyarrow")},
            **({"atheris": importlib.metadata.version("atheris")} if _has_atheris() else {}),
        }
        totals.save(self.results, self.figures)

    def table(self) -> str:
        lines = [
            f"{'target':18} {'guided':>12} {'mutated':>12} {'hours':>6} {'exec/s':>8} {'edges':>6} {'features':>8}"
        ]
        for name in self.names:
            row = self.row(name)
            guided, plain = (row[tier]["executions"] for tier in TIERS)
            seconds = sum(row[tier]["seconds"] for tier in TIERS)
            rate = (guided + plain) / max(seconds, 0.1)
            told = f"{seconds / 3600:6.2f} {rate:8,.0f} {row['edges']:6} {row['features']:8}"
            lines.append(f"{name:18} {guided:12,} {plain:12,} {told}")
        return "\n".join(lines)


def _has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def plant(target: Target, corpus: Path) -> None:
    """Give a target its seeds: those that it makes, and those that are kept."""
    inputs = [*target.seeds(), *(data for _, data in corpora.kept(target.name))]
    corpora.unpack((data for data in inputs if len(data) <= target.max_len), corpus)


def _last_number(text: str) -> int:
    """How far a process that died had come."""
    found = re.findall(r"^#(\d+)", text, re.MULTILINE)
    return int(found[-1]) if found else 0


def _last_words(text: str) -> str:
    found = re.findall(r"^(?:\S*(?:Error|Exception|Unsound)\b.*|==\d+== ERROR.*|finding: .*)$", text, re.MULTILINE)
    return str(found[0])[:200] if found else text.strip().rpartition("\n")[2][:200]


def run(campaign: Campaign, seconds: float, jobs: int) -> None:
    end = time.monotonic() + seconds
    children: list[Child] = []
    try:
        while True:
            for child in [child for child in children if child.process.poll() is not None]:
                children.remove(child)
                campaign.end(child)
            left = end - time.monotonic()
            while left > 1 and len(children) < jobs:
                name = campaign.next_name({child.target.name for child in children})
                if name is None:
                    break
                children.append(campaign.start(name, left))
            if not children:
                break
            if left < -_GRACE_SECONDS:
                raise TimeoutError("a process went on after its time")
            time.sleep(0.2)
    finally:
        for child in children:
            child.process.terminate()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m safety.fuzz.parsers", description=__doc__)
    parser.add_argument("--seconds", type=float, default=360, help="the time budget of all targets together")
    parser.add_argument("--only", action="append", choices=sorted(TARGETS), metavar="NAME", help="this target")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--slice", type=float, default=0, help="seconds of one process; by default all get a turn")
    parser.add_argument("--guided", type=float, default=0.5, help="the share of time that coverage guides")
    parser.add_argument("--enough", type=int, default=10**7, help="executions after which a parser waits for others")
    parser.add_argument("--work", type=Path, default=ROOT / "build/fuzz/parsers", help="where corpora grow")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where figures add up")
    parser.add_argument("--dry", action="store_true", help="leave the figures alone")
    chosen = parser.parse_args(arguments)
    if not _has_atheris():
        print("without coverage: atheris is not installed")
    if chosen.dry:
        chosen.results = chosen.work / "figures.json"
        chosen.results.unlink(missing_ok=True)
    names = chosen.only or list(TARGETS)
    turn = chosen.slice or max(chosen.seconds * chosen.jobs / len(names) - 2, 2)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # and the processes with it
    campaign = Campaign(names, chosen.work, chosen.results, turn, chosen.guided, chosen.enough)
    run(campaign, chosen.seconds, chosen.jobs)
    campaign.save()
    print(campaign.table())
    for line in campaign.found:
        print(f"found: {line}")
    return 1 if campaign.found else 0
