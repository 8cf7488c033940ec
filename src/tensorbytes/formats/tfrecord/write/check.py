"""Whether records can hold columns, found without writing any.

`batch.fitted` decides what a feature takes, for the writer as well. A reader gives that back bit for bit, unless

- the feature has another dtype: integers were widened, or bytes became text
- steps of a feature list vary in size where those of the column don't, or the other way round
- a byte is not a value of its dtype, such as 2 in a bool
- a float list holds narrower floats, and float32 changes the bits of a NaN
- the feature is quantized, and that changes the values
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tensorbytes import dtypes, quantization, rows
from tensorbytes.errors import USE_TB, Hint, LossError
from tensorbytes.formats import _tensorproto
from tensorbytes.formats.tfrecord.read import stored
from tensorbytes.formats.tfrecord.read.plan import Plan
from tensorbytes.formats.tfrecord.schema import ColumnFeature, Feature, Schema
from tensorbytes.formats.tfrecord.write import batch, encode, guess
from tensorbytes.formats.tfrecord.write.assemble import MAX_BYTES, too_large
from tensorbytes.formats.tfrecord.write.batch import Arrays, Given
from tensorbytes.formats.tfrecord.write.encode import STRINGS
from tensorbytes.formats.tfrecord.write.growth import Fault, Growth, refusals_of
from tensorbytes.rows import Table
from tensorbytes.tensor import Array, Ragged, Tensor, Value, identical


def check(columns: Mapping[str, Value], schema: Schema | None, lists: Iterable[str] | None) -> None:
    """Raise what a writer would over these columns; LossError where a reader would give something else."""
    try:
        _check(columns, schema, lists)
    except Fault as fault:
        raise fault.of(fault.row) from None


def check_whole(
    columns: Mapping[str, Value],
    schema: Schema | None,
    lists: Iterable[str] | None,
    readers: Callable[[Schema], Schema | None],
) -> None:
    """Raise LossError where these columns, which `check` has passed, are all of a file and others would be read.

    `readers` tells the schema that is read with records of some schema.
    """
    values = {name: batch.given(column) for name, column in columns.items()}
    if not batch.count_rows(values):
        raise LossError("records tell their columns, and there is no row", feature="rows", hints=[USE_TB])
    written = Growth(None, lists).fitted(None, values, guess.of_batch) if schema is None else schema
    for name, (is_list, _, feature) in written.columns.items():
        if name not in values:
            raise LossError(
                f"the schema has a feature {name!r}, which would be read as one more column",
                feature="column",
                tensor=name,
                hints=[Hint(purpose="leave it out")],
            )
        if _form(values[name]) != _form_read(feature, is_list):
            raise LossError(
                f"the rows of {name!r} would come back in another form: dense, ragged by int64, of other levels",
                feature="column",
                tensor=name,
                hints=[USE_TB],
            )
    read = readers(written)
    found = _inferred(written, values) if read is None else read.columns
    for name in sorted(found.keys() | written.columns.keys()):
        if found.get(name) != written.columns.get(name):
            which = "which nothing will tell" if read is None else "and the schema beside the file tells another one"
            raise LossError(
                f"{name!r} needs its schema to be read, {which}",
                feature="column",
                tensor=name,
                hints=[Hint(purpose="save to a path, with sidecar=True"), USE_TB],
            )


def _form(value: Given) -> str:
    if not isinstance(value, Ragged):
        return "dense"
    form = f"ragged in {len(value.splits)}" if value.shapes is None else "shapes"
    return form if all(level.dtype == np.int64 for level in value.splits) else f"{form}, by other integers"


def _form_read(feature: Feature, is_list: bool) -> str:
    """How a reader gives the rows of a feature."""
    if is_list:
        return "ragged in 1" if None not in feature.shape else "ragged in 2"
    if None not in feature.shape:
        return "dense"
    return "ragged in 1" if len(feature.shape) == 1 else "shapes"


def _inferred(written: Schema, values: Mapping[str, Given]) -> dict[str, ColumnFeature]:
    """What readers find out by themselves; see read/infer.py."""
    found = {}
    for name, (is_list, key, feature) in written.columns.items():
        value = values[name]
        flat = feature.encoding == "flat" and not is_list
        assert not isinstance(value, list)
        # The first two rows must show that lengths differ: more may not be looked at.
        lengths = np.diff(value.splits[0][:3]).tolist() if isinstance(value, Ragged) else [math.prod(value.shape[1:])]
        count = lengths[0] if len(set(lengths)) == 1 else 0
        dtype = {"float": "float32"}.get(feature.kind, feature.kind)
        shape: tuple[int | None, ...] = () if count == 1 or not flat else (count or None,)
        found[name] = ColumnFeature(False, key, Feature(dtype, shape))
    return found


def _check(columns: Mapping[str, Value], schema: Schema | None, lists: Iterable[str] | None) -> None:
    values: dict[str, Arrays] = {}
    for name, column in columns.items():
        with refusals_of(name):
            value = batch.given(column)
        assert not isinstance(value, list)
        values[name] = value
    count = batch.count_rows(values)
    if not count:
        return
    schema = Growth(None, lists).fitted(None, values, guess.of_batch) if schema is None else schema.select(values)
    sizes = np.zeros(count, np.int64)
    for name, (is_list, _, feature) in schema.columns.items():
        with refusals_of(name):
            _, cells = batch.fitted(feature, is_list, values[name])
            same = _same_form(values[name], feature, is_list) and _same_values(cells, feature)
        if not same:
            raise LossError(f"records would give {name!r} back as something else", feature="column", tensor=name)
        sizes += _least_sizes(values[name], feature)
    Plan(schema)  # raises over features that can't be read
    if sizes.max() > MAX_BYTES:
        raise too_large(int(sizes.max()))


def _same_form(value: Arrays, feature: Feature, is_list: bool) -> bool:
    """Whether rows come back in the same dtype, and dense or ragged as they are."""
    nested = isinstance(value, Ragged) and len(value.splits) > 1
    return batch.dtype_of(batch.elements(value)) == feature.dtype and nested == (is_list and feature.size is None)


def _same_values(cells: Arrays, feature: Feature) -> bool:
    inside = batch.elements(cells)
    if not isinstance(inside, Tensor):
        return True
    _tensorproto.check_bits(inside, None)
    if feature.quantize is not None:
        return all(_same_quantized(cell, feature) for cell in rows.rows_of(cells))
    return feature.kind != "float" or feature.dtype == "float32" or _same_nans(inside)


def _same_quantized(cell: Value, feature: Feature) -> bool:
    assert isinstance(cell, Tensor)
    return identical(quantization.quantize(cell, feature.quantize).dequantize(), cell)


def _same_nans(value: Tensor) -> bool:
    """Whether NaNs are the same after having been float32; other numbers are."""
    array = value.numpy().reshape(-1)
    with np.errstate(invalid="ignore"):
        nans = array[np.isnan(array)]
    raw = nans.view(np.uint8)
    back, _ = stored.restored(encode.stored(Tensor(value.dtype, nans.shape, raw), "float"), nans.dtype)
    return bool((back.view(np.uint8) == raw).all())


def _least_sizes(value: Arrays, feature: Feature) -> Array:
    """The bytes that each row takes at least; a number in an int64 list may take as little as one."""
    sizes = Table({"": value}, batch.length(value)).sizes()
    if feature.dtype in STRINGS:
        return sizes
    own = dtypes.get(feature.dtype).itemsize
    least = 1 if feature.quantize is not None else {"float": 4, "int64": 1}.get(feature.kind, own)
    return sizes // own * least
