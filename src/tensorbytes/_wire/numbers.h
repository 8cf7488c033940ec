/* Figures over numbers: what stats, diff, casts and quantization look at, many elements in one pass.
 *
 * Elements are little-endian, at any address; n counts them. A type of floats is one of the names below. With
 * `portable`, no instruction is used that not every machine has: the results are the same. numbers_reference.py has
 * the same in NumPy.
 */
#ifndef TENSORBYTES_NUMBERS_H
#define TENSORBYTES_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

enum numbers_float { NUMBERS_FLOAT16, NUMBERS_BFLOAT16, NUMBERS_FLOAT32, NUMBERS_FLOAT64, NUMBERS_FLOATS };

/* How often each value of 1 or 2 bytes is there, added to counts[2][256 or 65536]: those of even and of odd places. */
void numbers_count(const uint8_t *src, size_t n, size_t width, uint32_t *counts);

/* Bins of float32 by sign and exponent: how many there are, and the sums of their fractions (the lower 23 bits) and of
 * the squares of these, the latter in two words, the low one first. */
#define NUMBERS_BINS 512
#define NUMBERS_WORDS 4
struct numbers_spread {
    uint64_t nan, positive_inf, negative_inf, zeros, negative;
    float low, high; /* of the finite ones; low > high if there are none, and -0 is less than 0 */
};
void numbers_sum(const uint8_t *src, size_t n, uint64_t bins[NUMBERS_BINS * NUMBERS_WORDS], int portable,
                 struct numbers_spread *out);

/* Finite numbers of float32 or float64 between edges[0] <= x < edges[1] <= ..., of which the last takes its upper edge
 * as well, added to counts[4][bins]. (x - edges[0]) * factor is the bin, or one beside it; what lies outside counts
 * for the bin at that end. There are fewer than 2^31 bins. */
void numbers_histogram(const uint8_t *src, size_t n, enum numbers_float type, const double *edges, size_t bins,
                       double factor, int portable, uint64_t *counts);

/* Floats as another type of floats, each rounded once, ties to even: float16, bfloat16 and float32 as each other, and
 * float64 as float32. The largest error is exact. Where there was a NaN, or a number that became infinite, it says so:
 * then what is written, and the error, are of no use. */
#define NUMBERS_NAN 1
#define NUMBERS_OVERFLOW 2
int numbers_cast(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float from, enum numbers_float to,
                 int portable, double *error);

/* value -> integer: rint(value / scale) + zero, in float32, kept between least and most; and back: (integer - zero) *
 * scale, in float32, then as the type of the values, which is not float64. Each `run` of them has one scale, and one
 * zero unless `zeros` is NULL. least, most and the zeros lie between -2^14 and 2^14.
 *
 * Errors are |value - back| in float64. Those of all whole rows of NUMBERS_LANES values are added up row by row, one sum
 * for each place in a row; the errors of the rest stand behind the sums. */
#define NUMBERS_LANES 256
#define NUMBERS_MOST_STEPS (1 << 14)
struct numbers_affine {
    const float *scales;
    const int32_t *zeros;
    size_t run;
    int least, most;
    uint8_t mask; /* which bits of an integer are stored */
};
struct numbers_cost {
    double worst, signal, noise; /* the largest error; the sums of the squares of values and errors */
    int beyond;                  /* whether one was moved to the end of the span */
};
void numbers_quantize(uint8_t *dst, const uint8_t *src, size_t n, enum numbers_float type,
                      const struct numbers_affine *how, int portable, double sums[2 * NUMBERS_LANES],
                      struct numbers_cost *out);

/* The least and the greatest of each run of floats, which are not float64; 0 if one of them is not finite. */
int numbers_extremes(const uint8_t *src, size_t runs, size_t run, enum numbers_float type, int portable, float *low,
                     float *high);

/* How far floats of one type lie apart, pair by pair. Two NaN are the same; sums of products are over the pairs of
 * finite numbers. */
struct numbers_distance {
    uint64_t differing, nan_a, nan_b, nan_apart;
    double largest, relative; /* |a - b|, and that by the larger of |a| and |b| */
    double dot, square_a, square_b;
};
void numbers_compare(const uint8_t *a, const uint8_t *b, size_t n, enum numbers_float type, int portable,
                     struct numbers_distance *out);

size_t numbers_width(enum numbers_float type);

#endif
