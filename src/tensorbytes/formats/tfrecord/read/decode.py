"""Records to columns: the kernel finds and copies the values, this file checks them against the schema."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes.budget import Budget
from tensorbytes.errors import (
    LIMITS,
    CorruptError,
    Hint,
    LimitError,
    Limits,
    SchemaError,
    TensorbytesError,
    UnsupportedError,
)
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files.framing import BLOCK_BYTES, RecordBlock
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.read import stored, views
from tensorbytes.formats.tfrecord.read.columns import ColumnPart, Columns
from tensorbytes.formats.tfrecord.schema import Feature, Schema
from tensorbytes.formats.tfrecord.schema.defaults import STRINGS
from tensorbytes.formats.tfrecord.schema.specs import Viewed
from tensorbytes.tensor import Array
from tensorbytes.tfrecord import FOOTER_BYTES
from tensorbytes.typing import bytes_view

_ODD, _UNKNOWN = 1, 2
# The kernel takes lengths of up to five bytes.
_MOST_BYTES = 1 << 35
# About what a column takes beside its values.
COLUMN_BYTES = 2048
# Features times records that are decoded at a time: finding one takes 17 bytes.
_MOST_CELLS = 1 << 19
# The bytes of defaults that are made at a time, unless one record takes more.
_MOST_DEFAULTS = 16 << 20
_KIND_NAMES = ("nothing", "bytes", "float", "int64")


class ColumnPlan(NamedTuple):
    """A column to be read: the feature `key`, or one of the feature lists if `in_lists`.

    The feature of a list is that of one step, which is never missing: its kind is, and it is empty then.
    """

    name: str
    key: str
    in_lists: bool
    feature: Feature
    optional: bool


class Plan:
    """What to read out of each record, prepared once.

    `origin` says where the schema is from, for errors. With `closed`, a record that has a
    feature which is not in the schema is an error: reading on would lose it in silence.
    """

    def __init__(
        self,
        schema: Schema,
        origin: str = "the schema",
        closed: bool = False,
        limits: Limits = LIMITS,
        input_bytes: int | None = None,
        of_bytes: bool = False,
        views: Mapping[str, Viewed] | None = None,
    ) -> None:
        """of_bytes: records are not parsed, and the only column is their bytes. views: what columns are made into."""
        self.schema, self.origin, self.closed = schema, origin, closed
        self.of_bytes, self.views = of_bytes, views
        self.limits, self._input_bytes, self._held = limits, input_bytes, 0
        Budget(limits).objects(len(schema.columns), origin, 0, COLUMN_BYTES)
        self.columns = [
            ColumnPlan(name, key, in_lists, replace(feature, optional=False) if in_lists else feature, feature.optional)
            for name, (in_lists, key, feature) in schema.columns.items()
        ]
        # The columns that come out: those that are read, unless the schema has views of them.
        self.outputs: Mapping[str, Viewed] = (
            views
            if views is not None
            else {column.name: Viewed(column.key, column.feature, None, column.in_lists) for column in self.columns}
        )
        for column in self.columns:
            _check_column(column)
        self.default_bytes = sum(stored.default_bytes(column.feature) for column in self.columns)
        groups = [_Group([c for c in self.columns if c.in_lists == in_lists], in_lists) for in_lists in (False, True)]
        self.groups = [group for group in groups if group.columns or closed] or groups[:1]

    def within(self, limits: Limits, held: int = 0) -> Plan:
        """The same plan under other limits, of which `held` bytes are taken already."""
        plan = copy.copy(self)
        plan.limits, plan._held = limits, held
        return plan

    def budget(self, block: RecordBlock) -> Budget:
        """What decoding a block may take. Inflated bytes are not input: the file has fewer of them."""
        present = len(block.data)
        if self._input_bytes is not None:
            present = min(present, max(self._input_bytes, BLOCK_BYTES))
        budget = Budget(self.limits, present)
        budget.charge(self._held, f"{block.path}: what was read before record {block.first}", block.base)
        budget.charge(len(block.data) - present, f"{block.path}: record {block.first}", block.base)
        return budget


def _check_column(column: ColumnPlan) -> None:
    feature = column.feature
    inner = None in feature.shape[1:] or (
        None in feature.shape and len(feature.shape) > 1 and feature.encoding != "flat"
    )
    if inner and (column.in_lists or feature.dtype in STRINGS):
        raise UnsupportedError(
            f"column {column.name!r} is {feature.describe()}: steps of feature lists, and strings, may vary "
            "in their first dimension only",
            tensor=column.name,
        )
    if feature.dtype not in STRINGS:
        try:
            dtypes.to_numpy(feature.dtype)
        except UnsupportedError as error:
            raise error.within(f"column {column.name!r} can't be read", tensor=column.name) from None


class _Group:
    """The features that one walk over the records finds."""

    def __init__(self, columns: list[ColumnPlan], in_lists: bool) -> None:
        self.columns = sorted(columns, key=lambda column: column.key)  # in the order of their bytes too
        self.in_lists = in_lists
        self.keys = [column.key.encode() for column in self.columns]
        # Those whose values need only be copied, in the dtype they are stored in.
        self.plain = [index for index, column in enumerate(self.columns) if not in_lists and _is_plain(column)]


def _is_plain(column: ColumnPlan) -> bool:
    feature = column.feature
    numbers = feature.dtype in ("float32", "int64") and feature.encoding == "flat"
    return numbers and bool(feature.size) and not column.optional


class Located(NamedTuple):
    """Where the lists of some features lie in the records of a block."""

    block: RecordBlock
    kinds: Array  # uint8 [keys, records]
    spans: Array  # int64 [keys, records, 2]
    unknown: Array  # uint8 [records], not 0 where a record has other keys too


def locate(block: RecordBlock, keys: Sequence[bytes], in_lists: bool, sequence: bool, budget: Budget) -> Located:
    """Find features by their keys, which must rise; records of unusual form are rewritten for it."""
    kinds, spans, notes = _located(block, keys, in_lists)
    odd = np.flatnonzero(notes & _ODD)
    if odd.size:
        block = in_usual_form(block, odd, sequence, budget)
        kinds, spans, notes = _located(block, keys, in_lists)
        odd = np.flatnonzero(notes & _ODD)
        if odd.size:  # it can only be too large
            raise LimitError(
                f"record {block.first + int(odd[0])} has a part of {_MOST_BYTES} bytes or more, which is not read",
                path=block.path,
                record=block.first + int(odd[0]),
            )
    return Located(block, kinds, spans, notes & _UNKNOWN)


def _located(block: RecordBlock, keys: Sequence[bytes], in_lists: bool) -> tuple[Array, Array, Array]:
    shape = (len(keys), len(block.records))
    array = block.memory.array
    found = array(shape, np.uint8), array((*shape, 2), np.int64), array(shape[1], np.uint8)
    _wire.example_locate(block.data, block.records, b"".join(keys), offsets_of([*map(len, keys)]), in_lists, *found)
    return found


def portions(block: RecordBlock, plan: Plan) -> Iterator[RecordBlock]:
    """The records of a block, no more at a time than memory should be taken for: most may lack most features."""
    most_bytes = min(_MOST_DEFAULTS, plan.limits.max_bytes)
    most = max(min(_MOST_CELLS // max(len(plan.columns), 1), most_bytes // max(plan.default_bytes, 1)), 1)
    if len(block.records) <= most:
        yield block
        return
    for start in range(0, len(block.records), most):
        yield block._replace(records=block.records[start : start + most], first=block.first + start)


class Prepared(NamedTuple):
    """A block in which all wanted features were found; not if that failed, which is said in its turn."""

    block: RecordBlock
    found: list[Located] | None


def prepare(block: RecordBlock, plan: Plan) -> Prepared:
    """The first half of decoding, which may be done in another thread."""
    if plan.of_bytes:
        return Prepared(block, None)
    try:
        return Prepared(block, _locate_groups(block, plan, plan.budget(block)))
    except TensorbytesError:
        return Prepared(block, None)


def _locate_groups(block: RecordBlock, plan: Plan, budget: Budget) -> list[Located]:
    groups = []
    for group in plan.groups:
        groups.append(locate(block, group.keys, group.in_lists, plan.schema.sequence, budget))
        block = groups[-1].block
    return groups


def decode(block: RecordBlock, plan: Plan, found: list[Located] | None = None) -> Columns:
    """The columns of a block's records."""
    budget = plan.budget(block)
    columns = _bytes_of(block, plan, budget) if plan.of_bytes else _features_of(block, plan, budget, found)
    columns.ends = block.base + record_ends(block)
    return columns


