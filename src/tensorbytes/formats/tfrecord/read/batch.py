"""A batch of records: columns by name, which others take as an Arrow stream."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import Any

from tensorbytes.errors import MissingNameError, nearest
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.notebook import Displayed
from tensorbytes.tensor import Array

_MOST_NAMED = 8


class Batch(UserDict[str, Any], Displayed):
    """Columns of some records, by name. `present` says which records have an optional feature; `records` is how
    many there are, also where they have no feature at all.

    No dict, though it behaves like one: pyarrow.table() takes a dict apart before it asks
    whether it is an Arrow stream.
    """

    present: dict[str, Array]
    records: int

    def __init__(
        self,
        columns: Mapping[str, Any],
        present: dict[str, Array],
        features: Mapping[str, tuple[Feature, bool]] | None = None,
        records: int = 0,
    ) -> None:
        super().__init__(columns)
        self.present, self._features, self.records = present, dict(features or {}), records

    def __missing__(self, name: Any) -> Any:
        known = ", ".join(map(repr, list(self.data)[:_MOST_NAMED]))
        more = f" and {len(self.data) - _MOST_NAMED} more" if len(self.data) > _MOST_NAMED else ""
        has = f"it has {known}{more}" if known else "it has none"
        raise MissingNameError(
            f"the batch has no column {name!r}; {has}{nearest(name, map(str, self.data))}", tensor=str(name)
        )

    def __setitem__(self, name: str, column: Any) -> None:
        super().__setitem__(name, column)
        if "_features" in vars(self):  # the feature was that of another column
            self._features = {other: about for other, about in self._features.items() if other != name}

    def __or__(self, other: Any) -> Batch:  # type: ignore[override]
        made = self.copy()
        made.update(other)
        return made

    def copy(self) -> Batch:
        return Batch(self.data, self.present, self._features, self.records)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's own interface: pyarrow.table(batch), polars and DuckDB take a batch as it is."""
        from tensorbytes.formats.tfrecord.read import arrow

        return arrow.stream(self.data, self.present, self._features).__arrow_c_stream__(requested_schema)
