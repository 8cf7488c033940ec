/* Runs of varints: the way for this machine, the way for any machine and the plain definition give the same values for
 * any bytes, in any room, with any memory after them. */
#include "target.h"

#include "varints.h"

#define MOST_BYTES 2048

/* One byte after another, as the format defines it. */
static size_t define(const uint8_t *p, const uint8_t *end, int64_t *out, size_t room)
{
    size_t n = 0;
    while (p < end) {
        uint64_t value = 0;
        int bytes = 0;
        do {
            if (p == end || bytes == 10)
                return SIZE_MAX;
            value |= (uint64_t)(*p & 0x7f) << 7 * bytes++;
        } while (*p++ >= 0x80);
        if (n == room)
            return SIZE_MAX;
        out[n++] = (int64_t)value;
    }
    return n;
}

/* Varints grown from the input: each of its bytes is a length, of up to 15 bytes or one that spans whole blocks, and how
 * often such a varint is there. */
static size_t grow_varints(struct input *in, uint8_t *out)
{
    size_t n = 0;
    while (in->size) {
        uint8_t choice = take_byte(in), filler = take_byte(in);
        size_t length = choice & 15, times = 1 + (choice >> 4) % 15;
        if (!length) {
            length = 60 + (choice >> 4);
            times = 1;
        }
        for (; times; times--) {
            if (n + length > MOST_BYTES)
                return n;
            for (size_t i = 1; i < length; i++)
                out[n++] = (uint8_t)(filler + i) | 0x80;
            out[n++] = (uint8_t)(filler + times) & 0x7f;
        }
    }
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t choice = take_byte(&in), grown[MOST_BYTES];
    size_t start = take_byte(&in) % 16, after = take_byte(&in) % 100;
    size_t less = take_byte(&in);
    varints_init();
    if (choice & 1) {
        in.size = grow_varints(&in, grown);
        in.data = grown;
    }
    uint8_t *buf = rest(&in);
    size_t n = in.size, from = start < n ? start : n, to = n - (after < n - from ? after : n - from), ends = 0;
    const uint8_t *p = buf + from, *end = buf + to, *limit = buf + n;
    int whole = to > from && !(choice & 2); /* the last byte ends a varint, as all callers see to */
    if (whole)
        buf[to - 1] &= 0x7f;
    for (size_t i = from; i < to; i++)
        ends += buf[i] < 0x80;
    PROMISE(varints_count(p, to - from) == ends);

    size_t room = choice & 4 ? (less < ends ? ends - less : 0) : choice & 8 ? less % (ends + 1) : ends + (choice >> 4);
    int64_t *values = memory(room * 8), *portable = memory(room * 8), *defined = memory(room * 8);
    size_t found = varints_decode(p, end, limit, values, room);
    size_t found_portable = varints_decode_portable(p, end, limit, portable, room);
    size_t expected = define(p, end, defined, room);
    PROMISE(found == SIZE_MAX || found <= room);
    PROMISE(found_portable == SIZE_MAX || found_portable <= room);
    if (whole || from == to) {
        PROMISE(found == expected && found_portable == expected);
        PROMISE(expected == SIZE_MAX || !expected || !memcmp(values, defined, expected * 8));
        PROMISE(expected == SIZE_MAX || !expected || !memcmp(portable, defined, expected * 8));
    }
    free(defined);
    free(portable);
    free(values);
    free(buf);
    return 0;
}
