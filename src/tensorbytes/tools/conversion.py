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
from tensorbytes.errors import LIMITS, Hint, Limits, LossError, UsageError
from tensorbytes.formats import Format, Options, _storing
from tensorbytes.io.streams.detection import find_by_suffix
from tensorbytes.reader import naming
from tensorbytes.tensor import Tensor, amended
from tensorbytes.tools import rows, verification
from tensorbytes.tools.casting import Casting
from tensorbytes.tools.fitting import Fitted, fitted
from tensorbytes.tools.plural import many
from tensorbytes.tools.report import Loss, Report, refuse, unread
from tensorbytes.tools.selection import Selection
from tensorbytes.tools.sources import (
    BATCH_ROWS,
    TABLES,
    TFRECORD,
    ArrowTable,
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
    by_column,
    column_name,
    row_losses,
)
from tensorbytes.tree import Document, Leaf


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
    cast: str | Mapping[str, str] | None = None,
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
    `cast="bfloat16"` makes floats of another type, in all tensors or by name or pattern; the
    report tells the largest error. A target that exists is replaced, once the new one is whole.

    What the target can't hold raises LossError, which lists all of it; `allow` names the
    losses that are acceptable ("all": any), and the report lists them. Objects that are not read
    ("objects": a class in a torch file, a pickle in an npz) are such losses. `verify=True` reads
    the target again and compares. `progress` is called with the number of rows so far.
    Further arguments are options of the target's format; `read_options` those of the source.
    """
    source = open_source(src, src_format, limits=limits, options=read_options)
    wanted = format or _format_of(dst)
    if wanted != TFRECORD and not formats.get(wanted).writes:
        raise UsageError(f"format {wanted!r} is read-only")
    job = _Job(source, dst, wanted, Selection(names, rename), Casting(cast), _allowed(allow), sync, options)
    if shards != 1 and wanted != TFRECORD:
        raise UsageError(f"{shards} shards: only TFRecord files are written in shards, and this is {wanted!r}")
    if verify and (wanted == "raw" or not storage.is_path(dst)):
        raise UsageError("verifying reads the target again: that takes a path, and a format other than 'raw'")
    report = job.run(stack, unstack, shards, progress)
    if options.get("quantize") is not None and storage.is_path(dst):
        report.losses += _quantized(report.files, wanted, limits)
    if job.selection.flattens:
        report.changes.append("nested values that were renamed stand under their new names alone")
    if verify:
        verification.check(job.written or job.rows(), dst, wanted, report, limits)
    return report


def _quantized(files: list[str], format: str, limits: Limits) -> list[Loss]:
    """What was asked to be stored in fewer bits, and what that cost: the worst of each name."""
    worst: dict[str | None, Any] = {}
    for file in files if format != TFRECORD else ():
        source = open_source(file, format, limits=limits)
        assert isinstance(source, Documents)
        for document in source.documents():
            for leaf in document.leaves:
                kind = leaf.stored.quantization if leaf.stored else None
                before = worst.get(leaf.name)
                if kind is not None and (before is None or kind.max_error > before.max_error):
                    worst[leaf.name] = kind
    return [Loss(name, "quantize", f"{kind.dtype} stored as {kind.describe()}") for name, kind in worst.items()]


def _allowed(allow: Iterable[str] | str) -> frozenset[str]:
    return frozenset([allow] if isinstance(allow, str) else allow)


# A file for each tensor.
INTO_EACH = Hint(purpose="put {name} into the target for a file each")


def _format_of(dst: Any) -> str:
    storage.check_target(dst, "write")
    path = storage.describe(dst)
    if named_records(path):
        return TFRECORD
    found = formats.by_suffix(path)
    if found is None:
        raise UsageError(
            "no format has this suffix",
            path=path,
            hints=[Hint("format", choices=(*formats.writable(), TFRECORD), of="save")],
        )
    return found


class _Job:
    """One conversion: what comes from where, and goes where."""

    def __init__(
        self,
        source: Documents | Table,
        dst: Any,
        format: str,
        selection: Selection,
        casting: Casting,
        allowed: frozenset[str],
        sync: bool,
        options: Options,
    ) -> None:
        self.source, self.dst, self.format = source, dst, format
        self.casting = casting
        self.selection, self.allowed, self.sync, self.options = selection, allowed, sync, options
        self.report = Report(source.path, source.format, storage.describe(dst), format)
        self.written: list[tuple[Document, Any]] = []  # documents and where they went
        self.rows: Callable[[], Iterator[Columns | Document]] = lambda: iter(())  # or the rows that went to the target

    def run(
        self, stack: bool | None, unstack: int | None, shards: int, progress: Callable[[int], None] | None
    ) -> Report:
        if stack and self.format == TFRECORD:
            raise UsageError("rows can't be stacked in a TFRecord file: it holds rows")
        self._leave_objects()
        table = as_table(self.source)
        if isinstance(table, ArrowTable) and unstack is None and self._described(table):
            table = None  # metadata and Python values are those of the whole, not of rows
        if table is not None and unstack is None:
            self._convert_rows(lambda: self._columns(table), stack, shards, progress)
            return self.report
        if not isinstance(self.source, Documents):
            raise UsageError("it holds rows already: only arrays are unstacked", path=self.source.path)
        documents = self.source.documents()
        first = next(documents, None)
        if first is None:
            raise UsageError("it holds no tensors", path=self.source.path)
        stream = bool(first.item) or next(documents, None) is not None
        if unstack is not None:
            if stream:
                raise UsageError("it is a stream of objects: it has rows already", path=self.source.path)
            whole = self._chosen(first)
            losses = row_losses(whole)
            refuse(losses, self.allowed, self.format)
            self.report.losses += losses
            self.report.changes.append(f"unstacked along axis {unstack}")
            self._convert_rows(lambda: _unstacked(whole, unstack), stack, shards, progress)
        elif stream or self.format == TFRECORD:
            source = self.source
            self._convert_rows(lambda: map(self._chosen, source.documents()), stack, shards, progress)
        else:
            self._convert_document(self.casting.apply(self._chosen(first)))
            self.report.losses += self.casting.losses.values()
        return self.report

    def _leave_objects(self) -> None:
        """Go on without what the source holds that is not read, if that is allowed."""
        objects = self.source.objects() if isinstance(self.source, Documents) else []
        if isinstance(self.source, Documents) and objects:
            losses = [unread(leaf) for leaf in objects if self.selection.takes(leaf.name)]
            refuse(losses, self.allowed, self.format)
            self.report.losses += losses
            self.source = self.source.without_objects()

    def _chosen(self, document: Document) -> Document:
        with naming(self.source.path):
            return checked(self.selection.apply(document))

    def _described(self, table: ArrowTable) -> bool:
        """Whether a table says more than rows can. Then, and if the target has no rows, it is one document."""
        losses = row_losses(self.selection.apply(table.document))
        if losses and (self.format == TFRECORD or formats.get(self.format).streams):
            refuse(losses, self.allowed, self.format)
            self.report.losses += losses
            return False
        return bool(losses)

    def _columns(self, table: Table) -> Iterator[Columns]:
        return map(self.selection.columns, table.batches(BATCH_ROWS, self.selection.takes))

    # ---- one document ----------------------------------------------------------

    def _convert_document(self, document: Document) -> None:
        self.selection.check_used(self.source.path)
        if not document.leaves:
            raise UsageError("nothing to convert: no tensor of it was chosen", path=self.source.path)
        if storage.is_path(self.dst) and "{name}" in storage.describe(self.dst):
            self._convert_each(document)
            return
        found = self._fitted(document)
        refuse(found.losses, self.allowed, self.format)
        if not self._write(found, self.dst):
            raise LossError(
                _nothing_left(self.format, self.report.losses),
                feature="structure",
                hints=[Hint("names", purpose="to pick tensors", of="convert"), INTO_EACH],
            )

    def _fitted(self, document: Document, name: str | None = None) -> Fitted:
        """What the format holds of a document. `name`: of a tensor that stands alone."""
        chosen = formats.get(self.format)
        formats.check_options(chosen, self.options, chosen.write_options)
        alone = _holds_one(chosen, self.options)
        if alone and len(document.leaves) > 1:
            raise LossError(
                f"format {self.format!r} holds one tensor, and there are {len(document.leaves)}",
                feature="structure",
                hints=[Hint("names", purpose="to pick one", of="convert"), INTO_EACH],
            )
        if alone:
            document = self._bare(chosen, document)
        found = fitted(chosen, document, self.options)
        if any(loss.dropped and loss.name is None for loss in found.losses):
            found = found._replace(document=document._replace(leaves=[]))
        told = [loss if loss.name is not None else replace(loss, name=name) for loss in found.losses]
        return found._replace(losses=told)

    def _write(self, found: Fitted, dst: Any) -> bool:
        """Write it; False if nothing is left of it."""
        document, granted, losses = found
        report = self.report
        report.losses += losses
        if not document.leaves:
            return False
        formats.get(self.format).write(document, dst, granted, self.options, self.sync)
        self.written.append((document, dst))
        report.files.append(storage.describe(dst))
        report.tensors += len(document.leaves)
        report.nbytes += sum(leaf.value.nbytes for leaf in document.leaves)
        return True

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
            path = pattern.replace("{name}", file_name(column_name(leaf)))
            if path in paths:
                raise UsageError(
                    f"{paths[path]!r} and {leaf.name!r} would share the file {path}", hints=[Hint(purpose="rename one")]
                )
            paths[path] = str(leaf.name)
        told = formats.told_of_the_whole(document)
        if told:
            self.report.losses.append(Loss(None, "meta", f"metadata of the whole, such as {min(told)!r}"))
        found = []
        for leaf in document.leaves:
            value: Any = leaf.whole
            alone = Document([Leaf(amended(value, None, value.meta), kind=leaf.kind)])
            found.append(self._fitted(alone, leaf.name))
        every = [*self.report.losses, *(loss for one in found for loss in one.losses)]
        refuse(every, self.allowed, self.format)
        for path, one in zip(paths, found, strict=True):
            self._write(one, path)
        self.report.changes.append(f"{len(self.report.files)} files, one for each tensor")

    # ---- rows ------------------------------------------------------------------

    def _convert_rows(
        self,
        source: Callable[[], Iterator[Columns | Document]],
        stack: bool | None,
        shards: int,
        progress: Callable[[int], None] | None,
    ) -> None:
        if self.casting:
            raise UsageError(
                "tensors can be cast, rows can't", hints=[Hint(purpose="convert them to a file of tensors first")]
            )
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
                raise UsageError("it holds no rows", path=self.source.path)
            self.selection.check_used(self.source.path)
            if not isinstance(target, StackTarget):
                self.report.files += target.close()
        except BaseException:
            target.abort()
            raise
        self.report.rows = target.rows
        self.report.losses += target.losses
        if isinstance(target, StackTarget):
            self.report.changes.append(f"{many(target.rows, 'row')} stacked")
            self._convert_document(target.document())
        else:
            self.rows = source
            if shards > 1:
                self.report.changes.append(f"rows dealt in turn to {shards} files")
            self.report.tensors, self.report.nbytes = len(target.names), target.nbytes

    def _target(self, stack: bool | None, shards: int) -> Target:
        stacks = stack or not _holds_rows(self.format)
        if stacks and stack is False:
            raise UsageError(f"format {self.format!r} holds no rows: they must be stacked")
        if not stacks and "{name}" in storage.describe(self.dst):
            raise UsageError("{name} in the target is for tensors, not for rows")
        if self.format == TFRECORD:
            options = _record_options(self.dst, self.options)
            if isinstance(self.source, Records) and "schema" not in options:
                options = {**self.selection.schema(self.source.records.schema), **options}
            return RecordTarget(self.dst, self.allowed, shards, self.sync, options)
        if stacks:
            return StackTarget(self.format, self.allowed)
        if self.format in TABLES:
            return ArrowTarget(self.dst, self.format, self.allowed, self.sync, self.options)
        if self.format == "tb":
            return StreamTarget(self.dst, self.allowed, self.options)
        return EncodedTarget(self.dst, self.format, self.allowed, self.sync, self.options)


def _holds_rows(format: str) -> bool:
    return format in TABLES or formats.get(format).streams


def _record_options(dst: Any, options: Options) -> Options:
    """TFRecord files don't tell their compression; their names do."""
    found = find_by_suffix(storage.describe(dst))
    return options if found is None else {"compression": found, **options}


