"""The libraries, each behind the same verbs: dumps, loads, save, load.

A builder imports its library only when called, so that a row pays for what it uses.
What a library needs around a bare tensor (a name, a wrapper) is part of its time.
`save` and `load` take a path without suffix: each library gets a file of its own.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.timing import OURS, PEER


def _unused(*arguments: Any) -> Any:
    raise NotImplementedError("no row asks this library for it")


@dataclass(frozen=True)
class Peer:
    """A library. `keeps` tells whether dtype and shape come back without being told again."""

    name: str
    dumps: Callable[[Any], Any] = _unused
    loads: Callable[[Any], Any] = _unused
    save: Callable[[Any, str], Any] = _unused
    load: Callable[[str], Any] = _unused
    keeps: bool = True
    note: str = ""
    role: str = PEER


def ours(to: str = "numpy", sync: bool = False) -> Peer:
    import tensorbytes as tb

    def save(x: Any, path: str) -> None:
        tb.save(x, path, "tb", sync=sync)

    loads = tb.loads if to == "numpy" else partial(tb.loads, to=to)
    return Peer("tensorbytes", tb.dumps, loads, save, partial(tb.load, to=to), role=OURS)


# ---- NumPy arrays -----------------------------------------------------------


def raw_bytes() -> Peer:
    loads = partial(np.frombuffer, dtype=np.float32)
    return Peer("tobytes", np.ndarray.tobytes, loads, keeps=False, note="keeps neither dtype nor shape")


def pickled() -> Peer:
    return Peer("pickle 5", partial(pickle.dumps, protocol=5), pickle.loads)


def npy() -> Peer:
    def dumps(x: Any) -> bytes:
        file = io.BytesIO()
        np.save(file, x)
        return file.getvalue()

    def loads(data: bytes) -> Any:
        return np.load(io.BytesIO(data))

    def save(x: Any, path: str) -> None:
        with open(path, "wb") as file:
            np.save(file, x)

    return Peer("npy", dumps, loads, save, np.load)


def safetensors() -> Peer:
    from safetensors.numpy import load, load_file, save, save_file

    return Peer(
        "safetensors",
        lambda x: save({"x": x}),
        lambda data: load(data)["x"],
        lambda x, path: save_file({"x": x}, path),
        lambda path: load_file(path)["x"],
    )


def arrow() -> Peer:
    import pyarrow as pa

    def dumps(x: Any) -> Any:
        sink = pa.BufferOutputStream()
        pa.ipc.write_tensor(pa.Tensor.from_numpy(x), sink)
        return sink.getvalue()

    def loads(data: Any) -> Any:
        return pa.ipc.read_tensor(pa.BufferReader(data)).to_numpy()

    return Peer("arrow", dumps, loads, note="gives a pyarrow.Buffer, not bytes; no checksum")


def msgpack() -> Peer:
    import msgpack
    import msgpack_numpy

    return Peer(
        "msgpack-numpy",
        partial(msgpack.packb, default=msgpack_numpy.encode),
        partial(msgpack.unpackb, object_hook=msgpack_numpy.decode),
    )


def tenso() -> Peer:
    import tenso

    return Peer("tenso", tenso.dumps, tenso.loads, note="gives a memoryview, not bytes; its checksum is off by default")


def torch_of_arrays() -> Peer:
    """torch.save is given arrays as tensors that share their memory."""
    import torch

    inner = torch_save()
    return Peer(
        "torch.save",
        lambda x: inner.dumps(torch.from_numpy(x)),
        lambda data: inner.loads(data).numpy(),
        lambda x, path: inner.save(torch.from_numpy(x), path),
        lambda path: inner.load(path).numpy(),
    )


def tensorflow() -> Peer:
    tf = import_tensorflow()

    return Peer(
        "tf.io",
        lambda x: tf.io.serialize_tensor(x).numpy(),
        lambda data: tf.io.parse_tensor(data, tf.float32).numpy(),
        note="stores the dtype, but wants it named to read",
    )


def import_tensorflow() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    return tf


ARRAYS = (raw_bytes, pickled, npy, safetensors, arrow, msgpack, tenso, torch_of_arrays, tensorflow)


# ---- PyTorch tensors --------------------------------------------------------


def torch_save() -> Peer:
    import torch

    def dumps(x: Any) -> bytes:
        file = io.BytesIO()
        torch.save(x, file)
        return file.getvalue()

    def loads(data: bytes) -> Any:
        return torch.load(io.BytesIO(data), weights_only=True)

    return Peer("torch.save", dumps, loads, torch.save, partial(torch.load, weights_only=True))


def safetensors_torch() -> Peer:
    from safetensors.torch import load, save

    return Peer("safetensors", lambda x: save({"x": x}), lambda data: load(data)["x"])


TENSORS = (pickled, torch_save, safetensors_torch)


# ---- dicts of arrays --------------------------------------------------------


def npz() -> Peer:
    def save(x: dict[str, Any], path: str) -> None:
        with open(path, "wb") as file:
            np.savez(file, **x)

    def load(path: str) -> dict[str, Any]:
        with np.load(path) as file:
            return dict(file)

    return Peer("npz", save=save, load=load)


def safetensors_dict() -> Peer:
    from safetensors.numpy import load_file, save_file

    return Peer("safetensors", save=save_file, load=load_file)


def safetensors_dicts(framework: str) -> Peer:
    """Messages of dicts: `framework` is the name of a module of safetensors."""
    module = importlib.import_module(f"safetensors.{framework}")
    return Peer("safetensors", lambda x: module.save(dict(x)), module.load)  # some change the dict that they are given


def torch_dict() -> Peer:
    import torch

    inner = torch_save()
    return Peer(
        "torch.save",
        save=lambda x, path: inner.save({name: torch.from_numpy(part) for name, part in x.items()}, path),
        load=lambda path: {name: part.numpy() for name, part in inner.load(path).items()},
    )


DICTS = (safetensors_dict, npz, torch_dict)
