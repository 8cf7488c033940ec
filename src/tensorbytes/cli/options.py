"""The options of formats, as --help lists them."""

from __future__ import annotations

import textwrap
from collections.abc import Collection

_READS = {"--option": False, "--read-option": True}


def option_text(flags: Collection[str], width: int) -> str:
    """What may follow those of a command's flags that hand options to a format."""
    return "".join(f"\nfor {flag}:\n{_listed(reads, width)}" for flag, reads in _READS.items() if flag in flags)


def _listed(reading: bool, width: int) -> str:
    from tensorbytes import formats

    lines: list[str] = []
    for key, option, names in formats.option_owners(reading):
        takes = "" if option.type is object else f" ({option.expected})"
        text = f"{key}, of {', '.join(names)}: {option.help.replace('`', '')}{takes}"
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines) + "\n"
