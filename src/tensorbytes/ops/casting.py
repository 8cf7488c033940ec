"""Floats as floats of another type, one tensor at a time, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes.deferred import Deferred
from tensorbytes.errors import LossError, UsageError, unknown
from tensorbytes.ops.report import Loss
from tensorbytes.quantization import casts
from tensorbytes.quantization.core import applies
from tensorbytes.quantization.parameters import CASTS, ORIGINALS
from tensorbytes.rows import with_names
from tensorbytes.tensor import Array, Tensor
from tensorbytes.tree import Document, Leaf

_TYPES = tuple(dict.fromkeys((*ORIGINALS, *CASTS)))
# Elements that are looked at together: few enough for their copies to stay in the processor's cache.
_BLOCK = 1 << 15


def _name(dtype: Any) -> str:
    found = dtypes.find(dtype)
    if found is None or found.name not in _TYPES:
        raise unknown("dtype to cast to", dtype, _TYPES)
    return found.name


class Casting:
    """`cast` is a dtype for all dense tensors of floats, or dtypes by name or pattern."""

    def __init__(self, cast: Any) -> None:
        given = cast if isinstance(cast, Mapping) else {} if cast is None else {"*": cast}
        self._wanted = {pattern: _name(dtype) for pattern, dtype in given.items()}
        self._unused = set(self._wanted)
        # What was lost, known once the tensors were looked at.
        self.losses: dict[str, Loss] = {}
        # The leaves that are cast, by the values that stand for them; why one can't be.
        self._cast_leaves: dict[int, tuple[Leaf, str]] = {}
        self._refusals: dict[int, LossError | None] = {}

    def __bool__(self) -> bool:
        return bool(self._wanted)

    def apply(self, document: Document) -> Document:
        """The document with its floats as the other type; each is cast when it is written."""
        if not self:
            return document
        leaves = [self._leaf(leaf) for leaf in document.leaves]
        if self._unused:
            raise UsageError(f"cast: no tensor of floats goes by {min(self._unused)!r}")
        # A schema of Arrow's is not true of dtypes that Arrow lacks.
        pairs = zip(leaves, document.leaves, strict=True)
        lacking = [one for one, was in pairs if one is not was and not dtypes.get(one.header.dtype).arrow]
        origin = with_names(document.origin, {str(leaf.name): None for leaf in lacking})
        return document._replace(leaves=leaves, origin=origin)

    def _leaf(self, leaf: Leaf) -> Leaf:
        value, name = leaf.value, leaf.name or ""
        pattern = next((p for p in self._wanted if p == name or fnmatchcase(name, p)), None)
        if pattern is None or not applies(value) or leaf.kind not in ("", "numpy"):
            return leaf
        self._unused.discard(pattern)
        wanted, (_, dtype, shape, _) = self._wanted[pattern], leaf.header
        if dtype == wanted:
            return leaf
        size = value.nbytes // dtypes.get(dtype).itemsize * dtypes.get(wanted).itemsize
        later = Deferred(
            "tensor", wanted, shape, lambda: self._cast(leaf, wanted), size, None, value.name, value.meta, value.origin
        )
        self._cast_leaves[id(later)] = leaf, wanted
        return leaf._replace(value=later, stored=None)

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
            try:
                for _ in self._cast_blocks(found[0].read(), *found):
                    pass
            except LossError as error:
                self._refusals[id(leaf.value)] = error.with_traceback(None)
        refusal = self._refusals[id(leaf.value)]
        if refusal is not None:
            raise refusal

    def _cast(self, leaf: Leaf, wanted: str) -> Tensor:
        value: Any = leaf.read()
        made = np.empty(math.prod(value.shape), dtypes.to_numpy(wanted))
        at = 0
        for block in self._cast_blocks(value, leaf, wanted):
            made[at : at + len(block)] = block
            at += len(block)
        return Tensor(wanted, value.shape, made.view(np.uint8), value.name, value.meta, value.origin)

    def _cast_blocks(self, value: Any, leaf: Leaf, wanted: str) -> Iterator[Array]:
        """The numbers as the other type, some at a time; then what was lost is known."""
        numbers = np.frombuffer(value.data, dtypes.to_numpy(value.dtype))
        most = 0.0
        for start in range(0, len(numbers), _BLOCK):
            block = numbers[start : start + _BLOCK]
            wide = block if block.dtype == np.float64 else block.astype(np.float32)
            made = casts.narrow(wide, wanted)
            most = max(most, _error(wide, casts.widen(made, "float64"), wanted, leaf.name))
            yield made
        if most:
            told = f"{value.dtype} cast to {wanted}, max error {most:.2g}"
            self.losses[leaf.name or ""] = Loss(leaf.name, "cast", told)


def _error(values: Array, back: Array, wanted: str, name: str | None) -> float:
    """The largest of the finite numbers' errors. One that becomes infinite is refused."""
    finite = np.isfinite(values)
    if finite.all():
        lost = ~np.isfinite(back)
    else:
        lost, back, values = finite & ~np.isfinite(back), back[finite], values[finite]
    if lost.any():
        raise LossError(
            f"tensor {name!r}: {wanted} can't hold numbers as large as {np.abs(values).max()}",
            feature="cast",
            tensor=name,
        )
    return float(np.abs(back - values).max(initial=0.0))
