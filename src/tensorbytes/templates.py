"""Values put into the containers of a template: like= of load and loads.

A template is any structure that could be saved: dicts, lists, tuples, NamedTuples, dataclasses (Flax's and Equinox's
among them), containers that JAX knows, modules of torch, which stand for their state_dict. What is loaded finds its
place by name: the keys, positions and fields that lead to it, which are those it was saved under. Containers may be of
other types than those that were saved.

In the place of a tensor stands a tensor, or what tells a shape and a dtype: jax.ShapeDtypeStruct, tf.TensorSpec, a
tensor on torch's meta device. What is loaded must have both; it comes as a tensor of that framework, on its device.
In the place of a Python number stands a number. It may have been saved as a tensor without axes, and the other way
around, if the value is the same in both types.

The template itself is never changed.
"""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorbytes import dtypes, frameworks
from tensorbytes.casting import FLOATS, Casting, is_float
from tensorbytes.errors import Hint, TemplateError, TemplateWarning, UnsupportedError, UsageError
from tensorbytes.tensor import Header, Strings, Value
from tensorbytes.tree import (
    Children,
    Leaf,
    Path,
    check_depth,
    children,
    data_fields,
    flatten,
    is_named_tuple,
    is_scalar,
    is_structured,
    path_name,
    refusal,
    restore,
)

_SHOWN = 10
# What Python's numbers are, by the start of the dtype's name.
_FAMILIES: dict[type, tuple[str, ...]] = {
    bool: ("bool",),
    int: ("int", "uint"),
    float: ("float", "bfloat"),
    complex: ("complex",),
}
# The kinds of leaves that hold no value.
_HOLLOW = ("none", "dict", "list", "tuple")
_ROOT = "(the whole)"
# The kinds of leaves that are one value of Python's.
_PYTHON = ("bool", "int", "float", "complex", "str", "bytes")
# Of warnings: the caller of load.
_CALLER = 6


def fill(
    template: Any,
    leaves: list[Leaf],
    *,
    strict: bool = True,
    cast: bool = False,
    device: str | None = None,
    path: str | None = None,
) -> Any:
    """The template with what was loaded in the place of its values.

    What is missing or left over is an error, which lists all of it; with strict=False it is a warning, and the
    template's own values stand for what is missing. Other shapes or dtypes are errors in any case; `cast` casts
    floats to the template's dtypes.
    """
    filling = _Filling(leaves, cast, device)
    filling.look(template)
    filling.report(strict, path)
    return filling.make(template)