def _features_of(block: RecordBlock, plan: Plan, budget: Budget, found: list[Located] | None) -> Columns:
    try:
        return _decode(found or _locate_groups(block, plan, budget), plan, budget)
    except Unusual:
        budget = plan.budget(block)
        usual = in_usual_form(block, np.arange(len(block.records)), plan.schema.sequence, budget)
        return _decode(_locate_groups(usual, plan, budget), plan, budget)


def record_ends(block: RecordBlock) -> Array:
    """Where each record of a block ends in it, its checksum included."""
    ends: Array = block.records.sum(axis=1) + FOOTER_BYTES
    return ends


def _bytes_of(block: RecordBlock, plan: Plan, budget: Budget) -> Columns:
    """Records that are not parsed, as the only column."""
    lengths = block.records[:, 1]
    budget.copy(int(lengths.sum()), f"{block.path}: records", block.base)
    budget.strings(len(lengths), block.base)
    part = ColumnPart(np.frombuffer(b"".join(payloads(block)), np.uint8), offsets_of(lengths))
    return Columns({column.name: part for column in plan.columns}, len(lengths))


def decode_sound(prepared: Prepared, plan: Plan) -> tuple[Columns, TensorbytesError | None]:
    """The columns of the records up to the first that does not fit, and what is wrong with that one."""
    block = prepared.block

    def work(stop: int) -> Columns:
        return decode(block._replace(records=block.records[:stop]), plan)

    good, bad = 0, len(block.records)
    try:
        return decode(block, plan, prepared.found), None
    except TensorbytesError as error:
        failure = error.with_traceback(None)  # which would keep what was decoded so far
    while bad - good > 1:
        middle = (good + bad) // 2
        try:
            work(middle)
            good = middle
        except TensorbytesError as error:
            bad, failure = middle, error.with_traceback(None)
    return work(good), failure


