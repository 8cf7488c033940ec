/* Rearranging numbers so that they compress: byte planes, differences, packed bits.
 *
 * An element is `width` bytes, 1, 2, 4 or 8, little-endian; n counts elements. Source and target don't
 * overlap. With `portable`, no instruction is used that not every machine has: the results are the same.
 * spec/frame.md says what each one computes, filters_reference.py in NumPy.
 */
#ifndef TENSORBYTES_FILTERS_H
#define TENSORBYTES_FILTERS_H

#include <stddef.h>
#include <stdint.h>

/* More bits than this for each element are not packed: it would save little. */
#define FILTERS_MOST_BITS 56

/* Byte planes, the most significant first. With `rotate`, each element is first rotated left by one bit,
 * which parts a float's sign from its exponent. */
void filters_split(uint8_t *planes, const uint8_t *src, size_t n, size_t width, int rotate, int portable);
void filters_join(uint8_t *dst, const uint8_t *const planes[], size_t n, size_t width, int rotate, int portable);

/* The difference of each element from the one before, of the first from `first`, modulo 2^(8 * width), with
 * small differences of either sign as small numbers: 0, -1, 1, -2, ... become 0, 1, 2, 3, ... */
void filters_difference(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t first);
void filters_accumulate(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t first);

/* element - base in `bits` bits each, from the low end of each byte; bits <= FILTERS_MOST_BITS, and every
 * difference must fit. Packed data takes filters_packed_size bytes. */
size_t filters_packed_size(size_t n, unsigned bits);
void filters_pack(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t base, unsigned bits);
void filters_unpack(uint8_t *dst, const uint8_t *src, size_t n, size_t width, uint64_t base, unsigned bits);

#endif
