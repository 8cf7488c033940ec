"""Nothing that a sound file can hold takes more than linear time, and Ctrl-C ends what takes long.

Steps are counted, not timed: see support/work.py.
`python -m safety.growth` and `python -m safety.interrupts` time them.
"""

import shutil
import subprocess
import threading

import numpy as np
import pytest

import tensorbytes as tb
from safety import interrupts
from safety.growth.cases import cases
from tensorbytes import _wire
from tensorbytes._wire.portions import Stopped, portions
from tensorbytes.formats.tfrecord.read import infer
from tensorbytes.io import checksums
from tensorbytes.io.workers import Crew
from tensorbytes.records import infer_schema, open_records
from tests.support import ROOT
from tests.support.tiers import deep_but
from tests.support.wire_bytes import field
from tests.support.work import check_linear

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
KERNEL = ROOT / "src/tensorbytes/_wire"
# Looks for n keys in a record that has them in falling order, of which nothing can be guessed, and prints how often
# two keys were compared.
COUNTING = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "example.h"

static unsigned long compared;

int count_memcmp(const void *a, const void *b, size_t size)
{
    const uint8_t *one = a, *other = b;
    compared++;
    for (; size && *one == *other; size--, one++, other++)
        ;
    return size ? *one - *other : 0;
}

