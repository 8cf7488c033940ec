"""Floats in fewer bits, with the error stated: casts to narrower floats, and integers with a scale.

Nothing here happens unasked. What it costs is measured on the values themselves, after the
whole way back, and travels with them.

    spec        what a caller asks for
    parameters  what the way back needs, and what the way there has cost
    casts, affine   the two schemes
    blocks      which scale belongs to which elements; work in pieces that fit a cache
    measure     the error
    search      the smallest encoding within a bound
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorbytes.quantization.core import (
        Quantized,
        Report,
        applies,
        dequantize,
        dequantize_rows,
        quantize,
        saves,
    )
    from tensorbytes.quantization.parameters import Quantization
    from tensorbytes.quantization.spec import Quantize

__all__ = [
    "Quantization",
    "Quantize",
    "Quantized",
    "Report",
    "applies",
    "dequantize",
    "dequantize_rows",
    "quantize",
    "saves",
]

# Where names are that are not in core, which reading a schema has no use for: all are loaded when first asked for.
_PLACES = {"Quantization": "parameters", "Quantize": "spec"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES.get(name, 'core')}"), name)
