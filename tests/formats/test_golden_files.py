"""The files of tests/corpus: those that must be refused, and those that must never change.

A file in corpus/valid is written once. If the writer's bytes change, that is a new version
of the format, not a reason to write the file again. New names of golden.py are added by

    python -m tests.formats.test_golden_files
"""

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import errors
from tests.support import CORPUS
from tests.support.golden import META, OBJECTS, ORIGIN, STORED, TABLES, columns, joined, write
from tests.support.make_reject_corpus import FOLDER, REJECT

VALID = CORPUS / "valid"


@pytest.mark.parametrize(("format", "name"), [(format, name) for format in REJECT for name in REJECT[format]])
def test_refused(format, name):
    _, kind, words = REJECT[format][name]
    raw = (FOLDER / format / f"{name}.bin").read_bytes()
    with pytest.raises(getattr(errors, kind)) as caught:
        tb.loads(raw, format)
    assert words in str(caught.value)
    assert type(caught.value).__name__ == kind


def test_the_folder_holds_just_what_the_table_says():
    on_disk = {str(path.relative_to(FOLDER)): path.read_bytes() for path in FOLDER.rglob("*.*")}
    table = {f"{format}/{name}.bin": raw for format, files in REJECT.items() for name, (raw, _, _) in files.items()}
    assert on_disk == table


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.tolist()) == (b.dtype, b.shape, b.tolist())
    elif isinstance(a, tb.Ragged | tb.Sparse):
        assert tb.equal(a, b)
    else:
        assert a == b


@pytest.mark.parametrize("name", OBJECTS)
def test_the_bytes_and_their_meaning_never_change(name):
    raw = (VALID / f"{name}.tb").read_bytes()
    assert write(name) == raw
    objects, stream = OBJECTS[name]
    same(tb.load(VALID / f"{name}.tb"), objects if stream else objects[0])


@pytest.mark.parametrize("name", STORED)
def test_so_are_those_of_compressed_and_quantized_ones(name):
    raw = (VALID / f"{name}.tb").read_bytes()
    obj, options = STORED[name]
    assert write(name) == raw
    assert len(raw) < len(tb.dumps(obj))
    same(tb.load(VALID / f"{name}.tb"), obj)
    with tb.open(VALID / f"{name}.tb") as file:
        same(file[0], obj)
        ways = [entry.stored for entry in file.entries() if entry.stored]
    if "quantize" in options:
        assert all(way.quantization for way in ways)
        assert [way.quantization.max_error for way in ways] == [0.0]
    elif not name.startswith("ragged"):  # whose parts are compressed
        assert [way.compression for way in ways] == [options["compression"]] * len(file_names(obj))


def file_names(obj):
    return list(obj) if isinstance(obj, dict) else [None]


def test_what_users_say_and_what_we_note_are_kept_apart():
    raw = (VALID / "origin.tb").read_bytes()
    assert write("origin") == raw
    with tb.open(VALID / "origin.tb") as file:
        assert (file.meta, file.origin) == (META, ORIGIN)
        assert (file["noted"].meta, file["noted"].origin) == (META, ORIGIN)
        assert (file["w"].meta, file["w"].origin) == ({}, {})
    same(tb.loads(raw), {"w": np.ones(2, np.float32), "noted": np.array([1, 2], np.float32)})


@pytest.mark.parametrize("name", TABLES)
def test_tables_neither(name):
    raw = (VALID / f"{name}.tb").read_bytes()
    assert write(name) == raw
    documents, stream = TABLES[name]
    want = [columns(document) for document in documents]
    same(tb.loads(raw), joined(want) if stream else want[0])
    decoded = list(tb.formats.get("tb").decode(memoryview(raw), tb.errors.Limits(), False, {}))
    assert [(document.rows, document.item) for document in decoded] == [(doc.rows, doc.item) for doc in documents]
    assert [[leaf.path for leaf in document.leaves] for document in decoded] == [
        [leaf.path for leaf in document.leaves] for document in documents
    ]


def test_every_valid_file_is_checked():
    assert {path.stem for path in VALID.iterdir()} == {*OBJECTS, *STORED, *TABLES, "origin"}


if __name__ == "__main__":
    VALID.mkdir(parents=True, exist_ok=True)
    for new in (*OBJECTS, *STORED, *TABLES, "origin"):
        if not (VALID / f"{new}.tb").exists():
            (VALID / f"{new}.tb").write_bytes(write(new))
