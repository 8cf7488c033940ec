"""Rows on their way: into a file that holds them, or stacked into one document.

What the target can't hold is told at the first rows that show it. Nothing is visible before `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tensorbytes import formats, metadata
from tensorbytes.errors import Hint, LossError, UsageError
from tensorbytes.formats import ADVISORY, ADVISORY_OF_THE_WHOLE
from tensorbytes.formats._opened import Created
from tensorbytes.ops import fitting
from tensorbytes.ops.report import Loss, refuse, sharing_losses
from tensorbytes.rows import Column, Table, join_masks
from tensorbytes.tensor import Ragged, Strings, Tensor, Value, with_origin
from tensorbytes.tree import Document, Leaf, find_aliases

# Of a value's origin, what columns keep: the schema of a table tells it, too.
_OF_COLUMNS = frozenset({"numpy.dtype", "timezone"})


def whole_losses(told: Mapping[str, str]) -> list[Loss]:
    """The loss of metadata of the whole."""
    return [Loss(None, "meta", f"metadata of the whole: {formats.meta_text(key, told[key])}") for key in sorted(told)]


def row_losses(document: Document) -> list[Loss]:
    """What is lost when a document becomes a row, or its arrays become columns: all but names and tensors."""
    losses = whole_losses(formats.document_meta_to_keep(document))
    for leaf in document.leaves:
        if len(leaf.path) > 1 or (leaf.path and leaf.path[0][0] != "key"):
            losses.append(Loss(leaf.name, "structure", "columns have a flat list of names; it was nested"))
        if leaf.kind not in ("", "numpy"):
            losses.append(Loss(leaf.name, "kind", f"that it was a Python {leaf.kind}"))
        value = leaf.value
        own = {key: text for key, text in value.origin.items() if key not in ADVISORY | _OF_COLUMNS | {metadata.TYPES}}
        told = {**own, **value.meta}
        losses += [Loss(leaf.name, "meta", f"metadata {formats.meta_text(*entry)}") for entry in told.items()]
    return losses


def _schema_loss(key: str) -> Loss:
    return Loss(None, "meta", f"how the table was held: {key!r}")


def _is_missing(leaf: Leaf) -> bool:
    """Whether a column is None in its row."""
    return leaf.kind == "none" and all(kind == "key" for kind, _ in leaf.path)


def _as_column(leaf: Leaf) -> Leaf:
    """A Python number or text, or a list of them, as the value of a column, which notes what it was."""
    if leaf.kind in ("", "numpy", "dict", "list", "tuple"):
        return leaf
    return leaf._replace(value=with_origin(leaf.read(), {"python": leaf.kind}), kind="")


def column_name(leaf: Leaf) -> str:
    return leaf.name if leaf.name is not None else "tensor"


def by_column(leaves: Iterable[Leaf]) -> dict[str, Leaf]:
    """The leaves under their names; {"a": {"b": x}} and {"a/b": x} have the same."""
    found: dict[str, Leaf] = {}
    for leaf in leaves:
        name = column_name(leaf)
        if name in found:
            raise LossError(
                f"two columns would be named {name!r}",
                feature="structure",
                tensor=name,
                hints=[Hint(purpose="rename one")],
            )
        found[name] = leaf
    return found


class Target:
    """Where rows go, and what is lost of them. `found` are losses that are known before."""

    def __init__(self, format: str, allowed: frozenset[str], found: Iterable[Loss] = ()) -> None:
        self.format, self.allowed = format, allowed
        self.losses: list[Loss] = []
        self._found = list(found)  # not judged yet: those of the same rows are told together
        self.rows = self.nbytes = 0
        self.names: dict[str, None] = {}
        self._met: set[Any] = set()  # what leaves were like so far

    def add(self, item: Document | Table) -> None:
        """One row, or some rows as columns."""
        raise NotImplementedError

    def abort(self) -> None:
        """Leave no trace."""

    def _judge(self) -> None:
        """Raise LossError over what was found, unless it is allowed."""
        found, self._found = self._found, []
        refuse(found, self.allowed, self.format)
        self.losses += found

    def _new_leaves(self, row: Document) -> Document:
        """The leaves of a row that are like none before: what is lost of them is not known yet."""
        found = []
        for leaf in row.leaves:
            mark = (leaf.path, leaf.kind, frozenset(leaf.value.meta), frozenset(leaf.value.origin))
            if mark not in self._met:
                self._met.add(mark)
                found.append(leaf)
        return Document(found, {} if self.rows else row.meta, origin={} if self.rows else row.origin)

    def _note_sharing(self, row: Document, apart: Mapping[int, int]) -> None:
        """Tell of tensors that share memory, of each name once."""
        for loss in sharing_losses(row, apart):
            if (loss.name, loss.feature) not in self._met:
                self._met.add((loss.name, loss.feature))
                self._found.append(loss)

    def _note_lacking(self, table: Table) -> None:
        for name in table.present:
            if (name, "missing") not in self._met:
                self._met.add((name, "missing"))
                self._found.append(Loss(name, "missing", "rows that lack it get an empty or zero value"))

    def _count(self, values: dict[str, Value], rows: int) -> None:
        self.rows += rows
        self.nbytes += sum(value.nbytes for value in values.values())
        self.names.update(dict.fromkeys(values))


class RowTarget(Target):
    """A file that holds rows, or a stream of objects."""

    def __init__(
        self,
        format: str,
        allowed: frozenset[str],
        create: Callable[[], Created],
        found: Iterable[Loss] = (),
        single: bool = False,
    ) -> None:
        super().__init__(format, allowed, found)
        self._single = single  # there is one row alone
        self._chosen = chosen = formats.get(format)
        self._masks, self._notes = chosen.masks, chosen.complete
        self._fills = chosen.rows and not chosen.masks  # what a row lacks
        self._created = create()
        self._dropped: set[str] = set()  # columns that can't be held
        self._nones: dict[str, None] = {}  # columns that were None in some row

    def add(self, item: Document | Table) -> None:
        if isinstance(item, Table):
            item = self._created.prepare(item)
            if not self._masks and not self.rows:
                self._found += map(_schema_loss, sorted(item.origin.keys() - ADVISORY_OF_THE_WHOLE))
            if self._fills:
                self._note_lacking(item)
            held = self._held_table(item) if self._created.columns_only else item
            self._judge()
            self._created.add(held)
            self._count(held.columns, held.rows)
            return
        columns = self._created.columns_only
        self._note_sharing(item, find_aliases(item.leaves) if columns else self._chosen.written_apart(item, {}))
        row = self._held_row(item) if columns else item
        self._judge()
        self._created.add(row)
        self._count({column_name(leaf): leaf.read() for leaf in row.leaves}, 1)

    def _fit(self, leaves: list[Leaf], as_rows: bool) -> None:
        """Find out what of the leaves can't be held."""

        def attempt(document: Document, granted: frozenset[str]) -> None:
            column = Column()
            (column.add_row if as_rows else column.add)(document.leaves[0].read())
            self._created.check({column_name(document.leaves[0]): column.finish()})

        kept, _, losses = fitting.fitting_leaves(leaves, attempt)
        self._found += losses
        self._dropped |= {column_name(leaf) for leaf in leaves} - {column_name(leaf) for leaf in kept}
        if not kept and not self.rows:
            self._judge()
            raise LossError(f"nothing of these rows can be written as {self.format!r}", feature="rows")

    def _held_table(self, table: Table) -> Table:
        if not self.rows:
            self._fit([Leaf(value, (("key", name),)) for name, value in table.columns.items()], as_rows=False)
        if not self._dropped:
            return table
        columns = {name: value for name, value in table.columns.items() if name not in self._dropped}
        return table._replace(columns=columns, masks={at: mask for at, mask in table.masks.items() if at[0] in columns})

    def _held_row(self, row: Document) -> Document:
        if self._masks:
            self._nones.update((column_name(leaf), None) for leaf in row.leaves if _is_missing(leaf))
            row = row._replace(leaves=[leaf for leaf in row.leaves if not _is_missing(leaf)])
            if self._single:
                self._note_nones()
        if self._notes:
            row = row._replace(leaves=list(map(_as_column, row.leaves)))
        news = self._new_leaves(row)
        if news.leaves:
            self._found += row_losses(news)
            self._fit(news.leaves, as_rows=True)
        kept = {name: leaf for name, leaf in by_column(row.leaves).items() if name not in self._dropped}
        return Document([Leaf(leaf.read(), (("key", name),)) for name, leaf in kept.items()])

    def close(self) -> list[str]:
        """Make it visible; the paths of the files."""
        self._note_nones()
        self._judge()
        return self._created.close()

    def _note_nones(self) -> None:
        """Tell of columns that were None whenever they were there."""
        never = [name for name in self._nones if name not in self.names]
        self._found += [Loss(name, "missing", "it is None in every row", dropped=True) for name in never]
        self._nones.clear()

    def abort(self) -> None:
        self._created.abort()


