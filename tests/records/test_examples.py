"""Examples read against protobuf's own parser: rows and columns, every kind of list, odd bytes, schemas."""

import re

import numpy as np
import pytest
import tensorflow as tf

import tensorbytes as tb
from tensorbytes import errors, open_records
from tensorbytes.records import Schema, infer_schema
from tests.records.test_example_grammar import CASES, REFUSED
from tests.support.example_bytes import BROKEN, BYTES, FLOAT, INT64, by_entries
from tests.support.record_cases import (
    OneKind,
    by_hand,
    expected,
    floats,
    plain_batches,
    plain_row,
    plain_rows,
    stream,
    write,
)
from tests.support.record_cases import example as made
from tests.support.wire_bytes import field, framed


def shuffled(**columns):
    """An Example with its entries in the order given, which tf.train does not keep."""
    whole = tf.train.Example.FromString(made(**columns))
    entries = [
        field(1, field(1, name) + field(2, whole.features.feature[name].SerializeToString())) for name in columns
    ]
    return field(1, b"".join(entries))


def every_kind(count):
    """Records with all three kinds of list; each name always has one kind, the rest varies."""
    nan = floats(0x7FC00001, 0xFFC12345, 0x80000000, 0x7F800000, 1)
    payloads = []
    for i in range(count):
        columns = {
            "one": [i - 3],
            "wide": [-(1 << 63), (1 << 63) - 1, -1, i],
            "varying": [j * -i for j in range(i % 5)] or (INT64,),
            "pair": [float(i), -0.0],
            "floats": nan[: i % 6] or (FLOAT,),
            "string": [b"\xff" * (i % 300)],
            "strings": [b"", b"x" * i, b"\x00"][: i % 4] or (BYTES,),
            "größe 🙂": [i],
            "": [b"empty key"],
        }
        if i % 3 == 0:
            columns["seldom"] = [7]
        if i % 4 == 1:
            columns["kindless"] = None
        elif i % 4 == 2:
            columns["kindless"] = [b"with"]
        names = sorted(columns, key=lambda name: hash((name, i % 7)))
        payloads.append(shuffled(**{name: columns[name] for name in names}))
    return payloads


# ---- all that TensorFlow writes ---------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_all_that_tensorflow_writes(tmp_path, compression):
    payloads = every_kind(100)
    path = write(tmp_path / "x", payloads, compression)
    want = expected(payloads)
    assert plain_rows(open_records(path)) == want
    for size in (1, 7, 4096):
        assert plain_batches(open_records(path, threads=2), size) == want
    assert plain_rows(open_records(path, schema=infer_schema(path), threads=1)) == want
    assert plain_batches(open_records(path, schema=infer_schema(path)), 7) == want
    assert plain_rows(open_records(path, compression=compression)) == want


def test_columns_are_what_the_schema_says():
    records = open_records(stream(every_kind(12)))
    (batch,) = records.batches(100)
    assert {name: feature.describe() for name, feature in records.schema.items()} == {
        "": "bytes",
        "floats": "float32[?]",
        "größe 🙂": "int64",
        "kindless": "bytes",
        "one": "int64",
        "pair": "float32[2]",
        "seldom": "int64",
        "string": "bytes",
        "strings": "bytes[?]",
        "varying": "int64[?]",
        "wide": "int64[4]",
    }
    assert (
        {name for name in records.schema if records.schema[name].optional} == {"kindless", "seldom"} == {*batch.present}
    )
    assert (batch["one"].dtype, batch["one"].shape) == (np.int64, (12,))
    assert (batch["pair"].dtype, batch["pair"].shape) == (np.float32, (12, 2))
    assert isinstance(batch["varying"], tb.Ragged)
    assert isinstance(batch["string"], tb.Strings)
    assert batch["string"].shape == (12,)
    assert isinstance(batch["strings"].values, tb.Strings)
    assert batch.present["seldom"].tolist() == [i % 3 == 0 for i in range(12)]


def test_many_features_in_a_record():
    payloads = [made(**{f"feature {i}": [i * j, j] for i in range(300)}) for j in range(20)]
    payloads[3] = made(**{f"feature {i}": [i, i] for i in range(0, 300, 2)})
    assert plain_rows(open_records(stream(payloads))) == expected(payloads)
    assert plain_batches(open_records(stream(payloads)), 7) == expected(payloads)


def test_records_without_features_among_others():
    payloads = [made(a=[1]), b"", made(), made(a=[2]), field(1, b"")]
    assert plain_rows(open_records(stream(payloads))) == expected(payloads)
    assert plain_batches(open_records(stream(payloads)), 2) == expected(payloads)


@pytest.mark.parametrize("payload", [b"", made(), field(1, b"")], ids=["no bytes", "no features", "empty features"])
def test_records_without_any_features_are_rows_too(payload):
    assert list(open_records(stream([payload] * 3))) == [{}, {}, {}]


