"""Rows that touch no files: tensors to bytes and back, checksums."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import peers
from benchmarks.peers import Peer
from benchmarks.timing import FLOOR, OURS, PEER, Contender, Line, Target

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RIVALS_OF_LARGE = ("pickle 5", "npy", "safetensors")
_COLD = (
    "Memory as the system hands it out. Where huge pages come slowly, as in some virtual machines, we use small ones."
)
_WARM = "Memory was in use just before each sample. This favours us: peers gain little or nothing from it."


@dataclass(frozen=True)
class Scale:
    """How much data the rows use."""

    large: int = 256 * MIB
    slices: tuple[int, ...] = (MIB, 64 * MIB, GIB)
    dict_tensors: int = 300
    dict_each: int = MIB
    stream_items: int = 100_000


QUICK_SCALE = Scale(4 * MIB, (MIB, 2 * MIB, 4 * MIB), 10, 64 * KIB, 500)


def size_name(size: int) -> str:
    """1 KiB, 256 MiB, 1 GiB"""
    unit, name = next((unit, name) for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if size >= unit)
    return f"{size / unit:g} {name}"


def random_floats(size: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(size // 4, dtype=np.float32)


def build(builders: Iterable[Callable[[], Peer]]) -> list[Peer]:
    """The libraries that are installed; says which are not."""
    found = []
    for builder in builders:
        try:
            found.append(builder())
        except ImportError as error:
            print(f"  left out: {error}", file=sys.stderr)
    return found


def same(a: Any, b: Any) -> bool:
    """Equal dtype, shape and values, for NumPy and PyTorch alike; the data has no NaN."""
    return bool(a.dtype == b.dtype and a.shape == b.shape and (a == b).all())


def role_of(peer: Peer) -> str:
    return peer.role if peer.keeps else FLOOR


def dumping(peer: Peer, x: Any) -> Contender:
    return Contender(
        peer.name, peer.dumps, x, lambda out: _holds(peer, peer.loads(out), x), role_of(peer), note=peer.note
    )


def loading(peer: Peer, x: Any) -> Contender:
    return Contender(
        peer.name, peer.loads, peer.dumps(x), lambda out: _holds(peer, out, x), role_of(peer), note=peer.note
    )


def _holds(peer: Peer, got: Any, x: Any) -> bool:
    return same(got, x if peer.keeps else x.reshape(-1))


def small(scale: Scale, folder: Path) -> Iterator[Line]:
    x = random_floats(KIB).reshape(16, 16)
    everyone = build([peers.ours, *peers.ARRAYS])
    yield Line(
        "small.dumps",
        "dumps, 1 KiB float32",
        [dumping(peer, x) for peer in everyone],
        x.nbytes,
        Target(2.5, "2.5 times the fastest peer that keeps dtype and shape"),
        keep_results=False,  # a sender drops the bytes once they are sent
    )
    yield Line(
        "small.loads",
        "loads, 1 KiB float32",
        [loading(peer, x) for peer in everyone],
        x.nbytes,
        Target(2.0, "twice the fastest peer that keeps dtype and shape"),
    )


def large(scale: Scale, folder: Path) -> Iterator[Line]:
    x = random_floats(scale.large).reshape(-1, 1024)
    everyone = build([peers.ours, *peers.ARRAYS])
    size = size_name(x.nbytes)
    for warm in (False, True):
        yield Line(
            "large.dumps.warm" if warm else "large.dumps",
            f"dumps, {size} float32{', warm memory' if warm else ''}",
            [dumping(peer, x) for peer in everyone],
            x.nbytes,
            Target(2.0, "twice the fastest of pickle, npy and safetensors", RIVALS_OF_LARGE),
            warm=warm,
            note=_WARM if warm else _COLD,
        )
    yield Line(
        "large.buffers",
        f"buffers, {size} float32",
        [_buffers(x), _out_of_band(x)],
        x.nbytes,
        note="Nothing is copied here. Our time is the checksum's; pickle's out-of-band buffers have none.",
    )
    yield Line(
        "large.loads",
        f"loads, {size} float32",
        [loading(peer, x) for peer in everyone],
        x.nbytes,
        note="Ours and arrow's results are views of the input, which ours verifies and arrow does not look at.",
    )


def _buffers(x: Any) -> Contender:
    import tensorbytes as tb

    return Contender("tensorbytes", tb.buffers, x, lambda out: same(tb.loads(b"".join(out)), x), OURS)


def _out_of_band(x: Any) -> Contender:
    import pickle

    def dumps(x: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
        parts: list[pickle.PickleBuffer] = []
        return pickle.dumps(x, protocol=5, buffer_callback=parts.append), parts

    return Contender(
        "pickle 5, out of band", dumps, x, lambda out: same(pickle.loads(out[0], buffers=out[1]), x), note="no checksum"
    )


def torch(scale: Scale, folder: Path) -> Iterator[Line]:
    import torch

    everyone = build([lambda: peers.ours(to="torch"), *peers.TENSORS])
    for kind, size, columns in (("small", KIB, 16), ("large", scale.large, 1024)):
        x = torch.from_numpy(random_floats(2 * size)).to(torch.bfloat16).reshape(-1, columns)
        name = size_name(size)
        yield Line(
            f"torch.{kind}.dumps",
            f"dumps, {name} torch bfloat16",
            [dumping(peer, x) for peer in everyone],
            size,
            keep_results=kind == "large",
        )
        yield Line(
            f"torch.{kind}.loads", f"loads, {name} torch bfloat16", [loading(peer, x) for peer in everyone], size
        )


def many(scale: Scale, folder: Path) -> Iterator[Line]:
    """A dict of small tensors, as a message: of NumPy and PyTorch, and of JAX and TensorFlow, which have no peer."""
    names = [f"layer.{i}.weight" for i in range(200)]
    arrays = dict(zip(names, random_floats(200 * KIB).reshape(200, 16, 16), strict=True))
    for framework, peer, of in (
        ("numpy", peers.safetensors_dicts("numpy"), lambda x: x.copy()),
        ("torch", peers.safetensors_dicts("torch"), _to_torch),
        ("jax", peers.safetensors_dicts("flax"), _to_jax),
        ("tensorflow", peers.safetensors_dicts("tensorflow"), _to_tensorflow),
    ):
        x = {name: of(part) for name, part in arrays.items()}
        everyone = build([lambda: peers.ours(to=framework), lambda: peer])  # noqa: B023
        aims = framework in ("numpy", "torch")
        for verb, contender, least in (("dumps", _dumping_dict, 1.5), ("loads", _loading_dict, 1.0)):
            yield Line(
                f"many.{framework}.{verb}",
                f"{verb}, dict of {len(x)} {framework} tensors of 1 KiB",
                [contender(one, x) for one in everyone],
                len(x) * KIB,
                Target(least, f"{least:g} times safetensors", ("safetensors",)) if aims else None,
                keep_results=verb == "loads",
            )


def _to_torch(x: Any) -> Any:
    import torch

    return torch.from_numpy(x.copy())


def _to_jax(x: Any) -> Any:
    import jax

    return jax.numpy.asarray(x)


def _to_tensorflow(x: Any) -> Any:
    return peers.import_tensorflow().constant(x)


def _same_dicts(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(same(np.asarray(a[name]), np.asarray(b[name])) for name in b)


def _dumping_dict(peer: Peer, x: dict[str, Any]) -> Contender:
    return Contender(peer.name, peer.dumps, x, lambda out: _same_dicts(peer.loads(out), x), peer.role)


def _loading_dict(peer: Peer, x: dict[str, Any]) -> Contender:
    return Contender(peer.name, peer.loads, peer.dumps(x), lambda out: _same_dicts(out, x), peer.role)


def crc(scale: Scale, folder: Path) -> Iterator[Line]:
    import google_crc32c

    from tensorbytes._wire import crc32c

    data = random_floats(min(scale.large, 64 * MIB)).tobytes()
    truth = google_crc32c.value(data)

    def right(out: int) -> bool:
        return bool(out == truth and google_crc32c.value(b"123456789") == 0xE3069283)

    yield Line(
        "crc",
        f"CRC-32C of {size_name(len(data))}",
        [
            Contender("tensorbytes", crc32c, data, right, OURS),
            Contender("google-crc32c", google_crc32c.value, data, right, PEER),
        ],
        len(data),
    )
