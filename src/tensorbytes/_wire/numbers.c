#include "numbers.h"

#include <math.h>
#include <string.h>

#include "instruction.h"

/* Work is done on this many elements at a time, which stay in the first cache. */
#define BLOCK 1024

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
static uint64_t swapped(uint64_t value, size_t width)
{
    uint64_t out = 0;
    for (size_t i = 0; i < width; i++)
        out = out << 8 | (value >> 8 * i & 0xff);
    return out;
}
#define NATIVE(type, value) ((type)swapped((value), sizeof(type)))
#else
#define NATIVE(type, value) (value)
#endif

#define GET(bits)                                                                     \
    static ALWAYS_INLINE uint##bits##_t get##bits(const uint8_t *p, size_t i)         \
    {                                                                                 \
        uint##bits##_t value;                                                         \
        memcpy(&value, p + i * sizeof value, sizeof value);                           \
        return NATIVE(uint##bits##_t, value);                                         \
    }
#define PUT(bits)                                                                     \
    static ALWAYS_INLINE void put##bits(uint8_t *p, size_t i, uint##bits##_t value)   \
    {                                                                                 \
        value = NATIVE(uint##bits##_t, value);                                        \
        memcpy(p + i * sizeof value, &value, sizeof value);                           \
    }
GET(16)
GET(32)
GET(64)
PUT(16)
PUT(32)

static ALWAYS_INLINE float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static ALWAYS_INLINE uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static ALWAYS_INLINE double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static ALWAYS_INLINE uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

size_t numbers_width(enum numbers_float type)
{
    return type == NUMBERS_FLOAT64 ? 8 : type == NUMBERS_FLOAT32 ? 4 : 2;
}

/* ---- one float as another -------------------------------------------------- */

#define INFINITE 0x7f800000u
#define MAGNITUDE 0x7fffffffu

/* Without branches, so that loops become vectors. A NaN comes out as one, but with which bits is not said. */
static ALWAYS_INLINE uint32_t widen_half(uint32_t half)
{
    const uint32_t magnitude = (half & 0x7fff) << 13, exponent = magnitude & (0x7c00u << 13);
    const uint32_t normal = magnitude + (112u << 23);
    const uint32_t large = magnitude + (224u << 23);
    const uint32_t tiny = bits_of(float_of(magnitude + (113u << 23)) - float_of(113u << 23));
    const uint32_t bits = exponent == 0 ? tiny : exponent == 0x7c00u << 13 ? large : normal;
    return bits | (half & 0x8000) << 16;
}

static ALWAYS_INLINE uint32_t to_half(uint32_t bits)
{
    const uint32_t magnitude = bits & MAGNITUDE;
    const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
    const uint32_t tiny = bits_of(float_of(magnitude & 0x3fffffff) + 0.5f) - 0x3f000000u;
    const uint32_t large = magnitude > INFINITE ? 0x7e00 : 0x7c00;
    const uint32_t half = magnitude >= 0x47800000u ? large : magnitude < 0x38800000u ? tiny : normal;
    return (half & 0xffff) | (bits >> 16 & 0x8000);
}

static ALWAYS_INLINE uint32_t to_brain(uint32_t bits)
{
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & MAGNITUDE) > INFINITE ? (bits >> 16 | 0x40) : rounded;
}

static ALWAYS_INLINE uint32_t widened(const uint8_t *p, size_t i, const enum numbers_float type)
{
    return type == NUMBERS_FLOAT16    ? widen_half(get16(p, i))
           : type == NUMBERS_BFLOAT16 ? (uint32_t)get16(p, i) << 16
                                      : get32(p, i);
}

/* A float32 as the type, and that as float32 again. */
static ALWAYS_INLINE uint32_t narrowed(uint32_t bits, const enum numbers_float type)
{
    return type == NUMBERS_FLOAT16 ? to_half(bits) : type == NUMBERS_BFLOAT16 ? to_brain(bits) : bits;
}

static ALWAYS_INLINE uint32_t back(uint32_t narrow, const enum numbers_float type)
{
    return type == NUMBERS_FLOAT16 ? widen_half(narrow) : type == NUMBERS_BFLOAT16 ? narrow << 16 : narrow;
}

/* 1 or 0 by arithmetic, which compilers make vectors of more readily than of comparisons. `magnitude` has no sign. */
static ALWAYS_INLINE uint32_t is_nan(uint32_t magnitude) { return (INFINITE - magnitude) >> 31; }
static ALWAYS_INLINE uint32_t is_finite(uint32_t magnitude) { return (magnitude - INFINITE) >> 31; }
static ALWAYS_INLINE uint32_t is_same(uint32_t magnitude, uint32_t other) { return ((magnitude ^ other) - 1) >> 31; }

static ALWAYS_INLINE int cast(uint8_t *restrict dst, const uint8_t *restrict src, size_t n,
                              const enum numbers_float from, const enum numbers_float to, double *error)
{
    int32_t most = 0;
    uint32_t nan = 0, over = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = widened(src, i, from), narrow = narrowed(bits, to), again = back(narrow, to);
        const uint32_t finite = is_finite(bits & MAGNITUDE);
        /* Both are multiples of the value's last place, and lie close: the difference is exact. */
        const uint32_t gap = bits_of(float_of(again) - float_of(bits)) & MAGNITUDE & (0 - finite);
        if (to == NUMBERS_FLOAT32)
            put32(dst, i, narrow);
        else
            put16(dst, i, (uint16_t)narrow);
        most = (int32_t)gap > most ? (int32_t)gap : most;
        nan |= is_nan(bits & MAGNITUDE);
        over |= finite & ~is_finite(again & MAGNITUDE);
    }
    *error = (double)float_of((uint32_t)most);
    return (nan ? NUMBERS_NAN : 0) | (over ? NUMBERS_OVERFLOW : 0);
}

