"""The commands: one row each. A command's module is loaded when it is used, so that none waits for another."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, NamedTuple, Protocol

from tensorbytes.cli.output import Output


class Verb(Protocol):
    """A module of this package that is a command."""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add what the command takes; set parser.epilog to its examples."""

    def run(self, args: Any, out: Output) -> int:
        """Do it; 0 fine, 1 differs or damaged. Errors are raised, and become 1 or 2."""


class Row(NamedTuple):
    module: str
    words: str  # one line of help
    group: str


LOOK, CHANGE, CHECK, ELSE = "Look inside", "Change", "Check", "Other"
VERBS = {
    "info": Row("info", "what is in a file: format, tensors, schema (the default command)", LOOK),
    "head": Row("head", "the first values of each tensor, or the first records", LOOK),
    "cat": Row("cat", "one tensor, or a slice of it: file::name[0:4, :]", LOOK),
    "stats": Row("stats", "min, max, mean, NaN counts and a histogram of each tensor", LOOK),
    "schema": Row("schema", "the schema of records", LOOK),
    "convert": Row("convert", "a file to another format", CHANGE),
    "split": Row("split", "one file into several", CHANGE),
    "merge": Row("merge", "several files into one", CHANGE),
    "index": Row("index", "write the index that makes record files randomly accessible", CHANGE),
    "verify": Row("verify", "read every byte and check what can be checked", CHECK),
    "repair": Row("repair", "keep every whole record of a damaged file", CHECK),
    "diff": Row("diff", "compare two files, tensor by tensor", CHECK),
    "bench": Row("bench", "try every format and compression on your own data", ELSE),
    "demo": Row("demo", "store, reload and compare the predictions of a model", ELSE),
    "doctor": Row("doctor", "what is installed, what is missing, what is accelerated", ELSE),
    "completion": Row("completion", "completion for bash, zsh or fish", ELSE),
}


def load(name: str) -> Verb:
    """The module of a command."""
    found: Verb = importlib.import_module(f"tensorbytes.cli.{VERBS[name].module}")
    return found
