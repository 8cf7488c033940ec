"""tb convert: a file to another format."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tensorbytes.cli.files import InputFile, for_each, input_files, local
from tensorbytes.cli.hints import spelled
from tensorbytes.cli.output import Cell, Heading, Output, size_text
from tensorbytes.cli.words import format_text
from tensorbytes.cli.writing import (
    STDOUT,
    check_free,
    force_argument,
    format_name,
    format_options,
    named_option,
    quantizing,
    standard_output,
    typed,
)
from tensorbytes.errors import Hint, LossError, UsageError

EXAMPLES = """examples:
  tb convert model.pt model.safetensors         the suffix says which format
  tb convert model.tb model.npz --allow kind    accept a loss that was refused
  tb convert model.pt half.safetensors --cast bfloat16
  tb convert model.npz small.tb --compression auto --quantize int8
  tb convert model.tb model.npz --compression deflate --option level=9
  tb convert train.npz train.tfrecord --unstack 0 --shards 4
  tb convert *.safetensors out/ --to npz        several files into a folder
  curl -s URL | tb convert - - --to npz | ...   from stdin to stdout

What the target can't hold is listed, and refused unless --allow accepts it.
A file appears when it is whole, and replaces none unless --force says so."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES
    parser.add_argument("sources", nargs="+", metavar="SRC", help="files, globs, folders, URLs, or - for stdin")
    parser.add_argument(
        "target", metavar="DST", help="a file, a folder (with --to), {name}.npy for a file each, or - for stdout"
    )
    parser.add_argument("--to", metavar="FORMAT", help="the target's format: tb, npz, pt, tfrecord ...")
    parser.add_argument("--from", dest="source_format", metavar="FORMAT", help="the source's, if its bytes don't tell")
    force_argument(parser)
    parser.add_argument("--verify", action="store_true", help="read the target again and compare")
    parser.add_argument("--no-sync", dest="sync", action="store_false", help="don't wait for the disk")
    what = parser.add_argument_group("what is converted")
    what.add_argument("--names", action="append", metavar="PATTERN", help="only such tensors: 'layer.*' (repeatable)")
    what.add_argument(
        "--rename", action="append", default=[], metavar="OLD=NEW", help="give a tensor another name (repeatable)"
    )
    what.add_argument("--allow", action="append", default=[], metavar="LOSS", help="accept it; all: any (repeatable)")
    rows = parser.add_argument_group("rows")
    rows.add_argument("--stack", action="store_true", help="rows become arrays, also where the target has rows")
    rows.add_argument("--unstack", type=int, metavar="AXIS", help="arrays become rows, along this axis")
    rows.add_argument("--shards", type=int, default=1, metavar="N", help="deal the rows to N TFRecord files")
    how = parser.add_argument_group("how it is stored")
    how.add_argument("--compression", type=typed, metavar="SPEC", help="auto, zstd, zstd:9, split+huffman, deflate ...")
    how.add_argument("--cast", metavar="DTYPE", help="floats as another type: bfloat16, float16, float32 ...")
    how.add_argument(
        "--quantize",
        action="append",
        metavar="SPEC",
        help="floats in fewer bits: int8, int4,group=32, max_error=0.001, 'embed/*:bfloat16' (repeatable)",
    )
    keyed: dict[str, Any] = {"action": "append", "default": [], "type": named_option, "metavar": "KEY=VALUE"}
    how.add_argument(
        "--option",
        **keyed,
        help="another option of the target's format, such as max_shard_bytes=2000000000 (repeatable)",
    )
    how.add_argument("--read-option", **keyed, help="options of the source's, such as dtype=float32 (repeatable)")


class _Job(NamedTuple):
    file: InputFile
    target: str
    format: str


def run(args: argparse.Namespace, out: Output) -> int:
    args.to, args.source_format = format_name(args.to), format_name(args.source_format)
    with input_files(args.sources) as found:
        jobs = {file: _Job(file, *placed) for file, placed in zip(found, _targets(found, args), strict=True)}
        check_free((path for job in jobs.values() for path in _files(job, args)), args.force)
        if args.target == STDOUT:  # which has no place for a line about an error
            return _convert(jobs[found[0]], args, out)
        return for_each(found, out, lambda file: _convert(jobs[file], args, out))


