"""Numbers as pictures: heatmaps of matrices, images that arrays are, the places that a sparse matrix fills.

A heatmap is an indexed PNG in which small numbers are transparent, so that it fits light and dark pages alike.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from tensorbytes.tensor import Array, Ragged, Sparse, Strings, Tensor
from tensorbytes.view import png
from tensorbytes.view.sample import elements, real
from tensorbytes.view.words import TIMES

# Matrices of fewer elements are shown beside each other.
_SMALL_MATRIX = 64
_LEVELS = 15  # colours on either side of zero; more cost bytes that nobody sees
_ZERO = _LEVELS
_NAN, _INFINITE = 2 * _LEVELS + 1, 2 * _LEVELS + 2
_BELOW, _ABOVE = (37, 99, 235), (217, 83, 25)  # blue and orange: told apart by nearly everybody
_NAN_COLOUR, _INFINITE_COLOUR = (219, 39, 169), (202, 178, 0)


def _palette() -> Array:
    colours = np.zeros((2 * _LEVELS + 3, 4), np.uint8)
    for step in range(1, _LEVELS + 1):
        alpha = round(255 * (step / _LEVELS) ** 0.85)
        colours[_ZERO - step] = (*_BELOW, alpha)
        colours[_ZERO + step] = (*_ABOVE, alpha)
    colours[_NAN], colours[_INFINITE] = (*_NAN_COLOUR, 255), (*_INFINITE_COLOUR, 255)
    return colours


_PALETTE = _palette()


class Picture(NamedTuple):
    """A PNG, its size, and what is to be said below it."""

    data: bytes
    width: int
    height: int
    words: str
    kind: str = "heatmap"

    def html(self, label: str) -> str:
        shape = f'width="{self.width}" height="{self.height}"'
        return f'<img class="tbv-{self.kind}" {shape} alt="{label}" src="{png.data_uri(self.data)}"/>'


# ---- heatmaps -------------------------------------------------------------------


def heatmap(tensor: Tensor, side: int) -> Picture | None:
    """The last two axes of a tensor, averaged over blocks; None for what is not a matrix."""
    shape = tensor.shape
    if len(shape) < 2 or 0 in shape:
        return None
    if len(shape) > 2 and shape[0] > 1 and shape[-1] * shape[-2] < _SMALL_MATRIX:  # the filters of a convolution
        matrix = elements(tensor).reshape(shape[0], -1)
        place = f"as [{matrix.shape[0]}, {matrix.shape[1]}]"
    else:
        leading = (0,) * (len(shape) - 2)
        matrix = elements(tensor)[leading]
        place = f"[{', '.join(map(str, leading))}, :, :]" if leading else ""
    if min(matrix.shape) < 2:
        return None
    averages, words = _averages(matrix, *_proportions(matrix.shape, side))
    return _coloured(averages, ", ".join(filter(None, [place, words])))


def _proportions(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Rows and columns of a picture: those of the matrix, but a long one is not drawn as a thread."""
    height, width = shape
    scale = side / max(height, width)
    least = -(-side // 4)
    return min(height, max(round(height * scale), least)), min(width, max(round(width * scale), least))


def _averages(matrix: Array, high: int, wide: int) -> tuple[Array, str]:
    """Block averages, at most so many. A block that holds NaN or an infinity is that."""
    height, width = matrix.shape
    # Rows and columns that are looked at, where there are too many for all of them.
    rows, skipped = _picked(height, high, 4)
    columns, skipped_too = _picked(width, wide, 16) if width > 4096 else (np.arange(width), False)
    part = matrix if len(rows) == height else matrix[rows]
    part = real(part if len(columns) == width else part[:, columns])
    down, across = _bounds(len(rows), high), _bounds(len(columns), wide)
    finite = np.isfinite(part)
    sums = _blocks(np.where(finite, part, 0), down, across)
    cells = np.maximum(_blocks(finite.astype(np.float64), down, across), 1)
    averages: Array = sums / cells
    if not finite.all():
        averages[_blocks(np.isinf(part).astype(np.float64), down, across) > 0] = np.inf
        averages[_blocks(np.isnan(part).astype(np.float64), down, across) > 0] = np.nan
    if averages.shape == (height, width):
        return averages, ""
    # A pixel stands for whole rows and columns, but for one of them at least.
    words = f"averages over blocks of about {max(height // high, 1)} {TIMES} {max(width // wide, 1)}"
    return averages, words + (", sampled" if skipped or skipped_too else "")


def _picked(size: int, side: int, each: int) -> tuple[Array, bool]:
    """A few neighbours out of each block of an axis."""
    if size <= side * each:
        return np.arange(size), False
    starts = np.linspace(0, size - each, side).astype(np.int64)
    return (starts[:, None] + np.arange(each)).reshape(-1), True


def _bounds(size: int, side: int) -> Array:
    return np.unique(np.linspace(0, size, min(size, side) + 1).astype(np.int64)[:-1])


def _blocks(values: Array, down: Array, across: Array) -> Array:
    made: Array = np.add.reduceat(np.add.reduceat(values, down, axis=0), across, axis=1)
    return made


def _coloured(values: Array, words: str) -> Picture:
    """Blue below zero, orange above; the strongest colour is that of the 99.5th percentile."""
    finite = np.isfinite(values)
    sizes = np.abs(values[finite])
    most = float(np.percentile(sizes, 99.5)) if len(sizes) else 0.0
    most = most or (float(sizes.max()) if len(sizes) else 0.0)
    pixels = np.full(values.shape, _ZERO, np.int64)
    if most > 0 and math.isfinite(most):
        scaled = np.clip(values[finite] / most, -1, 1) * _LEVELS
        # Away from zero: whatever is not nothing is seen.
        pixels[finite] += np.where(scaled > 0, np.ceil(scaled), np.floor(scaled)).astype(np.int64)
    pixels[np.isnan(values)] = _NAN
    pixels[np.isinf(values)] = _INFINITE
    notes = [words] if words else []
    notes += ['<i class="tbv-nan"></i> NaN'] if np.isnan(values).any() else []
    notes += ['<i class="tbv-inf"></i> Inf'] if np.isinf(values).any() else []
    notes += [f"colours to ±{most:.3g}"] if most else []
    height, width = values.shape
    return Picture(png.encode(pixels.astype(np.uint8), _PALETTE), width, height, "; ".join(notes))


# ---- images ---------------------------------------------------------------------

_SMALLEST, _LARGEST = 8, 1 << 14
_CHANNELS = (1, 3, 4)


def images(tensor: Tensor, side: int, most: int) -> list[Picture]:
    """The images that a tensor looks like: [H, W], [H, W, C], [N, H, W], [N, H, W, C] or [N, C, H, W]."""
    shape = tensor.shape
    floats = tensor.dtype in ("float16", "bfloat16", "float32", "float64")
    if tensor.dtype != "uint8" and not floats:
        return []
    channels_last = len(shape) in (3, 4) and shape[-1] in _CHANNELS and _is_picture(shape[-3:-1])
    if channels_last:
        stack = elements(tensor)
    elif len(shape) == 4 and shape[1] in _CHANNELS and _is_picture(shape[2:]):
        stack = np.moveaxis(elements(tensor)[:most], 1, -1)
    elif len(shape) in (2, 3) and not floats and _is_picture(shape[-2:]):  # floats are rather a matrix
        stack = elements(tensor)[..., None]
    else:
        return []
    stack = stack[:most] if stack.ndim == 4 else stack[None]
    made = [_image(one, side) for one in stack]
    return [] if None in made else [one for one in made if one is not None]


def _is_picture(sizes: tuple[int, ...]) -> bool:
    height, width = sizes
    return min(sizes) >= _SMALLEST and max(sizes) <= _LARGEST and max(sizes) <= 8 * min(sizes) and height * width > 0


def _image(pixels: Array, side: int) -> Picture | None:
    """Smaller, as bytes; None for floats that are not brightness."""
    height, width, channels = pixels.shape
    scale = min(1.0, side / max(height, width))
    down, across = _bounds(height, max(round(height * scale), 1)), _bounds(width, max(round(width * scale), 1))
    values = real(pixels)
    if pixels.dtype != np.uint8:
        if not np.isfinite(values).all() or values.min() < -1.0 or values.max() > 1.0 or values.max() == values.min():
            return None
        values = (values + 1) * 127.5 if values.min() < 0 else values * 255
    cells = np.outer(np.diff([*down, height]), np.diff([*across, width]))
    planes = [_blocks(values[:, :, channel], down, across) / cells for channel in range(channels)]
    small = np.stack(planes, axis=-1).round().astype(np.uint8)
    return Picture(png.encode(small), len(across), len(down), f"{width} {TIMES} {height} pixels", "image")


# ---- sparse ---------------------------------------------------------------------

_MOST_POINTS = 200_000
_MOST_ROWS = 1 << 20


def spy(value: Sparse, side: int) -> Picture | None:
    """Where the entries of a sparse matrix are; of more axes, over the last two."""
    if len(value.shape) < 2 or 0 in value.shape[-2:]:
        return None
    found = _places(value)
    if found is None:
        return None
    down, across, words = found
    height, width = value.shape[-2:]
    grid = np.zeros(_proportions((height, width), side))
    np.add.at(grid, (down * grid.shape[0] // height, across * grid.shape[1] // width), 1)
    most = grid.max()
    values = np.sqrt(grid / most) if most else grid
    picture = _coloured(values, "")
    return picture._replace(words="; ".join(filter(None, ["where entries are", words])))


def _places(value: Sparse) -> tuple[Array, Array, str] | None:
    """Rows and columns of some entries."""
    if value.layout == "coo":
        (indices,) = value.parts
        if indices.shape[1] < len(value.shape):  # entries that are arrays: the last axes are full
            return None
        picked = _some(len(indices))
        return indices[picked, -2], indices[picked, -1], _of(picked, len(indices))
    if value.batch_rank or len(value.shape) != 2 or isinstance(value.values, Strings):
        return None
    if value.layout == "dia":
        if value.values.nbytes > 1 << 22:
            return None
        (indices,) = value.to_coo().parts
        return indices[:, 0], indices[:, 1], ""
    pointers, inner = value.parts
    picked = _some(inner.shape[-1])
    outer = np.searchsorted(pointers, picked, side="right") - 1
    along = inner[picked].astype(np.int64)
    if value.layout in ("bsr", "bsc"):  # a block counts by its first element
        high, wide = value.values.shape[1:3]
        steps = (high, wide) if value.layout == "bsr" else (wide, high)
        outer, along = outer * steps[0], along * steps[1]
    down, across = (outer, along) if value.layout in ("csr", "bsr") else (along, outer)
    return down, across, _of(picked, inner.shape[-1])


def _some(total: int) -> Array:
    return np.unique(np.linspace(0, max(total - 1, 0), min(total, _MOST_POINTS)).astype(np.int64))


def _of(picked: Array, total: int) -> str:
    return "" if len(picked) >= total else f"{len(picked):,} of {total:,} entries"


def row_lengths(value: Ragged) -> Array:
    """How many elements each row has; of very many rows, of the first ones."""
    lengths: Array = np.diff(value.splits[0][: _MOST_ROWS + 1])
    return lengths
