"""The search for NaN and infinity: all of what is small, however little of it is drawn; of the rest a sample."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tensorbytes.reader import Entry
from tensorbytes.tensor import Ragged, Sparse, Tensor, Value
from tensorbytes.tree import Leaf
from tensorbytes.view.sample import Size, TooLargeError, elements, real, resolved, sampled

# Bytes that are searched in all, and of one tensor.
_ALL_BYTES = 1 << 28
_LARGEST = 1 << 26
_STEP = 1 << 20
_FLOATS = ("float", "bfloat", "complex", "bcomplex")


class Finding(NamedTuple):
    """What a search in one tensor found."""

    nan: int = 0
    infinite: int = 0
    whole: bool = True  # every element was looked at
    trouble: str = ""  # why nothing of it could be read

    @property
    def marks(self) -> list[str]:
        return ["NaN"] * bool(self.nan) + ["Inf"] * bool(self.infinite)


def search(leaves: Sequence[Leaf], anyhow: Collection[int], size: Size) -> Mapping[int, Finding]:
    """What is found in each tensor of floats, by its number: the smallest first, as long as bytes are left for them.

    Of the others, those that are drawn `anyhow` are searched as far as `size` goes; the rest is left out.
    """
    left = _ALL_BYTES
    found: dict[int, Finding] = {}
    for number in sorted(range(len(leaves)), key=lambda number: leaves[number].value.nbytes):
        leaf = leaves[number]
        if not may_hold(leaf):
            continue
        whole = leaf.value.nbytes <= min(left, _LARGEST)
        if not whole and number not in anyhow:
            continue
        try:
            value, part = resolved(leaf, Size(decoded=_LARGEST) if whole else size)
            if not whole:
                value = sampled(value, size).value
            found[number] = Finding(*_counted(value), whole and not part)
            left -= leaf.value.nbytes if whole else 0
        except TooLargeError:
            pass
        except Exception as error:  # what is wrong with one tensor must not hide the others
            found[number] = Finding(whole=False, trouble=str(error))
    return found


def may_hold(leaf: Leaf) -> bool:
    """Whether there are numbers in it that may be none."""
    return Entry(leaf, lambda value: value, "").dtype.startswith(_FLOATS)


def _counted(value: Value) -> tuple[int, int]:
    """(NaN, infinite) of all that is stored."""
    held = value.values if isinstance(value, Ragged | Sparse) else value
    if not isinstance(held, Tensor):
        return 0, 0
    nan = infinite = 0
    flat = elements(held).reshape(-1)
    for start in range(0, flat.size, _STEP):
        part = flat[start : start + _STEP]
        part = part if part.dtype.kind in "fc" else real(part)
        if not np.isfinite(part).all():
            nan += int(np.count_nonzero(np.isnan(part)))
            infinite += int(np.count_nonzero(np.isinf(part)))
    return nan, infinite
