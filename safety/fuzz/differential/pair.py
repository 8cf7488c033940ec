"""What a pair of readers is: ours and another library's, of one format."""

from __future__ import annotations

import os
import tempfile
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).parents[3]
FOLDER = "DIFFERENTIAL_FOLDER"


class Pair:
    """Subclasses say how both read the same bytes. `remote` readers run in processes of their own, since they may
    crash; `theirs` must import its library by itself, so that our process stays without it."""

    name: str
    package: str  # whose version counts
    words: str  # the two calls that are compared
    remote = False
    ours_remote = False
    slow = False  # a start of seconds, too long for every run of the tests

    def generate(self, rng: Random) -> bytes:
        """An input: a valid one after some edits."""
        raise NotImplementedError

    def ours(self, raw: bytes) -> Any:
        raise NotImplementedError

    def theirs(self, raw: bytes) -> Any:
        raise NotImplementedError

    @cached_property
    def folder(self) -> Path:
        """For files that a reader wants by their path. A peer's is its parent's, who outlives it and clears it away."""
        given = os.environ.get(FOLDER)
        if given:
            return Path(given)
        self._folder = tempfile.TemporaryDirectory(prefix="differential-")
        return Path(self._folder.name)

    def close(self) -> None:
        if "_folder" in vars(self):
            self._folder.cleanup()

    def warm(self, side: str) -> None:
        """Import what reading needs, without using it yet: workers are forked from here."""

    @property
    def version(self) -> str:
        return f"{self.package} {version(self.package)}"


# name -> module and class; ordered from the fastest to the slowest.
PAIRS = {
    "safetensors": ("safetensors", "SafeTensors"),
    "npy": ("npy", "Npy"),
    "npz": ("npy", "Npz"),
    "upb-tensorproto": ("upb", "TensorProto"),
    "upb-example": ("upb", "Example"),
    "upb-sequence": ("upb", "Sequence"),
    "upb-sparse": ("upb", "SparseProto"),
    "tf-tensorproto": ("tensorflow", "TensorProto"),
    "tf-sparse": ("tensorflow", "SparseProto"),
    "tf-example": ("tensorflow", "Example"),
    "tf-sequence": ("tensorflow", "Sequence"),
    "tf-records": ("tensorflow", "Records"),
    "tf-checkpoint": ("checkpoint", "Checkpoint"),
    "arrow": ("arrow", "Ipc"),
    "arrowtensor": ("arrow", "TensorMessage"),
    "parquet": ("arrow", "Parquet"),
    "torch": ("torch", "WeightsOnly"),
    "onnx-tensor": ("onnx", "Tensor"),
    "onnx-model": ("onnx", "Model"),
    "gguf": ("gguf", "Gguf"),
}


def get(name: str) -> Pair:
    import importlib

    module, kind = PAIRS[name]
    found: Pair = getattr(importlib.import_module(f"safety.fuzz.differential.pairs.{module}"), kind)()
    found.name = name
    return found
