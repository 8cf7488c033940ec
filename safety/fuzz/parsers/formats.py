"""The targets of the tensor formats: each decodes its argument, all of it."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from typing import Any

from safety.fuzz.parsers import sealing, seeds
from safety.fuzz.parsers.harness import LIMITS, Target, Unsound, as_numpy, chance, documents, rewritten, same
from tensorbytes import formats
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError, TensorbytesError
from tensorbytes.formats import _json, checkpoint, frame, onnx
from tensorbytes.formats._arrow import thrift
from tensorbytes.formats._checkpoint import bundle, bundle_read, sstable, v1
from tensorbytes.formats._checkpoint.bundle import BundleEntry
from tensorbytes.formats._parts import unpack
from tensorbytes.formats._safetensors import shards
from tensorbytes.formats._torch import archive as torch_archive
from tensorbytes.formats._torch import pickle_read
from tensorbytes.formats._torch import tree as torch_tree
from tensorbytes.formats._torch.pickle_values import FaultError
from tensorbytes.formats._torch.values import Storage
from tensorbytes.formats._torch.world import World
from tensorbytes.reader import StreamReader
from tensorbytes.tensor import Strings, Tensor
from tensorbytes.tree import Document, unflatten

_FIELDS = {"a": ("bool", (2,)), "b": ("float4_e2m1fn", (3,)), "c": ("int32", (1, 2))}


# ---- the native frame --------------------------------------------------------------


def _stream(data: bytes) -> None:
    """Objects one by one out of a pipe: what comes before an error is what the whole gives."""
    got: list[Any] = []
    try:
        got.extend(StreamReader(io.BytesIO(data), "tensor", None, LIMITS))
    except TensorbytesError:
        if not got:
            raise
    whole: list[Document] = []
    with contextlib.suppress(TensorbytesError):
        whole.extend(frame.FORMAT.decode(memoryview(data), LIMITS, False, {}))
    if len(whole) < len(got):
        raise Unsound(f"{len(got)} objects of a stream, {len(whole)} of the same bytes as a file")


# ---- raw bytes -----------------------------------------------------------------------

_RAW: list[dict[str, Any]] = [
    {"dtype": "bool"},
    {"dtype": "float32", "byteorder": ">"},
    {"dtype": "complex64", "shape": (2, 2), "byteorder": ">", "order": "F"},
    {"dtype": "int4"},
    {"fields": _FIELDS},
    {"dtype": "bfloat16", "shape": (3,)},
    {"fields": _FIELDS, "byteorder": ">", "order": "F"},
    {"dtype": "float8_e4m3fn", "shape": (2, 3), "order": "F"},
]


def _raw() -> Any:
    """The first byte chooses what the caller says of the others."""
    runs = [documents(formats.get("raw"), options, rewrite=0) for options in _RAW]
    return lambda data: runs[data[0] % len(runs)](data[1:]) if data else None


# ---- checkpoints -----------------------------------------------------------------------


class _Bundle(bundle_read.Bundle):
    """A checkpoint of one shard in memory: u16 length of the data, the data, the index."""

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:2], "little")
        self._data = memoryview(data)[2 : 2 + size]
        self.prefix, self.budget = "x", Budget(LIMITS, len(data))
        self.header = bundle.BundleHeader()
        self.entries, self.slices = {}, {}
        self._sizes, self._maps = {}, {0: self._data}
        self._read_index(memoryview(data)[2 + size :])
        self._check_shards()

    def _shard_size(self, entry: BundleEntry) -> int:
        if entry.shard:
            raise CorruptError("the shard is missing", at=entry.at)
        self._sizes[0] = len(self._data)
        return len(self._data)

    def lazily(self) -> dict[str, bundle_read.Found]:
        return {entry.name: self._mapped(entry) for entry in self.entries.values()}

    def _runs(self) -> Iterator[tuple[list[BundleEntry], list[Tensor | Strings]]]:
        for entry in sorted(self.stored, key=lambda entry: (entry.shard, entry.offset, entry.size)):
            yield [entry], [self.value(entry, self._data[entry.offset : entry.offset + entry.size])]


def _checkpoint(data: bytes) -> None:
    try:
        found = checkpoint._read(_Bundle(data), Budget(LIMITS, len(data)), False)
    except TensorbytesError:
        if not chance(data) & 7:
            for leaf in checkpoint._read(_Bundle(data), Budget(LIMITS, len(data)), True).leaves:
                if leaf.check is not None:
                    leaf.check()
                leaf.read()
        raise
    if not chance(data) & 3 and not same([found], [checkpoint._read(_Bundle(data), Budget(LIMITS, len(data)), True)]):
        raise Unsound("read lazily, it is something else")
    if found.leaves and chance(data) & 3 == 1:
        checkpoint._cleaned(found.leaves)
        unflatten(found.leaves, as_numpy)


def _first_format(data: bytes) -> None:
    """A checkpoint of TensorFlow's first format, which is one table."""

    def read(lazy: bool) -> Document:
        budget = Budget(LIMITS, len(data))
        return unpack(v1.read(memoryview(data), budget, lazy), budget, lazy)

    try:
        found = read(False)
    except TensorbytesError:
        if not chance(data) & 7:
            for leaf in read(True).leaves:
                leaf.read()
        raise
    if not chance(data) & 3 and not same([found], [read(True)]):
        raise Unsound("read lazily, it is something else")


def _table(data: bytes) -> None:
    items = sstable.read(memoryview(data), Budget(LIMITS, len(data)))
    keys = [item.key for item in items]
    if sorted(set(keys)) != keys:
        raise Unsound("keys that do not rise")


def _state(data: bytes) -> None:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    checkpoint._latest_name(text)


# ---- Parquet ---------------------------------------------------------------------------


