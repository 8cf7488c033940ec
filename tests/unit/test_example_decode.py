"""Records to columns in one pass: compiled against reference, and both against the general parser."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import example_decode_reference as reference
from tensorbytes.formats.tfrecord.example import encode_example, encode_sequence, parse_sequence
from tests.support.example_bytes import BYTES, FLOAT, INT64, KEYS, MISSING, grammars, plain, seeded
from tests.support.wire_bytes import field

BOTH = [compiled, reference]
KERNELS = pytest.mark.parametrize("kernel", BOTH, ids=["compiled", "reference"])
DONE, DAMAGED, ODD, ROOM = range(4)
DTYPES = {BYTES: np.uint8, FLOAT: np.float32, INT64: np.int64}
PLENTY = 4000


class Columns:
    """Columns of (key, kind, optional, width), of features and of feature lists, and room for what they take."""

    def __init__(self, features, lists=(), room=PLENTY, rows=50):
        self.specs = [(*spec, False) for spec in sorted(features, key=by_key)]
        self.specs += [(*spec, True) for spec in sorted(lists, key=by_key)]
        keys = [spec[0].encode() for spec in self.specs]
        self.keys, self.offsets = b"".join(keys), np.cumsum([0, *map(len, keys)])
        self.fields = np.array([spec[1:4] for spec in self.specs], np.int64).reshape(-1, 3)
        self.features = len(features)
        self.arrays = []
        for _, kind, optional, width, in_lists in self.specs:
            ints = np.empty(room + 1, np.int64)
            splits = width < 0 or (optional and not in_lists)
            self.arrays += [
                np.empty(room, DTYPES[kind]),
                ints.copy() if kind == BYTES else None,
                ints.copy() if splits else None,
                np.empty(rows + 1, np.int64) if in_lists else None,
                np.empty(rows, bool) if optional else None,
            ]

    def decode(self, kernel, data, places, verify=False, row=0, closed=False):
        done, outcome, column = kernel.example_decode(
            data, places, verify, row, self.keys, self.offsets, self.fields, self.features, closed, self.arrays
        )
        return done, outcome, column if outcome == ROOM else None

    def grow(self, column):
        for kind in range(5):
            old = self.arrays[5 * column + kind]
            if old is not None:
                self.arrays[5 * column + kind] = np.resize(old, 2 * len(old) + 1)

    def rows(self, count):
        """What each column has in the first records: None where it is missing, (kind, values), or a list of them."""
        found = {}
        for number, (key, kind, _, width, in_lists) in enumerate(self.specs):
            values, strings, splits, steps, present = self.arrays[5 * number : 5 * number + 5]
            lists = int(steps[count]) if in_lists else count
            bounds = splits[: lists + 1].tolist() if splits is not None else [n * width for n in range(lists + 1)]
            items = [self._list(kind, values, strings, *pair) for pair in itertools.pairwise(bounds)]
            if in_lists:
                items = [items[a:b] for a, b in itertools.pairwise(steps[: count + 1].tolist())]
            if present is not None:
                items = [item if there else None for item, there in zip(items, present.tolist(), strict=False)]
            found[key, in_lists] = items
        return found

    def _list(self, kind, values, strings, start, stop):
        if kind == BYTES:
            return kind, [values[a:b].tobytes() for a, b in itertools.pairwise(strings[start : stop + 1].tolist())]
        return kind, values[start:stop].tobytes() if kind == FLOAT else values[start:stop].tolist()


def by_key(spec):
    return spec[0].encode()


def framed(payloads):
    """Records with their frames: (bytes, places of the payloads)"""
    data, places = b"", []
    for payload in payloads:
        places.append((len(data) + 12, len(payload)))
        data += bytes(_wire.frames([[payload]]))
    return data, np.array(places, np.int64).reshape(-1, 2)


def agree(make, data, places, **how):
    """Both kernels, each on columns of its own: what they say, and one of the columns."""
    columns = [make() for _ in BOTH]
    said = [each.decode(kernel, data, places, **how) for each, kernel in zip(columns, BOTH, strict=True)]
    assert said[0] == said[1]
    assert columns[0].rows(said[0][0]) == columns[1].rows(said[1][0])
    return said[0], columns[0]


SPECS = st.tuples(st.sampled_from([BYTES, FLOAT, INT64]), st.booleans(), st.sampled_from([-1, -1, 0, 1, 2]))


@st.composite
def wanted(draw):
    """Specs of some of the keys that the grammar draws from."""
    keys = draw(st.lists(st.sampled_from([*KEYS, "other"]), unique=True, max_size=4))
    return [(key, *draw(SPECS)) for key in keys]


# ---- parity -------------------------------------------------------------------


@given(st.lists(grammars(2), max_size=4), st.booleans(), wanted(), wanted(), st.booleans(), st.sampled_from([0, 3, 40]))
def test_both_kernels_add_the_same(made, sequence, features, lists, closed, room):
    data, places = framed([grammar.record(sequence) for grammar in made])
    for space in (room, PLENTY):
        agree(lambda space=space: Columns(features, lists, space, rows=3), data, places, verify=True, closed=closed)


@given(st.lists(grammars(1), min_size=1, max_size=4), wanted(), wanted())
def test_records_that_are_left_out_leave_no_trace(made, features, lists):
    """What stops a call is passed over: the columns then hold all others, as if it had never been there."""
    payloads = [grammar.record(True) for grammar in made]
    data, places = framed(payloads)
    for kernel in BOTH:
        columns, row, at, kept = Columns(features, lists), 0, 0, []
        while at < len(places):
            done, outcome, _ = columns.decode(kernel, data, places[at:], row=row)
            kept += payloads[at : at + done]
            row, at = row + done, at + done + (outcome != DONE)
        again = Columns(features, lists)
        assert again.decode(kernel, *framed(kept)) == (len(kept), DONE, None)
        assert columns.rows(row) == again.rows(row)


@given(st.lists(grammars(0), min_size=1, max_size=4), wanted(), wanted())
def test_columns_grow_where_they_have_no_room(made, features, lists):
    data, places = framed([grammar.record(True) for grammar in made])
    (done, outcome, _), enough = agree(lambda: Columns(features, lists), data, places)
    for kernel in BOTH:
        columns, row = Columns(features, lists, room=0, rows=0), 0
        while True:
            more, why, column = columns.decode(kernel, data, places[row:], row=row)
            row += more
            if why != ROOM:
                break
            columns.grow(column)
        assert (row, why) == (done, outcome)
        assert columns.rows(row) == enough.rows(row)


@pytest.mark.deep  # the properties above draw some of these
@pytest.mark.parametrize("sequence", [False, True], ids=["Example", "SequenceExample"])
def test_both_kernels_add_the_same_of_many_more(sequence):
    rng = np.random.default_rng(7)
    for seed in range(300):
        data, places = framed([seeded(seed * 10 + i, i % 3).record(sequence) for i in range(6)])
        specs = [
            [
                (key, int(rng.integers(1, 4)), bool(rng.integers(2)), int(rng.integers(-1, 3)))
                for key in rng.permutation(KEYS)[: rng.integers(0, 5)].tolist()
            ]
            for _ in range(2)
        ]
        for start in range(6):
            agree(lambda specs=specs: Columns(*specs), data, places[start:], closed=bool(seed % 2))


def test_arbitrary_bytes_agree():
    rng = np.random.default_rng(0)
    alphabet = np.frombuffer(b"\x0a\x0a\x0a\x12\x1a\x08\x0d\x00\x01\x02\x03\x04\x80\xffa", np.uint8)
    for seed in range(600):
        raw = rng.choice(alphabet, rng.integers(1, 30)).tobytes()
        kind = seed % 3 + 1
        specs = [("", kind, True, -1), ("a", kind, True, seed % 4 - 1)]
        agree(lambda specs=specs: Columns(specs, specs), raw, np.array([[0, len(raw)]]))


# ---- the general parser ---------------------------------------------------------


@KERNELS
def test_what_is_added_is_what_the_parser_reads(kernel):
    read = 0
    for seed in range(600):
        raw = seeded(seed, seed % 3, unique=True).record(True)
        for kind in (BYTES, FLOAT, INT64):
            specs = [(key, kind, True, -1) for key in KEYS]
            columns = Columns(specs, specs)
            done, _, _ = columns.decode(kernel, raw, np.array([[0, len(raw)]]))
            if not done:
                continue
            context, lists = parse_sequence(raw)
            found = columns.rows(1)
            for key in KEYS:
                expected = context.get(key, (MISSING, None))
                assert found[key, False] == [plain(expected) if expected[0] else None]
                expected = lists.get(key)
                nothing = kind, b"" if kind == FLOAT else []
                steps = expected and [plain(step) if step[0] else nothing for step in expected]
                assert found[key, True] == [steps]
            read += 1
    assert read > 60


# ---- what stops a call ------------------------------------------------------------


def one(**features):
    return encode_example(features)


@KERNELS
@pytest.mark.parametrize(
    "payload",
    [
        one(),
        one(a=(FLOAT, [1.0])),
        one(a=(INT64, [])),
        one(a=(INT64, [1, 2])),
        one(a=(MISSING, None)),
        one(a=(INT64, [1]), b=(INT64, [1])),
        one(a=(INT64, [1]))[:-1],
        one(a=(INT64, [1])) * 2,
        field(1, 2 * field(1, field(1, "a") + field(2, field(3, field(1, b"\x01"))))),
        encode_sequence({"a": (INT64, [1])}, {"c": []}),
    ],
    ids=["missing", "kind", "none", "two", "empty", "unknown", "cut", "twice", "key twice", "unknown list"],
)
def test_odd_records(kernel, payload):
    good = one(a=(INT64, [5]))
    data, places = framed([good, payload, good])
    columns = Columns([("a", INT64, False, 1)])
    assert columns.decode(kernel, data, places, closed=True) == (1, ODD, None)
    assert columns.decode(kernel, data, places[2:], row=1, closed=True) == (1, DONE, None)
    assert columns.rows(2)["a", False] == [(INT64, [5]), (INT64, [5])]


@KERNELS
@pytest.mark.parametrize("which", range(7))
def test_damage_stops_at_its_record_and_leaves_those_before(kernel, which):
    data, places = framed([one(a=(INT64, [number])) for number in range(7)])
    harmed = bytearray(data)
    harmed[places[which].sum() - 1] ^= 0x10
    columns = Columns([("a", INT64, False, 1)])
    assert columns.decode(kernel, bytes(harmed), places, verify=True) == (which, DAMAGED, None)
    assert columns.rows(which)["a", False] == [(INT64, [number]) for number in range(which)]
    assert columns.decode(kernel, bytes(harmed), places)[0] == 7


@KERNELS
def test_many_features_in_changing_order(kernel):
    keys = [f"key{i:03}" for i in range(300)]
    rng = np.random.default_rng(1)
    payloads = []
    for row in range(5):
        entries = [field(1, field(1, key) + field(2, field(3, field(1, bytes([row]))))) for key in keys]
        payloads.append(field(1, b"".join(rng.permutation(np.array(entries, object)))))
    data, places = framed(payloads)
    columns = Columns([(key, INT64, False, 1) for key in keys[::3]])
    assert columns.decode(kernel, data, places, verify=True) == (5, DONE, None)
    for found in columns.rows(5).values():
        assert found == [(INT64, [row]) for row in range(5)]
    assert columns.decode(kernel, data, places, closed=True) == (0, ODD, None)


@KERNELS
@pytest.mark.parametrize("count", [0, 1, 40, 3000])
def test_every_key_is_found_and_no_other(kernel, count):
    """Keys that differ in one place, at the start, the middle or the end, and in their length."""
    keys = sorted({f"{i % 7}{'x' * (i % 19)}{i}{'y' * (i % 3)}".encode() for i in range(count)})
    entries = [field(1, field(1, key) + field(2, field(3, field(1, b"\x07")))) for key in keys]
    others = [field(1, field(1, key + b"!") + field(2, b"")) for key in keys[:50]]
    data, places = framed([field(1, b"".join(others + entries[::-1]))])
    columns = Columns([(key.decode(), INT64, False, 1) for key in keys], room=1)
    assert columns.decode(kernel, data, places) == (1, DONE, None)
    assert all(found == [(INT64, [7])] for found in columns.rows(1).values())


# ---- wrong calls --------------------------------------------------------------------


def call(data=bytes(20), places=((0, 4),), verify=0, row=0, keys=b"ab", offsets=(0, 1, 2),
         fields=((3, 0, 1), (1, 1, -1)), features=2, closed=0, arrays=None):  # fmt: skip
    ints = [np.zeros(9, np.int64) for _ in range(4)]
    usual = [ints[0], None, None, None, None, bytearray(9), ints[1], ints[2], None, bytearray(9)]
    fields, offsets = np.array(fields, np.int64), np.array(offsets, np.int64)
    arrays = usual if arrays is None else [usual[i] if array == "usual" else array for i, array in enumerate(arrays)]
    return data, np.array(places, np.int64), verify, row, keys, offsets, fields, features, closed, arrays


USUAL = ["usual"] * 10
FAR = np.full(9, 1 << 62)


@KERNELS
def test_the_call_that_the_wrong_ones_are_made_of_is_right(kernel):
    assert kernel.example_decode(*call(places=((0, 0),)))[:2] == (0, ODD)
    assert kernel.example_decode(*call(places=((16, 0),), verify=1))[:2] in ((0, DAMAGED), (0, ODD))


@KERNELS
@pytest.mark.parametrize(
    "how",
    [
        {"places": ((0, 21),)},
        {"places": ((-1, 4),)},
        {"places": ((4, -1),)},
        {"places": ((0, 1 << 62),)},
        {"places": ((1 << 62, 1),)},
        {"places": ((0, 17),), "verify": 1},
        {"data": b"", "places": ((0, 0),), "verify": 1},
        {"keys": b"ba"},
        {"keys": b"aa"},
        {"offsets": (0, 1)},
        {"offsets": ()},
        {"offsets": (0, 1, 3)},
        {"offsets": (0, 2, 1)},
        {"offsets": (-1, 1, 2)},
        {"features": 3},
        {"features": 1},
        {"fields": ((3, 0, 1),)},
        {"fields": ((0, 0, 1), (1, 1, -1))},
        {"fields": ((4, 0, 1), (1, 1, -1))},
        {"fields": ((3, 2, 1), (1, 1, -1))},
        {"fields": ((3, 0, -2), (1, 1, -1))},
        {"fields": ((3, 0, -1), (1, 1, -1))},
        {"fields": ((3, 1, 1), (1, 1, -1))},
        {"arrays": USUAL[:9]},
        {"arrays": [None, *USUAL[1:]]},
        {"arrays": [*USUAL[:6], None, *USUAL[7:]]},
        {"arrays": [*USUAL[:7], None, *USUAL[8:]]},
        {"arrays": [*USUAL[:9], None]},
        {"arrays": [*USUAL[:3], np.zeros(9, np.int64), *USUAL[4:]]},
        {"arrays": [*USUAL[:7], bytearray(), *USUAL[8:]]},
        {"row": 10},
        {"row": 1 << 60},
        {"row": 1, "arrays": [*USUAL[:7], FAR, *USUAL[8:]]},
        {"row": 1, "arrays": [*USUAL[:7], -FAR, *USUAL[8:]]},
        {"row": 1, "arrays": [*USUAL[:6], FAR, *USUAL[7:]]},
        {"row": 1, "arrays": [*USUAL[:6], -FAR, *USUAL[7:]]},
    ],
)
def test_wrong_calls_are_refused(kernel, how):
    with pytest.raises(ValueError, match=r"\w"):
        kernel.example_decode(*call(**how))


@KERNELS
@pytest.mark.parametrize("how", [{"row": -1}, {"features": -1}, {"closed": 2}, {"verify": 2}, {"verify": -1}])
def test_numbers_out_of_range_are_refused(kernel, how):
    with pytest.raises(IndexError):
        kernel.example_decode(*call(**how))
