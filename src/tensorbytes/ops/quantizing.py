"""quantize: a tensor of any framework in fewer bits, with a report of what that costs."""

from __future__ import annotations

from typing import Any

from tensorbytes import frameworks, quantization
from tensorbytes.errors import Hint, UnsupportedError, UsageError
from tensorbytes.quantization import Quantize, Quantized
from tensorbytes.tensor import Tensor


def quantize(x: Any, spec: Any) -> Quantized:
    """The tensor as stored with `quantize=spec`, its parameters, and what it costs: error and size.

    spec: a dtype ("int8", "bfloat16"), a number (the largest error allowed: the smallest encoding
    within it is found), a dict of options, or a Quantize.
    """
    wanted = Quantize.of(spec)
    if not frameworks.of(x):
        raise UsageError(
            expected="a tensor of numpy, torch, tensorflow or jax",
            got=type(x).__name__,
            hints=[Hint("quantize", purpose="to save(obj, path, ...) for structures of them", of="save")],
        )
    value = frameworks.to_value(x)
    if not isinstance(value, Tensor):
        raise UnsupportedError(
            f"a {type(value).__name__.lower()} value can't be quantized",
            hints=[Hint(purpose="quantize its dense parts")],
        )
    return quantization.quantize(value, wanted)
