"""Every exception that leaves tensorbytes, and the limits that guard its readers.

Each one is data: what is wrong, where (path, byte, record, tensor), what was expected and what was found, and hints on
what to do. `str()` puts that into a line, in Python's words; the command line puts the same into its own. The classes
also derive from the built-in exception that code unaware of tensorbytes would catch.
"""

from __future__ import annotations

import builtins
import functools
import os
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

if TYPE_CHECKING:
    from typing import Self

F = TypeVar("F", bound=Callable[..., Any])

# What an extra installs, where that has another name.
_PACKAGES = {"arrow": "pyarrow", "cloud": "fsspec", "chart": "matplotlib"}


class Known(str):
    """An argument that is known: the path of a file, say."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Hint:
    """Something that may help. It is one of three:

    - an option to pass: `Hint("allow", {"meta"}, "to drop it")`. `of` names the call that takes it, where several
      calls have options of that name that mean different things. Without a value, any fits, or any of `choices`.
    - an operation to call: `Hint(operation="repair", arguments=("src", "dst"), purpose="keeps the records")`. An
      argument is the name of a parameter, or `Known(value)` where it is known.
    - advice that is the same everywhere: `Hint(purpose="save a copy")`.
    """

    option: str = ""
    value: object = ...
    purpose: str = ""
    choices: tuple[str, ...] = ()
    of: str = ""
    operation: str = ""
    arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.value, set):
            object.__setattr__(self, "value", frozenset(self.value))
        object.__setattr__(self, "choices", tuple(self.choices))

    def __str__(self) -> str:
        if self.operation:
            name = f"tb.{self.operation}" if hasattr(builtins, self.operation) else self.operation
            arguments = (repr(str(given)) if isinstance(given, Known) else given for given in self.arguments)
            return " ".join(filter(None, (f"{name}({', '.join(arguments)})", self.purpose)))
        return hint_text("pass", self._assignment(), self) if self.option else self.purpose

    def mapped(self, change: Callable[[str], str]) -> Hint:
        """The same hint, with other values for the arguments that are known."""
        changed = (Known(change(given)) if isinstance(given, Known) else given for given in self.arguments)
        return replace(self, arguments=tuple(changed))

    def _assignment(self) -> str:
        value = "..." if self.value is ... else repr(self.value)
        if isinstance(self.value, frozenset):
            value = "{" + ", ".join(map(repr, sorted(self.value))) + "}"
        name, _, field = self.option.partition(".")
        if name == "read_options":
            return f"{name}={{{field!r}: {value}}}"
        return f"{name}={name.title()}({field}={value})" if field else f"{name}={value}"


def hint_text(verb: str, subject: str, hint: Hint) -> str:
    """`pass allow={'meta'} to drop it`: a verb, an option as a front end spells it, what to choose from, and why."""
    choices = f", one of {', '.join(hint.choices)}" if hint.choices else ""
    return f"{verb} {subject}{choices}{' ' if hint.purpose else ''}{hint.purpose}"


# Those that many places give.
USE_TB = Hint("format", "tb", "to keep it", of="save")
MORE_BYTES = Hint("limits.max_bytes", purpose="to allow it")
MORE_OBJECTS = Hint("limits.max_objects", purpose="to allow them")
MORE_TENSORS = Hint("limits.max_tensors", purpose="to read them")
REPAIR = Hint(operation="repair", arguments=("src", "dst"), purpose="keeps all undamaged records")


class Circumstances(TypedDict, total=False):
    """Where and why, of any of our errors."""

    path: str | None
    record: int | None
    tensor: str | None
    expected: object
    got: object
    hints: Iterable[Hint]


class TensorbytesError(Exception):
    """The base of them all.

    `what` is the fault in words, without place and advice; `path`, `at` (a byte offset), `record` (a number) and
    `tensor` (a name, or that of a feature) say where; `expected` and `got` are what should be there and what is;
    `hints` are what may help. What is not known is None.
    """

    _ATTRIBUTES = ("what", "path", "at", "record", "tensor", "expected", "got", "hints")

    def __init__(
        self,
        what: str = "",
        *,
        path: str | None = None,
        at: int | None = None,
        record: int | None = None,
        tensor: str | None = None,
        expected: object = None,
        got: object = None,
        hints: Iterable[Hint] = (),
    ) -> None:
        super().__init__(what)
        self.what, self.path, self.at = what, path, at
        self.record, self.tensor = record, tensor
        self.expected, self.got = expected, got
        self.hints = tuple(hints)

    def __str__(self) -> str:
        return self.describe(str)

    def describe(self, spell: Callable[[Hint], str]) -> str:
        """All of it in a line, with each hint as `spell` puts it; those it has no words for are left out."""
        source = self._source()
        hints = ", or ".join(filter(None, map(spell, self.hints)))
        separator = "" if not hints else "\n" if "\n" in self.what else "; "
        return f"{source}{': ' if source else ''}{self.fault}{self._place()}{separator}{hints}"

    @property
    def fault(self) -> str:
        """`what: expected ..., got ...`, without place and advice."""
        words = self.what
        if self.expected is not None:
            words += f"{': ' if words else ''}expected {self.expected}"
        if self.got is not None:
            words += f"{', ' if words else ''}got {self.got}"
        return words

    def replaced(self, **changes: Any) -> Self:
        """The same error with other attributes."""
        if unknown := changes.keys() - vars(self).keys() - set(self._ATTRIBUTES):
            raise TypeError(f"{type(self).__name__} has no attribute {min(unknown)!r}")
        args = (changes.get("what", self.what), *self.args[1:])
        made: Self = _restored(type(self), args, self._state() | changes)
        return made

    def within(self, place: str, **changes: Any) -> Self:
        """The same error, said to be of something: `feature 'x': ...`."""
        return self.replaced(what=f"{place}: {self.what}" if self.what else place, **changes)

    def shifted(self, by: int, path: str | None = None) -> Self:
        """The same error, seen from a file in which these bytes start at `by`."""
        return self.replaced(at=None if self.at is None else self.at + by, path=path or self.path)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self._state())

    def _state(self) -> dict[str, Any]:
        return vars(self) | {name: getattr(self, name) for name in self._ATTRIBUTES}

    def _source(self) -> str:
        return self.path or ""

    def _place(self) -> str:
        """` (record 3, byte 120)`; what the words name already is not repeated."""
        places = []
        if self.record is not None and not re.search(rf"\brecord {self.record}\b", self.what):
            places.append(f"record {self.record}")
        if self.tensor is not None and repr(self.tensor) not in self.what:
            places.append(f"tensor {self.tensor!r}")
        if self.at is not None:
            places.append(f"byte {self.at}")
        return f" ({', '.join(places)})" if places else ""


def _restored(kind: type[Any], args: tuple[Any, ...], state: dict[str, Any]) -> Any:
    """An error as it was pickled: its `__init__` may take what is not in `args`."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(state)
    error.path = state["path"]  # of which an ImportError has one of its own
    return error


