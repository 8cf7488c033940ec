"""Rows about TFRecord files of Examples: columns, rows, writing, memory.

The files are written by TensorFlow from data that is the same in every run.
Each reader counts the records of all it is handed; before it is timed, all values
it delivers are compared with those that went in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks import limit, record_data, record_tensorflow
from benchmarks import record_peers as peers
from benchmarks.record_data import Files, Sample, same_tables
from benchmarks.record_peers import Reader
from benchmarks.record_tensorflow import Trial
from benchmarks.timing import FLOOR, OURS, PEER, Contender, Line, Target
from tensorbytes import _wire

BATCH = 4096
SHARDS = 8
MEMORY_LIMIT = 300_000_000


@dataclass(frozen=True)
class RecordScale:
    """How much data the rows use. All counts of records are even: files are cut into halves."""

    records: int = 200_000
    wide: int = 50_000
    tokens: int = 50_000
    images: int = 2_000
    sequences: int = 20_000
    written: int = 200_000
    stream_bytes: int = 2_000_000_000
    trial: Trial = Trial()  # noqa: RUF009


QUICK_SCALE = RecordScale(400, 100, 100, 4, 60, 300, 500_000, Trial((512,), 0, 1))


@dataclass(frozen=True)
class RecordLine(Line):
    """A comparison over `records` records."""

    records: int = 0


def _amount(count: int, what: str) -> str:
    return f"{f'{count:,}'.replace(',', ' ')} {what}"


# ---- reading ----------------------------------------------------------------


def records(scale: RecordScale, folder: Path) -> Iterator[Line]:
    sample = record_data.examples(scale.records)
    what, wire = "Examples of 4 features", list(record_data.serialized(sample))
    files = record_data.write_files(wire, folder)
    ours = peers.ours(BATCH, sample.spec.schema())
    tensorflow = record_tensorflow.reader(files, sample.spec, scale.trial)
    rows = [peers.tfrecord_rows(sample.spec), peers.protobuf_rows(sample.spec)]
    columns = [peers.in_batches(reader, BATCH) for reader in rows]
    yield _reading("records", what, sample, files, [ours, tensorflow, *columns], 12)
    yield _reading(
        "records.inferred",
        f"{what}, no schema given",
        sample,
        files,
        [peers.ours(BATCH), tensorflow],
        12,
        "Ours infers the schema. TensorFlow can't, and has it given here too.",
    )
    yield RecordLine(
        "records.rows",
        f"rows of {_amount(sample.count, what)}",
        [reader.contender(files.whole, sample) for reader in (peers.our_rows(), *rows)],
        os.path.getsize(files.whole),
        Target(40, "40 times tfrecord", ("tfrecord",)),
        note="A dict for each record.",
        records=sample.count,
    )
    zipped = record_data.write_files(wire, folder, "GZIP")
    tensorflow = record_tensorflow.reader(zipped, sample.spec, scale.trial)
    yield _reading("records.gzip", f"{what}, gzip", sample, zipped, [ours, tensorflow], 2.2)


def wide(scale: RecordScale, folder: Path) -> Iterator[Line]:
    yield _columns("wide", "Examples of 40 features", record_data.wide(scale.wide), scale.trial, folder, times=6)


def tokens(scale: RecordScale, folder: Path) -> Iterator[Line]:
    yield _columns(
        "tokens", "lists of 100 to 500 int64", record_data.tokens(scale.tokens), scale.trial, folder, times=6
    )


def images(scale: RecordScale, folder: Path) -> Iterator[Line]:
    sample, trial = record_data.images(scale.images), scale.trial
    smaller = replace(trial, batches=tuple(size // 16 for size in trial.batches))
    yield _columns("images", "images of 100 KB", sample, smaller, folder, batch=64, times=3)


def sequences(scale: RecordScale, folder: Path) -> Iterator[Line]:
    what, sample = f"SequenceExamples of {record_data.STEPS} steps", record_data.sequences(scale.sequences)
    more = replace(scale.trial, batches=(128, *scale.trial.batches))
    yield _columns("sequences", what, sample, more, folder, times=7)


# ---- the same, made harder ---------------------------------------------------


def harder(scale: RecordScale, folder: Path) -> Iterator[Line]:
    """What slows a reader down that counts on the usual, beside the usual."""
    rng = np.random.default_rng(6)
    sample = record_data.examples(scale.records)
    wire = list(record_data.serialized(sample))
    parts = [record_data.pieces_of(record) if number % 1000 == 0 else [] for number, record in enumerate(wire)]
    odd = [record_data.put_together(p[:2], p[2:]) if p else record for p, record in zip(parts, wire, strict=True)]
    schema = sample.spec.schema()
    files = _both_files(folder, "examples", wire, odd)
    yield _harder("odd", "one in a thousand in two pieces", sample, files, peers.ours(BATCH, schema))
    skipping = peers.ours(BATCH, schema, on_corrupt="skip")
    yield _harder("skip", "on_corrupt='skip'", sample, (files[0], files[0]), skipping)
    sample = record_data.wide(scale.wide)
    wire = list(record_data.serialized(sample))
    mixed = [record_data.put_together([*rng.permutation(np.array(record_data.pieces_of(r), object))]) for r in wire]
    files = _both_files(folder, "wide", wire, mixed)
    ours = peers.ours(BATCH, sample.spec.schema())
    yield _harder("order", "of 40 features, in another order in each", sample, files, ours)
    two = ["score_3", "tags_1"]
    fewer = replace(sample, table={name: sample.table[name] for name in two})
    chosen = peers.ours(BATCH, sample.spec.schema(), columns=two)
    yield _harder("two", "of 40 features, two of them", fewer, (files[0], files[0]), chosen, sample)


def _both_files(folder: Path, name: str, *records: list[bytes]) -> tuple[str, str]:
    found = []
    for kind, each in zip(("plain", "harder"), records, strict=True):
        (folder / f"{name}-{kind}").mkdir(exist_ok=True)
        found.append(record_data.write_files(each, folder / f"{name}-{kind}").whole)
    return found[0], found[1]


def _harder(
    name: str, what: str, sample: Sample, files: tuple[str, str], reader: Reader, whole: Sample | None = None
) -> RecordLine:
    """files: the usual one, and the one that the reader reads. whole: all that the usual one holds."""
    whole = whole or sample
    usual = peers.ours(BATCH, whole.spec.schema(), "the usual", PEER)
    return RecordLine(
        f"harder.{name}",
        f"columns of {_amount(sample.count, f'Examples, {what}')}",
        [reader.contender(files[1], sample), usual.contender(files[0], whole)],
        os.path.getsize(files[1]),
        Target(1 / 1.5, "within 1.5 times of the usual", ("the usual",)),
        records=sample.count,
    )


def random(scale: RecordScale, folder: Path) -> Iterator[Line]:
    """Records by number, as shuffled loading asks for them: of one file, of several, and of one that no cache holds."""
    sample = record_data.examples(scale.records)
    wire = list(record_data.serialized(sample))
    path, expected = record_data.write_files(wire, folder).whole, sample.table["id"][0]
    yield _random("random", "of a file", sample, [path], expected)
    count = SHARDS if len(wire) >= SHARDS else 1
    shards = [str(folder / f"shard-{number}.tfrecord") for number in range(count)]
    cuts = np.linspace(0, len(wire), count + 1).astype(int).tolist()
    for shard, start, end in zip(shards, cuts[:-1], cuts[1:], strict=True):
        Path(shard).write_bytes(_wire.frames([[record] for record in wire[start:end]]))
    yield _random("random.shards", f"of {count} files", sample, shards, expected)
    large = str(folder / "large.tfrecord")
    written = _write_large(large, sample, scale.stream_bytes)
    size = f"{os.path.getsize(large) / 1e9:.3g} GB"
    yield _random("random.large", f"of a file of {size}", sample, [large], np.resize(expected, written))


def _random(name: str, what: str, sample: Sample, paths: list[str], expected: Any) -> RecordLine:
    import tensorbytes as tb

    records = tb.open_records(paths, schema=sample.spec.schema())
    size, count = 256, max(min(len(records) // 256, 100), 1)
    numbers = np.random.default_rng(9).integers(0, len(records), (count, size))

    def ours(wanted: Any) -> Any:
        return [records[some] for some in wanted]

    def ours_right(batches: Any) -> bool:
        return all(map(np.array_equal, (batch["id"] for batch in batches), expected[numbers]))

    floor = peers.random_floor(paths, numbers)
    return RecordLine(
        name,
        f"{_amount(count, f'random batches of {size} records {what}, by number')}",
        [Contender("tensorbytes", ours, numbers, ours_right, OURS), floor],
        sum(length for some in floor.argument for _, _, length in some),
        note="The files are open and in the page cache, their index is built. The goal is a million records a second.",
        records=count * size,
    )


def _columns(
    name: str,
    what: str,
    sample: Sample,
    trial: Trial,
    folder: Path,
    batch: int = BATCH,
    times: float | None = None,
) -> RecordLine:
    files = record_data.write_files(list(record_data.serialized(sample)), folder)
    readers = [peers.ours(batch, sample.spec.schema()), record_tensorflow.reader(files, sample.spec, trial)]
    return _reading(name, what, sample, files, readers, times)


def _reading(
    name: str, what: str, sample: Sample, files: Files, readers: list[Reader], times: float | None, note: str = ""
) -> RecordLine:
    """Readers of columns beside the floor. `times`: how many times as fast as TensorFlow we shall be."""
    contenders = [reader.contender(files.whole, sample) for reader in readers]
    if not files.compression:
        contenders.append(limit.contender(files.whole, sample))
    return RecordLine(
        name,
        f"columns of {_amount(sample.count, what)}",
        [*contenders, peers.floor(files.whole, sample.count)],
        os.path.getsize(files.whole),
        None if times is None else Target(times, f"{times:g} times TensorFlow", ("TensorFlow",)),
        note=note,
        records=sample.count,
    )


# ---- writing ----------------------------------------------------------------

Write: TypeAlias = Callable[[Any, str], None]


def writing(scale: RecordScale, folder: Path) -> Iterator[Line]:
    sample = record_data.examples(scale.written)
    columns, schema = _as_columns(sample), sample.spec.schema()
    nbytes = sum(16 + len(record) for record in record_data.serialized(sample))
    for name, ours, data, times in (
        ("columns", partial(peers.write_columns, schema), columns, 50),
        ("rows", partial(peers.write_rows, schema), list(_as_rows(columns)), 15),
    ):
        others = {peer: _in_a_loop(write) for peer, write in peers.writers().items()}
        yield RecordLine(
            f"write.{name}",
            f"write {name} of {_amount(sample.count, 'Examples of 4 features')}",
            [
                _writing("tensorbytes", ours, data, sample, folder, OURS),
                *(_writing(peer, write, data, sample, folder) for peer, write in others.items()),
            ],
            nbytes,
            Target(times, f"{times} times TensorFlow", ("TensorFlow",)),
            note="One fsync at the end, for all. TensorFlow documents building Features; filling in place is quicker.",
            records=sample.count,
        )


def _writing(name: str, write: Write, data: Any, sample: Sample, folder: Path, role: str = PEER) -> Contender:
    path = str(folder / name)

    def right(_: Any) -> bool:
        reader = peers.protobuf_rows(sample.spec)
        return same_tables(reader.table(list(reader.read(path))), sample.table)

    def remove() -> None:
        for file in folder.glob(f"{name}*"):  # ours has its schema beside it
            file.unlink()

    return Contender(name, lambda data: write(data, path), data, right, role, remove)


def _as_columns(sample: Sample) -> dict[str, Any]:
    """What a user has at hand: arrays, and a list of bytes."""
    table, count = sample.table, sample.count
    path = record_data.values_of(table["path"], count)
    return {
        "embedding": table["embedding"][0].reshape(count, -1),
        "id": table["id"][0],
        "label": table["label"][0],
        "path": [path(i).tobytes() for i in range(count)],
    }


def _as_rows(data: Any) -> Iterator[dict[str, Any]]:
    """Rows as they are; columns row by row."""
    if isinstance(data, list):
        yield from data
        return
    parts = [data["embedding"], data["id"].tolist(), data["label"].tolist(), data["path"]]
    for embedding, number, label, path in zip(*parts, strict=True):
        yield {"embedding": embedding, "id": number, "label": label, "path": path}


def _in_a_loop(write: Callable[[Iterable[dict[str, Any]], str], None]) -> Write:
    """By a library that takes rows alone, and does not sync."""

    def synced(data: Any, path: str) -> None:
        write(_as_rows(data), path)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    return synced


# ---- memory -----------------------------------------------------------------


def memory(scale: RecordScale, folder: Path) -> Iterator[Line]:
    """The peak of a process that does nothing but stream a large file."""
    path = str(folder / "large.tfrecord")
    count = _write_large(path, record_data.examples(scale.records), scale.stream_bytes)

    def peak(arguments: list[str]) -> float:
        command = [sys.executable, "-c", "from benchmarks.record_rows import print_peak; print_peak()", *arguments]
        root = Path(__file__).parents[1]
        return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout)

    def contender(name: str, function: Callable[[Any], float], argument: Any, role: str) -> Contender:
        return Contender(name, function, argument, lambda found: found > 0, role)

    limit = "the limit"
    yield RecordLine(
        "memory",
        f"peak memory of streaming {os.path.getsize(path) / 1e9:.3g} GB in batches of {BATCH}",
        [
            contender("tensorbytes", peak, [path, str(count)], OURS),
            contender("before reading", peak, [], FLOOR),
            contender(limit, float, MEMORY_LIMIT, FLOOR),
        ],
        target=Target(1, f"under {MEMORY_LIMIT / 1e6:g} MB", (limit,)),
        reports_seconds=True,
        note="All memory of a process, the interpreter's too.",
        records=count,
        unit="bytes",
    )


def _write_large(path: str, sample: Sample, size: int) -> int:
    """The sample again and again; returns the number of records."""
    import tensorbytes as tb

    columns, count = _as_columns(sample), 0
    with tb.RecordWriter(path, schema=sample.spec.schema()) as file:
        while count == 0 or os.path.getsize(path) < size:
            file.write_batch(columns)
            file.flush()
            count += sample.count
    return count


def print_peak() -> None:
    """In a process of its own: stream the file that is named and tell the most memory that was held."""
    sample = record_data.examples(0)
    if len(sys.argv) > 1:
        path, count = sys.argv[1], int(sys.argv[2])
        found = peers.ours(BATCH, sample.spec.schema()).consume(path)
        if found != count:
            raise ValueError(f"{path}: {found} records instead of {count}")
    print(_peak_memory())


def _peak_memory() -> int:
    """In bytes. ru_maxrss of a child begins with what its parent held when it was started: a last resort."""
    status = Path("/proc/self/status")
    if status.exists():
        fields = dict(text.split(":", 1) for text in status.read_text().splitlines())
        return 1024 * int(fields["VmHWM"].split()[0])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
