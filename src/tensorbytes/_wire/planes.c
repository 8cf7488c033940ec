#include "planes.h"

#include <string.h>

#include "filters.h"
#include "huffman.h"
#include "large.h"
#include "wire.h"

size_t planes_encode(uint8_t *dst, const uint8_t *src, size_t n, size_t width, int rotate, uint8_t *scratch)
{
    size_t at = 4 * width;
    filters_split(scratch, src, n, width, rotate, 0);
    for (size_t k = 0; k < width; k++) {
        size_t size = huffman_encode(dst + at, scratch + k * n, n, 0);
        if (!size) {
            memcpy(dst + at, scratch + k * n, n);
            size = n;
        }
        wire_put_u32(dst + 4 * k, (uint32_t)size);
        at += size;
    }
    return at;
}

int planes_decode(uint8_t *dst, size_t n, size_t width, int rotate, const uint8_t *src, size_t size, uint8_t *scratch)
{
    const uint8_t *planes[8];
    size_t at = 4 * width;
    if (size < at)
        return 0;
    for (size_t k = 0; k < width; k++) {
        size_t coded = wire_get_u32(src + 4 * k);
        uint8_t *plane = scratch + k * n;
        if (coded > size - at || coded > n || !coded)
            return 0;
        planes[k] = plane;
        if (coded == n)
            planes[k] = src + at; /* joined from where it stands */
        else if (coded == 1)
            memset(plane, src[at], n);
        else if (!huffman_decode(plane, n, src + at, coded, 0))
            return 0;
        at += coded;
    }
    if (at != size)
        return 0;
    filters_join(dst, planes, n, width, rotate, 0);
    return 1;
}

/* ---- chunks --------------------------------------------------------------- */

static size_t encode_chunk(uint8_t *dst, const uint8_t *src, size_t n, const struct planes_chunks *how)
{
    size_t size = how->width == 1 ? huffman_encode(dst, src, n, 0)
                                  : planes_encode(dst, src, n / how->width, how->width, how->rotate, how->scratch);
    if (size && size < n)
        return size;
    memcpy(dst, src, n);
    return n;
}

static int decode_chunk(uint8_t *dst, size_t n, const uint8_t *src, size_t size, const struct planes_chunks *how)
{
    if (size == n)
        memcpy(dst, src, n);
    else if (how->width > 1)
        return planes_decode(dst, n / how->width, how->width, how->rotate, src, size, how->scratch);
    else if (size == 1)
        memset(dst, src[0], n);
    else
        return size < n && huffman_decode(dst, n, src, size, 0);
    return 1;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

struct encoding {
    uint8_t *dst, *sizes, *checksums;
    const uint8_t *src;
    size_t n, part, next; /* next: the part that nobody has taken yet */
    const struct planes_chunks *how;
};

static void encode_parts(void *argument, unsigned number)
{
    struct encoding *all = argument;
    struct planes_chunks how = *all->how;
    how.scratch += number * how.chunk;
    for (size_t k; (k = LARGE_NEXT(&all->next)) < (all->n + all->part - 1) / all->part;) {
        uint8_t *dst = all->dst + k * (all->part + PLANES_SLACK);
        size_t end = least(all->n, (k + 1) * all->part);
        for (size_t start = k * all->part; start < end; start += how.chunk) {
            size_t size = encode_chunk(dst, all->src + start, least(end - start, how.chunk), &how);
            wire_put_u32(all->sizes + start / how.chunk * 4, (uint32_t)size);
            wire_put_u32(all->checksums + start / how.chunk * 4, wire_mask(wire_crc32c(0, dst, size)));
            dst += size;
        }
    }
}

void planes_encode_chunks(uint8_t *dst, const uint8_t *src, size_t n, size_t part, const struct planes_chunks *how,
                          uint8_t *sizes, uint8_t *checksums)
{
    struct encoding all = {dst, sizes, checksums, src, n, part, 0, how};
    large_all(encode_parts, &all, how->threads);
}

struct decoding {
    uint8_t *dst;
    const uint8_t *src, *sizes, *checksums;
    size_t n, size, count, next;
    size_t sound[LARGE_MOST_THREADS]; /* what each thread found: all chunks before this one that it took */
    const struct planes_chunks *how;
};

static int decode_sound(struct decoding *all, size_t k, size_t at, size_t coded, const struct planes_chunks *how)
{
    return coded && coded <= all->size - at
        && wire_mask(wire_crc32c(0, all->src + at, coded)) == wire_get_u32(all->checksums + 4 * k)
        && decode_chunk(all->dst + k * how->chunk, least(all->n - k * how->chunk, how->chunk), all->src + at, coded, how);
}

static void decode_chunks(void *argument, unsigned number)
{
    struct decoding *all = argument;
    struct planes_chunks how = *all->how;
    how.scratch += number * how.chunk;
    size_t at = 0, here = 0; /* where chunk number `here` starts */
    for (size_t k; (k = LARGE_NEXT(&all->next)) < all->count;) {
        /* Sizes may change while they are read, in a mapped file: each is held against what is left. */
        for (; here < k; here++)
            at += least(wire_get_u32(all->sizes + 4 * here), all->size - at);
        if (!decode_sound(all, k, at, wire_get_u32(all->sizes + 4 * k), &how)) {
            all->sound[number] = k;
            LARGE_END(&all->next, all->count);
            return;
        }
    }
}

size_t planes_decode_chunks(uint8_t *dst, size_t n, const struct planes_chunks *how, const uint8_t *src, size_t size,
                            const uint8_t *sizes, const uint8_t *checksums)
{
    size_t sound = (n + how->chunk - 1) / how->chunk;
    struct decoding all = {.dst = dst, .src = src, .sizes = sizes, .checksums = checksums, .n = n, .size = size,
                           .count = sound, .how = how};
    for (unsigned k = 0; k < LARGE_MOST_THREADS; k++)
        all.sound[k] = sound;
    large_all(decode_chunks, &all, how->threads);
    for (unsigned k = 0; k < LARGE_MOST_THREADS; k++)
        sound = least(sound, all.sound[k]);
    return sound;
}
