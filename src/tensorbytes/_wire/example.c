#include "example.h"

#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "varints and floats are read as little-endian words; such machines use the NumPy kernel"
#endif

/* Positions whose key is remembered from one record to the next. */
#define PREDICTED 256
#define HIGH_BITS 0x8080808080808080u

static uint64_t load64(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

/* Enters a length-delimited field: the tag must stand at *at; its content is [*at, *stop).
 * Lengths of more than five bytes are left to the general parser. */
static int enter(const uint8_t *buf, size_t *at, size_t end, uint8_t tag, size_t *stop)
{
    size_t p = *at, length, left;
    if (end - p < 2 || buf[p] != tag)
        return 0;
    length = buf[p + 1];
    p += 2;
    if (length >= 0x80) {
        length &= 0x7f;
        for (int shift = 7;; shift += 7) {
            if (shift == 35 || p == end)
                return 0;
            uint8_t byte = buf[p++];
            length |= (size_t)(byte & 0x7f) << shift;
            if (byte < 0x80)
                break;
        }
    }
    left = end - p;
    if (length > left)
        return 0;
    *at = p;
    *stop = p + length;
    return 1;
}

/* ---- locate --------------------------------------------------------------- */

/* What stood at each position of the last record: features tend to come in the same order, so
 * that one comparison finds a key. Slot -1 is a key that is not wanted. */
struct prediction {
    const uint8_t *key;
    size_t size;
    ptrdiff_t slot;
};

struct search {
    const struct example_keys *keys;
    size_t count; /* of records */
    int lists;
    uint8_t *kinds;
    int64_t *spans;
    size_t next; /* the slot after the one that was found last */
    struct prediction predicted[PREDICTED];
};

int example_compare_key(const struct example_keys *keys, size_t slot, const uint8_t *key, size_t size)
{
    size_t other = (size_t)(keys->offsets[slot + 1] - keys->offsets[slot]), shorter = other < size ? other : size;
    int order = shorter ? memcmp(keys->data + keys->offsets[slot], key, shorter) : 0;
    return order ? order : (other > size) - (other < size);
}

/* The slot of a key, -1 if it is not wanted. Keys rise, and many writers sort them too: the next one is tried
 * before all others are searched by halves. No choice of keys makes that slow, as it could a table of hashes. */
static ptrdiff_t find_key(struct search *s, const uint8_t *key, size_t size)
{
    size_t low = 0, high = s->keys->count;
    for (size_t slot = s->next < high ? s->next : high / 2; low < high; slot = low + (high - low) / 2) {
        int order = example_compare_key(s->keys, slot, key, size);
        if (order == 0) {
            s->next = slot + 1;
            return (ptrdiff_t)slot;
        }
        if (order < 0)
            low = slot + 1;
        else
            high = slot;
    }
    return -1;
}

static int same_key(const uint8_t *a, const uint8_t *b, size_t size)
{
    for (; size >= 8; size -= 8, a += 8, b += 8)
        if (load64(a) != load64(b))
            return 0;
    for (; size; size--)
        if (*a++ != *b++)
            return 0;
    return 1;
}

static ptrdiff_t predict_key(struct search *s, size_t position, const uint8_t *key, size_t size)
{
    if (position >= PREDICTED)
        return find_key(s, key, size);
    struct prediction *p = s->predicted + position;
    if (p->size != size || !p->key || !same_key(p->key, key, size)) {
        p->slot = find_key(s, key, size);
        p->key = key;
        p->size = size;
    }
    return p->slot;
}

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
    s->next = 0;
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
        ptrdiff_t slot = predict_key(s, position, buf + key, key_end - key);
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
    struct search s = {keys, count, lists, kinds, spans, 0, {{NULL, 0, -1}}};
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

/* Varints in [p, p + n): as many as bytes without the continuation bit. */
static size_t count_varints(const uint8_t *p, size_t n)
{
    size_t found = 0;
    while (n >= 8) {
        uint64_t lanes = 0; /* eight counters of a byte each, good for 255 words */
        for (int word = 0; n >= 8 && word < 255; word++, p += 8, n -= 8)
            lanes += (~load64(p) & HIGH_BITS) >> 7;
        for (; lanes; lanes >>= 8)
            found += lanes & 0xff;
    }
    for (; n; n--, p++)
        found += *p < 0x80;
    return found;
}

/* One item of a numeric list at *at, a packed run or a single value: its bytes are [*from, *to). */
static int numeric_run(const uint8_t *buf, size_t *at, size_t end, int kind, size_t *from, size_t *to)
{
    size_t p = *at;
    if (enter(buf, &p, end, 0x0a, to)) {
        *from = p;
    } else if (kind == KIND_FLOAT && buf[p] == 0x0d && end - p >= 5) {
        *from = p + 1;
        *to = p + 5;
    } else if (kind == KIND_INT64 && buf[p] == 0x08) {
        *from = ++p;
        while (p < end && buf[p] >= 0x80)
            p++;
        if (p == end)
            return 0;
        *to = p + 1;
    } else {
        return 0;
    }
    *at = *to;
    if (kind == KIND_FLOAT)
        return (*to - *from) % 4 == 0;
    return *to == *from || buf[*to - 1] < 0x80;
}

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
            total += (int64_t)(kind == KIND_FLOAT ? (to - from) / 4 : count_varints(buf + from, to - from));
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

/* The value of a varint in the low bytes of a word, of which the seven low bits each count. */
static uint64_t compact(uint64_t word)
{
    word &= 0x7f7f7f7f7f7f7f7fu;
    word = (word & 0x7f007f007f007f00u) >> 1 | (word & 0x007f007f007f007fu);
    word = (word & 0x3fff00003fff0000u) >> 2 | (word & 0x00003fff00003fffu);
    return (word & 0x0fffffff00000000u) >> 4 | (word & 0x000000000fffffffu);
}

static int lowest_byte(uint64_t high_bits)
{
#if defined(__GNUC__) || defined(__clang__)
    return __builtin_ctzll(high_bits) >> 3;
#else
    int byte = 0;
    while (!(high_bits >> (8 * byte) & 0x80))
        byte++;
    return byte;
#endif
}

/* A varint that ends before `end`, byte by byte. Returns the place after it, NULL if it is too long. */
static const uint8_t *slow_varint(const uint8_t *p, const uint8_t *end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 70 && p < end; shift += 7) {
        uint64_t byte = *p++;
        *value |= (byte & 0x7f) << shift;
        if (byte < 0x80)
            return p;
    }
    return NULL;
}

