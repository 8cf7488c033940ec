"""tb head: the first values of each tensor, the first records, the first objects of a stream."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import islice
from math import prod
from typing import Any

from tensorbytes.cli.files import InputFile, for_each_named
from tensorbytes.cli.output import Cell, Heading, Output
from tensorbytes.cli.reading import names_argument, read_options, reading_arguments, whole_number
from tensorbytes.cli.words import DIM, name_cell, shape_text

EXAMPLES = """examples:
  tb head model.safetensors             the first values of each tensor
  tb head train.tfrecord -n 2           the first two records
  tb head train.tfrecord --names label  only this feature
  tb head model.pt::head.bias -n 20     only this tensor, more of it
  tb head events.out.tfevents.* --json | jq .value"""

# An array in a record is given in full up to this many elements in JSON, and by its first ones beyond.
_MOST_IN_FULL = 100
_DEFAULT = 5
_MOST_TENSORS = 60


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, globs, folders, URLs, or - for stdin")
    many = f"N values of each tensor, or N records ({_DEFAULT})"
    parser.add_argument("-n", type=whole_number(1), default=_DEFAULT, dest="count", metavar="N", help=many)
    names_argument(parser, "tensors, features or tags")
    parser.add_argument("-a", "--all", action="store_true", help="all tensors of a file that has very many")
    reading_arguments(parser)


def run(args: argparse.Namespace, out: Output) -> int:
    def look(file: InputFile, names: list[str] | None, several: bool) -> int:
        if several and not out.json:
            out.line(Cell(file.shown, "bold"))
        args.names = names
        return _head(file, args, out)

    return for_each_named(args.files, args.names, out, look)


def _head(file: InputFile, args: argparse.Namespace, out: Output) -> int:
    from tensorbytes import opening
    from tensorbytes.cli import selecting
    from tensorbytes.formats.tfrecord.kinds import EVENTS
    from tensorbytes.ops.addressing import Address
    from tensorbytes.ops.selection import Selection

    selection = Selection(args.names, None)
    path, options = file.path, read_options(args)
    opened = opening.open_file(path, args.format, options=options)
    if opened.holds_records:
        found = selecting.select(Address(path), args.format, options)
        assert isinstance(found, selecting.SelectedRows)
        if opened.kind == EVENTS:
            rows = ((at, row) for at, row in found.rows if selection.takes(row["tag"]))
        else:
            rows = ((at, _chosen(row, selection)) for at, row in found.rows)
        _show_rows(found.noun, rows, file, selection, args, out)
        return 0
    if opened.rows:
        first = next(opened.tables(args.count, selection.takes if args.names else None), None)
        made = selecting.table_rows(first) if first else []
        _show_rows("row", iter(enumerate(made)), file, selection, args, out)
        return 0
    documents = opened.documents()
    some = list(islice(documents, 2))
    if len(some) > 1:
        every = (document for part in (some, documents) for document in part)
        rows = ((at, _chosen(selecting.restored(document, path), selection)) for at, document in enumerate(every))
        _show_rows("object", rows, file, selection, args, out)
    elif some:
        leaves = [leaf for leaf in some[0].leaves if selection.takes(leaf.name)]
        _check(selection, args, file)
        _show_tensors(leaves, file, args, out)
        return 0
    _check(selection, args, file)
    return 0


def _check(selection: Any, args: argparse.Namespace, file: InputFile) -> None:
    if args.names:
        selection.check_used(file.shown)


def _chosen(row: Any, selection: Any) -> Any:
    return {name: value for name, value in row.items() if selection.takes(name)} if isinstance(row, Mapping) else row


# ---- tensors --------------------------------------------------------------------------


def _show_tensors(leaves: list[Any], file: InputFile, args: argparse.Namespace, out: Output) -> None:
    from tensorbytes.cli import values
    from tensorbytes.reader import Entry

    if out.json:
        for leaf in leaves:
            entry = Entry(leaf, lambda value: value, file.path)
            about = {"path": file.shown, "name": entry.name, "kind": entry.kind, "dtype": entry.dtype}
            about |= {"python": leaf.kind} if leaf.kind else {}
            first = None if leaf.kind == "object" else values.plain(_first(leaf, args.count, file.path))
            out.item(about | {"shape": entry.shape, "first": first})
        return
    shown = leaves if args.all or args.names else leaves[:_MOST_TENSORS]
    entries = [Entry(leaf, lambda value: value, file.path) for leaf in shown]
    kinds = [_kind(leaf, entry) for leaf, entry in zip(shown, entries, strict=True)]
    plain = [leaf.kind not in ("", "numpy") for leaf in shown]
    shapes = ["" if each else shape_text(entry.shape) for entry, each in zip(entries, plain, strict=True)]
    # What the other columns leave of a line, so that each tensor has one.
    widest = min(max(len(str(entry.name)) for entry in entries), 40) if entries else 0
    taken = widest + max(map(len, kinds), default=0) + max(map(len, shapes), default=0) + 6
    room = max(min(out.width, 200) - taken, 24)
    rows: list[list[str | Cell]] = []
    for leaf, entry, kind, shape in zip(shown, entries, kinds, shapes, strict=True):
        if leaf.kind in ("none", "dict", "list", "tuple"):
            begin = "none" if leaf.kind == "none" else f"(an empty {leaf.kind})"
        elif leaf.kind == "object":
            begin = "(not read)"
        else:
            few = _texts(_first(leaf, args.count, file.path), room)
            if leaf.kind.endswith(("int", "int]")):
                few = [text.strip('"') for text in few]  # integers beyond 64 bits are stored as text
            begin = _fitted(
                few, room, entry.kind in ("tensor", "strings") and prod(size or 0 for size in entry.shape) > len(few)
            )
        rows.append([name_cell(entry.name), Cell(kind, DIM), Cell(shape, DIM), begin])
    columns = [Heading("name", fold=True, least=20), Heading("dtype", drop=2), Heading("shape", drop=1)]
    if rows:
        out.table([*columns, Heading("first values", fold=True, least=24)], rows)
    if len(shown) < len(leaves):
        out.line(Cell(f"and {len(leaves) - len(shown):,} more (tb head --all, or --names)", DIM))


def _kind(leaf: Any, entry: Any) -> str:
    """The dtype of a tensor, the type of a plain value."""
    if leaf.kind not in ("", "numpy", "object"):
        return str(leaf.kind)
    return f"{entry.dtype}{'' if entry.kind in ('tensor', 'strings', 'object') else f' {entry.kind}'}"


def _fitted(items: list[str], room: int, more: bool) -> str:
    """As many as there is room for."""
    text, count = "", 0
    for item in items:
        longer = f"{text} {item}".lstrip()
        if count and len(longer) > room - 4:
            break
        text, count = longer, count + 1
    return text + (" ..." if more or count < len(items) else "")


def _texts(few: Any, most: int) -> list[str]:
    """The first values, each shortened: floats to as many digits as one looks at."""
    import numpy as np

    from tensorbytes.cli import values

    if isinstance(few, np.ndarray) and few.dtype.kind == "f":
        return [f"{item:.5g}" for item in few.tolist()]
    if isinstance(few, np.ndarray) and few.dtype.kind not in "OTUS":
        return values.texts(few)
    return [values.brief(item, most) for item in (few.tolist() if isinstance(few, np.ndarray) else few)]


def _first(leaf: Any, count: int, path: str) -> Any:
    """The first elements in C order, as a flat array; of a ragged value the first rows, of a sparse one what it stores.

    No more of the file is read than they need.
    """
    import numpy as np

    from tensorbytes.cli import values
    from tensorbytes.io.storage import naming
    from tensorbytes.tensor import Ragged, Sparse

    kind, _, shape, _ = leaf.header
    with naming(path):
        if kind == "tensor" and shape:
            # The smallest block at the front that holds this many.
            index: list[Any] = []
            left = count
            for size in reversed(shape):
                index.insert(0, slice(0, max(min(left, size or 0), 1)))
                left = -(-left // max(size or 1, 1))
            value = leaf.part(tuple(_leading(index, shape)))
        else:
            value = leaf.read()
    if isinstance(value, Ragged):
        return value.rows()[:count]
    if isinstance(value, Sparse):
        return values.elements(value.values).reshape(-1)[:count]
    array = values.elements(value)
    first = next(values.flat_blocks(array, max(count, 1)), np.empty(0, array.dtype))
    return first[:count]


def _leading(index: list[Any], shape: tuple[int | None, ...]) -> Iterator[Any]:
    """An axis is cut only if all before it are cut to their first step: else the elements were not the first ones."""
    for at, step in enumerate(index):
        alone = all(before.stop == 1 for before in index[:at])
        yield step if alone else slice(0, shape[at])


# ---- records, objects, events ---------------------------------------------------------


def _show_rows(
    noun: str,
    rows: Iterator[tuple[int, Any]],
    file: InputFile,
    selection: Any,
    args: argparse.Namespace,
    out: Output,
) -> None:
    for number, row in _with_names(islice(rows, args.count), file, selection, args):
        if out.json:
            key = "values" if noun != "event" else "event"
            about = {"path": file.shown, noun: number}
            out.item(about | (_shortened(row) if key == "event" else {"values": _shortened(row)}))
        else:
            _block(noun, number, row, out)


def _with_names(
    rows: Iterator[tuple[int, Any]], file: InputFile, selection: Any, args: argparse.Namespace
) -> Iterator[tuple[int, Any]]:
    """The rows once every name that was asked for was met: a misspelt one shows nothing but the error."""
    held = []
    for row in rows:
        held.append(row)
        if not (args.names and selection.unused):
            yield from held
            held = []
    _check(selection, args, file)
    yield from held


def _block(noun: str, number: int, row: Any, out: Output) -> None:
    """A record, a line for each of its values."""
    from tensorbytes.cli import values
    from tensorbytes.cli.output import escaped, width

    if noun == "event":
        head = f"step {row['step']}  {row['tag']}".rstrip()
        out.line(
            Cell(head, "bold"), Cell(f"  {row['kind']}  ", DIM), values.brief(row["value"], max(out.width - 30, 20))
        )
        return
    out.line(Cell(f"{noun} {number}", "bold"))
    if not isinstance(row, Mapping):
        out.line("  ", values.brief(row, max(min(out.width, 200) - 2, 20)))
        return
    widest = min(max((width(escaped(str(name))) for name in row), default=0), 40)
    about = [(str(name), _about(value), value) for name, value in row.items()]
    broad = max((len(kind) for _, kind, _ in about), default=0)
    room = max(min(out.width, 200) - widest - broad - 6, 20)
    for name, kind, value in about:
        gap = " " * max(widest - width(escaped(name)), 0)
        out.line("  ", Cell(name), gap, "  ", Cell(f"{kind:<{broad}}", DIM), "  ", values.brief(value, room))


def _about(value: Any) -> str:
    """The dtype and shape of a value of a record."""
    import numpy as np

    from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor

    if isinstance(value, Tensor | np.ndarray | Sparse):
        held = value.values if isinstance(value, Sparse) else value
        dtype = getattr(held, "dtype", "string")
        named = "string" if str(dtype) == "object" else str(dtype)
        return f"{named}{shape_text(value.shape) if value.shape else ''}"
    if isinstance(value, Strings):
        return f"string{shape_text(value.shape) if value.shape else ''}"
    if isinstance(value, Ragged):
        return f"ragged[{len(value)}]"
    if isinstance(value, np.generic):
        return str(value.dtype)
    if isinstance(value, list | tuple):
        return f"list[{len(value)}]"
    return {"str": "text", "NoneType": "none"}.get(type(value).__name__, type(value).__name__)


def _shortened(value: Any) -> Any:
    """A value of a record for JSON; of what is large, what it is and its beginning."""
    import numpy as np

    from tensorbytes.cli import values
    from tensorbytes.cli.contents import looks_like
    from tensorbytes.tensor import Strings, Tensor

    if isinstance(value, Mapping):
        return {str(key): _shortened(item) for key, item in value.items()}
    if isinstance(value, Tensor | Strings):
        value = values.elements(value)
    if isinstance(value, bytes):
        kind = looks_like(value)
        text = kind in ("text", "JSON") and len(value) <= 10 * _MOST_IN_FULL
        return values.plain(value) if text or not value else {"bytes": len(value), "content": kind}
    if isinstance(value, np.ndarray) and value.size > _MOST_IN_FULL:
        few = next(values.flat_blocks(value, 10))
        dtype = "string" if value.dtype == object else str(value.dtype)
        return {"dtype": dtype, "shape": list(value.shape), "first": values.plain(few)}
    if isinstance(value, list | tuple):
        return [_shortened(item) for item in value[:_MOST_IN_FULL]]
    if hasattr(value, "_asdict") or hasattr(value, "__dataclass_fields__"):
        fields = (
            value._asdict()
            if hasattr(value, "_asdict")
            else {key: getattr(value, key) for key in value.__dataclass_fields__}
        )
        return _shortened(fields)
    return values.plain(value)
