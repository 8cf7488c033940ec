"""Schema: the features of a record file, by name.

It restores what Examples don't store (dtypes, shapes, text or bytes, defaults), is kept as
JSON beside the file, and is checked on reading and writing.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import IO, Any, NamedTuple, TypeVar

from tensorbytes.errors import LIMITS, Hint, Limits, MissingNameError, SchemaError, UsageError
from tensorbytes.formats.tfrecord.schema import json as schema_json
from tensorbytes.formats.tfrecord.schema import specs as schema_specs
from tensorbytes.formats.tfrecord.schema import tf as schema_tf
from tensorbytes.formats.tfrecord.schema.defaults import brief, plain
from tensorbytes.formats.tfrecord.schema.feature import ENCODINGS, KINDS, Feature, check_name
from tensorbytes.formats.tfrecord.schema.merge import merge_groups
from tensorbytes.formats.tfrecord.schema.origins import Noted, merge_origins
from tensorbytes.io import beside, storage
from tensorbytes.io.holding import Hold
from tensorbytes.typing import Buffer

__all__ = ["ENCODINGS", "KINDS", "Column", "Feature", "Outline", "Schema", "load_beside", "sidecar_path"]

T = TypeVar("T")

# Finding similar names takes time for each name there is: beyond this many it is not tried.
_MOST_COMPARED = 1000
_WIDEST = 60


def sidecar_path(base: str) -> str:
    """Where the schema of a file is kept; of a sharded one, give the name without -00000-of-00010."""
    return f"{base}.schema.json"


def load_beside(path: str, limits: Limits = LIMITS) -> Schema | None:
    """The schema that is kept under this path, if there is one."""
    if storage.is_url(path):
        try:
            return Schema.load(path)
        except (FileNotFoundError, PermissionError):  # as some servers call what is not there
            return None
    text = beside.read(path, schema_json.MAX_BYTES)
    return None if text is None else Schema.from_json(text, source=path, limits=limits)


class ColumnFeature(NamedTuple):
    """The feature that a column of a schema holds."""

    is_list: bool
    name: str  # of the feature, in the record
    feature: Feature


class Schema(Mapping[str, Feature]):
    """Features by name, sorted. Never changed once built.

    `lists` is None for Examples. For SequenceExamples `features` describe the context and
    `lists` one step of each feature list. As a mapping it goes from the names of columns to
    features: a column is named like its feature; where the context and the lists share a
    name, they are "context/NAME" and "lists/NAME". `origin` is what we note ourselves of how the
    table was held that the records came from.
    """

    __slots__ = ("_columns", "_features", "_lists", "origin")

    def __init__(
        self,
        features: Mapping[str, Any],
        lists: Mapping[str, Any] | None = None,
        origin: Mapping[str, str] | None = None,
    ) -> None:
        self.origin: Mapping[str, str] = MappingProxyType(dict(origin or {}))
        self._features = _group(features, "feature")
        self._lists = None if lists is None else _group(lists, "feature list")
        for name, feature in (self._lists or {}).items():
            if feature.default is not None:
                raise UsageError(f"feature list {brief(name)}: a default is for features; a missing list has no steps")
        self._columns = MappingProxyType(_columns(self._features, self._lists or {}))

    @classmethod
    def of(cls, spec: Any) -> Schema:
        """A schema from a short form.

        {"x": "int64", "image": ("uint8", [28, 28])}, with what `Feature.of` takes as values ·
        a pair of those for SequenceExamples, (context, lists) · the path of a JSON file · a Schema ·
        TensorFlow's feature specs, as dicts like these: what they say of the records
        """
        if isinstance(spec, Schema):
            return spec
        if schema_specs.has_specs(spec):
            return Outline.of(spec).schema
        if isinstance(spec, Mapping):
            return cls(spec)
        if storage.is_path(spec):
            return cls.load(spec)
        if isinstance(spec, tuple) and len(spec) == 2:
            return cls(*spec)
        raise UsageError(
            "expected a schema: a dict of names to dtypes or features, a pair of dicts (context, lists), "
            f"the path of a JSON file, or a Schema; got {brief(spec)}"
        )

    # ---- what it holds ----

    @property
    def features(self) -> Mapping[str, Feature]:
        return self._features

    @property
    def lists(self) -> Mapping[str, Feature] | None:
        return self._lists

    @property
    def sequence(self) -> bool:
        """Whether the records are SequenceExamples."""
        return self._lists is not None

    @property
    def columns(self) -> Mapping[str, ColumnFeature]:
        """(is_list, name of the feature, Feature) by the name of the column: the context first, then the lists."""
        return self._columns

    def __getitem__(self, name: str) -> Feature:
        if name not in self:
            raise MissingNameError(self._unknown(name), tensor=str(name))
        return self._columns[name].feature

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        mine, others = (self._features, self._lists, self.origin), (other._features, other._lists, other.origin)
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        groups = dict(self._features), None if self._lists is None else dict(self._lists), dict(self.origin)
        return Schema, groups, list(self._columns)

    def __setstate__(self, names: list[str]) -> None:
        """Name the columns, which are in the order of the features: a part of a schema keeps the names of the whole."""
        self._columns = MappingProxyType(dict(zip(names, self._columns.values(), strict=True)))

    def _unknown(self, name: Any) -> str:
        shared = [full for full in (f"context/{name}", f"lists/{name}") if full in self._columns]
        if shared:
            return f"{brief(name)} is in the context and in the lists: say {' or '.join(map(repr, shared))}"
        few = list(self._columns)[:_MOST_COMPARED] if isinstance(name, str) and len(name) < 1000 else []
        near = difflib.get_close_matches(name, [known for known in few if len(known) < 1000])
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"it has {brief(list(self._columns))}"
        return f"the schema has no feature {brief(name)}; {hint}"

    # ---- others made from it ----

    def select(self, names: Iterable[str]) -> Schema:
        """The schema of some of its columns alone, under the names that they were asked for by."""
        if isinstance(names, str | bytes):
            raise UsageError(
                expected="a list of names", got=brief(names), hints=[Hint(purpose=f"for one name: [{brief(names)}]")]
            )
        wanted = list(names)
        for name in wanted:
            if name not in self:
                raise UsageError(self._unknown(name))
        kept = set(wanted)
        chosen = {name: column for name, column in self._columns.items() if name in kept}
        features = {column.name: column.feature for column in chosen.values() if not column.is_list}
        lists = {column.name: column.feature for column in chosen.values() if column.is_list}
        selected = Schema(features, lists if self.sequence else None, self.origin)
        selected.__setstate__(list(chosen))
        return selected

    def noting(self, origin: Mapping[str, str]) -> Schema:
        """The same schema with another origin."""
        made = Schema(self._features, self._lists, origin)
        made.__setstate__(list(self._columns))
        return made

    def merge(self, other: Schema) -> Schema:
        """What two schemas have in common: sizes that differ vary, what is in only one is optional."""
        return Schema.merged([("the first schema", self), ("the second", other)])

    @staticmethod
    def merged(schemas: Iterable[tuple[str, Schema]]) -> Schema:
        """What several schemas have in common; errors call each by the words beside it."""
        pairs = list(schemas)
        if not pairs:
            raise UsageError("expected at least one schema to merge")
        first, start = pairs[0]
        for where, schema in pairs:
            if schema.sequence != start.sequence:
                one, other = ("SequenceExamples", "Examples") if start.sequence else ("Examples", "SequenceExamples")
                raise SchemaError(f"{first} describes {one}, but {where} {other}: they can't be read as one")
        if all(schema == start for _, schema in pairs):
            return start
        features = merge_groups([(where, schema.features) for where, schema in pairs], "feature")
        origin = merge_origins([Noted(where, schema.origin, schema.columns.keys()) for where, schema in pairs])
        if not start.sequence:
            return Schema(features, origin=origin)
        lists = merge_groups([(where, schema.lists or {}) for where, schema in pairs], "feature list")
        return Schema(features, lists, origin)

    # ---- other forms ----

    @classmethod
    def from_json(cls, text: str | Buffer, *, source: str = "<schema>", limits: Limits = LIMITS) -> Schema:
        """The schema that `to_json` wrote. `source` is the name of the text shown in errors."""
        return cls(*schema_json.read(text, source, limits))

    def to_json(self) -> str:
        return schema_json.write(self._features, self._lists, self.origin)

    @classmethod
    def load(cls, path: storage.Target) -> Schema:
        """Read a JSON file."""
        storage.check_target(path, "read")
        limit = schema_json.MAX_BYTES + 1  # one more shows that it is too long
        if not storage.is_path(path):
            return cls.from_json(storage.read_exactly(path, limit), source=storage.describe(path))
        with _open(path) as file:
            return cls.from_json(storage.read_exactly(file, limit), source=storage.describe(path))

    def save(self, path: storage.Target, *, sync: bool = True) -> None:
        """Write a JSON file; an older one is replaced at once or not at all."""
        storage.write(path, [self.to_json().encode()], sync=sync)

    def save_beside(self, path: str, *, sync: bool = True, hold: Hold | None = None) -> None:
        """The same for a name that follows from another file's: a link that stands there is replaced."""
        storage.write(path, [self.to_json().encode()], sync=sync, follow=False, hold=hold)

    def to_tf(self) -> Any:
        """The feature spec for tf.io.parse_example; for SequenceExamples the pair (context, lists)
        for tf.io.parse_sequence_example.

        Values stored flat come out as int64, float32 or string, TensorFlow's only list types;
        those with another encoding as strings. tf.py has the table.
        """
        features = schema_tf.feature_specs(self._features)
        return features if self._lists is None else (features, schema_tf.list_specs(self._lists))

    def __repr__(self) -> str:
        groups = [self._features] if self._lists is None else [self._features, self._lists]
        return f"Schema({', '.join(repr(dict(group)) for group in groups)})"

    def __str__(self) -> str:
        """A table: name, type, encoding, and what happens when it is missing."""
        heading = ("name", "type", "encoding", "if missing")
        context = [_row(name, feature) for name, feature in self._features.items()]
        if self._lists is None:
            return _table([heading, *context])
        lists = [_row(name, feature) for name, feature in self._lists.items()]
        return _table([heading, ("context:",), *context, ("lists, in each step:",), *lists])


