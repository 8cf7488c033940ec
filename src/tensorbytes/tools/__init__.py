"""Tools over files of any format: convert, inspect, diff, split, merge, stats; bench and quantize for tensors."""

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes.tools.benching import bench
    from tensorbytes.tools.conversion import convert
    from tensorbytes.tools.difference import Difference, TensorDiff, diff
    from tensorbytes.tools.inspection import Inspection, TensorInfo, inspect
    from tensorbytes.tools.merging import merge
    from tensorbytes.tools.parts import Parts
    from tensorbytes.tools.quantizing import quantize
    from tensorbytes.tools.report import Loss, Report
    from tensorbytes.tools.splitting import split
    from tensorbytes.tools.statistics import Statistics, stats

__all__ = [
    "Difference",
    "Inspection",
    "Loss",
    "Parts",
    "Report",
    "Statistics",
    "TensorDiff",
    "TensorInfo",
    "bench",
    "convert",
    "diff",
    "inspect",
    "merge",
    "quantize",
    "split",
    "stats",
]

# Where each name is, loaded when it is first asked for: looking into a file must not load the benchmarks.
_PLACES = {
    "Difference": "difference",
    "Inspection": "inspection",
    "Loss": "report",
    "Parts": "parts",
    "Report": "report",
    "Statistics": "statistics",
    "TensorDiff": "difference",
    "TensorInfo": "inspection",
    "bench": "benching",
    "convert": "conversion",
    "diff": "difference",
    "inspect": "inspection",
    "merge": "merging",
    "quantize": "quantizing",
    "split": "splitting",
    "stats": "statistics",
}


__getattr__ = getter(__name__, _PLACES)
