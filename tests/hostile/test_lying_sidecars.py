"""Files beside a file that lie (catalogue 156 to 158): an index, a schema, a list of checksums.

Whoever may write to a folder can plant one. An index never changes what is read; a schema is held against each record;
a manifest is compared, and is itself nothing to be trusted. All views are compared with those without the file.
"""

import hashlib
import json
import os
import shutil
import warnings

import numpy as np
import pytest

import tensorbytes as tb
import tensorbytes.errors
from tensorbytes import cli
from tests.support.tiers import deep_but

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="links and pipes of POSIX"), pytest.mark.timeout(120)]

COMPRESSIONS = ("none", "gzip", "zlib", "snappy")
COUNT = 12


@pytest.fixture(params=deep_but(["none", "gzip"], COMPRESSIONS))
def path(request, tmp_path):
    """Records of different lengths, without anything beside them."""
    made = tmp_path / "x.tfrecord"
    with tb.RecordWriter(made, compression=request.param, sidecar=False) as writer:
        for number in range(COUNT):
            writer.write({"n": number, "x": np.arange(number % 5, dtype=np.int64)})
            if number % 3 == 2 and request.param != "zlib":
                writer.flush()
    return made


def plain(value):
    """A value as something that can be compared."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, tb.Ragged):
        return [value.values.numpy().tolist(), [np.asarray(one).tolist() for one in value.splits]]
    return value.tolist() if hasattr(value, "tolist") else value


def columns(batch):
    return {name: plain(batch[name]) for name in sorted(batch)}


def shell(command):
    """What a command prints: its exit code and its lines, without those that name the folder's files."""

    def run(path):
        import contextlib
        import io

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main([command, "--json", str(path)])
        assert "Traceback" not in err.getvalue()
        assert code != 70, err.getvalue()
        found = json.loads(out.getvalue()) if out.getvalue() else None
        return [code, _without_sidecars(found)]

    return run


def _without_sidecars(found):
    """Commands may say that there is a file beside another."""
    if isinstance(found, dict):
        kept = {name: part for name, part in found.items() if name not in ("schema", "index", "sidecars", "warnings")}
        return {name: _without_sidecars(part) for name, part in kept.items()}
    return [_without_sidecars(part) for part in found] if isinstance(found, list) else found


def parts_of(path):
    """What split makes, read without what it puts beside."""
    folder = path.parent / "parts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    tb.split(path, folder / "p.tfrecord", shards=3)
    return [[bytes(one) for one in tb.open_records(part).payloads()] for part in sorted(folder.glob("p.*-of-*"))]


def merged(path):
    target = path.parent / "merged.tfrecord"
    tb.merge([path, path], target)
    return [bytes(one) for one in tb.open_records(target).payloads()]


def outside(path):
    found = []
    for which in (COUNT, -COUNT - 1, 1 << 40, [0, COUNT]):
        try:
            found.append(plain(tb.open_records(path)[which]))
        except IndexError:
            found.append("IndexError")
    return found


VIEWS = {
    "len": lambda path: len(tb.open_records(path)),
    "rows": lambda path: [plain(row) for row in tb.open_records(path)],
    "each": lambda path: [plain(tb.open_records(path)[at]) for at in range(COUNT)],
    "each of one": lambda path: (lambda r: [plain(r[at]) for at in range(len(r))])(tb.open_records(path)),
    "backwards": lambda path: (lambda r: [plain(r[-at]) for at in range(1, COUNT + 1)])(tb.open_records(path)),
    "slices": lambda path: [columns(tb.open_records(path)[part]) for part in (slice(3, 7), slice(None, None, 5))],
    "the end": lambda path: columns(tb.open_records(path)[-4:]),
    "picked": lambda path: columns(tb.open_records(path)[[7, 0, 7, 11, 3]]),
    "outside": outside,
    "batches": lambda path: [columns(batch) for batch in tb.open_records(path).batches(5)],
    "arrow": lambda path: tb.open_records(path).to_arrow().read_all().to_pydict(),
    "payloads": lambda path: [bytes(one) for one in tb.open_records(path).payloads()],
    "inspect": lambda path: (lambda found: [found.format, found.objects, found.size])(tb.inspect(path, scan="all")),
    "verify": lambda path: (lambda found: [found.ok, found.records])(tb.verify(path)),
    "split": parts_of,
    "merge": merged,
    "tb info": shell("info"),
    "tb verify": shell("verify"),
}


