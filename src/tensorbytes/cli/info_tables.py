"""How `tb info` shows the inside of one file: the tree of a checkpoint, the schema of records, the tags of events."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from tensorbytes.cli import tree
from tensorbytes.cli.drawing import bar, percent
from tensorbytes.cli.output import Cell, Heading, Output, json_text, size_text
from tensorbytes.cli.words import DIM, count_text, held_text, many, name_cell, range_text, shape_text, shortened
from tensorbytes.formats.tfrecord.kinds import EVENTS, EXAMPLES
from tensorbytes.ops.inspection import Inspection, TensorInfo

# More lines than this are no longer taken in; --all shows them.
_MOST_LINES = 60
_MOST_FACTS = 12
_MOST_LETTERS = 200


def amount(result: Inspection) -> str:
    """How many numbers there are, and of which dtype if it is one."""
    tensors = [tensor for tensor in result.tensors if tensor.kind == "tensor" and tensor.nbytes and not tensor.python]
    if result.lists_records or len(tensors) < 2 or not result.listed_all:
        return ""
    from math import prod

    total = sum(prod(size or 0 for size in tensor.shape) for tensor in tensors)
    kinds = Counter(tensor.dtype for tensor in tensors)
    return f"{count_text(total)} numbers" + (f" of {next(iter(kinds))}" if len(kinds) == 1 else "")


def is_plain(result: Inspection) -> bool:
    """Whether the file is one tensor without a name, of which a few words say everything."""
    return not result.lists_records and result.objects == len(result.tensors) == 1 and not result.tensors[0].name


def facts(result: Inspection, out: Output) -> None:
    """Metadata and other particulars, a line each."""
    known = [(key, text, "") for key, text in result.details.items() if key != "damage"]
    if "damage" in result.details:
        hint = "" if result.format != EXAMPLES else "; tb verify tells of all of it, tb repair keeps the rest"
        known.insert(0, ("damage", result.details["damage"] + hint, "red"))
    known += [(key, text, "") for key, text in result.told_meta.items()]
    if len(result.files) > 1:
        known.append(("files", many(len(result.files), "file"), ""))
    if result.sampled is not None:
        item, _ = result.units
        whole = not result.lists_records or "damage" in result.details
        hint = "" if whole else " (--scan all looks at every one)"
        known.append(("looked at", f"the first {many(result.sampled, item)}{hint}", ""))
    for key, text, style in known[:_MOST_FACTS]:
        out.line("  ", Cell(f"{key}: ", DIM), Cell(shortened(str(text), _MOST_LETTERS), style))
    if len(known) > _MOST_FACTS:
        out.line("  ", Cell(f"and {len(known) - _MOST_FACTS} more (--json has all)", DIM))


def show(result: Inspection, args: argparse.Namespace, out: Output) -> None:
    if not result.tensors or (is_plain(result) and not result.tensors[0].stored):
        return
    out.line()
    if result.format == EVENTS:
        _tags(result, args, out)
    elif result.lists_records:
        _features(result, args, out)
    elif result.objects != 1 and not args.flat:
        _stream(result, args, out)
    else:
        _tensors(result, args, out)


# ---- checkpoints ------------------------------------------------------------------


def _tensors(result: Inspection, args: argparse.Namespace, out: Output) -> None:
    whole = args.all or args.flat
    total = sum(tensor.nbytes or 0 for tensor in result.tensors if not tensor.python)
    if args.flat:
        rows = [(name_cell(tensor.name), tensor) for tensor in result.tensors]
        _table([[name, *_cells(tensor, total, out)] for name, tensor in rows], out)
        _more(0, result, out)
        return
    root = tree.build(result.tensors)
    if not whole:
        tree.fold_alike(root)
    depth = args.depth or (1_000 if whole else tree.depth_that_fits(root, _MOST_LINES))
    lines = list(tree.lines(root, depth, out.drawable))
    shown = lines if whole or args.depth else lines[:_MOST_LINES]
    _table([_line(line, total, out) for line in shown], out)
    hidden = [line.node for line in lines[len(shown) :] if line.folded or not line.node.children]
    left = sum(node.tensors + node.values for node in hidden)
    _more(left, result, out)
    if not left and not args.depth and any(line.folded for line in shown):
        out.line(Cell("deeper levels are left out (--depth N, or --all for every tensor)", DIM))


def _line(line: tree.Line, total: int, out: Output) -> list[str | Cell]:
    node = line.node
    name = f"{line.guides}{node.name.rstrip('./') or node.name or '(no name)'}"
    if node.tensor is not None and not node.children:
        # Of those that stand for others, the size of all.
        known = node.tensor.nbytes is not None
        own = replace(node.tensor, nbytes=node.nbytes if known else None, stored_nbytes=node.stored or None)
        return [name, *_cells(own, total, out)]
    alike = Cell(f"{node.alike} alike", DIM) if node.alike > 1 else Cell("")
    held = Cell(held_text(node.tensors, node.values), DIM)
    shares = _share(min(node.nbytes, total), total, out) if node.tensors else ["", ""]
    size = size_text(node.nbytes) if node.tensors else ""
    return [Cell(name, "bold"), alike, held, "", size, *shares, size_text(node.stored or None), ""]


def _cells(tensor: TensorInfo, total: int, out: Output) -> list[str | Cell]:
    if tensor.kind == "object":
        return [tensor.dtype, Cell("not read", DIM), "", "", "", "", "", ""]
    size = "?" if tensor.nbytes is None else size_text(tensor.nbytes)
    shares = _share(tensor.nbytes or 0, total, out)
    # The error of a quantization comes after a comma.
    how = tensor.stored if out.width >= 120 else tensor.stored.partition(",")[0]
    stored = size_text(tensor.stored_nbytes) if tensor.stored else ""
    if tensor.python:
        spelled = value_text(tensor, out)
        shape = spelled or (shape_text(tensor.shape) if tensor.shape else "")
        return [kind_text(tensor), shape, "", "" if spelled else size, "", "", "" if spelled else stored, ""]
    return [kind_text(tensor), shape_text(tensor.shape), _nulls(tensor), size, *shares, stored, Cell(how, DIM)]


def _nulls(tensor: TensorInfo) -> str | Cell:
    """How many of its elements are missing, where any may be."""
    if tensor.nulls is None:
        return ""
    return Cell(f"{tensor.nulls:,}{'' if tensor.nulls_exact else ' or more'}", "yellow" if tensor.nulls else DIM)


def value_text(tensor: TensorInfo, out: Output) -> str:
    """= 12: what a plain value is, if that is known and short."""
    if not tensor.python or (tensor.value is None and tensor.python != "none"):
        return ""
    from tensorbytes.cli.values import json_like

    value = tensor.value
    if isinstance(value, str):
        text = json_like(value) if tensor.python == "str" else value  # others are spelled as Python does
    else:
        text = "none" if value is None else repr(value) if isinstance(value, float) else json_text(value)
    return f"= {shortened(text, max(min(out.width // 4, 48), 12))}"


def kind_text(tensor: TensorInfo) -> str:
    """The dtype of a tensor, the type of a plain value."""
    if tensor.python and tensor.python != "numpy":
        return tensor.python
    return tensor.dtype + ("" if tensor.kind in ("tensor", "strings") else f" {tensor.kind}")


def _share(part: int, total: int, out: Output) -> list[str | Cell]:
    """How much of the whole it is: in per cent, and as a bar."""
    length = 16 if out.width >= 110 else 8
    return [Cell(percent(part, total), DIM), Cell(bar(part / total if total else 0, length, out.drawable), "cyan")]


def _table(rows: Sequence[Sequence[str | Cell]], out: Output) -> None:
    columns = [
        Heading("name", fold=True, least=30),
        Heading("dtype", drop=1),
        Heading("shape"),
        Heading("null", right=True, drop=2),
        Heading("size", right=True),
        Heading("share", right=True, drop=4),
        Heading("", drop=3),
        Heading("stored", right=True, drop=2),
        Heading("as", drop=5),
    ]
    _trimmed(columns, rows, out, {5, 6} if len(rows) == 1 else set())


def _text(cell: str | Cell) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def _trimmed(
    columns: Sequence[Heading], rows: Sequence[Sequence[str | Cell]], out: Output, dropped: set[int] | None = None
) -> None:
    """The table without the columns that are empty, or that there is no room for."""
    kept = [at for at in range(len(columns)) if at not in (dropped or ()) and any(_text(row[at]) for row in rows)]
    out.table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _more(left: int, result: Inspection, out: Output) -> None:
    if not result.listed_all:
        out.line(Cell("and more, which are not listed", DIM))
    elif left:
        out.line(Cell(f"and {left:,} more (tb info --all)", DIM))


# ---- streams ----------------------------------------------------------------------


def _stream(result: Inspection, args: argparse.Namespace, out: Output) -> None:
    """Each name once: in how many objects it is, and what its tensors have in common."""
    groups: dict[str | None, list[TensorInfo]] = {}
    for tensor in result.tensors:
        groups.setdefault(tensor.name, []).append(tensor)
    shown = list(groups.items())[: None if args.all else _MOST_LINES]
    rows: list[list[str | Cell]] = []
    for name, tensors in shown:
        kinds = dict.fromkeys(map(kind_text, tensors))
        size = sum(tensor.nbytes or 0 for tensor in tensors)
        times = f"{len(tensors):,}" if result.listed_all else ""
        rows.append([name_cell(name), ", ".join(kinds), _common_shape(tensors), times, size_text(size)])
    columns = [Heading("name", fold=True, least=20), Heading("dtype"), Heading("shape")]
    _trimmed([*columns, Heading("times", right=True, drop=2), Heading("size", right=True, drop=1)], rows, out)
    _more(len(groups) - len(shown), result, out)


def _common_shape(tensors: Sequence[TensorInfo]) -> str:
    """[8, 4..39, 4..39]: the sizes that all have in common, and between which the others are."""
    if all(tensor.python and not tensor.shape for tensor in tensors):
        return ""
    ranks = {len(tensor.shape) for tensor in tensors}
    if len(ranks) > 1:
        return f"{min(ranks)}..{max(ranks)} dimensions"
    sizes = []
    for axis in zip(*(tensor.shape for tensor in tensors), strict=True):
        known = [size for size in axis if size is not None]
        sizes.append("?" if len(known) < len(axis) else range_text((min(known), max(known))).replace(",", ""))
    return f"[{', '.join(sizes)}]"


# ---- records ----------------------------------------------------------------------


def _features(result: Inspection, args: argparse.Namespace, out: Output) -> None:
    looked = result.sampled if result.sampled is not None else result.objects or 0
    shown = result.tensors if args.all or args.flat else result.tensors[:_MOST_LINES]
    rows: list[list[str | Cell]] = []
    for feature in shown:
        name = Cell("each record") if feature.kind == "record" else name_cell(feature.name)
        kind = feature.dtype + (shape_text(feature.shape) if feature.shape else "")
        present = percent(feature.present or 0, looked)
        missing = feature.kind != "record" and feature.present != looked
        steps = "" if feature.steps is None else range_text(feature.steps)
        lengths = "" if feature.lengths is None else range_text(feature.lengths)
        sizes = "" if feature.sizes is None else _size_range(feature.sizes)
        rows.append(
            [name, kind, Cell(present, "yellow" if missing else ""), steps, lengths, sizes, Cell(feature.content, DIM)]
        )
    columns = [Heading("feature", fold=True, least=20), Heading("type"), Heading("present", right=True, drop=1)]
    columns += [
        Heading("steps", right=True),
        Heading("values", right=True, drop=3),
        Heading("bytes", right=True, drop=4),
    ]
    _trimmed([*columns, Heading("looks like", fold=True, drop=5)], rows, out)
    _more(len(result.tensors) - len(shown), result, out)


def _size_range(bounds: tuple[int, int]) -> str:
    low, high = (size_text(size) for size in bounds)
    if low == high:
        return low
    return f"{low.removesuffix(' ' + high.split()[-1])}..{high}"  # 3..12 kB


# ---- events -----------------------------------------------------------------------


def _tags(result: Inspection, args: argparse.Namespace, out: Output) -> None:
    shown = result.tensors if args.all or args.flat else result.tensors[:_MOST_LINES]
    rows: list[list[str | Cell]] = []
    for tag in shown:
        kind = tag.dtype if tag.dtype == tag.kind else f"{tag.kind} {tag.dtype}".strip()
        shape = shape_text(tag.shape) if tag.shape else ""
        steps = "" if tag.steps is None else range_text(tag.steps)
        rows.append([name_cell(tag.name), kind, shape, f"{tag.present or 0:,}", steps])
    columns = [Heading("tag", fold=True, least=20), Heading("kind"), Heading("shape", drop=2)]
    _trimmed([*columns, Heading("events", right=True), Heading("steps", right=True, drop=1)], rows, out)
    _more(len(result.tensors) - len(shown), result, out)
