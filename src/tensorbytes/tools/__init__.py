"""Tools over files of any format: convert, inspect, diff, stats; bench and quantize for the tensors themselves."""

from tensorbytes.tools.benching import bench
from tensorbytes.tools.conversion import convert
from tensorbytes.tools.difference import Difference, TensorDiff, diff
from tensorbytes.tools.inspection import Inspection, TensorInfo, inspect
from tensorbytes.tools.quantizing import quantize
from tensorbytes.tools.report import Loss, Report
from tensorbytes.tools.statistics import Statistics, stats

__all__ = [
    "Difference",
    "Inspection",
    "Loss",
    "Report",
    "Statistics",
    "TensorDiff",
    "TensorInfo",
    "bench",
    "convert",
    "diff",
    "inspect",
    "quantize",
    "stats",
]
