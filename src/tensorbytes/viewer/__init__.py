"""Values and files as HTML, by the standard library and NumPy alone: no script, no network.

html_of(value)        what notebooks show
report(path, target)  a file as one page
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorbytes.viewer.fragments import html_of
    from tensorbytes.viewer.reporting import ReportSummary, report

__all__ = ["ReportSummary", "html_of", "report"]

_PLACES = {"html_of": "fragments", "ReportSummary": "reporting", "report": "reporting"}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
