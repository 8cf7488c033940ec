"""The catalogue of hostile input: what each case is, our answer, and the tests that show it.

    python -m tests.support.catalogue docs/safety.md

writes the table of the page. `catalogue.txt` has a line for each case: number | what | answer | tests,
of which none are named where a case does not apply. A test with `[words*]` stands for those of its cases
whose names start with these words.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support import ROOT

CATALOGUE = ROOT / "tests" / "hostile" / "catalogue.txt"
BEGIN, END = (
    "<!-- catalogue: written by `python -m tests.support.catalogue docs/safety.md` -->",
    "<!-- end of catalogue -->",
)
NOT_HERE = "does not apply"
_TEST = re.compile(r"(?P<file>[\w/]+\.py)(?:::(?P<name>\w+)(?:\[(?P<case>[^\]]*)\*\])?)?")


class Test(NamedTuple):
    file: str
    name: str = ""  # none: a program of its own, not a test
    case: str = ""  # how the names of its cases start

    def __str__(self) -> str:
        case = f"[{self.case}*]" if self.case else ""
        return f"{self.file}::{self.name}{case}" if self.name else self.file


class Row(NamedTuple):
    number: int
    section: str
    title: str
    answer: str
    tests: tuple[Test, ...]

    @property
    def applies(self) -> bool:
        return not self.answer.startswith(NOT_HERE)


def rows() -> list[Row]:
    """The lines of catalogue.txt."""
    found, section = [], ""
    for line in CATALOGUE.read_text().splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        elif line.strip():
            number, title, answer, named = (cell.strip() for cell in line.split("|"))
            found.append(
                Row(int(number), section, title, answer, tuple(map(_test, named.split(", "))) if named else ())
            )
    return found


def _test(text: str) -> Test:
    match = _TEST.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} names no test")
    return Test(match["file"], match["name"] or "", match["case"] or "")


def table() -> str:
    """The tables of the page, one for each section."""
    everything, lines = rows(), []
    applicable = [row for row in everything if row.applies]
    lines.append(
        f"{len(everything)} cases; {len(applicable)} apply, and each has a test or, where it says so, a program; "
        f"{len(everything) - len(applicable)} do not apply, with the reason."
    )
    for section in dict.fromkeys(row.section for row in everything):
        lines += ["", f"### {section}", "", "| | what comes | our answer | shown by |", "| --- | --- | --- | --- |"]
        for row in everything:
            if row.section == section:
                shown = ", ".join(f"`{test}`" for test in row.tests)
                lines.append(f"| {row.number} | {row.title} | {row.answer} | {shown} |")
    return "\n".join(lines)


def updated(text: str) -> str:
    """A page with the tables as they are now."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n\n{table()}\n\n{text[end:]}"


def with_divergences(text: str) -> str:
    """A page with the list of what other readers decide otherwise, as the comparison has it."""
    from safety.fuzz.differential import listing

    begin, end = "<!-- divergences -->", "<!-- /divergences -->"
    start = text.index(begin) + len(begin)
    return f"{text[:start]}\n\n{listing.table()}\n\n{text[text.index(end) :]}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_divergences(updated(page.read_text())))
