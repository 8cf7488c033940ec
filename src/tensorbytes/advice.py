"""What to pass instead of an object that is not a tensor, for objects that people try to store.

Each advice is Python that runs, with `x` for the object: what it gives can be stored.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from typing import Any, NamedTuple

from tensorbytes.errors import Hint


class _Advice(NamedTuple):
    kind: str  # "package.Class", of the object or of a class it derives from
    what: str  # what it is
    passing: tuple[str, ...]


_TIME = "a time, which has no form of its own here"
_TABLE = "a table, with names and types of its columns"
_ROWS = "RecordWriter(path).write_batch(x) for rows"
_BY_CLASS = (
    _Advice("torch.Size", "a shape", ("tuple(x)",)),
    _Advice("torch.dtype", "a dtype", ("str(x)",)),
    _Advice("torch.device", "a device", ("str(x)",)),
    _Advice("torch.Generator", "a generator of random numbers", ("x.get_state()",)),
    _Advice("torch.Module", "a module", ("x.state_dict()",)),
    _Advice("torch.Optimizer", "an optimizer", ("x.state_dict()",)),
    _Advice("torch.LRScheduler", "a scheduler", ("x.state_dict()",)),
    _Advice("tensorflow.DType", "a dtype", ("x.name",)),
    _Advice("tensorflow.TensorShape", "a shape", ("x.as_list()",)),
    _Advice("tensorflow.DatasetV2", "a dataset", ("list(x.as_numpy_iterator())",)),
    _Advice("keras.Model", "a model", ("x.get_weights()",)),
    _Advice("keras.Layer", "a layer", ("x.get_weights()",)),
    _Advice("pandas.DataFrame", _TABLE, ("{name: x[name].to_numpy() for name in x}", _ROWS)),
    _Advice("pandas.Series", "a column with labels", ("x.to_numpy()",)),
    _Advice("polars.DataFrame", _TABLE, ("{name: x[name].to_numpy() for name in x.columns}", _ROWS)),
    _Advice("polars.Series", "a column, perhaps with nulls", ("x.to_numpy()",)),
    _Advice("pyarrow.Table", _TABLE, ("x.to_pydict()", _ROWS)),
    _Advice("pyarrow.RecordBatch", _TABLE, ("x.to_pydict()", _ROWS)),
    _Advice("pyarrow.ChunkedArray", "a column, perhaps with nulls", ("x.to_numpy()", "x.to_pylist()")),
    _Advice("pyarrow.Array", "a column, perhaps with nulls", ("x.to_pylist()",)),
    _Advice("numpy.dtype", "a dtype", ("str(x)",)),
    _Advice("numpy.Generator", "a generator of random numbers", ("x.bit_generator.state",)),
    _Advice("PIL.Image", "an image", ("np.asarray(x)",)),
    _Advice("datetime.datetime", _TIME, ("x.isoformat()", "np.datetime64(x)")),
    _Advice("datetime.date", _TIME, ("x.isoformat()", "np.datetime64(x)")),
    _Advice("datetime.time", _TIME, ("x.isoformat()",)),
    _Advice("datetime.timedelta", _TIME, ("x.total_seconds()", "np.timedelta64(x)")),
    _Advice("decimal.Decimal", "a number without a dtype", ("str(x)", "float(x)")),
    _Advice("fractions.Fraction", "a number without a dtype", ("str(x)", "float(x)")),
    _Advice("uuid.UUID", "an identifier", ("str(x)", "x.bytes")),
    _Advice("builtins.set", "a set, which has no order", ("list(x)",)),
    _Advice("builtins.frozenset", "a set, which has no order", ("list(x)",)),
    _Advice("builtins.range", "a range", ("list(x)", "np.arange(x.start, x.stop, x.step)")),
    _Advice("builtins.dict_keys", "a view of a dict", ("list(x)",)),
    _Advice("builtins.dict_values", "a view of a dict", ("list(x)",)),
    _Advice("builtins.dict_items", "a view of a dict", ("dict(x)",)),
    _Advice("collections.deque", "a queue", ("list(x)",)),
    _Advice("types.SimpleNamespace", "a namespace", ("vars(x)",)),
    _Advice("argparse.Namespace", "a namespace", ("vars(x)",)),
    _Advice("pydantic.BaseModel", "a model of pydantic's", ("x.model_dump()",)),
)
_KNOWN = {advice.kind: advice for advice in _BY_CLASS}
_FILE = _Advice("", "a file", ("x.read()",))
# What is told by what an object can do, in the order of asking.
_BY_BEHAVIOUR: tuple[tuple[Callable[[Any], bool], _Advice], ...] = (
    (lambda x: isinstance(x, enum.Enum), _Advice("", "a member of an enumeration", ("x.value",))),
    (lambda x: isinstance(x, os.PathLike), _Advice("", "a path", ("str(x)", "x.read_bytes() for what the file holds"))),
    (lambda x: hasattr(x, "__next__") and hasattr(x, "read"), _FILE),
    (lambda x: hasattr(x, "__next__"), _Advice("", "an iterator", ("list(x)",))),
    (lambda x: callable(getattr(x, "state_dict", None)), _Advice("", "an object with a state", ("x.state_dict()",))),
)
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, list, tuple)


def about(x: Any) -> tuple[str, list[Hint]] | None:
    """What an object is, in words, and what to pass instead; None if nothing is known of it."""
    if isinstance(x, type):
        return "a class", [Hint(purpose="pass x.__name__")]
    found = _find(x)
    if found is not None:
        first, *others = found.passing
        return found.what, [Hint(purpose=f"pass {first}"), *(Hint(purpose=other) for other in others)]
    base = next((kind for kind in _PLAIN if isinstance(x, kind)), None)
    if base is None:
        return None
    name = base.__name__
    return f"a subclass of {name}, and would come back as a plain {name}", [Hint(purpose=f"pass {name}(x)")]


def _find(x: Any) -> _Advice | None:
    try:
        for kind in type(x).__mro__:
            advice = _KNOWN.get(f"{kind.__module__.partition('.')[0]}.{kind.__name__}")
            if advice is not None:
                return advice
        return next((advice for fits, advice in _BY_BEHAVIOUR if fits(x)), None)
    except Exception:  # a property of somebody's class that raises
        return None
