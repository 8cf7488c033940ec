"""Names of a package that are loaded when they are first asked for: what is not used costs no time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def getter(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The package's `__getattr__`. `places` tells for each name its module, below the package, as "module" or,
    where it has another name there, "module:name"; "module:" is the module itself."""

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, colon, there = places[name].partition(":")
        home = importlib.import_module(f"{package}.{module}")
        found = home if colon and not there else getattr(home, there or name)
        setattr(sys.modules[package], name, found)  # from now on an ordinary name
        return found

    return load
