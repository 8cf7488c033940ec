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


class VerbEntry(NamedTuple):
    module: str
    words: str  # one line of help
    group: str


LOOK, CHANGE, CHECK, ELSE = "Look inside", "Change", "Check", "Other"
VERBS = {
    "info": VerbEntry("info", "what is in a file: format, tensors, schema (the default command)", LOOK),
    "head": VerbEntry("head", "the first values of each tensor, or the first records", LOOK),
    "cat": VerbEntry("cat", "one tensor, or a slice of it: file::name[0:4, :]", LOOK),
    "stats": VerbEntry("stats", "min, max, mean, NaN counts and a histogram of each tensor", LOOK),
    "schema": VerbEntry("schema", "the schema of records", LOOK),
    "convert": VerbEntry("convert", "a file to another format", CHANGE),
    "split": VerbEntry("split", "one file into several", CHANGE),
    "merge": VerbEntry("merge", "several files into one", CHANGE),
    "index": VerbEntry("index", "write the index that makes record files randomly accessible", CHANGE),
    "verify": VerbEntry("verify", "read every byte and check what can be checked", CHECK),
    "repair": VerbEntry("repair", "keep every whole record of a damaged file", CHECK),
    "diff": VerbEntry("diff", "compare two files, tensor by tensor", CHECK),
    "bench": VerbEntry("bench", "try every format and compression on your own data", ELSE),
    "demo": VerbEntry("demo", "store, reload and compare the predictions of a model", ELSE),
    "doctor": VerbEntry("doctor", "what is installed, what is missing, what is accelerated", ELSE),
    "completion": VerbEntry("completion", "completion for bash, zsh or fish", ELSE),
}


def load(name: str) -> Verb:
    """The module of a command."""
    found: Verb = importlib.import_module(f"tensorbytes.cli.{VERBS[name].module}")
    return found
