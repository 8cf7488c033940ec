"""JAX's cases. Arrays have one layout; what varies is the dtype, the device and the sharding."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse as jax_sparse

from tensorbytes import dtypes
from tensorbytes.testing.bits import Array, array, every_pattern, keep_value_bits, numpy_dtype, patterns
from tensorbytes.testing.case import Case, Fingerprint

# Types of NumPy or ml_dtypes that JAX, or its CPU compiler, does not take.
_WITHOUT = ("complex32", "bcomplex32", "float6_e2m3fn", "float6_e3m2fn")
NAMES = tuple(
    row.name
    for row in dtypes.DTYPES.values()
    if row.numpy and not row.numpy.endswith(("time64", "delta64")) and row.name not in _WITHOUT
)
EMPTY = ((0,), (0, 3), (3, 0), (2, 0, 3))


@contextlib.contextmanager
def setting(x64: bool = True) -> Iterator[None]:
    """With 64-bit types switched on, as JAX has them off by default; the old state comes back."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", x64)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def _piece(x: Any) -> Array:
    """The array of one device, read from its memory where it takes whole bytes."""
    bits = dtypes.get(x.dtype.name).bits
    if bits < 8 or not x.size:
        return np.asarray(x)
    x.block_until_ready()  # a copy into the device may still be under way
    raw = ctypes.string_at(x.unsafe_buffer_pointer(), x.nbytes)
    return np.frombuffer(raw, numpy_dtype(x.dtype.name)).reshape(x.shape)


def dense(x: Any) -> tuple[str, tuple[int, ...], bytes]:
    """dtype, shape and bits, put together from the shards."""
    whole = np.empty(x.shape, f"V{np.dtype(x.dtype).itemsize}")
    for shard in x.addressable_shards:
        piece = _piece(shard.data)
        whole[shard.index] = piece.reshape(-1).view(whole.dtype).reshape(piece.shape)
    return x.dtype.name, x.shape, keep_value_bits(x.dtype.name, whole.tobytes())


def fingerprint(x: Any) -> Fingerprint:
    if isinstance(x, jax_sparse.BCOO):
        return {"values": dense(x.data)}
    if not isinstance(x, jax.Array):
        raise TypeError(f"{type(x)} is not of JAX")
    if isinstance(x, jax.core.Tracer) or x.is_deleted() or jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
        return {"dense": (str(x.dtype), x.shape)}
    return {"dense": dense(x), "memory.sharding": repr(x.sharding)}


def _traced() -> Any:
    caught: list[Any] = []
    jax.make_jaxpr(lambda x: caught.append(x) or x)(jnp.ones(3, jnp.float32))  # type: ignore[func-returns-value]
    return caught[0]


def _put(shape: tuple[int, ...], name: str) -> Any:
    return jax.device_put(array(name, shape))


def _deleted() -> Any:
    made = jax.device_put(array("float32", (3,)))
    made.delete()
    return made


_LAYOUTS: dict[str, Callable[[str], Any]] = {
    "0-d": lambda name: jax.device_put(array(name, ())),
    **{f"empty {'x'.join(map(str, shape))}": partial(_put, shape) for shape in EMPTY},
    "1-d": lambda name: jax.device_put(array(name, (len(patterns(name)) + 3,))),
    "4-d": lambda name: jax.device_put(array(name, (2, 3, 4, 5))),
    "rank 32": lambda name: jax.device_put(array(name, (1,) * 30 + (2, 3))),
    "page and more": lambda name: jax.device_put(array(name, (70, 70))),
    "committed": lambda name: jax.device_put(array(name, (3, 4)), jax.devices("cpu")[0]),
    "from a reversed array": lambda name: jax.device_put(array(name, (6, 5))[::-1, ::-1]),
}


def _cases(name: str) -> Iterable[Case]:
    layouts = dict(_LAYOUTS)
    if dtypes.get(name).bits == 16:
        layouts["every bit pattern"] = lambda name: jax.device_put(
            np.frombuffer(every_pattern(name), numpy_dtype(name))
        )
    for layout, build in layouts.items():
        yield Case("jax", name, layout, partial(build, name))


CASES: list[Case] = [
    *(case for name in NAMES for case in _cases(name)),
    Case("jax", "float32", "transposed", lambda: jnp.arange(12, dtype=jnp.float32).reshape(3, 4).T),
    Case("jax", "float32", "traced", _traced),
    Case("jax", "float32", "deleted", _deleted),
    Case("jax", "float32", "BCOO", lambda: jax_sparse.BCOO.fromdense(jnp.eye(3, dtype=jnp.float32))),
    Case("jax", "key", "0-d", lambda: jax.random.key(0)),
]
