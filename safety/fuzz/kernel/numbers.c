/* Figures over numbers: whatever the bits of a number, it is counted within its table and turned into an integer only
 * where one can hold it; and both paths give the same. */
#include "target.h"

#include <math.h>

#include "numbers.h"

#define MOST_ELEMENTS 1100 /* a few rows of lanes, and a block */

static int same(double a, double b)
{
    return a == b || (a != a && b != b);
}

/* Elements made of the rest of the input, which is repeated, at an address that suits no vector. */
static uint8_t *take_elements(const struct input *in, size_t n, size_t width, uint8_t **block)
{
    uint8_t *elements = (*block = memory(n * width + 1)) + 1;
    for (size_t i = 0; i < n * width; i++)
        elements[i] = in->size ? in->data[i % in->size] : (uint8_t)i;
    return elements;
}

static float float_at(const uint8_t *p, size_t i)
{
    float value;
    memcpy(&value, p + 4 * i, 4);
    return value;
}

static void count(const uint8_t *src, size_t n, size_t width)
{
    size_t values = width == 1 ? 256 : 65536, sum = 0;
    uint32_t *counts = memory(2 * values * sizeof *counts);
    memset(counts, 0, 2 * values * sizeof *counts);
    numbers_count(src, n, width, counts);
    for (size_t i = 0; i < 2 * values; i++)
        sum += counts[i];
    PROMISE(sum == n);
    free(counts);
}

static void sum(const uint8_t *src, size_t n)
{
    const size_t words = NUMBERS_BINS * NUMBERS_WORDS;
    uint64_t *bins = memory(2 * words * sizeof *bins), counted = 0;
    struct numbers_spread found[2];
    memset(bins, 0, 2 * words * sizeof *bins);
    for (int portable = 0; portable < 2; portable++)
        numbers_sum(src, n, bins + words * (size_t)portable, portable, &found[portable]);
    PROMISE(!memcmp(bins, bins + words, words * sizeof *bins));
    PROMISE(!memcmp(found, found + 1, 5 * sizeof(uint64_t)));
    PROMISE(found[0].low == found[1].low && found[0].high == found[1].high);
    for (size_t i = 0; i < NUMBERS_BINS; i++)
        counted += bins[i * NUMBERS_WORDS];
    PROMISE(counted == n);
    for (size_t i = 0; i < n; i++)
        PROMISE(!isfinite(float_at(src, i)) || (found[0].low <= float_at(src, i) && float_at(src, i) <= found[0].high));
    free(bins);
}

static double number_at(const uint8_t *p, size_t i, enum numbers_float type)
{
    double value;
    if (type != NUMBERS_FLOAT64)
        return (double)float_at(p, i);
    memcpy(&value, p + 8 * i, 8);
    return value;
}

/* Edges of whole numbers, of which rounding leaves no doubt; or any edges and any factor, which lead nowhere else. */
static void histogram(struct input *in, const uint8_t *src, size_t n, enum numbers_float type)
{
    uint8_t how = take_byte(in);
    int usual = how < 0xc0;
    size_t bins = 1 + how % 20, size = 4 * bins * sizeof(uint64_t);
    double *edges = memory((bins + 1) * sizeof *edges), low = (double)(int8_t)take_byte(in), step = 1 + take_byte(in) % 5;
    uint64_t *counts = memory(size), *portable = memory(size), *expected = memory(bins * sizeof *expected);
    double factor = 1 / step;
    for (size_t i = 0; i <= bins; i++) {
        uint64_t bits;
        edges[i] = low + step * (double)i;
        if (!usual) {
            bits = take_number(in, 8);
            memcpy(edges + i, &bits, 8);
            memcpy(&factor, &bits, 8);
        }
    }
    memset(counts, 0, size);
    memset(portable, 0, size);
    memset(expected, 0, bins * sizeof *expected);
    numbers_histogram(src, n, type, edges, bins, factor, 0, counts);
    numbers_histogram(src, n, type, edges, bins, factor, 1, portable);
    PROMISE(!memcmp(counts, portable, size));
    for (size_t i = 0; i < n; i++) {
        double value = number_at(src, i, type);
        size_t bin = 0;
        while (usual && bin < bins - 1 && value >= edges[bin + 1])
            bin++;
        expected[bin] += isfinite(value) != 0;
    }
    for (size_t i = 0; usual && i < bins; i++)
        PROMISE(counts[i] + counts[bins + i] + counts[2 * bins + i] + counts[3 * bins + i] == expected[i]);
    free(expected);
    free(portable);
    free(counts);
    free(edges);
}

static void cast(const uint8_t *src, size_t n, enum numbers_float from, enum numbers_float to)
{
    size_t size = n * numbers_width(to);
    uint8_t *out = memory(size), *portable = memory(size);
    double errors[2];
    int status = numbers_cast(out, src, n, from, to, 0, &errors[0]);
    PROMISE(numbers_cast(portable, src, n, from, to, 1, &errors[1]) == status);
    PROMISE(status || (errors[0] == errors[1] && (!size || !memcmp(out, portable, size))));
    if (!status && numbers_width(to) > numbers_width(from) && from != NUMBERS_FLOAT64) { /* nothing is lost */
        uint8_t *back = memory(n * numbers_width(from));
        PROMISE(errors[0] == 0);
        PROMISE(!numbers_cast(back, out, n, to, from, 0, &errors[1]) && errors[1] == 0);
        PROMISE(!n || !memcmp(back, src, n * numbers_width(from)));
        free(back);
    }
    free(portable);
    free(out);
}

