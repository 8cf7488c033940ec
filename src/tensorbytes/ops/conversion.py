"""convert: any file to any other, with a report of what the target could not hold.

    one document  -> one document    encoded from views of the source's map
    rows          -> rows            some thousand at a time, as tables
    rows          -> one document    stacked, by way of temporary files
    one document  -> rows            unstacked along an axis, or as a single row

Rows are those of tables, and the objects of a stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tensorbytes import formats, metadata, opening, rows
from tensorbytes.casting import Casting
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    CONVERTING,
    LIMITS,
    Hint,
    Limits,
    LossError,
    UnsupportedError,
    UsageError,
    refuse_misnamed,
)
from tensorbytes.formats import Format, Options
from tensorbytes.formats._opened import BATCH_ROWS, Opened
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.ops import comparing
from tensorbytes.ops.fitting import Fitted, fit
from tensorbytes.ops.plural import many
from tensorbytes.ops.report import Loss, Report, refuse, sharing_losses, unread_loss
from tensorbytes.ops.selection import Selection
from tensorbytes.ops.targets import RowTarget, Stack, by_column, column_name, row_losses, whole_losses
from tensorbytes.rows import Table
from tensorbytes.structs import is_struct
from tensorbytes.tensor import amended
from tensorbytes.tree import Document, Leaf, check_unread, find_aliases, read_all


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
    cast: Any = None,
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
    `cast="bfloat16"` (or torch.bfloat16) makes floats of another type, in all tensors or by name or pattern; the
    report tells the largest error. A target that exists is replaced, once the new one is whole.

    What the target can't hold raises LossError, which lists all of it; `allow` names the
    losses that are acceptable ("all": any), and the report lists them. Objects that are not read
    ("objects": a class in a torch file, a pickle in an npz) are such losses. `verify=True` reads
    the target again and compares. `progress` is called with the number of rows so far.
    Further arguments are options of the target's format; `read_options` those of the source.
    """
    format = formats.resolve(format)
    refuse_misnamed(convert, options, CONVERTING, () if format is None else formats.get(format).write_options)
    source = opening.open_file(src, src_format, limits=limits, options=read_options)
    wanted = format or _format_of(dst)
    chosen = formats.get(wanted)
    if not chosen.writes:
        raise UsageError(f"format {wanted!r} is read-only")
    job = _Job(source, dst, wanted, Selection(names, rename), Casting(cast), _parse_allow(allow), sync, options)
    if shards != 1 and not chosen.shards:
        able = " and ".join(formats.get(name).label for name in formats.writable() if formats.get(name).shards)
        raise UsageError(f"{shards} shards: only {able} files are written in shards, and this is {wanted!r}")
    if verify and not storage.is_path(dst):
        raise UsageError("verifying reads the target again: that takes a path")
    if verify and not chosen.self_describing:
        raise UsageError(f"verifying reads the target again, and format {wanted!r} does not tell what it holds")
    report = job.run(stack, unstack, shards, progress)
    if options.get("quantize") is not None and storage.is_path(dst):
        report.losses += _quantization_losses(report.files, wanted, limits)
    if job.selection.flattens:
        report.changes.append("nested values that were renamed stand under their new names alone")
    if verify:
        comparing.check(job.written or job.rows(), dst, wanted, report, limits)
    return report


def _quantization_losses(files: list[str], format: str, limits: Limits) -> list[Loss]:
    """What was asked to be stored in fewer bits, and what that cost: the worst of each name."""
    worst: dict[str | None, Any] = {}
    for file in files if formats.get(format).documents else ():
        for document in opening.open_file(file, format, limits=limits).documents():
            for leaf in document.leaves:
                kind = leaf.stored.quantization if leaf.stored else None
                before = worst.get(leaf.name)
                if kind is not None and (before is None or kind.max_error > before.max_error):
                    worst[leaf.name] = kind
    return [Loss(name, "quantize", f"{kind.dtype} stored as {kind.describe()}") for name, kind in worst.items()]