int main(int count, char **words)
{
    long n = count > 1 ? atol(words[1]) : 0;
    uint8_t *message = malloc((size_t)n * 14 + 6), *at = message + 6;
    uint8_t *keys = malloc((size_t)n * 8), *kinds = malloc((size_t)n), notes;
    int64_t *offsets = calloc((size_t)n + 1, 8), *spans = malloc((size_t)n * 16);
    for (long i = 0; i < n; i++) {
        char text[24];
        snprintf(text, sizeof text, "%08ld", i);
        memcpy(keys + 8 * i, text, 8);
        offsets[i + 1] = 8 * (i + 1);
    }
    for (long i = n - 1; i >= 0; i--, at += 14) {
        memcpy(at, "\x0a\x0c\x0a\x08", 4);
        memcpy(at + 4, keys + 8 * i, 8);
        memcpy(at + 12, "\x12\x00", 2);
    }
    unsigned long size = (unsigned long)n * 14;
    message[0] = 0x0a;
    for (int i = 1; i < 6; i++, size >>= 7)
        message[i] = (uint8_t)((size & 0x7f) | (i < 5 ? 0x80 : 0));
    int64_t record[2] = {0, n * 14 + 6};
    struct example_keys wanted = {keys, offsets, (size_t)n};
    example_locate(message, record, 1, &wanted, 0, kinds, spans, &notes);
    if (notes)
        return 1;
    printf("%lu\n", compared);
    compared = 0;
    struct key_search search = {&wanted, {malloc(8 * keys_table_size((size_t)n)), 0, 0}, 0, {{NULL, 0, -1}}};
    keys_fill_table(&wanted, &search.table);
    for (long i = 0; i < n; i++)
        if (keys_find(&search, keys + 8 * i, 8) != i || keys_find(&search, keys + 8 * i, 7) != -1)
            return 1;
    printf("%lu\n", compared);
    return 0;
}
"""


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_180_the_kernel_finds_keys_without_a_scan(tmp_path):
    """Two records of 160,000 features took 135 seconds."""
    source, program = tmp_path / "counting.c", tmp_path / "counting"
    source.write_text(COUNTING)
    prepared = tmp_path / "keys.o"
    common = [COMPILER, "-std=c11", "-O1", "-Wall", f"-I{KERNEL}"]
    subprocess.run([*common, "-Dmemcmp=count_memcmp", "-c", KERNEL / "keys.c", "-o", prepared], check=True)
    others = [KERNEL / "example.c", KERNEL / "varints.c"]
    subprocess.run([*common, source, prepared, *others, "-o", program], check=True)
    found = [[*map(int, subprocess.check_output([program, str(n)]).split())] for n in (4_000, 16_000)]
    (few, few_hashed), (many, many_hashed) = found
    assert 0 < many <= 5 * few
    assert few_hashed == 4_000  # of a table, one comparison finds a key
    assert many_hashed == 16_000


def write_record(path, names):
    """Two records of integers, with the features in this order."""
    value = field(3, field(1, b"\x01"))
    record = field(1, b"".join(field(1, field(1, name) + field(2, value)) for name in names))
    path.write_bytes(_wire.frames([[record]] * 2))
    return path


def test_180_records_of_many_features_take_linear_time(tmp_path):
    def read(path):
        schema = infer_schema(path)
        (batch,) = open_records(path, schema=schema).batches(10)
        assert len(batch) == len(schema.features)

    check_linear(lambda n: write_record(tmp_path / "x.tfrecord", [f"f{i}" for i in range(n)]), read, 300)


@pytest.mark.parametrize("reverse", [False, True])
def test_180_features_are_found_in_any_order(tmp_path, reverse):
    """Features and wanted columns in orders of their own; names of which one starts another."""
    names = sorted([f"f{i}" for i in range(600)] + ["", "f", "é"], reverse=reverse)
    path = write_record(tmp_path / "x.tfrecord", names)
    (batch,) = open_records(path, schema=infer_schema(path), columns=names[::-7]).batches(10)
    assert sorted(batch) == sorted(names[::-7])
    assert all(np.array_equal(column, [1, 1]) for column in batch.values())


def test_181_records_with_features_of_their_own_take_linear_time(tmp_path, monkeypatch):
    """Only names that some of the records at hand have are looked up in them."""
    monkeypatch.setattr(infer, "_MOST_CELLS", 1 << 8)
    value = field(3, field(1, b"\x01"))

    def write(n):
        path = tmp_path / f"{n}.tfrecord"
        names = [f"f{i}" for i in range(n)]
        path.write_bytes(_wire.frames([[field(1, field(1, field(1, name) + field(2, value)))] for name in names]))
        return path, n

    def read(written):
        path, n = written
        schema = infer_schema(path)
        assert len(schema.features) == n
        assert all(feature.optional for feature in schema.features.values())

    check_linear(write, read, 100)


def test_181_a_name_that_was_forgotten_is_counted_on(tmp_path, monkeypatch):
    """A feature is in the first and the last record, with more names between them than are looked up at once."""
    monkeypatch.setattr(infer, "_MOST_CELLS", 1 << 4)
    value, other = field(3, field(1, b"\x01")), field(3, field(1, b"\x01\x02"))
    rows = [("a", value), *((f"f{i}", value) for i in range(50)), ("a", other)]
    payloads = [[field(1, field(1, field(1, name) + field(2, value)))] for name, value in rows]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(_wire.frames(payloads))
    schema = infer_schema(path)
    assert set(schema.features) == {"a", *(f"f{i}" for i in range(50))}
    assert schema["a"].shape == (None,)


def test_182_tensors_without_a_common_name_take_linear_time(tmp_path):
    """Each is looked for under another name in the other file."""

    def write(n):
        paths = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
        tb.save({f"a{i}": np.zeros(1, np.int64) for i in range(n)}, paths[0])
        tb.save({f"b{i}": np.full(1, i + 1) for i in range(n)}, paths[1])
        return paths

    check_linear(write, lambda paths: tb.diff(*paths), 100)


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_182_what_is_timed_works(case, tmp_path):
    case.use(case.make(5, tmp_path))


def test_183_threads_end_at_their_next_portion():
    began, go_on, runs = threading.Event(), threading.Event(), []

    def work():
        runs.append(1)
        for number, _ in enumerate(portions(10, 1)):
            if number == 3:
                began.set()
                go_on.wait()

    with pytest.raises(KeyboardInterrupt), Crew(1) as crew:  # noqa: PT012
        begun, waiting = crew.start(work), crew.start(work)
        began.wait()
        threading.Timer(0.05, go_on.set).start()  # when the crew is being closed
        raise KeyboardInterrupt
    for task in (begun, waiting):
        with pytest.raises(Stopped):
            task.take()
    assert runs == [1]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 9])
def test_183_portions_are_the_whole(size):
    data = bytes(range(size))
    assert b"".join(data[part] for part in portions(size, 4)) == data


def test_183_the_sum_of_portions_is_that_of_the_whole(monkeypatch):
    monkeypatch.setattr(checksums, "PORTION_BYTES", 1000)
    monkeypatch.setattr(checksums, "portions", lambda size: portions(size, 1000))
    data = np.arange(20_000, dtype=np.int16)
    assert checksums.crc32c(data, 7) == _wire.crc32c(data, 7)


# How long it took is in docs/safety-figures.md; here a call that goes on regardless fails.
GENEROUS = 50


@pytest.mark.skipif(not hasattr(interrupts.signal, "SIGINT") or interrupts.os.name == "nt", reason="needs signals")
@pytest.mark.skipif(not tb.ACCELERATED, reason="the reference kernel takes minutes to make what is long for the other")
@pytest.mark.parametrize("name", deep_but(["load tb"], list(interrupts.CALLS)))
def test_184_ctrl_c_ends_a_long_call(name):
    seconds = interrupts.interrupt(name)
    assert seconds is None or seconds < GENEROUS
