"""The tensors of a bundle: its index and shards, read whole in two threads, or mapped.

Mapped, a tensor is a view of its shard. What is not one stretch of plain bytes (strings,
slices, the other byte order) is read when it is asked for; of slices, only those that are
needed.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tensorbytes._wire import mask
from tensorbytes._wire.portions import portions
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred, elsewhere, swapped
from tensorbytes.errors import LIMITS, CorruptError
from tensorbytes.formats import _beside
from tensorbytes.formats._checkpoint import bundle, slices, sstable
from tensorbytes.formats._checkpoint.bundle import BundleEntry
from tensorbytes.io import storage
from tensorbytes.io.checksums import crc32c
from tensorbytes.io.workers import MANY, map_in_order
from tensorbytes.tensor import Strings, Tensor

BundleValue = Tensor | Strings | Deferred
# Smaller tensors are read together with their neighbours, up to this much at once.
_LARGE = 1 << 18
_RUN_BYTES = 1 << 20
_GAP_BYTES = 1 << 12
# Less than this is not worth a second thread.
_THREADS_FROM = 1 << 22


class Bundle:
    """The index of a checkpoint: its entries by name, slices apart, and where its shards are."""

    def __init__(self, prefix: str, budget: Budget) -> None:
        self.prefix, self.budget = prefix, budget
        self.header = bundle.BundleHeader()
        self.entries: dict[str, BundleEntry] = {}
        self.slices: dict[str, list[BundleEntry]] = {}  # of the entries that have them
        self._sizes: dict[int, int] = {}
        self._maps: dict[int, memoryview] = {}
        self._read_index(storage.read(f"{prefix}.index"))
        self._check_shards()

    @staticmethod
    def shards_of(prefix: str) -> int:
        """How many shards the index names, whether they are there or not."""
        data = storage.read(f"{prefix}.index")
        items = sstable.read(data, Budget(LIMITS, len(data)))
        return bundle.read_header(items[0].value, items[0].at).shards if items else 0

    def shard_path(self, shard: int) -> str:
        return shard_path(self.prefix, shard, self.header.shards)

    @property
    def stored(self) -> list[BundleEntry]:
        """Every entry with bytes of its own."""
        plain = [entry for entry in self.entries.values() if entry.name not in self.slices]
        return plain + [piece for pieces in self.slices.values() for piece in pieces]

    def _read_index(self, data: memoryview) -> None:
        self.budget.add_input(len(data))
        items = sstable.read(data, self.budget)
        if not items or items[0].key:
            raise CorruptError("the index has no header", at=0)
        found: dict[bytes, BundleEntry] = {}
        at = items[0].at
        try:
            self.header = bundle.read_header(items[0].value, at)
            for key, value, at in items[1:]:
                found[key] = bundle.read_entry(key.decode(errors="replace"), value, self.budget, at)
        except CorruptError as error:
            raise error.shifted(at) from None
        hidden: set[bytes] = set()
        for key, entry in found.items():
            if entry.slices:
                keys = [bundle.slice_key(key, extents) for extents in entry.slices]
                self.slices[entry.name] = slices.check(entry, [found.get(piece) for piece in keys])
                hidden.update(keys)
        for key, entry in found.items():
            if key in hidden:
                continue
            try:
                key.decode()
            except UnicodeDecodeError:
                raise CorruptError(f"the name {key[:80]!r} is not UTF-8", at=entry.at) from None
            self.entries[entry.name] = entry

    def _check_shards(self) -> None:
        """Every entry lies within a shard that is there; bytes that several share are not many."""
        total = 0
        for entry in self.stored:
            if not 0 <= entry.shard < self.header.shards:
                raise CorruptError(
                    f"{entry.name!r} is in shard {entry.shard} of a checkpoint of {self.header.shards}", at=entry.at
                )
            size = self._shard_size(entry)
            if entry.offset + entry.size > size:
                raise CorruptError(
                    f"{entry.name!r} takes bytes {entry.offset} to {entry.offset + entry.size} of "
                    f"{os.path.basename(self.shard_path(entry.shard))}, which has {size}",
                    at=entry.at,
                )
            total += entry.size
        self.budget.charge(total - sum(self._sizes.values()), "the tensors, which share bytes,", 0)

    def _shard_size(self, entry: BundleEntry) -> int:
        if entry.shard not in self._sizes:
            path = self.shard_path(entry.shard)
            try:
                os.lstat(path)
                _beside.check(path)
                self._sizes[entry.shard] = os.stat(path).st_size
            except FileNotFoundError:
                raise CorruptError(
                    f"the shard {os.path.basename(path)}, which holds {entry.name!r}, is missing", at=entry.at
                ) from None
        return self._sizes[entry.shard]

    # ---- mapped ----

    def lazily(self) -> dict[str, BundleValue]:
        """Every value, none of them read."""
        self._maps = {shard: storage.map_file(self.shard_path(shard)) for shard in self._sizes}
        for shard, data in self._maps.items():
            if len(data) < self._sizes[shard]:
                raise CorruptError(
                    "the file became shorter while it was read", at=len(data), path=self.shard_path(shard)
                )
        return {entry.name: self._mapped(entry) for entry in self.entries.values()}

    def _mapped(self, entry: BundleEntry) -> BundleValue:
        if not entry.readable:
            return _unreadable(entry)
        if entry.name in self.slices:
            return slices.deferred(entry, self.slices[entry.name], self._stretch, self.header.big)
        data = self._stretch(entry, False)
        if entry.is_strings:
            read = partial(self.value, entry, data)
            return Deferred("strings", "string", entry.shape, read, entry.size)
        row = entry.row
        assert row is not None
        if self.header.big:
            return elsewhere(row.name, np.ndarray(entry.shape, f"V{row.itemsize}", data), swap=True)
        return Tensor(row.name, entry.shape, data)

    def _stretch(self, entry: BundleEntry, verified: bool) -> memoryview:
        data = self._maps[entry.shard][entry.offset : entry.offset + entry.size]
        if verified:
            self._verify(entry, data)
        return data

    def check(self, name: str) -> Callable[[], None] | None:
        """What verifies a tensor that `lazily` gave as a view or in the other byte order."""
        entry = self.entries[name]
        if entry.is_strings or not entry.readable or name in self.slices:
            return None  # fetching those verifies them
        return partial(self._verify, entry, self._stretch(entry, False))

    # ---- whole ----

    def eagerly(self) -> dict[str, BundleValue]:
        """Every value, verified."""
        for entry in self.entries.values():
            if not entry.readable:
                raise entry.refusal()
        pieces: dict[int, Tensor | Strings] = {}
        for run, values in self._runs():
            pieces.update((id(entry), value) for entry, value in zip(run, values, strict=True))
        made: dict[str, BundleValue] = {}
        for entry in self.entries.values():
            if entry.name in self.slices:
                parts = [pieces[id(piece)] for piece in self.slices[entry.name]]
                made[entry.name] = slices.joined(entry, self.slices[entry.name], parts)
            else:
                made[entry.name] = pieces[id(entry)]
        return made

    def _runs(self) -> Iterator[tuple[list[BundleEntry], list[Tensor | Strings]]]:
        entries = sorted(self.stored, key=lambda entry: (entry.shard, entry.offset, entry.size))
        files: dict[int, io.FileIO] = {}
        try:
            for shard in self._sizes:
                files[shard] = io.FileIO(self.shard_path(shard))
            read = partial(self._read_run, files)
            threads = 1 if sum(entry.size for entry in entries) < _THREADS_FROM else 2
            yield from map_in_order(read, _grouped(entries), threads, ahead=MANY)
        finally:
            for file in files.values():
                file.close()

    def _read_run(
        self, files: dict[int, io.FileIO], run: list[BundleEntry]
    ) -> tuple[list[BundleEntry], list[Tensor | Strings]]:
        start = run[0].offset
        size = max(entry.offset + entry.size for entry in run) - start
        # Alone, a tensor is aligned; among others it is as it was in the file.
        phase = start % 64 if len(run) > 1 else 0
        data = storage.aligned_memory(size, phase)
        for part in portions(size):
            storage.read_at(files[run[0].shard], data[part], start + part.start)
        values = []
        for entry in run:
            at = entry.offset - start
            values.append(self.value(entry, data[at : at + entry.size], phase + at))
        return run, values

    def value(self, entry: BundleEntry, data: memoryview, address: int = 0) -> Tensor | Strings:
        """The value of an entry's bytes, verified; `address` tells how they are aligned."""
        if entry.is_strings:
            try:
                return bundle.read_strings(entry, data, self.header.big)
            except CorruptError as error:
                raise error.shifted(entry.offset, self.shard_path(entry.shard)) from None
        self._verify(entry, data)
        row = entry.row
        assert row is not None
        if self.header.big or address % min(row.itemsize, 8):
            raw = np.frombuffer(data, np.uint8).copy()
            return Tensor(row.name, entry.shape, swapped(raw, row.name) if self.header.big else raw)
        return Tensor(row.name, entry.shape, data)

    def _verify(self, entry: BundleEntry, data: memoryview) -> None:
        if mask(crc32c(data)) != entry.crc:
            raise CorruptError(
                f"{entry.name!r}: the checksum differs", at=entry.offset, path=self.shard_path(entry.shard)
            )


def shard_path(prefix: str, shard: int, shards: int) -> str:
    return f"{prefix}.data-{shard:05d}-of-{shards:05d}"


def _unreadable(entry: BundleEntry) -> Deferred:
    """Listed, but refused once it is asked for."""

    def refuse(index: Any = None) -> Tensor:
        raise entry.refusal()

    name = {20: "resource", 21: "variant"}.get(entry.code, f"unknown({entry.code})")
    return Deferred("tensor", name, entry.shape, refuse, entry.size, refuse)


def _grouped(entries: Sequence[BundleEntry]) -> Iterator[list[BundleEntry]]:
    """Stretches to read at once: large tensors alone, small neighbours together."""
    run: list[BundleEntry] = []
    end = 0
    for entry in entries:
        last = entry.offset + entry.size
        if run and (
            entry.shard != run[0].shard
            or entry.size >= _LARGE
            or entry.offset - end > _GAP_BYTES
            or max(last, end) - run[0].offset > _RUN_BYTES
        ):
            yield run
            run = []
        end = max(last, end) if run else last
        run.append(entry)
        if entry.size >= _LARGE:
            yield run
            run = []
    if run:
        yield run
