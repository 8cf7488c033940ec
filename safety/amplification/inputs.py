"""Generators of valid structures that grow when they are read: for each parser, what costs most for its bytes.

Each takes the bytes that the input should have, about, and gives the input. What is written by hand is
written without the code that it tests.
"""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.wire_bytes import field, framed, int64s, layout, number, overlong, tensor, varint

FLOAT32, STRING, INT64 = 1, 7, 9
Make = Callable[[int], Any]


def _times(piece: bytes, size: int) -> bytes:
    return piece * (size // len(piece))


# ---- messages ---------------------------------------------------------------


def repeated_field(size: int) -> bytes:
    return _times(b"\x08\x01", size) + tensor(FLOAT32, (), field(4, bytes(4)))


def single_values(size: int) -> bytes:
    return tensor(INT64, (size // 2,)) + _times(number(10, 1), size)


def single_floats(size: int) -> bytes:
    return tensor(FLOAT32, (size // 5,)) + _times(b"\x2d" + bytes(4), size)


def packed_values(size: int) -> bytes:
    return tensor(INT64, (size,), field(10, b"\x01" * size))


def packed_pieces(size: int) -> bytes:
    return tensor(INT64, (size // 3,)) + _times(field(10, b"\x01"), size)


def strings(size: int) -> bytes:
    return tensor(STRING, (size // 4,)) + _times(field(8, b"ab"), size)


def odd_strings(size: int) -> bytes:
    return tensor(STRING, (size // 4,)) + _times(b"\x42" + overlong(1, 2) + b"a", size)


def extensions(size: int) -> bytes:
    return tensor(FLOAT32, (), field(4, bytes(4))) + _times(field(1450, b""), size)


def metadata(size: int) -> bytes:
    entries = (field(1001, field(1, f"{n:06x}") + field(2, b"")) for n in range(size // 13))
    return tensor(FLOAT32, ()) + b"".join(entries) + field(4, bytes(4))


def claims(size: int) -> bytes:
    return tensor(FLOAT32, (size * 64,), field(5, struct.pack("<f", 1)))


def string_claims(size: int) -> bytes:
    return tensor(STRING, (size // 4,), field(8, bytes(100)))


def parts(size: int) -> bytes:
    return layout("ragged", *[int64s(0, 0)] * (size // 26), int64s())


def tiny_records(size: int) -> bytes:
    one = framed(tensor(FLOAT32, ()))
    return _times(one, size)


def tiny_messages(size: int) -> bytes:
    one = tensor(FLOAT32, ())
    return _times(varint(len(one)) + one, size)


def document_parts(size: int) -> bytes:
    count = size // 40
    return framed(
        *(
            tensor(FLOAT32, (), field(1002, field(1, f"{n:05x}")), number(1003, n), number(1004, count))
            for n in range(count)
        )
    )


def compressed(size: int) -> bytes:
    import tensorbytes as tb

    return tb.dumps(np.zeros(size << 6, np.uint8), compression="zstd")


def compressed_strings(size: int) -> bytes:
    import tensorbytes as tb

    return tb.dumps(np.full(size, b"ab", "S2"), compression="zstd")


def quantized(size: int) -> bytes:
    import tensorbytes as tb

    return tb.dumps(np.ones(size, np.float64), quantize="int8")


def sparse_rows(size: int) -> bytes:
    row = [int64s(dims=(0, 1)), tensor(FLOAT32, (0,)), int64s(1)]
    one = b"".join(field(8, part) for part in row)
    return tensor(STRING, (size // len(one), 3)) + _times(one, size)


# ---- NumPy and zip ----------------------------------------------------------


def _npy(descr: str, shape: tuple[int, ...], raw: bytes = b"", fortran: bool = False) -> bytes:
    text = repr({"descr": descr, "fortran_order": fortran, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n" + raw


def npy_text(size: int) -> bytes:
    return _npy("|S1", (size,), b"a" * size)


def npy_unicode(size: int) -> bytes:
    return _npy("<U1", (size // 4,), "é".encode("utf-32-le") * (size // 4))


def npy_nothing(size: int) -> bytes:
    return _npy("|S0", (size * 8,))


def npy_arrays(size: int) -> bytes:
    return _times(_npy("|i1", ()) + b"a", size)


def npy_fortran(size: int) -> bytes:
    return _npy(">i2", (size // 4, 2), bytes(size // 4 * 4), True)


def _zipped(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method, compresslevel=9) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return out.getvalue()


def npz_members(size: int) -> bytes:
    one = _npy("|i1", (1,), b"a")
    return _zipped({f"{n:x}.npy": one for n in range(size // 200)})


def npz_deflated(size: int) -> bytes:
    return _zipped({"a.npy": _npy("|i1", (size << 6,), bytes(size << 6))}, zipfile.ZIP_DEFLATED)


def npz_text(size: int) -> bytes:
    return _zipped({"a.npy": _npy("|S1", (size << 3,), b"a" * (size << 3))}, zipfile.ZIP_DEFLATED)


# ---- safetensors, GGUF ------------------------------------------------------


def _safetensors(header: str, data: bytes = b"") -> bytes:
    raw = header.encode()
    return struct.pack("<Q", len(raw)) + raw + data


def safetensors_tensors(size: int) -> bytes:
    entries = (f'"{n:x}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' for n in range(size // 60))
    return _safetensors("{" + ",".join(entries) + "}")


def safetensors_metadata(size: int) -> bytes:
    entries = (f'"{n:x}":""' for n in range(size // 11))
    return _safetensors('{"__metadata__":{' + ",".join(entries) + "}}")


def safetensors_lists(size: int) -> bytes:
    return _safetensors('{"a":{"dtype":"U8","shape":[' + ",".join(["[]"] * (size // 3)) + '],"data_offsets":[0,0]}}')


def _gguf(tensors: int, entries: int, rest: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, entries) + rest


def _text(word: str) -> bytes:
    return struct.pack("<Q", len(word)) + word.encode()


def gguf_tensors(size: int) -> bytes:
    count = size // 32
    heads = b"".join(_text(f"{n:x}") + struct.pack("<IQIQ", 1, 0, 24, 0) for n in range(count))
    return _gguf(count, 0, heads)


def gguf_entries(size: int) -> bytes:
    count = size // 18
    return _gguf(0, count, b"".join(_text(f"{n:05x}") + struct.pack("<IB", 0, 1) for n in range(count)))


def gguf_numbers(size: int) -> bytes:
    inner = struct.pack("<IQ", 0, size) + b"\xff" * size
    return _gguf(0, 1, _text("a") + struct.pack("<IIQ", 9, 9, 1) + inner)


def gguf_strings(size: int) -> bytes:
    return _gguf(0, 1, _text("a") + struct.pack("<IIQ", 9, 8, size // 8) + bytes(size // 8 * 8))


def gguf_nested(size: int) -> bytes:
    inner = struct.pack("<IQ", 8, size // 8) + bytes(size // 8 * 8)
    return _gguf(0, 1, _text("a") + struct.pack("<IIQ", 9, 9, 1) + inner)


# ---- ONNX -------------------------------------------------------------------


def _model(graph: bytes) -> bytes:
    return number(1, 8) + field(7, graph) + field(8, number(2, 17))


def onnx_initializers(size: int) -> bytes:
    one = (field(5, number(1, 0) + number(2, 1) + field(8, f"{n:05x}")) for n in range(size // 14))
    return _model(b"".join(one))


def onnx_values(size: int) -> bytes:
    return _model(field(5, number(1, size // 2) + number(2, 7) + field(8, "a") + _times(number(7, 1), size)))


def onnx_nodes(size: int) -> bytes:
    return _model(_times(field(1, b""), size))


def onnx_properties(size: int) -> bytes:
    return _model(b"") + b"".join(field(14, field(1, f"{n:05x}") + field(2, b"")) for n in range(size // 13))


def onnx_sparse(size: int) -> bytes:
    rank = 32
    indices = number(1, size // 8) + number(2, 7) + field(9, np.arange(size // 8).tobytes())
    values = number(1, size // 8) + number(2, 2) + field(8, "a") + field(9, bytes(size // 8))
    dims = b"".join(number(3, 1 if n < rank - 1 else size // 8) for n in range(rank))
    return _model(field(15, field(1, values) + field(2, indices) + dims))


# ---- torch ------------------------------------------------------------------

_NESTED = b"ctorch._utils\n_rebuild_nested_tensor\n"
_V2 = b"ctorch._utils\n_rebuild_tensor_v2\n"
_QTENSOR = b"ctorch._utils\n_rebuild_qtensor\n"
_HOOKS = b"ccollections\nOrderedDict\n)R"


def _torch(pickled: bytes, *storages: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    members = {"archive/data.pkl": b"\x80\x02" + pickled + b".", "archive/byteorder": b"little"}
    members |= {f"archive/data/{n}": raw for n, raw in enumerate(storages)}
    return _zipped(members | {"archive/version": b"3\n"}, method)


def _long(n: int) -> bytes:
    raw = n.to_bytes(n.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def _storage(kind: str, key: int, count: int) -> bytes:
    head = b"(X\x07\x00\x00\x00storagectorch\n" + kind.encode() + b"\n"
    return head + b"X\x01\x00\x00\x00" + str(key).encode() + b"X\x03\x00\x00\x00cpu" + _long(count) + b"tQ"


def _strided(kind: str, key: int, count: int, shape: tuple[int, ...], steps: tuple[int, ...]) -> bytes:
    sizes = b"(" + b"".join(map(_long, shape)) + b"t"
    strides = b"(" + b"".join(map(_long, steps)) + b"t"
    return _V2 + b"(" + _storage(kind, key, count) + b"K\x00" + sizes + strides + b"\x89" + _HOOKS + b"tR"


def torch_nested(size: int) -> bytes:
    """A nested tensor of very many rows, whose sizes, strides and offsets are one number each, at stride 0."""
    rows = size * 4
    buffer = _strided("FloatStorage", 0, 1, (1,), (1,))
    square = _strided("LongStorage", 1, 1, (rows, 2), (0, 0))
    line = _strided("LongStorage", 2, 1, (rows,), (0,))
    one, zero = (1).to_bytes(8, "little"), bytes(8)
    return _torch(_NESTED + b"(" + buffer + square + square + line + b"tR", bytes(4), one, zero)


def torch_scales(size: int) -> bytes:
    """Per-channel scales at stride 0, expanded by each of many calls."""
    channels, calls = 1 << 19, size >> 14
    scales = _strided("DoubleStorage", 0, 1, (channels,), (0,))
    zeros = _strided("LongStorage", 1, 1, (channels,), (0,))
    scheme = b"(ctorch\nper_channel_affine\n" + scales + zeros + b"K\x00t"
    shape = b"(K\x00t" + b"(K\x01t"
    args = b"(" + _storage("QInt8Storage", 2, 1) + b"K\x00" + shape + scheme + b"\x89" + _HOOKS + b"tq\x01"
    first = _QTENSOR + b"q\x00" + args + b"R"
    again = b"".join(b"h\x00h\x01R" for _ in range(calls))
    return _torch(b"](" + first + again + b"e", bytes(8), bytes(8), b"\x01")


def torch_lists(size: int) -> bytes:
    return _torch(b"](" + b"]" * size + b"e")


def torch_dicts(size: int) -> bytes:
    return _torch(b"](" + b"}" * size + b"e")


def torch_tuples(size: int) -> bytes:
    return _torch(b"](" + b"N\x85" * (size // 2) + b"e")


def torch_memo(size: int) -> bytes:
    return _torch(b"N" + b"\x94" * size)


def torch_calls(size: int) -> bytes:
    one = _strided("FloatStorage", 0, 1, (1,), (1,)).removesuffix(b"R")
    start = one.replace(_V2, _V2 + b"q\x00", 1) + b"q\x01R"
    return _torch(b"](" + start + b"h\x00h\x01R" * (size // 5) + b"e", bytes(4))


def torch_strides(size: int) -> bytes:
    return _torch(_strided("FloatStorage", 0, 1, (size * 64,), (0,)), bytes(4))


def torch_shared(size: int) -> bytes:
    """Lists in lists, each twice: the pickle is short, what it stands for is not."""
    depth = min(size.bit_length() + 2, 40)
    return _torch(b"]q\x00(K\x01X\x01\x00\x00\x00ae" + b"".join(b"](h\x00h\x00e" + b"q\x00" for _ in range(depth)))


def torch_numbers(size: int) -> bytes:
    return _torch(b"](" + b"M\xff\xff" * (size // 3) + b"e")


def torch_texts(size: int) -> bytes:
    return _torch(b"](" + b"X\x01\x00\x00\x00aN" * (size // 7) + b"e")


def torch_deflated(size: int) -> bytes:
    return _torch(b"](" + b"]" * (size << 5) + b"e", method=zipfile.ZIP_DEFLATED)


# ---- Arrow, Parquet ---------------------------------------------------------


def _arrow(table: Any, parquet: bool = False, **options: Any) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    if parquet:
        pq.write_table(table, out, **options)
    else:
        with pa.ipc.new_file(out, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
            file.write_table(table)
    return out.getvalue()


def _columns(count: int) -> Any:
    import pyarrow as pa

    return pa.table({f"{n:x}": pa.array([1], pa.int8()) for n in range(count)})


def _words(count: int) -> Any:
    import pyarrow as pa

    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int8)), pa.array(["a" * 1000]))
    return pa.table({"a": word})


def arrow_columns(size: int) -> bytes:
    return _arrow(_columns(size // 400))


def arrow_words(size: int) -> bytes:
    return _arrow(_words(size))


def arrow_compressed(size: int) -> bytes:
    import pyarrow as pa

    return _arrow(pa.table({"a": np.zeros(size << 6, np.uint8)}), compression="zstd")


def arrow_bools(size: int) -> bytes:
    import pyarrow as pa

    return _arrow(pa.table({"a": np.zeros(size * 8, bool)}))


def parquet_columns(size: int) -> bytes:
    return _arrow(_columns(size // 400), True)


def parquet_words(size: int) -> bytes:
    return _arrow(_words(size), True)


def parquet_runs(size: int) -> bytes:
    import pyarrow as pa

    return _arrow(pa.table({"a": np.zeros(size << 6, np.int64)}), True, compression="zstd")


def arrowtensor_strides(size: int) -> bytes:
    import pyarrow as pa

    wide = np.broadcast_to(np.zeros(1, np.int64), (size << 3,))
    out = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(wide), out)
    return out.getvalue().to_pybytes()


FORMATS: dict[str, tuple[Make, ...]] = {
    "tensorproto": (
        repeated_field, single_values, single_floats, packed_values, packed_pieces, strings, odd_strings, extensions,
        claims, string_claims,
    ),
    "protobuf": (metadata, parts),
    "delimited": (tiny_messages,),
    "sparseproto": (sparse_rows,),
    "tb": (tiny_records, document_parts, compressed, compressed_strings, quantized),
    "npy": (npy_text, npy_unicode, npy_nothing, npy_arrays, npy_fortran),
    "npz": (npz_members, npz_deflated, npz_text),
    "safetensors": (safetensors_tensors, safetensors_metadata, safetensors_lists),
    "gguf": (gguf_tensors, gguf_entries, gguf_numbers, gguf_strings, gguf_nested),
    "onnx": (onnx_initializers, onnx_values, onnx_nodes, onnx_properties, onnx_sparse),
    "torchfile": (
        torch_nested, torch_scales, torch_lists, torch_dicts, torch_tuples, torch_memo, torch_calls, torch_strides,
        torch_shared, torch_numbers, torch_texts, torch_deflated,
    ),
    "arrow": (arrow_columns, arrow_words, arrow_compressed, arrow_bools),
    "parquet": (parquet_columns, parquet_words, parquet_runs),
    "arrowtensor": (arrowtensor_strides,),
}  # fmt: skip
