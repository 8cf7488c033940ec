"""The charts: every line that has a target, and for the README the first line of each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.report import Entry, is_size, our_result, times
from benchmarks.timing import PEER

_LEFT, _RIGHT = 1 / 50, 500
_AHEAD, _BEHIND, _OTHERS = "#1b7837", "#c2570c", "#b0b0b0"


def draw(document: Entry, path: Path) -> None:
    """The peers of each line that has a target, on a logarithmic axis: how many times as fast tensorbytes is."""
    plt = _pyplot()
    lines = [line for line in document["lines"] if our_result(line) and line["best_peer"] and not is_size(line)]
    lines = [line for line in lines if line["target"]] or lines
    figure, axes = plt.subplots(figsize=(10, 1.6 + 0.34 * len(lines)))
    _axes(axes, lines, (0.1, 1, 10, 100))
    axes.set_xlim(_LEFT, _RIGHT)
    for y, line in enumerate(lines):
        _draw_line(axes, y, line)
    axes.set_xlabel("our speed ÷ the peer's: right of 1 tensorbytes is faster")
    axes.set_title("tensorbytes beside its peers", loc="left", fontsize=11)
    figure.tight_layout(rect=(0, 0.35 / figure.get_figheight(), 1, 1))
    _legend(figure)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(figure)


def _draw_line(axes: Any, y: int, line: Entry) -> None:
    own, best, target = our_result(line), line["best_peer"], line["target"]
    assert own is not None
    ratios = [c["median"] / own["median"] for c in line["contenders"] if c["role"] == PEER and "median" in c]
    colour = _AHEAD if best["ratio"] >= 1 else _BEHIND
    axes.plot([r for r in ratios if _LEFT < r < _RIGHT], [y] * sum(_LEFT < r < _RIGHT for r in ratios), "o",
              color=_OTHERS, markersize=4, zorder=2)  # fmt: skip
    marker = "<" if best["ratio"] <= _LEFT else ">" if best["ratio"] >= _RIGHT else "o"
    shown = min(max(best["ratio"], _LEFT * 1.15), _RIGHT / 1.15)
    axes.plot([shown], [y], marker, color=colour, markersize=8, zorder=3)
    if target and target["compared"] and target["compared"]["name"] == best["name"]:
        axes.plot([target["at_least"]], [y], "|", color="black", markersize=12, markeredgewidth=1.8, zorder=4)
    label = f"{times(best['ratio'])} x {best['name']}"
    axes.annotate(label, (1.01, y), xycoords=("axes fraction", "data"), va="center", color=colour, fontsize=9)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    def sign(marker: str, colour: str, size: float, label: str) -> Any:
        return Line2D([], [], marker=marker, color=colour, markersize=size, linestyle="", label=label)

    signs = [
        sign("o", _AHEAD, 8, "fastest peer, slower than we are"),
        sign("o", _BEHIND, 8, "fastest peer, faster than we are"),
        sign("o", _OTHERS, 4, "other peers"),
        sign("|", "black", 12, "target"),
    ]
    figure.legend(handles=signs, loc="lower center", ncols=4, fontsize=9, frameon=False)


# Rows about parts of ourselves, rather than about something to be done with tensors.
_PARTS = {"auto", "command", "crc", "import"}


def draw_summary(document: Entry, path: Path) -> None:
    """The first line of each row that has a peer, as bars, so that nothing is picked by how it turned out."""
    plt = _pyplot()
    first: dict[str, Entry] = {}
    for line in document["lines"]:
        if our_result(line) and line["best_peer"] and not is_size(line) and line["row"] not in _PARTS:
            first.setdefault(line["row"], line)
    lines = list(first.values())
    figure, axes = plt.subplots(figsize=(10, 1.1 + 0.23 * len(lines)))
    _axes(axes, lines, (0.2, 1, 5, 20))
    axes.set_xlim(0.15, 25)
    for y, line in enumerate(lines):
        ratio, name = line["best_peer"]["ratio"], line["best_peer"]["name"]
        colour = _AHEAD if ratio >= 1 else _BEHIND
        axes.barh(y, max(min(ratio, 25), 0.15) - 1, left=1, height=0.62, color=colour)
        label = f"{times(ratio)} x {name}"
        axes.annotate(label, (1.01, y), xycoords=("axes fraction", "data"), va="center", color=colour, fontsize=8)
    axes.set_title(
        "Our speed divided by that of the fastest peer: right of 1 tensorbytes is faster", loc="left", fontsize=10
    )
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _axes(axes: Any, lines: list[Entry], ticks: tuple[float, ...]) -> None:
    """A logarithmic axis of ratios, a line of the benchmarks at each height."""
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_yticks(range(len(lines)), [line["title"] for line in lines], fontsize=9)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.axvline(1, color="black", linewidth=1, zorder=1)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
