"""What stands after the checksum: messages that are wrong in every way, in frames that are right.

Whatever comes, only our own exceptions may leave; and what is accepted can be written and
read again, byte for byte the same.
"""

import contextlib
import functools
import io

import numpy as np
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

import tensorbytes as tb
from tensorbytes import errors
from tensorbytes.formats import frame
from tests.hostile.test_damaged_padding import Pipe
from tests.support.golden import OBJECTS, write
from tests.support.wire_bytes import (
    ALIAS,
    DIRECTORY,
    DOCUMENT,
    DOCUMENT_ORIGIN,
    ENCODING,
    HEADER_CRC,
    INT64,
    ITEM,
    KIND,
    LAYOUT,
    META,
    NAME,
    ORIGIN,
    PADDING,
    ROWS,
    STEP,
    STRING,
    entry,
    field,
    framed,
    int64s,
    key_step,
    layout,
    number,
    number_step,
    place,
    records,
    shape,
    tag,
    tensor,
)

golden = functools.cache(write)
LIMITS = tb.errors.Limits(max_bytes=1 << 20)


def read_every_way(raw):
    """Whether it loads; by every way of reading."""
    loaded = False
    for to in ("tensor", "numpy"):
        with contextlib.suppress(errors.TensorbytesError):
            tb.loads(raw, "tb", to=to, limits=LIMITS)
            loaded = True
    with contextlib.suppress(errors.TensorbytesError):
        list(tb.open(Pipe(raw), limits=LIMITS))
    with contextlib.suppress(errors.TensorbytesError), tb.open(io.BytesIO(raw), format="tb", limits=LIMITS) as file:
        for name in file.keys():  # noqa: SIM118 - no mapping
            with contextlib.suppress(KeyError):  # names may come twice
                repr(file[name])
        for found in file.entries():
            repr(found)
            with contextlib.suppress(errors.TensorbytesError):
                found.load()
            with contextlib.suppress(errors.TensorbytesError, IndexError):
                found[:1]
    return loaded


def rewrite(raw):
    """The bytes of the documents that some bytes hold."""
    out = b""
    for document in frame.FORMAT.decode(memoryview(raw), LIMITS, False, {}):
        # What follows another object was not saved whole, or elsewhere.
        payloads = frame.records(document, len(out)) if out or document.item else frame.whole(document)
        out += b"".join(piece for payload in payloads
                        for piece in frame.framed(payload, frame.checksum(payload)))  # fmt: skip
    return out


def check(raw):
    loaded = read_every_way(raw)
    event("loads" if loaded else "refused")
    try:
        canonical = rewrite(raw)
    except errors.TensorbytesError:
        return
    assert rewrite(canonical) == canonical


def test_sound_files_are_canonical():
    for name in OBJECTS:
        assert rewrite(golden(name)) == golden(name)
        assert read_every_way(golden(name))


# ---- damaged records --------------------------------------------------------


@st.composite
def damaged(draw):
    """A sound file's payloads with a few bytes changed, inserted or left out; records too."""
    payloads = [bytearray(p) for p in records(golden(draw(st.sampled_from([n for n in OBJECTS if n != "aligned"]))))]
    for _ in range(draw(st.integers(0, 4))):
        payload = draw(st.sampled_from(payloads))
        at = draw(st.integers(0, len(payload)))
        taken = draw(st.integers(0, 3))
        payload[at : at + taken] = draw(st.one_of(st.binary(max_size=3), st.sampled_from([b"\xff" * 9 + b"\x01"])))
    change = draw(st.integers(0, 5))
    if change == 0:
        payloads.insert(draw(st.integers(0, len(payloads))), draw(st.sampled_from(payloads)))
    elif change == 1:
        payloads = draw(st.permutations(payloads))
    elif change == 2:
        del payloads[draw(st.integers(0, len(payloads) - 1))]
    return framed(*payloads)


@given(damaged())
def test_damaged_records_with_sound_checksums(raw):
    check(raw)


# ---- records drawn from the grammar -----------------------------------------

NUMBERS = st.one_of(st.integers(0, 3), st.sampled_from([1 << 31, 1 << 62, 1 << 63, (1 << 64) - 1]))
TEXTS = st.one_of(st.sampled_from(["", "a", "b", "a/b", "0", "../x", "\0", "__class__", "é"]), st.text(max_size=3))
RAW_TEXTS = st.one_of(TEXTS, st.just(b"\xff"), st.just(b"\xed\xa0\x80"))
KINDS = ["int", "float", "complex", "bool", "str", "bytes", "none", "numpy", "dict", "list", "tuple", "list[int]",
         "tuple[str]", "list[bool]", "list[list]", "list[", "tuple[]", "set", "object", ""]  # fmt: skip
NUMPY_DTYPES = ["U5", "<U999999999", "S3", "|S0", "StringDType", "O", "<M8[ns]", "m8[s]", "M8",
                "f4,f4", "<M8[as]", "U", "i8"]  # fmt: skip
