"""The schema file beside the records of a writer: at no moment does one stand beside records of another."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from tensorbytes.formats.tfrecord.schema import Schema, load_beside, sidecar_path
from tensorbytes.formats.tfrecord.schema.json import MAX_BYTES
from tensorbytes.formats.tfrecord.write import sink
from tensorbytes.io import beside, hidden, publish, storage
from tensorbytes.io.holding import Hold

_MOST_NAME_BYTES = 255  # as most file systems have it


class UnpublishedRecords(Protocol):
    """Records that are about to become visible."""

    @property
    def count(self) -> int:
        """How many records were there before, and stay."""
        ...

    @property
    def replaces(self) -> bool:
        """Whether there are old ones, whose place they will take."""
        ...

    @property
    def published(self) -> bool:
        """Whether any of them did."""
        ...


class SchemaPlace(NamedTuple):
    """Where a schema is kept; other shards of the dataset may have the same one."""

    path: str
    shared: bool


def places(target: Any, follow: bool = True) -> list[SchemaPlace]:
    """Where the schema of a file is kept: beside its name and, where that is a link, beside the file itself."""
    names = [os.fspath(target)] if storage.is_path(target) else []
    if follow and storage.is_local(target) and os.path.islink(target):
        names.append(publish.follow_link(names[0]))
    found = {}
    for name in names:
        path = sink.sidecar(name)
        if path is not None:
            found[path] = SchemaPlace(path, path != sidecar_path(name))
    return list(found.values())


def checked(places: list[SchemaPlace]) -> list[SchemaPlace]:
    """The same, if the names can be some: what can't be saved is said before much is written."""
    for path, _ in places:
        if storage.is_local(path) and len(os.fsencode(os.path.basename(path))) > _MOST_NAME_BYTES:
            what = "the name leaves no room for that of the schema beside it: take a shorter one, or pass sidecar=False"
            raise OSError(errno.ENAMETOOLONG, what, path.removesuffix(sidecar_path("")))
    return places


def load(places: list[SchemaPlace]) -> Schema | None:
    """The schema of records that are there, if a local file beside them says it."""
    found = (load_beside(place.path) for place in places if storage.is_local(place.path))
    return next((schema for schema in found if schema is not None), None)


class Sidecar:
    """Where the schema goes, be it nowhere. Not everything that is saved again is written again."""

    def __init__(self, places: list[SchemaPlace], durable: bool) -> None:
        self._files = [_File(place, durable) for place in places]

    @property
    def wanted(self) -> bool:
        return bool(self._files)

    def save(self, schema: Schema | None, before: Schema | None, alone: bool) -> None:
        """Save the schema, merged with that of records that are there `before`.

        Without one, what is there is removed if the new records are `alone`: it is about older ones.
        """
        for file in self._files:
            file.save(schema, before, alone)

    @contextlib.contextmanager
    def saved(self, schema: Schema | None, before: Schema | None, files: UnpublishedRecords) -> Iterator[None]:
        """Save it before the block, in which the records become visible; where they replace others, after it.

        Meanwhile there is none, and readers look at the records. If those can't be replaced, it comes back.
        """
        with contextlib.ExitStack() as stack:
            for file in self._files:
                stack.enter_context(file.saved(schema, before, files))
            yield


class _File:
    def __init__(self, place: SchemaPlace, durable: bool) -> None:
        self._path, self._shared = place
        self._durable = durable
        self._saved: object = ()  # not even none yet

    def save(self, schema: Schema | None, before: Schema | None, alone: bool) -> None:
        if self._saved is schema:
            return
        if schema is not None:
            self._write(merged(schema, before))
        elif alone and before is None and not self._shared and storage.is_local(self._path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        self._saved = schema

    def _write(self, schema: Schema) -> None:
        if not self._shared or not storage.is_local(self._path):
            schema.save_beside(self._path, sync=self._durable)
            return
        with Hold(publish.absolute(self._path)) as hold:
            # Those who write other shards may have saved theirs since.
            merged(schema, load_beside(self._path)).save_beside(self._path, sync=self._durable, hold=hold)

    @contextlib.contextmanager
    def saved(self, schema: Schema | None, before: Schema | None, files: UnpublishedRecords) -> Iterator[None]:
        alone = not files.count
        others = self._shared and os.path.lexists(self._path)  # what stands there speaks of their records, too
        if not files.replaces or before is not None or others or not _differs(self._path, schema):
            self.save(schema, before, alone)
            yield
            return
        with contextlib.nullcontext() if self._shared else self._aside(files):
            yield
            self.save(schema, before, alone)

    @contextlib.contextmanager
    def _aside(self, files: UnpublishedRecords) -> Iterator[None]:
        """A block in which the old schema has another name; it comes back if the old records stay."""
        aside = next(hidden.names(self._path))
        try:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._path, aside)
                if self._durable:
                    publish.sync_folder(self._path)
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside) if files.published else os.replace(aside, self._path)
            raise
        with contextlib.suppress(OSError):
            os.unlink(aside)


def merged(schema: Schema, before: Schema | None) -> Schema:
    """The schema of the new records and of those that are there, or in other shards."""
    if before is None:
        return schema
    return Schema.merged([("the records there are", before), ("the new ones", schema)])


def _differs(path: str, schema: Schema | None) -> bool:
    """Whether the file that is there, if any, says something else."""
    if not storage.is_local(path):
        return False
    if not os.path.lexists(path):
        return schema is not None
    return schema is None or beside.read(path, MAX_BYTES) != schema.to_json().encode()
