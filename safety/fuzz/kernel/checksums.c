/* Checksums: the instruction, the tables, three at once, copying, and joining must all agree. */
#include "target.h"

#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint32_t crc = (uint32_t)take_number(&in, 4);
    size_t skip = take_byte(&in) % 16, cut = (size_t)take_number(&in, 2);
    if (skip > in.size)
        skip = in.size;
    in.data += skip; /* any address */
    in.size -= skip;
    size_t n = in.size, one = n ? cut % (n + 1) : 0, two = one / 2;
    const uint8_t *buf = in.data;
    uint32_t whole = wire_crc32c(crc, buf, n);
    PROMISE(whole == wire_crc32c_portable(crc, buf, n));
    PROMISE(whole == wire_crc32c(wire_crc32c(crc, buf, one), buf + one, n - one));
    PROMISE(whole == wire_crc32c_join(wire_crc32c(crc, buf, one), wire_crc32c(0, buf + one, n - one), n - one));
    const uint8_t *parts[3] = {buf, buf + two, buf + one};
    size_t sizes[3] = {two, one - two, n - one};
    uint32_t three[3] = {0, 0, 0};
    wire_crc32c_three(parts, sizes, three);
    for (int i = 0; i < 3; i++)
        PROMISE(three[i] == wire_crc32c(0, parts[i], sizes[i]));
    uint8_t *copy = memory(n);
    PROMISE(wire_copy_crc32c(crc, copy, buf, n) == whole && (!n || !memcmp(copy, buf, n)));
    free(copy);
    return 0;
}
