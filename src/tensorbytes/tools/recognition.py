"""Which files hold records, and of what: told by their first bytes, whatever they are called.

A TFRecord file starts with a length and its checksum, perhaps compressed. The first record tells the rest:

    08          a TensorProto's dtype         the native frame, a format as others are
    0a, 12      the parts of an Example       TFRecord files of Examples and SequenceExamples
    09 ... brain.Event:2                      event files of TensorBoard
    else                                      records of something else
"""

from __future__ import annotations

import os
import re
from typing import Any

from tensorbytes import formats, storage
from tensorbytes.errors import Hint, UsageError
from tensorbytes.io.streams.detection import SUFFIXES, decode_start
from tensorbytes.records.files.sources import detect
from tensorbytes.tfrecord import HEADER_BYTES, is_record_header

EXAMPLES, EVENTS, OTHERS, NO_RECORDS = "tfrecord", "events", "other records", ""
_RECORD_SUFFIXES = (".tfrecord", ".tfrecords", ".tfrec", ".record", ".records")
_SEVERAL = re.compile(r"[*?\[]|@(\d+|\*)$")
# So much tells whether the first record is what it seems to be.
_HEAD_BYTES = 4096


def kind_of(target: Any) -> str:
    """What the records of a path, URL, glob, list or file object are; NO_RECORDS where it is no file of records."""
    if not storage.is_path(target):
        if hasattr(target, "read"):
            return _by_content(_peeked(target), storage.describe(target))
        return _of_several(target)
    path = os.fspath(target)
    if storage.is_url(path):
        if _SEVERAL.search(path):
            return EXAMPLES if named_records(path) else NO_RECORDS
        with storage.open_url(path, "rb") as file:
            return _by_content(file.read(_HEAD_BYTES), path)
    if os.path.isdir(path):
        return EVENTS if formats.by_path(path) is None and _has_events(path) else NO_RECORDS
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return _by_content(file.read(_HEAD_BYTES), path)
    if not os.path.exists(path) and formats.by_path(path) is None and _SEVERAL.search(path):
        return _of_several(path)
    return EXAMPLES if named_records(path) and not os.path.exists(path) else NO_RECORDS


def _of_several(targets: Any) -> str:
    """By the first file of a list, a glob or a set of shards; the shards of a small dataset may be empty."""
    from tensorbytes.records.files.paths import byte_range, expand

    found = [byte_range(target)[0] for target in expand(targets)]
    path = next((one for one in found if not is_empty(one)), found[0])
    kind = kind_of(path)
    if kind == NO_RECORDS and is_empty(path):
        return EXAMPLES
    if kind == NO_RECORDS and not named_records(storage.describe(path)):
        what = f"{storage.describe(targets)} stands for {len(found)} files, and {storage.describe(path)}"
        raise UsageError(f"{what} holds no records: files of tensors are taken one at a time")
    return kind or EXAMPLES


def is_empty(target: Any) -> bool:
    """Whether a local file holds nothing, perhaps compressed: it may be of any kind."""
    if not storage.is_local(target) or not os.path.isfile(target):
        return False
    with open(target, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return not head or (
        head[:1] in (b"\x1f", b"\x78") and detect(head) != "none" and not decode_start(head, detect(head))
    )


def _by_content(head: bytes, path: str) -> str:
    compression = "none" if is_record_header(head) else _compression(head, path)
    plain = decode_start(head, compression)
    if is_record_header(plain):
        return _of_records(plain, path, compression)
    # Nothing to go by: a file that was called so, and is empty or damaged, or which is compressed to say little so far.
    if not named_records(path):
        return NO_RECORDS
    return EXAMPLES if not head or (formats.sniff(head, len(head)) is None and not _is_wrong(head)) else NO_RECORDS


def _compression(head: bytes, path: str) -> str:
    # The first byte tells most other files: no snappy file starts with a block of 16 MiB or more.
    if head[:1] not in (b"\0", b"\x1f", b"\x78") or (head[:1] == b"\0" and formats.sniff(head, len(head)) is not None):
        return "none"
    return detect(head)


def _of_records(plain: bytes, path: str, compression: str) -> str:
    length, first = int.from_bytes(plain[:8], "little"), plain[HEADER_BYTES:]
    payload = first[: min(length, len(first))]
    if payload[:1] == b"\x08":
        if compression != "none":
            raise UsageError(
                f"tensors of the native frame, {compression}-compressed",
                path=path,
                hints=[Hint(purpose="decompress it first")],
            )
        return NO_RECORDS
    if payload[:1] == b"\x09" and (b"brain.Event:" in payload[9:32] or "tfevents" in os.path.basename(path)):
        return EVENTS
    return EXAMPLES if not length or _may_be_example(payload, length) else OTHERS


def _may_be_example(payload: bytes, length: int) -> bool:
    """Whether a record starts as an Example or SequenceExample does: with a part that fits into it."""
    if payload[:1] not in (b"\x0a", b"\x12"):
        return False
    size = shift = 0
    for at, byte in enumerate(payload[1:11], 2):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            # In it, if there is anything, the first entry of a map.
            return at + size <= length and (not size or payload[at : at + 1] in (b"\x0a", b""))
    return False


def _is_wrong(head: bytes) -> bool:
    # A gzip file is what records may well be in.
    from tensorbytes import foreign

    return not head.startswith(b"\x1f\x8b") and foreign.about_file(head, None) is not None


def _peeked(file: Any) -> bytes:
    """The first bytes of a file object that can go back."""
    try:
        if not file.seekable():
            return b""
        at = file.tell()
        head = file.read(_HEAD_BYTES)
        file.seek(at)
    except (AttributeError, OSError):
        return b""
    return head if isinstance(head, bytes) else b""


def _has_events(folder: str) -> bool:
    return any("tfevents" in name for _, _, names in os.walk(folder) for name in names)


def named_records(path: str) -> bool:
    """Whether a name is that of TFRecord files: x.tfrecord, x.tfrecord.gz, x.tfrecord@10, x.tfrecord-00000-of-00010."""
    name = path.lower().rpartition("/")[2].partition("@")[0]
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name.endswith(_RECORD_SUFFIXES) or any(f"{suffix}-" in name for suffix in _RECORD_SUFFIXES)
