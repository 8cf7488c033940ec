"""The schema of a file that comes without one, from what its records hold."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorbytes import _wire, formats
from tensorbytes._wire import proto
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, CorruptError, Hint, Limits, SchemaError, UsageError
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files.bytestreams import open_stream
from tensorbytes.formats.tfrecord.files.framing import RecordBlock, blocks
from tensorbytes.formats.tfrecord.files.memory import Memory
from tensorbytes.formats.tfrecord.files.sample import ENOUGH
from tensorbytes.formats.tfrecord.kinds import MOST_RECORDS, OF_BYTES, are_examples
from tensorbytes.formats.tfrecord.read.lists import Unusual, steps_of
from tensorbytes.formats.tfrecord.read.located import Located, has_lists, in_usual_form, locate, names_in, payloads
from tensorbytes.formats.tfrecord.read.plan import COLUMN_BYTES
from tensorbytes.formats.tfrecord.schema import Feature, Schema, quantized
from tensorbytes.io.paths import byte_range, expand
from tensorbytes.tensor import Array
from tensorbytes.typing import bytes_view

_DTYPES = {example.BYTES: "bytes", example.FLOAT: "float32", example.INT64: "int64"}
# Places that are looked up at a time: features times records.
_MOST_CELLS = 1 << 19
# So much of a record tells whether it is a tensor.
_HEAD_BYTES = 4096


def check_examples(block: RecordBlock) -> None:
    """Refuse the first records of a file of tensors or of other messages: they would be read as empty Examples."""
    if not len(block.records):
        return
    if _holds_tensors(block):
        raise UsageError(
            "records of tensors rather than Examples",
            path=block.path,
            hints=[Hint(operation="open", arguments=("path",), purpose="reads them")],
        )
    if not hold_features(block):
        raise UsageError(
            f"{OF_BYTES}, so that they have no features",
            path=block.path,
            hints=[Hint(operation="open_records", arguments=("path",), purpose="has payloads(), the bytes of each")],
        )


def hold_features(block: RecordBlock) -> bool:
    """Whether the first records of a file are Examples."""
    return are_examples(payloads(block._replace(records=block.records[:MOST_RECORDS])))


def _holds_tensors(block: RecordBlock) -> bool:
    start, size = block.records[0].tolist()
    return is_tensor(bytes_view(block.data)[start : start + size], size)


def is_tensor(start: memoryview, size: int) -> bool:
    """Whether a record of this many bytes, which starts with these or is them, is a tensor.

    A tensor's fields may stand in an Example too, where they are passed over: one with features stays one.
    """
    if not formats.get("tensorproto").sniff(bytes(start[:_HEAD_BYTES]), size):
        return False
    try:
        return all((field.number, field.wire) != (1, proto.DELIMITED) for field in proto.fields(start, 0, len(start)))
    except CorruptError:
        return len(start) < size


@dataclass(slots=True)
class _Seen:
    """What the lists of one feature were like so far."""

    kind: int = 0
    shortest: int | None = None
    longest: int = 0
    present: int = 0
    tensors: Feature | None = None  # what they are together, if all are quantized tensors
    others: bool = False  # whether there is anything else

    def feature(self, records: int, complete: bool, ragged: bool, in_lists: bool = False) -> Feature:
        """The feature of this many records; whether there are no others, and whether no length is fixed."""
        optional = self.present < records or not (complete or records >= ENOUGH)
        fixed = (complete or self.present >= ENOUGH) and not ragged
        if self.tensors is not None and not self.others:
            shape = self.tensors.shape  # steps of feature lists can't vary in more than their first dimension
            shape = shape if fixed or in_lists else (None,) * len(shape)
            return replace(self.tensors, shape=shape, optional=optional)
        length = self.longest if self.shortest == self.longest and fixed else None
        return Feature(_DTYPES.get(self.kind, "bytes"), () if length == 1 else (length or None,), optional=optional)


class _ManyNames(Exception):
    """More names, for this many records, than are looked up at once."""


class Watch(Protocol):
    """Is shown what the schema is gathered from. A block may be shown twice."""

    def values(self, name: str, in_lists: bool, block: RecordBlock, kind: int, spans: Array, splits: Array) -> None:
        """The lists of a feature: where they lie, and how many values are in each (as offsets)."""

    def steps(self, name: str, counts: Array) -> None:
        """How many steps a feature list has in each record that has it."""


@dataclass(slots=True)
class Inference:
    """Gathers a schema block by block."""

    limits: Limits = LIMITS
    watch: Watch | None = None
    records: int = 0
    sequence: bool = False
    features: dict[str, _Seen] = field(default_factory=dict)
    lists: dict[str, _Seen] = field(default_factory=dict)
    # The names that are looked up, of features and of lists.
    known: tuple[dict[str, None], dict[str, None]] = field(default_factory=lambda: ({}, {}))

    def add(self, block: RecordBlock) -> None:
        if not block.first:
            check_examples(block)
        budget = Budget(self.limits, len(block.data))
        self.sequence = self.sequence or has_lists(block, budget)
        while len(block.records):
            most = max(1, _MOST_CELLS // (sum(map(len, self.known)) + 1))
            count = self._add_some(block._replace(records=block.records[:most]), budget)
            self.records += count
            block = block._replace(records=block.records[count:], first=block.first + count)

    def _add_some(self, block: RecordBlock, budget: Budget) -> int:
        """Take in some of the first records; returns how many."""
        while True:
            try:
                self._add_any(block, budget)
                return len(block.records)
            except _ManyNames:  # records with names of their own: fewer at once have fewer names
                self.known = ({}, {})
                block = block._replace(records=block.records[: len(block.records) // 2])

    def _add_any(self, block: RecordBlock, budget: Budget) -> None:
        try:
            self._add(block, budget)
        except Unusual:
            self._add(in_usual_form(block, np.arange(len(block.records)), self.sequence, budget), budget)

    def _add(self, block: RecordBlock, budget: Budget) -> None:
        """Take in all of it or, where something is raised, nothing."""
        gathered: list[dict[str, _Seen]] = []
        for in_lists, seen in ((False, self.features), (True, self.lists))[: 1 + self.sequence]:
            known = dict(self.known[in_lists])
            found = self._locate(block, in_lists, known, budget)
            noted = {name: copy.copy(seen[name]) if name in seen else _Seen() for name in sorted(known)}
            for index, (name, feature) in enumerate(noted.items()):
                lists = _Noted(found.block, name, feature, in_lists, self.watch)
                kinds, spans = found.kinds[index], found.spans[index]
                if in_lists:
                    outer, step_kinds, steps = steps_of(found.block, spans)
                    lists.add(step_kinds, steps, outer)
                    if self.watch is not None:
                        self.watch.steps(name, np.diff(outer)[kinds != 0])
                else:
                    lists.add(kinds, spans, None)
                feature.present += int(np.count_nonzero(kinds))
            gathered.append(noted)
        for which, noted in enumerate(gathered):
            seen = (self.features, self.lists)[which]
            budget.objects(len(noted.keys() - seen.keys()), "features", block.base, COLUMN_BYTES)
            seen.update(noted)
            self.known[which].update(dict.fromkeys(noted))

    def _locate(self, block: RecordBlock, in_lists: bool, known: dict[str, None], budget: Budget) -> Located:
        """Where every feature lies; the names of those that are new are added to `known`."""
        some = 1
        while True:
            found = locate(block, [name.encode() for name in sorted(known)], in_lists, self.sequence, budget)
            others = np.flatnonzero(found.unknown)
            if not others.size:
                return found
            for index in others[:some].tolist():
                names = names_in(found.block, index, self.sequence, in_lists, budget.renewed(len(block.data)))
                known.update(dict.fromkeys(names))
            if len(block.records) > 1 and len(known) * len(block.records) > _MOST_CELLS:
                raise _ManyNames
            some *= 2  # records that all have other names must not take a look each

    def copy(self) -> Inference:
        """What was gathered so far, to go on from there or to come back to."""
        known = dict(self.known[0]), dict(self.known[1])
        return replace(self, features=dict(self.features), lists=dict(self.lists), known=known)

    def schema(self, *, complete: bool = True, ragged: bool = False) -> Schema:
        """What the records hold. Unless these are all (`complete`), what fewer than 8 of them show is not taken for
        a rule: neither a length nor that a feature is never missing. With `ragged` no length is."""
        features = {name: seen.feature(self.records, complete, ragged) for name, seen in self.features.items()}
        lists = {name: seen.feature(self.records, complete, ragged, True) for name, seen in self.lists.items()}
        return Schema(features, lists if self.sequence else None)


class _Noted(NamedTuple):
    """Takes lists of one feature into account."""

    block: RecordBlock
    name: str
    seen: _Seen
    in_lists: bool
    watch: Watch | None

    def add(self, kinds: Array, spans: Array, steps: Array | None) -> None:
        """The lists of some records or, with `steps`, of the steps of feature lists: those may lack a kind."""
        there = kinds != 0
        if there.any():
            self._check_kinds(kinds, there, steps)
            self.seen.kind = int(kinds[there][0])
            if steps is None and not there.all():
                spans = np.ascontiguousarray(spans[there])
            splits = np.empty(len(spans) + 1, np.int64)
            stop, size = _wire.example_count(self.block.data, spans, self.seen.kind, splits)
            if stop < len(spans):
                raise Unusual
            lengths = np.diff(splits)
            if not self.seen.others:
                self.seen.others = self.seen.kind != example.BYTES or not self._tensors(spans, splits, size)
            self._add_lengths(int(lengths.min()), int(lengths.max()))
            if self.watch is not None:
                self.watch.values(self.name, self.in_lists, self.block, self.seen.kind, spans, splits)
        elif steps is not None and len(kinds):
            self._add_lengths(0, 0)

    def _tensors(self, spans: Array, splits: Array, size: int) -> bool:
        """Whether the values are quantized tensors of one kind: of all tensors, only these can't be anything else."""
        if (np.diff(splits) != 1).any():
            return False
        strings, data = np.empty(len(spans) + 1, np.int64), np.empty(size, np.uint8)
        _wire.example_fill_bytes(self.block.data, spans, strings, data)
        for start, stop in pairwise(strings.tolist()):
            found = quantized.recognised(bytes_view(data)[start:stop], self.seen.tensors)
            if found is None:
                return False
            self.seen.tensors = found
        return True

    def _add_lengths(self, low: int, high: int) -> None:
        seen = self.seen
        seen.shortest = low if seen.shortest is None else min(low, seen.shortest)
        seen.longest = max(high, seen.longest)

    def _check_kinds(self, kinds: Array, there: Array, steps: Array | None) -> None:
        before = self.seen.kind or int(kinds[there][0])
        other = there & (kinds != before)
        if other.any():
            index = int(np.argmax(other))
            if steps is not None:
                index = int(np.searchsorted(steps, index, side="right")) - 1
            raise SchemaError(
                f"record {self.block.first + index}: feature {self.name!r} is a list of "
                f"{_DTYPES[int(kinds[other][0])]}; in records before it is one of {_DTYPES[before]}",
                path=self.block.path,
                record=self.block.first + index,
                tensor=self.name,
            )


