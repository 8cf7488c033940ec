"""compression="auto": looks at samples of a tensor, tries what suits its dtype, leaves noise alone.

The smallest result wins; a faster pipeline is preferred while it is no more than a hundredth
larger. What saves less than a fiftieth is not worth a reader's time: such tensors stay raw.
"""

from __future__ import annotations

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
# Looking must cost little beside compressing: a sixteenth of the tensor is looked at, within these bounds.
_SHARE = 16
_LEAST_SAMPLE, _MOST_SAMPLE = 1 << 15, 1 << 18
_BLOCKS = 4
_WORTHWHILE = 0.98
_NEARLY = 1.01


def choose(data: memoryview, elements: Elements) -> Pipeline | None:
    """The pipeline for a tensor; None to leave it raw."""
    if len(data) < _LEAST_BYTES:
        return None
    sample = _sample(data, elements.width)
    if sample == bytes([sample[0]]) * len(sample):
        return Pipeline(codec="huffman")  # a byte for each chunk
    if _hopeless(sample, elements):
        return None
    best, smallest = None, len(sample) * _WORTHWHILE
    for text in _CANDIDATES[elements.family]:
        pipeline = Pipeline.parse(text).fitted(elements)
        if pipeline is None:
            continue
        size = _size(pipeline, sample, elements)
        if size * (_NEARLY if best else 1) < smallest:
            best, smallest = pipeline, size
    return best


def _size(pipeline: Pipeline, sample: memoryview, elements: Elements) -> int:
    return memoryview(pipeline.encode(sample, elements)).nbytes


def _sample(data: memoryview, width: int) -> memoryview:
    """Stretches from the whole of it, joined; all of a small tensor."""
    size = min(max(len(data) // _SHARE, _LEAST_SAMPLE), _MOST_SAMPLE) // _BLOCKS // width * width
    if len(data) <= _BLOCKS * size:
        return data
    step = (len(data) - size) // (_BLOCKS - 1)
    starts = [step * k // width * width for k in range(_BLOCKS)]
    return memoryview(b"".join(data[start : start + size] for start in starts))


def _hopeless(sample: memoryview, elements: Elements) -> bool:
    """Whether bytes are even in every plane, and nothing repeats: two quick looks spare all the others."""
    planes = Pipeline(layout="shuffle" if elements.width > 1 else "", codec="huffman")
    sizes = _size(planes, sample, elements), _size(Pipeline(codec="lz4"), sample, elements)
    return min(sizes) > len(sample) * _WORTHWHILE
