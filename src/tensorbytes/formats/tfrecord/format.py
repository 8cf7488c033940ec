"""TFRecord: files of records, each an Example or a SequenceExample of TensorFlow, perhaps compressed (.tfrecord).

    u64 length, u32 masked CRC-32C of it, payload, u32 masked CRC-32C of the payload

Rows are the records, columns their features. The first record tells what a file holds:

    08 and a shape, as a TensorProto has      the native frame, another format
    09 ... brain.Event:2                      event files of TensorBoard
    a feature with a list of values, or       Examples and SequenceExamples
    nothing that would be passed over
    else                                      records of something else, which are bytes: rows of one column

A file is recognised whatever it is called; one that is empty, or starts with damage, by its name. "x.tfrecord@10",
globs and lists stand for several files. Options are those of open_records and RecordWriter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from tensorbytes import formats
from tensorbytes.errors import Limits
from tensorbytes.formats import HARDLY, LIKELY, SURE, Format, Option, Options, _message, known_options
from tensorbytes.formats._opened import Created, Opened
from tensorbytes.formats.tfrecord.files.bytestreams import likely_compression
from tensorbytes.formats.tfrecord.kinds import OTHERS, kind_of
from tensorbytes.io.source import Source
from tensorbytes.io.storage import Target
from tensorbytes.io.streams.detection import NAMES, SUFFIXES, decode_start, find_by_suffix
from tensorbytes.tfrecord import HEADER_BYTES, is_record_header


class TFRecord(Format):
    name = "tfrecord"
    label = "TFRecord"
    words = "TFRecord files of Examples: rows for TensorFlow"
    aliases = ("tfrecords", "example", "examples")
    suffixes = (".tfrecord", ".tfrecords", ".tfrec", ".record", ".records")
    units = ("record", "feature")
    read_by = "TensorFlow"
    holds = "rows of numbers, text and bytes; other arrays as TensorProtos"
    documents = False
    rows = masks = several = shards = framed = empty = True
    checksums = "CRC-32C of each record"
    write_options = known_options(
        schema=Option(object, "what each feature is: a Schema, a dict, or JSON; by default the first rows tell"),
        lists=Option(object, "the names of feature lists, where no schema says so"),
        compression=Option(str | None, "of the whole file; by default what its name says", choices=(None, *NAMES)),
        level=Option(int | None, "of the compression"),
        sidecar=Option(bool, "False writes no schema beside the file", True),
        floats=Option(
            object, "what Python's own floats become: 'float64', or 'float32' for lists of floats", "float64"
        ),
    )
    compressions = (None, "gzip", "snappy")
    slow_compressions = ("zlib",)
    read_options = known_options(
        columns=Option(object, "the names of features to read: the others are not decoded"),
        schema=Option(object, "what each feature is; by default what the file beside it says, or a sample of records"),
        lengths=Option(
            str, "'ragged' takes no length for fixed where a schema is inferred", "auto", ("auto", "ragged")
        ),
        compression=Option(str | None, "of the whole file", "auto"),
        on_corrupt=Option(str, "'skip' reads around damage, and warns", "raise", ("raise", "skip")),
        verify=Option(bool, "False does not look at the checksums of records", True),
        threads=Option(int | None, "how many decode"),
    )
    slices = "rows by their numbers"

    def sniff(self, head: bytes, size: int) -> float:
        compression = likely_compression(head)
        plain = decode_start(head, compression)
        if not is_record_header(plain):
            return 0
        if plain[HEADER_BYTES : HEADER_BYTES + 1] == b"\x08" and any(plain[:8]):
            # Tensors are the native frame: not compressed, and another format. Other messages may start so as well.
            tensor = _message.look(plain[HEADER_BYTES:], 0, int.from_bytes(plain[:8], "little"))
            return 0 if tensor is not None else HARDLY if compression == "none" else LIKELY
        return SURE if compression != "none" or kind_of(plain) != OTHERS else LIKELY

    def fits_name(self, path: str) -> bool:
        """x.tfrecord, x.tfrecord.gz, x.tfrecord@10, x.tfrecord-00000-of-00010"""
        name = path.lower().rpartition("/")[2].partition("@")[0]
        for suffix in SUFFIXES:
            name = name.removesuffix(suffix)
        return name.endswith(self.suffixes) or any(f"{suffix}-" in name for suffix in self.suffixes)

    def options_for(self, path: str, options: Options) -> Options:
        found = find_by_suffix(path)
        return options if found is None else {"compression": found, **options}

    def claims(self, path: str) -> bool:
        """A folder with event files of TensorBoard in it, unless it is one that another format knows."""
        if not os.path.isdir(path) or not any("tfevents" in name for _, _, names in os.walk(path) for name in names):
            return False
        return not any(formats.get(name).claims(path) for name in formats.BUILTIN if name != self.name)

    def open(self, source: Source, limits: Limits, options: Options, claimed: bool = False) -> Opened:
        from tensorbytes.formats.tfrecord.opened import OpenedRecords  # with all that reads Examples

        return OpenedRecords(self, source, limits, options, claimed=claimed)

    def create(self, target: Target, options: Options, sync: bool = True, shards: int = 1) -> Created:
        from tensorbytes.formats.tfrecord.created import CreatedRecords  # with all that writes them

        return CreatedRecords(target, options, sync, shards)

    def recreate(
        self, like: Opened, target: Target, options: Options, sync: bool = True, inputs: Sequence[str] = ()
    ) -> Created:
        from tensorbytes.formats.tfrecord.created import CreatedCopy

        return CreatedCopy(like, target, options, sync, inputs)

    def showing(
        self, inputs: Sequence[str], target: str, sync: bool, files: Any, changes: list[str]
    ) -> AbstractContextManager[None]:
        from tensorbytes.formats.tfrecord.created import copy_schema

        return copy_schema(inputs, target, sync, files, changes, follow=False)


FORMAT = TFRecord()
