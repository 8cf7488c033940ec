"""Any tensor to bytes to any tensor: no TensorFlow needed, no pickle, nothing lost.

data = tensorbytes.dumps(x)                 # x: NumPy, PyTorch, TensorFlow, JAX, SciPy
x = tensorbytes.loads(data, to="torch")
tensorbytes.save({"w": w, "b": b}, "model.tb")
with tensorbytes.open("model.tb") as f:
    rows = f["w"][10:20]                    # mapped, not read
"""

from tensorbytes._wire import ACCELERATED
from tensorbytes.api import buffers, dumps, equal, load, loads, open, save
from tensorbytes.errors import (
    LIMITS,
    CorruptError,
    LimitError,
    Limits,
    LossError,
    MissingDependencyError,
    TensorbytesError,
    UnsupportedError,
    UsageError,
)
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
from tensorbytes.writer import TornTailWarning

__version__ = "0.1.0"

__all__ = [
    "ACCELERATED",
    "LIMITS",
    "CorruptError",
    "LimitError",
    "Limits",
    "LossError",
    "MissingDependencyError",
    "Ragged",
    "Sparse",
    "Strings",
    "Tensor",
    "TensorbytesError",
    "TornTailWarning",
    "UnsupportedError",
    "UsageError",
    "buffers",
    "dumps",
    "equal",
    "load",
    "loads",
    "open",
    "save",
]
