"""How the schema of a writer comes about, and how it widens while rows come in.

A schema that was given is fixed. One that was taken from the first row or batch describes
just that; what comes later may ask for more, as long as all that is written already keeps
fitting: sizes that vary, features that some records lack.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tensorbytes.errors import Hint, MissingNameError, SchemaError, TensorbytesError, UnsupportedError, UsageError
from tensorbytes.formats.tfrecord.schema import ColumnFeature, Feature, Schema
from tensorbytes.formats.tfrecord.write.encode import Misfit


class Fault(Exception):
    """What is wrong with a feature, without the number of the record."""

    def __init__(self, name: Any, error: TensorbytesError, row: int = 0) -> None:
        super().__init__(str(error))
        self.name, self.error, self.row = name, error, row

    def of(self, record: int) -> TensorbytesError:
        """The error, with the feature and the record that it is about."""
        return self.error.within(f"record {record}: feature {self.name!r}", record=record, tensor=str(self.name))


def _misfit(name: Any, error: Misfit) -> Fault:
    return Fault(name, SchemaError(expected=error.expected, got=error.got, hints=error.hints), error.row)


@contextlib.contextmanager
def faults_of(name: Any) -> Iterator[None]:
    """Says whose fault it is; misfits are left to those who can do something about them."""
    try:
        yield
    except (UnsupportedError, UsageError) as error:
        raise Fault(name, error) from None


@contextlib.contextmanager
def refusals_of(name: Any) -> Iterator[None]:
    """The same where nothing can be done about misfits either."""
    try:
        with faults_of(name):
            yield
    except Misfit as error:
        raise _misfit(name, error) from None


class Growth:
    """The rules for one writer."""

    def __init__(self, schema: Any, lists: Iterable[str] | None) -> None:
        if schema is not None and lists is not None:
            raise UsageError("lists= is for writing without a schema; a schema says itself which features are lists")
        if isinstance(lists, str | bytes):
            raise UsageError(
                f"lists={lists!r}",
                expected="a list of names",
                hints=[Hint("lists", [lists], "for one name", of="RecordWriter")],
            )
        self.given = None if schema is None else Schema.of(schema)
        self.fixed = schema is not None
        self._lists = None if lists is None else frozenset(lists)

    def is_list(self, name: str) -> bool:
        """Whether a feature that no schema knows is a feature list."""
        return self._lists is not None and name in self._lists

    def fitted(self, schema: Schema | None, values: Mapping[str, Any], guess: Callable[[Any, bool], Feature]) -> Schema:
        """A schema with a place for each of these values, and no more than they give; the same one if it will do."""
        columns: Mapping[str, ColumnFeature] = {} if schema is None else schema.columns
        unknown = [name for name in values if name not in columns]
        missing = [name for name, column in columns.items() if name not in values and not column.feature.optional]
        if schema is not None and not unknown and not missing:
            return schema
        if schema is not None and self.fixed:
            raise _refusal(schema, unknown, missing)
        features = {} if schema is None else dict(schema.features)
        lists = {} if schema is None else dict(schema.lists or {})
        for name in missing:
            column = columns[name]
            (lists if column.is_list else features)[column.name] = replace(column.feature, optional=True)
        for name in unknown:
            is_list = self.is_list(name)
            with refusals_of(name):
                found = guess(values[name], is_list)
            (lists if is_list else features)[name] = replace(found, optional=schema is not None)
        sequence = self._lists is not None if schema is None else schema.sequence
        return Schema(features, lists if sequence else None)

    def widened(self, schema: Schema, name: str, misfit: Misfit) -> Schema:
        """A schema that the value of a misfit fits, if it may become one."""
        column = schema.columns[name]
        grown = None if self.fixed else _wider(column.feature, misfit)
        if grown is None or grown == column.feature:
            raise _misfit(name, misfit)
        return with_feature(schema, column._replace(feature=grown))


def with_feature(schema: Schema, column: ColumnFeature) -> Schema:
    """The schema with one more feature, or another one of that name."""
    features, lists = dict(schema.features), dict(schema.lists or {})
    (lists if column.is_list else features)[column.name] = column.feature
    return Schema(features, lists if schema.sequence else None)


def _wider(feature: Feature, misfit: Misfit) -> Feature | None:
    if misfit.missing:
        return replace(feature, optional=True)
    if misfit.shape is None or len(misfit.shape) != len(feature.shape):
        return None  # a scalar that became a list would come back as another thing than was written
    try:
        asked = Schema({"": replace(feature, shape=misfit.shape)})
        return Schema({"": feature}).merge(asked).features[""]
    except SchemaError:
        return None


def _refusal(schema: Schema, unknown: list[str], missing: list[str]) -> Fault:
    if missing:
        name = missing[0]
        return Fault(name, SchemaError("is missing", expected=schema[name].describe()))
    try:
        schema[unknown[0]]
    except MissingNameError as error:
        return Fault(unknown[0], SchemaError(f"is not in the schema: {error.fault}"))
    raise AssertionError("a feature can't be both known and unknown")
