"""What the tests of RecordWriter share: writing, and reading back with TensorFlow and protobuf."""

from pathlib import Path

import tensorflow as tf

from tensorbytes.formats.tfrecord.write.writer import RecordWriter


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def payloads(path, compression="none") -> list[bytes]:
    """What TensorFlow's reader finds, checksums checked."""
    kind = "" if compression == "none" else compression.upper()
    return [data for part in tf.data.TFRecordDataset(str(path), kind).batch(1024) for data in part.numpy().tolist()]


def lists(example) -> dict[str, list]:
    """The lists of a parsed message, by protobuf itself."""
    return {name: values(feature) for name, feature in example.features.feature.items()}


def values(feature) -> list:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value)


def examples(path, compression="none") -> list[dict[str, list]]:
    return [lists(tf.train.Example.FromString(data)) for data in payloads(path, compression)]


def written(path, rows=(), *, batch=None, **options) -> RecordWriter:
    with RecordWriter(path, **options) as writer:
        for row in rows:
            writer.write(row)
        if batch is not None:
            writer.write_batch(batch)
    return writer
