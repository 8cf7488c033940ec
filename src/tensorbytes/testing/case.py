"""A case, what it must look like afterwards, and the verdict.

A *fingerprint* describes a tensor in plain Python values: strings, integers, bytes. It
is made by code of the suite alone, from the tensor's memory, so that a mistake in an
adapter can't hide by occurring on both sides. Its keys come in three groups:

    (others)   what the tensor is: dtype, shape, bits, structure. Must always come back.
    held.*     how it was held: a Parameter, a SciPy matrix, int32 indices. Must come
               back from formats that keep metadata (`FULL`).
    memory.*   where it lay: strides, byte order, flags. Must not change in the caller's
               tensor; a loaded one may differ.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from tensorbytes import api, formats, frameworks
from tensorbytes.errors import LossError, UnsupportedError
from tensorbytes.testing.refusals import refusal

Fingerprint: TypeAlias = dict[str, Any]

# Formats that keep metadata, so must return everything, and may refuse only what is listed.
FULL = {name for name in formats.BUILTIN if formats.get(name).complete}


class ContractError(AssertionError):
    """A tensor came back changed, or something other than a refusal was raised."""


@dataclass(frozen=True)
class Case:
    """One tensor: where it is from, its dtype, its layout, and how to build it afresh."""

    framework: str
    dtype: str
    layout: str
    build: Callable[[], Any] = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        return f"{self.framework}/{self.dtype}/{self.layout}"


@dataclass(frozen=True)
class Outcome:
    """`verdict` is "exact", "refused", "LOST" or "crash"; `detail` is the message or the difference."""

    verdict: str
    detail: str = ""


def suite(framework: str) -> Any:
    """The module with a framework's cases and its `fingerprint`."""
    return importlib.import_module(f"tensorbytes.testing.{framework}_cases")


def fingerprint(x: Any, framework: str) -> Fingerprint:
    made: Fingerprint = suite(framework).fingerprint(x)
    return made


def cases(framework: str, dtype: str | None = None) -> list[Case]:
    """The cases of a framework, for one dtype or for all."""
    found: list[Case] = suite(framework).CASES
    return [case for case in found if dtype in (None, case.dtype)]


def setting(framework: str) -> AbstractContextManager[Any]:
    """The state in which a framework can hold all its dtypes (JAX needs a switch)."""
    made: AbstractContextManager[Any] = getattr(suite(framework), "setting", contextlib.nullcontext)()
    return made


def difference(before: Fingerprint, after: Fingerprint, ignore: tuple[str, ...]) -> str:
    """The first thing that differs; empty when nothing does."""
    for key in [*before, *(key for key in after if key not in before)]:
        if not key.startswith(ignore) and before.get(key) != after.get(key):
            return f"{key}: {_short(before.get(key))} became {_short(after.get(key))}"
    return ""


def _short(x: Any) -> str:
    text = x.hex() if isinstance(x, bytes) else repr(x)
    return text if len(text) < 200 else f"{text[:200]}..."


def outcome(case: Case, format: str) -> Outcome:
    """What becomes of a case on its way through a format and back to its framework."""
    with setting(case.framework):
        x = case.build()
        before = fingerprint(x, case.framework)
        found = _round_trip(x, before, case.framework, format)
        touched = difference(before, fingerprint(x, case.framework), ())
        return Outcome("LOST", f"the caller's tensor was changed: {touched}") if touched else found


def _round_trip(x: Any, before: Fingerprint, framework: str, format: str) -> Outcome:
    try:
        data = _dumps(x, format)
    except (LossError, UnsupportedError) as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("crash", f"{type(error).__name__}: {error}")
    try:
        options = formats.get(format).description(api.to_document(x))
        made = _loads(data, format, framework, options)
    except Exception as error:  # a refusal comes too late here: the tensor may be gone
        return Outcome("crash", f"written, but not read back: {type(error).__name__}: {error}")
    if (again := _dumps(x, format)) != data:  # whatever short cut the second time takes
        changed = difference(data, again, ())
        return Outcome("LOST", f"the same tensor gave other bytes the second time: {changed}")
    ignore = ("memory.",) if format in FULL else ("memory.", "held.")
    changed = difference(before, _try_fingerprint(made, framework), ignore)
    return Outcome("LOST", changed) if changed else Outcome("exact")


def _dumps(x: Any, format: str) -> dict[str, bytes]:
    """The files of a tensor: a single one without a name, unless the format demands several."""
    if not formats.get(format).several_files:
        return {"": api.dumps(x, format)}
    with tempfile.TemporaryDirectory() as folder:
        api.save(x, os.path.join(folder, "x"), format, sync=False)
        return {name: Path(folder, name).read_bytes() for name in sorted(os.listdir(folder))}


def _loads(files: dict[str, bytes], format: str, framework: str, options: Mapping[str, Any]) -> Any:
    if "" in files:
        return api.loads(files[""], format, to=framework, **options)
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            Path(folder, name).write_bytes(data)
        return api.load(os.path.join(folder, "x"), format, to=framework, **options)


def _try_fingerprint(x: Any, framework: str) -> Fingerprint:
    try:
        return fingerprint(x, framework)
    except (AttributeError, TypeError):  # not of this framework at all
        return {"type": f"{type(x).__module__}.{type(x).__qualname__}"}


def check_case(case: Case, format: str) -> Outcome:
    """Exact or refused; of formats in `FULL`, refused only if and exactly when the table says so."""
    found = outcome(case, format)
    if found.verdict not in ("exact", "refused"):
        raise ContractError(f"{case.id} through {format!r}: {found.verdict}: {found.detail}")
    expected = refusal(case.id)
    chosen = formats.get(format)
    # A struct is several tensors, but to a format that has structs of its own.
    several = case.layout == "structured" and chosen.holds_one and not chosen.structs
    if format in FULL and found.verdict == "refused" and not expected and not several:
        raise ContractError(f"{case.id} through {format!r} is refused, which no table says: {found.detail}")
    if found.verdict == "exact" and expected:
        raise ContractError(f"{case.id} through {format!r} is exact, but refusals.py expects: {expected}")
    return found


def check_cases(some: Iterable[Case], format: str) -> list[Outcome]:
    """Check many cases; the error lists all that fail."""
    outcomes, failures = [], []
    for case in some:
        try:
            outcomes.append(check_case(case, format))
        except ContractError as error:
            failures.append(str(error))
    if failures:
        raise ContractError("\n".join([f"{len(failures)} of {len(failures) + len(outcomes)} fail", *failures]))
    return outcomes


def check_format(format: str, only: Iterable[str] = tuple(frameworks.BUILTIN)) -> dict[str, int]:
    """Check a format with every case of the frameworks in `only`; counts the verdicts."""
    formats.get(format)
    found = [result for framework in only for result in check_cases(cases(framework), format)]
    return {verdict: sum(result.verdict == verdict for result in found) for verdict in ("exact", "refused")}
