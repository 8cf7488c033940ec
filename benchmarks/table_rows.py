"""Rows about tables: Parquet and Arrow files read, written and converted, beside pyarrow, which we read and write with.

pyarrow is called as its documentation does. Ours checks what a file of a stranger's could lie about, and gives neutral
values; both run in the same process, with the same compression, and nothing waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import MIB, Scale, size_name
from benchmarks.timing import OURS, Contender, Line, Target
from tensorbytes import formats, opening
from tensorbytes.formats.arrow import to_table

# pyarrow's time and a fifth.
_TARGET = Target(1 / 1.2, "no more than 1.2 times pyarrow's time")
_BATCH = 65_536
_ROW_BYTES = 80  # of the table of numbers: ten columns


# ---- the tables --------------------------------------------------------------


def _numbers(rows: int, nulls: float = 0.0) -> Any:
    import pyarrow as pa

    rng = np.random.default_rng(0)
    columns = {}
    for number in range(10):
        kind = ("int64", "float64", "int32", "float32", "int16")[number % 5]
        values = (rng.standard_normal(rows) * 1000).astype(kind)
        gone = rng.random(rows) < nulls
        values[gone] = 0  # as we write it: other bytes would compress otherwise
        columns[f"{kind}_{number}"] = pa.array(values, mask=gone if nulls else None)
    return pa.table(columns)


def _strings(rows: int) -> Any:
    import pyarrow as pa

    rng = np.random.default_rng(1)
    words = np.array([f"word {number}" for number in range(1000)])
    return pa.table(
        {
            "few": pa.array(words[rng.integers(0, 20, rows)]),
            "some": pa.array(words[rng.integers(0, len(words), rows)]),
            "unique": pa.array([f"item-{number:08x}-{number * 7919 % 1000003}" for number in range(rows)]),
        }
    )


def _tokens(rows: int) -> Any:
    """Texts as tokens, of different lengths."""
    import pyarrow as pa

    rng = np.random.default_rng(2)
    splits = np.concatenate(([0], np.cumsum(rng.integers(10, 200, rows)))).astype(np.int32)
    tokens = rng.integers(0, 50_000, splits[-1], dtype=np.int32)
    return pa.table({"tokens": pa.ListArray.from_arrays(splits, tokens), "id": np.arange(rows)})


def _embeddings(rows: int) -> Any:
    import pyarrow as pa

    values = np.random.default_rng(3).standard_normal(rows * 256, dtype=np.float32)
    return pa.table({"embedding": pa.FixedSizeListArray.from_arrays(pa.array(values), 256), "id": np.arange(rows)})


def _records(rows: int) -> Any:
    """Structs, times and decimals, some of them null."""
    import pyarrow as pa

    rng = np.random.default_rng(4)
    cents = rng.integers(0, 10**9, rows)
    point = {name: pa.array(rng.standard_normal(rows), mask=rng.random(rows) < 0.1) for name in ("x", "y")}
    return pa.table(
        {
            "point": pa.StructArray.from_arrays(
                list(point.values()), list(point), mask=pa.array(rng.random(rows) < 0.1)
            ),
            "time": pa.array(cents * 1000, pa.timestamp("us", "UTC")),
            "day": pa.array((cents % 20_000).astype(np.int32), pa.date32()),
            "price": pa.array(cents).cast(pa.decimal128(20, 0)).cast(pa.decimal128(20, 2)),
        }
    )


_TABLES: dict[str, tuple[str, Callable[[int], Any]]] = {
    "numbers": ("10 columns of numbers", lambda nbytes: _numbers(nbytes // _ROW_BYTES)),
    "nulls": ("10 columns of numbers, a tenth null", lambda nbytes: _numbers(nbytes // _ROW_BYTES, 0.1)),
    "strings": ("strings", lambda nbytes: _strings(nbytes // 80)),
    "tokens": ("lists of tokens", lambda nbytes: _tokens(nbytes // 400)),
    "embeddings": ("embeddings", lambda nbytes: _embeddings(nbytes // 1024)),
    "records": ("structs, times and decimals", lambda nbytes: _records(nbytes // 80)),
}


# ---- the contenders ----------------------------------------------------------


def _read_parquet(path: str) -> Any:
    import pyarrow.parquet as parquet

    return parquet.read_table(path)


def _read_arrow(path: str) -> Any:
    import pyarrow as pa

    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).read_all()


def _map_arrow(path: str) -> Any:
    import pyarrow as pa

    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all()


def _write_parquet(table: Any, path: str) -> None:
    import pyarrow.parquet as parquet

    parquet.write_table(table, path, compression="zstd")


def _write_arrow(table: Any, path: str, compression: str | None) -> None:
    import pyarrow as pa

    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as file:
        file.write_table(table)


class _Kind(NamedTuple):
    """A kind of file: how pyarrow reads and writes it, and our options for the same."""

    words: str
    suffix: str
    read: Callable[[str], Any]
    write: Callable[[Any, str], None]
    options: dict[str, Any]


_KINDS = {
    "parquet": _Kind("Parquet", ".parquet", _read_parquet, _write_parquet, {}),
    "arrow": _Kind("Arrow", ".arrow", _read_arrow, partial(_write_arrow, compression=None), {}),
    "lz4": _Kind(
        "Arrow, lz4", ".lz4.arrow", _read_arrow, partial(_write_arrow, compression="lz4"), {"compression": "lz4"}
    ),
}


def _document(path: str) -> Any:
    """What a file holds, with its schema: what `convert` writes to another."""
    opened = opening.open_file(path, own=True)
    with opened.source:
        return next(opened.decode(lazy=False))


def _read_ours(path: str) -> Any:
    return tb.load(path, to="tensor")


def _map_ours(path: str) -> Any:
    return tb.load(path, to="tensor", mmap=True)


def _write_ours(document: Any, path: str, options: dict[str, Any]) -> None:
    format = formats.get("parquet" if path.endswith(".parquet") else "arrow")
    format.write(document, path, frozenset(), options, sync=False)


def _batches_ours(path: str) -> list[Any]:
    opened = opening.open_file(path)
    with opened.source:
        return list(opened.tables(_BATCH))


def _batches_parquet(path: str) -> list[Any]:
    import pyarrow.parquet as parquet

    with parquet.ParquetFile(path) as file:
        return list(file.iter_batches(_BATCH))


def _holds(path: str, table: Any) -> bool:
    """Whether a file holds this table, for pyarrow and for us."""
    read = _read_parquet if path.endswith(".parquet") else _read_arrow
    return bool(read(path).equals(table) and to_table(_document(path)).equals(table))


def _remove(path: str) -> Callable[[], None]:
    return lambda: Path(path).unlink(missing_ok=True)


# ---- the rows ----------------------------------------------------------------


def tables(scale: Scale, folder: Path) -> Iterator[Line]:
    nbytes = min(scale.large // 6, 40 * MIB)
    for name, (words, make) in _TABLES.items():
        table = make(nbytes)
        about = f"{words}, {size_name(nbytes)}"
        for kind, how in _KINDS.items():
            path = str(folder / f"{name}{how.suffix}")
            how.write(table, path)
            yield _reading(f"tables.{name}.{kind}.read", f"read {how.words}: {about}", table, path, how)
            yield _writing(f"tables.{name}.{kind}.write", f"write {how.words}: {about}", table, path, how)
        yield _mapping(f"tables.{name}.mapped", f"map Arrow: {about}", table, str(folder / f"{name}.arrow"))
        yield from _moving(name, about, table, folder)


def _reading(name: str, title: str, table: Any, path: str, how: _Kind) -> Line:
    everyone = [
        Contender("tensorbytes", _read_ours, path, lambda _: _holds(path, table), OURS),
        Contender("pyarrow", how.read, path, lambda got: bool(got.equals(table))),
    ]
    return Line(name, title, everyone, table.nbytes, _TARGET)


def _mapping(name: str, title: str, table: Any, path: str) -> Line:
    everyone = [
        Contender("tensorbytes", _map_ours, path, lambda got: len(got) >= table.num_columns, OURS),
        Contender("pyarrow", _map_arrow, path, lambda got: bool(got.equals(table))),
    ]
    return Line(name, title, everyone, table.nbytes, note="Nothing is read. Ours makes an object for each column.")


def _writing(name: str, title: str, table: Any, path: str, how: _Kind) -> Line:
    document = _document(path)
    mine, other = f"{path}.ours{how.suffix}", f"{path}.other{how.suffix}"
    everyone = [
        Contender(
            "tensorbytes", lambda path: _write_ours(document, path, how.options), mine,
            lambda _: _holds(mine, table), OURS, _remove(mine),
        ),
        Contender("pyarrow", lambda path: how.write(table, path), other, lambda _: True, after=_remove(other)),
    ]  # fmt: skip
    return Line(name, title, everyone, table.nbytes, _TARGET)


def _moving(name: str, about: str, table: Any, folder: Path) -> Iterator[Line]:
    """Batches of rows, and one file as another."""
    source, target = str(folder / f"{name}.parquet"), str(folder / f"{name}.moved.arrow")

    def read_and_write(path: str) -> None:
        _write_arrow(_read_parquet(source), path, None)

    def rows_of(batches: list[Any]) -> bool:
        return sum(getattr(batch, "num_rows", None) or batch.rows for batch in batches) == table.num_rows

    yield Line(
        f"tables.{name}.batches",
        f"batches of {_BATCH:,} rows out of Parquet: {about}".replace(",", " ", 1),
        [
            Contender("tensorbytes", _batches_ours, source, rows_of, OURS),
            Contender("pyarrow", _batches_parquet, source, rows_of),
        ],
        table.nbytes,
        _TARGET,
    )
    yield Line(
        f"tables.{name}.convert",
        f"convert Parquet to Arrow: {about}",
        [
            Contender(
                "tensorbytes", lambda path: tb.convert(source, path, sync=False), target,
                lambda _: bool(_read_arrow(target).equals(table)), OURS, _remove(target),
            ),
            Contender("pyarrow", read_and_write, target, lambda _: True, after=_remove(target)),
        ],
        table.nbytes,
        _TARGET,
    )  # fmt: skip
