"""ONNX: one tensor as a TensorProto (.pb), lists of them, and the weights of a model (.onnx), without the onnx package.

**A tensor** is one protobuf message, as in ONNX's own test data:

    dims 1, data_type 2, string_data 6 or raw_data 9, name 8, doc_string 12,
    metadata_props 16 {key 1, value 2}

The fields are written in the order of their numbers, which is what onnx writes. raw_data is
little-endian; types under 8 bits are one stream of bits, lowest first: two int4, four int2,
or four 6-bit floats in three bytes. Reading takes the typed fields too (`_onnx/tensor.py`),
and data in a file beside this one, if it is read by its path (`_onnx_files.py`).

A tensor's name is `name`; its metadata is metadata_props, except "onnx.doc_string", which is
doc_string. What else ONNX can't say is in one more entry of metadata_props, "tensorbytes", a
JSON object: `kind` (the value was a Python int, ...: tree.py), `encoding` ("bytes": ONNX's
strings are text), `meta` (metadata whose key is "tensorbytes" itself), `origin` (how the
value was held). ONNX has no place for
structures, ragged tensors and the dtypes that its column in dtypes.py lacks; its sparse
tensors are a message of their own, which exists in models alone. These are refused.

**A sequence**, or an optional value, is read as a list of its tensors (`_onnx/sequence.py`), and not written.

**A model** is read as a dict of the tensors that its graph holds as initializers and sparse
initializers (these as coordinates), under their names. Not read: the nodes (constants and
the initializers of graphs inside them included), functions and training information. The
metadata of the whole is metadata_props and, as text, onnx.ir_version, onnx.producer_name,
onnx.producer_version, onnx.domain, onnx.model_version, onnx.doc_string, onnx.graph (its
name), onnx.opset and onnx.opset.<domain> (several versions of one with commas between
them). A model that holds nothing but constants in nodes has onnx.remark, which counts them. Models are not written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tensorbytes import dtypes
from tensorbytes._wire import proto, strings_pack, varint
from tensorbytes.budget import Budget
from tensorbytes.errors import USE_TB, Hint, Limits, LossError, UsageError
from tensorbytes.formats import (
    Format,
    Option,
    Options,
    _json,
    _packed,
    _tensorproto,
    check_document,
    known_options,
    only_leaf,
)
from tensorbytes.formats._extension import utf8
from tensorbytes.formats._onnx import model as onnx_model
from tensorbytes.formats._onnx import sequence as onnx_sequence
from tensorbytes.formats._onnx import sniff as onnx_sniff
from tensorbytes.formats._onnx.files import ExternalFiles
from tensorbytes.formats._onnx.tensor import DOC_STRING, NOTE, STRING, Context, leaf, parse
from tensorbytes.io import storage
from tensorbytes.io.storage import Target
from tensorbytes.tensor import ENCODINGS, InvalidValueError, Sparse, Strings, Tensor
from tensorbytes.tree import Document, Leaf

# No protobuf runtime reads a message of 2 GiB or more.
_MAX_BYTES = (1 << 31) - 1
_HEAD = 4096
_STRING_TAG, _RAW_TAG = 0x32, b"\x4a"
_TENSORFLOW = ("saved_model.pb", "fingerprint.pb", "keras_metadata.pb")


class Onnx(Format):
    name = "onnx"
    label = "ONNX"
    words = "ONNX TensorProtos; models are read"
    suffixes = (".pb", ".onnx")
    read_by = "ONNX"
    holds = "one dense or string tensor; models are read"
    holds_one = True
    read_options = known_options(
        encoding=Option(str, "of strings, where no note tells it", "utf-8", ENCODINGS),
        optional=Option(bool, "True reads a list of one, or none, as the optional value that it may be", False),
    )
    further_files = True

    def sniff(self, head: bytes, size: int) -> bool:
        return bool(onnx_sniff.kind(head, size))

    def encode(self, document: Document, allow: frozenset[str], options: Options) -> list[Any]:
        before, value, after = self._around(document, allow)
        return [before, _strings_content(value) if isinstance(value, Strings) else _raw_data(value), after]

    def check(self, document: Document, allow: frozenset[str], options: Options) -> None:
        self._around(document, allow)

    def _around(self, document: Document, allow: frozenset[str]) -> tuple[bytes, Tensor | Strings, bytes]:
        """The fields before the content, what that is made of, and those after it."""
        check_document(self, document, allow)
        only = only_leaf(self, document)
        value = only.read()
        if not isinstance(value, Tensor | Strings):
            raise _refusal(value)
        name = b"" if value.name is None else proto.put_bytes(8, utf8(value.name))
        tail = _metadata(only, value)
        if isinstance(value, Strings):
            before, after, length = _strings_head(value, allow), name + tail, _tensorproto.body_size(value)
        else:
            row = dtypes.get(value.dtype)
            length = _packed.size(row, value.nbytes // row.itemsize)
            before, after = _tensor_head(value) + name + _RAW_TAG + varint(length), tail
        size = len(before) + length + len(after)
        if size > _MAX_BYTES:
            raise LossError(f"a TensorProto of {size} bytes: protobuf ends at 2 GiB", feature="size", hints=[USE_TB])
        return before, value, after

    def write(
        self, document: Document, target: Target, allow: frozenset[str], options: Options, sync: bool = True
    ) -> None:
        if storage.is_path(target) and str(target).lower().endswith(".onnx"):
            raise UsageError(
                "an .onnx file is a model, which is read-only", path=str(target), hints=[Hint(purpose="use .pb")]
            )
        super().write(document, target, allow, options, sync)

    def decode(self, data: memoryview, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        budget = Budget(limits, len(data))
        yield _decode(data, budget, lazy, options, None)

    def claims(self, path: str) -> bool:
        """Models and tensors may point to files beside them, so they are read by their path."""
        if not os.path.isfile(path) or os.path.basename(path) in _TENSORFLOW:
            return False
        if path.lower().endswith(".onnx"):
            return True
        with open(path, "rb") as file:
            return self.sniff(file.read(_HEAD), os.fstat(file.fileno()).st_size)

    def decode_path(self, path: str, limits: Limits, lazy: bool, options: Options) -> Iterator[Document]:
        data = storage.map_file(path) if lazy else storage.read(path)
        budget = Budget(limits, len(data))
        yield _decode(data, budget, lazy, options, os.path.dirname(os.path.abspath(path)))


def _decode(data: memoryview, budget: Budget, lazy: bool, options: Options, folder: str | None) -> Document:
    context = Context(budget, lazy, ExternalFiles(folder, lazy), options.get("encoding", "utf-8"))
    optional = options.get("optional", False)
    if optional or onnx_sniff.kind(bytes(data[:_HEAD]), len(data)) == "sequence":
        return onnx_sequence.decode(data, context, optional)
    if not _is_tensor(data, budget):
        return onnx_model.decode(data, context)
    return Document([leaf(data, parse(data, 0, len(data), budget), context)])


def _is_tensor(data: memoryview, budget: Budget) -> bool:
    """A tensor's field 2 is its data type, a number; a model's is the producer's name."""
    dims = 0
    for item in proto.fields(data, 0, len(data)):
        dims += item.number == 1
        # More than a tensor may have, and than a model has versions: no need to read on.
        if dims > budget.max_rank or (item.number == 2 and item.wire == proto.VARINT):
            return True
    return False