def seen(view, path):
    """What a view gives: ("value", it), or ("error", its class) of one of ours. No other error may come."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = ("value", VIEWS[view](path))
        except tb.errors.TensorbytesError as error:
            found = ("error", type(error).__name__)
    return found, {warning.category for warning in caught}


# ---- an index ----------------------------------------------------------------------


def lengths_of(path):
    return np.array([len(one) for one in tb.open_records(path).payloads()], np.int64)


def put_index(path, lengths, **changes):
    """An index beside a file, with the file's own size and time, so that nothing but its content tells."""
    compression = "none"
    head = path.read_bytes()[:4]
    if head[:2] == b"\x1f\x8b":
        compression = "gzip"
    elif head[:1] == b"\x78":
        compression = "zlib"
    elif head[:2] == b"\0\0":
        compression = "snappy"
    status = os.stat(path)
    meta = {
        "tensorbytes.index": "1",
        "compression": compression,
        "size": str(status.st_size),
        "mtime_ns": str(status.st_mtime_ns),
    }
    tb.save(np.asarray(lengths), f"{path}.index.tb", "tb", meta=meta | changes)


def _moved(lengths, at, by):
    changed = lengths.copy()
    changed[at] += by
    changed[at + 1] -= by
    return changed


INDEXES = {
    "fewer": lambda found: found[:-1],
    "half": lambda found: found[: len(found) // 2],
    "none": lambda found: found[:0],
    "more": lambda found: np.append(found, 5),
    "far more": lambda found: np.append(found, np.zeros(100_000, np.int64)),
    "the first is missing": lambda found: found[1:],
    "merged": lambda found: np.concatenate([[found[0] + found[1] + 16], found[2:]]),
    "all merged": lambda found: np.array([found.sum() + 16 * (len(found) - 1)]),
    "the last merged": lambda found: np.concatenate([found[:-2], [found[-2] + found[-1] + 16]]),
    "split": lambda found: np.concatenate([[5, found[0] - 21], found[1:]]),
    "shifted": lambda found: _moved(found, 4, 1),
    "shifted at the end": lambda found: _moved(found, len(found) - 2, 1),
    "the other way round": lambda found: found[::-1].copy(),
    "turned": lambda found: np.roll(found, 1),
    "equal": lambda found: np.full(len(found), found.sum() // len(found)),
    "zeros": lambda found: np.zeros(len(found), np.int64),
    "huge": lambda found: np.append(found[:-1], (1 << 48) - 1),
    "too huge": lambda found: np.append(found[:-1], (1 << 63) - 1),
    "sums to what it was": lambda found: np.append(found, [1 << 62, 1 << 62, -(1 << 62), -(1 << 62)]),
    "negative": lambda found: np.append(found[:-1], -16),
    "other numbers": lambda found: found.astype(np.int32),
    "floats": lambda found: found.astype(np.float64),
    "a table": lambda found: np.stack([found, found]),
    "a scalar": lambda found: np.int64(len(found)),
}
QUICK = ("fewer", "none", "merged", "the last merged", "shifted", "more", "all merged", "far more")


def test_156_a_true_index_is_used(path):
    """Or the lies below would show nothing."""
    for change in ({}, {"more": "metadata"}):
        put_index(path, lengths_of(path), **change)
        for view in VIEWS:
            _, warned = seen(view, path)
            assert warned == set(), view


@pytest.mark.parametrize("lie", deep_but(QUICK, list(INDEXES)))
def test_156_an_index_that_lies(path, lie):
    """A8: `len` 50, iteration 100, no error."""
    true = {view: seen(view, path)[0] for view in VIEWS}
    put_index(path, INDEXES[lie](lengths_of(path)))
    told = set()
    for view in VIEWS:
        found, warned = seen(view, path)
        assert found == true[view], view
        told |= warned
    assert told == {tensorbytes.errors.SidecarWarning}


@pytest.mark.parametrize(
    "change",
    [
        {"compression": "none"},
        {"compression": "gzip"},
        {"compression": "zlib"},
        {"compression": "snappy"},
        {"compression": "rot13"},
        {"size": "0"},
        {"size": "-1"},
        {"size": "1" * 5000},
        {"mtime_ns": "yesterday"},
        {"tensorbytes.index": "2"},
        {"tensorbytes.index": ""},
    ],
    ids=str,
)
def test_156_what_an_index_says_of_its_file(path, change):
    lengths = lengths_of(path)
    true = {view: seen(view, path)[0] for view in ("len", "rows", "each", "the end", "batches")}
    put_index(path, lengths, **change)
    for view, wanted in true.items():
        found, warned = seen(view, path)
        assert found == wanted, view
        assert warned <= {tensorbytes.errors.SidecarWarning}


def test_156_the_index_of_another_file(path, tmp_path):
    """With more records of other lengths; copied as it is, and with the size and time of this one."""
    other = tmp_path / "other.tfrecord"
    with tb.RecordWriter(other, sidecar=False) as writer:
        for number in range(COUNT + 9):
            writer.write({"n": number, "text": "x" * number})
    true = {view: seen(view, path)[0] for view in VIEWS}
    tb.records.build_index(other)
    shutil.copy(f"{other}.index.tb", f"{path}.index.tb")
    for stamped in (False, True):
        if stamped:
            put_index(path, lengths_of(other))
        for view in VIEWS:
            assert seen(view, path)[0] == true[view], view


def test_156_an_index_of_the_past(path):
    """Of the file before it was replaced by one of the same size, at the same time."""
    tb.records.build_index(path)
    status = os.stat(path)
    rows = list(tb.open_records(path))
    compression = json.loads(json.dumps(tb.open_records(path)._index()[0].compression))
    os.rename(f"{path}.index.tb", f"{path}.kept")
    with tb.RecordWriter(path, compression=compression, sidecar=False) as writer:
        for row in reversed(rows):
            writer.write({"n": int(row["n"]), "x": row["x"]})
    os.rename(f"{path}.kept", f"{path}.index.tb")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    found = {view: seen(view, path)[0] for view in VIEWS}
    os.unlink(f"{path}.index.tb")
    assert found == {view: seen(view, path)[0] for view in VIEWS}


@pytest.mark.parametrize("content", [b"", b"\0", b"x" * 500, bytes(500), b"\xff" * 64], ids=range(5))
def test_156_an_index_of_other_bytes(path, content):
    true = {view: seen(view, path)[0] for view in ("len", "rows", "each")}
    (path.parent / f"{path.name}.index.tb").write_bytes(content)
    assert {view: seen(view, path)[0] for view in true} == true


def plant(what, place, victim):
    """Put something that is not a file where one is looked for."""
    {
        "link": lambda: os.symlink(victim, place),
        "pipe": lambda: os.mkfifo(place),
        "folder": lambda: os.mkdir(place),
        "device": lambda: os.symlink("/dev/zero", place),
        "loop": lambda: os.symlink(os.path.basename(place), place),
    }[what]()


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "device", "loop"])
def test_156_an_index_that_is_not_a_file(path, what, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    true = {view: seen(view, path)[0] for view in VIEWS}
    plant(what, f"{path}.index.tb", victim)
    for view in VIEWS:
        assert seen(view, path)[0] == true[view], view
    assert victim.read_bytes() == b"precious"


def test_156_one_reader_goes_on_after_its_index_was_disproved(path):
    put_index(path, INDEXES["merged"](lengths_of(path)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        records = tb.open_records(path)
        for _ in range(2):
            assert [int(records[at]["n"]) for at in (11, 0, -1, 5)] == [11, 0, 11, 5]
            assert [int(row["n"]) for row in records] == list(range(COUNT))
            assert len(records) == COUNT


@pytest.fixture
def little_memory():
    """No more than twice the limit on top of what the process has: a lie that is believed stops here."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * tb.errors.LIMITS.max_bytes, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


# ---- a schema -------------------------------------------------------------------------


def schema(**features):
    return json.dumps({"features": features, "tensorbytes.schema": 1})


def feature(dtype, shape, **more):
    return {"dtype": dtype, "encoding": "flat", "shape": shape} | more


N, X = feature("int64", []), feature("int64", [None])
SCHEMAS = {
    "another dtype": schema(n=feature("float32", []), x=X),
    "text": schema(n=feature("text", []), x=X),
    "another shape": schema(n=feature("int64", [2]), x=X),
    "a fixed length": schema(n=N, x=feature("int64", [3])),
    "absent features": schema(n=N, x=X, y=feature("float32", [])),
    "no features": schema(),
    "fewer features": schema(n=N),
    "a huge default": schema(n=N, x=X, y=feature("float32", [1 << 29], optional=True, default=0.0)),
    "a default of 2^62": schema(n=N, x=X, y=feature("float32", [1 << 62], optional=True, default=0.0)),
    "a default that overflows": schema(n=N, x=X, y=feature("int64", [1 << 40, 1 << 40], optional=True, default=1)),
    "defaults": schema(n=N, x=X, **{f"y{i}": feature("int64", [1 << 22], optional=True, default=1) for i in range(40)}),
    "a negative size": schema(n=feature("int64", [-5]), x=X),
    "a rank of 1000": schema(n=feature("int64", [1] * 1000), x=X),
    "an unknown dtype": schema(n=feature("int65", []), x=X),
    "an unknown encoding": schema(n={"dtype": "int64", "encoding": "morse", "shape": []}, x=X),
    "of lists": json.dumps({"lists": {"n": N, "x": X}, "features": {}, "tensorbytes.schema": 1}),
    "deep": '{"features":' * 50_000,
    "deep lists": "[" * 200_000 + "]" * 200_000,
    "huge numbers": '{"tensorbytes.schema":' + "9" * 10_000 + "}",
    "a key twice": '{"features":{"n":{},"n":{}},"tensorbytes.schema":1}',
    "another version": json.dumps({"features": {"n": N, "x": X}, "tensorbytes.schema": 2}),
    "not an object": "[]",
    "empty": "",
    "not text": "\ud800",
}
SCHEMA_VIEWS = (
    "len",
    "rows",
    "each",
    "slices",
    "the end",
    "batches",
    "arrow",
    "payloads",
    "tb info",
    "tb verify",
    "split",
)


def _agrees(found, true):
    """Whether what was read is right: other columns may be there or not, values are as they are."""
    if isinstance(true, dict) and isinstance(found, dict):
        return all(_agrees(found[name], true[name]) for name in found.keys() & true.keys())
    if isinstance(true, list) and isinstance(found, list):
        return len(found) == len(true) and all(map(_agrees, found, true))
    return found == true


@pytest.mark.parametrize("lie", deep_but(SCHEMAS.keys() - {"defaults"}, list(SCHEMAS)))
def test_157_a_schema_that_lies(path, lie, little_memory):
    """A5: gigabytes for 300 bytes of records; errors of NumPy's and pyarrow's own."""
    true = {view: seen(view, path)[0] for view in SCHEMA_VIEWS}
    with open(f"{path}.schema.json", "w", errors="surrogatepass") as file:
        file.write(SCHEMAS[lie])
    for view in SCHEMA_VIEWS:
        (kind, found), warned = seen(view, path)
        assert warned <= {tensorbytes.errors.SidecarWarning}, (view, warned)
        if view in ("payloads", "len", "split", "tb verify"):  # which no schema has a say in
            assert (kind, found) == true[view] or kind == "error", (view, found)
        elif kind == "value" and view != "tb info":
            assert _agrees(found, true[view][1]), (view, found)


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.deep)])
def test_157_a_schema_of_many_features(count, tmp_path, little_memory):
    made = tmp_path / "x.tfrecord"
    with tb.RecordWriter(made, sidecar=False) as writer:
        for number in range(3):
            writer.write({"n": number})
    features = ",".join(f'"{i}":{{"dtype":"int64","encoding":"flat","shape":[],"optional":true}}' for i in range(count))
    (tmp_path / "x.tfrecord.schema.json").write_text(f'{{"features":{{{features}}},"tensorbytes.schema":1}}')
    for view in ("rows", "len", "tb verify"):
        (kind, found), _ = seen(view, made)
        assert kind in ("value", "error")
        if view == "len":
            assert (kind, found) == ("value", 3)


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "device", "loop"])
def test_157_a_schema_that_is_not_a_file(path, what, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text(SCHEMAS["another dtype"])
    true = {view: seen(view, path)[0] for view in SCHEMA_VIEWS}
    plant(what, f"{path}.schema.json", victim)
    for view in SCHEMA_VIEWS:
        assert seen(view, path)[0] == true[view], view
    assert victim.read_text() == SCHEMAS["another dtype"]


# ---- a list of checksums -----------------------------------------------------------------


def manifest(*rows, version=1):
    return json.dumps({"tensorbytes.sums": version, "tensors": list(rows)})


def row(name="w", dtype="float32", shape=(3,), sha256=None):
    return {"name": name, "dtype": dtype, "shape": list(shape), "sha256": sha256 or hashlib.sha256(b"").hexdigest()}


MANIFESTS = {
    "another digest": manifest(row()),
    "another name": manifest(row("v")),
    "twice": manifest(row(), row()),
    "none": manifest(),
    "many": manifest(*[row(f"w{i}") for i in range(20_000)]),
    "a name that leads elsewhere": manifest(row("../../etc/passwd")),
    "a name that steers a terminal": manifest(row("\x1b[31mred\x07")),
    "a long name": manifest(row("w" * 100_000)),
    "no digest": manifest({"name": "w"}),
    "a digest of another sort": manifest(row(sha256=7)),
    "a shape of 2^62": manifest(row(shape=(1 << 62, 1 << 62))),
    "another version": manifest(row(), version=99),
    "deep": "[" * 100_000,
    "empty": "",
    "not text": "\x00\xff",
}


@pytest.fixture
def model(tmp_path):
    made = tmp_path / "model.safetensors"
    tb.save({"w": np.arange(3, dtype=np.float32)}, made)
    return made


@pytest.mark.parametrize("lie", MANIFESTS)
def test_158_a_manifest_that_lies(model, lie, capsys):
    """What it says is compared and not believed: the file is read as without it, and verify says what is wrong."""
    place = model.parent / "model.safetensors.sums.json"
    place.write_bytes(MANIFESTS[lie].encode("latin-1"))
    code = cli.main(["verify", str(model)])
    told = capsys.readouterr()
    assert code not in (0, 70), told
    assert "Traceback" not in told.err
    assert "\x1b[31m" not in told.out + told.err
    assert len(told.out + told.err) < 2_000_000
    assert tb.load(model)["w"].tolist() == [0, 1, 2]
    assert cli.main(["verify", "--no-manifest", str(model)]) == 0


def test_158_a_true_manifest(model, capsys):
    assert cli.main(["verify", "--write-manifest", str(model)]) == 0
    assert cli.main(["verify", str(model)]) == 0
    assert "sums.json" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["link", "pipe", "folder", "device"])
def test_158_a_manifest_that_is_not_a_file(model, what, tmp_path, capsys):
    victim, place = tmp_path / "victim", tmp_path / "model.safetensors.sums.json"
    victim.write_bytes(b"precious")
    {
        "link": lambda: os.symlink(victim, place),
        "pipe": lambda: os.mkfifo(place),
        "folder": lambda: os.mkdir(place),
        "device": lambda: os.symlink("/dev/zero", place),
    }[what]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = cli.main(["verify", str(model)])
    assert code != 70
    assert "Traceback" not in capsys.readouterr().err
    assert victim.read_bytes() == b"precious"


def test_158_a_manifest_replaces_a_planted_link(model, tmp_path):
    victim, place = tmp_path / "victim", tmp_path / "model.safetensors.sums.json"
    victim.write_bytes(b"precious")
    os.symlink(victim, place)
    cli.main(["verify", "--write-manifest", str(model)])
    assert victim.read_bytes() == b"precious"
