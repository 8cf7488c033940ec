"""Example and SequenceExample against protobuf's own parser, on messages drawn from the grammar of the format.

Both give the same features, or both refuse, or the difference is one of DIVERGENCES.
"""

import struct
import subprocess
import sys

import numpy as np
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import event, given
from hypothesis import strategies as st

from tensorbytes import errors
from tensorbytes.formats.tfrecord.example import (
    canonical,
    encode_example,
    encode_sequence,
    parse_example,
    parse_sequence,
)
from tests.support.example_bytes import (
    BROKEN,
    BYTES,
    FLOAT,
    INT64,
    MAPS,
    MISSING,
    by_entries,
    by_maps,
    grammars,
    plain,
    plain_map,
    seeded,
)
from tests.support.wire_bytes import (
    DELIMITED,
    END_GROUP,
    FIXED32,
    FIXED64,
    START_GROUP,
    VARINT,
    field,
    number,
    overlong,
    tag,
    varint,
)

LONG = "a tag or a length in six to ten bytes"
ENTRY = "an unknown field in a map entry"
DIVERGENCES = {
    LONG: "protobuf's readers in C and C++ stop at five; nothing is lost by reading on",
    ENTRY: "protobuf's reader for Python drops the whole entry in silence, its reader for C++ only the field",
}


def ours(raw, sequence):
    """What we read in the form of `by_maps`, None if we refuse."""
    try:
        if not sequence:
            return plain_map(parse_example(raw))
        context, lists = parse_sequence(raw)
    except errors.CorruptError as error:
        return None if 0 <= error.at <= len(raw) else f"an error outside the bytes: {error}"
    return plain_map(context), plain_map(lists)


def compare(raw, sequence, long=False):
    """The verdict, once both have come to it; `long` allows the first of DIVERGENCES."""
    got = ours(raw, sequence)
    expected = by_entries(raw, sequence)
    if long and expected is None and got is not None:
        return LONG
    assert got == expected
    read_by_maps = by_maps(raw, sequence)
    assert read_by_maps == by_entries(raw, sequence, whole=False)
    if got is None:
        return "both refuse"
    check_canonical(raw, sequence, got)
    return "both read" if read_by_maps == expected else ENTRY


def check_canonical(raw, sequence, expected):
    """Protobuf reads the canonical form as the same message, and needs as many bytes for it; keys are sorted."""
    usual = canonical(raw, sequence)
    assert by_maps(usual, sequence) == by_entries(usual, sequence) == expected
    assert MAPS[sequence].FromString(usual).ByteSize() == len(usual)
    for found in by_entries(usual, True):
        assert list(found) == sorted(found)
    assert canonical(usual, sequence) == usual


@pytest.mark.parametrize("sequence", [False, True], ids=["Example", "SequenceExample"])
@pytest.mark.parametrize("odd", [1, 2], ids=["sound", "any"])
@given(data=st.data())
def test_the_same_verdict_and_the_same_features(sequence, odd, data):
    grammar = data.draw(grammars(odd))
    verdict = compare(grammar.record(sequence), sequence, grammar.long)
    assert odd == 2 or verdict != "both refuse"
    event(verdict)


@pytest.mark.deep  # the properties above draw some of these
@pytest.mark.parametrize("sequence", [False, True], ids=["Example", "SequenceExample"])
def test_the_same_on_many_more(sequence):
    seen = set()
    for seed in range(2000):
        grammar = seeded(seed, 1 + seed % 2)
        raw = grammar.record(sequence)
        try:
            seen.add(compare(raw, sequence, grammar.long))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {raw.hex()}") from error
    assert seen == {"both read", "both refuse", *DIVERGENCES}


@given(st.binary(max_size=30), st.booleans())
def test_the_same_verdict_on_any_bytes(raw, sequence):
    event(compare(raw, sequence, long=True))


# ---- one by one: the table of formats.md, and the lists above ----------------


