"""Try every format, and write the README's table of them.

    python -m tests.support.readme README.md

What a format is and its suffixes are its own words; what it holds is found by saving and loading.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import tensorbytes as tb
from tensorbytes import formats

BEGIN, END = "<!-- formats: written by `make fidelity` -->", "<!-- end of formats -->"
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
    except (tb.LossError, tb.UnsupportedError, tb.UsageError):
        return False


def table() -> str:
    """The README's lines."""
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


def updated(text: str) -> str:
    """A page with the table as it is now."""
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    return f"{text[:start]}\n{table()}\n{text[end:]}"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(updated(page.read_text()))
