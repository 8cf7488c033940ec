"""python -m benchmarks.lines [OLD]: how many lines of Python the package has, in each of its folders.

Counted are lines with code: no blank lines, comments or docstrings. OLD is the folder of another checkout; both are
shown then, old → new.
"""

from __future__ import annotations

import argparse
import ast
import tokenize
from collections import Counter
from pathlib import Path

from benchmarks.states import HERE, old_and_new, print_table

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_TOP = "(no folder)"


def count_lines(path: Path) -> int:
    """The lines of a file that hold code."""
    with path.open("rb") as file:
        tokens = [token for token in tokenize.tokenize(file.readline) if token.type not in _NO_CODE]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and ast.get_docstring(node, clean=False) is not None:
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def count_folders(package: Path) -> Counter[str]:
    """The lines of code in each folder right below `package`; with them those of folders inside it."""
    found: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        inside = path.relative_to(package)
        found[inside.parts[0] if len(inside.parts) > 1 else _TOP] += count_lines(path)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", nargs="?", type=Path, metavar="OLD")
    options = parser.parse_args()
    packages = [state / "src" / "tensorbytes" for state in (options.old, HERE) if state is not None]
    states = [count_folders(package) for package in packages]
    folders = sorted(set().union(*states))
    lines = [[folder, old_and_new(state[folder] for state in states)] for folder in folders]
    print_table(["folder", "lines of code"], [*lines, ["all", old_and_new(state.total() for state in states)]])


if __name__ == "__main__":
    main()