def feature(kind, *values):
    return field(kind, b"".join(values))


def entry(key, *values):
    return field(1, field(1, key) + b"".join(field(2, value) for value in values))


def example(*entries):
    return field(1, b"".join(entries))


ONE, TWO = number(1, 1), number(1, 2)
FLOATS = struct.pack("<2f", 1, 2)
CASES = {
    "an empty message": (b"", {}),
    "empty features": (example(), {}),
    "packed items": (
        b"\x0a\x1e\x0a\x0d\x0a\x01a\x12\x08\x1a\x06\x0a\x04\x01\x02\xac\x02\x0a\x0d\x0a\x01b\x12\x08\x12\x06\x0a\x04\0\0\x80\x3f",
        {"a": (INT64, [1, 2, 300]), "b": (FLOAT, struct.pack("<f", 1))},
    ),
    "unpacked integers": (example(entry("a", feature(3, ONE, TWO))), {"a": (INT64, [1, 2])}),
    "unpacked floats": (
        example(entry("a", feature(2, tag(1, FIXED32) + FLOATS[:4], tag(1, FIXED32) + FLOATS[4:]))),
        {"a": (FLOAT, FLOATS)},
    ),
    "several packed chunks": (
        example(entry("a", feature(3, field(1, b"\1\2"), field(1, b""), field(1, b"\3")))),
        {"a": (INT64, [1, 2, 3])},
    ),
    "packed and unpacked mixed": (
        example(entry("a", feature(3, field(1, b"\1\2"), number(1, 3), number(1, 4), field(1, b"\5")))),
        {"a": (INT64, [1, 2, 3, 4, 5])},
    ),
    "a duplicate key": (
        example(entry("a", feature(3, ONE)), entry("b", b""), entry("a", feature(1, field(1, b"x")))),
        {"a": (BYTES, [b"x"]), "b": (MISSING, None)},
    ),
    "a duplicate key without a kind": (example(entry("a", feature(3, ONE)), entry("a", b"")), {"a": (MISSING, None)}),
    "repeated features": (
        example(entry("a", feature(3, ONE)), entry("b", feature(3, ONE))) + example(entry("a", feature(3, TWO))),
        {"a": (INT64, [2]), "b": (INT64, [1])},
    ),
    "the value before the key": (example(field(1, field(2, feature(3, ONE)) + field(1, "a"))), {"a": (INT64, [1])}),
    "a missing key": (example(field(1, field(2, feature(3, ONE)))), {"": (INT64, [1])}),
    "a missing value": (example(entry("a")), {"a": (MISSING, None)}),
    "an empty entry": (example(field(1, b"")), {"": (MISSING, None)}),
    "two keys": (example(field(1, field(1, "a") + field(2, feature(3, ONE)) + field(1, "b"))), {"b": (INT64, [1])}),
    "two values": (example(entry("a", feature(3, ONE), feature(3, TWO))), {"a": (INT64, [1, 2])}),
    "two values of two kinds": (example(entry("a", feature(3, ONE), feature(2))), {"a": (FLOAT, b"")}),
    "an unknown field around all": (
        number(9, 1) + example(entry("a", b"")) + field(2, b"\xff"),
        {"a": (MISSING, None)},
    ),
    "an unknown field among entries": (example(field(2, b"x"), entry("a", b"")), {"a": (MISSING, None)}),
    "an unknown field in a feature": (example(entry("a", feature(3, ONE) + field(4, b"x"))), {"a": (INT64, [1])}),
    "an unknown field in a list": (example(entry("a", feature(3, ONE, field(2, b"x"), TWO))), {"a": (INT64, [1, 2])}),
    "an unknown group": (
        example(entry("a", feature(3, ONE, tag(7, START_GROUP) + field(1, b"\5") + tag(7, END_GROUP)))),
        {"a": (INT64, [1])},
    ),
    "the same member twice": (example(entry("a", feature(3, ONE) + feature(3, TWO))), {"a": (INT64, [1, 2])}),
    "another member": (example(entry("a", feature(3, ONE) + feature(1, field(1, b"x")))), {"a": (BYTES, [b"x"])}),
    "another member and back": (
        example(entry("a", feature(3, ONE) + feature(2) + feature(3, TWO))),
        {"a": (INT64, [2])},
    ),
    "kind unset": (example(entry("a", b"")), {"a": (MISSING, None)}),
    "empty lists": (
        example(entry("a", feature(1)), entry("b", feature(2)), entry("c", feature(3, field(1, b"")))),
        {"a": (BYTES, []), "b": (FLOAT, b""), "c": (INT64, [])},
    ),
    "an empty string": (example(entry("a", feature(1, field(1, b"")))), {"a": (BYTES, [b""])}),
    "a negative number": (example(entry("a", feature(3, tag(1, VARINT) + b"\xff" * 9 + b"\1"))), {"a": (INT64, [-1])}),
    "a number of over 64 bits": (
        example(entry("a", feature(3, field(1, b"\xff" * 9 + b"\x7f")))),
        {"a": (INT64, [-1])},
    ),
    "a number in ten bytes": (example(entry("a", feature(3, field(1, overlong(5, 10))))), {"a": (INT64, [5])}),
    "a tag and a length in five bytes": (overlong(10, 5) + overlong(0, 5), {}),
    "integers of another wire type": (
        example(entry("a", feature(3, tag(1, FIXED32) + bytes(4), TWO, tag(1, FIXED64) + bytes(8)))),
        {"a": (INT64, [2])},
    ),
    "floats of another wire type": (
        example(entry("a", feature(2, ONE, tag(1, FIXED64) + bytes(8)))),
        {"a": (FLOAT, b"")},
    ),
    "strings of another wire type": (example(entry("a", feature(1, ONE, field(1, b"x")))), {"a": (BYTES, [b"x"])}),
    "a list of another wire type": (
        example(entry("a", feature(3, ONE) + number(1, 5) + feature(3, TWO))),
        {"a": (INT64, [1, 2])},
    ),
    "features of another wire type": (number(1, 1), {}),
    "a key with a null": (example(entry("\0", b"")), {"\0": (MISSING, None)}),
    "a key beyond ASCII": (example(entry("Größe 🙂", b"")), {"Größe 🙂": (MISSING, None)}),
}


