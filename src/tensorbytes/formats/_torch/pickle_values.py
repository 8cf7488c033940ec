"""What a pickle's machine makes beside plain values, and how it says what is wrong."""

from __future__ import annotations

from typing import Any

from tensorbytes.formats._torch.unread import Opaque


class FaultError(Exception):
    """Something in a pickle that no sound writer produces; the machine adds the place."""


class RefusedError(Exception):
    """Something sound that is not read here; the machine adds the place."""


class ByteArray(Opaque):
    """Bytes that can be changed: nothing but what NumPy makes arrays of."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        super().__init__("bytearray", "bytes that can be changed; save bytes")
        self.data = data


class _OddKey:
    """Stands in a dict for keys that are not read; the value under it says which."""


ODD_KEY = _OddKey()


class Ordered(dict[Any, Any]):
    """An OrderedDict: the only thing whose attributes may be set."""

    __slots__ = ("attributes",)
    attributes: dict[str, Any]


def put(target: dict[Any, Any], keys: list[Any], values: list[Any]) -> None:
    """Add items to a dict, under keys of text or integers. Others leave a mark: such a dict is not read."""
    odd = next((key for key in keys if not _is_key(key)), None)
    if odd is not None or ODD_KEY in target or None in keys:
        what = odd.what if isinstance(odd, Opaque) else type(odd).__name__
        why = f"a dict key of type {what}; keys are text or 64-bit integers"
        target.setdefault(ODD_KEY, Opaque("dict", why))
        return
    before = len(target)
    target.update(zip(keys, values, strict=True))
    if len(target) != before + len(keys):
        raise FaultError("a dict has a key twice")


def _is_key(key: Any) -> bool:
    return type(key) is str or (type(key) is int and -(1 << 63) <= key < 1 << 63)
