"""The kernel's functions over Examples: compiled against reference, and both against the general parser."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorbytes import _wire
from tensorbytes._wire import _kernel as compiled
from tensorbytes._wire import example_reference as reference
from tensorbytes.errors import CorruptError
from tensorbytes.formats.tfrecord.example import encode_example, encode_sequence, parse_example, parse_sequence
from tests.support.example_bytes import (
    BYTES,
    FLOAT,
    FLOATS,
    INT64,
    INTEGERS,
    KEYS,
    MISSING,
    STRINGS,
    by_maps,
    grammars,
    plain_map,
    seeded,
)
from tests.support.wire_bytes import field, overlong, varint
from tests.support.wire_bytes import records as payloads

BOTH = [compiled, reference]
KERNELS = pytest.mark.parametrize("kernel", BOTH, ids=["compiled", "reference"])
UNTOUCHED = 77  # what stands in every array before a call


def ints(*values):
    return np.array(values, np.int64)


def filled(shape, dtype):
    return np.full(shape, UNTOUCHED, dtype)


def batch(records):
    """Records in one buffer, with something between them: (buffer, places)"""
    buffer, places = b"\x0a", []
    for record in records:
        places.append((len(buffer), len(record)))
        buffer += record + b"\x0a\x01"
    return buffer, np.array(places, np.int64).reshape(-1, 2)


def strings(items):
    """(bytes end to end, offsets)"""
    return b"".join(items), np.cumsum([0, *map(len, items)])


# ---- the calls, and what of their results is defined --------------------------


def locate(kernel, buffer, places, keys, lists):
    """notes, then (kind, start, end) of each key in each record that is not odd; the kernel gets the keys sorted"""
    places = places.reshape(-1, 2)
    kinds, spans = filled((len(keys), len(places)), np.uint8), filled((len(keys), len(places), 2), np.int64)
    notes = filled(len(places), np.uint8)
    assert kernel.example_locate(buffer, places, *strings(sorted(keys)), lists, kinds, spans, notes) is None
    found = [
        [(int(kinds[k, r]), *spans[k, r].tolist()) for k in map(sorted(keys).index, keys)]
        for r in range(len(places))
        if not notes[r] & 1
    ]
    return [1 if note & 1 else note for note in notes.tolist()], found


def steps(kernel, buffer, spans):
    """offsets, kinds and spans of the lists before the first unusual one"""
    offsets = filled(len(spans) + 1, np.int64)
    done = kernel.example_steps(buffer, spans, offsets, None, None)
    total = int(offsets[done])
    again, kinds, places = filled(len(spans) + 1, np.int64), filled(total, np.uint8), filled((total, 2), np.int64)
    stopped = kernel.example_steps(buffer, spans, again, kinds, places)
    assert stopped >= done or total == 0
    assert stopped <= done
    assert again[: done + 1].tolist() == offsets[: done + 1].tolist()
    return offsets[: done + 1].tolist(), kinds.tolist(), places.tolist()


def count(kernel, buffer, spans, kind):
    offsets = filled(len(spans) + 1, np.int64)
    done, size = kernel.example_count(buffer, spans, kind, offsets)
    return offsets[: done + 1].tolist(), size if done == len(spans) else None


def fill(kernel, buffer, spans, kind, width, room):
    """The lists that were read, and their values"""
    out = filled(room, np.float32 if kind == FLOAT else np.int64)
    done = kernel.example_fill(buffer, spans, kind, width, out)
    offsets, _ = count(kernel, buffer, spans[:done], kind)
    assert len(offsets) == done + 1
    if done == len(spans) and kind == FLOAT:  # varints are taken apart some at a time, as far as there is room
        assert (out[offsets[-1] :] == UNTOUCHED).all()
    return done, out[: offsets[-1]].tobytes()


def fill_bytes(kernel, buffer, spans, strings_room, bytes_room):
    offsets, data = filled(strings_room + 1, np.int64), filled(bytes_room, np.uint8)
    done = kernel.example_fill_bytes(buffer, spans, offsets, data)
    counts, size = count(kernel, buffer, spans[:done], BYTES)
    assert len(counts) == done + 1
    assert offsets[counts[-1]] == size
    if done == len(spans):
        assert (offsets[counts[-1] + 1 :] == UNTOUCHED).all()
        assert (data[size:] == UNTOUCHED).all()
    return done, offsets[: counts[-1] + 1].tolist(), data[:size].tobytes()


def agree(function, *args):
    ours, theirs = (function(kernel, *args) for kernel in BOTH)
    assert ours == theirs
    return ours


# ---- parity -----------------------------------------------------------------


def check_records(records, sequence):
    buffer, places = batch(records)
    for lists, keys in itertools.product((0, 1), ([key.encode() for key in KEYS], [b"a"], [])):
        _, found = agree(locate, buffer, places, keys, lists)
        cells = [cell for row in found for cell in row]
        if lists:
            agree(steps, buffer, ints(*(cell[1:] for cell in cells)).reshape(-1, 2))
            continue
        for kind in (BYTES, FLOAT, INT64):
            check_lists(buffer, ints(*(cell[1:] for cell in cells if cell[0] == kind)).reshape(-1, 2), kind)


def check_lists(buffer, spans, kind):
    offsets, size = agree(count, buffer, spans, kind)
    total = offsets[-1]
    for room in {total, total + 9, max(total - 1, 0), total // 2}:
        if kind == BYTES:
            for bytes_room in {size or 0, (size or 0) // 2, 1000}:
                agree(fill_bytes, buffer, spans, room, bytes_room)
        else:
            for width in (-1, 0, 1, offsets[1] if total else 2):
                agree(fill, buffer, spans, kind, width, room)


@given(st.lists(grammars(2), max_size=3), st.booleans())
def test_reading_agrees(made, sequence):
    check_records([grammar.record(sequence) for grammar in made], sequence)


@pytest.mark.deep  # the property above draws some of these
@pytest.mark.parametrize("sequence", [False, True], ids=["Example", "SequenceExample"])
def test_reading_agrees_on_many_more(sequence):
    for seed in range(100):
        check_records([seeded(seed * 10 + i, i % 3).record(sequence) for i in range(6)], sequence)


@pytest.mark.parametrize("kind", [BYTES, FLOAT, INT64])
def test_lists_agree(kind):
    for seed in range(100):
        grammar = seeded(seed, seed % 3)
        buffer, places = batch([grammar.list(kind) for _ in range(4)])
        check_lists(buffer, np.stack((places[:, 0], places.sum(1)), 1), kind)


def test_feature_lists_agree():
    for seed in range(300):
        grammar = seeded(seed, seed % 3)
        buffer, places = batch([grammar.steps() for _ in range(4)])
        agree(steps, buffer, np.stack((places[:, 0], places.sum(1)), 1))


def test_arbitrary_bytes_agree():
    rng = np.random.default_rng(0)
    alphabet = np.frombuffer(b"\x0a\x0a\x0a\x12\x1a\x08\x0d\x00\x01\x02\x03\x04\x80\xffa", np.uint8)
    for _ in range(400):
        raw = rng.choice(alphabet, rng.integers(1, 30)).tobytes()
        whole = ints(0, len(raw)).reshape(1, 2)
        for lists in (0, 1):
            agree(locate, raw, whole, [b"", b"a"], lists)
        agree(steps, raw, whole)
        for kind in (BYTES, FLOAT, INT64):
            check_lists(raw, whole, kind)


@pytest.mark.parametrize("size", range(1, 13))
def test_varints_of_every_size_at_every_place_agree(size):
    """The compiled kernel reads words of eight bytes: each way to stand in one must give the same."""
    odd = overlong(1 << 7 * (size - 1) & 0x7FFFFFFFFFFFFFFF | 1, size)
    for before, after in itertools.product(range(10), range(10)):
        packed = b"\x01" * before + odd + b"\x02" * after + (odd + b"\xac\x02") * (before % 3)
        for raw in (field(1, packed), b"\x08" + odd + field(1, packed)):
            spans = ints(0, len(raw)).reshape(1, 2)
            offsets, _ = agree(count, raw, spans, INT64)
            done, values = agree(fill, raw, spans, INT64, -1, offsets[-1])
            agree(fill, raw, spans, INT64, -1, offsets[-1] - 1)
            assert done == (size <= 10)
            feature = field(1, field(1, field(1, "a") + field(2, field(3, raw))))
            if done:
                assert parse_example(feature)["a"][1].tobytes() == values


def twin_of_varints(raw):
    """The values of a run; None if one of them has over ten bytes."""
    run = np.frombuffer(raw, np.uint8)
    parts, end = [ints()], 0
    for starts, stops in reference.varints(run):
        parts.append(reference.decode_varints(run, starts, stops))
        end = int(stops[-1]) if len(stops) else end
    return np.concatenate(parts) if end == len(raw) else None


def check_varints(raw, before=b"", after=b""):
    """Either path of the compiled kernel gives what the twin does, in room for all, for some and for more."""
    want = twin_of_varints(raw)
    ends = sum(byte < 0x80 for byte in raw)
    for room, portable in itertools.product({ends, ends + 3, max(ends - 1, 0), ends // 2, 0}, (False, True)):
        out = filled(room + 1, np.int64)
        place = len(before), len(before) + len(raw)
        found = compiled.varints_decode(before + raw + after, *place, out[:room], portable)
        if want is None or len(want) > room:
            assert found == -1
        else:
            assert out[:found].tolist() == want.tolist()
        assert out[room] == UNTOUCHED


runs_of_varints = st.lists(
    st.one_of(
        st.integers(0, 2**64 - 1).map(varint),
        st.tuples(st.integers(0, 2**63), st.sampled_from([*range(1, 12), 63, 64, 65, 130])).map(
            lambda drawn: overlong(drawn[0] >> max(64 - 7 * drawn[1], 0), drawn[1])
        ),
        st.integers(1, 130).map(lambda count: b"\x05" * count),
        st.integers(1, 20).map(lambda count: varint(2**64 - 1) * count),
    ),
    max_size=12,
).map(b"".join)


@given(runs_of_varints, st.binary(max_size=9), st.one_of(st.binary(max_size=12), st.integers(60, 80).map(bytes)))
def test_every_path_over_varints_gives_the_twins_values(raw, before, after):
    check_varints(raw, before, after)


@pytest.mark.parametrize("size", [*range(1, 13), 63, 64, 65, 71, 72, 73, 128])
def test_varints_near_the_end_of_memory(size):
    """One path takes 64 bytes at a time where 72 can be read: the run, and the memory after it, end around there."""
    odd = overlong(1 << min(7 * (size - 1), 63) | 1, size)
    for count, more in itertools.product((0, 1, 52, 60, 63, 64, 65, 70, 72, 126, 128), (0, 1, 7, 8, 63, 64, 71, 72)):
        for raw in (b"\x01" * count + odd, odd + b"\x01" * count, b"\x81\x01" * count + odd + b"\x01"):
            check_varints(raw, after=b"\xff" * more)


def test_varints_outside_the_buffer_are_refused():
    out = filled(4, np.int64)
    for start, end in ((0, 3), (2, 1), (-1, 1)):
        with pytest.raises(IndexError):
            compiled.varints_decode(b"\x01\x01", start, end, out, False)
    with pytest.raises(ValueError, match="cut"):
        compiled.varints_decode(b"\x01\x81", 0, 2, out, False)
    assert compiled.varints_decode(b"\x01\x81", 0, 1, out, True) == 1
    assert compiled.varints_decode(b"", 0, 0, out[:0], False) == 0


@KERNELS
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_lengths_of_up_to_five_bytes_are_usual(kernel, size):
    content = field(1, field(1, "a") + field(2, b""))
    raw = b"\x0a" + overlong(len(content), size) + content
    assert locate(kernel, raw, ints(0, len(raw)), [b"a"], 0) == ([0], [[(MISSING, 0, 0)]])


@KERNELS
def test_longer_ones_are_not(kernel):
    raw = b"\x0a" + overlong(0, 6)
    assert locate(kernel, raw, ints(0, len(raw)), [], 0) == ([1], [])


@KERNELS
def test_notes(kernel):
    first = encode_example({"a": (INT64, [1]), "b": (MISSING, None)})
    odd = field(1, field(1, field(2, b"") + field(1, "a")))
    again = first + field(2, b"anything")
    buffer, places = batch([first, odd, b"", again])
    notes, found = locate(kernel, buffer, places, [b"b", b"a"], 0)
    assert notes == [0, 1, 0, 0]
    assert [[cell[0] for cell in row] for row in found] == [[MISSING, INT64], [MISSING, MISSING], [MISSING, INT64]]
    assert locate(kernel, buffer, places, [b"b"], 0)[0] == [2, 1, 0, 2]
    assert locate(kernel, buffer, places, [], 0)[0] == [2, 1, 0, 2]


@KERNELS
def test_many_features_in_changing_order(kernel):
    """More than the compiled kernel keeps in mind from one record to the next."""
    keys = [f"key{i}" for i in range(300)]
    rng = np.random.default_rng(1)
    records = []
    for _ in range(4):
        entries = [field(1, field(1, key) + field(2, field(3, field(1, varint(int(key[3:])))))) for key in keys]
        records.append(field(1, b"".join(rng.permutation(np.array(entries, object)))))
    buffer, places = batch(records)
    notes, found = locate(kernel, buffer, places, [key.encode() for key in keys], 0)
    assert notes == [0] * 4
    for row in found:
        assert [buffer[cell[2] - 1] & 0x7F for cell in row] == [n if n < 128 else n >> 7 for n in range(300)]


# ---- the general parser -----------------------------------------------------


def values_of(kernel, buffer, kind, span):
    """A list's values as `plain` has them; None if it is not the kernel's to read."""
    spans = ints(*span).reshape(1, 2)
    if kind == MISSING:
        return MISSING, None
    offsets, size = count(kernel, buffer, spans, kind)
    if len(offsets) < 2:
        return None
    if kind == BYTES:
        done, bounds, data = fill_bytes(kernel, buffer, spans, offsets[1], size)
        assert done == 1
        return BYTES, [data[start:stop] for start, stop in itertools.pairwise(bounds)]
    done, raw = fill(kernel, buffer, spans, kind, -1, offsets[1])
    return None if not done else (kind, raw if kind == FLOAT else np.frombuffer(raw, np.int64).tolist())


def features_by_kernel(kernel, raw):
    """The features of a record, None if it is not the kernel's to read."""
    notes, found = locate(kernel, raw, ints(0, len(raw)), [key.encode() for key in KEYS], 0)
    if notes != [0]:
        return None
    read = {key: values_of(kernel, raw, cell[0], cell[1:]) for key, cell in zip(KEYS, found[0], strict=True)}
    return None if None in read.values() else read


