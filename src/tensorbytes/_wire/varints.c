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
/* All varints that end in a word at once: where the next word starts depends on nothing but the highest of its stops,
 * so that the next load begins while the values of this one are still taken apart. */
WITH_BMI2 static size_t decode_bmi2(const uint8_t *p, const uint8_t *end, const uint8_t *limit, int64_t *out, size_t room)
{
    size_t n = 0;
    while (end - p >= 8 && room - n >= 8) {
        uint64_t word = varints_load(p), stops = ~word & VARINTS_HIGH;
        if (!stops) {
            uint64_t value;
            if (!(p = slow_varint(p, end, &value)))
                return SIZE_MAX;
            out[n++] = (int64_t)value;
            continue;
        }
        if (stops == VARINTS_HIGH) { /* eight values of one byte */
            for (int i = 0; i < 8; i++)
                out[n + (size_t)i] = p[i];
            n += 8;
            p += 8;
            continue;
        }
        p += 8 - (__builtin_clzll(stops) >> 3);
        /* Writing more values than there are does no harm: there is room for eight. */
        int count = __builtin_popcountll(stops);
        int64_t *to = out + n;
        n += (size_t)count;
        for (int i = 0; i < 4; i++) {
            to[i] = (int64_t)_pext_u64(word & (stops ^ (stops - 1)), 0x7f7f7f7f7f7f7f7fu);
            int last = __builtin_ctzll(stops | 1ull << 63);
            word = word >> last >> 1;
            stops = stops >> last >> 1;
        }
        for (int i = 4; i < count; i++) {
            to[i] = (int64_t)_pext_u64(word & (stops ^ (stops - 1)), 0x7f7f7f7f7f7f7f7fu);
            int last = __builtin_ctzll(stops);
            word = word >> last >> 1;
            stops = stops >> last >> 1;
        }
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
