"""Builds a fuzz target of the kernel: with clang's libFuzzer where there is one, else with a plain loop of our own."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KERNEL = ROOT / "src/tensorbytes/_wire"
# All of the kernel but the shim, which needs an interpreter.
SOURCES = sorted(path for path in KERNEL.glob("*.c") if "binding" not in path.stem)
TARGETS = {
    "records": "TFRecord framing, and records found again after damage",
    "checksums": "every way to compute a CRC-32C agrees with the others",
    "messages": "TensorProtos, fields, runs of strings",
    "examples": "Examples and SequenceExamples to columns, step by step",
    "decode": "Examples and SequenceExamples to columns, in one pass",
    "writes": "columns to Examples and back, also while they change",
    "codes": "entropy codes, planes, differences, packed bits",
    "columns": "what is missing as zeros, offsets, decimals as text and back",
    "varints": "every way to decode a run of varints agrees with the others",
    "objects": "objects of the native frame both ways, headers of safetensors files",
    "numbers": "figures over numbers of any bits: counts, sums, casts, integers with scales",
}
FLAGS = ("-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=undefined")


class NoSanitizers(Exception):
    """There is no compiler here that has them."""


class Program(NamedTuple):
    path: Path
    guided: bool  # by coverage


def _has(compiler: str, sanitizers: str, folder: Path) -> bool:
    source = folder / "none.c"
    source.write_text("int LLVMFuzzerTestOneInput(void);\nint LLVMFuzzerTestOneInput(void) { return 0; }\n")
    main = [] if "fuzzer" in sanitizers else ["-DLLVMFuzzerTestOneInput=main"]
    command = [compiler, f"-fsanitize={sanitizers}", *main, str(source), "-o", str(folder / "none")]
    return subprocess.run(command, capture_output=True).returncode == 0


@functools.cache
def compiler(folder: Path) -> tuple[str, bool]:
    """The compiler to use, and whether it has libFuzzer."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in filter(shutil.which, ("clang", *(f"clang-{version}" for version in range(22, 11, -1)))):
        if _has(name, "fuzzer,address,undefined", folder):
            return name, True
    for name in filter(shutil.which, ("cc", "gcc", "clang")):
        if _has(name, "address,undefined", folder):
            return name, False
    raise NoSanitizers


def build(target: str, folder: Path) -> Program:
    name, guided = compiler(folder)
    sources = [
        HERE / f"{target}.c",
        HERE / ("start.c" if guided else "loop.c"),
        *SOURCES,
    ]
    sanitizers = "-fsanitize=fuzzer,address,undefined" if guided else "-fsanitize=address,undefined"
    out = folder / target
    subprocess.run(
        [name, *FLAGS, sanitizers, f"-I{KERNEL}", *map(str, sources), "-lpthread", "-o", str(out)], check=True
    )
    return Program(out, guided)
