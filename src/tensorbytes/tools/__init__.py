"""Tools over files of any format: convert, inspect, diff."""

from tensorbytes.tools.conversion import convert
from tensorbytes.tools.difference import Difference, TensorDiff, diff
from tensorbytes.tools.inspection import Inspection, TensorInfo, inspect
from tensorbytes.tools.report import Loss, Report

__all__ = [
    "Difference",
    "Inspection",
    "Loss",
    "Report",
    "TensorDiff",
    "TensorInfo",
    "convert",
    "diff",
    "inspect",
]
