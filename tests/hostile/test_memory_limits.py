"""Small files with large claims, read by a process that may not have the memory."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.wire_bytes import (
    FLOAT32,
    INT32,
    INT64,
    STRING,
    field,
    framed,
    int64s,
    layout,
    masked_crc,
    number,
    tag,
    tensor,
)

resource = pytest.importorskip("resource")  # POSIX only

# Reads each file, within so many bytes above what it started with; tells what came of it.
CHILD = """
import io, json, resource, sys
import numpy, tensorbytes as tb

def address_space():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

def peak():  # not ru_maxrss, which begins with what the parent held
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return int(fields["VmHWM"].split()[0]) * 1024

cases = json.load(sys.stdin)
limit = address_space() + (1 << 30)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
before = peak()
out = {}
for name, (format, text, way) in cases.items():
    raw = bytes.fromhex(text)
    try:
        if way == "stream":
            class Pipe(io.BytesIO):
                def seekable(self): return False
            list(tb.open(Pipe(raw)))
        elif way == "lazy":
            [e.load() for e in tb.open(io.BytesIO(raw), format=format).entries()]
        else:
            tb.loads(raw, format)
        out[name] = "loaded"
    except BaseException as error:
        out[name] = type(error).__name__
print(json.dumps([out, peak() - before]))
"""


def header(length):
    size = struct.pack("<Q", length)
    return size + masked_crc(size)


LENGTHS = [1 << 31, 1 << 62, 1 << 63, (1 << 64) - 1, (1 << 64) - 4, (1 << 64) - 16, (1 << 64) - 28]
NINETEEN = tensor(FLOAT32, (1 << 40,), field(5, struct.pack("<f", 1)))
WIDE = field(1, "numpy.dtype") + field(2, "U536870911")
MESSAGES = {
    "19 bytes": NINETEEN,
    "no value": tensor(FLOAT32, (1 << 40,)),
    "2^62 elements": tensor(4, (1 << 62,)),
    "2^32 x 2^32": tensor(4, (1 << 32, 1 << 32)),
    "strings": tensor(STRING, (1 << 40,), field(8, b"abc")),
    "strings, under the limit in offsets alone": tensor(STRING, (100_000_000,)),
    "a large string again and again": tensor(STRING, (1 << 20,), field(8, bytes(2000))),
    "strings in content": tensor(STRING, (1 << 40,), field(4, b"\1a")),
    "content of 2^63": tensor(FLOAT32, (1,), tag(4, 2) + b"\x80" * 9 + b"\x01"),
    "ragged splits": layout("ragged", tensor(INT64, (1 << 40,)), int64s(1)),
    "many parts": layout("ragged", *[tensor(INT32, (1 << 26,))] * 64, int64s(1)),
    "a sparse shape": layout("coo", int64s(dims=(0, 1)), int64s(), tensor(INT64, (1 << 26,))),
    "row shapes": layout("ragged-shapes", int64s(0, 0), int64s(), tensor(INT64, (1, 1 << 26))),
    "a list of integers": tensor(INT64, (1 << 26,), number(10, 7), field(1006, "list[int]")),
    "wide text": tensor(STRING, (1,), field(8, b"a"), field(1008, "utf-8"), field(1014, WIDE)),
}  # fmt: skip
WAYS = ("whole", "lazy", "stream")
CASES = {
    **{f"length {n}, {way}": ("tb", header(n) + NINETEEN, way) for n in LENGTHS for way in WAYS},
    **{f"{name}, {way}": ("tb", framed(raw), way) for name, raw in MESSAGES.items() for way in WAYS},
    **{f"{name}, bare": ("tensorproto", raw, "whole") for name, raw in MESSAGES.items()},
}
# Three of these are within the default limit of 1 GiB, and take the memory: so the measure shows what is taken.
CLAIMS = {"many records": ("tb", framed(*[tensor(4, (300 << 20,), number(7, 1))] * 5), "whole")}


def test_the_nineteen_bytes_are_nineteen():
    assert len(NINETEEN) == 19


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc")
@pytest.mark.parametrize(
    ("cases", "least", "most"), [(CASES, -(1 << 20), 64 << 20), (CLAIMS, 600 << 20, 1 << 30)], ids=["one", "many"]
)
def test_claims_without_the_memory_for_them(cases, least, most):
    given = json.dumps({name: (format, raw.hex(), way) for name, (format, raw, way) in cases.items()})
    run = subprocess.run([sys.executable, "-c", CHILD], input=given, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    outcomes, grown = json.loads(run.stdout)
    assert outcomes.keys() == cases.keys()
    assert {name: what for name, what in outcomes.items() if what not in ("CorruptError", "LimitError")} == {}
    assert least <= grown < most
