"""A handful of small objects, one for each thing that a file can hold, and their bytes."""

import io

import numpy as np

import tensorbytes as tb
from tensorbytes import formats
from tensorbytes.api import to_document
from tensorbytes.tree import Document


def _ragged():
    values = tb.Tensor("int32", (5,), np.arange(5, dtype="<i4").view(np.uint8))
    return tb.Ragged(values, (np.array([0, 2, 2, 5]),))


def _csr():
    values = tb.Tensor("float32", (3,), np.array([1.5, -2, 0], "<f4").view(np.uint8))
    return tb.Sparse("csr", (2, 4), (np.array([0, 1, 3], np.int32), np.array([3, 0, 2], np.int32)), values)


def _coo():
    values = tb.Strings.from_items([b"a", b""], (2,), "bytes")
    return tb.Sparse("coo", (3, 2), (np.array([[0, 1], [2, 0]]),), values)


SHARED = np.array([[0.5, -1.0]], np.float32)
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
    # One tensor in several places.
    "alias": ([{"embed": SHARED, "head": SHARED, "more": [SHARED, SHARED.astype(np.int8)], "ü": SHARED}], False),
    # Several kinds of values in a directory, names that are not ASCII, a first record with a checksum of its header.
    "directory": (
        [
            {
                "first": np.arange(1100, dtype=np.float32),
                "ü": np.array(["a", "bc"], object),
                "ragged": _ragged(),
                "csr": _csr(),
                "none": None,
            }
        ],
        False,
    ),
}


def _noted():
    return tb.Tensor("float32", (2,), np.array([1, 2], "<f4").view(np.uint8), None, META, ORIGIN)


# What users say of a tensor, and what we note ourselves under the same key.
META, ORIGIN = {"framework": "mine", "ü": ""}, {"framework": "torch", "requires_grad": "true"}


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


def _column(name, array, *steps):
    (leaf,) = to_document(array).leaves
    return leaf._replace(path=(("key", name), *steps))


def _bools(*values):
    return np.array(values, bool)


# Groups of rows. name: (the documents, whether they form a stream)
TABLES = {
    "table": (
        [
            Document(
                [
                    _column("id", np.array([1, 2, 3], np.int64)),
                    _column("text", np.array(["a", "", "c"], object)),
                    _column("text", _bools(1, 0, 1), ("mask", 0)),
                    _column("list", _ragged()),
                    _column("list", _bools(1, 1, 0, 1, 1), ("mask", 1)),
                ],
                {"table": "demo"},
                rows=3,
            )
        ],
        False,
    ),
    "table-groups": (
        [
            Document(
                [
                    _column("x", np.array(rows, np.float32)),
                    _column("at", np.array(rows, np.int32), ("key", "day")),
                    _column("at", _bools(*(row > 0 for row in rows)), ("mask", 0)),
                ],
                item=item,
                rows=len(rows),
            )
            for item, rows in enumerate([[1, 0], [], [2, 3, 0]], 1)
        ],
        True,
    ),
}


def columns(document):
    """What loading a group gives: its columns, and masks beside them."""
    if "text" in [leaf.path[0][1] for leaf in document.leaves]:
        id, text, text_mask, ragged, ragged_mask = (leaf.value for leaf in document.leaves)
        return {
            "id": id.numpy(), "text": text.numpy(), "text/mask0": text_mask.numpy(), "list": ragged,
            "list/mask1": ragged_mask.numpy(),
        }  # fmt: skip
    x, day, mask = (leaf.value.numpy() for leaf in document.leaves)
    return {"x": x, "at": {"day": day}, "at/mask0": mask}


def joined(groups):
    """What loading several groups gives: the columns of all of them, one after the other."""
    first = groups[0]
    if isinstance(first, dict):
        return {name: joined([group[name] for group in groups]) for name in first}
    return np.concatenate(groups)


def write(name):
    """The file's bytes."""
    if name == "origin":
        return tb.dumps({"w": np.ones(2, np.float32), "noted": _noted()}, meta=META, origin=ORIGIN)
    if name in TABLES:
        documents, _ = TABLES[name]
        return b"".join(formats.get("tb").dumps(document, frozenset(), {}) for document in documents)
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