class Unusual(Exception):
    """A list that is malformed, or sound but not of the form that the kernel reads."""


def _decode(groups: list[Located], plan: Plan, budget: Budget) -> Columns:
    parts: dict[str, ColumnPart] = {}
    block = groups[-1].block  # which has all that was rewritten for any of them
    for group, found in zip(plan.groups, groups, strict=True):
        if plan.closed and found.unknown.any():
            raise _unknown_feature(block, int(np.argmax(found.unknown)), group, plan, budget)
        plain = _plain_columns(block, group, found, budget)
        for index, column in enumerate(group.columns):
            reader = _Lists(block, column, plan.origin, budget)
            parts[column.name] = plain.get(index) or reader.read(found.kinds[index], found.spans[index])
    if plan.views is None:
        return Columns({column.name: parts[column.name] for column in plan.columns}, len(block.records))
    found_parts = {(column.in_lists, column.key): parts[column.name] for column in plan.columns}

    def complain(index: int, steps: Array | None, name: str, got: str) -> SchemaError:
        record, where = _place(index, steps)
        number = block.first + record
        what = f"record {number}: feature {name!r}{where} {got}"
        return SchemaError(what, path=block.path, record=number, tensor=name)

    return Columns(views.arranged(plan.views, found_parts, complain, budget), len(block.records))


def _place(index: int, steps: Array | None) -> tuple[int, str]:
    """(the record of an index, words about the step in it); with `steps`, `index` is that of a step."""
    if steps is None:
        return index, ""
    record = int(np.searchsorted(steps, index, side="right")) - 1
    return record, f", step {index - int(steps[record])}"


def _plain_columns(block: RecordBlock, group: _Group, found: Located, budget: Budget) -> dict[int, ColumnPart]:
    """The plain columns, filled in one call; those with anything unexpected in them are left out."""
    requests = []
    most = len(block.data) // max(len(block.records), 1)  # a value takes at least a byte
    plain = [index for index in group.plain if (group.columns[index].feature.size or 0) <= most]
    for index in plain:
        feature = group.columns[index].feature
        shape = (len(block.records), *(n or 0 for n in feature.shape))
        budget.copy(8 * math.prod(shape), f"column {group.columns[index].name!r}", block.base)
        values = block.memory.array(shape, feature.dtype)
        requests.append((found.spans[index], feature.kind_number, feature.size or 0, values))
    filled = _wire.example_fill_all(block.data, requests)
    return {
        index: ColumnPart(request[3])
        for index, request, count in zip(plain, requests, filled, strict=True)
        if count == len(block.records) and (found.kinds[index] == request[1]).all()
    }