def test_an_empty_file(tmp_path):
    path = write(tmp_path / "x", [])
    records = open_records(path)
    assert list(records) == list(records.batches(3)) == list(records.payloads()) == []
    assert len(records) == 0
    assert records.schema == Schema({})
    (tmp_path / "y").write_bytes(by_hand([made(a=[1])]))
    assert plain_rows(open_records([path, tmp_path / "y", path])) == [{"a": (INT64, [1])}]


def test_payloads_are_bytes_as_written():
    payloads = [b"", b"\x00" * 5, b"not an Example", bytes(range(256)) * 300]
    assert list(open_records(stream(payloads)).payloads()) == payloads


# ---- several blocks and files -------------------------------------------------------


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """(paths, what they hold) of three files, the first and the last of several blocks."""
    folder = tmp_path_factory.mktemp("large")
    random = np.random.default_rng(5)
    payloads = []
    for i in range(230):
        size = (9 << 20) // 100 if i % 2 else 50_000
        payloads.append(made(i=[i], data=[random.bytes(size)], few=list(range(i % 4)) or (INT64,), f=[float(i)] * 2))
    parts = [payloads[:120], payloads[120:121], payloads[121:]]
    paths = [write(folder / f"x{i}", part) for i, part in enumerate(parts)]
    return paths, expected(payloads)


@pytest.mark.parametrize(("threads", "size"), [(1, 7), (2, 4096)])
def test_batches_go_over_blocks_and_files(large, threads, size):
    paths, want = large
    assert plain_batches(open_records(paths, threads=threads), size) == want


def test_rows_go_over_blocks_and_files(large):
    paths, want = large
    assert plain_rows(open_records(paths, threads=2, verify=False)) == want


def test_single_rows_and_projection_over_blocks(large):
    paths, want = large
    assert [row["i"] for row in open_records(paths, columns=["i"])] == list(range(230))
    got = [int(batch["i"][0]) for batch in open_records(paths, columns=["i"], verify=False).batches(1)]
    assert got == [i for i, _ in enumerate(want)]


def test_the_last_batch_can_be_dropped(large):
    paths, _ = large
    for size, count in ((7, 32), (230, 1), (231, 0)):
        sizes = [
            len(batch["i"]) for batch in open_records(paths, columns=["i"], verify=False).batches(size, drop_last=True)
        ]
        assert sizes == [size] * count


def test_a_schema_is_inferred_over_blocks_and_files(large):
    paths, want = large
    schema = infer_schema(paths)
    assert schema == Schema({"i": "int64", "data": "bytes", "few": ("int64", [None]), "f": ("float32", [2])})
    assert plain_rows(open_records(paths[1], schema=schema)) == want[120:121]


def test_a_schema_is_inferred_within_limits():
    records = [made(**{f"f{n}": [n] for n in range(5000)})] * 2
    assert len(infer_schema(stream(records)).features) == 5000
    for limits in (tb.errors.Limits(max_objects=100), tb.errors.Limits(max_bytes=10_000)):
        with pytest.raises(tb.errors.LimitError):
            infer_schema(stream(records), limits=limits)


@pytest.mark.parametrize("size", [0, -1, True, "3", 2.0, None, np.int64(0), np.True_])
def test_sizes_of_batches_are_checked(size):
    records = open_records(stream([made(a=[1])]))
    message = re.escape(f"batches of {size!r} records: expected a whole number, 1 or more")
    with pytest.raises(errors.UsageError, match=message):
        records.batches(size)  # before anything is read
    with pytest.raises(errors.UsageError, match=message):
        records.to_arrow(size)
    (batch,) = records.batches(np.int64(2))
    assert batch["a"].tolist() == [1]


@pytest.mark.parametrize("name", ["gz", "GZIP2", 7])
def test_the_name_of_a_compression_is_checked_before_anything_is_read(tmp_path, name):
    with tb.RecordWriter(tmp_path / "x") as writer:  # has its schema beside it
        writer.write({"a": 1})
    with pytest.raises(errors.UsageError, match=re.escape(f"unknown compression {name!r}; known: auto, gzip")):
        open_records(tmp_path / "x", compression=name)
    assert len(open_records(tmp_path / "x", compression=None)) == 1


# ---- tensors ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", [
    np.arange(5), np.float32(1), "text", [b"a", b"b"], {"a": {"b": np.zeros((2, 3))}}, {}, [], tb.Ragged(
        tb.Tensor("int64", (3,), np.arange(3)), [np.array([0, 1, 3])]
    ),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_tensors_are_no_examples(tmp_path, value):
    path = tmp_path / "m.tb"
    tb.save(value, path)
    optional = {"a": tb.records.Feature("int64", optional=True)}
    for use in (
        lambda: list(open_records(path)),
        lambda: list(open_records(path).batches(10)),
        lambda: list(open_records(path, schema=optional)),
        lambda: open_records(path).schema,
        lambda: open_records(path)[0],
        lambda: tb.records.infer_schema(path),
    ):
        with pytest.raises(
            errors.UsageError, match=r"m\.tb: records of tensors rather than Examples; tb\.open\(path\)"
        ):
            use()
    assert next(open_records(path).payloads())[0] == 0x08


