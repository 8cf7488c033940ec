"""The framing that TFRecord files and `.tb` files share: records one after the other, each with its checksums.

u64le  length            u32le  masked CRC-32C of the length
bytes  payload           u32le  masked CRC-32C of the payload
"""

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