static ALWAYS_INLINE int cast_from_double(uint8_t *restrict dst, const uint8_t *restrict src, size_t n, double *error)
{
    uint64_t most = 0, nan = 0, over = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = get64(src, i), magnitude = bits & ~((uint64_t)1 << 63);
        const uint64_t finite = magnitude < (uint64_t)0x7ff << 52 ? ~(uint64_t)0 : 0;
        const float narrow = (float)double_of(bits);
        const uint64_t gap = bits_of_double(fabs((double)narrow - double_of(bits))) & finite;
        put32(dst, i, bits_of(narrow));
        most = gap > most ? gap : most;
        nan |= magnitude > (uint64_t)0x7ff << 52;
        over |= (bits_of(narrow) & MAGNITUDE) >= INFINITE ? finite : 0;
    }
    *error = double_of(most);
    return (nan ? NUMBERS_NAN : 0) | (over ? NUMBERS_OVERFLOW : 0);
}

/* Compiled for each pair of types: only so does the compiler find vectors. */
static ALWAYS_INLINE int cast_any(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float from,
                                  enum numbers_float to, double *error)
{
    switch ((int)from * NUMBERS_FLOATS + (int)to) {
#define PAIR(from, to) \
    case from * NUMBERS_FLOATS + to: return cast(dst, src, n, from, to, error)
        PAIR(NUMBERS_FLOAT32, NUMBERS_FLOAT16);
        PAIR(NUMBERS_FLOAT32, NUMBERS_BFLOAT16);
        PAIR(NUMBERS_FLOAT16, NUMBERS_BFLOAT16);
        PAIR(NUMBERS_BFLOAT16, NUMBERS_FLOAT16);
        PAIR(NUMBERS_FLOAT16, NUMBERS_FLOAT32);
        PAIR(NUMBERS_BFLOAT16, NUMBERS_FLOAT32);
#undef PAIR
    default: return cast_from_double(dst, src, n, error);
    }
}

static int cast_plain(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float from, enum numbers_float to,
                      double *error)
{
    return cast_any(dst, src, n, from, to, error);
}

