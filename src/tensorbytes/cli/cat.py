"""tb cat: a tensor, a slice of it, or records, as text, JSON or the bytes of a format."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

from tensorbytes.cli.files import STDIN_NAMES, InputFile, as_shown, expand, input_files, local
from tensorbytes.cli.output import Output, escaped, json_text
from tensorbytes.cli.progress import Progress, Silent
from tensorbytes.cli.reading import read_options, reading_arguments
from tensorbytes.cli.writing import STDOUT, check_free
from tensorbytes.errors import UsageError

EXAMPLES = """examples:
  tb cat 'model.tb::w[0:4, :]'          some rows, with every digit that counts
  tb cat x.npy --json | jq .values      an object with the values
  tb cat 'train.tfrecord::#3'           a record; ::#-1 is the last one
  tb cat 'train.tfrecord::label'        one feature of all records
  tb cat 'model.tb::w[0]' --as npy -o w.npy
                                        any format that holds a tensor
  tb cat model.tb::w --as raw --byteorder '>' | xxd | head

Only what is named is read. JSON has no NaN and no infinities: they are the
strings "NaN", "Infinity" and "-Infinity". Complex numbers are pairs, bytes
that are not text {"base64": ...}. Brackets and stars mean something to
shells: put what has them in quotes."""

_HELD_BYTES = 1 << 18
_TEXTS = ("text", "json", "csv")
_ORDERS = ("order", "byteorder")
# What a format that has no place for it may leave out, since it was asked for by name.
_BARE = frozenset({"name", "meta", "kind", "encoding", "numpy.dtype"})


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument(
        "addresses", nargs="+", metavar="FILE::NAME[INDEX]", help="what to show; one tensor needs no name"
    )
    parser.add_argument("--as", dest="form", metavar="FORM", help="text (the default), json, csv, raw, npy, tb ...")
    parser.add_argument(
        "-o", "--output", metavar="PATH", help="write to a file, which appears when it is whole; - for stdout"
    )
    parser.add_argument("-f", "--force", action="store_true", help="replace the file; send bytes to a terminal")
    parser.add_argument("--order", choices=("C", "F"), help="of raw: rows first, or columns")
    parser.add_argument("--byteorder", choices=("<", ">"), help="of raw: little- or big-endian")
    reading_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    form = args.form or ("json" if out.json else "text")
    _check_form(form, args, out)
    target = None if args.output in (None, STDOUT) else local(args.output)
    check_free([] if target is None else [target], args.force)
    made = (piece for address in args.addresses for piece in _pieces(address, form, args))
    pieces = (piece.encode("utf-8", "backslashreplace") if isinstance(piece, str) else piece for piece in made)
    args.bar = Silent()
    if target is None:
        for piece in _gathered(pieces):
            out.raw(piece)
        return 0
    from tensorbytes.io import storage

    with out.progress(target) as bar:
        args.bar = bar
        storage.write(target, _counted(pieces, bar), sync=False)
    return 0


def _counted(pieces: Iterator[bytes | memoryview], bar: Progress | Silent) -> Iterator[bytes | memoryview]:
    """The pieces; the bar moves by their bytes, unless it is told of elements or rows."""
    done = 0
    for piece in pieces:
        yield piece
        done += len(piece)
        if bar.unit == "bytes":
            bar(done)


def _told(blocks: Iterable[Any], total: int, bar: Progress | Silent) -> Iterator[Any]:
    """The blocks of a tensor that becomes text: how long that will be is not known, how many elements there are is."""
    bar.unit, done = "values", 0
    for block in blocks:
        yield block
        done += block.size
        bar(done, total)


def _gathered(pieces: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """What is little comes at once, so that damage found on the way leaves no half of it; what is more, as it comes."""
    held: list[bytes | memoryview] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size > _HELD_BYTES:
            break
    yield b"".join(held)
    yield from pieces


def _check_form(form: str, args: argparse.Namespace, out: Output) -> None:
    from tensorbytes import formats
    from tensorbytes.errors import unknown

    if form not in _TEXTS and (form not in formats.BUILTIN or not formats.get(form).writes):
        raise unknown("form", form, (*_TEXTS, *formats.writable()))
    for key in _ORDERS:
        if getattr(args, key) and (form in _TEXTS or key not in formats.get(form).write_options):
            takes = [name for name in formats.writable() if key in formats.get(name).write_options]
            raise UsageError(f"--{key} is for --as {' or '.join(takes)}")
    if form in _TEXTS:
        return
    chosen = formats.get(form)
    if chosen.several_files:
        raise UsageError(f"{form} makes several files: use tb convert --names")
    if len(args.addresses) > 1 and chosen.self_describing:  # bare elements may follow one another
        raise UsageError(f"{len(args.addresses)} tensors don't make one {form} file: use tb convert --names")
    if args.output in (None, STDOUT) and out.terminal and not args.force:
        raise UsageError(f"{form} is binary, and this is a terminal: pipe it, pass -o FILE, or --force")


def _pieces(text: str, form: str, args: argparse.Namespace) -> Iterator[str | bytes | memoryview]:
    """What is written for one address, piece by piece."""
    from tensorbytes.cli import selecting
    from tensorbytes.ops.addressing import Address, parse_address

    address = parse_address(text)
    with _input_file(address.path) as file:
        named = Address(file.path, address.name, address.index, address.number)
        try:
            try:
                found = selecting.select(named, args.format, read_options(args))
            except selecting.AllOfAStream:
                found = selecting.objects(file.path, args.format, read_options(args))
            if isinstance(found, selecting.SelectedRows):
                yield from _rows(found, form, args, file.shown)
            else:
                yield from _part(found, form, args, file.shown)
        except UsageError as error:
            # What came through the pipe is in a file of which nobody knows the name.
            raise as_shown(error, file) from None


class _input_file:
    """The one file that an address names."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._several = input_files([path]) if path in STDIN_NAMES else None

    def __enter__(self) -> InputFile:
        if self._several is not None:
            return self._several.__enter__()[0]
        found = expand(self._path)
        if len(found) > 1:
            raise UsageError(f"{self._path} stands for {len(found)} files: cat takes one at a time")
        return InputFile(found[0], found[0])

    def __exit__(self, *error: Any) -> None:
        if self._several is not None:
            self._several.__exit__(*error)


