/* Columns of tables: what is missing as zeros, offsets that rise, decimals as text and back.
 *
 * Numbers are little-endian, at any address. `present` has a byte for each element, 0 where it is missing; NULL if none
 * is. columns_reference.py has the same in NumPy.
 */
#ifndef TENSORBYTES_COLUMNS_H
#define TENSORBYTES_COLUMNS_H

#include <stddef.h>
#include <stdint.h>

/* Whether all missing elements are zero; elements of `width` bytes. With `portable`, here and in the next, no instruction
 * is used that not every machine has: the results are the same. */
int columns_missing_zero(const uint8_t *data, const uint8_t *present, size_t n, size_t width, int portable);
/* Make them zero. What is zero already is not written to. */
void columns_missing_clear(uint8_t *data, const uint8_t *present, size_t n, size_t width, int portable);

/* Whether offsets of 4 or 8 bytes rise, or stay, from one to the next. */
int columns_offsets_rise(const uint8_t *offsets, size_t n, size_t width);

/* The bytes of the longest of `count` words, each after its length in 4 bytes. SIZE_MAX if they run past the end. */
size_t columns_longest_word(const uint8_t *data, size_t size, size_t count);

/* Decimals: integers of 4, 8, 16 or 32 bytes, of which the last `scale` digits stand after the point. */
#define COLUMNS_MOST_DECIMAL 1000000000000000000u /* under it: 18 digits */
#define COLUMNS_MOST_SCALE 6

/* Where the text of each begins, and where the last one ends: n + 1 offsets. What is missing has none. Returns 0 if
 * the digits of one are `most` or more. */
int columns_decimal_sizes(int64_t *offsets, const uint8_t *data, const uint8_t *present, size_t n, size_t width,
                          unsigned scale, uint64_t most);
/* The text itself, in `size` bytes. Returns 0 if the offsets are others than columns_decimal_sizes gives. */
int columns_decimal_text(uint8_t *out, size_t size, const int64_t *offsets, const uint8_t *data, size_t n, size_t width,
                         unsigned scale);
/* Text of `size` bytes as decimals: a sign or none, digits, and up to `scale` more digits after a point. What is
 * missing is zero. Returns 0 if a text is something else, or its digits are `most` or more. */
int columns_decimal_parse(uint8_t *out, const uint8_t *text, size_t size, const int64_t *offsets, const uint8_t *present,
                          size_t n, size_t width, unsigned scale, uint64_t most);

#endif
