"""What the commands that write files have in common: which files those are, and that none is replaced unasked."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tensorbytes.cli.output import Output
from tensorbytes.errors import UsageError

STDOUT = "-"
_CONSTANTS = {"True": True, "False": False, "None": None, "none": None}


def force_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--force", action="store_true", help="replace files that exist")


def check_free(paths: Iterable[str], force: bool) -> None:
    """Refuse to replace a file unless that was asked for. Devices and pipes have no content to lose."""
    for path in () if force else paths:
        if "://" not in path and os.path.isfile(path):
            raise UsageError(f"{path} exists already: pass --force to replace it, or another name")


def replaced(target: str) -> list[str]:
    """What is replaced or removed when a file of this name is written, whatever its format."""
    from tensorbytes import formats

    return [target, *(path for name in formats.writable() for path in formats.get(name).replaces(target, {}))]


def parts_of(target: str) -> list[str]:
    """The parts of an earlier split that bear this name."""
    import glob

    stem, suffix = os.path.splitext(target)
    number = "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]"
    patterns = (glob.escape(target) + number, glob.escape(stem) + number + glob.escape(suffix))
    return sorted(path for pattern in patterns for path in glob.glob(pattern))


@contextlib.contextmanager
def standard_output(what: str = "binary data") -> Iterator[Any]:
    """Where bytes go that are piped onwards: never a terminal."""
    if sys.stdout.isatty():
        raise UsageError(f"{what} does not go to a terminal: pipe it into something, or name a file")
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def format_name(text: str | None) -> str | None:
    """A format by its name or by a suffix of its files: torchfile is pt as well."""
    if text is None:
        return None
    from tensorbytes import formats

    return formats.get(text).name


def named_option(text: str) -> tuple[str, Any]:
    """key=value, where the value is JSON (a number, true, null, a list) or else text."""
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"{text!r}: expected key=value, such as level=9")
    return key, typed(value)


def format_options(pairs: Iterable[tuple[str, Any]], command: Callable[..., Any]) -> dict[str, Any]:
    """What --option says, which goes to a format: what the library's command takes itself is not for it."""
    from inspect import signature

    options = dict(pairs)
    own = [name for name in signature(command).parameters if name in options]
    if own:
        raise UsageError(f"--option {own[0]}: no format has such an option; --help lists those of the command")
    return options


def typed(text: str) -> Any:
    """A value as it was meant: numbers, true, false, null (also in Python's words) and JSON; the rest is text."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    try:
        return json.loads(text, parse_constant=lambda word: word)
    except ValueError:
        return text


def quantizing(specs: list[str]) -> Any:
    """What --quantize says: a dtype and arguments of Quantize, for all tensors or for those of a pattern.

    int8    int4,group=32    max_error=0.001    'embed/*:int4,group=32'
    """
    given = [spec.rpartition(":") for spec in specs]
    if len(given) == 1 and not given[0][1]:
        return _quantize(specs[0])
    return {pattern or "*": _quantize(spec) for pattern, _, spec in given}


def _quantize(spec: str) -> Any:
    from tensorbytes.quantization import Quantize

    words = [word.partition("=") for word in spec.split(",")]
    arguments: dict[str, Any] = {
        "dtype" if not equals else key: key if not equals else typed(value) for key, equals, value in words
    }
    known = set(Quantize.__dataclass_fields__)
    if len(arguments) < len(words) or not arguments.keys() <= known:
        raise UsageError(f"--quantize {spec}: expected such as int8, int4,group=32 or max_error=0.001")
    return Quantize(**arguments)


def byte_count(text: str) -> int:
    """A number of bytes: 500MB, 1.5GiB, 4096."""
    number = text.rstrip("BbKkMmGgTtIi ")
    unit = text[len(number) :].strip().lower().removesuffix("b")
    powers = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    powers |= {f"{name}i": 1 << 10 * power for power, name in enumerate(("k", "m", "g", "t"), 1)}
    try:
        size = int(float(number) * powers[unit])
    except (ValueError, KeyError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of bytes, such as 500MB or 2GiB") from None
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected at least one byte")
    return size


def paragraph(text: str, out: Output, indent: str = "") -> None:
    """A text in lines that the terminal does not have to break."""
    import textwrap

    for line in textwrap.wrap(
        text, min(out.width, 100), initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False
    ):
        out.line(line)
