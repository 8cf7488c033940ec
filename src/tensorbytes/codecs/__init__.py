"""The codecs: each module turns bytes into fewer bytes and back.

A codec is one row in BUILTIN, and an object in CODECS of the module there that fills in the
class `Codec` below. pipelines.py puts filters before them, which rearrange numbers so
that codecs find more to save; chunked.py cuts tensors into pieces; choice.py is "auto".
"""

from __future__ import annotations

import importlib
from functools import cache

from tensorbytes import plugins
from tensorbytes.errors import UsageError, unknown
from tensorbytes.typing import Buffer

ENTRY_POINTS = "tensorbytes.codecs"
# name -> module
BUILTIN: dict[str, str] = {
    "zstd": "tensorbytes.codecs.libraries",
    "lz4": "tensorbytes.codecs.libraries",
    "gzip": "tensorbytes.codecs.libraries",
    "zlib": "tensorbytes.codecs.libraries",
    "snappy": "tensorbytes.codecs.libraries",
    "huffman": "tensorbytes.codecs.huffman",
}


class Codec:
    """What every codec provides. Both functions may run in several threads at once."""

    name: str
    levels: range = range(0)  # what level= may be; empty where there are none

    def compress(self, data: memoryview, level: int | None) -> Buffer:
        """Fewer bytes, or as many or more: then the caller keeps what it has. Never exactly one of a longer plane
        unless all its bytes have that value."""
        raise NotImplementedError

    def decompress(self, data: memoryview, out: memoryview) -> None:
        """Fill `out`, no more and no less, or raise DamagedError."""
        raise NotImplementedError


@cache
def get(name: str) -> Codec:
    """The codec of this name."""
    if name not in BUILTIN and name not in find_plugins():
        raise unknown("codec", name, BUILTIN)
    found: Codec = importlib.import_module(BUILTIN[name]).CODECS[name]
    return found


def register(name: str, module: str) -> None:
    """Add a codec to the table: CODECS[name] of `module` fills in the class Codec.

    Packages that are installed need no call: an entry point of the group "tensorbytes.codecs" has the codec's name and
    its module. Whoever reads what it compressed needs the same package.
    """
    if name in BUILTIN:
        raise UsageError(f"there is a codec {name!r} already, in {BUILTIN[name]}")
    BUILTIN[name] = module


@cache
def find_plugins() -> list[str]:
    """The codecs of other packages that are installed; from now on they are in the table."""
    return plugins.take_in(ENTRY_POINTS, BUILTIN, lambda name, module: register(name, module.__name__))


def check_level(codec: Codec, level: int | None) -> None:
    if level is not None and level not in codec.levels:
        have = f"from {codec.levels[0]} to {codec.levels[-1]}" if codec.levels else "none"
        raise UsageError(f"codec {codec.name!r} has no level {level}; its levels: {have}")
