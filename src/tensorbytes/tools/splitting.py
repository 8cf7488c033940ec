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

from tensorbytes import formats, storage
from tensorbytes.errors import LIMITS, Hint, Limits, UsageError
from tensorbytes.formats import Options
from tensorbytes.reader import Entry
from tensorbytes.tensor import Array
from tensorbytes.tools import copying, parts, recognition
from tensorbytes.tools import rows as row_values
from tensorbytes.tools.copying import Progress, RawRecords, RecordFile, TableFile, sound
from tensorbytes.tools.parts import Cutter, FileSet, PartFile, Parts
from tensorbytes.tools.selection import Selection
from tensorbytes.tools.sources import BATCH_ROWS, ArrowTable, Columns, Documents, as_table, open_source
from tensorbytes.tools.targets import row_losses
from tensorbytes.tree import Document


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
    """Cut a file into several: into `shards` files, or files of so many `rows`, or of at most so many `nbytes`.

    Rows are the records of TFRecord files, the rows of tables, the objects of streams. A file of named
    tensors is cut between its tensors; `names` picks some. What is larger than `nbytes` is alone in a file.

    The parts of `x.tfrecord` are `x.tfrecord-00000-of-00004` and so on, which "x.tfrecord@4" stands for;
    those of `x.npz` are `x-00000-of-00004.npz`. Safetensors files get their index beside them, as other
    software reads it: there `dst` is the name of the checkpoint, and numbers start from 1.

    The order stays. Records are copied as they are, their checksums verified, in the compression of the
    source unless `compression` says otherwise. The files appear together, when all are whole. Further arguments
    are options of the format. `progress` is called with the bytes read so far, and their total if it is known.
    """
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
    if recognition.kind_of(src) in (recognition.EXAMPLES, recognition.EVENTS, recognition.OTHERS):
        if names is not None:
            raise UsageError(
                "names pick tensors; of records all features are copied",
                hints=[Hint(operation="convert", arguments=("src", "dst"), purpose="can leave some out")],
            )
        return job.records()
    source = open_source(src, limits=limits)
    assert isinstance(source, Documents)
    table = as_table(source)
    if isinstance(table, ArrowTable) and not row_losses(table.document):
        return job.table(table, Selection(names, None))
    documents = source.documents()
    first = next(documents, None)
    if first is None:
        raise UsageError("it holds no tensors", path=source.path)
    if first.item or next(documents, None) is not None:
        return job.stream(source, Selection(names, None))
    return job.document(source, first, Selection(names, None))


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
        return Cutter(None, None, parts.even(total, self.shards))

    # ---- records ---------------------------------------------------------------

    def records(self) -> Parts:
        from tensorbytes.records.files.index import indexes
        from tensorbytes.records.files.paths import byte_range, expand

        copying.check_record_format(self.format, self.dst)
        targets = expand(self.src)
        inputs = [storage.describe(byte_range(target)[0]) for target in targets]
        records = RawRecords(targets, self.dst, self.options, self.progress, self.limits)
        changes: list[str] = []

        def count() -> int:
            return sum(map(len, indexes(targets, "auto", self.limits)))

        made = self._deal(
            ((block, copying.record_sizes(block)) for block in records.blocks()),
            self._cutter(count, spare=True),
            recognition.EXAMPLES,
            copying.record_bytes,
            lambda path: RecordFile(path, records.packer(), self.sync),
            inputs,
            showing=lambda files: copying.copy_schema(inputs, self.dst, self.sync, files, changes, follow=False),
        )
        made.changes += changes
        return made

    # ---- rows and objects ------------------------------------------------------

    def table(self, table: ArrowTable, selection: Selection) -> Parts:
        wanted = self.format or formats.by_suffix(self.dst) or table.format
        if wanted not in ("arrow", "parquet"):
            raise UsageError(
                "split cuts tables into Arrow or Parquet files",
                hints=[Hint(operation="convert", arguments=("src", "dst"), purpose=f"makes format {wanted!r} of them")],
            )
        options = self._stream_option(wanted)

        def items() -> Iterator[tuple[Columns, Array]]:
            done = 0
            for columns in table.batches(BATCH_ROWS, selection.takes):
                sizes = parts.row_sizes(columns.values.values(), columns.size)
                yield columns, sizes
                done += int(sizes.sum())
                self._tell(done)

        def count() -> int:
            leaf = next(iter(table.document.leaves), None)
            return 0 if leaf is None else Entry(leaf, lambda value: value, table.path).shape[0] or 0

        def cut(columns: Columns, start: int, stop: int) -> dict[str, Any]:
            return {name: row_values.cut(value, start, stop) for name, value in columns.values.items()}

        made = self._deal(
            items(),
            self._cutter(count),
            wanted,
            cut,
            lambda path: TableFile(path, wanted, self.sync, options),
            [table.path],
            "row",
        )
        selection.check_used(table.path)
        return made

    def _stream_option(self, wanted: str) -> Options:
        # The suffix that tells is not that of the name under which a file is first written.
        streamed = wanted == "arrow" and self.dst.lower().endswith(".arrows")
        return {"stream": True, **self.options} if streamed else self.options

    def _tell(self, done: int, total: int | None = None) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def stream(self, source: Documents, selection: Selection) -> Parts:
        wanted = self.format or formats.by_suffix(self.dst) or source.format
        changes: list[str] = []

        def items() -> Iterator[tuple[Document, Array]]:
            for document in source.documents():
                whole = sound(source, selection.apply(document))
                changes.extend(copying.stored_otherwise(whole, self.options) if not changes else [])
                yield whole, np.array([sum(leaf.value.nbytes for leaf in whole.leaves)])
                done = max((leaf.at for leaf in whole.leaves), default=0)
                self._tell(done, None if source.data is None else len(source.data))

        made = self._deal(
            items(),
            self._cutter(lambda: sum(1 for _ in source.documents())),
            wanted,
            lambda document, start, stop: document,
            lambda path: copying.stream_file(path, wanted, self.sync, self.options),
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
        make: Callable[[str], PartFile],
        inputs: Sequence[str],
        unit: str = "record",
        showing: Callable[[FileSet], AbstractContextManager[None]] | None = None,
    ) -> Parts:
        """Write items one after another, a new file wherever the cutter says so."""
        files = FileSet(self.dst, format, self.sync, inputs)
        present: PartFile | None = None
        try:
            for item, sizes in items:
                at = 0
                while at < len(sizes):
                    number = cutter.take(sizes[at:])
                    present = present or make(files.new())
                    if number:
                        present.add(cut(item, at, at + number))
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

    def document(self, source: Documents, first: Document, selection: Selection) -> Parts:
        if self.rows is not None:
            raise UsageError(
                "it holds tensors, not rows",
                path=source.path,
                hints=[
                    Hint("shards", purpose="for a number of files", of="split"),
                    Hint("nbytes", purpose="for bytes in each", of="split"),
                ],
            )
        document = sound(source, selection.apply(first))
        selection.check_used(source.path)
        wanted = self.format or formats.by_suffix(self.dst) or source.format
        chosen = formats.get(wanted)
        if not chosen.writes or chosen.several_files:
            raise UsageError(
                f"split writes no parts in format {wanted!r}",
                hints=[Hint("format", "tb", of="save"), Hint("format", "safetensors", of="save")],
            )
        if wanted == "safetensors":
            return self._checkpoint(source, document)
        together = parts.groups(document.leaves)
        sizes = [sum(leaf.value.nbytes for leaf in group) for group in together]
        if len(together) < 2:
            raise UsageError("it holds one tensor, or one list: there is nothing to cut between", path=source.path)
        most = self._most(sizes)
        files = FileSet(self.dst, wanted, self.sync, [source.path])
        items = []
        try:
            for start, stop in parts.filled(sizes, most):
                leaves = [leaf for group in together[start:stop] for leaf in group]
                some = document._replace(leaves=leaves)
                chosen.write(some, files.new(), frozenset(), self._stream_option(wanted), self.sync)
                items.append(len(leaves))
                self._tell(sum(sizes[:stop]), sum(sizes))
            names = files.publish()
        except BaseException:
            files.discard()
            raise
        made = Parts(source.path, wanted, names, items, "tensor", sum(map(os.path.getsize, names)))
        made.changes += copying.stored_otherwise(document, self.options)
        return made

    def _most(self, sizes: list[int]) -> int:
        if self.nbytes is not None:
            return self.nbytes
        assert self.shards is not None
        if len(sizes) < self.shards:
            raise UsageError(
                f"{len(sizes)} tensors can't be cut into {self.shards} parts", path=storage.describe(self.src)
            )
        return parts.fewest(sizes, self.shards)

    def _checkpoint(self, source: Documents, document: Document) -> Parts:
        """Shards and their index, as the format writes them by itself."""
        from tensorbytes.formats._safetensors import shards

        path = shards.check_target(self.dst)
        if source.format == "safetensors" and storage.is_local(source.path):
            # A checkpoint that takes the place of another removes its files.
            read = [source.path, *shards.find(source.path)]
            parts.check_apart([path], [name.removesuffix(".index.json") for name in read])
        most = self._most([leaf.value.nbytes for leaf in document.leaves])
        options = {**self.options, "max_shard_bytes": most}
        formats.get("safetensors").write(document, path, frozenset(), options, self.sync)
        held = shards.held(path)
        names = [os.path.join(os.path.dirname(path), name) for name in held] or [path]
        items = list(held.values()) or [len(document.leaves)]
        index = [path + ".index.json"] if held else []
        size = sum(map(os.path.getsize, [*names, *index]))
        return Parts(source.path, "safetensors", names, items, "tensor", size)
