"""The files that the sweeps damage: several for each format, by our writers and by the libraries that own them.

Those of the libraries are in tests/corpus/sweep (make_corpus.py). Each commit sweeps the small ones,
`python -m tests.support.sweeps.run` all of them.
"""

import functools
import gzip
import io
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from tests.support.golden import OBJECTS, STORED, write
from tests.support.sweeps.golden import (
    BLOCKS,
    DEFLATER,
    FOREIGN,
    FULL_ONLY,
    INFLATER,
    LARGE,
    PIECE,
    RECORDS,
    SMALL_ONLY,
    TENSORS,
    VALID,
    Golden,
    each,
    folder_of,
    folders,
    one,
    saved,
    stamp,
    without,
)

# ---- what is written here ----------------------------------------------------------


def ragged(values: Any = (1, 2, 3, 4, 5), splits: Any = (0, 2, 2, 5)) -> tb.Ragged:
    flat = np.array(values, np.int16)
    return tb.Ragged(tb.Tensor("int16", flat.shape, flat.view(np.uint8)), (np.array(splits),))


FEW = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([1, -2], np.int8)}
WORDS = np.array(["", "Grüße", "漢字"], object)
RICH = {"w": np.arange(3, dtype=np.float16), "opt": {"lr": 0.5, 7: [1, None]}, "r": ragged(), "s": WORDS}
WIDE = {f"layer.{i}.weight": np.full((i, 5), 1 / (i + 1), np.float32) for i in range(12)} | {"words": WORDS}


def streamed(objects: list[Any], **options: Any) -> bytes:
    file = io.BytesIO()
    with tb.open(file, "w", **options) as writer:
        for obj in objects:
            writer.write(obj)
    return file.getvalue()


def frames() -> Iterator[Golden]:
    ways = ("loads", "shortcut", "lazy", "sliced", "piped")
    for name in OBJECTS:
        if name != "stream":
            yield one(name, write(name), *ways, format="tb", checked=True, small=1000)
    for name in ("table", "origin"):
        yield one(name, write(name), *ways, format="tb", checked=True, small=1000)
    yield one("rich", tb.dumps(RICH), *ways, format="tb", checked=True, small=0)
    yield one("wide", tb.dumps(WIDE, meta={"step": "7"}), *ways, format="tb", checked=True, small=0)


def compressed() -> Iterator[Golden]:
    ways = ("loads", "shortcut", "lazy", "sliced", "piped")
    for name, (_, options) in STORED.items():
        if "quantize" not in options:
            yield one(name, write(name), *ways, format="tb", checked=True, small=260)
    noise = np.random.default_rng(0).geometric(0.1, 2500).astype(np.int16)
    for codec in ("zstd", "lz4", "split+huffman", "shuffle+zstd", "delta+shuffle+huffman"):
        if codec != "split+huffman":
            yield one(f"small {codec}", tb.dumps(noise[:150], compression=codec), *ways, format="tb", checked=True)
            yield one(codec, tb.dumps(noise, compression=codec), *ways, format="tb", checked=True, small=0)


def quantized() -> Iterator[Golden]:
    ways = ("loads", "shortcut", "lazy", "sliced", "piped")
    x = np.random.default_rng(1).normal(size=(4, 60)).astype(np.float32)
    for name, (_, options) in STORED.items():
        if "quantize" in options:
            yield one(name, write(name), *ways, format="tb", checked=True)
    for kind in ("int8", "int4", "float8_e4m3fn", "bfloat16"):
        data = tb.dumps({"w": x, "b": x[0, :3]}, quantize=kind)
        yield one(kind, data, *ways, format="tb", checked=True, small=0)
    yield one("int8 zstd", tb.dumps(x, quantize="int8", compression="zstd"), *ways, format="tb", checked=True, small=0)


def streams() -> Iterator[Golden]:
    more = {"format": "tb", "checked": True, "stream": True}
    ways = ("all objects", "listed", "piped")
    yield one("small", write("stream"), *ways, **more)
    yield one("table", write("table-groups"), *ways, **more)
    yield one("many", streamed([FEW, RICH, 1.5, WORDS, *[np.arange(n) for n in range(20)]]), *ways, small=0, **more)
    yield one("zstd", streamed([np.zeros(2000, np.int32), FEW], compression="zstd"), *ways, **more)


def safetensors() -> Iterator[Golden]:
    ways = (*TENSORS, "sliced")
    yield from saved("safetensors", "safetensors", *ways)
    yield one("plain", tb.dumps(FEW, "safetensors", meta={"k": "v"}), *ways, format="safetensors")
    yield one("rich", tb.dumps(RICH, "safetensors", extended=True), *ways, format="safetensors", small=0)