WITH_AVX2 static int cast_avx2(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float from,
                               enum numbers_float to, double *error)
{
    return cast_any(dst, src, n, from, to, error);
}

int numbers_cast(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float from, enum numbers_float to,
                 int portable, double *error)
{
    return (HAS_AVX2() && !portable ? cast_avx2 : cast_plain)(dst, src, n, from, to, error);
}

/* ---- counting -------------------------------------------------------------- */

/* Two tables: a value that follows itself would wait for its own count. */
void numbers_count(const uint8_t *src, size_t n, size_t width, uint32_t *counts)
{
    size_t i = 0;
    if (width == 1) {
        for (; i + 2 <= n; i += 2) {
            counts[src[i]]++;
            counts[256 + src[i + 1]]++;
        }
        if (i < n)
            counts[src[i]]++;
        return;
    }
    for (; i + 2 <= n; i += 2) {
        counts[get16(src, i)]++;
        counts[65536 + get16(src, i + 1)]++;
    }
    if (i < n)
        counts[get16(src, i)]++;
}

/* ---- sums ------------------------------------------------------------------ */

#define LANES 4
#define COUNT_SHIFT 42
/* In a lane: 2^18 fractions of 23 bits, below their number; their squares just fill 64 bits. */
#define BEFORE_FLUSH ((size_t)LANES << 18)

struct lane {
    uint64_t first[NUMBERS_BINS], square[NUMBERS_BINS];
};

static void flush(struct lane lanes[LANES], uint64_t *bins)
{
    for (size_t k = 0; k < LANES; k++)
        for (size_t bin = 0; bin < NUMBERS_BINS; bin++) {
            const uint64_t first = lanes[k].first[bin], square = lanes[k].square[bin];
            uint64_t *out = bins + bin * NUMBERS_WORDS;
            out[0] += first >> COUNT_SHIFT;
            out[1] += first & (((uint64_t)1 << COUNT_SHIFT) - 1);
            out[2] += square;
            out[3] += out[2] < square;
        }
    memset(lanes, 0, LANES * sizeof *lanes);
}

static ALWAYS_INLINE void add_to(struct lane *lane, uint32_t bits)
{
    const uint32_t fraction = bits & 0x7fffff;
    lane->first[bits >> 23] += fraction | (uint64_t)1 << COUNT_SHIFT;
    lane->square[bits >> 23] += (uint64_t)fraction * fraction;
}

/* Floats as integers of the same order, and these as floats again. */
static ALWAYS_INLINE int32_t ordered(uint32_t bits)
{
    return (int32_t)(bits ^ ((0 - (bits >> 31)) & MAGNITUDE));
}

static ALWAYS_INLINE void spread_of(const uint8_t *src, size_t n, int32_t ends[2], struct numbers_spread *out)
{
    uint32_t nan = 0, infinite = 0, negative_inf = 0, zeros = 0, negative = 0;
    int32_t low = ends[0], high = ends[1];
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = get32(src, i), magnitude = bits & MAGNITUDE, sign = bits >> 31;
        const uint32_t key = (uint32_t)ordered(bits), finite = 0 - is_finite(magnitude);
        const uint32_t none = is_nan(magnitude), inf = is_same(magnitude, INFINITE), zero = is_same(magnitude, 0);
        const int32_t for_low = (int32_t)((key & finite) | (INT32_MAX & ~finite));
        const int32_t for_high = (int32_t)((key & finite) | (0x80000000u & ~finite));
        low = for_low < low ? for_low : low;
        high = for_high > high ? for_high : high;
        nan += none;
        infinite += inf;
        negative_inf += inf & sign;
        zeros += zero;
        negative += sign & ~(none | zero);
    }
    ends[0] = low, ends[1] = high;
    out->nan += nan, out->positive_inf += infinite - negative_inf, out->negative_inf += negative_inf;
    out->zeros += zeros, out->negative += negative;
}

