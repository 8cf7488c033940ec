"""Archives that contradict themselves (83 to 85) and Arrow's extension types (88), as whole files of each format."""

import contextlib
import io
import os
import pickle
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensorbytes as tb
from tests.support.hostile_formats import File, readings
from tests.support.torch_bytes import saved as torch_saved
from tests.unit.test_zip import CENTRAL, END, LOCAL, patched

ARCHIVES = {
    "npz": tb.dumps({"a": np.arange(3), "b": np.ones(2)}, "npz"),
    "npz, deflated": tb.dumps({"a": np.zeros(300), "b": np.ones(300)}, "npz", compression="deflate"),
    "npz of NumPy": None,
    "torchfile": tb.dumps({"a": np.arange(3), "b": np.ones(2)}, "torchfile"),
    "torchfile of torch": torch_saved({"a": __import__("torch").arange(3)}),
}
_sink = io.BytesIO()
np.savez(_sink, a=np.arange(3), b=np.ones(2))
ARCHIVES["npz of NumPy"] = _sink.getvalue()


def format_of(name):
    return name.partition(" ")[0].rstrip(",")


def entries(raw):
    """Where the directory starts, and its entries."""
    end = raw.rindex(END)
    size, at = struct.unpack_from("<II", raw, end + 12)
    found, here = [], at
    while here < at + size:
        lengths = struct.unpack_from("<HHH", raw, here + 28)
        found.append(raw[here : here + 46 + sum(lengths)])
        here += 46 + sum(lengths)
    return at, found


def with_entries(raw, made):
    """The same archive with another directory."""
    at, _ = entries(raw)
    directory = b"".join(made)
    end = bytearray(raw[raw.rindex(END) :])
    struct.pack_into("<HHII", end, 8, len(made), len(made), len(directory), at)
    return raw[:at] + directory + bytes(end)


def renamed(entry, name):
    """An entry of the directory under another name."""
    (old,) = struct.unpack_from("<H", entry, 28)
    changed = bytearray(entry[:46] + name + entry[46 + old :])
    struct.pack_into("<H", changed, 28, len(name))
    return bytes(changed)


def _twice(raw):
    _, found = entries(raw)
    return with_entries(raw, [*found, renamed(found[-1], b"other.npy")])


def _thousandfold(raw):
    """One member under a thousand names: what makes terabytes out of megabytes (CVE-2024-0450)."""
    _, found = entries(raw)
    return with_entries(raw, [*found, *(renamed(found[0], b"n%d.npy" % n) for n in range(1000))])


LIES = {
    "83 a member under two names": _twice,
    "83 a member under a thousand names": _thousandfold,
    "84 another name in the header": lambda raw: patched(raw, LOCAL, 30, ord("~"), "<B"),
    "84 another size in the header": lambda raw: patched(raw, LOCAL, 22, 11),
    "84 another stored size in the header": lambda raw: patched(raw, LOCAL, 18, 11),
    "84 another checksum in the header": lambda raw: patched(raw, LOCAL, 14, 11),
    "84 another method in the header": lambda raw: patched(raw, LOCAL, 8, 99, "<H"),
    "84 encrypted in the header": lambda raw: patched(raw, LOCAL, 6, 1, "<H"),
    "84 a header elsewhere": lambda raw: patched(raw, CENTRAL, 42, 7),
    "84 another size in the directory": lambda raw: patched(raw, CENTRAL, 24, 11),
    "85 encrypted": lambda raw: patched(raw, CENTRAL, 8, 1, "<H"),
    "85 a link": lambda raw: patched(raw, CENTRAL, 38, 0xA1FF << 16),
    "85 a method that is none": lambda raw: patched(raw, CENTRAL, 10, 99, "<H"),
    "13 a byte in front": lambda raw: b"x" + raw,
    "13 a byte after": lambda raw: raw + b"x",
}


@pytest.mark.parametrize("case", LIES)
@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_contradict_themselves(name, case, tmp_path):
    raw = ARCHIVES[name]
    for way, outcome in readings(File(format_of(name), raw), tmp_path).items():
        assert not isinstance(outcome, Exception), f"{way}: {outcome}"
    changed = LIES[case](raw)
    if "npz of NumPy" in name and case.startswith("84") and "size" in case and "header" in case:
        pytest.skip("NumPy writes zip64 sizes in the local header, where these fields say nothing")
    for way, outcome in readings(File(format_of(name), changed), tmp_path).items():
        assert isinstance(outcome, tb.errors.CorruptError | tb.errors.UnsupportedError), f"{way}: {outcome!r}"


