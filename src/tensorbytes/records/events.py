"""TensorBoard's event files: TFRecords of tensorflow.Event messages, read without TensorFlow.

Writers of TensorFlow 1 put a value in the field made for it, those of TensorFlow 2 put
every value in a tensor and name a plugin beside it; both come out alike. Some writers
name the plugin only when they first use a tag in a folder, so it is remembered.
"""

from __future__ import annotations

import contextlib
import os
import reprlib
import warnings
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tensorbytes import frameworks
from tensorbytes.budget import Budget
from tensorbytes.damage import Damage
from tensorbytes.errors import (
    LIMITS,
    CorruptError,
    DamageWarning,
    Hint,
    LimitError,
    Limits,
    UnsupportedError,
    UsageError,
)
from tensorbytes.formats import _record
from tensorbytes.formats.tfrecord.files import salvage
from tensorbytes.formats.tfrecord.files.bytestreams import open_stream
from tensorbytes.formats.tfrecord.files.framing import AROUND_DAMAGE, RecordBlock
from tensorbytes.io import storage
from tensorbytes.io.hidden import is_hidden
from tensorbytes.io.paths import expand, only_files
from tensorbytes.records import summaries
from tensorbytes.records.summaries import NO_METADATA, EventFields, Metadata, ValueFields
from tensorbytes.tensor import Array