def test_examples_that_start_as_tensors_do():
    """A field 1 of another type is an unknown one, so is whatever else an Example has no place for."""
    tensor = tf.make_tensor_proto([1, 2]).SerializeToString()
    for first in (tensor, b"\x08\x01", b"\x08\x01\x12\x00"):
        payloads = [first + made(a=[1]), made(a=[2])]
        assert plain_rows(open_records(stream(payloads))) == expected(payloads)
    assert list(open_records(stream([b"\x08\x01", made(a=[1])]))) == [{}, {"a": 1}]


# ---- odd encodings -------------------------------------------------------------------


def usable(payloads):
    """Whether each name has one kind throughout, and there is one."""
    kinds = {}
    for row in expected(payloads):
        for name, (kind, _) in row.items():
            kinds.setdefault(name, set()).add(kind)
    return bool(kinds) and all(len(found) == 1 for found in kinds.values())


@pytest.mark.parametrize("kind", [BYTES, FLOAT, INT64])
def test_odd_bytes_are_read_as_protobuf_reads_them(kind):
    tried = 0
    for seed in range(80):
        grammar = OneKind(seed, 1, kind)
        payloads = [grammar.example() for _ in range(1 + seed % 9)]
        if usable(payloads):
            assert plain_rows(open_records(stream(payloads))) == expected(payloads), seed
            assert plain_batches(open_records(stream(payloads)), 4) == expected(payloads), seed
            tried += 1
    assert tried > 60


@pytest.mark.parametrize("case", [case for case in CASES if usable([CASES[case][0]])])
def test_a_file_in_which_all_records_are_odd(case):
    payloads = [CASES[case][0]] * 5
    assert plain_rows(open_records(stream(payloads))) == expected(payloads)
    usual = [made(other=[1]), *payloads, made(other=[2])]
    assert plain_batches(open_records(stream(usual)), 3) == expected(usual)


def located(error, payloads, bad):
    """Whether an error names the record, and a byte inside it."""
    start = len(by_hand(payloads[:bad])) + 12
    return f"record {bad} " in str(error) and start <= error.at <= start + len(payloads[bad])


@pytest.mark.parametrize("case", REFUSED)
def test_malformed_records_are_named(tmp_path, case):
    payloads = [made(other=[1]), made(other=[2]), REFUSED[case], made(other=[3])]
    path = write(tmp_path / "x", payloads)
    with pytest.raises(errors.CorruptError) as caught:
        list(open_records(path))
    assert caught.value.path == path
    assert located(caught.value, payloads, 2), caught.value


@pytest.mark.parametrize("raw", BROKEN, ids=lambda raw: raw[:8].hex())
def test_broken_fields_are_refused(raw):
    for payload in (raw, field(1, raw), field(1, field(1, field(1, "a") + field(2, raw)))):
        payloads = [made(a=[1]), payload]
        assert by_entries(payload, False) is None
        with pytest.raises(errors.CorruptError) as caught:
            list(open_records(stream(payloads)))
        assert located(caught.value, payloads, 1)


def test_whatever_the_bytes_nothing_is_misread():
    refused = 0
    for seed in range(200):
        grammar = OneKind(seed, 2, INT64)
        payloads = [grammar.example() for _ in range(3)]
        unsound = [index for index, raw in enumerate(payloads) if by_entries(raw, False) is None]
        if not open_records(stream(payloads)).holds_examples:
            # None of them shows a feature: what protobuf finds in them, it finds in none.
            assert not any(expected([raw])[0] for index, raw in enumerate(payloads) if index not in unsound)
            continue
        try:
            rows = plain_rows(open_records(stream(payloads)))
        except errors.CorruptError as caught:
            assert unsound or grammar.long
            error, refused = caught, refused + 1
            assert any(located(error, payloads, index) for index in unsound)
        else:
            # What is unsound may have been replaced, so that it was never looked into.
            assert unsound or not usable(payloads) or rows == expected(payloads)
    assert refused > 20


# ---- columns -----------------------------------------------------------------------


