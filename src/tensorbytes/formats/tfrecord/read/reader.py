"""Reading records: one dict for each, or columns of many at once."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count, islice, repeat
from typing import Any

import numpy as np

from tensorbytes import _wire, frameworks
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
    SchemaError,
    TensorbytesError,
    UsageError,
    naming_parameters,
)
from tensorbytes.formats.tfrecord.files import framing, salvage
from tensorbytes.formats.tfrecord.files.bytestreams import ByteStream
from tensorbytes.formats.tfrecord.files.follow import Follow, check_start, follow_blocks
from tensorbytes.formats.tfrecord.files.framing import Cut, RecordBlock
from tensorbytes.formats.tfrecord.files.index import Disproved, Index, Shelf, indexes
from tensorbytes.formats.tfrecord.files.inputs import Inputs
from tensorbytes.formats.tfrecord.files.memory import Memory
from tensorbytes.formats.tfrecord.files.sample import Sample
from tensorbytes.formats.tfrecord.kinds import MOST_RECORDS, OF_BYTES
from tensorbytes.formats.tfrecord.read.batch import Batch
from tensorbytes.formats.tfrecord.read.batches import Batches
from tensorbytes.formats.tfrecord.read.columns import Columns, joined
from tensorbytes.formats.tfrecord.read.decode import decode, decode_sound, portions
from tensorbytes.formats.tfrecord.read.handout import in_framework, make_batch, naming_column
from tensorbytes.formats.tfrecord.read.infer import check_examples, check_lengths, infer_from
from tensorbytes.formats.tfrecord.read.located import payloads, record_ends
from tensorbytes.formats.tfrecord.read.payloads import PAYLOAD, MessageType, Payloads, numbers_of, picked
from tensorbytes.formats.tfrecord.read.plan import Plan
from tensorbytes.formats.tfrecord.read.views import to_items
from tensorbytes.formats.tfrecord.schema import Feature, Outline, Schema, load_beside, sidecar_path
from tensorbytes.formats.tfrecord.schema.specs import Indexed
from tensorbytes.io import storage
from tensorbytes.io.paths import Split, base_path, byte_range, expand
from tensorbytes.io.streams.detection import check_name
from tensorbytes.io.workers import ResultGate, count_threads, run_pipeline
from tensorbytes.notebook import Displayed
from tensorbytes.tensor import Array, Ragged, Sparse

# Python objects that are made ahead of the rows that are asked for.
_MOST_OBJECTS = 1 << 16
# Rows that are made in one call: few, so that the next ones are made of memory that is still in the cache.
_ROWS_AT_ONCE = 128
# What all blocks that are decoded at once may take of `max_bytes` together; one that needs more waits for its turn.
_MOST_SHARED = 32 << 20
# What is decoded at a time, and the least of that for each column.
_BLOCK_BYTES, _COLUMN_BLOCK = 1 << 20, 1 << 16
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
    lengths: str = "auto",
    message: Any = None,
    offset: int = 0,
    follow: bool | Follow = False,
) -> Records:
    """TFRecord files of Examples or SequenceExamples, without TensorFlow; or of any other records.

    `paths` is a path, a URL, a glob, "name@10" (ten shards name-00000-of-00010 ...), a file
    object, a Split of `plan`, or a list of these. Iterating gives a dict for each record;
    `.batches(n)` gives dicts of columns: arrays where every record has as many values,
    Ragged where that varies, Strings for bytes and text.

    The schema is the one given, or that of the JSON file beside the data, or inferred from a
    sample: the head, the tail and places between; of pipes and compressed files the head. A
    length is fixed if 8 records or more have it and none has another, or all records were
    looked at; with lengths="ragged" none is. A record that does not fit raises SchemaError.
    `columns` chooses features: the others are not decoded. Damage raises CorruptError; with
    on_corrupt="skip" it is read around, warned of, and listed in `.damages`. `to` is a framework, as of load: JAX has
    no int64 unless jax_enable_x64 is set, and "jax32" narrows integers that fit.

    Records that are not Examples are records of bytes: they have one column, "payload". With
    `message` each of them is parsed, and given as the message that it is: a protobuf message
    class, or (descriptor set, full name), the bytes or the path of a FileDescriptorSet.

    One uncompressed file can be read from a byte on, where a record starts: `offset`, such as what `.tell()` gave
    before. With `follow` it is read as it grows: True, or a `records.Follow` that says when to stop.
    """
    made = Records(
        paths, columns, schema, compression, on_corrupt, to, device, verify, threads, limits, lengths, message
    )
    made.start_at(offset, Follow.of(follow))
    return made


class Records(Displayed):
    """Made by open_records. Can be iterated any number of times; holds no file open in between, but may keep a map of
    one whose records were asked for by number. Can be pickled, and so sent to other processes, unless it reads file
    objects: torch's DataLoader and Grain take it as a dataset.
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
        lengths: str = "auto",
        message: Any = None,
    ) -> None:
        if on_corrupt not in ("raise", "skip"):
            raise UsageError(f"on_corrupt={on_corrupt!r}", expected="'raise' or 'skip'")
        if isinstance(columns, str) or not (columns is None or isinstance(columns, Iterable)):
            raise UsageError(f"columns={columns!r}", expected=f"a list of names, such as [{str(columns)!r}]")
        if on_corrupt == "skip" and not verify:
            raise UsageError("on_corrupt='skip' finds damage by the checksums, which verify=False leaves out")
        self._ragged = check_lengths(lengths)
        self._message = None if message is None else MessageType.of(message)
        if message is not None and (schema is not None or columns is not None):
            raise UsageError("message= says what the records are; schema= and columns= are about Examples")
        if self._ragged and schema is not None:
            raise UsageError("lengths= is about schemas that are inferred, and one is given")
        compression = check_name(compression)
        self._targets = expand(paths)
        self._columns = None if columns is None else list(columns)
        self._compression, self._skip = compression, on_corrupt == "skip"
        self._to, self._device, self._verify, self._limits = frameworks.resolve(to), device, verify, limits
        self._threads = count_threads() if threads is None else threads
        self._inputs = Inputs(self._targets, compression, self._threads, limits)
        self._peeked: Iterator[RecordBlock | Exception] | None = None
        self._checked = False  # whether the records are Examples
        self._plan = self._first_plan(schema)
        self._indexes: list[Index] | None = None
        self._shelf: Shelf | None = None  # all of them, proved
        self.damages: list[Damage] = []
        self._damage_budget = Budget(limits)
        self._follow: Follow | None = None
        self._position: int | None = None  # after the last record that was handed out

    def start_at(self, offset: int, follow: Follow | None) -> None:
        """Read the only file from a byte on, and as it grows."""
        if not offset and follow is None:
            return
        what = "offset" if follow is None else "follow"
        if len(self._targets) != 1 or not storage.is_path(self._targets[0]):
            raise UsageError(f"{what} is for one file, by its path")
        (path,) = self._targets
        if follow is not None and not (storage.is_local(path) and os.path.isfile(path)):
            raise UsageError("only a local file is followed", path=storage.describe(path))
        if follow is not None and self._skip:
            raise UsageError("on_corrupt='skip' needs the whole file, which one that is followed is not yet")
        check_start(path, self._compression, offset)
        self._follow = follow
        if offset:
            self._targets = [Split(os.fspath(path), int(offset))]
            self._inputs = Inputs(self._targets, self._compression, self._threads, self._limits)

    def tell(self) -> int:
        """The byte after the last record that the last iteration has given: `offset` to go on from."""
        if len(self._targets) != 1 or self._inputs.compressed:
            raise UsageError("tell() is for one uncompressed file")
        return byte_range(self._targets[0])[1] if self._position is None else self._position

    def __getstate__(self) -> dict[str, Any]:
        """What is read and how, and the schema if it is known; not the index."""
        for target in self._targets:
            if not storage.is_path(byte_range(target)[0]):
                raise UsageError(
                    f"records of a file object can't be pickled or copied: {storage.describe(target)}",
                    hints=[Hint(purpose="open them by their path")],
                )
        dropped = ("_inputs", "_plan", "_indexes", "_shelf", "_damage_budget", "_peeked")
        kept = {name: field for name, field in vars(self).items() if name not in dropped}
        plan = self._plan
        return kept | {
            "plan": None if plan is None else (plan.schema, plan.origin, plan.closed, plan.of_bytes, plan.views)
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = state["plan"]
        vars(self).update({name: field for name, field in state.items() if name != "plan"})
        self.damages = list(self.damages)
        self._inputs = Inputs(self._targets, self._compression, self._threads, self._limits)
        self._plan = None
        if known is not None:
            schema, origin, closed, of_bytes, views = known
            self._plan = Plan(schema, origin, closed, self._limits, self._inputs.nbytes, of_bytes, views)
        self._indexes, self._shelf, self._damage_budget, self._peeked = None, None, Budget(self._limits), None

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
        self._indexes = self._shelf = None

    # ---- the schema ----------------------------------------------------------

    def _first_plan(self, schema: Any) -> Plan | None:
        """The plan, where it needs no look at the records."""
        if self._message is not None:
            return self._plan_of_bytes()
        if schema is not None:
            return self._plan_for(Outline.of(schema), "the schema", closed=False)
        found = _sidecars(self._targets, self._limits)
        return None if found is None else self._plan_for(Outline(found), "the schema file beside it", closed=True)

    def _plan_for(self, outline: Outline, origin: str, closed: bool) -> Plan:
        if self._columns is not None:
            outline, closed = outline.select(self._columns), False
        return Plan(outline.schema, origin, closed, self._limits, self._inputs.nbytes, views=outline.views)

    def _infer_plan(self, blocks: Iterable[RecordBlock], complete: Callable[[], bool]) -> Plan | None:
        """The plan that some records show; None if there are none. complete: afterwards, whether these were all."""
        found = infer_from(blocks, self._limits)
        if found is None:
            return self._plan_of_bytes()
        if not found.records:
            return None
        self._checked = True
        schema = found.schema(complete=complete(), ragged=self._ragged)
        origin = f"the schema inferred from {found.records} records (infer_schema reads all)"
        return self._plan_for(Outline(schema), origin, closed=True)

    def _plan_of_bytes(self) -> Plan:
        others = [name for name in self._columns or () if name != PAYLOAD]
        if others:
            raise UsageError(
                f"{OF_BYTES}: they have no feature {others[0]!r}, and one column, {PAYLOAD!r}", path=self.paths[0]
            )
        self._checked = True
        schema = Schema({PAYLOAD: "bytes"})
        return Plan(schema, OF_BYTES, False, self._limits, self._inputs.nbytes, of_bytes=True)

    def _learn(self, keep: bool = False) -> Plan | None:
        """Look at some records for what they are; None if there are none. keep: reading goes on where that ends."""
        if self._plan is not None:
            return self._plan
        once = self._inputs.read_once or self._follow is not None  # the end of a file that grows may be half a record
        if not once:
            self._plan = self._sampled_plan()
        if self._plan is None:
            self._plan = self._peeked_plan(keep or once)
        return self._plan

    def _sampled_plan(self) -> Plan | None:
        with self._sample() as sample:
            return self._infer_plan(sample, lambda: sample.complete)

    @contextlib.contextmanager
    def _sample(self) -> Iterator[Sample]:
        """Records from all over the files. File objects stand where they stood before."""
        self._inputs.take_turn()
        self._inputs.rewind()
        try:
            yield Sample(self._targets, self._inputs.nbytes, self._compression, self._verify, self._limits)
        finally:
            self._inputs.rewind()

    def _peeked_plan(self, keep: bool) -> Plan | None:
        """The plan that the first block shows, where there is no sample."""
        found, position = _catch(self._blocks(None, Memory())), self._position
        first = list(islice(found, 1))
        self._position = position  # nothing is handed out yet
        short = bool(first) and isinstance(first[0], RecordBlock) and len(first[0].data) < framing.BLOCK_BYTES
        if short and self._follow is None:
            first += islice(found, 1)  # the end, or another file: nothing is waited for
        if keep:
            self._peeked = chain(first, found)
        if first and isinstance(first[0], Exception):
            raise first[0]
        blocks = [block for block in first[:1] if isinstance(block, RecordBlock)]

        def complete() -> bool:
            return self._follow is None and len(first) == 1 and short

        return self._infer_plan(blocks, complete)

    def _check_kind(self, blocks: Iterable[RecordBlock]) -> None:
        """Refuse a file that is not one of Examples, if a schema said that it is."""
        if not self._checked:
            for block in islice(blocks, 1):
                check_examples(framing.sound(block._replace(records=block.records[:MOST_RECORDS])))
            self._checked = True

    @property
    def known_schema(self) -> Schema | None:
        """The schema, if it is known without a look at the records: given, beside the files, or inferred before."""
        return None if self._plan is None else self._plan.schema

    @property
    def schema(self) -> Schema:
        """What each record holds; inferred from a sample of the records if nothing else says it."""
        plan = self._learn()
        return Schema({}) if plan is None else plan.schema

    @property
    def holds_examples(self) -> bool:
        """Whether the records are Examples or SequenceExamples; otherwise they are records of bytes."""
        try:
            plan = self._learn()
        except (CorruptError, SchemaError):  # Examples that are malformed, or contradict each other
            return True
        return plan is None or not plan.of_bytes

    # ---- the pipeline --------------------------------------------------------

    def _blocks(
        self,
        every: int | None,
        memory: Memory | None = None,
        trusted: bool = True,
        block_bytes: int = framing.BLOCK_BYTES,
    ) -> Iterator[RecordBlock]:
        """All records. trusted=False leaves the checksums of payloads to whoever decodes them, if that is less work."""
        self._position = None
        if self._peeked is not None:  # what can be read only once was begun
            peeked, self._peeked = self._peeked, None
            for item in peeked:
                if isinstance(item, Exception):
                    raise item
                yield item
                del item
            return
        seen, turn = 0, self._inputs.take_turn()
        if self._follow is not None:
            path, start, _ = byte_range(self._targets[0])
            yield from follow_blocks(os.fspath(path), start, self._follow, memory=memory, verify=self._verify)
            return
        for stream, start in self._inputs.streams():
            cut = None if every is None else Cut(every, seen)
            found = (
                salvage.intact(stream, partial(self._note_damage, stream), base=start, budget=self._damage_budget)
                if self._skip
                else framing.blocks(
                    stream,
                    base=start,
                    cut=cut,
                    memory=memory,
                    verify=self._verify and trusted,
                    trusted=trusted or not self._verify,
                    block_bytes=block_bytes,
                    limits=self._limits,
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
        if self._peeked is None:
            self.damages.clear()
            self._damage_budget = Budget(self._limits)
        plan = self._learn(keep=True)
        if plan is None:
            return
        found = _catch(self._blocks(every, Memory(), trusted=False, block_bytes=_block_bytes(plan)))
        first = next(found, None)
        if first is None:
            return
        if isinstance(first, Exception):
            raise first
        self._check_kind([first])
        order, threads, limits = ResultGate(), self._useful_threads(), self._limits
        share = plan.within(replace(limits, max_bytes=min(limits.max_bytes, _MOST_SHARED) // max(threads, 1)))

        def parts(blocks: Iterable[RecordBlock | Exception]) -> Iterator[RecordBlock | Exception]:
            for block in blocks:
                yield from [block] if isinstance(block, Exception) else portions(block, plan)

        def work(numbered: tuple[int, RecordBlock | Exception]) -> tuple[Columns, Exception | None]:
            number, block = numbered
            if isinstance(block, Exception):
                return Columns({}, 0), block
            columns, failure = None, None
            with contextlib.suppress(TensorbytesError):
                columns = decode(block, share)
            if columns is None:  # it fails, or takes much memory: all of the limits, once the columns before are gone
                order.wait_for(number)
                columns, failure = decode_sound(block, plan.within(limits, held()))
            columns.ends = (block.base + record_ends(block))[: columns.count]
            return columns, failure

        items = enumerate(parts(chain([first], found)))
        del first
        with contextlib.closing(run_pipeline(work, items, threads)) as results:
            for columns, failure in results:
                if columns.count:
                    yield columns
                del columns
                if failure is not None:
                    raise failure
                order.advance()

    def _useful_threads(self) -> int:
        if not self._inputs.are_files or self._follow is not None:
            return 1  # a pipe that brings nothing more would hold a thread that reads ahead, and its end
        return self._threads - 1 if self._inputs.compressed else self._threads  # there is one that inflates

    # ---- what users iterate over -----------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """A dict for each record; with `message`, the message."""
        if self._message is not None:
            yield from self._parsed(self._message.parse)
            return
        for parts in self._decoded(None):
            some = max(_MOST_OBJECTS // max(len(parts), 1), 1)
            for start in range(0, parts.count, some):
                few = parts.rows(start, min(start + some, parts.count))
                for row, end in zip(self._rows(few), few.ends_list(), strict=True):
                    self._position = end
                    yield row
            del parts

    def _rows(self, parts: Columns) -> Iterator[dict[str, Any]]:
        outputs = self._any_plan().outputs
        for name, part in parts.items():
            if len(part.splits) > 1:  # each step of a feature list is an object
                steps = len(part.splits[-1]) - 1
                self._batch_budget().objects(steps, f"the steps of {name!r}", 0, _STEP_BYTES)
        budget = self._batch_budget()
        columns = tuple(self._converted(name, to_items(part, outputs[name], budget)) for name, part in parts.items())
        starts, stops = range(0, parts.count, _ROWS_AT_ONCE), range(_ROWS_AT_ONCE, parts.count, _ROWS_AT_ONCE)
        some = map(_wire.row_dicts, repeat(tuple(parts)), repeat(columns), starts, chain(stops, [parts.count]))
        rows = chain.from_iterable(some)
        lacking = {
            name: part.present
            for name, part in parts.items()
            if part.present is not None and outputs[name].feature.default is None and outputs[name].view is None
        }
        return _without(lacking, rows) if lacking else rows

    def _converted(self, name: str, items: list[Any] | Array) -> list[Any] | Array:
        if self._to == "numpy":
            return items
        with naming_column(name):
            return [self._convert(item) for item in items]

    def _convert(self, item: Any) -> Any:
        if isinstance(item, list):  # the steps of a feature list
            return [self._convert(step) for step in item]
        if isinstance(item, Ragged | Sparse):
            return in_framework(item, self._to, self._device)
        if not isinstance(item, np.ndarray | np.generic) or item.dtype == object:
            return item
        return frameworks.from_value(frameworks.to_value(item), self._to, self._device)

    def _any_plan(self) -> Plan:
        """The plan; looks at the first records if it must."""
        return self._learn() or Plan(Schema({}), limits=self._limits)

    def batches(self, size: int, *, drop_last: bool = False, to: str | None = None) -> Batches:
        """Columns of `size` records at a time; the last batch has what is left, unless `drop_last`.

        Each `for` reads them anew; next() gives one after the other. `batches[i]` and `len(batches)` work as well.
        """
        return Batches(self, _batch_size(size), drop_last, None if to is None else frameworks.resolve(to))

    def read_batches(self, size: int, drop_last: bool, to: str | None) -> Generator[Batch, None, None]:
        """One pass over what `batches` gives."""
        for parts in self._batched(size, drop_last):
            batch = self._batch(parts, to or self._to)
            self._position = parts.last_end
            del parts
            yield batch

    def _read_arrow(self, size: int) -> Iterator[Columns]:
        for parts in self._batched(size):
            self._position = parts.last_end
            yield parts
            del parts

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
        plan = self._any_plan()
        return make_batch(parts, plan.outputs, plan.features, to, self._device, self._batch_budget())

    def _arrow_columns(self) -> dict[str, tuple[Feature, int]]:
        """For each column: its feature, and how many lists there are around it."""
        made = {}
        for name, column in self._any_plan().outputs.items():
            if isinstance(column.view, Indexed):
                raise LossError(
                    f"column {name!r} is sparse, which to_arrow() has no type for",
                    feature="sparse",
                    tensor=name,
                    hints=[Hint("columns", purpose="to leave it out", of="open_records")],
                )
            made[name] = column.feature, column.depth
        return made

    def payloads(self) -> Payloads:
        """The bytes of each record, whatever it holds: one after the other, or by number."""
        return Payloads(self)

    def read_payloads(self) -> Generator[bytes, None, None]:
        """One pass over what `payloads` gives."""
        return self._parsed(lambda payload, *_: bytes(payload))

    def payloads_of(self, numbers: Array) -> list[bytes]:
        """The bytes of these records, which must be there."""
        return self._payloads_of(numbers, lambda payload, *_: bytes(payload))

    def _payloads_of(self, numbers: Array, parse: Callable[[memoryview, str, int, int], Any]) -> list[Any]:
        """What is made of the bytes of these records; of their file, place and number there, too."""

        def read() -> list[Any]:
            found: list[Any] = [None] * len(numbers)
            for owner, mine, inside in self._owners(numbers):
                index = self._index()[owner]
                block = index.read(inside)
                at = index.records[inside, 0].tolist()
                for place, payload, *where in zip(mine.tolist(), payloads(block), at, inside.tolist(), strict=True):
                    found[place] = parse(payload, block.path, *where)
            return found

        made: list[Any] = self._tried(read)
        return made

    def _parsed(self, parse: Callable[[memoryview, str, int, int], Any]) -> Generator[Any, None, None]:
        """The same of each record, in order."""
        for block in self._blocks(None):
            starts, ends = block.base + block.records[:, 0], block.base + record_ends(block)
            numbers = count(block.first)
            for payload, at, end, number in zip(payloads(block), starts.tolist(), ends.tolist(), numbers, strict=False):
                made = parse(payload, block.path, at, number)
                self._position = end
                yield made
            del block

    def to_arrow(self, size: int = 65536) -> Any:
        """A pyarrow.RecordBatchReader over batches of `size` records."""
        from tensorbytes.formats.tfrecord.read import arrow

        size = _batch_size(size)
        return arrow.reader(self._arrow_columns(), self._read_arrow(size))

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

    def _all(self) -> Shelf:
        """The records of all files, whose indexes are proved."""
        shelf = self._shelf
        if shelf is None:
            for index in self._index():
                len(index)
            shelf = self._shelf = Shelf(self._index())
        return shelf

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, which: Any) -> Any:
        """Record number i as a dict; for a slice or a list of numbers their columns, as a Batch. With `message`, the
        message, or a list of them."""
        if self._message is not None:
            parse = self._message.parse
            return picked(which, len(self), lambda numbers: self._payloads_of(numbers, parse))
        return self._tried(lambda: self._get(which))

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several records, each as a dict, decoded at once: what torch's DataLoader asks for."""
        if self._message is not None:
            messages: list[Any] = self[list(numbers)]
            return messages
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
        return self._batch(self._picked(numbers_of(which, total)), self._to)

    def _picked(self, numbers: Array) -> Columns:
        """The columns of these records, in this order."""
        block = self._all().read(numbers)
        if block is not None:
            plan = self._checked_plan()
            with contextlib.suppress(TensorbytesError):  # the same again, file by file, names the record
                return decode(block, plan)
            del block
        found, places = [], []
        for owner, mine, inside in self._owners(numbers):
            found.append(self._columns_of(owner, inside))
            places.append(mine)
        if not found:
            return decode(_no_records(), self._any_plan())
        parts = joined(found)
        return parts if len(found) == 1 else parts.take(np.argsort(np.concatenate(places), kind="stable"))

    def _owners(self, numbers: Array) -> Iterator[tuple[int, Array, Array]]:
        """For each file that has some of these records: its number, their places among them, their numbers in it."""
        if len(self._index()) == 1:
            yield from [(0, np.arange(len(numbers)), numbers)] if len(numbers) else []
            return
        starts = self._all().starts
        owners = np.searchsorted(starts, numbers, side="right") - 1
        for owner in np.unique(owners).tolist():
            mine = np.flatnonzero(owners == owner)
            yield owner, mine, numbers[mine] - starts[owner]

    def _checked_plan(self) -> Plan:
        """The plan, once it is known that the records are Examples."""
        plan = self._any_plan()
        if not self._checked:
            with self._sample() as sample:
                self._check_kind(sample)
        return plan

    def _columns_of(self, owner: int, numbers: Array) -> Columns:
        """The columns of records of one file."""
        plan, index = self._checked_plan(), self._index()[owner]
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


def _block_bytes(plan: Plan) -> int:
    """What is read and decoded at a time: as much as stays in a processor's cache, but work enough for each column."""
    return min(max(_BLOCK_BYTES, _COLUMN_BLOCK * len(plan.columns)), framing.BLOCK_BYTES)


def _without(lacking: Mapping[str, Array], rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same rows, without the features that a record lacks. lacking: for each of them which records have it."""
    for index, row in enumerate(rows):
        for name, present in lacking.items():
            if not present[index]:
                del row[name]
        yield row


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
