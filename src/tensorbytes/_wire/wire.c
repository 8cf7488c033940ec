#include "wire.h"

#include <string.h>

#include "instruction.h"
#include "messages.h"

/* ---- little-endian memory ------------------------------------------------- */

uint32_t wire_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get_u64(const uint8_t *p)
{
    return (uint64_t)wire_get_u32(p) | (uint64_t)wire_get_u32(p + 4) << 32;
}

void wire_put_u32(uint8_t *out, uint32_t value)
{
    out[0] = (uint8_t)value;
    out[1] = (uint8_t)(value >> 8);
    out[2] = (uint8_t)(value >> 16);
    out[3] = (uint8_t)(value >> 24);
}

/* ---- CRC-32C -------------------------------------------------------------- */

/* The instruction has a latency of three cycles and a throughput of one, so three
 * independent streams run at full speed. Each stream covers one block; shifting a
 * checksum over a block of zeros is linear, hence a table lookup per byte. */
#define LONG_BLOCK 4096u
#define SHORT_BLOCK 256u
#define POLYNOMIAL 0x82f63b78u

static uint32_t byte_table[8][256];
static uint32_t long_shift[4][256];
static uint32_t short_shift[4][256];
static int has_instruction, ready;

static uint32_t apply_shift(uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff]
         ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

/* The effect of `length` zero bytes on each byte of a checksum. */
static void fill_shift(uint32_t table[4][256], size_t length)
{
    uint32_t basis[32];
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = (uint32_t)1 << bit;
        for (size_t i = 0; i < length; i++)
            crc = byte_table[0][crc & 0xff] ^ crc >> 8;
        basis[bit] = crc;
    }
    for (int lane = 0; lane < 4; lane++)
        for (int value = 0; value < 256; value++) {
            uint32_t crc = 0;
            for (int bit = 0; bit < 8; bit++)
                if (value >> bit & 1)
                    crc ^= basis[8 * lane + bit];
            table[lane][value] = crc;
        }
}

void wire_init(void)
{
    if (ready) /* a second interpreter loads the kernel while threads of the first are at work */
        return;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        byte_table[0][i] = crc;
    }
    for (int lane = 1; lane < 8; lane++)
        for (int i = 0; i < 256; i++) {
            uint32_t crc = byte_table[lane - 1][i];
            byte_table[lane][i] = byte_table[0][crc & 0xff] ^ crc >> 8;
        }
    fill_shift(long_shift, LONG_BLOCK);
    fill_shift(short_shift, SHORT_BLOCK);
#if WIRE_X86
    has_instruction = __builtin_cpu_supports("sse4.2");
#elif WIRE_ARM
    has_instruction = 1;
#endif
    ready = 1;
}

int wire_has_instruction(void)
{
    return has_instruction;
}

uint32_t wire_crc32c_portable(uint32_t crc, const uint8_t *buf, size_t n)
{
    crc = ~crc;
    for (; n >= 8; n -= 8, buf += 8) {
        uint32_t low = wire_get_u32(buf) ^ crc, high = wire_get_u32(buf + 4);
        crc = byte_table[7][low & 0xff] ^ byte_table[6][low >> 8 & 0xff]
            ^ byte_table[5][low >> 16 & 0xff] ^ byte_table[4][low >> 24]
            ^ byte_table[3][high & 0xff] ^ byte_table[2][high >> 8 & 0xff]
            ^ byte_table[1][high >> 16 & 0xff] ^ byte_table[0][high >> 24];
    }
    for (; n; n--, buf++)
        crc = byte_table[0][(crc ^ *buf) & 0xff] ^ crc >> 8;
    return ~crc;
}

#if WIRE_X86 || WIRE_ARM

WITH_INSTRUCTION
static uint32_t three_streams(uint32_t crc, const uint8_t *p, size_t block, uint32_t shift[4][256])
{
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < block; i += 8) {
        uint64_t a, b, c;
        memcpy(&a, p + i, 8);
        memcpy(&b, p + block + i, 8);
        memcpy(&c, p + 2 * block + i, 8);
        crc = CRC_U64(crc, a);
        second = CRC_U64(second, b);
        third = CRC_U64(third, c);
    }
    return apply_shift(shift, apply_shift(shift, crc) ^ second) ^ third;
}

