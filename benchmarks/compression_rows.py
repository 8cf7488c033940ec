"""Rows about compression: weights beside zipnn, token ids beside zstd, slices, and quantization.

Speeds are in bytes of the tensor, not of what is left of it. Everybody works in memory, from a
tensor or its bytes to bytes and back; ours adds dtype, shape, and checksums that are verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import tensorbytes as tb
from benchmarks import compression_data as data
from benchmarks import compression_peers as peers
from benchmarks.compression_peers import Packer, compressing, decompressing
from benchmarks.lazy_rows import middle, wait
from benchmarks.memory_rows import Scale, build, same, size_name
from benchmarks.timing import FLOOR, OURS, Contender, Line, Target

_AHEAD = 1.5
_SMALLER = 1.3
_SLICE_BOUND = 0.010
_SLICE_BYTES = 4096


def size_line(
    name: str, title: str, sizes: Sequence[tuple[str, int, str, str]], nbytes: int, target: Target, note: str = ""
) -> Line:
    """A comparison of sizes, which are known already: (name, bytes, role, note)."""
    contenders = [
        Contender(who, float, size, lambda size: size > 0, role, note=note) for who, size, role, note in sizes
    ]
    return Line(name, title, contenders, nbytes, target, reports_seconds=True, unit="size", note=note)


def _both_ways(name: str, what: str, x: Any, packers: list[Packer], speed: Target, size: Target) -> Iterator[Line]:
    """Size, compression and decompression of one array."""
    stored = [packer.store(x) for packer in packers]
    sizes = [(p.name, p.size(kept), p.role, "") for p, kept in zip(packers, stored, strict=True)]
    yield size_line(f"{name}.size", f"size of {what}", sizes, x.nbytes, size)
    yield Line(f"{name}.compress", f"compress {what}", [compressing(p, x) for p in packers], x.nbytes, speed)
    reading = [decompressing(p, x, kept) for p, kept in zip(packers, stored, strict=True)]
    yield Line(f"{name}.decompress", f"decompress {what}", reading, x.nbytes, speed)
    # Fresh memory costs as much as decoding here, and not always the same: what is left without it.
    title = f"decompress {what}, memory just used"
    yield Line(f"{name}.decompress.warm", title, reading, x.nbytes, speed, warm=True)


# ---- weights ----------------------------------------------------------------


def weights(scale: Scale, folder: Path) -> Iterator[Line]:
    size = scale.large // 2
    for dtype in (ml_dtypes.bfloat16, np.float32):
        kind = np.dtype(dtype).name
        yield from _weights(f"weights.{kind}", f"{size_name(size)} of N(0, 0.02) {kind}", data.weights(dtype, size))
    real = data.real_weights(size)
    if real is not None:
        for dtype, cast in ((np.float32, ""), (ml_dtypes.bfloat16, "cast to ")):
            x = real.astype(dtype)
            what = f"{x.nbytes / 1e6:.3g} MB of all-MiniLM-L6-v2 {cast}{x.dtype.name}"
            yield from _weights(f"weights.minilm.{x.dtype.name}", what, x)
    yield from _sizes_of_tensors(scale)
    yield from _whole_file()


_FASTER = Target(_AHEAD, f"{_AHEAD} times as fast as zipnn", ("zipnn",))
_NO_LARGER = Target(1.0, "no larger than zipnn's", ("zipnn",))


def _weights(name: str, what: str, x: Any) -> Iterator[Line]:
    packers = [peers.ours("split+huffman"), *build(peers.for_weights(x.dtype.name, x.itemsize))]
    yield from _beside_zipnn(name, what, x, packers)


def _beside_zipnn(name: str, what: str, x: Any, packers: list[Packer]) -> Iterator[Line]:
    yield from _both_ways(name, what, x, packers, _FASTER, _NO_LARGER)


_SIZES = (1 << 20, 4 << 20, 16 << 20, 64 << 20)


def _sizes_of_tensors(scale: Scale) -> Iterator[Line]:
    """Tensors as large as those of models are: with "auto", beside zipnn alone."""
    for dtype in (ml_dtypes.bfloat16, np.float32):
        for size in (size for size in _SIZES if size <= scale.large):
            x = data.weights(dtype, size)
            packers = [peers.ours("auto"), *build([partial(peers.zipnn, x.dtype.name)])]
            name, what = f"weights.{x.dtype.name}.{size >> 20}MiB", f"{size_name(size)} of {x.dtype.name} weights, auto"
            yield from _beside_zipnn(name, what, x, packers)


def _whole_file() -> Iterator[Line]:
    """A model's tensors by name; zipnn has the bytes of its file, which it takes as one array."""
    found = data.real_model()
    if found is None:
        return
    model, raw = found
    others = [replace(packer, takes=lambda _: bytearray(raw)) for packer in build([partial(peers.zipnn, "float32")])]
    sizes = [("tensorbytes", len(tb.dumps(model, compression="auto")), OURS, "")]
    sizes += [(packer.name, len(packer.store(raw)), packer.role, "") for packer in others]
    what = f"{len(raw) / 1e6:.3g} MB of all-MiniLM-L6-v2, {len(model)} tensors"
    yield size_line("weights.file.size", f"size of {what}", sizes, len(raw), _NO_LARGER)
    ours = partial(tb.dumps, compression="auto")
    there = [Contender("tensorbytes", ours, model, lambda out: _same_model(tb.loads(out), model), OURS)]
    back = [Contender("tensorbytes", tb.loads, ours(model), lambda out: _same_model(out, model), OURS)]
    flat = np.frombuffer(raw, np.uint8)
    for packer in others:
        there.append(compressing(packer, flat))
        back.append(decompressing(packer, flat, packer.store(raw)))
    yield Line("weights.file.compress", f"compress {what}", there, len(raw), _FASTER)
    yield Line("weights.file.decompress", f"decompress {what}", back, len(raw), _FASTER)


