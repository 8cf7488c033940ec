"""Finding out what a file is, and opening it."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from tensorbytes import formats
from tensorbytes.errors import LIMITS, CorruptError, Hint, Limits, UsageError
from tensorbytes.formats import NATIVE, Format, Options
from tensorbytes.formats._opened import Opened
from tensorbytes.formats.tfrecord.files.bytestreams import holds_nothing, likely_compression
from tensorbytes.io import storage
from tensorbytes.io.paths import byte_range, expand, is_set
from tensorbytes.io.source import Source
from tensorbytes.io.streams.detection import decode_start

# What np.savez() writes of no arrays, too: the name tells which it is.
_EMPTY_ZIP = b"PK\x05\x06" + bytes(18)


def open_file(
    target: Any,
    format: str | None = None,
    *,
    limits: Limits = LIMITS,
    options: Options | None = None,
    own: bool = False,
    private: bool = False,
    dtype: Any = None,
) -> Opened:
    """What a path, a URL, a file object, a glob or a list of paths holds, recognised by its content.

    A local file is mapped; with own=True it is read into memory, with `private` changes to the map stay in the process.
    `dtype` is for formats that have such an option; others ignore it.
    """
    format = formats.resolve(format)
    given = _Given(options or {}, dtype)
    source = Source(target, own=own, private=private)
    if is_set(target):
        return _open(_format_of_several(target, format), source, limits, given)
    storage.check_target(target, "read")
    claiming = _claiming_format(os.fspath(target), format) if source.is_local else None
    if claiming is not None:
        if os.path.isfile(source.target):
            refuse_wrong(source.head, source.path, claiming.name, surely=True)
        return _open(claiming, source, limits, given, claimed=True)
    try:
        chosen = choose(source, format)
        if not chosen.self_describing and format is None and not given.tells_dtype:
            refuse_wrong(source.head, source.path, None)  # named so, but perhaps known
        return _open(chosen, source, limits, given)
    except BaseException:
        source.close()
        raise


class _Given(NamedTuple):
    """What was asked for."""

    options: Options
    dtype: Any = None

    @property
    def tells_dtype(self) -> bool:
        return self.dtype is not None or "dtype" in self.options

    def of(self, chosen: Format) -> Options:
        """The options of a format."""
        takes = self.dtype is not None and "dtype" in chosen.read_options
        options = {**self.options, "dtype": self.dtype} if takes else self.options
        formats.check_options(chosen, options, chosen.read_options)
        return options


def _open(chosen: Format, source: Source, limits: Limits, given: _Given, claimed: bool = False) -> Opened:
    return chosen.open(source, limits, given.of(chosen), claimed)


def open_bytes(data: memoryview, format: str | None, limits: Limits, options: Options, dtype: Any = None) -> Opened:
    """What some bytes hold."""
    source = Source.of_bytes(data)
    return _open(choose(source, formats.resolve(format)), source, limits, _Given(options, dtype))


def _claiming_format(path: str, format: str | None) -> Format | None:
    """The format of a local path that wants the path rather than bytes."""
    name = format or formats.by_path(path)
    if name is not None and formats.get(name).claims(path):
        return formats.get(name)
    if os.path.isdir(path):
        from tensorbytes import foreign

        what, hints = foreign.about_folder(path)
        raise UsageError(what, path=path, hints=hints)
    return None


def _format_of_several(targets: Any, format: str | None) -> Format:
    """The format of a list, a glob or a set of shards: by the first file that is not empty."""
    if format is not None:
        chosen = formats.get(format)
    else:
        paths = [byte_range(target)[0] for target in expand(targets)]
        sources = [Source(path) for path in paths]
        source = next((one for one in sources if not _is_empty(one)), sources[0])
        name = recognise(source) if not _is_empty(source) else None
        several = next(one for one in map(formats.get, formats.BUILTIN) if one.several)
        chosen = several if name is None or several.fits_name(source.path) else formats.get(name)
    if not chosen.several:
        what = f"{storage.describe(targets)} stands for {len(expand(targets))} files"
        raise UsageError(f"{what}, and format {chosen.name!r} is read one file at a time")
    return chosen


def is_empty(target: Any) -> bool:
    """Whether a local file holds nothing, perhaps compressed: it may be of any kind."""
    return _is_empty(Source(target))


def _is_empty(source: Source) -> bool:
    return source.is_local and os.path.isfile(source.target) and holds_nothing(source.head)


def choose(source: Source, format: str | None) -> Format:
    """The format of a source: the given one, unless its bytes are surely something else."""
    if format is None:
        return formats.get(recognise(source))
    chosen = formats.get(format)
    if chosen.self_describing and not chosen.sniff(source.head, source.size):
        refuse_wrong(source.head, source.path, format)
    return chosen


def refuse_wrong(head: bytes, path: str, format: str | None, surely: bool = False) -> None:
    """Raise if a file holds no tensors, and say what it is. `format` is what it was taken for; `surely` asks for what
    no file of any format can be."""
    from tensorbytes import foreign  # its patterns take a moment to compile

    found = foreign.about_file(head, format, surely)
    if found is not None:
        raise UsageError(found.what, path=path, hints=found.hints)


def recognise(source: Source) -> str:
    """The format of a source, by its first bytes; where they say nothing, by its name."""
    path, head = source.path, source.head
    if not head:
        return _format_of_empty(path, formats.by_suffix(path))
    if head == _EMPTY_ZIP and path.lower().endswith(".zip"):
        raise UsageError("an empty zip archive: there is nothing in it", path=path)
    found = formats.sniff(head, source.size, path)
    if found is not None:
        return found
    named = formats.by_suffix(path)
    compression = likely_compression(head) if named is None else "none"
    if (
        compression != "none"
        and formats.get(NATIVE).sniff(decode_start(head, compression), source.size) == formats.SURE
    ):
        raise UsageError(
            f"tensors of the native frame, {compression}-compressed",
            path=path,
            hints=[Hint(purpose="decompress it first")],
        )
    refuse_wrong(head, path, named)
    for name in formats.BUILTIN if named is None else ():
        what, hints = formats.get(name).part_of(path)
        if what:
            raise UsageError(what, path=path, hints=hints)
    if named is None:
        raise UsageError(
            f"can't tell the format from its first bytes ({head[:8].hex(' ')})",
            path=path,
            hints=[Hint("format", choices=tuple(formats.BUILTIN), of="load")],
        )
    return named


def _format_of_empty(path: str, named: str | None) -> str:
    """An empty file is an empty stream, or no rows, of the format that its name says."""
    if named is None:
        named = NATIVE
    if formats.get(named).empty:
        return named
    raise CorruptError("an empty file", at=0, path=path)
