"""What notebooks show: small pieces of HTML for values and for the results of the tools."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from tensorbytes.errors import DamageWarning, TensorbytesError
from tensorbytes.formats.tfrecord.read.batch import Batch
from tensorbytes.formats.tfrecord.read.reader import Records
from tensorbytes.formats.tfrecord.schema import Schema
from tensorbytes.frameworks import to_value
from tensorbytes.ops import grouping
from tensorbytes.ops.difference import Difference, TensorDiff
from tensorbytes.ops.inspection import Inspection, TensorInfo
from tensorbytes.ops.outcomes import Repair, Verification
from tensorbytes.ops.parts import Parts
from tensorbytes.ops.report import Report
from tensorbytes.ops.statistics import Statistics, StatisticsByName
from tensorbytes.quantization.core import Quantized
from tensorbytes.reader import Entry, Reader
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.view import cells, style, values, words
from tensorbytes.view.sample import Size, resolved

# Lines of a table; a fragment stays small, whatever it is of.
_MOST_LINES = 60
_FIRST_ROWS = 5
_MOST_COLUMNS = 12
_TABLE_BYTES, _PART_BYTES = 14_000, 5_000
_FEW_NAMES = 10
_MOST_ENTRIES = 50
_MOST_WORDS = 4_000
# Pictures that are in the data of records, and one of them: photographs have 100 kB.
_PICTURES, _PICTURE = 300_000, 150_000


def html_of(value: Any) -> str:
    """A value, a Records object or the result of a tool as a piece of HTML: no script, no network.

    What is wrong with a value is said in the fragment, never raised: a notebook must not fail to show.
    """
    try:
        body = _body(value)
    except Exception as error:  # damage in a mapped file, a file that is gone
        body = _failure(value, error)
    return f'<div class="tbv"><style>{style.compact(style.VALUE)}</style>{body}</div>'


def _body(value: Any) -> str:
    for kinds, make in _MAKERS:
        if isinstance(value, kinds):
            return make(value)
    if type(value).__module__.startswith("tensorbytes.ops.benching"):
        return _bench(value)
    return _value(to_value(value))


def _failure(value: Any, error: Exception) -> str:
    what = escape(type(value).__name__)
    kind = "" if isinstance(error, TensorbytesError) else f"{type(error).__name__}: "
    return (
        f'<div class="tbv-head"><span class="tbv-name">{what}</span></div>'
        f'<p class="tbv-warn">It can\'t be shown: {words.escaped(kind + str(error), 600)}</p>'
    )


def head(title: str, line: str) -> str:
    return f'<div class="tbv-head"><span class="tbv-name">{title}</span><span class="tbv-kind">{line}</span></div>'


def table(columns: Sequence[str], lines: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """A table of cells that are HTML already; the first of each line is its heading."""

    def mark(place: int) -> str:
        return ' class="tbv-n"' if place in numeric else ""

    top = "".join(f"<th{mark(place)}>{label}</th>" for place, label in enumerate(columns))
    body = "".join(
        "<tr>"
        + f"<th>{line[0]}</th>"
        + "".join(f"<td{mark(place)}>{cell}</td>" for place, cell in enumerate(line[1:], 1))
        + "</tr>"
        for line in lines
    )
    return f'<div class="tbv-wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def fitting(lines: list[list[str]], room: int = _TABLE_BYTES) -> list[list[str]]:
    """The first lines of a table, as far as they take no more bytes than that."""
    for place, line in enumerate(lines):
        room -= sum(len(cell.encode()) for cell in line)
        if room < 0:
            return lines[:place]
    return lines


def bar(part: float, whole: float) -> str:
    return f'<span class="tbv-bar"><b style="width:{100 * part / whole if whole else 0:.1f}%"></b></span>'


def rest(total: int, shown: int, what: str) -> str:
    more = total - shown
    return f'<p class="tbv-note">and {words.many(more, what)} more</p>' if more > 0 else ""


# ---- values ---------------------------------------------------------------------


def _value(value: Value) -> str:
    title = words.name(value.name) if value.name else type(value).__name__
    return head(title, values.kind_line(value)) + values.show(value).body + _meta(value.meta)


def _entry(entry: Entry) -> str:
    leaf = entry._leaf
    value, note = resolved(leaf, Size())
    shape = entry.shape
    line = f"{escape(entry.dtype)} · {words.shape(shape)} · {words.amount(entry.nbytes)}"
    stored = entry.stored
    if stored is not None and stored.compression:
        line += f" · {escape(stored.compression)}, {words.amount(stored.nbytes)} stored"
    said = f'<p class="tbv-note">Sampled: {note}.</p>' if note else ""
    return head(words.name(entry.name), line) + values.show(value).body + said + _meta(entry.meta)


def _meta(meta: Any) -> str:
    if not meta:
        return ""
    shown = [f"{words.escaped(key, 60)}: {words.escaped(str(text), 120)}" for key, text in list(meta.items())[:8]]
    return f'<p class="tbv-note">{" · ".join(shown)}{" · " + words.ELLIPSIS if len(meta) > 8 else ""}</p>'


def _statistics(figures: Statistics) -> str:
    line = f"{escape(figures.dtype)}{'' if figures.kind in ('tensor', 'strings') else ' ' + escape(figures.kind)}"
    line += f" · {words.many(figures.count, 'value')}"
    more = [("rows", words.count(figures.rows))] if figures.rows is not None else []
    more += [("missing", words.count(figures.missing))] if figures.missing else []
    more += [("density", f"{figures.density:.3g}")] if figures.density is not None else []
    body = f'<div class="tbv-body">{values.facts_html(figures, more)}{values.histogram_html(figures)}</div>'
    if figures.frequent:
        at_least = "at least " if figures.approximate else ""
        lines = [[f"&quot;{words.escaped(text, 80)}&quot;", f"{at_least}{n:,}"] for text, n in figures.frequent]
        body += table(("most frequent", "times"), lines, (1,))
    return head(words.name(figures.name), line) + body


def _all_statistics(found: StatisticsByName) -> str:
    if len(found) == 1:
        return _statistics(*found.values())
    lines = fitting([_line_of(figures) for figures in list(found.values())[:_MOST_LINES]])
    body = table(("name", "dtype", "count", "min", "max", "mean", "std", "NaN", "Inf"), lines, range(2, 9))
    return head("statistics", words.many(len(found), "tensor")) + body + rest(len(found), len(lines), "tensor")


def _line_of(figures: Statistics) -> list[str]:
    infinite = figures.positive_inf + figures.negative_inf
    return [
        words.name(figures.name),
        escape(figures.dtype),
        words.count(figures.count),
        *map(escape, values.ends(figures)),
        "" if figures.earliest else words.figure(figures.mean),
        "" if figures.earliest else words.figure(figures.std),
        *(words.count(number) if number else "" for number in (figures.nan, infinite)),
    ]


# ---- files ----------------------------------------------------------------------


def _inspection(found: Inspection) -> str:
    facts = [escape(found.format)] + ([words.amount(found.size)] if found.size is not None else [])
    item, part = found.units
    if found.objects != 1 or found.lists_records:
        facts.append(f"{item}s not counted" if found.objects is None else words.many(found.objects, item))
    facts.append(words.many(len(found.tensors), part))
    tensors, held = _grouped(found)
    shown = tensors[:_MOST_LINES]
    most = max((info.nbytes or 0 for info in tensors), default=0)
    looked = found.objects if found.sampled is None else found.sampled
    columns = {
        "alike": ["" if number == 1 else words.count(number) for number in held[:_MOST_LINES]],
        "dtype": [_info_dtype(info) for info in shown],
        "shape": [words.shape(info.shape) for info in shown],
        "size": [words.amount(info.nbytes) if info.nbytes is not None else "" for info in shown],
        "share": [bar(info.nbytes, most) if info.nbytes is not None else "" for info in shown],
        "stored as": [f"{escape(i.stored)}, {words.amount(i.stored_nbytes)}" if i.stored else "" for i in shown],
        f"in {item}s": [_presence(info.present, looked) for info in shown],
        "steps": ["" if info.steps is None else values.span(*info.steps) for info in shown],
        "values": ["" if info.lengths is None else values.span(*info.lengths) for info in shown],
        "bytes": ["" if info.sizes is None else values.span(*info.sizes) for info in shown],
        "looks like": [words.escaped(info.content, 60) for info in shown],
    }
    used = {label: cells_ for label, cells_ in columns.items() if any(cells_)}
    names = ["each record" if info.kind == "record" else words.name(info.name) for info in shown]
    lines = fitting([[name, *line] for name, *line in zip(names, *used.values(), strict=True)])
    numeric = [place for place, label in enumerate(used, 1) if label in ("alike", "size")]
    extra = _meta({**found.details, **found.meta})
    if found.sampled is not None:
        extra += f'<p class="tbv-note">Looked at the first {words.many(found.sampled, item)}.</p>'
    body = table(["name", *used], lines, numeric) if lines else ""
    left = rest(len(found.tensors), sum(held[: len(lines)]), part)
    return head(words.name(found.path), " · ".join(facts)) + extra + body + left


def _grouped(found: Inspection) -> tuple[list[TensorInfo], list[int]]:
    """The lines of the table, and how many tensors each stands for: alike layers of a checkpoint are one."""
    if found.objects != 1 or found.lists_records:
        return found.tensors, [1] * len(found.tensors)
    tree = grouping.build(found.tensors)
    grouping.fold_alike(tree)
    tensors: list[TensorInfo] = []
    held: list[int] = []
    for name, node in grouping.leaves(tree):
        assert node.tensor is not None
        held.append(len(node.members))
        sizes = [found.tensors[place].stored_nbytes for place in node.members]
        stored = None if None in sizes else sum(size or 0 for size in sizes)
        size = None if node.tensor.nbytes is None else node.nbytes
        tensors.append(replace(node.tensor, name=name, nbytes=size, stored_nbytes=stored))
    return tensors, held


def _info_dtype(info: TensorInfo) -> str:
    kind = "" if info.kind in ("tensor", "strings", "feature", "record", "scalar", info.dtype) else f" {info.kind}"
    return escape(f"{info.dtype}{kind}{' optional' if info.optional else ''}")


def _presence(present: int | None, looked: int | None) -> str:
    if present is None:
        return ""
    return "all" if present == looked else f"{words.count(present)}"


def _difference(found: Difference) -> str:
    different = [tensor for tensor in found.tensors if not tensor.identical]
    verdict = (
        "identical"
        if found.identical
        else f"{len(different)} of {words.many(len(found.tensors), 'common tensor')} differ"
    )
    parts = [head(f"{words.name(found.a)} | {words.name(found.b)}", verdict)]
    if found.rows is not None:
        parts.append(f'<p class="tbv-note">rows: {words.count(found.rows[0])} | {words.count(found.rows[1])}</p>')
    for where, names in ((found.a, found.only_in_a), (found.b, found.only_in_b)):
        if names:
            listed = ", ".join(words.name(name, 60) for name in names[:_FEW_NAMES])
            more = f" and {len(names) - _FEW_NAMES} more" if len(names) > _FEW_NAMES else ""
            parts.append(f"<p>only in {words.name(where)}: {listed}{more}</p>")
    if different:
        columns = ("name", "dtype", "shape", "differ", "max abs", "max rel", "")
        lines = fitting([_differing(tensor) for tensor in different[:_MOST_LINES]])
        parts += [table(columns, lines, (3, 4, 5)), rest(len(different), len(lines), "tensor")]
    if found.meta:
        sides = [[words.escaped(key, 60), _side(one), _side(two)] for key, (one, two) in list(found.meta.items())[:20]]
        parts.append(table(("metadata", "a", "b"), fitting(sides, _PART_BYTES)))
    return "".join(parts)


def _side(text: str | None) -> str:
    return '<span class="tbv-dim">absent</span>' if text is None else words.escaped(str(text), 120)


def _differing(tensor: TensorDiff) -> list[str]:
    def pair(one: str, two: str) -> str:
        return one if one == two else f"{one} | {two}"

    dtype = escape(pair(*tensor.dtypes))
    shape = pair(words.shape(tensor.shapes[0]), words.shape(tensor.shapes[1]))
    numbers = tensor.numbers
    if tensor.why:
        return [words.name(tensor.name), dtype, shape, "", "", "", words.escaped(tensor.why, 120)]
    note = "equal numbers, other bits" if not numbers.differing else ""
    if numbers.nan_a or numbers.nan_b:
        note = f"NaN {words.count(numbers.nan_a)} | {words.count(numbers.nan_b)}"
    return [
        words.name(tensor.name),
        dtype,
        shape,
        f"{words.count(numbers.differing)} of {words.count(numbers.elements)}",
        words.figure(numbers.max_abs),
        words.figure(numbers.max_rel),
        note,
    ]


# ---- records --------------------------------------------------------------------


def _records(records: Records) -> str:
    paths = records.paths
    title = words.name(paths[0]) + (f" and {words.many(len(paths) - 1, 'file')} more" if len(paths) > 1 else "")
    if not records._inputs.are_files:
        # A pipe can be read once, and a URL costs time: showing the object must do neither.
        said = '<p class="tbv-note">Nothing was read: this is not a local file.</p>'
        return head(title, "records") + _schema(records.known_schema) + said
    # Whoever holds the records keeps the list of damages of their own last pass.
    own = copy.copy(records)
    own.damages = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        schema = own.schema
        first = next(own.batches(_FIRST_ROWS, to="tensor"), None)
    features = len(schema.features) + len(schema.lists or {})
    shown = "" if first is None else f"<p>The first rows:</p>{_batch(first)}"
    return head(title, f"records · {words.many(features, 'feature')}") + _schema(schema) + shown


def _schema(schema: Schema | None) -> str:
    if schema is None:
        return ""
    features = [*schema.features.items(), *(schema.lists or {}).items()]
    lines = [
        [words.name(name), escape(feature.dtype), words.shape(feature.shape), "optional" if feature.optional else ""]
        for name, feature in features[:_MOST_LINES]
    ]
    lines = fitting(lines, _PART_BYTES)
    return table(("feature", "dtype", "shape", ""), lines) + rest(len(features), len(lines), "feature")


def _batch(batch: Batch) -> str:
    found = {name: to_value(column) for name, column in list(batch.items())[:_MOST_COLUMNS]}
    shown = list(cells.rows_of(found, batch.present, _FIRST_ROWS))
    largest = cells.largest_that_fit(shown, _PICTURES, _PICTURE)
    made = cells.CellMaker(pictures=_PICTURES, largest=largest, drawings=9_000, letters=50, side=24)
    lines = [[str(number), *(made.cell(row.get(name)) for name in found)] for number, row in enumerate(shown)]
    kept = fitting(lines, _TABLE_BYTES + _PICTURES - made.pictures)
    body = table(("", *(words.name(name, 40) for name in found)), kept)
    return body + rest(len(batch), len(found), "column")


# ---- open files -----------------------------------------------------------------


def _reader(reader: Reader) -> str:
    known = reader._glance()
    title = words.name(reader.path)
    if known is None:
        said = '<p class="tbv-note">What is in it is found out by .keys(), .entries() or a loop over it.</p>'
        return head(title, escape(reader.format)) + said
    documents, whole = known
    entries = [Entry(leaf, lambda value: value, reader.path) for document in documents for leaf in document.leaves]
    facts = [escape(reader.format), words.many(len(entries), "entry").replace("entrys", "entries")]
    if not whole:
        facts = [escape(reader.format), "a stream: its first object"]
    elif len(documents) != 1:
        facts.insert(1, words.many(len(documents), "object"))
    lines = [
        [
            words.name(entry.name),
            escape(entry.dtype),
            words.shape(entry.shape),
            # Of some values the size is known when they are read.
            words.amount(entry.nbytes) if entry.nbytes or 0 in entry.shape else "",
        ]
        for entry in entries[:_MOST_ENTRIES]
    ]
    lines = fitting(lines)
    body = table(("name", "dtype", "shape", "size"), lines, (3,)) if lines else ""
    more = len(entries) - len(lines)
    return head(title, " · ".join(facts)) + body + (f'<p class="tbv-note">and {more:,} more</p>' if more else "")


# ---- what tools say -------------------------------------------------------------


def _told(result: Any) -> str:
    """A result that says in words what it is."""
    first, _, others = str(result)[:_MOST_WORDS].partition("\n")
    lines = "<br/>".join(words.escaped(line.strip(), 400) for line in others.splitlines()[:_MOST_LINES])
    return f"<p>{words.escaped(first, 600)}</p>" + (f'<code class="tbv-values">{lines}</code>' if lines else "")


# ---- conversions and benchmarks --------------------------------------------------


def _conversion(report: Report) -> str:
    facts = [words.many(report.tensors, "tensor"), words.amount(report.nbytes)]
    facts += [words.many(report.rows, "row")] if report.rows is not None else []
    facts += ["verified"] if report.verified else []
    facts.append(
        "nothing lost" if report.lossless else words.many(len(report.losses), "loss").replace("losss", "losses")
    )
    title = f"{words.name(report.source)} ({escape(report.source_format)}) → {words.name(report.target)}"
    parts = [head(f"{title} ({escape(report.target_format)})", " · ".join(facts))]
    parts += [f'<p class="tbv-note">{words.escaped(change)}</p>' for change in report.changes[:20]]
    if report.losses:
        lines = [
            [words.name(loss.name) if loss.name is not None else "the whole", words.escaped(loss.feature, 60),
             ("left out: " if loss.dropped else "") + words.escaped(loss.what)]
            for loss in report.losses[:_MOST_LINES]
        ]  # fmt: skip
        lines = fitting(lines)
        parts.append(table(("tensor", "feature", "what is lost"), lines))
        parts.append(rest(len(report.losses), len(lines), "loss"))
    return "".join(parts)


def _bench(bench: Any) -> str:
    held = [row for row in bench.ranked() if row.held][:_MOST_LINES]
    most = max((row.size or 0 for row in held), default=0)
    lines = [
        [("<b>%s</b>" if row is bench.best else "%s") % escape(row.label), words.amount(row.size), bar(row.size, most),
         f"{row.ratio:.1%}", f"{row.write_speed:.3g}", f"{row.read_speed:.3g}", "yes" if row.lossless else "no"]
        for row in held
    ]  # fmt: skip
    columns = ("choice", "size", "", "of raw", "write GB/s", "read GB/s", "exact")
    reason = f"<p>{escape(bench.goal)}: {words.escaped(bench.reason, 400)}</p>"
    return head(words.escaped(bench.headline, 300), "") + reason + table(columns, lines, (1, 3, 4, 5))


_MAKERS: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    ((Tensor, Strings, Ragged, Sparse), _value),
    (Entry, _entry),
    (Reader, _reader),
    (Records, _records),
    (Batch, _batch),
    (Inspection, _inspection),
    (Difference, _difference),
    (Statistics, _statistics),
    (StatisticsByName, _all_statistics),
    (Report, _conversion),
    ((Parts, Verification, Repair, Quantized), _told),
)
