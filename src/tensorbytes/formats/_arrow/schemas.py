"""Arrow schemas as text: what a table of somebody else's says beyond its values.

A table of our own has notes. Of any other, the schema is kept in the origin of the document, as base64 of Arrow's own
message, deflated: under "arrow.schema" where it says more than the values do (types that have another neutral form,
nested ones, time zones, metadata), else under "arrow.types", which may be dropped: how wide offsets are, what might be
null. Written to Arrow or Parquet again, columns get their types back, also those that were renamed since.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tensorbytes.formats._arrow.words import Words, with_words
from tensorbytes.formats._arrow.write import arrow
from tensorbytes.io.streams import engines
from tensorbytes.rows import SCHEMA, TYPES, split_names

_KEY = b"tensorbytes"
_MOST_BYTES = 64 << 20
# Metadata that says nothing of the values: the numbers of Parquet's fields.
_PASSED_OVER = {b"PARQUET:field_id"}


def schema_origin(schema: Any, words: Mapping[int, Words] = MappingProxyType({})) -> dict[str, str]:
    """The origin of a table with this schema; nothing if notes of ours say it all. `words`: of columns by number."""
    pa = arrow()
    metadata = {key: text for key, text in (schema.metadata or {}).items() if key != _KEY}
    fields = [
        with_words(field, words.get(number, {}))
        for number, field in enumerate(schema)
        if _KEY not in (field.metadata or {})
    ]
    key = SCHEMA if metadata or any(map(_says_more, fields)) else TYPES
    if not fields or (key == TYPES and _KEY in (schema.metadata or {})):
        return {}
    message = pa.schema(fields, metadata=metadata or None).serialize()
    return {key: base64.b64encode(engines.deflate_whole("zlib", [memoryview(message)], 6)).decode()}


def schema_of(origin: Mapping[str, str]) -> tuple[Any, Mapping[str, str | None]]:
    """(the schema that an origin tells, None if it tells none; the names of rows.with_names)"""
    text = origin.get(SCHEMA, origin.get(TYPES))
    if text is None:
        return None, {}
    pa = arrow()
    try:
        text, since = split_names(text)
        message = engines.open_inflater("zlib").decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        return pa.ipc.read_schema(pa.py_buffer(message)), since
    except (pa.ArrowException, binascii.Error, ValueError, OSError, *engines.inflate_errors()):
        return None, {}  # a file may say anything


def _says_more(field: Any) -> bool:
    pa = arrow()
    types, kind = pa.types, field.type
    if any(key not in _PASSED_OVER for key in field.metadata or {}):
        return True
    if isinstance(kind, pa.FixedShapeTensorType):
        return bool(kind.dim_names) or kind.permutation is not None
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _says_more(kind.value_field)
    if types.is_timestamp(kind):
        return kind.tz is not None
    plain = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_duration(kind)
    return not (plain or str(kind) in ("string", "large_string", "binary", "large_binary"))
