"""Figures that grow over runs: safety/results/<area>.json, from which docs/safety-figures.md is made."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def read(area: str) -> dict[str, dict[str, Any]]:
    path = RESULTS / f"{area}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def write(area: str, figures: dict[str, dict[str, Any]]) -> None:
    save(RESULTS / f"{area}.json", figures)


def save(path: Path, figures: dict[str, Any]) -> None:
    """Whole or not at all: a run may be interrupted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    temporary.replace(path)


def add(area: str, target: str, *, executions: int, seconds: float, edges: int | None) -> dict[str, Any]:
    """Adds a run of one fuzz target; edges are those of the run that saw the most."""
    figures = read(area)
    total = figures.setdefault(target, {"executions": 0, "seconds": 0.0, "edges": 0})
    total["executions"] += executions
    total["seconds"] = round(total["seconds"] + seconds, 1)
    total["edges"] = max(total["edges"], edges or 0)
    write(area, figures)
    return total
