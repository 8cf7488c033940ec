"""Which files are meant: paths, URLs, globs, sets of shards, file objects.

    name-00000-of-00010 ... name-00009-of-00010     ten shards of one dataset
    name@10                                         the same ten
    name@*                                          all shards of the name, however many there are

A dataset that lacks a shard must not pass for a whole one: shards are asked for in sets.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tensorbytes.errors import Hint, MissingDependencyError, UsageError
from tensorbytes.io import storage
from tensorbytes.io.hidden import is_hidden

_SHARDS = re.compile(r"(?P<name>.+)@(?P<count>\d+|\*)", re.DOTALL)
# Some writers put the file's suffix after the numbers.
_SHARD = re.compile(r"(?P<name>.*)-(?P<index>\d{5,6})-of-(?P<count>\d{5,6})(?P<suffix>\.[^/\\]*)?", re.DOTALL)
_MAGIC = re.compile(r"[*?\[]")
_URL_MAGIC = re.compile(r"[*\[]")  # a question mark starts a query
# Temporary files of other writers, and what is kept beside data files.
_BESIDE = (".tmp", ".schema.json", ".index.tb")
_MOST_SHARDS = 999_999
_MOST_NAMED = 5


class Split(NamedTuple):
    """A range of a file's bytes that begins and ends between records; without an end, up to the end of the file."""

    path: str
    start: int
    end: int | None = None


def byte_range(target: Any) -> tuple[Any, int, int | None]:
    """(what to open, the first byte, the one after the last) of what `expand` gives."""
    if isinstance(target, Split):
        return target.path, target.start, target.end
    return target, 0, None


def shard_path(path: str, index: int, count: int) -> str:
    """The name of one of `count` shards, as TensorFlow's tools name them."""
    return f"{path}-{index:05d}-of-{count:05d}"


def base_path(path: str) -> str:
    """The name that the shards of one dataset share."""
    shard = _SHARD.fullmatch(path)
    return shard["name"] + (shard["suffix"] or "") if shard else path


def is_set(target: Any) -> bool:
    """Whether a target stands for several files, or a part of one: a list, a glob, "name@10", a Split."""
    if not storage.is_path(target):
        return not hasattr(target, "read")
    path = os.fspath(target)
    if storage.is_url(path):
        return bool(_SHARDS.fullmatch(path) or (_MAGIC if not path.startswith("http") else _URL_MAGIC).search(path))
    return bool(_SHARDS.fullmatch(path) or _MAGIC.search(path)) and not os.path.lexists(path)


def expand(paths: Any) -> list[Any]:
    """Every file that is meant, in the order in which they are read.

    `paths` is a path, a URL, a glob, "name@10", "name@*", a file object, a Split, or an
    iterable of these. A path that exists as it is written is never taken for a pattern.
    Patterns must match something, and all shards of a set that they would match must be there.
    """
    if _is_one(paths):
        return list(_expand_one(paths))
    if isinstance(paths, bytes | bytearray | memoryview | Mapping) or not isinstance(paths, Iterable):
        raise UsageError(
            expected="a path, a URL, a glob, 'name@10', a file object or a list of these",
            got=type(paths).__qualname__,
        )
    found: list[Any] = []
    for item in paths:
        if not _is_one(item):
            raise UsageError("in the list", expected="paths, URLs or file objects", got=type(item).__qualname__)
        found += _expand_one(item)
    if not found:
        raise UsageError("no files to read: the list of paths is empty")
    return found


def _is_one(item: Any) -> bool:
    return isinstance(item, Split) or storage.is_path(item) or hasattr(item, "read")


def _expand_one(item: Any) -> Iterable[Any]:
    if isinstance(item, Split) or not storage.is_path(item):
        return [item]
    path = os.fspath(item)
    if not isinstance(path, str):
        raise UsageError("a path", expected="text", got=repr(path))
    return _expand_url(path) if storage.is_url(path) else _expand_path(path)


# ---- local files -------------------------------------------------------------


def _expand_path(path: str) -> list[str]:
    if os.path.isdir(path):
        raise UsageError(
            f"{path!r} is a folder", hints=[Hint(purpose=f"{os.path.join(path, '*')!r} means the files in it")]
        )
    if os.path.lexists(path):
        return [path]
    if shards := _SHARDS.fullmatch(path):
        return _shards(shards["name"], shards["count"], _local_files)
    if _MAGIC.search(path):
        return _match(path, _local_files(path))
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _local_files(pattern: str) -> list[str]:
    import glob

    return only_files([path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path)])


def only_files(found: list[str]) -> list[str]:
    """What was found by looking for files: a pipe among them would be waited for."""
    for path in found:
        if os.path.exists(path) and not os.path.isfile(path):
            raise UsageError(f"{path!r} is a pipe or a device, which is read only if it is named by itself")
    return found


