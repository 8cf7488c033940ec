r"""TensorFlow checkpoints, and the variables of SavedModels, without TensorFlow.

    <prefix>.index                  a sorted table (_checkpoint/sstable.py): "" -> BundleHeaderProto,
                                    each name -> BundleEntryProto (_checkpoint/bundle.py)
    <prefix>.data-SSSSS-of-NNNNN    the tensors' bytes, one after another: little-endian, C order,
                                    types under 8 bits in a byte each; strings as in _checkpoint/bundle.py

Before TensorFlow 1.0 a checkpoint was one sorted table, which is read as well (_checkpoint/v1.py).

Every block of the index and every tensor has its CRC-32C. A folder of checkpoints has a file
`checkpoint`, the text of a CheckpointState, which names the latest one; a SavedModel is a
folder with a file saved_model.pb and a checkpoint of the prefix variables/variables.

Names are the tensors' own; nested structures join theirs by slashes. Whatever a name, a dtype
and a shape can't say stands in one further string tensor, `_TENSORBYTES`: the JSON object
{name: note}, with the notes of _parts.py. It is written only where there are notes. Dtypes
that TensorFlow lacks are stored as unsigned integers of the same width. Tensors start at a
multiple of their item size; the bytes between belong to none.

When a checkpoint replaces another one of the same prefix, its data goes to a file that the
old index does not name (shard 1 of 2 in place of shard 0 of 1, and back); then the index is
replaced, in one step; then the old data is removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tensorbytes import dtypes
from tensorbytes.budget import Budget
from tensorbytes.deferred import Dense
from tensorbytes.errors import CorruptError, Hint, Known, Limits, UnsupportedError, UsageError
from tensorbytes.formats import Format, Option, Options, _json, known_options
from tensorbytes.formats._checkpoint import bundle_write, sstable, v1
from tensorbytes.formats._checkpoint.bundle_read import Bundle, BundleValue
from tensorbytes.formats._checkpoint.bundle_write import BundleTensor
from tensorbytes.formats._parts import Part, pack, unpack
from tensorbytes.io import storage
from tensorbytes.io.storage import Target
from tensorbytes.tensor import Strings, Tensor
from tensorbytes.tree import Document, Leaf

NOTES = "_TENSORBYTES"
STATE = "checkpoint"
_SAVED_MODEL = "saved_model.pb"
_VARIABLES = os.path.join("variables", "variables")
_VALUE_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_BOOKKEEPING = ("_CHECKPOINTABLE_OBJECT_GRAPH", f"save_counter{_VALUE_SUFFIX}")
_DATA = re.compile(r"(.*)[.]data-[0-9]{5}-of-[0-9]{5}", re.DOTALL)
_STATE_BYTES = 1 << 20
_ATTEMPTS = 5
_HEAD = 1 << 12
_CARRIERS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_LATEST = re.compile(r"""^\s*model_checkpoint_path\s*:\s*(?:"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)')""", re.M)
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.S)
_PLAIN_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
LOAD_PATH = Hint(operation="load", arguments=("path",), purpose="takes its prefix, its .index or its folder")


