/* Entropy codes, planes, differences, packed bits: any bytes are decoded or refused, and what was coded comes back. */
#include "target.h"

#include "filters.h"
#include "huffman.h"
#include "planes.h"
#include "wire.h"

static void decode(uint8_t *buf, size_t n, size_t elements, size_t width, int rotate)
{
    size_t plain = elements * width;
    uint8_t *out = memory(plain), *scratch = memory(plain);
    planes_decode(out, elements, width, rotate, buf, n, scratch);
    if (n >= 2 && plain >= 2) {
        int sound = huffman_decode(out, plain, buf, n, 0);
        PROMISE(huffman_decode(scratch, plain, buf, n, 1) == sound && (!sound || !memcmp(out, scratch, plain)));
    }
    free(scratch);
    free(out);
}

/* Chunks in one call: what was coded comes back, and sizes and checksums that lie lead nowhere. */
static void chunks(uint8_t *buf, size_t n, size_t width, int rotate, uint64_t seed)
{
    size_t plain = n / width * width, chunk = width * (1 + seed % 64), part = chunk * (1 + seed / 64 % 3);
    size_t count = (plain + chunk - 1) / chunk, parts = (plain + part - 1) / part;
    struct planes_chunks how = {chunk, width, rotate, 1 + (unsigned)(seed & 1), memory(2 * chunk)};
    uint8_t *src = memory(plain), *out = memory(plain), *code = memory(plain + parts * PLANES_SLACK);
    uint8_t *sizes = memory(4 * count), *sums = memory(4 * count), *exact;
    size_t size = 0;
    if (plain)
        memcpy(src, buf, plain);
    planes_encode_chunks(code, src, plain, part, &how, sizes, sums);
    for (size_t k = 0; k < count; k++)
        size += wire_get_u32(sizes + 4 * k);
    PROMISE(size <= plain);
    exact = memory(size);
    for (size_t k = 0, at = 0, from = 0; k < count; k++) {
        size_t coded = wire_get_u32(sizes + 4 * k);
        if (k * chunk % part == 0)
            from = k * chunk / part * (part + PLANES_SLACK);
        memcpy(exact + at, code + from, coded);
        at += coded;
        from += coded;
    }
    PROMISE(planes_decode_chunks(out, plain, &how, exact, size, sizes, sums) == count);
    PROMISE(!plain || !memcmp(out, src, plain));
    for (size_t k = 0; k < count; k++) { /* sound checksums of chunks that are not */
        size_t at = k < size ? k : size, coded = size - at < chunk ? size - at : chunk / 2;
        wire_put_u32(sizes + 4 * k, seed >> (k & 31) & 1 ? (uint32_t)(seed >> (k & 15)) : (uint32_t)coded);
    }
    PROMISE(planes_decode_chunks(out, plain, &how, exact, size, sizes, sums) <= count);
    free(exact);
    free(sums);
    free(sizes);
    free(code);
    free(out);
    free(src);
    free(how.scratch);
}

static void round_trip(uint8_t *buf, size_t n, size_t width, int rotate, uint64_t base, unsigned bits)
{
    size_t elements = n / width, plain = elements * width;
    if (!elements) /* there are no empty chunks */
        return;
    uint8_t *src = memory(plain), *out = memory(plain), *scratch = memory(plain);
    if (plain)
        memcpy(src, buf, plain);
    uint8_t *code = memory(plain + PLANES_SLACK);
    size_t size = planes_encode(code, src, elements, width, rotate, scratch);
    PROMISE(size <= plain + PLANES_SLACK);
    uint8_t *exact = memory(size);
    memcpy(exact, code, size);
    PROMISE(planes_decode(out, elements, width, rotate, exact, size, scratch) && (!plain || !memcmp(out, src, plain)));
    free(exact);
    free(code);

    code = memory(plain + HUFFMAN_SLACK);
    size = plain >= 2 ? huffman_encode(code, src, plain, 0) : 0;
    if (size >= 2) {
        exact = memory(size);
        memcpy(exact, code, size);
        PROMISE(huffman_encode(code, src, plain, 1) == size && !memcmp(code, exact, size));
        PROMISE(huffman_decode(out, plain, exact, size, 0) && !memcmp(out, src, plain));
        memset(out, 0, plain);
        PROMISE(huffman_decode(out, plain, exact, size, 1) && !memcmp(out, src, plain));
        free(exact);
    }
    free(code);

    const uint8_t *planes[8];
    filters_split(scratch, src, elements, width, rotate, 0);
    filters_split(out, src, elements, width, rotate, 1);
    PROMISE(!memcmp(out, scratch, plain));
    for (size_t k = 0; k < width; k++)
        planes[k] = scratch + k * elements;
    for (int portable = 0; portable < 2; portable++) {
        memset(out, 0, plain);
        filters_join(out, planes, elements, width, rotate, portable);
        PROMISE(!memcmp(out, src, plain));
    }

    filters_difference(out, src, elements, width, base);
    filters_accumulate(scratch, out, elements, width, base);
    PROMISE(!plain || !memcmp(scratch, src, plain));

    for (size_t i = 0; i < elements; i++) { /* differences from base that fit in so many bits */
        uint64_t element = 0;
        memcpy(&element, src + i * width, width);
        element = base + (element & (((uint64_t)1 << bits) - 1));
        memcpy(src + i * width, &element, width);
    }
    size = filters_packed_size(elements, bits);
    uint8_t *packed = memory(size);
    filters_pack(packed, src, elements, width, base, bits);
    filters_unpack(out, packed, elements, width, base, bits);
    PROMISE(!plain || !memcmp(out, src, plain));
    free(packed);
    free(scratch);
    free(out);
    free(src);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t choice = take_byte(&in);
    size_t width = (size_t)1 << (choice & 3), elements = (size_t)take_number(&in, 2) % (choice & 16 ? 3000 : 100);
    int rotate = choice >> 2 & 1, coding = choice >> 3 & 1;
    unsigned most = width == 8 ? FILTERS_MOST_BITS : (unsigned)(8 * width), bits = take_byte(&in) % (most + 1);
    uint64_t base = coding ? take_number(&in, 8) : 0;
    size_t n = in.size;
    uint8_t *buf = rest(&in);
    if (coding) {
        round_trip(buf, n, width, rotate, base, bits);
        chunks(buf, n, width, rotate, base);
    } else
        decode(buf, n, elements, width, rotate);
    free(buf);
    return 0;
}
