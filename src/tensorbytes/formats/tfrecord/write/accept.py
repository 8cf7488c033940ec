"""Rows and batches as callers have them: dicts, dataclasses, DataFrames, Arrow tables and columns.

| given                                                     | taken as                                        |
| --------------------------------------------------------- | ----------------------------------------------- |
| a dict, a dataclass, a NamedTuple                         | a row                                           |
| a dict of columns, a structured array                     | columns; those of Arrow, pandas and polars      |
|                                                           | with what they lack                             |
| a list of rows                                            | columns, which some rows may lack               |
| a pandas DataFrame                                        | its columns; one without labels has no index    |
| whatever gives an Arrow stream: tables, record batches,   | its columns, whatever Arrow type they have      |
| polars DataFrames, results of queries                     |                                                 |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import frameworks
from tensorbytes.errors import Hint, UnsupportedError, UsageError
from tensorbytes.formats.tfrecord.write.encode import describe
from tensorbytes.rows import NO_MASKS, Table
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor

_NEUTRAL = (Tensor, Strings, Ragged, Sparse)
_ARROW = ("__arrow_c_stream__", "__arrow_c_array__")


class Columns(NamedTuple):
    """A batch: columns as arrays and lists, and those that came out of Arrow."""

    plain: Mapping[str, Any]
    table: Table = Table({}, 0, NO_MASKS)


def as_row(x: Any) -> Mapping[str, Any]:
    """One row."""
    if isinstance(x, Mapping):
        return x
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return {field.name: getattr(x, field.name) for field in dataclasses.fields(x)}
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return dict(zip(x._fields, x, strict=True))
    raise UsageError(f"a row must be a dict of features, a dataclass or a NamedTuple, got {describe(x)}")


def as_columns(x: Any) -> Columns:
    """Many rows."""
    if isinstance(x, Mapping):
        return _from_mapping(x)
    if isinstance(x, list | tuple) and not hasattr(x, "_fields"):
        return Columns(_from_rows(x))
    if isinstance(x, np.ndarray) and x.dtype.names and x.ndim == 1:
        return Columns({name: x[name] for name in x.dtype.names})
    if _is_pandas(x, "DataFrame"):
        return _from_mapping(_from_pandas(x))
    if any(hasattr(x, name) for name in _ARROW):
        return Columns({}, _arrow_table(x))
    raise UsageError(
        f"a batch must be a dict of columns, a list of rows, a DataFrame or an Arrow table, got {describe(x)}"
    )


def _from_mapping(x: Mapping[str, Any]) -> Columns:
    columns = {name: _from_series(column) if _is_pandas(column, "Series") else column for name, column in x.items()}
    arrow = {name: column for name, column in columns.items() if _is_arrow_column(column)}
    if not arrow:
        return Columns(columns)
    from tensorbytes.formats._arrow.write import arrow as pyarrow

    pa = pyarrow("a column of pandas, polars or Arrow")
    arrays = {name: _arrow_array(pa, name, column) for name, column in arrow.items()}
    lengths = {name: len(column) for name, column in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise UsageError(f"the columns of a batch must be of one length, got {lengths}")
    plain = {name: column for name, column in columns.items() if name not in arrow}
    return Columns(plain, _arrow_table(pa.table(arrays)))


def _arrow_array(pa: Any, name: str, column: Any) -> Any:
    try:
        if _is_pandas(column, "Series") or _is_pandas(column, "ExtensionArray"):
            return pa.array(column, from_pandas=True)
        return column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.chunked_array(column)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise UsageError(f"column {name!r} is not one of Arrow: {error}", tensor=str(name)) from None


def _from_rows(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Columns of rows; what a row lacks is None."""
    dicts = [as_row(row) for row in rows]
    names = dict.fromkeys(name for row in dicts for name in row)
    return {name: [row.get(name) for row in dicts] for name in names}


# ---- pandas -----------------------------------------------------------------


def _is_pandas(x: Any, kind: str) -> bool:
    return any(cls.__name__ == kind and cls.__module__.partition(".")[0] == "pandas" for cls in type(x).__mro__)


def _from_pandas(frame: Any) -> dict[str, Any]:
    if not frame.columns.is_unique:
        name = frame.columns[frame.columns.duplicated()][0]
        raise UsageError(f"a DataFrame with two columns named {name!r}", tensor=str(name))
    return {name: frame[name] for name in frame.columns}


def _from_series(series: Any) -> Any:
    """A column as an array, a list, or as it is, for Arrow. NaN is a number in a column of numbers."""
    if series.index.name is not None or not _is_pandas(series.index, "RangeIndex"):
        raise UnsupportedError(
            "rows of pandas with labels, which records have no place for",
            hints=[
                Hint(purpose="pass x.reset_index() to store them as a column"),
                Hint(purpose="x.reset_index(drop=True) to leave them out"),
            ],
        )
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biufc":
        return series.to_numpy()
    if series.dtype == object:
        return [None if _is_missing(item) else item for item in series]
    return series


def _is_missing(item: Any) -> bool:
    return item is None or (isinstance(item, float) and item != item) or type(item).__name__ in ("NAType", "NaTType")


# ---- Arrow ------------------------------------------------------------------


def _is_arrow_column(x: Any) -> bool:
    if type(x) in (list, np.ndarray) or isinstance(x, _NEUTRAL):
        return False
    if _is_pandas(x, "Series") or _is_pandas(x, "ExtensionArray"):
        return True
    return any(hasattr(x, name) for name in _ARROW) and frameworks.of(x) in (None, "protocol")


def _arrow_table(x: Any) -> Table:
    from tensorbytes.formats._arrow.batches import table_of_arrow
    from tensorbytes.formats._arrow.write import arrow as pyarrow

    pa = pyarrow("a batch of Arrow")
    try:
        table = x if isinstance(x, pa.Table) else pa.table(x)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise UsageError(f"a batch needs columns with names, got {type(x).__qualname__}: {error}") from None
    return table_of_arrow(table)
