"""Runs a pair of readers over many inputs, and keeps count."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from safety import totals
from safety.fuzz.differential import outcome
from safety.fuzz.differential.listing import KINDS, Verdict, compare
from safety.fuzz.differential.outcome import Outcome
from safety.fuzz.differential.pair import ROOT, Pair, get
from safety.fuzz.differential.peer import Peer

RESULTS = ROOT / "safety" / "results" / "differential.json"
FINDINGS = ROOT / "safety" / "fuzz" / "findings"
REGRESSIONS = ROOT / "safety" / "fuzz" / "regressions"
_BATCH = 200


class Case(NamedTuple):
    raw: bytes
    ours: Outcome
    theirs: Outcome
    verdict: Verdict


class Readers:
    """Both readers of a pair, each where it must run; use as a context."""

    def __init__(self, pair: Pair, here: bool = False) -> None:
        self.pair = pair
        self.peers = {
            "theirs": Peer(pair.name) if pair.remote and not here else None,
            "ours": Peer(pair.name, "ours") if pair.ours_remote and not here else None,
        }

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        self.pair.close()
        for peer in self.peers.values():
            if peer is not None:
                peer.close()

    def cases(self, inputs: Sequence[bytes]) -> list[Case]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._cases(inputs)

    def _cases(self, inputs: Sequence[bytes]) -> list[Case]:
        for peer in self.peers.values():
            if peer is not None:
                peer.send(inputs)
        ours = self._read("ours", inputs, outcome.of_ours, self.pair.ours)
        theirs = self._read("theirs", inputs, outcome.of_theirs, self.pair.theirs)
        name = self.pair.name
        return [Case(raw, a, b, compare(name, raw, a, b)) for raw, a, b in zip(inputs, ours, theirs, strict=True)]

    def _read(
        self, side: str, inputs: Sequence[bytes], judge: Callable[..., Outcome], read: Callable[[bytes], Any]
    ) -> list[Outcome]:
        peer = self.peers[side]
        return peer.receive() if peer is not None else [judge(read, raw) for raw in inputs]

    @property
    def restarts(self) -> int:
        return sum(peer.restarts for peer in self.peers.values() if peer is not None)


def inputs(pair: Pair, seed: int, first: int, count: int) -> list[bytes]:
    """Inputs number `first` and following: the same on every machine."""
    return [pair.generate(Random(f"{pair.name}:{seed}:{n}")) for n in range(first, first + count)]


class Tally:
    """What came of the cases of one pair."""

    def __init__(self, name: str) -> None:
        self.name, self.seconds, self.restarts = name, 0.0, 0
        self.kinds: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()
        self.faults: dict[str, str] = {}  # what a peer died of -> the first input, in hex
        self.findings: list[Case] = []

    @property
    def cases(self) -> int:
        return self.kinds.total()

    def add(self, case: Case) -> None:
        self.kinds[case.verdict.kind] += 1
        if case.verdict.listed is not None:
            self.listed[case.verdict.listed.input] += 1
        if case.verdict.kind == "peer_faults" and len(self.faults) < 40:
            self.faults.setdefault(case.verdict.words[:160], case.raw[:2000].hex())
        if case.verdict.is_finding:
            self.findings.append(case)

    def row(self) -> dict[str, Any]:
        counts = {kind: self.kinds[kind] for kind in KINDS}
        return {
            "cases": self.cases, **counts, "unlisted": len(self.findings), "restarts": self.restarts,
            "seconds": round(self.seconds, 1), "listed": dict(self.listed), "faults": self.faults,
        }  # fmt: skip


def run(
    name: str, seed: int, first: int, seconds: float, most: int = 1 << 62, say: Callable[[Tally], None] | None = None
) -> Tally:
    """Cases of one pair until the time is over, or so many."""
    pair, tally, start = get(name), Tally(name), time.monotonic()
    said = start
    with Readers(pair) as readers:
        while tally.cases < most and time.monotonic() - start < seconds:
            count = min(_BATCH, most - tally.cases)
            for case in readers.cases(inputs(pair, seed, first + tally.cases, count)):
                tally.add(case)
            tally.seconds, tally.restarts = time.monotonic() - start, readers.restarts
            if say is not None and time.monotonic() - said > 10:
                say(tally)
                said = time.monotonic()
    return tally


def judged(name: str, examples: Sequence[bytes], here: bool = False) -> list[Case]:
    """The cases that given inputs are; `here` in this process, for inputs that are known to kill nobody."""
    with Readers(get(name), here) as readers:
        return readers.cases(examples)


def likeness(case: Case) -> str:
    """The same for cases that are probably of one kind."""
    words = re.sub(r"got .*|'[^']*'|\d", "", case.verdict.words, flags=re.DOTALL)
    return f"{case.verdict.kind} {words[:110]}"


def keep(name: str, cases: Sequence[Case]) -> Path:
    """Save the shortest of some inputs that are alike."""
    raw = min((case.raw for case in cases), key=len)
    folder = FINDINGS / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{cases[0].verdict.kind}-{hashlib.sha256(raw).hexdigest()[:12]}"
    path.write_bytes(raw)
    return path


# ---- the figures ------------------------------------------------------------


def results() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def accumulate(tally: Tally, version: str, seed: int) -> None:
    """Add a run to the figures; several processes may."""
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with _locked():
        known = results()
        old = known.get(tally.name, {})
        row = tally.row()
        for key in ("cases", *KINDS, "unlisted", "restarts", "seconds"):
            row[key] = round(row[key] + old.get(key, 0), 1) if key == "seconds" else row[key] + old.get(key, 0)
        listed = Counter(old.get("listed", {}))
        listed.update(tally.listed)
        row["listed"] = dict(listed)
        row["faults"] = {**old.get("faults", {}), **row["faults"]}
        row["next"] = old.get("next", 0) + (tally.cases if seed == 0 else 0)
        known[tally.name] = {"peer": version, **row}
        totals.save(RESULTS, known)


@contextmanager
def _locked() -> Iterator[None]:
    folder = os.open(RESULTS.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
