"""What is refused by every format, the native one included, and why.

A pattern matches the id of a case: framework/dtype/layout. A case of a dtype that its
framework has must be exact, unless it is listed here; and one that is listed must be
refused, so that the table can't outlive its reasons.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

REFUSALS: dict[str, str] = {
    "numpy/object/*": "Python objects other than text and bytes have no bytes of their own",
    "numpy/void/plain": "a void dtype does not say what it holds",
    "numpy/void/record": "a subclass of ndarray carries more than its array",
    "numpy/longdouble/*": "the layout of long double differs between machines",
    "numpy/bool/byte that is not a valid bool": "readers treat bytes other than 0 and 1 differently",
    "numpy/float[46]*/high bits set": "ml_dtypes reads a sign out of bits that are not part of the value",
    "numpy/str/lone surrogate*": "half a character has no UTF-8 form",
    "numpy/str/StringDType with a missing value": "the missing value is a Python object",
    "numpy/*/subclass *": "a subclass of ndarray carries more than its array",
    "torch/bool/byte that is not a valid bool": "readers treat bytes other than 0 and 1 differently",
    "torch/float4_e2m1fn/0-d*": "torch packs two values into one element, and a 0-d tensor has no axis for them",
    "torch/float4_e2m1fn/coo*": "an element is a pair of values, so indices would count something else",
    "torch/float4_e2m1fn/cs[rc]*": "an element is a pair of values, so indices would count something else",
    "torch/float4_e2m1fn/bs[rc]*": "an element is a pair of values, so indices would count something else",
    "torch/float4_e2m1fn/jagged*": "an element is a pair of values, so indices would count something else",
    "torch/*/freed storage": "there is no data, and reading it would read other memory",
    "torch/*/coo, index outside": "an entry without a place",
    "torch/*/meta device": "a tensor on the meta device has no data",
    "torch/*/subclass": "a subclass may carry more than its tensor",
    "torch/other/*": "dtypes without a meaning outside torch: opaque bits, integers of 3, 5, 6 or 7 bits",
    "torch/*/jagged with holes": "what lies in the holes is not part of the value",
    "torch/*/jagged transposed": "the ragged axis is not the first",
    "torch/*/nested without rows": "without rows there is no shape to store",
    "torch/quint8/per channel, float zero points": "a scheme of embedding tables without a portable form",
    "tensorflow/*/SparseTensor, index outside": "an entry without a place",
    "tensorflow/variant/*": "references, not values",
    "tensorflow/resource/*": "references, not values",
    "jax/*/traced": "a traced value has no data yet",
    "jax/*/deleted": "the data is gone",
    "jax/key/*": "a key is opaque: its data is an array like any other",
    "jax/*/BCOO": "jax.experimental classes are not arrays",
    "scipy/object/*": "Python objects have no bytes of their own",
    "scipy/longdouble/*": "the layout of long double differs between machines",
}


def refusal(case_id: str) -> str:
    """Why a case is refused; empty if it has to be exact."""
    return next((why for pattern, why in REFUSALS.items() if fnmatchcase(case_id, pattern)), "")