@pytest.mark.parametrize("count", [3, 5000, 0xFFFE, 0xFFFF])
@pytest.mark.parametrize("name", ["npz of NumPy", "npz, deflated"])
def test_195_a_count_that_the_directory_can_t_hold_is_damage_under_any_limit(name, count):
    raw = bytearray(ARCHIVES[name])
    struct.pack_into("<HH", raw, raw.rindex(END) + 8, count, count)
    for limits in (tb.errors.LIMITS, tb.errors.Limits(max_bytes=1 << 20, max_tensors=100, max_objects=100)):
        with pytest.raises(tb.errors.CorruptError, match="directory ends inside an entry"):
            tb.loads(raw, "npz", limits=limits)


# ---- 88 -----------------------------------------------------------------------

NAME, METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"


class Gadget:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def extended(name, metadata, format):
    """A column that is said to be of an extension type."""
    field = pa.field("x", pa.list_(pa.int8(), 2), metadata={NAME: name, METADATA: metadata})
    table = pa.Table.from_arrays([pa.array([[1, 2]], field.type)], schema=pa.schema([field]))
    sink = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, sink)
    else:
        with (pa.ipc.new_stream if format == "stream" else pa.ipc.new_file)(sink, table.schema) as writer:
            writer.write_table(table)
    return File("parquet" if format == "parquet" else "arrow", sink.getvalue())


@pytest.mark.parametrize("format", ["file", "stream", "parquet"])
@pytest.mark.parametrize("name", [b"arrow.py_extension_type", b"pandas.period", b"os.system", b"\xff", b"a" * 10**6])
def test_88_extension_types_are_never_unpickled(name, format, tmp_path):
    """What they store is read, and nothing of what they say is run."""
    trap = tmp_path / "trap"
    made = extended(name, pickle.dumps(Gadget(trap)), format)
    for way, outcome in readings(made, tmp_path).items():
        if isinstance(outcome, Exception):
            assert isinstance(outcome, tb.errors.CorruptError | tb.errors.UnsupportedError), f"{way}: {outcome!r}"
            assert len(str(outcome)) < 3_000_000
        elif isinstance(outcome, dict) and isinstance(outcome.get("x"), np.ndarray):
            assert tb.equal(outcome, {"x": np.array([[1, 2]], np.int8)}), way
    assert not trap.exists()


DEEP = b"[" * 50_000
FIXED = {
    "42 lists": b'{"shape":[2],"x":' + DEEP + b"]" * 50_000 + b"}",
    "42 lists without an end": b'{"shape":' + DEEP,
    "43 5000 digits": b'{"shape":[' + b"9" * 5000 + b"]}",
    "45 no UTF-8": b'{"shape":[2],"dim_names":["\xff"]}',
    "41 NaN": b'{"shape":[NaN]}',
    "19 negative": b'{"shape":[-2]}',
    "21 overflow": b'{"shape":[4611686018427387904,4]}',
    "23 a zero": b'{"shape":[0,4611686018427387904,4611686018427387904]}',
    "27 a float": b'{"shape":[2.0]}',
    "27 text": b'{"shape":["2"]}',
    "another size": b'{"shape":[3]}',
    "an axis twice": b'{"shape":[1,2],"permutation":[0,0]}',
    "an axis outside": b'{"shape":[1,2],"permutation":[5,-1]}',
    "a name too few": b'{"shape":[1,2],"dim_names":["a"]}',
    "nothing": b"",
    "no object": b"[]",
}


@pytest.mark.parametrize("format", ["file", "parquet"])
@pytest.mark.parametrize("case", FIXED)
def test_88_what_known_extension_types_say_of_themselves(case, format, tmp_path):
    for way, outcome in readings(extended(b"arrow.fixed_shape_tensor", FIXED[case], format), tmp_path).items():
        assert isinstance(outcome, tb.errors.CorruptError), f"{way}: {outcome!r}"
    with contextlib.suppress(tb.errors.CorruptError):  # of the other type, some of this is no concern
        tb.loads(extended(b"arrow.variable_shape_tensor", FIXED[case], format).raw)


def test_88_a_key_twice_is_pyarrow_s_matter():
    """The metadata of Arrow's own types is read by pyarrow, which keeps the first."""
    raw = extended(b"arrow.fixed_shape_tensor", b'{"shape":[2],"shape":[1,2]}', "file").raw
    assert tb.loads(raw)["x"].shape == (1, 2)
