"""Our own entropy coder: no search for repetitions, so it is fast, and right for what has none."""

from __future__ import annotations

import numpy as np

from tensorbytes._wire import HUFFMAN_SLACK, huffman_decode, huffman_encode
from tensorbytes.codecs import Codec
from tensorbytes.io.streams.engines import DamagedError
from tensorbytes.typing import Buffer


class Huffman(Codec):
    name = "huffman"

    def compress(self, data: memoryview, level: int | None) -> Buffer:
        out = np.empty(len(data) + HUFFMAN_SLACK, np.uint8)
        size = huffman_encode(data, out)
        return out[:size].data if size else data

    def decompress(self, data: memoryview, out: memoryview) -> None:
        if not huffman_decode(data, out):
            raise DamagedError("a Huffman code that is not sound")


CODECS = {"huffman": Huffman()}
