#include "columns.h"

#include <string.h>

#include "instruction.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define IS_BIG 1
#else
#define IS_BIG 0
#endif

static ALWAYS_INLINE uint64_t get(const uint8_t *p, size_t width)
{
    uint64_t value = 0;
#if IS_BIG
    for (size_t i = 0; i < width; i++)
        value |= (uint64_t)p[i] << 8 * i;
#else
    memcpy(&value, p, width);
#endif
    return value;
}

static ALWAYS_INLINE void put(uint8_t *p, uint64_t value, size_t width)
{
#if IS_BIG
    for (size_t i = 0; i < width; i++)
        p[i] = (uint8_t)(value >> 8 * i);
#else
    memcpy(p, &value, width);
#endif
}

/* ---- what is missing -------------------------------------------------------- */

/* Elements that are looked at, and cleared, while they are in the cache. */
#define BLOCK 1024

/* Without branches, so that the compiler turns the loops into vectors; the order of bytes is of no matter here. */
#define DEFINE(type)                                                                                      \
    static ALWAYS_INLINE type found_##type(const uint8_t *data, const uint8_t *present, size_t n)         \
    {                                                                                                     \
        type found = 0;                                                                                   \
        for (size_t i = 0; i < n; i++) {                                                                  \
            type value;                                                                                   \
            memcpy(&value, data + i * sizeof value, sizeof value);                                        \
            found |= (type)(value & (type)-(type)(present[i] == 0));                                      \
        }                                                                                                 \
        return found;                                                                                     \
    }                                                                                                     \
    static ALWAYS_INLINE void clear_##type(uint8_t *data, const uint8_t *present, size_t n)               \
    {                                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                                  \
            type value;                                                                                   \
            memcpy(&value, data + i * sizeof value, sizeof value);                                        \
            value &= (type)-(type)(present[i] != 0);                                                      \
            memcpy(data + i * sizeof value, &value, sizeof value);                                        \
        }                                                                                                 \
    }

DEFINE(uint8_t)
DEFINE(uint16_t)
DEFINE(uint32_t)
DEFINE(uint64_t)

static ALWAYS_INLINE int found_any(const uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        if (!present[i])
            for (size_t k = 0; k < width; k++)
                if (data[i * width + k])
                    return 1;
    return 0;
}

static ALWAYS_INLINE void clear_any(uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    for (size_t i = 0; i < n; i++)
        if (!present[i])
            memset(data + i * width, 0, width);
}

static ALWAYS_INLINE int found(const uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    switch (width) {
    case 1: return found_uint8_t(data, present, n) != 0;
    case 2: return found_uint16_t(data, present, n) != 0;
    case 4: return found_uint32_t(data, present, n) != 0;
    case 8: return found_uint64_t(data, present, n) != 0;
    default: return found_any(data, present, n, width);
    }
}

static ALWAYS_INLINE void clear(uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    switch (width) {
    case 1: clear_uint8_t(data, present, n); break;
    case 2: clear_uint16_t(data, present, n); break;
    case 4: clear_uint32_t(data, present, n); break;
    case 8: clear_uint64_t(data, present, n); break;
    default: clear_any(data, present, n, width);
    }
}

static ALWAYS_INLINE int are_zero(const uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    for (size_t at = 0; at < n; at += BLOCK)
        if (found(data + at * width, present + at, n - at < BLOCK ? n - at : BLOCK, width))
            return 0;
    return 1;
}

static ALWAYS_INLINE void clear_all(uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t some = n - at < BLOCK ? n - at : BLOCK;
        if (found(data + at * width, present + at, some, width))
            clear(data + at * width, present + at, some, width);
    }
}

WITH_AVX2 static int are_zero_avx2(const uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    return are_zero(data, present, n, width);
}

WITH_AVX2 static void clear_all_avx2(uint8_t *data, const uint8_t *present, size_t n, size_t width)
{
    clear_all(data, present, n, width);
}

