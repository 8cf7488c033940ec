"""tb doctor: what is installed, what is missing, what is accelerated."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NamedTuple

from tensorbytes.cli.output import Cell, Heading, Output
from tensorbytes.cli.words import DIM

EXAMPLES = """examples:
  tb doctor                       what there is, and how to get the rest
  tb doctor --json | jq .kernel   compiled or reference
  tb doctor --json > doctor.json

Nothing is imported to find out. The exit code is 0 whatever is missing, and 1
if the self-test fails."""


class Package(NamedTuple):
    module: str
    distributions: tuple[str, ...]
    extra: str  # of tensorbytes; "" for what is always needed
    what: str


PACKAGES = (
    Package("numpy", ("numpy",), "", "arrays"),
    Package("ml_dtypes", ("ml_dtypes",), "", "bfloat16, float8, int4"),
    Package("cramjam", ("cramjam",), "", "zstd, lz4, snappy"),
    Package("isal", ("isal",), "", "gzip and zlib, several times as fast as zlib"),
    Package("rich", ("rich",), "", "tables and progress on a terminal"),
    Package("torch", ("torch",), "torch", "PyTorch tensors"),
    Package(
        "tensorflow", ("tensorflow", "tensorflow-cpu", "tf-nightly"), "tensorflow", "TensorFlow tensors, SavedModels"
    ),
    Package("jax", ("jax",), "jax", "JAX arrays"),
    Package("scipy", ("scipy",), "scipy", "sparse arrays"),
    Package("pyarrow", ("pyarrow",), "arrow", "Arrow and Parquet"),
    Package("pandas", ("pandas",), "pandas", "batches as DataFrames"),
    Package("fsspec", ("fsspec",), "cloud", "URLs: https, s3, gs ..."),
    Package("matplotlib", ("matplotlib",), "chart", "the chart of tb bench"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLES


def run(args: argparse.Namespace, out: Output) -> int:
    about = examine()
    if out.json:
        out.item(about)
        return 0 if about["self_test"] == "passed" else 1
    kernel, why = about["kernel"], about["kernel_reason"]
    facts = {
        "tensorbytes": about["tensorbytes"],
        "python": f"{about['python']} ({about['executable']})",
        "platform": f"{about['platform']}, {about['processors']} processors",
        "kernel": f"{kernel}{f': {why}' if why else ''}",
        "self-test": about["self_test"],
    }
    good = {"kernel": kernel == "compiled", "self-test": about["self_test"] == "passed"}
    for name, text in facts.items():
        style = "" if name not in good else "green" if good[name] else "yellow" if name == "kernel" else "red"
        out.line(Cell(f"{name:<12}", "bold"), "  ", Cell(str(text), style))
    out.line()
    rows: list[list[str | Cell]] = []
    missing = "not installed" if out.width >= 60 else "missing"  # so that a narrow terminal breaks no command
    for name, found in about["packages"].items():
        state = Cell(found["version"], "green") if found["version"] else Cell(missing, DIM)
        rows.append([name, state, found["for"], Cell("" if found["version"] else found["install"], "cyan")])
    columns = [
        Heading("package"),
        Heading("version"),
        Heading("for", fold=True, drop=1),
        Heading("to install it", fold=True, least=25),
    ]
    kept = 4 if any(found["install"] for found in about["packages"].values()) else 3
    out.table(columns[:kept], [row[:kept] for row in rows])
    return 0 if about["self_test"] == "passed" else 1


def examine() -> dict[str, Any]:
    """Everything there is to tell, ready for JSON."""
    import platform

    from tensorbytes import __version__

    kernel, reason = _kernel()
    packages = {}
    for package in PACKAGES:
        install = (
            f"pip install 'tensorbytes[{package.extra}]'"
            if package.extra
            else f"pip install {package.distributions[0]}"
        )
        version = _version(package)
        packages[package.module] = {"version": version, "for": package.what, "install": None if version else install}
    return {
        "tensorbytes": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": f"{platform.system()} {platform.machine()}",
        "processors": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "kernel": kernel,
        "kernel_reason": reason,
        "self_test": _self_test(),
        "packages": packages,
    }


def _kernel() -> tuple[str, str]:
    """(compiled or reference, and why the latter)"""
    from tensorbytes import _wire

    if _wire.ACCELERATED:
        return "compiled", ""
    if os.environ.get("TENSORBYTES_KERNEL") == "reference":
        return "reference", "TENSORBYTES_KERNEL=reference asks for it"
    try:
        import importlib

        importlib.import_module("tensorbytes._wire._kernel")
    except ImportError as error:
        if error.name == "tensorbytes._wire._kernel":
            return "reference", "no C compiler was at hand at installation, so NumPy does the work, slower"
        return "reference", f"the compiled kernel can't be loaded: {error}"
    return "reference", ""


def _version(package: Package) -> str | None:
    """The version that is installed, without loading it; None if it is not there."""
    from importlib import metadata, util

    for name in package.distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    try:
        return "installed" if util.find_spec(package.module) is not None else None
    except (ImportError, ValueError):
        return None


def _self_test() -> str:
    """Some tensors to bytes and back; and whether the kernel and its twin in Python agree on the checksum."""
    import numpy as np

    from tensorbytes import _wire, api
    from tensorbytes._wire import reference

    values = {"x": np.arange(1000, dtype=np.float32), "text": ["a", "b"], "n": 7}
    try:
        for compression in (None, "zstd"):
            data = api.dumps(values, compression=compression) if compression else api.dumps(values)
            if not api.equal(api.loads(data), values):
                return f"failed: what comes back ({compression or 'uncompressed'}) is not what was stored"
        if _wire.crc32c(data) != reference.crc32c(data):
            return "failed: the compiled kernel and the reference disagree on a checksum"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"
    return "passed"
