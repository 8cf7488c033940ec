"""What records are like: in how many of them a feature is, how many values it has, what its bytes look like.

By default the first records are looked at, 1,000 of them or 16 MB, whichever comes first. Event files are
counted by tag in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tensorbytes import _wire, formats
from tensorbytes.errors import LIMITS, CorruptError, Limits, SchemaError, TensorbytesError, UsageError
from tensorbytes.formats import _json
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files.bytestreams import open_stream
from tensorbytes.formats.tfrecord.files.framing import RecordBlock, blocks
from tensorbytes.formats.tfrecord.read.infer import Inference
from tensorbytes.io.paths import byte_range
from tensorbytes.tensor import Array
from tensorbytes.typing import bytes_view

Range = tuple[int, int]

FIRST_RECORDS, FIRST_BYTES = 1000, 16 << 20
# Events are small, and those of one tag are far apart.
FIRST_EVENTS = 100_000
# Values of a feature that are looked at to say what they are, and bytes of each.
_MOST_VALUES, _VALUES_OF_A_BLOCK = 64, 16
_HEAD_BYTES = 4096
_MOST_KINDS = 3

_SIGNS = (
    ("JPEG", re.compile(rb"\xff\xd8\xff")),
    ("PNG", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("GIF", re.compile(rb"GIF8[79]a")),
    ("WebP", re.compile(rb"RIFF.{4}WEBP", re.DOTALL)),
    ("TIFF", re.compile(rb"II\*\0|MM\0\*")),
    ("WAV", re.compile(rb"RIFF.{4}WAVE", re.DOTALL)),
    ("FLAC", re.compile(rb"fLaC")),
    ("Ogg", re.compile(rb"OggS\0")),
    ("MP3", re.compile(rb"ID3[\x02-\x04]")),
    ("MP4", re.compile(rb".{4}ftyp", re.DOTALL)),
    ("npy", re.compile(rb"\x93NUMPY")),
    ("gzip", re.compile(rb"\x1f\x8b\x08")),
    ("zip", re.compile(rb"PK\x03\x04")),
    ("HDF5", re.compile(rb"\x89HDF\r\n\x1a\n")),
    ("pickle", re.compile(rb"\x80[\x02-\x05][\x28-\xff]")),
)
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Bound(NamedTuple):
    """How much is looked at; None is all."""

    records: int | None
    nbytes: int | None

    @classmethod
    def of(cls, scan: int | str | None, records: int = FIRST_RECORDS) -> Bound:
        if scan is None:
            return cls(records, FIRST_BYTES)
        if scan == "all":
            return cls(None, None)
        if not isinstance(scan, int) or isinstance(scan, bool) or scan < 1:
            raise UsageError(f"scan={scan!r}", expected="a number of records, or 'all'")
        return cls(scan, None)


@dataclass(slots=True)
class Seen:
    """What one feature was like in the records that were looked at."""

    present: int = 0
    lengths: Range | None = None
    sizes: Range | None = None  # bytes of a value
    steps: Range | None = None
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def content(self) -> str:
        """What the bytes look like, the most frequent first."""
        kinds = self.kinds
        if len(kinds) > 1:  # tensors of several shapes are tensors
            kinds = Counter()
            for kind, number in self.kinds.items():
                kinds[kind.partition(" ")[0]] += number
        named = [kind for kind, _ in kinds.most_common(_MOST_KINDS)]
        return "" if named == ["bytes"] else ", ".join(named)


@dataclass
class Profile:
    """The result: a schema as the records show it, and what each feature was like."""

    records: int
    complete: bool  # whether these are all
    schema: Any
    features: dict[str, Seen]
    lists: dict[str, Seen]
    compression: str
    damage: str = ""  # what kept it from going on
    contradiction: str = ""  # or a record that does not go with those before it
    size: int | None = None  # bytes of the files, where they say so


class _Watch:
    """Takes note of what inference comes across."""

    def __init__(self) -> None:
        self.found: tuple[dict[str, Seen], dict[str, Seen]] = ({}, {})

    def values(self, name: str, in_lists: bool, block: RecordBlock, kind: int, spans: Array, splits: Array) -> None:
        seen = self.found[in_lists].setdefault(name, Seen())
        if kind != example.BYTES or not splits[-1]:
            return
        offsets = np.empty(int(splits[-1]) + 1, np.int64)
        _, size = _wire.example_count(block.data, spans, kind, np.empty_like(splits))
        data = np.empty(size, np.uint8)
        _wire.example_fill_bytes(block.data, spans, offsets, data)
        seen.sizes = _widen(seen.sizes, np.diff(offsets))
        some = min(_VALUES_OF_A_BLOCK, _MOST_VALUES - seen.kinds.total())
        view = bytes_view(data)
        for start, stop in zip(offsets[:some].tolist(), offsets[1 : some + 1].tolist(), strict=False):
            if stop > start:
                seen.kinds[content_of(view[start:stop])] += 1

    def steps(self, name: str, counts: Array) -> None:
        seen = self.found[True].setdefault(name, Seen())
        seen.steps = _widen(seen.steps, counts)


def _widen(before: Range | None, numbers: Array) -> Range | None:
    if not len(numbers):
        return before
    low, high = int(numbers.min()), int(numbers.max())
    return (low, high) if before is None else (min(low, before[0]), max(high, before[1]))


def profile(targets: Sequence[Any], compression: str, bound: Bound, limits: Limits = LIMITS) -> Profile:
    """Look at the first records of some files.

    Damage, and records that contradict those before them, end it: what came before is told, with the reason.
    If nothing came before, they raise.
    """
    watch = _Watch()
    inference = Inference(limits, watch)
    met = _Met()
    problem = contradiction = ""
    try:
        for block in _first_blocks(targets, compression, bound, limits, met):
            _add(inference, block)
    except (CorruptError, SchemaError) as error:
        if not inference.records:
            raise
        if isinstance(error, SchemaError):
            contradiction = str(error)
        else:
            problem = error.fault
    for gathered, found in zip((inference.features, inference.lists), watch.found, strict=True):
        for name, about in gathered.items():
            seen = found.setdefault(name, Seen())
            seen.present = about.present
            seen.lengths = None if about.shortest is None else (about.shortest, about.longest)
    complete = met.all and not problem and not contradiction
    return Profile(
        inference.records,
        complete,
        inference.schema(complete=complete),
        *watch.found,
        met.compression,
        problem,
        contradiction,
        met.size,
    )


def _add(inference: Inference, block: RecordBlock) -> None:
    """Add the records of a block; if one contradicts those before it, add these, and raise."""
    before = inference.copy()
    try:
        inference.add(block)
        return
    except SchemaError as error:
        failure = error
    good, bad = 0, len(block.records)
    while bad - good > 1:
        middle = (good + bad) // 2
        trial = before.copy()
        try:
            trial.add(block._replace(records=block.records[:middle]))
            good = middle
        except SchemaError:
            bad = middle
    inference.features, inference.lists, inference.known = before.features, before.lists, before.known
    inference.records = before.records
    if good:
        inference.add(block._replace(records=block.records[:good]))
    raise failure


@dataclass
class _Met:
    """What was found out on the way through the files."""

    compression: str = "none"
    all: bool = False
    size: int | None = 0


def _first_blocks(
    targets: Sequence[Any], compression: str, bound: Bound, limits: Limits, met: _Met
) -> Iterator[RecordBlock]:
    """Blocks of the first records of some files."""
    room, left = bound.nbytes, bound.records
    for number, target in enumerate(targets):
        path, start, end = byte_range(target)
        with open_stream(path, compression, start, end, limits=limits) as stream:
            if not number:
                met.compression = stream.compression
            met.size = None if met.size is None or stream.total is None else met.size + stream.total
            with closing(blocks(stream, base=start, limits=limits)) as found:  # type: ignore[type-var]
                for block in found:
                    if left is not None and left < len(block.records):
                        block = block._replace(records=block.records[:left])
                        left = 0
                    elif left is not None:
                        left -= len(block.records)
                    if room is not None:
                        stops = block.records.sum(axis=1)
                        kept = max(1, int(np.searchsorted(stops, room, side="right")))
                        room = max(room - int(stops[-1]), 0) if kept >= len(stops) else 0
                        block = block._replace(records=block.records[:kept])
                    yield block
                    if left == 0 or room == 0:
                        return
            if stream.unfinished:
                met.compression += ", flushed and not finished"
    met.all = True


def content_of(value: memoryview | bytes) -> str:
    """What some bytes look like: "JPEG", "text", "tensorproto float32[2, 3]" ...; "bytes" is anything."""
    head = bytes(value[:_HEAD_BYTES])
    for name, sign in _SIGNS:
        if sign.match(head):
            return name
    if (text := _text(head, len(value))) is not None:
        return "JSON" if _is_json(text, len(value) > len(head)) else "text"
    proto = formats.get("tensorproto")
    if proto.sniff(head, len(value)):
        try:
            (document,) = proto.decode(memoryview(value), LIMITS, True, {})
            leaf = document.leaves[0].value
            return f"tensorproto {getattr(leaf, 'dtype', 'string')}{list(getattr(leaf, 'shape', ()))}"
        except (TensorbytesError, ValueError):
            pass
    return "bytes"


def _text(head: bytes, size: int) -> str | None:
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        if size == len(head) or error.start < len(head) - 3:  # the end may be in the middle of a character
            return None
        text = head[: error.start].decode()
    return None if _CONTROL.search(text) else text


def _is_json(text: str, cut: bool) -> bool:
    stripped = text.strip()
    if cut:
        return stripped.startswith(('{"', '[{"'))
    if not stripped.startswith(("{", "[")):
        return False
    try:
        _json.parse(memoryview(stripped.encode()), 0, "the value")
    except TensorbytesError:
        return False
    return True


# ---- records that are not Examples ----------------------------------------------


def payloads(
    targets: Sequence[Any], compression: str, bound: Bound, limits: Limits = LIMITS
) -> tuple[Seen, int, _Met, str]:
    """The same for records of anything: their sizes, what they look like, how many there were."""
    seen, met, problem = Seen(), _Met(), ""
    try:
        for block in _first_blocks(targets, compression, bound, limits, met):
            seen.present += len(block.records)
            seen.sizes = _widen(seen.sizes, block.records[:, 1])
            some = min(_VALUES_OF_A_BLOCK, _MOST_VALUES - seen.kinds.total())
            for start, size in block.records[:some].tolist():
                seen.kinds[content_of(block.data[start : start + size])] += 1
    except CorruptError as error:
        if not seen.present:
            raise
        problem = error.fault
    return seen, seen.present, met, problem


# ---- event files ---------------------------------------------------------------


@dataclass
class Tag:
    """What the events of one tag are like."""

    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    count: int = 0
    steps: Range | None = None


@dataclass
class Events:
    """All tags of some event files; `others` counts messages that have none: graphs, versions."""

    tags: dict[str, Tag]
    others: Counter[str]
    count: int
    complete: bool
    times: tuple[float, float] | None
    files: list[str]
    problem: str = ""


def events(target: Any, scan: int | str | None, limits: Limits = LIMITS) -> Events:
    """Count what is in event files by tag."""
    from tensorbytes.records.events import read_events

    bound = Bound.of(scan, FIRST_EVENTS).records
    found = Events({}, Counter(), 0, True, None, [])
    try:
        for event in read_events(target, live=True, limits=limits):
            if bound is not None and found.count == bound:
                found.complete = False
                break
            found.count += 1
            if event.path not in found.files:
                found.files.append(event.path)
            if event.kind not in ("file_version", "source"):
                low, high = found.times or (event.wall_time, event.wall_time)
                found.times = min(low, event.wall_time), max(high, event.wall_time)
            if event.tag:
                _note(found.tags, event)
            else:
                found.others[event.kind] += 1
    except CorruptError as error:
        if not found.count:
            raise
        found.complete, found.problem = False, error.fault
    return found


def _note(tags: dict[str, Tag], event: Any) -> None:
    dtype, shape = _describe(event.value)
    tag = tags.setdefault(event.tag, Tag(event.kind, dtype, shape))
    tag.count += 1
    low, high = tag.steps or (event.step, event.step)
    tag.steps = min(low, event.step), max(high, event.step)
    if event.kind != tag.kind:
        tag.kind = "several kinds"
    if dtype != tag.dtype:
        tag.dtype = (
            "" if not dtype or not tag.dtype else f"{tag.dtype}, {dtype}" if dtype not in tag.dtype else tag.dtype
        )
    if shape != tag.shape:
        same = len(shape) == len(tag.shape)
        tag.shape = tuple(_common(zip(shape, tag.shape, strict=True))) if same else ()


def _common(pairs: Iterable[tuple[int | None, int | None]]) -> Iterator[int | None]:
    return (one if one == other else None for one, other in pairs)


def _describe(value: Any) -> tuple[str, tuple[int | None, ...]]:
    if isinstance(value, str):
        return "text", ()
    if isinstance(value, bytes):
        return "bytes", ()
    if hasattr(value, "height"):
        return "", (value.height, value.width)
    dtype, shape = getattr(value, "dtype", None), getattr(value, "shape", None)
    return ("", ()) if dtype is None or shape is None else (str(dtype), tuple(shape))  # a histogram, a clip
