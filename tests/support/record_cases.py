"""Record files written by TensorFlow or by hand, and what protobuf's own parser reads in them."""

import io
import random
import struct

import numpy as np
import tensorflow as tf

from tensorbytes import Ragged, Strings
from tests.support.example_bytes import BYTES, FLOAT, INT64, MISSING, Grammar, by_entries
from tests.support.wire_bytes import field, framed

TF_NAMES = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


# ---- writing ------------------------------------------------------------------


def feature(values):
    """A tf.train.Feature of a list, by the type of its items. None: without a kind; (kind,): an empty list."""
    if values is None:
        return tf.train.Feature()
    if values in ((BYTES,), (FLOAT,), (INT64,)) and isinstance(values, tuple):
        return tf.train.Feature.FromString(field(values[0], b""))
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float | np.floating):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def features(columns):
    return tf.train.Features(feature={name: feature(values) for name, values in columns.items()})


def example(**columns):
    return tf.train.Example(features=features(columns)).SerializeToString()


def sequence(context=None, lists=None):
    """A SequenceExample; each list is a list of steps as `feature` takes them."""
    made = {
        name: tf.train.FeatureList(feature=[feature(step) for step in steps]) for name, steps in (lists or {}).items()
    }
    message = tf.train.SequenceExample(
        context=features(context or {}), feature_lists=tf.train.FeatureLists(feature_list=made)
    )
    return message.SerializeToString()


def write(path, payloads, compression="none"):
    """A file as TensorFlow writes it; gives its path as text."""
    with tf.io.TFRecordWriter(str(path), TF_NAMES[compression]) as writer:
        for payload in payloads:
            writer.write(payload)
    return str(path)


def by_hand(payloads):
    """The bytes of a file of records."""
    return b"".join(map(framed, payloads))


def stream(payloads):
    return io.BytesIO(by_hand(payloads))


def floats(*bits):
    """Floats by their bits. NaNs should be quiet: Python's floats make them so."""
    return [struct.unpack("<f", struct.pack("<I", b))[0] for b in bits]


class OneKind(Grammar):
    """Makes up messages whose features are all lists of one kind, though others may stand before them."""

    def __init__(self, seed, odd, kind):
        super().__init__(random.Random(seed).randrange, odd)
        self.kind = kind

    def feature(self):
        before = [self.pick([BYTES, FLOAT, INT64]) for _ in range(self.pick([1, 2, 3]) if self.seldom(6) else 0)]
        members = [] if self.seldom(10) else [*before, self.kind]
        return self.message([self.field(kind, self.list(kind)) for kind in members])


def numbered(count, first=0):
    """Small records, each with its number."""
    return [
        example(i=[i], s=[b"%d" % i * (i % 7)], v=list(range(i % 3)) or (INT64,)) for i in range(first, first + count)
    ]


# ---- what protobuf reads --------------------------------------------------------


def expected(payloads, sequence=False):
    """(kind, values) of each feature that a record has: one dict for each record, floats as bytes.

    Of a SequenceExample: the context, and for each feature list its steps.
    """
    rows = []
    for payload in payloads:
        read = by_entries(payload, sequence)
        context, lists = read if sequence else (read, {})
        rows.append(present(context) | lists)
    return rows


def present(found):
    return {name: value for name, value in found.items() if value[0] != MISSING}


# ---- what we read, in the same form -----------------------------------------------


def cell(value, kind):
    """(kind, values) of one record's feature, whatever its shape."""
    if kind == BYTES:
        items = [value] if isinstance(value, bytes) else np.asarray(value, object).reshape(-1).tolist()
        assert all(type(item) is bytes for item in items)
        return kind, items
    array = np.asarray(value)
    assert array.dtype == (np.float32 if kind == FLOAT else np.int64)
    return kind, array.tobytes() if kind == FLOAT else array.reshape(-1).tolist()


def step_cells(steps, kind):
    """The same for the steps of a feature list; protobuf's steps without a kind are empty here."""
    return [cell(step, kind) for step in steps]


def plain_row(row, schema):
    return {
        name: step_cells(value, schema[name].kind_number)
        if schema.columns[name].is_list
        else cell(value, schema[name].kind_number)
        for name, value in row.items()
    }


def items_of(column):
    """A column's records one by one."""
    if isinstance(column, Ragged):
        return column.rows()
    return list(column.numpy() if isinstance(column, Strings) else column)


def rows_of(batch):
    """A batch as rows, those that lack a feature without it."""
    columns = {name: items_of(column) for name, column in batch.items()}
    (count,) = {len(items) for items in columns.values()}
    return [
        {
            name: items[index]
            for name, items in columns.items()
            if name not in batch.present or batch.present[name][index]
        }
        for index in range(count)
    ]


def plain_rows(records):
    """All rows, by iterating."""
    rows = list(records)
    return [plain_row(row, records.schema) for row in rows]


def plain_batches(records, size, **options):
    """All rows, by batches of `size`, of which only the last may be smaller."""
    batches = list(map(rows_of, records.batches(size, **options)))
    assert all(len(batch) == size for batch in batches[:-1])
    assert all(1 <= len(batch) <= size for batch in batches)
    return [plain_row(row, records.schema) for batch in batches for row in batch]