def shards() -> Iterator[Golden]:
    small = folder_of(lambda at: tb.save(FEW, at / "m.safetensors", max_shard_bytes=24))
    yield from each("few", small)
    wide = {name: array for name, array in WIDE.items() if name != "words"}
    large = folder_of(lambda at: tb.save(wide, at / "m.safetensors", max_shard_bytes=500))
    yield from each("wide", large, small=0)


def npy() -> Iterator[Golden]:
    yield from saved("npy", "npy", *TENSORS, "sliced", small=200)
    for name, value in {"ragged": ragged(), "words": WORDS, "int4": tb.Tensor("int4", (3,), b"\1\2\3")}.items():
        yield one(f"{name} of ours", tb.dumps(value, "npy", name="n"), *TENSORS, format="npy", small=300)


def npz() -> Iterator[Golden]:
    more = {"format": "npz", "checked": True, "working": INFLATER}
    yield from saved("npz", "npz", *TENSORS, "sliced", small=600, checked=True, working=INFLATER)
    yield one("rich", tb.dumps(RICH, "npz"), *TENSORS, small=0, **more)
    yield one("deflated", tb.dumps({"w": np.zeros(500)}, "npz", compression="deflate"), *TENSORS, **more)


def torchfile() -> Iterator[Golden]:
    for golden in saved("torchfile", "torchfile", *TENSORS, "sliced", small=1600):
        old = golden.name.startswith("old")
        yield Golden(**vars(golden) | {"checked": not old, "small": golden.name in ("old.pt", "tensor.pt")})
    more = {"format": "torchfile", "checked": True, "small": 0}
    yield one("few of ours", tb.dumps(FEW, "torchfile"), *TENSORS, **more)
    yield one("rich", tb.dumps(RICH, "torchfile"), *TENSORS, **more)


def arrow() -> Iterator[Golden]:
    yield from saved("arrow", "arrow", *TENSORS, "sliced", small=480, working=DEFLATER)
    yield one("few of ours", tb.dumps(FEW, "arrow"), *TENSORS, format="arrow", small=0)
    yield one("rich", tb.dumps(RICH, "arrow"), *TENSORS, format="arrow", small=0)


def arrowtensor() -> Iterator[Golden]:
    yield from saved("arrowtensor", "arrowtensor", *TENSORS, "sliced")
    yield one("ours", tb.dumps(FEW["w"], "arrowtensor"), *TENSORS, format="arrowtensor")


def parquet() -> Iterator[Golden]:
    for golden in saved("parquet", "parquet", *TENSORS, small=300, working=DEFLATER):
        yield Golden(**vars(golden) | {"small": golden.name in ("words-plain.parquet", "ints-snappy.parquet")})
    yield one("few of ours", tb.dumps(FEW, "parquet"), *TENSORS, format="parquet", small=0)


def gguf() -> Iterator[Golden]:
    yield from saved("gguf", "gguf", *TENSORS, "sliced")
    large = (FOREIGN / "gguf" / "large.gguf").read_bytes()
    yield one("arrays", large, *TENSORS, format="gguf", options={"arrays": True}, small=0)


def onnx() -> Iterator[Golden]:
    yield from saved("onnx", "onnx", "loads", "lazy", "sliced")
    meta = tb.dumps(np.arange(3, dtype=np.float32), "onnx", name="w", meta={"a": "b"})
    yield one("ours", meta, "loads", "lazy", "sliced", format="onnx")


def external() -> Iterator[Golden]:
    yield from folders("onnx", opened="m.onnx", format="onnx")


def large_files() -> Iterator[Golden]:
    """Small ones, taken for large: these formats have another way for those."""
    files = {f"{name}.tb": write(name) for name in ("nested", "delta-pack", "fixed-point")}
    for name in ("npz/few.npz", "npz/few-deflated.npz", "torchfile/tensor.pt"):
        files[name.partition("/")[2]] = (FOREIGN / name).read_bytes()
    for name, data in files.items():
        format = {"tb": "tb", "npz": "npz", "pt": "torchfile"}[name.rpartition(".")[2]]
        more: dict[str, Any] = {"format": format, "opened": name, "damaged": name, "checked": True, "working": INFLATER}
        yield Golden(name, {name: data}, ("large",), small=len(data) < 480, **more)


def tensorproto() -> Iterator[Golden]:
    yield from saved("tensorproto", "tensorproto", "loads", "lazy", "sliced", small=100)
    yield one("ours", tb.dumps(FEW["w"], "tensorproto"), "loads", "lazy", format="tensorproto")


