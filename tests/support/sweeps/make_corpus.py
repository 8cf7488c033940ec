"""Writes tests/corpus/sweep: small files of the libraries that own the formats, for the sweeps to damage.

    python -m tests.support.sweeps.make_corpus

They are kept rather than written anew, so that each run damages the same bytes, in a moment and without those
libraries. A file stands in the folder of its area, a case of several files in a folder of its own there.
"""

import io
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.support import CORPUS

FOLDER = CORPUS / "sweep"
FLOATS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
WORDS = ["", "a", "Grüße", "漢字 and more", "the same", "the same"]
Files = dict[str, bytes]


def below(folder: Path) -> Files:
    """Every file of a folder, by its path there."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


# ---- NumPy, safetensors, torch -----------------------------------------------------


def npy() -> Iterator[tuple[str, Files]]:
    rng = np.random.default_rng(0)
    arrays = {
        "float32": FLOATS,
        "big-endian": FLOATS.astype(">f8"),
        "fortran": np.asfortranarray(np.arange(30, dtype=np.int16).reshape(5, 6)),
        "bool": np.arange(40) % 3 == 0,
        "text": np.array(WORDS),
        "times": np.arange("2020-01", "2021-01", dtype="datetime64[M]"),
        "complex": (FLOATS + 2j * FLOATS).astype(np.complex64),
        "noise": rng.bytes(3500),
    }
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, np.frombuffer(array, np.uint8) if isinstance(array, bytes) else array)
        yield f"{name}.npy", {"": file.getvalue()}


def npz() -> Iterator[tuple[str, Files]]:
    few: dict[str, Any] = {"w": FLOATS, "b": np.arange(5, dtype=np.int8)}
    many: dict[str, Any] = {f"layer{i}": np.full((i, 4), i / 3, np.float32) for i in range(8)}
    for name, save, arrays in (
        ("few", np.savez, few),
        ("few-deflated", np.savez_compressed, few),
        ("many", np.savez, many),
        ("many-deflated", np.savez_compressed, many),
        ("text", np.savez, {"words": np.array(WORDS), "mask": np.ones(9, bool)}),
    ):
        file = io.BytesIO()
        save(file, **arrays)
        yield f"{name}.npz", {"": file.getvalue()}


def safetensors() -> Iterator[tuple[str, Files]]:
    from safetensors import numpy

    few = {"w": FLOATS, "b": np.arange(5, dtype=np.int8), "half": np.ones(3, ml_dtypes.bfloat16)}
    many = {f"model.layers.{i}.weight": np.full((i, 6), i, np.float32) for i in range(16)}
    yield "few.safetensors", {"": numpy.save(few)}
    yield "metadata.safetensors", {"": numpy.save({"w": FLOATS[0]}, {"format": "pt", "step": "7"})}
    yield "many.safetensors", {"": numpy.save(many, {"format": "pt"})}


def torchfile() -> Iterator[tuple[str, Files]]:
    import torch

    shared = torch.arange(6.0)
    nested = {
        "model": torch.nn.Linear(2, 1).state_dict(),
        "views": [shared, shared[1::2], shared.reshape(2, 3).t()],
        "epoch": 3,
        "note": ("é", None, True, 1.5),
    }
    dtypes = {
        str(kind): torch.arange(3).to(kind) for kind in (torch.bfloat16, torch.int16, torch.bool, torch.complex64)
    }
    cases = {
        "tensor": (torch.arange(4.0), {}),
        "few": ({"w": torch.arange(3), "b": torch.ones(2, dtype=torch.float64)}, {}),
        "nested": (nested, {}),
        "dtypes": (dtypes, {}),
        "sparse": ({"s": torch.eye(3).to_sparse()}, {}),
        "old": ({"w": torch.arange(3), "b": [torch.ones(2).t(), 5]}, {"_use_new_zipfile_serialization": False}),
        "old-nested": (nested, {"_use_new_zipfile_serialization": False}),
    }
    for name, (obj, options) in cases.items():
        file = io.BytesIO()
        torch.save(obj, file, **options)
        yield f"{name}.pt", {"": file.getvalue()}


# ---- Arrow, Parquet, GGUF, ONNX -----------------------------------------------------


def arrow_tables() -> dict[str, Any]:
    import pyarrow as pa

    words = pa.array(["a", "", "Grüße", "a"])
    fixed = pa.array([[1, 2], [3, 4], [5, 6], [7, 8]], pa.list_(pa.float16(), 2))
    return {
        "ints": pa.table({"i": pa.array([1, 2, 3], pa.int8())}),
        "words": pa.table({"f": pa.array([1.5, 2.5, 0.0, -0.0]), "s": words}),
        "lists": pa.table(
            {"l": pa.array([[1, 2], [], [], [3]], pa.list_(pa.int32())), "n": [[[1], []], [], [], [[2]]]}
        ),
        "dictionary": pa.table({"d": words.dictionary_encode(), "b": pa.array([True, True, False, True])}),
        "fixed": pa.table({"x": fixed, "k": pa.array([b"1", b"22", b"", b"4"], pa.large_binary())}),
    }


def arrow() -> Iterator[tuple[str, Files]]:
    import pyarrow as pa
    from pyarrow import feather, ipc

    for name, table in arrow_tables().items():
        for way in ("file", "stream"):
            file = io.BytesIO()
            with (ipc.new_file if way == "file" else ipc.new_stream)(file, table.schema) as writer:
                writer.write_table(table)
            yield f"{name}-{way}.arrow", {"": file.getvalue()}
    file = io.BytesIO()
    feather.write_feather(pa.table({"x": np.arange(200) // 7, "y": np.zeros(200)}), file, compression="lz4")
    yield "lz4.feather", {"": file.getvalue()}


def arrowtensor() -> Iterator[tuple[str, Files]]:
    import pyarrow as pa

    for name, array, axes in (
        ("float32", FLOATS, None),
        ("axes", np.arange(6, dtype=np.int16).reshape(1, 2, 3), ["a", "b", "c"]),
        ("transposed", np.arange(300.0).reshape(20, 15).T, None),
    ):
        sink = pa.BufferOutputStream()
        pa.ipc.write_tensor(pa.Tensor.from_numpy(array, axes), sink)
        yield f"{name}.arrowtensor", {"": sink.getvalue().to_pybytes()}


def parquet() -> Iterator[tuple[str, Files]]:
    from pyarrow import parquet as pq

    ways = {
        "plain": {"compression": "none", "use_dictionary": False, "write_statistics": False, "store_schema": False},
        "snappy": {"compression": "snappy", "data_page_version": "2.0", "store_schema": False},
        "sums": {"compression": "zstd", "write_page_checksum": True},
    }
    for way, options in ways.items():
        for name, table in arrow_tables().items():
            file = io.BytesIO()
            pq.write_table(table, file, **options)
            yield f"{name}-{way}.parquet", {"": file.getvalue()}


def gguf() -> Iterator[tuple[str, Files]]:
    from gguf import GGMLQuantizationType, GGUFEndian, GGUFWriter

    def fill(writer: Any, large: bool) -> None:
        writer.add_string("general.name", "Grüße")
        writer.add_array("some.list", [1, 2, 3])
        if large:
            writer.add_array("some.words", WORDS)
            writer.add_float32("some.float", 0.5)
            writer.add_bool("some.flag", True)
            writer.add_tensor("q", np.arange(68, dtype=np.uint8).reshape(2, 34), raw_dtype=GGMLQuantizationType.Q8_0)
            writer.add_tensor("h", FLOATS.astype(np.float16))
        writer.add_tensor("w", FLOATS)

    with tempfile.TemporaryDirectory() as folder:
        for name, endian, large in (
            ("small", GGUFEndian.LITTLE, False),
            ("large", GGUFEndian.LITTLE, True),
            ("big-endian", GGUFEndian.BIG, True),
        ):
            path = Path(folder) / name
            writer = GGUFWriter(path, "llama", endianess=endian)
            fill(writer, large)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            yield f"{name}.gguf", {"": path.read_bytes()}


def onnx() -> Iterator[tuple[str, Files]]:
    from onnx import TensorProto, helper, numpy_helper
    from onnx import save as save_model

    tensors = [
        numpy_helper.from_array(FLOATS, "w"),
        helper.make_tensor("i4", TensorProto.INT4, (3,), [1, -2, 3]),
        helper.make_tensor("half", TensorProto.FLOAT16, (2,), [1.5, -2]),
        numpy_helper.from_array(np.array(WORDS, object), "words"),
        helper.make_tensor("z", TensorProto.COMPLEX64, (2,), [1 + 2j, 3j]),
    ]
    for tensor in tensors:
        yield f"tensor-{tensor.name}.pb", {"": tensor.SerializeToString()}
    value = numpy_helper.from_array(np.array([1, 2], np.float32), "s")
    index = numpy_helper.from_array(np.array([1, 5], np.int64))
    sparse = [helper.make_sparse_tensor(value, index, [2, 3])]
    node = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.arange(3), "c"))
    graph = helper.make_graph([node], "g", [], [], tensors, sparse_initializer=sparse)
    yield "model.onnx", {"": helper.make_model(graph, producer_name="me").SerializeToString()}
    with tempfile.TemporaryDirectory() as folder:
        graph = helper.make_graph([], "g", [], [], [tensors[0], numpy_helper.from_array(np.arange(9), "i")])
        model = helper.make_model(graph)
        options = {"save_as_external_data": True, "location": "m.data", "size_threshold": 0}
        save_model(model, str(Path(folder) / "m.onnx"), **options)
        yield "external", below(Path(folder))


# ---- TensorFlow ---------------------------------------------------------------------


def tensorproto() -> Iterator[tuple[str, Files]]:
    import tensorflow as tf

    for name, value in {
        "content": FLOATS,
        "text": np.array(WORDS, object),
        "bfloat16": FLOATS.astype(ml_dtypes.bfloat16),
        "zeros": np.zeros((20, 30)),
        "noise": np.frombuffer(np.random.default_rng(1).bytes(2000), np.uint16),
    }.items():
        yield f"{name}.tensorproto", {"": tf.make_tensor_proto(value).SerializeToString()}
    typed = tf.make_tensor_proto([1, 2, 3], tf.int32)
    typed.ClearField("tensor_content")
    typed.int_val.extend([1, 2, 3])
    yield "values.tensorproto", {"": typed.SerializeToString()}


def checkpoint() -> Iterator[tuple[str, Files]]:
    import tensorflow as tf

    values = {
        "few": {"w": tf.constant([1.0, 2.0]), "s": tf.constant([b"ab", b"c"]), "b": tf.constant([True, False])},
        "many": {f"layer/{i}/kernel": tf.fill((3, i + 1), i / 3) for i in range(20)},
    }
    for name, tensors in values.items():
        with tempfile.TemporaryDirectory() as folder:
            tf.raw_ops.SaveV2(
                prefix=str(Path(folder) / "m"),
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=list(tensors.values()),
            )
            yield name, below(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        some = values["few"]
        tf.raw_ops.SaveSlices(
            filename=f"{folder}/m",
            tensor_names=list(some),
            shapes_and_slices=[""] * len(some),
            data=list(some.values()),
        )
        yield "v1", {"": (Path(folder) / "m").read_bytes()}
    with tempfile.TemporaryDirectory() as folder:
        module = tf.Module()
        module.w, module.step = tf.Variable([1.0, 2.0]), tf.Variable(7)
        tf.train.CheckpointManager(tf.train.Checkpoint(module=module), folder, 1).save()
        yield "folder", below(Path(folder))


def savedmodel() -> Iterator[tuple[str, Files]]:
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        module = tf.Module()
        module.w, module.b = tf.Variable([[1.0, 2.0]]), tf.Variable([0.5], dtype=tf.float64)
        tf.saved_model.save(module, folder)
        files = {name: data for name, data in below(Path(folder)).items() if name.startswith("variables")}
        # Of the graph we only want to know that it is there.
        yield "module", files | {"saved_model.pb": b""}


def tfrecord() -> Iterator[tuple[str, Files]]:
    import tensorflow as tf

    from tests.support.example_bytes import FLOAT
    from tests.support.record_cases import example, sequence

    rows = [example(i=[n, -n], f=[n / 2] * (n % 3) or (FLOAT,), s=[b"x" * n, "é".encode()]) for n in range(4)]
    steps = [sequence({"id": [n]}, {"frames": [[1.0, 2.0]] * n, "words": [[b"a"], [b"b", b"c"]][:n]}) for n in range(3)]
    rng = np.random.default_rng(2)
    many = [example(i=rng.integers(0, 1 << 40, 3).tolist(), s=[rng.bytes(n)], f=[n / 3]) for n in range(24)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "x")
        for name, payloads, compression in (
            ("examples", rows, ""),
            ("sequences", steps, ""),
            ("examples-gzip", rows, "GZIP"),
            ("examples-zlib", rows, "ZLIB"),
            ("many", many, ""),
            ("many-gzip", many, "GZIP"),
        ):
            with tf.io.TFRecordWriter(path, compression) as writer:
                for payload in payloads:
                    writer.write(payload)
            yield f"{name}.tfrecord", {"": Path(path).read_bytes()}


def events() -> Iterator[tuple[str, Files]]:
    import tensorflow as tf

    for name, steps in (("few", 2), ("many", 8)):
        with tempfile.TemporaryDirectory() as folder:
            writer = tf.summary.create_file_writer(folder)
            with writer.as_default():
                for step in range(steps):
                    tf.summary.scalar("loss", 1 / (step + 1), step)
                    tf.summary.text("note", f"step {step}", step)
                    if steps > 2:
                        tf.summary.histogram("h", [0.0, 1.0, 2.0], step, buckets=3)
            writer.close()
            (file,) = below(Path(folder)).values()
            yield f"{name}.tfevents", {"": file}


AREAS = (
    npy, npz, safetensors, torchfile, arrow, arrowtensor, parquet, gguf, onnx, tensorproto, checkpoint, savedmodel,
    tfrecord, events,
)  # fmt: skip


def main() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    for area in AREAS:
        folder = FOLDER / area.__name__
        shutil.rmtree(folder, ignore_errors=True)
        for name, files in area():
            for inner, data in files.items():
                path = folder / name / inner
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)


if __name__ == "__main__":
    main()
