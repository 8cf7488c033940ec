"""Tools over files of any format: convert, inspect, diff, verify, repair, split, merge, stats; bench and quantize."""

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes.damage import Damage
    from tensorbytes.ops.benching import Bench, bench
    from tensorbytes.ops.conversion import convert
    from tensorbytes.ops.difference import Difference, TensorDiff, diff
    from tensorbytes.ops.inspection import Inspection, TensorInfo, inspect
    from tensorbytes.ops.merging import merge
    from tensorbytes.ops.outcomes import Repair, Verification
    from tensorbytes.ops.parts import Parts
    from tensorbytes.ops.quantizing import quantize
    from tensorbytes.ops.repairing import repair
    from tensorbytes.ops.report import Loss, Report
    from tensorbytes.ops.splitting import split
    from tensorbytes.ops.statistics import Statistics, StatisticsByName, stats
    from tensorbytes.ops.verification import verify
    from tensorbytes.quantization import Quantized

__all__ = [
    "Bench",
    "Damage",
    "Difference",
    "Inspection",
    "Loss",
    "Parts",
    "Quantized",
    "Repair",
    "Report",
    "Statistics",
    "StatisticsByName",
    "TensorDiff",
    "TensorInfo",
    "Verification",
    "bench",
    "convert",
    "diff",
    "inspect",
    "merge",
    "quantize",
    "repair",
    "split",
    "stats",
    "verify",
]

# Where each name is, loaded when it is first asked for: looking into a file must not load the benchmarks.
_PLACES = {
    "Bench": "benching",
    "Damage": ".damage",
    "Difference": "difference",
    "Inspection": "inspection",
    "Loss": "report",
    "Parts": "parts",
    "Quantized": ".quantization",
    "Repair": "outcomes",
    "Report": "report",
    "Statistics": "statistics",
    "StatisticsByName": "statistics",
    "TensorDiff": "difference",
    "TensorInfo": "inspection",
    "Verification": "outcomes",
    "bench": "benching",
    "convert": "conversion",
    "diff": "difference",
    "inspect": "inspection",
    "merge": "merging",
    "quantize": "quantizing",
    "repair": "repairing",
    "split": "splitting",
    "stats": "statistics",
    "verify": "verification",
}


__getattr__ = getter(__name__, _PLACES)