LAYOUTS = ["ragged", "ragged-shapes", "coo", "csr", "csc", "bsr", "bsc", "dia", "alias", "", "xyz"]
TENSORS = [
    int64s(), int64s(0), int64s(1), int64s(0, 1), int64s(0, 1, 2), int64s(2, 0, 1), int64s(0, 2), int64s(-1, 2),
    int64s(5, dims=()), int64s(0, 1, dims=(2, 1)), int64s(0, 0, dims=(1, 2)), int64s(dims=(0, 2)),
    int64s(1 << 62, dims=(1, 1)), tensor(3, (2,), number(7, 0), number(7, 1)), tensor(1, (2,), field(4, bytes(8))),
    tensor(1, (2, 1, 1), field(4, bytes(8))), tensor(STRING, (2,), field(8, b"a"), field(8, b"12")),
    tensor(STRING, (), field(8, b"12")), tensor(10, (0,)), tensor(10, (2,), field(4, b"\0\1")), tensor(9, ()),
    tensor(9, (), number(10, 7)), tensor(2, (), field(4, bytes(8))), tensor(1006, (2,), field(4, bytes(16))),
    tensor(1007, (), field(4, bytes(8))), tensor(11, (2,), field(4, b"ab")), tensor(29, (2,), field(4, b"\x0f\x01")),
    tensor(INT64, (1 << 40,)), tensor(INT64, (1000,), number(10, 1)), tensor(STRING, (1 << 40,), field(8, b"")),
    tensor(INT64, (0, 1 << 62, 4)), tensor(20, (1,)), tensor(200, (1,)), b"", b"\xff",
]  # fmt: skip

# The columns of a directory, more often right than wrong.
DIRECTORIES = st.builds(
    lambda *columns: b"".join(field(number, raw) for number, raw in enumerate(columns, 1)),
    st.sampled_from([b"ab", b"a", b"aa/0", b"", b"\xff\xfe"]), st.sampled_from([b"\1\1", b"\2\0", b"\1", b"\1\x80"]),
    st.sampled_from([b"\t\t", b"\7\t", b"\x63\t"]), st.sampled_from([b"\0\0", b"\0\4", b"\1\0", b"\x38\x40", b"\0"]),
    st.sampled_from([b"\0\0", b"\1\0", b"\x7f\0"]), st.sampled_from([b"", b"\0", b"\1", b"\3"]),
    st.sampled_from([b"", b"\x08"]), st.sampled_from([b"", bytes(4), b"\x1a\0\0\0", b"\xff" * 4]),
)  # fmt: skip


@st.composite
def extension(draw):
    which = draw(st.integers(0, 21))
    text = RAW_TEXTS
    return draw(
        [
            st.builds(lambda t: field(NAME, t), text),
            st.builds(lambda k, v: field(META, entry(k, v)), text, text),
            st.builds(lambda v: field(ORIGIN, entry("numpy.dtype", v)), st.sampled_from(NUMPY_DTYPES)),
            st.builds(lambda v: field(META, entry("framework", v)), text),
            st.builds(lambda k, v: field(ORIGIN, entry(k, v)), text, text),
            st.builds(lambda v: field(ORIGIN, entry("framework", v)), text),
            st.builds(lambda k, v: field(DOCUMENT_ORIGIN, entry(k, v)), text, text),
            st.builds(number, st.sampled_from([ROWS, ALIAS]), NUMBERS),
            st.builds(lambda level: number_step(6, level), st.integers(0, 3)),
            st.builds(lambda raw: field(DIRECTORY, raw), DIRECTORIES),
            st.builds(key_step, text),
            st.builds(number_step, st.integers(2, 6), NUMBERS),
            st.builds(lambda b: field(STEP, b), st.binary(max_size=3)),
            st.builds(place, NUMBERS, NUMBERS),
            st.builds(lambda n: number(ITEM, n), NUMBERS),
            st.builds(lambda k: field(KIND, k), st.sampled_from(KINDS)),
            st.builds(lambda k: field(LAYOUT, k), st.sampled_from(LAYOUTS)),
            st.builds(lambda t: field(ENCODING, t), st.sampled_from(["utf-8", "bytes", "utf-16", "", b"\xff"])),
            st.builds(lambda k, v: field(DOCUMENT, entry(k, v)), text, text),
            st.builds(lambda n: field(PADDING, bytes(n)), st.integers(0, 3)),
            st.builds(lambda b: tag(HEADER_CRC, 5) + b, st.binary(min_size=4, max_size=4)),
            st.builds(number, st.sampled_from([1003, 1010, 1011, 1012, 1013, 1014, 1499, 1500, 9999]), NUMBERS),
        ][which]
    )


