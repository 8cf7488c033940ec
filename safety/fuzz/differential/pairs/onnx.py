"""The onnx package: tensors and the weights of models."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import numpy as np

import tensorbytes as tb
from safety.fuzz.differential import protobytes
from safety.fuzz.differential.arrays import neutral, plain
from safety.fuzz.differential.mutate import often_one
from safety.fuzz.differential.outcome import LIMITS
from safety.fuzz.differential.pair import Pair
from safety.fuzz.differential.pairs import upb
from tensorbytes import dtypes

_TENSOR: protobytes.Schema = {13: {}, 16: {}}
_MODEL: protobytes.Schema = {7: {5: _TENSOR}, 8: {}, 14: {}}
_DTYPES = [row.name for row in dtypes.DTYPES.values() if row.onnx is not None]
_SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3,), (2, 3), (3, 0), (4, 1)]


@cache
def _seed(name: str, shape: tuple[int, ...], raw: bool) -> bytes:
    from onnx import helper, numpy_helper

    from tensorbytes.testing import bits

    x = bits.array(name, shape)
    if raw:
        return bytes(numpy_helper.from_array(x, "w").SerializeToString())
    code = dtypes.get(name).onnx
    assert code is not None
    return bytes(helper.make_tensor("w", code, shape, x.reshape(-1).tolist()).SerializeToString())


def _tensor(rng: Random) -> bytes:
    if rng.random() < 0.1:
        items = b"".join(upb._delimited(6, rng.randbytes(rng.randrange(4))) for _ in range(2))
        return b"\x08\x02\x10\x08" + items + b"\x42\x01w"
    name, shape = rng.choice(_DTYPES), rng.choice(_SHAPES)
    try:
        return _seed(name, shape, rng.random() < 0.6)
    except Exception:  # a dtype that make_tensor does not take as numbers
        return _seed(name, shape, True)


class Tensor(Pair):
    package = "onnx"
    words = "`TensorProto.FromString` and `numpy_helper.to_array`"

    def generate(self, rng: Random) -> bytes:
        return upb.edited(rng, _tensor(rng), _TENSOR, _tensor(rng))

    def ours(self, raw: bytes) -> Any:
        found = tb.loads(raw, "onnx", to="tensor", limits=LIMITS)
        if isinstance(found, dict):
            return "a model"
        return neutral(found)

    def theirs(self, raw: bytes) -> Any:
        import onnx

        return _array(onnx.TensorProto.FromString(raw))


def _array(message: Any) -> Any:
    from onnx import numpy_helper

    if message.data_location == 1:
        raise ValueError("data in another file")
    if np.prod([float(max(n, 1)) for n in message.dims]) > 1 << 22:
        raise ValueError("too large to be tried")
    kind, shape, raw = plain(numpy_helper.to_array(message))
    return "U" if message.data_type == message.STRING else kind, shape, raw  # also where there is none to tell by


class Model(Pair):
    package = "onnx"
    words = "`load_model_from_string`, its initializers"

    def generate(self, rng: Random) -> bytes:
        graph = upb._delimited(2, b"g")
        for number in range(rng.randrange(1, 4)):
            raw = _tensor(rng)
            if rng.random() < 0.3:
                raw = upb.edited(rng, raw, _TENSOR, raw)
            graph += upb._delimited(5, raw.replace(b"\x42\x01w", b"\x42\x01" + b"wxyz"[number : number + 1]))
        model = b"\x08\x08" + upb._delimited(7, graph) + upb._delimited(8, b"\x10\x15")
        return protobytes.mutated(rng, model, _MODEL, often_one(rng)) if rng.random() < 0.7 else model

    def ours(self, raw: bytes) -> Any:
        found = tb.loads(raw, "onnx", to="tensor", limits=LIMITS)
        if not isinstance(found, dict):
            return "a tensor"
        return {name: neutral(value) for name, value in found.items()}

    def theirs(self, raw: bytes) -> Any:
        import onnx

        graph = onnx.load_model_from_string(raw).graph
        return {item.name: _array(item) for item in graph.initializer}
