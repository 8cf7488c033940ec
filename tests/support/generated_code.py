"""The module that protoc makes of spec/tensorbytes.proto, and its Python library's framing of messages."""

import importlib
import io
import subprocess
import sys
import tempfile
from functools import cache

from google.protobuf import proto as library

from tests.support import ROOT

SPEC = ROOT / "spec"


@cache
def generated():
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own: the compiler and TensorFlow each bring their protobuf.
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SPEC}", f"--python_out={folder}"]
        subprocess.run([*command, "tensorbytes.proto"], check=True)
        sys.path.insert(0, folder)
        try:
            return importlib.import_module("tensorbytes_pb2")
        finally:
            sys.path.remove(folder)


def parse(raw):
    return generated().Tensor.FromString(bytes(raw))


def parse_stream(raw):
    """Every message of a size-delimited stream."""
    stream, found = io.BytesIO(raw), []
    while stream.tell() < len(raw):
        found.append(library.parse_length_prefixed(generated().Tensor, stream))
    return found


def serialize_stream(messages):
    stream = io.BytesIO()
    for message in messages:
        library.serialize_length_prefixed(message, stream)
    return stream.getvalue()


def message(code, dims, **fields):
    """A Tensor of protobuf's own."""
    made = generated().Tensor(dtype=code, **fields)
    made.tensor_shape.SetInParent()
    for size in dims:
        made.tensor_shape.dim.add(size=size)
    return made