# ---- where to --------------------------------------------------------------------


def _targets(found: list[InputFile], args: argparse.Namespace) -> list[tuple[str, str]]:
    """The target of each input file, and its format."""
    target = local(args.target)
    folder = target.endswith(("/", os.sep)) or (os.path.isdir(target) and "://" not in target)
    if not folder:
        if len(found) > 1:
            raise UsageError(
                f"{len(found)} sources and the single target {target}: name a folder ({target}/ with --to FORMAT), "
                "or join them with tb merge"
            )
        return [(target, _format(target, args.to))]
    if args.to is None:
        raise UsageError(f"{target} is a folder: say with --to which format the files in it shall have")
    named: dict[str, str] = {}
    for file in found:
        path = os.path.join(target, _stem(file.shown) + _suffix(args.to))
        if path in named:
            raise UsageError(f"{named[path]} and {file.shown} would both become {path}")
        named[path] = file.shown
    if "://" not in target:
        os.makedirs(target, exist_ok=True)
    return [(path, args.to) for path in named]


def _format(target: str, wanted: str | None) -> str:
    from tensorbytes import formats

    if wanted is not None:
        return wanted
    if target == STDOUT:
        raise UsageError("stdout has no suffix that says which format", hints=[Hint("format", of="save")])
    found = formats.by_suffix(target)
    if found is None:
        known = tuple(formats.writable())
        raise UsageError("no format has this suffix", path=target, hints=[Hint("format", choices=known, of="save")])
    return found


def _suffix(format: str) -> str:
    from tensorbytes import formats

    return formats.get(format).suffixes[0]


def _stem(path: str) -> str:
    """A file's name without what says its format: train.tfrecord.gz is train."""
    from tensorbytes import formats

    name = os.path.basename(path.rstrip("/")).partition("@")[0]
    found = formats.by_suffix(name)
    places = [name.lower().rfind(end) for end in formats.get(found).suffixes] if found else []
    return name[: max(places, default=0)] or name


def _files(job: _Job, args: argparse.Namespace) -> list[str]:
    """The files that will be written, as far as it can be known."""
    from tensorbytes import formats
    from tensorbytes.io.paths import shard_path

    target = job.target
    if target == STDOUT:
        return []
    if "{name}" in target:
        from tensorbytes.ops.conversion import file_name
        from tensorbytes.ops.inspection import inspect

        renamed = _renamed(args)
        found = inspect(job.file.path, args.source_format, read_options=dict(args.read_option)).tensors
        names = {renamed.get(tensor.name or "", tensor.name or "tensor") for tensor in found}
        return [target.replace("{name}", file_name(name)) for name in sorted(names)]
    if args.shards > 1:
        return [shard_path(target, index, args.shards) for index in range(args.shards)]
    return formats.get(job.format).replaces(target, dict(args.option))


def _renamed(args: argparse.Namespace) -> dict[str, str]:
    pairs = [text.partition("=") for text in args.rename]
    for old, equals, new in pairs:
        if not (equals and old and new):
            raise UsageError(f"--rename {old + equals + new}: expected OLD=NEW")
    return {old: new for old, _, new in pairs}


# ---- one conversion ----------------------------------------------------------------


def _convert(job: _Job, args: argparse.Namespace, out: Output) -> int:
    from tensorbytes.ops.conversion import convert

    options = format_options(args.option, convert)
    options |= {} if args.compression is None else {"compression": args.compression}
    options |= {} if args.quantize is None else {"quantize": quantizing(args.quantize)}
    piped = job.target == STDOUT
    with (
        standard_output() if piped else contextlib.nullcontext(job.target) as target,
        _progress(job, args, out) as progress,
    ):
        try:
            report = convert(
                job.file.path,
                target,
                job.format,
                src_format=args.source_format,
                names=args.names,
                rename=_renamed(args) or None,
                stack=args.stack or None,
                unstack=args.unstack,
                shards=args.shards,
                cast=args.cast,
                allow=args.allow,
                verify=args.verify,
                sync=args.sync,
                read_options=dict(args.read_option),
                progress=progress,
                **options,
            )
        except OSError as error:
            if error.filename is None and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EIO):
                where = "stdout" if piped else job.target
                raise OSError(error.errno, error.strerror, where) from None
            raise
        except LossError as error:
            if not error.losses:
                raise
            what = f"format {job.format!r} can't hold everything, so nothing was written\n" + "\n".join(
                f"  {loss}  ({spelled(Hint('allow', {loss.feature}))})" for loss in error.losses
            )
            raise error.replaced(what=what, path=job.file.shown) from None
    report.source = job.file.shown
    if piped:
        report.target, report.files = "stdout", []
        _tell_apart(report, out)
    elif out.json:
        out.item(report.to_dict())
    else:
        _show(report, out)
    return 0


