"""What is made when it is first asked for: names of packages, attributes of objects. What is not used costs no time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


def getter(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`.

    `places` tells the module of each name, below the package or, as ".module", beside it: "module", or "module:name"
    where it has another name there; "module:" is the module itself.
    """

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, colon, there = places[name].partition(":")
        home = importlib.import_module(f".{module}", package)
        found = home if colon and not there else getattr(home, there or name)
        setattr(sys.modules[package], name, found)  # from now on an ordinary name
        return found

    return load


class made_once(Generic[T]):
    """functools.cached_property without the lock that it has before Python 3.12, and which takes longer than most."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> made_once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._make(instance)
        return value