static ALWAYS_INLINE void sum(const uint8_t *src, size_t n, uint64_t *bins, struct numbers_spread *out)
{
    struct lane lanes[LANES];
    int32_t ends[2] = {INT32_MAX, INT32_MIN};
    size_t waiting = 0;
    memset(lanes, 0, sizeof lanes);
    memset(out, 0, sizeof *out);
    for (size_t start = 0; start < n; start += BLOCK) {
        const size_t some = n - start < BLOCK ? n - start : BLOCK;
        const uint8_t *p = src + start * 4;
        size_t i = 0;
        spread_of(p, some, ends, out);
        for (; i + LANES <= some; i += LANES) {
            add_to(&lanes[0], get32(p, i));
            add_to(&lanes[1], get32(p, i + 1));
            add_to(&lanes[2], get32(p, i + 2));
            add_to(&lanes[3], get32(p, i + 3));
        }
        for (; i < some; i++)
            add_to(&lanes[0], get32(p, i));
        if ((waiting += some) > BEFORE_FLUSH - BLOCK) {
            flush(lanes, bins);
            waiting = 0;
        }
    }
    flush(lanes, bins);
    out->low = out->high = 0;
    if (ends[0] > ends[1])
        out->low = 1; /* there is no finite one */
    else {
        out->low = float_of((uint32_t)ordered((uint32_t)ends[0]));
        out->high = float_of((uint32_t)ordered((uint32_t)ends[1]));
    }
}

static void sum_plain(const uint8_t *src, size_t n, uint64_t *bins, struct numbers_spread *out)
{
    sum(src, n, bins, out);
}

WITH_AVX2 static void sum_avx2(const uint8_t *src, size_t n, uint64_t *bins, struct numbers_spread *out)
{
    sum(src, n, bins, out);
}

void numbers_sum(const uint8_t *src, size_t n, uint64_t bins[NUMBERS_BINS * NUMBERS_WORDS], int portable,
                 struct numbers_spread *out)
{
    (HAS_AVX2() && !portable ? sum_avx2 : sum_plain)(src, n, bins, out);
}

/* ---- the histogram --------------------------------------------------------- */

struct bins {
    const double *edges;
    size_t count;
    double factor, margin; /* so far beside a whole number, rounding may have put a number into the wrong bin */
    uint64_t *counts;
};

static ALWAYS_INLINE void place(const struct bins *bins, double value, uint64_t finite, uint64_t *counts)
{
    const double last = (double)(bins->count - 1);
    double at = (value - bins->edges[0]) * bins->factor;
    at = at > 0 ? at : 0; /* what is not a number as well */
    at = at < last ? at : last;
    size_t bin = (size_t)(int64_t)at;
    /* Rounding may put a number one bin off: the edges decide. */
    bin -= (value < bins->edges[bin]) & (bin > 0);
    bin += (value >= bins->edges[bin + 1]) & (bin < bins->count - 1);
    counts[bin] += finite;
}

/* The bins of a block, as numbers that rounding can't have changed; 0 if it may have, of any of them, or if one of them
 * is not finite. */
static ALWAYS_INLINE int are_clear(const struct bins *bins, const uint8_t *src, size_t n, const int wide, int32_t *places)
{
    const double low = bins->edges[0], factor = bins->factor, last = (double)(bins->count - 1);
    const double least = bins->margin, most = 1 - bins->margin;
    uint32_t clear = 0;
    for (size_t i = 0; i < n; i++) {
        double at = ((wide ? double_of(get64(src, i)) : (double)float_of(get32(src, i))) - low) * factor;
        at = at > 0 ? at : 0;
        at = at < last + 1 ? at : last + 1;
        places[i] = (int32_t)at;
        const double beyond = at - (double)places[i];
        clear += (uint32_t)((beyond > least) & (beyond < most));
    }
    return clear == n;
}