WITH_INSTRUCTION
static uint32_t crc32c_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    crc = ~crc;
    for (; n >= 3 * LONG_BLOCK; n -= 3 * LONG_BLOCK, p += 3 * LONG_BLOCK)
        crc = three_streams(crc, p, LONG_BLOCK, long_shift);
    for (; n >= 3 * SHORT_BLOCK; n -= 3 * SHORT_BLOCK, p += 3 * SHORT_BLOCK)
        crc = three_streams(crc, p, SHORT_BLOCK, short_shift);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        crc = CRC_U64(crc, word);
    }
    for (; n; n--, p++)
        crc = CRC_U8(crc, *p);
    return ~crc;
}

/* As many bytes of each of three stretches as all of them have, eight at a time. */
WITH_INSTRUCTION
static size_t crc_side_by_side(const uint8_t *const p[3], size_t n, uint32_t crc[3])
{
    uint32_t first = ~0u, second = ~0u, third = ~0u;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t a, b, c;
        memcpy(&a, p[0] + i, 8);
        memcpy(&b, p[1] + i, 8);
        memcpy(&c, p[2] + i, 8);
        first = CRC_U64(first, a);
        second = CRC_U64(second, b);
        third = CRC_U64(third, c);
    }
    crc[0] = ~first;
    crc[1] = ~second;
    crc[2] = ~third;
    return i;
}
#endif

void wire_crc32c_three(const uint8_t *const p[3], const size_t n[3], uint32_t crc[3])
{
    size_t done = 0;
    crc[0] = crc[1] = crc[2] = 0;
#if WIRE_X86 || WIRE_ARM
    size_t least = n[0] < n[1] ? n[0] : n[1];
    least = least < n[2] ? least : n[2];
    /* Longer ones are cut into three streams by themselves. */
    if (has_instruction && least < 3 * SHORT_BLOCK)
        done = crc_side_by_side(p, least, crc);
#endif
    for (int i = 0; i < 3; i++)
        crc[i] = wire_crc32c(crc[i], p[i] + done, n[i] - done);
}

uint32_t wire_crc32c(uint32_t crc, const uint8_t *buf, size_t n)
{
#if WIRE_X86 || WIRE_ARM
    if (has_instruction)
        return crc32c_instruction(crc, buf, n);
#endif
    return wire_crc32c_portable(crc, buf, n);
}

uint32_t wire_copy_crc32c(uint32_t crc, uint8_t *dst, const uint8_t *src, size_t n)
{
    /* A block that stays in the first-level cache between the two passes. The checksum is of the copy: another thread
     * may change the source between them. */
    const size_t block = 3 * LONG_BLOCK;
    for (; n > block; n -= block, src += block, dst += block) {
        memcpy(dst, src, block);
        crc = wire_crc32c(crc, dst, block);
    }
    if (n)
        memcpy(dst, src, n);
    return wire_crc32c(crc, dst, n);
}

/* A linear map of checksums, as the images of its 32 bits. */
static uint32_t apply_map(const uint32_t map[32], uint32_t crc)
{
    uint32_t image = 0;
    for (int bit = 0; crc; bit++, crc >>= 1)
        if (crc & 1)
            image ^= map[bit];
    return image;
}

uint32_t wire_crc32c_join(uint32_t first, uint32_t second, uint64_t length)
{
    uint32_t zeros[32], twice[32]; /* what 1, 2, 4, ... zero bytes do to a checksum */
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = (uint32_t)1 << bit;
        zeros[bit] = byte_table[0][crc & 0xff] ^ crc >> 8;
    }
    for (; length; length >>= 1) {
        if (length & 1)
            first = apply_map(zeros, first);
        for (int bit = 0; bit < 32; bit++)
            twice[bit] = apply_map(zeros, zeros[bit]);
        memcpy(zeros, twice, sizeof zeros);
    }
    return first ^ second;
}

