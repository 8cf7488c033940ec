"""What bytes look like, with the size of a picture where its first bytes tell it."""

from __future__ import annotations

import struct


def looks_like(data: bytes) -> str:
    """text, JSON, JPEG 640x480, PNG 28x28, npy, tensorproto float32[2, 3] ...; "bytes" is anything."""
    from tensorbytes.ops.profile import content_of

    kind = content_of(data)
    size = picture_size(kind, data)
    return kind if size is None else f"{kind} {size[0]}x{size[1]}"


def picture_size(kind: str, data: bytes) -> tuple[int, int] | None:
    """(width, height) of a picture, by its header."""
    if kind == "PNG" and len(data) >= 24:
        return struct.unpack(">II", data[16:24])
    if kind == "GIF" and len(data) >= 10:
        return struct.unpack("<HH", data[6:10])
    return _jpeg_size(data) if kind == "JPEG" else None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
            continue
        if marker == 0x01 or 0xD0 <= marker <= 0xD7:  # without a length
            at += 2
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # the start of a frame
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if length < 2:
            return None
        at += 2 + length
    return None
