"""PNG files from arrays."""

from __future__ import annotations

import base64
import struct

import numpy as np

from tensorbytes.io.checksums import crc32
from tensorbytes.io.streams.engines import deflate_whole
from tensorbytes.tensor import Array
from tensorbytes.typing import bytes_view

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_INDEXED = 3
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # by the number of channels: grey, grey and alpha, RGB, RGBA


def _chunk(kind: bytes, data: bytes) -> bytes:
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", crc32(memoryview(body)))


def encode(pixels: Array, palette: Array | None = None) -> bytes:
    """A PNG of uint8 pixels, [height, width] or [height, width, channels].

    With a palette, RGBA in [colours, 4], pixels are the numbers of its colours.
    """
    planes = pixels[:, :, None] if pixels.ndim == 2 else pixels
    height, width, channels = planes.shape
    kind = _COLOUR_TYPES[channels] if palette is None else _INDEXED
    chunks = [_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0))]
    if palette is not None:
        chunks += [_chunk(b"PLTE", palette[:, :3].tobytes()), _chunk(b"tRNS", palette[:, 3].tobytes())]
    rows = np.ascontiguousarray(planes, np.uint8).reshape(height, width * channels)
    # Each row starts with its filter. Differences from the left suit pictures, and hinder numbers of colours.
    filtered = np.zeros((height, 1 + width * channels), np.uint8)
    filtered[:, 1:] = rows
    if palette is None and width > 1:
        filtered[:, 0] = 1
        filtered[:, 1 + channels :] = rows[:, channels:] - rows[:, :-channels]
    chunks += [_chunk(b"IDAT", deflate_whole("zlib", [bytes_view(filtered)], 7)), _chunk(b"IEND", b"")]
    return _SIGNATURE + b"".join(chunks)


def data_uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}"


# How the first bytes of a picture that browsers show look.
_STARTS = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (_SIGNATURE, "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
)


def picture_kind(data: bytes, size: int) -> str | None:
    """The media type of a JPEG, PNG, GIF, WebP or BMP picture of some size that starts like this; None for others."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    for start, kind in _STARTS:
        if data.startswith(start):
            # "BM" may well begin a text: the header of a bitmap follows, with its length, which it says.
            said = struct.unpack_from("<I", data, 2)[0] if len(data) >= 26 else 0
            return kind if kind != "image/bmp" or said == size else None
    return None