class _Filling:
    """What was loaded, by name, and what was found out about the template."""

    def __init__(self, leaves: list[Leaf], cast: bool, device: str | None) -> None:
        self._leaves, self._cast, self._device = list(leaves), cast, device
        self._by_name: dict[str, list[Leaf]] = {}
        for leaf in leaves:
            self._by_name.setdefault(_joined(leaf.path), []).append(leaf)
        self._given: dict[int, Path] = {}  # the place that each leaf has in the template
        self._places: dict[Path, Leaf] = {}  # the leaf of each place for which there is one
        self._made: dict[tuple[Any, ...], Any] = {}  # tensors that several leaves share
        self._missing: dict[str, str] = {}  # names, and what the template has there
        self._different: list[tuple[str, str, str]] = []
        self._castable = True  # whether casting would help with all of these

    # ---- looking: nothing is read but numbers ------------------------------------

    def look(self, obj: Any, path: Path = ()) -> None:
        """Find out what fits, and what does not."""
        check_depth(path)
        obj, found = _stand_in(obj), self._find(path)
        inner = frameworks.wrapped(obj)
        if inner is not None:
            self.look(inner, path)
            return
        held = _children(obj, path)
        if held is None:
            self._look_at_value(obj, found, path)
            return
        if found is not None and "[" in found.kind and not self._take_apart(found, path, len(held)):
            return
        for step, item in held:
            self.look(item, (*path, step))

    def _find(self, path: Path) -> Leaf | None:
        """What was loaded for a place: the same keys lead to it, or its name is the same."""
        named = [one for one in self._by_name.get(_joined(path), ()) if bool(one.path) == bool(path)]
        free = [one for one in named if self._given.get(id(one), path) == path]
        keys = [key for _, key in path]
        exact = [one for one in free if [key for _, key in one.path] == keys]
        if len(exact) != 1 and len(free) > 1:
            self._different.append((_named(path), "one value", f"{len(free)} of that name"))
            self._castable = False
        return next(iter(exact or free), None)

    def _take_apart(self, leaf: Leaf, path: Path, size: int) -> bool:
        """A list of numbers, or of texts, was saved as one tensor: find its items by their positions.

        False if there are more or fewer of them than the template has.
        """
        self._given[id(leaf)] = path
        if leaf.header.shape != (size,):
            found = leaf.header.shape[0] if leaf.header.shape else 0
            self._different.append((_named(path), f"{size} items", f"{found} items"))
            self._castable = False
            return False
        for at, item in enumerate(restore(leaf, _no_tensor)):
            one = flatten(item, _no_tensor)[0]._replace(path=(*path, ("list", at)))
            self._leaves.append(one)
            self._by_name.setdefault(_joined(one.path), []).append(one)
        return True

    def _look_at_value(self, obj: Any, leaf: Leaf | None, path: Path) -> None:
        if obj is None:  # nothing is wanted
            return
        if leaf is None:
            self._missing[_named(path)] = _about(obj)
            return
        self._given[id(leaf)] = path
        self._places[path] = leaf
        if not _fits(obj, leaf, self._cast):
            self._different.append((_named(path), _about(obj), _about_leaf(leaf)))
            self._castable = self._castable and _fits(obj, leaf, cast=True)

    def report(self, strict: bool, path: str | None) -> None:
        """Raise what does not fit, or warn of it."""
        over = [leaf.name or _ROOT for leaf in self._leaves if id(leaf) not in self._given and leaf.kind not in _HOLLOW]
        if not (self._missing or over or self._different):
            return
        shown = [f"{name} ({what})" for name, what in self._missing.items()]
        told = [f"{name}: expected {expected}, got {got}" for name, expected, got in self._different]
        parts = (("missing", shown), ("left over", over), ("different", told))
        what = "\n".join(["it does not fit the template", *(_listed(word, some) for word, some in parts if some)])
        nothing = bool(self._missing) and not self._places
        if strict or self._different or nothing:
            raise TemplateError(
                what,
                path=path,
                missing=self._missing,
                left_over=over,
                different=self._different,
                hints=self._hints(strict, nothing),
            )
        warnings.warn(f"{path}: {what}" if path else what, TemplateWarning, stacklevel=_CALLER)

    def _hints(self, strict: bool, nothing: bool) -> list[Hint]:
        if not self._different and strict and not nothing:
            why = "to keep the template's values for what is missing, and to leave out what is left over"
            return [Hint("strict", False, why, of="load")]
        if self._different and self._castable and not self._cast:
            return [Hint("dtype", "like", "to cast floats to the template's dtypes", of="load")]
        return []

    # ---- making --------------------------------------------------------------------

    def make(self, obj: Any, path: Path = ()) -> Any:
        """The template with what was loaded in it."""
        obj = _stand_in(obj)
        inner = frameworks.wrapped(obj)
        if inner is not None:
            return frameworks.rebuilt(obj, [self.make(inner, path)])
        held = _children(obj, path)
        if held is not None:
            return _rebuilt(obj, [self.make(item, (*path, step)) for step, item in held])
        leaf = self._places.get(path)
        if leaf is None:
            return obj
        return _scalar_of(leaf, type(obj)) if is_scalar(obj) else self._tensor(leaf, obj)

    def _tensor(self, leaf: Leaf, obj: Any) -> Any:
        dtype = frameworks.outline(obj).dtype
        # Tied tensors stay so, where the template wants the same of both.
        place = [str(getattr(obj, name, "")) for name in ("requires_grad", "device", "sharding")]
        key = (id(leaf.value), dtype, type(obj), *place)
        if key not in self._made:
            value: Any = leaf.read()
            if leaf.kind in _PYTHON:
                exact = _tensor_of(restore(leaf, _no_tensor), dtype)
                value = value if exact is None else exact
            if value.header.dtype != dtype:
                value = Casting(dtype).cast(value, dtype, leaf.name)
            self._made[key] = frameworks.from_value_like(value, obj, self._device)
        return self._made[key]


def _fits(obj: Any, leaf: Leaf, cast: bool) -> bool:
    """Whether what was loaded can stand for a value of the template; `cast`: floats may have to be cast."""
    if is_scalar(obj):
        return _scalar_of(leaf, type(obj)) is not None
    got, wanted = leaf.header, frameworks.outline(obj)
    casts = cast and is_float(got.dtype) and wanted.dtype in FLOATS
    if leaf.kind in _PYTHON:
        number = restore(leaf, _no_tensor)
        exact = _holds_scalar(wanted, type(number)) and _tensor_of(number, wanted.dtype) is not None
        return exact or (wanted.shape == () and casts)
    if leaf.kind not in ("", "numpy") or got.kind != wanted.kind:
        return False
    if wanted.kind != "ragged" and not _same_shape(wanted.shape, got.shape):
        return False
    return got.dtype == wanted.dtype or casts


def _joined(path: Path) -> str:
    return path_name(path) or ""


def _named(path: Path) -> str:
    return path_name(path) or _ROOT


def _listed(word: str, names: list[str]) -> str:
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return "\n    ".join([f"  {word} ({len(names)}):", *names[:_SHOWN], *more])


def _no_tensor(_: Any) -> None:
    return None


def _stand_in(obj: Any) -> Any:
    state = frameworks.state_of(obj)
    return obj if state is None else state


