"""compression="auto": looks at samples of a tensor, tries what suits its dtype, leaves noise alone.

The smallest result wins; a faster pipeline is preferred while it is no more than a hundredth
larger. What saves less than a fiftieth is not worth a reader's time: such tensors stay raw.
"""

from __future__ import annotations

from tensorbytes import codecs
from tensorbytes.codecs.pipelines import Elements, Pipeline

# Fastest first, by how they measure (spec/decisions/0007-codecs.md); each has its turn.
_WHOLE_NUMBERS = (
    "pack",
    "shuffle+huffman",
    "delta+shuffle+huffman",
    "delta+pack",
    "pack+zstd",
    "shuffle+zstd:1",
    "delta+shuffle+zstd:1",
    "delta+pack+zstd",
    "zstd",
)
_CANDIDATES = {
    "float": ("split+huffman", "shuffle+huffman", "shuffle+zstd:1", "zstd"),
    "signed": _WHOLE_NUMBERS,
    "unsigned": _WHOLE_NUMBERS,
    "bytes": ("zstd",),
}
# Tensors smaller than this have more head than content already.
_LEAST_BYTES = 256
_BLOCK_BYTES = 1 << 16
_BLOCKS = 4
_WORTHWHILE = 0.98
_NEARLY = 1.01


def choose(data: memoryview, elements: Elements) -> Pipeline | None:
    """The pipeline for a tensor; None to leave it raw."""
    if len(data) < _LEAST_BYTES:
        return None
    blocks = _samples(data, elements.width)
    if _hopeless(blocks, elements):
        return None
    total = sum(map(len, blocks))
    best, smallest = None, total * _WORTHWHILE
    for text in _CANDIDATES[elements.family]:
        pipeline = Pipeline.parse(text).fitted(elements)
        if pipeline is None:
            continue
        size = sum(memoryview(pipeline.encode(block, elements)).nbytes for block in blocks)
        if size * (_NEARLY if best else 1) < smallest:
            best, smallest = pipeline, size
    return best


def _samples(data: memoryview, width: int) -> list[memoryview]:
    """Stretches from the whole of it, starting at elements; all of a small tensor."""
    if len(data) <= _BLOCKS * _BLOCK_BYTES:
        return [data]
    step = (len(data) - _BLOCK_BYTES) // (_BLOCKS - 1)
    starts = [step * k // width * width for k in range(_BLOCKS)]
    return [data[start : start + _BLOCK_BYTES] for start in starts]


def _hopeless(blocks: list[memoryview], elements: Elements) -> bool:
    """Whether bytes are even in every plane, and nothing repeats: two quick looks spare all the others."""
    raw = Pipeline(layout="shuffle" if elements.width > 1 else "", codec="huffman")
    entropy = sum(memoryview(raw.encode(block, elements)).nbytes for block in blocks)
    repeats = sum(memoryview(codecs.get("lz4").compress(block, None)).nbytes for block in blocks)
    total = sum(map(len, blocks))
    return min(entropy, repeats) > total * _WORTHWHILE