uint32_t wire_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- TFRecord framing ----------------------------------------------------- */

void wire_frame_header(uint8_t *out, uint64_t length)
{
    wire_put_u32(out, (uint32_t)length);
    wire_put_u32(out + 4, (uint32_t)(length >> 32));
    wire_put_u32(out + 8, wire_mask(wire_crc32c(0, out, 8)));
}

size_t wire_count_sound(const uint8_t *buf, const int64_t *out, size_t first, size_t end, int verify)
{
    const uint8_t *payloads[3];
    size_t lengths[3], sound = 0;
    uint32_t crc[3];
    int passed[3];
    for (size_t i = 0; i < 3; i++) { /* in place of those that are not there, nothing of the first */
        size_t record = first + i < end ? first + i : first;
        payloads[i] = buf + out[2 * record];
        lengths[i] = first + i < end ? (size_t)out[2 * record + 1] : 0;
        passed[i] = verify == WIRE_SMALL && lengths[i] >= WIRE_LARGE_PAYLOAD;
        if (passed[i])
            lengths[i] = 0;
    }
    wire_crc32c_three(payloads, lengths, crc);
    while (first + sound < end
           && (passed[sound] || wire_get_u32(payloads[sound] + lengths[sound]) == wire_mask(crc[sound])))
        sound++;
    return sound;
}

size_t wire_scan(const uint8_t *buf, size_t n, size_t *next, int verify,
                 int64_t *out, size_t room, int *status)
{
    size_t at = *next, found = 0, checked = 0;
    int sound = 1;
    *status = WIRE_OK;
    while (sound && found < room && at < n) {
        if (n - at < 12) {
            *status = WIRE_CUT_HEADER;
            break;
        }
        if (wire_get_u32(buf + at + 8) != wire_mask(wire_crc32c(0, buf + at, 8))) {
            *status = WIRE_BAD_LENGTH;
            break;
        }
        uint64_t length = get_u64(buf + at);
        size_t left = n - at - 12;
        if (left < 4 || length > left - 4) {
            *status = WIRE_CUT_PAYLOAD;
            break;
        }
        out[2 * found] = (int64_t)(at + 12);
        out[2 * found + 1] = (int64_t)length;
        found++;
        at += 12 + (size_t)length + 4;
        if (verify && found == checked + 3) {
            checked += wire_count_sound(buf, out, checked, found, verify);
            sound = checked == found;
        }
    }
    if (verify && sound && checked < found)
        checked += wire_count_sound(buf, out, checked, found, verify);
    if (verify && checked < found) {
        *status = WIRE_BAD_DATA;
        at = (size_t)out[2 * checked] - 12;
        found = checked;
    }
    *next = at;
    return found;
}

/* ---- protobuf ------------------------------------------------------------- */

int wire_plain_tensor(const uint8_t *buf, size_t start, size_t end, struct wire_tensor *out)
{
    size_t at = start, shape_end, dim_end, content_end;
    if (!get_tag(buf, &at, end, 0x08) || !get_varint(buf, &at, end, &out->dtype))
        return 0;
    if (!get_tag(buf, &at, end, 0x12) || !get_length(buf, &at, end, &shape_end))
        return 0;
    out->rank = 0;
    while (at < shape_end) {
        uint64_t size = 0;
        if (out->rank == WIRE_MAX_RANK || !get_tag(buf, &at, shape_end, 0x12)
            || !get_length(buf, &at, shape_end, &dim_end))
            return 0;
        if (at < dim_end && (!get_tag(buf, &at, dim_end, 0x08) || !get_varint(buf, &at, dim_end, &size)))
            return 0;
        if (at != dim_end || size > INT64_MAX)
            return 0;
        out->dims[out->rank++] = size;
    }
    out->named = 0;
    if (get_tag2(buf, &at, end, 0xc2, 0x3e)) {
        if (!get_length(buf, &at, end, &content_end))
            return 0;
        for (; at < content_end; at++)
            if (buf[at] >= 0x80) /* whether it is UTF-8 is seen elsewhere */
                return 0;
        out->named = 1;
    }
    out->item = 0;
    if (get_tag2(buf, &at, end, 0xe8, 0x3e) && !get_varint(buf, &at, end, &out->item))
        return 0;
    if (get_tag2(buf, &at, end, 0x92, 0x3f)) {
        if (!get_length(buf, &at, end, &content_end))
            return 0;
        at = content_end;
    }
    size_t header_end = at;
    if (get_tag2(buf, &at, end, 0x9d, 0x3f)) {
        if (end - at < 4 || wire_get_u32(buf + at) != wire_mask(wire_crc32c(0, buf + start, header_end - start)))
            return 0;
        at += 4;
    }
    if (!get_tag(buf, &at, end, 0x22) || !get_length(buf, &at, end, &content_end) || content_end != end)
        return 0;
    out->content = at;
    out->content_size = end - at;
    return 1;
}

