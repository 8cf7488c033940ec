"""What formats say of themselves, held against what they do. A new format is in every one of these tests."""

import copy
import inspect as signatures
import os
import random
import re
import subprocess
import sys

import numpy as np
import pytest

import tensorbytes as tb
from tensorbytes import codecs, foreign, formats, opening
from tensorbytes.api import to_document
from tensorbytes.cli.files import expand
from tensorbytes.errors import LIMITS, CorruptError, LossError, TensorbytesError, UnsupportedError, UsageError
from tensorbytes.formats import Format, Option
from tensorbytes.io.source import Source
from tensorbytes.rows import Table, count
from tensorbytes.tensor import Ragged, Sparse, Strings, Tensor
from tensorbytes.tree import Document, Leaf
from tests.support import work

NAMES = list(formats.BUILTIN)
# Formats that hold rows alone are written by rows: see test_tables, and the tests of records.
WRITTEN = [name for name in formats.writable() if formats.get(name).documents]
ALL = frozenset({"name", "meta", "kind", "encoding", "layout"})
NUMBERS = np.arange(3000, dtype=np.float32).reshape(30, 100)


def sparse(numbers=NUMBERS):
    places = np.argwhere(np.ones(numbers.shape, bool))
    return tb.Sparse("coo", numbers.shape, (places,), tb.Tensor("float32", (numbers.size,), numbers.reshape(-1)))


def fitting(name, numbers=NUMBERS):
    """Something of many bytes that a format holds."""
    chosen = formats.get(name)
    try:
        tb.formats.get(name).check(to_document(numbers), frozenset(), {})
    except LossError:
        numbers = sparse(numbers)
    return numbers if chosen.holds_one else {"a": numbers, "b": copy.deepcopy(numbers)}  # which is another tensor


def path_in(folder, name):
    return os.path.join(folder, f"file{formats.get(name).suffixes[0]}")


def saved(folder, name, content=None, **options):
    path = path_in(folder, name)
    if not formats.get(name).documents:
        with tb.RecordWriter(path, **options) as writer:
            writer.write_batch({"a": NUMBERS, "b": NUMBERS} if content is None else content)
        return path, {}
    content = fitting(name) if content is None else content
    tb.save(content, path, name, **options)
    return path, dict(formats.get(name).description(to_document(content)))


def refused(call):
    """The feature that was refused, if it was."""
    try:
        call()
    except LossError as error:
        return error.feature
    return None


# ---- the table is whole --------------------------------------------------------


def test_every_fact_has_its_comment():
    lines = signatures.getsource(Format).splitlines()
    facts = [line for line in lines if re.match(r"    \w+: ClassVar", line)]
    plain = {"name", "suffixes", "write_options", "read_options"}
    bare = {re.match(r"    (\w+)", line)[1] for line in facts if "  # " not in line}
    assert len(facts) > 20
    assert bare == plain


@pytest.mark.parametrize("name", NAMES)
def test_every_format_says_what_it_is(name):
    chosen = formats.get(name)
    assert all([chosen.label, chosen.words, chosen.holds, chosen.read_by, *chosen.units])
    assert all(suffix.startswith(".") for suffix in chosen.suffixes)
    assert formats.by_suffix(f"x{chosen.suffixes[0]}") == name
    assert chosen.slices
    assert chosen.may_start_like <= {wrong.kind for wrong in foreign.WRONG_FILES} - {foreign.NEVER}


def test_labels_differ():
    assert len({formats.get(name).label for name in NAMES}) == len(NAMES)


# ---- what it holds -------------------------------------------------------------


@pytest.mark.parametrize("name", WRITTEN)
def test_holds_one(name):
    chosen = formats.get(name)
    keyed = Leaf(tb.Tensor("float32", (1,), bytes(4)), (("key", "x"),))
    found = refused(lambda: chosen.check(Document([keyed]), frozenset(), {}))
    assert (found == "structure") is chosen.holds_one


