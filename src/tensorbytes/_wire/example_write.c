#include "example.h"

#include <string.h>

#include "wire.h"

static inline size_t varint_size(uint64_t value)
{
    if (value < 0x80) /* most of them */
        return 1;
#if defined(__GNUC__) || defined(__clang__)
    return (size_t)((63 - __builtin_clzll(value | 1)) * 9 + 73) / 64;
#else
    size_t size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
#endif
}

static inline uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    if (value < 0x80) {
        *out = (uint8_t)value;
        return out + 1;
    }
    for (; value >= 0x80; value >>= 7)
        *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

/* memcpy, without the call where there is little to copy. */
static inline uint8_t *put_bytes(uint8_t *out, const uint8_t *from, size_t size)
{
    if (size > 16) {
        memcpy(out, from, size);
    } else if (size >= 8) { /* the first and the last of them, which may overlap */
        uint64_t first, last;
        memcpy(&first, from, 8);
        memcpy(&last, from + size - 8, 8);
        memcpy(out, &first, 8);
        memcpy(out + size - 8, &last, 8);
    } else {
        for (size_t i = 0; i < size; i++)
            out[i] = from[i];
    }
    return out + size;
}

/* The size of a length-delimited field with a tag of one byte. */
static inline size_t field_size(size_t content)
{
    return 1 + varint_size(content) + content;
}

/* ---- sizes ---------------------------------------------------------------- */

/* Arrays of others need not be aligned. */
static uint64_t integer_at(const struct example_column *c, int64_t index)
{
    uint64_t value;
    memcpy(&value, c->values + 8 * index, 8);
    return value;
}

/* The packed bytes of values from .. to, or all entries of a BytesList. */
static inline size_t content_size(const struct example_column *c, int64_t from, int64_t to)
{
    size_t size = 0;
    if (c->kind == KIND_FLOAT)
        return (size_t)(to - from) * 4;
    if (c->kind == KIND_INT64) {
        for (int64_t i = from; i < to; i++)
            size += varint_size(integer_at(c, i));
    } else {
        for (int64_t i = from; i < to; i++)
            size += field_size((size_t)(c->string_offsets[i + 1] - c->string_offsets[i]));
    }
    return size;
}

static size_t list_size(const struct example_column *c, size_t content)
{
    return c->kind == KIND_BYTES || !content ? content : field_size(content);
}

/* A Feature message whose list has this content. */
static size_t feature_size(const struct example_column *c, size_t content)
{
    return field_size(list_size(c, content));
}

static inline size_t content_of(const struct example_column *c, int64_t index)
{
    return content_size(c, c->offsets[index], c->offsets[index + 1]);
}

/* A FeatureList of the steps of a row. */
static size_t steps_size(const struct example_column *c, size_t row)
{
    size_t size = 0;
    for (int64_t step = c->steps[row]; step < c->steps[row + 1]; step++)
        size += field_size(feature_size(c, content_of(c, step)));
    return size;
}

/* The value of the map entry: a Feature, or a FeatureList of them. */
static size_t value_size(const struct example_column *c, int64_t measured)
{
    return c->steps ? (size_t)measured : feature_size(c, (size_t)measured);
}

static size_t entry_size(const struct example_column *c, size_t value)
{
    return field_size(c->key_size) + field_size(value);
}

/* Whether every length in the entry of a plain feature takes one byte. */
static inline int is_short(const struct example_column *c, size_t content)
{
    return !c->steps && content < 120 && c->key_size < 120 - content;
}

/* What all entries of some columns take in a row; notes what each of them was measured to be. */
static size_t measure_entries(const struct example_column *columns, size_t count, size_t row, int64_t *measured)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        const struct example_column *c = columns + i;
        if (c->present && !c->present[row]) {
            measured[i] = -1;
            continue;
        }
        size_t content = c->steps ? steps_size(c, row) : content_of(c, (int64_t)row);
        measured[i] = (int64_t)content;
        if (is_short(c, content))
            size += c->key_size + content + (c->kind == KIND_BYTES || !content ? 8 : 10);
        else
            size += field_size(entry_size(c, value_size(c, measured[i])));
    }
    return size;
}

size_t example_measure(const struct example_batch *b, size_t row, struct example_measures *m)
{
    m->features = measure_entries(b->columns, b->features, row, m->columns);
    m->payload = field_size(m->features);
    if (b->sequence) {
        m->lists = measure_entries(b->columns + b->features, b->lists, row, m->columns + b->features);
        m->payload += field_size(m->lists);
    }
    return 16 + m->payload;
}

/* ---- entries -------------------------------------------------------------- */

/* The values of a row or step, whose list has `content` bytes; returns what comes after them, NULL if they have changed
 * meanwhile. */
static inline uint8_t *put_values(uint8_t *out, const struct example_column *c, int64_t index, size_t content)
{
    int64_t from = c->offsets[index], to = c->offsets[index + 1];
    const uint8_t *end = out + content;
    if (c->kind == KIND_FLOAT) {
        if (content != (size_t)(to - from) * 4)
            return NULL;
        return content ? put_bytes(out, c->values + 4 * from, content) : out;
    }
    for (int64_t i = from; i < to; i++) {
        if (c->kind == KIND_INT64) {
            uint64_t value = integer_at(c, i);
            if (end - out < 10 && (size_t)(end - out) < varint_size(value))
                return NULL;
            out = put_varint(out, value);
            continue;
        }
        size_t length = (size_t)(c->string_offsets[i + 1] - c->string_offsets[i]);
        if ((size_t)(end - out) < field_size(length))
            return NULL;
        *out++ = 0x0a;
        out = put_varint(out, length);
        if (length)
            out = put_bytes(out, c->values + c->string_offsets[i], length);
    }
    return out == end ? out : NULL;
}

