"""split and merge: one file into several, several into one.

| source                                     | is cut and joined by   | how                                          |
| ------------------------------------------ | ---------------------- | -------------------------------------------- |
| TFRecord files, whatever the records hold  | records                | the bytes of each, once its checksum is right |
| streams of the native frame, of messages   | objects                | written anew, numbered anew                  |
| Arrow and Parquet tables                   | rows                   | written anew, some thousand at a time        |
| everything else: files of named tensors    | tensors                | written from views of the source's map       |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import formats, opening
from tensorbytes.errors import LIMITS, Hint, Limits, UsageError
from tensorbytes.formats import Format, Options
from tensorbytes.formats._opened import BATCH_ROWS, Created, Opened, Progress
from tensorbytes.formats._safetensors import shards as safetensors_shards
from tensorbytes.io import storage
from tensorbytes.ops import parts
from tensorbytes.ops.parts import Cutter, FileSet, Parts
from tensorbytes.ops.selection import Selection
from tensorbytes.ops.streaming import check_streams, storage_changes, verify_document
from tensorbytes.ops.targets import row_losses
from tensorbytes.rows import Table
from tensorbytes.tensor import Array
from tensorbytes.tree import Document


def check_copied(source: Opened, format: str | None, dst: str) -> None:
    """Records stay records: a name or a wish that asks for something else is not for copying."""
    wanted = format or formats.by_suffix(dst)
    if wanted is not None and wanted != source.format and formats.get(wanted).self_describing:
        raise UsageError(
            "records are copied as they are",
            path=dst,
            hints=[Hint(operation="convert", arguments=("src", "dst"), purpose=f"makes format {wanted!r} of them")],
        )


def split(
    src: Any,
    dst: Any,
    *,
    shards: int | None = None,
    rows: int | None = None,
    nbytes: int | None = None,
    format: str | None = None,
    names: Collection[str] | str | None = None,
    sync: bool = True,
    progress: Progress | None = None,
    limits: Limits = LIMITS,
    **options: Any,
) -> Parts:
    """Cut a file into several: into `shards` files, or files of `rows` each, or of at most `nbytes` each.

    Rows are the records of TFRecord files, the rows of tables, the objects of streams. A file of named
    tensors is cut between its tensors; `names` picks some. What is larger than `nbytes` is alone in a file.

    The parts of `x.tfrecord` are `x.tfrecord-00000-of-00004` and so on, which "x.tfrecord@4" stands for;
    those of `x.npz` are `x-00000-of-00004.npz`. Safetensors files get their index beside them, as other
    software reads it: there `dst` is the name of the checkpoint, and numbers start from 1.

    The order stays. Records are copied as they are, their checksums verified, in the compression of the
    source unless `compression` says otherwise. The files appear together, when all are whole. Further arguments
    are options of the format. `progress` is called with the bytes read so far, and their total if it is known.
    """
    format = formats.resolve(format)
    chosen = [shards, rows, nbytes]
    if sum(number is not None for number in chosen) != 1:
        raise UsageError(
            "split must know how large the parts shall be",
            hints=[
                Hint("shards", purpose="for a number of files", of="split"),
                Hint("rows", purpose="for rows in each", of="split"),
                Hint("nbytes", purpose="for bytes in each", of="split"),
            ],
        )
    for units, number in zip(("shards", "rows in each", "bytes in each"), chosen, strict=True):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            raise UsageError(f"{number!r} {units}", expected="a whole number, 1 or more")
    if not storage.is_local(dst):
        raise UsageError("split writes several files", expected="a local path", got=storage.describe(dst))
    job = _Job(src, os.fspath(dst), shards, rows, nbytes, format, sync, progress, limits, options)
    source = opening.open_file(src, limits=limits)
    if source.holds_records:
        if names is not None:
            raise UsageError(
                "names pick tensors; of records all features are copied",
                hints=[Hint(operation="convert", arguments=("src", "dst"), purpose="can leave some out")],
            )
        return job.copies(source)
    selection = Selection(names, None)
    if source.rows:
        whole = source.as_document()
        if whole is None or not row_losses(whole):
            return job.rows_of(source, selection)
    documents = source.documents()
    first = next(documents, None)
    if first is None:
        raise UsageError("it holds no tensors", path=source.path)
    if first.item or next(documents, None) is not None:
        return job.stream(source, selection)
    return job.document(source, first, selection)


class _Job(NamedTuple):
    """What was asked for."""

    src: Any
    dst: str
    shards: int | None
    rows: int | None
    nbytes: int | None
    format: str | None
    sync: bool
    progress: Progress | None
    limits: Limits
    options: Options

    def _cutter(self, count: Callable[[], int], spare: bool = False) -> Cutter:
        """`count` counts the items, if that must be known; `spare` files may stay empty."""
        if self.shards is None:
            return Cutter(self.rows, self.nbytes)
        total = count()
        if not spare and total < self.shards:
            raise UsageError(f"{total} items can't be cut into {self.shards} parts", path=storage.describe(self.src))
        return Cutter(None, None, parts.deal_evenly(total, self.shards))

    # ---- rows and objects ------------------------------------------------------

    def copies(self, source: Opened) -> Parts:
        """Records as they are, whatever is in them."""
        check_copied(source, self.format, self.dst)
        inputs, changes = source.files(), list[str]()
        options, chosen = self.options, source.chosen

        def make(path: str) -> Created:
            return chosen.recreate(source, path, chosen.options_for(self.dst, options), self.sync)

        made = self._deal(
            source.as_stored(self.progress),
            self._cutter(source.count, spare=True),
            source.format,
            lambda piece, start, stop: piece.cut(start, stop),
            make,
            inputs,
            showing=lambda files: chosen.showing(inputs, self.dst, self.sync, files, changes),
        )
        made.changes += changes
        return made

    def rows_of(self, source: Opened, selection: Selection) -> Parts:
        wanted = self.format or formats.by_suffix(self.dst) or source.format
        chosen = formats.get(wanted)
        if not chosen.rows:
            raise UsageError(
                "split cuts tables into files that hold rows",
                hints=[Hint(operation="convert", arguments=("src", "dst"), purpose=f"makes format {wanted!r} of them")],
            )
        options = chosen.options_for(self.dst, self.options)
        chosen.check_create(options)

        def items() -> Iterator[tuple[Table, Array]]:
            done = 0
            for table in map(selection.table, source.tables(BATCH_ROWS, selection.takes)):
                sizes = table.sizes()
                yield table, sizes
                done += int(sizes.sum())
                self._tell(done)

        cutter, changes = self._cutter(source.count), list[str]()

        def showing(files: FileSet) -> AbstractContextManager[None]:
            parts = [path for path, number in zip(files.hidden, cutter.items, strict=True) if number]
            return chosen.showing(parts, self.dst, self.sync, files, changes)

        made = self._deal(
            items(),
            cutter,
            wanted,
            Table.cut,
            lambda path: chosen.create(path, options, self.sync),
            [source.path],
            "row",
            showing,
        )
        selection.check_used(source.path)
        made.changes += changes
        return made

    def _tell(self, done: int, total: int | None = None) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def stream(self, source: Opened, selection: Selection) -> Parts:
        wanted = self.format or formats.by_suffix(self.dst) or source.format
        chosen = check_streams(wanted, self.options)
        changes: list[str] = []

        def items() -> Iterator[tuple[Document, Array]]:
            for document in source.documents():
                whole = verify_document(source, selection.apply(document))
                changes.extend(storage_changes(whole, self.options) if not changes else [])
                yield whole, np.array([sum(leaf.value.nbytes for leaf in whole.leaves)])
                done = max((leaf.at for leaf in whole.leaves), default=0)
                self._tell(done, None if source.data is None else len(source.data))

        made = self._deal(
            items(),
            self._cutter(lambda: sum(1 for _ in source.documents())),
            wanted,
            lambda document, start, stop: document,
            lambda path: chosen.create(path, self.options, self.sync),
            [source.path],
            "object",
        )
        selection.check_used(source.path)
        made.changes += changes
        return made

    def _deal(
        self,
        items: Iterable[tuple[Any, Array]],
        cutter: Cutter,
        format: str,
        cut: Callable[[Any, int, int], Any],
        make: Callable[[str], Created],
        inputs: Sequence[str],
        unit: str = "record",
        showing: Callable[[FileSet], AbstractContextManager[None]] | None = None,
    ) -> Parts:
        """Write items one after another, a new file wherever the cutter says so."""
        files = FileSet(self.dst, format, self.sync, inputs)
        present: Created | None = None
        try:
            for item, sizes in items:
                at = 0
                while at < len(sizes):
                    number = cutter.take(sizes[at:])
                    present = present or make(files.new())
                    if number:
                        part = cut(item, at, at + number)
                        present.add(present.prepare(part) if isinstance(part, Table) else part)
                        at += number
                    else:
                        present.close()
                        present = None
                        cutter.next()
            if present is None:
                raise UsageError(f"it holds no {unit}s", path=storage.describe(self.src))
            present.close()
            while cutter.empty_left:
                cutter.next()
                make(files.new()).close()
            names = files.publish(showing and showing(files))
        except BaseException:
            if present is not None:
                present.abort()
            files.discard()
            raise
        size = sum(map(os.path.getsize, names))
        return Parts(storage.describe(self.src), format, names, cutter.items, unit, size)

    # ---- tensors ---------------------------------------------------------------

    def document(self, source: Opened, first: Document, selection: Selection) -> Parts:
        if self.rows is not None:
            raise UsageError(
                "it holds tensors, not rows",
                path=source.path,
                hints=[
                    Hint("shards", purpose="for a number of files", of="split"),
                    Hint("nbytes", purpose="for bytes in each", of="split"),
                ],
            )
        document = verify_document(source, selection.apply(first))
        selection.check_used(source.path)
        wanted = self.format or formats.by_suffix(self.dst) or source.format
        chosen = formats.get(wanted)
        if not chosen.writes or chosen.several_files:
            sharded = [name for name in formats.writable() if "max_shard_bytes" in formats.get(name).write_options]
            raise UsageError(
                f"split writes no parts in format {wanted!r}",
                hints=[Hint("format", name, of="save") for name in (formats.NATIVE, *sharded)],
            )
        if "max_shard_bytes" in chosen.write_options:
            return self._checkpoint(chosen, source, document)
        together = parts.groups(document.leaves)
        sizes = [sum(leaf.value.nbytes for leaf in group) for group in together]
        if len(together) < 2:
            raise UsageError("it holds one tensor, or one list: there is nothing to cut between", path=source.path)
        most = self._most(sizes)
        files = FileSet(self.dst, wanted, self.sync, [source.path])
        items = []
        try:
            for start, stop in parts.fill(sizes, most):
                leaves = [leaf for group in together[start:stop] for leaf in group]
                some = document._replace(leaves=leaves)
                chosen.write(some, files.new(), frozenset(), chosen.options_for(self.dst, self.options), self.sync)
                items.append(len(leaves))
                self._tell(sum(sizes[:stop]), sum(sizes))
            names = files.publish()
        except BaseException:
            files.discard()
            raise
        made = Parts(source.path, wanted, names, items, "tensor", sum(map(os.path.getsize, names)))
        made.changes += storage_changes(document, self.options)
        return made

    def _most(self, sizes: list[int]) -> int:
        if self.nbytes is not None:
            return self.nbytes
        assert self.shards is not None
        if len(sizes) < self.shards:
            raise UsageError(
                f"{len(sizes)} tensors can't be cut into {self.shards} parts", path=storage.describe(self.src)
            )
        return parts.smallest_limit(sizes, self.shards)

    def _checkpoint(self, chosen: Format, source: Opened, document: Document) -> Parts:
        """Shards and their index, as the format writes them by itself."""
        path = safetensors_shards.check_target(self.dst)
        if source.format == chosen.name and storage.is_local(source.path):
            # A checkpoint that takes the place of another removes its files.
            read = [source.path, *safetensors_shards.find(source.path)]
            parts.check_apart([path], [name.removesuffix(".index.json") for name in read])
        most = self._most([leaf.value.nbytes for leaf in document.leaves])
        options = {**self.options, "max_shard_bytes": most}
        chosen.write(document, path, frozenset(), options, self.sync)
        held = safetensors_shards.held(path)
        names = [os.path.join(os.path.dirname(path), name) for name in held] or [path]
        items = list(held.values()) or [len(document.leaves)]
        index = [safetensors_shards.index_of(path)] if held else []
        size = sum(map(os.path.getsize, [*names, *index]))
        return Parts(source.path, chosen.name, names, items, "tensor", size)
