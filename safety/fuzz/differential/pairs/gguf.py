"""The gguf package's GGUFReader."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.fuzz.differential.arrays import neutral, plain
from safety.fuzz.differential.mutate import damage, often_one
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair


@cache
def _seed(which: int) -> bytes:
    from gguf import GGMLQuantizationType, GGUFWriter

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.gguf"
        writer = GGUFWriter(path, "llama")
        if which & 1:
            writer.add_uint32("a.n", 3)
            writer.add_float32("a.f", 0.5)
            writer.add_string("a.s", "é")
            writer.add_array("a.l", [1, 2, 3])
            writer.add_bool("a.b", True)
        dtype = ["<f4", "<f2", "<i4", "<f8", "i1"][which % 5]
        writer.add_tensor("w", np.arange(6, dtype=dtype).reshape(2, 3))
        if which & 2:
            writer.add_tensor("v", np.arange(4, dtype=np.float32))
        if which & 4:
            writer.add_tensor("q", np.zeros((2, 34), np.uint8), raw_dtype=GGMLQuantizationType.Q8_0)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


class Gguf(Pair):
    package = "gguf"
    words = "`GGUFReader`, each tensor"
    remote = True  # it counts as far as a file tells it to

    def warm(self, side: str) -> None:
        import gguf  # noqa: F401

    def generate(self, rng: Random) -> bytes:
        raw = _seed(rng.randrange(40) % 20)
        for _ in range(often_one(rng)):
            raw = damage(rng, raw)
        return raw

    def ours(self, raw: bytes) -> Any:
        found = tb.loads(raw, "gguf", to="tensor", limits=LIMITS)
        return {name: neutral(value) for name, value in found.items()}

    def theirs(self, raw: bytes) -> Any:
        from gguf import GGUFReader

        (self.folder / "x.gguf").write_bytes(raw)
        return {tensor.name: plain(tensor.data) for tensor in GGUFReader(self.folder / "x.gguf").tensors}