# ---- one tensor -----------------------------------------------------------------------


def _part(part: Any, form: str, args: argparse.Namespace, shown: str) -> Iterator[str | bytes | memoryview]:
    from tensorbytes.cli import values

    if form not in _TEXTS:
        yield from _encoded(part.value(), form, args)
    elif form == "json":
        about = {"path": shown, "name": part.name, "kind": part.kind, "dtype": part.dtype, "shape": part.shape}
        yield json_text(about)[:-1] + ', "values": '
        if part.blocks is None:
            yield json_text(values.plain(part.value()))
        else:
            yield from values.write_json(part.shape, _told(part.blocks(), prod(part.shape), args.bar))
        yield "}\n"
    elif part.blocks is None:
        yield from _uneven_lines(part.value(), form, shown)
    else:
        if form == "csv" and len(part.shape) > 2:
            raise UsageError(f"{shown}: CSV has two dimensions, and this {len(part.shape)}: take a slice such as [0]")
        separator = "," if form == "csv" else " "
        blocks = _told(part.blocks(), prod(part.shape), args.bar)
        yield from values.write_lines(part.shape, blocks, separator, quote=form == "csv")


def _uneven_lines(value: Any, form: str, shown: str) -> Iterator[str]:
    """A ragged value row by row, a sparse one entry by entry."""
    from tensorbytes.cli import values
    from tensorbytes.tensor import Sparse

    if form == "csv" and not isinstance(value, Sparse):
        raise UsageError(f"{shown}: rows of different lengths can't be CSV: use --as json")
    separator = "," if form == "csv" else " "
    if not isinstance(value, Sparse):
        yield from _ragged_lines(value.rows())
        return
    coordinates = value.to_coo()
    held = values.elements(coordinates.values)
    for at, place in enumerate(coordinates.parts[0].tolist()):
        items = values.texts(held[at : at + 1].reshape(-1))
        yield separator.join([*map(str, place), *(map(values.quoted, items) if form == "csv" else items)]) + "\n"


