"""The messages inside TensorBoard's event files, down to the values that they hold.

    Event     wall_time 1, step 2, source_metadata 10, and one of: file_version 3, graph_def 4, summary 5,
              log_message 6, session_log 7, tagged_run_metadata 8 {tag 1, run_metadata 2}, meta_graph_def 9
    Summary   value 1, any number of them
    Value     tag 1, node_name 7 (no longer used), metadata 9, and one of: simple_value 2,
              obsolete_old_style_histogram 3, image 4, histo 5, audio 6, tensor 8
    Metadata  plugin_data 1 {plugin_name 1, content 2}, display_name 2, summary_description 3, data_class 4

Protobuf's rules hold: of the members of a oneof the last counts, a message in several
parts is their sum, unknown fields are passed over. One departure, as in the rest of the
package: a known field of the wrong wire type is an error, not an unknown field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes._wire import proto
from tensorbytes.budget import Budget
from tensorbytes.errors import CorruptError
from tensorbytes.tensor import Array, InvalidValueError, Strings, Tensor, Value

# Where the parts of a message stand; nearly always there is one.
Spans: TypeAlias = list[tuple[int, int]]
FILE_VERSION, GRAPH, SUMMARY, LOG, SESSION, RUN_METADATA, META_GRAPH, SOURCE = range(3, 11)
SIMPLE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR = 2, 3, 4, 5, 6, 8
_VALUE_MEMBERS = frozenset((SIMPLE, OLD_HISTOGRAM, IMAGE, HISTOGRAM, AUDIO, TENSOR))
# Text, bytes and numbers: of these the last counts, where the parts of messages add up.
_PLAIN_EVENT_MEMBERS = frozenset((FILE_VERSION, GRAPH, META_GRAPH))
_PLAIN_VALUE_MEMBERS = frozenset((SIMPLE, OLD_HISTOGRAM))
_SCALAR_CLASS = 1
_LONG = 1 << 14
# About what it takes to remember a part of a message.
_SPAN_BYTES = 160
# A TensorProto of one float32, up to its value: dtype, an empty shape, four bytes of tensor_content.
_PLAIN_SCALAR = b"\x08\x01\x12\x00\x22\x04"
_DOUBLE, _SINGLE = struct.Struct("<d"), struct.Struct("<f")


class Metadata(NamedTuple):
    """What a writer says about all values of a tag."""

    plugin: str = ""
    content: bytes = b""  # the plugin's own
    display_name: str = ""
    description: str = ""
    data_class: int = 0  # 1 scalar, 2 tensor, 3 blob sequence

    @property
    def is_scalar(self) -> bool:
        return self.plugin == "scalars" or self.data_class == _SCALAR_CLASS


NO_METADATA = Metadata()


class Image(NamedTuple):
    """One image, or several of one size, as PNG, GIF or whatever the writer chose."""

    height: int
    width: int
    encoded: tuple[bytes, ...]
    colorspace: int = 0  # 1 grey, 2 grey with alpha, 3 RGB, 4 RGBA; 0 not said


class Audio(NamedTuple):
    """One clip, or several. TensorFlow 2 says nothing about them but a label for each."""

    encoded: tuple[bytes, ...]
    labels: tuple[bytes, ...] = ()
    sample_rate: float = 0.0
    channels: int = 0
    frames: int = 0
    content_type: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """`counts[i]` values lie between `left[i]` and `right[i]`.

    TensorFlow 1 stores no `left` (it is the `right` of the bucket before) but the five
    sums; TensorFlow 2 stores `left` and not the sums. What is not stored is None.
    """

    counts: Array
    right: Array
    left: Array | None = None
    min: float | None = None
    max: float | None = None
    num: float | None = None
    sum: float | None = None
    sum_squares: float | None = None


# ---- fields -----------------------------------------------------------------


def fields(data: memoryview, spans: Spans) -> Iterator[proto.Field]:
    """The fields of a message, which may come in several parts."""
    return (proto.Field(*item) for start, end in spans for item in _walk(data, start, end))


def _walk(data: memoryview, start: int, end: int) -> Iterable[tuple[int, int, int, int, int]]:
    """The fields of one part: number, wire type, start, end, place of the tag."""
    if end - start > _LONG:  # not all at once: they take many times their bytes
        return proto.fields(data, start, end)
    found, at = _wire.fields(data, start, end, 0)
    return found if at == end else list(proto.fields(data, start, end))


def joined(data: memoryview, spans: Spans) -> bytes:
    return b"".join([data[start:end] for start, end in spans])


def _expect(wanted: int, number: int, wire: int, at: int) -> None:
    if wire != wanted:
        raise CorruptError(f"field {number} has the wire type {wire}, expected {wanted}", at=at)


def _float(data: memoryview, item: proto.Field, wire: int) -> float:
    """A double, or a float, by the wire type that it must have."""
    _expect(wire, item.number, item.wire, item.at)
    (value,) = (_DOUBLE if wire == proto.FIXED64 else _SINGLE).unpack_from(data, item.start)
    return float(value)


def _signed(item: proto.Field, bits: int) -> int:
    value = proto.number(item) & (1 << bits) - 1
    return value - (value >> bits - 1 << bits)


# ---- messages ---------------------------------------------------------------


class EventFields:
    """The fields of one Event. `member` is the number of its oneof's member, 0 if none is set."""

    __slots__ = ("member", "source", "spans", "step", "wall_time")

    def __init__(self, data: memoryview, start: int, end: int, budget: Budget) -> None:
        self.wall_time, self.step, self.member = 0.0, 0, 0
        self.spans: Spans = []
        self.source: Spans = []
        for number, wire, first, last, at in _walk(data, start, end):
            if number == 1:
                _expect(proto.FIXED64, number, wire, at)
                (self.wall_time,) = _DOUBLE.unpack_from(data, first)
            elif number == 2:
                _expect(proto.VARINT, number, wire, at)
                self.step = first - (first >> 63 << 64)
            elif number <= SOURCE:
                _expect(proto.DELIMITED, number, wire, at)
                budget.objects(1, "the parts of an event", at, _SPAN_BYTES)
                if number == SOURCE:
                    self.source.append((first, last))
                    continue
                if number != self.member or number in _PLAIN_EVENT_MEMBERS:
                    self.member, self.spans = number, []
                self.spans.append((first, last))

    def values(self, data: memoryview) -> Iterator[tuple[int, int]]:
        """Where the values of its summary stand."""
        for start, end in self.spans:
            for number, wire, first, last, at in _walk(data, start, end):
                if number == 1:
                    _expect(proto.DELIMITED, number, wire, at)
                    yield first, last