static void quantize(struct input *in, const uint8_t *src, size_t n, size_t run, enum numbers_float type)
{
    size_t runs = n / run;
    float *scales = memory(runs * sizeof *scales);
    int32_t *zeros = memory(runs * sizeof *zeros);
    double *sums = memory(4 * NUMBERS_LANES * sizeof *sums);
    uint8_t how = take_byte(in), *out = memory(n), *portable = memory(n);
    int signs = how & 1, bits = how & 2 ? 4 : 8;
    struct numbers_affine affine = {scales, how & 4 ? zeros : NULL, run, signs ? -(1 << (bits - 1)) : 0,
                                    (1 << (bits - signs)) - 1, bits == 8 ? 0xff : 0x0f};
    struct numbers_cost costs[2];
    for (size_t i = 0; i < runs; i++) {
        uint32_t scale = (uint32_t)take_number(in, 4);
        memcpy(scales + i, &scale, 4);
        zeros[i] = (int32_t)(take_number(in, 2) % (2 * NUMBERS_MOST_STEPS + 1)) - NUMBERS_MOST_STEPS;
    }
    numbers_quantize(out, src, n, type, &affine, 0, sums, &costs[0]);
    numbers_quantize(portable, src, n, type, &affine, 1, sums + 2 * NUMBERS_LANES, &costs[1]);
    PROMISE(!n || !memcmp(out, portable, n));
    for (size_t i = 0; i < n; i++)
        PROMISE((out[i] & ~affine.mask) == 0);
    for (size_t i = 0; i < 2 * NUMBERS_LANES; i++)
        PROMISE(same(sums[i], sums[2 * NUMBERS_LANES + i]));
    PROMISE(same(costs[0].worst, costs[1].worst) && same(costs[0].signal, costs[1].signal));
    PROMISE(same(costs[0].noise, costs[1].noise) && costs[0].beyond == costs[1].beyond);
    free(portable);
    free(out);
    free(sums);
    free(zeros);
    free(scales);
}

static void extremes(const uint8_t *src, size_t n, size_t run, enum numbers_float type)
{
    size_t runs = n / run;
    float *ends[4];
    for (int i = 0; i < 4; i++)
        ends[i] = memory(runs * sizeof **ends);
    int finite = numbers_extremes(src, runs, run, type, 0, ends[0], ends[1]);
    PROMISE(numbers_extremes(src, runs, run, type, 1, ends[2], ends[3]) == finite);
    for (size_t i = 0; finite && i < runs; i++) {
        PROMISE(ends[0][i] == ends[2][i] && ends[1][i] == ends[3][i] && ends[0][i] <= ends[1][i]);
        for (size_t k = i * run; type == NUMBERS_FLOAT32 && k < (i + 1) * run; k++)
            PROMISE(ends[0][i] <= float_at(src, k) && float_at(src, k) <= ends[1][i]);
    }
    for (int i = 0; i < 4; i++)
        free(ends[i]);
}

static void compare(const uint8_t *src, size_t n, enum numbers_float type)
{
    size_t half = n / 2;
    const uint8_t *other = src + half * numbers_width(type);
    struct numbers_distance found[2], itself;
    for (int portable = 0; portable < 2; portable++)
        numbers_compare(src, other, half, type, portable, &found[portable]);
    PROMISE(!memcmp(found, found + 1, 4 * sizeof(uint64_t)));
    PROMISE(same(found[0].largest, found[1].largest) && same(found[0].relative, found[1].relative));
    PROMISE(same(found[0].dot, found[1].dot) && same(found[0].square_a, found[1].square_a));
    PROMISE(same(found[0].square_b, found[1].square_b));
    PROMISE(found[0].differing <= half && found[0].nan_apart <= found[0].differing);
    numbers_compare(src, src, half, type, 0, &itself);
    PROMISE(!itself.differing && !itself.nan_apart && itself.largest == 0 && itself.relative == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t choice = take_byte(&in), kind = take_byte(&in) % 7, more = take_byte(&in), *block;
    enum numbers_float type = choice % NUMBERS_FLOATS, to = more % NUMBERS_FLOATS;
    size_t n = (size_t)take_number(&in, 2) % (choice & 16 ? MOST_ELEMENTS : 40), run = 1 + more % 40;
    if (kind == 1 || (kind == 2 && type < NUMBERS_FLOAT32) || ((kind == 4 || kind == 5) && type == NUMBERS_FLOAT64))
        type = NUMBERS_FLOAT32;
    if (kind == 4 || kind == 5)
        n -= n % run;
    size_t width = kind == 0 ? 1 + (choice & 1) : numbers_width(type);
    uint8_t *src = take_elements(&in, n, width, &block);
    if (kind == 0)
        count(src, n, width);
    else if (kind == 1)
        sum(src, n);
    else if (kind == 2)
        histogram(&in, src, n, type);
    else if (kind == 3 && type != to && (type == NUMBERS_FLOAT64 ? to == NUMBERS_FLOAT32 : to != NUMBERS_FLOAT64))
        cast(src, n, type, to);
    else if (kind == 4)
        quantize(&in, src, n, run, type);
    else if (kind == 5)
        extremes(src, n, run, type);
    else if (kind == 6)
        compare(src, n, type);
    free(block);
    return 0;
}
