"""The targets of records and of what stands beside them; of guessing what bytes are; of addresses and manifests."""

from __future__ import annotations

import itertools
from typing import Any

from safety.fuzz.parsers import sealing, seeds
from safety.fuzz.parsers.harness import LIMITS, Target, Unsound, chance
from tensorbytes import _wire, foreign, formats, loading, opening
from tensorbytes.budget import Budget
from tensorbytes.damage import Damage
from tensorbytes.errors import CorruptError, LimitError, TensorbytesError
from tensorbytes.formats.tfrecord import example
from tensorbytes.formats.tfrecord.files import bytestreams, framing, index, salvage
from tensorbytes.formats.tfrecord.files.framing import RecordBlock
from tensorbytes.formats.tfrecord.files.memory import Memory
from tensorbytes.formats.tfrecord.read.columns import to_rows
from tensorbytes.formats.tfrecord.read.decode import decode, decode_sound
from tensorbytes.formats.tfrecord.read.infer import Inference
from tensorbytes.formats.tfrecord.read.plan import Plan
from tensorbytes.formats.tfrecord.schema import Schema
from tensorbytes.io.streams import detection
from tensorbytes.io.streams.decoders import Feed, open_decoder
from tensorbytes.loading import Wanted
from tensorbytes.ops import addressing, manifests
from tensorbytes.reader import Reader
from tensorbytes.records import events
from tensorbytes.records.summaries import EventFields
from tensorbytes.view.fragments import html_of

_BLOCK_BYTES = 1 << 12
_MOST_BYTES = 1 << 16


