"""Floats as floats of another type, one tensor at a time, and what that costs: cast= of convert, dtype= on loading."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import numpy as np

from tensorbytes import _wire, dtypes
from tensorbytes._wire.portions import portions
from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.errors import LossError, UnsupportedError, UsageError, unknown
from tensorbytes.io.workers import count_threads, map_in_order
from tensorbytes.patterns import check_patterns, first_match
from tensorbytes.quantization import casts
from tensorbytes.quantization.blocks import scratch
from tensorbytes.quantization.parameters import CASTS, ORIGINALS
from tensorbytes.rows import with_names
from tensorbytes.tensor import Array, Tensor, Value
from tensorbytes.tree import Document, Leaf

# The types to cast to.
FLOATS = tuple(dict.fromkeys((*ORIGINALS, *CASTS)))
# Elements that are looked at together: few enough for their copies to stay in the processor's cache.
_BLOCK = 1 << 15
# What a thread does at a time.
_PART = 1 << 20
# What the kernel casts, by numbers of types. NaN, whose bits are the general way's business, and what is too large are
# not for it: it says so, and the block goes the general way.
_KERNEL_CASTS = {(old, new) for old in range(3) for new in range(3) if old != new} | {(3, 2)}


def is_float(dtype: str) -> bool:
    """Whether a dtype is one of floats, of any width; complex numbers are not."""
    return dtype.startswith(("float", "bfloat"))


def target_name(wanted: Any) -> str:
    """Our name of a dtype that floats can be cast to."""
    name = dtype_name(wanted)
    if name not in FLOATS:
        raise unknown("dtype to cast to", wanted, FLOATS)
    return name


def dtype_name(given: Any) -> str | None:
    """Our name of a dtype, which may be one of a framework; None if it is not one."""
    found = dtypes.find(given)
    return None if found is None else found.name


class Casting:
    """`cast` is a dtype for all tensors of floats, or dtypes by name or pattern, of which the first that fits counts;
    None leaves what goes by a pattern as it is. `option` is what errors call it; with required=False, a pattern that no
    tensor of floats goes by is no error.

    Of ragged and sparse values, the values are cast. Integers, bools, complex numbers, text and Python's own floats
    stay what they are.
    """

    def __init__(self, cast: Any, option: str = "cast", required: bool = True) -> None:
        given = cast if isinstance(cast, Mapping) else {} if cast is None else {"*": cast}
        check_patterns(given, option)
        self._wanted = {pattern: None if one is None else target_name(one) for pattern, one in given.items()}
        self._option = option
        self._unused = set(self._wanted) if required else set()
        # What was lost, in words, by name: known once the tensors were looked at.
        self.losses: dict[str, str] = {}
        # The leaves that are cast, by the values that stand for them; why one can't be.
        self._cast_leaves: dict[int, tuple[Leaf, str]] = {}
        self._refusals: dict[int, LossError | None] = {}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def apply(self, document: Document, budget: Budget | None = None, lazy: bool = False) -> Document:
        """The document with its floats as the other type; each is cast when it is read.

        `budget` is charged for all that they take then; with `lazy`, it must have room for any of them.
        """
        if not self:
            return document
        shared: dict[tuple[int, str], Deferred] = {}  # leaves that share a value share what is made of it
        charge = None if budget is None else budget.check if lazy else budget.copy
        leaves = [self._leaf(leaf, shared, charge) for leaf in document.leaves]
        # A schema of Arrow's is not true of dtypes that Arrow lacks.
        pairs = zip(leaves, document.leaves, strict=True)
        lacking = [one for one, was in pairs if one is not was and not dtypes.get(one.header.dtype).arrow]
        origin = with_names(document.origin, {str(leaf.name): None for leaf in lacking})
        return document._replace(leaves=leaves, origin=origin)

    def check_used(self, path: str | None = None) -> None:
        """A name that no tensor of floats has is a slip."""
        if self._unused:
            raise UsageError(f"{self._option}: no tensor of floats goes by {min(self._unused)!r}", path=path)

    def wanted(self, leaf: Leaf) -> str | None:
        """What a leaf is to be cast to; None if it stays as it is. Only its name and its header are asked."""
        pattern, dtype = first_match(leaf.name, self._wanted), leaf.header.dtype
        if pattern is None or not is_float(dtype) or leaf.kind not in ("", "numpy"):
            return None
        self._unused.discard(pattern)
        return None if dtype == self._wanted[pattern] else self._wanted[pattern]

    def _leaf(
        self,
        leaf: Leaf,
        shared: dict[tuple[int, str], Deferred],
        charge: Callable[[int, str, int], None] | None,
    ) -> Leaf:
        wanted = self.wanted(leaf)
        if wanted is None:
            return leaf
        value = leaf.value
        kind, dtype, shape, nbytes = leaf.header
        key = id(value), wanted
        if key not in shared:
            size = (nbytes or 0) // dtypes.get(dtype).itemsize * dtypes.get(wanted).itemsize
            if charge is not None:
                charge(size, f"{leaf.name!r} as {wanted}", leaf.at)

            def cut(index: Any) -> Tensor:
                made = self.cast(leaf.part(index), wanted, leaf.name)
                assert isinstance(made, Tensor)
                return made

            parts = cut if kind == "tensor" and value.in_parts else None
            later = Deferred(
                kind, wanted, shape, lambda: self._read(leaf, wanted), size, parts, value.name, value.meta, value.origin
            )
            self._cast_leaves[id(later)] = leaf, wanted
            shared[key] = later
        return leaf._replace(value=shared[key], stored=None)

    def forget(self) -> None:
        """Let go of the leaves that were looked at: of rows there are always more."""
        self._cast_leaves.clear()
        self._refusals.clear()

    def check(self, leaf: Leaf) -> None:
        """Raise LossError where a number of a tensor that is to be cast becomes infinite. It is looked at once."""
        found = self._cast_leaves.get(id(leaf.value))
        if found is None:
            return
        if id(leaf.value) not in self._refusals:
            self._refusals[id(leaf.value)] = None
            source, wanted = found
            try:
                self._cast_all(_numbers_of(source.read()), wanted, source.name, None)
            except LossError as error:
                self._refusals[id(leaf.value)] = error.with_traceback(None)
        refusal = self._refusals[id(leaf.value)]
        if refusal is not None:
            raise refusal

    def _read(self, leaf: Leaf, wanted: str) -> Value:
        return self.cast(leaf.read(), wanted, leaf.name)

    def cast(self, value: Any, wanted: str, name: str | None) -> Value:
        """A value with its floats as the other type. LossError if one becomes infinite."""
        numbers = _numbers_of(value)
        made = np.empty(math.prod(numbers.shape), dtypes.to_numpy(wanted))
        self._cast_all(numbers, wanted, name, made)
        cast = dataclasses.replace(numbers, dtype=wanted, data=made.view(np.uint8))
        return cast if numbers is value else dataclasses.replace(value, values=cast)

    def _cast_all(self, value: Tensor, wanted: str, name: str | None, made: Array | None) -> None:
        """The numbers as the other type, in threads if there are many; then what was lost is known. With made=None,
        what they become is only looked at."""
        numbers = np.frombuffer(value.data, dtypes.to_numpy(value.dtype))
        types = _wire.FLOAT_TYPES.get(value.dtype), _wire.FLOAT_TYPES.get(wanted)
        by_kernel = types if types in _KERNEL_CASTS else None

        def work(part: slice) -> float:
            out = None if made is None else made[part]
            return max(
                (_cast(block, wanted, by_kernel, name, to) for block, to in _blocks(numbers[part], out)), default=0.0
            )

        parts = portions(len(numbers), _PART)
        threads = count_threads() if len(numbers) > _PART else 1
        with closing(map_in_order(work, parts, threads)) as errors:
            most = max(errors, default=0.0)
        if most:
            self.losses[name or ""] = f"{value.dtype} cast to {wanted}, max error {most:.2g}"


def _blocks(numbers: Array, made: Array | None) -> Iterator[tuple[Array, Array | None]]:
    for start in range(0, len(numbers), _BLOCK):
        place = slice(start, start + _BLOCK)
        yield numbers[place], None if made is None else made[place]


def _cast(block: Array, wanted: str, types: tuple[Any, Any] | None, name: str | None, out: Array | None) -> float:
    """Some numbers as the other type; the largest error."""
    if types is not None:
        to = scratch("cast", block.shape, dtypes.to_numpy(wanted)) if out is None else out
        error, status = _wire.cast_floats(block.view(np.uint8), types[0], to.view(np.uint8), types[1])
        if not status:
            return error
    wide = block if block.dtype == np.float64 else casts.widen(block, "float32")
    made = casts.narrow(wide, wanted)
    if out is not None:
        out[...] = made
    return _error(wide, casts.widen(made, "float64"), wanted, name)


def _numbers_of(value: Any) -> Tensor:
    """What holds the numbers of a value: itself, or the values of a ragged or sparse one."""
    numbers = value if isinstance(value, Tensor) else value.values
    assert isinstance(numbers, Tensor)
    return numbers


def _error(values: Array, back: Array, wanted: str, name: str | None) -> float:
    """The largest of the finite numbers' errors. What the type can't hold, an infinity for one, is refused."""
    finite = np.isfinite(values)
    if (finite & ~np.isfinite(back)).any():
        most = np.abs(values[finite]).max()
        what = f"tensor {name!r}: {wanted} can't hold numbers as large as {most}"
        raise LossError(what, feature="cast", tensor=name)
    try:
        casts.check_held(values, back, wanted)
    except UnsupportedError as error:
        raise LossError(f"tensor {name!r}: {error.fault}", feature="cast", tensor=name) from None
    if not finite.all():
        back, values = back[finite], values[finite]
    return float(np.abs(back - values).max(initial=0.0))
