"""Decoded columns as users get them: batches, in the terms of a framework."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensorbytes import frameworks
from tensorbytes.budget import Budget
from tensorbytes.errors import LossError, UnsupportedError
from tensorbytes.formats.tfrecord.read.batch import Batch
from tensorbytes.formats.tfrecord.read.columns import ColumnPart, Columns
from tensorbytes.formats.tfrecord.read.views import to_column
from tensorbytes.formats.tfrecord.schema import Feature
from tensorbytes.formats.tfrecord.schema.specs import Padded, Viewed
from tensorbytes.tensor import Tensor, Value


def make_batch(
    parts: Columns,
    outputs: Mapping[str, Viewed],
    features: Mapping[str, tuple[Feature, int]],
    to: str,
    device: str | None,
    budget: Budget,
) -> Batch:
    """The batch of some records."""
    columns, present, lengths = {}, {}, {}
    for name, part in parts.items():
        if to == "numpy" and part.strings is None and not part.splits:
            columns[name] = part.values
        else:
            with naming_column(name):
                columns[name] = _hand_out(part, outputs[name], to, device, budget)
            if isinstance(outputs[name].view, Padded):
                lengths[name] = np.diff(part.splits[0])
        if part.present is not None:
            present[name] = part.present
    return Batch(columns, present, features, parts.count, lengths)


@contextlib.contextmanager
def naming_column(name: str) -> Iterator[None]:
    """Errors of a framework in the block name the column."""
    try:
        yield
    except (LossError, UnsupportedError) as error:
        raise error.replaced(tensor=name) from None


def _hand_out(part: ColumnPart, column: Viewed, to: str, device: str | None, budget: Budget) -> Any:
    """A column in a framework's terms."""
    value = to_column(part, column, budget)
    if to == "numpy" and not isinstance(value, Tensor):
        return value
    return in_framework(value, to, device)


def in_framework(value: Value, to: str, device: str | None) -> Any:
    """A value in a framework's terms; what the framework has no type for stays neutral."""
    try:
        return frameworks.from_value(value, to, device)
    except UnsupportedError:
        if isinstance(value, Tensor):
            raise
        return value