static ALWAYS_INLINE void histogram(const struct bins *bins, const uint8_t *src, size_t n, const int wide)
{
    int32_t places[BLOCK / 4];
    uint64_t *counts[LANES];
    for (size_t k = 0; k < LANES; k++)
        counts[k] = bins->counts + k * bins->count;
    for (size_t start = 0; start < n; start += BLOCK / 4) {
        const size_t some = n - start < BLOCK / 4 ? n - start : BLOCK / 4;
        const uint8_t *p = src + start * (wide ? 8 : 4);
        size_t i = 0;
        if (some % LANES == 0 && are_clear(bins, p, some, wide, places)) {
            for (; i < some; i += LANES) {
                counts[0][places[i]]++;
                counts[1][places[i + 1]]++;
                counts[2][places[i + 2]]++;
                counts[3][places[i + 3]]++;
            }
        }
        for (; i < some; i++) {
            const uint64_t long_bits = wide ? get64(p, i) : 0;
            const uint32_t bits = wide ? 0 : get32(p, i);
            const double value = wide ? double_of(long_bits) : (double)float_of(bits);
            const uint64_t finite = wide ? (long_bits >> 52 & 0x7ff) != 0x7ff : is_finite(bits & MAGNITUDE);
            place(bins, value, finite, counts[i % LANES]);
        }
    }
}

static void histogram_plain(const struct bins *bins, const uint8_t *src, size_t n, int wide)
{
    if (wide)
        histogram(bins, src, n, 1);
    else
        histogram(bins, src, n, 0);
}

WITH_AVX2 static void histogram_avx2(const struct bins *bins, const uint8_t *src, size_t n, int wide)
{
    if (wide)
        histogram(bins, src, n, 1);
    else
        histogram(bins, src, n, 0);
}

void numbers_histogram(const uint8_t *src, size_t n, enum numbers_float type, const double *edges, size_t bins,
                       double factor, int portable, uint64_t *counts)
{
    const double low = fabs(edges[0]), high = fabs(edges[bins]);
    const double margin = (low > high ? low : high) * fabs(factor) * 0x1p-44 + (double)bins * 0x1p-44;
    const struct bins into = {edges, bins, factor, margin, counts};
    (HAS_AVX2() && !portable ? histogram_avx2 : histogram_plain)(&into, src, n, type == NUMBERS_FLOAT64);
}

/* ---- quantization ---------------------------------------------------------- */

/* Added and taken away again, it leaves the nearest integer of what is below 2^22, ties to even. */
#define ROUNDING 12582912.0f
#define FAR 1048576.0f

struct sums {
    double error[NUMBERS_LANES], noise[NUMBERS_LANES], signal[NUMBERS_LANES], worst[NUMBERS_LANES];
};

/* Some values of one scale; their errors go to `errors`, the values as float32 to `wide`. */
static ALWAYS_INLINE uint32_t steps(uint8_t *dst, const uint8_t *src, size_t n, const enum numbers_float type,
                                    float scale, float zero, const struct numbers_affine *how, float *wide,
                                    double *errors)
{
    const float least = (float)how->least, most = (float)how->most;
    const uint8_t mask = how->mask;
    uint32_t beyond = 0;
    for (size_t i = 0; i < n; i++) {
        const float value = float_of(widened(src, i, type));
        float number = value / scale;
        number = number < FAR ? number : FAR; /* what is not a number as well */
        number = number > -FAR ? number : -FAR;
        number = (number + ROUNDING) - ROUNDING + zero;
        const float kept = number < least ? least : number > most ? most : number;
        const float again = float_of(back(narrowed(bits_of((kept - zero) * scale), type), type));
        beyond |= kept != number;
        dst[i] = (uint8_t)((uint8_t)(int32_t)kept & mask);
        wide[i] = value;
        errors[i] = fabs((double)value - (double)again);
    }
    return beyond;
}