def _unstacked(document: Document, axis: int) -> Iterator[Columns]:
    """The rows of a document's arrays along an axis, in batches."""
    columns = {name: rows.moved(leaf.whole, axis) for name, leaf in by_column(document.leaves).items()}
    counts = {name: rows.count(value) for name, value in columns.items()}
    if len(set(counts.values())) != 1 or None in counts.values():
        shown = ", ".join(f"{name}: {number}" for name, number in itertools.islice(counts.items(), 8))
        raise LossError(
            f"unstack needs values of one length along axis {axis}, got {shown}",
            feature="rows",
            hints=[Hint("names", purpose="to pick some", of="convert")],
        )
    total = next(iter(counts.values())) or 0
    for start in range(0, total, BATCH_ROWS):
        stop = min(start + BATCH_ROWS, total)
        yield Columns({name: rows.cut(value, start, stop) for name, value in columns.items()}, stop - start)


def _holds_one(chosen: Format, options: Options) -> bool:
    """Whether a format holds a single tensor, without a key."""
    keyed = Leaf(Tensor("float32", (1,), bytes(4)), (("key", "x"),))
    by_name = _storing.OPTIONS if chosen.write_options >= _storing.OPTIONS else frozenset()
    plain = {key: option for key, option in options.items() if key not in by_name}
    try:
        chosen.check(Document([keyed]), frozenset(), plain)
    except LossError as error:
        return error.feature == "structure"
    return False


def _nothing_left(format: str, losses: list[Loss]) -> str:
    why = "\n".join(f"  {loss}" for loss in losses[-3:])
    return f"format {format!r} can't hold this:\n{why}"


def file_name(name: str) -> str:
    """A tensor's name as a file name: opaque, never a path."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return safe if safe.strip(".") else f"_{safe}"
