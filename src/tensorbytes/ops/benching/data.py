"""The data to measure: any object or file as one document, cut to a size that is measured in reasonable time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tensorbytes import api, dtypes, opening, rows
from tensorbytes.errors import LossError, UsageError
from tensorbytes.formats._opened import BATCH_ROWS, Opened
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.ops.fitting import take_out_of_list
from tensorbytes.ops.plural import many
from tensorbytes.ops.targets import Stack
from tensorbytes.tensor import Header, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf, check_unread

# Tensors below this size are left whole: there is little to gain.
_SMALL = 1 << 16


@dataclass
class Data:
    """What is measured, where it is from, and what was left out of it."""

    document: Document
    source: str
    total: int | None  # bytes before the cut; None if nobody counted them
    notes: list[str] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(leaf.value.nbytes for leaf in self.document.leaves)

    @property
    def description(self) -> str:
        return describe(self.document.leaves)


def gather(obj_or_path: Any, max_bytes: int | None) -> Data:
    """Any object that `dumps` takes, or the content of a file of any format."""
    if storage.is_path(obj_or_path):
        data = _from_file(obj_or_path, max_bytes)
    else:
        document = api.to_document(obj_or_path)
        data = Data(document, type(obj_or_path).__name__, sum(leaf.value.nbytes for leaf in document.leaves))
    data = _cut(data, max_bytes)
    if not data.nbytes:
        raise UsageError("nothing to measure: its tensors have no elements", path=data.source)
    return data


def _from_file(path: Any, max_bytes: int | None) -> Data:
    source = opening.open_file(path)
    name = storage.describe(path)
    if source.rows:
        return _from_rows(source, name, max_bytes)
    documents = source.documents()
    first = next(documents, None)
    if first is None:
        raise UsageError("it holds no tensors", path=name)
    if first.item or next(documents, None) is not None:
        return _from_stream(source, name, max_bytes)
    # Of some values the size is known when they are read.
    known = [leaf if leaf.value.nbytes else leaf._replace(value=leaf.read()) for leaf in first.leaves]
    return Data(first._replace(leaves=known), name, sum(leaf.value.nbytes for leaf in known))


def _from_rows(source: Opened, name: str, max_bytes: int | None) -> Data:
    """Rows become a column for each name."""
    stack = Stack("bench", frozenset({"missing"}))
    ended = True
    for table in source.tables(BATCH_ROWS):
        stack.add(table)
        if max_bytes is not None and stack.nbytes >= max_bytes:
            ended = False
            break
    notes = [f"{'' if ended else 'the first '}{many(stack.rows, 'row')}, as columns"]
    notes += [str(loss) for loss in stack.losses]
    return Data(stack.document(), name, stack.nbytes if ended else None, notes)


def _from_stream(source: Opened, name: str, max_bytes: int | None) -> Data:
    """The objects of a stream become columns like rows do, or, if they are too different, a list."""
    taken: list[Document] = []
    total, ended = 0, True
    for document in source.documents():
        taken.append(document)
        total += sum(leaf.value.nbytes for leaf in document.leaves)
        if max_bytes is not None and total >= max_bytes:
            ended = False
            break
    count = f"{'' if ended else 'the first '}{many(len(taken), 'object')} of a stream"
    stack = Stack("bench", frozenset())
    try:
        for document in taken:
            stack.add(document)
        made, form = stack.document(), "columns"
    except LossError:
        leaves = [
            Leaf(leaf.read(), (("list", number), *leaf.path), leaf.kind)
            for number, document in enumerate(taken)
            for leaf in document.leaves
        ]
        made, form = Document(leaves), "a list"
    return Data(made, name, total if ended else None, [f"{count}, as {form}"])


# ---- cutting ------------------------------------------------------------------


def _cut(data: Data, max_bytes: int | None) -> Data:
    """A part of large data: the middle of each tensor, and, where that is still too much, fewer tensors."""
    document, total = data.document, data.nbytes
    if max_bytes is None or total <= max_bytes:
        with naming(data.source):
            leaves = [Leaf(leaf.read(), leaf.path, leaf.kind) for leaf in check_unread(document).leaves]
        data.document = document._replace(leaves=leaves)
        return data
    share, even = max_bytes / total, is_table(document)
    with naming(data.source):
        leaves = [_cut_leaf(leaf, share, even) for leaf in document.leaves]
    data.notes.append("the middle of each tensor along its first axis")
    left = sum(leaf.value.nbytes for leaf in leaves)
    if left > 2 * max_bytes and len(leaves) > 1:
        kept = _some(leaves, max_bytes)
        data.notes.append(f"{len(kept)} of {len(leaves)} tensors")
        leaves = [take_out_of_list(leaf) for leaf in kept]
    data.document = document._replace(leaves=leaves)
    return data


def _cut_leaf(leaf: Leaf, share: float, even: bool) -> Leaf:
    value, shape = leaf.value, leaf.header.shape
    if leaf.kind or (value.nbytes < _SMALL and not even):
        return Leaf(leaf.read(), leaf.path, leaf.kind)
    if not value.at_hand and value.in_parts and shape and shape[0]:
        return Leaf(leaf.part(slice(*_middle(shape[0], share))), leaf.path)
    return Leaf(_cut_value(leaf.read(), share), leaf.path)


def _cut_value(value: Value, share: float) -> Value:
    if isinstance(value, Tensor):
        # Axes of length 1 in front can't be cut; the first one after them can.
        ones = next((axis for axis, size in enumerate(value.shape) if size != 1), len(value.shape))
        if ones and ones < len(value.shape):
            inner = rows.cut(Tensor(value.dtype, value.shape[ones:], value.data), *_middle(value.shape[ones], share))
            assert isinstance(inner, Tensor)
            return Tensor(
                value.dtype, (*value.shape[:ones], *inner.shape), inner.data, value.name, value.meta, value.origin
            )
    length = rows.count(value)
    return value if not length else rows.cut(value, *_middle(length, share))


def _middle(length: int, share: float) -> tuple[int, int]:
    kept = max(1, math.floor(length * share))
    start = (length - kept) // 2
    return start, start + kept


def _some(leaves: list[Leaf], max_bytes: int) -> list[Leaf]:
    """Tensors from all over the document, at least one."""
    step = math.ceil(sum(leaf.value.nbytes for leaf in leaves) / max_bytes)
    kept: list[Leaf] = []
    size = 0
    for leaf in _spread(leaves, step):
        if size + leaf.value.nbytes <= max_bytes or not size:
            kept.append(leaf)
            size += leaf.value.nbytes
    return kept


def _spread(leaves: list[Leaf], step: int) -> Iterator[Leaf]:
    for start in range(step):
        yield from leaves[start::step]


# ---- what it is ---------------------------------------------------------------


def is_table(document: Document) -> bool:
    """Whether a document is a dict of columns that have the same number of rows."""
    leaves = document.leaves
    if not all(len(leaf.path) == 1 and leaf.path[0][0] == "key" and not leaf.kind for leaf in leaves):
        return False
    lengths = {_length(leaf.header) for leaf in leaves}
    return len(lengths) == 1 and None not in lengths


def _length(header: Header) -> int | None:
    return header.shape[0] if header.shape and header.kind != "sparse" else None


def describe(leaves: list[Leaf]) -> str:
    """What some tensors are, in a few words."""
    if len(leaves) == 1:
        return _described(leaves[0].read())
    kinds: dict[str, int] = {}
    for leaf in leaves:
        kind = _dtype(leaf.read())
        kinds[kind] = kinds.get(kind, 0) + leaf.value.nbytes
    shown = sorted(kinds, key=lambda kind: -kinds[kind])
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"{many(len(leaves), 'tensor')} ({', '.join(shown[:3])}{more})"


def _dtype(value: Value) -> str:
    if isinstance(value, Ragged | Sparse):
        return f"{type(value).__name__.lower()} {_dtype(value.values)}"
    return "strings" if isinstance(value, Strings) else value.dtype


def _described(value: Value) -> str:
    if isinstance(value, Ragged):
        return f"{_dtype(value)}, {many(len(value), 'row')}"
    return f"{_dtype(value)}{list(value.shape)}"


def main_buffer(value: Value) -> memoryview:
    """The bytes of the elements, without offsets and indices."""
    held = value.values if isinstance(value, Ragged | Sparse) else value
    assert isinstance(held.data, memoryview)
    return held.data


def slice_of(document: Document, wanted: int) -> tuple[int, Any] | None:
    """About `wanted` bytes in the middle of the largest dense tensor: (its number, an index); None without one."""
    dense = [(leaf.value.nbytes, number) for number, leaf in enumerate(document.leaves) if _sliceable(leaf)]
    if not dense:
        return None
    number = max(dense, key=lambda pair: pair[0])[1]
    value = document.leaves[number].read()
    assert isinstance(value, Tensor)
    index: list[Any] = []
    for axis, length in enumerate(value.shape):
        step = math.prod(value.shape[axis + 1 :]) * dtypes.get(value.dtype).itemsize
        if step <= wanted or axis == len(value.shape) - 1:
            kept = min(length, max(1, wanted // step))
            start = (length - kept) // 2
            return number, (*index, slice(start, start + kept))
        index.append(length // 2)
    return None


def _sliceable(leaf: Leaf) -> bool:
    return isinstance(leaf.value, Tensor) and bool(leaf.value.shape) and leaf.value.nbytes > 0 and not leaf.kind