def _children(obj: Any, path: Path) -> Children | None:
    """What a container of the template holds; None for a value."""
    if obj is None or is_scalar(obj):
        return None
    if is_structured(obj):
        return [(("key", name), np.asarray(obj)[name]) for name in obj.dtype.names]
    if type(obj) not in (list, tuple) and not is_named_tuple(obj) and frameworks.of(obj) is not None:
        return None
    # What JAX knows is taken apart by JAX, and put together by it: a Mapping may show other objects than it holds.
    found = frameworks.children(obj) if isinstance(obj, Mapping) and not isinstance(obj, dict) else None
    found = children(obj) if found is None else found
    found = frameworks.children(obj) if found is None else found
    if found is None:
        raise refusal(obj, path).within("the template")
    return found


def _rebuilt(obj: Any, items: list[Any]) -> Any:
    """A container like this one, with other items in the order of its own."""
    if is_structured(obj):
        return _struct_like(obj, items)
    if type(obj) in (list, tuple):
        return type(obj)(items)
    if is_named_tuple(obj):
        return type(obj)._make(items)
    if isinstance(obj, dict):
        made = copy.copy(obj)
        for key, item in zip(obj, items, strict=True):
            made[key] = item
        return made
    if isinstance(obj, Mapping) and frameworks.children(obj) is None:
        return _mapping_like(obj, dict(zip(obj, items, strict=True)))
    if dataclasses.is_dataclass(obj) and not isinstance(obj, Mapping):
        return _dataclass_like(obj, dict(zip(data_fields(obj), items, strict=True)))
    return frameworks.rebuilt(obj, items)


def _struct_like(obj: Any, items: list[Any]) -> Any:
    """A structured array of other fields. Text that is longer than its field is refused."""
    made = np.zeros_like(obj, subok=False)
    for name, item in zip(obj.dtype.names, items, strict=True):
        made[name] = item
        if made[name].dtype.kind in "SU" and not np.array_equal(made[name], item):
            what = f"the field {name!r} of the template, of dtype {made[name].dtype.str}"
            raise UnsupportedError(f"text that {what}, would cut short")
    return made[()] if isinstance(obj, np.void) else made


def _mapping_like(obj: Any, items: dict[Any, Any]) -> Any:
    try:
        return type(obj)(items)
    except TypeError as error:
        raise UsageError(
            f"the template holds a {type(obj).__qualname__}, which can't be made of a dict: {error}"
        ) from None


def _dataclass_like(obj: Any, values: dict[str, Any]) -> Any:
    """A dataclass with other values for some fields, frozen or not. They are set again after it was made: its
    __post_init__ may have changed them once already, before they were saved."""
    given = {one.name: values[one.name] for one in dataclasses.fields(obj) if one.init and one.name in values}
    try:
        made = dataclasses.replace(obj, **given)
    except (TypeError, ValueError) as error:  # one with an InitVar, or that checks its fields
        raise UsageError(
            f"the template holds a {type(obj).__qualname__}, which can't be made of its fields: {error}"
        ) from error
    for name, item in values.items():
        object.__setattr__(made, name, item)
    return made


# ---- numbers and what they are as tensors ---------------------------------------


def _holds_scalar(header: Header, kind: type) -> bool:
    """Whether a value with this header is one number or text, as those of a type of Python's are."""
    if header.shape != ():
        return False
    if kind in _FAMILIES:
        return header.kind == "tensor" and header.dtype.startswith(_FAMILIES[kind])
    return header.kind == "strings"


def _scalar_of(leaf: Leaf, kind: type) -> Any:
    """A Python value of a type; None if something else was loaded."""
    if leaf.kind == kind.__name__:
        return restore(leaf, _no_tensor)
    if leaf.kind not in ("", "numpy") or not _holds_scalar(leaf.header, kind):
        return None
    value: Any = leaf.read()
    item = value.items()[0] if isinstance(value, Strings) else kind(value.numpy()[()])
    return item if type(item) is kind else None


def _tensor_of(number: Any, dtype: str) -> Value | None:
    """A Python number as a tensor without axes; None if the type can't hold it exactly."""
    if isinstance(number, str | bytes):
        return frameworks.to_value(np.array(number, object))
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(number, dtypes.to_numpy(dtype))
    except (OverflowError, UnsupportedError):
        return None
    same = type(number)(made[()]) == number or number != number
    return frameworks.to_value(made) if same else None


def _same_shape(wanted: tuple[int | None, ...], got: tuple[int | None, ...]) -> bool:
    return len(wanted) == len(got) and all(one is None or one == two for one, two in zip(wanted, got, strict=True))


# ---- words ------------------------------------------------------------------------


def _about(obj: Any) -> str:
    return type(obj).__name__ if is_scalar(obj) else _about_header(frameworks.outline(obj))


def _about_leaf(leaf: Leaf) -> str:
    if leaf.kind in ("", "numpy"):
        return _about_header(leaf.header)
    return "None" if leaf.kind == "none" else leaf.kind


def _about_header(header: Header) -> str:
    kind = "" if header.kind in ("tensor", "strings") else f"{header.kind} "
    return f"{kind}{header.dtype}{['?' if size is None else size for size in header.shape]}".replace("'", "")
