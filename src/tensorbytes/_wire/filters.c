#include "filters.h"

#include <string.h>

#include "instruction.h"

/* Little-endian elements at any address. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define NATIVE(type, value) swapped((value), sizeof(type))
static uint64_t swapped(uint64_t value, size_t width)
{
    uint64_t out = 0;
    for (size_t i = 0; i < width; i++)
        out = out << 8 | (value >> 8 * i & 0xff);
    return out;
}
#else
#define NATIVE(type, value) (value)
#endif

/* The functions over elements of one width; the compiler turns their loops into vectors. */
#define DEFINE(type, bits_of)                                                                      \
    static ALWAYS_INLINE type get_##type(const uint8_t *p, size_t i)                               \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, p + i * sizeof value, sizeof value);                                        \
        return (type)NATIVE(type, value);                                                          \
    }                                                                                              \
    static ALWAYS_INLINE void put_##type(uint8_t *p, size_t i, type value)                         \
    {                                                                                              \
        value = (type)NATIVE(type, value);                                                         \
        memcpy(p + i * sizeof value, &value, sizeof value);                                        \
    }                                                                                              \
    static void difference_##type(uint8_t *dst, const uint8_t *src, size_t n, uint64_t first)      \
    {                                                                                              \
        type before = (type)first;                                                                 \
        for (size_t i = 0; i < n; i++) {                                                           \
            type value = get_##type(src, i), step = (type)(value - before);                        \
            put_##type(dst, i, (type)((type)(step << 1) ^ (type)(0 - (step >> (bits_of - 1)))));   \
            before = value;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void accumulate_##type(uint8_t *dst, const uint8_t *src, size_t n, uint64_t first)      \
    {                                                                                              \
        type value = (type)first;                                                                  \
        for (size_t i = 0; i < n; i++) {                                                           \
            type step = get_##type(src, i);                                                        \
            value = (type)(value + (type)((type)(step >> 1) ^ (type)(0 - (step & 1))));            \
            put_##type(dst, i, value);                                                             \
        }                                                                                          \
    }                                                                                              \
    static void pack_##type(uint8_t *dst, const uint8_t *src, size_t n, uint64_t base, unsigned bits)  \
    {                                                                                              \
        uint64_t held = 0;                                                                         \
        unsigned count = 0;                                                                        \
        for (size_t i = 0; i < n; i++) {                                                           \
            held |= (uint64_t)(type)(get_##type(src, i) - (type)base) << count;                          \
            for (count += bits; count >= 8; count -= 8, held >>= 8)                                \
                *dst++ = (uint8_t)held;                                                            \
        }                                                                                          \
        if (count)                                                                                 \
            *dst = (uint8_t)held;                                                                  \
    }                                                                                              \
    static void unpack_##type(uint8_t *dst, const uint8_t *src, size_t n, uint64_t base, unsigned bits) \
    {                                                                                              \
        const uint64_t mask = ((uint64_t)1 << bits) - 1;                                           \
        size_t safe = n * bits / 8 < 8 ? 0 : (n * bits / 8 - 8) * 8 / (bits ? bits : 1);           \
        for (size_t i = 0; i < safe; i++) /* 8 bytes can be read at each of these */               \
            put_##type(dst, i, (type)((type)base + (type)(get_uint64_t(src + (i * bits >> 3), 0) >> (i * bits & 7) & mask))); \
        for (size_t i = safe; i < n; i++)                                                          \
            put_##type(dst, i, (type)((type)base + (type)(few_bits(src, i * bits, n * bits) & mask)));   \
    }

/* Up to 56 bits from bit `at` on, of a stretch that ends at bit `end`. */
static uint64_t few_bits(const uint8_t *src, size_t at, size_t end)
{
    uint64_t value = 0;
    for (size_t byte = at >> 3, i = 0; i < 8 && byte + i < (end + 7) >> 3; i++)
        value |= (uint64_t)src[byte + i] << 8 * i;
    return value >> (at & 7);
}

static ALWAYS_INLINE uint64_t get_uint64_t(const uint8_t *p, size_t i);
DEFINE(uint8_t, 8)
DEFINE(uint16_t, 16)
DEFINE(uint32_t, 32)
DEFINE(uint64_t, 64)

/* ---- planes --------------------------------------------------------------- */

/* Written out for each width, and compiled for each way to rotate: only so does the compiler see which bytes
 * go where, and finds vectors for them. */
static ALWAYS_INLINE void split(uint8_t *p, const uint8_t *src, size_t n, size_t width, const unsigned left)
{
    if (width == 2)
        for (size_t i = 0; i < n; i++) {
            uint16_t v = get_uint16_t(src, i);
            v = (uint16_t)(v << left | (v >> 15 & left));
            p[i] = (uint8_t)(v >> 8), p[n + i] = (uint8_t)v;
        }
    else if (width == 4)
        for (size_t i = 0; i < n; i++) {
            uint32_t v = get_uint32_t(src, i);
            v = v << left | (v >> 31 & left);
            p[i] = (uint8_t)(v >> 24), p[n + i] = (uint8_t)(v >> 16);
            p[2 * n + i] = (uint8_t)(v >> 8), p[3 * n + i] = (uint8_t)v;
        }
    else if (width == 8)
        for (size_t i = 0; i < n; i++) {
            uint64_t v = get_uint64_t(src, i);
            v = v << left | (v >> 63 & left);
            p[i] = (uint8_t)(v >> 56), p[n + i] = (uint8_t)(v >> 48);
            p[2 * n + i] = (uint8_t)(v >> 40), p[3 * n + i] = (uint8_t)(v >> 32);
            p[4 * n + i] = (uint8_t)(v >> 24), p[5 * n + i] = (uint8_t)(v >> 16);
            p[6 * n + i] = (uint8_t)(v >> 8), p[7 * n + i] = (uint8_t)v;
        }
    else
        for (size_t i = 0; i < n; i++)
            p[i] = (uint8_t)(src[i] << left | (src[i] >> 7 & left));
}

static ALWAYS_INLINE void join(uint8_t *dst, const uint8_t *const planes[], size_t n, size_t width, const unsigned right)
{
    const uint8_t *a = planes[0], *b = planes[width > 1], *c = planes[width > 2 ? 2 : 0], *d = planes[width > 2 ? 3 : 0];
    if (width == 2)
        for (size_t i = 0; i < n; i++) {
            uint16_t v = (uint16_t)(a[i] << 8 | b[i]);
            put_uint16_t(dst, i, (uint16_t)(v >> right | (v & right) << 15));
        }
    else if (width == 4)
        for (size_t i = 0; i < n; i++) {
            uint32_t v = (uint32_t)a[i] << 24 | (uint32_t)b[i] << 16 | (uint32_t)c[i] << 8 | d[i];
            put_uint32_t(dst, i, v >> right | (v & right) << 31);
        }
    else if (width == 8) {
        const uint8_t *e = planes[4], *f = planes[5], *g = planes[6], *h = planes[7];
        for (size_t i = 0; i < n; i++) {
            uint32_t high = (uint32_t)a[i] << 24 | (uint32_t)b[i] << 16 | (uint32_t)c[i] << 8 | d[i];
            uint32_t low = (uint32_t)e[i] << 24 | (uint32_t)f[i] << 16 | (uint32_t)g[i] << 8 | h[i];
            uint64_t v = (uint64_t)high << 32 | low;
            put_uint64_t(dst, i, v >> right | (v & right) << 63);
        }
    } else
        for (size_t i = 0; i < n; i++)
            dst[i] = (uint8_t)(a[i] >> right | (a[i] & right) << 7);
}

/* Twice: wider vectors take a third off both. */
static void split_plain(uint8_t *planes, const uint8_t *src, size_t n, size_t width, int rotate)
{
    if (rotate)
        split(planes, src, n, width, 1);
    else
        split(planes, src, n, width, 0);
}

static WITH_AVX2 void split_avx2(uint8_t *planes, const uint8_t *src, size_t n, size_t width, int rotate)
{
    if (rotate)
        split(planes, src, n, width, 1);
    else
        split(planes, src, n, width, 0);
}

static void join_plain(uint8_t *dst, const uint8_t *const planes[], size_t n, size_t width, int rotate)
{
    if (rotate)
        join(dst, planes, n, width, 1);
    else
        join(dst, planes, n, width, 0);
}

static WITH_AVX2 void join_avx2(uint8_t *dst, const uint8_t *const planes[], size_t n, size_t width, int rotate)
{
    if (rotate)
        join(dst, planes, n, width, 1);
    else
        join(dst, planes, n, width, 0);
}

void filters_split(uint8_t *planes, const uint8_t *src, size_t n, size_t width, int rotate, int portable)
{
    (HAS_AVX2() && !portable ? split_avx2 : split_plain)(planes, src, n, width, rotate);
}

void filters_join(uint8_t *dst, const uint8_t *const planes[], size_t n, size_t width, int rotate, int portable)
{
    (HAS_AVX2() && !portable ? join_avx2 : join_plain)(dst, planes, n, width, rotate);
}

/* ---- by width ------------------------------------------------------------- */

#define BY_WIDTH(name, ...)                                        \
    do {                                                           \
        switch (width) {                                           \
        case 1: name##_uint8_t(__VA_ARGS__); break;                \
        case 2: name##_uint16_t(__VA_ARGS__); break;               \
        case 4: name##_uint32_t(__VA_ARGS__); break;               \
        default: name##_uint64_t(__VA_ARGS__);                     \
        }                                                          \
    } while (0)

void filters_difference(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t first)
{
    BY_WIDTH(difference, dst, src, n, first);
}

void filters_accumulate(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t first)
{
    BY_WIDTH(accumulate, dst, src, n, first);
}

size_t filters_packed_size(size_t n, unsigned bits)
{
    return n / 8 * bits + (n % 8 * bits + 7) / 8;
}

void filters_pack(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t base, unsigned bits)
{
    BY_WIDTH(pack, dst, src, n, base, bits);
}

void filters_unpack(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t base, unsigned bits)
{
    BY_WIDTH(unpack, dst, src, n, base, bits);
}
