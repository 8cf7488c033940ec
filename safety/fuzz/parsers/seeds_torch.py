"""Pickles as torch.save writes them, put together by hand, and the older files around them."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def legacy() -> Iterator[bytes]:
    """The older form of torch files, put together by hand."""
    int_pickle = b"\x80\x02M\xe9\x03."
    magic = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
    system = b"\x80\x02}q\0(X\x0d\0\0\0little_endianq\1\x88u."
    for body in pickles(old=True):
        yield magic + int_pickle + system + body + b"\x80\x02]q\0X\1\0\0\x000q\1a." + struct.pack("<Q", 6) + bytes(24)


def pickles(old: bool = False) -> Iterator[bytes]:
    view = b"N" if old else b""
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\1\0\0\x000X\3\0\0\0cpuK\6" + view + b"tQ"
    hooks = b"ccollections\nOrderedDict\n)R"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\0K\2K\3\x86K\3K\1\x86\x89" + hooks + b"tR"
    yield b"\x80\x02" + tensor + b"."
    yield b"\x80\x02}q\0(X\1\0\0\0aq\1" + tensor + b"X\1\0\0\0b](K\1G?\xf0\0\0\0\0\0\0eu."
    if old:
        return
    yield b"\x80\x02" + hooks + b"q\0X\1\0\0\0w" + tensor + b"s}X\x09\0\0\0_metadata" + hooks + b"sb."
    parameter = b"ctorch._utils\n_rebuild_parameter\n(" + tensor + b"\x88" + hooks + b"tR"
    yield b"\x80\x02" + parameter + b"."
    array = b"cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\1b\x87R(K\1K\2\x85cnumpy\ndtype\n"
    array += (
        b"X\2\0\0\0f4\x89\x88\x87R(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89C\x08" + bytes(8) + b"tb"
    )
    yield b"\x80\x03" + array + b"."
    yield b"\x80\x04\x95\x20\0\0\0\0\0\0\0\x8c\x0bcollections\x8c\x0bOrderedDict\x93)R\x94h\0\x86."
    yield b"\x80\x02ctorch\nSize\n]K\2a\x85Rctorch\nfloat32\nctorch\ndevice\nX\3\0\0\0cpu\x85R\x87."
    yield b"\x80\x02cos\nsystem\nX\2\0\0\0ls\x85R."
    sparse = (
        b"ctorch._utils\n_rebuild_sparse_tensor\n(ctorch.serialization\n_get_layout\nX\x10\0\0\0torch.sparse_coo\x85R("
    )
    yield b"\x80\x02" + sparse + tensor + tensor + b"K\4K\4\x86\x89ttR."
