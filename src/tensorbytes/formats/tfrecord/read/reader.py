"""Reading records: one dict for each, or columns of many at once."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from typing import Any

import numpy as np

from tensorbytes import frameworks
from tensorbytes.budget import Budget
from tensorbytes.damage import Damage
from tensorbytes.errors import (
    LIMITS,
    RECORDS,
    CorruptError,
    DamageWarning,
    Hint,
    Limits,
    LossError,
    TensorbytesError,
    UnsupportedError,
    UsageError,
    naming_parameters,
)
from tensorbytes.formats.tfrecord.files import framing, salvage
from tensorbytes.formats.tfrecord.files.bytestreams import ByteStream
from tensorbytes.formats.tfrecord.files.framing import Cut, RecordBlock
from tensorbytes.formats.tfrecord.files.index import Disproved, Index, indexes
from tensorbytes.formats.tfrecord.files.inputs import Inputs
from tensorbytes.formats.tfrecord.files.memory import Memory
from tensorbytes.formats.tfrecord.read.batch import Batch
from tensorbytes.formats.tfrecord.read.batches import Batches
from tensorbytes.formats.tfrecord.read.columns import ColumnPart, Columns, joined, to_rows, to_value
from tensorbytes.formats.tfrecord.read.decode import (
    ColumnPlan,
    Plan,
    Prepared,
    decode,
    decode_sound,
    payloads,
    portions,
    prepare,
)
from tensorbytes.formats.tfrecord.read.infer import Inference, check_examples
from tensorbytes.formats.tfrecord.schema import Feature, Schema, load_beside, sidecar_path
from tensorbytes.io import storage
from tensorbytes.io.paths import base_path, byte_range, expand
from tensorbytes.io.streams.detection import check_name
from tensorbytes.io.workers import ResultGate, count_threads, run_pipeline
from tensorbytes.notebook import Displayed
from tensorbytes.tensor import Array

# Python objects that are made ahead of the rows that are asked for.
_MOST_OBJECTS = 1 << 16
# What all blocks that are decoded at once may take of `max_bytes` together; one that needs more waits for its turn.
_MOST_SHARED = 32 << 20
# Stands for the size of what is read from a pipe or a server: its bytes are taken for what they are.
_UNKNOWN_BYTES = 1 << 62
# An array, or a list of strings, with its place in the list of its record.
_STEP_BYTES = 120
# A Damage, and what `warnings` keeps of the words about it.
_DAMAGE_BYTES = salvage.DAMAGE_BYTES + 500


@naming_parameters(RECORDS)
def open_records(
    paths: Any,
    *,
    columns: Sequence[str] | None = None,
    schema: Any = None,
    compression: str = "auto",
    on_corrupt: str = "raise",
    to: str = "numpy",
    device: str | None = None,
    verify: bool = True,
    threads: int | None = None,
    limits: Limits = LIMITS,
) -> Records:
    """TFRecord files of Examples or SequenceExamples, without TensorFlow.

    `paths` is a path, a URL, a glob, "name@10" (ten shards name-00000-of-00010 ...), a file
    object, a Split of `plan`, or a list of these. Iterating gives a dict for each record;
    `.batches(n)` gives dicts of columns: arrays where every record has as many values,
    Ragged where that varies, Strings for bytes and text.

    The schema is the one given, or that of the JSON file beside the data, or inferred from
    the first block of records; a record that does not fit it raises SchemaError. `columns`
    chooses features: the others are not decoded. Damage raises CorruptError; with
    on_corrupt="skip" it is read around, warned of, and listed in `.damages`. `to` is a framework, as of load: JAX has
    no int64 unless jax_enable_x64 is set, and "jax32" narrows integers that fit.
    """
    return Records(paths, columns, schema, compression, on_corrupt, to, device, verify, threads, limits)


class Records(Displayed):
    """Made by open_records. Can be iterated any number of times; holds no file open in between. Can be pickled, and so
    sent to other processes, unless it reads file objects: torch's DataLoader and Grain take it as a dataset.
    """

    def __init__(
        self,
        paths: Any,
        columns: Sequence[str] | None,
        schema: Any,
        compression: str,
        on_corrupt: str,
        to: str,
        device: str | None,
        verify: bool,
        threads: int | None,
        limits: Limits,
    ) -> None:
        if on_corrupt not in ("raise", "skip"):
            raise UsageError(f"on_corrupt={on_corrupt!r}", expected="'raise' or 'skip'")
        if isinstance(columns, str) or not (columns is None or isinstance(columns, Iterable)):
            raise UsageError(f"columns={columns!r}", expected=f"a list of names, such as [{str(columns)!r}]")
        if on_corrupt == "skip" and not verify:
            raise UsageError("on_corrupt='skip' finds damage by the checksums, which verify=False leaves out")
        compression = check_name(compression)
        self._targets = expand(paths)
        self._columns = None if columns is None else list(columns)
        self._compression, self._skip = compression, on_corrupt == "skip"
        self._to, self._device, self._verify, self._limits = frameworks.resolve(to), device, verify, limits
        self._threads = count_threads() if threads is None else threads
        self._inputs = Inputs(self._targets, compression, self._threads, limits)
        self._plan = self._first_plan(schema)
        self._indexes: list[Index] | None = None
        self.damages: list[Damage] = []
        self._damage_budget = Budget(limits)

    def __getstate__(self) -> dict[str, Any]:
        """What is read and how, and the schema if it is known; not the index."""
        for target in self._targets:
            if not storage.is_path(byte_range(target)[0]):
                raise UsageError(
                    f"records of a file object can't be pickled or copied: {storage.describe(target)}",
                    hints=[Hint(purpose="open them by their path")],
                )
        dropped = ("_inputs", "_plan", "_indexes", "_damage_budget")
        kept = {name: field for name, field in vars(self).items() if name not in dropped}
        plan = self._plan
        return kept | {"plan": None if plan is None else (plan.schema, plan.origin, plan.closed)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = state["plan"]
        vars(self).update({name: field for name, field in state.items() if name != "plan"})
        self.damages = list(self.damages)
        self._inputs = Inputs(self._targets, self._compression, self._threads, self._limits)
        self._plan = None
        if known is not None:
            schema, origin, closed = known
            self._plan = Plan(schema, origin, closed, self._limits, self._inputs.nbytes)
        self._indexes, self._damage_budget = None, Budget(self._limits)

    @property
    def paths(self) -> list[str]:
        return [storage.describe(byte_range(target)[0]) for target in self._targets]

    @property
    def targets(self) -> list[Any]:
        """Every file that is read: paths, URLs, file objects, Splits."""
        return list(self._targets)

    def __repr__(self) -> str:
        more = f" and {len(self._targets) - 1} more" if len(self._targets) > 1 else ""
        return f"Records({self.paths[0]!r}{more})"

    def __enter__(self) -> Records:
        return self

    def __exit__(self, *error: object) -> None:
        self._indexes = None

    # ---- the schema ----------------------------------------------------------

    def _first_plan(self, schema: Any) -> Plan | None:
        """The plan, where it needs no look at the records."""
        if schema is not None:
            return self._plan_for(Schema.of(schema), "the schema", closed=False)
        found = _sidecars(self._targets, self._limits)
        return None if found is None else self._plan_for(found, "the schema file beside it", closed=True)

    def _plan_for(self, schema: Schema, origin: str, closed: bool) -> Plan:
        if self._columns is None:
            return Plan(schema, origin, closed, self._limits, self._inputs.nbytes)
        return Plan(schema.select(self._columns), origin, False, self._limits, self._inputs.nbytes)

    def _infer_plan(self, block: RecordBlock) -> Plan:
        inference = Inference(self._limits)
        inference.add(block)
        origin = f"the schema inferred from the first {inference.records} records (infer_schema reads all)"
        return self._plan_for(inference.schema(), origin, closed=True)

    @property
    def known_schema(self) -> Schema | None:
        """The schema, if it is known without a look at the records: given, beside the files, or inferred before."""
        return None if self._plan is None else self._plan.schema

    @property
    def schema(self) -> Schema:
        """What each record holds; inferred from the first block of records if nothing else says it."""
        if self._plan is None:
            if self._inputs.read_once:
                raise UsageError(
                    "the schema of a stream is known when its first records were read",
                    hints=[Hint("schema", purpose="to give it", of="open_records")],
                )
            for block in self._blocks(None):
                self._plan = self._infer_plan(block)
                break
            else:
                return Schema({})
        return self._plan.schema

    # ---- the pipeline --------------------------------------------------------

    def _blocks(self, every: int | None, memory: Memory | None = None) -> Iterator[RecordBlock]:
        seen, turn = 0, self._inputs.take_turn()
        for stream, start in self._inputs.streams():
            cut = None if every is None else Cut(every, seen)
            found = (
                salvage.intact(stream, partial(self._note_damage, stream), base=start, budget=self._damage_budget)
                if self._skip
                else framing.blocks(
                    stream, base=start, cut=cut, memory=memory, verify=self._verify, limits=self._limits
                )
            )
            for block in found:
                seen += len(block.records)
                yield block
                del block
                self._inputs.check_turn(turn)

    def _note_damage(self, stream: ByteStream, damage: Damage) -> None:
        stream.count_into(self._damage_budget)
        self._damage_budget.objects(1, f"{stream.path}: all that is damaged", damage.start or 0, _DAMAGE_BYTES)
        self.damages.append(damage)
        warnings.warn(f"{damage}", DamageWarning, stacklevel=2)

    def _decoded(self, every: int | None, held: Callable[[], int] = int) -> Iterator[Columns]:
        """The columns of block after block, decoded in threads, in order; then what went wrong.

        held: what the caller keeps of `max_bytes`. Whoever takes columns lets go of them before the next ones.
        """
        self.damages.clear()
        self._damage_budget = Budget(self._limits)
        found = _catch(self._blocks(every, Memory()))
        first = next(found, None)
        if first is None:
            return
        if isinstance(first, Exception):
            raise first
        check_examples(first)
        if self._plan is None:
            self._plan = self._infer_plan(first)
        plan, order, threads, limits = self._plan, ResultGate(), self._useful_threads(), self._limits
        share = plan.within(replace(limits, max_bytes=min(limits.max_bytes, _MOST_SHARED) // max(threads, 1)))

        def begin(block: RecordBlock | Exception) -> Prepared | Exception:
            return block if isinstance(block, Exception) else prepare(block, share)

        def end(numbered: tuple[int, Prepared | Exception]) -> tuple[Columns, Exception | None]:
            number, item = numbered
            if isinstance(item, Exception):
                return Columns({}, 0), item
            with contextlib.suppress(TensorbytesError):
                return decode(item.block, share, item.found), None
            # It fails, or takes much memory: all of the limits, but only when the columns before it are gone.
            order.wait_for(number)
            return decode_sound(item, plan.within(limits, held()))

        def parts(found: Iterable[RecordBlock | Exception]) -> Iterator[RecordBlock | Exception]:
            for block in found:
                yield from [block] if isinstance(block, Exception) else portions(block, plan)

        prepared = enumerate(map(begin, parts(chain([first], found))))
        del first
        with contextlib.closing(run_pipeline(end, prepared, threads)) as results:
            for columns, failure in results:
                if columns.count:
                    yield columns
                del columns
                if failure is not None:
                    raise failure
                order.advance()

    def _useful_threads(self) -> int:
        if not self._inputs.are_files:
            return 1  # a pipe that brings nothing more would hold a thread that reads ahead, and its end
        return self._threads - 1 if self._inputs.compressed else self._threads  # there is one that inflates

    # ---- what users iterate over -----------------------------------------------

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for parts in self._decoded(None):
            some = max(_MOST_OBJECTS // max(len(parts), 1), 1)
            for start in range(0, parts.count, some):
                yield from self._rows(parts.rows(start, min(start + some, parts.count)))
            del parts

    def _rows(self, parts: Columns) -> Iterator[dict[str, Any]]:
        features = self._features()
        for name, part in parts.items():
            if len(part.splits) > 1:  # each step of a feature list is an object
                steps = len(part.splits[-1]) - 1
                self._batch_budget().objects(steps, f"the steps of {name!r}", 0, _STEP_BYTES)
        lists = [self._converted(name, to_rows(part, features[name])) for name, part in parts.items()]
        if not lists:
            yield from ({} for _ in range(parts.count))
            return
        rows = map(dict, map(zip, repeat(list(parts)), zip(*lists, strict=True)))
        lacking = {name: part.present for name, part in parts.items() if part.present is not None}
        if not lacking or all(features[name].default is not None for name in lacking):
            yield from rows
            return
        for index, row in enumerate(rows):
            for name, present in lacking.items():
                if not present[index] and features[name].default is None:
                    del row[name]
            yield row

    def _converted(self, name: str, items: list[Any]) -> list[Any]:
        if self._to == "numpy":
            return items
        with _naming_column(name):
            return [self._convert(item) for item in items]

    def _convert(self, item: Any) -> Any:
        if isinstance(item, list):  # the steps of a feature list
            return [self._convert(step) for step in item]
        if not isinstance(item, np.ndarray | np.generic) or item.dtype == object:
            return item
        return frameworks.from_value(frameworks.to_value(item), self._to, self._device)

    def _any_plan(self) -> Plan:
        """The plan; looks at the first records if it must."""
        schema = self.schema
        return self._plan or Plan(schema, limits=self._limits)

    def _columns_to_read(self) -> list[ColumnPlan]:
        return self._any_plan().columns

    def _features(self) -> dict[str, Feature]:
        return {column.name: column.feature for column in self._columns_to_read()}

    def batches(self, size: int, *, drop_last: bool = False, to: str | None = None) -> Batches:
        """Columns of `size` records at a time; the last batch has what is left, unless `drop_last`.

        Each `for` reads them anew; next() gives one after the other. `batches[i]` and `len(batches)` work as well.
        """
        return Batches(self, _batch_size(size), drop_last, None if to is None else frameworks.resolve(to))

    def read_batches(self, size: int, drop_last: bool, to: str | None) -> Generator[Batch, None, None]:
        """One pass over what `batches` gives."""
        return (self._batch(parts, to or self._to) for parts in self._batched(size, drop_last))

    def read_range(self, start: int, stop: int, to: str | None) -> Batch:
        """The columns of the records [start, stop), which must be there."""
        return self._batch(self._tried(lambda: self._picked(np.arange(start, stop))), to or self._to)

    def _batched(self, size: int, drop_last: bool = False) -> Iterator[Columns]:
        pending: list[Columns] = []
        have = 0
        budget = self._batch_budget()

        def held() -> int:
            return self._limits.max_bytes - budget.left

        for parts in self._decoded(size, held):
            start = 0
            while start < parts.count:
                piece = parts.rows(start, min(start + size - have, parts.count))
                start, have = start + piece.count, have + piece.count
                if piece.count < size:  # joining copies it
                    budget.copy(2 * piece.nbytes, f"a batch of {size} records", 0)
                pending.append(piece)
                del piece
                if have == size:
                    yield joined(pending)
                    pending, have, budget = [], 0, self._batch_budget()
            del parts
        if pending and not drop_last:
            yield joined(pending)

    def _batch_budget(self) -> Budget:
        size = self._inputs.nbytes
        return Budget(self._limits, _UNKNOWN_BYTES if size is None else max(size, framing.BLOCK_BYTES))

    def _batch(self, parts: Columns, to: str) -> Batch:
        features = self._features()
        columns = {}
        for name, part in parts.items():
            with _naming_column(name):
                columns[name] = _hand_out(part, features[name], to, self._device)
        present = {name: part.present for name, part in parts.items() if part.present is not None}
        return Batch(columns, present, self._arrow_columns(), parts.count)

    def _arrow_columns(self) -> dict[str, tuple[Feature, bool]]:
        """For each column: its feature, and whether it is a feature list."""
        return {column.name: (column.feature, column.in_lists) for column in self._columns_to_read()}

    def payloads(self) -> Iterator[bytes]:
        """The bytes of each record, whatever it holds."""
        for block in self._blocks(None):
            yield from map(bytes, payloads(block))
            del block

    def to_arrow(self, size: int = 65536) -> Any:
        """A pyarrow.RecordBatchReader over batches of `size` records."""
        from tensorbytes.formats.tfrecord.read import arrow

        size = _batch_size(size)
        return arrow.reader(self._arrow_columns(), self._batched(size))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's own interface: pyarrow.table(records), polars and DuckDB read all records, batch by batch."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    # ---- random access ---------------------------------------------------------

    def _index(self) -> list[Index]:
        if self._indexes is None:
            self._inputs.rewind()
            try:
                self._indexes = indexes(self._targets, self._compression, self._limits)
            except CorruptError as error:
                if not self._skip:
                    raise
                # A TypeError, so that list(records), which asks for a length first, goes on without.
                raise UsageError(
                    f"a damaged file has no length and no random access: {error.fault}", path=error.path, at=error.at
                ) from None
        return self._indexes

    def __len__(self) -> int:
        return sum(len(index) for index in self._index())

    def __getitem__(self, which: Any) -> Any:
        """Record number i as a dict; for a slice or a list of numbers their columns, as a Batch."""
        return self._tried(lambda: self._get(which))

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """Several records, each as a dict, decoded at once: what torch's DataLoader asks for."""
        total = len(self)
        for number in numbers:
            if not -total <= number < total:
                raise IndexError(f"record {number}: there are {total}")
        wanted = np.array(numbers, np.int64).reshape(-1) % max(total, 1)
        return list(self._rows(self._tried(lambda: self._picked(wanted))))

    def _tried(self, read: Callable[[], Any]) -> Any:
        while True:
            try:
                return read()
            except Disproved:  # an index was not what it said it was: there is another one now
                continue

    def _get(self, which: Any) -> Any:
        if isinstance(which, int | np.integer) and which >= 0 and self._index()[0].claims(int(which)):
            return next(iter(self._rows(self._columns_of(0, np.array([int(which)])))))
        total = len(self)
        if isinstance(which, int | np.integer):
            number = int(which) + (total if which < 0 else 0)
            if not 0 <= number < total:
                more = f" and {len(self._targets) - 1} more" if len(self._targets) > 1 else ""
                raise IndexError(f"record {which}: {self.paths[0]}{more} has {total}")
            return next(iter(self._rows(self._picked(np.array([number])))))
        numbers = np.arange(total)[which]
        if numbers.ndim != 1:
            raise IndexError(f"expected a number, a slice or a list of numbers, got {which!r}")
        return self._batch(self._picked(numbers), self._to)

    def _picked(self, numbers: Array) -> Columns:
        """The columns of these records, in this order."""
        starts = np.cumsum([0, *map(len, self._index())])
        owners = np.searchsorted(starts, numbers, side="right") - 1
        found, places = [], []
        for owner in np.unique(owners).tolist():
            mine = np.flatnonzero(owners == owner)
            found.append(self._columns_of(owner, numbers[mine] - starts[owner]))
            places.append(mine)
        if not found:
            return decode(_no_records(), self._any_plan())
        parts = joined(found)
        return parts if len(found) == 1 else parts.take(np.argsort(np.concatenate(places), kind="stable"))

    def _columns_of(self, owner: int, numbers: Array) -> Columns:
        """The columns of records of one file."""
        plan, index = self._any_plan(), self._index()[owner]
        try:
            return decode(index.read(numbers), plan)
        except TensorbytesError as error:
            failure = error.with_traceback(None)  # which would keep what was decoded so far
        for number in numbers.tolist() if len(numbers) > 1 else ():  # one by one, so that the error names the record
            decode(index.read(np.array([number])), plan)
        raise failure


