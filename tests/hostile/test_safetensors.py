"""Hostile safetensors files: our verdict beside the library's. Where they differ, ours is the stricter one."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import safetensors

import tensorbytes as tb
from tensorbytes import dtypes
from tensorbytes.errors import CorruptError, LimitError, Limits, UnsupportedError
from tensorbytes.formats import _packed
from tensorbytes.formats import safetensors as ours
from tensorbytes.formats._safetensors import header
from tests.support.safetensors_cases import BOTH, NO, OK, STRICTER, entry, file

OURS = (CorruptError, LimitError, UnsupportedError)


def library(data):
    try:
        return OK, {
            name: (info["dtype"], info["shape"], bytes(info["data"])) for name, info in safetensors.deserialize(data)
        }
    except safetensors.SafetensorError:
        return NO, None


def library_by_path(path):
    try:
        with safetensors.safe_open(path, "numpy") as opened:
            opened.keys()
        return OK
    except safetensors.SafetensorError:
        return NO


def mine(data):
    """Our verdict, and the tensors as the file has them."""
    try:
        got = tb.loads(data, "safetensors", to="tensor")
    except OURS:
        return NO, None
    rows = {}
    for name, x in got.items():
        row = dtypes.get(x.dtype)
        raw = bytes(x.data) if row.bits >= 8 else bytes(_packed.pack_tensor(x))
        rows[name] = (row.safetensors, list(x.shape), raw)
    return OK, rows


def lazily(path):
    try:
        with tb.open(path, format="safetensors") as opened:
            opened.entries()
    except OURS as error:
        return NO if "(byte " in str(error) else str(error)
    return OK


@pytest.mark.parametrize("name", BOTH)
def test_verdict_equal_to_the_library_s(name, tmp_path):
    data, verdict = BOTH[name]
    assert mine(data) == library(data)
    assert mine(data)[0] == verdict
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    if data:
        assert library_by_path(path) == verdict
        assert lazily(path) == verdict


@pytest.mark.parametrize("name", STRICTER)
def test_stricter_than_the_library(name):
    data, reason = STRICTER[name]
    assert reason
    assert (mine(data)[0], library(data)[0]) == (NO, OK)


def test_the_library_writes_a_file_that_nobody_reads():
    """No tensors and empty metadata: its header is cut. Ours is not."""
    assert library(bytes(safetensors.serialize({}, metadata={})))[0] == NO
    assert library(tb.dumps({}, "safetensors", meta={}))[0] == OK


GOLDEN = {
    "plain": tb.dumps({"a": np.arange(3, dtype=np.int16), "b": np.ones(2, bool)}, "safetensors", meta={"k": "v"}),
    "packed": tb.dumps(
        {"a": np.zeros((2, 2), ml_dtypes.float6_e3m2fn), "b": np.ones(2, ml_dtypes.float4_e2m1fn)}, "safetensors"
    ),
    "notes": tb.dumps([np.zeros(1, np.complex128), "ab", 3], "safetensors", extended=True),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_every_truncation_is_refused(name):
    data = GOLDEN[name]
    for size in range(len(data)):
        with pytest.raises(OURS):
            tb.loads(data[:size], "safetensors")


@pytest.mark.parametrize("name", GOLDEN)
def test_no_bit_flip_makes_us_laxer_than_the_library(name):
    data = GOLDEN[name]
    accepted = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            tb.loads(bytes(flipped), "safetensors", to="tensor")
        except OURS:
            continue
        accepted += 1
        assert library(bytes(flipped))[0] == OK
    assert accepted  # names, metadata and content may be anything


def test_a_header_over_the_limit_is_refused_though_it_is_there(monkeypatch):
    monkeypatch.setattr(header, "MAX_HEADER", 64)
    with pytest.raises(CorruptError, match="at most 64"):
        tb.loads(GOLDEN["plain"], "safetensors")


def test_limits():
    data = tb.dumps({"a": np.zeros(1), "b": np.zeros((1, 1, 1))}, "safetensors")
    with pytest.raises(LimitError, match="max_tensors"):
        tb.loads(data, limits=Limits(max_tensors=1))
    with pytest.raises(LimitError, match="rank 3"):
        tb.loads(data, limits=Limits(max_rank=2))


CHILD = """
import json, resource, sys
import numpy, tensorbytes as tb
tb.loads(tb.dumps({"x": numpy.ones(1)}, "safetensors"))  # all that is loaded when it is used
with open("/proc/self/statm") as file:
    limit = int(file.read().split()[0]) * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
out = {}
for name, text in json.load(sys.stdin).items():
    try:
        tb.loads(bytes.fromhex(text), "safetensors")
        out[name] = "loaded"
    except BaseException as error:
        out[name] = type(error).__name__
print(json.dumps(out))
"""


def test_claims_take_no_memory():
    pytest.importorskip("resource")
    claims = {
        name: data.hex() for name, (data, _) in BOTH.items() if name[:2] in ("03", "04", "05", "21", "22", "23", "58")
    }
    notes = {"x": {"layout": "coo", "parts": ["i", "s"]}, "i": {"of": "x"}, "s": {"of": "x"}}
    sparse = {"x": entry("F32", (0,), (0, 0)), "i": entry("I64", (0, 2), (0, 0)), "s": entry("I64", (2,), (0, 16))}
    meta = {"tensorbytes": json.dumps(notes)}
    claims["note"] = file({"__metadata__": meta, **sparse}, (1 << 40).to_bytes(8, "little") * 2).hex()
    found = subprocess.run(
        [sys.executable, "-c", CHILD], input=json.dumps(claims), capture_output=True, text=True, check=True
    )
    verdicts = json.loads(found.stdout)
    assert verdicts.pop("note") in ("loaded", "LimitError")
    assert set(verdicts.values()) == {"CorruptError"}


def test_recognised_by_its_first_bytes():
    spaced = file('{\n  "x": {"dtype":"U8","shape":[],"data_offsets":[0,1]}}', b"\1")
    for data, names in ((GOLDEN["plain"], ["a", "b"]), (tb.dumps({}, "safetensors"), []), (spaced, ["x"])):
        assert list(tb.loads(data)) == names
    assert not ours.FORMAT.sniff(b"\x02\0\0\0\0\0\0\0{}", 9)
    assert not ours.FORMAT.sniff(b"\xff" * 8 + b"{}", 1 << 40)