static ALWAYS_INLINE void quantize(uint8_t *dst, const uint8_t *src, size_t n, const enum numbers_float type,
                                   const struct numbers_affine *how, double *out, struct numbers_cost *cost)
{
    struct sums sums;
    float wide[NUMBERS_LANES];
    double errors[NUMBERS_LANES];
    const size_t width = type == NUMBERS_FLOAT32 ? 4 : 2;
    size_t run = 0, left = how->run; /* the run that is at hand, and how many of its values are still to come */
    memset(&sums, 0, sizeof sums);
    memset(cost, 0, sizeof *cost);
    memset(out, 0, 2 * NUMBERS_LANES * sizeof *out);
    for (size_t start = 0; start < n; start += NUMBERS_LANES) {
        const size_t some = n - start < NUMBERS_LANES ? n - start : NUMBERS_LANES;
        for (size_t at = 0; at < some;) {
            if (left == 0)
                run++, left = how->run;
            const size_t now = some - at < left ? some - at : left;
            const float zero = how->zeros ? (float)how->zeros[run] : 0;
            cost->beyond |= steps(dst + start + at, src + (start + at) * width, now, type, how->scales[run], zero, how,
                                  wide + at, errors + at) != 0;
            at += now, left -= now;
        }
        for (size_t i = 0; i < some; i++) {
            sums.noise[i] += errors[i] * errors[i];
            sums.signal[i] += (double)wide[i] * (double)wide[i];
            sums.worst[i] = errors[i] > sums.worst[i] || errors[i] != errors[i] ? errors[i] : sums.worst[i];
        }
        if (some == NUMBERS_LANES)
            for (size_t i = 0; i < NUMBERS_LANES; i++)
                sums.error[i] += errors[i];
        else
            memcpy(out + NUMBERS_LANES, errors, some * sizeof *errors);
    }
    memcpy(out, sums.error, sizeof sums.error);
    for (size_t i = 0; i < NUMBERS_LANES; i++) {
        cost->noise += sums.noise[i];
        cost->signal += sums.signal[i];
        cost->worst = sums.worst[i] > cost->worst || sums.worst[i] != sums.worst[i] ? sums.worst[i] : cost->worst;
    }
}

static ALWAYS_INLINE void quantize_any(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float type,
                                       const struct numbers_affine *how, double *sums, struct numbers_cost *out)
{
    if (type == NUMBERS_FLOAT16)
        quantize(dst, src, n, NUMBERS_FLOAT16, how, sums, out);
    else if (type == NUMBERS_BFLOAT16)
        quantize(dst, src, n, NUMBERS_BFLOAT16, how, sums, out);
    else
        quantize(dst, src, n, NUMBERS_FLOAT32, how, sums, out);
}

static void quantize_plain(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float type,
                           const struct numbers_affine *how, double *sums, struct numbers_cost *out)
{
    quantize_any(dst, src, n, type, how, sums, out);
}

WITH_AVX2 static void quantize_avx2(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float type,
                                    const struct numbers_affine *how, double *sums, struct numbers_cost *out)
{
    quantize_any(dst, src, n, type, how, sums, out);
}

void numbers_quantize(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float type,
                      const struct numbers_affine *how, int portable, double sums[2 * NUMBERS_LANES],
                      struct numbers_cost *out)
{
    (HAS_AVX2() && !portable ? quantize_avx2 : quantize_plain)(dst, src, n, type, how, sums, out);
}

/* ---- extremes ---------------------------------------------------------------- */

static ALWAYS_INLINE int extremes(const uint8_t *src, size_t runs, size_t run, const enum numbers_float type, float *low,
                                  float *high)
{
    const size_t width = type == NUMBERS_FLOAT32 ? 4 : 2;
    for (size_t k = 0; k < runs; k++, src += run * width) {
        int32_t least = INT32_MAX, most = INT32_MIN;
        for (size_t i = 0; i < run; i++) {
            const int32_t key = ordered(widened(src, i, type));
            least = key < least ? key : least;
            most = key > most ? key : most;
        }
        const uint32_t bits[2] = {(uint32_t)ordered((uint32_t)least), (uint32_t)ordered((uint32_t)most)};
        if (!is_finite(bits[0] & MAGNITUDE) || !is_finite(bits[1] & MAGNITUDE))
            return 0;
        low[k] = float_of(bits[0]), high[k] = float_of(bits[1]);
    }
    return 1;
}