def lists_by_kernel(kernel, raw):
    notes, found = locate(kernel, raw, ints(0, len(raw)), [key.encode() for key in KEYS], 1)
    if notes != [0]:
        return None
    read = {}
    for key, (present, *span) in zip(KEYS, found[0], strict=True):
        offsets, kinds, places = steps(kernel, raw, ints(*span).reshape(1, 2))
        if len(offsets) < 2:
            return None
        values = [values_of(kernel, raw, kind, place) for kind, place in zip(kinds, places, strict=True)]
        if None in values:
            return None
        if present:
            read[key] = values
    return read


def expand(features):
    """To the kernel, a key that is not there and one without a kind are the same."""
    return {key: features.get(key, (MISSING, None)) for key in KEYS}


@KERNELS
@pytest.mark.parametrize("unique", [False, True])
def test_what_the_kernel_reads_is_what_the_parser_reads(kernel, unique):
    read = 0
    for seed in range(900):
        raw = seeded(seed, seed % 3, unique).example()
        found = features_by_kernel(kernel, raw)
        try:
            expected = expand(plain_map(parse_example(raw)))
        except CorruptError:
            # What a later entry replaces goes unread. All else that is malformed comes to light.
            assert found is None or not unique
            continue
        assert found in (None, expected)
        assert seed % 3 or found is not None
        read += found is not None
    assert read > 400


