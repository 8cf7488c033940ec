"""A batch of records: columns by name, which others take as an Arrow stream."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tensorbytes import frameworks
from tensorbytes.errors import Hint, MissingDependencyError, MissingNameError, UnsupportedError, UsageError, nearest
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.notebook import Displayed
from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor, Value

_MOST_NAMED = 8


class Batch(UserDict[str, Any], Displayed):
    """Columns of some records, by name. `present` says which records have an optional feature; `records` is how
    many there are, also where they have no feature at all. `lengths` are those of the rows of a column that was
    filled up to the longest, as a FixedLenSequenceFeature of TensorFlow asks for it.

    No dict, though it behaves like one: pyarrow.table() takes a dict apart before it asks
    whether it is an Arrow stream. It can be pickled; protocol 5 hands the memory of columns out of band, uncopied, also
    that of torch's tensors.
    """

    present: dict[str, Array]
    records: int
    lengths: dict[str, Array]

    def __init__(
        self,
        columns: Mapping[str, Any],
        present: dict[str, Array],
        features: Mapping[str, tuple[Feature, int]] | None = None,
        records: int = 0,
        lengths: dict[str, Array] | None = None,
    ) -> None:
        self.data = dict(columns)
        self.present, self._features, self.records = present, features or {}, records
        self.lengths = lengths or {}

    def __missing__(self, name: Any) -> Any:
        known = ", ".join(map(repr, list(self.data)[:_MOST_NAMED]))
        more = f" and {len(self.data) - _MOST_NAMED} more" if len(self.data) > _MOST_NAMED else ""
        has = f"it has {known}{more}" if known else "it has none"
        raise MissingNameError(
            f"the batch has no column {name!r}; {has}{nearest(name, map(str, self.data))}", tensor=str(name)
        )

    def __eq__(self, other: object) -> bool:
        """Whether the columns hold the same, of whatever framework, and the same records have them."""
        if not isinstance(other, Batch):
            return NotImplemented
        if (self.records, self.keys(), self.present.keys()) != (other.records, other.keys(), other.present.keys()):
            return False
        if not all(np.array_equal(flags, other.present[name]) for name, flags in self.present.items()):
            return False
        return all(bool(frameworks.to_value(self[name]) == frameworks.to_value(other[name])) for name in self)

    __hash__ = None  # type: ignore[assignment]

    def __setitem__(self, name: str, column: Any) -> None:
        super().__setitem__(name, column)
        if name in self._features:  # the feature was that of another column
            self._features = {other: about for other, about in self._features.items() if other != name}

    def __or__(self, other: Any) -> Batch:  # type: ignore[override]
        made = self.copy()
        made.update(other)
        return made

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        columns = {name: _packed(column) for name, column in self.data.items()} if protocol >= 5 else self.data
        return _unpacked, (columns, self.present, self._features, self.records, self.lengths)

    def copy(self) -> Batch:
        return Batch(self.data, self.present, self._features, self.records, self.lengths)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Arrow's own interface: pyarrow.table(batch), polars and DuckDB take a batch as it is."""
        from tensorbytes.formats.tfrecord.read import arrow

        return arrow.stream(self.data, self.present, self._features).__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        """Refused, as columns differ in dtype and shape. pandas.DataFrame(batch) comes here."""
        raise UsageError(
            "a batch is columns of different types, not one array",
            hints=[Hint(purpose="use batch.to_pandas() for a DataFrame"), Hint(purpose="take one of its columns")],
        )

    def to_pandas(self) -> Any:
        """A pandas.DataFrame with a row for each record: text as str, lists and arrays as cells, None if missing."""
        try:
            import pandas
        except ModuleNotFoundError:
            raise MissingDependencyError("to_pandas()", "pandas") from None
        made = {}
        for name, column in self.data.items():
            feature, in_lists = self._features.get(name, (None, False))
            cells = _cells(name, column, feature, None if in_lists else self.present.get(name))
            text = isinstance(cells, list) and all(isinstance(cell, str) for cell in cells)
            made[name] = cells if isinstance(cells, np.ndarray) or text else pandas.Series(cells, dtype=object)
        return pandas.DataFrame(made, index=pandas.RangeIndex(self.records))


# ---- pickles ---------------------------------------------------------------------


class _Packed(NamedTuple):
    """A framework's tensor on its way through a pickle."""

    value: Value


def _packed(column: Any) -> Any:
    """A column whose memory pickle's protocol 5 takes uncopied; as it is, if there is no such form."""
    if type(column) is np.ndarray and column.dtype != object:
        return column if column.flags.forc else np.ascontiguousarray(column)
    known = "text" if type(column) is np.ndarray else frameworks.of(column)
    if known in (None, "neutral", "numpy", "protocol") or (known != "text" and _in_torch_worker()):
        return column
    try:
        return _Packed(frameworks.to_value(column))
    except UnsupportedError:
        return column


def _in_torch_worker() -> bool:
    """Whether this process works for a DataLoader, which moves torch's tensors through shared memory by itself."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and data.get_worker_info() is not None


def _unpacked(
    columns: dict[str, Any],
    present: dict[str, Array],
    features: dict[str, tuple[Feature, int]],
    records: int,
    lengths: dict[str, Array],
) -> Batch:
    whole = {
        name: frameworks.from_value(column.value, "original", "original") if isinstance(column, _Packed) else column
        for name, column in columns.items()
    }
    return Batch(whole, present, features, records, lengths)


# ---- cells of a DataFrame ----------------------------------------------------------


def _cells(name: str, column: Any, feature: Feature | None, present: Array | None) -> Array | list[Any]:
    """What a DataFrame's column is made of: an array of numbers, or a list with an object for each record."""
    value = column if isinstance(column, np.ndarray) else frameworks.to_value(column)
    if isinstance(value, Tensor):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        return value if value.ndim == 1 and value.dtype.kind in "biufc" else list(value)
    if isinstance(value, Sparse):
        raise UnsupportedError(f"column {name!r} is sparse, which is not cells of a DataFrame", tensor=name)
    if feature is not None and feature.dtype == "text":  # TensorFlow's strings don't tell
        value = _as_text(value)
    cells: list[Any] = value.to_list() if isinstance(value, Ragged) else value.tolist()
    if feature is None or present is None or feature.default is not None:
        return cells
    if feature.shape == () and isinstance(value, Ragged) and len(value.splits) == 1:
        return [row[0] if row else None for row in cells]
    return [row if has else None for row, has in zip(cells, present.tolist(), strict=True)]


def _as_text(value: Strings | Ragged) -> Strings | Ragged:
    strings = value if isinstance(value, Strings) else value.values
    if not isinstance(strings, Strings) or strings.encoding == "utf-8":
        return value
    text = Strings(strings.shape, strings.offsets, strings.data, "utf-8")
    return text if isinstance(value, Strings) else Ragged(text, value.splits, value.shapes)