# ---- URLs --------------------------------------------------------------------


def _expand_url(url: str) -> list[str]:
    shards = _SHARDS.fullmatch(url)
    if not shards and not (_MAGIC if not url.startswith("http") else _URL_MAGIC).search(url):
        return [url]
    system, inner = _file_system(url)
    if system.exists(inner):
        return [url]
    if shards:
        return _shards(shards["name"], shards["count"], _remote_files)
    return _match(url, _remote_files(url))


def _file_system(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ModuleNotFoundError:
        raise MissingDependencyError(f"the URL {url!r}", "cloud") from None
    found: tuple[Any, str] = url_to_fs(url)
    return found


def _remote_files(pattern: str) -> list[str]:
    system, inner = _file_system(pattern)
    names = [name for name, about in system.glob(inner, detail=True).items() if about.get("type") != "directory"]
    # In a chain of file systems ("simplecache::s3://...") the first link with a place in it is the one searched.
    links = pattern.split("::")
    searched = next(index for index, link in enumerate(links) if "://" in link)
    protocol = links[searched].partition("://")[0]
    urls = []
    for name in names:
        link = name if "://" in name else f"{protocol}://{name}"
        urls.append("::".join([*links[:searched], link, *links[searched + 1 :]]))
    return urls


# ---- sets of shards ----------------------------------------------------------


def _match(pattern: str, paths: list[str]) -> list[str]:
    # What was cut off a file, or kept of a writer that was never closed, is not a part of the data.
    found = sorted(path for path in paths if not (path.endswith(_BESIDE) or is_hidden(os.path.basename(path))))
    if not found:
        raise UsageError(f"no file matches {pattern!r}")
    import fnmatch

    last = os.path.basename(pattern)
    for missing in _missing_shards(found):
        # A pattern that leaves shards out on purpose does not match their names.
        absent = [path for path in missing if fnmatch.fnmatchcase(os.path.basename(path), last)]
        if absent:
            raise _missing_error(f"shards that {pattern!r} should match", absent)
    return found


def _missing_shards(paths: list[str]) -> Iterator[list[str]]:
    """The names that are missing from each set of shards."""
    sets: dict[tuple[str, str, str], set[int]] = {}
    for path in paths:
        if shard := _SHARD.fullmatch(path):
            sets.setdefault((shard["name"], shard["count"], shard["suffix"] or ""), set()).add(int(shard["index"]))
    for (name, count, suffix), present in sets.items():
        absent = (index for index in range(int(count)) if index not in present)
        yield [f"{name}-{index:05d}-of-{count}{suffix}" for index in absent]


def _shards(name: str, count: str, files: Any) -> list[str]:
    """The shards of `name@count`, which must all be there."""
    found = _found_shards(name, "", files)
    if not found:  # some writers put the suffix last: x.tfrecord@4 may be x-00000-of-00004.tfrecord ...
        stem, suffix = os.path.splitext(name)
        found = _found_shards(stem, suffix, files) if suffix else {}
    counts = sorted({of for _, of in found})
    if count == "*":
        if len(counts) != 1:
            raise UsageError(
                f"{name}@* is ambiguous: there are sets of {', '.join(map(str, counts))} shards"
                if counts
                else f"no shards of {name!r}: no file is called {shard_path(name, 0, 1)!r} or the like"
            )
        wanted = counts[0]
    else:
        wanted = int(count)
    if not 0 < wanted <= _MOST_SHARDS:
        raise UsageError(expected=f"1 to {_MOST_SHARDS} shards", got=f"{name}@{wanted}")
    absent = [shard_path(name, index, wanted) for index in range(wanted) if (index, wanted) not in found]
    if absent:
        raise _missing_error(f"shards of {name!r}", absent)
    return [found[index, wanted] for index in range(wanted)]


def _found_shards(name: str, suffix: str, files: Any) -> dict[tuple[int, int], str]:
    """The shards that are there: their numbers, and how many there should be."""
    found: dict[tuple[int, int], str] = {}
    for path in files(f"{_escape_glob(name)}-*-of-*{_escape_glob(suffix)}"):
        shard = _SHARD.fullmatch(path)
        same = shard and os.path.basename(shard["name"]) == os.path.basename(name)
        if shard and same and (shard["suffix"] or "") == suffix:
            found[int(shard["index"]), int(shard["count"])] = path
    return found


def _escape_glob(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _missing_error(what: str, absent: list[str]) -> UsageError:
    names = ", ".join(os.path.basename(path) for path in absent[:_MOST_NAMED])
    more = f" and {len(absent) - _MOST_NAMED} more" if len(absent) > _MOST_NAMED else ""
    return UsageError(f"{len(absent)} {what} are missing: {names}{more}")
