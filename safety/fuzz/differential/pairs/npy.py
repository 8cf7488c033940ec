"""NumPy's own files: npy and npz."""

from __future__ import annotations

import io
import re
import zipfile
from functools import cache, cached_property
from random import Random
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.fuzz.differential.arrays import plain
from safety.fuzz.differential.mutate import damage, often_one, pool, splice
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair

DTYPES = [
    "?", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16", ">i4", ">f8",
    ">c8", "<U3", ">U2", "|S4", "<M8[D]", ">M8[ns]", "<m8[us]", "<M8[25s]",
]  # fmt: skip
_DESCRS = [
    *DTYPES, "|b1", "f4", "=f4", "<f16", "<c32", "|O", "O", "|V2", "<V4", "|V0", "<U0", "|S0", "<i1", ">u1", "<i3",
    "i", "d", "<m8", "<M8", "<M8[0s]", "<M8[s/2]", "<m8[generic]", "<f", "float32", "int", "<U", "<i04", "<i4 ",
    " <i4", "<M8[μs]", "<m8[B]", "T", "<S4", ">S4", "a4", "<a4", "<b1", "p", "q", "l", "L", "B", "<q", "<?", "e", "g",
    "<c4", "c", "S", "U", "V", "<f8,<f8", "(2,)f4", "2f4", "<i4,", "{'names'}", "<l8", "<i8\\n", "|i4", "=?", "|u8",
]  # fmt: skip
_SHAPES: list[tuple[int, ...]] = [
    (), (0,), (1,), (2,), (3,), (2, 2), (2, 3), (0, 3), (3, 0, 2), (4, 1), (1,) * 6, (20,),
]  # fmt: skip
_TOKENS = [
    "(", ")", ",", "{", "}", ":", "[", "]", "'", '"', "0", "1", "-1", "2", "True", "False", "None", "1L", "0x2",
    "2.0", "1_0", "0b1", "00", "01", "()", "(2,)", "(1,2)", "[2]", "2", "(True,)", "(1e0,)", "(2,,)", "(,)",
    "((2,),)", "# c", "\\", "\n", "\t", " ", "\f", "\x0b", "\xa0", "1==1", "2+0", "-0", "+2", "u'", "b'", "r'",
    "'a' 'b'", "not 0", "(2)", "2**1", "(2,3,)", "(10000000000000000000000,)", "(4611686018427387904,4,0)", "...",
    ";", "'x': 1, ", "L", "l", "\0",
]  # fmt: skip
_TOKEN = re.compile(r"'[^']*'|\w+|\s+|.", re.DOTALL)


