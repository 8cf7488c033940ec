"""Metadata is text that anybody can write, and some of it tells frameworks what to make of a tensor.

Whatever it says, loading gives the tensor or raises ours, and so does writing it on.
"""

import functools
import itertools

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes.formats import arrowtensor
from tensorbytes.frameworks import tensorflow as tensorflow_adapter
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor

DEEP = "[" * 20_000
TEXTS = [
    "", "x", "-1", "1.5", "NaN", "[]", "[1.0,2.0]", "{}", "null", "true", DEEP, "9" * 5000,
    str(1 << 64), "?,?", "-,-", "a,b", "int32", "none", "cuda:99999999999", "meta", "/job:x", "/device:GPU:7",
    "channels_last", "Parameter", "Variable", "IndexedSlices", "csr_matrix", "dia_array", "<U0", "<U999999999",
    "<M8[x]", "O", "V3", "../../x", "\0", "strided", '["a"]', "__import__('os')",
]  # fmt: skip
# What the adapters and formats look for, by what they look at.
KEYS = {
    "numbers": [
        "memory_format",
        "requires_grad",
        "device",
        "type",
        "framework",
        arrowtensor._NAMES,
        "tf.shape",
        "name",
    ],
    "quantized": ["torch.scale", "torch.zero_point", "torch.axis"],
    "times": ["numpy.dtype", "timezone"],
    "text": ["numpy.dtype", "type", "framework"],
    "ragged": ["torch.layout", "type", tensorflow_adapter._UNIFORM],
    "sparse": ["torch.coalesced", "type", "tf.dense_shape"],
}


def dense(dtype, shape, size):
    return Tensor(dtype, shape, bytes(size))


VALUES = {
    "numbers": dense("float32", (1, 2, 2, 2), 32),
    "quantized": dense("qint8", (2,), 2),
    "times": dense("datetime64", (1,), 8),
    "text": Strings.from_items(["ab", "c"], (2,), "utf-8"),
    "ragged": Ragged(dense("float32", (3,), 12), (np.array([0, 2, 3]),)),
    "sparse": Sparse("coo", (2, 3), (np.array([[0, 1], [1, 0]]),), dense("float32", (2,), 8)),
}
AROUND = {"torch.scale": "1.0", "torch.zero_point": "0"}


def files(name):
    """(key, the metadata, the bytes of a file) for each word under each key that says something of such a value."""
    for key, text in itertools.product(KEYS[name], TEXTS):
        meta = {**(AROUND if key.startswith("torch.") else {}), key: text}
        try:
            yield key, meta, tb.dumps(VALUES[name], meta=meta, origin=meta)
        except tb.errors.TensorbytesError:
            continue


def attempt(act):
    """Whether it gave a value; raises whatever is not ours."""
    try:
        act()
    except tb.errors.TensorbytesError:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "to"), [*((name, to) for name in VALUES for to in ("numpy", "torch")), ("sparse", "scipy")]
)
def test_frameworks_believe_no_metadata(name, to):
    tried = 0
    for key, meta, raw in files(name):
        tried += 1
        for device in (None, "original") if key == "device" else (None,):
            attempt(functools.partial(tb.loads, raw, to=to, device=device))
            known = tb.dumps(VALUES[name], meta=meta, origin={"framework": to, **meta})
            attempt(functools.partial(tb.loads, known, to="original", device=device))
    assert tried > 50


@pytest.mark.parametrize("name", ["numbers", "ragged", "sparse"])
def test_tensorflow_believes_no_metadata(name):
    pytest.importorskip("tensorflow")
    for key, _, raw in files(name):
        if not key.startswith("torch."):
            attempt(functools.partial(tb.loads, raw, to="tensorflow", device="original" if key == "device" else None))


@pytest.mark.parametrize("name", VALUES)
def test_metadata_is_written_on_or_refused(name):
    """A file that was read is converted: its metadata reaches every writer."""
    written = [format for format in tb.formats.BUILTIN if tb.formats.get(format).writes]
    for (_, meta, _), format in itertools.product(files(name), written):
        attempt(functools.partial(tb.dumps, VALUES[name], format, meta=meta, origin=meta))


def test_a_device_that_is_none():
    raw = tb.dumps(np.ones(2, np.float32), origin={"device": "no such device"})
    for to in ("torch", "tensorflow", "jax"):
        pytest.importorskip(to)
        with pytest.raises(tb.errors.UnsupportedError, match=r"device|put"):
            tb.loads(raw, to=to, device="original")
        assert np.asarray(tb.loads(raw, to=to)).tolist() == [1, 1]
