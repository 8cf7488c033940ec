"""merge: several files into one. See splitting for the reverse, and for what is joined by what."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tensorbytes import formats, metadata, opening, structs
from tensorbytes.errors import LIMITS, Hint, Limits, SchemaError, UsageError
from tensorbytes.formats import Options
from tensorbytes.formats._opened import BATCH_ROWS, Created, Opened, Progress
from tensorbytes.io import storage
from tensorbytes.io.paths import byte_range, expand
from tensorbytes.ops.parts import Parts, check_apart
from tensorbytes.ops.selection import check_places
from tensorbytes.ops.splitting import check_copied
from tensorbytes.ops.streaming import check_streams, storage_changes, verify_document
from tensorbytes.ops.targets import row_losses
from tensorbytes.rows import Table
from tensorbytes.tensor import amended
from tensorbytes.tree import Document, Leaf, Path

Prefix = str | Callable[[str], str] | None
_NAMED = 3


def merge(
    srcs: Any,
    dst: Any,
    *,
    format: str | None = None,
    prefix: Prefix = None,
    allow: Iterable[str] | str = (),
    sync: bool = True,
    progress: Progress | None = None,
    limits: Limits = LIMITS,
    **options: Any,
) -> Parts:
    """Join files into one: records after records, rows after rows, objects after objects, tensors beside tensors.

    `srcs` is a glob, "x.tfrecord@4" for all its shards, or a list of paths, in this order. Records are
    copied as they are, their checksums verified, in the compression of the first file unless
    `compression` says otherwise. Tables must have the same columns.

    A tensor's name must be in one of the files only. `prefix="stem"` puts the name of its file, without
    suffix, before each: "a/w" and "b/w"; a tensor without a name is called like its file. A function gives
    another prefix for each path. Metadata of the whole must not contradict each other, unless
    allow="meta": then the first counts.

    The result appears when it is whole, and never in the place of a file that is read. Further arguments are
    options of the format. `progress` is called with the bytes read so far, and their total if it is known.
    """
    format = formats.resolve(format)
    targets = _targets(srcs)
    paths = [storage.describe(byte_range(target)[0]) for target in targets]
    if storage.is_local(dst):
        wanted = format or formats.by_suffix(os.fspath(dst))
        outputs = (
            formats.get(wanted).replaces(os.fspath(dst), options) if wanted in formats.BUILTIN else [os.fspath(dst)]
        )
        check_apart(outputs, [path for path in paths if storage.is_local(path)])
    allowed = frozenset([allow] if isinstance(allow, str) else allow)
    job = _Job(targets, paths, dst, format, sync, progress, limits, options)
    # An empty file may be of any kind.
    empty = [opening.is_empty(byte_range(target)[0]) for target in targets]
    known = [
        None if none else opening.open_file(target, limits=limits) for target, none in zip(targets, empty, strict=True)
    ]
    sources = [source for source in known if source is not None]
    if any(source.holds_records for source in sources) or not sources:
        tensors = next((source.path for source in sources if not source.holds_records), None)
        if tensors is not None:
            records = next(source.path for source in sources if source.holds_records)
            raise UsageError(
                f"{records} holds records and {tensors} tensors",
                hints=[Hint(operation="convert", arguments=("src", "dst"), purpose="makes one kind of the other")],
            )
        return job.copies(prefix)
    each = [one or opening.open_file(target, limits=limits) for target, one in zip(targets, known, strict=True)]
    return job.tensors(each, prefix, allowed)


def _targets(srcs: Any) -> list[Any]:
    """Every file that is meant; folders and prefixes that a format claims are files here."""
    several = not (storage.is_path(srcs) or hasattr(srcs, "read"))
    found: list[Any] = []
    for item in srcs if several else [srcs]:
        claimed = storage.is_local(item) and formats.by_path(os.fspath(item)) is not None
        found += [item] if claimed else expand([item])
    if not found:
        raise UsageError("no files to merge: the list of paths is empty")
    return found


class _Job(NamedTuple):
    """What was asked for."""

    targets: list[Any]
    paths: list[str]
    dst: Any
    format: str | None
    sync: bool
    progress: Progress | None
    limits: Limits
    options: Options

    @property
    def source(self) -> str:
        more = f" and {len(self.paths) - _NAMED} more" if len(self.paths) > _NAMED else ""
        return ", ".join(self.paths[:_NAMED]) + more

    def _result(self, format: str, count: int, unit: str) -> Parts:
        path = storage.describe(self.dst)
        size = os.path.getsize(path) if storage.is_local(self.dst) and os.path.isfile(path) else 0
        return Parts(self.source, format, [path], [count], unit, size, sources=self.paths)

    def _target_format(self, found: str) -> str:
        return self.format or formats.by_suffix(storage.describe(self.dst)) or found

    # ---- records ---------------------------------------------------------------

    def copies(self, prefix: Prefix) -> Parts:
        """Records as they are, whatever is in them."""
        if prefix is not None:
            raise UsageError("a prefix is for the names of tensors; records follow one another")
        source = opening.open_file(self.targets, limits=self.limits)
        check_copied(source, self.format, storage.describe(self.dst))
        file: Created | None = None
        count = 0
        try:
            for piece, sizes in source.as_stored(self.progress):
                file = file or self._copy_of(source)
                file.add(piece.cut(0, len(sizes)))
                count += len(sizes)
            file = file or self._copy_of(source)
            file.close()
        except BaseException:
            if file is not None:
                file.abort()
            raise
        made = self._result(source.format, count, "record")
        made.changes += file.changes
        return made

    def _copy_of(self, source: Opened) -> Created:
        options = source.chosen.options_for(storage.describe(self.dst), self.options)
        return source.chosen.recreate(source, self.dst, options, self.sync, self.paths)

    # ---- tensors ---------------------------------------------------------------

    def tensors(self, sources: list[Opened], prefix: Prefix, allowed: frozenset[str]) -> Parts:
        wanted = self._target_format(sources[0].format)
        if prefix is None and formats.get(wanted).rows and all(map(_are_rows, sources)):
            return self._tables(sources, wanted)
        firsts = []
        streamed = False
        for source in sources:
            documents = source.documents()
            first = next(documents, None)
            streamed = streamed or first is None or bool(first.item) or next(documents, None) is not None
            firsts.append(first)
        if streamed:
            if prefix is not None:
                raise UsageError("a prefix is for the names of tensors; the objects of streams follow one another")
            return self._streams(sources)
        whole = [
            verify_document(source, first) for source, first in zip(sources, firsts, strict=True) if first is not None
        ]
        return self._documents(sources, whole, prefix, allowed)

    def _put(self, file: Created, items: Iterable[Any]) -> None:
        """Write all of it, or nothing."""
        try:
            for item in items:
                file.add(file.prepare(item) if isinstance(item, Table) else item)
            file.close()
        except BaseException:
            file.abort()
            raise

    def _tables(self, sources: list[Opened], wanted: str) -> Parts:
        count = done = 0

        def tables() -> Iterable[Table]:
            nonlocal count, done
            for source in sources:
                for table in source.tables(BATCH_ROWS):
                    yield table
                    count += table.rows
                    done += table.nbytes
                    self._tell(done)

        chosen = formats.get(wanted)
        chosen.check_create(self.options)
        try:
            self._put(chosen.create(self.dst, self.options, self.sync), tables())
        except SchemaError as error:
            raise error.within("tables of different columns can't be merged") from None
        return self._result(wanted, count, "row")

    def _tell(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, None)

    def _streams(self, sources: list[Opened]) -> Parts:
        wanted = self._target_format(sources[0].format)
        chosen = check_streams(wanted, self.options)
        count = done = 0
        changes: list[str] = []

        def objects() -> Iterable[Document]:
            nonlocal count, done
            for source in sources:
                for document in source.documents():
                    whole = verify_document(source, document)
                    changes.extend(storage_changes(whole, self.options) if not changes else [])
                    yield whole
                    count += 1
                    done += sum(leaf.value.nbytes for leaf in whole.leaves)
                    self._tell(done)

        self._put(chosen.create(self.dst, self.options, self.sync), objects())
        made = self._result(wanted, count, "object")
        made.changes += changes
        return made

    def _documents(
        self, sources: list[Opened], documents: list[Document], prefix: Prefix, allowed: frozenset[str]
    ) -> Parts:
        wanted = self._target_format(sources[0].format)
        chosen = formats.get(wanted)
        if not chosen.writes:
            raise UsageError(
                f"format {wanted!r} is read-only", hints=[Hint("format", purpose="to write another", of="save")]
            )
        formats.check_options(chosen, self.options, chosen.write_options)
        leaves: dict[Any, Leaf] = {}
        owners: dict[Any, str] = {}
        for source, document in zip(sources, documents, strict=True):
            for leaf in document.leaves:
                placed = _place_leaf(leaf, prefix, source.path)
                if placed.path in owners:
                    raise UsageError(
                        f"{placed.name!r} is in {owners[placed.path]} and in {source.path}",
                        tensor=placed.name,
                        hints=[Hint("prefix", "stem", "to keep both under the names of their files", of="merge")],
                    )
                owners[placed.path], leaves[placed.path] = source.path, placed
        check_places(list(leaves.values()), "the files give two values one place")
        meta, types = metadata.to_text(_meta(sources, documents, allowed))
        origin = structs.noted({**_origin(documents), **types}, _structs(sources, documents, prefix))
        chosen.write(Document(list(leaves.values()), meta, origin=origin), self.dst, allowed, self.options, self.sync)
        made = self._result(wanted, len(leaves), "tensor")
        kept = Document(list(leaves.values()))
        if wanted == formats.NATIVE or any(leaf.stored is not None for leaf in kept.leaves):
            made.changes += storage_changes(kept, self.options)
        return made


def _are_rows(source: Opened) -> bool:
    """Whether a source is a table that says no more than rows can."""
    if not source.rows:
        return False
    document = source.as_document()
    return document is None or not row_losses(document)


def _place_leaf(leaf: Leaf, prefix: Prefix, path: str) -> Leaf:
    """A leaf under the name that it has among those of other files."""
    if prefix is None:
        if leaf.path:
            return leaf
        value: Any = leaf.read()
        if value.name is None:
            raise UsageError(
                "its tensor has no name",
                path=path,
                hints=[Hint("prefix", "stem", "to name it after its file", of="merge")],
            )
        return leaf._replace(value=amended(value, None, value.meta), path=(("key", value.name),))
    if isinstance(prefix, str) and prefix != "stem":
        raise UsageError(f"prefix={prefix!r}", expected="'stem', or a function of the path")
    before = _prefix_of(prefix, path)
    if not leaf.path:
        value = leaf.read()
        name = before if value.name is None else f"{before}/{value.name}"
        return leaf._replace(value=amended(value, None, value.meta), path=(("key", name),))
    return leaf._replace(path=_below(before, leaf.path))


def _below(before: str, path: Path) -> Path:
    """A place under a prefix: part of the key, where the place starts with one."""
    (kind, first), *rest = path
    return (("key", f"{before}/{first}"), *rest) if kind == "key" else (("key", before), *path)


def _structs(sources: list[Opened], documents: list[Document], prefix: Prefix) -> list[structs.Struct]:
    """NumPy's structs of all files, where they stand now. The fields of one that was all of a file stand alone."""
    found = []
    for source, document in zip(sources, documents, strict=True):
        for struct in structs.structs_of(document.origin):
            if struct.path:
                path = struct.path if prefix is None else _below(_prefix_of(prefix, source.path), struct.path)
                found.append(struct._replace(path=path))
    return list(dict.fromkeys(found))  # the pieces of a split file tell the same


