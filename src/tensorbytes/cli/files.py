"""What the arguments of a command name: files, globs, folders, URLs, and `-` for what comes through the pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from tensorbytes.cli.output import Output
from tensorbytes.errors import UsageError
from tensorbytes.io.hidden import is_hidden

STDIN = "-"
STDIN_NAMES = (STDIN, "/dev/stdin")
_WILD = "*?["
# What stands beside a record file and speaks of it: an index, itself a file of tensors.
_INDEX = ".index.tb"


class InputFile(NamedTuple):
    """A path or URL, and the name it goes by in what is shown."""

    path: str
    shown: str


@contextlib.contextmanager
def input_files(arguments: Sequence[str]) -> Iterator[list[InputFile]]:
    """Every file that the arguments name, in their order; what comes through the pipe is kept in a file meanwhile."""
    with contextlib.ExitStack() as stack:
        found = []
        for argument in arguments:
            if argument in STDIN_NAMES:
                found.append(InputFile(stack.enter_context(_spooled()), "stdin"))
            else:
                found += [InputFile(path, path) for path in expand(argument)]
        try:
            yield found
        except Exception as error:
            for file in found:
                as_shown(error, file)
            raise


def as_shown(error: Exception, file: InputFile) -> Exception:
    """The error, with the name that the user knows: not that of the file in which the pipe's bytes are kept."""
    from tensorbytes.errors import TensorbytesError

    def shown(text: str) -> str:
        return text.replace(file.path, file.shown)

    if file.path != file.shown:
        error.args = tuple(shown(arg) if isinstance(arg, str) else arg for arg in error.args)
        if isinstance(error, TensorbytesError):
            error.what, error.path = shown(error.what), error.path and shown(error.path)
            error.hints = tuple(hint.mapped(shown) for hint in error.hints)
    return error


def for_each_named(
    arguments: Sequence[str],
    names: list[str] | None,
    out: Output,
    work: Callable[..., int],
) -> int:
    """Like for_each, where an argument may be FILE::NAME: work(file, names, whether there are several files)."""
    from tensorbytes.cli.reading import addressed

    worst = 0
    groups = list(addressed(arguments, names))
    for files, wanted in groups:
        with input_files(files) as found:
            several = len(found) > 1 or len(groups) > 1
            worst = max(worst, for_each(found, out, partial(work, names=wanted, several=several)))
    return worst


def for_each(files: Sequence[InputFile], out: Output, work: Callable[[InputFile], int]) -> int:
    """Do the work for each file and give the worst exit code. One that can't be read does not keep the others."""
    from tensorbytes.cli import failure, interrupts

    worst = 0
    for file in files:
        try:
            code = work(file)
        except Exception as error:
            interrupts.check()
            failed = failure(error)
            if failed is None or out.broken:
                raise
            code = failed
            out.failed(file.shown, as_shown(error, file))
        worst = max(worst, code)
    return worst


def local(argument: str) -> str:
    """The path that an argument means: ~ is the home folder, and file:// a path too, whose file is not lost unasked."""
    return os.path.expanduser(argument.removeprefix("file://"))


def expand(argument: str) -> list[str]:
    """The paths of an argument: itself, what a pattern matches, the files of a folder."""
    path = local(argument)
    if "://" in path:
        return [path]
    if os.path.isdir(path):
        return _in_folder(path)
    if os.path.lexists(path) or not any(c in path for c in _WILD):
        return [path]
    import glob

    matched = sorted(match for match in glob.glob(path, recursive=True) if not is_hidden(os.path.basename(match)))
    if not matched:
        raise UsageError(f"{argument}: no file matches")
    return [found for match in matched for found in (_in_folder(match) if os.path.isdir(match) else [match])]


def _in_folder(folder: str) -> list[str]:
    """The folder itself if it is one thing, such as a SavedModel; else the files below it that hold tensors."""
    if _is_one(folder):
        return [folder]
    found: list[str] = []
    for at, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        claimed = [name for name in folders if _is_one(os.path.join(at, name))]
        folders[:] = [name for name in folders if name not in claimed]
        found += [os.path.join(at, name) for name in claimed]
        found += [path for path in _own(at, names) if _holds_tensors(path)]
    if not found:
        raise UsageError(f"{folder}: a folder without any file of tensors in it")
    return [path.removeprefix("./") for path in found] if folder == "." else found


def _is_one(folder: str) -> bool:
    """Whether all of the folder belongs to one format. One with a model.safetensors in it may well hold other files."""
    from tensorbytes import formats

    found = formats.by_path(folder)
    return found is not None and formats.get(found).whole_folders


def _own(folder: str, names: list[str]) -> list[str]:
    """Files that stand for themselves: no index of another one, no shard of an index, none that is not whole yet."""
    from tensorbytes import formats

    pointing = {path: formats.by_path(path) for path in (os.path.join(folder, name) for name in names)}
    shards = {file for path, found in pointing.items() if found for file in formats.get(found).files(path)}
    kept = []
    for path in sorted(pointing):
        name = os.path.basename(path)
        beside = name.endswith(_INDEX) and name.removesuffix(_INDEX) in names
        shard = path in shards and not pointing[path]
        if not beside and not shard and not is_hidden(name):
            kept.append(path)
    return kept


def _raise(error: OSError) -> None:
    raise error


def _holds_tensors(path: str) -> bool:
    """Judged by the first bytes, or by the name where they say nothing."""
    from tensorbytes import formats

    if os.path.basename(path).startswith(".") or not os.path.isfile(path):
        return False
    try:
        if formats.by_path(path) is not None:  # an index
            return True
        with open(path, "rb") as file:
            head = file.read(formats.SNIFF_BYTES)
    except OSError:
        return True  # the command will say why it can't be read
    known = formats.sniff(head, os.path.getsize(path)) is not None
    named = formats.by_suffix(path)
    return known or (named is not None and formats.get(named).self_describing)


@contextlib.contextmanager
def _spooled() -> Iterator[str]:
    """What comes through the pipe, as a file: most formats are read from their end or by a map."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads what is piped in, and nothing is: tb info - < FILE")
    import shutil

    from tensorbytes.cli.interrupts import temporary_folder

    with temporary_folder("tensorbytes-") as folder:
        path = os.path.join(folder, "stdin")
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
        yield path