def _ragged_lines(rows: Iterable[Any], level: int = 0) -> Iterator[str]:
    from tensorbytes.cli import values

    for number, row in enumerate(rows):
        if isinstance(row, list):
            yield "\n" if number else ""
            yield from _ragged_lines(row, level + 1)
        elif row.ndim == 1:
            yield " ".join(values.texts(row)) + "\n"
        else:
            yield "\n" if number else ""
            yield from values.write_lines(row.shape, values.flat_blocks(row), " ")


def _encoded(value: Any, form: str, args: argparse.Namespace) -> Iterable[bytes | memoryview]:
    from tensorbytes import formats
    from tensorbytes.tensor import amended
    from tensorbytes.tree import Document, Leaf

    options = {key: getattr(args, key) for key in _ORDERS if getattr(args, key)}
    chosen = formats.get(form)
    if chosen.nameless:
        value = amended(value, None, {}, {key: text for key, text in value.origin.items() if key == "numpy.dtype"})
    made: Iterable[Any] = chosen.encode(Document([Leaf(value)]), _BARE, options)
    return made


# ---- records, objects, events ---------------------------------------------------------


def _rows(found: Any, form: str, args: argparse.Namespace, shown: str) -> Iterator[str | bytes | memoryview]:
    from tensorbytes.cli import values

    if form not in _TEXTS:
        if found.together is None:
            raise UsageError(
                f"{shown}: a {found.noun} is not a single tensor, so there is no {form} of it: name a feature"
            )
        yield from _encoded(found.together(), form, args)
        return
    args.bar.unit = f"{found.noun}s"
    for done, (number, row) in enumerate(found.rows):
        args.bar(done)
        if form == "json":
            key = "value" if found.column is not None else "values"
            yield json_text({"path": shown, found.noun: number, key: values.plain(row)}) + "\n"
        elif found.column is not None:
            yield (_fields(row, shown) if form == "csv" else _line(row)) + "\n"
        elif form == "csv":
            raise UsageError(f"{shown}: {found.noun}s can't be CSV: name one feature, or use --as json")
        else:
            yield from _block(found.noun, number, row)


def _line(row: Any) -> str:
    """One value of a column on one line."""
    import numpy as np

    from tensorbytes.cli import values

    if row is None:
        return ""
    if isinstance(row, bytes | str):
        row = np.array(row, object)
    if isinstance(row, list):
        return json_text(values.plain(row))
    array = np.asarray(row)
    return " ".join(values.texts(array.reshape(-1))) if array.ndim < 2 else json_text(values.plain(array))


def _fields(row: Any, shown: str) -> str:
    """One value of a column as a line of CSV, a field for each element; none if there is no value."""
    import numpy as np

    from tensorbytes.cli import values

    if row is None:
        return ""
    strings = isinstance(row, bytes | str) or (isinstance(row, list) and all(isinstance(x, bytes | str) for x in row))
    if isinstance(row, list) and not strings:
        raise UsageError(f"{shown}: rows of rows can't be CSV: use --as json")
    array = np.array(row, object) if strings else np.asarray(row)
    if array.ndim > 1:
        raise UsageError(f"{shown}: a line of CSV has one dimension, and these values {array.ndim}: use --as json")
    return ",".join(map(values.quoted, values.texts(array.reshape(-1))))


def _block(noun: str, number: int, row: Any) -> Iterator[str]:
    """A record as lines of names and values, all of each value."""
    from tensorbytes.cli import values

    yield f"{noun} {number}\n"
    if not isinstance(row, dict):
        yield f"  {json_text(values.plain(row))}\n"
        return
    widest = max((len(escaped(str(name))) for name in row), default=0)
    for name, value in row.items():
        made = values.plain(value)
        text = values.json_like(made) if isinstance(made, str) else json_text(made)
        yield f"  {escaped(str(name)):<{widest}}  {text}\n"