def sparseproto() -> Iterator[Golden]:
    coo = OBJECTS["coo"][0][0]
    yield one("coo", tb.dumps(coo, "sparseproto"), "loads", "lazy", format="sparseproto")
    yield one("rows", tb.dumps(coo, "sparseproto", many=True), "loads", "lazy", format="sparseproto")
    large = tb.Sparse("coo", (90, 90), (np.arange(160).reshape(80, 2) // 2,), tb.Tensor("float32", (80,), bytes(320)))
    yield one("large", tb.dumps(large, "sparseproto"), "loads", "lazy", format="sparseproto", small=0)


def protobuf() -> Iterator[Golden]:
    for name, (objects, stream) in OBJECTS.items():
        if not stream and not isinstance(objects[0], dict):
            data = tb.dumps(objects[0], "protobuf", name="n", meta={"k": "v"})
            yield one(name, data, "loads", "lazy", "sliced", format="protobuf")
    large = tb.dumps(np.zeros(3000), "protobuf", compression="zstd")
    yield one("zstd", large, "loads", "lazy", "sliced", format="protobuf", small=0)
    noise = tb.dumps(np.random.default_rng(0).normal(size=300), "protobuf")
    yield one("noise", noise, "loads", "lazy", "sliced", format="protobuf", small=0)


def delimited() -> Iterator[Golden]:
    for name in OBJECTS:
        stream, data = name == "stream", (VALID / f"{name}.pbs").read_bytes()
        ways = ("all objects", "listed") if stream else ("loads", "lazy")
        yield one(name, data, *ways, format="delimited", stream=stream, small=1000)
    yield one("wide", tb.dumps(WIDE, "delimited"), "loads", "lazy", format="delimited", small=0)


def raw() -> Iterator[Golden]:
    fields = {"a": ("bool", (3,)), "b": ("float32", (2, 2)), "c": ("int4", (3,))}
    ways = ("loads", "lazy", "sliced")
    big = {"dtype": "int16", "shape": (3, 4), "byteorder": ">", "order": "F"}
    yield one("plain", bytes(range(24)), *ways, format="raw", options={"dtype": "float32", "shape": (2, 3)})
    yield one("big-endian", bytes(range(24)), *ways, format="raw", options=big)
    yield one("fields", b"\1\0\1" + bytes(16) + b"\x0f\0\7", *ways, format="raw", options={"fields": fields})
    noise = np.random.default_rng(0).bytes(2000)
    yield one("noise", noise, *ways, format="raw", options={"dtype": "complex64", "shape": (250,)}, small=0)


def checkpoint() -> Iterator[Golden]:
    for golden in folders("checkpoint", small=170, format="checkpoint", checked=True):
        opened = "" if golden.name.startswith("folder") else "m"
        free = golden.damaged == "checkpoint"  # a text, which tells the newest of several; it has no checksum
        small = golden.small and not golden.name.startswith("folder: ckpt")
        yield Golden(**vars(golden) | {"opened": opened, "checked": not free, "small": small})
    yield from saved("checkpoint", "checkpoint", "loads", "lazy", checked=True)
    ours = folder_of(lambda at: tb.save(RICH, at / "m.ckpt"))
    yield from each("ours", ours, small=0, format="checkpoint", opened="m.ckpt", checked=True)


def savedmodel() -> Iterator[Golden]:
    yield from folders("savedmodel", small=200, checked=True)


# ---- records ------------------------------------------------------------------------


def recorded(count: int, **options: Any) -> bytes:
    file = io.BytesIO()
    with tb.RecordWriter(file, **options) as writer:
        for n in range(count):
            writer.write({"x": np.arange(n, dtype=np.float32), "label": n % 3, "word": "é" * (n % 2)})
    return file.getvalue()


def records(name: str, data: bytes, small: int, compression: str = "none", *ways: str) -> Golden:
    """With the schema of the whole file: of a shorter one, another might be inferred."""
    schema = tb.records.infer_schema(io.BytesIO(data), compression=compression)
    more: dict[str, Any] = {"checked": True, "stream": True, "working": BLOCKS + INFLATER}
    options = {"schema": schema, "compression": compression}
    if compression != "none":
        more["inflated"] = tb.verify(io.BytesIO(data), compression=compression).size
    return one(name, data, *(ways or RECORDS), small=small, options=options, **more)


def tfrecord() -> Iterator[Golden]:
    for path in sorted((FOREIGN / "tfrecord").iterdir()):
        if "-" not in path.name:
            yield records(path.name, path.read_bytes(), 0)
    yield records("ours, 2", recorded(2), 200)
    yield records("ours, 9", recorded(9), 0)


def packed_records() -> Iterator[Golden]:
    ways = ("rows", "piped rows", "kept rows", "verified")
    for path in sorted((FOREIGN / "tfrecord").iterdir()):
        compression = path.stem.partition("-")[2]
        if compression:
            yield records(path.name, path.read_bytes(), 0, compression, *ways)
    for name, count in (("gzip", 2), ("zlib", 2), ("snappy", 2), ("gzip", 12), ("snappy", 12)):
        yield records(f"ours, {name}, {count}", recorded(count, compression=name), 150, name, *ways)
    plain = gzip.compress(recorded(3)) + gzip.compress(recorded(2))
    yield records("two members", plain, 0, "gzip", *ways)


def events() -> Iterator[Golden]:
    more: dict[str, Any] = {"checked": True, "stream": True, "working": BLOCKS}
    yield from saved("events", "", "events", "scalars", "kept events", small=330, **more)


def schemas() -> Iterator[Golden]:
    spec = {
        "image": tb.records.Feature("uint8", (None, None, 3), encoding="tensorproto"),
        "label": tb.records.Feature("int64", (), default=-1),
        "words": tb.records.Feature("text", (None,)),
    }
    few = {"label": spec["label"]}
    yield one("few", tb.records.Schema(few).to_json().encode(), "schema")
    yield one(
        "several", tb.records.Schema(spec, {"frames": tb.records.Feature("float32", (4,))}).to_json().encode(), "schema"
    )
    wide = {f"feature_{n}": tb.records.Feature("float32", (n,)) for n in range(20)}
    yield one("wide", tb.records.Schema(wide).to_json().encode(), "schema", small=0)
    rows = recorded(3)
    beside = tb.records.Schema({"x": ("float32", (None,)), "label": "int64", "word": "text"}).to_json().encode()
    files = {"x.tfrecord": rows, "x.tfrecord.schema.json": beside}
    more: dict[str, Any] = {"opened": "x.tfrecord", "working": BLOCKS + PIECE}
    yield Golden("beside", files, ("path rows",), damaged="x.tfrecord.schema.json", **more)


def record_index() -> Iterator[Golden]:
    for count in (4, 60):
        # The index tells the time of the file, which whoever writes the files here sets.
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "x.tfrecord"
            path.write_bytes(recorded(count))
            stamp(path)
            tb.records.build_index(path)
            files = {file.name: file.read_bytes() for file in Path(name).iterdir()}
        more: dict[str, Any] = {"ways": ("indexed",), "opened": "x.tfrecord", "checked": True, "small": count == 4}
        more |= {"working": BLOCKS, "renewed": True}
        yield Golden(f"{count} records", files, damaged="x.tfrecord.index.tb", **more)


def manifests() -> Iterator[Golden]:
    def fill(at: Path) -> None:
        tb.save(FEW, at / "m.safetensors")
        tb.verify(at / "m.safetensors", write_manifest=True)

    more: dict[str, Any] = {"ways": ("manifest",), "opened": "m.safetensors", "checked": True, "working": PIECE}
    yield from each("few", folder_of(fill), small=500, **more)


AREAS: dict[str, Callable[[], Iterator[Golden]]] = {
    "tb": frames, "tb compressed": compressed, "tb quantized": quantized, "tb streams": streams,
    "as large files": large_files,
    "safetensors": safetensors, "safetensors shards": shards, "npy": npy, "npz": npz, "torchfile": torchfile,
    "arrow": arrow, "arrowtensor": arrowtensor, "parquet": parquet, "gguf": gguf, "onnx": onnx,
    "onnx external data": external, "sparseproto": sparseproto, "protobuf": protobuf, "tensorproto": tensorproto,
    "checkpoint": checkpoint, "savedmodel": savedmodel, "delimited": delimited, "raw": raw,
    "tfrecord": tfrecord, "tfrecord compressed": packed_records, "events": events, "schema": schemas,
    "record index": record_index, "manifest": manifests,
}  # fmt: skip


# Not a format: a reader with faults.
TRIAL = "trial"


def trial() -> Iterator[Golden]:
    yield one("two bytes", b"ok", "trial", checked=True)


@functools.cache
def goldens(area: str, small: bool) -> list[Golden]:
    """The files of an area: all, or the small ones. Those and the large ones are read in the ways that differ most."""
    if area == TRIAL:
        return list(trial())
    found = [golden for golden in AREAS[area]() if golden.small or not small]
    return [without(golden, FULL_ONLY if small else SMALL_ONLY if len(golden.data) > LARGE else ()) for golden in found]
