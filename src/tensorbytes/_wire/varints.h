/* Runs of varints, as packed lists of int64 have them: plain C11, no Python.h, no malloc. */
#ifndef TENSORBYTES_VARINTS_H
#define TENSORBYTES_VARINTS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "instruction.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "varints and floats are read as little-endian words; such machines use the NumPy kernel"
#endif

#define VARINTS_HIGH 0x8080808080808080u

static inline uint64_t varints_load(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

static inline int varints_lowest(uint64_t high_bits)
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

/* The value of a varint in the low bytes of a word, of which the seven low bits each count. */
static inline uint64_t varints_compact(uint64_t word)
{
    word &= 0x7f7f7f7f7f7f7f7fu;
    word = (word & 0x7f007f007f007f00u) >> 1 | (word & 0x007f007f007f007fu);
    word = (word & 0x3fff00003fff0000u) >> 2 | (word & 0x00003fff00003fffu);
    return (word & 0x0fffffff00000000u) >> 4 | (word & 0x000000000fffffffu);
}

/* Picks the instructions to use. Call once, first. */
void varints_init(void);

/* Varints in [p, p + n): as many as bytes without the continuation bit. */
size_t varints_count(const uint8_t *p, size_t n);

/* Decodes the varints of [p, end), whose last byte ends one; up to `limit` memory may be read. Returns how
 * many values were written, or SIZE_MAX if there are more than `room` or one is longer than ten bytes. */
size_t varints_decode(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int64_t *out, size_t room);

/* The same, as machines without BMI2 run it. */
size_t varints_decode_portable(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int64_t *out, size_t room);

#endif
