"""Rows about safetensors files: saving, loading and slicing beside the safetensors library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import Scale, random_floats, same, size_name
from benchmarks.timing import FLOOR, OURS, PEER, Contender, Line, Target

_KIB = 1 << 10
_NAMES = 2000  # tensors of the file that is only opened


def safetensors(scale: Scale, folder: Path) -> Iterator[Line]:
    """A dict of tensors and one large tensor, saved and loaded; a slice; a file of many tensors, opened."""
    flat = random_floats(scale.dict_tensors * scale.dict_each)
    many = {f"layer.{i}.weight": part for i, part in enumerate(flat.reshape(scale.dict_tensors, -1, 256))}
    one = {"x": random_floats(scale.large).reshape(-1, 1024)}
    for name, x in (("dict", many), ("large", one)):
        yield from _whole(name, x, folder)
    yield _slice(scale.slices[-1], folder)
    yield _open(folder)


def _whole(name: str, x: dict[str, Any], folder: Path) -> Iterator[Line]:
    from safetensors.numpy import load_file, save_file

    each = next(iter(x.values())).nbytes
    what = f"{len(x)} x {size_name(each)}" if len(x) > 1 else size_name(each)
    for sync in (False, True):
        os.sync()
        rival = "safetensors + fsync" if sync else "safetensors"
        yield Line(
            f"safetensors.{name}.save{'.sync' if sync else ''}",
            f"save {what} as safetensors, {'fsync' if sync else 'sync=False'}",
            [
                _saving("tensorbytes", partial(tb.save, x, sync=sync), x, folder / "ours.safetensors", OURS),
                _saving(rival, partial(_save_synced if sync else save_file, x), x, folder / "peer.safetensors", PEER),
            ],
            each * len(x),
            Target(1.5, f"1.5 times as fast as {rival}", (rival,)),
            note="" if sync else "Both end in the page cache, which takes most of the time.",
        )
    path = str(folder / f"{name}.safetensors")
    save_file(x, path)
    for touch in (False, True):
        load = partial(_summed, tb.load) if touch else tb.load
        peer = partial(_summed, load_file) if touch else load_file
        yield Line(
            f"safetensors.{name}.load{'.sum' if touch else ''}",
            f"load {'and sum ' if touch else ''}{what} from safetensors",
            [
                Contender("tensorbytes", load, path, lambda got: _equal(got, x), OURS),
                Contender("safetensors", peer, path, lambda got: _equal(got, x)),
            ],
            each * len(x),
            Target(1.5, "1.5 times as fast as safetensors", ("safetensors",)),
        )
    os.unlink(path)


def _equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(same(a[name], b[name]) for name in b)


def _save_synced(x: dict[str, Any], path: str) -> None:
    from safetensors.numpy import save_file

    save_file(x, path)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def _saving(name: str, save: Callable[[str], None], x: dict[str, Any], path: Path, role: str) -> Contender:
    from safetensors.numpy import load_file

    def right(_: Any) -> bool:
        return _equal(load_file(path), x)

    return Contender(name, save, str(path), right, role, lambda: path.unlink(missing_ok=True))


def _summed(load: Callable[[str], dict[str, Any]], path: str) -> dict[str, Any]:
    got = load(path)
    for part in got.values():
        part.sum()
    return got


# ---- slices -----------------------------------------------------------------


def _our_slice(path: str, name: str = "x") -> Any:
    with tb.open(path) as file:
        return file[name][:4].copy()


def _their_slice(path: str, name: str = "x") -> Any:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return file.get_slice(name)[:4]


def _slice(size: int, folder: Path) -> Line:
    from safetensors.numpy import save_file

    x = np.arange(size // 4, dtype=np.float32).reshape(-1, 256)
    head = x[:4].copy()
    path = str(folder / "slice.safetensors")
    save_file({"x": x}, path)
    return Line(
        "safetensors.slice",
        f"open and {size_name(4 * _KIB)} out of {size_name(size)} of safetensors",
        [
            Contender("tensorbytes", _our_slice, path, lambda got: same(got, head), OURS),
            Contender("safetensors", _their_slice, path, lambda got: same(got, head)),
        ],
    )


def _open(folder: Path) -> Line:
    from safetensors.numpy import save_file

    x = {f"model.layers.{i}.weight": np.full((4, 4), i, np.float32) for i in range(_NAMES)}
    name = f"model.layers.{_NAMES // 2}.weight"
    path, native = str(folder / "many.safetensors"), str(folder / "many.tb")
    save_file(x, path)
    tb.save(x, native, sync=False)
    ours = partial(_our_slice, name=name)
    return Line(
        "safetensors.open",
        f"open a file of {_NAMES} tensors and read one",
        [
            Contender("tensorbytes", ours, path, lambda got: same(got, x[name]), OURS),
            Contender("tensorbytes, of its own format", ours, native, lambda got: same(got, x[name]), FLOOR),
            Contender("safetensors", partial(_their_slice, name=name), path, lambda got: same(got, x[name])),
        ],
        target=Target(1.0, "as fast as safetensors", ("safetensors",)),
    )
