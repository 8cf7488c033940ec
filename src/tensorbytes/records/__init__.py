"""TFRecord files of Examples and SequenceExamples: reading, writing, schema, index, repair.

for row in open_records("train.tfrecord"):               # a dict for each record
for batch in open_records("train@10").batches(1024):     # columns of many
with RecordWriter("out.tfrecord") as writer:
    writer.write_batch({"x": x, "label": labels})
"""

from typing import TYPE_CHECKING

from tensorbytes.lazy import getter

if TYPE_CHECKING:
    from tensorbytes.records.events import Event, Scalars, read_events, read_scalars
    from tensorbytes.records.files.index import build_index
    from tensorbytes.records.files.paths import Split
    from tensorbytes.records.files.salvage import Damage, Report, repair, verify
    from tensorbytes.records.files.splits import plan
    from tensorbytes.records.read.batch import Batch
    from tensorbytes.records.read.infer import infer as infer_schema
    from tensorbytes.records.read.reader import DamageWarning, Records, open_records
    from tensorbytes.records.schema import Feature, Schema
    from tensorbytes.records.write.writer import RecordWriter

__all__ = [
    "Batch",
    "Damage",
    "DamageWarning",
    "Event",
    "Feature",
    "RecordWriter",
    "Records",
    "Report",
    "Scalars",
    "Schema",
    "Split",
    "build_index",
    "infer_schema",
    "open_records",
    "plan",
    "read_events",
    "read_scalars",
    "repair",
    "verify",
]

# Where each name is, loaded when it is first asked for: whoever only reads has no use for the writer.
_PLACES = {
    "Batch": "read.batch",
    "Damage": "files.salvage",
    "DamageWarning": "read.reader",
    "Event": "events",
    "Feature": "schema",
    "RecordWriter": "write.writer",
    "Records": "read.reader",
    "Report": "files.salvage",
    "Scalars": "events",
    "Schema": "schema",
    "Split": "files.paths",
    "build_index": "files.index",
    "infer_schema": "read.infer:infer",
    "open_records": "read.reader",
    "plan": "files.splits",
    "read_events": "events",
    "read_scalars": "events",
    "repair": "files.salvage",
    "verify": "files.salvage",
}


__getattr__ = getter(__name__, _PLACES)