class _Bytes:
    """A stream of bytes in memory, plain or compressed: see bytestreams.FileStream."""

    path = "<bytes>"
    seekable = True

    def __init__(self, data: bytes) -> None:
        self.size: int | None = len(data)
        self.total: int | None = len(data)
        self._data, self._at = data, 0

    def readinto(self, view: memoryview) -> int:
        piece = self._data[self._at : self._at + len(view)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def next_piece(self) -> bytes:
        piece, self._at = self._data[self._at :], len(self._data)
        return piece

    def seek(self, offset: int) -> None:
        self._at = offset


def _blocks(data: bytes) -> Any:
    return framing.blocks(_Bytes(data), memory=Memory(), block_bytes=_BLOCK_BYTES, limits=LIMITS)


def _rows(plan: Plan, block: RecordBlock) -> list[list[Any]]:
    columns, failure = decode_sound(block, plan)
    features = {column.name: column.feature for column in plan.columns}
    rows = [to_rows(part, features[name]) for name, part in columns.items()]
    if any(len(column) != columns.count for column in rows):
        raise Unsound("columns of different lengths")
    if failure is not None:
        raise failure
    return rows


def _examples(data: bytes) -> None:
    """The rows of a file without a schema."""
    plan = None
    for block in _blocks(data):
        if plan is None:
            inference = Inference()
            inference.add(block)
            plan = Plan(inference.schema(), "the schema inferred", closed=True)
        rows = _rows(plan, block)
        if rows and not chance(data) & 7:
            alone = [
                to_rows(part, column.feature)
                for column in plan.columns
                for part in [decode(block._replace(records=block.records[-1:]), plan)[column.name]]
            ]
            if repr([column[-1] for column in rows]) != repr([column[0] for column in alone]):
                raise Unsound("a record read alone is another one")


def _example(data: bytes) -> None:
    """One record by protobuf's rules, in the form that we give it, which must stay the same."""
    sequence = bool(chance(data) & 1)
    form = example.canonical(data, sequence)
    if not chance(data) & 2 and example.canonical(form, sequence) != form:
        raise Unsound("written and read again, it is another record")


def _cells() -> Any:
    """The rows of a file with a schema that has every encoding, and defaults; of most, one column or two."""
    parts = [{name: seeds.CELLS[name] for name in chosen} for chosen in itertools.pairwise(seeds.CELLS)]
    plans = [Plan(Schema.of(features), "the schema") for features in (seeds.CELLS, *parts)]

    def run(data: bytes) -> None:
        plan = plans[chance(data) % len(plans)]
        for block in _blocks(data):
            _rows(plan, block)

    return run


def _events(data: bytes) -> None:
    found = events._Decoder(None, "numpy", LIMITS)
    found.enter("x")

    def raised(damage: Damage) -> None:
        raise CorruptError("damage", at=damage.start)

    for block in salvage.intact(_Bytes(data), raised, block_bytes=_BLOCK_BYTES, budget=Budget(LIMITS)):
        for start, size in block.records.tolist():
            budget = Budget(LIMITS, size)
            message = EventFields(block.data, start, start + size, budget)
            _ = message.wall_time, message.step
            found.parts(block, message, budget)


def _salvage(data: bytes) -> None:
    """Records and damages partition the file, and each record is one that its checksums confirm."""
    damages: list[Damage] = []
    at = kept = 0
    for block in salvage.intact(_Bytes(data), damages.append, block_bytes=_BLOCK_BYTES, budget=Budget(LIMITS)):
        for start, size in block.records.tolist():
            stored = bytes(block.data[start + size : start + size + 4])
            if len(stored) < 4 or int.from_bytes(stored, "little") != _wire.mask(
                _wire.crc32c(block.data[start : start + size])
            ):
                raise Unsound("a record that its checksum does not confirm")
        if bytes(block.data) != data[block.base : block.base + len(block.data)]:
            raise Unsound("a block of other bytes than the file has there")
        kept += len(block.data)
    lost = 0
    for damage in damages:
        if not at <= damage.start <= damage.end <= len(data):
            raise Unsound(f"a damage of {damage.start} to {damage.end}, after {at}, in {len(data)} bytes")
        at = damage.end
        lost += 0 if damage.recovered else damage.end - damage.start
        str(damage)
    if kept + lost != len(data):
        raise Unsound(f"{kept} bytes kept and {lost} lost of {len(data)}")


def _compressed(data: bytes) -> None:
    """What a compressed file gives, in one go and by pieces of a few bytes; its first byte chooses the compression."""
    if not data:
        return
    name, body = ("gzip", "zlib", "snappy")[data[0] % 3], data[1:]
    detection.decode_start(body[:64], bytestreams.detect(body[:64]))
    whole, failed = _inflated(name, body, 1 << 16, seekable=False)
    if not chance(data) & 3:
        parts, also = _inflated(name, body, 7, seekable=True)
        if whole[: len(parts)] != parts[: len(whole)] or (len(whole) < _MOST_BYTES > len(parts) and whole != parts):
            raise Unsound("by pieces it is something else")
        if (failed is None) != (also is None) and len(whole) < _MOST_BYTES:
            raise Unsound(f"in one go {failed}, by pieces {also}")
    if failed is not None:
        raise failed


def _inflated(name: str, body: bytes, step: int, seekable: bool) -> tuple[bytes, TensorbytesError | None]:
    made, out = open_decoder(name, Feed(_Bytes(body)), LIMITS, seekable=seekable), bytearray()
    try:
        while len(out) < _MOST_BYTES and (piece := made.next(step)):
            if len(piece) > step:
                raise Unsound("a piece that is larger than was asked for")
            out += piece
    except (CorruptError, LimitError) as error:
        return bytes(out), error
    return bytes(out), None


def _index(data: bytes) -> None:
    found = index._parsed(memoryview(data))
    if found is not None:
        places = index._places(found[1])
        if len(places) and (places < 0).any():
            raise Unsound("a record before the start of its file")


def _schema(data: bytes) -> None:
    schema = Schema.from_json(data)
    text = schema.to_json()
    again = Schema.from_json(text)
    if again != schema or again.to_json() != text:
        raise Unsound("written and read again, it is another schema")
    Plan(schema)


def _recognised(data: bytes) -> None:
    """Whatever the bytes are: their format is guessed, and they are read in it."""
    foreign.about_file(data[: formats.SNIFF_BYTES], None)
    opened = opening.open_bytes(memoryview(data), None, LIMITS, {})
    if opened.format in ("arrow", "parquet"):
        return  # targets of their own: pyarrow takes its time
    loading.result(opened, Wanted())


def _opened(data: bytes) -> None:
    """What a reader of the file gives: its list of tensors, slices of them, all of them; shown as notebooks do."""
    opened = opening.open_bytes(memoryview(data), None, LIMITS, {})
    if opened.format in ("arrow", "parquet"):
        return
    number = chance(data)
    reader = Reader(opened, "numpy", None)
    repr(reader)
    for entry in reader.entries():
        repr(entry)
        if entry.kind != "sparse" and entry.shape and entry.shape[0]:
            _ = entry[:1], entry[-1]
        entry.load()
    if number & 3 == 1:
        list(reader)
    if number & 15 == 2:
        pages = [reader._repr_html_(), *(html_of(leaf.read()) for one in reader._lazy() for leaf in one.leaves)]
        if b"<zz>" in data and any("<zz>" in page for page in pages):
            raise Unsound("a mark of the file's in the page")


def _address(data: bytes) -> None:
    text = data.decode(errors="replace")
    found = addressing._parse(text)
    if addressing._parse(str(found)) != found:
        raise Unsound("spelled out and read again, it is another address")


def _manifest(data: bytes) -> None:
    """The rows of a manifest, compared with those of a file."""
    sums = manifests.parse_rows(data, "<bytes>")
    list(manifests.compare([{"name": "a", "dtype": "float32", "shape": [2], "sha256": "00"}], sums, ()))


TARGETS = [
    Target("records", "records", _examples, seeds.of("records"), sealing.records),
    Target("example", "records", _example, seeds.of("example")),
    Target("records_reference", "records", _examples, seeds.of("records"), sealing.records, kernel="reference"),
    Target("record_cells", "records", _cells(), seeds.of("record_cells"), sealing.records, max_len=768),
    Target("record_index", "record_index", _index, seeds.of("record_index"), sealing.frames),
    Target("events", "events", _events, seeds.of("events"), sealing.records),
    Target("salvage", "salvage", _salvage, seeds.of("records"), max_len=256),
    Target("compressed", "compression", _compressed, seeds.of("compressed"), max_len=256, offsets=False),
    Target("schema", "schema", _schema, seeds.of("schema"), max_len=768),
    Target("recognition", "recognition", _recognised, seeds.everything, offsets=False),
    Target("reader", "reader", _opened, seeds.everything, offsets=False),
    Target("address", "address", _address, seeds.of("address"), max_len=64),
    Target("manifest", "manifest", _manifest, seeds.of("manifest"), max_len=256),
]
