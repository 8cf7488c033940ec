"""One origin out of several: what is noted of the tables that records come from, where these become one.

| the notes                          | together                                                               |
| ---------------------------------- | ---------------------------------------------------------------------- |
| masks, levels                      | all of them; refused where a column is one in some and its own elsewhere |
| the schemas of Arrow's             | all fields; refused where one has different types                      |
| anything else                      | what all agree on                                                      |
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from tensorbytes.errors import Hint, SchemaError
from tensorbytes.rows import LEVELS, MASKS, SCHEMA, TYPES, told_places
from tensorbytes.tensor import InvalidValueError

_ARROW = (SCHEMA, TYPES)
_APART = Hint(purpose="read them apart, or convert one of them to the types of the other")


class Noted(NamedTuple):
    """What is noted of a table: the words for where it is, its origin, the names of its features."""

    where: str
    origin: Mapping[str, str]
    names: Collection[str]


def merge_origins(tables: Sequence[Noted]) -> dict[str, str]:
    """What is noted of all of them together. SchemaError where the same numbers mean one thing here, another there."""
    first = tables[0].origin
    if all(table.origin == first for table in tables):
        return dict(first)
    found = {}
    for key in first:
        texts = {table.origin.get(key) for table in tables}
        if key not in (MASKS, LEVELS, *_ARROW) and len(texts) == 1:
            found[key] = first[key]
    for key in (MASKS, LEVELS):
        places = _merge_places(tables, key)
        if places:
            found[key] = json.dumps(places)
    return found | _merge_schemas(tables)


def _merge_places(tables: Sequence[Noted], key: str) -> dict[str, tuple[str, int]]:
    """Which columns are masks, or lengths, of others."""
    found: dict[str, tuple[str, int]] = {}
    told = [_told(table, key) for table in tables]
    for table, places in zip(tables, told, strict=True):
        for column, place in places.items():
            if found.setdefault(column, place) != place:
                raise _differs(f"{column!r} stands for something else in {table.where} than in the others", column)
    what = "which elements are missing" if key == MASKS else "how long lists are"
    for table, places in zip(tables, told, strict=True):
        for column, (name, _) in found.items():
            if column not in places and (column in table.names or (key == LEVELS and name in table.names)):
                raise _differs(f"{column!r} tells {what} of {name!r}, but not in {table.where}", column)
    return found


def _told(table: Noted, key: str) -> dict[str, tuple[str, int]]:
    try:
        return told_places(table.origin.get(key, "{}"))
    except InvalidValueError as error:
        raise SchemaError(error.fault, path=table.where) from None


def _merge_schemas(tables: Sequence[Noted]) -> dict[str, str]:
    texts = [{key: table.origin[key] for key in _ARROW if key in table.origin} for table in tables]
    told = [text for text in texts if text]
    if not told or all(text == told[0] for text in texts):
        return dict(told[0]) if told else {}
    try:
        import pyarrow  # noqa: F401
    except ModuleNotFoundError:
        raise SchemaError(
            "their notes of Arrow's types differ, and pyarrow is not there to compare them",
            hints=[Hint(purpose="pip install 'tensorbytes[arrow]'"), Hint(purpose="read them apart")],
        ) from None
    from tensorbytes.formats._arrow.uniting import TableTypes, unite

    try:
        return unite([TableTypes(table.where, text, table.names) for table, text in zip(tables, texts, strict=True)])
    except SchemaError as error:
        raise error.replaced(hints=[_APART]) from None


def _differs(what: str, column: str) -> SchemaError:
    return SchemaError(what, tensor=column, hints=[_APART])