class ValueFields:
    """The fields of one Summary.Value, the value itself still undecoded."""

    __slots__ = ("member", "metadata", "spans", "tag")

    def __init__(self, data: memoryview, start: int, end: int, budget: Budget) -> None:
        self.tag, self.member = "", 0
        self.spans: Spans = []
        self.metadata: Spans = []
        for number, wire, first, last, at in _walk(data, start, end):
            if number == 1:
                self.tag = proto.text(data, proto.Field(number, wire, first, last, at))
            elif number == 9:
                _expect(proto.DELIMITED, number, wire, at)
                budget.objects(1, "the parts of a value", at, _SPAN_BYTES)
                self.metadata.append((first, last))
            elif number in _VALUE_MEMBERS:
                _expect(proto.FIXED32 if number == SIMPLE else proto.DELIMITED, number, wire, at)
                if number != self.member or number in _PLAIN_VALUE_MEMBERS:
                    self.member, self.spans = number, []
                budget.objects(1, "the parts of a value", at, _SPAN_BYTES)
                self.spans.append((first, last))


def metadata(data: memoryview, spans: Spans) -> Metadata:
    plugin = display_name = description = ""
    content, data_class = b"", 0
    for item in fields(data, spans):
        if item.number == 1:
            proto.delimited(data, item)
            for part in fields(data, [(item.start, item.end)]):
                if part.number == 1:
                    plugin = proto.text(data, part)
                elif part.number == 2:
                    content = bytes(proto.delimited(data, part))
        elif item.number == 2:
            display_name = proto.text(data, item)
        elif item.number == 3:
            description = proto.text(data, item)
        elif item.number == 4:
            data_class = _signed(item, 32)
    return Metadata(plugin, content, display_name, description, data_class)


def run_metadata(data: memoryview, spans: Spans) -> tuple[str, bytes]:
    """The tag of a TaggedRunMetadata, and the RunMetadata message in it."""
    tag, content = "", b""
    for item in fields(data, spans):
        if item.number == 1:
            tag = proto.text(data, item)
        elif item.number == 2:
            content = bytes(proto.delimited(data, item))
    return tag, content