def _batch_size(size: Any) -> int:
    if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
        raise UsageError(f"batches of {size!r} records", expected="a whole number, 1 or more")
    return int(size)


def _no_records() -> RecordBlock:
    return RecordBlock(memoryview(b""), np.empty((0, 2), np.int64), "", 0, 0)


def _sidecars(targets: Sequence[Any], limits: Limits) -> Schema | None:
    """The schemas saved beside the files, merged, if every file has one."""
    found: dict[str, Schema] = {}
    for target in targets:
        path = byte_range(target)[0]
        if not storage.is_path(path):
            return None
        place = sidecar_path(base_path(os.fspath(path)))
        if place not in found:
            schema = load_beside(place, limits)
            if schema is None:
                return None
            found[place] = schema
    return Schema.merged(list(found.items())) if found else None


def _catch(items: Iterator[RecordBlock]) -> Iterator[RecordBlock | Exception]:
    """The same blocks; what is raised comes as the last item, so that it takes its turn."""
    try:
        yield from items
    except Exception as error:
        yield error


@contextlib.contextmanager
def _naming_column(name: str) -> Iterator[None]:
    """Errors of a framework in the block name the column."""
    try:
        yield
    except (LossError, UnsupportedError) as error:
        raise error.replaced(tensor=name) from None


def _hand_out(part: ColumnPart, feature: Feature, to: str, device: str | None) -> Any:
    """A column in a framework's terms; what the framework has no type for stays neutral."""
    if to == "numpy":
        return part.values if part.strings is None and not part.splits else to_value(part, feature)
    value = to_value(part, feature)
    try:
        return frameworks.from_value(value, to, device)
    except UnsupportedError:
        if part.strings is None and not part.splits:
            raise
        return value
