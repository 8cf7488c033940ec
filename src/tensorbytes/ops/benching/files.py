"""What is timed: files of tensors, and files of records, written and read the way `save`, `load` and `open` do."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tensorbytes import api, formats, rows
from tensorbytes.errors import LossError, TensorbytesError
from tensorbytes.ops.benching.choices import Choice
from tensorbytes.ops.benching.data import is_table, main_buffer, slice_of
from tensorbytes.ops.comparing import same_value
from tensorbytes.ops.targets import row_losses
from tensorbytes.tensor import Value
from tensorbytes.tree import Document, Leaf

SLICE_BYTES = 4096
_FLIP_BYTES = 1 << 20
_LEAST_PROOF = 4096
_BATCH_ROWS = 4096


class TensorFile:
    """A file of one format. Values stay neutral: what frameworks do to them is the same for every format."""

    def __init__(self, choice: Choice, document: Document) -> None:
        self.choice, self.document = choice, document
        self._format = formats.get(choice.format)
        self._slice = slice_of(document, SLICE_BYTES)
        self._read_options = self._format.description(document)

    def write(self, path: str) -> None:
        options = self.choice.options
        formats.check_options(self._format, options, self._format.write_options)
        self._format.write(self.document, path, frozenset(), options, False)

    def read(self, path: str) -> Any:
        """All of it, verified where the format has checksums."""
        return api.load(path, self.choice.format, to="tensor", **self._read_options)

    def slice(self, path: str) -> Any:
        """A few kilobytes, copied out of the file, which is opened for that; None where nothing can be sliced."""
        if self._slice is None:
            return None
        number, index = self._slice
        place = self.document.leaves[number].path
        with api.open(path, "r", self.choice.format, to="tensor", **self._read_options) as file:
            entry = file.entries()[number] if not place else file[self.document.leaves[number].name]
            return bytes(entry[index].data)

    def difference(self, back: Any, path: str) -> str:
        """What came back as something else, in words; nothing if all did as it was."""
        found = difference(self.document, api.to_document(back))
        if not found and self.document.meta:
            with api.open(path, "r", self.choice.format, **self._read_options) as file:
                found = "" if dict(file.meta) == dict(self.document.meta) else "the metadata of the whole differs"
        return found or ("" if self._format.self_describing else "the file tells neither dtype nor shape")

    def mapped_share(self, path: str) -> float:
        """How much of the data are views of the file when it is mapped.

        Every byte of the file is inverted, and then again: what is a view changes with it, what is a copy does not.
        """
        try:
            found = api.load(path, self.choice.format, to="tensor", mmap=True, **self._read_options)
        except TensorbytesError:
            return 0.0
        buffers = [main_buffer(leaf.read()) for leaf in api.to_document(found).leaves]
        buffers = [buffer for buffer in buffers if len(buffer)]
        before = [_ends(buffer) for buffer in buffers]
        for name in files_of(path):
            _invert(name)
        views = [buffer for buffer, then in zip(buffers, before, strict=True) if _ends(buffer) != then]
        for name in files_of(path):
            _invert(name)
        return sum(map(len, views)) / max(1, sum(map(len, buffers)))

    def notices_damage(self, path: str) -> bool | None:
        """Whether one wrong bit in the middle of the file is noticed. Spoils the file.

        Small files are no proof: what stands in their middle may be something else than data.
        """
        largest = max(files_of(path), key=os.path.getsize)
        if os.path.getsize(largest) < _LEAST_PROOF:
            return None
        with open(largest, "r+b") as file:
            file.seek(os.path.getsize(largest) // 2)
            was = file.read(1)[0]
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([was ^ 1]))  # the lowest bit: a boolean stays one
        try:
            self.read(path)
        except TensorbytesError:
            return True
        return False


class RecordFile(TensorFile):
    """TFRecord files of Examples: a row for each element of the first axis."""

    def __init__(self, choice: Choice, document: Document) -> None:
        self.choice, self.document = choice, document
        self._columns: dict[str, Value] = {str(leaf.name): leaf.read() for leaf in document.leaves}
        self._rows = rows.count(document.leaves[0].read()) or 0

    def _check(self) -> None:
        losses = row_losses(self.document)
        if losses:
            raise LossError(
                f"format {self.choice.format!r} can't hold everything: {losses[0]}", feature=losses[0].feature
            )
        if not is_table(self.document):
            raise LossError(
                f"format {self.choice.format!r} holds rows: a dict of columns of one length, not this", feature="rows"
            )

    def write(self, path: str) -> None:
        from tensorbytes.records import RecordWriter

        self._check()
        with RecordWriter(path, sync=False, **self.choice.options) as writer:
            writer.write_batch(self._columns)

    def read(self, path: str) -> Any:
        from tensorbytes.records import open_records

        return list(iter(open_records(path, to="tensor").batches(_BATCH_ROWS)))  # without counting the records first

    def slice(self, path: str) -> Any:
        """As many rows as make up the size of a slice."""
        from tensorbytes.records import open_records

        size = sum(value.nbytes for value in self._columns.values()) // max(1, self._rows)
        kept = min(self._rows, max(1, SLICE_BYTES // max(1, size)))
        start = (self._rows - kept) // 2
        return open_records(path, to="tensor")[start : start + kept]

    def difference(self, back: Any, path: str) -> str:
        whole: dict[str, rows.Column] = {}
        for batch in back:
            for name, value in batch.items():
                whole.setdefault(name, rows.Column()).add(value)
        leaves = [Leaf(column.finish(), (("key", name),)) for name, column in whole.items()]
        return difference(self.document, Document(leaves), metadata=False)

    def mapped_share(self, path: str) -> float:
        return 0.0  # numbers of records are strewn over the file


def opened(choice: Choice, document: Document) -> TensorFile:
    return (TensorFile if formats.get(choice.format).documents else RecordFile)(choice, document)


def difference(document: Document, back: Document, metadata: bool = True) -> str:
    """The first thing that is not bit for bit what it was."""
    found = {leaf.path: leaf for leaf in back.leaves}
    for leaf in document.leaves:
        other = found.pop(leaf.path, None)
        name = "the tensor" if leaf.name is None else repr(leaf.name)
        if other is None:
            return f"{name} did not come back"
        if leaf.kind != other.kind or not same_value(leaf.read(), other.read()):
            return f"{name} came back as something else"
        # In a structure the key is the name.
        named = bool(leaf.path) or leaf.value.name == other.value.name
        if metadata and not (named and _meta(leaf) == _meta(other)):
            return f"{name} came back without its name or metadata"
    return f"{next(iter(found.values())).name!r} came back, and was not there" if found else ""


def _meta(leaf: Leaf) -> dict[str, str]:
    return formats.meta_to_keep(leaf.value)


def files_of(path: str) -> list[str]:
    """All files of a choice: it has a folder to itself."""
    folder = os.path.dirname(path)
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]


def _ends(buffer: memoryview) -> tuple[int, int]:
    return buffer[0], buffer[-1]


def _invert(path: str) -> None:
    with open(path, "r+b") as file:
        while piece := file.read(_FLIP_BYTES):
            file.seek(-len(piece), os.SEEK_CUR)
            file.write(np.invert(np.frombuffer(piece, np.uint8)).data)
            file.flush()
