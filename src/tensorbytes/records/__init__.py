"""TFRecord files of Examples and SequenceExamples: reading, writing, schema, index, repair.

for row in open_records("train.tfrecord"):               # a dict for each record
for batch in open_records("train@10").batches(1024):     # columns of many
with RecordWriter("out.tfrecord") as writer:
    writer.write_batch({"x": x, "label": labels})
"""

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
