"""Lazy reading: a file as a mapping of names to tensors, and as a stream of objects."""

from __future__ import annotations

import itertools
import operator
import struct
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy as np

from tensorbytes import formats, frameworks, metadata, opening
from tensorbytes._wire import crc32c, mask
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    LIMITS,
    MORE_TENSORS,
    CorruptError,
    Hint,
    LimitError,
    Limits,
    MissingNameError,
    TensorbytesError,
    UsageError,
)
from tensorbytes.formats import _record, frame
from tensorbytes.formats import _shortcut as shortcut
from tensorbytes.formats._opened import Opened
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.io import storage
from tensorbytes.io.storage import naming
from tensorbytes.loading import build, casting_of, keep
from tensorbytes.notebook import Displayed
from tensorbytes.patterns import missing_name, some_of
from tensorbytes.tensor import Value
from tensorbytes.tfrecord import HEADER_BYTES
from tensorbytes.tree import Document, Leaf, Stored, leaf_names, restore
from tensorbytes.typing import pinned


class Entry(Displayed):
    """One tensor of an open file: its description now, its data when asked.

    `entry[10:20]` reads a slice without checking the rest of the tensor;
    `entry.load()` reads it whole and verifies its checksum first.
    """

    __slots__ = ("_convert", "_leaf", "_mapped", "_path")

    def __init__(
        self, leaf: Leaf, convert: Callable[[Value | Deferred], Any], path: str, mapped: memoryview | None = None
    ) -> None:
        self._leaf, self._convert, self._path, self._mapped = leaf, convert, path, mapped

    @property
    def name(self) -> str | None:
        return self._leaf.name

    @property
    def nbytes(self) -> int:
        """The bytes it takes in memory."""
        return self._leaf.header.nbytes or 0

    @property
    def meta(self) -> Mapping[str, Any]:
        with naming(self._path, self._mapped):
            return metadata.typed(self._leaf.meta, self._leaf.value.origin)

    @property
    def origin(self) -> Mapping[str, str]:
        """What was noted when it was written of how it was held: its framework, device, class."""
        with naming(self._path, self._mapped):
            return self._leaf.value.origin

    @property
    def stored(self) -> Stored | None:
        """How it is compressed and quantized; None if it is stored as its own bytes."""
        with naming(self._path, self._mapped):
            return self._leaf.stored

    @property
    def kind(self) -> str:
        """tensor, strings, ragged or sparse"""
        return self._leaf.header.kind

    @property
    def dtype(self) -> str:
        return self._leaf.header.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The shape; None stands for the ragged axes."""
        return self._leaf.header.shape

    def __repr__(self) -> str:
        name = "" if self.name is None else f"{self.name!r}, "
        return f"Entry({name}{self.kind} {self.dtype}{list(self.shape)})"

    def load(self) -> Any:
        """The whole value, verified."""
        with naming(self._path, self._mapped):
            if self._leaf.check is not None:
                self._leaf.check()
            return restore(self._leaf, self._convert)

    def __getitem__(self, index: Any) -> Any:
        with naming(self._path, self._mapped):
            if self.kind == "ragged":
                rows: Any = self._leaf.read()
                return rows.rows()[index]
            made = self._convert(self._leaf.part(index))
            return made[()] if isinstance(made, np.ndarray) and self.kind == "strings" else made

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        with naming(self._path, self._mapped):
            whole = restore(self._leaf, numpy_adapter.from_value) if self._leaf.check is None else self.load()
            return np.array(whole, dtype, copy=copy)

    def __len__(self) -> int:
        size = self.shape[0] if self.shape else None
        if size is None:
            raise UsageError("a scalar has no length")
        return size


class _Names:
    """Where the tensors of a file are, by their names; no leaf is made for it."""

    def __init__(self, documents: list[Document]) -> None:
        self._places: dict[str | None, tuple[list[Leaf], int]] = {}
        self._several: Counter[str | None] = Counter()  # names that more than one has
        count = 0
        for leaves in (document.leaves for document in documents):
            self._places.update(zip(leaf_names(leaves), zip(itertools.repeat(leaves), itertools.count()), strict=False))
            count += len(leaves)
        if len(self._places) < count:
            every = itertools.chain.from_iterable(leaf_names(document.leaves) for document in documents)
            self._several = Counter({name: times for name, times in Counter(every).items() if times > 1})
        self._places.pop(None, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[Any]:
        return iter(self._places)

    def times(self, name: str) -> int:
        """How many tensors have a name."""
        return self._several[name] or int(name in self._places)

    def leaf(self, name: str) -> Leaf:
        leaves, part = self._places[name]
        return leaves[part]


class Reader(Displayed):
    """An open file. Iterate over it for the objects of a stream, index it by name for tensors.

    The file is mapped, not read: opening costs the same for any size, and slices of
    tensors are views of the map. Views stay valid after close().
    """

    def __init__(self, opened: Opened, to: str, device: str | None, dtype: Any = None) -> None:
        self.path, self.format, self._limits = opened.path, opened.format, opened.limits
        self._opened: Opened | None = opened
        self._mapped = opened.data
        self._to, self._device = to, device
        self._casting = casting_of(dtype, opened.chosen)
        self._documents: list[Document] | None = None
        self._by_name: _Names | None = None

    def _convert(self, value: Value | Deferred) -> Any:
        return frameworks.from_value(value, self._to, self._device)

    def _budget(self) -> Budget:
        return Budget(self._limits, 0 if self._mapped is None else len(self._mapped))

    def _decode(self, lazy: bool) -> Iterator[Document]:
        if self._opened is None:
            raise TensorbytesError("the file is closed", path=self.path)
        with naming(self.path, self._mapped):
            yield from self._opened.decode(lazy)

    # What is found out once is kept when it is whole: other threads, and close(), may come in between.

    def _lazy(self) -> list[Document]:
        documents = self._documents
        if documents is None:
            documents = keep(self._decode(lazy=True), self._budget())
            if self._casting is not None:
                for leaf in itertools.chain.from_iterable(document.leaves for document in documents):
                    self._casting.wanted(leaf)
                self._casting.check_used(self.path)
            self._documents = documents
        return documents

    def _names(self) -> _Names:
        names = self._by_name
        if names is None:
            names = self._by_name = _Names(self._lazy())
        return names

    @property
    def meta(self) -> Mapping[str, Any]:
        """Metadata of the whole file: that of its first object."""
        documents = self._lazy()
        if not documents:
            return {}
        first = documents[0]
        told = first if first.meta or len(first.leaves) != 1 else first.leaves[0].value
        return metadata.typed(told.meta, told.origin)

    @property
    def origin(self) -> Mapping[str, str]:
        """What was noted of how the whole was held, such as torch._metadata of a state_dict."""
        documents = self._lazy()
        if not documents:
            return {}
        first = documents[0]
        return first.origin if first.origin or len(first.leaves) != 1 else first.leaves[0].value.origin

    def keys(self) -> list[str]:
        """The names of all tensors, in file order."""
        return list(self._names())

    def values(self) -> list[Entry]:
        """The tensors that have names, unread."""
        return [self[name] for name in self.keys()]

    def items(self) -> list[tuple[str, Entry]]:
        """Each name with its tensor, unread."""
        return list(zip(self.keys(), self.values(), strict=True))

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __len__(self) -> int:
        """How many objects the file holds."""
        return len(self._lazy())

    def __getitem__(self, key: str | int) -> Any:
        """`f["w"]` is the tensor of that name, unread; `f[3]` is object number 3, whole."""
        if isinstance(key, str):
            names = self._names()
            times = names.times(key)
            if times == 1:
                return self._entry(names.leaf(key))
            if times:
                raise MissingNameError(
                    f"{times} tensors are named {key!r}",
                    path=self.path,
                    tensor=key,
                    hints=[Hint(purpose="f[0] takes an object by its number")],
                )
            raise missing_name(key, self.keys(), self.path)
        try:
            number = operator.index(key)
        except TypeError:
            raise UsageError(
                path=self.path,
                expected="the name of a tensor or the number of an object",
                got=repr(key),
                hints=[Hint(purpose="f.entries()[0][:2] slices a tensor without a name")],
            ) from None
        return self._restore(self._lazy()[number])

    def _entry(self, leaf: Leaf) -> Entry:
        (cast,) = self._cast(Document([leaf])).leaves
        return Entry(cast, self._convert, self.path, self._mapped)

    def _cast(self, document: Document) -> Document:
        if self._casting is None:
            return document
        with naming(self.path, self._mapped):
            cast = self._casting.apply(document, self._budget(), lazy=True)
        self._casting.forget()
        return cast

    def _restore(self, document: Document) -> Any:
        """An object, once everything of it is verified."""
        document = self._cast(document)
        with naming(self.path, self._mapped):
            for leaf in document.leaves:
                if leaf.check is not None:
                    leaf.check()
            return build(document, self._convert, self._limits)

    def entries(self) -> list[Entry]:
        """Every tensor of the file, named or not, unread."""
        return [self._entry(leaf) for document in self._lazy() for leaf in document.leaves]

    def __iter__(self) -> Iterator[Any]:
        """The objects of the file one after another, each verified."""
        # list() asks for the length first: what was decoded for that is not decoded again.
        known = self._documents
        if known is not None:
            yield from map(self._restore, known)
            return
        at = yield from self._short()
        if at == 0:
            yield from map(self._restore, self._decode(lazy=False))

    def _short(self) -> Generator[Any, None, int]:
        """The objects of a stream whose first one is plain tensors: portions of them in one call, those that are more
        than that one by one. Returns how many bytes were read, 0 for any other file."""
        data = self._mapped
        if self._opened is None or data is None or not self._has_short_way:
            return 0
        making = None if self._to == "numpy" else frameworks.making(self._to)
        held, at, item, records = pinned(data), 0, 0, 0
        while at < len(held):
            with naming(self.path, data):
                made, at, item, count = shortcut.load_objects(held, at, item, making)
                if not made:
                    if at == 0:
                        return 0
                    document, at = frame.next_document(held, at, item, self._limits)
                    made, item, count = [self._restore(document)], document.item, len(document.leaves)
                records += count
                if records > self._limits.max_tensors:
                    raise LimitError(f"over {self._limits.max_tensors} tensors", hints=[MORE_TENSORS])
            yield from made
        return at

    @property
    def _has_short_way(self) -> bool:
        """Whether tensors are wanted as they are, under the usual limits."""
        plain = self.format == formats.NATIVE and self._device is None and self._casting is None
        usual = self._limits is LIMITS and not (self._opened and self._opened.options)
        return plain and usual and self._to in ("numpy", "torch")

    def verify(self) -> int:
        """Check every byte against the file's checksums; returns the number of objects."""
        return sum(1 for _ in self._decode(lazy=False))

    def close(self) -> None:
        self._opened = self._documents = self._by_name = self._mapped = None

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _glance(self) -> tuple[list[Document], bool] | None:
        """What is known of the file without reading on: its objects and True, or of a stream the first one and False.

        None if finding out might take long, or fails.
        """
        known = self._documents
        if known is not None:
            return known, True
        if self._opened is None or not self._opened.chosen.lists_quickly:
            return None
        try:
            first = list(itertools.islice(self._decode(lazy=True), 2))
        except Exception:  # whoever reads it is told
            return None
        if len(first) > 1:
            return first[:1], False
        self._documents = first
        return first, True

    def __repr__(self) -> str:
        said = f"<tensorbytes file {self.path!r}, format {self.format}"
        known = self._glance()
        if self._opened is None:
            return f"{said}, closed>"
        if known is None:
            return f"{said}>"
        documents, whole = known
        names = [name for document in documents for name in leaf_names(document.leaves) if name is not None]
        stream = "" if whole and len(documents) == 1 else f"{len(documents)} objects" if whole else "a stream, first"
        return ", ".join([said, *filter(None, [stream, some_of(names) if names else ""])]) + ">"


