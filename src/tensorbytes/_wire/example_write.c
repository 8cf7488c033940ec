#include "example.h"

#include <string.h>

#include "wire.h"

static size_t varint_size(uint64_t value)
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

static uint8_t *put_varint(uint8_t *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

/* The size of a length-delimited field with a tag of one byte. */
static size_t field_size(size_t content)
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
static size_t content_size(const struct example_column *c, int64_t from, int64_t to)
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

/* A Feature message with the values of one row, or of one step. */
static size_t feature_size(const struct example_column *c, int64_t index)
{
    return field_size(list_size(c, content_size(c, c->offsets[index], c->offsets[index + 1])));
}

/* The value of the map entry: a Feature, or a FeatureList of them. */
static size_t value_size(const struct example_column *c, size_t row)
{
    if (!c->steps)
        return feature_size(c, (int64_t)row);
    size_t size = 0;
    for (int64_t step = c->steps[row]; step < c->steps[row + 1]; step++)
        size += field_size(feature_size(c, step));
    return size;
}

static size_t entry_size(const struct example_column *c, size_t value)
{
    return field_size(c->key_size) + field_size(value);
}

void example_sizes(const struct example_column *c, size_t first, size_t count, int64_t *sizes)
{
    for (size_t i = 0; i < count; i++)
        if (!c->present || c->present[first + i])
            sizes[i] += (int64_t)field_size(entry_size(c, value_size(c, first + i)));
}

/* ---- entries -------------------------------------------------------------- */

/* The Feature of a row or step, in exactly `size` bytes; 0 if the values have changed meanwhile. */
static int put_feature(uint8_t *out, size_t size, const struct example_column *c, int64_t index)
{
    const uint8_t *end = out + size;
    int64_t from = c->offsets[index], to = c->offsets[index + 1];
    size_t content = content_size(c, from, to), list = list_size(c, content);
    if (field_size(list) != size)
        return 0;
    *out++ = (uint8_t)(c->kind << 3 | 2);
    out = put_varint(out, list);
    if (c->kind != KIND_BYTES && content) {
        *out++ = 0x0a;
        out = put_varint(out, content);
    }
    if (c->kind == KIND_FLOAT) {
        if (content)
            memcpy(out, c->values + 4 * from, content);
        return 1;
    }
    for (int64_t i = from; i < to; i++) {
        if (c->kind == KIND_INT64) {
            uint64_t value = integer_at(c, i);
            if (end - out < 10 && (size_t)(end - out) < varint_size(value))
                return 0;
            out = put_varint(out, value);
            continue;
        }
        size_t length = (size_t)(c->string_offsets[i + 1] - c->string_offsets[i]);
        if ((size_t)(end - out) < field_size(length))
            return 0;
        *out++ = 0x0a;
        out = put_varint(out, length);
        if (length)
            memcpy(out, c->values + c->string_offsets[i], length);
        out += length;
    }
    return out == end;
}

static int put_value(uint8_t *out, size_t size, const struct example_column *c, size_t row)
{
    if (!c->steps)
        return put_feature(out, size, c, (int64_t)row);
    const uint8_t *end = out + size;
    for (int64_t step = c->steps[row]; step < c->steps[row + 1]; step++) {
        size_t feature = feature_size(c, step);
        if ((size_t)(end - out) < field_size(feature))
            return 0;
        *out++ = 0x0a;
        out = put_varint(out, feature);
        if (!put_feature(out, feature, c, step))
            return 0;
        out += feature;
    }
    return out == end;
}

int example_write(const struct example_column *c, size_t first, size_t count,
                  uint8_t *out, size_t room, int64_t *at)
{
    for (size_t i = 0; i < count; i++) {
        size_t row = first + i;
        if (c->present && !c->present[row])
            continue;
        size_t value = value_size(c, row), entry = entry_size(c, value);
        if (at[i] < 0 || (size_t)at[i] > room || field_size(entry) > room - (size_t)at[i])
            return 0;
        uint8_t *p = out + at[i];
        at[i] += (int64_t)field_size(entry);
        *p++ = 0x0a;
        p = put_varint(p, entry);
        *p++ = 0x0a;
        p = put_varint(p, c->key_size);
        if (c->key_size)
            memcpy(p, c->key, c->key_size);
        p += c->key_size;
        *p++ = 0x12;
        p = put_varint(p, value);
        if (!put_value(p, value, c, row))
            return 0;
    }
    return 1;
}

/* ---- records -------------------------------------------------------------- */

static size_t payload_size(int64_t size, int64_t list_size)
{
    return field_size((size_t)size) + (list_size < 0 ? 0 : field_size((size_t)list_size));
}

int64_t example_record_size(int64_t size, int64_t list_size)
{
    return 16 + (int64_t)payload_size(size, list_size);
}

uint8_t *example_begin(uint8_t *out, int64_t size, int64_t list_size, uint8_t **list_at)
{
    wire_frame_header(out, payload_size(size, list_size));
    out[12] = 0x0a;
    uint8_t *entries = put_varint(out + 13, (uint64_t)size);
    if (list_size >= 0) {
        uint8_t *lists = entries + size;
        *lists++ = 0x12;
        *list_at = put_varint(lists, (uint64_t)list_size);
    }
    return entries;
}

void example_finish(uint8_t *const out[3], const int64_t sizes[3], const int64_t list_sizes[3], size_t count)
{
    const uint8_t *payloads[3];
    size_t lengths[3];
    uint32_t crc[3];
    for (size_t i = 0; i < 3; i++) { /* in place of those that are not there, nothing of the first */
        payloads[i] = out[i < count ? i : 0] + 12;
        lengths[i] = i < count ? payload_size(sizes[i], list_sizes[i]) : 0;
    }
    wire_crc32c_three(payloads, lengths, crc);
    for (size_t i = 0; i < count; i++)
        wire_put_u32(out[i] + 12 + lengths[i], wire_mask(crc[i]));
}
