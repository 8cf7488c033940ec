"""Tables of rows as records hold them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tensorbytes.formats.tfrecord.schema.origins import Noted, merge_origins
from tensorbytes.rows import MASKS, SCHEMA, TYPES, Table, told_places
from tensorbytes.tensor import Ragged, Strings, Tensor, Value

_TIMES = ("datetime64", "timedelta64")


class TableRows:
    """One table after another, with what is noted of all of them so far. The first one may go on where a schema was
    given. `names` are the columns of the rows before. Without `widths`, it is not noted what may be dropped, where
    there are no times: how wide Arrow's offsets were, which differs between libraries."""

    def __init__(self, origin: Mapping[str, str], widths: bool = True) -> None:
        self.origin = origin
        self.names: Collection[str] | None = None
        self._widths = widths

    def prepare(self, table: Table) -> Table:
        """Examples may lack features; masks inside of rows are features of their own. Times are numbers, whose unit
        stands in the schema of Arrow's, if that is known."""
        known = told_places(self.origin.get(MASKS, "{}"))
        table = table.with_whole_masks(known.values()).with_mask_columns(rows_as_well=False)
        widths = self._widths or any(_has_unit(value) for value in table.columns.values())
        if table.origin.keys() & {SCHEMA, TYPES}:
            table = table.with_level_columns()
            table = table._replace(columns={name: _without_unit(value) for name, value in table.columns.items()})
        elif MASKS not in table.origin:
            return table
        new = table.origin if widths else {key: text for key, text in table.origin.items() if key != TYPES}
        before = [] if self.names is None else [Noted("the rows before", self.origin, self.names)]
        self.names = table.columns.keys()
        self.origin = merge_origins([*before, Noted("the new ones", new, self.names)])
        return table


def _has_unit(value: Value) -> bool:
    inside = value.values if isinstance(value, Ragged) else value
    return isinstance(inside, Tensor) and inside.dtype in _TIMES


def _without_unit(value: Value) -> Value:
    """Times as the numbers that they are."""
    if isinstance(value, Ragged):
        values = _without_unit(value.values)
        assert isinstance(values, Tensor | Strings)
        return replace(value, values=values, origin={}) if values is not value.values else value
    if isinstance(value, Tensor) and value.dtype in _TIMES:
        return Tensor("int64", value.shape, value.data, value.name, value.meta)
    return value