@pytest.mark.parametrize("case", CASES)
def test_cases_that_both_read(case):
    raw, expected = CASES[case]
    assert ours(raw, False) == expected == by_maps(raw, False)
    compare(raw, False)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("an unknown field around")])
def test_the_context_of_a_sequence_is_an_example(case):
    raw, expected = CASES[case]
    assert ours(raw, True) == (expected, {})
    compare(raw, True)


STEP = field(1, feature(3, ONE))
SEQUENCES = {
    "lists before the context": (
        field(2, entry("a", STEP)) + example(entry("a", feature(3, TWO))),
        ({"a": (INT64, [2])}, {"a": [(INT64, [1])]}),
    ),
    "a step without a kind": (field(2, entry("a", field(1, b"") + STEP)), ({}, {"a": [(MISSING, None), (INT64, [1])]})),
    "steps of two kinds": (
        field(2, entry("a", STEP + field(1, feature(2)))),
        ({}, {"a": [(INT64, [1]), (FLOAT, b"")]}),
    ),
    "no steps": (field(2, entry("a", b"")), ({}, {"a": []})),
    "no list": (field(2, entry("a")), ({}, {"a": []})),
    "a list in two pieces": (field(2, entry("a", STEP, STEP)), ({}, {"a": [(INT64, [1]), (INT64, [1])]})),
    "repeated feature_lists": (
        field(2, entry("a", STEP) + entry("b", STEP)) + field(2, entry("a", b"")),
        ({}, {"a": [], "b": [(INT64, [1])]}),
    ),
    "an unknown field in a list": (field(2, entry("a", STEP + number(2, 1))), ({}, {"a": [(INT64, [1])]})),
    "the value before the key": (field(2, field(1, field(2, STEP) + field(1, "a"))), ({}, {"a": [(INT64, [1])]})),
}


