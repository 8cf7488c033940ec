"""The schema file beside the records of a writer: at no moment does one stand beside records of another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from tensorbytes import storage
from tensorbytes.io import beside, hidden, publish
from tensorbytes.records.schema import Schema
from tensorbytes.records.schema.json import MAX_BYTES
from tensorbytes.records.write.sink import Files


class Sidecar:
    """Where the schema goes; nowhere if `path` is None. Not everything that is saved again is written again."""

    def __init__(self, path: str | None, durable: bool) -> None:
        self._path, self._durable = path, durable
        self._saved: object = ()  # not even none yet

    @property
    def wanted(self) -> bool:
        return self._path is not None

    def save(self, schema: Schema | None, before: Schema | None, alone: bool) -> None:
        """Save the schema, merged with that of records that are there `before`.

        Without one, what is there is removed if the new records are `alone`: it is about older ones.
        """
        if self._path is None or self._saved is schema:
            return
        if schema is not None:
            merged(schema, before).save_beside(self._path, sync=self._durable)
        elif alone and before is None and storage.is_local(self._path):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)
        self._saved = schema

    @contextlib.contextmanager
    def saved(self, schema: Schema | None, before: Schema | None, files: Files) -> Iterator[None]:
        """Save it before the block, in which the records become visible; where they replace others, after it.

        Meanwhile there is none, and readers look at the records. If those can't be replaced, it comes back.
        """
        alone = not files.count
        if self._path is None or not files.replaces or before is not None or not _differs(self._path, schema):
            self.save(schema, before, alone)
            yield
            return
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
        try:
            self.save(schema, before, alone)
        finally:
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
