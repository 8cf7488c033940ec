"""Every operation returns a result that can be kept, sent, shown and written as JSON; commands print that result.

The operations are those that the package lists: a new one fails here until it has a case.
"""

import copy
import dataclasses
import inspect
import json
import pickle
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import ops
from tensorbytes.cli.verbs import VERBS
from tests.support.cli_cases import inside, record_file

OPERATIONS = sorted(name for name in ops.__all__ if inspect.isfunction(getattr(ops, name)))


class Case(NamedTuple):
    call: Any  # runs the operation on the files below
    command: str = ""  # the command that prints the same result


CASES = {
    "bench": [
        Case(
            lambda: tb.bench("model.tb", formats=["npz", "raw"], rounds=1),
            "bench model.tb --formats npz,raw --rounds 1",
        )
    ],
    "convert": [
        Case(lambda: tb.convert("other.npz", "x.safetensors"), "convert other.npz x.safetensors -f"),
        Case(
            lambda: tb.convert("train.tfrecord", "x.parquet", allow="missing"),
            "convert train.tfrecord x.parquet -f --allow missing",
        ),
    ],
    "diff": [
        Case(lambda: tb.diff("model.tb", "other.npz"), "diff model.tb other.npz"),
        Case(lambda: tb.diff("train.tfrecord", "short.tfrecord"), "diff train.tfrecord short.tfrecord"),
    ],
    "inspect": [
        Case(lambda: tb.inspect("model.tb"), "info model.tb"),
        Case(lambda: tb.inspect("train.tfrecord"), "info train.tfrecord"),
    ],
    "merge": [
        Case(lambda: tb.merge(["other.npz", "third.npz"], "all.npz"), "merge other.npz third.npz all.npz -f"),
        Case(lambda: tb.merge("train.tfrecord", "all.tfrecord"), "merge train.tfrecord all.tfrecord -f"),
    ],
    "quantize": [
        Case(lambda: tb.quantize(np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8), {"dtype": "int8", "axis": 0})),
        Case(lambda: tb.quantize(np.ones(3, np.float32), "bfloat16")),  # exact: the ratio to noise is infinite
    ],
    "repair": [
        Case(lambda: tb.repair("other.npz", "repaired.npz"), "repair other.npz repaired.npz -f"),
        Case(lambda: tb.repair("damaged.tfrecord", "x.tfrecord"), "repair damaged.tfrecord x.tfrecord -f"),
    ],
    "split": [
        Case(lambda: tb.split("other.npz", "part.npz", shards=2), "split other.npz part.npz --shards 2 -f"),
        Case(lambda: tb.split("train.tfrecord", "p.tfrecord", rows=20), "split train.tfrecord p.tfrecord --rows 20 -f"),
    ],
    "stats": [
        Case(lambda: tb.stats("model.tb"), "stats model.tb"),
        Case(lambda: tb.stats("train.tfrecord"), "stats train.tfrecord"),
        Case(lambda: tb.stats("other.npz", "w"), "stats other.npz --names w"),
    ],
    "verify": [
        Case(lambda: tb.verify("model.tb"), "verify model.tb"),
        Case(lambda: tb.verify("damaged.tfrecord"), "verify damaged.tfrecord"),
        Case(lambda: tb.verify("empty.tb"), "verify empty.tb"),
    ],
}
# What differs from one run to the next, or is put in other words on a terminal.
DIFFERENT = {"bench": {"rows", "recommendations"}, "merge": {"source"}}
EVERY = [pytest.param(name, case, id=f"{name}-{at}") for name in CASES for at, case in enumerate(CASES[name])]


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    model = {"w": w, "b": np.array([0, np.nan, np.inf]), "nan": float("nan"), "steps": [1, 2], "text": ["a", "b"]}
    tb.save(model | {"days": np.array(["2020-01-01", "2021-05-06"], "M8[D]")}, "model.tb", meta={"step": "7"})
    tb.save({"w": w + 1, "b": np.zeros(3)}, "other.npz", meta={"step": "8"})
    tb.save({"v": w}, "third.npz")
    record_file("train.tfrecord")
    record_file("short.tfrecord", 40)
    data = bytearray((tmp_path / "train.tfrecord").read_bytes())
    data[-5] ^= 1
    (tmp_path / "damaged.tfrecord").write_bytes(data)
    (tmp_path / "empty.tb").touch()


def in_json(plain):
    return json.loads(json.dumps(plain, allow_nan=False))


def test_every_operation_has_cases():
    assert list(CASES) == OPERATIONS
    assert {name for name in OPERATIONS if name in VERBS} <= {name for name in CASES if CASES[name][0].command}
    assert set(OPERATIONS) <= set(tb.__all__)


@pytest.mark.parametrize(("name", "case"), EVERY)
def test_results(name, case):
    result = case.call()
    assert type(result).__name__ == inspect.signature(getattr(ops, name)).return_annotation
    assert getattr(ops, type(result).__name__) is type(result)
    assert dataclasses.is_dataclass(result) or isinstance(result, dict)
    plain = in_json(result.to_dict())
    for made in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert type(made) is type(result)
        assert in_json(made.to_dict()) == plain
        assert str(made) == str(result)
    shown = result._repr_html_()
    assert ElementTree.fromstring(shown).tag == "div"
    assert "can't be shown" not in shown


@pytest.mark.parametrize(("name", "case"), [each for each in EVERY if each.values[1].command])
def test_commands_print_results(name, case, capsys):
    plain = in_json(case.call().to_dict())
    ran = inside(capsys, *case.command.split(), "--json")
    assert not ran.err
    if name == "stats":  # a line for each tensor, with the path of the file
        path = case.command.split()[1]
        assert ran.items == [{"path": path} | each for each in plain.values()]
    else:
        assert list(ran.item) == list(plain)
        assert {key for key in plain if ran.item[key] != plain[key]} <= DIFFERENT.get(name, set())


def test_values_in_results_are_pickled():
    made = tb.quantize(np.linspace(-1, 1, 64, dtype=np.float32), "int8")
    again = pickle.loads(pickle.dumps(made))
    assert np.array_equal(again.dequantize().numpy(), made.dequantize().numpy())
    words = tb.loads(tb.dumps(np.array(["a", "Köln"])), to="tensor")
    assert pickle.loads(pickle.dumps(words)).items() == words.items()
