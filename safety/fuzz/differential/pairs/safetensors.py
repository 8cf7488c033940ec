"""safetensors, in Rust: the values by deserialize, the metadata by safe_open."""

from __future__ import annotations

import struct
from functools import cache
from random import Random
from typing import Any

from safety.fuzz.differential import jsontext
from safety.fuzz.differential.jsontext import Pairs
from safety.fuzz.differential.mutate import damage, often_one, pool, splice
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair
from tensorbytes import dtypes, formats
from tensorbytes.formats import _packed

_WIDTHS = {
    1: ["U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"],
    2: ["F16", "BF16", "U16", "I16"], 4: ["F32", "I32", "U32"], 8: ["F64", "I64", "U64", "C64"],
}  # fmt: skip
_DTYPES = [*(name for names in _WIDTHS.values() for name in names), "F4", "F6_E2M3", "F6_E3M2"]
_SHAPES: list[list[int]] = [[], [0], [1], [2], [3], [4], [2, 2], [2, 3], [8], [0, 3], [1, 2, 1], [2, 0, 2], [16]]


class SafeTensors(Pair):
    package = "safetensors"
    words = "`safetensors.deserialize` and `safe_open`"

    def generate(self, rng: Random) -> bytes:
        raw = rng.choice(_files())
        if rng.random() < 0.1:
            return damage(rng, raw)
        if rng.random() < 0.05:
            return splice(rng, raw, rng.choice(_files()))
        end = 8 + int.from_bytes(raw[:8], "little")
        tree, body = jsontext.parse(raw[8:end]), raw[end:]
        for _ in range(often_one(rng)):
            tree = _edit(rng, tree) if rng.random() < 0.5 and isinstance(tree, Pairs) else jsontext.edit(rng, tree)
        text = jsontext.write(tree, rng if rng.random() < 0.3 else None)
        if rng.random() < 0.1:
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice([*' {}[],:"0\\\x00\x1f\x7f\ufeff\n', "null", "true"]) + text[at:]
        if rng.random() < 0.2:
            text += " " * (-len(text) % 8)
        if rng.random() < 0.15:
            body = damage(rng, body)
        raw = _file(text, body)
        return damage(rng, raw) if rng.random() < 0.05 else raw

    def ours(self, raw: bytes) -> Any:
        (document,) = formats.get("safetensors").decode(memoryview(raw), LIMITS, False, {})
        rows, meta = {}, dict(document.meta)
        for leaf in document.leaves:
            x = leaf.read()
            if not leaf.path:  # an empty dict, which has the metadata of the whole
                return {}, dict(x.meta)
            row = dtypes.get(x.dtype)
            data = bytes(x.data) if row.bits >= 8 else bytes(_packed.pack_tensor(x))
            rows[leaf.path[0][1]] = (row.safetensors, list(x.shape), data)
        return rows, meta

    def theirs(self, raw: bytes) -> Any:
        import safetensors

        rows = {
            name: (info["dtype"], list(info["shape"]), bytes(info["data"]))
            for name, info in safetensors.deserialize(raw)
        }
        (self.folder / "x.safetensors").write_bytes(raw)
        with safetensors.safe_open(self.folder / "x.safetensors", "numpy") as opened:
            if sorted(opened.keys()) != sorted(rows):
                raise AssertionError("safe_open and deserialize name other tensors")
            return rows, dict(opened.metadata() or {})


@cache
def _files() -> list[bytes]:
    def make(rng: Random) -> bytes:
        header, body = _valid(rng)
        return _file(jsontext.write(header), body)

    return pool(make)


def _file(text: str, body: bytes) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw + body


def _bits(dtype: str) -> int:
    return next((8 * width for width, names in _WIDTHS.items() if dtype in names), 4 if dtype == "F4" else 6)


def _valid(rng: Random) -> tuple[Pairs, bytes]:
    """A header and a body that fit each other."""
    entries, at = Pairs(), 0
    for name in rng.sample(["a", "b", "weight", "", "é", "x.y", "../z", "__class__"], rng.randrange(4)):
        dtype, shape = rng.choice(_DTYPES), list(rng.choice(_SHAPES))
        bits = _bits(dtype)
        for n in shape:
            bits *= n
        if bits % 8:
            dtype, bits = "U8", bits // _bits(dtype) * 8
        end = at + bits // 8
        entries.append([name, Pairs([["dtype", dtype], ["shape", shape], ["data_offsets", [at, end]]])])
        at = end
    if rng.random() < 0.4:
        meta = Pairs([["format", "pt"], ["note", "é\n"], ["", ""]][: rng.randrange(4)])
        entries.insert(0, ["__metadata__", meta])
    body = bytes(rng.choice(b"\0\1") for _ in range(at)) if rng.random() < 0.5 else rng.randbytes(at)
    return entries, body


def _edit(rng: Random, tree: Pairs) -> Pairs:
    """Edits that know the format: most leave a file that is nearly right."""
    tensors = [
        info
        for _, info in tree
        if isinstance(info, Pairs) and [pair[0] for pair in info][:1] == ["dtype"] and len(info) == 3
    ]
    if not tensors:
        return tree
    info = rng.choice(tensors)
    kind = rng.randrange(8)
    dtype, shape, offsets = info[0][1], info[1][1], info[2][1]
    if kind == 0:
        same = [names for names in _WIDTHS.values() if dtype in names]
        info[0] = ["dtype", rng.choice(same[0] if same and rng.random() < 0.7 else _DTYPES)]
    elif kind == 1 and isinstance(shape, list):
        info[1] = [
            "shape",
            rng.choice([[*shape, 1], [1, *shape], shape[::-1], [1] * 65, [0, 1 << 40], [1 << 62, 0, 4]]),
        ]
    elif kind == 2 and len(tensors) > 1:
        other = rng.choice(tensors)
        info[2], other[2] = other[2], info[2]
    elif kind == 3 and isinstance(offsets, list) and all(type(n) is int for n in offsets):
        by = rng.choice([-1, 1, 8])
        info[2] = ["data_offsets", [n + by for n in offsets]]
    elif kind == 4 and isinstance(offsets, list) and offsets:
        end = offsets[-1]
        new = Pairs(
            [["dtype", rng.choice(_DTYPES)], ["shape", rng.choice([[0], [2, 0]])], ["data_offsets", [end, end]]]
        )
        tree.insert(rng.randrange(len(tree) + 1), [rng.choice(["n", "a", "m"]), new])
    elif kind == 5:
        rng.shuffle(info)
    elif kind == 6:
        rng.shuffle(tree)
    else:
        info.append([rng.choice(["extra", "dtype", "é"]), rng.choice(jsontext.SCALARS)])
    return tree