@contextlib.contextmanager
def _progress(job: _Job, args: argparse.Namespace, out: Output) -> Iterator[Callable[[int], None] | None]:
    """A bar: of rows where there are any, else of bytes."""
    from tensorbytes.io import storage

    bar = out.progress(job.file.shown)
    if not bar.shows:
        yield None
        return
    rows, total = _extent(job, args)
    if not rows and (args.quantize is not None or (args.compression is not None and not _tells_all(job.format))):
        total = None  # fewer bytes will be written than there are
    bar = out.progress(job.file.shown, "rows" if rows else "bytes")
    done = most = 0

    def written(size: int) -> None:
        nonlocal done, most
        done += size
        most = max(most, done)
        bar(most if total is None else min(most, total), total)

    with bar:
        if rows:
            yield lambda count: bar(count, total)
        else:
            with storage.watching(written):
                yield None


def _tells_all(format: str) -> bool:
    """Whether the bytes of tensors that are compressed one by one are told of as what they were."""
    from tensorbytes import formats

    return formats.get(format).pipelines


def _extent(job: _Job, args: argparse.Namespace) -> tuple[bool, int | None]:
    """Whether rows are counted, else bytes; and how many there are, if that is quickly known."""
    from tensorbytes import opening
    from tensorbytes.io.streams.detection import find_by_suffix

    source = opening.open_file(job.file.path, args.source_format, options=dict(args.read_option))
    if source.rows:
        return True, None if any(map(find_by_suffix, source.files())) else source.count()
    documents = source.documents()
    first = next(documents, None)
    if first is None or first.item or next(documents, None) is not None:
        return True, None
    if args.unstack is not None:
        shapes = map(_shape, first.leaves)
        return True, next((shape[args.unstack] for shape in shapes if len(shape) > args.unstack), None)
    return False, sum(leaf.value.nbytes for leaf in first.leaves) or None


def _shape(leaf: Any) -> tuple[int | None, ...]:
    shape: tuple[int | None, ...] = getattr(leaf.value, "shape", ())  # ragged values have none
    return shape


# ---- what became of it ---------------------------------------------------------------


def _headline(report: Any) -> str:
    from tensorbytes.ops.plural import many

    rows = "" if report.rows is None else f", {many(report.rows, 'row')}"
    checked = ", verified" if report.verified else ""
    return (
        f"{report.source} ({format_text(report.source_format)}) -> "
        f"{report.target} ({format_text(report.target_format)}): "
        f"{many(report.tensors, 'tensor')}{rows}, {size_text(report.nbytes)} of data{checked}"
    )


def _show(report: Any, out: Output) -> None:
    out.line(_headline(report))
    for change in report.changes:
        out.line(f"  {change}")
    if report.lossless:
        out.line("  ", Cell("nothing lost", "green"))
        return
    count = len(report.losses)
    out.line("  ", Cell(f"{count} {'loss' if count == 1 else 'losses'}:", "yellow"))
    out.table(
        [Heading("  name", fold=True), Heading("loss"), Heading("what", fold=True)],
        [
            (f"  {'(the whole)' if loss.name is None else loss.name}", loss.feature, _what(loss))
            for loss in report.losses
        ],
    )


def _what(loss: Any) -> str:
    return f"left out: {loss.what}" if loss.dropped else loss.what


def _tell_apart(report: Any, out: Output) -> None:
    """Of data on stdout, the report goes to stderr."""
    out.note(_headline(report))
    for loss in report.losses:
        out.note(f"  {loss}")
    from tensorbytes import formats

    if not formats.get(report.target_format).documents:
        out.note("  the schema, which stands in a file beside TFRecord files, is not in the stream")
