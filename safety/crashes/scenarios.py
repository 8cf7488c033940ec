"""Every writer of the library at work, with what may be found when it is stopped."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.crashes.judging import Replacing, Reports, Scenario
from safety.crashes.streams import Recording, Sharded, Streaming
from tensorbytes import cli
from tensorbytes.formats._arrow.batches import BatchWriter
from tensorbytes.savedmodel import export

_ARROW = ("pyarrow.parquet",)
Work = Callable[[str], Any]

OLD = {"w": np.arange(30_000.0), "b": np.arange(7)}
NEW = {"w": np.arange(10_000.0) / 3, "b": np.arange(9), "more": np.arange(20_000)}
# Large pieces are written by themselves: these are three writes and more.
_COMPRESSIONS = ("none", "gzip", "zlib", "snappy")


def _at(folder: str, name: str) -> str:
    return os.path.join(folder, name)


def _value(load: Callable[[str], Any]) -> Callable[[str], bytes]:
    """What a reader sees, as bytes that can be compared."""
    return lambda folder: bytes(tb.dumps(load(folder)))


def _saved(name: str, obj: Any, format: str | None = None, **options: Any) -> Work:
    return lambda folder: tb.save(obj, _at(folder, name), format, **options)


# ---- one file -------------------------------------------------------------------


def _formats() -> Iterator[Scenario]:
    for format, name in [
        ("tb", "x.tb"),
        ("safetensors", "x.safetensors"),
        ("npz", "x.npz"),
        ("torchfile", "x.pt"),
        ("arrow", "x.arrow"),
        ("parquet", "x.parquet"),
    ]:
        modules = _ARROW if format in ("arrow", "parquet") else ()
        yield Replacing(f"save {format}", _saved(name, OLD, format), _saved(name, NEW, format), modules=modules)
    for format in ("npy", "arrowtensor", "protobuf", "tensorproto", "raw", "delimited"):
        name = f"x.{format}"
        yield Replacing(f"save {format}", _saved(name, OLD["w"], format), _saved(name, NEW["w"], format))
    yield Replacing("save new", None, _saved("x.tb", NEW))
    yield Replacing("save sync=False", _saved("x.tb", OLD), _saved("x.tb", NEW, sync=False), lasts=False)
    yield Replacing("save compressed", _saved("x.tb", OLD), _saved("x.tb", NEW, compression="zlib"))
    yield Replacing("save quantized", _saved("x.tb", OLD), _saved("x.tb", NEW, quantize="int8"))
    yield Replacing("save through a link", _linked, _saved("x.tb", NEW))
    yield Replacing("save over a mapped file", _saved("x.npy", OLD["w"]), _save_mapped)


def _linked(folder: str) -> None:
    os.mkdir(_at(folder, "far"))
    tb.save(OLD, _at(folder, "far/real.tb"))
    os.symlink("far/real.tb", _at(folder, "x.tb"))


def _save_mapped(folder: str) -> None:
    with tb.open(_at(folder, "x.npy")) as file:
        tb.save(file.entries()[0][:15_000], _at(folder, "x.npy"))


def _tables() -> Iterator[Scenario]:
    def write(name: str, rows: int, kind: str, **options: Any) -> Work:
        def work(folder: str) -> None:
            with BatchWriter(_at(folder, name), kind, **options) as writer:
                for start in range(3):
                    writer.write({"x": tb.Tensor("int64", (rows,), np.arange(start, start + rows))})

        return work

    for kind, options in (("arrow", {}), ("arrow", {"stream": True}), ("parquet", {"row_group_rows": 5000})):
        name = f"table {kind}{' stream' if options.get('stream') else ''}"
        yield Replacing(name, write("x", 100, kind, **options), write("x", 9000, kind, **options), modules=_ARROW)


# ---- several files ---------------------------------------------------------------


def _checkpoints() -> Iterator[Scenario]:
    read = _value(lambda folder: tb.load(_at(folder, "m"), "checkpoint"))
    save = _saved("m", NEW, "checkpoint")
    yield Replacing("checkpoint", _saved("m", OLD, "checkpoint"), save, read)
    yield Replacing("checkpoint new", None, save, read)
    state = _saved("m", NEW, "checkpoint", state=True)
    yield Replacing("checkpoint with its state", _saved("m", OLD, "checkpoint", state=True), state, read)
    read = _value(lambda folder: tb.load(_at(folder, "x.safetensors")))
    few: dict[str, Any] = {"max_shard_bytes": 200_000}
    many: dict[str, Any] = {"max_shard_bytes": 50_000}
    single = _saved("x.safetensors", OLD)
    new = _saved("x.safetensors", NEW, **many)
    for name, before, job in [
        ("shards to as many", _saved("x.safetensors", OLD, **few), _saved("x.safetensors", NEW, **few)),
        ("shards to more", _saved("x.safetensors", OLD, **few), new),
        ("shards to one file", _saved("x.safetensors", OLD, **few), _saved("x.safetensors", NEW)),
        ("one file to shards", single, new),
        ("shards new", None, new),
    ]:
        yield Replacing(f"safetensors {name}", before, job, read, gap=True)


def _saved_model(value: int) -> Work:
    """What save_model does once TensorFlow has written a folder: here a folder of two files."""

    def work(folder: str) -> None:
        def write(temporary: str) -> None:
            os.makedirs(_at(temporary, "variables"))
            for name in ("saved_model.pb", "variables/variables.index"):
                with open(_at(temporary, name), "wb") as file:
                    file.write(bytes([value]) * 5000)

        export.put_in_place(write, _at(folder, "model"), sync=True)

    return work


def _tools() -> Iterator[Scenario]:
    def rows(folder: str, name: str = "x.tfrecord", count: int = 300) -> None:
        with tb.RecordWriter(_at(folder, name)) as writer:
            writer.write_batch({"x": np.arange(count * 50).reshape(count, 50), "y": np.arange(count)})

    def damaged(folder: str) -> None:
        rows(folder)
        with open(_at(folder, "x.tfrecord"), "r+b") as file:
            file.seek(2000)
            file.write(b"damage")

    def sources(folder: str) -> None:
        rows(folder)
        rows(folder, "y.tfrecord", 200)
        tb.save(NEW, _at(folder, "src.tb"))

    def with_old(*paths: str) -> Work:
        def work(folder: str) -> None:
            sources(folder)
            for path in paths:
                tb.save(OLD, _at(folder, path))

        return work

    def convert(src: str, dst: str, **options: Any) -> Work:
        return lambda folder: tb.convert(_at(folder, src), _at(folder, dst), **options)

    def repair(folder: str) -> None:
        tb.repair(_at(folder, "x.tfrecord"), _at(folder, "x.tfrecord"), replace=True)

    yield Replacing("convert", with_old("y.safetensors"), convert("src.tb", "y.safetensors"))
    yield Replacing("convert and verify", with_old("y.npz"), convert("src.tb", "y.npz", verify=True))
    yield Replacing(
        "convert records to parquet", with_old("y.parquet"), convert("x.tfrecord", "y.parquet"), modules=_ARROW
    )
    yield Replacing("convert records to a stream", with_old("y.tb"), convert("x.tfrecord", "y.tb", stack=False))
    yield Replacing("convert to shards", sources, convert("x.tfrecord", "z.tfrecord", shards=3), each=True)
    yield Replacing("repair in place", damaged, repair)
    yield Replacing("index", rows, lambda folder: tb.records.build_index(_at(folder, "x.tfrecord")), lasts=False)
    yield Replacing("manifest", _both(sources, _old_manifest), _manifest)
    schema = _schema_saver
    yield Replacing("schema", schema({"x": "int64"}), schema({"x": ("float32", [3]), "t": "text"}))
    splits = [("records", "x.tfrecord", "p.tfrecord", {"shards": 3}), ("tensors", "src.tb", "p.npz", {"shards": 2})]
    splits.append(("safetensors", "src.tb", "p.safetensors", {"nbytes": 100_000}))
    for what, src, dst, options in splits:
        job = _splitter(src, dst, options)
        yield Replacing(f"split {what}", sources, job, each=True, gap=True)
        again = _splitter("y.tfrecord", dst, options) if what == "records" else None
        if again is not None:
            yield Replacing(f"split {what} again", _both(sources, again), job, each=True, gap=True)
    pair = ["x.tfrecord", "y.tfrecord"]
    yield Replacing("merge", sources, lambda folder: _merge(folder, pair), each=True)


def _merge(folder: str, names: list[str]) -> None:
    tb.merge([_at(folder, name) for name in names], _at(folder, "m.tfrecord"))


def _both(first: Work, second: Work) -> Work:
    return lambda folder: (first(folder), second(folder))


def _splitter(src: str, dst: str, options: dict[str, Any]) -> Work:
    return lambda folder: tb.split(_at(folder, src), _at(folder, dst), **options)


def _old_manifest(folder: str) -> None:
    """A manifest of other tensors, which the new one replaces."""
    tb.save(OLD, _at(folder, "old.npz"))
    tb.verify(_at(folder, "old.npz"), write_manifest=True)
    os.replace(_at(folder, "old.npz.sums.json"), _at(folder, "src.tb.sums.json"))


def _manifest(folder: str) -> None:
    tb.verify(_at(folder, "src.tb"), write_manifest=True)


def _schema_saver(columns: dict[str, Any]) -> Work:
    return lambda folder: tb.records.Schema(columns).save(_at(folder, "x.schema.json"))


# ---- records as a whole -----------------------------------------------------------


def _record_files() -> Iterator[Scenario]:
    def write(feature: str, value: Any, compression: str) -> Work:
        def work(folder: str) -> None:
            with tb.RecordWriter(_at(folder, "x.tfrecord"), compression=compression) as writer:
                for number in range(50):
                    writer.write({feature: value, "n": number})

        return work

    for compression in _COMPRESSIONS:
        new = write("y", np.arange(300), compression)
        read = _records
        yield Replacing(f"records {compression}", write("x", "text", compression), new, read)


def _records(folder: str) -> list[bytes]:
    """The records, which must be readable by the schema that is there; without one, text is bytes."""
    with tb.open_records(_at(folder, "x.tfrecord"), threads=1) as found:
        assert len(list(found)) == 50
        return list(found.payloads())


# ---- commands ----------------------------------------------------------------------


def _command(*words: str) -> Work:
    """A command; a file of the folder is written with an @ before its name."""

    def work(folder: str) -> None:
        argv = [_at(folder, word[1:]) if word.startswith("@") else word for word in words]
        told = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = cli.main(argv)
        if code == 1:
            return  # the command's way to say that there was damage
        if code:
            raise OSError(0, f"exit code {code}: {told.getvalue()}")

    return work


def _commands() -> Iterator[Scenario]:
    sources = next(scenario for scenario in _tools() if scenario.name == "merge").before
    damaged = next(scenario for scenario in _tools() if scenario.name == "repair in place").before
    old = _both(sources, _saved("y.npz", OLD))
    yield Replacing("tb convert", old, _command("convert", "--force", "@src.tb", "@y.npz"))
    yield Replacing("tb repair", damaged, _command("repair", "--in-place", "@x.tfrecord"))
    yield Replacing("tb index", sources, _command("index", "@x.tfrecord"), lasts=False)
    yield Replacing("tb verify", sources, _command("verify", "-f", "--write-manifest", "@src.tb"))
    yield Replacing("tb schema", sources, _command("schema", "-f", "@x.tfrecord", "-o", "@s.json"))
    split = _command("split", "-f", "--shards", "2", "@x.tfrecord", "@p.tfrecord")
    yield Replacing("tb split", sources, split, each=True, gap=True)
    merge = _command("merge", "-f", "@x.tfrecord", "@y.tfrecord", "@m.tfrecord")
    yield Replacing("tb merge", sources, merge, each=True)


def scenarios() -> list[Scenario]:
    """All of them, by name."""
    found: list[Scenario] = [*_formats(), *_tables(), *_checkpoints(), *_tools(), *_record_files(), *_commands()]
    found.append(Replacing("saved model", _saved_model(1), _saved_model(2), gap=False))
    for start in ("new", "over", "append", "torn"):
        found.append(Streaming(f"stream {start}", start))
        for compression in _COMPRESSIONS:
            if compression == "zlib" and start in ("append", "torn"):
                continue  # which is refused
            found.append(Recording(f"records {compression} {start}", start, compression=compression))
    found += [Sharded(f"record shards {start}", start) for start in ("new", "over")]
    found.append(Sharded("record shards gzip", "new", compression="gzip"))
    return found


# One of each way to write: what every change is tried on.
CORE = (
    "save tb",
    "save new",
    "save through a link",
    "table arrow",
    "checkpoint with its state",
    "safetensors shards to as many",
    "safetensors one file to shards",
    "convert and verify",
    "repair in place",
    "schema",
    "split records again",
    "merge",
    "records gzip",
    "tb convert",
    "saved model",
    "stream new",
    "stream over",
    "stream torn",
    "records none append",
    "records gzip torn",
    "records snappy over",
    "record shards over",
)


# ---- writers that are wrong ---------------------------------------------------------


class _Hasty(Streaming):
    """Says that objects are safe before they are."""

    def job(self, folder: str, reports: Reports) -> None:
        reports.synced(3)
        super().job(folder, reports)


def controls() -> list[Scenario]:
    """Writers as they are often written: whoever finds nothing wrong with them is blind."""

    def in_place(folder: str) -> None:
        with open(_at(folder, "x"), "wb") as file:
            file.write(b"new" * 1000)

    def unsynced(folder: str) -> None:
        with open(_at(folder, "x.tmp"), "wb") as file:
            file.write(b"new" * 1000)
        os.replace(_at(folder, "x.tmp"), _at(folder, "x"))

    def old(folder: str) -> None:
        with open(_at(folder, "x"), "wb") as file:
            file.write(b"old" * 2000)

    return [
        Replacing("written in place", old, in_place),
        Replacing("renamed unsynced", old, unsynced),
        _Hasty("acknowledged too early", "new"),
    ]
