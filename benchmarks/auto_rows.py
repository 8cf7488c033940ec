"""Rows about compression="auto": how near the best choice it comes, and what it costs where nothing can be saved."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import tensorbytes as tb
from benchmarks import compression_data as data
from benchmarks.compression_rows import size_line
from benchmarks.memory_rows import Scale, same, size_name
from benchmarks.timing import OURS, PEER, Contender, Line, Target
from tensorbytes import codecs

_NEAR = 1.03
_SLOWER = 1.05
_SHOWN = 3
_RAW = "compression=None"


def _pipelines() -> list[str]:
    """Every filter with every codec, at the level that it has by itself; and zstd's quickest."""
    steps = product(("", "delta"), ("", "shuffle", "split", "pack"), ("", *codecs.BUILTIN, "zstd:1"))
    texts = ["+".join(filter(None, parts)) for parts in steps]
    return [text for text in texts if text not in ("", "delta")]


def _sizes(x: Any) -> dict[str, int]:
    """The size that each pipeline gives; those of which the same is left for this dtype count as one."""
    found: dict[tuple[str, bool], tuple[str, int]] = {}
    for text in _pipelines():
        stored = tb.dumps(x, compression=text)
        found.setdefault((_chosen(stored), text.endswith(":1")), (text, len(stored)))
    return dict(found.values())


def auto(scale: Scale, folder: Path) -> Iterator[Line]:
    for kind, make in data.KINDS.items():
        yield _kind(kind, make(scale.large // 32))
    for share in (16, 4, 1):
        yield from _noise(data.random_bytes(scale.large // share), folder)


# ---- sizes ------------------------------------------------------------------


def _kind(kind: str, x: Any) -> Line:
    """The choice of `auto` beside the smallest of all pipelines."""
    raw = tb.dumps(x)
    stored = tb.dumps(x, compression="auto")
    if not same(tb.loads(stored), x):
        raise ValueError(f"{kind}: auto gave back something else than it was given")
    sizes = _sizes(x)
    best = sorted(sizes, key=sizes.__getitem__)[:_SHOWN]
    shown = [(text, sizes[text], PEER, "") for text in dict.fromkeys([*best, "zstd"]) if text in sizes]
    return size_line(
        f"auto.{kind.replace(' ', '_')}",
        f"size with auto, {kind}",
        [("tensorbytes", len(stored), OURS, f"chose {_chosen(stored)}"), *shown, (_RAW, len(raw), PEER, "")],
        len(raw),
        Target(1 / _NEAR, f"within {_NEAR - 1:.0%} of the smallest pipeline"),
        note=f"The smallest {_SHOWN} of {len(sizes)} pipelines, and zstd.",
    )


def _chosen(stored: bytes) -> str:
    with tb.open(io.BytesIO(stored)) as file:
        how = file.entries()[0].stored
    return how.compression if how else "to leave it raw"


# ---- time -------------------------------------------------------------------


def _noise(x: Any, folder: Path) -> Iterator[Line]:
    """Bytes that no codec makes fewer: what does it cost to find out?"""
    size = size_name(x.nbytes)
    target = Target(1 / _SLOWER, f"at most {_SLOWER - 1:.0%} slower than without", (_RAW,))
    path = folder / "x.tb"

    def dumping(name: str, compression: str | None, role: str) -> Contender:
        return Contender(
            name, lambda x: tb.dumps(x, compression=compression), x, lambda out: same(tb.loads(out), x), role
        )

    def saving(name: str, compression: str | None, role: str) -> Contender:
        def save(x: Any) -> None:
            tb.save(x, path, sync=False, compression=compression)

        return Contender(name, save, x, lambda _: same(tb.load(path), x), role, _remover(path))

    for verb, make in (("dumps", dumping), ("save", saving)):
        yield Line(
            f"auto.noise.{verb}.{size.replace(' ', '')}",
            f"{verb} with auto, {size} of random bytes{', sync=False' if verb == 'save' else ''}",
            [make("tensorbytes", "auto", OURS), make(_RAW, None, PEER)],
            x.nbytes,
            target,
        )


def _remover(path: Path) -> Callable[[], None]:
    return lambda: path.unlink(missing_ok=True)
