"""A handful of small objects, one for each thing that a file can hold, and their bytes."""

import io

import numpy as np

import tensorbytes as tb


def _ragged():
    values = tb.Tensor("int32", (5,), np.arange(5, dtype="<i4").view(np.uint8))
    return tb.Ragged(values, (np.array([0, 2, 2, 5]),))


def _csr():
    values = tb.Tensor("float32", (3,), np.array([1.5, -2, 0], "<f4").view(np.uint8))
    return tb.Sparse("csr", (2, 4), (np.array([0, 1, 3], np.int32), np.array([3, 0, 2], np.int32)), values)


def _coo():
    values = tb.Strings.from_items([b"a", b""], (2,), "bytes")
    return tb.Sparse("coo", (3, 2), (np.array([[0, 1], [2, 0]]),), values)


# name: (the objects of the file, whether they form a stream)
OBJECTS = {
    "dense": ([np.arange(6, dtype=np.float32).reshape(2, 3)], False),
    "scalar": ([np.array(-2.5)], False),
    "empty": ([np.empty((0, 3), np.int16)], False),
    "bool": ([np.array([True, False, True])], False),
    "strings": ([np.array(["", "Grüße", "漢字"], object)], False),
    "ragged": ([_ragged()], False),
    "csr": ([_csr()], False),
    "coo": ([_coo()], False),
    "nested": (
        [{"w": np.array([1, 2], np.int8), "opt": {"lr": 0.5, 7: [1, 2]}, "names": ("a", None, [], 1 << 70)}],
        False,
    ),
    "stream": ([np.arange(3, dtype=np.int64), {"a": np.zeros(2, np.uint8), "b": b"xyz"}, "text"], True),
    # Over 4 KiB: with padding, and a header that has a checksum of its own.
    "aligned": ([{"x": np.arange(1030, dtype=np.float32), "y": np.arange(3, dtype=np.int8)}], False),
}


def _steps(count, most):
    """Numbers that look random, and are the same everywhere."""
    return np.array([n * n * 7919 % 104729 % most for n in range(count)])


def _bells(count):
    """Floats that are small, most of them very small, and exact in 8 bits."""
    return (_steps(count, 8) * _steps(count, 7)[::-1] - 16).astype(np.float32) / 64


# The same for what is stored in other forms, with filters and codecs of our own, whose bytes no library decides.
# name: (the object, the options of writing it)
STORED = {
    "pack": ({"ids": _steps(300, 1000), "mask": _steps(400, 3) == 1}, {"compression": "pack"}),
    "delta-pack": (np.cumsum(_steps(200, 9)).astype(np.int32), {"compression": "delta+pack"}),
    "huffman": (_steps(900, 13).astype(np.uint8), {"compression": "huffman"}),
    "split-huffman": (_bells(1000), {"compression": "split+huffman"}),
    "delta-shuffle-huffman": (np.cumsum(_steps(400, 5)), {"compression": "delta+shuffle+huffman"}),
    "constant": (np.full((40, 50), 258, np.int16), {"compression": "shuffle+huffman"}),
    "strings-huffman": (
        np.array([["no", "yes", "no"][n % 3] * (n % 4) for n in range(300)]),
        {"compression": "huffman"},
    ),
    "ragged-pack": (
        tb.Ragged(tb.Tensor("int64", (200,), _steps(200, 30).astype("<i8")), (np.arange(0, 201, 4),)),
        {"compression": "delta+pack"},
    ),
    "cast": (_bells(20), {"quantize": "bfloat16"}),
    "fixed-point": (
        {"w": _bells(40).reshape(8, 5), "b": _bells(3)},
        {"quantize": {"w": tb.Quantize("int8", scale=1 / 64)}},
    ),
    "fixed-point-pack": (_bells(100), {"quantize": tb.Quantize("int16", scale=1 / 64), "compression": "pack"}),
}


def write(name):
    """The file's bytes."""
    if name in STORED:
        obj, options = STORED[name]
        return tb.dumps(obj, **options)
    objects, stream = OBJECTS[name]
    if not stream:
        return tb.dumps(objects[0])
    file = io.BytesIO()
    with tb.open(file, "w") as writer:
        for obj in objects:
            writer.write(obj)
    return file.getvalue()
