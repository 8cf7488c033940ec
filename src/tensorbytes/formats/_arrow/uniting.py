"""Arrow schemas of several tables, as one of all their rows: no column may have two types."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tensorbytes.errors import SchemaError, UnsupportedError
from tensorbytes.formats._arrow.nested import content_type, flat_columns
from tensorbytes.formats._arrow.schemas import schema_of, schema_origin
from tensorbytes.formats._arrow.write import arrow

_EXTENSION = b"ARROW:extension:"


class TableTypes(NamedTuple):
    """The types of a table: the words for where it is, the origin that tells them, the names of its columns."""

    where: str
    origin: Mapping[str, str]
    names: Collection[str]


def unite(tables: Sequence[TableTypes]) -> dict[str, str]:
    """The origin of a table with the fields of all. SchemaError if a field has different types."""
    pa = arrow()
    fields: dict[str, Any] = {}
    owners: dict[str, str] = {}
    metadata: dict[bytes, bytes] | None = None
    schemas = {}
    for table in tables:
        schema, since = schema_of(table.origin)
        if since:
            raise SchemaError("its columns have other names than its note of Arrow's types has", path=table.where)
        if schema is None and table.origin:
            raise SchemaError("the note of Arrow's types is not sound", path=table.where)
        if schema is None:
            continue
        schemas[table.where] = schema
        metadata = _common(metadata, schema.metadata)
        if len(set(schema.names)) < len(schema.names):
            raise SchemaError(f"two columns of {table.where} have one name")
        for field in schema:
            before = fields.get(field.name)
            if before is not None and (before.type != field.type or _extension(before) != _extension(field)):
                raise _differ(field.name, before.type, owners[field.name], field.type, table.where)
            owners.setdefault(field.name, table.where)
            fields[field.name] = field if before is None else _united(before, field)
    for name, field in fields.items():
        for table in tables:
            if table.where not in schemas and _says_what_values_do_not(name, field.type, table.names):
                raise _differ(name, field.type, owners[name], "not noted", table.where)
            if table.where not in schemas or name not in schemas[table.where].names:
                fields[name] = fields[name].with_nullable(True)
    return schema_origin(pa.schema(list(fields.values()), metadata=metadata or None))


def _differ(name: str, one: Any, here: str, other: Any, there: str) -> SchemaError:
    return SchemaError(f"{name!r} is {one} in {here}, but {other} in {there}", tensor=name)


def _extension(field: Any) -> dict[bytes, bytes]:
    """The extension type that a field says it has, where pyarrow does not know it."""
    return {key: text for key, text in (field.metadata or {}).items() if key.startswith(_EXTENSION)}


def _common(one: Mapping[bytes, bytes] | None, other: Mapping[bytes, bytes] | None) -> dict[bytes, bytes]:
    """What two agree on; None says nothing yet."""
    other = other or {}
    return {key: text for key, text in (other if one is None else one).items() if other.get(key) == text}


def _united(one: Any, other: Any) -> Any:
    metadata = _common(one.metadata or {}, other.metadata)
    return one.with_nullable(one.nullable or other.nullable).with_metadata(metadata or None)


def _says_what_values_do_not(name: str, kind: Any, names: Collection[str]) -> bool:
    """Whether columns that have no note, and the names of this type's, might mean something else than it says."""
    try:
        columns = ["/".join((name, *flat.keys)) for flat in flat_columns(kind)]
    except UnsupportedError:
        return False
    return any(column in names for column in columns) and not all(map(_is_plain, _leaves(kind)))


def _leaves(kind: Any) -> Iterator[Any]:
    kind = content_type(kind)
    if not kind.num_fields:
        yield kind
    for number in range(kind.num_fields):
        yield from _leaves(kind.field(number).type)


def _is_plain(kind: Any) -> bool:
    types = arrow().types
    number = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_null(kind)
    return bool(number or str(kind).removesuffix("_view").removeprefix("large_") in ("string", "binary"))
