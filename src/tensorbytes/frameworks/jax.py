"""JAX: arrays of every dtype, gathered from their shards."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tensorbytes import dtypes
from tensorbytes.errors import Hint, LossError, UnsupportedError
from tensorbytes.frameworks import numpy as numpy_adapter
from tensorbytes.frameworks import placement
from tensorbytes.tensor import Header, Tensor, Value, with_origin
from tensorbytes.tree import Children, Step

_NARROWER = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
_SET_X64 = Hint(purpose="call jax.config.update('jax_enable_x64', True)")


def to_value(x: Any) -> Value:
    if isinstance(x, jax.core.Tracer):
        raise UnsupportedError(
            "a traced value has no data yet", hints=[Hint(purpose="call this outside jit, grad and vmap")]
        )
    if not isinstance(x, jax.Array):
        raise UnsupportedError(f"{type(x).__module__}.{type(x).__qualname__} is not a jax.Array")
    if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        raise UnsupportedError("a PRNG key array is opaque", hints=[Hint(purpose="pass jax.random.key_data(x)")])
    if not x.is_fully_addressable:
        raise UnsupportedError(
            "the array spans other processes", hints=[Hint(purpose="pass multihost_utils.process_allgather(x)")]
        )
    if x.is_deleted():
        raise UnsupportedError("the array was deleted, or donated to a computation: it has no data any more")
    origin = {"framework": "jax"}
    devices = sorted(f"{device.platform}:{device.id}" for device in x.devices())
    if devices != ["cpu:0"]:
        origin["device"] = ",".join(devices)
    return with_origin(numpy_adapter.to_value(np.asarray(x)), origin)


def from_value(value: Value, device: str | None = None) -> Any:
    if not isinstance(value, Tensor):
        return numpy_adapter.from_value(value)  # JAX has neither strings nor these structures
    if dtypes.get(value.dtype).numpy is None or value.dtype.endswith(("time64", "delta64")):
        raise UnsupportedError(f"JAX has no dtype for {value.dtype}", hints=[Hint("to", "tensor", of="load")])
    array = value.numpy()
    if array.flags.writeable:
        array = array.copy()  # JAX may use the memory as it is, and counts on its never changing
    where = _device(placement(value, device))
    try:
        made = jax.device_put(array, where)
    except (TypeError, jax.errors.JaxRuntimeError) as error:
        if isinstance(error, jax.errors.JaxRuntimeError) and "INVALID_ARGUMENT" not in str(error):
            raise
        raise UnsupportedError(f"JAX has no dtype for {value.dtype}: {error}") from None
    if made.dtype != array.dtype:
        raise LossError(
            f"JAX would turn {array.dtype} into {made.dtype}, as 64-bit types are switched off",
            feature="dtype",
            tensor=value.name,
            hints=[_SET_X64, Hint("to", "jax32", "for 32 bits: integers must fit, floats are rounded", of="load")],
        )
    return made


def narrowed(value: Value) -> Value:
    """Numbers of 64 bits as ones of 32: integers unchanged, floats rounded. One that is out of range is refused."""
    if not isinstance(value, Tensor) or value.dtype not in _NARROWER:
        return value
    array, wanted = value.numpy(), _NARROWER[value.dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        made = array.astype(dtypes.to_numpy(wanted))
    lost = made != array if array.dtype.kind in "iu" else np.isfinite(array) & ~np.isfinite(made)
    if lost.any():
        first = array.reshape(-1)[np.argmax(lost.reshape(-1))]
        raise LossError(f"{wanted} can't hold {first}", feature="dtype", tensor=value.name, hints=[_SET_X64])
    return Tensor(wanted, value.shape, made.reshape(-1).view(np.uint8), value.name, value.meta, value.origin)


def _device(where: str | None) -> Any:
    """The device named "cpu:1" or "gpu"; several, of a sharded array, become the first."""
    if where is None:
        return None
    platform, _, number = where.partition(",")[0].partition(":")
    try:
        return jax.devices(platform)[int(number or 0)]
    except (RuntimeError, ValueError, IndexError):
        have = ", ".join(f"{device.platform}:{device.id}" for device in jax.devices())
        raise UnsupportedError(f"JAX has no device {where!r} here; it has {have}") from None


# ---- structures and templates -------------------------------------------------


def children(obj: Any) -> Children | None:
    """What a structure holds whose type is registered; None for anything else."""
    if type(obj).__module__ == "builtins" or hasattr(obj, "__next__"):  # JAX warns of iterators
        return None
    found, _ = jax.tree_util.tree_flatten_with_path(obj, is_leaf=lambda x: x is not obj)
    if len(found) == 1 and not found[0][0]:  # a leaf
        return None
    return [(_step(path[0]), item) for path, item in found]


def _step(key: Any) -> Step:
    """DictKey, FlattenedIndexKey: key; SequenceKey: idx; GetAttrKey: name."""
    named = next((getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)), str(key))
    return ("number", named) if type(named) is int else ("key", str(named))


def rebuilt(obj: Any, items: list[Any]) -> Any:
    """A structure like this one, of other items."""
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(obj, is_leaf=lambda x: x is not obj), items)


def outline(x: Any) -> Header | None:
    """What an array is, or a ShapeDtypeStruct."""
    if not isinstance(x, jax.Array | jax.ShapeDtypeStruct) or jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
        return None
    return Header("tensor", dtypes.from_numpy(np.dtype(x.dtype)).name, tuple(x.shape), None)


def like(value: Value, x: Any, device: str | None) -> Any:
    """An array with the sharding of `x`, and weakly typed if that is a weakly typed scalar."""
    made = from_value(value, device)
    if not isinstance(made, jax.Array):
        return made
    if getattr(x, "weak_type", False) and not made.shape:
        weak = jax.numpy.asarray(made.item())
        made = weak if weak.dtype == made.dtype else made
    sharding = getattr(x, "sharding", None) if device is None else None
    if isinstance(getattr(sharding, "mesh", None), jax.sharding.AbstractMesh):  # which has no devices
        sharding = None
    return made if sharding is None or sharding == made.sharding else jax.device_put(made, sharding)