static size_t varint_size(uint64_t value)
{
    size_t size = 1;
    for (; value >= 0x80; value >>= 7)
        size++;
    return size;
}

int wire_next_field(const uint8_t *buf, size_t *at, size_t end, uint8_t stop, struct wire_field *out)
{
    size_t p = *at, after;
    uint64_t tag;
    if (p >= end || buf[p] == stop || !get_varint(buf, &p, end, &tag))
        return 0;
    out->number = tag >> 3;
    out->wire = (int)(tag & 7);
    out->at = *at;
    out->end = 0;
    if (out->number == 0 || out->number >> 29 || p - *at != varint_size(tag))
        return 0;
    if (out->wire == 0) {
        if (!get_varint(buf, &p, end, &out->start))
            return 0;
        *at = p;
        return 1;
    }
    if (out->wire == 2) {
        if (!get_length(buf, &p, end, &after))
            return 0;
    } else if (out->wire == 1 || out->wire == 5) {
        size_t size = out->wire == 1 ? 8 : 4;
        if (end - p < size)
            return 0;
        after = p + size;
    } else {
        return 0;
    }
    out->start = p;
    out->end = after;
    *at = after;
    return 1;
}

size_t wire_strings_size(const int64_t *offsets, size_t count)
{
    size_t size = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t length = (uint64_t)(offsets[i + 1] - offsets[i]);
        size += 1 + varint_size(length) + (size_t)length;
    }
    return size;
}

void wire_strings_pack(uint8_t *out, uint8_t tag, const int64_t *offsets, size_t count,
                       const uint8_t *data)
{
    for (size_t i = 0; i < count; i++) {
        size_t length = (size_t)(offsets[i + 1] - offsets[i]);
        uint64_t left = length;
        *out++ = tag;
        for (; left >= 0x80; left >>= 7)
            *out++ = (uint8_t)(left | 0x80);
        *out++ = (uint8_t)left;
        if (length)
            memcpy(out, data + offsets[i], length);
        out += length;
    }
}

size_t wire_strings_count(const uint8_t *buf, size_t start, size_t end, uint8_t tag,
                          uint64_t *total, size_t *stop)
{
    size_t count = 0;
    *total = 0;
    *stop = start;
    for (;;) {
        size_t at = *stop, next;
        if (!get_tag(buf, &at, end, tag) || !get_length(buf, &at, end, &next))
            return count;
        *total += next - at;
        *stop = next;
        count++;
    }
}

int wire_strings_fill(const uint8_t *buf, size_t start, size_t end, uint8_t tag, size_t count, uint64_t total,
                      int64_t *offsets, uint8_t *data)
{
    size_t at = start, next;
    uint64_t written = 0;
    offsets[0] = 0;
    for (size_t i = 0; i < count; i++) {
        if (!get_tag(buf, &at, end, tag) || !get_length(buf, &at, end, &next) || next - at > total - written)
            return 0;
        if (next > at)
            memcpy(data + written, buf + at, next - at);
        written += next - at;
        at = next;
        offsets[i + 1] = (int64_t)written;
    }
    return written == total;
}