@KERNELS
def test_what_the_kernel_reads_of_a_sequence_is_what_the_parser_reads(kernel):
    read = 0
    for seed in range(600):
        raw = seeded(seed, seed % 3, unique=True).sequence()
        context, lists = features_by_kernel(kernel, raw), lists_by_kernel(kernel, raw)
        try:
            expected = [plain_map(part) for part in parse_sequence(raw)]
        except CorruptError:
            assert context is None or lists is None
            continue
        assert context in (None, expand(expected[0]))
        assert lists in (None, expected[1])
        assert seed % 3 or None not in (context, lists)
        read += None not in (context, lists)
    assert read > 220


# ---- writing ----------------------------------------------------------------


class Column:
    """Rows of lists of values, with steps of lists of lists; None where a row lacks the feature."""

    def __init__(self, kind, rows, sequence):
        self.kind, self.rows, self.sequence = kind, rows, sequence
        stored = [[] if row is None else row for row in rows]
        lists = [step for row in stored for step in row] if sequence else stored
        values = [value for one in lists for value in one]
        present = np.array([row is not None for row in rows], np.uint8)
        data, bounds = strings(values) if kind == BYTES else (None, None)
        self.arrays = (
            np.cumsum([0, *map(len, stored)]) if sequence else None,
            np.cumsum([0, *map(len, lists)]),
            None if present.all() else present,
            np.array(values, "<f4") if kind == FLOAT else ints(*values) if kind == INT64 else data,
            bounds,
        )

    def of(self, row):
        """The row for `encode_example` or `encode_sequence`."""
        values = self.rows[row]
        return [(self.kind, step) for step in values] if self.sequence else (self.kind, values)

    def whole(self, key):
        """The column as the kernel takes it."""
        return (self.kind, key.encode(), *self.arrays)


