/* TFRecord framing: the scan, and finding records again after damage. */
#include "target.h"

#include "salvage.h"
#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    int verify = take_byte(&in) % 3, seal = take_byte(&in) & 1;
    size_t room = take_byte(&in) % 9;
    size_t n = in.size;
    uint8_t *buf = rest(&in);
    if (seal && n >= 12) { /* a header whose checksum is right: what comes after it is reached */
        uint64_t length;
        memcpy(&length, buf, 8);
        wire_frame_header(buf, length);
        if (length <= n - 12 && n - 12 - length >= 4)
            wire_put_u32(buf + 12 + length, wire_mask(wire_crc32c(0, buf + 12, length)));
    }
    int64_t *out = memory(room * 16);
    size_t next = 0, before;
    int status;
    do {
        before = next;
        size_t found = wire_scan(buf, n, &next, verify, out, room, &status);
        PROMISE(found <= room && next >= before && next <= n);
        for (size_t i = 0; i < found; i++)
            PROMISE(out[2 * i] >= 12 && (uint64_t)out[2 * i] <= n && (uint64_t)out[2 * i + 1] <= n - (size_t)out[2 * i]);
        if (!found)
            break;
    } while (status == WIRE_OK && next < n);

    size_t at = salvage_resync(buf, 0, n);
    PROMISE(n < 12 || at + 12 <= n || at > n - 12);
    for (size_t start = 0; n >= 16 && start < n; start += 1 + n / 3) {
        uint32_t crc = wire_crc32c(0, buf, start);
        size_t end = salvage_closing(buf, start, n, &crc);
        PROMISE(end >= start || end > n - 16);
    }
    free(out);
    free(buf);
    return 0;
}
