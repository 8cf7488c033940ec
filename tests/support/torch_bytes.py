"""Torch files by hand: pickles of chosen opcodes in the archives that torch.save makes."""

import io
import struct
import zipfile

import torch

from tensorbytes.formats import _zip
from tensorbytes.formats._zip import Content

STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQ"
HOOKS = b"ccollections\nOrderedDict\n)R"


def archive(pickled, storages=(b"\0" * 24,), prefix="archive/", **more):
    """The bytes of an archive; `more` are further members, or others than usual."""
    members = {"data.pkl": pickled, "byteorder": b"little"}
    members |= {f"data/{number}": data for number, data in enumerate(storages)}
    members |= {"version": b"3\n"} | {name.replace("__", "."): data for name, data in more.items()}
    contents = [Content(prefix + name, [data]) for name, data in members.items()]
    return b"".join(_zip.archive(contents, 64, 0x4246))


def rezipped(data, method=zipfile.ZIP_STORED, **changed):
    """The same archive with other contents of some members, written by Python's zipfile."""
    source, target = zipfile.ZipFile(io.BytesIO(data)), io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as file:
        for info in source.infolist():
            name = info.filename.partition("/")[2]
            file.writestr(info.filename, changed.get(name, source.read(info)))
    return target.getvalue()


def saved(obj, **options):
    """What torch.save makes of it."""
    file = io.BytesIO()
    torch.save(obj, file, **options)
    return file.getvalue()


def pickled(data):
    """The pickle in an archive."""
    file = zipfile.ZipFile(io.BytesIO(data))
    name = next(name for name in file.namelist() if name.endswith("/data.pkl"))
    return file.read(name)


def text(word):
    raw = word.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def name(module, word):
    return f"c{module}\n{word}\n".encode()


def number(n):
    """An integer of any size, as LONG1."""
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def numbers(*items):
    return b"(" + b"".join(map(number, items)) + b"t"


def storage(kind="FloatStorage", key="0", count=6, location="cpu", module="torch"):
    return b"(" + text("storage") + name(module, kind) + text(key) + text(location) + number(count) + b"tQ"


def tensor(offset=0, size=(2, 3), stride=(3, 1), held=None, function="_rebuild_tensor_v2", rest=b"\x89" + HOOKS):
    """A call that rebuilds a tensor: by default a sound one of float32[2, 3]."""
    held = storage() if held is None else held
    call = name("torch._utils", function)
    return call + b"(" + held + number(offset) + numbers(*size) + numbers(*stride) + rest + b"tR"


def whole(body):
    return b"\x80\x02" + body + b"."