int columns_missing_zero(const uint8_t *data, const uint8_t *present, size_t n, size_t width, int portable)
{
    return HAS_AVX2() && !portable ? are_zero_avx2(data, present, n, width) : are_zero(data, present, n, width);
}

void columns_missing_clear(uint8_t *data, const uint8_t *present, size_t n, size_t width, int portable)
{
    if (HAS_AVX2() && !portable)
        clear_all_avx2(data, present, n, width);
    else
        clear_all(data, present, n, width);
}

/* ---- offsets and lengths ---------------------------------------------------- */

static ALWAYS_INLINE int64_t offset(const uint8_t *p, size_t i, size_t width)
{
    return width == 4 ? (int32_t)(uint32_t)get(p + 4 * i, 4) : (int64_t)get(p + 8 * i, 8);
}

static ALWAYS_INLINE int rise(const uint8_t *offsets, size_t n, size_t width)
{
    unsigned falls = 0;
    for (size_t i = 1; i < n; i++)
        falls |= offset(offsets, i, width) < offset(offsets, i - 1, width);
    return !falls;
}

int columns_offsets_rise(const uint8_t *offsets, size_t n, size_t width)
{
    return width == 4 ? rise(offsets, n, 4) : rise(offsets, n, 8);
}

size_t columns_longest_word(const uint8_t *data, size_t size, size_t count)
{
    size_t longest = 0, at = 0;
    while (count--) {
        if (size - at < 4)
            return SIZE_MAX;
        const size_t length = (size_t)get(data + at, 4);
        at += 4;
        if (length > size - at)
            return SIZE_MAX;
        at += length;
        longest = length > longest ? length : longest;
    }
    return longest;
}

/* ---- decimals --------------------------------------------------------------- */

#define DIGITS 18 /* of the largest number */

static const uint64_t POWERS[DIGITS + 1] = {
    1u, 10u, 100u, 1000u, 10000u, 100000u, 1000000u, 10000000u, 100000000u, 1000000000u, 10000000000u, 100000000000u,
    1000000000000u, 10000000000000u, 100000000000000u, 1000000000000000u, 10000000000000000u, 100000000000000000u,
    1000000000000000000u,
};

/* The digits of the number at p, and whether it is negative. A number of more than 64 bits comes as UINT64_MAX. */
static ALWAYS_INLINE uint64_t number(const uint8_t *p, size_t width, int *negative)
{
    uint64_t low = get(p, width == 4 ? 4 : 8), sign;
    if (width == 4)
        low = (uint64_t)(int64_t)(int32_t)(uint32_t)low;
    sign = 0 - (low >> 63);
    *negative = (int)(low >> 63);
    low = (low ^ sign) - sign;
    for (size_t at = 8; at < width; at += 8)
        if (get(p + at, 8) != sign)
            return UINT64_MAX;
    return low;
}

/* How many digits a number under 10^18 has. */
static ALWAYS_INLINE unsigned count_digits(uint64_t value)
{
#if defined(__GNUC__) || defined(__clang__)
    unsigned about = (64u - (unsigned)__builtin_clzll(value | 1)) * 1233 >> 12; /* times log10(2) */
    return about + (value >= POWERS[about]) + (value == 0);
#else
    unsigned count = 1;
    while (count < DIGITS && value >= POWERS[count])
        count++;
    return count;
#endif
}

static ALWAYS_INLINE int sizes(int64_t *offsets, const uint8_t *data, const uint8_t *present, size_t n, size_t width,
                               unsigned scale, uint64_t most)
{
    const unsigned point = scale > 0, least = scale + 1;
    int64_t total = 0;
    unsigned large = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < n; i++) {
        int negative, there = !present || present[i];
        uint64_t value = number(data + i * width, width, &negative);
        large |= there & (value >= most);
        unsigned digits = count_digits(value < COLUMNS_MOST_DECIMAL ? value : 0);
        total += there ? (digits < least ? least : digits) + point + (unsigned)negative : 0;
        offsets[i + 1] = total;
    }
    return !large;
}

