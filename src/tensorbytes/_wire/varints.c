#include "varints.h"

#if WIRE_X86
#include <immintrin.h>
#endif

static int has_bmi2;

void varints_init(void)
{
    has_bmi2 = HAS_BMI2();
}

size_t varints_count(const uint8_t *p, size_t n)
{
    size_t found = 0;
    while (n >= 8) {
        uint64_t lanes = 0; /* eight counters of a byte each, good for 255 words */
        for (int word = 0; n >= 8 && word < 255; word++, p += 8, n -= 8)
            lanes += (~varints_load(p) & VARINTS_HIGH) >> 7;
        for (; lanes; lanes >>= 8)
            found += lanes & 0xff;
    }
    for (; n; n--, p++)
        found += *p < 0x80;
    return found;
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

/* What is left of [p, end) when n values were written. */
static size_t decode_rest(const uint8_t *p, const uint8_t *end, int64_t *out, size_t n, size_t room)
{
    while (p < end) {
        uint64_t value;
        if (n == room || !(p = slow_varint(p, end, &value)))
            return SIZE_MAX;
        out[n++] = (int64_t)value;
    }
    return n;
}

size_t varints_decode_portable(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int64_t *out, size_t room)
{
    size_t n = 0;
    while (p < end && limit - p >= 8 && n < room) {
        uint64_t word = varints_load(p), stops = ~word & VARINTS_HIGH;
        if (stops == VARINTS_HIGH && end - p >= 8 && room - n >= 8) { /* eight values of one byte */
            for (int i = 0; i < 8; i++)
                out[n + (size_t)i] = p[i];
            n += 8;
            p += 8;
        } else if (stops & (stops - 1) && room - n >= 2 && varints_lowest(stops & (stops - 1)) < end - p) {
            /* Two values at once: the place of the next ones is known in half the time. */
            uint64_t second = stops & (stops - 1);
            int first_bits = 8 * (varints_lowest(stops) + 1);
            out[n] = (int64_t)varints_compact(word & (stops ^ (stops - 1)));
            second >>= first_bits;
            out[n + 1] = (int64_t)varints_compact(word >> first_bits & (second ^ (second - 1)));
            n += 2;
            p += first_bits / 8 + varints_lowest(second) + 1;
        } else if (stops) {
            out[n++] = (int64_t)varints_compact(word & (stops ^ (stops - 1)));
            p += varints_lowest(stops) + 1;
        } else {
            uint64_t value;
            if (!(p = slow_varint(p, end, &value)))
                return SIZE_MAX;
            out[n++] = (int64_t)value;
        }
    }
    return decode_rest(p, end, out, n, room);
}

#if WIRE_X86
/* Which of the next 64 bytes end a varint. */
static ALWAYS_INLINE uint64_t stops_of(const uint8_t *p)
{
    uint64_t stops = 0;
    for (int i = 0; i < 4; i++)
        stops |= (uint64_t)(uint16_t)_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i)))
                 << 16 * i;
    return ~stops;
}

/* Where each varint of 64 bytes starts follows from bits alone, so that no value waits for the one before. */
WITH_BMI2 static size_t decode_bmi2(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int64_t *out, size_t room)
{
    size_t n = 0;
    while (p < end && limit - p >= 72) {
        uint64_t stops = stops_of(p);
        if (end - p < 64)
            stops &= ((uint64_t)1 << (end - p)) - 1;
        size_t count = (size_t)__builtin_popcountll(stops), start = 0;
        if (count > room - n)
            return SIZE_MAX;
        if (count == 64) { /* of one byte each */
            for (size_t i = 0; i < 64; i++)
                out[n + i] = p[i];
            n += 64;
            p += 64;
            continue;
        }
        for (int64_t *to = out + n, *last = to + count; to < last; to++) {
            size_t stop = (size_t)__builtin_ctzll(stops), bits = 8 * (stop + 1 - start);
            stops &= stops - 1;
            if (bits > 64) { /* of nine or ten bytes, such as numbers below zero */
                uint64_t value;
                if (!slow_varint(p + start, end, &value))
                    return SIZE_MAX;
                *to = (int64_t)value;
            } else {
                *to = (int64_t)_pext_u64(_bzhi_u64(varints_load(p + start), (unsigned)bits), 0x7f7f7f7f7f7f7f7fu);
            }
            start = stop + 1;
        }
        if (!count) /* 64 bytes that end nothing, or a run that does not end */
            return SIZE_MAX;
        n += count;
        p += start;
    }
    size_t rest = varints_decode_portable(p, end, limit, out + n, room - n);
    return rest == SIZE_MAX ? rest : n + rest;
}
#endif

size_t varints_decode(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int64_t *out, size_t room)
{
#if WIRE_X86
    if (has_bmi2)
        return decode_bmi2(p, end, limit, out, room);
#endif
    return varints_decode_portable(p, end, limit, out, room);
}