@pytest.mark.parametrize("name", [name for name in WRITTEN if not formats.get(name).holds_one])
def test_aliases(name, tmp_path):
    chosen, x = formats.get(name), np.arange(3.0)
    if not chosen.self_describing:
        assert not chosen.ties
        return
    tb.save({"a": x, "b": x}, tmp_path / "x", name)
    found = tb.load(tmp_path / "x", name)
    assert (found["a"] is found["b"]) is chosen.ties
    leaf = Leaf(tb.Tensor("float64", (3,), x), (("key", "a"),))
    told = chosen.written_apart(Document([leaf, leaf._replace(path=(("key", "b"),))]), {})
    assert told == ({} if chosen.ties else {1: 0})


@pytest.mark.parametrize("name", [name for name in WRITTEN if not formats.get(name).several_files])
def test_nameless(name):
    chosen = formats.get(name)
    content = fitting(name)
    if chosen.holds_one:
        found = refused(lambda: tb.dumps(content, name, name="the-name-of-it"))
        data = b"" if found else tb.dumps(content, name, name="the-name-of-it")
        assert found in (None, "name")
    else:
        data = tb.dumps({"the-name-of-it": content["a"]}, name)
    others_see_it = b"the-name-of-it" in data and not (chosen.holds_one and b"tensorbytes" in data)
    assert others_see_it is not chosen.nameless


@pytest.mark.parametrize("name", [name for name in WRITTEN if not formats.get(name).several_files])
def test_streams(name):
    chosen = formats.get(name)
    content = to_document(fitting(name, NUMBERS[:2, :3]))
    whole = b""
    for item in (1, 2, 3):
        whole += chosen.dumps(content._replace(item=item), frozenset(), {})
    try:
        found = list(chosen.decode(memoryview(whole), LIMITS, False, chosen.description(content)))
    except TensorbytesError:
        found = []
    # Arrays that were saved one after another are read by NumPy's users, too; nobody writes npy files so here.
    assert ([document.item for document in found] == [1, 2, 3]) is (chosen.streams or name == "npy")


@pytest.mark.parametrize("name", NAMES)
def test_complete(name):
    chosen = formats.get(name)
    if not chosen.complete:
        return
    odd = tb.Ragged(tb.Tensor("float8_e4m3fn", (3,), b"abc"), (np.array([0, 2, 3]),))
    content = odd if chosen.holds_one else {"x": [odd, {"y": "text", "z": None}], 5: 1 + 2j}
    chosen.check(to_document(content, meta={"by": "me"}), frozenset(), {})


@pytest.mark.parametrize("name", formats.writable())
def test_tables(name, tmp_path):
    path, options = saved(tmp_path, name)
    chosen = formats.get(name)
    assert chosen.rows or not opening.open_file(path, name, options=options).rows
    if not chosen.rows:
        return
    created = chosen.create(path, {})
    created.add(Table({"a": tb.Tensor("float32", (30, 100), NUMBERS.reshape(-1))}, 30))
    assert created.close() == [path]
    found = opening.open_file(path, name)
    assert found.rows
    assert [table.rows for table in found.tables(20)] == [20, 10]
    assert found.count() == 30


@pytest.mark.parametrize("name", WRITTEN)
def test_checksums(name, tmp_path):
    chosen = formats.get(name)
    path, options = saved(tmp_path, name, fitting(name, np.full_like(NUMBERS, 7)), **plain_options(chosen))
    largest = max((os.path.join(tmp_path, file) for file in os.listdir(tmp_path)), key=os.path.getsize)
    with open(largest, "r+b") as file:
        data = file.read()
        at = data.index(np.full(10, 7, np.float32).tobytes()) + 8
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))
    try:
        tb.load(path, format=name, **options)
        noticed = False
    except CorruptError:
        noticed = True
    assert noticed is bool(chosen.checksums)


def plain_options(chosen):
    """Those that write values as they are."""
    option = chosen.write_options.get("compression")
    return {"compression": None} if option is not None else {}


