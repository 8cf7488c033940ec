"""Any tensor to bytes to any tensor: no TensorFlow needed, no pickle, nothing lost.

data = tensorbytes.dumps(x)                 # x: NumPy, PyTorch, TensorFlow, JAX, SciPy
x = tensorbytes.loads(data, to="torch")
tensorbytes.save({"w": w, "b": b}, "model.tb")
with tensorbytes.open("model.tb") as f:
    rows = f["w"][10:20]                    # mapped, not read
for batch in tensorbytes.open_records("train.tfrecord").batches(1024): ...
"""

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes import errors
    from tensorbytes._wire import ACCELERATED
    from tensorbytes.api import buffers, dumps, equal, load, loads, open, save
    from tensorbytes.errors import (
        LIMITS,
        CorruptError,
        InUseError,
        LimitError,
        Limits,
        LossError,
        MissingDependencyError,
        MissingNameError,
        SchemaError,
        TensorbytesError,
        TornTailWarning,
        UnclosedWriterWarning,
        UnsupportedError,
        UsageError,
    )
    from tensorbytes.quantization import Quantize
    from tensorbytes.records import (
        Batch,
        Damage,
        DamageWarning,
        Feature,
        Records,
        RecordWriter,
        Schema,
        Split,
        build_index,
        infer_schema,
        open_records,
        plan,
        read_events,
        read_scalars,
        repair,
        verify,
    )
    from tensorbytes.savedmodel import load_model, save_model
    from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
    from tensorbytes.tools import bench, convert, diff, inspect, merge, quantize, split, stats

__version__ = "0.1.0"

__all__ = [
    "ACCELERATED",
    "LIMITS",
    "Batch",
    "CorruptError",
    "Damage",
    "DamageWarning",
    "Feature",
    "InUseError",
    "LimitError",
    "Limits",
    "LossError",
    "MissingDependencyError",
    "MissingNameError",
    "Quantize",
    "Ragged",
    "RecordWriter",
    "Records",
    "Schema",
    "SchemaError",
    "Sparse",
    "Split",
    "Strings",
    "Tensor",
    "TensorbytesError",
    "TornTailWarning",
    "UnclosedWriterWarning",
    "UnsupportedError",
    "UsageError",
    "bench",
    "buffers",
    "build_index",
    "convert",
    "diff",
    "dumps",
    "equal",
    "errors",
    "infer_schema",
    "inspect",
    "load",
    "load_model",
    "loads",
    "merge",
    "open",
    "open_records",
    "plan",
    "quantize",
    "read_events",
    "read_scalars",
    "repair",
    "save",
    "save_model",
    "split",
    "stats",
    "verify",
]


# Where each name is; it is loaded when it is first asked for, so that importing costs next to nothing, the command
# line answers at once, and no part that is not used takes time. What is not listed here is about records.
_HOME = {
    "_wire": ["ACCELERATED"],
    "api": ["buffers", "dumps", "equal", "load", "loads", "open", "save"],
    "errors:": ["errors"],
    "errors": [
        "LIMITS",
        "CorruptError",
        "InUseError",
        "LimitError",
        "Limits",
        "LossError",
        "MissingDependencyError",
        "MissingNameError",
        "SchemaError",
        "TensorbytesError",
        "TornTailWarning",
        "UnclosedWriterWarning",
        "UnsupportedError",
        "UsageError",
    ],
    "quantization": ["Quantize"],
    "savedmodel": ["load_model", "save_model"],
    "tensor": ["Ragged", "Sparse", "Strings", "Tensor"],
    "tools": ["bench", "convert", "diff", "inspect", "merge", "quantize", "split", "stats"],
}
_PLACES = dict.fromkeys(__all__, "records") | {name: module for module, names in _HOME.items() for name in names}

__getattr__ = getter(__name__, _PLACES)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