/* Decodes the varints of [p, end), whose last byte ends one; up to `limit` memory may be read. Returns how
 * many values were written, or SIZE_MAX if there are more than `room` or one is longer than ten bytes. */
static size_t decode_varints(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int64_t *out, size_t room)
{
    size_t n = 0;
    while (p < end && limit - p >= 8 && n < room) {
        uint64_t word = load64(p), stops = ~word & HIGH_BITS;
        if (stops == HIGH_BITS && end - p >= 8 && room - n >= 8) { /* eight values of one byte */
            for (int i = 0; i < 8; i++)
                out[n + i] = p[i];
            n += 8;
            p += 8;
        } else if (stops & (stops - 1) && room - n >= 2 && lowest_byte(stops & (stops - 1)) < end - p) {
            /* Two values at once: the place of the next ones is known in half the time. */
            uint64_t second = stops & (stops - 1);
            int first_bits = 8 * (lowest_byte(stops) + 1);
            out[n] = (int64_t)compact(word & (stops ^ (stops - 1)));
            second >>= first_bits;
            out[n + 1] = (int64_t)compact(word >> first_bits & (second ^ (second - 1)));
            n += 2;
            p += first_bits / 8 + lowest_byte(second) + 1;
        } else if (stops) {
            out[n++] = (int64_t)compact(word & (stops ^ (stops - 1)));
            p += lowest_byte(stops) + 1;
        } else {
            uint64_t value;
            if (!(p = slow_varint(p, end, &value)))
                return SIZE_MAX;
            out[n++] = (int64_t)value;
        }
    }
    while (p < end) {
        uint64_t value;
        if (n == room || !(p = slow_varint(p, end, &value)))
            return SIZE_MAX;
        out[n++] = (int64_t)value;
    }
    return n;
}

/* A list of a single packed varint of at most eight bytes: most integer features are scalars. */
static int packed_value(const uint8_t *buf, size_t size, size_t at, size_t end, int64_t *out)
{
    if (end - at < 3 || size - at < 10 || buf[at] != 0x0a || buf[at + 1] != end - at - 2)
        return 0;
    uint64_t word = load64(buf + at + 2), stops = ~word & HIGH_BITS;
    if (!stops || (size_t)lowest_byte(stops) + 3 != end - at)
        return 0;
    *out = (int64_t)compact(word & (stops ^ (stops - 1)));
    return 1;
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
            size_t n = decode_varints(buf + from, buf + to, buf + size, out + done, room - done);
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