class Stack(Target):
    """Rows stacked into one array, or one ragged value, for each name; the data wait in temporary files.

    `look` finds what else is lost of a document: it is asked where the first row has losses that are not allowed.
    """

    def __init__(
        self,
        format: str,
        allowed: frozenset[str],
        found: Iterable[Loss] = (),
        look: Callable[[Document], list[Loss]] | None = None,
    ) -> None:
        super().__init__(format, allowed, found)
        self._look = look
        self._columns: dict[str, Column] = {}
        self._tables: list[Table] = []  # without their values

    def add(self, item: Document | Table) -> None:
        if isinstance(item, Table):
            self._judge()
            self._check_names(item.columns)
            self._tables.append(item._replace(columns={name: _outline(value) for name, value in item.columns.items()}))
            for name, value in item.columns.items():
                self._columns.setdefault(name, Column()).add(value)
            self._count(item.columns, item.rows)
            return
        values = {name: leaf.read() for name, leaf in by_column(item.leaves).items()}
        self._found += row_losses(self._new_leaves(item))
        self._note_sharing(item, find_aliases(item.leaves))
        self._judge_row(values)
        self._check_names(values)
        for name, value in values.items():
            self._columns.setdefault(name, Column()).add_row(value)
        self._count(values, 1)

    def _judge_row(self, values: dict[str, Value]) -> None:
        found = list(self._found)
        try:
            self._judge()
        except LossError:
            if self.rows or self._look is None:
                raise
            self._found = [*found, *self._look(_stacked_row(values))]
            self._judge()

    def _check_names(self, values: dict[str, Value]) -> None:
        if self.rows and values.keys() != self._columns.keys():
            odd = min(values.keys() ^ self._columns.keys())
            raise LossError(f"row {self.rows}: rows of different names can't be stacked: {odd!r}", feature="stack")

    def document(self) -> Document:
        """The columns, as one document."""
        if not self._columns:
            raise UsageError("no rows to stack")
        columns = {name: column.finish() for name, column in self._columns.items()}
        if not self._tables:
            return Document([Leaf(value, (("key", name),)) for name, value in columns.items()])
        masks = join_masks(self._tables)
        return self._tables[0]._replace(columns=columns, rows=self.rows, masks=masks).plain_document()


def _stacked_row(values: dict[str, Value]) -> Document:
    """What a single row looks like, stacked."""
    leaves = []
    for name, value in values.items():
        column = Column()
        column.add_row(value)
        leaves.append(Leaf(column.finish(), (("key", name),)))
    return Document(leaves)


def _outline(value: Value) -> Value:
    """A value without its elements: what tells how many there are."""
    if isinstance(value, Ragged) and value.shapes is None:
        values = _outline(value.values)
        assert isinstance(values, Tensor | Strings)
        return replace(value, values=values)
    if isinstance(value, Tensor) and value.shape:
        return Tensor("uint8", (*value.shape, 0), b"")
    return value
