"""The frameworks: each module turns its tensors into neutral values and back.

A module has `to_value(x)` and `from_value(value, device)`. It may have `address_of(x)`, where the memory of a tensor
starts, and then `place_of(x)`: all that two tensors have in common that are the same view of the same memory. For
templates it may have `outline(x)`: the header of a tensor, without its values; `like(value, x, device)`: a tensor of a
value that lives where `x` does; `state(x)`: the dict of tensors that an object of the framework stands for, or None.
`MEMORIES`, by types, and `MAKING` are short ways for tensors that are nothing but their memory.

Nothing is imported speculatively: a tensor's own class tells which framework it is from, and that framework is then
loaded already.
"""

from __future__ import annotations

import importlib
import sys
from collections import UserDict
from collections.abc import Callable, Hashable
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from tensorbytes import advice, metadata, plugins
from tensorbytes.deferred import Deferred
from tensorbytes.errors import Hint, MissingDependencyError, UnsupportedError, UsageError, unknown
from tensorbytes.structs import Structured
from tensorbytes.tensor import Header, InvalidValueError, Making, Memory, Ragged, Sparse, Strings, Tensor, Value
from tensorbytes.tree import Children

# name -> (the top-level packages its classes come from, the extra that installs it)
BUILTIN: dict[str, tuple[tuple[str, ...], str]] = {
    "numpy": (("numpy",), ""),
    "torch": (("torch",), "torch"),
    "tensorflow": (("tensorflow",), "tensorflow"),
    "jax": (("jax", "jaxlib"), "jax"),
    "scipy": (("scipy",), "scipy"),
}
# Other names that people type.
ALIASES = {
    "np": "numpy",
    "pt": "torch",
    "pytorch": "torch",
    "tf": "tensorflow",
    "jnp": "jax",
    "jax.numpy": "jax",
    "scipy.sparse": "scipy",
}
# JAX as it is by default: numbers of 64 bits as ones of 32.
JAX32 = "jax32"
# What else `to=` takes: our own values, and the framework that a value came from.
_OTHERS = ("tensor", "original", JAX32)
_BY_PACKAGE = {package: name for name, (packages, _) in BUILTIN.items() for package in packages}
_MODULES = {name: f"tensorbytes.frameworks.{name}" for name in BUILTIN}
ENTRY_POINTS = "tensorbytes.frameworks"
_NEUTRAL = (Tensor, Strings, Ragged, Sparse)
# What marks the columns and tables of pandas, pyarrow and Polars.
_MORE_THAN_AN_ARRAY = ("columns", "column_names", "null_count", "iloc")
_AS_ARRAY = Hint(purpose="pass np.asarray(x) to store the array alone")
# The short ways from tensors of the frameworks that were used so far.
memories: dict[type, Memory] = {}
_found: dict[type, str] = {}
_addresses: dict[type, Callable[[Any], int]] = {}


def resolve(to: Any) -> str:
    """What `to=` means: a framework by its name, by another name for it, or by its module."""
    name = to.__name__ if isinstance(to, ModuleType) else to
    if not isinstance(name, str):
        raise UsageError(f"to={to!r}", expected="the name of a framework, such as 'torch'")
    name = ALIASES.get(name, name)
    if name not in BUILTIN and name not in _OTHERS and name not in find_plugins():
        raise unknown("framework", name, [*BUILTIN, *_OTHERS])
    return name


@cache
def get(name: str) -> ModuleType:
    """The adapter of a framework; loads the framework."""
    if name not in BUILTIN and name not in find_plugins():
        raise unknown("framework", name, [*BUILTIN, *_OTHERS])
    try:
        module = importlib.import_module(_MODULES[name])
    except ModuleNotFoundError as error:
        if error.name not in BUILTIN[name][0]:
            raise
        raise MissingDependencyError(f"framework {name!r}", BUILTIN[name][1]) from None
    memories.update(getattr(module, "MEMORIES", {}))
    return module


def making(name: str) -> Making | None:
    """The short way to tensors of a framework, if it has one."""
    return getattr(get(name), "MAKING", None)


def register(name: str, module: str, packages: tuple[str, ...], extra: str = "") -> None:
    """Add a framework to the table: `module` has to_value(x) and from_value(value, device).

    `packages` are the top-level ones that its tensors' classes come from. Packages that are installed need no call: an
    entry point of the group "tensorbytes.frameworks" has the framework's name and its module, which says PACKAGES.
    """
    if name in BUILTIN:
        raise UsageError(f"there is a framework {name!r} already, in {_MODULES[name]}")
    BUILTIN[name], _MODULES[name] = (packages, extra), module
    _BY_PACKAGE.update(dict.fromkeys(packages, name))
    _found.clear()
    _addresses.clear()


@cache
def find_plugins() -> list[str]:
    """The frameworks of other packages that are installed; from now on they are in the table."""
    return plugins.take_in(ENTRY_POINTS, BUILTIN, lambda name, module: register(name, module.__name__, module.PACKAGES))


def of(x: Any) -> str | None:
    """The name of the framework that a value comes from; None if it is not a tensor.

    "neutral" stands for our own values, "protocol" for anything that exports DLPack
    or `__array__`.
    """
    kind = type(x)
    if kind not in _found:
        _found[kind] = _recognise(x)
    return _found[kind] or None


def _recognise(x: Any) -> str:
    if isinstance(x, _NEUTRAL):
        return "neutral"
    if isinstance(x, type):  # a class has what its instances export
        return ""
    for cls in type(x).__mro__:
        name = _BY_PACKAGE.get(cls.__module__.partition(".")[0])
        if name and (name != "numpy" or issubclass(cls, np.ndarray | np.generic)):
            return name
    package = type(x).__module__.partition(".")[0]
    if package != "builtins" and find_plugins() and package in _BY_PACKAGE:
        return _BY_PACKAGE[package]
    if isinstance(x, UserDict):  # a dict, whatever else it has
        return ""
    exports = _has(x, "__dlpack__") or _has(x, "__array__") or isinstance(x, bytearray | memoryview)
    return "protocol" if exports else ""


