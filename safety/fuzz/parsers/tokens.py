"""Byte strings that the formats give a meaning: mutations insert them whole."""

from __future__ import annotations

_PROTO = (b"\x08", b"\x12", b"\x22", b"\x0a", b"\x42", b"\xc2\x3e", b"\xca\x3e", b"\xd2\x3e", b"\xf2\x3e", b"\xfa\x3e")
_EXAMPLE = (b"\x0a", b"\x12", b"\x0a\x01a", b"\x1a", b"\x12\x06\x0a\x04")
_NOTES = (
    b'"layout":"ragged"', b'"layout":"csr"', b'"layout":"strings"', b'"parts":["a"]', b'"of":"a"',
    b'"encoding":"utf-8"',
    b'"dtype":"bfloat16"', b'"path":[["key","a"]]', b'["list",0]', b'"kind":"int"', b'"meta":{"a":"b"}', b'"name":"n"',
    b'"document":{}', b'"shape":[2]',
)  # fmt: skip
_PICKLE = (
    b"\x80\x02", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n", b"ccollections\nOrderedDict\n",
    b")R", b"Q", b"q\0", b"h\0", b"tR", b"sb.", b"}", b"]", b"(", b"\x85", b"\x86", b"\x87", b"cnumpy\ndtype\n",
    b"cnumpy._core.multiarray\n_reconstruct\n", b"ctorch\nSize\n", b"c__builtin__\nset\n", b"\x8c", b"\x93", b"\x94",
)  # fmt: skip
_ZIP = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"\x01\0\x10\0")
TOKENS: dict[str, tuple[bytes, ...]] = {
    "tb": _PROTO,
    "tb_stored": (*_PROTO, b"huffman", b"split", b"pack", b"delta", b"shuffle", b"+", b"zstd", b"lz4"),
    "tb_stream": _PROTO,
    "safetensors": (
        b'"dtype":"F32"', b'"shape":[', b'"data_offsets":[0,', b'"__metadata__":{', b'"BF16"', b'"F4"', b'"C64"',
        *_NOTES,
    ),
    "safetensors_index": (b'"weight_map"', b'"metadata"', b"..", b"/", b":", b"\\u0000"),
    "npy": (
        b"'descr': ", b"'fortran_order': ", b"'shape': (", b"True", b"'<f4'", b"'|b1'", b"'<U3'", b"'|O'", b"'>M8[ns]'",
        b"'<V2'", b"# tensorbytes {", *_NOTES,
    ),
    "npz": (*_ZIP, b".npy", b"'|O'", b"'<V2'", b"# tensorbytes {", *_NOTES),
    "torchfile": (*_PICKLE, *_ZIP),
    "torch_legacy": _PICKLE,
    "pickle": _PICKLE,
    "gguf": (b"GGUF", b"general.alignment", b"general.architecture"),
    "onnx": (b"external_data", b"location", b"offset", b"\x10\x01", b"\x10\x09", b"\x10\x16", b"tensorbytes"),
    "onnx_external": (b"location", b"offset", b"length", b"checksum", b"../", b"/", b"x.bin", b"d/x.bin", b"link"),
    "sparseproto": _PROTO,
    "protobuf": _PROTO,
    "tensorproto": _PROTO,
    "delimited": _PROTO,
    "checkpoint": (b"_TENSORBYTES", b"\x0a\x04\x0a\x00", b"\x08\x07", b"\x35"),
    "checkpoint_state": (b"model_checkpoint_path: ", b'"', b"\\x", b"\\0"),
    "json": (b"\\u", b"null", b"-0", b"1e9", b"NaN", b'":'),
    "records": _EXAMPLE,
    "example": _EXAMPLE,
    "records_reference": _EXAMPLE,
    "record_cells": (*_EXAMPLE, b"\x08\x01\x12", b"AAAA", b"=="),
    "events": (b"\x2a", b"scalars", b"images", b"\x4a"),
    "record_index": (b"tensorbytes.index", b"mtime_ns", b"compression", b"gzip"),
    "schema": (
        b'"dtype"', b'"shape"', b'"encoding"', b'"optional"', b'"default"', b'"quantize"', b'"lists"', b'"float32"',
        b'"tensorproto"', b'"scale"', b"null", b"true",
    ),
    "recognition": (b"PK\x03\x04", b"\x93NUMPY", b"GGUF", b"\x80\x02", b"ARROW1", b"PAR1"),
    "reader": (b"PK\x03\x04", b"\x93NUMPY", b"GGUF", b"<zz>", b"\x1b[31m", *_PROTO),
    "address": (b"::", b"[", b"]", b'"', b"...", b"#", b"://"),
    "manifest": (b'"name"', b'"tensors"', b'"sha256"', b"null"),
}  # fmt: skip
