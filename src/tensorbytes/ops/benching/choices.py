"""Which choices are measured: every format that is written, and each with the compressions that it knows.

A format says itself with which compressions it is worth a try, and who else reads it. One that can't hold the data
is not left out here: it is tried, and says itself why not. A pipeline is left out where it comes to the same
as another one, as bit packing and none at all do for floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tensorbytes import dtypes, formats
from tensorbytes.errors import Hint, MissingDependencyError, UsageError, unknown
from tensorbytes.tensor import Ragged, Sparse, Tensor, Value
from tensorbytes.tree import Document

_ONLY_OURS = "tensorbytes"
# A kind of elements with less than this share of the bytes decides nothing.
_LITTLE = 0.01


@dataclass(frozen=True)
class Choice:
    """A format, and the options that it is written with."""

    format: str
    compression: str | None = None
    asked: bool = False  # by name: then it is tried even where it comes to the same as another

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `save`."""
        # Some compress unless they are told not to.
        option = formats.get(self.format).write_options.get("compression")
        told = self.compression is not None or (option is not None and option.default is not None)
        return {"compression": self.compression} if told else {}

    @property
    def file(self) -> str:
        """A file name that the format is recognised by."""
        return f"file{next(iter(formats.get(self.format).suffixes), '')}"

    @property
    def read_by(self) -> str:
        chosen = formats.get(self.format)
        return _ONLY_OURS if chosen.pipelines and self.compression else chosen.read_by

    @property
    def is_piped(self) -> bool:
        """Whether its compression is a pipeline of codecs, of which any may be asked for."""
        return formats.get(self.format).pipelines

    def __str__(self) -> str:
        return label(self.format, self.compression)


@dataclass
class Choices:
    """What shall be tried, and why some of it can't be."""

    usable: list[Choice] = field(default_factory=list)
    missing: list[tuple[Choice, str]] = field(default_factory=list)


def label(format: str, compression: str | None) -> str:
    return f"{format} with {compression}" if compression else format


def usage(format: str, compression: str | None) -> str:
    """How to write a file like that, in a line of Python."""
    choice = Choice(format, compression)
    quoted = None if compression is None else f'"{compression}"'
    told = f", compression={quoted}" if choice.options else ""
    if not formats.get(format).documents:
        return f'with tb.RecordWriter("{choice.file}"{told}) as file: file.write_batch(x)'
    return f'tb.save(x, "{choice.file}"{told})'


def plan(names: Iterable[str] | str | None, compressions: Iterable[str | None] | str | None) -> Choices:
    """Every format that is written, or those that are named, with all compressions, or those that are named."""
    wanted = None if names is None else [names] if isinstance(names, str) else list(names)
    for name in wanted or ():
        if name not in formats.BUILTIN:
            raise unknown("format", name, formats.BUILTIN)
    given: list[str | None] | None = None
    if compressions is not None:
        given = [compressions] if isinstance(compressions, str) else list(compressions)
    for compression in given or ():
        if compression is not None and not isinstance(compression, str):
            raise UsageError(f"compressions={given!r}", expected='texts such as "zstd", or None')
    found = Choices()
    for name in formats.BUILTIN if wanted is None else wanted:
        try:
            if not formats.get(name).writes:
                if wanted is not None:
                    raise UsageError(
                        f"format {name!r} is read-only", hints=[Hint("formats", purpose="without it", of="bench")]
                    )
                continue
        except MissingDependencyError as error:
            found.missing.append((Choice(name), str(error)))
            continue
        found.usable += _choices(name, given)
    if not found.usable and not found.missing:
        raise UsageError(f"compressions={given!r}: no format among {wanted} knows any of them")
    return found


def distinct(choices: list[Choice], document: Document) -> list[Choice]:
    """The choices without those that would write the same as one before them."""
    from tensorbytes.codecs.pipelines import Pipeline

    kinds = _main_elements(document)
    met: set[Any] = set()
    kept = []
    for choice in choices:
        text = choice.compression
        if choice.is_piped and text not in (None, "auto") and not choice.asked:
            pipeline = Pipeline.parse(text)
            mark = (choice.format, frozenset((kind, pipeline.fitted(kind)) for kind in kinds))
            if mark in met or not any(fit for _, fit in mark[1]):
                continue
            met.add(mark)
        kept.append(choice)
    return kept


def _main_elements(document: Document) -> set[Any]:
    """What most of a document is made of: a counter beside the weights of a model makes no difference."""
    sizes: dict[Any, int] = {}
    for leaf in document.leaves:
        for kind in _elements(leaf.read()):
            sizes[kind] = sizes.get(kind, 0) + leaf.value.nbytes
    return {kind for kind, size in sizes.items() if size >= _LITTLE * max(sizes.values())}


def _elements(value: Value) -> list[Any]:
    """What the parts of a value are made of, as pipelines see it."""
    from tensorbytes.codecs.pipelines import BYTES, elements_of

    if isinstance(value, Ragged | Sparse):
        return [*_elements(value.values), elements_of(dtypes.get("int64"))]
    return [elements_of(dtypes.get(value.dtype)) if isinstance(value, Tensor) else BYTES]


def _choices(name: str, given: list[str | None] | None) -> list[Choice]:
    chosen = formats.get(name)
    if given is None:
        return [Choice(name, compression) for compression in chosen.compressions]
    known = (*chosen.compressions, *chosen.slow_compressions)
    asked = [Choice(name, each, asked=True) for each in given]
    return [one for one in asked if one.compression in known or (one.is_piped and one.compression)]
