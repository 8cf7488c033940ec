"""Tools that look at every number: stats, diff, casts; beside NumPy and PyTorch asked for the same figures by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import MIB, Scale, random_floats, size_name
from benchmarks.timing import OURS, PEER, Contender, Line, Target

_EACH = 4 * MIB
_AS_FAST = Target(1.0, "as fast as NumPy by hand", ("numpy",))


def tools(scale: Scale, folder: Path) -> Iterator[Line]:
    weights = random_floats(scale.large).reshape(-1, min(_EACH, scale.large) // 4) * np.float32(0.02)
    names = [f"layer.{k}.weight" for k in range(len(weights))]
    paths = {kind: folder / f"{kind}.safetensors" for kind in ("float32", "bfloat16", "other")}
    tb.save(dict(zip(names, weights, strict=True)), paths["float32"])
    tb.save(dict(zip(names, weights.astype(ml_dtypes.bfloat16), strict=True)), paths["bfloat16"])
    weights[:, ::7] *= np.float32(1.0001)
    tb.save(dict(zip(names, weights, strict=True)), paths["other"])
    del weights
    for kind in ("float32", "bfloat16"):
        yield _stats(kind, paths[kind])
    for kind in ("bfloat16", "float16"):
        yield _cast(kind, paths["float32"], folder)
    for what, other in (("itself", paths["float32"]), ("one that differs slightly", paths["other"])):
        yield _diff(what, paths["float32"], other)


def _stats(kind: str, path: Path) -> Line:
    def check(found: Any) -> bool:
        return all(math.isclose(one.std, 0.02, rel_tol=0.1) for one in found.values())

    contenders = [Contender("tensorbytes", tb.stats, path, check, OURS)]
    contenders.append(Contender("numpy", _numpy_figures, path, lambda found: bool(found)))
    _with_torch(contenders, lambda: Contender("torch", _torch_figures, path, lambda found: bool(found)))
    return Line(
        f"tools.stats.{kind}",
        f"stats of {size_name(path.stat().st_size)} of {kind}, from a file",
        contenders,
        path.stat().st_size,
        _AS_FAST,
        note="Least, greatest, mean, deviation, NaN, zeros and a histogram of 40 bins. Ours are exact; the others' are "
        "sums in double precision.",
    )


def _numpy_figures(path: Path) -> dict[str, Any]:
    from safetensors.numpy import load_file

    found = {}
    for name, x in load_file(path).items():
        wide, low, high = x.astype(np.float64), float(x.min()), float(x.max())
        zeros, nan = x.size - np.count_nonzero(x), int(np.isnan(x).sum())
        found[name] = (low, high, wide.mean(), wide.std(), nan, zeros, np.histogram(wide, 40, (low, high))[0])
    return found


def _torch_figures(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    found = {}
    for name, x in load_file(path).items():
        wide, low, high = x.double(), float(x.min()), float(x.max())
        zeros, nan = x.numel() - int(x.count_nonzero()), int(x.isnan().sum())
        std = float(wide.std(correction=0))
        found[name] = (low, high, float(wide.mean()), std, nan, zeros, wide.histc(40, low, high))
    return found


def _with_torch(contenders: list[Contender], build: Callable[[], Contender]) -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        return
    contenders.append(build())


def _cast(kind: str, path: Path, folder: Path) -> Line:
    numbers, made = itertools.count(), []

    def new() -> Path:
        made.append(folder / f"cast-{kind}-{next(numbers)}.safetensors")
        return made[-1]

    def clear() -> None:
        while made:
            made.pop().unlink()

    def ours(source: Path) -> Path:
        target = new()
        tb.convert(source, target, cast=kind, sync=False)
        return target

    def by_hand(source: Path) -> Path:
        from safetensors.numpy import load_file, save_file

        dtype, target = np.float16 if kind == "float16" else ml_dtypes.bfloat16, new()
        save_file({name: x.astype(dtype) for name, x in load_file(source).items()}, target)
        return target

    def by_torch(source: Path) -> Path:
        import torch
        from safetensors.torch import load_file, save_file

        target = new()
        save_file({name: x.to(getattr(torch, kind)) for name, x in load_file(source).items()}, target)
        return target

    def holds(target: Path) -> bool:
        return all(str(x.dtype) == kind for x in tb.load(target).values())

    contenders = [
        Contender("tensorbytes", ours, path, holds, OURS, clear),
        Contender("numpy", by_hand, path, holds, PEER, clear),
    ]
    _with_torch(contenders, lambda: Contender("torch", by_torch, path, holds, PEER, clear))
    return Line(
        f"tools.cast.{kind}",
        f"{size_name(path.stat().st_size)} of float32 cast to {kind}, from file to file",
        contenders,
        path.stat().st_size,
        _AS_FAST,
        note="Ours looks at all numbers before it writes, and tells the largest error; the others check nothing, and "
        "hold all tensors in memory. Not synchronized.",
    )


def _diff(what: str, a: Path, b: Path) -> Line:
    def by_hand(pair: tuple[Path, Path]) -> dict[str, Any]:
        from safetensors.numpy import load_file

        one, two = (load_file(path) for path in pair)
        found = {}
        for name, x in one.items():
            y = two[name]
            if np.array_equal(x, y):
                found[name] = None
                continue
            wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
            gap = np.abs(wide_x - wide_y)
            norms = np.linalg.norm(wide_x) * np.linalg.norm(wide_y)
            found[name] = (int((x != y).sum()), gap.max(), np.vdot(wide_x, wide_y) / norms, np.isnan(x).sum())
        return found

    return Line(
        "tools.diff.same" if a == b else "tools.diff.other",
        f"diff of a file of {size_name(a.stat().st_size)} and {what}",
        [
            Contender(
                "tensorbytes", lambda pair: tb.diff(*pair), (a, b), lambda found: found.identical == (a == b), OURS
            ),
            Contender("numpy", by_hand, (a, b), lambda found: bool(found)),
        ],
        a.stat().st_size,
        _AS_FAST,
        note="The speed is that of one of the two files. Ours also tells the largest relative difference.",
    )