def test_only_the_columns_asked_for():
    payloads = every_kind(9)
    records = open_records(stream(payloads), columns=["wide", "one"])
    assert [{*row} for row in records] == [{"one", "wide"}] * 9
    want = [{name: row[name] for name in ("one", "wide")} for row in expected(payloads)]
    assert plain_rows(open_records(stream(payloads), columns=["one", "wide"])) == want
    (batch,) = open_records(stream(payloads), columns=("seldom",)).batches(9)
    assert [*batch] == ["seldom"]
    # what is not asked for is not decoded: here it would not fit
    wrong = [made(a=[1], b=[1]), made(a=[2], b=[1.0])]
    assert [row["a"] for row in open_records(stream(wrong), columns=["a"], schema={"a": "int64", "b": "int64"})] == [
        1,
        2,
    ]


def test_unknown_columns():
    with pytest.raises(errors.UsageError, match="no feature 'lable'; did you mean 'label'"):
        list(open_records(stream([made(label=[1])]), columns=["lable"]))
    with pytest.raises(errors.UsageError, match="no feature 'x'"):
        open_records(stream([]), columns=["x"], schema={"a": "int64"})
    with pytest.raises(errors.UsageError, match=r"expected a list of names, such as \['a'\]"):
        open_records(stream([]), columns="a")


# ---- frameworks ----------------------------------------------------------------------


def test_to_torch():
    torch = pytest.importorskip("torch")
    records = open_records(stream(every_kind(7)), to="torch", columns=["pair", "varying", "one", "string", "strings"])
    (batch,) = records.batches(9)
    assert isinstance(batch["pair"], torch.Tensor)
    assert (batch["pair"].dtype, tuple(batch["pair"].shape)) == (torch.float32, (7, 2))
    assert [row.tolist() for row in batch["varying"].unbind()] == [[j * -i for j in range(i % 5)] for i in range(7)]
    assert batch["string"].tolist() == [b"\xff" * i for i in range(7)]  # torch has no strings: NumPy's objects
    assert isinstance(batch["strings"], tb.Ragged)
    row = next(iter(open_records(stream(every_kind(7)), to="torch")))
    assert isinstance(row["pair"], torch.Tensor)
    assert isinstance(row["one"], torch.Tensor)
    assert row["string"] == b""


def test_to_tensorflow():
    payloads = every_kind(7)
    (batch,) = open_records(stream(payloads)).batches(9, to="tensorflow")
    assert isinstance(batch["varying"], tf.RaggedTensor)
    assert batch["strings"].to_list() == [[b"", b"x" * i, b"\x00"][: i % 4] for i in range(7)]
    spec = {"pair": tf.io.FixedLenFeature([2], tf.float32), "floats": tf.io.RaggedFeature(tf.float32)}
    want = tf.io.parse_example(payloads, spec)
    assert batch["pair"].numpy().tobytes() == want["pair"].numpy().tobytes()
    assert batch["floats"].flat_values.numpy().tobytes() == want["floats"].flat_values.numpy().tobytes()
    assert batch["floats"].row_splits.numpy().tolist() == want["floats"].row_splits.numpy().tolist()
    row = next(iter(open_records(stream(payloads), to="tensorflow")))
    assert isinstance(row["wide"], tf.Tensor)


def test_to_jax():
    jax = pytest.importorskip("jax")
    records = open_records(stream(every_kind(7)), to="jax", columns=["pair", "string"])
    (batch,) = records.batches(9)
    assert isinstance(batch["pair"], jax.Array)
    assert batch["pair"].shape == (7, 2)
    assert batch["string"].tolist() == [b"\xff" * i for i in range(7)]
    row = next(iter(open_records(stream(every_kind(7)), to="jax", columns=["pair"])))
    assert isinstance(row["pair"], jax.Array)


def test_to_neutral_values():
    (batch,) = open_records(stream(every_kind(7)), to="tensor").batches(9)
    assert {type(column) for column in batch.values()} == {tb.Tensor, tb.Strings, tb.Ragged}
    assert (batch["pair"].dtype, batch["pair"].shape) == ("float32", (7, 2))
    row = next(iter(open_records(stream(every_kind(7)), to="tensor", columns=["pair"])))
    assert isinstance(row["pair"], tb.Tensor)


def test_parse_example_agrees_with_our_schema():
    payloads = [made(a=[i], f=[0.5, i / 2], s=[b"x" * i]) for i in range(9)]
    schema = infer_schema(stream(payloads))
    want = tf.io.parse_example(payloads, schema.to_tf())
    (batch,) = open_records(stream(payloads), schema=schema).batches(9)
    assert batch["a"].tolist() == want["a"].numpy().tolist()
    assert batch["f"].tobytes() == want["f"].numpy().tobytes()
    assert batch["s"].numpy().tolist() == want["s"].numpy().tolist()


def test_plain_row_says_what_a_row_holds():
    (row,) = open_records(stream([made(a=[1, 2])]))
    assert plain_row(row, Schema({"a": ("int64", [2])})) == {"a": (INT64, [1, 2])}
    assert framed(b"abc") == by_hand([b"abc"])