def column(rng, rows, sequence):
    kind = int(rng.integers(1, 4))
    pool = {BYTES: STRINGS, FLOAT: np.frombuffer(b"".join(FLOATS), "<f4").tolist(), INT64: INTEGERS}[kind]

    def values():
        return [pool[i] for i in rng.integers(0, len(pool), rng.integers(0, 5) if rng.random() < 0.9 else 40)]

    def row():
        return [values() for _ in range(rng.integers(0, 4))] if sequence else values()

    lacking = rng.choice([0, 0.5])
    return Column(kind, [None if rng.random() < lacking else row() for _ in range(rows)], sequence)


def columns_of(features, lists):
    return [None if part is None else [part[key].whole(key) for key in sorted(part)] for part in (features, lists)]


def records(kernel, features, lists, rows, first, count, room):
    """(where records end, the bytes of all that found room, the size of the one that did not)"""
    out, ends = filled(room + 1, np.uint8), filled(count, np.int64)
    done, needed = kernel.example_records(*columns_of(features, lists), rows, first, out[:room], ends)
    assert out[-1] == UNTOUCHED
    assert (ends[done:] == UNTOUCHED).all()
    assert (needed > 0) == (done < count)
    size = int(ends[done - 1]) if done else 0
    return ends[:done].tolist(), out[:size].tobytes(), needed


