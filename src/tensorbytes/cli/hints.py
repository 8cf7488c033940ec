"""Hints of errors in options and commands: one row for each option and operation that a hint of the library may name.

A row of an option is what to type, with {} for the value, and a word for a value that is left to the reader. None
stands for what no command can do: such a hint is left out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from tensorbytes.errors import Hint, Known, hint_text

# By name, or by the call and the name: "load.format" is what Hint("format", of="load") means.
OPTIONS: Mapping[str, tuple[str, str] | None] = {
    "allow": ("--allow {}", "FEATURE"),
    "compression": ("--compression {}", "SPEC"),
    "convert.cast": ("--cast {}", "DTYPE"),
    "convert.format": ("--to {}", "FORMAT"),
    "convert.src_format": ("--from {}", "FORMAT"),
    "folder": ("--folder {}", "FOLDER"),
    "formats": ("--formats {}", "FORMATS"),
    "limits.max_bytes": ("TENSORBYTES_MAX_BYTES={}", "N"),
    "limits.max_objects": ("TENSORBYTES_MAX_OBJECTS={}", "N"),
    "limits.max_tensors": ("TENSORBYTES_MAX_TENSORS={}", "N"),
    "load.bools": ("--read-option bools={}", "any"),
    "load.checksums": ("--read-option checksums={}", "ignore"),
    "load.dtype": ("--read-option dtype={}", "float32"),
    "load.byteorder": ("--read-option byteorder={}", "ORDER"),
    "load.encoding": ("--read-option encoding={}", "ENCODING"),
    "load.format": ("--from {}", "FORMAT"),
    "load.keys": ("--read-option keys={}", "KEYS"),
    "load.objects": ("--read-option objects={}", "skip"),
    "max_bytes": ("--most {}", "SIZE"),
    "names": ("--names {}", "NAME"),
    "nbytes": ("--size {}", "SIZE"),
    "prefix": ("--prefix {}", "PREFIX"),
    "read_options.keys": ("--read-option keys={}", "KEYS"),
    "replace": ("--in-place", ""),
    "rows": ("--rows {}", "N"),
    "save.extended": ("--option extended={}", "true"),
    "save.format": ("--to {}", "FORMAT"),
    "save.many": ("--option many={}", "false"),
    "save.quantize": ("--quantize {}", "SPEC"),
    "save.version": ("--option version={}", "3.0"),
    "save.rows": ("--option rows={}", "auto"),
    "shards": ("--shards {}", "N"),
    # Commands read whole files into NumPy, by the schema that they find.
    "columns": None,
    "device": None,
    "Feature.encoding": None,
    "level": None,
    "lists": None,
    "load.like": None,
    "load.strict": None,
    "live": None,
    "meta": None,
    "mmap": None,
    "mode": None,
    "on_corrupt": None,
    "Quantize.scale": None,
    "RecordWriter.compression": None,
    "schema": None,
    "strict": None,
    "threads": None,
    "to": None,
}
OPERATIONS: Mapping[str, str | None] = {
    "convert": "tb convert",
    "inspect": "tb info",
    "merge": "tb merge",
    "repair": "tb repair",
    "records.read_events": "tb head",
    # A command reads whatever it is given.
    "RecordWriter": None,
    "load": None,
    "loads": None,
    "open": None,
    "open_records": None,
    "save": None,
}


def in_commands(hint: Hint) -> str:
    """A hint as words of the command line; "" if no command does it."""
    if hint.operation in OPERATIONS:
        command = OPERATIONS[hint.operation]
        words = (command, *map(_argument, hint.arguments), hint.purpose)
        return "" if command is None else " ".join(filter(None, words))
    if _key(hint) in OPTIONS:
        text = spelled(hint)
        return hint_text("pass" if text.startswith("-") else "set", text, hint) if text else ""
    return str(hint)


def spelled(hint: Hint) -> str:
    """The option of a hint as it is typed: `--allow meta --allow name`."""
    row = OPTIONS[_key(hint)]
    if row is None:
        return ""
    form, placeholder = row
    values = sorted(hint.value) if isinstance(hint.value, frozenset) else [hint.value]
    return " ".join(form.format(placeholder if value is ... else _plain(value)) for value in values)


def _argument(text: str) -> str:
    """SRC for the name of a parameter; a value as it is typed in a shell."""
    return shlex.quote(text) if isinstance(text, Known) else text.upper()


def _key(hint: Hint) -> str:
    own = f"{hint.of}.{hint.option}"
    return own if own in OPTIONS else hint.option


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
