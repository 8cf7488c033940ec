"""compression="auto": looks at samples of a tensor, tries what suits its dtype, leaves noise alone.

A few stretches show which pipelines are worth a try and, where searching for repetitions pays, a whole
chunk or two which of these is best: what codecs find depends on how much they see. The smallest result
wins; a faster pipeline is preferred while it is no more than a hundredth larger. What saves
less than a fiftieth is not worth a reader's time: such tensors stay raw.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tensorbytes.codecs import chunked
from tensorbytes.codecs.pipelines import Elements, Pipeline
from tensorbytes.io.workers import count_threads, map_in_order

# Fastest first, by how they measure (spec/decisions/0007-codecs.md); each has its turn.
_WHOLE_NUMBERS = (
    "pack",
    "shuffle+huffman",
    "pack+huffman",
    "delta+shuffle+huffman",
    "delta+pack",
    "shuffle+zstd:1",
    "pack+zstd",
    "delta+shuffle+zstd:1",
    "delta+pack+zstd",
    "zstd",
    "pack+gzip",
)
_CANDIDATES = {
    "float": ("split+huffman", "shuffle+huffman", "shuffle+zstd:1", "split+zstd:1", "zstd"),
    "signed": _WHOLE_NUMBERS,
    "unsigned": _WHOLE_NUMBERS,
    "bytes": ("zstd",),
}
# Tensors smaller than this have more head than content already.
_LEAST_BYTES = 256
# Looking must cost little beside compressing: a part in 32 of the tensor is looked at, within these bounds.
_SHARE = 32
_LEAST_SAMPLE, _MOST_SAMPLE = 1 << 15, 1 << 17
_BLOCKS = 4
_WORTHWHILE = 0.98
_NEARLY = 1.01
# How much of a tensor shows whether searching its planes pays, where nothing repeats in its bytes as they are.
_LITTLE = 1 << 14
# How far the looks of two tensors may differ, in shares of their bytes, to get the same; and how many are kept.
_LIKE = 0.01
_MOST_CHOICES = 16
# How much larger than the best a stretch may be after the first look, to be looked at again.
_PROMISING = 1.1


class Choices:
    """What was chosen for the tensors of one file so far: one that looks like another of its kind gets the same.

    Looks are three: the share that is left by codes of its planes, by a search for repetitions, and by what was chosen.
    """

    def __init__(self) -> None:
        self._made: dict[Elements, list[tuple[Pipeline, float, float, float]]] = {}

    def find(self, elements: Elements, looks: _Looks) -> Pipeline | None:
        for pipeline, *before in self._made.get(elements, ()):
            near = all(abs(old - new) < _LIKE for old, new in zip(before, (looks.coded, looks.searched), strict=False))
            if near and abs(looks.share(pipeline) - before[2]) < _LIKE:
                return pipeline
        return None

    def add(self, elements: Elements, looks: _Looks, pipeline: Pipeline) -> None:
        made = self._made.setdefault(elements, [])
        if len(made) < _MOST_CHOICES:
            made.append((pipeline, looks.coded, looks.searched, looks.share(pipeline)))


class _Looks:
    """What pipelines leave of a sample of a tensor; each is tried once."""

    def __init__(self, sample: memoryview, stretch: int, elements: Elements) -> None:
        self._sample, self._elements = sample, elements
        # The leap from one stretch to the next is no difference of neighbours: these are looked at one by one.
        self._stretches = [sample[at : at + stretch] for at in range(0, len(sample), stretch)]
        self._sizes: dict[Pipeline, int] = {}
        # Two quick looks spare most others: whether bytes are uneven in any plane, and whether any repeat.
        self.coded = self.share(Pipeline(layout="shuffle" if elements.width > 1 else "", codec="huffman"))
        half = sample[: (len(sample) + 1) // 2]
        self.searched = _size(Pipeline(codec="lz4"), [half], elements) / len(half)

    def size(self, pipeline: Pipeline) -> int:
        found = self._sizes.get(pipeline)
        if found is None:
            seen = self._stretches if pipeline.delta else [self._sample]
            found = self._sizes[pipeline] = _size(pipeline, seen, self._elements)
        return found

    def share(self, pipeline: Pipeline) -> float:
        return self.size(pipeline) / len(self._sample)


def choose(data: memoryview, elements: Elements, known: Choices | None = None) -> Pipeline | None:
    """The pipeline for a tensor; None to leave it raw. `known`: what was chosen for others, to be added to."""
    if len(data) < _LEAST_BYTES:
        return None
    sample, stretch = _sample(data, elements.width)
    if _constant(sample):
        return _mostly_constant(data, elements)
    looks = _Looks(sample, stretch, elements)
    if min(looks.coded, looks.searched) > _WORTHWHILE:
        return None
    found = known.find(elements, looks) if known is not None else None
    if found is None:
        found = _choose(data, elements, sample, looks)
        if known is not None and found is not None:
            known.add(elements, looks, found)
    return found


def _choose(data: memoryview, elements: Elements, sample: memoryview, looks: _Looks) -> Pipeline | None:
    candidates = _candidates(elements)
    if looks.searched > _WORTHWHILE and not _planes_repeat(candidates, elements, sample):
        candidates = [pipeline for pipeline in candidates if not _searches(pipeline)]
    sizes, total = {pipeline: looks.size(pipeline) for pipeline in candidates}, len(sample)
    if total < len(data) and _searching_pays(sizes):
        hopeful = _hopeful(sizes, total)
        blocks = _chunks(data)
        again = map_in_order(lambda pipeline: _size(pipeline, blocks, elements), hopeful, count_threads())
        sizes, total = dict(zip(hopeful, again, strict=True)), sum(map(len, blocks))
    return _best(sizes, total)


def _planes_repeat(candidates: list[Pipeline], elements: Elements, sample: memoryview) -> bool:
    """Whether a search would find anything in another order of the bytes, where nothing repeats as it is.

    A little of the sample tells. Whether the sign of floats was moved changes nothing about it."""
    middle = len(sample) // 2 // elements.width * elements.width
    little = [sample[middle : middle + _LITTLE]]
    sizes = {
        pipeline: _size(pipeline, little, elements)
        for pipeline in candidates
        if pipeline.layout and pipeline.layout != "split"
    }
    return not sizes or _searching_pays(sizes)


def _mostly_constant(data: memoryview, elements: Elements) -> Pipeline:
    """The pipeline where nothing but one byte was seen: by what else there is. Constant chunks take next to nothing."""
    whole = (data[at : at + chunked.CHUNK_BYTES] for at in range(0, len(data), chunked.CHUNK_BYTES))
    other = [chunk for chunk in whole if not _constant(chunk)]
    blocks = other[len(other) // 2 :][:1]
    sizes = {pipeline: _size(pipeline, blocks, elements) for pipeline in _candidates(elements) if blocks}
    return _best(sizes, sum(map(len, blocks))) or Pipeline(codec="huffman")


def _candidates(elements: Elements) -> list[Pipeline]:
    """Each once: of several little may be left for a dtype."""
    fitted = (Pipeline.parse(text).fitted(elements) for text in _CANDIDATES[elements.family])
    return [pipeline for pipeline in dict.fromkeys(fitted) if pipeline is not None]


def _best(sizes: dict[Pipeline, int], total: int) -> Pipeline | None:
    """The smallest, or a faster one that is nearly as small, if it is worth it."""
    best, smallest = None, total * _WORTHWHILE
    for pipeline, size in sizes.items():
        if size * (_NEARLY if best else 1) < smallest:
            best, smallest = pipeline, size
    return best


def _size(pipeline: Pipeline, blocks: list[memoryview], elements: Elements) -> int:
    return sum(memoryview(pipeline.encode(block, elements)).nbytes for block in blocks)


def _searching_pays(sizes: dict[Pipeline, int]) -> bool:
    """Whether a codec that looks for repetitions does better than one that only counts, in any order of the bytes."""
    default = min(sizes.values()) * _PROMISING
    return any(
        size < _WORTHWHILE * sizes.get(replace(pipeline, codec="huffman", level=None), default)
        for pipeline, size in sizes.items()
        if _searches(pipeline)
    )


def _searches(pipeline: Pipeline) -> bool:
    return pipeline.codec not in ("", "huffman")


def _hopeful(sizes: dict[Pipeline, int], total: int) -> list[Pipeline]:
    """Those near the smallest, fastest first; but one of those that don't search, which more bytes change little."""
    limit = min(sizes.values()) * _PROMISING + total / 128  # heads of codecs weigh more in a stretch than in a chunk
    counting = [pipeline for pipeline in sizes if not _searches(pipeline)]
    least = min((sizes[pipeline] for pipeline in counting), default=0)
    first = next((pipeline for pipeline in counting if sizes[pipeline] <= least * _NEARLY), None)
    near = [pipeline for pipeline, size in sizes.items() if size <= limit]
    return [pipeline for pipeline in near if _searches(pipeline) or pipeline == first]


def _constant(data: memoryview) -> bool:
    values = np.frombuffer(data, np.uint8)
    return bool((values == values[0]).all())


def _sample(data: memoryview, width: int) -> tuple[memoryview, int]:
    """Stretches from the whole of it, starting at elements, one after another, and their size; all if it is small."""
    size = min(max(len(data) // _SHARE, _LEAST_SAMPLE), _MOST_SAMPLE) // _BLOCKS // width * width
    if len(data) <= max(_BLOCKS * size, chunked.CHUNK_BYTES // 4):
        return data, len(data)
    step = (len(data) - size) // (_BLOCKS - 1)
    starts = (step * k // width * width for k in range(_BLOCKS))
    return memoryview(b"".join(data[start : start + size] for start in starts)), size


def _chunks(data: memoryview) -> list[memoryview]:
    """Two chunks as they will be stored, a third and two thirds in; one of a small tensor."""
    count = max(len(data) // chunked.CHUNK_BYTES, 1)  # a last one that is not whole says less
    numbers = sorted({count // 3, count * 2 // 3}) if count >= 4 else [count // 2]
    return [data[chunked.CHUNK_BYTES * k : chunked.CHUNK_BYTES * (k + 1)] for k in numbers]
