/* The parts of Examples in their usual form, for the files that read them. */
#ifndef TENSORBYTES_EXAMPLE_PARTS_H
#define TENSORBYTES_EXAMPLE_PARTS_H

#include "example.h"
#include "varints.h"

/* Enters a length-delimited field: the tag must stand at *at; its content is [*at, *stop).
 * Lengths of more than five bytes are left to the general parser. */
static ALWAYS_INLINE int enter(const uint8_t *buf, size_t *at, size_t end, uint8_t tag, size_t *stop)
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

/* One item of a numeric list at *at, a packed run or a single value: its bytes are [*from, *to). */
static ALWAYS_INLINE int numeric_run(const uint8_t *buf, size_t *at, size_t end, int kind, size_t *from, size_t *to)
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

/* A list of a single packed varint of at most eight bytes: most integer features are scalars. */
static ALWAYS_INLINE int packed_value(const uint8_t *buf, size_t size, size_t at, size_t end, int64_t *out)
{
    if (end - at < 3 || size - at < 10 || buf[at] != 0x0a || buf[at + 1] != end - at - 2)
        return 0;
    uint64_t word = varints_load(buf + at + 2), stops = ~word & VARINTS_HIGH;
    if (!stops || (size_t)varints_lowest(stops) + 3 != end - at)
        return 0;
    *out = (int64_t)varints_compact(word & (stops ^ (stops - 1)));
    return 1;
}

#endif
