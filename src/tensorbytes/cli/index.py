"""tb index: where each record of a file starts, saved beside it."""

from __future__ import annotations

import argparse
import os
import warnings

from tensorbytes.cli.files import InputFile, for_each, input_files
from tensorbytes.cli.output import Cell, Output, size_text
from tensorbytes.errors import SidecarWarning, UsageError

EXAMPLES = """examples:
  tb index train.tfrecord            writes train.tfrecord.index.tb
  tb index 'train.tfrecord-*'        every shard
  tb index --check train.tfrecord    exit code 1 if there is no current one

An index makes len(records) and records[17] immediate. It is found by itself,
and used while the file stays as it is: index a file again when it has changed."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("files", nargs="+", metavar="FILE", help="files of records, globs, name@10, or folders")
    parser.add_argument("--check", action="store_true", help="write nothing: say whether there is a current one")


def run(args: argparse.Namespace, out: Output) -> int:
    with input_files(args.files) as found:
        return for_each(_shards(found), out, lambda file: _index(file, args.check, out))


def _shards(found: list[InputFile]) -> list[InputFile]:
    """Every single file: name@10 stands for ten. Indexes among the files of a folder are none."""
    from tensorbytes.formats.tfrecord.files.index import INDEX_SUFFIX
    from tensorbytes.io.paths import expand

    paths = [path for file in found if not file.path.endswith(INDEX_SUFFIX) for path in expand(file.path)]
    if not paths:
        raise UsageError("no file of records among these")
    return [InputFile(path, path) for path in paths]


def _index(file: InputFile, check: bool, out: Output) -> int:
    from tensorbytes import opening
    from tensorbytes.formats.tfrecord.files.index import INDEX_SUFFIX, build_index, current_index
    from tensorbytes.ops.plural import many

    opened = opening.open_file(file.path)
    if not opened.chosen.framed:
        raise UsageError(f"{file.shown} holds tensors, not records: it needs no index")
    if not check:
        build_index(file.path)
    where = file.path + INDEX_SUFFIX
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SidecarWarning)  # its state is told below
        index = current_index(file.path)
    if index is None and not check:
        raise UsageError(f"{file.shown} changed while it was indexed: index it again once nobody writes to it")
    count, exists = None if index is None else len(index), os.path.exists(where)
    state = "current" if index is not None else "outdated" if exists else "missing"
    if out.json:
        size = os.path.getsize(where) if exists else None
        out.item({"path": file.shown, "index": where, "records": count, "size": size, "state": state})
    elif index is not None:
        words = f"{many(len(index), 'record')}, {size_text(os.path.getsize(where))}"
        out.line(f"{where}: ", Cell("current, " if check else "", "green"), words)
    else:
        out.line(f"{where}: ", Cell(state, "yellow"), f" (tb index {file.shown} writes it)")
    return 0 if index is not None else 1
