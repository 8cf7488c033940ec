"""The formats: each module turns documents into bytes and back.

A format is one file here and one row in BUILTIN. Its module has an object FORMAT
that fills in the class `Format` below; see CONTRIBUTING.md.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from types import MappingProxyType, ModuleType, NoneType
from typing import Any, ClassVar, NamedTuple, TypeAlias, get_args, overload

from tensorbytes import metadata, plugins
from tensorbytes.deferred import Deferred
from tensorbytes.errors import (
    USE_TB,
    Hint,
    Limits,
    LossError,
    MissingDependencyError,
    PluginWarning,
    UnsupportedError,
    UsageError,
    nearest,
    unknown,
)
from tensorbytes.formats._opened import Created as Created
from tensorbytes.formats._opened import CreatedStream, write_table
from tensorbytes.formats._opened import Opened as Opened
from tensorbytes.formats._opened import OpenedRows as OpenedRows
from tensorbytes.io import storage
from tensorbytes.io.source import HEAD_BYTES, Source
from tensorbytes.io.storage import Target
from tensorbytes.rows import WRITE_ROWS, table_of_columns
from tensorbytes.tensor import Strings, Tensor, Value
from tensorbytes.tree import Document, Leaf, find_aliases, path_name, read_all
from tensorbytes.typing import Buffer


class FormatEntry(NamedTuple):
    """What must be known of a format before its module is imported."""

    module: str
    extra: str = ""  # the one that installs what it needs
    claims: tuple[str, ...] = ()  # suffixes of files that point to others: the format is asked whether it claims them


# Sniffing asks in this order.
BUILTIN: dict[str, FormatEntry] = {
    "tb": FormatEntry("tensorbytes.formats.frame"),
    "tfrecord": FormatEntry("tensorbytes.formats.tfrecord.format"),
    "safetensors": FormatEntry("tensorbytes.formats.safetensors", claims=(".json",)),
    "npy": FormatEntry("tensorbytes.formats.npy"),
    "torchfile": FormatEntry("tensorbytes.formats.torchfile"),
    "npz": FormatEntry("tensorbytes.formats.npz"),
    "arrow": FormatEntry("tensorbytes.formats.arrow", "arrow"),
    "arrowtensor": FormatEntry("tensorbytes.formats.arrowtensor"),
    "parquet": FormatEntry("tensorbytes.formats.parquet", "arrow"),
    "gguf": FormatEntry("tensorbytes.formats.gguf"),
    "onnx": FormatEntry("tensorbytes.formats.onnx", claims=(".onnx", ".pb")),
    "sparseproto": FormatEntry("tensorbytes.formats.sparseproto"),
    "protobuf": FormatEntry("tensorbytes.formats.protobuf"),
    "tensorproto": FormatEntry("tensorbytes.formats.tensorproto"),
    "checkpoint": FormatEntry("tensorbytes.formats.checkpoint", claims=(".index", "saved_model.pb")),
    "delimited": FormatEntry("tensorbytes.formats.delimited"),
    "raw": FormatEntry("tensorbytes.formats.raw"),
}

# The version of the contract of formats. It grows when one that was written for an older version may no longer work.
API = 1
ENTRY_POINTS = "tensorbytes.formats"
# The format of what nobody asks another one for: it holds everything.
NATIVE = "tb"
# How sure `sniff` may be.
SURE, LIKELY, HARDLY = 1.0, 0.5, 0.25
# How much of a file `sniff` gets to see.
SNIFF_BYTES = HEAD_BYTES

Options: TypeAlias = Mapping[str, Any]
_NONE: Mapping[str, Any] = MappingProxyType({})
_ONE_BY_ONE = (Hint(purpose="save them one by one"), USE_TB)
# The types that options have, in the words of errors and of the documentation.
_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    str: "text",
    Mapping: "a dict",
    NoneType: "None",
    object: "anything",
}

# How much of the text of an entry of metadata errors show.
_MOST_TEXT = 80
# Of a value's origin, what describes how it was held rather than what it is: dropping it loses nothing.
ADVISORY = frozenset({"framework", "memory_format", "python", "type"})
# The same of a whole structure: the versions of a state_dict's modules, the widths of a table's offsets.
ADVISORY_OF_THE_WHOLE = frozenset({"torch._metadata", "arrow.types"})


class Salvaged(NamedTuple):
    """What is whole of a file that was cut off: lazily decoded, not checked yet; the names of the rest, where known."""

    document: Document
    lost: list[str]
    options: Options = MappingProxyType({})  # to write it with


class Option(NamedTuple):
    """A keyword argument of a format's own.

    Callers check that a value is one of its type, or of its choices; whether it makes sense beside others, and what
    depends on the values, is for the format to check.
    """

    type: Any  # of its values: a class, or several of them (str | None)
    help: str  # what it does, in a line of a table
    default: Any = None
    choices: tuple[Any, ...] = ()  # all that it takes, where these are few

    @property
    def expected(self) -> str:
        """What it takes, in words."""
        *words, last = map(repr, self.choices) if self.choices else (_WORDS[kind] for kind in self._kinds)
        return f"{', '.join(words)} or {last}" if words else last

    def takes(self, value: Any) -> bool:
        # A bool is not a number here.
        typed = any(type(value) is int if kind is int else isinstance(value, kind) for kind in self._kinds)
        return typed and (not self.choices or value in self.choices)

    @property
    def _kinds(self) -> tuple[Any, ...]:
        return get_args(self.type) or (self.type,)


def known_options(**named: Option) -> Mapping[str, Option]:
    """The options of a format, by their names."""
    return MappingProxyType(named)


class Format:
    """What every format is, as data, and what it provides.

    Everything that is said of a format elsewhere (tables, words of commands, what is tried on it) is made of these
    facts; tests/contract/test_facts.py holds them against what the format does.

    `allow` names the losses that the caller accepts; `options` are keyword arguments of
    the format's own, from `write_options` or `read_options`.
    """

    # ---- what it is called -----------------------------------------------------
    api: ClassVar[int] = API  # the version of this contract that it was written for
    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()  # other names that people type; suffixes of its files will do as well
    label: ClassVar[str]  # its name in sentences: "NumPy archive"
    words: ClassVar[str]  # what it is, in a line of a table
    suffixes: ClassVar[tuple[str, ...]] = ()
    units: ClassVar[tuple[str, str]] = ("object", "tensor")  # what one of its documents is called, and a value in one
    read_by: ClassVar[str]  # who else reads its files

    # ---- what it holds ---------------------------------------------------------
    holds: ClassVar[str]  # in words
    holds_one: ClassVar[bool] = False  # True: a single tensor, without a key
    structs: ClassVar[bool] = False  # True: a structured array of NumPy's is one value of it
    nameless: ClassVar[bool] = False  # True: what others read in its files has no names
    complete: ClassVar[bool] = False  # True: holds whatever the native frame holds, metadata included
    streams: ClassVar[bool] = False  # True: documents, encoded with item numbers, may follow one another
    documents: ClassVar[bool] = True  # False: holds rows alone
    rows: ClassVar[bool] = False  # True: holds tables of rows, which `create` takes as they are
    masks: ClassVar[bool] = False  # True: rows may lack columns
    ties: ClassVar[bool] = False  # True: a tensor in several places is stored once, and is one tensor again
    empty: ClassVar[bool] = False  # True: no bytes at all are a stream of no objects, or no rows
    framed: ClassVar[bool] = False  # True: its files are records with checksums, as `tfrecord/` frames them
    checksums: ClassVar[str] = ""  # its own ones, in words

    # ---- how it is written -----------------------------------------------------
    writes: ClassVar[bool] = True  # False: for reading alone
    write_options: ClassVar[Mapping[str, Option]] = _NONE
    not_of_rows: ClassVar[frozenset[str]] = frozenset()  # those of these that `create` does not take
    shards: ClassVar[bool] = False  # True: `create` can deal rows to several files
    compressions: ClassVar[tuple[str | None, ...]] = (None,)  # those worth a try: `bench` measures them
    slow_compressions: ClassVar[tuple[str, ...]] = ()  # known as well, but minutes slower than others at no gain
    pipelines: ClassVar[bool] = False  # True: any pipeline of codecs/ is a compression of a tensor

    # ---- how it is read --------------------------------------------------------
    read_options: ClassVar[Mapping[str, Option]] = _NONE
    self_describing: ClassVar[bool] = True  # False: any bytes may be a file of it; `description` says what they are
    unmistakable: ClassVar[bool] = False  # True: `sniff` goes by more than a number; no damaged file passes for one
    may_start_like: ClassVar[frozenset[str]] = frozenset()  # kinds of foreign.WRONG_FILES that its own files resemble
    lists_quickly: ClassVar[bool] = False  # True: what it holds stands in a directory, or before each value
    slices: ClassVar[str] = "yes"  # whether a part of a tensor is read without the rest, in words

    # ---- which files it is -----------------------------------------------------
    several: ClassVar[bool] = False  # True: read from globs, sets of shards and lists of files, too
    several_files: ClassVar[bool] = False  # True: saved and loaded by path, never as bytes
    whole_folders: ClassVar[bool] = False  # True: all of a folder that it claims is its own
    further_files: ClassVar[bool] = False  # True: values may be in files that `files` can't tell: a file names them

    @property
    def salvages(self) -> bool:
        """Whether it finds what is whole of a file that was cut off."""
        return type(self).salvage is not Format.salvage

    def sniff(self, head: bytes, size: int) -> float:
        """How sure it is that a file of this size that starts with these bytes is of this format, from 0 to SURE.

        Where no format is sure, the name of the file decides between those that may be.
        """
        return 0

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> Iterable[Buffer]:
        """The bytes of a document, piece by piece: never one big join. Losses are raised before the first piece."""
        if self.documents:
            raise NotImplementedError
        raise LossError(
            f"{self.label} files hold rows, which bytes alone do not describe; this is one object",
            feature="rows",
            hints=[
                Hint(operation="save", arguments=("columns", "path"), purpose="writes a dict of columns"),
                *WRITE_ROWS,
            ],
        )

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        """Raise the losses that writing would raise, at the cost of a look at the values: nothing is encoded.

        This one is for formats whose `encode` gives a header and the tensor's own memory.
        """
        next(iter(self.encode(document, allow, options)), None)

    def written_apart(self, document: Document, options: Options) -> dict[int, int]:
        """The leaves that are the tensor of an earlier leaf, and would be written and read as another one: no value
        is lost, but the report of `convert` tells it. Each with the number of that earlier leaf."""
        return {} if self.ties else find_aliases(document.leaves)

    def dumps(self, document: Document, allow: frozenset[str], options: Options) -> bytes:
        return b"".join(self.encode(document, allow, options))

    def pieces(self, document: Document, allow: frozenset[str], options: Options) -> list[Buffer]:
        """The same as `dumps` in pieces, all of them at once."""
        return list(self.encode(document, allow, options))

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        """The documents in some bytes, as views of them. `lazy` reads no content."""
        if self.documents:
            raise NotImplementedError
        return self.open(Source.of_bytes(data), limits, options).decode(lazy)

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        """Save a document; formats of several files do so in their own way. Where rows are held alone, it must be the
        columns of a table, which come back as they are."""
        if not self.documents:
            check_document(self, document, allow)
            for leaf in document.leaves:
                _check_column(self, leaf, allow)
            write_table(table_of_columns(document), self.create(target, options, sync))
            return
        storage.write(target, self.encode(ready_for(document, target), allow, options), sync=sync)

    def decode_file(self, file: io.FileIO, limits: Limits, options: Options) -> Iterator[Document] | None:
        """The documents of a large open file, verified, for formats that read one better than as a whole."""
        return None

    def fits_name(self, path: str) -> bool:
        """Whether a file name asks for this format."""
        return path.lower().endswith(self.suffixes)

    def open(self, source: Source, limits: Limits, options: Options, claimed: bool = False) -> Opened:
        """A file of this format, open for reading. `claimed`: its path is one that the format claims."""
        return Opened(self, source, limits, options, claimed=claimed)

    def create(self, target: Target, options: Options, sync: bool = True, shards: int = 1) -> Created:
        """A file that takes rows: documents one after another, and tables where `rows` says so."""
        if not self.streams:
            raise UnsupportedError(f"format {self.name!r} holds neither rows nor a stream of objects")
        return CreatedStream(self, target, options, sync)

    def check_create(self, options: Options) -> None:
        """Refuse options that `create` does not take."""
        known = {name: option for name, option in self.write_options.items() if name not in self.not_of_rows}
        check_options(self, options, known)

    def recreate(
        self, like: Opened, target: Target, options: Options, sync: bool = True, inputs: Sequence[str] = ()
    ) -> Created:
        """A file that takes what `like.as_stored()` gives. What stands beside `inputs` will stand beside it."""
        raise UnsupportedError(f"format {self.name!r} holds no records")

    def showing(
        self, inputs: Sequence[str], target: str, sync: bool, files: Any, changes: list[str]
    ) -> AbstractContextManager[None]:
        """The block in which parts of some inputs become visible: what stands beside these may be put there, too."""
        return contextlib.nullcontext()

    def salvage(self, data: memoryview, limits: Limits) -> Salvaged | None:
        """What is whole of bytes that end too early, for formats that tell where each tensor is."""
        return None

    def description(self, document: Document) -> Options:
        """The options that reading a document needs, where a format does not describe itself."""
        return _NONE

    def checksums_of(self, data: memoryview | None) -> str:
        """The same as `checksums` of some file; None stands for files that are read by their path."""
        return self.checksums

    def files(self, path: str) -> list[str]:
        """The local files that are read for a path, as far as it tells them."""
        return [path]

    def options_for(self, path: str, options: Options) -> Options:
        """The options to write a file of this name with: a suffix may say some of them."""
        return options

    def part_of(self, path: str) -> tuple[str, list[Hint]]:
        """Of a file that is a part of others and can't be read alone, by its name: what it is, and what helps."""
        return "", []

    def leaving_out(self, names: Collection[str]) -> list[Hint]:
        """What leaves these tensors out of a file, and nothing else that matters: hints on "read_options"."""
        return []

    def replaces(self, path: str, options: Options) -> list[str]:
        """The local files that saving to a path may replace or remove."""
        return [path]

    def claims(self, path: str) -> bool:
        """Whether a local path is one of this format that bytes alone can't be: a folder, an index, a prefix."""
        return False

    def decode_path(self, path: str, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        """The documents at a path that this format claims. `lazy` maps files rather than reading them."""
        raise NotImplementedError


@overload
def resolve(name: str) -> str: ...
@overload
def resolve(name: None) -> None: ...
def resolve(name: Any) -> str | None:
    """A format by its name, by another name for it, or by a suffix of its files: "pt" is "torchfile"."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise UsageError(f"format={name!r}", expected="the name of a format, such as 'npz'")
    if name in BUILTIN:
        return name
    suffix = f".{name.lower().lstrip('.')}"
    for known in BUILTIN:
        if name.lower() == known or suffix in get(known).suffixes or name.lower() in get(known).aliases:
            return known
    find_plugins()
    return name


@cache  # asked several times by each call
def get(name: str) -> Format:
    """The format of this name."""
    name = resolve(name)
    if name not in BUILTIN:
        raise unknown("format", name, BUILTIN)
    row = BUILTIN[name]
    try:
        module = importlib.import_module(row.module)
    except ModuleNotFoundError as error:
        if not row.extra:
            raise
        raise MissingDependencyError(f"format {name!r}", row.extra) from error
    return _checked(name, module)


def _checked(name: str, module: ModuleType) -> Format:
    """The format of a module, if it is the one of this name, for this version of the contract."""
    found = getattr(module, "FORMAT", None)
    if not isinstance(found, Format):
        raise UsageError(f"the module {module.__name__} has no object FORMAT that is a Format")
    if (found.name, found.api) != (name, API):
        raise UsageError(
            f"the module {module.__name__} does not have the format {name!r}",
            expected=f"{name!r}, for version {API} of the contract",
            got=f"{found.name!r}, for version {found.api}",
        )
    return found


def register(name: str, module: str, extra: str = "", claims: tuple[str, ...] = ()) -> None:
    """Add a format to the table: `module` has an object FORMAT that fills in the class Format.

    It is imported when the format is first asked for. Packages that are installed need no call: an entry point of the
    group "tensorbytes.formats", with the format's name and its module, is found where no format of the table fits.
    """
    if name in BUILTIN:
        raise UsageError(f"there is a format {name!r} already, in {BUILTIN[name].module}")
    BUILTIN[name] = FormatEntry(module, extra, claims)
    _claimed_suffixes.cache_clear()


@cache
def find_plugins() -> list[str]:
    """The formats of other packages that are installed; from now on they are in the table."""

    def add(name: str, module: ModuleType) -> None:
        _checked(name, module)
        register(name, module.__name__)

    return plugins.take_in(ENTRY_POINTS, BUILTIN, add)


def writable() -> list[str]:
    """The formats that are written here."""
    return [name for name in BUILTIN if get(name).writes]


def by_suffix(path: str) -> str | None:
    """The format that a file name asks for."""
    for names in _names_in_turn():
        for name in names:
            if get(name).fits_name(path):
                return name
    return None


def _names_in_turn() -> Iterator[list[str]]:
    """The formats of the table, then those of other packages: nothing is imported for files that we know."""
    yield list(BUILTIN)
    yield find_plugins()


def by_path(path: str) -> str | None:
    """The format that claims a local path as a whole."""
    is_file = os.path.isfile(path)
    if is_file and not path.endswith(_claimed_suffixes()):
        return None
    asked = [name for name, row in BUILTIN.items() if not is_file or path.endswith(row.claims)]
    return next((name for name in asked if get(name).claims(path)), None)


@cache
def _claimed_suffixes() -> tuple[str, ...]:
    return tuple(suffix for row in BUILTIN.values() for suffix in row.claims)


def _sureness(name: str, head: bytes, size: int) -> float:
    """What a format's `sniff` says; one of another package that fails keeps nobody from their files."""
    chosen = get(name)
    try:
        return float(chosen.sniff(head, size))
    except Exception as error:
        if type(chosen).__module__.startswith("tensorbytes."):
            raise
        what = f"{name!r} was not asked about a file, since its sniff fails: {type(error).__name__}: {error}"
        warnings.warn(what, PluginWarning, stacklevel=2)
        return 0


def sniff(head: bytes, size: int, path: str = "") -> str | None:
    """The format that the first bytes look like."""
    found: dict[str, float] = {}
    for names in _names_in_turn():
        for name in names:
            sure = _sureness(name, head, size)
            if sure >= SURE:
                return name
            if sure > 0:
                found[name] = sure
        if found:
            break
    return max(found, key=lambda name: (get(name).fits_name(path), found[name]), default=None)


def check_options(chosen: Format, options: Options, known: Mapping[str, Option]) -> None:
    """Refuse options that a format does not have, and values of other types than theirs."""
    if not options:
        return
    wrong = sorted(options.keys() - known.keys())
    if wrong:
        have = ", ".join(sorted(known)) or "none"
        hint = nearest(wrong[0], known)
        raise UsageError(f"format {chosen.name!r} has no option {wrong[0]!r} here; its options: {have}{hint}")
    for name, value in options.items():
        if not known[name].takes(value):
            raise UsageError(
                f"option {name!r} of format {chosen.name!r}", expected=known[name].expected, got=repr(value)
            )


def option_owners(reading: bool) -> list[tuple[str, Option, list[str]]]:
    """The options of all formats, by name: each with the formats that have the very same one."""
    owners: dict[tuple[str, Option], list[str]] = {}
    for name in BUILTIN:
        known = get(name).read_options if reading else get(name).write_options
        for key, option in known.items():
            owners.setdefault((key, option), []).append(name)
    return [(key, option, names) for (key, option), names in sorted(owners.items(), key=lambda row: row[0][0])]


def ready_for(document: Document, target: Target) -> Document:
    """The document as it is to be written to a target. One that can't take back what it was given, which is all but a
    local file, gets nothing before everything was read: reading may fail."""
    return document if storage.is_local(target) else document._replace(leaves=read_all(document.leaves))


def only_leaf(chosen: Format, document: Document, hints: Sequence[Hint] = _ONE_BY_ONE) -> Leaf:
    """The single leaf of a document, for formats that hold one; anything else is a loss."""
    leaves = document.leaves
    if len(leaves) != 1 or leaves[0].path:
        names = ", ".join(str(path_name(leaf.path)) for leaf in leaves[:3])
        raise LossError(
            f"format {chosen.name!r} holds one tensor, not a structure of {len(leaves)} (such as {names})",
            feature="structure",
            hints=hints,
        )
    return leaves[0]


def only_value(chosen: Format, document: Document, allow: frozenset[str]) -> Value:
    """The single tensor of a document, without name or metadata, once nothing is lost in silence."""
    return bare_value(chosen, only_leaf(chosen, document), allow)


def check_plain(document: Document) -> None:
    """Refuse a table, for formats that hold documents alone; tree.to_plain makes one of it."""
    if document.rows is not None:
        raise LossError("this format holds documents, not tables of rows with masks", feature="rows", hints=[USE_TB])


def check_document(chosen: Format, document: Document, allow: frozenset[str]) -> None:
    """Refuse to drop metadata of a whole structure, for formats without a place for it."""
    told = document_meta_to_keep(document)
    if told and "meta" not in allow:
        raise LossError(
            f"format {chosen.name!r} can't hold metadata of the whole: {_listed(told)}",
            feature="meta",
            hints=[Hint("allow", {"meta"}, "to drop it"), USE_TB],
        )


def _check_column(chosen: Format, leaf: Leaf, allow: frozenset[str]) -> None:
    """Refuse to drop metadata of a column."""
    told = {key: text for key, text in meta_to_keep(leaf.value).items() if key != "numpy.dtype"}
    if told and "meta" not in allow:
        raise LossError(
            f"format {chosen.name!r} can't hold metadata of a column: {_listed(told)}",
            feature="meta",
            tensor=leaf.name,
            hints=[Hint("allow", {"meta"}, "to drop it"), USE_TB],
        )


def _listed(told: Mapping[str, str]) -> str:
    return ", ".join(meta_text(key, told[key]) for key in sorted(told))


def meta_text(key: str, text: str) -> str:
    """An entry of metadata, in the words of errors: its text may be long."""
    return f"{key}={text!r}" if len(text) <= _MOST_TEXT else f"{key}={text[:_MOST_TEXT]!r}..."


def meta_to_keep(value: Value | Deferred) -> dict[str, str]:
    """What would be lost of a value without its metadata: all that users gave it, and what of its origin matters."""
    own = {key: text for key, text in value.origin.items() if key not in ADVISORY | {metadata.TYPES}}
    return own | dict(value.meta)


def document_meta_to_keep(document: Document) -> dict[str, str]:
    """The same of a whole structure."""
    own = {key: text for key, text in document.origin.items() if key not in ADVISORY_OF_THE_WHOLE | {metadata.TYPES}}
    return own | dict(document.meta)


def bare_value(chosen: Format, leaf: Leaf, allow: frozenset[str]) -> Value:
    """A leaf's value for a format without names or metadata, once nothing is lost in silence."""
    value = leaf.read()
    metadata = meta_to_keep(value)
    losses = {key: f"metadata {meta_text(key, text)}" for key, text in metadata.items()}
    if value.name is not None:
        losses["name"] = f"the name {value.name!r}"
    if leaf.kind not in ("", "numpy"):
        losses["kind"] = f"that the value is a Python {leaf.kind}"
    if isinstance(value, Strings) and value.encoding != "bytes":
        losses["encoding"] = "that the strings are text; they would come back as bytes"
    for feature, what in losses.items():
        if feature not in allow and not (feature in metadata and "meta" in allow):
            raise LossError(
                f"format {chosen.name!r} can't hold {what}",
                feature=feature,
                hints=[Hint("allow", {feature}, "to drop it"), USE_TB],
            )
    return value


def dense(chosen: Format, value: Value) -> Tensor:
    """A dense tensor, for formats that hold nothing else."""
    if not isinstance(value, Tensor):
        kind = type(value).__name__.lower()
        raise LossError(f"format {chosen.name!r} holds dense tensors only, not {kind}", feature=kind, hints=[USE_TB])
    return value