def in_usual_form(block: RecordBlock, which: Array, sequence: bool, budget: Budget) -> RecordBlock:
    """The same records, some rewritten by the general parser in the form that the kernel reads."""
    records, added, end = block.records.copy(), [block.data], len(block.data)
    for index in which.tolist():
        try:
            written = example.canonical(_payload(block, index), sequence, budget)
        except CorruptError as error:
            raise _malformed(block, index, sequence, error) from None
        records[index] = end, len(written)
        added.append(memoryview(written))
        end += len(written)
    return block._replace(data=memoryview(b"".join(added)), records=records)


def _payload(block: RecordBlock, index: int) -> memoryview:
    start, size = block.records[index].tolist()
    return block.data[start : start + size]


def _malformed(block: RecordBlock, index: int, sequence: bool, error: CorruptError) -> CorruptError:
    kind = "SequenceExample" if sequence else "Example"
    number = block.first + index
    what = f"record {number} is not a sound {kind}: {error.what}"
    return error.shifted(block.base + int(block.records[index, 0]), block.path).replaced(what=what, record=number)


def names_in(block: RecordBlock, index: int, sequence: bool, in_lists: bool, budget: Budget) -> list[str]:
    """The features, or the feature lists, that a record has."""
    try:
        return sorted(example.names(_payload(block, index), in_lists, budget))
    except CorruptError as error:
        raise _malformed(block, index, sequence, error) from None


def has_lists(block: RecordBlock, budget: Budget) -> bool:
    """Whether records have feature lists, which only a SequenceExample has."""
    notes = _located(block, [], True)[2]
    if (notes & _UNKNOWN).any():
        return True
    for index in np.flatnonzero(notes & _ODD).tolist():
        try:
            if example.parse_sequence(_payload(block, index), budget)[1]:
                return True
        except CorruptError:  # as an Example it may well be sound
            continue
    return False


def _unknown_feature(block: RecordBlock, index: int, group: _Group, plan: Plan, budget: Budget) -> SchemaError:
    names = names_in(block, index, plan.schema.sequence or group.in_lists, group.in_lists, budget)
    name = min(set(names) - {column.key for column in group.columns})
    return SchemaError(
        f"record {block.first + index} has a feature{' list' * group.in_lists} {name!r}, "
        f"which {plan.origin} does not know",
        path=block.path,
        record=block.first + index,
        tensor=name,
        hints=[
            Hint("schema", purpose="such as infer_schema(paths), which reads all records", of="open_records"),
            Hint("columns", purpose="to choose", of="open_records"),
        ],
    )