def _parse_allow(allow: Iterable[str] | str) -> frozenset[str]:
    return frozenset([allow] if isinstance(allow, str) else allow)


# A file for each tensor.
INTO_EACH = Hint(purpose="put {name} into the target for a file each")


def _format_of(dst: Any) -> str:
    storage.check_target(dst, "write")
    path = storage.describe(dst)
    found = formats.by_suffix(path)
    if found is None:
        raise UsageError(
            "no format has this suffix",
            path=path,
            hints=[Hint("format", choices=tuple(formats.writable()), of="save")],
        )
    return found


class _Job:
    """One conversion: what comes from where, and goes where."""

    def __init__(
        self,
        source: Opened,
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
        self.rows: Callable[[], Iterator[Table | Document]] = lambda: iter(())  # or the rows that went to the target
        self._found: list[Loss] = []  # not judged yet: all losses are told together

    def run(
        self, stack: bool | None, unstack: int | None, shards: int, progress: Callable[[int], None] | None
    ) -> Report:
        chosen = formats.get(self.format)
        if stack and not chosen.documents:
            raise UsageError(f"rows can't be stacked in format {self.format!r}: it holds rows")
        documents = self._documents()
        source = self.source
        if source.rows and unstack is None and not self._says_more_than_rows():
            self._convert_rows(self._tables, stack, shards, progress)
            return self.report
        first = self._first(documents)
        if not source.chosen.documents:
            raise UsageError("it holds rows already: only arrays are unstacked", path=source.path)
        if first is None:
            raise UsageError("it holds no tensors", path=source.path)
        stream = bool(first.item) or next(documents, None) is not None
        if unstack is not None:
            if stream:
                raise UsageError("it is a stream of objects: it has rows already", path=source.path)
            whole = self._select(first)
            self._found += [*row_losses(whole), *sharing_losses(whole, find_aliases(whole.leaves))]
            self.report.changes.append(f"unstacked along axis {unstack}")
            self._convert_rows(lambda: _unstack(whole, unstack), stack, shards, progress)
        elif stream or not chosen.documents:
            rows_of = lambda: map(self._select, source.documents())  # noqa: E731
            self._convert_rows(rows_of, stack, shards, progress, single=not stream)
        else:
            document = self.casting.apply(self._select(first))
            self.casting.check_used(source.path)
            self._convert_document(document)
            self.report.losses += self._cast_losses()
        return self.report

    def _judge(self, losses: Iterable[Loss]) -> None:
        """Raise LossError over what is lost, unless it is allowed: then the report has it."""
        found, self._found = [*self._found, *losses], []
        lost = [loss.name for loss in found if loss.dropped and loss.name is not None]
        refuse(found, self.allowed, self.format, self.source.chosen.leaving_out(lost))
        self.report.losses += found

    def _first(self, documents: Iterator[Document]) -> Document | None:
        """The first document. If nothing is left without what is not read, that is what is told."""
        try:
            first = next(documents, None)
        except UnsupportedError:
            self._judge(())
            raise
        if first is None:
            self._judge(())
        return first

    def _documents(self) -> Iterator[Document]:
        """What the source holds, without what of it is not read, if leaving that out is allowed."""
        if not self.source.may_hold_objects:
            return self.source.documents()
        found = list(self.source.documents())
        objects = [leaf for document in found for leaf in document.leaves if leaf.kind == "object"]
        if not objects:
            return iter(found)
        self._found += [unread_loss(leaf) for leaf in objects if self.selection.takes(leaf.name)]
        self.source = self.source.without_objects()
        return self.source.documents()

    def _select(self, document: Document) -> Document:
        with naming(self.source.path):
            return check_unread(self.selection.apply(document))

    def _says_more_than_rows(self) -> bool:
        """Whether a table says more than rows can: metadata and Python values are those of the whole. Then it is one
        document, unless the target holds rows alone."""
        document = self.source.as_document()
        losses = [] if document is None else row_losses(self.selection.apply(_without_place(document)))
        if losses and not formats.get(self.format).documents:
            self._found += losses
            return False
        return bool(losses)

    def _tables(self) -> Iterator[Table]:
        return map(self.selection.table, self.source.tables(self.source.batch_rows, self.selection.takes))

    # ---- one document ----------------------------------------------------------

    def _convert_document(self, document: Document) -> None:
        self.selection.check_used(self.source.path)
        if not document.leaves:
            raise UsageError("nothing to convert: no tensor of it was chosen", path=self.source.path)
        if storage.is_path(self.dst) and "{name}" in storage.describe(self.dst):
            self._convert_each(document)
            return
        found = self._fit(document)
        self._judge(found.losses)
        if not self._write(found, self.dst):
            raise LossError(
                _describe_nothing_left(self.format, self.report.losses),
                feature="structure",
                hints=[Hint("names", purpose="to pick tensors", of="convert"), INTO_EACH],
            )

    def _fit(self, document: Document, name: str | None = None) -> Fitted:
        """What the format holds of a document. `name`: of a tensor that stands alone."""
        chosen = formats.get(self.format)
        formats.check_options(chosen, self.options, chosen.write_options)
        only = chosen.holds_one and not (chosen.structs and is_struct(document))
        if only and len(document.leaves) > 1:
            raise LossError(
                f"format {self.format!r} holds one tensor, and there are {len(document.leaves)}",
                feature="structure",
                hints=[Hint("names", purpose="to pick one", of="convert"), INTO_EACH],
            )
        if only:
            document = self._bare_document(chosen, document)
        found = fit(chosen, document, self.options, self.casting.check)
        if any(loss.dropped and loss.name is None for loss in found.losses):
            found = found._replace(document=document._replace(leaves=[]))
        told = [loss if loss.name is not None else replace(loss, name=name) for loss in found.losses]
        return found._replace(losses=told)

    def _write(self, found: Fitted, dst: Any) -> bool:
        """Write it; False if nothing is left of it."""
        document, granted, _ = found
        report = self.report
        if not document.leaves:
            return False
        chosen = formats.get(self.format)
        report.losses += sharing_losses(document, chosen.written_apart(document, self.options))
        chosen.write(document, dst, granted, self.options, self.sync)
        self.written.append((document, dst))
        report.files.append(storage.describe(dst))
        report.tensors += len(document.leaves)
        report.nbytes += sum(leaf.value.nbytes for leaf in document.leaves)
        return True

    def _bare_document(self, chosen: Format, document: Document) -> Document:
        """A single tensor for a format that has no structures: under its name, if that has a place."""
        leaf = document.leaves[0]
        value = _as_it_stands(leaf)
        # Metadata of the whole is that of its only tensor.
        of_the_whole = metadata.typed(document.meta, document.origin)
        meta, types = metadata.to_text({**of_the_whole, **metadata.typed(value.meta, value.origin)})
        origin = {**metadata.without_types(value.origin), **types}
        told = formats.document_meta_to_keep(document)
        self._found += whole_losses({key: text for key, text in told.items() if meta.get(key) != text})

        def document_named(name: str | None) -> Document:
            return Document([Leaf(amended(value, name, meta, origin), kind=leaf.kind)], item=document.item)

        named = document_named(leaf.name)
        if leaf.path and any(loss.feature == "name" for loss in fit(chosen, named, self.options).losses):
            self.report.changes.append(f"the name {leaf.name!r} has no place in the file")
            return document_named(None)
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
        self._found += whole_losses(formats.document_meta_to_keep(document))
        self._found += sharing_losses(document, find_aliases(document.leaves))
        found = []
        for leaf in document.leaves:
            value = _as_it_stands(leaf)
            alone = Document([Leaf(amended(value, None, value.meta), kind=leaf.kind)])
            found.append(self._fit(alone, leaf.name))
        self._judge(loss for one in found for loss in one.losses)
        for path, one in zip(paths, found, strict=True):
            self._write(one, path)
        self.report.changes.append(f"{len(self.report.files)} files, one for each tensor")

    # ---- rows ------------------------------------------------------------------

    def _convert_rows(
        self,
        source: Callable[[], Iterator[Table | Document]],
        stack: bool | None,
        shards: int,
        progress: Callable[[int], None] | None,
        single: bool = False,
    ) -> None:
        if self.casting:
            uncast = source
            source = lambda: map(self._cast_rows, uncast())  # noqa: E731
        target = self._target(stack, shards, single)
        self._found = []  # which the target tells, with its own
        try:
            some = False
            for item in source():
                target.add(item)
                some = True
                if progress is not None:
                    progress(target.rows)
            if not some or (not target.rows and not formats.get(self.format).documents):
                raise UsageError("it holds no rows", path=self.source.path)
            self.selection.check_used(self.source.path)
            if isinstance(target, RowTarget):
                self.report.files += target.close()
        except BaseException:
            target.abort()
            raise
        self.report.rows = target.rows
        self.report.losses += target.losses
        if not isinstance(target, Stack):
            self.report.losses += self._cast_losses()
        if isinstance(target, Stack):
            self.report.changes.append(f"{many(target.rows, 'row')} stacked")
            self._convert_document(target.document())
        else:
            self.rows = source
            if shards > 1:
                self.report.changes.append(f"rows dealt in turn to {shards} files")
            self.report.tensors, self.report.nbytes = len(target.names), target.nbytes

    def _cast_rows(self, item: Table | Document) -> Table | Document:
        """Some rows with their floats as the other type."""
        document = self.casting.apply(item.document() if isinstance(item, Table) else item)
        self.casting.check_used(self.source.path)
        document = document._replace(leaves=read_all(document.leaves))  # raises LossError over what becomes infinite
        self.casting.forget()
        return rows.table_of(document)._replace(paths=item.paths) if isinstance(item, Table) else document

    def _cast_losses(self) -> list[Loss]:
        return [Loss(name or None, "cast", told) for name, told in self.casting.losses.items()]

    def _target(self, stack: bool | None, shards: int, single: bool) -> RowTarget | Stack:
        chosen = formats.get(self.format)
        stacks = stack or not (chosen.rows or chosen.streams)
        if stacks and stack is False:
            raise UsageError(f"format {self.format!r} holds no rows: they must be stacked")
        if not stacks and "{name}" in storage.describe(self.dst):
            raise UsageError("{name} in the target is for tensors, not for rows")
        if stacks:
            return Stack(self.format, self.allowed, self._found, lambda document: self._fit(document).losses)
        options = self.options
        if self.source.format == self.format:
            options = {**self.source.options_like(self.selection.takes, self.selection.renames), **options}
        chosen.check_create(options)
        create = lambda: chosen.create(self.dst, options, self.sync, shards)  # noqa: E731
        return RowTarget(self.format, self.allowed, create, self._found, single)


def _as_it_stands(leaf: Leaf) -> Any:
    """The value of a leaf; one in Fortran order is not read, which would turn it."""
    value = leaf.value
    return value if isinstance(value, Deferred) and value.reverse is not None else leaf.read()


def _without_place(document: Document) -> Document:
    """A table without what tables keep beside their columns: where these stand, and how the whole was held."""
    return document._replace(
        origin={}, leaves=[leaf._replace(path=(("key", str(leaf.name)),)) for leaf in document.leaves if leaf.path]
    )


def _unstack(document: Document, axis: int) -> Iterator[Table]:
    """The rows of a document's arrays along an axis, in batches."""
    columns = {name: rows.move_axis(leaf.read(), axis) for name, leaf in by_column(document.leaves).items()}
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
        yield Table({name: rows.cut(value, start, stop) for name, value in columns.items()}, stop - start)


def _describe_nothing_left(format: str, losses: list[Loss]) -> str:
    why = "\n".join(f"  {loss}" for loss in losses[-3:])
    return f"format {format!r} can't hold this:\n{why}"


def file_name(name: str) -> str:
    """A tensor's name as a file name: opaque, never a path."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
    return safe if safe.strip(".") else f"_{safe}"
