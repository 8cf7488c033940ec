"""convert: any file to any other, with a report of what the target could not hold.

    one document  -> one document    encoded from views of the source's map
    rows          -> rows            some thousand at a time, in columns
    rows          -> one document    stacked, by way of temporary files
    one document  -> rows            unstacked along an axis, or as a single row

Rows are those of TFRecord, Arrow and Parquet files, and the objects of a stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tensorbytes import formats, storage
from tensorbytes.errors import LIMITS, Limits, LossError, UsageError
from tensorbytes.formats import Format, Options
from tensorbytes.reader import naming
from tensorbytes.tensor import Tensor, Value, amended
from tensorbytes.tools import rows, verification
from tensorbytes.tools.fitting import fitted
from tensorbytes.tools.report import Loss, Report, refuse
from tensorbytes.tools.selection import Selection
from tensorbytes.tools.sources import (
    TABLES,
    TFRECORD,
    Columns,
    Documents,
    Records,
    Table,
    as_table,
    checked,
    named_records,
    open_source,
)
from tensorbytes.tools.targets import (
    ArrowTarget,
    EncodedTarget,
    RecordTarget,
    StackTarget,
    StreamTarget,
    Target,
    column_name,
    row_losses,
)
from tensorbytes.tree import Document, Leaf

# Rows are read this many at a time.
_BATCH_ROWS = 4096


def convert(
    src: Any,
    dst: Any,
    format: str | None = None,
    *,
    src_format: str | None = None,
    names: Collection[str] | str | None = None,
    rename: Mapping[str, str] | Callable[[str], str] | None = None,
    stack: bool | None = None,
    unstack: int | None = None,
    shards: int = 1,
    allow: Iterable[str] | str = (),
    verify: bool = False,
    sync: bool = True,
    limits: Limits = LIMITS,
    read_options: Mapping[str, Any] | None = None,
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Report:
    """Write the tensors of one file to another, in any format that holds them.

    The target's format follows its suffix (.tfrecord included). `names` picks tensors, by
    name or pattern; `rename` gives them others. Rows (of TFRecord, Arrow and Parquet files,
    and of streams) stay rows where the target has rows; elsewhere they are stacked, one
    array or ragged value for each name. `stack=True` stacks in any case. `unstack=0` makes rows of
    arrays, along that axis. A target with "{name}" in it gets one file for each tensor.

    What the target can't hold raises LossError, which lists all of it; `allow` names the
    losses that are acceptable ("all": any), and the report lists them. `verify=True` reads
    the target again and compares. `progress` is called with the number of rows so far.
    Further arguments are options of the target's format; `read_options` those of the source.
    """
    source = open_source(src, src_format, limits=limits, options=read_options)
    wanted = format or _format_of(dst)
    if wanted != TFRECORD and not formats.get(wanted).writes:
        raise UsageError(f"format {wanted!r} is read here, not written")
    job = _Job(source, dst, wanted, Selection(names, rename), _allowed(allow), sync, options)
    if shards != 1 and wanted != TFRECORD:
        raise UsageError(f"shards={shards} goes with TFRecord files; format {wanted!r} has none")
    if verify and wanted == "raw":
        raise UsageError("raw bytes tell no dtype, so verify=True can't read them back")
    report = job.run(stack, unstack, shards, progress)
    job.selection.check_used(source.path)
    if verify:
        verification.check(job.expected(), dst, wanted, report, limits)
    return report


def _allowed(allow: Iterable[str] | str) -> frozenset[str]:
    return frozenset([allow] if isinstance(allow, str) else allow)


def _format_of(dst: Any) -> str:
    storage.check_target(dst, "write")
    path = storage.describe(dst)
    if named_records(path):
        return TFRECORD
    found = formats.by_suffix(path)
    if found is None:
        known = ", ".join((*formats.BUILTIN, TFRECORD))
        raise UsageError(f"{path}: no format has this suffix; pass format=, one of {known}")
    return found


class _Job:
    """One conversion: what comes from where, and goes where."""

    def __init__(
        self,
        source: Documents | Table,
        dst: Any,
        format: str,
        selection: Selection,
        allowed: frozenset[str],
        sync: bool,
        options: Options,
    ) -> None:
        self.source, self.dst, self.format = source, dst, format
        self.selection, self.allowed, self.sync, self.options = selection, allowed, sync, options
        self.report = Report(source.path, source.format, storage.describe(dst), format)
        self._written: Document | None = None
        self._rows: Callable[[], Iterator[Columns | Document]] | None = None

    def run(
        self, stack: bool | None, unstack: int | None, shards: int, progress: Callable[[int], None] | None
    ) -> Report:
        table = as_table(self.source)
        if table is not None and stack is False and not _holds_rows(self.format):
            raise UsageError(f"format {self.format!r} holds no rows: stack=False can't be had")
        if table is not None and unstack is None:
            self._convert_rows(lambda: self._columns(table), stack, shards, progress)
            return self.report
        assert isinstance(self.source, Documents)
        documents = self.source.documents()
        first = next(documents, None)
        if first is None:
            raise UsageError(f"{self.source.path} holds no tensors")
        if unstack is not None:
            self._no_more(documents)
            whole = self._chosen(first)
            losses = row_losses(whole)
            refuse(losses, self.allowed, self.format)
            self.report.losses += losses
            self.report.changes.append(f"unstacked along axis {unstack}")
            self._convert_rows(lambda: _unstacked(whole, unstack), stack, shards, progress)
        elif first.item or (self.format == TFRECORD and not stack):
            source = self.source
            self._convert_rows(lambda: map(self._chosen, source.documents()), stack, shards, progress)
        else:
            self._no_more(documents)
            self._convert_document(self._chosen(first))
        return self.report

    def _chosen(self, document: Document) -> Document:
        with naming(self.source.path):
            return checked(self.selection.apply(document))

    def _no_more(self, documents: Iterator[Document]) -> None:
        if next(documents, None) is not None:
            raise UsageError(f"{self.source.path} is a stream of objects: it has rows already")

    def _columns(self, table: Table) -> Iterator[Columns]:
        return map(self.selection.columns, table.batches(_BATCH_ROWS))

    def expected(self) -> Document | Iterator[Columns | Document]:
        """What the target must hold, for a comparison."""
        if self._written is not None:
            return self._written
        assert self._rows is not None
        return self._rows()

    # ---- one document ----------------------------------------------------------

    def _convert_document(self, document: Document) -> None:
        if not document.leaves:
            self.selection.check_used(self.source.path)
            raise UsageError(f"nothing to convert: no tensor of {self.source.path} was chosen")
        if storage.is_path(self.dst) and "{name}" in storage.describe(self.dst):
            self._convert_each(document)
            return
        self._written = self._save(document, self.dst)
        if self._written is None:
            raise LossError(_nothing_left(self.format, self.report.losses), feature="structure")

    def _save(self, document: Document, dst: Any, name: str | None = None) -> Document | None:
        """Write what the format holds; None if that is nothing. `name`: of a tensor that stands alone."""
        chosen = formats.get(self.format)
        formats.check_options(chosen, self.options, chosen.write_options)
        alone = _holds_one(chosen, self.options)
        if alone and len(document.leaves) > 1:
            raise LossError(
                f"format {self.format!r} holds one tensor, and there are {len(document.leaves)}: pick one with "
                "names=, or put {name} into the target for a file each",
                feature="structure",
            )
        if alone:
            document = self._bare(chosen, document)
        document, granted, losses = fitted(chosen, document, self.options)
        told = [loss if loss.name is not None else replace(loss, name=name) for loss in losses]
        refuse(told, self.allowed, self.format)
        report = self.report
        report.losses += told
        if not document.leaves or any(loss.dropped and loss.name is None for loss in losses):
            return None
        chosen.write(document, dst, granted, self.options, self.sync)
        report.files.append(storage.describe(dst))
        report.tensors += len(document.leaves)
        report.nbytes += sum(leaf.value.nbytes for leaf in document.leaves)
        return document

    def _bare(self, chosen: Format, document: Document) -> Document:
        """A single tensor for a format that has no structures: under its name, if that has a place."""
        leaf = document.leaves[0]
        value: Any = leaf.whole
        # Metadata of the whole is that of its only tensor.
        meta = {**document.meta, **value.meta}

        def under(name: str | None) -> Document:
            return Document([Leaf(amended(value, name, meta), kind=leaf.kind)], item=document.item)

        named = under(leaf.name)
        if leaf.path and any(loss.feature == "name" for loss in fitted(chosen, named, self.options).losses):
            self.report.changes.append(f"the name {leaf.name!r} has no place in the file")
            return under(None)
        return named

    def _convert_each(self, document: Document) -> None:
        """One file for each tensor; the file's name is the tensor's."""
        pattern = storage.describe(self.dst)
        paths: dict[str, str] = {}
        for leaf in document.leaves:
            path = pattern.replace("{name}", _file_name(column_name(leaf)))
            if path in paths:
                raise UsageError(f"{paths[path]!r} and {leaf.name!r} would share the file {path}: rename one")
            paths[path] = str(leaf.name)
        if document.meta:
            self.report.losses.append(Loss(None, "meta", f"metadata of the whole, such as {min(document.meta)!r}"))
            refuse(self.report.losses, self.allowed, self.format)
        for path, leaf in zip(paths, document.leaves, strict=True):
            value: Any = leaf.whole
            self._save(Document([Leaf(amended(value, None, value.meta), kind=leaf.kind)]), path, leaf.name)
        self.report.changes.append(f"{len(self.report.files)} files, one for each tensor")

    # ---- rows ------------------------------------------------------------------

    def _convert_rows(
        self,
        source: Callable[[], Iterator[Columns | Document]],
        stack: bool | None,
        shards: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        target = self._target(stack, shards)
        try:
            for item in source():
                if isinstance(item, Columns):
                    target.add(item)
                else:
                    target.add_row(item)
                if progress is not None:
                    progress(target.rows)
            if not target.rows:
                raise UsageError(f"{self.source.path} holds no rows")
            if not isinstance(target, StackTarget):
                self.report.files += target.close()
        except BaseException:
            target.abort()
            raise
        self.report.rows = target.rows
        self.report.losses += target.losses
        if isinstance(target, StackTarget):
            self.report.changes.append(f"{target.rows} rows stacked")
            self._convert_document(target.document())
        else:
            self._rows = source
            self.report.tensors, self.report.nbytes = len(target.names), target.nbytes

    def _target(self, stack: bool | None, shards: int) -> Target:
        if self.format == TFRECORD:
            if stack:
                raise UsageError("stack=True and a TFRecord file don't go together: it holds rows")
            options = _record_options(self.dst, self.options)
            if isinstance(self.source, Records) and "schema" not in options:
                options = {**self.selection.schema(self.source.records.schema), **options}
            return RecordTarget(self.dst, self.allowed, shards, self.sync, options)
        if not stack and self.format in TABLES:
            return ArrowTarget(self.dst, self.format, self.allowed, self.sync, self.options)
        if not stack and self.format == "tb":
            return StreamTarget(self.dst, self.allowed, self.options)
        if not stack and formats.get(self.format).streams:
            return EncodedTarget(self.dst, self.format, self.allowed, self.sync, self.options)
        return StackTarget(self.format, self.allowed)


def _holds_rows(format: str) -> bool:
    return format in TABLES or formats.get(format).streams


def _record_options(dst: Any, options: Options) -> Options:
    """TFRecord files don't tell their compression; their names do."""
    name = storage.describe(dst).lower()
    if "compression" not in options and name.endswith((".gz", ".gzip")):
        return {**options, "compression": "gzip"}
    return options


