"""Records to columns: the kernel finds and copies the values, this file checks them against the schema."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tensorbytes.budget import Budget
from tensorbytes.errors import Hint, SchemaError, TensorbytesError
from tensorbytes.formats.tfrecord.files import framing
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.read import onepass, views
from tensorbytes.formats.tfrecord.read.columns import ColumnPart, Columns
from tensorbytes.formats.tfrecord.read.lists import ListReader, Unusual, place_of
from tensorbytes.formats.tfrecord.read.located import Located, in_usual_form, locate, names_in, payloads
from tensorbytes.formats.tfrecord.read.plan import Group, Plan
from tensorbytes.tensor import Array

# Features times records that are decoded at a time: finding one takes 17 bytes.
_MOST_CELLS = 1 << 19
# The bytes of defaults that are made at a time, unless one record takes more.
_MOST_DEFAULTS = 16 << 20


def portions(block: RecordBlock, plan: Plan) -> Iterator[RecordBlock]:
    """The records of a block, no more at a time than memory should be taken for: most may lack most features."""
    most_bytes = min(_MOST_DEFAULTS, plan.limits.max_bytes)
    most = max(min(_MOST_CELLS // max(len(plan.columns), 1), most_bytes // max(plan.default_bytes, 1)), 1)
    if len(block.records) <= most:
        yield block
        return
    for start in range(0, len(block.records), most):
        yield block._replace(records=block.records[start : start + most], first=block.first + start)


def decode(block: RecordBlock, plan: Plan) -> Columns:
    """The columns of a block's records."""
    if plan.of_bytes:
        return _bytes_of(framing.verified(block), plan, plan.budget(block))
    parts = onepass.parts_of(block, plan)
    return _arranged(block, parts, plan) if parts is not None else _explained(framing.verified(block), plan)


def _bytes_of(block: RecordBlock, plan: Plan, budget: Budget) -> Columns:
    """Records that are not parsed, as the only column."""
    lengths = block.records[:, 1]
    budget.copy(int(lengths.sum()), f"{block.path}: records", block.base)
    budget.strings(len(lengths), block.base)
    part = ColumnPart(np.frombuffer(b"".join(payloads(block)), np.uint8), offsets_of(lengths))
    return Columns({column.name: part for column in plan.columns}, len(lengths))


def decode_sound(block: RecordBlock, plan: Plan) -> tuple[Columns, TensorbytesError | None]:
    """The columns of the records up to the first that does not fit, and what is wrong with that one."""

    def work(stop: int) -> Columns:
        return decode(block._replace(records=block.records[:stop]), plan)

    good, bad = 0, len(block.records)
    try:
        return work(bad), None
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


# ---- step by step ----------------------------------------------------------------
# What the one pass stops at: mostly records that don't fit the schema, which these steps can name.


def _explained(block: RecordBlock, plan: Plan) -> Columns:
    budget = plan.budget(block)
    try:
        return _decode(_locate_groups(block, plan, budget), plan, budget)
    except Unusual:
        budget = plan.budget(block)
        usual = in_usual_form(block, np.arange(len(block.records)), plan.sequence, budget)
        return _decode(_locate_groups(usual, plan, budget), plan, budget)


def _locate_groups(block: RecordBlock, plan: Plan, budget: Budget) -> list[Located]:
    groups = []
    for group in plan.groups:
        groups.append(locate(block, group.keys, group.in_lists, plan.sequence, budget))
        block = groups[-1].block
    return groups


def _decode(groups: list[Located], plan: Plan, budget: Budget) -> Columns:
    parts: dict[str, ColumnPart] = {}
    block = groups[-1].block  # which has all that was rewritten for any of them
    for group, found in zip(plan.groups, groups, strict=True):
        if plan.closed and found.unknown.any():
            raise _unknown_feature(block, int(np.argmax(found.unknown)), group, plan, budget)
        for index, column in enumerate(group.columns):
            reader = ListReader(block, column, plan.origin, budget)
            parts[column.name] = reader.read(found.kinds[index], found.spans[index])
    return _arranged(block, parts, plan, budget)


def _arranged(block: RecordBlock, parts: dict[str, ColumnPart], plan: Plan, budget: Budget | None = None) -> Columns:
    """The columns that come out, of those that were read."""
    if plan.views is None:
        return Columns({column.name: parts[column.name] for column in plan.columns}, len(block.records))
    found = {(column.in_lists, column.key): parts[column.name] for column in plan.columns}

    def complain(index: int, steps: Array | None, name: str, got: str) -> SchemaError:
        record, where = place_of(index, steps)
        number = block.first + record
        what = f"record {number}: feature {name!r}{where} {got}"
        return SchemaError(what, path=block.path, record=number, tensor=name)

    return Columns(views.arranged(plan.views, found, complain, budget or plan.budget(block)), len(block.records))


def _unknown_feature(block: RecordBlock, index: int, group: Group, plan: Plan, budget: Budget) -> SchemaError:
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
