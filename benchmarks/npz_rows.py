"""Rows about NumPy's own formats: npz archives and npy files, beside NumPy.

Files are written afresh and removed between samples, without fsync on either side. Both
sides read every byte of what they load, and both check the CRC-32 of every member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import Scale, random_floats, same, size_name
from benchmarks.timing import OURS, PEER, Contender, Line, Target

_AHEAD = 1.5
_SLICE_BYTES = 4096
Arrays = dict[str, Any]


def _numpy_load(path: str) -> Arrays:
    with np.load(path) as file:
        return dict(file)


def _same(a: Arrays, b: Arrays) -> bool:
    return a.keys() == b.keys() and all(same(a[name], b[name]) for name in b)


def _remover(path: str) -> Callable[[], None]:
    return lambda: Path(path).unlink(missing_ok=True)


def npz(scale: Scale, folder: Path) -> Iterator[Line]:
    each = random_floats(scale.dict_tensors * scale.dict_each).reshape(scale.dict_tensors, -1, 256)
    many = {f"layer.{i}.weight": part for i, part in enumerate(each)}
    yield from _archives("npz.many", f"{len(many)} arrays of {size_name(scale.dict_each)}", many, folder)
    del many, each
    one = {"x": random_floats(scale.large).reshape(-1, 1024)}
    yield from _archives("npz.one", f"one array of {size_name(scale.large)}", one, folder)
    del one
    yield from _slices(scale.slices[-1], folder)


def _archives(name: str, what: str, x: Arrays, folder: Path) -> Iterator[Line]:
    nbytes = sum(part.nbytes for part in x.values())
    target = Target(_AHEAD, f"{_AHEAD} times the speed of np.savez and np.load", ("NumPy",))
    ours, theirs = str(folder / "ours.npz"), str(folder / "theirs.npz")

    def save_ours(path: str) -> None:
        tb.save(x, path, sync=False)

    def save_theirs(path: str) -> None:
        np.savez(path, **x)

    yield Line(
        f"{name}.save",
        f"save, npz of {what}, sync=False",
        [
            Contender("tensorbytes", save_ours, ours, lambda _: _same(_numpy_load(ours), x), OURS, _remover(ours)),
            Contender("NumPy", save_theirs, theirs, lambda _: _same(_numpy_load(theirs), x), PEER, _remover(theirs)),
        ],
        nbytes,
        target,
        note="NumPy reads ours here. Ours replaces the file as a whole.",
    )
    save_ours(ours)
    save_theirs(theirs)
    yield Line(
        f"{name}.load",
        f"load, npz of {what}",
        [
            Contender("tensorbytes", tb.load, theirs, lambda got: _same(got, x), OURS),
            Contender("NumPy", _numpy_load, theirs, lambda got: _same(got, x)),
        ],
        nbytes,
        target,
        note="Both read the file that NumPy wrote, every array of it.",
    )
    _remover(ours)()
    _remover(theirs)()


# ---- slices -----------------------------------------------------------------


def _our_slice(path: str) -> Any:
    with tb.open(path) as file:
        (entry,) = file.entries()
        return entry[:1].copy()


def _mapped_slice(path: str) -> Any:
    return np.load(path, mmap_mode="r")[:1].copy()


def _archive_slice(path: str) -> Any:
    with np.load(path) as file:
        return file["x"][:1].copy()


def _slices(size: int, folder: Path) -> Iterator[Line]:
    x = np.arange(size // 4, dtype=np.float32).reshape(-1, _SLICE_BYTES // 4)
    head = x[:1].copy()
    np.savez(folder / "x.npz", x=x)
    np.save(folder / "x.npy", x)
    del x

    def right(got: Any) -> bool:
        return same(got, head)

    for name, theirs, note in (
        ("npz", _archive_slice, "NumPy has no way to a part of an array in an archive."),
        ("npy", _mapped_slice, ""),
    ):
        path = str(folder / f"x.{name}")
        yield Line(
            f"npz.slice.{name}",
            f"open and {size_name(_SLICE_BYTES)} of {size_name(size)}, {name}",
            [Contender("tensorbytes", _our_slice, path, right, OURS), Contender("NumPy", theirs, path, right)],
            note=note,
        )
        _remover(path)()
