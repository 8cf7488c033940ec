"""Whether a value has a form in torch, and what is needed to spell it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tensorbytes.tensor import Sparse, Tensor


def strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """As torch has them: an empty axis counts as one element."""
    steps: list[int] = []
    step = 1
    for n in reversed(shape):
        steps.append(step)
        step *= max(n, 1)
    return tuple(reversed(steps))


def nested_lists(items: list[Any], shape: tuple[int, ...]) -> Any:
    """Strings of a shape as lists in lists; a 0-d one is itself."""
    if not shape:
        return items[0]
    for n in reversed(shape[1:]):
        if not n:
            return [[] for _ in range(shape[0])] if len(shape) == 2 else []
        items = [items[start : start + n] for start in range(0, len(items), n)]
    return items


def quantization(value: Tensor) -> tuple[Any, Any, int | None] | None:
    """(scale, zero point, axis) of a quantized tensor as the torch adapter describes it; None where it does not."""
    try:
        scale, zero = json.loads(value.origin["torch.scale"]), json.loads(value.origin["torch.zero_point"])
        axis = int(value.origin["torch.axis"]) if "torch.axis" in value.origin else None
    except (KeyError, ValueError, RecursionError):
        return None
    if axis is None:
        exact = type(scale) is float and type(zero) is int and -(1 << 31) <= zero < 1 << 31
        texts = (repr(scale), repr(zero))
    else:
        exact = _are_channels(scale, float, value.shape, axis) and _are_channels(zero, int, value.shape, axis)
        texts = (json.dumps(scale), json.dumps(zero))
    same = texts == (value.origin["torch.scale"], value.origin["torch.zero_point"])
    return (scale, zero, axis) if exact and same else None


def _are_channels(numbers: Any, kind: type, shape: tuple[int, ...], axis: int) -> bool:
    sound = type(numbers) is list and 0 <= axis < len(shape) and len(numbers) == shape[axis]
    return sound and all(type(n) is kind and (type(n) is not int or -(1 << 63) <= n < 1 << 63) for n in numbers)


def is_coalesced(value: Sparse) -> bool:
    """Whether the coordinates rise and none comes twice: torch.load checks it."""
    (indices,) = value.parts
    if len(indices) < 2:
        return True
    if not indices.shape[1]:
        return False
    steps = np.sign(np.diff(indices.astype(np.int64), axis=0))
    first = (steps != 0).argmax(axis=1)
    return bool((steps[np.arange(len(steps)), first] > 0).all())


def in_order(value: Sparse) -> bool:
    """Whether a compressed layout is one that torch.load takes: in each row indices rise."""
    pointers, indices = value.parts
    if pointers.dtype != indices.dtype or pointers.dtype not in (np.int32, np.int64):
        return False
    rising = np.diff(indices, axis=-1) > 0
    if not rising.size:
        return True
    starts = np.zeros((*indices.shape[:-1], indices.shape[-1] + 1), bool)
    np.put_along_axis(starts, pointers.astype(np.int64), True, axis=-1)
    return bool((rising | starts[..., 1:-1]).all())
