"""Names of a package that are loaded when they are first asked for: what is not used costs no time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def getter(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`. `places` tells for each name its module, below the package, as "module" or,
    where it is called otherwise there, "module:name"."""

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = places[name].partition(":")
        found = getattr(importlib.import_module(f"{package}.{module}"), there or name)
        setattr(sys.modules[package], name, found)  # from now on an ordinary name
        return found

    return load