def framed(kernel, features, lists, first, rows):
    """The records of rows first .. first + rows, by the kernel."""
    room = 0
    while True:  # twice as much, then what it says that the next one needs
        _, made, needed = records(kernel, features, lists, None, first, rows, room)
        if not needed:
            return made
        room = max(2 * room, len(made) + needed)


def encoded(features, lists, row):
    """The same of one row, by the writer of messages."""
    parts = [
        {key: part[key].of(row) for key in part if part[key].rows[row] is not None} for part in (features, lists or {})
    ]
    return encode_example(parts[0]) if lists is None else encode_sequence(*parts)


@pytest.mark.parametrize("sequence", [False, True], ids=["Example", "SequenceExample"])
def test_what_is_written(sequence):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(0, 6))
        keys = [key for key in KEYS if rng.random() < 0.5]
        features = {key: column(rng, rows, False) for key in keys}
        lists = {key: column(rng, rows, True) for key in keys[::-1]} if sequence else None
        first = int(rng.integers(0, rows + 1))
        got = agree(framed, features, lists, first, rows - first)
        made = [encoded(features, lists, row) for row in range(first, rows)]
        assert got == _wire.frames([[record] for record in made])
        for record in payloads(got):
            ours = [plain_map(part) for part in (parse_sequence(record) if sequence else [parse_example(record)])]
            theirs = by_maps(record, sequence)
            assert ours == (list(theirs) if sequence else [theirs])


@st.composite
def batches(draw):
    """(features, feature lists or None, rows): columns of any kinds, with rows that lack some, and empty lists."""
    rows = draw(st.integers(0, 7))
    values = {
        BYTES: st.binary(max_size=3) | st.sampled_from(STRINGS),
        FLOAT: st.floats(width=32, allow_nan=False),
        INT64: st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(INTEGERS),
    }

    def some(sequence):
        keys = draw(st.lists(st.sampled_from(KEYS), unique=True, max_size=4))
        made = {}
        for key in keys:
            kind = draw(st.sampled_from(list(values)))
            row = st.lists(values[kind], max_size=4)
            row = st.lists(row, max_size=3) if sequence else row
            row = st.none() | row if draw(st.booleans()) else row
            made[key] = Column(kind, draw(st.lists(row, min_size=rows, max_size=rows)), sequence)
        return made

    return some(False), some(True) if draw(st.booleans()) else None, rows


