"""npy arrays as NumPy writes them, and as it never would."""

import io
import struct

import numpy as np

import tensorbytes as tb
from tensorbytes import errors

SHAPES = [(), (1,), (0,), (0, 3), (3, 0, 2), (2, 3), (4, 1, 5), (1,) * 20, (70, 90)]
PLAIN = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
TIMES = ["M8[D]", "M8[ns]", "M8[25s]", "m8[us]", "m8[Y]", "M8", "m8"]
RAISED = (errors.CorruptError, errors.LimitError, errors.UnsupportedError)


def saved(*arrays):
    file = io.BytesIO()
    for x in arrays:
        np.save(file, x, allow_pickle=True)
    return file.getvalue()


def filled(dtype, shape):
    """Every byte differs from its neighbours; bools are bools."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    raw = (np.arange(count) * 37 % 251).astype(np.uint8)
    return (raw % 2 if dtype.kind == "b" else raw).view(dtype).reshape(shape)


def npy(header, body=b"", version=(1, 0)):
    """An npy file with a header as given, padded like NumPy's."""
    header = header.encode() if isinstance(header, str) else header
    layout = "<H" if version == (1, 0) else "<I"
    padding = b" " * (-(8 + struct.calcsize(layout) + len(header) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack(layout, len(header) + len(padding)) + header + padding + body


def header(descr="'<f4'", fortran="False", shape="(2,)", after=""):
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}{after}"


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def other_order(x, order):
    """The same values in Fortran order and in this byte order."""
    # Not np.empty, which makes times without a unit little-endian whatever it is told.
    made = np.ndarray(x.shape, x.dtype.newbyteorder(order), bytearray(x.nbytes), order="F")
    if x.dtype.kind in "mM":
        made.view(f"{order}i8")[...] = x.view("<i8")
    else:
        made[...] = x
    return made


def owner(x):
    """Whose memory it is in the end."""
    while isinstance(x, np.ndarray | memoryview):
        x = x.base if isinstance(x, np.ndarray) else x.obj
    return x


def attempt(raw, format):
    """What reading in either way raised of ours; anything else escapes."""
    raised = []
    try:
        tb.loads(raw, format)
    except RAISED as error:
        raised.append(error)
    try:
        with tb.open(io.BytesIO(raw), format=format) as file:
            for entry in file.entries():
                entry.load()
    except RAISED as error:
        raised.append(error)
    return raised


def check_offsets(raw, format):
    """Damage raises ours, with an offset inside the file, or does no harm."""
    assert all(0 <= error.at <= len(raw) for error in attempt(raw, format) if isinstance(error, errors.CorruptError))