def test_older_files_of_torch_have_no_checksums(tmp_path):
    torch = pytest.importorskip("torch")
    chosen = formats.get("torchfile")
    for new in (True, False):
        torch.save({"w": torch.ones(3)}, tmp_path / "x.pt", _use_new_zipfile_serialization=new)
        assert chosen.checksums_of(memoryview((tmp_path / "x.pt").read_bytes())) == (chosen.checksums if new else "")


# ---- how it is written ---------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_writes(name, tmp_path):
    chosen = formats.get(name)
    if not chosen.documents:
        return
    if chosen.writes:
        path, options = saved(tmp_path, name)
        assert tb.equal(tb.load(path, format=name, to="original", **options), fitting(name))
        return
    with pytest.raises(UsageError, match="read-only"):
        tb.save(NUMBERS, tmp_path / "x", name)
    assert type(chosen).encode is Format.encode


@pytest.mark.parametrize("name", NAMES)
def test_several_files(name, tmp_path):
    chosen = formats.get(name)
    if not (chosen.writes and chosen.documents):
        return
    saved(tmp_path, name)
    assert (len(os.listdir(tmp_path)) > 1) is chosen.several_files
    if chosen.several_files:
        with pytest.raises(UsageError, match="several files"):
            tb.dumps(fitting(name), name)


@pytest.mark.parametrize("name", WRITTEN)
def test_compressions(name):
    chosen = formats.get(name)
    option = chosen.write_options.get("compression")
    tried = (*chosen.compressions, *chosen.slow_compressions)
    assert chosen.compressions[0] is None
    assert len(set(tried)) == len(tried)
    assert (option is None) is (tried == (None,))
    content = fitting(name, np.zeros_like(NUMBERS))
    sizes = {each: len(tb.dumps(content, name, compression=each)) for each in tried if option is not None}
    assert all(size < sizes[None] for each, size in sizes.items() if each is not None and "pack" not in each)
    codec = next(iter(codecs.BUILTIN))
    assert (option is not None and option.takes(f"delta+{codec}")) is chosen.pipelines


@pytest.mark.parametrize("name", WRITTEN)
def test_replaces(name, tmp_path):
    """What a second, larger, file takes the place of is what the format said it would."""
    chosen = formats.get(name)
    shards = {"max_shard_bytes": NUMBERS.nbytes} if "max_shard_bytes" in chosen.write_options else {}
    path = path_in(tmp_path, name)
    for options in (shards, {}, shards, shards, {}):
        before = files(tmp_path)
        said = set(chosen.replaces(path, options))
        saved(tmp_path, name, **options)
        after = files(tmp_path)
        touched = {file for file in before if after.get(file) != before[file]}
        assert touched <= said
        assert not before or touched


def files(folder):
    paths = [os.path.join(folder, name) for name in os.listdir(folder)]
    return {path: (os.stat(path).st_ino, os.stat(path).st_mtime_ns) for path in paths}


# ---- how it is read ------------------------------------------------------------


@pytest.mark.parametrize("name", WRITTEN)
def test_self_describing(name, tmp_path):
    chosen = formats.get(name)
    path, options = saved(tmp_path, name)
    assert bool(options) is not chosen.self_describing
    if not chosen.self_describing:
        with pytest.raises(UsageError):
            tb.load(path, format=name)
        assert opening.choose(Source.of_bytes(memoryview(b"PK\x03\x04 or anything else")), name) is chosen
    for content in (fitting(name), NUMBERS):
        if chosen.holds_one or content is not NUMBERS:
            assert options.keys() <= chosen.read_options.keys()


def damaged_records():
    """The beginnings of TFRecord files whose first header is damaged."""
    draw = random.Random(5)
    whole = tb.dumps(NUMBERS)
    for at in range(12):
        for bit in range(8):
            yield whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 : formats.SNIFF_BYTES]
    for _ in range(500):
        yield draw.randbytes(12) + whole[12 : formats.SNIFF_BYTES]
        yield draw.randbytes(formats.SNIFF_BYTES)