def array(rng: Random) -> Any:
    dtype, shape = np.dtype(rng.choice(DTYPES)), rng.choice(_SHAPES)
    count = int(np.prod(shape))
    raw = rng.randbytes(count * dtype.itemsize)
    if dtype.kind == "b":
        raw = bytes(byte & 1 for byte in raw)
    elif dtype.kind == "U":
        text = [chr(rng.choice([65, 233, 0x1F600, 0])) for _ in range(count * dtype.itemsize // 4)]
        raw = "".join(text).encode("utf-32-le" if dtype.byteorder != ">" else "utf-32-be")
    return np.frombuffer(raw, dtype, count).reshape(shape, order=rng.choice("CF"))


def saved(x: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


@cache
def _files() -> list[bytes]:
    return pool(lambda rng: saved(array(rng)))


def wrapped(text: bytes, version: tuple[int, int], body: bytes, lie: int = 0) -> bytes:
    size = max(len(text) + lie, 0) & (0xFFFF if version[0] == 1 else 0xFFFFFFFF)
    return b"\x93NUMPY" + bytes(version) + size.to_bytes(2 if version[0] == 1 else 4, "little") + text + body


def edited(rng: Random, raw: bytes) -> bytes:
    """An npy file with a header that was changed, and whose length is right again."""
    size = int.from_bytes(raw[8:10], "little")
    text, body, version = raw[10 : 10 + size].decode("latin-1"), raw[10 + size :], (1, 0)
    for _ in range(often_one(rng)):
        kind = rng.randrange(9)
        if kind == 0:
            text = re.sub(r"'descr': '[^']*'", f"'descr': '{rng.choice(_DESCRS)}'", text, count=1)
        elif kind == 1:
            text = re.sub(r"'shape': \([^)]*\)", f"'shape': {rng.choice(_SHAPES)}", text, count=1)
        elif kind == 2:
            text = re.sub(r"'shape': \([^)]*\)", lambda _: f"'shape': {rng.choice(_TOKENS)}", text, count=1)
        elif kind == 3:
            text = re.sub(r"True|False", rng.choice(["True", "False", "0", "1", "None", "''"]), text, count=1)
        elif kind in (4, 5):
            tokens = _TOKEN.findall(text)
            at = rng.randrange(len(tokens)) if tokens else 0
            tokens[at : at + rng.randrange(2)] = [rng.choice(_TOKENS)]
            text = "".join(tokens)
        elif kind == 6:
            inner = re.findall(r"'\w+': (?:'[^']*'|\([^)]*\)|\w+)", text)
            rng.shuffle(inner)
            text = (
                "{"
                + rng.choice([", ", ",", " , "]).join(inner)
                + rng.choice(["", ","])
                + "}"
                + rng.choice(["\n", "", " # x\n"])
            )
        elif kind == 7:
            version = rng.choice([(1, 0), (2, 0), (3, 0), (4, 0), (1, 1)])
        else:
            body = damage(rng, body) if body else b"\0"
    lie = rng.choice([0] * 19 + [rng.choice([-1, 1, 10, 60000])])
    return wrapped(text.encode("latin-1", "replace"), version, body, lie)


def one(rng: Random) -> bytes:
    """An npy file, mostly edited."""
    raw = rng.choice(_files())
    kind = rng.random()
    if kind < 0.75:
        return edited(rng, raw)
    if kind < 0.9:
        return damage(rng, raw)
    return splice(rng, raw, rng.choice(_files())) if kind < 0.95 else raw


class Npy(Pair):
    package = "numpy"
    words = "`numpy.lib.format.read_array(allow_pickle=False)`, array after array"

    def generate(self, rng: Random) -> bytes:
        raw = one(rng)
        return raw + one(rng) if rng.random() < 0.05 else raw

    def ours(self, raw: bytes) -> Any:
        found = tb.loads(raw, "npy", limits=LIMITS)
        return [plain(x) for x in (found if type(found) is list else [found])]

    def theirs(self, raw: bytes) -> Any:
        file, out = io.BytesIO(raw), []
        while not out or file.tell() < len(raw):
            try:
                out.append(plain(np.lib.format.read_array(file, allow_pickle=False)))
            except Exception:
                if not out:
                    raise
                return [*out, "and what np.load passes over"]
        return out


class Npz(Pair):
    package = "numpy"
    words = "`numpy.load(allow_pickle=False)`, each array"

    @cached_property
    def _kinds(self) -> list[int]:
        return [zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]

    def generate(self, rng: Random) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", rng.choice(self._kinds)) as archive:
            for name in rng.sample(["a", "b", "x/y", "arr_0", "é", ""], rng.randrange(1, 4)):
                raw = one(rng) if rng.random() < 0.35 else rng.choice(_files())
                suffix = ".npy" if rng.random() < 0.95 else rng.choice(["", ".txt", ".NPY", ".npy.npy"])
                archive.writestr(zipfile.ZipInfo(name + suffix), raw)
            if rng.random() < 0.05:
                archive.comment = rng.choice([b"x", b"PK\5\6" + bytes(18)])
        raw = file.getvalue()
        if rng.random() < 0.6:
            for _ in range(often_one(rng)):
                raw = damage(rng, raw) if rng.random() < 0.4 else _directory(rng, raw)
        return raw

    def ours(self, raw: bytes) -> Any:
        found = tb.loads(raw, "npz", limits=LIMITS)
        assert isinstance(found, dict)
        return {name: plain(x) for name, x in found.items()}

    def theirs(self, raw: bytes) -> Any:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("no archive")
            found = {name: archive[name] for name in archive.files}
        return {name: plain(x) if isinstance(x, np.ndarray) else ("bytes", x) for name, x in found.items()}


def _directory(rng: Random, raw: bytes) -> bytes:
    """A field of a header of the archive becomes another: lengths, offsets, methods, flags, checksums."""
    marks = [match.start() for match in re.finditer(rb"PK(?:\x01\x02|\x03\x04|\x05\x06)", raw)]
    if not marks:
        return damage(rng, raw)
    at = rng.choice(marks)
    sizes = {b"\1\2": [4, 6, 8, 10, 12, 16, 20, 24, 28, 30, 32, 34, 36, 38, 42], b"\3\4": [4, 6, 8, 10, 14, 18, 22,
    26, 28],
             b"\5\6": [4, 6, 8, 10, 12, 16, 20]}  # fmt: skip
    at += rng.choice(sizes[raw[at + 2 : at + 4]])
    width = rng.choice([1, 2, 4])
    value = int.from_bytes(raw[at : at + width], "little")
    value = rng.choice([value + 1, value - 1, 0, 1, 8, 0xFFFF, 0xFFFFFFFF, value ^ 1 << rng.randrange(16)])
    return raw[:at] + (value % (1 << 8 * width)).to_bytes(width, "little") + raw[at + width :]