class CorruptError(TensorbytesError, ValueError):
    """Bytes that are not what their format demands. `at` is the offset of the fault."""

    at: int

    def __init__(self, what: str, *, at: int, **rest: Unpack[Circumstances]) -> None:
        super().__init__(what, at=at, **rest)

    def _source(self) -> str:
        return self.path or "<bytes>"


class LossError(TensorbytesError, ValueError):
    """Something the target can't hold. `feature` names it, as `allow=` wants it named; `losses` are all of them,
    where `convert` looked for more than the first."""

    def __init__(
        self,
        what: str,
        *,
        feature: str,
        losses: Iterable[Any] = (),
        at: int | None = None,
        **rest: Unpack[Circumstances],
    ) -> None:
        super().__init__(what, at=at, **rest)
        self.feature, self.losses = feature, tuple(losses)


class UnsupportedError(TensorbytesError, TypeError, ValueError):
    """A value, dtype or combination that tensorbytes, or the target, does not know. It may be an object that was
    passed (a TypeError), or what a file holds (a ValueError): it is both."""


class LimitError(TensorbytesError, ValueError):
    """Reading would take more memory, or more parts, than the limits allow."""


class MissingDependencyError(TensorbytesError, ImportError):
    """An optional package is needed. The message names it, and holds the pip command; `extra` is what pip installs."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra, self.package = extra, _PACKAGES.get(extra, extra)
        super().__init__(f"{what} needs the optional package {self.package}: pip install 'tensorbytes[{extra}]'")


class MissingNameError(TensorbytesError, KeyError):
    """There is no tensor, column or feature of that name."""


class SchemaError(TensorbytesError, ValueError):
    """A record and its schema disagree, or two schemas do. The message names the feature."""


class StateDictError(TensorbytesError, ValueError, RuntimeError):
    """A file and a module disagree: on names, shapes, dtypes, or which weights are tied. The message lists all of it;
    `missing_keys` are of the module alone, `unexpected_keys` of the file alone."""

    def __init__(
        self,
        what: str,
        *,
        missing_keys: Iterable[str] = (),
        unexpected_keys: Iterable[str] = (),
        at: int | None = None,
        **rest: Unpack[Circumstances],
    ) -> None:
        super().__init__(what, at=at, **rest)
        self.missing_keys, self.unexpected_keys = tuple(missing_keys), tuple(unexpected_keys)


class TemplateError(TensorbytesError, ValueError):
    """What was loaded does not fit the template of like=. `missing` are the names of what the template has and the
    file has not, `left_over` those of what the file has and the template has not; `different` are names with what the
    template has there and what the file has."""

    def __init__(
        self,
        what: str,
        *,
        missing: Iterable[str] = (),
        left_over: Iterable[str] = (),
        different: Iterable[tuple[str, str, str]] = (),
        at: int | None = None,
        **rest: Unpack[Circumstances],
    ) -> None:
        super().__init__(what, at=at, **rest)
        self.missing, self.left_over, self.different = tuple(missing), tuple(left_over), tuple(different)


class UsageError(TensorbytesError, TypeError):
    """A call that makes no sense as written: swapped arguments, an unknown option."""


class InUseError(TensorbytesError):
    """A path that another writer, or another process, is writing. The message says which."""


class DamageWarning(UserWarning):
    """Records were lost to damage, which on_corrupt="skip" reads around."""


class TemplateWarning(UserWarning):
    """With strict=False: what the template has and the file has not, and the other way around."""


class PluginWarning(UserWarning):
    """A format, a framework or a codec of another package that can't be used. The message says why."""


