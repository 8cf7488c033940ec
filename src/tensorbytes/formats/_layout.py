"""Ragged and sparse values as lists of plain tensors, and back. spec/frame.md, section 5."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tensorbytes.budget import Budget
from tensorbytes.deferred import Deferred
from tensorbytes.tensor import LAYOUTS, Array, InvalidValueError, Ragged, Sparse, Strings, Tensor, Value


def _index(part: Array) -> Tensor:
    part = np.ascontiguousarray(part, part.dtype.newbyteorder("<"))
    return Tensor(part.dtype.name, part.shape, part.reshape(-1))


def parts_of(value: Ragged | Sparse) -> tuple[str, list[Tensor | Strings]]:
    """The layout's name and its parts in the order of the specification."""
    if isinstance(value, Ragged):
        splits: list[Tensor | Strings] = [_index(part) for part in value.splits]
        if value.shapes is None:
            return "ragged", [*splits, value.values]
        return "ragged-shapes", [*splits, value.values, _index(value.shapes)]
    shape = np.array(value.shape, np.int64)
    return value.layout, [*(_index(part) for part in value.parts), value.values, _index(shape)]


def build(layout: str, parts: Sequence[Tensor | Strings], budget: Budget) -> Ragged | Sparse:
    """The value of these parts; InvalidValueError when they don't fit."""
    _check_count(layout, parts)
    if layout == "ragged":
        return _ragged(parts[:-1], parts[-1], None, budget)
    if layout == "ragged-shapes":
        return _ragged(parts[:-2], parts[-2], _row_shapes(parts[-1], budget), budget)
    *index, values, shape = parts
    dense = _integers(shape)
    _check_rank(dense.shape, budget)
    return Sparse(layout, tuple(dense.tolist()), tuple(_integers(part) for part in index), values)


def postpone(
    layout: str, parts: Sequence[Tensor | Strings | Deferred], budget: Budget, fetch: Callable[[], Value]
) -> Deferred:
    """What `build` will give, told by the shapes of the parts alone: of their content, only a dense shape is read."""
    _check_count(layout, parts)
    size = sum(part.nbytes for part in parts)
    shape: tuple[int | None, ...]
    if layout in ("ragged", "ragged-shapes"):
        shaped = layout == "ragged-shapes"
        splits, values = parts[: -2 if shaped else -1], parts[-2 if shaped else -1]
        if len(splits) > budget.max_rank or len(splits[0].shape) != 1 or not splits[0].shape[0] or not values.shape:
            raise InvalidValueError("row splits must be lists, and not without an end; values must have rows")
        axes = parts[-1].shape[1:] if shaped else ()
        hidden = (axes[0] or 0) if axes else len(splits)
        if hidden > budget.max_rank:
            raise InvalidValueError(f"rows of rank {hidden}, over the limit of {budget.max_rank}")
        shape = (splits[0].shape[0] - 1, *[None] * hidden, *values.shape[1:])
        return Deferred("ragged", values.header.dtype, shape, fetch, size)
    dense = _integers(parts[-1].load())
    _check_rank(dense.shape, budget)
    if layout not in LAYOUTS or (dense < 0).any():
        raise InvalidValueError(f"layout {layout!r} with a shape of {dense.tolist()}")
    return Deferred("sparse", parts[-2].header.dtype, tuple(dense.tolist()), fetch, size)


def _check_count(layout: str, parts: Sequence[object]) -> None:
    least = 3 if layout == "ragged-shapes" else 2
    if len(parts) < least:
        raise InvalidValueError(f"expected at least {least} of them, got {len(parts)}")


def _ragged(
    splits: Sequence[Tensor | Strings], values: Tensor | Strings, shapes: Array | None, budget: Budget
) -> Ragged:
    if len(splits) > budget.max_rank:
        raise InvalidValueError(f"{len(splits)} levels of row splits, over the limit of {budget.max_rank}")
    return Ragged(values, tuple(_integers(part) for part in splits), shapes)


def _row_shapes(part: Tensor | Strings, budget: Budget) -> Array:
    """The shapes of rows, none of which may be beyond counting; zeros don't excuse the rest."""
    shapes = _integers(part)
    if shapes.ndim == 2:
        _check_rank(shapes.shape[1:], budget)
        if (np.log2(np.maximum(shapes, 1)).sum(axis=1) >= 60).any():
            raise InvalidValueError("a row shape takes more bytes than 64 bits can count")
    return shapes


def _check_rank(shape: tuple[int, ...], budget: Budget) -> None:
    """`shape` is that of a list of dimensions."""
    if len(shape) != 1 or shape[0] > budget.max_rank:
        raise InvalidValueError(f"a shape must be a list of at most {budget.max_rank} numbers")


def _integers(part: Value) -> Array:
    if not isinstance(part, Tensor) or part.dtype not in ("int32", "int64"):
        raise InvalidValueError("indices must be int32 or int64")
    return part.numpy()
