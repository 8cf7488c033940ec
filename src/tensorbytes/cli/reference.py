"""The reference of all commands as Markdown, made from their parsers: python -m tensorbytes.cli.reference"""

from __future__ import annotations

import argparse
import sys

from tensorbytes.cli import parser
from tensorbytes.cli.verbs import VERBS

_HEAD = """# The command line

`tb FILE` shows what is in a file, whatever its format; `tb COMMAND ...` does more. `tensorbytes` and
`python -m tensorbytes` are the same program.

```
tb model.safetensors                 # the tree of tensors, with their sizes
tb head train.tfrecord -n 2          # the first two records
tb cat 'model.tb::w[0:4, :]'         # some rows of a tensor
tb convert model.pt model.npz        # another format; what would be lost is named
```

**Files** are paths, globs, folders (the files of tensors in them), URLs (`pip install 'tensorbytes[cloud]'`) and `-`,
what comes through the pipe. They are recognised by their content. `FILE::NAME[INDEX]` is one tensor or a part of it.

**Output** is text: tables as wide as the terminal, in a pipe never cut. `--json` gives one JSON object a line. Errors
and progress go to stderr. An error of one file among several does not stop the others; with `--json` it is a line
`{"path": ..., "error": {"kind": ..., "message": ...}}` instead. Whatever comes from a file is escaped before
it is shown. JSON has no NaN and no infinities: they are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`.

**Exit code**: 0 fine, 1 differs or damaged, 2 wrong usage or a file that can't be read, 130 interrupted. With several
files the largest counts. Ctrl-C leaves no part of a file behind.

`eval "$(tb completion bash)"` makes the Tab key know all of this; zsh and fish are known too.
"""
_COMMON = ("--json", "--quiet", "--no-color", "--help")


def markdown() -> str:
    """The page."""
    lines = [_HEAD, "| command | what it does |", "| --- | --- |"]
    lines += [f"| [`tb {verb}`](#tb-{verb}) | {_cell(row.words)} |" for verb, row in VERBS.items()]
    for verb in VERBS:
        lines += _section(verb)
    lines += ["", "## In every command", "", *_table([a for a in parser("info")._actions if _is_common(a)]), ""]
    return "\n".join(lines)


def _section(verb: str) -> list[str]:
    made = parser(verb)
    actions = [action for action in made._actions if not _is_common(action)]
    lines = ["", f"## tb {verb}", "", str(made.description), ""]
    lines += ["```", _usage(verb, actions), "```", ""]
    if actions:
        lines += [*_table(actions), ""]
    if made.epilog:
        examples, _, rest = made.epilog.removeprefix("examples:\n").partition("\n\n")
        lines += ["```", *(line[2:] for line in examples.splitlines()), "```"]
        lines += ["", " ".join(rest.split())] if rest else []
    return lines


def _usage(verb: str, actions: list[argparse.Action]) -> str:
    words = [str(action.metavar or action.dest) for action in actions if not action.option_strings]
    many = [f"{word} ..." if action.nargs == "+" else word for word, action in _positional(words, actions)]
    options = " [options]" if any(action.option_strings for action in actions) else ""
    return f"tb {verb}{options} {' '.join(many)}".rstrip()


def _positional(words: list[str], actions: list[argparse.Action]) -> list[tuple[str, argparse.Action]]:
    return list(zip(words, (action for action in actions if not action.option_strings), strict=True))


def _table(actions: list[argparse.Action]) -> list[str]:
    lines = ["| argument | |", "| --- | --- |"]
    for action in actions:
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        if action.option_strings and action.nargs != 0:
            name += (
                f" {action.metavar or (action.choices and '|'.join(map(str, action.choices))) or action.dest.upper()}"
            )
        lines.append(f"| {_code(name)} | {_cell((action.help or '') % vars(action))} |")
    return lines


def _is_common(action: argparse.Action) -> bool:
    return any(flag in _COMMON for flag in action.option_strings)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("*", "\\*")


if __name__ == "__main__":
    sys.stdout.write(markdown())
