"""From one framework into another: the same values, or a refusal.

Layouts may be converted on the way where the target has fewer (SciPy's dia becomes coo
in torch); the entries, their places and their bits may not change.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tensorbytes import api
from tensorbytes.errors import LossError, UnsupportedError
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
from tensorbytes.testing import numpy_cases
from tensorbytes.testing.case import Case, ContractError, Fingerprint, Outcome, difference, fingerprint, setting, suite

# Pairs of framework and dtype that both sides have, and still can't always exchange.
MAY_REFUSE = {
    ("torch", "float4_e2m1fn"): "torch packs two values into one element, so the last axis must be even",
    ("torch", "qint8"): "a quantized tensor of torch has a scale, which others lack",
    ("torch", "quint8"): "a quantized tensor of torch has a scale, which others lack",
    ("torch", "qint32"): "a quantized tensor of torch has a scale, which others lack",
}


def transfer(case: Case, to: str, format: str = "tb") -> Outcome:
    """What becomes of a case on its way into another framework."""
    with setting(case.framework), setting(to):
        x = case.build()
        before = fingerprint(x, case.framework)
        try:
            made = api.loads(api.dumps(x, format), format, to=to)
        except (LossError, UnsupportedError) as error:
            return Outcome("refused", str(error))
        except Exception as error:
            return Outcome("crash", f"{type(error).__name__}: {error}")
        for one, other in _pairs(case, x, before, made, to):
            changed = difference(_comparable(one, other), _comparable(other, one), ())
            if changed:
                return Outcome("LOST", changed)
        return Outcome("exact")


def _pairs(case: Case, x: Any, before: Fingerprint, made: Any, to: str) -> Iterator[tuple[Fingerprint, Fingerprint]]:
    """What was there and what came of it; of a structured array, where the target has none, its fields."""
    if not isinstance(made, dict):
        yield before, _result_fingerprint(made, to)
        return
    for name in x.dtype.names:
        yield fingerprint(x[name], case.framework), _result_fingerprint(made[name], to)


def check_transfer(case: Case, to: str, format: str = "tb") -> Outcome:
    """Exact or refused; and exact where both frameworks have the dtype of a dense tensor."""
    found = transfer(case, to, format)
    if found.verdict not in ("exact", "refused"):
        raise ContractError(f"{case.id} through {format!r} to {to}: {found.verdict}: {found.detail}")
    listed = (case.framework, case.dtype) in MAY_REFUSE or (to, case.dtype) in MAY_REFUSE
    if found.verdict == "refused" and is_dense(case) and case.dtype in suite(to).NAMES and not listed:
        raise ContractError(f"{case.id} to {to} is refused, though both have the dtype: {found.detail}")
    return found


def is_dense(case: Case) -> bool:
    """Whether the case is of a layout that every framework's dense tensors can have."""
    return case.layout.startswith(("0-d", "empty ", "1-d", "4-d", "rank 32", "page")) and case.dtype != "other"


def _result_fingerprint(x: Any, to: str) -> Fingerprint:
    """As the target's own; or, for what the target lacks, as the neutral value or NumPy's text."""
    if isinstance(x, Sparse) and to in ("numpy", "jax"):
        parts = [part.tolist() for part in x.parts]
        return {"layout": x.layout, "shape": x.shape, "parts": parts, "values": _neutral(x.values)}
    if isinstance(x, Ragged) and to in ("numpy", "jax", "scipy"):
        return {"splits": [part.tolist() for part in x.splits], "values": _neutral(x.values)}
    if isinstance(x, np.ndarray | np.generic) and (x.dtype.kind == "O" or to == "scipy"):
        return numpy_cases.fingerprint(x)
    try:
        return fingerprint(x, to)
    except TypeError:
        return {"type": f"{type(x).__module__}.{type(x).__qualname__}"}


def _neutral(values: Tensor | Strings) -> tuple[str, tuple[int, ...], Any]:
    if isinstance(values, Strings):
        return numpy_cases.dense(values.numpy())
    return values.dtype, values.shape, bytes(values.data)


def _comparable(one: Fingerprint, other: Fingerprint) -> Fingerprint:
    """What both speak of; entries instead of parts where the layouts differ."""
    if "layout" in one and "layout" in other and one["layout"] != other["layout"]:
        return {"shape": one["shape"], "dtype": one["values"][0], "entries": sorted(entries(one))}
    common = {key: one[key] for key in one if key in other and not key.startswith(("held.", "memory.", "own."))}
    return common or {"keys": sorted(one)}


def entries(x: Fingerprint) -> Iterator[tuple[tuple[int, ...], bytes]]:
    """Place and bits of each entry of a sparse value, by plain loops over its fingerprint."""
    layout, shape, parts, (_, dims, raw) = x["layout"], x["shape"], x["parts"], x["values"]
    size = len(raw) // math.prod(dims) if raw else 0
    if layout == "coo":
        step = math.prod(dims[1:]) * size
        for n, point in enumerate(parts[0]):
            yield tuple(point), raw[n * step : (n + 1) * step]
    elif layout == "dia":
        for n, offset in enumerate(parts[0]):
            for column in range(min(dims[1], shape[1])):
                if 0 <= column - offset < shape[0]:
                    at = (n * dims[1] + column) * size
                    yield (column - offset, column), raw[at : at + size]
    else:
        yield from _compressed_entries(layout, parts, dims, raw, size)


def _compressed_entries(
    layout: str, parts: Any, dims: tuple[int, ...], raw: bytes, size: int
) -> Iterator[tuple[tuple[int, ...], bytes]]:
    pointers, indices = parts
    height, width = dims[1:3] if layout.startswith("bs") else (1, 1)
    step = math.prod(dims[3 if layout.startswith("bs") else 1 :]) * size
    for outer, (start, stop) in enumerate(itertools.pairwise(pointers)):
        for n in range(start, stop):
            row, column = (outer, indices[n]) if layout.endswith("r") else (indices[n], outer)
            for i, j in itertools.product(range(height), range(width)):
                at = ((n * height + i) * width + j) * step
                yield (row * height + i, column * width + j), raw[at : at + step]
