/* A chunk of numbers as byte planes, each with an entropy code of its own: filters.h and huffman.h in one call.
 *
 *     width x u32   bytes of each plane as coded, the most significant plane first
 *     planes        a plane of as many bytes as elements is plain, one of 1 byte is that byte throughout
 */
#ifndef TENSORBYTES_PLANES_H
#define TENSORBYTES_PLANES_H

#include <stddef.h>
#include <stdint.h>

/* Room that planes_encode needs at dst beyond n * width bytes. */
#define PLANES_SLACK 48

/* Returns the size of what it wrote. scratch has room for n * width bytes. */
size_t planes_encode(uint8_t *dst, const uint8_t *src, size_t n, size_t width, int rotate, uint8_t *scratch);

/* Fills dst with n elements; returns 0, leaving dst in any state, if the `size` bytes at src are not sound. */
int planes_decode(uint8_t *dst, size_t n, size_t width, int rotate, const uint8_t *src, size_t size, uint8_t *scratch);

#endif