def simple_value(data: memoryview, spans: Spans) -> Any:
    """A NumPy scalar: a Python float would change the bits of some NaNs."""
    return np.frombuffer(data, "<f4", 1, spans[0][0])[0]


def image(data: memoryview, spans: Spans) -> Image:
    sizes, encoded = [0, 0, 0], b""
    for item in fields(data, spans):
        if item.number <= 3:
            sizes[item.number - 1] = _signed(item, 32)
        elif item.number == 4:
            encoded = bytes(proto.delimited(data, item))
    return Image(sizes[0], sizes[1], (encoded,), sizes[2])


def audio(data: memoryview, spans: Spans) -> Audio:
    rate, sizes, encoded, content_type = 0.0, [0, 0], b"", ""
    for item in fields(data, spans):
        if item.number == 1:
            rate = _float(data, item, proto.FIXED32)
        elif item.number <= 3:
            sizes[item.number - 2] = _signed(item, 64)
        elif item.number == 4:
            encoded = bytes(proto.delimited(data, item))
        elif item.number == 5:
            content_type = proto.text(data, item)
    return Audio((encoded,), (), rate, sizes[0], sizes[1], content_type)


def histogram(data: memoryview, spans: Spans) -> Histogram:
    sums = [0.0] * 5
    buckets: dict[int, Spans] = {6: [], 7: []}
    for item in fields(data, spans):
        if item.number <= 5:
            sums[item.number - 1] = _float(data, item, proto.FIXED64)
        elif item.number in buckets:
            if item.wire != proto.FIXED64:  # packed, as all writers do
                proto.delimited(data, item)
            if (item.end - item.start) % 8:
                raise CorruptError(f"{item.end - item.start} bytes of packed doubles, no multiple of 8", at=item.at)
            buckets[item.number].append((item.start, item.end))
    right, counts = (np.frombuffer(bytearray(joined(data, buckets[number])), "<f8") for number in (6, 7))
    return Histogram(counts, right, None, *sums)


# ---- tensors with a plugin --------------------------------------------------


def shown_as(value: Value, about: Metadata) -> tuple[str, Any] | None:
    """(kind, value) of a tensor that has the form its plugin expects; None for any other."""
    if isinstance(value, Tensor):
        if about.is_scalar:
            return _as_scalar(value)
        if about.plugin == "histograms" and value.dtype in ("float32", "float64") and value.shape[1:] == (3,):
            left, right, counts = value.numpy().T.copy()
            return "histogram", Histogram(counts, right, left)
    elif isinstance(value, Strings):
        if about.plugin == "text":
            return _as_text(value)
        if about.plugin == "images" and value.encoding == "bytes":
            return _as_image(value)
        if about.plugin == "audio" and value.encoding == "bytes" and value.shape[1:] == (2,):
            items = value.items()
            return "audio", Audio(tuple(items[::2]), tuple(items[1::2]))
    return None


def _as_scalar(value: Tensor) -> tuple[str, Any] | None:
    row = dtypes.get(value.dtype)
    if value.nbytes != row.itemsize or not row.in_tensorflow or row.numpy is None:
        return None
    return "scalar", value.numpy().reshape(-1)[0]


def plain_scalar(data: memoryview, spans: Spans) -> Any:
    """A float32 in the form that TensorFlow gives it; None for every other tensor."""
    start, end = spans[0]
    if len(spans) > 1 or data[start : end - 4] != _PLAIN_SCALAR:
        return None
    return np.frombuffer(data, "<f4", 1, end - 4)[0]


def _as_text(value: Strings) -> tuple[str, Any] | None:
    try:
        text = Strings(value.shape, value.offsets, value.data, "utf-8")
    except InvalidValueError:
        return None
    return "text", text.numpy()[()]


def _as_image(value: Strings) -> tuple[str, Any] | None:
    """Width and height as decimal numbers, then any number of images."""
    if len(value.shape) != 1 or value.shape[0] < 2:
        return None
    width, height, *encoded = value.items()
    if not all(size.isdigit() and len(size) <= 10 for size in (width, height)):
        return None
    return "image", Image(int(height), int(width), tuple(encoded))