int columns_decimal_sizes(int64_t *offsets, const uint8_t *data, const uint8_t *present, size_t n, size_t width,
                          unsigned scale, uint64_t most)
{
    switch (width) {
    case 4: return sizes(offsets, data, present, n, 4, scale, most);
    case 8: return sizes(offsets, data, present, n, 8, scale, most);
    case 16: return sizes(offsets, data, present, n, 16, scale, most);
    default: return sizes(offsets, data, present, n, 32, scale, most);
    }
}

#define ZEROS 0x3030303030303030u /* "00000000" */
#define ALL (~(uint64_t)0)

/* Eight digits as letters, the first in the lowest byte, of a number under 10^8: four digits each are split into two
 * pairs, and these into digits, side by side. */
static ALWAYS_INLINE uint64_t eight_letters(uint64_t value)
{
    uint64_t over = value * 109951163 >> 40; /* divided by 10000 */
    uint64_t fours = over | (value - over * 10000) << 32;
    uint64_t high = fours * 10486 >> 20 & 0x0000007f0000007fu; /* divided by 100 */
    uint64_t pairs = (fours - high * 100) << 16 | high;
    uint64_t tens = pairs * 103 >> 10 & 0x000f000f000f000fu; /* divided by 10 */
    return ((pairs - tens * 10) << 8 | tens) + ZEROS;
}

/* The last one is written first: eight letters at a time reach into the text before, which comes next. */
static ALWAYS_INLINE int text(uint8_t *out, size_t size, const int64_t *offsets, const uint8_t *data, size_t n,
                              size_t width, const unsigned scale)
{
    const unsigned point = scale > 0, before = 8 * (7 - scale); /* bits of eight letters that stand before the point */
    for (size_t i = n; i-- > 0;) {
        const int64_t start = offsets[i], end = offsets[i + 1];
        int negative;
        uint64_t value;
        if (start == end)
            continue;
        if (start < 0 || end < start || (uint64_t)end > size)
            return 0;
        value = number(data + i * width, width, &negative);
        const size_t rest = (size_t)(end - start), other = scale + point + (size_t)negative;
        if (value >= COLUMNS_MOST_DECIMAL || rest <= other || rest > DIGITS + 1 + point)
            return 0;
        uint64_t above = value / 100000000, last = eight_letters(value - above * 100000000), middle, first = ZEROS;
        if (above < 100000000)
            middle = eight_letters(above);
        else {
            first = eight_letters(above / 100000000);
            middle = eight_letters(above % 100000000);
        }
        if (point) { /* the digits before it move by one */
            uint64_t after = last & ALL << before << 8, moved = last >> 8 & (((uint64_t)1 << before) - 1);
            first = first >> 8 | middle << 56;
            middle = middle >> 8 | last << 56;
            last = after | (uint64_t)'.' << before | moved;
        }
        if (end >= 24) {
            put(out + end - 8, last, 8);
            put(out + end - 16, middle, 8);
            if (rest > 16)
                put(out + end - 24, first, 8);
        } else {
            uint8_t letters[24];
            put(letters, first, 8);
            put(letters + 8, middle, 8);
            put(letters + 16, last, 8);
            memcpy(out + start, letters + 24 - rest, rest);
        }
        if (negative)
            out[start] = '-';
    }
    return 1;
}

int columns_decimal_text(uint8_t *out, size_t size, const int64_t *offsets, const uint8_t *data, size_t n, size_t width,
                         unsigned scale)
{
    switch (width) {
    case 4: return text(out, size, offsets, data, n, 4, scale);
    case 8: return text(out, size, offsets, data, n, 8, scale);
    case 16: return text(out, size, offsets, data, n, 16, scale);
    default: return text(out, size, offsets, data, n, 32, scale);
    }
}