@pytest.mark.parametrize("case", SEQUENCES)
def test_sequences_that_both_read(case):
    raw, expected = SEQUENCES[case]
    assert ours(raw, True) == expected == by_maps(raw, True)
    compare(raw, True)


# Where something may stand in an Example: what is around it.
LEVELS = {
    "the Example": lambda raw: raw,
    "the Features": lambda raw: example(raw),
    "an entry": lambda raw: example(field(1, field(1, "a") + raw)),
    "a Feature": lambda raw: example(entry("a", raw)),
    "a list": lambda raw: example(entry("a", feature(3, raw))),
    "a list that is replaced": lambda raw: example(entry("a", feature(3, raw) + feature(2))),
    "an entry that is replaced": lambda raw: example(field(1, field(1, "a") + raw), entry("a", b"")),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("raw", BROKEN, ids=lambda raw: raw[:8].hex())
def test_what_both_refuse_at_any_level(level, raw):
    data = LEVELS[level](raw)
    assert ours(data, False) is by_maps(data, False) is None


REFUSED = {
    "floats of three bytes": example(entry("a", feature(2, field(1, b"abc")))),
    "a packed number that is cut": example(entry("a", feature(3, field(1, b"\1\x80")))),
    "a number of eleven bytes": example(entry("a", feature(3, tag(1, VARINT) + overlong(1, 11)))),
    "a packed number of eleven bytes": example(entry("a", feature(3, field(1, overlong(1, 11))))),
    "a number cut by its list": example(entry("a", field(3, tag(1, VARINT) + b"\x80") + b"\x01")),
    "a key that is not UTF-8": example(entry(b"\xff", b"")),
    "a key with half a surrogate pair": example(entry(b"\xed\xa0\x80", b"")),
    "such a key before another": example(field(1, field(1, b"\xff") + field(1, "b"))),
    "a length past the end": b"\x0a\x01",
    "a length past the end of its message": example(b"\x0a\x02\x0a") + b"\0\0",
    "a malformed list that is replaced": example(entry("a", feature(2, field(1, b"abc")) + feature(3, ONE))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_cases_that_both_refuse(case):
    raw = REFUSED[case]
    assert ours(raw, False) is by_maps(raw, False) is None
    with pytest.raises(errors.CorruptError):
        canonical(raw, False)


@pytest.mark.parametrize("depth", range(96, 102))
@pytest.mark.parametrize("level", LEVELS)
def test_groups_may_be_nested_as_deep_as_protobuf_lets_them(level, depth):
    raw = LEVELS[level](tag(9, START_GROUP) * depth + tag(9, END_GROUP) * depth)
    assert ours(raw, False) == by_entries(raw, False)


def test_groups_in_the_lists_of_a_sequence():
    for depth in range(93, 98):
        raw = field(2, entry("a", field(1, feature(3, tag(9, START_GROUP) * depth + tag(9, END_GROUP) * depth))))
        assert ours(raw, True) == by_maps(raw, True)


@pytest.mark.parametrize("size", range(6, 11))
def test_long_tags_and_lengths_are_read(size):
    usual = field(1, entry("a", feature(3, ONE)))
    for raw in (overlong(10, size) + usual[1:], usual[:1] + overlong(usual[1], size) + usual[2:]):
        assert by_maps(raw, False) is None, DIVERGENCES[LONG]
        assert ours(raw, False) == {"a": (INT64, [1])}


def test_an_unknown_field_in_an_entry_costs_no_feature():
    raw = example(field(1, field(1, "a") + field(2, feature(3, ONE)) + number(3, 5)), entry("b", b""))
    assert by_maps(raw, False) == {"b": (MISSING, None)}, DIVERGENCES[ENTRY]
    assert ours(raw, False) == {"a": (INT64, [1]), "b": (MISSING, None)}


def test_cpp_protobuf_keeps_the_feature_as_well(tmp_path):
    file = descriptor_pb2.FileDescriptorProto()
    MAPS[False].DESCRIPTOR.file.CopyToProto(file)
    schema = tmp_path / "schema"
    schema.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"--descriptor_set_in={schema}", "--decode=maps.Example"]
    raw = example(field(1, field(1, "a") + field(2, feature(3, ONE)) + number(3, 5)))
    text = subprocess.run([*protoc, file.name], input=raw, capture_output=True, check=True).stdout
    assert text.split() == b'features { feature { key: "a" value { int64_list { value: 1 } } } }'.split()


def test_every_cut_of_a_message_gets_the_same_verdict():
    raw = b"".join(case for case, _ in CASES.values())
    for end in range(len(raw)):
        assert ours(raw[:end], False) == by_entries(raw[:end], False)


# ---- the values, and writing ------------------------------------------------


def test_values_have_their_types_and_can_be_changed():
    found = parse_example(bytearray(CASES["packed items"][0]))
    assert found["a"][1].dtype == np.int64
    assert found["b"][1].dtype == np.float32
    found["a"][1][0] = found["b"][1][0] = 7
    assert plain(found["a"]) == (INT64, [7, 2, 300])


def test_any_buffer_is_read():
    raw = CASES["packed items"][0]
    for buffer in (bytearray(raw), memoryview(raw), np.frombuffer(raw, np.uint8)):
        assert plain_map(parse_example(buffer)) == CASES["packed items"][1]


def test_bits_of_floats_are_kept():
    bits = struct.pack("<4I", 0x7F800001, 0xFFC00123, 0x80000000, 1)
    raw = example(entry("a", feature(2, field(1, bits))))
    assert canonical(raw, False) == raw


def test_an_error_says_where():
    raw = example(entry("a", feature(2, field(1, b"abc"))))
    with pytest.raises(errors.CorruptError, match=r"multiple of 4 bytes, got 3 \(byte 11\)"):
        parse_example(raw)


def test_canonical_bytes():
    features = {"é": (INT64, np.array([1, -1])), "b": (BYTES, [b"", b"xy"]), "": (MISSING, None), "a": (FLOAT, [])}
    assert encode_example(features) == example(
        field(1, b"\x0a\0\x12\0"),
        field(1, b"\x0a\1a\x12\2\x12\0"),
        field(1, b"\x0a\1b\x12\x08\x0a\6\x0a\0\x0a\2xy"),
        field(1, b"\x0a\2\xc3\xa9\x12\x0f\x1a\x0d\x0a\x0b\1" + varint(-1)),
    )
    assert encode_sequence({}, {"a": [(INT64, [1]), (MISSING, None)]}) == b"\x0a\0" + field(
        2, field(1, b"\x0a\1a" + field(2, b"\x0a\5\x1a\3\x0a\1\1\x0a\0"))
    )
    assert encode_example({}) == b"\x0a\0"


def test_what_can_not_be_written_is_refused():
    with pytest.raises(errors.UsageError, match="surrogate"):
        encode_example({"\ud800": (MISSING, None)})
    with pytest.raises(errors.UsageError, match="unknown kind 4"):
        encode_example({"a": (4, [])})


def test_a_length_of_many_digits_is_not_believed():
    for length in (1 << 31, 1 << 32, (1 << 63) - 1, (1 << 64) - 1):
        raw = b"\x0a" + varint(length)
        assert ours(raw, False) is by_maps(raw, False) is None
        assert ours(tag(9, DELIMITED) + varint(length) + b"x", True) is None