# The members of Event's oneof that are handed on as they stand, and what they are called.
_RAW = {
    summaries.FILE_VERSION: "file_version",
    summaries.GRAPH: "graph",
    summaries.LOG: "log",
    summaries.SESSION: "session",
    summaries.META_GRAPH: "meta_graph",
}
_CUT = ("cut header", "cut payload")
_NOTHING_KNOWN = (b"", NO_METADATA)
_Found: TypeAlias = tuple[str, str, Any, Metadata]  # tag, kind, value, metadata


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One value of a summary, or one other message of an event file.

    | kind                    | value                                                                |
    | ----------------------- | -------------------------------------------------------------------- |
    | scalar                  | a NumPy scalar: float32, unless the writer chose another dtype       |
    | tensor                  | a tensor of the framework asked for                                  |
    | text                    | str, or an array of str where the writer gave an array               |
    | image, histogram, audio | Image, Histogram, Audio                                              |
    | old_histogram           | bytes of a form that TensorBoard no longer shows                     |
    | run_metadata            | bytes of a RunMetadata message                                       |
    | file_version, graph,    | bytes: the text or the message as it stands; the tag is ""           |
    | meta_graph, log,        |                                                                      |
    | session, source         |                                                                      |
    | empty                   | None: a record with a time and a step, perhaps a tag, and no content |
    """

    wall_time: float  # seconds since 1970
    step: int
    tag: str
    kind: str
    value: Any
    metadata: Metadata = NO_METADATA
    path: str = ""  # the file; its folder is what TensorBoard calls a run

    @property
    def plugin(self) -> str:
        """The part of TensorBoard that shows it; "" where the writer named none."""
        return self.metadata.plugin

    def __repr__(self) -> str:
        return f"Event(step={self.step}, tag={self.tag!r}, kind={self.kind!r}, value={reprlib.repr(self.value)})"


# About what a value of a summary takes in memory.
_VALUE_BYTES = 640


class Scalars(NamedTuple):
    """All scalars of a tag, in the order they were written."""

    steps: Array  # int64
    wall_times: Array  # float64, seconds since 1970
    values: Array  # float32, unless the writer chose another dtype


class _Decoder:
    """Reads what records hold, and remembers what the writers in a folder said about each tag."""

    def __init__(self, tags: str | Iterable[str] | None, to: str, limits: Limits, scalars_only: bool = False) -> None:
        self._tags = frozenset([tags] if isinstance(tags, str) else tags) if tags is not None else None
        self._to, self._limits, self._scalars_only = to, limits, scalars_only
        self._folders: dict[str, dict[str, tuple[bytes, Metadata]]] = {}
        self._known: dict[str, tuple[bytes, Metadata]] = {}  # of the present folder: the message and what it says

    def enter(self, path: str) -> None:
        """The next records come from this file."""
        self._known = self._folders.setdefault(os.path.dirname(path), {})

    def parts(self, block: RecordBlock, message: EventFields, budget: Budget) -> list[_Found]:
        """What a record holds: something, unless only some of it is wanted."""
        data, member, tags = block.data, message.member, self._tags
        found: list[_Found] = []
        empty = not member
        if member == summaries.SUMMARY:
            empty = True
            for start, end in message.values(data):
                empty = False
                budget.objects(1, "the values of a summary", start, _VALUE_BYTES)
                value = ValueFields(data, start, end, budget)
                if tags is None or value.tag in tags:
                    self._take(block, value, found)
        elif member == summaries.RUN_METADATA:
            tag, content = summaries.run_metadata(data, message.spans)
            found.append((tag, "run_metadata", content, NO_METADATA))
        elif member:
            found.append(("", _RAW[member], summaries.joined(data, message.spans), NO_METADATA))
        if message.source:
            found.append(("", "source", summaries.joined(data, message.source), NO_METADATA))
        elif empty:
            found.append(("", "empty", None, NO_METADATA))
        return found if tags is None else [part for part in found if part[0] in tags]

    def _take(self, block: RecordBlock, value: ValueFields, found: list[_Found]) -> None:
        raw, about = self._known.get(value.tag, _NOTHING_KNOWN)
        if value.metadata:
            own = summaries.joined(block.data, value.metadata)
            if own != raw:
                about = summaries.metadata(block.data, value.metadata)
                self._known[value.tag] = own, about
        scalar = value.member == summaries.SIMPLE or (value.member == summaries.TENSOR and about.is_scalar)
        if scalar or not self._scalars_only:
            kind, content = self._content(block, value, about)
            found.append((value.tag, kind, content, about))

    def _content(self, block: RecordBlock, value: ValueFields, about: Metadata) -> tuple[str, Any]:
        data, spans = block.data, value.spans
        match value.member:
            case summaries.SIMPLE:
                return "scalar", summaries.simple_value(data, spans)
            case summaries.TENSOR:
                plain = summaries.plain_scalar(data, spans) if about.is_scalar else None
                return self._tensor(block, value, about) if plain is None else ("scalar", plain)
            case summaries.OLD_HISTOGRAM:
                return "old_histogram", summaries.joined(data, spans)
            case summaries.IMAGE:
                return "image", summaries.image(data, spans)
            case summaries.HISTOGRAM:
                return "histogram", summaries.histogram(data, spans)
            case summaries.AUDIO:
                return "audio", summaries.audio(data, spans)
        return "empty", None

    def _tensor(self, block: RecordBlock, value: ValueFields, about: Metadata) -> tuple[str, Any]:
        # In memory of its own: an event outlives the block of the file that it was read in.
        own = memoryview(bytearray(summaries.joined(block.data, value.spans)))
        start = value.spans[0][0]
        try:
            tensor = _record.decode(own, 0, len(own), Budget(self._limits, len(own))).leaf.read()
            return summaries.shown_as(tensor, about) or ("tensor", frameworks.from_value(tensor, self._to))
        except CorruptError as error:
            raise error.replaced(at=start + (error.at if len(value.spans) == 1 else 0)) from None
        except (LimitError, UnsupportedError) as error:
            what = f"the tensor of tag {value.tag!r}: {error.what}"
            raise error.replaced(what=what, path=block.path, at=block.base + start, tensor=value.tag) from None


# ---- files ------------------------------------------------------------------


def read_events(
    paths: Any,
    *,
    tags: str | Iterable[str] | None = None,
    to: str = "numpy",
    on_corrupt: str = "raise",
    live: bool = False,
    limits: Limits = LIMITS,
) -> Iterator[Event]:
    """The events of event files, one for each value of a summary, in file order.

    `paths` is whatever `open_records` takes but splits, or a local folder: all files in it
    and below whose names hold "tfevents", sorted by path. With `tags`, only these are read.

    A file whose last record is cut is damaged, unless its writer is at work right now:
    with `live=True` it ends before that record. `on_corrupt="skip"` reads around damage of
    every kind, and warns of it.
    """
    if to not in ("tensor", "original"):
        frameworks.get(to)
    decoder = _Decoder(tags, to, limits)
    records = _records(event_files(paths), decoder, _check_choice(on_corrupt), live, limits)
    return (Event(message.wall_time, message.step, *part, path) for message, parts, path in records for part in parts)


def read_scalars(
    paths: Any,
    tags: str | Iterable[str] | None = None,
    *,
    on_corrupt: str = "raise",
    live: bool = False,
    limits: Limits = LIMITS,
) -> dict[str, Scalars]:
    """Every scalar of event files by tag, as arrays in file order; arguments as for `read_events`.

    The files must be of one run, that is, of one folder: two runs use the same tags for
    values that don't belong together.
    """
    decoder = _Decoder(tags, "numpy", limits, scalars_only=True)
    found: dict[str, _Series] = {}
    path = run = ""
    for message, parts, now in _records(event_files(paths), decoder, _check_choice(on_corrupt), live, limits):
        if now != path:
            path, run = now, os.path.dirname(now)
        for tag, kind, value, _ in parts:
            if kind == "scalar":
                if tag not in found:
                    found[tag] = _Series(run, array("q"), array("d"), [])
                series = found[tag]
                if series.run != run:
                    raise UsageError(
                        f"tag {tag!r} is in two runs, {series.run!r} and {run!r}",
                        tensor=tag,
                        hints=[Hint(purpose="read each by itself")],
                    )
                series.steps.append(message.step)
                series.wall_times.append(message.wall_time)
                series.values.append(value)
    return {
        tag: Scalars(np.array(series.steps, np.int64), np.array(series.wall_times), _column(tag, series.values))
        for tag, series in found.items()
    }


class _Series(NamedTuple):
    """The scalars of one tag, as they are collected."""

    run: str
    steps: array[int]
    wall_times: array[float]
    values: list[Any]


def _column(tag: str, values: list[Any]) -> Array:
    """Scalars as one array, bit for bit; those of several dtypes as the dtype that holds them all."""
    kinds = {value.dtype for value in values}
    if len(kinds) == 1:
        return np.frombuffer(bytearray().join(value.tobytes() for value in values), kinds.pop())
    with contextlib.suppress(TypeError):  # two dtypes that nothing holds
        column = np.array(values, np.result_type(*kinds))
        if all(int(value) == int(kept) for value, kept in zip(values, column, strict=True) if value.dtype.kind in "iu"):
            return column
    names = ", ".join(sorted(map(str, kinds)))
    raise UnsupportedError(
        f"tag {tag!r} has scalars of {names}, which no one dtype can hold",
        tensor=tag,
        hints=[Hint(operation="records.read_events", arguments=("paths",), purpose="reads each by itself")],
    )


def _check_choice(on_corrupt: str) -> bool:
    """Whether to skip damage."""
    if on_corrupt not in ("raise", "skip"):
        raise UsageError(f"on_corrupt={on_corrupt!r}", expected="'raise' or 'skip'")
    return on_corrupt == "skip"


def _records(
    targets: list[Any], decoder: _Decoder, skip: bool, live: bool, limits: Limits
) -> Iterator[tuple[EventFields, list[_Found], str]]:
    """For each record: its fields, what it holds, its file."""
    for target in targets:
        path = str(storage.describe(target))  # of a file without a name it is a number
        decoder.enter(path)
        for block in _blocks(target, skip, live, limits):
            for index, (start, size) in enumerate(block.records.tolist()):
                try:
                    budget = Budget(limits, size)
                    message = EventFields(block.data, start, start + size, budget)
                    parts = decoder.parts(block, message, budget)
                except CorruptError as error:
                    number = block.first + index
                    error = error.shifted(block.base, path).replaced(
                        what=f"record {number} is not a sound event: {error.what}", record=number
                    )
                    if not skip:
                        raise error from None
                    warnings.warn(f"{error}", DamageWarning, stacklevel=2)
                    continue
                yield message, parts, path


def _blocks(target: Any, skip: bool, live: bool, limits: Limits) -> Iterator[RecordBlock]:
    """The whole records of a file. Damage is an error, or a warning if it is to be skipped."""
    unfinished: list[Damage] = []

    def report(damage: Damage) -> None:
        if not skip:
            raise _fault(damage)
        warnings.warn(f"{damage}", DamageWarning, stacklevel=2)

    def found(damage: Damage) -> None:
        if live and damage.kind in _CUT:
            unfinished.append(damage)
        else:
            report(damage)

    with open_stream(target, limits=limits) as stream:
        for block in salvage.intact(stream, found, budget=Budget(limits)):
            while unfinished:  # nobody is at work there: records follow
                report(unfinished.pop())
            yield block


def _fault(damage: Damage) -> CorruptError:
    if damage.kind in _CUT:
        hints: tuple[Hint, ...] = (
            Hint("live", True, "to read what is whole, if its writer is still at work", of="records.read_events"),
        )
    elif damage.kind == "header" and damage.start == 0 and not damage.recovered:
        hints = (Hint(purpose="is this an event file?"),)
    else:
        hints = AROUND_DAMAGE
    return CorruptError(damage.describe(), at=damage.start or 0, path=damage.path, hints=hints)


def event_files(paths: Any) -> list[Any]:
    """The files of paths, globs and folders, in the order in which they are read."""
    one = storage.is_path(paths) or hasattr(paths, "read") or not isinstance(paths, Iterable)
    found: list[Any] = []
    for item in [paths] if one else paths:
        is_folder = storage.is_local(item) and os.path.isdir(item)
        found += _files_below(os.fspath(item)) if is_folder else expand([item])
    return found or expand([])


def _files_below(folder: str) -> list[str]:
    """The event files in a folder and below. Links to folders are followed, as TensorBoard does, but never twice."""
    found, seen = [], set()
    for place, below, names in os.walk(folder, onerror=_fail, followlinks=True):
        status = os.stat(place)
        if (status.st_dev, status.st_ino) in seen:
            below.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        found += [os.path.join(place, name) for name in names if "tfevents" in name and not is_hidden(name)]
    if not found:
        raise UsageError(f"no event files in {folder!r}: none of the names in it and below holds 'tfevents'")
    return only_files(sorted(found))


def _fail(error: OSError) -> None:
    raise error
