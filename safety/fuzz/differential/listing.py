"""What a listed divergence is, and which of them a case is."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from safety.fuzz.differential.outcome import Failed, Outcome, Read, Refused

THEIRS, OURS, BOTH = "theirs", "ours", "both"  # who reads the bytes; both: to other values


class Divergence(NamedTuple):
    """`words` are found in the refusal of whoever refuses; `when` looks at the bytes and at both outcomes' content."""

    pairs: tuple[str, ...]
    side: str
    words: str
    input: str
    reason: str
    example: bytes
    when: Callable[[bytes, Any, Any], bool] | None = None
    theirs: str = ""  # their verdict, where more is to be said than whether they read it
    ours: str = ""

    @property
    def their_verdict(self) -> str:
        return self.theirs or ("refused" if self.side == OURS else "read")

    @property
    def our_verdict(self) -> str:
        return self.ours or ("refused" if self.side == THEIRS else "read")


class Verdict(NamedTuple):
    """`kind` is one of KINDS; `listed` is the divergence that it is, where it is one."""

    kind: str
    listed: Divergence | None
    words: str

    @property
    def is_finding(self) -> bool:
        return self.kind == "our_faults" or (self.kind in DIVERGENT and self.listed is None)


DIVERGENT = ("theirs_only", "ours_only", "other_values")
KINDS = ("both_read", "both_refused", *DIVERGENT, "peer_faults", "our_faults")


def compare(pair: str, raw: bytes, ours: Outcome, theirs: Outcome) -> Verdict:
    if isinstance(ours, Failed):
        return Verdict("our_faults", None, ours.words)
    if isinstance(theirs, Failed):
        return Verdict("peer_faults", None, theirs.words)
    if isinstance(ours, Refused) and isinstance(theirs, Refused):
        return Verdict("both_refused", None, "")
    if isinstance(ours, Read) and isinstance(theirs, Read):
        if ours.value == theirs.value:
            return Verdict("both_read", None, "")
        return Verdict("other_values", _find(pair, BOTH, "", raw, ours, theirs), "")
    if isinstance(ours, Read):
        return Verdict("ours_only", _find(pair, OURS, theirs[0], raw, ours, theirs), theirs[0])
    return Verdict("theirs_only", _find(pair, THEIRS, ours[0], raw, ours, theirs), ours[0])


@cache
def _candidates(pair: str, side: str) -> list[tuple[re.Pattern[str], Divergence]]:
    from safety.fuzz.differential.divergences import DIVERGENCES

    rows = [row for row in DIVERGENCES if pair in row.pairs and row.side == side]
    return [(re.compile(row.words, re.DOTALL), row) for row in rows]


def _find(pair: str, side: str, words: str, raw: bytes, ours: Outcome, theirs: Outcome) -> Divergence | None:
    for pattern, row in _candidates(pair, side):
        if pattern.search(words) and (row.when is None or row.when(raw, ours[0], theirs[0])):
            return row
    return None


def table() -> str:
    """Markdown: a row for each divergence, with all pairs that have it."""
    from safety.fuzz.differential.divergences import DIVERGENCES

    found: dict[tuple[str, ...], list[str]] = {}
    for row in DIVERGENCES:
        pairs = found.setdefault((row.input, row.their_verdict, row.our_verdict, row.reason), [])
        pairs += [pair for pair in row.pairs if pair not in pairs]
    lines = ["| pair | input | theirs | ours | why |", "| --- | --- | --- | --- | --- |"]
    for cells, pairs in found.items():
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (", ".join(pairs), *cells)) + " |")
    return "\n".join(lines)


def put_table(text: str) -> str:
    """A page with the table between its two marks."""
    start, end = "<!-- divergences -->", "<!-- /divergences -->"
    before, rest = text.split(start)
    return f"{before}{start}\n\n{table()}\n\n{end}{rest.split(end)[1]}"