static ALWAYS_INLINE int extremes_any(const uint8_t *src, size_t runs, size_t run, enum numbers_float type, float *low,
                                      float *high)
{
    return type == NUMBERS_FLOAT16    ? extremes(src, runs, run, NUMBERS_FLOAT16, low, high)
           : type == NUMBERS_BFLOAT16 ? extremes(src, runs, run, NUMBERS_BFLOAT16, low, high)
                                      : extremes(src, runs, run, NUMBERS_FLOAT32, low, high);
}

static int extremes_plain(const uint8_t *src, size_t runs, size_t run, enum numbers_float type, float *low, float *high)
{
    return extremes_any(src, runs, run, type, low, high);
}

WITH_AVX2 static int extremes_avx2(const uint8_t *src, size_t runs, size_t run, enum numbers_float type, float *low,
                                   float *high)
{
    return extremes_any(src, runs, run, type, low, high);
}

int numbers_extremes(const uint8_t *src, size_t runs, size_t run, enum numbers_float type, int portable, float *low,
                     float *high)
{
    return (HAS_AVX2() && !portable ? extremes_avx2 : extremes_plain)(src, runs, run, type, low, high);
}

/* ---- two of them ------------------------------------------------------------ */

static ALWAYS_INLINE double number(const uint8_t *p, size_t i, const enum numbers_float type)
{
    return type == NUMBERS_FLOAT64 ? double_of(get64(p, i)) : (double)float_of(widened(p, i, type));
}

/* Sums and extremes of each place in a row. */
struct pairs {
    double dot[NUMBERS_LANES], square_a[NUMBERS_LANES], square_b[NUMBERS_LANES];
    double largest[NUMBERS_LANES];
    double relative;
};

static ALWAYS_INLINE int are_finite(const uint8_t *a, const uint8_t *b, size_t n, const enum numbers_float type)
{
    uint64_t long_sum = 0;
    uint32_t sum = 0;
    if (type == NUMBERS_FLOAT64) {
        const uint64_t infinite = (uint64_t)0x7ff << 52, sign = (uint64_t)1 << 63;
        for (size_t i = 0; i < n; i++)
            long_sum += (((get64(a, i) & ~sign) - infinite) >> 63) + (((get64(b, i) & ~sign) - infinite) >> 63);
        return long_sum == 2 * n;
    }
    for (size_t i = 0; i < n; i++)
        sum += is_finite(widened(a, i, type) & MAGNITUDE) + is_finite(widened(b, i, type) & MAGNITUDE);
    return sum == 2 * n;
}

static ALWAYS_INLINE double share(double gap, double x, double y)
{
    const double size = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
    return gap < INFINITY ? gap / (size > 0 ? size : 1) : INFINITY;
}

/* Pairs of finite numbers. */
static ALWAYS_INLINE void compare_finite(const uint8_t *a, const uint8_t *b, size_t n, const enum numbers_float type,
                                         struct pairs *pairs, struct numbers_distance *out)
{
    /* Division is slow, and seldom finds more than is known: only those that may be more are divided. */
    const double known = pairs->relative * (1 - 0x1p-50);
    uint64_t differing = 0, more = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = number(a, i, type), y = number(b, i, type);
        const double gap = fabs(x - y), size = fabs(x) > fabs(y) ? fabs(x) : fabs(y);
        pairs->largest[i] = gap > pairs->largest[i] ? gap : pairs->largest[i];
        pairs->dot[i] += x * y;
        pairs->square_a[i] += x * x;
        pairs->square_b[i] += y * y;
        differing += (uint64_t)(x != y);
        more += (uint64_t)((x != y) & (gap >= known * size));
    }
    out->differing += differing;
    for (size_t i = 0; more && i < n; i++) {
        const double x = number(a, i, type), y = number(b, i, type), found = share(fabs(x - y), x, y);
        pairs->relative = found > pairs->relative ? found : pairs->relative;
    }
}

