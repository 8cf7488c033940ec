"""Putting a bundle of tensors in its place, so that there is the old one or the new one at any moment."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tensorbytes import dtypes
from tensorbytes._wire import mask
from tensorbytes.deferred import Deferred
from tensorbytes.errors import TensorbytesError
from tensorbytes.formats._checkpoint import bundle, sstable
from tensorbytes.formats._checkpoint.bundle_read import Bundle, shard_path
from tensorbytes.io import publish, storage
from tensorbytes.io.checksums import crc32c
from tensorbytes.io.holding import Hold
from tensorbytes.tensor import Strings, Tensor


class BundleTensor(NamedTuple):
    """A tensor and what the index will call it; `code` may be that of another dtype of the same width."""

    name: bytes
    code: int
    value: Tensor | Strings | Deferred


def write(prefix: str, values: list[BundleTensor], sync: bool) -> None:
    """Write the data; then, one writer at a time, put it and its index in place and remove what was there."""
    rows: dict[bytes, tuple[int, tuple[int, ...], int, int, int]] = {}
    publish.check_folder(prefix)
    names = publish.Names(prefix)
    temporary = names.name(0)
    try:
        with publish.replacing(temporary, sync=sync) as file:
            storage.write_pieces(file, _laid_out(values, rows))
        with Hold(prefix):
            shard, shards = (1, 2) if _shards_of(prefix) == 1 else (0, 1)
            entries = {name: bundle.write_entry(row[0], row[1], shard, *row[2:]) for name, row in rows.items()}
            index = sstable.build([(b"", bundle.write_header(shards)), *sorted(entries.items())])
            data = shard_path(prefix, shard, shards)
            try:
                publish.put(temporary, data)
                if sync:
                    publish.sync_folder(data)
                storage.write(f"{prefix}.index", [index], sync=sync)
            except BaseException:
                if _shards_of(prefix) != shards:  # no index names it
                    with contextlib.suppress(OSError):
                        os.unlink(data)
                raise
            _remove_others(prefix, os.path.basename(data))
    finally:
        names.close()


def _remove_others(prefix: str, kept: str) -> None:
    """Remove data that no index names any more."""
    folder, name = os.path.split(prefix)
    ours = re.compile(re.escape(name) + r"\.data-\d{5,}-of-\d{5,}")
    for other in os.listdir(folder or "."):
        if ours.fullmatch(other) and other != kept:
            with contextlib.suppress(OSError):  # it does no harm
                os.unlink(os.path.join(folder, other))


def _shards_of(prefix: str) -> int:
    """The number of shards of the checkpoint that is there; its data must outlive its index."""
    try:
        return Bundle.shards_of(prefix)
    except FileNotFoundError:
        return 0
    except TensorbytesError:  # nobody can read it any more
        return 1


def _laid_out(
    values: list[BundleTensor], rows: dict[bytes, tuple[int, tuple[int, ...], int, int, int]]
) -> Iterator[Any]:
    """The bytes of a shard; on the way, each name gets its row: dtype, shape, offset, size, checksum."""
    at = 0
    for name, code, unread in values:
        value = unread.load()
        assert isinstance(value, Tensor | Strings)
        if isinstance(value, Strings):
            pieces, size, crc = bundle.write_strings(value)
        else:
            gap = -at % min(dtypes.get(value.dtype).itemsize, 8) if value.nbytes else 0
            if gap:
                yield bytes(gap)
            at += gap
            pieces, size, crc = [value.data], value.nbytes, mask(crc32c(value.data))
        rows[name] = (code, value.shape, at, size, crc)
        yield from pieces
        at += size
