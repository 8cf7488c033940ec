"""PyTorch: torch.load(weights_only=True)."""

from __future__ import annotations

import io
import pickletools
import struct
from collections import OrderedDict
from functools import cache
from random import Random
from typing import Any

import tensorbytes as tb
from safety.fuzz.differential.mutate import damage, often_one
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair
from safety.fuzz.differential.pairs.npy import _directory


@cache
def _pickles() -> list[tuple[bytes, list[bytes]]]:
    """Objects as torch.save stores them: the pickle and the storages."""
    import zipfile

    import torch

    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    objects = [
        x, {"w": x, "b": torch.ones(2)}, OrderedDict(w=x), [x.t(), x[1], (x[0, :2], None)], torch.tensor(3),
        torch.arange(4, dtype=torch.bfloat16), torch.tensor([1 + 2j]), torch.zeros(0, 3), torch.nn.Parameter(x),
        {"n": 1, "f": 0.5, "s": "é", "l": [True, False, None], 3: (1, -1, 1 << 40)}, torch.tensor([True, False]),
        {"size": x.shape, "dtype": torch.float16}, torch.arange(5, dtype=torch.uint8).view(torch.int8), (),
        torch.eye(2).to_sparse(), torch.zeros(4, dtype=torch.float8_e4m3fn), x.expand(2, 2, 3), {"a": {"b": {"c": x}}},
    ]  # fmt: skip
    found = []
    for item in objects:
        file = io.BytesIO()
        torch.save(item, file)
        archive = zipfile.ZipFile(file)
        members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        storages = [members[f"data/{n}"] for n in range(len([name for name in members if name.startswith("data/")]))]
        found.append((members["data.pkl"], storages))
    return found


@cache
def _older() -> list[bytes]:
    import torch

    out = []
    for item in (torch.arange(4.0), {"a": torch.ones(2, 2), "n": 3}):
        file = io.BytesIO()
        torch.save(item, file, _use_new_zipfile_serialization=False)
        out.append(file.getvalue())
    return out


def _edited(rng: Random, raw: bytes) -> bytes:
    """A pickle with one opcode more, less, moved or changed."""
    try:
        starts = [at for _, _, at in pickletools.genops(raw)]
    except Exception:
        return damage(rng, raw)
    ops = [raw[a:b] for a, b in zip(starts, [*starts[1:], len(raw)], strict=True)]
    at = rng.randrange(len(ops))
    kind = rng.randrange(7)
    if kind == 0:
        del ops[at]
    elif kind == 1:
        ops.insert(rng.randrange(len(ops)), ops[at])
    elif kind == 2:
        other = rng.randrange(len(ops))
        ops[at], ops[other] = ops[other], ops[at]
    elif kind in (3, 4):
        ops[at] = _argument(rng, ops[at])
    elif kind == 5:
        ops.insert(at, rng.choice([b"N", b"\x88", b"K\x05", b"(", b"t", b"]", b"}", b")", b"0", b"2",
        b"J\xff\xff\xff\x7f", b"\x85",
                                   b"\x86", b"e", b"a", b"s", b"u", b"b", b"R", b"X\1\0\0\0x", b"G" + bytes(8),
                                   b"\x8a\1\xff",
                                   b"ccollections\nOrderedDict\n", b"ctorch\nSize\n", b"h\0", b"q\0",
                                   b"Q"]))  # fmt: skip
    else:
        return damage(rng, raw)
    return b"".join(ops)


def _argument(rng: Random, op: bytes) -> bytes:
    if op[:1] == b"K" and len(op) == 2:
        return bytes([op[0], rng.choice([0, 1, 2, 3, 6, 255])])
    if op[:1] in b"MJ" or op[:1] == b"\x8a":
        return rng.choice(
            [b"K\x00", b"J\xff\xff\xff\xff", b"J\xff\xff\xff\x7f", b"\x8a\x08" + struct.pack("<q", 1 << 62)]
        )
    if op[:1] == b"c":
        names = [
            b"FloatStorage",
            b"DoubleStorage",
            b"HalfStorage",
            b"ByteStorage",
            b"BoolStorage",
            b"ComplexFloatStorage",
            b"Size",
            b"x",
        ]
        return b"ctorch\n" + rng.choice(names) + b"\n"
    return op[:1] + damage(rng, op[1:]) if len(op) > 1 else rng.choice([b"N", b")", b"]", b"}", b"\x88", b"\x89"])


class WeightsOnly(Pair):
    package = "torch"
    words = "`torch.load(weights_only=True)`"
    remote = True
    slow = True

    def warm(self, side: str) -> None:
        import torch  # noqa: F401

    def generate(self, rng: Random) -> bytes:
        from tests.support.torch_bytes import archive

        if rng.random() < 0.1:
            return damage(rng, rng.choice(_older()))
        pickled, storages = rng.choice(_pickles())
        edits = often_one(rng)
        if rng.random() < 0.75:
            for _ in range(edits):
                pickled = _edited(rng, pickled)
        more = {}
        if rng.random() < 0.1:
            more["byteorder"] = rng.choice([b"big", b"little", b"", b"x"])
        if storages and rng.random() < 0.15:
            storages = list(storages)
            storages[rng.randrange(len(storages))] = rng.choice([b"", bytes(8), rng.randbytes(40)])
        raw: bytes = archive(pickled, storages, prefix=rng.choice(["archive/", "x/", "a/b/"]), **more)
        if rng.random() < 0.15:
            raw = damage(rng, raw) if rng.random() < 0.5 else _directory(rng, raw)
        return raw

    def ours(self, raw: bytes) -> Any:
        return _tree(tb.loads(raw, "torchfile", to="torch", limits=LIMITS))

    def theirs(self, raw: bytes) -> Any:
        import torch

        torch.set_num_threads(1)
        return _tree(torch.load(io.BytesIO(raw), map_location="cpu", weights_only=True))


def _tree(x: Any, depth: int = 60) -> Any:
    import torch

    if not depth:
        return "deeper"
    if isinstance(x, torch.Tensor):
        return _tensor(x)
    if isinstance(x, dict):
        return "dict", [[_tree(key, depth - 1), _tree(value, depth - 1)] for key, value in x.items()]
    if isinstance(x, list | tuple):
        return "list" if isinstance(x, list) else "tuple", [_tree(item, depth - 1) for item in x]
    if isinstance(x, float):
        return "float", struct.pack("<d", x)
    if x is None or isinstance(x, bool | int | str | bytes):
        return type(x).__name__, str(x) if isinstance(x, bool | int) else x
    return "str", str(x)  # dtypes, devices, layouts


def _tensor(x: Any) -> Any:
    import torch

    if x.layout != torch.strided:
        coo = x.to_sparse_coo() if x.layout != torch.sparse_coo else x
        return "sparse", str(x.layout), list(x.shape), _tensor(coo._indices()), _tensor(coo._values())
    flat = x.detach().resolve_conj().resolve_neg().contiguous()
    if flat.is_quantized:
        flat = flat.int_repr()
    if flat.numel() > 1 << 22:
        raise ValueError("too large to be compared")
    row = torch.empty(flat.numel(), dtype=flat.dtype).copy_(flat.reshape(-1))  # whatever the strides of single elements
    raw = row.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return "tensor", str(x.dtype), list(x.shape), raw
