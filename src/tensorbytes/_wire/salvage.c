#include "salvage.h"

#include <string.h>

#include "instruction.h"
#include "wire.h"

#define HEADER 12u
#define CHECKSUM 4u

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Both search the headers that start in [at, stop), and return stop if none is sound. */

static size_t resync_portable(const uint8_t *buf, size_t at, size_t stop)
{
    while (at < stop && get_u32(buf + at + 8) != wire_mask(wire_crc32c_portable(0, buf + at, 8)))
        at++;
    return at;
}

#if WIRE_X86 || WIRE_ARM
/* The masking is spelled out: as a call it would take most of the time. */
WITH_INSTRUCTION
static size_t resync_instruction(const uint8_t *buf, size_t at, size_t stop)
{
    for (; at < stop; at++) {
        uint64_t length;
        memcpy(&length, buf + at, 8);
        uint32_t crc = ~CRC_U64(0xffffffffu, length);
        if (get_u32(buf + at + 8) == (crc >> 15 | crc << 17) + 0xa282ead8u)
            break;
    }
    return at;
}
#endif

size_t salvage_resync(const uint8_t *buf, size_t start, size_t end)
{
    if (end - start < HEADER)
        return start;
    size_t stop = end - HEADER + 1;
#if WIRE_X86 || WIRE_ARM
    if (wire_has_instruction())
        return resync_instruction(buf, start, stop);
#endif
    return resync_portable(buf, start, stop);
}

size_t salvage_closing(const uint8_t *buf, size_t start, size_t end, uint32_t *crc)
{
    if (end - start < CHECKSUM + HEADER)
        return start;
    /* Sound headers are rare: looking for them first lets the checksum run at full speed in between. */
    for (size_t at = start, done = start;; at++) {
        at = salvage_resync(buf, at + CHECKSUM, end) - CHECKSUM;
        *crc = wire_crc32c(*crc, buf + done, at - done);
        done = at;
        if (end - at < CHECKSUM + HEADER || get_u32(buf + at) == wire_mask(*crc))
            return at;
    }
}
