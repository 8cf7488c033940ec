"""Which modules libFuzzer sees into, for each target: the parser's own, and what it stands on.

All of the library would do as well, and take ten seconds longer to start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pkgutil import ModuleInfo, iter_modules

_WIRE = ("_wire.proto", "_wire.reference")
_TREE = ("tree", "tensor", "deferred")
_PROTO = (*_WIRE, *_TREE, "formats._tensorproto")
_RECORD = (*_PROTO, "formats._record", "formats._extension", "formats._layout", "formats._directory", "formats._table")
_STORED = ("formats._stored", "formats._quantized", "codecs", "quantization")
_PARTS = (*_TREE, "formats._parts", "formats._json")
_TORCH = (*_PARTS, "formats._torch", "formats.torchfile", "formats._zip")
_ARROW = (*_TREE, "formats._arrow", "formats._parts", "formats.arrow", "formats.parquet")
_FRAMING = (
    *_WIRE,
    "formats.tfrecord.files.framing",
    "formats.tfrecord.files.salvage",
    "formats.tfrecord.files.search",
    "formats.tfrecord.files.window",
)
_ROWS = (
    *_FRAMING,
    "formats.tfrecord.example",
    "formats.tfrecord.read",
    "formats.tfrecord.schema",
    "_wire.example_reference",
)
_MODULES: dict[str, tuple[str, ...]] = {
    "tb": (*_RECORD, "formats.frame"),
    "tb_stored": (*_RECORD, *_STORED, "formats.frame", "_wire.huffman_reference", "_wire.filters_reference"),
    "tb_stream": (*_RECORD, "formats.frame", "reader", "io.storage"),
    "safetensors": (*_PARTS, "formats.safetensors", "formats._safetensors", "formats._packed"),
    "safetensors_index": ("formats._safetensors", "formats._json"),
    "npy": (*_PARTS, "formats.npy", "formats._npy"),
    "npz": (*_PARTS, "formats.npz", "formats._npy", "formats._zip"),
    "torchfile": _TORCH,
    "torch_legacy": _TORCH,
    "pickle": _TORCH,
    "arrow": _ARROW,
    "parquet": _ARROW,
    "parquet_footer": ("formats._arrow.thrift",),
    "arrowtensor": (*_TREE, "formats.arrowtensor", "formats._arrow.flat", "formats._json"),
    "gguf": (*_TREE, "formats.gguf", "formats._gguf_values"),
    "onnx": (*_PROTO, "formats.onnx", "formats._onnx", "formats._packed", "formats._typed"),
    "onnx_external": (*_WIRE, "formats.onnx", "formats._onnx"),
    "sparseproto": (*_RECORD, "formats.sparseproto"),
    "protobuf": (*_RECORD, *_STORED, "formats.protobuf", "formats._message"),
    "tensorproto": (*_PROTO, "formats.tensorproto", "formats._typed"),
    "delimited": (*_RECORD, *_STORED, "formats.delimited", "formats._message", "formats.frame"),
    "checkpoint": (*_PROTO, *_PARTS, "formats.checkpoint", "formats._checkpoint"),
    "checkpoint_v1": (*_PROTO, *_PARTS, "formats.checkpoint", "formats._checkpoint"),
    "checkpoint_table": (*_WIRE, "formats._checkpoint"),
    "checkpoint_state": ("formats.checkpoint",),
    "raw": (*_TREE, "formats.raw", "formats._tensorproto"),
    "json": ("formats._json",),
    "records": _ROWS,
    "example": (*_WIRE, "formats.tfrecord.example"),
    "records_reference": _ROWS,
    "record_cells": (*_ROWS, *_RECORD, "formats._quantized", "quantization"),
    "events": (*_FRAMING, *_RECORD, "records.events", "records.summaries"),
    "salvage": (*_FRAMING, "_wire.salvage_reference"),
    "compressed": ("io.streams",),
    "record_index": (*_RECORD, "formats.frame", "formats.tfrecord.files.index"),
    "schema": ("formats.tfrecord.schema", "dtypes"),
    "recognition": (
        *_RECORD, *_PARTS, "opening", "foreign", "formats.safetensors", "formats.npy", "formats._npy", "formats._onnx",
        "formats.gguf", "formats._message", "formats.delimited", "formats._arrow.flat", "formats.torchfile",
    ),
    "reader": (*_RECORD, *_PARTS, "reader", "view.fragments", "view.values", "view.cells", "formats._npy"),
    "address": ("ops.addressing",),
    "manifest": ("ops.manifests",),
}  # fmt: skip


def others(name: str) -> set[str]:
    """The modules of the library that a target does not need to be seen into."""
    wanted = tuple(f"tensorbytes.{module}" for module in _MODULES[name])
    root = find_spec("tensorbytes")  # imports nothing
    assert root is not None
    found = {
        "tensorbytes",
        *(module.name for module in walk(list(root.submodule_search_locations or ()), "tensorbytes.")),
    }
    return {module for module in found if not any(module == one or module.startswith(one + ".") for one in wanted)}


def walk(places: list[str], prefix: str) -> Iterator[ModuleInfo]:
    """Every module below some folders, none of them imported."""
    for module in iter_modules(places, prefix):
        yield module
        if module.ispkg:
            yield from walk(
                [os.path.join(place, module.name.rpartition(".")[2]) for place in places], module.name + "."
            )
