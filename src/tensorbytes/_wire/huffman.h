/* An order-0 entropy coder for one plane of bytes: what the exponents of weights need.
 *
 * spec/frame.md gives the bytes. Codes are at most HUFFMAN_BITS long and optimal under that
 * limit; a plane is cut into four segments with a bit stream each, so that a decoder has four
 * independent chains of lookups to work on. With `portable`, no instruction is used that not every
 * machine has: the results are the same.
 */
#ifndef TENSORBYTES_HUFFMAN_H
#define TENSORBYTES_HUFFMAN_H

#include <stddef.h>
#include <stdint.h>

#define HUFFMAN_BITS 11
/* Room that huffman_encode needs beyond the size of the plane. */
#define HUFFMAN_SLACK 16

/* Writes the code of src[0, n) to dst, which must have room for n + HUFFMAN_SLACK bytes. Returns its
 * size; 1 for a plane of one value only, which is then dst[0]; 0 where coding would save next to
 * nothing. */
size_t huffman_encode(uint8_t *dst, const uint8_t *src, size_t n, int portable);

/* Fills dst[0, n), n >= 2, from a code of `size` >= 2 bytes. Returns 0, leaving dst in any state, if the
 * code is not sound. */
int huffman_decode(uint8_t *dst, size_t n, const uint8_t *src, size_t size, int portable);

#endif
