/* Protocol Buffers' pieces, read with care: each moves *at past what it found, or returns 0 and says nothing. */
#ifndef TENSORBYTES_MESSAGES_H
#define TENSORBYTES_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

/* Reads a varint of at most 64 bits at *at; 0 when it is cut or too long. */
static inline int get_varint(const uint8_t *buf, size_t *at, size_t end, uint64_t *value)
{
    uint64_t result = 0;
    size_t p = *at;
    for (int shift = 0; shift < 64 && p < end; shift += 7) {
        uint8_t byte = buf[p++];
        if (shift == 63 && byte > 1)
            return 0;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *at = p;
            *value = result;
            return 1;
        }
    }
    return 0;
}

static inline int get_tag(const uint8_t *buf, size_t *at, size_t end, uint8_t tag)
{
    if (*at >= end || buf[*at] != tag)
        return 0;
    ++*at;
    return 1;
}

/* The tags of fields from 1000 up take two bytes. */
static inline int get_tag2(const uint8_t *buf, size_t *at, size_t end, uint8_t first, uint8_t second)
{
    if (end - *at < 2 || buf[*at] != first || buf[*at + 1] != second)
        return 0;
    *at += 2;
    return 1;
}

static inline int get_length(const uint8_t *buf, size_t *at, size_t end, size_t *stop)
{
    uint64_t length;
    if (!get_varint(buf, at, end, &length) || length > end - *at)
        return 0;
    *stop = *at + (size_t)length;
    return 1;
}

#endif
