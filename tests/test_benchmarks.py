"""The benchmark harness runs and reports; nothing here depends on how fast anything is."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_quick_run_reports_what_it_measured(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", "crc", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["version"] == 1
    assert document["quick"] is True
    assert {"cpu", "cores", "python", "compiled_kernel"} <= document["machine"].keys()
    (line,) = document["lines"]
    assert (line["row"], line["name"], line["target"]) == ("crc", "crc", None)
    assert [c["role"] for c in line["contenders"]] == ["ours", "peer"]
    for contender in line["contenders"]:
        assert 0 < contender["low"] <= contender["median"] <= contender["high"]
        assert contender["rounds"] >= 2
        assert contender["calls"] >= 1
    assert line["best_peer"].keys() == {"name", "ratio"}
    assert line["title"] in done.stdout
    assert line["title"] in (tmp_path / "benchmarks.md").read_text()
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