class Checkpoint(Format):
    name = "checkpoint"
    label = "TensorFlow checkpoint"
    words = "TensorFlow checkpoints and SavedModel variables, without TensorFlow"
    suffixes = (".ckpt", ".index")
    read_by = "TensorFlow"
    holds = "everything"
    complete = True
    checksums = "CRC-32C of each tensor"
    write_options = known_options(state=Option(bool, "True names it the latest checkpoint of its folder", False))
    read_options = known_options(
        keys=Option(str, "`clean` gives plain names, without bookkeeping", "raw", ("raw", "clean"))
    )
    several_files = True
    whole_folders = True

    def claims(self, path: str) -> bool:
        if os.path.isfile(f"{path}.index"):
            return not os.path.exists(path) or _has_magic(f"{path}.index")
        folder, name = os.path.split(path)
        if os.path.isfile(path):
            if name == _SAVED_MODEL:
                return os.path.isdir(os.path.join(folder, "variables"))
            return path.endswith(".index") or (name == STATE and _state_text(path) is not None)
        if not os.path.isdir(path):
            return False
        if os.path.isfile(os.path.join(path, _SAVED_MODEL)):
            return True
        return _state_text(os.path.join(path, STATE)) is not None

    def sniff(self, head: bytes, size: int) -> bool:
        return v1.is_table(head, size)  # the only one that is a file of its own

    def files(self, path: str) -> list[str]:
        if os.path.isdir(path) or _is_v1(path):
            return [path]
        prefix = find_prefix(path)
        return [*_data_files(prefix), f"{prefix}.index"]

    def part_of(self, path: str) -> tuple[str, list[Hint]]:
        found = _DATA.fullmatch(os.path.basename(path))
        if found is None:
            return "", []
        what = "the data of a TensorFlow checkpoint, without its names"
        return what, [Hint(purpose=f"pass {found[1]} or {found[1]}.index")]

    def leaving_out(self, names: Collection[str]) -> list[Hint]:
        if names and all(name in _BOOKKEEPING or "/.ATTRIBUTES/" in name for name in names):
            return [Hint("read_options.keys", "clean", "to leave out what TensorFlow keeps for itself", of="convert")]
        return []

    def replaces(self, path: str, options: Options) -> list[str]:
        prefix = _written_prefix(path)
        return [*_data_files(prefix), f"{prefix}.index"]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        _prepared(document)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        if bytes(data[-8:]) == sstable.MAGIC or v1.is_table(bytes(data[:_HEAD]), len(data)):
            budget = Budget(limits, len(data))
            yield _finished(unpack(v1.read(data, budget, lazy), budget, lazy), options)
            return
        raise UsageError("a checkpoint is several files", hints=[LOAD_PATH])

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        raise UsageError(
            "a checkpoint is several files",
            hints=[
                Hint(
                    operation="save", arguments=("x", Known("folder/model"), Known("checkpoint")), purpose="writes them"
                )
            ],
        )

    def decode_path(self, path: str, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        prefix = find_prefix(path)
        if not os.path.isfile(f"{prefix}.index"):
            data = storage.map_file(prefix) if lazy else storage.read(prefix)
            yield from self.decode(data, limits, lazy, options)
            return
        try:
            document = _read_current(prefix, Budget(limits), lazy)
        except CorruptError as error:
            raise error.shifted(0, error.path or f"{prefix}.index") from None
        yield _finished(document, options)

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        if not storage.is_local(target):
            raise UsageError(f"a checkpoint is several files: it needs a local path, not {storage.describe(target)}")
        prefix = _written_prefix(os.fspath(target))  # type: ignore[arg-type]
        if not os.path.basename(prefix):
            raise UsageError(
                "it is a folder",
                path=storage.describe(target),
                hints=[Hint(purpose="name the checkpoint too, such as 'model'")],
            )
        bundle_write.write(prefix, _prepared(document), sync)
        if options.get("state", False):
            name = _escaped(os.path.basename(prefix))
            text = f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
            storage.write(os.path.join(os.path.dirname(prefix), STATE), [text.encode()], sync=sync)


# ---- reading ----------------------------------------------------------------


def _finished(document: Document, options: Options) -> Document:
    """The document as a caller wants it: under plain names, perhaps."""
    if options.get("keys") == "clean":
        document = document._replace(leaves=_cleaned(document.leaves))
    return document if document.leaves else Document([Leaf(Tensor("bool", (0,), b""), kind="dict")])


def _is_v1(path: str) -> bool:
    """Whether a path is a checkpoint of the first format, which is one file."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return v1.is_table(file.read(_HEAD), os.fstat(file.fileno()).st_size)


def find_prefix(path: str) -> str:
    """The prefix of the checkpoint that a path stands for; of the first format, its file."""
    if os.path.isfile(f"{path}.index"):
        return path
    if os.path.isfile(path) and path.endswith(".index"):
        return path.removesuffix(".index")
    if os.path.isfile(path):  # a file that stands for its folder
        path = os.path.dirname(path) or "."
    if os.path.isfile(os.path.join(path, _SAVED_MODEL)):
        prefix = os.path.join(path, _VARIABLES)
        if not os.path.isfile(f"{prefix}.index"):
            raise UsageError(f"{path} is a SavedModel without variables: there is no {_VARIABLES}.index in it")
        return prefix
    return _latest(path)


def _written_prefix(path: str) -> str:
    """The prefix of a checkpoint that is saved under a path."""
    return path.removesuffix(".index")


def _data_files(prefix: str) -> list[str]:
    """The data that stands under a prefix, whatever its index says."""
    folder, base = os.path.split(prefix)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if (found := _DATA.fullmatch(name)) and found[1] == base]


def _has_magic(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(max(os.fstat(file.fileno()).st_size - 8, 0))
        return file.read(8) == sstable.MAGIC


def _state_text(path: str) -> str | None:
    """The text of a file that names the latest checkpoint, if that is what it is."""
    if not os.path.isfile(path):  # a pipe would be waited for
        return None
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size  # read(n) takes the memory for n bytes before it reads
            text = file.read(min(size, _STATE_BYTES)).decode()
    except (OSError, UnicodeDecodeError):
        return None
    return text if "model_checkpoint_path" in text else None


def _latest(folder: str) -> str:
    """The latest checkpoint of a folder; nothing outside the folder is followed."""
    path = os.path.join(folder, STATE)
    text = _state_text(path)
    if text is None:
        raise FileNotFoundError(f"{folder}: no checkpoint here: no .index, no {_SAVED_MODEL}, no file {STATE!r}")
    name = _latest_name(text)
    if not name or "\0" in name:
        raise CorruptError("model_checkpoint_path is not a name", at=0, path=path)
    prefix = os.path.join(folder, name)
    home = os.path.realpath(folder)
    if os.path.commonpath([home, os.path.realpath(prefix)]) != home:
        raise UnsupportedError(
            f"it leads out of its folder, to {name!r}",
            path=path,
            hints=[Hint(purpose="pass that path, if you trust it")],
        )
    if not os.path.isfile(f"{prefix}.index") and not _is_v1(prefix):
        raise CorruptError(f"the latest checkpoint, {name!r}, is missing: there is no {name}.index", at=0, path=path)
    return prefix


def _latest_name(text: str) -> str:
    """What the text of a state names; nothing, if it names none."""
    found = _LATEST.search(text)
    try:
        return _unescaped(next(group for group in found.groups() if group is not None)) if found else ""
    except UnicodeDecodeError:
        return ""


def _unescaped(text: str) -> str:
    def plain(found: re.Match[bytes]) -> bytes:
        octal, digits, letter = found.groups()
        if letter is None:
            return bytes([int(octal, 8) & 0xFF if octal else int(digits, 16)])
        return _PLAIN_ESCAPES.get(letter, letter)

    return _ESCAPE.sub(plain, text.encode()).decode()


def _escaped(name: str) -> str:
    raw = os.fsencode(name)
    return "".join(
        f"\\{chr(byte)}" if byte in b"\"\\'" else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in raw
    )


def _read_current(prefix: str, budget: Budget, lazy: bool) -> Document:
    """The document of one checkpoint, also if others take its place meanwhile: never data of another one."""
    for _ in range(_ATTEMPTS):
        before = _identity(prefix)
        try:
            document = _read(Bundle(prefix, budget), budget, lazy)
        except (CorruptError, FileNotFoundError):
            if _identity(prefix) == before:
                raise
            continue
        if _identity(prefix) == before:
            return document
    raise CorruptError(f"the checkpoint was replaced {_ATTEMPTS} times while it was read", at=0)


def _identity(prefix: str) -> tuple[int, int]:
    found = os.stat(f"{prefix}.index")
    return found.st_ino, found.st_mtime_ns


def _read(bundle: Bundle, budget: Budget, lazy: bool) -> Document:
    """The document of a checkpoint. Where there are notes, what they join is read even if lazy."""
    values = bundle.lazily() if lazy else bundle.eagerly()
    notes = _notes(bundle, values.pop(NOTES, None))
    parts, checks = [], {}
    for name, value in values.items():
        at = bundle.entries[name].at
        note = notes.pop(name, {})
        check = bundle.check(name) if lazy else None
        if check is not None:
            if isinstance(note, dict) and ("layout" in note or "of" in note):
                check()
            checks[name] = check
        parts.append(Part(name, value, note, at))
    if notes:
        raise CorruptError(f"{NOTES} has a note on {min(notes)!r}, which is not there", at=0)
    document = unpack(parts, budget, lazy)
    if not checks:
        return document
    by_place = {_place(part): checks[part.name] for part in parts if part.name in checks}
    return document._replace(leaves=[_checked(leaf, by_place) for leaf in document.leaves])


def _place(part: Part) -> Any:
    """Where the leaf of a part stands; unlike offsets, no two are the same."""
    return tuple(map(tuple, part.note["path"])) if "path" in part.note else (("key", part.name),)


def _checked(leaf: Leaf, checks: Mapping[Any, Any]) -> Leaf:
    """The leaf with the checksum of its first part to verify when it is loaded."""
    first, then = checks.get(leaf.path), leaf.check
    if first is None:
        return leaf

    def check() -> None:
        first()
        if then is not None:
            then()

    return leaf._replace(check=check)


def _notes(bundle: Bundle, value: BundleValue | None) -> dict[str, Any]:
    if value is None:
        return {}
    entry = bundle.entries[NOTES]
    text = value.load() if entry.is_strings else None
    if not isinstance(text, Strings) or text.shape:
        raise CorruptError(f"{NOTES} must be one string", at=entry.at)
    notes = _json.parse(text.data, entry.offset, NOTES)
    if not isinstance(notes, dict):
        raise CorruptError(f"{NOTES} must be a JSON object", at=entry.at)
    return notes


def _cleaned(leaves: list[Leaf]) -> list[Leaf]:
    """The variables of an object-based checkpoint under their plain names."""
    made: dict[Any, Leaf] = {}
    for leaf in leaves:
        path = leaf.path
        if len(path) == 1 and path[0][0] == "key":
            name = str(path[0][1])
            if name in _BOOKKEEPING:
                continue
            if name.endswith(_VALUE_SUFFIX):
                path = (("key", name.removesuffix(_VALUE_SUFFIX)),)
            elif "/.ATTRIBUTES/" in name:
                continue
        if path in made:
            raise UnsupportedError(
                f"two tensors would be named {path[0][1]!r}", hints=[Hint("keys", "raw", "to read them", of="load")]
            )
        made[path] = leaf._replace(path=path)
    return list(made.values())


# ---- writing ----------------------------------------------------------------


def _prepared(document: Document) -> list[BundleTensor]:
    """Everything to store, names all different."""
    parts = pack(document, _holds, ordered=False)
    names = {part.name for part in parts}
    notes: dict[str, Any] = {}
    made: list[BundleTensor] = []
    moved = {name: _free(name, names) for name in ("", NOTES) if name in names}
    for part in parts:
        name, note = moved.get(part.name, part.name), dict(part.note)
        if name != part.name and "of" not in note:
            note.setdefault("path", [["key", part.name]])
        if note.get("of") in moved:
            note["of"] = moved[note["of"]]
        if note.get("parts"):
            note["parts"] = [moved.get(other, other) for other in note["parts"]]
        if note:
            notes[name] = note
        made.append(BundleTensor(name.encode(), _code(part.value), part.value))
    if notes:
        text = Strings.from_items([_json.dump(notes).encode()], (), "bytes")
        made.append(BundleTensor(NOTES.encode(), dtypes.STRING_CODE, text))
    return made


def _free(name: str, taken: set[str]) -> str:
    """Another name for a tensor whose own has a meaning here: "" is the header, NOTES the notes."""
    number = 2
    while f"{name}~{number}" in taken:
        number += 1
    taken.add(f"{name}~{number}")
    return f"{name}~{number}"


def _holds(value: Dense) -> bool:
    return isinstance(value, Strings) or dtypes.get(value.dtype).in_tensorflow


def _code(value: Dense) -> int:
    if isinstance(value, Strings):
        return dtypes.STRING_CODE
    row = dtypes.get(value.dtype)
    return row.code if row.in_tensorflow else dtypes.get(_CARRIERS[row.itemsize]).code


FORMAT = Checkpoint()
