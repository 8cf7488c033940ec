"""Counts what the tests in a folder check, to compare two states of them: python -m tests.support.census [FOLDER].

An assertion is an `assert`, or a block of pytest.raises, pytest.warns or pytest.fail.
"""

import ast
import sys
from collections import Counter
from pathlib import Path

from tests.support import ROOT

_CHECKS = {"raises", "warns", "fail", "deprecated_call"}


def census(folder):
    """files, test functions, assertions in all of a folder's Python files."""
    counts = Counter()
    for path in sorted(folder.rglob("*.py")):
        counts["files"] += 1
        for node in ast.walk(ast.parse(path.read_text())):
            counts["test functions"] += isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
            counts["assert statements"] += isinstance(node, ast.Assert)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHECKS:
                counts["raises, warns, fail"] += ast.unparse(node.func.value) == "pytest"
    return counts


if __name__ == "__main__":
    for what, number in census(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "tests").items():
        print(f"{number:7,} {what}")