/* The number that eight digits make, each in a byte, the first in the lowest. Sets *odd where one is over 9. */
static ALWAYS_INLINE uint64_t from_eight(uint64_t digits, uint64_t *odd)
{
    *odd |= (digits | (digits + 0x0606060606060606u)) & 0xf0f0f0f0f0f0f0f0u;
    digits = (digits * 10 + (digits >> 8)) & 0x00ff00ff00ff00ffu;
    digits = (digits * 100 + (digits >> 16)) & 0x0000ffff0000ffffu;
    return (digits * 10000 + (digits >> 32)) & 0xffffffffu;
}

/* The digits of up to 17 letters that end at `end`, with a point before the last `scale` of them where that is not 0:
 * at most 16 digits. 17 letters can be read. */
static ALWAYS_INLINE uint64_t from_letters(const uint8_t *end, size_t digits, unsigned scale, uint64_t *odd)
{
    const unsigned before = 8 * (7 - scale);
    uint64_t last = get(end - 8, 8), first = get(end - 16, 8);
    if (scale) {
        *odd |= (last >> before & 0xff) != '.';
        last = (last & ALL << before << 8) | ((last << 8 | first >> 56) & (((uint64_t)1 << before << 8) - 1));
        first = first << 8 | end[-17];
    }
    last = (last ^ ZEROS) & (digits < 8 ? ALL << 8 * (8 - digits) : ALL);
    first = (first ^ ZEROS) & (digits > 8 ? ALL << 8 * (16 - digits) : 0);
    return from_eight(first, odd) * 100000000 + from_eight(last, odd);
}

/* The same of any text, one letter after the other. */
static uint64_t from_text(const uint8_t *p, size_t size, unsigned scale, uint64_t *odd)
{
    uint64_t value = 0;
    size_t digits = 0, after = 0, points = 0;
    for (size_t i = 0; i < size && digits <= DIGITS; i++) {
        if (p[i] == '.' && digits && !points) {
            points = 1;
            continue;
        }
        *odd |= (uint8_t)(p[i] - '0') > 9;
        value = value * 10 + (uint8_t)(p[i] - '0');
        digits++;
        after += points;
    }
    if (digits == after || points > after || after > scale || digits - after + scale > DIGITS) {
        *odd = 1;
        return 0;
    }
    return value * POWERS[scale - after];
}

static ALWAYS_INLINE int parse(uint8_t *out, const uint8_t *text, size_t size, const int64_t *offsets,
                               const uint8_t *present, size_t n, size_t width, const unsigned scale, uint64_t most)
{
    const unsigned point = scale > 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t start = offsets[i], end = offsets[i + 1];
        uint64_t value = 0, sign = 0, odd = 0;
        if (!present || present[i]) {
            if (start < 0 || end <= start || (uint64_t)end > size)
                return 0;
            const uint8_t *p = text + start;
            size_t rest = (size_t)(end - start);
            if (*p == '-' || *p == '+') {
                sign = 0 - (uint64_t)(*p == '-');
                p++, rest--;
            }
            if (end >= 17 && rest > scale + point && rest <= 16 + point) {
                value = from_letters(text + end, rest - point, scale, &odd);
            } else {
                odd = 1;
            }
            if (odd) { /* not as we write it */
                odd = 0;
                value = from_text(p, rest, scale, &odd);
            }
            if (odd || value >= most)
                return 0;
        }
        value = (value ^ sign) - sign;
        sign = value ? sign : 0;
        put(out + i * width, value, width == 4 ? 4 : 8);
        for (size_t at = 8; at < width; at += 8)
            put(out + i * width + at, sign, 8);
    }
    return 1;
}

int columns_decimal_parse(uint8_t *out, const uint8_t *text, size_t size, const int64_t *offsets, const uint8_t *present,
                          size_t n, size_t width, unsigned scale, uint64_t most)
{
    switch (width) {
    case 4: return parse(out, text, size, offsets, present, n, 4, scale, most);
    case 8: return parse(out, text, size, offsets, present, n, 8, scale, most);
    case 16: return parse(out, text, size, offsets, present, n, 16, scale, most);
    default: return parse(out, text, size, offsets, present, n, 32, scale, most);
    }
}
