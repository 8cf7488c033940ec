"""What to read out of each record, prepared once."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.errors import LIMITS, Limits, UnsupportedError
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files.framing import BLOCK_BYTES, RecordBlock
from tensorbytes.formats.tfrecord.files.memory import offsets_of
from tensorbytes.formats.tfrecord.read import stored
from tensorbytes.formats.tfrecord.schema import Feature, Schema
from tensorbytes.formats.tfrecord.schema.defaults import STRINGS
from tensorbytes.formats.tfrecord.schema.specs import Partitioned, Viewed

# About what a column takes beside its values.
COLUMN_BYTES = 2048


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
        # What is known of the columns that come out, but for those that are other values than features.
        self.features = {
            name: (column.feature, column.depth)
            for name, column in self.outputs.items()
            if column.view is None or isinstance(column.view, Partitioned)
        }
        for column in self.columns:
            _check_column(column)
        self.default_bytes = sum(stored.default_bytes(column.feature) for column in self.columns)
        groups = [Group([c for c in self.columns if c.in_lists == in_lists], in_lists) for in_lists in (False, True)]
        self.groups = [group for group in groups if group.columns or closed] or groups[:1]
        self.layout = Layout(groups)

    @property
    def sequence(self) -> bool | None:
        """Whether records are SequenceExamples; None: those that have feature lists are, and are refused for them."""
        return None if self.closed and not self.schema.sequence else self.schema.sequence

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


class Group:
    """The features that one walk over the records finds."""

    def __init__(self, columns: list[ColumnPlan], in_lists: bool) -> None:
        self.columns = sorted(columns, key=lambda column: column.key)  # in the order of their bytes too
        self.in_lists = in_lists
        self.keys = [column.key.encode() for column in self.columns]


class Layout:
    """What the kernel is told of the columns: those of features, then those of feature lists, each in rising order."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.columns = [ColumnLayout(column) for group in groups for column in group.columns]
        keys = [key for group in groups for key in group.keys]
        self.keys, self.offsets = b"".join(keys), offsets_of([*map(len, keys)])
        self.features = len(groups[0].columns)
        self.widest = max((column.width for column in self.columns), default=0)
        self.fields = np.array(
            [(column.kind, column.optional, column.width) for column in self.columns], np.int64
        ).reshape(-1, 3)
        # What a record had of each column in the last block: values, strings, lists.
        self.usual: list[tuple[float, float, float] | None] = [None] * len(self.columns)
        self.learned = False  # whether there was one


class ColumnLayout:
    """What is known of a column before any record is read."""

    __slots__ = ("dtype", "in_lists", "kind", "optional", "plain", "plan", "shape", "varies", "what", "width")

    def __init__(self, plan: ColumnPlan) -> None:
        feature = plan.feature
        self.plan, self.in_lists, self.optional = plan, plan.in_lists, plan.optional
        self.what = f"column {plan.name!r}"
        self.kind = feature.kind_number
        # The items of each list; -1 where they vary.
        self.width = -1 if feature.width is None else feature.width
        self.varies = self.width < 0 or (self.optional and not self.in_lists)
        self.dtype = np.dtype({example.BYTES: np.uint8, example.FLOAT: np.float32}.get(self.kind, np.int64))
        self.shape = tuple(n or 0 for n in feature.shape)
        # Whether what the kernel writes is the column as it comes out.
        self.plain = not (self.varies or self.in_lists) and (
            feature.dtype == "bytes" and feature.encoding == "flat" and not self.shape
            if self.kind == example.BYTES
            else dtypes.to_numpy(feature.dtype) == self.dtype
        )