@st.composite
def grammatical(draw):
    """A record: a tensor with extension fields, or a layout with parts."""
    extra = b"".join(draw(st.lists(extension(), max_size=3)))
    if draw(st.booleans()):
        parts = draw(st.lists(st.sampled_from(TENSORS), max_size=5))
        name = draw(st.sampled_from(LAYOUTS))
        return layout(name, *parts, extra=extra)
    body = draw(st.sampled_from(TENSORS))
    return body + extra if draw(st.booleans()) else extra + body


ALIASED = field(LAYOUT, "alias") + number(ALIAS, 0)


@st.composite
def structures(draw):
    """Records that claim to be the parts of one object."""
    count = draw(st.integers(1, 4))
    kinds = st.one_of(
        st.builds(key_step, st.sampled_from(["a", "b"])),
        st.builds(number_step, st.sampled_from([2, 3, 4]), st.integers(0, 2)),
        st.builds(number_step, st.just(5), st.integers(0, 2)),
    )
    out = []
    for part in range(count):
        path = b"".join(draw(st.lists(kinds, max_size=3)))
        kind = draw(st.sampled_from([b"", b"", field(KIND, "none"), field(KIND, "list"), field(KIND, "int")]))
        name = draw(st.sampled_from([b"", b"", field(NAME, "a"), field(NAME, "a/0")]))
        body = draw(
            st.sampled_from([tensor(9, (), field(4, bytes(8))), tensor(10, (0,)), tensor(STRING, (), field(8, "a"))])
        )
        more = draw(st.sampled_from([b"", b"", number(ROWS, 0), number(ROWS, 1), number_step(6, 0), ALIASED]))
        told = field(DIRECTORY, draw(DIRECTORIES)) if draw(st.integers(0, 3)) == 0 else b""
        out.append(body + name + path + place(part, count) + kind + more + told)
    return out


@given(st.lists(grammatical(), min_size=1, max_size=2))
@example([tensor(STRING, (1,), field(8, b"x"), field(KIND, "list[int]"))])
@example([layout("ragged", int64s(0, 1), int64s(5, dims=()), int64s(3))])
@example([layout("coo", int64s(dims=(0, 1)), int64s(), int64s(5, dims=()))])
@example([layout("ragged-shapes", int64s(0, 0), int64s(), int64s(0, *[1 << 62] * 62, dims=(1, 63)))])
@example([shape(1) + number(1, 9) + field(LAYOUT, "") + field(8, b"a")])
def test_records_of_the_grammar(payloads):
    check(framed(*payloads))


@given(structures())
def test_structures_of_the_grammar(payloads):
    check(framed(*payloads))


UNKNOWN_TO_NUMPY = {
    "a unit beyond 32 bits": tensor(
        1006, (1,), field(4, bytes(8)), field(ORIGIN, entry("numpy.dtype", "M8[9999999999s]"))
    ),
    "another family": tensor(1006, (1,), field(4, bytes(8)), field(ORIGIN, entry("numpy.dtype", "m8[s]"))),
    "a string that would be cut": tensor(
        STRING, (1,), field(ORIGIN, entry("numpy.dtype", "U5")), field(ENCODING, "utf-8"), field(8, b"a\0")
    ),
    "text too wide": tensor(STRING, (0,), field(ORIGIN, entry("numpy.dtype", "U999999999")), field(ENCODING, "utf-8")),
}


@pytest.mark.parametrize("case", UNKNOWN_TO_NUMPY)
def test_metadata_that_numpy_does_not_understand(case):
    with pytest.raises(errors.TensorbytesError):
        tb.loads(framed(UNKNOWN_TO_NUMPY[case]))


@given(st.binary(max_size=60))
def test_any_bytes_as_a_tensorproto(raw):
    for format in ("tensorproto", "sparseproto", None):
        with contextlib.suppress(errors.TensorbytesError):
            tb.loads(raw, format, limits=LIMITS)
    check(framed(raw))


# ---- canonical --------------------------------------------------------------

ARRAYS = st.builds(
    lambda dtype, dims: np.zeros(dims, dtype) + np.ones((), dtype),
    st.sampled_from(["f4", "i8", "u1", "c8", "f2"]),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
)
LEAVES = st.one_of(
    ARRAYS, st.integers(), st.floats(), st.booleans(), st.none(), st.binary(max_size=5),
    st.text(st.characters(codec="utf-8"), max_size=5), st.lists(st.integers(), max_size=3), st.complex_numbers(),
)  # fmt: skip
KEYS = st.one_of(st.text(st.characters(codec="utf-8"), max_size=3), st.integers(-(1 << 63), (1 << 63) - 1))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(KEYS, inner)),
    max_leaves=8,
)


@given(TREES)
def test_encoding_what_was_decoded_gives_the_same_bytes(obj):
    raw = tb.dumps(obj)
    assert rewrite(raw) == raw
    assert tb.dumps(tb.loads(raw)) == raw
