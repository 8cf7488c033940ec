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

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes.quantization.core import (
        QuantizationCost,
        Quantized,
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
    "QuantizationCost",
    "Quantize",
    "Quantized",
    "applies",
    "dequantize",
    "dequantize_rows",
    "quantize",
    "saves",
]

# Where each name is, loaded when it is first asked for: reading a schema has no use for the arithmetic.
_PLACES = dict.fromkeys(__all__, "core") | {"Quantization": "parameters", "Quantize": "spec"}

__getattr__ = getter(__name__, _PLACES)
