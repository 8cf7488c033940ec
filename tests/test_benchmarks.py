"""The benchmark harness runs and reports; nothing here depends on how fast anything is."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def quick_run(folder, *rows):
    """(results.json, what was printed)"""
    only = [word for row in rows for word in ("--only", row)]
    command = [sys.executable, "-m", "benchmarks", "--quick", *only, "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text()), done.stdout


def check_contender(contender):
    assert "failed" not in contender, contender
    assert 0 < contender["low"] <= contender["median"] <= contender["high"]
    assert contender["rounds"] >= 2
    assert contender["calls"] >= 1


def test_a_quick_run_reports_what_it_measured(tmp_path):
    document, printed = quick_run(tmp_path, "crc")
    assert document["version"] == 1
    assert document["quick"] is True
    assert {"cpu", "cores", "python", "compiled_kernel"} <= document["machine"].keys()
    (line,) = document["lines"]
    assert (line["row"], line["name"], line["target"]) == ("crc", "crc", None)
    assert [c["role"] for c in line["contenders"]] == ["ours", "peer"]
    for contender in line["contenders"]:
        check_contender(contender)
    assert line["best_peer"].keys() == {"name", "ratio"}
    assert line["title"] in printed
    assert line["title"] in (tmp_path / "benchmarks.md").read_text()
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


RECORD_LINES = {
    "records": ["tensorbytes", "TensorFlow", "tfrecord", "protobuf", "read and CRC-check"],
    "records.inferred": ["tensorbytes", "TensorFlow", "read and CRC-check"],
    "records.rows": ["tensorbytes", "tfrecord", "protobuf"],
    "records.gzip": ["tensorbytes", "TensorFlow", "inflate and CRC-check"],
    "wide": ["tensorbytes", "TensorFlow", "read and CRC-check"],
    "tokens": ["tensorbytes", "TensorFlow", "read and CRC-check"],
    "images": ["tensorbytes", "TensorFlow", "read and CRC-check"],
    "sequences": ["tensorbytes", "TensorFlow", "read and CRC-check"],
    "write.columns": ["tensorbytes", "TensorFlow", "TensorFlow, in place", "tfrecord"],
    "write.rows": ["tensorbytes", "TensorFlow", "TensorFlow, in place", "tfrecord"],
    "memory": ["tensorbytes", "before reading", "the limit"],
}


def test_everybody_reads_and_writes_the_same_records(tmp_path):
    """A contender that gives back other values than went in has failed."""
    rows = dict.fromkeys(name.partition(".")[0] for name in RECORD_LINES)
    document, printed = quick_run(tmp_path, *rows)
    found = {line["name"]: line for line in document["lines"]}
    assert {name: [c["name"] for c in line["contenders"]] for name, line in found.items()} == RECORD_LINES
    for line in found.values():
        for contender in line["contenders"]:
            check_contender(contender)
        assert line["records"] > 0
        assert line["title"] in printed
    peak = next(c["median"] for c in found["memory"]["contenders"] if c["role"] == "ours")
    assert 10e6 < peak < 10e9
    page = (tmp_path / "benchmarks.md").read_text()
    assert f"| tensorbytes | {peak / 1e6:.3g} MB |" in page
    assert "M records/s" in page
