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

/* How bytes are cut into chunks, and what is done to each: planes of elements that are several bytes wide; bytes are
 * one plane, without a size before it. A chunk that would not shrink is plain. */
struct planes_chunks {
    size_t chunk; /* bytes, a multiple of the width; the last one may have fewer */
    size_t width;
    int rotate;
    unsigned threads; /* up to LARGE_MOST_THREADS */
    uint8_t *scratch; /* as large as a chunk, for each of the threads */
};

/* Codes src[0, n) chunk by chunk, and writes the size of each and its masked CRC-32C as u32. Threads take parts of `part`
 * bytes, a multiple of the chunk: the chunks of a part stand one after another, those of part k from
 * dst + k * (part + PLANES_SLACK) on. */
void planes_encode_chunks(uint8_t *dst, const uint8_t *src, size_t n, size_t part, const struct planes_chunks *how,
                          uint8_t *sizes, uint8_t *checksums);

/* Fills dst[0, n) from the chunks at src, which stand one after another, and of which `sizes` and `checksums` tell.
 * Returns how many were sound and are there: those before the first that is not. */
size_t planes_decode_chunks(uint8_t *dst, size_t n, const struct planes_chunks *how, const uint8_t *src, size_t size,
                            const uint8_t *sizes, const uint8_t *checksums);

#endif