def _footer(data: bytes) -> None:
    """The columns that a footer lists lie in the file, and so do their pages."""
    for group in thrift.groups(memoryview(data)):
        for chunk in group.chunks:
            if not 4 <= chunk.start <= chunk.end <= len(data) or group.rows < 0:
                raise Unsound(f"{chunk} in {len(data)} bytes")
            if min(thrift.pages(memoryview(data), chunk)) < 0:
                raise Unsound("pages of less than nothing")


# ---- torch -----------------------------------------------------------------------------


def _storage(dtype: str, key: str, location: str, count: int, view: Any) -> Storage:
    if not 0 <= count <= 64 or view is not None:
        raise FaultError("no such storage")
    size = count * torch_archive._width(dtype)
    return Storage(dtype, memoryview(bytes(range(size % 256)).ljust(size, b"\1")), location, 0, False, None)


def _pickle(data: bytes) -> None:
    """The pickle of an archive alone, with as many storages as it asks for."""
    number = chance(data)
    budget = Budget(LIMITS, len(data))
    world = World(_storage, "torch", budget)
    root, _ = pickle_read.run(data, 0, 0, world, budget)
    torch_tree.measure(root, budget)
    document = torch_tree.document(root, torch_tree.Notes(), budget, number & 3 == 1, number & 3 == 2)
    for leaf in document.leaves:
        leaf.read()
    if number & 7 == 3:
        unflatten(document.leaves, as_numpy)
    if number & 15 == 4:
        rewritten(formats.get("torchfile"), [document])


# ---- ONNX ------------------------------------------------------------------------------


@cache
def _folder() -> str:
    """A folder of a model: a file to point to, links that lead inside and outside."""
    made = tempfile.mkdtemp(prefix="fuzz-onnx-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    os.makedirs(os.path.join(made, "model", "d"))
    for place, content in (("secret", b"secret!!"), ("model/x.bin", bytes(16)), ("model/d/x.bin", bytes(8))):
        with open(os.path.join(made, place), "wb") as file:
            file.write(content)
    os.symlink("../secret", os.path.join(made, "model", "link"))
    os.symlink("..", os.path.join(made, "model", "up"))
    return os.path.join(made, "model")


def _external(data: bytes) -> None:
    """A tensor whose bytes are in a file that it names: never one outside of the folder."""
    found = onnx._decode(memoryview(data), Budget(LIMITS, len(data)), not chance(data) & 3, {}, _folder())
    for leaf in found.leaves:
        value = leaf.read()
        if isinstance(value, Tensor) and b"secret" in bytes(value.data) and b"secret" not in data:
            raise Unsound("the content of a file outside of the folder")


# ---- JSON --------------------------------------------------------------------------------


def _json_text(data: bytes) -> None:
    value = _json.parse(data, 0, "the text")
    again = _json.parse(_json.dump(value).encode(), 0, "the text")
    if repr(again) != repr(value):
        raise Unsound("written and read again, it is something else")


def _shard_index(data: bytes) -> None:
    for name in shards._places(memoryview(data)):
        if not name or "/" in name or "\\" in name or "\0" in name or name in (".", ".."):
            raise Unsound(f"a shard called {name!r}")


def _format(
    name: str, seal: Any = None, *, target: str = "", options: Any = (), rewrite: int = 16, **more: Any
) -> Target:
    made = target or name
    return Target(made, name, documents(formats.get(name), *options, rewrite=rewrite), seeds.of(made), seal, **more)


_SKIP: tuple[dict[str, str], ...] = ({}, {"objects": "skip"})
TARGETS = [
    _format("tb", sealing.frames),
    _format("tb", sealing.stored, target="tb_stored", options=({}, {"dequantize": False}), max_len=1024),
    Target("tb_stream", "tb", _stream, seeds.of("tb"), sealing.frames),
    _format("safetensors", sealing.safetensors, max_len=1024),
    Target("safetensors_index", "safetensors_index", _shard_index, seeds.of("safetensors_index")),
    _format("npy", sealing.npy, options=({}, {"bools": "any"}), max_len=640),
    _format("npz", sealing.zipped, options=_SKIP, max_len=2304),
    _format("torchfile", sealing.zipped, options=_SKIP, max_len=2048),
    _format("torchfile", target="torch_legacy", options=_SKIP, max_len=1024),
    Target("pickle", "torchfile", _pickle, seeds.of("pickle"), max_len=768, offsets=False),
    _format("arrow", rewrite=128, max_len=2048),
    _format("arrowtensor", max_len=768),
    _format("parquet", sealing.parquet, rewrite=128, max_len=2048),
    Target("parquet_footer", "parquet", _footer, seeds.of("parquet_footer"), sealing.parquet, max_len=2048),
    _format("gguf", options=({}, {"arrays": True}), max_len=768),
    _format("onnx", options=({}, {"encoding": "bytes"}, {"optional": True})),
    Target("onnx_external", "onnx", _external, seeds.of("onnx_external"), max_len=256),
    _format("sparseproto"),
    _format("protobuf"),
    _format("tensorproto"),
    _format("delimited"),
    Target(
        "checkpoint", "checkpoint", _checkpoint, seeds.of("checkpoint"), sealing.checkpoint, max_len=768, offsets=False
    ),
    Target("checkpoint_table", "checkpoint", _table, seeds.of("checkpoint_table"), sealing.table, offsets=False),
    Target("checkpoint_v1", "checkpoint", _first_format, seeds.of("checkpoint_v1"), sealing.table, offsets=False),
    Target("checkpoint_state", "checkpoint_state", _state, seeds.of("checkpoint_state"), max_len=256),
    Target("raw", "raw", _raw(), seeds.of("raw"), max_len=64),
    Target("json", "json", _json_text, seeds.of("json")),
]
