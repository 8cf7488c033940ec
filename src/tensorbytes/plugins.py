"""What other packages add to our tables, by entry points: looked at where nothing of ours fits, and once."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Container
from types import ModuleType

from tensorbytes.errors import PluginWarning


def take_in(group: str, table: Container[str], add: Callable[[str, ModuleType], None]) -> list[str]:
    """Add the entry points of a group, each a name and a module, unless the name is taken; the names that are new.

    One that can't be imported is left out, with a warning: others are not kept from their files.
    """
    from importlib.metadata import entry_points  # takes longer to import than most of us

    found = []
    for point in entry_points(group=group):
        if point.name in table:
            continue
        try:
            add(point.name, importlib.import_module(point.value))
        except (Exception, SystemExit) as error:  # whatever is wrong in somebody else's package
            what = f"{point.name!r} of the entry points {group!r} is not used, since {point.value} fails"
            warnings.warn(f"{what}: {type(error).__name__}: {error}", PluginWarning, stacklevel=2)
            continue
        found.append(point.name)
    return found