def _has(x: Any, name: str) -> bool:
    try:
        return hasattr(x, name)
    except Exception:  # a property of somebody's class that raises
        return False


def to_value(x: Any) -> Value:
    """The neutral value of any tensor."""
    value = value_of(x)
    if value is None:
        raise UnsupportedError(
            f"{type(x).__module__}.{type(x).__qualname__} is not a tensor; expected a tensor of "
            f"{', '.join(BUILTIN)}, a Python scalar or text, or a dict, list or tuple of them"
        )
    return value


def value_of(x: Any) -> Value | None:
    """The same; None for what is not a tensor."""
    name = _found.get(type(x)) or of(x)
    if name is None:
        return None
    if name == "neutral":
        value: Value = metadata.with_texts(x)
        return value
    try:
        converted: Value = _by_protocol(x) if name == "protocol" else get(name).to_value(x)
    except InvalidValueError as error:  # a framework that does not check what it is given
        raise UnsupportedError(f"{type(x).__qualname__} with parts that don't fit together: {error.fault}") from None
    except UnsupportedError as error:
        found = None if error.hints else advice.about(x)
        if found is None:
            raise
        what, hints = found
        raise UnsupportedError(f"{type(x).__module__}.{type(x).__qualname__} is {what}", hints=hints) from error
    return converted


def address_of(x: Any) -> int:
    """Where the memory of a tensor starts; 0 where that is not known."""
    kind = type(x)
    if kind not in _addresses:
        name = of(x)
        _addresses[kind] = getattr(get(name), "address_of", _nowhere) if name in BUILTIN else _nowhere
    return _addresses[kind](x)


def _nowhere(x: Any) -> int:
    return 0


def place_of(x: Any) -> Hashable | None:
    """What is the same of two tensors that are the same view of the same memory; None where that is not known."""
    if not address_of(x):
        return None
    name = str(of(x))
    place: Hashable = get(name).place_of(x)
    return name, place


def _by_protocol(x: Any) -> Value:
    from tensorbytes.frameworks import numpy as adapter

    inner = wrapped(x)
    if inner is not None and of(inner) not in (None, "protocol"):
        return to_value(inner)
    if not _has(x, "__dlpack__") and any(_has(x, name) for name in _MORE_THAN_AN_ARRAY):
        what = f"{type(x).__module__}.{type(x).__qualname__} has labels or missing values, which an array has not"
        raise UnsupportedError(what, hints=[] if advice.about(x) else [_AS_ARRAY])
    try:
        array = np.from_dlpack(x) if _has(x, "__dlpack__") else np.asarray(x)
    except Exception as error:
        raise UnsupportedError(f"{type(x).__qualname__} does not give up its data: {error}") from error
    return adapter.to_value(array)


def from_value(value: Value | Deferred, to: str, device: str | None = None) -> Any:
    """A framework's tensor for a neutral value; `to="original"` is where it came from.

    Of a struct, which NumPy alone has, others get a dict of its fields.
    """
    to = ALIASES.get(to, to)
    if isinstance(value, Structured) and to not in ("numpy", "original"):
        return value.as_dict(partial(from_value, to=to, device=device))
    if to == "tensor":
        return metadata.with_types(value.load())
    if to == JAX32:
        value, to = get("jax").narrowed(value.load()), "jax"
    if to == "original":
        to = value.origin.get("framework", "numpy")
        if to not in BUILTIN and to not in find_plugins():
            raise UnsupportedError(f"the file says that it comes from {to!r}, which is not a framework known here")
    return get(to).from_value(value if to == "numpy" else value.load(), device)


def placement(value: Value, device: str | None) -> str | None:
    """Where a tensor shall live: None for the framework's default."""
    return value.origin.get("device") if device == "original" else device


# ---- structures and templates -------------------------------------------------


def children(obj: Any) -> Children | None:
    """What a container of another package holds, if JAX is loaded and knows its type; None for anything else."""
    return get("jax").children(obj) if "jax" in sys.modules else None


def rebuilt(obj: Any, items: list[Any]) -> Any:
    """A container like this one, of other items, in the order of `children`."""
    return get("jax").rebuilt(obj, items)


def wrapped(x: Any) -> Any:
    """The array inside of an object that JAX knows as a structure around one, such as nnx.Param; None if it is none."""
    found = children(x) if of(x) == "protocol" else None
    return found[0][1] if found is not None and len(found) == 1 else None


def state_of(obj: Any) -> Any:
    """The dict of tensors that an object stands for, such as a module of torch; None if it stands for itself."""
    name = of(obj)
    state = getattr(get(name), "state", None) if name in BUILTIN else None
    return None if state is None else state(obj)


def outline(x: Any) -> Header:
    """What a tensor is, or a stand-in that has no values: its values are looked at only if nothing else tells."""
    name = of(x)
    of_framework = getattr(get(name), "outline", None) if name in BUILTIN else None
    found: Header | None = None if of_framework is None else of_framework(x)
    return to_value(x).header if found is None else found


def from_value_like(value: Value, x: Any, device: str | None) -> Any:
    """A tensor of the framework of `x`, on its device, or on another one; for anything without a framework, NumPy's."""
    name = of(x)
    if name == "neutral":
        return value
    module = get(name if name in BUILTIN else "numpy")
    like = getattr(module, "like", None) if name in BUILTIN else None
    return module.from_value(value, device) if like is None else like(value, x, device)
