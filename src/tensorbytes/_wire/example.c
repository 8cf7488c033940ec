#include "example.h"

#include <string.h>

#include "example_parts.h"

/* ---- locate --------------------------------------------------------------- */

struct search {
    struct key_search keys;
    size_t count; /* of records */
    int lists;
    uint8_t *kinds;
    int64_t *spans;
};

/* The one list inside a Feature; 0 if it is oddly built. */
static int feature_list(const uint8_t *buf, size_t at, size_t end, uint8_t *kind, int64_t *span)
{
    size_t stop;
    if (at == end) {
        *kind = KIND_MISSING;
        span[0] = span[1] = 0;
        return 1;
    }
    uint8_t tag = buf[at];
    if ((tag != 0x0a && tag != 0x12 && tag != 0x1a) || !enter(buf, &at, end, tag, &stop) || stop != end)
        return 0;
    *kind = tag >> 3;
    span[0] = (int64_t)at;
    span[1] = (int64_t)stop;
    return 1;
}

/* The entries of one Features or FeatureLists message: notes, with NOTE_ODD for an unusual one. */
static int locate_entries(const uint8_t *buf, size_t at, size_t end, size_t record, struct search *s)
{
    int notes = 0;
    s->keys.next = 0;
    for (size_t position = 0; at < end; position++) {
        size_t entry_end, key_end, value_end;
        if (!enter(buf, &at, end, 0x0a, &entry_end))
            return NOTE_ODD;
        size_t key = at;
        if (!enter(buf, &key, entry_end, 0x0a, &key_end))
            return NOTE_ODD;
        size_t value = key_end;
        if (!enter(buf, &value, entry_end, 0x12, &value_end) || value_end != entry_end)
            return NOTE_ODD;
        at = entry_end;
        ptrdiff_t slot = keys_predict(&s->keys, position, buf + key, key_end - key);
        if (slot < 0) {
            notes = NOTE_UNKNOWN;
            continue;
        }
        size_t cell = (size_t)slot * s->count + record; /* of a key that comes twice, the last counts */
        if (s->lists) {
            s->kinds[cell] = KIND_BYTES;
            s->spans[2 * cell] = (int64_t)value;
            s->spans[2 * cell + 1] = (int64_t)value_end;
        } else if (!feature_list(buf, value, value_end, s->kinds + cell, s->spans + 2 * cell)) {
            return NOTE_ODD;
        }
    }
    return notes;
}

/* The usual form of a record: nothing; or `features`, which a SequenceExample calls its context,
 * then its feature_lists; each at most once. */
static int locate_record(const uint8_t *buf, size_t at, size_t end, size_t record, struct search *s)
{
    size_t stop;
    int notes = 0;
    if (at < end && buf[at] == 0x0a) {
        if (!enter(buf, &at, end, 0x0a, &stop))
            return NOTE_ODD;
        if (!s->lists)
            notes = locate_entries(buf, at, stop, record, s);
        at = stop;
    }
    if (at == end)
        return notes;
    if (!enter(buf, &at, end, 0x12, &stop) || stop != end)
        return NOTE_ODD;
    return s->lists ? locate_entries(buf, at, stop, record, s) : notes;
}

void example_locate(const uint8_t *buf, const int64_t *records, size_t count,
                    const struct example_keys *keys, int lists,
                    uint8_t *kinds, int64_t *spans, uint8_t *notes)
{
    struct search s = {{keys, {NULL, 0, 0}, 0, {{NULL, 0, -1}}}, count, lists, kinds, spans};
    memset(kinds, KIND_MISSING, keys->count * count);
    memset(spans, 0, keys->count * count * 2 * sizeof *spans);
    for (size_t r = 0; r < count; r++) {
        size_t start = (size_t)records[2 * r];
        notes[r] = (uint8_t)locate_record(buf, start, start + (size_t)records[2 * r + 1], r, &s);
    }
}

size_t example_steps(const uint8_t *buf, const int64_t *spans, size_t count, int64_t *offsets,
                     uint8_t *kinds, int64_t *steps, size_t room)
{
    size_t total = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)spans[2 * i], end = (size_t)spans[2 * i + 1], stop;
        for (; at < end; at = stop, total++) {
            uint8_t kind;
            int64_t span[2];
            if (!enter(buf, &at, end, 0x0a, &stop) || !feature_list(buf, at, stop, &kind, span))
                return i;
            if (!kinds)
                continue;
            if (total == room)
                return i;
            kinds[total] = kind;
            steps[2 * total] = span[0];
            steps[2 * total + 1] = span[1];
        }
        offsets[i + 1] = (int64_t)total;
    }
    return count;
}

/* ---- count ---------------------------------------------------------------- */

size_t example_count(const uint8_t *buf, const int64_t *spans, size_t count, int kind,
                     int64_t *offsets, uint64_t *bytes)
{
    int64_t total = 0;
    *bytes = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)spans[2 * i], end = (size_t)spans[2 * i + 1], from, to;
        while (at < end) {
            if (kind == KIND_BYTES) {
                if (!enter(buf, &at, end, 0x0a, &to))
                    return i;
                *bytes += to - at;
                total++;
                at = to;
                continue;
            }
            if (!numeric_run(buf, &at, end, kind, &from, &to))
                return i;
            total += (int64_t)(kind == KIND_FLOAT ? (to - from) / 4 : varints_count(buf + from, to - from));
        }
        offsets[i + 1] = total;
    }
    return count;
}

/* ---- fill ----------------------------------------------------------------- */

size_t example_fill_float(const uint8_t *buf, const int64_t *spans, size_t count, int64_t width,
                          uint8_t *out, size_t room)
{
    size_t left = room * 4;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)spans[2 * i], end = (size_t)spans[2 * i + 1], from, to, before = left;
        while (at < end) {
            if (!numeric_run(buf, &at, end, KIND_FLOAT, &from, &to) || to - from > left)
                return i;
            memcpy(out, buf + from, to - from);
            out += to - from;
            left -= to - from;
        }
        if (width >= 0 && (before - left) / 4 != (size_t)width)
            return i;
    }
    return count;
}

size_t example_fill_int64(const uint8_t *buf, size_t size, const int64_t *spans, size_t count, int64_t width,
                          int64_t *out, size_t room)
{
    size_t done = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)spans[2 * i], end = (size_t)spans[2 * i + 1], from, to, before = done;
        if (width == 1 && done < room && packed_value(buf, size, at, end, out + done)) {
            done++;
            continue;
        }
        while (at < end) {
            if (!numeric_run(buf, &at, end, KIND_INT64, &from, &to))
                return i;
            size_t n = varints_decode(buf + from, buf + to, buf + size, out + done, room - done);
            if (n == SIZE_MAX)
                return i;
            done += n;
        }
        if (width >= 0 && done - before != (size_t)width)
            return i;
    }
    return count;
}

size_t example_fill_bytes(const uint8_t *buf, const int64_t *spans, size_t count,
                          int64_t *string_offsets, size_t room, uint8_t *data, size_t data_room)
{
    size_t written = 0, strings = 0;
    string_offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)spans[2 * i], end = (size_t)spans[2 * i + 1], to;
        while (at < end) {
            if (!enter(buf, &at, end, 0x0a, &to) || strings == room || to - at > data_room - written)
                return i;
            if (to > at)
                memcpy(data + written, buf + at, to - at);
            written += to - at;
            string_offsets[++strings] = (int64_t)written;
            at = to;
        }
    }
    return count;
}