def _same_model(out: Any, model: dict[str, Any]) -> bool:
    return out.keys() == model.keys() and all(same(out[name], x) for name, x in model.items())


# ---- token ids --------------------------------------------------------------


def tokenids(scale: Scale, folder: Path) -> Iterator[Line]:
    real, vocabulary = data.real_tokens(scale.large // 64)
    zipf = data.zipf_tokens(scale.large // 16)
    for name, ids, what in (("zipf", zipf, "Zipf token ids"), ("real", real, f"text as {vocabulary}")):
        for dtype in (np.int32, np.int64):
            x = ids.astype(dtype)
            kind = x.dtype.name
            speed = Target(1.0, "as fast as plain zstd in our chunks", (peers.OUR_ZSTD,))
            size = Target(_SMALLER, f"{_SMALLER} times smaller than plain zstd", (peers.OUR_ZSTD,))
            packers = [peers.ours("auto"), *build(peers.for_tokens())]
            full = f"{x.nbytes / 1e6:.3g} MB of {what} {kind}"
            yield from _both_ways(f"tokenids.{name}.{kind}", full, x, packers, speed, size)


# ---- slices -----------------------------------------------------------------


def chunkslice(scale: Scale, folder: Path) -> Iterator[Line]:
    size, bound = scale.slices[-1], f"{_SLICE_BOUND * 1000:g} ms"
    part = data.weights(ml_dtypes.bfloat16, min(size, 64 << 20))
    x = np.tile(part, size // part.nbytes).reshape(-1, _SLICE_BYTES // 2)
    expected = x[len(x) // 2 : len(x) // 2 + 1].copy()
    for compression in ("split+huffman", "zstd"):
        path = folder / "x.tb"
        tb.save(x, path, sync=False, compression=compression)
        yield Line(
            f"chunkslice.{compression}",
            f"open and 4 KiB out of {size_name(size)}, {compression}",
            [
                Contender("tensorbytes", middle, str(path), lambda got: same(got, expected), OURS),
                Contender(bound, wait, _SLICE_BOUND, lambda _: True, FLOOR),
            ],
            target=Target(1.0, f"under {bound}", (bound,)),
            note=f"A bfloat16 tensor of {size_name(size)} in a file of {path.stat().st_size / 1e6:,.0f} MB.",
        )
        path.unlink()


# ---- quantization -----------------------------------------------------------

_GROUP = 32
_NOTE = "the numbers alone: no dtype and shape, no checksum, no error stated"


def _numpy_int8(x: Any) -> tuple[Any, Any]:
    scale = np.abs(x).max() / np.float32(127)
    return np.rint(x / scale).astype(np.int8), scale


def _numpy_int8_back(stored: tuple[Any, Any]) -> Any:
    return stored[0] * stored[1]


def _numpy_int4(x: Any) -> tuple[Any, Any]:
    groups = x.reshape(-1, _GROUP)
    scales = np.abs(groups).max(axis=1, keepdims=True) / np.float32(7)
    whole = np.rint(groups / scales).astype(np.int8).reshape(-1, 2)
    return (whole[:, 0] & 15 | whole[:, 1] << 4).astype(np.uint8), scales


def _numpy_int4_back(stored: tuple[Any, Any]) -> Any:
    packed, scales = stored[0].view(np.int8), stored[1]
    whole = np.stack([packed << 4 >> 4, packed >> 4], axis=-1)
    return (whole.reshape(len(scales), -1) * scales).reshape(-1)


def _torch_int8(x: Any) -> Any:
    import torch

    values = torch.from_numpy(x)
    scale = values.abs().max() / 127
    return torch.round(values / scale).to(torch.int8), scale


def _torch_int8_back(stored: Any) -> Any:
    return (stored[0] * stored[1]).numpy()


def _torch_bfloat16(x: Any) -> Any:
    import torch

    return torch.from_numpy(x).to(torch.bfloat16)


def _numpy_bfloat16(x: Any) -> Any:
    return x.astype(ml_dtypes.bfloat16)


# What is asked for -> its name, the greatest relative error, and how others compute it, there and back.
_WAYS: list[tuple[Any, str, float, dict[str, tuple[Callable[..., Any], Callable[..., Any]]]]] = [
    (
        "int8",
        "int8",
        1 / 250,
        {"NumPy": (_numpy_int8, _numpy_int8_back), "PyTorch": (_torch_int8, _torch_int8_back)},
    ),
    (
        tb.Quantize("int4", group=_GROUP),
        f"int4, groups of {_GROUP}",
        1 / 13,
        {"NumPy": (_numpy_int4, _numpy_int4_back)},
    ),
    (
        "bfloat16",
        "bfloat16",
        1 / 256,
        {
            "ml_dtypes": (_numpy_bfloat16, lambda stored: stored.astype(np.float32)),
            "PyTorch": (_torch_bfloat16, lambda stored: stored.float().numpy()),
        },
    ),
]


def quantize(scale: Scale, folder: Path) -> Iterator[Line]:
    x = data.weights(np.float32, scale.large)
    most = float(np.abs(x).max())
    for asked, what, error, others in _WAYS:
        stored = tb.dumps(x, quantize=asked)

        def near(got: Any, bound: float = error * most) -> bool:
            return got.dtype == np.float32 and bool(np.abs(got.reshape(x.shape) - x).max() <= bound)

        there = [_quantizing("tensorbytes", partial(tb.dumps, quantize=asked), tb.loads, x, near, OURS, "")]
        back = [Contender("tensorbytes", tb.loads, stored, near, OURS)]
        for name, (forth, home) in others.items():
            there.append(_quantizing(name, forth, home, x, near, FLOOR, _NOTE))
            back.append(Contender(name, home, forth(x), near, FLOOR, note=_NOTE))
        size = size_name(x.nbytes)
        note = f"Stored in {len(stored) / x.nbytes:.1%} of the bytes."
        yield Line(f"quantize.{what}.dumps", f"dumps, {size} float32 as {what}", there, x.nbytes, note=note)
        yield Line(f"quantize.{what}.loads", f"loads, {size} float32 from {what}", back, x.nbytes, note=note)


def _quantizing(
    name: str,
    forth: Callable[[Any], Any],
    home: Callable[[Any], Any],
    x: Any,
    near: Callable[[Any], bool],
    role: str,
    note: str,
) -> Contender:
    return Contender(name, forth, x, lambda stored: near(home(stored)), role, note=note)
