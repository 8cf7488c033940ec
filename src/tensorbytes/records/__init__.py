"""TFRecord files of Examples and SequenceExamples: reading, writing, schema, index, events.

for row in open_records("train.tfrecord"):               # a dict for each record
for batch in open_records("train@10").batches(1024):     # columns of many
with RecordWriter("out.tfrecord") as writer:
    writer.write_batch({"x": x, "label": labels})
"""

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes.damage import Damage
    from tensorbytes.formats.tfrecord.files.follow import Follow
    from tensorbytes.formats.tfrecord.files.index import build_index
    from tensorbytes.formats.tfrecord.files.splits import plan
    from tensorbytes.formats.tfrecord.read.batch import Batch
    from tensorbytes.formats.tfrecord.read.batches import Batches
    from tensorbytes.formats.tfrecord.read.infer import infer as infer_schema
    from tensorbytes.formats.tfrecord.read.parse import parse_examples
    from tensorbytes.formats.tfrecord.read.reader import Records, open_records
    from tensorbytes.formats.tfrecord.schema import Feature, Schema
    from tensorbytes.formats.tfrecord.write.writer import RecordWriter
    from tensorbytes.io.paths import Split
    from tensorbytes.records.events import Event, Scalars, read_events, read_scalars

__all__ = [
    "Batch",
    "Batches",
    "Damage",
    "Event",
    "Feature",
    "Follow",
    "RecordWriter",
    "Records",
    "Scalars",
    "Schema",
    "Split",
    "build_index",
    "infer_schema",
    "open_records",
    "parse_examples",
    "plan",
    "read_events",
    "read_scalars",
]

# Where each name is, loaded when it is first asked for: whoever only reads has no use for the writer.
_PLACES = {
    "Batch": ".formats.tfrecord.read.batch",
    "Batches": ".formats.tfrecord.read.batches",
    "Damage": ".damage",
    "Event": "events",
    "Feature": ".formats.tfrecord.schema",
    "Follow": ".formats.tfrecord.files.follow",
    "RecordWriter": ".formats.tfrecord.write.writer",
    "Records": ".formats.tfrecord.read.reader",
    "Scalars": "events",
    "Schema": ".formats.tfrecord.schema",
    "Split": ".io.paths",
    "build_index": ".formats.tfrecord.files.index",
    "infer_schema": ".formats.tfrecord.read.infer:infer",
    "open_records": ".formats.tfrecord.read.reader",
    "parse_examples": ".formats.tfrecord.read.parse",
    "plan": ".formats.tfrecord.files.splits",
    "read_events": "events",
    "read_scalars": "events",
}


__getattr__ = getter(__name__, _PLACES)