class _Lists:
    """Reads one column of one block."""

    def __init__(self, block: RecordBlock, column: ColumnPlan, origin: str, budget: Budget) -> None:
        self.block, self.column, self.origin, self.budget = block, column, origin, budget
        self.feature, self.array = column.feature, block.memory.array

    def read(self, kinds: Array, spans: Array) -> ColumnPart:
        if self.column.in_lists:
            return self._read_steps(kinds, spans)
        self._check_kinds(kinds, None)
        present = self._present(kinds)
        return replace(self._values(spans, present, None), present=present)

    def _read_steps(self, kinds: Array, spans: Array) -> ColumnPart:
        """A feature list: its steps are to the records what rows are to a batch."""
        present = self._present(kinds)
        outer, step_kinds, steps = steps_of(self.block, spans)
        self._check_kinds(step_kinds, outer)
        part = self._values(steps, None, outer)
        return replace(part, splits=(outer, *part.splits), present=present)

    def _present(self, kinds: Array) -> Array | None:
        """Which records have the feature; None where all must have it."""
        present: Array = kinds != 0
        if self.column.optional:
            return present
        if not present.all():
            raise self._error(int(np.argmin(present)), None, "is missing")
        return None

    def _check_kinds(self, kinds: Array, steps: Array | None) -> None:
        wrong = (kinds != self.feature.kind_number) & (kinds != 0)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise self._error(index, steps, f"is a list of {_KIND_NAMES[kinds[index]]}")

    def _values(self, spans: Array, present: Array | None, steps: Array | None) -> ColumnPart:
        feature = self.feature
        if feature.kind_number == example.BYTES:
            return self._bytes(spans, present, steps)
        if feature.size is None or (present is not None and feature.default is None):
            return self._varying(spans, present, steps)
        if present is None or present.all():
            return ColumnPart(self._fixed(spans, steps, np.arange(len(spans))))
        rows = np.flatnonzero(present)
        values = self._fixed(spans[rows], steps, rows)
        return ColumnPart(stored.with_default(feature, values, rows, len(spans), self.budget))

    def _fixed(self, spans: Array, steps: Array | None, numbers: Array) -> Array:
        size = self.feature.size or 0
        if len(spans) * size > len(self.block.data):  # more than the records hold: no memory on a schema's word
            lengths = np.diff(self._count(spans))
            wrong = int(np.argmax(lengths != size))
            raise self._error(int(numbers[wrong]), steps, f"has {lengths[wrong]} values")
        self._charge(8 * len(spans) * size)
        values = self.array((len(spans), *(n or 0 for n in self.feature.shape)), self._stored_dtype())
        stop = _wire.example_fill(self.block.data, spans, self.feature.kind_number, size, values)
        if stop < len(spans):
            count = self._count(spans[stop : stop + 1])[-1]
            if count == size:  # the right number, so something else is unusual
                raise Unusual
            raise self._error(int(numbers[stop]), steps, f"has {count} values")
        return self._restored(values, numbers if size else numbers[:0], steps)

    def _varying(self, spans: Array, present: Array | None, steps: Array | None) -> ColumnPart:
        splits = self._count(spans)
        self._charge(8 * int(splits[-1]))
        values = self.array(int(splits[-1]), self._stored_dtype())
        if _wire.example_fill(self.block.data, spans, self.feature.kind_number, -1, values) < len(spans):
            raise Unusual
        values = self._restored(values, None, steps, splits)
        return stored.shaped(values, splits, self.feature, lambda index, got: self._error(index, steps, got), present)

    def _count(self, spans: Array) -> Array:
        splits = self.array(len(spans) + 1, np.int64)
        if _wire.example_count(self.block.data, spans, self.feature.kind_number, splits)[0] < len(spans):
            raise Unusual
        return splits

    def _charge(self, size: int) -> None:
        self.budget.copy(size, f"column {self.column.name!r}", self.block.base)

    def _stored_dtype(self) -> Any:
        return np.float32 if self.feature.kind_number == example.FLOAT else np.int64

    def _restored(self, values: Array, rows: Array | None, steps: Array | None, splits: Array | None = None) -> Array:
        """The values in the schema's dtype, which must hold each of them exactly."""
        wanted = dtypes.to_numpy(self.feature.dtype)
        if values.dtype == wanted:
            return values
        out, wrong = stored.restored(values, wanted)
        if wrong is not None:
            item = int(np.argmax(wrong.reshape(-1)))
            if splits is not None:
                index = int(np.searchsorted(splits, item, side="right")) - 1
            else:
                assert rows is not None
                index = int(rows[item // max(math.prod(values.shape[1:]), 1)])
            raise self._error(index, steps, f"holds {values.reshape(-1)[item]}")
        return out

    def _bytes(self, spans: Array, present: Array | None, steps: Array | None) -> ColumnPart:
        splits = self.array(len(spans) + 1, np.int64)
        stop, size = _wire.example_count(self.block.data, spans, example.BYTES, splits)
        if stop < len(spans):
            raise Unusual
        self._charge(size)
        self.budget.strings(int(splits[-1]), self.block.base)
        strings, data = self.array(int(splits[-1]) + 1, np.int64), self.array(size, np.uint8)
        _wire.example_fill_bytes(self.block.data, spans, strings, data)
        return stored.from_strings(
            strings,
            data,
            splits,
            self.feature,
            present,
            lambda index, got: self._error(index, steps, got),
            self.budget,
        )

    def _error(self, index: int, steps: Array | None, got: str) -> SchemaError:
        """What is wrong with a record's feature; with `steps`, `index` is that of a step."""
        index, where = _place(index, steps)
        return SchemaError(
            f"record {self.block.first + index}: feature {self.column.name!r}{where} {got}; "
            f"{self.origin} says {self.feature.describe()}",
            path=self.block.path,
            record=self.block.first + index,
            tensor=self.column.name,
        )


def steps_of(block: RecordBlock, spans: Array) -> tuple[Array, Array, Array]:
    """(running number of steps, the kind of each, where its list lies) of feature lists."""
    outer = np.empty(len(spans) + 1, np.int64)
    if _wire.example_steps(block.data, spans, outer, None, None) < len(spans):
        raise Unusual
    total = int(outer[-1])
    kinds, steps = block.memory.array(total, np.uint8), block.memory.array((total, 2), np.int64)
    _wire.example_steps(block.data, spans, outer, kinds, steps)
    return outer, kinds, steps


def payloads(block: RecordBlock) -> list[memoryview]:
    """The records' bytes, as views."""
    data = bytes_view(block.data)
    return [data[start : start + size] for start, size in block.records.tolist()]