# ---- writing ----------------------------------------------------------------


def _refusal(value: Any) -> LossError:
    if isinstance(value, Sparse):
        return LossError(
            "ONNX's sparse tensors stand in models alone, which are not written here",
            feature="sparse",
            hints=[Hint(purpose="make it dense"), USE_TB],
        )
    return LossError("ONNX has no ragged tensors", feature="ragged", hints=[USE_TB])


def _dims(shape: tuple[int, ...]) -> bytes:
    return b"".join(proto.put_number(1, n) for n in shape)


def _tensor_head(value: Tensor) -> bytes:
    code = dtypes.get(value.dtype).onnx
    if code is None:
        raise LossError(f"ONNX has no dtype {value.dtype}", feature="dtype", hints=[USE_TB])
    return _dims(value.shape) + proto.put_number(2, code)


def _raw_data(value: Tensor) -> Any:
    row = dtypes.get(value.dtype)
    if row.bits >= 8:
        return value.data
    return _packed.pack_tensor(value)


def _strings_head(value: Strings, allow: frozenset[str]) -> bytes:
    if value.encoding == "bytes" and "encoding" not in allow:
        try:
            Strings(value.shape, value.offsets, value.data, "utf-8")
        except InvalidValueError as error:
            raise LossError(
                f"ONNX's strings are text, and these are not ({error.fault})",
                feature="encoding",
                hints=[Hint("allow", {"encoding"}, "to store them as they are, which onnx itself won't read"), USE_TB],
            ) from None
    return _dims(value.shape) + proto.put_number(2, STRING)


def _strings_content(value: Strings) -> bytes:
    return strings_pack(_STRING_TAG, np.require(value.offsets, np.int64, ["C", "A"]), value.data)


def _metadata(only: Leaf, value: Tensor | Strings) -> bytes:
    """doc_string and metadata_props, our note last."""
    note: dict[str, Any] = {}
    if only.kind:
        note["kind"] = only.kind
    if isinstance(value, Strings) and value.encoding != "utf-8":
        note["encoding"] = value.encoding
    props: Mapping[str, str] = value.meta
    doc = props.get(DOC_STRING, "")
    hidden = {key: text for key, text in props.items() if key == NOTE or (key == DOC_STRING and not text)}
    if value.origin:
        note["origin"] = {key: utf8(value.origin[key]).decode() for key in sorted(value.origin)}
    if hidden:
        note["meta"] = {key: utf8(text).decode() for key, text in hidden.items()}
    shown = {key: text for key, text in props.items() if key not in (NOTE, DOC_STRING)}
    if note:
        shown[NOTE] = _json.dump(note)
    entries = [proto.put_bytes(1, utf8(key)) + proto.put_bytes(2, utf8(text)) for key, text in shown.items()]
    return (proto.put_bytes(12, utf8(doc)) if doc else b"") + b"".join(proto.put_bytes(16, one) for one in entries)


FORMAT = Onnx()
