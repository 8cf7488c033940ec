"""Any tensor to bytes to any tensor: no TensorFlow needed, no pickle, nothing lost.

data = tensorbytes.dumps(x)                 # x: NumPy, PyTorch, TensorFlow, JAX, SciPy
x = tensorbytes.loads(data, to="torch")
tensorbytes.save({"w": w, "b": b}, "model.tb")
with tensorbytes.open("model.tb") as f:
    rows = f["w"][10:20]                    # mapped, not read
for batch in tensorbytes.open_records("train.tfrecord").batches(1024): ...

What is needed now and then is in modules: `errors` (all exceptions and warnings, Limits), `records` (schemas, indexes,
splits, TensorBoard's events), `savedmodel`, `torch` (whole modules), `formats`, `frameworks`; `tensorbytes.testing` is
imported by name.
"""

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes import errors, formats, frameworks, records, savedmodel, torch
    from tensorbytes._wire import ACCELERATED
    from tensorbytes.api import buffers, dumps, equal, load, loads, open, save
    from tensorbytes.ops import bench, convert, diff, inspect, merge, quantize, repair, split, stats, verify
    from tensorbytes.quantization import Quantize
    from tensorbytes.records import RecordWriter, open_records
    from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor

__version__ = "0.1.0"

# Where each name is; it is loaded when it is first asked for, so that importing costs next to nothing, the command
# line answers at once, and no part that is not used takes time. "errors:" is the module itself.
_PLACES = {
    "ACCELERATED": "_wire",
    "Quantize": "quantization",
    "Ragged": "tensor",
    "RecordWriter": "records",
    "Sparse": "tensor",
    "Strings": "tensor",
    "Tensor": "tensor",
    "bench": "ops",
    "buffers": "api",
    "convert": "ops",
    "diff": "ops",
    "dumps": "api",
    "equal": "api",
    "errors": "errors:",
    "formats": "formats:",
    "frameworks": "frameworks:",
    "inspect": "ops",
    "load": "api",
    "loads": "api",
    "merge": "ops",
    "open": "api",
    "open_records": "records",
    "quantize": "ops",
    "records": "records:",
    "repair": "ops",
    "save": "api",
    "savedmodel": "savedmodel:",
    "split": "ops",
    "stats": "ops",
    "torch": "torch:",
    "verify": "ops",
}

__all__ = [
    "ACCELERATED",
    "Quantize",
    "Ragged",
    "RecordWriter",
    "Sparse",
    "Strings",
    "Tensor",
    "bench",
    "buffers",
    "convert",
    "diff",
    "dumps",
    "equal",
    "errors",
    "formats",
    "frameworks",
    "inspect",
    "load",
    "loads",
    "merge",
    "open",
    "open_records",
    "quantize",
    "records",
    "repair",
    "save",
    "savedmodel",
    "split",
    "stats",
    "torch",
    "verify",
]

__getattr__ = getter(__name__, _PLACES)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
