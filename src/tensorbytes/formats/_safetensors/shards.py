"""Checkpoints of several safetensors files: an index that tells which tensor is in which file.

    model-00001-of-00003.safetensors ...    the shards, each a file of its own right
    model.safetensors.index.json            {"metadata": {"total_size": bytes}, "weight_map": {name: shard}}

Reading takes the index, a folder that holds one index or model.safetensors, or the path
under which a checkpoint was saved. The index and the shards must tell of the same tensors.
A shard is a plain name in the index's folder; a link must not lead out of it, except into
the `blobs` of the cache of a model hub, whose snapshots are such links.

A single file that takes the place of a checkpoint removes the old index, and then the old
shards. A crash before that leaves both, which a reader of the folder refuses to choose from.

Writing fills the shards in the order of the tensors. All of them are written under
temporary names first; then they get their own names, then the index gets its own. If the
new shards bear the names of old ones, the old index is removed before the first old shard
is replaced: a crash between these renames leaves shards without an index, which nobody
takes for a checkpoint, and never an index over a mix of old and new shards.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from tensorbytes.errors import CorruptError, Hint, TensorbytesError, UsageError
from tensorbytes.formats import _beside, _json
from tensorbytes.formats._parts import Part
from tensorbytes.io import publish, storage
from tensorbytes.io.holding import Hold
from tensorbytes.io.storage import Target
from tensorbytes.typing import Buffer

SUFFIX, SINGLE = ".safetensors", "model.safetensors"
_INDEX = ".index.json"
_MAX_INDEX = 100_000_000
_INDEX_NAME = re.compile(r"(.*\.safetensors)\.index(\.[^.]+)?\.json", re.DOTALL)
_SHARD_NAME = re.compile(r"(.*)-[0-9]{5}-of-[0-9]{5}\.safetensors", re.DOTALL)

_File = TypeVar("_File", bound=Any)


# ---- reading ----------------------------------------------------------------


def find(path: str) -> list[str]:
    """The indexes, or the single file, that a path leads to. It should be one; a plain file leads to nothing else."""
    if os.path.isdir(path):
        matches = [match for name in sorted(os.listdir(path)) if (match := _INDEX_NAME.fullmatch(name))]
        matches = [match for match in matches if os.path.isfile(os.path.join(path, match[0]))]
        singles = sorted({SINGLE, *(match[1] for match in matches)})
        names = [match[0] for match in matches] + [name for name in singles if os.path.isfile(os.path.join(path, name))]
        return [os.path.join(path, name) for name in names]
    if _INDEX_NAME.fullmatch(os.path.basename(path)) and os.path.isfile(path):
        return [path]
    if path.endswith(SUFFIX) and not os.path.exists(path) and os.path.isfile(path + _INDEX):
        return [path + _INDEX]
    return []


def read(path: str, parse: Callable[[memoryview], _File], lazy: bool) -> list[_File]:
    """The files of a checkpoint, each parsed; its index and its shards agree."""
    found, *more = find(path)
    if more:
        names = " and ".join(os.path.basename(name) for name in (found, *more))
        raise UsageError(f"it holds {names}", path=path, hints=[Hint(purpose="pass the path of one of them")])
    get = storage.map_file if lazy else storage.read
    if found.endswith(SUFFIX):
        return [_named(found, lambda: parse(get(found)))]
    wanted = _named(found, lambda: _shards(found))
    folder = os.path.dirname(found)
    return [_shard(folder, name, names, parse, get) for name, names in wanted.items()]


def _named(path: str, act: Callable[[], Any]) -> Any:
    """Run something whose errors tell the offset alone: they get the file's name."""
    try:
        return act()
    except CorruptError as error:
        raise error if error.path else error.shifted(0, path) from None


def _shards(index: str) -> dict[str, set[str]]:
    """The names of the tensors of each shard, in the order in which the shards are first named."""
    if os.path.getsize(index) > _MAX_INDEX:
        raise CorruptError(f"an index of over {_MAX_INDEX} bytes", at=0)
    return _places(storage.read(index))


def _places(data: memoryview) -> dict[str, set[str]]:
    """The same, of the bytes of an index."""
    content = _json.parse(data, 0, "the index")
    places = content.get("weight_map") if type(content) is dict else None
    if type(places) is not dict:
        raise CorruptError("the index has no object 'weight_map'", at=0)
    found: dict[str, set[str]] = {}
    for name, shard in places.items():
        if type(shard) is not str:
            raise CorruptError(f"{name!r} is in no named file", at=0)
        found.setdefault(shard, set()).add(name)
    for shard in found:
        if shard != os.path.basename(shard) or set(shard) & set("/\\:\0") or shard in ("", ".", ".."):
            raise CorruptError(f"{shard!r} is not a plain file name: shards stand beside their index", at=0)
    return dict(sorted(found.items()))


def _shard(
    folder: str, name: str, wanted: set[str], parse: Callable[[memoryview], _File], get: Callable[[str], memoryview]
) -> _File:
    path = os.path.join(folder, name)
    if not os.path.lexists(path):
        raise CorruptError(f"the shard {name!r} that the index names is missing", at=0, path=path)
    _beside.check(path)
    file = _named(path, lambda: parse(get(path)))
    held = {entry.name for entry in file.entries}
    for names, what in ((wanted - held, "is not in this shard, where the index says it is"),
                        (held - wanted, "is in this shard, and the index does not say so")):  # fmt: skip
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise CorruptError(f"{min(names)!r}{more} {what}", at=0, path=path)
    return file  # type: ignore[no-any-return]


