"""The same for files that are read by their paths: records with their schemas, events, checkpoints."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from tests.support.wire_bytes import field, framed, header, number, overlong

# Writes a file of about so many bytes into a folder; gives its path.
Make = Callable[[Path, int], Path]


def _feature(name: str, values: bytes = b"") -> bytes:
    return field(1, field(1, name) + field(2, field(3, field(1, values) if values else b"")))


def _example(*features: bytes) -> bytes:
    return field(1, b"".join(features))


def _put(folder: Path, raw: bytes, name: str = "x.tfrecord") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(raw, 9) if name.endswith(".gz") else raw)
    return path


def cells(folder: Path, size: int) -> Path:
    """One record with many features, and many records without: each has a place for each feature."""
    wide = _example(*(_feature(f"{n:x}", b"\x01") for n in range(min(size >> 5, 2048))))
    return _put(folder, framed(wide) + framed(_example()) * (size >> 6), "x.tfrecord.gz")


def features(folder: Path, size: int) -> Path:
    wide = _example(*(_feature(f"{n:06x}", b"\x01") for n in range(size // 18)))
    return _put(folder, framed(wide))


def repeated_features(folder: Path, size: int) -> Path:
    """One name over and over, the last of which counts."""
    return _put(folder, framed(_example(_feature("a", b"\x01") * (size // 11))))


def odd_steps(folder: Path, size: int) -> Path:
    """Very many empty steps of a feature list, in a form that only the general parser takes."""
    steps = field(1, b"") * (size // 2)
    lists = field(1, field(1, "a") + field(2, steps))
    return _put(folder, framed(b"\x12" + overlong(len(lists), 5) + lists))


def odd_strings(folder: Path, size: int) -> Path:
    values = b"\x0a" + overlong(2, 2) + b"ab"
    raw = field(1, field(1, "a") + field(2, field(1, values * (size // 5))))
    return _put(folder, framed(_example(raw)))


def strings(folder: Path, size: int) -> Path:
    one = _example(field(1, field(1, "a") + field(2, field(1, field(1, b"ab") * 64))))
    return _put(folder, framed(one) * (size // (len(one) + 16)))


def integers(folder: Path, size: int) -> Path:
    one = _example(_feature("a", b"\x01" * 1000))
    return _put(folder, framed(one) * (size // (len(one) + 16)))


def large_record(folder: Path, size: int) -> Path:
    """One record of many megabytes, of few bytes once it is compressed."""
    return _put(folder, framed(_example(_feature("a", b"\x01" * (size << 5)))), "x.tfrecord.gz")


def empty_records(folder: Path, size: int) -> Path:
    return _put(folder, framed(_example()) * (size // 16))


def tensors(folder: Path, size: int) -> Path:
    """Tensors that claim many values, one in each record."""
    claim = number(1, 1) + field(2, field(2, number(1, 1 << 20)))
    one = _example(field(1, field(1, "a") + field(2, field(1, field(1, claim)))))
    path = _put(folder, framed(one) * (size // (len(one) + 16)))
    return _schema(path, {"a": {"dtype": "float32", "shape": [1 << 20], "encoding": "tensorproto"}})


def many_records(folder: Path, size: int) -> Path:
    """Records of nothing, of which deflate makes a thousandth."""
    return _put(folder, framed(b"") * (size << 1), "x.tfrecord.gz")


def planted_index(folder: Path, size: int) -> Path:
    """An index beside a file of one record, which claims very many in few bytes."""
    import numpy as np

    import tensorbytes as tb

    path = _put(folder, framed(_example()), "x.tfrecord.gz")
    status = path.stat()
    meta = {"tensorbytes.index": "1", "compression": "gzip"}
    meta |= {"size": str(status.st_size), "mtime_ns": str(status.st_mtime_ns)}
    tb.save(np.zeros(size << 3, np.int64), f"{path}.index.tb", meta=meta, compression="zstd")
    return path


def claimed_record(folder: Path, size: int) -> Path:
    """A record that claims a tebibyte, of which there are some megabytes of zeros."""
    return _put(folder, framed(_example()) + header(1 << 40) + bytes(size << 6), "x.tfrecord.gz")


def claims_in_claims(folder: Path, size: int) -> Path:
    """A record that was damaged and claims most of what there is, of further claims."""
    inner = (header(size << 5) + bytes(100)) * 1000
    return _put(folder, header((size << 6) - (size << 4)) + inner + bytes(size << 6), "x.tfrecord.gz")


def lost_header(folder: Path, size: int) -> Path:
    return _put(folder, b"\xff" * 12 + b"\x01" * (size << 6), "x.tfrecord.gz")


def damaged_records(folder: Path, size: int) -> Path:
    """Records that were all damaged: each is reported."""
    one = bytearray(framed(b"a"))
    one[-1] ^= 1
    return _put(folder, framed(_example()) + bytes(one) * (size >> 1), "x.tfrecord.gz")


def _schema(path: Path, features: object) -> Path:
    text = json.dumps({"features": features, "tensorbytes.schema": 1})
    path.with_name(f"{path.name}.schema.json").write_text(text)
    return path


def default(folder: Path, size: int) -> Path:
    """A schema beside the file whose default takes megabytes in each record that lacks the feature."""
    path = _put(folder, framed(_example()) * 16)
    return _schema(path, {"x": {"dtype": "float32", "shape": [size << 4], "optional": True, "default": 0.0}})


def text_default(folder: Path, size: int) -> Path:
    path = _put(folder, framed(_example()) * 16)
    return _schema(path, {"x": {"dtype": "text", "shape": [size], "optional": True, "default": "ab"}})


def schema_lists(folder: Path, size: int) -> Path:
    path = _put(folder, framed(_example()))
    text = '{"features":{"x":{"dtype":"float32","shape":[' + ",".join(["[]"] * (size // 3)) + "]}}}"
    path.with_name(f"{path.name}.schema.json").write_text(text)
    return path


def schema_features(folder: Path, size: int) -> Path:
    path = _put(folder, framed(_example()))
    return _schema(path, {f"{n:x}": {"dtype": "text", "optional": True} for n in range(size // 45)})


def event_fields(folder: Path, size: int) -> Path:
    return _put(folder, framed(number(2, 1) * (size // 2)), "events.out.tfevents.1")


def event_values(folder: Path, size: int) -> Path:
    return _put(folder, framed(field(5, field(1, b"") * (size // 2))), "events.out.tfevents.1")


def event_records(folder: Path, size: int) -> Path:
    return _put(folder, framed(number(2, 1)) * (size // 18), "events.out.tfevents.1")


def checkpoint(folder: Path, size: int) -> Path:
    import numpy as np

    import tensorbytes as tb

    tb.save({f"{n:x}": np.zeros((), np.int8) for n in range(size // 40)}, folder / "model", "checkpoint")
    return folder / "model"


def checkpoint_keys(folder: Path, size: int) -> Path:
    """Names that are one long name, but for their ends: a table stores what differs."""
    import numpy as np

    import tensorbytes as tb

    long = "k" * (size >> 6)
    tb.save({f"{long}{n:05x}": np.zeros((), np.int8) for n in range(size >> 10)}, folder / "model", "checkpoint")
    return folder / "model"


READS: dict[str, tuple[Make, ...]] = {
    "rows": (
        cells, features, repeated_features, odd_steps, odd_strings, strings, integers, large_record, empty_records,
        tensors, default, text_default, schema_lists, schema_features,
    ),
    "batches": (cells, features, integers, large_record, tensors, default, text_default),
    "to_arrow": (cells, default),
    "len": (many_records, planted_index, claimed_record),
    "one": (many_records, planted_index, large_record),
    "verify": (many_records, claimed_record, claims_in_claims, lost_header, damaged_records),
    "skip": (damaged_records, claimed_record),
    "infer_schema": (cells, features, repeated_features, odd_steps),
    "inspect": (cells, features, default),
    "events": (event_fields, event_values, event_records),
    "checkpoint": (checkpoint, checkpoint_keys),
}  # fmt: skip
