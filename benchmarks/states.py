"""Several states of the package, side by side: folders of checkouts whose kernels are built."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]


def run_in(state: Path, module: str, *arguments: str) -> Any:
    """Run a module of this folder in a fresh process that imports the package of `state`; the JSON that it prints."""
    environment = os.environ | {"PYTHONPATH": str(state.resolve() / "src")}
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    ran = subprocess.run(command, cwd=HERE, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout)


def print_table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    """Print a table in Markdown."""
    for line in [header, ["---"] * len(header), *lines]:
        print(f"| {' | '.join(line)} |")


def old_and_new(numbers: Iterable[int]) -> str:
    """The same number in each state."""
    return " → ".join(f"{number:,}" for number in numbers)