/* Any pairs. */
static ALWAYS_INLINE void compare_each(const uint8_t *a, const uint8_t *b, size_t n, const enum numbers_float type,
                                       struct pairs *pairs, struct numbers_distance *out)
{
    for (size_t i = 0; i < n; i++) {
        const double x = number(a, i, type), y = number(b, i, type);
        const int x_is_none = x != x, y_is_none = y != y;
        out->nan_a += (uint64_t)x_is_none, out->nan_b += (uint64_t)y_is_none;
        out->nan_apart += (uint64_t)(x_is_none != y_is_none);
        out->differing += (uint64_t)(x != y && !(x_is_none && y_is_none));
        if (fabs(x) < INFINITY && fabs(y) < INFINITY) {
            pairs->dot[i] += x * y;
            pairs->square_a[i] += x * x;
            pairs->square_b[i] += y * y;
        }
        if (x_is_none || y_is_none || x == y)
            continue;
        const double gap = fabs(x - y), found = share(gap, x, y); /* infinite for two infinities as well */
        pairs->largest[i] = gap > pairs->largest[i] ? gap : pairs->largest[i];
        pairs->relative = found > pairs->relative ? found : pairs->relative;
    }
}

static ALWAYS_INLINE void compare(const uint8_t *a, const uint8_t *b, size_t n, const enum numbers_float type,
                                  struct numbers_distance *out)
{
    struct pairs pairs;
    const size_t width = type == NUMBERS_FLOAT64 ? 8 : type == NUMBERS_FLOAT32 ? 4 : 2;
    memset(&pairs, 0, sizeof pairs);
    memset(out, 0, sizeof *out);
    for (size_t start = 0; start < n; start += NUMBERS_LANES, a += NUMBERS_LANES * width, b += NUMBERS_LANES * width) {
        const size_t some = n - start < NUMBERS_LANES ? n - start : NUMBERS_LANES;
        if (are_finite(a, b, some, type))
            compare_finite(a, b, some, type, &pairs, out);
        else
            compare_each(a, b, some, type, &pairs, out);
    }
    out->relative = pairs.relative;
    for (size_t i = 0; i < NUMBERS_LANES; i++) {
        out->largest = pairs.largest[i] > out->largest ? pairs.largest[i] : out->largest;
        out->dot += pairs.dot[i], out->square_a += pairs.square_a[i], out->square_b += pairs.square_b[i];
    }
}

static ALWAYS_INLINE void compare_any(const uint8_t *a, const uint8_t *b, size_t n, enum numbers_float type,
                                      struct numbers_distance *out)
{
    switch (type) {
    case NUMBERS_FLOAT16: compare(a, b, n, NUMBERS_FLOAT16, out); break;
    case NUMBERS_BFLOAT16: compare(a, b, n, NUMBERS_BFLOAT16, out); break;
    case NUMBERS_FLOAT32: compare(a, b, n, NUMBERS_FLOAT32, out); break;
    default: compare(a, b, n, NUMBERS_FLOAT64, out);
    }
}

static void compare_plain(const uint8_t *a, const uint8_t *b, size_t n, enum numbers_float type,
                          struct numbers_distance *out)
{
    compare_any(a, b, n, type, out);
}

WITH_AVX2 static void compare_avx2(const uint8_t *a, const uint8_t *b, size_t n, enum numbers_float type,
                                   struct numbers_distance *out)
{
    compare_any(a, b, n, type, out);
}

void numbers_compare(const uint8_t *a, const uint8_t *b, size_t n, enum numbers_float type, int portable,
                     struct numbers_distance *out)
{
    (HAS_AVX2() && !portable ? compare_avx2 : compare_plain)(a, b, n, type, out);
}
