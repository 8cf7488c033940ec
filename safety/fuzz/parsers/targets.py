"""Every parser of bytes from strangers, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from safety.fuzz.parsers import formats, records, structured
from safety.fuzz.parsers.harness import Target
from safety.fuzz.parsers.tokens import TOKENS

_MUTATE: dict[str, Callable[[bytes, Random], bytes]] = {
    **dict.fromkeys(("tb", "tb_stored", "tb_stream", "record_index"), structured.records),
    **dict.fromkeys(("records", "records_reference", "record_cells", "events"), structured.records),
    **dict.fromkeys(("example", "tensorproto", "sparseproto", "protobuf", "onnx", "onnx_external"), structured.proto),
    **dict.fromkeys(("json", "schema", "manifest", "safetensors_index"), structured.json),
    "delimited": structured.delimited,
    "pickle": structured.pickle,
    "safetensors": structured.safetensors,
}


def _row(target: Target) -> Target:
    return replace(target, mutate=_MUTATE.get(target.name), tokens=TOKENS.get(target.name, ()))


TARGETS: dict[str, Target] = {target.name: _row(target) for target in (*formats.TARGETS, *records.TARGETS)}