@pytest.mark.parametrize("name", [name for name in NAMES if formats.get(name).unmistakable])
def test_unmistakable(name):
    assert not any(formats.get(name).sniff(head, 1 << 20) for head in damaged_records())


@pytest.mark.parametrize("name", [name for name in WRITTEN if not formats.get(name).several_files])
def test_own_files_are_sniffed(name):
    chosen = formats.get(name)
    data = tb.dumps(fitting(name), name)
    assert bool(chosen.sniff(data[: formats.SNIFF_BYTES], len(data))) is chosen.self_describing or name == "protobuf"


@pytest.mark.parametrize("name", NAMES)
def test_may_start_like(name):
    """What looks like a wrong file is not called one where the format has files that start so."""
    starts = {
        foreign.ZIP: b"PK\x03\x04" + bytes(40),
        foreign.TAR: bytes(257) + b"ustar",
        foreign.PICKLE: b"\x80\x02}q\x00.",
        foreign.NEVER: b"<!doctype html>",
        "": b"%PDF-1.4",
    }
    chosen = formats.get(name)
    taken = {kind for kind, head in starts.items() if foreign.about_file(head, name) is None}
    assert taken == (set(starts) - {foreign.NEVER} if not chosen.self_describing else chosen.may_start_like)


@pytest.mark.parametrize("name", [name for name in WRITTEN if formats.get(name).lists_quickly])
def test_lists_quickly(name, tmp_path):
    """Opening a file and saying what it holds takes the same for any amount of data, and the reader says it unasked."""
    steps = []
    for rows in (3000, 30000):
        folder = tmp_path / str(rows)
        folder.mkdir()
        path, options = saved(folder, name, fitting(name, np.zeros((rows, 100), np.float32)))

        def look(path=path, options=options):
            with tb.open(path, format=name, **options) as file:
                return repr(file), [entry.shape for entry in file.entries()]

        count, (shown, shapes) = work.count(look)
        steps.append(count)
        assert shapes[0] == (rows, 100)
        assert formats.get(name).holds_one or "'a', 'b'" in shown
    assert steps[1] <= 1.02 * steps[0]  # large sizes take a byte more


@pytest.mark.parametrize("name", [name for name in WRITTEN if not formats.get(name).lists_quickly])
def test_others_are_not_asked_unless_somebody_wants_it(name, tmp_path):
    path, options = saved(tmp_path, name)
    with tb.open(path, format=name, **options) as file:
        assert "'a'" not in repr(file)


@pytest.mark.parametrize("name", WRITTEN)
def test_slices(name, tmp_path):
    path, options = saved(tmp_path, name)
    with tb.open(path, format=name, **options) as file:
        entry = file.entries()[0]
        if formats.get(name).slices == "no":
            with pytest.raises(UnsupportedError, match="no slices"):
                entry[1:3]
        else:
            assert np.array_equal(entry[1:3, 5], NUMBERS[1:3, 5])


