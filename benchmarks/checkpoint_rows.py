"""Rows about TensorFlow's checkpoints, beside TensorFlow itself. Files come from the page cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tensorbytes as tb
from benchmarks.memory_rows import Scale, random_floats, same, size_name
from benchmarks.peers import import_tensorflow
from benchmarks.timing import OURS, Contender, Line, Target

_VARIABLES = 100
_ROW = 1024  # float32, so that a row is 4 KiB


def checkpoint(scale: Scale, folder: Path) -> Iterator[Line]:
    yield _load(scale, folder)
    yield _slice(scale, folder)


def _load(scale: Scale, folder: Path) -> Line:
    tf = import_tensorflow()
    count = min(_VARIABLES, scale.dict_tensors)
    flat = random_floats(count * scale.dict_each).reshape(count, -1, 256)
    x = {f"layer{i:03d}/kernel": part for i, part in enumerate(flat)}
    prefix = str(folder / "variables")
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=list(x), shape_and_slices=[""] * count, tensors=[tf.constant(v) for v in x.values()]
    )

    def theirs(prefix: str) -> dict[str, Any]:
        reader = tf.train.load_checkpoint(prefix)
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}

    def right(got: dict[str, Any]) -> bool:
        return got.keys() == x.keys() and all(same(got[name], x[name]) for name in x)

    return Line(
        "checkpoint.load",
        f"load a checkpoint, {count} variables of {size_name(scale.dict_each)}",
        [
            Contender("tensorbytes", tb.load, prefix, right, OURS),
            Contender("tf.train.load_checkpoint", theirs, prefix, right),
        ],
        flat.nbytes,
        Target(1.0, "no slower than TensorFlow", ("tf.train.load_checkpoint",)),
        note="TensorFlow wrote the checkpoint. Both verify every checksum.",
    )


def _slice(scale: Scale, folder: Path) -> Line:
    tf = import_tensorflow()
    size = scale.slices[-1]
    rows = size // 4 // _ROW
    x = np.arange(size // 4, dtype=np.float32).reshape(rows, _ROW)
    at = rows // 2
    wanted = x[at : at + 1].copy()
    prefix = str(folder / "large")
    tb.save({"x": x}, prefix, "checkpoint", sync=False)
    del x

    def ours(prefix: str) -> Any:
        with tb.open(prefix) as file:
            return file["x"][at : at + 1].copy()

    def theirs(prefix: str) -> Any:
        part = f"{rows} {_ROW} {at},1:-"
        return tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["x"], shape_and_slices=[part], dtypes=[tf.float32])[0]

    return Line(
        "checkpoint.slice",
        f"open a checkpoint of {size_name(size)}, 4 KiB of it",
        [
            Contender("tensorbytes", ours, prefix, lambda got: same(got, wanted), OURS),
            Contender("tf.raw_ops.RestoreV2", theirs, prefix, lambda got: same(got.numpy(), wanted)),
        ],
        note="TensorFlow reads the variable whole to give a slice of it.",
    )
