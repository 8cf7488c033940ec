#include "planes.h"

#include <string.h>

#include "filters.h"
#include "huffman.h"
#include "wire.h"

size_t planes_encode(uint8_t *dst, const uint8_t *src, size_t n, size_t width, int rotate, uint8_t *scratch)
{
    size_t at = 4 * width;
    filters_split(scratch, src, n, width, rotate);
    for (size_t k = 0; k < width; k++) {
        size_t size = huffman_encode(dst + at, scratch + k * n, n);
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
        else if (!huffman_decode(plane, n, src + at, coded))
            return 0;
        at += coded;
    }
    if (at != size)
        return 0;
    filters_join(dst, planes, n, width, rotate);
    return 1;
}