def files(path: str) -> list[str]:
    """The files of the checkpoint that a path leads to; a path that leads to none, or to several, is itself."""
    found, *more = find(path) or [path]
    if more or found.endswith(SUFFIX):
        return [path] if more else [found]
    try:
        names = _shards(found)
    except (OSError, TensorbytesError):  # whoever reads it is told
        names = {}
    return [*(os.path.join(os.path.dirname(found), name) for name in names), found]


def held(path: str) -> dict[str, int]:
    """The shards of a checkpoint that was saved under a path, and how many tensors each has; none: a single file."""
    index = index_of(path)
    return {name: len(names) for name, names in _shards(index).items()} if os.path.isfile(index) else {}


# ---- writing ----------------------------------------------------------------


def check_target(target: Target) -> str:
    """The path of a checkpoint to be written."""
    if not storage.is_local(target):
        raise UsageError("max_shard_bytes makes several files", hints=[Hint(purpose="save to a local path")])
    path = os.fspath(target)  # type: ignore[arg-type]
    if not path.endswith(SUFFIX) or os.path.isdir(path):
        raise UsageError(f"a checkpoint is saved under a name such as folder/{SINGLE}", path=path)
    return path


def write(
    path: str,
    parts: Sequence[tuple[Part, int]],
    most: int,
    encode: Callable[[list[Part]], Iterable[Buffer]],
    sync: bool,
) -> None:
    """Write parts, with their sizes, to shards of at most `most` bytes each; a larger tensor is alone in its shard."""
    folder, base = os.path.split(path)
    stem, index = base.removesuffix(SUFFIX), index_of(path)
    split = _split(parts, most)
    if len(split) == 1:
        write_single(path, encode(split[0]), sync)
        return
    new = {f"{stem}-{n:05d}-of-{len(split):05d}{SUFFIX}": part for n, part in enumerate(split, 1)}
    text = _index_text(new, sum(size for _, size in parts))
    publish.check_folder(path)
    names = publish.Names(index)
    ready = {names.name(number): os.path.join(folder, name) for number, name in enumerate(new)}
    try:
        for temporary, some in zip(ready, new.values(), strict=True):
            storage.write(temporary, encode(some), sync=sync)
        with Hold(path):
            stale = _old_shards(index, stem)
            _replace_all(index, ready, text, sync)
            _remove([path, *(os.path.join(folder, name) for name in stale - new.keys())])
            if sync:
                publish.sync_folder(index)
    finally:
        names.close()


def write_single(path: str, pieces: Iterable[Buffer], sync: bool, size: int = 0) -> None:
    """Write one file, of at least `size` bytes; a checkpoint of several that was saved under this name is gone
    afterwards."""
    storage.write(path, pieces, sync=sync, size=size)
    index = index_of(path)
    if not path.endswith(SUFFIX) or not os.path.lexists(index):
        return
    with Hold(path):
        stale = replaced(path)
        for paths in ([index], stale):
            _remove(paths)
            if sync and paths:
                publish.sync_folder(index)


def index_of(path: str) -> str:
    """The index of a checkpoint that is saved under a path."""
    return path + _INDEX


def replaced(path: str) -> list[str]:
    """The shards that a single file of this name takes the place of."""
    folder, base = os.path.split(path)
    return [os.path.join(folder, name) for name in _old_shards(index_of(path), base.removesuffix(SUFFIX))]


def named(path: str) -> list[str]:
    """All shards that are called as those of a checkpoint which is saved under a path, whatever an index says."""
    folder, base = os.path.split(path)
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return []
    matches = filter(None, map(_SHARD_NAME.fullmatch, names))
    return [os.path.join(folder, match[0]) for match in matches if match[1] == base.removesuffix(SUFFIX)]


def _split(parts: Sequence[tuple[Part, int]], most: int) -> list[list[Part]]:
    """The parts of each shard; those of one value stay together."""
    groups: list[tuple[list[Part], int]] = []
    for part, size in parts:
        if "of" in part.note:
            together, total = groups[-1]
            groups[-1] = ([*together, part], total + size)
        else:
            groups.append(([part], size))
    shards: list[list[Part]] = [[]]
    room = most
    for together, total in groups:
        if shards[-1] and total > room:
            shards.append([])
            room = most
        shards[-1] += together
        room -= total
    return shards


def _index_text(new: dict[str, list[Part]], total: int) -> bytes:
    places = {part.name: name for name, parts in new.items() for part in parts}
    content = {"metadata": {"total_size": total}, "weight_map": places}
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def _replace_all(index: str, ready: dict[str, str], text: bytes, sync: bool) -> None:
    """Give shards their names, and write the index; meanwhile there is none, if a reader could mix old and new."""
    if any(map(os.path.lexists, ready.values())):
        _remove([index])
        if sync:
            publish.sync_folder(index)
    for temporary, path in ready.items():
        publish.put(temporary, path)
    if sync:
        publish.sync_folder(index)  # the shards are in their places before the index speaks of them
    storage.write(index, [text], sync=sync)


def _old_shards(index: str, stem: str) -> set[str]:
    """The shards that an old index of this checkpoint names, if there is one."""
    try:
        names = _shards(index)
    except (OSError, TensorbytesError):
        return set()
    return {name for name in names if (match := _SHARD_NAME.fullmatch(name)) and match[1] == stem}


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
