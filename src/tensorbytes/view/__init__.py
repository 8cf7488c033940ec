"""Values and files as HTML, by the standard library and NumPy alone: no script, no network.

html_of(value)        what notebooks show
report(path, target)  a file as one page
"""

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes.view.fragments import html_of
    from tensorbytes.view.reporting import ReportSummary, report

__all__ = ["ReportSummary", "html_of", "report"]

__getattr__ = getter(__name__, {"html_of": "fragments", "ReportSummary": "reporting", "report": "reporting"})
