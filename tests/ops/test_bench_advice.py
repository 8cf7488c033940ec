"""What bench says of its measurements: the advice, JSON, the table, the charts."""

import json
import shutil
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.ops.benching import Bench, BenchRow, advice, bench

QUICK = {"rounds": 1, "seconds": 0.02}


def table():
    return {"w": np.random.default_rng(0).normal(0, 0.02, (256, 64)).astype(np.float32), "id": np.arange(256)}


@pytest.fixture(scope="module")
def found():
    return bench(table(), **QUICK)


# ---- recommendations ----------------------------------------------------------


def recomputed(plain, goal):
    """The documented formulas, from JSON alone."""
    fit = [row for row in plain["rows"] if row["lossless"] and row["read_seconds"] is not None]

    def times(row):
        return row["write_seconds"] + row["read_seconds"]

    first = {
        "size": lambda row: row["size"],
        "speed": times,
        "balanced": lambda row: times(row) + 2 * row["size"] / plain["storage"],
    }[goal]
    second = times if goal == "size" else lambda row: row["size"]
    draws = (1.01, 1.05) if goal == "size" else (1.05, 1.01)
    for measure, draw in zip((first, second), draws, strict=True):
        least = min(map(measure, fit))
        fit = [row for row in fit if measure(row) <= least * draw]
    found = fit[0]
    return found["format"], found["compression"]


@pytest.mark.parametrize("goal", advice.GOALS)
def test_the_recommendation_follows_from_the_rows(found, goal):
    plain = json.loads(found.json())
    said = plain["recommendations"][goal]
    assert (said["format"], said["compression"]) == recomputed(plain, goal)
    again = Bench.from_dict({**plain, "goal": goal})
    assert (again.best.format, again.best.compression) == recomputed(plain, goal)
    assert again.best.label in again.reason
    assert again.ranked()[0] == again.best


def made(format, compression, size, write, read, **more):
    return BenchRow(format, compression, "", size, size / 1000, write, read, 1.0, 1.0, lossless=True, rounds=1, **more)


def test_goals_differ():
    rows = [made("tb", None, 1000, 1e-6, 1e-6), made("tb", "zstd", 500, 3e-6, 1e-6), made("npz", "deflate", 400, 1, 1)]
    result = Bench("balanced", "x", "", 1000, 1000, rows, storage=500e6)
    assert result.best == rows[1]  # 4 + 2 µs against 2 + 4 µs: within the draw, and smaller
    assert result.recommend("speed").row == rows[0]
    assert result.recommend("size").row == rows[2]
    assert result.recommend(storage=1e6).row == rows[1]
    assert result.recommend(storage=1e12).row == rows[0]
    assert "compression does not pay" in result.recommend("speed").reason
    assert "uncompressed tb" in result.recommend("size").reason
    lossy = [rows[0], made("npz", "deflate", 10, 1e-9, 1e-9)]
    lossy[1] = BenchRow(**{**vars(lossy[1]), "lossless": False})
    assert Bench("size", "x", "", 1000, 1000, lossy).best == rows[0]


def test_a_draw_goes_to_the_faster_or_the_smaller_or_the_first():
    rows = [made("a", None, 1000, 2.0, 2.0), made("b", None, 1005, 1.0, 1.0), made("c", None, 900, 1.04, 1.04)]
    assert Bench("size", "x", "", 1, 1, rows[:2]).best == rows[1]
    assert Bench("speed", "x", "", 1, 1, rows[1:]).best == rows[2]
    assert "within 5% of b, which is larger" in Bench("speed", "x", "", 1, 1, rows[1:]).reason
    alike = [made("tb", None, 1001, 1.01, 1.01), made("b", None, 1000, 1.0, 1.0)]
    for goal in advice.GOALS:
        assert Bench(goal, "x", "", 1, 1, alike).best == alike[0]
    assert "as good as b, within 5%" in Bench("speed", "x", "", 1, 1, alike).reason


# ---- forms --------------------------------------------------------------------


def test_json_there_and_back(found):
    plain = json.loads(found.json())
    assert plain == found.to_dict()
    again = Bench.from_dict(plain)
    assert again == found
    assert str(again) == str(found)


def test_the_table_is_aligned_and_fits(found):
    lines = found.table().splitlines()
    assert " ".join(lines[0].split()) == "choice size of raw write read slice mmap exact checks read by"
    assert len(lines) == 1 + sum(not row.refused for row in found.rows)
    assert max(map(len, str(found).splitlines())) <= 100
    ends = [line.index("%") for line in lines[1:]]
    assert len(set(ends)) == 1
    assert found.table() in str(found)
    assert found.best.usage in str(found)


def test_the_advice_can_be_followed(found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for row in found.rows:
        if row.held:
            exec(row.usage, {"x": table(), "tb": tb})
            assert any(tmp_path.iterdir()), row.usage
            for path in tmp_path.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_charts(found, tmp_path):
    found.chart(tmp_path / "x.svg")
    root = ElementTree.parse(tmp_path / "x.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags == {"svg", "title", "rect", "line", "circle", "text"}  # nothing that could run
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    for row in found.rows:
        if row.held:
            assert any(text.startswith(row.label.replace(" with ", " ")) for text in words)
    pytest.importorskip("matplotlib")
    found.chart(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(tb.errors.UsageError, match=r"a \.svg or a \.png"):
        found.chart(tmp_path / "x.pdf")


def test_a_chart_of_odd_names_is_still_xml(tmp_path):
    rows = [made("tb", "<&'\">", 10, 1.0, 1.0)]
    Bench("size", "<script>&", "a & b", 10, 10, rows, notes=["1 < 2"]).chart(tmp_path / "x.svg")
    assert "<script>&" in " ".join(ElementTree.parse(tmp_path / "x.svg").getroot().itertext())
    Bench("size", "x", "", 10, 10, []).chart(tmp_path / "empty.svg")
    ElementTree.parse(tmp_path / "empty.svg")


def test_a_chart_says_what_it_needs(found, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(tb.errors.MissingDependencyError, match=r"tensorbytes\[chart\]"):
        found.chart(tmp_path / "x.png")