class Outline(NamedTuple):
    """What records hold, and the columns to make of it where these are not the features themselves."""

    schema: Schema
    views: Mapping[str, schema_specs.Viewed] | None = None

    @classmethod
    def of(cls, spec: Any) -> Outline:
        """The schema of any form that `Schema.of` takes; with views, if it is in TensorFlow's terms."""
        if not schema_specs.has_specs(spec):
            return cls(Schema.of(spec))
        if isinstance(spec, Mapping):
            group = schema_specs.read_group(spec, "features")
            return cls(Schema(group.features), dict(sorted(group.columns.items())))
        context, lists = (schema_specs.read_group(part, place) for part, place in zip(spec, _PLACES, strict=True))
        named = _named_columns(dict(sorted(context.columns.items())), dict(sorted(lists.columns.items())))
        schema = Schema(context.features, lists.features)
        return cls(schema, {name: viewed for name, (_, _, viewed) in named.items()})

    def select(self, names: Iterable[str]) -> Outline:
        """That of some columns alone."""
        if self.views is None:
            return Outline(self.schema.select(names))
        wanted = set(names)
        if unknown := sorted(map(str, wanted - self.views.keys())):
            near = difflib.get_close_matches(unknown[0], list(self.views)[:_MOST_COMPARED])
            hint = f"did you mean {near[0]!r}?" if near else f"it has {brief(list(self.views))}"
            raise UsageError(f"the spec has no feature {brief(unknown[0])}; {hint}")
        views = {name: viewed for name, viewed in self.views.items() if name in wanted}
        keys = {(viewed.in_lists, key) for viewed in views.values() for key in viewed.keys}
        stored = [name for name, column in self.schema.columns.items() if (column.is_list, column.name) in keys]
        return Outline(self.schema.select(stored), views)