def _prefix_of(prefix: str | Callable[[str], str], path: str) -> str:
    return _stem(path) if isinstance(prefix, str) else prefix(path)


def _stem(path: str) -> str:
    name = os.path.basename(path.rstrip("/\\"))
    return name.partition(".")[0] or name


def _origin(documents: list[Document]) -> dict[str, str]:
    """What all files that say how they were held agree on; types of metadata and structs are those of each file."""
    found: dict[str, set[str]] = {}
    for document in documents:
        for key, text in document.origin.items():
            if key not in (metadata.TYPES, structs.KEY):
                found.setdefault(key, set()).add(text)
    return {key: texts.pop() for key, texts in found.items() if len(texts) == 1}


def _meta(sources: list[Opened], documents: list[Document], allowed: frozenset[str]) -> dict[str, Any]:
    """The metadata of all files together, typed: 3 is not "3"."""
    found: dict[str, Any] = {}
    owners: dict[str, str] = {}
    for source, document in zip(sources, documents, strict=True):
        for key, told in metadata.typed(document.meta, document.origin).items():
            if repr(found.setdefault(key, told)) != repr(told) and "meta" not in allowed:
                raise UsageError(
                    f"the metadata {key!r} is {found[key]!r} in {owners[key]} and {told!r} in {source.path}",
                    hints=[Hint("allow", {"meta"}, "to keep the first", of="merge")],
                )
            owners.setdefault(key, source.path)
    return found