@pytest.mark.parametrize("name", [name for name in WRITTEN if not formats.get(name).several_files])
def test_salvages(name):
    chosen = formats.get(name)
    data = tb.dumps(fitting(name), name)
    found = chosen.salvage(memoryview(data[: len(data) * 2 // 3]), LIMITS)
    assert (found is not None) is chosen.salvages
    if found is not None:
        assert [leaf.name for leaf in found.document.leaves] == ["a"]
        assert found.lost == ["b"]


# ---- which files it is ---------------------------------------------------------


@pytest.mark.parametrize("name", WRITTEN)
def test_files(name, tmp_path):
    chosen = formats.get(name)
    for options in ({}, {"max_shard_bytes": NUMBERS.nbytes}):
        if options.keys() <= chosen.write_options.keys():
            path, _ = saved(tmp_path, name, **options)
            assert sorted(chosen.files(path)) == sorted(files(tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_claimed_files(name, tmp_path):
    """Files that point to others are asked for by their path; the others are known by their bytes."""
    chosen, claims = formats.get(name), formats.BUILTIN[name].claims
    folders_alone = not chosen.documents  # of event files
    assert (bool(claims) or folders_alone) is (type(chosen).claims is not Format.claims)
    if chosen.writes and not chosen.several_files:
        path, _ = saved(tmp_path, name)
        assert formats.by_path(path) == (name if path.endswith(claims) else None)


def test_opening_a_file_imports_the_formats_before_its_own_alone(tmp_path):
    tb.save(NUMBERS, tmp_path / "x.npy")
    code = (
        "import sys, tensorbytes as tb\n"
        f"tb.load({str(tmp_path / 'x.npy')!r})\n"
        "print([name for name, row in tb.formats.BUILTIN.items() if row.module in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{NAMES[: NAMES.index('npy') + 1]}\n"


@pytest.mark.parametrize("name", [name for name in WRITTEN if formats.BUILTIN[name].claims])
def test_whole_folders(name, tmp_path):
    """A folder that a format claims is one thing to the commands, or one in which other files are looked for, too."""
    chosen = formats.get(name)
    known = {"state": True, "max_shard_bytes": NUMBERS.nbytes}
    path, _ = saved(tmp_path, name, **{key: given for key, given in known.items() if key in chosen.write_options})
    other = str(tmp_path / "other.npy")
    tb.save(NUMBERS, other)
    claimed = formats.by_path(str(tmp_path)) == name
    found = expand(str(tmp_path))
    assert (found == [str(tmp_path)]) is chosen.whole_folders
    assert claimed or not chosen.whole_folders
    if not chosen.whole_folders:  # of shards, their index
        (own,) = set(found) - {other}
        assert own in chosen.files(path)


def test_further_files(tmp_path):
    """Damage to a file that a model names is noticed, or at least read: `files` can't know of it."""
    onnx = pytest.importorskip("onnx")
    weights = [onnx.numpy_helper.from_array(NUMBERS, "w")]
    model = onnx.helper.make_model(onnx.helper.make_graph([], "net", [], [], weights), ir_version=10)
    path = str(tmp_path / "model.onnx")
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (name,) = [name for name in NAMES if formats.get(name).further_files]
    assert formats.by_path(path) == name
    assert formats.get(name).files(path) == [path]
    assert np.array_equal(tb.load(path)["w"], NUMBERS)


# ---- options -------------------------------------------------------------------

OPTIONS = [
    (name, side, key)
    for name in NAMES
    for side in ("write_options", "read_options")
    for key in getattr(formats.get(name), side)
]


@pytest.mark.parametrize(("name", "side", "key"), OPTIONS)
def test_options(name, side, key):
    """Each says its type, and what it is unless it is given; another type is refused, with what was expected."""
    chosen = formats.get(name)
    known = getattr(chosen, side)
    option = known[key]
    assert option.help
    assert "\n" not in option.help
    assert option.expected
    assert option.default is None or option.takes(option.default)
    assert all(option.takes(choice) for choice in option.choices)
    formats.check_options(chosen, {key: option.default} if option.takes(option.default) else {}, known)
    if option.type is not object:
        with pytest.raises(UsageError) as caught:
            formats.check_options(chosen, {key: 1.5}, known)
        assert (caught.value.expected, caught.value.got) == (option.expected, "1.5")
        assert repr(key) in caught.value.what
        assert repr(name) in caught.value.what
    if option.choices:
        with pytest.raises(UsageError, match="expected"):
            formats.check_options(chosen, {key: "no such choice"}, known)


def test_what_options_take():
    assert not Option(int, "").takes(True)
    assert not Option(bool, "").takes(1)
    assert Option(int | None, "").takes(None)
    assert Option(bool | str, "", choices=(True, False, "auto")).expected == "True, False or 'auto'"
    assert Option(str | dict | None, "").takes({})
    assert not Option(bool | str, "", choices=(True, "auto")).takes(1)


@pytest.mark.parametrize("name", WRITTEN)
def test_options_are_those_of_the_verbs(name, tmp_path):
    with pytest.raises(UsageError, match="no option 'no_such_option' here"):
        tb.save(fitting(name), path_in(tmp_path, name), name, no_such_option=1)
    assert not os.listdir(tmp_path)


# ---- checking costs a look -----------------------------------------------------


def text(items, encoding="utf-8"):
    return Strings.from_items(
        items if encoding == "utf-8" else [item.encode() for item in items], (len(items),), encoding
    )


def leaves(**values):
    return [Leaf(value, (("key", name),)) for name, value in values.items()]


PLAIN = Tensor("float32", (2, 3), np.arange(6, dtype="<f4"))
BOOLS = Tensor("bool", (3,), b"\1\0\1")
ODD = {
    "a tensor": Document([Leaf(PLAIN)]),
    "a named tensor": Document([Leaf(Tensor("float32", (2, 3), PLAIN.data, "w"))]),
    "a dict": Document(leaves(a=PLAIN, b=BOOLS)),
    "a dict of rows": Document(leaves(a=PLAIN, b=Tensor("int8", (2,), b"ab"))),
    "a list": Document([Leaf(PLAIN, (("list", 0),)), Leaf(BOOLS, (("list", 1),))]),
    "a deep one": Document([Leaf(PLAIN, (("key", "x"), ("tuple", 0), ("number", 7)))]),
    "an empty dict": Document([Leaf(Tensor("bool", (0,), b""), (), "dict")]),
    "a number": Document([Leaf(Tensor("int64", (), bytes(8)), (), "int")]),
    "a large number": to_document({"x": 1 << 3000}),
    "metadata": Document([Leaf(Tensor("float32", (2, 3), PLAIN.data, None, {"a": "b"}))]),
    "metadata of the whole": Document(leaves(a=PLAIN), {"by": "me"}),
    "long metadata": Document(leaves(a=PLAIN), {"by": "me" * 9000}),
    "long metadata of one": Document([Leaf(Tensor("float32", (2, 3), PLAIN.data, None, {"a": "b" * 20000}))]),
    "taken metadata": Document(leaves(a=PLAIN), {"tensorbytes": "mine"}),
    "where it was held": Document([Leaf(Tensor("float32", (2, 3), PLAIN.data, origin={"device": "cuda:0"}))]),
    "half a character": Document(leaves(**{"\ud800": PLAIN})),
    "half a character, said": Document([Leaf(Tensor("float32", (2, 3), PLAIN.data, None, {"a": "\ud800"}))]),
    "a name with a zero": Document(leaves(**{"a\0b": PLAIN})),
    "a long name": Document(leaves(**{"n" * 70000: PLAIN})),
    "a taken name": Document(leaves(__metadata__=PLAIN)),
    "no name": Document(leaves(**{"": PLAIN})),
    "text": Document([Leaf(text(["a", "bc", ""]))]),
    "bytes": Document([Leaf(Strings.from_items([b"\xff", b"x"], (2,), "bytes"))]),
    "bytes that are text": Document([Leaf(text(["a", "bc"], "bytes"))]),
    "text that ends in zeros": Document([Leaf(text(["a\0", "bc"]))]),
    "text in a dict": Document(leaves(a=text(["a", "b"]), b=BOOLS)),
    "ragged": Document([Leaf(Ragged(Tensor("int8", (3,), b"abc"), (np.array([0, 2, 3]),)))]),
    "ragged text": Document([Leaf(Ragged(text(["a", "b", "c"]), (np.array([0, 2, 3]),)))]),
    "ragged with shapes": Document(
        [Leaf(Ragged(Tensor("int8", (6,), b"abcdef"), (np.array([0, 4, 6]),), np.array([[2, 2], [1, 2]])))]
    ),
    "many ragged levels": Document([Leaf(Ragged(Tensor("int8", (1,), b"a"), (np.array([0, 1]),) * 60))]),
    "coordinates": Document([Leaf(sparse(NUMBERS[:2, :3]))]),
    "coordinates in disorder": Document(
        [Leaf(Sparse("coo", (2, 2), (np.array([[1, 0], [0, 1]]),), Tensor("int8", (2,), b"ab")))]
    ),
    "coordinates of a list": Document([Leaf(Sparse("coo", (3,), (np.array([[1]]),), Tensor("int8", (1,), b"a")))]),
    "coordinates of no rows": Document(
        [Leaf(Sparse("coo", (0, 3), (np.zeros((0, 2), np.int64),), Tensor("int8", (0,), b"")))]
    ),
    "coordinates of rows": Document(
        [Leaf(Sparse("coo", (2, 2), (np.array([[1]]),), Tensor("int8", (1, 2), b"ab")))]
    ),
    "coordinates of an odd dtype": Document(
        [Leaf(Sparse("coo", (2, 2), (np.array([[1, 1]]),), Tensor("uint4", (1,), b"\1")))]
    ),
    "coordinates of text": Document([Leaf(Sparse("coo", (2, 2), (np.array([[1, 1]]),), text(["a"])))]),
    "compressed rows": Document(
        [Leaf(Sparse("csr", (2, 2), (np.array([0, 1, 1]), np.array([1])), Tensor("float32", (1,), bytes(4))))]
    ),
    "a table": Document(
        [*leaves(a=PLAIN), Leaf(Tensor("bool", (2,), b"\1\0"), (("key", "a"), ("mask", 0)))], rows=2
    ),
    "no table": Document(leaves(a=PLAIN), rows=7),
    "the same twice": Document([Leaf(PLAIN, (("key", "a"),)), Leaf(PLAIN, (("key", "b"),))]),
    "times": to_document({"t": np.array(["2020-01-01"], "M8[s]"), "d": np.array([5], "m8[7us]")}),
    **{f"of {dtype}": Document([Leaf(Tensor(dtype, (3,), bytes(3 * row.itemsize)))]) for dtype, row in
       tb.dtypes.DTYPES.items()},
}  # fmt: skip
VARIANTS = {
    "npz": [{}, {"compression": "deflate"}],
    "arrow": [{}, {"rows": False}, {"rows": True, "shapes": True}, {"compression": "zstd", "stream": True}],
    "parquet": [{}, {"rows": False}, {"rows": True, "row_group_rows": 1}],
    "safetensors": [{}, {"extended": True}],
    "sparseproto": [{}, {"many": True}],
    "raw": [{}, {"byteorder": ">", "order": "F"}],
    **{name: [{}, {"compression": "zstd"}] for name in WRITTEN if formats.get(name).pipelines},
}


def verdict(call, *arguments):
    """What a call says of a document: nothing, or the kind of error with its words."""
    try:
        call(*arguments)
    except (LossError, UnsupportedError, UsageError) as error:
        return type(error).__name__, getattr(error, "feature", None), error.fault
    return None


@pytest.mark.parametrize("case", ODD)
@pytest.mark.parametrize("name", WRITTEN)
def test_checking_says_what_writing_says(name, case, tmp_path):
    chosen, document, target = formats.get(name), ODD[case], path_in(tmp_path, name)
    for options in VARIANTS.get(name, [{}]):
        for allow in (frozenset(), ALL):
            written = verdict(chosen.write, document, target, allow, options, False)
            assert verdict(chosen.check, document, allow, options) == written


class Touched(Exception):
    pass


@pytest.fixture
def engines(monkeypatch):
    """Whatever makes bytes of values fails."""

    def fail(*_, **__):
        raise Touched

    from tensorbytes.formats import _forms, _packed, _tensorproto, _zip, onnx
    from tensorbytes.formats._arrow import ipc, parquet
    from tensorbytes.formats._npy import text as npy_text
    from tensorbytes.formats.tfrecord.files import framing
    from tensorbytes.formats.tfrecord.write import batch, collect, encode, writer
    from tensorbytes.io import checksums
    from tensorbytes.io.streams import engines

    monkeypatch.setattr(_forms, "of", fail)
    monkeypatch.setattr(_packed, "pack", fail)
    monkeypatch.setattr(_tensorproto, "strings_pack", fail)
    monkeypatch.setattr(onnx, "strings_pack", fail)
    monkeypatch.setattr(_zip, "archive", fail)
    monkeypatch.setattr(_zip, "_body", fail)
    monkeypatch.setattr(ipc, "writer", fail)
    monkeypatch.setattr(parquet, "writer", fail)
    monkeypatch.setattr(npy_text, "fixed_width", fail)
    monkeypatch.setattr(batch, "_plain", fail)
    monkeypatch.setattr(collect, "_plain", fail)
    monkeypatch.setattr(encode, "cell", fail)
    monkeypatch.setattr(writer, "framed", fail)
    monkeypatch.setattr(framing, "blocks", fail)
    for name in ("crc32", "crc32c"):
        monkeypatch.setattr(checksums, name, fail)
    for name, found in vars(engines).items():
        if callable(found) and getattr(found, "__module__", "") == engines.__name__:
            monkeypatch.setattr(engines, name, fail)
    monkeypatch.setattr(np, "ascontiguousarray", guarded(np.ascontiguousarray))


def guarded(real):
    """The same, unless it would copy much."""

    def call(array, *rest, **more):
        made = real(array, *rest, **more)
        if made.nbytes > 1 << 16 and not np.shares_memory(made, array):
            raise Touched
        return made

    return call


def large(name):
    """Documents of many numbers and, where a format holds it, much text; and the options to write them with."""
    chosen = formats.get(name)
    values = [to_document(fitting(name, np.zeros((1000, 100), np.float32)))]
    words = Document([Leaf(text(["word"] * 20000), () if chosen.holds_one else (("key", "a"),))])
    if not refused(lambda: chosen.check(words, ALL, {})):
        values.append(words)
    return [(document, options) for document in values for options in VARIANTS.get(name, [{}])]


@pytest.mark.parametrize("name", WRITTEN)
def test_checking_encodes_nothing(name, engines):
    for document, options in large(name):
        formats.get(name).check(document, ALL, options)


@pytest.mark.parametrize("name", ["tb", "npy", "npz", "torchfile", "arrow", "parquet", "onnx", "protobuf", "delimited"])
def test_the_search_for_encoders_finds_them(name, engines):
    def touched(document, options):
        try:
            list(formats.get(name).encode(document, ALL, options))
        except Touched:
            return True
        return False

    assert any(touched(document, options) for document, options in large(name))


def large_columns():
    offsets = np.arange(0, 20001, 4)
    yield Tensor("float32", (1000, 100), bytes(400000))
    yield Tensor("bfloat16", (1000, 100), bytes(200000))
    yield text(["word"] * 20000)
    yield Ragged(Tensor("float64", (20000,), bytes(160000)), (offsets,))
    yield Ragged(text(["word"] * 20000), (offsets,))


HOLD_ROWS = [name for name in formats.writable() if formats.get(name).rows]


@pytest.mark.parametrize("name", HOLD_ROWS)
def test_checking_columns_encodes_nothing(name, tmp_path, engines):
    created = formats.get(name).create(path_in(tmp_path, name), {})
    for column in large_columns():
        created.check({"a": column})
    created.abort()


@pytest.mark.parametrize("name", ["tfrecord", "arrow", "parquet"])
def test_the_search_for_encoders_of_columns_finds_them(name, tmp_path, engines):
    for column in large_columns():
        created = formats.get(name).create(path_in(tmp_path, name), {})
        with pytest.raises(Touched):
            created.add(Table({"a": column}, count(column)))
        created.abort()
