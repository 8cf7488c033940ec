"""What notebooks ask a value for: itself as HTML. The viewer that makes it is loaded when one does."""

from __future__ import annotations

import importlib


class Displayed:
    """A value that notebooks show as a small table with pictures, and everybody else by its repr."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        made: str = importlib.import_module("tensorbytes.view").html_of(self)
        return made
