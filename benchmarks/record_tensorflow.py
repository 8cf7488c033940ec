"""TensorFlow's way to read records, set up as it runs best on the machine at hand."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.peers import import_tensorflow
from benchmarks.record_data import (
    Array,
    Column,
    FeatureSpec,
    Files,
    Spec,
    Table,
    dtype_and_shape,
    joined,
    reordered,
    strings_column,
)
from benchmarks.record_peers import Reader

ONE_FILE, PARALLEL_READS, INTERLEAVED = "one file", "two files in parallel, by record", "two files in parallel"


@dataclass(frozen=True)
class Pipeline:
    """One way to set up tf.data."""

    batch: int
    calls: int  # num_parallel_calls of the parsing; -1 is AUTOTUNE
    reading: str = ONE_FILE
    ragged: bool = True  # RaggedFeature, or VarLenFeature

    def __str__(self) -> str:
        calls = "AUTOTUNE" if self.calls < 0 else str(self.calls)
        return f"batch {self.batch}, {calls} parsing, {self.reading}{'' if self.ragged else ', VarLenFeature'}"


def pipelines(batches: Sequence[int], varies: bool) -> list[Pipeline]:
    """Those that are tried; `varies`: there is a feature for RaggedFeature or VarLenFeature."""
    found = [Pipeline(batch, calls) for batch in batches for calls in (1, 2, -1)]
    found += [Pipeline(batch, 2, INTERLEAVED) for batch in batches]
    found += [Pipeline(max(batches), 2, PARALLEL_READS)]
    return found + [replace(pipeline, ragged=False) for pipeline in found if varies and pipeline.reading == ONE_FILE]


@dataclass(frozen=True)
class Trial:
    """How the best pipeline is found: all take turns for `seconds` each, from the third turn on the four fastest."""

    batches: tuple[int, ...] = (512, 1024, 4096, 8192)
    seconds: float = 0.25
    turns: int = 6


def reader(files: Files, spec: Spec, trial: Trial) -> Reader:
    """TensorFlow at its best.

    The dataset is built once and read again for each sample, as training does for each epoch.
    Its results stay tensors: turning its strings into Python's would cost more than parsing them.
    """
    tf = import_tensorflow()
    specs = [*spec.features.values(), *(spec.lists or {}).values()]
    tried = pipelines(trial.batches, any(None in dtype_and_shape(feature)[1] for feature in specs))
    datasets = {pipeline: _dataset(tf, files, spec, pipeline) for pipeline in tried}
    rates = dict.fromkeys(tried, 0.0)
    running = tried
    for turn in range(trial.turns):
        for pipeline in running:
            rates[pipeline] = max(rates[pipeline], _rate(datasets[pipeline], trial.seconds))
        if turn > 0:
            running = sorted(running, key=rates.__getitem__)[-4:]
    best = max(tried, key=rates.__getitem__)
    for pipeline in tried:
        print(f"  TensorFlow, {pipeline}: {rates[pipeline] / 1e6:.3f} M records/s", file=sys.stderr)

    def table(batches: list[Any]) -> Table:
        order = np.argsort(_delivered([_tensor_count(batch) for batch in batches], best.reading))
        table = joined({name: _tensor_column(tf, x) for name, x in batch.items()} for batch in batches)
        return {name: reordered(column, order) for name, column in table.items()}

    return Reader("TensorFlow", lambda _: datasets[best], _tensor_count, table, note=f"at its best: {best}")


def _rate(dataset: Any, seconds: float) -> float:
    """Records a second, over as many epochs as fit; the last may be cut off."""
    started, count = perf_counter(), 0
    while True:
        for batch in dataset:
            count += _tensor_count(batch)
            elapsed = perf_counter() - started
            if elapsed > seconds:
                return count / elapsed


def _delivered(batches: list[int], reading: str) -> Array:
    """The place in the file of each record, in the order in which tf.data gives them."""
    total = sum(batches)
    if reading == ONE_FILE:
        return np.arange(total)
    if reading == PARALLEL_READS:
        return np.arange(total).reshape(2, -1).T.reshape(-1)
    starts = np.cumsum([0, *batches[::2], *batches[1::2]])
    halves = len(batches) // 2
    order = [half * halves + i for i in range(halves) for half in (0, 1)]
    return np.concatenate([np.arange(starts[i], starts[i + 1]) for i in order])


def _dataset(tf: Any, files: Files, spec: Spec, pipeline: Pipeline) -> Any:
    parse = _parser(tf, spec, pipeline.ragged)
    compression = files.compression or None

    def parsed(records: Any) -> Any:
        return records.batch(pipeline.batch).map(parse, num_parallel_calls=pipeline.calls)

    if pipeline.reading == INTERLEAVED:
        paths = tf.data.Dataset.from_tensor_slices(list(files.halves))
        dataset = paths.interleave(
            lambda path: parsed(tf.data.TFRecordDataset(path, compression)), cycle_length=2, num_parallel_calls=2
        )
    elif pipeline.reading == PARALLEL_READS:
        dataset = parsed(tf.data.TFRecordDataset(list(files.halves), compression, num_parallel_reads=2))
    else:
        dataset = parsed(tf.data.TFRecordDataset(files.whole, compression))
    return dataset.prefetch(tf.data.AUTOTUNE)


def _parser(tf: Any, spec: Spec, ragged: bool) -> Callable[[Any], Any]:
    varies = tf.io.RaggedFeature if ragged else tf.io.VarLenFeature

    def feature(spec: FeatureSpec, fixed: Any) -> Any:
        dtype, shape = dtype_and_shape(spec)
        dtype = tf.string if dtype == "bytes" else tf.as_dtype(dtype)
        return varies(dtype) if None in shape else fixed(shape, dtype)

    context = {name: feature(x, tf.io.FixedLenFeature) for name, x in spec.features.items()}
    if spec.lists is None:
        return lambda batch: tf.io.parse_example(batch, context)
    lists = {name: feature(x, tf.io.FixedLenSequenceFeature) for name, x in spec.lists.items()}

    def parse(batch: Any) -> Any:
        first, second, _ = tf.io.parse_sequence_example(batch, context, lists)
        return first | second

    return parse


def _tensor_count(batch: dict[str, Any]) -> int:
    return min(int(x.shape[0]) for x in batch.values())


def _tensor_column(tf: Any, x: Any) -> Column:
    if isinstance(x, tf.RaggedTensor):
        return (x.flat_values.numpy(), *(np.diff(splits.numpy()) for splits in reversed(x.nested_row_splits)))
    if isinstance(x, tf.SparseTensor):
        *outer, _ = x.dense_shape.numpy().tolist()
        place = np.ravel_multi_index(x.indices.numpy()[:, :-1].T, outer)
        counts = np.bincount(place, minlength=math.prod(outer))
        return (x.values.numpy(), counts, *(np.full(outer[0], outer[1]) for _ in outer[1:]))
    if x.dtype == tf.string:
        return strings_column(x.numpy().tolist())
    # Three dimensions: steps, of which all records of our files have the same number.
    return (x.numpy().reshape(-1), *(np.full(x.shape[0], x.shape[1]) for _ in x.shape[2:]))