/* The Feature of a row or step. */
static inline uint8_t *put_feature(uint8_t *out, const struct example_column *c, int64_t index, size_t content)
{
    *out++ = (uint8_t)(c->kind << 3 | 2);
    out = put_varint(out, list_size(c, content));
    if (c->kind != KIND_BYTES && content) {
        *out++ = 0x0a;
        out = put_varint(out, content);
    }
    return put_values(out, c, index, content);
}

/* The entry of a plain feature that is_short. */
static inline uint8_t *put_short(uint8_t *out, const struct example_column *c, int64_t index, size_t content)
{
    size_t list = content + (c->kind == KIND_BYTES || !content ? 0 : 2);
    out[0] = out[2] = 0x0a;
    out[1] = (uint8_t)(c->key_size + list + 6);
    out[3] = (uint8_t)c->key_size;
    out = put_bytes(out + 4, c->key, c->key_size);
    out[0] = 0x12;
    out[1] = (uint8_t)(list + 2);
    out[2] = (uint8_t)(c->kind << 3 | 2);
    out[3] = (uint8_t)list;
    out += 4;
    if (list != content) {
        *out++ = 0x0a;
        *out++ = (uint8_t)content;
    }
    return put_values(out, c, index, content);
}

/* All steps of a row, in `size` bytes. */
static uint8_t *put_steps(uint8_t *out, const struct example_column *c, size_t row, size_t size)
{
    const uint8_t *end = out + size;
    for (int64_t step = c->steps[row]; step < c->steps[row + 1]; step++) {
        size_t content = content_of(c, step), feature = feature_size(c, content);
        if ((size_t)(end - out) < field_size(feature))
            return NULL;
        *out++ = 0x0a;
        out = put_varint(out, feature);
        out = put_feature(out, c, step, content);
        if (!out)
            return NULL;
    }
    return out == end ? out : NULL;
}

/* The entries of a row, as they were measured; returns what comes after them, or NULL. */
static uint8_t *put_entries(uint8_t *out, const struct example_column *columns, size_t count, size_t row,
                            const int64_t *measured)
{
    for (size_t i = 0; i < count && out; i++) {
        const struct example_column *c = columns + i;
        if (measured[i] < 0)
            continue;
        if (is_short(c, (size_t)measured[i])) {
            out = put_short(out, c, (int64_t)row, (size_t)measured[i]);
            continue;
        }
        size_t value = value_size(c, measured[i]);
        *out++ = 0x0a;
        out = put_varint(out, entry_size(c, value));
        *out++ = 0x0a;
        out = put_varint(out, c->key_size);
        out = put_bytes(out, c->key, c->key_size);
        *out++ = 0x12;
        out = put_varint(out, value);
        out = c->steps ? put_steps(out, c, row, value) : put_feature(out, c, (int64_t)row, (size_t)measured[i]);
    }
    return out;
}

/* ---- records -------------------------------------------------------------- */

int example_put(const struct example_batch *b, size_t row, const struct example_measures *m, uint8_t *out)
{
    wire_frame_header(out, m->payload);
    out[12] = 0x0a;
    out = put_entries(put_varint(out + 13, m->features), b->columns, b->features, row, m->columns);
    if (!out || !b->sequence)
        return out != NULL;
    *out++ = 0x12;
    out = put_varint(out, m->lists);
    return put_entries(out, b->columns + b->features, b->lists, row, m->columns + b->features) != NULL;
}

/* Writes the checksums after the payloads of `count` records, one to three at a time. */
static void put_checksums(uint8_t *const payloads[3], size_t lengths[3], size_t count)
{
    const uint8_t *starts[3];
    uint32_t crc[3];
    for (size_t i = 0; i < 3; i++) { /* in place of those that are not there, nothing of the first */
        starts[i] = payloads[i < count ? i : 0];
        lengths[i] = i < count ? lengths[i] : 0;
    }
    wire_crc32c_three(starts, lengths, crc);
    for (size_t i = 0; i < count; i++)
        wire_put_u32(payloads[i] + lengths[i], wire_mask(crc[i]));
}

size_t example_records(const struct example_batch *b, size_t first, size_t count, struct example_measures *m,
                       uint8_t *out, size_t room, int64_t *ends, int64_t *needed)
{
    uint8_t *payloads[3];
    size_t lengths[3], pending = 0, done = 0, at = 0;
    *needed = 0;
    for (; done < count; done++) {
        size_t row = b->rows ? (size_t)b->rows[first + done] : first + done, size = example_measure(b, row, m);
        int fits = size <= room - at;
        if (!fits || !example_put(b, row, m, out + at)) {
            *needed = fits ? -1 : (int64_t)size;
            break;
        }
        payloads[pending] = out + at + 12;
        lengths[pending] = m->payload;
        if (++pending == 3) { /* while they are in the nearest cache */
            put_checksums(payloads, lengths, 3);
            pending = 0;
        }
        at += size;
        ends[done] = (int64_t)at;
    }
    if (pending)
        put_checksums(payloads, lengths, pending);
    return done;
}
