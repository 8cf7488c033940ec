"""The smallest encoding within an error bound.

Casts and integers of every width compete, smallest first. One that fails does so on the tile
on which the one before it failed, more often than not: that tile is tried first, so the
whole tensor is encoded about once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tensorbytes import dtypes
from tensorbytes.errors import Hint, UnsupportedError
from tensorbytes.quantization import affine, passes
from tensorbytes.quantization.blocks import Section
from tensorbytes.quantization.parameters import Quantization, arithmetic, at_most
from tensorbytes.tensor import Array

# Of types with the same width, the one with the finer steps first.
_COMPETING = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32")
_WIDEST = 31


@dataclass
class FlatTensor:
    """A tensor to be encoded, flat; its extremes are looked for once."""

    flat: Array
    original: str
    parts: list[Section]
    count: int
    _extremes: tuple[Array, Array] | None = field(default=None, init=False)

    @property
    def extremes(self) -> tuple[Array, Array]:
        if self._extremes is None:
            self._extremes = passes.extremes(self.flat, self.parts, self.count)
            if not self.parts:  # no values: any range will do
                for bounds in self._extremes:
                    bounds.fill(0)
        return self._extremes


class Encoding(NamedTuple):
    """An encoding: values and how they came about. `width` is set where not all bits are used."""

    encoded: passes.Encoded
    stored: str
    how: passes.Affine | None = None
    width: int | None = None

    @property
    def bits(self) -> int:
        return dtypes.get(self.stored).bits if self.width is None else self.width

    def parameters(self, original: str, axis: int | None, group: int | None) -> Quantization:
        if self.how is None:
            return Quantization("cast", original, self.stored, None, None, None, None, *self.encoded.cost)
        scales, zeros = self.how.scales, self.how.zeros
        return Quantization("affine", original, self.stored, axis, group, scales, zeros, *self.encoded.cost)


class _Candidate(NamedTuple):
    nbytes: int
    label: str
    encode: Callable[[float | None, passes.Place | None], Encoding]


def smallest(tensor: FlatTensor, bound: float) -> Encoding:
    """The first of the candidates that keeps to the bound, and is smaller than the tensor itself."""
    candidates = _candidates(tensor)
    first: passes.Place | None = None
    refused: UnsupportedError | None = None
    for candidate in candidates:
        try:
            return candidate.encode(bound, first)
        except passes.OverBound as over:
            first = over.place
        except UnsupportedError as error:  # a value that this type can't hold
            refused = error
    raise _none(tensor, bound, candidates, refused)


def _candidates(tensor: FlatTensor) -> list[_Candidate]:
    before = tensor.flat.nbytes
    room = dtypes.get(tensor.original).bits
    found = [
        _Candidate(tensor.flat.size * dtypes.get(stored).itemsize, stored, _cast(tensor, stored))
        for stored in _COMPETING
        if dtypes.get(stored).bits < room
    ]
    own = tensor.count * (arithmetic(tensor.original).itemsize + 4)
    found += [
        _Candidate(-(-tensor.flat.size * width // 8) + own, f"integers of {width} bits", _integers(tensor, width))
        for width in range(1, min(room, _WIDEST + 1))
    ]
    smaller = [candidate for candidate in found if candidate.nbytes < before or not before]
    return sorted(smaller, key=lambda candidate: candidate.nbytes)


def _cast(tensor: FlatTensor, stored: str) -> Callable[[float | None, passes.Place | None], Encoding]:
    def encode(bound: float | None, first: passes.Place | None) -> Encoding:
        return Encoding(passes.encode_cast(tensor.flat, stored, tensor.parts, bound, first), stored)

    return encode


def _integers(tensor: FlatTensor, width: int) -> Callable[[float | None, passes.Place | None], Encoding]:
    stored = "uint8" if width <= 8 else "uint16" if width <= 16 else "int32"

    def encode(bound: float | None, first: passes.Place | None) -> Encoding:
        span = affine.limits(stored, width)
        scales, zeros = affine.ranged(*tensor.extremes, tensor.original, span)
        how = passes.Affine(stored, scales, zeros, span)
        encoded = passes.encode_affine(tensor.flat, tensor.original, tensor.parts, how, bound, first)
        return Encoding(encoded, stored, how, width)

    return encode


def _none(
    tensor: FlatTensor, bound: float, candidates: list[_Candidate], refused: UnsupportedError | None
) -> UnsupportedError:
    """The error that says what is available instead: the widest few are measured for it."""
    best: tuple[float, str] | None = None
    for candidate in candidates[-3:]:
        try:
            error = candidate.encode(None, None).encoded.cost.max_error
        except UnsupportedError:
            continue
        best = min(best, (error, candidate.label)) if best else (error, candidate.label)
    what = f"no encoding smaller than {tensor.original} keeps the error within {bound:g}"
    if best is not None:
        return UnsupportedError(
            f"{what}; the best is {best[1]}, with {at_most(best[0])}",
            hints=[Hint(purpose="raise the bound, or leave it")],
        )
    return UnsupportedError(what + (f": {refused.fault}" if refused else ""))
