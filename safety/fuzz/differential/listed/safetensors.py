"""Against the safetensors library."""

from safety.fuzz.differential.listing import THEIRS, Divergence
from tests.support.safetensors_cases import dims, entry, file, one

_PAIR = ("safetensors",)
ROWS = [
    Divergence(
        _PAIR,
        THEIRS,
        "is not a valid bool",
        "a bool byte other than 0 and 1",
        "no value: compilers may take it for either",
        one("BOOL", (1,), (0, 1), body=b"\2"),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        "appears twice",
        "a key twice in one JSON object",
        "parsers disagree about which one counts",
        file('{"__metadata__":{"a":"1","a":"2"}}'),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        r"rank \d+, over the limit",
        "rank over 64",
        "NumPy has at most 64 dimensions; `limits=` decides",
        one(shape=(1,) * 65, offsets=(0, 1)),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        "more bytes than 64 bits can count",
        "no elements, but the other dimensions overflow",
        "they refuse the same dimensions in another order; the order is no reason",
        dims("[0,4611686018427387904,4611686018427387904]"),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        r"a number of \d+ digits",
        "a number of over 40 digits under a key that nobody knows",
        "no format needs one",
        file('{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1],"y":' + "9" * 41 + "}}", b"\0"),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        "must hold text alone",
        "`__metadata__` of null",
        "no object of texts",
        file('{"__metadata__":null}'),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        "must have a dtype, a shape and data_offsets",
        "an entry as a list of three",
        "the specification wants an object",
        file('{"x":["U8",[],[0,1]]}', b"\0"),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        "must have a dtype, a list of dimensions",
        "a dtype as an object",
        "the specification wants a string",
        file('{"x":{"dtype":{"U8":null},"shape":[],"data_offsets":[0,1]}}', b"\0"),
    ),
    Divergence(
        _PAIR,
        THEIRS,
        "the metadata 'tensorbytes'|a note for|the note of",
        "the metadata key `tensorbytes` with something else in it",
        "reserved for our notes; guessing would change values",
        file({"__metadata__": {"tensorbytes": "[]"}, "x": entry()}, bytes(4)),
    ),
]
