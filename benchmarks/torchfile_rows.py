"""Rows about the files of torch.save, beside torch.load(weights_only=True).

Every file is written by torch. Read whole, ours checks the CRC-32 of every storage, which
torch does not. Mapped, neither side reads content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import Scale, random_floats, same, size_name
from benchmarks.timing import OURS, Contender, Line, Target

_PEER = "torch.load"
_SLICE_BYTES = 4096


def torchfile(scale: Scale, folder: Path) -> Iterator[Line]:
    import torch

    each = random_floats(scale.dict_tensors * scale.dict_each).reshape(scale.dict_tensors, -1, 256)
    x = {f"layer.{i}.weight": torch.from_numpy(part) for i, part in enumerate(each)}
    path = str(folder / "many.pt")
    torch.save(x, path)
    what = f"{len(x)} tensors of {size_name(scale.dict_each)}"
    for mapped in (True, False):
        yield Line(
            "torchfile.mapped" if mapped else "torchfile.load",
            f"torch file, {'map' if mapped else 'load'} {what}",
            [
                _loading("tensorbytes", _ours("torch", mapped), path, x, OURS),
                _loading("tensorbytes, to NumPy", _ours("numpy", mapped), path, x, OURS),
                _loading(_PEER, _theirs(torch, mapped), path, x),
            ],
            0 if mapped else each.nbytes,
            Target(1.0, "ahead of torch.load", (_PEER,)),
        )
    del x, each
    yield from _small(torch, scale, folder)
    yield from _slices(torch, scale, folder)


def _ours(to: str, mapped: bool) -> Callable[[str], Any]:
    return lambda path: tb.load(path, to=to, mmap=mapped)


def _theirs(torch: Any, mapped: bool) -> Callable[[str], Any]:
    return lambda path: torch.load(path, weights_only=True, mmap=mapped)


def _loading(name: str, load: Callable[[str], Any], path: str, x: dict[str, Any], role: str = "peer") -> Contender:
    def right(got: dict[str, Any]) -> bool:
        return got.keys() == x.keys() and all(same(np.asarray(got[key]), x[key].numpy()) for key in x)

    return Contender(name, load, path, right, role)


def _small(torch: Any, scale: Scale, folder: Path) -> Iterator[Line]:
    """Many small tensors: what a name, a shape and a storage cost."""
    count = scale.stream_items // 10
    x = {f"layer.{i}.bias": torch.full((16,), float(i)) for i in range(count)}
    path = str(folder / "small.pt")
    torch.save(x, path)
    yield Line(
        "torchfile.small",
        f"torch file, map {count} tensors of 64 bytes",
        [
            _loading("tensorbytes", _ours("torch", True), path, x, OURS),
            _loading(_PEER, _theirs(torch, True), path, x),
        ],
        target=Target(1.0, "ahead of torch.load", (_PEER,)),
    )


def _slices(torch: Any, scale: Scale, folder: Path) -> Iterator[Line]:
    size = scale.slices[-1]
    x = torch.arange(size // 4, dtype=torch.int32).reshape(-1, _SLICE_BYTES // 4)
    head = x[5].numpy().copy()
    path = str(folder / "large.pt")
    torch.save({"x": x}, path)
    del x

    def ours(path: str) -> Any:
        with tb.open(path) as file:
            return file["x"][5].copy()

    def theirs(path: str) -> Any:
        return torch.load(path, weights_only=True, mmap=True)["x"][5].clone().numpy()

    yield Line(
        "torchfile.slice",
        f"torch file, open and {size_name(_SLICE_BYTES)} of {size_name(size)}",
        [
            Contender("tensorbytes", ours, path, lambda got: same(got, head), OURS),
            Contender(_PEER, theirs, path, lambda got: same(got, head)),
        ],
        target=Target(1.0, "ahead of torch.load", (_PEER,)),
    )
