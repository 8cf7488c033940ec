"""What the commands that look into files have in common: how a file is to be read."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from tensorbytes.cli.writing import named_option


def reading_arguments(parser: argparse.ArgumentParser, options: bool = True) -> None:
    group = parser.add_argument_group("reading")
    group.add_argument("--from", dest="format", metavar="FORMAT", help="the format, where the bytes don't tell")
    if options:
        group.add_argument(
            "--read-option",
            action="append",
            default=[],
            type=named_option,
            metavar="KEY=VALUE",
            help="options of the format, such as dtype=float32 of raw (repeatable)",
        )


def names_argument(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--names", action="append", metavar="PATTERN", help=f"only such {what}: 'layer.*' (repeatable; also FILE::NAME)"
    )


def addressed(files: Sequence[str], names: list[str] | None) -> Iterator[tuple[list[str], list[str] | None]]:
    """The arguments, neighbours without a name of their own together, each with the names that count for it."""
    from tensorbytes.errors import UsageError
    from tensorbytes.ops.addressing import Address, parse_address

    plain: list[str] = []
    for argument in files:
        address = parse_address(argument) if "::" in argument else Address(argument)
        if address.index is not None or address.number is not None:
            raise UsageError(f"{argument}: only whole tensors can be named here; tb cat takes parts of them")
        if address.name is None:
            plain.append(address.path)
            continue
        if plain:
            yield plain, names
            plain = []
        yield [address.path], [*(names or []), address.name]
    if plain:
        yield plain, names


def read_options(args: argparse.Namespace) -> dict[str, Any]:
    return dict(args.read_option)


def whole_number(least: int) -> Any:
    """For argparse: a whole number of at least so much."""

    def number(text: str) -> int:
        try:
            value = int(text.replace("_", "").replace(",", ""))
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from {least} on")
        return value

    return number