class TornTailWarning(UserWarning):
    """An unfinished write at the end of a file was cut off before appending. The message says where it is kept."""


class UnclosedWriterWarning(UserWarning):
    """A writer was never closed. The message says of which file, how many records it had, and where they are kept."""


class SchemaWarning(UserWarning):
    """Features were written of which nothing told what they hold. The message names them, and what was chosen."""


class SidecarWarning(UserWarning):
    """A file beside another (an index, a schema, a list of checksums) is not used, and why."""


# What other libraries call our parameters, and what to do instead: of calls that read, that write, that convert, and of
# records. A hint is given by those functions that have what it names.
_NEVER_UNPICKLED = Hint(purpose="leave it out: nothing is ever unpickled")
_FIRST = Hint(purpose="pass it first, without a name")
_COMMON = dict.fromkeys(("file", "filename", "filepath", "fname", "fp", "path"), _FIRST)
READING: Mapping[str, Hint] = {
    **_COMMON,
    "map_location": Hint("device", of="load"),
    "framework": Hint("to", of="load"),
    "return_tensors": Hint("to", of="load"),
    "backend": Hint("to", of="load"),
    "mmap_mode": Hint("mmap", True, of="load"),
    "memmap": Hint("mmap", True, of="load"),
    "keys": Hint("names", of="load"),
    "columns": Hint("names", of="load"),
    "tensors": Hint("names", of="load"),
    "cast": Hint("dtype", of="load"),
    "torch_dtype": Hint("dtype", of="load"),
    **dict.fromkeys(("weights_only", "allow_pickle", "pickle_module", "fix_imports"), _NEVER_UNPICKLED),
}
WRITING: Mapping[str, Hint] = {
    **_COMMON,
    "metadata": Hint("meta", of="save"),
    "attrs": Hint("meta", of="save"),
    **dict.fromkeys(("compress", "codec", "compression_type"), Hint("compression", of="save")),
    "compression_level": Hint("level", of="save"),
    "compression_opts": Hint("level", of="save"),
    **dict.fromkeys(("pickle_module", "pickle_protocol", "allow_pickle", "fix_imports"), _NEVER_UNPICKLED),
}
CONVERTING: Mapping[str, Hint] = {
    **{name: hint for name, hint in WRITING.items() if hint is not _FIRST and name != "metadata"},
    "to": Hint("format", of="convert"),
    "to_format": Hint("format", of="convert"),
    "from_format": Hint("src_format", of="convert"),
    "source_format": Hint("src_format", of="convert"),
    "dtype": Hint("cast", of="convert"),
    "columns": Hint("names", of="convert"),
    "keys": Hint("names", of="convert"),
}
RECORDS: Mapping[str, Hint] = {
    **_COMMON,
    **dict.fromkeys(("compression_type", "compress", "options"), Hint("compression", of="open_records")),
    **dict.fromkeys(
        ("features", "feature_spec", "feature_description", "description"), Hint("schema", of="open_records")
    ),
    "filenames": _FIRST,
    "names": Hint("columns", of="open_records"),
    "framework": Hint("to", of="open_records"),
    "map_location": Hint("device", of="open_records"),
    "num_parallel_reads": Hint("threads", of="open_records"),
    "num_workers": Hint("threads", of="open_records"),
    "batch_size": Hint(purpose="call .batches(size) of what it returns"),
    "metadata": Hint(purpose="leave it out: records hold no metadata of the whole"),
    "append": Hint("mode", "a", of="RecordWriter"),
    "num_shards": Hint("shards", of="RecordWriter"),
}