def check_lengths(lengths: Any) -> bool:
    """What `lengths=` says: whether no length is fixed."""
    if lengths not in ("auto", "ragged"):
        raise UsageError(f"lengths={lengths!r}", expected="'auto' or 'ragged'")
    return bool(lengths == "ragged")


def infer(paths: Any, *, compression: str = "auto", lengths: str = "auto", limits: Limits = LIMITS) -> Schema:
    """The schema of all records of some files, which are read and checked for it, within `limits`.

    A feature that has as many values in every record has that number in its shape, and one value is a scalar; with
    lengths="ragged" every feature is a list that varies. Lists of bytes are taken for bytes: that they hold text or
    tensors only their author knows. Quantized tensors alone are recognised.
    """
    ragged = check_lengths(lengths)
    inference, memory = Inference(limits), Memory()
    for target in expand(paths):
        path, start, end = byte_range(target)
        with open_stream(path, compression, start, end, limits=limits) as stream:
            for block in blocks(stream, base=start, memory=memory, limits=limits):
                inference.add(block)
    return inference.schema(ragged=ragged)


def infer_from(sample: Iterable[RecordBlock], limits: Limits) -> Inference | None:
    """What some blocks of records show; None if they are no Examples. One that contradicts those before it, or is
    malformed, tells nothing: that is said when it is read. If it is the first, and there is nothing else, now."""
    inference, failure = Inference(limits), None
    for number, block in enumerate(sample):
        if not number and not hold_features(block) and not _holds_tensors(block):
            return None
        try:
            trial = inference.copy()
            trial.add(block)
            inference = trial
        except (CorruptError, SchemaError) as error:
            failure = failure or error
    if failure is not None and not inference.records:
        raise failure
    return inference
