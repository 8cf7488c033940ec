"""The framing that TFRecord files and `.tb` files share: records one after the other, each with its checksums.

u64le  length            u32le  masked CRC-32C of the length
bytes  payload           u32le  masked CRC-32C of the payload
"""

from tensorbytes._wire import frame_header

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES


def is_record_header(head: bytes) -> bool:
    """Whether the first 12 bytes are a length and the checksum of it."""
    start = bytes(head[:HEADER_BYTES])
    return len(start) == HEADER_BYTES and start == frame_header(int.from_bytes(start[:8], "little"))
