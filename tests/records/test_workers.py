"""Records in the worker processes of torch's DataLoader, torchdata and Grain: each comes exactly once, and all end.

Every case is a program of its own: forks of a process that has TensorFlow and JAX loaded, with their threads, may hang.
"""

import json
import subprocess
import sys

import numpy as np
import pytest

import tensorbytes as tb

COUNT = 100
_PATIENCE = 240  # seconds until a program that hangs is ended
PROGRAM = """\
import json
import sys
import warnings

import tensorbytes as tb

warnings.simplefilter("ignore", UserWarning)  # of torchdata, about torch


def ids(batches):
    return [number for batch in batches for number in batch["id"].tolist()]


def say(result):
    print(json.dumps(result))


def main(path, start):
{}

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


STARTS = pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.deep)])


@pytest.fixture(params=["none", pytest.param("gzip", marks=pytest.mark.deep)])
def path(tmp_path, request):
    file = tmp_path / "a.tfrecord"
    with tb.RecordWriter(file, compression=request.param) as writer:
        for i in range(COUNT):
            row = {"id": i, "image": np.full((2, 3), i, np.uint8), "text": f"row {i}"}
            writer.write(row | {"tokens": np.arange(i % 4)})
    return str(file)


def run(tmp_path, path, body, start="fork"):
    """What a program says at its end."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format("".join(f"    {line}\n" for line in body.strip().splitlines())))
    done = subprocess.run(
        [sys.executable, str(program), path, start], capture_output=True, text=True, timeout=_PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@STARTS
def test_a_loader_of_records(path, tmp_path, start):
    body = """
from torch.utils.data import DataLoader

tb.records.Records._get = None  # in workers that are forked, records come several at a time or not at all
records = tb.open_records(path, columns=["id", "image", "text"])
loader = DataLoader(records, batch_size=7, num_workers=2, multiprocessing_context=start)
passes = [list(loader) for _ in range(2)]
mixed = DataLoader(records, batch_size=7, num_workers=2, multiprocessing_context=start, shuffle=True)
first = passes[0][0]
say([*map(ids, passes), sorted(ids(mixed)), list(first["image"].shape), first["text"]])
"""
    one, two, mixed, shape, text = run(tmp_path, path, body, start)
    assert one == two == mixed == list(range(COUNT))
    assert shape == [7, 2, 3]
    assert text == [f"row {i}" for i in range(7)]


@STARTS
def test_a_loader_of_batches(path, tmp_path, start):
    body = """
import torch
from torch.utils.data import DataLoader

batches = tb.open_records(path).batches(16)
next(batches)  # a pass that was begun is not the workers'
loader = DataLoader(batches, batch_size=None, num_workers=2, multiprocessing_context=start)
found = list(loader)
assert type(found[0]) is tb.records.Batch and type(found[0]["image"]) is torch.Tensor
tensors = list(DataLoader(tb.open_records(path, to="torch").batches(16), batch_size=None, num_workers=2))
assert tensors[0]["tokens"].is_nested
columns = [found[1]["text"].tolist(), found[-1]["tokens"].to_list()]
say([ids(found), [len(loader), len(found)], *columns, ids(tensors)])
"""
    numbers, lengths, text, tokens, tensors = run(tmp_path, path, body, start)
    assert numbers == tensors == list(range(COUNT))
    assert lengths == [7, 7]
    assert text == [f"row {i}" for i in range(16, 32)]
    assert tokens == [list(range(i % 4)) for i in range(96, 100)]


def test_a_loader_that_goes_on_where_another_was(path, tmp_path):
    body = """
from torchdata.stateful_dataloader import StatefulDataLoader

def loader(dataset, size):
    return StatefulDataLoader(dataset, batch_size=size, num_workers=2)

def records():
    return tb.open_records(path, columns=["id"])

result = []
for size, made in ((10, records), (None, lambda: records().batches(10))):
    one = loader(made(), size)
    begun = iter(one)
    before = ids(next(begun) for _ in range(4))
    state = one.state_dict()
    del begun
    two = loader(made(), size)
    two.load_state_dict(state)
    result += [before, ids(two)]
say(result)
"""
    for before, after in zip(*[iter(run(tmp_path, path, body))] * 2, strict=True):
        assert before == list(range(40))
        assert after == list(range(40, COUNT))


@pytest.mark.deep  # what it needs of records, torch's loaders need as well
def test_grain_takes_records_in_processes(path, tmp_path):
    pytest.importorskip("grain")
    body = """
import grain
from absl import flags

flags.FLAGS.mark_as_parsed()
records = tb.open_records(path, columns=["id"])
mixed = grain.MapDataset.source(records).seed(1).shuffle().batch(10).to_iter_dataset()
found = ids(mixed.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))
say([found, ids(grain.MapDataset.source(records.batches(16)))])
"""
    mixed, batches = run(tmp_path, path, body)
    assert mixed != sorted(mixed) == batches == list(range(COUNT))


def test_workers_name_what_they_cannot_read(path, tmp_path):
    body = """
from torch.utils.data import DataLoader

try:
    DataLoader(tb.open_records(open(path, "rb")), num_workers=1, multiprocessing_context="spawn")._get_iterator()
except tb.errors.UsageError as error:
    say(str(error))
"""
    assert (
        run(tmp_path, path, body)
        == f"records of a file object can't be pickled or copied: {path}; open them by their path"
    )