_PLACES = ("context", "lists")


def _group(features: Any, noun: str) -> Mapping[str, Feature]:
    """Checked features, sorted by name."""
    if not isinstance(features, Mapping):
        raise UsageError(expected="a dict of names to features", got=brief(features))
    found = {}
    for name, spec in features.items():
        check_name(name)
        try:
            found[name] = Feature.of(spec)
        except UsageError as error:
            raise error.within(f"{noun} {brief(name)}", tensor=name) from None
    return MappingProxyType({name: found[name] for name in sorted(found)})


def _columns(features: Mapping[str, Feature], lists: Mapping[str, Feature]) -> dict[str, ColumnFeature]:
    return {name: ColumnFeature(*column) for name, column in _named_columns(features, lists).items()}


def _named_columns(features: Mapping[str, T], lists: Mapping[str, T]) -> dict[str, tuple[bool, str, T]]:
    """(whether it is a feature list, the name of the feature, the item) by the name of the column."""
    shared = features.keys() & lists.keys()
    named = _named(features, lists, shared)
    if len(named) < len(features) + len(lists):  # a feature is itself called "context/x": all get the prefix
        named = _named(features, lists, features.keys() | lists.keys())
    return named


def _named(features: Mapping[str, T], lists: Mapping[str, T], prefixed: set[str]) -> dict[str, tuple[bool, str, T]]:
    columns = {}
    for is_list, prefix, group in ((False, "context/", features), (True, "lists/", lists)):
        for name, feature in group.items():
            columns[prefix + name if name in prefixed else name] = (is_list, name, feature)
    return columns


def _open(path: Any) -> IO[bytes]:
    file: IO[bytes] = storage.open_url(path, "rb") if storage.is_url(path) else open(os.fspath(path), "rb")  # noqa: SIM115
    return file


# ---- the table --------------------------------------------------------------


def _row(name: str, feature: Feature) -> tuple[str, ...]:
    # Names come from files: none may move the cursor of a terminal.
    shown = name if name.isprintable() and name else repr(name)
    shown = shown if len(shown) <= _WIDEST else shown[: _WIDEST - 3] + "..."
    kind = feature.describe().partition(" as ")[0]
    missing = "optional" if feature.optional else ""
    if feature.default is not None:
        missing = f"default {brief(plain(feature.dtype, feature.default))}"
    return shown, kind, feature.stored_as(), missing


def _table(rows: list[tuple[str, ...]]) -> str:
    full = [row for row in rows if len(row) > 1]
    widths = [max(len(cell) for cell in column) for column in zip(*full, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() if len(row) > 1 else row[0] for row in rows)
