/* TensorProtos: the plain form, the walk over fields, runs of strings. */
#include "target.h"

#include "wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t tag = take_byte(&in), stop = take_byte(&in);
    size_t shift = take_byte(&in);
    uint8_t *buf = message(&in, stop & 1);
    size_t n = in.size, start = n && stop & 2 ? shift % (n + 1) : 0;

    struct wire_tensor tensor;
    if (wire_plain_tensor(buf, start, n, &tensor)) {
        PROMISE(tensor.rank <= WIRE_MAX_RANK);
        PROMISE(tensor.content >= start && tensor.content <= n && tensor.content_size <= n - tensor.content);
    }

    size_t at = start, before;
    struct wire_field field;
    while (before = at, wire_next_field(buf, &at, n, stop, &field)) {
        PROMISE(at > before && at <= n && field.at == before);
        PROMISE(field.wire == 0 || (field.start <= field.end && field.start >= before && field.end <= n));
    }
    PROMISE(at == before);

    uint64_t total;
    size_t end, count = wire_strings_count(buf, start, n, tag, &total, &end);
    PROMISE(end >= start && end <= n && total <= n && count <= n);
    int64_t *offsets = memory((count + 1) * 8);
    uint8_t *strings = memory(total);
    PROMISE(wire_strings_fill(buf, start, n, tag, count, total, offsets, strings));
    PROMISE(offsets[0] == 0 && (uint64_t)offsets[count] == total);
    size_t packed = wire_strings_size(offsets, count);
    uint8_t *again = memory(packed);
    wire_strings_pack(again, tag, offsets, count, strings);
    /* Lengths may have been written overlong; what is packed never is. */
    PROMISE(packed <= end - start && (packed != end - start || !packed || !memcmp(again, buf + start, packed)));
    free(again);
    if (n) { /* a mapped file can change between counting and copying */
        buf[shift % n] ^= (uint8_t)(tag | 1);
        if (wire_strings_fill(buf, start, n, tag, count, total, offsets, strings))
            PROMISE((uint64_t)offsets[count] == total);
    }
    free(strings);
    free(offsets);
    free(buf);
    return 0;
}
