"""The tables of formats on the pages: what they say of themselves, and what is found by trying them.

python -m tests.support.format_tables README.md docs/formats.md
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import tensorbytes as tb
from tensorbytes import formats

_VALUES = tb.Tensor("float32", (3,), np.arange(3, dtype="<f4"))
# What is tried, under the heading of its column.
TRIALS = {
    "text": tb.Strings.from_items([b"Haus", b"x"], (2,), "bytes"),
    "ragged": tb.Ragged(_VALUES, (np.array([0, 2, 3]),)),
    "sparse": tb.Sparse("coo", (2, 3), (np.array([[0, 1], [1, 0], [1, 2]]),), _VALUES),
    "names": {"w": np.arange(3, dtype="<f4"), "b": np.zeros((2, 2))},
    "structures": {"layer": [{"w": np.arange(3), "lr": 0.5}], "tags": ("a", None)},
}


def holds(name: str, value: object, folder: Path) -> bool:
    """Whether a value comes back from a file of this format as it was."""
    meta = {"meta": {"licence": "free"}} if isinstance(value, dict) and "layer" in value else {}
    path = folder / f"{name}{formats.get(name).suffixes[0]}"
    try:
        tb.save(value, path, name, **meta)
        loaded = tb.load(path, format=name, to="numpy" if isinstance(value, dict) else "tensor")
        return bool(tb.equal(loaded, value))
    except (tb.errors.LossError, tb.errors.UnsupportedError, tb.errors.UsageError):
        return False


def trials() -> str:
    """What each format is, in its own words, and what it holds, found by saving and loading."""
    lines = [
        "| format | files | what it is | " + " | ".join(TRIALS) + " |",
        "| --- | --- | --- |" + " :-: |" * len(TRIALS),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in formats.BUILTIN:
            chosen = formats.get(name)
            cells = [f"`{name}`", ", ".join(f"`{suffix}`" for suffix in chosen.suffixes), chosen.words]
            if chosen.writes:
                cells += ["✓" if holds(name, value, Path(folder)) else "" for value in TRIALS.values()]
            else:
                cells += ["read only"] + [""] * (len(TRIALS) - 1)
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def facts() -> str:
    """What formats say of themselves."""
    lines = ["| format | files | holds | lazy slices | checksums | read by |", "| --- | --- | --- | --- | --- | --- |"]
    for name in formats.BUILTIN:
        chosen = formats.get(name)
        files = ", ".join(f"`{suffix}`" for suffix in chosen.suffixes) + ("" if chosen.writes else ", reading alone")
        held = (
            chosen.holds
            + (", streams" if chosen.streams else "")
            + (", rows" if chosen.rows and chosen.documents else "")
        )
        cells = [f"`{name}`", files, held, chosen.slices, chosen.checksums or "none", chosen.read_by]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def options() -> str:
    """The options of all formats; those that several have are one line."""
    lines = ["| option | formats | takes | default | what it does |", "| --- | --- | --- | --- | --- |"]
    for verb, reading in (("save", False), ("load", True)):
        for key, option, names in formats.option_owners(reading):
            shown = ", ".join(f"`{name}`" for name in names)
            expected = "" if option.type is object else option.expected
            lines.append(f"| `{verb}`: `{key}` | {shown} | {expected} | `{option.default!r}` | {option.help} |")
    return "\n".join(lines)


# The tables, each between two comments of its name.
TABLES = {"formats": trials, "facts": facts, "options": options}


def updated(text: str) -> str:
    """A page with its tables as they are now."""
    for name, made in TABLES.items():
        begin, end = f"<!-- {name}: written by `make fidelity` -->", f"<!-- end of {name} -->"
        if begin in text:
            start, stop = text.index(begin) + len(begin), text.index(end)
            text = f"{text[:start]}\n{made()}\n{text[stop:]}"
    return text


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]):
        page.write_text(updated(page.read_text()))