@given(batches(), st.data())
def test_records_in_any_order_and_room_agree(batch, data):
    features, lists, rows = batch
    order = None
    if rows and data.draw(st.booleans()):
        order = ints(*data.draw(st.lists(st.integers(0, rows - 1), max_size=9)))
    total = rows if order is None else len(order)
    first = data.draw(st.integers(0, total))
    count = data.draw(st.integers(0, total - first))
    wanted = [row if order is None else int(order[row]) for row in range(first, first + count)]
    made = [_wire.frames([[encoded(features, lists, row)]]) for row in wanted]
    size = sum(map(len, made))
    room = data.draw(st.integers(0, size) | st.just(size))
    ends, got, needed = agree(records, features, lists, order, first, count, room)
    assert ends == np.cumsum([len(record) for record in made[: len(ends)]]).tolist()
    assert got == b"".join(made[: len(ends)])
    if needed:  # the first that does not fit, and no byte of it
        assert needed == len(made[len(ends)]) > room - len(got)
    else:
        assert len(ends) == count


@KERNELS
def test_literal_records(kernel):
    rows = Column(INT64, [[], [1, -1]], False)
    entries = [
        b"\x0a\x07\x0a\x01a\x12\x02\x1a\x00",
        b"\x0a\x14\x0a\x01a\x12\x0f\x1a\x0d\x0a\x0b\x01" + b"\xff" * 9 + b"\x01",
    ]
    made = [_wire.frames([[field(1, entry)]]) for entry in entries]
    assert framed(kernel, {"a": rows}, None, 0, 2) == b"".join(made)
    assert records(kernel, {"a": rows}, None, ints(1, 1, 0), 1, 2, 100) == ([40, 67], made[1] + made[0], 0)
    assert records(kernel, {"a": rows}, None, None, 0, 2, 66) == ([27], made[0], 40)
    assert records(kernel, {"a": rows}, None, None, 0, 2, 26) == ([], b"", 27)
    assert records(kernel, {}, None, None, 0, 1, 18) == ([18], _wire.frames([[b"\x0a\x00"]]), 0)
    assert records(kernel, {}, {}, None, 0, 1, 20) == ([20], _wire.frames([[b"\x0a\x00\x12\x00"]]), 0)


@KERNELS
def test_offsets_of_byte_strings(kernel):
    class Special(bytes):
        pass

    offsets = filled(5, np.int64)
    assert kernel.bytes_offsets([b"a", b"", b"bcd"], offsets) == 3
    assert offsets.tolist() == [0, 1, 1, 4, UNTOUCHED]
    assert kernel.bytes_offsets([], offsets[:1]) == 0
    for other in ("a", bytearray(b"a"), None, Special(b"a")):
        assert kernel.bytes_offsets([b"ab", other, b"c"], offsets) == 1
        assert offsets[:2].tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"offsets|items"):
        kernel.bytes_offsets([b"a", b"b"], offsets[:2])


@KERNELS
@pytest.mark.parametrize("count", [126, 127, 128, 16383, 16384, 1 << 21])
def test_sizes_around_each_length_of_a_length(kernel, count):
    rows = Column(BYTES, [[bytes(count - extra)] for extra in range(12)], False)
    record = framed(kernel, {"a": rows}, None, 0, 12)
    assert record == _wire.frames([[encode_example({"a": rows.of(i)})] for i in range(12)])


@KERNELS
@pytest.mark.parametrize("size", [0, 1, 7, 8, 16, 17, 90, 118, 119, 120, 121, 127, 128, 300])
def test_keys_and_lists_around_the_shortest_entries(kernel, size):
    """Entries whose lengths all take one byte have a way of their own."""
    key = "k" * size
    lengths = [0, 1, 2, *range(max(108 - size, 0), 132 - size), 110, 128]
    for rows in (
        Column(INT64, [[1] * length for length in lengths], False),
        Column(FLOAT, [[0.5] * (length // 4) for length in lengths], False),
        Column(BYTES, [[b"x" * max(length - 2, 0)] if length else [] for length in lengths], False),
    ):
        record = framed(kernel, {key: rows}, None, 0, len(lengths))
        assert record == _wire.frames([[encode_example({key: rows.of(i)})] for i in range(len(lengths))])
