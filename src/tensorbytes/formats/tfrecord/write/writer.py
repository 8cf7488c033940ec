"""Writing Examples and SequenceExamples, row by row or in columns.

Rows are collected as columns and written by the kernel some thousand at a time; columns
that are arrays already go straight through. The same input gives the same bytes, whether it
came as rows or as columns: keys are sorted, and nothing depends on time or place.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes.errors import RECORDS, SchemaError, SchemaWarning, UsageError, naming_parameters
from tensorbytes.formats.tfrecord.files.memory import Memory
from tensorbytes.formats.tfrecord.schema import ColumnFeature, Feature, Schema, sidecar_path
from tensorbytes.formats.tfrecord.schema.feature import check_name
from tensorbytes.formats.tfrecord.schema.origins import Noted, merge_origins
from tensorbytes.formats.tfrecord.write import accept, batch, guess, sink
from tensorbytes.formats.tfrecord.write import sidecar as sidecars
from tensorbytes.formats.tfrecord.write.assemble import MAX_BYTES, KernelColumn, framed, too_large
from tensorbytes.formats.tfrecord.write.batch import BatchColumn, Given
from tensorbytes.formats.tfrecord.write.collect import Collector, collector
from tensorbytes.formats.tfrecord.write.encode import Misfit, describe
from tensorbytes.formats.tfrecord.write.growth import Fault, Growth, faults_of, refusals_of, with_feature
from tensorbytes.formats.tfrecord.write.sidecar import Sidecar, merged
from tensorbytes.formats.tfrecord.write.tables import TableRows
from tensorbytes.formats.tfrecord.write.untold import Untold
from tensorbytes.io import publish, storage
from tensorbytes.io.output import Closable, check_between_calls, closing_on_failure
from tensorbytes.io.workers import count_threads, map_in_order
from tensorbytes.rows import Table, fill_missing
from tensorbytes.tensor import Array, Ragged
from tensorbytes.typing import Buffer

if TYPE_CHECKING:
    from tensorbytes._wire.example_write_reference import RowColumn

# Rows are turned into bytes when there are this many of them, or this much.
_ROWS = 2048
_CHUNK_BYTES = 1 << 20
# Each of several shards gets its share of a chunk: chunks grow with them, up to this factor.
_MOST_CHUNKS = 8
# What an entry takes on disk beside its values, roughly.
_ENTRY_BYTES = 12


def _frames_size(columns: Sequence[Any], count: int) -> int:
    """About how much all records take beside their values."""
    return count * _ENTRY_BYTES * (len(columns) + 2)


Adders = list[tuple[str, Callable[[Any], int]]]


def _flags(present: Mapping[str, Any], values: Mapping[str, Given], count: int) -> dict[str, Array]:
    """Which rows have a column, of those that some rows lack."""
    found = {}
    for name, flags in present.items():
        array = np.asarray(flags)
        if name not in values or array.dtype != bool or array.shape != (count,):
            raise UsageError(f"present[{name!r}]", expected=f"a column's name, and {count} bools", got=describe(flags))
        if not isinstance(values[name], list):  # which has None
            found[name] = array
    return found


def _is_dense(value: Given, present: Array, shape: tuple[int | None, ...]) -> bool:
    """Whether rows are ragged only because some are missing, which is how batches have optional features."""
    if not isinstance(value, Ragged) or None in shape or len(value.splits) > 1:
        return False
    inner = value.values.shape[1:]
    each = math.prod(size or 0 for size in shape) if value.shapes is not None else (shape[0] or 0) if shape else 1
    if value.shapes is None and inner != shape[1:]:
        return False
    if value.shapes is not None and (inner or (value.shapes[present] != np.array(shape, np.int64)).any()):
        return False
    return np.array_equal(np.diff(value.splits[0]), np.where(present, each, 0))


def _checked_floats(floats: Any, schema: Any) -> str:
    name = dtypes.named(floats).name
    if name not in ("float32", "float64"):
        raise UsageError(f"floats={floats!r}", expected="'float64' or 'float32'")
    if name != "float64" and schema is not None:
        raise UsageError("floats= is for writing without a schema; a schema says itself what features are")
    return name


class RecordWriter(Closable):
    """A TFRecord file being written, or several: record i goes to shard i % shards.

    A file that exists is replaced only when the new one is first made visible, by flush(),
    sync() or close(): if the block raises before that, the old file stays as it was. What
    flush() returned for survives the death of the process, sync() a power cut.

    `compression` is "gzip", "zlib", "snappy" or "none". Where it is not given, the name decides:
    .gz and .gzip, .zlib and .zz, .snappy ask for it, all others for none. With mode="a", a file that
    holds records stays as it is.

    Without a schema the first row or batch gives it: int64, float32, text and bytes, as scalars
    and in one dimension, become TensorFlow's own lists; other arrays a TensorProto, which keeps dtype
    and shape. A Python float has 64 bits, and a float list 32: it is float64, in a TensorProto, unless
    floats="float32" asks for the list, and for rounding. Such a schema
    widens as it must: a length that differs becomes None, a feature that some rows lack
    becomes optional. Empty lists wait for a row that tells what they hold. A schema that was given is
    never changed. It is saved as JSON beside the file, unless sidecar=False.

    `lists` names the features that are feature lists, where no schema says so: the records
    are SequenceExamples then. mode="a" adds to a file, after a look at its end. With
    sync=False, close() does not wait for the disk. Threads may share a writer: each call is done whole.
    """

    @naming_parameters(RECORDS)
    def __init__(
        self,
        path: storage.Target,
        *,
        schema: Any = None,
        lists: Iterable[str] | None = None,
        compression: str | None = None,
        level: int | None = None,
        shards: int = 1,
        mode: str = "w",
        sidecar: bool = True,
        sync: bool = True,
        floats: Any = "float64",
    ) -> None:
        sink.check_arguments(path, shards, mode)
        self._floats = _checked_floats(floats, schema)
        self._target = path
        # Also where the program changes its folder.
        place = publish.absolute(os.fspath(path)) if storage.is_local(path) else path  # type: ignore[arg-type]
        self._lock = threading.RLock()
        self._growth = Growth(schema, lists)
        self._schema: Schema | None = None
        self._origin: dict[str, str] = {}
        self._tables = TableRows({}, widths=False)
        self._untold = Untold()
        self._before: Schema | None = None  # of records that are there already
        self._unread: str | None = None  # a file whose schema is still to be found out
        self._places = sidecars.places(place)
        self._sidecar = Sidecar(sidecars.checked(self._places) if sidecar else [], sync)
        self._memory = Memory()
        self._rows = self._bytes = 0  # rows that are collected, and about how large they are
        self._collectors: dict[str, tuple[bool, Collector]] = {}
        self._required: tuple[RowColumn, ...] = ()
        self._optional: Adders = []
        self._width = -1  # how many features a row must have
        self._most_rows = _ROWS * min(shards, _MOST_CHUNKS)
        self._most_bytes = _CHUNK_BYTES * min(shards, _MOST_CHUNKS)
        if mode == "a":
            self._files = sink.append(path, compression, level, sync)
        else:
            self._files = sink.create(path, shards, compression, level, sync)
        self._count = self._files.count  # records that are written
        try:
            self._use(self._first_schema(place))
        except BaseException:
            self.abort()
            raise
        self._mark_open()

    def note_origin(self, origin: Mapping[str, str]) -> None:
        """Say how the table was held that the records come from: it stands in the schema beside them."""
        if self._before is not None and origin != self._origin:
            columns = self._before.columns.keys()
            merge_origins([Noted("the records there are", self._before.origin, columns), Noted("new ones", origin, ())])
        self._origin = dict(origin)

    def _declare(self, columns: Mapping[str, Any], optional: Iterable[str]) -> None:
        """Settle what features are by some columns, before rows come that may lack some of them."""
        if self._schema is not None or not columns:
            return
        values = {name: batch.given(x) for name, x in columns.items()}
        with self._trying():
            schema = self._growth.fitted(None, values, self._of_batch)
            lacking = set(optional)
            features = {name: replace(feature, optional=name in lacking) for name, feature in schema.features.items()}
            self._use(Schema(features, schema.lists))

    def _noted_schema(self) -> Schema | None:
        return self._schema.noting(self._origin) if self._schema is not None and self._origin else self._schema

    def _first_schema(self, target: Any) -> Schema | None:
        """The given schema, or that of the records that are there."""
        given = self._growth.given
        # Shards that are written one by one share one schema.
        if self._count or any(place.shared for place in self._places):
            self._before = sidecars.load(self._places)
        if self._before is None and self._count:
            self._unread = os.fspath(target)
        if self._before is None:
            return given
        if given is None:
            self._growth.fixed = bool(self._count)
            self._tables.origin = self._before.origin if self._count else {}
            return self._before if self._count else None
        merged(given, self._before)  # raises if they contradict each other
        return given

    # ---- rows ---------------------------------------------------------------

    def write(self, row: Any) -> None:
        """Add one record: a dict of features, a dataclass or a NamedTuple. Optional ones may be absent or None.

        Values are copied. A row that does not fit the schema raises, and is not kept.
        """
        check_between_calls(self, self._lock)
        if type(row) is not dict:
            row = accept.as_row(row)
        with self._lock:
            try:
                size = _wire.collect_row(row, self._required)
                if self._optional:
                    size += self._write_optional(row)
                elif len(row) != self._width:
                    raise Misfit("the features of the schema", "others")
            except BaseException as error:
                self._cut()
                if not isinstance(error, Exception):
                    raise
                size = self._write_carefully(row)
            self._rows += 1
            self._bytes += size
            if self._rows >= self._most_rows or self._bytes >= self._most_bytes:
                self._check_size(size)
                self._drain()
                self._end_waiting(self._untold.is_too_long)

    def _check_size(self, size: int) -> None:
        """A row that no reader could read is not kept either."""
        if size > MAX_BYTES:
            self._rows -= 1
            self._bytes -= size
            self._cut()
            self._untold.forget(self.count)
            raise too_large(size)

    def _write_optional(self, row: Mapping[str, Any]) -> int:
        size, found = 0, self._width
        for name, add in self._optional:
            if name in row:
                size += add(row[name])
                found += 1
            else:
                add(None)
        if len(row) != found:
            raise Misfit("the features of the schema", "others")
        return size

    def _cut(self) -> None:
        """Forget what collectors have taken of a row that is not whole."""
        for _, collected in self._collectors.values():
            collected.cut(self._rows)

    def _write_carefully(self, row: Mapping[str, Any]) -> int:
        """Collect a row that is the first, widens the schema, or is wrong; then say what is wrong."""
        self._files.check_open()
        values = {name: x for name, x in row.items() if x is not None}
        with self._trying():
            untold = self._take_untold(values, guess.tells)
            while (size := self._collect(values)) is None:
                pass
            self._pass_told()
        for name, value in untold.items():
            self._untold.add(name, self.count, copy.deepcopy(value))
        return size

    def _of_row(self, x: Any, is_list: bool) -> Feature:
        return guess.of_row(x, is_list, self._floats)

    def _of_batch(self, value: Given, is_list: bool) -> Feature:
        return guess.of_batch(value, is_list, self._floats)

    def _collect(self, values: Mapping[str, Any]) -> int | None:
        """Give a row to the collectors; None if the schema had to be widened first."""
        schema = self._fit_untold(self._growth.fitted(self._schema, values, self._of_row))
        self._use(schema)
        size = 0
        for name, (_, collected) in self._collectors.items():
            try:
                with faults_of(name):
                    size += collected.add(values.get(name))
            except Misfit as error:
                self._cut()
                self._use(self._growth.widened(schema, name, error))
                return None
        return size

    @contextlib.contextmanager
    def _trying(self) -> Iterator[None]:
        """Whatever fails in here leaves the schema and the collectors as they were."""
        if self._unread is not None and self._schema is None:
            self._use(self._inferred(self._unread))
        before = self._schema
        try:
            yield
        except BaseException as error:
            self._cut()
            self._use(before)
            if isinstance(error, Fault):
                raise error.of(self.count + error.row) from None
            raise

    def _inferred(self, path: str) -> Schema:
        """The schema of the records that are there, where no file beside them says it."""
        from tensorbytes.formats.tfrecord.read.infer import infer

        self._unread = None
        self._files.settle(sync=False)
        self._before = infer(path)
        return self._before

    def _use(self, schema: Schema | None) -> None:
        """Collect rows of this schema from here on."""
        if schema is self._schema and schema is not None:
            return
        self._drain()
        self._schema = schema
        self._retire()
        if schema is None or self._files.closed:
            return
        required: list[RowColumn] = []
        for name, (is_list, key, feature) in schema.columns.items():
            collected = collector(key, feature, is_list)
            self._collectors[name] = (is_list, collected)
            if feature.optional:
                self._optional.append((name, collected.add))
            else:
                required.append((name, *collected.usual, collected.add))
        self._required, self._width = tuple(required), len(required)

    def _drain(self) -> None:
        """Turn the collected rows into records."""
        if not self._rows:
            return
        self._files.check_open()
        count, size, self._rows, self._bytes = self._rows, self._bytes, 0, 0
        with closing_on_failure(self):
            taken = [(is_list, collected.take()) for is_list, collected in self._collectors.values()]
            if self._untold:
                self._untold.hold(self._count + self._untold.rows, count, taken)
            else:
                self._put(self._framed(taken, count, self._count, size + _frames_size(taken, count)), count)

    def _framed(
        self, columns: Sequence[tuple[bool, KernelColumn]], count: int, first: int, size: int
    ) -> list[tuple[int, memoryview]]:
        assert self._schema is not None
        features = [column for is_list, column in columns if not is_list]
        lists = [column for is_list, column in columns if is_list] if self._schema.sequence else None
        return framed(features, lists, count, size, len(self._files), first, self._memory)

    def _put(self, pieces: list[tuple[int, memoryview]], count: int) -> None:
        if not self._files.hidden:
            self._save_schema()
        self._files.put(pieces)
        self._count += count

    # ---- features whose type is not told yet ----------------------------------

    def _take_untold(self, values: dict[str, Any], tells: Callable[[Any], bool]) -> dict[str, Any]:
        """Take out of a row, or a batch, the features that nobody knows and that don't tell what they are."""
        if self._growth.fixed:
            return {}
        known = {} if self._schema is None else self._schema.columns
        untold = {name: value for name, value in values.items() if name not in known and not tells(value)}
        for name, value in untold.items():
            with refusals_of(name):
                check_name(name)
                items = value if tells is guess.column_tells else [value]
                self._untold.check(name, items, self._growth.is_list(name))
            del values[name]
        return untold

    def _fit_untold(self, schema: Schema) -> Schema:
        """The schema, with features that were told just now as the empty lists before ask for."""
        before = {} if self._schema is None else self._schema.columns
        for name in self._untold.names():
            column = schema.columns.get(name)
            if column is None:
                continue
            if name not in before and self._untold.is_everywhere(name, self._files.count, self.count):
                column = column._replace(feature=replace(column.feature, optional=False))
                schema = with_feature(schema, column)
            for value in self._untold.shapes(name):
                try:
                    with faults_of(name):
                        collector(column.name, column.feature, column.is_list).add(value)
                except Misfit as error:
                    if error.shape is None or len(error.shape) != len(column.feature.shape):
                        wanted = SchemaError(expected="a list, as it was empty before", got=column.feature.describe())
                        raise Fault(name, wanted) from None
                    schema = self._growth.widened(schema, name, error)
                    column = schema.columns[name]
        return schema

    def _pass_told(self) -> None:
        """Write the records that waited, if the schema knows all their features now."""
        assert self._schema is not None
        for name in self._untold.names():
            if name in self._schema:
                self._untold.tell(name, self._schema.columns[name])
        if not self._untold:
            with closing_on_failure(self):
                for held in self._untold.release():
                    pieces = self._framed(held.columns, held.count, held.first, self._most_bytes)
                    self._put(pieces, held.count)

    def _end_waiting(self, now: bool = True) -> None:
        """Decide what features hold of which there were nothing but empty lists."""
        names = self._untold.names()
        if not names or not now:
            return
        assert self._schema is not None
        schema = self._schema
        for name in names:
            is_list = self._growth.is_list(name)
            feature = guess.of_nothing(self._untold.shapes(name), is_list)
            schema = with_feature(schema, ColumnFeature(is_list, name, replace(feature, optional=True)))
        self._use(self._fit_untold(schema))
        self._pass_told()
        named = ", ".join(map(repr, names))
        warnings.warn(
            f"{storage.describe(self._target)}: nothing but empty lists was written as {named}, which are stored as "
            f"lists of int64; pass schema= to say what they hold",
            SchemaWarning,
            stacklevel=4,
        )

    # ---- columns ------------------------------------------------------------

    def write_batch(self, columns: Any, *, present: Mapping[str, Array] | None = None) -> None:
        """Add many records at once: a dict of columns, one item of each for each record; or a list of rows, a DataFrame
        of pandas or polars, an Arrow table, record batch or stream.

        `present` tells which records have a column, where some lack it: True for those that do. A `Batch` tells it
        itself.

        A column is an array of any framework with the records along its first axis, a
        Ragged (where lengths vary; two levels for feature lists), Strings, a column of Arrow, pandas or polars, or a
        list with whatever a row may hold. What is null there is absent in the record. Nothing is written if any
        column does not fit the schema.
        """
        check_between_calls(self, self._lock)
        given = accept.as_columns(columns)
        with self._lock:
            if given.table.columns:
                self._tables.names = None if self._schema is None else self._schema.columns.keys()
                table = self._tables.prepare(given.table)
                self.note_origin(self._tables.origin)
                if not given.plain and not present:
                    self.write_table(table)
                    return
                both = {**given.plain, **table.columns}
                self._write_batch(both, {**(present or {}), **table.present})
                return
            if present is None:
                told = getattr(columns, "present", {})
                present = {name: flags for name, flags in told.items() if name in columns}
            self._write_batch(given.plain, present)

    def write_table(self, table: Table) -> None:
        """Add the rows of a table that `TableRows` has prepared."""
        with self._lock:
            if not table.masks:
                self._write_batch(table.columns, {})
                return
            self._declare(table.columns, table.present)
            try:
                self._write_batch(table.columns, table.present)
            except (SchemaError, UsageError):  # nothing is written; what rows lack may be all that does not fit
                for document in table.documents():
                    self.write({str(leaf.name): leaf.read() for leaf in document.leaves})

    def _write_batch(self, columns: Mapping[str, Any], present: Mapping[str, Array]) -> None:
        self._files.check_open()
        self._drain()
        with self._trying():
            values: dict[str, Given] = {}
            for name, x in columns.items():
                with faults_of(name):
                    if x is not None:
                        values[name] = batch.given(x)
            count = batch.count_rows(values)
            if not count:
                return
            untold = self._take_untold(values, guess.column_tells)
            flags = _flags(present, values, count)
            while (fitted := self._fit(values, flags)) is None:
                pass
            self._pass_told()
        for name, items in untold.items():
            for record, item in enumerate(items, self.count):
                if item is not None:
                    self._untold.add(name, record, copy.deepcopy(item))
        if not self._untold:
            self._write_columns(fitted, count)
            return
        self._untold.hold(self.count, count, [(is_list, column.rows(0, count)) for is_list, column in fitted])
        self._end_waiting(self._untold.is_too_long)

    def _fit(self, values: Mapping[str, Given], present: Mapping[str, Array]) -> list[tuple[bool, BatchColumn]] | None:
        """Check a batch; None if the schema had to be widened first."""
        schema = self._fit_untold(self._growth.fitted(self._schema, values, self._of_batch))
        self._use(schema)
        fitted = []
        for name, (is_list, key, feature) in schema.columns.items():
            if name not in values:
                continue
            try:
                with faults_of(name):
                    value, flags = values[name], present.get(name)
                    if flags is not None and not is_list and _is_dense(value, flags, feature.shape):
                        assert isinstance(value, Ragged)
                        value = fill_missing(value, flags, feature.shape)
                    column = batch.column(key, feature, is_list, value)
                    fitted.append((is_list, column if flags is None else batch.present_column(column, feature, flags)))
            except Misfit as error:
                self._use(self._growth.widened(schema, name, error))
                return None
        return fitted

    def _write_columns(self, columns: list[tuple[bool, BatchColumn]], count: int) -> None:
        size = sum(column.nbytes for _, column in columns) + _frames_size(columns, count)
        step = max(self._most_bytes * count // max(size, 1), 1)
        base = self._count

        def made(start: int) -> list[tuple[int, memoryview]]:
            stop = min(start + step, count)
            rows = [(is_list, column.rows(start, stop)) for is_list, column in columns]
            return self._framed(rows, stop - start, base + start, size * (stop - start) // count)

        starts = range(0, count, step)
        with closing_on_failure(self), contextlib.closing(map_in_order(made, starts, count_threads())) as results:
            for start, pieces in zip(starts, results, strict=True):
                self._put(pieces, min(step, count - start))

    def write_raw(self, payload: Buffer) -> None:
        """Add one record of any bytes, as they are."""
        check_between_calls(self, self._lock)
        with self._lock:
            self._files.check_open()
            self._end_waiting()
            self._drain()
            record = _wire.frames([[payload]])
            with closing_on_failure(self):
                self._files.put([(self._count % len(self._files), record)])
            self._count += 1

    # ---- the files ----------------------------------------------------------

    @property
    def count(self) -> int:
        """How many records there are so far, those of before an append included."""
        return self._count + self._untold.rows + self._rows

    @property
    def schema(self) -> Schema | None:
        """What rows are checked against; None before the first one, if no schema was given."""
        return self._schema

    def flush(self) -> None:
        """Hand everything written so far to the operating system, and make it visible."""
        self._show(sync=False)

    def sync(self) -> None:
        """flush(), and wait until the disk has it all."""
        self._show(sync=True)

    def _show(self, sync: bool) -> None:
        check_between_calls(self, self._lock)
        with self._lock:
            self._files.check_open()
            self._end_waiting()
            self._drain()
            with closing_on_failure(self):
                self._files.settle(sync)
                with self._schema_saved():
                    self._files.publish(sync)

    def _save_schema(self) -> None:
        self._sidecar.save(self._noted_schema(), self._before, alone=not self._files.count)

    def _schema_saved(self) -> contextlib.AbstractContextManager[None]:
        """Save the schema, and in the block make the records visible."""
        return self._sidecar.saved(self._noted_schema(), self._before, self._files)

    def close(self) -> None:
        """sync(), unless the writer was made with sync=False, and close. A forked process only lets go of the files."""
        self._mark_closed()
        if self._files.foreign:
            self.abort()
        check_between_calls(self, self._lock)
        with self._lock:
            if self._files.closed:
                self._files.close()  # tells of a failure
                return
            self._end_waiting()
            self._drain()
            with closing_on_failure(self):
                self._files.finish()
                with self._schema_saved():
                    self._files.close()
            self._retire()

    def abort(self) -> None:
        """Close without publishing; files that were not visible yet are removed."""
        self._mark_closed()
        if self._files.foreign:
            self._lock = threading.RLock()  # whoever held the old one is not in this process
        check_between_calls(self, self._lock)
        with self._lock:
            self._rows = self._bytes = 0
            self._untold = Untold()
            self._files.abort()
            self._retire()

    def fail(self, error: BaseException) -> None:
        """Close after a failure; close() tells of it."""
        self._rows = self._bytes = 0
        self._untold = Untold()
        self._files.fail(error)
        self._retire()

    def _leave(self) -> tuple[str, str, list[str]] | None:
        if self._files.foreign or self._files.closed:
            return None
        if self.count == self._files.count:
            self._files.abort()
            return None
        self._files.forget()
        count, hidden = self.count, self._files.hidden
        lost: Exception | None = None
        try:
            self._end_waiting()
            self._drain()
        except Exception as error:  # of the disk
            lost = error
        places, failure = self._files.leave()
        lost = lost or failure
        what = f"{count} record{'' if count == 1 else 's'}"
        if lost is not None:
            what = f"a part of {what}, for then {lost}"
        schema = self._noted_schema()
        if hidden and places and schema is not None and self._sidecar.wanted:
            with contextlib.suppress(Exception):
                schema.save_beside(sidecar_path(places[0]))
        target = storage.describe(self._target)
        return target, what, places or [target]

    def _retire(self) -> None:
        """No row fits from here on."""
        self._collectors, self._required, self._optional, self._width = {}, (), [], -1

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and self._files.failed:
            self.abort()  # the error says it
        elif error is None or not self._files.hidden:
            self.close()  # what was visible already stays, up to the last whole record
        else:
            self.abort()