class StreamReader:
    """Objects from a pipe, a socket or another file that can only be read onwards."""

    def __init__(self, file: Any, to: str, device: str | None, limits: Limits, dtype: Any = None) -> None:
        self._file, self._to, self._device, self._limits = file, to, device, limits
        self._casting = casting_of(dtype, formats.get(formats.NATIVE))

    def __iter__(self) -> Iterator[Any]:
        path = storage.describe(self._file)
        with naming(path):
            for document in frame.assemble(self._records(), self._limits, 0):
                if self._casting is not None:
                    size = sum(leaf.value.nbytes for leaf in document.leaves)
                    document = self._casting.apply(document, Budget(self._limits, size))
                    self._casting.forget()
                yield build(document, lambda v: frameworks.from_value(v, self._to, self._device), self._limits)

    def _records(self) -> Iterator[tuple[_record.Record, int, int]]:
        at, budget = 0, Budget(self._limits)
        while True:
            header = storage.read_exactly(self._file, HEADER_BYTES)
            if not header:
                return
            if len(header) < HEADER_BYTES:
                raise CorruptError("the stream ends inside a record's header", at=at)
            length, stored = struct.unpack("<QI", header)
            if stored != mask(crc32c(header[:8])):
                if not at:
                    self._refuse_other(bytes(header))
                raise CorruptError("the checksum of a record's length differs", at=at)
            data = storage.read_exactly(self._file, length + 4)
            if len(data) < length + 4:
                raise CorruptError("the stream ends inside a record", at=at)
            start = at + HEADER_BYTES
            try:
                frame.check_payload(data, 0, length)
            except CorruptError as error:
                raise error.shifted(start) from None
            budget.add_input(length)
            record = frame.at_offset(data, 0, length, start, budget)
            # Objects come one by one, so each has the limits to itself.
            if record.place.part == record.place.parts - 1:
                budget = Budget(self._limits)
            yield record, start, start + length
            at = start + length + 4

    def _refuse_other(self, head: bytes) -> None:
        """Name a file of another kind by its first bytes."""
        head += getattr(self._file, "read1", self._file.read)(formats.SNIFF_BYTES) or b""  # what is there already
        found = formats.sniff(head, sys.maxsize)
        if found is not None:
            raise CorruptError(
                f"not a tb stream (it looks like {found})",
                at=0,
                hints=[Hint(operation="load", arguments=("file",), purpose="reads it")],
            )
        opening.refuse_wrong(head, storage.describe(self._file), formats.NATIVE)

    def close(self) -> None:
        """Leave the file to whoever opened it."""

    def __enter__(self) -> StreamReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