def _unstacked(document: Document, axis: int) -> Iterator[Columns]:
    """The rows of a document's arrays along an axis, in batches."""
    columns: dict[str, Value] = {}
    for leaf in document.leaves:
        columns[column_name(leaf)] = rows.moved(leaf.whole, axis)
    counts = {name: rows.count(value) for name, value in columns.items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        shown = ", ".join(f"{name}: {number}" for name, number in itertools.islice(counts.items(), 8))
        raise LossError(
            f"unstack needs values of one length along axis {axis}, got {shown}; pick some with names=", feature="rows"
        )
    total = next(iter(counts.values())) or 0
    for start in range(0, total, _BATCH_ROWS):
        stop = min(start + _BATCH_ROWS, total)
        yield Columns({name: rows.cut(value, start, stop) for name, value in columns.items()}, stop - start)


def _holds_one(chosen: Format, options: Options) -> bool:
    """Whether a format holds a single tensor, without a key."""
    keyed = Leaf(Tensor("float32", (1,), bytes(4)), (("key", "x"),))
    try:
        chosen.check(Document([keyed]), frozenset(), options)
    except LossError as error:
        return error.feature == "structure"
    return False


def _nothing_left(format: str, losses: list[Loss]) -> str:
    why = "\n".join(f"  {loss}" for loss in losses[-3:])
    return f"format {format!r} can't hold this:\n{why}\npick tensors with names=, or put {{name}} into the target"


def _file_name(name: str) -> str:
    """A tensor's name as a file name: opaque, never a path."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return safe if safe.strip(".") else f"_{safe}"