def refuse_misnamed(
    function: Callable[..., Any], given: Collection[str], meant: Mapping[str, Hint], known: Collection[str] = ()
) -> None:
    """Raise if an argument of a function has the name that other libraries give it; the error says ours.

    `known` are arguments that the function takes and that its signature does not tell."""
    for name in given:
        if name in meant and name not in known:
            hint = meant[name]
            if not hint.option or hint.option in _parameters(function) or hint.option in known:
                raise UsageError(f"{_title(function)} has no parameter {name!r}", hints=[hint])


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    """The names of a function's parameters; `inspect` takes its time to be imported."""
    code = function.__code__
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _title(function: Callable[..., Any]) -> str:
    return function.__qualname__.removesuffix(".__init__")


def naming_parameters(meant: Mapping[str, Hint]) -> Callable[[F], F]:
    """For functions that take no further arguments: a wrong name of one gets the right one in the error."""

    def decorate(function: F) -> F:
        known = _parameters(function)

        @functools.wraps(function)
        def checked(*args: Any, **options: Any) -> Any:
            wrong = sorted(options.keys() - known)
            if wrong:
                refuse_misnamed(function, wrong, meant)
                near = nearest(wrong[0], known - {"self"})
                raise UsageError(f"{_title(function)} has no parameter {wrong[0]!r}{near}")
            return function(*args, **options)

        return checked  # type: ignore[return-value]

    return decorate


def unknown(kind: str, got: object, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a table."""
    names = sorted(known)
    return UsageError(f"unknown {kind} {got!r}; known: {', '.join(names)}{nearest(got, names)}")


def nearest(got: object, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the one that was meant, if one is near."""
    from difflib import get_close_matches

    names = {name.lower(): name for name in known}
    near = get_close_matches(str(got).lower(), names, 1)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader may use on the word of a file.

    Bytes that are really present are never limited. `max_bytes` bounds what a small
    file can make of itself: a TensorProto of 19 bytes may claim four tebibytes by its
    repeat-the-last-value rule. `max_objects` bounds what is made of a few bytes each: items
    of pickles and of JSON, fields, names, tensors. Their memory counts as well: it may take
    15 times the input, then what is left of `max_bytes`.
    """

    max_bytes: int = 1 << 30
    max_tensors: int = 1 << 24
    max_rank: int = 64
    max_depth: int = 64
    max_objects: int = 1 << 24


def _default_limits() -> Limits:
    """Whoever runs a program, or a command, may set some of them without a change of the program."""
    given = {}
    for name, what in (("max_bytes", "bytes"), ("max_objects", "objects"), ("max_tensors", "tensors")):
        text = os.environ.get(variable := f"TENSORBYTES_{name.upper()}", "")
        if text.isdecimal():
            given[name] = int(text)
        elif text:
            warnings.warn(f"{variable}={text!r} is not a number of {what}, and is ignored", stacklevel=3)
    return Limits(**given)


LIMITS = _default_limits()
